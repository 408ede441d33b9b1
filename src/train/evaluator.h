/*
 * evaluator.h - evaluates copies of a network's parameters while it goes on training.
 *
 * The run submits a case: a copy of the parameters and running statistics, with the epoch's record to be filled, and
 * goes on. With `background` a thread of the evaluator, with its own network, evaluates one case after the other.
 * Without, a case is evaluated at once in the memory of the trained network, which must not be computing then. Cases
 * are returned in the order in which they were submitted.
 *
 * When *stop becomes non-zero the running evaluation is abandoned and no other begins. Cases that are not done stay in
 * the queue; the run can save them (nw_evaluator_first) and submit them again later.
 *
 * Threads: nw_evaluator_* must be called from one thread. Only the evaluator may use the loaders while it exists.
 */
#ifndef NW_TRAIN_EVALUATOR_H
#define NW_TRAIN_EVALUATOR_H

#include "data/loader.h"
#include "observe/record.h"
#include "train/evaluate.h"

typedef struct nw_evaluator nw_evaluator;

typedef struct nw_evaluator_options {
    nw_net *like; /* the trained network; the evaluator's own has the same options */
    bool background;
    nw_loader *test, *validation, *train_eval; /* NULL where there is none */
    bool both_views;
    nw_loader
        *recalibrate; /* training batches from which running statistics are measured anew; NULL: given ones count */
    int recalibrate_batches;
    const volatile sig_atomic_t *stop; /* may be NULL */
} nw_evaluator_options;

/* The results of an evaluation. */
typedef struct nw_results {
    nw_tally test, validation, train;
} nw_results;

/* A copy of the parameters to be evaluated, and the record of its epoch. */
typedef struct nw_case {
    nw_epoch_record record;
    bool evaluated; /* false: the case has no copy; it only keeps its record's place in the order */
    bool complete;  /* set by the run: the copy is filled */
    bool done;      /* set by the evaluator: the results are filled */
    nw_results results;
    struct nw_case *next; /* for the list of its owner */
    float *values, *buffers;
    float *evaluated_buffers; /* when done: the statistics that were used: `buffers`, or newly measured ones */
} nw_case;

nw_status nw_evaluator_create(nw_evaluator **evaluator, const nw_evaluator_options *options);
/* Waits for the running evaluation, unless *stop is set, and discards the other cases. */
void nw_evaluator_free(nw_evaluator *evaluator);

/* Allocates a case with room for a copy, to be filled and submitted. evaluate false: without a copy. */
nw_status nw_evaluator_open(nw_evaluator *evaluator, bool evaluate, nw_case **opened);
/* The evaluator owns the case from now on. */
nw_status nw_evaluator_submit(nw_evaluator *evaluator, nw_case *submitted);
/* Returns the next case if it is done within `wait_ns`; otherwise, or after *stop, NULL. The caller frees it, as well
 * as cases that were opened and not submitted. */
nw_status nw_evaluator_take(nw_evaluator *evaluator, int64_t wait_ns, nw_case **done);
void nw_case_free(nw_case *done); /* NULL: nothing */
/* The list of cases that were submitted and not returned, in order; NULL: none. Their results may change meanwhile. */
const nw_case *nw_evaluator_first(const nw_evaluator *evaluator);

#endif
