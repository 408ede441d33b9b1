/*
 * server_updates.c - receives gradients and applies them one after the other. See server.c and server_private.h.
 *
 * Server 0 chooses which gradient is applied next. It tells the other servers (UPDATE), which do the same in the same
 * order, each in its range; an update waits until all shards of its gradients have arrived. So all ranges have the same
 * history, and "after n updates" means the same on all servers. Parameters are sent to workers in the same order
 * (PUSH), so that a worker gets one version from all servers.
 *
 * With staleness wait, credits.h says which gradients may be applied.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int own_shards(const server *s) { return s->of_server[s->base.group.me]; }

/* The most gradients of one worker that can be in the queue. Other servers than 0 need twice as many: server 0 may have
 * discarded all of them and given new credits, and they have not been told yet. */
static int most_waiting(const server *s) { return is_first(s) ? s->o.in_flight : 2 * s->o.in_flight; }

/* ---- receiving gradients ----------------------------------------------------------------------------------------- */

/* Removes the oldest of a worker's gradients from the queue; there must be one. */
static gradient *take_oldest(master *m, client *c)
{
    gradient *g = c->oldest;
    c->oldest = g->next;
    *(g->before ? &g->before->behind : &m->first) = g->behind;
    *(g->behind ? &g->behind->before : &m->last) = g->before;
    m->queue_count--;
    return g;
}

/* Releases the messages of a used gradient, and keeps its list for the next one. */
static void put_back(server *s, gradient *g)
{
    nw_shards_drop(&g->shards, s->shard_count);
    if (g->report) nw_message_drop(g->report);
    *g = (gradient){.shards = g->shards, .next = s->master.spare};
    s->master.spare = g;
}

/* Puts a complete gradient into the queue, and gives the client a spare list for its next one. */
static void enqueue(server *s, client *c)
{
    master *m = &s->master;
    gradient *g = m->spare;
    shards empty = g->shards;
    m->spare = g->next;
    if (is_first(s)) m->owed--;
    *g = c->coming;
    g->before = m->last;
    *(m->last ? &m->last->behind : &m->first) = g;
    m->last = g;
    *(c->oldest ? &c->newest->next : &c->oldest) = g;
    c->newest = g;
    m->queue_count++;
    c->coming = (gradient){.from = c->member, .shards = empty};
    c->waiting++;
}

void nw_updates_purge(server *s, client *c)
{
    master *m = &s->master;
    while (c->oldest) put_back(s, take_oldest(m, c));
    if (is_first(s)) m->owed -= credits_of(s, c) - c->waiting;
    c->waiting = 0;
    if (is_first(s)) nw_credits_close(&m->credits, number_of(s, c), 0);
}

static nw_status take_gradient(server *s, nw_actions *actions, nw_message *message, int from)
{
    const nw_header *h = message->header;
    client *c = client_of(s, from);
    gradient *g = &c->coming;
    if (c->dropped) return is_first(s) ? nw_clients_return(s, actions, c, false) : NW_OK;
    if ((int64_t)h->step < c->least) return NW_OK; /* from before it was dropped */
    NW_FAIL_IF(!s->master.active || c->waiting == most_waiting(s) || (is_first(s) && credits_of(s, c) == c->waiting),
               NW_E_MESSAGE, "rank %u sent a gradient of version %" PRIu64 " for which it has no credit", h->from,
               h->version);
    c->heard_ns = s->now_ns;
    if (h->kind == GRADIENT) NW_TRY(nw_shards_add(&g->shards, shard_of(s, h->bucket, h->part), message));
    if (h->kind == REPORT) {
        NW_FAIL_IF(h->bytes != s->o.report_bytes || g->report || !is_first(s), NW_E_MESSAGE,
                   "rank %u sent a report of %u bytes; one of %zu was expected", h->from, h->bytes, s->o.report_bytes);
        g->report = nw_message_hold(message);
    }
    g->number = (int64_t)h->step;
    g->from = c->member;
    bool complete = g->shards.here == own_shards(s) && (!is_first(s) || g->report);
    NW_FAIL_IF(complete && g->shards.version > s->master.version, NW_E_MESSAGE,
               "rank %u sent a gradient of version %" PRId64 ", but only %" PRId64 " updates were made", h->from,
               g->shards.version, s->master.version);
    if (!complete) return NW_OK;
    c->came = g->number + 1;
    enqueue(s, c);
    return NW_OK;
}

/* Receives an order of server 0: CANCEL takes effect at once, the others wait in a list. */
static nw_status take_order(server *s, nw_actions *actions, nw_message *message)
{
    master *m = &s->master;
    const nw_header *h = message->header;
    bool of_worker = h->kind == PUSH || h->kind == CANCEL || h->kind == JOINED;
    NW_FAIL_IF(is_first(s) || (of_worker && (h->part < s->first_worker || h->part >= s->first_worker + s->workers)),
               NW_E_MESSAGE, "rank %u sent an order of kind %u for worker %u, which this server cannot carry out",
               h->from, h->kind, h->part);
    if (h->kind == CANCEL) return nw_clients_forget(s, actions, client_of(s, h->part));
    message->next = NULL;
    *m->last_order = nw_message_hold(message);
    m->last_order = &message->next;
    return NW_OK;
}

/* Another server reports its progress (APPLIED). */
static nw_status take_progress(server *s, const nw_header *h, int from)
{
    const peer *f = &s->master.peers[from];
    int64_t version = (int64_t)h->version, taken = (int64_t)h->step;
    bool goes_on = is_first(s) && version >= f->version && taken >= f->taken && version + taken > f->version + f->taken;
    NW_FAIL_IF(!goes_on || version > s->master.version + 1 || taken > s->master.done + s->workers, NW_E_MESSAGE,
               "rank %u reports an impossible progress: %" PRIu64 " updates, %" PRIu64 " gradients", h->from,
               h->version, h->step);
    nw_clients_note_progress(s, from, version, taken);
    return NW_OK;
}

nw_status nw_updates_receive(server *s, nw_actions *actions, nw_message *message, int from)
{
    const nw_header *h = message->header;
    switch (h->kind) {
    case COPY:
    case TAKEN:
        return nw_copies_receive(s, actions, message, from);
    case STOP:
        nw_updates_stop(s);
        return NW_OK;
    case JOIN:
        NW_FAIL_IF(!is_first(s) || from < s->first_worker || !client_of(s, from)->dropped, NW_E_MESSAGE,
                   "rank %u wants to join again, but is not a dropped worker", h->from);
        return nw_clients_return(s, actions, client_of(s, from), true);
    case APPLIED:
        return take_progress(s, h, from);
    case GRADIENT:
    case REPORT:
        return take_gradient(s, actions, message, from);
    default:
        return take_order(s, actions, message);
    }
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

static void compensate_tile(const server *s, const nw_tile *tile, float lambda)
{
    float *sum = s->master.sum + tile->first;
    const float *now = s->params->values + tile->first, *was = s->master.was + tile->place;
    for (uint32_t k = 0; k < tile->count; k++) sum[k] += lambda * sum[k] * sum[k] * (now[k] - was[k]);
}

/* Delay compensation: adds lambda g g (x - x_old), x_old being the parameters from which the gradient was computed. */
static nw_status compensate(server *s, nw_actions *actions, const gradient *g)
{
    client *c = client_of(s, g->from);
    const shards *old = NULL;
    float lambda = (float)s->o.dc_lambda;
    for (int i = 0; i < c->backup_count; i++)
        if (c->backups[i].version == g->shards.version) old = &c->backups[i];
    NW_FAIL_IF(!old, NW_E_MESSAGE, "member %d sent a gradient of version %" PRId64 ", which it was never sent", g->from,
               g->shards.version);
    for (int i = 0; i < s->shard_count; i++) {
        const nw_block *b = block_of(s, i);
        int cut = server_of(s, i);
        if (!old->at[i]) continue;
        NW_TRY(nw_server_decode(s, actions, old->at[i], s->master.was, NW_AT_PLACE, false));
        for (int t = b->cut_tile[cut]; t < b->cut_tile[cut + 1]; t++) compensate_tile(s, &b->tiles[t], lambda);
        nw_channel_touch(actions, b, cut, s->params->values, false);
        actions->touched += 3 * b->cut_floats[cut] * sizeof(float);
    }
    return NW_OK;
}

static float weight_of(const server *s, int64_t delay)
{
    double weight = s->o.correction == NW_CORRECT_INVERSE ? 1.0 / (double)(delay + 1) : 1.0;
    bool old = s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_WEIGHT && delay > s->o.max_staleness;
    return (float)(old ? weight * (double)(s->o.max_staleness + 1) / (double)(delay + 1) : weight);
}

/* A credit has been used. */
static void use_credit(server *s, client *c)
{
    c->waiting--;
    if (is_first(s)) nw_credits_use(&s->master.credits, number_of(s, c));
}

/* Asynchronous: the first gradient in the queue that may be applied now. */
static gradient *find_next(const server *s)
{
    const master *m = &s->master;
    if (s->o.max_staleness < 0 || s->o.staleness != NW_STALE_WAIT || !m->first) return m->first;
    int places = nw_credits_usable(&m->credits, m->version, s->o.max_staleness);
    for (gradient *g = m->first; g; g = g->behind)
        if (nw_credits_place(&m->credits, g->from - s->first_worker) < places) return g;
    return NULL;
}

/* Takes the gradients of the next update out of the queue, in the order of members; taken_count is 0 if none is due. */
static void choose_gradients(server *s)
{
    master *m = &s->master;
    m->taken_count = 0;
    if (!s->sync) {
        const gradient *next = find_next(s);
        if (next) m->taken[m->taken_count++] = take_oldest(m, client_of(s, next->from));
        return;
    }
    if (m->queue_count < m->credits.out)
        return; /* one of each; a worker that has just joined waits for the next update */
    for (int i = 0; m->queue_count > 0; i++)
        if (m->clients[i].oldest) m->taken[m->taken_count++] = take_oldest(m, &m->clients[i]);
}

/* Which half of counted_from, counted_reports and reports belongs to the next update. */
static size_t side_of(const server *s) { return (size_t)(s->master.version & 1) * (size_t)s->workers; }

/* Adds the taken gradients to the sum, and records whose they are. */
static nw_status add_taken(server *s, nw_actions *actions)
{
    master *m = &s->master;
    for (int t = 0; t < m->taken_count; t++, m->summed++) {
        const gradient *g = m->taken[t];
        size_t place = side_of(s) + (size_t)m->summed;
        uint8_t *report = m->reports + place * s->o.report_bytes;
        NW_TRY(nw_server_decode_all(s, actions, &g->shards, m->sum, m->summed > 0));
        m->counted_from[place] = g->from;
        m->counted_reports[place] = report;
        if (g->report && s->o.report_bytes > 0) memcpy(report, g->report->payload, s->o.report_bytes);
    }
    return NW_OK;
}

/* Requests the update with the taken gradients and those that were added before. */
static nw_status apply(server *s, nw_actions *actions, int64_t delay)
{
    master *m = &s->master;
    size_t begin = s->range[s->base.group.me];
    nw_count *counted = &m->counted[m->version & 1];
    NW_TRY(add_taken(s, actions));
    if (s->o.correction == NW_CORRECT_DC && delay > 0) NW_TRY(compensate(s, actions, m->taken[0]));
    *counted = (nw_count){.updates = m->version + 1,
                          .delay = delay,
                          .clock = (m->version + 1) * s->o.accumulation - 1,
                          .thrown_away = m->thrown_away,
                          .from_count = m->summed,
                          .from = m->counted_from + side_of(s),
                          .reports = m->counted_reports + side_of(s)};
    m->applying = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = m->version,
                                       .clock = counted->clock,
                                       .values = s->params->values,
                                       .gradient = m->sum,
                                       .first = begin,
                                       .count = s->range[s->base.group.me + 1] - begin,
                                       .scale = s->sync ? 1.0f / (float)m->summed : weight_of(s, delay)});
    return NW_OK;
}

static void finish(server *s)
{
    master *m = &s->master;
    for (int t = 0; t < m->taken_count; t++) {
        client *c = client_of(s, m->taken[t]->from);
        use_credit(s, c);
        nw_clients_drop_backups(s, c, m->taken[t]->shards.version);
        put_back(s, m->taken[t]);
    }
    m->done += is_first(s) ? m->taken_count : m->ordered;
    m->taken_count = 0;
}

nw_status nw_updates_applied(server *s, nw_actions *actions)
{
    master *m = &s->master;
    const int *from = m->counted[m->version & 1].from;
    m->applying = m->told = false;
    m->version++;
    if (is_first(s)) NW_TRY(nw_copies_count(s, actions));
    nw_shards_drop(&m->model, s->shard_count);
    m->first_served = (from[0] - s->first_worker + (s->room < INT_MAX)) % s->workers;
    m->summed = 0;
    finish(s);
    if (!is_first(s)) NW_TRY(nw_server_tell(s, actions, 0, APPLIED, m->done, m->version));
    return nw_copies_send(s, actions); /* after the answer, for which a worker waits */
}

/* ---- the first server chooses ------------------------------------------------------------------------------------ */

static bool is_too_old(const server *s, const gradient *g)
{
    return s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_DROP &&
           s->master.version - g->shards.version > s->o.max_staleness;
}

/* Tells the other servers which gradients it has taken. */
static nw_status tell_update(server *s, nw_actions *actions, int64_t delay, int flags)
{
    master *m = &s->master;
    for (int i = 1; i < s->servers; i++) {
        nw_message *message;
        size_t bytes = (size_t)m->taken_count * sizeof(uint32_t);
        NW_TRY(nw_server_make_message(s, actions, UPDATE, bytes, m->version, delay, &message));
        message->header->flags = (uint8_t)flags;
        for (int t = 0; t < m->taken_count; t++) {
            uint32_t member = (uint32_t)m->taken[t]->from;
            memcpy(message->payload + (size_t)t * sizeof member, &member, sizeof member);
        }
        if (m->peers[i].version == m->version) m->peers[i].heard_ns = s->now_ns; /* it had nothing to do until now */
        NW_TRY(nw_server_send(s, actions, i, message));
    }
    return NW_OK;
}

/* *chosen: an update was requested; the caller must tell the other servers, after the credits that are given with the
 * parameters before this update. */
static nw_status choose_next(server *s, nw_actions *actions, bool *chosen)
{
    master *m = &s->master;
    *chosen = false;
    while (!m->applying && !nw_copies_hold(s)) {
        choose_gradients(s);
        bool partial = s->sync && nw_clients_more(s);
        bool complete =
            !partial && m->summed > 0 && m->credits.out == 0; /* all workers that were to add to it are dropped */
        if (m->taken_count == 0 && !complete) return NW_OK;
        if (partial) {
            NW_TRY(tell_update(s, actions, 0, PARTIAL));
            NW_TRY(add_taken(s, actions));
            finish(s);
            return NW_OK;
        }
        int64_t delay = s->sync ? 0 : m->version - m->taken[0]->shards.version;
        *chosen = s->sync || !is_too_old(s, m->taken[0]);
        if (*chosen) return apply(s, actions, delay);
        NW_TRY(tell_update(s, actions, delay, DISCARD));
        if (s->returns) NW_TRY(nw_server_tell(s, actions, m->taken[0]->from, REFUSED, m->taken[0]->number, m->version));
        m->thrown_away++;
        finish(s);
    }
    return NW_OK;
}

/* ---- the other servers follow ------------------------------------------------------------------------------------ */

/* Takes the gradients of an order UPDATE out of the queue, if all have arrived that will arrive. */
static nw_status take_ordered(server *s, const nw_message *order, bool *there)
{
    master *m = &s->master;
    size_t count = order->header->bytes / sizeof(uint32_t);
    size_t least = s->sync && s->room < INT_MAX ? 0 : 1;
    NW_FAIL_IF(count < least || count > (size_t)s->workers - (size_t)m->summed ||
                   (int64_t)order->header->step != m->version,
               NW_E_MESSAGE, "rank %u orders update %" PRIu64 " with %zu gradients, but %" PRId64 " updates were made",
               order->header->from, order->header->step, count, m->version);
    *there = true;
    m->ordered = (int)count;
    for (int pass = 0; pass < 2 && *there; pass++) {
        for (size_t i = 0; i < count; i++) {
            uint32_t member;
            memcpy(&member, order->payload + i * sizeof member, sizeof member);
            NW_FAIL_IF((int)member < s->first_worker || (int)member >= s->first_worker + s->workers, NW_E_MESSAGE,
                       "rank %u orders an update with the gradient of member %u", order->header->from, member);
            client *c = client_of(s, (int)member);
            if (!c->oldest && !c->dropped) *there = false;
            if (pass == 1 && c->oldest) m->taken[m->taken_count++] = take_oldest(m, c);
        }
    }
    return NW_OK;
}

/* An update whose gradients never arrived here: it is counted, but changes nothing. */
static nw_status skip_update(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->version++;
    finish(s);
    nw_shards_drop(&m->model, s->shard_count);
    NW_TRY(nw_server_tell(s, actions, 0, APPLIED, m->done, m->version));
    return nw_copies_send(s, actions);
}

/* *done is false if the order has to wait. */
static nw_status carry_out_update(server *s, nw_actions *actions, const nw_message *order, bool *done)
{
    master *m = &s->master;
    int flags = order->header->flags;
    *done = false;
    if (flags == 0 && nw_copies_hold(s)) return NW_OK;
    NW_TRY(take_ordered(s, order, done));
    if (!*done) return NW_OK;
    if (flags == PARTIAL) NW_TRY(add_taken(s, actions));
    if (flags != 0) {
        finish(s);
        return flags == PARTIAL ? nw_server_tell(s, actions, 0, APPLIED, m->done, m->version) : NW_OK;
    }
    return m->taken_count + m->summed > 0 ? apply(s, actions, (int64_t)order->header->version)
                                          : skip_update(s, actions);
}

static nw_status carry_out(server *s, nw_actions *actions, const nw_message *order, bool *done)
{
    const nw_header *h = order->header;
    *done = true;
    switch (h->kind) {
    case PUSH:
        return client_of(s, h->part)->dropped ? NW_OK : nw_clients_update(s, actions, client_of(s, h->part));
    case JOINED:
        return nw_clients_join(s, actions, client_of(s, h->part), (int64_t)h->step);
    case CLOSE:
        NW_FAIL_IF((int64_t)h->version != s->master.version, NW_E_MESSAGE,
                   "rank %u ends the run after %" PRIu64 " updates, but %" PRId64 " were made", h->from, h->version,
                   s->master.version);
        return nw_clients_end_run(s, actions);
    default:
        return carry_out_update(s, actions, order, done);
    }
}

static nw_status carry_out_orders(server *s, nw_actions *actions)
{
    master *m = &s->master;
    bool done = true;
    while (done && m->active && !m->applying && m->orders) {
        nw_message *order = m->orders;
        nw_status status = carry_out(s, actions, order, &done);
        if (done || status != NW_OK) {
            m->orders = order->next;
            if (!m->orders) m->last_order = &m->orders;
            nw_message_drop(order);
        }
        NW_TRY(status);
    }
    return NW_OK;
}

/* ---- begin, progress and end of a run ---------------------------------------------------------------------------- */

nw_status nw_updates_go_on(server *s, nw_actions *actions)
{
    master *m = &s->master;
    if (!m->active) return NW_OK;
    if (!is_first(s)) return carry_out_orders(s, actions);
    bool chosen;
    NW_TRY(choose_next(s, actions, &chosen));
    NW_TRY(nw_clients_give_credits(s, actions));
    if (chosen) NW_TRY(tell_update(s, actions, m->counted[m->version & 1].delay, 0));
    if (chosen) m->told = s->servers > 1;
    bool over = !m->applying && m->queue_count == 0 && m->credits.out == 0 && m->version >= m->until;
    if (over) return nw_clients_end_run(s, actions);
    nw_clients_set_timer(s, actions);
    return NW_OK;
}

nw_status nw_updates_go(server *s, nw_actions *actions, int64_t until)
{
    master *m = &s->master;
    NW_FAIL_IF(m->active, NW_E_INTERNAL, "a run began before the last one was over");
    m->copied = m->version;
    m->active = true;
    m->done = 0;
    m->until = until;
    return nw_clients_go(s, actions);
}

void nw_updates_stop(server *s)
{
    master *m = &s->master;
    int64_t least = m->version + (s->sync ? m->credits.out > 0 || m->summed > 0 : m->credits.out);
    if (m->active && least < m->until) m->until = least;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_updates_make(server *s)
{
    master *m = &s->master;
    size_t workers = (size_t)s->workers, slots = workers * (size_t)most_waiting(s), most = 0;
    m->last_order = &m->orders;
    NW_NEW(m->slots, slots, "%zu gradients of workers", slots);
    NW_NEW(m->taken, workers, "%d workers", s->workers);
    NW_NEW(m->sum, s->params->learned.floats, "%zu parameters", s->params->learned.floats);
    NW_NEW(m->counted_from, 2 * workers, "%d workers", s->workers);
    NW_NEW(m->counted_reports, 2 * workers, "%d workers", s->workers);
    NW_NEW(m->reports, 2 * workers * (s->o.report_bytes + 1), "reports of %d workers", s->workers);
    for (size_t i = 0; i < slots; i++) {
        NW_TRY(nw_shards_make(&m->slots[i].shards, s->shard_count));
        m->slots[i].next = m->spare;
        m->spare = &m->slots[i];
    }
    for (int i = 0; i < s->shard_count; i++) most = floats_of(s, i) > most ? floats_of(s, i) : most;
    if (s->o.correction == NW_CORRECT_DC) NW_NEW(m->was, most, "%zu old parameters", most);
    return NW_OK;
}

void nw_updates_free(server *s)
{
    master *m = &s->master;
    int slots = m->slots ? s->workers * most_waiting(s) : 0;
    for (nw_message *order = m->orders, *next; order; order = next) {
        next = order->next;
        nw_message_drop(order);
    }
    for (int i = 0; i < slots; i++) {
        nw_shards_free(&m->slots[i].shards, s->shard_count);
        if (m->slots[i].report) nw_message_drop(m->slots[i].report);
    }
    nw_copies_free(s);
    free(m->slots);
    free(m->was);
    free(m->taken);
    free(m->sum);
    free(m->counted_from);
    free(m->counted_reports);
    free(m->reports);
}
