/*
 * loader.c - batches of a dataset in a fixed order, made ahead of their use; see loader.h for what is promised.
 *
 * Order. The permutation of an epoch is Fisher and Yates' shuffle of 0 .. count - 1, drawn from the stream
 * (seed, NW_PURPOSE_SHUFFLE, epoch). The orders of two epochs are kept: the two that were used last. Where ranks
 * replicate, the rank is part of the epoch's number in both streams. Where samples have owners, a rank takes those of
 * the permutation that are its own, and the permutations follow each other without regard to epochs.
 *
 * Batches. A rank has n samples and K batches. Batch k begins at min(k B, n - (K - k)): batches are full as long as
 * each one behind still gets a sample.
 *
 * Threads. A ring of slots holds one batch each: the caller's, and those being made ahead. The caller alone opens a
 * slot (writes its ids and labels, then, under the lock, its number of images). Workers claim images in the order of
 * the batches, some at a time, under the lock; fill them without it; and report. An image is written by whoever claimed
 * it and depends on its sample alone. The caller, when it needs a batch that is not finished, claims and fills like a
 * worker before it sleeps, so without workers it does everything itself in the same code.
 *
 * A failure belongs to the thread it happened in. So a worker only marks the image as bad, and the caller tries it once
 * more when the batch is due: it gets either the image after all, or the failure with its sentence.
 *
 * Slots are reused only when no claim on them is open: the caller waits for the workers that are at it (`busy`) before
 * it starts anew or frees. Waits end after `patience` seconds without a report.
 */
#define _GNU_SOURCE 1
#include "data/loader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/thread.h"

enum {
    AHEAD = 2,        /* batches made ahead, besides the one in use */
    SMALL_CHUNK = 32, /* images a claim: so many small ones take some hundred microseconds */
    MOST_WORKERS = 1024,
    PATIENCE = 300,
};

typedef struct slot {
    float *images;
    int32_t *labels;
    int64_t *ids;
    bool *bad; /* images that a worker could not make */
    int64_t epoch, index;
    /* Under the lock: */
    int n;       /* images of the batch */
    int claimed; /* the first so many are being made or finished */
    int done;
    int failed;
} slot;

typedef struct worker {
    nw_loader *loader;
    pthread_t thread;
    nw_photo photo;
    int64_t sample; /* under the lock: what it is at, -1: nothing */
} worker;

struct nw_loader {
    nw_loader_options options;
    nw_images images;
    nw_transform transform;
    size_t image_floats;
    int chunk, batch_size;
    int64_t samples, batches; /* of an epoch on this rank */
    int64_t own;              /* samples that this rank takes, where they have owners */

    nw_arena arena;
    uint32_t *order[2]; /* NULL: the split's own order */
    int64_t order_epoch[2];
    int newest; /* which of the two was used last */

    slot ring[AHEAD + 1], aside; /* batch k is in ring[k % depth]; `aside` is for batches out of order */
    int depth;
    int64_t epoch, next, opened; /* next: batch that nw_loader_next returns; [next, opened) have their slots */
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t work;     /* images can be claimed, or stop */
    pthread_cond_t progress; /* a claim was finished */
    int busy;                /* workers with an open claim */
    int64_t reports;         /* finished claims */
    bool stop;
    int threads;     /* started */
    worker *workers; /* options.workers of them, and behind them the caller */
};

/* ---- Order and batches ------------------------------------------------------------------------------------------- */

/* An epoch's number in the random streams. */
static uint64_t stream_epoch(const nw_loader *l, int64_t epoch)
{
    return (uint64_t)epoch + (l->options.replicate ? (uint64_t)l->options.rank << 40 : 0);
}

static void make_order(const nw_loader *l, int64_t epoch, uint32_t *order)
{
    const nw_loader_options *o = &l->options;
    nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SHUFFLE, stream_epoch(l, epoch), 0);
    nw_rng_shuffle(&rng, order, (uint32_t)l->images.count);
    for (int64_t i = 0, kept = 0; o->owner && i < l->images.count; i++)
        if (o->owner[order[i]] == o->rank) order[kept++] = order[i];
}

/* The order of an epoch, in the place of the older one of the two. NULL: that of the split. */
static const uint32_t *find_order(nw_loader *l, int64_t epoch)
{
    if (l->order[0] == NULL) return NULL;
    if (l->order_epoch[l->newest] != epoch) l->newest = 1 - l->newest;
    if (l->order_epoch[l->newest] != epoch) make_order(l, epoch, l->order[l->newest]);
    l->order_epoch[l->newest] = epoch;
    return l->order[l->newest];
}

/* The i-th sample of an epoch on this rank. */
static int64_t find_sample(nw_loader *l, int64_t epoch, int64_t i)
{
    const nw_loader_options *o = &l->options;
    int64_t at = o->replicate ? i : o->rank + i * o->world;
    if (o->owner) {
        uint64_t taken = (uint64_t)epoch * (uint64_t)l->samples + (uint64_t)i, own = (uint64_t)l->own;
        epoch = (int64_t)(taken / own);
        at = (int64_t)(taken % own);
    }
    const uint32_t *order = find_order(l, epoch);
    return order ? (int64_t)order[at] : at;
}

static int64_t batch_begin(const nw_loader *l, int64_t index)
{
    int64_t plain = index * l->batch_size, latest = l->samples - (l->batches - index);
    return plain < latest ? plain : latest;
}

/* Gives a slot its batch. Nobody else looks at it before n is written under the lock. */
static void open_slot(nw_loader *l, slot *s, int64_t epoch, int64_t index)
{
    int64_t begin = batch_begin(l, index), end = batch_begin(l, index + 1);
    for (int64_t i = begin; i < end; i++) {
        int64_t id = find_sample(l, epoch, i);
        s->ids[i - begin] = id;
        s->labels[i - begin] = l->images.labels[id];
        s->bad[i - begin] = false;
    }
    s->epoch = epoch;
    s->index = index;
    pthread_mutex_lock(&l->lock);
    s->n = (int)(end - begin);
    s->claimed = s->done = s->failed = 0;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
}

/* ---- Filling ----------------------------------------------------------------------------------------------------- */

static nw_status fill_image(nw_loader *l, slot *s, int i, nw_photo *photo)
{
    const nw_dataset *d = l->options.dataset;
    int64_t id = s->ids[i];
    float *out = s->images + (size_t)i * l->image_floats;
    nw_rng rng = nw_rng_make(l->options.seed, NW_PURPOSE_AUGMENT, stream_epoch(l, s->epoch), (uint32_t)id);
    if (l->images.pixels == NULL) {
        NW_TRY(nw_photo_load(photo, &l->transform, l->options.decode, l->images.paths[id], &rng, out));
        return NW_OK;
    }
    int plane = d->height * d->width;
    nw_raster view = {.pixels = l->images.pixels + (size_t)id * (size_t)d->channels * (size_t)plane,
                      .height = d->height,
                      .width = d->width,
                      .plane = plane,
                      .row = d->width,
                      .column = 1};
    nw_choice choice = nw_transform_draw(&l->transform, d->height, d->width, &rng);
    nw_transform_apply(&l->transform, &view, &choice, out);
    return NW_OK;
}

/* Under the lock: the first slot, in the order of need, that has images to claim. */
static slot *find_work(nw_loader *l)
{
    if (l->aside.claimed < l->aside.n) return &l->aside;
    for (int i = 0; i < l->depth; i++) {
        slot *s = &l->ring[(l->next + i) % l->depth];
        if (s->claimed < s->n) return s;
    }
    return NULL;
}

/* Under the lock, which it gives up meanwhile: claims images of the slot, makes them and reports. */
static void fill_some(nw_loader *l, slot *s, worker *w)
{
    int begin = s->claimed, end = begin + l->chunk < s->n ? begin + l->chunk : s->n, failed = 0;
    s->claimed = end;
    w->sample = s->ids[begin];
    l->busy++;
    pthread_mutex_unlock(&l->lock);
    for (int i = begin; i < end; i++) {
        s->bad[i] = fill_image(l, s, i, &w->photo) != NW_OK;
        failed += s->bad[i];
    }
    pthread_mutex_lock(&l->lock);
    s->done += end - begin;
    s->failed += failed;
    w->sample = -1;
    l->busy--;
    l->reports++;
    pthread_cond_broadcast(&l->progress);
}

static void *worker_main(void *argument)
{
    worker *w = argument;
    nw_loader *l = w->loader;
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        slot *s = find_work(l);
        if (s)
            fill_some(l, s, w);
        else
            pthread_cond_wait(&l->work, &l->lock);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

/* Under the lock: sleeps until a claim is finished. */
static nw_status await_report(nw_loader *l)
{
    int64_t reports = l->reports, until = nw_now_ns() + (int64_t)l->options.patience * 1000000000;
    struct timespec deadline = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    while (l->reports == reports) {
        if (pthread_cond_timedwait(&l->progress, &l->lock, &deadline) != ETIMEDOUT || l->reports != reports) continue;
        int64_t sample = -1;
        for (int i = 0; i < l->threads; i++)
            if (l->workers[i].sample >= 0) sample = l->workers[i].sample;
        const char *path = sample >= 0 && l->images.paths ? l->images.paths[sample] : l->options.dataset->source;
        return NW_FAIL(NW_E_SYSTEM,
                       "no loader thread has finished anything for %d s, the last at sample %" PRId64
                       " ('%s'): check that its file system answers",
                       l->options.patience, sample, path);
    }
    return NW_OK;
}

/* Makes the slot's images together with the workers until all are there. */
static nw_status finish(nw_loader *l, slot *s)
{
    worker *caller = &l->workers[l->options.workers];
    nw_status status = NW_OK;
    pthread_mutex_lock(&l->lock);
    while (status == NW_OK && s->done < s->n) {
        if (s->claimed < s->n)
            fill_some(l, s, caller);
        else
            status = await_report(l);
    }
    int failed = s->failed;
    pthread_mutex_unlock(&l->lock);
    if (status != NW_OK) return nw_pass_up_at(status, __FILE__, __LINE__);
    for (int i = 0; failed > 0 && i < s->n; i++) {
        if (!s->bad[i]) continue;
        NW_TRY(fill_image(l, s, i, &caller->photo));
        s->bad[i] = false;
    }
    return NW_OK;
}

/* Takes back what was not claimed and waits for what was. */
static nw_status quiesce(nw_loader *l)
{
    nw_status status = NW_OK;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->depth; i++) l->ring[i].n = l->ring[i].claimed;
    l->aside.n = l->aside.claimed;
    while (status == NW_OK && l->busy > 0) status = await_report(l);
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* ---- The sequence ------------------------------------------------------------------------------------------------ */

/* Workers read `next` to see what is needed first. */
static void move_to(nw_loader *l, int64_t next)
{
    pthread_mutex_lock(&l->lock);
    l->next = next;
    pthread_mutex_unlock(&l->lock);
}

static void open_ahead(nw_loader *l)
{
    for (; l->opened < l->batches && l->opened < l->next + l->depth; l->opened++)
        open_slot(l, &l->ring[l->opened % l->depth], l->epoch, l->opened);
}

static nw_status check_place(const nw_loader *l, int64_t epoch, int64_t index, int64_t end)
{
    NW_FAIL_IF(epoch < 0 || epoch >= (int64_t)1 << 40 || index < 0 || index >= end, NW_E_ARGUMENT,
               "there is no batch %" PRId64 " in epoch %" PRId64 ": an epoch has %" PRId64 " batches", index, epoch,
               l->batches);
    return NW_OK;
}

nw_status nw_loader_start(nw_loader *l, int64_t epoch, int64_t first)
{
    NW_TRY(check_place(l, epoch, first, l->batches + 1));
    l->started = false;
    NW_TRY(quiesce(l));
    l->epoch = epoch;
    l->opened = first;
    l->started = true;
    move_to(l, first);
    open_ahead(l);
    return NW_OK;
}

static nw_batch batch_of(const slot *s)
{
    return (nw_batch){
        .images = s->images, .labels = s->labels, .ids = s->ids, .n = s->n, .epoch = s->epoch, .index = s->index};
}

nw_status nw_loader_next(nw_loader *l, nw_batch *batch)
{
    *batch = (nw_batch){0};
    NW_FAIL_IF(!l->started, NW_E_ARGUMENT, "the loader has no epoch yet: call nw_loader_start first");
    if (l->next == l->batches) {
        *batch = (nw_batch){.epoch = l->epoch, .index = l->next};
        return NW_OK;
    }
    open_ahead(l);
    slot *s = &l->ring[l->next % l->depth];
    NW_TRY(finish(l, s));
    *batch = batch_of(s);
    move_to(l, l->next + 1);
    return NW_OK;
}

nw_status nw_loader_batch(nw_loader *l, int64_t epoch, int64_t index, nw_batch *batch)
{
    *batch = (nw_batch){0};
    NW_TRY(check_place(l, epoch, index, l->batches));
    if (l->aside.done < l->aside.n) NW_TRY(finish(l, &l->aside)); /* an earlier call gave up waiting */
    open_slot(l, &l->aside, epoch, index);
    NW_TRY(finish(l, &l->aside));
    *batch = batch_of(&l->aside);
    return NW_OK;
}

int64_t nw_loader_batches(const nw_loader *l) { return l->batches; }

void nw_loader_shape(const nw_loader *l, int *channels, int *height, int *width)
{
    *channels = l->transform.channels;
    *height = l->transform.height;
    *width = l->transform.width;
}

/* ---- Creation ---------------------------------------------------------------------------------------------------- */

nw_augment nw_augment_plain(const nw_dataset *dataset)
{
    nw_augment augment = {0};
    memcpy(augment.mean, dataset->mean, sizeof augment.mean);
    memcpy(augment.deviation, dataset->deviation, sizeof augment.deviation);
    return augment;
}

static nw_status check_options(const nw_loader_options *o)
{
    static const char *const names[NW_SPLITS] = {"training", "validation", "test"};
    NW_FAIL_IF((unsigned)o->split >= NW_SPLITS, NW_E_ARGUMENT, "there is no split %d", (int)o->split);
    const nw_images *images = &o->dataset->split[o->split];
    NW_FAIL_IF(images->count < 1, NW_E_ARGUMENT, "dataset %s in '%s' has no %s images", o->dataset->name,
               o->dataset->source, names[o->split]);
    NW_FAIL_IF(images->count > UINT32_MAX, NW_E_UNSUPPORTED,
               "%" PRId64 " images are more than the loader can number: %u", images->count, UINT32_MAX);
    NW_FAIL_IF(images->pixels == NULL && (o->decode == NULL || images->paths == NULL || o->dataset->height != 0),
               NW_E_ARGUMENT, "dataset %s is files: the loader needs a function that decodes them", o->dataset->name);
    NW_FAIL_IF(o->batch_size < 1, NW_E_ARGUMENT, "a batch of %d images is impossible: use at least 1", o->batch_size);
    NW_FAIL_IF(o->workers < 0 || o->workers > MOST_WORKERS, NW_E_ARGUMENT, "%d workers are impossible: use 0 to %d",
               o->workers, MOST_WORKERS);
    NW_FAIL_IF(o->world < 0 || o->rank < 0 || o->rank >= (o->world ? o->world : 1), NW_E_ARGUMENT,
               "rank %d of %d is impossible: ranks count from 0", o->rank, o->world);
    NW_FAIL_IF(o->owner && !o->shuffle, NW_E_ARGUMENT, "samples that have owners are shuffled");
    NW_FAIL_IF(o->patience < 0, NW_E_ARGUMENT, "a patience of %d s is impossible: use 0 for the default", o->patience);
    return NW_OK;
}

/* How the epoch is divided among ranks and into batches; see the top of the file. */
static nw_status divide(nw_loader *l)
{
    const nw_loader_options *o = &l->options;
    int64_t count = l->images.count, world = o->replicate ? 1 : o->world, rank = o->replicate ? 0 : o->rank;
    int64_t fewest = count / world, most = (count + world - 1) / world;
    NW_FAIL_IF(fewest < 1, NW_E_ARGUMENT,
               "%" PRId64 " images cannot be divided among %" PRId64 " ranks: use fewer ranks, or let them replicate",
               count, world);
    if (o->drop_last || o->batch_size == 1) {
        l->batches = fewest / o->batch_size;
        NW_FAIL_IF(l->batches < 1, NW_E_ARGUMENT,
                   "a batch of %d is more than the %" PRId64
                   " images of an epoch, and incomplete batches are left out: use a smaller batch",
                   o->batch_size, fewest);
        l->samples = l->batches * o->batch_size;
    } else {
        l->batches = (most + o->batch_size - 1) / o->batch_size;
        l->samples = fewest + (rank < count % world);
    }
    l->batch_size = (int)(o->batch_size < l->samples ? o->batch_size : l->samples);
    for (int64_t i = 0; o->owner && i < count; i++) l->own += o->owner[i] == o->rank;
    NW_FAIL_IF(o->owner && l->own == 0, NW_E_ARGUMENT, "none of %" PRId64 " images belongs to rank %d", count, o->rank);
    return NW_OK;
}

static void place_slot(nw_loader *l, slot *s)
{
    size_t n = (size_t)l->batch_size;
    s->images = nw_arena_alloc(&l->arena, n * l->image_floats * sizeof *s->images);
    s->labels = nw_arena_alloc(&l->arena, n * sizeof *s->labels);
    s->ids = nw_arena_alloc(&l->arena, n * sizeof *s->ids);
    s->bad = nw_arena_alloc(&l->arena, n * sizeof *s->bad);
}

static void place_all(nw_loader *l)
{
    for (int i = 0; l->options.shuffle && i < 2; i++)
        l->order[i] = nw_arena_alloc(&l->arena, (size_t)l->images.count * sizeof(uint32_t));
    for (int i = 0; i < l->depth; i++) place_slot(l, &l->ring[i]);
    place_slot(l, &l->aside);
    l->workers = nw_arena_alloc(&l->arena, ((size_t)l->options.workers + 1) * sizeof *l->workers);
}

static nw_status prepare(nw_loader *l)
{
    const nw_loader_options *o = &l->options;
    NW_TRY(divide(l));
    int height = l->images.pixels ? o->dataset->height : 0, width = l->images.pixels ? o->dataset->width : 0;
    NW_TRY(nw_transform_prepare(&l->transform, &o->augment, o->augmented, o->dataset->channels, height, width));
    l->image_floats = (size_t)l->transform.channels * (size_t)l->transform.height * (size_t)l->transform.width;
    NW_FAIL_IF((size_t)l->batch_size > SIZE_MAX / 64 / l->image_floats, NW_E_MEMORY,
               "a batch of %d images of %zu numbers is beyond all memory: use a smaller batch", l->batch_size,
               l->image_floats);
    l->depth = o->workers ? AHEAD + 1 : 1;
    l->chunk = l->images.pixels ? SMALL_CHUNK : 1;
    l->order_epoch[0] = l->order_epoch[1] = -1;
    l->arena = nw_arena_measure();
    place_all(l);
    NW_TRY(nw_arena_create(&l->arena, l->arena.used));
    place_all(l);
    for (int i = 0; i <= o->workers; i++) l->workers[i] = (worker){.loader = l, .sample = -1};
    return NW_OK;
}

static void release(nw_loader *l)
{
    for (int i = 0; !nw_arena_is_measuring(&l->arena) && i <= l->options.workers; i++)
        nw_photo_free(&l->workers[i].photo);
    nw_arena_destroy(&l->arena);
    pthread_cond_destroy(&l->progress);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

static nw_status start_workers(nw_loader *l)
{
    for (; l->threads < l->options.workers; l->threads++) {
        worker *w = &l->workers[l->threads];
        int error = nw_thread_start(&w->thread, "loader", l->threads, worker_main, w);
        NW_FAIL_IF(error != 0, NW_E_SYSTEM,
                   "the system started only %d of %d loader threads (%s): use fewer workers, or raise the limit on "
                   "processes (ulimit -u)",
                   l->threads, l->options.workers, strerror(error));
    }
    return NW_OK;
}

nw_status nw_loader_create(nw_loader **loader, const nw_loader_options *options)
{
    *loader = NULL;
    NW_TRY(check_options(options));
    nw_loader *l = calloc(1, sizeof *l);
    NW_FAIL_IF(l == NULL, NW_E_MEMORY, "no memory for a loader: close other programs");
    l->options = *options;
    if (l->options.world == 0) l->options.world = 1;
    if (l->options.patience == 0) l->options.patience = PATIENCE;
    l->images = options->dataset->split[options->split];
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->progress, &monotonic);
    pthread_condattr_destroy(&monotonic);
    NW_TRY_OR(prepare(l), release(l));
    NW_TRY_OR(start_workers(l), nw_loader_free(l));
    *loader = l;
    return NW_OK;
}

void nw_loader_free(nw_loader *l)
{
    if (l == NULL) return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    /* A worker that hangs in a read cannot be ended: then its memory has to stay. */
    if (quiesce(l) != NW_OK) return;
    for (int i = 0; i < l->threads; i++) pthread_join(l->workers[i].thread, NULL);
    release(l);
}
