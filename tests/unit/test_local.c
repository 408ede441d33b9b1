/*
 * test_local.c - the local exchange (Local SGD, DiLoCo, NoLoCo) against a plain loop, in many and in all orders of
 * events, stopped anywhere, saved anywhere, and with messages that are wrong. support/world.h moves it by hand.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"
#include "support/blocks.h"
#include "support/state_store.h"
#include "support/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static const int ONE[] = {40, 0};
static const int TWO[] = {32, 32, 0};
static const int TINY[] = {3, 1, 7, 0};
static const int MANY[] = {64, 5, 100, 33, 2, 250, 0};
static world w;

static world_options options(int members, int every, int delay, int fragments, const int *segments, uint64_t seed)
{
    int buckets = 0;
    while (segments[buckets]) buckets++;
    return (world_options){.exchange = {.name = "local",
                                        .delay = delay,
                                        .sync_every = every,
                                        .seed = 7,
                                        .layout = {.bucket_bytes = 128, .fragments = fragments}},
                           .members = members,
                           .segments = segments,
                           .seed = seed,
                           .link_most = 2 * 2 * (delay + 1) * buckets + 4}; /* and words about the end of the run */
}

/* ---- the twin: what all ranks must have, in plain loops ---- */

typedef float vector[WORLD_FLOATS];
enum { PARTS = 8 };

static struct twin {
    const world *x;
    int64_t steps, batches, clock, added;
    vector theta[WORLD_MOST], values[WORLD_MOST], gradient[WORLD_MOST], before[WORLD_MOST], mean[WORLD_MOST],
        momentum[WORLD_MOST];
    struct {
        bool pending;
        int64_t given, level, made;
    } part[PARTS];
} t;

static void twin_begin(const world *x)
{
    memset(&t, 0, sizeof t);
    t.x = x;
    for (int r = 0; r < x->o.members; r++)
        for (size_t i = 0; i < x->floats; i++) t.theta[r][i] = t.values[r][i] = world_start(i);
}

static int parts(void) { return t.x->o.exchange.layout.fragments > 1 ? t.x->o.exchange.layout.fragments : 1; }
static size_t begins(int f) { return nw_layout_fragment(&t.x->at[0].params.learned, parts(), f); }
static void coded(float *x, size_t count) { pass_codec(t.x->codec, x, count); }

static void give_to_all(int f)
{
    static vector term;
    int ranks = t.x->o.members;
    size_t first = begins(f), end = begins(f + 1);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = first; i < end; i++) term[i] = t.theta[r][i] - t.values[r][i];
        coded(term + first, end - first);
        for (size_t i = first; i < end; i++) t.mean[0][i] = r ? t.mean[0][i] + term[i] : term[i];
    }
    for (size_t i = first; i < end; i++) t.mean[0][i] *= 1.0f / (float)ranks;
    coded(t.mean[0] + first, end - first);
    for (int r = 1; r < ranks; r++) memcpy(t.mean[r] + first, t.mean[0] + first, (end - first) * sizeof(float));
}

static void give_to_partners(int f, int64_t round)
{
    static vector theirs;
    uint32_t order[WORLD_MOST];
    size_t first = begins(f), end = begins(f + 1);
    for (int r = 0; r < t.x->o.members; r++) {
        int p = nw_local_partner((uint64_t)t.x->o.exchange.seed, round, f, r, t.x->o.members, order);
        memcpy(theirs, t.values[p], sizeof theirs);
        coded(theirs + first, end - first);
        for (size_t i = first; i < end; i++)
            t.mean[r][i] = t.theta[r][i] - (p == r ? t.values[r][i] : 0.5f * (t.values[r][i] + theirs[i]));
    }
}

static void give(int f, bool adds)
{
    t.part[f].pending = true;
    t.part[f].given = t.steps;
    for (int r = 0; r < t.x->o.members; r++)
        for (size_t i = begins(f); i < begins(f + 1); i++) t.before[r][i] = t.values[r][i];
    if (t.x->o.exchange.pairs)
        give_to_partners(f, (t.steps - 1) / t.x->o.exchange.sync_every + t.added + adds);
    else
        give_to_all(f);
}

static void apply(int f)
{
    size_t first = begins(f), end = begins(f + 1);
    bool still = t.part[f].given == t.steps;
    for (int r = 0; r < t.x->o.members; r++) {
        world_outer_update(t.x->o.averages, t.theta[r], t.momentum[r], t.mean[r], first, end - first, 1,
                           t.part[f].made);
        for (size_t i = first; i < end; i++)
            t.values[r][i] = still ? t.theta[r][i] : t.values[r][i] + (t.theta[r][i] - t.before[r][i]);
    }
    t.part[f].made++;
    t.part[f].pending = false;
    if (still) t.part[f].level = t.steps;
}

/* A batch of each rank, and the outer step that is due behind it. */
static void twin_batch(void)
{
    int64_t k = t.x->o.exchange.accumulation ? t.x->o.exchange.accumulation : 1, every = t.x->o.exchange.sync_every;
    for (int r = 0; r < t.x->o.members; r++)
        world_gradient(t.x, r, t.batches, t.values[r], t.batches % k > 0, t.gradient[r]);
    if (++t.batches % k > 0) return;
    for (int r = 0; r < t.x->o.members; r++) world_update(t.values[r], t.gradient[r], 0, t.x->floats, 1, t.batches - 1);
    t.steps++;
    for (int f = 0; f < parts(); f++) {
        if ((t.steps - (f + 1) * every / parts()) % every != 0) continue;
        if (t.part[f].pending) apply(f);
        give(f, false);
        if (t.x->o.exchange.delay == 0) apply(f);
    }
}

static void twin_drain(void)
{
    bool adds = false;
    for (int f = 0; f < parts(); f++)
        if (t.part[f].pending) apply(f);
    for (int f = 0; f < parts(); f++) {
        if (t.part[f].level == t.steps) continue;
        give(f, true);
        apply(f);
        adds = true;
    }
    t.added += adds ? 2 : 0;
}

static void twin_to(int64_t batches, bool drain)
{
    while (t.batches < batches) twin_batch();
    if (drain) twin_drain();
}

static void compare(const char *what, int member, const float *has, const float *wants)
{
    for (size_t i = 0; i < t.x->floats; i++)
        if (memcmp(&has[i], &wants[i], sizeof(float)) != 0)
            fail_msg("after %d steps member %d has %s %.9g at %d, not %.9g", (int)t.steps, member, what, (double)has[i],
                     (int)i, (double)wants[i]);
}

static void check(void)
{
    world_check_quiescent(t.x, t.steps);
    for (int r = 0; r < t.x->o.members; r++) {
        compare("outer", r, t.x->at[r].rank.machine->outer, t.theta[r]);
        compare("values", r, t.x->at[r].params.values, t.values[r]);
        if (!t.x->o.exchange.pairs) compare("the outer of rank 0,", r, t.theta[r], t.theta[0]);
    }
}

/* A run to so many steps, and the same in the twin. */
static void run(int64_t until, bool drain)
{
    world_ok(world_go(&w, until, 0, drain));
    world_ok(world_settle(&w));
    twin_to(until, drain);
    check();
}

static void begin_case(const world_options *o)
{
    world_ok(world_make(&w, o));
    twin_begin(&w);
}

static void check_case(const world_options *o)
{
    begin_case(o);
    run(5, false);
    run(5, true);
    for (int r = 0; r < o->members; r++) compare("of its own values", r, w.at[r].params.values, t.theta[r]);
    run(5, true); /* there is nothing left to do */
    run(6, false);
    run(13, false);
    run(24, true);
    run(25, true);
    world_free(&w);
}

TEST(test_all_ranks_have_the_twins_bits)
{
    static const char *const CODECS[] = {"none", "fp16", "bf16"};
    static const int *const SEGMENTS[] = {ONE, TWO, TINY, MANY};
    static const int RANKS[] = {1, 2, 3, 5}, EVERY[] = {1, 2, 4, 7}, FRAGMENTS[] = {1, 1, 3, 6};
    uint64_t seed = 0;
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            for (int e = 0; e < 4; e++)
                for (int ways = 0; ways < 32; ways++) {
                    int segments = 0;
                    while (SEGMENTS[s][segments]) segments++;
                    int f = FRAGMENTS[s == 3 ? e : 0] < EVERY[e] ? FRAGMENTS[s == 3 ? e : 0] : EVERY[e];
                    if (s == 1 && e > 0) f = 2;
                    world_options o = options(RANKS[r], EVERY[e], ways & 1, f, SEGMENTS[s], ++seed);
                    o.exchange.pairs = ways & 2;
                    o.finals = ways & 4 ? seed : 0;
                    o.bare = ways & 8;
                    o.interrupts = ways & 16;
                    o.codec = CODECS[seed % 3];
                    o.averages = seed / 3 % 2;
                    check_case(&o);
                }
}

/* Members are ranks of a larger world. */
TEST(test_groups_are_not_the_world)
{
    for (int ways = 0; ways < 4; ways++) {
        world_options o = options(3, 3, ways & 1, 2, MANY, 7);
        o.exchange.pairs = ways & 2;
        o.ranks = (const uint16_t[]){1, 3, 4};
        o.ranks_in_world = 6;
        check_case(&o);
    }
}

/* With an outer step behind every inner one, and plain averaging, it is allreduce, but for rounding. */
TEST(test_every_step_averaged_is_allreduce)
{
    static world other;
    for (int ranks = 1; ranks <= 4; ranks++) {
        world_options o = options(ranks, 1, 0, 1, MANY, 9);
        o.averages = true;
        world_ok(world_make(&w, &o));
        o.exchange.name = "allreduce";
        world_ok(world_make(&other, &o));
        world_ok(world_run(&w, 20));
        world_ok(world_run(&other, 20));
        double worst = 0;
        for (size_t i = 0; i < w.floats; i++)
            worst = fmax(worst, fabs((double)w.at[0].params.values[i] - (double)other.at[0].params.values[i]));
        if (worst > 2e-6) fail_msg("%d ranks: values differ by %g", ranks, worst);
        world_free(&w);
        world_free(&other);
    }
}

/* Batches of a run that are no multiple of those of a gradient: the next run goes on with it. */
TEST(test_gradients_go_on_over_the_end_of_a_run)
{
    for (uint64_t seed = 0; seed < 120; seed++) {
        int64_t k = 2 + (int64_t)(seed % 2), first = 1 + (int64_t)(seed / 2 % 7), all = k * 8;
        bool drain = seed / 18 % 2;
        world_options o = options(1 + (int)(seed % 3), 3, (int)(seed / 3 % 2), 1 + (int)(seed / 6 % 2), TWO, seed);
        o.exchange.pairs = seed / 36 % 2;
        o.exchange.accumulation = (int)k;
        o.finals = seed;
        begin_case(&o);
        world_ok(world_go(&w, first / k, first, drain));
        world_ok(world_settle(&w));
        twin_to(first, drain);
        check();
        world_ok(world_go(&w, 8, all - first, false));
        world_ok(world_settle(&w));
        twin_to(all, false);
        check();
        world_free(&w);
    }
}

/* ---- orders ---- */

static world_options any(uint64_t seed)
{
    int fragments = 1 + (int)(seed / 4 % 3), ranks = 2 + (int)(seed % 4);
    world_options o = options(ranks, fragments + (int)(seed / 12 % 3), (int)(seed / 2 % 2), fragments, MANY, seed);
    o.exchange.pairs = seed / 24 % 2;
    o.finals = seed / 8 % 2 ? seed : 0;
    o.interrupts = seed / 16 % 2;
    if (o.exchange.pairs) o.link_most = 0; /* one who is slow gets a model from each of the others */
    return o;
}

/* Some starve a link or a rank for long. */
static void starve(uint64_t seed)
{
    int ranks = w.o.members;
    if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % ranks, (int)(seed / 15) % ranks);
}

TEST(test_random_orders)
{
    for (uint64_t seed = 0; seed < 1500; seed++) {
        world_options o = any(seed);
        begin_case(&o);
        starve(seed);
        run(11, seed % 2);
        world_free(&w);
    }
}

static int64_t steps;
static bool draining;
static void begin(world *x) { world_ok(world_go(x, steps, 0, draining)); }

static void check_twin(world *x)
{
    twin_begin(x);
    twin_to(steps, draining);
    check();
}

static int64_t every_order(const world_options *o, int64_t of_steps, bool drain)
{
    steps = of_steps;
    draining = drain;
    int64_t orders = world_every_order(o, begin, check_twin, false);
    print_message("%d ranks, delay %d, %s: %lld orders\n", o->members, o->exchange.delay,
                  o->exchange.pairs ? "pairs" : "all", (long long)orders);
    return orders;
}

TEST(test_every_order_of_two_ranks)
{
    for (int ways = 0; ways < 4; ways++) {
        world_options o = options(2, 1, ways & 1, 1, (const int[]){16, 0}, 3);
        o.exchange.pairs = ways & 2;
        assert_true(every_order(&o, 2, ways & 1) > 10);
    }
}

static void begin_and_stop(world *x)
{
    world_ok(world_go(x, steps, 0, true));
    world_ok(world_stop(x, 1));
}

/* Stopped as soon as it began, by a rank that is not the first: its word comes before all else that it says. With the
 * other's differences it may get past the first outer step meanwhile, but not past the second. */
static int ended_at[5];
static void check_stopped(world *x)
{
    assert_in_range(x->updates, 1, 4);
    ended_at[x->updates]++;
    twin_begin(x);
    twin_to(x->updates, false);
    check();
}

TEST(test_every_order_of_a_stop)
{
    world_options o = options(2, 2, 0, 1, (const int[]){16, 0}, 3);
    steps = 6;
    print_message("%lld orders of a stop\n", (long long)world_every_order(&o, begin_and_stop, check_stopped, false));
    assert_true(ended_at[1] > 0 && ended_at[2] > 0 && ended_at[4] > 0);
}

/* ---- stopping ---- */

/* A rank is asked at any moment: all end after the same step, soon, and go on as if nothing had been. */
TEST(test_all_stop_after_the_same_step)
{
    int early = 0, between = 0;
    for (uint64_t seed = 0; seed < 1500; seed++) {
        world_options o = any(seed);
        nw_status status = NW_OK;
        begin_case(&o);
        starve(seed);
        world_ok(world_go(&w, 12, 0, true));
        for (uint64_t i = 0; i < seed % 197 && world_step(&w, &status); i++) world_ok(status);
        int64_t most = 0;
        for (int i = 0; i < o.members; i++) most = w.at[i].batches > most ? w.at[i].batches : most;
        world_ok(world_stop(&w, (int)(seed / 7) % o.members));
        if (seed % 5 == 0) world_ok(world_stop(&w, (int)(seed / 7 + 1) % o.members));
        world_ok(world_settle(&w));
        bool drained = w.updates == 12;
        if (!w.starved) assert_true(w.updates <= most + 4); /* while the word of it travels */
        early += !drained;
        between += !drained && w.updates % o.exchange.sync_every != 0;
        twin_to(w.updates, drained);
        check();
        run(17, false);
        run(18, true);
        world_free(&w);
    }
    assert_true(early > 700 && between > 300);
}

TEST(test_stopping_in_a_gradient_that_goes_on)
{
    int early = 0, late = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int ranks = 1 + (int)(seed % 3);
        world_options o = options(ranks, 2, (int)(seed / 3 % 2), 1, TWO, seed);
        int64_t k = 2 + (int64_t)(seed % 2), first = k + (int64_t)(seed / 2 % 7), all = k * 8;
        nw_status status = NW_OK;
        o.exchange.accumulation = (int)k;
        begin_case(&o);
        world_ok(world_go(&w, first / k, first, true));
        for (uint64_t i = 0; i < seed / 6 % 60 && world_step(&w, &status); i++) world_ok(status);
        world_ok(world_stop(&w, (int)(seed / 7) % ranks));
        world_ok(world_settle(&w));
        int64_t batches = w.at[0].batches;
        for (int i = 1; i < ranks; i++) assert_int_equal(w.at[i].batches, batches);
        assert_true(batches == first || batches % k == 0);
        early += batches != first;
        late += batches == first && first % k > 0;
        twin_to(batches, batches == first);
        check();
        world_ok(world_go(&w, 8, all - batches, false));
        world_ok(world_settle(&w));
        twin_to(all, false);
        check();
        world_free(&w);
    }
    assert_true(early > 30 && late > 30);
}

/* ---- saving ---- */

/* A new world that knows nothing but weights and state goes on to the same bits, from between outer steps too. */
TEST(test_saved_state_goes_on_bit_for_bit)
{
    static world before;
    for (uint64_t seed = 0; seed < 96; seed++) {
        world_options o = any(seed);
        o.codec = seed % 2 ? "bf16" : "none";
        for (int64_t at = 0; at <= 9; at++) {
            world_ok(world_make(&before, &o));
            world_ok(world_go(&before, at, 0, seed % 5 == 0));
            world_ok(world_settle(&before));
            begin_case(&o);
            world_resume(&w, &before);
            world_free(&before);
            twin_to(at, seed % 5 == 0);
            run(13, false);
            run(15, true);
            world_free(&w);
        }
    }
}

/* What is under way is finished first where there is no delay any more. */
TEST(test_a_delay_ends_with_a_checkpoint)
{
    static world before;
    world_options o = options(3, 3, 1, 1, MANY, 6);
    world_ok(world_make(&before, &o));
    world_ok(world_run(&before, 8));
    o.exchange.delay = 0;
    begin_case(&o);
    world_resume(&w, &before);
    twin_begin(&before);
    twin_to(8, false);
    t.x = &w;
    apply(0);
    world_ok(world_run(&w, 8));
    check();
    run(12, true);
    world_free(&before);
    world_free(&w);
}

/* More members or fewer: outer parameters and the mean under way stay, and each goes on from an old member's own. */
TEST(test_another_number_of_members)
{
    static world before;
    for (int ways = 0; ways < 8; ways++)
        for (int now = 1; now <= 5; now++) {
            world_options o = options(3, 4, ways & 1, ways & 2 ? 2 : 1, MANY, 5);
            o.exchange.pairs = ways & 4;
            world_ok(world_make(&before, &o));
            world_ok(world_run(&before, 6));
            o.members = now;
            world_ok(world_make(&w, &o));
            world_resume(&w, &before);
            twin_begin(&before);
            twin_to(6, false);
            t.x = &w;
            for (int r = 3; r < now; r++) {
                memcpy(t.theta[r], t.theta[r % 3], sizeof t.theta[r]);
                memcpy(t.values[r], t.values[r % 3], sizeof t.values[r]);
                memcpy(t.before[r], t.before[r % 3], sizeof t.before[r]);
                memcpy(t.mean[r], t.mean[r % 3], sizeof t.mean[r]);
                memcpy(t.momentum[r], t.momentum[r % 3], sizeof t.momentum[r]);
                w.at[r].batches = t.batches;
            }
            run(11, false);
            run(13, true);
            world_free(&before);
            world_free(&w);
        }
}

static nw_state_entry find(int member, const char *name)
{
    nw_state s = {0};
    w.at[member].rank.machine->ops->state(w.at[member].rank.machine, &s);
    const nw_state_entry *e = nw_state_find(&s, name);
    nw_state_entry entry = e ? *e : (nw_state_entry){0};
    nw_state_free(&s);
    return entry;
}

TEST(test_what_is_in_the_state)
{
    world_options o = options(2, 3, 1, 1, TWO, 8);
    begin_case(&o);
    run(2, false);
    assert_null(find(0, "mean").data);
    assert_int_equal(find(0, "outer").rule, NW_STATE_KEPT);
    run(4, false);
    assert_int_equal(find(0, "mean").rule, NW_STATE_KEPT);
    assert_int_equal(find(1, "before").rule, NW_STATE_LIKE);
    assert_int_equal(*(int64_t *)find(0, "under_way").data, 1);
    assert_int_equal(*(int64_t *)find(0, "given").data, 3);
    run(4, true);
    assert_null(find(0, "mean").data);
    assert_int_equal(*(int64_t *)find(0, "added_rounds").data, 2);
    world_free(&w);
    o.exchange.pairs = true;
    begin_case(&o);
    assert_int_equal(find(0, "outer").rule, NW_STATE_LIKE);
    world_free(&w);
}

TEST(test_impossible_states_are_refused)
{
    static const struct {
        int64_t updates, fragments, pending, added;
        const char *words;
    } bad[] = {{5, 3, 0, 0, "--fragments"}, {-1, 2, 0, 0, "impossible"},        {5, 2, 4, 0, "impossible"},
               {5, 2, -1, 0, "impossible"}, {INT64_MAX, 2, 0, 0, "impossible"}, {5, 2, 0, -2, "impossible"}};
    world_options o = options(1, 4, 1, 2, TWO, 1);
    world_ok(world_make(&w, &o));
    nw_machine *m = w.at[0].rank.machine;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        *(int64_t *)find(0, "updates").data = bad[i].updates;
        *(int64_t *)find(0, "under_way").data = bad[i].pending;
        *(int64_t *)find(0, "added_rounds").data = bad[i].added;
        *(int64_t *)find(0, "fragments").data = bad[i].fragments;
        assert_true(m->ops->loaded(m) != NW_OK);
        assert_non_null(strstr(nw_error_message(), bad[i].words));
    }
    world_free(&w);
}

/* ---- codecs and memories ---- */

static void with_codec(world_options o, nw_codec_options codec, const char *memory, nw_codec **made)
{
    world_ok(nw_codec_create(made, &codec));
    o.with = *made;
    o.matrices = true;
    o.exchange.memory.name = memory;
    world_ok(world_make(&w, &o));
}

static void check_level(int64_t updates)
{
    world_check_quiescent(&w, updates);
    for (int r = 0; r < w.o.members; r++)
        for (size_t i = 0; i < w.floats; i++) {
            assert_true(memcmp(&w.at[r].rank.machine->outer[i], &w.at[0].rank.machine->outer[i], sizeof(float)) == 0);
            assert_true(memcmp(&w.at[r].params.values[i], &w.at[0].rank.machine->outer[i], sizeof(float)) == 0);
        }
}

/* All have the same outer parameters with any codec, and a checkpoint goes on bit for bit with what memories hold. */
TEST(test_codecs_with_memories)
{
    static const struct {
        const char *codec, *memory;
    } CASES[] = {{"topk", "error"}, {"topk", "ef21"}, {"powersgd", "error"}, {"randomk", "error"},
                 {"int8", "error"}, {"qsgd", NULL},   {"sign", "error"}};
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++)
        for (int ways = 0; ways < 12; ways++) {
            nw_codec_options codec = nw_codec_options_default(CASES[c].codec);
            nw_codec *made, *again;
            codec.ratio = 0.1;
            codec.shared = true;
            if (c == 0) codec.values = NW_VALUES_BITS + 2;
            world_options o = options(ways % 2 ? 3 : 2, 4, ways / 2 % 2, 1 + ways / 4, MANY, 12);
            o.link_most = 0;
            with_codec(o, codec, CASES[c].memory, &made);
            world_ok(world_run(&w, 6));
            static world whole;
            whole = w;
            with_codec(o, codec, CASES[c].memory, &again);
            world_resume(&w, &whole);
            world_ok(world_go(&w, 11, 0, true));
            world_ok(world_settle(&w));
            check_level(11);
            static vector resumed;
            memcpy(resumed, w.at[0].params.values, w.floats * sizeof(float));
            world_free(&w);
            w = whole;
            world_ok(world_go(&w, 11, 0, true));
            world_ok(world_settle(&w));
            check_level(11);
            if (memcmp(resumed, w.at[0].params.values, w.floats * sizeof(float)) != 0)
                fail_msg("%s, %d ranks, delay %d, %d fragments: other bits after a checkpoint", CASES[c].codec,
                         o.members, o.exchange.delay, o.exchange.layout.fragments);
            world_free(&w);
            nw_codec_free(made);
            nw_codec_free(again);
        }
}

/* ---- fragments ---- */

TEST(test_fragments_are_ranges_of_whole_segments)
{
    world_options o = options(1, 8, 0, 1, MANY, 1);
    world_ok(world_make(&w, &o));
    const nw_segments *s = &w.at[0].params.learned;
    for (int count = 1; count <= s->count; count++) {
        assert_int_equal(nw_layout_fragment(s, count, 0), 0);
        assert_int_equal(nw_layout_fragment(s, count, count), s->floats);
        for (int f = 0; f < count; f++) {
            size_t first = nw_layout_fragment(s, count, f);
            int at = 0;
            while (at < s->count && s->at[at].offset != first) at++;
            assert_true(at < s->count && nw_layout_fragment(s, count, f + 1) > first);
        }
        nw_layout l;
        nw_layout_options lo = {
            .segments = s, .codec = w.codec, .bucket_bytes = 1 << 20, .cuts = 2, .fragments = count};
        world_ok(nw_layout_make(&l, &lo));
        assert_int_equal(l.count, count); /* one bucket each: they do not cross */
        for (int b = 0; b < l.count; b++) {
            assert_int_equal(l.at[b].fragment, count - 1 - b);
            assert_int_equal(l.at[b].first, nw_layout_fragment(s, count, l.at[b].fragment));
        }
        nw_layout_free(&l);
    }
    world_free(&w);
}

/* ---- pairs ---- */

TEST(test_everybody_meets_everybody)
{
    uint32_t order[16];
    for (int members = 1; members <= 16; members += 3) {
        int met[16][16] = {{0}};
        for (int64_t round = 0; round < 40 * members; round++) {
            int alone = 0;
            for (int i = 0; i < members; i++) {
                int j = nw_local_partner(11, round, 0, i, members, order);
                assert_in_range(j, 0, members - 1);
                assert_int_equal(nw_local_partner(11, round, 0, j, members, order), i);
                alone += i == j;
                met[i][j]++;
            }
            assert_int_equal(alone, members % 2);
        }
        for (int i = 0; i < members; i++)
            for (int j = 0; j < members; j++) assert_true(i == j || members == 1 || met[i][j] > 10);
    }
    int other = 0;
    for (int64_t round = 0; round < 50; round++)
        other += nw_local_partner(11, round, 0, 0, 8, order) != nw_local_partner(11, round, 1, 0, 8, order);
    assert_true(other > 30); /* fragments have partners of their own */
}

/* Whether numbers that nobody computes anything for come together, as nw_local_drift says. */
TEST(test_whether_pairs_drift_apart)
{
    static const struct {
        double lr, momentum;
        bool nesterov, apart;
    } CASES[] = {{1, 0, false, false},    {0.7, 0.5, false, false}, {0.7, 0.9, false, true},
                 {0.7, 0.9, true, false}, {1, 0.9, true, true},     {0.3, 0.9, false, false}};
    enum { MEMBERS = 64, ROUNDS = 60, TRIALS = 20 };
    for (size_t c = 0; c < sizeof CASES / sizeof CASES[0]; c++) {
        double mu = CASES[c].momentum, lr = CASES[c].lr, growth = nw_local_drift(lr, mu, CASES[c].nesterov);
        double first = 0, last = 0;
        assert_int_equal(growth >= 1, CASES[c].apart);
        for (uint64_t trial = 0; trial < TRIALS; trial++) {
            double e[MEMBERS], m[MEMBERS] = {0}, next[MEMBERS];
            uint32_t order[MEMBERS];
            for (int i = 0; i < MEMBERS; i++) e[i] = (double)(i % 8) - 3.5;
            for (int64_t round = 0; round < ROUNDS; round++) {
                double spread = 0;
                for (int i = 0; i < MEMBERS; i++) {
                    int j = nw_local_partner(trial, round, 0, i, MEMBERS, order);
                    double g = e[i] - (e[i] + e[j]) / 2, fresh = mu * m[i] + g;
                    next[i] = e[i] - lr * (CASES[c].nesterov ? g + mu * fresh : fresh);
                    m[i] = fresh;
                }
                memcpy(e, next, sizeof e);
                for (int i = 0; i < MEMBERS; i++) spread += e[i] * e[i];
                if (round == 19) first += spread;
                if (round == ROUNDS - 1) last += spread;
            }
        }
        double measured = pow(last / first, 1.0 / (ROUNDS - 20));
        if (fabs(measured - growth) > 0.04)
            fail_msg("rate %g, momentum %g: distances change by %g, not %g", lr, mu, measured, growth);
    }
    assert_true(fabs(nw_local_drift(1, 0, false) - 0.5) < 1e-6); /* plain averaging halves them */
}

/* ---- who is missing ---- */

static void check_wait(int member, int count, int first, const char *what)
{
    nw_wait wait = {0};
    char text[256];
    w.at[member].rank.machine->ops->waits(w.at[member].rank.machine, &wait);
    nw_wait_text(&wait, text, sizeof text);
    if (wait.count != count || (count > 0 && wait.ranks[0] != first) || !strstr(text, what))
        fail_msg("member %d waits for '%s'; expected %d of %d: %s", member, text, count, first, what);
}

/* Everything that a member can do without messages. */
static void work(int member)
{
    while (world_moves(&w) & world_bit(member, member)) world_ok(world_local(&w, member));
}

TEST(test_waits_names_who_is_missing)
{
    world_options o = options(3, 2, 0, 1, (const int[]){48, 0}, 5);
    o.ranks = (const uint16_t[]){2, 5, 7};
    o.ranks_in_world = 9;
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 3, 0, false));
    check_wait(0, 0, 0, "nothing");
    work(0);
    assert_int_equal(w.at[0].batches, 2); /* two steps without a word */
    check_wait(0, 2, 5, "ranks 5 and 7: their gradient of bucket 0 of 1, step 1");
    for (int r = 1; r < 3; r++) work(r);
    while (w.updates < 2) world_ok(world_move(&w, world_moves(&w) & -world_moves(&w)));
    work(0);
    check_wait(0, 2, 5, "ranks 5 and 7: the end of the run");
    world_ok(world_settle(&w));
    check_wait(0, 0, 0, "nothing");
    world_free(&w);
    o.exchange.pairs = true;
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 3, 0, false));
    uint32_t order[3];
    int alone = 0;
    while (nw_local_partner(7, 0, 0, alone, 3, order) != alone) alone++;
    int one = (alone + 1) % 3, other = (alone + 2) % 3;
    work(one);
    check_wait(one, 1, o.ranks[other], "their parameters of round 1");
    world_free(&w);
}

/* ---- messages that are not what they should be ---- */

static nw_status hand(int to, int from, int channel, int kind, int64_t step)
{
    nw_message *m;
    world_ok(nw_message_take(w.driver->pool, 0, &m));
    m->header->from = w.ranks[from];
    m->header->channel = (uint8_t)channel;
    m->header->kind = (uint8_t)kind;
    m->header->step = (uint64_t)step;
    nw_status status = world_hand(&w, to, m);
    nw_message_drop(m);
    return status;
}

TEST(test_words_about_the_end_are_checked)
{
    enum { END = NW_CHANNEL_EXCHANGE + 4, STOP = 1, HALT, AT, UNTIL, REACHED, OVER };
    world_options o = options(3, 4, 0, 1, TWO, 5);
    begin_case(&o);
    assert_int_equal(hand(0, 1, END, REACHED, 0), NW_E_MESSAGE); /* there is no run */
    world_ok(world_go(&w, 3, 0, false));
    static const struct {
        int to, from, kind;
        int64_t step;
    } BAD[] = {{0, 1, 0, 0},    {0, 1, 99, 0},    {0, 1, HALT, 0}, {0, 1, AT, 0},   {0, 1, UNTIL, 3}, {0, 1, OVER, 3},
               {1, 0, OVER, 3}, {1, 0, UNTIL, 3}, {1, 2, HALT, 0}, {1, 2, STOP, 0}, {1, 0, AT, 0},    {0, 1, STOP, -1}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(hand(BAD[i].to, BAD[i].from, END, BAD[i].kind, BAD[i].step), NW_E_MESSAGE);
        assert_non_null(strstr(nw_error_message(), "about the end of a run"));
    }
    world_ok(hand(1, 0, END, HALT, 0));
    assert_int_equal(hand(1, 0, END, HALT, 0), NW_E_MESSAGE);
    assert_int_equal(hand(1, 0, END, UNTIL, 0), NW_E_MESSAGE); /* it has begun a step already */
    world_ok(hand(1, 0, END, UNTIL, 3));
    world_free(&w);
}

TEST(test_parameters_of_pairs_are_checked)
{
    uint32_t order[3];
    world_options o = options(3, 2, 0, 1, (const int[]){48, 0}, 5);
    o.exchange.pairs = true;
    begin_case(&o);
    int alone = 0;
    while (nw_local_partner(7, 0, 0, alone, 3, order) != alone) alone++;
    int one = (alone + 1) % 3, other = (alone + 2) % 3;
    world_ok(world_go(&w, 4, 0, false));
    work(one);
    nw_message *good = nw_message_hold(w.links[one][other].at[0]);
    world_ok(world_deliver(&w, one, other)); /* long before it is there itself */
    assert_int_equal(world_hand(&w, other, good), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "twice"));
    assert_int_equal(world_hand(&w, alone, good), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "another partner"));
    static const struct {
        size_t at, bytes;
        uint64_t value;
    } BAD[] = {{offsetof(nw_header, kind), 1, 9},   {offsetof(nw_header, channel), 1, 4},
               {offsetof(nw_header, bucket), 4, 7}, {offsetof(nw_header, count), 4, 47},
               {offsetof(nw_header, codec), 1, 2},  {offsetof(nw_header, step), 8, UINT64_MAX},
               {offsetof(nw_header, part), 2, 1}};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        nw_header kept = *good->header;
        memcpy((char *)good->header + BAD[i].at, &BAD[i].value, BAD[i].bytes);
        assert_int_equal(world_hand(&w, other, good), NW_E_MESSAGE);
        *good->header = kept;
    }
    nw_message_drop(good);
    world_ok(world_settle(&w));
    twin_to(4, false);
    check();
    world_free(&w);
}

/* ---- memory ---- */

TEST(test_steady_state_allocates_nothing)
{
    for (int ways = 0; ways < 4; ways++) {
        size_t pool = 0;
        int before = 0;
        world_options o = options(4, 3, ways & 1, 2, MANY, 9);
        o.exchange.pairs = ways & 2;
        begin_case(&o);
        for (int64_t step = 1; step <= 40; step++) {
            uint64_t moves;
            world_ok(world_go(&w, step, 0, false));
            while ((moves = world_moves(&w)) != 0) world_ok(world_move(&w, moves & -moves));
            if (step == 12) {
                pool = nw_message_pool_bytes(w.driver->pool);
                before = allocations;
            }
        }
        assert_int_equal(nw_message_pool_bytes(w.driver->pool), pool);
        if (COUNTS_ALLOCATIONS) assert_int_equal(allocations, before);
        twin_to(40, false);
        check();
        world_free(&w);
    }
}

TEST(test_bytes_that_are_told)
{
    nw_exchange_options o = {.group = {.count = 5}, .sync_every = 4};
    assert_int_equal(nw_local_bytes(&o, 100), 800);
    assert_true(nw_local_sends(&o, 4, 100) == 5 * 2 * 4.0 / 5 * 400);
    assert_true(nw_local_sends(&o, 5, 100) == 2 * nw_local_sends(&o, 4, 100));
    o.delay = 1;
    o.memory.name = "error";
    o.pairs = true;
    assert_int_equal(nw_local_bytes(&o, 100), 1600);
    assert_true(nw_local_sends(&o, 8, 100) == 2 * 4 * 400); /* one of five stays alone */
}

/* ---- making ---- */

static void cannot_make(nw_exchange_options e, const char *codec, const char *words)
{
    world_options o = options(2, 4, 0, 1, TWO, 1);
    e.name = "local";
    o.exchange = e;
    o.codec = codec;
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' lacks '%s'", nw_error_message(), words);
    world_free(&w);
}

TEST(test_what_cannot_be_made)
{
    cannot_make((nw_exchange_options){0}, "none", "at least 1");
    cannot_make((nw_exchange_options){.sync_every = 4, .delay = 2}, "none", "not by 2");
    cannot_make((nw_exchange_options){.sync_every = 4, .layout.fragments = 3}, "none", "3 fragments are asked for");
    cannot_make((nw_exchange_options){.sync_every = 4, .layout.fragments = 5}, "none", "one behind an inner step");
    cannot_make((nw_exchange_options){.sync_every = 4, .pairs = true}, "int8", "pairs send parameters");
    cannot_make((nw_exchange_options){.sync_every = 4, .pairs = true, .memory.name = "error"}, "none", "memory error");
    cannot_make((nw_exchange_options){.sync_every = 4, .memory = {.name = "dgc", .momentum = 0.9}}, "none",
                "momentum of gradients");
    nw_codec *all;
    nw_codec_options codec = nw_codec_options_default("topk");
    codec.ratio = 1;
    world_ok(nw_codec_create(&all, &codec));
    world_options o = options(2, 4, 0, 1, TWO, 1);
    o.with = all;
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "longer than floats"));
    world_free(&w);
    nw_codec_free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_ranks_have_the_twins_bits),
                                       cmocka_unit_test(test_groups_are_not_the_world),
                                       cmocka_unit_test(test_every_step_averaged_is_allreduce),
                                       cmocka_unit_test(test_gradients_go_on_over_the_end_of_a_run),
                                       cmocka_unit_test(test_random_orders),
                                       cmocka_unit_test(test_every_order_of_two_ranks),
                                       cmocka_unit_test(test_every_order_of_a_stop),
                                       cmocka_unit_test(test_all_stop_after_the_same_step),
                                       cmocka_unit_test(test_stopping_in_a_gradient_that_goes_on),
                                       cmocka_unit_test(test_saved_state_goes_on_bit_for_bit),
                                       cmocka_unit_test(test_a_delay_ends_with_a_checkpoint),
                                       cmocka_unit_test(test_another_number_of_members),
                                       cmocka_unit_test(test_what_is_in_the_state),
                                       cmocka_unit_test(test_impossible_states_are_refused),
                                       cmocka_unit_test(test_codecs_with_memories),
                                       cmocka_unit_test(test_fragments_are_ranges_of_whole_segments),
                                       cmocka_unit_test(test_everybody_meets_everybody),
                                       cmocka_unit_test(test_whether_pairs_drift_apart),
                                       cmocka_unit_test(test_waits_names_who_is_missing),
                                       cmocka_unit_test(test_words_about_the_end_are_checked),
                                       cmocka_unit_test(test_parameters_of_pairs_are_checked),
                                       cmocka_unit_test(test_steady_state_allocates_nothing),
                                       cmocka_unit_test(test_bytes_that_are_told),
                                       cmocka_unit_test(test_what_cannot_be_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
