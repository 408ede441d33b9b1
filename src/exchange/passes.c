/*
 * passes.c - the pipeline of a rank that has all stages: a gradient is `accumulation` passes, forward and backward, one
 * after the other.
 *
 * It stands between the exchange and the driver. It turns each gradient that the exchange requests into passes. It
 * receives every event first, and passes on those that concern the exchange: FINAL of a gradient's last pass only, and
 * one DONE for the whole gradient.
 *
 * If ranks run in lockstep, GO says how many batches this rank computes in the run. If that is not a multiple of
 * `accumulation`, the exchange is told to go one update further, so that it begins one more gradient. When the batches
 * are used up, it is told that this gradient is incomplete; the next run continues it.
 */
#include "exchange/exchange.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct passes {
    nw_machine base;
    nw_machine_ops ops; /* with the exchange's name */
    nw_machine *exchange;
    const nw_params *params;
    int64_t accumulation;
    int64_t pending;  /* batches in the incomplete gradient */
    int64_t left;     /* batches of this run that have not begun */
    nw_task gradient; /* the gradient that was requested */
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

/* Passes an event to the exchange, and replaces a gradient that it requests by its first pass. */
static nw_status tell_exchange(passes *p, const nw_event *event, nw_actions *actions)
{
    int kept = actions->count, from = kept;
    NW_TRY(p->exchange->ops->handle(p->exchange, event, actions));
    bool begins = false;
    for (int i = from; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_TASK && a->task.kind == NW_TASK_GRADIENT) {
            NW_FAIL_IF(p->asked || begins || p->left == 0, NW_E_INTERNAL,
                       "%s requests gradient %" PRId64 " while another is in progress, or after the last of the run",
                       p->exchange->ops->name, a->task.number);
            p->gradient = a->task;
            begins = true;
            pass(p, actions);                                    /* appends the action, */
            actions->at[kept++] = actions->at[--actions->count]; /* which moves to the place of the request */
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

/* A pass is done: starts the gradient's next pass, or reports that the gradient is done (or that batches are used
 * up). */
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
    case NW_EVENT_FINAL: /* comes only from the pass that completes a gradient */
    case NW_EVENT_STOP:
    case NW_EVENT_TIMER:
        return tell_exchange(p, event, actions);
    case NW_EVENT_MESSAGE:
        NW_FAIL_IF(
            event->message->header->channel < NW_CHANNEL_EXCHANGE, NW_E_MESSAGE,
            "rank %u sent a message of a pipeline to a rank that has all stages; give all ranks the same options",
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
               "the checkpoint holds an incomplete gradient of %" PRId64
               " batches, but --accumulation-steps is %" PRId64 "; give the value of the run that wrote the checkpoint",
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
    p->base = *exchange; /* the properties that the driver and the run read */
    p->ops = (nw_machine_ops){exchange->ops->name, handle, is_quiescent, waits, state, passes_free, loaded};
    p->base.ops = &p->ops;
    p->exchange = exchange;
    p->params = params;
    p->accumulation = accumulation > 0 ? accumulation : 1;
    *out = &p->base;
    return NW_OK;
}
