/*
 * stage_residual.c - z = relu?(unit1(unit0(x)) + shortcut(x)), the shortcut being x itself or a projection unit.
 *
 * ResNet (relu_out): unit1 and the projection have no ReLU, z is gated by z > 0, and one gradient g = gate(dz) serves
 * both paths; z's sink takes the sums of unit1's and the projection's batch norm at once.
 * ResNet9 (not relu_out): unit1 ends in a ReLU and z is a plain sum: dz goes to the shortcut as it is, and through
 * unit1's sink to the branch.
 *
 *   backward   g -> unit1 -> t -> unit0 -> dx + shortcut's gradient, through the sink of x.
 */
#include "nn/stage.h"

typedef struct residual_stage {
    nw_stage base;
    nw_unit unit[2], projection;
    bool has_projection, relu_out;
    nw_tensor z;
} residual_stage;

static void residual_bind(nw_stage *base, nw_arena *arena)
{
    residual_stage *s = (residual_stage *)base;
    nw_unit_bind(&s->unit[0], arena, s->base.n, s->base.block);
    nw_unit_bind(&s->unit[1], arena, s->base.n, s->base.block);
    if (s->has_projection) {
        nw_unit_bind(&s->projection, arena, s->base.n, s->base.block);
        s->projection.sum_g = s->unit[1].sum_g; /* the same g reaches both batch norms: z's sink sums it once */
    }
    const nw_tensor *y = &s->unit[1].y;
    s->z = nw_tensor_alloc(arena, s->base.n, y->c, y->h, y->w, s->base.block, y->dtype);
}

static void residual_set_batch(nw_stage *base, int n)
{
    residual_stage *s = (residual_stage *)base;
    s->unit[0].y.n = s->unit[1].y.n = s->projection.y.n = s->z.n = n;
}

static void residual_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    residual_stage *s = (residual_stage *)base;
    nw_unit_forward(&s->unit[0], pass, &in->source);
    nw_source inner = nw_source_view(nw_unit_view(&s->unit[0]));
    nw_unit_forward(&s->unit[1], pass, &inner);
    if (s->has_projection) nw_unit_forward(&s->projection, pass, &in->source);

    nw_source sum = {.a = nw_unit_view(&s->unit[1]),
                     .relu = s->relu_out,
                     .b = s->has_projection ? nw_unit_view(&s->projection) : in->source.a};
    pass->exec.kernels->materialise(&pass->exec, &sum, &s->z, NULL);

    *out = (nw_value){.source = nw_source_plain(&s->z)};
    if (s->relu_out) {
        out->sink = nw_unit_sink(&s->unit[1], false);
        out->sink.gate = (nw_view){.t = &s->z};
        if (s->has_projection) out->sink.norm[1] = nw_unit_sink(&s->projection, false).norm[0];
    }
}

static nw_gradient residual_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                     bool want_input)
{
    residual_stage *s = (residual_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    nw_tensor gradient = upper.main, g = gradient; /* of the sum, on the branch's side */
    if (!s->relu_out) {
        nw_sink sink = nw_unit_sink(&s->unit[1], true);
        nw_source plain = nw_source_plain(&gradient);
        g = nw_region_take(pass, &s->z);
        k->gradient(&pass->exec, &plain, &g, &sink);
    }

    nw_sink inner_sink = nw_unit_sink(&s->unit[0], true);
    nw_source inner = nw_source_view(nw_unit_view(&s->unit[0]));
    nw_tensor t = nw_region_take(pass, &s->unit[0].y);
    nw_unit_backward(&s->unit[1], pass, &inner, &g, &t, &inner_sink);
    if (!s->relu_out) nw_region_give(pass, &g);

    /* The shortcut's gradient; unit0 then adds its own to it in place. */
    nw_tensor dx = {.data = NULL};
    if (s->has_projection) {
        if (want_input) dx = nw_region_take(pass, nw_value_tensor(in));
        nw_unit_backward(&s->projection, pass, &in->source, &gradient, want_input ? &dx : NULL, NULL);
        nw_region_give(pass, &gradient);
    } else {
        dx = gradient;
    }
    nw_sink sink = in->sink;
    sink.add = &dx;
    nw_unit_backward(&s->unit[0], pass, &in->source, &t, want_input ? &dx : NULL, &sink);
    nw_region_give(pass, &t);
    if (!want_input && dx.data) {
        nw_region_give(pass, &dx);
        dx.data = NULL;
    }
    return (nw_gradient){.main = dx};
}

static int residual_units(const nw_stage *base, const nw_unit **units)
{
    const residual_stage *s = (const residual_stage *)base;
    units[0] = &s->unit[0];
    units[1] = &s->unit[1];
    units[2] = &s->projection;
    return s->has_projection ? 3 : 2;
}

static const nw_stage_ops ops = {.kind = "residual",
                                 .bind = residual_bind,
                                 .set_batch = residual_set_batch,
                                 .forward = residual_forward,
                                 .backward = residual_backward,
                                 .units = residual_units};

nw_status nw_stage_residual(nw_stage **stage, nw_builder *b, const char *name, const nw_residual_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(residual_stage), &ops, name, b));
    residual_stage *s = (residual_stage *)*stage;
    s->has_projection = o->has_projection;
    s->relu_out = o->relu_out;
    int c = b->c, h = b->h, w = b->w;
    for (int i = 0; i < 2; i++) {
        NW_TRY(nw_unit_make(&s->unit[i], b, &o->units[i]));
        const nw_conv *v = &s->unit[i].conv;
        s->base.macs += nw_conv_flops(v, 1) / 2;
        b->c = v->k;
        b->h = v->oh;
        b->w = v->ow;
    }
    int out_c = b->c, out_h = b->h, out_w = b->w;
    if (s->has_projection) {
        b->c = c;
        b->h = h;
        b->w = w;
        NW_TRY(nw_unit_make(&s->projection, b, &o->projection));
        const nw_conv *v = &s->projection.conv;
        s->base.macs += nw_conv_flops(v, 1) / 2;
        c = v->k;
        h = v->oh;
        w = v->ow;
    }
    NW_FAIL_IF(o->has_projection && !o->relu_out, NW_E_UNSUPPORTED,
               "stage '%s': a projection needs the ReLU after the sum", name);
    NW_FAIL_IF(c != out_c || h != out_h || w != out_w, NW_E_SHAPE,
               "stage '%s': the branch gives %d x %d x %d but the shortcut %d x %d x %d", name, out_c, out_h, out_w, c,
               h, w);
    b->c = out_c;
    b->h = out_h;
    b->w = out_w;
    nw_stage_end(&s->base, b);
    return NW_OK;
}
