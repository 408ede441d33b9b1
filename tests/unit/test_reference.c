/*
 * test_reference.c - the plain-loop operators against themselves: every backward against central differences of its
 * forward (in double), small results worked out by hand, and the float version against the double one.
 *
 * A backward is checked through the scalar L = sum(dy . y) with random dy: its gradient with respect to each input must
 * be what backward returns. Inputs stay away from kinks (ReLU at 0, ties of a maximum), where differences mean nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"

#define TOLERANCE    1e-6
#define UNUSED       __attribute__((unused))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- Numbers and buffers --------------------------------------------------------------------------------------- */

static uint64_t random_state;

static uint64_t random_next(void)
{
    uint64_t z = (random_state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static int random_below(int bound) { return (int)(random_next() % (uint64_t)bound); }

/* Uniform in [-1, 1) on a grid that float holds exactly: float and double operators can get the same numbers. */
static double random_value(void) { return (double)(random_next() >> 40) / 8388608.0 - 1.0; }

/* Buffers live until the end of the test: an assertion that fails jumps away and could not free them. */
static void *owned[512];
static size_t owned_count;

static void *fresh_bytes(size_t bytes)
{
    assert_true(owned_count < COUNT(owned));
    void *buffer = calloc(1, bytes);
    assert_non_null(buffer);
    owned[owned_count++] = buffer;
    return buffer;
}

static void release_all(void)
{
    while (owned_count > 0) {
        free(owned[--owned_count]);
    }
}

static double *fresh(size_t count) { return fresh_bytes(count * sizeof(double)); }

static double *fresh_random(size_t count)
{
    double *values = fresh(count);
    for (size_t i = 0; i < count; i++) {
        values[i] = random_value();
    }
    return values;
}

static float *to_float(const double *values, size_t count)
{
    float *copy = fresh_bytes(count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        copy[i] = (float)values[i];
    }
    return copy;
}

/* Before and after each test. */
static int reset(UNUSED void **state)
{
    random_state = 20240229;
    release_all();
    return 0;
}

static double dot(const double *a, const double *b, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* ---- The checker ---------------------------------------------------------------------------------------------- */

typedef double (*loss_function)(void *problem);

/*
 * The worst |numeric - gradient| relative to the larger of the two and of the gradient's root mean square (an element
 * that is small by cancellation is not held to its own size). Large variables are sampled.
 */
static double gradient_error(loss_function loss, void *problem, double *variable, size_t count, const double *gradient,
                             double step)
{
    const size_t most = 250;
    double rms = sqrt(dot(gradient, gradient, count) / (double)count);
    double worst = 0.0;
    for (size_t t = 0; t < count && t < most; t++) {
        size_t i = count <= most ? t : (size_t)(random_next() % count);
        double saved = variable[i];
        variable[i] = saved + step;
        double above = loss(problem);
        variable[i] = saved - step;
        double below = loss(problem);
        variable[i] = saved;
        double numeric = (above - below) / (2.0 * step);
        double size = fmax(fmax(fabs(numeric), fabs(gradient[i])), rms);
        double error = size > 0.0 ? fabs(numeric - gradient[i]) / size : 0.0;
        worst = isnan(error) ? INFINITY : fmax(worst, error);
    }
    return worst;
}

static char what[128]; /* the case under test, for the message of a failure */

static void check_gradient(const char *name, loss_function loss, void *problem, double *variable, size_t count,
                           const double *gradient, double step)
{
    double error = gradient_error(loss, problem, variable, count, gradient, step);
    if (!(error <= TOLERANCE)) {
        fail_msg("%s, %s: relative error %.3g of %zu values", what, name, error, count);
    }
}

/* ---- Convolution ---------------------------------------------------------------------------------------------- */

typedef struct conv_problem {
    nw_ref_conv shape;
    size_t x_count, w_count, y_count;
    double *x, *w, *bias, *y, *dy, *dx, *dw, *dbias;
} conv_problem;

static conv_problem conv_make(nw_ref_conv v)
{
    conv_problem p = {.shape = v};
    int oh = nw_ref_out(v.h, v.r, v.stride, v.pad);
    int ow = nw_ref_out(v.w, v.s, v.stride, v.pad);
    assert_true(oh > 0 && ow > 0);
    p.x_count = (size_t)(v.n * v.c * v.h * v.w);
    p.w_count = (size_t)(v.k * v.c * v.r * v.s);
    p.y_count = (size_t)(v.n * v.k * oh * ow);
    p.x = fresh_random(p.x_count), p.dx = fresh(p.x_count);
    p.w = fresh_random(p.w_count), p.dw = fresh(p.w_count);
    p.y = fresh(p.y_count), p.dy = fresh_random(p.y_count);
    p.bias = fresh_random((size_t)v.k), p.dbias = fresh((size_t)v.k);
    return p;
}

static double conv_loss(void *problem)
{
    conv_problem *p = problem;
    nw_ref_conv_forward_d(&p->shape, p->x, p->w, p->bias, p->y);
    return dot(p->y, p->dy, p->y_count);
}

static void conv_check(nw_ref_conv v)
{
    conv_problem p = conv_make(v);
    snprintf(what, sizeof what, "conv n%d c%d %dx%d k%d %dx%d stride %d pad %d", v.n, v.c, v.h, v.w, v.k, v.r, v.s,
             v.stride, v.pad);
    nw_ref_conv_backward_d(&v, p.x, p.w, p.dy, p.dx, p.dw, p.dbias);
    check_gradient("dx", conv_loss, &p, p.x, p.x_count, p.dx, 0.01);
    check_gradient("dw", conv_loss, &p, p.w, p.w_count, p.dw, 0.01);
    check_gradient("dbias", conv_loss, &p, p.bias, (size_t)v.k, p.dbias, 0.01);
    release_all();
}

static void test_conv_gradients(UNUSED void **state)
{
    static const int kernels[] = {1, 3, 5, 7};
    static const int channels[] = {1, 3, 16};
    for (int turn = 0; turn < 24; turn++) { /* every kernel, stride and pad; every channel count with each of these */
        int r = kernels[turn / 6];
        int c = channels[(turn + turn / 6) % 3];
        int n = 1 + random_below(2), h = r + random_below(4), w = r + random_below(4), k = 1 + random_below(5);
        conv_check((nw_ref_conv){n, c, h, w, k, r, r, .stride = 1 + turn / 3 % 2, .pad = turn % 3});
    }
    conv_check((nw_ref_conv){2, 3, 5, 6, 4, 1, 3, 1, 1});   /* the filter is not square */
    conv_check((nw_ref_conv){1, 2, 8, 7, 3, 3, 3, 3, 2});   /* stride 3 */
    conv_check((nw_ref_conv){1, 3, 13, 12, 2, 7, 7, 2, 3}); /* the first layer of ImageNet networks */
}

/* The checker itself must object to a gradient that is slightly wrong in one place. */
static void test_checker_finds_a_wrong_gradient(UNUSED void **state)
{
    conv_problem p = conv_make((nw_ref_conv){2, 2, 4, 4, 2, 3, 3, 1, 1});
    nw_ref_conv_backward_d(&p.shape, p.x, p.w, p.dy, p.dx, NULL, NULL);
    assert_true(gradient_error(conv_loss, &p, p.x, p.x_count, p.dx, 0.01) <= TOLERANCE);
    p.dx[17] += 1e-4;
    assert_false(gradient_error(conv_loss, &p, p.x, p.x_count, p.dx, 0.01) <= TOLERANCE);
    p.dx[17] = NAN;
    assert_false(gradient_error(conv_loss, &p, p.x, p.x_count, p.dx, 0.01) <= TOLERANCE);
    memset(p.dx, 0, p.x_count * sizeof *p.dx);
    assert_false(gradient_error(conv_loss, &p, p.x, p.x_count, p.dx, 0.01) <= TOLERANCE);
}

static void test_conv_by_hand(UNUSED void **state)
{
    const nw_ref_conv v = {1, 1, 3, 3, 1, 2, 2, 1, 0};
    const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const double w[] = {1, 10, 100, 1000}; /* a correlation: the filter is not turned around */
    const double bias[] = {0.5}, want[] = {5421.5, 6532.5, 8754.5, 9865.5};
    double y[4];
    nw_ref_conv_forward_d(&v, x, w, bias, y);
    assert_memory_equal(y, want, sizeof want);
    nw_ref_conv_forward_d(&v, x, w, NULL, y);
    assert_true(y[0] == 5421.0);
}

/* ---- Batch norm ----------------------------------------------------------------------------------------------- */

typedef struct norm_problem {
    nw_ref_norm shape;
    size_t count, channels;
    double *x, *residual, *gamma, *beta, *mean, *rstd, *y, *dy;
} norm_problem;

static double norm_loss(void *problem)
{
    norm_problem *p = problem;
    nw_ref_norm_forward_d(&p->shape, p->x, p->residual, p->gamma, p->beta, NULL, NULL, p->mean, p->rstd, p->y);
    return dot(p->y, p->dy, p->count);
}

/* How close the value before the ReLU comes to its kink. */
static double norm_margin(norm_problem *p)
{
    bool relu = p->shape.relu;
    p->shape.relu = false;
    norm_loss(p);
    p->shape.relu = relu;
    double margin = INFINITY;
    for (size_t i = 0; i < p->count; i++) {
        margin = fmin(margin, fabs(p->y[i]));
    }
    return margin;
}

static norm_problem norm_make(nw_ref_norm v, bool residual)
{
    norm_problem p = {.shape = v, .count = (size_t)(v.n * v.c * v.h * v.w), .channels = (size_t)v.c};
    for (int attempt = 0; attempt < 100; attempt++) {
        p.x = fresh_random(p.count);
        p.residual = residual ? fresh_random(p.count) : NULL;
        p.gamma = fresh_random(p.channels), p.beta = fresh_random(p.channels);
        for (size_t c = 0; c < p.channels; c++) {
            p.gamma[c] = (double)(float)(p.gamma[c] + 1.5);
        }
        p.mean = fresh(p.channels), p.rstd = fresh(p.channels);
        p.y = fresh(p.count), p.dy = fresh_random(p.count);
        if (!v.relu || norm_margin(&p) > 2e-3) {
            return p;
        }
        release_all();
    }
    fail_msg("no input away from the kink was found");
    return p;
}

static void norm_check(nw_ref_norm v, bool residual)
{
    const double step = 1e-4;
    norm_problem p = norm_make(v, residual);
    double *dx = fresh(p.count), *dresidual = residual ? fresh(p.count) : NULL;
    double *dgamma = fresh(p.channels), *dbeta = fresh(p.channels);
    snprintf(what, sizeof what, "norm n%d c%d %dx%d relu %d residual %d", v.n, v.c, v.h, v.w, v.relu, residual);
    norm_loss(&p);
    nw_ref_norm_backward_d(&v, p.x, p.y, p.gamma, p.mean, p.rstd, p.dy, dx, dgamma, dbeta, dresidual);
    check_gradient("dx", norm_loss, &p, p.x, p.count, dx, step);
    check_gradient("dgamma", norm_loss, &p, p.gamma, p.channels, dgamma, step);
    check_gradient("dbeta", norm_loss, &p, p.beta, p.channels, dbeta, step);
    if (residual) {
        check_gradient("dresidual", norm_loss, &p, p.residual, p.count, dresidual, step);
    }
    release_all();
}

static void test_norm_gradients(UNUSED void **state)
{
    static const nw_ref_norm shapes[] = {{.n = 3, .c = 1, .h = 4, .w = 3},
                                         {.n = 2, .c = 3, .h = 3, .w = 3},
                                         {.n = 2, .c = 16, .h = 2, .w = 2},
                                         {.n = 5, .c = 3, .h = 1, .w = 1}};
    for (size_t i = 0; i < 4 * COUNT(shapes); i++) {
        nw_ref_norm v = shapes[i / 4];
        v.relu = i & 1;
        norm_check(v, i & 2);
    }
}

static void test_norm_by_hand(UNUSED void **state)
{
    const nw_ref_norm v = {.n = 2, .c = 1, .h = 1, .w = 2, .relu = true};
    const double x[] = {1, 2, 3, 4}; /* mean 2.5, variance 1.25 biased and 5/3 unbiased */
    const double gamma[] = {2}, beta[] = {0.25};
    double running_mean[] = {10}, running_var[] = {4}, mean, rstd, y[4], eval[4];
    nw_ref_norm_forward_d(&v, x, NULL, gamma, beta, running_mean, running_var, &mean, &rstd, y);
    assert_true(mean == 2.5);
    assert_true(fabs(rstd - 1.0 / sqrt(1.25001)) < 1e-15);
    assert_true(fabs(running_mean[0] - 9.25) < 1e-14);
    assert_true(fabs(running_var[0] - (3.6 + 0.5 / 3.0)) < 1e-14);
    assert_true(y[0] == 0.0 && y[1] == 0.0);
    assert_true(fabs(y[3] - (3.0 * rstd + 0.25)) < 1e-14);
    const double mean_now[] = {2.5}, var_now[] = {1.25};
    nw_ref_norm_eval_d(&v, x, NULL, gamma, beta, mean_now, var_now, eval);
    assert_memory_equal(eval, y, sizeof y); /* evaluation with the batch's own statistics is the training forward */
}

/* ---- Pooling -------------------------------------------------------------------------------------------------- */

typedef enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_GLOBAL } pool_kind;

typedef struct pool_problem {
    pool_kind kind;
    nw_ref_pool shape;
    size_t x_count, y_count;
    double *x, *y, *dy;
    int32_t *index;
} pool_problem;

static double pool_loss(void *problem)
{
    pool_problem *p = problem;
    switch (p->kind) {
    case POOL_MAX:
        nw_ref_max_pool_forward_d(&p->shape, p->x, p->y, p->index);
        break;
    case POOL_AVERAGE:
        nw_ref_avg_pool_forward_d(&p->shape, p->x, p->y);
        break;
    case POOL_GLOBAL:
        nw_ref_global_pool_forward_d(&p->shape, p->x, p->y);
        break;
    }
    return dot(p->y, p->dy, p->y_count);
}

static void pool_check(pool_kind kind, nw_ref_pool v)
{
    pool_problem p = {.kind = kind, .shape = v, .x_count = (size_t)(v.n * v.c * v.h * v.w)};
    int outputs = nw_ref_out(v.h, v.kernel, v.stride, v.pad) * nw_ref_out(v.w, v.kernel, v.stride, v.pad);
    p.y_count = (size_t)(v.n * v.c * (kind == POOL_GLOBAL ? 1 : outputs));
    p.x = fresh(p.x_count);
    p.y = fresh(p.y_count);
    p.dy = fresh_random(p.y_count);
    p.index = fresh_bytes(p.y_count * sizeof *p.index);
    /* A shuffled ladder of distinct values: no step of the differences changes which of them is the largest. */
    for (size_t i = 0; i < p.x_count; i++) {
        size_t j = (size_t)(random_next() % (i + 1));
        p.x[i] = p.x[j];
        p.x[j] = 0.1 * ((double)i - 0.5 * (double)p.x_count);
    }
    double *dx = fresh(p.x_count);
    snprintf(what, sizeof what, "pool %d n%d c%d %dx%d kernel %d stride %d pad %d", (int)kind, v.n, v.c, v.h, v.w,
             v.kernel, v.stride, v.pad);
    pool_loss(&p);
    switch (kind) {
    case POOL_MAX:
        nw_ref_max_pool_backward_d(&v, p.index, p.dy, dx);
        break;
    case POOL_AVERAGE:
        nw_ref_avg_pool_backward_d(&v, p.dy, dx);
        break;
    case POOL_GLOBAL:
        nw_ref_global_pool_backward_d(&v, p.dy, dx);
        break;
    }
    check_gradient("dx", pool_loss, &p, p.x, p.x_count, dx, 0.01);
    release_all();
}

static void test_pool_gradients(UNUSED void **state)
{
    static const nw_ref_pool shapes[] = {{2, 3, 4, 6, 2, 2, 0}, {1, 1, 5, 7, 2, 2, 0},  {2, 3, 7, 6, 3, 2, 1},
                                         {1, 3, 5, 5, 3, 1, 0}, {2, 16, 4, 4, 4, 4, 0}, {1, 2, 9, 8, 5, 2, 2},
                                         {1, 3, 8, 7, 7, 2, 2}, {2, 1, 3, 3, 1, 2, 0}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        pool_check(POOL_MAX, shapes[i]);
        pool_check(POOL_AVERAGE, shapes[i]);
        pool_check(POOL_GLOBAL, shapes[i]);
    }
}

static void test_pool_by_hand(UNUSED void **state)
{
    const nw_ref_pool v = {1, 1, 3, 3, 2, 2, 1};
    const double x[] = {-1, -2, -2, -3, -5, -4, -3, -4, -4}; /* negative: a padding zero would win if it counted */
    const double want[] = {-1, -2, -3, -4};
    const int32_t want_index[] = {0, 1, 3, 5};              /* of equals, the first in scan order */
    const double want_average[] = {-0.25, -1, -1.5, -4.25}; /* padding counts in the divisor */
    double y[4], y_average[4];
    int32_t index[4];
    nw_ref_max_pool_forward_d(&v, x, y, index);
    assert_memory_equal(y, want, sizeof want);
    assert_memory_equal(index, want_index, sizeof want_index);
    nw_ref_avg_pool_forward_d(&v, x, y_average);
    assert_memory_equal(y_average, want_average, sizeof want_average);
}

/* ---- Linear, elements, loss, SGD ------------------------------------------------------------------------------ */

typedef struct flat_problem {
    nw_ref_linear linear;
    nw_ref_loss loss;
    void (*forward)(size_t count, const double *x, double *y);
    size_t count;
    double *x, *w, *bias, *y, *dy;
    int32_t *labels;
} flat_problem;

static double linear_loss(void *problem)
{
    flat_problem *p = problem;
    nw_ref_linear_forward_d(&p->linear, p->x, p->w, p->bias, p->y);
    return dot(p->y, p->dy, p->count);
}

static void test_linear_gradients(UNUSED void **state)
{
    strcpy(what, "linear");
    static const nw_ref_linear shapes[] = {{1, 1, 1}, {3, 16, 10}, {5, 3, 17}};
    for (size_t i = 0; i < COUNT(shapes); i++) {
        nw_ref_linear v = shapes[i];
        size_t x_count = (size_t)(v.n * v.c), w_count = (size_t)(v.k * v.c), y_count = (size_t)(v.n * v.k);
        flat_problem p = {.linear = v,
                          .count = y_count,
                          .x = fresh_random(x_count),
                          .w = fresh_random(w_count),
                          .bias = fresh_random((size_t)v.k),
                          .y = fresh(y_count),
                          .dy = fresh_random(y_count)};
        double *dx = fresh(x_count), *dw = fresh(w_count), *dbias = fresh((size_t)v.k);
        nw_ref_linear_backward_d(&v, p.x, p.w, p.dy, dx, dw, dbias);
        check_gradient("dx", linear_loss, &p, p.x, x_count, dx, 0.01);
        check_gradient("dw", linear_loss, &p, p.w, w_count, dw, 0.01);
        check_gradient("dbias", linear_loss, &p, p.bias, (size_t)v.k, dbias, 0.01);
    }
}

static const uint8_t keep_pattern[] = {1, 0, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 1};

static void scale_forward(size_t count, const double *x, double *y) { nw_ref_scale_forward_d(count, 0.125, x, y); }

static void dropout_forward(size_t count, const double *x, double *y)
{
    nw_ref_dropout_forward_d(count, 0.4, keep_pattern, x, y);
}

static double element_loss(void *problem)
{
    flat_problem *p = problem;
    p->forward(p->count, p->x, p->y);
    return dot(p->y, p->dy, p->count);
}

static double add_loss(void *problem)
{
    flat_problem *p = problem;
    nw_ref_add_forward_d(p->count, p->x, p->w, p->y);
    return dot(p->y, p->dy, p->count);
}

static void test_element_gradients(UNUSED void **state)
{
    const size_t count = COUNT(keep_pattern);
    strcpy(what, "element by element");
    flat_problem p = {.count = count,
                      .x = fresh_random(count),
                      .w = fresh_random(count),
                      .y = fresh(count),
                      .dy = fresh_random(count)};
    for (size_t i = 0; i < count; i++) {
        p.x[i] = 3.0 * p.x[i] + (p.x[i] > 0 ? 0.1 : -0.1);
    }
    double *dx = fresh(count), *dw = fresh(count);
    p.forward = nw_ref_relu_forward_d;
    nw_ref_relu_backward_d(count, p.x, p.dy, dx);
    check_gradient("relu", element_loss, &p, p.x, count, dx, 1e-3);
    p.forward = nw_ref_gelu_forward_d;
    nw_ref_gelu_backward_d(count, p.x, p.dy, dx);
    check_gradient("gelu", element_loss, &p, p.x, count, dx, 1e-4);
    p.forward = scale_forward;
    nw_ref_scale_backward_d(count, 0.125, p.dy, dx);
    check_gradient("scale", element_loss, &p, p.x, count, dx, 0.01);
    assert_true(p.y[0] == 0.125 * p.x[0]);
    p.forward = dropout_forward;
    nw_ref_dropout_backward_d(count, 0.4, keep_pattern, p.dy, dx);
    check_gradient("dropout", element_loss, &p, p.x, count, dx, 0.01);
    assert_true(p.y[0] == p.x[0] / (1.0 - 0.4) && p.y[1] == 0.0);
    nw_ref_add_backward_d(count, p.dy, dx, dw);
    check_gradient("add a", add_loss, &p, p.x, count, dx, 0.01);
    check_gradient("add b", add_loss, &p, p.w, count, dw, 0.01);
}

static double entropy_loss(void *problem)
{
    flat_problem *p = problem;
    return nw_ref_cross_entropy_d(&p->loss, p->x, p->labels, NULL);
}

static void test_cross_entropy_gradients(UNUSED void **state)
{
    strcpy(what, "cross entropy");
    for (int variant = 0; variant < 4; variant++) {
        nw_ref_loss v = {.n = 5, .classes = 7, .smoothing = variant & 1 ? 0.1 : 0.0, .mean = variant & 2};
        flat_problem p = {.loss = v, .count = 35, .x = fresh_random(35), .labels = fresh_bytes(5 * sizeof(int32_t))};
        for (int n = 0; n < v.n; n++) {
            p.labels[n] = random_below(v.classes);
        }
        double *dx = fresh(p.count);
        nw_ref_cross_entropy_d(&v, p.x, p.labels, dx);
        check_gradient("dlogits", entropy_loss, &p, p.x, p.count, dx, 1e-4);
    }
}

static void test_cross_entropy_by_hand(UNUSED void **state)
{
    /* exp gives 1, 2, 3, 4 of 10, times a factor that must neither overflow nor vanish. */
    double logits[] = {-999, log(2) - 999, log(3) - 999, log(4) - 999, 999, log(2) + 999, log(3) + 999, log(4) + 999};
    const int32_t labels[] = {1, 3};
    nw_ref_loss v = {.n = 2, .classes = 4, .smoothing = 0.0, .mean = false};
    double plain = -log(0.2) - log(0.4);
    double spread = -0.5 * (log(0.1) + log(0.2) + log(0.3) + log(0.4)); /* of both images */
    assert_true(fabs(nw_ref_cross_entropy_d(&v, logits, labels, NULL) - plain) < 1e-12);
    v.smoothing = 0.1;
    assert_true(fabs(nw_ref_cross_entropy_d(&v, logits, labels, NULL) - (0.9 * plain + 0.1 * spread)) < 1e-12);
    v.mean = true;
    assert_true(fabs(nw_ref_cross_entropy_d(&v, logits, labels, NULL) - 0.5 * (0.9 * plain + 0.1 * spread)) < 1e-12);
}

static void test_sgd_by_hand(UNUSED void **state)
{
    const double grad = 3.0;
    double param = 2.0, buffer = 99.0; /* the first step must not look at the buffer */
    nw_ref_sgd v = {.lr = 0.5, .momentum = 0.5, .dampening = 0.25, .weight_decay = 0.5, .nesterov = false};
    nw_ref_sgd_step_d(&v, 1, true, &param, &grad, &buffer); /* d = 4, buffer = 4 in spite of the dampening */
    assert_true(buffer == 4.0 && param == 0.0);
    nw_ref_sgd_step_d(&v, 1, false, &param, &grad, &buffer); /* d = 3, buffer = 2 + 0.75 * 3 */
    assert_true(buffer == 4.25 && param == -2.125);
    v = (nw_ref_sgd){.lr = 0.5, .momentum = 0.5, .nesterov = true};
    nw_ref_sgd_step_d(&v, 1, false, &param, &grad, &buffer); /* d = 3, buffer = 5.125, step 3 + 2.5625 */
    assert_true(buffer == 5.125 && param == -2.125 - 0.5 * 5.5625);
    v = (nw_ref_sgd){.lr = 0.5};
    param = 1.0;
    nw_ref_sgd_step_d(&v, 1, false, &param, &grad, NULL);
    assert_true(param == -0.5);
}

/* ---- Float against double ------------------------------------------------------------------------------------- */

static void assert_rounded(const float *got, const double *want, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(got[i] == (float)want[i]);
    }
}

/* Given the same numbers, the float version is the double version rounded once: both sum in double. */
static void test_float_is_double_rounded_once(UNUSED void **state)
{
    conv_problem p = conv_make((nw_ref_conv){3, 16, 7, 6, 5, 3, 3, 2, 1});
    float *x = to_float(p.x, p.x_count), *w = to_float(p.w, p.w_count), *bias = to_float(p.bias, 5);
    float *dy = to_float(p.dy, p.y_count), *y_f = to_float(p.y, p.y_count), *dx_f = to_float(p.dx, p.x_count);
    float *dw_f = to_float(p.dw, p.w_count);
    conv_loss(&p);
    nw_ref_conv_backward_d(&p.shape, p.x, p.w, p.dy, p.dx, p.dw, NULL);
    nw_ref_conv_forward_f(&p.shape, x, w, bias, y_f);
    nw_ref_conv_backward_f(&p.shape, x, w, dy, dx_f, dw_f, NULL);
    assert_rounded(y_f, p.y, p.y_count);
    assert_rounded(dx_f, p.dx, p.x_count);
    assert_rounded(dw_f, p.dw, p.w_count);
    release_all();

    norm_problem q = norm_make((nw_ref_norm){.n = 3, .c = 3, .h = 5, .w = 4, .relu = true}, true);
    float mean[3], rstd[3], *z_f = to_float(q.y, q.count);
    norm_loss(&q);
    nw_ref_norm_forward_f(&q.shape, to_float(q.x, q.count), to_float(q.residual, q.count), to_float(q.gamma, 3),
                          to_float(q.beta, 3), NULL, NULL, mean, rstd, z_f);
    assert_rounded(mean, q.mean, 3);
    assert_rounded(rstd, q.rstd, 3);
    assert_rounded(z_f, q.y, q.count);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)
    const struct CMUnitTest tests[] = {
        TEST(test_checker_finds_a_wrong_gradient),
        TEST(test_conv_gradients),
        TEST(test_conv_by_hand),
        TEST(test_norm_gradients),
        TEST(test_norm_by_hand),
        TEST(test_pool_gradients),
        TEST(test_pool_by_hand),
        TEST(test_linear_gradients),
        TEST(test_element_gradients),
        TEST(test_cross_entropy_gradients),
        TEST(test_cross_entropy_by_hand),
        TEST(test_sgd_by_hand),
        TEST(test_float_is_double_rounded_once),
    };
    return cmocka_run_group_tests_name("reference", tests, NULL, NULL);
}
