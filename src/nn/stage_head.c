/*
 * stage_head.c - pool the map to one pixel (average or maximum), linear layer, optional factor: f32 logits.
 *
 * The factor a in z = a W p is applied where operands are read: to p for the weights' gradient and the forward pass, to
 * dz on the way to dp.
 */
#include "nn/stage.h"

typedef struct head_stage {
    nw_stage base;
    nw_pool2d pool;
    nw_unit linear;
    bool max_pool;
    float output_scale;
    nw_tensor p, dp;
    uint8_t *index;
    float *factor, *zero; /* the factor and 0 for each channel of p or of z */
    nw_dtype dtype;
} head_stage;

static void head_bind(nw_stage *base, nw_arena *arena)
{
    head_stage *s = (head_stage *)base;
    s->p = nw_tensor_alloc(arena, s->base.n, s->pool.c, 1, 1, s->base.block, s->dtype);
    s->dp = nw_tensor_alloc(arena, s->base.n, s->pool.c, 1, 1, s->base.block, s->dtype);
    s->index = s->max_pool ? nw_arena_alloc(arena, nw_tensor_bytes(&s->p) / nw_dtype_bytes(s->dtype)) : NULL;
    nw_unit_bind(&s->linear, arena, s->base.n, s->base.block);
    if (s->output_scale == 1.0f) return;
    size_t floats = (size_t)nw_max(s->p.pitch, s->linear.y.pitch);
    s->factor = nw_arena_alloc(arena, floats * sizeof(float));
    s->zero = nw_arena_alloc(arena, floats * sizeof(float));
    if (!nw_arena_is_measuring(arena))
        for (size_t i = 0; i < floats; i++) s->factor[i] = s->output_scale;
}

static void head_set_batch(nw_stage *base, int n)
{
    head_stage *s = (head_stage *)base;
    s->p.n = s->dp.n = s->linear.y.n = n;
}

static nw_source scaled(const head_stage *s, const nw_tensor *t)
{
    return nw_source_view((nw_view){.t = t, .scale = s->factor, .shift = s->factor ? s->zero : NULL});
}

static void head_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    head_stage *s = (head_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    if (s->max_pool)
        k->max_pool(&pass->exec, &s->pool, &in->source, &s->p, pass->training ? s->index : NULL);
    else
        k->avg_pool(&pass->exec, &s->pool, &in->source, &s->p);
    nw_source p = scaled(s, &s->p);
    nw_unit_forward(&s->linear, pass, &p);
    *out = (nw_value){.source = nw_source_plain(&s->linear.y)};
}

static nw_gradient head_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    head_stage *s = (head_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    nw_tensor gradient = upper.main;
    nw_source p = scaled(s, &s->p), dz = scaled(s, &gradient);
    nw_unit_backward(&s->linear, pass, &p, &gradient, NULL, NULL);
    if (!want_input) return (nw_gradient){0};
    k->conv_backward_data(&pass->exec, &s->linear.conv, &dz, nw_param_value(pass->params, s->linear.weight), &s->dp,
                          NULL, NW_WORK_LINEAR);
    nw_region_give(pass, &gradient);
    nw_tensor dx = nw_region_take(pass, nw_value_tensor(in));
    if (s->max_pool)
        k->max_pool_backward(&pass->exec, &s->pool, &s->dp, s->index, &dx, &in->sink);
    else
        k->avg_pool_backward(&pass->exec, &s->pool, &s->dp, &dx, &in->sink);
    return (nw_gradient){.main = dx};
}

static int head_units(const nw_stage *base, const nw_unit **units)
{
    units[0] = &((const head_stage *)base)->linear;
    return 1;
}

static const nw_stage_ops ops = {.kind = "head",
                                 .bind = head_bind,
                                 .set_batch = head_set_batch,
                                 .forward = head_forward,
                                 .backward = head_backward,
                                 .units = head_units};

nw_status nw_stage_head(nw_stage **stage, nw_builder *b, const char *name, const nw_head_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(head_stage), &ops, name, b));
    head_stage *s = (head_stage *)*stage;
    s->dtype = b->kernels->dtype;
    s->max_pool = o->max_pool;
    s->output_scale = o->output_scale;
    NW_FAIL_IF(b->h != b->w, NW_E_SHAPE, "the head pools square maps, not %d x %d; use a square input", b->h, b->w);
    NW_FAIL_IF(o->max_pool && b->h > NW_MAX_POOL, NW_E_SHAPE,
               "a maximum over %d x %d pixels is too large: at most %d x %d; use a smaller input", b->h, b->w,
               NW_MAX_POOL, NW_MAX_POOL);
    NW_TRY(nw_pool2d_make(&s->pool, b->c, b->h, b->w, b->h, b->h, 0));
    nw_builder_gradient(b, b->c, b->h, b->w);
    b->h = b->w = 1;
    NW_TRY(nw_unit_make_linear(&s->linear, b, o->linear_name, o->classes, o->bias));
    b->c = o->classes;
    s->base.macs = nw_conv_flops(&s->linear.conv, 1) / 2;
    nw_stage_end(&s->base, b);
    return NW_OK;
}
