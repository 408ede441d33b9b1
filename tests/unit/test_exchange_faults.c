/*
 * test_exchange_faults.c - exchanges where memory ends at any allocation, and where messages get damaged on their way
 * (as fuzz_exchange.c has it, with inputs that are always the same).
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/memory_that_ends.h"
#include "support/world.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- memory that ends ---- */

enum { UNTIL = 8 };
static world w;

/* Makes a world and, unless `idle`, runs it, where the allocation behind the first n fails. False: none did. */
static bool ends_after(const world_options *o, int64_t n, bool idle)
{
    int64_t before = memory_alive, asked;
    memory_ends_after(n);
    nw_status status = world_make(&w, o);
    if (status == NW_OK && !idle) status = world_run(&w, UNTIL);
    bool failed = memory_suffices(n, &asked);
    if (status == NW_OK && !idle) world_check_quiescent(&w, UNTIL);
    world_free(&w);
    assert_int_equal(status, failed ? NW_E_MEMORY : NW_OK);
    assert_int_equal(memory_alive, before);
    return failed;
}

/* Every allocation, while it is made and later. */
static void look(const world *x, const nw_snapshot *s) { (void)x, (void)s; }

static void check_memory(world_options o)
{
    int64_t made = 0, all;
    while (ends_after(&o, made, true)) made++;
    for (all = made; ends_after(&o, all, false); all++) continue;
    print_message("%s, %d members: %d allocations, up to %d later\n", o.exchange.name, o.members, (int)made,
                  (int)(all - made));
    assert_true(made > 5 && all > made);
}

TEST(test_memory_ends_in_none)
{
    world_options o = {.exchange.name = "none", .members = 1};
    int64_t made = 0;
    while (ends_after(&o, made, true)) made++; /* there are none later but those of the world itself */
    while (ends_after(&o, made, false)) made++;
    assert_true(made > 3);
}

TEST(test_memory_ends_in_allreduce)
{
    for (int i = 0; i < 8; i++)
        check_memory((world_options){.exchange = {.name = "allreduce", .delay = i % 2, .layout.bucket_bytes = 256},
                                     .members = i & 4 ? 1 : 4,
                                     .codec = i & 2 ? "fp16" : "none",
                                     .finals = 3});
}

TEST(test_memory_ends_in_server)
{
    for (int i = 0; i < 16; i++)
        check_memory((world_options){.exchange = {.name = "server",
                                                  .max_staleness = -1,
                                                  .layout.bucket_bytes = 256,
                                                  .servers = 1 + i % 2,
                                                  .server_computes = i & 2,
                                                  .correction = i & 4 ? NW_CORRECT_DC : NW_CORRECT_NONE},
                                     .members = 4,
                                     .codec = i & 8 ? "bf16" : "none",
                                     .every = 2,
                                     .finals = 3});
}

TEST(test_memory_ends_in_gossip)
{
    static const char *const names[] = {"none", "topk", "modulo"};
    for (int i = 0; i < 6; i++) {
        nw_graph *graph;
        nw_codec *codec;
        nw_codec_options c = nw_codec_options_default(names[i / 2]);
        world_ok(nw_codec_create(&codec, &c));
        world_options o = {.exchange = {.name = "gossip", .layout.bucket_bytes = 256},
                           .members = 4,
                           .every = 3,
                           .looked = look,
                           .with = codec,
                           .rings = 40,
                           .finals = 3};
        world_ok(nw_graph_make(&graph, "complete", 4, 1));
        o.exchange.gossip = (nw_gossip_options){
            .graph = graph, .rate = 2, .pairing = (nw_pairing)(i % 3), .acid = i & 1, .eta = 0.4, .alpha = 0.7};
        check_memory(o);
        nw_graph_free(graph);
        nw_codec_free(codec);
    }
}

/* What a delay held back has a vector of its own where a checkpoint brings it to an exchange without delay. */
TEST(test_memory_ends_where_state_is_loaded)
{
    nw_machine *m;
    nw_state s = {0};
    world_options o = {.exchange.name = "allreduce", .members = 1};
    int64_t before = memory_alive;
    world_ok(world_make(&w, &o));
    m = w.at[0].rank.machine;
    m->ops->state(m, &s);
    for (int i = 0; i < s.count; i++) *(int64_t *)s.at[i].data = i > 0; /* but no pending batches: one update, held */
    nw_state_free(&s);
    memory_ends_after(0);
    assert_int_equal(m->ops->loaded(m), NW_E_MEMORY);
    memory_ends_after(MEMORY_ENOUGH);
    world_free(&w);
    assert_int_equal(memory_alive, before);
}

/* ---- messages that get damaged ---- */

TEST(test_damaged_messages)
{
    uint8_t bytes[96];
    int64_t before = memory_alive;
    for (uint64_t seed = 0; seed < 12000; seed++) {
        nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 1, 0);
        size_t size = 8 + nw_rng_below(&rng, sizeof bytes - 8);
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)nw_rng_below(&rng, 256);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    assert_int_equal(memory_alive, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_ends_in_none), cmocka_unit_test(test_memory_ends_in_allreduce),
        cmocka_unit_test(test_memory_ends_in_server), cmocka_unit_test(test_memory_ends_in_gossip), cmocka_unit_test(test_memory_ends_where_state_is_loaded),
        cmocka_unit_test(test_damaged_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
