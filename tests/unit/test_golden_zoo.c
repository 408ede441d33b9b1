/*
 * test_golden_zoo.c - one step of each family of models against PyTorch's: logits, loss, every gradient and running
 * statistic by its norm and two random projections (golden/make_golden_models.py), and logits in evaluation.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/net_fixture.h"

#include <math.h>
#include <stdio.h>

enum { MOST_IMAGES = 16, MOST_FLOATS = 8 * 3 * 64 * 64, DIRECTION = 5000 };

static const struct zoo_case {
    const char *name, *model;
    int n, channels, side, width;
    nw_model_variant variant;
} cases[] = {
    {"resnet9",
     "resnet9",
     8,
     3,
     16,
     0,
     {.widths = {8, 24, 16, 40}, .residuals = "layer2", .extra_layers = "prep,layer3", .output_weight = 0.25f}},
    {"resnet18-imagenet", "resnet18", 8, 3, 64, 8, {.stem = "imagenet"}},
    {"resnet50", "resnet50", 10, 3, 12, 8, {0}},
    {"resnet20", "resnet20", 8, 3, 16, 8, {0}},
    {"petra-resnet18", "petra-resnet18", 8, 3, 64, 8, {.stem = "imagenet"}},
    {"petra-resnet50", "petra-resnet50", 8, 3, 12, 8, {.compat_ref = true}},
    {"petra-vgg", "petra-vgg", 12, 3, 32, 8, {0}},
    {"vgg16", "vgg16", 5, 3, 32, 8, {.dropout = -1}},
    {"vgg16_bn", "vgg16_bn", 8, 3, 32, 8, {.dropout = -1}},
    {"alexnet", "alexnet", 8, 3, 32, 8, {0}},
    {"alexnet1", "alexnet1", 8, 3, 32, 8, {.dropout = -1}},
    {"allcnn", "allcnn", 8, 3, 16, 8, {0}},
    {"wideresnet28_5", "wideresnet28_5", 10, 3, 8, 8, {0}},
    {"lenet5", "lenet5", 8, 1, 28, 0, {0}},
    {"mlp", "mlp", 8, 1, 28, 0, {0}},
    {"logit", "logit", 8, 1, 28, 0, {0}},
};

static nw_net *make_case(const struct zoo_case *c, const nw_kernels *k)
{
    nw_net_options o = nw_net_options_default();
    o.model = c->model;
    o.batch_size = c->n;
    o.channels = c->channels;
    o.height = o.width = c->side;
    o.base_width = c->width;
    o.variant = c->variant;
    nw_net *net;
    if (nw_net_create_with(&net, &o, k) != NW_OK) fail_msg("%s: %s", c->name, nw_error_message());
    return net;
}

/* Norm and projections of the t-th tensor against the stored ones. `floor` is what counts as zero: shifts in front of a
 * batch norm have no gradient but rounding. */
static void check_digest(const struct zoo_case *c, const nw_kernels *k, const golden_file *file, const char *what,
                         nw_parameter_info p, int t, const float *got, double bound, double floor)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s/%s", c->name, what, p.name);
    const golden_tensor *want = golden_find(file, name);
    assert_non_null(want);
    assert_int_equal(want->count, 3);
    double sums[3] = {0};
    for (size_t i = 0; i < p.count; i++) {
        double x = (double)got[p.offset + i];
        sums[0] += x * x;
        for (int d = 0; d < 2; d++) sums[1 + d] += x * (double)golden_value((uint64_t)(DIRECTION + 2 * t + d), i);
    }
    sums[0] = sqrt(sums[0]);
    double scale = (double)want->data[0] > floor ? (double)want->data[0] : floor / bound;
    for (int i = 0; i < 3; i++)
        if (!(fabs(sums[i] - (double)want->data[i]) <= bound * scale))
            fail_msg("%s: %s: number %d is %g, PyTorch's %g (norm %g)", k->isa, name, i, sums[i], (double)want->data[i],
                     (double)want->data[0]);
}

static void check_tensor(const struct zoo_case *c, const nw_kernels *k, const golden_file *file, const char *what,
                         const float *got, double bound)
{
    char name[160];
    snprintf(name, sizeof name, "%s/%s", c->name, what);
    const golden_tensor *want = golden_find(file, name);
    assert_non_null(want);
    double d = golden_distance(got, want->data, want->count);
    if (!(d <= bound)) fail_msg("%s: %s differs from PyTorch's by %g, more than %g", k->isa, name, d, bound);
}

static void check_case(const struct zoo_case *c, const nw_kernels *k, const golden_file *file)
{
    static float images[MOST_FLOATS], logits[MOST_IMAGES * 10];
    int32_t labels[MOST_IMAGES];
    nw_net *net = make_case(c, k);
    bool exact = k->dtype == NW_F32;
    set_golden_parameters(net);
    golden_fill_images(images, (size_t)c->n * (size_t)c->channels * (size_t)c->side * (size_t)c->side,
                       GOLDEN_STREAM_IMAGES);
    for (int i = 0; i < c->n; i++) labels[i] = golden_label(GOLDEN_STREAM_LABELS, (uint64_t)i, 10);
    nw_step_result result;
    assert_int_equal(nw_net_gradients(net, images, labels, c->n, false, &result), NW_OK);
    float loss = (float)result.loss;
    check_tensor(c, k, file, "loss", &loss, exact ? 1e-5 : 4e-2);
    nw_tensor_export(nw_value_tensor(&net->model.values[net->model.count]), logits);
    check_tensor(c, k, file, "logits", logits, exact ? 5e-5 : 0.3);
    if (exact) {
        for (int i = 0; i < nw_net_parameter_count(net); i++)
            check_digest(c, k, file, "grad", nw_net_parameter(net, i), i, nw_net_parameter_gradients(net, NULL), 3e-4,
                         2e-5);
        for (int i = 0; i < nw_net_buffer_count(net); i++)
            check_digest(c, k, file, "buffer", nw_net_buffer(net, i), i, nw_net_buffers(net, NULL), 2e-5, 1e-9);
    }
    assert_int_equal(nw_net_evaluate(net, images, labels, c->n, logits, NULL), NW_OK);
    check_tensor(c, k, file, "eval", logits, exact ? 2e-5 : 0.1);
    nw_net_free(net);
}

static void test_every_family_is_pytorchs(void **state)
{
    golden_file *file = golden_load(GOLDEN_PATH("models.nwg"));
    (void)state;
    assert_non_null(file);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
            FOR_EACH_TABLE(k, type) check_case(&cases[i], k, file);
    golden_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_family_is_pytorchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
