/*
 * Folder src/net: messages, the interface of machines, and the drivers that move events and messages in real time
 * (local, MPI); also roles, state lists, the event log's writer and the ledger of bytes. It knows no kind of exchange,
 * stage or model. May include: base.
 *
 * driver.h - who moves events: a driver runs the ranks of this process until all of them are quiescent.
 *
 * A world has `size` ranks; this process holds `count` of them, from `first` on: one under MPI, all of a virtual
 * cluster. nw_driver_run tells each how far to go and goes on until every one of them is quiescent (machine.h). What
 * has to happen between (evaluation, checkpoints, comparing replicas) is written once, as loops over the local ranks
 * with nw_driver_allgather where ranks must know of each other.
 *
 * Nothing waits for ever: a rank that hears nothing of one it waits for within `timeout_ns` fails with NW_E_PEER, names
 * them and what they last did, and, where a directory for dumps is given, every living rank writes what it knows
 * to it (docs/running.md). A rank that fails tells the others first.
 *
 * Stopping: when *stop becomes non-zero, or whoever runs it wants the ranks quiescent (`pauses`), the machines of this
 * process hear STOP, once in a run; that others must know is theirs to say.
 *
 * Threads: a driver, its ranks and its pool belong to one thread.
 */
#ifndef NW_NET_DRIVER_H
#define NW_NET_DRIVER_H

#include "net/ledger.h"
#include "net/machine.h"
#include "net/event_log.h"

#include <signal.h>
#include <stdio.h>

typedef struct nw_driver nw_driver;

/* Taps on the wall: what a driver tells those who draw or log. All may be NULL. */
typedef enum nw_span { NW_SPAN_COMPUTE, NW_SPAN_UPDATE, NW_SPAN_HANDLE, NW_SPAN_WAIT } nw_span;
typedef struct nw_taps {
    void *context;
    void (*span)(void *context, int rank, nw_span span, int64_t begin_ns, int64_t end_ns, int64_t step);
    void (*sent)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    void (*received)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    /* An event is about to be handed to a rank. */
    void (*event)(void *context, int rank, const nw_event *event);
    /* Rank `by` does not wait for `rank` any more, or does so again. */
    void (*dropped)(void *context, int by, int rank, bool back);
} nw_taps;

typedef struct nw_driver_options {
    int64_t timeout_ns; /* 0: for ever */
    const volatile sig_atomic_t *stop;
    const char *dump_dir; /* made when needed; NULL: no dumps */
    nw_ledger *ledger;    /* may be NULL */
    nw_taps hooks;
    nw_recorder *recorder; /* may be NULL: writes down what a replay needs */
    /* What machines of this process tell the run: COUNT and SNAPSHOT. May be NULL. */
    nw_status (*counted)(void *context, const nw_count *count);
    nw_status (*snapshot)(void *context, const nw_snapshot *snapshot);
    void *context;
} nw_driver_options;

typedef struct nw_driver_ops {
    const char *name;
    nw_status (*run)(nw_driver *driver, const nw_go *go);
    /* Between runs: a few bytes to another rank, and the next of one, which must be so many; then until all are sent.
     * NULL where all ranks are in this process. */
    nw_status (*say)(nw_driver *driver, int to, const void *data, size_t bytes);
    nw_status (*hear)(nw_driver *driver, int from, void *data, size_t bytes);
    nw_status (*finish)(nw_driver *driver);
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
    nw_rank *ranks; /* of the last run; NULL before the first */
    nw_message_pool *pool;
    nw_actions actions;
    uint64_t sequence;   /* messages of the driver's own so far */
    uint16_t generation; /* of nw_driver_reset */
    bool *dropped;       /* by rank: nobody waits for it */
    bool pauses;         /* set by the run, in COUNT or SNAPSHOT: this run shall end soon */
    bool stopping;       /* the machines were told to stop in this run */
    bool in_turn;        /* between runs: all ranks are heard, one after the other */
    bool over;           /* there is nothing more to run: a log has ended */
    int64_t waited_ns;   /* that local ranks had nothing to do but wait */
};

/* Runs the local ranks (`count` of them) until all are quiescent. Before the next run all must have met
 * (nw_driver_allgather), or a rank that is still in this one may hear what belongs to the next. */
nw_status nw_driver_run(nw_driver *driver, nw_rank *ranks, const nw_go *go);

/* Every rank gives `bytes`, at most NW_SHARE_MOST; all get those of all ranks in the order of ranks, zeros of dropped
 * ones elsewhere. `mine` holds those of the local ranks. Between runs only, as the next two. */
enum { NW_SHARE_MOST = 256 };
nw_status nw_driver_allgather(nw_driver *driver, const void *mine, size_t bytes, void *all);
/* Brings data of rank `from` to rank 0, in place: on `from` it is read, on rank 0 written (in one process: nothing to
 * do, and `data` is what it is). Both call it; others may. */
nw_status nw_driver_gather(nw_driver *driver, int from, void *data, size_t bytes);
/* Makes the vectors of all ranks the mean over those that give (by rank; the same on all), added in the order of ranks:
 * the same bits by every driver. `vectors` are those of the local ranks. Each rank owns a part: it gets the others'
 * contributions to it, and sends the mean to all. */
nw_status nw_driver_mean(nw_driver *driver, float *const *vectors, size_t floats, const bool *gives);
/* Tells the others that this process fails, and why. They fail with the same status where it is
 * NW_E_NUMERIC, so that all can go back to a checkpoint, or NW_E_MISMATCH; otherwise with NW_E_PEER. */
void nw_driver_fail(nw_driver *driver, nw_status status, const char *reason);
/* After a failure that all ranks share: forgets everything that is under way. The machines are to be made anew. */
void nw_driver_reset(nw_driver *driver);
int64_t nw_driver_now(nw_driver *driver, int rank);
void nw_driver_free(nw_driver *driver);
static inline void nw_driver_autofree(nw_driver **driver) { nw_driver_free(*driver); }

/* ---- the drivers ------------------------------------------------------------------------------------------------- */

/* A world of one rank, in real time. */
nw_status nw_local_create(nw_driver **driver, const nw_driver_options *options);

/* ---- for drivers ------------------------------------------------------------------------------------------------- */

/* A driver whose own struct has `bytes`, all of it zero but for the base. */
nw_status nw_driver_create(nw_driver **driver, size_t bytes, const nw_driver_ops *ops, const nw_driver_options *options,
                           int size, int first, int count);
/* Hands an event to a rank's machines. Tasks go to its queue, counts and snapshots to whoever wants them; the others
 * stay in driver->actions for the driver, which empties it. Messages get their numbers here, so that these depend on
 * what the rank was told and on nothing else. */
nw_status nw_rank_tell(nw_driver *driver, nw_rank *rank, nw_event event);
/* Takes the next task, which is under way then; false: there is none, or one is under way already. */
bool nw_rank_next(nw_driver *driver, nw_rank *rank);
/* Lets the worker do the task under way, whole: before anybody can move what it reads. */
nw_status nw_rank_do(nw_rank *rank, nw_announce *announce);
/* The task under way is done. */
nw_status nw_rank_done(nw_driver *driver, nw_rank *rank, int64_t now_ns);
/* The task under way has announced that its gradient is final from there on. */
nw_status nw_rank_final(nw_driver *driver, nw_rank *rank, size_t first, int64_t now_ns);
/* Whether the machines are to be told that there shall be no more, and were not. */
bool nw_driver_is_asked(const nw_driver *driver);
/* The same, once in a run. */
bool nw_driver_shall_stop(nw_driver *driver);
/* A message is about to leave: fills the driver's fields of its header, and counts it. */
void nw_driver_stamp(nw_driver *driver, int from, int to, nw_message *message);
/* A message that was checked has come: counts it. */
void nw_driver_accept(nw_driver *driver, int from, int to, const nw_message *message);
/* DROP and BACK: a machine of rank `by` does not wait for `rank` any more, or does so again. */
void nw_driver_drop(nw_driver *driver, int by, int rank, bool back);
/* Whether a rank that has had nothing to do since `idle_ns` waits for one that it has not heard for too long;
 * `heard_ns` is by rank. All in its own time. Timers are no news: those of an exchange may ring for ever. */
bool nw_rank_is_late(const nw_driver *driver, const nw_rank *rank, int64_t now_ns, int64_t idle_ns,
                     const int64_t *heard_ns);
/* NW_E_PEER: `waited_ns` have passed, and the rank still waits. */
nw_status nw_driver_timed_out(const nw_rank *rank, int64_t waited_ns);
nw_status nw_wait_failed(const nw_wait *wait, int rank, int64_t waited_ns);
void nw_dump_write(nw_driver *driver, const nw_rank *rank, const char *reason, FILE *out);

#endif
