/*
 * apam.c - the two update rules of APAM (Xu et al., asynchronous parallel adaptive stochastic gradient methods).
 *
 * As its code has it (apam), with m, v, u of adam.c, AMSGrad or not:
 *
 *   lr_t = alpha sqrt(1 - beta2^t) / (1 - beta1^t)  in double;   w -= lr_t m / (sqrt(u) + eps)
 *
 * As its paper has it (apam-paper, Algorithm 1), always with AMSGrad's u:
 *
 *   x <- Proj(x - alpha m / sqrt(u)),   Proj(z) = argmin over y in X of sum_i sqrt(u_i) (y_i - z_i)^2
 *
 * without corrections and eps; a coordinate with u = 0 is left as it is. X is everything, or a box, on which Proj cuts
 * each coordinate. The steps of order 1/sqrt(k) are the schedule inverse-sqrt.
 */
#include "optim/rule.h"

#include <math.h>

static nw_update_rule scalars(const nw_optimizer_options *o, uint64_t step, double lr)
{
    double t = (double)step;
    return nw_scalars_moments(o, step, lr * sqrt(1 - pow(o->beta2, t)) / (1 - pow(o->beta1, t)));
}

const nw_rule nw_rule_apam = {
    .name = "apam",
    .amsgrad = true,
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .states = nw_states_moments,
    .check = nw_check_moments,
    .scalars = scalars,
};

/* ---- the paper's rule -------------------------------------------------------------------------------------------- */

static int paper_states(const nw_optimizer_options *o)
{
    (void)o;
    return 3;
}

static nw_status paper_check(const nw_optimizer_options *o)
{
    NW_TRY(nw_check_betas(o));
    NW_FAIL_IF(o->box && !(o->box_low < o->box_high), NW_E_ARGUMENT,
               "the box of the projection is [%g, %g]; its lower end must lie below the upper", o->box_low,
               o->box_high);
    return NW_OK;
}

static nw_update_rule paper_scalars(const nw_optimizer_options *o, uint64_t step, double lr)
{
    nw_update_rule rule = nw_scalars_moments(o, step, lr);
    rule.kind = NW_UPDATE_APAM_PAPER;
    rule.low = o->box ? (float)o->box_low : -INFINITY;
    rule.high = o->box ? (float)o->box_high : INFINITY;
    return rule;
}

const nw_rule nw_rule_apam_paper = {
    .name = "apam-paper",
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .states = paper_states,
    .check = paper_check,
    .scalars = paper_scalars,
};
