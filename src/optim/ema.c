/*
 * ema.c - the moving average of weights and running statistics; see ema.h for its equation.
 *
 * Elements are independent: any number of threads gives the same bits.
 */
#include "optim/ema.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1 << 16 };

/* The two pairs of vectors as one list of pieces: values first, then buffers. */
typedef struct ema_job {
    void (*visit)(float *shadow, float *value, size_t count, float rho, float fresh);
    float *shadow[2], *value[2];
    size_t count[2];
    int value_pieces;
    float rho, fresh;
} ema_job;

static void ema_task(void *context, int index, int worker)
{
    const ema_job *job = context;
    int which = index >= job->value_pieces;
    size_t at = (size_t)(which ? index - job->value_pieces : index) * PIECE, left = job->count[which] - at;
    (void)worker;
    job->visit(job->shadow[which] + at, job->value[which] + at, left < PIECE ? left : PIECE, job->rho, job->fresh);
}

static int pieces(size_t count) { return (int)((count + PIECE - 1) / PIECE); }

static void visit_all(nw_ema *ema, nw_exec *exec, const nw_params *params,
                      void (*visit)(float *, float *, size_t, float, float))
{
    double rho = pow(ema->decay, ema->every);
    ema_job job = {.visit = visit,
                   .shadow = {ema->values, ema->buffers},
                   .value = {params->values, params->buffers},
                   .count = {ema->count, ema->buffer_count},
                   .value_pieces = pieces(ema->count),
                   .rho = (float)rho,
                   .fresh = (float)(1 - rho)};
    nw_exec_run(exec, NW_WORK_UPDATE, job.value_pieces + pieces(ema->buffer_count), ema_task, &job);
}

static void copy(float *shadow, float *value, size_t count, float rho, float fresh)
{
    (void)rho;
    (void)fresh;
    memcpy(shadow, value, count * sizeof *shadow);
}
static void average(float *restrict shadow, float *restrict value, size_t count, float rho, float fresh)
{
    for (size_t i = 0; i < count; i++) shadow[i] = rho * shadow[i] + fresh * value[i];
}
static void swap(float *restrict shadow, float *restrict value, size_t count, float rho, float fresh)
{
    (void)rho;
    (void)fresh;
    for (size_t i = 0; i < count; i++) {
        float kept = shadow[i];
        shadow[i] = value[i];
        value[i] = kept;
    }
}

nw_status nw_ema_make(nw_ema *ema, double decay, int every, const nw_params *params)
{
    NW_FAIL_IF(!(decay >= 0 && decay < 1), NW_E_ARGUMENT,
               "the decay of the weights' moving average is %g; it must lie in [0, 1)", decay);
    NW_FAIL_IF(every < 1, NW_E_ARGUMENT, "the moving average of the weights is taken every %d steps; give at least 1",
               every);
    *ema = (nw_ema){
        .decay = decay, .every = every, .count = params->learned.floats, .buffer_count = params->running.floats};
    return NW_OK;
}

void nw_ema_bind(nw_ema *ema, nw_arena *arena)
{
    ema->values = nw_arena_alloc(arena, ema->count * sizeof(float));
    ema->buffers = nw_arena_alloc(arena, ema->buffer_count * sizeof(float));
}

void nw_ema_start(nw_ema *ema, nw_exec *exec, const nw_params *params)
{
    ema->steps = 0;
    ema->swapped = false;
    visit_all(ema, exec, params, copy);
}

nw_status nw_ema_step(nw_ema *ema, nw_exec *exec, const nw_params *params)
{
    NW_FAIL_IF(ema->swapped, NW_E_INTERNAL, "the averaged weights are swapped in for evaluation: swap them out first");
    if (ema->steps++ % (uint64_t)ema->every == 0) visit_all(ema, exec, params, average);
    return NW_OK;
}

void nw_ema_swap(nw_ema *ema, nw_exec *exec, nw_params *params)
{
    visit_all(ema, exec, params, swap);
    ema->swapped = !ema->swapped;
}
