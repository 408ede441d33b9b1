/*
 * stage_streams.c - where the two streams of a reversible network end: both side by side, averaged over the map, linear
 * layer with bias: f32 logits. It joins what is left of the map, one row of floats for each image.
 */
#include "nn/stage.h"

#include <string.h>

typedef struct head_stage {
    nw_stage base;
    nw_pool2d pool;
    nw_unit linear;
    nw_tensor half[2]; /* a stream's average, and its gradient in backward */
    nw_tensor p, dp;   /* both side by side */
} head_stage;

static void head_bind(nw_stage *base, nw_arena *arena)
{
    head_stage *s = (head_stage *)base;
    int c = s->pool.c;
    for (int i = 0; i < 2; i++) nw_stage_tensor(base, &s->half[i], arena, c, 1, 1, NW_F32);
    nw_stage_tensor(base, &s->p, arena, 2 * c, 1, 1, NW_F32);
    nw_stage_tensor(base, &s->dp, arena, 2 * c, 1, 1, NW_F32);
}

/* The rows of stream i inside the rows of `joined`; missing images have zero rows on both sides. */
static void copy_half(head_stage *s, int i, nw_tensor *joined, bool join)
{
    const nw_tensor *half = &s->half[i];
    size_t c = (size_t)half->c, rows = (size_t)nw_tensor_blocks(half) * (size_t)half->block;
    for (size_t r = 0; r < rows; r++) {
        float *whole = (float *)joined->data + r * (size_t)joined->pitch + (size_t)i * c;
        float *part = (float *)half->data + r * (size_t)half->pitch;
        memcpy(join ? whole : part, join ? part : whole, c * sizeof(float));
    }
}

static void head_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    head_stage *s = (head_stage *)base;
    const nw_source *stream[2] = {&in->source, &in->second};
    for (int i = 0; i < 2; i++) {
        pass->exec.kernels->avg_pool(&pass->exec, &s->pool, stream[i], &s->half[i]);
        copy_half(s, i, &s->p, true);
    }
    nw_source p = nw_source_plain(&s->p);
    nw_unit_forward(&s->linear, pass, &p);
    *out = (nw_value){.source = nw_source_plain(&s->linear.y)};
}

static nw_gradient head_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    head_stage *s = (head_stage *)base;
    nw_source p = nw_source_plain(&s->p);
    nw_unit_backward(&s->linear, pass, &p, &upper.main, want_input ? &s->dp : NULL, NULL);
    nw_region_give(pass, &upper.main);
    nw_gradient lower = {.main = {.data = NULL}};
    if (!want_input) return lower;
    const nw_tensor *stream[2] = {in->source.a.t, in->second.a.t};
    const nw_sink *sink[2] = {&in->sink, &in->second_sink};
    nw_tensor *dx[2] = {&lower.main, &lower.second};
    for (int i = 0; i < 2; i++) {
        copy_half(s, i, &s->dp, false);
        *dx[i] = nw_region_take(pass, stream[i]);
        pass->exec.kernels->avg_pool_backward(&pass->exec, &s->pool, &s->half[i], dx[i], sink[i]);
    }
    return lower;
}

static const nw_stage_ops head_ops = {
    .kind = "head", .bind = head_bind, .forward = head_forward, .backward = head_backward};

nw_status nw_stage_stream_head(nw_stage **stage, nw_builder *b, const char *name, const char *linear_name, int classes)
{
    NW_TRY(nw_stage_begin(stage, sizeof(head_stage), &head_ops, name, b));
    head_stage *s = (head_stage *)*stage;
    s->pool = nw_pool2d_whole(b->c, b->h, b->w);
    nw_builder_stream(b, b->c, b->h, b->w);
    b->c *= 2;
    b->h = b->w = 1;
    b->two_streams = false;
    NW_TRY(nw_unit_make_linear(&s->linear, b, linear_name, classes, true));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
