/*
 * test_gossip_members.c - gossip whose members are lost, fall silent, return and come late: in worlds that the test moves
 * (support/world.h), and on virtual clusters; by the twins of support/gossip_ranks.h.
 *
 * Whatever happens: exactly the updates that were asked for are counted, all who are there are quiescent at the end and
 * have the twin's bits, and what one of a pair gained the other lost, but for pairs that a loss broke.
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

#include <stdlib.h>
#include <string.h>

static world w;

/* ---- ways -------------------------------------------------------------------------------------------------------- */

enum { WAYS = 12, BUCKETS = 2 };
static gossip_settings way(int index, uint64_t seed)
{
    static const nw_pairing pairings[] = {NW_PAIR_HANDSHAKE, NW_PAIR_FIRST_COME, NW_PAIR_SCHEDULED};
    static const char *const graphs[] = {"cycle", "complete", "star", "exponential"};
    gossip_settings s = {
        .graph = graphs[index / 3 % 4],
        .how = {.seed = seed, .rate = 1 + index % 2, .pairing = pairings[index % 3], .acid = index % 4 > 1}};
    s.how.deterministic_coms = index % 5 == 3;
    s.how.deterministic_neighbor = index % 7 == 1;
    return s;
}

static world_options options(int members, int index, uint64_t seed)
{
    gossip_use = way(index, seed);
    gossip_listen();
    return (world_options){
        .exchange = {.name = "gossip", .gossip = gossip_how(members), .layout.bucket_bytes = 800, .deadline_ns = 20000},
        .members = members,
        .rings = 1000,
        .interrupts = true,
        .link_most = 64,
        .begun = gossip_begun,
        .seed = seed,
        .finals = seed};
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int losses[WORLD_MOST]; /* of members that are dead, or have not returned */

static void check_pairs(int members)
{
    for (int a = 0; a < members; a++)
        for (int b = 0; b < a; b++) {
            int most = 2 * BUCKETS * (losses[a] + losses[b] + gossip_lives(a) + gossip_lives(b));
            if (gossip_broken(a, b) > most)
                world_fail(__FILE__, __LINE__, "%d halves of pairs of %d and %d, of which %d may be",
                           gossip_broken(a, b), a, b, most);
        }
}

static void check(const world *x, int64_t updates)
{
    int64_t sum = 0;
    const gossip_twin *t = gossip_recompute(x, x->o.members);
    world_check_quiescent(x, updates);
    for (int m = 0; m < x->o.members; m++) {
        sum += x->updates_of[m];
        world_require(x->updates_of[m] <= gossip_updates(m));
        if (!x->at[m].dead) world_require(memcmp(x->at[m].params.values, t->values[m], x->floats * sizeof(float)) == 0);
    }
    world_require(sum == updates);
    check_pairs(x->o.members);
}

static void steps(world *x, uint64_t count)
{
    nw_status status = NW_OK;
    while (count-- > 0 && world_step(x, &status)) world_ok(status);
}

static void kill_member(world *x, int member)
{
    x->at[member].dead = true;
    losses[member]++;
}

static bool all_are_quiescent(const world *x)
{
    for (int m = 0; m < x->o.members; m++)
        if (!x->at[m].dead && !nw_rank_is_quiescent(&x->at[m].rank)) return false;
    return true;
}

static void say_who_waits(const world *x)
{
    for (int m = 0; m < x->o.members; m++) {
        nw_wait wait = {0};
        char text[256];
        if (x->at[m].dead || nw_rank_is_quiescent(&x->at[m].rank)) continue;
        x->at[m].rank.machine->ops->waits(x->at[m].rank.machine, &wait);
        nw_wait_text(&wait, text, sizeof text);
        world_fail(__FILE__, __LINE__, "pairing %d on %s: member %d of %d waits for %s%s", (int)gossip_use.how.pairing,
                   gossip_use.graph, m, x->o.members, text, x->at[m].rank.busy ? ", and is busy" : "");
    }
}

/* Runs on until all who live are there again: who asks to join at the end of a run joins the next. */
static int64_t run_until_all_are_there(world *x, int64_t until)
{
    int runs = 0;
    x->o.rings = 1; /* timers ring when nothing else can happen: nobody is dropped any more who only was slow */
    do {
        if (runs++ == 20) say_who_waits(x);
        world_ok(world_run(x, until += 10));
        world_require(x->updates == until);
    } while (!all_are_quiescent(x));
    return until;
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

/* At every moment of a run: the others make all its updates, and then those of another run. */
TEST(test_one_is_lost_at_every_moment)
{
    int64_t orders = 0;
    for (int index = 0; index < WAYS; index++)
        for (uint64_t moment = 0;; moment += 3) {
            int members = 3 + (int)(moment + (uint64_t)index) % 4, lost = 1 + (int)(moment / 3) % (members - 1);
            memset(losses, 0, sizeof losses);
            world_options o = options(members, index, moment % 5 + 1);
            o.rings = moment % 2 ? 1000 : 10;
            world_ok(world_make(&w, &o));
            world_ok(world_go(&w, 16, 0, false));
            steps(&w, moment);
            bool over = w.updates == 16 && world_moves(&w) == 0;
            kill_member(&w, lost);
            world_ok(world_settle(&w));
            assert_int_equal(w.updates, 16);
            check(&w, run_until_all_are_there(&w, 16));
            world_free(&w);
            orders++;
            if (over || moment > 600) break;
        }
    print_message("%lld moments\n", (long long)orders);
    assert_true(orders > 600);
}

/* Two at once, of a ring down to the last two; and then all but the one that counts. */
TEST(test_down_to_one)
{
    for (uint64_t seed = 0; seed < 240; seed++) {
        int members = 4 + (int)(seed % 3), until = 0;
        memset(losses, 0, sizeof losses);
        world_options o = options(members, (int)(seed % WAYS), seed);
        world_ok(world_make(&w, &o));
        for (int left = members; left > 1;) {
            world_ok(world_go(&w, until += 20, 0, false));
            steps(&w, seed * 7 % 120);
            for (int k = 0; k < 2 && left > 1; k++) {
                int lost = 1 + (int)(seed / 3) % (members - 1);
                while (w.at[lost].dead) lost = lost % (members - 1) + 1;
                kill_member(&w, lost);
                left--;
                if (seed % 2) break;
            }
            world_ok(world_settle(&w));
            assert_int_equal(w.updates, until);
            until = (int)run_until_all_are_there(&w, until);
            check(&w, until);
        }
        world_free(&w);
    }
}

/* Some fall silent for any time, one or two at once, and go on where they were: others have gone on without them, with
 * what they held; what they have is void, and they return with a neighbour's. */
TEST(test_members_sleep_and_return)
{
    int64_t copied = 0, meanwhile = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int members = 3 + (int)(seed % 5), sleeper = 1 + (int)(seed / 5) % (members - 1),
            other = seed % 3 == 0 && members > 3 ? sleeper % (members - 1) + 1 : sleeper;
        memset(losses, 0, sizeof losses);
        world_options o = options(members, (int)(seed % WAYS), seed);
        o.exchange.accumulation = 1 + (int)(seed % 2);
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, 200, 0, false));
        steps(&w, 20 + seed % 200);
        int64_t before = w.updates;
        w.at[sleeper].asleep = w.at[other].asleep = true;
        if (seed % 4 > 0) { /* until all else is done, or for a while */
            steps(&w, seed % 4 == 1 ? 400 : 3000);
        } else {
            world_ok(world_settle(&w));
            assert_int_equal(w.updates, 200);
        }
        meanwhile += w.updates - before;
        w.at[sleeper].asleep = w.at[other].asleep = false;
        world_ok(world_settle(&w));
        assert_int_equal(w.updates, 200);
        check(&w, run_until_all_are_there(&w, 200));
        copied += gossip_done.copied;
        world_free(&w);
    }
    print_message("%lld updates meanwhile, %lld buckets copied\n", (long long)meanwhile, (long long)copied);
    assert_true(copied > 300 && meanwhile > 10000);
}

static int64_t taken;
static void look(const world *x, const nw_snapshot *s)
{
    for (size_t i = 0; i < x->floats; i++) world_require(s->values[i] == s->values[i]);
    taken += !s->unasked;
}

/* A deadline so short that members are dropped that were only slow, again and again, in any order. */
TEST(test_members_are_dropped_although_they_live)
{
    int64_t copied = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        int members = 2 + (int)(seed % 6);
        memset(losses, 0, sizeof losses);
        world_options o = options(members, (int)(seed / 2 % WAYS), seed);
        o.exchange.deadline_ns = 200 + 100 * (int64_t)(seed % 9);
        o.exchange.gossip.measure_every = seed % 5 == 0 ? 7 : 0;
        o.rings = 60 + (int)(seed % 100);
        o.looked = look;
        o.link_most = 500;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % members, (int)(seed / 15) % members);
        world_ok(world_run(&w, 60));
        check(&w, run_until_all_are_there(&w, 60));
        copied += gossip_done.copied;
        world_free(&w);
    }
    print_message("%lld buckets copied\n", (long long)copied);
    assert_true(copied > 300);
}

/* The same where parameters travel encoded: what a pair has agreed on is void when one of the two leaves. */
TEST(test_members_leave_and_join_with_codecs)
{
    static const char *const names[] = {"topk", "modulo", "int8", "randomk", "bf16"};
    int64_t copied = 0, agreed = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        nw_codec_options c = nw_codec_options_default(names[seed % 5]);
        nw_codec *codec;
        c.ratio = 0.1;
        c.shared = false;
        world_ok(nw_codec_create(&codec, &c));
        memset(losses, 0, sizeof losses);
        world_options o = options(3 + (int)(seed % 4), (int)(seed / 5 % WAYS), seed);
        o.with = codec;
        o.exchange.deadline_ns = 300 + 100 * (int64_t)(seed % 9);
        o.rings = 60 + (int)(seed % 100);
        o.link_most = 500;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit(1, 2);
        world_ok(world_run(&w, 60));
        check(&w, run_until_all_are_there(&w, 60));
        copied += gossip_done.copied;
        agreed += gossip_done.agreed;
        world_free(&w);
        nw_codec_free(codec);
    }
    print_message("%lld buckets copied, %lld pairs agreed\n", (long long)copied, (long long)agreed);
    assert_true(copied > 100 && agreed > 1000);
}

/* In every order of events: the watch of member 0 rings while the other is silent, or only slow. */
static int64_t updates;
static void begin(world *x)
{
    gossip_listen();
    world_ok(world_go(x, updates, 0, false));
}
static void check_order(world *x)
{
    int64_t until = x->updates;
    world_require(until == updates);
    if (all_are_quiescent(x)) check(x, until);
}
TEST(test_every_order)
{
    static const struct {
        int members, updates, rings;
        nw_pairing pairing;
    } cases[] = {{2, 2, 2, NW_PAIR_HANDSHAKE}, {2, 1, 3, NW_PAIR_SCHEDULED}, {2, 1, 3, NW_PAIR_FIRST_COME}};
    memset(losses, 0, sizeof losses);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_options o = options(cases[i].members, 0, i);
        gossip_use.how.pairing = cases[i].pairing;
        gossip_use.how.acid = false;
        o.exchange.gossip = gossip_how(o.members);
        o.exchange.deadline_ns = 40;
        o.segments = (const int[]){3, 0};
        o.exact = true;
        o.finals = 0;
        o.rings = cases[i].rings;
        updates = cases[i].updates;
        print_message("pairing %d: %lld orders\n", (int)cases[i].pairing,
                      (long long)world_every_order(&o, begin, check_order, false));
    }
}

/* Members that are not there at the start, up to all but one; some are never. */
TEST(test_late_members)
{
    int64_t copied = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        static bool late[WORLD_MOST];
        int members = 2 + (int)(seed % 6), count = 0;
        for (int m = 1; m < members; m++) count += late[m] = (seed >> (m % 5) & 1) || m == 1;
        memset(losses, 0, sizeof losses);
        world_options o = options(members, (int)(seed % WAYS), seed);
        o.exchange.gossip.late = late;
        world_ok(world_make(&w, &o));
        for (int m = 1; m < members; m++) w.at[m].asleep = late[m];
        world_ok(world_go(&w, 150, 0, false));
        steps(&w, seed % 300);
        for (int m = 1; m < members; m++) w.at[m].asleep = false;
        if (seed % 4 == 0) kill_member(&w, 1);
        world_ok(world_settle(&w));
        assert_int_equal(w.updates, 150);
        check(&w, run_until_all_are_there(&w, 150));
        copied += gossip_done.copied;
        assert_true(seed % 4 == 0 || gossip_done.copied >= BUCKETS * count);
        world_free(&w);
    }
    print_message("%lld buckets copied\n", (long long)copied);
}

/* Snapshots go on: they are means of those who are there. */
TEST(test_snapshots_without_the_lost)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        int members = 3 + (int)(seed % 5);
        memset(losses, 0, sizeof losses);
        taken = 0;
        world_options o = options(members, (int)(seed % WAYS), seed);
        o.exchange.gossip.measure_every = 5;
        o.every = 10;
        o.looked = look;
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, 60, 0, false));
        steps(&w, seed * 3 % 400);
        kill_member(&w, 1 + (int)(seed / 5) % (members - 1));
        world_ok(world_settle(&w));
        assert_int_equal(taken, 60 / 10);
        check(&w, run_until_all_are_there(&w, 60));
        world_free(&w);
    }
}

/* Asked to stop while somebody is away. */
TEST(test_stops_without_the_lost)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        int members = 3 + (int)(seed % 5), lost = 1 + (int)(seed / 5) % (members - 1);
        memset(losses, 0, sizeof losses);
        world_options o = options(members, (int)(seed % WAYS), seed);
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, 1000, 0, false));
        steps(&w, seed % 300);
        kill_member(&w, lost);
        steps(&w, seed * 13 % 500);
        world_ok(world_stop(&w, (int)(seed % 2) * (lost % (members - 1) + 1)));
        world_ok(world_settle(&w));
        assert_true(w.updates < 1000);
        check(&w, run_until_all_are_there(&w, w.updates));
        world_free(&w);
    }
}

/* ---- virtual clusters -------------------------------------------------------------------------------------------- */

enum { RANKS = 8, UPDATES = 600 };
static const int64_t MS = 1000000;

static gossip_rank members[RANKS];
static nw_rank ranks[RANKS];
static nw_cluster *cluster;
static nw_faults *faults;
static nw_driver *driver;
static int64_t counted;
static int drops, backs;

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static nw_status hear_count(void *context, const nw_count *c)
{
    (void)context;
    assert_int_equal(c->updates, ++counted);
    return NW_OK;
}

static void hear_dropped(void *context, int by, int rank, bool back)
{
    (void)context;
    assert_int_equal(by, 0);
    assert_true(rank > 0);
    drops += !back;
    backs += back;
}

static void make_all(const char *graph, nw_pairing pairing, const bool *late)
{
    gossip_use = (gossip_settings){.graph = graph,
                                   .how = {.seed = 3, .rate = 1, .acid = true, .pairing = pairing, .late = late},
                                   .deadline_ns = 50 * MS};
    gossip_listen();
    for (int i = 0; i < RANKS; i++) gossip_make(&members[i], &ranks[i], RANKS, i, 1);
    counted = 0;
    drops = backs = 0;
}

static void free_all(void)
{
    for (int i = 0; i < RANKS; i++) gossip_free(&members[i]);
}

static void open_driver(nw_recorder *recorder, const nw_fault *list, int count)
{
    nw_driver_options o = {
        .counted = hear_count, .recorder = recorder, .timeout_ns = 50 * MS, .hooks = {.dropped = hear_dropped}};
    ok(nw_faults_create(&faults, list, count, RANKS));
    ok(nw_cluster_create(&cluster, RANKS, RANKS, 0, 1));
    cluster->links[0] =
        (nw_cluster_link){.latency_ns = MS / 10, .bandwidth = 1e8, .jitter = {NW_NOISE_EXPONENTIAL, 2.0}};
    for (int i = 0; i < RANKS; i++) cluster->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.3};
    nw_virtual_options v = {.cluster = cluster, .faults = faults, .touch_bytes_per_second = 1e8};
    ok(nw_virtual_create(&driver, &o, &v));
}

static void close_driver(void)
{
    free_all(); /* they hold messages of the driver's */
    nw_driver_free(driver);
    nw_cluster_free(cluster);
    nw_faults_free(faults);
}

static nw_status run_to(int64_t until)
{
    return nw_driver_run(driver, ranks, &(nw_go){.until = until, .batches = INT64_MAX});
}

/* Those who are there have the twin's bits. */
static void check_end(int64_t until, unsigned lost)
{
    const gossip_twin *t = gossip_recompute(gossip_arithmetic(), RANKS);
    int64_t made = 0;
    for (int i = 0; i < RANKS; i++) {
        made += gossip_updates(i);
        losses[i] = lost >> i & 1;
        assert_int_equal(driver->dropped[i], losses[i]);
        if (losses[i]) continue;
        assert_true(nw_rank_is_quiescent(&ranks[i]) && members[i].machine->updates == until);
        assert_memory_equal(members[i].values, t->values[i], gossip_arithmetic()->floats * sizeof(float));
    }
    assert_true(counted == until && made >= until);
    check_pairs(RANKS);
}

static nw_log_header header(void)
{
    nw_log_header h = {.world = RANKS, .ranks = RANKS, .lr_factor = 1};
    return h;
}

/* Repeats what was recorded in the folder, and compares. */
static void replay_all(const char *dir, int runs, const int64_t *until, unsigned lost)
{
    static float before[RANKS][WORLD_FLOATS];
    nw_recording recording;
    const bool *late = gossip_use.how.late;
    for (int i = 0; i < RANKS; i++) memcpy(before[i], members[i].values, sizeof before[i]);
    ok(nw_recording_load(&recording, dir));
    assert_int_equal(recording.parts[0].runs, runs);
    close_driver();
    make_all(gossip_use.graph, gossip_use.how.pairing, late);
    nw_driver_options o = {.counted = hear_count};
    ok(nw_replay_create(&driver, &o, &recording.parts[0]));
    for (int i = 0; i < runs; i++) ok(run_to(until[i]));
    for (int i = 0; i < RANKS; i++)
        if (!(lost >> i & 1)) assert_memory_equal(before[i], members[i].values, sizeof before[i]);
    free_all();
    nw_driver_free(driver);
    nw_recording_free(&recording);
}

/* Runs with faults, in two runs of the driver; replays it. */
static void run_with(const nw_fault *list, int count, unsigned lost, const char *graph, nw_pairing pairing,
                     const bool *late)
{
    static int number;
    char dir[32];
    nw_recorder *recorder;
    const int64_t until[] = {UPDATES, UPDATES + 200};
    nw_log_header h = header();
    snprintf(dir, sizeof dir, "run%d", number++);
    make_all(graph, pairing, late);
    ok(nw_recorder_create(&recorder));
    ok(nw_recorder_open(recorder, dir, &h, NULL));
    open_driver(recorder, list, count);
    for (int i = 0; i < 2; i++) {
        nw_status status = run_to(until[i]);
        if (status != NW_OK) fail_msg("%s, pairing %d: %s", graph, (int)pairing, nw_error_message());
    }
    check_end(until[1], lost);
    print_message("%s, pairing %d: %d drops, %d returns, %lld buckets copied\n", graph, (int)pairing, drops, backs,
                  (long long)gossip_done.copied);
    ok(nw_recorder_close(recorder, true));
    nw_recorder_free(recorder);
    replay_all(dir, 2, until, lost);
}

static void with_all(const nw_fault *list, int count, unsigned lost, const bool *late)
{
    static const char *const graphs[] = {"cycle", "complete", "star"};
    for (int k = 0; k < 3; k++) {
        run_with(list, count, lost, graphs[k], (nw_pairing)k, late);
        run_with(list, count, lost, "cycle", (nw_pairing)k, late);
    }
}

TEST(test_a_virtual_rank_dies)
{
    const nw_fault dies = {.kind = NW_FAULT_DIE, .rank = 3, .at = 20 * MS, .until = NW_NEVER};
    with_all(&dies, 1, 1u << 3, NULL);
    const nw_fault two[] = {{.kind = NW_FAULT_DIE, .rank = 3, .at = 20 * MS, .until = NW_NEVER},
                            {.kind = NW_FAULT_STOP, .rank = 6, .at = 20 * MS, .until = NW_NEVER}};
    with_all(two, 2, 1u << 3 | 1u << 6, NULL);
}

TEST(test_a_virtual_rank_pauses_and_returns)
{
    const nw_fault pauses = {
        .kind = NW_FAULT_PAUSE, .rank = 2, .at = 20 * MS, .until = 90 * MS, .duration_ns = 70 * MS};
    with_all(&pauses, 1, 0, NULL);
    assert_true(drops == 0); /* of the replay, which has no hook */
}

TEST(test_a_virtual_rank_is_late)
{
    static const bool late[RANKS] = {[5] = true};
    const nw_fault joins = {.kind = NW_FAULT_JOIN, .rank = 5, .at = 30 * MS, .until = NW_NEVER};
    with_all(&joins, 1, 0, late);
}

/* Whoever is lost, if it counts, ends the run: in one sentence. */
TEST(test_member_0_is_lost)
{
    const nw_fault dies = {.kind = NW_FAULT_DIE, .rank = 0, .at = 20 * MS, .until = NW_NEVER};
    make_all("cycle", NW_PAIR_HANDSHAKE, NULL);
    open_driver(NULL, &dies, 1);
    assert_int_equal(run_to(UPDATES), NW_E_PEER);
    assert_non_null(strstr(nw_error_message(), " for rank 0: "));
    close_driver();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_is_lost_at_every_moment),
        cmocka_unit_test(test_down_to_one),
        cmocka_unit_test(test_members_sleep_and_return),
        cmocka_unit_test(test_members_are_dropped_although_they_live),
        cmocka_unit_test(test_members_leave_and_join_with_codecs),
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_late_members),
        cmocka_unit_test(test_snapshots_without_the_lost),
        cmocka_unit_test(test_stops_without_the_lost),
        CASE(test_a_virtual_rank_dies),
        CASE(test_a_virtual_rank_pauses_and_returns),
        CASE(test_a_virtual_rank_is_late),
        cmocka_unit_test(test_member_0_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
