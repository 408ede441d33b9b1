/*
 * pool.c - a pool of threads that sleeps when there is nothing to do.
 *
 * How a region runs. The caller writes task, context and count, then stores count into `remaining` with release order.
 * Who decrements `remaining` from r > 0 to r - 1 by compare-and-exchange has claimed index count - r, of the region
 * that is current at that instant, and only then reads the region's fields. Who has run his claims subtracts their
 * number from `unfinished`; the caller returns when it is 0.
 *
 * Invariants:
 * - The fields are read only by a thread that holds a claim it has not reported, and written only by the caller while
 *   nobody does. So they are plain variables, and a thread can never run a task of one region with the context of
 *   another: a stale r in its hand either fails the exchange or is a valid claim in the current region.
 *   No generation is needed.
 * - Between regions `remaining` is 0: claims are impossible and idle threads wait for it to change.
 * - The caller can finish any region alone. A thread that sleeps, wakes late or is not scheduled costs speed only; the
 *   caller waits for claimed tasks, never for threads.
 *
 * Sleeping. A waiter announces itself (`sleepers`, `caller_sleeps`), then looks at the word once more, then sleeps on
 * it; a waker changes the word, then looks at the announcement. These four accesses are sequentially consistent, so at
 * least one side sees the other, and the futex call compares the word again in the kernel.
 *
 * Shutdown stores STOP into `remaining`, which no count can equal.
 */
#define _GNU_SOURCE 1
#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"

#define STOP UINT32_MAX

/* SPIN_NS outlasts the gap between two regions of a step and is short beside a time slice. The clock costs more than a
 * pause, so it is read once in PAUSES. */
enum { CACHE_LINE = 64, SPIN_NS = 20000, PAUSES = 16 };

typedef _Atomic uint32_t atomic_word;

typedef struct worker {
    nw_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct nw_pool {
    /* One line: whoever claims owns it and reads the fields next. */
    _Alignas(CACHE_LINE) atomic_word remaining;
    uint32_t count;
    nw_pool_task task;
    void *context;

    _Alignas(CACHE_LINE) atomic_word unfinished;
    atomic_word caller_sleeps;

    _Alignas(CACHE_LINE) atomic_word sleepers;
    atomic_bool busy;
    int threads;
    worker workers[]; /* [0] is the caller and has no thread */
};

/* Returns when *word is no longer `value`, and perhaps earlier: the caller looks again. */
static void futex_wait(atomic_word *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(atomic_word *word, int waiters)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters, NULL, NULL, 0);
}

/* Waits actively until *word is zero (or, if not `zero`, is not); false when SPIN_NS have passed in vain. */
static bool spin_until(atomic_word *word, bool zero)
{
    int64_t start = nw_now_ns();
    do {
        for (int i = 0; i < PAUSES; i++) {
            if ((atomic_load_explicit(word, memory_order_acquire) == 0) == zero) return true;
            nw_pause();
        }
    } while (nw_now_ns() - start < SPIN_NS);
    return false;
}

/* Runs tasks until none is left to claim; returns how many, for the caller to report. */
static uint32_t work(nw_pool *pool, int index)
{
    uint32_t finished = 0;
    uint32_t remaining = atomic_load_explicit(&pool->remaining, memory_order_relaxed);
    while (remaining != 0 && remaining != STOP) {
        /* Acquire pairs with the release of the region's start, through whatever claims came between. */
        if (!atomic_compare_exchange_weak_explicit(&pool->remaining, &remaining, remaining - 1, memory_order_acquire,
                                                   memory_order_relaxed)) {
            continue;
        }
        pool->task(pool->context, (int)(pool->count - remaining), index);
        finished++;
        remaining = atomic_load_explicit(&pool->remaining, memory_order_relaxed);
    }
    return finished;
}

/* Waits for a region, spinning first; false at shutdown. */
static bool await_region(nw_pool *pool)
{
    if (!spin_until(&pool->remaining, false)) {
        atomic_fetch_add(&pool->sleepers, 1);
        while (atomic_load(&pool->remaining) == 0) futex_wait(&pool->remaining, 0);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
    return atomic_load_explicit(&pool->remaining, memory_order_relaxed) != STOP;
}

/* Waits for the tasks that others have claimed. */
static void await_others(nw_pool *pool)
{
    if (spin_until(&pool->unfinished, true)) return;
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&pool->unfinished)) != 0;) futex_wait(&pool->unfinished, left);
    atomic_store(&pool->caller_sleeps, 0);
}

static void *worker_main(void *argument)
{
    const worker *self = argument;
    nw_pool *pool = self->pool;
    while (await_region(pool)) {
        uint32_t finished = work(pool, self->index);
        if (finished == 0) continue;
        /* Who reports last may wake the caller. If it has gone on meanwhile, it takes the call for a spurious one. */
        bool last = atomic_fetch_sub(&pool->unfinished, finished) == finished;
        if (last && atomic_load(&pool->caller_sleeps) != 0) futex_wake(&pool->unfinished, 1);
    }
    return NULL;
}

/* Ends and joins the workers [1, end) and frees the pool. */
static void shut_down(nw_pool *pool, int end)
{
    atomic_store(&pool->remaining, STOP);
    futex_wake(&pool->remaining, INT32_MAX);
    for (int i = 1; i < end; i++) pthread_join(pool->workers[i].thread, NULL);
    free(pool);
}

nw_status nw_pool_create(nw_pool **pool, int threads)
{
    *pool = NULL;
    NW_FAIL_IF(threads < 1, NW_E_ARGUMENT, "%d threads cannot work: use at least 1", threads);
    NW_FAIL_IF(threads > NW_POOL_MOST, NW_E_ARGUMENT, "%d threads are too many: use at most %d", threads, NW_POOL_MOST);

    void *memory;
    size_t bytes = sizeof(nw_pool) + (size_t)threads * sizeof(worker);
    NW_FAIL_IF(posix_memalign(&memory, _Alignof(nw_pool), bytes) != 0, NW_E_MEMORY,
               "no memory for a pool of %d threads: use fewer threads or a smaller batch size", threads);
    memset(memory, 0, bytes);
    nw_pool *made = memory;
    made->threads = threads;

    int error = 0, end = 1;
    for (; end < threads; end++) {
        worker *self = &made->workers[end];
        self->pool = made;
        self->index = end;
        error = nw_thread_start(&self->thread, "nowait", end, worker_main, self);
        if (error != 0) break;
    }

    if (error != 0) {
        shut_down(made, end);
        return NW_FAIL(NW_E_SYSTEM,
                       "the system started only %d of %d threads (%s): use fewer threads, or raise the "
                       "limit on processes (ulimit -u)",
                       end, threads, strerror(error));
    }
    *pool = made;
    return NW_OK;
}

void nw_pool_free(nw_pool *pool)
{
    if (pool != NULL) shut_down(pool, pool->threads);
}

int nw_pool_threads(const nw_pool *pool) { return pool->threads; }

__attribute__((cold, noreturn)) static void die_busy(void)
{
    fprintf(stderr, "nowait: bug: nw_pool_run called while another call on the same pool is running\n");
    abort();
}

void nw_pool_run(nw_pool *pool, int count, nw_pool_task task, void *context)
{
    if (atomic_exchange_explicit(&pool->busy, true, memory_order_acquire)) die_busy();
    if (pool->threads == 1 || count <= 1) {
        for (int i = 0; i < count; i++) task(context, i, 0);
    } else {
        pool->task = task;
        pool->context = context;
        pool->count = (uint32_t)count;
        atomic_store_explicit(&pool->unfinished, (uint32_t)count, memory_order_relaxed);
        atomic_store(&pool->remaining, (uint32_t)count);
        if (atomic_load(&pool->sleepers) != 0) futex_wake(&pool->remaining, count - 1);

        uint32_t finished = work(pool, 0);
        if (atomic_fetch_sub(&pool->unfinished, finished) != finished) await_others(pool);
    }
    atomic_store_explicit(&pool->busy, false, memory_order_release);
}
