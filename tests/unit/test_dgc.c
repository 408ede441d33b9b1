/*
 * test_dgc.c - memories in an exchange: what allreduce makes of them in every mode, against plain loops, bit for bit.
 *
 * Some layers are dense, the others send their largest elements (support/largest.h), gathered or by owners, with delay or
 * without, clipped or not, in epochs that are compressed and in some that are not; saved in the middle, and continued by
 * as many members or by others. And where everything is sent, momentum SGD.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/channel.h"
#include "channel/warm_up.h"
#include "support/largest.h"
#include "support/optim_fixture.h"
#include "support/world.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static const int SEGMENTS[] = {40, 7, 65, 16, 130, 0};
enum { FLOATS = 40 + 7 + 65 + 16 + 130, LAYERS = 5, EPOCH = 3 };
static bool DENSE[] = {false, true, false, true, false};
static const size_t FIRST[] = {0, 40, 47, 112, 128, FLOATS};

static world w, before;
static nw_codec codec; /* of the layers that are not dense */
static const nw_codec *codecs[LAYERS];
static int owner[FLOATS];

/* ---- the twin ---- */

typedef struct twin {
    float weights[FLOATS], mean[FLOATS], held[FLOATS];
    float v[WORLD_MOST][FLOATS], u[WORLD_MOST][FLOATS]; /* u: of EF21, estimates */
    float momentum[FLOATS], estimate[FLOATS];           /* of dense layers; of EF21, of all */
    float owners[FLOATS];
    int64_t batches[WORLD_MOST];
} twin;

static void twin_begin(twin *t)
{
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < FLOATS; i++) t->weights[i] = world_start(i);
}

static bool is_memory(const world *x, const char *name)
{
    return x->o.exchange.memory.name && strcmp(x->o.exchange.memory.name, name) == 0;
}

/* The factor of clipping: sums in 16 lanes. */
static float twin_clip(const world *x, const float *g)
{
    double lanes[16] = {0}, sum = 0, norm = x->o.exchange.memory.clip_norm;
    for (int i = 0; i < FLOATS; i++) lanes[i % 16] += (double)g[i] * (double)g[i];
    for (int i = 0; i < 16; i++) sum += lanes[i];
    double factor = norm / sqrt(x->o.members) / (sqrt(sum) + 1e-6);
    return norm > 0 && factor < 1 ? (float)factor : 1;
}

/* What a member makes of an element, before something is chosen. */
static float twin_take(twin *t, const world *x, int r, size_t i, float g, float clip, int64_t step)
{
    const nw_memory_options *o = &x->o.exchange.memory;
    float m = (float)o->momentum, *u = &t->u[r][i], *v = &t->v[r][i], fresh = clip * g;
    if (is_memory(x, "error"))
        *v += fresh;
    else if (is_memory(x, "ef21"))
        *v = fresh - *u;
    else if (is_memory(x, "momentum"))
        *v = o->freeze > step ? *v + fresh : (*v + m * t->momentum[i]) + (float)(1 - o->momentum) * clip * g;
    else if (is_memory(x, "dgc") && o->nesterov) {
        *u = m * (*u + fresh);
        *v += *u + fresh;
    } else if (is_memory(x, "dgc")) {
        *u = m * *u + fresh;
        *v += *u;
    } else
        *v = fresh;
    return *v;
}

static void twin_sent(twin *t, const world *x, int r, size_t i, bool plain)
{
    if (is_memory(x, "ef21")) t->u[r][i] += t->v[r][i];
    if (is_memory(x, "dgc") && x->o.exchange.memory.masking && !plain) t->u[r][i] = 0;
    t->v[r][i] = 0;
}

/* One member's layer is added to the sum. */
static void twin_layer(twin *t, const world *x, int r, int layer, const float *g, float clip, double ratio, bool plain,
                       int64_t step)
{
    size_t first = FIRST[layer], n = FIRST[layer + 1] - first;
    bool marks[FLOATS];
    for (size_t i = first; i < first + n; i++) {
        float given = DENSE[layer] ? clip * g[i] : twin_take(t, x, r, i, g[i], clip, step);
        if (DENSE[layer]) t->mean[i] = r ? t->mean[i] + given : given;
    }
    if (DENSE[layer]) return;
    largest_mark(t->v[r] + first, n, plain ? n : nw_codec_count(&codec, n, ratio), marks);
    for (size_t i = first; i < first + n; i++) {
        bool sends = plain || marks[i - first];
        float d = sends ? t->v[r][i] : 0;
        t->mean[i] = r ? t->mean[i] + d : d;
        if (sends) twin_sent(t, x, r, i, plain);
    }
}

/* Owners send the largest of what they own of a layer. */
static void twin_owners(twin *t, const world *x, int layer, double ratio)
{
    bool marks[FLOATS];
    for (size_t first = FIRST[layer], end; first < FIRST[layer + 1]; first = end) {
        for (end = first; end < FIRST[layer + 1] && owner[end] == owner[first];) end++;
        for (size_t i = first; i < end; i++)
            t->owners[i] = x->o.exchange.memory.name ? t->owners[i] + t->mean[i] : t->mean[i];
        largest_mark(t->owners + first, end - first, nw_codec_count(&codec, end - first, ratio), marks);
        for (size_t i = first; i < end; i++) {
            t->mean[i] = marks[i - first] ? t->owners[i] : 0;
            t->owners[i] -= t->mean[i];
        }
    }
}

static void twin_reduced(twin *t, const world *x, int layer, bool early)
{
    const nw_memory_options *o = &x->o.exchange.memory;
    float m = (float)o->momentum;
    for (size_t i = FIRST[layer]; i < FIRST[layer + 1]; i++) {
        float *u = &t->momentum[i], *mean = &t->mean[i];
        if (DENSE[layer] && is_memory(x, "dgc")) {
            *u = o->nesterov ? m * (*u + *mean) : m * *u + *mean;
            *mean = o->nesterov ? *u + *mean : *u;
        }
        if (is_memory(x, "momentum")) {
            *u = early || DENSE[layer] ? m * *u + (float)(1 - o->momentum) * *mean : *mean;
            if (DENSE[layer] && !early) *mean = *u;
        }
        if (!DENSE[layer] && is_memory(x, "ef21")) *mean = t->estimate[i] += *mean;
    }
}

/* Ratios by epoch; 1: plain. */
static double ratio_at(int64_t step)
{
    const nw_warm_up *up = &codec.options.warm_up;
    return step / EPOCH < up->epochs ? up->list[step / EPOCH] : codec.options.ratio;
}

static void twin_step(twin *t, const world *x, int64_t step)
{
    static float g[FLOATS];
    double ratio = ratio_at(step);
    bool plain = ratio >= 1 || step < x->o.exchange.memory.freeze;
    memcpy(t->held, t->mean, sizeof t->held);
    for (int r = 0; r < x->o.members; r++) {
        world_gradient(x, r, t->batches[r]++, t->weights, false, g);
        float clip = twin_clip(x, g);
        for (int layer = 0; layer < LAYERS; layer++) twin_layer(t, x, r, layer, g, clip, ratio, plain, step);
    }
    for (size_t i = 0; i < FLOATS; i++) t->mean[i] *= 1.0f / (float)x->o.members;
    for (int layer = 0; layer < LAYERS; layer++) {
        if (!DENSE[layer] && !plain && x->o.exchange.layout.collective != NW_COLLECTIVE_GATHER)
            twin_owners(t, x, layer, ratio);
        twin_reduced(t, x, layer, step < x->o.exchange.memory.freeze);
    }
    if (x->o.exchange.delay == 0)
        world_update(t->weights, t->mean, 0, FLOATS, 1.0f, step);
    else if (step > 0)
        world_update(t->weights, t->held, 0, FLOATS, 1.0f, step - 1);
}

/* What becomes of memories in a world of another size. */
static void twin_move(twin *t, const world *x, int to)
{
    int from = x->o.members;
    float factor = (float)((double)to / from), sums[2][WORLD_MOST][FLOATS] = {{{0}}};
    for (int j = 0; j < to; j++) t->batches[j] = t->batches[0];
    if (from == to) return;
    for (int j = 0; j < from; j++)
        for (size_t i = 0; i < FLOATS; i++) {
            sums[0][j % to][i] += factor * t->v[j][i];
            sums[1][j % to][i] += factor * t->u[j][i];
        }
    memcpy(t->v, sums[0], sizeof t->v);
    memcpy(t->u, sums[1], sizeof t->u);
    if (!is_memory(x, "ef21")) return;
    for (int j = 0; j < to; j++) memcpy(t->u[j], t->estimate, sizeof t->estimate);
    memset(t->owners, 0, sizeof t->owners);
}

/* ---- worlds ---- */

static void place(int members)
{
    nw_segments s = {0};
    nw_layout l;
    int ignored;
    for (int i = 0; SEGMENTS[i]; i++)
        world_ok(nw_segments_add(&s, "s", NW_ROLE_LINEAR, 0, 1, 1, &SEGMENTS[i], &ignored));
    world_ok(nw_layout_make(&l, &(nw_layout_options){.segments = &s,
                                                     .codecs = codecs,
                                                     .bucket_bytes = 300,
                                                     .cuts = members,
                                                     .collective = NW_COLLECTIVE_OWNERS}));
    for (int b = 0; b < l.count; b++)
        for (int t = 0; t < l.at[b].block.tile_count; t++)
            for (uint32_t i = 0; i < l.at[b].block.tiles[t].count; i++)
                owner[l.at[b].block.tiles[t].first + i] = l.at[b].block.tiles[t].cut;
    nw_layout_free(&l);
    free(s.at);
}

/* warm: epochs of these ratios come first. */
static void use_codec(double ratio, int epochs, const double *list)
{
    codec = largest_codec(ratio);
    codec.options.warm_up = (nw_warm_up){.epochs = epochs, .batches = EPOCH, .listed = epochs};
    for (int i = 0; i < epochs; i++) codec.options.warm_up.list[i] = list[i];
    for (int i = 0; i < LAYERS; i++) codecs[i] = DENSE[i] ? &nw_codec_plain : &codec;
}

static const nw_memory_options MEMORIES[] = {{.name = NULL},
                                             {.name = NULL, .clip_norm = 4},
                                             {.name = "error"},
                                             {.name = "ef21"},
                                             {.name = "dgc", .momentum = 0.9, .masking = true},
                                             {.name = "dgc", .momentum = 0.9, .masking = false},
                                             {.name = "dgc", .momentum = 0.9, .nesterov = true, .masking = true},
                                             {.name = "dgc", .momentum = 0.75, .masking = true, .clip_norm = 3},
                                             {.name = "error", .clip_norm = 5},
                                             {.name = "momentum", .momentum = 0.9, .freeze = 4},
                                             {.name = "momentum", .momentum = 0.75, .freeze = 5, .clip_norm = 3}};
enum { WAYS = sizeof MEMORIES / sizeof MEMORIES[0] };

static world_options options(int members, int way, uint64_t seed)
{
    return (world_options){.exchange = {.name = "allreduce",
                                        .delay = MEMORIES[way].freeze ? 0 : seed >> 1 & 1,
                                        .memory = MEMORIES[way],
                                        .layout = {.bucket_bytes = 300,
                                                   .collective = seed & 1 ? NW_COLLECTIVE_GATHER : NW_COLLECTIVE_OWNERS,
                                                   .codecs = codecs}},
                           .members = members,
                           .segments = SEGMENTS,
                           .seed = seed,
                           .finals = seed % 5 ? seed : 0,
                           .interrupts = seed % 3 == 0};
}

static void check(const twin *t, int64_t updates)
{
    world_check_quiescent(&w, updates);
    world_check_values(&w, t->weights);
}

TEST(test_means_are_the_twins)
{
    static twin t;
    use_codec(0.1, 0, NULL);
    for (int members = 1; members <= 3; members++)
        for (int way = 0; way < WAYS; way++)
            for (uint64_t seed = 1; seed <= 8; seed++) {
                world_options o = options(members, way, seed);
                place(members);
                world_ok(world_make(&w, &o));
                twin_begin(&t);
                world_ok(world_run(&w, 7));
                for (int64_t step = 0; step < 7; step++) twin_step(&t, &w, step);
                check(&t, 7);
                world_free(&w);
            }
}

/* Runs to `stop`, saves, and goes on to 14 with so many members. */
static void check_saved(int from, int to, int way, int64_t stop, uint64_t seed)
{
    static twin t;
    world_options o = options(from, way, seed);
    place(from);
    world_ok(world_make(&before, &o));
    world_ok(world_run(&before, stop));
    twin_begin(&t);
    for (int64_t step = 0; step < stop; step++) twin_step(&t, &before, step);
    twin_move(&t, &before, to);
    o.members = to;
    place(to);
    world_ok(world_make(&w, &o));
    world_resume(&w, &before);
    world_ok(world_run(&w, 14));
    for (int64_t step = stop; step < 14; step++) twin_step(&t, &w, step);
    check(&t, 14);
    world_free(&w);
    world_free(&before);
}

/* Two plain epochs, then two that fall, then the rest; saved in each of them. Ratios below 1 are such that four members send
 * less than floats. */
TEST(test_plain_epochs_and_other_worlds)
{
    static const double list[] = {1, 1, 0.4, 0.2}, rises[] = {0.3, 1, 0.2};
    static const int pairs[][2] = {{1, 1}, {2, 2}, {3, 3}, {2, 3}, {3, 2}, {1, 3}, {4, 1}};
    for (int way = 0; way < WAYS; way++)
        for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++) {
            uint64_t seed = (uint64_t)way * 10 + p;
            use_codec(0.1, 4, list);
            for (int64_t stop = 2; stop <= 12; stop += 2) check_saved(pairs[p][0], pairs[p][1], way, stop, ++seed);
            use_codec(0.1, 3, rises); /* into a plain epoch, with all that waits */
            for (int64_t stop = 3; stop <= 9; stop += 2) check_saved(pairs[p][0], pairs[p][1], way, stop, ++seed);
        }
}

/* Where all is dense, means are still means, not sums that are left to the update: momentum is kept of them. */
TEST(test_everything_is_dense)
{
    bool was[LAYERS];
    memcpy(was, DENSE, sizeof was);
    memset(DENSE, true, sizeof was);
    use_codec(0.1, 0, NULL);
    for (uint64_t seed = 1; seed <= 4; seed++)
        for (int way = 0; way < WAYS; way++)
            if (MEMORIES[way].name && strcmp(MEMORIES[way].name, "dgc") == 0) {
                check_saved(3, 3, way, 6, seed);
                check_saved(3, 2, way, 6, seed);
            }
    memcpy(DENSE, was, sizeof was);
}

/* ---- momentum SGD ---- */

/* Where everything is sent, it is ordinary momentum: by the plain reduction, and where all is dense, in the mean. */
TEST(test_all_is_momentum_sgd)
{
    static double weights[FLOATS], u[FLOATS], mean[FLOATS];
    static float now[FLOATS], g[FLOATS];
    for (int dense = 0; dense < 2; dense++)
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            use_codec(1, 0, NULL);
            for (int i = 0; i < LAYERS && dense; i++) codecs[i] = &nw_codec_plain;
            world_options o = options(3, nesterov ? 6 : 4, 1);
            world_ok(world_make(&w, &o));
            world_ok(world_run(&w, 50));
            for (size_t i = 0; i < FLOATS; i++) weights[i] = (double)world_start(i), u[i] = 0;
            for (int64_t step = 0; step < 50; step++) {
                for (size_t i = 0; i < FLOATS; i++) now[i] = (float)weights[i], mean[i] = 0;
                for (int r = 0; r < 3; r++) {
                    world_gradient(&w, r, step, now, false, g);
                    for (size_t i = 0; i < FLOATS; i++) mean[i] += (double)g[i] / 3;
                }
                for (size_t i = 0; i < FLOATS; i++) {
                    u[i] = 0.9 * u[i] + mean[i];
                    weights[i] -= (double)world_rate(step) * (nesterov ? mean[i] + 0.9 * u[i] : u[i]);
                }
            }
            for (size_t i = 0; i < FLOATS; i++)
                assert_true(fabs((double)w.at[0].params.values[i] - weights[i]) <= 1e-5 * (1 + fabs(weights[i])));
            world_free(&w);
        }
}

static float decayed_gradient(const problem *p, int member, int step, size_t i)
{
    return 0.3f * p->params.values[i] + (float)((i * 31 + (size_t)step * 17 + (size_t)member * 7) % 23) * 0.01f - 0.1f;
}

/* With weight decay, whose momentum dgc-sgd keeps: two halves of one recursion. Two members. */
TEST(test_weight_decay_has_momentum_of_its_own)
{
    fx_run run = any_run();
    for (int dense = 0; dense < 2; dense++)
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            problem sgd, dgc;
            nw_memory *m[2];
            nw_optimizer_options o = {.name = "sgd", .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.05};
            nw_memory_options memory = {.name = "dgc", .momentum = 0.9, .nesterov = nesterov, .masking = true};
            open_problem(&sgd, &run, &o, golden_layout, COUNT(golden_layout));
            o.name = "dgc-sgd";
            open_problem(&dgc, &run, &o, golden_layout, COUNT(golden_layout));
            draw_values(&sgd);
            draw_values(&dgc);
            size_t floats = sgd.params.learned.floats;
            nw_tile tile = {.count = (uint32_t)floats};
            for (int r = 0; r < 2; r++) must(nw_memory_create(&m[r], &memory, floats));
            for (int step = 0; step < 50; step++) {
                static nw_seen seen;
                static float g[2][NW_TILE_FLOATS];
                for (int r = 0; r < 2; r++)
                    for (size_t i = 0; i < floats; i++) g[r][i] = decayed_gradient(&sgd, r, step, i);
                for (size_t i = 0; i < floats; i++) sgd.params.gradients[i] = 0.5f * (g[0][i] + g[1][i]);
                for (int r = 0; r < 2; r++) {
                    for (size_t i = 0; i < floats; i++) g[r][i] = decayed_gradient(&dgc, r, step, i);
                    if (dense) continue;
                    m[r]->ops->begin(m[r], &tile, g[r], 1);
                    memcpy(g[r], m[r]->v, floats * sizeof(float));
                    seen.entries = -1;
                    memcpy(seen.values, g[r], floats * sizeof(float));
                    m[r]->ops->sent(m[r], &tile, &seen);
                }
                for (size_t i = 0; i < floats; i++) dgc.params.gradients[i] = 0.5f * (g[0][i] + g[1][i]);
                if (dense) m[0]->ops->reduced(m[0], &tile, dgc.params.gradients, true);
                must(nw_optimizer_step(sgd.optimizer, &sgd.exec, &sgd.params, 0.02, 1));
                must(nw_optimizer_step(dgc.optimizer, &dgc.exec, &dgc.params, 0.02, 1));
            }
            for (size_t i = 0; i < floats; i++)
                assert_true(fabsf(sgd.params.values[i] - dgc.params.values[i]) <= 1e-5f);
            for (int r = 0; r < 2; r++) nw_memory_free(m[r]);
            close_problem(&sgd);
            close_problem(&dgc);
        }
}

/* ---- Adam with a frozen variance ---- */

/* After so many updates the gradient is momentum, and the variance and its correction stay. What had no gradient until then
 * does not move any more. */
TEST(test_frozen_variance)
{
    fx_run run = any_run();
    problem p;
    nw_optimizer_options o = {.name = "adam", MOMENTS, .weight_decay = 0.02, .freeze = 5};
    open_problem(&p, &run, &o, golden_layout, COUNT(golden_layout));
    draw_values(&p);
    size_t floats = p.params.learned.floats;
    double *x = calloc(floats, sizeof *x), *m = calloc(floats, sizeof *m), *v = calloc(floats, sizeof *v);
    for (size_t i = 0; i < floats; i += 11) p.params.values[i] = 0;
    for (size_t i = 0; i < floats; i++) x[i] = (double)p.params.values[i];
    for (int step = 1; step <= 12; step++) {
        double c1 = 1 - pow(0.9, step), c2 = 1 - pow(0.999, step < 5 ? step : 5);
        for (size_t i = 0; i < floats; i++) {
            p.params.gradients[i] = i % 11 == 0 && step <= 5 ? 0 : decayed_gradient(&p, 0, step, i);
            double d = (double)p.params.gradients[i] + 0.02 * x[i];
            m[i] = step <= 5 ? 0.9 * m[i] + 0.1 * d : d;
            if (step <= 5) v[i] = 0.999 * v[i] + 0.001 * d * d;
            if (v[i] > 0) x[i] -= 0.01 / c1 * m[i] / (sqrt(v[i]) / sqrt(c2) + 1e-8);
        }
        must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.01, 1));
        for (size_t i = 0; i < floats; i++) {
            assert_true(fabs((double)p.params.values[i] - x[i]) <= 2e-5 * (1 + fabs(x[i])));
            x[i] = (double)p.params.values[i];
            assert_true(i % 11 != 0 || x[i] == 0);
        }
    }
    free(x);
    free(m);
    free(v);
    close_problem(&p);
}

/* ---- what was not delivered after all ---- */

/* Small integers, so that sums are exact. EF21: receivers know as little as before. Others: v has it again; DGC's momentum
 * of what was chosen stays cleared. */
TEST(test_what_is_taken_back)
{
    enum { N = 50 };
    float g[N];
    nw_segments s = {0};
    nw_layout l;
    nw_channel c;
    nw_message_pool *messages;
    nw_actions actions = {0};
    int ignored, size = N;
    use_codec(0.2, 0, NULL);
    world_ok(nw_segments_add(&s, "s", NW_ROLE_LINEAR, 0, 1, 1, &size, &ignored));
    world_ok(nw_layout_make(
        &l, &(nw_layout_options){.segments = &s, .codec = &codec, .cuts = 2, .collective = NW_COLLECTIVE_OWNERS}));
    world_ok(nw_message_pool_create(&messages));
    actions.pool = messages;
    for (int way = 2; way <= 4; way++) {
        world_ok(nw_channel_make(&c, &(nw_channel_options){.layout = &l, .memory = MEMORIES[way], .only = -1}));
        for (int step = 0; step < 3; step++) {
            nw_message *by_cut[2];
            float h[N], encoded[N];
            for (int i = 0; i < N; i++) g[i] = (float)((i * 7 + step * 13) % 19 - 9);
            memcpy(h, c.memory->u ? c.memory->u : g, sizeof h);
            for (int i = 0; i < N; i++) encoded[i] = c.memory->ops->peek(c.memory, (size_t)i, g[i], 1);
            world_ok(nw_channel_encode(&c, &actions, 0, (nw_moment){.step = step}, g, -1, NW_CODED, by_cut));
            int cleared = 0;
            for (int k = 0; k < 2; k++) {
                bool kept;
                if (step < 2) world_ok(nw_channel_undo(&c, &actions, by_cut[k], &kept));
                if (step < 2) assert_true(kept);
                nw_message_drop(by_cut[k]);
            }
            for (int i = 0; i < N && step < 2; i++) {
                assert_true(way == 3 ? c.memory->u[i] == h[i] : fabsf(c.memory->v[i] - encoded[i]) < 1e-4f);
                cleared += way == 4 && c.memory->u[i] == 0 && encoded[i] != 0;
            }
            if (way == 4 && step == 0) assert_int_equal(cleared, 10);
        }
        nw_channel_free(&c);
    }
    nw_layout_free(&l);
    nw_actions_free(&actions);
    nw_message_pool_free(messages);
    free(s.at);
}

/* ---- which epochs are plain ---- */

static bool is_plain(size_t n, double ratio, nw_values values, bool gather, int members, int64_t clock)
{
    nw_segments s = {0};
    nw_layout l;
    int ignored, size = (int)n;
    use_codec(0.001, 1, &ratio);
    codec.options.values = values;
    world_ok(nw_segments_add(&s, "s", NW_ROLE_LINEAR, 0, 1, 1, &size, &ignored));
    world_ok(nw_layout_make(&l, &(nw_layout_options){.segments = &s,
                                                     .codec = &codec,
                                                     .collective = gather ? NW_COLLECTIVE_GATHER : NW_COLLECTIVE_OWNERS,
                                                     .cuts = 1}));
    bool plain = nw_warm_up_is_plain(&l, members, clock);
    assert_true(nw_warm_up_has_plain(&l, members) == nw_warm_up_is_plain(&l, members, 0));
    nw_layout_free(&l);
    free(s.at);
    return plain;
}

/* N k (bits + 2 + ceil(log2(n / k))) against 64 n, in the first epoch alone. */
TEST(test_which_epochs_are_plain)
{
    assert_true(is_plain(1000, 1, NW_VALUES_F32, true, 1, 0)); /* all is sent */
    assert_true(is_plain(1000, 1, NW_VALUES_F32, true, 2, EPOCH - 1));
    assert_false(is_plain(1000, 1, NW_VALUES_F32, true, 2, EPOCH));  /* the next epoch */
    assert_false(is_plain(1000, 0.25, NW_VALUES_F32, true, 7, 0));   /* 7 * 250 * 36 = 63,000 */
    assert_true(is_plain(1000, 0.25, NW_VALUES_F32, true, 8, 0));    /* 72,000 */
    assert_false(is_plain(1000, 0.25, NW_VALUES_FP16, true, 12, 0)); /* 12 * 250 * 20 = 60,000 */
    assert_true(is_plain(1000, 0.25, NW_VALUES_FP16, true, 13, 0));
    assert_false(is_plain(1000, 0.25, NW_VALUES_BITS + 4, true, 32, 0)); /* 32 * 250 * 8 = 64,000 */
    assert_true(is_plain(1000, 0.25, NW_VALUES_BITS + 4, true, 33, 0));
    assert_false(is_plain(1000, 0.85, NW_VALUES_F32, false, 99, 0)); /* owners: 2 * 850 * 35 = 59,500 */
    assert_true(is_plain(1000, 0.95, NW_VALUES_F32, false, 99, 0));
}

/* Epochs of layers that have codecs of their own: the first sends its largest, the second has `other`. */
static bool is_mixed_plain(double ratio, const nw_codec_options *other, int epochs, nw_collective collective)
{
    static const int size = 1000;
    nw_segments s = {0};
    nw_layout l;
    nw_codec *second;
    int ignored;
    use_codec(ratio, epochs, (const double[]){1});
    world_ok(nw_codec_create(&second, other));
    for (int i = 0; i < 2; i++) world_ok(nw_segments_add(&s, "s", NW_ROLE_LINEAR, 0, 1, 1, &size, &ignored));
    world_ok(nw_layout_make(
        &l, &(nw_layout_options){
                .segments = &s, .codecs = (const nw_codec *[]){&codec, second}, .cuts = 4, .collective = collective}));
    bool plain = nw_warm_up_is_plain(&l, 4, 0);
    nw_layout_free(&l);
    nw_codec_free(second);
    free(s.at);
    return plain;
}

/* A ratio of 1 is top-k's alone: what other codecs compress stays compressed, whatever their unused ratio is. */
TEST(test_ratios_of_other_codecs_make_nothing_plain)
{
    nw_codec_options topk = nw_codec_options_default("topk"), qsgd = nw_codec_options_default("qsgd"),
                     threshold = nw_codec_options_default("thresholdv");
    topk.ratio = qsgd.ratio = threshold.ratio = 1;
    qsgd.warm_up = threshold.warm_up = (nw_warm_up){.epochs = 1, .batches = EPOCH, .listed = 1, .list = {1}};
    assert_true(is_mixed_plain(1, &topk, 0, NW_COLLECTIVE_AUTO));
    assert_false(is_mixed_plain(1, &qsgd, 0, NW_COLLECTIVE_AUTO));
    assert_false(is_mixed_plain(1, &threshold, 0, NW_COLLECTIVE_AUTO));
    assert_false(is_mixed_plain(0.01, &threshold, 0, NW_COLLECTIVE_AUTO));
    /* In a first epoch of ratio 1: 34,000 bits of all entries and 9,184 of levels, twice by owners, four times if
     * gathered; floats have 128,000. */
    assert_false(is_mixed_plain(0.01, &qsgd, 1, NW_COLLECTIVE_OWNERS));
    assert_true(is_mixed_plain(0.01, &qsgd, 1, NW_COLLECTIVE_GATHER));
}

/* ---- refusals ---- */

TEST(test_refusals)
{
    use_codec(0.1, 0, NULL);
    world_options o = options(2, 3, 1);
    o.exchange.name = "server";
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "--memory error"));
    world_free(&w);
    o.exchange.name = "allreduce";
    o.exchange.memory = MEMORIES[WAYS - 1];
    o.exchange.delay = 1;
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "--delay 0"));
    world_free(&w);
    o.exchange.memory.freeze = 0;
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    world_free(&w);
    o.exchange.memory = MEMORIES[4];
    o.with = NULL;
    o.codec = "fp16";
    o.exchange.layout.codecs = NULL;
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "topk"));
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_means_are_the_twins),
                                       cmocka_unit_test(test_plain_epochs_and_other_worlds),
                                       cmocka_unit_test(test_everything_is_dense),
                                       cmocka_unit_test(test_all_is_momentum_sgd),
                                       cmocka_unit_test(test_weight_decay_has_momentum_of_its_own),
                                       cmocka_unit_test(test_frozen_variance),
                                       cmocka_unit_test(test_what_is_taken_back),
                                       cmocka_unit_test(test_which_epochs_are_plain),
                                       cmocka_unit_test(test_ratios_of_other_codecs_make_nothing_plain),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
