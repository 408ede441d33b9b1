/*
 * test_golden_reference.c - the float plain-loop operators against what PyTorch computed (layers.nwg), the C twin of
 * the number generator against the samples stored in each file, and the file reader against damaged files.
 *
 * The stored values were computed in f64 and rounded once, and the plain loops sum in double: only roundings of single
 * results separate them, which is why the tolerances are tight.
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
#include "support/golden.h"

#define UNUSED         __attribute__((unused))
#define COUNT(array)   (sizeof(array) / sizeof((array)[0]))
#define TOLERANCE      1e-6 /* relative, in the 2-norm */
#define TOLERANCE_NORM 1e-5 /* through batch norm, whose saved mean and rstd are rounded to float */

static golden_file *layers;
static const char *current; /* the case under test */
static size_t cases_seen;
static void *owned[64];
static size_t owned_count;

static int load_layers(UNUSED void **state)
{
    layers = golden_load(GOLDEN_PATH("layers.nwg"));
    return layers ? 0 : -1;
}

static int free_layers(UNUSED void **state)
{
    golden_free(layers);
    return 0;
}

static int release_all(UNUSED void **state)
{
    while (owned_count > 0) {
        free(owned[--owned_count]);
    }
    return 0;
}

/* Filled with NaN: an operator that leaves an element out is found. */
static float *fresh(size_t count)
{
    assert_true(owned_count < COUNT(owned));
    float *buffer = malloc(count * sizeof *buffer);
    assert_non_null(buffer);
    owned[owned_count++] = buffer;
    for (size_t i = 0; i < count; i++) {
        buffer[i] = NAN;
    }
    return buffer;
}

static const golden_tensor *field(const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%s/%s", current, name);
    const golden_tensor *tensor = golden_find(layers, full);
    assert_non_null(tensor);
    return tensor;
}

/* The input of that name, which must have exactly so many elements. */
static const float *input(const char *name, size_t count)
{
    const golden_tensor *tensor = field(name);
    assert_int_equal(tensor->count, count);
    return tensor->data;
}

static float *input_copy(const char *name, size_t count)
{
    return memcpy(fresh(count), input(name, count), count * sizeof(float));
}

static void begin(const char *name, int *shape, size_t numbers)
{
    release_all(NULL);
    current = name;
    cases_seen++;
    const float *stored = input("shape", numbers);
    for (size_t i = 0; i < numbers; i++) {
        shape[i] = (int)stored[i];
    }
}

static void expect(const char *name, const float *got, size_t count, double tolerance)
{
    double distance = golden_distance(got, input(name, count), count);
    if (!(distance <= tolerance)) {
        fail_msg("%s/%s: relative distance %.3g from PyTorch, allowed %.3g", current, name, distance, tolerance);
    }
}

/* ---- Operators -------------------------------------------------------------------------------------------------- */

static void test_conv(UNUSED void **state)
{
    static const char *const names[] = {"conv3x3",   "conv3x3s2",  "conv3x3c3",    "conv3x3p0",
                                        "conv1x1",   "conv1x1s2",  "conv5x5",      "conv5x5c1s2",
                                        "conv7x7s2", "conv3x3b33", "conv3x3s2b33", "conv1x1s2b33"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[10];
        begin(names[i], s, COUNT(s));
        nw_ref_conv v = {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]};
        size_t k_count = (size_t)v.k, x_count = (size_t)(v.n * v.c * v.h * v.w);
        size_t w_count = (size_t)(v.k * v.c * v.r * v.s), y_count = field("y")->count;
        assert_int_equal(y_count,
                         v.n * v.k * nw_ref_out(v.h, v.r, v.stride, v.pad) * nw_ref_out(v.w, v.s, v.stride, v.pad));
        const float *x = input("x", x_count), *w = input("w", w_count), *dy = input("dy", y_count);
        float *y = fresh(y_count), *dx = fresh(x_count), *dw = fresh(w_count), *dbias = fresh(k_count);
        nw_ref_conv_forward_f(&v, x, w, s[9] ? input("bias", k_count) : NULL, y);
        nw_ref_conv_backward_f(&v, x, w, dy, dx, dw, s[9] ? dbias : NULL);
        expect("y", y, y_count, TOLERANCE);
        expect("dx", dx, x_count, TOLERANCE);
        expect("dw", dw, w_count, TOLERANCE);
        if (s[9]) {
            expect("dbias", dbias, k_count, TOLERANCE);
        }
    }
}

static void test_norm_train(UNUSED void **state)
{
    static const char *const names[] = {"norm", "norm_relu", "norm_residual", "norm_residual_relu", "norm_relu_b33"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[7];
        begin(names[i], s, COUNT(s));
        assert_int_equal(s[4], 1);
        nw_ref_norm v = {.n = s[0], .c = s[1], .h = s[2], .w = s[3], .relu = s[5]};
        size_t c = (size_t)v.c, count = (size_t)(v.n * v.c * v.h * v.w);
        const float *x = input("x", count), *dy = input("dy", count), *gamma = input("gamma", c);
        float *running_mean = input_copy("running_mean", c), *running_var = input_copy("running_var", c);
        float *mean = fresh(c), *rstd = fresh(c), *y = fresh(count), *dx = fresh(count), *dgamma = fresh(c);
        float *dbeta = fresh(c), *dresidual = fresh(count);
        nw_ref_norm_forward_f(&v, x, s[6] ? input("residual", count) : NULL, gamma, input("beta", c), running_mean,
                              running_var, mean, rstd, y);
        nw_ref_norm_backward_f(&v, x, y, gamma, mean, rstd, dy, dx, dgamma, dbeta, s[6] ? dresidual : NULL);
        expect("y", y, count, TOLERANCE_NORM);
        expect("mean", mean, c, TOLERANCE_NORM);
        expect("rstd", rstd, c, TOLERANCE_NORM);
        expect("new_running_mean", running_mean, c, TOLERANCE_NORM);
        expect("new_running_var", running_var, c, TOLERANCE_NORM);
        expect("dx", dx, count, TOLERANCE_NORM);
        expect("dgamma", dgamma, c, TOLERANCE_NORM);
        expect("dbeta", dbeta, c, TOLERANCE_NORM);
        if (s[6]) {
            expect("dresidual", dresidual, count, TOLERANCE_NORM);
        }
    }
}

static void test_norm_eval(UNUSED void **state)
{
    static const char *const names[] = {"norm_eval", "norm_eval_relu_b33", "norm_eval_residual_relu"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[7];
        begin(names[i], s, COUNT(s));
        assert_int_equal(s[4], 0);
        nw_ref_norm v = {.n = s[0], .c = s[1], .h = s[2], .w = s[3], .relu = s[5]};
        size_t c = (size_t)v.c, count = (size_t)(v.n * v.c * v.h * v.w);
        float *y = fresh(count);
        nw_ref_norm_eval_f(&v, input("x", count), s[6] ? input("residual", count) : NULL, input("gamma", c),
                           input("beta", c), input("running_mean", c), input("running_var", c), y);
        expect("y", y, count, TOLERANCE_NORM);
    }
}

static nw_ref_pool begin_pool(const char *name, size_t *x_count, size_t *y_count)
{
    int s[7];
    begin(name, s, COUNT(s));
    nw_ref_pool v = {s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
    *x_count = (size_t)(v.n * v.c * v.h * v.w);
    *y_count =
        (size_t)(v.n * v.c * nw_ref_out(v.h, v.kernel, v.stride, v.pad) * nw_ref_out(v.w, v.kernel, v.stride, v.pad));
    return v;
}

static void test_max_pool(UNUSED void **state)
{
    static const char *const names[] = {"maxpool2", "maxpool2odd_b33", "maxpool3s2p1", "maxpool4", "maxpool3s2p1ties"};
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t x_count, y_count;
        nw_ref_pool v = begin_pool(names[i], &x_count, &y_count);
        float *y = fresh(y_count), *dx = fresh(x_count);
        int32_t *index = (int32_t *)fresh(y_count);
        nw_ref_max_pool_forward_f(&v, input("x", x_count), y, index);
        nw_ref_max_pool_backward_f(&v, index, input("dy", y_count), dx);
        expect("y", y, y_count, 0.0);
        expect("dx", dx, x_count, TOLERANCE);
        const float *want = input("index", y_count);
        for (size_t j = 0; j < y_count; j++) {
            assert_int_equal(index[j], (int32_t)want[j]);
        }
    }
}

static void test_average_pool(UNUSED void **state)
{
    static const char *const names[] = {"avgpool2", "avgpool3s2p1"};
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t x_count, y_count;
        nw_ref_pool v = begin_pool(names[i], &x_count, &y_count);
        float *y = fresh(y_count), *dx = fresh(x_count);
        nw_ref_avg_pool_forward_f(&v, input("x", x_count), y);
        nw_ref_avg_pool_backward_f(&v, input("dy", y_count), dx);
        expect("y", y, y_count, TOLERANCE);
        expect("dx", dx, x_count, TOLERANCE);
    }
    int s[4];
    begin("globalpool", s, COUNT(s));
    nw_ref_pool v = {.n = s[0], .c = s[1], .h = s[2], .w = s[3]};
    size_t x_count = (size_t)(v.n * v.c * v.h * v.w), y_count = (size_t)(v.n * v.c);
    float *y = fresh(y_count), *dx = fresh(x_count);
    nw_ref_global_pool_forward_f(&v, input("x", x_count), y);
    nw_ref_global_pool_backward_f(&v, input("dy", y_count), dx);
    expect("y", y, y_count, TOLERANCE);
    expect("dx", dx, x_count, TOLERANCE);
}

static void test_linear(UNUSED void **state)
{
    static const char *const names[] = {"linear", "linear_b33"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[4];
        begin(names[i], s, COUNT(s));
        nw_ref_linear v = {s[0], s[1], s[2]};
        size_t k = (size_t)v.k, x_count = (size_t)(v.n * v.c), w_count = (size_t)(v.k * v.c);
        size_t y_count = (size_t)(v.n * v.k);
        const float *x = input("x", x_count), *w = input("w", w_count);
        float *y = fresh(y_count), *dx = fresh(x_count), *dw = fresh(w_count), *dbias = fresh(k);
        nw_ref_linear_forward_f(&v, x, w, s[3] ? input("bias", k) : NULL, y);
        nw_ref_linear_backward_f(&v, x, w, input("dy", y_count), dx, dw, s[3] ? dbias : NULL);
        expect("y", y, y_count, TOLERANCE);
        expect("dx", dx, x_count, TOLERANCE);
        expect("dw", dw, w_count, TOLERANCE);
        if (s[3]) {
            expect("dbias", dbias, k, TOLERANCE);
        }
    }
}

static void test_loss(UNUSED void **state)
{
    static const char *const names[] = {"loss_mean", "loss_sum", "loss_smooth_mean", "loss_smooth_sum"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[4];
        begin(names[i], s, COUNT(s));
        nw_ref_loss v = {.n = s[0], .classes = s[1], .mean = s[2], .smoothing = s[3] / 1000.0};
        size_t n = (size_t)v.n, count = (size_t)(v.n * v.classes);
        const float *stored = input("labels", n);
        int32_t *labels = (int32_t *)fresh(n);
        for (size_t j = 0; j < n; j++) {
            labels[j] = (int32_t)stored[j];
        }
        float *dx = fresh(count);
        float loss = nw_ref_cross_entropy_f(&v, input("x", count), labels, dx);
        expect("y", &loss, 1, TOLERANCE);
        expect("dx", dx, count, TOLERANCE);
    }
}

static void test_sgd(UNUSED void **state)
{
    static const char *const names[] = {"sgd", "sgd_dampening", "sgd_nesterov"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int s[3];
        begin(names[i], s, COUNT(s));
        size_t count = (size_t)s[0], steps = (size_t)s[1];
        const float *o = input("options", 4), *grad = input("grad", steps * count);
        nw_ref_sgd v = {.lr = (double)o[0],
                        .momentum = (double)o[1],
                        .dampening = (double)o[2],
                        .weight_decay = (double)o[3],
                        .nesterov = s[2]};
        float *param = input_copy("param", count), *buffer = fresh(count);
        for (size_t step = 0; step < steps; step++) {
            nw_ref_sgd_step_f(&v, count, step == 0, param, grad + step * count, buffer);
        }
        expect("new_param", param, count, TOLERANCE);
        if (v.momentum != 0.0) {
            expect("buffer", buffer, count, TOLERANCE);
        }
    }
}

/* A case in the file that no test above compares would be a false comfort. Runs after them. */
static void test_every_case_was_compared(UNUSED void **state)
{
    size_t stored = 0;
    for (size_t i = 0; i < golden_count(layers); i++) {
        const char *slash = strrchr(golden_at(layers, i)->name, '/');
        stored += slash && strcmp(slash, "/shape") == 0;
    }
    assert_int_equal(cases_seen, stored);
}

/* ---- Generated numbers ------------------------------------------------------------------------------------------ */

static void check_hash(const golden_file *file)
{
    const golden_tensor *stream = golden_find(file, "hash/stream"), *index = golden_find(file, "hash/index");
    const golden_tensor *value = golden_find(file, "hash/value"), *label = golden_find(file, "hash/label");
    assert_true(stream && index && value && label && stream->count >= 8);
    for (size_t i = 0; i < stream->count; i++) {
        uint64_t from = (uint64_t)stream->data[i], at = (uint64_t)index->data[i];
        assert_true(golden_value(from, at) == value->data[i]);
        assert_int_equal(golden_label(from, at, 10), (int32_t)label->data[i]);
    }
}

/* The role of a parameter from its name and shape, as make_golden.py decides from the module it belongs to. */
static golden_role role_of(const golden_tensor *grad)
{
    bool bias = strstr(grad->name, ".bias") != NULL;
    bool linear = strstr(grad->name, "/fc.") || strstr(grad->name, "/linear.");
    return grad->ndim > 1 ? GOLDEN_WEIGHT : linear ? GOLDEN_BIAS : bias ? GOLDEN_BETA : GOLDEN_GAMMA;
}

/* The first and last element of each parameter, the first pixels and the labels, all generated, against the file. */
static void check_model(const char *path, size_t parameters)
{
    golden_file *file = golden_load(path);
    assert_non_null(file);
    check_hash(file);
    const golden_tensor *ends = golden_find(file, "check/params"), *images = golden_find(file, "check/images");
    const golden_tensor *labels = golden_find(file, "labels");
    assert_true(ends && images && labels);
    assert_int_equal(ends->count, 2 * parameters);
    size_t t = 0;
    for (size_t i = 0; i < golden_count(file); i++) {
        const golden_tensor *grad = golden_at(file, i);
        if (strncmp(grad->name, "grad/", 5) != 0) {
            continue;
        }
        float *generated = fresh(grad->count);
        golden_fill_parameter(generated, grad->count, t, role_of(grad), grad->count / grad->dims[0]);
        assert_true(generated[0] == ends->data[2 * t] && generated[grad->count - 1] == ends->data[2 * t + 1]);
        release_all(NULL);
        t++;
    }
    assert_int_equal(t, parameters);
    float pixels[4];
    golden_fill_images(pixels, COUNT(pixels), GOLDEN_STREAM_IMAGES);
    assert_int_equal(images->count, COUNT(pixels));
    assert_memory_equal(pixels, images->data, sizeof pixels);
    for (size_t i = 0; i < labels->count; i++) {
        assert_int_equal(golden_label(GOLDEN_STREAM_LABELS, i, 10), (int32_t)labels->data[i]);
    }
    golden_free(file);
}

static void test_generated_numbers(UNUSED void **state)
{
    check_hash(layers);
    check_model(GOLDEN_PATH("resnet9.nwg"), 25);
    check_model(GOLDEN_PATH("resnet18.nwg"), 62);
}

/* ---- The reader ------------------------------------------------------------------------------------------------- */

static void test_distance(UNUSED void **state)
{
    const float want[] = {3, 4}, near[] = {3, 4.5f}, wrong[] = {3, NAN}, zero[] = {0, 0};
    assert_true(golden_distance(want, want, 2) == 0.0);
    assert_true(golden_distance(near, want, 2) == 0.1);
    assert_true(isinf(golden_distance(wrong, want, 2)));
    assert_true(golden_distance(want, zero, 2) == 5.0);
}

static void test_damaged_files_are_refused(UNUSED void **state)
{
    /* "a" = [1, 2], "c" = the scalar 3. */
    static const unsigned char good[] = "NWG1\2\0\0\0"
                                        "\1\0a\1\2\0\0\0\0\0\x80\x3f\0\0\0\x40"
                                        "\1\0c\0\0\0\x40\x40";
    const size_t size = sizeof good - 1;
    golden_file *file = golden_parse(good, size, "good");
    assert_non_null(file);
    const golden_tensor *a = golden_find(file, "a"), *c = golden_find(file, "c");
    assert_true(a && a->ndim == 1 && a->dims[0] == 2 && a->count == 2 && a->data[0] == 1.0f && a->data[1] == 2.0f);
    assert_true(c && c->ndim == 0 && c->count == 1 && c->data[0] == 3.0f);
    assert_null(golden_find_optional(file, "b"));
    assert_null(golden_at(file, 2));
    golden_free(file);

    /* Cut anywhere. The copy ends where its allocation ends, so that a sanitizer sees a read past the end. */
    for (size_t cut = 0; cut < size; cut++) {
        unsigned char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy + 1, good, cut);
        file = golden_parse(copy + 1, cut, NULL);
        free(copy);
        assert_null(file);
    }

    /* Magic, count, name length, name (0 inside, twice the same), dimensions (too many, 0, too large), infinity. */
    static const struct {
        size_t at;
        unsigned char value;
    } damages[] = {{0, 'X'},  {3, '2'}, {4, 1},  {4, 3},  {7, 0x80},  {8, 0},  {9, 0xff}, {10, 0},
                   {26, 'a'}, {11, 9},  {12, 0}, {12, 3}, {15, 0xff}, {27, 1}, {19, 0x7f}};
    unsigned char bytes[sizeof good];
    for (size_t i = 0; i < COUNT(damages); i++) {
        memcpy(bytes, good, sizeof good);
        bytes[damages[i].at] = damages[i].value;
        assert_null(golden_parse(bytes, size, NULL));
    }
    assert_null(golden_parse(good, size + 1, NULL)); /* a byte too many */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, release_all)
    const struct CMUnitTest tests[] = {
        TEST(test_conv),
        TEST(test_norm_train),
        TEST(test_norm_eval),
        TEST(test_max_pool),
        TEST(test_average_pool),
        TEST(test_linear),
        TEST(test_loss),
        TEST(test_sgd),
        TEST(test_every_case_was_compared),
        TEST(test_generated_numbers),
        TEST(test_distance),
        TEST(test_damaged_files_are_refused),
    };
    return cmocka_run_group_tests_name("golden_reference", tests, load_layers, free_layers);
}
