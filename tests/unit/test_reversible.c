/*
 * test_reversible.c - stages run backwards: inverses, the backward pass after an inverse, and a whole training step as
 * a pipeline takes it, with stages that have seen other batches in between and get their values as copies.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/net_fixture.h"

#include <math.h>
#include <stdlib.h>

enum { N = 12 }; /* images: a block of 16 with missing ones */

static float images[2][N * PIXELS];
static int32_t labels[2][N];

/* A training forward of batch b; returns the logits. */
static const nw_tensor *forward(nw_net *net, int b)
{
    net->model.pass.training = true;
    net->model.pass.accumulate = false;
    nw_model_set_batch(&net->model, N);
    net->input.n = N;
    nw_tensor_import(&net->input, images[b]);
    return nw_model_forward(&net->model, &net->input);
}

static int make_batches(void **state)
{
    (void)state;
    for (int b = 0; b < 2; b++) fill_batch(images[b], labels[b], N, 70 + (uint64_t)b, 80 + (uint64_t)b);
    return 0;
}

static bool is_reversible(const nw_net *net, int stage) { return net->model.stages[stage]->ops->inverse != NULL; }

/* ---- values as copies -------------------------------------------------------------------------------------------- */

/* A value written down, with no sinks: what a message or a queue holds. */
typedef struct copy {
    nw_tensor stream[2];
    nw_value value;
} copy;

static void copy_stream(nw_net *net, const nw_source *source, nw_tensor *out)
{
    *out = *source->a.t;
    out->dtype = source->a.t == &net->input ? net->input.dtype : NW_F32; /* streams are f32 */
    out->data = test_calloc(1, nw_tensor_bytes(out));
    net->model.pass.exec.kernels->materialise(&net->model.pass.exec, source, out, NULL);
}
static copy *copy_value(nw_net *net, const nw_value *value)
{
    copy *c = test_calloc(1, sizeof *c);
    copy_stream(net, &value->source, &c->stream[0]);
    c->value.source = nw_source_plain(&c->stream[0]);
    if (!value->second.a.t) return c;
    copy_stream(net, &value->second, &c->stream[1]);
    c->value.second = nw_source_plain(&c->stream[1]);
    return c;
}
static void free_copy(copy *c)
{
    test_free(c->stream[0].data);
    if (c->stream[1].data) test_free(c->stream[1].data);
    test_free(c);
}

/* Relative distance of two tensors; every byte of padding counts too. */
static double tensor_distance(const nw_tensor *got, const nw_tensor *want)
{
    assert_int_equal(got->dtype, NW_F32);
    return golden_distance(got->data, want->data, nw_tensor_bytes(want) / sizeof(float));
}
/* The worse of both streams of a value, against a copy. */
static double value_distance(nw_net *net, const nw_value *got, const copy *want)
{
    copy *c = copy_value(net, got);
    double x = tensor_distance(&c->stream[0], &want->stream[0]), y = tensor_distance(&c->stream[1], &want->stream[1]);
    free_copy(c);
    return x > y ? x : y;
}

/* ---- inverses ---------------------------------------------------------------------------------------------------- */

static void check_each_stage(const nw_kernels *k, const char *model, nw_model_variant variant)
{
    nw_net *net = make_variant(k, model, variant, N, 0);
    nw_model *m = &net->model;
    forward(net, 0);
    size_t count;
    const float *buffers = nw_net_buffers(net, &count);
    float *kept = test_malloc(count * sizeof *kept);
    memcpy(kept, buffers, count * sizeof *kept);
    int inverted = 0;
    for (int i = 0; i + 1 < m->count; i++) { /* also where activations are bf16 */
        assert_int_equal(m->values[i + 1].source.a.t->dtype, NW_F32);
        assert_int_equal(m->values[i + 1].second.a.t->dtype, NW_F32);
    }
    for (int i = m->count - 1; i >= 0; i--) { /* downwards: an inverse writes over its own output only */
        if (!is_reversible(net, i)) continue;
        copy *want = copy_value(net, &m->values[i]);
        float add = 1.0f; /* the sinks of `in` are not touched */
        nw_value in = {.sink.sum_g = &add};
        m->stages[i]->ops->inverse(m->stages[i], &m->pass, &m->values[i + 1], &in);
        double d = value_distance(net, &in, want);
        if (!(d <= 1e-6)) fail_msg("%s: %s: stage '%s' is inverted up to %g", k->isa, model, m->stages[i]->name, d);
        assert_ptr_equal(in.sink.sum_g, &add);
        free_copy(want);
        inverted++;
    }
    assert_true(inverted > 3);
    assert_memory_equal(kept, buffers, count * sizeof *kept);
    assert_false(m->pass.freeze_running);
    test_free(kept);
    nw_net_free(net);
}
static void test_each_stage_can_be_inverted(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            check_each_stage(k, "revnet18", (nw_model_variant){0});
            check_each_stage(k, "revnet50", (nw_model_variant){0});
        }
}

/* Eight stages in a row, each from what the one above recovered. In bf16 an error of the last bit may round an input of
 * F to the other side: after some stages the error is that of bf16. */
static void test_a_chain_of_eight_can_be_inverted(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            nw_net *net = make_variant(k, "revnet-fixed", (nw_model_variant){.n_layers = 8, .hidden_size = 32}, N, 0);
            nw_model *m = &net->model;
            forward(net, 0);
            copy *want = copy_value(net, &m->values[1]), *top = copy_value(net, &m->values[9]);
            nw_value value = top->value;
            forward(net, 1); /* nothing that forward left behind may help */
            for (int i = 8; i >= 1; i--) {
                nw_value in = {.sink = {0}};
                m->stages[i]->ops->inverse(m->stages[i], &m->pass, &value, &in);
                value = in;
            }
            double d = value_distance(net, &value, want);
            if (!(d <= (type == NW_F32 ? 1e-5 : 4e-2))) fail_msg("%s: eight stages are inverted up to %g", k->isa, d);
            free_copy(want);
            free_copy(top);
            nw_net_free(net);
        }
}

/* Who moves running statistics: forward, or, if asked to, the inverse; by the same amount. */
static void test_running_statistics_move_once(void **state)
{
    (void)state;
    FOR_EACH_TABLE(k, NW_F32) {
        nw_net *usual = make(k, "revnet18", N, 0), *other = make(k, "revnet18", N, 0);
        size_t count;
        const float *want = nw_net_buffers(usual, &count), *got = nw_net_buffers(other, NULL);
        float *start = test_malloc(count * sizeof *start);
        memcpy(start, got, count * sizeof *start);
        forward(usual, 0);
        nw_model *m = &other->model;
        m->pass.freeze_running = true;
        forward(other, 0);
        assert_memory_equal(got, start, count * sizeof *start);
        int stage = m->count - 2; /* the last reversible one */
        assert_true(is_reversible(other, stage));
        m->pass.invert_running = true;
        nw_value in = {.sink = {0}};
        m->stages[stage]->ops->inverse(m->stages[stage], &m->pass, &m->values[stage + 1], &in);
        for (int i = 0; i < m->params.running.count; i++) {
            const nw_segment *s = &m->params.running.at[i];
            assert_memory_equal(got + s->offset, (s->stage == stage ? want : start) + s->offset,
                                s->count * sizeof *got);
            if (s->stage == stage) assert_memory_not_equal(want + s->offset, start + s->offset, s->count * sizeof *got);
        }
        test_free(start);
        nw_net_free(usual);
        nw_net_free(other);
    }
}

/* ---- the backward pass after an inverse -------------------------------------------------------------------------- */

/* False if the wanted gradient is zero but for rounding, as that of a shift in front of another batch norm. */
static bool compare_range(const nw_kernels *k, const char *what, const char *name, const float *got, const float *want,
                          size_t count, double distance, double cosine)
{
    double gg = 0, ww = 0, gw = 0;
    for (size_t j = 0; j < count; j++) {
        gg += (double)got[j] * (double)got[j];
        ww += (double)want[j] * (double)want[j];
        gw += (double)got[j] * (double)want[j];
    }
    if (ww < 1e-8) {
        if (!(gg < 1e-7)) fail_msg("%s: %s: the gradient of '%s' should be zero", k->isa, what, name);
        return false;
    }
    double d = golden_distance(got, want, count), c = gw / sqrt(gg * ww);
    if (!(d <= distance) || !(c >= cosine))
        fail_msg("%s: %s: the gradient of '%s' is off by %g, cosine %g", k->isa, what, name, d, c);
    return true;
}

/* The gradients against those of plain backpropagation: in f32 each tensor up to what inversion rounds away. In bf16
 * one rounding may fall to the other side, and then gradients differ as bf16 does from f32 (test_revnet.c): all
 * together. */
static void compare_gradients(const nw_kernels *k, const char *what, const nw_net *net, const float *got,
                              const float *want)
{
    const nw_segments *list = &net->model.params.learned;
    int compared = 0;
    for (int i = 0; k->dtype == NW_F32 && i < list->count; i++) {
        const nw_segment *s = &list->at[i];
        compared += compare_range(k, what, s->name, got + s->offset, want + s->offset, s->count, 1e-3, 0.9999);
    }
    if (k->dtype == NW_F32)
        assert_true(compared * 2 > list->count);
    else
        compare_range(k, what, "everything", got, want, list->floats, 0.3, 0.95);
}

static float *backprop_gradients(nw_net *net)
{
    size_t count;
    const float *g = nw_net_parameter_gradients(net, &count);
    float *want = test_malloc(count * sizeof *want);
    assert_int_equal(nw_net_gradients(net, images[0], labels[0], N, false, NULL), NW_OK);
    memcpy(want, g, count * sizeof *want);
    for (size_t i = 0; i < count; i++) nw_net_parameter_gradients(net, NULL)[i] = NAN;
    return want;
}

static nw_tensor loss_gradient(nw_net *net, const nw_tensor *logits, int b)
{
    nw_tensor dlogits = nw_region_take(&net->model.pass, logits);
    nw_loss_result loss;
    nw_cross_entropy(&net->model.pass.exec, logits, labels[b], &(nw_loss_rule){0}, &dlogits, net->losses, &loss);
    return dlogits;
}

/* Reversible backpropagation in place: values[i] is overwritten with what stage i recovers, its sinks stay. */
static void reversible_backward(nw_net *net, nw_tensor dlogits)
{
    nw_model *m = &net->model;
    nw_gradient gradient = {.main = dlogits};
    for (int i = m->count - 1; i >= 0; i--) {
        nw_stage *s = m->stages[i];
        if (s->ops->inverse) s->ops->inverse(s, &m->pass, &m->values[i + 1], &m->values[i]);
        gradient = s->ops->backward(s, &m->pass, &m->values[i], gradient, i > 0);
    }
}

/* The same batch as a pipeline takes it back: another batch went forward in between, so every stage gets its input as a
 * copy (not reversible) or recovers it, and computes what it needs again; gradients travel as they are. */
static void pipeline_backward(nw_net *net, copy *const *queue)
{
    nw_model *m = &net->model;
    nw_pass *pass = &m->pass;
    const nw_kernels *k = pass->exec.kernels;
    nw_gradient gradient = {.main = {.data = NULL}};
    nw_value upper = {.sink = {0}}, lower;
    for (int i = m->count - 1; i >= 0; i--) {
        nw_stage *s = m->stages[i];
        lower = (nw_value){.sink = {0}};
        if (s->ops->inverse) {
            s->ops->inverse(s, pass, &upper, &lower);
        } else {
            nw_value out;
            lower = queue[i]->value;
            pass->freeze_running = true;
            s->ops->forward(s, pass, &lower, &out);
            pass->freeze_running = false;
            if (i == m->count - 1) {
                gradient.main = loss_gradient(net, nw_value_tensor(&out), 0);
            } else {
                nw_source main = nw_source_plain(&gradient.main), second = nw_source_plain(&gradient.second);
                k->gradient(&pass->exec, &main, &gradient.main, &out.sink);
                k->gradient(&pass->exec, &second, &gradient.second, &out.second_sink);
            }
        }
        gradient = s->ops->backward(s, pass, &lower, gradient, i > 0);
        upper = lower;
    }
}

static void check_backward(const nw_kernels *k, const char *model, nw_model_variant variant)
{
    nw_net *net = make_variant(k, model, variant, N, 0);
    nw_model *m = &net->model;
    set_golden_parameters(net);
    float *want = backprop_gradients(net);
    const float *got = nw_net_parameter_gradients(net, NULL);

    const nw_tensor *logits = forward(net, 0);
    reversible_backward(net, loss_gradient(net, logits, 0));
    compare_gradients(k, "in place", net, got, want);

    copy *queue[NW_MAX_STAGES] = {NULL};
    forward(net, 0);
    for (int i = 0; i < m->count; i++)
        if (!is_reversible(net, i)) queue[i] = copy_value(net, &m->values[i]);
    forward(net, 1);
    size_t buffers;
    const float *running = nw_net_buffers(net, &buffers);
    float *kept = test_malloc(buffers * sizeof *kept);
    memcpy(kept, running, buffers * sizeof *kept);
    pipeline_backward(net, queue);
    compare_gradients(k, "as a pipeline", net, got, want);
    assert_memory_equal(kept, running, buffers * sizeof *kept);

    for (int i = 0; i < NW_REGIONS; i++) assert_false(m->pass.busy[i]);
    for (int i = 0; i < m->count; i++)
        if (queue[i]) free_copy(queue[i]);
    test_free(kept);
    test_free(want);
    nw_net_free(net);
}

static void test_backward_after_inverse_is_backpropagation(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            check_backward(k, "revnet18", (nw_model_variant){0});
            check_backward(k, "revnet50", (nw_model_variant){.stem = "imagenet"});
        }
}

/* One stage alone: after an inverse, backward gives the very bits that it gives after forward. */
static void test_one_stage_gives_the_same_bits(void **state)
{
    (void)state;
    for (nw_dtype type = NW_F32; type <= NW_BF16; type++)
        FOR_EACH_TABLE(k, type) {
            nw_net *net = make_variant(k, "revnet-fixed", (nw_model_variant){.n_layers = 1, .hidden_size = 64}, N, 0);
            size_t count;
            const float *got = nw_net_parameter_gradients(net, &count);
            float *want = backprop_gradients(net);
            const nw_tensor *logits = forward(net, 0);
            reversible_backward(net, loss_gradient(net, logits, 0));
            if (memcmp(got, want, count * sizeof *want)) fail_msg("%s: the gradients differ", k->isa);
            test_free(want);
            nw_net_free(net);
        }
}

/* ---- shapes that do not fit -------------------------------------------------------------------------------------- */

static void refuse(nw_status status, nw_stage *stage, nw_builder *b, const char *part)
{
    assert_int_equal(status, NW_E_SHAPE);
    if (!strstr(nw_error_message(), part)) fail_msg("'%s' does not say '%s'", nw_error_message(), part);
    free(stage);
    nw_params_free(b->params);
}

static void test_shapes_that_do_not_fit_are_refused(void **state)
{
    const nw_kernels *kernels;
    nw_params params = {.values = NULL};
    (void)state;
    assert_int_equal(nw_isa_select(NW_PRECISION_F32, &kernels, NULL), NW_OK);
    const nw_builder start = {.params = &params,
                              .kernels = kernels,
                              .threads = 1,
                              .n = 4,
                              .block = 16,
                              .c = 16,
                              .h = 8,
                              .w = 8,
                              .two_streams = true};
    nw_unit_options same = {.k = 16, .size = 3, .stride = 1, .pad = 1, .conv_name = "a", .norm_name = "b"};
    nw_unit_options down = {.k = 32, .size = 3, .stride = 2, .pad = 1, .conv_name = "c", .norm_name = "d"};
    nw_unit_options wide = {.k = 32, .size = 3, .stride = 1, .pad = 1, .conv_name = "e", .norm_name = "f"};
    nw_unit_options odd = {.k = 15, .size = 3, .stride = 1, .pad = 1, .conv_name = "g", .norm_name = "h"};
    nw_stage *stage;
    nw_builder b = start;
    nw_status status = nw_stage_reversible(&stage, &b, "s", &(nw_branch_options){.count = 2, .units = {down, wide}});
    refuse(status, stage, &b, "keep the shape");
    b = start;
    status = nw_stage_transition(
        &stage, &b, "s", &(nw_transition_options){.branch = {.count = 2, .units = {down, wide}}, .projection = wide});
    refuse(status, stage, &b, "projection");
    b = start;
    status = nw_stage_transition(
        &stage, &b, "s", &(nw_transition_options){.branch = {.count = 2, .units = {same, down}}, .projection = down});
    refuse(status, stage, &b, "one shape");
    b = start;
    status = nw_stage_stream_stem(&stage, &b, "s", &odd, 0);
    refuse(status, stage, &b, "even");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_stage_can_be_inverted),
        cmocka_unit_test(test_a_chain_of_eight_can_be_inverted),
        cmocka_unit_test(test_running_statistics_move_once),
        cmocka_unit_test(test_backward_after_inverse_is_backpropagation),
        cmocka_unit_test(test_one_stage_gives_the_same_bits),
        cmocka_unit_test(test_shapes_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, make_batches, NULL);
}
