/*
 * machine.h - a rank as its driver sees it: a state machine that decides, and a worker that does tasks.
 *
 * A rank is one stack: an exchange (how replicas agree) over a pipeline (how a gradient is made of passes; with one
 * stage a rank, exchange/passes.c) over a worker (task.h). Exchange and pipeline are machines: they hear events and
 * answer with actions. They never wait, never ask for the time and never talk to the network: a driver does, and there
 * are several: one for a process alone (local.c), one for processes joined by MPI (mpi.c), one that simulates a cluster
 * on a clock of its own (virtual.c), one that repeats a recorded run (replay.c). So the same code runs, is simulated,
 * is replayed bit for bit, is saved between runs (its state is data, not a C stack), and is driven through every order
 * of events by tests.
 *
 *   event      what has happened                                       who cares
 *   GO         a run begins: how far it goes                           all; an exchange also when its pipeline drains
 *   STOP       this rank was asked to stop; once in a run              all: the run ends as soon as it can
 *   MESSAGE    `message` of member `from` has arrived                  the machine that owns its channel
 *   TIMER      the time asked for has come                             who asked
 *   FINAL      the task under way touches the gradient from `first` on no more
 *   OUT        the task under way sends `message` up or down           the pipeline
 *   DONE       `task` is done                                          who asked for it
 *
 *   action     what shall be done
 *   TASK       `task`, behind those that were asked for before; a pass that goes on with a gradient, before them
 *   SEND       `message` to rank `to`; the action's reference goes with it
 *   TIMER      a TIMER event at `at_ns`, instead of the one asked for before; NW_NO_TIMER: none
 *   DROP       nobody waits for rank `to` any more; it may come back
 *   BACK       rank `to`, which was dropped, is back
 *   COUNT      the world has made `count->updates` updates: told once for each, where the world is counted
 *   SNAPSHOT   parameters of the world after so many updates, to be looked at, not to train with
 *
 * A rank does one task at a time, in the order in which they were asked for. Messages are handled between tasks, and
 * between the layers of a running one or the parts of an update (but of simulated ranks, after it); all other actions
 * are immediate. Messages from one rank to another arrive in the order in which they were sent.
 *
 * Pace. GO says how many updates the world shall have made when the run ends (`until`), and a machine stops by itself;
 * it is quiescent when nobody can need this rank before the next GO and nothing of its own is on the wire. Then
 * everything can be saved. All ranks of the world are quiescent before any of them begins the next run: those who run a
 * driver again let them agree first (nw_driver_allgather), since a STOP is about one run.
 *
 * Groups. A machine sees the members of its group and its own index among them, never ranks of the world:
 * nw_machine_send and event.from translate.
 */
#ifndef NW_NET_MACHINE_H
#define NW_NET_MACHINE_H

#include "net/factors.h"
#include "net/task.h"

/* Members in ascending order of their ranks; `ranks` outlives the machine. */
typedef struct nw_group {
    const uint16_t *ranks;
    int count, me;
} nw_group;
int nw_group_find(const nw_group *group, int rank); /* -1: it is no member */

typedef struct nw_go {
    int64_t until;            /* updates of the world, all runs together */
    int64_t batches;          /* that this rank computes in this run, in lockstep; else INT64_MAX */
    bool drain;               /* apply what is held back */
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
    int64_t now_ns;      /* the rank's own elapsed time: in which it ran, simulated, or recorded */
    nw_message *message; /* MESSAGE, OUT; hold it to keep it after the call */
    size_t first;        /* FINAL */
    const nw_task *task; /* FINAL, DONE; its `clock` is known */
    const nw_go *go;     /* GO */
} nw_event;

/* An update of the world. */
typedef struct nw_count {
    int64_t updates;      /* with this one */
    int64_t delay;        /* updates since the parameters that its gradient was computed from */
    int64_t clock;        /* the batch whose learning rate it had */
    int64_t thrown_away;  /* gradients so far that were too old to be applied */
    int from_count;       /* members whose reports are here ... */
    const int *from;      /* ... in ascending order ... */
    const void **reports; /* ... and what each said of its batches: nw_exchange_options.report_bytes */
} nw_count;

typedef struct nw_snapshot {
    int64_t updates;
    const float *values; /* all parameters, until the call returns */
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

/* What a machine answers to one event. */
typedef struct nw_actions {
    nw_action *at;
    int count, capacity;
    size_t touched; /* bytes that handling it read and wrote, from which a virtual cluster knows how long it took */
    nw_message_pool *pool;  /* what messages are made of */
    nw_status status;       /* of the first that failed */
    const nw_task *running; /* the task under way, or NULL, and ... */
    size_t final;           /* ... from where on its gradient is final: what handlers must not touch */
    const nw_factors *factors; /* what codecs take where time is simulated, or NULL */
} nw_actions;

void nw_actions_add(nw_actions *actions, nw_action action);
void nw_actions_clear(nw_actions *actions); /* drops messages that were not sent; the room stays */
void nw_actions_free(nw_actions *actions);
/* A handler reads or writes `count` floats at `at`. What the task under way owns is an internal error. */
void nw_actions_touch(nw_actions *actions, const float *at, size_t count, bool write);
static inline void nw_actions_task(nw_actions *actions, nw_task task)
{
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TASK, .task = task});
}

/* Whom a rank waits for, for people: ranks of the world in ascending order, and what they owe. */
enum { NW_WAIT_MOST = 64 };
typedef struct nw_wait {
    int ranks[NW_WAIT_MOST];
    int count; /* may be greater than NW_WAIT_MOST: then only the first are listed */
    char what[160];
} nw_wait;
void nw_wait_add(nw_wait *wait, const nw_group *group, int member);
/* "ranks 2 and 5: gradient of bucket 3, step 120" */
void nw_wait_text(const nw_wait *wait, char *text, size_t size);

typedef struct nw_machine nw_machine;

typedef struct nw_machine_ops {
    const char *name;
    nw_status (*handle)(nw_machine *machine, const nw_event *event, nw_actions *actions);
    /* Whether nobody can need this rank before the next GO, and nothing of ours is on the wire or expected. */
    bool (*quiescent)(const nw_machine *machine);
    void (*waits)(const nw_machine *machine, nw_wait *wait);
    /* Of a quiescent machine: adds to a list (state.h). */
    void (*state)(nw_machine *machine, nw_state *state);
    void (*free)(nw_machine *machine);
    /* After its numbers were loaded: NW_E_FILE if they make no sense, or else what the tensors need. NULL: nothing. */
    nw_status (*loaded)(nw_machine *machine);
} nw_machine_ops;

/* The first member of every machine's own struct. */
struct nw_machine {
    const nw_machine_ops *ops;
    nw_group group;
    int64_t updates; /* of the world, as far as this member knows; when quiescent all know the same */
    bool equal;      /* replicas are equal when quiescent, bit for bit */
    bool lockstep;   /* all members compute the same number of gradients */
    bool moves;      /* it moves parameters while gradients are computed: a pass reads a copy */
    bool drops; /* it has timers and drops members that are silent, so its driver waits twice as long before it fails */
    size_t first, count; /* the range whose optimizer state is this rank's alone; count 0: none */
};

/* Sends a message to a member. Takes over the reference. */
static inline void nw_machine_send(const nw_machine *m, nw_actions *actions, int channel, int to, nw_message *message)
{
    message->header->channel = (uint8_t)channel;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = m->group.ranks[to], .message = message});
}
/* The member that a message came from; NW_E_MESSAGE where its rank is no member. */
nw_status nw_machine_sender(const nw_machine *machine, const nw_message *message, int *from);

enum { NW_RANK_QUEUE = 8 };

/* A rank of this process. */
typedef struct nw_rank {
    int index;           /* in the world */
    nw_machine *machine; /* the lowest of its stack, which hears everything first */
    void *worker;
    const nw_worker_ops *work;
    /* The driver's: */
    nw_task queue[NW_RANK_QUEUE]; /* that wait for their turn */
    int queued;
    nw_task task; /* under way, if busy */
    size_t final; /* its gradient is final from here on */
    bool busy;
    int64_t step;       /* gradients begun */
    int64_t elapsed_ns; /* its own time when the last run ended, where the next goes on; not of virtual clusters */
    uint64_t sequence;  /* messages made by its machines in this process */
} nw_rank;

/* What there is to save and load of a rank: of its machines, under names that begin with "exchange.", of its worker,
 * and its own elapsed time. */
nw_state_owner nw_rank_state(nw_rank *rank);

static inline bool nw_rank_is_quiescent(const nw_rank *r)
{
    return r->queued == 0 && !r->busy && r->machine->ops->quiescent(r->machine);
}

#endif
