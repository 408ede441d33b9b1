/*
 * task.h - tasks: what the worker of a rank computes, one at a time.
 *
 * A machine (machine.h) requests a task, and the rank's worker does it. While it runs, it announces results before its
 * end: `final`, the gradient will not change from here on; `out`, a message for the next or the previous stage of a
 * pipeline. `between` is called between layers, and now and then in long layers and updates, so that messages
 * move while the task runs.
 *
 *   GRADIENT   requested by an exchange; its pipeline turns it into passes, so no worker ever gets one
 *   PASS       forward, backward or both, through all stages of this rank, for one micro-batch
 *   UPDATE     values -= d and, if named, also -= d on a range; d = rule(scale * gradient) at the learning rate
 *              of batch `clock`, or by the outer rule, which has its own learning rate
 *
 * A worker whose tasks are done elsewhere, by a program that computes gradients itself, sets `pending` and returns; the
 * driver goes on in turns (driver.h) and is told when the task is done. Such a task announces nothing.
 *
 * While a task runs, it owns its vectors (a pass its values and gradient, an update its range of all three): others may
 * touch only what it has announced as final. nw_actions_touch checks that.
 */
#ifndef NW_NET_TASK_H
#define NW_NET_TASK_H

#include "net/message.h"
#include "net/state.h"

typedef enum nw_task_kind { NW_TASK_GRADIENT, NW_TASK_PASS, NW_TASK_UPDATE } nw_task_kind;

/* Which of the worker's optimizers makes an update. */
typedef enum nw_task_rule { NW_RULE_INNER, NW_RULE_OUTER } nw_task_rule;

typedef struct nw_task {
    nw_task_kind kind;
    int64_t number;         /* GRADIENT, PASS: number of this rank's gradient; UPDATE: number of this range's update */
    int64_t batch;          /* PASS: the micro-batch, in a pipeline of several ranks */
    bool forward, backward; /* PASS; if both, the loss is computed between them */
    bool adds;              /* PASS: adds to the gradient; else it begins a new one */
    bool completes; /* PASS: it completes its gradient. DONE of a GRADIENT: false if the batches of the run were used up
                       before; then no other is requested in this run, and the next run continues it */
    bool copy;      /* PASS: it reads a copy of the values made when the gradient began, because the exchange may
                       change them meanwhile */
    bool ends;      /* PASS, set by the worker: there was no batch any more, and nothing was computed */
    bool pending;   /* set by the worker: the task is not done yet */
    nw_message *in; /* PASS: its input from the previous or next stage, in f32; NULL: it comes from the loader */
    int64_t clock;  /* the batch number that determines the learning rate. A PASS, or its pipeline, sets it before the
                       first announcement; an UPDATE gets it */
    float *values, *also; /* also: a second vector that changes with the values; may be NULL */
    float *gradient;
    size_t first, count; /* the range of the vectors */
    float scale;
    nw_task_rule rule;
} nw_task;

/* The functions that a running task calls. `out` uses up the caller's reference. */
typedef struct nw_announce {
    void (*between)(struct nw_announce *announce);
    void (*final)(struct nw_announce *announce, size_t first);
    void (*out)(struct nw_announce *announce, nw_message *message);
} nw_announce;

typedef struct nw_worker_ops {
    /* Does a task; `announce` may be NULL. */
    nw_status (*run)(void *worker, nw_task *task, nw_announce *announce);
    /* For virtual clusters: the times of all announcements except `between`, then of the end, in ns from the start
     * at slowdown 1. Writes at most `most` of them and returns how many there are. NULL: the worker cannot be
     * simulated. */
    int (*cost)(void *worker, const nw_task *task, int64_t *ns, int most);
    /* Between tasks: adds the worker's state to a list (state.h). NULL: it has none. */
    void (*state)(void *worker, nw_state *state);
    /* As nw_machine_ops.loaded. */
    nw_status (*loaded)(void *worker);
} nw_worker_ops;

#endif
