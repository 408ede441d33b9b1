/*
 * calibrate.c - see calibrate.h.
 *
 * Each time is the median over STEPS steps of all ranks, after WARM that do not count: of every stage's forward and
 * backward pass, of what no stage owns (taking in the images, the loss), of an update. A median drops what disturbs a
 * stage now and then, but a step of many stages is always disturbed somewhere: so the times of stages are stretched
 * until they add up to the median of whole steps. How much whole steps differ among each other is the noise; ranks that
 * wait for each other take the slowest. Memory is measured as exchanges use it: received values are added to a vector
 * that is not in the caches, and what is read and written counts. Links: messages to and fro between ranks 0 and 1, a
 * short one for the latency and one of a bucket's size for the bandwidth.
 */
#include "bench/calibrate.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "bench/bench.h"
#include "bench/factors.h"
#include "config/cluster_file.h"
#include "codec/run.h"
#include "net/mpi.h"
#include "bench/synthetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 2, STEPS = 9, TOUCHED = 8 << 20 /* floats */, SHORT = 64, LONG = 4 << 20, PINGS = 20 };

/* Columns: stages forward, stages backward, overhead, update. */
typedef struct times {
    int stages;
    double *at; /* [column][step] */
} times;

static int columns(const times *t) { return 2 * t->stages + 2; }
static double *column(const times *t, int index) { return t->at + (size_t)index * STEPS; }

static void take_step(const times *t, int step, int64_t begin, int64_t end, const int64_t *marks)
{
    int64_t last = begin, owned = 0;
    for (int i = 0; i < 2 * t->stages; i++) {
        /* backward runs from the last stage to the first; the loss lies before it */
        int stage = i < t->stages ? i : 2 * t->stages - 1 - (i - t->stages);
        int64_t spent = marks[stage] - last;
        column(t, stage)[step] = (double)spent;
        owned += spent;
        last = marks[stage];
    }
    column(t, 2 * t->stages)[step] = (double)(end - begin - owned);
}

static nw_status measure_steps(nw_synthetic *d, times *t)
{
    NW_AUTOFREE int64_t *marks = calloc(2 * (size_t)t->stages, sizeof *marks);
    NW_FAIL_IF(!marks, NW_E_MEMORY, "no memory for the times of %d stages", t->stages);
    for (int i = -WARM; i < STEPS; i++) {
        int64_t begin = nw_now_ns();
        NW_TRY(nw_synthetic_compute(d, marks));
        int64_t computed = nw_now_ns();
        NW_TRY(nw_net_apply(d->net, 1e-6, 1.0));
        if (i < 0) continue;
        take_step(t, i, begin, computed, marks);
        column(t, 2 * t->stages + 1)[i] = (double)(nw_now_ns() - computed);
    }
    return NW_OK;
}

/* Adding what a message holds to a vector. */
static nw_status measure_touch(double *bytes_per_second)
{
    NW_AUTOFREE float *sum = calloc(TOUCHED, sizeof *sum), *in = calloc(TOUCHED, sizeof *in);
    NW_FAIL_IF(!sum || !in, NW_E_MEMORY, "no memory to measure memory");
    NW_CLEANUP(nw_block_free) nw_block block = {0};
    NW_TRY(nw_block_make(&block, &nw_codec_plain, &(nw_extent){0, TOUCHED, 0, 1}, 1, (size_t[]){0, TOUCHED}, 1, 0));
    double seconds[STEPS];
    for (size_t i = 0; i < TOUCHED; i++) sum[i] = in[i] = 1e-6f; /* memory of their own */
    nw_decoding d = {.block = &block, .codec = block.codec, .in = (uint8_t *)in, .bytes = TOUCHED * sizeof *in};
    for (int i = -WARM; i < STEPS; i++) {
        int64_t begin = nw_now_ns();
        NW_TRY(nw_codec_decode(&d, sum, NW_AT_FIRST, true, NULL));
        if (i >= 0) seconds[i] = nw_seconds(nw_now_ns() - begin);
    }
    *bytes_per_second = 3.0 * TOUCHED * sizeof(float) / nw_median(seconds, STEPS);
    return NW_OK;
}

static nw_status measure_link(nw_measured *c)
{
    double brief[STEPS], longer[STEPS];
    for (int i = 0; i < STEPS; i++) {
        NW_TRY(nw_mpi_ping(SHORT, 10 * PINGS, &brief[i]));
        NW_TRY(nw_mpi_ping(LONG, PINGS, &longer[i]));
    }
    nw_median(brief,
              STEPS); /* sorts; the best counts, since ranks that wait here spin, and neighbours take their cores */
    nw_median(longer, STEPS);
    double latency = brief[0], transfer = fmax(longer[0] - latency, 0.5 * longer[0]);
    c->link_latency_ns = (int64_t)(latency * 1e9);
    c->link_bytes_per_second = LONG / transfer;
    return NW_OK;
}

/* Of the steps of all ranks: [rank][column][step]. */
typedef struct pooled {
    int ranks;
    double *at, *samples; /* a column of all ranks, or whole steps */
} pooled;

static const double *steps_of(const pooled *p, const times *t, int rank, int index)
{
    return p->at + ((size_t)rank * (size_t)columns(t) + (size_t)index) * STEPS;
}

static double median_of(const pooled *p, const times *t, int index)
{
    for (int r = 0; r < p->ranks; r++)
        memcpy(p->samples + (size_t)r * STEPS, steps_of(p, t, r, index), STEPS * sizeof *p->samples);
    return nw_median(p->samples, p->ranks * STEPS);
}

/* Median time of whole passes, and by how much, as a deviation of its logarithm, a step differs from it. */
static double median_pass(const pooled *p, const times *t, double *noise)
{
    int count = p->ranks * STEPS;
    for (int i = 0; i < count; i++) {
        p->samples[i] = 0;
        for (int k = 0; k < columns(t) - 1; k++) p->samples[i] += steps_of(p, t, i / STEPS, k)[i % STEPS];
    }
    double median = nw_median(p->samples, count), sum = 0;
    for (int i = 0; i < count; i++) sum += log(p->samples[i] / median) * log(p->samples[i] / median);
    *noise = fmin(sqrt(sum / (count - 1)), 1.0);
    return median;
}

static void find_times(const pooled *p, const times *t, const nw_model *model, nw_measured *c)
{
    double sum = 0, pass = median_pass(p, t, &c->noise);
    for (int k = 0; k < columns(t) - 1; k++) sum += median_of(p, t, k);
    double stretch = pass / sum;
    for (int s = 0; s < t->stages; s++) {
        c->stage[s].name = model->stages[s]->name;
        c->stage[s].forward_ns = (int64_t)(stretch * median_of(p, t, s));
        c->stage[s].backward_ns = (int64_t)(stretch * median_of(p, t, t->stages + s));
    }
    c->overhead_ns = (int64_t)(stretch * median_of(p, t, 2 * t->stages));
    c->update_ns = (int64_t)median_of(p, t, 2 * t->stages + 1);
}

static nw_status measure_times(const nw_world *w, nw_synthetic *d, nw_measured *c)
{
    times t = {.stages = d->net->model.count};
    size_t count = (size_t)columns(&t) * STEPS, ranks = (size_t)w->size;
    NW_AUTOFREE double *own = calloc(count, sizeof *own), *all = calloc(ranks * count, sizeof *all);
    NW_AUTOFREE double *samples = calloc(ranks * STEPS, sizeof *samples);
    NW_FAIL_IF(!own || !all || !samples, NW_E_MEMORY, "no memory for the times of %d stages", t.stages);
    t.at = own;
    NW_TRY(measure_steps(d, &t));
    if (w->mode == NW_REPLICAS_MPI)
        NW_TRY(nw_mpi_allgather(own, count * sizeof *own, all));
    else
        memcpy(all, own, count * sizeof *own);
    find_times(&(pooled){w->size, all, samples}, &t, &d->net->model, c);
    return NW_OK;
}

static nw_status fill_measured(const nw_train_options *s, const nw_world *w, nw_synthetic *d, nw_measured *c)
{
    NW_TRY(measure_times(w, d, c));
    NW_TRY(measure_touch(&c->memory_bytes_per_second));
    NW_TRY(nw_bench_factors(s, d, c->memory_bytes_per_second, &c->codecs));
    return w->mode == NW_REPLICAS_MPI ? measure_link(c) : NW_OK;
}

/* ---- the file ---- */

static nw_status fill_file(FILE *out, void *measured)
{
    nw_measured_print(measured, out);
    return NW_OK;
}

static void say(const nw_measured *m, const char *path)
{
    int64_t pass = m->overhead_ns;
    for (int i = 0; i < m->stages; i++) pass += m->stage[i].forward_ns + m->stage[i].backward_ns;
    printf("%s: a batch of %d takes %.1f ms (noise %.1f %%), an update %.1f ms; memory %.1f GB/s", path, m->batch,
           (double)pass * 1e-6, 100 * m->noise, (double)m->update_ns * 1e-6, m->memory_bytes_per_second * 1e-9);
    if (m->link_bytes_per_second > 0)
        printf("; link %.1f us, %.1f GB/s", (double)m->link_latency_ns * 1e-3, m->link_bytes_per_second * 1e-9);
    printf("\n");
}

nw_status nw_calibrate(const nw_train_options *s, const nw_world *w, const nw_net_options *net)
{
    NW_CLEANUP(nw_synthetic_free) nw_synthetic d = {0};
    const char *end = strrchr(s->world.calibrate, '.');
    NW_FAIL_IF(w->mode == NW_REPLICAS_VIRTUAL, NW_E_ARGUMENT,
               "--calibrate measures a real machine; leave out --virtual and --cluster");
    NW_FAIL_IF(!end || strcmp(end, ".yaml") != 0, NW_E_ARGUMENT,
               "--calibrate writes a cluster file, whose name ends in .yaml: --calibrate %s.yaml", s->world.calibrate);
    nw_net_options options = *net;
    options.batch_size = s->net.batch_size;
    NW_TRY(nw_synthetic_create(&d, &options));
    int stages = d.net->model.count;
    NW_AUTOFREE nw_measured_stage *stage = calloc((size_t)stages, sizeof *stage);
    NW_FAIL_IF(!stage, NW_E_MEMORY, "no memory for the times of %d stages", stages);
    nw_measured m = {.isa = nw_net_isa(d.net),
                     .precision = nw_net_precision(d.net),
                     .model = d.net->model.options.name,
                     .batch = s->net.batch_size,
                     .threads = nw_net_threads(d.net),
                     .ranks = w->size,
                     .stages = stages,
                     .stage = stage};
    nw_machine_cpu_name(m.machine, sizeof m.machine);
    nw_status status = fill_measured(s, w, &d, &m);
    if (status == NW_OK && nw_world_leads(w)) {
        status = nw_file_replace_by(s->world.calibrate, fill_file, &m);
        if (status == NW_OK && !s->all.quiet) say(&m, s->world.calibrate);
    }
    free(m.codecs.at);
    return status;
}
