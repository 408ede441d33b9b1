/*
 * task.h - what the worker of a rank does, one task at a time.
 *
 * A task is asked for by a machine (machine.h) and done by the rank's worker. While it runs it announces what is ready
 * before its end: `final`, the gradient is touched from here on no more; `out`, a message for the next or the previous
 * stage of a pipeline. `between` is called between layers, and every few MiB of an update, so that messages move while
 * the task runs.
 *
 *   GRADIENT   asked by an exchange; its pipeline makes passes of it, so that no worker ever sees one
 *   PASS       forward, backward or both, through all stages of this rank, for one micro-batch
 *   UPDATE     values -= d and, if named, also -= d on a range, where d = rule(scale * gradient) at the learning rate of
 *              batch `clock`
 *
 * What a task names (a pass its values and gradient, an update its range of all three) belongs to it while it runs:
 * others may touch only what it has announced as final. nw_actions_touch checks that.
 */
#ifndef NW_NET_TASK_H
#define NW_NET_TASK_H

#include "net/message.h"
#include "net/state.h"

typedef enum nw_task_kind { NW_TASK_GRADIENT, NW_TASK_PASS, NW_TASK_UPDATE } nw_task_kind;

typedef struct nw_task {
    nw_task_kind kind;
    int64_t number;         /* GRADIENT: of this rank; PASS: the gradient under way; UPDATE: of this range */
    int64_t batch;          /* PASS: the micro-batch, in a pipeline of several ranks */
    bool forward, backward; /* PASS; both: with the loss between */
    bool adds;              /* PASS: to the gradient that is there; else it begins one */
    bool completes; /* PASS: its gradient is complete with it. Of a GRADIENT that is done: false where the batches of
                       the run ended before; then no other is asked for in this run, and the next goes on with it */
    bool copy;      /* PASS: the exchange may move the values meanwhile: it reads a copy made when the gradient began */
    nw_message *in; /* PASS: what the rank below or above sent, in plain f32; NULL: the loader has it */
    int64_t clock;  /* the batch whose learning rate counts: a PASS says which it is before it announces
                       anything, or its pipeline does; an UPDATE is told */
    float *values, *also; /* also: NULL, or what moves with the values */
    float *gradient;
    size_t first, count; /* the range of the vectors */
    float scale;
} nw_task;

/* What a task calls. `out` takes over the reference. */
typedef struct nw_announce {
    void (*between)(struct nw_announce *announce);
    void (*final)(struct nw_announce *announce, size_t first);
    void (*out)(struct nw_announce *announce, nw_message *message);
} nw_announce;

typedef struct nw_worker_ops {
    /* Does a task; announce may be NULL where nobody listens. */
    nw_status (*run)(void *worker, nw_task *task, nw_announce *announce);
    /* For virtual clusters: when each announcement but `between` happens, in ns from the start at slowdown 1, and then
     * the end. Writes at most `most` times and returns how many there are. NULL: it is never simulated. */
    int (*cost)(void *worker, const nw_task *task, int64_t *ns, int most);
    /* Between tasks: adds to a list (state.h). NULL: it has none. */
    void (*state)(void *worker, nw_state *state);
    /* After its numbers were loaded: NW_E_FILE if they make no sense, or else what the tensors need. NULL: nothing. */
    nw_status (*loaded)(void *worker);
} nw_worker_ops;

#endif
