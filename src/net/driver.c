/* driver.c - what all drivers share: the queue of a party, actions, stopping together. See driver.h and party.h. */
#include "net/driver.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of actions --------------------------------------------------------------------------------------------- */

void nw_actions_add(nw_actions *actions, nw_action action)
{
    if (actions->count == actions->capacity) {
        int capacity = actions->capacity ? 2 * actions->capacity : 64;
        nw_action *at = realloc(actions->at, (size_t)capacity * sizeof *at);
        if (!at) {
            actions->status = NW_FAIL(NW_E_MEMORY, "no memory for a list of %d actions", capacity);
            if (action.message) nw_message_drop(action.message);
            return;
        }
        actions->at = at;
        actions->capacity = capacity;
    }
    actions->at[actions->count++] = action;
}

void nw_actions_clear(nw_actions *actions)
{
    for (int i = 0; i < actions->count; i++)
        if (actions->at[i].message) nw_message_drop(actions->at[i].message);
    actions->count = 0;
    actions->status = NW_OK;
}

void nw_actions_free(nw_actions *actions)
{
    nw_actions_clear(actions);
    free(actions->at);
    *actions = (nw_actions){0};
}

/* ---- waits, for people ---------------------------------------------------------------------------------------------- */

void nw_wait_add(nw_wait *wait, int rank)
{
    if (wait->count < NW_WAIT_RANKS) wait->ranks[wait->count] = rank;
    wait->count++;
}

void nw_wait_text(const nw_wait *wait, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s", wait->count == 1 ? "rank" : "ranks");
    for (int i = 0; i < wait->count && i < 12 && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %d", i ? "," : "", wait->ranks[i]);
    if (wait->count > 12 && used < size)
        used += (size_t)snprintf(text + used, size - used, " and %d more", wait->count - 12);
    if (used < size) snprintf(text + used, size - used, ": %s", wait->what);
}

/* ---- parties -------------------------------------------------------------------------------------------------------- */

/* Fills what is the driver's of a header. Once, before the message leaves: it may go to many. */
static void name_message(nw_driver *d, int from, nw_message *m, uint32_t sequence)
{
    m->header->from = (uint32_t)from;
    m->header->sequence = sequence;
    m->header->generation = d->generation;
    if (d->stop_before != INT64_MAX) m->header->stop_before = (uint64_t)d->stop_before;
}

/* Sorts an exchange's answer: what the rank itself does goes to its queue or is done, the rest stays for the driver. */
static nw_status sort_actions(nw_driver *d, nw_party *p, int from)
{
    int kept = from;
    nw_status status = NW_OK; /* of copies; what else was answered is sorted all the same */
    for (int i = from; i < d->actions.count; i++) {
        nw_action *a = &d->actions.at[i];
        if (a->kind == NW_ACTION_COMPUTE || a->kind == NW_ACTION_APPLY) {
            NW_FAIL_IF(p->queued == NW_PARTY_QUEUE, NW_E_INTERNAL, "%s asks rank %d for more than %d things at a time",
                       p->exchange->ops->name, p->exchange->rank, NW_PARTY_QUEUE);
            p->queue[p->queued++] = *a;
        } else if (a->kind == NW_ACTION_COPY) {
            if (status == NW_OK) status = p->work->copied(p->worker, a);
        } else {
            if (a->kind == NW_ACTION_SEND && a->message->header->sequence == 0)
                name_message(d, p->exchange->rank, a->message, ++p->sequence);
            d->actions.at[kept++] = *a;
        }
    }
    d->actions.count = kept;
    return status;
}

nw_status nw_party_tell(nw_driver *d, nw_party *p, nw_event event)
{
    int before = d->actions.count;
    const nw_taps *taps = &d->options.taps;
    if (taps->event) taps->event(taps->context, p->exchange->rank, &event);
    nw_recorder_event(d->options.recorder, p->exchange->rank, &event);
    NW_TRY(p->exchange->ops->handle(p->exchange, &event, &d->actions));
    NW_TRY(d->actions.status);
    return sort_actions(d, p, before);
}

static bool is_asked_to_stop(const nw_driver *d) { return d->options.stop && *d->options.stop; }

/* A rank that is asked to stop says so in the messages of the step that it begins, and all ranks know before any of
 * them begins the second step after it. A rank alone stops at once. */
static bool may_compute(nw_driver *d, const nw_party *p)
{
    if (p->exchange->hands_out) return true;
    if (is_asked_to_stop(d)) {
        int64_t before = d->size == 1 ? p->step : p->step + 2;
        if (before < d->stop_before) d->stop_before = before;
    }
    return p->step < d->stop_before && p->work->wants(p->worker);
}

bool nw_driver_shall_stop(nw_driver *d)
{
    if (is_asked_to_stop(d) && d->stop_before == INT64_MAX) d->stop_before = 1; /* told in the next messages */
    return d->stop_before != INT64_MAX;
}

nw_status nw_party_go(nw_driver *d, nw_party *p, int64_t now_ns)
{
    if (!p->exchange->hands_out) return NW_OK;
    return nw_party_tell(d, p, (nw_event){.kind = NW_EVENT_GO, .until = d->until, .now_ns = now_ns});
}

nw_status nw_party_stop(nw_driver *d, nw_party *p, int64_t now_ns)
{
    return nw_party_tell(d, p, (nw_event){.kind = NW_EVENT_GO, .until = 0, .now_ns = now_ns});
}

void nw_driver_lose(nw_driver *d, int by, int rank)
{
    const nw_taps *taps = &d->options.taps;
    if (d->lost[rank]) return;
    d->lost[rank] = true;
    if (taps->lost) taps->lost(taps->context, by, rank, nw_driver_now(d, by));
}

/* The first update behind a computation that has to wait; queued: none. */
static int first_update(const nw_party *p)
{
    int i = 0;
    while (i < p->queued && p->queue[i].kind != NW_ACTION_APPLY) i++;
    return i;
}

bool nw_party_next(nw_driver *d, nw_party *p, nw_action *action)
{
    int next = 0;
    p->parked = false;
    if (p->busy || p->queued == 0) return false;
    if (p->queue[0].kind == NW_ACTION_COMPUTE) {
        p->parked = !may_compute(d, p);
        if (p->parked)
            next = first_update(p);
        else
            p->step++;
    }
    if (next == p->queued) return false;
    *action = p->queue[next];
    nw_recorder_begins(d->options.recorder, p->exchange->rank, action->kind, p->parked);
    p->queued--;
    memmove(p->queue + next, p->queue + next + 1, (size_t)(p->queued - next) * sizeof p->queue[0]);
    return true;
}

void nw_party_postpone(nw_party *p)
{
    memmove(p->queue + 1, p->queue, (size_t)p->queued++ * sizeof p->queue[0]);
    p->queue[0] = (nw_action){.kind = NW_ACTION_COMPUTE};
    p->step--;
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

void nw_driver_stamp(nw_driver *d, int from, int to, nw_message *m)
{
    if (m->header->sequence == 0) name_message(d, from, m, NW_SEQUENCE_OF_DRIVERS | ++d->sequence);
    if (d->options.ledger) nw_ledger_sent(d->options.ledger, from, to, m->header);
    const nw_taps *taps = &d->options.taps;
    if (taps->sent) taps->sent(taps->context, from, to, m->header, nw_driver_now(d, from));
}

void nw_driver_accept(nw_driver *d, int from, int to, const nw_message *m)
{
    if (d->options.ledger) nw_ledger_received(d->options.ledger, from, to, m->header);
    uint64_t before = m->header->stop_before;
    if (before > 0 && before < (uint64_t)d->stop_before) d->stop_before = (int64_t)before;
    const nw_taps *taps = &d->options.taps;
    if (taps->received) taps->received(taps->context, from, to, m->header, nw_driver_now(d, to));
}

/* ---- drivers -------------------------------------------------------------------------------------------------------- */

nw_status nw_driver_init(nw_driver *d, const nw_driver_ops *ops, const nw_driver_options *options, int size, int first,
                         int count)
{
    d->ops = ops;
    d->options = *options;
    d->size = size;
    d->first = first;
    d->count = count;
    d->stop_before = INT64_MAX;
    d->lost = calloc((size_t)size, sizeof *d->lost);
    NW_FAIL_IF(!d->lost, NW_E_MEMORY, "no memory for a table of %d ranks", size);
    NW_TRY(nw_message_pool_create(&d->pool));
    d->actions.pool = d->pool;
    return NW_OK;
}

nw_status nw_driver_timed_out(nw_driver *d, const nw_party *p, int64_t waited_ns)
{
    nw_wait wait;
    (void)d;
    p->exchange->ops->waits(p->exchange, &wait);
    return nw_wait_failed(&wait, p->exchange->rank, waited_ns);
}

nw_status nw_wait_failed(const nw_wait *wait, int rank, int64_t waited_ns)
{
    char whom[384];
    nw_wait_text(wait, whom, sizeof whom);
    return NW_FAIL(NW_E_PEER, "rank %d has waited %.1f s for %s; --timeout sets how long it may", rank,
                   (double)waited_ns * 1e-9, whom);
}

/* What this process knows, for people who look for the cause: one file for each of its ranks. Failing to write one
 * must not hide the failure that it is about. */
static void dump(nw_driver *d, const nw_party *parties, const char *reason)
{
    if (!d->options.dump_dir || nw_directory_make(d->options.dump_dir) != NW_OK) return;
    for (int i = 0; i < d->count; i++) {
        char name[64], *path;
        snprintf(name, sizeof name, "rank%d.json", d->first + i);
        if (nw_path_join(&path, d->options.dump_dir, name) != NW_OK) return;
        FILE *out = fopen(path, "w");
        free(path);
        if (!out) return;
        nw_dump_write(d, &parties[i], reason, out);
        fclose(out);
    }
}

/* Writes down what is known and tells the others, if something went wrong in a world of several. */
static nw_status tell_failure(nw_driver *d, nw_status status)
{
    if (status == NW_OK || d->size == 1) return status;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", nw_error_message());
    if (d->parties) dump(d, d->parties, reason);
    nw_driver_fail(d, status, reason);
    return NW_FAIL(status, "%s", reason);
}

nw_status nw_driver_run(nw_driver *d, nw_party *parties, bool flush)
{
    nw_recorder *recorder = d->options.recorder;
    d->parties = parties;
    for (int i = 0; i < d->count; i++)
        nw_recorder_run(recorder, d->first + i, flush, nw_party_progress(&parties[i]), parties[i].sequence);
    nw_status status = d->ops->run(d, parties, flush);
    for (int i = 0; i < d->count && status == NW_OK; i++)
        nw_recorder_rest(recorder, d->first + i, nw_party_progress(&parties[i]));
    return tell_failure(d, status);
}
bool nw_driver_stopped(const nw_driver *d) { return d->stop_before != INT64_MAX; }
nw_status nw_driver_share(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    return tell_failure(d, d->ops->share(d, mine, bytes, all));
}
nw_status nw_driver_collect(nw_driver *d, int from, void *data, size_t bytes)
{
    return tell_failure(d, d->ops->collect(d, from, data, bytes));
}
void nw_driver_fail(nw_driver *d, nw_status status, const char *reason)
{
    if (d->ops->fail) d->ops->fail(d, status, reason);
}

void nw_driver_reset(nw_driver *d)
{
    nw_actions_clear(&d->actions);
    d->generation++;
    if (d->ops->reset) d->ops->reset(d);
}
int64_t nw_driver_now(nw_driver *d, int rank) { return d->ops->now(d, rank); }

void nw_driver_free(nw_driver *d)
{
    if (!d) return;
    nw_actions_free(&d->actions);
    nw_message_pool *pool = d->pool;
    if (d->ops->free) d->ops->free(d);
    free(d->lost);
    if (pool) nw_message_pool_free(pool);
    free(d);
}
