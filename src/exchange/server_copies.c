/*
 * server_copies.c - snapshots of all parameters after N updates, collected at rank 0 while several servers go on. See
 * server.c and server_private.h.
 *
 * Every server counts the updates of its range, and knows beforehand after which of them a snapshot is due
 * (nw_go.snapshots). After such an update it answers the worker, sends its exact range to rank 0 (COPY), and goes on.
 * Rank 0 collects the ranges and its own. When all have arrived, it emits SNAPSHOT and confirms it to the servers
 * (TAKEN). With a single server nothing needs to be collected.
 *
 * Bounded memory. A server does not make an update after which a snapshot is due while COPIES_MOST of its snapshots are
 * not confirmed. Messages between two ranks keep their order, so snapshots are completed in order, and those in
 * progress are among the COPIES_MOST that follow the last complete one: rank 0 needs that many vectors, which it
 * allocates when they are first used. No server waits for ever: a server that waits has made all updates that the first
 * unconfirmed snapshot needs, and their gradients went to all servers.
 *
 * When quiescent, no snapshot is in progress, because a server is not quiescent until its snapshots are confirmed.
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

/* Emits COUNT, and, if there is only one server, the snapshot that is due. */
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

/* Whether another server can have made that many updates: it can be ahead by the gradients in flight only. */
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

/* Finds the snapshot of that version, or begins it. */
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
               "rank %u sent a snapshot of its parameters after %" PRId64 " updates, which is not due", from, version);
    NW_TRY(make_room(s, *found));
    (*found)->version = version;
    return NW_OK;
}

/* Counts a shard that has arrived; the last one completes the snapshot. */
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
               "rank %u sent a snapshot of its parameters to server %d; only server 0 collects them", h->from,
               s->base.group.me);
    NW_TRY(find(s, h->from, (int64_t)h->version, &c));
    NW_FAIL_IF(c->has[index] || h->codec != NW_CODEC_NONE, NW_E_MESSAGE,
               "rank %u sent bucket %u of the snapshot of version %" PRIu64 " twice, or compressed", h->from, h->bucket,
               h->version);
    NW_TRY(nw_server_decode(s, actions, message, c->values, NW_AT_FIRST, false));
    return count_shard(s, actions, c, index);
}

/* ---- at every server --------------------------------------------------------------------------------------------- */

nw_status nw_copies_send(server *s, nw_actions *actions)
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

nw_status nw_copies_receive(server *s, nw_actions *actions, const nw_message *message, int from)
{
    const nw_header *h = message->header;
    if (h->kind == COPY) return take_shard(s, actions, message, from);
    NW_FAIL_IF(s->base.group.me == 0 || from != 0 || s->master.copying == 0, NW_E_MESSAGE,
               "rank %u confirmed a snapshot of version %" PRIu64 " that server %d did not send", h->from, h->version,
               s->base.group.me);
    s->master.copying--;
    return NW_OK;
}

void nw_copies_waits(const server *s, nw_wait *wait)
{
    const master *m = &s->master;
    const copy *c = NULL; /* the oldest in progress */
    for (int i = 0; i < COPIES_MOST; i++)
        if (m->all[i].here > 0 && (!c || m->all[i].version < c->version)) c = &m->all[i];
    if (s->base.group.me != 0) nw_wait_add(wait, &s->base.group, 0);
    for (int rank = 1; c && rank < s->servers; rank++) {
        int missing = 0;
        for (int i = 0; i < s->shard_count; i++)
            missing += server_of(s, i) == rank && floats_of(s, i) > 0 && !c->has[i];
        if (missing > 0) nw_wait_add(wait, &s->base.group, rank);
    }
    snprintf(wait->what, sizeof wait->what, "a snapshot of the parameters, after %" PRId64 " updates", m->version);
}

void nw_copies_free(server *s)
{
    for (int i = 0; i < COPIES_MOST; i++) {
        free(s->master.all[i].has);
        free(s->master.all[i].values);
    }
}
