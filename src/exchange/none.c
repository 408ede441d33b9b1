/*
 * none.c - a single replica: gradient, update, gradient, ... Nothing is exchanged.
 */
#include "exchange/exchange.h"

#include <stdlib.h>

typedef struct none {
    nw_machine base;
    const nw_params *params;
    const void *report;
    nw_count count;
    nw_go go;
    bool asked; /* a task is in progress */
} none;

/* Starts the next gradient, if one is due. */
static void go_on(none *n, nw_actions *actions)
{
    if (n->asked || n->base.updates >= n->go.until) return;
    n->asked = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = n->base.updates});
}

static void update(const none *n, nw_actions *actions, int64_t clock)
{
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = n->base.updates,
                                       .clock = clock,
                                       .values = n->params->values,
                                       .gradient = n->params->gradients,
                                       .count = n->params->learned.floats,
                                       .scale = 1.0f});
}

static void count_update(none *n, nw_actions *actions, int64_t clock)
{
    static const int me = 0;
    n->count =
        (nw_count){.updates = ++n->base.updates, .clock = clock, .from_count = 1, .from = &me, .reports = &n->report};
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &n->count});
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    none *n = (none *)m;
    switch (event->kind) {
    case NW_EVENT_GO:
        n->go = *event->go;
        break;
    case NW_EVENT_STOP:
        n->go.until = n->base.updates + n->asked;
        break;
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_GRADIENT && event->task->completes) {
            update(n, actions, event->task->clock);
            return NW_OK;
        }
        n->asked = false;
        if (event->task->kind == NW_TASK_UPDATE)
            count_update(n, actions, event->task->clock);
        else
            n->go.until = n->base.updates;
        break;
    case NW_EVENT_MESSAGE:
        return NW_FAIL(NW_E_MESSAGE,
                       "rank %u sent a message, but --exchange none expects none; give all ranks the same options",
                       event->message->header->from);
    default:
        return NW_OK;
    }
    go_on(n, actions);
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m) { return !((const none *)m)->asked; }
static void waits(const nw_machine *m, nw_wait *wait) { (void)m, *wait = (nw_wait){.what = "nothing"}; }
static void state(nw_machine *m, nw_state *s) { nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates); }
static void none_free(nw_machine *m) { free(m); }

static const nw_machine_ops ops = {"none", handle, is_quiescent, waits, state, none_free, NULL};

nw_status nw_none_create(nw_machine **out, const nw_exchange_options *o)
{
    NW_FAIL_IF(o->group.count != 1, NW_E_ARGUMENT,
               "%d replicas would train without each other; choose how they agree, for example --exchange allreduce",
               o->group.count);
    none *n = calloc(1, sizeof *n);
    NW_FAIL_IF(!n, NW_E_MEMORY, "no memory for an exchange");
    n->base = (nw_machine){.ops = &ops, .group = o->group, .equal = true, .lockstep = true};
    n->params = o->params;
    n->report = o->report;
    *out = &n->base;
    return NW_OK;
}
