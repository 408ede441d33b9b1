/*
 * stage_reversible.c - the stages between which two streams travel: reversible ones, and the transitions that change
 * the shape (Gomez et al. 2017, with one residual function per stage and streams that swap).
 *
 *   reversible   (y, y~) = (x~ + F(x), x)           inverse   (x, x~) = (y~, y - F(y~))
 *   transition   (y, y~) = (F(x) + P(x~), Q(x))     or with u, the rectified first unit of F, instead of Q(x)
 *
 * F is a chain of two units (basic block) or three (bottleneck); the last ends in its ReLU, then comes the sum. P and Q
 * are 1 x 1 convolutions with batch norm.
 *
 *   backward, from g of y and g~ of y~, with F' the transposed derivative of F at x:
 *   reversible   dx = g~ + F' g     dx~ = g
 *   transition   dx = F' g + Q' g~  dx~ = P' g     or with g~ added to u's gradient inside F'
 *
 * Streams are f32 in every instruction set: y is written down, y~ is x as it was given (reversible) or the view of an
 * f32 unit (transition). A reversible stage keeps F's convolution outputs and y. Its inverse evaluates F once, which
 * leaves them as forward would, and writes x~ over y.
 *
 * Four regions are alive at most: two streams' gradients and two inside F.
 */
#include "nn/stage.h"

/* ---- F: units one after the other -------------------------------------------------------------------------------- */

typedef struct branch {
    nw_unit unit[NW_BRANCH_UNITS];
    int count;
} branch;

static nw_unit *last_unit(branch *f) { return &f->unit[f->count - 1]; }

static nw_status branch_make(branch *f, nw_builder *b, const nw_branch_options *o)
{
    f->count = o->count;
    for (int i = 0; i < f->count; i++) NW_TRY(nw_unit_make(&f->unit[i], b, &o->units[i]));
    return NW_OK;
}

/* From g, of F's output: the gradient of x through `sink` to dx unless that is NULL. `inner`, unless NULL, is a
 * gradient of the first unit's view from elsewhere; its region is given back. g stays as it is. */
static void branch_backward(branch *f, nw_pass *pass, const nw_source *x, const nw_tensor *g, nw_tensor *inner,
                            nw_tensor *dx, const nw_sink *sink)
{
    nw_sink gated = nw_unit_sink(last_unit(f), true);
    nw_source plain = nw_source_plain(g);
    nw_tensor upper = nw_region_take(pass, &last_unit(f)->y);
    pass->exec.kernels->gradient(&pass->exec, &plain, &upper, &gated);
    upper = nw_units_backward(f->unit, f->count, pass, upper, true, inner);
    nw_unit_backward(&f->unit[0], pass, x, &upper, dx, sink);
    nw_region_give(pass, &upper);
}

/* ---- reversible -------------------------------------------------------------------------------------------------- */

typedef struct reversible_stage {
    nw_stage base;
    branch f;
    nw_tensor y; /* x~ after an inverse */
} reversible_stage;

static void reversible_bind(nw_stage *base, nw_arena *arena)
{
    reversible_stage *s = (reversible_stage *)base;
    nw_stage_tensor(base, &s->y, arena, base->out_c, base->out_h, base->out_w, NW_F32);
}

static void reversible_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    reversible_stage *s = (reversible_stage *)base;
    nw_units_forward(s->f.unit, s->f.count, pass, &in->source);
    nw_source sum = {.a = in->second.a, .b = nw_unit_view(last_unit(&s->f))};
    pass->exec.kernels->materialise(&pass->exec, &sum, &s->y, NULL);
    /* No sinks: what in's sinks ask for is done once, when both gradients of x are together. */
    *out = (nw_value){.source = nw_source_plain(&s->y), .second = in->source};
}

static void reversible_inverse(nw_stage *base, nw_pass *pass, const nw_value *out, nw_value *in)
{
    reversible_stage *s = (reversible_stage *)base;
    nw_source x = out->second;
    bool frozen = pass->freeze_running;
    pass->freeze_running = !pass->invert_running;
    nw_units_forward(s->f.unit, s->f.count, pass, &x);
    pass->freeze_running = frozen;
    nw_source difference = {.a = out->source.a, .b = nw_unit_view(last_unit(&s->f)), .minus = true};
    pass->exec.kernels->materialise(&pass->exec, &difference, &s->y, NULL); /* element by element, so in place too */
    in->source = x;
    in->second = nw_source_plain(&s->y);
}

static bool sink_is_empty(const nw_sink *sink) { return !sink->add && !sink->gate.t && !sink->sum_g; }

static nw_gradient reversible_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                       bool want_input)
{
    reversible_stage *s = (reversible_stage *)base;
    nw_gradient lower = {.main = upper.second, .second = upper.main};
    nw_sink sink = in->sink;
    sink.add = &lower.main;
    branch_backward(&s->f, pass, &in->source, &upper.main, NULL, want_input ? &lower.main : NULL, &sink);
    if (!want_input) {
        nw_region_give(pass, &lower.main);
        nw_region_give(pass, &lower.second);
        return (nw_gradient){.main = {.data = NULL}};
    }
    if (!sink_is_empty(&in->second_sink)) {
        nw_source plain = nw_source_plain(&lower.second);
        pass->exec.kernels->gradient(&pass->exec, &plain, &lower.second, &in->second_sink);
    }
    return lower;
}

static const nw_stage_ops reversible_ops = {.kind = "reversible",
                                            .bind = reversible_bind,
                                            .forward = reversible_forward,
                                            .backward = reversible_backward,
                                            .inverse = reversible_inverse};

nw_status nw_stage_reversible(nw_stage **stage, nw_builder *b, const char *name, const nw_branch_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(reversible_stage), &reversible_ops, name, b));
    reversible_stage *s = (reversible_stage *)*stage;
    int c = b->c, h = b->h, w = b->w;
    NW_TRY(branch_make(&s->f, b, o));
    NW_FAIL_IF(b->c != c || b->h != h || b->w != w, NW_E_SHAPE,
               "stage '%s': %d x %d x %d become %d x %d x %d, but a reversible stage must keep the shape; use a "
               "transition",
               name, c, h, w, b->c, b->h, b->w);
    nw_builder_stream(b, c, h, w);
    nw_stage_end(&s->base, b);
    return NW_OK;
}

/* ---- transition -------------------------------------------------------------------------------------------------- */

typedef struct transition_stage {
    nw_stage base;
    branch f;
    nw_unit projection, second;
    bool has_second;
    nw_tensor y;
} transition_stage;

/* The unit whose view is y~. */
static nw_unit *second_stream_unit(transition_stage *s) { return s->has_second ? &s->second : &s->f.unit[0]; }

static void transition_bind(nw_stage *base, nw_arena *arena)
{
    transition_stage *s = (transition_stage *)base;
    nw_stage_tensor(base, &s->y, arena, base->out_c, base->out_h, base->out_w, NW_F32);
}

static void transition_forward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_value *out)
{
    transition_stage *s = (transition_stage *)base;
    nw_units_forward(s->f.unit, s->f.count, pass, &in->source);
    nw_unit_forward(&s->projection, pass, &in->second);
    if (s->has_second) nw_unit_forward(&s->second, pass, &in->source);
    nw_source sum = {.a = nw_unit_view(last_unit(&s->f)), .b = nw_unit_view(&s->projection)};
    pass->exec.kernels->materialise(&pass->exec, &sum, &s->y, NULL);
    *out = (nw_value){.source = nw_source_plain(&s->y),
                      .sink = nw_unit_sink(&s->projection, true), /* sums only: the projection has no ReLU */
                      .second = nw_source_view(nw_unit_view(second_stream_unit(s)))};
    if (s->has_second)
        out->second_sink = nw_unit_sink(&s->second, true); /* u's are taken when both gradients are added */
}

static nw_gradient transition_backward(nw_stage *base, nw_pass *pass, const nw_value *in, nw_gradient upper,
                                       bool want_input)
{
    transition_stage *s = (transition_stage *)base;
    nw_gradient lower = {.main = {.data = NULL}};
    nw_sink sink = in->sink;
    if (want_input) lower.main = nw_region_take(pass, nw_value_tensor(in));
    if (s->has_second) { /* F's part of dx is then added in place; without Q, g~ joins inside F */
        nw_unit_backward(&s->second, pass, &in->source, &upper.second, want_input ? &lower.main : NULL, NULL);
        nw_region_give(pass, &upper.second);
        sink.add = &lower.main;
    }
    branch_backward(&s->f, pass, &in->source, &upper.main, s->has_second ? NULL : &upper.second,
                    want_input ? &lower.main : NULL, &sink);
    if (want_input) lower.second = nw_region_take(pass, in->second.a.t);
    nw_unit_backward(&s->projection, pass, &in->second, &upper.main, want_input ? &lower.second : NULL,
                     &in->second_sink);
    nw_region_give(pass, &upper.main);
    return lower;
}

static const nw_stage_ops transition_ops = {
    .kind = "transition", .bind = transition_bind, .forward = transition_forward, .backward = transition_backward};

nw_status nw_stage_transition(nw_stage **stage, nw_builder *b, const char *name, const nw_transition_options *o)
{
    NW_TRY(nw_stage_begin(stage, sizeof(transition_stage), &transition_ops, name, b));
    transition_stage *s = (transition_stage *)*stage;
    s->has_second = o->has_second;
    nw_builder at_input = *b;
    nw_builder_stream(b, b->c, b->h, b->w);
    NW_TRY(branch_make(&s->f, b, &o->branch));
    nw_unit *side[2] = {&s->projection, &s->second};
    const nw_unit_options *options[2] = {&o->projection, &o->second};
    for (int i = 0; i < (o->has_second ? 2 : 1); i++) {
        nw_builder_return(b, &at_input);
        NW_TRY(nw_unit_make(side[i], b, options[i]));
        NW_TRY(nw_builder_meets(b, &last_unit(&s->f)->conv, i == 0 ? "the projection of x~" : "the projection of x"));
    }
    const nw_conv *second = &second_stream_unit(s)->conv;
    NW_FAIL_IF(second->k != b->c || second->oh != b->h || second->ow != b->w, NW_E_SHAPE,
               "stage '%s': the streams would be %d x %d x %d and %d x %d x %d; they must have one shape", name, b->c,
               b->h, b->w, second->k, second->oh, second->ow);
    second_stream_unit(s)->dtype = NW_F32;
    nw_builder_stream(b, b->c, b->h, b->w);
    nw_stage_end(&s->base, b);
    return NW_OK;
}
