/*
 * net.c - nw_net: a model with its input, loss and optimizer in one arena; the public API of nowait.h.
 *
 * A step is: import the images, forward, loss, backward, update. After nw_net_create nothing allocates.
 */
#include "train/net.h"

#include "base/clock.h"
#include "base/machine.h"
#include "compute/isa.h"
#include "data/augment.h"

#include <stdlib.h>
#include <string.h>

nw_net_options nw_net_options_default(void)
{
    return (nw_net_options){.model = "resnet18",
                            .batch_size = 128,
                            .channels = 3,
                            .height = 32,
                            .width = 32,
                            .classes = 10,
                            .learning_rate = 0.1f,
                            .momentum = 0.9f,
                            .weight_decay = 5e-4f};
}

/* A batch of images, and one of logits. */
static size_t view_floats(const nw_net_options *o)
{
    size_t image = (size_t)o->channels * (size_t)o->height * (size_t)o->width;
    return (size_t)o->batch_size * (image + (size_t)o->classes);
}

/* What a replica has for itself ... */
static void bind_state(nw_net *net, nw_arena *arena)
{
    if (net->owner) nw_params_bind(&net->model.params, arena); /* the owner's are bound with its model */
    if (!net->gradients_only) nw_optimizer_bind(net->optimizer, arena);
    if (net->averaged) nw_ema_bind(&net->average, arena);
}

/* ... and what replicas can share. */
static void bind_work(nw_net *net, nw_arena *arena)
{
    const nw_net_options *o = &net->options;
    nw_model_bind(&net->model, arena);
    net->input = nw_tensor_alloc(arena, o->batch_size, o->channels, o->height, o->width, net->model.builder.block,
                                 net->model.builder.kernels->dtype);
    net->views = nw_arena_alloc(arena, view_floats(o) * sizeof(float));
    net->losses = nw_arena_alloc(arena, nw_loss_scratch_bytes(o->batch_size));
}

static nw_status check_options(const nw_net_options *o)
{
    NW_FAIL_IF(!o->model, NW_E_ARGUMENT, "no model is named; 'nowait info --models' lists them");
    NW_FAIL_IF(o->threads < 0, NW_E_ARGUMENT, "%d threads: give at least 1, or 0 for all CPUs", o->threads);
    NW_FAIL_IF(!(o->learning_rate >= 0), NW_E_ARGUMENT, "the learning rate is %g; it must not be negative",
               (double)o->learning_rate);
    NW_FAIL_IF(!(o->momentum >= 0 && o->momentum < 1), NW_E_ARGUMENT, "the momentum is %g; it must lie in [0, 1)",
               (double)o->momentum);
    NW_FAIL_IF(!(o->weight_decay >= 0), NW_E_ARGUMENT, "the weight decay is %g; it must not be negative",
               (double)o->weight_decay);
    NW_FAIL_IF(o->nesterov && (o->momentum == 0 || o->dampening != 0), NW_E_ARGUMENT,
               "Nesterov needs a momentum above 0 and no dampening");
    NW_FAIL_IF(!(o->label_smoothing >= 0 && o->label_smoothing < 1), NW_E_ARGUMENT,
               "the label smoothing is %g; it must lie in [0, 1)", (double)o->label_smoothing);
    return NW_OK;
}

static nw_status make_optimizer(nw_net *net, const nw_net_options *o, const nw_net_parts *parts)
{
    nw_optimizer_options sgd = nw_optimizer_options_default("sgd");
    sgd.momentum = (double)o->momentum;
    sgd.dampening = (double)o->dampening;
    sgd.weight_decay = (double)o->weight_decay;
    sgd.nesterov = o->nesterov;
    NW_TRY(nw_optimizer_make(&net->optimizer, parts->optimizer ? parts->optimizer : &sgd, &net->model.params));
    net->gradients_only = parts->gradients_only;
    if (parts->ema_decay <= 0 || parts->gradients_only) return NW_OK;
    net->averaged = true;
    return nw_ema_make(&net->average, parts->ema_decay, parts->ema_every, &net->model.params);
}

nw_status nw_net_create_from(nw_net **out, const nw_net_options *o, const nw_net_parts *parts)
{
    *out = NULL;
    NW_CLEANUP(nw_net_autofree) nw_net *net = calloc(1, sizeof *net);
    NW_FAIL_IF(!net, NW_E_MEMORY, "no memory for a network");
    const nw_kernels *kernels = parts->kernels;
    NW_TRY(check_options(o));
    if (!kernels) NW_TRY(nw_isa_select(o->precision, &kernels, &net->note));
    net->options = *o;
    net->options.threads = o->threads ? o->threads : nw_machine_allowed_cpus();
    NW_TRY(nw_pool_create(&net->pool, net->options.threads));
    nw_model_options model = {.name = o->model,
                              .channels = o->channels,
                              .height = o->height,
                              .width = o->width,
                              .classes = o->classes,
                              .base_width = o->base_width,
                              .variant = o->variant};
    NW_TRY(nw_model_make(&net->model, &model, kernels, o->batch_size, net->options.threads));
    NW_TRY(make_optimizer(net, o, parts));
    net->options.channels = net->model.options.channels; /* given, or the model's own */
    net->options.height = net->model.options.height;
    net->options.width = net->model.options.width;
    nw_arena measure = nw_arena_measure();
    bind_state(net, &measure);
    bind_work(net, &measure);
    NW_TRY(nw_arena_create(&net->arena, measure.used));
    bind_state(net, &net->arena);
    bind_work(net, &net->arena);
    net->model.pass.exec.pool = net->pool;
    net->model.pass.exec.direct = o->direct_convolution;
    net->model.pass.seed = o->seed;
    nw_params_init(&net->model.params, o->seed);
    *out = net;
    net = NULL;
    return NW_OK;
}

nw_status nw_net_create(nw_net **out, const nw_net_options *options) { return nw_net_create_with(out, options, NULL); }

nw_status nw_net_create_with(nw_net **out, const nw_net_options *options, const nw_kernels *kernels)
{
    nw_net_parts parts = {.kernels = kernels};
    return nw_net_create_from(out, options, &parts);
}

nw_status nw_net_create_sibling(nw_net **out, nw_net *owner, const nw_net_parts *parts)
{
    *out = NULL;
    NW_CLEANUP(nw_net_autofree) nw_net *net = calloc(1, sizeof *net);
    NW_FAIL_IF(!net, NW_E_MEMORY, "no memory for a network");
    *net = *owner;
    net->owner = owner;
    net->optimizer = NULL;
    net->averaged = false;
    net->arena = (nw_arena){0};
    NW_TRY(make_optimizer(net, &net->options, parts));
    nw_arena measure = nw_arena_measure();
    bind_state(net, &measure);
    NW_TRY(nw_arena_create(&net->arena, measure.used));
    bind_state(net, &net->arena);
    net->model.pass.params = &net->model.params;
    nw_params_init(&net->model.params, net->options.seed);
    *out = net;
    net = NULL;
    return NW_OK;
}

void nw_net_free(nw_net *net)
{
    if (!net) return;
    nw_optimizer_free(net->optimizer);
    if (!net->owner) nw_model_free(&net->model);
    if (!net->owner && net->pool) nw_pool_free(net->pool);
    if (net->arena.base) nw_arena_destroy(&net->arena);
    free(net);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* Checks and imports a batch. */
static nw_status load(nw_net *net, const float *images, const int32_t *labels, int n)
{
    NW_FAIL_IF(n < 1 || n > net->options.batch_size, NW_E_ARGUMENT, "a batch of %d images: this network takes 1 to %d",
               n, net->options.batch_size);
    for (int i = 0; i < n; i++)
        NW_FAIL_IF(labels[i] < 0 || labels[i] >= net->options.classes, NW_E_ARGUMENT,
                   "label %d of image %d is not in [0, %d)", labels[i], i, net->options.classes);
    nw_exec *exec = &net->model.pass.exec;
    int64_t start = exec->profile ? nw_now_ns() : 0;
    net->input.n = n;
    nw_model_set_batch(&net->model, n);
    nw_tensor_import(&net->input, images);
    if (exec->profile) exec->work_ns[NW_WORK_INPUT] += nw_now_ns() - start;
    return NW_OK;
}

/* A batch to train on. Of one value there is no variance: training would go on with zeros. */
static nw_status load_training(nw_net *net, const float *images, const int32_t *labels, int n)
{
    const nw_builder *b = &net->model.builder;
    if (n * b->norm_pixels == 1) {
        const char *scale = net->model.params.learned.at[b->norm].name; /* "layer4.0.bn1.weight" */
        return NW_FAIL(NW_E_SHAPE,
                       "a batch of one image gives the batch norm '%.*s' one value per channel (its map is 1 x 1), and "
                       "training needs more than one; use larger batches or images, or --drop-last where it is what is "
                       "left of an epoch",
                       (int)(strrchr(scale, '.') - scale), scale);
    }
    NW_TRY(load(net, images, labels, n));
    net->model.pass.training = true;
    return NW_OK;
}

static nw_step_result as_result(const nw_loss_result *loss, int n)
{
    return (nw_step_result){.loss = loss->loss, .images = n, .top1 = loss->top1, .top5 = loss->top5};
}

nw_status nw_net_gradients(nw_net *net, const float *images, const int32_t *labels, int n, bool accumulate,
                           nw_step_result *result)
{
    NW_TRY(load_training(net, images, labels, n));
    nw_pass *pass = &net->model.pass;
    pass->accumulate = accumulate;
    pass->step = net->batches;
    nw_loss_rule rule = {.smoothing = net->options.label_smoothing, .sum = net->options.loss_sum};
    nw_loss_result loss;
    const nw_tensor *logits = nw_model_forward(&net->model, &net->input);
    nw_tensor dlogits = nw_region_take(pass, logits);
    nw_cross_entropy(&pass->exec, logits, labels, &rule, &dlogits, net->losses, &loss);
    nw_model_backward(&net->model, dlogits);
    if (result) *result = as_result(&loss, n);
    return NW_OK;
}

static void call_between(void *announce) { ((nw_announce *)announce)->between(announce); }
void nw_net_announce(nw_net *net, nw_announce *announce)
{
    nw_exec *exec = &net->model.pass.exec;
    exec->between = announce ? call_between : NULL;
    exec->listener = announce;
}

nw_status nw_net_apply(nw_net *net, double learning_rate, double gradient_scale)
{
    net->batches++;
    return nw_optimizer_step(net->optimizer, &net->model.pass.exec, &net->model.params, learning_rate, gradient_scale);
}

nw_status nw_net_update(nw_net *net, float learning_rate) { return nw_net_apply(net, (double)learning_rate, 1.0); }

nw_status nw_net_train_step(nw_net *net, const float *images, const int32_t *labels, int n, nw_step_result *result)
{
    NW_TRY(nw_net_gradients(net, images, labels, n, false, result));
    return nw_net_update(net, net->options.learning_rate);
}

/* Logits of a batch in evaluation mode. */
static nw_status look(nw_net *net, const float *images, const int32_t *labels, int n, const nw_tensor **logits)
{
    NW_TRY(load(net, images, labels, n));
    net->model.pass.training = false;
    *logits = nw_model_forward(&net->model, &net->input);
    return NW_OK;
}

nw_status nw_net_observe(nw_net *net, const float *images, const int32_t *labels, int n)
{
    NW_TRY(load_training(net, images, labels, n));
    nw_model_forward(&net->model, &net->input);
    return NW_OK;
}

static void score(nw_net *net, const nw_tensor *logits, const int32_t *labels, int n, float *logits_out,
                  nw_step_result *result)
{
    nw_loss_rule rule = {.sum = net->options.loss_sum};
    nw_loss_result loss;
    nw_cross_entropy(&net->model.pass.exec, logits, labels, &rule, NULL, net->losses, &loss);
    if (logits_out) nw_tensor_export(logits, logits_out);
    if (result) *result = as_result(&loss, n);
}

nw_status nw_net_evaluate(nw_net *net, const float *images, const int32_t *labels, int n, float *logits_out,
                          nw_step_result *result)
{
    const nw_tensor *logits = NULL;
    NW_TRY(look(net, images, labels, n, &logits));
    score(net, logits, labels, n, logits_out, result);
    return NW_OK;
}

nw_status nw_net_evaluate_both_views(nw_net *net, const float *images, const int32_t *labels, int n, float *logits_out,
                                     nw_step_result *result)
{
    const nw_net_options *o = &net->options;
    size_t rows = (size_t)n * (size_t)o->channels * (size_t)o->height;
    size_t floats = rows * (size_t)o->width, answers = (size_t)n * (size_t)o->classes;
    float *mirrored = net->views, *first = mirrored + floats;
    const nw_tensor *logits = NULL;
    NW_TRY(look(net, images, labels, n, &logits));
    nw_tensor_export(logits, first);
    memcpy(mirrored, images, floats * sizeof *mirrored);
    nw_mirror_rows(mirrored, (int64_t)rows, o->width);
    NW_TRY(look(net, mirrored, labels, n, &logits));
    nw_tensor_export(logits, mirrored); /* its images have been read */
    for (size_t i = 0; i < answers; i++) first[i] = 0.5f * (first[i] + mirrored[i]);
    nw_tensor both = *logits;
    nw_tensor_import(&both, first);
    score(net, &both, labels, n, logits_out, result);
    return NW_OK;
}

/* ---- what is inside ---------------------------------------------------------------------------------------------- */

static float *vector(float *data, size_t floats, size_t *count)
{
    if (count) *count = floats;
    return data;
}
float *nw_net_parameters(nw_net *net, size_t *count)
{
    return vector(net->model.params.values, net->model.params.learned.floats, count);
}
float *nw_net_parameter_gradients(nw_net *net, size_t *count)
{
    return vector(net->model.params.gradients, net->model.params.learned.floats, count);
}
float *nw_net_buffers(nw_net *net, size_t *count)
{
    return vector(net->model.params.buffers, net->model.params.running.floats, count);
}

static nw_parameter_info info(const nw_segment *s)
{
    nw_parameter_info i = {.name = s->name, .offset = s->offset, .count = s->count, .dims = s->dims, .stage = s->stage};
    memcpy(i.shape, s->shape, sizeof i.shape);
    return i;
}
int nw_net_parameter_count(const nw_net *net) { return net->model.params.learned.count; }
nw_parameter_info nw_net_parameter(const nw_net *net, int index) { return info(&net->model.params.learned.at[index]); }
int nw_net_buffer_count(const nw_net *net) { return net->model.params.running.count; }
nw_parameter_info nw_net_buffer(const nw_net *net, int index) { return info(&net->model.params.running.at[index]); }

void nw_net_weights_sha256(const nw_net *net, char text[65]) { nw_params_sha256(&net->model.params, text); }

const char *nw_net_isa(const nw_net *net) { return net->model.builder.kernels->isa; }
const char *nw_net_precision(const nw_net *net)
{
    return net->model.builder.kernels->dtype == NW_BF16 ? "bf16" : "f32";
}
const char *nw_net_note(const nw_net *net) { return net->note; }
int nw_net_threads(const nw_net *net) { return net->options.threads; }
size_t nw_net_memory(const nw_net *net) { return net->arena.capacity; }
