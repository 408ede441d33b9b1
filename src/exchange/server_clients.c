/*
 * server_clients.c - workers as a server sees them: the parameters and credits that they get, and what happens when one
 * does not answer, and when it comes back. See server.c and server_private.h.
 *
 * Credits (server 0 only). With V updates made, P credits outstanding and U updates wanted, one more credit is given
 * while V + P < U. So exactly U updates are made, however many gradients are discarded or workers dropped.
 *
 * Bounded memory. A credit is a promise to store the gradient that is computed for it. So the number of outstanding
 * credits, plus the gradients that the slowest of the other servers still holds, never exceeds what fits into memory;
 * workers then get their credits in rotation. Synchronous: the gradients of as many workers as fit are added, then the
 * next workers get credits, in the order of ranks, so that the sum has the same bits as without the bound. One gradient
 * always fits, and every gradient that is used makes room for another, so no worker waits for ever. (Other servers may
 * hold gradients of a dropped worker in addition, until it joins again or the run is over.)
 *
 * Timeouts. A worker that has a credit and sends nothing for `deadline_ns` (measured while the server itself runs) is
 * dropped: its credits go to others, nobody waits for it, and what it sends is ignored. The other servers are told,
 * because an order UPDATE may name a gradient whose shards they will never get. When the worker sends something again,
 * it is told that it was dropped; it forgets its work and joins again like a new worker, at once, or, between two runs,
 * when the next one begins. A server cannot be dropped: if workers are silent because another server is, the run fails
 * and names that server.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank_of(const server *s, int member) { return s->base.group.ranks[member]; }

/* ---- sending parameters ------------------------------------------------------------------------------------------ */

/* Encodes the present parameters once; all workers that get this version share the messages. */
static nw_status encode_model(server *s, nw_actions *actions, nw_plain plain)
{
    master *m = &s->master;
    if (m->model.here > 0) return NW_OK;
    return nw_server_encode_model(s, actions, plain, m->version, &m->model);
}

static nw_status send_model(server *s, nw_actions *actions, int to)
{
    for (int i = 0; i < s->shard_count; i++)
        if (s->master.model.at[i]) NW_TRY(nw_server_send(s, actions, to, nw_message_hold(s->master.model.at[i])));
    return NW_OK;
}

/* For dc-asgd: keeps the parameters that the worker computes from. */
static nw_status keep_backup(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    if (s->o.correction != NW_CORRECT_DC) return NW_OK;
    if (c->backup_count > 0 && c->backups[c->backup_count - 1].version == m->version) return NW_OK;
    NW_FAIL_IF(c->backup_count == IN_FLIGHT_MOST + 2, NW_E_INTERNAL, "rank %d has too many old models",
               rank_of(s, c->member));
    shards *b = &c->backups[c->backup_count++];
    b->version = m->version;
    for (int i = 0; s->shadowed && i < s->layout.count; i++) {
        nw_message **at = &b->at[shard_of(s, (uint32_t)i, s->base.group.me)];
        NW_TRY(nw_shadows_copy(s, actions, c, i, at));
        b->here += *at != NULL;
    }
    if (s->shadowed) return NW_OK;
    NW_TRY(encode_model(s, actions, NW_CODED));
    for (int i = 0; i < s->shard_count; i++)
        if (m->model.at[i]) b->at[i] = nw_message_hold(m->model.at[i]);
    b->here = m->model.here;
    return NW_OK;
}

void nw_clients_drop_backups(server *s, client *c, int64_t version)
{
    while (c->backup_count > 0 && c->backups[0].version < version) {
        shards oldest = c->backups[0];
        nw_shards_drop(&oldest, s->shard_count);
        memmove(c->backups, c->backups + 1, (size_t)--c->backup_count * sizeof *c->backups);
        c->backups[c->backup_count] = oldest;
    }
}

nw_status nw_clients_update(server *s, nw_actions *actions, client *c)
{
    if (c->has == s->master.version && c->backup_count > 0) return NW_OK;
    bool sends = c->has != s->master.version && !is_own(s, c);
    if (sends && s->shadowed) NW_TRY(nw_shadows_send(s, actions, c)); /* first, because the backup is the new shadow */
    if (!is_own(s, c)) NW_TRY(keep_backup(s, actions, c));            /* for the own role: nw_clients_own_begins */
    c->has = sends ? s->master.version : c->has;
    if (!sends || s->shadowed) return NW_OK;
    NW_TRY(encode_model(s, actions, NW_CODED));
    return send_model(s, actions, c->member);
}

nw_status nw_clients_own_begins(server *s, nw_actions *actions)
{
    s->worker.from[s->base.group.me].version = s->master.version;
    return keep_backup(s, actions, client_of(s, s->base.group.me));
}

/* ---- giving credits ---------------------------------------------------------------------------------------------- */

/* Sends an order about a worker to each of the other servers. */
static nw_status tell_peers(server *s, nw_actions *actions, int kind, int member, int64_t step)
{
    for (int i = 1; i < s->servers; i++) {
        nw_message *message;
        NW_TRY(nw_server_make_message(s, actions, kind, 0, step, s->master.version, &message));
        message->header->part = (uint16_t)member;
        NW_TRY(nw_server_send(s, actions, i, message));
    }
    return NW_OK;
}

/* Whether every server can store one more gradient. */
static bool has_room(const server *s)
{
    const master *m = &s->master;
    int64_t behind = 0;
    if (s->room == INT_MAX) return true;
    for (int i = 1; i < s->servers; i++)
        if (m->done - m->peers[i].taken > behind) behind = m->done - m->peers[i].taken;
    return m->credits.out + behind < s->room;
}

static bool may_give_credit(const server *s)
{
    const master *m = &s->master;
    bool waits = s->o.max_staleness >= 0 && s->o.staleness == NW_STALE_WAIT;
    if (s->sync) return m->version < m->until && has_room(s);
    return m->version + m->credits.out < m->until && (!waits || m->credits.out <= s->o.max_staleness) && has_room(s);
}

static nw_status give_credit(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    NW_TRY(tell_peers(s, actions, PUSH, c->member, m->serial));
    NW_TRY(nw_clients_update(s, actions, c));
    if (credits_of(s, c) == c->waiting) c->heard_ns = s->now_ns;
    nw_credits_give(&m->credits, number_of(s, c), m->version);
    m->owed++;
    return nw_server_tell(s, actions, c->member, CREDIT, m->serial++, m->version);
}

/* The next worker that has had no credit for this update yet; -1: there is none. */
static int next_together(const server *s)
{
    int next = nw_credits_next(&s->master.credits, s->master.next, 0);
    return next >= s->master.next ? next : -1;
}

bool nw_clients_more(const server *s)
{
    return s->room < INT_MAX && s->master.next < s->workers && next_together(s) >= 0;
}

/* Synchronous: all workers get a credit at the same time, or as many as gradients fit. */
static nw_status give_credits_together(server *s, nw_actions *actions)
{
    master *m = &s->master;
    bool begins = m->credits.out == 0 && m->summed == 0;
    if (m->applying || (!begins && s->room == INT_MAX)) return NW_OK;
    if (begins) m->next = 0;
    for (int next; m->next < s->workers && may_give_credit(s) && (next = next_together(s)) >= 0;) {
        m->next = next + 1;
        NW_TRY(give_credit(s, actions, &m->clients[next]));
    }
    return NW_OK;
}

/* Every worker gets its first credit before any gets a second one, and so on. */
nw_status nw_clients_give_credits(server *s, nw_actions *actions)
{
    master *m = &s->master;
    bool changing = actions->running && actions->running->kind == NW_TASK_UPDATE; /* the parameters */
    if (changing || m->told) return NW_OK;
    if (s->sync) return give_credits_together(s, actions);
    for (int round = 0; round < s->o.in_flight && may_give_credit(s);) {
        int next = nw_credits_next(&m->credits, m->first_served, round);
        if (next < 0)
            round++;
        else
            NW_TRY(give_credit(s, actions, &m->clients[next]));
    }
    return NW_OK;
}

/* ---- begin and end of a run -------------------------------------------------------------------------------------- */

nw_status nw_clients_go(server *s, nw_actions *actions)
{
    master *m = &s->master;
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        if (c->joins) NW_TRY(nw_clients_return(s, actions, c, true));
        if (c->dropped || c->has < 0) continue;
        c->has = m->version; /* all are equal when quiescent */
        nw_shadows_are_exact(s, actions, c);
        if (!is_own(s, c)) NW_TRY(keep_backup(s, actions, c));
    }
    for (int i = 1; i < s->servers && is_first(s); i++)
        m->peers[i] = (peer){.version = m->version, .heard_ns = s->now_ns};
    return NW_OK;
}

/* Sends OVER with the list of dropped members. */
static nw_status send_over(server *s, nw_actions *actions, int to)
{
    master *m = &s->master;
    nw_message *message;
    size_t bytes = (size_t)m->dropped_count * sizeof(uint32_t);
    NW_TRY(nw_server_make_message(s, actions, OVER, bytes, 0, m->version, &message));
    uint8_t *at = message->payload;
    for (int i = 0; at < message->payload + bytes; i++) {
        uint32_t member = (uint32_t)m->clients[i].member;
        if (!m->clients[i].dropped) continue;
        memcpy(at, &member, sizeof member);
        at += sizeof member;
    }
    return nw_server_send(s, actions, to, message);
}

/* Sends the exact last parameters, so that all replicas are equal when quiescent. */
static nw_status send_last(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    bool has_it = c->has == m->version && s->exact;
    if (!has_it && !is_own(s, c)) {
        NW_TRY(encode_model(s, actions, NW_PLAINLY));
        NW_TRY(send_model(s, actions, c->member));
    }
    c->has = m->version;
    nw_clients_drop_backups(s, c, INT64_MAX);
    return send_over(s, actions, c->member);
}

nw_status nw_clients_end_run(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->active = false;
    if (!s->exact) nw_shards_drop(&m->model, s->shard_count);
    for (int i = 0; i < s->workers; i++) {
        if (m->clients[i].dropped)
            nw_updates_purge(s, &m->clients[i]);
        else
            NW_TRY(send_last(s, actions, &m->clients[i]));
    }
    for (int i = 0; s->first_worker > 0 && i < s->servers; i++) { /* servers that are not workers */
        if (i == s->base.group.me) continue;
        NW_TRY(encode_model(s, actions, NW_PLAINLY));
        NW_TRY(send_model(s, actions, i));
        NW_TRY(send_over(s, actions, i));
    }
    nw_shards_drop(&m->model, s->shard_count);
    for (int i = 1; is_first(s) && i < s->servers; i++) NW_TRY(nw_server_tell(s, actions, i, CLOSE, 0, m->version));
    nw_clients_set_timer(s, actions);
    return NW_OK;
}

/* ---- dropping workers, and their return -------------------------------------------------------------------------- */

/* Frees the gradient that is being received. */
static void forget_work(server *s, client *c)
{
    nw_shards_drop(&c->coming.shards, s->shard_count);
    if (c->coming.report) nw_message_drop(c->coming.report);
    c->coming.report = NULL;
}

static void set_dropped(server *s, client *c, bool dropped)
{
    s->master.dropped_count += dropped - c->dropped;
    c->dropped = dropped;
}

nw_status nw_clients_forget(server *s, nw_actions *actions, client *c)
{
    set_dropped(s, c, true);
    c->told = false;
    c->has = -1;
    forget_work(s, c);
    if (!is_own(s, c)) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_DROP, .to = rank_of(s, c->member)});
    return NW_OK;
}

nw_status nw_clients_join(server *s, nw_actions *actions, client *c, int64_t least)
{
    nw_updates_purge(s, c);
    set_dropped(s, c, false);
    c->joins = false;
    if (is_first(s)) nw_credits_open(&s->master.credits, number_of(s, c));
    c->has = -1;
    c->least = least;
    c->heard_ns = s->now_ns;
    forget_work(s, c);
    nw_clients_drop_backups(s, c, INT64_MAX);
    if (!is_own(s, c)) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_BACK, .to = rank_of(s, c->member)});
    return NW_OK;
}

nw_status nw_clients_return(server *s, nw_actions *actions, client *c, bool joins)
{
    master *m = &s->master;
    if (joins && !m->active) { /* between two runs: it joins when the next one begins */
        c->joins = true;
        return NW_OK;
    }
    if (!joins) {
        if (c->told) return NW_OK;
        c->told = true;
        return nw_server_tell(s, actions, c->member, DROPPED, c->came, 0);
    }
    NW_TRY(tell_peers(s, actions, JOINED, c->member, m->serial));
    return nw_clients_join(s, actions, c, m->serial);
}

/* Drops a worker whose deadline has passed. */
static nw_status drop_worker(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    m->owed -= credits_of(s, c) - c->waiting;
    nw_credits_close(&m->credits, number_of(s, c), c->waiting); /* gradients in the queue are still applied */
    NW_TRY(nw_clients_forget(s, actions, c));
    NW_TRY(tell_peers(s, actions, CANCEL, c->member, 0));
    NW_FAIL_IF(m->dropped_count == s->workers, NW_E_PEER,
               "rank %d, the last worker, has sent nothing for %.1f s; --timeout sets the limit", rank_of(s, c->member),
               (double)(s->now_ns - c->heard_ns) * 1e-9);
    return NW_OK;
}

/* Another server that has made fewer than `version` updates; of several, the one that was silent longest. 0: none. */
static int server_behind(const server *s, int64_t version)
{
    const master *m = &s->master;
    int found = 0;
    for (int i = 1; is_first(s) && i < s->servers; i++)
        if (m->peers[i].version < version && (!found || m->peers[i].heard_ns < m->peers[found].heard_ns)) found = i;
    return found;
}

/* The time at which a worker is dropped. If the worker still waits for parameters of a slower server, *server_index is
 * that server, and the deadline is the server's. */
static int64_t deadline_of(const server *s, const client *c, int *server_index)
{
    if (c->dropped || is_own(s, c) || credits_of(s, c) == c->waiting) return NW_NO_TIMER;
    *server_index = server_behind(s, nw_credits_last(&s->master.credits, number_of(s, c)));
    return s->o.deadline_ns + (*server_index ? s->master.peers[*server_index].heard_ns : c->heard_ns);
}

void nw_clients_note_progress(server *s, int server_index, int64_t version, int64_t taken)
{
    master *m = &s->master;
    int64_t before = m->peers[server_index].version;
    m->peers[server_index] = (peer){.version = version, .taken = taken, .heard_ns = s->now_ns};
    for (int i = nw_credits_since(&m->credits, before); i < m->credits.sorted_count; i++)
        m->clients[m->credits.sorted[i].holder].heard_ns = s->now_ns; /* it waited for that server until now */
}

nw_status nw_clients_timed_out(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->timer = NW_NO_TIMER;
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        int behind = 0;
        if (deadline_of(s, c, &behind) > s->now_ns) continue;
        NW_FAIL_IF(
            behind, NW_E_PEER,
            "rank %d, a server, has sent nothing for %.1f s, and a server cannot be replaced; --timeout sets the limit",
            rank_of(s, behind), (double)(s->now_ns - m->peers[behind].heard_ns) * 1e-9);
        NW_TRY(drop_worker(s, actions, c));
    }
    return NW_OK;
}

/* The earliest deadline of another server. */
static int64_t servers_deadline(const server *s)
{
    int64_t first = NW_NO_TIMER;
    for (int i = 1; i < s->servers; i++) {
        const peer *f = &s->master.peers[i];
        if (f->version < s->master.version && s->o.deadline_ns + f->heard_ns < first)
            first = s->o.deadline_ns + f->heard_ns;
    }
    return first;
}

/* Sets the timer to the earliest deadline. Deadlines of workers only move later, so a timer that is set never fires too
 * late; when it fires, deadlines are computed again. A deadline of another server can become earlier, when a credit was
 * given that waits for that server. */
void nw_clients_set_timer(server *s, nw_actions *actions)
{
    master *m = &s->master;
    int64_t first = NW_NO_TIMER;
    int behind;
    bool needed = s->o.deadline_ns > 0 && m->active && is_first(s) && m->owed > 0;
    int64_t servers = needed ? servers_deadline(s) : NW_NO_TIMER;
    bool nearer = servers < m->timer && (servers != m->looked_at || m->serial != m->looked_serial);
    if (needed == (m->timer != NW_NO_TIMER) && !nearer) return;
    m->looked_at = servers;
    m->looked_serial = m->serial;
    for (int i = 0; needed && i < s->workers; i++) {
        int64_t deadline = deadline_of(s, &m->clients[i], &behind);
        if (deadline < first) first = deadline;
    }
    if (first == m->timer || (first > m->timer && first != NW_NO_TIMER)) return;
    m->timer = first;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = first});
}

void nw_clients_waits(const server *s, nw_wait *wait)
{
    const master *m = &s->master;
    int behind = server_behind(s, m->version);
    if (!is_first(s) && m->active && !m->orders) nw_wait_add(wait, &s->base.group, 0);
    if (behind) nw_wait_add(wait, &s->base.group, behind);
    for (int i = 1; is_first(s) && !behind && !has_room(s) && i < s->servers; i++)
        if (m->peers[i].taken < m->done) nw_wait_add(wait, &s->base.group, i); /* it has to make room */
    for (int i = 0; m->active && wait->count == 0 && i < s->workers; i++) {
        const client *c = &m->clients[i];
        bool owes = is_first(s) ? credits_of(s, c) > c->waiting : c->waiting == 0;
        if (owes && !c->dropped && !is_own(s, c)) nw_wait_add(wait, &s->base.group, c->member);
    }
    snprintf(wait->what, sizeof wait->what, "gradients, after %" PRId64 " updates of %" PRId64, m->version, m->until);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_clients_make(server *s)
{
    master *m = &s->master;
    m->timer = NW_NO_TIMER;
    NW_NEW(m->clients, s->workers, "%d workers", s->workers);
    NW_NEW(m->peers, s->servers, "%d workers", s->workers);
    NW_TRY(nw_credits_make(&m->credits, s->workers, s->o.in_flight));
    NW_TRY(nw_shards_make(&m->model, s->shard_count));
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        c->member = c->coming.from = s->first_worker + i;
        NW_TRY(nw_shards_make(&c->coming.shards, s->shard_count));
        for (int b = 0; s->o.correction == NW_CORRECT_DC && b < IN_FLIGHT_MOST + 2; b++)
            NW_TRY(nw_shards_make(&c->backups[b], s->shard_count));
    }
    return NW_OK;
}

void nw_clients_free(server *s)
{
    master *m = &s->master;
    for (int i = 0; m->clients && i < s->workers; i++) {
        client *c = &m->clients[i];
        nw_shards_free(&c->coming.shards, s->shard_count);
        if (c->coming.report) nw_message_drop(c->coming.report);
        for (int b = 0; b < IN_FLIGHT_MOST + 2; b++) nw_shards_free(&c->backups[b], s->shard_count);
    }
    nw_shards_free(&m->model, s->shard_count);
    nw_credits_free(&m->credits);
    free(m->clients);
    free(m->peers);
}
