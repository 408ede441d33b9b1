/*
 * adam.c - Adam (Kingma and Ba 2015) and AMSGrad (Reddi et al. 2018) with coupled weight decay, as in PyTorch.
 *
 *   d = g + wd w;  m = beta1 m + (1 - beta1) d;  v = beta2 v + (1 - beta2) d^2;  u = amsgrad ? max(u, v) : v
 *   w -= lr / c1 m / (sqrt(u) / sqrt(c2) + eps),   c1 = 1 - beta1^t, c2 = 1 - beta2^t, t the number of this update
 *
 * Frozen (1-bit Adam, Tang et al. 2021): after `freeze` updates u and c2 stay as they are, and what comes instead of g is
 * the mean momentum, which all replicas have in common: m = g + wd w. Decay has no momentum then. Weights whose u is 0, which
 * had no gradient while it was learned, do not move: codecs send something of all elements, and 0 / 0 is no rate.
 */
#include "optim/rule.h"

#include <math.h>

nw_status nw_check_betas(const nw_optimizer_options *o)
{
    NW_FAIL_IF(!(o->beta1 >= 0 && o->beta1 < 1), NW_E_ARGUMENT, "beta1 is %g; it must lie in [0, 1)", o->beta1);
    NW_FAIL_IF(!(o->beta2 >= 0 && o->beta2 < 1), NW_E_ARGUMENT, "beta2 is %g; it must lie in [0, 1)", o->beta2);
    return NW_OK;
}

nw_status nw_check_moments(const nw_optimizer_options *o)
{
    NW_TRY(nw_check_betas(o));
    NW_FAIL_IF(!(o->eps > 0 && (float)o->eps > 0 && isfinite(o->eps)), NW_E_ARGUMENT,
               "eps is %g; it must be above 0, or weights without a gradient become 0 / 0", o->eps);
    return NW_OK;
}

int nw_states_moments(const nw_optimizer_options *o) { return o->amsgrad ? 3 : 2; }

nw_update_rule nw_scalars_moments(const nw_optimizer_options *o, uint64_t step, double lr)
{
    return (nw_update_rule){.kind = NW_UPDATE_ADAM,
                            .first = step == 1,
                            .lr = (float)lr,
                            .beta1 = (float)o->beta1,
                            .fresh1 = (float)(1 - o->beta1),
                            .beta2 = (float)o->beta2,
                            .fresh2 = (float)(1 - o->beta2),
                            .root = 1,
                            .eps = (float)o->eps,
                            .amsgrad = o->amsgrad};
}

static nw_update_rule scalars(const nw_optimizer_options *o, uint64_t step, double lr)
{
    bool frozen = o->freeze > 0 && step > o->freeze;
    nw_update_rule rule = nw_scalars_moments(o, step, lr / (1 - pow(o->beta1, (double)step)));
    rule.root = (float)sqrt(1 - pow(o->beta2, (double)(frozen ? o->freeze : step)));
    if (!frozen) return rule;
    rule.frozen = true;
    rule.beta1 = rule.fresh2 = 0;
    rule.fresh1 = rule.beta2 = 1;
    return rule;
}

const nw_rule nw_rule_adam = {
    .name = "adam",
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .states = nw_states_moments,
    .check = nw_check_moments,
    .scalars = scalars,
};
