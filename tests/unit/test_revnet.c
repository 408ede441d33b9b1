/*
 * test_revnet.c - reversible networks as wholes: their parameter tables, one step as PyTorch computes it, and against
 * themselves with other thread counts and batches.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"
#include "support/net_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void make_model(nw_model *model, const char *name, int side, int classes, nw_model_variant variant)
{
    const nw_kernels *kernels;
    nw_model_options o = {
        .name = name, .channels = 3, .height = side, .width = side, .classes = classes, .variant = variant};
    assert_int_equal(nw_isa_select(NW_PRECISION_AUTO, &kernels, NULL), NW_OK);
    if (nw_model_make(model, &o, kernels, 64, 1) != NW_OK) fail_msg("%s", nw_error_message());
}

static void test_parameter_counts(void **state)
{
    static const struct {
        const char *name;
        size_t parameters[4]; /* ImageNet, ImageNet32, CIFAR-10, CIFAR-100 */
        size_t buffers;
        int stages;
    } known[] = {
        {"revnet18", {12215912, 12200552, 11185802, 11278052}, 9728, 10},
        {"revnet34", {22327784, 22312424, 21297674, 21389924}, 17152, 18},
        {"revnet50", {30421608, 30406248, 26350218, 26718948}, 60928, 18},
        {"revnet101", {49439848, 49424488, 45368458, 45737188}, 113152, 35},
    };
    static const int side[4] = {224, 32, 32, 32}, classes[4] = {1000, 1000, 10, 100};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        for (int data = 0; data < 4; data++) {
            nw_model model;
            make_model(&model, known[i].name, side[data], classes[data], (nw_model_variant){0});
            assert_int_equal(model.params.learned.floats, known[i].parameters[data]);
            assert_int_equal(model.params.running.floats, known[i].buffers);
            assert_int_equal(model.count, known[i].stages);
            nw_model_free(&model);
        }
}

static void test_fixed_size_counts(void **state)
{
    static const struct {
        int hidden, layers;
        size_t parameters;
    } known[] = {{256, 20, 5923850}, {512, 5, 5926410}, {512, 10, 11832330}, {0, 0, 5923850}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nw_model model;
        make_model(&model, "revnet-fixed", 32, 10,
                   (nw_model_variant){.n_layers = known[i].layers, .hidden_size = known[i].hidden});
        assert_int_equal(model.params.learned.floats, known[i].parameters);
        for (int s = 0; s < model.count; s++)
            assert_int_equal(model.stages[s]->ops->inverse != NULL, s > 0 && s < model.count - 1);
        nw_model_free(&model);
    }
}

typedef struct stage_row {
    char kind; /* of its name: stem, reversible, transition, head */
    size_t parameters;
    int c, side; /* of the input, both streams together */
} stage_row;

static void check_stages(const char *name, int side, int classes, const stage_row *rows, int count)
{
    nw_model model;
    make_model(&model, name, side, classes, (nw_model_variant){0});
    assert_int_equal(model.count, count);
    int c = 3, h = side;
    for (int s = 0; s < count; s++) {
        const nw_stage *stage = model.stages[s];
        size_t parameters = 0;
        for (int i = 0; i < model.params.learned.count; i++)
            if (model.params.learned.at[i].stage == s) parameters += model.params.learned.at[i].count;
        if (parameters != rows[s].parameters || stage->ops->kind[0] != rows[s].kind || c != rows[s].c ||
            h != rows[s].side)
            fail_msg("%s: stage %d is '%s' with %zu parameters for %d x %d x %d", name, s + 1, stage->ops->kind,
                     parameters, c, h, h);
        assert_int_equal(stage->ops->inverse != NULL, rows[s].kind == 'r');
        c = stage->out_c * (stage->two_streams ? 2 : 1);
        h = stage->out_h;
        assert_int_equal(stage->out_w, h);
    }
    assert_int_equal(c, classes);
    nw_model_free(&model);
}

/* The tables of the specification, Appendix A. */
static void test_stage_tables(void **state)
{
    static const stage_row revnet18_cifar10[] = {
        {'s', 3840, 3, 32},      {'r', 74112, 128, 32},  {'r', 74112, 128, 32},  {'t', 230528, 128, 32},
        {'r', 295680, 256, 16},  {'t', 919808, 256, 16}, {'r', 1181184, 512, 8}, {'t', 3674624, 512, 8},
        {'r', 4721664, 1024, 4}, {'h', 10250, 1024, 4},
    };
    static const stage_row revnet34_imagenet32[] = {
        {'s', 3840, 3, 32},      {'r', 74112, 128, 32},   {'r', 74112, 128, 32},  {'r', 74112, 128, 32},
        {'t', 230528, 128, 32},  {'r', 295680, 256, 16},  {'r', 295680, 256, 16}, {'r', 295680, 256, 16},
        {'t', 919808, 256, 16},  {'r', 1181184, 512, 8},  {'r', 1181184, 512, 8}, {'r', 1181184, 512, 8},
        {'r', 1181184, 512, 8},  {'r', 1181184, 512, 8},  {'t', 3674624, 512, 8}, {'r', 4721664, 1024, 4},
        {'r', 4721664, 1024, 4}, {'h', 1025000, 1024, 4},
    };
    static const stage_row revnet18_imagenet[] = {
        {'s', 19200, 3, 224},    {'r', 74112, 128, 56},   {'r', 74112, 128, 56},   {'t', 230528, 128, 56},
        {'r', 295680, 256, 28},  {'t', 919808, 256, 28},  {'r', 1181184, 512, 14}, {'t', 3674624, 512, 14},
        {'r', 4721664, 1024, 7}, {'h', 1025000, 1024, 7},
    };
    static const stage_row revnet50_imagenet[] = {
        {'s', 19200, 3, 224},     {'t', 92800, 128, 56},    {'r', 70784, 512, 56},    {'r', 70784, 512, 56},
        {'t', 513280, 512, 56},   {'r', 280832, 1024, 28},  {'r', 280832, 1024, 28},  {'r', 280832, 1024, 28},
        {'t', 2042368, 1024, 28}, {'r', 1118720, 2048, 14}, {'r', 1118720, 2048, 14}, {'r', 1118720, 2048, 14},
        {'r', 1118720, 2048, 14}, {'r', 1118720, 2048, 14}, {'t', 8147968, 2048, 14}, {'r', 4465664, 4096, 7},
        {'r', 4465664, 4096, 7},  {'h', 4097000, 4096, 7},
    };
    (void)state;
    check_stages("revnet18", 32, 10, revnet18_cifar10, 10);
    check_stages("revnet34", 32, 1000, revnet34_imagenet32, 18);
    check_stages("revnet18", 224, 1000, revnet18_imagenet, 10);
    check_stages("revnet50", 224, 1000, revnet50_imagenet, 18);
}

/* Stages 32 x 32: 0.557 and 1.162 GMAC; 224 x 224: 1.933 and 4.569 (Appendix B). */
static void test_multiply_adds(void **state)
{
    static const struct {
        const char *name;
        int side;
        double gmac;
    } known[] = {{"revnet18", 32, 0.557}, {"revnet34", 32, 1.162}, {"revnet18", 224, 1.933}, {"revnet50", 224, 4.569}};
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nw_model model;
        make_model(&model, known[i].name, known[i].side, 1000, (nw_model_variant){0});
        double macs = 0;
        for (int s = 0; s < model.count; s++) macs += model.stages[s]->macs;
        if (fabs(macs / 1e9 - known[i].gmac) > 1.6e-3)
            fail_msg("%s at %d: %.4f GMAC, not %.3f", known[i].name, known[i].side, macs / 1e9, known[i].gmac);
        nw_model_free(&model);
    }
}

/* Gradients of f32 streams fit the regions in every set; networks without streams do not pay for a fourth one. */
static void test_regions_hold_streams(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            nw_model_options o = {.name = "revnet18", .channels = 3, .height = 32, .width = 32, .classes = 10};
            nw_model model;
            assert_int_equal(nw_model_make(&model, &o, k, 64, 1), NW_OK);
            nw_tensor stream = nw_tensor_shape(64, 64, 32, 32, model.builder.block, NW_F32);
            assert_int_equal(model.builder.region_bytes, nw_tensor_bytes(&stream));
            assert_int_equal(model.builder.regions, 4);
            nw_model_free(&model);
            o.name = "resnet18";
            assert_int_equal(nw_model_make(&model, &o, k, 64, 1), NW_OK);
            assert_int_equal(model.builder.regions, 3);
            nw_model_free(&model);
        }
}

/* ---- against PyTorch --------------------------------------------------------------------------------------------- */

enum { DIRECTION_STREAM = 5000, SAMPLES = 32 };

/* The digest of make_golden_rev.py: norm, inner product with a fixed direction, some elements. */
static size_t digest(const float *x, size_t count, float out[2 + SAMPLES])
{
    double square = 0, dot = 0;
    size_t samples = count < SAMPLES ? count : SAMPLES;
    for (size_t i = 0; i < count; i++) {
        square += (double)x[i] * (double)x[i];
        dot += (double)x[i] * (double)golden_value(DIRECTION_STREAM, i);
    }
    out[0] = (float)sqrt(square);
    out[1] = (float)dot;
    for (size_t i = 0; i < samples; i++) out[2 + i] = x[count > SAMPLES ? i * count / SAMPLES : i];
    return 2 + samples;
}

/* Each number of a digest may be off by a part of the tensor's norm. A tensor that should be zero may hold rounding. */
static void check_digest(const nw_kernels *k, const golden_file *file, const char *model, const char *kind,
                         nw_parameter_info p, const float *data, double bound)
{
    char name[160];
    float got[2 + SAMPLES];
    snprintf(name, sizeof name, "%s/%s/%s", model, kind, p.name);
    const golden_tensor *want = golden_find(file, name);
    assert_non_null(want);
    assert_int_equal(digest(data + p.offset, p.count, got), want->count);
    double norm = want->data[0] > 0 ? (double)want->data[0] : 1.0;
    for (size_t i = 0; i < want->count; i++)
        if (!(fabs((double)got[i] - (double)want->data[i]) <= bound * norm))
            fail_msg("%s: %s: number %zu of the digest is %g, PyTorch's %g", k->isa, name, i, (double)got[i],
                     (double)want->data[i]);
}

/* The cosine between two vectors. */
static double cosine(const float *x, const float *y, size_t count)
{
    double xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < count; i++) {
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
        xy += (double)x[i] * (double)y[i];
    }
    return xy / sqrt(xx * yy);
}

static void check_golden(const golden_file *file, const char *label, const char *model, nw_model_variant variant)
{
    enum { N = 8 };
    static float images[N * PIXELS];
    int32_t labels[N];
    float *exact = NULL; /* the first set's gradients, for the bf16 sets */
    fill_batch(images, labels, N, GOLDEN_STREAM_IMAGES, GOLDEN_STREAM_LABELS);
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            nw_net *net = make_variant(k, model, variant, N, 0);
            nw_step_result result;
            char name[64];
            set_golden_parameters(net);
            assert_int_equal(nw_net_gradients(net, images, labels, N, false, &result), NW_OK);
            float loss = (float)result.loss, logits[N * 10];
            snprintf(name, sizeof name, "%s/loss", label);
            double loss_error = golden_distance(&loss, golden_find(file, name)->data, 1);
            snprintf(name, sizeof name, "%s/logits", label);
            const nw_tensor *z = nw_value_tensor(&net->model.values[net->model.count]);
            nw_tensor_export(z, logits);
            double logits_error = golden_distance(logits, golden_find(file, name)->data, N * 10);
            if (!(loss_error <= (type == NW_F32 ? 1e-5 : 2e-2)) || !(logits_error <= (type == NW_F32 ? 2e-5 : 6e-2)))
                fail_msg("%s: %s: loss and logits differ from PyTorch's by %g and %g", k->isa, label, loss_error,
                         logits_error);
            size_t count;
            const float *gradients = nw_net_parameter_gradients(net, &count);
            for (int i = 0; type == NW_F32 && i < nw_net_parameter_count(net); i++)
                check_digest(k, file, label, "grad", nw_net_parameter(net, i), gradients, 1e-4);
            for (int i = 0; i < nw_net_buffer_count(net); i++)
                check_digest(k, file, label, "buffer", nw_net_buffer(net, i), nw_net_buffers(net, NULL),
                             type == NW_F32 ? 1e-5 : 2e-2);
            if (!exact) {
                exact = test_malloc(count * sizeof *exact);
                memcpy(exact, gradients, count * sizeof *exact);
            }
            /* Rounding what convolutions read and write to bf16 brings PyTorch's revnet50 to 0.88 of its own f64. */
            if (!(cosine(gradients, exact, count) > (type == NW_F32 ? 0.99999 : 0.8)))
                fail_msg("%s: %s: the gradients point elsewhere, cosine %g", k->isa, label,
                         cosine(gradients, exact, count));
            nw_net_free(net);
        }
    test_free(exact);
}

static void test_revnets_are_pytorchs(void **state)
{
    (void)state;
    golden_file *file = golden_load(GOLDEN_PATH("revnet.nwg"));
    assert_non_null(file);
    check_golden(file, "revnet18", "revnet18", (nw_model_variant){0});
    check_golden(file, "revnet18-imagenet", "revnet18", (nw_model_variant){.stem = "imagenet"});
    check_golden(file, "revnet50", "revnet50", (nw_model_variant){0});
    check_golden(file, "revnet-fixed", "revnet-fixed", (nw_model_variant){.n_layers = 5, .hidden_size = 16});
    golden_free(file);
}

/* ---- against themselves ------------------------------------------------------------------------------------------ */

static void check_threads(const nw_kernels *k, const char *model, nw_model_variant variant, int batch)
{
    static float images[40 * PIXELS];
    int32_t labels[40];
    char hash[2][65];
    int threads[2] = {1, other_threads()};
    for (int i = 0; i < 2; i++) {
        nw_net *net = make_variant(k, model, variant, batch, threads[i]);
        for (int step = 0; step < 2; step++) { /* the second one partial */
            fill_batch(images, labels, batch - step, 50 + (uint64_t)step, 60 + (uint64_t)step);
            assert_int_equal(nw_net_train_step(net, images, labels, batch - step, NULL), NW_OK);
        }
        nw_net_weights_sha256(net, hash[i]);
        nw_net_free(net);
    }
    if (strcmp(hash[0], hash[1]))
        fail_msg("%s: %s, batch %d: 1 and %d threads give different weights", k->isa, model, batch, threads[1]);
}
static void test_any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            check_threads(k, "revnet18", (nw_model_variant){.stem = "imagenet"}, 37);
            check_threads(k, "revnet-fixed", (nw_model_variant){.n_layers = 2, .hidden_size = 16}, 18);
            check_threads(k, "revnet50", (nw_model_variant){.stem = "imagenet"}, 16);
        }
}

/* A full batch first, whose traces must not show; 28 images lie in the same blocks in both networks. */
static void test_small_batch_in_a_large_network(void **state)
{
    enum { LARGE = 32, SMALL = 28 };
    static float images[SMALL * PIXELS], other[LARGE * PIXELS];
    int32_t labels[SMALL], other_labels[LARGE];
    (void)state;
    fill_batch(images, labels, SMALL, 7, 8);
    fill_batch(other, other_labels, LARGE, 9, 10);
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            nw_model_variant variant = {.stem = "imagenet"};
            nw_net *large = make_variant(k, "revnet18", variant, LARGE, 0);
            nw_net *small = make_variant(k, "revnet18", variant, SMALL, 0);
            assert_int_equal(large->model.builder.block, small->model.builder.block);
            assert_int_equal(nw_net_gradients(large, other, other_labels, LARGE, false, NULL), NW_OK);
            assert_int_equal(nw_net_gradients(large, images, labels, SMALL, false, NULL), NW_OK);
            assert_int_equal(nw_net_gradients(small, images, labels, SMALL, false, NULL), NW_OK);
            size_t count;
            const float *x = nw_net_parameter_gradients(large, &count), *y = nw_net_parameter_gradients(small, NULL);
            if (memcmp(x, y, count * sizeof *x))
                fail_msg("%s: %d images have other gradients in a network for %d", k->isa, SMALL, LARGE);
            nw_net_free(large);
            nw_net_free(small);
        }
}

static void test_gradients_accumulate(void **state)
{
    enum { N = 8 };
    float images[N * PIXELS];
    int32_t labels[N];
    (void)state;
    fill_batch(images, labels, N, 20, 30);
    FOR_EACH_TABLE(k, NW_F32) {
        nw_net *net = make_variant(k, "revnet50", (nw_model_variant){.stem = "imagenet"}, N, 0);
        size_t count;
        float *g = nw_net_parameter_gradients(net, &count), *once = test_malloc(count * sizeof *once);
        for (size_t i = 0; i < count; i++) g[i] = NAN; /* what is there must not matter */
        assert_int_equal(nw_net_gradients(net, images, labels, N, false, NULL), NW_OK);
        for (size_t i = 0; i < count; i++) once[i] = 2 * g[i];
        assert_int_equal(nw_net_gradients(net, images, labels, N, true, NULL), NW_OK);
        if (!(golden_distance(g, once, count) <= 1e-6)) fail_msg("%s: accumulated gradients differ", k->isa);
        test_free(once);
        nw_net_free(net);
    }
}

/* Forty steps on one batch: it is learnt, evaluation (running statistics) knows it, and an image alone gets the logits
 * that it gets among others. No step allocates. */
static void test_training_and_evaluation(void **state)
{
    enum { N = 8 };
    float images[N * PIXELS], logits[N * 10], alone[10];
    int32_t labels[N];
    nw_step_result result;
    (void)state;
    nw_net *net = make_variant(NULL, "revnet18", (nw_model_variant){.stem = "imagenet"}, N, 0);
    net->options.learning_rate = 0.02f;
    fill_batch(images, labels, N, 1, 2);
    int before = atomic_load(&allocations);
    for (int i = 0; i < 40; i++) assert_int_equal(nw_net_train_step(net, images, labels, N, &result), NW_OK);
    if (COUNTS_ALLOCATIONS) assert_int_equal(atomic_load(&allocations), before);
    assert_true(result.loss < 0.5);
    assert_int_equal(nw_net_evaluate(net, images, labels, N, logits, &result), NW_OK);
    assert_true(result.loss < 1.0 && result.top1 > N / 2);
    assert_int_equal(nw_net_evaluate(net, images + 3 * PIXELS, labels + 3, 1, alone, NULL), NW_OK);
    for (int i = 0; i < 10; i++) assert_true(fabsf(alone[i] - logits[3 * 10 + i]) <= 0.02f * (1 + fabsf(alone[i])));
    nw_net_free(net);
}

/* ---- bad input --------------------------------------------------------------------------------------------------- */

static void refuse(nw_net_options o, nw_status status, const char *part)
{
    nw_net *net = NULL;
    assert_int_equal(nw_net_create(&net, &o), status);
    assert_null(net);
    if (!strstr(nw_error_message(), part)) fail_msg("'%s' does not say '%s'", nw_error_message(), part);
}

static void test_bad_options_are_refused(void **state)
{
    nw_net_options good = nw_net_options_default(), o;
    (void)state;
    good.model = "revnet18";
    o = good, o.variant.zero_init_residual = true, refuse(o, NW_E_ARGUMENT, "ReLU");
    o = good, o.variant.stem = "large", refuse(o, NW_E_ARGUMENT, "imagenet");
    good.model = "revnet-fixed";
    o = good, o.variant.zero_init_residual = true, refuse(o, NW_E_ARGUMENT, "last-bn-zero-init");
    o = good, o.variant.hidden_size = 33, refuse(o, NW_E_ARGUMENT, "hidden size");
    o = good, o.variant.hidden_size = -2, refuse(o, NW_E_ARGUMENT, "hidden size");
    o = good, o.variant.n_layers = -1, refuse(o, NW_E_ARGUMENT, "n_layers");
    o = good, o.variant.n_layers = 100000, refuse(o, NW_E_ARGUMENT, "stages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_fixed_size_counts),
        cmocka_unit_test(test_stage_tables),
        cmocka_unit_test(test_multiply_adds),
        cmocka_unit_test(test_regions_hold_streams),
        cmocka_unit_test(test_revnets_are_pytorchs),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(test_small_batch_in_a_large_network),
        cmocka_unit_test(test_gradients_accumulate),
        cmocka_unit_test(test_training_and_evaluation),
        cmocka_unit_test(test_bad_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
