/*
 * replay.c - see replay.h. Reading order: run at the bottom, perform, then what it calls.
 *
 * A rank is always in front of its next record. It goes on as far as it can: until it needs a message that is not there,
 * or until its run of the driver rests. When nobody can go on, ranks that rest and flush next may do that first, since
 * a rank over MPI does not wait for others before it flushes; if that does not help either, the run has diverged.
 */
#include "net/replay.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct letter {
    nw_message *message;
    int from;
    uint32_t sequence;
} letter;

typedef struct replay_rank {
    nw_schedule_cursor cursor;
    nw_schedule_record next;
    int runs; /* begun */
    bool computing;
    letter *mail; /* sent to it and not yet told, in the order of sending */
    int mail_count, mail_capacity;
} replay_rank;

typedef struct replay_driver {
    nw_driver base;
    const nw_schedule_part *part;
    const volatile sig_atomic_t *stop; /* asks the replay, not what is replayed */
    replay_rank *ranks;
    nw_party *parties;
    int runs; /* that the driver was asked for */
} replay_driver;

/* ---- failing -------------------------------------------------------------------------------------------------------- */

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
        nw_schedule_text(&r->next, text, sizeof text);
    return NW_FAIL(NW_E_NUMERIC,
                   "rank %d diverged from its schedule (%s) at step %" PRId64 ", record %" PRId64
                   ": %s is next, but %s",
                   rank, r->cursor.file->name, v->parties[rank].step, r->cursor.number, text, what);
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

static nw_status put_letter(replay_rank *r, letter l)
{
    if (r->mail_count == r->mail_capacity) {
        int capacity = r->mail_capacity ? 2 * r->mail_capacity : 64;
        letter *mail = realloc(r->mail, (size_t)capacity * sizeof *mail);
        if (!mail) {
            nw_message_drop(l.message);
            return NW_FAIL(NW_E_MEMORY, "no memory for %d messages", capacity);
        }
        r->mail = mail;
        r->mail_capacity = capacity;
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
        if (a->kind == NW_ACTION_LOST) nw_driver_lose(&v->base, from, a->to);
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

/* ---- records -------------------------------------------------------------------------------------------------------- */

static nw_status read_next(replay_rank *r) { return nw_schedule_next(&r->cursor, &r->next); }

static bool is_at_rest(const replay_rank *r) { return r->cursor.ended || r->next.kind == NW_SCHEDULE_REST; }

static bool can_go_on(const replay_rank *r)
{
    return !is_at_rest(r) && (r->next.kind != NW_EVENT_MESSAGE || find_letter(r) >= 0);
}

static nw_status tell(replay_driver *v, int rank, nw_event event)
{
    event.now_ns = v->ranks[rank].cursor.now_ns;
    NW_TRY(nw_party_tell(&v->base, &v->parties[rank], event));
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
    nw_status status = tell(v, rank, (nw_event){.kind = NW_EVENT_MESSAGE, .message = l.message});
    nw_message_drop(l.message);
    return status;
}

static nw_status tell_done(replay_driver *v, int rank, bool computes)
{
    nw_party *p = &v->parties[rank];
    replay_rank *r = &v->ranks[rank];
    if (!p->busy || r->computing != computes)
        return diverged(v, rank, "it is %s", !p->busy ? "doing nothing" : r->computing ? "computing" : "applying");
    p->busy = r->computing = false;
    return tell(v, rank, (nw_event){.kind = (nw_event_kind)r->next.kind});
}

/* nw_party_next where then a computation was held back, for whatever reason, or was not. */
static bool take(replay_driver *v, int rank, bool parked, nw_action *action)
{
    nw_party *p = &v->parties[rank];
    int64_t before = v->base.stop_before;
    if (parked) v->base.stop_before = p->step;
    bool there = nw_party_next(&v->base, p, action);
    v->base.stop_before = before;
    return there;
}

static nw_status begin_work(replay_driver *v, int rank)
{
    nw_party *p = &v->parties[rank];
    replay_rank *r = &v->ranks[rank];
    bool computes = r->next.kind == NW_SCHEDULE_COMPUTE, complete = true;
    nw_action action;
    if (p->busy) return diverged(v, rank, "it is %s", r->computing ? "computing" : "applying");
    if (!take(v, rank, r->next.flag, &action))
        return diverged(v, rank, "it %s", p->parked ? "has computed all that it should" : "has nothing to do");
    if ((action.kind == NW_ACTION_COMPUTE) != computes)
        return diverged(v, rank, "it would %s", computes ? "apply an update" : "compute");
    NW_TRY(computes ? p->work->compute(p->worker, NULL, &complete) : p->work->apply(p->worker, &action));
    if (!complete) {
        nw_party_postpone(p);
        return NW_OK;
    }
    p->busy = true;
    r->computing = computes;
    return NW_OK;
}

/* Does what the rank's next record says. */
static nw_status perform(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    switch (r->next.kind) {
    case NW_EVENT_MESSAGE:
        return tell_message(v, rank);
    case NW_EVENT_READY:
        if (!r->computing) return diverged(v, rank, "it is not computing");
        return tell(v, rank, (nw_event){.kind = NW_EVENT_READY, .first = (size_t)r->next.first});
    case NW_EVENT_COMPUTED:
    case NW_EVENT_APPLIED:
        return tell_done(v, rank, r->next.kind == NW_EVENT_COMPUTED);
    case NW_EVENT_BEGIN:
        v->parties[rank].begun = true;
        return tell(v, rank, (nw_event){.kind = NW_EVENT_BEGIN});
    case NW_EVENT_GO:
        return tell(v, rank, (nw_event){.kind = NW_EVENT_GO, .until = (int64_t)r->next.first});
    case NW_EVENT_TIMER:
    case NW_EVENT_FLUSH:
        return tell(v, rank, (nw_event){.kind = (nw_event_kind)r->next.kind});
    case NW_SCHEDULE_COMPUTE:
    case NW_SCHEDULE_APPLY:
        return begin_work(v, rank);
    default:
        return diverged(v, rank, "a run is under way");
    }
}

/* ---- runs ----------------------------------------------------------------------------------------------------------- */

/* In front of the record of a run. */
static nw_status find_run(replay_rank *r)
{
    while (!r->cursor.ended && r->next.kind == NW_SCHEDULE_SAVED) NW_TRY(read_next(r));
    return NW_OK;
}

static nw_status enter(replay_driver *v, int rank, bool flush)
{
    replay_rank *r = &v->ranks[rank];
    nw_party *p = &v->parties[rank];
    NW_TRY(find_run(r));
    if (r->cursor.ended || r->next.kind != NW_SCHEDULE_RUN || r->next.flag != flush)
        return diverged(v, rank, "it %s", flush ? "applies what it holds back" : "goes on to train");
    bool continues = v->part->skip > 0 && !p->begun; /* from a checkpoint in the middle of the log */
    if (continues) p->sequence = r->next.sequence;
    if (r->next.step != nw_party_progress(p) || r->next.sequence != p->sequence)
        return diverged(v, rank, "it is at step %" PRId64 " and has made %" PRIu32 " messages", nw_party_progress(p),
                        p->sequence);
    r->runs++;
    NW_TRY(read_next(r));
    if (!continues) return NW_OK;
    p->begun = true;
    return tell(v, rank, (nw_event){.kind = NW_EVENT_BEGIN});
}

/* The rank has come to where it rested. */
static nw_status leave(replay_driver *v, int rank)
{
    nw_party *p = &v->parties[rank];
    nw_action action;
    bool last = v->ranks[rank].runs == v->part->runs; /* which may have rested because it was asked to */
    if (p->busy || take(v, rank, true, &action)) return diverged(v, rank, "it has something to do");
    if (!last && !p->exchange->hands_out && p->work->wants(p->worker))
        return diverged(v, rank, "it has more to compute");
    if (!nw_party_rests(p)) {
        nw_wait wait;
        char whom[256];
        p->exchange->ops->waits(p->exchange, &wait);
        nw_wait_text(&wait, whom, sizeof whom);
        return diverged(v, rank, "it waits for %s", whom);
    }
    if (v->ranks[rank].cursor.ended || v->ranks[rank].next.step != nw_party_progress(p))
        return diverged(v, rank, "it is at step %" PRId64, nw_party_progress(p));
    return read_next(&v->ranks[rank]);
}

/* The rank that is furthest behind of those that can go on; -1: none can. */
static int choose(const replay_driver *v)
{
    int best = -1;
    for (int i = 0; i < v->base.size; i++)
        if (can_go_on(&v->ranks[i]) && (best < 0 || v->parties[i].step < v->parties[best].step)) best = i;
    return best;
}

/* One that rests in this run, and flushes next, does so although others are not there yet. */
static nw_status hurry(replay_driver *v, bool *moved)
{
    *moved = false;
    for (int i = 0; i < v->base.size && !*moved; i++) {
        replay_rank *r = &v->ranks[i];
        if (!is_at_rest(r) || r->cursor.ended || r->runs > v->runs || r->runs >= v->part->runs) continue;
        nw_schedule_cursor ahead =
            r->cursor; /* shares what it knows of sequences, which records of runs do not change */
        nw_schedule_record next;
        NW_TRY(nw_schedule_next(&ahead, &next));
        if (ahead.ended || next.kind != NW_SCHEDULE_RUN || !next.flag) continue;
        NW_TRY(leave(v, i));
        NW_TRY(enter(v, i, true));
        *moved = true;
    }
    return NW_OK;
}

static nw_status go_on(replay_driver *v)
{
    for (;;) {
        int rank = choose(v);
        if (rank >= 0) {
            int64_t step = v->parties[rank].step;
            do {
                NW_TRY(perform(v, rank));
                NW_TRY(read_next(&v->ranks[rank]));
            } while (v->parties[rank].step == step && can_go_on(&v->ranks[rank]));
            NW_FAIL_IF(v->stop && *v->stop, NW_E_INTERRUPTED, "the replay was interrupted at step %" PRId64, step);
            continue;
        }
        int stuck = -1;
        for (int i = 0; i < v->base.size && stuck < 0; i++)
            if (!is_at_rest(&v->ranks[i])) stuck = i;
        if (stuck < 0) return NW_OK;
        bool moved;
        NW_TRY(hurry(v, &moved));
        if (!moved) return diverged(v, stuck, "rank %d never sends it", v->ranks[stuck].next.from);
    }
}

static nw_status run(nw_driver *d, nw_party *parties, bool flush)
{
    replay_driver *v = (replay_driver *)d;
    v->parties = parties;
    NW_FAIL_IF(v->runs == v->part->runs, NW_E_INTERRUPTED, "the schedule ends at step %" PRId64,
               nw_schedule_end_step(v->part));
    v->runs++;
    for (int i = 0; i < d->size; i++)
        if (v->ranks[i].runs < v->runs) NW_TRY(enter(v, i, flush));
    NW_TRY(go_on(v));
    for (int i = 0; i < d->size; i++)
        if (v->ranks[i].runs == v->runs) NW_TRY(leave(v, i));
    if (v->runs == v->part->runs) d->stop_before = nw_party_progress(&parties[0]); /* this is all there is */
    return NW_OK;
}

/* ---- between runs, and life ----------------------------------------------------------------------------------------- */

static nw_status share(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    memcpy(all, mine, bytes * (size_t)d->size);
    return NW_OK;
}

static nw_status collect(nw_driver *d, int from, void *data, size_t bytes)
{
    (void)d, (void)from, (void)data, (void)bytes;
    return NW_OK;
}

static int64_t now(nw_driver *d, int rank) { return ((replay_driver *)d)->ranks[rank].cursor.now_ns; }

static void replay_free(nw_driver *d)
{
    replay_driver *v = (replay_driver *)d;
    for (int i = 0; v->ranks && i < d->size; i++) {
        replay_rank *r = &v->ranks[i];
        for (int m = 0; m < r->mail_count; m++) nw_message_drop(r->mail[m].message);
        nw_schedule_end(&r->cursor);
        free(r->mail);
    }
    free(v->ranks);
}

static const nw_driver_ops ops = {
    .name = "replay", .run = run, .share = share, .collect = collect, .now = now, .free = replay_free};

/* To the first record behind the runs that are left out. */
static nw_status begin_rank(replay_driver *v, int rank)
{
    replay_rank *r = &v->ranks[rank];
    NW_TRY(nw_schedule_begin(&r->cursor, nw_schedule_file_of(v->part, rank), rank));
    NW_TRY(read_next(r));
    while (r->runs < v->part->skip && !r->cursor.ended) {
        if (r->next.kind == NW_SCHEDULE_REST) r->runs++;
        NW_TRY(read_next(r));
    }
    return NW_OK;
}

nw_status nw_replay_create(nw_driver **out, const nw_driver_options *options, const nw_schedule_part *part)
{
    int world = part->header.world;
    *out = NULL;
    replay_driver *v = calloc(1, sizeof *v);
    NW_FAIL_IF(!v, NW_E_MEMORY, "no memory for a driver");
    nw_driver_options own = *options;
    own.stop = NULL;
    own.recorder = NULL;
    nw_status status = nw_driver_init(&v->base, &ops, &own, world, 0, world);
    v->part = part;
    v->stop = options->stop;
    v->runs = part->skip;
    v->ranks = calloc((size_t)world, sizeof *v->ranks);
    if (status == NW_OK && !v->ranks) status = NW_FAIL(NW_E_MEMORY, "no memory for %d ranks", world);
    for (int i = 0; i < world && status == NW_OK; i++) status = begin_rank(v, i);
    if (status != NW_OK) {
        nw_driver_free(&v->base);
        return status;
    }
    if (part->skip == part->runs) v->base.stop_before = 0; /* nothing to do */
    *out = &v->base;
    return NW_OK;
}
