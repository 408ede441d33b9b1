/*
 * replicas.h - the replicas of this process at work: their exchanges, and the driver that moves them.
 *
 * A world of N ranks trains one model. A process holds one of them (alone, or as a rank under MPI) or all (a virtual
 * cluster, a replay). nw_replicas_advance lets them go as far as it says; then nothing is under way, and whoever called
 * may look, evaluate, save. What happens at such a quiescent point is the same code everywhere: loops over the replicas
 * here, and nw_driver_allgather and nw_driver_mean where all ranks must know something.
 *
 * Where the exchange keeps replicas in lockstep, the world is where each replica is. Elsewhere (a parameter server)
 * replicas go through the data at their own pace: a worker whose epoch is over begins the next. The world's position is
 * then the group's own: an epoch is as many updates as the data have batches, and rank 0, which hears of every update,
 * counts. Each worker tells with its gradient what it saw (report): sums of losses and correct answers, and its running
 * statistics.
 *
 * Rank 0's replica is the one that is looked at; where the exchange keeps replicas equal, that is all there is to see,
 * and nw_replicas_compare finds out whether it is so. Where they differ (gossip) it is their mean (replicas_gossip.c).
 *
 * Batch norm's running statistics are not exchanged with gradients. nw_replicas_sync_norms makes of them what
 * evaluation uses: local: those of rank 0; average: the mean over all ranks, in the order of ranks, on all;
 * recalibrate: the mean over some batches of training images at the present weights, on all.
 */
#ifndef NW_TRAIN_REPLICAS_H
#define NW_TRAIN_REPLICAS_H

#include "base/histogram.h"
#include "channel/assign.h"
#include "exchange/exchange.h"
#include "replay/replay.h"
#include "net/roles.h"
#include "sim/virtual.h"
#include "checkpoint/checkpoint.h"
#include "train/replicas_hooks.h"
#include "train/replica.h"

#include <string.h>

typedef enum nw_replicas_mode {
    NW_REPLICAS_ALONE,
    NW_REPLICAS_MPI,
    NW_REPLICAS_VIRTUAL,
    NW_REPLICAS_REPLAY
} nw_replicas_mode;
typedef enum nw_norm_sync { NW_NORMS_LOCAL, NW_NORMS_AVERAGE, NW_NORMS_RECALIBRATE } nw_norm_sync;

typedef struct nw_replicas nw_replicas;

typedef struct nw_replicas_update {
    int64_t updates; /* of the world, with this one */
    int64_t delay;   /* of its gradient; -1: it cannot have one */
    nw_tally tally;  /* of the batches that it was made of; in lockstep, of those of rank 0 */
    int64_t images;  /* of all its batches */
    int64_t wait_ns; /* for them, of rank 0 in lockstep */
    double lr;
    bool epoch_over; /* it was the last of its epoch */
} nw_replicas_update;

typedef struct nw_replicas_options {
    nw_replica_options replica; /* of each; the loader's rank and world are filled in */
    nw_replicas_mode mode;
    int world;                    /* of MPI and virtual clusters */
    int rank;                     /* of MPI: this process's */
    nw_exchange_options exchange; /* all but the group, codecs, memory and what belongs to a rank */
    const char *graph;           /* gossip: who may talk to whom; outlives the group. Momentum has the graph's constants
                                     where its eta is negative; looks at distances are some in an epoch where 0 */
    nw_assign_options codecs;    /* of its tensors; rules outlive the group */
    const nw_cluster *cluster;   /* VIRTUAL */
    const nw_faults *faults;     /* or NULL */
    const nw_log_part *recorded; /* REPLAY: what is repeated, of `world` ranks; outlives the group */
    nw_norm_sync norms;
    int recalibrate_batches; /* of each rank */
    int global_batch; /* images that the workers of a synchronous server divide among each other; 0: each has its own */
    bool shared_epochs;     /* where ranks each take all images, an epoch is one pass of all of them together */
    double dirichlet_alpha; /* workers own images, in unequal shares of each class (nw_dataset_deal); 0: they do not */
    nw_driver_options driver; /* its ledger and hooks are made by the group */
    size_t available_memory;  /* bytes that this process may take; 0: what the machine has */
    bool trace;
    size_t trace_events;
    /* After each update of the world, where rank 0 is here; parameters of the world at the counts that GO asked for,
     * likewise, until the call returns; and when a rank is dropped or comes back. */
    nw_status (*updated)(void *context, const nw_replicas_update *update);
    nw_status (*snapshot)(void *context, const nw_snapshot *snapshot);
    void (*dropped)(void *context, int rank, bool back);
    void *context;
} nw_replicas_options;

typedef struct nw_member {
    nw_replicas *group;
    nw_replica *replica;
    nw_machine *machine;    /* its exchange, over the pipeline */
    nw_faults_state faults; /* of a real rank */
    nw_channel_stats stats; /* what encoding cost */
    nw_gossip_counts averaged;
    uint8_t *report; /* of its last gradient: an nw_tally, and, where there is no lockstep, its running statistics */
} nw_member;

struct nw_replicas {
    nw_replicas_options options;
    nw_driver *driver;
    nw_assignment assignment; /* of codecs */
    nw_layout layout;         /* of gradients between all ranks, for tables */
    nw_ledger *ledger;        /* NULL in a world of one */
    int64_t *earlier;         /* as nw_ledger_save: what MPI ranks sent before this process resumed; NULL: nothing */
    size_t earlier_rows;
    nw_replicas_hooks hooks;
    int count; /* replicas here */
    nw_member *members;
    nw_rank *ranks;
    nw_roles roles;  /* of all ranks */
    uint16_t *owner; /* of each training image, or NULL */
    nw_compute_cost cost;
    int64_t started_ns;
    /* Without lockstep: */
    nw_position position;     /* of the world */
    int64_t epoch_batches;    /* of all workers together */
    int64_t position_batches; /* what the position is counted in: these, or, while loading, the saved ones */
    nw_histogram delays;      /* of gradients that rank 0 applied */
    int64_t thrown_away;      /* gradients that were too old */
    nw_graph *graph;          /* gossip: who may talk to whom, and its constants */
    bool *late;               /* ... by rank: it joins after the start; NULL: none does */
    double chi1, chi2;
    float *mean;      /* of all members, while a checkpoint is written; else NULL */
    double consensus; /* the last that is known, and of the run so far; at rank 0 */
    double consensus_sum;
    int64_t consensus_count;
    int showing;       /* how often outer parameters were shown and not hidden */
    float **shown;     /* vectors made to show the mean of outer parameters; NULL: none */
    float *statistics; /* the last that each worker reported, and ... */
    bool *reported;    /* ... whether it did */
    bool *dropped;     /* by rank */
    char note[640];    /* of nw_replicas_load */
};

nw_status nw_replicas_create(nw_replicas **group, const nw_replicas_options *options);
void nw_replicas_free(nw_replicas *group);

static inline nw_replica *nw_replicas_first(const nw_replicas *group) { return group->members[0].replica; }
static inline int nw_replicas_world(const nw_replicas *group) { return group->driver->size; }
/* Whether this process holds rank 0, which speaks for all. */
static inline bool nw_replicas_leads(const nw_replicas *group) { return group->driver->first == 0; }
/* Updates of the world so far; what a checkpoint's step counts. */
static inline int64_t nw_replicas_updates(const nw_replicas *group) { return group->members[0].machine->updates; }
static inline bool nw_replicas_lockstep(const nw_replicas *group) { return group->members[0].machine->lockstep; }
/* Where the run is. */
static inline const nw_position *nw_replicas_position(const nw_replicas *group)
{
    return nw_replicas_lockstep(group) ? &group->members[0].replica->at : &group->position;
}
int64_t nw_replicas_epoch_batches(const nw_replicas *group); /* as nw_position counts them */
/* Updates that the world has made when so many epochs are over. */
int64_t nw_replicas_updates_of(const nw_replicas *group, int64_t epochs);
double nw_replicas_virtual_seconds(const nw_replicas *group); /* the latest clock; NAN in real time */

/* What encoding cost on all ranks in the whole run, and what memories hold; all ranks call. */
nw_status nw_replicas_channel_stats(nw_replicas *group, nw_channel_stats *sum);
nw_status nw_replicas_make_layout(nw_replicas *group);
/* What travels: a line a tensor, and one a kind of bucket with what a member sends of it in a step. */
void nw_replicas_print_codecs(const nw_replicas *group, FILE *out);
/* The share of the last batch's gradient that was sent, by top-k or random-k; NAN: neither is used. */
double nw_replicas_ratio(const nw_replicas *group);
/* "gather 1234 B, owners 567 B", the same in few words. */
void nw_replicas_collective(const nw_replicas *group, char *text, size_t size);

/* Makes all replicas begin at their positions. */
nw_status nw_replicas_begin(nw_replicas *group);
/* Goes on as far as that, or until all have stopped. */
nw_status nw_replicas_advance(nw_replicas *group, const nw_go *go);
bool nw_replicas_epoch_is_over(const nw_replicas *group);
nw_status nw_replicas_end_epoch(nw_replicas *group);

/* Without lockstep, after an advance: all ranks learn from rank 0 where the world is, and whether it got as far as
 * it should. One that was away for a while knows neither. */
nw_status nw_replicas_agree_on_position(nw_replicas *group, bool *reached);
/* What evaluation uses of a snapshot: the values, or rank 0's average of them, if there is one; and the running
 * statistics that the workers reported: their mean, or the first one's. To vectors of their lengths. */
void nw_replicas_copy_values(nw_replicas *group, const float *values, float *to);
void nw_replicas_copy_statistics(nw_replicas *group, float *to);

/* Whether any rank says so. All ranks get the same answer. */
nw_status nw_replicas_agree(nw_replicas *group, bool mine, bool *any);
/* Whether any rank was asked to stop. All ranks get the same answer. */
nw_status nw_replicas_agree_to_stop(nw_replicas *group, bool *stop);

/* Evaluates on a loader of this process's share of a split (all of it in a virtual cluster); the sums are those of all.
 */
nw_status nw_replicas_evaluate(nw_replicas *group, nw_loader *loader, bool both_views, nw_tally *tally, bool *complete);
/* Of the epoch, over all replicas. */
nw_status nw_replicas_tally(nw_replicas *group, nw_tally *tally, int64_t *images);

nw_status nw_replicas_sync_norms(nw_replicas *group);
/* Where there are outer parameters (machine.h), passes read those (nw_params.read) until they are hidden, as often as
 * they were shown: the mean over all ranks where they differ. All ranks call. */
nw_status nw_replicas_show_outer(nw_replicas *group);
void nw_replicas_hide_outer(nw_replicas *group);
/* The first replica's vectors, with what is shown as values, or the mean where that is kept (gossip). */
static inline nw_params nw_replicas_shown(const nw_replicas *group)
{
    nw_params p = nw_replicas_first(group)->net->model.params;
    p.values = group->mean ? group->mean : (float *)(uintptr_t)p.read; /* nobody writes there */
    return p;
}
/* At the end of a run that has drained: where outer parameters differ, they and the values become the mean of them. */
nw_status nw_replicas_merge_outer(nw_replicas *group);
/* What travels in so many inner steps, and the bytes of vectors that a rank has for it; nothing without outer steps. */
void nw_replicas_print_outer(const nw_replicas *group, FILE *out);
/* NW_E_MISMATCH names the first replica that differs from replica 0 where all should be equal. */
nw_status nw_replicas_compare(nw_replicas *group);

/* All replicas, exchanges and the cluster, into a checkpoint under way on rank 0 (NULL elsewhere; all ranks call). */
nw_status nw_replicas_save(nw_replicas *group, nw_checkpoint_writer *writer);
/* And back, on every rank. A checkpoint of another world is mapped (docs/checkpoints.md); *note, which is the group's,
 * tells what differs and what is lost, or is NULL. */
nw_status nw_replicas_load(nw_replicas *group, nw_checkpoint *checkpoint, const char **note);
/* The average of the weights that rank 0 kept, with its statistics, in the place of the weights, if there is one. */
nw_status nw_replicas_read_average(nw_checkpoint *checkpoint, nw_params *params, bool *there);
/* Of nw_worker_ops, for members. */
void nw_member_state(void *worker, nw_state *state);
nw_status nw_member_loaded(void *worker);

/* ---- gossip (replicas_gossip.c) ---- */

static inline bool nw_replicas_is_gossip(const nw_replicas *group)
{
    return strcmp(group->options.exchange.name, "gossip") == 0;
}
/* The graph of so many ranks, the constants of momentum, and who is late. */
nw_status nw_replicas_make_graph(nw_replicas *group, int world);
/* Whether momentum keeps the constants of the whole graph, although ranks are away, since those of the rest are not known. */
bool nw_replicas_keeps_constants(const nw_replicas *group);
/* Whether a checkpoint can be replayed from: not where ranks were away, of whom the log goes on. */
nw_status nw_replicas_check_away(const nw_replicas *group, nw_checkpoint *checkpoint);
/* The bytes of what pairs of these replicas agree on, the first of which has that rank. */
size_t nw_replicas_copy_bytes(const nw_replicas *group, int first);
/* What belongs to a member of a group's options. */
nw_status nw_replicas_join_gossip(nw_member *member, nw_gossip_options *options);
/* Another look at how far members are apart: the sum of their squared distances to their mean. */
void nw_replicas_note_spread(nw_replicas *group, double spread);
/* Quiescent; all ranks call. The mean of all members' parameters, to a vector of every rank, or NULL there; and all
 * members get it, where this is gossip. */
nw_status nw_replicas_mean(nw_replicas *group, float *out);
nw_status nw_replicas_average(nw_replicas *group);

/* What members have counted, by rank, on rank 0. */
typedef struct nw_averagings {
    int world;          /* 0: there are none */
    int64_t *gradients; /* begins what is to be freed */
    int64_t *exchanges, *refused, *idle_ns;
    int64_t *again; /* buckets that went once more, exactly */
    int64_t *with;  /* [rank][partner] */
} nw_averagings;
nw_status nw_replicas_averagings(nw_replicas *group, nw_averagings *averagings); /* all ranks call */
void nw_averagings_free(nw_averagings *averagings);

/* Brings bytes of each rank to rank 0, one rank after the other (replicas_gather.c). All ranks of an MPI run call. */
nw_status nw_replicas_gather(nw_replicas *group, void *mine, size_t size,
                             nw_status (*take)(void *context, const void *bytes, size_t size, int rank), void *context);

/* After NW_E_NUMERIC, which all ranks get: forgets what is under way, loads a checkpoint of this run, and begins
 * there with learning rates times `lr_factor`. */
nw_status nw_replicas_go_back(nw_replicas *group, nw_checkpoint *checkpoint, double lr_factor);

/* Bytes of the whole world: on rank 0, unless the world is one; NULL elsewhere. Where it is not the group's own
 * ledger, it is to be freed. All ranks call. */
nw_status nw_replicas_world_ledger(nw_replicas *group, nw_ledger **world);
/* trace.json of all ranks, on rank 0; nothing without a trace. All ranks call, or, where something failed, rank 0 alone
 * with `alone`. */
nw_status nw_replicas_write_trace(nw_replicas *group, const char *path, bool alone);
/* An empty ledger of `count` ranks from `first` on. */
nw_status nw_replicas_make_ledger(const nw_replicas *group, int world, int first, int count, nw_ledger **ledger);

#endif
