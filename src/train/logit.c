/*
 * logit.c - see logit.h: the threads, and the line in which gradients wait.
 *
 * The way of a gradient
 *   1. A thread that has a free slot (everybody has two) takes a ticket: the number of a batch. Nobody else gets it.
 *   2. It notes how far the masters are, reads the weights, computes, and fills its slot.
 *   3. It draws a place in the line, says in the slot that all masters have yet to apply it, and writes the slot's number
 *      into that place (release).
 *   4. Every master goes through the line place by place (acquire) and applies the slot to its own range, dense, whatever
 *      the gradient holds. The last one to finish makes the slot free again, and rings for its owner.
 *
 * Invariants
 * - Only its owner fills a slot, and only while it is free: nothing is overwritten, and a gradient is lost never.
 * - w, m, v, u and g of a range belong to its master while threads run, and to the caller at rest. Others see the shared
 *   weights only, through atomics.
 * - The line has as many places as there are slots. A place is written again when that many later gradients have come;
 *   they cannot all be of different slots unless this one's was set free, that is, unless all masters have passed it.
 *   So no place is overwritten before it is read, and the entry's number tells old from new.
 * - Tickets taken = gradients that will be in the line. When none are left, or the run is closed by a stop, the number of
 *   taken ones is final, and a master is done when it has applied so many.
 *
 * Waiting. Each thread has a bell. It notes the count of rings, looks whether there is something to do, and otherwise
 * waits for the count to change: some microseconds awake, then asleep. Announcing sleep and ringing are sequentially
 * consistent, so one of the two sees the other. A thread waits only for what a ring will follow: a master for the line to
 * grow, or anybody for one of his own slots.
 */
#define _GNU_SOURCE 1
#include "train/logit.h"

#include "base/clock.h"
#include "base/machine.h"
#include "base/rng.h"
#include "base/thread.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64, SLOTS = 2, SPIN_NS = 20000, PAUSES = 16 };
#define CLOSED ((int64_t)1 << 62)
#define GUARD  1e-11 /* of u, for gradients that are sums, as the reference program has it */

typedef struct bell {
    _Atomic uint32_t rings;
    _Atomic uint32_t asleep;
    pthread_mutex_t lock;
    pthread_cond_t rung;
} bell;

typedef struct slot {
    _Alignas(LINE_BYTES) nw_logit_gradient gradient;
    int owner;
    int64_t seen;        /* updates that the weights it read surely had */
    _Atomic int pending; /* masters that have yet to apply it; 0: free */
} slot;

typedef struct member {
    _Alignas(LINE_BYTES) _Atomic int64_t applied; /* of a master: updates of its range */
    _Alignas(LINE_BYTES) bell bell;
    nw_logit *logit;
    nw_logit_sums sums;
    int64_t first, last; /* of a master: its range */
    int index;
    pthread_t thread;
} member;

struct nw_logit {
    nw_logit_options options;
    nw_schedule schedule;
    int64_t count, batches, step;
    double *w, *m, *v, *u, *g; /* a coordinate each; g is 0 between updates */
    nw_shared_double *shared;
    uint32_t *order; /* of the rows in this epoch; as they are with groups */
    int64_t order_epoch;
    nw_logit_tally epoch; /* of the first master, as the next one */
    nw_histogram delays;
    const volatile sig_atomic_t *stop;

    _Alignas(LINE_BYTES) _Atomic int64_t next; /* the next ticket, and CLOSED */
    _Alignas(LINE_BYTES) _Atomic int64_t tail; /* the next place of the line */
    _Alignas(LINE_BYTES) int64_t limit;        /* of tickets */
    int slots;
    slot *slot;
    _Atomic int64_t *line; /* of gradient k, in place k % slots: (k + 1) * slots + its slot */

    member *members; /* the masters first; [0] is the caller, who has no thread */
    int started;
    pthread_mutex_t lock; /* of the next two */
    pthread_cond_t begins;
    uint64_t round;
    bool quits;
    _Atomic int running; /* threads that work in this round, the caller aside */
};

/* ---- bells --------------------------------------------------------------------------------------------------------- */

static void ring(bell *b)
{
    atomic_fetch_add(&b->rings, 1);
    if (!atomic_load(&b->asleep)) return;
    pthread_mutex_lock(&b->lock);
    pthread_cond_signal(&b->rung);
    pthread_mutex_unlock(&b->lock);
}

static void wait_for_ring(bell *b, uint32_t heard)
{
    int64_t until = nw_now_ns() + SPIN_NS;
    while (nw_now_ns() < until)
        for (int i = 0; i < PAUSES; i++) {
            if (atomic_load_explicit(&b->rings, memory_order_acquire) != heard) return;
            nw_pause();
        }
    pthread_mutex_lock(&b->lock);
    atomic_store(&b->asleep, 1);
    while (atomic_load(&b->rings) == heard) pthread_cond_wait(&b->rung, &b->lock);
    atomic_store(&b->asleep, 0);
    pthread_mutex_unlock(&b->lock);
}

/* ---- batches ------------------------------------------------------------------------------------------------------- */

/* First row of a group: sizes differ by one at most, the larger ones first. */
static int64_t group_begin(const nw_logit *l, int64_t group)
{
    int64_t rows = l->options.data->rows, size = rows / l->batches, rest = rows % l->batches;
    return group * size + (group < rest ? group : rest);
}

/* The rows of the batch with this ticket. */
static const uint32_t *batch_rows(const nw_logit *l, int64_t ticket, int64_t *count)
{
    const nw_logit_options *o = &l->options;
    int64_t begin, end;
    if (o->groups) {
        nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SHUFFLE, (uint64_t)ticket, 1);
        int64_t group = nw_rng_below(&rng, (uint32_t)l->batches);
        begin = group_begin(l, group);
        end = group_begin(l, group + 1);
    } else {
        begin = ticket % l->batches * o->batch_size;
        end = begin + o->batch_size < o->data->rows ? begin + o->batch_size : o->data->rows;
    }
    *count = end - begin;
    return l->order + begin;
}

static void prepare_epoch(nw_logit *l)
{
    int64_t epoch = l->step / l->batches;
    if (l->step % l->batches == 0) l->epoch = (nw_logit_tally){0};
    if (epoch == l->order_epoch || l->options.groups) return;
    nw_rng rng = nw_rng_make(l->options.seed, NW_PURPOSE_SHUFFLE, (uint64_t)epoch, 0);
    nw_rng_shuffle(&rng, l->order, (uint32_t)l->options.data->rows);
    l->order_epoch = epoch;
}

/* ---- what threads do ----------------------------------------------------------------------------------------------- */

static bool no_tickets(const nw_logit *l, int64_t next) { return (next & CLOSED) || next >= l->limit; }

/* The next batch, or -1. */
static int64_t take_ticket(nw_logit *l)
{
    int64_t next = atomic_load_explicit(&l->next, memory_order_relaxed);
    do
        if (no_tickets(l, next)) return -1;
    while (
        !atomic_compare_exchange_weak_explicit(&l->next, &next, next + 1, memory_order_relaxed, memory_order_relaxed));
    return next;
}

static slot *free_slot(nw_logit *l, const member *me)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &l->slot[me->index * SLOTS + i];
        if (atomic_load_explicit(&s->pending, memory_order_acquire) == 0) return s;
    }
    return NULL;
}

/* Updates that all masters have done. The weights that are read afterwards have them. */
static int64_t slowest(const nw_logit *l)
{
    int64_t least = INT64_MAX;
    for (int j = 0; j < l->options.masters; j++) {
        int64_t applied = atomic_load_explicit(&l->members[j].applied, memory_order_acquire);
        if (applied < least) least = applied;
    }
    return least;
}

static void join_line(nw_logit *l, slot *s)
{
    int masters = l->options.masters;
    atomic_store_explicit(&s->pending, masters, memory_order_relaxed);
    int64_t place = atomic_fetch_add_explicit(&l->tail, 1, memory_order_acq_rel);
    atomic_store_explicit(&l->line[place % l->slots], (place + 1) * l->slots + (s - l->slot), memory_order_release);
    for (int j = 0; j < masters; j++)
        if (j != s->owner) ring(&l->members[j].bell);
}

/* One batch; false where there is no slot or no ticket. */
static bool compute_one(nw_logit *l, member *me)
{
    const nw_logit_options *o = &l->options;
    slot *s = free_slot(l, me);
    int64_t ticket = s ? take_ticket(l) : -1, count;
    if (ticket < 0) return false;
    const uint32_t *rows = batch_rows(l, ticket, &count);
    s->seen = slowest(l);
    nw_logit_gradient_of(o->data, o->features, o->intercept, l->shared, rows, count, o->sum ? 1.0 : 1.0 / (double)count,
                         &me->sums, &s->gradient);
    join_line(l, s);
    return true;
}

static void apply(nw_logit *l, const member *me, const slot *s, int64_t step)
{
    const nw_logit_options *o = &l->options;
    const nw_logit_gradient *g = &s->gradient;
    double b = o->sum ? 1 : o->batch_size;
    nw_logit_rule rule = {.alpha = nw_schedule_lr(&l->schedule, step),
                          .beta1 = o->beta1,
                          .beta2 = o->beta2,
                          .decay = o->weight_decay,
                          .least = GUARD / (b * b)};
    for (int64_t k = 0; k < g->count; k++)
        if (g->index[k] >= me->first && g->index[k] < me->last) l->g[g->index[k]] = g->value[k];
    int64_t first = me->first, decays = me->last < o->features ? me->last : o->features;
    if (first < decays)
        nw_logit_update(&rule, decays - first, l->g + first, l->w + first, l->m + first, l->v + first, l->u + first,
                        l->shared + first);
    rule.decay = 0;
    for (int64_t i = decays > first ? decays : first; i < me->last; i++) /* the intercept */
        nw_logit_update(&rule, 1, l->g + i, l->w + i, l->m + i, l->v + i, l->u + i, l->shared + i);
    for (int64_t k = 0; k < g->count; k++)
        if (g->index[k] >= me->first && g->index[k] < me->last) l->g[g->index[k]] = 0;
}

/* The next gradient of the line; false where there is none yet. */
static bool apply_one(nw_logit *l, member *me)
{
    int64_t step = atomic_load_explicit(&me->applied, memory_order_relaxed);
    int64_t entry = atomic_load_explicit(&l->line[step % l->slots], memory_order_acquire);
    if (entry / l->slots != step + 1) return false;
    slot *s = &l->slot[entry % l->slots];
    apply(l, me, s, step);
    if (me->index == 0) {
        nw_logit_tally_add(&l->epoch, &s->gradient.tally);
        nw_histogram_add(&l->delays, step - s->seen);
    }
    atomic_store_explicit(&me->applied, step + 1, memory_order_release);
    int owner = s->owner; /* who may fill the slot again as soon as it is free */
    if (atomic_fetch_sub_explicit(&s->pending, 1, memory_order_acq_rel) == 1 && owner != me->index)
        ring(&l->members[owner].bell);
    return true;
}

static bool is_done(nw_logit *l, const member *me)
{
    int64_t next = atomic_load_explicit(&l->next, memory_order_relaxed);
    if (!no_tickets(l, next)) return false;
    return me->index >= l->options.masters ||
           atomic_load_explicit(&me->applied, memory_order_relaxed) == (next & ~CLOSED);
}

static void work(nw_logit *l, member *me)
{
    for (;;) {
        uint32_t heard = atomic_load(&me->bell.rings);
        if (me->index == 0 && l->stop && *l->stop) atomic_fetch_or(&l->next, CLOSED);
        if (me->index < l->options.masters && apply_one(l, me)) continue;
        if (compute_one(l, me)) continue;
        if (is_done(l, me)) return;
        wait_for_ring(&me->bell, heard);
    }
}

static void *run(void *argument)
{
    member *me = argument;
    nw_logit *l = me->logit;
    for (uint64_t seen = 0;;) {
        pthread_mutex_lock(&l->lock);
        while (l->round == seen && !l->quits) pthread_cond_wait(&l->begins, &l->lock);
        seen = l->round;
        bool quits = l->quits;
        pthread_mutex_unlock(&l->lock);
        if (quits) return NULL;
        work(l, me);
        atomic_fetch_sub_explicit(&l->running, 1, memory_order_acq_rel);
        ring(&l->members[0].bell);
    }
}

/* ---- advancing ----------------------------------------------------------------------------------------------------- */

void nw_logit_advance(nw_logit *l, int64_t step, const volatile sig_atomic_t *stop)
{
    int64_t end = (l->step / l->batches + 1) * l->batches;
    member *me = &l->members[0];
    if (step <= l->step) return;
    prepare_epoch(l);
    l->limit = step < end ? step : end;
    l->stop = stop;
    atomic_store(&l->running, l->options.threads - 1);
    pthread_mutex_lock(&l->lock);
    l->round++;
    pthread_cond_broadcast(&l->begins);
    pthread_mutex_unlock(&l->lock);
    work(l, me);
    for (;;) {
        uint32_t heard = atomic_load(&me->bell.rings);
        if (atomic_load_explicit(&l->running, memory_order_acquire) == 0) break;
        wait_for_ring(&me->bell, heard);
    }
    l->step = atomic_load(&l->tail);
    atomic_store(&l->next, l->step);
}

int64_t nw_logit_batches(const nw_logit *l) { return l->batches; }
double nw_logit_rate(const nw_logit *l) { return nw_schedule_lr(&l->schedule, l->step > 0 ? l->step - 1 : 0); }
const char *nw_logit_warning(const nw_logit *l) { return l->schedule.warning; }

void nw_logit_keep(nw_logit *l, nw_logit_state *state)
{
    *state = (nw_logit_state){l->count, l->w, l->m, l->v, l->u, l->step, l->epoch, l->delays};
}

/* Also what a new trainer begins with. */
void nw_logit_restart(nw_logit *l, const nw_logit_state *state)
{
    l->step = state->step;
    l->epoch = state->epoch;
    l->delays = state->delays;
    atomic_store(&l->next, l->step);
    atomic_store(&l->tail, l->step);
    for (int j = 0; j < l->options.masters; j++) atomic_store(&l->members[j].applied, l->step);
    for (int i = 0; i < l->slots; i++) atomic_store(&l->line[i], 0);
    for (int64_t i = 0; i < l->count; i++) atomic_store_explicit(&l->shared[i], l->w[i], memory_order_relaxed);
}

/* ---- building ------------------------------------------------------------------------------------------------------ */

static nw_status check(const nw_logit_options *o)
{
    NW_FAIL_IF(o->threads < 1 || o->masters < 1 || o->masters > o->threads, NW_E_ARGUMENT,
               "%d of %d threads cannot own the parameters; use --servers 1 to --threads", o->masters, o->threads);
    NW_FAIL_IF(o->batch_size < 1 || o->data->rows < 1 || o->features < o->data->features, NW_E_ARGUMENT,
               "a batch of %d of %lld rows, %d features of %d; none may be 0 or missing", o->batch_size,
               (long long)o->data->rows, o->features, o->data->features);
    NW_FAIL_IF(o->data->rows > UINT32_MAX / 2, NW_E_ARGUMENT,
               "%lld rows are more than this program shuffles; use --limit", (long long)o->data->rows);
    NW_FAIL_IF(!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->weight_decay >= 0), NW_E_ARGUMENT,
               "beta1 %g and beta2 %g must lie in [0, 1), and the weight decay %g must not be negative", o->beta1,
               o->beta2, o->weight_decay);
    NW_FAIL_IF(o->drop_last && !o->groups && o->data->rows < o->batch_size, NW_E_ARGUMENT,
               "%lld rows do not fill one batch of %d, and --drop-last leaves out what is not full",
               (long long)o->data->rows, o->batch_size);
    return NW_OK;
}

static int64_t count_batches(const nw_logit_options *o)
{
    int64_t whole = o->data->rows / o->batch_size;
    if (o->groups) return whole > 0 ? whole : 1;
    return whole + (!o->drop_last && o->data->rows % o->batch_size != 0);
}

/* Entries that a gradient may have. */
static int64_t most_entries(const nw_logit *l)
{
    const nw_sparse *d = l->options.data;
    int64_t rows = l->options.groups ? group_begin(l, 1) : l->options.batch_size, most = rows * d->longest;
    most = most < d->entries ? most : d->entries;
    return most + 1 < l->count ? most + 1 : l->count;
}

static nw_status take(void *out, int64_t count, size_t item)
{
    size_t bytes = ((size_t)count * item + LINE_BYTES) & ~(size_t)(LINE_BYTES - 1);
    void *block = aligned_alloc(LINE_BYTES, bytes);
    NW_FAIL_IF(!block, NW_E_MEMORY, "no memory for %zu bytes of a logistic regression", bytes);
    memset(block, 0, bytes);
    memcpy(out, &block, sizeof block);
    return NW_OK;
}

static nw_status check_memory(const nw_logit *l, int64_t entries)
{
    const size_t each = sizeof(int32_t) + sizeof(double), available = nw_machine_available_memory();
    double bytes = 6.0 * (double)l->count * sizeof(double) + 4.0 * (double)l->options.data->rows;
    bytes += l->options.threads * ((double)l->count + SLOTS * (double)entries) * (double)each;
    NW_FAIL_IF(
        available && bytes > (double)available, NW_E_MEMORY,
        "%lld parameters with %d threads need %.1f GB of memory and %.1f GB are available; use fewer --threads, or "
        "look for an index of the file that is too large",
        (long long)l->count, l->options.threads, bytes / 1e9, (double)available / 1e9);
    return NW_OK;
}

static nw_status take_all(nw_logit *l)
{
    const nw_logit_options *o = &l->options;
    int64_t entries = most_entries(l);
    NW_TRY(check_memory(l, entries));
    double **vectors[] = {&l->w, &l->m, &l->v, &l->u, &l->g};
    for (int i = 0; i < 5; i++) NW_TRY(take(vectors[i], l->count, sizeof(double)));
    NW_TRY(take(&l->shared, l->count, sizeof *l->shared));
    NW_TRY(take(&l->order, o->data->rows, sizeof *l->order));
    l->slots = o->threads * SLOTS;
    NW_TRY(take(&l->slot, l->slots, sizeof *l->slot));
    NW_TRY(take(&l->line, l->slots, sizeof *l->line));
    for (int i = 0; i < l->slots; i++) {
        l->slot[i].owner = i / SLOTS;
        NW_TRY(take(&l->slot[i].gradient.index, entries, sizeof(int32_t)));
        NW_TRY(take(&l->slot[i].gradient.value, entries, sizeof(double)));
    }
    NW_TRY(take(&l->members, o->threads, sizeof *l->members));
    for (int i = 0; i < o->threads; i++) {
        pthread_mutex_init(&l->members[i].bell.lock, NULL);
        pthread_cond_init(&l->members[i].bell.rung, NULL);
    }
    for (int i = 0; i < o->threads; i++) {
        NW_TRY(take(&l->members[i].sums.sum, l->count, sizeof(double)));
        NW_TRY(take(&l->members[i].sums.mark, l->count, sizeof(uint32_t)));
    }
    return NW_OK;
}

/* Ranges of whole cache lines, the longer ones first. */
static void divide(nw_logit *l)
{
    const int64_t unit = LINE_BYTES / (int64_t)sizeof(double), units = (l->count + unit - 1) / unit;
    int masters = l->options.masters;
    for (int j = 0; j < l->options.threads; j++) {
        member *me = &l->members[j];
        me->logit = l;
        me->index = j;
        if (j >= masters) continue;
        int64_t size = units / masters, rest = units % masters;
        me->first = (j * size + (j < rest ? j : rest)) * unit;
        me->last = me->first + (size + (j < rest)) * unit;
        if (me->first > l->count) me->first = l->count;
        if (me->last > l->count) me->last = l->count;
    }
}

static nw_status start_threads(nw_logit *l)
{
    for (int i = 1; i < l->options.threads; i++) {
        int error = nw_thread_start(&l->members[i].thread, "nw-logit", i, run, &l->members[i]);
        NW_FAIL_IF(error, NW_E_SYSTEM, "thread %d of %d cannot be started: %s; use fewer --threads", i + 1,
                   l->options.threads, strerror(error));
        l->started++;
    }
    return NW_OK;
}

static nw_status build(nw_logit *l)
{
    const nw_logit_options *o = &l->options;
    NW_TRY(check(o));
    l->count = (int64_t)o->features + o->intercept;
    l->batches = count_batches(o);
    l->order_epoch = -1;
    nw_schedule_options schedule = o->schedule;
    schedule.batches_per_epoch = l->batches;
    NW_TRY(nw_schedule_make(&l->schedule, &schedule));
    NW_TRY(take_all(l));
    divide(l);
    for (int64_t i = 0; i < o->data->rows; i++) l->order[i] = (uint32_t)i;
    nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_INIT, 0, 0);
    for (int64_t i = 0; i < l->count && o->normal_start; i++) l->w[i] = (double)nw_rng_normal(&rng);
    nw_logit_restart(l, &(nw_logit_state){0});
    return start_threads(l);
}

nw_status nw_logit_create(nw_logit **logit, const nw_logit_options *options)
{
    nw_logit *l = *logit = NULL;
    NW_TRY(take(&l, 1, sizeof *l));
    l->options = *options;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->begins, NULL);
    nw_status status = build(l);
    if (status != NW_OK) {
        nw_logit_free(l);
        return status;
    }
    *logit = l;
    return NW_OK;
}

void nw_logit_free(nw_logit *l)
{
    if (!l) return;
    pthread_mutex_lock(&l->lock);
    l->quits = true;
    pthread_cond_broadcast(&l->begins);
    pthread_mutex_unlock(&l->lock);
    for (int i = 1; i <= l->started; i++) pthread_join(l->members[i].thread, NULL);
    for (int i = 0; l->members && i < l->options.threads; i++) {
        pthread_mutex_destroy(&l->members[i].bell.lock);
        pthread_cond_destroy(&l->members[i].bell.rung);
        free(l->members[i].sums.sum);
        free(l->members[i].sums.mark);
    }
    for (int i = 0; l->slot && i < l->slots; i++) {
        free(l->slot[i].gradient.index);
        free(l->slot[i].gradient.value);
    }
    void *blocks[] = {l->w, l->m, l->v, l->u, l->g, l->shared, l->order, l->slot, (void *)l->line, l->members};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) free(blocks[i]);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->begins);
    free(l);
}
