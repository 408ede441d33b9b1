/*
 * stage_conv.c - a unit, with or without max pooling behind it.
 *
 * Without pooling the output is the unit's view and its sink the unit's sink. With pooling, p = maxpool(view) is
 * written down, its gradient arrives ungated, and goes through the unit's sink on its way back through the pool.
 */
#include "nn/stage.h"

typedef struct conv_stage {
    nw_stage base;
    nw_unit unit;
    bool pooled;
    nw_pool2d pool;
    nw_tensor p;
    uint8_t *index;
} conv_stage;

static void conv_bind(nw_stage *base, nw_arena *arena)
{
    conv_stage *s = (conv_stage *)base;
    if (!s->pooled) return;
    nw_stage_tensor(base, &s->p, arena, s->pool.c, s->pool.oh, s->pool.ow, s->unit.dtype);
    s->index = nw_arena_alloc(arena, nw_tensor_bytes(&s->p) / nw_dtype_bytes(s->p.dtype));
}

static void conv_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    conv_stage *s = (conv_stage *)base;
    nw_unit_forward(&s->unit, pass, &in->source);
    nw_source view = nw_source_view(nw_unit_view(&s->unit));
    if (s->pooled) {
        pass->exec.kernels->max_pool(&pass->exec, &s->pool, &view, &s->p, pass->training ? s->index : NULL);
        *out = (nw_value){.source = nw_source_plain(&s->p)};
    } else {
        *out = (nw_value){.source = view, .sink = nw_unit_sink(&s->unit, true)};
    }
}

static nw_gradient conv_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    conv_stage *s = (conv_stage *)base;
    nw_tensor gradient = upper.main, g = gradient, dx = {.data = NULL};
    if (s->pooled) {
        nw_sink sink = nw_unit_sink(&s->unit, true);
        g = nw_region_take(pass, &s->unit.y);
        pass->exec.kernels->max_pool_backward(&pass->exec, &s->pool, &gradient, s->index, &g, &sink);
        nw_region_give(pass, &gradient);
    }
    if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
    nw_unit_backward(&s->unit, pass, &in->source, &g, want_input ? &dx : NULL, &in->sink);
    nw_region_give(pass, &g);
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops ops = {.kind = "conv", .bind = conv_bind, .forward = conv_forward, .backward = conv_backward};

nw_status nw_stage_conv(nw_stage **stage, nw_builder *b, const char *name, const nw_unit_options *unit,
                        const nw_pool_options *pool)
{
    NW_TRY(nw_stage_begin(stage, sizeof(conv_stage), &ops, name, b));
    conv_stage *s = (conv_stage *)*stage;
    NW_TRY(nw_unit_make(&s->unit, b, unit));
    s->pooled = pool != NULL;
    if (pool) NW_TRY(nw_builder_max_pool(b, &s->pool, pool->size, pool->stride, pool->pad));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
