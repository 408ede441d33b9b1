/*
 * test_memory.c - memories on their own: their loops in every instruction set, the recursions of EF21 and of DGC with the
 * published numbers, what is taken back, and where they are refused.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "codec/memory.h"
#include "support/blocks.h"
#include "support/largest.h"
#include "support/third.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static nw_memory *make(nw_memory_options o, size_t floats)
{
    nw_memory *m;
    ok(nw_memory_create(&m, &o, floats));
    return m;
}

static void fill(float *x, size_t count, uint64_t stream)
{
    nw_rng rng = nw_rng_make(11, NW_PURPOSE_TEST, stream, 0);
    for (size_t i = 0; i < count; i++) x[i] = nw_rng_normal(&rng);
}

/* ---- loops ---- */

enum { LONG = 517 };

/* Every set, against one element after the other, bit for bit. */
TEST(test_loops_of_memories)
{
    static float g[LONG], u[LONG], v[LONG], a[LONG], b[LONG], c[LONG], d[LONG];
    fill(g, LONG, 1);
    fill(u, LONG, 2);
    fill(v, LONG, 3);
    for (int set = 0; set < nw_codec_kernel_sets(); set++) {
        const nw_codec_kernels *k = nw_codec_kernels_at(set);
        if (!k->usable()) continue;
        for (size_t n = 0; n <= LONG; n += n < 70 ? 1 : 149)
            for (int nesterov = 0; nesterov < 2; nesterov++) {
                memcpy(a, u, sizeof a);
                memcpy(b, v, sizeof b);
                k->correct(a, b, g, 0.9f, 0.3f, nesterov, n);
                memcpy(c, u, sizeof c);
                memcpy(d, g, sizeof d);
                k->momentum(c, d, 0.9f, nesterov, n);
                for (size_t i = 0; i < LONG; i++) {
                    float fresh = 0.3f * g[i], p = nesterov ? 0.9f * (u[i] + fresh) : 0.9f * u[i] + fresh;
                    float q = nesterov ? 0.9f * (u[i] + g[i]) : 0.9f * u[i] + g[i];
                    assert_true(a[i] == (i < n ? p : u[i]));
                    assert_true(b[i] == (i < n ? v[i] + (nesterov ? p + fresh : p) : v[i]));
                    assert_true(c[i] == (i < n ? q : u[i]));
                    assert_true(d[i] == (i < n ? (nesterov ? q + g[i] : q) : g[i]));
                }
                memcpy(a, u, sizeof a);
                memcpy(b, v, sizeof b);
                k->differ(a, g, 0.3f, v, n);
                memcpy(c, g, sizeof c);
                k->follow(b, c, n);
                memcpy(d, g, sizeof d);
                k->scale(d, -0.7f, n);
                for (size_t i = 0; i < LONG; i++) {
                    assert_true(a[i] == (i < n ? 0.3f * g[i] - v[i] : u[i]));
                    assert_true(b[i] == (i < n ? v[i] + g[i] : v[i]) && c[i] == (i < n ? b[i] : g[i]));
                    assert_true(d[i] == (i < n ? -0.7f * g[i] : g[i]));
                }
            }
    }
}

/* What begin makes is what peek said. */
TEST(test_peeks)
{
    static const char *const names[] = {"error", "ef21", "dgc", "momentum"};
    static float g[LONG], said[LONG];
    nw_tile all = {.count = LONG};
    for (int name = 0; name < 4; name++)
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            nw_memory *m = make(
                (nw_memory_options){.name = names[name], .momentum = 0.9, .nesterov = nesterov, .masking = true}, LONG);
            for (uint64_t step = 0; step < 3; step++) {
                nw_seen seen = {.entries = 1, .at = {7}, .values = {0.5f}};
                fill(g, LONG, step);
                for (size_t i = 0; i < LONG; i++) said[i] = m->ops->peek(m, i, g[i], 0.25f);
                m->ops->begin(m, &all, g, 0.25f);
                for (size_t i = 0; i < LONG; i++) assert_true(fabsf(m->v[i] - said[i]) <= 1e-6f);
                m->ops->sent(m, &all, &seen);
            }
            nw_memory_free(m);
        }
}

/* ---- DGC's published numbers: two workers, one entry of four each, momentum 0.9 ---- */

typedef struct golden {
    bool nesterov, masking;
    int chosen[2][3];
    float means[3][4];
    float u[2][4], v[2][4]; /* NAN: not given */
} golden;

#define ANY                \
    {                      \
        NAN, NAN, NAN, NAN \
    }
static const golden goldens[] = {{false,
                                  true,
                                  {{3, 0, 0}, {0, 1, 2}},
                                  {{-.25f, 0, 0, .5f}, {.6f, .4875f, 0, 0}, {-.5f, 0, .61875f, 0}},
                                  {{0, .7225f, .15125f, .125f}, {.7f, -.25f, 0, -.1975f}},
                                  {{0, .9975f, -.11125f, .125f}, {1.2f, -.25f, 0, -.7225f}}},
                                 {false,
                                  false,
                                  {{3, 0, 3}, {0, 1, 2}},
                                  {{-.25f, 0, 0, .5f}, {NAN, NAN, NAN, NAN}, {0, 0, .61875f, .9175f}},
                                  {{-.37f, .7225f, .15125f, .935f}, ANY},
                                  {{-.37f, .9975f, -.11125f, 0}, ANY}},
                                 {true,
                                  true,
                                  {{3, 0, 0}, {0, 1, 2}},
                                  {{-.475f, 0, 0, .95f}, {.915f, .81375f, 0, 0}, {-.95f, 0, 1.119375f, 0}},
                                  {ANY, ANY},
                                  {{0, 1.64775f, .024875f, .2375f}, ANY}}};

static const float golden_gradients[2][3][4] = {{{.5f, -.25f, .125f, 1}, {.25f, .75f, -.5f, 0}, {-1, .25f, .5f, .125f}},
                                                {{-.5f, .25f, 0, .25f}, {.5f, .5f, .125f, -1}, {.25f, -.25f, 1, .5f}}};

static void check_near(const float *got, const float *want, int count)
{
    for (int i = 0; i < count; i++)
        if (!isnan(want[i]) && fabsf(got[i] - want[i]) > 1e-6f)
            fail_msg("element %d is %g instead of %g", i, (double)got[i], (double)want[i]);
}

TEST(test_golden_numbers_of_dgc)
{
    nw_codec codec = largest_codec(0.25);
    nw_block b = plain_block(&codec, 4);
    for (size_t c = 0; c < sizeof goldens / sizeof goldens[0]; c++) {
        const golden *g = &goldens[c];
        nw_memory *m[2];
        for (int r = 0; r < 2; r++)
            m[r] = make(
                (nw_memory_options){.name = "dgc", .momentum = 0.9, .nesterov = g->nesterov, .masking = g->masking}, 4);
        for (int step = 0; step < 3; step++) {
            float mean[4] = {0};
            for (int r = 0; r < 2; r++) {
                uint8_t bytes[64];
                uint32_t chosen;
                nw_encoded e = encode_block(&b, m[r], (nw_codec_key){0}, golden_gradients[r][step], bytes, NULL);
                assert_int_equal(e.bytes, 8);
                memcpy(&chosen, bytes, 4);
                assert_int_equal(chosen, g->chosen[r][step]);
                ok(decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, mean, true, NULL));
            }
            for (int i = 0; i < 4; i++) mean[i] *= 0.5f;
            check_near(mean, g->means[step], 4);
        }
        for (int r = 0; r < 2; r++) {
            check_near(m[r]->u, g->u[r], 4);
            check_near(m[r]->v, g->v[r], 4);
            nw_memory_free(m[r]);
        }
    }
    nw_block_free(&b);
}

/* What rounding lost of a value that was sent stays in v; without entries nothing is masked. */
TEST(test_dgc_keeps_what_rounding_lost)
{
    nw_memory *m = make((nw_memory_options){.name = "dgc", .momentum = 0.5, .masking = true}, 3);
    nw_tile tile = {.count = 3};
    m->ops->begin(m, &tile, (float[]){1, 2, 4}, 1);
    nw_seen seen = {.entries = 2, .at = {0, 2}, .values = {0.875f, 4.5f}};
    m->ops->sent(m, &tile, &seen);
    assert_true(m->v[0] == 0.125f && m->v[1] == 2 && m->v[2] == -0.5f);
    assert_true(m->u[0] == 0 && m->u[1] == 2 && m->u[2] == 0);
    seen = (nw_seen){.entries = -1, .values = {0.125f, 1, 0}};
    m->ops->sent(m, &tile, &seen);
    assert_true(m->v[0] == 0 && m->v[1] == 1 && m->v[2] == -0.5f && m->u[1] == 2);
    float mean[3] = {1, 1, 1};
    m->ops->reduced(m, &tile, mean, false);
    assert_true(mean[0] == 1 && mean[1] == 1 && m->u[1] == 2);
    m->ops->reduced(m, &tile, mean, true);
    assert_true(mean[0] == 1 && mean[1] == 2 && m->u[1] == 2);
    nw_memory_free(m);
}

/* Where all is sent, by a codec that lists entries, as workers of a server do in dense epochs: momentum SGD. */
TEST(test_dgc_has_momentum_where_all_is_sent)
{
    nw_codec codec = largest_codec(1);
    nw_block b = plain_block(&codec, 3);
    nw_memory *m = make((nw_memory_options){.name = "dgc", .momentum = 0.5, .masking = true}, 3);
    float want = 0;
    for (int step = 0; step < 4; step++) {
        uint8_t bytes[64];
        float got[3];
        want = 0.5f * want + 1;
        nw_encoded e = encode_block(&b, m, (nw_codec_key){0}, (float[]){1, 2, -4}, bytes, NULL);
        ok(decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, got, false, NULL));
        assert_true(got[0] == want && got[1] == 2 * want && got[2] == -4 * want);
    }
    codec.options.ratio = 0.99; /* all the same, but not by what was asked for: masked */
    encode_block(&b, m, (nw_codec_key){0}, (float[]){1, 2, -4}, (uint8_t[64]){0}, NULL);
    assert_true(m->u[0] == 0 && m->u[1] == 0 && m->u[2] == 0);
    nw_memory_free(m);
    nw_block_free(&b);
}

/* ---- EF21 ---- */

/* Three members with constant gradients: estimates reach them, and the mean of what all know is what is applied. */
TEST(test_ef21_is_its_recursion)
{
    enum { N = 40, MEMBERS = 3, STEPS = 60 };
    static float g[MEMBERS][N], h[MEMBERS][N], all[N];
    nw_codec codec = largest_codec(0.1);
    nw_block b = plain_block(&codec, N);
    nw_memory *m[MEMBERS];
    nw_tile tile = {.count = N};
    for (int r = 0; r < MEMBERS; r++) {
        m[r] = make((nw_memory_options){.name = "ef21"}, N);
        fill(g[r], N, (uint64_t)r);
    }
    for (int step = 0; step < STEPS; step++) {
        float mean[N] = {0}, want[N] = {0}, work[N];
        bool marks[N];
        for (int r = 0; r < MEMBERS; r++) {
            uint8_t bytes[8 * N];
            nw_encoded e = encode_block(&b, m[r], (nw_codec_key){0}, g[r], bytes, NULL);
            ok(decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, mean, true, NULL));
            for (int i = 0; i < N; i++) work[i] = g[r][i] - h[r][i];
            largest_mark(work, N, 4, marks);
            for (int i = 0; i < N; i++) {
                h[r][i] += marks[i] ? work[i] : 0;
                want[i] += marks[i] ? work[i] : 0;
                assert_true(m[r]->v[i] == (marks[i] ? 0 : work[i])); /* how far the estimate is off */
            }
        }
        for (int i = 0; i < N; i++) {
            mean[i] *= 1.0f / MEMBERS;
            all[i] += want[i] * (1.0f / MEMBERS);
        }
        for (int r = 0; r < MEMBERS; r++) {
            float applied[N];
            memcpy(applied, mean, sizeof applied);
            m[r]->ops->reduced(m[r], &tile, applied, true); /* of dense items nothing */
            assert_memory_equal(applied, mean, sizeof mean);
            m[r]->ops->reduced(m[r], &tile, applied, false);
            assert_memory_equal(applied, all, sizeof all);
            assert_memory_equal(m[r]->u, h[r], sizeof h[r]);
        }
    }
    for (int i = 0; i < N; i++) assert_true(fabsf(all[i] - (g[0][i] + g[1][i] + g[2][i]) / MEMBERS) < 1e-5f);
    for (int r = 0; r < MEMBERS; r++) nw_memory_free(m[r]);
    nw_block_free(&b);
}

/* ---- where they are legal ---- */

static double given_delta;
static double say_delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    return given_delta / (double)n;
}

static nw_status check(const char *codec_name, double delta, const char *memory)
{
    nw_codec_ops ops = {.name = codec_name, .delta = say_delta};
    nw_codec codec = {.ops = &ops};
    given_delta = delta * 100;
    return nw_memory_check(&codec, &(nw_memory_options){.name = memory, .momentum = 0.9}, 100);
}

TEST(test_where_memories_are_legal)
{
    static const struct {
        const char *codec;
        double delta;
        bool legal[4]; /* none, error, ef21, dgc */
    } cases[] = {{"topk", 0.01, {true, true, true, true}},      {"randomk", 0.01, {true, true, true, false}},
                 {"randomk", -98, {true, false, false, false}}, {"terngrad", -3.5, {true, false, false, false}},
                 {"qsgd", -5, {true, false, false, false}},     {"qsgd", 0.97, {true, true, true, false}},
                 {"natural", 0.875, {true, true, true, false}}, {"sign", 0, {true, false, false, false}},
                 {"thresholdv", 0, {true, true, false, false}}, {"adaptivethreshold", 0.001, {true, true, true, false}},
                 {"powersgd", 0, {true, true, false, false}},   {"int8", 0.996, {true, true, true, false}}};
    static const char *const names[] = {"none", "error", "ef21", "dgc"};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(check(cases[c].codec, cases[c].delta, names[k]),
                             cases[c].legal[k] ? NW_OK : NW_E_ARGUMENT);
    check("terngrad", -3.5, "error");
    assert_non_null(strstr(nw_error_message(), "-3.5"));
    check("powersgd", 0, "ef21");
    assert_non_null(strstr(nw_error_message(), "--memory error"));
    assert_int_equal(check("topk", 0.5, "momentun"), NW_E_UNKNOWN);
    for (double momentum = -0.5; momentum < 2; momentum += 1.5) {
        nw_codec codec = largest_codec(0.1);
        nw_memory_options o = {.name = "dgc", .momentum = momentum};
        assert_int_equal(nw_memory_check(&codec, &o, 10), NW_E_ARGUMENT);
    }
    assert_int_equal(nw_memory_check(&nw_codec_plain, &(nw_memory_options){.name = "ef21"}, 10), NW_OK);
    assert_int_equal(nw_memory_bytes(&(nw_memory_options){.name = "ef21"}, 100), 1200);
    assert_int_equal(nw_memory_bytes(&(nw_memory_options){.name = "none"}, 100), 0);
    assert_int_equal(nw_memory_bytes(&(nw_memory_options){0}, 100), 0);
    for (int i = 0; i < nw_memory_kinds(); i++) assert_true(strlen(nw_memory_at(i)->summary) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops_of_memories),
                                       cmocka_unit_test(test_peeks),
                                       cmocka_unit_test(test_golden_numbers_of_dgc),
                                       cmocka_unit_test(test_dgc_keeps_what_rounding_lost),
                                       cmocka_unit_test(test_dgc_has_momentum_where_all_is_sent),
                                       cmocka_unit_test(test_ef21_is_its_recursion),
                                       cmocka_unit_test(test_where_memories_are_legal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
