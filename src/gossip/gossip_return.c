/*
 * gossip_return.c - a member that was dropped and answers again, or that comes late, joins.
 *
 *   DROPPED    what it has is void: x and x~, its leases, the gradient that it is computing, its half of a pair. It asks member
 *              0 to JOIN; a member that is late does so when it is there
 *   WELCOME    it is one of the group, and hears who else is
 *   FETCH      it asks a neighbour for its parameters, which are sent as they are then (PARTS). Now it goes on as ever
 *
 * The neighbour is the one that has been there longest, or member 0, so that nobody waits for somebody that waits itself.
 * The sums over all members grow by what is copied. What is a member's own stays: its optimizer's memory, its place in the
 * data, its measure of time and what it has counted.
 */
#include "gossip/gossip_private.h"

#include <inttypes.h>

/* ---- out --------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_return_begin(gossip *g, nw_actions *actions, bool asks)
{
    coming *c = &g->coming;
    c->out = true;
    c->source = -1;
    c->void_task = g->computing;
    g->members.away[g->base.group.me] = true;
    g->closed = g->quiet = false;
    nw_gossip_forget(&c->visits);
    nw_gossip_pace_forget(g);
    nw_gossip_pairs_forget(g, actions);
    nw_gossip_copies_give_up(g);
    for (int i = 0; i < g->base.group.count; i++) nw_gossip_values_forget(g, i);
    return asks ? nw_gossip_tell(g, actions, 0, JOIN, 0, 0) : NW_OK;
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_return_welcome(gossip *g, nw_actions *actions, int member)
{
    const members *p = &g->members;
    size_t count = (size_t)g->base.group.count;
    welcome run = {.until = g->counter.until, .drains = g->drains};
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, sizeof run + count * sizeof(int64_t), &m));
    m->header->kind = WELCOME;
    m->header->step = (uint64_t)g->base.updates;
    m->header->version = (uint64_t)p->change;
    m->header->bucket = UINT32_MAX;
    memcpy(m->payload, &run, sizeof run);
    for (size_t i = 0; i < count; i++) {
        int64_t since = p->away[i] ? -1 : p->since[i];
        memcpy(m->payload + sizeof run + i * sizeof since, &since, sizeof since);
    }
    nw_machine_send(&g->base, actions, CHANNEL, member, m);
    return NW_OK;
}

/* Of the neighbours that joined before this member the one that has been there longest; member 0 always has. */
static int choose_source(const gossip *g)
{
    const members *p = &g->members;
    int me = g->base.group.me, best = 0;
    int *to = p->room, count = nw_graph_neighbours(p->graph, me, to, NULL);
    for (int i = 0, found = 0; i < count; i++) {
        if (p->since[to[i]] >= p->since[me] || (found && p->since[to[i]] >= p->since[best])) continue;
        best = to[i];
        found = 1;
    }
    return best;
}

static nw_status fetch(gossip *g, nw_actions *actions)
{
    g->coming.source = choose_source(g);
    g->coming.taken = 0;
    return nw_gossip_tell(g, actions, g->coming.source, FETCH, 0, 0);
}

static nw_status read_welcome(const gossip *g, const nw_message *m, welcome *run)
{
    const nw_header *h = m->header;
    const int64_t most = INT64_MAX / 2 / g->o.accumulation;
    bool fits = g->coming.out && h->bytes == sizeof *run + (size_t)g->base.group.count * sizeof(int64_t);
    if (fits) memcpy(run, m->payload, sizeof *run);
    NW_FAIL_IF(!fits || h->version > (uint64_t)most || h->step > (uint64_t)most || run->until < (int64_t)h->step,
               NW_E_MESSAGE, "member 0 welcomes member %d with %u bytes, after change %" PRIu64 ": this makes no sense",
               g->base.group.me, h->bytes, h->version);
    return NW_OK;
}

/* Who is there, as member 0 sees it. */
static void hear_of_all(gossip *g, nw_actions *actions, const nw_message *m)
{
    members *p = &g->members;
    for (int i = 0; i < g->base.group.count; i++) {
        int64_t since;
        memcpy(&since, m->payload + sizeof(welcome) + (size_t)i * sizeof since, sizeof since);
        p->away[i] = since < 0 && i > 0;
        p->since[i] = since < 0 ? 0 : since;
        if (i == g->base.group.me) continue;
        nw_actions_add(actions,
                       (nw_action){.kind = p->away[i] ? NW_ACTION_DROP : NW_ACTION_BACK, .to = g->base.group.ranks[i]});
    }
    p->change = (int64_t)m->header->version;
    p->away[g->base.group.me] = false;
    p->since[g->base.group.me] = p->change;
}

static nw_status take_welcome(gossip *g, nw_actions *actions, const nw_message *m)
{
    welcome run;
    NW_TRY(read_welcome(g, m, &run));
    hear_of_all(g, actions, m);
    if (g->counter.until != run.until) g->stopped = false; /* that was another run */
    g->counter.until = run.until;
    g->drains = run.drains != 0;
    g->world = (int64_t)m->header->step;
    g->coming.out = false;
    NW_TRY(nw_gossip_members_renew(g, actions));
    NW_TRY(fetch(g, actions));
    return g->stopped ? nw_gossip_tell(g, actions, 0, STOP, 0, 0) : NW_OK;
}

nw_status nw_gossip_return_lost(gossip *g, nw_actions *actions, int member)
{
    nw_gossip_forget_from(g, &g->coming.visits, member);
    return g->coming.source == member ? fetch(g, actions) : NW_OK;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static size_t part_bytes(const gossip *g, int bucket)
{
    return nw_gossip_floats(g, bucket) * sizeof(float) * (g->other ? 2 : 1);
}

static nw_status give_part(gossip *g, nw_actions *actions, int bucket, int to)
{
    size_t first = g->layout.at[bucket].first, floats = nw_gossip_floats(g, bucket);
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, part_bytes(g, bucket), &m));
    nw_actions_touch(actions, g->params->values + first, floats, false);
    memcpy(m->payload, g->params->values + first, floats * sizeof(float));
    if (g->other) {
        nw_actions_touch(actions, g->other + first, floats, false);
        memcpy(m->payload + floats * sizeof(float), g->other + first, floats * sizeof(float));
    }
    actions->touched += part_bytes(g, bucket);
    nw_gossip_weigh(g, &(nw_gossip_note){.what = NW_GOSSIP_LENT, .with = to}, bucket);
    m->header->kind = PARTS;
    m->header->bucket = (uint32_t)bucket;
    m->header->count = (uint32_t)floats;
    nw_machine_send(&g->base, actions, CHANNEL, to, m);
    return NW_OK;
}

static nw_status give_parts(gossip *g, nw_actions *actions, int to)
{
    if (g->other) nw_gossip_mix(g, actions);
    for (int b = 0; b < g->layout.count; b++) NW_TRY(give_part(g, actions, b, to));
    return NW_OK;
}

static nw_status take_part(gossip *g, nw_actions *actions, const nw_message *m, int from)
{
    coming *c = &g->coming;
    int bucket = c->taken;
    NW_FAIL_IF(from != c->source || m->header->bucket != (uint32_t)bucket || m->header->bytes != part_bytes(g, bucket),
               NW_E_MESSAGE, "member %d sent %u bytes of its parameters, bucket %u, that nobody asked for", from,
               m->header->bytes, m->header->bucket);
    size_t first = g->layout.at[bucket].first, floats = nw_gossip_floats(g, bucket);
    nw_actions_touch(actions, g->params->values + first, floats, true);
    memcpy(g->params->values + first, m->payload, floats * sizeof(float));
    if (g->other) {
        nw_actions_touch(actions, g->other + first, floats, true);
        memcpy(g->other + first, m->payload + floats * sizeof(float), floats * sizeof(float));
    }
    actions->touched += part_bytes(g, bucket);
    nw_gossip_weigh(g, &(nw_gossip_note){.what = NW_GOSSIP_COPIED, .with = from}, bucket);
    g->mixed[bucket] = g->now;
    if (++c->taken < g->layout.count) return NW_OK;
    c->source = -1;
    nw_gossip_pairs_set_timer(g, actions);
    return NW_OK;
}

static nw_status take_visit(gossip *g, nw_actions *actions, const nw_message *m)
{
    int from = nw_group_find(&g->base.group, m->header->from);
    return m->header->kind == FETCH ? give_parts(g, actions, from) : take_part(g, actions, m, from);
}

/* What is asked for waits until it is there; what comes, for the end of an update. */
nw_status nw_gossip_return_settle(gossip *g, nw_actions *actions)
{
    coming *c = &g->coming;
    mail visits = c->visits;
    nw_status status = NW_OK;
    if (g->updating || !visits.first) return NW_OK;
    c->visits = (mail){0};
    for (nw_message *m; (m = nw_gossip_take_first(&visits)); nw_message_drop(m)) {
        if (status == NW_OK && m->header->kind == FETCH && is_coming(g))
            nw_gossip_keep(&c->visits, m);
        else if (status == NW_OK)
            status = take_visit(g, actions, m);
    }
    /* The last part may be what the others wait for. */
    return status == NW_OK && c->visits.first && !is_coming(g) ? nw_gossip_return_settle(g, actions) : status;
}

nw_status nw_gossip_return_take(gossip *g, nw_actions *actions, nw_message *m, int from)
{
    (void)from;
    if (m->header->kind == WELCOME) return take_welcome(g, actions, m);
    nw_gossip_keep(&g->coming.visits, m);
    return NW_OK;
}
