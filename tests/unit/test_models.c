/*
 * test_models.c - whole networks against themselves, with other thread counts, batches and passes, and against bad
 * input.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"
#include "support/net_fixture.h"

#include <math.h>
#include <stdlib.h>

static void test_parameter_counts(void **state)
{
    static const struct {
        const char *name;
        int classes;
        size_t parameters;
        int tensors;
    } known[] = {{"resnet9", 10, 6573120, 25}, {"resnet18", 10, 11173962, 62}, {"resnet18", 100, 11220132, 62}};
    const nw_kernels *kernels;
    (void)state;
    assert_int_equal(nw_isa_select(NW_PRECISION_AUTO, &kernels, NULL), NW_OK);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        nw_model_options o = {
            .name = known[i].name, .channels = 3, .height = 32, .width = 32, .classes = known[i].classes};
        nw_model model;
        assert_int_equal(nw_model_make(&model, &o, kernels, 128, 1), NW_OK);
        assert_int_equal(model.params.learned.floats, known[i].parameters);
        assert_int_equal(model.params.learned.count, known[i].tensors);
        nw_model_free(&model);
    }
}

/* ---- against themselves ------------------------------------------------------------------------------------------ */

static void train(nw_net *net, int n, int steps, char hash[65])
{
    float *images = test_malloc((size_t)n * PIXELS * sizeof *images);
    int32_t *labels = test_malloc((size_t)n * sizeof *labels);
    for (int step = 0; step < steps; step++) {
        fill_batch(images, labels, n, GOLDEN_STREAM_STEP_IMAGES + (uint64_t)step,
                   GOLDEN_STREAM_STEP_LABELS + (uint64_t)step);
        assert_int_equal(nw_net_train_step(net, images, labels, n, NULL), NW_OK);
    }
    if (hash) nw_net_weights_sha256(net, hash);
    test_free(images);
    test_free(labels);
}

static void check_threads(const nw_kernels *k, const char *model, int batch)
{
    char hash[2][65];
    int threads[2] = {1, other_threads()};
    for (int i = 0; i < 2; i++) {
        nw_net *net = make(k, model, batch, threads[i]);
        train(net, batch, 3, hash[i]);
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
            check_threads(k, "resnet18", 37);
            check_threads(k, "resnet9", 16);
        }
}

/* The large network first sees a full batch, whose traces must not show. 60 images lie in the same blocks in both
 * networks: equal bits. 33 lie in blocks of 16 in the small one: equal up to rounding, unless rounding flips a ReLU,
 * which moves the gradient by a hundredth. So the best of a few batches counts: traces would show in all of them. */
static void check_small_batch(const nw_kernels *k, int n, bool same_blocks)
{
    enum { LARGE = 64, BATCHES = 4 };
    static float images[LARGE * PIXELS], other[LARGE * PIXELS];
    int32_t labels[LARGE], other_labels[LARGE];
    nw_step_result a, b;
    double best = INFINITY, bound = same_blocks ? 0 : k->dtype == NW_F32 ? 1e-4 : 0.3;
    fill_batch(other, other_labels, LARGE, 9, 10);
    nw_net *large = make(k, "resnet18", LARGE, 0), *small = make(k, "resnet18", n, 0);
    assert_int_equal(large->model.builder.block == small->model.builder.block, same_blocks);
    for (int batch = 0; batch < BATCHES && !(best <= bound); batch++) {
        fill_batch(images, labels, n, 11 + (uint64_t)batch, 8);
        assert_int_equal(nw_net_gradients(large, other, other_labels, LARGE, false, &a), NW_OK);
        assert_int_equal(nw_net_gradients(large, images, labels, n, false, &a), NW_OK);
        assert_int_equal(nw_net_gradients(small, images, labels, n, false, &b), NW_OK);
        size_t count;
        const float *x = nw_net_parameter_gradients(large, &count), *y = nw_net_parameter_gradients(small, NULL);
        best = fmin(best, golden_distance(x, y, count));
        if (!(fabs(a.loss - b.loss) <= (same_blocks ? 0 : 1e-2)))
            fail_msg("%s: losses %g and %g", k->isa, a.loss, b.loss);
        if (same_blocks) break;
    }
    if (!(best <= bound))
        fail_msg("%s: gradients of %d images in a network for %d differ by %g", k->isa, n, LARGE, best);
    nw_net_free(large);
    nw_net_free(small);
}
static void test_small_batch_in_a_large_network(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            check_small_batch(k, 60, true);
            check_small_batch(k, 33, false);
        }
}

static void test_gradients_accumulate(void **state)
{
    enum { N = 8 };
    float images[2][N * PIXELS];
    int32_t labels[2][N];
    (void)state;
    FOR_EACH_TABLE(k, NW_F32) {
        nw_net *net = make(k, "resnet9", N, 0);
        size_t count;
        float *g = nw_net_parameter_gradients(net, &count);
        float *sum = test_malloc(count * sizeof *sum);
        memset(sum, 0, count * sizeof *sum);
        for (int b = 0; b < 2; b++) {
            fill_batch(images[b], labels[b], N, 20 + (uint64_t)b, 30 + (uint64_t)b);
            assert_int_equal(nw_net_gradients(net, images[b], labels[b], N, false, NULL), NW_OK);
            for (size_t i = 0; i < count; i++) sum[i] += g[i];
        }
        assert_int_equal(nw_net_gradients(net, images[0], labels[0], N, false, NULL), NW_OK);
        assert_int_equal(nw_net_gradients(net, images[1], labels[1], N, true, NULL), NW_OK);
        if (golden_distance(g, sum, count) > 1e-6) fail_msg("%s: accumulated gradients differ", k->isa);
        test_free(sum);
        nw_net_free(net);
    }
}

/* Evaluation uses running statistics and leaves no trace; after forty steps on one batch it knows the answers. */
static void test_evaluation(void **state)
{
    enum { N = 8 };
    float images[N * PIXELS], logits[N * 10];
    int32_t labels[N];
    (void)state;
    nw_net *net = make(NULL, "resnet18", N, 0);
    net->options.learning_rate = 0.02f;
    fill_batch(images, labels, N, 1, 2);
    for (int i = 0; i < 40; i++) assert_int_equal(nw_net_train_step(net, images, labels, N, NULL), NW_OK);
    char before[65], after[65];
    size_t count;
    const float *buffers = nw_net_buffers(net, &count);
    float *kept = test_malloc(count * sizeof *kept);
    memcpy(kept, buffers, count * sizeof *kept);
    nw_net_weights_sha256(net, before);
    nw_step_result all, one;
    assert_int_equal(nw_net_evaluate(net, images, labels, N, logits, &all), NW_OK);
    nw_net_weights_sha256(net, after);
    assert_string_equal(before, after);
    assert_memory_equal(kept, buffers, count * sizeof *kept);
    assert_true(all.loss < 1.0 && all.top1 > N / 2 && all.top5 >= all.top1);
    /* Running statistics, not the batch's: an image alone gets the same logits. */
    float alone[10];
    assert_int_equal(nw_net_evaluate(net, images + 3 * PIXELS, labels + 3, 1, alone, &one), NW_OK);
    for (int i = 0; i < 10; i++) assert_true(fabsf(alone[i] - logits[3 * 10 + i]) <= 0.02f * (1 + fabsf(alone[i])));
    test_free(kept);
    nw_net_free(net);
}

static void test_steps_do_not_allocate(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) skip();
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            enum { N = 20 };
            static float images[N * PIXELS];
            int32_t labels[N];
            nw_net *net = make(k, "resnet18", N, 0);
            fill_batch(images, labels, N, 1, 2);
            int before = atomic_load(&allocations);
            void *volatile proof = malloc(1); /* that the counter counts */
            free(proof);
            assert_int_equal(atomic_load(&allocations), before + 1);
            for (int i = 0; i < 3; i++) assert_int_equal(nw_net_train_step(net, images, labels, N - i, NULL), NW_OK);
            if (atomic_load(&allocations) != before + 1)
                fail_msg("%s: three steps called malloc %d times", k->isa, atomic_load(&allocations) - before - 1);
            nw_net_free(net);
        }
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
    o = good, o.model = "resnet81", refuse(o, NW_E_UNKNOWN, "resnet18");
    o = good, o.model = NULL, refuse(o, NW_E_ARGUMENT, "model");
    o = good, o.batch_size = 0, refuse(o, NW_E_ARGUMENT, "batch size");
    o = good, o.batch_size = -3, refuse(o, NW_E_ARGUMENT, "batch size");
    o = good, o.batch_size = 1 << 20, refuse(o, NW_E_MEMORY, "batch size");
    o = good, o.threads = 4000, refuse(o, NW_E_ARGUMENT, "thread");
    o = good, o.threads = -1, refuse(o, NW_E_ARGUMENT, "thread");
    o = good, o.classes = 1, refuse(o, NW_E_ARGUMENT, "classes");
    o = good, o.height = 0, refuse(o, NW_E_SHAPE, "images");
    o = good, o.model = "resnet9", o.height = o.width = 4, refuse(o, NW_E_SHAPE, "larger input");
    o = good, o.momentum = 1.5f, refuse(o, NW_E_ARGUMENT, "momentum");
    o = good, o.learning_rate = NAN, refuse(o, NW_E_ARGUMENT, "learning rate");
    o = good, o.nesterov = true, o.momentum = 0, refuse(o, NW_E_ARGUMENT, "Nesterov");
    o = good, o.label_smoothing = 1, refuse(o, NW_E_ARGUMENT, "smoothing");
}

/* ---- maps that are not square ------------------------------------------------------------------------------------ */

static void transpose(const float *from, float *to, size_t planes, int h, int w)
{
    for (size_t p = 0; p < planes; p++)
        for (int y = 0; y < h; y++)
            for (int x = 0; x < w; x++)
                to[(p * (size_t)w + (size_t)x) * (size_t)h + (size_t)y] =
                    from[(p * (size_t)h + (size_t)y) * (size_t)w + (size_t)x];
}

/* The network of the transposed filters sees in transposed images what the network sees: average and maximum over
 * maps of 2 x 3 are those over 3 x 2. */
static void check_transposed(const char *model)
{
    enum { N = 2, H = 32, W = 48 };
    static float images[N * 3 * H * W], turned[N * 3 * H * W];
    float logits[2][N * 10];
    int32_t labels[N] = {3, 7};
    nw_step_result results[2];
    nw_net_options o = narrow(model, N, 1);
    o.precision = NW_PRECISION_F32;
    o.height = H, o.width = W;
    nw_net *net = make_as(NULL, o);
    o.height = W, o.width = H;
    nw_net *other = make_as(NULL, o);
    for (size_t i = 0; i < N * 3 * H * W; i++) images[i] = (float)((i * 2654435761u >> 7) % 1000) / 500.0f - 1.0f;
    transpose(images, turned, N * 3, H, W);
    const nw_segments *segments = &net->model.params.learned;
    for (int i = 0; i < segments->count; i++) {
        const nw_segment *s = &segments->at[i];
        const float *from = nw_param_value(&net->model.params, i);
        float *to = other->model.params.values + s->offset;
        if (s->dims == 4)
            transpose(from, to, (size_t)s->shape[0] * (size_t)s->shape[1], s->shape[2], s->shape[3]);
        else
            memcpy(to, from, s->count * sizeof *to);
    }
    assert_int_equal(nw_net_train_step(net, images, labels, N, &results[0]), NW_OK);
    assert_int_equal(nw_net_train_step(other, turned, labels, N, &results[1]), NW_OK);
    assert_true(fabs(results[0].loss - results[1].loss) < 1e-4);
    assert_int_equal(nw_net_evaluate(net, images, labels, N, logits[0], NULL), NW_OK); /* after an update of both */
    assert_int_equal(nw_net_evaluate(other, turned, labels, N, logits[1], NULL), NW_OK);
    for (int i = 0; i < N * 10; i++)
        if (fabsf(logits[0][i] - logits[1][i]) > 1e-3f * (1 + fabsf(logits[0][i])))
            fail_msg("%s: logit %d is %g, transposed %g", model, i, (double)logits[0][i], (double)logits[1][i]);
    nw_net_free(net);
    nw_net_free(other);
}

static void test_maps_need_not_be_square(void **state)
{
    (void)state;
    check_transposed("resnet9"); /* maximum */
    check_transposed("resnet18");
    check_transposed("revnet18");
}

/* Of one value there is no variance; PyTorch refuses it, too. Evaluation uses running statistics. */
static void test_one_value_per_channel_is_refused(void **state)
{
    static float images[2 * 3 * 16 * 16];
    int32_t labels[2] = {1, 2};
    (void)state;
    nw_net_options o = narrow("resnet18", 2, 1);
    o.height = o.width = 8; /* 1 x 1 in the last stage */
    nw_net *net = make_as(NULL, o);
    assert_int_equal(nw_net_train_step(net, images, labels, 2, NULL), NW_OK);
    assert_int_equal(nw_net_train_step(net, images, labels, 1, NULL), NW_E_SHAPE);
    assert_non_null(strstr(nw_error_message(), "layer4.0.bn1"));
    assert_non_null(strstr(nw_error_message(), "one value per channel"));
    assert_int_equal(nw_net_observe(net, images, labels, 1), NW_E_SHAPE);
    assert_int_equal(nw_net_evaluate(net, images, labels, 1, NULL, NULL), NW_OK);
    assert_int_equal(nw_net_train_step(net, images, labels, 2, NULL), NW_OK);
    nw_net_free(net);
    o.height = o.width = 16;
    net = make_as(NULL, o);
    assert_int_equal(nw_net_train_step(net, images, labels, 1, NULL), NW_OK); /* four values */
    nw_net_free(net);
}

static void test_bad_batches_are_refused(void **state)
{
    float images[4 * PIXELS] = {0};
    int32_t labels[4] = {0, 9, 10, -1};
    (void)state;
    nw_net *net = make(NULL, "resnet9", 4, 1);
    assert_int_equal(nw_net_train_step(net, images, labels, 2, NULL), NW_OK);
    assert_int_equal(nw_net_train_step(net, images, labels, 3, NULL), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "label 10 of image 2"));
    assert_int_equal(nw_net_train_step(net, images, labels + 3, 1, NULL), NW_E_ARGUMENT);
    assert_int_equal(nw_net_train_step(net, images, labels, 0, NULL), NW_E_ARGUMENT);
    assert_int_equal(nw_net_train_step(net, images, labels, 5, NULL), NW_E_ARGUMENT);
    nw_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(test_small_batch_in_a_large_network),
        cmocka_unit_test(test_gradients_accumulate),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_steps_do_not_allocate),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_bad_batches_are_refused),
        cmocka_unit_test(test_maps_need_not_be_square),
        cmocka_unit_test(test_one_value_per_channel_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
