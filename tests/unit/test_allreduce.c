/*
 * test_allreduce.c - the allreduce exchange against its plain twin, in every order in which things can happen, and
 * against messages that are not what they should be. support/world.h moves it by hand.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"
#include "support/blocks.h"
#include "support/world.h"

#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static const int ONE[] = {40, 0};                      /* one bucket; parts of 32 and 8 for two ranks */
static const int TWO[] = {32, 32, 0};                  /* two buckets with 128 bytes each at least */
static const int TINY[] = {3, 1, 7, 0};                /* parts of most ranks are empty */
static const int MANY[] = {64, 5, 100, 33, 2, 250, 0}; /* uneven parts */
static const char *const CODECS[] = {"none", "fp16", "bf16"};
static world w;

static world_options options(int members, int delay, const char *codec, const int *segments, uint64_t seed)
{
    int buckets = 0;
    while (segments[buckets]) buckets++;
    return (world_options){.exchange = {.name = "allreduce", .delay = delay, .layout.bucket_bytes = 128},
                           .members = members,
                           .codec = codec,
                           .segments = segments,
                           .seed = seed,
                           .link_most =
                               2 * 2 * (delay + 1) * buckets}; /* a contribution and a mean for each of a round */
}

/* ---- the twin: what all ranks must have, in plain loops ---- */

/* After that many batches of each rank, where those held back were applied after `drain_at` batches, too. */
static const float *twin(const world *x, int64_t batches, int64_t drain_at)
{
    static float weights[WORLD_FLOATS], mean[WORLD_FLOATS], held[WORLD_FLOATS], terms[WORLD_MOST][WORLD_FLOATS];
    int64_t k = x->o.exchange.accumulation ? x->o.exchange.accumulation : 1, clock = -1; /* of what is held */
    int ranks = x->o.members;
    size_t n = x->floats;
    for (size_t i = 0; i < n; i++) weights[i] = world_start(i);
    for (int64_t b = 0; b < batches; b++) {
        for (int r = 0; r < ranks; r++) world_gradient(x, r, b, weights, b % k > 0, terms[r]);
        if (b % k == k - 1) {
            for (int r = 0; r < ranks; r++) {
                pass_codec(x->codec, terms[r], n);
                for (size_t i = 0; i < n; i++) mean[i] = r ? mean[i] + terms[r][i] : terms[r][i];
            }
            for (size_t i = 0; i < n; i++) mean[i] *= 1.0f / (float)ranks;
            pass_codec(x->codec, mean, n);
            if (x->o.exchange.delay == 0) world_update(weights, mean, 0, n, 1.0f, b);
            if (clock >= 0) world_update(weights, held, 0, n, 1.0f, clock);
            memcpy(held, mean, n * sizeof(float));
            clock = x->o.exchange.delay ? b : -1;
        }
        if (b + 1 == drain_at && clock >= 0) world_update(weights, held, 0, n, 1.0f, clock);
        if (b + 1 == drain_at) clock = -1;
    }
    return weights;
}

static void check(int64_t updates, const float *values)
{
    world_check_quiescent(&w, updates);
    world_check_values(&w, values);
}

/* A run that drains at its end, or not. */
static void run(int64_t until, bool drain)
{
    world_ok(world_go(&w, until, 0, drain));
    world_ok(world_settle(&w));
}

static void check_case(world_options o)
{
    world_ok(world_make(&w, &o));
    run(5, false);
    check(5, twin(&w, 5, 0));
    run(5, true);
    check(5, twin(&w, 5, 5));
    run(5, true); /* nothing is held back any more */
    check(5, twin(&w, 5, 5));
    run(8, false);
    check(8, twin(&w, 8, 5));
    world_free(&w);
}

TEST(test_all_ranks_have_the_twins_bits)
{
    static const int *const SEGMENTS[] = {ONE, TWO, TINY, MANY};
    static const int RANKS[] = {1, 2, 3, 5};
    uint64_t seed = 0;
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            for (int c = 0; c < 3; c++)
                for (int delay = 0; delay <= 1; delay++)
                    for (int ways = 0; ways < 8; ways++) {
                        world_options o = options(RANKS[r], delay, CODECS[c], SEGMENTS[s], ++seed);
                        o.finals = ways & 1 ? seed : 0;
                        o.bare = ways & 2;
                        o.interrupts = ways & 4;
                        check_case(o);
                    }
}

/* Members are ranks of a larger world. */
TEST(test_groups_are_not_the_world)
{
    for (int delay = 0; delay <= 1; delay++) {
        world_options o = options(3, delay, "fp16", MANY, 7);
        o.ranks = (const uint16_t[]){1, 3, 4};
        o.ranks_in_world = 6;
        check_case(o);
    }
}

/* Whether one bucket or many: the same bits, since each element's sum is in the order of ranks. */
TEST(test_buckets_do_not_change_bits)
{
    for (size_t bytes = 4; bytes <= 1 << 22; bytes *= 8) {
        world_options o = options(3, 0, "fp16", MANY, 4);
        o.exchange.layout.bucket_bytes = bytes;
        world_ok(world_make(&w, &o));
        run(4, false);
        check(4, twin(&w, 4, 0));
        world_free(&w);
    }
}

/* Batches of a run that are no multiple of those of a gradient: the next run goes on with it. */
TEST(test_gradients_go_on_over_the_end_of_a_run)
{
    for (uint64_t seed = 0; seed < 120; seed++) {
        world_options o = options(1 + (int)(seed % 3), (int)(seed / 3 % 2), CODECS[seed / 6 % 3], TWO, seed);
        int64_t k = 2 + (int64_t)(seed % 2), first = 1 + (int64_t)(seed / 2 % 7), all = k * 6;
        bool drain = seed / 18 % 2;
        o.exchange.accumulation = (int)k;
        o.finals = seed;
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, first / k, first, drain));
        world_ok(world_settle(&w));
        check(first / k, twin(&w, first, drain ? first : 0));
        world_ok(world_go(&w, 6, all - first, false));
        world_ok(world_settle(&w));
        check(6, twin(&w, all, drain ? first : 0));
        world_free(&w);
    }
}

/* ---- orders ---- */

/* Some starve a link or a rank for long. */
TEST(test_random_orders)
{
    for (uint64_t seed = 0; seed < 2000; seed++) {
        int ranks = 2 + (int)(seed % 4);
        world_options o = options(ranks, (int)(seed / 4 % 2), "none", seed % 5 ? TWO : MANY, seed);
        o.finals = seed / 8 % 2 ? seed : 0;
        o.interrupts = seed / 16 % 2;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % ranks, (int)(seed / 15) % ranks);
        run(6, true);
        check(6, twin(&w, 6, 6));
        world_free(&w);
    }
}

static int64_t steps;
static void begin(world *x) { world_ok(world_go(x, steps, 0, false)); }

static void check_twin(world *x)
{
    world_check_quiescent(x, steps);
    world_check_values(x, twin(x, steps, 0));
}

static int64_t every_order(world_options o, int64_t of_steps, bool all)
{
    steps = of_steps;
    int64_t orders = world_every_order(&o, begin, check_twin, all);
    print_message("%d ranks, delay %d: %lld orders\n", o.members, o.exchange.delay, (long long)orders);
    return orders;
}

TEST(test_every_order_of_two_ranks)
{
    world_options o = options(2, 0, "none", ONE, 2);
    int64_t all = every_order(o, 1, true), distinct = every_order(o, 1, false);
    assert_true(all > 100 && distinct < all); /* and both found no fault */
    distinct = every_order(o, 2, false);
    o.bare = o.interrupts = true;
    assert_true(every_order(o, 2, false) > distinct);
}

TEST(test_every_order_of_two_ranks_and_buckets)
{
    for (int delay = 0; delay <= 1; delay++)
        for (int finals = 0; finals <= 1; finals++) {
            world_options o = options(2, delay, "none", TWO, 3);
            o.finals = finals ? 11 : 0;
            assert_true(every_order(o, finals ? 1 : 2, false) > 10);
        }
}

TEST(test_every_order_of_three_ranks)
{
    world_options o = options(3, 0, "none", (const int[]){48, 0}, 5);
    o.exchange.layout.bucket_bytes = 64;
    assert_true(every_order(o, 1, false) > 100);
}

/* ---- stopping ---- */

/* A rank is asked at any moment: all end after the same step, soon, and go on as if nothing had been. */
TEST(test_all_stop_after_the_same_step)
{
    int early = 0;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        int ranks = 1 + (int)(seed % 4), delay = (int)(seed / 4 % 2);
        world_options o = options(ranks, delay, "none", seed / 8 % 2 ? TWO : ONE, seed);
        o.finals = seed;
        o.interrupts = seed / 16 % 2;
        nw_status status = NW_OK;
        world_ok(world_make(&w, &o));
        if (seed % 3 == 0) w.starved = world_bit((int)(seed / 3) % ranks, (int)(seed / 15) % ranks);
        world_ok(world_go(&w, 12, 0, true));
        for (uint64_t i = 0; i < seed % 97 && world_step(&w, &status); i++) world_ok(status);
        int64_t most = 0;
        for (int i = 0; i < ranks; i++) most = w.at[i].batches > most ? w.at[i].batches : most;
        world_ok(world_stop(&w, (int)(seed / 7) % ranks));
        if (seed % 5 == 0) world_ok(world_stop(&w, (int)(seed / 7 + 1) % ranks));
        world_ok(world_settle(&w));
        assert_true(w.updates <= most + 2 + delay);
        bool drained = w.updates == 12;
        early += !drained;
        check(w.updates, twin(&w, w.updates, drained ? 12 : 0));
        run(14, false);
        check(14, twin(&w, 14, drained ? 12 : 0));
        world_free(&w);
    }
    assert_true(early > 500);
}

/* A rank is asked at any moment, also in the gradient that the run does not complete. */
TEST(test_stopping_in_a_gradient_that_goes_on)
{
    int early = 0, late = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        int ranks = 1 + (int)(seed % 3), delay = (int)(seed / 3 % 2);
        world_options o = options(ranks, delay, "none", TWO, seed);
        int64_t k = 2 + (int64_t)(seed % 2), first = k + (int64_t)(seed / 2 % 7), all = k * 8;
        nw_status status = NW_OK;
        if (ranks == 1 && delay == 0) o.exchange.name = "none";
        o.exchange.accumulation = (int)k;
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, first / k, first, true));
        for (uint64_t i = 0; i < seed / 6 % 60 && world_step(&w, &status); i++) world_ok(status);
        world_ok(world_stop(&w, (int)(seed / 7) % ranks));
        world_ok(world_settle(&w));
        int64_t batches = w.at[0].batches, drained = batches == first ? first : 0;
        for (int i = 1; i < ranks; i++) assert_int_equal(w.at[i].batches, batches);
        assert_true(drained || batches % k == 0);
        early += !drained;
        late += drained && first % k > 0;
        check(batches / k, twin(&w, batches, drained));
        world_ok(world_go(&w, 8, all - batches, false));
        world_ok(world_settle(&w));
        check(8, twin(&w, all, drained));
        world_free(&w);
    }
    assert_true(early > 50 && late > 50);
}

/* ---- saving ---- */

/* A new world that knows nothing but weights and state goes on to the same bits, also with another delay. */
TEST(test_saved_state_goes_on_bit_for_bit)
{
    static world before;
    for (int delay = 0; delay <= 1; delay++)
        for (int64_t at = 0; at <= 5; at++)
            for (int ranks = 1; ranks <= 4; ranks += 3) {
                world_options o = options(ranks, delay, "bf16", MANY, 6);
                o.finals = 5;
                world_ok(world_make(&before, &o));
                world_ok(world_run(&before, at));
                world_ok(world_make(&w, &o));
                world_resume(&w, &before);
                world_free(&before);
                run(8, false);
                check(8, twin(&w, 8, 0));
                run(8, true);
                check(8, twin(&w, 8, 8));
                world_free(&w);
            }
}

/* What a delay held back is applied first where there is none any more. */
TEST(test_a_delay_ends_with_a_checkpoint)
{
    static world before;
    world_options o = options(3, 1, "none", MANY, 6);
    world_ok(world_make(&before, &o));
    world_ok(world_run(&before, 4));
    o.exchange.delay = 0;
    world_ok(world_make(&w, &o));
    world_resume(&w, &before);
    run(4, false);
    check(4, twin(&before, 4, 4));
    world_free(&before);
    world_free(&w);
}

/* A number of a member's state, or, of `delayed`, whether it is there. */
static int64_t state_of(int member, const char *name)
{
    nw_state s = {0};
    w.at[member].rank.machine->ops->state(w.at[member].rank.machine, &s);
    const nw_state_entry *e = nw_state_find(&s, name);
    int64_t value = e && e->dims == 0 ? *(int64_t *)e->data : e != NULL;
    nw_state_free(&s);
    return value;
}

TEST(test_what_is_held_back_is_in_the_state)
{
    for (int delay = 0; delay <= 1; delay++) {
        world_options o = options(2, delay, "none", TWO, 8);
        world_ok(world_make(&w, &o));
        assert_int_equal(state_of(0, "delayed"), 0);
        run(3, false);
        assert_int_equal(state_of(0, "delayed"), delay);
        assert_int_equal(state_of(0, "held"), delay);
        assert_int_equal(state_of(0, "updates"), 3);
        run(3, true);
        assert_int_equal(state_of(0, "delayed"), 0);
        world_free(&w);
    }
}

TEST(test_impossible_states_are_refused)
{
    static const struct {
        int64_t updates, held, clock;
    } bad[] = {{0, 1, 0}, {5, 2, 0}, {5, -1, 0}, {5, 1, -1}, {INT64_MAX, 0, 0}, {-1, 0, 0}};
    world_options o = options(1, 1, "none", ONE, 1);
    world_ok(world_make(&w, &o));
    nw_machine *m = w.at[0].rank.machine;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        nw_state s = {0};
        m->ops->state(m, &s);
        *(int64_t *)nw_state_find(&s, "updates")->data = bad[i].updates;
        *(int64_t *)nw_state_find(&s, "held")->data = bad[i].held;
        *(int64_t *)nw_state_find(&s, "clock")->data = bad[i].clock;
        nw_state_free(&s);
        assert_int_equal(m->ops->loaded(m), NW_E_FILE);
    }
    world_free(&w);
}

/* ---- who is missing ---- */

static void check_wait(int count, int first, int second, const char *what)
{
    nw_wait wait = {0};
    char text[256];
    w.at[0].rank.machine->ops->waits(w.at[0].rank.machine, &wait);
    nw_wait_text(&wait, text, sizeof text);
    if (wait.count != count || (count > 0 && wait.ranks[0] != first) || (count > 1 && wait.ranks[1] != second) ||
        !strstr(text, what))
        fail_msg("member 0 waits for '%s'; expected %d of %d, %d: %s", text, count, first, second, what);
}

static void compute(int member)
{
    do world_ok(world_local(&w, member));
    while (w.at[member].rank.busy);
}

TEST(test_waits_names_exactly_who_is_missing)
{
    world_options o = options(3, 0, "none", (const int[]){48, 0}, 5);
    o.ranks = (const uint16_t[]){2, 5, 7};
    o.ranks_in_world = 9;
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 2, 0, false));
    check_wait(0, 0, 0, "nothing");
    for (int r = 0; r < 3; r++) compute(r);
    check_wait(2, 5, 7, "ranks 5 and 7: their gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 2, 0));
    check_wait(1, 5, 0, "rank 5: their gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 1, 0));
    check_wait(2, 5, 7, "ranks 5 and 7: the mean gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 0, 1));
    world_ok(world_deliver(&w, 2, 1));
    world_ok(world_deliver(&w, 1, 0));
    check_wait(1, 7, 0, "rank 7: the mean gradient");
    assert_false(nw_rank_is_quiescent(&w.at[0].rank));
    world_ok(world_deliver(&w, 0, 2));
    world_ok(world_deliver(&w, 1, 2));
    world_ok(world_deliver(&w, 2, 0));
    check_wait(0, 0, 0, "nothing");
    world_free(&w);
}

/* ---- messages that are not what they should be ---- */

/* One field of a header that says something else; the message must be refused with these words. */
typedef struct forgery {
    const char *words;
    size_t at, bytes;
    uint64_t value;
} forgery;
#define FIELD(name) offsetof(nw_header, name), sizeof(((nw_header *)NULL)->name)
static const forgery AS_IT_IS = {"twice", 0, 0, 0};

/* Gives member 0 a changed copy of a message; it must be refused with words that name its sender. */
static void refuse(const nw_message *like, forgery f)
{
    nw_message *m;
    world_ok(nw_message_take(w.driver->pool, like->header->bytes, &m));
    memcpy(m->header, like->header, nw_message_size(like));
    memcpy((char *)m->header + f.at, &f.value, f.bytes); /* little-endian */
    char sender[32];
    snprintf(sender, sizeof sender, "rank %u", m->header->from);
    assert_int_equal(world_hand(&w, 0, m), NW_E_MESSAGE);
    if (!strstr(nw_error_message(), f.words) || !strstr(nw_error_message(), sender))
        fail_msg("'%s' names neither '%s' nor %s", nw_error_message(), f.words, sender);
    assert_int_equal(m->references, 1);
    nw_message_drop(m);
}

/* 96 floats in one bucket, 32 for each rank, so that a part of another rank has the same size. */
static void make_three(void)
{
    world_options o = options(3, 0, "none", (const int[]){96, 0}, 12);
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 1, 0, false));
}

TEST(test_malformed_messages_are_refused_and_change_nothing)
{
    static const forgery cases[] = {{"kind 99", FIELD(kind), 99},
                                    {"does not know", FIELD(channel), NW_CHANNEL_EXCHANGE + 1},
                                    {"of a pipeline", FIELD(channel), NW_CHANNEL_UP},
                                    {"codec 2", FIELD(codec), NW_CODEC_FP16},
                                    {"bucket 1000", FIELD(bucket), 1000},
                                    {"bucket", FIELD(bucket), UINT32_MAX},
                                    {"part 3", FIELD(part), 3},
                                    {"part", FIELD(part), UINT16_MAX},
                                    {"31 values", FIELD(count), 31},
                                    {"33 values", FIELD(count), 33},
                                    {"0 values", FIELD(count), 0},
                                    {"step 2", FIELD(step), 2},
                                    {"step", FIELD(step), UINT64_MAX},
                                    {"exchanges nothing", FIELD(from), 3},
                                    {"exchanges nothing", FIELD(from), UINT16_MAX},
                                    {"exchanges nothing", FIELD(from), 0},
                                    {"does not own", FIELD(part), 1},
                                    {"without owning", FIELD(kind), 2}};
    make_three();
    compute(1);
    nw_message *good = nw_message_hold(w.links[1][0].at[0]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) refuse(good, cases[i]);
    good->header->part = 1;
    refuse(good, (forgery){"too early", FIELD(kind), 2});
    good->header->part = 0;
    world_ok(world_deliver(&w, 1, 0));
    refuse(good, AS_IT_IS);
    compute(0);
    refuse(good, AS_IT_IS); /* it has been added */
    world_ok(world_settle(&w));
    refuse(good, (forgery){"step 0", FIELD(step), 0}); /* it is of the past */
    nw_message_drop(good);
    check(1, twin(&w, 1, 0));
    run(4, false);
    check(4, twin(&w, 4, 0));
    world_free(&w);
}

TEST(test_a_mean_comes_once_and_from_its_owner)
{
    make_three();
    for (int r = 0; r < 3; r++) compute(r);
    world_ok(world_deliver(&w, 0, 1));
    world_ok(world_deliver(&w, 2, 1));
    nw_message *mean = nw_message_hold(w.links[1][0].at[1]);
    assert_int_equal(mean->header->kind, 2);
    world_ok(world_deliver(&w, 1, 0));
    refuse(mean, (forgery){"part 3", FIELD(part), 3});
    refuse(mean, (forgery){"31 values", FIELD(count), 31});
    refuse(mean, (forgery){"exchanges nothing", FIELD(from), 0});
    world_ok(world_deliver(&w, 1, 0));
    refuse(mean, AS_IT_IS);
    nw_message_drop(mean);
    world_ok(world_settle(&w));
    run(3, false);
    check(3, twin(&w, 3, 0));
    world_free(&w);
}

/* A payload that is not what its header says fails where it is decoded, without reading beyond it. */
TEST(test_payloads_of_wrong_size_fail)
{
    for (uint32_t bytes = 0; bytes < 128; bytes += 31) {
        make_three();
        compute(0);
        compute(1);
        w.links[1][0].at[0]->header->bytes = bytes;
        assert_int_equal(world_deliver(&w, 1, 0), NW_E_MESSAGE);
        assert_non_null(strstr(nw_error_message(), "what rank 1 sent of "));
        assert_non_null(strstr(nw_error_message(), " in step 1 cannot be decoded: "));
        world_free(&w);
    }
}

/* Floats as they are, from a rank that was started without the codec of the others. */
TEST(test_floats_are_refused_where_a_codec_is_used)
{
    world_options o = options(3, 0, "fp16", (const int[]){96, 0}, 12);
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 1, 0, false));
    compute(1);
    refuse(w.links[1][0].at[0], (forgery){"uncompressed", FIELD(codec), NW_CODEC_NONE});
    world_free(&w);
}

/* ---- memory ---- */

TEST(test_steady_state_allocates_nothing)
{
    for (int delay = 0; delay <= 1; delay++) {
        size_t pool = 0;
        int before = 0;
        world_options o = options(4, delay, "fp16", MANY, 9);
        world_ok(world_make(&w, &o));
        for (int64_t step = 1; step <= 12; step++) {
            uint64_t moves;
            world_ok(world_go(&w, step, 0, false));
            while ((moves = world_moves(&w)) != 0) world_ok(world_move(&w, moves & -moves));
            if (step == 2) {
                pool = nw_message_pool_bytes(w.driver->pool);
                before = allocations;
            }
        }
        assert_int_equal(nw_message_pool_bytes(w.driver->pool), pool);
        if (COUNTS_ALLOCATIONS) assert_int_equal(allocations, before);
        check(12, twin(&w, 12, 0));
        world_free(&w);
    }
}

/* ---- making ---- */

static void cannot_make(const char *name, int members, int delay, nw_status status, const char *words)
{
    world_options o = options(members, delay, "none", ONE, 1);
    o.exchange.name = name;
    assert_int_equal(world_make(&w, &o), status);
    assert_non_null(strstr(nw_error_message(), words));
    world_free(&w);
}

TEST(test_what_cannot_be_made)
{
    cannot_make("allreduce", 2, 2, NW_E_ARGUMENT, "not by 2");
    cannot_make("allreduce", 2, -1, NW_E_ARGUMENT, "not by -1");
    cannot_make("none", 2, 0, NW_E_ARGUMENT, "--exchange");
    cannot_make("allreduc", 2, 0, NW_E_UNKNOWN, "'allreduce'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_ranks_have_the_twins_bits),
                                       cmocka_unit_test(test_groups_are_not_the_world),
                                       cmocka_unit_test(test_buckets_do_not_change_bits),
                                       cmocka_unit_test(test_gradients_go_on_over_the_end_of_a_run),
                                       cmocka_unit_test(test_random_orders),
                                       cmocka_unit_test(test_every_order_of_two_ranks),
                                       cmocka_unit_test(test_every_order_of_two_ranks_and_buckets),
                                       cmocka_unit_test(test_every_order_of_three_ranks),
                                       cmocka_unit_test(test_all_stop_after_the_same_step),
                                       cmocka_unit_test(test_stopping_in_a_gradient_that_goes_on),
                                       cmocka_unit_test(test_saved_state_goes_on_bit_for_bit),
                                       cmocka_unit_test(test_a_delay_ends_with_a_checkpoint),
                                       cmocka_unit_test(test_what_is_held_back_is_in_the_state),
                                       cmocka_unit_test(test_impossible_states_are_refused),
                                       cmocka_unit_test(test_waits_names_exactly_who_is_missing),
                                       cmocka_unit_test(test_malformed_messages_are_refused_and_change_nothing),
                                       cmocka_unit_test(test_a_mean_comes_once_and_from_its_owner),
                                       cmocka_unit_test(test_payloads_of_wrong_size_fail),
                                       cmocka_unit_test(test_floats_are_refused_where_a_codec_is_used),
                                       cmocka_unit_test(test_steady_state_allocates_nothing),
                                       cmocka_unit_test(test_what_cannot_be_made)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
