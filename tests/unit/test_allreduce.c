/*
 * test_allreduce.c - the allreduce exchange against its plain twin, in every order in which things can happen, and
 * against messages that are not what they should be. support/exchange_world.h moves it by hand.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/allocations.h"
#include "support/exchange_world.h"

static const int ONE[] = {40, 0};                      /* one bucket; parts of 32 and 8 for two ranks */
static const int TWO[] = {32, 32, 0};                  /* two buckets with 128 bytes each at least */
static const int TINY[] = {3, 1, 7, 0};                /* parts of most ranks are empty */
static const int MANY[] = {64, 5, 100, 33, 2, 250, 0}; /* uneven parts */
static const char *const CODECS[] = {"none", "fp16", "bf16"};

static float *twin_of(const world *w, int64_t steps, int64_t flush_at, bool flushes)
{
    static float weights[1024];
    assert_true(w->floats <= 1024);
    twin_run(w, steps, flush_at, flushes, weights);
    return weights;
}

/* ---- the twin ---- */

static void check_case(const world_options *o, uint64_t order)
{
    world w;
    world_make(&w, o);
    world_begin(&w);
    world_run(&w, 5, order);
    world_check(&w, twin_of(&w, 5, 0, false));
    world_flush(&w, order + 1);
    world_check(&w, twin_of(&w, 5, 0, true));
    world_flush(&w, order + 2); /* nothing is held back any more */
    world_check(&w, twin_of(&w, 5, 0, true));
    world_run(&w, 8, order + 3);
    world_check(&w, twin_of(&w, 8, 5, false));
    world_free(&w);
}

static void test_all_ranks_have_the_twins_bits(void **state)
{
    (void)state;
    static const int *const SEGMENTS[] = {ONE, TWO, TINY, MANY};
    static const int RANKS[] = {1, 2, 3, 5};
    uint64_t order = 0;
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            for (int c = 0; c < 3; c++)
                for (int delay = 0; delay <= 1; delay++)
                    for (int pieces = 0; pieces <= 1; pieces++) {
                        world_options o = {.ranks = RANKS[r],
                                           .delay = delay,
                                           .codec = CODECS[c],
                                           .segments = SEGMENTS[s],
                                           .bucket_bytes = 128,
                                           .seed = order,
                                           .sizes = pieces ? order + 1 : 0};
                        check_case(&o, ++order);
                    }
}

/* Whether one bucket or many: the same bits, since each element's sum is in the order of ranks. */
static void test_buckets_do_not_change_bits(void **state)
{
    (void)state;
    float first[1024];
    for (size_t bytes = 4; bytes <= 1 << 22; bytes *= 8) {
        world w;
        world_make(&w,
                   &(world_options){.ranks = 3, .codec = "fp16", .segments = MANY, .bucket_bytes = bytes, .seed = 4});
        world_begin(&w);
        world_run(&w, 4, bytes);
        if (bytes == 4) memcpy(first, w.ranks[0].params.values, w.floats * sizeof(float));
        world_check(&w, first);
        world_free(&w);
    }
}

/* ---- orders ---- */

static void test_random_orders(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        int ranks = 2 + (int)(seed % 4), delay = (int)(seed / 4 % 2);
        world w;
        world_make(&w, &(world_options){.ranks = ranks,
                                        .delay = delay,
                                        .codec = "none",
                                        .segments = seed % 5 ? TWO : MANY,
                                        .bucket_bytes = 128,
                                        .seed = 1,
                                        .sizes = seed / 8 % 2 ? seed + 1 : 0});
        world_begin(&w);
        world_run(&w, 6, seed);
        world_flush(&w, seed);
        world_check(&w, twin_of(&w, 6, 0, true));
        world_free(&w);
    }
}

/*
 * Every order, by going through the tree of choices depth first and running the world from its beginning for each leaf.
 * Orders that differ only in moves of different ranks lead to the same states: of these one is run (sleep sets;
 * Godefroid 1996). `asleep` are moves whose turn came in an order that was run before. `all` runs the others too.
 */
typedef struct choice {
    uint32_t moves, asleep, tried;
} choice;

enum { DEPTH_MOST = 256 };

/* Moves on the same rank as `bit`. */
static uint32_t same_rank(const world *w, uint32_t bit)
{
    int to = __builtin_ctz(bit) % w->options.ranks;
    uint32_t mask = 0;
    for (int f = 0; f < w->options.ranks; f++) mask |= world_bit(w, f, to);
    return mask;
}

/* Runs one order: along the choices made, then on with the first of what is awake. False: nothing was, a known state. */
static bool run_order(world *w, choice *path, int *depth, bool all)
{
    int at = 0;
    uint32_t moves;
    world_begin(w);
    for (; (moves = world_moves(w)) != 0; at++) {
        assert_true(at < DEPTH_MOST);
        if (at == *depth) {
            uint32_t asleep = 0;
            if (at > 0 && !all) {
                uint32_t last = path[at - 1].tried & -path[at - 1].tried, before = path[at - 1].tried & ~last;
                asleep = (path[at - 1].asleep | before) & ~same_rank(w, last);
            }
            path[at] = (choice){.moves = moves, .asleep = asleep & moves};
            if ((moves & ~asleep) == 0) return false;
            (*depth)++;
            uint32_t awake = moves & ~asleep;
            path[at].tried = 1u << (31 - __builtin_clz(awake)); /* from the highest down: the lowest bit is the last */
        }
        world_move(w, path[at].tried & -path[at].tried);
    }
    return true;
}

static bool next_order(choice *path, int *depth)
{
    for (; *depth > 0; (*depth)--) {
        choice *c = &path[*depth - 1];
        uint32_t last = c->tried & -c->tried, left = c->moves & ~c->asleep & (last - 1);
        if (left) {
            c->tried |= 1u << (31 - __builtin_clz(left));
            return true;
        }
    }
    return false;
}

static int64_t try_every_order(const world_options *o, int64_t steps, bool all)
{
    choice path[DEPTH_MOST];
    int depth = 0;
    int64_t orders = 0;
    float weights[1024];
    do {
        world w;
        world_make(&w, o);
        w.until = steps;
        if (orders == 0) memcpy(weights, twin_of(&w, steps, 0, false), w.floats * sizeof(float));
        if (run_order(&w, path, &depth, all)) {
            world_check(&w, weights);
            orders++;
        }
        world_free(&w);
    } while (next_order(path, &depth));
    return orders;
}

static void test_every_order_of_two_ranks(void **state)
{
    (void)state;
    world_options o = {.ranks = 2, .codec = "none", .segments = ONE, .bucket_bytes = 128, .seed = 2};
    int64_t all = try_every_order(&o, 1, true), distinct = try_every_order(&o, 1, false);
    print_message("two ranks, one bucket: %lld orders, %lld of them distinct\n", (long long)all, (long long)distinct);
    assert_true(all > 100 && distinct < all); /* and both found no fault */
}

static void test_every_order_of_two_ranks_and_buckets(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++)
        for (int pieces = 0; pieces <= 1; pieces++) {
            world_options o = {.ranks = 2,
                               .delay = delay,
                               .codec = "none",
                               .segments = TWO,
                               .bucket_bytes = 128,
                               .seed = 3,
                               .sizes = pieces ? 11 : 0};
            int64_t orders = try_every_order(&o, pieces ? 1 : 2, false);
            print_message("two ranks, two buckets, delay %d: %lld orders\n", delay, (long long)orders);
            assert_true(orders > 10);
        }
}

static void test_every_order_of_three_ranks(void **state)
{
    (void)state;
    world_options o = {.ranks = 3, .codec = "none", .segments = (const int[]){48, 0}, .bucket_bytes = 64, .seed = 5};
    int64_t orders = try_every_order(&o, 1, false);
    print_message("three ranks, one bucket: %lld orders\n", (long long)orders);
    assert_true(orders > 100);
}

/* ---- saving ---- */

static void copy_state(nw_exchange *from, nw_exchange *to, size_t floats)
{
    nw_exchange_state a, b;
    from->ops->state(from, &a);
    to->ops->state(to, &b);
    assert_int_equal(a.integer_count, b.integer_count);
    for (int i = 0; i < a.integer_count; i++) *b.integers[i].value = *a.integers[i].value;
    to->ops->state(to, &b); /* which vectors there are depends on the integers */
    assert_int_equal(a.vector_count, b.vector_count);
    for (int i = 0; i < a.vector_count; i++) {
        assert_string_equal(a.vectors[i].name, b.vectors[i].name);
        memcpy(b.vectors[i].data, a.vectors[i].data, floats * sizeof(float));
    }
}

/* A new world that knows nothing but weights and state goes on to the same bits. All ranks take rank 0's state, as they
 * do from a checkpoint. */
static void test_saved_state_goes_on_bit_for_bit(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++)
        for (int64_t at = 0; at <= 5; at++)
            for (int ranks = 1; ranks <= 4; ranks += 3) {
                world_options o = {.ranks = ranks,
                                   .delay = delay,
                                   .codec = "bf16",
                                   .segments = MANY,
                                   .bucket_bytes = 256,
                                   .seed = 6,
                                   .sizes = 5};
                world before, after;
                world_make(&before, &o);
                world_begin(&before);
                world_run(&before, at, (uint64_t)at);
                world_make(&after, &o);
                for (int r = 0; r < ranks; r++) {
                    world_rank *x = &before.ranks[r], *y = &after.ranks[r];
                    memcpy(y->params.values, x->params.values, before.floats * sizeof(float));
                    y->begun = x->begun;
                    y->applied = x->applied;
                    copy_state(before.ranks[0].exchange, y->exchange, before.floats);
                }
                world_free(&before);
                world_begin(&after);
                world_run(&after, 8, (uint64_t)at + 50);
                world_check(&after, twin_of(&after, 8, 0, false));
                world_flush(&after, 3);
                world_check(&after, twin_of(&after, 8, 0, true));
                world_free(&after);
            }
}

static void test_what_is_held_back_is_in_the_state(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++) {
        world w;
        nw_exchange_state s;
        world_make(&w, &(world_options){.ranks = 2, .delay = delay, .codec = "none", .segments = TWO, .seed = 8});
        nw_exchange *e = w.ranks[0].exchange;
        e->ops->state(e, &s);
        assert_int_equal(s.vector_count, 0);
        world_begin(&w);
        world_run(&w, 3, 1);
        e->ops->state(e, &s);
        assert_int_equal(s.vector_count, delay);
        for (int i = 0; i < s.integer_count; i++) {
            if (strcmp(s.integers[i].name, "applied") == 0) assert_int_equal(*s.integers[i].value, 3 - delay);
            if (strcmp(s.integers[i].name, "step") == 0) assert_int_equal(*s.integers[i].value, 3);
        }
        world_flush(&w, 1);
        e->ops->state(e, &s);
        assert_int_equal(s.vector_count, 0);
        world_free(&w);
    }
}

/* ---- who is missing ---- */

static void check_wait(const world *w, int count, int first, int second, const char *what)
{
    nw_wait wait;
    char text[256];
    w->ranks[0].exchange->ops->waits(w->ranks[0].exchange, &wait);
    nw_wait_text(&wait, text, sizeof text);
    if (wait.count != count || (count > 0 && wait.ranks[0] != first) || (count > 1 && wait.ranks[1] != second) ||
        !strstr(text, what))
        fail_msg("rank 0 waits for '%s'; expected %d of %d, %d: %s", text, count, first, second, what);
}

static void local_until_computed(world *w, int rank)
{
    do world_ok(world_local(w, rank));
    while (w->ranks[rank].computing);
}

static void test_waits_names_exactly_who_is_missing(void **state)
{
    (void)state;
    world w;
    world_make(&w, &(world_options){.ranks = 3, .codec = "none", .segments = (const int[]){48, 0}, .seed = 5});
    w.until = 2;
    world_begin(&w);
    check_wait(&w, 0, 0, 0, "nothing");
    for (int r = 0; r < 3; r++) local_until_computed(&w, r);
    check_wait(&w, 2, 1, 2, "ranks 1, 2: their gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 2, 0));
    check_wait(&w, 1, 1, 0, "rank 1: their gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 1, 0));
    check_wait(&w, 2, 1, 2, "ranks 1, 2: the mean gradient of bucket 0 of 1, step 1");
    world_ok(world_deliver(&w, 0, 1));
    world_ok(world_deliver(&w, 2, 1));
    world_ok(world_deliver(&w, 1, 0));
    check_wait(&w, 1, 2, 0, "rank 2: the mean gradient");
    assert_false(w.ranks[0].exchange->ops->idle(w.ranks[0].exchange));
    world_ok(world_deliver(&w, 0, 2));
    world_ok(world_deliver(&w, 1, 2));
    world_ok(world_deliver(&w, 2, 0));
    check_wait(&w, 0, 0, 0, "nothing");
    world_free(&w);
}

/* ---- messages that are not what they should be ---- */

typedef void forgery(nw_header *h);
static void forge_kind(nw_header *h) { h->kind = 99; }
static void forge_codec(nw_header *h) { h->codec = NW_CODEC_FP16; }
static void forge_bucket(nw_header *h) { h->segment = 1000; }
static void forge_bucket_far(nw_header *h) { h->segment = UINT32_MAX; }
static void forge_part(nw_header *h) { h->part = 3; }
static void forge_part_far(nw_header *h) { h->part = UINT32_MAX; }
static void forge_count_less(nw_header *h) { h->count--; }
static void forge_count_more(nw_header *h) { h->count++; }
static void forge_count_none(nw_header *h) { h->count = 0; }
static void forge_step_ahead(nw_header *h) { h->step += 2; }
static void forge_step_far(nw_header *h) { h->step = UINT64_MAX; }
static void forge_sender(nw_header *h) { h->from = 3; }
static void forge_sender_far(nw_header *h) { h->from = UINT32_MAX; }
static void forge_sender_self(nw_header *h) { h->from = 0; }
static void forge_owner(nw_header *h) { h->part = 1; }
static void forge_mean(nw_header *h) { h->kind = NW_KIND_FIRST + 1; }
static void forge_mean_of_owner(nw_header *h)
{
    h->kind = NW_KIND_FIRST + 1;
    h->part = h->from;
}
static void forge_nothing(nw_header *h) { (void)h; }

/* Gives rank 0 a changed copy of a message; it must be refused with words that name its sender. */
static void refuse(world *w, const nw_message *like, forgery *change, const char *words)
{
    nw_message *m;
    world_ok(nw_message_take(w->pool, like->header->bytes, &m));
    memcpy(m->header, like->header, nw_message_size(like));
    change(m->header);
    char sender[32];
    snprintf(sender, sizeof sender, "rank %u", m->header->from);
    assert_int_equal(world_tell(w, 0, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}), NW_E_MESSAGE);
    if (!strstr(nw_error_message(), words) || !strstr(nw_error_message(), sender))
        fail_msg("'%s' names neither '%s' nor %s", nw_error_message(), words, sender);
    assert_int_equal(m->references, 1);
    nw_message_drop(m);
}

/* 96 floats in one bucket, 32 for each rank, so that a part of another rank has the same size. */
static const world_options THREE = {
    .ranks = 3, .codec = "none", .segments = (const int[]){96, 0}, .seed = 12, .bucket_bytes = 64};

static void test_malformed_messages_are_refused_and_change_nothing(void **state)
{
    (void)state;
    static const struct {
        forgery *change;
        const char *words;
    } cases[] = {
        {forge_kind, "kind 99"},
        {forge_codec, "codec 2"},
        {forge_bucket, "bucket 1000"},
        {forge_bucket_far, "bucket"},
        {forge_part, "part 3"},
        {forge_part_far, "part"},
        {forge_count_less, "31 values"},
        {forge_count_more, "33 values"},
        {forge_count_none, "0 values"},
        {forge_step_ahead, "step 2"},
        {forge_step_far, "step"},
        {forge_sender, "part"},
        {forge_sender_far, "part"},
        {forge_sender_self, "itself"},
        {forge_owner, "does not own"},
        {forge_mean, "not its own"},
        {forge_mean_of_owner, "too early"},
    };
    world w;
    world_make(&w, &THREE);
    w.until = 1;
    world_begin(&w);
    local_until_computed(&w, 1);
    const nw_message *good = w.links[1][0].at[0];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) refuse(&w, good, cases[i].change, cases[i].words);

    nw_message *kept = nw_message_hold(w.links[1][0].at[0]);
    world_ok(world_deliver(&w, 1, 0));
    refuse(&w, kept, forge_nothing, "twice");
    local_until_computed(&w, 0);
    refuse(&w, kept, forge_nothing, "twice"); /* it has been added */
    world_run(&w, 1, 1);
    refuse(&w, kept, forge_nothing, "step 0"); /* it is of the past */
    nw_message_drop(kept);
    world_check(&w, twin_of(&w, 1, 0, false));
    world_run(&w, 4, 2);
    world_check(&w, twin_of(&w, 4, 0, false));
    world_free(&w);
}

static void test_a_mean_comes_once_and_from_its_owner(void **state)
{
    (void)state;
    world w;
    world_make(&w, &THREE);
    w.until = 1;
    world_begin(&w);
    for (int r = 0; r < 3; r++) local_until_computed(&w, r);
    world_ok(world_deliver(&w, 0, 1));
    world_ok(world_deliver(&w, 2, 1));
    nw_message *mean = nw_message_hold(w.links[1][0].at[1]);
    assert_int_equal(mean->header->kind, NW_KIND_FIRST + 1);
    world_ok(world_deliver(&w, 1, 0));
    refuse(&w, mean, forge_part, "part 3");
    refuse(&w, mean, forge_count_less, "31 values");
    refuse(&w, mean, forge_sender_self, "itself");
    world_ok(world_deliver(&w, 1, 0));
    refuse(&w, mean, forge_nothing, "twice");
    nw_message_drop(mean);
    world_run(&w, 3, 4);
    world_check(&w, twin_of(&w, 3, 0, false));
    world_free(&w);
}

/* A payload that is not what its header says fails where it is decoded, without reading beyond it. */
static void test_payloads_of_wrong_size_fail(void **state)
{
    (void)state;
    static const uint32_t SIZES[] = {0, 1, 124, 127};
    for (int i = 0; i < 4; i++) {
        world w;
        world_make(&w, &THREE);
        w.until = 1;
        world_begin(&w);
        local_until_computed(&w, 0);
        local_until_computed(&w, 1);
        w.links[1][0].at[0]->header->bytes = SIZES[i];
        assert_int_equal(world_deliver(&w, 1, 0), NW_E_MESSAGE);
        world_free(&w);
    }
}

/* ---- memory ---- */

static void test_steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++) {
        world w;
        size_t pool = 0;
        int before = 0;
        world_make(&w,
                   &(world_options){
                       .ranks = 4, .delay = delay, .codec = "fp16", .segments = MANY, .bucket_bytes = 256, .seed = 9});
        world_begin(&w);
        for (int64_t step = 1; step <= 12; step++) {
            uint32_t moves;
            w.until = step;
            while ((moves = world_moves(&w)) != 0) world_move(&w, moves & -moves);
            if (step == 2) {
                pool = nw_message_pool_bytes(w.pool);
                before = allocations;
            }
        }
        assert_int_equal(nw_message_pool_bytes(w.pool), pool);
        if (COUNTS_ALLOCATIONS) assert_int_equal(allocations, before);
        world_check(&w, twin_of(&w, 12, 0, false));
        world_free(&w);
    }
}

/* ---- making ---- */

static void test_what_cannot_be_made(void **state)
{
    (void)state;
    nw_params params = {0};
    nw_codec *codec;
    nw_exchange *e;
    int index;
    world_ok(nw_codec_create(&codec, &(nw_codec_options){.name = "none"}));
    world_ok(nw_segments_add(&params.learned, "w", NW_ROLE_LINEAR, 0, 1, 1, &(int){8}, &index));
    nw_exchange_options o = {.name = "allreduce", .world = 2, .params = &params, .codec = codec, .delay = 2};
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "not by 2"));
    o.delay = -1;
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_ARGUMENT);
    o.name = "none";
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "--exchange"));
    o.name = "allreduc";
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_UNKNOWN);
    assert_non_null(strstr(nw_error_message(), "'allreduce'"));
    nw_codec_free(codec);
    nw_params_free(&params);
}

static void test_buckets_cover_the_vector_once(void **state)
{
    (void)state;
    nw_segments s = {0};
    int sizes[] = {1, 700, 16, 3000, 2, 90, 0}, index;
    for (int i = 0; sizes[i]; i++) world_ok(nw_segments_add(&s, "w", NW_ROLE_LINEAR, i, 1, 1, &sizes[i], &index));
    for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1)
        for (int ranks = 1; ranks <= 40; ranks += 3) {
            nw_buckets b;
            world_ok(nw_buckets_make(&b, &s, bytes, ranks));
            size_t end = s.floats;
            for (int k = 0; k < b.count; k++) {
                assert_int_equal(b.at[k].first + b.at[k].count, end);
                assert_true(k + 1 == b.count || b.at[k].count >= bytes / sizeof(float));
                assert_int_equal(s.at[b.at[k].first_segment].offset, b.at[k].first);
                size_t at = b.at[k].first, first, count;
                for (int r = 0; r < ranks; r++) {
                    nw_bucket_part(&b, k, r, &first, &count);
                    assert_int_equal(first, at);
                    assert_int_equal((first - b.at[k].first) % 16, 0);
                    at += count;
                }
                assert_int_equal(at, end);
                end = b.at[k].first;
            }
            assert_int_equal(end, 0);
            nw_buckets_free(&b);
        }
    free(s.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ranks_have_the_twins_bits),
        cmocka_unit_test(test_buckets_do_not_change_bits),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_every_order_of_two_ranks),
        cmocka_unit_test(test_every_order_of_two_ranks_and_buckets),
        cmocka_unit_test(test_every_order_of_three_ranks),
        cmocka_unit_test(test_saved_state_goes_on_bit_for_bit),
        cmocka_unit_test(test_what_is_held_back_is_in_the_state),
        cmocka_unit_test(test_waits_names_exactly_who_is_missing),
        cmocka_unit_test(test_malformed_messages_are_refused_and_change_nothing),
        cmocka_unit_test(test_a_mean_comes_once_and_from_its_owner),
        cmocka_unit_test(test_payloads_of_wrong_size_fail),
        cmocka_unit_test(test_steady_state_allocates_nothing),
        cmocka_unit_test(test_what_cannot_be_made),
        cmocka_unit_test(test_buckets_cover_the_vector_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
