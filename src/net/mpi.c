/*
 * mpi.c - see mpi.h. Reading order: run at the bottom, then wait, then progress.
 *
 * A message is one MPI message with one tag: header and payload in one piece. Receives are matched by probing, since an
 * exchange need not know beforehand what comes; the payload goes straight into memory of the pool. Messages of one
 * sender are handed on in the order in which they were sent.
 *
 * Between runs (nw_driver_share, nw_driver_collect) messages of exchanges that are ahead are put aside until the next
 * run, so that what is saved or compared then does not change under its reader.
 */
#include "net/mpi.h"

#include <stdlib.h>
#include <time.h>

/* A launcher ends all ranks as soon as one ends badly: where they are not joined yet, the others give the first the time to
 * say what is wrong. */
static void let_first_speak(int exit_code)
{
    if (exit_code != 0 && nw_mpi_environment_rank() > 0) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

#if NW_HAVE_MPI

#include "base/clock.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAG = 1, RECEIVES = 64 /* under way at most */, YIELDS = 200 /* before a wait sleeps */, FINALIZE_SECONDS = 10 };
static const int64_t GRACE_NS = 1500000000; /* in which the others write down what they know */
static const int64_t LEAVE_NS = 2000000000; /* in which the others fail as well, if the reason is theirs too */

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
    nw_between between; /* what computations call */
    MPI_Comm comm;
    nw_party *party; /* of the run under way; NULL between runs */
    MPI_Request *send_requests;
    sending *sends;
    int send_count, send_capacity;
    MPI_Request receive_requests[RECEIVES];
    receiving receives[RECEIVES]; /* in the order in which they were matched */
    int receive_count;
    mail early, control; /* for the next run; of drivers */
    mail newer;          /* from ranks that have gone back to a checkpoint before this one */
    int64_t *heard_ns;   /* by rank: when it was last heard of */
    nw_header *heard;    /* by rank: the last that it said */
    uint32_t rounds;     /* of share and collect */
    int awaited;         /* the first rank whose word is missing in this round; -1: none */
    bool sharing;        /* ... and those behind it may be missing, too */
    nw_status failure;   /* found in the middle of a computation */
    bool failing;
} mpi_driver;

static bool started, running, echoes; /* running: there was a driver; echoes: another rank has said what is wrong */
static int own_rank, world_size;

/* Leaving has a communicator of its own: a rank that leaves while the others are still in the middle of something else
 * must not be taken for a part of that. */
static struct {
    MPI_Comm comm;
    MPI_Request request;
    bool begun, met; /* met: all ranks are leaving */
} leaving;

/* ---- small things -------------------------------------------------------------------------------------------------- */

static nw_status mpi_failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    return NW_FAIL(NW_E_PEER, "MPI cannot %s: %s; a rank may have died, or the network failed", what, text);
}
#define MPI_TRY(call, what)                                                 \
    do {                                                                    \
        int mpi_code_ = (call);                                             \
        if (mpi_code_ != MPI_SUCCESS) return mpi_failed(mpi_code_, (what)); \
    } while (0)

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

static void tap(mpi_driver *m, nw_span span, int64_t begin)
{
    const nw_taps *taps = &m->base.options.taps;
    if (taps->span) taps->span(taps->context, m->base.first, span, begin, nw_now_ns(), m->party ? m->party->step : 0);
}

/* ---- messages -------------------------------------------------------------------------------------------------------- */

/* Takes over the reference. */
static nw_status post(mpi_driver *m, int to, nw_message *message)
{
    if (m->send_count == m->send_capacity) {
        int capacity = m->send_capacity ? 2 * m->send_capacity : 256;
        MPI_Request *requests = realloc(m->send_requests, (size_t)capacity * sizeof *requests);
        if (requests) m->send_requests = requests;
        sending *sends = realloc(m->sends, (size_t)capacity * sizeof *sends);
        if (sends) m->sends = sends;
        if (!requests || !sends) {
            nw_message_drop(message);
            return NW_FAIL(NW_E_MEMORY, "no memory for %d messages under way", capacity);
        }
        m->send_capacity = capacity;
    }
    nw_driver_stamp(&m->base, m->base.first, to, message);
    size_t bytes = nw_message_size(message);
    if (m->base.options.ledger) nw_ledger_transport(m->base.options.ledger, NW_SENT, bytes);
    m->sends[m->send_count] = (sending){message, to};
    MPI_TRY(MPI_Isend(message->header, (int)bytes, MPI_BYTE, to, TAG, m->comm, &m->send_requests[m->send_count]),
            "send a message");
    m->send_count++;
    return NW_OK;
}

/* Posts what the exchange wants sent. */
static nw_status post_all(mpi_driver *m)
{
    nw_actions *actions = &m->base.actions;
    nw_status status = NW_OK;
    for (int i = 0; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind != NW_ACTION_SEND) continue;
        if (status == NW_OK)
            status = post(m, a->to, a->message);
        else
            nw_message_drop(a->message);
    }
    actions->count = 0;
    return status;
}

static nw_status tell(mpi_driver *m, nw_event event)
{
    event.now_ns = nw_now_ns();
    NW_TRY(nw_party_tell(&m->base, m->party, event));
    return post_all(m);
}

static nw_status give_to_party(mpi_driver *m, nw_message *message)
{
    int64_t begin = nw_now_ns();
    nw_status status = tell(m, (nw_event){.kind = NW_EVENT_MESSAGE, .message = message});
    nw_message_drop(message);
    tap(m, NW_SPAN_HANDLE, begin);
    return status;
}

static nw_status peer_gave_up(nw_message *message, int from)
{
    char reason[512];
    bool numeric = message->header->part == NW_E_NUMERIC;
    snprintf(reason, sizeof reason, "%.*s", (int)message->header->bytes, (const char *)message->payload);
    nw_message_drop(message);
    echoes |= from < own_rank; /* the first of those who still live speaks */
    if (numeric) return NW_FAIL(NW_E_NUMERIC, "%s", reason);
    return NW_FAIL(NW_E_PEER, "rank %d gave up: %s", from, reason);
}

/* Control messages are counted when they are used: when a rank has come through nw_driver_share, it has counted what all
 * others sent for it, and nothing of what faster ranks sent since. */
static void count_arrival(mpi_driver *m, int from, const nw_message *message)
{
    if (m->base.options.ledger) nw_ledger_transport(m->base.options.ledger, NW_RECEIVED, nw_message_size(message));
    nw_driver_accept(&m->base, from, m->base.first, message);
}

static nw_status deliver(mpi_driver *m, nw_message *message, int from, size_t size)
{
    nw_status status = nw_message_check(message->header, size, from, m->base.size);
    if (status != NW_OK) {
        nw_message_drop(message);
        return status;
    }
    m->heard_ns[from] = nw_now_ns();
    m->heard[from] = *message->header;
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
    if (message->header->kind == NW_KIND_CONTROL) {
        mail_add(&m->control, message);
        return NW_OK;
    }
    count_arrival(m, from, message);
    if (message->header->kind == NW_KIND_ABORT) return peer_gave_up(message, from);
    if (m->party) return give_to_party(m, message);
    mail_add(&m->early, message);
    return NW_OK;
}

static nw_status complete_sends(mpi_driver *m, bool *moved)
{
    for (int i = 0; i < m->send_count;) {
        int done = 0;
        MPI_TRY(MPI_Test(&m->send_requests[i], &done, MPI_STATUS_IGNORE), "complete a message");
        if (!done) {
            i++;
            continue;
        }
        *moved = true;
        nw_message_drop(m->sends[i].message);
        m->send_count--;
        memmove(m->sends + i, m->sends + i + 1, (size_t)(m->send_count - i) * sizeof *m->sends);
        memmove(m->send_requests + i, m->send_requests + i + 1, (size_t)(m->send_count - i) * sizeof(MPI_Request));
    }
    return NW_OK;
}

static nw_status match(mpi_driver *m)
{
    while (m->receive_count < RECEIVES) {
        int there = 0, bytes;
        MPI_Message handle;
        MPI_Status info;
        MPI_TRY(MPI_Improbe(MPI_ANY_SOURCE, TAG, m->comm, &there, &handle, &info), "look for messages");
        if (!there) return NW_OK;
        MPI_TRY(MPI_Get_count(&info, MPI_BYTE, &bytes), "measure a message");
        NW_FAIL_IF(bytes < NW_HEADER_BYTES || bytes > NW_HEADER_BYTES + NW_MESSAGE_MOST_BYTES, NW_E_MESSAGE,
                   "rank %d sent %d bytes, which is no message", info.MPI_SOURCE, bytes);
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
    for (int i = 0; i < m->receive_count;) {
        receiving *r = &m->receives[i];
        int done = r->here;
        if (!done) MPI_TRY(MPI_Test(&m->receive_requests[i], &done, MPI_STATUS_IGNORE), "complete a message");
        r->here = done;
        if (!done || is_overtaking(m, i)) {
            i++;
            continue;
        }
        receiving complete = *r;
        m->receive_count--;
        memmove(m->receives + i, m->receives + i + 1, (size_t)(m->receive_count - i) * sizeof *r);
        memmove(m->receive_requests + i, m->receive_requests + i + 1,
                (size_t)(m->receive_count - i) * sizeof(MPI_Request));
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

/* ---- waiting ----------------------------------------------------------------------------------------------------------- */

/* Yields first, then sleeps longer and longer, at most half a millisecond. */
static void rest(int turns)
{
    if (turns < YIELDS) {
        sched_yield();
        return;
    }
    long ns = turns < 1000 ? 20000 : 500000;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static nw_status give_up(mpi_driver *m, int64_t waited);

static void tell_begin(mpi_driver *m, nw_span span)
{
    const nw_taps *taps = &m->base.options.taps;
    nw_wait wait;
    bool waits = span == NW_SPAN_WAIT && m->party;
    if (!taps->begins) return;
    if (waits) m->party->exchange->ops->waits(m->party->exchange, &wait);
    taps->begins(taps->context, m->base.first, span, m->party ? m->party->step : 0, waits ? &wait : NULL);
}

/* Waits until something moves. A wait that is worth telling lasts longer than some yields. */
static nw_status wait_for_news(mpi_driver *m)
{
    int64_t since = nw_now_ns(), limit = m->base.options.timeout_ns;
    for (int turns = 0;; turns++) {
        bool moved;
        NW_TRY(progress(m, &moved));
        if (moved) break;
        if (turns == YIELDS && m->party) tell_begin(m, NW_SPAN_WAIT);
        rest(turns);
        if (limit > 0 && nw_now_ns() - since > limit) return give_up(m, nw_now_ns() - since);
    }
    m->base.waited_ns += nw_now_ns() - since;
    tap(m, NW_SPAN_WAIT, since);
    return NW_OK;
}

static int64_t now(nw_driver *d, int rank)
{
    (void)d, (void)rank;
    return nw_now_ns();
}

static bool heard(nw_driver *d, int rank, int64_t *ago_ns, nw_header *said)
{
    const mpi_driver *m = (const mpi_driver *)d;
    if (m->heard_ns[rank] == 0) return false;
    *ago_ns = nw_now_ns() - m->heard_ns[rank];
    *said = m->heard[rank];
    return true;
}

/* ---- failing -------------------------------------------------------------------------------------------------------------- */

/* Tells everybody and gives them time to write down what they know. */
static void fail(nw_driver *d, nw_status failure, const char *reason)
{
    mpi_driver *m = (mpi_driver *)d;
    size_t bytes = strlen(reason);
    if (m->failing) return;
    m->failing = true; /* a failure to tell of a failure is not told */
    if (failure == NW_E_NUMERIC) echoes = own_rank > 0; /* rank 0 speaks of what all have in common */
    for (int to = 0; to < d->size; to++) {
        nw_message *message;
        if (to == d->first || nw_message_take(d->pool, bytes, &message) != NW_OK) continue;
        message->header->kind = NW_KIND_ABORT;
        message->header->part = (uint32_t)failure;
        memcpy(message->payload, reason, bytes);
        if (post(m, to, message) != NW_OK) return;
    }
    for (int64_t end = nw_now_ns() + GRACE_NS; nw_now_ns() < end;) {
        bool moved;
        if (progress(m, &moved) != NW_OK && nw_now_ns() < end) continue; /* others give up as well */
        rest(1000);
    }
}

/* Whether a rank has not said what it should in this round, or does not take what it is sent. */
static bool is_silent(const mpi_driver *m, int rank)
{
    bool awaited = m->awaited >= 0 && (m->sharing ? rank >= m->awaited : rank == m->awaited);
    for (const nw_message *message = m->control.first; message; message = message->next)
        if ((int)message->header->from == rank && message->header->segment == m->rounds) awaited = false;
    for (int i = 0; i < m->send_count; i++) awaited |= m->sends[i].to == rank;
    return awaited && rank != m->base.first;
}

static nw_status give_up(mpi_driver *m, int64_t waited)
{
    nw_wait wait = {0};
    if (m->party) m->party->exchange->ops->waits(m->party->exchange, &wait);
    if (wait.count == 0) {
        for (int rank = 0; rank < m->base.size; rank++)
            if (is_silent(m, rank)) nw_wait_add(&wait, rank);
        snprintf(wait.what, sizeof wait.what, "their word between steps");
    }
    return nw_wait_failed(&wait, m->base.first, waited);
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

/* Between two layers. A failure is kept for the end of the computation, which cannot be left. */
static void between_layers(nw_between *between, bool final, size_t first)
{
    mpi_driver *m = (mpi_driver *)((char *)between - offsetof(mpi_driver, between));
    bool moved;
    if (m->failure != NW_OK) return;
    if (final) m->failure = tell(m, (nw_event){.kind = NW_EVENT_READY, .first = first});
    if (m->failure == NW_OK) m->failure = progress(m, &moved);
}

static nw_status perform(mpi_driver *m, const nw_action *action)
{
    nw_party *p = m->party;
    int64_t begin = nw_now_ns();
    bool computes = action->kind == NW_ACTION_COMPUTE, complete = true;
    p->busy = true;
    tell_begin(m, computes ? NW_SPAN_COMPUTE : NW_SPAN_APPLY);
    nw_status status =
        computes ? p->work->compute(p->worker, &m->between, &complete) : p->work->apply(p->worker, action);
    p->busy = false;
    tap(m, computes ? NW_SPAN_COMPUTE : NW_SPAN_APPLY, begin);
    NW_TRY(status);
    NW_TRY(m->failure);
    if (!complete) {
        nw_party_postpone(p);
        return NW_OK;
    }
    return tell(m, (nw_event){.kind = computes ? NW_EVENT_COMPUTED : NW_EVENT_APPLIED});
}

static nw_status run_party(mpi_driver *m, bool flush)
{
    nw_party *p = m->party;
    nw_action action;
    nw_message *message;
    NW_TRY(m->failure);
    if (!p->begun) NW_TRY(tell(m, (nw_event){.kind = NW_EVENT_BEGIN}));
    p->begun = true;
    while ((message = mail_take(&m->early))) NW_TRY(give_to_party(m, message));
    if (flush) NW_TRY(tell(m, (nw_event){.kind = NW_EVENT_FLUSH}));
    for (;;) {
        if (nw_party_next(&m->base, p, &action))
            NW_TRY(perform(m, &action));
        else if (nw_party_rests(p) && m->send_count == 0)
            return NW_OK;
        else
            NW_TRY(wait_for_news(m));
    }
}

static nw_status run(nw_driver *d, nw_party *parties, bool flush)
{
    mpi_driver *m = (mpi_driver *)d;
    m->party = parties;
    nw_status status = run_party(m, flush);
    m->party = NULL;
    return status;
}

/* ---- between runs -------------------------------------------------------------------------------------------------------------- */

static nw_status post_control(mpi_driver *m, int to, const void *data, size_t bytes)
{
    nw_message *message;
    NW_TRY(nw_message_take(m->base.pool, bytes, &message));
    message->header->kind = NW_KIND_CONTROL;
    message->header->segment = m->rounds;
    memcpy(message->payload, data, bytes);
    return post(m, to, message);
}

/* The control message of this round from that rank. Others stay for later. */
static nw_status take_control(mpi_driver *m, int from, size_t bytes, void *data)
{
    for (;;) {
        for (nw_message **at = &m->control.first; *at; at = &(*at)->next) {
            nw_message *message = *at;
            const nw_header *h = message->header;
            if ((int)h->from != from || h->segment != m->rounds) continue;
            *at = message->next;
            if (!*at) m->control.last = at;
            count_arrival(m, from, message);
            bool fits = h->bytes == bytes;
            if (fits) memcpy(data, message->payload, bytes);
            nw_message_drop(message);
            NW_FAIL_IF(!fits, NW_E_MESSAGE, "rank %d speaks of something else than this rank; are they one build?",
                       from);
            return NW_OK;
        }
        m->awaited = from;
        nw_status status = wait_for_news(m);
        m->awaited = -1;
        NW_TRY(status);
    }
}

static nw_status finish_sends(mpi_driver *m)
{
    while (m->send_count > 0) NW_TRY(wait_for_news(m));
    return NW_OK;
}

static nw_status share(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    mpi_driver *m = (mpi_driver *)d;
    m->rounds++;
    m->sharing = true;
    for (int i = 1; i < d->size; i++) NW_TRY(post_control(m, (d->first + i) % d->size, mine, bytes));
    memcpy((char *)all + (size_t)d->first * bytes, mine, bytes);
    for (int from = 0; from < d->size; from++)
        if (from != d->first) NW_TRY(take_control(m, from, bytes, (char *)all + (size_t)from * bytes));
    return finish_sends(m);
}

/* In pieces that fit into messages. */
static nw_status collect(nw_driver *d, int from, void *data, size_t bytes)
{
    mpi_driver *m = (mpi_driver *)d;
    const size_t most = (size_t)64 << 20;
    for (size_t at = 0; at < bytes; at += most) {
        size_t piece = bytes - at < most ? bytes - at : most;
        m->rounds++;
        m->sharing = false;
        if (from == 0) continue;
        if (d->first == from) NW_TRY(post_control(m, 0, (char *)data + at, piece));
        if (d->first == 0) NW_TRY(take_control(m, from, piece, (char *)data + at));
        NW_TRY(finish_sends(m));
    }
    return NW_OK;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------------ */

static void drop_mail(mail *m)
{
    for (nw_message *message; (message = mail_take(m));) nw_message_drop(message);
}

/* What came for the old generation is dropped, what came for the new one is delivered as if it came now. */
static void reset(nw_driver *d)
{
    mpi_driver *m = (mpi_driver *)d;
    nw_message *message;
    m->failing = echoes = false;
    m->failure = NW_OK;
    m->rounds = 0;
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
        if (deliver(m, message, (int)message->header->from, nw_message_size(message)) != NW_OK) m->failure = NW_E_PEER;
    }
}

static void mpi_free(nw_driver *d)
{
    mpi_driver *m = (mpi_driver *)d;
    drop_mail(&m->early);
    drop_mail(&m->newer);
    drop_mail(&m->control);
    free(m->send_requests);
    free(m->sends);
    free(m->heard);
    free(m->heard_ns);
}

static const nw_driver_ops ops = {.name = "mpi",
                                  .run = run,
                                  .share = share,
                                  .collect = collect,
                                  .fail = fail,
                                  .now = now,
                                  .heard = heard,
                                  .reset = reset,
                                  .free = mpi_free};

nw_status nw_mpi_create(nw_driver **out, const nw_driver_options *options)
{
    int rank, size;
    *out = NULL;
    NW_FAIL_IF(!started, NW_E_INTERNAL, "MPI was not started");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    mpi_driver *m = calloc(1, sizeof *m);
    NW_FAIL_IF(!m, NW_E_MEMORY, "no memory for a driver");
    m->between.call = between_layers;
    m->awaited = -1;
    nw_status status = nw_driver_init(&m->base, &ops, options, size, rank, 1);
    m->heard = calloc((size_t)size, sizeof *m->heard);
    m->heard_ns = calloc((size_t)size, sizeof *m->heard_ns);
    if (status == NW_OK && (!m->heard || !m->heard_ns)) status = NW_FAIL(NW_E_MEMORY, "no memory for %d ranks", size);
    if (status == NW_OK && MPI_Comm_dup(MPI_COMM_WORLD, &m->comm) != MPI_SUCCESS)
        status = NW_FAIL(NW_E_PEER, "MPI cannot make a communicator of %d ranks", size);
    if (status != NW_OK) {
        nw_driver_free(&m->base);
        return status;
    }
    MPI_Comm_set_errhandler(m->comm, MPI_ERRORS_RETURN);
    running = true;
    *out = &m->base;
    return NW_OK;
}

bool nw_mpi_available(void) { return true; }

const char *nw_mpi_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' '; /* MPICH writes a table */
    return text;
}

nw_status nw_mpi_start(int *rank, int *size)
{
    int level, promised = nw_mpi_environment_rank(); /* before MPI may change what the environment says */
    NW_FAIL_IF(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS, NW_E_PEER,
               "MPI cannot be started; is this process run by mpirun or srun of the same MPI?");
    started = true;
    NW_FAIL_IF(level < MPI_THREAD_FUNNELED, NW_E_UNSUPPORTED,
               "this MPI allows no threads beside it (level %d); build it with thread support", level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    own_rank = *size > 1 ? *rank : promised; /* of processes that are not joined one speaks, too */
    world_size = *size;
    NW_FAIL_IF(MPI_Comm_dup(MPI_COMM_WORLD, &leaving.comm) != MPI_SUCCESS, NW_E_PEER,
               "MPI cannot make a communicator of %d ranks", *size);
    return NW_OK;
}

int nw_mpi_ranks_here(void)
{
    MPI_Comm here;
    int size = 1;
    if (!started) return 1;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) != MPI_SUCCESS) return 1;
    MPI_Comm_size(here, &size);
    MPI_Comm_free(&here);
    return size;
}

/* Tests a request until it is complete, or `limit_ns` have passed. */
static bool complete_within(MPI_Request *request, int64_t limit_ns)
{
    int done = 0;
    for (int64_t end = nw_now_ns() + limit_ns, turns = 0; !done && nw_now_ns() < end; turns++) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done) rest((int)turns);
    }
    return done != 0;
}

nw_status nw_mpi_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Request request;
    NW_FAIL_IF(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request) !=
                   MPI_SUCCESS,
               NW_E_PEER, "MPI cannot gather %zu bytes of each rank", bytes);
    NW_FAIL_IF(!complete_within(&request, 60000000000), NW_E_PEER,
               "some ranks did not start within a minute; look at the launcher's output for them");
    return NW_OK;
}

nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    MPI_TRY(MPI_Allreduce(mine, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "sum a vector");
    return NW_OK;
}

nw_status nw_mpi_meet(void)
{
    MPI_TRY(MPI_Barrier(MPI_COMM_WORLD), "let ranks meet");
    return NW_OK;
}

nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds)
{
    int peer = 1 - own_rank;
    char *data = calloc(1, bytes + 1);
    NW_FAIL_IF(!data, NW_E_MEMORY, "no memory for a message of %zu bytes", bytes);
    int code = MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = nw_now_ns();
    for (int i = 0; i < rounds && own_rank < 2 && code == MPI_SUCCESS; i++) {
        if (own_rank == 0) code = MPI_Send(data, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
        if (code == MPI_SUCCESS)
            code = MPI_Recv(data, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && own_rank == 1)
            code = MPI_Send(data, (int)bytes, MPI_BYTE, peer, TAG, MPI_COMM_WORLD);
    }
    *seconds = (double)(nw_now_ns() - begin) * 1e-9 / (2.0 * rounds);
    free(data);
    MPI_TRY(code, "send a message there and back");
    return nw_mpi_meet();
}

/* Whether all ranks leave within the time. */
static bool leave_together(int64_t limit_ns)
{
    if (leaving.met) return true;
    if (!leaving.begun && MPI_Ibarrier(leaving.comm, &leaving.request) != MPI_SUCCESS) return false;
    leaving.begun = true;
    leaving.met = complete_within(&leaving.request, limit_ns);
    return leaving.met;
}

static volatile sig_atomic_t code_at_end;
static void end_now(int number)
{
    (void)number;
    _exit(code_at_end);
}

/* MPICH over UCX's TCP now and then waits in MPI_Finalize for a rank that no longer listens. Listening a little longer makes
 * that rare, and a deadline ends it: all ranks have met, and everything is written. */
static void finalize(int exit_code)
{
    for (int64_t end = nw_now_ns() + 50000000; world_size > 1 && nw_now_ns() < end;) {
        int there;
        MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        rest(YIELDS);
    }
    fflush(NULL);
    code_at_end = exit_code;
    signal(SIGALRM, end_now);
    alarm(FINALIZE_SECONDS);
    MPI_Comm_free(&leaving.comm);
    MPI_Finalize();
    alarm(0);
}

void nw_mpi_end(int exit_code)
{
    if (!started || world_size == 1) let_first_speak(exit_code);
    if (!started) return;
    bool lost = !echoes && exit_code == nw_status_exit_code(NW_E_PEER); /* who says so: not all will come */
    int64_t patience = exit_code == 0 ? 60000000000 : leaving.begun ? 0 : LEAVE_NS;
    if (lost || !leave_together(patience)) {
        /* MPICH's launcher drops what it has not passed on by now. */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, exit_code ? exit_code : 1);
    }
    finalize(exit_code);
    started = false;
}

/* Before the first step most mistakes are those of all ranks, and rank 0 tells of them. A rank whose trouble is its own
 * finds that the others do not leave with it. */
bool nw_mpi_speaks(void)
{
    if (!started || world_size == 1) return nw_mpi_environment_rank() == 0;
    if (own_rank == 0) return true;
    return running ? !echoes : !leave_together(LEAVE_NS);
}

#else

bool nw_mpi_speaks(void) { return nw_mpi_environment_rank() == 0; }
void nw_mpi_end(int exit_code) { let_first_speak(exit_code); }
bool nw_mpi_available(void) { return false; }
const char *nw_mpi_library(void) { return "none: built without MPI (Debian package libopenmpi-dev)"; }

static nw_status missing(void)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "this build has no MPI; install libopenmpi-dev and build again, or use --virtual N");
}
nw_status nw_mpi_start(int *rank, int *size)
{
    *rank = 0;
    *size = 1;
    return missing();
}
int nw_mpi_ranks_here(void) { return 1; }
nw_status nw_mpi_gather(const void *mine, size_t bytes, void *all)
{
    (void)mine, (void)bytes, (void)all;
    return missing();
}
nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    (void)mine, (void)sum, (void)count;
    return missing();
}
nw_status nw_mpi_meet(void) { return missing(); }
nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds)
{
    (void)bytes, (void)rounds, (void)seconds;
    return missing();
}
nw_status nw_mpi_create(nw_driver **driver, const nw_driver_options *options)
{
    (void)options;
    *driver = NULL;
    return missing();
}

#endif

/* Launchers say so in the environment of each rank. */
static const char *first_variable(const char *const *names)
{
    for (; *names; names++)
        if (getenv(*names)) return getenv(*names);
    return NULL;
}

static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",    "PMI_RANK",
                                         "MV2_COMM_WORLD_RANK",  "SLURM_PROCID", NULL};
static const char *const size_names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE",
                                         "SLURM_STEP_NUM_TASKS", NULL};

/* A rank alone needs no MPI: SLURM also says SLURM_PROCID=0 to plain scripts. */
bool nw_mpi_launched(void)
{
    return first_variable(rank_names) != NULL && (nw_mpi_available() || nw_mpi_environment_size() > 1);
}

/* Asked once: Open MPI itself sets PMIX_RANK in a process that it finds alone. */
int nw_mpi_environment_rank(void)
{
    static int rank = -1;
    const char *text = first_variable(rank_names);
    if (rank < 0) rank = text ? atoi(text) : 0;
    return rank;
}

int nw_mpi_environment_size(void)
{
    const char *text = first_variable(size_names);
    return text ? atoi(text) : 1;
}
