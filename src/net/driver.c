/* driver.c - what all drivers share: a rank's queue of tasks, actions, groups, failing. See driver.h and machine.h. */
#include "net/driver.h"

#include "base/file.h"
#include "net/preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of actions -------------------------------------------------------------------------------------------- */

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

/* Whether [at, at + count) and [vector + first, vector + end) have a float in common. */
static bool overlaps(const float *at, size_t count, const float *vector, size_t first, size_t end)
{
    return vector && first < end && at < vector + end && at + count > vector + first;
}

/* What the task under way owns: a pass its gradient up to where it is final, and, against writers, its values; an
 * update its ranges. */
static bool is_owned(const nw_actions *a, const float *at, size_t count, bool write)
{
    const nw_task *t = a->running;
    if (!t) return false;
    size_t end = t->first + t->count;
    if (t->kind == NW_TASK_PASS)
        return overlaps(at, count, t->gradient, t->first, end < a->final ? end : a->final) ||
               (write && !t->copy && overlaps(at, count, t->values, t->first, end));
    return overlaps(at, count, t->values, t->first, end) || overlaps(at, count, t->also, t->first, end) ||
           (write && overlaps(at, count, t->gradient, t->first, end));
}

void nw_actions_touch(nw_actions *actions, const float *at, size_t count, bool write)
{
    actions->touched += count * sizeof(float);
    if (actions->status != NW_OK || !is_owned(actions, at, count, write)) return;
    actions->status = NW_FAIL(NW_E_INTERNAL, "%zu floats were %s while %s owns them", count, write ? "written" : "read",
                              actions->running->kind == NW_TASK_PASS ? "a pass" : "an update");
}

/* ---- groups, and what machines tell of themselves ---------------------------------------------------------------- */

int nw_group_find(const nw_group *g, int rank)
{
    int low = 0, high = g->count;
    if (rank >= 0 && rank < g->count && g->ranks[rank] == rank) return rank;
    while (low < high) {
        int middle = (low + high) / 2;
        if (g->ranks[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->count && g->ranks[low] == rank ? low : -1;
}

nw_status nw_machine_sender(const nw_machine *m, const nw_message *message, int *from)
{
    *from = nw_group_find(&m->group, message->header->from);
    NW_FAIL_IF(
        *from < 0 || *from == m->group.me, NW_E_MESSAGE,
        "a message of rank %u came to rank %u, which exchanges nothing with it; all ranks must run the same build of "
        "nowait",
        message->header->from, m->group.ranks[m->group.me]);
    return NW_OK;
}

void nw_wait_add(nw_wait *wait, const nw_group *group, int member)
{
    if (wait->count < NW_WAIT_MOST) wait->ranks[wait->count] = group->ranks[member];
    wait->count++;
}

void nw_wait_text(const nw_wait *wait, char *text, size_t size)
{
    char ranks[200]; /* whom[384] of nw_wait_failed holds that, and what they owe */
    nw_rank_list_print(ranks, sizeof ranks, wait->ranks, wait->count < NW_WAIT_MOST ? wait->count : NW_WAIT_MOST);
    snprintf(text, size, "%s: %s", wait->count > 0 ? ranks : "nobody", wait->what);
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* Fills what is the driver's of a header. Once, before the message leaves: it may go to many. */
static void name_message(nw_driver *d, int from, nw_message *m, uint64_t sequence)
{
    m->header->from = (uint16_t)from;
    m->header->sequence = sequence;
    m->header->generation = d->generation;
}

static nw_status tell_run(nw_driver *d, const nw_action *a)
{
    const nw_driver_options *o = &d->options;
    if (a->kind == NW_ACTION_COUNT) return o->counted ? o->counted(o->context, a->count) : NW_OK;
    return o->snapshot ? o->snapshot(o->context, &a->snapshot) : NW_OK;
}

/* Sorts an answer: tasks go to the queue, counts and snapshots to the run, the rest stays for the driver. */
static nw_status sort_actions(nw_driver *d, nw_rank *r, int from)
{
    int kept = from;
    nw_status status = NW_OK; /* of the run; what else was answered is sorted all the same */
    for (int i = from; i < d->actions.count; i++) {
        nw_action *a = &d->actions.at[i];
        if (a->kind == NW_ACTION_TASK) {
            NW_FAIL_IF(r->queued == NW_RANK_QUEUE, NW_E_INTERNAL, "%s asks rank %d for more than %d tasks at a time",
                       r->machine->ops->name, r->index, NW_RANK_QUEUE);
            bool goes_on = a->task.kind == NW_TASK_PASS && a->task.adds; /* with a gradient at these parameters */
            memmove(r->queue + goes_on, r->queue, (size_t)(goes_on ? r->queued : 0) * sizeof r->queue[0]);
            r->queue[goes_on ? 0 : r->queued] = a->task;
            r->queued++;
        } else if (a->kind == NW_ACTION_COUNT || a->kind == NW_ACTION_SNAPSHOT) {
            if (status == NW_OK) status = tell_run(d, a);
        } else {
            if (a->kind == NW_ACTION_SEND && a->message->header->sequence == 0)
                name_message(d, r->index, a->message, ++r->sequence);
            d->actions.at[kept++] = *a;
        }
    }
    d->actions.count = kept;
    return status;
}

static void list_state(void *whose, nw_state *s)
{
    nw_rank *r = whose;
    int first = s->count;
    r->machine->ops->state(r->machine, s);
    for (int i = first; i < s->count; i++) {
        char *name = s->at[i].name, rest[NW_STATE_NAME];
        memcpy(rest, name, sizeof rest);
        snprintf(name, NW_STATE_NAME, NW_STATE_EXCHANGE "%.*s", NW_STATE_NAME - (int)sizeof NW_STATE_EXCHANGE, rest);
    }
    if (r->work && r->work->state) r->work->state(r->worker, s);
    nw_state_integer(s, "elapsed_ns", NW_STATE_OWN, &r->elapsed_ns);
}

static nw_status state_loaded(void *whose)
{
    nw_rank *r = whose;
    NW_FAIL_IF(r->elapsed_ns < 0 || r->elapsed_ns > INT64_MAX / 4, NW_E_FILE,
               "the checkpoint was written after a rank had run for %lld ns, which cannot be; take an earlier one",
               (long long)r->elapsed_ns);
    if (r->machine->ops->loaded) NW_TRY(r->machine->ops->loaded(r->machine));
    return r->work && r->work->loaded ? r->work->loaded(r->worker) : NW_OK;
}

nw_state_owner nw_rank_state(nw_rank *r) { return (nw_state_owner){r, list_state, state_loaded}; }

nw_status nw_rank_tell(nw_driver *d, nw_rank *r, nw_event event)
{
    int before = d->actions.count;
    const nw_taps *taps = &d->options.taps;
    if (taps->event) taps->event(taps->context, r->index, &event);
    nw_recorder_event(d->options.recorder, r->index, &event);
    d->actions.running = r->busy ? &r->task : NULL;
    d->actions.final = r->final;
    NW_TRY(r->machine->ops->handle(r->machine, &event, &d->actions));
    NW_TRY(d->actions.status);
    return sort_actions(d, r, before);
}

bool nw_rank_next(nw_driver *d, nw_rank *r)
{
    if (r->busy || r->queued == 0) return false;
    r->task = r->queue[0];
    r->queued--;
    memmove(r->queue, r->queue + 1, (size_t)r->queued * sizeof r->queue[0]);
    r->busy = true;
    r->final = SIZE_MAX;
    if (r->task.kind == NW_TASK_PASS) r->step = r->task.number + 1;
    nw_recorder_begins(d->options.recorder, r->index, r->task.kind);
    return true;
}

nw_status nw_rank_done(nw_driver *d, nw_rank *r, int64_t now_ns)
{
    nw_task task = r->task;
    r->busy = false;
    return nw_rank_tell(d, r, (nw_event){.kind = NW_EVENT_DONE, .task = &task, .now_ns = now_ns});
}

nw_status nw_rank_final(nw_driver *d, nw_rank *r, size_t first, int64_t now_ns)
{
    r->final = first;
    nw_event event = {.kind = NW_EVENT_FINAL, .first = first, .task = &r->task, .now_ns = now_ns};
    return nw_rank_tell(d, r, event);
}

bool nw_driver_is_asked(const nw_driver *d)
{
    return !d->stopping && (d->pauses || (d->options.stop && *d->options.stop));
}

bool nw_driver_shall_stop(nw_driver *d)
{
    bool asked = nw_driver_is_asked(d);
    d->stopping |= asked;
    return asked;
}

void nw_driver_drop(nw_driver *d, int by, int rank, bool back)
{
    const nw_taps *taps = &d->options.taps;
    if (d->dropped[rank] != back) return;
    d->dropped[rank] = !back;
    if (taps->dropped) taps->dropped(taps->context, by, rank, back);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void nw_driver_stamp(nw_driver *d, int from, int to, nw_message *m)
{
    if (m->header->sequence == 0) name_message(d, from, m, ++d->sequence);
    if (d->options.ledger) nw_ledger_sent(d->options.ledger, from, to, m->header);
    const nw_taps *taps = &d->options.taps;
    if (taps->sent) taps->sent(taps->context, from, to, m->header, nw_driver_now(d, from));
}

void nw_driver_accept(nw_driver *d, int from, int to, const nw_message *m)
{
    if (d->options.ledger) nw_ledger_received(d->options.ledger, from, to, m->header);
    const nw_taps *taps = &d->options.taps;
    if (taps->received) taps->received(taps->context, from, to, m->header, nw_driver_now(d, to));
}

/* ---- drivers ----------------------------------------------------------------------------------------------------- */

nw_status nw_driver_init(nw_driver *d, const nw_driver_ops *ops, const nw_driver_options *options, int size, int first,
                         int count)
{
    d->ops = ops;
    d->options = *options;
    d->size = size;
    d->first = first;
    d->count = count;
    d->dropped = calloc((size_t)size, sizeof *d->dropped);
    NW_FAIL_IF(!d->dropped, NW_E_MEMORY, "no memory for a table of %d ranks", size);
    NW_TRY(nw_message_pool_create(&d->pool));
    d->actions.pool = d->pool;
    return NW_OK;
}

nw_status nw_driver_timed_out(const nw_rank *r, int64_t waited_ns)
{
    nw_wait wait = {0};
    r->machine->ops->waits(r->machine, &wait);
    return nw_wait_failed(&wait, r->index, waited_ns);
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
static void dump(nw_driver *d, const nw_rank *ranks, const char *reason)
{
    if (!d->options.dump_dir || nw_directory_make(d->options.dump_dir) != NW_OK) return;
    for (int i = 0; i < d->count; i++) {
        char name[64], *path;
        snprintf(name, sizeof name, "rank%d.json", d->first + i);
        if (nw_path_join(&path, d->options.dump_dir, name) != NW_OK) return;
        FILE *out = fopen(path, "w");
        free(path);
        if (!out) return;
        nw_dump_write(d, &ranks[i], reason, out);
        fclose(out);
    }
}

/* Writes down what is known and tells the others, if something went wrong in a world of several. */
static nw_status tell_failure(nw_driver *d, nw_status status)
{
    if (status == NW_OK || d->size == 1) return status;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", nw_error_message());
    if (d->ranks) dump(d, d->ranks, reason);
    nw_driver_fail(d, status, reason);
    return NW_FAIL(status, "%s", reason);
}

nw_status nw_driver_run(nw_driver *d, nw_rank *ranks, const nw_go *go)
{
    nw_recorder *recorder = d->options.recorder;
    d->ranks = ranks;
    d->stopping = d->pauses = false;
    for (int i = 0; i < d->count; i++)
        nw_recorder_run(recorder, ranks[i].index, ranks[i].machine->updates, ranks[i].sequence);
    nw_status status = d->ops->run(d, go);
    for (int i = 0; i < d->count && status == NW_OK; i++)
        nw_recorder_rest(recorder, ranks[i].index, ranks[i].machine->updates);
    return tell_failure(d, status);
}

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
    free(d->dropped);
    if (pool) nw_message_pool_free(pool);
    free(d);
}
