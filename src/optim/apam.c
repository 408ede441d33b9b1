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
 * without corrections and eps; a coordinate with u = 0 is left as it is. For a box Proj cuts each coordinate. For the
 * ball |y| <= R, if |z| > R, y_i = s_i z_i / (s_i + lambda) with s = sqrt(u) and the lambda > 0 for which |y| = R.
 * Coordinates with u = 0 have never moved, so they keep their part of R, and the others share the rest.
 *
 * lambda: Newton's method on 1/R - 1/|y(lambda)|, convex and falling, from lambda = 0: it rises to the root without
 * passing it. Sums are in double and of fixed order. The steps of order 1/sqrt(k) are the schedule inverse-sqrt.
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
    .text = "APAM as its code has it: AMSGrad with corrections folded into the step",
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
    NW_FAIL_IF(o->projection == NW_PROJECT_BOX && !(o->box_low < o->box_high), NW_E_ARGUMENT,
               "the box of the projection is [%g, %g]; its lower end must lie below the upper", o->box_low,
               o->box_high);
    NW_FAIL_IF(o->projection == NW_PROJECT_BALL && !(o->ball_radius > 0 && isfinite(o->ball_radius)), NW_E_ARGUMENT,
               "the radius of the projection's ball is %g; it must be above 0", o->ball_radius);
    return NW_OK;
}

static nw_update_rule paper_scalars(const nw_optimizer_options *o, uint64_t step, double lr)
{
    bool box = o->projection == NW_PROJECT_BOX;
    nw_update_rule rule = nw_scalars_moments(o, step, lr);
    rule.kind = NW_UPDATE_APAM_PAPER;
    rule.low = box ? (float)o->box_low : -INFINITY;
    rule.high = box ? (float)o->box_high : INFINITY;
    return rule;
}

static nw_status paper_before(nw_optimizer *o, nw_exec *exec, const nw_params *params, double lr, double gradient_scale,
                              nw_stretch stretch)
{
    (void)lr;
    (void)gradient_scale;
    if (o->options.projection != NW_PROJECT_BALL) return NW_OK;
    NW_FAIL_IF(stretch.first != 0 || stretch.last != o->floats, NW_E_ARGUMENT,
               "a projection on a ball needs all parameters at once; use a box, or a server that owns them all");
    nw_pieces_squares(o, exec, stretch, params->values, o->sums[0]);
    double norm = sqrt(nw_pieces_total(o, o->sums[0])), radius = o->options.ball_radius;
    if (!isfinite(norm)) return nw_fail_not_finite(params, params->values, "value", stretch);
    NW_FAIL_IF(norm > radius * (1 + 1e-5), NW_E_ARGUMENT,
               "the parameters have norm %g and lie outside the ball of radius %g: start inside, or enlarge the ball",
               norm, radius);
    return NW_OK;
}

typedef struct ball_job {
    float *w;
    const float *u;
    double lambda;
    double *sums[2];
} ball_job;

/* At lambda: sums of y^2 and, for Newton's slope, of y^2 / (s + lambda), over the coordinates that move. */
static void ball_sums(void *context, int index, size_t offset, size_t count)
{
    const ball_job *job = context;
    double squares = 0, slope = 0;
    for (size_t i = offset; i < offset + count; i++) {
        double s = sqrt((double)job->u[i]);
        if (s == 0) continue;
        double y = s * (double)job->w[i] / (s + job->lambda);
        squares += y * y;
        slope += y * y / (s + job->lambda);
    }
    job->sums[0][index] = squares;
    job->sums[1][index] = slope;
}

/* The squares of the coordinates that do not move. */
static void ball_still(void *context, int index, size_t offset, size_t count)
{
    const ball_job *job = context;
    double squares = 0;
    for (size_t i = offset; i < offset + count; i++)
        if (job->u[i] == 0.0f) squares += (double)job->w[i] * (double)job->w[i];
    job->sums[0][index] = squares;
}

static void ball_shrink(void *context, int index, size_t offset, size_t count)
{
    const ball_job *job = context;
    (void)index;
    for (size_t i = offset; i < offset + count; i++) {
        double s = sqrt((double)job->u[i]);
        if (s != 0) job->w[i] = (float)(s * (double)job->w[i] / (s + job->lambda));
    }
}

static void paper_after(nw_optimizer *o, nw_exec *exec, nw_params *params)
{
    enum { ITERATIONS = 60 }; /* 5 are usual; a bound in case rounding keeps it from settling */
    if (o->options.projection != NW_PROJECT_BALL) return;
    const nw_stretch all = {0, o->floats};
    ball_job job = {.w = params->values, .u = o->state[2], .sums = {o->sums[0], o->sums[1]}};
    nw_pieces_visit(o, exec, all, ball_still, &job);
    double room = o->options.ball_radius * o->options.ball_radius - nw_pieces_total(o, o->sums[0]);
    double radius = room > 0 ? sqrt(room) : 0;
    for (int i = 0; i < ITERATIONS; i++) {
        nw_pieces_visit(o, exec, all, ball_sums, &job);
        double squares = nw_pieces_total(o, o->sums[0]), norm = sqrt(squares);
        if (!(norm > radius * (1 + 1e-10))) break; /* inside, or NaN, which is left to be seen */
        if (radius == 0) {
            job.lambda = INFINITY;
            break;
        }
        job.lambda += squares / nw_pieces_total(o, o->sums[1]) * (norm - radius) / radius;
    }
    if (job.lambda > 0) nw_pieces_visit(o, exec, all, ball_shrink, &job);
}

const nw_rule nw_rule_apam_paper = {
    .name = "apam-paper",
    .text = "APAM as its paper has it: AMSGrad without corrections, with projections",
    .state_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .states = paper_states,
    .check = paper_check,
    .scalars = paper_scalars,
    .before = paper_before,
    .after = paper_after,
};
