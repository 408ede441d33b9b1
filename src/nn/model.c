/* model.c - making, binding and running the stages of a model; the registry of models. */
#include "nn/model.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

static const nw_model_family families[] = {
    {"resnet9", "cifar10-fast's ResNet9: 8 convolutions, max pooling, logits times 0.125", nw_add_resnet9},
    {"resnet18", "ResNet18 for small images: 3 x 3 stem, no convolution biases", nw_add_resnet18},
    {"revnet18", "reversible ResNet18: two streams, convolution biases", nw_add_revnet18},
    {"revnet34", "reversible ResNet34", nw_add_revnet34},
    {"revnet50", "reversible ResNet50: bottleneck blocks", nw_add_revnet50},
    {"revnet101", "reversible ResNet101: bottleneck blocks", nw_add_revnet101},
    {"revnet-fixed", "n_layers reversible blocks of one width, hidden_size channels in both streams",
     nw_add_revnet_fixed},
};

int nw_model_families(void) { return (int)(sizeof families / sizeof families[0]); }
const nw_model_family *nw_model_family_at(int index) { return &families[index]; }

static nw_status find_family(const char *name, const nw_model_family **family)
{
    const char *names[sizeof families / sizeof families[0]];
    for (int i = 0; i < nw_model_families(); i++) {
        names[i] = families[i].name;
        if (strcmp(name, families[i].name) == 0) {
            *family = &families[i];
            return NW_OK;
        }
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no model '%s'; the nearest is '%s', and 'nowait info --models' lists all",
                   name, nw_suggest(name, names, nw_model_families()));
}

nw_status nw_model_add(nw_model *model, nw_stage *stage, nw_status status)
{
    if (status == NW_OK && model->count == NW_MAX_STAGES)
        status = NW_FAIL(NW_E_ARGUMENT, "a model may have at most %d stages", NW_MAX_STAGES);
    if (status != NW_OK) {
        free(stage);
        return status;
    }
    model->stages[model->count++] = stage;
    model->builder.stage = model->count;
    return NW_OK;
}

int nw_model_width(const nw_model *m, int own, int first)
{
    if (m->options.base_width == 0) return own;
    int64_t scaled = ((int64_t)own * m->options.base_width / first + 4) / 8 * 8;
    return scaled < 8 ? 8 : (int)scaled;
}

nw_status nw_model_wants_imagenet_stem(const nw_model *m, bool *large)
{
    const char *stem = m->options.variant.stem;
    bool is_auto = !stem || strcmp(stem, "auto") == 0, is_large = stem && strcmp(stem, "imagenet") == 0;
    NW_FAIL_IF(!is_auto && !is_large && strcmp(stem, "small") != 0, NW_E_ARGUMENT,
               "there is no stem '%s'; the stems are 'auto', 'small' and 'imagenet'", stem);
    *large = is_auto ? nw_max(m->options.height, m->options.width) > 64 : is_large;
    return NW_OK;
}

static nw_status make_checked(nw_model *m, const nw_model_options *o, const nw_kernels *kernels, int batch_size,
                              int threads)
{
    const nw_model_family *family = NULL;
    NW_TRY(find_family(o->name, &family));
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
    m->options = *o;
    m->builder = (nw_builder){.params = &m->params,
                              .kernels = kernels,
                              .threads = threads,
                              .n = batch_size,
                              .block = nw_block_for_batch(batch_size),
                              .c = o->channels,
                              .h = o->height,
                              .w = o->width};
    NW_TRY(family->add_stages(m));
    nw_tensor logits = nw_tensor_shape(batch_size, o->classes, 1, 1, m->builder.block, NW_F32);
    if (nw_tensor_bytes(&logits) > m->builder.region_bytes) m->builder.region_bytes = nw_tensor_bytes(&logits);
    return NW_OK;
}

nw_status nw_model_make(nw_model *m, const nw_model_options *o, const nw_kernels *kernels, int batch_size, int threads)
{
    memset(m, 0, sizeof *m);
    nw_status status = make_checked(m, o, kernels, batch_size, threads);
    if (status != NW_OK) nw_model_free(m);
    return status;
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
    for (int i = 0; i < m->count; i++) {
        size_t before = arena->used;
        m->stages[i]->ops->bind(m->stages[i], arena);
        m->stages[i]->kept_bytes = arena->used - before;
    }
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
    for (int i = 0; i < m->count; i++) m->stages[i]->ops->set_batch(m->stages[i], n);
}

const nw_tensor *nw_model_forward(nw_model *m, const nw_tensor *input)
{
    m->values[0] = (nw_value){.source = nw_source_plain(input)};
    for (int i = 0; i < m->count; i++)
        m->stages[i]->ops->forward(m->stages[i], &m->pass, &m->values[i], &m->values[i + 1]);
    return nw_value_tensor(&m->values[m->count]);
}

void nw_model_backward(nw_model *m, nw_tensor dlogits)
{
    nw_gradient gradient = {.main = dlogits};
    for (int i = m->count - 1; i >= 0; i--)
        gradient = m->stages[i]->ops->backward(m->stages[i], &m->pass, &m->values[i], gradient, i > 0);
}
