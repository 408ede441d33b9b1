/*
 * gossip_members.c - who is there: members that fall silent are dropped, and may join again.
 *
 * Member 0 decides. It asks whoever has said nothing for half a deadline to say something (PING), which every member does at
 * once, in the middle of a gradient too; whoever then is silent for the other half is dropped. The time is that in which
 * member 0 itself ran. It takes back the leases of that member, so that the others make all updates of the run, and tells
 * all (GONE); what was under way with that member ends. One that joins (gossip_return.c) is told to all as well (CAME).
 *
 * Changes have numbers. As member 0 sends them to every member in their order, and a graph is a function of who is there,
 * all members have the same graph after the same number of changes. They hear of them at different times, so what members
 * say to each other bears the number of changes that the sender had heard of:
 *
 *   more than the receiver        it waits until the receiver has heard of them
 *   from before sender or
 *   receiver joined last          it is of a former life, or for one, and is thrown away
 *   of somebody who is away       likewise
 *
 * Sums. What is dropped takes its x and x~ with it, and what it had given and not yet taken by then. One that joins has a
 * copy of another's. Otherwise the sums over those who are there are changed by updates alone, as ever.
 *
 * Member 0 cannot be dropped: it counts, and its process writes what the run leaves.
 */
#include "gossip/gossip_private.h"

#include <inttypes.h>
#include <math.h>

static int64_t deadline(const gossip *g) { return g->o.deadline_ns; }

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Of two numbers modulo 2^16 the one behind the other, by so much. */
static int behind(uint16_t a, int64_t b) { return (int16_t)(uint16_t)(a - (uint16_t)b); }

nw_status nw_gossip_members_admit(gossip *g, nw_message *m, int from, bool *now)
{
    members *p = &g->members;
    const nw_header *h = m->header;
    *now = false;
    if (p->heard) {
        p->heard[from] = g->now;
        p->pinged[from] = -1;
    }
    if (is_between(h->kind) && behind(h->part, p->change) > 0) {
        NW_FAIL_IF(counts_world(g), NW_E_MESSAGE,
                   "member %d has heard of change %u of the members, but there were %" PRId64, from, h->part,
                   p->change);
        nw_gossip_keep(&p->ahead, m);
        return NW_OK;
    }
    if (is_away(g, from)) {
        *now = h->kind == JOIN;
        return NW_OK;
    }
    if (!is_between(h->kind)) {
        NW_FAIL_IF(g->coming.out && h->kind != WELCOME, NW_E_MESSAGE,
                   "member 0 sent kind %d of gossip to a member that it had dropped", h->kind);
        *now = true;
        return NW_OK;
    }
    *now = !g->coming.out && behind(h->part, p->since[from]) >= 0 && behind(h->part, p->since[g->base.group.me]) >= 0;
    return NW_OK;
}

void nw_gossip_members_stamp(const gossip *g, nw_actions *actions, int first)
{
    for (int i = first; i < actions->count; i++) {
        const nw_action *a = &actions->at[i];
        if (a->kind != NW_ACTION_SEND || a->message->header->channel != CHANNEL) continue;
        nw_header *h = a->message->header;
        if (is_between(h->kind)) h->part = (uint16_t)g->members.change;
        if (h->kind == VALUES && g->other) memcpy(&h->until, &g->meeting.alpha, sizeof h->until);
    }
}

static nw_status tell_of(gossip *g, nw_actions *actions, int kind, int member)
{
    for (int to = 1; to < g->base.group.count; to++) {
        nw_message *m;
        if (is_away(g, to) || to == member) continue;
        NW_TRY(nw_message_take(actions->pool, 0, &m));
        m->header->kind = (uint8_t)kind;
        m->header->part = (uint16_t)member;
        m->header->version = (uint64_t)g->members.change;
        m->header->bucket = UINT32_MAX;
        nw_machine_send(&g->base, actions, CHANNEL, to, m);
    }
    return NW_OK;
}

/* The driver waits for it no more, or again. */
static void tell_driver(const gossip *g, nw_actions *actions, int member, nw_action_kind kind)
{
    nw_actions_add(actions, (nw_action){.kind = kind, .to = g->base.group.ranks[member]});
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

/* The constants of the graph that is left; where they cannot be found, those of before stay. */
static void find_constants(gossip *g)
{
    nw_gossip_options how = g->how;
    double chi1, chi2;
    how.graph = g->members.graph;
    if (!how.acid || !how.follows || g->members.present < 2) return;
    if (nw_gossip_constants(&how, &chi1, &chi2) != NW_OK) return;
    g->how.eta = how.eta;
    g->how.alpha = how.alpha;
}

static nw_status find_graph(gossip *g)
{
    members *p = &g->members;
    nw_graph *rest;
    NW_TRY(nw_graph_without(g->how.graph, p->away, &rest));
    if (p->graph != g->how.graph) nw_graph_release(p->graph);
    p->graph = rest;
    p->present = 0;
    for (int i = 0; i < g->base.group.count; i++) {
        if (i == g->base.group.me) p->place = p->present;
        if (!is_away(g, i)) p->order[p->present++] = i;
    }
    return NW_OK;
}

/* lost: a member that has just left; -1: none. What came ahead of the change is handled now. */
static nw_status renew(gossip *g, nw_actions *actions, int lost)
{
    mail ahead = g->members.ahead;
    nw_status status = NW_OK;
    NW_TRY(find_graph(g));
    find_constants(g);
    NW_TRY(nw_gossip_pairs_changed(g));
    if (lost >= 0) NW_TRY(nw_gossip_pairs_lost(g, actions, lost));
    NW_TRY(nw_gossip_copies_changed(g, actions));
    g->members.ahead = (mail){0};
    for (nw_message *m; (m = nw_gossip_take_first(&ahead)); nw_message_drop(m))
        if (status == NW_OK) status = nw_gossip_take(g, actions, m);
    return status;
}

nw_status nw_gossip_members_renew(gossip *g, nw_actions *actions) { return renew(g, actions, -1); }

/* A member has left, as all hear of it. */
static nw_status lose(gossip *g, nw_actions *actions, int member)
{
    g->members.away[member] = true;
    tell_driver(g, actions, member, NW_ACTION_DROP);
    nw_gossip_values_forget(g, member);
    NW_TRY(renew(g, actions, member));
    return nw_gossip_return_lost(g, actions, member);
}

/* One has joined. */
static void gain(gossip *g, nw_actions *actions, int member)
{
    g->members.away[member] = false;
    g->members.since[member] = g->members.change;
    nw_gossip_values_forget(g, member);
    tell_driver(g, actions, member, NW_ACTION_BACK);
}

static nw_status take_change(gossip *g, nw_actions *actions, const nw_header *h)
{
    members *p = &g->members;
    bool gone = h->kind == GONE;
    NW_FAIL_IF(h->part == 0 || h->part >= g->base.group.count || h->part == g->base.group.me ||
                   is_away(g, h->part) == gone || (int64_t)h->version != p->change + 1,
               NW_E_MESSAGE, "member 0 says that member %u has %s, by change %" PRIu64 " after %" PRId64, h->part,
               gone ? "left" : "joined", h->version, p->change);
    p->change++;
    if (gone) return lose(g, actions, h->part);
    gain(g, actions, h->part);
    return renew(g, actions, -1);
}

/* ---- member 0 ---------------------------------------------------------------------------------------------------- */

/* It hears of it before nobody sends to it any more, and so whenever it is able to. */
static nw_status drop(gossip *g, nw_actions *actions, int member)
{
    NW_TRY(nw_gossip_tell(g, actions, member, DROPPED, 0, 0));
    g->members.change++;
    NW_TRY(tell_of(g, actions, GONE, member));
    nw_gossip_pace_lost(g, member);
    NW_TRY(lose(g, actions, member));
    return nw_gossip_pace_share(g, actions);
}

static nw_status admit(gossip *g, nw_actions *actions, int member)
{
    members *p = &g->members;
    p->joins[member] = false;
    p->heard[member] = g->now;
    p->pinged[member] = -1;
    p->change++;
    NW_TRY(tell_of(g, actions, CAME, member));
    gain(g, actions, member);
    NW_TRY(nw_gossip_return_welcome(g, actions, member)); /* before anything else that it hears */
    NW_TRY(renew(g, actions, -1));
    if (p->watch == NW_NO_TIMER && deadline(g) > 0) p->watch = g->now + deadline(g) / 2;
    nw_gossip_set_timer(g, actions);
    return nw_gossip_pace_share(g, actions);
}

/* At the end of a run it is too late: the next one begins with it. */
static nw_status take_join(gossip *g, nw_actions *actions, int member)
{
    NW_FAIL_IF(!is_away(g, member), NW_E_MESSAGE, "member %d asks to join, but was not dropped", member);
    g->members.joins[member] = true;
    return g->active && !g->closed ? admit(g, actions, member) : NW_OK;
}

/* When a member is asked to say something, or dropped. */
static int64_t due(const gossip *g, int member)
{
    const members *p = &g->members;
    int64_t half = deadline(g) / 2, late = p->heard[member] + deadline(g), asked = p->pinged[member];
    if (asked < 0) return p->heard[member] + half;
    return asked + half > late ? asked + half : late;
}

/* Times only move later, so what is found now is not too late. */
static nw_status look_who_is_silent(gossip *g, nw_actions *actions)
{
    members *p = &g->members;
    int64_t next = NW_NO_TIMER;
    for (int i = 1; i < g->base.group.count; i++) {
        if (is_away(g, i)) continue;
        bool silent = g->now >= due(g, i), asked = p->pinged[i] >= 0;
        if (silent && asked) {
            NW_TRY(drop(g, actions, i));
            continue;
        }
        if (silent) {
            NW_TRY(nw_gossip_tell(g, actions, i, PING, 0, 0));
            p->pinged[i] = g->now;
        }
        if (due(g, i) < next) next = due(g, i);
    }
    p->watch = next;
    return NW_OK;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_members_rang(gossip *g, nw_actions *actions)
{
    if (!g->active || g->members.watch > g->now) return NW_OK;
    g->members.watch = NW_NO_TIMER;
    if (counts_world(g)) return look_who_is_silent(g, actions);
    return g->coming.out ? nw_gossip_tell(g, actions, 0, JOIN, 0, 0) : NW_OK;
}

nw_status nw_gossip_members_take(gossip *g, nw_actions *actions, const nw_message *m, int from)
{
    switch (m->header->kind) {
    case PING:
        return nw_gossip_tell(g, actions, 0, PONG, 0, 0);
    case PONG:
        return NW_OK;
    case JOIN:
        return take_join(g, actions, from);
    case DROPPED:
        return nw_gossip_return_begin(g, actions, true);
    default: /* GONE, CAME */
        return take_change(g, actions, m->header);
    }
}

/* Late members are away from the beginning, but not where a run is continued. */
static nw_status begin_without_late(gossip *g, nw_actions *actions)
{
    bool any = false;
    for (int i = 1; g->how.late && g->base.updates == 0 && i < g->base.group.count; i++) {
        if (!g->how.late[i] || is_away(g, i)) continue;
        any = g->members.away[i] = true;
        if (i != g->base.group.me) tell_driver(g, actions, i, NW_ACTION_DROP);
    }
    if (any) NW_TRY(nw_gossip_members_renew(g, actions));
    if (!is_away(g, g->base.group.me) || g->coming.out) return NW_OK;
    g->members.watch = g->now + 1; /* of its own time, which begins when it is there */
    return nw_gossip_return_begin(g, actions, false);
}

nw_status nw_gossip_members_go(gossip *g, nw_actions *actions)
{
    members *p = &g->members;
    if (alone(g)) return NW_OK;
    if (p->change == 0) NW_TRY(begin_without_late(g, actions));
    if (counts_world(g)) {
        for (int i = 1; i < g->base.group.count; i++) {
            p->heard[i] = g->now;
            p->pinged[i] = -1;
        }
        p->watch = deadline(g) > 0 && p->present > 1 ? g->now + deadline(g) / 2 : NW_NO_TIMER;
        for (int i = 1; i < g->base.group.count; i++)
            if (p->joins[i]) NW_TRY(admit(g, actions, i));
    }
    nw_gossip_set_timer(g, actions);
    return NW_OK;
}

void nw_gossip_members_end(gossip *g, nw_actions *actions)
{
    g->members.watch = NW_NO_TIMER;
    nw_gossip_set_timer(g, actions);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_members_make(gossip *g)
{
    members *p = &g->members;
    int count = g->base.group.count;
    p->watch = g->set = NW_NO_TIMER;
    g->coming.source = -1;
    NW_NEW(p->away, count, "%d members", count);
    NW_NEW(p->since, count, "%d members", count);
    NW_NEW(p->order, count, "%d members", count);
    NW_NEW(p->room, count, "%d members", count);
    for (int i = 0; i < count; i++) p->order[i] = i;
    p->present = count;
    p->place = g->base.group.me;
    p->graph = g->how.graph;
    if (!counts_world(g)) return NW_OK;
    NW_NEW(p->heard, count, "%d members", count);
    NW_NEW(p->pinged, count, "%d members", count);
    NW_NEW(p->joins, count, "%d members", count);
    return NW_OK;
}

void nw_gossip_members_free(gossip *g)
{
    members *p = &g->members;
    nw_gossip_forget(&p->ahead);
    nw_gossip_forget(&g->coming.visits);
    if (p->graph != g->how.graph) nw_graph_release(p->graph);
    free(p->away);
    free(p->since);
    free(p->order);
    free(p->room);
    free(p->heard);
    free(p->pinged);
    free(p->joins);
}
