/*
 * gossip.c - members that update their own parameters at their own pace, and average them in pairs while they compute.
 * The state machine: events, tasks, what is saved. gossip_private.h lists the messages, docs/gossip.md tells users.
 *
 * One gradient after the other, each at the parameters that were there when it began (a pass reads a copy, machine.h,
 * `moves`); then an update of x and, with continuous momentum, of x~ by the same increment. A pair that meets meanwhile
 * moves both members by what they sent to each other (gossip_mix.h), in the middle of a pass or between tasks; during an
 * update it waits. So
 *
 *   sum of x over members, and that of x~     are changed by updates alone: what one gains by a pair the other loses
 *   sum of x + x~                             is not changed by mixing
 *
 * Times in the arithmetic are of the member's own clock (machine.h), in units of its mean time for a gradient with its
 * update. Before the first of these it mixes nothing and asks for nothing. Time between runs counts for nothing.
 *
 * Messages out at a time, at most: to any member the buckets of one pair, one proposal or answer, and those of one mean;
 * to member 0 also as many reports as it may hold leases, and the answer to a PING; to a member that has joined the buckets
 * of x and x~ besides, and of member 0 what it tells of changes.
 */
#include "gossip/gossip_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_tell(gossip *g, nw_actions *actions, int to, int kind, int64_t step, int64_t until)
{
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = (uint8_t)kind;
    m->header->step = (uint64_t)step;
    m->header->until = (uint32_t)until;
    m->header->bucket = UINT32_MAX; /* it is about no range */
    nw_machine_send(&g->base, actions, CHANNEL, to, m);
    return NW_OK;
}

nw_status nw_gossip_tell_all(gossip *g, nw_actions *actions, int kind, int64_t step)
{
    for (int to = 0; to < g->base.group.count; to++)
        if (to != g->base.group.me && !is_away(g, to)) NW_TRY(nw_gossip_tell(g, actions, to, kind, step, 0));
    return NW_OK;
}

void nw_gossip_keep(mail *m, nw_message *message)
{
    if (!m->first) m->last = &m->first;
    message->next = NULL;
    *m->last = nw_message_hold(message);
    m->last = &message->next;
}

nw_message *nw_gossip_take_first(mail *m)
{
    nw_message *message = m->first;
    if (message) m->first = message->next;
    return message;
}

void nw_gossip_forget(mail *m)
{
    for (nw_message *message; (message = nw_gossip_take_first(m));) nw_message_drop(message);
}

void nw_gossip_forget_from(const gossip *g, mail *m, int member)
{
    mail stays = {0};
    for (nw_message *message; (message = nw_gossip_take_first(m)); nw_message_drop(message))
        if (message->header->from != g->base.group.ranks[member]) nw_gossip_keep(&stays, message);
    *m = stays;
}

/* What is said to member 0 as the one that counts, and by it. */
static bool is_to_counter(int kind)
{
    return kind == READY || kind == ASK || kind == STOP || kind == RETURNED || kind == QUIET || kind == PONG ||
           kind == JOIN;
}

nw_status nw_gossip_take(gossip *g, nw_actions *actions, nw_message *m)
{
    int from, kind = m->header->kind;
    bool now, later = kind == JOIN || kind == PONG; /* makes sense between runs, too */
    NW_TRY(nw_machine_sender(&g->base, m, &from));
    bool to_counter = is_to_counter(kind), of_counter = !to_counter && !is_between(kind);
    NW_FAIL_IF(kind == 0 || kind >= KINDS || (to_counter && !counts_world(g)) || (of_counter && from != 0),
               NW_E_MESSAGE, "member %d sent kind %d of gossip to member %d, which expects none", from, kind,
               g->base.group.me);
    NW_TRY(nw_gossip_members_admit(g, m, from, &now));
    if (!now) return NW_OK;
    NW_FAIL_IF(!g->active && !later, NW_E_MESSAGE,
               "member %d sent kind %d of gossip to member %d, which expects none between runs", from, kind,
               g->base.group.me);
    if (kind <= PAIR) return nw_gossip_pairs_take(g, actions, m, from);
    if (kind <= OVER) return nw_gossip_pace_take(g, actions, m, from);
    if (kind <= MEAN) return nw_gossip_copies_take(g, actions, m, from);
    return kind < WELCOME ? nw_gossip_members_take(g, actions, m, from) : nw_gossip_return_take(g, actions, m, from);
}

void nw_gossip_set_timer(gossip *g, nw_actions *actions)
{
    int64_t at = g->timer < g->members.watch ? g->timer : g->members.watch;
    if (at == g->set) return;
    g->set = at;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = at});
}

/* ---- mixing ------------------------------------------------------------------------------------------------------ */

double nw_gossip_time(const gossip *g, int bucket)
{
    int64_t since = g->now - g->mixed[bucket];
    return g->unit > 0 && since > 0 ? (double)since / (double)g->unit : 0;
}

float nw_gossip_weigh(const gossip *g, const nw_gossip_note *said, int bucket)
{
    nw_gossip_note note = *said;
    note.member = g->base.group.me;
    note.first = g->layout.at[bucket].first;
    note.count = nw_gossip_floats(g, bucket);
    note.now_ns = g->now;
    note.time = g->other ? nw_gossip_time(g, bucket) : 0;
    note.weight = nw_mix_weight(nw_gossip_eta(g, bucket), note.time);
    note.alpha = (float)g->how.alpha;
    note.change = g->members.change;
    if (g->how.tap.told) g->how.tap.told(g->how.tap.context, &note);
    return note.weight;
}

void nw_gossip_mix(gossip *g, nw_actions *actions)
{
    for (int b = 0; b < g->layout.count; b++) {
        size_t first = g->layout.at[b].first, floats = nw_gossip_floats(g, b);
        float weight = nw_gossip_weigh(g, &(nw_gossip_note){.what = NW_GOSSIP_MIXED, .with = -1}, b);
        g->mixed[b] = g->now;
        if (weight == 0) continue;
        nw_actions_touch(actions, g->params->values + first, floats, true);
        nw_actions_touch(actions, g->other + first, floats, true);
        actions->touched += 2 * floats * sizeof(float); /* read and written */
        nw_mix_both(g->params->values + first, g->other + first, weight, floats, g->o.pool);
    }
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static nw_status gradient_done(gossip *g, const nw_event *event, nw_actions *actions)
{
    const nw_params *p = g->params;
    const nw_gossip_options *how = &g->how;
    NW_FAIL_IF(!event->task->completes, NW_E_INTERNAL, "a gradient of gossip ended before it was complete");
    if (g->coming.void_task) {
        g->computing = g->coming.void_task = false;
        return NW_OK;
    }
    if (how->acid) nw_gossip_mix(g, actions);
    g->updating = true;
    g->number = nw_gossip_pace_world(g);
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = g->made,
                                       .clock = (g->number + 1) * g->o.accumulation - 1,
                                       .values = p->values,
                                       .also = g->other,
                                       .gradient = p->gradients,
                                       .count = p->learned.floats,
                                       .scale = 1});
    return NW_OK;
}

static nw_status update_done(gossip *g, nw_actions *actions)
{
    int64_t took = g->now > g->begun ? g->now - g->begun : 1;
    bool known = g->unit > 0;
    g->computing = g->updating = false;
    if (g->coming.void_task) { /* these parameters do not count any more */
        g->coming.void_task = false;
        return NW_OK;
    }
    g->made++;
    g->unit = known ? (7 * g->unit + took) / 8 : took;
    if (g->unit == 0) g->unit = 1;
    for (int b = 0; b < g->layout.count && !known; b++) g->mixed[b] = g->now;
    nw_gossip_pairs_made(g);
    nw_gossip_pairs_set_timer(g, actions);
    return nw_gossip_pace_made(g, actions);
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static nw_status go(gossip *g, nw_actions *actions, const nw_go *run)
{
    g->active = true;
    g->drains = run->drain;
    if (g->coming.out) { /* between its loss and its return, whatever the others do */
        g->counter.until = run->until;
        g->stopped = false;
        return NW_OK;
    }
    g->closed = g->stopped = g->quiet = false;
    if (g->other && !g->mixes) memcpy(g->other, g->params->values, g->params->learned.floats * sizeof(float));
    g->mixes = g->other != NULL;
    for (int b = 0; b < g->layout.count; b++) g->mixed[b] = g->now;
    nw_gossip_pairs_go(g, actions);
    nw_gossip_copies_go(g, run);
    g->counter.until = run->until;
    NW_TRY(nw_gossip_members_go(g, actions));
    return nw_gossip_pace_go(g, actions);
}

static nw_status take_event(gossip *g, const nw_event *event, nw_actions *actions)
{
    switch (event->kind) {
    case NW_EVENT_GO:
        return go(g, actions, event->go);
    case NW_EVENT_STOP:
        return nw_gossip_pace_stop(g, actions);
    case NW_EVENT_MESSAGE:
        return nw_gossip_take(g, actions, event->message);
    case NW_EVENT_TIMER:
        g->set = NW_NO_TIMER;
        NW_TRY(nw_gossip_members_rang(g, actions));
        nw_gossip_pairs_rang(g, actions);
        return NW_OK;
    case NW_EVENT_DONE:
        return event->task->kind == NW_TASK_GRADIENT ? gradient_done(g, event, actions) : update_done(g, actions);
    default:
        return NW_OK;
    }
}

/* Whatever has happened: does what is possible now. */
static nw_status settle(gossip *g, nw_actions *actions)
{
    NW_TRY(nw_gossip_return_settle(g, actions));
    NW_TRY(nw_gossip_pairs_settle(g, actions));
    NW_TRY(nw_gossip_copies_settle(g, actions));
    return nw_gossip_pace_settle(g, actions);
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    gossip *g = (gossip *)m;
    int before = actions->count;
    g->now = event->now_ns;
    NW_TRY(take_event(g, event, actions));
    if (g->active) NW_TRY(settle(g, actions));
    nw_gossip_members_stamp(g, actions, before);
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m) { return !((const gossip *)m)->active; }

/* Whether a member is one that this member waits for. Of others that are silent it hears from member 0. */
static bool owes(const gossip *g, int member)
{
    const counter *c = &g->counter;
    if (is_away(g, member)) return false;
    if (!g->base.drops && (member == g->coming.source || member == g->meeting.partner)) return true;
    if (!counts_world(g)) return member == 0;
    return c->held[member] > 0 || (g->closed && !c->quiet[member]) || g->copies.under_way;
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const gossip *g = (const gossip *)m;
    for (int i = 0; i < m->group.count; i++)
        if (i != m->group.me && owes(g, i)) nw_wait_add(wait, &m->group, i);
    snprintf(wait->what, sizeof wait->what, "%s, after %" PRId64 " updates",
             g->closed                 ? "the end of the run"
             : is_coming(g)            ? "a place in the group, and parameters"
             : counts_world(g)         ? "gradients"
             : g->meeting.partner >= 0 ? "leases, or its half of a pair"
                                       : "leases",
             g->made);
}

static void state(nw_machine *m, nw_state *s)
{
    gossip *g = (gossip *)m;
    const int64_t count = m->group.count;
    g->was_away = m->group.count - g->members.present;
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "away", NW_STATE_KEPT, &g->was_away);
    if (s->status == NW_OK) s->at[s->count - 1].optional = true; /* of runs in which nobody could be */
    nw_state_integer(s, "made", NW_STATE_LIKE, &g->made);
    nw_state_integer(s, "gradient_ns", NW_STATE_LIKE, &g->unit);
    nw_state_integer(s, "timers", NW_STATE_LIKE, &g->drawn);
    nw_state_integer(s, "timer_left_ns", NW_STATE_LIKE, &g->left);
    nw_state_integer(s, "choices", NW_STATE_LIKE, &g->choices);
    nw_state_integer(s, "asked_for", NW_STATE_OWN, &g->asked_for);
    nw_state_integer(s, "round", NW_STATE_OWN, &g->round);
    nw_state_real(s, "owed", NW_STATE_LIKE, &g->owed);
    nw_state_integer(s, "gradients", NW_STATE_DELIVERED, &g->counts->gradients);
    nw_state_integer(s, "exchanges", NW_STATE_DELIVERED, &g->counts->exchanges);
    nw_state_integer(s, "refused", NW_STATE_DELIVERED, &g->counts->refused);
    nw_state_integer(s, "idle_ns", NW_STATE_DELIVERED, &g->counts->idle_ns);
    nw_state_tensor(s, "exchanges_with", NW_STATE_OWN, NW_STATE_I64, 1, &count, g->counts->with);
    if (counts_world(g)) nw_state_integer(s, "pairings", NW_STATE_OWN, &g->coordinator.choices);
    if (g->agreed) nw_agreed_state(g->agreed, s);
    if (!g->other) return;
    nw_state_integer(s, "has_momentum", NW_STATE_LIKE, &g->mixes);
    if (s->status == NW_OK) s->at[s->count - 1].optional = true; /* of runs without, momentum begins now */
    if (g->mixes) nw_state_vector(s, "momentum", NW_STATE_LIKE, g->other, 0, g->params->learned.floats);
}

static nw_status loaded(nw_machine *m)
{
    gossip *g = (gossip *)m;
    NW_FAIL_IF(g->made < 0 || g->unit < 0 || g->drawn < 0 || g->left < -1 || g->round < 0 || g->choices < 0 ||
                   g->asked_for < 0 || !(g->owed >= 0 && g->owed < 1e9),
               NW_E_FILE, "the checkpoint's numbers of gossip make no sense; take an earlier one");
    if (g->was_away != 0) g->round = 0; /* all are there again, and one of them has none */
    return g->agreed ? nw_agreed_loaded(g->agreed) : NW_OK;
}

static void release(nw_machine *m)
{
    gossip *g = (gossip *)m;
    nw_gossip_pairs_free(g);
    nw_gossip_values_free(g);
    nw_gossip_copies_free(g);
    nw_gossip_members_free(g);
    nw_layout_free(&g->layout);
    free(g->other);
    free(g->mixed);
    free(g->counter.held);
    free(g->counter.quiet);
    free(g->own_counts.with);
    free(g);
}

static nw_status check(const nw_exchange_options *o)
{
    const nw_gossip_options *how = &o->gossip;
    NW_FAIL_IF(o->group.count > 1 && (!how->graph || nw_graph_members(how->graph) != o->group.count), NW_E_ARGUMENT,
               "gossip of %d members needs a graph of as many", o->group.count);
    NW_FAIL_IF(!(how->rate >= 0) || how->rate > 1e6, NW_E_ARGUMENT,
               "%g averagings per gradient: there can be 0 to a million", how->rate);
    NW_FAIL_IF(!(how->step >= 0 && how->step <= 1) || !(how->modulo_bound >= 0), NW_E_ARGUMENT,
               "a consensus step of %g and a bound of %g: the one is above 0 and at most 1, the other not negative",
               how->step, how->modulo_bound);
    NW_FAIL_IF(how->acid && !(how->eta >= 0 && how->alpha >= 0), NW_E_ARGUMENT,
               "continuous momentum with eta %g and alpha %g: neither can be less than 0", how->eta, how->alpha);
    return NW_OK;
}

nw_status nw_gossip_constants(nw_gossip_options *g, double *chi1, double *chi2)
{
    nw_status known = NW_OK;
    if (g->rate > 0) known = nw_graph_constants(g->graph, g->rate, chi1, chi2);
    if (known != NW_OK) *chi1 = *chi2 = (double)NAN; /* a build without LAPACK; without momentum, so be it */
    g->follows |= g->acid && g->eta < 0;
    if (!g->acid || !g->follows) return NW_OK;
    NW_TRY(known);
    NW_FAIL_IF(g->rate <= 0, NW_E_ARGUMENT,
               "continuous momentum without averagings has no constants; give a --rate-com above 0, or --acid-params");
    g->eta = 1 / (2 * sqrt(*chi1 * *chi2));
    g->alpha = 0.5 * sqrt(*chi1 / *chi2);
    return NW_OK;
}

static nw_status make(gossip *g)
{
    nw_layout_options l = g->o.layout;
    l.segments = &g->params->learned;
    l.cuts = 1;
    l.ranges = true;
    NW_TRY(nw_layout_make(&g->layout, &l));
    NW_NEW(g->mixed, g->layout.count, "the times of %d buckets", g->layout.count);
    NW_NEW(g->counter.held, g->base.group.count, "the leases of %d members", g->base.group.count);
    NW_NEW(g->counter.quiet, g->base.group.count, "the leases of %d members", g->base.group.count);
    if (g->how.acid) NW_NEW(g->other, g->params->learned.floats, "continuous momentum");
    if (!g->how.acid) g->how.eta = 0;
    g->counts = g->how.counts ? g->how.counts : &g->own_counts;
    if (!g->how.counts) NW_NEW(g->own_counts.with, g->base.group.count, "the exchanges of a member");
    NW_TRY(nw_gossip_members_make(g));
    NW_TRY(nw_gossip_values_make(g));
    NW_TRY(nw_gossip_pairs_make(g));
    return nw_gossip_copies_make(g);
}

nw_status nw_gossip_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"gossip", handle, is_quiescent, waits, state, release, loaded};
    *out = NULL;
    NW_TRY(check(o));
    gossip *g = calloc(1, sizeof *g);
    NW_FAIL_IF(!g, NW_E_MEMORY, "no memory for an exchange");
    g->base = (nw_machine){.ops = &ops,
                           .group = o->group,
                           .moves = o->group.count > 1 && o->gossip.rate > 0,
                           .drops = o->group.count > 1 && o->deadline_ns > 0};
    g->o = *o;
    g->how = o->gossip;
    if (g->o.accumulation < 1) g->o.accumulation = 1;
    g->params = o->params;
    if (alone(g)) g->how.acid = false; /* there is nobody whom x~ could be pulled to */
    g->idle_since = -1;
    NW_TRY_OR(make(g), release(&g->base));
    *out = &g->base;
    return NW_OK;
}
