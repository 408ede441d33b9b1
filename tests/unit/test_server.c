/*
 * test_server.c - the parameter server against serial training and its own promises, in thousands of random orders of
 * events. support/world.h moves it by hand; test_server_twin.c recomputes what it does.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/world.h"

#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static const nw_exchange_options ASYNC = {.name = "server", .max_staleness = -1, .layout.bucket_bytes = 512};
static const nw_exchange_options SYNC = {
    .name = "server", .max_staleness = -1, .layout.bucket_bytes = 512, .sync = true};
static world w;

static world_options options(int members, nw_exchange_options e, const char *codec, uint64_t seed)
{
    int in_flight = e.in_flight ? e.in_flight : 2, pieces = 8; /* and two copies, and the last model */
    return (world_options){.exchange = e,
                           .members = members,
                           .codec = codec,
                           .seed = seed,
                           .finals = seed + 1,
                           .interrupts = true,
                           .link_most = (in_flight + 3) * (pieces + 1)};
}

static void make(world_options o) { world_ok(world_make(&w, &o)); }

/* ---- equal to serial ---- */

/* What one worker makes of so many batches. */
static const float *serial(int64_t batches, int member)
{
    static float values[WORLD_FLOATS], gradient[WORLD_FLOATS];
    int64_t k = w.o.exchange.accumulation ? w.o.exchange.accumulation : 1;
    for (size_t i = 0; i < w.floats; i++) values[i] = world_start(i);
    for (int64_t b = 0; b < batches; b++) {
        world_gradient(&w, member, b, values, b % k > 0, gradient);
        if (b % k == k - 1) world_update(values, gradient, 0, w.floats, 1.0f, b);
    }
    return values;
}

TEST(test_one_worker_is_serial)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int ways = 0; ways < 8; ways++) {
            nw_exchange_options e = ways & 1 ? SYNC : ASYNC;
            e.in_flight = 1;
            e.servers = ranks > 1 ? ranks - 1 : 1; /* one worker, and all others serve */
            e.accumulation = ways & 2 ? 3 : 1;
            world_options o = options(ranks, e, "none", (uint64_t)ranks);
            o.bare = ways & 4 && e.accumulation == 1;
            o.every = 4;
            make(o);
            for (int64_t until = 20; until <= 33; until += 13) { /* and goes on */
                world_ok(world_run(&w, until));
                world_check_quiescent(&w, until);
                world_check_values(&w, serial(until * e.accumulation, ranks - 1));
                assert_int_equal(w.delay_max, 0);
            }
            for (int c = 1; c <= 8; c++) /* and so were the snapshots on the way */
                assert_memory_equal(w.kept[c], serial(4 * c * e.accumulation, ranks - 1), w.floats * sizeof(float));
            world_free(&w);
        }
}

/* In step: the mean of one gradient of each, added in the order of ranks. */
TEST(test_synchronous)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        int ranks = 2 + (int)(seed % 5), servers = 1 + (int)(seed / 5 % 2);
        nw_exchange_options e = SYNC;
        e.servers = servers < ranks ? servers : 1;
        e.server_computes = seed / 10 % 2;
        int first = e.server_computes ? 0 : e.servers, workers = ranks - first;
        make(options(ranks, e, "none", seed));
        if (seed % 2) w.starved = world_bit(ranks - 1, 1); /* which may be a server */
        world_ok(world_run(&w, 7));
        world_check_quiescent(&w, 7);
        static float values[WORLD_FLOATS], g[WORLD_FLOATS], sum[WORLD_FLOATS];
        for (size_t i = 0; i < w.floats; i++) values[i] = world_start(i);
        for (int t = 0; t < 7; t++) {
            for (int k = 0; k < workers; k++) {
                world_gradient(&w, first + k, t, values, false, g);
                for (size_t i = 0; i < w.floats; i++) sum[i] = k > 0 ? sum[i] + g[i] : g[i];
            }
            world_update(values, sum, 0, w.floats, 1.0f / (float)workers, t);
        }
        world_check_values(&w, values);
        world_free(&w);
    }
}

/* ---- every order ---- */

static int64_t updates;
static void begin(world *x) { world_ok(world_go(x, updates, 0, false)); }
static void check(world *x) { world_check_quiescent(x, updates); }

/* Of small worlds nothing that was promised is broken. */
TEST(test_every_order)
{
    static const struct {
        int members, servers, in_flight, updates;
        int64_t max_staleness;
        bool sync, computes;
    } cases[] = {{2, 1, 1, 4, -1, false, false}, {2, 1, 2, 4, -1, false, false}, {3, 1, 1, 4, 1, false, false},
                 {3, 1, 1, 3, -1, true, false},  {2, 1, 1, 4, -1, false, true},  {3, 2, 1, 2, -1, false, false},
                 {1, 1, 2, 5, -1, false, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_exchange_options e = ASYNC;
        e.servers = cases[i].servers;
        e.in_flight = cases[i].in_flight;
        e.max_staleness = cases[i].max_staleness;
        e.sync = cases[i].sync;
        e.server_computes = cases[i].computes;
        e.layout.bucket_bytes = 1 << 20;
        world_options o = options(cases[i].members, e, "none", 3);
        o.segments = (const int[]){40, 0};
        o.finals = 0;
        o.every = 2;
        o.interrupts = cases[i].servers == 1; /* or there are very many */
        updates = cases[i].updates;
        print_message("case %zu: %lld orders\n", i, (long long)world_every_order(&o, begin, check, false));
    }
}

/* ---- promises of the asynchronous server ---- */

TEST(test_random_orders)
{
    static const char *const codecs[] = {"none", "bf16", "fp16"};
    static const uint16_t some[] = {1, 3, 4, 8, 11, 12};
    for (uint64_t seed = 0; seed < 600; seed++) {
        int ranks = 1 + (int)(seed % 6);
        nw_exchange_options e = ASYNC;
        e.servers = ranks > 2 ? 1 + (int)(seed / 6 % 2) : 1;
        e.server_computes = ranks == 1 || seed / 12 % 2;
        e.in_flight = 1 + (int)(seed / 24 % 3);
        e.accumulation = 1 + (int)(seed / 36 % 2);
        if (seed % 7 == 1) e.correction = NW_CORRECT_DC, e.dc_lambda = 0.5;
        if (seed % 7 == 2) e.correction = NW_CORRECT_INVERSE;
        if (seed % 5 == 0) e.max_staleness = (int64_t)(seed / 5 % 4), e.staleness = NW_STALE_DROP;
        if (seed % 5 == 1) e.max_staleness = 1, e.staleness = NW_STALE_WEIGHT;
        world_options o = options(ranks, e, codecs[seed % 3], seed);
        o.every = (int64_t)(seed % 4);
        o.interrupts = seed / 2 % 2;
        if (seed / 4 % 2) o.ranks = some, o.ranks_in_world = 14;
        make(o);
        if (ranks > 2 && seed % 2) w.starved = world_bit(ranks - 1, ranks - 1);
        for (int64_t until = 5; until <= 40; until += 35) {
            world_ok(world_run(&w, until));
            world_check_quiescent(&w, until);
        }
        world_ok(world_run(&w, 40)); /* nothing to do */
        world_check_quiescent(&w, 40);
        int64_t sum = 0;
        for (int r = 0; r < ranks; r++) sum += w.updates_of[r];
        assert_int_equal(sum, 40);
        bool drops = e.staleness == NW_STALE_DROP && e.max_staleness >= 0;
        if (drops) assert_true(w.delay_max <= e.max_staleness);
        for (int r = 0; !drops && r < ranks; r++)
            assert_int_equal(w.last_said[r], w.updates_of[r]); /* none is missing */
        world_free(&w);
    }
}

/* Threads that encode and decode change no bit. */
TEST(test_any_number_of_threads)
{
    nw_pool *pool;
    world_ok(nw_pool_create(&pool, 3));
    for (uint64_t seed = 0; seed < 12; seed++) {
        static float alone[WORLD_FLOATS];
        for (int threads = 0; threads < 2; threads++) {
            nw_exchange_options e = seed % 3 == 0 ? SYNC : ASYNC;
            e.servers = 1 + (int)(seed % 2);
            e.pool = threads ? pool : NULL;
            make(options(4, e, seed % 4 ? "fp16" : "none", seed));
            world_ok(world_run(&w, 20));
            world_check_quiescent(&w, 20);
            if (threads) world_check_values(&w, alone);
            memcpy(alone, w.at[0].params.values, w.floats * sizeof(float));
            world_free(&w);
        }
    }
    nw_pool_free(pool);
}

/* No gradient misses more updates than allowed, nobody waits for ever, and bounds are reached. */
TEST(test_waiting_bounds_delays)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        int ranks = 2 + (int)(seed % 6);
        nw_exchange_options e = ASYNC;
        e.in_flight = 1 + (int)(seed / 6 % 3);
        e.max_staleness = (int64_t)(seed / 18 % 5);
        e.servers = ranks > 3 ? 1 + (int)(seed / 90 % 3) : 1;
        make(options(ranks, e, "none", seed));
        if (seed % 3 == 0) w.starved = world_bit(ranks - 1, ranks - 1);
        world_ok(world_run(&w, 60));
        world_check_quiescent(&w, 60);
        assert_true(w.delay_max <= e.max_staleness);
        int most = (ranks - e.servers) * e.in_flight - 1;
        if (most >= e.max_staleness + 2) assert_true(w.delay_max >= e.max_staleness - 1);
        world_free(&w);
    }
}

/* g + lambda g g (w - w_old), for the gradient that comes second. */
TEST(test_delay_compensation)
{
    nw_exchange_options e = ASYNC;
    e.in_flight = 1;
    e.correction = NW_CORRECT_DC;
    e.dc_lambda = 0.25;
    make(options(3, e, "none", 5));
    world_ok(world_run(&w, 2));
    world_check_quiescent(&w, 2);
    static float start[WORLD_FLOATS], g[2][WORLD_FLOATS], x[WORLD_FLOATS];
    int first = memcmp(w.last_said, (int32_t[]){0, 1, 1}, 12) == 0, equal = 0;
    assert_true(first);
    for (int order = 0; order < 2; order++) { /* in either order */
        for (size_t i = 0; i < w.floats; i++) start[i] = x[i] = world_start(i);
        for (int k = 0; k < 2; k++) world_gradient(&w, 1 + k, 0, start, false, g[k]);
        world_update(x, g[order], 0, w.floats, 1.0f, 0);
        float *late = g[1 - order];
        for (size_t i = 0; i < w.floats; i++) late[i] += 0.25f * late[i] * late[i] * (x[i] - start[i]);
        world_update(x, late, 0, w.floats, 1.0f, 1);
        equal += memcmp(x, w.at[0].params.values, w.floats * sizeof(float)) == 0;
    }
    assert_int_equal(equal, 1);
    world_free(&w);
}

/* ---- stopping ---- */

static void settle(void)
{
    world_ok(world_settle(&w));
    world_check_quiescent(&w, w.updates);
}

static nw_status try_steps(uint64_t count)
{
    nw_status status = NW_OK;
    for (uint64_t i = 0; i < count && status == NW_OK && world_step(&w, &status); i++) continue;
    return status;
}
static void steps(uint64_t count) { world_ok(try_steps(count)); }

TEST(test_stops_when_asked)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        int ranks = 1 + (int)(seed % 5);
        nw_exchange_options e = seed % 2 ? SYNC : ASYNC;
        e.server_computes = seed / 10 % 2;
        make(options(ranks, e, "none", seed));
        world_ok(world_go(&w, 1000, 0, true));
        steps(300);
        int64_t before = w.updates;
        world_ok(world_stop(&w, (int)(seed / 3) % ranks)); /* any of them */
        settle();
        assert_true(w.updates < before + 60);
        world_free(&w);
    }
}

/* Ranks hear of it at moments of their own: before the end, while it is on its way, and when they are quiescent. */
TEST(test_stops_around_the_end)
{
    int in_time = 0, late = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options e = seed % 3 ? ASYNC : SYNC;
        e.servers = 1 + (int)(seed / 2 % 2);
        e.server_computes = seed / 4 % 2;
        int ranks = e.servers + 1 + (int)(seed / 8 % 3);
        make(options(ranks, e, "none", seed));
        world_ok(world_run(&w, 3));
        world_ok(world_go(&w, 8, 0, true));
        steps(40 + seed % 120);
        for (int i = 0; i < ranks; i++) {
            world_ok(world_stop(&w, i));
            steps(1);
        }
        settle();
        in_time += w.updates < 8;
        late += w.updates == 8;
        world_ok(world_run(&w, 12)); /* and it goes on from there */
        world_check_quiescent(&w, 12);
        world_free(&w);
    }
    assert_true(in_time > 60 && late > 60);
}

/* A new world that knows nothing but parameters and state goes on. */
TEST(test_goes_on_from_a_checkpoint)
{
    static world before;
    for (int ranks = 1; ranks <= 4; ranks++) {
        nw_exchange_options e = ASYNC;
        e.in_flight = 1;
        e.servers = ranks > 1 ? ranks - 1 : 1;
        world_options o = options(ranks, e, "none", (uint64_t)ranks);
        world_ok(world_make(&before, &o));
        world_ok(world_run(&before, 9));
        make(o);
        world_resume(&w, &before);
        world_free(&before);
        world_ok(world_run(&w, 20));
        world_check_quiescent(&w, 20);
        world_check_values(&w, serial(20, ranks - 1));
        world_free(&w);
    }
}

/* ---- snapshots ---- */

/* All ranges after N updates come to rank 0, in order, exactly, whoever is ahead, and nobody stops for it; at most two
 * are under way, even if what a server sends to rank 0 takes for ever. */
TEST(test_copies)
{
    static const char *const codecs[] = {"none", "bf16"};
    int64_t ahead = 0;
    int held = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options e = seed % 3 ? ASYNC : SYNC;
        e.servers = 2 + (int)(seed % 2);
        e.server_computes = seed / 2 % 2;
        e.in_flight = e.sync ? 1 : 1 + (int)(seed / 4 % 3);
        int ranks = e.servers + 1 + (int)(seed / 5 % 3);
        world_options o = options(ranks, e, codecs[seed / 24 % 2], seed);
        o.every = 1 + (int64_t)(seed / 7 % 5);
        make(o);
        if (seed / 3 % 2) w.starved = world_bit((int)(1 + seed % 2), 0);
        if (seed / 9 % 2) w.starved |= world_bit(ranks - 1, ranks - 1);
        world_ok(world_run(&w, 20));
        world_check_quiescent(&w, 20);
        world_ok(world_go(&w, 1000, 0, true));
        while (w.updates < 35) steps(1);
        world_ok(world_stop(&w, 0));
        settle();
        ahead += w.ahead;
        held += w.most == 2;
        world_free(&w);
    }
    assert_true(ahead > 600); /* updates that were made while a copy was on its way */
    assert_true(held > 100);
}

/* Until a server has two copies under way, and then it says whom it waits for. */
static void waits_for(int server, int whom)
{
    nw_wait wait = {0};
    const nw_machine *m = w.at[server].rank.machine;
    while (w.at[server].given < 2) steps(1);
    assert_int_equal(w.taken, 0);
    m->ops->waits(m, &wait);
    assert_int_equal(wait.count, 1);
    assert_int_equal(wait.ranks[0], whom);
    assert_non_null(strstr(wait.what, "a snapshot of the parameters"));
}

TEST(test_waiting_for_copies)
{
    nw_exchange_options e = ASYNC;
    e.servers = 2;
    world_options o = options(4, e, "none", 8);
    o.every = 1;
    make(o);
    w.starved = world_bit(1, 0);
    world_ok(world_go(&w, 10, 0, true));
    waits_for(1, 0);
    waits_for(0, 1);
    world_ok(world_settle(&w));
    world_check_quiescent(&w, 10);
    world_free(&w);
}

/* ---- ranks that die ---- */

TEST(test_lost_workers)
{
    int given_up = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        nw_exchange_options e = seed % 2 ? SYNC : ASYNC;
        e.deadline_ns = 100000;
        e.servers = 1 + (int)(seed / 16 % 3);
        int ranks = e.servers + 2 + (int)(seed % 4), victim = e.servers + (int)(seed / 4) % (ranks - e.servers);
        if (seed % 10 == 4) e.max_staleness = 2;
        make(options(ranks, e, "none", seed));
        world_ok(world_go(&w, 50, 0, true));
        steps(40 + seed % 60);
        w.at[victim].dead = true;
        world_ok(world_settle(&w));
        world_check_quiescent(&w, 50);
        for (int r = 0; r < ranks; r++) assert_true(!w.dropped[r] || r == victim);
        given_up += w.dropped[victim]; /* or it had done all its work */
        world_free(&w);
    }
    assert_true(given_up > 150);
}

/* A worker that was suspended is dropped, and comes back, in the same run or in the next. */
TEST(test_workers_come_back)
{
    int dropped = 0, in_time = 0, silent = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        nw_exchange_options e = seed % 3 ? ASYNC : SYNC;
        e.deadline_ns = 2000;
        e.servers = 1 + (int)(seed / 16 % 3);
        if (seed % 5 == 1 && !e.sync) e.correction = NW_CORRECT_DC, e.dc_lambda = 0.5;
        e.server_computes = seed / 48 % 2;
        int ranks = e.servers + 2 + (int)(seed % 3),
            first = e.server_computes ? 1 : e.servers; /* who may be suspended */
        int victim = first + (int)(seed / 4) % (ranks - first);
        make(options(ranks, e, seed % 2 ? "fp16" : "none", seed));
        world_ok(world_go(&w, 50, 0, true));
        steps(20 + seed % 60);
        w.at[victim].asleep = true;
        nw_status status = try_steps(seed % 4 ? seed / 7 % 500 : 100000); /* in some, until all others are quiescent */
        if (status == NW_E_PEER && victim < e.servers) {                  /* without it others cannot go on */
            silent++;
            world_free(&w);
            continue;
        }
        world_ok(status);
        dropped += w.dropped[victim];
        w.at[victim].asleep = false;
        world_ok(world_settle(&w));
        assert_int_equal(w.updates, 50);
        in_time += !w.dropped[victim] && nw_rank_is_quiescent(&w.at[victim].rank);
        world_ok(world_run(&w, 70));
        assert_false(w.dropped[victim]);
        world_check_quiescent(&w, 70);
        world_free(&w);
    }
    print_message("%d dropped, %d back in time, %d servers silent\n", dropped, in_time, silent);
    assert_true(dropped > 100 && silent > 10);
}

/* One that comes back while an update runs, of parameters that nobody was sent yet, gets those behind it. */
TEST(test_a_worker_joins_during_an_update)
{
    nw_status status;
    nw_exchange_options e = ASYNC;
    e.in_flight = 1;
    e.deadline_ns = 1000;
    make(options(3, e, "none", 2));
    world_ok(world_go(&w, 10, 0, true));
    w.at[2].asleep = true;
    w.starved = world_bit(1, 0);
    while (w.links[1][0].last < 4) steps(1);
    for (int i = 0; i < 3; i++) world_ok(world_deliver(&w, 1, 0)); /* so that it is heard of later than the other */
    assert_true(world_ring(&w, &status) && status == NW_OK && w.dropped[2]);
    w.starved = world_bit(0, 0);
    while (w.at[0].rank.queued == 0) steps(1);
    world_ok(world_local(&w, 0));
    w.at[2].asleep = false;
    while (w.dropped[2]) steps(1);
    assert_true(w.at[0].rank.busy && w.updates == 0);
    settle();
    assert_true(w.updates == 10 && w.updates_of[2] > 0);
    world_free(&w);
}

TEST(test_nobody_left)
{
    nw_exchange_options e = ASYNC;
    e.deadline_ns = 1000;
    make(options(2, e, "none", 1));
    w.at[1].dead = true;
    assert_int_equal(world_run(&w, 5), NW_E_PEER);
    assert_non_null(strstr(nw_error_message(), "rank 1"));
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_worker_is_serial),
                                       cmocka_unit_test(test_synchronous),
                                       cmocka_unit_test(test_every_order),
                                       cmocka_unit_test(test_random_orders),
                                       cmocka_unit_test(test_any_number_of_threads),
                                       cmocka_unit_test(test_waiting_bounds_delays),
                                       cmocka_unit_test(test_delay_compensation),
                                       cmocka_unit_test(test_stops_when_asked),
                                       cmocka_unit_test(test_stops_around_the_end),
                                       cmocka_unit_test(test_goes_on_from_a_checkpoint),
                                       cmocka_unit_test(test_copies),
                                       cmocka_unit_test(test_waiting_for_copies),
                                       cmocka_unit_test(test_lost_workers),
                                       cmocka_unit_test(test_workers_come_back),
                                       cmocka_unit_test(test_a_worker_joins_during_an_update),
                                       cmocka_unit_test(test_nobody_left)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
