/*
 * replica.h - one replica of a training run: a network with its optimizer, its data and its place in them.
 *
 * A replica can compute the gradient of its next batch and apply an update. What happens between the two (nothing, when
 * there is one replica; an exchange, when there are several) is the business of whoever drives it. All that a replica
 * knows is in its vectors and in nw_place, so it can be saved between any two calls and continues bit for bit: random
 * numbers depend on (seed, epoch, sample, batch), never on history.
 *
 * Accumulation: `accumulation` batches make one update, of the sum of their gradients, or of the mean with `averaging`.
 * A group that is not full at the end of an epoch goes on in the next one.
 */
#ifndef NW_TRAIN_REPLICA_H
#define NW_TRAIN_REPLICA_H

#include "data/loader.h"
#include "optim/schedule.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

typedef struct nw_replica_options {
    nw_net_options net;
    nw_optimizer_options optimizer;
    nw_schedule_options schedule; /* batches_per_epoch is filled in from the loader */
    nw_loader_options loader;
    int64_t max_batches; /* of an epoch; 0: all */
    int accumulation;
    bool averaging;
    double ema_decay; /* 0: no average of the weights */
    int ema_every;
    int64_t ema_from; /* the first epoch whose updates it sees */
    bool watch;       /* stop where a loss or gradient is not finite */
} nw_replica_options;

/* Where a replica is. Epochs and batches count from 0 here. */
typedef struct nw_place {
    int64_t epoch, batch;           /* the next batch to compute; batch may be the number of batches: epoch over */
    int64_t batches, steps, images; /* computed, updated, seen so far */
    int64_t pending;                /* batches in the gradient that no update has used yet */
    nw_tally tally;                 /* of this epoch, as trained on */
} nw_place;

typedef struct nw_replica {
    nw_replica_options options;
    nw_net *net;
    nw_loader *loader;
    nw_schedule schedule;
    nw_place at;
    bool ema_running;
} nw_replica;

nw_status nw_replica_create(nw_replica **replica, const nw_replica_options *options);
void nw_replica_free(nw_replica *replica);

int64_t nw_replica_batches(const nw_replica *replica); /* of an epoch */

/* Brings the loader to the replica's place: first of all, after loading, and after each epoch. */
nw_status nw_replica_begin(nw_replica *replica);

typedef struct nw_replica_step {
    bool epoch_over; /* there was no batch left: nothing was computed */
    bool update_due; /* the gradient is complete */
    nw_step_result result;
    int64_t wait_ns; /* for the batch */
} nw_replica_step;

/* The gradient of the next batch, added to what is pending. NW_E_NUMERIC leaves the weights as they are. */
nw_status nw_replica_compute(nw_replica *replica, nw_replica_step *step);
/* The learning rate of the update that follows the last computed batch. */
double nw_replica_lr(const nw_replica *replica);
/* Applies the pending gradient. */
nw_status nw_replica_update(nw_replica *replica);
/* Goes to the next epoch. */
nw_status nw_replica_end_epoch(nw_replica *replica);

/* For evaluation: exchanges the weights with their average, if one is kept. Call it in pairs. */
void nw_replica_swap_average(nw_replica *replica);

/* State of replica `index` into a checkpoint under way, and back. */
nw_status nw_replica_save(nw_replica *replica, nw_checkpoint_writer *writer, int index);
nw_status nw_replica_load(nw_replica *replica, nw_checkpoint *checkpoint, int index);

#endif
