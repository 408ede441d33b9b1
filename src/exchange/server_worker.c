/*
 * server_worker.c - a rank that computes gradients for a parameter server. See server_private.h.
 *
 * It computes a gradient whenever it has a credit, from the newest version of the parameters that it has from all
 * servers. Shards of the gradient are sent as soon as they are final. Parameters that arrive during the computation
 * wait until its end, so that a gradient uses one version throughout. A rank that is also a server uses its own range
 * in place.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- receiving parameters ---------------------------------------------------------------------------------------- */

/* Releases the models that are not newer than the version in use. */
static void drop_ready(server *s, source *from, int64_t version)
{
    while (from->ready_count > 0 && from->ready[0].version <= version) {
        shards oldest = from->ready[0];
        nw_shards_drop(&oldest, s->shard_count);
        memmove(from->ready, from->ready + 1, (size_t)--from->ready_count * sizeof oldest);
        from->ready[from->ready_count] = oldest;
    }
}

/* Whether any shard of a model is a difference from the model before it. */
static bool has_differences(const server *s, const shards *model)
{
    for (int i = 0; i < s->shard_count; i++)
        if (model->at[i] && model->at[i]->header->flags == DIFFERENCE) return true;
    return false;
}

/* Writes a model to the parameters: differences are added, other shards replace the range. */
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

/* The newest version that has arrived from all other servers; -1: there is none. */
static int64_t newest_version(const server *s)
{
    const worker *w = &s->worker;
    int first = s->base.group.me == 0 && s->servers > 1 ? 1 : 0; /* a server that is not this rank */
    const source *from = &w->from[first];
    if (first == s->base.group.me) return s->master.version; /* there is no other server */
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

/* Receives a shard. A complete model waits until the present computation ends; if too many wait, the oldest is
 * released. */
static nw_status take_shard(server *s, nw_message *m, int server_index)
{
    const nw_header *h = m->header;
    source *from = &s->worker.from[server_index];
    NW_TRY(nw_shards_add(&from->coming, shard_of(s, h->bucket, h->part), m));
    if (from->coming.here < s->of_server[server_index]) return NW_OK;
    if (from->ready_count == READY_MOST) {
        NW_FAIL_IF(s->shadowed && has_differences(s, &from->coming), NW_E_MESSAGE,
                   "rank %u sent more than %d models before this rank could use them", h->from, READY_MOST);
        drop_ready(s, from, from->ready[0].version);
    }
    shards empty = from->ready[from->ready_count];
    from->ready[from->ready_count++] = from->coming;
    from->coming = empty;
    return NW_OK;
}

/* ---- the end of a run -------------------------------------------------------------------------------------------- */

/* Server 0 sends the list of dropped workers; all others are present, or present again. */
static nw_status note_dropped(server *s, nw_actions *actions, const nw_message *m)
{
    size_t count = m->header->bytes / sizeof(uint32_t), k = 0;
    if (count == 0 && s->worker.lost == 0) return NW_OK; /* unchanged */
    s->worker.lost = (int)count;
    for (int i = 0; i < s->workers; i++) {
        int member = s->first_worker + i;
        uint32_t dropped = UINT32_MAX; /* the next dropped member; the list is sorted */
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
               "rank %u ends the run while this rank still computes a gradient", m->header->from);
    if (server_index != s->base.group.me) NW_TRY(put_in_place(s, actions, from, (int64_t)m->header->version));
    if (server_index == 0 && s->base.group.me != 0) NW_TRY(note_dropped(s, actions, m));
    from->version = (int64_t)m->header->version;
    from->over = true;
    for (int i = 0; i < s->servers; i++)
        if (!w->from[i].over) return NW_OK;
    for (int i = 0; w->held && i < s->o.in_flight; i++)
        nw_shards_drop(&w->held[i], s->shard_count); /* all were answered */
    w->active = false;
    return NW_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static nw_status take_credit(worker *w, const nw_header *h)
{
    NW_FAIL_IF(w->credit_count == IN_FLIGHT_MOST, NW_E_MESSAGE, "rank %u gave more than %d credits at a time", h->from,
               IN_FLIGHT_MOST);
    w->credits[w->credit_count++] = (credit){(int64_t)h->step, (int64_t)h->version};
    return NW_OK;
}

/* ---- refused gradients ---- */

/* Puts the content of a refused gradient back into the error memory. */
static nw_status put_back_shards(server *s, nw_actions *actions, shards *held)
{
    bool kept;
    for (int i = 0; i < s->shard_count; i++)
        if (held->at[i]) NW_TRY(nw_channel_undo(&s->up, actions, held->at[i], &kept));
    nw_shards_drop(held, s->shard_count);
    return NW_OK;
}

/* Does so for the credit with this number, or for this and all later ones. */
static nw_status put_back_from(server *s, nw_actions *actions, int64_t number, bool later)
{
    for (int i = 0; s->returns && i < s->o.in_flight; i++) {
        shards *held = &s->worker.held[i];
        if (held->here > 0 && (held->version == number || (later && held->version > number)))
            NW_TRY(put_back_shards(s, actions, held));
    }
    return NW_OK;
}

/* Where the gradient in progress is kept until the server has surely answered it. A new credit proves that the gradient
 * begun `in_flight` gradients before it was answered: it was used, or refused and put back. */
static shards *held_of(server *s) { return &s->worker.held[(s->worker.begun - 1) % s->o.in_flight]; }

/* This rank was dropped, perhaps because it was suspended; others do its work. Gradients that did not arrive are put
 * back into the error memory. */
static nw_status join_again(server *s, nw_actions *actions, int64_t came)
{
    worker *w = &s->worker;
    NW_TRY(put_back_from(s, actions, came, true));
    w->credit_count = 0;
    w->dropped = w->computing;
    return nw_server_tell(s, actions, 0, JOIN, 0, 0);
}

nw_status nw_worker_receive(server *s, nw_actions *actions, nw_message *m, int from)
{
    NW_FAIL_IF(!s->worker.active, NW_E_MESSAGE, "rank %u sent a message to worker %u between two runs", m->header->from,
               s->base.group.ranks[s->base.group.me]);
    switch (m->header->kind) {
    case MODEL:
        return take_shard(s, m, from);
    case CREDIT:
        return take_credit(&s->worker, m->header);
    case OVER:
        return run_over(s, actions, m, from);
    case REFUSED:
        return put_back_from(s, actions, (int64_t)m->header->step, false);
    default:
        return join_again(s, actions, (int64_t)m->header->step);
    }
}

/* Encodes a bucket as a whole, because codecs see whole items, and sends each server its part. */
static nw_status send_bucket(server *s, nw_actions *actions, int bucket)
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

nw_status nw_worker_send(server *s, nw_actions *actions, size_t first)
{
    worker *w = &s->worker;
    for (; !w->dropped && w->sent < s->layout.count && s->layout.at[w->sent].first >= first; w->sent++)
        NW_TRY(send_bucket(s, actions, w->sent));
    return NW_OK;
}

/* Sends the numbers about the batch; with them the gradient is complete. */
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
    NW_TRY(nw_worker_send(s, actions, 0));
    if (!w->dropped) NW_TRY(send_report(s, actions));
    w->sent = 0;
    w->computing = w->dropped = false;
    return NW_OK;
}

nw_status nw_worker_go_on(server *s, nw_actions *actions)
{
    worker *w = &s->worker;
    if (!w->active || w->computing || w->credit_count == 0) return NW_OK;
    if (s->serves && (s->master.applying || s->master.version < w->credits[0].version))
        return NW_OK; /* this rank's own range is being updated, or is too old */
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
