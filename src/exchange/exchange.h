/*
 * Folder src/exchange: how replicas agree: state machines without I/O (none, allreduce, server) and the pipeline below
 * them. They hear events and answer with actions; they call no MPI, read no clock and know no optimizer. May include:
 * base, param, codec, net, channel.
 *
 * exchange.h - how replicas agree: the exchanges there are, and the pipelines below them. net/machine.h says what they
 * are.
 *
 *   name        replicas   how                                                                       file
 *   none        1          every gradient is applied at once                                         none.c
 *   allreduce   any        all apply the mean of all gradients together; delay 1: one step late  allreduce.c
 *   server      any        ranks that own the parameters apply the gradients of the others           server.c
 */
#ifndef NW_EXCHANGE_EXCHANGE_H
#define NW_EXCHANGE_EXCHANGE_H

#include "base/pool.h"
#include "codec/memory.h"
#include "channel/layout.h"
#include "channel/travel.h"
#include "net/machine.h"

/* What a server does with a gradient that is older than it should be. */
typedef enum nw_staleness { NW_STALE_WAIT, NW_STALE_DROP, NW_STALE_WEIGHT } nw_staleness;
/* What it does against the age of any. */
typedef enum nw_correction { NW_CORRECT_NONE, NW_CORRECT_INVERSE, NW_CORRECT_DC } nw_correction;

typedef struct nw_exchange_options {
    const char *name;
    nw_group group;          /* who exchanges */
    const nw_params *params; /* whose gradients are exchanged; outlives the exchange */
    nw_layout_options
        layout; /* what travels: codecs, scope, bucket_bytes, collective; the exchange fills in the rest */
    nw_memory_options memory; /* of what codecs do not deliver */
    nw_pool *pool;            /* encodes and decodes; outlives the exchange. NULL: the calling thread does */
    int delay;                /* allreduce: 0, or 1 */
    /* server: */
    int accumulation;      /* batches that make a gradient: what learning rates are counted in */
    bool sync;             /* updates are made of one gradient of each worker */
    int servers;           /* ranks that own parameters, from rank 0 on; 0: 1 */
    bool server_computes;  /* these ranks are workers as well; always in a world of one */
    int in_flight;         /* gradients of a worker that are not applied yet, at most; 0: 2, with sync 1 */
    int64_t max_staleness; /* updates that a gradient may miss; -1: any number */
    nw_staleness staleness;
    nw_correction correction;
    double dc_lambda;
    size_t memory_bytes; /* of gradients that a server holds at most, but for one, which always fits; 0: any number */
    int64_t deadline_ns; /* after which a worker that says nothing is dropped; 0: never */
    nw_travel *travel;   /* what encoding costs; outlives the exchange; NULL: nothing is counted */
    const void *report;  /* of this rank's last gradient, filled by whoever computes; goes where the world is counted */
    size_t report_bytes;
} nw_exchange_options;

/* NW_E_UNKNOWN names the nearest; NW_E_ARGUMENT if the world is not one for it. */
nw_status nw_exchange_create(nw_machine **exchange, const nw_exchange_options *options);
void nw_exchange_free(nw_machine *machine); /* also of a pipeline, with the exchange above it */

/* The exchanges, one file each. */
nw_status nw_none_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_allreduce_create(nw_machine **exchange, const nw_exchange_options *options);
nw_status nw_server_create(nw_machine **exchange, const nw_exchange_options *options);

/* The pipeline of a rank that has all stages (passes.c). Takes over the exchange. */
nw_status nw_passes_create(nw_machine **pipeline, nw_machine *exchange, const nw_params *params, int accumulation);

/* Of a group with servers: how many members compute, how many serve, and the bytes of gradients that each of these may
 * come to hold of so many parameters. */
int nw_server_workers(const nw_exchange_options *options);
int nw_server_servers(const nw_exchange_options *options);
size_t nw_server_holds(const nw_exchange_options *options, size_t floats);
/* ... and of what workers have of these, where codecs lose something of differences (server_shadows.c). */
size_t nw_server_shadow_bytes(const nw_exchange_options *options, const nw_segments *segments);

#endif
