/*
 * ema.h - an exponential moving average of the weights and of batch norm's running statistics, for evaluation.
 *
 *   after the steps 1, 1 + n, 1 + 2n, ...:   shadow = rho shadow + (1 - rho) value,   rho = decay^n
 *
 * so that `decay` is per step whatever n is (cifar10-fast, whose rule this is: 0.99 every 5 steps). The shadow starts
 * as a copy of the values. To evaluate with it, swap it in, evaluate, swap it out; while it is in, updating is an
 * error.
 */
#ifndef NW_OPTIM_EMA_H
#define NW_OPTIM_EMA_H

#include "compute/kernels.h"
#include "param/params.h"

typedef struct nw_ema {
    double decay;
    int every;
    uint64_t steps; /* that nw_ema_step has seen; write it, and the shadows, to resume */
    bool swapped;
    size_t count, buffer_count;
    float *values, *buffers; /* the shadows (or, while swapped, what is being trained) */
} nw_ema;

/* decay in [0, 1), every >= 1. */
nw_status nw_ema_make(nw_ema *ema, double decay, int every, const nw_params *params);
void nw_ema_bind(nw_ema *ema, nw_arena *arena);
/* Copies the present values: once, when they have been initialised. */
void nw_ema_start(nw_ema *ema, nw_exec *exec, const nw_params *params);
/* After each update. */
nw_status nw_ema_step(nw_ema *ema, nw_exec *exec, const nw_params *params);
/* Exchanges the shadows with the values and buffers of params. */
void nw_ema_swap(nw_ema *ema, nw_exec *exec, nw_params *params);

#endif
