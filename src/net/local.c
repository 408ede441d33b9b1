/*
 * local.c - the driver of a world of one: no messages, the time in which it ran. Events follow each other as calls do.
 */
#include "base/clock.h"
#include "net/driver.h"

#include <stdlib.h>

typedef struct local_driver {
    nw_driver base;
    nw_own_clock clock; /* what machines are told */
} local_driver;

static int64_t own_now(nw_driver *d) { return nw_own_clock_now(&((local_driver *)d)->clock); }

static int64_t now(nw_driver *d, int rank)
{
    (void)d, (void)rank;
    return nw_now_ns();
}

/* A rank alone needs no timers, since there is nobody to be late. */
static nw_status check_actions(nw_driver *d, nw_status status)
{
    NW_TRY(status);
    for (int i = 0; i < d->actions.count; i++)
        NW_FAIL_IF(d->actions.at[i].kind != NW_ACTION_TIMER, NW_E_INTERNAL,
                   "%s sends messages, but there is only one rank", d->ranks->machine->ops->name);
    d->actions.count = 0;
    return NW_OK;
}

static nw_status tell_machine(nw_driver *d, nw_event event)
{
    event.now_ns = own_now(d);
    return check_actions(d, nw_rank_tell(d, d->ranks, event));
}

static nw_status do_task(nw_driver *d, nw_rank *r)
{
    const nw_driver_hooks *hooks = &d->options.hooks;
    int64_t begin = nw_now_ns();
    NW_TRY(r->work->run(r->worker, &r->task, NULL));
    int64_t end = nw_now_ns();
    nw_span span = r->task.kind == NW_TASK_PASS ? NW_SPAN_COMPUTE : NW_SPAN_UPDATE;
    if (hooks->span) hooks->span(hooks->context, 0, span, begin, end, r->step);
    return NW_OK;
}

static nw_status local_begin(nw_driver *d, const nw_go *go)
{
    own_now(d);
    ((local_driver *)d)->clock.own_ns = d->ranks->elapsed_ns; /* what lay between two runs does not count */
    return tell_machine(d, (nw_event){.kind = NW_EVENT_GO, .go = go});
}

static nw_status local_turn(nw_driver *d, nw_turn *turn)
{
    nw_rank *r = d->ranks;
    bool begins = nw_rank_next(d, r), was_pending = r->busy && !begins;
    *turn = NW_TURN_MOVED;
    if (begins) NW_TRY(do_task(d, r));
    if (r->busy && r->task.pending) {
        if (was_pending) *turn = NW_TURN_IDLE;
        return NW_OK;
    }
    if (r->busy) {
        NW_TRY(check_actions(d, nw_rank_done(d, r, own_now(d))));
        if (nw_driver_shall_stop(d)) NW_TRY(tell_machine(d, (nw_event){.kind = NW_EVENT_STOP}));
        return NW_OK;
    }
    NW_FAIL_IF(!nw_rank_is_quiescent(r), NW_E_INTERNAL, "%s waits for another rank, but there is only one",
               r->machine->ops->name);
    r->elapsed_ns = own_now(d);
    *turn = NW_TURN_OVER;
    return NW_OK;
}

static nw_status local_run(nw_driver *d, const nw_go *go)
{
    NW_TRY(local_begin(d, go));
    for (nw_turn turn = NW_TURN_MOVED; turn != NW_TURN_OVER;) {
        NW_TRY(local_turn(d, &turn));
        NW_FAIL_IF(turn == NW_TURN_IDLE, NW_E_INTERNAL, "a task is pending, and nobody is there to do it");
    }
    return NW_OK;
}

static const nw_driver_ops ops = {
    .name = "local", .run = local_run, .begin = local_begin, .turn = local_turn, .now = now};

nw_status nw_local_create(nw_driver **out, const nw_driver_options *options)
{
    return nw_driver_create(out, sizeof(local_driver), &ops, options, 1, 0, 1);
}
