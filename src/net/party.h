/*
 * party.h - a rank as its driver sees it: an exchange that decides, and a worker that computes.
 *
 * An exchange is a state machine without I/O. It hears events (a gradient is complete, a message has arrived) and
 * answers with actions (compute, send, apply). It never waits, never asks for the time and never talks to the network:
 * a driver does, and there are several: one for a process alone (local.c), one for processes joined by MPI (mpi.c), one
 * that simulates a cluster on a clock of its own (virtual.c), one that repeats a recorded run (replay.c). So the same
 * code runs, is simulated, is replayed bit for bit, is saved between any two events (its state is data, not a C stack),
 * and is driven through every order of events by tests.
 *
 *   event      what has happened                                  who cares
 *   BEGIN      the rank starts, or goes on after it was loaded    all: the first COMPUTE
 *   READY      the gradient is final from element `first` on      those who send parts early
 *   COMPUTED   the gradient is complete                           all
 *   MESSAGE    `message` has arrived                              all; hold it to keep it after the call
 *   APPLIED    the update asked for has been made                 all
 *   TIMER      the time asked for has come                        those who asked
 *   GO         a run begins: `until` updates; 0: it shall end     those who hand out the work
 *   FLUSH      apply what is still held back                      those who delay updates
 *
 *   action     what shall be done
 *   COMPUTE    the gradient of the next batch at the present parameters, into the gradient vector
 *   SEND       `message` to rank `to`; the action's reference goes with it
 *   APPLY      one update with `gradient` times `scale`, of a range where `count` is not 0
 *   TIMER      a TIMER event at `at_ns`, instead of the one asked for before; NW_NO_TIMER: none
 *   LOST       rank `to` is given up: nobody waits for it any more
 *   COPY       `values` are all parameters as they were after `number` updates: to be looked at, not to train with
 *
 * A rank computes one thing at a time: COMPUTE and APPLY are done in order, one after the other, and answered by
 * COMPUTED and APPLIED. Messages are handled in between, and between the layers of a computation; SEND and COPY are
 * immediate.
 * Messages from one rank to another arrive in the order in which they were sent.
 *
 * How a run ends. Where ranks work in step, a worker refuses to compute (`wants`): an epoch is over, a checkpoint is due.
 * The COMPUTE stays where it is and the rank is parked; when its exchange is idle too, nothing is under way and everything
 * can be saved. Where they do not (`hands_out`), the exchange itself decides how many gradients are computed, as GO tells
 * it, whoever computes them; it asks for no more, and is idle when all ranks know that the run is over.
 */
#ifndef NW_NET_PARTY_H
#define NW_NET_PARTY_H

#include "net/message.h"

typedef enum nw_event_kind {
    NW_EVENT_BEGIN,
    NW_EVENT_READY,
    NW_EVENT_COMPUTED,
    NW_EVENT_MESSAGE,
    NW_EVENT_APPLIED,
    NW_EVENT_TIMER,
    NW_EVENT_GO,
    NW_EVENT_FLUSH
} nw_event_kind;

typedef struct nw_event {
    nw_event_kind kind;
    int64_t now_ns;      /* the driver's clock: real, virtual or recorded */
    nw_message *message; /* MESSAGE */
    size_t first;        /* READY */
    int64_t until;       /* GO: updates of the world, all runs together; 0: no more than are under way, if any are */
} nw_event;

typedef enum nw_action_kind {
    NW_ACTION_COMPUTE,
    NW_ACTION_SEND,
    NW_ACTION_APPLY,
    NW_ACTION_TIMER,
    NW_ACTION_LOST,
    NW_ACTION_COPY
} nw_action_kind;
#define NW_NO_TIMER INT64_MAX

/* A gradient that came from a rank, for a part of the parameters. */
typedef struct nw_given {
    size_t first, count;  /* the range of this update; the rest is another server's */
    int64_t number;       /* of the update, from 0 */
    int64_t delay;        /* updates since the parameters that it was computed from */
    int from_count;       /* ranks it is the mean of ... */
    const int *from;      /* ... in ascending order */
    const void **reports; /* what each said of its batch: nw_exchange_options.report_bytes */
} nw_given;

typedef struct nw_action {
    nw_action_kind kind;
    int to;                /* SEND, LOST */
    nw_message *message;   /* SEND */
    float *gradient;       /* APPLY: the exchange's, or NULL for the worker's own vector */
    float scale;           /* APPLY */
    int lag;               /* APPLY: gradients computed since the one that is applied */
    int64_t at_ns;         /* TIMER */
    const float *values;   /* COPY: the exchange's, until its next event */
    int64_t number;        /* COPY: updates */
    const nw_given *given; /* APPLY, where the work is handed out: what is applied. Valid until APPLIED is told */
} nw_action;

/* What an exchange answers to one event. `touched` is the memory that handling it read and wrote, in bytes, from which
 * a virtual cluster knows how long it took. */
typedef struct nw_actions {
    nw_action *at;
    int count, capacity;
    size_t touched;
    nw_message_pool *pool; /* what messages are made of */
    nw_status status;      /* of the first that did not fit into memory */
} nw_actions;

void nw_actions_add(nw_actions *actions, nw_action action);
void nw_actions_clear(nw_actions *actions); /* drops messages that were not sent; the room stays */
void nw_actions_free(nw_actions *actions);

/* Whom a rank waits for, for people: ranks in ascending order, and what they owe. */
enum { NW_WAIT_RANKS = 64 };
typedef struct nw_wait {
    int ranks[NW_WAIT_RANKS];
    int count; /* may be greater than NW_WAIT_RANKS: then only the first are listed */
    char what[160];
} nw_wait;
void nw_wait_add(nw_wait *wait, int rank);
/* "ranks 2, 5: gradient of bucket 3, step 120" */
void nw_wait_text(const nw_wait *wait, char *text, size_t size);

/* What an exchange's state consists of, for checkpoints: named integers and float vectors, which may be written too. */
enum { NW_STATE_MOST = 32 };
typedef struct nw_exchange_state {
    struct {
        const char *name;
        int64_t *value;
    } integers[NW_STATE_MOST];
    struct {
        const char *name;
        float *data; /* parallel to the parameters */
    } vectors[NW_STATE_MOST];
    int integer_count, vector_count;
} nw_exchange_state;

typedef struct nw_exchange nw_exchange;

typedef struct nw_exchange_ops {
    const char *name;
    nw_status (*handle)(nw_exchange *exchange, const nw_event *event, nw_actions *actions);
    /* Whether no message and no action is under way or expected, so that the state can be saved. */
    bool (*idle)(const nw_exchange *exchange);
    void (*waits)(const nw_exchange *exchange, nw_wait *wait);
    /* Of an idle exchange. Which vectors there are depends on the integers: load those first, and ask again. */
    void (*state)(nw_exchange *exchange, nw_exchange_state *state);
    void (*free)(nw_exchange *exchange);
    /* After its integers were loaded: NW_E_FILE if they make no sense, or else what the vectors need. NULL: nothing. */
    nw_status (*loaded)(nw_exchange *exchange);
    /* Updates of the world so far; at rest all ranks know it. NULL: as many as the rank has begun gradients. */
    int64_t (*progress)(const nw_exchange *exchange);
} nw_exchange_ops;

/* The first member of every exchange's own struct. */
struct nw_exchange {
    const nw_exchange_ops *ops;
    int rank, world;
    bool equal;     /* replicas are equal at rest, bit for bit */
    bool hands_out; /* it decides how many gradients are computed: GO */
    bool watches;   /* it has timers and gives up ranks itself, so its driver waits twice as long before it fails */
    size_t first, count; /* the range whose optimizer state is this rank's alone; count 0: none */
};

/* What a computation calls after each of its layers, so that messages move while it runs. `final`: the gradient is
 * final from element `first` on. NULL where nobody cares. */
typedef struct nw_between {
    void (*call)(struct nw_between *between, bool final, size_t first);
} nw_between;

typedef struct nw_worker_ops {
    /* Whether the next gradient may be computed now. */
    bool (*wants)(void *worker);
    /* *complete false: there is no gradient yet (an epoch ended before it was), and it will be asked for again. */
    nw_status (*compute)(void *worker, nw_between *between, bool *complete);
    nw_status (*apply)(void *worker, const nw_action *action);
    /* COPY, also in the middle of a computation. NULL: its exchange makes none. */
    nw_status (*copied)(void *worker, const nw_action *action);
} nw_worker_ops;

enum { NW_PARTY_QUEUE = 8 };

typedef struct nw_party {
    nw_exchange *exchange;
    void *worker;
    const nw_worker_ops *work;
    /* The driver's: */
    nw_action queue[NW_PARTY_QUEUE]; /* COMPUTE and APPLY that wait for their turn */
    int queued;
    bool begun, busy, parked;
    int64_t step;      /* gradients begun */
    uint32_t sequence; /* messages made by the exchange in this process */
} nw_party;

/* What a run counts: updates of the world where the work is handed out, gradients begun elsewhere. */
static inline int64_t nw_party_progress(const nw_party *p)
{
    return p->exchange->ops->progress ? p->exchange->ops->progress(p->exchange) : p->step;
}

#endif
