/*
 * test_server_memory.c - a parameter server with little memory: it never holds more gradients than it may, whoever is
 * slow, all workers have their turn, and sums in step keep their bits. support/world.h moves it.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "exchange/server_private.h"
#include "support/world.h"

#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static world w;

static size_t bytes_of(const server *s, const gradient *g)
{
    size_t bytes = g->report ? nw_message_size(g->report) : 0;
    for (int i = 0; i < s->shard_count; i++) bytes += g->shards.at[i] ? nw_message_size(g->shards.at[i]) : 0;
    return bytes;
}

/* Of gradients, complete or not, that a server has. */
static size_t held_by(int member)
{
    const server *s = (const server *)w.at[member].rank.machine;
    const master *m = &s->master;
    size_t bytes = 0;
    for (int i = 0; i < s->workers; i++) bytes += bytes_of(s, &m->clients[i].coming);
    for (const gradient *g = m->first; g; g = g->behind) bytes += bytes_of(s, g);
    for (int i = 0; i < m->taken_count; i++) bytes += bytes_of(s, m->taken[i]);
    return bytes;
}

/* What one gradient takes of the server that has most of it. */
static size_t gradient_bytes(void)
{
    const server *s = (const server *)w.at[0].rank.machine;
    size_t most = 0;
    for (int i = 0; i < s->servers; i++) {
        size_t bytes = 4 * (s->range[i + 1] - s->range[i]) + NW_HEADER_BYTES * (size_t)s->of_server[i];
        bytes += i == 0 ? NW_HEADER_BYTES + sizeof(world_report) : 0;
        most = bytes > most ? bytes : most;
    }
    return most;
}

typedef struct trial {
    uint64_t seed;
    int servers, ranks, in_flight;
    bool sync, computes;
    int64_t max_staleness;
    nw_staleness staleness;
    const char *codec;
} trial;

static trial draw(uint64_t seed)
{
    trial t = {.seed = seed,
               .servers = 1 + (int)(seed % 3),
               .sync = seed / 3 % 2,
               .computes = seed / 6 % 2,
               .max_staleness = seed % 5 == 4 ? 1 : -1,
               .staleness = seed % 2 ? NW_STALE_DROP : NW_STALE_WAIT,
               .codec = seed % 7 == 3 ? "bf16" : "none"};
    t.ranks = t.servers + 3 + (int)(seed / 5 % 2);
    t.in_flight = t.sync ? 1 : 1 + (int)(seed % 3);
    if (t.sync) t.max_staleness = -1;
    return t;
}

static void make(const trial *t, size_t memory_bytes)
{
    world_options o = {.exchange = {.name = "server",
                                    .layout.bucket_bytes = 512,
                                    .sync = t->sync,
                                    .servers = t->servers,
                                    .server_computes = t->computes,
                                    .in_flight = t->in_flight,
                                    .max_staleness = t->max_staleness,
                                    .staleness = t->staleness,
                                    .memory_bytes = memory_bytes,
                                    .deadline_ns = 100000},
                       .members = t->ranks,
                       .codec = t->codec,
                       .seed = t->seed,
                       .finals = t->seed + 1,
                       .bare = true,
                       .interrupts = true};
    world_ok(world_make(&w, &o));
    if (t->seed % 4) /* a server that is slow: gradients come, and wait */
        w.starved = world_bit(0, 0) | (t->seed % 4 == 2 ? world_bit(t->servers - 1, t->servers - 1) : 0);
    if (t->seed % 4 == 3 && t->servers > 1) w.starved = world_bit(1, 1) | world_bit(0, 1);
}

/* Goes on until nothing can happen; returns the most that a server held. */
static size_t settle(const trial *t)
{
    size_t most = 0;
    nw_status status = NW_OK;
    while (world_step(&w, &status)) {
        world_ok(status);
        for (int i = 0; i < t->servers; i++) most = held_by(i) > most ? held_by(i) : most;
    }
    world_ok(status);
    return most;
}

enum { UPDATES = 30 };

TEST(test_no_server_holds_more)
{
    int over = 0, of = 0;
    for (uint64_t seed = 0; seed < 240; seed++) {
        static float values[WORLD_FLOATS];
        trial t = draw(seed);
        make(&t, 0);
        size_t one = gradient_bytes(), budget = seed % 5 ? one * (1 + seed % 3) + seed % one : 1;
        world_ok(world_go(&w, UPDATES, 0, true));
        over += settle(&t) > budget;
        of++;
        memcpy(values, w.at[0].params.values, w.floats * sizeof *values);
        world_free(&w);

        make(&t, budget);
        for (int run = 1; run <= 2; run++) {
            world_ok(world_go(&w, run * UPDATES, 0, true));
            size_t most = settle(&t);
            if (most > (budget > one ? budget : one)) fail_msg("seed %d: %zu bytes of %zu", (int)seed, most, budget);
            world_check_quiescent(&w, run * UPDATES);
            if (t.sync && run == 1) world_check_values(&w, values); /* as with all memory */
        }
        for (int r = t.computes ? 0 : t.servers; r < t.ranks; r++) assert_true(w.updates_of[r] > 1);
        world_free(&w);
    }
    assert_true(over > of * 3 / 4); /* without the bound */
}

/* A worker that dies in the middle of its turn, or between two, holds nobody up. */
TEST(test_lost_workers)
{
    int given_up = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        trial t = draw(seed);
        nw_status status = NW_OK;
        make(&t, 1 + seed % 2 * 5000);
        int victim = t.servers + (int)(seed / 7 % 3);
        world_ok(world_go(&w, UPDATES, 0, true));
        for (uint64_t i = 0; i < 40 + seed % 160 && world_step(&w, &status); i++) world_ok(status);
        w.at[victim].dead = true;
        world_ok(world_settle(&w));
        world_check_quiescent(&w, UPDATES);
        given_up += w.dropped[victim];
        world_free(&w);
    }
    assert_true(given_up > 100);
}

/* Whoever waits for another server to make room says so. */
TEST(test_waiting_for_room)
{
    trial t = {.seed = 4, .servers = 2, .ranks = 4, .in_flight = 1, .sync = true, .max_staleness = -1, .codec = "none"};
    nw_status status = NW_OK;
    nw_wait wait = {0};
    make(&t, 1);
    w.at[1].asleep = true;
    world_ok(world_go(&w, 1, 0, true));
    while (world_moves(&w)) world_ok(world_step(&w, &status) ? status : NW_E_INTERNAL);
    w.at[0].rank.machine->ops->waits(w.at[0].rank.machine, &wait);
    assert_int_equal(wait.count, 1);
    assert_int_equal(wait.ranks[0], 1);
    w.at[1].asleep = false;
    world_ok(world_settle(&w));
    world_check_quiescent(&w, 1);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_server_holds_more),
        cmocka_unit_test(test_lost_workers),
        cmocka_unit_test(test_waiting_for_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
