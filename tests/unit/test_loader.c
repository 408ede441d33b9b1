/*
 * test_loader.c - the prefetching loader: the same bits for any number of workers, from any start and out of order;
 * every sample once, in shards that are disjoint and cover; failures, waits and shutdowns in the middle of work.
 *
 * Datasets are made by hand. Image files come from a stand-in for the decoder, whose "file name" says what it holds.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader.h"

enum { SIDE = 8, CHANNELS = 3, PLANE = SIDE * SIDE, PIXELS = CHANNELS * PLANE, MOST = 1000 };

/* ---- Datasets by hand -------------------------------------------------------------------------------------------- */

static uint8_t pixels[MOST * PIXELS];
static int32_t labels[MOST];
static char names[MOST][16];
static char *paths[MOST];

static void make_images(void)
{
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (uint8_t)nw_rng_u32(&rng);
    for (int i = 0; i < MOST; i++) {
        labels[i] = i * 7 % 10;
        snprintf(names[i], sizeof names[i], "%d", i);
        paths[i] = names[i];
    }
}

static nw_dataset dataset_of(int64_t count)
{
    nw_dataset d = {
        .name = "test", .source = "nowhere", .classes = 10, .channels = CHANNELS, .height = SIDE, .width = SIDE};
    for (int c = 0; c < 4; c++) d.mean[c] = 0.5f, d.deviation[c] = 0.25f;
    d.split[NW_SPLIT_TRAIN] = (nw_images){.count = count, .labels = labels, .pixels = pixels};
    return d;
}

/* The same, as files. */
static nw_dataset files_of(int64_t count)
{
    nw_dataset d = dataset_of(count);
    d.height = d.width = 0;
    d.split[NW_SPLIT_TRAIN].pixels = NULL;
    d.split[NW_SPLIT_TRAIN].paths = paths;
    return d;
}

static atomic_int corrupt = -1; /* this file, and the one after, cannot be decoded */
static atomic_int flaky = -1;   /* this one can, but not the first time */
static atomic_int hanging = -1; /* this one takes until `gate` opens */
static atomic_bool caught;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static nw_status fake_decode(const char *path, int least_side, nw_bitmap *bitmap, int *full_height, int *full_width)
{
    (void)least_side;
    int id = atoi(path), expected = id;
    NW_FAIL_IF(atomic_load(&corrupt) >= 0 && (id == corrupt || id == corrupt + 1), NW_E_FILE, "file '%s' is corrupt",
               path);
    NW_FAIL_IF(atomic_compare_exchange_strong(&flaky, &expected, -1), NW_E_FILE, "file '%s' is busy", path);
    if (id == atomic_load(&hanging)) {
        atomic_store(&caught, true);
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    if (bitmap->capacity < PIXELS) {
        bitmap->pixels = realloc(bitmap->pixels, PIXELS);
        bitmap->capacity = PIXELS;
    }
    bitmap->height = bitmap->width = *full_height = *full_width = SIDE;
    for (int i = 0; i < PIXELS; i++) bitmap->pixels[i % PLANE * 3 + i / PLANE] = pixels[id * PIXELS + i];
    return NW_OK;
}

static nw_loader_options options_of(const nw_dataset *d)
{
    nw_loader_options o = {.dataset = d, .batch_size = 32, .shuffle = true, .augmented = true, .seed = 42};
    o.augment = nw_augment_plain(d);
    o.augment.pad = 2;
    o.augment.flip = true;
    o.augment.cutout = 3;
    o.decode = fake_decode;
    if (d->height == 0) o.augment.crop = o.augment.resize = SIDE;
    return o;
}

static nw_loader *make_loader(const nw_loader_options *o)
{
    nw_loader *loader;
    if (nw_loader_create(&loader, o) != NW_OK) fail_msg("%s", nw_error_message());
    return loader;
}

static void start(nw_loader *loader, int64_t epoch, int64_t first)
{
    assert_int_equal(nw_loader_start(loader, epoch, first), NW_OK);
}

static nw_batch next(nw_loader *loader)
{
    nw_batch batch;
    if (nw_loader_next(loader, &batch) != NW_OK) fail_msg("%s", nw_error_message());
    return batch;
}

static void assert_same(const nw_batch *a, const nw_batch *b)
{
    size_t n = (size_t)a->n;
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->index, b->index);
    assert_memory_equal(a->ids, b->ids, n * sizeof *a->ids);
    assert_memory_equal(a->labels, b->labels, n * sizeof *a->labels);
    assert_memory_equal(a->images, b->images, n * PIXELS * sizeof *a->images);
}

/* ---- The same bits ----------------------------------------------------------------------------------------------- */

static void test_any_number_of_workers(void **state)
{
    (void)state;
    nw_dataset sets[2] = {dataset_of(333), files_of(333)};
    for (int kind = 0; kind < 2; kind++) {
        nw_loader_options o = options_of(&sets[kind]);
        nw_loader *alone = make_loader(&o);
        static const int counts[] = {1, 2, 3, 7};
        for (int w = 0; w < 4; w++) {
            o.workers = counts[w];
            nw_loader *many = make_loader(&o);
            for (int epoch = 0; epoch < 3; epoch++) {
                start(alone, epoch, 0);
                start(many, epoch, 0);
                for (int n = 1; n > 0;) {
                    nw_batch a = next(alone), b = next(many);
                    assert_same(&a, &b);
                    n = a.n;
                }
            }
            nw_loader_free(many);
        }
        nw_loader_free(alone);
    }
}

/* An image is what augment.h makes of the sample and its stream, and nothing else. */
static void test_batches_are_what_augment_makes(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(100);
    nw_loader_options o = options_of(&d);
    o.workers = 2;
    nw_loader *loader = make_loader(&o);
    nw_transform t;
    assert_int_equal(nw_transform_prepare(&t, &o.augment, true, CHANNELS, SIDE, SIDE), NW_OK);
    start(loader, 5, 0);
    for (nw_batch b = next(loader); b.n > 0; b = next(loader))
        for (int i = 0; i < b.n; i++) {
            float want[PIXELS];
            nw_rng rng = nw_rng_make(o.seed, NW_PURPOSE_AUGMENT, 5, (uint32_t)b.ids[i]);
            nw_choice choice = nw_transform_draw(&t, SIDE, SIDE, &rng);
            nw_transform_apply(&t, &(nw_raster){pixels + b.ids[i] * PIXELS, SIDE, SIDE, PLANE, SIDE, 1}, &choice, want);
            assert_memory_equal(b.images + i * PIXELS, want, sizeof want);
            assert_int_equal(b.labels[i], labels[b.ids[i]]);
        }
    nw_loader_free(loader);
}

static void test_starts_anywhere_and_goes_out_of_order(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(333);
    nw_loader_options o = options_of(&d);
    nw_loader *through = make_loader(&o);
    o.workers = 2;
    nw_loader *jumping = make_loader(&o), *aside = make_loader(&o);
    nw_batch other;
    for (int epoch = 3; epoch < 6; epoch++) {
        start(through, epoch, 0);
        start(aside, 100, 0); /* has its own sequence, which must not notice */
        for (int64_t k = 0; k < nw_loader_batches(through); k++) {
            nw_batch want = next(through);
            assert_int_equal(want.index, k);
            start(jumping, epoch, k);
            nw_batch got = next(jumping);
            assert_same(&got, &want);
            assert_int_equal(nw_loader_batch(aside, epoch, k, &got), NW_OK);
            assert_same(&got, &want);
            nw_batch own = next(aside);
            assert_int_equal(nw_loader_batch(jumping, 100, k, &other), NW_OK);
            assert_same(&own, &other);
            assert_same(&got, &want);
        }
        start(jumping, epoch, nw_loader_batches(through));
        assert_int_equal(next(jumping).n, 0);
    }
    nw_loader_free(through);
    nw_loader_free(jumping);
    nw_loader_free(aside);
}

/* The batch in hand stays as it is while others are made ahead or aside. */
static void test_batch_in_hand_stays(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(333);
    nw_loader_options o = options_of(&d);
    o.workers = 3;
    nw_loader *loader = make_loader(&o);
    static float copy[32 * PIXELS];
    start(loader, 0, 0);
    for (nw_batch held = next(loader); held.n > 0; held = next(loader)) {
        size_t bytes = (size_t)held.n * PIXELS * sizeof *copy;
        memcpy(copy, held.images, bytes);
        nw_batch other;
        for (int64_t k = 0; k < 5; k++) assert_int_equal(nw_loader_batch(loader, 1, k, &other), NW_OK);
        assert_memory_equal(copy, held.images, bytes);
    }
    nw_loader_free(loader);
}

/* ---- Which samples ----------------------------------------------------------------------------------------------- */

/* Runs an epoch, adds up how often each sample came; returns the number of samples, writes that of the batches. */
static int64_t count_samples(nw_loader *loader, int64_t epoch, int *seen, int64_t *batches, int *last)
{
    int64_t samples = 0;
    *batches = 0;
    start(loader, epoch, 0);
    for (nw_batch b = next(loader); b.n > 0; b = next(loader)) {
        for (int i = 0; i < b.n; i++) seen[b.ids[i]]++;
        samples += b.n;
        ++*batches;
        *last = b.n;
    }
    assert_int_equal(*batches, nw_loader_batches(loader));
    return samples;
}

static void test_every_sample_once(void **state)
{
    (void)state;
    static const int sizes[][4] = {/* images, batch, batches without and with drop_last */
                                   {333, 32, 11, 10},
                                   {320, 32, 10, 10},
                                   {5, 1, 5, 5},
                                   {7, 100, 1, 0},
                                   {1, 1, 1, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int mode = 0; mode < 4; mode++) {
            nw_dataset d = dataset_of(sizes[s][0]);
            nw_loader_options o = options_of(&d);
            o.batch_size = sizes[s][1];
            o.shuffle = mode & 1;
            o.drop_last = mode & 2;
            int64_t want = sizes[s][o.drop_last ? 3 : 2], batches;
            nw_loader *loader;
            if (want == 0) {
                assert_int_equal(nw_loader_create(&loader, &o), NW_E_ARGUMENT);
                continue;
            }
            loader = make_loader(&o);
            int seen[MOST] = {0}, last;
            int64_t samples = count_samples(loader, 0, seen, &batches, &last);
            assert_int_equal(batches, want);
            assert_int_equal(samples, o.drop_last ? want * o.batch_size : sizes[s][0]);
            if (o.drop_last) assert_int_equal(last, o.batch_size);
            int total = 0;
            for (int i = 0; i < sizes[s][0]; i++) {
                assert_in_range(seen[i], o.drop_last ? 0 : 1, 1);
                total += seen[i];
            }
            assert_int_equal(total, samples);
            nw_loader_free(loader);
        }
}

static void test_order(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(200);
    nw_loader_options o = options_of(&d);
    o.batch_size = 200;
    int64_t ids[4][200]; /* epochs 0, 1, 0 again, and another seed */
    for (int run = 0; run < 4; run++) {
        o.seed = run == 3;
        nw_loader *loader = make_loader(&o);
        start(loader, run == 1, 0);
        memcpy(ids[run], next(loader).ids, sizeof ids[run]);
        nw_loader_free(loader);
    }
    assert_memory_equal(ids[0], ids[2], sizeof ids[0]);
    int fixed[3] = {0}; /* places that two orders share: one on average */
    for (int i = 0; i < 200; i++) {
        fixed[0] += ids[0][i] == i;
        fixed[1] += ids[0][i] == ids[1][i];
        fixed[2] += ids[0][i] == ids[3][i];
    }
    for (int k = 0; k < 3; k++) assert_in_range(fixed[k], 0, 9);

    o.shuffle = false;
    nw_loader *loader = make_loader(&o);
    start(loader, 4, 0);
    nw_batch b = next(loader);
    for (int i = 0; i < 200; i++) assert_int_equal(b.ids[i], i);
    nw_loader_free(loader);
}

/* Five samples have 120 orders; each must come up as often. */
static void test_shuffle_is_uniform(void **state)
{
    (void)state;
    enum { EPOCHS = 12000 };
    nw_dataset d = dataset_of(5);
    nw_loader_options o = options_of(&d);
    o.batch_size = 5;
    nw_loader *loader = make_loader(&o);
    static int counts[3125];
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        start(loader, epoch, 0);
        nw_batch b = next(loader);
        int code = 0;
        for (int i = 0; i < 5; i++) code = code * 5 + (int)b.ids[i];
        counts[code]++;
    }
    int orders = 0;
    for (int i = 0; i < 3125; i++) {
        orders += counts[i] > 0;
        if (counts[i]) assert_in_range(counts[i], 50, 150); /* 100 expected, deviation 10 */
    }
    assert_int_equal(orders, 120);
    nw_loader_free(loader);
}

/* Together the ranks take what one alone takes, each sample augmented alike, in equally many batches. */
static void test_shards_are_disjoint_and_cover(void **state)
{
    (void)state;
    static const int sizes[][3] = {/* images, ranks, batch */
                                   {300, 3, 32}, {301, 3, 10}, {302, 3, 10}, {333, 4, 32},
                                   {97, 5, 2},   {10, 10, 4},  {65, 2, 8}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        int count = sizes[s][0], world = sizes[s][1];
        nw_dataset d = dataset_of(count);
        nw_loader_options o = options_of(&d);
        o.batch_size = count;
        nw_loader *alone = make_loader(&o);
        start(alone, 2, 0);
        nw_batch all = next(alone);
        int at[MOST], seen[MOST] = {0};
        for (int i = 0; i < count; i++) at[all.ids[i]] = i;
        int64_t batches = 0;
        for (int rank = 0; rank < world; rank++) {
            o.batch_size = sizes[s][2];
            o.rank = rank;
            o.world = world;
            nw_loader *loader = make_loader(&o);
            if (rank == 0) batches = nw_loader_batches(loader);
            assert_int_equal(nw_loader_batches(loader), batches);
            start(loader, 2, 0);
            int64_t mine = 0, made = 0;
            for (nw_batch b = next(loader); b.n > 0; b = next(loader), made++) {
                assert_true(b.n <= o.batch_size);
                for (int i = 0; i < b.n; i++, mine++) {
                    seen[b.ids[i]]++;
                    assert_int_equal(at[b.ids[i]], rank + mine * world);
                    assert_memory_equal(b.images + i * PIXELS, all.images + at[b.ids[i]] * PIXELS,
                                        PIXELS * sizeof(float));
                }
            }
            assert_int_equal(made, batches);
            nw_loader_free(loader);
        }
        for (int i = 0; i < count; i++) assert_int_equal(seen[i], 1);
        nw_loader_free(alone);
    }
}

/* Samples with owners: each rank goes through its own again and again, in as many batches as an even division has. */
static void test_owners(void **state)
{
    (void)state;
    enum { COUNT = 203, WORLD = 3, EPOCHS = 7, BATCH = 10 };
    static uint16_t owner[COUNT];
    nw_dataset d = dataset_of(COUNT);
    for (int i = 0; i < COUNT; i++) owner[i] = i < BATCH ? 0 : i % 4 == 0 ? 1 : 2; /* 10, 49 and 144 */
    for (int rank = 0; rank < WORLD; rank++) {
        nw_loader_options o = options_of(&d);
        o.batch_size = BATCH;
        o.rank = rank;
        o.world = WORLD;
        nw_loader *even = make_loader(&o);
        o.owner = owner;
        nw_loader *loader = make_loader(&o), *other = make_loader(&o);
        assert_int_equal(nw_loader_batches(loader), nw_loader_batches(even));
        int seen[COUNT] = {0}, own = 0, taken = 0;
        for (int i = 0; i < COUNT; i++) own += owner[i] == rank;
        for (int epoch = 0; epoch < EPOCHS; epoch++) {
            start(loader, epoch, 0);
            start(even, epoch, 0);
            for (nw_batch b = next(loader), e = next(even); b.n > 0; b = next(loader), e = next(even)) {
                assert_int_equal(b.n, e.n);
                for (int i = 0; i < b.n; i++, taken++) {
                    assert_int_equal(owner[b.ids[i]], rank);
                    assert_int_equal(seen[b.ids[i]]++, taken / own); /* once a pass */
                }
                nw_batch out_of_order;
                assert_int_equal(nw_loader_batch(other, epoch, b.index, &out_of_order), NW_OK);
                assert_same(&b, &out_of_order);
                start(other, epoch, b.index);
                nw_batch again = next(other);
                assert_same(&b, &again);
            }
        }
        nw_loader_free(even);
        nw_loader_free(loader);
        nw_loader_free(other);
    }
}

/* Full batches only, or batches of one: some samples are left out, none comes twice, ranks stay equal. */
static void test_shards_that_leave_out(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        nw_dataset d = dataset_of(103);
        nw_loader_options o = options_of(&d);
        o.world = 4;
        o.batch_size = mode ? 1 : 8;
        o.drop_last = !mode;
        int seen[MOST] = {0}, last;
        int64_t batches, samples = 0;
        for (o.rank = 0; o.rank < 4; o.rank++) {
            nw_loader *loader = make_loader(&o);
            samples += count_samples(loader, 0, seen, &batches, &last);
            assert_int_equal(batches, mode ? 25 : 3);
            nw_loader_free(loader);
        }
        assert_int_equal(samples, mode ? 100 : 96);
        for (int i = 0; i < 103; i++) assert_in_range(seen[i], 0, 1);
    }
}

static void test_replicas_shuffle_by_themselves(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(100);
    nw_loader_options o = options_of(&d);
    o.batch_size = 100;
    o.world = 2;
    o.replicate = true;
    nw_loader *ranks[2];
    nw_batch b[2];
    for (int r = 0; r < 2; r++) {
        o.rank = r;
        ranks[r] = make_loader(&o);
        int seen[MOST] = {0}, last;
        int64_t batches;
        assert_int_equal(count_samples(ranks[r], 0, seen, &batches, &last), 100);
        for (int i = 0; i < 100; i++) assert_int_equal(seen[i], 1);
        start(ranks[r], 0, 0);
        b[r] = next(ranks[r]);
    }
    int same_place = 0, same_image = 0;
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < 100; j++) {
            if (b[0].ids[i] != b[1].ids[j]) continue;
            same_place += i == j;
            same_image += memcmp(b[0].images + i * PIXELS, b[1].images + j * PIXELS, PIXELS * sizeof(float)) == 0;
        }
    assert_in_range(same_place, 0, 9);
    assert_in_range(same_image, 0, 9);
    nw_loader_free(ranks[0]);
    nw_loader_free(ranks[1]);
}

/* ---- Failures and ends ------------------------------------------------------------------------------------------- */

static void test_corrupt_file_names_itself(void **state)
{
    (void)state;
    for (int workers = 0; workers < 4; workers++) {
        nw_dataset d = files_of(200);
        nw_loader_options o = options_of(&d);
        o.shuffle = false;
        o.workers = workers;
        nw_loader *loader = make_loader(&o);
        atomic_store(&corrupt, 70); /* and 71: the first of a batch is reported, whoever stumbled first */
        start(loader, 0, 0);
        assert_int_equal(next(loader).n, 32);
        assert_int_equal(next(loader).n, 32);
        nw_batch b;
        for (int again = 0; again < 3; again++) {
            assert_int_equal(nw_loader_next(loader, &b), NW_E_FILE);
            assert_non_null(strstr(nw_error_message(), "file '70' is corrupt"));
            assert_int_equal(b.n, 0);
        }
        assert_int_equal(nw_loader_batch(loader, 9, 2, &b), NW_E_FILE);
        assert_int_equal(nw_loader_batch(loader, 9, 1, &b), NW_OK);
        start(loader, 0, 3); /* behind it */
        assert_int_equal(next(loader).index, 3);
        atomic_store(&corrupt, -1);
        start(loader, 0, 2);
        assert_int_equal(next(loader).n, 32);
        nw_loader_free(loader);
    }
}

/* A file that fails once is tried again, and the batch is as if nothing had been. */
static void test_passing_trouble_leaves_no_trace(void **state)
{
    (void)state;
    nw_dataset d = files_of(64);
    nw_loader_options o = options_of(&d);
    o.shuffle = false;
    nw_loader *quiet = make_loader(&o);
    o.workers = 2;
    nw_loader *troubled = make_loader(&o);
    start(quiet, 0, 0);
    nw_batch want = next(quiet);
    atomic_store(&flaky, 13);
    start(troubled, 0, 0);
    nw_batch got = next(troubled);
    assert_int_equal(atomic_load(&flaky), -1);
    assert_same(&got, &want);
    nw_loader_free(quiet);
    nw_loader_free(troubled);
}

/* A worker that hangs: the wait ends with the file's name; when the file answers after all, the batch comes. */
static void test_hanging_file_is_named(void **state)
{
    (void)state;
    nw_dataset d = files_of(64);
    nw_loader_options o = options_of(&d);
    o.shuffle = false;
    o.workers = 2;
    o.patience = 1;
    nw_loader *loader = make_loader(&o);
    pthread_mutex_lock(&gate);
    atomic_store(&hanging, 40);
    start(loader, 0, 0);
    assert_int_equal(next(loader).n, 32);
    while (!atomic_load(&caught)) sched_yield(); /* a worker, ahead of us: the caller would hang itself */
    nw_batch b;
    assert_int_equal(nw_loader_next(loader, &b), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "'40'"));
    assert_int_equal(nw_loader_start(loader, 0, 0), NW_E_SYSTEM);
    assert_int_equal(nw_loader_next(loader, &b), NW_E_ARGUMENT); /* not started */
    atomic_store(&hanging, -1);
    pthread_mutex_unlock(&gate);
    start(loader, 0, 1);
    assert_int_equal(next(loader).ids[8], 40);
    nw_loader_free(loader);
}

static void test_ends_at_any_time(void **state)
{
    (void)state;
    nw_dataset sets[2] = {dataset_of(MOST), files_of(MOST)};
    nw_loader_free(NULL);
    for (int round = 0; round < 120; round++) {
        nw_loader_options o = options_of(&sets[round % 2]);
        o.workers = round % 5;
        nw_loader *loader = make_loader(&o);
        for (int starts = 0; starts < round % 3; starts++) {
            start(loader, starts, 0);
            for (int k = 0; k < round % 7; k++) next(loader);
        }
        nw_loader_free(loader);
    }
}

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) skip();
    nw_dataset sets[2] = {dataset_of(333), files_of(333)};
    for (int kind = 0; kind < 2; kind++)
        for (int workers = 0; workers < 3; workers += 2) {
            nw_loader_options o = options_of(&sets[kind]);
            o.workers = workers;
            nw_loader *loader = make_loader(&o);
            int before = 0;
            nw_batch b;
            for (int epoch = 0; epoch < 6; epoch++) {
                if (epoch == 3) before = atomic_load(&allocations); /* every thread has met a photograph by now */
                start(loader, epoch, 0);
                while (next(loader).n > 0) continue;
                assert_int_equal(nw_loader_batch(loader, epoch, 1, &b), NW_OK);
            }
            /* A thread that came too late for three epochs may still take its scratch: two blocks and a bitmap. */
            assert_in_range(atomic_load(&allocations) - before, 0, kind && workers ? 3 * (workers + 1) : 0);
            nw_loader_free(loader);
        }
}

static void refused(const nw_loader_options *o, nw_status status, const char *words)
{
    nw_loader *loader;
    assert_int_equal(nw_loader_create(&loader, o), status);
    assert_null(loader);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' does not say '%s'", nw_error_message(), words);
}

static void test_refusals(void **state)
{
    (void)state;
    nw_dataset d = dataset_of(10), f = files_of(10);
    nw_loader_options good = options_of(&d), o = good;
    o.split = NW_SPLIT_TEST;
    refused(&o, NW_E_ARGUMENT, "no test images");
    o = good, o.batch_size = 0;
    refused(&o, NW_E_ARGUMENT, "batch of 0");
    o = good, o.workers = -1;
    refused(&o, NW_E_ARGUMENT, "-1 workers");
    o = good, o.world = 2, o.rank = 2;
    refused(&o, NW_E_ARGUMENT, "rank 2 of 2");
    o = good, o.world = 11, o.rank = 3;
    refused(&o, NW_E_ARGUMENT, "11 ranks");
    o = good, o.drop_last = true;
    refused(&o, NW_E_ARGUMENT, "smaller batch");
    o = good, o.augment.cutout = 9;
    refused(&o, NW_E_ARGUMENT, "cutout");
    o = options_of(&f), o.decode = NULL;
    refused(&o, NW_E_ARGUMENT, "decodes");

    nw_loader *loader = make_loader(&good);
    nw_batch b;
    assert_int_equal(nw_loader_next(loader, &b), NW_E_ARGUMENT);
    assert_int_equal(nw_loader_start(loader, 0, 2), NW_E_ARGUMENT);
    assert_int_equal(nw_loader_start(loader, -1, 0), NW_E_ARGUMENT);
    assert_int_equal(nw_loader_batch(loader, 0, 1, &b), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "an epoch has 1 batches"));
    int c, h, w;
    nw_loader_shape(loader, &c, &h, &w);
    assert_true(c == CHANNELS && h == SIDE && w == SIDE);
    nw_loader_free(loader);
}

int main(void)
{
    make_images();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_number_of_workers),
        cmocka_unit_test(test_batches_are_what_augment_makes),
        cmocka_unit_test(test_starts_anywhere_and_goes_out_of_order),
        cmocka_unit_test(test_batch_in_hand_stays),
        cmocka_unit_test(test_every_sample_once),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_shuffle_is_uniform),
        cmocka_unit_test(test_shards_are_disjoint_and_cover),
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_shards_that_leave_out),
        cmocka_unit_test(test_replicas_shuffle_by_themselves),
        cmocka_unit_test(test_corrupt_file_names_itself),
        cmocka_unit_test(test_passing_trouble_leaves_no_trace),
        cmocka_unit_test(test_hanging_file_is_named),
        cmocka_unit_test(test_ends_at_any_time),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
