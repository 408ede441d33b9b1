/*
 * none.c - a replica alone: compute, apply, compute, ... What a gradient is averaged with is nothing.
 */
#include "exchange/exchange.h"

#include <stdlib.h>

typedef struct none {
    nw_exchange base;
    bool applying;
} none;

static nw_status handle(nw_exchange *e, const nw_event *event, nw_actions *actions)
{
    none *n = (none *)e;
    switch (event->kind) {
    case NW_EVENT_COMPUTED:
        n->applying = true;
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_APPLY, .scale = 1.0f});
        return NW_OK;
    case NW_EVENT_BEGIN:
    case NW_EVENT_APPLIED:
        n->applying = false;
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COMPUTE});
        return NW_OK;
    case NW_EVENT_MESSAGE:
        return NW_FAIL(NW_E_MESSAGE, "a message came from rank %u, but replicas do not exchange anything here",
                       event->message->header->from);
    case NW_EVENT_READY:
    case NW_EVENT_TIMER:
    case NW_EVENT_GO:
    case NW_EVENT_FLUSH:
        break;
    }
    return NW_OK;
}

static bool idle(const nw_exchange *e) { return !((const none *)e)->applying; }
static void waits(const nw_exchange *e, nw_wait *wait) { (void)e, *wait = (nw_wait){.what = "nothing"}; }
static void state(nw_exchange *e, nw_exchange_state *s) { (void)e, *s = (nw_exchange_state){0}; }
static void none_free(nw_exchange *e) { free(e); }

static const nw_exchange_ops ops = {"none", handle, idle, waits, state, none_free, NULL, NULL};

nw_status nw_none_create(nw_exchange **out, const nw_exchange_options *o)
{
    NW_FAIL_IF(o->world != 1, NW_E_ARGUMENT,
               "%d replicas would train apart from each other: choose how they agree with --exchange, for example "
               "--exchange allreduce",
               o->world);
    none *n = calloc(1, sizeof *n);
    NW_FAIL_IF(!n, NW_E_MEMORY, "no memory for an exchange");
    n->base = (nw_exchange){.ops = &ops, .rank = o->rank, .world = o->world, .equal = true};
    *out = &n->base;
    return NW_OK;
}
