/*
 * Folder src/optim: what is done with a gradient: update rules, learning-rate schedules, clipping, the average of
 * weights. A rule works on a range of a flat vector and does not know where its gradient came from. May include: base,
 * compute, param.
 *
 * optimizer.h - what is done with a gradient: update rules over the flat vectors of nw_params.
 *
 *   name         rule                                                             state vectors
 *   sgd          SGD as PyTorch defines it: momentum, dampening, Nesterov         momentum_buffer (none if momentum 0)
 *   lars         per-segment trust ratio, clipped (LARC), then SGD                momentum_buffer
 *   adam         Adam with coupled weight decay; AMSGrad                          exp_avg exp_avg_sq [max_exp_avg_sq]
 *   apam         APAM as its code has it: bias corrections folded into the step   exp_avg exp_avg_sq [max_exp_avg_sq]
 *   apam-paper   APAM as its paper has it: no corrections, no eps; in a box       exp_avg exp_avg_sq max_exp_avg_sq
 *   dgc-sgd      the gradient carries momentum already; weight decay has its own  decay_buffer
 *
 * The equations stand at the top of each rule's file. A step is, in this order: scale the gradient (averaging of
 * accumulated or gathered gradients is a scale of 1/k), clip it, add weight decay, update. State is f32, scalars such
 * as bias corrections are computed in double. Elements are independent and every sum has a fixed order, so a step gives
 * the same bits for any number of threads; an elementwise rule gives the same bits for any cut into ranges as well.
 *
 * Life: make (checks options, builds the list of pieces), bind (twice, as all arenas), steps, free. A step allocates
 * nothing. One optimizer is used from one thread at a time, and that thread runs the pool.
 */
#ifndef NW_OPTIM_OPTIMIZER_H
#define NW_OPTIM_OPTIMIZER_H

#include "compute/kernels.h"
#include "param/params.h"

typedef struct nw_optimizer nw_optimizer;

/* Which parameters weight decay leaves alone: none; batch norm's and all biases; those of one dimension; batch norm's.
 */
typedef enum nw_decay_filter {
    NW_DECAY_ALL,
    NW_DECAY_NO_NORM_BIAS,
    NW_DECAY_NO_1D,
    NW_DECAY_NO_NORM,
    NW_DECAY_FILTERS
} nw_decay_filter;

/* Numbers are double: 1 - beta2 of a float 0.999 is wrong in the fifth digit. A rule ignores what is not its own. */
typedef struct nw_optimizer_options {
    const char *name;           /* one of those above */
    double momentum, dampening; /* sgd, lars, dgc-sgd */
    bool nesterov;
    double beta1, beta2, eps; /* adam, apam; apam-paper has no eps */
    bool amsgrad;             /* adam, apam; apam-paper always has it */
    uint64_t freeze;          /* adam: so many updates, then the variance stays and gradients are momentum; 0: never */
    double weight_decay;
    nw_decay_filter decay_filter;
    double lars_trust, lars_eps;
    bool lars_clip;    /* the ratio never raises the rate: min(r / lr, 1); else the plain ratio r */
    double clip_norm;  /* 0: off; else the scaled gradient is multiplied by min(1, clip_norm / (norm + 1e-6)) */
    double clip_value; /* 0: off; else each element is cut to +-clip_value. Not together with clip_norm */
    bool box;          /* apam-paper: weights stay between these */
    double box_low, box_high;
} nw_optimizer_options;

/* Momentum 0.9, betas 0.9 and 0.999, eps 1e-8, weight decay 5e-4 on all, trust 0.02 with eps 1e-8 and clipping, no
 * gradient clipping; AMSGrad for apam only. NULL means sgd. */
nw_optimizer_options nw_optimizer_options_default(const char *name);

/* NW_E_UNKNOWN names the nearest. */
nw_status nw_decay_filter_find(const char *name, nw_decay_filter *filter);

/* Reads the table of segments only, so the vectors may be bound later. NW_E_UNKNOWN, NW_E_ARGUMENT, NW_E_MEMORY. */
nw_status nw_optimizer_make(nw_optimizer **optimizer, const nw_optimizer_options *options, const nw_params *params);
void nw_optimizer_free(nw_optimizer *optimizer);
void nw_optimizer_bind(nw_optimizer *optimizer, nw_arena *arena);

/* One update of everything: number steps + 1. gradient_scale multiplies the gradient first (1 / k averages k of them).
 * Fails, and changes nothing, if lr or, where a norm is taken, the norm is not finite (NW_E_NUMERIC names the first
 * bad segment). */
nw_status nw_optimizer_step(nw_optimizer *optimizer, nw_exec *exec, nw_params *params, double lr,
                            double gradient_scale);

/* One update of a range, for servers that own a part and stages that update on their own: `step` (from 1) is the number
 * of this update of this range, and the caller counts. The first one starts from empty state. The range may be any for
 * elementwise rules; lars wants whole segments. clip_norm is not applied, since it needs
 * the whole gradient: fold nw_clip_factor into gradient_scale. */
nw_status nw_optimizer_step_range(nw_optimizer *optimizer, nw_exec *exec, nw_params *params, double lr,
                                  double gradient_scale, uint64_t step, size_t first, size_t count);

/* The L2 norm of the whole gradient, in double. Finite or not. */
double nw_optimizer_gradient_norm(nw_optimizer *optimizer, nw_exec *exec, const nw_params *params);
/* min(1, limit / (norm + 1e-6)); 1 if limit is 0. */
double nw_clip_factor(double norm, double limit);

/* For checkpoints: the state vectors, and the number of updates made (nw_optimizer_step counts; write it to resume). */
typedef struct nw_optimizer_state {
    const char *name; /* as PyTorch spells it: "exp_avg" */
    float *data;
    size_t count;
} nw_optimizer_state;

int nw_optimizer_states(const nw_optimizer *optimizer);
nw_optimizer_state nw_optimizer_state_at(const nw_optimizer *optimizer, int index);
uint64_t *nw_optimizer_steps(nw_optimizer *optimizer);

#endif
