/*
 * Folder src/exchange: how replicas agree: state machines without I/O (none, allreduce, local, server) and the
 * pipeline below them. They receive events and return actions; they call no MPI, read no clock and know no optimizer.
 * May include: base, param, codec, net, channel, topology.
 *
 * exchange.h - the exchanges (--exchange), the pipeline below them, and their options. net/machine.h defines the
 * interface.
 *
 *   name        replicas   how                                                                       file
 *   none        1          every gradient is applied at once                                         none.c
 *   allreduce   any        all apply the mean of all gradients together; delay 1: one step late  allreduce.c
 *   local       any        steps of their own, and every H of them an outer step with the mean       local.c
 *   server      any        ranks that own the parameters apply the gradients of the others           server.c
 *   gossip      any        each updates its own parameters, and averages them with one other's    src/gossip
 */
#ifndef NW_EXCHANGE_EXCHANGE_H
#define NW_EXCHANGE_EXCHANGE_H

#include "base/pool.h"
#include "codec/memory.h"
#include "channel/layout.h"
#include "channel/stats.h"
#include "exchange/gossip.h"
#include "net/machine.h"

/* What a server does about gradients older than max_staleness. */
typedef enum nw_staleness { NW_STALE_WAIT, NW_STALE_DROP, NW_STALE_WEIGHT } nw_staleness;
/* How it corrects gradients of any age (--server-correction). */
typedef enum nw_correction { NW_CORRECT_NONE, NW_CORRECT_INVERSE, NW_CORRECT_DC } nw_correction;

typedef struct nw_exchange_options {
    const char *name;
    nw_group group;          /* the members */
    const nw_params *params; /* this replica's parameters and gradients; must outlive the exchange */
    nw_layout_options
        layout; /* what travels: codecs, scope, bucket_bytes, collective; the exchange fills in the rest */
    nw_memory_options memory; /* error memory of compressed tensors */
    nw_pool *pool;            /* encodes and decodes; must outlive the exchange. NULL: the calling thread does */
    int delay;                /* allreduce: 0 or 1 steps; local: 0 or 1 outer steps */
    /* local; layout.fragments is the number of fragments: */
    int sync_every; /* inner steps per outer step (H) */
    bool pairs;     /* outer steps of random pairs instead of all members */
    int64_t seed;   /* of the pairs */
    /* server: */
    int accumulation;      /* batches per gradient; learning rates depend on the number of batches */
    bool sync;             /* an update uses one gradient of each worker */
    int servers;           /* number of ranks that own parameters: ranks 0, 1, ...; 0: 1 */
    bool server_computes;  /* these ranks are workers, too; always true in a world of one */
    int in_flight;         /* limit of a worker's gradients that are not applied yet; 0: 2, or 1 with sync */
    int64_t max_staleness; /* limit of the updates that a gradient may miss; -1: none */
    nw_staleness staleness;
    nw_correction correction;
    double dc_lambda;
    size_t memory_bytes; /* limit of the gradients that a server holds; one gradient always fits; 0: no limit */
    int64_t deadline_ns; /* a worker that sends nothing for longer is dropped; 0: never */
    nw_gossip_options gossip;
    nw_channel_stats *stats; /* counts the cost of encoding; must outlive the exchange; may be NULL */
    const void *report; /* numbers about this rank's last gradient (loss, ...), filled by the worker; sent to rank 0 */
    size_t report_bytes;
} nw_exchange_options;

/* NW_E_UNKNOWN: no exchange has that name. NW_E_ARGUMENT: the options, or the number of ranks, do not fit. */
nw_status nw_exchange_create(nw_machine **exchange, const nw_exchange_options *options);
void nw_exchange_free(nw_machine *machine); /* a pipeline is freed with the exchange above it */

/* The exchanges, one file each. */
nw_status nw_none_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_allreduce_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_local_sgd_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_server_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_gossip_create(nw_machine **exchange, const nw_exchange_options *options);

/* The pipeline of a rank that has all stages (passes.c). It owns the exchange from now on. */
nw_status nw_passes_create(nw_machine **pipeline, nw_machine *exchange, const nw_params *params, int accumulation);

/* Of local: the bytes of a member's vectors (outer parameters, differences, error memory), without the state of the
 * outer optimizer. */
size_t nw_local_bytes(const nw_exchange_options *options, size_t floats);
/* Bytes that all members together send in that many inner steps if nothing is compressed. */
double nw_local_sends(const nw_exchange_options *options, int64_t steps, size_t floats);
/* The partner of a member in a round, for a fragment; the member itself if it has none. `order` has room for all. */
int nw_local_partner(uint64_t seed, int64_t round, int fragment, int me, int members, uint32_t *order);
/* The factor by which an outer step of random pairs changes the mean squared distance between members when nothing is
 * learned; with 1 or more they drift apart. */
double nw_local_drift(double lr, double momentum, bool nesterov);

/* For a group with servers: the number of workers, the number of servers, and the most bytes of gradients that a server
 * can hold for a model of that many floats. */
int nw_server_workers(const nw_exchange_options *options);
int nw_server_servers(const nw_exchange_options *options);
size_t nw_server_holds(const nw_exchange_options *options, size_t floats);
/* The bytes of a server's copies of what each worker has (server_shadows.c); 0 if they are not needed. */
size_t nw_server_shadow_bytes(const nw_exchange_options *options, const nw_segments *segments);

#endif
