/*
 * pipeline_toy.h - replicas of stages for tests of pipelines: a worker whose stages are formulas, the stack of a rank,
 * and a twin without machines that computes the same.
 *
 * A stage has some parameters w and turns a vector x into a vector y; backward, it has the x that it kept (a FIFO by
 * batch), the w of then, and what came from above. The formulas mean nothing, but every difference in order, version,
 * batch, replica or learning rate shows in the bits. Failing is fatal, as in world.h.
 */
#ifndef NW_TESTS_PIPELINE_TOY_H
#define NW_TESTS_PIPELINE_TOY_H

#include "net/driver.h"
#include "net/roles.h"
#include "support/pipeline.h"

#include <signal.h>

enum { TOY_WIDTH = 6, TOY_FLOATS = 96, TOY_STAGES = 4, TOY_REPLICAS = 3, TOY_FIFO = 16 };

typedef struct toy_options {
    int replicas, stages; /* one replica has no exchange */
    int accumulation;
    double hop;
    int window;
    int delay; /* of allreduce */
} toy_options;

/* What a stage has kept of a batch. */
typedef struct toy_kept {
    int64_t batch;
    float x[TOY_WIDTH];
} toy_kept;

/* A rank: exchange over pipeline over this. */
typedef struct toy_rank {
    toy_options o;
    nw_roles roles;
    int replica, stage;
    nw_params params;
    nw_codec *codec;
    nw_machine *machine;
    nw_message_pool *pool;   /* the driver's */
    toy_kept fifo[TOY_FIFO]; /* the oldest first */
    int64_t fifo_first, fifo_count, pending;
    volatile sig_atomic_t *stop; /* set in the pass of batch `stop_at` backward, or NULL */
    int64_t stop_at;
    int64_t begun; /* forward passes */
} toy_rank;

void toy_make(toy_rank *rank, const toy_options *options, int index, nw_message_pool *pool);
void toy_free(toy_rank *rank);                  /* also of zeros, which it leaves */
nw_rank toy_as_rank(toy_rank *rank, int index); /* for a driver */

/* ---- the twin ---- */

typedef struct toy_twin {
    toy_options o;
    float values[TOY_REPLICAS][TOY_STAGES][TOY_FLOATS];
    float sums[TOY_REPLICAS][TOY_STAGES][TOY_FLOATS], held[TOY_STAGES][TOY_FLOATS];
    float kept[TOY_REPLICAS][TOY_STAGES][TOY_FIFO][TOY_WIDTH],
        deltas[TOY_REPLICAS][TOY_STAGES + 1][TOY_FIFO][TOY_WIDTH];
    int64_t clocks[TOY_STAGES]; /* of what a delay holds back; -1: nothing */
    int64_t batches, drained;
} toy_twin;

void toy_twin_begin(toy_twin *twin, const toy_options *options);
/* Goes on for so many batches. */
void toy_twin_run(toy_twin *twin, int64_t batches, bool drain);
void toy_check(const toy_twin *twin, const toy_rank *rank);

#endif
