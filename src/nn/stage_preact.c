/*
 * stage_preact.c - a pre-activation residual block (Zagoruyko and Komodakis 2016: wide residual networks).
 *
 * With a = relu(norm(x)), the block is z = conv2(relu(norm(conv1(a)))) + shortcut, the shortcut being x, or a 1 x 1
 * convolution of a. The norm of x comes first in the block but needs statistics of a tensor that the stage before
 * writes. So stages are cut one norm later: a stage ends with the norm of the block behind it, whose moments are taken
 * while z is written, and the stem ends with the first block's. The order of parameters is the same.
 *
 *   in    source: the view relu(norm(x)), with its sink; second: x as it is
 *   out   source: the view relu(next norm(z)), with its sink; second: z
 *
 * backward, from g of the view and r of the raw stream (none behind a projection):
 *   dz = before_norm(g) + r;   dz -> conv2 -> conv1 -> da + projection's, through the sink of the input;
 *   the input's raw stream gets dz if the shortcut is the identity.
 */
#include "nn/stage.h"

typedef struct preact_stage {
    nw_stage base;
    nw_unit unit[2], projection;
    bool has_projection;
    nw_unit next; /* y is z */
} preact_stage;

static void preact_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    preact_stage *s = (preact_stage *)base;
    nw_units_forward(s->unit, 2, pass, &in->source);
    nw_source sum = {.a = nw_unit_view(&s->unit[1])};
    if (s->has_projection) {
        nw_unit_forward(&s->projection, pass, &in->source);
        sum.b = nw_unit_view(&s->projection);
    } else {
        sum.b = in->second.a;
    }
    pass->exec.kernels->materialise(&pass->exec, &sum, &s->next.y, nw_unit_moments(&s->next, pass));
    nw_unit_normalise(&s->next, pass);
    *out = (nw_value){.source = nw_source_view(nw_unit_view(&s->next)),
                      .sink = nw_unit_sink(&s->next, true),
                      .second = nw_source_plain(&s->next.y)};
}

static nw_gradient preact_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                   bool want_input)
{
    preact_stage *s = (preact_stage *)base;
    const nw_kernels *k = pass->exec.kernels;
    /* dz takes the place of the raw stream's gradient, or of the view's. */
    nw_source before = nw_unit_before_norm(&s->next, pass, &upper.main);
    nw_tensor dz = upper.second.data ? upper.second : upper.main;
    nw_sink add = {.add = upper.second.data ? &upper.second : NULL};
    k->gradient(&pass->exec, &before, &dz, &add);
    if (upper.second.data) nw_region_give(pass, &upper.main);

    nw_sink sink = in->sink;
    nw_tensor t = nw_units_backward(s->unit, 2, pass, dz, false, NULL), da = {.data = NULL};
    if (want_input) da = nw_region_take(pass, nw_value_tensor(in));
    if (s->has_projection) {
        nw_unit_backward(&s->projection, pass, &in->source, &dz, want_input ? &da : NULL, NULL);
        nw_region_give(pass, &dz);
        sink.add = &da;
    }
    nw_unit_backward(&s->unit[0], pass, &in->source, &t, want_input ? &da : NULL, &sink);
    nw_region_give(pass, &t);
    nw_gradient lower = {.main = da};
    if (!s->has_projection) {
        if (want_input)
            lower.second = dz;
        else
            nw_region_give(pass, &dz);
    }
    return lower;
}

static const nw_stage_ops ops = {.kind = "pre-activation", .forward = preact_forward, .backward = preact_backward};

nw_status nw_stage_preact(nw_stage **stage, nw_builder *b, const char *name, const nw_preact_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(preact_stage), &ops, name, b));
    preact_stage *s = (preact_stage *)*stage;
    s->has_projection = o->has_projection;
    s->base.shortcut = o->has_projection ? "1 x 1 convolution" : "identity";
    nw_builder at_input = *b;
    for (int i = 0; i < 2; i++) NW_TRY(nw_unit_make(&s->unit[i], b, &o->units[i]));
    nw_builder_return(b, &at_input);
    if (o->has_projection) NW_TRY(nw_unit_make(&s->projection, b, &o->projection));
    NW_TRY(nw_builder_meets(b, &s->unit[1].conv, "the shortcut"));
    NW_TRY(nw_unit_make_norm(&s->next, b, o->next_norm, true));
    nw_stage_end(&s->base, b);
    return NW_OK;
}
