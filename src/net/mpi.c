/*
 * mpi.c - see mpi.h. Reading order: run at the bottom, then wait, then progress.
 *
 * A message is one MPI message with one tag: header and payload in one piece. Receives are matched by probing, since an
 * exchange need not know beforehand what comes; the payload goes straight into memory of the pool. Messages of one
 * sender are handed on in the order in which they were sent.
 *
 * Between runs (nw_driver_allgather and the like) messages of exchanges that are ahead are put aside until the next
 * run, so that what is saved or compared then does not change under its reader.
 */
#include "net/mpi.h"

#if NW_HAVE_MPI

#include "base/clock.h"
#include "net/mpi_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECEIVES = 64 /* under way at most */ };
static const int64_t GRACE_NS = 1500000000; /* in which the others write down what they know */

typedef struct receiving {
    nw_message *message;
    size_t size;
    int from;
    bool here;
} receiving;

typedef struct sending {
    nw_message *message;
    int to;
} sending;

/* A queue of messages. */
typedef struct mail {
    nw_message *first, **last;
} mail;

typedef struct mpi_driver {
    nw_driver base;
    nw_announce announce; /* what tasks call */
    MPI_Comm comm;
    nw_rank *rank;      /* in the run under way; NULL between runs */
    nw_own_clock clock; /* what deadlines, timers and machines are told */
    sending *sends;     /* in no order */
    MPI_Request *send_requests;
    int *sent; /* room for those that are through */
    int send_count, send_capacity;
    receiving receives[RECEIVES]; /* in the order in which they were matched */
    MPI_Request receive_requests[RECEIVES];
    int receive_count;
    mail early, control;  /* for the next run; of drivers */
    mail newer;           /* from ranks that have gone back to a checkpoint before this one */
    int64_t *last_ns;     /* by rank: when its last message arrived */
    nw_header *last;      /* by rank: its last message */
    int awaited;          /* the first rank whose word between runs is missing; -1: none */
    nw_status failure;    /* found in the middle of a computation */
    int64_t timer;        /* when it shall ring; NW_NO_TIMER: never */
    int64_t idle;         /* own time since when it has nothing to do */
    int64_t *received_ns; /* by rank: own time at which its last message of this run arrived */
    int dropped_count;    /* ranks that nobody waits for */
    bool failing;
} mpi_driver;

/* ---- small things ------------------------------------------------------------------------------------------------ */

static void mail_add(mail *m, nw_message *message)
{
    message->next = NULL;
    if (!m->first) m->last = &m->first;
    *m->last = message;
    m->last = &message->next;
}

static nw_message *mail_take(mail *m)
{
    nw_message *message = m->first;
    if (message) m->first = message->next;
    return message;
}

static void hook(mpi_driver *m, nw_span span, int64_t begin)
{
    const nw_driver_hooks *hooks = &m->base.options.hooks;
    if (hooks->span) hooks->span(hooks->context, m->base.first, span, begin, nw_now_ns(), m->rank ? m->rank->step : 0);
}

static int64_t own_now(mpi_driver *m) { return nw_own_clock_now(&m->clock); }

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static nw_status make_room(mpi_driver *m)
{
    if (m->send_count < m->send_capacity) return NW_OK;
    int capacity = m->send_capacity ? 2 * m->send_capacity : 256;
    sending *sends = realloc(m->sends, (size_t)capacity * sizeof *sends);
    if (sends) m->sends = sends;
    MPI_Request *requests = realloc(m->send_requests, (size_t)capacity * sizeof *requests);
    if (requests) m->send_requests = requests;
    int *sent = realloc(m->sent, (size_t)capacity * sizeof *sent);
    if (sent) m->sent = sent;
    NW_FAIL_IF(!sends || !requests || !sent, NW_E_MEMORY, "no memory for %d messages under way", capacity);
    m->send_capacity = capacity;
    return NW_OK;
}

/* Takes over the reference. */
static nw_status post(mpi_driver *m, int to, nw_message *message)
{
    NW_TRY_OR(make_room(m), nw_message_drop(message));
    nw_driver_stamp(&m->base, m->base.first, to, message);
    size_t bytes = nw_message_size(message);
    if (m->base.options.ledger) nw_ledger_transport(m->base.options.ledger, NW_SENT, bytes);
    m->sends[m->send_count] = (sending){.message = message, .to = to};
    MPI_TRY(MPI_Isend(message->header, (int)bytes, MPI_BYTE, to, NW_MPI_TAG, m->comm, &m->send_requests[m->send_count]),
            "send a message");
    m->send_count++;
    return NW_OK;
}

/* Its place is free for the last. */
static void remove_send(mpi_driver *m, int index)
{
    m->send_count--;
    m->sends[index] = m->sends[m->send_count];
    m->send_requests[index] = m->send_requests[m->send_count];
}

/* What is under way to a dropped rank stays with MPI, which may still read it: its memory is not given back. */
static void drop(mpi_driver *m, int rank, bool back)
{
    if (m->base.dropped[rank] == back) m->dropped_count += back ? -1 : 1;
    nw_driver_drop(&m->base, m->base.first, rank, back);
    nw_mpi_process.fewer = m->dropped_count > 0;
    for (int i = m->send_count - 1; i >= 0 && !back; i--) {
        if (m->sends[i].to != rank) continue;
        MPI_Request_free(&m->send_requests[i]);
        remove_send(m, i);
    }
}

/* Posts what the exchange wants sent. */
static nw_status post_all(mpi_driver *m)
{
    nw_actions *actions = &m->base.actions;
    nw_status status = NW_OK;
    for (int i = 0; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_TIMER) m->timer = a->at_ns;
        if (a->kind == NW_ACTION_DROP || a->kind == NW_ACTION_BACK) drop(m, a->to, a->kind == NW_ACTION_BACK);
        if (a->kind != NW_ACTION_SEND) continue;
        if (status == NW_OK)
            status = post(m, a->to, a->message);
        else
            nw_message_drop(a->message);
    }
    actions->count = 0;
    return status;
}

static nw_status tell_machine(mpi_driver *m, nw_event event)
{
    event.now_ns = own_now(m);
    NW_TRY(nw_rank_tell(&m->base, m->rank, event));
    return post_all(m);
}

static nw_status give_to_machine(mpi_driver *m, nw_message *message)
{
    int64_t begin = nw_now_ns();
    nw_status status = tell_machine(m, (nw_event){.kind = NW_EVENT_MESSAGE, .message = message});
    nw_message_drop(message);
    hook(m, NW_SPAN_HANDLE, begin);
    return status;
}

/* All ranks fail alike: they go back to a checkpoint together, or see for themselves that replicas differ. */
static bool is_common(nw_status failure) { return failure == NW_E_NUMERIC || failure == NW_E_MISMATCH; }

static nw_status peer_failed(nw_message *message, int from)
{
    char reason[512];
    nw_status failure = (nw_status)message->header->part;
    snprintf(reason, sizeof reason, "%.*s", (int)message->header->bytes, (const char *)message->payload);
    nw_message_drop(message);
    nw_mpi_process.echoes |= from < nw_mpi_process.rank; /* the first of those who still live speaks */
    if (is_common(failure)) return NW_FAIL(failure, "%s", reason);
    return NW_FAIL(NW_E_PEER, "rank %d failed: %s", from, reason);
}

/* Control messages are counted when they are used: when a rank has come through nw_driver_allgather, it has counted
 * what all others sent for it, and nothing of what faster ranks sent since. */
static void count_arrival(mpi_driver *m, int from, const nw_message *message)
{
    if (m->base.options.ledger) nw_ledger_transport(m->base.options.ledger, NW_RECEIVED, nw_message_size(message));
    nw_driver_accept(&m->base, from, m->base.first, message);
}

static nw_status deliver(mpi_driver *m, nw_message *message, int from, size_t size)
{
    NW_TRY_OR(nw_message_check(message->header, size, from, m->base.size), nw_message_drop(message));
    m->last_ns[from] = nw_now_ns();
    m->received_ns[from] = own_now(m);
    m->last[from] = *message->header;
    if (message->header->generation != m->base.generation) { /* of before we went back, or of one who went first */
        bool newer = (int16_t)(message->header->generation - m->base.generation) > 0;
        if (newer) {
            mail_add(&m->newer, message);
        } else {
            count_arrival(m, from, message);
            nw_message_drop(message);
        }
        return NW_OK;
    }
    bool of_driver = message->header->channel == NW_CHANNEL_DRIVER;
    if (of_driver && message->header->kind == NW_KIND_CONTROL) {
        mail_add(&m->control, message);
        return NW_OK;
    }
    count_arrival(m, from, message);
    if (of_driver && m->base.dropped[from]) { /* nobody waits for it: its troubles are its own */
        nw_message_drop(message);
        return NW_OK;
    }
    if (of_driver) return peer_failed(message, from);
    if (m->rank) return give_to_machine(m, message);
    mail_add(&m->early, message);
    return NW_OK;
}

static nw_status complete_sends(mpi_driver *m, bool *moved)
{
    int count = 0;
    if (m->send_count == 0) return NW_OK;
    MPI_TRY(MPI_Testsome(m->send_count, m->send_requests, &count, m->sent, MPI_STATUSES_IGNORE), "complete a message");
    *moved |= count > 0;
    for (int k = 0; k < count; k++) { /* the places are known, but not in which order */
        nw_message_drop(m->sends[m->sent[k]].message);
        m->sends[m->sent[k]].message = NULL;
    }
    for (int i = m->send_count - 1; i >= 0 && count > 0; i--) {
        if (m->sends[i].message) continue;
        remove_send(m, i);
        count--;
    }
    return NW_OK;
}

static nw_status match(mpi_driver *m)
{
    while (m->receive_count < RECEIVES) {
        int there = 0, bytes;
        MPI_Message handle;
        MPI_Status info;
        MPI_TRY(MPI_Improbe(MPI_ANY_SOURCE, NW_MPI_TAG, m->comm, &there, &handle, &info), "look for messages");
        if (!there) return NW_OK;
        MPI_TRY(MPI_Get_count(&info, MPI_BYTE, &bytes), "measure a message");
        NW_FAIL_IF(bytes < NW_HEADER_BYTES || bytes > NW_HEADER_BYTES + NW_MESSAGE_MOST_BYTES, NW_E_MESSAGE,
                   "rank %d sent %d bytes that are not a message", info.MPI_SOURCE, bytes);
        receiving *r = &m->receives[m->receive_count];
        *r = (receiving){.from = info.MPI_SOURCE, .size = (size_t)bytes};
        NW_TRY(nw_message_take(m->base.pool, (size_t)bytes - NW_HEADER_BYTES, &r->message));
        MPI_TRY(MPI_Imrecv(r->message->header, bytes, MPI_BYTE, &handle, &m->receive_requests[m->receive_count]),
                "receive a message");
        m->receive_count++;
    }
    return NW_OK;
}

/* Whether an earlier message of the same rank is still on its way. */
static bool is_overtaking(const mpi_driver *m, int index)
{
    for (int i = 0; i < index; i++)
        if (m->receives[i].from == m->receives[index].from) return true;
    return false;
}

static nw_status complete_receives(mpi_driver *m, bool *moved)
{
    int count = 0, done[RECEIVES];
    if (m->receive_count == 0) return NW_OK;
    MPI_TRY(MPI_Testsome(m->receive_count, m->receive_requests, &count, done, MPI_STATUSES_IGNORE),
            "complete a message");
    for (int k = 0; k < count; k++) m->receives[done[k]].here = true; /* its request is null from now on */
    for (int i = 0; i < m->receive_count;) {
        receiving complete = m->receives[i];
        if (!complete.here || is_overtaking(m, i)) {
            i++;
            continue;
        }
        size_t behind = (size_t)(--m->receive_count - i);
        memmove(m->receives + i, m->receives + i + 1, behind * sizeof m->receives[0]);
        memmove(m->receive_requests + i, m->receive_requests + i + 1, behind * sizeof m->receive_requests[0]);
        *moved = true;
        NW_TRY(deliver(m, complete.message, complete.from, complete.size));
    }
    return NW_OK;
}

/* Moves what can be moved without waiting. */
static nw_status progress(mpi_driver *m, bool *moved)
{
    *moved = false;
    NW_TRY(match(m));
    NW_TRY(complete_receives(m, moved));
    return complete_sends(m, moved);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static nw_status fail_waiting(mpi_driver *m, int64_t waited);

static bool is_time(mpi_driver *m) { return m->timer != NW_NO_TIMER && own_now(m) >= m->timer; }

/* Waits until something moves. */
static nw_status wait_for_news(mpi_driver *m)
{
    int64_t begin = nw_now_ns(), since = own_now(m), limit = m->base.options.timeout_ns;
    if (m->rank && (m->rank->machine->drops || m->rank->machine->patient)) limit *= 2;
    bool needs = m->rank && !nw_rank_is_quiescent(m->rank); /* others; or its own messages have to leave */
    for (int turns = 0;; turns++) {
        bool moved;
        NW_TRY(progress(m, &moved));
        bool asked = m->rank && nw_driver_is_asked(&m->base);
        if (moved || asked || (m->rank && is_time(m))) break;
        nw_mpi_pause(turns);
        int64_t now = own_now(m);
        if (needs && nw_rank_is_late(&m->base, m->rank, now, m->idle, m->received_ns))
            return fail_waiting(m, now - m->idle);
        if (!needs && limit > 0 && now - since > limit) return fail_waiting(m, now - since);
    }
    m->base.waited_ns += nw_now_ns() - begin;
    hook(m, NW_SPAN_WAIT, begin);
    return NW_OK;
}

static int64_t now(nw_driver *d, int rank)
{
    (void)d, (void)rank;
    return nw_now_ns();
}

static bool last_message(nw_driver *d, int rank, int64_t *ago_ns, nw_header *header)
{
    const mpi_driver *m = (const mpi_driver *)d;
    if (m->last_ns[rank] == 0) return false;
    *ago_ns = nw_now_ns() - m->last_ns[rank];
    *header = m->last[rank];
    return true;
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

/* Tells everybody and gives them time to write down what they know. */
static void fail(nw_driver *d, nw_status failure, const char *reason)
{
    mpi_driver *m = (mpi_driver *)d;
    size_t bytes = strlen(reason);
    if (m->failing) return;
    m->failing = true; /* a failure to tell of a failure is not told */
    if (is_common(failure))
        nw_mpi_process.echoes = nw_mpi_process.rank > 0; /* rank 0 speaks of what all have in common */
    for (int to = 0; to < d->size; to++) {
        nw_message *message;
        if (to == d->first || d->dropped[to] || nw_message_take(d->pool, bytes, &message) != NW_OK) continue;
        message->header->kind = NW_KIND_ABORT;
        message->header->part = (uint16_t)failure;
        memcpy(message->payload, reason, bytes);
        if (post(m, to, message) != NW_OK) return;
    }
    for (int64_t end = nw_now_ns() + GRACE_NS; nw_now_ns() < end;) {
        bool moved;
        if (progress(m, &moved) != NW_OK && nw_now_ns() < end) continue; /* others fail as well */
        nw_mpi_pause(1000);
    }
}

/* Whether a rank has not said what it should in this round, or does not take what it is sent. */
static bool is_silent(const mpi_driver *m, int rank)
{
    bool awaited = m->awaited >= 0 && (m->base.in_turn ? rank >= m->awaited : rank == m->awaited);
    for (const nw_message *message = m->control.first; message; message = message->next)
        if ((int)message->header->from == rank) awaited = false;
    for (int i = 0; i < m->send_count; i++) awaited |= m->sends[i].to == rank;
    return awaited && rank != m->base.first;
}

static nw_status fail_waiting(mpi_driver *m, int64_t waited)
{
    nw_wait wait = {0};
    if (m->rank) m->rank->machine->ops->waits(m->rank->machine, &wait);
    if (wait.count == 0) {
        for (int rank = 0; rank < m->base.size; rank++)
            if (is_silent(m, rank) && wait.count++ < NW_WAIT_MOST) wait.ranks[wait.count - 1] = rank;
        snprintf(wait.what, sizeof wait.what, "their word between steps");
    }
    return nw_wait_failed(&wait, m->base.first, waited);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Tells that the time asked for has come. What has arrived by then is told first: it may be what was waited for. */
static nw_status ring(mpi_driver *m)
{
    bool moved = true;
    while (moved && is_time(m)) NW_TRY(progress(m, &moved));
    if (!is_time(m)) return NW_OK;
    m->timer = NW_NO_TIMER;
    return tell_machine(m, (nw_event){.kind = NW_EVENT_TIMER});
}

/* Between two layers. A failure is kept for the end of the task, which cannot be left. */
static void look_between(nw_announce *a)
{
    mpi_driver *m = (mpi_driver *)((char *)a - offsetof(mpi_driver, announce));
    bool moved;
    if (m->failure == NW_OK) m->failure = progress(m, &moved);
    if (m->failure == NW_OK) m->failure = ring(m);
}

static void tell_final(nw_announce *a, size_t first)
{
    mpi_driver *m = (mpi_driver *)((char *)a - offsetof(mpi_driver, announce));
    if (m->failure == NW_OK) m->failure = nw_rank_final(&m->base, m->rank, first, own_now(m));
    if (m->failure == NW_OK) m->failure = post_all(m);
}

static void tell_out(nw_announce *a, nw_message *message)
{
    mpi_driver *m = (mpi_driver *)((char *)a - offsetof(mpi_driver, announce));
    if (m->failure == NW_OK) m->failure = tell_machine(m, (nw_event){.kind = NW_EVENT_OUT, .message = message});
    nw_message_drop(message);
}

static nw_status do_task(mpi_driver *m)
{
    nw_rank *r = m->rank;
    int64_t begin = nw_now_ns();
    nw_span span = r->task.kind == NW_TASK_PASS ? NW_SPAN_COMPUTE : NW_SPAN_UPDATE;
    nw_status status = r->work->run(r->worker, &r->task, &m->announce);
    hook(m, span, begin);
    NW_TRY(status);
    return m->failure;
}

/* What can be done without looking at the network; false: nothing, for now. */
static nw_status go_on(mpi_driver *m, bool *moved)
{
    nw_rank *r = m->rank;
    NW_TRY(ring(m));
    if (nw_driver_shall_stop(&m->base)) NW_TRY(tell_machine(m, (nw_event){.kind = NW_EVENT_STOP}));
    *moved = nw_rank_next(&m->base, r);
    if (*moved) NW_TRY(do_task(m));
    if (!r->busy || r->task.pending) return NW_OK;
    *moved = true;
    m->idle = own_now(m);
    NW_TRY(nw_rank_done(&m->base, r, m->idle));
    return post_all(m);
}

static bool is_over(const mpi_driver *m) { return nw_rank_is_quiescent(m->rank) && m->send_count == 0; }

static nw_status begin_rank(mpi_driver *m, const nw_go *go)
{
    nw_message *message;
    NW_TRY(m->failure);
    NW_TRY(tell_machine(
        m, (nw_event){.kind = NW_EVENT_GO, .go = go})); /* before what others, who began earlier, have sent */
    while ((message = mail_take(&m->early))) NW_TRY(give_to_machine(m, message));
    return NW_OK;
}

static nw_status run_rank(mpi_driver *m)
{
    for (;;) {
        bool moved;
        NW_TRY(go_on(m, &moved));
        NW_FAIL_IF(m->rank->busy, NW_E_INTERNAL, "a task is pending, and nobody is there to do it");
        if (moved) continue;
        if (is_over(m)) return NW_OK;
        NW_TRY(wait_for_news(m));
    }
}

static nw_status end_run(mpi_driver *m, nw_status status)
{
    m->rank->elapsed_ns = own_now(m);
    m->rank = NULL;
    return status;
}

static nw_status mpi_begin(nw_driver *d, const nw_go *go)
{
    mpi_driver *m = (mpi_driver *)d;
    m->rank = d->ranks;
    own_now(m);
    m->clock.own_ns = m->idle = m->rank->elapsed_ns; /* what lay between two runs does not count */
    memset(m->received_ns, 0, (size_t)d->size * sizeof *m->received_ns);
    nw_status status = begin_rank(m, go);
    return status == NW_OK ? NW_OK : end_run(m, status);
}

static nw_status mpi_run(nw_driver *d, const nw_go *go)
{
    NW_TRY(mpi_begin(d, go));
    return end_run((mpi_driver *)d, run_rank((mpi_driver *)d));
}

static nw_status take_turn(mpi_driver *m, nw_turn *turn)
{
    bool arrived, moved;
    int64_t now = own_now(m), limit = m->base.options.timeout_ns;
    NW_TRY(progress(m, &arrived));
    NW_TRY(go_on(m, &moved));
    *turn = arrived || moved ? NW_TURN_MOVED : NW_TURN_IDLE;
    if (m->rank->busy) return NW_OK;
    bool needs = !nw_rank_is_quiescent(m->rank);
    if (!moved && is_over(m)) {
        *turn = NW_TURN_OVER;
        return NW_OK;
    }
    bool late =
        needs ? nw_rank_is_late(&m->base, m->rank, now, m->idle, m->received_ns) : limit > 0 && now - m->idle > limit;
    return late && *turn == NW_TURN_IDLE ? fail_waiting(m, now - m->idle) : NW_OK;
}

static nw_status mpi_turn(nw_driver *d, nw_turn *turn)
{
    mpi_driver *m = (mpi_driver *)d;
    nw_status status = take_turn(m, turn);
    return status == NW_OK && *turn != NW_TURN_OVER ? NW_OK : end_run(m, status);
}

/* ---- between runs ------------------------------------------------------------------------------------------------ */

static nw_status send_bytes(nw_driver *d, int to, const void *data, size_t bytes)
{
    mpi_driver *m = (mpi_driver *)d;
    nw_message *message;
    NW_TRY(nw_message_take(d->pool, bytes, &message));
    message->header->kind = NW_KIND_CONTROL;
    memcpy(message->payload, data, bytes);
    return post(m, to, message);
}

/* The next control message from that rank: ranks make the same rounds, but one that was away has missed some. Others
 * stay for later. */
static nw_status receive_bytes(nw_driver *d, int from, void *data, size_t bytes)
{
    mpi_driver *m = (mpi_driver *)d;
    for (;;) {
        for (nw_message **at = &m->control.first; *at; at = &(*at)->next) {
            nw_message *message = *at;
            const nw_header *h = message->header;
            if ((int)h->from != from) continue;
            *at = message->next;
            if (!*at) m->control.last = at;
            count_arrival(m, from, message);
            bool fits = h->bytes == bytes;
            if (fits) memcpy(data, message->payload, bytes);
            nw_message_drop(message);
            NW_FAIL_IF(!fits, NW_E_MESSAGE,
                       "rank %d sent another control message than this rank expects; use the same build on all ranks",
                       from);
            return NW_OK;
        }
        m->awaited = from;
        nw_status status = wait_for_news(m);
        m->awaited = -1;
        NW_TRY(status);
    }
}

static nw_status finish(nw_driver *d)
{
    mpi_driver *m = (mpi_driver *)d;
    while (m->send_count > 0) NW_TRY(wait_for_news(m));
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void drop_mail(mail *m)
{
    for (nw_message *message; (message = mail_take(m));) nw_message_drop(message);
}

/* What came for the old generation is dropped, what came for the new one is delivered as if it came now. */
static void reset(nw_driver *d)
{
    mpi_driver *m = (mpi_driver *)d;
    nw_message *message;
    m->failing = nw_mpi_process.echoes = false;
    m->timer = NW_NO_TIMER;
    m->failure = NW_OK;
    drop_mail(&m->early);
    while ((message = mail_take(&m->control))) {
        count_arrival(m, (int)message->header->from, message);
        nw_message_drop(message);
    }
    mail newer = m->newer;
    if (newer.first) newer.last = &newer.first;
    m->newer = (mail){0};
    for (nw_message *next = newer.first; (message = next);) {
        next = message->next;
        nw_status status = deliver(m, message, (int)message->header->from, nw_message_size(message));
        if (m->failure == NW_OK) m->failure = status; /* of one who goes back once more, too */
    }
}

static void mpi_free(nw_driver *d)
{
    mpi_driver *m = (mpi_driver *)d;
    drop_mail(&m->early);
    drop_mail(&m->newer);
    drop_mail(&m->control);
    free(m->sends);
    free(m->send_requests);
    free(m->sent);
    free(m->last);
    free(m->last_ns);
    free(m->received_ns);
}

static const nw_driver_ops ops = {.name = "mpi",
                                  .run = mpi_run,
                                  .begin = mpi_begin,
                                  .turn = mpi_turn,
                                  .send = send_bytes,
                                  .receive = receive_bytes,
                                  .finish = finish,
                                  .fail = fail,
                                  .now = now,
                                  .last_message = last_message,
                                  .reset = reset,
                                  .free = mpi_free};

nw_status nw_mpi_create(nw_driver **out, const nw_driver_options *options)
{
    int rank, size;
    *out = NULL;
    NW_FAIL_IF(!nw_mpi_process.started, NW_E_INTERNAL, "MPI was not started");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    NW_CLEANUP(nw_driver_autofree) nw_driver *d = NULL;
    NW_TRY(nw_driver_create(&d, sizeof(mpi_driver), &ops, options, size, rank, 1));
    mpi_driver *m = (mpi_driver *)d;
    m->announce = (nw_announce){look_between, tell_final, tell_out};
    m->awaited = -1;
    m->timer = NW_NO_TIMER;
    NW_NEW(m->last, size, "%d ranks", size);
    NW_NEW(m->last_ns, size, "%d ranks", size);
    NW_NEW(m->received_ns, size, "%d ranks", size);
    NW_TRY(nw_mpi_duplicate(&m->comm));
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    nw_mpi_process.running = true;
    *out = d;
    d = NULL;
    return NW_OK;
}

#else

nw_status nw_mpi_create(nw_driver **driver, const nw_driver_options *options)
{
    (void)options;
    *driver = NULL;
    return nw_mpi_missing();
}

#endif
