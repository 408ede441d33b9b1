/*
 * stage_conv.c - a unit, with or without max pooling behind it; and the stem of reversible networks, which is two of
 * them: the first half of the channels is x, the second x~.
 *
 * Without pooling the output is the unit's view and its sink the unit's sink. With pooling, p = maxpool(view) is
 * written down, its gradient arrives ungated, and goes through the unit's sink on its way back through the pool.
 *
 * The stem's halves are two units over one set of parameters (nw_unit_make_streams): batch norm and pooling act on each
 * channel alone, so nothing has to be copied apart. The streams are f32: views of f32 units, or the pooled tensors.
 */
#include "nn/stage.h"

typedef struct conv_stage {
    nw_stage base;
    int count; /* of what follows: one, or the two streams */
    nw_unit unit[2];
    bool pooled;
    nw_pool2d pool;
    nw_dtype dtype; /* of p */
    nw_tensor p[2];
    uint8_t *index[2];
} conv_stage;

static void conv_bind(nw_stage *base, nw_arena *arena)
{
    conv_stage *s = (conv_stage *)base;
    for (int i = 0; s->pooled && i < s->count; i++) {
        nw_stage_tensor(base, &s->p[i], arena, s->pool.c, s->pool.oh, s->pool.ow, s->dtype);
        s->index[i] = nw_arena_alloc(arena, nw_tensor_bytes(&s->p[i]) / nw_dtype_bytes(s->dtype));
    }
}

static void conv_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    conv_stage *s = (conv_stage *)base;
    nw_source stream[2] = {{.a = {.t = NULL}}};
    nw_sink sink[2] = {{.add = NULL}};
    for (int i = 0; i < s->count; i++) {
        nw_unit_forward(&s->unit[i], pass, &in->source);
        stream[i] = nw_source_view(nw_unit_view(&s->unit[i]));
        if (s->pooled) {
            pass->exec.kernels->max_pool(&pass->exec, &s->pool, &stream[i], &s->p[i],
                                         pass->training ? s->index[i] : NULL);
            stream[i] = nw_source_plain(&s->p[i]);
        } else {
            sink[i] = nw_unit_sink(&s->unit[i], true);
        }
    }
    *out = (nw_value){.source = stream[0], .sink = sink[0], .second = stream[1], .second_sink = sink[1]};
}

static nw_gradient conv_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    conv_stage *s = (conv_stage *)base;
    nw_tensor gradient[2] = {upper.main, upper.second}, dx = {.data = NULL};
    if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
    for (int i = 0; i < s->count; i++) {
        nw_tensor g = gradient[i];
        if (s->pooled) {
            nw_sink sink = nw_unit_sink(&s->unit[i], true);
            g = nw_region_take(pass, &s->unit[i].y);
            pass->exec.kernels->max_pool_backward(&pass->exec, &s->pool, &gradient[i], s->index[i], &g, &sink);
            nw_region_give(pass, &gradient[i]);
        }
        nw_sink sink = {.add = NULL}; /* the input's gradient is the sum of both; in's sink sees it when it is whole */
        if (i == s->count - 1) sink = in->sink;
        if (i > 0) sink.add = &dx;
        nw_unit_backward(&s->unit[i], pass, &in->source, &g, want_input ? &dx : NULL, &sink);
        nw_region_give(pass, &g);
    }
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops conv_ops = {
    .kind = "conv", .bind = conv_bind, .forward = conv_forward, .backward = conv_backward};
static const nw_stage_ops stem_ops = {
    .kind = "stem", .bind = conv_bind, .forward = conv_forward, .backward = conv_backward};

nw_status nw_stage_conv(nw_stage **stage, nw_builder *b, const char *name, const nw_unit_options *unit,
                        const nw_pool_options *pool)
{
    NW_TRY(nw_stage_begin(stage, sizeof(conv_stage), &conv_ops, name, b));
    conv_stage *s = (conv_stage *)*stage;
    s->count = 1;
    NW_TRY(nw_unit_make(&s->unit[0], b, unit));
    s->dtype = s->unit[0].dtype;
    s->pooled = pool != NULL;
    if (pool) NW_TRY(nw_builder_max_pool(b, &s->pool, pool->size, pool->stride, pool->pad));
    nw_stage_end(*stage, b);
    return NW_OK;
}

nw_status nw_stage_stream_stem(nw_stage **stage, nw_builder *b, const char *name, const nw_unit_options *unit,
                               int pool_size)
{
    NW_TRY(nw_stage_begin(stage, sizeof(conv_stage), &stem_ops, name, b));
    conv_stage *s = (conv_stage *)*stage;
    s->count = 2;
    s->dtype = NW_F32;
    s->pooled = pool_size > 0;
    b->two_streams = true;
    NW_TRY(nw_unit_make_streams(s->unit, b, unit, s->pooled ? b->kernels->dtype : NW_F32));
    if (s->pooled) NW_TRY(nw_builder_max_pool(b, &s->pool, pool_size, 0, 0));
    nw_builder_stream(b, b->c, b->h, b->w);
    nw_stage_end(*stage, b);
    return NW_OK;
}
