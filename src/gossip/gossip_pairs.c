/*
 * gossip_pairs.c - when a member averages, with whom, and how.
 *
 * When. Averagings that are due are `owed`: one more whenever a timer rings, whose times are exponential with a mean of
 * the member's own gradient time over the rate (a Poisson process); or, counted (deterministic_coms), `rate` more with
 * each of its updates. One that is due is asked for as soon as the member is in no pair. If the neighbour is busy it stays
 * owed, until the timer rings again or the next pair ends. More than some are forgotten, so that who was away does not come
 * back with a burst.
 *
 * A pair is an averaging of two. By handshakes and matchings the member that asks pays for it and the other does not, so
 * that timers have half the rate. Where member 0 pairs those who are available, or averagings are counted, both pay, and
 * who owes nothing is not available; then a member's rate is what the graph gives it (the hub of a star has more).
 *
 * With whom. Handshake: i PROPOSEs to a neighbour drawn by weight (or the next of its list, deterministic_neighbor), which
 * answers with its VALUES or BUSY; i sends its own. Two proposals that cross accept each other. Nobody waits for anybody in
 * a circle, since who has asked is BUSY for all others.
 *
 * First come: who owes says READY to member 0, which pairs it with a neighbour that is ready, or lets it wait.
 *
 * Scheduled: the partner in round r is a pure function. Rounds without partner are passed over. A proposal for a later
 * round than one's own waits, so that the least round of all can always go on. Members may be rounds apart, but whose
 * partner stands still stands still as well, in averaging alone.
 *
 * Members that leave and join. A pair whose partner is lost is given up, and owed again. Rounds of matchings are those of the
 * members that are there, and begin anew with every change: a proposal of before it is refused.
 *
 * How: gossip_values.c knows what a message of values holds.
 */
#include "gossip/gossip_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double OWED_MOST = 4; /* and twice the rate */

static bool is(const gossip *g, nw_pairing pairing) { return g->how.pairing == pairing; }
static bool both_pay(const gossip *g) { return is(g, NW_PAIR_FIRST_COME) || g->how.deterministic_coms; }

/* ---- a pair ------------------------------------------------------------------------------------------------------ */

static void meet(gossip *g, int partner, bool own)
{
    g->meeting.partner = partner;
    g->meeting.own = own;
    g->meeting.given = false;
    g->meeting.taken = 0;
    g->meeting.round = is(g, NW_PAIR_SCHEDULED) ? g->round : 0;
    g->meeting.change = g->members.change;
}

static nw_status give_values(gossip *g, nw_actions *actions)
{
    g->meeting.given = true;
    g->meeting.alpha = (float)g->how.alpha;
    for (int b = 0; b < g->layout.count; b++) NW_TRY(nw_gossip_values_send(g, actions, b, g->meeting.partner));
    return NW_OK;
}

/* Whether the pair is of a round of the members that are there now. */
static bool is_current(const gossip *g) { return g->meeting.change == g->members.change; }

static void end_pair(gossip *g)
{
    nw_gossip_values_end(g);
    g->counts->exchanges++;
    g->counts->with[g->meeting.partner]++;
    g->asked_for += g->meeting.own;
    g->round += is(g, NW_PAIR_SCHEDULED) && is_current(g);
    g->meeting.partner = -1;
    g->put_off = false;
}

/* What was paid for it is owed again. */
static void give_up(gossip *g)
{
    for (int b = 0; b < g->layout.count; b++) {
        nw_message_drop(g->meeting.sent[b]);
        g->meeting.sent[b] = NULL;
    }
    g->owed += g->meeting.own || both_pay(g);
    g->meeting.partner = -1;
    g->put_off = false;
}

static void refused(gossip *g)
{
    g->meeting.partner = -1;
    g->owed++;
    g->put_off = true;
    g->counts->refused++;
}

/* ---- whom to ask ------------------------------------------------------------------------------------------------- */

/* Brings the round to one in which this member has a partner; -1: it has none in many. */
static int find_round(gossip *g)
{
    const int most = 2 * g->base.group.count + 2;
    if (g->members.present < 2) return -1;
    for (int i = 0; i < most; i++) {
        int partner = nw_graph_partner(g->members.graph, g->how.seed, g->round, g->base.group.me);
        if (partner >= 0) return partner;
        g->round++;
    }
    return -1;
}

static int choose(gossip *g)
{
    int me = g->base.group.me, next = -1;
    if (is(g, NW_PAIR_SCHEDULED)) return find_round(g);
    if (g->how.deterministic_neighbor) next = nw_graph_scheduled(g->members.graph, me, g->asked_for);
    if (next >= 0) return next;
    nw_rng rng = nw_rng_make(g->how.seed, NW_PURPOSE_GOSSIP_PARTNER, (uint64_t)g->choices++, (uint32_t)me);
    return nw_graph_draw(g->members.graph, me, nw_rng_uniform(&rng));
}

static nw_status ask(gossip *g, nw_actions *actions)
{
    int partner = choose(g);
    if (partner < 0) return NW_OK; /* nobody is left */
    g->owed--;
    meet(g, partner, true);
    return nw_gossip_tell(g, actions, partner, PROPOSE, is(g, NW_PAIR_SCHEDULED) ? g->round : 0, 0);
}

/* ---- first come: member 0 ---------------------------------------------------------------------------------------- */

static nw_status assign(gossip *g, nw_actions *actions, int member, int partner)
{
    nw_message *m;
    g->coordinator.ready[member] = false;
    if (member == g->base.group.me) {
        g->announced = false;
        g->assigned = partner;
        return NW_OK;
    }
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = PAIR;
    m->header->part = (uint16_t)partner;
    m->header->bucket = UINT32_MAX;
    nw_machine_send(&g->base, actions, CHANNEL, member, m);
    return NW_OK;
}

/* Whoever is ready of its neighbours, and wants it; -1: nobody. */
static int find_ready(gossip *g, int member)
{
    coordinator *c = &g->coordinator;
    int found = 0, count;
    if (c->wanted[member] >= 0) return c->ready[c->wanted[member]] ? c->wanted[member] : -1;
    if (c->waiting >= 0) return c->waiting;
    if (strcmp(nw_graph_name(g->how.graph), "complete") == 0) return -1;
    count = nw_graph_neighbours(g->members.graph, member, c->list, NULL);
    for (int i = 0; i < count; i++)
        if (c->ready[c->list[i]]) c->list[found++] = c->list[i];
    if (found == 0) return -1;
    nw_rng rng = nw_rng_make(g->how.seed, NW_PURPOSE_GOSSIP_PARTNER, (uint64_t)c->choices++, NOBODY);
    return c->list[nw_rng_below(&rng, (uint32_t)found)];
}

static nw_status hear_ready(gossip *g, nw_actions *actions, int member, int wanted)
{
    coordinator *c = &g->coordinator;
    if (g->closed) return NW_OK;
    c->wanted[member] = wanted;
    int partner = find_ready(g, member);
    if (partner < 0) {
        c->ready[member] = true;
        if (strcmp(nw_graph_name(g->how.graph), "complete") == 0) c->waiting = member;
        return NW_OK;
    }
    c->waiting = -1;
    NW_TRY(assign(g, actions, member, partner));
    return assign(g, actions, partner, member);
}

static nw_status announce(gossip *g, nw_actions *actions)
{
    int wanted = -1;
    nw_message *m;
    if (g->announced || g->assigned >= 0) return NW_OK;
    g->announced = true;
    if (g->how.deterministic_neighbor)
        wanted = nw_graph_scheduled(g->members.graph, g->base.group.me, g->counts->exchanges);
    if (counts_world(g)) return hear_ready(g, actions, 0, wanted);
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = READY;
    m->header->part = (uint16_t)(wanted < 0 ? NOBODY : wanted);
    m->header->bucket = UINT32_MAX;
    nw_machine_send(&g->base, actions, CHANNEL, 0, m);
    return NW_OK;
}

static nw_status take_ready(gossip *g, nw_actions *actions, const nw_header *h, int from)
{
    int wanted = h->part == NOBODY ? -1 : h->part;
    NW_FAIL_IF(!is(g, NW_PAIR_FIRST_COME) || wanted >= g->base.group.count || wanted == from ||
                   g->coordinator.ready[from],
               NW_E_MESSAGE, "member %d is ready to average with member %d, which makes no sense", from, wanted);
    if (wanted >= 0 && is_away(g, wanted)) wanted = -1; /* it will hear of it */
    return hear_ready(g, actions, from, wanted);
}

static nw_status take_assignment(gossip *g, const nw_header *h)
{
    NW_FAIL_IF(!g->announced || h->part >= g->base.group.count || h->part == g->base.group.me, NW_E_MESSAGE,
               "member 0 pairs member %d with %u, which makes no sense", g->base.group.me, h->part);
    g->announced = false;
    g->assigned = h->part;
    return NW_OK;
}

/* The pair that member 0 has made begins. */
static nw_status begin_assigned(gossip *g, nw_actions *actions)
{
    if (g->assigned < 0 || g->updating || g->meeting.partner >= 0) return NW_OK;
    meet(g, g->assigned, true);
    g->assigned = -1;
    g->owed--;
    return give_values(g, actions);
}

/* ---- messages of pairs ------------------------------------------------------------------------------------------- */

typedef enum answer { ACCEPT, REFUSE, LATER } answer;

/* Whether it was said by somebody who knew of the same changes of the members. */
static bool is_of_now(const gossip *g, const nw_header *h) { return h->part == (uint16_t)g->members.change; }

static answer find_answer(gossip *g, const nw_header *h, int from)
{
    bool crosses = g->meeting.partner == from && !g->meeting.given, pays = both_pay(g);
    if (is(g, NW_PAIR_SCHEDULED)) {
        if (!is_of_now(g, h)) return REFUSE; /* a round of other members */
        if ((int64_t)h->step == g->round && crosses) return ACCEPT;
        if (g->closed) return REFUSE;
        bool ready = (int64_t)h->step == g->round && g->meeting.partner < 0 && (!pays || g->owed >= 1);
        return ready ? ACCEPT : LATER;
    }
    if (crosses) return ACCEPT;
    return g->meeting.partner >= 0 || g->closed || (pays && g->owed < 1) ? REFUSE : ACCEPT;
}

static nw_status take_proposal(gossip *g, nw_actions *actions, const nw_header *h, int from, bool *later)
{
    bool scheduled = is(g, NW_PAIR_SCHEDULED) && is_of_now(g, h), asked = g->meeting.own && !g->meeting.given;
    if (scheduled) find_round(g);
    /* Who asks for a round of the present members has refused one of before, or will. */
    if (scheduled && g->meeting.partner == from && asked && !is_current(g)) give_up(g);
    NW_FAIL_IF(is(g, NW_PAIR_FIRST_COME) || (scheduled && ((int64_t)h->step < g->round || h->step > INT64_MAX)),
               NW_E_MESSAGE, "member %d proposes round %" PRIu64 ", which is over", from, h->step);
    answer a = find_answer(g, h, from);
    *later = a == LATER;
    if (a == LATER) return NW_OK;
    if (a == REFUSE) return nw_gossip_tell(g, actions, from, BUSY, (int64_t)h->step, h->part);
    if (g->meeting.partner < 0) {
        NW_FAIL_IF(scheduled && nw_graph_partner(g->members.graph, g->how.seed, g->round, g->base.group.me) != from,
                   NW_E_MESSAGE, "member %d proposes round %" PRIu64 ", in which it is no partner", from, h->step);
        if (both_pay(g)) g->owed--;
        meet(g, from, false);
    }
    return give_values(g, actions);
}

/* Two members that have not heard of the same changes may have different constants. Both take the smaller alpha, so that
 * one loses what the other gains. */
static nw_status take_as_agreed(gossip *g, nw_actions *actions, const nw_message *m)
{
    const double own = g->how.alpha;
    float theirs;
    memcpy(&theirs, &m->header->until, sizeof theirs);
    NW_FAIL_IF(g->other && !(theirs >= 0), NW_E_MESSAGE, "member %d averages with alpha %g", g->meeting.partner,
               (double)theirs);
    if (g->other && theirs != g->meeting.alpha)
        g->how.alpha = (double)(theirs < g->meeting.alpha ? theirs : g->meeting.alpha);
    else if (g->other && (float)own != g->meeting.alpha)
        g->how.alpha = (double)g->meeting.alpha;
    nw_status status = nw_gossip_values_take(g, actions, m);
    g->how.alpha = own;
    return status;
}

static nw_status take_values(gossip *g, nw_actions *actions, const nw_message *m, int from, bool *later)
{
    NW_TRY(nw_gossip_values_check(g, m->header, from));
    *later = is(g, NW_PAIR_FIRST_COME) && g->meeting.partner != from; /* member 0's word is still on its way */
    if (*later) return NW_OK;
    bool fits = g->meeting.partner == from && (!g->meeting.given || g->meeting.sent[m->header->bucket]);
    NW_FAIL_IF(!fits, NW_E_MESSAGE, "member %d sent values, but no pair is under way with it", from);
    if (!g->meeting.given) NW_TRY(give_values(g, actions));
    NW_TRY(take_as_agreed(g, actions, m));
    if (g->meeting.taken == g->layout.count) end_pair(g);
    return NW_OK;
}

/* It answers the proposal that it names. One of before a change may have been given up. */
static nw_status take_busy(gossip *g, const nw_header *h, int from)
{
    const meeting *own = &g->meeting;
    bool fits = own->partner == from && own->own && !own->given && (int64_t)h->step == own->round &&
                h->until == (uint16_t)own->change;
    NW_FAIL_IF(!fits && h->until == (uint16_t)g->members.change, NW_E_MESSAGE,
               "member %d is busy, but nothing was proposed to it", from);
    if (fits) refused(g);
    return NW_OK;
}

/* later: it stays as it is, for now. */
static nw_status take_one(gossip *g, nw_actions *actions, const nw_message *m, int from, bool *later)
{
    *later = false;
    if (m->header->kind == PROPOSE) return take_proposal(g, actions, m->header, from, later);
    if (m->header->kind == VALUES) return take_values(g, actions, m, from, later);
    return take_busy(g, m->header, from);
}

nw_status nw_gossip_pairs_take(gossip *g, nw_actions *actions, nw_message *m, int from)
{
    if (m->header->kind == READY) return take_ready(g, actions, m->header, from);
    if (m->header->kind == PAIR) return take_assignment(g, m->header);
    nw_gossip_keep(&g->waiting, m); /* what has come before goes first */
    return NW_OK;
}

/* Whether something of the same rank waits. */
static bool waits_already(const mail *m, int rank)
{
    for (const nw_message *at = m->first; at; at = at->next)
        if (at->header->from == rank) return true;
    return false;
}

/* One look at all that waits; what has to wait on stays, in order. *moved: something did not. */
static nw_status look_at_waiting(gossip *g, nw_actions *actions, bool *moved)
{
    mail stays = {0};
    nw_status status = NW_OK;
    *moved = false;
    for (nw_message *m; (m = nw_gossip_take_first(&g->waiting)); nw_message_drop(m)) {
        bool later = status != NW_OK || waits_already(&stays, m->header->from);
        if (!later) {
            status = take_one(g, actions, m, nw_group_find(&g->base.group, m->header->from), &later);
            *moved |= !later;
        }
        if (later) nw_gossip_keep(&stays, m);
    }
    g->waiting = stays; /* the end of one that is empty is not looked at */
    return status;
}

nw_status nw_gossip_pairs_settle(gossip *g, nw_actions *actions)
{
    if (alone(g) || is_coming(g)) return NW_OK;
    do {
        for (bool moved = !g->updating; moved;) {
            NW_TRY(begin_assigned(g, actions));
            NW_TRY(look_at_waiting(g, actions, &moved));
        }
        if (g->closed || g->meeting.partner >= 0 || g->owed < 1 || g->put_off || g->unit == 0) return NW_OK;
        NW_TRY(is(g, NW_PAIR_FIRST_COME) ? announce(g, actions) : ask(g, actions));
    } while (g->assigned >= 0 && !g->updating); /* member 0 has paired itself */
    return NW_OK;
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

static void owe(gossip *g, double more)
{
    double most = OWED_MOST > 2 * g->rate ? OWED_MOST : 2 * g->rate;
    g->owed = g->owed + more < most ? g->owed + more : most;
    g->put_off = false;
}

void nw_gossip_pairs_made(gossip *g)
{
    if (g->how.deterministic_coms && !alone(g)) owe(g, g->rate);
}

/* A member that may ask always has a timer. */
void nw_gossip_pairs_set_timer(gossip *g, nw_actions *actions)
{
    if (g->timer != NW_NO_TIMER || g->closed || g->unit == 0 || g->rate <= 0 || g->how.deterministic_coms) return;
    nw_rng rng = nw_rng_make(g->how.seed, NW_PURPOSE_GOSSIP_TIME, (uint64_t)g->drawn, (uint32_t)g->base.group.me);
    if (g->left < 0) g->left = (int64_t)(nw_mix_exponential(&rng) * (double)g->unit / g->rate);
    g->timer = g->left < NW_NO_TIMER / 2 - g->now ? g->now + g->left : NW_NO_TIMER / 2;
    g->left = -1;
    nw_gossip_set_timer(g, actions);
}

void nw_gossip_pairs_rang(gossip *g, nw_actions *actions)
{
    if (g->timer <= g->now) {
        g->timer = NW_NO_TIMER;
        g->drawn++;
        if (g->active && !g->closed) owe(g, 1);
        nw_gossip_pairs_set_timer(g, actions);
    }
    nw_gossip_set_timer(g, actions);
}

void nw_gossip_pairs_go(gossip *g, nw_actions *actions)
{
    g->put_off = false;
    nw_gossip_pairs_set_timer(g, actions);
}

/* What was announced is not heard any more: it is owed in the next run. */
void nw_gossip_pairs_close(gossip *g, nw_actions *actions)
{
    coordinator *c = &g->coordinator;
    g->announced = false;
    c->waiting = -1;
    if (c->ready) memset(c->ready, 0, (size_t)g->base.group.count * sizeof *c->ready);
    if (g->timer == NW_NO_TIMER) return;
    g->left = g->timer > g->now ? g->timer - g->now : 0;
    g->timer = NW_NO_TIMER;
    nw_gossip_set_timer(g, actions);
}

/* ---- members leave and join -------------------------------------------------------------------------------------- */

/* At member 0: who was ready for it alone is ready for anybody. */
static nw_status pair_without(gossip *g, nw_actions *actions, int member)
{
    coordinator *c = &g->coordinator;
    c->ready[member] = false;
    if (c->waiting == member) c->waiting = -1;
    for (int i = 0; i < g->base.group.count; i++) {
        if (!c->ready[i] || c->wanted[i] != member) continue;
        c->ready[i] = false;
        NW_TRY(hear_ready(g, actions, i, -1));
    }
    return NW_OK;
}

nw_status nw_gossip_pairs_lost(gossip *g, nw_actions *actions, int member)
{
    nw_gossip_forget_from(g, &g->waiting, member);
    if (g->assigned == member) g->assigned = -1;
    if (g->meeting.partner == member) give_up(g);
    return g->coordinator.ready ? pair_without(g, actions, member) : NW_OK;
}

/* Its timer stands still until it is back: who waits does so quietly. */
void nw_gossip_pairs_forget(gossip *g, nw_actions *actions)
{
    nw_gossip_pairs_close(g, actions);
    nw_gossip_forget(&g->waiting);
    if (g->meeting.partner >= 0) give_up(g);
    g->assigned = -1;
}

/* Of one member, as the graph has it at this rate of all. */
static nw_status find_rate(gossip *g)
{
    NW_AUTOFREE double *rates = NULL;
    if (alone(g)) return NW_OK;
    g->rate = g->how.rate / 2;
    if (!both_pay(g)) return NW_OK;
    NW_NEW(rates, g->base.group.count, "the rates of %d members", g->base.group.count);
    int count = nw_graph_neighbours(g->members.graph, g->base.group.me, NULL, rates);
    g->rate = 0;
    for (int i = 0; i < count; i++) g->rate += rates[i] * g->how.rate;
    return NW_OK;
}

nw_status nw_gossip_pairs_changed(gossip *g)
{
    g->round = 0; /* of the matchings of these members */
    return find_rate(g);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_pairs_make(gossip *g)
{
    coordinator *c = &g->coordinator;
    NW_TRY(find_rate(g));
    g->timer = NW_NO_TIMER;
    g->left = g->assigned = g->meeting.partner = c->waiting = -1;
    NW_NEW(g->meeting.sent, g->layout.count, "%d buckets", g->layout.count);
    if (!is(g, NW_PAIR_FIRST_COME) || !counts_world(g)) return NW_OK;
    NW_NEW(c->ready, g->base.group.count, "who is ready of %d members", g->base.group.count);
    NW_NEW(c->wanted, g->base.group.count, "who is ready of %d members", g->base.group.count);
    NW_NEW(c->list, g->base.group.count, "who is ready of %d members", g->base.group.count);
    return NW_OK;
}

void nw_gossip_pairs_free(gossip *g)
{
    nw_gossip_forget(&g->waiting);
    for (int b = 0; g->meeting.sent && b < g->layout.count; b++) nw_message_drop(g->meeting.sent[b]);
    free(g->meeting.sent);
    free(g->coordinator.ready);
    free(g->coordinator.wanted);
    free(g->coordinator.list);
}
