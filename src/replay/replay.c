/*
 * replay.c - see replay.h. Reading order: run at the bottom, perform, then what it calls.
 *
 * A rank is always in front of its next record. It goes on as far as it can: until it needs a message that is not
 * there, or until its run of the driver is quiescent. When nobody can go on although not all are, the run has diverged.
 */
#include "replay/replay.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct letter {
    nw_message *message;
    int from;
    uint64_t sequence;
} letter;

typedef struct replay_rank {
    nw_log_cursor cursor;
    nw_log_record next;
    int runs;                    /* begun */
    nw_message *out, **out_last; /* what its task sends up and down, and was not told yet */
    letter *mail;                /* sent to it and not yet told, in the order of sending */
    int mail_count;
} replay_rank;

typedef struct replay_driver {
    nw_driver base;
    const nw_log_part *part;
    const volatile sig_atomic_t *stop; /* asks the replay, not what is replayed */
    replay_rank *ranks;
    nw_announce announce; /* of tasks, which is not heard: the log has what was announced when */
    int beginning;        /* the rank whose task is being done */
    const nw_go *go;
    int runs; /* that the driver was asked for */
} replay_driver;

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static nw_status __attribute__((format(printf, 3, 4)))
diverged(const replay_driver *v, int rank, const char *format, ...)
{
    char text[160], what[384];
    const replay_rank *r = &v->ranks[rank];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (r->cursor.ended)
        snprintf(text, sizeof text, "the end of the log");
    else
        nw_log_text(&r->next, text, sizeof text);
    return NW_FAIL(NW_E_MISMATCH,
                   "rank %d diverged from its event log (%s) at step %" PRId64 ", record %" PRId64
                   ": %s is next, but %s",
                   rank, r->cursor.file->name, v->base.ranks[rank].step, r->cursor.number, text, what);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static nw_status put_letter(replay_rank *r, letter l)
{
    if (!nw_grow(&r->mail, (size_t)r->mail_count, sizeof *r->mail)) {
        nw_message_drop(l.message);
        return NW_FAIL(NW_E_MEMORY, "no memory for %d messages", r->mail_count + 1);
    }
    r->mail[r->mail_count++] = l;
    return NW_OK;
}

/* The letter that the rank's next record speaks of; -1: it is not there. */
static int find_letter(const replay_rank *r)
{
    for (int i = 0; i < r->mail_count; i++)
        if (r->mail[i].from == r->next.from && r->mail[i].sequence == r->next.sequence) return i;
    return -1;
}

/* What the last event's answer sends. Timers ring when the record says so. */
static nw_status send_all(replay_driver *v, int from)
{
    nw_actions *actions = &v->base.actions;
    nw_status status = NW_OK;
    for (int i = 0; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_DROP || a->kind == NW_ACTION_BACK)
            nw_driver_drop(&v->base, from, a->to, a->kind == NW_ACTION_BACK);
        if (a->kind != NW_ACTION_SEND) continue;
        if (status == NW_OK && (a->to < 0 || a->to >= v->base.size))
            status = NW_FAIL(NW_E_INTERNAL, "rank %d sends a message to rank %d of %d", from, a->to, v->base.size);
        if (status != NW_OK) {
            nw_message_drop(a->message);
            continue;
        }
        nw_driver_stamp(&v->base, from, a->to, a->message);
        status = put_letter(&v->ranks[a->to], (letter){a->message, from, a->message->header->sequence});
    }
    actions->count = 0;
    return status;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static nw_status read_next(replay_rank *r) { return nw_log_next(&r->cursor, &r->next); }

static bool is_quiescent(const replay_rank *r) { return r->cursor.ended || r->next.kind == NW_LOG_QUIESCENT; }

static bool can_go_on(const replay_rank *r)
{
    return !is_quiescent(r) && (r->next.kind != NW_EVENT_MESSAGE || find_letter(r) >= 0);
}

static nw_status tell_machine(replay_driver *v, int rank, nw_event event)
{
    event.now_ns = v->ranks[rank].cursor.now_ns;
    NW_TRY(nw_rank_tell(&v->base, &v->base.ranks[rank], event));
    return send_all(v, rank);
}

static nw_status tell_message(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    int i = find_letter(r);
    letter l = r->mail[i];
    r->mail_count--;
    memmove(r->mail + i, r->mail + i + 1, (size_t)(r->mail_count - i) * sizeof *r->mail);
    nw_driver_accept(&v->base, l.from, rank, l.message);
    nw_status status = tell_machine(v, rank, (nw_event){.kind = NW_EVENT_MESSAGE, .message = l.message});
    nw_message_drop(l.message);
    return status;
}

static const char *doing(const nw_rank *p)
{
    return !p->busy ? "doing nothing" : p->task.kind == NW_TASK_PASS ? "computing" : "updating";
}

static nw_status begin_task(replay_driver *v, int rank)
{
    nw_rank *p = &v->base.ranks[rank];
    bool passes = v->ranks[rank].next.kind == NW_LOG_PASS;
    if (p->busy) return diverged(v, rank, "it is %s", doing(p));
    if (!nw_rank_next(&v->base, p)) return diverged(v, rank, "it has nothing to do");
    if ((p->task.kind == NW_TASK_PASS) != passes) return diverged(v, rank, "it is %s", doing(p));
    v->beginning = rank;
    return nw_rank_do(p, &v->announce);
}

static void ignore_between(nw_announce *a) { (void)a; }
static void ignore_final(nw_announce *a, size_t first) { (void)a, (void)first; }
static void keep_out(nw_announce *a, nw_message *message)
{
    replay_driver *v = (replay_driver *)((char *)a - offsetof(replay_driver, announce));
    replay_rank *r = &v->ranks[v->beginning];
    message->next = NULL;
    if (!r->out) r->out_last = &r->out;
    *r->out_last = message;
    r->out_last = &message->next;
}

/* What the task under way sent up or down, in order. */
static nw_status tell_out(replay_driver *v, int rank)
{
    nw_message *message = v->ranks[rank].out;
    if (!message) return diverged(v, rank, "it sends nothing");
    v->ranks[rank].out = message->next;
    nw_status status = tell_machine(v, rank, (nw_event){.kind = NW_EVENT_OUT, .message = message});
    nw_message_drop(message);
    return status;
}

/* Does what the rank's next record says. */
static nw_status perform(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    nw_rank *p = &v->base.ranks[rank];
    switch (r->next.kind) {
    case NW_EVENT_MESSAGE:
        return tell_message(v, rank);
    case NW_EVENT_FINAL:
        if (!p->busy) return diverged(v, rank, "it is doing nothing");
        NW_TRY(nw_rank_final(&v->base, p, (size_t)r->next.first, r->cursor.now_ns));
        return send_all(v, rank);
    case NW_EVENT_DONE:
        if (!p->busy) return diverged(v, rank, "it is doing nothing");
        NW_TRY(nw_rank_done(&v->base, p, r->cursor.now_ns));
        return send_all(v, rank);
    case NW_EVENT_OUT:
        return tell_out(v, rank);
    case NW_EVENT_GO:
        if ((int64_t)r->next.first != v->go->until)
            return diverged(v, rank, "this run goes until %" PRId64, v->go->until);
        return tell_machine(v, rank, (nw_event){.kind = NW_EVENT_GO, .go = v->go});
    case NW_EVENT_TIMER:
    case NW_EVENT_STOP:
        return tell_machine(v, rank, (nw_event){.kind = (nw_event_kind)r->next.kind});
    case NW_LOG_PASS:
    case NW_LOG_UPDATE:
        return begin_task(v, rank);
    default:
        return diverged(v, rank, "a run is under way");
    }
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

/* In front of the record of a run. */
static nw_status find_run(replay_rank *r)
{
    while (!r->cursor.ended && r->next.kind == NW_LOG_SAVED) NW_TRY(read_next(r));
    return NW_OK;
}

static nw_status enter(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    nw_rank *p = &v->base.ranks[rank];
    NW_TRY(find_run(r));
    if (r->cursor.ended || r->next.kind != NW_LOG_RUN) return diverged(v, rank, "it goes on to train");
    bool continues = v->part->skip > 0 && r->runs == v->part->skip; /* from a checkpoint in the middle of the log */
    if (continues) p->sequence = r->next.sequence;
    bool away = v->base.dropped[rank]; /* it may be anywhere */
    if (!away && (r->next.step != p->machine->updates || r->next.sequence != p->sequence))
        return diverged(v, rank, "it is at step %" PRId64 " and has made %" PRIu64 " messages", p->machine->updates,
                        p->sequence);
    r->runs++;
    return read_next(r);
}

/* The rank has come to where it was quiescent. */
static nw_status leave(replay_driver *v, int rank)
{
    const nw_rank *p = &v->base.ranks[rank];
    const replay_rank *r = &v->ranks[rank];
    if (v->base.dropped[rank] && !r->cursor.ended) return read_next(&v->ranks[rank]);
    if (p->busy || p->queued > 0) return diverged(v, rank, "it has something to do");
    if (!nw_rank_is_quiescent(p)) {
        nw_wait wait = {0};
        char whom[256];
        p->machine->ops->waits(p->machine, &wait);
        nw_wait_text(&wait, whom, sizeof whom);
        return diverged(v, rank, "it waits for %s", whom);
    }
    if (r->cursor.ended || r->next.step != p->machine->updates)
        return diverged(v, rank, "it is at step %" PRId64, p->machine->updates);
    return read_next(&v->ranks[rank]);
}

/* The rank that is furthest behind of those that can go on; -1: none can. */
static int choose(const replay_driver *v)
{
    int best = -1;
    for (int i = 0; i < v->base.size; i++)
        if (can_go_on(&v->ranks[i]) && (best < 0 || v->base.ranks[i].step < v->base.ranks[best].step)) best = i;
    return best;
}

static nw_status go_on(replay_driver *v)
{
    for (;;) {
        int rank = choose(v);
        if (rank < 0) break;
        int64_t step = v->base.ranks[rank].step;
        do {
            NW_TRY(perform(v, rank));
            NW_TRY(read_next(&v->ranks[rank]));
        } while (v->base.ranks[rank].step == step && can_go_on(&v->ranks[rank]));
        NW_FAIL_IF(v->stop && *v->stop, NW_E_INTERRUPTED, "the replay was interrupted at step %" PRId64, step);
    }
    for (int i = 0; i < v->base.size; i++)
        if (!is_quiescent(&v->ranks[i])) return diverged(v, i, "rank %d never sends it", v->ranks[i].next.from);
    return NW_OK;
}

static nw_status replay_run(nw_driver *d, const nw_go *go)
{
    replay_driver *v = (replay_driver *)d;
    v->go = go;
    NW_FAIL_IF(v->runs == v->part->runs, NW_E_INTERRUPTED, "the event log ends at step %" PRId64,
               nw_log_end_step(v->part));
    v->runs++;
    for (int i = 0; i < d->size; i++) NW_TRY(enter(v, i));
    NW_TRY(go_on(v));
    for (int i = 0; i < d->size; i++) NW_TRY(leave(v, i));
    d->over = v->runs == v->part->runs;
    return NW_OK;
}

/* ---- between runs, and life -------------------------------------------------------------------------------------- */

static int64_t now(nw_driver *d, int rank) { return ((replay_driver *)d)->ranks[rank].cursor.now_ns; }

static void replay_free(nw_driver *d)
{
    replay_driver *v = (replay_driver *)d;
    for (int i = 0; v->ranks && i < d->size; i++) {
        replay_rank *r = &v->ranks[i];
        for (int m = 0; m < r->mail_count; m++) nw_message_drop(r->mail[m].message);
        for (nw_message *m = r->out, *next; m; m = next) {
            next = m->next;
            nw_message_drop(m);
        }
        free(r->mail);
    }
    free(v->ranks);
}

static const nw_driver_ops ops = {.name = "replay", .run = replay_run, .now = now, .free = replay_free};

/* To the first record behind the runs that are left out. */
static nw_status begin_rank(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    nw_log_begin(&r->cursor, nw_log_file_of(v->part, rank), rank);
    NW_TRY(read_next(r));
    while (r->runs < v->part->skip && !r->cursor.ended) {
        if (r->next.kind == NW_LOG_QUIESCENT) r->runs++;
        NW_TRY(read_next(r));
    }
    return NW_OK;
}

nw_status nw_replay_create(nw_driver **out, const nw_driver_options *options, const nw_log_part *part)
{
    int world = part->header.world;
    *out = NULL;
    NW_CLEANUP(nw_driver_autofree) nw_driver *d = NULL;
    nw_driver_options own = *options;
    own.stop = NULL;
    own.recorder = NULL;
    NW_TRY(nw_driver_create(&d, sizeof(replay_driver), &ops, &own, world, 0, world));
    replay_driver *v = (replay_driver *)d;
    v->part = part;
    v->stop = options->stop;
    v->runs = part->skip;
    NW_NEW(v->ranks, world, "%d ranks", world);
    for (int i = 0; i < world; i++) NW_TRY(begin_rank(v, i));
    v->announce = (nw_announce){ignore_between, ignore_final, keep_out};
    d->over = part->skip == part->runs;
    *out = d;
    d = NULL;
    return NW_OK;
}
