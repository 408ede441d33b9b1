/*
 * server_worker.c - a rank that computes gradients for a parameter server. See server_private.h.
 *
 * It computes whenever it has a credit, and starts with the newest parameters that have come from all servers, of one
 * version. Shards of the gradient leave as soon as they are final. Parameters that come while it computes wait: a
 * gradient is taken at one version from its beginning to its end. A rank that is a server, too, has its own range in
 * place, as new as it is.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters that come ---------------------------------------------------------------------------------------- */

/* Forgets the models that are not newer than a version, which has become the one in place. */
static void drop_ready(server *s, source *from, int64_t version)
{
    while (from->ready_count > 0 && from->ready[0].version <= version) {
        shards oldest = from->ready[0];
        nw_shards_drop(&oldest, s->shard_count);
        memmove(from->ready, from->ready + 1, (size_t)--from->ready_count * sizeof oldest);
        from->ready[from->ready_count] = oldest;
    }
}

/* Whether a model says how the parameters differ from those before it, in any of its shards. */
static bool has_differences(const server *s, const shards *model)
{
    for (int i = 0; i < s->shard_count; i++)
        if (model->at[i] && model->at[i]->header->flags == DIFFERENCE) return true;
    return false;
}

/* Shards that are differences are added, others take the place of what was there. */
static nw_status decode_model(server *s, nw_actions *actions, const shards *model)
{
    for (int i = 0; i < s->shard_count; i++) {
        const nw_message *m = model->at[i];
        if (!m) continue;
        NW_TRY(nw_server_decode(s, actions, m, s->params->values, NW_AT_FIRST, m->header->flags == DIFFERENCE));
    }
    return NW_OK;
}

static nw_status put_in_place(server *s, nw_actions *actions, source *from, int64_t version)
{
    for (int r = 0; r < from->ready_count; r++)
        if (from->ready[r].version == version || (s->shadowed && from->ready[r].version < version))
            NW_TRY(decode_model(s, actions, &from->ready[r]));
    from->version = version;
    drop_ready(s, from, version);
    return NW_OK;
}

static bool has_version(const source *from, int64_t version)
{
    bool has = from->version == version;
    for (int r = 0; r < from->ready_count; r++) has |= from->ready[r].version == version;
    return has;
}

/* The newest version that has come from all servers but this rank itself; -1: there is none. */
static int64_t newest_version(const server *s)
{
    const worker *w = &s->worker;
    int first = s->base.group.me == 0 && s->servers > 1 ? 1 : 0; /* any server that is not this rank */
    const source *from = &w->from[first];
    if (first == s->base.group.me) return s->master.version; /* there is no other */
    for (int r = from->ready_count; r >= 0; r--) {
        int64_t version = r > 0 ? from->ready[r - 1].version : from->version;
        bool all = true;
        for (int i = 0; i < s->servers; i++) all &= i == s->base.group.me || has_version(&w->from[i], version);
        if (all) return version;
    }
    return -1;
}

static nw_status put_all_in_place(server *s, nw_actions *actions, int64_t version)
{
    for (int i = 0; i < s->servers; i++)
        if (i != s->base.group.me) NW_TRY(put_in_place(s, actions, &s->worker.from[i], version));
    return NW_OK;
}

/* A model is complete: it waits for the computation under way. One that nobody can use any more makes room. */
static nw_status take_shard(server *s, nw_message *m, int server_index)
{
    const nw_header *h = m->header;
    source *from = &s->worker.from[server_index];
    NW_TRY(nw_shards_add(&from->coming, shard_of(s, h->bucket, h->part), m));
    if (from->coming.here < s->of_server[server_index]) return NW_OK;
    if (from->ready_count == READY_MOST) {
        NW_FAIL_IF(s->shadowed && has_differences(s, &from->coming), NW_E_MESSAGE,
                   "rank %u sent more than %d models that wait for each other", h->from, READY_MOST);
        drop_ready(s, from, from->ready[0].version);
    }
    shards empty = from->ready[from->ready_count];
    from->ready[from->ready_count++] = from->coming;
    from->coming = empty;
    return NW_OK;
}

/* ---- the end of a run -------------------------------------------------------------------------------------------- */

/* The first server says who is dropped; all others are here, or back. */
static nw_status hear_of_dropped(server *s, nw_actions *actions, const nw_message *m)
{
    size_t count = m->header->bytes / sizeof(uint32_t), k = 0;
    if (count == 0 && s->worker.lost == 0) return NW_OK; /* as before */
    s->worker.lost = (int)count;
    for (int i = 0; i < s->workers; i++) {
        int member = s->first_worker + i;
        uint32_t dropped = UINT32_MAX; /* the next that is: they are in order */
        if (k < count) memcpy(&dropped, m->payload + k * sizeof dropped, sizeof dropped);
        bool is_dropped = dropped == (uint32_t)member;
        k += is_dropped;
        if (member == s->base.group.me) continue;
        nw_actions_add(actions, (nw_action){.kind = is_dropped ? NW_ACTION_DROP : NW_ACTION_BACK,
                                            .to = s->base.group.ranks[member]});
    }
    return NW_OK;
}

static nw_status run_over(server *s, nw_actions *actions, const nw_message *m, int server_index)
{
    worker *w = &s->worker;
    source *from = &w->from[server_index];
    NW_FAIL_IF(w->computing || w->credit_count > 0, NW_E_MESSAGE,
               "rank %u ends the run while this rank still computes for it", m->header->from);
    if (server_index != s->base.group.me) NW_TRY(put_in_place(s, actions, from, (int64_t)m->header->version));
    if (server_index == 0 && s->base.group.me != 0) NW_TRY(hear_of_dropped(s, actions, m));
    from->version = (int64_t)m->header->version;
    from->over = true;
    for (int i = 0; i < s->servers; i++)
        if (!w->from[i].over) return NW_OK;
    for (int i = 0; w->held && i < s->o.in_flight; i++) nw_shards_drop(&w->held[i], s->shard_count); /* all were used */
    w->active = false;
    return NW_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static nw_status take_credit(worker *w, const nw_header *h)
{
    NW_FAIL_IF(w->credit_count == IN_FLIGHT_MOST, NW_E_MESSAGE, "rank %u asks for more than %d gradients at a time",
               h->from, IN_FLIGHT_MOST);
    w->credits[w->credit_count++] = (credit){(int64_t)h->step, (int64_t)h->version};
    return NW_OK;
}

/* ---- gradients that were not used ---- */

/* What a gradient held goes back into the memory. */
static nw_status take_back(server *s, nw_actions *actions, shards *held)
{
    bool kept;
    for (int i = 0; i < s->shard_count; i++)
        if (held->at[i]) NW_TRY(nw_channel_undo(&s->up, actions, held->at[i], &kept));
    nw_shards_drop(held, s->shard_count);
    return NW_OK;
}

/* Of the credit with this number, or with this and later ones. */
static nw_status take_back_from(server *s, nw_actions *actions, int64_t number, bool later)
{
    for (int i = 0; s->returns && i < s->o.in_flight; i++) {
        shards *held = &s->worker.held[i];
        if (held->here > 0 && (held->version == number || (later && held->version > number)))
            NW_TRY(take_back(s, actions, held));
    }
    return NW_OK;
}

/* Where the gradient under way is kept until it is surely answered. A credit for one more says that the one that was
 * begun `in_flight` before it is: what was refused of it has been taken back. */
static shards *held_of(server *s) { return &s->worker.held[(s->worker.begun - 1) % s->o.in_flight]; }

/* This rank was silent for too long, perhaps because it was suspended: what it had to do, others do. What did not come
 * is taken back. */
static nw_status join_again(server *s, nw_actions *actions, int64_t came)
{
    worker *w = &s->worker;
    NW_TRY(take_back_from(s, actions, came, true));
    w->credit_count = 0;
    w->dropped = w->computing;
    return nw_server_tell(s, actions, 0, JOIN, 0, 0);
}

nw_status nw_worker_take(server *s, nw_actions *actions, nw_message *m, int from)
{
    NW_FAIL_IF(!s->worker.active, NW_E_MESSAGE, "rank %u sent work to rank %u between two runs", m->header->from,
               s->base.group.ranks[s->base.group.me]);
    switch (m->header->kind) {
    case MODEL:
        return take_shard(s, m, from);
    case CREDIT:
        return take_credit(&s->worker, m->header);
    case OVER:
        return run_over(s, actions, m, from);
    case REFUSED:
        return take_back_from(s, actions, (int64_t)m->header->step, false);
    default:
        return join_again(s, actions, (int64_t)m->header->step);
    }
}

/* Buckets leave as a whole, since codecs look at whole items; each server gets its part. */
static nw_status give_bucket(server *s, nw_actions *actions, int bucket)
{
    const worker *w = &s->worker;
    nw_moment when = {.step = w->number, .clock = w->number * s->o.accumulation};
    NW_TRY(nw_channel_encode(&s->up, actions, bucket, when, s->params->gradients, -1, NW_CODED, s->by_cut));
    for (int i = s->servers - 1; i >= 0; i--) {
        nw_message *m = s->by_cut[i];
        if (!m) continue;
        m->header->kind = GRADIENT;
        m->header->from = s->base.group.ranks[s->base.group.me];
        m->header->version = (uint64_t)w->from[i].version;
        if (s->returns) {
            shards *held = held_of(s);
            held->at[shard_of(s, (uint32_t)bucket, i)] = nw_message_hold(m);
            held->here++;
        }
        NW_TRY(nw_server_send(s, actions, i, m));
    }
    return NW_OK;
}

nw_status nw_worker_give(server *s, nw_actions *actions, size_t first)
{
    worker *w = &s->worker;
    for (; !w->dropped && w->given < s->layout.count && s->layout.at[w->given].first >= first; w->given++)
        NW_TRY(give_bucket(s, actions, w->given));
    return NW_OK;
}

/* What is to be told of the batch; the gradient is complete with it. */
static nw_status send_report(server *s, nw_actions *actions)
{
    nw_message *m;
    NW_TRY(
        nw_server_make_message(s, actions, REPORT, s->o.report_bytes, s->worker.number, s->worker.from[0].version, &m));
    if (s->o.report_bytes > 0) memcpy(m->payload, s->o.report, s->o.report_bytes);
    return nw_server_send(s, actions, 0, m);
}

nw_status nw_worker_computed(server *s, nw_actions *actions)
{
    worker *w = &s->worker;
    NW_TRY(nw_worker_give(s, actions, 0));
    if (!w->dropped) NW_TRY(send_report(s, actions));
    w->given = 0;
    w->computing = w->dropped = false;
    return NW_OK;
}

nw_status nw_worker_go_on(server *s, nw_actions *actions)
{
    worker *w = &s->worker;
    if (!w->active || w->computing || w->credit_count == 0) return NW_OK;
    if (s->serves && (s->master.applying || s->master.version < w->credits[0].version))
        return NW_OK; /* its own range */
    int64_t version = newest_version(s);
    if (version < w->credits[0].version) return NW_OK;
    NW_TRY(put_all_in_place(s, actions, version));
    if (s->serves) NW_TRY(nw_clients_own_begins(s, actions));
    w->number = w->credits[0].number;
    memmove(w->credits, w->credits + 1, (size_t)--w->credit_count * sizeof w->credits[0]);
    w->computing = true;
    if (s->returns) {
        shards *held = &w->held[w->begun % s->o.in_flight];
        nw_shards_drop(held, s->shard_count);
        held->version = w->number;
    }
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = w->begun++});
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_worker_make(server *s)
{
    s->worker.lost = -1;
    NW_NEW(s->worker.from, s->servers, "%d servers", s->servers);
    for (int i = 0; i < s->servers; i++) {
        NW_TRY(nw_shards_make(&s->worker.from[i].coming, s->shard_count));
        for (int r = 0; r < READY_MOST; r++) NW_TRY(nw_shards_make(&s->worker.from[i].ready[r], s->shard_count));
    }
    if (!s->returns || !s->works) return NW_OK;
    NW_NEW(s->worker.held, s->o.in_flight, "%d gradients", s->o.in_flight);
    for (int i = 0; i < s->o.in_flight; i++) NW_TRY(nw_shards_make(&s->worker.held[i], s->shard_count));
    return NW_OK;
}

void nw_worker_free(server *s)
{
    for (int i = 0; s->worker.from && i < s->servers; i++) {
        nw_shards_free(&s->worker.from[i].coming, s->shard_count);
        for (int r = 0; r < READY_MOST; r++) nw_shards_free(&s->worker.from[i].ready[r], s->shard_count);
    }
    for (int i = 0; s->worker.held && i < s->o.in_flight; i++) nw_shards_free(&s->worker.held[i], s->shard_count);
    free(s->worker.held);
    free(s->worker.from);
    s->worker.from = NULL;
}
