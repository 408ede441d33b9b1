/*
 * server_clients.c - workers as a server sees them: the parameters and credits that they get, and what happens when one
 * is silent and when it comes back. See server.c and server_private.h.
 *
 * Credits (server 0 alone). With V updates made, P credits out and U updates asked for, one more is given while V + P <
 * U: so exactly U updates are made, whatever is thrown away or dropped on the way.
 *
 * Room. A credit is a promise to hold the gradient that comes of it. So where memory is bounded, the gradients that
 * credits are out for, and those that the slowest of the other servers still holds, are never more than there is room
 * for; workers take turns then, each gets its credit behind all others. Synchronously, an update is made of several turns:
 * gradients of as many workers as there is room for are added, and then the next ones are asked for, in the order of
 * ranks, so that sums have the same bits. One gradient always fits, and nothing but a gradient makes room: nobody waits
 * for ever. (Other servers may hold gradients of a dropped worker on top, until it is back or the run is over.)
 *
 * Silence. A worker that has a credit and says nothing for `deadline_ns` of the server's own time is dropped: its
 * credits are given to others, nobody waits for it, and what it sends is ignored. Other servers are told, since a turn
 * may lack its shards. When it says something again it is told so, forgets what it had, and joins as one that has
 * nothing. Joining takes effect at once, or, between two runs, when the next one begins. A server cannot be dropped: if
 * workers are silent because another server is, the run fails and names it.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank_of(const server *s, int member) { return s->base.group.ranks[member]; }

/* ---- parameters go out ------------------------------------------------------------------------------------------- */

/* The present parameters as messages, which all who get this version share. */
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

/* Keeps what the worker computes from. */
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
    if (sends && s->shadowed) NW_TRY(nw_shadows_send(s, actions, c)); /* what it has then is what is backed up */
    if (!is_own(s, c)) NW_TRY(keep_backup(s, actions, c));            /* of its own role when that begins to compute */
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

/* ---- work goes out ----------------------------------------------------------------------------------------------- */

/* A header for each of the other servers. */
static nw_status tell_fellows(server *s, nw_actions *actions, int kind, int member, int64_t step)
{
    for (int i = 1; i < s->servers; i++) {
        nw_message *message;
        NW_TRY(nw_server_make_message(s, actions, kind, 0, step, s->master.version, &message));
        message->header->part = (uint16_t)member;
        NW_TRY(nw_server_send(s, actions, i, message));
    }
    return NW_OK;
}

/* Whether every server can hold one gradient more. */
static bool has_room(const server *s)
{
    const master *m = &s->master;
    int64_t behind = 0;
    if (s->room == INT_MAX) return true;
    for (int i = 1; i < s->servers; i++)
        if (m->done - m->fellows[i].taken > behind) behind = m->done - m->fellows[i].taken;
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
    NW_TRY(tell_fellows(s, actions, GIVE, c->member, m->serial));
    NW_TRY(nw_clients_update(s, actions, c));
    if (credits_of(s, c) == c->waiting) c->heard_ns = s->now_ns;
    nw_credits_give(&m->credits, number_of(s, c), m->version);
    m->owed++;
    return nw_server_tell(s, actions, c->member, CREDIT, m->serial++, m->version);
}

/* The next worker that has had no credit for this update; -1: there is none. */
static int next_together(const server *s)
{
    int next = nw_credits_next(&s->master.credits, s->master.next, 0);
    return next >= s->master.next ? next : -1;
}

bool nw_clients_more(const server *s)
{
    return s->room < INT_MAX && s->master.next < s->workers && next_together(s) >= 0;
}

/* If it is synchronous, all begin together, or as many as there is room for. */
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

/* One each, then the next one each, as long as there is something to do. */
nw_status nw_clients_give_credits(server *s, nw_actions *actions)
{
    master *m = &s->master;
    bool changing = actions->running && actions->running->kind == NW_TASK_UPDATE; /* what would be sent */
    if (changing || m->told) return NW_OK;
    if (s->sync) return give_credits_together(s, actions);
    for (int round = 0; round < s->o.in_flight && may_give_credit(s);) {
        int next = nw_credits_next(&m->credits, m->turn, round);
        if (next < 0)
            round++;
        else
            NW_TRY(give_credit(s, actions, &m->clients[next]));
    }
    return NW_OK;
}

/* ---- runs begin and end ------------------------------------------------------------------------------------------ */

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
        m->fellows[i] = (fellow){.version = m->version, .heard_ns = s->now_ns};
    return NW_OK;
}

/* With the members that are dropped. */
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

/* The last parameters, exactly, so that all are equal when quiescent. */
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
            nw_turns_purge(s, &m->clients[i]);
        else
            NW_TRY(send_last(s, actions, &m->clients[i]));
    }
    for (int i = 0; s->first_worker > 0 && i < s->servers; i++) { /* those who do not work have had nothing yet */
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

/* ---- silence and return ------------------------------------------------------------------------------------------ */

/* What it was asked for and what came of it half. */
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
    nw_turns_purge(s, c);
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
    if (joins && !m->active) { /* when the next run begins */
        c->joins = true;
        return NW_OK;
    }
    if (!joins) {
        if (c->told) return NW_OK;
        c->told = true;
        return nw_server_tell(s, actions, c->member, DROPPED, c->came, 0);
    }
    NW_TRY(tell_fellows(s, actions, JOINED, c->member, m->serial));
    return nw_clients_join(s, actions, c, m->serial);
}

/* A worker is silent. */
static nw_status drop_worker(server *s, nw_actions *actions, client *c)
{
    master *m = &s->master;
    m->owed -= credits_of(s, c) - c->waiting;
    nw_credits_close(&m->credits, number_of(s, c), c->waiting); /* what is here is still applied */
    NW_TRY(nw_clients_forget(s, actions, c));
    NW_TRY(tell_fellows(s, actions, CANCEL, c->member, 0));
    NW_FAIL_IF(m->dropped_count == s->workers, NW_E_PEER,
               "rank %d, the last worker, has been silent for %.1f s; --timeout sets how long it may be",
               rank_of(s, c->member), (double)(s->now_ns - c->heard_ns) * 1e-9);
    return NW_OK;
}

/* Another server that has not made so many updates yet; of several, the one that was silent longest. 0: there is
 * none. */
static int server_behind(const server *s, int64_t version)
{
    const master *m = &s->master;
    int found = 0;
    for (int i = 1; is_first(s) && i < s->servers; i++)
        if (m->fellows[i].version < version && (!found || m->fellows[i].heard_ns < m->fellows[found].heard_ns))
            found = i;
    return found;
}

/* When a worker has been silent for too long. One that cannot have its model yet is excused, and that server has to say
 * something instead. */
static int64_t deadline_of(const server *s, const client *c, int *server_index)
{
    if (c->dropped || is_own(s, c) || credits_of(s, c) == c->waiting) return NW_NO_TIMER;
    *server_index = server_behind(s, nw_credits_last(&s->master.credits, number_of(s, c)));
    return s->o.deadline_ns + (*server_index ? s->master.fellows[*server_index].heard_ns : c->heard_ns);
}

void nw_clients_hear_server(server *s, int server_index, int64_t version, int64_t taken)
{
    master *m = &s->master;
    int64_t before = m->fellows[server_index].version;
    m->fellows[server_index] = (fellow){.version = version, .taken = taken, .heard_ns = s->now_ns};
    for (int i = nw_credits_since(&m->credits, before); i < m->credits.sorted_count; i++)
        m->clients[m->credits.sorted[i].holder].heard_ns = s->now_ns; /* who waited for it has its time from now on */
}

nw_status nw_clients_rang(server *s, nw_actions *actions)
{
    master *m = &s->master;
    m->timer = NW_NO_TIMER;
    for (int i = 0; i < s->workers; i++) {
        client *c = &m->clients[i];
        int behind = 0;
        if (deadline_of(s, c, &behind) > s->now_ns) continue;
        NW_FAIL_IF(
            behind, NW_E_PEER,
            "rank %d, a server, has said nothing for %.1f s, and a server cannot be replaced; --timeout sets how "
            "long",
            rank_of(s, behind), (double)(s->now_ns - m->fellows[behind].heard_ns) * 1e-9);
        NW_TRY(drop_worker(s, actions, c));
    }
    return NW_OK;
}

/* Before this no other server's silence can be too long. */
static int64_t servers_deadline(const server *s)
{
    int64_t first = NW_NO_TIMER;
    for (int i = 1; i < s->servers; i++) {
        const fellow *f = &s->master.fellows[i];
        if (f->version < s->master.version && s->o.deadline_ns + f->heard_ns < first)
            first = s->o.deadline_ns + f->heard_ns;
    }
    return first;
}

/* Workers' deadlines only move on: a timer that is set rings early enough, and then they are looked at again. Those of
 * other servers may be nearer, if a credit was given since that waits for one. */
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
        if (m->fellows[i].taken < m->done) nw_wait_add(wait, &s->base.group, i); /* it has to make room */
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
    NW_NEW(m->fellows, s->servers, "%d workers", s->workers);
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
    free(m->fellows);
}
