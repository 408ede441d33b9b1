/*
 * train.c - `nowait bench train`: images per second of whole steps (forward, backward, update) on synthetic data.
 *
 * Two steps warm up; then every step is timed by itself. The headline is the median; the best is printed beside it,
 * because on shared machines the difference shows what the neighbours took. Between steps the bare
 * micro-kernel runs from L1 ("peak"), so that thread counts and machines can be compared.
 *
 * With --profile also what an update costs. A rule with S vectors of state reads weights, gradient and states and
 * writes weights and states: 4 (3 + 2 S) bytes a parameter, 20 for SGD with momentum. Right after a backward pass some
 * of them may still be in a cache, so the rate may pass that of memory.
 */
#include "bench/bench.h"
#include "setup/plan.h"

#include "base/clock.h"
#include "bench/synthetic.h"

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

static void print_json(const nw_bench_settings *s, const nw_net *net, const measurement *m, const double *seconds,
                       nw_cpu_ticks before)
{
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "train");
    nw_json_put_string(&json, "model", net->options.model);
    nw_json_put_int(&json, "batch_size", net->options.batch_size);
    nw_json_put_double(&json, "images_per_second", m->images_per_second);
    nw_json_put_double(&json, "images_per_second_best", m->best);
    nw_json_put_array(&json, "step_seconds");
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
        nw_json_put_object(&json, "profile");
        for (int w = 0; w < NW_WORK_KINDS; w++) nw_json_put_double(&json, nw_work_text((nw_work)w), m->work_share[w]);
        nw_json_put_double(&json, "other", m->other_share);
        nw_json_object_end(&json);
        nw_json_put_double(&json, "update_ns_per_parameter", m->update_ns);
        nw_json_put_double(&json, "update_gb_per_second", m->update_bytes / m->update_ns);
    }
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static void print_table(const nw_bench_settings *s, const nw_net *net, const measurement *m, nw_cpu_ticks before)
{
    printf("model       %s, batch %d, %s on %s, %d thread%s\n", net->options.model, net->options.batch_size,
           nw_net_precision(net), nw_net_isa(net), nw_net_threads(net), nw_net_threads(net) == 1 ? "" : "s");
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

nw_status nw_bench_train(const nw_common_settings *all, const nw_model_settings *model, const nw_bench_settings *s)
{
    nw_net_options o = nw_plan_net_alone(all, model, model->batch_size);
    NW_CLEANUP(nw_synthetic_free) nw_synthetic synthetic = {0};
    NW_AUTOFREE double *seconds = malloc((size_t)s->steps * sizeof *seconds);
    NW_FAIL_IF(!seconds, NW_E_MEMORY, "no memory for the times of %d steps", s->steps);
    o.height = o.width = model->image_size;
    o.channels = 0; /* the model's own */
    o.classes = model->classes;
    o.learning_rate = 0.01f;
    NW_TRY(nw_plan_variant(model, &o.variant));
    NW_TRY(nw_synthetic_create(&synthetic, &o));
    nw_net *net = synthetic.net;
    if (nw_net_note(net)) fprintf(stderr, "nowait: %s\n", nw_net_note(net));
    net->model.pass.exec.profile = s->profile;

    nw_cpu_ticks before = nw_machine_ticks();
    measurement m = {0};
    NW_TRY(run_steps(net, synthetic.images, synthetic.labels, s->steps, seconds, &m));
    if (strcmp(s->format, "json") == 0)
        print_json(s, net, &m, seconds, before);
    else
        print_table(s, net, &m, before);
    return NW_OK;
}
