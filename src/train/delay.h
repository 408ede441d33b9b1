/*
 * delay.h - artificial delays: how old the parameters are at which the gradient of an update is computed.
 *
 * Update t (from 0) applies to the newest parameters a gradient taken at those of `delay(t)` updates before. The delay
 * is a pure function of (options, t), so that runs repeat and resume without any state, and so that it is known in
 * advance which parameters will be read again (history.h). With D = `models` it is in [0, min(D - 1, t)]:
 *
 *   uniform   each of the min(D, t + 1) last models with equal chance (APAM's experiment, Xu et al., section 5.4)
 *   fixed     the oldest: min(D - 1, t)
 *   heavy     a truncated Pareto law with exponent a: most are short, a few long. With n = min(D, t + 1),
 *             P(delay >= k) = ((k + 1)^-a - (n + 1)^-a) / (1 - (n + 1)^-a),  k in [0, n]
 *   worker    W workers take turns, and worker w = t mod W is always as late: (W - 1 - w) (D - 1) / (W - 1), rounded, or
 *             D - 1 if W = 1. The first is the slowest: then no two of a turn read the same parameters.
 */
#ifndef NW_TRAIN_DELAY_H
#define NW_TRAIN_DELAY_H

#include <stdint.h>

#include "base/status.h"

typedef enum nw_delay_law { NW_DELAY_UNIFORM, NW_DELAY_FIXED, NW_DELAY_HEAVY, NW_DELAY_WORKER } nw_delay_law;

enum { NW_DELAY_MODELS_MOST = 1000000 };

typedef struct nw_delay_options {
    nw_delay_law law;
    int models;  /* D; 1, or 0: no delays */
    double tail; /* heavy: the exponent a > 0 */
    int workers; /* worker: W >= 1 */
    uint64_t seed;
} nw_delay_options;

/* NW_E_ARGUMENT names the option that is out of its range. */
nw_status nw_delay_check(const nw_delay_options *options);

/* The law of a name; NW_E_UNKNOWN names the nearest. */
nw_status nw_delay_law_find(const char *name, nw_delay_law *law);

int64_t nw_delay_at(const nw_delay_options *options, int64_t update);

#endif
