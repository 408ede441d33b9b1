/*
 * stage_linear.c - flatten, dropout, linear layer, ReLU; and adaptive average pooling, which networks put before.
 *
 * Linear: y = W d + b with d = dropout(x), flattened as PyTorch flattens (C x H x W). The output is the unit's view,
 * its sink the unit's. Dropout is drawn from (seed, step, stage) again in backward, so no mask is kept; in evaluation,
 * and with p = 0, the layer reads x itself and d does not exist.
 *
 *   backward   g -> linear -> dd -> dropout -> dx, through the sink of x
 *
 * Adaptive pooling from one pixel repeats it. That is a maximum over windows of side x side that each hold that one
 * pixel and else padding, so the pooling kernels do it, exactly in either direction. From a map whose sides are
 * multiples of `side` it is an average over windows that do not overlap.
 */
#include "nn/stage.h"

/* ---- linear ------------------------------------------------------------------------------------------------------ */

typedef struct linear_stage {
    nw_stage base;
    nw_unit unit;
    float dropout;
    uint32_t layer; /* of the random stream */
    nw_tensor d;
} linear_stage;

static void linear_bind(nw_stage *base, nw_arena *arena)
{
    linear_stage *s = (linear_stage *)base;
    const nw_conv *v = &s->unit.conv;
    if (s->dropout > 0) nw_stage_tensor(base, &s->d, arena, v->c, v->h, v->w, s->d.dtype);
}

static void linear_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    linear_stage *s = (linear_stage *)base;
    nw_source x = in->source;
    if (s->dropout > 0 && pass->training) {
        pass->exec.kernels->dropout(&pass->exec, &in->source, &s->d, s->dropout, pass->seed, pass->step, s->layer);
        x = nw_source_plain(&s->d);
    }
    nw_unit_forward(&s->unit, pass, &x);
    *out = (nw_value){.source = nw_source_view(nw_unit_view(&s->unit)), .sink = nw_unit_sink(&s->unit, true)};
}

static nw_gradient linear_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                   bool want_input)
{
    linear_stage *s = (linear_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    bool drop = s->dropout > 0;
    nw_source x = drop ? nw_source_plain(&s->d) : in->source;
    nw_tensor dx = {.data = NULL};
    if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
    nw_unit_backward(&s->unit, pass, &x, &upper.main, want_input ? &dx : NULL, drop ? NULL : &in->sink);
    if (drop && want_input) {
        nw_source plain = nw_source_plain(&dx);
        k->dropout(&pass->exec, &plain, &dx, s->dropout, pass->seed, pass->step, s->layer);
        k->gradient(&pass->exec, &plain, &dx, &in->sink);
    }
    nw_region_give(pass, &upper.main);
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops linear_ops = {
    .kind = "linear", .bind = linear_bind, .forward = linear_forward, .backward = linear_backward};

nw_status nw_stage_linear(nw_stage **stage, nw_builder *b, const char *name, const nw_linear_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(linear_stage), &linear_ops, name, b));
    linear_stage *s = (linear_stage *)*stage;
    NW_FAIL_IF(!(o->dropout >= 0 && o->dropout < 1), NW_E_ARGUMENT,
               "stage '%s': a dropout of %g is impossible; it must lie in [0, 1)", name, (double)o->dropout);
    NW_TRY(nw_unit_make_linear(&s->unit, b, o->linear_name, o->k, o->bias));
    s->unit.relu = o->relu;
    if (!o->logits) s->unit.dtype = b->kernels->dtype;
    s->dropout = o->dropout;
    s->d.dtype = b->kernels->dtype;
    s->layer = (uint32_t)b->stage;
    nw_stage_end(&s->base, b);
    return NW_OK;
}

/* ---- adaptive pooling -------------------------------------------------------------------------------------------- */

typedef struct pool_stage {
    nw_stage base;
    nw_pool2d pool;
    bool repeats; /* from one pixel */
    nw_dtype dtype;
    nw_tensor p;
    uint8_t *index;
} pool_stage;

static void pool_bind(nw_stage *base, nw_arena *arena)
{
    pool_stage *s = (pool_stage *)base;
    nw_stage_tensor(base, &s->p, arena, s->pool.c, s->pool.oh, s->pool.ow, s->dtype);
    if (s->repeats) s->index = nw_arena_alloc(arena, nw_tensor_bytes(&s->p) / nw_dtype_bytes(s->dtype));
}

static void pool_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    pool_stage *s = (pool_stage *)base;
    if (s->repeats)
        pass->exec.kernels->max_pool(&pass->exec, &s->pool, &in->source, &s->p, s->index);
    else
        pass->exec.kernels->avg_pool(&pass->exec, &s->pool, &in->source, &s->p);
    *out = (nw_value){.source = nw_source_plain(&s->p)};
}

static nw_gradient pool_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper, bool want_input)
{
    pool_stage *s = (pool_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    nw_tensor dx = {.data = NULL};
    if (want_input) {
        dx = nw_region_take(pass, nw_value_tensor(in));
        if (s->repeats)
            k->max_pool_backward(&pass->exec, &s->pool, &upper.main, s->index, &dx, &in->sink);
        else
            k->avg_pool_backward(&pass->exec, &s->pool, &upper.main, &dx, &in->sink);
    }
    nw_region_give(pass, &upper.main);
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops pool_ops = {
    .kind = "pool", .bind = pool_bind, .forward = pool_forward, .backward = pool_backward};

nw_status nw_stage_adaptive_pool(nw_stage **stage, nw_builder *b, const char *name, int side)
{
    NW_TRY(nw_stage_begin(stage, sizeof(pool_stage), &pool_ops, name, b));
    pool_stage *s = (pool_stage *)*stage;
    s->dtype = b->kernels->dtype;
    s->repeats = b->h == 1 && b->w == 1;
    NW_FAIL_IF(
        b->h != b->w || (!s->repeats && b->h % side) || side > NW_MAX_POOL, NW_E_SHAPE,
        "stage '%s': a map of %d x %d cannot be pooled to %d x %d, only 1 x 1 or multiples of %d can; use images "
        "of another size",
        name, b->h, b->w, side, side, side);
    if (s->repeats)
        s->pool = (nw_pool2d){
            .c = b->c, .h = 1, .w = 1, .r = side, .s = side, .stride = 1, .pad = side - 1, .oh = side, .ow = side};
    else
        NW_TRY(nw_pool2d_make(&s->pool, b->c, b->h, b->w, b->h / side, b->h / side, 0));
    nw_builder_gradient(b, b->c, b->h, b->w);
    nw_builder_gradient(b, b->c, side, side);
    b->h = b->w = side;
    nw_stage_end(&s->base, b);
    return NW_OK;
}
