/*
 * dgc_sgd.c - SGD for gradients that carry momentum already (Lin et al., Deep Gradient Compression, ICLR 2018; DGCSGD).
 *
 * Deep gradient compression applies momentum before the exchange, so the update must not apply it again to the
 * exchanged gradient G. Weight decay keeps a momentum of its own, the same on every replica since the weights are:
 *
 *   d = wd w;  b = momentum b + (1 - dampening) d, the first time b = d;  w -= lr ((nesterov ? d + momentum b : b) + G)
 *
 * Without momentum w -= lr (wd w + G); where wd is 0, w -= lr G.
 */
#include "optim/rule.h"

static nw_status check(const nw_optimizer_options *o)
{
    NW_TRY(nw_check_momentum(o));
    NW_FAIL_IF(o->nesterov && o->dampening != 0, NW_E_ARGUMENT,
               "Nesterov needs no dampening with dgc-sgd, but it is %g; drop one of the two", o->dampening);
    return NW_OK;
}

static nw_update_rule scalars(const nw_optimizer_options *o, uint64_t step, double lr)
{
    nw_update_rule rule = nw_scalars_momentum(o, step, lr);
    rule.kind = NW_UPDATE_DGC;
    return rule;
}

const nw_rule nw_rule_dgc_sgd = {
    .name = "dgc-sgd",
    .state_names = {"decay_buffer"},
    .states = nw_states_momentum,
    .check = check,
    .scalars = scalars,
};
