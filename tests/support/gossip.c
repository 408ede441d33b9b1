/* gossip.c - see gossip.h. */
#include "support/gossip.h"

#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROPOSE = 1, VALUES, BUSY, LEASE, ASK, STOP, CLOSE, QUIET, OVER };
enum { CHANNEL = NW_CHANNEL_EXCHANGE, LEASES = 2 };

gossip_settings gossip_use;
gossip_counts gossip_done;

typedef struct gossip {
    nw_machine base;
    nw_exchange_options o;
    gossip_settings use;
    int64_t now; /* of the event that is being handled */
    bool active, closed;
    bool computing, updating;
    int64_t leases[LEASES], begun; /* the first is being used, since then */
    int lease_count;
    int64_t made; /* updates of this member */
    /* a pair under way: */
    int partner;      /* -1: there is none */
    nw_message *sent; /* own parameters as they went; NULL: it is only proposed */
    nw_message *held, **last_held;
    int64_t mean, drawn, timer,
        left; /* time of a gradient; timers; the one that is set; what is left of it when quiescent */
    /* member 0: */
    int64_t until, leased;
    int quiet, from;
    const void *report;
    nw_count count;
} gossip;

/* ---- messages out ------------------------------------------------------------------------------------------------ */

static nw_status tell(gossip *g, nw_actions *actions, int to, int kind, int64_t step, const void *data, size_t bytes)
{
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, bytes, &m));
    m->header->kind = (uint8_t)kind;
    m->header->step = (uint64_t)step;
    if (bytes > 0) memcpy(m->payload, data, bytes);
    if (kind == VALUES) g->sent = nw_message_hold(m);
    nw_machine_send(&g->base, actions, CHANNEL, to, m);
    return NW_OK;
}

static nw_status tell_all(gossip *g, nw_actions *actions, int kind)
{
    for (int to = 1; to < g->base.group.count; to++) NW_TRY(tell(g, actions, to, kind, g->base.updates, NULL, 0));
    return NW_OK;
}

/* ---- the pace: member 0 counts ----------------------------------------------------------------------------------- */

static void run_over(gossip *g, int64_t updates)
{
    g->active = false;
    g->base.updates = updates;
}

static nw_status hear_quiet(gossip *g, nw_actions *actions)
{
    if (++g->quiet < g->base.group.count) return NW_OK;
    run_over(g, g->base.updates);
    return tell_all(g, actions, OVER);
}

static nw_status say_quiet(gossip *g, nw_actions *actions)
{
    if (!g->closed || g->partner >= 0) return NW_OK;
    return g->base.group.me == 0 ? hear_quiet(g, actions) : tell(g, actions, 0, QUIET, 0, NULL, 0);
}

static nw_status close_run(gossip *g, nw_actions *actions)
{
    g->closed = true;
    g->left = g->timer == NW_NO_TIMER ? -1 : g->timer > g->now ? g->timer - g->now : 0;
    g->timer = NW_NO_TIMER;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = NW_NO_TIMER});
    return say_quiet(g, actions);
}

static nw_status close_if_over(gossip *g, nw_actions *actions)
{
    if (g->closed || g->base.updates < g->leased || g->leased < g->until) return NW_OK;
    NW_TRY(tell_all(g, actions, CLOSE));
    return close_run(g, actions);
}

static nw_status lease(gossip *g, nw_actions *actions, int to)
{
    if (g->leased >= g->until) return NW_OK;
    int64_t number = g->leased++;
    if (to != 0) return tell(g, actions, to, LEASE, number, NULL, 0);
    g->leases[g->lease_count++] = number;
    return NW_OK;
}

/* Member `from` has made an update. */
static nw_status count(gossip *g, nw_actions *actions, int from, const void *report)
{
    g->from = from;
    g->report = report;
    g->count = (nw_count){.updates = ++g->base.updates, .from_count = 1, .from = &g->from, .reports = &g->report};
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &g->count});
    NW_TRY(lease(g, actions, from));
    return close_if_over(g, actions);
}

static nw_status stop(gossip *g, nw_actions *actions)
{
    if (!g->active || g->closed) return NW_OK;
    if (g->base.group.me > 0) return tell(g, actions, 0, STOP, 0, NULL, 0);
    g->until = g->leased;
    return close_if_over(g, actions);
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static void note(const gossip *g, gossip_step step, int with)
{
    if (g->use.told) g->use.told(g->base.group.me, step, with);
}

static nw_status send_values(gossip *g, nw_actions *actions)
{
    size_t floats = g->o.params->learned.floats;
    nw_actions_touch(actions, g->o.params->values, floats, false);
    actions->touched += floats * sizeof(float);
    note(g, GOSSIP_SENT, g->partner);
    return tell(g, actions, g->partner, VALUES, g->drawn, g->o.params->values, floats * sizeof(float));
}

static nw_status end_pair(gossip *g, nw_actions *actions)
{
    g->partner = -1;
    nw_message_drop(g->sent);
    g->sent = NULL;
    return say_quiet(g, actions);
}

static nw_status average(gossip *g, nw_actions *actions, const nw_message *m)
{
    size_t floats = g->o.params->learned.floats;
    float *x = g->o.params->values;
    const float *mine = (const float *)(const void *)g->sent->payload, *theirs = (const float *)(void *)m->payload;
    nw_actions_touch(actions, x, floats, true);
    actions->touched += 3 * floats * sizeof(float);
    for (size_t i = 0; i < floats; i++) x[i] -= 0.5f * (mine[i] - theirs[i]);
    note(g, GOSSIP_AVERAGED, g->partner);
    gossip_done.averaged++;
    gossip_done.amid += actions->running != NULL;
    return end_pair(g, actions);
}

static nw_status take_proposal(gossip *g, nw_actions *actions, int from)
{
    bool crosses = g->partner == from && !g->sent;
    gossip_done.crossed += crosses;
    if (!crosses && (g->partner >= 0 || g->closed)) return tell(g, actions, from, BUSY, 0, NULL, 0);
    g->partner = from;
    return send_values(g, actions);
}

/* A message of a neighbour, now or behind an update. */
static nw_status take_pair(gossip *g, nw_actions *actions, const nw_message *m, int from)
{
    const nw_header *h = m->header;
    if (h->kind == PROPOSE) return take_proposal(g, actions, from);
    bool fits = h->kind == VALUES ? h->bytes == g->o.params->learned.floats * sizeof(float) : !g->sent;
    NW_FAIL_IF(g->partner != from || !fits, NW_E_MESSAGE, "member %d sent kind %u, but no pair is under way with it",
               from, h->kind);
    gossip_done.busy += h->kind == BUSY;
    if (h->kind == BUSY) return end_pair(g, actions);
    if (!g->sent) NW_TRY(send_values(g, actions));
    return average(g, actions, m);
}

static nw_status take_held(gossip *g, nw_actions *actions)
{
    nw_status status = NW_OK;
    for (nw_message *m; (m = g->held);) {
        g->held = m->next;
        if (status == NW_OK) status = take_pair(g, actions, m, nw_group_find(&g->base.group, m->header->from));
        nw_message_drop(m);
    }
    return status;
}

static void hold(gossip *g, nw_message *m)
{
    if (!g->held) g->last_held = &g->held;
    m->next = NULL;
    *g->last_held = nw_message_hold(m);
    g->last_held = &m->next;
    gossip_done.held++;
}

/* ---- timers ------------------------------------------------------------------------------------------------------ */

/* By comparisons alone (von Neumann 1951), since libraries differ in logarithms. */
static double exponential(nw_rng *rng)
{
    for (double whole = 0;; whole++) {
        float first = nw_rng_uniform(rng), last = first, next;
        int falls = 1;
        for (; (next = nw_rng_uniform(rng)) < last; last = next) falls++;
        if (falls % 2) return whole + (double)first;
    }
}

/* A member that has computed, and may propose, always has a timer. */
static void set_timer(gossip *g, nw_actions *actions)
{
    if (g->timer != NW_NO_TIMER || g->closed || g->mean == 0 || g->use.rate <= 0 || g->base.group.count == 1) return;
    nw_rng rng = nw_rng_make(g->use.seed, NW_PURPOSE_TEST, (uint64_t)g->drawn, (uint32_t)g->base.group.me);
    if (g->left < 0) g->left = (int64_t)(exponential(&rng) * (double)g->mean / g->use.rate);
    g->timer = g->now + g->left;
    g->left = -1;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = g->timer});
}

static nw_status rang(gossip *g, nw_actions *actions)
{
    int count = g->base.group.count, me = g->base.group.me;
    nw_rng rng = nw_rng_make(g->use.seed + 1, NW_PURPOSE_TEST, (uint64_t)g->drawn++, (uint32_t)me);
    g->timer = NW_NO_TIMER;
    set_timer(g, actions);
    if (g->partner >= 0 || g->closed) return NW_OK;
    g->partner = (me + (nw_rng_below(&rng, 2) ? 1 : count - 1)) % count;
    return tell(g, actions, g->partner, PROPOSE, g->drawn, NULL, 0);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static void go_on(gossip *g, nw_actions *actions)
{
    if (g->computing || g->lease_count == 0) return;
    g->computing = true;
    g->begun = g->now;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = g->made});
}

static nw_status gradient_done(gossip *g, nw_actions *actions)
{
    const nw_params *p = g->o.params;
    int64_t took = g->now > g->begun ? g->now - g->begun : 1;
    g->mean = g->mean > 0 ? (7 * g->mean + took) / 8 : took;
    if (g->mean == 0) g->mean = 1;
    set_timer(g, actions);
    g->updating = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = g->made,
                                       .clock = (g->leases[0] + 1) * g->o.accumulation - 1,
                                       .values = p->values,
                                       .gradient = p->gradients,
                                       .count = p->learned.floats,
                                       .scale = 1});
    return NW_OK;
}

static nw_status update_done(gossip *g, nw_actions *actions)
{
    g->computing = g->updating = false;
    g->made++;
    memmove(g->leases, g->leases + 1, (size_t)--g->lease_count * sizeof g->leases[0]);
    NW_TRY(take_held(g, actions));
    if (g->base.group.me == 0) return count(g, actions, 0, g->o.report);
    return tell(g, actions, 0, ASK, g->made, g->o.report, g->o.report_bytes);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static nw_status go(gossip *g, nw_actions *actions, const nw_go *go)
{
    g->active = true;
    g->closed = false;
    g->until = go->until;
    g->leased = g->base.updates;
    g->quiet = 0;
    set_timer(g, actions);
    if (g->base.group.me > 0) return NW_OK;
    for (int i = 0; i < LEASES; i++)
        for (int to = 0; to < g->base.group.count; to++) NW_TRY(lease(g, actions, to));
    return close_if_over(g, actions);
}

static nw_status take_message(gossip *g, nw_actions *actions, nw_message *m)
{
    const nw_header *h = m->header;
    int from;
    NW_TRY(nw_machine_sender(&g->base, m, &from));
    bool counts = h->kind >= ASK && h->kind != CLOSE && h->kind != OVER;
    NW_FAIL_IF(!g->active || h->kind > OVER || (h->kind > BUSY && (counts ? g->base.group.me : from) != 0) ||
                   (h->kind == LEASE && g->lease_count == LEASES),
               NW_E_MESSAGE, "member %d sent kind %u to member %d, which expects none", from, h->kind,
               g->base.group.me);
    switch (h->kind) {
    case LEASE:
        g->leases[g->lease_count++] = (int64_t)h->step;
        return NW_OK;
    case ASK:
        return count(g, actions, from, m->payload);
    case STOP:
        return stop(g, actions);
    case CLOSE:
        return close_run(g, actions);
    case QUIET:
        return hear_quiet(g, actions);
    case OVER:
        run_over(g, (int64_t)h->step);
        return NW_OK;
    default:
        if (!g->updating) return take_pair(g, actions, m, from);
        hold(g, m);
        return NW_OK;
    }
}

static nw_status take_event(gossip *g, const nw_event *event, nw_actions *actions)
{
    switch (event->kind) {
    case NW_EVENT_GO:
        return go(g, actions, event->go);
    case NW_EVENT_STOP:
        return stop(g, actions);
    case NW_EVENT_MESSAGE:
        return take_message(g, actions, event->message);
    case NW_EVENT_TIMER:
        return rang(g, actions);
    case NW_EVENT_DONE:
        return event->task->kind == NW_TASK_GRADIENT ? gradient_done(g, actions) : update_done(g, actions);
    default:
        return NW_OK;
    }
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    gossip *g = (gossip *)m;
    g->now = event->now_ns;
    NW_TRY(take_event(g, event, actions));
    go_on(g, actions);
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m) { return !((const gossip *)m)->active; }

static void waits(const nw_machine *m, nw_wait *wait)
{
    const gossip *g = (const gossip *)m;
    for (int i = 0; i < m->group.count; i++)
        if (i != m->group.me && (i == g->partner || m->group.me == 0 || i == 0)) nw_wait_add(wait, &m->group, i);
    snprintf(wait->what, sizeof wait->what, "leases, halves of pairs or the end of the run, after %" PRId64 " updates",
             g->made);
}

static void state(nw_machine *m, nw_state *s)
{
    gossip *g = (gossip *)m;
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "made", NW_STATE_LIKE, &g->made);
    nw_state_integer(s, "gradient_ns", NW_STATE_LIKE, &g->mean);
    nw_state_integer(s, "timers", NW_STATE_LIKE, &g->drawn);
    nw_state_integer(s, "timer_left_ns", NW_STATE_LIKE, &g->left);
}

static void release(nw_machine *m)
{
    gossip *g = (gossip *)m;
    for (nw_message *held; (held = g->held);) {
        g->held = held->next;
        nw_message_drop(held);
    }
    nw_message_drop(g->sent);
    free(g);
}

nw_status gossip_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"gossip", handle, is_quiescent, waits, state, release, NULL};
    gossip *g = calloc(1, sizeof *g);
    NW_FAIL_IF(!g, NW_E_MEMORY, "no memory for an exchange");
    g->base = (nw_machine){.ops = &ops, .group = o->group, .moves = true};
    g->o = *o;
    g->use = gossip_use;
    g->partner = -1;
    g->timer = NW_NO_TIMER;
    g->left = -1;
    *out = &g->base;
    return NW_OK;
}
