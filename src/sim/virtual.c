/* virtual.c - see virtual.h. Reading order: run at the bottom, dispatch, then what it calls. */
#include "sim/virtual.h"

#include "sim/heap.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct virtual_rank {
    int64_t clock;   /* the rank is busy until then; during a computation: with messages handled in it */
    int64_t stolen;  /* time that messages have taken from the running computation */
    int64_t began;   /* when the running task began */
    int64_t paused;  /* total of its pauses by step */
    int64_t waiting; /* since when it has nothing to do; -1: it has something */
    int64_t timer;   /* the requested time; NW_NO_TIMER: none */
    bool computing;  /* a pass is running, during which messages are handled */
    bool gone;       /* stopped or dead */
    heap held;       /* messages and timers that are due and wait until the rank is free, in the order of creation */
} virtual_rank;

/* An announcement that a task made when it was computed. */
typedef struct note {
    size_t first;
    nw_message *message;
} note;

typedef struct virtual_driver {
    nw_driver base;
    nw_virtual_options cluster;
    nw_links *links;
    virtual_rank *ranks;
    uint64_t *sent; /* number of messages of each pair */
    int64_t *heard; /* [to * size + from]: the receiver's own time of the last message */
    heap heap;
    uint64_t sequence;
    int64_t now; /* time of the event that is being handled; -1: none */
    nw_announce announce;
    note *notes; /* announcements of the task that is being computed */
    int64_t *times;
    int note_count;
} virtual_driver;

enum { NOTES_MOST = 4096 };

/* ---- future events
 * ------------------------------------------------------------------------------------------------ */

/* Adds an entry; one without a sequence number gets the next number. Entries at NW_NEVER are dropped: a rank whose work
 * never ends counts as stopped. */
static nw_status schedule(virtual_driver *v, entry e)
{
    if (e.time == NW_NEVER) {
        v->ranks[e.rank].gone |= e.kind != TIMER;
        nw_message_drop(e.message);
        return NW_OK;
    }
    if (e.sequence == 0) e.sequence = ++v->sequence;
    return push(&v->heap, e);
}

/* ---- what waits for a rank to be free ---- */

/*
 * All that waits for a rank would happen when it is free, in the order of making, and most of it not even then: the
 * first makes the rank busy again. So only the first has a place among what is to come (WAKE), however many there are.
 */
static nw_status wake(virtual_driver *v, int rank)
{
    const virtual_rank *r = &v->ranks[rank];
    return push(&v->heap, (entry){.time = r->clock, .rank = rank, .kind = WAKE, .sequence = r->held.at[0].sequence});
}

static nw_status hold(virtual_driver *v, entry e)
{
    virtual_rank *r = &v->ranks[e.rank];
    if (r->clock == NW_NEVER) {
        e.time = NW_NEVER;
        return schedule(v, e);
    }
    bool first = r->held.count == 0 || e.sequence < r->held.at[0].sequence;
    e.time = 0;
    NW_TRY(push(&r->held, e));
    return first ? wake(v, e.rank) : NW_OK;
}

/* The entry that a WAKE stands for. *there false: there is none now. */
static nw_status take_held(virtual_driver *v, entry *e, bool *there)
{
    virtual_rank *r = &v->ranks[e->rank];
    int64_t time = e->time;
    *there = false;
    if (r->held.count == 0 || r->held.at[0].sequence != e->sequence) return NW_OK; /* another has come before it */
    if (time < r->clock && r->clock != NW_NEVER) return wake(v, e->rank);
    *there = true;
    *e = pop(&r->held);
    e->time = time;
    return r->held.count > 0 ? wake(v, e->rank) : NW_OK;
}

/* ---- what ranks do ----------------------------------------------------------------------------------------------- */

/* The step that a rank is in: the last that it began, counted from 0; -1 before the first. */
static int64_t step_of(const virtual_driver *v, int rank) { return v->base.ranks[rank].step - 1; }
/* What multiplies local work in that step. A rank that only serves has no steps: there it is that update. */
static double factor_of(const virtual_driver *v, int rank)
{
    const nw_machine *m = v->base.ranks[rank].machine;
    int64_t step = step_of(v, rank) + (m->lockstep ? 0 : m->updates);
    return nw_cluster_factor(v->cluster.cluster, rank, (uint64_t)(step > 0 ? step : 0));
}

/* A rank's own time: that in which it was not paused. */
static int64_t own_time(const virtual_driver *v, int rank, int64_t time)
{
    return time - v->ranks[rank].paused - nw_faults_paused(v->cluster.faults, rank, time);
}

static void hook(virtual_driver *v, int rank, nw_span span, int64_t begin, int64_t end)
{
    const nw_driver_hooks *hooks = &v->base.options.hooks;
    if (hooks->span && end > begin) hooks->span(hooks->context, rank, span, begin, end, v->base.ranks[rank].step);
}

/* What the last event's answer asked the driver for leaves at `time`. */
static nw_status take_actions(virtual_driver *v, int rank, int64_t time)
{
    nw_actions *actions = &v->base.actions;
    nw_status status = NW_OK;
    for (int i = 0; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        entry e = {.time = time, .rank = rank, .kind = DEPART, .message = a->message, .from = rank, .to = a->to};
        if (a->kind == NW_ACTION_DROP || a->kind == NW_ACTION_BACK) {
            nw_driver_drop(&v->base, rank, a->to, a->kind == NW_ACTION_BACK);
            continue;
        }
        if (a->kind == NW_ACTION_TIMER) {
            v->ranks[rank].timer = a->at_ns;
            int64_t away = a->at_ns == NW_NO_TIMER ? 0 : time - own_time(v, rank, time);
            e = (entry){.time = nw_time_add(a->at_ns, away), .rank = rank, .kind = TIMER, .asked = a->at_ns};
        }
        if (status == NW_OK) status = schedule(v, e);
        if (status != NW_OK && a->message) nw_message_drop(a->message);
    }
    actions->count = 0;
    return status;
}

/* What handling an event takes: bytes copied and touched. */
static int64_t handling_ns(const virtual_driver *v, int rank, const nw_message *message)
{
    const nw_cluster *c = v->cluster.cluster;
    int64_t work = nw_cluster_touch_ns(c, v->cluster.touch_bytes_per_second, rank, (double)v->base.actions.touched);
    if (message) work += nw_cluster_copy_ns(c, (int)message->header->from, rank, nw_message_size(message));
    return nw_time_scale(work, factor_of(v, rank));
}

/* What a rank answered at `time`, when it is free or computing, took time and leaves then. */
static nw_status answer(virtual_driver *v, int rank, const nw_message *message, int64_t time)
{
    virtual_rank *r = &v->ranks[rank];
    int64_t work = handling_ns(v, rank, message);
    int64_t done = nw_faults_finish(v->cluster.faults, rank, step_of(v, rank), time, work);
    if (r->computing) r->stolen += done - time;
    r->clock = done;
    hook(v, rank, NW_SPAN_HANDLE, time, done);
    return take_actions(v, rank, done);
}

static nw_status tell_machine(virtual_driver *v, int rank, nw_event event, int64_t time)
{
    event.now_ns = own_time(v, rank, time);
    v->base.actions.touched = 0;
    NW_TRY(nw_rank_tell(&v->base, &v->base.ranks[rank], event));
    return answer(v, rank, event.kind == NW_EVENT_MESSAGE ? event.message : NULL, time);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static void note_between(nw_announce *a) { (void)a; }

static void add_note(nw_announce *a, note n)
{
    virtual_driver *v = (virtual_driver *)((char *)a - offsetof(virtual_driver, announce));
    if (v->note_count < NOTES_MOST)
        v->notes[v->note_count] = n;
    else
        nw_message_drop(n.message);
    v->note_count++;
}
static void note_final(nw_announce *a, size_t first) { add_note(a, (note){.first = first}); }
static void note_out(nw_announce *a, nw_message *message) { add_note(a, (note){.message = message}); }

/* Schedules what a task that begins at `start` will tell, and when. */
static nw_status schedule_task(virtual_driver *v, nw_rank *p, int64_t start)
{
    int rank = p->index, count = p->work->cost(p->worker, &p->task, v->times, NOTES_MOST + 1);
    int64_t step = step_of(v, rank), copying = 0;
    double factor = factor_of(v, rank);
    NW_FAIL_IF(count != v->note_count + 1 || count > NOTES_MOST + 1, NW_E_INTERNAL,
               "a task of rank %d made %d announcements, and tells the times of %d", rank, v->note_count, count - 1);
    if (p->task.kind == NW_TASK_PASS && !p->task.adds) {
        int64_t pause = nw_faults_step_pause(v->cluster.faults, rank, step);
        v->ranks[rank].paused += pause;
        start = nw_time_add(start, pause);
    }
    if (p->task.copy && !p->task.adds) /* what a real rank reads and writes first */
        copying = nw_cluster_touch_ns(v->cluster.cluster, v->cluster.touch_bytes_per_second, rank,
                                      2.0 * sizeof(float) * (double)p->task.count);
    for (int i = 0; i < count; i++) {
        entry e = {.rank = rank, .kind = i + 1 < count ? NOTE : DONE};
        e.time = nw_faults_finish(v->cluster.faults, rank, step, start, nw_time_scale(copying + v->times[i], factor));
        if (e.kind == NOTE) {
            e.first = v->notes[i].first;
            e.message = v->notes[i].message;
        } else if (p->task.kind == NW_TASK_UPDATE) {
            v->ranks[rank].clock = e.time; /* messages wait for its end */
        }
        NW_TRY(schedule(v, e));
    }
    return NW_OK;
}

static bool is_gone(virtual_driver *v, int rank, int64_t time)
{
    virtual_rank *r = &v->ranks[rank];
    if (!r->gone) r->gone = nw_faults_health(v->cluster.faults, rank, step_of(v, rank), time) != NW_RANK_LIVES;
    return r->gone;
}

static void end_wait(virtual_driver *v, int rank)
{
    virtual_rank *r = &v->ranks[rank];
    if (r->waiting < 0) return;
    hook(v, rank, NW_SPAN_WAIT, r->waiting, r->clock);
    if (rank == 0) v->base.waited_ns += r->clock - r->waiting;
    r->waiting = -1;
}

/* Lets a rank do what is next in its queue. */
static nw_status go_on(virtual_driver *v, int rank)
{
    virtual_rank *r = &v->ranks[rank];
    nw_rank *p = &v->base.ranks[rank];
    if (p->busy || is_gone(v, rank, r->clock)) return NW_OK;
    if (!nw_rank_next(&v->base, p)) {
        if (nw_rank_is_quiescent(p))
            end_wait(v, rank);
        else if (r->waiting < 0)
            r->waiting = r->clock;
        return NW_OK;
    }
    end_wait(v, rank);
    if (is_gone(v, rank, r->clock)) return NW_OK; /* a fault may come with the step that has just begun */
    r->began = r->clock;
    r->computing = p->task.kind == NW_TASK_PASS;
    r->stolen = 0;
    v->note_count = 0;
    NW_TRY(nw_rank_do(p, &v->announce));
    return schedule_task(v, p, r->clock);
}

/* ---- what happens ------------------------------------------------------------------------------------------------ */

/* NW_NEVER: the link stays down. The message is lost; a rank that needs it will wait until its timeout. */
static nw_status depart(virtual_driver *v, entry *e)
{
    uint64_t *sequence = &v->sent[(size_t)e->from * (size_t)v->base.size + (size_t)e->to];
    nw_driver_stamp(&v->base, e->from, e->to, e->message);
    size_t bytes = nw_message_size(e->message);
    if (v->base.options.ledger) nw_ledger_transport(v->base.options.ledger, NW_SENT, bytes);
    int64_t arrival = nw_links_send(v->links, e->from, e->to, bytes, e->time, (*sequence)++);
    if (arrival == NW_NEVER) {
        nw_message_drop(e->message);
        return NW_OK;
    }
    return schedule(
        v,
        (entry){.time = arrival, .rank = e->to, .kind = ARRIVE, .message = e->message, .from = e->from, .to = e->to});
}

static nw_status arrive(virtual_driver *v, entry *e)
{
    if (v->base.options.ledger) nw_ledger_transport(v->base.options.ledger, NW_RECEIVED, nw_message_size(e->message));
    nw_driver_accept(&v->base, e->from, e->to, e->message);
    v->heard[(size_t)e->to * (size_t)v->base.size + (size_t)e->from] = own_time(v, e->to, e->time);
    nw_status status = tell_machine(v, e->to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = e->message}, e->time);
    nw_message_drop(e->message);
    return status;
}

static nw_status take_note(virtual_driver *v, const entry *e)
{
    if (e->message) {
        nw_status status = tell_machine(v, e->rank, (nw_event){.kind = NW_EVENT_OUT, .message = e->message}, e->time);
        nw_message_drop(e->message);
        return status;
    }
    v->base.actions.touched = 0;
    NW_TRY(nw_rank_final(&v->base, &v->base.ranks[e->rank], e->first, own_time(v, e->rank, e->time)));
    return answer(v, e->rank, NULL, e->time);
}

static nw_status finish(virtual_driver *v, const entry *e)
{
    virtual_rank *r = &v->ranks[e->rank];
    nw_rank *p = &v->base.ranks[e->rank];
    r->computing = false;
    r->clock = e->time;
    hook(v, e->rank, p->task.kind == NW_TASK_PASS ? NW_SPAN_COMPUTE : NW_SPAN_UPDATE, r->began, e->time);
    v->base.actions.touched = 0;
    NW_TRY(nw_rank_done(&v->base, p, own_time(v, e->rank, e->time)));
    return answer(v, e->rank, NULL, e->time);
}

/* A timer that was set anew meanwhile. */
static bool is_void(const virtual_driver *v, const entry *e)
{
    return e->kind == TIMER && e->asked != v->ranks[e->rank].timer;
}

/* Whether an entry has come too early: for the computation that messages have slowed down, or for a paused clock. */
static bool is_early(virtual_driver *v, entry *e)
{
    virtual_rank *r = &v->ranks[e->rank];
    if (e->kind == NOTE || e->kind == DONE) {
        int64_t more = r->stolen - e->stolen;
        e->stolen = r->stolen;
        e->time = nw_time_add(e->time, more);
        return more > 0;
    }
    int64_t early = e->kind == TIMER ? e->asked - own_time(v, e->rank, e->time) : 0;
    if (early <= 0) return false;
    e->time = nw_time_add(nw_faults_awake(v->cluster.faults, e->rank, e->time), early); /* it was paused meanwhile */
    return true;
}

/* Whether it has to wait until the rank is free. */
static bool is_held(const virtual_driver *v, const entry *e)
{
    return (e->kind == ARRIVE || e->kind == TIMER) && e->time < v->ranks[e->rank].clock;
}

static nw_status dispatch(virtual_driver *v, entry *e)
{
    virtual_rank *r = &v->ranks[e->rank];
    if (e->kind == DEPART) return depart(v, e);
    if (is_gone(v, e->rank, e->time)) {
        nw_message_drop(e->message);
        return NW_OK;
    }
    nw_rank *p = &v->base.ranks[e->rank];
    int64_t now = own_time(v, e->rank, e->time), idle = r->waiting < 0 ? now : own_time(v, e->rank, r->waiting);
    bool late = nw_rank_is_late(&v->base, p, now, idle, v->heard + (size_t)e->rank * (size_t)v->base.size);
    if (late && e->kind != TIMER) return nw_driver_timed_out(p, now - idle);
    switch (e->kind) {
    case ARRIVE:
        NW_TRY(arrive(v, e));
        break;
    case NOTE:
        NW_TRY(take_note(v, e));
        break;
    case DONE:
        NW_TRY(finish(v, e));
        break;
    case TIMER:
        r->timer = NW_NO_TIMER;
        NW_TRY(tell_machine(v, e->rank, (nw_event){.kind = NW_EVENT_TIMER}, e->time));
        break;
    case DEPART:
    case WAKE:
        break;
    }
    NW_TRY(go_on(v, e->rank));
    bool waits = r->waiting >= 0; /* still, although its time has come */
    return late && waits ? nw_driver_timed_out(p, now - idle) : NW_OK;
}

/* GO and STOP take no time. */
static nw_status tell_pace(virtual_driver *v, int rank, nw_event event, int64_t time)
{
    event.now_ns = own_time(v, rank, time);
    NW_TRY(nw_rank_tell(&v->base, &v->base.ranks[rank], event));
    NW_TRY(take_actions(v, rank, time));
    return go_on(v, rank);
}

static nw_status stop_all(virtual_driver *v)
{
    for (int i = 0; i < v->base.size; i++) {
        if (v->ranks[i].gone) continue;
        int64_t time = v->ranks[i].clock > v->now ? v->ranks[i].clock : v->now;
        NW_TRY(tell_pace(v, i, (nw_event){.kind = NW_EVENT_STOP}, time));
    }
    return NW_OK;
}

/* Nothing more can happen. If a rank still waits, it would do so for ever. */
static nw_status check_quiescent(virtual_driver *v)
{
    for (int i = 0; i < v->base.size; i++)
        if (!v->ranks[i].gone && !v->base.dropped[i] && !nw_rank_is_quiescent(&v->base.ranks[i]))
            return nw_driver_timed_out(&v->base.ranks[i], v->base.options.timeout_ns);
    for (int i = 0; i < v->base.size; i++)
        NW_FAIL_IF(v->ranks[i].gone && !v->base.dropped[i], NW_E_PEER,
                   "rank %d died in step %" PRId64 ", after %.3f virtual seconds", i, v->base.ranks[i].step,
                   (double)v->ranks[i].clock * 1e-9);
    return NW_OK;
}

static nw_status virtual_run(nw_driver *d, const nw_go *go)
{
    virtual_driver *v = (virtual_driver *)d;
    for (int i = 0; i < d->size; i++)
        NW_TRY(tell_pace(v, i, (nw_event){.kind = NW_EVENT_GO, .go = go}, v->ranks[i].clock));
    while (v->heap.count > 0) {
        entry e = pop(&v->heap);
        bool there = true;
        if (e.kind == WAKE) NW_TRY(take_held(v, &e, &there));
        if (!there || is_void(v, &e)) continue;
        v->now = e.time;
        if (is_early(v, &e))
            NW_TRY(schedule(v, e));
        else if (is_held(v, &e))
            NW_TRY(hold(v, e));
        else
            NW_TRY(dispatch(v, &e));
        if (nw_driver_shall_stop(d)) NW_TRY(stop_all(v));
    }
    v->now = -1;
    return check_quiescent(v);
}

/* ---- between runs ------------------------------------------------------------------------------------------------ */

/* What happens now; between runs, when the rank was done. */
static int64_t now(nw_driver *d, int rank)
{
    const virtual_driver *v = (const virtual_driver *)d;
    return v->now >= 0 ? v->now : v->ranks[rank].clock;
}

/* Clocks, pauses, messages of each pair, waiting time, sequences; then the queues of the links. */
static nw_status save(nw_driver *d, int64_t **state, size_t *count)
{
    virtual_driver *v = (virtual_driver *)d;
    size_t n = (size_t)d->size, links = nw_links_state_count(v->links), at = 0;
    *count = 2 * n + n * n + 3 + links;
    NW_NEW(*state, *count, "the state of a virtual cluster");
    for (size_t i = 0; i < n; i++) (*state)[at++] = v->ranks[i].clock;
    for (size_t i = 0; i < n; i++) (*state)[at++] = v->ranks[i].paused;
    for (size_t i = 0; i < n * n; i++) (*state)[at++] = (int64_t)v->sent[i];
    (*state)[at++] = d->waited_ns;
    (*state)[at++] = (int64_t)d->sequence;
    (*state)[at++] = (int64_t)v->sequence;
    nw_links_save(v->links, *state + at);
    return NW_OK;
}

static nw_status load(nw_driver *d, const int64_t *state, size_t count)
{
    virtual_driver *v = (virtual_driver *)d;
    size_t n = (size_t)d->size, at = 0;
    NW_FAIL_IF(count < 2 * n + n * n + 3, NW_E_FILE, "the state of a virtual cluster of %d ranks cannot be %zu numbers",
               d->size, count);
    for (size_t i = 0; i < n + n * n + 3; i++)
        NW_FAIL_IF(state[i] < 0 || state[i] > INT64_MAX / 4, NW_E_FILE,
                   "the state of a virtual cluster cannot have %lld as number %zu; take an earlier checkpoint",
                   (long long)state[i], i);
    for (size_t i = 0; i < n; i++) v->ranks[i].clock = state[at++];
    for (size_t i = 0; i < n; i++) v->ranks[i].paused = state[at++];
    for (size_t i = 0; i < n * n; i++) v->sent[i] = (uint64_t)state[at++];
    d->waited_ns = state[at++];
    d->sequence = (uint64_t)state[at++];
    v->sequence = (uint64_t)state[at++];
    return nw_links_load(v->links, state + at, count - at);
}

/* Messages on their way are lost, but were sent: they count as received. */
static void drop_entries(const virtual_driver *v, heap *h)
{
    nw_ledger *ledger = v->base.options.ledger;
    for (int i = 0; i < h->count; i++) {
        const entry *e = &h->at[i];
        if (!e->message) continue;
        if (e->kind == ARRIVE && ledger) {
            nw_ledger_transport(ledger, NW_RECEIVED, nw_message_size(e->message));
            nw_ledger_received(ledger, e->from, e->to, e->message->header);
        }
        nw_message_drop(e->message);
    }
    h->count = 0;
}

static void drop_all(virtual_driver *v)
{
    drop_entries(v, &v->heap);
    for (int i = 0; v->ranks && i < v->base.size; i++) drop_entries(v, &v->ranks[i].held);
}

/* All go on together, from the latest clock. */
static void reset(nw_driver *d)
{
    virtual_driver *v = (virtual_driver *)d;
    int64_t latest = v->now;
    drop_all(v);
    for (int i = 0; i < d->size; i++)
        if (v->ranks[i].clock > latest) latest = v->ranks[i].clock;
    for (int i = 0; i < d->size; i++)
        v->ranks[i] = (virtual_rank){.clock = latest,
                                     .paused = v->ranks[i].paused,
                                     .waiting = -1,
                                     .timer = NW_NO_TIMER,
                                     .gone = v->ranks[i].gone,
                                     .held = v->ranks[i].held};
    v->now = -1;
}

static void virtual_free(nw_driver *d)
{
    virtual_driver *v = (virtual_driver *)d;
    drop_all(v);
    nw_links_free(v->links);
    free(v->heap.at);
    for (int i = 0; v->ranks && i < d->size; i++) free(v->ranks[i].held.at);
    free(v->ranks);
    free(v->sent);
    free(v->heard);
    free(v->notes);
    free(v->times);
}

static const nw_driver_ops ops = {.name = "virtual",
                                  .run = virtual_run,
                                  .now = now,
                                  .save = save,
                                  .load = load,
                                  .reset = reset,
                                  .free = virtual_free};

nw_status nw_virtual_create(nw_driver **out, const nw_driver_options *options, const nw_virtual_options *cluster)
{
    int world = cluster->cluster->world;
    *out = NULL;
    NW_CLEANUP(nw_driver_autofree) nw_driver *d = NULL;
    NW_TRY(nw_driver_create(&d, sizeof(virtual_driver), &ops, options, world, 0, world));
    virtual_driver *v = (virtual_driver *)d;
    v->cluster = *cluster;
    v->announce = (nw_announce){note_between, note_final, note_out};
    d->actions.factors = &cluster->cluster->codecs;
    NW_NEW(v->ranks, world, "%d virtual ranks", world);
    NW_NEW(v->sent, (size_t)world * (size_t)world, "%d virtual ranks", world);
    NW_NEW(v->heard, (size_t)world * (size_t)world, "%d virtual ranks", world);
    NW_NEW(v->notes, NOTES_MOST, "%d virtual ranks", world);
    NW_NEW(v->times, NOTES_MOST + 1, "%d virtual ranks", world);
    NW_TRY(nw_links_create(&v->links, cluster->cluster, cluster->faults));
    for (int i = 0; i < world; i++) v->ranks[i] = (virtual_rank){.waiting = -1, .timer = NW_NO_TIMER};
    v->now = -1;
    *out = d;
    d = NULL;
    return NW_OK;
}
