/*
 * replica.h - one replica of a training run: a network with its optimizer, its data and its position in them.
 *
 * A replica does tasks (net/task.h): a pass computes the gradient of its next batch, an update applies one. What
 * happens between the two (nothing with one replica, an exchange with several) is not its concern. All its state is in
 * its vectors and in nw_position, so that it can be saved between any two tasks and continues bit for bit: random
 * numbers depend on (seed, epoch, sample, batch), never on history.
 *
 * Accumulation: `accumulation` batches make one update, of the sum of their gradients, or of the mean with `averaging`.
 * An incomplete gradient at the end of an epoch is continued in the next one.
 *
 * Artificial delays: with delay.models > 1, gradients are computed at earlier parameters and applied to the newest; all
 * batches of a gradient are computed at the same ones.
 */
#ifndef NW_TRAIN_REPLICA_H
#define NW_TRAIN_REPLICA_H

#include "data/loader.h"
#include "net/machine.h"
#include "optim/schedule.h"
#include "train/evaluate.h"
#include "train/history.h"

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
    bool gradients_only;   /* others make the updates: there is no state for them here */
    int64_t ema_from;      /* the first epoch whose updates it sees */
    int sharers;           /* workers that each take all images, but make an epoch together; 0 or 1: it is one's own */
    int64_t epoch_batches; /* of the schedule of rates, where it is not that of this replica; 0: it is */
    bool watch;            /* stop where a loss or gradient is not finite, */
    double diverged; /* or where its running mean is so many times what guessing gives, or the first one; 0: never */
    nw_delay_options delay; /* of gradients; models 0 or 1: none */
    nw_optimizer_options outer; /* the rule of outer steps (machine.h), and its rate; without name: none */
    double outer_lr;
} nw_replica_options;

/* Where a replica is. Epochs and batches count from 0 here. */
typedef struct nw_position {
    int64_t epoch, batch;           /* the next batch to compute; batch may be the number of batches: epoch over */
    int64_t batches, steps, images; /* batches and gradients computed, images seen so far */
    int64_t pending;                /* batches in a gradient that is not complete yet */
    nw_tally tally;                 /* of this epoch, as trained on */
    nw_tally gradient;              /* of the batches of the last gradient */
    double first_loss, mean_loss;   /* of the first batch, and a running mean */
    int64_t watched;                /* batches in it */
    double lr_factor;               /* on what the schedule says; below 1 after going back to a checkpoint */
} nw_position;

typedef struct nw_replica {
    nw_replica_options options;
    nw_net *net;
    nw_loader *loader;
    nw_schedule schedule;
    nw_position at;
    bool ema_running;
    int64_t batch_size, pass_batches; /* what the position is counted in: its own, or, while loading, the saved ones */
    int64_t average_steps;            /* for nw_replica_state: of the average; -1: it has not begun */
    nw_history *history;              /* NULL: no delays */
    float *copy; /* of the parameters: of passes that read one (nw_task.copy), and of updates of two vectors; or NULL */
    nw_optimizer *outer; /* NULL: no outer steps */
    nw_arena outer_room; /* its state */
    size_t *ready;   /* by stage: after its backward pass, the gradient is final from this element on */
    int64_t wait_ns; /* for the batches of the last gradient */
    int64_t delay;   /* of the last gradient: updates since the parameters that it was computed at */
    /* Of the pass under way: */
    const nw_task *task;
    nw_announce *announce; /* NULL: nobody listens */
    size_t final;          /* its gradient is final from here on, as was announced */
    bool spoilt;           /* something is not finite: nothing more is announced */
} nw_replica;

/* owner: a replica whose memory for activations this one shares (nw_net_create_sibling), or NULL. */
nw_status nw_replica_create(nw_replica **replica, const nw_replica_options *options, nw_replica *owner);
void nw_replica_free(nw_replica *replica);

/* Of this epoch, and of all before one. Workers that share epochs go over their images at 1 / sharers of the speed;
 * what does not divide evenly comes in a later epoch, so that E epochs have floor(E x batches / sharers). */
int64_t nw_replica_batches(const nw_replica *replica);
int64_t nw_replica_batches_before(const nw_replica *replica, int64_t epoch);

/* Brings the loader to the replica's position: first of all, after loading, and after each epoch. */
nw_status nw_replica_begin(nw_replica *replica);

/* A pass: the gradient of the next batch, in the next epoch where this one is over. NW_E_NUMERIC leaves the weights
 * as they are. */
nw_status nw_replica_pass(nw_replica *replica, nw_task *task, nw_announce *announce);
/* How many elements of the gradient a complete pass announces as final, one after the other; `stages` has room for
 * all: the stages after which it does so. */
int nw_replica_announces(const nw_replica *replica, const nw_task *task, int *stages);
/* Calls announce->between every few MiB of parameters; announce may be NULL. */
nw_status nw_replica_update(nw_replica *replica, const nw_task *task, nw_announce *announce);
/* The learning rate of a batch, counted from 0 over all epochs. */
double nw_replica_lr(const nw_replica *replica, int64_t batch);
/* Lets the average of the weights begin, if this epoch is the first that it sees. */
void nw_replica_start_average(nw_replica *replica, int64_t epoch);
/* Goes to the next epoch. */
nw_status nw_replica_end_epoch(nw_replica *replica);

/* For evaluation: exchanges the weights with their average, if one is kept. Call it in pairs. */
void nw_replica_swap_average(nw_replica *replica);

/* Adds to a list (net/state.h): where the replica is, and its vectors, as they are where `machine` is the exchange. */
void nw_replica_state(nw_replica *replica, const nw_machine *machine, nw_state *state);
/* After its numbers were loaded. */
nw_status nw_replica_loaded(nw_replica *replica);
/* After everything was: what was saved by a world of as many ranks must have as many batches in an epoch, and of the
 * same size. In another world it goes to the first batch of the epoch that holds none of the images which the old one
 * had seen, and has no gradient that is not complete. */
nw_status nw_replica_fit_world(nw_replica *replica, int from_world, int to_world);

/* Lists a position, each number of it under `prefix`. `common`: all ranks have the same. */
void nw_position_state(nw_position *position, const char *prefix, bool common, nw_state *state);

#endif
