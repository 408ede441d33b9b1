/*
 * Folder src/sim: the virtual cluster: ranks, links, faults, and the driver that moves simulated time. All times come
 * from the cluster's description, never from a stopwatch. May include: base, net.
 *
 * cluster.h - what a virtual cluster is made of: ranks on nodes, their speeds, the links between them, and what a batch
 * costs. Plain data and pure functions; links.h moves messages through it, faults.h disturbs it, config/cluster_file.h
 * reads it from a file. docs/cluster.md explains the model.
 *
 * Time is integer nanoseconds. Random numbers are a function of (seed, purpose, rank or link, step or message). There
 * is no generator state, so the order of calls does not matter.
 *
 * Noise multiplies a time by a factor f (z normal, u uniform in [0, 1)):
 *   none         f = 1
 *   lognormal s  f = exp(s z - s^2 / 2)     mean 1
 *   uniform x    f = 1 + x (2 u - 1)        mean 1, 0 <= x <= 1
 *   exponential x  f = 1 - x log(1 - u)     mean 1 + x: never early, sometimes very late
 * Factors are rounded to float, so that differences in the last bits between mathematics libraries do not matter.
 *
 * Time of local work:  ns(rank, step) = work * slowdown(rank) * noise(rank, step) * faults' slowdown
 *
 * Threads: a cluster does not change after it was filled, so any number of threads may read it.
 */
#ifndef NW_SIM_CLUSTER_H
#define NW_SIM_CLUSTER_H

#include "net/factors.h"
#include "base/status.h"

enum {
    NW_CLUSTER_RANKS = 1024, /* at most */
    NW_CLUSTER_SWITCHES = 256,
    NW_CLUSTER_LINKS = 4096, /* kinds of links, not pairs */
    NW_CLUSTER_NAME = 64,
    NW_CLUSTER_STAGES = 4096, /* whose times are given */
};
#define NW_NEVER INT64_MAX /* a time that is never reached */

typedef enum nw_noise_kind { NW_NOISE_NONE, NW_NOISE_LOGNORMAL, NW_NOISE_UNIFORM, NW_NOISE_EXPONENTIAL } nw_noise_kind;

typedef struct nw_noise {
    nw_noise_kind kind;
    double scale; /* s or x above */
} nw_noise;

typedef struct nw_cluster_rank {
    int node;
    double slowdown;                /* local work takes this many times as long: 4 is a straggler, 1 is usual */
    nw_noise noise;                 /* one factor a step */
    double memory_bytes_per_second; /* for handling messages; 0: the compute model's rate */
} nw_cluster_rank;

/* Bandwidths of 0 have no limit. */
typedef struct nw_cluster_node {
    char name[NW_CLUSTER_NAME];
    int within;             /* index of its switch; -1: none */
    double egress, ingress; /* bytes/s of its NIC, shared by its ranks; traffic inside the node does not use it */
} nw_cluster_node;

/* A switch with a trunk: traffic between its nodes is not limited; all other traffic shares the trunk, separately for
 * each direction. */
typedef struct nw_cluster_switch {
    char name[NW_CLUSTER_NAME];
    double up, down; /* bytes/s, out of the switch and into it */
} nw_cluster_switch;

typedef struct nw_cluster_link {
    int64_t latency_ns;
    double bandwidth;    /* bytes/s */
    bool shared;         /* all pairs that use it share its bandwidth; otherwise each pair has the full bandwidth */
    nw_noise jitter;     /* a factor of the latency, drawn for each message */
    int64_t overhead_ns; /* time of a message in addition to that of its bytes */
    bool copied;         /* shared memory: the receiving rank copies the bytes at this bandwidth, which keeps it busy */
} nw_cluster_link;

typedef enum nw_compute_kind {
    NW_COMPUTE_FLOPS, /* from a rate and the number of the model's operations */
    NW_COMPUTE_GIVEN, /* from given times, for the whole batch or for each stage */
} nw_compute_kind;

typedef struct nw_compute_model {
    nw_compute_kind kind;
    double flops; /* per second and rank, for kind FLOPS */
    /* for kind GIVEN: */
    char model[NW_CLUSTER_NAME], precision[16]; /* for which the times were measured; empty: any */
    int batch;  /* images of the measured batch; times are scaled in proportion; 0: they fit any batch */
    int stages; /* length of the two lists; 1: a total, which is divided among the model's stages by their operations */
    int64_t *forward_ns, *backward_ns;
    int64_t overhead_ns, update_ns; /* update_ns -1: computed from bytes and memory bandwidth, as for kind FLOPS */
    double memory_bytes_per_second;
} nw_compute_model;

typedef struct nw_cluster {
    char name[NW_CLUSTER_NAME]; /* of the file, or built in */
    uint64_t seed;
    int world, node_count, switch_count, link_count;
    nw_cluster_rank *ranks;
    nw_cluster_node *nodes;
    nw_cluster_switch *switches;
    nw_cluster_link *links;
    uint16_t *link_of; /* [from * world + to]: index of the link; the diagonal is not used */
    nw_compute_model compute;
    nw_factors codecs; /* what they take in times of what touching their bytes takes; none: 1 */
} nw_cluster;

/* Allocates a cluster with defaults: ranks on nodes in blocks (rank r on node r * nodes / world), no switch, slowdown
 * 1, no noise, every pair on link 0, links without cost, NW_COMPUTE_FLOPS at NW_CLUSTER_FLOPS and NW_CLUSTER_MEMORY.
 * The caller then changes fields. */
#define NW_CLUSTER_FLOPS  100e9 /* per second: nominal value for clusters that give none */
#define NW_CLUSTER_MEMORY 10e9  /* bytes/s, likewise */
nw_status nw_cluster_create(nw_cluster **cluster, int world, int nodes, int switches, int links);
void nw_cluster_free(nw_cluster *cluster);

/* Clusters that need no file: ideal, 1g, 10g, 100g. One rank a node. NW_E_UNKNOWN names the nearest. */
nw_status nw_cluster_builtin(nw_cluster **cluster, const char *name, int world);
bool nw_cluster_is_builtin(const char *name);

static inline const nw_cluster_link *nw_cluster_link_between(const nw_cluster *c, int from, int to)
{
    return &c->links[c->link_of[(size_t)from * (size_t)c->world + (size_t)to]];
}

/* The factor of one draw; `a` and `b` say which (rank and step, link and message). Never negative. */
typedef enum nw_noise_use { NW_NOISE_OF_STEPS, NW_NOISE_OF_LINKS } nw_noise_use;
double nw_noise_factor(nw_noise noise, uint64_t seed, nw_noise_use use, uint64_t a, uint32_t b);

/* slowdown(rank) * noise(rank, step), without faults. */
double nw_cluster_factor(const nw_cluster *cluster, int rank, uint64_t step);

/* ns * factor, rounded, at least 0, at most NW_NEVER. */
int64_t nw_time_scale(int64_t ns, double factor);
/* a + b, at most NW_NEVER. Both at least 0. */
int64_t nw_time_add(int64_t a, int64_t b);
/* How long `bytes` take at bytes/s, rounded up; 0 where there is no limit. */
int64_t nw_time_of_bytes(double bytes, double bytes_per_second);

/* The work of a rank. Everything but update_bytes is for one image. */
typedef struct nw_workload {
    const char *model, *precision; /* compared with those of given times */
    int batch;                     /* images of a step of one rank */
    int stages;
    const double *forward_flops, *backward_flops; /* of one image, for each stage */
    double update_bytes;                          /* memory traffic of an update of all parameters */
} nw_workload;

/* The time of a batch on a rank of slowdown 1 without noise. */
typedef struct nw_compute_cost {
    int stages;
    int64_t *forward_ns, *backward_ns; /* for each stage */
    int64_t overhead_ns;               /* before the first stage */
    int64_t update_ns;
    double touch_bytes_per_second; /* for adding, copying and encoding bytes of messages; 0: these take no time */
} nw_compute_cost;

/* NW_E_ARGUMENT: the cluster's times are for another model, precision or number of stages; the sentence says what to
 * calibrate or to write. */
nw_status nw_cluster_cost(const nw_cluster *cluster, const nw_workload *work, nw_compute_cost *cost);
void nw_compute_cost_free(nw_compute_cost *cost);
/* The time that `to` needs to copy a message of `from` (on copied links), without slowdown and noise. */
int64_t nw_cluster_copy_ns(const nw_cluster *cluster, int from, int to, size_t bytes);
/* The time that `rank` needs to touch that many bytes, at its own rate or else at `usual` bytes/s, without slowdown and
 * noise. */
int64_t nw_cluster_touch_ns(const nw_cluster *cluster, double usual, int rank, double bytes);

#endif
