/*
 * exchange.c - `mpirun -np N nowait bench exchange`: what exchanging gradients costs.
 *
 * Two questions, each answered by contestants that take turns in --repeats rounds of --steps steps; medians count, and
 * the ratios are those of the medians:
 *   alone     gradients of the model's size, nothing computed: bytes/s of the exchange beside MPI_Allreduce's of the same
 *             bytes in one call. Bytes are those of the gradient, not those that travel.
 *   training  images/s of all ranks with the exchange, beside the same ranks at the same time without any.
 */
#include "bench/bench.h"
#include "setup/plan.h"
#include "setup/plan_codec.h"

#include "base/clock.h"
#include "net/mpi.h"
#include "bench/synthetic.h"

#include <stdlib.h>
#include <string.h>

typedef enum contestant { OURS, MPI, WITH, WITHOUT, CONTESTANTS } contestant;

typedef struct bench {
    const nw_common_settings *all;
    const nw_model_settings *net;
    const nw_exchange_settings *exchange;
    const nw_codec_settings *method;
    const nw_bench_settings *asked;
    int rank, size;
    nw_synthetic synthetic;
    nw_assign_options codecs;
    nw_assignment assignment;
    nw_driver *driver, *local;
    nw_rank together, alone;
    uint16_t ranks[NW_CLUSTER_RANKS];
    float *sum;                   /* of MPI */
    double *seconds[CONTESTANTS]; /* a step, of each round */
} bench;

static nw_status run_steps(bench *b, nw_driver *driver, nw_rank *rank, bool pretends)
{
    int steps = b->asked->steps;
    nw_go go = {.until = rank->machine->updates + steps, .batches = steps, .drain = true};
    b->synthetic.pretends = pretends;
    return nw_driver_run(driver, rank, &go);
}

static nw_status run_contestant(bench *b, contestant c)
{
    const nw_params *p = &b->synthetic.net->model.params;
    if (c == OURS) return run_steps(b, b->driver, &b->together, true);
    if (c == WITH) return run_steps(b, b->driver, &b->together, false);
    if (c == WITHOUT) return run_steps(b, b->local, &b->alone, false);
    for (int i = 0; i < b->asked->steps; i++) NW_TRY(nw_mpi_allreduce(p->gradients, b->sum, p->learned.floats));
    return NW_OK;
}

static nw_status measure(bench *b)
{
    for (int round = -1; round < b->asked->repeats; round++) {
        for (contestant c = 0; c < CONTESTANTS; c++) {
            NW_TRY(nw_mpi_barrier());
            int64_t begin = nw_now_ns();
            NW_TRY(run_contestant(b, c));
            NW_TRY(nw_mpi_barrier()); /* the slowest counts */
            if (round >= 0) b->seconds[c][round] = nw_seconds(nw_now_ns() - begin) / b->asked->steps;
        }
    }
    return NW_OK;
}

static void print_result(bench *b, nw_cpu_ticks before)
{
    const nw_exchange_settings *s = b->exchange;
    double median[CONTESTANTS], bytes = (double)b->synthetic.net->model.params.learned.floats * sizeof(float);
    double images = (double)b->net->batch_size * b->size;
    for (int c = 0; c < CONTESTANTS; c++) median[c] = nw_median(b->seconds[c], b->asked->repeats);
    if (strcmp(b->asked->format, "json") == 0) {
        nw_json json = nw_json_begin(stdout, true);
        nw_json_object(&json);
        nw_json_put_string(&json, "benchmark", "exchange");
        nw_json_put_string(&json, "model", b->net->model);
        nw_json_put_int(&json, "batch_size", b->net->batch_size);
        nw_json_put_int(&json, "world_size", b->size);
        nw_json_put_int(&json, "threads", nw_net_threads(b->synthetic.net));
        nw_json_put_string(&json, "exchange", "allreduce");
        nw_json_put_string(&json, "method", b->method->method);
        nw_json_put_int(&json, "delay", s->delay);
        nw_json_put_int(&json, "bucket_bytes", s->bucket_bytes);
        nw_json_put_double(&json, "gradient_bytes", bytes);
        nw_json_put_double(&json, "exchange_gb_per_second", bytes / median[OURS] * 1e-9);
        nw_json_put_double(&json, "mpi_allreduce_gb_per_second", bytes / median[MPI] * 1e-9);
        nw_json_put_double(&json, "exchange_over_mpi", median[MPI] / median[OURS]);
        nw_json_put_double(&json, "images_per_second_with", images / median[WITH]);
        nw_json_put_double(&json, "images_per_second_without", images / median[WITHOUT]);
        nw_json_put_double(&json, "with_over_without", median[WITHOUT] / median[WITH]);
        nw_json_put_int(&json, "steps", b->asked->steps);
        nw_json_put_int(&json, "repeats", b->asked->repeats);
        nw_json_put_string(&json, "mpi", nw_mpi_library());
        nw_bench_machine_json(&json, before);
        nw_json_object_end(&json);
        nw_json_end(&json);
        return;
    }
    printf("%s, batch %d per rank, %d ranks of %d threads, gradient %.1f MB, method %s, delay %d\n", b->net->model,
           b->net->batch_size, b->size, nw_net_threads(b->synthetic.net), bytes * 1e-6, b->method->method, s->delay);
    printf("%-28s %8.2f GB/s\n", "MPI_Allreduce alone", bytes / median[MPI] * 1e-9);
    printf("%-28s %8.2f GB/s   %.3f of it\n", "this exchange alone", bytes / median[OURS] * 1e-9,
           median[MPI] / median[OURS]);
    printf("%-28s %8.2f images/s\n", "training without exchange", images / median[WITHOUT]);
    printf("%-28s %8.2f images/s   %.3f of it\n", "training with exchange", images / median[WITH],
           median[WITHOUT] / median[WITH]);
    printf("median of %d rounds of %d steps; %s\n", b->asked->repeats, b->asked->steps, nw_mpi_library());
    nw_bench_machine_table(before);
}

static nw_status make_rank(bench *b, const nw_exchange_options *options, nw_rank *rank)
{
    nw_machine *exchange;
    *rank = (nw_rank){.index = options->group.me, .worker = &b->synthetic, .work = &nw_synthetic_work};
    NW_TRY(nw_exchange_create(&exchange, options));
    NW_TRY_OR(nw_passes_create(&rank->machine, exchange, options->params, 1), nw_exchange_free(exchange));
    return NW_OK;
}

static nw_status prepare(bench *b)
{
    const nw_exchange_settings *s = b->exchange;
    nw_net_options o = nw_plan_net_alone(b->all, b->net, b->net->batch_size);
    o.classes = b->net->classes ? b->net->classes : 10;
    if (b->net->image_size) o.height = o.width = b->net->image_size;
    NW_TRY(nw_mpi_start((int64_t)(s->timeout * 1e9), &b->rank, &b->size));
    NW_FAIL_IF(b->size < 2, NW_E_ARGUMENT, "an exchange needs two ranks; run 'mpirun -np 2 nowait bench exchange'");
    NW_TRY(nw_synthetic_create(&b->synthetic, &o));
    NW_TRY(nw_plan_codecs(b->method, "allreduce", NULL, (uint64_t)b->all->seed, &b->codecs));
    NW_TRY(nw_assign_make(&b->assignment, &b->codecs, &b->synthetic.net->model.params.learned));
    for (int i = 0; i < b->size; i++) b->ranks[i] = (uint16_t)i;
    nw_exchange_options e = {.name = "allreduce",
                             .group = {b->ranks, b->size, b->rank},
                             .params = &b->synthetic.net->model.params,
                             .layout.bucket_bytes = (size_t)s->bucket_bytes,
                             .memory = b->codecs.memory,
                             .pool = b->synthetic.net->model.pass.exec.pool,
                             .delay = s->delay};
    nw_assign_fill(&b->assignment, &b->codecs, &e.layout);
    nw_exchange_options none = {.name = "none", .group = {b->ranks, 1, 0}, .params = e.params};
    NW_TRY(make_rank(b, &e, &b->together));
    NW_TRY(make_rank(b, &none, &b->alone));
    nw_driver_options d = {.timeout_ns = (int64_t)(s->timeout * 1e9)};
    NW_TRY(nw_mpi_create(&b->driver, &d));
    NW_TRY(nw_local_create(&b->local, &d));
    NW_NEW(b->sum, b->synthetic.net->model.params.learned.floats, "a gradient");
    for (int c = 0; c < CONTESTANTS; c++) {
        NW_NEW(b->seconds[c], b->asked->repeats, "%d times", b->asked->repeats);
    }
    return NW_OK;
}

nw_status nw_bench_exchange(const nw_common_settings *all, const nw_model_settings *net,
                            const nw_exchange_settings *exchange, const nw_codec_settings *method,
                            const nw_bench_settings *asked)
{
    bench b = {.all = all, .net = net, .exchange = exchange, .method = method, .asked = asked};
    nw_cpu_ticks before = nw_machine_ticks();
    nw_status status = prepare(&b);
    if (status == NW_OK) status = measure(&b);
    if (status == NW_OK && b.rank == 0) print_result(&b, before);
    nw_exchange_free(b.together.machine);
    nw_exchange_free(b.alone.machine);
    nw_driver_free(b.driver);
    nw_driver_free(b.local);
    nw_assign_free(&b.assignment);
    nw_plan_codecs_free(&b.codecs);
    for (int c = 0; c < CONTESTANTS; c++) free(b.seconds[c]);
    free(b.sum);
    nw_synthetic_free(&b.synthetic);
    return status;
}
