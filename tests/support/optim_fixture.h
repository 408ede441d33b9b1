/*
 * optim_fixture.h - parameters with an optimizer, in one arena, and the recipes of the golden trajectories.
 */
#ifndef NW_TESTS_OPTIM_FIXTURE_H
#define NW_TESTS_OPTIM_FIXTURE_H

#include "support/kernel_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/optimizer.h"
#include "support/golden.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))
#define MOMENTS     .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8
#define LARS        .lars_trust = 0.02, .lars_eps = 1e-8, .lars_clip = true

/* ---- parameters with an optimizer -------------------------------------------------------------------------------- */

typedef struct layout {
    const char *name;
    nw_role role;
    int dims, shape[4];
    bool decays[4]; /* with each filter: all, no-norm-bias, no-1d, no-norm */
} layout;

/* That of make_golden_optim.py. */
static const layout golden_layout[] = {
    {"conv.weight", NW_ROLE_CONV, 4, {4, 3, 3, 3}, {true, true, true, true}},
    {"norm.weight", NW_ROLE_NORM_SCALE, 1, {4}, {true, false, false, false}},
    {"norm.bias", NW_ROLE_NORM_SHIFT, 1, {4}, {true, false, false, false}},
    {"linear.weight", NW_ROLE_LINEAR, 2, {8, 10}, {true, true, true, true}},
    {"linear.bias", NW_ROLE_BIAS, 1, {4}, {true, false, false, true}},
};
/* One segment longer than a piece, odd counts, and a bias of two dimensions to tell the filters apart. */
static const layout odd_layout[] = {
    {"stem.weight", NW_ROLE_CONV, 4, {5, 3, 3, 3}, {true, true, true, true}},
    {"stem.norm.weight", NW_ROLE_NORM_SCALE, 1, {5}, {true, false, false, false}},
    {"stem.norm.bias", NW_ROLE_NORM_SHIFT, 1, {5}, {true, false, false, false}},
    {"one.weight", NW_ROLE_CONV, 4, {1, 1, 1, 1}, {true, true, true, true}},
    {"big.weight", NW_ROLE_LINEAR, 2, {17, 4003}, {true, true, true, true}},
    {"big.bias", NW_ROLE_BIAS, 1, {17}, {true, false, false, true}},
    {"flat.weight", NW_ROLE_LINEAR, 1, {70}, {true, true, false, true}},
    {"wide.bias", NW_ROLE_BIAS, 2, {3, 7}, {true, false, true, true}},
};

typedef struct problem {
    nw_params params;
    nw_optimizer *optimizer;
    nw_arena arena;
    nw_exec exec;
} problem;

static inline void add_segments(nw_params *params, const layout *list, int count)
{
    static const int four[] = {4};
    int index;
    *params = (nw_params){0};
    for (int i = 0; i < count; i++)
        assert_int_equal(
            nw_segments_add(&params->learned, list[i].name, list[i].role, 0, 1, list[i].dims, list[i].shape, &index),
            NW_OK);
    assert_int_equal(nw_segments_add(&params->running, "running_mean", NW_ROLE_RUNNING_MEAN, 0, 1, 1, four, &index),
                     NW_OK);
}

static inline void bind_problem(problem *p, nw_arena *arena)
{
    nw_params_bind(&p->params, arena);
    nw_optimizer_bind(p->optimizer, arena);
}

static inline void open_problem(problem *p, const fx_run *run, const nw_optimizer_options *options, const layout *list,
                                int count)
{
    add_segments(&p->params, list, count);
    if (nw_optimizer_make(&p->optimizer, options, &p->params) != NW_OK) fx_fail("%s", nw_error_message());
    nw_arena measure = nw_arena_measure();
    bind_problem(p, &measure);
    assert_int_equal(nw_arena_create(&p->arena, measure.used), NW_OK);
    bind_problem(p, &p->arena);
    for (int i = 0; i < nw_optimizer_states(p->optimizer); i++) { /* empty state may hold anything */
        nw_optimizer_state state = nw_optimizer_state_at(p->optimizer, i);
        memset(state.data, 0xff, state.count * sizeof *state.data);
    }
    p->exec = fx_exec(run, (nw_need){0});
}

static inline void close_problem(problem *p)
{
    nw_optimizer_free(p->optimizer);
    nw_params_free(&p->params);
    nw_arena_destroy(&p->arena);
}

static inline void must(nw_status status)
{
    if (status != NW_OK) fx_fail("%s", nw_error_message());
}

static inline uint64_t hash_problem(const problem *p)
{
    uint64_t hash = fx_hash(FX_HASH_START, p->params.values, p->params.learned.floats * sizeof(float));
    for (int i = 0; i < nw_optimizer_states(p->optimizer); i++) {
        nw_optimizer_state state = nw_optimizer_state_at(p->optimizer, i);
        hash = fx_hash(hash, state.data, state.count * sizeof *state.data);
    }
    return hash;
}

/* The best table with one thread, for what does not depend on it. */
static inline fx_run any_run(void)
{
    const nw_kernels *kernels;
    must(nw_isa_select(NW_PRECISION_F32, &kernels, NULL));
    return (fx_run){kernels, 32, 1};
}

/* Blocks of images mean nothing here: one of the two will do. */
static inline void for_runs(fx_body body, void *context)
{
    fx_for_runs(NW_F32, body, context);
    fx_for_runs(NW_BF16, body, context);
}
static inline bool is_repetition(const fx_run *run) { return run->block != 32; }

static inline void draw_values(problem *p) { golden_fill(p->params.values, p->params.learned.floats, 520, 0, 0.2); }

/* ---- golden trajectories ----------------------------------------------------------------------------------------- */

typedef struct recipe {
    const char *golden;
    nw_optimizer_options options;
    double lr, scale;
} recipe;

/* As in make_golden_optim.py. */
static const recipe recipes[] = {
    {"sgd", {.name = "sgd"}, 0.1, 1},
    {"sgd-decay", {.name = "sgd", .weight_decay = 0.03}, 0.1, 1},
    {"sgd-momentum", {.name = "sgd", .momentum = 0.9, .weight_decay = 5e-4}, 0.05, 1},
    {"sgd-dampening", {.name = "sgd", .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}, 0.05, 1},
    {"sgd-nesterov",
     {.name = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.02, .decay_filter = NW_DECAY_NO_NORM_BIAS},
     0.05,
     1},
    {"sgd-no-norm", {.name = "sgd", .momentum = 0.9, .weight_decay = 0.05, .decay_filter = NW_DECAY_NO_NORM}, 0.05, 1},
    {"sgd-clip-norm", {.name = "sgd", .momentum = 0.9, .weight_decay = 0.01, .clip_norm = 3}, 0.1, 1},
    {"sgd-clip-value", {.name = "sgd", .weight_decay = 0.01, .clip_value = 0.25}, 0.1, 0.5},
    {"adam", {.name = "adam", MOMENTS}, 0.01, 1},
    {"adam-decay", {.name = "adam", MOMENTS, .weight_decay = 0.02, .decay_filter = NW_DECAY_NO_1D}, 0.01, 1},
    {"amsgrad", {.name = "adam", MOMENTS, .amsgrad = true, .weight_decay = 0.01}, 0.01, 1},
    {"lars", {.name = "lars", .momentum = 0.9, .weight_decay = 5e-4, LARS}, 0.1, 1},
    {"lars-nesterov",
     {.name = "lars",
      .momentum = 0.9,
      .nesterov = true,
      .weight_decay = 0.01,
      .decay_filter = NW_DECAY_NO_NORM_BIAS,
      LARS},
     0.01,
     1},
    {"lars-unclipped",
     {.name = "lars", .momentum = 0.5, .weight_decay = 0.01, .lars_trust = 0.1, .lars_eps = 1e-3},
     1.0,
     1},
    {"apam", {.name = "apam", MOMENTS, .amsgrad = true, .weight_decay = 0.01}, 0.01, 1},
    {"apam-no-amsgrad", {.name = "apam", MOMENTS}, 0.01, 1},
    {"apam-paper", {.name = "apam-paper", MOMENTS}, 0.005, 1},
    {"apam-paper-box", {.name = "apam-paper", MOMENTS, .box = true, .box_low = -0.4, .box_high = 0.5}, 0.01, 1},
    {"dgc-sgd", {.name = "dgc-sgd", .momentum = 0.9, .weight_decay = 0.05, .decay_filter = NW_DECAY_NO_NORM}, 0.02, 1},
    {"dgc-sgd-dampening", {.name = "dgc-sgd", .momentum = 0.9, .dampening = 0.5, .weight_decay = 0.05}, 0.02, 1},
    {"dgc-sgd-nesterov", {.name = "dgc-sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.05}, 0.02, 1},
    {"dgc-sgd-plain", {.name = "dgc-sgd", .weight_decay = 0.05}, 0.02, 1},
};

enum { GOLDEN_COUNT = 200, GOLDEN_STEPS = 50, GOLDEN_STREAM = 30000 };

static inline void golden_start(nw_params *params)
{
    golden_fill(params->values, GOLDEN_COUNT, GOLDEN_STREAM, 0, 0.5);
    memset(params->values + params->learned.at[2].offset, 0, params->learned.at[2].count * sizeof(float));
}

static inline void golden_gradient(nw_params *params, int t)
{
    golden_fill(params->gradients, GOLDEN_COUNT, (uint64_t)(GOLDEN_STREAM + 1 + t), 0, 2 / (1 + t / 8.0));
    for (int i = 3; i < GOLDEN_COUNT && t < 25; i += 10) params->gradients[i] = 0;
    if (t < 10) memset(nw_param_gradient(params, 4), 0, params->learned.at[4].count * sizeof(float));
}

static inline void golden_step(problem *p, const recipe *r, int t)
{
    golden_gradient(&p->params, t);
    must(nw_optimizer_step(p->optimizer, &p->exec, &p->params, r->lr * (1 - t / 100.0), r->scale));
}

#endif
