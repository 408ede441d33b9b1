/*
 * test_stages.c - single stages, where no whole network of a test reaches them: adaptive pooling against plain loops,
 * and refusals of shapes that do not fit together.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/net_fixture.h"

#include <math.h>

enum { N = 5, C = 24, SIDE = 7, MOST = 21 };

/* A model without family: one stage between an input and an output. */
static void begin(nw_model *m, const nw_kernels *k, int side)
{
    memset(m, 0, sizeof *m);
    m->builder = (nw_builder){.params = &m->params,
                              .kernels = k,
                              .threads = 2,
                              .n = N,
                              .block = nw_block_for_batch(N),
                              .c = C,
                              .h = side,
                              .w = side};
}

static nw_status add_pool(nw_model *m)
{
    NW_ADD_STAGE(m, nw_stage_adaptive_pool, "avgpool", SIDE);
    return NW_OK;
}

/* The mean over PyTorch's window of output index o: from floor(o in / out) to ceil((o + 1) in / out). */
static void plain_pool(const float *x, int side, float *y, const float *dy, float *dx)
{
    memset(dx, 0, (size_t)(N * C * side * side) * sizeof *dx);
    for (int plane = 0; plane < N * C; plane++)
        for (int h = 0; h < SIDE; h++)
            for (int w = 0; w < SIDE; w++) {
                int h0 = h * side / SIDE, h1 = ((h + 1) * side + SIDE - 1) / SIDE;
                int w0 = w * side / SIDE, w1 = ((w + 1) * side + SIDE - 1) / SIDE;
                double sum = 0, count = (h1 - h0) * (w1 - w0);
                int at = (plane * SIDE + h) * SIDE + w;
                for (int i = h0; i < h1; i++)
                    for (int j = w0; j < w1; j++) {
                        sum += (double)x[(plane * side + i) * side + j];
                        dx[(plane * side + i) * side + j] += dy[at] / (float)count;
                    }
                y[at] = (float)(sum / count);
            }
}

static void check_pool(const nw_kernels *k, int side)
{
    static float x[N * C * MOST * MOST], y[N * C * SIDE * SIDE], want[N * C * SIDE * SIDE], dy[N * C * SIDE * SIDE];
    static float dx[N * C * MOST * MOST], want_dx[N * C * MOST * MOST];
    size_t in = (size_t)(N * C * side * side), out = (size_t)(N * C * SIDE * SIDE);
    nw_model m;
    begin(&m, k, side);
    assert_int_equal(add_pool(&m), NW_OK);
    assert_int_equal(m.stages[0]->out_h, SIDE);
    nw_arena arena = nw_arena_measure(), real;
    nw_tensor input = {0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass) assert_int_equal(nw_arena_create(&real, arena.used), NW_OK);
        nw_model_bind(&m, pass ? &real : &arena);
        input = nw_tensor_alloc(pass ? &real : &arena, N, C, side, side, m.builder.block, k->dtype);
    }
    assert_int_equal(nw_pool_create(&m.pass.exec.pool, 2), NW_OK);
    m.pass.training = true;
    golden_fill(x, in, 1, 0, 1);
    golden_fill(dy, out, 2, 0, 1);
    nw_tensor_import(&input, x);
    nw_model_set_batch(&m, N);
    nw_value value = {.source = nw_source_plain(&input)}, result;
    m.stages[0]->ops->forward(m.stages[0], &m.pass, &value, &result);
    nw_tensor_export(nw_value_tensor(&result), y);
    nw_tensor gradient = nw_region_take(&m.pass, nw_value_tensor(&result));
    nw_tensor_import(&gradient, dy);
    nw_gradient lower = m.stages[0]->ops->backward(m.stages[0], &m.pass, &value, (nw_gradient){.main = gradient}, true);
    nw_tensor_export(&lower.main, dx);
    plain_pool(x, side, want, dy, want_dx);
    double bound = k->dtype == NW_F32 ? 1e-6 : 6e-3;
    if (!(golden_distance(y, want, out) <= bound)) fail_msg("%s: from %d: the output differs", k->isa, side);
    if (!(golden_distance(dx, want_dx, in) <= bound)) fail_msg("%s: from %d: the gradient differs", k->isa, side);
    nw_pool_free(m.pass.exec.pool);
    nw_arena_destroy(&real);
    nw_model_free(&m);
}

static void test_adaptive_pool(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type)
            for (int side = 1; side <= MOST; side += side == 1 ? 6 : 7) check_pool(k, side); /* 1, 7, 14, 21 */
}

static nw_status add_residual(nw_model *m, const nw_residual_options *o)
{
    NW_ADD_STAGE(m, nw_stage_residual, "block", o);
    return NW_OK;
}

static void refuse(const nw_residual_options *o, nw_status status, const char *part)
{
    nw_model m;
    begin(&m, nw_isa_kernels(nw_isa_count() - 1), 8);
    assert_int_equal(add_residual(&m, o), status);
    if (!strstr(nw_error_message(), part)) fail_msg("'%s' does not say '%s'", nw_error_message(), part);
    nw_model_free(&m);
}

static void test_shapes_that_do_not_fit_are_refused(void **state)
{
    nw_unit_options unit = {.k = C, .size = 3, .stride = 1, .pad = 1, .conv_name = "a"};
    nw_residual_options good = {.units = {unit, unit}, .count = 2, .relu_out = true}, o;
    (void)state;
    o = good, o.count = 4, refuse(&o, NW_E_ARGUMENT, "2 or 3 units");
    o = good, o.units[1].k = 2 * C, refuse(&o, NW_E_SHAPE, "48 x 8 x 8 but the shortcut 24 x 8 x 8");
    o = good, o.units[0].stride = 2, refuse(&o, NW_E_SHAPE, "24 x 4 x 4 but");
    o = good, o.shortcut = NW_SHORTCUT_SUBSAMPLE, o.subsample = 2, refuse(&o, NW_E_SHAPE, "but the shortcut");
    o.units[1].k = C / 2, refuse(&o, NW_E_SHAPE, "from 24 to 12");
    o = good, o.relu_out = false, o.shortcut = NW_SHORTCUT_PROJECTION, refuse(&o, NW_E_UNSUPPORTED, "ReLU");
    nw_model m;
    begin(&m, nw_isa_kernels(nw_isa_count() - 1), 10);
    assert_int_equal(add_pool(&m), NW_E_SHAPE);
    assert_non_null(strstr(nw_error_message(), "10 x 10 cannot be pooled to 7 x 7"));
    nw_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adaptive_pool),
        cmocka_unit_test(test_shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
