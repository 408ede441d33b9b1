/*
 * test_conv_kernels.c - convolutions of every table against their plain-loop twins: forward, backward to the data and
 * backward to the weights, over random shapes, sources and sinks; linear layers; shapes that must be refused.
 */
#include "support/kernel_fixture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reference/reference.h"

enum { RANDOM_SHAPES = 72, MOST_PRODUCTS = 2000000, SEED = 20 };

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

typedef struct conv_case {
    nw_conv conv;
    int n;
    nw_dtype table;
    bool linear;
    bool direct; /* without Winograd's algorithm */
} conv_case;

static fx_shape input_shape(const conv_case *c) { return (fx_shape){c->n, c->conv.c, c->conv.h, c->conv.w}; }
static fx_shape output_shape(const conv_case *c) { return (fx_shape){c->n, c->conv.k, c->conv.oh, c->conv.ow}; }
static fx_shape filter_shape(const conv_case *c) { return (fx_shape){c->conv.k, c->conv.c, c->conv.r, c->conv.s}; }

static void describe(const conv_case *c, const char *what, const char *details)
{
    const nw_conv *v = &c->conv;
    fx_describe("%s of %d x %d x %d x %d, filter %d x %d x %d x %d, stride %d, pad %d, %s%s", what, c->n, v->c, v->h,
                v->w, v->k, v->c, v->r, v->s, v->stride, v->pad, details, c->direct ? ", direct" : "");
}

/* ---- shapes ----------------------------------------------------------------------------------------------------- */

/* What random shapes of this size do not reach: no taps at all, one pixel, rows wider than a task's scratch, weights
 * larger than a chunk, more than one chunk of rows for the weights' gradient. n, c, h, w, k, r, s, stride, pad. */
static const int special_shapes[][9] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},
    {17, 17, 2, 3, 33, 1, 1, 1, 3},
    {2, 3, 2, 2, 5, 1, 1, 3, 3},
    {33, 5, 1, 12, 17, 1, 5, 1, 0},
    {5, 40, 9, 1, 20, 7, 1, 2, 0},
    {1, 130, 4, 4, 33, 7, 7, 1, 3},
    {1, 33, 4, 4, 130, 7, 7, 1, 3},
    {1, 64, 40, 40, 3, 3, 3, 1, 1},
    {1, 3, 40, 40, 64, 3, 3, 1, 1},
    {1, 3, 64, 64, 16, 7, 7, 2, 3},
    {1, 16, 64, 64, 3, 7, 7, 2, 3},
    {1, 128, 2, 180, 4, 3, 3, 1, 1},
    {1, 4, 2, 180, 128, 3, 3, 1, 1},
    {1, 16, 160, 3, 16, 3, 3, 2, 1},
    {70, 130, 1, 1, 130, 1, 1, 1, 0},
    {2, 1, 32, 32, 1, 32, 32, 1, 0},
    /* Weights of more than 4 MiB, which are packed by the tasks that use them. */
    {17, 1500, 1, 1, 1510, 1, 1, 1, 0},
    {17, 260, 3, 3, 1000, 3, 3, 1, 0},
    {2, 15, 2, 2, 1500, 7, 7, 1, 3},
    {3, 600, 2, 3, 420, 3, 3, 1, 1},
    {5, 300, 4, 4, 150, 7, 7, 2, 3},
};

/* Of Winograd's kind: whole tiles and parts of them, every padding, blocks that are not full, several tiles and several
 * chunks in a task, channels that fill no panel. In f32 they are run both ways. */
static const int winograd_shapes[][9] = {
    {32, 16, 4, 4, 16, 3, 3, 1, 1},  {33, 17, 9, 13, 33, 3, 3, 1, 0},  {9, 48, 7, 8, 40, 3, 3, 1, 2},
    {37, 33, 4, 8, 65, 3, 3, 1, 1},  {4, 64, 12, 12, 48, 3, 3, 1, 1},  {3, 24, 3, 61, 20, 3, 3, 1, 1},
    {2, 16, 40, 40, 16, 3, 3, 1, 1}, {9, 130, 10, 10, 16, 3, 3, 1, 0}, {7, 40, 17, 4, 48, 3, 3, 1, 1},
};

static conv_case given_case(const int *v, nw_dtype table)
{
    conv_case c = {.n = v[0], .table = table};
    assert_int_equal(nw_conv_make(&c.conv, v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]), NW_OK);
    return c;
}

static conv_case random_case(nw_rng *rng, nw_dtype table)
{
    static const int sizes[] = {1, 2, 3, 3, 5, 7},
                     channels[] = {1, 2, 3, 4, 5, 8, 10, 16, 17, 24, 32, 33, 48, 64, 96, 130};
    static const int images[] = {1, 2, 5, 15, 16, 17, 31, 32, 33, 40, 64, 70};
    conv_case c = {.table = table};
    for (;;) {
        int r = fx_pick(rng, sizes, COUNT(sizes)), s = fx_chance(rng, 3) ? fx_pick(rng, sizes, COUNT(sizes)) : r;
        c.n = fx_pick(rng, images, COUNT(images));
        nw_status status =
            nw_conv_make(&c.conv, fx_pick(rng, channels, COUNT(channels)), 1 + (int)nw_rng_below(rng, 12),
                         1 + (int)nw_rng_below(rng, 12), fx_pick(rng, channels, COUNT(channels)), r, s,
                         1 + (int)nw_rng_below(rng, 3), (int)nw_rng_below(rng, 4));
        if (status == NW_OK && nw_conv_flops(&c.conv, c.n) <= 2.0 * MOST_PRODUCTS) return c;
    }
}

/* Every shape with its own random numbers, so that one that fails can be run alone. */
static void for_cases(nw_direction direction, void (*run)(conv_case c, nw_rng *rng))
{
    for (int i = 0; i < COUNT(special_shapes) + RANDOM_SHAPES; i++)
        for (int table = NW_F32; table <= NW_BF16; table++) {
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)direction * 2 + (uint32_t)table);
            run(i < COUNT(special_shapes) ? given_case(special_shapes[i], (nw_dtype)table)
                                          : random_case(&rng, (nw_dtype)table),
                &rng);
            fx_release(0);
        }
    for (int i = 0; i < 2 * COUNT(winograd_shapes); i++) {
        nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)(200 + (int)direction));
        conv_case c = given_case(winograd_shapes[i / 2], NW_F32);
        c.direct = i % 2;
        run(c, &rng);
        fx_release(0);
    }
}

static fx_source_values random_source(nw_rng *rng, fx_shape shape, nw_dtype table)
{
    fx_form form = fx_chance(rng, 4) ? FX_PLAIN : (fx_form)nw_rng_below(rng, FX_FORMS);
    nw_dtype type_a = fx_type(rng, table);
    return fx_make_source(rng, shape, form, table, type_a, fx_type(rng, table));
}

/* Weights as the network holds them, in f32 whatever the table. */
static float *random_weights(nw_rng *rng, const conv_case *c)
{
    size_t count = fx_count(filter_shape(c));
    return fx_floats(fx_values(rng, count, c->table, NW_F32), count, "weights");
}

static const char *source_name(const fx_source_values *v)
{
    static char name[2][64];
    static int which;
    which ^= 1;
    snprintf(name[which], sizeof name[which], "%s %s%s%s", fx_form_name(v->form), fx_type_name(v->type[0]),
             v->view[1] ? "+" : "", v->view[1] ? fx_type_name(v->type[1]) : "");
    return name[which];
}

/* ---- the twins -------------------------------------------------------------------------------------------------- */

static nw_ref_conv twin_conv(const conv_case *c)
{
    const nw_conv *v = &c->conv;
    return (nw_ref_conv){c->n, v->c, v->h, v->w, v->k, v->r, v->s, v->stride, v->pad};
}
static void twin_forward(const conv_case *c, const double *x, const double *w, const double *bias, double *y)
{
    nw_ref_conv conv = twin_conv(c);
    nw_ref_linear linear = {c->n, c->conv.c, c->conv.k};
    if (c->linear)
        nw_ref_linear_forward_d(&linear, x, w, bias, y);
    else
        nw_ref_conv_forward_d(&conv, x, w, bias, y);
}
static void twin_backward(const conv_case *c, const double *x, const double *w, const double *dy, double *dx,
                          double *dw)
{
    nw_ref_conv conv = twin_conv(c);
    nw_ref_linear linear = {c->n, c->conv.c, c->conv.k};
    if (c->linear)
        nw_ref_linear_backward_d(&linear, x, w, dy, dx, dw, NULL);
    else
        nw_ref_conv_backward_d(&conv, x, w, dy, dx, dw, NULL);
}

/* For a few outputs, the size they would have without cancellation: by the twin of the squares. */
enum { FEW = 64 };

static double *squares(const double *values, size_t count)
{
    double *result = fx_zeros(count);
    for (size_t i = 0; i < count; i++) result[i] = values[i] * values[i];
    return result;
}
static void expect_size(const double *sums_of_squares, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += sums_of_squares[i];
    fx_expect_size(sqrt(sum / (double)count));
}

/* ---- forward ---------------------------------------------------------------------------------------------------- */

typedef struct forward_case {
    conv_case c;
    fx_source_values x;
    float *w, *bias;
    bool moments;
    nw_dtype type;
    double *want;
} forward_case;

static uint64_t forward_body(const fx_run *run, void *context)
{
    const forward_case *f = context;
    nw_tensor tensors[2], y = fx_tensor(output_shape(&f->c), run->block, f->type, "y");
    nw_source x = fx_source(&f->x, run->block, tensors);
    nw_moments moments = {f->moments ? fx_alloc(nw_moments_floats(&y) * sizeof(float), "moments") : NULL};
    nw_exec exec = fx_exec(run, run->kernels->conv_need(&f->c.conv, f->c.n, run->block, NW_FORWARD, run->threads));
    exec.direct = f->c.direct;
    run->kernels->conv_forward(&exec, &f->c.conv, &x, f->w, f->bias, &y, f->moments ? &moments : NULL,
                               NW_WORK_CONV_FORWARD);
    fx_compare_tensor("y", &y, f->want);
    uint64_t hash = fx_hash_tensor(FX_HASH_START, &y);
    if (!f->moments) return hash;
    fx_check_moments(&y, moments.partial, f->want);
    return fx_hash(hash, moments.partial, nw_moments_floats(&y) * sizeof(float));
}

static void forward_case_run(conv_case c, nw_rng *rng)
{
    forward_case f = {.c = c,
                      .x = random_source(rng, input_shape(&c), c.table),
                      .w = random_weights(rng, &c),
                      .moments = !fx_chance(rng, 3),
                      .type = fx_type(rng, c.table)};
    size_t count = fx_count(output_shape(&c)), filter = fx_count(filter_shape(&c)), k = (size_t)c.conv.k;
    size_t inputs = fx_count(input_shape(&c));
    if (fx_chance(rng, 2)) f.bias = fx_floats(fx_values(rng, k, c.table, NW_F32), k, "bias");
    f.want = fx_zeros(count);
    double *x = fx_rounded(f.x.value, inputs, c.table), *w = fx_rounded(fx_doubles(f.w, filter), filter, c.table);
    twin_forward(&c, x, w, f.bias ? fx_doubles(f.bias, k) : NULL, f.want);
    char details[160];
    snprintf(details, sizeof details, "x %s to %s, %s bias, %s moments", source_name(&f.x), fx_type_name(f.type),
             f.bias ? "with" : "no", f.moments ? "with" : "no");
    describe(&c, "forward", details);
    if (count < FEW) {
        double *size = fx_zeros(count);
        twin_forward(&c, squares(x, inputs), squares(w, filter), NULL, size);
        expect_size(size, count);
    }
    fx_for_runs(c.table, forward_body, &f);
}

static void test_forward(void **state)
{
    (void)state;
    for_cases(NW_FORWARD, forward_case_run);
}

/* ---- backward to the data --------------------------------------------------------------------------------------- */

typedef struct data_case {
    conv_case c;
    fx_source_values dy;
    float *w;
    fx_sink_values sink;
    bool no_sink;
    nw_dtype type;
    double *want;
} data_case;

static uint64_t data_body(const fx_run *run, void *context)
{
    const data_case *f = context;
    nw_tensor tensors[2], dx = fx_tensor(input_shape(&f->c), run->block, f->type, "dx");
    nw_source dy = fx_source(&f->dy, run->block, tensors);
    fx_sink sink;
    if (!f->no_sink) fx_sink_open(&f->sink, &dx, &sink);
    nw_exec exec =
        fx_exec(run, run->kernels->conv_need(&f->c.conv, f->c.n, run->block, NW_BACKWARD_DATA, run->threads));
    exec.direct = f->c.direct;
    run->kernels->conv_backward_data(&exec, &f->c.conv, &dy, f->w, &dx, f->no_sink ? NULL : &sink.sink,
                                     NW_WORK_CONV_DATA);
    fx_compare_tensor("dx", &dx, f->want);
    uint64_t hash = fx_hash_tensor(FX_HASH_START, &dx);
    return f->no_sink ? hash : fx_sink_check(&f->sink, &sink, &dx, f->want, hash);
}

static void data_case_run(conv_case c, nw_rng *rng)
{
    data_case f = {.c = c,
                   .dy = random_source(rng, output_shape(&c), c.table),
                   .w = random_weights(rng, &c),
                   .no_sink = fx_chance(rng, 6),
                   .type = fx_type(rng, c.table)};
    size_t filter = fx_count(filter_shape(&c)), count = fx_count(input_shape(&c)), outputs = fx_count(output_shape(&c));
    f.want = fx_zeros(count);
    double *dy = fx_rounded(f.dy.value, outputs, c.table), *w = fx_rounded(fx_doubles(f.w, filter), filter, c.table);
    twin_backward(&c, NULL, w, dy, f.want, NULL);
    char details[256];
    if (f.no_sink) {
        snprintf(details, sizeof details, "dy %s to %s, no sink", source_name(&f.dy), fx_type_name(f.type));
    } else {
        f.sink = fx_make_sink(rng, input_shape(&c), c.table, f.type);
        fx_sink_apply(&f.sink, f.want);
        snprintf(details, sizeof details, "dy %s to %s, %s", source_name(&f.dy), fx_type_name(f.type),
                 fx_sink_name(&f.sink));
    }
    describe(&c, "backward to data", details);
    if (count < FEW) {
        double *size = fx_zeros(count);
        twin_backward(&c, NULL, squares(w, filter), squares(dy, outputs), size, NULL);
        expect_size(size, count);
    }
    fx_for_runs(c.table, data_body, &f);
}

static void test_backward_data(void **state)
{
    (void)state;
    for_cases(NW_BACKWARD_DATA, data_case_run);
}

/* ---- backward to the weights ------------------------------------------------------------------------------------ */

typedef struct weights_case {
    conv_case c;
    fx_source_values x, dy;
    bool accumulate, bias;
    double *before, *bias_before, *want, *bias_want;
    double *bias_size; /* the sum of |dy| + 1; the 1 for what cancels inside a source */
} weights_case;

static uint64_t weights_body(const fx_run *run, void *context)
{
    const weights_case *f = context;
    size_t filter = fx_count(filter_shape(&f->c)), k = (size_t)f->c.conv.k;
    nw_tensor x_tensors[2], dy_tensors[2];
    nw_source x = fx_source(&f->x, run->block, x_tensors), dy = fx_source(&f->dy, run->block, dy_tensors);
    float *dw = f->accumulate ? fx_floats(f->before, filter, "dw") : fx_alloc(filter * sizeof(float), "dw");
    float *dbias = !f->bias        ? NULL
                   : f->accumulate ? fx_floats(f->bias_before, k, "dbias")
                                   : fx_alloc(k * sizeof(float), "dbias");
    nw_exec exec =
        fx_exec(run, run->kernels->conv_need(&f->c.conv, f->c.n, run->block, NW_BACKWARD_WEIGHTS, run->threads));
    exec.direct = f->c.direct;
    run->kernels->conv_backward_weights(&exec, &f->c.conv, &x, &dy, dw, dbias, f->accumulate, NW_WORK_CONV_WEIGHTS);
    fx_compare("dw", dw, f->want, filter_shape(&f->c), NW_F32);
    uint64_t hash = fx_hash(FX_HASH_START, dw, filter * sizeof(float));
    if (!dbias) return hash;
    for (size_t i = 0; i < k; i++) fx_near("dbias", (int)i, (double)dbias[i], f->bias_want[i], 1e-6 * f->bias_size[i]);
    return fx_hash(hash, dbias, k * sizeof(float));
}

static void weights_case_run(conv_case c, nw_rng *rng)
{
    weights_case f = {.c = c,
                      .x = random_source(rng, input_shape(&c), c.table),
                      .dy = random_source(rng, output_shape(&c), c.table),
                      .accumulate = fx_chance(rng, 2),
                      .bias = fx_chance(rng, 2)};
    size_t filter = fx_count(filter_shape(&c)), k = (size_t)c.conv.k, plane = (size_t)c.conv.oh * (size_t)c.conv.ow;
    f.before = fx_values(rng, filter, c.table, NW_F32);
    f.bias_before = fx_values(rng, k, c.table, NW_F32);
    f.want = fx_zeros(filter);
    f.bias_want = fx_zeros(k);
    f.bias_size = fx_zeros(k);
    size_t inputs = fx_count(f.x.shape), outputs = fx_count(f.dy.shape);
    double *x = fx_rounded(f.x.value, inputs, c.table), *dy = fx_rounded(f.dy.value, outputs, c.table);
    twin_backward(&c, x, NULL, dy, NULL, f.want);
    /* The bias adds up dy as it is, before it is rounded for the products. */
    for (size_t i = 0; i < outputs; i++) {
        f.bias_want[i / plane % k] += f.dy.value[i];
        f.bias_size[i / plane % k] += fabs(f.dy.value[i]) + 1.0;
    }
    for (size_t i = 0; f.accumulate && i < filter; i++) f.want[i] += f.before[i];
    for (size_t i = 0; f.accumulate && i < k; i++) {
        f.bias_want[i] += f.bias_before[i];
        f.bias_size[i] += fabs(f.bias_before[i]);
    }
    char details[160];
    snprintf(details, sizeof details, "x %s, dy %s, %s%s", source_name(&f.x), source_name(&f.dy),
             f.accumulate ? "accumulated" : "overwritten", f.bias ? ", with bias" : "");
    describe(&c, "backward to weights", details);
    if (filter < FEW) {
        double *size = fx_zeros(filter);
        twin_backward(&c, squares(x, inputs), NULL, squares(dy, outputs), NULL, size);
        expect_size(size, filter);
    }
    fx_for_runs(c.table, weights_body, &f);
}

static void test_backward_weights(void **state)
{
    (void)state;
    for_cases(NW_BACKWARD_WEIGHTS, weights_case_run);
}

/* ---- which way -------------------------------------------------------------------------------------------------- */

/* Products by counting, and that the shapes above are really done in two ways where the table can. */
static void test_products(void **state)
{
    (void)state;
    for (int i = 0; i < nw_isa_count(); i++)
        for (int shape = 0; shape < COUNT(winograd_shapes); shape++)
            for (int d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++) {
                const nw_kernels *k = nw_isa_kernels(i);
                conv_case c = given_case(winograd_shapes[shape], k->dtype);
                const nw_conv *v = &c.conv;
                int rows = 0, columns = 0;
                for (int tap = 0; tap < 3; tap++) {
                    for (int y = 0; y < v->oh; y++) rows += y + tap >= v->pad && y + tap < v->pad + v->h;
                    for (int x = 0; x < v->ow; x++) columns += x + tap >= v->pad && x + tap < v->pad + v->w;
                }
                double direct = (double)rows * columns * v->c * v->k * c.n;
                double automatic = k->conv_products(v, c.n, (nw_direction)d, false);
                assert_float_equal(k->conv_products(v, c.n, (nw_direction)d, true), direct, 0);
                if (k->dtype == NW_F32)
                    assert_true(automatic < direct);
                else
                    assert_float_equal(automatic, direct, 0);
            }
}

/* ---- linear ----------------------------------------------------------------------------------------------------- */

static void test_linear(void **state)
{
    (void)state;
    static const int shapes[][3] = {{1, 1, 1}, {5, 3, 10}, {33, 64, 10}, {64, 130, 100}, {70, 512, 10}, {16, 17, 33}};
    for (int i = 0; i < COUNT(shapes); i++)
        for (int table = NW_F32; table <= NW_BF16; table++) {
            nw_rng rng = nw_rng_make(SEED, NW_PURPOSE_TEST, (uint64_t)i, (uint32_t)(100 + table));
            conv_case c = {.n = shapes[i][0], .table = (nw_dtype)table, .linear = true};
            assert_int_equal(nw_conv_make(&c.conv, shapes[i][1], 1, 1, shapes[i][2], 1, 1, 1, 0), NW_OK);
            forward_case_run(c, &rng);
            data_case_run(c, &rng);
            weights_case_run(c, &rng);
            fx_release(0);
        }
}

/* ---- geometry --------------------------------------------------------------------------------------------------- */

static void refuse_conv(int c, int h, int w, int k, int r, int s, int stride, int pad)
{
    nw_conv conv;
    fx_describe("a convolution of %d x %d x %d, filter %d x %d x %d, stride %d, pad %d", c, h, w, k, r, s, stride, pad);
    if (nw_conv_make(&conv, c, h, w, k, r, s, stride, pad) != NW_E_SHAPE) fx_fail("not refused");
    if (strlen(nw_error_message()) < 20) fx_fail("no message");
}
static void refuse_pool(int c, int h, int w, int size, int stride, int pad)
{
    nw_pool2d pool;
    fx_describe("pooling of %d x %d x %d, size %d, stride %d, pad %d", c, h, w, size, stride, pad);
    if (nw_pool2d_make(&pool, c, h, w, size, stride, pad) != NW_E_SHAPE) fx_fail("not refused");
    if (strlen(nw_error_message()) < 20) fx_fail("no message");
}

static void test_geometry(void **state)
{
    (void)state;
    nw_conv conv;
    nw_pool2d pool;
    assert_int_equal(nw_conv_make(&conv, 3, 224, 223, 64, 7, 5, 2, 3), NW_OK);
    assert_int_equal(conv.oh, 112);
    assert_int_equal(conv.ow, 113);
    assert_int_equal(nw_conv_weights(&conv), 64 * 3 * 7 * 5);
    assert_int_equal(nw_pool2d_make(&pool, 64, 112, 111, 3, 2, 1), NW_OK);
    assert_int_equal(pool.oh, 56);
    assert_int_equal(pool.ow, 56);

    refuse_conv(0, 8, 8, 8, 3, 3, 1, 1);
    refuse_conv(8, 0, 8, 8, 3, 3, 1, 1);
    refuse_conv(8, 8, -1, 8, 3, 3, 1, 1);
    refuse_conv(8, 8, 8, 0, 3, 3, 1, 1);
    refuse_conv(8, 8, 8, 8, 0, 3, 1, 1);
    refuse_conv(8, 8, 8, 8, 3, 0, 1, 1);
    refuse_conv(8, 8, 8, 8, 3, 3, 0, 1);
    refuse_conv(8, 8, 8, 8, 3, 3, 1, -1);
    refuse_conv(8, 2, 8, 8, 5, 3, 1, 1);
    refuse_conv(8, 8, 2, 8, 3, 5, 1, 1);
    refuse_conv(8, 100, 100, 8, 33, 32, 1, 0);
    refuse_conv(8, 8, 8, 8, 1 << 16, 1 << 16, 1, 1);
    refuse_conv(8, 8, 8, 8, 3, 3, 1, INT32_MAX);
    refuse_conv(8, INT32_MAX, 8, 8, 3, 3, 1, 1);
    refuse_pool(0, 8, 8, 2, 2, 0);
    refuse_pool(8, 0, 8, 2, 2, 0);
    refuse_pool(8, 8, 8, 0, 2, 0);
    refuse_pool(8, 8, 8, 2, 0, 0);
    refuse_pool(8, 8, 8, 2, 2, -1);
    refuse_pool(8, 8, 8, 3, 2, 2);
    refuse_pool(8, 4, 8, 5, 1, 0);
    refuse_pool(8, INT32_MAX, 8, 3, 1, 1);
    refuse_pool(8, 8, 8, INT32_MAX, 1, INT32_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_geometry),         cmocka_unit_test(test_forward), cmocka_unit_test(test_backward_data),
        cmocka_unit_test(test_backward_weights), cmocka_unit_test(test_linear),  cmocka_unit_test(test_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
