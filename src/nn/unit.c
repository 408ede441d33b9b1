/*
 * unit.c - a convolution with its bias, batch norm and ReLU, and linear layers, which are convolutions whose filter
 * covers the whole image. Also the shared regions in which gradients live, and what all stages begin with.
 */
#include "nn/stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- regions ----------------------------------------------------------------------------------------------------- */

nw_tensor nw_region_take(nw_pass *pass, const nw_tensor *shape)
{
    nw_tensor t = *shape;
    for (int i = 0; i < NW_REGIONS; i++)
        if (pass->region[i] && !pass->busy[i]) {
            pass->busy[i] = true;
            t.data = pass->region[i];
            return t;
        }
    fprintf(stderr, "nowait: no free region for a gradient\n"); /* a bug in a stage, not an input error */
    abort();
}

void nw_region_give(nw_pass *pass, const nw_tensor *tensor)
{
    for (int i = 0; i < NW_REGIONS; i++)
        if (tensor->data == pass->region[i]) pass->busy[i] = false;
}

/* ---- what all stages have ---------------------------------------------------------------------------------------- */

nw_status nw_stage_begin(nw_stage **stage, size_t bytes, const nw_stage_ops *ops, const char *name, nw_builder *builder)
{
    *stage = calloc(1, bytes);
    NW_FAIL_IF(!*stage, NW_E_MEMORY, "no memory for stage '%s'", name);
    (*stage)->ops = ops;
    (*stage)->n = builder->n;
    (*stage)->block = builder->block;
    snprintf((*stage)->name, sizeof(*stage)->name, "%s", name);
    builder->making = *stage;
    return NW_OK;
}

void nw_stage_end(nw_stage *stage, const nw_builder *builder)
{
    stage->out_c = builder->c;
    stage->out_h = builder->h;
    stage->out_w = builder->w;
    stage->two_streams = builder->two_streams;
}

void nw_stage_tensor(nw_stage *stage, nw_tensor *tensor, nw_arena *arena, int c, int h, int w, nw_dtype dtype)
{
    *tensor = nw_tensor_alloc(arena, stage->n, c, h, w, stage->block, dtype);
    stage->tensors[stage->tensor_count++] = tensor;
}

static void bind_unit(nw_unit *u, nw_arena *arena, int images, int block)
{
    u->y = nw_tensor_alloc(arena, images, u->conv.k, u->conv.oh, u->conv.ow, block, u->dtype);
    if (!nw_unit_has_norm(u)) return;
    nw_norm *n = &u->norm;
    float **vectors[] = {&n->mean, &n->rstd, &n->scale, &n->shift, &n->c1, &n->c2, &n->c3};
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        *vectors[i] = nw_arena_alloc(arena, (size_t)u->y.pitch * sizeof(float));
    n->moments.partial = nw_arena_alloc(arena, nw_moments_floats(&u->y) * sizeof(float));
    n->sum_g = nw_arena_alloc(arena, nw_sums_floats(&u->y) * sizeof(float));
    n->sum_gy = nw_arena_alloc(arena, nw_sums_floats(&u->y) * sizeof(float));
}

void nw_stage_bind(nw_stage *stage, nw_arena *arena)
{
    size_t before = arena->used;
    stage->tensor_count = 0;
    for (int i = 0; i < stage->unit_count; i++) bind_unit(stage->units[i], arena, stage->n, stage->block);
    if (stage->ops->bind) stage->ops->bind(stage, arena);
    stage->kept_bytes = arena->used - before;
}

void nw_stage_set_batch(nw_stage *stage, int n)
{
    for (int i = 0; i < stage->unit_count; i++) stage->units[i]->y.n = n;
    for (int i = 0; i < stage->tensor_count; i++) stage->tensors[i]->n = n;
}

/* ---- the builder ------------------------------------------------------------------------------------------------- */

static void note_gradient(nw_builder *builder, int c, int h, int w, nw_dtype dtype, int regions)
{
    nw_tensor t = nw_tensor_shape(builder->n, c, h, w, builder->block, dtype);
    size_t bytes = nw_tensor_bytes(&t);
    if (bytes > builder->region_bytes) builder->region_bytes = bytes;
    builder->regions = nw_max(builder->regions, regions);
    builder->need = nw_need_max(builder->need, nw_pointwise_need(t.pitch, builder->block));
}

void nw_builder_gradient(nw_builder *builder, int c, int h, int w)
{
    note_gradient(builder, c, h, w, builder->kernels->dtype, 3);
}

void nw_builder_stream(nw_builder *builder, int c, int h, int w)
{
    note_gradient(builder, c, h, w, NW_F32, NW_REGIONS);
}

void nw_builder_advance(nw_builder *builder, const nw_conv *conv)
{
    builder->c = conv->k;
    builder->h = conv->oh;
    builder->w = conv->ow;
}

void nw_builder_return(nw_builder *builder, const nw_builder *earlier)
{
    builder->c = earlier->c;
    builder->h = earlier->h;
    builder->w = earlier->w;
}

nw_status nw_builder_meets(const nw_builder *builder, const nw_conv *last, const char *side)
{
    NW_FAIL_IF(builder->c != last->k || builder->h != last->oh || builder->w != last->ow, NW_E_SHAPE,
               "stage '%s': the branch gives %d x %d x %d but %s %d x %d x %d", builder->making->name, last->k,
               last->oh, last->ow, side, builder->c, builder->h, builder->w);
    return NW_OK;
}

nw_status nw_builder_max_pool(nw_builder *builder, nw_pool2d *pool, int size, int stride, int pad)
{
    NW_FAIL_IF(size > NW_MAX_POOL, NW_E_SHAPE, "stage '%s': a maximum over windows of %d is too large: at most %d",
               builder->making->name, size, NW_MAX_POOL);
    NW_TRY(nw_pool2d_make(pool, builder->c, builder->h, builder->w, size, stride ? stride : size, pad));
    builder->h = pool->oh;
    builder->w = pool->ow;
    return NW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static nw_status add_segment(nw_builder *b, nw_segments *list, const char *module, const char *what, nw_role role,
                             int fan_in, int dims, const int *shape, int *index)
{
    char name[NW_SEGMENT_NAME * 2];
    snprintf(name, sizeof name, "%s.%s", module, what);
    return nw_segments_add(list, name, role, b->stage, fan_in, dims, shape, index);
}

/* What the convolution needs; the builder goes to its output. */
static void note_needs(const nw_unit *u, nw_builder *b)
{
    const nw_kernels *k = b->kernels;
    for (nw_direction d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++)
        b->need = nw_need_max(b->need, k->conv_need(&u->conv, b->n, b->block, d, b->threads));
    nw_builder_gradient(b, u->conv.k, u->conv.oh, u->conv.ow);
    nw_builder_gradient(b, u->conv.c, u->conv.h, u->conv.w);
    nw_builder_advance(b, &u->conv);
}

static nw_status add_norm(nw_unit *u, nw_builder *b, const char *name, int channels, bool running, bool ends_residual)
{
    nw_segments *learned = &b->params->learned, *buffers = &b->params->running;
    NW_TRY(add_segment(b, learned, name, "weight", NW_ROLE_NORM_SCALE, 1, 1, &channels, &u->gamma));
    NW_TRY(add_segment(b, learned, name, "bias", NW_ROLE_NORM_SHIFT, 1, 1, &channels, &u->beta));
    learned->at[u->gamma].ends_residual = ends_residual;
    int pixels = u->conv.oh * u->conv.ow;
    if (b->norm_pixels == 0 || pixels < b->norm_pixels) {
        b->norm_pixels = pixels;
        b->norm = u->gamma;
    }
    if (!running) return NW_OK;
    NW_TRY(add_segment(b, buffers, name, "running_mean", NW_ROLE_RUNNING_MEAN, 1, 1, &channels, &u->running_mean));
    return add_segment(b, buffers, name, "running_var", NW_ROLE_RUNNING_VAR, 1, 1, &channels, &u->running_var);
}

/* A unit without anything, which becomes one of the stage's. */
static void begin(nw_unit *u, const nw_builder *b, bool relu)
{
    *u = (nw_unit){.weight = -1, .bias = -1, .gamma = -1, .beta = -1, .running_mean = -1, .running_var = -1};
    u->relu = relu;
    u->dtype = b->kernels->dtype;
    b->making->units[b->making->unit_count++] = u;
}

nw_status nw_unit_make(nw_unit *u, nw_builder *b, const nw_unit_options *o)
{
    begin(u, b, o->relu);
    NW_TRY(nw_conv_make(&u->conv, b->c, b->h, b->w, o->k, o->size, o->size, o->stride, o->pad));
    int shape[4] = {o->k, b->c, o->size, o->size}, fan_in = b->c * o->size * o->size;
    NW_TRY(add_segment(b, &b->params->learned, o->conv_name, "weight", NW_ROLE_CONV, fan_in, 4, shape, &u->weight));
    if (o->bias)
        NW_TRY(add_segment(b, &b->params->learned, o->conv_name, "bias", NW_ROLE_BIAS, fan_in, 1, shape, &u->bias));
    if (o->norm) NW_TRY(add_norm(u, b, o->norm_name, o->k, !o->no_running, o->ends_residual));
    b->making->macs += nw_conv_flops(&u->conv, 1) / 2;
    note_needs(u, b);
    return NW_OK;
}

nw_status nw_unit_make_norm(nw_unit *u, nw_builder *b, const char *name, bool relu)
{
    begin(u, b, relu);
    u->conv = (nw_conv){.c = b->c, .h = b->h, .w = b->w, .k = b->c, .oh = b->h, .ow = b->w};
    nw_builder_gradient(b, b->c, b->h, b->w);
    return add_norm(u, b, name, b->c, true, false);
}

nw_status nw_unit_make_streams(nw_unit u[2], nw_builder *b, const nw_unit_options *o, nw_dtype dtype)
{
    NW_FAIL_IF(o->k % 2, NW_E_SHAPE, "'%s' has %d outputs: two streams need an even number", o->conv_name, o->k);
    nw_builder whole = *b; /* makes the segments; its needs are those of a unit that never runs */
    NW_TRY(nw_unit_make(&u[0], &whole, o));
    NW_TRY(nw_conv_make(&u[0].conv, b->c, b->h, b->w, o->k / 2, o->size, o->size, o->stride, o->pad));
    u[0].dtype = dtype;
    begin(&u[1], b, o->relu);
    u[1] = u[0];
    u[1].first = o->k / 2;
    b->norm_pixels = whole.norm_pixels;
    b->norm = whole.norm;
    note_needs(&u[0], b);
    return NW_OK;
}

nw_status nw_unit_make_linear(nw_unit *u, nw_builder *b, const char *name, int k, bool bias)
{
    begin(u, b, false);
    u->linear = true;
    u->dtype = NW_F32;
    NW_TRY(nw_conv_make(&u->conv, b->c, b->h, b->w, k, b->h, b->w, 1, 0));
    int fan_in = b->c * b->h * b->w, shape[2] = {k, fan_in};
    NW_TRY(add_segment(b, &b->params->learned, name, "weight", NW_ROLE_LINEAR, fan_in, 2, shape, &u->weight));
    if (bias) NW_TRY(add_segment(b, &b->params->learned, name, "bias", NW_ROLE_BIAS, fan_in, 1, shape, &u->bias));
    b->making->macs += nw_conv_flops(&u->conv, 1) / 2;
    note_needs(u, b);
    return NW_OK;
}

/* ---- parameters: from the unit's first output channel on, the leading dimension of all its segments -------------- */

static size_t first_float(const nw_unit *u, const nw_segment *s)
{
    return u->first ? s->count / (size_t)s->shape[0] * (size_t)u->first : 0;
}
static const float *unit_value(const nw_unit *u, const nw_params *p, int index)
{
    return index < 0 ? NULL : nw_param_value(p, index) + first_float(u, &p->learned.at[index]);
}
static float *unit_gradient(const nw_unit *u, const nw_params *p, int index)
{
    return index < 0 ? NULL : nw_param_gradient(p, index) + first_float(u, &p->learned.at[index]);
}
static float *unit_buffer(const nw_unit *u, const nw_params *p, int index)
{
    return index < 0 ? NULL : nw_param_buffer(p, index) + first_float(u, &p->running.at[index]);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

const nw_moments *nw_unit_moments(const nw_unit *u, const nw_pass *pass)
{
    return nw_unit_has_norm(u) && (pass->training || u->running_mean < 0) ? &u->norm.moments : NULL;
}

void nw_unit_normalise(nw_unit *u, nw_pass *pass)
{
    if (!nw_unit_has_norm(u)) return;
    const nw_params *p = pass->params;
    const float *gamma = unit_value(u, p, u->gamma), *beta = unit_value(u, p, u->beta);
    float *mean = unit_buffer(u, p, u->running_mean), *var = unit_buffer(u, p, u->running_var);
    bool moves = !pass->freeze_running;
    if (nw_unit_moments(u, pass))
        nw_norm_forward(&pass->exec, &u->y, &u->norm, gamma, beta, moves ? mean : NULL, moves ? var : NULL);
    else
        nw_norm_eval(u->y.c, u->y.pitch, gamma, beta, mean, var, u->norm.scale, u->norm.shift);
}

void nw_unit_forward(nw_unit *u, nw_pass *pass, const nw_source *x)
{
    const nw_params *p = pass->params;
    pass->exec.kernels->conv_forward(&pass->exec, &u->conv, x, unit_value(u, p, u->weight), unit_value(u, p, u->bias),
                                     &u->y, nw_unit_moments(u, pass),
                                     u->linear ? NW_WORK_LINEAR : NW_WORK_CONV_FORWARD);
    nw_unit_normalise(u, pass);
}

nw_view nw_unit_view(const nw_unit *u)
{
    return (nw_view){.t = &u->y, .scale = u->norm.scale, .shift = u->norm.shift, .relu = u->relu};
}

nw_sink nw_unit_sink(const nw_unit *u, bool gated)
{
    nw_sink sink = {0};
    if (gated && u->relu) sink.gate = nw_unit_view(u);
    if (nw_unit_has_norm(u)) {
        sink.sum_g = u->norm.sum_g;
        sink.norm[0] = (nw_norm_sums){.y = &u->y, .mean = u->norm.mean, .sum_gy = u->norm.sum_gy};
    }
    return sink;
}

nw_source nw_unit_before_norm(nw_unit *u, nw_pass *pass, const nw_tensor *g)
{
    const nw_params *p = pass->params;
    if (!nw_unit_has_norm(u)) return nw_source_plain(g);
    const nw_norm *n = &u->norm;
    nw_norm_backward(&pass->exec, &u->y, n, unit_value(u, p, u->gamma), unit_gradient(u, p, u->gamma),
                     unit_gradient(u, p, u->beta), pass->accumulate);
    return (nw_source){.a = {.t = g, .scale = n->c1, .shift = n->c2}, .b = {.t = &u->y, .scale = n->c3}};
}

void nw_unit_backward(nw_unit *u, nw_pass *pass, const nw_source *x, const nw_tensor *g, nw_tensor *dx,
                      const nw_sink *sink)
{
    const nw_params *p = pass->params;
    const nw_kernels *k = pass->exec.kernels;
    nw_source dy = nw_unit_before_norm(u, pass, g);
    float *dbias = unit_gradient(u, p, u->bias);
    if (dbias && nw_unit_has_norm(u)) { /* the mean takes the bias away again: its gradient is 0, not rounding noise */
        if (!pass->accumulate) memset(dbias, 0, (size_t)u->conv.k * sizeof *dbias);
        dbias = NULL;
    }
    k->conv_backward_weights(&pass->exec, &u->conv, x, &dy, unit_gradient(u, p, u->weight), dbias, pass->accumulate,
                             u->linear ? NW_WORK_LINEAR : NW_WORK_CONV_WEIGHTS);
    if (dx)
        k->conv_backward_data(&pass->exec, &u->conv, &dy, unit_value(u, p, u->weight), dx, sink,
                              u->linear ? NW_WORK_LINEAR : NW_WORK_CONV_DATA);
}

void nw_units_forward(nw_unit *units, int count, nw_pass *pass, const nw_source *x)
{
    nw_source next = *x;
    for (int i = 0; i < count; i++) {
        nw_unit_forward(&units[i], pass, &next);
        next = nw_source_view(nw_unit_view(&units[i]));
    }
}

nw_tensor nw_units_backward(nw_unit *units, int count, nw_pass *pass, nw_tensor g, bool give, nw_tensor *inner)
{
    for (int i = count - 1; i > 0; i--) {
        nw_unit *below = &units[i - 1];
        nw_source x = nw_source_view(nw_unit_view(below));
        nw_sink sink = nw_unit_sink(below, true);
        bool joins = inner && i == 1;
        nw_tensor lower = joins ? *inner : nw_region_take(pass, &below->y);
        sink.add = joins ? inner : NULL;
        nw_unit_backward(&units[i], pass, &x, &g, &lower, &sink);
        if (give) nw_region_give(pass, &g);
        give = true;
        g = lower;
    }
    return g;
}
