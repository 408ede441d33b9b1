/*
 * stage_residual.c - z = relu?(branch(x) + shortcut(x)): the branch is a chain of two or three units, the shortcut x
 * itself, a projection unit, or x subsampled with zero channels behind its own (option A of He et al. 2015).
 *
 * ResNet (relu_out): the branch's last unit and the projection have no ReLU, z is gated by z > 0, and one gradient
 * g = gate(dz) serves both paths; z's sink takes the sums of the last unit's and the projection's batch norm at once.
 * ResNet9 (not relu_out): the branch ends in a ReLU and z is a plain sum: dz goes to the shortcut as it is, and through
 * the last unit's sink to the branch.
 *
 *   backward   g -> last unit -> ... -> unit 0 -> dx + shortcut's gradient, through the sink of x.
 *
 * Option A has no parameters, but it is the 1 x 1 convolution with the identity as its filter, and is computed as that:
 * products with 1 and sums with 0 are exact.
 */
#include "nn/stage.h"

typedef struct residual_stage {
    nw_stage base;
    nw_unit unit[NW_RESIDUAL_UNITS], projection;
    int count;
    nw_shortcut shortcut;
    bool relu_out;
    nw_tensor z;
    nw_conv sampling; /* option A */
    float *identity;  /* its filter */
    nw_tensor sampled;
} residual_stage;

static void residual_bind(nw_stage *base, nw_arena *arena)
{
    residual_stage *s = (residual_stage *)base;
    const nw_unit *last = &s->unit[s->count - 1];
    if (s->shortcut == NW_SHORTCUT_PROJECTION)
        s->projection.norm.sum_g = last->norm.sum_g; /* the same g reaches both batch norms: z's sink sums it once */
    if (s->shortcut == NW_SHORTCUT_SUBSAMPLE) {
        const nw_conv *v = &s->sampling;
        nw_stage_tensor(base, &s->sampled, arena, v->k, v->oh, v->ow, last->dtype);
        s->identity = nw_arena_alloc(arena, nw_conv_weights(v) * sizeof(float));
        if (!nw_arena_is_measuring(arena))
            for (int c = 0; c < v->c; c++) s->identity[(size_t)c * (size_t)v->c + (size_t)c] = 1.0f;
    }
    nw_stage_tensor(base, &s->z, arena, last->y.c, last->y.h, last->y.w, last->dtype);
}

static void residual_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    residual_stage *s = (residual_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    nw_unit *last = &s->unit[s->count - 1];
    nw_units_forward(s->unit, s->count, pass, &in->source);
    nw_source sum = {.a = nw_unit_view(last), .b = in->source.a, .relu = s->relu_out};
    if (s->shortcut == NW_SHORTCUT_PROJECTION) {
        nw_unit_forward(&s->projection, pass, &in->source);
        sum.b = nw_unit_view(&s->projection);
    } else if (s->shortcut == NW_SHORTCUT_SUBSAMPLE) {
        k->conv_forward(&pass->exec, &s->sampling, &in->source, s->identity, NULL, &s->sampled, NULL,
                        NW_WORK_POINTWISE);
        sum.b = (nw_view){.t = &s->sampled};
    }
    k->materialise(&pass->exec, &sum, &s->z, NULL);

    *out = (nw_value){.source = nw_source_plain(&s->z)};
    if (s->relu_out) {
        out->sink = nw_unit_sink(last, false);
        out->sink.gate = (nw_view){.t = &s->z};
        if (s->shortcut == NW_SHORTCUT_PROJECTION) out->sink.norm[1] = nw_unit_sink(&s->projection, false).norm[0];
    }
}

/* The shortcut's gradient for the input, from the sum's; the region of `gradient` is given back or returned. */
static nw_tensor shortcut_backward(residual_stage *s, nw_pass *pass, const nw_value *in, nw_tensor gradient,
                                   bool want_input)
{
    if (s->shortcut == NW_SHORTCUT_IDENTITY) return gradient;
    nw_tensor dx = {.data = NULL};
    if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
    if (s->shortcut == NW_SHORTCUT_PROJECTION) {
        nw_unit_backward(&s->projection, pass, &in->source, &gradient, want_input ? &dx : NULL, NULL);
    } else if (want_input) {
        nw_source dy = nw_source_plain(&gradient);
        pass->exec.kernels->conv_backward_data(&pass->exec, &s->sampling, &dy, s->identity, &dx, NULL,
                                               NW_WORK_POINTWISE);
    }
    nw_region_give(pass, &gradient);
    return dx;
}

static nw_gradient residual_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                     bool want_input)
{
    residual_stage *s = (residual_stage *)base;
    nw_tensor gradient = upper.main, g = gradient; /* of the sum; on the branch's side */
    if (!s->relu_out) {
        nw_sink sink = nw_unit_sink(&s->unit[s->count - 1], true);
        nw_source plain = nw_source_plain(&gradient);
        g = nw_region_take(pass, &s->z);
        pass->exec.kernels->gradient(&pass->exec, &plain, &g, &sink);
    }
    g = nw_units_backward(s->unit, s->count, pass, g, !s->relu_out, NULL);
    /* Unit 0 adds its own gradient to the shortcut's in place. */
    nw_tensor dx = shortcut_backward(s, pass, in, gradient, want_input);
    nw_sink sink = in->sink;
    sink.add = &dx;
    nw_unit_backward(&s->unit[0], pass, &in->source, &g, want_input ? &dx : NULL, &sink);
    nw_region_give(pass, &g);
    if (!want_input && dx.data) {
        nw_region_give(pass, &dx);
        dx.data = NULL;
    }
    return (nw_gradient){.main = dx};
}

static const nw_stage_ops ops = {
    .kind = "residual", .bind = residual_bind, .forward = residual_forward, .backward = residual_backward};

/* Makes the shortcut for the input (c, h, w) and returns the shape it gives in the builder. */
static nw_status make_shortcut(residual_stage *s, nw_builder *b, const nw_residual_options *o, int out_c)
{
    if (o->shortcut == NW_SHORTCUT_PROJECTION) {
        NW_TRY(nw_unit_make(&s->projection, b, &o->projection));
    } else if (o->shortcut == NW_SHORTCUT_SUBSAMPLE) {
        NW_FAIL_IF(out_c < b->c, NW_E_SHAPE, "stage '%s': subsampling can add channels but not go from %d to %d",
                   s->base.name, b->c, out_c);
        NW_TRY(nw_conv_make(&s->sampling, b->c, b->h, b->w, out_c, 1, 1, o->subsample, 0));
        for (nw_direction d = NW_FORWARD; d <= NW_BACKWARD_DATA; d++)
            b->need = nw_need_max(b->need, b->kernels->conv_need(&s->sampling, b->n, b->block, d, b->threads));
        nw_builder_advance(b, &s->sampling);
    }
    return NW_OK;
}

nw_status nw_stage_residual(nw_stage **stage, nw_builder *b, const char *name, const nw_residual_options *o)
{
    static const char *const text[] = {"identity", "1 x 1 convolution", "subsampled"};
    NW_TRY(nw_stage_begin(stage, sizeof(residual_stage), &ops, name, b));
    residual_stage *s = (residual_stage *)*stage;
    s->count = o->count;
    s->shortcut = o->shortcut;
    s->relu_out = o->relu_out;
    s->base.shortcut = text[o->shortcut];
    NW_FAIL_IF(o->count < 2 || o->count > NW_RESIDUAL_UNITS, NW_E_ARGUMENT,
               "stage '%s': a residual branch has 2 or %d units, not %d", name, NW_RESIDUAL_UNITS, o->count);
    NW_FAIL_IF(o->shortcut != NW_SHORTCUT_IDENTITY && !o->relu_out, NW_E_UNSUPPORTED,
               "stage '%s': a shortcut that changes the shape needs the ReLU after the sum", name);
    nw_builder at_input = *b;
    for (int i = 0; i < s->count; i++) NW_TRY(nw_unit_make(&s->unit[i], b, &o->units[i]));
    const nw_conv *last = &s->unit[s->count - 1].conv;
    nw_builder_return(b, &at_input);
    NW_TRY(make_shortcut(s, b, o, last->k));
    NW_TRY(nw_builder_meets(b, last, "the shortcut"));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
