/*
 * lars.c - layer-wise adaptive rates (You et al. 2017), clipped (LARC), then SGD.
 *
 * For each segment with |w| != 0 and |g| != 0, g the scaled gradient:
 *
 *   r = trust |w| / (|g| + wd |w| + eps);   q = clipped ? min(r / lr, 1) : r;   d = q (g + wd w)
 *
 * and SGD goes on with d, without further decay. A segment with a zero norm keeps d = g, without decay.
 *
 * Norms are sums of pieces in order, in double.
 */
#include "optim/rule.h"

#include <math.h>

static nw_status check(const nw_optimizer_options *o)
{
    NW_TRY(nw_check_momentum(o));
    NW_FAIL_IF(!(o->lars_trust > 0 && isfinite(o->lars_trust)), NW_E_ARGUMENT,
               "the trust coefficient of lars is %g; it must be above 0", o->lars_trust);
    NW_FAIL_IF(!(o->lars_eps >= 0 && isfinite(o->lars_eps)), NW_E_ARGUMENT,
               "the eps of lars is %g; it must not be negative", o->lars_eps);
    return NW_OK;
}

static nw_status before(nw_optimizer *o, nw_exec *exec, const nw_params *params, double lr, double gradient_scale,
                        nw_stretch stretch)
{
    const nw_optimizer_options *options = &o->options;
    nw_pieces_squares(o, exec, stretch, params->values, o->sums[0]);
    nw_pieces_squares(o, exec, stretch, params->gradients, o->sums[1]);
    for (int i = 0, next; i < o->piece_count; i = next) {
        double w = 0, g = 0;
        for (next = i; next < o->piece_count && o->pieces[next].segment == o->pieces[i].segment; next++) {
            w += o->sums[0][next];
            g += o->sums[1][next];
        }
        if (o->pieces[i].offset < stretch.first || o->pieces[i].offset >= stretch.last) continue;
        if (!isfinite(w)) return nw_fail_not_finite(params, params->values, "value", stretch);
        if (!isfinite(g)) return nw_fail_not_finite(params, params->gradients, "gradient", stretch);
        w = sqrt(w);
        g = sqrt(g) * fabs(gradient_scale);
        double decay = (double)o->pieces[i].decay;
        double ratio = options->lars_trust * w / (g + decay * w + options->lars_eps);
        if (options->lars_clip) ratio = ratio < lr ? ratio / lr : 1;
        bool bare = w == 0 || g == 0;
        for (int p = i; p < next; p++) {
            o->pieces[p].bare = bare;
            o->pieces[p].trust = bare ? 1.0f : (float)ratio;
        }
    }
    return NW_OK;
}

const nw_rule nw_rule_lars = {
    .name = "lars",
    .by_segment = true,
    .state_names = {"momentum_buffer"},
    .states = nw_states_momentum,
    .check = check,
    .scalars = nw_scalars_momentum,
    .before = before,
};
