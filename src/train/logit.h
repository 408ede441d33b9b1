/*
 * logit.h - logistic regression by threads that share the weights: APAM in shared memory, without a lock or barrier on
 * the way of a gradient.
 *
 * `masters` threads own the parameters, each a range of coordinates, and are the only ones to write them. All other
 * threads are workers. A batch is taken by number, its gradient computed at the weights as they are just then, and put
 * into a line; every master applies the line in its order to its own range. A master that has nothing to apply computes
 * a batch itself, so one thread alone is a serial run, with the same code and the delay 0 throughout.
 *
 * Every batch of an epoch is computed and applied once: `advance` to step k does exactly the missing updates. Between
 * two advances all threads rest and the state is plain data.
 *
 * Order. The rows of an epoch are a permutation of (seed, epoch), cut into batches; the last one is shorter, or left out.
 * With `groups`, as the reference program has it, batches are floor(n / b) fixed groups of consecutive rows, of which each
 * step draws one. One thread: the same seed gives the same bits. Several: the delays, and so the last digits, differ from
 * run to run.
 *
 * The delay of a gradient is the number of updates that were applied between the first read of the weights for it and its
 * own application; with several masters, those of the master that was furthest behind.
 */
#ifndef NW_TRAIN_LOGIT_H
#define NW_TRAIN_LOGIT_H

#include "base/histogram.h"
#include "optim/schedule.h"
#include "train/logit_math.h"

#include <signal.h>

typedef struct nw_logit_options {
    const nw_sparse *data; /* lives longer than the trainer */
    int32_t features;      /* at least the data's: test rows may have more */
    bool intercept;        /* one more parameter, the last, which does not decay */
    bool normal_start;     /* weights N(0, 1) of the seed, as the reference program has them; otherwise 0 */
    int batch_size;
    bool drop_last, groups, sum; /* sum: gradients are sums over the batch, otherwise means */
    double beta1, beta2, weight_decay;
    nw_schedule_options schedule; /* batches_per_epoch is filled in */
    uint64_t seed;
    int threads, masters; /* 1 <= masters <= threads */
} nw_logit_options;

/* All that a run has to keep, to go on bit for bit where it is serial. Filled at rest, by nw_logit_keep. */
typedef struct nw_logit_state {
    int64_t count;         /* of parameters */
    double *w, *m, *v, *u; /* the trainer's own: to be read, or filled before nw_logit_restart */
    int64_t step;          /* updates done */
    nw_logit_tally epoch;  /* of the batches of the epoch under way, or just finished */
    nw_histogram delays;
} nw_logit_state;

typedef struct nw_logit nw_logit;

/* NW_E_ARGUMENT, NW_E_MEMORY (before anything large is taken), NW_E_SYSTEM where a thread cannot be started. */
nw_status nw_logit_create(nw_logit **logit, const nw_logit_options *options);
void nw_logit_free(nw_logit *logit);

int64_t nw_logit_batches(const nw_logit *logit);     /* of an epoch */
double nw_logit_rate(const nw_logit *logit);         /* of the last update */
const char *nw_logit_warning(const nw_logit *logit); /* about the schedule; "" if nothing */

/* Updates until `step` of them are done, the epoch is over, or *stop (may be NULL) becomes non-zero: then those under way
 * are finished. Call it from one thread, always the same. */
void nw_logit_advance(nw_logit *logit, int64_t step, const volatile sig_atomic_t *stop);

/* At rest. nw_logit_restart takes over step, tally and delays, and the vectors as they were filled. */
void nw_logit_keep(nw_logit *logit, nw_logit_state *state);
void nw_logit_restart(nw_logit *logit, const nw_logit_state *state);

#endif
