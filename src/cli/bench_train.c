/*
 * bench_train.c - `nowait bench train`: images per second of whole steps (forward, backward, update) on synthetic data.
 *
 * Two steps warm up; then every step is timed by itself. The headline is the median; the best is printed beside it,
 * because on shared machines the difference shows what the neighbours took. Between steps the bare
 * micro-kernel runs from L1 ("peak"), so that thread counts and machines can be compared.
 *
 * With --profile also what an update costs. A rule with S vectors of state reads weights, gradient and states and
 * writes weights and states: 4 (3 + 2 S) bytes a parameter, 20 for SGD with momentum. Right after a backward pass some
 * of them may still be in a cache, so the rate may pass that of memory.
 */
#include "cli/bench.h"
#include "cli/plan.h"

#include "base/clock.h"
#include "train/drill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct measurement {
    double images_per_second, best, loss;
    double peak; /* operations per second of the bare micro-kernel, the best between the steps */
    double work_share[NW_WORK_KINDS], other_share;
    double update_ns, update_bytes; /* of a parameter */
} measurement;

static nw_status run_steps(nw_net *net, const float *images, const int32_t *labels, int steps, double *seconds,
                           measurement *m)
{
    nw_exec *exec = &net->model.pass.exec;
    nw_step_result result = {0};
    double total = 0;
    int iterations = 1;
    for (int i = -2; i < steps; i++) {
        m->peak = fmax(m->peak, nw_bench_peak(exec, &iterations));
        if (i == 0) memset(exec->work_ns, 0, sizeof exec->work_ns);
        int64_t start = nw_now_ns();
        NW_TRY(nw_net_train_step(net, images, labels, net->options.batch_size, &result));
        double s = nw_seconds(nw_now_ns() - start);
        if (i >= 0) total += seconds[i] = s;
    }
    double rest = 1;
    for (int w = 0; w < NW_WORK_KINDS; w++) {
        m->work_share[w] = nw_seconds(exec->work_ns[w]) / total;
        rest -= m->work_share[w];
    }
    m->other_share = rest;
    m->update_ns = (double)exec->work_ns[NW_WORK_UPDATE] / steps / (double)net->model.params.learned.floats;
    m->update_bytes = sizeof(float) * (3.0 + 2.0 * nw_optimizer_states(net->optimizer));
    m->loss = result.loss;
    m->images_per_second = net->options.batch_size / nw_median(seconds, steps); /* sorted now */
    m->best = net->options.batch_size / seconds[0];
    return NW_OK;
}

static void print_json(const nw_settings *s, const nw_net *net, const measurement *m, const double *seconds,
                       nw_cpu_ticks before)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "train");
    nw_json_put_string(&json, "model", s->model);
    nw_json_put_int(&json, "batch_size", s->batch_size);
    nw_json_put_double(&json, "images_per_second", m->images_per_second);
    nw_json_put_double(&json, "images_per_second_best", m->best);
    nw_json_key(&json, "step_seconds");
    nw_json_array(&json);
    for (int i = 0; i < s->steps; i++) nw_json_double(&json, seconds[i]);
    nw_json_array_end(&json);
    nw_json_put_double(&json, "peak_gflops", m->peak * 1e-9);
    nw_json_put_string(&json, "precision", nw_net_precision(net));
    nw_json_put_string(&json, "isa", nw_net_isa(net));
    nw_json_put_int(&json, "threads", nw_net_threads(net));
    nw_json_put_int(&json, "steps", s->steps);
    nw_json_put_double(&json, "loss", m->loss);
    nw_json_put_int(&json, "peak_memory_bytes", (int64_t)nw_machine_peak_memory());
    nw_json_put_int(&json, "arena_bytes", (int64_t)nw_net_memory(net));
    if (s->profile) {
        nw_json_key(&json, "profile");
        nw_json_object(&json);
        for (int w = 0; w < NW_WORK_KINDS; w++)
            nw_json_key(&json, nw_work_text((nw_work)w)), nw_json_double(&json, m->work_share[w]);
        nw_json_put_double(&json, "other", m->other_share);
        nw_json_object_end(&json);
        nw_json_put_double(&json, "update_ns_per_parameter", m->update_ns);
        nw_json_put_double(&json, "update_gb_per_second", m->update_bytes / m->update_ns);
    }
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static void print_table(const nw_settings *s, const nw_net *net, const measurement *m, nw_cpu_ticks before)
{
    printf("model       %s, batch %d, %s on %s, %d thread%s\n", s->model, s->batch_size, nw_net_precision(net),
           nw_net_isa(net), nw_net_threads(net), nw_net_threads(net) == 1 ? "" : "s");
    printf("images/s    %.1f (median of %d steps), %.1f best\n", m->images_per_second, s->steps, m->best);
    printf("peak        %.1f GFLOP/s from the bare micro-kernel, between the steps\n", m->peak * 1e-9);
    printf("memory      %.0f MB peak, of it %.0f MB planned before the first step\n",
           (double)nw_machine_peak_memory() / 1e6, (double)nw_net_memory(net) / 1e6);
    if (s->profile) {
        printf("profile\n");
        for (int w = 0; w < NW_WORK_KINDS; w++)
            printf("  %-24s %5.1f %%\n", nw_work_text((nw_work)w), 100 * m->work_share[w]);
        printf("  %-24s %5.1f %%\n", "other", 100 * m->other_share);
        printf("update      %.3f ns and %g bytes a parameter, %.1f GB/s, %.1f %% of the step\n", m->update_ns,
               m->update_bytes, m->update_bytes / m->update_ns, 100 * m->work_share[NW_WORK_UPDATE]);
    }
    nw_bench_machine_table(before);
}

nw_status nw_bench_train(const nw_settings *s)
{
    nw_net_options o = nw_net_options_default();
    o.model = s->model;
    o.batch_size = s->batch_size;
    o.height = o.width = s->image_size;
    o.channels = 0; /* the model's own */
    o.classes = s->classes;
    o.base_width = s->width;
    o.precision = nw_settings_precision(s);
    o.direct_convolution = nw_settings_direct(s);
    o.threads = s->threads;
    o.seed = (uint64_t)s->seed;
    o.learning_rate = 0.01f;
    nw_net *net;
    nw_status made = nw_plan_variant(s, &o.variant);
    if (made == NW_OK) made = nw_net_create(&net, &o);
    nw_plan_variant_free(&o.variant);
    NW_TRY(made);
    o = net->options;
    if (nw_net_note(net)) fprintf(stderr, "nowait: %s\n", nw_net_note(net));
    net->model.pass.exec.profile = s->profile;

    nw_cpu_ticks before = nw_machine_ticks();
    size_t pixels = (size_t)o.channels * (size_t)o.height * (size_t)o.width;
    float *images = malloc((size_t)o.batch_size * pixels * sizeof *images);
    int32_t *labels = malloc((size_t)o.batch_size * sizeof *labels);
    double *seconds = malloc((size_t)s->steps * sizeof *seconds);
    measurement m = {0};
    nw_status status = NW_OK;
    if (!images || !labels || !seconds) {
        status = NW_FAIL(NW_E_MEMORY, "no memory for a batch of %d images; use a smaller --batch-size", o.batch_size);
    } else {
        nw_drill_fill(images, labels, &o);
        status = run_steps(net, images, labels, s->steps, seconds, &m);
    }
    if (status == NW_OK) {
        if (strcmp(s->format, "json") == 0)
            print_json(s, net, &m, seconds, before);
        else
            print_table(s, net, &m, before);
    }
    free(images);
    free(labels);
    free(seconds);
    nw_net_free(net);
    return status;
}
