/*
 * test_gossip_mix.c - the arithmetic of averaging in pairs, and averaging alone on virtual clusters beside a twin in
 * doubles, which replays the recorded times in a plain loop.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "codec/kernels.h"
#include "exchange/exchange.h"
#include "gossip/gossip_mix.h"
#include "sim/virtual.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

TEST(test_exp)
{
    double worst = 0;
    for (int i = 0; i <= 200000; i++) {
        double y = i < 100000 ? i * 1e-5 : (i - 100000) * 0.007, right = exp(-y);
        worst = fmax(worst, fabs(nw_mix_exp(y) - right) / right);
    }
    print_message("exp: largest relative error %.3g\n", worst);
    assert_true(worst < 4.5e-16 && nw_mix_exp(0) == 1 && nw_mix_exp(1e9) == 0);
}

TEST(test_weights)
{
    assert_true(nw_mix_weight(0.3, 0) == 0 && nw_mix_weight(0, 5) == 0);
    assert_true(nw_mix_weight(0.3, 1e9) == 0.5f); /* both become their mean */
    for (int i = 1; i < 100; i++) {
        double time = i * 0.07;
        assert_true(fabs((double)nw_mix_weight(0.3, time) - (1 - exp(-0.6 * time)) / 2) < 1e-7);
    }
}

/* Mean, variance and the share above 1 of an exponential time. */
TEST(test_exponential_times)
{
    enum { COUNT = 400000 };
    double sum = 0, squares = 0;
    int above = 0;
    for (int i = 0; i < COUNT; i++) {
        nw_rng rng = nw_rng_make(5, NW_PURPOSE_TEST, (uint64_t)i, 3);
        double x = nw_mix_exponential(&rng);
        sum += x;
        squares += x * x;
        above += x > 1;
    }
    assert_true(fabs(sum / COUNT - 1) < 0.01 && fabs(squares / COUNT - 2) < 0.04);
    assert_true(fabs((double)above / COUNT - exp(-1)) < 0.003);
}

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

enum { FLOATS = 1003 };

static void fill(float *v, uint64_t seed)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 1, 0);
    for (int i = 0; i < FLOATS; i++) v[i] = nw_rng_normal(&rng);
}

/* Every instruction set has the bits of plain loops. */
TEST(test_vectors)
{
    float x[FLOATS], m[FLOATS], mine[FLOATS], theirs[FLOATS], out[FLOATS];
    for (int s = 0; s < nw_codec_kernel_sets(); s++) {
        const nw_codec_kernels *k = nw_codec_kernels_at(s);
        const float b = 0.137f, alpha = 1.87f;
        if (!k->usable()) continue;
        nw_codec_kernels_force(k);
        fill(mine, 3);
        fill(theirs, 4);
        for (int count = 0; count < FLOATS; count += 251) {
            fill(x, 1);
            fill(m, 2);
            nw_mix_send(x, m, b, out, (size_t)count, NULL);
            for (int i = 0; i < count; i++) assert_true(out[i] == x[i] + b * (m[i] - x[i]));
            nw_mix_approach(x, m, b, mine, theirs, 1, alpha, (size_t)count, NULL);
            float x0[FLOATS], m0[FLOATS];
            fill(x0, 1);
            fill(m0, 2);
            for (int i = 0; i < FLOATS; i++) {
                float d = b * (m0[i] - x0[i]), apart = mine[i] - theirs[i];
                float right = i < count ? x0[i] + d - 0.5f * apart : x0[i];
                float other = i < count ? m0[i] - d - alpha * apart : m0[i];
                assert_true(x[i] == right && m[i] == other);
            }
            nw_mix_approach(x0, NULL, b, mine, theirs, 1, alpha, (size_t)count, NULL);
            nw_mix_both(m, NULL, b, (size_t)count, NULL);
            fill(x, 1);
            for (int i = 0; i < count; i++) assert_true(x0[i] == x[i] - 0.5f * (mine[i] - theirs[i]));
        }
    }
    nw_codec_kernels_force(NULL);
}

/* Threads share long vectors, to the same bits. */
TEST(test_pool)
{
    enum { LONG = 5 << 16 };
    nw_pool *pool;
    float *v = malloc(6 * (size_t)LONG * sizeof *v);
    assert_non_null(v);
    ok(nw_pool_create(&pool, 3));
    for (int64_t i = 0; i < 6 * LONG; i++) v[i] = (float)(i * 7919 % 10007) * 1e-4f;
    float *x = v, *m = v + LONG, *mine = v + 2 * LONG, *theirs = v + 3 * LONG, *y = v + 4 * LONG, *n = v + 5 * LONG;
    memcpy(y, x, 2 * (size_t)LONG * sizeof *v);
    nw_mix_approach(x, m, 0.2f, mine, theirs, 1, 0.9f, LONG, NULL);
    nw_mix_approach(y, n, 0.2f, mine, theirs, 1, 0.9f, LONG, pool);
    assert_memory_equal(x, y, 2 * (size_t)LONG * sizeof *v);
    nw_mix_both(x, m, 0.1f, LONG, NULL);
    nw_mix_both(y, n, 0.1f, LONG, pool);
    nw_mix_send(x, m, 0.3f, mine, LONG, NULL);
    nw_mix_send(y, n, 0.3f, theirs, LONG, pool);
    assert_memory_equal(x, y, 2 * (size_t)LONG * sizeof *v);
    assert_memory_equal(mine, theirs, (size_t)LONG * sizeof *v);
    nw_pool_free(pool);
    free(v);
}

/* Means of parts are those of all, in any tree. */
TEST(test_means)
{
    enum { PARTS = 7 };
    static float v[PARTS][FLOATS];
    double spread = 0;
    for (int p = 0; p < PARTS; p++) fill(v[p], (uint64_t)p + 10);
    for (int i = 0; i < FLOATS; i++) {
        double mean = 0;
        for (int p = 0; p < PARTS; p++) mean += (double)v[p][i] / PARTS;
        for (int p = 0; p < PARTS; p++) spread += pow((double)v[p][i] - mean, 2);
    }
    nw_mean_part part[PARTS];
    for (int p = 0; p < PARTS; p++) part[p] = (nw_mean_part){v[p], 1, 0};
    for (int p = 2; p >= 0; p--)
        for (int child = 2 * p + 1; child <= 2 * p + 2; child++) nw_mean_join(&part[p], &part[child], FLOATS);
    assert_int_equal(part[0].count, PARTS);
    assert_true(fabs(part[0].spread / spread - 1) < 1e-6);
}

/* ---- averaging alone --------------------------------------------------------------------------------------------- */

enum { MEMBERS = 32, WIDTH = 64, NOTES = 1 << 18 };

typedef struct member {
    nw_params params;
    float values[WIDTH], gradients[WIDTH];
    nw_rank rank;
} member;

static member at[MEMBERS];
static uint16_t everybody[MEMBERS];
static nw_gossip_note notes[NOTES];
static int note_count;

static void hear(void *context, const nw_gossip_note *n)
{
    (void)context;
    assert_true(note_count < NOTES);
    notes[note_count++] = *n;
}

/* A gradient takes one millisecond, give or take, and a rate of 0. */
static nw_status work(void *worker, nw_task *task, nw_announce *announce)
{
    (void)worker, (void)task, (void)announce;
    return NW_OK;
}
static int cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker;
    if (most > 0) ns[0] = task->kind == NW_TASK_PASS ? 1000000 : 100;
    return 1;
}

typedef struct outcome {
    double ratio;      /* of the last consensus distance to the first */
    double worst;      /* difference between a float and its twin */
    double sum;        /* how far the sum over members moved: of x, or with momentum of x + x~ (of the twin) */
    int64_t exchanges;
} outcome;

static double distance(const double *v, int members)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++) {
        double mean = 0;
        for (int m = 0; m < members; m++) mean += v[m * WIDTH + i] / members;
        for (int m = 0; m < members; m++) sum += pow(v[m * WIDTH + i] - mean, 2);
    }
    return sum;
}

/* What was done, in doubles and with the C library's exp. */
static void replay(double *x, double *o, int members, double eta, double alpha)
{
    static double sent[MEMBERS][MEMBERS][WIDTH];
    (void)members;
    for (int k = 0; k < note_count; k++) {
        const nw_gossip_note *n = &notes[k];
        double b = (1 - exp(-2 * eta * n->time)) / 2, *xm = x + n->member * WIDTH, *om = o + n->member * WIDTH;
        for (size_t i = n->first; i < n->first + n->count; i++) {
            double d = b * (om[i] - xm[i]);
            if (n->what == NW_GOSSIP_SENT) {
                sent[n->member][n->with][i] = xm[i] + d;
                continue;
            }
            xm[i] += d;
            om[i] -= d;
            if (n->what != NW_GOSSIP_APPROACHED) continue;
            double apart = sent[n->member][n->with][i] - sent[n->with][n->member][i];
            xm[i] -= 0.5 * apart;
            om[i] -= alpha * apart;
        }
    }
}

static void make_member(int m, int members, const nw_gossip_options *how, const nw_codec *codec)
{
    static const nw_worker_ops ops = {.run = work, .cost = cost};
    member *one = &at[m];
    nw_machine *exchange;
    int index, shape = WIDTH;
    *one = (member){0};
    ok(nw_segments_add(&one->params.learned, "a", NW_ROLE_LINEAR, 0, 1, 1, &shape, &index));
    one->params.values = one->values;
    one->params.gradients = one->gradients;
    nw_rng rng = nw_rng_make(how->seed, NW_PURPOSE_TEST, 7, (uint32_t)m);
    for (int i = 0; i < WIDTH; i++) one->values[i] = nw_rng_normal(&rng);
    nw_exchange_options e = {.name = "gossip",
                             .group = {everybody, members, m},
                             .params = &one->params,
                             .layout.codec = codec,
                             .gossip = *how};
    ok(nw_exchange_create(&exchange, &e));
    one->rank = (nw_rank){.index = m, .work = &ops};
    ok(nw_passes_create(&one->rank.machine, exchange, &one->params, 1));
}

static outcome average(const char *graph, int members, int64_t gradients, bool acid, nw_pairing pairing, uint64_t seed)
{
    static double x[MEMBERS * WIDTH], o[MEMBERS * WIDTH];
    nw_gossip_options how = {.seed = seed, .rate = 1, .acid = acid, .pairing = pairing, .tap = {hear, NULL}};
    nw_cluster *cluster;
    nw_codec *codec;
    nw_driver *driver;
    nw_rank ranks[MEMBERS];
    outcome out = {0};
    double chi1, chi2, sums[2][WIDTH] = {{0}}, both[WIDTH] = {0};
    note_count = 0;
    for (int m = 0; m < members; m++) everybody[m] = (uint16_t)m;
    ok(nw_graph_make(&how.graph, graph, members, seed));
    chi1 = chi2 = 1; /* by hand, where a build without LAPACK cannot know them */
    if (strcmp(graph, "random-regular") != 0) ok(nw_graph_constants(how.graph, 1, &chi1, &chi2));
    how.eta = acid ? 1 / (2 * sqrt(chi1 * chi2)) : 0;
    how.alpha = acid ? 0.5 * sqrt(chi1 / chi2) : 0.5;
    ok(nw_codec_create(&codec, &(nw_codec_options){.name = "none"}));
    ok(nw_cluster_create(&cluster, members, members, 0, (int)seed));
    cluster->links[0] = (nw_cluster_link){.latency_ns = 500, .bandwidth = 1e10};
    for (int m = 0; m < members; m++) cluster->ranks[m].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.1};
    for (int m = 0; m < members; m++) {
        make_member(m, members, &how, codec);
        ranks[m] = at[m].rank;
        for (int i = 0; i < WIDTH; i++) {
            x[m * WIDTH + i] = o[m * WIDTH + i] = (double)at[m].values[i];
            sums[0][i] += (double)at[m].values[i];
        }
    }
    double begin = distance(x, members);
    ok(nw_virtual_create(&driver, &(nw_driver_options){0},
                         &(nw_virtual_options){.cluster = cluster, .touch_bytes_per_second = 1e12}));
    ok(nw_driver_run(driver, ranks, &(nw_go){.until = gradients * members, .batches = INT64_MAX}));
    replay(x, o, members, how.eta, how.alpha);
    for (int m = 0; m < members; m++)
        for (int i = 0; i < WIDTH; i++) {
            out.worst = fmax(out.worst, fabs(x[m * WIDTH + i] - (double)at[m].values[i]));
            both[i] += (x[m * WIDTH + i] + o[m * WIDTH + i]) / 2;
            x[m * WIDTH + i] = (double)at[m].values[i];
            sums[1][i] += (double)at[m].values[i];
        }
    for (int i = 0; i < WIDTH; i++) out.sum = fmax(out.sum, fabs((acid ? both[i] : sums[1][i]) - sums[0][i]));
    out.ratio = distance(x, members) / begin;
    for (int k = 0; k < note_count; k++) out.exchanges += notes[k].what == NW_GOSSIP_APPROACHED;
    out.exchanges /= 2;
    for (int m = 0; m < members; m++) {
        nw_exchange_free(ranks[m].machine);
        free(at[m].params.learned.at);
    }
    nw_driver_free(driver);
    nw_cluster_free(cluster);
    nw_codec_free(codec);
    nw_graph_free(how.graph);
    return out;
}

/* Rings of 16 after 80 gradients and of 32 after 240: published for exchanges without delay are 4e-4 and 7e-4, with
 * momentum 2e-8 and 2e-12. The number of exchanges is that of the rate. */
TEST(test_rings_follow_their_twins)
{
    static const struct {
        int members, gradients;
        bool acid;
        double least, most;
    } cases[] = {{16, 80, false, 2e-5, 8e-3}, {16, 80, true, 0, 2e-6}, {32, 240, false, 5e-5, 8e-3}, {32, 240, true, 0, 1e-9}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double log_ratio = 0;
        for (uint64_t seed = 1; seed <= 3; seed++) {
            outcome o = average("cycle", cases[c].members, cases[c].gradients, cases[c].acid, NW_PAIR_HANDSHAKE, seed);
            double due = cases[c].members * cases[c].gradients / 2.0;
            print_message("ring %d%s: distance %.2g of the first, %.2g from its twin, %lld exchanges of %.0f\n",
                          cases[c].members, cases[c].acid ? ", momentum" : "", o.ratio, o.worst, (long long)o.exchanges, due);
            assert_true(o.worst < 2e-5 && o.sum < (cases[c].acid ? 1e-12 : 1e-5));
            assert_true(fabs((double)o.exchanges / due - 1) < 0.12);
            log_ratio += log(o.ratio) / 3;
        }
        assert_true(exp(log_ratio) > cases[c].least && exp(log_ratio) < cases[c].most);
    }
}

/* Every way of pairing comes to the same mean, at about the same speed. */
TEST(test_ways_of_pairing)
{
    static const char *const graphs[] = {"complete", "exponential", "torus", "random-regular", "star"};
    for (int g = 0; g < 5; g++)
        for (int pairing = NW_PAIR_HANDSHAKE; pairing <= NW_PAIR_SCHEDULED; pairing++) {
            outcome o = average(graphs[g], 16, 40, true, (nw_pairing)pairing, 2);
            print_message("%s, pairing %d: distance %.2g of the first, %lld exchanges\n", graphs[g], pairing, o.ratio,
                          (long long)o.exchanges);
            assert_true(o.worst < 2e-5 && o.sum < 1e-12 && o.ratio < 1e-2);
            assert_true(o.exchanges > 100 && o.exchanges < 400);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),       cmocka_unit_test(test_weights),
        cmocka_unit_test(test_exponential_times), cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_pool),      cmocka_unit_test(test_means),
        cmocka_unit_test(test_rings_follow_their_twins), cmocka_unit_test(test_ways_of_pairing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
