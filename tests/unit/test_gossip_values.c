/*
 * test_gossip_values.c - gossip whose parameters travel encoded (gossip/gossip_values.c, channel/agreed.h): in every order
 * of events and on virtual clusters, by the twins of support/gossip_ranks.h, which also find out whether both halves of each
 * pair knew of the same difference. test_agreed.c has what a message holds.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "replay/replay.h"
#include "sim/virtual.h"
#include "support/gossip_ranks.h"
#include "support/own_folder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static world w;

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

/* ---- codecs ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    nw_agreeing how;
    double step; /* of the consensus */
} ways[] = {{"topk", NW_AGREE_BY_CODEC, 1},      {"sign", NW_AGREE_BY_CODEC, 1},    {"int8", NW_AGREE_BY_CODEC, 1},
            {"int8", NW_AGREE_PLAIN, 1},         {"randomk", NW_AGREE_BY_CODEC, 1}, {"bf16", NW_AGREE_BY_CODEC, 1},
            {"modulo", NW_AGREE_BY_CODEC, 1},    {"topk", NW_AGREE_BY_CODEC, 0.5},  {"qsgd", NW_AGREE_DIFFERENCE, 1},
            {"natural", NW_AGREE_BY_CODEC, 0.7}};
enum { WAYS = sizeof ways / sizeof ways[0] };
static nw_codec *codecs[WAYS];

static void make_codecs(void)
{
    for (int i = 0; i < WAYS; i++) {
        nw_codec_options o = nw_codec_options_default(ways[i].name);
        o.ratio = 0.05;
        o.shared = false;
        o.levels = 127;
        o.bucket = strcmp(ways[i].name, "qsgd") == 0 ? 512 : 0;
        ok(nw_codec_create(&codecs[i], &o));
    }
}

static void use(int way, uint64_t seed)
{
    static const nw_pairing pairings[] = {NW_PAIR_HANDSHAKE, NW_PAIR_FIRST_COME, NW_PAIR_SCHEDULED};
    static const char *const graphs[] = {"cycle", "complete", "exponential", "star", "torus"};
    gossip_use = (gossip_settings){.graph = graphs[seed % 5],
                                   .how = {.seed = seed,
                                           .rate = 1 + (double)(seed % 2),
                                           .pairing = pairings[seed / 2 % 3],
                                           .acid = seed / 6 % 2,
                                           .values = ways[way].how,
                                           .step = ways[way].step}};
    gossip_listen();
}

/* ---- in every order ---------------------------------------------------------------------------------------------- */

/* A link holds at most the buckets of a pair, each perhaps twice, a proposal or an answer, those of a mean, and leases. */
static world_options options(int members, int way, uint64_t seed)
{
    use(way, seed);
    return (world_options){.exchange = {.name = "gossip", .gossip = gossip_how(members), .layout.bucket_bytes = 800},
                           .members = members,
                           .with = codecs[way],
                           .rings = 1000,
                           .interrupts = true,
                           .link_most = 32,
                           .begun = gossip_begun,
                           .seed = seed,
                           .finals = seed};
}

static void check(const world *x, int64_t updates)
{
    world_check_quiescent(x, updates);
    const gossip_twin *t = gossip_recompute(x, x->o.members);
    for (int m = 0; m < x->o.members; m++)
        world_require(memcmp(x->at[m].params.values, t->values[m], x->floats * sizeof(float)) == 0);
    world_require(2 * gossip_done.agreed == gossip_done.approached);
    world_require(gossip_sum_error(t, x->o.members, x->floats) < 2e-4);
}

TEST(test_random_orders)
{
    int64_t agreed[WAYS] = {0}, amid = 0;
    for (uint64_t seed = 0; seed < 500; seed++) {
        int way = (int)(seed % WAYS), members = 2 + (int)(seed / 3 % 6);
        world_options o = options(members, way, seed);
        o.exchange.accumulation = 1 + (int)(seed / 7 % 2);
        o.interrupts = seed / 2 % 4 > 0;
        o.rings = (int)(seed / 3 % 3) * 60;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % members, (int)(seed / 15) % members);
        for (int64_t until = 24; until <= 72; until += 24) {
            world_ok(world_run(&w, until));
            check(&w, until);
        }
        world_free(&w);
        agreed[way] += gossip_done.agreed;
        amid += gossip_done.amid;
    }
    for (int i = 0; i < WAYS; i++) {
        print_message("%s, %s: %lld pairs\n", ways[i].name, nw_agreeing_name(ways[i].how), (long long)agreed[i]);
        assert_true(agreed[i] > 100);
    }
    assert_true(amid > 1000);
}

/* The same members go on after a stop, or others that have what was saved: the same bits. */
TEST(test_stops_and_goes_on)
{
    static world before;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int way = (int)(seed / 2 % WAYS), members = 2 + (int)(seed % 5);
        world_options o = options(members, way, seed);
        world *x = seed % 2 ? &before : &w;
        nw_status status = NW_OK;
        world_ok(world_make(x, &o));
        world_ok(world_go(x, 60, 0, false));
        for (uint64_t i = 0; i < 50 + seed && world_step(x, &status); i++) world_ok(status);
        world_ok(world_stop(x, (int)seed % members));
        world_ok(world_settle(x));
        check(x, x->updates);
        if (seed % 2) {
            world_ok(world_make(&w, &o));
            world_resume(&w, &before);
            world_free(&before);
        }
        world_ok(world_run(&w, 90));
        check(&w, 90);
        world_free(&w);
    }
}

/* ---- virtual clusters -------------------------------------------------------------------------------------------- */

enum { RANKS = 8, UPDATES = 300, EARLY = 120 };
static const int64_t MS = 1000000;

static gossip_rank members[RANKS];
static nw_rank ranks[RANKS];
static nw_cluster *cluster;
static nw_driver *driver;
static volatile sig_atomic_t stop;
static int64_t counted, stop_at;

static nw_status hear_count(void *context, const nw_count *c)
{
    (void)context, (void)c;
    if (++counted == stop_at) stop = 1;
    return NW_OK;
}

static void begin_again(int way)
{
    use(way, 12 + (uint64_t)(way % 2) * 6 /* with and without momentum */);
    gossip_use.codec = codecs[way];
    for (int i = 0; i < RANKS; i++) gossip_make(&members[i], &ranks[i], RANKS, i, 1);
    counted = 0;
    stop_at = stop = 0;
}

static void end(void)
{
    for (int i = 0; i < RANKS; i++) gossip_free(&members[i]);
    gossip_use.codec = NULL;
}

static void open_driver(nw_recorder *recorder)
{
    nw_driver_options o = {.stop = &stop, .counted = hear_count, .recorder = recorder, .timeout_ns = 1000 * MS};
    ok(nw_cluster_create(&cluster, RANKS, RANKS, 0, 1));
    cluster->links[0] =
        (nw_cluster_link){.latency_ns = MS / 10, .bandwidth = 1e7, .jitter = {NW_NOISE_EXPONENTIAL, 2.0}};
    for (int i = 0; i < RANKS; i++) {
        cluster->ranks[i].slowdown = 1 + 0.2 * i;
        cluster->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.3};
    }
    ok(nw_virtual_create(&driver, &o, &(nw_virtual_options){.cluster = cluster, .touch_bytes_per_second = 1e8}));
}

static void close_driver(void)
{
    nw_driver_free(driver);
    nw_cluster_free(cluster);
}

static void run_to(int64_t until) { ok(nw_driver_run(driver, ranks, &(nw_go){.until = until, .batches = INT64_MAX})); }

typedef struct bits {
    float values[RANKS][WORLD_FLOATS];
} bits;

static bits check_end(void)
{
    static bits b;
    const gossip_twin *t = gossip_recompute(gossip_arithmetic(), RANKS);
    for (int i = 0; i < RANKS; i++) {
        assert_true(nw_rank_is_quiescent(&ranks[i]) && members[i].machine->updates == UPDATES);
        assert_memory_equal(members[i].values, t->values[i], sizeof t->values[i]);
        memcpy(b.values[i], members[i].values, sizeof b.values[i]);
    }
    assert_true(gossip_sum_error(t, RANKS, gossip_arithmetic()->floats) < 2e-4);
    return b;
}

/* Recorded and stopped, the same members or others go on; then all of it is replayed. */
static bits record(int way, bool resumed)
{
    nw_recorder *r;
    nw_log_header h = {.world = RANKS, .ranks = RANKS, .lr_factor = 1};
    ok(nw_recorder_create(&r));
    ok(nw_recorder_open(r, folder, &h, NULL));
    begin_again(way);
    open_driver(r);
    stop_at = EARLY;
    run_to(UPDATES);
    stop = 0;
    assert_true(counted >= EARLY && counted < UPDATES);
    if (resumed)
        for (int i = 0; i < RANKS; i++) gossip_replace(&members[i], &ranks[i], RANKS, 1);
    run_to(UPDATES);
    bits b = check_end();
    ok(nw_recorder_close(r, true));
    nw_recorder_free(r);
    close_driver();
    end();
    return b;
}

static bits replay(int way)
{
    nw_recording recording;
    begin_again(way);
    ok(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&driver, &(nw_driver_options){0}, &recording.parts[0]));
    while (!driver->over) run_to(UPDATES);
    nw_driver_free(driver);
    bits b = check_end();
    end();
    nw_recording_free(&recording);
    return b;
}

TEST(test_runs_are_resumed_and_replayed)
{
    static bits whole, other;
    for (int way = 0; way < WAYS; way++) {
        whole = record(way, false);
        int64_t agreed = gossip_done.agreed;
        other = replay(way);
        assert_memory_equal(&whole, &other, sizeof whole);
        assert_int_equal(gossip_done.agreed, agreed);
        other = record(way, true);
        assert_memory_equal(&whole, &other, sizeof whole);
        print_message("%s, %s: %lld pairs\n", ways[way].name, nw_agreeing_name(ways[way].how), (long long)agreed);
        assert_true(agreed > 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_stops_and_goes_on),
        CASE(test_runs_are_resumed_and_replayed),
    };
    make_codecs();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    gossip_listen();
    gossip_free_graph();
    for (int i = 0; i < WAYS; i++) nw_codec_free(codecs[i]);
    return failed;
}
