/*
 * stage_head.c - pool the map to one pixel (average or maximum), linear layer, factor: f32 logits. Without a linear
 * layer the pooled channels are the logits.
 *
 * The factor a in z = a W p + b is applied where operands are read: to p for the weights' gradient and the forward
 * pass, to dz on the way to dp. Without a linear layer z = a p is written down.
 */
#include "nn/stage.h"

typedef struct head_stage {
    nw_stage base;
    nw_pool2d pool;
    nw_unit linear;
    bool has_linear, max_pool;
    float output_scale;
    nw_tensor p, dp, z; /* z: without a linear layer */
    uint8_t *index;
    float *factor, *zero; /* the factor and 0 for each channel of p or of z */
    nw_dtype dtype;       /* of p and dp */
} head_stage;

static void head_bind(nw_stage *base, nw_arena *arena)
{
    head_stage *s = (head_stage *)base;
    nw_stage_tensor(base, &s->p, arena, s->pool.c, 1, 1, s->dtype);
    nw_stage_tensor(base, &s->dp, arena, s->pool.c, 1, 1, s->dtype);
    s->index = s->max_pool ? nw_arena_alloc(arena, nw_tensor_bytes(&s->p) / nw_dtype_bytes(s->dtype)) : NULL;
    if (!s->has_linear) nw_stage_tensor(base, &s->z, arena, s->pool.c, 1, 1, NW_F32);
    if (s->output_scale == 1.0f) return;
    size_t floats = (size_t)nw_max(s->p.pitch, s->has_linear ? s->linear.y.pitch : s->z.pitch);
    s->factor = nw_arena_alloc(arena, floats * sizeof(float));
    s->zero = nw_arena_alloc(arena, floats * sizeof(float));
    if (!nw_arena_is_measuring(arena))
        for (size_t i = 0; i < floats; i++) s->factor[i] = s->output_scale;
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
    if (s->has_linear)
        nw_unit_forward(&s->linear, pass, &p);
    else
        k->materialise(&pass->exec, &p, &s->z, NULL);
    *out = (nw_value){.source = nw_source_plain(s->has_linear ? &s->linear.y : &s->z)};
}

static nw_gradient head_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    head_stage *s = (head_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    nw_tensor gradient = upper.main, dx = {.data = NULL};
    nw_source p = scaled(s, &s->p), dz = scaled(s, &gradient);
    if (s->has_linear) nw_unit_backward(&s->linear, pass, &p, &gradient, NULL, NULL);
    if (want_input) {
        if (s->has_linear)
            k->conv_backward_data(&pass->exec, &s->linear.conv, &dz, nw_param_value(pass->params, s->linear.weight),
                                  &s->dp, NULL, NW_WORK_LINEAR);
        else
            k->materialise(&pass->exec, &dz, &s->dp, NULL);
        dx = nw_region_take(pass, nw_value_tensor(in));
        if (s->max_pool)
            k->max_pool_backward(&pass->exec, &s->pool, &s->dp, s->index, &dx, &in->sink);
        else
            k->avg_pool_backward(&pass->exec, &s->pool, &s->dp, &dx, &in->sink);
    }
    nw_region_give(pass, &gradient);
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops ops = {.kind = "head", .bind = head_bind, .forward = head_forward, .backward = head_backward};

nw_status nw_stage_head(nw_stage **stage, nw_builder *b, const char *name, const nw_head_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(head_stage), &ops, name, b));
    head_stage *s = (head_stage *)*stage;
    s->has_linear = o->linear_name != NULL;
    s->dtype = s->has_linear ? b->kernels->dtype : NW_F32;
    s->max_pool = o->max_pool;
    s->output_scale = o->output_scale;
    NW_FAIL_IF(o->max_pool && (b->h > NW_MAX_POOL || b->w > NW_MAX_POOL), NW_E_SHAPE,
               "a maximum over %d x %d pixels is too large: at most %d x %d; use a smaller input", b->h, b->w,
               NW_MAX_POOL, NW_MAX_POOL);
    NW_FAIL_IF(!s->has_linear && b->c != o->classes, NW_E_SHAPE,
               "the head has no linear layer: its input must have %d channels, not %d", o->classes, b->c);
    s->pool = nw_pool2d_whole(b->c, b->h, b->w);
    nw_builder_gradient(b, b->c, b->h, b->w);
    b->h = b->w = 1;
    if (s->has_linear) NW_TRY(nw_unit_make_linear(&s->linear, b, o->linear_name, o->classes, o->bias));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
