/*
 * test_onebit.c - 1-bit Adam (Tang et al., ICML 2021): codec sign with memory momentum on every member, error feedback on
 * the owner of the mean, and Adam whose variance is frozen, beside a plain loop of the algorithm in double.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/blocks.h"
#include "support/optim_fixture.h"

#include <stdlib.h>

enum { MEMBERS = 3, FREEZE = 6, STEPS = 40, FLOATS_MOST = 1024 };
static const double BETA1 = 0.9, BETA2 = 0.999, EPS = 1e-8, RATE = 0.01;

static float gradient_of(const problem *p, int member, int step, size_t i)
{
    return 0.3f * p->params.values[i] + (float)((i * 31 + (size_t)step * 17 + (size_t)member * 7) % 23) * 0.01f - 0.1f;
}

/* What becomes of `in` on its way: added to `out`. */
static void send(const nw_codec *codec, nw_memory *memory, int step, const float *in, size_t floats, float *out)
{
    static uint8_t bytes[8 * FLOATS_MOST];
    nw_block b = plain_block(codec, floats);
    nw_codec_key key = {(uint64_t)step, 3, 0};
    nw_encoded e = encode_block(&b, memory, key, in, bytes, NULL);
    assert_int_equal(decode_block(&b, key, bytes, e.bytes, out, true, NULL), NW_OK);
    nw_block_free(&b);
}

/* One step as an exchange makes it (allreduce.c, reduce.c). */
static void exchange(problem *p, nw_memory **members, nw_memory *owner, const nw_codec *sign, int step, size_t floats)
{
    float *g = p->params.gradients, given[FLOATS_MOST];
    nw_tile all = {.count = (uint32_t)floats};
    bool early = step < FREEZE;
    memset(g, 0, floats * sizeof *g);
    for (int r = 0; r < MEMBERS; r++) {
        members[r]->early = early;
        for (size_t i = 0; i < floats; i++) given[i] = gradient_of(p, r, step, i);
        send(early ? &nw_codec_plain : sign, members[r], step, given, floats, g);
    }
    for (size_t i = 0; i < floats; i++) g[i] /= MEMBERS;
    if (!early) {
        memcpy(given, g, floats * sizeof *g);
        memset(g, 0, floats * sizeof *g);
        send(sign, owner, step, given, floats, g);
    }
    for (int r = 0; r < MEMBERS; r++) {
        memcpy(given, g, floats * sizeof *g);
        members[r]->ops->reduced(members[r], &all, given, false);
        assert_memory_equal(given, g, floats * sizeof *g); /* what is applied is what travelled */
    }
}

/* ---- the plain loop ---- */

typedef struct plain {
    double x[FLOATS_MOST], m[FLOATS_MOST], v[FLOATS_MOST], kept[MEMBERS + 1][FLOATS_MOST]; /* the last: the owner's */
} plain;

/* Signs times the mean size; what is lost stays in `kept`. */
static void plain_sign(double *in, double *kept, size_t floats)
{
    double size = 0;
    for (size_t i = 0; i < floats; i++) size += fabs(in[i] + kept[i]) / (double)floats;
    for (size_t i = 0; i < floats; i++) {
        double v = in[i] + kept[i], d = v < 0 ? -size : size;
        kept[i] = v - d;
        in[i] = d;
    }
}

static void plain_step(plain *a, const problem *p, int step, size_t floats)
{
    static double mean[FLOATS_MOST], sent[FLOATS_MOST];
    memset(mean, 0, sizeof mean);
    for (int r = 0; r < MEMBERS; r++) {
        for (size_t i = 0; i < floats; i++) {
            double g = (double)gradient_of(p, r, step, i);
            sent[i] = step < FREEZE ? g : BETA1 * a->m[i] + (1 - BETA1) * g;
        }
        if (step >= FREEZE) plain_sign(sent, a->kept[r], floats);
        for (size_t i = 0; i < floats; i++) mean[i] += sent[i] / MEMBERS;
    }
    if (step >= FREEZE) plain_sign(mean, a->kept[MEMBERS], floats);
    int known = step < FREEZE ? step + 1 : FREEZE;
    for (size_t i = 0; i < floats; i++) {
        a->m[i] = step < FREEZE ? BETA1 * a->m[i] + (1 - BETA1) * mean[i] : mean[i];
        if (step < FREEZE) a->v[i] = BETA2 * a->v[i] + (1 - BETA2) * mean[i] * mean[i];
        a->x[i] -= RATE / (1 - pow(BETA1, step + 1)) * a->m[i] / (sqrt(a->v[i] / (1 - pow(BETA2, known))) + EPS);
    }
}

static void test_onebit_adam_is_the_plain_loop(void **state)
{
    static plain a;
    fx_run run = any_run();
    problem p;
    nw_memory *members[MEMBERS], *owner;
    nw_codec *sign;
    nw_codec_options c = nw_codec_options_default("sign");
    nw_optimizer_options o = {.name = "adam", MOMENTS, .freeze = FREEZE};
    (void)state;
    open_problem(&p, &run, &o, golden_layout, COUNT(golden_layout));
    draw_values(&p);
    size_t floats = p.params.learned.floats, flipped = 0;
    assert_true(floats <= FLOATS_MOST);
    must(nw_codec_create(&sign, &c));
    must(nw_memory_create(&owner, &(nw_memory_options){.name = "error"}, floats));
    for (int r = 0; r < MEMBERS; r++)
        must(nw_memory_create(&members[r], &(nw_memory_options){.name = "momentum", .momentum = BETA1, .freeze = FREEZE},
                              floats));
    for (size_t i = 0; i < floats; i++) a.x[i] = (double)p.params.values[i];
    for (int step = 0; step < STEPS; step++) {
        plain_step(&a, &p, step, floats);
        exchange(&p, members, owner, sign, step, floats);
        must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, RATE, 1));
        for (size_t i = 0; i < floats; i++) {
            if (fabs((double)p.params.values[i] - a.x[i]) > 2e-4 * (1 + fabs(a.x[i]))) flipped++;
            a.x[i] = (double)p.params.values[i];
            for (int r = 0; r < MEMBERS; r++) a.kept[r][i] = (double)members[r]->v[i];
            a.kept[MEMBERS][i] = (double)owner->v[i];
            a.m[i] = (double)members[0]->u[i];
        }
    }
    assert_int_equal(flipped, 0);
    double kept = 0;
    for (size_t i = 0; i < floats; i++) kept += fabs(a.kept[0][i]) + fabs(a.kept[MEMBERS][i]);
    assert_true(kept > 0);
    for (int r = 0; r < MEMBERS; r++) nw_memory_free(members[r]);
    nw_memory_free(owner);
    nw_codec_free(sign);
    close_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_onebit_adam_is_the_plain_loop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
