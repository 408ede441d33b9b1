/*
 * server_scale.c - what an update costs a parameter server of many workers, beyond the workers' own arithmetic.
 *
 *   build/server_scale [ROUNDS]
 *
 * Virtual clusters of 100 and of 1,000 workers of 200 and of 10,000 parameters, whose gradients cost nothing to compute:
 * what is left is the exchange (credits, queues, timers, messages, sums) and the simulator. Rounds of both sizes take
 * turns; the medians of processor time (of one thread: wall-clock time without what others take of it) for each gradient
 * that is applied are told, and their ratio, which does not depend on the speed of the machine. With 10,000 parameters it
 * is mostly memory: vectors of 100 workers fit a cache, those of 1,000 do not. bench/server_scale.py has the same with
 * the workers' arithmetic.
 */
#define _GNU_SOURCE
#include "exchange/exchange.h"
#include "sim/virtual.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { FEW = 100, MANY = 1000, GRADIENTS = 8 * MANY, ROUNDS_MOST = 99 };
static int floats = 200;

static void check(nw_status status)
{
    if (status == NW_OK) return;
    fprintf(stderr, "server_scale: %s\n", nw_error_message());
    exit(1);
}

static nw_status work(void *worker, nw_task *task, nw_announce *announce)
{
    (void)worker, (void)announce;
    for (size_t i = task->first; task->kind == NW_TASK_UPDATE && i < task->first + task->count; i++)
        task->values[i] -= 1e-3f * task->scale * task->gradient[i];
    return NW_OK;
}

static int cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker;
    if (most > 0) ns[0] = task->kind == NW_TASK_UPDATE ? 5000 : 1000000;
    return 1;
}

typedef struct setting {
    const char *name, *cluster;
    nw_exchange_options exchange;
} setting;

typedef struct world {
    int size;
    nw_cluster *cluster;
    nw_codec *codec;
    nw_driver *driver;
    nw_rank *ranks;
    nw_params *params;
    uint16_t *members;
} world;

static void make_rank(world *w, const nw_exchange_options *options, int r)
{
    static const nw_worker_ops ops = {work, cost, NULL, NULL};
    nw_exchange_options e = *options;
    nw_params *p = &w->params[r];
    nw_machine *exchange;
    int index, shape[] = {floats / 2};
    check(nw_segments_add(&p->learned, "a", NW_ROLE_LINEAR, 0, 1, 1, shape, &index));
    check(nw_segments_add(&p->learned, "b", NW_ROLE_LINEAR, 1, 1, 1, shape, &index));
    p->values = calloc(2 * (size_t)floats, sizeof *p->values);
    if (!p->values) exit(1);
    p->gradients = p->values + floats;
    for (int i = 0; i < floats; i++) p->gradients[i] = 1e-3f * (float)(r + 1);
    e.group = (nw_group){w->members, w->size, r};
    e.params = p;
    e.layout.codec = w->codec;
    e.accumulation = 1;
    check(nw_exchange_create(&exchange, &e));
    w->ranks[r] = (nw_rank){.index = r, .work = &ops};
    check(nw_passes_create(&w->ranks[r].machine, exchange, p, 1));
}

static void make_world(world *w, const setting *s, int workers)
{
    nw_driver_options options = {.timeout_ns = s->exchange.deadline_ns};
    *w = (world){.size = workers + s->exchange.servers};
    w->ranks = calloc((size_t)w->size, sizeof *w->ranks);
    w->params = calloc((size_t)w->size, sizeof *w->params);
    w->members = calloc((size_t)w->size, sizeof *w->members);
    if (!w->ranks || !w->params || !w->members) exit(1);
    check(nw_cluster_builtin(&w->cluster, s->cluster, w->size));
    check(nw_codec_create(&w->codec, &(nw_codec_options){.name = "none"}));
    for (int r = 0; r < w->size; r++) w->members[r] = (uint16_t)r;
    for (int r = 0; r < w->size; r++) make_rank(w, &s->exchange, r);
    nw_virtual_options v = {.cluster = w->cluster, .touch_bytes_per_second = 10e9};
    check(nw_virtual_create(&w->driver, &options, &v));
}

static void free_world(world *w)
{
    for (int r = 0; r < w->size; r++) {
        nw_exchange_free(w->ranks[r].machine);
        free(w->params[r].values);
        free(w->params[r].learned.at);
    }
    nw_driver_free(w->driver);
    nw_codec_free(w->codec);
    nw_cluster_free(w->cluster);
    free(w->ranks);
    free(w->params);
    free(w->members);
}

static double processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Microseconds for each gradient, after as many of each worker that all memory was touched. */
static double measure(const setting *s, int workers)
{
    world w;
    int64_t each = s->exchange.sync ? workers : 1, warm = 2 * workers / each, until = warm + GRADIENTS / each;
    make_world(&w, s, workers);
    check(nw_driver_run(w.driver, w.ranks, &(nw_go){.until = warm, .batches = INT64_MAX}));
    double begin = processor_us();
    check(nw_driver_run(w.driver, w.ranks, &(nw_go){.until = until, .batches = INT64_MAX}));
    double us = (processor_us() - begin) / GRADIENTS;
    free_world(&w);
    return us;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[count / 2];
}

static void compare(const setting *s, int rounds)
{
    double few[ROUNDS_MOST], many[ROUNDS_MOST];
    for (int i = 0; i < rounds; i++) {
        few[i] = measure(s, FEW);
        many[i] = measure(s, MANY);
    }
    double a = median(few, rounds), b = median(many, rounds);
    printf("%-28s %10.1f %10.1f %8.2f\n", s->name, a, b, b / a);
    fflush(stdout);
}

int main(int argc, char **argv)
{
#define SERVER .name = "server", .deadline_ns = 60000000000, .layout.bucket_bytes = 1024
    const setting settings[] = {
        {"async", "10g", {SERVER, .max_staleness = -1, .servers = 1}},
        {"async, server is slow", "ideal", {SERVER, .max_staleness = -1, .servers = 1}},
        {"async, staleness 200", "10g", {SERVER, .max_staleness = 200, .servers = 1}},
        {"async, dc-asgd",
         "10g",
         {SERVER, .max_staleness = -1, .correction = NW_CORRECT_DC, .dc_lambda = 0.04, .servers = 1}},
        {"async, 4 servers", "10g", {SERVER, .max_staleness = -1, .servers = 4}},
        {"sync", "10g", {SERVER, .max_staleness = -1, .sync = true, .servers = 1}},
        {"sync, 4 servers", "10g", {SERVER, .max_staleness = -1, .sync = true, .servers = 4}},
    };
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (rounds < 1 || rounds > ROUNDS_MOST) return fprintf(stderr, "usage: server_scale [ROUNDS]\n"), 2;
    for (; floats <= 10000; floats *= 50) {
        printf("us per gradient, %5d parameters%8d%11d workers   ratio\n", floats, FEW, MANY);
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) compare(&settings[i], rounds);
    }
    return 0;
}
