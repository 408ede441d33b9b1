/*
 * test_every_codec.c - what all codecs of the registry promise, each with every memory that it may have, as channels use
 * them: those that send bytes, and those whose floats are added in rounds.
 *
 *   - what was delivered and what is kept add up to what was given (error feedback); an estimate is what was delivered (EF21)
 *   - the same bytes, and the same memory, for any number of threads and every instruction set
 *   - a gradient of zeros delivers zeros
 *   - numbers that are not finite are passed on by none, fp16 and bf16, and refused by all others, who name the tensor
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/hash.h"
#include "base/rng.h"
#include "channel/channel.h"
#include "codec/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static const int shapes[][2] = {{40, 50}, {77, 1}, {64, 180}, {3, 1}}; /* the third has three tiles */
enum { SHAPES = sizeof shapes / sizeof shapes[0], FLOATS = 40 * 50 + 77 + 64 * 180 + 3, STEPS = 12 };

/* One member of a group of one. */
typedef struct sender {
    nw_segments segments;
    nw_codec *codec;
    nw_layout layout;
    nw_channel channel;
    nw_actions actions;
    nw_pool *pool;
    uint64_t hash; /* of all bytes and rounds so far */
} sender;

static float given[FLOATS], out[FLOATS], rounds_of[FLOATS + 4096];

static nw_codec_options options_of(const char *name)
{
    nw_codec_options o = nw_codec_options_default(name);
    o.ratio = 0.05;
    o.threshold = 1;
    o.rank = 2;
    return o;
}

static void open_sender(sender *s, const nw_codec_options *o, const char *memory, int threads)
{
    int ignored;
    *s = (sender){0};
    for (int i = 0; i < SHAPES; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%d.weight", i);
        assert_int_equal(
            nw_segments_add(&s->segments, name, NW_ROLE_LINEAR, 0, 1, shapes[i][1] > 1 ? 2 : 1, shapes[i], &ignored),
            NW_OK);
    }
    assert_int_equal(s->segments.floats, FLOATS);
    if (threads > 0) assert_int_equal(nw_pool_create(&s->pool, threads), NW_OK);
    assert_int_equal(nw_codec_create(&s->codec, o), NW_OK);
    assert_int_equal(nw_layout_make(&s->layout, &(nw_layout_options){.segments = &s->segments,
                                                                     .codec = s->codec,
                                                                     .dense = &nw_codec_plain,
                                                                     .bucket_bytes = 4096,
                                                                     .cuts = 1}),
                     NW_OK);
    assert_int_equal(nw_message_pool_create(&s->actions.pool), NW_OK);
    assert_int_equal(nw_channel_make(&s->channel, &(nw_channel_options){.layout = &s->layout,
                                                                        .memory = {.name = memory},
                                                                        .name = "memory",
                                                                        .number = NW_CHANNEL_EXCHANGE,
                                                                        .rank = 5,
                                                                        .only = -1,
                                                                        .pool = s->pool}),
                     NW_OK);
}

static void close_sender(sender *s)
{
    nw_channel_free(&s->channel);
    nw_layout_free(&s->layout);
    nw_codec_free(s->codec);
    nw_message_pool *pool = s->actions.pool; /* which freed actions do not name any more */
    nw_actions_free(&s->actions);
    nw_message_pool_free(pool);
    nw_pool_free(s->pool);
    free(s->segments.at);
}

static void mix(sender *s, const void *data, size_t bytes)
{
    s->hash = (s->hash ^ nw_hash64(data, bytes)) * 0x9e3779b97f4a7c15u;
}

static nw_status send_rounds(sender *s, int bucket, nw_moment when)
{
    const nw_block *b = &s->layout.at[bucket].block;
    int count = b->codec->ops->rounds->count;
    for (int r = 0; r < count; r++) {
        size_t floats = nw_codec_round_floats(b, r);
        assert_true(floats <= sizeof rounds_of / sizeof rounds_of[0]);
        NW_TRY(nw_channel_contribute(&s->channel, &s->actions, bucket, when, given, r, rounds_of));
        mix(s, rounds_of, floats * sizeof(float));
        nw_channel_use_mean(&s->channel, &s->actions, bucket, when, given, r, rounds_of, r + 1 == count ? out : NULL);
    }
    return NW_OK;
}

static nw_status send_bytes(sender *s, int bucket, nw_moment when)
{
    nw_message *m = NULL;
    NW_TRY(nw_channel_encode(&s->channel, &s->actions, bucket, when, given, -1, NW_CODED, &m));
    mix(s, m->payload, m->header->bytes);
    nw_status status = nw_channel_decode(&s->channel, &s->actions, m, 0, out, NW_AT_FIRST, false);
    nw_message_drop(m);
    return status;
}

/* All buckets of `given`, to `out`. */
static nw_status send(sender *s, int step)
{
    for (int b = 0; b < s->layout.count; b++) {
        nw_moment when = {.step = step, .clock = step};
        NW_TRY(s->layout.at[b].summed ? send_rounds(s, b, when) : send_bytes(s, b, when));
        nw_channel_reduced(&s->channel, &s->actions, b, out);
    }
    return NW_OK;
}

static void fill(int step)
{
    nw_rng rng = nw_rng_make(3, NW_PURPOSE_TEST, (uint64_t)step, 0);
    for (int i = 0; i < FLOATS; i++) given[i] = nw_rng_normal(&rng) * (i % 9 == 0 ? 3.0f : 0.2f);
}

static bool is_dense(const sender *s, int element)
{
    for (int b = 0; b < s->layout.count; b++)
        for (int t = 0; t < s->layout.at[b].block.tile_count; t++) {
            const nw_tile *tile = &s->layout.at[b].block.tiles[t];
            size_t i = (size_t)element;
            if (i >= tile->first && i < tile->first + tile->count) return s->layout.at[b].dense;
        }
    return true;
}

/* Each codec, and two of random-k and of qsgd. */
static int variants(nw_codec_options *list)
{
    int count = 0;
    for (int i = 0; i < nw_codec_kinds(); i++) list[count++] = options_of(nw_codec_at(i)->name);
    list[count] = options_of("randomk");
    list[count++].shared = false;
    list[count] = options_of("qsgd");
    list[count].levels = 127;
    list[count++].bucket = 512;
    list[count] = options_of("topk");
    list[count++].values = NW_VALUES_FP16;
    list[count] = options_of("topk");
    list[count++].values = (nw_values)(NW_VALUES_BITS + 4);
    return count;
}
enum { VARIANTS = 32 };

static bool may_have(const nw_codec_options *o, const char *memory)
{
    sender s;
    open_sender(&s, o, NULL, 0);
    bool may = nw_layout_check_memory(&s.layout, &(nw_memory_options){.name = memory}) == NW_OK;
    close_sender(&s);
    return may;
}

static void check_sums(const nw_codec_options *o)
{
    static double all[FLOATS], delivered[FLOATS];
    sender s;
    double lost = 0;
    memset(all, 0, sizeof all);
    memset(delivered, 0, sizeof delivered);
    open_sender(&s, o, "error", 0);
    for (int step = 0; step < STEPS; step++) {
        fill(step);
        assert_int_equal(send(&s, step), NW_OK);
        for (int i = 0; i < FLOATS; i++) all[i] += (double)given[i], delivered[i] += (double)out[i];
    }
    for (int i = 0; i < FLOATS; i++) {
        double kept = is_dense(&s, i) || !s.channel.memory ? 0 : (double)s.channel.memory->v[i];
        lost += fabs(kept);
        if (fabs(all[i] - delivered[i] - kept) > 1e-4)
            fail_msg("%s: element %d was given %g, delivered %g, and %g is kept", o->name, i, all[i], delivered[i],
                     kept);
    }
    if (lost == 0 && strcmp(o->name, "none") != 0) fail_msg("%s lost nothing: this test shows nothing", o->name);
    close_sender(&s);
}

TEST(test_delivered_and_kept_are_what_was_given)
{
    nw_codec_options list[VARIANTS];
    int count = variants(list), tried = 0;
    for (int i = 0; i < count; i++) {
        if (!may_have(&list[i], "error")) continue;
        check_sums(&list[i]);
        tried++;
    }
    assert_int_equal(tried, count - 2); /* all but terngrad and modulo */
}

TEST(test_estimates_are_what_was_delivered)
{
    nw_codec_options list[VARIANTS];
    int count = variants(list), tried = 0;
    for (int i = 0; i < count; i++) {
        sender s;
        if (!may_have(&list[i], "ef21") || list[i].name[0] == 'n') continue;
        open_sender(&s, &list[i], "ef21", 0);
        for (int step = 0; step < STEPS; step++) {
            fill(step);
            assert_int_equal(send(&s, step), NW_OK);
            for (int k = 0; k < FLOATS; k++)
                if (!is_dense(&s, k)) assert_true(fabsf(s.channel.memory->u[k] - out[k]) < 1e-4f);
        }
        close_sender(&s);
        tried++;
    }
    assert_true(tried >= 8);
}

/* What a way of computing makes of some steps. */
static uint64_t hash_of(const nw_codec_options *o, const char *memory, int threads, const nw_codec_kernels *set)
{
    sender s;
    nw_codec_kernels_force(set);
    open_sender(&s, o, memory, threads);
    for (int step = 0; step < 3; step++) {
        fill(step);
        assert_int_equal(send(&s, step), NW_OK);
        mix(&s, out, sizeof out);
    }
    if (s.channel.memory) mix(&s, s.channel.memory->v, FLOATS * sizeof(float));
    nw_codec_kernels_force(NULL);
    uint64_t hash = s.hash;
    close_sender(&s);
    return hash;
}

TEST(test_threads_and_instruction_sets_make_the_same_bytes)
{
    static const char *const memories[] = {"none", "error", "ef21"};
    static const int threads[] = {0, 1, 2, 3, 7};
    nw_codec_options list[VARIANTS];
    int count = variants(list), sets = 0;
    for (int k = 0; k < nw_codec_kernel_sets(); k++) sets += nw_codec_kernels_at(k)->usable();
    assert_true(sets > 0);
    for (int i = 0; i < count; i++)
        for (int m = 0; m < 3; m++) {
            if (!may_have(&list[i], memories[m])) continue;
            uint64_t want = hash_of(&list[i], memories[m], 0, NULL);
            for (int k = 0; k < nw_codec_kernel_sets(); k++)
                for (int t = 0; t < 5 && nw_codec_kernels_at(k)->usable(); t++)
                    if (hash_of(&list[i], memories[m], threads[t], nw_codec_kernels_at(k)) != want)
                        fail_msg("%s, memory %s, %d threads, %s: other bytes", list[i].name, memories[m], threads[t],
                                 nw_codec_kernels_at(k)->name);
        }
}

TEST(test_zeros_deliver_zeros)
{
    nw_codec_options list[VARIANTS];
    int count = variants(list);
    memset(given, 0, sizeof given);
    for (int i = 0; i < count; i++) {
        sender s;
        open_sender(&s, &list[i], may_have(&list[i], "error") ? "error" : NULL, 2);
        for (int step = 0; step < 2; step++) {
            for (int k = 0; k < FLOATS; k++) out[k] = 9;
            assert_int_equal(send(&s, step), NW_OK);
            for (int k = 0; k < FLOATS; k++)
                if (out[k] != 0) fail_msg("%s: element %d of zeros is %g", list[i].name, k, (double)out[k]);
        }
        close_sender(&s);
    }
}

TEST(test_what_is_not_finite)
{
    static const float wrong[] = {NAN, INFINITY, -INFINITY};
    nw_codec_options list[VARIANTS];
    int count = variants(list), refused = 0;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 3; k++) {
            sender s;
            open_sender(&s, &list[i], NULL, k);
            fill(k);
            int first = 40 * 50 + 77,
                chosen = strcmp(list[i].name, "randomk") == 0; /* which sees what it sends alone */
            for (int n = chosen ? 0 : 5000; n < (chosen ? 64 * 180 : 5001); n++) given[first + n] = wrong[k];
            nw_status status = send(&s, 6);
            bool passes = s.codec->ops->family <= NW_FAMILY_BF16;
            if (status != (passes ? NW_OK : NW_E_NUMERIC))
                fail_msg("%s: %g ends as %d", list[i].name, (double)wrong[k], (int)status);
            if (!passes) {
                const char *said = nw_error_message();
                if (!strstr(said, "layer2.weight") || !strstr(said, "step 7") || !strstr(said, "rank 5"))
                    fail_msg("%s: '%s' names no tensor, step and rank", list[i].name, said);
                refused++;
            }
            close_sender(&s);
        }
    assert_int_equal(refused, 3 * (count - 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delivered_and_kept_are_what_was_given),
        cmocka_unit_test(test_estimates_are_what_was_delivered),
        cmocka_unit_test(test_threads_and_instruction_sets_make_the_same_bytes),
        cmocka_unit_test(test_zeros_deliver_zeros),
        cmocka_unit_test(test_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
