/*
 * test_delay.c - artificial delays: the laws that draw them, the history of parameters against a plain ring that keeps
 * all, its memory, replicas with delays against one whose parameters are put in place by hand, saving and loading.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "support/allocations.h"
#include "support/replica_fixture.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { LAWS = 4 };

static nw_delay_options law(nw_delay_law which, int models, uint64_t seed)
{
    return (nw_delay_options){.law = which, .models = models, .tail = 1, .workers = 10, .seed = seed};
}

/* ---- laws ---- */

TEST(test_delays_have_bounds_and_no_memory)
{
    static const int models[] = {0, 1, 2, 3, 21, 401, 1000000};
    for (int which = 0; which < LAWS; which++)
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
            nw_delay_options o = law((nw_delay_law)which, models[i], 7);
            int64_t first[600], oldest = models[i] > 0 ? models[i] - 1 : 0;
            OK(nw_delay_check(&o));
            for (int t = 0; t < 600; t++) {
                first[t] = nw_delay_at(&o, t);
                assert_in_range(first[t], 0, t < oldest ? t : oldest);
            }
            for (int t = 599; t >= 0; t--) assert_int_equal(nw_delay_at(&o, t), first[t]);
            int64_t far = nw_delay_at(&o, INT64_MAX / 4);
            assert_in_range(far, 0, oldest);
        }
}

/* Runs are repeated from their seed: these numbers are for all time. */
TEST(test_delays_never_change)
{
    static const int64_t want[LAWS][6] = {
        {1, 19, 7, 3, 10, 14}, {20, 20, 20, 20, 20, 20}, {0, 0, 3, 1, 1, 5}, {20, 18, 16, 13, 11, 9}};
    for (int which = 0; which < LAWS; which++) {
        nw_delay_options o = law((nw_delay_law)which, 21, 20211203);
        for (int i = 0; i < 6; i++) assert_int_equal(nw_delay_at(&o, 100 + i), want[which][i]);
    }
    nw_delay_options other = law(NW_DELAY_UNIFORM, 21, 20211204);
    int same = 0;
    for (int i = 0; i < 6; i++) same += nw_delay_at(&other, 100 + i) == want[NW_DELAY_UNIFORM][i];
    assert_true(same < 6);
}

/* Chi-square with 20 degrees of freedom: above 45.3 in one of a thousand seeds, and this one is given. */
TEST(test_uniform_is_uniform)
{
    enum { MODELS = 21, EACH = 2000 };
    nw_delay_options o = law(NW_DELAY_UNIFORM, MODELS, 1);
    double counts[MODELS] = {0}, early[MODELS] = {0}, chi = 0;
    for (int t = 0; t < MODELS * EACH; t++) counts[nw_delay_at(&o, MODELS + t)]++;
    for (int i = 0; i < MODELS; i++) chi += (counts[i] - EACH) * (counts[i] - EACH) / EACH;
    assert_true(chi < 45.3);
    assert_true(chi > 5.9); /* nor more even than chance: one of a thousand, too */
    /* Before there are so many models, it is uniform over those that there are. */
    for (int seed = 0; seed < EACH; seed++) {
        o.seed = (uint64_t)seed;
        early[nw_delay_at(&o, 3)]++;
    }
    for (int i = 0; i < MODELS; i++) assert_true(i < 4 ? fabs(early[i] - EACH / 4.0) < 80 : early[i] == 0);
}

TEST(test_heavy_has_its_tail)
{
    enum { MODELS = 401, DRAWS = 40000 };
    static const double tails[] = {0.3, 1, 2.5};
    for (int i = 0; i < 3; i++) {
        nw_delay_options o = law(NW_DELAY_HEAVY, MODELS, 5);
        o.tail = tails[i];
        int at_least[MODELS + 1] = {0};
        for (int t = 0; t < DRAWS; t++) at_least[nw_delay_at(&o, MODELS + t)]++;
        for (int k = MODELS - 1; k >= 0; k--) at_least[k] += at_least[k + 1];
        double cut = pow(MODELS + 1, -o.tail);
        for (int k = 0; k < MODELS; k++) {
            double p = (pow(k + 1, -o.tail) - cut) / (1 - cut), spread = sqrt(DRAWS * p * (1 - p));
            assert_true(fabs(at_least[k] - DRAWS * p) <= 4.5 * spread + 1);
        }
    }
}

TEST(test_workers_have_their_own_delay)
{
    static const int models[] = {2, 11, 21, 401};
    for (int i = 0; i < 4; i++)
        for (int workers = 1; workers <= 13; workers++) {
            nw_delay_options o = law(NW_DELAY_WORKER, models[i], 3);
            int64_t oldest = models[i] - 1, before = -1;
            o.workers = workers;
            for (int w = 0; w < workers; w++) {
                int64_t t = (int64_t)workers * 1000 + w, delay = nw_delay_at(&o, t);
                for (int turn = 1; turn < 5; turn++)
                    assert_int_equal(nw_delay_at(&o, t + (int64_t)turn * workers), delay);
                double even = workers > 1 ? (double)(oldest * (workers - 1 - w)) / (workers - 1) : (double)oldest;
                assert_true(fabs((double)delay - even) <= 0.5);
                assert_true(t - delay > before); /* parameters that no other worker of this turn reads */
                before = t - delay;
            }
        }
}

TEST(test_bad_options_are_refused)
{
    nw_delay_law which;
    nw_delay_options many = law(NW_DELAY_FIXED, 1000001, 0), flat = law(NW_DELAY_HEAVY, 5, 0),
                     empty = law(NW_DELAY_WORKER, 5, 0);
    flat.tail = 0;
    empty.workers = 0;
    assert_int_equal(nw_delay_check(&many), NW_E_ARGUMENT);
    assert_says("--max-delay takes 1 to 1000000");
    assert_int_equal(nw_delay_check(&flat), NW_E_ARGUMENT);
    assert_says("--delay-tail");
    assert_int_equal(nw_delay_check(&empty), NW_E_ARGUMENT);
    assert_says("--delay-workers");
    OK(nw_delay_law_find("heavy", &which));
    assert_int_equal(which, NW_DELAY_HEAVY);
    assert_int_equal(nw_delay_law_find("unifrom", &which), NW_E_UNKNOWN);
    assert_says("the nearest is 'uniform'");
}

/* ---- history ---- */

enum { FLOATS = 19, MODELS_MOST = 64 };

/* The plain twin: a ring of the last D models, all of them kept. */
typedef struct ring {
    nw_delay_options options;
    int64_t update;
    float models[MODELS_MOST][FLOATS];
    float newest[FLOATS];
    int vectors; /* that the history beside it has taken from the system */
} ring;

static int ring_size(const ring *r) { return r->options.models > 1 ? r->options.models : 1; }

static ring make_ring(const nw_delay_options *o)
{
    ring r = {.options = *o};
    for (int i = 0; i < FLOATS; i++) r.newest[i] = (float)i;
    memcpy(r.models[0], r.newest, sizeof r.newest);
    return r;
}

static const float *ring_read(const ring *r)
{
    return r->models[(r->update - nw_delay_at(&r->options, r->update)) % ring_size(r)];
}

/* An update that depends on what was read and on the newest. */
static void ring_update(ring *r)
{
    float old[FLOATS];
    memcpy(old, ring_read(r), sizeof old);
    for (int i = 0; i < FLOATS; i++) r->newest[i] = 0.7f * r->newest[i] + sinf(3.0f * old[i] + (float)r->update);
    r->update++;
    memcpy(r->models[r->update % ring_size(r)], r->newest, sizeof r->newest);
}

/* Versions that are read again, by one of the updates behind their own, from all delays: on average over the second
 * half of so many updates, and at most. */
static void count_needed(const nw_delay_options *o, int updates, double *mean, int *most)
{
    int64_t models = o->models > 1 ? o->models : 1, sum = 0, *last = calloc((size_t)updates, sizeof *last);
    for (int64_t t = 0; t < updates + models; t++) {
        int64_t version = t - nw_delay_at(o, t);
        if (version < updates) last[version] = t;
    }
    *most = 0;
    for (int64_t u = 1; u <= updates; u++) {
        int count = 0;
        for (int64_t v = u > models ? u - models : 0; v < u; v++) count += last[v] >= u;
        if (count > *most) *most = count;
        if (u > updates / 2) sum += count;
    }
    *mean = (double)sum / (updates - updates / 2);
    free(last);
}

static void keep(nw_history *h, const float *newest, int *vectors)
{
    int before = allocations;
    OK(nw_history_keep(h, newest));
    *vectors += allocations - before;
}

/* One update of both, which must read the same bits. */
static void step_both(ring *r, nw_history *h)
{
    const float *old = nw_history_read(h);
    int64_t delay = nw_delay_at(&r->options, r->update);
    assert_int_equal(nw_history_delay(h), delay);
    assert_true(delay == 0 ? old == NULL : old != NULL);
    assert_memory_equal(old ? old : r->newest, ring_read(r), sizeof r->newest);
    assert_true(nw_history_read(h) == old); /* once for every batch of the gradient */
    keep(h, r->newest, &r->vectors);
    ring_update(r);
}

TEST(test_history_equals_a_ring)
{
    nw_rng rng = nw_rng_make(11, NW_PURPOSE_TEST, 0, 0);
    for (int which = 0; which < LAWS; which++)
        for (int round = 0; round < 12; round++) {
            int models = round < 4 ? round : 2 + (int)nw_rng_below(&rng, MODELS_MOST - 1);
            nw_delay_options o = law((nw_delay_law)which, models, nw_rng_u32(&rng));
            o.workers = 1 + (int)nw_rng_below(&rng, 20);
            o.tail = 0.2 + 2 * (double)nw_rng_uniform(&rng);
            ring r = make_ring(&o);
            nw_history *h;
            OK(nw_history_create(&h, &o, FLOATS));
            double mean;
            int most;
            for (int t = 0; t < 300; t++) step_both(&r, h);
            count_needed(&o, 300, &mean, &most);
            assert_true(most < ring_size(&r));
            if (COUNTS_ALLOCATIONS) assert_int_equal(r.vectors, most);
            const nw_histogram *delays = nw_history_delays(h);
            assert_int_equal(delays->count, 300);
            assert_true(delays->max < ring_size(&r));
            nw_history_free(h);
        }
}

/* Versions needed on average, and vectors taken for them at most, in parts of D. */
static void measure(nw_delay_options o, double *mean, double *most)
{
    enum { UPDATES = 6000 };
    float newest = 1;
    int vectors = 0, early = 0, needed;
    nw_history *h;
    OK(nw_history_create(&h, &o, 1));
    for (int t = 0; t < UPDATES; t++) {
        keep(h, &newest, &vectors);
        if (t == UPDATES * 3 / 4) early = vectors;
    }
    nw_history_free(h);
    count_needed(&o, UPDATES, mean, &needed);
    if (COUNTS_ALLOCATIONS) assert_int_equal(vectors, needed);
    assert_true(vectors - early <= o.models / 100); /* it has stopped to grow, but for rare peaks */
    *mean /= o.models;
    *most = (double)needed / o.models;
}

TEST(test_memory_is_what_will_be_read)
{
    enum { MODELS = 401 };
    double mean, most;
    measure(law(NW_DELAY_UNIFORM, MODELS, 20211203), &mean, &most);
    assert_true(fabs(mean - exp(-1)) < 0.01);
    assert_true(most < 0.42);
    measure(law(NW_DELAY_FIXED, MODELS, 1), &mean, &most);
    assert_true(mean == (MODELS - 1.0) / MODELS && most == mean);
    measure(law(NW_DELAY_HEAVY, MODELS, 1), &mean, &most);
    assert_true(mean < 0.02 && most < 0.04);
    measure(law(NW_DELAY_WORKER, MODELS, 1), &mean, &most);
    assert_true(fabs(mean - 0.5) < 0.01 && most < 0.52);
}

typedef struct at_update {
    nw_history *history;
    int64_t update; /* to go to */
} at_update;

static void list_history(void *whose, nw_state *s)
{
    nw_history_state(((at_update *)whose)->history, s, NW_STATE_KEPT);
}
static nw_status go_to(void *whose)
{
    return nw_history_go_to(((at_update *)whose)->history, ((at_update *)whose)->update);
}

static void save_history(nw_history *h, state_store *store)
{
    at_update g = {h, 0};
    store_clear(store);
    store_add(store, (nw_state_owner){&g, list_history, go_to});
}

static nw_status load_history(nw_history *h, state_store *store, int64_t update)
{
    at_update g = {h, update};
    return store_load(store, (nw_state_owner){&g, list_history, go_to}, 0, 1, NULL);
}

/* Saved before many updates; loaded into one that was elsewhere, and in the middle of its own; compared to the end. */
TEST(test_history_is_saved_and_loaded)
{
    for (int which = 0; which < LAWS; which++) {
        nw_delay_options o = law((nw_delay_law)which, 13, 4);
        ring r = make_ring(&o);
        state_store store = {0};
        nw_history *h;
        OK(nw_history_create(&h, &o, FLOATS));
        for (int t = 0; t < 60; t++) {
            if (t % 4 == 0) {
                ring elsewhere = make_ring(&o), again = r;
                nw_history *loaded;
                OK(nw_history_create(&loaded, &o, FLOATS));
                for (int i = 0; i < t % 11; i++) step_both(&elsewhere, loaded);
                save_history(h, &store);
                OK(load_history(loaded, &store, t));
                assert_memory_equal(nw_history_delays(loaded), nw_history_delays(h), sizeof(nw_histogram));
                for (int i = 0; i < 40; i++) step_both(&again, loaded);
                nw_history_free(loaded);
            }
            step_both(&r, h);
        }
        store_clear(&store);
        nw_history_free(h);
    }
}

TEST(test_loading_refuses_other_delays)
{
    nw_delay_options o = law(NW_DELAY_FIXED, 5, 4), longer = law(NW_DELAY_FIXED, 9, 4);
    ring r = make_ring(&o);
    nw_history *h, *other;
    state_store store = {0};
    OK(nw_history_create(&h, &o, FLOATS));
    OK(nw_history_create(&other, &longer, FLOATS));
    for (int t = 0; t < 20; t++) step_both(&r, h);
    save_history(h, &store);
    assert_int_equal(load_history(other, &store, 20), NW_E_ARGUMENT);
    assert_says("the checkpoint lacks version.12; give --max-delay");
    assert_int_equal(load_history(h, &store, -1), NW_E_FILE);
    store_clear(&store);
    nw_history_free(h);
    nw_history_free(other);
}

/* ---- replicas ---- */

static nw_params *params_of(nw_replica *r) { return &r->net->model.params; }

static void assert_same_weights(nw_replica *a, nw_replica *b)
{
    size_t learned = params_of(a)->learned.floats * sizeof(float),
           running = params_of(a)->running.floats * sizeof(float);
    assert_memory_equal(&a->at, &b->at, sizeof a->at);
    assert_memory_equal(params_of(a)->values, params_of(b)->values, learned);
    if (running) assert_memory_equal(params_of(a)->buffers, params_of(b)->buffers, running);
    if (a->at.pending > 0) assert_memory_equal(params_of(a)->gradients, params_of(b)->gradients, learned);
}

/* The same with a replica that knows nothing of delays: its parameters are copied to and fro around each gradient. */
static void compute_by_hand(nw_replica *r, const nw_delay_options *o, float *models, int batches)
{
    size_t floats = params_of(r)->learned.floats, bytes = floats * sizeof(float);
    for (; batches > 0; batches--) {
        nw_task pass = next_pass(r);
        float *newest = models + (size_t)(r->at.steps % o->models) * floats;
        int64_t version = r->at.steps - nw_delay_at(o, r->at.steps);
        if (r->at.batch == nw_replica_batches(r)) OK(nw_replica_end_epoch(r)); /* with the newest */
        memcpy(newest, params_of(r)->values, bytes);
        memcpy(params_of(r)->values, models + (size_t)(version % o->models) * floats, bytes);
        OK(nw_replica_pass(r, &pass, NULL));
        memcpy(params_of(r)->values, newest, bytes);
        update_after(r, &pass);
    }
}

static void check_replica(const char *model, nw_delay_law which, int accumulation)
{
    enum { BATCHES = 16, MODELS = 5 };
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options plain = replica_options(d, model), delayed;
    plain.accumulation = accumulation;
    plain.schedule.epochs = 8;
    delayed = plain;
    delayed.delay = law(which, MODELS, 9);
    nw_replica *a = make_replica(&delayed), *b = make_replica(&plain), *serial = make_replica(&plain);
    float *models = calloc(MODELS * params_of(a)->learned.floats, sizeof *models);
    OK(nw_replica_begin(a));
    OK(nw_replica_begin(b));
    OK(nw_replica_begin(serial));
    for (int i = 0; i < BATCHES; i++) {
        compute(a, 1);
        compute_by_hand(b, &delayed.delay, models, 1);
        assert_same_weights(a, b);
    }
    compute(serial, BATCHES);
    assert_memory_not_equal(params_of(a)->values, params_of(serial)->values,
                            params_of(a)->learned.floats * sizeof(float));
    assert_int_equal(nw_history_delays(a->history)->count, BATCHES / accumulation);
    free(models);
    nw_replica_free(a);
    nw_replica_free(b);
    nw_replica_free(serial);
    nw_dataset_close(d);
}

TEST(test_replica_equals_one_by_hand)
{
    check_replica("alexnet", NW_DELAY_UNIFORM, 1);
    check_replica("alexnet", NW_DELAY_FIXED, 3);
}

TEST(test_one_model_is_serial)
{
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options plain = replica_options(d, "alexnet"), one = plain;
    one.delay = law(NW_DELAY_UNIFORM, 1, 9);
    nw_replica *a = make_replica(&one), *b = make_replica(&plain);
    assert_null(a->history);
    OK(nw_replica_begin(a));
    OK(nw_replica_begin(b));
    compute(a, 7);
    compute(b, 7);
    assert_same_weights(a, b);
    nw_replica_free(a);
    nw_replica_free(b);
    nw_dataset_close(d);
}

/* Saved after every batch, so also in the middle of a gradient; another goes on from each. */
TEST(test_replica_goes_on_exactly)
{
    enum { BATCHES = 11 };
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options o = replica_options(d, "alexnet");
    o.accumulation = 2;
    o.schedule.epochs = 8;
    o.delay = law(NW_DELAY_UNIFORM, 4, 9);
    nw_replica *whole = make_replica(&o), *going = make_replica(&o);
    state_store store = {0};
    OK(nw_replica_begin(whole));
    OK(nw_replica_begin(going));
    compute(whole, BATCHES);
    for (int at = 0; at < BATCHES; at++) {
        save(going, &store);
        nw_replica *resumed = make_replica(&o);
        OK(load(resumed, &store));
        OK(nw_replica_begin(resumed));
        compute(resumed, BATCHES - at);
        assert_same_weights(whole, resumed);
        assert_memory_equal(nw_history_delays(whole->history), nw_history_delays(resumed->history),
                            sizeof(nw_histogram));
        nw_replica_free(resumed);
        compute(going, 1);
    }
    store_clear(&store);
    nw_replica_free(whole);
    nw_replica_free(going);
    nw_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delays_have_bounds_and_no_memory),
        cmocka_unit_test(test_delays_never_change),
        cmocka_unit_test(test_uniform_is_uniform),
        cmocka_unit_test(test_heavy_has_its_tail),
        cmocka_unit_test(test_workers_have_their_own_delay),
        cmocka_unit_test(test_bad_options_are_refused),
        cmocka_unit_test(test_history_equals_a_ring),
        cmocka_unit_test(test_memory_is_what_will_be_read),
        cmocka_unit_test(test_history_is_saved_and_loaded),
        cmocka_unit_test(test_loading_refuses_other_delays),
        cmocka_unit_test(test_replica_equals_one_by_hand),
        cmocka_unit_test(test_one_model_is_serial),
        cmocka_unit_test(test_replica_goes_on_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
