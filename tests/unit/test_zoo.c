/*
 * test_zoo.c - all models that are not reversible: parameter and buffer counts of the published tables, names, options,
 * initial values; and that what only some of them have (dropout, pre-activation, three units, option A) keeps the
 * library's promises: same bits for any number of threads, accumulation, partial batches, no allocation.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "param/init.h"
#include "support/allocations.h"
#include "support/net_fixture.h"

#include <math.h>
#include <stdlib.h>

/* ---- counts and names -------------------------------------------------------------------------------------------- */

static nw_status make_model(nw_model *model, nw_model_options o)
{
    const nw_kernels *kernels;
    assert_int_equal(nw_isa_select(NW_PRECISION_F32, &kernels, NULL), NW_OK);
    return nw_model_make(model, &o, kernels, 4, 1);
}

static void check_count(const char *name, int side, int classes, size_t parameters, size_t buffers, int tensors)
{
    nw_model model;
    nw_model_options o = {.name = name, .channels = side ? 3 : 0, .height = side, .width = side, .classes = classes};
    if (make_model(&model, o) != NW_OK) fail_msg("%s", nw_error_message());
    if (model.params.learned.floats != parameters)
        fail_msg("%s, %d classes, side %d: %zu parameters, not %zu", name, classes, side, model.params.learned.floats,
                 parameters);
    if (buffers) assert_int_equal(model.params.running.floats, buffers);
    if (tensors) assert_int_equal(model.params.learned.count, tensors);
    for (int i = 0; i < model.count; i++) assert_true(model.stages[i]->macs >= 0 && model.stages[i]->name[0]);
    nw_model_free(&model);
}

static void test_parameter_counts(void **state)
{
    (void)state;
    check_count("resnet9", 32, 10, 6573120, 4480, 25);
    check_count("alexnet", 32, 10, 2255296, 0, 16);
    check_count("alexnet1", 32, 10, 23272266, 0, 16);
    check_count("vgg16", 32, 10, 134301514, 0, 32);
    check_count("vgg16", 224, 10, 134301514, 0, 32);
    check_count("vgg16_bn", 224, 1000, 138365992, 0, 58);
    check_count("resnet20", 32, 10, 269722, 0, 0);
    check_count("resnet32", 32, 10, 464154, 0, 0);
    check_count("resnet44", 32, 10, 658586, 0, 0);
    check_count("resnet56", 32, 10, 853018, 0, 0);
    check_count("resnet110", 32, 10, 1727962, 0, 0);
    check_count("resnet1202", 32, 10, 19421274, 0, 0);
    check_count("resnet18", 32, 10, 11173962, 9600, 62);
    check_count("resnet34", 32, 10, 21282122, 17024, 0);
    check_count("resnet50", 32, 10, 23520842, 53120, 0);
    check_count("resnet101", 32, 10, 42512970, 105344, 0);
    check_count("resnet152", 32, 10, 58156618, 0, 0);
    check_count("resnet18", 224, 1000, 11689512, 9600, 62);
    check_count("resnet50", 224, 1000, 25557032, 53120, 161);
    check_count("allcnn", 32, 10, 1681268, 0, 27);
    check_count("wideresnet28_5", 32, 1000, 9450424, 0, 0);
    check_count("wideresnet28_5", 32, 10, 9132634, 0, 0);
    check_count("wideresnet28_10", 32, 1000, 37113784, 0, 0);
    check_count("lenet5", 0, 10, 44426, 0, 10);
    check_count("mlp", 0, 10, 310060, 0, 4);
    check_count("logit", 0, 10, 7850, 0, 2);
    check_count("petra-vgg", 32, 10, 9231114, 0, 0);
}

static void test_petra_counts(void **state)
{
    static const struct {
        const char *name;
        size_t imagenet, imagenet32, cifar10, cifar100, buffers;
    } table[] = {
        {"petra-resnet18", 11694312, 11686632, 11178762, 11224932, 9600},
        {"petra-resnet34", 21806184, 21798504, 21290634, 21336804, 17024},
        {"petra-resnet50", 25583592, 25575912, 23547402, 23731812, 53120},
        {"petra-resnet101", 44601832, 44594152, 42565642, 42750052, 105344},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        check_count(table[i].name, 224, 1000, table[i].imagenet, table[i].buffers, 0);
        check_count(table[i].name, 32, 1000, table[i].imagenet32, table[i].buffers, 0);
        check_count(table[i].name, 32, 10, table[i].cifar10, table[i].buffers, 0);
        check_count(table[i].name, 32, 100, table[i].cifar100, table[i].buffers, 0);
    }
}

/* Forward multiply-adds of an image, in thousands of millions, as published. */
static void test_work(void **state)
{
    static const struct {
        const char *name;
        int side;
        bool compat;
        double gmac;
    } table[] = {{"petra-resnet18", 32, false, 0.555}, {"petra-resnet50", 224, true, 3.858}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        nw_model model;
        nw_model_options o = {.name = table[i].name,
                              .channels = 3,
                              .height = table[i].side,
                              .width = table[i].side,
                              .classes = table[i].side > 64 ? 1000 : 10,
                              .variant = {.compat_ref = table[i].compat}};
        assert_int_equal(make_model(&model, o), NW_OK);
        double macs = 0;
        for (int s = 0; s < model.count; s++) macs += model.stages[s]->macs;
        if (!(fabs(macs * 1e-9 - table[i].gmac) < 0.0006))
            fail_msg("%s: %.4f GMAC, not %.3f", table[i].name, macs * 1e-9, table[i].gmac);
        nw_model_free(&model);
    }
}

static void test_stage_counts(void **state)
{
    static const struct {
        const char *name;
        int stages;
    } table[] = {{"petra-resnet18", 10},
                 {"petra-resnet34", 18},
                 {"petra-resnet50", 18},
                 {"petra-resnet101", 35},
                 {"petra-vgg", 9}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        nw_model model;
        assert_int_equal(make_model(&model, (nw_model_options){.name = table[i].name, .classes = 10}), NW_OK);
        assert_int_equal(model.count, table[i].stages);
        nw_model_free(&model);
    }
}

static void test_names(void **state)
{
    static const char *const spellings[][2] = {
        {"AllCNN", "allcnn"},
        {"Resnet9", "resnet9"},
        {"Resent9", "resnet9"},
        {"Alexnet", "alexnet"},
        {"Alexnet1", "alexnet1"},
        {"ResNet18", "resnet18"},
        {"vgg", "petra-vgg"},
        {"VGG16_bn", "vgg16_bn"},
        {"WideResNet28-10", "wideresnet28_10"},
        {"PETRA_ResNet50", "petra-resnet50"},
    };
    const nw_model_family *family;
    (void)state;
    for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
        assert_int_equal(nw_model_find(spellings[i][0], &family), NW_OK);
        assert_string_equal(family->name, spellings[i][1]);
    }
    for (int i = 0; i < nw_model_families(); i++) {
        assert_int_equal(nw_model_find(nw_model_family_at(i)->name, &family), NW_OK);
        assert_ptr_equal(family, nw_model_family_at(i));
    }
    assert_int_equal(nw_model_find("resnet1", &family), NW_E_UNKNOWN);
    assert_int_equal(nw_model_find("", &family), NW_E_UNKNOWN);
    assert_int_equal(nw_model_find("wideresnet28_52", &family), NW_E_UNKNOWN);
    assert_non_null(strstr(nw_error_message(), "wideresnet28_5"));
}

/* ---- options ----------------------------------------------------------------------------------------------------- */

static void refuse(const char *model, int side, nw_model_variant variant, nw_status status, const char *part)
{
    nw_model m;
    nw_model_options o = {
        .name = model, .channels = 3, .height = side, .width = side, .classes = 10, .variant = variant};
    assert_int_equal(make_model(&m, o), status);
    if (!strstr(nw_error_message(), part)) fail_msg("'%s' does not say '%s'", nw_error_message(), part);
}

static void test_impossible_options_are_refused(void **state)
{
    (void)state;
    refuse("resnet18", 32, (nw_model_variant){.stem = "large"}, NW_E_ARGUMENT, "auto, small or imagenet");
    refuse("resnet18", 32, (nw_model_variant){.init_scheme = "he-uot"}, NW_E_UNKNOWN, "he-out");
    refuse("resnet9", 32, (nw_model_variant){.residuals = "layer1,layer4"}, NW_E_ARGUMENT, "'layer4'");
    refuse("resnet9", 32, (nw_model_variant){.extra_layers = ",layer1"}, NW_E_ARGUMENT, "''");
    refuse("resnet9", 32, (nw_model_variant){.widths = {8, -8, 8, 8}}, NW_E_ARGUMENT, "layer1");
    refuse("vgg16", 32, (nw_model_variant){.dropout = 1}, NW_E_ARGUMENT, "dropout");
    refuse("vgg16", 32, (nw_model_variant){.dropout = NAN}, NW_E_ARGUMENT, "dropout");
    refuse("vgg16", 96, (nw_model_variant){0}, NW_E_SHAPE, "3 x 3");
    refuse("resnet9", 32, (nw_model_variant){.zero_init_residual = true}, NW_E_ARGUMENT, "--last-bn-zero-init");
    refuse("wideresnet28_5", 32, (nw_model_variant){.zero_init_residual = true}, NW_E_ARGUMENT, "gamma");
    refuse("alexnet", 4, (nw_model_variant){0}, NW_E_SHAPE, "larger input");
    refuse("allcnn", 4, (nw_model_variant){0}, NW_E_SHAPE, "larger input");
    refuse("lenet5", 8, (nw_model_variant){0}, NW_E_SHAPE, "filter");
}

static void test_resnet9_options(void **state)
{
    nw_model m;
    nw_model_options o = {.name = "resnet9", .classes = 10};
    (void)state;
    o.variant = (nw_model_variant){.residuals = "none"};
    assert_int_equal(make_model(&m, o), NW_OK);
    assert_int_equal(m.count, 5);
    nw_model_free(&m);
    o.variant = (nw_model_variant){.widths = {16, 0, 24, 0}, .extra_layers = "prep,layer1"};
    assert_int_equal(make_model(&m, o), NW_OK);
    assert_string_equal(m.stages[1]->name, "prep.extra");
    assert_int_equal(m.stages[0]->out_c, 16);
    assert_int_equal(m.stages[2]->out_c, 128);
    assert_string_equal(m.stages[4]->name, "layer1.extra");
    assert_string_equal(m.params.learned.at[3].name, "prep.extra.conv.weight");
    nw_model_free(&m);
}

static void test_width_scales_all_channels(void **state)
{
    nw_model m;
    (void)state;
    for (int i = 0; i < nw_model_families(); i++) {
        const char *name = nw_model_family_at(i)->name;
        if (strstr(name, "rev")) continue;
        for (int width = 8; width <= 40; width += 8) {
            nw_model_options o = {.name = name, .classes = 10, .base_width = width};
            assert_int_equal(make_model(&m, o), NW_OK);
            if (strcmp(name, "logit")) assert_int_equal(m.stages[0]->out_c, width);
            for (int s = 0; s < m.count; s++) {
                int c = m.stages[s]->out_c;
                if (c % 8 && c != 10) fail_msg("%s, width %d: %s has %d channels", name, width, m.stages[s]->name, c);
            }
            nw_model_free(&m);
        }
    }
    /* In proportion, to the nearest multiple of 8: 6, 16, 120, 84 by 8/6. */
    static const int want[] = {8, 24, 160, 112, 10};
    assert_int_equal(make_model(&m, (nw_model_options){.name = "lenet5", .classes = 10, .base_width = 8}), NW_OK);
    for (int s = 0; s < 5; s++) assert_int_equal(m.stages[s]->out_c, want[s]);
    nw_model_free(&m);
}

static void test_the_stem_follows_the_images(void **state)
{
    static const struct {
        int side;
        const char *stem;
        int out;
    } table[] = {{32, NULL, 32},  {64, "auto", 64},     {65, "auto", 17},
                 {224, NULL, 56}, {64, "imagenet", 16}, {96, "small", 96}};
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        nw_model m;
        nw_model_options o = {.name = "resnet18",
                              .channels = 3,
                              .height = table[i].side,
                              .width = table[i].side,
                              .classes = 10,
                              .variant = {.stem = table[i].stem}};
        assert_int_equal(make_model(&m, o), NW_OK);
        assert_int_equal(m.stages[0]->out_h, table[i].out);
        nw_model_free(&m);
    }
}

/* ---- initial values ---------------------------------------------------------------------------------------------- */

static nw_net *make_net(const nw_kernels *k, const char *model, int n, int side, int threads, nw_model_variant variant)
{
    nw_net_options o = nw_net_options_default();
    o.model = model;
    o.batch_size = n;
    o.height = o.width = side;
    o.base_width = NARROW;
    o.threads = threads;
    o.variant = variant;
    o.learning_rate = 0.01f;
    nw_net *net;
    if (nw_net_create_with(&net, &o, k) != NW_OK) fail_msg("%s", nw_error_message());
    return net;
}

typedef struct spread {
    double deviation, largest;
} spread;

static spread spread_of(const nw_net *net, const char *name)
{
    const nw_params *p = &net->model.params;
    for (int i = 0; i < p->learned.count; i++) {
        const nw_segment *s = &p->learned.at[i];
        if (strcmp(s->name, name)) continue;
        double squares = 0, largest = 0;
        for (size_t j = 0; j < s->count; j++) {
            double x = (double)p->values[s->offset + j];
            squares += x * x;
            largest = fmax(largest, fabs(x));
        }
        return (spread){sqrt(squares / (double)s->count), largest};
    }
    fail_msg("there is no parameter '%s'", name);
    return (spread){0, 0};
}

static void check_uniform(const nw_net *net, const char *name, double fan_in)
{
    spread s = spread_of(net, name);
    double bound = 1 / sqrt(fan_in);
    if (!(s.largest <= bound && s.largest > 0.8 * bound && fabs(s.deviation / bound * sqrt(3) - 1) < 0.15))
        fail_msg("%s: deviation %g, largest %g: not uniform in %g", name, s.deviation, s.largest, bound);
}
static void check_normal(const nw_net *net, const char *name, double deviation)
{
    spread s = spread_of(net, name);
    if (!(fabs(s.deviation / deviation - 1) < 0.1 && s.largest > 2 * deviation))
        fail_msg("%s: deviation %g, largest %g: not normal with %g", name, s.deviation, s.largest, deviation);
}
static void check_zero(const nw_net *net, const char *name) { assert_true(spread_of(net, name).largest == 0); }
static void check_one(const nw_net *net, const char *name)
{
    spread s = spread_of(net, name);
    assert_true(s.largest == 1 && s.deviation == 1);
}

static void test_initial_values(void **state)
{
    nw_net *net;
    (void)state;
    net = make_net(NULL, "resnet18", 2, 32, 1, (nw_model_variant){0}); /* PyTorch's */
    check_uniform(net, "conv1.weight", 27);
    check_uniform(net, "layer2.0.conv2.weight", 16 * 9);
    check_uniform(net, "fc.weight", 64);
    check_one(net, "layer4.1.bn2.weight");
    check_zero(net, "layer4.1.bn2.bias");
    nw_net_free(net);
    net = make_net(NULL, "resnet18", 2, 32, 1, (nw_model_variant){.stem = "imagenet", .zero_init_residual = true});
    check_normal(net, "conv1.weight", sqrt(2.0 / (8 * 49)));
    check_normal(net, "layer2.0.conv1.weight", sqrt(2.0 / (16 * 9)));
    check_normal(net, "layer3.0.downsample.0.weight", sqrt(2.0 / 32));
    check_uniform(net, "fc.weight", 64);
    check_zero(net, "layer4.1.bn2.weight");
    check_zero(net, "layer1.0.bn2.weight");
    check_one(net, "layer2.0.downsample.1.weight");
    check_one(net, "layer4.1.bn1.weight");
    nw_net_free(net);
    net = make_net(NULL, "resnet18", 2, 32, 1, (nw_model_variant){.init_scheme = "acid"});
    check_uniform(net, "conv1.weight", 27);
    check_normal(net, "layer1.0.conv1.weight", sqrt(2.0 / (8 * 9)));
    check_one(net, "layer1.0.bn2.weight");
    nw_net_free(net);
    net = make_net(NULL, "resnet50", 2, 32, 1, (nw_model_variant){.init_scheme = "bn0"});
    check_normal(net, "fc.weight", 0.01);
    check_zero(net, "layer1.0.bn3.weight");
    check_one(net, "layer1.0.bn2.weight");
    nw_net_free(net);
    net = make_net(NULL, "resnet20", 2, 32, 1, (nw_model_variant){0});
    check_normal(net, "layer1.0.conv1.weight", sqrt(2.0 / (8 * 9)));
    check_uniform(net, "linear.weight", 32);
    nw_net_free(net);
    net = make_net(NULL, "vgg16", 2, 32, 1, (nw_model_variant){0});
    check_normal(net, "features.28.weight", sqrt(2.0 / (64 * 9)));
    check_zero(net, "features.28.bias");
    check_normal(net, "classifier.3.weight", 0.01);
    check_zero(net, "classifier.3.bias");
    nw_net_free(net);
    net = make_net(NULL, "wideresnet28_5", 2, 16, 1, (nw_model_variant){0});
    check_normal(net, "block3.layer.2.conv2.weight", sqrt(2.0 / (160 * 9)));
    check_uniform(net, "fc.weight", 160);
    check_zero(net, "fc.bias");
    nw_net_free(net);
    net = make_net(NULL, "petra-vgg", 2, 32, 1, (nw_model_variant){.init_scheme = "kaiming-fan-in"});
    check_normal(net, "layer8.conv.weight", sqrt(2.0 / (64 * 9)));
    check_zero(net, "layer8.conv.bias");
    check_normal(net, "fc.weight", sqrt(2.0 / 64));
    nw_net_free(net);
}

/* A network whose residual branches start at zero still learns: gamma itself has a gradient. */
static void test_zero_init_moves(void **state)
{
    enum { N = 4, SIDE = 16 };
    static float images[N * 3 * SIDE * SIDE];
    int32_t labels[N] = {1, 2, 3, 4};
    (void)state;
    golden_fill_images(images, sizeof images / sizeof images[0], 5);
    nw_net *net = make_net(NULL, "resnet20", N, SIDE, 1, (nw_model_variant){.zero_init_residual = true});
    check_zero(net, "layer2.1.bn2.weight");
    assert_int_equal(nw_net_train_step(net, images, labels, N, NULL), NW_OK);
    assert_true(spread_of(net, "layer2.1.bn2.weight").largest > 0);
    nw_net_free(net);
}

/* ---- promises ---------------------------------------------------------------------------------------------------- */

/* One model for each kind of stage that test_models.c does not have. */
static const struct kind_case {
    const char *model;
    int side;
    nw_model_variant variant;
} kinds[] = {
    {"resnet50", 8, {0}},                   /* three units */
    {"resnet20", 8, {0}},                   /* option A */
    {"wideresnet28_5", 4, {0}},             /* pre-activation */
    {"alexnet1", 16, {0}},                  /* dropout, linear */
    {"vgg16_bn", 32, {0}},                  /* adaptive pool, dropout */
    {"allcnn", 12, {0}},                    /* no running statistics, no linear layer */
    {"resnet18", 32, {.stem = "imagenet"}}, /* overlapping pool */
};
enum { KINDS = sizeof kinds / sizeof kinds[0], MOST_IMAGES = 37, MOST_SIDE = 32 };

static void fill(float *images, int32_t *labels, int n, int side, uint64_t stream)
{
    golden_fill_images(images, (size_t)n * 3 * (size_t)side * (size_t)side, stream);
    for (int i = 0; i < n; i++) labels[i] = golden_label(stream + 1000, (uint64_t)i, 10);
}

static void train(nw_net *net, int n, int steps, char hash[65])
{
    static float images[MOST_IMAGES * 3 * MOST_SIDE * MOST_SIDE];
    int32_t labels[MOST_IMAGES];
    for (int step = 0; step < steps; step++) {
        fill(images, labels, n, net->options.height, (uint64_t)(40 + step));
        assert_int_equal(nw_net_train_step(net, images, labels, n, NULL), NW_OK);
    }
    nw_net_weights_sha256(net, hash);
}

static void test_any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type)
            for (int i = 0; i < KINDS; i++) {
                char hash[2][65];
                int n = i % 2 ? 5 : 19, threads[2] = {1, other_threads()};
                for (int t = 0; t < 2; t++) {
                    nw_net *net = make_net(k, kinds[i].model, n, kinds[i].side, threads[t], kinds[i].variant);
                    train(net, n, 2, hash[t]);
                    nw_net_free(net);
                }
                if (strcmp(hash[0], hash[1]))
                    fail_msg("%s: %s: %d threads change the weights", k->isa, kinds[i].model, threads[1]);
            }
}

/* Accumulated gradients are the sum of two; a smaller batch leaves no trace of a larger one. */
static void test_accumulation_and_small_batches(void **state)
{
    enum { LARGE = 20, SMALL = 18 }; /* the same blocks of 16 */
    static float images[2][LARGE * 3 * MOST_SIDE * MOST_SIDE];
    int32_t labels[2][LARGE];
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        int side = kinds[i].side;
        nw_model_variant variant = kinds[i].variant;
        nw_net *net = make_net(NULL, kinds[i].model, LARGE, side, 0, variant);
        nw_net *fresh = make_net(NULL, kinds[i].model, SMALL, side, 0, variant);
        assert_int_equal(net->model.builder.block, fresh->model.builder.block);
        size_t count;
        float *g = nw_net_parameter_gradients(net, &count), *h = nw_net_parameter_gradients(fresh, NULL);
        float *sum = test_malloc(count * sizeof *sum);
        for (int b = 0; b < 2; b++) fill(images[b], labels[b], LARGE, side, (uint64_t)(60 + b));
        assert_int_equal(nw_net_gradients(net, images[0], labels[0], LARGE, false, NULL), NW_OK);
        memcpy(sum, g, count * sizeof *sum);
        assert_int_equal(nw_net_gradients(net, images[1], labels[1], SMALL, false, NULL), NW_OK);
        assert_int_equal(nw_net_gradients(fresh, images[1], labels[1], SMALL, false, NULL), NW_OK);
        if (memcmp(g, h, count * sizeof *g))
            fail_msg("%s: a small batch depends on the network's size", kinds[i].model);
        for (size_t j = 0; j < count; j++) sum[j] += g[j];
        assert_int_equal(nw_net_gradients(net, images[0], labels[0], LARGE, true, NULL), NW_OK);
        if (golden_distance(g, sum, count) > 1e-6) fail_msg("%s: accumulated gradients differ", kinds[i].model);
        test_free(sum);
        nw_net_free(net);
        nw_net_free(fresh);
    }
}

static void test_steps_do_not_allocate(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) skip();
    for (int i = 0; i < KINDS; i++) {
        static float images[4 * 3 * MOST_SIDE * MOST_SIDE];
        int32_t labels[4] = {0, 1, 2, 3};
        nw_net *net = make_net(NULL, kinds[i].model, 4, kinds[i].side, 0, kinds[i].variant);
        int before = atomic_load(&allocations);
        assert_int_equal(nw_net_train_step(net, images, labels, 4, NULL), NW_OK);
        assert_int_equal(nw_net_evaluate(net, images, labels, 3, NULL, NULL), NW_OK);
        assert_int_equal(atomic_load(&allocations), before);
        nw_net_free(net);
    }
}

/* ---- dropout ----------------------------------------------------------------------------------------------------- */

/* With the mask drawn, the loss is a function of the weights, and the gradient must be its slope along any direction.
 */
static void test_dropout_gradient_is_the_slope(void **state)
{
    enum { N = 8, SIDE = 16 };
    static float images[N * 3 * SIDE * SIDE];
    int32_t labels[N];
    (void)state;
    fill(images, labels, N, SIDE, 70);
    nw_net *net = make_net(NULL, "alexnet1", N, SIDE, 1, (nw_model_variant){.dropout = 0.3f});
    if (strcmp(nw_net_precision(net), "f32")) { /* differences of bf16 losses are noise */
        nw_net_free(net);
        const nw_kernels *k;
        assert_int_equal(nw_isa_select(NW_PRECISION_F32, &k, NULL), NW_OK);
        net = make_net(k, "alexnet1", N, SIDE, 1, (nw_model_variant){.dropout = 0.3f});
    }
    set_golden_parameters(net);
    size_t count;
    float *w = nw_net_parameters(net, &count), *g = nw_net_parameter_gradients(net, NULL);
    float *kept = test_malloc(count * sizeof *kept), *direction = test_malloc(count * sizeof *direction);
    nw_step_result here, ahead, behind, again;
    assert_int_equal(nw_net_gradients(net, images, labels, N, false, &here), NW_OK);
    memcpy(kept, w, count * sizeof *kept);
    double slope = 0, squares = 0, step = 1e-3;
    for (size_t i = 0; i < count; i++) squares += (double)g[i] * (double)g[i];
    for (size_t i = 0; i < count; i++) {
        direction[i] = g[i] / (float)sqrt(squares);
        slope += (double)direction[i] * (double)g[i];
    }
    for (size_t i = 0; i < count; i++) w[i] = kept[i] + (float)step * direction[i];
    assert_int_equal(nw_net_gradients(net, images, labels, N, false, &ahead), NW_OK);
    for (size_t i = 0; i < count; i++) w[i] = kept[i] - (float)step * direction[i];
    assert_int_equal(nw_net_gradients(net, images, labels, N, false, &behind), NW_OK);
    double measured = (ahead.loss - behind.loss) / (2 * step);
    if (!(fabs(measured / slope - 1) < 0.02)) fail_msg("the slope is %g, the gradient says %g", measured, slope);

    /* The same step draws the same mask; the next step another; evaluation none. */
    memcpy(w, kept, count * sizeof *kept);
    assert_int_equal(nw_net_gradients(net, images, labels, N, false, &again), NW_OK);
    assert_true(again.loss == here.loss);
    net->batches++;
    assert_int_equal(nw_net_gradients(net, images, labels, N, false, &again), NW_OK);
    assert_true(again.loss != here.loss);
    nw_net *plain = make_net(net->model.builder.kernels, "alexnet1", N, SIDE, 1, (nw_model_variant){.dropout = -1});
    set_golden_parameters(plain);
    assert_int_equal(nw_net_evaluate(net, images, labels, N, NULL, &here), NW_OK);
    assert_int_equal(nw_net_evaluate(plain, images, labels, N, NULL, &again), NW_OK);
    assert_true(here.loss == again.loss);
    test_free(kept);
    test_free(direction);
    nw_net_free(plain);
    nw_net_free(net);
}

/* ---- batch norm without running statistics
 * -----------------------------------------------------------------------------
 */

static void test_allcnn_evaluates_with_the_batch(void **state)
{
    enum { N = 6, SIDE = 12 };
    static float images[N * 3 * SIDE * SIDE];
    float all[N * 10], some[N * 10];
    int32_t labels[N];
    (void)state;
    fill(images, labels, N, SIDE, 80);
    nw_net *net = make_net(NULL, "allcnn", N, SIDE, 1, (nw_model_variant){0});
    assert_int_equal(nw_net_buffer_count(net), 0);
    assert_int_equal(nw_net_evaluate(net, images, labels, N, all, NULL), NW_OK);
    assert_int_equal(nw_net_evaluate(net, images, labels, 3, some, NULL), NW_OK);
    assert_true(golden_distance(some, all, 30) > 1e-3);
    nw_net_free(net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_petra_counts),
        cmocka_unit_test(test_work),
        cmocka_unit_test(test_stage_counts),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_impossible_options_are_refused),
        cmocka_unit_test(test_resnet9_options),
        cmocka_unit_test(test_width_scales_all_channels),
        cmocka_unit_test(test_the_stem_follows_the_images),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_zero_init_moves),
        cmocka_unit_test(test_any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(test_accumulation_and_small_batches),
        cmocka_unit_test(test_steps_do_not_allocate),
        cmocka_unit_test(test_dropout_gradient_is_the_slope),
        cmocka_unit_test(test_allcnn_evaluates_with_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
