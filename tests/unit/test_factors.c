/*
 * test_factors.c - what codecs take where time is simulated: which factor is found, and that a channel names so many
 * times the bytes for what its codec does, and no other bytes without factors.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/channel.h"

#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state)

enum { ROWS = 60, FLOATS = ROWS * 100 };

static nw_factor listed[] = {{"topk", "encode", 3},     {"topk", "decode", 0.25},  {"topk", "error", 5},
                             {"powersgd", "encode", 2}, {"powersgd", "decode", 7}, {"none", "decode", 2}};
static const nw_factors factors = {listed, sizeof listed / sizeof *listed};

TEST(test_the_right_factor_is_found)
{
    (void)state;
    assert_true(nw_factors_find(&factors, "topk", "encode") == 3);
    assert_true(nw_factors_find(&factors, "topk", "error") == 5);
    assert_true(nw_factors_find(&factors, "topk", "dgc") == 3); /* a memory that is not listed: as encoding */
    assert_true(nw_factors_find(&factors, "none", "encode") == 1);
    assert_true(nw_factors_find(&factors, "sign", "decode") == 1);
    assert_true(nw_factors_find(NULL, "topk", "encode") == 1);
    assert_true(nw_factors_find(&(nw_factors){0}, "topk", "encode") == 1);
    assert_int_equal(nw_factors_apply(&factors, "topk", "decode", 1002), 251);
    assert_int_equal(nw_factors_apply(&factors, "sign", "decode", 1002), 1002);
}

/* Bytes that are named for encoding and for decoding. */
typedef struct touched {
    size_t encode, decode;
} touched;

static float values[FLOATS], sum[FLOATS];

static nw_segments make_segments(void)
{
    nw_segments s = {0};
    int shape[] = {ROWS, FLOATS / ROWS}, index;
    assert_int_equal(nw_segments_add(&s, "fc.weight", NW_ROLE_LINEAR, 0, 1, 2, shape, &index), NW_OK);
    return s;
}

static touched through_bytes(nw_channel *c, nw_actions *a)
{
    touched t;
    nw_message *m = NULL;
    assert_int_equal(nw_channel_encode(c, a, 0, (nw_moment){0}, values, -1, NW_CODED, &m), NW_OK);
    t.encode = a->touched;
    assert_int_equal(nw_channel_decode(c, a, m, 0, sum, NW_AT_FIRST, true), NW_OK);
    t.decode = a->touched - t.encode;
    nw_message_drop(m);
    return t;
}

static touched through_rounds(nw_channel *c, nw_actions *a)
{
    touched t = {0};
    int rounds = c->o.layout->at[0].block.codec->ops->rounds->count;
    float *round = calloc(FLOATS, sizeof *round);
    for (int r = 0; r < rounds; r++) {
        size_t before = a->touched;
        assert_int_equal(nw_channel_contribute(c, a, 0, (nw_moment){0}, values, r, round), NW_OK);
        t.encode += a->touched - before;
        before = a->touched;
        nw_channel_use_mean(c, a, 0, (nw_moment){0}, values, r, round, r + 1 == rounds ? sum : NULL);
        t.decode += a->touched - before;
    }
    free(round);
    return t;
}

static touched through(const char *name, const char *memory, const nw_factors *f)
{
    nw_codec_options o = nw_codec_options_default(name);
    nw_segments s = make_segments();
    nw_codec *codec;
    nw_layout l;
    nw_channel c;
    nw_actions a = {.factors = f};
    o.rank = 2;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    assert_int_equal(nw_layout_make(&l, &(nw_layout_options){.segments = &s, .codec = codec, .cuts = 1}), NW_OK);
    assert_int_equal(nw_message_pool_create(&a.pool), NW_OK);
    assert_int_equal(nw_channel_make(&c, &(nw_channel_options){.layout = &l,
                                                               .memory = {.name = memory},
                                                               .name = "m",
                                                               .number = NW_CHANNEL_EXCHANGE,
                                                               .only = -1}),
                     NW_OK);
    touched t = l.at[0].summed ? through_rounds(&c, &a) : through_bytes(&c, &a);
    nw_channel_free(&c);
    nw_layout_free(&l);
    nw_message_pool *pool = a.pool; /* which freed actions do not name any more */
    nw_actions_free(&a);
    nw_message_pool_free(pool);
    nw_codec_free(codec);
    free(s.at);
    return t;
}

TEST(test_channels_name_so_many_times_the_bytes)
{
    (void)state;
    static const struct {
        const char *codec, *memory;
        double encode, decode;
    } cases[] = {{"topk", "none", 3, 0.25},   {"topk", "error", 5, 0.25}, {"topk", "ef21", 3, 0.25},
                 {"powersgd", "error", 2, 7}, {"none", "none", 1, 2},     {"sign", "error", 1, 1}};
    for (int i = 0; i < FLOATS; i++) values[i] = (float)((i * 37) % 101 - 50);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        touched plain = through(cases[i].codec, cases[i].memory, NULL);
        touched same = through(cases[i].codec, cases[i].memory, &(nw_factors){0});
        touched more = through(cases[i].codec, cases[i].memory, &factors);
        assert_true(plain.encode >= FLOATS * sizeof(float) && plain.decode > 0);
        assert_int_equal(same.encode, plain.encode);
        assert_int_equal(same.decode, plain.decode);
        assert_true(llabs((long long)more.encode - (long long)((double)plain.encode * cases[i].encode)) <= 2);
        assert_true(llabs((long long)more.decode - (long long)((double)plain.decode * cases[i].decode)) <= 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_the_right_factor_is_found),
                                       cmocka_unit_test(test_channels_name_so_many_times_the_bytes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
