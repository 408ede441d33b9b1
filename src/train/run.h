/*
 * Folder src/train: training: the network with its optimizer, a replica with its data, the group of replicas in this
 * process, evaluation, and the run with its one loop. It is told what to do by options in structs and knows no command
 * line. May include: base, compute, param, data, nn, optim, net, sim, replay, channel, exchange, checkpoint,
 * observe.
 *
 * run.h - a training run from its first step, or from a checkpoint, to its end: epochs, evaluation, records,
 * checkpoints.
 *
 * The run drives a group of replicas (replicas.h), tells observers what happens, and keeps checkpoints. It ends when
 * the epochs or steps asked for are done, when a number is not finite, when a peer is lost, or when *stop becomes
 * non-zero: then it finishes the batch, writes a checkpoint and returns NW_E_INTERRUPTED, from which the same command
 * with --resume goes on bit for bit. An evaluation that is interrupted is done again after resuming.
 *
 * Under MPI every rank calls nw_run_train with the same options; rank 0 alone has observers and writes files.
 *
 * It prints nothing; what the user should be told goes to observers->message.
 */
#ifndef NW_TRAIN_RUN_H
#define NW_TRAIN_RUN_H

#include "base/machine.h"
#include "observe/observers.h"
#include "observe/stopwatch.h"
#include "train/replicas.h"

/* Of a run with a parameter server, in its directory: the weights of the best epoch as a checkpoint without the
 * state of a run. Other runs write a whole one after that epoch. */
#define NW_RUN_BEST "best"

/* What "best" compares. */
typedef struct nw_best_rule {
    bool none;
    bool validation; /* the split that --val-ratio made; otherwise the test split */
    enum { NW_BEST_TOP1, NW_BEST_TOP5, NW_BEST_LOSS } by;
} nw_best_rule;

typedef struct nw_run_options {
    nw_replicas_options group; /* stop, dump_dir and stepped are the run's */
    const nw_dataset *dataset;
    nw_augment test_augment;
    float *mean_image; /* what the augmentations subtract, or NULL; the caller's */
    int test_batch_size, train_eval_batch_size;
    int workers;
    bool both_views;           /* evaluate with the mirror images too */
    bool train_metrics;        /* evaluate on the training images too, without augmentation */
    int64_t epochs, max_steps; /* max_steps 0: none */
    int64_t start_epoch;       /* of a new run: as if so many epochs had been trained */
    int eval_every;            /* epochs; the first and the last one are always evaluated */
    bool evaluate_first;       /* also the initial model, whose record is that of epoch start_epoch */
    nw_best_rule best;

    const char *run_dir;         /* made when all else is ready; NULL: no files */
    const char *config;          /* text of config.yaml, for the run and every checkpoint; may be NULL */
    const char *name_checkpoint; /* also written after every epoch and when interrupted; NULL: none */
    const char *resume;          /* a checkpoint, or what holds one; NULL: start anew */
    const char *init;            /* weights to start with; NULL: random */
    int64_t checkpoint_every;    /* steps; 0: after every epoch */
    int rollbacks;               /* at most so often, a run that diverges goes back to its last checkpoint; 0: never */
    double rollback_lr;          /* and goes on with rates times this, each time */
    int64_t compare_every;       /* steps after which replicas that should be equal are compared; 0: never */
    int keep;                    /* newest checkpoints that stay, beside the best; 0: all */
    bool record_events;          /* of several ranks, in the run's directory */

    nw_observe_options observe;
    nw_run_record record; /* what the caller knows of the run: names, texts; the rest is filled in */
    const volatile sig_atomic_t *stop;
    nw_stopwatch *watch; /* running since before the data were opened */
} nw_run_options;

typedef struct nw_run_result {
    nw_end_record end;
    nw_epoch_record last; /* the last evaluated epoch */
    char weights_sha256[65];
    double epochs;            /* trained, with the part of one that --max-steps ended */
    nw_histogram delays;      /* what end.delays points to, unless that is NULL */
    nw_averagings averagings; /* of gossip; the caller's to free */
    bool nothing_to_do;       /* the checkpoint had already reached the end */
} nw_run_result;

nw_status nw_run_train(const nw_run_options *options, nw_run_result *result);

#endif
