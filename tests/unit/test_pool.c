/*
 * test_pool.c - the thread pool: every index once, results visible, sleep and wake, refusals.
 *
 * Tasks record what they see and the test's own thread asserts, because a failed assertion leaves a test by longjmp,
 * which a worker cannot do. Each test runs for every thread count up to four that this machine allows.
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
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/pool.h"
#include "base/rng.h"

enum { MOST_THREADS = 4, MOST_COUNT = 400 };

static int most_threads(void)
{
    int allowed = nw_machine_allowed_cpus();
    return allowed < MOST_THREADS ? allowed : MOST_THREADS;
}

static nw_pool *make_pool(int threads)
{
    nw_pool *pool;
    assert_int_equal(nw_pool_create(&pool, threads), NW_OK);
    assert_int_equal(nw_pool_threads(pool), threads);
    return pool;
}

/* ---- every index once ----------------------------------------------------------------------------------------- */

typedef struct coverage {
    int threads;
    atomic_int hits[MOST_COUNT];
    atomic_bool inside[MOST_THREADS];
    int newest[MOST_THREADS];
    atomic_int faults; /* worker out of range, two tasks at once with one worker's number, indices not ascending */
} coverage;

static void cover(void *context, int index, int worker)
{
    coverage *seen = context;
    if (worker < 0 || worker >= seen->threads) {
        atomic_fetch_add(&seen->faults, 1);
        return;
    }
    if (atomic_exchange(&seen->inside[worker], true)) atomic_fetch_add(&seen->faults, 1);
    if (index <= seen->newest[worker]) atomic_fetch_add(&seen->faults, 1);
    seen->newest[worker] = index;
    if (index >= 0 && index < MOST_COUNT) atomic_fetch_add(&seen->hits[index], 1);
    atomic_store(&seen->inside[worker], false);
}

static void test_every_index_once(void **state)
{
    (void)state;
    static coverage seen;
    for (int threads = 1; threads <= most_threads(); threads++) {
        nw_pool *pool = make_pool(threads);
        nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, (uint64_t)threads, 0);
        for (int round = 0; round < 1500; round++) {
            int count = (int)nw_rng_below(&rng, round % 2 ? 8 : MOST_COUNT + 1);
            memset(&seen, 0, sizeof seen);
            memset(seen.newest, -1, sizeof seen.newest);
            seen.threads = threads;
            nw_pool_run(pool, count, cover, &seen);
            assert_int_equal(atomic_load(&seen.faults), 0);
            for (int i = 0; i < MOST_COUNT; i++) assert_int_equal(atomic_load(&seen.hits[i]), i < count ? 1 : 0);
        }
        nw_pool_free(pool);
    }
}

/* ---- tiny regions back to back -------------------------------------------------------------------------------- */

typedef struct region {
    atomic_int ran;
    atomic_bool open;
    atomic_int *strays;
} region;

static void step_a(void *context, int index, int worker)
{
    (void)worker;
    (void)index;
    region *here = context;
    if (!atomic_load(&here->open)) atomic_fetch_add(here->strays, 1);
    atomic_fetch_add(&here->ran, 1);
}

/* A second function, so that a mix-up of function and context between regions shows, too. */
static void step_b(void *context, int index, int worker)
{
    (void)worker;
    (void)index;
    region *here = context;
    if (!atomic_load(&here->open)) atomic_fetch_add(here->strays, 1);
    atomic_fetch_add(&here->ran, 1000);
}

static void test_tiny_regions(void **state)
{
    (void)state;
    enum { REGIONS = 20000, CONTEXTS = 3 };
    atomic_int strays = 0;
    region regions[CONTEXTS] = {{.strays = &strays}, {.strays = &strays}, {.strays = &strays}};
    for (int threads = 1; threads <= most_threads(); threads++) {
        nw_pool *pool = make_pool(threads);
        for (int i = 0; i < REGIONS; i++) {
            region *here = &regions[i % CONTEXTS];
            int count = 2 + i % 3;
            atomic_store(&here->ran, 0);
            atomic_store(&here->open, true);
            nw_pool_run(pool, count, i % 2 ? step_a : step_b, here);
            atomic_store(&here->open, false);
            assert_int_equal(atomic_load(&here->ran), i % 2 ? count : 1000 * count);
        }
        assert_int_equal(atomic_load(&strays), 0);
        nw_pool_free(pool);
    }
}

/* ---- plain memory --------------------------------------------------------------------------------------------- */

typedef struct plain {
    uint64_t factor;
    uint64_t values[64];
} plain;

static void scale(void *context, int index, int worker)
{
    (void)worker;
    plain *data = context;
    data->values[index] = data->values[index] * data->factor + (uint64_t)index;
}

/* Region n reads what other threads wrote in region n - 1 and what the caller wrote between, all without atomics. */
static void test_visibility(void **state)
{
    (void)state;
    for (int threads = 1; threads <= most_threads(); threads++) {
        nw_pool *pool = make_pool(threads);
        plain got = {0}, want = {0};
        for (uint64_t round = 0; round < 3000; round++) {
            got.factor = want.factor = 2 * round + 1;
            nw_pool_run(pool, 64, scale, &got);
            for (int i = 0; i < 64; i++) scale(&want, i, 0);
            assert_memory_equal(&got, &want, sizeof got);
        }
        nw_pool_free(pool);
    }
}

/* ---- sleep and wake ------------------------------------------------------------------------------------------- */

static void sleep_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

typedef struct meeting {
    int wanted;
    atomic_int arrived;
    atomic_int alone;
} meeting;

/* Comes back when all have arrived, which takes as many threads as tasks. */
static void meet(void *context, int index, int worker)
{
    (void)index;
    (void)worker;
    meeting *here = context;
    int64_t deadline = nw_now_ns() + 20 * (int64_t)1000000000;
    atomic_fetch_add(&here->arrived, 1);
    while (atomic_load(&here->arrived) < here->wanted) {
        if (nw_now_ns() > deadline) {
            atomic_fetch_add(&here->alone, 1);
            return;
        }
        sched_yield();
    }
}

static void test_sleepers_are_woken(void **state)
{
    (void)state;
    for (int threads = 2; threads <= most_threads(); threads++) {
        nw_pool *pool = make_pool(threads);
        for (int round = 0; round < 30; round++) {
            meeting here = {.wanted = threads};
            sleep_ms(round % 3);
            nw_pool_run(pool, threads, meet, &here);
            assert_int_equal(atomic_load(&here.alone), 0);
        }
        nw_pool_free(pool);
    }
}

static void linger(void *context, int index, int worker)
{
    atomic_int *ran = context;
    (void)index;
    if (worker != 0) sleep_ms(2);
    atomic_fetch_add(ran, 1);
}

/* The caller runs out of tasks long before the others and must wait for them, asleep. */
static void test_caller_waits_for_stragglers(void **state)
{
    (void)state;
    for (int threads = 2; threads <= most_threads(); threads++) {
        nw_pool *pool = make_pool(threads);
        for (int round = 0; round < 50; round++) {
            atomic_int ran = 0;
            nw_pool_run(pool, 100, linger, &ran);
            assert_int_equal(atomic_load(&ran), 100);
        }
        nw_pool_free(pool);
    }
}

static void test_idle_pool_sleeps(void **state)
{
    (void)state;
    nw_pool *pool = make_pool(most_threads());
    atomic_int ran = 0;
    nw_pool_run(pool, 8, linger, &ran);
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_ms(200);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    assert_true(used < 0.05);
    nw_pool_free(pool);
}

/* ---- no allocation -------------------------------------------------------------------------------------------- */

static void test_run_does_not_allocate(void **state)
{
    (void)state;
    if (!COUNTS_ALLOCATIONS) skip();
    nw_pool *pool = make_pool(most_threads());
    int before = atomic_load(&allocations);
    void *volatile proof = malloc(1); /* that the counter counts */
    free(proof);
    assert_int_equal(atomic_load(&allocations), before + 1);
    static plain data;
    for (int i = 0; i < 1000; i++) nw_pool_run(pool, 64, scale, &data);
    assert_int_equal(atomic_load(&allocations), before + 1);
    nw_pool_free(pool);
}

/* ---- refusals and misuse -------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    nw_pool *pool = (nw_pool *)&pool;
    assert_int_equal(nw_pool_create(&pool, 0), NW_E_ARGUMENT);
    assert_null(pool);
    assert_non_null(strstr(nw_error_message(), "at least 1"));
    assert_int_equal(nw_pool_create(&pool, -3), NW_E_ARGUMENT);

    assert_int_equal(nw_pool_create(&pool, NW_POOL_MOST + 1), NW_E_ARGUMENT);
    assert_null(pool);
    assert_non_null(strstr(nw_error_message(), "at most 1024"));
    nw_pool_free(NULL);
}

/* Stacks larger than any address space make the start of a thread fail, whoever runs the test. */
static void test_thread_refused_by_system(void **state)
{
    (void)state;
    if (sizeof(size_t) < 8 || nw_machine_allowed_cpus() < 2) skip();
    pthread_attr_t usual, huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_getattr_default_np(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 55), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    nw_pool *pool;
    nw_status status = nw_pool_create(&pool, 2);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(status, NW_E_SYSTEM);
    assert_null(pool);
    assert_non_null(strstr(nw_error_message(), "1 of 2 threads"));
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
}

static void nest(void *context, int index, int worker)
{
    (void)index;
    (void)worker;
    static atomic_int ran;
    nw_pool_run(context, 1, linger, &ran);
}

static void test_nested_region_aborts(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        nw_pool *pool;
        fclose(stderr);
        if (nw_pool_create(&pool, 1) == NW_OK) nw_pool_run(pool, 1, nest, pool);
        _exit(0);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_index_once),
        cmocka_unit_test(test_tiny_regions),
        cmocka_unit_test(test_visibility),
        cmocka_unit_test(test_sleepers_are_woken),
        cmocka_unit_test(test_caller_waits_for_stragglers),
        cmocka_unit_test(test_idle_pool_sleeps),
        cmocka_unit_test(test_run_does_not_allocate),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_thread_refused_by_system),
        cmocka_unit_test(test_nested_region_aborts),
    };
    alarm(300); /* a lost wake-up would wait for ever */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
