/*
 * server_worker.c - a rank that computes gradients for a parameter server. See server_private.h.
 *
 * It computes whenever it has a permit, and starts with the newest parameters that have come. Pieces of the gradient leave
 * as soon as they are final. Parameters that come while it computes wait: a gradient is taken at one version of a server's
 * range from its beginning to its end.
 */
#include "exchange/server_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters that come ----------------------------------------------------------------------------------------------- */

static nw_status put_in_place(server *s, nw_actions *actions, source *from)
{
    pieces *p = &from->ready;
    if (p->here == 0) return NW_OK;
    nw_status status = nw_server_decode_all(s, actions, p, s->params->values, false);
    from->version = p->version;
    nw_pieces_drop(p, s->piece_count);
    return status;
}

static nw_status put_all_in_place(server *s, nw_actions *actions)
{
    for (int i = 0; i < s->servers; i++) NW_TRY(put_in_place(s, actions, &s->worker.from[i]));
    return NW_OK;
}

/* All pieces are here: they wait for the computation under way, in the place of those that wait already. */
static nw_status complete(server *s, source *from)
{
    pieces older = from->ready;
    nw_pieces_drop(&older, s->piece_count);
    from->ready = from->coming;
    from->coming = older;
    from->answered++;
    return NW_OK;
}

static nw_status take_piece(server *s, nw_message *m, int server_index)
{
    const nw_header *h = m->header;
    source *from = &s->worker.from[server_index];
    NW_TRY(nw_pieces_add(&from->coming, s->index[(int)h->bucket * s->servers + (int)h->part], m));
    return from->coming.here == s->of_server[server_index] ? complete(s, from) : NW_OK;
}

/* ---- the end of a run ------------------------------------------------------------------------------------------------------ */

static nw_status lose_ranks(server *s, nw_actions *actions, const nw_message *m)
{
    size_t count = m->header->bytes / sizeof(uint32_t);
    for (size_t i = 0; i < count; i++) {
        uint32_t member;
        memcpy(&member, m->payload + i * sizeof member, sizeof member);
        NW_FAIL_IF(member >= (uint32_t)s->base.group.count, NW_E_MESSAGE,
                   "rank %u says that member %u was dropped; there are %d", m->header->from, member, s->base.group.count);
        if ((int)member != s->base.group.me)
            nw_actions_add(actions, (nw_action){.kind = NW_ACTION_DROP, .to = s->base.group.ranks[member]});
    }
    return NW_OK;
}

static nw_status rest(server *s, nw_actions *actions, const nw_message *m, int server_index)
{
    worker *w = &s->worker;
    source *from = &w->from[server_index];
    NW_FAIL_IF(w->computing || w->permit_count > 0, NW_E_MESSAGE,
               "rank %u ends the run while this rank still computes for it", m->header->from);
    NW_TRY(put_in_place(s, actions, from));
    if (server_index != s->base.group.me) NW_TRY(lose_ranks(s, actions, m));
    from->version = (int64_t)m->header->version;
    from->answered = w->sent;
    from->rests = true;
    for (int i = 0; i < s->servers; i++)
        if (!w->from[i].rests) return NW_OK;
    w->active = false;
    return NW_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------------------- */

static nw_status take_permit(worker *w, const nw_header *h)
{
    NW_FAIL_IF(w->permit_count == IN_FLIGHT_MOST, NW_E_MESSAGE, "rank %u asks for more than %d gradients at a time",
               h->from, IN_FLIGHT_MOST);
    w->permits[w->permit_count++] = (int64_t)h->step;
    return NW_OK;
}

nw_status nw_worker_take(server *s, nw_actions *actions, nw_message *m, int from)
{
    NW_FAIL_IF(m->header->kind != DROPPED && !s->worker.active, NW_E_MESSAGE,
               "rank %u sent work to rank %u between two runs", m->header->from,
               s->base.group.ranks[s->base.group.me]);
    switch (m->header->kind) {
    case MODEL:
        return take_piece(s, m, from);
    case PERMIT:
        return take_permit(&s->worker, m->header);
    case REST:
        return rest(s, actions, m, from);
    default:
        return NW_FAIL(NW_E_PEER,
                       "rank %u has given up this rank, which said nothing for too long; --timeout sets how long",
                       m->header->from);
    }
}

nw_status nw_worker_give(server *s, nw_actions *actions, size_t first)
{
    worker *w = &s->worker;
    for (; w->given < s->piece_count && s->pieces[w->given].first >= first; w->given++) {
        const piece *p = &s->pieces[w->given];
        nw_message *m;
        NW_TRY(nw_server_encode(s, actions, s->codec, GRADIENT, w->given, w->number, w->from[p->server].version,
                                s->params->gradients + p->first, &m));
        NW_TRY(nw_server_send(s, actions, p->server, m));
    }
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
    NW_TRY(nw_worker_give(s, actions, 0));
    NW_TRY(send_report(s, actions));
    s->worker.given = 0;
    s->worker.sent++;
    s->worker.computing = false;
    return NW_OK;
}

/* Gradients of this rank that a server has not answered. Its own one, which has the parameters in place, need not say so. */
static int64_t unanswered(const server *s, int server_rank)
{
    const worker *w = &s->worker;
    if (server_rank == s->base.group.me) return s->master.clients[s->base.group.me - s->first_worker].waiting;
    return w->sent - w->from[server_rank].answered;
}

nw_status nw_worker_go_on(server *s, nw_actions *actions)
{
    worker *w = &s->worker;
    if (!w->active || w->computing || w->permit_count == 0) return NW_OK;
    if (s->serves && s->master.applying) return NW_OK; /* which comes first; its range is in place then */
    for (int i = 1; i < s->servers; i++)               /* server 0 says so with its permit */
        if (unanswered(s, i) >= s->o.in_flight) return NW_OK;
    NW_TRY(put_all_in_place(s, actions));
    if (s->serves) NW_TRY(nw_master_own_begins(s, actions));
    w->number = w->permits[0];
    memmove(w->permits, w->permits + 1, (size_t)--w->permit_count * sizeof w->permits[0]);
    w->computing = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = w->begun++});
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------------------- */

nw_status nw_worker_make(server *s)
{
    s->worker.from = calloc((size_t)s->servers, sizeof *s->worker.from);
    NW_FAIL_IF(!s->worker.from, NW_E_MEMORY, "no memory for %d servers", s->servers);
    for (int i = 0; i < s->servers; i++) {
        NW_TRY(nw_pieces_make(&s->worker.from[i].coming, s->piece_count));
        NW_TRY(nw_pieces_make(&s->worker.from[i].ready, s->piece_count));
    }
    return NW_OK;
}

void nw_worker_free(server *s)
{
    for (int i = 0; s->worker.from && i < s->servers; i++) {
        nw_pieces_free(&s->worker.from[i].coming, s->piece_count);
        nw_pieces_free(&s->worker.from[i].ready, s->piece_count);
    }
    free(s->worker.from);
    s->worker.from = NULL;
}
