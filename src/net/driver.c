/* driver.c - what all drivers share: a rank's queue of tasks, actions, groups, failing. See driver.h and machine.h. */
#include "net/driver.h"

#include "base/file.h"
#include "net/roles.h"

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
               "the checkpoint was written after a rank had run for %lld ns, which is impossible; use an earlier one",
               (long long)r->elapsed_ns);
    if (r->machine->ops->loaded) NW_TRY(r->machine->ops->loaded(r->machine));
    return r->work && r->work->loaded ? r->work->loaded(r->worker) : NW_OK;
}

nw_state_owner nw_rank_state(nw_rank *r) { return (nw_state_owner){r, list_state, state_loaded}; }

nw_status nw_rank_tell(nw_driver *d, nw_rank *r, nw_event event)
{
    int before = d->actions.count;
    const nw_driver_hooks *hooks = &d->options.hooks;
    if (hooks->event) hooks->event(hooks->context, r->index, &event);
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
    r->task.pending = r->task.ends = false;
    if (r->task.kind == NW_TASK_PASS) r->step = r->task.number + 1;
    nw_recorder_begins(d->options.recorder, r->index, r->task.kind);
    return true;
}

/* The copy of a gradient of several passes is still needed, for the next of them. */
nw_status nw_rank_do(nw_rank *r, nw_announce *announce)
{
    bool copy = r->task.copy;
    r->task.copy = copy && (r->task.adds || !r->task.completes);
    nw_status status = r->work->run(r->worker, &r->task, announce);
    r->task.copy = copy; /* others may move the values from now on */
    NW_TRY(status);
    NW_FAIL_IF(r->task.pending, NW_E_UNSUPPORTED, "a task is left to a program, whose time this world does not share");
    return NW_OK;
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
    const nw_driver_hooks *hooks = &d->options.hooks;
    if (d->dropped[rank] != back || (d->count == d->size && by > 0)) return;
    d->dropped[rank] = !back;
    if (hooks->dropped) hooks->dropped(hooks->context, by, rank, back);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void nw_driver_stamp(nw_driver *d, int from, int to, nw_message *m)
{
    if (m->header->sequence == 0) name_message(d, from, m, ++d->sequence);
    if (d->options.ledger) nw_ledger_sent(d->options.ledger, from, to, m->header);
    const nw_driver_hooks *hooks = &d->options.hooks;
    if (hooks->sent) hooks->sent(hooks->context, from, to, m->header, nw_driver_now(d, from));
}

void nw_driver_accept(nw_driver *d, int from, int to, const nw_message *m)
{
    if (d->options.ledger) nw_ledger_received(d->options.ledger, from, to, m->header);
    const nw_driver_hooks *hooks = &d->options.hooks;
    if (hooks->received) hooks->received(hooks->context, from, to, m->header, nw_driver_now(d, to));
}

/* ---- drivers ----------------------------------------------------------------------------------------------------- */

nw_status nw_driver_create(nw_driver **out, size_t bytes, const nw_driver_ops *ops, const nw_driver_options *options,
                           int size, int first, int count)
{
    *out = NULL;
    NW_CLEANUP(nw_driver_autofree) nw_driver *d = calloc(1, bytes);
    NW_FAIL_IF(!d, NW_E_MEMORY, "no memory for a driver");
    d->ops = ops;
    d->options = *options;
    d->size = size;
    d->first = first;
    d->count = count;
    NW_NEW(d->dropped, size, "a table of %d ranks", size);
    NW_TRY(nw_message_pool_create(&d->pool));
    d->actions.pool = d->pool;
    *out = d;
    d = NULL;
    return NW_OK;
}

bool nw_rank_is_late(const nw_driver *d, const nw_rank *r, int64_t now_ns, int64_t idle_ns, const int64_t *received_ns)
{
    nw_wait wait = {0};
    int64_t limit = d->options.timeout_ns * (r->machine->drops || r->machine->patient ? 2 : 1);
    if (limit == 0 || now_ns - idle_ns <= limit) return false;
    r->machine->ops->waits(r->machine, &wait);
    bool silent = wait.count == 0; /* it names nobody: then all are */
    for (int i = 0; i < wait.count && i < NW_WAIT_MOST; i++) silent |= now_ns - received_ns[wait.ranks[i]] > limit;
    for (int i = 0; i < d->size && wait.count == 0; i++) silent &= now_ns - received_ns[i] > limit;
    return silent;
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
    return NW_FAIL(NW_E_PEER, "rank %d has waited %.1f s for %s; --timeout sets the limit", rank,
                   (double)waited_ns * 1e-9, whom);
}

/* What this process knows, for people who look for the cause: one file for each of its ranks. Failing to write one
 * must not hide the failure that it is about. */
static void dump(nw_driver *d, const nw_rank *ranks, const char *reason)
{
    if (!d->options.dump_dir || nw_directory_make(d->options.dump_dir) != NW_OK) return;
    for (int i = 0; i < d->count; i++) {
        char name[64];
        NW_AUTOFREE char *path = NULL;
        snprintf(name, sizeof name, "rank%d.json", d->first + i);
        if (nw_path_join(&path, d->options.dump_dir, name) != NW_OK) return;
        FILE *out = fopen(path, "w");
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

/* One that nobody waits for is wherever the others are. */
static int64_t updates_of(const nw_driver *d, const nw_rank *r)
{
    return d->dropped[r->index] ? d->ranks[0].machine->updates : r->machine->updates;
}

static void note_begin(nw_driver *d, nw_rank *ranks)
{
    d->ranks = ranks;
    d->stopping = d->pauses = false;
    for (int i = 0; i < d->count; i++)
        nw_recorder_run(d->options.recorder, ranks[i].index, updates_of(d, &ranks[i]), ranks[i].sequence);
}

static void note_quiescent(nw_driver *d)
{
    for (int i = 0; i < d->count; i++)
        nw_recorder_quiescent(d->options.recorder, d->ranks[i].index, updates_of(d, &d->ranks[i]));
}

nw_status nw_driver_run(nw_driver *d, nw_rank *ranks, const nw_go *go)
{
    note_begin(d, ranks);
    nw_status status = d->ops->run(d, go);
    if (status == NW_OK) note_quiescent(d);
    return tell_failure(d, status);
}

nw_status nw_driver_begin(nw_driver *d, nw_rank *ranks, const nw_go *go)
{
    NW_FAIL_IF(!d->ops->begin, NW_E_UNSUPPORTED, "a %s world has a time of its own, and cannot go in turns",
               d->ops->name);
    note_begin(d, ranks);
    return tell_failure(d, d->ops->begin(d, go));
}

nw_status nw_driver_turn(nw_driver *d, nw_turn *turn)
{
    nw_status status = d->ops->turn(d, turn);
    if (status == NW_OK && *turn == NW_TURN_OVER) note_quiescent(d);
    return tell_failure(d, status);
}

void nw_driver_finish(nw_rank *r, bool ends)
{
    r->task.ends = ends;
    r->task.pending = false;
}

/* ---- between runs ------------------------------------------------------------------------------------------------ */

/* Where all ranks are here, what they would send to each other elsewhere is counted. */
static void count_word(nw_driver *d, int from, int to, size_t bytes)
{
    nw_header h = {.kind = NW_KIND_CONTROL, .bytes = (uint32_t)bytes}; /* in the drivers' channel */
    nw_ledger *ledger = d->options.ledger;
    if (!ledger || from == to || d->dropped[from] || d->dropped[to]) return;
    nw_ledger_sent(ledger, from, to, &h);
    nw_ledger_received(ledger, from, to, &h);
    nw_ledger_transport(ledger, NW_SENT, NW_HEADER_BYTES + bytes);
    nw_ledger_transport(ledger, NW_RECEIVED, NW_HEADER_BYTES + bytes);
}

static nw_status allgather(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    d->in_turn = true;
    for (int i = 1; i < d->size; i++) {
        int to = (d->first + i) % d->size;
        if (!d->dropped[to]) NW_TRY(d->ops->send(d, to, mine, bytes));
    }
    memcpy((char *)all + (size_t)d->first * bytes, mine, bytes);
    for (int from = 0; from < d->size; from++) {
        char *at = (char *)all + (size_t)from * bytes;
        if (d->dropped[from]) memset(at, 0, bytes);
        if (from != d->first && !d->dropped[from]) NW_TRY(d->ops->receive(d, from, at, bytes));
    }
    return d->ops->finish(d);
}

nw_status nw_driver_allgather(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    NW_FAIL_IF(bytes > NW_SHARE_MOST, NW_E_INTERNAL, "%zu bytes of each rank are to be shared; at most %d may be",
               bytes, NW_SHARE_MOST);
    if (d->ops->send) return tell_failure(d, allgather(d, mine, bytes, all));
    memcpy(all, mine, bytes * (size_t)d->size);
    for (int from = 0; from < d->size; from++)
        for (int to = 0; to < d->size; to++) count_word(d, from, to, bytes);
    return NW_OK;
}

/* In pieces that fit into messages. */
static nw_status gather(nw_driver *d, int from, char *data, size_t bytes)
{
    const size_t most = (size_t)64 << 20;
    d->in_turn = false;
    for (size_t at = 0; at < bytes; at += most) {
        size_t piece = bytes - at < most ? bytes - at : most;
        if (d->first == from) NW_TRY(d->ops->send(d, 0, data + at, piece));
        if (d->first == 0) NW_TRY(d->ops->receive(d, from, data + at, piece));
        NW_TRY(d->ops->finish(d));
    }
    return NW_OK;
}

nw_status nw_driver_gather(nw_driver *d, int from, void *data, size_t bytes)
{
    if (!d->ops->send || from == 0 || d->dropped[from]) return NW_OK;
    return tell_failure(d, gather(d, from, data, bytes));
}

/* ---- means ---- */

/* The part whose mean a rank makes; dropped ones make none. */
typedef struct part {
    size_t begin, count;
} part;

static part part_of(const nw_driver *d, int rank, size_t floats)
{
    size_t owners = 0, before = 0;
    for (int r = 0; r < d->size; r++) {
        owners += !d->dropped[r];
        before += r < rank && !d->dropped[r];
    }
    size_t begin = floats * before / owners, end = d->dropped[rank] ? begin : floats * (before + 1) / owners;
    return (part){begin, end - begin};
}

static void mean_here(nw_driver *d, float *const *vectors, size_t floats, const bool *gives)
{
    for (size_t i = 0; i < floats; i++) {
        float sum = 0;
        int givers = 0;
        for (int r = 0; r < d->size; r++)
            if (gives[r]) sum = givers++ ? sum + vectors[r][i] : vectors[r][i];
        for (int r = 0; r < d->size; r++) vectors[r][i] = sum / (float)givers;
    }
    for (int owner = 0; owner < d->size; owner++)
        for (int r = 0; r < d->size; r++) {
            size_t bytes = part_of(d, owner, floats).count * sizeof(float);
            if (gives[r]) count_word(d, r, owner, bytes);
            count_word(d, owner, r, bytes);
        }
}

/* Over parts; `sum` has room for two of this rank's. */
static nw_status mean(nw_driver *d, float *vector, size_t floats, const bool *gives, float *sum)
{
    int me = d->first, givers = 0;
    part own = part_of(d, me, floats), p;
    float *mine = vector + own.begin, *theirs = sum + own.count;
    d->in_turn = true;
    for (int i = 1; i < d->size && gives[me]; i++) {
        int to = (me + i) % d->size;
        p = part_of(d, to, floats);
        if (!d->dropped[to]) NW_TRY(d->ops->send(d, to, vector + p.begin, p.count * sizeof *sum));
    }
    for (int from = 0; from < d->size; from++) {
        if (!gives[from]) continue;
        if (from != me) NW_TRY(d->ops->receive(d, from, theirs, own.count * sizeof *sum));
        const float *add = from == me ? mine : theirs;
        for (size_t i = 0; i < own.count; i++) sum[i] = givers ? sum[i] + add[i] : add[i];
        givers++;
    }
    for (size_t i = 0; i < own.count; i++) mine[i] = sum[i] / (float)givers;
    for (int i = 1; i < d->size; i++) {
        int to = (me + i) % d->size;
        if (!d->dropped[to]) NW_TRY(d->ops->send(d, to, mine, own.count * sizeof *sum));
    }
    for (int from = 0; from < d->size; from++) {
        p = part_of(d, from, floats);
        if (from != me && !d->dropped[from]) NW_TRY(d->ops->receive(d, from, vector + p.begin, p.count * sizeof *sum));
    }
    return d->ops->finish(d);
}

nw_status nw_driver_mean(nw_driver *d, float *const *vectors, size_t floats, const bool *gives)
{
    bool any = false;
    for (int r = 0; r < d->size; r++) any |= gives[r];
    NW_FAIL_IF(!any, NW_E_INTERNAL, "a mean of %zu floats is asked for, and nobody gives any", floats);
    if (!d->ops->send) {
        mean_here(d, vectors, floats, gives);
        return NW_OK;
    }
    NW_AUTOFREE float *sum = malloc((2 * part_of(d, d->first, floats).count + 1) * sizeof *sum);
    NW_FAIL_IF(!sum, NW_E_MEMORY, "no memory for a mean of %zu floats", floats);
    return tell_failure(d, mean(d, vectors[0], floats, gives, sum));
}

/* ---- and life ---------------------------------------------------------------------------------------------------- */

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
