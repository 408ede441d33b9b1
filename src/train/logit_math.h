/*
 * logit_math.h - the arithmetic of logistic regression on sparse rows, in double.
 *
 *   z = w'x (+ the intercept),  margin = y z with y = -1 or 1
 *   loss       log(1 + exp(-margin))
 *   gradient   c x with c = -y / (1 + exp(margin)); of a batch: the sum over its rows, or their mean
 *
 * AMSGrad as APAM's paper has it, without corrections and without epsilon, for every coordinate at every update:
 *
 *   g += decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  u = max(u, v)
 *   w -= alpha m / sqrt(u) where u > least
 *
 * `least` stands for the zeros that have to be skipped. APAM's code has 1e-11 for gradients that are sums.
 *
 * Threads: shared weights are atomic doubles, read and written with relaxed order: a coordinate is whole, but the
 * coordinates that a batch reads may be of different ages (the paper's inconsistent read). All else belongs to one thread.
 */
#ifndef NW_TRAIN_LOGIT_MATH_H
#define NW_TRAIN_LOGIT_MATH_H

#include "data/libsvm.h"

#include <stdatomic.h>

typedef _Atomic double nw_shared_double;

/* What was seen on the way: sums over rows. */
typedef struct nw_logit_tally {
    double loss;
    int64_t correct, rows;
} nw_logit_tally;

void nw_logit_tally_add(nw_logit_tally *to, const nw_logit_tally *from);
double nw_logit_tally_loss(const nw_logit_tally *tally); /* mean; NAN without rows */
double nw_logit_tally_top1(const nw_logit_tally *tally); /* percent; NAN without rows */

double nw_logit_loss(double margin); /* without overflow */
double nw_logit_pull(double margin); /* 1 / (1 + exp(margin)), without overflow */
static inline bool nw_logit_says_one(double z) { return z > 0; }

/* A sparse gradient: `count` coordinates in the order in which the batch first meets them, each once. */
typedef struct nw_logit_gradient {
    int64_t count;
    int32_t *index;
    double *value;
    nw_logit_tally tally; /* at the weights that it was computed with */
} nw_logit_gradient;

/* Sums under way, of one thread. */
typedef struct nw_logit_sums {
    double *sum;    /* a coordinate each */
    uint32_t *mark; /* == now where `sum` belongs to this batch */
    uint32_t now;
} nw_logit_sums;

/* The gradient of some rows, times `scale`. Coordinate `features` is the intercept, where there is one. */
void nw_logit_gradient_of(const nw_sparse *data, int32_t features, bool intercept, const nw_shared_double *weights,
                          const uint32_t *rows, int64_t count, double scale, nw_logit_sums *sums,
                          nw_logit_gradient *gradient);

/* Loss and accuracy on all rows of `data`, at weights that nobody writes. Features that the weights lack count as 0. */
nw_logit_tally nw_logit_evaluate(const nw_sparse *data, int32_t features, bool intercept, const double *weights);

typedef struct nw_logit_rule {
    double alpha, beta1, beta2, decay, least;
} nw_logit_rule;

/* One update of coordinates 0 .. count - 1: w, m, v, u belong to the caller, `shared` gets the new weights. The dense pass
 * reads five doubles of a coordinate and writes five, whatever the gradient has: m and v decay everywhere, and w moves
 * wherever m is not 0, so a lazy update of the gradient's coordinates alone would not be the same. */
void nw_logit_update(const nw_logit_rule *rule, int64_t count, const double *g, double *w, double *m, double *v,
                     double *u, nw_shared_double *shared);

#endif
