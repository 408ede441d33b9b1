/*
 * server_copies.c - all parameters as they were after N updates, brought together at rank 0 while several servers go
 * on. See server.c and server_private.h.
 *
 * Every server counts the updates of its range, and knows beforehand after which of them a copy is due
 * (nw_go.snapshots). Then it sends its range to rank 0, exactly, behind the answer to the worker, and goes on. Rank 0
 * puts the ranges together, its own among them. When all are there it hands them over (SNAPSHOT) and tells the servers
 * (TAKEN). One server has all parameters anyway. So a copy is the parameters after N updates.
 *
 * Bound. A server makes no update behind which a copy is due while COPIES_MOST of its copies are not taken. Messages
 * from one rank to another keep their order, so copies are completed in theirs, and all that are under way are among
 * the COPIES_MOST that follow the last complete one: rank 0 needs as many vectors, which it takes when they are first
 * used. Nobody waits for ever: whoever waits has made more updates than the first copy that is not taken needs, and the
 * gradients of these went to all servers.
 *
 * When quiescent no copy is under way: a server is not idle until its copies are taken.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_due(const server *s, int64_t updates)
{
    int low = 0, high = s->snapshot_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->snapshots[middle] < updates)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->snapshot_count && s->snapshots[low] == updates;
}

/* Of one server: the count, and the snapshot that belongs to it. */
nw_status nw_copies_count(server *s, nw_actions *actions)
{
    const master *m = &s->master;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &m->counted[(m->version - 1) & 1]});
    if (s->servers > 1 || !is_due(s, m->version)) return NW_OK;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SNAPSHOT, .snapshot = {m->version, s->params->values}});
    return NW_OK;
}

bool nw_copies_hold(const server *s) { return s->master.copying == COPIES_MOST && is_due(s, s->master.version + 1); }

/* ---- at rank 0 --------------------------------------------------------------------------------------------------- */

/* Whether a server can be that far by now: workers have at most `in_flight` gradients that only some have applied. */
static bool is_expected(const server *s, int64_t version)
{
    const master *m = &s->master;
    return version > m->copied && version - m->version <= (int64_t)s->workers * s->o.in_flight && is_due(s, version);
}

static nw_status make_room(const server *s, copy *c)
{
    if (c->values) return NW_OK;
    NW_NEW(c->has, s->shard_count, "a copy of %zu parameters", s->params->learned.floats);
    NW_NEW(c->values, s->params->learned.floats, "a copy of %zu parameters", s->params->learned.floats);
    return NW_OK;
}

/* The copy of that version; with its first shard it begins. */
static nw_status find(server *s, uint32_t from, int64_t version, copy **found)
{
    *found = NULL;
    for (int i = 0; i < COPIES_MOST; i++) {
        copy *c = &s->master.all[i];
        bool is_it = c->here > 0 && c->version == version;
        if (is_it || (c->here == 0 && !*found)) *found = c;
        if (is_it) return NW_OK;
    }
    NW_FAIL_IF(!*found || !is_expected(s, version), NW_E_MESSAGE,
               "rank %u sent a copy of its parameters after %" PRId64 " updates that nobody asked it for", from,
               version);
    NW_TRY(make_room(s, *found));
    (*found)->version = version;
    return NW_OK;
}

/* A shard is in its place. */
static nw_status count_shard(server *s, nw_actions *actions, copy *c, int index)
{
    master *m = &s->master;
    c->has[index] = true;
    if (++c->here < s->present) return NW_OK;
    c->here = 0;
    memset(c->has, 0, (size_t)s->shard_count * sizeof *c->has);
    m->copied = c->version;
    m->copying--;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SNAPSHOT, .snapshot = {c->version, c->values}});
    for (int i = 1; i < s->servers; i++) NW_TRY(nw_server_tell(s, actions, i, TAKEN, 0, c->version));
    return NW_OK;
}

static nw_status keep_own(server *s, nw_actions *actions)
{
    copy *c;
    NW_TRY(find(s, 0, s->master.version, &c));
    for (int i = 0; i < s->shard_count; i++) {
        const nw_block *b = block_of(s, i);
        if (server_of(s, i) != 0 || floats_of(s, i) == 0) continue;
        for (int t = b->cut_tile[0]; t < b->cut_tile[1]; t++) {
            size_t first = b->tiles[t].first, count = b->tiles[t].count;
            memcpy(c->values + first, s->params->values + first, count * sizeof *c->values);
        }
        nw_channel_touch(actions, b, 0, s->params->values, false);
        actions->touched += b->cut_floats[0] * sizeof *c->values;
        NW_TRY(count_shard(s, actions, c, i));
    }
    return NW_OK;
}

static nw_status take_shard(server *s, nw_actions *actions, const nw_message *message, int from)
{
    const nw_header *h = message->header;
    int index = shard_of(s, h->bucket, h->part);
    copy *c;
    NW_FAIL_IF(s->base.group.me != 0 || from == 0, NW_E_MESSAGE,
               "rank %u sent a copy of its parameters to server %d; copies go to the first", h->from, s->base.group.me);
    NW_TRY(find(s, h->from, (int64_t)h->version, &c));
    NW_FAIL_IF(c->has[index] || h->codec != NW_CODEC_NONE, NW_E_MESSAGE,
               "rank %u sent bucket %u of its copy of version %" PRIu64 " twice, or not exactly", h->from, h->bucket,
               h->version);
    NW_TRY(nw_server_decode(s, actions, message, c->values, NW_AT_FIRST, false));
    return count_shard(s, actions, c, index);
}

/* ---- at every server --------------------------------------------------------------------------------------------- */

nw_status nw_copies_give(server *s, nw_actions *actions)
{
    master *m = &s->master;
    if (s->servers == 1 || !is_due(s, m->version)) return NW_OK;
    m->copying++;
    if (s->base.group.me == 0) return keep_own(s, actions);
    for (int b = 0; b < s->layout.count; b++) {
        nw_message *message;
        NW_TRY(nw_server_encode_own(s, actions, COPY, NW_PLAINLY, b, m->version, &message));
        if (message) NW_TRY(nw_server_send(s, actions, 0, message));
    }
    return NW_OK;
}

nw_status nw_copies_take(server *s, nw_actions *actions, const nw_message *message, int from)
{
    const nw_header *h = message->header;
    if (h->kind == COPY) return take_shard(s, actions, message, from);
    NW_FAIL_IF(s->base.group.me == 0 || from != 0 || s->master.copying == 0, NW_E_MESSAGE,
               "rank %u has taken a copy of version %" PRIu64 " that server %d did not give", h->from, h->version,
               s->base.group.me);
    s->master.copying--;
    return NW_OK;
}

void nw_copies_waits(const server *s, nw_wait *wait)
{
    const master *m = &s->master;
    const copy *c = NULL; /* the oldest */
    for (int i = 0; i < COPIES_MOST; i++)
        if (m->all[i].here > 0 && (!c || m->all[i].version < c->version)) c = &m->all[i];
    if (s->base.group.me != 0) nw_wait_add(wait, &s->base.group, 0);
    for (int rank = 1; c && rank < s->servers; rank++) {
        int missing = 0;
        for (int i = 0; i < s->shard_count; i++)
            missing += server_of(s, i) == rank && floats_of(s, i) > 0 && !c->has[i];
        if (missing > 0) nw_wait_add(wait, &s->base.group, rank);
    }
    snprintf(wait->what, sizeof wait->what, "copies of the parameters for rank 0, after %" PRId64 " updates",
             m->version);
}

void nw_copies_free(server *s)
{
    for (int i = 0; i < COPIES_MOST; i++) {
        free(s->master.all[i].has);
        free(s->master.all[i].values);
    }
}
