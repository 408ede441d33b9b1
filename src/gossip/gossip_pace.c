/*
 * gossip_pace.c - how many updates gossip makes, and when a run is over: member 0 gives leases and counts.
 *
 * A lease is the permission to make one update. Member 0 gives out as many as the run has left, so that exactly so many
 * are made, by whoever is fast.
 *
 * Of a member that is dropped member 0 takes them back: others make these updates, and what it has made since does not
 * count.
 *
 * Nobody waits for a lease. Every member holds some ahead: for AHEAD_NS of its own computing, so that all go on while
 * member 0 is suspended, but no more than a share of what is left (SHARE), so that towards the end of a run nobody waits
 * long for one who is slow and has many.
 *
 * The learning rate of an update is that of batch (g + 1) k - 1, where g is how many updates the world has made, so that
 * all are at the same place of the schedule, however many each makes. Member 0 knows g; with every answer to a member it
 * says what it was then, and how many leases it saw that member hold. Until the next answer the member adds n for each
 * update that it has made since: as many as all make meanwhile, if they are as fast.
 *
 * The end. Where no lease is left and all that were given are used, member 0 closes the run: no pairs begin any more,
 * those under way end, all say so (QUIET), and it is over. A STOP makes it recall the leases that are not begun.
 */
#include "gossip/gossip_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 2, MOST = 1 << 14 /* leases ahead */, SHARE = 4 };
static const int64_t AHEAD_NS = 8000000000;

/* ---- a member's leases ------------------------------------------------------------------------------------------- */

/* With them comes where the world is. */
static nw_status take_leases(gossip *g, const nw_header *h)
{
    NW_FAIL_IF(h->until > MOST || h->version > MOST || h->step > INT64_MAX / 2 / (uint64_t)g->o.accumulation,
               NW_E_MESSAGE, "member 0 gives %u leases after %" PRIu64 " updates, which makes no sense", h->until,
               h->step);
    g->held += h->until;
    g->world = (int64_t)h->step;
    g->believed = (int64_t)h->version;
    return NW_OK;
}

int64_t nw_gossip_pace_world(const gossip *g)
{
    int64_t world = g->base.updates;
    if (!counts_world(g)) world = g->world + (g->believed - g->held) * g->members.present;
    if (world < g->world) world = g->world; /* whatever a damaged message says */
    return world < g->counter.until ? world : g->counter.until - 1;
}

/* Leaves what is begun; how many were not. */
static int64_t give_back(gossip *g)
{
    int64_t keeps = g->computing && !g->coming.void_task, returned = g->held - keeps;
    g->held = keeps;
    g->believed -= returned;
    return returned;
}

/* How many it would like to hold. */
static int64_t wish(const gossip *g)
{
    int64_t count = g->unit > 0 ? AHEAD_NS / g->unit + 1 : LEAST;
    return count < LEAST ? LEAST : count > MOST ? MOST : count;
}

/* ---- member 0 ---------------------------------------------------------------------------------------------------- */

static int64_t left(const gossip *g) { return g->stopped ? 0 : g->counter.until - g->base.updates - g->counter.out; }

/* As many more as a member wishes to hold, within its share. Where that is none, but it has enough to go on with for
 * long, it hears where the world is. */
static nw_status give(gossip *g, nw_actions *actions, int to, int64_t wish)
{
    counter *c = &g->counter;
    int64_t share = left(g) / (SHARE * (int64_t)g->members.present), most = share > LEAST ? share : LEAST;
    int64_t count = (wish < most ? wish : most) - c->held[to];
    nw_message *m;
    if (count > left(g)) count = left(g);
    if (count < 0) count = 0;
    if (count == 0 && c->held[to] <= LEAST) return NW_OK;
    c->held[to] += count;
    c->out += count;
    if (to == g->base.group.me) {
        g->held += count;
        return NW_OK;
    }
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = LEASE;
    m->header->step = (uint64_t)g->base.updates;
    m->header->version = (uint64_t)c->held[to];
    m->header->until = (uint32_t)count;
    m->header->bucket = UINT32_MAX; /* it is about no range */
    nw_machine_send(&g->base, actions, CHANNEL, to, m);
    return NW_OK;
}

/* Member `from` has made an update, when the world had made `number` as far as it knew. */
static nw_status count(gossip *g, nw_actions *actions, int from, int64_t number, int64_t delay, int64_t wishes,
                       const void *report)
{
    counter *c = &g->counter;
    NW_FAIL_IF(c->held[from] < 1, NW_E_MESSAGE, "member %d has made an update without a lease", from);
    c->held[from]--;
    c->out--;
    c->from = from;
    c->report = report;
    c->count = (nw_count){.updates = ++g->base.updates,
                          .delay = delay,
                          .clock = (number + 1) * g->o.accumulation - 1,
                          .from_count = 1,
                          .from = &c->from,
                          .reports = &c->report};
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &c->count});
    NW_TRY(nw_gossip_copies_counted(g, actions));
    return give(g, actions, from, wishes);
}

static nw_status take_returned(gossip *g, int from, int64_t returned)
{
    counter *c = &g->counter;
    NW_FAIL_IF(returned > c->held[from] || !g->stopped, NW_E_MESSAGE,
               "member %d gives back %" PRId64 " leases, but has %" PRId64, from, returned, c->held[from]);
    c->held[from] -= returned;
    c->out -= returned;
    return NW_OK;
}

nw_status nw_gossip_pace_stop(gossip *g, nw_actions *actions)
{
    if (!g->active || g->closed || g->stopped) return NW_OK;
    g->stopped = true;
    if (g->coming.out) return NW_OK; /* it says so when it is back */
    if (!counts_world(g)) return nw_gossip_tell(g, actions, 0, STOP, 0, 0);
    NW_TRY(take_returned(g, 0, give_back(g)));
    return nw_gossip_tell_all(g, actions, RECALL, 0);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_pace_go(gossip *g, nw_actions *actions)
{
    counter *c = &g->counter;
    c->quiets = 0;
    if (!counts_world(g)) return NW_OK;
    memset(c->quiet, 0, (size_t)g->base.group.count * sizeof *c->quiet);
    return nw_gossip_pace_share(g, actions);
}

/* ---- members leave and join -------------------------------------------------------------------------------------- */

void nw_gossip_pace_lost(gossip *g, int member)
{
    counter *c = &g->counter;
    c->out -= c->held[member];
    c->held[member] = 0;
    c->quiets -= c->quiet[member];
    c->quiet[member] = false;
}

nw_status nw_gossip_pace_share(gossip *g, nw_actions *actions)
{
    for (int64_t each = 1; each <= LEAST && left(g) > 0; each++) /* by turns */
        for (int i = 0; i < g->members.present; i++) NW_TRY(give(g, actions, g->members.order[i], each));
    return NW_OK;
}

void nw_gossip_pace_forget(gossip *g) { g->held = g->believed = 0; }

/* ---- updates ----------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_pace_made(gossip *g, nw_actions *actions)
{
    int64_t number = g->number, delay = g->counts->exchanges - g->completed;
    nw_message *m;
    g->held--;
    g->counts->gradients++;
    if (counts_world(g)) return count(g, actions, 0, number, delay, wish(g), g->o.report);
    NW_TRY(nw_message_take(actions->pool, g->o.report_bytes, &m));
    m->header->kind = ASK;
    m->header->step = (uint64_t)number;
    m->header->version = (uint64_t)delay;
    m->header->until = (uint32_t)wish(g);
    m->header->bucket = UINT32_MAX;
    if (g->o.report_bytes > 0) memcpy(m->payload, g->o.report, g->o.report_bytes);
    nw_machine_send(&g->base, actions, CHANNEL, 0, m);
    return NW_OK;
}

static nw_status take_ask(gossip *g, nw_actions *actions, const nw_message *m, int from)
{
    const nw_header *h = m->header;
    NW_FAIL_IF(h->bytes != g->o.report_bytes || h->step > INT64_MAX / 2 / (uint64_t)g->o.accumulation ||
                   h->version > INT64_MAX,
               NW_E_MESSAGE, "member %d reports %u bytes of update %" PRIu64 ", which make no sense", from, h->bytes,
               h->step);
    return count(g, actions, from, (int64_t)h->step, (int64_t)h->version, h->until, m->payload);
}

static void end_run(gossip *g, nw_actions *actions, int64_t updates)
{
    if (g->idle_since >= 0) g->counts->idle_ns += g->now - g->idle_since;
    g->idle_since = -1;
    g->active = false;
    g->base.updates = updates;
    nw_gossip_members_end(g, actions);
    if (g->drains && updates >= g->counter.until) g->mixes = 0; /* parameters become the mean of all */
}

static nw_status close_run(gossip *g, nw_actions *actions)
{
    g->closed = true;
    nw_gossip_pairs_close(g, actions);
    return nw_gossip_pairs_settle(g, actions);
}

/* At member 0: a member has no pair under way any more. */
static nw_status become_quiet(gossip *g, int member)
{
    counter *c = &g->counter;
    NW_FAIL_IF(c->quiet[member], NW_E_MESSAGE, "member %d is quiet twice", member);
    c->quiet[member] = true;
    c->quiets++;
    return NW_OK;
}

nw_status nw_gossip_pace_take(gossip *g, nw_actions *actions, const nw_message *m, int from)
{
    const nw_header *h = m->header;
    bool late = g->closed && (h->kind == LEASE || h->kind == ASK || h->kind == RECALL || h->kind == CLOSE);
    bool early =
        (h->kind == CLOSE && g->held > 0) || (h->kind == QUIET && !g->closed) || (h->kind == OVER && !g->quiet);
    NW_FAIL_IF(late || early, NW_E_MESSAGE, "member %d sent kind %d of gossip to member %d too %s", from, h->kind,
               g->base.group.me, late ? "late" : "early");
    switch (h->kind) {
    case LEASE:
        return take_leases(g, h);
    case ASK:
        return take_ask(g, actions, m, from);
    case STOP:
        return nw_gossip_pace_stop(g, actions);
    case RECALL:
        g->stopped = true;
        return nw_gossip_tell(g, actions, 0, RETURNED, 0, give_back(g));
    case RETURNED:
        return take_returned(g, from, h->until);
    case CLOSE:
        return close_run(g, actions);
    case QUIET:
        return become_quiet(g, from);
    default: /* OVER */
        end_run(g, actions, (int64_t)h->step);
        return NW_OK;
    }
}

static nw_status close_if_over(gossip *g, nw_actions *actions)
{
    if (g->closed || g->counter.out > 0 || left(g) > 0 || !nw_gossip_copies_rest(g)) return NW_OK;
    NW_TRY(nw_gossip_tell_all(g, actions, CLOSE, g->base.updates));
    return close_run(g, actions);
}

static void go_on(gossip *g, nw_actions *actions)
{
    if (g->computing) return;
    if (g->held == 0 || is_coming(g)) {
        if (g->idle_since < 0) g->idle_since = g->now;
        return;
    }
    if (g->idle_since >= 0) g->counts->idle_ns += g->now - g->idle_since;
    g->idle_since = -1;
    g->computing = true;
    g->begun = g->now;
    g->completed = g->counts->exchanges;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = g->made});
}

nw_status nw_gossip_pace_settle(gossip *g, nw_actions *actions)
{
    go_on(g, actions);
    if (counts_world(g)) NW_TRY(close_if_over(g, actions));
    if (g->closed && !g->quiet && !is_coming(g) && !g->computing && nw_gossip_pairs_rest(g)) {
        g->quiet = true;
        if (!counts_world(g)) return nw_gossip_tell(g, actions, 0, QUIET, 0, 0);
        NW_TRY(become_quiet(g, 0));
    }
    if (!counts_world(g) || g->counter.quiets < g->members.present) return NW_OK;
    NW_TRY(nw_gossip_tell_all(g, actions, OVER, g->base.updates));
    end_run(g, actions, g->base.updates);
    return NW_OK;
}
