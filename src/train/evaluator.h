/*
 * evaluator.h - evaluates copies of a network's parameters while it goes on training.
 *
 * Whoever trains hands over parameters and running statistics with the record that the results belong into, and goes
 * on. In the background a thread of the evaluator's own, with a network of its own, evaluates one copy after the other;
 * without, the copy is evaluated at once, in memory of the trained network, which must not be computing then. Records
 * come back in the order in which they were handed over.
 *
 * When *stop becomes non-zero the evaluation under way is left and none is begun. What was handed over and is not done
 * stays in line, to be kept elsewhere (nw_evaluator_first) and handed over again another time.
 *
 * Threads: nw_evaluator_* are called from one thread. The loaders are the evaluator's alone while it lives.
 */
#ifndef NW_TRAIN_EVALUATOR_H
#define NW_TRAIN_EVALUATOR_H

#include "data/loader.h"
#include "observe/record.h"
#include "train/evaluate.h"

typedef struct nw_evaluator nw_evaluator;

typedef struct nw_evaluator_options {
    nw_net *like; /* what is evaluated is made like this one */
    bool background;
    nw_loader *test, *validation, *train_eval; /* NULL where there is none */
    bool both_views;
    nw_loader
        *recalibrate; /* training batches from which running statistics are measured anew; NULL: given ones count */
    int recalibrate_batches;
    const volatile sig_atomic_t *stop; /* may be NULL */
} nw_evaluator_options;

/* What an evaluation finds. */
typedef struct nw_results {
    nw_tally test, validation, train;
} nw_results;

/* A copy and what it is. */
typedef struct nw_case {
    nw_epoch_record record;
    bool evaluated; /* else there is nothing to do but wait for those before it */
    bool complete;  /* of whoever fills it: nothing is missing */
    bool done;      /* of the evaluator: nothing is left to do */
    nw_results results;
    struct nw_case *next; /* also for lists of whoever has it */
    float *values, *buffers;
    float *evaluated_buffers; /* what was evaluated: those, or statistics measured anew. Of cases that are done */
} nw_case;

nw_status nw_evaluator_create(nw_evaluator **evaluator, const nw_evaluator_options *options);
/* Waits for the copy that is being evaluated, unless it is asked to stop, and forgets the others. */
void nw_evaluator_free(nw_evaluator *evaluator);

/* A case with room for a copy, to be filled and handed over. evaluate false: one without, which only keeps its place
 * in the order. */
nw_status nw_evaluator_open(nw_evaluator *evaluator, bool evaluate, nw_case **opened);
/* Takes the case over. */
nw_status nw_evaluator_submit(nw_evaluator *evaluator, nw_case *submitted);
/* The next one that is done, or will be within `wait_ns`; NULL: there is none, or the evaluator was asked to stop. It
 * is freed by its taker, as is one that is opened and not handed over. */
nw_status nw_evaluator_take(nw_evaluator *evaluator, int64_t wait_ns, nw_case **done);
void nw_case_free(nw_case *done); /* NULL: nothing */
/* The cases handed over and not taken back, linked in their order; NULL: none. Their results may be written
 * meanwhile. */
const nw_case *nw_evaluator_first(const nw_evaluator *evaluator);

#endif
