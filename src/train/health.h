/*
 * health.h - numbers that are not finite, found before they are used: every step looks at its loss and its gradient,
 * and a failure names the first tensor that is bad, in the order in which the step computed them.
 */
#ifndef NW_TRAIN_HEALTH_H
#define NW_TRAIN_HEALTH_H

#include "train/net.h"

/* After nw_net_gradients: NW_E_NUMERIC, with a sentence that names the first bad tensor of the step, if the loss or
 * one of the first `count` elements of the gradient is not finite. The weights have not been touched by it. */
nw_status nw_health_check(nw_net *net, double loss, size_t count, int64_t step);
/* Whether a range of the gradient is finite: to be asked before others may write there. */
bool nw_health_range(nw_net *net, size_t first, size_t count);

/* The first element that is not finite; count if all are. */
size_t nw_first_not_finite(const float *values, size_t count);

#endif
