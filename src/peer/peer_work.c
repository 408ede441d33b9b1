/*
 * peer_work.c - the worker of a program's rank: passes are left to the program, updates are done in one of three ways.
 *
 *   reduce   the program's vector becomes scale * gradient: the mean, which it applies itself
 *   update   the library's optimizer: values -= rule(scale * gradient)
 *   merge    the gradient is a step that the program's optimizer made: values -= scale * gradient
 *
 * An update's second vector (`also`) is changed by the same difference as the values. Called by the owner.
 */
#include "peer/peer.h"

static size_t floats_of(const nw_peer *p) { return p->params.learned.floats; }

/* The program computes with a copy, because the exchange may change the values meanwhile. */
static nw_status do_pass(nw_peer *p, nw_task *task)
{
    task->clock = p->gradients;
    pthread_mutex_lock(&p->lock);
    task->ends = p->empty = p->ends;
    if (!task->ends) {
        memcpy(p->seen, p->params.values, floats_of(p) * sizeof *p->seen);
        nw_peer_log_line(p, "pass");
        task->pending = p->computing = true;
        pthread_cond_broadcast(&p->ready);
    }
    pthread_mutex_unlock(&p->lock);
    return NW_OK;
}

static void give_mean(nw_peer *p, const nw_task *task)
{
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; p->vector && i < task->count; i++) p->vector[i] = task->scale * task->gradient[i];
    p->there = true;
    pthread_mutex_unlock(&p->lock);
}

/* ---- the library's optimizer -------------------------------------------------------------------------------------- */

nw_status nw_peer_make_optimizer(nw_peer *p)
{
    return nw_optimizer_make(&p->optimizer, &p->rule, &p->params);
}

static nw_status bind_optimizer(nw_peer *p)
{
    nw_arena measure = nw_arena_measure();
    if (p->optimizer_arena.base) return NW_OK;
    nw_optimizer_bind(p->optimizer, &measure);
    NW_TRY(nw_arena_create(&p->optimizer_arena, measure.used + 1));
    nw_optimizer_bind(p->optimizer, &p->optimizer_arena);
    return NW_OK;
}

static double rate_of(nw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    double rate = p->rate;
    pthread_mutex_unlock(&p->lock);
    return rate;
}

static nw_status optimize(nw_peer *p, const nw_task *task)
{
    nw_params view = p->params;
    double rate = rate_of(p), scale = (double)task->scale;
    uint64_t number = (uint64_t)task->number + 1;
    view.gradients = task->gradient;
    NW_TRY(bind_optimizer(p));
    NW_TRY(task->count == floats_of(p)
               ? nw_optimizer_step(p->optimizer, &p->exec, &view, rate, scale)
               : nw_optimizer_step_range(p->optimizer, &p->exec, &view, rate, scale, number, task->first, task->count));
    *nw_optimizer_steps(p->optimizer) = number;
    return NW_OK;
}

/* ---- updates ------------------------------------------------------------------------------------------------------ */

static nw_status change_values(nw_peer *p, const nw_task *task)
{
    if (p->way != NW_PEER_MERGE) return optimize(p, task);
    for (size_t i = task->first; i < task->first + task->count; i++) task->values[i] -= task->scale * task->gradient[i];
    return NW_OK;
}

static nw_status update(nw_peer *p, const nw_task *task)
{
    size_t end = task->first + task->count;
    if (!task->also) return change_values(p, task);
    if (!p->before) NW_NEW(p->before, floats_of(p), "a copy of %zu parameters", floats_of(p));
    memcpy(p->before + task->first, task->values + task->first, task->count * sizeof *p->before);
    NW_TRY(change_values(p, task));
    for (size_t i = task->first; i < end; i++) task->also[i] += task->values[i] - p->before[i];
    return NW_OK;
}

/* Where ranks go at their own pace, the last pass of a program has no gradient, and its update changes nothing. */
static nw_status do_task(void *worker, nw_task *task, nw_announce *announce)
{
    nw_peer *p = worker;
    (void)announce;
    if (task->kind == NW_TASK_PASS) return do_pass(p, task);
    if (p->empty && !p->rank.machine->lockstep && !p->rank.machine->equal) return NW_OK;
    nw_peer_log_line(p, "update");
    if (p->way != NW_PEER_REDUCE) return update(p, task);
    give_mean(p, task);
    return NW_OK;
}

const nw_worker_ops nw_peer_work = {.run = do_task};
