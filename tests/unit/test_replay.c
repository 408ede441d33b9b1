/*
 * test_replay.c - the driver that repeats a recorded run, with machines that make it hard: nobody waits for anybody,
 * and the order of messages and the time that is told enter the arithmetic, so that any difference shows in the bits.
 *
 * The toy: each rank has a number x. A pass makes a gradient g = sin(x + step), and tells FINAL and sends something
 * out halfway; an update does x -= 0.1 g. After each pass x goes to two others; who hears y does x += (y - x) (0.3 +
 * t) with t made from now_ns. Timers shrink x, and so does what was sent out. A run that drains tells the neighbour,
 * and so does STOP. The recording comes from a virtual cluster with noise.
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

#include "replay/replay.h"
#include "sim/virtual.h"
#include "support/files.h"

enum { WORLD = 5, US = 1000 };
#define TEST(name) static void name(void **state __attribute__((unused)))

typedef struct toy {
    nw_machine base;
    double x, gradient;
    int64_t until, begun, heard;
    nw_message_pool *pool; /* for what its passes send out */
    int world_line;        /* differs in a program that is not the one that was recorded */
    bool silent;           /* the same: sends nothing, ... */
    int64_t most;          /* ... or makes so many updates at most */
    int events[NW_EVENT_KINDS];
} toy;

static char folder[PATH_SIZE];
static toy toys[WORLD];
static nw_rank ranks[WORLD];

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
    const nw_group *g = &t->base.group;
    nw_message *m;
    if (t->silent) return NW_OK;
    NW_TRY(nw_message_take(actions->pool, sizeof t->x, &m));
    m->header->kind = 1;
    m->header->step = (uint64_t)t->heard;
    memcpy(m->payload, &t->x, sizeof t->x);
    nw_machine_send(&t->base, actions, NW_CHANNEL_EXCHANGE, to, nw_message_hold(m));
    int other = (to + 1) % g->count; /* the same message to a second one */
    if (other != g->me) nw_machine_send(&t->base, actions, NW_CHANNEL_EXCHANGE, other, nw_message_hold(m));
    nw_message_drop(m);
    actions->touched += 4000;
    return NW_OK;
}

static void go_on(toy *t, nw_actions *actions)
{
    if (t->base.updates < t->until && t->base.updates < t->most)
        nw_actions_task(actions, (nw_task){.kind = NW_TASK_PASS, .number = t->begun++, .completes = true});
}

static nw_status finish(toy *t, const nw_event *event, nw_actions *actions)
{
    int me = t->base.group.me, world = t->base.group.count;
    if (event->task->kind == NW_TASK_UPDATE) {
        t->base.updates++;
        go_on(t, actions);
        return NW_OK;
    }
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = event->now_ns + 130 * US});
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE, .scale = 1});
    return send_x(t, actions, (int)((me + 1 + t->heard % (world - 1)) % world));
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    toy *t = (toy *)m;
    double y, time = 1e-6 * (double)(event->now_ns % 100003);
    int next = (m->group.me + 1) % m->group.count;
    t->events[event->kind]++;
    switch (event->kind) {
    case NW_EVENT_GO:
        t->until = event->go->until;
        t->pool = actions->pool;
        go_on(t, actions);
        if (!event->go->drain) return NW_OK;
        t->x += time;
        return send_x(t, actions, next);
    case NW_EVENT_STOP:
        t->x += 2 * time;
        return send_x(t, actions, next);
    case NW_EVENT_FINAL:
        t->x += 1e-3 * (double)event->first * time;
        return m->group.me % 2 ? send_x(t, actions, next) : NW_OK;
    case NW_EVENT_OUT:
        memcpy(&y, event->message->payload, sizeof y);
        t->x = 0.9 * t->x + 0.01 * y * time;
        return NW_OK;
    case NW_EVENT_DONE:
        return finish(t, event, actions);
    case NW_EVENT_MESSAGE:
        memcpy(&y, event->message->payload, sizeof y);
        t->x += (y - t->x) * (0.3 + time);
        t->heard++;
        actions->touched += 20000;
        return NW_OK;
    default:
        t->x *= 0.99 + 0.001 * time;
        return NW_OK;
    }
}

static bool is_quiescent(const nw_machine *m)
{
    (void)m;
    return true;
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    (void)m;
    *wait = (nw_wait){.what = "nothing"};
}

/* Asks the recorded run to stop, in this pass of rank 2. */
enum { STOP_AT = 12 };
static volatile sig_atomic_t stop;

static nw_status do_task(void *worker, nw_task *task, nw_announce *announce)
{
    toy *t = worker;
    nw_message *m;
    if (task->kind == NW_TASK_UPDATE) {
        t->x -= 0.1 * (double)task->scale * t->gradient;
        return NW_OK;
    }
    t->gradient = sin(t->x + (double)task->number + t->world_line);
    if (t == &toys[2] && task->number == STOP_AT) stop = 1;
    NW_TRY(nw_message_take(t->pool, sizeof t->x, &m));
    memcpy(m->payload, &t->gradient, sizeof t->gradient);
    announce->out(announce, m);
    announce->final(announce, 40);
    return NW_OK;
}

static int find_cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker, (void)most;
    int count = 0;
    if (task->kind == NW_TASK_PASS) {
        ns[count++] = 500 * US;
        ns[count++] = 800 * US;
    }
    ns[count++] = task->kind == NW_TASK_PASS ? 1000 * US : 20 * US;
    return count;
}

static void make_toys(int world)
{
    static const uint16_t everybody[WORLD] = {0, 1, 2, 3, 4};
    static const nw_machine_ops ops = {.name = "toy", .handle = handle, .quiescent = is_quiescent, .waits = waits};
    static const nw_worker_ops work = {.run = do_task, .cost = find_cost};
    for (int i = 0; i < world; i++) {
        toys[i] =
            (toy){.base = {.ops = &ops, .group = {everybody, world, i}, .lockstep = true}, .x = i + 0.5, .most = 99};
        ranks[i] = (nw_rank){.index = i, .machine = &toys[i].base, .worker = &toys[i], .work = &work};
    }
    stop = 0;
}

static nw_status run_to(nw_driver *d, int64_t until, bool drain)
{
    return nw_driver_run(d, ranks, &(nw_go){.until = until, .batches = INT64_MAX, .drain = drain});
}

/* Trains to 7, to 20, and drains. */
static nw_status drive(nw_driver *d)
{
    NW_TRY(run_to(d, 7, false));
    NW_TRY(run_to(d, 20, false));
    return run_to(d, 20, true);
}

/* ---- recording and replaying ---- */

static nw_recorder *open_recorder(int world)
{
    nw_recorder *r;
    nw_log_header h = {.world = world, .ranks = world, .lr_factor = 1};
    ok(nw_recorder_create(&r));
    ok(nw_recorder_open(r, folder, &h, NULL));
    return r;
}

static void record_virtual(uint64_t seed)
{
    nw_cluster *c;
    nw_driver *d;
    ok(nw_cluster_create(&c, WORLD, WORLD, 0, 1));
    c->seed = seed;
    c->links[0] = (nw_cluster_link){
        .latency_ns = 200 * US, .bandwidth = 1e8, .jitter = {NW_NOISE_EXPONENTIAL, 2.0}, .overhead_ns = 3 * US};
    for (int i = 0; i < WORLD; i++) c->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.5};
    nw_recorder *r = open_recorder(WORLD);
    nw_driver_options options = {.recorder = r, .stop = &stop};
    nw_virtual_options v = {.cluster = c, .touch_bytes_per_second = 1e9};
    ok(nw_virtual_create(&d, &options, &v));
    make_toys(WORLD);
    ok(drive(d));
    ok(nw_recorder_close(r, true));
    nw_driver_free(d);
    nw_recorder_free(r);
    nw_cluster_free(c);
}

static nw_status replay(void)
{
    nw_recording recording;
    nw_driver *d;
    NW_TRY(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    nw_status status = drive(d);
    if (status == NW_OK) assert_true(d->over);
    if (status == NW_OK) refused(run_to(d, 30, false), NW_E_INTERRUPTED, "the event log ends at step 20");
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
        for (int kind = 0; kind < NW_EVENT_KINDS; kind++) assert_true(toys[0].events[kind] > 0);
        make_toys(WORLD);
        ok(replay());
        for (int i = 0; i < WORLD; i++) assert_memory_equal(&toys[i].x, &recorded[seed][i], sizeof toys[i].x);
    }
    assert_true(recorded[0][0] != recorded[1][0]); /* other noise, other numbers: order and time matter */
}

TEST(another_program_is_noticed)
{
    record_virtual(3);
    make_toys(WORLD);
    toys[2].silent = true;
    refused(replay(), NW_E_MISMATCH, "from rank 2 at ");
    refused(replay(), NW_E_MISMATCH, "diverged from its event log");
    make_toys(WORLD);
    toys[1].most = 15; /* updates fewer than it made */
    refused(replay(), NW_E_MISMATCH, "rank 1 diverged from its event log");
    assert_non_null(strstr(nw_error_message(), "pass is next, but it has nothing to do"));
    double x;
    record_virtual(3);
    x = toys[0].x;
    make_toys(WORLD);
    toys[0].world_line = 1; /* the same decisions, other numbers: for those who compare weights */
    ok(replay());
    assert_true(toys[0].x != x);
}

/* ---- by hand ---- */

static void event(nw_recorder *r, int rank, nw_event_kind kind, nw_message *m, uint16_t from, uint64_t sequence)
{
    nw_go go = {.until = 0};
    m->header->from = from;
    m->header->sequence = sequence;
    nw_recorder_event(r, rank, &(nw_event){.kind = kind, .now_ns = 100 * rank, .message = m, .go = &go});
}

/* Two ranks that compute nothing and drain twice. In run `early`, rank 0 hears message `sequence` of rank `from`. */
static void record_by_hand(int early, uint16_t from, uint64_t sequence)
{
    nw_message_pool *pool;
    nw_message *m;
    ok(nw_message_pool_create(&pool));
    ok(nw_message_take(pool, 8, &m));
    nw_recorder *r = open_recorder(2);
    for (int rank = 0; rank < 2; rank++)
        for (int run = 0; run < 2; run++) {
            nw_recorder_run(r, rank, 0, (uint64_t)run);
            event(r, rank, NW_EVENT_GO, m, 0, 0);
            if (rank == 0 && run == early) event(r, rank, NW_EVENT_MESSAGE, m, from, sequence);
            if (rank == 1) event(r, rank, NW_EVENT_MESSAGE, m, 0, (uint64_t)run + 1);
            nw_recorder_quiescent(r, rank, 0);
        }
    ok(nw_recorder_close(r, true));
    nw_recorder_free(r);
    nw_message_drop(m);
    nw_message_pool_free(pool);
}

static nw_status replay_by_hand(void)
{
    nw_recording recording;
    nw_driver *d;
    make_toys(2);
    NW_TRY(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    nw_status status = run_to(d, 0, true);
    if (status == NW_OK) status = run_to(d, 0, true);
    nw_driver_free(d);
    nw_recording_free(&recording);
    return status;
}

/* A message may be heard in a later run than the one in which it was sent. */
TEST(a_message_waits_for_whoever_hears_it_later)
{
    record_by_hand(1, 1, 1);
    ok(replay_by_hand());
    assert_int_equal(toys[0].heard, 1);
    assert_int_equal(toys[1].heard, 2);
}

TEST(a_message_that_nobody_sends_is_named)
{
    record_by_hand(0, 1, 3);
    refused(replay_by_hand(), NW_E_MISMATCH,
            "record 3: message 3 from rank 1 at 0 ns is next, but rank 1 never sends it");
    record_by_hand(0, 0, 1);
    refused(replay_by_hand(), NW_E_MISMATCH, "message 1 from rank 0 at 0 ns is next, but rank 0 never sends it");
    record_by_hand(0, 1, 2); /* which is sent in the next run: nobody begins one before all are quiescent */
    refused(replay_by_hand(), NW_E_MISMATCH, "message 2 from rank 1 at 0 ns is next, but rank 1 never sends it");
}

/* A run that is not as recorded: until where it goes, from where, and with what left to do. */
static void run_otherwise(int64_t until, const char *words)
{
    nw_recording recording;
    nw_driver *d;
    ok(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    refused(run_to(d, until, true), NW_E_MISMATCH, words);
    nw_driver_free(d);
    nw_recording_free(&recording);
}

TEST(other_runs_than_recorded_are_refused)
{
    record_by_hand(1, 1, 1);
    make_toys(2);
    run_otherwise(3, "record 2: go until 0 at 0 ns is next, but this run goes until 3");
    make_toys(2);
    toys[0].base.updates = 4;
    run_otherwise(0, "record 1: run at step 0, 0 messages made is next, but it is at step 4 and has made 0 messages");
    make_toys(2);
    ranks[0].sequence = 7;
    run_otherwise(0, "but it is at step 0 and has made 7 messages");
    make_toys(2);
    ranks[0].queue[0] = (nw_task){.kind = NW_TASK_PASS};
    ranks[0].queued = 1;
    run_otherwise(0, "quiescent at step 0 is next, but it has something to do");
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
        ONE(order_and_time_come_back_bit_for_bit),       ONE(another_program_is_noticed),
        ONE(a_message_waits_for_whoever_hears_it_later), ONE(a_message_that_nobody_sends_is_named),
        ONE(other_runs_than_recorded_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
