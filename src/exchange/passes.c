/*
 * passes.c - the pipeline of a rank that has all stages: a gradient is `accumulation` passes, forward and backward, one
 * after the other.
 *
 * It stands between the exchange and the driver, hears every event first and hands on what concerns the exchange: of a
 * gradient's passes only the last one's FINAL, and one DONE for the gradient. A gradient that is asked for becomes
 * passes here.
 *
 * Where ranks go in lockstep, GO says how many batches this rank computes in the run. If these are no multiple of
 * `accumulation` the exchange is told to go one update further, so that it begins one gradient more, and is told when
 * the batches are used up that it is not complete; the next run goes on with it.
 */
#include "exchange/exchange.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct passes {
    nw_machine base;
    nw_machine_ops ops; /* under the exchange's name */
    nw_machine *exchange;
    const nw_params *params;
    int64_t accumulation;
    int64_t pending;  /* batches in the gradient that is there and not complete */
    int64_t left;     /* batches of this run that have not been begun */
    nw_task gradient; /* that was asked for */
    bool asked;
} passes;

static void pass(passes *p, nw_actions *actions)
{
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_PASS,
                                       .number = p->gradient.number,
                                       .forward = true,
                                       .backward = true,
                                       .adds = p->pending > 0,
                                       .completes = p->pending + 1 == p->accumulation,
                                       .copy = p->exchange->moves,
                                       .values = p->params->values,
                                       .gradient = p->params->gradients,
                                       .count = p->params->learned.floats});
    if (p->left != INT64_MAX) p->left--;
}

/* Tells the exchange, and makes passes of a gradient that it asks for. */
static nw_status tell_exchange(passes *p, const nw_event *event, nw_actions *actions)
{
    int kept = actions->count, from = kept;
    NW_TRY(p->exchange->ops->handle(p->exchange, event, actions));
    bool begins = false;
    for (int i = from; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_TASK && a->task.kind == NW_TASK_GRADIENT) {
            NW_FAIL_IF(p->asked || begins || p->left == 0, NW_E_INTERNAL,
                       "%s asks for gradient %" PRId64 " while another is under way, or behind the last of the run",
                       p->exchange->ops->name, a->task.number);
            p->gradient = a->task;
            begins = true;
            pass(p, actions);                                    /* behind all others, */
            actions->at[kept++] = actions->at[--actions->count]; /* and to its place in the order */
        } else {
            actions->at[kept++] = *a;
        }
    }
    actions->count = kept;
    p->asked |= begins;
    p->base.updates = p->exchange->updates;
    return NW_OK;
}

static nw_status go(passes *p, const nw_event *event, nw_actions *actions)
{
    nw_go g = *event->go;
    nw_event e = *event;
    p->left = g.batches;
    g.until += g.batches != INT64_MAX && (p->pending + g.batches) % p->accumulation > 0;
    e.go = &g;
    return tell_exchange(p, &e, actions);
}

/* A pass is done: the gradient is, or its next pass is due, or the batches of the run are used up. */
static nw_status pass_done(passes *p, const nw_event *event, nw_actions *actions)
{
    bool complete = event->task->completes;
    p->pending = complete ? 0 : p->pending + 1;
    if (!complete && p->left > 0) {
        pass(p, actions);
        return NW_OK;
    }
    nw_event e = *event;
    nw_task done = p->gradient;
    done.clock = event->task->clock;
    done.completes = complete;
    e.task = &done;
    p->asked = false;
    return tell_exchange(p, &e, actions);
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    passes *p = (passes *)m;
    switch (event->kind) {
    case NW_EVENT_GO:
        return go(p, event, actions);
    case NW_EVENT_DONE:
        return event->task->kind == NW_TASK_PASS ? pass_done(p, event, actions) : tell_exchange(p, event, actions);
    case NW_EVENT_FINAL: /* announced by the pass that completes a gradient only */
    case NW_EVENT_STOP:
    case NW_EVENT_TIMER:
        return tell_exchange(p, event, actions);
    case NW_EVENT_MESSAGE:
        NW_FAIL_IF(event->message->header->channel < NW_CHANNEL_EXCHANGE, NW_E_MESSAGE,
                   "rank %u sent a message of a pipeline to a rank that has all stages; do all ranks have the same "
                   "options?",
                   event->message->header->from);
        return tell_exchange(p, event, actions);
    default:
        return NW_FAIL(NW_E_INTERNAL, "a pass through all stages sends nothing up or down");
    }
}

static bool is_quiescent(const nw_machine *m)
{
    const passes *p = (const passes *)m;
    return !p->asked && p->exchange->ops->quiescent(p->exchange);
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const passes *p = (const passes *)m;
    p->exchange->ops->waits(p->exchange, wait);
}

static void state(nw_machine *m, nw_state *s)
{
    passes *p = (passes *)m;
    nw_state_integer(s, "pending", NW_STATE_OWN, &p->pending);
    p->exchange->ops->state(p->exchange, s);
}

static nw_status loaded(nw_machine *m)
{
    passes *p = (passes *)m;
    NW_FAIL_IF(p->pending < 0 || p->pending >= p->accumulation, NW_E_FILE,
               "the checkpoint holds a gradient of %" PRId64 " batches that is not complete, but %" PRId64
               " make one; give the same --accumulation-steps",
               p->pending, p->accumulation);
    if (p->exchange->ops->loaded) NW_TRY(p->exchange->ops->loaded(p->exchange));
    p->base.updates = p->exchange->updates;
    return NW_OK;
}

static void passes_free(nw_machine *m)
{
    nw_exchange_free(((passes *)m)->exchange);
    free(m);
}

nw_status nw_passes_create(nw_machine **out, nw_machine *exchange, const nw_params *params, int accumulation)
{
    passes *p = calloc(1, sizeof *p);
    *out = NULL;
    NW_FAIL_IF(!p, NW_E_MEMORY, "no memory for a pipeline");
    p->base = *exchange; /* what the driver and the run may know of it */
    p->ops = (nw_machine_ops){exchange->ops->name, handle, is_quiescent, waits, state, passes_free, loaded};
    p->base.ops = &p->ops;
    p->exchange = exchange;
    p->params = params;
    p->accumulation = accumulation > 0 ? accumulation : 1;
    *out = &p->base;
    return NW_OK;
}
