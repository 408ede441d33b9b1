/*
 * test_optim_edges.c - optimizers by hand: scales, clipping, allocations, gradients that are not finite,
 * bad options and ranges; and the moving average of weights.
 */
#include "support/optim_fixture.h"

#include "optim/ema.h"
#include "support/allocations.h"

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

static void test_no_allocation(void **state)
{
    (void)state;
    fx_run run = any_run();
    for (int i = 0; i < COUNT(recipes) && COUNTS_ALLOCATIONS; i++) {
        problem p;
        open_problem(&p, &run, &recipes[i].options, golden_layout, COUNT(golden_layout));
        golden_start(&p.params);
        golden_step(&p, &recipes[i], 0);
        int before = atomic_load(&allocations);
        for (int t = 1; t < 10; t++) golden_step(&p, &recipes[i], t);
        assert_int_equal(atomic_load(&allocations), before);
        close_problem(&p);
        fx_release(0);
    }
}

static const layout scalar_layout[] = {{"w", NW_ROLE_LINEAR, 2, {1, 2}, {true, true, true, true}}};

/* alpha 0.1, g 1, t 1: the step is alpha, whatever beta1 and beta2 are. */
static void test_apam_by_hand(void **state)
{
    (void)state;
    fx_run run = any_run();
    nw_optimizer_options o = nw_optimizer_options_default("apam");
    problem p;
    assert_true(o.amsgrad);
    o.weight_decay = 0;
    fx_describe("apam by hand");
    open_problem(&p, &run, &o, scalar_layout, 1);
    p.params.values[0] = p.params.values[1] = 0;
    p.params.gradients[0] = 1;
    p.params.gradients[1] = 0;
    must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.1, 1));
    fx_near("w", 0, (double)p.params.values[0], -0.1, 1e-7);
    fx_near("w", 1, (double)p.params.values[1], 0, 0);
    fx_near("m", 0, (double)nw_optimizer_state_at(p.optimizer, 0).data[0], 0.1, 1e-8);
    fx_near("v", 0, (double)nw_optimizer_state_at(p.optimizer, 1).data[0], 0.001, 1e-10);
    close_problem(&p);
    fx_release(0);
}

/* Averaging k accumulated gradients is a scale of 1 / k: exact for powers of two. */
static void test_gradient_scale(void **state)
{
    (void)state;
    fx_run run = any_run();
    for (int i = 0; i < COUNT(recipes); i++) {
        problem sum, mean;
        fx_describe("scale of %s", recipes[i].golden);
        open_problem(&sum, &run, &recipes[i].options, golden_layout, COUNT(golden_layout));
        open_problem(&mean, &run, &recipes[i].options, golden_layout, COUNT(golden_layout));
        golden_start(&sum.params);
        golden_start(&mean.params);
        for (int t = 0; t < 3; t++) {
            golden_gradient(&sum.params, t);
            golden_gradient(&mean.params, t);
            for (int j = 0; j < GOLDEN_COUNT; j++) sum.params.gradients[j] *= 4;
            must(nw_optimizer_step(sum.optimizer, &sum.exec, &sum.params, 0.01, 0.25));
            must(nw_optimizer_step(mean.optimizer, &mean.exec, &mean.params, 0.01, 1));
        }
        if (hash_problem(&sum) != hash_problem(&mean)) fx_fail("the average is not exact");
        close_problem(&sum);
        close_problem(&mean);
        fx_release(0);
    }
}

static void test_clip_norm(void **state)
{
    (void)state;
    fx_run run = any_run();
    nw_optimizer_options o = {.name = "sgd", .clip_norm = 1};
    problem p;
    open_problem(&p, &run, &o, scalar_layout, 1);
    fx_describe("clipping by norm");
    p.params.values[0] = p.params.values[1] = 0;
    p.params.gradients[0] = 3;
    p.params.gradients[1] = -4;
    fx_near("norm", 0, nw_optimizer_gradient_norm(p.optimizer, &p.exec, &p.params), 5, 0);
    must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 1, 1));
    fx_near("w", 0, (double)p.params.values[0], -3.0 / (5 + 1e-6), 1e-7);
    fx_near("w", 1, (double)p.params.values[1], 4.0 / (5 + 1e-6), 1e-7);
    must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 1, 0.125)); /* norm 0.625: left as it is */
    fx_near("w", 0, (double)p.params.values[0], -3.0 / (5 + 1e-6) - 0.375, 1e-7);
    fx_near("factor", 0, nw_clip_factor(4, 1), 1 / (4 + 1e-6), 0);
    fx_near("factor", 1, nw_clip_factor(0.5, 1), 1, 0);
    fx_near("factor", 2, nw_clip_factor(1e9, 0), 1, 0);
    close_problem(&p);
    fx_release(0);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static void test_not_finite(void **state)
{
    (void)state;
    static const nw_optimizer_options normed[] = {{.name = "sgd", .clip_norm = 1},
                                                  {.name = "lars", .momentum = 0.9, LARS}};
    fx_run run = any_run();
    for (int i = 0; i < COUNT(normed); i++) {
        problem p;
        open_problem(&p, &run, &normed[i], golden_layout, COUNT(golden_layout));
        golden_start(&p.params);
        golden_gradient(&p.params, 0);
        uint64_t before = hash_problem(&p);
        nw_param_gradient(&p.params, 3)[7] = NAN;
        assert_int_equal(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.1, 1), NW_E_NUMERIC);
        assert_non_null(strstr(nw_error_message(), "'linear.weight' is nan at element 7"));
        golden_gradient(&p.params, 0);
        assert_int_equal(nw_optimizer_step(p.optimizer, &p.exec, &p.params, NAN, 1), NW_E_NUMERIC);
        assert_int_equal(nw_optimizer_step(p.optimizer, &p.exec, &p.params, -0.1, 1), NW_E_NUMERIC);
        assert_int_equal(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.1, INFINITY), NW_E_NUMERIC);
        assert_true(hash_problem(&p) == before);
        assert_int_equal(*nw_optimizer_steps(p.optimizer), 0);
        close_problem(&p);
        fx_release(0);
    }
    /* Without a norm a bad gradient reaches its own weight, in every rule, and is not hidden by a maximum or a mask. */
    for (int i = 0; i < COUNT(recipes); i++) {
        const nw_optimizer_options *o = &recipes[i].options;
        if (o->clip_norm > 0 || strcmp(o->name, "lars") == 0) continue;
        problem p;
        open_problem(&p, &run, o, golden_layout, COUNT(golden_layout));
        golden_start(&p.params);
        golden_gradient(&p.params, 30);
        p.params.gradients[150] = NAN;
        must(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.1, 1));
        for (int j = 0; j < GOLDEN_COUNT; j++) assert_int_equal(isnan(p.params.values[j]), j == 150);
        close_problem(&p);
        fx_release(0);
    }
}

static void test_bad_options(void **state)
{
    (void)state;
    static const struct {
        nw_optimizer_options options;
        nw_status status;
        const char *says;
    } bad[] = {
        {{.name = "sdg"}, NW_E_UNKNOWN, "nearest is 'sgd'"},
        {{.name = NULL}, NW_E_ARGUMENT, "no optimizer is named"},
        {{.name = "sgd", .momentum = 1}, NW_E_ARGUMENT, "momentum is 1"},
        {{.name = "sgd", .momentum = NAN}, NW_E_ARGUMENT, "momentum is nan"},
        {{.name = "sgd", .momentum = 0.9, .dampening = 2}, NW_E_ARGUMENT, "dampening is 2"},
        {{.name = "sgd", .nesterov = true}, NW_E_ARGUMENT, "Nesterov needs"},
        {{.name = "dgc-sgd", .momentum = 0.9, .dampening = 0.1, .nesterov = true}, NW_E_ARGUMENT, "Nesterov needs"},
        {{.name = "sgd", .weight_decay = -1}, NW_E_ARGUMENT, "weight decay is -1"},
        {{.name = "sgd", .decay_filter = (nw_decay_filter)9}, NW_E_ARGUMENT, "filter 9"},
        {{.name = "sgd", .clip_norm = -1}, NW_E_ARGUMENT, "norm to clip"},
        {{.name = "sgd", .clip_value = INFINITY}, NW_E_ARGUMENT, "value to clip"},
        {{.name = "sgd", .clip_norm = 1, .clip_value = 1}, NW_E_ARGUMENT, "not both"},
        {{.name = "sgd", .box = true, .box_high = 1}, NW_E_ARGUMENT, "drop the box"},
        {{.name = "lars", .lars_trust = 0}, NW_E_ARGUMENT, "trust coefficient"},
        {{.name = "lars", .lars_trust = 1, .lars_eps = -1}, NW_E_ARGUMENT, "eps of lars"},
        {{.name = "adam", .beta1 = 1, .beta2 = 0.9, .eps = 1}, NW_E_ARGUMENT, "beta1 is 1"},
        {{.name = "adam", .beta1 = 0.9, .beta2 = -1, .eps = 1}, NW_E_ARGUMENT, "beta2 is -1"},
        {{.name = "apam", .beta1 = 0.9, .beta2 = 0.9}, NW_E_ARGUMENT, "eps is 0"},
        {{.name = "apam-paper", .box = true, .box_low = 1, .box_high = 1}, NW_E_ARGUMENT, "the box"},
    };
    nw_params params;
    add_segments(&params, golden_layout, COUNT(golden_layout));
    for (int i = 0; i < COUNT(bad); i++) {
        nw_optimizer *optimizer;
        assert_int_equal(nw_optimizer_make(&optimizer, &bad[i].options, &params), bad[i].status);
        assert_null(optimizer);
        if (!strstr(nw_error_message(), bad[i].says)) fail_msg("%s", nw_error_message());
    }
    nw_params_free(&params);
    for (int i = 0; i < COUNT(recipes); i++) { /* the defaults of every rule are good */
        nw_optimizer_options o = nw_optimizer_options_default(recipes[i].options.name);
        problem p;
        fx_run run = any_run();
        open_problem(&p, &run, &o, golden_layout, COUNT(golden_layout));
        close_problem(&p);
        fx_release(0);
    }
    nw_decay_filter filter;
    assert_int_equal(nw_decay_filter_find("no-norm-bias", &filter), NW_OK);
    assert_int_equal(filter, NW_DECAY_NO_NORM_BIAS);
    assert_int_equal(nw_decay_filter_find("no-norm-bais", &filter), NW_E_UNKNOWN);
    assert_non_null(strstr(nw_error_message(), "'no-norm-bias'"));
}

static void test_bad_ranges(void **state)
{
    (void)state;
    fx_run run = any_run();
    nw_optimizer_options lars = nw_optimizer_options_default("lars");
    problem p;
    open_problem(&p, &run, &lars, golden_layout, COUNT(golden_layout));
    golden_start(&p.params);
    golden_gradient(&p.params, 0);
    static const size_t bad[][2] = {{0, 107}, {1, 107}, {0, 201}, {201, 0}, {SIZE_MAX, 2}};
    for (int i = 0; i < COUNT(bad); i++)
        assert_int_equal(nw_optimizer_step_range(p.optimizer, &p.exec, &p.params, 0.1, 1, 1, bad[i][0], bad[i][1]),
                         NW_E_ARGUMENT);
    assert_int_equal(nw_optimizer_step_range(p.optimizer, &p.exec, &p.params, 0.1, 1, 0, 0, 200), NW_E_ARGUMENT);
    assert_int_equal(nw_optimizer_step_range(p.optimizer, &p.exec, &p.params, 0.1, 1, 1, 50, 0), NW_OK);
    assert_int_equal(nw_optimizer_step_range(p.optimizer, &p.exec, &p.params, 0.1, 1, 1, 108, 8), NW_OK);
    p.params.learned.floats--; /* as if of another network */
    assert_int_equal(nw_optimizer_step(p.optimizer, &p.exec, &p.params, 0.1, 1), NW_E_ARGUMENT);
    p.params.learned.floats++;
    close_problem(&p);
    fx_release(0);
}

/* ---- the moving average ------------------------------------------------------------------------------------------ */

static void test_ema(void **state)
{
    (void)state;
    enum { EVERY = 5, STEPS = 13 };
    fx_run run = any_run();
    nw_optimizer_options o = {.name = "sgd"};
    problem p;
    fx_describe("moving average");
    open_problem(&p, &run, &o, odd_layout, COUNT(odd_layout));
    nw_ema ema;
    must(nw_ema_make(&ema, 0.99, EVERY, &p.params));
    nw_arena measure = nw_arena_measure(), arena;
    nw_ema_bind(&ema, &measure);
    must(nw_arena_create(&arena, measure.used));
    nw_ema_bind(&ema, &arena);
    size_t count = p.params.learned.floats, buffers = p.params.running.floats;
    double *want = fx_zeros(count), rho = pow(0.99, EVERY), want_buffer = 7;
    draw_values(&p);
    for (size_t i = 0; i < buffers; i++) p.params.buffers[i] = 7;
    nw_ema_start(&ema, &p.exec, &p.params);
    for (size_t i = 0; i < count; i++) want[i] = (double)p.params.values[i];
    for (int t = 0; t < STEPS; t++) { /* averages after steps 1, 6 and 11 */
        for (size_t i = 0; i < count; i++) p.params.values[i] += 0.125f;
        for (size_t i = 0; i < buffers; i++) p.params.buffers[i] = (float)t;
        must(nw_ema_step(&ema, &p.exec, &p.params));
        if (t % EVERY != 0) continue;
        for (size_t i = 0; i < count; i++) want[i] = rho * want[i] + (1 - rho) * (double)p.params.values[i];
        want_buffer = rho * want_buffer + (1 - rho) * t;
    }
    float first = p.params.values[0], last = p.params.values[count - 1], buffer = p.params.buffers[buffers - 1];
    nw_ema_swap(&ema, &p.exec, &p.params);
    for (size_t i = 0; i < count; i++) fx_near("average", (int)i, (double)p.params.values[i], want[i], 1e-6);
    for (size_t i = 0; i < buffers; i++)
        fx_near("average of a buffer", (int)i, (double)p.params.buffers[i], want_buffer, 1e-5);
    assert_int_equal(nw_ema_step(&ema, &p.exec, &p.params), NW_E_INTERNAL);
    nw_ema_swap(&ema, &p.exec, &p.params);
    assert_true(p.params.values[0] == first && p.params.values[count - 1] == last &&
                p.params.buffers[buffers - 1] == buffer);
    must(nw_ema_step(&ema, &p.exec, &p.params));
    assert_int_equal(ema.steps, STEPS + 1);
    assert_int_equal(nw_ema_make(&ema, 1, 1, &p.params), NW_E_ARGUMENT);
    assert_int_equal(nw_ema_make(&ema, 0.5, 0, &p.params), NW_E_ARGUMENT);
    nw_arena_destroy(&arena);
    close_problem(&p);
    fx_release(0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_allocation),  cmocka_unit_test(test_apam_by_hand),
        cmocka_unit_test(test_gradient_scale), cmocka_unit_test(test_clip_norm),
        cmocka_unit_test(test_not_finite),     cmocka_unit_test(test_bad_options),
        cmocka_unit_test(test_bad_ranges),     cmocka_unit_test(test_ema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
