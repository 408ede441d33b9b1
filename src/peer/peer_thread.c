/*
 * peer_thread.c - the library's thread, which moves messages, and how it and the program's thread wait for each other.
 *
 * The thread calls nw_driver_turn again and again. After a turn in which nothing moved it pauses: while the program
 * computes, it sleeps for up to a millisecond, so that it needs less than a hundredth of a CPU (bench/wrapper.py), and the
 * program's next call wakes it; while the program waits, it yields and then sleeps briefly, as idle ranks do (mpi.h).
 */
#include "peer/peer.h"

#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static const long SECOND_NS = 1000000000;

/* ---- turns -------------------------------------------------------------------------------------------------------- */

/* The run has failed. */
static void note_failure(nw_peer *p, nw_status status)
{
    pthread_mutex_lock(&p->lock);
    if (p->failure == NW_OK) snprintf(p->message, sizeof p->message, "%s", nw_error_message());
    if (p->failure == NW_OK) p->failure = status;
    p->running = p->computing = false;
    pthread_cond_broadcast(&p->ready);
    pthread_mutex_unlock(&p->lock);
}

bool nw_peer_take_turn(nw_peer *p)
{
    nw_turn turn = NW_TURN_IDLE;
    pthread_mutex_lock(&p->lock);
    bool posted = p->posted, ends = p->ends;
    p->posted = false;
    pthread_mutex_unlock(&p->lock);
    if (posted) {
        p->empty = ends;
        nw_driver_finish(&p->rank, ends);
    }
    nw_status status = nw_driver_turn(p->driver, &turn);
    if (status != NW_OK) {
        note_failure(p, status);
        return true;
    }
    if (turn != NW_TURN_OVER) return turn == NW_TURN_MOVED;
    pthread_mutex_lock(&p->lock);
    p->running = false;
    pthread_cond_broadcast(&p->ready);
    pthread_mutex_unlock(&p->lock);
    return true;
}

/* ---- the library's thread ----------------------------------------------------------------------------------------- */

static void sleep_until_woken(nw_peer *p, long ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ns;
    if (t.tv_nsec >= SECOND_NS) t.tv_sec++, t.tv_nsec -= SECOND_NS;
    pthread_cond_timedwait(&p->wake, &p->lock, &t);
}

/* After so many turns in which nothing moved; with the lock. */
static void rest(nw_peer *p, int turns)
{
    const int yields = 200;
    if (p->posted || p->job) return;
    if (p->size == 1 && p->computing) { /* nobody else can bring anything */
        pthread_cond_wait(&p->wake, &p->lock);
    } else if (p->computing) {
        sleep_until_woken(p, turns < 10 ? 50000 : turns < 100 ? 200000 : 1000000);
    } else if (turns < yields) {
        pthread_mutex_unlock(&p->lock);
        sched_yield();
        pthread_mutex_lock(&p->lock);
    } else {
        sleep_until_woken(p, turns < 1000 ? 20000 : 500000);
    }
}

/* Does the job that the program waits for; with the lock, but not while it does it. */
static void do_job(nw_peer *p)
{
    pthread_mutex_unlock(&p->lock);
    nw_status status = p->job(p, p->argument);
    pthread_mutex_lock(&p->lock);
    if (status != NW_OK) snprintf(p->message, sizeof p->message, "%s", nw_error_message());
    p->result = status;
    p->job = NULL;
    pthread_cond_broadcast(&p->ready);
}

static void *own(void *argument)
{
    nw_peer *p = argument;
    int idle = 0;
    pthread_mutex_lock(&p->lock);
    while (!p->leaves) {
        if (p->job) {
            do_job(p);
        } else if (p->running) {
            pthread_mutex_unlock(&p->lock);
            idle = nw_peer_take_turn(p) ? 0 : idle + 1;
            pthread_mutex_lock(&p->lock);
            if (idle > 0) rest(p, idle);
        } else {
            pthread_cond_wait(&p->wake, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

nw_status nw_peer_thread_start(nw_peer *p)
{
    pthread_condattr_t steady;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &steady);
    pthread_cond_init(&p->ready, &steady);
    pthread_condattr_destroy(&steady);
    if (!p->threaded) return NW_OK;
    int error = nw_thread_start(&p->thread, "nowait-peer", 0, own, p);
    NW_FAIL_IF(error, NW_E_SYSTEM, "a thread that moves messages cannot be started: %s", strerror(error));
    p->started = true;
    return NW_OK;
}

void nw_peer_thread_end(nw_peer *p)
{
    if (p->started) {
        pthread_mutex_lock(&p->lock);
        p->leaves = true;
        pthread_cond_signal(&p->wake);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->ready);
    pthread_mutex_destroy(&p->lock);
}

/* ---- the program's side ------------------------------------------------------------------------------------------- */

nw_status nw_peer_call(nw_peer *p, nw_peer_job job, void *argument)
{
    if (!p->started) return job(p, argument);
    pthread_mutex_lock(&p->lock);
    p->job = job;
    p->argument = argument;
    pthread_cond_signal(&p->wake);
    while (p->job) pthread_cond_wait(&p->ready, &p->lock);
    nw_status status = p->result;
    pthread_mutex_unlock(&p->lock);
    return status == NW_OK ? NW_OK : NW_FAIL(status, "%s", p->message);
}

static bool has_to_wait(const nw_peer *p) { return p->running && !p->computing; }

/* Without a thread of the library. */
static void take_turns(nw_peer *p)
{
    const int yields = 200;
    for (int idle = 0; has_to_wait(p); idle++) {
        if (nw_peer_take_turn(p)) idle = 0;
        if (idle > yields)
            nanosleep(&(struct timespec){.tv_nsec = idle < 1000 ? 20000 : 500000}, NULL);
        else if (idle > 0)
            sched_yield();
    }
}

nw_status nw_peer_check(nw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    nw_status failure = p->failure;
    pthread_mutex_unlock(&p->lock);
    return failure == NW_OK ? NW_OK : NW_FAIL(failure, "%s", p->message);
}

nw_status nw_peer_wait(nw_peer *p)
{
    if (!p->started) {
        take_turns(p);
        return nw_peer_check(p);
    }
    pthread_mutex_lock(&p->lock);
    while (has_to_wait(p)) pthread_cond_wait(&p->ready, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return nw_peer_check(p);
}

nw_status nw_peer_post(nw_peer *p, bool ends)
{
    pthread_mutex_lock(&p->lock);
    p->ends |= ends;
    p->posted = p->computing;
    p->computing = false;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    return nw_peer_wait(p);
}
