/*
 * machine.h - a rank as its driver sees it: a state machine that decides, and a worker that does tasks.
 *
 * A rank is one stack: an exchange (how replicas agree) over a pipeline (how a gradient is made of passes; with one
 * stage a rank, exchange/passes.c) over a worker (task.h). Exchange and pipeline are machines: they receive events and
 * return actions. They never wait, never read a clock and never use the network; drivers do that: one for a single
 * process (local.c), one for processes joined by MPI (mpi.c), one that simulates a cluster with a virtual clock
 * (virtual.c), one that repeats a recorded run (replay.c). So the same code runs, is simulated, is replayed bit for
 * bit, is saved between runs (its state is data, not a C stack), and is tested with every order of events.
 *
 *   event      what has happened                                       who handles it
 *   GO         a run begins: how far it goes                           all; an exchange also when its pipeline drains
 *   STOP       this rank was asked to stop; once in a run              all: the run ends as soon as it can
 *   MESSAGE    `message` of member `from` has arrived                  the machine that owns its channel
 *   TIMER      the requested time has come                             the machine that requested it
 *   FINAL      the running task will not change the gradient from `first` on
 *   OUT        the running task sends `message` up or down             the pipeline
 *   DONE       `task` is done                                          the machine that requested it
 *
 *   action     what shall be done
 *   TASK       do `task` after those that were requested before; a pass that continues a gradient goes before them
 *   SEND       send `message` to rank `to`; the action's reference is used up
 *   TIMER      set the timer to `at_ns`, instead of the time requested before; NW_NO_TIMER: none
 *   DROP       do not wait for rank `to` any more; it may come back
 *   BACK       rank `to`, which was dropped, is back
 *   COUNT      the world has made `count->updates` updates; emitted once for each update, by one rank
 *   SNAPSHOT   the parameters of the world after that many updates, for evaluation
 *
 * A rank does one task at a time, in the order in which tasks were requested. Messages are handled between tasks, and
 * between the layers of a running task or the parts of an update (simulated ranks handle them after the task); all
 * other actions are immediate. Messages from one rank to another arrive in the order in which they were sent.
 *
 * Runs. GO says how many updates the world shall have made when the run ends (`until`); a machine stops by itself. A
 * rank is quiescent when no other rank can need it before the next GO and no message of its own is in flight; then
 * everything can be saved. All ranks of the world must be quiescent before any of them begins the next run, so the
 * caller synchronises them first (nw_driver_allgather); a STOP applies to one run only.
 *
 * Groups. A machine sees the members of its group and its own index among them, never ranks of the world:
 * nw_machine_send and event.from translate.
 */
#ifndef NW_NET_MACHINE_H
#define NW_NET_MACHINE_H

#include "net/factors.h"
#include "net/task.h"

/* Members in ascending order of their ranks; `ranks` must outlive the machine. */
typedef struct nw_group {
    const uint16_t *ranks;
    int count, me;
} nw_group;
int nw_group_find(const nw_group *group, int rank); /* -1: the rank is not a member */

typedef struct nw_go {
    int64_t until;            /* updates of the world, counted over all runs */
    int64_t batches;          /* in lockstep: batches that this rank computes in this run; else INT64_MAX */
    bool drain;               /* apply updates that a delay holds back */
    const int64_t *snapshots; /* due after these updates, ascending; valid until the run ends */
    int snapshot_count;
} nw_go;

typedef enum nw_event_kind {
    NW_EVENT_GO,
    NW_EVENT_STOP,
    NW_EVENT_MESSAGE,
    NW_EVENT_TIMER,
    NW_EVENT_FINAL,
    NW_EVENT_OUT,
    NW_EVENT_DONE,
    NW_EVENT_KINDS
} nw_event_kind;

typedef struct nw_event {
    nw_event_kind kind;
    int64_t now_ns;      /* the rank's own time: the time in which it ran, or simulated, or recorded time */
    nw_message *message; /* MESSAGE, OUT; hold it to keep it after the call */
    size_t first;        /* FINAL */
    const nw_task *task; /* FINAL, DONE; its `clock` is known */
    const nw_go *go;     /* GO */
} nw_event;

/* An update of the world. */
typedef struct nw_count {
    int64_t updates;      /* number of updates, including this one */
    int64_t delay;        /* updates made since the parameters from which its gradient was computed */
    int64_t clock;        /* the batch number that determined its learning rate */
    int64_t thrown_away;  /* number of gradients so far that were discarded because they were too old */
    int from_count;       /* number of members that contributed */
    const int *from;      /* these members, ascending */
    const void **reports; /* the report of each about its batches: nw_exchange_options.report_bytes */
} nw_count;

typedef struct nw_snapshot {
    int64_t updates;
    const float *values; /* all parameters; valid until the call returns */
    double spread;       /* where the values are a mean over members: the sum of the members' squared distances to it */
    bool unasked;        /* not listed in GO: only the spread is of interest */
} nw_snapshot;

typedef enum nw_action_kind {
    NW_ACTION_TASK,
    NW_ACTION_SEND,
    NW_ACTION_TIMER,
    NW_ACTION_DROP,
    NW_ACTION_BACK,
    NW_ACTION_COUNT,
    NW_ACTION_SNAPSHOT
} nw_action_kind;
#define NW_NO_TIMER INT64_MAX

typedef struct nw_action {
    nw_action_kind kind;
    int to;                /* SEND, DROP, BACK: a rank of the world */
    nw_message *message;   /* SEND */
    nw_task task;          /* TASK */
    int64_t at_ns;         /* TIMER */
    const nw_count *count; /* COUNT: the machine's, until its next event */
    nw_snapshot snapshot;  /* SNAPSHOT */
} nw_action;

/* The answer of a machine to one event. */
typedef struct nw_actions {
    nw_action *at;
    int count, capacity;
    size_t touched; /* bytes that the handler read and wrote; a virtual cluster computes its duration from them */
    nw_message_pool *pool;     /* for new messages */
    nw_status status;          /* of the first action that could not be added */
    const nw_task *running;    /* the running task, or NULL */
    size_t final;              /* its gradient is final from here on; handlers must not touch what lies before */
    const nw_factors *factors; /* what codecs cost, on a virtual cluster; or NULL */
} nw_actions;

void nw_actions_add(nw_actions *actions, nw_action action);
void nw_actions_clear(nw_actions *actions); /* drops messages that were not sent; keeps the memory */
void nw_actions_free(nw_actions *actions);
/* Reports that a handler reads or writes `count` floats at `at`. Touching what the running task owns is an internal
 * error. */
void nw_actions_touch(nw_actions *actions, const float *at, size_t count, bool write);
static inline void nw_actions_task(nw_actions *actions, nw_task task)
{
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TASK, .task = task});
}

/* For messages to the user: the ranks for which a rank waits, ascending, and what they have to send. */
enum { NW_WAIT_MOST = 64 };
typedef struct nw_wait {
    int ranks[NW_WAIT_MOST];
    int count; /* if greater than NW_WAIT_MOST, only the first ones are listed */
    char what[160];
} nw_wait;
void nw_wait_add(nw_wait *wait, const nw_group *group, int member);
/* "ranks 2 and 5: gradient of bucket 3, step 120" */
void nw_wait_text(const nw_wait *wait, char *text, size_t size);

typedef struct nw_machine nw_machine;

typedef struct nw_machine_ops {
    const char *name;
    nw_status (*handle)(nw_machine *machine, const nw_event *event, nw_actions *actions);
    /* Whether no other rank can need this rank before the next GO, and no message of its own is in flight or
     * expected. */
    bool (*quiescent)(const nw_machine *machine);
    void (*waits)(const nw_machine *machine, nw_wait *wait);
    /* When quiescent: adds the machine's state to a list (state.h). */
    void (*state)(nw_machine *machine, nw_state *state);
    void (*free)(nw_machine *machine);
    /* Called after the single numbers of the state were loaded: checks them (NW_E_FILE), and allocates what the tensors
     * of the state need. May be NULL. */
    nw_status (*loaded)(nw_machine *machine);
} nw_machine_ops;

/* The first member of every machine's own struct. */
struct nw_machine {
    const nw_machine_ops *ops;
    nw_group group;
    int64_t updates; /* updates of the world that this member knows of; equal on all members when quiescent */
    bool equal;      /* replicas are equal when quiescent, bit for bit */
    bool lockstep;   /* all members compute the same number of gradients */
    bool moves;      /* it changes parameters while gradients are computed, so a pass reads a copy */
    bool drops;      /* it drops silent members by its own timers, so the driver waits twice as long before it fails */
    bool
        patient; /* so it does now: whoever is waited for may wait for the one that is silent, and is to say so first */
    float *outer; /* outer parameters: what is evaluated, and saved as the model, instead of the values; may be NULL */
    bool outer_equal;    /* they are equal on all members, bit for bit; else their mean is evaluated and saved */
    size_t first, count; /* the range whose optimizer state only this rank has; count 0: none */
};

/* Sends a message to a member. The caller's reference is used up. */
static inline void nw_machine_send(const nw_machine *m, nw_actions *actions, int channel, int to, nw_message *message)
{
    message->header->channel = (uint8_t)channel;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = m->group.ranks[to], .message = message});
}
/* The member that sent a message; NW_E_MESSAGE if its rank is not a member. */
nw_status nw_machine_sender(const nw_machine *machine, const nw_message *message, int *from);

enum { NW_RANK_QUEUE = 8 };

/* A rank of this process. */
typedef struct nw_rank {
    int index;           /* in the world */
    nw_machine *machine; /* the lowest machine of its stack (the pipeline), which receives all events first */
    void *worker;
    const nw_worker_ops *work;
    /* For the driver: */
    nw_task queue[NW_RANK_QUEUE]; /* tasks that wait */
    int queued;
    nw_task task; /* the running task, if busy */
    size_t final; /* its gradient is final from here on */
    bool busy;
    int64_t step; /* number of gradients begun */
    int64_t
        elapsed_ns; /* its own time at the end of the last run, with which the next begins; not in virtual clusters */
    uint64_t sequence; /* number of messages of its machines in this process */
} nw_rank;

/* The state of a rank, for saving and loading: that of its machines, under names that begin with "exchange.", that of
 * its worker, and its own time. */
nw_state_owner nw_rank_state(nw_rank *rank);

static inline bool nw_rank_is_quiescent(const nw_rank *r)
{
    return r->queued == 0 && !r->busy && r->machine->ops->quiescent(r->machine);
}

#endif
