/* cluster.c - virtual clusters as data: making them, drawing their noise, and what a batch costs; see cluster.h. */
#define _GNU_SOURCE 1
#include "sim/cluster.h"

#include "base/rng.h"
#include "base/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

/* ---- time ---- */

int64_t nw_time_add(int64_t a, int64_t b) { return b > NW_NEVER - a ? NW_NEVER : a + b; }

/* From here on a double counts as never: the largest below 2^63 that leaves room for sums. */
static const double never = 0x1p62;

int64_t nw_time_scale(int64_t ns, double factor)
{
    if (ns == NW_NEVER) return NW_NEVER;
    double scaled = (double)ns * factor;
    if (!(scaled > 0)) return 0;
    return scaled >= never ? NW_NEVER : (int64_t)llround(scaled);
}

int64_t nw_time_of_bytes(double bytes, double bytes_per_second)
{
    if (!(bytes_per_second > 0) || !(bytes > 0)) return 0;
    double ns = ceil(bytes * 1e9 / bytes_per_second);
    return ns >= never ? NW_NEVER : (int64_t)ns;
}

/* ---- noise ---- */

double nw_noise_factor(nw_noise noise, uint64_t seed, nw_noise_use use, uint64_t a, uint32_t b)
{
    if (noise.kind == NW_NOISE_NONE) return 1;
    nw_rng rng = nw_rng_make(seed, use == NW_NOISE_OF_STEPS ? NW_PURPOSE_STEP_TIME : NW_PURPOSE_JITTER, a, b);
    double factor = 1, x = noise.scale;
    if (noise.kind == NW_NOISE_LOGNORMAL) {
        factor = exp(x * (double)nw_rng_normal(&rng) - 0.5 * x * x);
    } else {
        double u = (double)nw_rng_u32(&rng) * 0x1p-32;
        factor = noise.kind == NW_NOISE_UNIFORM ? 1 + x * (2 * u - 1) : 1 - x * log(1 - u);
    }
    return factor > 0 ? (double)(float)factor : 0;
}

double nw_cluster_factor(const nw_cluster *c, int rank, uint64_t step)
{
    const nw_cluster_rank *r = &c->ranks[rank];
    return r->slowdown * nw_noise_factor(r->noise, c->seed, NW_NOISE_OF_STEPS, step, (uint32_t)rank);
}

/* ---- making ---- */

nw_status nw_cluster_create(nw_cluster **cluster, int world, int nodes, int switches, int links)
{
    *cluster = NULL;
    NW_FAIL_IF(world < 1 || world > NW_CLUSTER_RANKS, NW_E_ARGUMENT,
               "a virtual cluster has 1 to %d ranks, not %d; choose a smaller world", NW_CLUSTER_RANKS, world);
    NW_FAIL_IF(nodes < 1 || nodes > world, NW_E_ARGUMENT, "%d ranks need 1 to %d nodes, not %d", world, world, nodes);
    NW_FAIL_IF(switches < 0 || switches > NW_CLUSTER_SWITCHES || links < 1 || links > NW_CLUSTER_LINKS, NW_E_ARGUMENT,
               "a virtual cluster has at most %d switches and 1 to %d kinds of links, not %d and %d",
               NW_CLUSTER_SWITCHES, NW_CLUSTER_LINKS, switches, links);
    nw_cluster *c = calloc(1, sizeof *c);
    if (c) {
        c->ranks = calloc((size_t)world, sizeof *c->ranks);
        c->nodes = calloc((size_t)nodes, sizeof *c->nodes);
        c->switches = calloc((size_t)switches + 1, sizeof *c->switches);
        c->links = calloc((size_t)links, sizeof *c->links);
        c->link_of = calloc((size_t)world * (size_t)world, sizeof *c->link_of);
    }
    if (!c || !c->ranks || !c->nodes || !c->switches || !c->links || !c->link_of) {
        nw_cluster_free(c);
        return NW_FAIL(NW_E_MEMORY, "no memory left for a virtual cluster of %d ranks", world);
    }
    c->world = world;
    c->node_count = nodes;
    c->switch_count = switches;
    c->link_count = links;
    for (int i = 0; i < world; i++) c->ranks[i] = (nw_cluster_rank){.node = i * nodes / world, .slowdown = 1};
    for (int i = 0; i < nodes; i++) {
        c->nodes[i].within = -1;
        snprintf(c->nodes[i].name, sizeof c->nodes[i].name, "node-%d", i);
    }
    for (int i = 0; i < switches; i++) snprintf(c->switches[i].name, sizeof c->switches[i].name, "switch-%d", i);
    c->compute = (nw_compute_model){.kind = NW_COMPUTE_FLOPS,
                                    .flops = NW_CLUSTER_FLOPS,
                                    .update_ns = -1,
                                    .memory_bytes_per_second = NW_CLUSTER_MEMORY};
    *cluster = c;
    return NW_OK;
}

void nw_cluster_free(nw_cluster *c)
{
    if (!c) return;
    free(c->compute.forward_ns);
    free(c->compute.backward_ns);
    free(c->codecs.at);
    free(c->ranks);
    free(c->nodes);
    free(c->switches);
    free(c->links);
    free(c->link_of);
    free(c);
}

/* Bandwidths are what TCP delivers of Ethernet's bits: 1448 of 1538 bytes of a full frame, 94 %. */
static const struct builtin {
    const char *name;
    double nic;
    int64_t latency_ns, overhead_ns;
} builtins[] = {
    {"ideal", 0, 0, 0},
    {"1g", 0.94 * 1e9 / 8, 50000, 5000},
    {"10g", 0.94 * 10e9 / 8, 20000, 3000},
    {"100g", 0.94 * 100e9 / 8, 5000, 1000},
};
enum { BUILTINS = sizeof builtins / sizeof *builtins };

bool nw_cluster_is_builtin(const char *name)
{
    int i = 0;
    while (i < BUILTINS && strcmp(name, builtins[i].name) != 0) i++;
    return i < BUILTINS;
}

nw_status nw_cluster_builtin(nw_cluster **cluster, const char *name, int world)
{
    int index;
    *cluster = NULL;
    NW_TRY(nw_name_find("built-in cluster", name, builtins, sizeof builtins[0], BUILTINS, "", &index));
    NW_TRY(nw_cluster_create(cluster, world, world, 0, 1));
    nw_cluster *c = *cluster;
    const struct builtin *b = &builtins[index];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->links[0] = (nw_cluster_link){.latency_ns = b->latency_ns, .overhead_ns = b->overhead_ns};
    for (int i = 0; i < world; i++) c->nodes[i].egress = c->nodes[i].ingress = b->nic;
    return NW_OK;
}

/* ---- what a batch costs ---- */

/* Divides a time by weights. Differences of rounded running sums, so that the parts add up to the whole. */
static void divide(int64_t total, const double *weights, int count, int64_t *parts)
{
    double sum = 0, so_far = 0;
    int64_t given = 0;
    for (int i = 0; i < count; i++) sum += weights[i];
    for (int i = 0; i < count; i++) {
        so_far += sum > 0 ? weights[i] : 1;
        int64_t upto = i == count - 1 ? total : nw_time_scale(total, so_far / (sum > 0 ? sum : count));
        parts[i] = upto - given;
        given = upto;
    }
}

static nw_status given_times(const nw_compute_model *m, const nw_workload *work, nw_compute_cost *cost)
{
    double scale = m->batch > 0 ? (double)work->batch / m->batch : 1;
    NW_FAIL_IF(*m->model && strcmp(m->model, work->model) != 0, NW_E_ARGUMENT,
               "the cluster's times are of %s, the run trains %s; calibrate again with --model %s", m->model,
               work->model, work->model);
    NW_FAIL_IF(*m->precision && strcmp(m->precision, work->precision) != 0, NW_E_ARGUMENT,
               "the cluster's times are in %s, the run is in %s; calibrate again with --precision %s", m->precision,
               work->precision, work->precision);
    NW_FAIL_IF(m->stages != 1 && m->stages != work->stages, NW_E_ARGUMENT,
               "the cluster gives times for %d stages, but %s has %d; give %d of them, or one for all", m->stages,
               work->model, work->stages, work->stages);
    if (m->stages == 1) {
        divide(nw_time_scale(m->forward_ns[0], scale), work->forward_flops, work->stages, cost->forward_ns);
        divide(nw_time_scale(m->backward_ns[0], scale), work->backward_flops, work->stages, cost->backward_ns);
    }
    for (int i = 0; i < m->stages && m->stages > 1; i++) {
        cost->forward_ns[i] = nw_time_scale(m->forward_ns[i], scale);
        cost->backward_ns[i] = nw_time_scale(m->backward_ns[i], scale);
    }
    cost->overhead_ns = nw_time_scale(m->overhead_ns, scale);
    return NW_OK;
}

static nw_status fill_cost(const nw_compute_model *m, const nw_workload *work, nw_compute_cost *cost)
{
    NW_NEW(cost->forward_ns, work->stages, "the times of %d stages", work->stages);
    NW_NEW(cost->backward_ns, work->stages, "the times of %d stages", work->stages);
    cost->stages = work->stages;
    cost->touch_bytes_per_second = m->memory_bytes_per_second;
    cost->update_ns =
        m->update_ns >= 0 ? m->update_ns : nw_time_of_bytes(work->update_bytes, m->memory_bytes_per_second);
    if (m->kind == NW_COMPUTE_GIVEN) return given_times(m, work, cost);
    for (int i = 0; i < work->stages; i++) {
        cost->forward_ns[i] = nw_time_of_bytes(work->forward_flops[i] * work->batch, m->flops);
        cost->backward_ns[i] = nw_time_of_bytes(work->backward_flops[i] * work->batch, m->flops);
    }
    return NW_OK;
}

nw_status nw_cluster_cost(const nw_cluster *c, const nw_workload *work, nw_compute_cost *cost)
{
    *cost = (nw_compute_cost){0};
    NW_FAIL_IF(work->stages < 1 || work->batch < 1, NW_E_ARGUMENT, "a workload of %d stages and %d images is empty",
               work->stages, work->batch);
    NW_TRY_OR(fill_cost(&c->compute, work, cost), nw_compute_cost_free(cost));
    return NW_OK;
}

void nw_compute_cost_free(nw_compute_cost *cost)
{
    free(cost->forward_ns);
    free(cost->backward_ns);
    *cost = (nw_compute_cost){0};
}

int64_t nw_cluster_copy_ns(const nw_cluster *c, int from, int to, size_t bytes)
{
    const nw_cluster_link *link = nw_cluster_link_between(c, from, to);
    return from != to && link->copied ? nw_time_of_bytes((double)bytes, link->bandwidth) : 0;
}

int64_t nw_cluster_touch_ns(const nw_cluster *c, double usual, int rank, double bytes)
{
    double own = c->ranks[rank].memory_bytes_per_second;
    return nw_time_of_bytes(bytes, own > 0 ? own : usual);
}
