/*
 * test_pointwise_kernels.c - what is neither convolution nor update, for every table: writing sources down, gradients
 * through sinks, pooling, dropout, and the special values of bf16.
 */
#include "support/kernel_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference/reference.h"

enum { SEED = 21 };

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

static fx_shape random_shape(nw_rng *rng)
{
    static const int channels[] = {1, 2, 3, 4, 5, 8, 10, 16, 17, 24, 32, 33, 48, 64, 96, 130};
    static const int images[] = {1, 2, 5, 15, 16, 17, 31, 32, 33, 40, 64, 70};
    int n = fx_pick(rng, images, COUNT(images)), c = fx_pick(rng, channels, COUNT(channels));
    return (fx_shape){n, c, 1 + (int)nw_rng_below(rng, 6), 1 + (int)nw_rng_below(rng, 6)};
}

static void describe(const char *what, fx_shape s, const char *details)
{
    fx_describe("%s of %d x %d x %d x %d, %s", what, s.n, s.c, s.h, s.w, details);
}

/* Scratch of exactly what a network would give to an operation on these tensors. */
static nw_exec pointwise_exec(const fx_run *run, int c)
{
    return fx_exec(run, nw_pointwise_need(nw_channel_pitch(c), run->block));
}

/* For `count` random shapes of both types of tables. */
static void for_shapes(int count, uint32_t test, void (*run)(int index, nw_dtype table, nw_rng *rng))
{
    for (int i = 0; i < count; i++)
        for (int table = NW_F32; table <= NW_BF16; table++) {
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, test * 2 + (uint32_t)table);
            run(i, (nw_dtype)table, &rng);
            fx_release(0);
        }
}

/* ---- sources and sinks ------------------------------------------------------------------------------------------ */

typedef struct copy_case {
    fx_source_values x;
    nw_dtype type;
    bool moments, use_sink;
    fx_sink_values sink;
    double *want;
} copy_case;

static uint64_t materialise_body(const fx_run *run, void *context)
{
    const copy_case *f = context;
    nw_tensor tensors[2], out = fx_tensor(f->x.shape, run->block, f->type, "out");
    nw_source x = fx_source(&f->x, run->block, tensors);
    nw_moments moments = {f->moments ? fx_alloc(nw_moments_floats(&out) * sizeof(float), "moments") : NULL};
    nw_exec exec = pointwise_exec(run, out.c);
    run->kernels->materialise(&exec, &x, &out, f->moments ? &moments : NULL);
    fx_compare_tensor("out", &out, f->x.value);
    uint64_t hash = fx_hash_tensor(FX_HASH_START, &out);
    if (!f->moments) return hash;
    fx_check_moments(&out, moments.partial, f->x.value);
    return fx_hash(hash, moments.partial, nw_moments_floats(&out) * sizeof(float));
}

static void materialise_run(int index, nw_dtype table, nw_rng *rng)
{
    fx_shape shape = random_shape(rng);
    nw_dtype type_a = fx_type(rng, table), type_b = fx_type(rng, table);
    copy_case f = {.x = fx_make_source(rng, shape, (fx_form)(index % FX_FORMS), table, type_a, type_b),
                   .type = fx_type(rng, table),
                   .moments = fx_chance(rng, 2)};
    char details[128];
    snprintf(details, sizeof details, "%s %s %s to %s%s", fx_form_name(f.x.form), fx_type_name(type_a),
             fx_type_name(type_b), fx_type_name(f.type), f.moments ? " with moments" : "");
    describe("materialise", shape, details);
    fx_for_runs(table, materialise_body, &f);
}

static void test_materialise(void **state)
{
    (void)state;
    for_shapes(64, 0, materialise_run);
}

static uint64_t gradient_body(const fx_run *run, void *context)
{
    const copy_case *f = context;
    nw_tensor tensors[2], out = fx_tensor(f->x.shape, run->block, f->type, "out");
    nw_source x = fx_source(&f->x, run->block, tensors);
    fx_sink sink;
    if (f->use_sink) fx_sink_open(&f->sink, &out, &sink);
    nw_exec exec = pointwise_exec(run, out.c);
    run->kernels->gradient(&exec, &x, &out, f->use_sink ? &sink.sink : NULL);
    fx_compare_tensor("out", &out, f->want);
    uint64_t hash = fx_hash_tensor(FX_HASH_START, &out);
    return f->use_sink ? fx_sink_check(&f->sink, &sink, &out, f->want, hash) : hash;
}

static void gradient_run(int index, nw_dtype table, nw_rng *rng)
{
    fx_shape shape = random_shape(rng);
    nw_dtype type_a = fx_type(rng, table), type_b = fx_type(rng, table);
    copy_case f = {.x = fx_make_source(rng, shape, (fx_form)(index % FX_FORMS), table, type_a, type_b),
                   .type = fx_type(rng, table),
                   .use_sink = !fx_chance(rng, 6)};
    f.want = fx_doubles(fx_floats(f.x.value, fx_count(shape), "value"), fx_count(shape));
    if (f.use_sink) {
        f.sink = fx_make_sink(rng, shape, table, f.type);
        fx_sink_apply(&f.sink, f.want);
    }
    char details[256];
    snprintf(details, sizeof details, "%s %s %s to %s, %s", fx_form_name(f.x.form), fx_type_name(type_a),
             fx_type_name(type_b), fx_type_name(f.type), f.use_sink ? fx_sink_name(&f.sink) : "no sink");
    describe("gradient", shape, details);
    fx_for_runs(table, gradient_body, &f);
}

static void test_gradient(void **state)
{
    (void)state;
    for_shapes(64, 1, gradient_run);
}

/* ---- pooling ---------------------------------------------------------------------------------------------------- */

typedef struct pool_case {
    nw_pool2d pool;
    bool max, keep_index;
    fx_source_values x;
    nw_dtype y_type, dy_type, dx_type;
    double *y, *dy, *dx;
    int32_t *index; /* the twin's: h W + w of the winner */
    fx_sink_values sink;
} pool_case;

static fx_shape pooled_shape(const pool_case *f) { return (fx_shape){f->x.shape.n, f->pool.c, f->pool.oh, f->pool.ow}; }

/* The winners' places in their windows against the twin's pixels. */
static void check_index(const pool_case *f, const nw_tensor *y, const uint8_t *index)
{
    const nw_pool2d *p = &f->pool;
    for (int n = 0; n < y->n; n++)
        for (int c = 0; c < y->c; c++)
            for (int h = 0; h < y->h; h++)
                for (int w = 0; w < y->w; w++) {
                    int q = index[nw_tensor_at(y, n / y->block, h, w) + (size_t)(n % y->block * y->pitch + c)];
                    int pixel = (h * p->stride + q / p->s - p->pad) * p->w + w * p->stride + q % p->s - p->pad;
                    int32_t want = f->index[((n * y->c + c) * y->h + h) * y->w + w];
                    if (pixel != want)
                        fx_fail("the winner of [n %d][c %d][h %d][w %d] is pixel %d instead of %d", n, c, h, w, pixel,
                                want);
                }
}

static uint64_t pool_body(const fx_run *run, void *context)
{
    const pool_case *f = context;
    const nw_kernels *kernels = run->kernels;
    nw_tensor tensors[2], y = fx_tensor(pooled_shape(f), run->block, f->y_type, "y");
    nw_source x = fx_source(&f->x, run->block, tensors);
    nw_exec exec = pointwise_exec(run, y.c);
    size_t elements = nw_tensor_bytes(&y) / nw_dtype_bytes(y.dtype);
    uint8_t *index = f->keep_index ? fx_alloc(elements, "index") : NULL;
    if (f->max)
        kernels->max_pool(&exec, &f->pool, &x, &y, index);
    else
        kernels->avg_pool(&exec, &f->pool, &x, &y);
    fx_compare_tensor("y", &y, f->y);
    uint64_t hash = fx_hash_tensor(FX_HASH_START, &y);
    if (f->max && !index) return hash;
    if (index) check_index(f, &y, index);

    nw_tensor dy = fx_tensor_of(f->dy, pooled_shape(f), run->block, f->dy_type, "dy");
    nw_tensor dx = fx_tensor(f->x.shape, run->block, f->dx_type, "dx");
    fx_sink sink;
    fx_sink_open(&f->sink, &dx, &sink);
    exec = pointwise_exec(run, y.c);
    if (f->max)
        kernels->max_pool_backward(&exec, &f->pool, &dy, index, &dx, &sink.sink);
    else
        kernels->avg_pool_backward(&exec, &f->pool, &dy, &dx, &sink.sink);
    fx_compare_tensor("dx", &dx, f->dx);
    return fx_sink_check(&f->sink, &sink, &dx, f->dx, fx_hash_tensor(hash, &dx));
}

/* size, stride, pad, h, w; size 0: the whole map, square or not */
static const int pools[][5] = {{3, 2, 1, 7, 8},  {2, 2, 0, 6, 7}, {2, 2, 0, 8, 4}, {3, 1, 1, 5, 3}, {3, 2, 0, 7, 7},
                               {1, 1, 0, 3, 2},  {1, 2, 0, 5, 5}, {2, 3, 1, 6, 5}, {5, 3, 2, 9, 4}, {2, 1, 1, 1, 1},
                               {15, 1, 7, 4, 3}, {4, 4, 0, 4, 4}, {6, 1, 0, 6, 6}, {0, 0, 0, 3, 2}, {0, 0, 0, 1, 5}};

/* The twin's windows are square. */
static void max_of_all(pool_case *f)
{
    int pixels = f->pool.h * f->pool.w;
    for (size_t i = 0; i < fx_count(pooled_shape(f)); i++) {
        const double *x = f->x.value + i * (size_t)pixels;
        f->index[i] = 0;
        for (int q = 1; q < pixels; q++)
            if (x[q] > x[f->index[i]]) f->index[i] = q;
        f->y[i] = x[f->index[i]];
        f->dx[i * (size_t)pixels + (size_t)f->index[i]] = f->dy[i];
    }
}

static void pool_run(int index, nw_dtype table, nw_rng *rng, bool max)
{
    const int *g = pools[index % COUNT(pools)];
    fx_shape shape = random_shape(rng);
    pool_case f = {.max = max,
                   .keep_index = max && !fx_chance(rng, 5),
                   .y_type = fx_type(rng, table),
                   .dy_type = fx_type(rng, table),
                   .dx_type = fx_type(rng, table)};
    shape.h = g[3];
    shape.w = g[4];
    f.pool = nw_pool2d_whole(shape.c, shape.h, shape.w);
    if (g[0] > 0) assert_int_equal(nw_pool2d_make(&f.pool, shape.c, shape.h, shape.w, g[0], g[1], g[2]), NW_OK);
    /* Exact values for both types of tables: which of two is larger must not hang on a rounding; ReLUs make ties. */
    nw_dtype type_a = fx_type(rng, table);
    f.x = fx_make_source(rng, shape, (fx_form)nw_rng_below(rng, FX_FORMS), NW_BF16, type_a, fx_type(rng, table));
    nw_ref_pool pool = {shape.n, shape.c, shape.h, shape.w, g[0], g[1], g[2]};
    size_t outputs = fx_count(pooled_shape(&f));
    f.y = fx_zeros(outputs);
    f.dy = fx_values(rng, outputs, table, f.dy_type);
    f.dx = fx_zeros(fx_count(shape));
    f.index = fx_alloc(outputs * sizeof *f.index, "the twin's index");
    if (max && g[0] == 0) {
        max_of_all(&f);
    } else if (max) {
        nw_ref_max_pool_forward_d(&pool, f.x.value, f.y, f.index);
        nw_ref_max_pool_backward_d(&pool, f.index, f.dy, f.dx);
    } else if (g[0] == 0 || (g[0] == shape.h && g[0] == shape.w)) {
        nw_ref_global_pool_forward_d(&pool, f.x.value, f.y);
        nw_ref_global_pool_backward_d(&pool, f.dy, f.dx);
    } else {
        nw_ref_avg_pool_forward_d(&pool, f.x.value, f.y);
        nw_ref_avg_pool_backward_d(&pool, f.dy, f.dx);
    }
    f.sink = fx_make_sink(rng, shape, table, f.dx_type);
    fx_sink_apply(&f.sink, f.dx);
    char details[256];
    snprintf(details, sizeof details, "size %d, stride %d, pad %d, %s %s to %s, dy %s to dx %s, %s", g[0], g[1], g[2],
             fx_form_name(f.x.form), fx_type_name(type_a), fx_type_name(f.y_type), fx_type_name(f.dy_type),
             fx_type_name(f.dx_type), fx_sink_name(&f.sink));
    describe(max ? "max pool" : "average pool", shape, details);
    fx_for_runs(table, pool_body, &f);
}

static void max_pool_run(int index, nw_dtype table, nw_rng *rng) { pool_run(index, table, rng, true); }
static void avg_pool_run(int index, nw_dtype table, nw_rng *rng) { pool_run(index, table, rng, false); }

static void test_max_pool(void **state)
{
    (void)state;
    for_shapes(2 * COUNT(pools), 2, max_pool_run);
}
static void test_avg_pool(void **state)
{
    (void)state;
    for_shapes(2 * COUNT(pools), 3, avg_pool_run);
}

/* All equal: the first of each window wins. One NaN: it wins wherever a window holds it, and takes the gradient. */
typedef struct tie_case {
    nw_dtype table;
    bool nan;
} tie_case;

static uint64_t tie_body(const fx_run *run, void *context)
{
    const tie_case *f = context;
    enum { C = 5, SIDE = 7, IMAGES = 18, NAN_N = 17, NAN_C = 3, NAN_H = 3, NAN_W = 3 };
    fx_shape shape = {IMAGES, C, SIDE, SIDE};
    nw_pool2d p;
    assert_int_equal(nw_pool2d_make(&p, C, SIDE, SIDE, 3, 2, 1), NW_OK);
    fx_shape pooled = {IMAGES, C, p.oh, p.ow};
    double *values = fx_zeros(fx_count(shape)), *ones = fx_zeros(fx_count(pooled));
    for (size_t i = 0; i < fx_count(shape); i++) values[i] = 1.5;
    for (size_t i = 0; i < fx_count(pooled); i++) ones[i] = 1.0;
    if (f->nan) values[((NAN_N * C + NAN_C) * SIDE + NAN_H) * SIDE + NAN_W] = (double)NAN;
    nw_tensor x = fx_tensor_of(values, shape, run->block, f->table, "x"),
              y = fx_tensor(pooled, run->block, f->table, "y");
    nw_tensor dy = fx_tensor_of(ones, pooled, run->block, f->table, "dy"),
              dx = fx_tensor(shape, run->block, f->table, "dx");
    uint8_t *index = fx_alloc(nw_tensor_bytes(&y) / nw_dtype_bytes(y.dtype), "index");
    nw_source source = {.a = {.t = &x, .relu = true}};
    nw_exec exec = pointwise_exec(run, C);
    run->kernels->max_pool(&exec, &p, &source, &y, index);
    run->kernels->max_pool_backward(&exec, &p, &dy, index, &dx, NULL);

    float *got = fx_alloc(fx_count(pooled) * sizeof(float), "export");
    nw_tensor_export(&y, got);
    double *want_dx = fx_zeros(fx_count(shape));
    for (int i = 0; i < (int)fx_count(pooled); i++) {
        int w = i % p.ow, h = i / p.ow % p.oh, plane = i / p.ow / p.oh;
        bool poisoned = f->nan && plane == NAN_N * C + NAN_C && abs(2 * h - NAN_H) <= 1 && abs(2 * w - NAN_W) <= 1;
        if (poisoned ? !isnan(got[i]) : got[i] != 1.5f)
            fx_fail("y [plane %d][h %d][w %d] is %g", plane, h, w, (double)got[i]);
        int at_h = poisoned ? NAN_H : nw_max(0, 2 * h - 1), at_w = poisoned ? NAN_W : nw_max(0, 2 * w - 1);
        want_dx[(plane * SIDE + at_h) * SIDE + at_w] += 1.0;
    }
    fx_check_invariant("y", &y);
    fx_compare_tensor("dx", &dx, want_dx);
    return fx_hash_tensor(fx_hash_tensor(FX_HASH_START, &y), &dx);
}

static void test_max_pool_ties(void **state)
{
    (void)state;
    for (int table = NW_F32; table <= NW_BF16; table++)
        for (int nan = 0; nan < 2; nan++) {
            tie_case f = {(nw_dtype)table, nan != 0};
            fx_describe("max pool of %s", nan ? "a NaN" : "ties");
            fx_for_runs(f.table, tie_body, &f);
        }
}

/* ---- dropout ---------------------------------------------------------------------------------------------------- */

typedef struct dropout_case {
    fx_source_values x;
    nw_dtype type;
    float p;
    uint64_t seed, step;
    uint32_t layer;
    uint8_t *keep; /* by the first run; every other must agree */
    bool drawn;
} dropout_case;

static uint64_t dropout_body(const fx_run *run, void *context)
{
    dropout_case *f = context;
    size_t count = fx_count(f->x.shape);
    double *ones = fx_zeros(count), *want = fx_zeros(count);
    for (size_t i = 0; i < count; i++) ones[i] = 1.0;
    nw_tensor one = fx_tensor_of(ones, f->x.shape, run->block, run->kernels->dtype, "ones");
    nw_tensor mask = fx_tensor(f->x.shape, run->block, NW_F32, "mask");
    nw_tensor tensors[2], y = fx_tensor(f->x.shape, run->block, f->type, "y");
    nw_source x = fx_source(&f->x, run->block, tensors), plain = nw_source_plain(&one);
    nw_exec exec = pointwise_exec(run, y.c);
    run->kernels->dropout(&exec, &x, &y, f->p, f->seed, f->step, f->layer);
    /* The backward pass is the same call on the gradient. */
    run->kernels->dropout(&exec, &plain, &mask, f->p, f->seed, f->step, f->layer);
    float *kept = fx_alloc(count * sizeof(float), "export");
    nw_tensor_export(&mask, kept);
    for (size_t i = 0; i < count; i++) {
        bool keep = kept[i] != 0.0f;
        fx_near("mask", (int)i, (double)kept[i], keep ? 1.0 / (1.0 - (double)f->p) : 0.0, 1e-6);
        if (!f->drawn)
            f->keep[i] = keep;
        else if (keep != (f->keep[i] != 0))
            fx_fail("element %zu is not dropped as in the first run", i);
    }
    f->drawn = true;
    nw_ref_dropout_forward_d(count, (double)f->p, f->keep, f->x.value, want);
    fx_compare_tensor("y", &y, want);
    fx_check_invariant("mask", &mask);
    return fx_hash_tensor(fx_hash_tensor(FX_HASH_START, &y), &mask);
}

/* Draws a mask for all tables, which must agree; returns it. */
static uint8_t *draw(dropout_case *f)
{
    size_t count = fx_count(f->x.shape);
    f->keep = fx_alloc(count, "keep");
    f->drawn = false;
    describe("dropout", f->x.shape, "f32");
    fx_for_runs(NW_F32, dropout_body, f);
    describe("dropout", f->x.shape, "bf16");
    fx_for_runs(NW_BF16, dropout_body, f);
    return f->keep;
}

static void test_dropout(void **state)
{
    (void)state;
    static const float probabilities[] = {0.0f, 0.1f, 0.5f, 0.9f};
    fx_shape shape = {37, 17, 3, 4};
    size_t count = fx_count(shape);
    for (int i = 0; i < COUNT(probabilities); i++) {
        nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, 100);
        dropout_case f = {.x = fx_make_source(&rng, shape, FX_AFFINE_RELU, NW_BF16, NW_F32, NW_F32),
                          .type = NW_F32,
                          .p = probabilities[i],
                          .seed = 3,
                          .step = 7,
                          .layer = 2};
        uint8_t *keep = draw(&f), *other[3];
        double kept = 0, p = (double)f.p;
        for (size_t j = 0; j < count; j++) kept += keep[j];
        fx_near("share kept", i, kept / (double)count, 1.0 - p, 5 * sqrt(p * (1 - p) / (double)count));

        /* Another seed, step or layer draws another mask. */
        if (i != 2) continue;
        f.seed = 4;
        other[0] = draw(&f);
        f.seed = 3, f.step = 8;
        other[1] = draw(&f);
        f.step = 7, f.layer = 3;
        other[2] = draw(&f);
        for (int k = 0; k < 3; k++) {
            double same = 0;
            for (size_t j = 0; j < count; j++) same += keep[j] == other[k][j];
            fx_near("agreement of masks", k, same / (double)count, 0.5, 5 * 0.5 / sqrt((double)count));
        }
        fx_release(0);
    }
    fx_release(0);
}

/* ---- special values --------------------------------------------------------------------------------------------- */

/* Rounding of f32 to bf16 as nw_bf16_from_f32 does it, and NaN through a ReLU. */
static uint64_t special_body(const fx_run *run, void *context)
{
    static const float specials[] = {0.0f,    -0.0f,    1.0f,     1.00390625f, 1.01171875f, -1.00390625f, 1.003906369f,
                                     3.4e38f, -3.4e38f, INFINITY, -INFINITY,   NAN,         1e-30f,       -2.5f};
    (void)context;
    for (int c = 3; c <= 17; c += 14) {
        fx_shape shape = {5, c, 2, 1};
        double *values = fx_zeros(fx_count(shape));
        for (size_t i = 0; i < fx_count(shape); i++) values[i] = (double)specials[i % (size_t)COUNT(specials)];
        nw_tensor x = fx_tensor_of(values, shape, run->block, NW_F32, "x");
        nw_dtype type = run->kernels->dtype;
        for (int relu = 0; relu < 2; relu++) {
            nw_tensor out = fx_tensor(shape, run->block, type, "out");
            nw_source source = {.a = {.t = &x}, .relu = relu != 0};
            nw_exec exec = pointwise_exec(run, c);
            run->kernels->materialise(&exec, &source, &out, NULL);
            float *got = fx_alloc(fx_count(shape) * sizeof(float), "export");
            nw_tensor_export(&out, got);
            for (size_t i = 0; i < fx_count(shape); i++) {
                float want = relu && values[i] < 0 ? 0.0f : (float)values[i];
                if (type == NW_BF16) want = nw_bf16_to_f32(nw_bf16_from_f32(want));
                if (isnan(want) ? !isnan(got[i]) : got[i] != want)
                    fx_fail("%g%s becomes %g instead of %g", values[i], relu ? " rectified" : "", (double)got[i],
                            (double)want);
            }
            fx_check_invariant("out", &out);
        }
    }
    return 0;
}

static void test_special_values(void **state)
{
    (void)state;
    fx_describe("materialise of special values");
    fx_for_runs(NW_F32, special_body, NULL);
    fx_for_runs(NW_BF16, special_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_materialise),    cmocka_unit_test(test_gradient), cmocka_unit_test(test_max_pool),
        cmocka_unit_test(test_max_pool_ties),  cmocka_unit_test(test_avg_pool), cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_special_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
