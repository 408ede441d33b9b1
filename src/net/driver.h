/*
 * driver.h - who moves events: a driver runs the parties of this process until all of them rest.
 *
 * A world has `size` ranks; this process holds `count` of them, from `first` on: one under MPI, all of a virtual
 * cluster. nw_driver_run goes on until every party here is parked (its worker wants no more for now) and its exchange
 * is idle. What has to happen between (evaluation, checkpoints, comparing replicas) is written once, as loops over the
 * local parties with nw_driver_share where ranks must know of each other.
 *
 * Nothing waits for ever: a rank that hears nothing of those it waits for within `timeout_ns` fails with NW_E_PEER,
 * names them and what they last did, and, where a directory for dumps is given, every living rank writes what it knows
 * to it (docs/running.md). A rank that fails tells the others first.
 *
 * Stopping: when *stop becomes non-zero on one rank, its messages say so, and all ranks park before the same step.
 *
 * Threads: a driver, its parties and its pool belong to one thread.
 */
#ifndef NW_NET_DRIVER_H
#define NW_NET_DRIVER_H

#include "net/ledger.h"
#include "net/party.h"
#include "net/schedule.h"

#include <signal.h>
#include <stdio.h>

typedef struct nw_driver nw_driver;

/* Taps on the wall: what a driver tells those who draw or log. All may be NULL. */
typedef enum nw_span { NW_SPAN_COMPUTE, NW_SPAN_APPLY, NW_SPAN_HANDLE, NW_SPAN_WAIT } nw_span;
typedef struct nw_taps {
    void *context;
    void (*span)(void *context, int rank, nw_span span, int64_t begin_ns, int64_t end_ns, int64_t step);
    void (*sent)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    void (*received)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    /* An event is about to be handed to a rank. */
    void (*event)(void *context, int rank, const nw_event *event);
    /* Rank `by` has given up `rank`. */
    void (*lost)(void *context, int by, int rank, int64_t now_ns);
} nw_taps;

typedef struct nw_driver_options {
    int64_t timeout_ns; /* 0: for ever */
    const volatile sig_atomic_t *stop;
    const char *dump_dir; /* made when needed; NULL: no dumps */
    nw_ledger *ledger;    /* may be NULL */
    nw_taps taps;
    nw_recorder *recorder; /* may be NULL: writes down what a replay needs */
} nw_driver_options;

typedef struct nw_driver_ops {
    const char *name;
    nw_status (*run)(nw_driver *driver, nw_party *parties, bool flush);
    nw_status (*share)(nw_driver *driver, const void *mine, size_t bytes, void *all);
    nw_status (*collect)(nw_driver *driver, int from, void *data, size_t bytes);
    void (*fail)(nw_driver *driver, nw_status status, const char *reason);
    void (*reset)(nw_driver *driver); /* may be NULL */
    int64_t (*now)(nw_driver *driver, int rank);
    /* The last that was heard of a rank, for dumps; false: nothing. May be NULL. */
    bool (*heard)(nw_driver *driver, int rank, int64_t *ago_ns, nw_header *said);
    /* What the driver itself knows between runs, for checkpoints: numbers, to be freed. NULL: nothing. */
    nw_status (*save)(nw_driver *driver, int64_t **state, size_t *count);
    nw_status (*load)(nw_driver *driver, const int64_t *state, size_t count);
    void (*free)(nw_driver *driver); /* its own; the base's follows */
} nw_driver_ops;

/* The first member of every driver's own struct. */
struct nw_driver {
    const nw_driver_ops *ops;
    nw_driver_options options;
    int size, first, count;
    nw_party *parties; /* of the last run; NULL before the first */
    nw_message_pool *pool;
    nw_actions actions;
    uint32_t sequence;   /* messages of the driver's own so far */
    uint16_t generation; /* of nw_driver_reset */
    int64_t until;       /* updates after which the run under way ends, where the exchange hands out the work */
    bool *lost;          /* by rank: given up */
    int64_t stop_before; /* the step that no rank computes; INT64_MAX: none yet */
    int64_t waited_ns;   /* that local ranks had nothing to do but wait */
};

/* Runs the local parties (`count` of them) until all rest. flush: makes exchanges apply what they hold back first. Set
 * `until` before. */
nw_status nw_driver_run(nw_driver *driver, nw_party *parties, bool flush);
/* Whether a rank was asked to stop, and all have agreed to. */
bool nw_driver_stopped(const nw_driver *driver);

/* Every rank gives `bytes`; all get those of all ranks in the order of ranks. `mine` holds those of the local parties.
 * Between runs only. */
nw_status nw_driver_share(nw_driver *driver, const void *mine, size_t bytes, void *all);
/* Brings data of rank `from` to rank 0, in place: on `from` it is read, on rank 0 written (in one process: nothing to
 * do, and `data` is what it is). All ranks call it. */
nw_status nw_driver_collect(nw_driver *driver, int from, void *data, size_t bytes);
/* Tells the others that this process gives up, and why. They fail with NW_E_NUMERIC where this one does, so that all can go
 * back to a checkpoint, otherwise with NW_E_PEER. */
void nw_driver_fail(nw_driver *driver, nw_status status, const char *reason);
/* After a failure that all ranks share: forgets everything that is under way. The parties are to be made anew. */
void nw_driver_reset(nw_driver *driver);
int64_t nw_driver_now(nw_driver *driver, int rank);
void nw_driver_free(nw_driver *driver);

/* ---- the drivers -------------------------------------------------------------------------------------------------- */

/* A world of one rank, in real time. */
nw_status nw_local_create(nw_driver **driver, const nw_driver_options *options);

/* ---- for drivers -------------------------------------------------------------------------------------------------- */

nw_status nw_driver_init(nw_driver *driver, const nw_driver_ops *ops, const nw_driver_options *options, int size,
                         int first, int count);
/* Hands an event to a party. COMPUTE and APPLY go to its queue, COPY to its worker at once; the others stay in
 * driver->actions for the driver, which empties it. Messages get their numbers here, so that these depend on what the rank was told and on nothing else. */
nw_status nw_party_tell(nw_driver *driver, nw_party *party, nw_event event);
/* Takes the next thing to do, if the party may do it now. A COMPUTE that the worker does not want parks the party. */
bool nw_party_next(nw_driver *driver, nw_party *party, nw_action *action);
static inline bool nw_party_rests(const nw_party *p)
{
    bool done = p->exchange->hands_out ? p->queued == 0 : p->parked;
    return done && !p->busy && p->exchange->ops->idle(p->exchange);
}
/* Where the exchange hands out the work: how far the run goes that begins, and that it shall end, which a party that rests
 * already need not know. */
nw_status nw_party_go(nw_driver *driver, nw_party *party, int64_t now_ns);
nw_status nw_party_stop(nw_driver *driver, nw_party *party, int64_t now_ns);
/* A message is about to leave: fills the driver's fields of its header, and counts it. */
void nw_driver_stamp(nw_driver *driver, int from, int to, nw_message *message);
/* A message that was checked has come: counts it, and takes note of a wish to stop. */
void nw_driver_accept(nw_driver *driver, int from, int to, const nw_message *message);
/* An exchange has given up a rank. */
void nw_driver_lose(nw_driver *driver, int by, int rank);
/* Whether somebody was asked to stop, here or elsewhere. */
bool nw_driver_shall_stop(nw_driver *driver);
/* NW_E_PEER: `waited_ns` have passed, and the party, or the rank, still waits. */
nw_status nw_driver_timed_out(nw_driver *driver, const nw_party *party, int64_t waited_ns);
nw_status nw_wait_failed(const nw_wait *wait, int rank, int64_t waited_ns);
/* A COMPUTE that could not be finished (the epoch is over in the middle of it) is done from its beginning later. */
void nw_party_postpone(nw_party *party);
void nw_dump_write(nw_driver *driver, const nw_party *party, const char *reason, FILE *out);

#endif
