/*
 * stage_streams.c - where the two streams of a reversible network begin and end.
 *
 *   stem   conv - batch norm - ReLU - max pooling if asked for; the first half of the channels is x, the second x~
 *   head   both streams side by side, averaged over the map, linear layer with bias: f32 logits
 *
 * The stem's halves are two units over one set of parameters (nw_unit_make_streams): batch norm and pooling act on each
 * channel alone, so nothing has to be copied apart. Without pooling the streams are the views of f32 units; with it,
 * they are the pooled f32 tensors. The head joins what is left of the map, one row of floats for each image.
 */
#include "nn/stage.h"

#include <string.h>

/* ---- stem -------------------------------------------------------------------------------------------------------- */

typedef struct stem_stage {
    nw_stage base;
    nw_unit unit[2];
    bool pooled;
    nw_pool2d pool;
    nw_tensor p[2];
    uint8_t *index[2];
} stem_stage;

static void stem_bind(nw_stage *base, nw_arena *arena)
{
    stem_stage *s = (stem_stage *)base;
    if (!s->pooled) return;
    for (int i = 0; i < 2; i++) {
        nw_stage_tensor(base, &s->p[i], arena, s->pool.c, s->pool.oh, s->pool.ow, NW_F32);
        s->index[i] = nw_arena_alloc(arena, nw_tensor_bytes(&s->p[i]) / sizeof(float));
    }
}

static void stem_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    stem_stage *s = (stem_stage *)base;
    nw_source stream[2];
    nw_sink sink[2] = {{.add = NULL}};
    for (int i = 0; i < 2; i++) {
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
    *out = (nw_value){.source = stream[0], .sink = sink[0], .twin = stream[1], .twin_sink = sink[1]};
}

static nw_gradient stem_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    stem_stage *s = (stem_stage *)base;
    nw_tensor gradient[2] = {upper.main, upper.twin}, dx = {.data = NULL};
    if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
    for (int i = 0; i < 2; i++) {
        nw_tensor g = gradient[i];
        if (s->pooled) {
            nw_sink sink = nw_unit_sink(&s->unit[i], true);
            g = nw_region_take(pass, &s->unit[i].y);
            pass->exec.kernels->max_pool_backward(&pass->exec, &s->pool, &gradient[i], s->index[i], &g, &sink);
            nw_region_give(pass, &gradient[i]);
        }
        nw_sink sink = {.add = NULL}; /* the input's gradient is the sum of both; in's sink sees it when it is whole */
        if (i == 1) {
            sink = in->sink;
            sink.add = &dx;
        }
        nw_unit_backward(&s->unit[i], pass, &in->source, &g, want_input ? &dx : NULL, &sink);
        nw_region_give(pass, &g);
    }
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops stem_ops = {
    .kind = "stem", .bind = stem_bind, .forward = stem_forward, .backward = stem_backward};

nw_status nw_stage_stream_stem(nw_stage **stage, nw_builder *b, const char *name, const nw_unit_options *unit,
                               int pool_size)
{
    NW_TRY(nw_stage_begin(stage, sizeof(stem_stage), &stem_ops, name, b));
    stem_stage *s = (stem_stage *)*stage;
    s->pooled = pool_size > 0;
    NW_TRY(nw_unit_make_streams(s->unit, b, unit, s->pooled ? b->kernels->dtype : NW_F32));
    b->twin = true;
    if (s->pooled) NW_TRY(nw_builder_max_pool(b, &s->pool, pool_size, 0, 0));
    nw_builder_stream(b, b->c, b->h, b->w);
    nw_stage_end(&s->base, b);
    return NW_OK;
}

/* ---- head -------------------------------------------------------------------------------------------------------- */

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
    const nw_source *stream[2] = {&in->source, &in->twin};
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
    const nw_tensor *stream[2] = {in->source.a.t, in->twin.a.t};
    const nw_sink *sink[2] = {&in->sink, &in->twin_sink};
    nw_tensor *dx[2] = {&lower.main, &lower.twin};
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
    b->twin = false;
    NW_TRY(nw_unit_make_linear(&s->linear, b, linear_name, classes, true));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
