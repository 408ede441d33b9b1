/*
 * model.c - the registry of models, and making, binding and running their stages.
 *
 * Names are compared without regard to case, and '_' is '-', so that the spellings of the published codes are found;
 * what remains different is in the table of aliases.
 */
#include "nn/model.h"

#include "base/suggest.h"
#include "param/init.h"

#include <stdlib.h>
#include <string.h>

static const int mnist[3] = {1, 28, 28};

static const nw_model_family families[] = {
    {"resnet9", "cifar10-fast's ResNet9: 8 convolutions, max pooling, logits times 0.125", nw_add_resnet9, 9, NULL},
    {"resnet18", "ResNet18, no convolution biases; the stem follows the image size", nw_add_resnet, 18, NULL},
    {"resnet34", "ResNet34", nw_add_resnet, 34, NULL},
    {"resnet50", "ResNet50: bottlenecks with the stride on the 3 x 3 convolution", nw_add_resnet, 50, NULL},
    {"resnet101", "ResNet101", nw_add_resnet, 101, NULL},
    {"resnet152", "ResNet152", nw_add_resnet, 152, NULL},
    {"resnet20", "CIFAR ResNet20: 16, 32, 64 channels, shortcuts without parameters", nw_add_cifar_resnet, 20, NULL},
    {"resnet32", "CIFAR ResNet32", nw_add_cifar_resnet, 32, NULL},
    {"resnet44", "CIFAR ResNet44", nw_add_cifar_resnet, 44, NULL},
    {"resnet56", "CIFAR ResNet56", nw_add_cifar_resnet, 56, NULL},
    {"resnet110", "CIFAR ResNet110", nw_add_cifar_resnet, 110, NULL},
    {"resnet1202", "CIFAR ResNet1202", nw_add_cifar_resnet, 1202, NULL},
    {"petra-resnet18", "PETRA's ResNet18: convolutions have biases", nw_add_petra_resnet, 18, NULL},
    {"petra-resnet34", "PETRA's ResNet34", nw_add_petra_resnet, 34, NULL},
    {"petra-resnet50", "PETRA's ResNet50", nw_add_petra_resnet, 50, NULL},
    {"petra-resnet101", "PETRA's ResNet101", nw_add_petra_resnet, 101, NULL},
    {"petra-vgg", "PETRA's VGG: eight convolutions with strides and one linear layer", nw_add_petra_vgg, 0, NULL},
    {"revnet18", "reversible ResNet18: two streams, convolution biases", nw_add_revnet, 18, NULL},
    {"revnet34", "reversible ResNet34", nw_add_revnet, 34, NULL},
    {"revnet50", "reversible ResNet50: bottleneck blocks", nw_add_revnet, 50, NULL},
    {"revnet101", "reversible ResNet101: bottleneck blocks", nw_add_revnet, 101, NULL},
    {"revnet-fixed", "n_layers reversible blocks of one width, hidden_size channels in both streams",
     nw_add_revnet_fixed, 0, NULL},
    {"vgg16", "VGG16 (configuration D) without batch norm", nw_add_vgg16, 0, NULL},
    {"vgg16_bn", "VGG16 with batch norm", nw_add_vgg16_bn, 0, NULL},
    {"alexnet", "AlexNet for small images, with batch norm, logits times 0.125", nw_add_alexnet, 0, NULL},
    {"alexnet1", "AlexNet for small images, with dropout and three linear layers", nw_add_alexnet1, 0, NULL},
    {"allcnn", "nine convolutions; batch norm without running statistics; no linear layer", nw_add_allcnn, 0, NULL},
    {"wideresnet28_5", "wide pre-activation ResNet, depth 28, five times as wide", nw_add_wideresnet, 5, NULL},
    {"wideresnet28_10", "the same, ten times as wide", nw_add_wideresnet, 10, NULL},
    {"lenet5", "LeNet5 with ReLU and max pooling, for 1 x 28 x 28", nw_add_lenet5, 0, mnist},
    {"mlp", "one hidden layer of 390, for 1 x 28 x 28", nw_add_mlp, 0, mnist},
    {"logit", "logistic regression, for 1 x 28 x 28", nw_add_logit, 0, mnist},
};
enum { FAMILIES = sizeof families / sizeof families[0] };

static const struct {
    const char *alias, *name;
} aliases[] = {
    {"Resent9", "resnet9"}, /* as a published command spells it */
    {"vgg", "petra-vgg"},
};

int nw_model_families(void) { return FAMILIES; }
const nw_model_family *nw_model_family_at(int index) { return &families[index]; }

nw_status nw_model_find(const char *name, const nw_model_family **family)
{
    int index;
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++)
        if (nw_name_same(name, aliases[i].alias)) name = aliases[i].name;
    NW_TRY(nw_name_find("model", name, families, sizeof families[0], FAMILIES, "'nowait info --models' lists all",
                        &index));
    *family = &families[index];
    return NW_OK;
}

int nw_model_width(const nw_model *m, int own, int first)
{
    if (!m->options.base_width) return own;
    double eighths = (double)own * m->options.base_width / first / 8.0;
    return 8 * nw_max(1, (int)(eighths + 0.5));
}

nw_unit_options nw_model_conv(int k, int size, int stride, const char *conv_name, const char *norm_name)
{
    return (nw_unit_options){.k = k,
                             .size = size,
                             .stride = stride,
                             .pad = size / 2,
                             .norm = norm_name != NULL,
                             .relu = true,
                             .conv_name = conv_name,
                             .norm_name = norm_name};
}

float nw_model_dropout(const nw_model *m, float own)
{
    float asked = m->options.variant.dropout;
    return asked > 0 ? asked : asked < 0 ? 0.0f : own;
}

nw_status nw_model_wants_imagenet_stem(const nw_model *m, bool *large)
{
    const char *stem = m->options.variant.stem;
    *large = stem && strcmp(stem, "imagenet") == 0;
    if (!stem || strcmp(stem, "auto") == 0)
        *large = nw_max(m->options.height, m->options.width) > 64;
    else
        NW_FAIL_IF(!*large && strcmp(stem, "small"), NW_E_ARGUMENT, "the stem is '%s'; it is auto, small or imagenet",
                   stem);
    return NW_OK;
}

nw_status nw_model_add(nw_model *model, nw_stage *stage, nw_status status)
{
    if (status == NW_OK && model->count == NW_MAX_STAGES)
        status = NW_FAIL(NW_E_ARGUMENT, "a model may have at most %d stages", NW_MAX_STAGES);
    NW_TRY_OR(status, free(stage));
    model->stages[model->count++] = stage;
    model->builder.stage = model->count;
    return NW_OK;
}

static nw_status check_options(const nw_model_options *o, int batch_size)
{
    NW_FAIL_IF(batch_size < 1, NW_E_ARGUMENT, "the batch size is %d; it must be at least 1", batch_size);
    NW_FAIL_IF(batch_size > 1 << 20, NW_E_ARGUMENT, "the batch size is %d; at most 1048576 is supported", batch_size);
    NW_FAIL_IF(o->channels < 1 || o->height < 1 || o->width < 1 || o->channels > 65536 || o->height > 65536 ||
                   o->width > 65536,
               NW_E_SHAPE, "images of %d x %d x %d are impossible: channels, height and width must be 1 to 65536",
               o->channels, o->height, o->width);
    NW_FAIL_IF(o->classes < 2 || o->classes > 1 << 20, NW_E_ARGUMENT, "%d classes: there must be 2 to 1048576",
               o->classes);
    NW_FAIL_IF(o->base_width < 0 || o->base_width > 8192, NW_E_ARGUMENT,
               "a base width of %d channels is out of range: 1 to 8192, or 0 for the model's own", o->base_width);
    NW_FAIL_IF(!(o->variant.dropout < 1), NW_E_ARGUMENT,
               "the dropout is %g; it must be below 1, 0 for the model's own, or negative for none",
               (double)o->variant.dropout);
    return NW_OK;
}

/* What initial values the model has; after its stages are made, because a family sets its own scheme. */
static nw_status choose_init(nw_model *m)
{
    const nw_model_variant *v = &m->options.variant;
    const char *name = v->init_scheme;
    if (!name || strcmp(name, "default") == 0) name = m->default_init ? m->default_init : "pytorch";
    NW_TRY(nw_init_find(name, &m->params.init));
    m->params.zero_init_residual = v->zero_init_residual;
    bool any = false;
    for (int i = 0; i < m->params.learned.count; i++) any |= m->params.learned.at[i].ends_residual;
    NW_FAIL_IF(v->zero_init_residual && !any, NW_E_ARGUMENT,
               "%s has no residual branch that ends in a batch norm without a ReLU behind it, so no gamma can start at "
               "0; leave out --last-bn-zero-init",
               m->family->name);
    return NW_OK;
}

static nw_status make_checked(nw_model *m, const nw_model_options *options, const nw_kernels *kernels, int batch_size,
                              int threads)
{
    static const int usual[3] = {3, 32, 32};
    nw_model_options *o = &m->options;
    *o = *options;
    NW_TRY(nw_model_find(o->name, &m->family));
    o->name = m->family->name;
    const int *input = m->family->input ? m->family->input : usual;
    if (!o->channels) o->channels = input[0];
    if (!o->height && !o->width) {
        o->height = input[1];
        o->width = input[2];
    }
    NW_TRY(check_options(o, batch_size));
    m->builder = (nw_builder){.params = &m->params,
                              .kernels = kernels,
                              .threads = threads,
                              .n = batch_size,
                              .block = nw_block_for_batch(batch_size),
                              .c = o->channels,
                              .h = o->height,
                              .w = o->width};
    NW_TRY(m->family->add_stages(m));
    NW_TRY(choose_init(m));
    nw_tensor logits = nw_tensor_shape(batch_size, o->classes, 1, 1, m->builder.block, NW_F32);
    if (nw_tensor_bytes(&logits) > m->builder.region_bytes) m->builder.region_bytes = nw_tensor_bytes(&logits);
    return NW_OK;
}

nw_status nw_model_make(nw_model *m, const nw_model_options *o, const nw_kernels *kernels, int batch_size, int threads)
{
    memset(m, 0, sizeof *m);
    NW_TRY_OR(make_checked(m, o, kernels, batch_size, threads), nw_model_free(m));
    return NW_OK;
}

void nw_model_free(nw_model *m)
{
    for (int i = 0; i < m->count; i++) free(m->stages[i]);
    nw_params_free(&m->params);
    memset(m, 0, sizeof *m);
}

void nw_model_bind(nw_model *m, nw_arena *arena)
{
    nw_builder *b = &m->builder;
    nw_pass *pass = &m->pass;
    nw_params_bind(&m->params, arena);
    for (int i = 0; i < m->count; i++) nw_stage_bind(m->stages[i], arena);
    pass->params = &m->params;
    for (int i = 0; i < b->regions; i++) pass->region[i] = nw_arena_alloc(arena, b->region_bytes);
    pass->exec.kernels = b->kernels;
    pass->exec.worker_bytes = nw_align_up(b->need.worker);
    pass->exec.worker_scratch = nw_arena_alloc(arena, (size_t)b->threads * pass->exec.worker_bytes);
    pass->exec.shared_scratch = nw_arena_alloc(arena, b->need.shared);
    pass->exec.fused_ns = nw_arena_alloc(arena, (size_t)b->threads * 8 * sizeof(int64_t));
}

void nw_model_set_batch(nw_model *m, int n)
{
    for (int i = 0; i < m->count; i++) nw_stage_set_batch(m->stages[i], n);
}

static void after_stage(const nw_pass *pass, int stage, bool backward)
{
    if (pass->hook.call) pass->hook.call(pass->hook.context, stage, backward);
}

const nw_tensor *nw_model_forward(nw_model *m, const nw_tensor *input)
{
    m->values[0] = (nw_value){.source = nw_source_plain(input)};
    for (int i = 0; i < m->count; i++) {
        m->stages[i]->ops->forward(m->stages[i], &m->pass, &m->values[i], &m->values[i + 1]);
        after_stage(&m->pass, i, false);
    }
    return nw_value_tensor(&m->values[m->count]);
}

void nw_model_backward(nw_model *m, nw_tensor dlogits)
{
    nw_gradient gradient = {.main = dlogits};
    for (int i = m->count - 1; i >= 0; i--) {
        gradient = m->stages[i]->ops->backward(m->stages[i], &m->pass, &m->values[i], gradient, i > 0);
        after_stage(&m->pass, i, true);
    }
}

void nw_model_final_from(const nw_model *m, size_t *first)
{
    const nw_segments *s = &m->params.learned;
    memset(first, 0, (size_t)m->count * sizeof *first);
    for (int i = 0; i < s->count; i++) {
        size_t end = s->at[i].offset + s->at[i].count;
        for (int stage = s->at[i].stage + 1; stage < m->count; stage++)
            if (end > first[stage]) first[stage] = end;
    }
}
