/*
 * test_gossip.c - gossip in worlds that the test moves (support/world.h), in every order of events, and on virtual
 * clusters; all by the twins of support/gossip_ranks.h. tests/ranks/gossip.c is the same over MPI.
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

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

static world w;

/* Ways of pairing, with and without momentum. */
enum { WAYS = 10 };
static gossip_settings way(int index, uint64_t seed)
{
    static const nw_pairing pairings[] = {NW_PAIR_HANDSHAKE, NW_PAIR_FIRST_COME, NW_PAIR_SCHEDULED};
    static const char *const graphs[] = {"cycle", "complete", "exponential", "star", "torus"};
    gossip_settings s = {.graph = graphs[index % 5],
                         .how = {.seed = seed, .rate = 1 + index % 2, .pairing = pairings[index % 3], .acid = index % 2}};
    s.how.deterministic_coms = index % 4 == 3;
    s.how.deterministic_neighbor = index % 5 < 2 && index > 4;
    return s;
}

/* A link holds at most the buckets of a pair, a proposal or an answer, those of a mean, and leases or what is made. */
static world_options options(int members, int index, uint64_t seed)
{
    gossip_use = way(index, seed);
    gossip_listen();
    return (world_options){.exchange = {.name = "gossip", .gossip = gossip_how(members), .layout.bucket_bytes = 800},
                           .members = members,
                           .rings = 1000,
                           .interrupts = true,
                           .link_most = 24,
                           .begun = gossip_begun,
                           .seed = seed,
                           .finals = seed};
}

/* All are quiescent, every update was counted once, all have the twin's bits, and the sum is what it must be. */
static void check(const world *x, int64_t updates)
{
    int64_t sum = 0;
    world_check_quiescent(x, updates);
    const gossip_twin *t = gossip_recompute(x, x->o.members);
    for (int m = 0; m < x->o.members; m++) {
        world_require(memcmp(x->at[m].params.values, t->values[m], x->floats * sizeof(float)) == 0);
        world_require(x->updates_of[m] == gossip_updates(m) && x->last_said[m] == x->updates_of[m]);
        sum += x->updates_of[m];
    }
    world_require(sum == updates);
    double error = gossip_sum_error(t, x->o.members, x->floats);
    world_require(x->o.exact && !gossip_use.how.acid ? error == 0 : error < 1e-4);
}

static int64_t updates;
static void begin(world *x)
{
    gossip_listen();
    world_ok(world_go(x, updates, 0, false));
}
static void check_order(world *x) { check(x, updates); }

TEST(test_every_order)
{
    static const struct {
        int members, updates, rings;
        nw_pairing pairing;
        bool acid;
    } cases[] = {{2, 2, 3, NW_PAIR_HANDSHAKE, false},  {2, 3, 2, NW_PAIR_HANDSHAKE, true},
                 {3, 2, 2, NW_PAIR_HANDSHAKE, false},  {2, 2, 3, NW_PAIR_SCHEDULED, true},
                 {3, 2, 2, NW_PAIR_SCHEDULED, false},  {2, 2, 3, NW_PAIR_FIRST_COME, true},
                 {3, 2, 2, NW_PAIR_FIRST_COME, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_options o = options(cases[i].members, 0, i);
        gossip_use.how.pairing = cases[i].pairing;
        gossip_use.how.acid = cases[i].acid;
        o.exchange.gossip = gossip_how(o.members);
        o.segments = (const int[]){3, 0};
        o.exact = true;
        o.finals = 0;
        o.rings = cases[i].rings;
        updates = cases[i].updates;
        print_message("pairing %d, %d members, %lld updates, %d timers: %lld orders\n", (int)cases[i].pairing, o.members,
                      (long long)updates, o.rings, (long long)world_every_order(&o, begin, check_order, false));
    }
}

/* Some starve a link or a member for long. */
TEST(test_random_orders)
{
    static const uint16_t some[] = {1, 3, 4, 8, 11, 12, 13};
    int64_t approached[WAYS] = {0}, amid = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        int members = 1 + (int)(seed % 7), index = (int)(seed % WAYS);
        world_options o = options(members, index, seed);
        o.exchange.accumulation = 1 + (int)(seed / 7 % 2);
        o.interrupts = seed / 2 % 4 > 0;
        o.rings = (int)(seed / 3 % 3) * 60;
        if (seed % 4 == 3) o.exact = true, o.rings = 6;
        if (seed % 5 == 1) o.ranks = some, o.ranks_in_world = 14;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % members, (int)(seed / 15) % members);
        for (int64_t until = 0; until <= 36; until += 12) { /* and once nothing is to be done */
            world_ok(world_run(&w, until));
            check(&w, until);
        }
        world_free(&w);
        approached[index] += gossip_done.approached;
        amid += gossip_done.amid;
    }
    for (int i = 0; i < WAYS; i++) {
        print_message("way %d: %lld halves of pairs\n", i, (long long)approached[i]);
        assert_true(approached[i] > 100);
    }
    assert_true(amid > 1000);
}

static void steps(world *x, uint64_t count)
{
    nw_status status = NW_OK;
    while (count-- > 0 && world_step(x, &status)) world_ok(status);
}

/* Anybody is asked to at any moment; then the same members go on, or others that know nothing but what was saved. */
TEST(test_stops_and_goes_on)
{
    static world before;
    int early = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int members = 1 + (int)(seed % 7), index = (int)(seed / 2 % WAYS);
        bool resumed = seed / 2 % 2;
        world_options o = options(members, index, seed);
        world *x = resumed ? &before : &w;
        world_ok(world_make(x, &o));
        world_ok(world_go(x, 40, 0, false));
        steps(x, seed % 200);
        int64_t had = x->updates;
        for (uint64_t i = 0; i <= seed % 2; i++) world_ok(world_stop(x, (int)(seed / 7 + seed * i) % members));
        world_ok(world_settle(x));
        check(x, x->updates);
        assert_true(x->updates <= had + 8 * members);
        early += x->updates < 40;
        if (resumed) {
            world_ok(world_make(&w, &o));
            world_resume(&w, &before);
            world_free(&before);
        }
        world_ok(world_run(&w, 60));
        check(&w, 60);
        world_free(&w);
    }
    assert_true(early > 200);
}

/* Learning rates follow what the world has made, however many leases members hold ahead: to a few gradients of each,
 * of which the world makes thousands. */
TEST(test_rates_follow_the_world)
{
    int64_t worst = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        int members = 2 + (int)(seed % 5);
        world_options o = options(members, (int)(seed % WAYS), seed);
        o.exchange.accumulation = 1 + (int)(seed % 2);
        world_ok(world_make(&w, &o));
        world_ok(world_run(&w, 3000));
        int64_t error = gossip_clock_error(o.exchange.accumulation) / o.exchange.accumulation;
        if (error / members > worst) worst = error / members;
        world_free(&w);
    }
    print_message("rates are at most %lld gradients of each member off\n", (long long)worst);
    assert_true(worst <= 10);
}

/* Whoever is suspended, the member that counts too, holds up nobody's gradients: all others use the leases that they
 * have ahead. Nothing is lost by it. */
TEST(test_a_member_sleeps)
{
    int64_t approached = 0, meanwhile = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        int members = 3 + (int)(seed % 5), sleeper = (int)(seed / 5) % members;
        world_options o = options(members, (int)(seed % WAYS), seed);
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, 120, 0, false));
        steps(&w, 30 + seed % 100);
        int64_t before = gossip_done.approached, made = 0;
        for (int m = 0; m < members; m++) made -= gossip_updates(m);
        w.at[sleeper].asleep = true;
        w.o.rings = w.rings + 200;
        while (world_moves(&w) != 0) steps(&w, 1);
        for (int m = 0; m < members; m++) made += gossip_updates(m);
        assert_true(sleeper == 0 || w.updates >= 120 - 10); /* all but its leases */
        assert_true(made >= members - 1);
        meanwhile += sleeper == 0 ? made : 0;
        approached += gossip_done.approached - before;
        w.at[sleeper].asleep = false;
        world_ok(world_settle(&w));
        check(&w, 120);
        world_free(&w);
    }
    print_message("%lld halves of pairs while a member slept, %lld updates while member 0 did\n", (long long)approached,
                  (long long)meanwhile);
    assert_true(approached > 1000 && meanwhile > 500);
}

/* Snapshots are means of all members, near to what these have, and as many as were asked for; looks at the distances
 * come on top. */
static int64_t looks;
static void look(const world *x, const nw_snapshot *s)
{
    world_require(isfinite(s->spread) && s->spread >= 0);
    world_require(s->unasked ? s->updates % 7 == 0 : s->updates % 20 == 0);
    for (size_t i = 0; i < x->floats; i++) world_require(isfinite(s->values[i]));
    looks += s->unasked;
}

TEST(test_snapshots)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        world_options o = options(1 + (int)(seed % 7), (int)(seed / 7 % WAYS), seed);
        o.exchange.gossip.measure_every = 7;
        o.every = 20;
        o.looked = look;
        world_ok(world_make(&w, &o));
        world_ok(world_run(&w, 60));
        check(&w, 60);
        assert_int_equal(w.taken, 60 / 20);
        world_free(&w);
    }
    assert_true(looks > 200);
}

/* ---- virtual clusters -------------------------------------------------------------------------------------------- */

enum { RANKS = 8, SLOW = 5 /* a rank */, UPDATES = 400, EARLY = 150 };
static const int64_t MS = 1000000;

static gossip_rank members[RANKS];
static nw_rank ranks[RANKS];
static nw_cluster *cluster;
static nw_faults *faults;
static nw_driver *driver;
static volatile sig_atomic_t stop;
static bool acid;
static int64_t counted, stop_at, counted_at[UPDATES + 1]; /* in virtual time */

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static nw_status hear_count(void *context, const nw_count *c)
{
    (void)context;
    assert_int_equal(c->updates, ++counted);
    if (counted <= UPDATES) counted_at[counted] = nw_driver_now(driver, 0);
    if (counted == stop_at) stop = 1;
    return NW_OK;
}

static void make_members(int accumulation)
{
    for (int i = 0; i < RANKS; i++) gossip_make(&members[i], &ranks[i], RANKS, i, accumulation);
}

static void free_members(void)
{
    for (int i = 0; i < RANKS; i++) gossip_free(&members[i]);
}

/* Members that begin anew, and nothing is counted. */
static void begin_again(int accumulation, double rate)
{
    gossip_use = (gossip_settings){.graph = "cycle", .how = {.seed = 3, .rate = rate, .acid = acid}};
    gossip_listen();
    make_members(accumulation);
    counted = 0;
    stop_at = stop = 0;
}

static void replace_members(int accumulation)
{
    for (int i = 0; i < RANKS; i++) gossip_replace(&members[i], &ranks[i], RANKS, accumulation);
}

/* Ranks of different speeds, noise on all of them and on their links. */
static void open_driver(nw_recorder *recorder)
{
    static const double slowdowns[RANKS] = {1, 1.3, 1, 2, 1.1, 3, 1, 1.6};
    nw_driver_options o = {.stop = &stop, .counted = hear_count, .recorder = recorder, .timeout_ns = 1000 * MS};
    ok(nw_cluster_create(&cluster, RANKS, RANKS, 0, 1));
    cluster->links[0] =
        (nw_cluster_link){.latency_ns = MS / 10, .bandwidth = 1e8, .jitter = {NW_NOISE_EXPONENTIAL, 2.0}};
    for (int i = 0; i < RANKS; i++) {
        cluster->ranks[i].slowdown = slowdowns[i];
        cluster->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.3};
    }
    nw_virtual_options v = {.cluster = cluster, .faults = faults, .touch_bytes_per_second = 1e8};
    ok(nw_virtual_create(&driver, &o, &v));
}

static void close_driver(void)
{
    nw_driver_free(driver);
    nw_cluster_free(cluster);
}

static nw_status run_to(int64_t until)
{
    return nw_driver_run(driver, ranks, &(nw_go){.until = until, .batches = INT64_MAX});
}

/* Until it is asked to stop, early. */
static void run_and_stop(void)
{
    stop_at = EARLY;
    ok(run_to(UPDATES));
    assert_true(counted >= EARLY && counted < EARLY + 3 * RANKS);
    stop = 0;
}

typedef struct bits {
    float values[RANKS][WORLD_FLOATS];
} bits;

static const bits *present(void)
{
    static bits b[2];
    static int next;
    next = 1 - next;
    for (int i = 0; i < RANKS; i++) memcpy(b[next].values[i], members[i].values, sizeof b[next].values[i]);
    return &b[next];
}

/* All are quiescent after all updates, with the twin's bits and sum. */
static const bits *check_end(void)
{
    const gossip_twin *t = gossip_recompute(gossip_arithmetic(), RANKS);
    int64_t sum = 0;
    for (int i = 0; i < RANKS; i++) {
        assert_true(nw_rank_is_quiescent(&ranks[i]) && members[i].machine->updates == UPDATES);
        assert_memory_equal(members[i].values, t->values[i], sizeof t->values[i]);
        sum += gossip_updates(i);
    }
    assert_true(sum == UPDATES && (counted == UPDATES || counted == 0)); /* a replay counts for itself */
    assert_true(gossip_sum_error(t, RANKS, gossip_arithmetic()->floats) < 1e-4);
    return present();
}

/* The mean square of what members differ from their mean. */
static double distance(const bits *b)
{
    double sum = 0;
    size_t floats = gossip_arithmetic()->floats;
    for (size_t i = 0; i < floats; i++) {
        double mean = 0;
        for (int m = 0; m < RANKS; m++) mean += (double)b->values[m][i] / RANKS;
        for (int m = 0; m < RANKS; m++) sum += pow((double)b->values[m][i] - mean, 2);
    }
    return sum / (double)(RANKS * floats);
}

static const bits *run_whole(double rate, int64_t *ended)
{
    begin_again(1, rate);
    open_driver(NULL);
    ok(run_to(UPDATES));
    const bits *b = check_end();
    *ended = nw_driver_now(driver, 0);
    close_driver();
    free_members();
    return b;
}

TEST(test_virtual_ranks_average_while_they_compute)
{
    int64_t ended, again;
    double apart = distance(run_whole(0, &ended));
    assert_int_equal(gossip_done.approached, 0);
    const bits *first = run_whole(1, &ended);
    print_message("%lld halves of pairs, %lld of them in the middle of a pass; distance %.3g, and %.3g without\n",
                  (long long)gossip_done.approached, (long long)gossip_done.amid, distance(first), apart);
    assert_true(gossip_done.approached > UPDATES / 2 && gossip_done.amid > UPDATES / 4);
    assert_true(gossip_updates(0) > 3 * gossip_updates(SLOW) / 2); /* at their own pace */
    assert_true(distance(first) < 0.5 * apart);
    assert_memory_equal(run_whole(1, &again), first, sizeof *first);
    assert_int_equal(again, ended);
}

/* A checkpoint at a stop: others go on from it as these would have. */
TEST(test_virtual_ranks_stop_and_resume)
{
    for (int accumulation = 1; accumulation <= 2; accumulation++) {
        bits whole;
        for (int resumed = 0; resumed < 2; resumed++) {
            int64_t *clocks;
            size_t count;
            begin_again(accumulation, 1);
            open_driver(NULL);
            run_and_stop();
            if (resumed) {
                replace_members(accumulation);
                ok(driver->ops->save(driver, &clocks, &count));
                close_driver();
                open_driver(NULL);
                ok(driver->ops->load(driver, clocks, count));
                free(clocks);
            }
            ok(run_to(UPDATES));
            const bits *b = check_end();
            if (resumed)
                assert_memory_equal(b, &whole, sizeof whole);
            else
                whole = *b;
            close_driver();
            free_members();
        }
    }
}

/* ---- replays ---- */

static nw_recorder *open_recorder(int64_t first_step)
{
    nw_recorder *r;
    nw_log_header h = {.world = RANKS, .ranks = RANKS, .first_step = first_step, .lr_factor = 1};
    ok(nw_recorder_create(&r));
    ok(nw_recorder_open(r, folder, &h, NULL));
    return r;
}

static void close_recorder(nw_recorder *r)
{
    ok(nw_recorder_close(r, true));
    nw_recorder_free(r);
}

/* One part of a run that stops early and goes on; or two, if others go on. */
static const bits *record(int accumulation, bool resumed)
{
    nw_recorder *r = open_recorder(0);
    begin_again(accumulation, 1);
    open_driver(r);
    run_and_stop();
    if (resumed) {
        nw_recorder_saved(r, counted, 0);
        close_recorder(r);
        r = open_recorder(counted);
        replace_members(accumulation);
        close_driver();
        open_driver(r);
    }
    ok(run_to(UPDATES));
    const bits *b = check_end();
    close_recorder(r);
    close_driver();
    free_members();
    return b;
}

static const bits *replay(int accumulation)
{
    nw_recording recording;
    begin_again(accumulation, 1);
    ok(nw_recording_load(&recording, folder));
    for (int i = 0; i < recording.count; i++) {
        if (i > 0) replace_members(accumulation);
        ok(nw_replay_create(&driver, &(nw_driver_options){0}, &recording.parts[i]));
        while (!driver->over) ok(run_to(UPDATES));
        nw_driver_free(driver);
    }
    const bits *b = check_end();
    free_members();
    nw_recording_free(&recording);
    return b;
}

TEST(test_a_run_is_replayed)
{
    for (int accumulation = 1; accumulation <= 2; accumulation++) {
        const bits *recorded = record(accumulation, false);
        gossip_done_counts done = gossip_done;
        assert_memory_equal(replay(accumulation), recorded, sizeof *recorded);
        assert_memory_equal(&gossip_done, &done, sizeof done);
    }
}

TEST(test_a_run_is_replayed_across_a_resume)
{
    const bits *recorded = record(1, true);
    assert_memory_equal(replay(1), recorded, sizeof *recorded);
}

/* ---- faults ---- */

/* A rank stands still for the time of a hundred gradients: the others go on, and it makes its updates later. */
TEST(test_others_go_on_without_a_rank_that_pauses)
{
    const int64_t from = 20 * MS, until = 120 * MS;
    nw_fault pause = {.kind = NW_FAULT_PAUSE, .rank = 2, .at = from, .until = until, .duration_ns = until - from};
    ok(nw_faults_create(&faults, &pause, 1, RANKS));
    begin_again(1, 1);
    open_driver(NULL);
    ok(run_to(UPDATES));
    check_end();
    int meanwhile = 0;
    for (int i = 1; i <= UPDATES; i++) meanwhile += counted_at[i] > from && counted_at[i] < until;
    print_message("%d updates meanwhile\n", meanwhile);
    assert_true(meanwhile > UPDATES / 2 && counted_at[UPDATES] > until);
    close_driver();
    free_members();
    nw_faults_free(faults);
    faults = NULL;
}

/* Timers ring for ever, but nobody waits so long for a rank that is gone. */
TEST(test_a_lost_rank_is_named_although_timers_ring)
{
    nw_fault stops = {.kind = NW_FAULT_STOP, .rank = 0, .at = 20 * MS, .until = NW_NEVER};
    ok(nw_faults_create(&faults, &stops, 1, RANKS));
    begin_again(1, 1);
    open_driver(NULL);
    assert_int_equal(run_to(UPDATES), NW_E_PEER);
    assert_true(strstr(nw_error_message(), " for rank 0: ") || strstr(nw_error_message(), " for ranks 0 and "));
    free_members(); /* they hold messages of the driver's */
    close_driver();
    nw_faults_free(faults);
    faults = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_stops_and_goes_on),
        cmocka_unit_test(test_rates_follow_the_world),
        cmocka_unit_test(test_a_member_sleeps),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_virtual_ranks_average_while_they_compute),
        cmocka_unit_test(test_virtual_ranks_stop_and_resume),
        CASE(test_a_run_is_replayed),
        CASE(test_a_run_is_replayed_across_a_resume),
        cmocka_unit_test(test_others_go_on_without_a_rank_that_pauses),
        cmocka_unit_test(test_a_lost_rank_is_named_although_timers_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
