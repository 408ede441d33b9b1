/*
 * sgd.c - stochastic gradient descent as PyTorch defines it, and as PETRA uses it: Nesterov's form goes with dampening.
 *
 *   d = g + wd w;  b = momentum b + (1 - dampening) d, the first time b = d;  w -= lr (nesterov ? d + momentum b : b)
 *
 * Without momentum w -= lr d, and there is no state: the plain rule that APAM's code calls sgd.
 */
#include "optim/rule.h"

#include <math.h>

nw_status nw_check_momentum(const nw_optimizer_options *o)
{
    NW_FAIL_IF(!(o->momentum >= 0 && o->momentum < 1), NW_E_ARGUMENT, "the momentum is %g; it must lie in [0, 1)",
               o->momentum);
    NW_FAIL_IF(!(o->dampening >= 0 && o->dampening <= 1), NW_E_ARGUMENT, "the dampening is %g; it must lie in [0, 1]",
               o->dampening);
    NW_FAIL_IF(o->nesterov && o->momentum == 0, NW_E_ARGUMENT,
               "Nesterov needs a momentum above 0; give one, or drop Nesterov");
    return NW_OK;
}

int nw_states_momentum(const nw_optimizer_options *o) { return o->momentum != 0; }

nw_update_rule nw_scalars_momentum(const nw_optimizer_options *o, uint64_t step, double lr)
{
    return (nw_update_rule){.kind = NW_UPDATE_SGD,
                            .first = step == 1,
                            .lr = (float)lr,
                            .momentum = (float)o->momentum,
                            .fresh = (float)(1 - o->dampening),
                            .nesterov = o->nesterov};
}

const nw_rule nw_rule_sgd = {
    .name = "sgd",
    .state_names = {"momentum_buffer"},
    .states = nw_states_momentum,
    .check = nw_check_momentum,
    .scalars = nw_scalars_momentum,
};
