/*
 * test_server.c - the parameter server against serial training and its own promises, in thousands of random orders of events.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/server_world.h"

/* ---- equal to serial ---- */

static void test_one_worker_is_serial(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int sync = 0; sync < 2; sync++) {
            world w;
            float expected[FLOATS];
            nw_exchange_options o = sync ? SYNC : ASYNC;
            o.in_flight = 1;
            o.servers = ranks > 1 ? ranks - 1 : 1; /* one worker, and all others serve */
            make_world(&w, ranks, o, "none", (uint64_t)ranks);
            w.every = 4;
            ok(run(&w, 20));
            check_rest(&w, 20);
            serial(&w, 20, ranks - 1, expected);
            assert_memory_equal(w.nodes[0].values, expected, w.floats * sizeof(float));
            assert_int_equal(w.delay_max, 0);
            ok(run(&w, 33)); /* and goes on */
            check_rest(&w, 33);
            serial(&w, 33, ranks - 1, expected);
            assert_memory_equal(w.nodes[0].values, expected, w.floats * sizeof(float));
            for (int c = 1; o.servers > 1 && c <= 8; c++) { /* and so were the copies on the way */
                serial(&w, 4 * c, ranks - 1, expected);
                assert_memory_equal(w.kept[c], expected, w.floats * sizeof(float));
            }
            free_world(&w);
        }
}

/* In step: the mean of one gradient of each, added in the order of ranks. */
static void test_in_step(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        int ranks = 2 + (int)(seed % 5), servers = 1 + (int)(seed / 5 % 2);
        nw_exchange_options o = SYNC;
        o.servers = servers < ranks ? servers : 1;
        o.server_computes = seed / 10 % 2;
        int first = o.server_computes ? 0 : o.servers, workers = ranks - first;
        world w;
        make_world(&w, ranks, o, "none", seed);
        w.late[(ranks - 1) * ranks + 1] = seed % 2; /* to rank 1, which may be a server */
        ok(run(&w, 7));
        check_rest(&w, 7);
        float values[FLOATS], g[FLOATS], sum[FLOATS];
        for (size_t i = 0; i < w.floats; i++) values[i] = sinf((float)i);
        for (int t = 0; t < 7; t++) {
            for (int k = 0; k < workers; k++) {
                compute_gradient(&w, values, t, first + k, g);
                for (size_t i = 0; i < w.floats; i++) sum[i] = k > 0 ? sum[i] + g[i] : g[i];
            }
            for (size_t i = 0; i < w.floats; i++) values[i] -= 0.1f * (1.0f / (float)workers) * sum[i];
        }
        assert_memory_equal(w.nodes[0].values, values, w.floats * sizeof(float));
        free_world(&w);
    }
}

/* ---- promises of the asynchronous server ---- */

static void test_random_orders(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "bf16", "fp16"};
    for (uint64_t seed = 0; seed < 600; seed++) {
        int ranks = 1 + (int)(seed % 6);
        nw_exchange_options o = ASYNC;
        o.servers = ranks > 2 ? 1 + (int)(seed / 6 % 2) : 1;
        o.server_computes = seed / 12 % 2;
        o.in_flight = 1 + (int)(seed / 24 % 3);
        o.differences = seed / 72 % 2;
        if (seed % 7 == 1 && !o.differences) o.correction = NW_CORRECT_DC, o.dc_lambda = 0.5;
        if (seed % 7 == 2) o.correction = NW_CORRECT_INVERSE;
        if (o.servers == 1 && seed % 5 == 0) o.max_staleness = (int64_t)(seed / 5 % 4), o.staleness = NW_STALE_DROP;
        if (seed % 5 == 1) o.max_staleness = 1, o.staleness = NW_STALE_WEIGHT;
        if (ranks == 1) o.server_computes = true;
        world w;
        make_world(&w, ranks, o, codecs[seed % 3], seed);
        if (ranks > 2) w.slow[ranks - 1] = seed % 2;
        w.every = (int64_t)(seed % 4);
        ok(run(&w, 5));
        check_rest(&w, 5);
        ok(run(&w, 40));
        check_rest(&w, 40);
        ok(run(&w, 40)); /* nothing to do */
        check_rest(&w, 40);
        int64_t sum = 0;
        for (int r = 0; r < ranks; r++) sum += w.updates_of[r];
        assert_int_equal(sum, 40);
        bool drops = o.staleness == NW_STALE_DROP && o.max_staleness >= 0;
        if (drops) assert_true(w.delay_max <= o.max_staleness);
        for (int r = 0; !drops && r < ranks; r++)
            assert_int_equal(w.last_said[r], w.updates_of[r]); /* none is missing */
        free_world(&w);
    }
}

/* Threads that encode and decode change no bit. */
static void test_any_number_of_threads(void **state)
{
    (void)state;
    nw_pool *pool;
    ok(nw_pool_create(&pool, 3));
    for (uint64_t seed = 0; seed < 12; seed++) {
        world w[2];
        for (int threads = 0; threads < 2; threads++) {
            nw_exchange_options o = seed % 3 == 0 ? SYNC : ASYNC;
            o.servers = 1 + (int)(seed % 2);
            o.differences = seed / 2 % 2;
            o.pool = threads ? pool : NULL;
            make_world(&w[threads], 4, o, seed % 4 ? "fp16" : "none", seed);
            ok(run(&w[threads], 20));
            check_rest(&w[threads], 20);
        }
        assert_memory_equal(w[0].nodes[0].values, w[1].nodes[0].values, w[0].floats * sizeof(float));
        free_world(&w[0]);
        free_world(&w[1]);
    }
    nw_pool_free(pool);
}

/* No gradient misses more updates than allowed, nobody waits for ever, and bounds are reached. */
static void test_waiting_bounds_delays(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int ranks = 2 + (int)(seed % 6);
        nw_exchange_options o = ASYNC;
        o.in_flight = 1 + (int)(seed / 6 % 3);
        o.max_staleness = (int64_t)(seed / 18 % 5);
        o.staleness = NW_STALE_WAIT;
        world w;
        make_world(&w, ranks, o, "none", seed);
        w.slow[ranks - 1] = seed % 3 == 0;
        ok(run(&w, 60));
        check_rest(&w, 60);
        assert_true(w.delay_max <= o.max_staleness);
        int most = (ranks - 1) * o.in_flight - 1;
        if (most >= o.max_staleness + 2) assert_true(w.delay_max >= o.max_staleness - 1);
        free_world(&w);
    }
}

static void test_stops_when_asked(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int ranks = 1 + (int)(seed % 5);
        nw_exchange_options o = seed % 2 ? SYNC : ASYNC;
        o.server_computes = seed / 10 % 2;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        go(&w, 1000);
        for (int i = 0; i < 300 && move(&w, &status); i++) ok(status);
        go(&w, 0);
        while (move(&w, &status)) ok(status);
        assert_true(w.updates < 1000);
        check_rest(&w, w.updates);
        free_world(&w);
    }
}

/* Ranks hear of it at moments of their own: before the end, while it is on its way, and when they rest. */
static void test_stops_around_the_end(void **state)
{
    (void)state;
    int in_time = 0, late = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options o = seed % 3 ? ASYNC : SYNC;
        o.servers = 1 + (int)(seed / 2 % 2);
        o.server_computes = seed / 4 % 2;
        int ranks = o.servers + 1 + (int)(seed / 8 % 3), told = 0;
        uint64_t moment = 60 + seed % 80;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        ok(run(&w, 3));
        go(&w, 8);
        for (uint64_t i = 0; told < ranks; i++) {
            bool moves = move(&w, &status);
            ok(status);
            if (i < moment && moves) continue;
            ok(tell(&w, told++, (nw_event){.kind = NW_EVENT_GO, .until = 0}));
        }
        while (move(&w, &status)) ok(status);
        ok(status);
        in_time += w.updates < 8;
        late += w.updates == 8;
        check_rest(&w, w.updates);
        ok(run(&w, 12)); /* and it goes on from there */
        check_rest(&w, 12);
        free_world(&w);
    }
    assert_true(in_time > 60 && late > 60);
}

/* All ranges after N updates come to rank 0, in order, exactly, whoever is ahead, and nobody rests for it; at most two are
 * under way, even if what a server sends to rank 0 takes for ever. */
static void test_copies(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "bf16"};
    int64_t ahead = 0;
    int held = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options o = seed % 3 ? ASYNC : SYNC;
        o.servers = 2 + (int)(seed % 2);
        o.server_computes = seed / 2 % 2;
        o.in_flight = o.sync ? 1 : 1 + (int)(seed / 4 % 3);
        o.differences = seed / 12 % 2;
        int ranks = o.servers + 1 + (int)(seed / 5 % 3);
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, codecs[seed / 24 % 2], seed);
        w.every = 1 + (int64_t)(seed / 7 % 5);
        w.late[(int)(1 + seed % 2) * ranks] = seed / 3 % 2; /* to rank 0 */
        w.slow[ranks - 1] = seed / 9 % 2;
        ok(run(&w, 20));
        check_rest(&w, 20);
        go(&w, 1000);
        for (int i = 0; w.updates < 35 && move(&w, &status); i++) ok(status);
        go(&w, 0);
        while (move(&w, &status)) ok(status);
        assert_true(w.updates < 64);
        check_rest(&w, w.updates);
        ahead += w.ahead;
        held += w.most == 2;
        free_world(&w);
    }
    assert_true(ahead > 600); /* updates that were made while a copy was on its way */
    assert_true(held > 100);
}

/* Until a server has two copies under way, and then it says whom it waits for. */
static void waits_for(world *w, int server_rank, int whom)
{
    nw_status status = NW_OK;
    nw_wait wait;
    const nw_exchange *e = w->nodes[server_rank].exchange;
    while (w->given[server_rank] < 2 && move(w, &status)) ok(status);
    assert_int_equal(w->taken, 0);
    e->ops->waits(e, &wait);
    assert_int_equal(wait.count, 1);
    assert_int_equal(wait.ranks[0], whom);
    assert_non_null(strstr(wait.what, "copies of the parameters"));
}

static void test_waiting_for_copies(void **state)
{
    (void)state;
    world w;
    nw_status status = NW_OK;
    nw_exchange_options o = ASYNC;
    o.servers = 2;
    make_world(&w, 4, o, "none", 8);
    w.every = 1;
    w.late[1 * 4 + 0] = true;
    go(&w, 10);
    waits_for(&w, 1, 0);
    waits_for(&w, 0, 1);
    while (move(&w, &status)) ok(status);
    check_rest(&w, 10);
    free_world(&w);
}

/* g + lambda g g (w - w_old), for the gradient that comes second. */
static void test_delay_compensation(void **state)
{
    (void)state;
    nw_exchange_options o = ASYNC;
    o.in_flight = 1;
    o.correction = NW_CORRECT_DC;
    o.dc_lambda = 0.25;
    world w;
    make_world(&w, 3, o, "none", 5);
    ok(run(&w, 2));
    check_rest(&w, 2);
    float start_at[FLOATS], g[2][FLOATS], a[FLOATS], b[FLOATS];
    for (size_t i = 0; i < w.floats; i++) start_at[i] = sinf((float)i);
    compute_gradient(&w, start_at, 0, 1, g[0]);
    compute_gradient(&w, start_at, 0, 2, g[1]);
    for (size_t i = 0; i < w.floats; i++) { /* in either order */
        float x = start_at[i] - 0.1f * 1.0f * g[0][i], y = start_at[i] - 0.1f * 1.0f * g[1][i];
        a[i] = x - 0.1f * 1.0f * (g[1][i] + 0.25f * g[1][i] * g[1][i] * (x - start_at[i]));
        b[i] = y - 0.1f * 1.0f * (g[0][i] + 0.25f * g[0][i] * g[0][i] * (y - start_at[i]));
    }
    bool first = memcmp(w.nodes[0].values, a, w.floats * sizeof(float)) == 0;
    bool second = memcmp(w.nodes[0].values, b, w.floats * sizeof(float)) == 0;
    assert_true(first || second);
    free_world(&w);
}

/* ---- ranks that die ---- */

static void test_lost_workers(void **state)
{
    (void)state;
    int given_up = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int ranks = 3 + (int)(seed % 4), victim = 1 + (int)(seed / 4 % (uint64_t)(ranks - 1));
        nw_exchange_options o = seed % 2 ? SYNC : ASYNC;
        o.deadline_ns = 100000;
        if (seed % 10 == 4) o.max_staleness = 2;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        go(&w, 50);
        for (int i = 0; i < 40 + (int)(seed % 60) && move(&w, &status); i++) ok(status);
        w.nodes[victim].dead = true;
        while (move(&w, &status)) ok(status);
        check_rest(&w, 50);
        for (int r = 0; r < ranks; r++) assert_true(!w.lost[r] || r == victim);
        given_up += w.lost[victim]; /* or it had done all its work */
        free_world(&w);
    }
    assert_true(given_up > 150);
}

static void test_nobody_left(void **state)
{
    (void)state;
    world w;
    nw_exchange_options o = ASYNC;
    o.deadline_ns = 1000;
    make_world(&w, 2, o, "none", 1);
    w.nodes[1].dead = true;
    assert_int_equal(run(&w, 5), NW_E_PEER);
    assert_non_null(strstr(nw_error_message(), "rank 1"));
    free_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker_is_serial),  cmocka_unit_test(test_in_step),
        cmocka_unit_test(test_random_orders),         cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_waiting_bounds_delays), cmocka_unit_test(test_stops_when_asked),
        cmocka_unit_test(test_stops_around_the_end),  cmocka_unit_test(test_copies),
        cmocka_unit_test(test_waiting_for_copies),    cmocka_unit_test(test_delay_compensation),
        cmocka_unit_test(test_lost_workers),          cmocka_unit_test(test_nobody_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
