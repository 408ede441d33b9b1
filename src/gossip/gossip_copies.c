/*
 * gossip_copies.c - the mean of all members' parameters and how far they are apart, while all go on.
 *
 * When a snapshot is due, or a look at the distances, member 0 says COPY, and every member adds its parameters, as they
 * are when it hears of it (after its update, if it is in one). Means go up a tree of the members that are there: the parent
 * of number i among them is number (i - 1) / 2, so that nobody gets more than two, whatever the size of the group. A member joins its children's means
 * with its own in their order, so that the bits do not depend on who was first, and with them the spread: the sum of the
 * squared distances to the mean. In buckets, each as soon as it is complete.
 *
 * One mean is made at a time; snapshots that are due meanwhile wait in line. A run does not end before all are made. If
 * members leave or join meanwhile, the mean is given up and begun anew, with those who are there then.
 */
#include "gossip/gossip_private.h"

#include <stdlib.h>
#include <string.h>

/* Among those who are there. */
static int children(const gossip *g)
{
    int more = g->members.present - (2 * g->members.place + 1);
    return more < 0 ? 0 : more > 2 ? 2 : more;
}

/* A member; -1: there is none. */
static int child_of(const gossip *g, int index)
{
    return index < children(g) ? g->members.order[2 * g->members.place + 1 + index] : -1;
}

static int parent_of(const gossip *g) { return g->members.order[(g->members.place - 1) / 2]; }

static float *floats_of(const nw_message *m) { return (float *)(void *)m->payload; }

/* What a message holds: the mean of so many, and the spread behind it. */
static nw_mean_part part_of(const gossip *g, const nw_message *m, int bucket)
{
    nw_mean_part part = {.mean = floats_of(m), .count = (int64_t)m->header->version};
    memcpy(&part.spread, floats_of(m) + nw_gossip_floats(g, bucket), sizeof part.spread);
    return part;
}

static void put_part(const gossip *g, nw_message *m, int bucket, const nw_mean_part *part)
{
    m->header->version = (uint64_t)part->count;
    memcpy(floats_of(m) + nw_gossip_floats(g, bucket), &part->spread, sizeof part->spread);
}

/* ---- a mean grows ------------------------------------------------------------------------------------------------ */

static nw_status begin(gossip *g, nw_actions *actions, int64_t number, int64_t updates, bool unasked)
{
    copies *c = &g->copies;
    c->under_way = c->wanted = true;
    c->number = number;
    c->updates = updates;
    c->unasked = unasked;
    c->passed = 0;
    c->spread = 0;
    memset(c->joined, 0, (size_t)g->layout.count * sizeof *c->joined);
    return counts_world(g) ? nw_gossip_tell_all(g, actions, COPY, number) : NW_OK;
}

static nw_status add_own(gossip *g, nw_actions *actions, int bucket)
{
    size_t first = g->layout.at[bucket].first, floats = nw_gossip_floats(g, bucket);
    const float *x = g->params->values + first, *other = g->other ? g->other + first : NULL;
    float weight = nw_mix_weight(nw_gossip_eta(g, bucket), nw_gossip_time(g, bucket));
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, floats * sizeof(float) + sizeof(double), &m));
    nw_actions_touch(actions, x, floats, false);
    actions->touched += floats * sizeof(float);
    nw_mix_send(x, other, weight, floats_of(m), floats, g->o.pool);
    m->header->kind = MEAN;
    m->header->step = (uint64_t)g->copies.number;
    m->header->bucket = (uint32_t)bucket;
    m->header->count = (uint32_t)floats;
    m->header->scale_bytes = sizeof(double);
    put_part(g, m, bucket, &(nw_mean_part){.count = 1});
    g->copies.part[bucket] = m;
    return NW_OK;
}

/* Member 0 has the mean of all. */
static void finish(gossip *g, nw_actions *actions)
{
    copies *c = &g->copies;
    nw_actions_add(
        actions,
        (nw_action){
            .kind = NW_ACTION_SNAPSHOT,
            .snapshot = {.updates = c->updates, .values = c->values, .spread = c->spread, .unasked = c->unasked}});
}

/* A bucket's mean over this member and all below it is complete. */
static nw_status pass_on(gossip *g, nw_actions *actions, int bucket)
{
    copies *c = &g->copies;
    nw_message *m = c->part[bucket];
    c->part[bucket] = NULL;
    if (counts_world(g)) {
        nw_mean_part part = part_of(g, m, bucket);
        c->spread += part.spread;
        memcpy(c->values + g->layout.at[bucket].first, part.mean, nw_gossip_floats(g, bucket) * sizeof(float));
        nw_message_drop(m);
    } else {
        nw_machine_send(&g->base, actions, CHANNEL, parent_of(g), m);
    }
    c->under_way = ++c->passed < g->layout.count;
    if (!c->under_way && counts_world(g)) finish(g, actions);
    return NW_OK;
}

static nw_status join(gossip *g, nw_actions *actions, const nw_message *m)
{
    copies *c = &g->copies;
    int bucket = (int)m->header->bucket;
    nw_mean_part own = part_of(g, c->part[bucket], bucket), more = part_of(g, m, bucket);
    nw_mean_join(&own, &more, nw_gossip_floats(g, bucket));
    actions->touched += 3 * nw_gossip_floats(g, bucket) * sizeof(float);
    put_part(g, c->part[bucket], bucket, &own);
    return ++c->joined[bucket] == children(g) ? pass_on(g, actions, bucket) : NW_OK;
}

/* What children have sent, as far as it is its turn. */
static nw_status join_early(gossip *g, nw_actions *actions)
{
    copies *c = &g->copies;
    nw_status status = NW_OK;
    mail stays = {0};
    for (nw_message *m; (m = nw_gossip_take_first(&c->early)); nw_message_drop(m)) {
        int bucket = (int)m->header->bucket, from = nw_group_find(&g->base.group, m->header->from);
        bool turn = status == NW_OK && (int64_t)m->header->step == c->number && c->part[bucket] &&
                    child_of(g, c->joined[bucket]) == from;
        if (turn)
            status = join(g, actions, m);
        else
            nw_gossip_keep(&stays, m);
    }
    c->early = stays;
    return status;
}

/* Twice: the second child's may stand before the first one's. */
static nw_status go_on(gossip *g, nw_actions *actions)
{
    copies *c = &g->copies;
    for (int b = 0; c->wanted && b < g->layout.count; b++) NW_TRY(add_own(g, actions, b));
    for (int b = 0; c->wanted && children(g) == 0 && b < g->layout.count; b++) NW_TRY(pass_on(g, actions, b));
    c->wanted = false;
    for (int i = 0; i < 2 && c->early.first; i++) NW_TRY(join_early(g, actions));
    return NW_OK;
}

/* ---- when -------------------------------------------------------------------------------------------------------- */

void nw_gossip_copies_go(gossip *g, const nw_go *go)
{
    g->copies.due = go->snapshots;
    g->copies.due_count = go->snapshot_count;
}

nw_status nw_gossip_copies_counted(gossip *g, nw_actions *actions)
{
    int64_t every = g->how.measure_every;
    bool looks = every > 0 && g->base.updates % every == 0 && !g->copies.under_way && !alone(g);
    bool due = g->copies.due_count > 0 && g->copies.due[0] <= g->base.updates;
    return looks && !due ? begin(g, actions, g->copies.number + 1, g->base.updates, true) : NW_OK;
}

bool nw_gossip_copies_rest(const gossip *g)
{
    const copies *c = &g->copies;
    return !c->under_way && (c->due_count == 0 || c->due[0] > g->base.updates);
}

nw_status nw_gossip_copies_settle(gossip *g, nw_actions *actions)
{
    copies *c = &g->copies;
    for (;;) {
        if (counts_world(g) && !c->under_way && !nw_gossip_copies_rest(g)) {
            int64_t updates = c->due[0];
            c->due++;
            c->due_count--;
            NW_TRY(begin(g, actions, c->number + 1, updates, false));
        }
        if (!c->under_way || g->updating || is_coming(g)) return NW_OK;
        NW_TRY(go_on(g, actions));
        if (c->under_way || !counts_world(g)) return NW_OK;
    }
}

/* ---- members leave and join -------------------------------------------------------------------------------------- */

void nw_gossip_copies_give_up(gossip *g)
{
    copies *c = &g->copies;
    mail stays = {0};
    if (c->under_way) c->given_up = c->number;
    c->under_way = c->wanted = false;
    for (int b = 0; b < g->layout.count; b++) {
        nw_message_drop(c->part[b]);
        c->part[b] = NULL;
    }
    for (nw_message *m; (m = nw_gossip_take_first(&c->early)); nw_message_drop(m))
        if ((int64_t)m->header->step > c->given_up) nw_gossip_keep(&stays, m);
    c->early = stays;
}

/* Looks at the distances are not made up for. */
nw_status nw_gossip_copies_changed(gossip *g, nw_actions *actions)
{
    copies *c = &g->copies;
    bool again = counts_world(g) && c->under_way && !c->unasked;
    nw_gossip_copies_give_up(g);
    return again ? begin(g, actions, c->number + 1, c->updates, false) : NW_OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static nw_status take_copy(gossip *g, nw_actions *actions, const nw_header *h)
{
    NW_FAIL_IF(g->copies.under_way || g->closed || (int64_t)h->step <= g->copies.number, NW_E_MESSAGE,
               "member 0 wants a copy before it has the last, or behind the end of a run");
    return begin(g, actions, (int64_t)h->step, 0, false);
}

/* Of children; but who they are is not known before this member has heard of the mean that they speak of. */
static nw_status check_mean(const gossip *g, const nw_header *h, int from)
{
    const copies *c = &g->copies;
    bool present = (int64_t)h->step == c->number && c->under_way,
         child = from == child_of(g, 0) || from == child_of(g, 1);
    bool known = (int64_t)h->step > c->number || (present && child);
    known = known && h->bucket < (uint32_t)g->layout.count;
    for (const nw_message *at = c->early.first; at; at = at->next)
        known =
            known && !(at->header->from == h->from && at->header->bucket == h->bucket && at->header->step == h->step);
    NW_FAIL_IF(!known || h->bytes != nw_gossip_floats(g, (int)h->bucket) * sizeof(float) + sizeof(double) ||
                   h->version < 1 || h->version > (uint64_t)g->base.group.count,
               NW_E_MESSAGE, "member %d sent a mean of %u bytes that nobody waits for", from, h->bytes);
    return NW_OK;
}

nw_status nw_gossip_copies_take(gossip *g, nw_actions *actions, nw_message *m, int from)
{
    if (m->header->kind == COPY) return take_copy(g, actions, m->header);
    if ((int64_t)m->header->step <= g->copies.given_up) return NW_OK;
    NW_TRY(check_mean(g, m->header, from));
    nw_gossip_keep(&g->copies.early, m);
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_gossip_copies_make(gossip *g)
{
    copies *c = &g->copies;
    NW_NEW(c->part, g->layout.count, "%d buckets", g->layout.count);
    NW_NEW(c->joined, g->layout.count, "%d buckets", g->layout.count);
    if (counts_world(g)) NW_NEW(c->values, g->params->learned.floats, "the mean of all members");
    return NW_OK;
}

void nw_gossip_copies_free(gossip *g)
{
    copies *c = &g->copies;
    nw_gossip_forget(&c->early);
    for (int b = 0; c->part && b < g->layout.count; b++) nw_message_drop(c->part[b]);
    free(c->part);
    free(c->joined);
    free(c->values);
}
