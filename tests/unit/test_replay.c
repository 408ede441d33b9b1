/*
 * test_replay.c - the driver that repeats a recorded run, with an exchange that makes it hard: nobody waits for anybody,
 * and the order of messages and the time that is told enter the arithmetic, so that any difference shows in the bits.
 *
 * The toy: each rank has a number x. A computation makes a gradient g = sin(x + step) and tells READY halfway; an update
 * does x -= 0.1 g. After each computation x goes to two others; who hears y does x += (y - x) (0.3 + t) with t made from
 * now_ns. Timers shrink x. FLUSH tells the neighbour. The recording comes from a virtual cluster with noise.
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

#include "net/replay.h"
#include "net/virtual.h"
#include "support/files.h"

enum { WORLD = 5, US = 1000 };
#define TEST(name) static void name(void **state __attribute__((unused)))

typedef struct toy {
    nw_exchange base;
    double x, gradient;
    int64_t until, heard;
    int world_line; /* differs in a program that is not the one that was recorded */
    bool silent;    /* the same: sends nothing */
} toy;

static char folder[PATH_SIZE];
static toy toys[WORLD];
static nw_party parties[WORLD];

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void refused(nw_status status, nw_status want, const char *part)
{
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("status %d and '%s', wanted %d and '%s'", status, nw_error_message(), want, part);
}

/* ---- the toy ---- */

static nw_status send_x(toy *t, nw_actions *actions, int to)
{
    nw_message *m;
    if (t->silent) return NW_OK;
    NW_TRY(nw_message_take(actions->pool, sizeof t->x, &m));
    m->header->kind = NW_KIND_FIRST;
    m->header->step = (uint64_t)t->heard;
    memcpy(m->payload, &t->x, sizeof t->x);
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = to, .message = nw_message_hold(m)});
    int other = (to + 1) % t->base.world; /* the same message to a second one */
    if (other != t->base.rank)
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = other, .message = nw_message_hold(m)});
    nw_message_drop(m);
    actions->touched += 4000;
    return NW_OK;
}

static nw_status handle(nw_exchange *e, const nw_event *event, nw_actions *actions)
{
    toy *t = (toy *)e;
    double y, time = 1e-6 * (double)(event->now_ns % 100003);
    int next = (e->rank + 1) % e->world;
    switch (event->kind) {
    case NW_EVENT_BEGIN:
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COMPUTE});
        return NW_OK;
    case NW_EVENT_READY:
        t->x += 1e-3 * (double)event->first * time;
        return e->rank % 2 ? send_x(t, actions, next) : NW_OK;
    case NW_EVENT_COMPUTED:
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = event->now_ns + 130 * US});
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_APPLY, .gradient = NULL, .scale = 1});
        return send_x(t, actions, (int)((e->rank + 1 + t->heard % (e->world - 1)) % e->world));
    case NW_EVENT_APPLIED:
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COMPUTE});
        return NW_OK;
    case NW_EVENT_MESSAGE:
        memcpy(&y, event->message->payload, sizeof y);
        t->x += (y - t->x) * (0.3 + time);
        t->heard++;
        actions->touched += 20000;
        return NW_OK;
    case NW_EVENT_TIMER:
        t->x *= 0.99 + 0.001 * time;
        return NW_OK;
    case NW_EVENT_FLUSH:
        t->x += time;
        return send_x(t, actions, next);
    case NW_EVENT_GO:
        return NW_OK;
    }
    return NW_OK;
}

static bool idle(const nw_exchange *e)
{
    (void)e;
    return true;
}

static void waits(const nw_exchange *e, nw_wait *wait)
{
    (void)e;
    *wait = (nw_wait){.what = "nothing"};
}

static bool wants(void *worker)
{
    const toy *t = worker;
    return parties[t - toys].step < t->until;
}

static nw_status compute(void *worker, nw_between *between, bool *complete)
{
    toy *t = worker;
    (void)between;
    *complete = true;
    t->gradient = sin(t->x + (double)parties[t - toys].step + t->world_line);
    return NW_OK;
}

static nw_status apply(void *worker, const nw_action *action)
{
    toy *t = worker;
    t->x -= 0.1 * (double)action->scale * t->gradient;
    return NW_OK;
}

static void make_toys(int world)
{
    static const nw_exchange_ops ops = {.name = "toy", .handle = handle, .idle = idle, .waits = waits};
    static const nw_worker_ops work = {wants, compute, apply, NULL};
    for (int i = 0; i < world; i++) {
        toys[i] = (toy){.base = {.ops = &ops, .rank = i, .world = world}, .x = i + 0.5};
        parties[i] = (nw_party){.exchange = &toys[i].base, .worker = &toys[i], .work = &work};
    }
}

/* Trains to 7, to 20, and flushes. */
static nw_status drive(nw_driver *d, int world)
{
    static const int64_t until[] = {7, 20};
    for (int i = 0; i < 2; i++) {
        for (int rank = 0; rank < world; rank++) toys[rank].until = until[i];
        NW_TRY(nw_driver_run(d, parties, false));
    }
    return nw_driver_run(d, parties, true);
}

/* ---- recording and replaying ---- */

static nw_recorder *open_recorder(int world)
{
    nw_recorder *r;
    nw_schedule_header h = {.world = world, .ranks = world, .lr_factor = 1};
    ok(nw_recorder_create(&r));
    ok(nw_recorder_open(r, folder, &h, NULL));
    return r;
}

static void record_virtual(uint64_t seed)
{
    nw_cluster *c;
    nw_driver *d;
    int64_t pass[] = {200 * US, 300 * US};
    size_t ready[] = {0, 40};
    nw_compute_cost cost = {
        .stages = 2, .forward_ns = pass, .backward_ns = pass, .update_ns = 20 * US, .touch_bytes_per_second = 1e9};
    ok(nw_cluster_create(&c, WORLD, WORLD, 0, 1));
    c->seed = seed;
    c->links[0] = (nw_cluster_link){
        .latency_ns = 200 * US, .bandwidth = 1e8, .jitter = {NW_NOISE_EXPONENTIAL, 2.0}, .overhead_ns = 3 * US};
    for (int i = 0; i < WORLD; i++) c->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.5};
    nw_recorder *r = open_recorder(WORLD);
    nw_driver_options options = {.recorder = r};
    nw_virtual_options v = {.cluster = c, .cost = &cost, .ready = ready, .passes = 1};
    ok(nw_virtual_create(&d, &options, &v));
    make_toys(WORLD);
    ok(drive(d, WORLD));
    ok(nw_recorder_close(r, true));
    nw_driver_free(d);
    nw_recorder_free(r);
    nw_cluster_free(c);
}

static nw_status replay(int world)
{
    nw_recording recording;
    nw_driver *d;
    NW_TRY(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    nw_status status = drive(d, world);
    if (status == NW_OK) assert_true(nw_driver_stopped(d));
    if (status == NW_OK) refused(nw_driver_run(d, parties, false), NW_E_INTERRUPTED, "the schedule ends at step 20");
    nw_driver_free(d);
    nw_recording_free(&recording);
    return status;
}

TEST(order_and_time_come_back_bit_for_bit)
{
    double recorded[2][WORLD];
    for (uint64_t seed = 0; seed < 2; seed++) {
        record_virtual(seed);
        for (int i = 0; i < WORLD; i++) recorded[seed][i] = toys[i].x;
        assert_true(toys[0].heard > 30);
        make_toys(WORLD);
        ok(replay(WORLD));
        for (int i = 0; i < WORLD; i++) assert_memory_equal(&toys[i].x, &recorded[seed][i], sizeof toys[i].x);
    }
    assert_true(recorded[0][0] != recorded[1][0]); /* other noise, other numbers: order and time matter */
}

TEST(another_program_is_noticed)
{
    record_virtual(3);
    make_toys(WORLD);
    toys[2].silent = true;
    refused(replay(WORLD), NW_E_NUMERIC, "from rank 2 at ");
    refused(replay(WORLD), NW_E_NUMERIC, "diverged from its schedule");
    make_toys(WORLD);
    toys[1].until = -1;
    parties[1].step = 30; /* it has computed all already */
    refused(replay(WORLD), NW_E_NUMERIC, "rank 1 diverged from its schedule");
    double x;
    record_virtual(3);
    x = toys[0].x;
    make_toys(WORLD);
    toys[0].world_line = 1; /* the same decisions, other numbers: for those who compare weights */
    ok(replay(WORLD));
    assert_true(toys[0].x != x);
}

/* ---- by hand ---- */

static void event(nw_recorder *r, int rank, nw_event_kind kind, nw_message *m, uint32_t from, uint32_t sequence)
{
    m->header->from = from;
    m->header->sequence = sequence;
    nw_recorder_event(r, rank, &(nw_event){.kind = kind, .now_ns = 100 * rank, .message = m});
}

/* Two ranks that compute nothing. Rank 0 hears in its first run what rank 1 says in its flush, which over MPI it may. */
static void record_hurry(uint32_t from, uint32_t sequence)
{
    nw_message_pool *pool;
    nw_message *m;
    ok(nw_message_pool_create(&pool));
    ok(nw_message_take(pool, 8, &m));
    nw_recorder *r = open_recorder(2);
    for (int rank = 0; rank < 2; rank++) {
        nw_recorder_run(r, rank, false, 0, 0);
        event(r, rank, NW_EVENT_BEGIN, m, 0, 0);
        if (rank == 0) event(r, rank, NW_EVENT_MESSAGE, m, from, sequence);
        nw_recorder_rest(r, rank, 0);
        nw_recorder_run(r, rank, true, 0, 0);
        event(r, rank, NW_EVENT_FLUSH, m, 0, 0);
        if (rank == 1) event(r, rank, NW_EVENT_MESSAGE, m, 0, 1);
        nw_recorder_rest(r, rank, 0);
    }
    ok(nw_recorder_close(r, true));
    nw_recorder_free(r);
    nw_message_drop(m);
    nw_message_pool_free(pool);
}

static nw_status replay_hurry(void)
{
    nw_recording recording;
    nw_driver *d;
    make_toys(2);
    NW_TRY(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    nw_status status = nw_driver_run(d, parties, false);
    if (status == NW_OK) status = nw_driver_run(d, parties, true);
    nw_driver_free(d);
    nw_recording_free(&recording);
    return status;
}

TEST(a_rank_may_flush_before_others_rest)
{
    record_hurry(1, 1);
    ok(replay_hurry());
    assert_int_equal(toys[0].heard, 1);
    assert_int_equal(toys[1].heard, 1);
}

TEST(a_message_that_nobody_sends_is_named)
{
    record_hurry(1, 2);
    refused(replay_hurry(), NW_E_NUMERIC, "record 3: message 2 from rank 1 at 0 ns is next, but rank 1 never sends it");
    record_hurry(0, 1);
    refused(replay_hurry(), NW_E_NUMERIC, "message 1 from rank 0 at 0 ns is next, but rank 0 never sends it");
}

TEST(other_runs_than_recorded_are_refused)
{
    nw_recording recording;
    nw_driver *d;
    record_hurry(1, 1);
    make_toys(2);
    ok(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    refused(nw_driver_run(d, parties, true), NW_E_NUMERIC,
            "record 1: run at step 0, 0 messages made is next, but it applies what it holds back");
    nw_driver_free(d);
    parties[0].step = 4;
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    refused(nw_driver_run(d, parties, false), NW_E_NUMERIC, "but it is at step 4 and has made 0 messages");
    nw_driver_free(d);
    make_toys(2);
    toys[0].until = toys[1].until = 3;
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    refused(nw_driver_run(d, parties, false), NW_E_NUMERIC, "rest at step 0 is next, but it has more to compute");
    nw_driver_free(d);
    nw_recording_free(&recording);
}

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

int main(void)
{
#define ONE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ONE(order_and_time_come_back_bit_for_bit), ONE(another_program_is_noticed),
        ONE(a_rank_may_flush_before_others_rest),  ONE(a_message_that_nobody_sends_is_named),
        ONE(other_runs_than_recorded_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
