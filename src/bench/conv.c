/*
 * conv.c - `nowait bench conv`: each different convolution of a model, in its three directions, against the peak.
 *
 * The peak (peak.h) is measured in every round between the layers, so that both see the same neighbours; the best of
 * all rounds counts on either side. Times include weight packing, transforms and layout moves. GFLOP/s count every tap,
 * as everybody does; "of peak" counts them too, so that it may pass 100 % where Winograd's algorithm needs fewer
 * products, and "executed" counts only what is really multiplied.
 */
#include "bench/bench.h"
#include "setup/plan.h"

#include "base/clock.h"
#include "base/rng.h"
#include "compute/isa.h"
#include "nn/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = 64 };

typedef struct layer {
    nw_conv conv;
    int times;          /* how often the model has it */
    double executed[3]; /* share of the products that is really computed */
    double best[3];     /* seconds */
    nw_tensor x, y, dx, g;
    float *w, *dw;
    float *x_scale, *x_shift, *c1, *c2, *c3;
    float *sums; /* moments, or the sink's sums */
} layer;

typedef struct bench {
    const nw_model_settings *net;
    const nw_bench_settings *asked;
    nw_model model;
    nw_exec exec;
    nw_arena arena;
    layer layers[MAX_LAYERS];
    int count;
    double peak; /* operations per second, the best */
} bench;

static void collect(bench *b)
{
    for (int i = 0; i < b->model.count; i++) {
        const nw_stage *stage = b->model.stages[i];
        for (int u = 0; u < stage->unit_count; u++) {
            const nw_unit *unit = stage->units[u];
            const nw_conv *v = &unit->conv;
            int at = 0;
            if (unit->linear || unit->weight < 0) continue;
            while (at < b->count && memcmp(&b->layers[at].conv, v, sizeof *v)) at++;
            if (at == MAX_LAYERS) continue;
            if (at == b->count) {
                b->layers[b->count++] = (layer){.conv = *v, .best = {INFINITY, INFINITY, INFINITY}};
                for (nw_direction d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++)
                    b->layers[at].executed[d] =
                        2 * b->exec.kernels->conv_products(v, b->net->batch_size, d, b->exec.direct) /
                        nw_conv_flops(v, b->net->batch_size);
            }
            b->layers[at].times++;
        }
    }
}

static void bind(bench *b, nw_arena *arena)
{
    const nw_builder *builder = &b->model.builder;
    nw_dtype dtype = builder->kernels->dtype;
    b->exec.worker_bytes = nw_align_up(builder->need.worker);
    b->exec.worker_scratch = nw_arena_alloc(arena, (size_t)builder->threads * b->exec.worker_bytes);
    b->exec.shared_scratch = nw_arena_alloc(arena, builder->need.shared);
    for (int i = 0; i < b->count; i++) {
        layer *l = &b->layers[i];
        const nw_conv *v = &l->conv;
        l->x = nw_tensor_alloc(arena, builder->n, v->c, v->h, v->w, builder->block, dtype);
        l->dx = nw_tensor_alloc(arena, builder->n, v->c, v->h, v->w, builder->block, dtype);
        l->y = nw_tensor_alloc(arena, builder->n, v->k, v->oh, v->ow, builder->block, dtype);
        l->g = nw_tensor_alloc(arena, builder->n, v->k, v->oh, v->ow, builder->block, dtype);
        l->w = nw_arena_alloc(arena, nw_conv_weights(v) * sizeof(float));
        l->dw = nw_arena_alloc(arena, nw_conv_weights(v) * sizeof(float));
        float **vectors[] = {&l->x_scale, &l->x_shift, &l->c1, &l->c2, &l->c3};
        for (int j = 0; j < 5; j++)
            *vectors[j] = nw_arena_alloc(arena, (size_t)nw_max(l->x.pitch, l->y.pitch) * sizeof(float));
        size_t moments = nw_moments_floats(&l->y), sums = 2 * nw_sums_floats(&l->x);
        l->sums = nw_arena_alloc(arena, (moments > sums ? moments : sums) * sizeof(float));
    }
}

static void fill_tensor(nw_tensor *t, uint64_t stream)
{
    size_t count = nw_tensor_bytes(t) / nw_dtype_bytes(t->dtype);
    nw_rng rng = nw_rng_make(0, NW_PURPOSE_TEST, stream, 0);
    for (size_t i = 0; i < count; i++) {
        float x = (int)(i % (size_t)t->pitch) < t->c ? 2 * nw_rng_uniform(&rng) - 1 : 0;
        if (t->dtype == NW_F32)
            ((float *)t->data)[i] = x;
        else
            ((nw_bf16 *)t->data)[i] = nw_bf16_from_f32(x);
    }
}

static void fill_operands(bench *b)
{
    for (int i = 0; i < b->count; i++) {
        layer *l = &b->layers[i];
        fill_tensor(&l->x, 1);
        fill_tensor(&l->y, 2);
        fill_tensor(&l->g, 3);
        nw_rng rng = nw_rng_make(0, NW_PURPOSE_TEST, 4, 0);
        for (size_t j = 0; j < nw_conv_weights(&l->conv); j++) l->w[j] = 0.1f * nw_rng_normal(&rng);
        for (int c = 0; c < l->x.c; c++) l->x_scale[c] = 1.1f, l->x_shift[c] = 0.1f;
        for (int c = 0; c < l->y.c; c++) l->c1[c] = 0.9f, l->c2[c] = 0.01f, l->c3[c] = -0.1f;
    }
}

static double run_direction(bench *b, layer *l, nw_direction direction)
{
    const nw_kernels *k = b->exec.kernels;
    bool fused = b->asked->fused;
    nw_source x = nw_source_plain(&l->x), dy = nw_source_plain(&l->g);
    nw_moments moments = {l->sums};
    nw_sink sink = {0};
    if (fused) {
        x.a = (nw_view){.t = &l->x, .scale = l->x_scale, .shift = l->x_shift, .relu = true};
        dy = (nw_source){.a = {.t = &l->g, .scale = l->c1, .shift = l->c2}, .b = {.t = &l->y, .scale = l->c3}};
        sink = (nw_sink){.gate = x.a, .sum_g = l->sums};
        sink.norm[0] = (nw_norm_sums){.y = &l->x, .mean = l->x_shift, .sum_gy = l->sums + nw_sums_floats(&l->x)};
    }
    int64_t start = nw_now_ns();
    switch (direction) {
    case NW_FORWARD:
        k->conv_forward(&b->exec, &l->conv, &x, l->w, NULL, &l->y, fused ? &moments : NULL, NW_WORK_CONV_FORWARD);
        break;
    case NW_BACKWARD_DATA:
        k->conv_backward_data(&b->exec, &l->conv, &dy, l->w, &l->dx, fused ? &sink : NULL, NW_WORK_CONV_DATA);
        break;
    case NW_BACKWARD_WEIGHTS:
        k->conv_backward_weights(&b->exec, &l->conv, &x, &dy, l->dw, NULL, false, NW_WORK_CONV_WEIGHTS);
        break;
    }
    return nw_seconds(nw_now_ns() - start);
}

static void measure(bench *b)
{
    int iterations = 1;
    for (int round = -1; round < b->asked->repeats; round++)
        for (int i = 0; i < b->count; i++) {
            b->peak = fmax(b->peak, nw_bench_peak(&b->exec, &iterations));
            for (nw_direction d = NW_FORWARD; d <= NW_BACKWARD_WEIGHTS; d++) {
                double s = run_direction(b, &b->layers[i], d);
                if (round >= 0) b->layers[i].best[d] = fmin(b->layers[i].best[d], s);
            }
        }
}

/* Geometric mean over the model's convolutions of the share of the peak; the gathered first layer is left out, as its
 * reduction is too short to tell anything about the kernels. */
static double mean_share(const bench *b, nw_direction d, bool executed)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < b->count; i++) {
        const layer *l = &b->layers[i];
        if (l->conv.c < 16) continue;
        double share = nw_conv_flops(&l->conv, b->net->batch_size) / l->best[d] / b->peak;
        sum += l->times * log(executed ? share * l->executed[d] : share);
        n += l->times;
    }
    return n ? exp(sum / n) : 0;
}

static const char *const direction_text[] = {"forward", "backward data", "backward weights"};

static void print_table(const bench *b, nw_cpu_ticks before)
{
    printf("%s, batch %d, %s on %s, %d thread(s), %s; peak %.1f GFLOP/s\n", b->net->model, b->net->batch_size,
           b->exec.kernels->dtype == NW_BF16 ? "bf16" : "f32", b->exec.kernels->isa, nw_pool_threads(b->exec.pool),
           b->asked->fused ? "fused as in training" : "plain", b->peak * 1e-9);
    printf("%-30s %5s  %-17s %9s %9s %8s %9s\n", "layer", "times", "direction", "ms", "GFLOP/s", "of peak", "executed");
    for (int i = 0; i < b->count; i++) {
        const layer *l = &b->layers[i];
        const nw_conv *v = &l->conv;
        char name[64];
        snprintf(name, sizeof name, "%dx%dx%d -> %d, %dx%d/%d", v->c, v->h, v->w, v->k, v->r, v->s, v->stride);
        for (int d = 0; d < 3; d++) {
            double flops = nw_conv_flops(v, b->net->batch_size) / l->best[d];
            printf("%-30s %5d  %-17s %9.3f %9.1f %6.1f %% %7.1f %%\n", d ? "" : name, l->times, direction_text[d],
                   l->best[d] * 1e3, flops * 1e-9, 100 * flops / b->peak, 100 * flops / b->peak * l->executed[d]);
        }
    }
    printf("geometric mean of the peak (executed), layers of 16 and more channels:\n");
    for (int d = 0; d < 3; d++)
        printf("  %-17s %5.1f %% (%.1f %%)\n", direction_text[d], 100 * mean_share(b, (nw_direction)d, false),
               100 * mean_share(b, (nw_direction)d, true));
    nw_bench_machine_table(before);
}

static void print_json(const bench *b, nw_cpu_ticks before)
{
    static const char *const key[] = {"forward", "backward_data", "backward_weights"};
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "conv");
    nw_json_put_string(&json, "model", b->net->model);
    nw_json_put_int(&json, "batch_size", b->net->batch_size);
    nw_json_put_string(&json, "precision", b->exec.kernels->dtype == NW_BF16 ? "bf16" : "f32");
    nw_json_put_string(&json, "isa", b->exec.kernels->isa);
    nw_json_put_int(&json, "threads", nw_pool_threads(b->exec.pool));
    nw_json_put_bool(&json, "fused", b->asked->fused);
    nw_json_put_string(&json, "convolution", b->net->convolution);
    nw_json_put_double(&json, "peak_gflops", b->peak * 1e-9);
    nw_json_put_array(&json, "layers");
    for (int i = 0; i < b->count; i++) {
        const layer *l = &b->layers[i];
        const nw_conv *v = &l->conv;
        nw_json_object(&json);
        const struct {
            const char *key;
            int value;
        } shape[] = {{"c", v->c}, {"h", v->h},           {"w", v->w},     {"k", v->k},        {"r", v->r},
                     {"s", v->s}, {"stride", v->stride}, {"pad", v->pad}, {"times", l->times}};
        for (size_t j = 0; j < sizeof shape / sizeof shape[0]; j++)
            nw_json_put_int(&json, shape[j].key, shape[j].value);
        for (int d = 0; d < 3; d++) {
            double flops = nw_conv_flops(v, b->net->batch_size) / l->best[d];
            nw_json_put_object(&json, key[d]);
            nw_json_put_double(&json, "ms", l->best[d] * 1e3);
            nw_json_put_double(&json, "gflops", flops * 1e-9);
            nw_json_put_double(&json, "percent_of_peak", 100 * flops / b->peak);
            nw_json_put_double(&json, "percent_executed", 100 * flops / b->peak * l->executed[d]);
            nw_json_object_end(&json);
        }
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    nw_json_put_object(&json, "geometric_mean_percent_of_peak");
    for (int d = 0; d < 3; d++) nw_json_put_double(&json, key[d], 100 * mean_share(b, (nw_direction)d, false));
    nw_json_object_end(&json);
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static nw_status run_conv_bench(bench *b, int threads)
{
    const nw_model_settings *net = b->net;
    const nw_kernels *kernels;
    const char *note;
    NW_TRY(nw_isa_select(nw_settings_precision(net), &kernels, &note));
    if (note) fprintf(stderr, "nowait: %s\n", note);
    NW_TRY(nw_pool_create(&b->exec.pool, threads));
    nw_model_options o = {.name = net->model,
                          .height = net->image_size,
                          .width = net->image_size,
                          .classes = net->classes,
                          .base_width = net->width};
    NW_TRY(nw_plan_variant(net, &o.variant));
    NW_TRY(nw_model_make(&b->model, &o, kernels, net->batch_size, threads));
    b->exec.kernels = kernels;
    b->exec.direct = nw_settings_direct(net);
    collect(b);
    nw_arena measure_arena = nw_arena_measure();
    bind(b, &measure_arena);
    NW_TRY(nw_arena_create(&b->arena, measure_arena.used));
    bind(b, &b->arena);
    fill_operands(b);
    nw_cpu_ticks before = nw_machine_ticks();
    measure(b);
    if (strcmp(b->asked->format, "json") == 0)
        print_json(b, before);
    else
        print_table(b, before);
    return NW_OK;
}

nw_status nw_bench_conv(const nw_common_settings *all, const nw_model_settings *net, const nw_bench_settings *asked)
{
    NW_AUTOFREE bench *b = calloc(1, sizeof *b);
    NW_FAIL_IF(!b, NW_E_MEMORY, "no memory for the benchmark");
    b->net = net;
    b->asked = asked;
    nw_status status = run_conv_bench(b, all->threads ? all->threads : nw_machine_allowed_cpus());
    nw_model_free(&b->model);
    if (b->exec.pool) nw_pool_free(b->exec.pool);
    if (b->arena.base) nw_arena_destroy(&b->arena);
    return status;
}
