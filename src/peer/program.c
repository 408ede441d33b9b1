/*
 * program.c - the pipeline of a rank whose program computes gradients: a gradient is one pass. Like exchange/passes.c it
 * stands between exchange and driver. Its own part is the end of a run whose length only the programs know: each ends its
 * last pass without a gradient (nw_task.ends).
 *
 *   in lockstep        all programs do so at the same count: the exchange hears that this gradient is not complete
 *   else, with a       the first that does so stops the run for all
 *   number of updates
 *   else               ranks go on exchanging until all programs have done so:
 *                          FINISHED   member -> 0   its program computes no more; its last gradient is not reported yet
 *                          ALL        0 -> member   this is true of all members
 *                      Then the exchange hears STOP, and the gradients that it still requests are done at once, empty.
 */
#include "peer/peer.h"

#include <inttypes.h>

enum { FINISHED = 1, ALL };

typedef struct program {
    nw_machine base;
    nw_machine_ops ops; /* under the exchange's name */
    nw_machine *exchange;
    const nw_params *params;
    nw_task gradient; /* that was asked for */
    bool asked;
    bool held; /* it is done, and the exchange is not told yet */
    bool said; /* FINISHED */
    bool all;
    bool limited; /* the run has so many updates */
    int finished; /* member 0: programs */
} program;

/* ---- the exchange ------------------------------------------------------------------------- */

static nw_task pass_of(const program *p)
{
    return (nw_task){.kind = NW_TASK_PASS,
                     .number = p->gradient.number,
                     .forward = true,
                     .backward = true,
                     .completes = true,
                     .copy = p->exchange->moves,
                     .values = p->params->values,
                     .gradient = p->params->gradients,
                     .count = p->params->learned.floats};
}

static nw_status tell_exchange(program *p, const nw_event *event, nw_actions *actions)
{
    int first = actions->count;
    NW_TRY(p->exchange->ops->handle(p->exchange, event, actions));
    p->base.updates = p->exchange->updates;
    for (int i = first; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind != NW_ACTION_TASK || a->task.kind != NW_TASK_GRADIENT) continue;
        NW_FAIL_IF(p->asked, NW_E_INTERNAL, "%s asks for gradient %" PRId64 " while another is under way",
                   p->exchange->ops->name, a->task.number);
        p->asked = true;
        p->gradient = a->task;
        a->task = pass_of(p);
    }
    return NW_OK;
}

static nw_status tell_gradient(program *p, const nw_event *event, nw_actions *actions, bool complete)
{
    nw_task done = p->gradient;
    done.clock = event->kind == NW_EVENT_DONE ? event->task->clock : p->gradient.clock;
    done.completes = complete;
    p->asked = false;
    return tell_exchange(p, &(nw_event){.kind = NW_EVENT_DONE, .now_ns = event->now_ns, .task = &done}, actions);
}

/* ---- the end ------------------------------------------------------------------------------------------------------ */

static nw_status tell(program *p, nw_actions *actions, int to, int kind)
{
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = (uint8_t)kind;
    nw_machine_send(&p->base, actions, NW_CHANNEL_UP, to, m);
    return NW_OK;
}

/* All programs have finished. */
static nw_status stop(program *p, const nw_event *event, nw_actions *actions)
{
    p->all = true;
    NW_TRY(tell_exchange(p, &(nw_event){.kind = NW_EVENT_STOP, .now_ns = event->now_ns}, actions));
    if (!p->held) return NW_OK;
    p->held = false;
    return tell_gradient(p, event, actions, true);
}

static nw_status count_finished(program *p, const nw_event *event, nw_actions *actions)
{
    if (++p->finished < p->base.group.count) return NW_OK;
    for (int to = 1; to < p->base.group.count; to++) NW_TRY(tell(p, actions, to, ALL));
    return stop(p, event, actions);
}

/* This program computes no more. */
static nw_status end(program *p, const nw_event *event, nw_actions *actions)
{
    if (p->exchange->lockstep) return tell_gradient(p, event, actions, false);
    if (p->all) return tell_gradient(p, event, actions, true);
    p->held = true;
    p->gradient.clock = event->task->clock;
    if (p->limited) return stop(p, event, actions);
    if (p->said) return NW_OK;
    p->said = true;
    return p->base.group.me == 0 ? count_finished(p, event, actions) : tell(p, actions, 0, FINISHED);
}

static nw_status take_message(program *p, const nw_event *event, nw_actions *actions)
{
    const nw_header *h = event->message->header;
    int from;
    NW_TRY(nw_machine_sender(&p->base, event->message, &from));
    bool fits = h->kind == FINISHED ? p->base.group.me == 0 : h->kind == ALL && from == 0;
    NW_FAIL_IF(!fits || p->all, NW_E_MESSAGE,
               "rank %u says that its program computes no more, which this rank does not expect", h->from);
    return h->kind == FINISHED ? count_finished(p, event, actions) : stop(p, event, actions);
}

/* ---- the machine -------------------------------------------------------------------------------------------------- */

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    program *p = (program *)m;
    switch (event->kind) {
    case NW_EVENT_GO:
        p->held = p->said = p->all = false;
        p->limited = event->go->until < NW_PEER_ENDLESS;
        p->finished = 0;
        return tell_exchange(p, event, actions);
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_UPDATE) return tell_exchange(p, event, actions);
        return event->task->ends ? end(p, event, actions) : tell_gradient(p, event, actions, true);
    case NW_EVENT_MESSAGE:
        if (event->message->header->channel < NW_CHANNEL_EXCHANGE) return take_message(p, event, actions);
        return tell_exchange(p, event, actions);
    default:
        return tell_exchange(p, event, actions);
    }
}

static bool is_quiescent(const nw_machine *m)
{
    const program *p = (const program *)m;
    return !p->asked && p->exchange->ops->quiescent(p->exchange);
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const program *p = (const program *)m;
    p->exchange->ops->waits(p->exchange, wait);
}

static void state(nw_machine *m, nw_state *s)
{
    const program *p = (const program *)m;
    p->exchange->ops->state(p->exchange, s);
}

static void program_free(nw_machine *m)
{
    nw_exchange_free(((program *)m)->exchange);
    free(m);
}

nw_status nw_program_create(nw_machine **out, nw_machine *exchange, const nw_params *params)
{
    program *p = calloc(1, sizeof *p);
    *out = NULL;
    NW_FAIL_IF(!p, NW_E_MEMORY, "no memory for a pipeline");
    p->base = *exchange; /* what the driver may know of it */
    p->ops = (nw_machine_ops){.name = exchange->ops->name,
                              .handle = handle,
                              .quiescent = is_quiescent,
                              .waits = waits,
                              .state = state,
                              .free = program_free};
    p->base.ops = &p->ops;
    p->exchange = exchange;
    p->params = params;
    *out = &p->base;
    return NW_OK;
}
