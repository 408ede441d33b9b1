/*
 * clip.c - norms over the flat vectors, and gradient clipping by the global norm.
 *
 *   g <- g min(1, limit / (|g| + 1e-6)),   |g| the L2 norm over all parameters
 *
 * as torch.nn.utils.clip_grad_norm_ does it. Each piece is summed by one thread in double, the sums of pieces are added
 * in order: a norm does not depend on the number of threads.
 */
#include "optim/rule.h"

#include <math.h>

typedef struct visit_job {
    const nw_optimizer *o;
    nw_stretch stretch;
    int first_task;
    nw_visit visit;
    void *context;
} visit_job;

static void visit_task(void *context, int index, int worker)
{
    const visit_job *job = context;
    int task = job->first_task + index;
    (void)worker;
    for (int i = job->o->tasks[task]; i < job->o->tasks[task + 1]; i++) {
        const nw_piece *piece = &job->o->pieces[i];
        size_t first = piece->offset, last = first + piece->count;
        if (first < job->stretch.first) first = job->stretch.first;
        if (last > job->stretch.last) last = job->stretch.last;
        if (first < last) job->visit(job->context, i, first, last - first);
    }
}

void nw_pieces_visit(const nw_optimizer *o, nw_exec *exec, nw_stretch stretch, nw_visit visit, void *context)
{
    int from = 0, to = o->task_count;
    while (from < to &&
           o->pieces[o->tasks[from + 1] - 1].offset + o->pieces[o->tasks[from + 1] - 1].count <= stretch.first)
        from++;
    while (to > from && o->pieces[o->tasks[to - 1]].offset >= stretch.last) to--;
    visit_job job = {o, stretch, from, visit, context};
    if (to > from) nw_exec_run(exec, NW_WORK_UPDATE, to - from, visit_task, &job);
}

typedef struct squares_job {
    const nw_kernels *kernels;
    const float *vector;
    double *sums;
} squares_job;

static void squares_visit(void *context, int index, size_t offset, size_t count)
{
    const squares_job *job = context;
    job->sums[index] = job->kernels->squares(job->vector + offset, count);
}

void nw_pieces_squares(const nw_optimizer *o, nw_exec *exec, nw_stretch stretch, const float *vector, double *sums)
{
    squares_job job = {exec->kernels, vector, sums};
    nw_pieces_visit(o, exec, stretch, squares_visit, &job);
}

nw_status nw_fail_not_finite(const nw_params *params, const float *vector, const char *what, nw_stretch stretch)
{
    for (int i = 0; i < params->learned.count; i++) {
        const nw_segment *s = &params->learned.at[i];
        for (size_t j = 0; j < s->count; j++) {
            size_t at = s->offset + j;
            NW_FAIL_IF(
                at >= stretch.first && at < stretch.last && !isfinite(vector[at]), NW_E_NUMERIC,
                "the %s of '%s' is %g at element %zu, so no norm can be taken; a lower learning rate or a longer "
                "warm-up usually helps",
                what, s->name, (double)vector[at], j);
        }
    }
    return NW_FAIL(NW_E_NUMERIC, "the norm of the %s is not finite", what);
}

double nw_optimizer_gradient_norm(nw_optimizer *o, nw_exec *exec, const nw_params *params)
{
    nw_pieces_squares(o, exec, (nw_stretch){0, o->floats}, params->gradients, o->sums[0]);
    double total = 0;
    for (int i = 0; i < o->piece_count; i++) total += o->sums[0][i];
    return sqrt(total);
}

double nw_clip_factor(double norm, double limit)
{
    if (limit == 0) return 1;
    double factor = limit / (norm + 1e-6);
    return factor < 1 ? factor : 1;
}
