/*
 * logit_run.h - a run of logistic regression from its first step, or from a checkpoint, to its end: epochs, evaluation,
 * records, checkpoints. What run.h is for networks, without what only they need.
 *
 * After an epoch all threads rest, and the rows of training and test are evaluated; that time does not count as training.
 * The run ends when the epochs or steps asked for are done, when the loss is not finite, or when *stop becomes non-zero:
 * then the batches under way are finished, a checkpoint is written and NW_E_INTERRUPTED returned. A run with one thread
 * goes on from a checkpoint bit for bit; with several it goes on from the same state.
 *
 * In a checkpoint, model.safetensors has `weight` [1, features] and, with an intercept, `bias` [1], replica0.safetensors
 * the three vectors of AMSGrad, all F64. It prints nothing: `told` hears of every epoch, observers get their records.
 */
#ifndef NW_TRAIN_LOGIT_RUN_H
#define NW_TRAIN_LOGIT_RUN_H

#include "train/logit.h"
#include "train/run.h"

typedef struct nw_logit_run_options {
    nw_logit_options logit;
    const nw_sparse *test;     /* NULL: none */
    int64_t epochs, max_steps; /* max_steps 0: none */
    int eval_every;            /* epochs; the first and the last one are always evaluated */
    nw_best_rule best;         /* by the accuracy or the loss on the test rows */

    const char *run_dir, *config, *resume; /* as in nw_run_options */
    int64_t checkpoint_every;              /* steps; 0: after every epoch */
    int keep;

    nw_observe_options observe; /* table is not used */
    nw_run_record record;
    void (*told)(void *context, const nw_epoch_record *record, const nw_histogram *delays); /* may be NULL */
    void *context;
    const volatile sig_atomic_t *stop;
    nw_stopwatch *watch; /* running, in NW_PHASE_PREPROCESS */
} nw_logit_run_options;

typedef struct nw_logit_run_result {
    nw_end_record end; /* its texts and counts point into this struct */
    nw_epoch_record last;
    nw_histogram delays;
    char weights_sha256[65]; /* of the parameters as little-endian f64 */
    bool nothing_to_do;
} nw_logit_run_result;

nw_status nw_logit_run(const nw_logit_run_options *options, nw_logit_run_result *result);

#endif
