/*
 * gossip_scale.c - how many pairs a second the simulator averages.
 *
 *   build/gossip_scale [MEMBERS [FLOATS [ROUNDS]]]      1024 members of 10,000 floats, 3 rounds
 *
 * A virtual cluster on the exponential graph, whose gradients and updates cost nothing, so that what is left is averaging:
 * timers, proposals, messages, vectors, and the simulator. Without and with continuous momentum, in turns; the medians of
 * pairs per second of processor time (of one thread) count.
 */
#define _GNU_SOURCE
#include "exchange/exchange.h"
#include "sim/virtual.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS_MOST = 99, RATE = 64 };
static int size = 1024, floats = 10000;

static void check(nw_status status)
{
    if (status == NW_OK) return;
    fprintf(stderr, "gossip_scale: %s\n", nw_error_message());
    exit(1);
}

static nw_status work(void *worker, nw_task *task, nw_announce *announce) { return (void)worker, (void)task, (void)announce, NW_OK; }

static int cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker;
    if (most > 0) ns[0] = task->kind == NW_TASK_UPDATE ? 1000 : 1000000000;
    return 1;
}

typedef struct world {
    nw_cluster *cluster;
    nw_codec *codec;
    nw_graph *graph;
    nw_driver *driver;
    nw_rank *ranks;
    nw_params *params;
    nw_gossip_counts *counts;
    uint16_t *members;
} world;

static void make_rank(world *w, bool acid, int r)
{
    static const nw_worker_ops ops = {work, cost, NULL, NULL};
    nw_params *p = &w->params[r];
    nw_machine *exchange;
    int index;
    double chi1, chi2;
    check(nw_segments_add(&p->learned, "a", NW_ROLE_LINEAR, 0, 1, 1, &floats, &index));
    p->values = calloc((size_t)floats, sizeof *p->values);
    w->counts[r].with = calloc((size_t)size, sizeof *w->counts[r].with);
    if (!p->values || !w->counts[r].with) exit(1);
    for (int i = 0; i < floats; i++) p->values[i] = 1e-3f * (float)((r * 37 + i) % 1001);
    check(nw_graph_constants(w->graph, RATE, &chi1, &chi2));
    nw_exchange_options e = {.name = "gossip",
                             .group = {w->members, size, r},
                             .params = p,
                             .layout.codec = w->codec,
                             .accumulation = 1,
                             .gossip = {.graph = w->graph,
                                        .seed = 1,
                                        .rate = RATE,
                                        .acid = acid,
                                        .eta = 1 / (2 * sqrt(chi1 * chi2)),
                                        .alpha = 0.5 * sqrt(chi1 / chi2),
                                        .counts = &w->counts[r]}};
    check(nw_exchange_create(&exchange, &e));
    w->ranks[r] = (nw_rank){.index = r, .work = &ops};
    check(nw_passes_create(&w->ranks[r].machine, exchange, p, 1));
}

static void make_world(world *w, bool acid)
{
    nw_driver_options options = {.timeout_ns = 0};
    *w = (world){0};
    w->ranks = calloc((size_t)size, sizeof *w->ranks);
    w->params = calloc((size_t)size, sizeof *w->params);
    w->members = calloc((size_t)size, sizeof *w->members);
    w->counts = calloc((size_t)size, sizeof *w->counts);
    if (!w->ranks || !w->params || !w->members || !w->counts) exit(1);
    check(nw_cluster_builtin(&w->cluster, "10g", size));
    check(nw_graph_make(&w->graph, "exponential", size, 1));
    check(nw_codec_create(&w->codec, &(nw_codec_options){.name = "none"}));
    for (int r = 0; r < size; r++) w->members[r] = (uint16_t)r;
    for (int r = 0; r < size; r++) make_rank(w, acid, r);
    nw_virtual_options v = {.cluster = w->cluster, .touch_bytes_per_second = 10e9};
    check(nw_virtual_create(&w->driver, &options, &v));
}

static void free_world(world *w)
{
    for (int r = 0; r < size; r++) {
        nw_exchange_free(w->ranks[r].machine);
        free(w->params[r].values);
        free(w->params[r].learned.at);
        free(w->counts[r].with);
    }
    nw_driver_free(w->driver);
    nw_codec_free(w->codec);
    nw_cluster_free(w->cluster);
    nw_graph_free(w->graph);
    free(w->ranks);
    free(w->params);
    free(w->members);
    free(w->counts);
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int64_t pairs_of(const world *w)
{
    int64_t halves = 0;
    for (int r = 0; r < size; r++) halves += w->counts[r].exchanges;
    return halves / 2;
}

/* After some gradients of each member, so that all memory was touched and timers run. */
static double measure(bool acid)
{
    world w;
    make_world(&w, acid);
    check(nw_driver_run(w.driver, w.ranks, &(nw_go){.until = 2 * size, .batches = INT64_MAX}));
    int64_t before = pairs_of(&w);
    double begin = processor_seconds();
    check(nw_driver_run(w.driver, w.ranks, &(nw_go){.until = 4 * size, .batches = INT64_MAX}));
    double rate = (double)(pairs_of(&w) - before) / (processor_seconds() - begin);
    free_world(&w);
    return rate;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    double rates[2][ROUNDS_MOST];
    if (argc > 1) size = atoi(argv[1]);
    if (argc > 2) floats = atoi(argv[2]);
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    if (size < 2 || size > NW_CLUSTER_RANKS || floats < 1 || rounds < 1 || rounds > ROUNDS_MOST)
        return fprintf(stderr, "usage: gossip_scale [MEMBERS [FLOATS [ROUNDS]]]\n"), 2;
    for (int i = 0; i < 2 * rounds; i++) rates[i % 2][i / 2] = measure(i % 2 == 1);
    printf("%d members of %d floats, median of %d rounds\n", size, floats, rounds);
    for (int acid = 0; acid < 2; acid++) {
        qsort(rates[acid], (size_t)rounds, sizeof rates[acid][0], by_value);
        printf("%-24s %10.0f pairs/s\n", acid ? "continuous momentum" : "averaging", rates[acid][rounds / 2]);
    }
    return 0;
}
