/*
 * server_master.c - a rank that owns parameters: takes gradients, has them applied one after the other, answers. See
 * server.c and server_private.h.
 *
 * Permits (server 0 alone). With V updates made, P permits out and U updates asked for, one more is given while V + P < U: so
 * exactly U updates are made, whatever is dropped or lost on the way.
 *
 * Waiting for old gradients (staleness wait, bound N). Let the permits that are out be sorted by the version v_1 <= v_2 <= ...
 * at which they were given, and V the present version. If they are used in this order, the i-th misses V + i - 1 - v_i
 * updates; its slack is N minus that. Giving a permit when at most N are out gives it slack >= 0. Using the j-th out of turn
 * takes one from the slack of those before it and nothing from those behind. So a gradient may be applied if all before it
 * have slack >= 1, and the oldest always may: nobody waits for ever, and no gradient misses more than N updates.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static client *client_of(server *s, int member) { return &s->master.clients[member - s->first_worker]; }
static bool is_first(const server *s) { return s->base.group.me == 0; }
static bool is_own(const server *s, const client *c) { return c->member == s->base.group.me; }
static int own_pieces(const server *s) { return s->of_server[s->base.group.me]; }

/* ---- parameters go out ---------------------------------------------------------------------------------------------------- */

/* The present parameters as messages, which all who get this version share. */
static nw_status encode_model(server *s, nw_actions *actions, const nw_codec *codec)
{
    master *m = &s->master;
    if (m->model.here > 0) return NW_OK;
    return nw_server_encode_own(s, actions, codec, m->version, &m->model);
}

static nw_status send_model(server *s, nw_actions *actions, int to)
{
    for (int i = 0; i < s->piece_count; i++)
        if (s->master.model.at[i]) NW_TRY(nw_server_send(s, actions, to, nw_message_hold(s->master.model.at[i])));
    return NW_OK;
}

/* Keeps what the worker computes from. */
static nw_status keep_backup(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    if (s->o.correction != NW_CORRECT_DC) return NW_OK;
    if (c->backup_count > 0 && c->backups[c->backup_count - 1].version == m->version) return NW_OK;
    NW_FAIL_IF(c->backup_count == IN_FLIGHT_MOST + 2, NW_E_INTERNAL, "rank %d has too many old models", c->member);
    NW_TRY(encode_model(s, actions, s->codec));
    pieces *b = &c->backups[c->backup_count++];
    for (int i = 0; i < s->piece_count; i++)
        if (m->model.at[i]) b->at[i] = nw_message_hold(m->model.at[i]);
    b->here = m->model.here;
    b->version = m->version;
    return NW_OK;
}

/* Forgets those that are older than what it computes from by now. */
static void drop_backups(server *s, client *c, int64_t version)
{
    while (c->backup_count > 0 && c->backups[0].version < version) {
        pieces oldest = c->backups[0];
        nw_pieces_drop(&oldest, s->piece_count);
        memmove(c->backups, c->backups + 1, (size_t)--c->backup_count * sizeof *c->backups);
        c->backups[c->backup_count] = oldest;
    }
}

/* Brings a worker up to date. A rank's own role has the parameters in place. */
static nw_status update_client(server *s, nw_actions *actions, client *c)
{
    if (c->has == s->master.version && c->backup_count > 0) return NW_OK;
    if (!is_own(s, c)) NW_TRY(keep_backup(s, actions, c)); /* of its own role when that begins to compute */
    if (c->has == s->master.version || is_own(s, c)) return NW_OK;
    c->has = s->master.version;
    NW_TRY(encode_model(s, actions, s->codec));
    return send_model(s, actions, c->member);
}

nw_status nw_master_own_begins(server *s, nw_actions *actions)
{
    s->worker.from[s->base.group.me].version = s->master.version;
    return keep_backup(s, actions, client_of(s, s->base.group.me));
}

/* ---- work goes out -------------------------------------------------------------------------------------------------------- */

static void set_timer(server *s, nw_actions *actions)
{
    master *m = &s->master;
    int64_t first = NW_NO_TIMER;
    for (int i = 0; s->o.deadline_ns > 0 && m->active && i < s->workers; i++) {
        const client *c = &m->clients[i];
        if (c->lost || is_own(s, c) || c->permits == c->waiting) continue;
        if (c->heard_ns + s->o.deadline_ns < first) first = c->heard_ns + s->o.deadline_ns;
    }
    bool later = m->timer != NW_NO_TIMER && first >= m->timer && first != NW_NO_TIMER;
    if (first == m->timer || later) return; /* when it rings, it is set anew */
    m->timer = first;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = first});
}

static bool may_give(const server *s, const client *c)
{
    const master *m = &s->master;
    bool waits = s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_WAIT;
    if (!is_first(s) || !m->active || c->lost || c->permits >= s->o.in_flight) return false;
    if (s->sync) return m->version < m->until && m->permits < s->workers;
    return m->version + m->permits < m->until && (!waits || m->permits <= s->o.max_staleness);
}

static nw_status give_permit(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    NW_TRY(update_client(s, actions, c));
    if (c->permits == c->waiting) c->heard_ns = s->now_ns;
    c->handed[c->permits++] = m->version;
    m->permits++;
    return nw_server_tell(s, actions, c->member, PERMIT, m->serial++, m->version);
}

/* One each, then the next one each, as long as there is something to do. In step, all begin together. */
static nw_status give_permits(server *s, nw_actions *actions)
{
    master *m = &s->master;
    if (s->sync && (m->permits > 0 || m->applying)) return NW_OK;
    for (int round = 0; round < s->o.in_flight; round++)
        for (int i = 0; i < s->workers; i++) {
            client *c = &m->clients[(m->turn + i) % s->workers];
            if (c->permits == round && may_give(s, c)) NW_TRY(give_permit(s, actions, c));
        }
    return NW_OK;
}

/* ---- the end of a run ------------------------------------------------------------------------------------------------------ */

static nw_status send_rest(server *s, nw_actions *actions, int to)
{
    master *m = &s->master;
    nw_message *message;
    uint32_t lost = 0;
    for (int i = 0; i < s->workers; i++) lost += m->clients[i].lost;
    NW_TRY(nw_server_make_message(s, actions, REST, lost * sizeof lost, 0, m->version, &message));
    uint8_t *at = message->payload;
    for (int i = 0; i < s->workers; i++) {
        uint32_t member = (uint32_t)m->clients[i].member;
        if (!m->clients[i].lost) continue;
        memcpy(at, &member, sizeof member);
        at += sizeof member;
    }
    return nw_server_send(s, actions, to, message);
}

/* The last parameters, exactly, so that all are equal at rest. */
static nw_status send_last(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    bool has_it = c->has == m->version && s->codec->exact;
    if (!has_it && !is_own(s, c)) {
        NW_TRY(encode_model(s, actions, s->exact));
        NW_TRY(send_model(s, actions, c->member));
    }
    c->has = m->version;
    drop_backups(s, c, INT64_MAX);
    return send_rest(s, actions, c->member);
}

static nw_status end_run(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->active = m->closed = false;
    if (!s->codec->exact) nw_pieces_drop(&m->model, s->piece_count);
    for (int i = 0; i < s->workers; i++)
        if (!m->clients[i].lost) NW_TRY(send_last(s, actions, &m->clients[i]));
    for (int i = 0; s->first_worker > 0 && i < s->servers; i++) { /* those who do not work have had nothing yet */
        if (i == s->base.group.me) continue;
        NW_TRY(encode_model(s, actions, s->exact));
        NW_TRY(send_model(s, actions, i));
        NW_TRY(send_rest(s, actions, i));
    }
    nw_pieces_drop(&m->model, s->piece_count);
    for (int i = 1; is_first(s) && i < s->servers; i++) NW_TRY(nw_server_tell(s, actions, i, CLOSE, 0, m->version));
    set_timer(s, actions);
    return NW_OK;
}

static bool is_over(const server *s)
{
    const master *m = &s->master;
    if (!m->active || m->applying || m->queue_count > 0) return false;
    return is_first(s) ? m->permits == 0 && m->version >= m->until : m->closed && m->version == m->closing;
}

/* ---- gradients come in ------------------------------------------------------------------------------------------------------ */

static gradient take_out(master *m, int index)
{
    gradient g = m->queue[index];
    m->queue_count--;
    memmove(m->queue + index, m->queue + index + 1, (size_t)(m->queue_count - index) * sizeof g);
    return g;
}

/* A used gradient's messages go, its list waits for the next one. */
static void put_back(server *s, gradient *g)
{
    nw_pieces_drop(&g->pieces, s->piece_count);
    if (g->report) nw_message_drop(g->report);
    s->master.spare[s->master.spare_count++] = g->pieces;
    *g = (gradient){0};
}

/* The whole gradient is here: it waits in the queue, and the client gets another list for the next one. */
static void enqueue(master *m, client *c)
{
    m->queue[m->queue_count++] = c->coming;
    c->coming = (gradient){.from = c->member, .pieces = m->spare[--m->spare_count]};
    c->waiting++;
}

static nw_status take_gradient(server *s, nw_actions *actions, nw_message *message, int from)
{
    const nw_header *h = message->header;
    client *c = client_of(s, from);
    gradient *g = &c->coming;
    if (c->lost) return is_first(s) ? nw_server_tell(s, actions, c->member, DROPPED, 0, 0) : NW_OK;
    NW_FAIL_IF(!s->master.active || c->waiting == s->o.in_flight || (is_first(s) && c->permits == c->waiting) ||
                   h->version > (uint64_t)s->master.version,
               NW_E_MESSAGE, "rank %u sent a gradient of version %" PRIu64 " that nobody asked it for", h->from,
               h->version);
    c->heard_ns = s->now_ns;
    if (h->kind == GRADIENT)
        NW_TRY(nw_pieces_add(&g->pieces, s->index[(int)h->bucket * s->servers + (int)h->part], message));
    if (h->kind == REPORT) {
        NW_FAIL_IF(h->bytes != s->o.report_bytes || g->report || !is_first(s), NW_E_MESSAGE,
                   "rank %u sent a report of %u bytes; one of %zu was expected", h->from, h->bytes, s->o.report_bytes);
        g->report = nw_message_hold(message);
    }
    g->number = (int64_t)h->step;
    g->from = c->member;
    bool complete = g->pieces.here == own_pieces(s) && (!is_first(s) || g->report);
    if (complete) enqueue(&s->master, c);
    return NW_OK;
}

nw_status nw_master_take(server *s, nw_actions *actions, nw_message *message, int from)
{
    const nw_header *h = message->header;
    if (h->kind == COPY || h->kind == TAKEN) return nw_copies_take(s, actions, message, from);
    if (h->kind == STOP) nw_master_stop(s);
    if (h->kind == STOP) return NW_OK;
    if (h->kind != CLOSE) return take_gradient(s, actions, message, from);
    NW_FAIL_IF(is_first(s) || s->master.closed, NW_E_MESSAGE, "rank %u ends a run twice", h->from);
    s->master.closed = true;
    s->master.closing = (int64_t)h->version;
    return NW_OK;
}

/* ---- updates ------------------------------------------------------------------------------------------------------------------ */

/* The version at which a client's permit of the oldest gradient not applied was given, and those behind it. */
static int64_t slack_of(const server *s, int64_t handed, int before)
{
    return s->o.max_staleness - (s->master.version + before - handed);
}

/* Whether a gradient may be applied now: all permits given before its own have slack left. */
static bool is_in_turn(const server *s, const gradient *g)
{
    const master *m = &s->master;
    if (s->o.max_staleness < 0 || s->o.staleness != NW_STALE_WAIT) return true;
    int64_t own = m->clients[g->from - s->first_worker].handed[0];
    for (int i = 0; i < s->workers; i++) {
        const client *c = &m->clients[i];
        for (int k = 0; k < c->permits; k++) {
            bool earlier = c->handed[k] < own || (c->handed[k] == own && c->member < g->from);
            int before = 0; /* permits given before this one */
            if (!earlier || c->lost) continue;
            for (int j = 0; j < s->workers; j++)
                for (int n = 0; n < m->clients[j].permits && !m->clients[j].lost; n++) {
                    int64_t v = m->clients[j].handed[n];
                    before += v < c->handed[k] || (v == c->handed[k] && m->clients[j].member < c->member) ||
                              (v == c->handed[k] && j == i && n < k);
                }
            if (slack_of(s, c->handed[k], before) < 1) return false;
        }
    }
    return true;
}

/* Where a gradient of one worker is not like the last one that it was computed from. */
static nw_status compensate(server *s, nw_actions *actions, const gradient *g)
{
    client *c = client_of(s, g->from);
    const pieces *old = NULL;
    float lambda = (float)s->o.dc_lambda;
    for (int i = 0; i < c->backup_count; i++)
        if (c->backups[i].version == g->pieces.version) old = &c->backups[i];
    NW_FAIL_IF(!old, NW_E_INTERNAL, "the model of version %" PRId64 " of rank %d is not kept", g->pieces.version,
               g->from);
    for (int i = 0; i < s->piece_count; i++) {
        if (!old->at[i]) continue;
        NW_TRY(nw_server_decode(s, actions, old->at[i], s->master.was, false));
        float *sum = s->master.sum + s->pieces[i].first;
        const float *now = values_of(s, i), *was = s->master.was;
        for (size_t k = 0; k < s->pieces[i].count; k++) sum[k] += lambda * sum[k] * sum[k] * (now[k] - was[k]);
        nw_actions_touch(actions, now, s->pieces[i].count, false);
        actions->touched += 3 * s->pieces[i].count * sizeof(float);
    }
    return NW_OK;
}

static float weight_of(const server *s, int64_t delay)
{
    double weight = s->o.correction == NW_CORRECT_INVERSE ? 1.0 / (double)(delay + 1) : 1.0;
    bool old = s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_WEIGHT && delay > s->o.max_staleness;
    return (float)(old ? weight * (double)(s->o.max_staleness + 1) / (double)(delay + 1) : weight);
}

/* A permit has been used. */
static void settle(server *s, client *c)
{
    master *m = &s->master;
    c->waiting--;
    if (!is_first(s)) return;
    c->permits--;
    m->permits--;
    memmove(c->handed, c->handed + 1, (size_t)c->permits * sizeof c->handed[0]);
}

/* The next gradients that make an update, out of the queue; none: taken_count stays 0. */
static void choose(server *s)
{
    master *m = &s->master;
    m->taken_count = 0;
    if (!s->sync) {
        for (int i = 0; i < m->queue_count && m->taken_count == 0; i++)
            if (is_in_turn(s, &m->queue[i])) m->taken[m->taken_count++] = take_out(m, i);
        return;
    }
    int expected = 0;
    for (int i = 0; i < s->workers; i++) expected += !m->clients[i].lost || m->clients[i].waiting > 0;
    if (m->queue_count < expected) return;
    for (int w = 0; w < s->workers; w++) /* in the order of ranks */
        for (int i = 0; i < m->queue_count; i++)
            if (m->queue[i].from == m->clients[w].member) {
                m->taken[m->taken_count++] = take_out(m, i);
                break;
            }
}

static nw_status apply(server *s, nw_actions *actions)
{
    master *m = &s->master;
    int64_t delay = 0;
    for (int t = 0; t < m->taken_count; t++) {
        const gradient *g = &m->taken[t];
        NW_TRY(nw_server_decode_all(s, actions, &g->pieces, m->sum, t > 0));
        m->counted_from[t] = g->from;
        m->counted_reports[t] = g->report ? g->report->payload : NULL;
        if (!s->sync) delay = m->version - g->pieces.version;
    }
    if (s->o.correction == NW_CORRECT_DC && delay > 0) NW_TRY(compensate(s, actions, &m->taken[0]));
    size_t begin = s->range[s->base.group.me];
    m->counted = (nw_count){.delay = delay,
                            .clock = (m->version + 1) * s->o.accumulation - 1,
                            .from_count = m->taken_count,
                            .from = m->counted_from,
                            .reports = m->counted_reports};
    m->applying = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = m->version,
                                       .clock = m->counted.clock,
                                       .values = s->params->values,
                                       .gradient = m->sum,
                                       .first = begin,
                                       .count = s->range[s->base.group.me + 1] - begin,
                                       .scale = s->sync ? 1.0f / (float)m->taken_count : weight_of(s, delay)});
    return NW_OK;
}

static bool is_too_old(const server *s, const gradient *g)
{
    return s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_DROP &&
           s->master.version - g->pieces.version > s->o.max_staleness;
}

static void finish(server *s)
{
    master *m = &s->master;
    for (int t = 0; t < m->taken_count; t++) {
        client *c = client_of(s, m->taken[t].from);
        settle(s, c);
        drop_backups(s, c, m->taken[t].pieces.version);
        put_back(s, &m->taken[t]);
    }
}

nw_status nw_master_applied(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->applying = false;
    m->counted.updates = ++m->version;
    if (is_first(s)) NW_TRY(nw_copies_count(s, actions));
    nw_pieces_drop(&m->model, s->piece_count);
    finish(s);
    m->turn = m->counted_from[0] - s->first_worker;
    for (int t = 0; !is_first(s) && t < m->taken_count; t++) /* server 0's go out with permits */
        NW_TRY(update_client(s, actions, client_of(s, m->counted_from[t])));
    return nw_copies_give(s, actions); /* behind the answer, for which a worker waits */
}

nw_status nw_master_go_on(server *s, nw_actions *actions)
{
    master *m = &s->master;
    while (m->active && !m->applying && !nw_copies_hold(s)) {
        choose(s);
        if (m->taken_count == 0) break;
        if (!is_too_old(s, &m->taken[0])) {
            NW_TRY(apply(s, actions));
            break;
        }
        finish(s);
    }
    NW_TRY(give_permits(s, actions));
    if (is_over(s)) return end_run(s, actions);
    set_timer(s, actions);
    return NW_OK;
}

nw_status nw_master_go(server *s, nw_actions *actions, int64_t until)
{
    master *m = &s->master;
    NW_FAIL_IF(m->active, NW_E_INTERNAL, "a run began before the last one was over");
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        c->has = m->version; /* all are equal at rest */
        if (!is_own(s, c)) NW_TRY(keep_backup(s, actions, c));
    }
    m->copied = m->version;
    m->active = true;
    m->until = until;
    return NW_OK;
}

void nw_master_stop(server *s)
{
    master *m = &s->master;
    int64_t least = m->version + (s->sync ? m->permits > 0 : m->permits);
    if (m->active && least < m->until) m->until = least;
}

/* ---- ranks that say nothing --------------------------------------------------------------------------------------------------- */

static nw_status lose(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    int living = 0, kept = c->waiting;
    NW_FAIL_IF(
        s->servers > 1, NW_E_PEER,
        "rank %d has said nothing for %.1f s, and with several servers none can be given up; --timeout sets how long",
        s->base.group.ranks[c->member], (double)(s->now_ns - c->heard_ns) * 1e-9);
    c->lost = true;
    nw_pieces_drop(&c->coming.pieces, s->piece_count);
    if (c->coming.report) nw_message_drop(c->coming.report);
    c->coming.report = NULL;
    m->permits -= c->permits - kept; /* what is here is still applied */
    c->permits = kept;
    for (int i = 0; i < s->workers; i++) living += !m->clients[i].lost;
    NW_FAIL_IF(living == 0, NW_E_PEER, "rank %d, the last worker, has said nothing for %.1f s; --timeout sets how long",
               s->base.group.ranks[c->member], (double)(s->now_ns - c->heard_ns) * 1e-9);
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_DROP, .to = s->base.group.ranks[c->member]});
    return NW_OK;
}

nw_status nw_master_rang(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->timer = NW_NO_TIMER;
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        bool owes = !c->lost && !is_own(s, c) && c->permits > c->waiting;
        if (owes && s->now_ns - c->heard_ns >= s->o.deadline_ns) NW_TRY(lose(s, actions, c));
    }
    return NW_OK;
}

void nw_master_waits(const server *s, nw_wait *wait)
{
    const master *m = &s->master;
    if (m->copying > 0 && (!m->active || nw_copies_hold(s))) return nw_copies_waits(s, wait);
    for (int i = 0; m->active && i < s->workers; i++) {
        const client *c = &m->clients[i];
        bool owes = is_first(s) ? c->permits > c->waiting : c->waiting == 0;
        if (owes && !c->lost && !is_own(s, c)) nw_wait_add(wait, &s->base.group, c->member);
    }
    snprintf(wait->what, sizeof wait->what, "gradients, after %" PRId64 " updates of %" PRId64, m->version, m->until);
}

/* ---- life ----------------------------------------------------------------------------------------------------------------------- */

nw_status nw_master_make(server *s)
{
    master *m = &s->master;
    size_t workers = (size_t)s->workers, slots = workers * (size_t)s->o.in_flight, most = 0;
    m->timer = NW_NO_TIMER;
    m->clients = calloc(workers, sizeof *m->clients);
    m->queue = calloc(slots, sizeof *m->queue);
    m->spare = calloc(slots, sizeof *m->spare);
    m->taken = calloc(workers, sizeof *m->taken);
    m->sum = calloc(s->params->learned.floats, sizeof *m->sum);
    m->counted_from = calloc(workers, sizeof *m->counted_from);
    m->counted_reports = calloc(workers, sizeof *m->counted_reports);
    NW_FAIL_IF(!m->clients || !m->queue || !m->spare || !m->taken || !m->sum || !m->counted_from || !m->counted_reports,
               NW_E_MEMORY, "no memory for a server of %zu parameters and %d workers", s->params->learned.floats,
               s->workers);
    NW_TRY(nw_pieces_make(&m->model, s->piece_count));
    for (; m->spare_count < (int)slots; m->spare_count++)
        NW_TRY(nw_pieces_make(&m->spare[m->spare_count], s->piece_count));
    for (int i = 0; i < s->piece_count; i++) most = s->pieces[i].count > most ? s->pieces[i].count : most;
    if (s->o.correction == NW_CORRECT_DC) m->was = malloc(most * sizeof *m->was);
    NW_FAIL_IF(s->o.correction == NW_CORRECT_DC && !m->was, NW_E_MEMORY, "no memory for %zu old parameters", most);
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        c->member = s->first_worker + i;
        c->coming.from = c->member;
        NW_TRY(nw_pieces_make(&c->coming.pieces, s->piece_count));
        for (int b = 0; s->o.correction == NW_CORRECT_DC && b < IN_FLIGHT_MOST + 2; b++)
            NW_TRY(nw_pieces_make(&c->backups[b], s->piece_count));
    }
    return NW_OK;
}

static void free_gradient(server *s, gradient *g)
{
    nw_pieces_free(&g->pieces, s->piece_count);
    if (g->report) nw_message_drop(g->report);
}

void nw_master_free(server *s)
{
    master *m = &s->master;
    for (int i = 0; i < m->queue_count; i++) free_gradient(s, &m->queue[i]);
    for (int i = 0; m->applying && i < m->taken_count; i++) free_gradient(s, &m->taken[i]);
    for (int i = 0; i < m->spare_count; i++) nw_pieces_free(&m->spare[i], s->piece_count);
    for (int i = 0; m->clients && i < s->workers; i++) {
        free_gradient(s, &m->clients[i].coming);
        for (int b = 0; b < IN_FLIGHT_MOST + 2; b++) nw_pieces_free(&m->clients[i].backups[b], s->piece_count);
    }
    nw_pieces_free(&m->model, s->piece_count);
    nw_copies_free(s);
    free(m->clients);
    free(m->queue);
    free(m->spare);
    free(m->was);
    free(m->taken);
    free(m->sum);
    free(m->counted_from);
    free(m->counted_reports);
}
