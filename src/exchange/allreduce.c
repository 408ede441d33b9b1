/*
 * allreduce.c - all replicas apply the mean of all gradients, synchronously.
 *
 * As soon as a part of the gradient is final it goes into a reduction (reduce.h), whose bits depend on the gradients
 * and the number of members alone. Where the codec loses nothing and there is no delay, sums are made in the gradient
 * itself, and the factor 1 / N is left to the update.
 *
 * Delay 0: step t computes g_t at w_t and applies its mean before step t + 1 begins. Delay 1: step t computes g_t at
 * w_t while the mean of g_(t-1) travels, then applies that one: w_(t+1) = w_t - U(mean g_(t-1)). The exchange has a
 * whole step of time. A run that drains applies the last one too, and so does delay 0 where a checkpoint of delay 1
 * brings one.
 *
 * Stopping. A member that is asked to stop before it begins gradient t says so in its contributions to t, and owners
 * pass it on with the mean: the run ends after t + 1 + delay gradients. All know in time, since none begins that
 * gradient before it has all means of t.
 *
 * How far another rank may be ahead: while this rank lacks a mean of step c, from one slow link, it has contributed
 * steps up to c + delay, so others may have all means of these, and begin step c + 2 delay + 1. So there are 2 (delay +
 * 1) rounds under way at most.
 */
#include "exchange/exchange.h"
#include "exchange/reduce.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct allreduce {
    nw_machine base;
    const nw_params *params;
    nw_layout layout;
    nw_reduce *reduce;
    int delay;
    bool in_place;       /* sums are made in the gradient */
    float *delayed[2];   /* delay 1: means of even and of odd steps */
    float *carried;      /* delay 0: a mean that a checkpoint with delay 1 held back, until it is applied */
    int64_t step;        /* gradients computed */
    int64_t applied;     /* updates made */
    int64_t clocks[2];   /* of even and of odd steps: the batch of their learning rate */
    int64_t held, clock; /* for checkpoints: means that are not applied, and the batch of their learning rate */
    nw_go go;
    bool asked; /* for the next gradient */
    bool applying;
    const void *report;
    nw_count count;
} allreduce;

/* The run ends earlier than it should, and goes on from there later as if it had not. */
static void stop_at(allreduce *a, int64_t until)
{
    if (until >= a->go.until) return;
    a->go.until = until;
    a->go.drain = false;
    nw_reduce_say(a->reduce, until);
}

static nw_status take_message(allreduce *a, nw_actions *actions, nw_message *m)
{
    int from;
    NW_TRY(nw_machine_sender(&a->base, m, &from));
    if (m->header->until > 0) stop_at(a, (int64_t)m->header->step + m->header->until); /* a mean that follows says so */
    return nw_reduce_take(a->reduce, actions, m, from);
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

/* What is applied next, if not the gradient vector itself. */
static float *held_back(const allreduce *a) { return a->delay ? a->delayed[a->applied & 1] : a->carried; }

/* Gradients that may stay without their update: those that a delay holds back, unless the run drains and is at its
 * end. */
static int64_t may_wait(const allreduce *a)
{
    bool at_end = a->step >= a->go.until && !a->asked;
    return at_end && a->go.drain ? 0 : a->delay;
}

static void update(allreduce *a, nw_actions *actions)
{
    float *held = held_back(a);
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = a->applied,
                                       .clock = a->clocks[a->applied & 1],
                                       .values = a->params->values,
                                       .gradient = held ? held : a->params->gradients,
                                       .count = a->params->learned.floats,
                                       .scale = a->in_place && !a->carried ? 1.0f / (float)a->base.group.count : 1.0f});
    a->applying = true;
}

/* All that is due for the gradients so far is done. */
static void count_step(allreduce *a, nw_actions *actions)
{
    static const int first = 0;
    if (a->base.updates == a->step) return;
    a->count = (nw_count){.updates = a->base.updates = a->step,
                          .clock = a->clocks[(a->step - 1) & 1],
                          .from_count = 1,
                          .from = &first,
                          .reports = &a->report};
    if (a->base.group.me == 0) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &a->count});
}

/* What comes next, if anything can. */
static void go_on(allreduce *a, nw_actions *actions)
{
    if (a->applying || a->asked) return;
    if (a->step - a->applied > may_wait(a)) {
        if (nw_reduce_completed(a->reduce) > a->applied) update(a, actions);
        return;
    }
    count_step(a, actions);
    if (a->step >= a->go.until) return;
    a->asked = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = a->step});
}

static nw_status gradient_done(allreduce *a, nw_actions *actions, const nw_task *task)
{
    a->asked = false;
    if (!task->completes) { /* the batches of the run are used up */
        a->go.until = a->step;
        return NW_OK;
    }
    NW_TRY(nw_reduce_give(a->reduce, actions, a->step, task->clock, 0, a->params->gradients));
    a->clocks[a->step & 1] = task->clock;
    a->step++;
    return NW_OK;
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    allreduce *a = (allreduce *)m;
    switch (event->kind) {
    case NW_EVENT_FINAL:
        return nw_reduce_give(a->reduce, actions, a->step, event->task->clock, event->first, a->params->gradients);
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_GRADIENT) {
            NW_TRY(gradient_done(a, actions, event->task));
            break;
        }
        a->applied++;
        a->applying = false;
        free(a->carried);
        a->carried = NULL;
        break;
    case NW_EVENT_MESSAGE:
        NW_TRY(take_message(a, actions, event->message));
        break;
    case NW_EVENT_GO:
        a->go = *event->go;
        nw_reduce_say(a->reduce, 0);
        break;
    case NW_EVENT_STOP:
        stop_at(a, a->step + a->asked + (a->base.group.count > 1 ? 1 + a->delay : 0));
        break;
    default:
        return NW_OK;
    }
    go_on(a, actions);
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m)
{
    const allreduce *a = (const allreduce *)m;
    return nw_reduce_completed(a->reduce) == a->step && !a->applying && !a->asked &&
           a->step - a->applied <= may_wait(a);
}

static void waits(const nw_machine *m, nw_wait *wait) { nw_reduce_waits(((const allreduce *)m)->reduce, wait); }

static void state(nw_machine *m, nw_state *s)
{
    allreduce *a = (allreduce *)m;
    a->held = a->step - a->applied;
    a->clock = a->clocks[a->applied & 1];
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "held", NW_STATE_KEPT, &a->held);
    nw_state_integer(s, "clock", NW_STATE_KEPT, &a->clock);
    if (a->held > 0 && held_back(a))
        nw_state_vector(s, "delayed", NW_STATE_KEPT, held_back(a), 0, a->params->learned.floats);
    nw_reduce_state(a->reduce, s);
}

static nw_status loaded(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    NW_FAIL_IF(m->updates < a->held || m->updates > INT64_MAX / 2 || a->held < 0 || a->held > 1 || a->clock < 0,
               NW_E_FILE,
               "the checkpoint holds an allreduce after %" PRId64 " gradients, %" PRId64
               " of them not applied, which is impossible; use an earlier checkpoint",
               m->updates, a->held);
    a->step = m->updates;
    nw_reduce_begin_at(a->reduce, a->step);
    a->applied = a->step - a->held;
    a->clocks[a->applied & 1] = a->clock;
    if (a->applied == a->step || a->delay) return NW_OK;
    NW_NEW(a->carried, a->params->learned.floats, "a mean of %zu parameters", a->params->learned.floats);
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void allreduce_free(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    nw_reduce_free(a->reduce);
    nw_layout_free(&a->layout);
    free(a->delayed[0]);
    free(a->delayed[1]);
    free(a->carried);
    free(a);
}

static bool is_exact(const nw_layout *l)
{
    bool exact = true;
    for (int b = 0; b < l->count; b++) exact &= l->at[b].block.codec->exact;
    return exact;
}

static nw_status make_allreduce(allreduce *a, const nw_exchange_options *o)
{
    size_t floats = o->params->learned.floats;
    nw_layout_options layout = o->layout;
    layout.segments = &o->params->learned;
    layout.cuts = o->group.count;
    NW_TRY(nw_layout_make(&a->layout, &layout));
    a->in_place = is_exact(&a->layout) && a->delay == 0;
    nw_reduce_options r = {.machine = &a->base,
                           .channel = NW_CHANNEL_EXCHANGE,
                           .layout = &a->layout,
                           .memory = o->memory,
                           .pool = o->pool,
                           .slots = 2 * (a->delay + 1),
                           .in_place = a->in_place,
                           .targets = {o->params->gradients, o->params->gradients}};
    for (int i = 0; a->delay && i < 2; i++) {
        a->delayed[i] = r.targets[i] = calloc(floats + 1, sizeof(float));
        NW_FAIL_IF(!a->delayed[i], NW_E_MEMORY, "no memory for a mean of %zu parameters", floats);
    }
    return nw_reduce_create(&a->reduce, &r);
}

nw_status nw_allreduce_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"allreduce", handle, is_quiescent, waits, state, allreduce_free, loaded};
    NW_FAIL_IF(o->delay < 0 || o->delay > 1, NW_E_ARGUMENT, "allreduce can delay updates by 0 or 1 steps, not by %d",
               o->delay);
    allreduce *a = calloc(1, sizeof *a);
    NW_FAIL_IF(!a, NW_E_MEMORY, "no memory for an exchange");
    a->base = (nw_machine){.ops = &ops, .group = o->group, .equal = true, .lockstep = true};
    a->report = o->report;
    a->params = o->params;
    a->delay = o->delay;
    NW_TRY_OR(make_allreduce(a, o), allreduce_free(&a->base));
    *out = &a->base;
    return NW_OK;
}
