/*
 * Folder src/net: messages, the interface of machines, and the drivers that move events and messages in real time
 * (local, MPI); also roles, state lists, the event log's writer and the ledger of bytes. It knows no kind of exchange,
 * stage or model. May include: base.
 *
 * driver.h - the interface of drivers. A driver passes events and messages to the ranks of this process until all of
 * them are quiescent.
 *
 * A world has `size` ranks; this process holds `count` of them, from `first` on: one under MPI, all in a virtual
 * cluster. nw_driver_run tells each rank how far to go, and returns when all of them are quiescent (machine.h). What
 * happens between two runs (evaluation, checkpoints, comparing replicas) is a loop over the local ranks, with
 * nw_driver_allgather where ranks need numbers from each other.
 *
 * Timeouts: a rank that needs another one and receives nothing from it within `timeout_ns` fails with NW_E_PEER; the
 * sentence names that rank and its last message. If a directory for dumps is given, every living rank writes its state
 * there (docs/running.md). A rank that fails tells the others first.
 *
 * Stopping: when *stop becomes non-zero, or the run sets `pauses`, the machines of this process receive STOP, once in a
 * run. Telling other ranks is the machines' task.
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

/* Hooks for traces and logs, called by the driver. All may be NULL. */
typedef enum nw_span { NW_SPAN_COMPUTE, NW_SPAN_UPDATE, NW_SPAN_HANDLE, NW_SPAN_WAIT } nw_span;
typedef struct nw_driver_hooks {
    void *context;
    void (*span)(void *context, int rank, nw_span span, int64_t begin_ns, int64_t end_ns, int64_t step);
    void (*sent)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    void (*received)(void *context, int from, int to, const nw_header *header, int64_t now_ns);
    /* An event is about to be passed to a rank. */
    void (*event)(void *context, int rank, const nw_event *event);
    /* Rank `by` no longer waits for `rank`, or (back) does so again. */
    void (*dropped)(void *context, int by, int rank, bool back);
} nw_driver_hooks;

typedef struct nw_driver_options {
    int64_t timeout_ns; /* 0: no limit */
    const volatile sig_atomic_t *stop;
    const char *dump_dir; /* created when needed; NULL: no dumps */
    nw_ledger *ledger;    /* may be NULL */
    nw_driver_hooks hooks;
    nw_recorder *recorder; /* records what a replay needs; may be NULL */
    /* Called for COUNT and SNAPSHOT actions of machines of this process. May be NULL. */
    nw_status (*counted)(void *context, const nw_count *count);
    nw_status (*snapshot)(void *context, const nw_snapshot *snapshot);
    void *context;
} nw_driver_options;

/* What a turn of a run did: nothing, something, or it was the last. */
typedef enum nw_turn { NW_TURN_IDLE, NW_TURN_MOVED, NW_TURN_OVER } nw_turn;

typedef struct nw_driver_ops {
    const char *name;
    nw_status (*run)(nw_driver *driver, const nw_go *go);
    nw_status (*begin)(nw_driver *driver, const nw_go *go); /* both NULL if the time is not real */
    nw_status (*turn)(nw_driver *driver, nw_turn *turn);
    /* Between runs: sends a few bytes to a rank; receives the next bytes of a rank, which must be exactly that many;
     * waits until all are sent. NULL where all ranks are in this process. */
    nw_status (*send)(nw_driver *driver, int to, const void *data, size_t bytes);
    nw_status (*receive)(nw_driver *driver, int from, void *data, size_t bytes);
    nw_status (*finish)(nw_driver *driver);
    void (*fail)(nw_driver *driver, nw_status status, const char *reason);
    void (*reset)(nw_driver *driver); /* may be NULL */
    int64_t (*now)(nw_driver *driver, int rank);
    /* The last message received from a rank, for dumps; false: there was none. May be NULL. */
    bool (*last_message)(nw_driver *driver, int rank, int64_t *ago_ns, nw_header *header);
    /* The driver's own state between runs, for checkpoints: a list of integers, to be freed. NULL: it has none. */
    nw_status (*save)(nw_driver *driver, int64_t **state, size_t *count);
    nw_status (*load)(nw_driver *driver, const int64_t *state, size_t count);
    void (*free)(nw_driver *driver); /* frees what the driver's own struct has beyond the base */
} nw_driver_ops;

/* The first member of every driver's own struct. */
struct nw_driver {
    const nw_driver_ops *ops;
    nw_driver_options options;
    int size, first, count;
    nw_rank *ranks; /* those of the last run; NULL before the first */
    nw_message_pool *pool;
    nw_actions actions;
    uint64_t sequence;   /* number of the driver's own messages so far */
    uint16_t generation; /* number of calls of nw_driver_reset */
    bool *dropped;       /* by rank: no other rank waits for it */
    bool pauses;         /* set by the run, during COUNT or SNAPSHOT: this run shall end soon */
    bool stopping;       /* the machines were told to stop in this run */
    bool in_turn;        /* between runs: messages are received from one rank after the other, from all of them */
    bool over;           /* replay: the log has ended */
    int64_t waited_ns;   /* time in which local ranks had nothing to do */
};

/* Runs the local ranks (`count` of them) until all are quiescent. Before the next run all ranks must synchronise
 * (nw_driver_allgather); otherwise a rank that is still in this run could receive messages of the next. */
nw_status nw_driver_run(nw_driver *driver, nw_rank *ranks, const nw_go *go);

/* The same in turns, in real time only: a worker may leave a task pending (task.h), and the caller may do something else
 * between two turns. A turn does what can be done without waiting. If one fails, the run has ended. */
nw_status nw_driver_begin(nw_driver *driver, nw_rank *ranks, const nw_go *go);
nw_status nw_driver_turn(nw_driver *driver, nw_turn *turn);
/* The task that the rank's worker left pending is done; `ends`: of a pass, there was no batch any more. */
void nw_driver_finish(nw_rank *rank, bool ends);

/* Every rank contributes `bytes`, at most NW_SHARE_MOST; all get the bytes of all ranks, in the order of ranks (zeros
 * for dropped ones of other processes). `mine` has those of the local ranks. To be called between runs only, as the
 * next two. */
enum { NW_SHARE_MOST = 256 };
nw_status nw_driver_allgather(nw_driver *driver, const void *mine, size_t bytes, void *all);
/* Copies `data` from rank `from` to rank 0. Both must call it; others may. If both are in one process, nothing is
 * done. */
nw_status nw_driver_gather(nw_driver *driver, int from, void *data, size_t bytes);
/* Sets the vectors of all ranks to the mean over the ranks in `gives` (which must be equal on all ranks), added in the
 * order of ranks, so that every driver computes the same bits. `vectors` are those of the local ranks. Each rank owns a
 * part, for which it receives the others' contributions and sends the mean to all. */
nw_status nw_driver_mean(nw_driver *driver, float *const *vectors, size_t floats, const bool *gives);
/* Tells the other ranks that this process fails, and why. They fail with the same status if it is NW_E_NUMERIC (all
 * then go back to a checkpoint) or NW_E_MISMATCH; otherwise with NW_E_PEER. */
void nw_driver_fail(nw_driver *driver, nw_status status, const char *reason);
/* After a failure of all ranks: discards all messages and tasks. The machines must be created anew. */
void nw_driver_reset(nw_driver *driver);
int64_t nw_driver_now(nw_driver *driver, int rank);
void nw_driver_free(nw_driver *driver);
static inline void nw_driver_autofree(nw_driver **driver) { nw_driver_free(*driver); }

/* ---- the drivers ------------------------------------------------------------------------------------------------- */

/* A world of one rank, in real time. */
nw_status nw_local_create(nw_driver **driver, const nw_driver_options *options);

/* ---- for drivers ------------------------------------------------------------------------------------------------- */

/* Allocates a driver whose own struct has `bytes`; all but the base is zero. */
nw_status nw_driver_create(nw_driver **driver, size_t bytes, const nw_driver_ops *ops, const nw_driver_options *options,
                           int size, int first, int count);
/* Passes an event to a rank's machines. Tasks in the answer go to the rank's queue, counts and snapshots to the run;
 * the other actions stay in driver->actions, which the driver must empty. Messages get their sequence numbers here, so
 * that these depend only on the events that the rank received. */
nw_status nw_rank_tell(nw_driver *driver, nw_rank *rank, nw_event event);
/* Starts the next task of the queue; false: there is none, or one is running already. */
bool nw_rank_next(nw_driver *driver, nw_rank *rank);
/* Lets the worker do the running task completely, so that the parameters that it reads cannot change meanwhile. */
nw_status nw_rank_do(nw_rank *rank, nw_announce *announce);
/* The running task is done. */
nw_status nw_rank_done(nw_driver *driver, nw_rank *rank, int64_t now_ns);
/* The running task has announced that its gradient is final from `first` on. */
nw_status nw_rank_final(nw_driver *driver, nw_rank *rank, size_t first, int64_t now_ns);
/* Whether a stop was requested and the machines have not been told yet. */
bool nw_driver_is_asked(const nw_driver *driver);
/* The same; it returns true at most once in a run. */
bool nw_driver_shall_stop(nw_driver *driver);
/* To be called before a message is sent: fills the driver's fields of its header, and counts it. */
void nw_driver_stamp(nw_driver *driver, int from, int to, nw_message *message);
/* To be called when a message has arrived and was checked: counts it. */
void nw_driver_accept(nw_driver *driver, int from, int to, const nw_message *message);
/* DROP and BACK: a machine of rank `by` no longer waits for `rank`, or does so again. Where all ranks are in one process,
 * that of rank 0 decides for all: others hear of it at any time later. */
void nw_driver_drop(nw_driver *driver, int by, int rank, bool back);
/* Whether a rank, idle since `idle_ns`, waits for a rank from which it has received nothing for too long. `received_ns`
 * is indexed by rank; all times are the rank's own. Timers do not count as news, because an exchange may set them for
 * ever. */
bool nw_rank_is_late(const nw_driver *driver, const nw_rank *rank, int64_t now_ns, int64_t idle_ns,
                     const int64_t *received_ns);
/* Return NW_E_PEER with a sentence: the rank has waited for `waited_ns`. */
nw_status nw_driver_timed_out(const nw_rank *rank, int64_t waited_ns);
nw_status nw_wait_failed(const nw_wait *wait, int rank, int64_t waited_ns);
void nw_dump_write(nw_driver *driver, const nw_rank *rank, const char *reason, FILE *out);

#endif
