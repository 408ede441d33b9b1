/*
 * test_sparse_wire.c - bytes of sparse blocks: test vectors, sizes beside the entropy of a set, numbers of 2 to 8 bits,
 * and messages that were corrupted, cut off or made up.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "support/blocks.h"
#include "support/sparse_twin.h"

#include <stdio.h>

static const nw_codec_key key = {.step = 3};
static const float given[6] = {0.3f, -0.1f, 0, -0.8f, 0.45f, 0.05f};

static nw_codec *make(const char *name, double ratio, nw_values values)
{
    nw_codec_options o = nw_codec_options_default(name);
    nw_codec *codec = NULL;
    o.ratio = ratio;
    o.values = values;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    return codec;
}

/* ---- test vectors ---- */

static void check_vector(const nw_codec *codec, const float *v, size_t n, const char *hex)
{
    uint8_t want[256], got[512];
    size_t bytes = 0;
    for (const char *p = hex; *p; p++) {
        unsigned x;
        if (*p == ' ') continue;
        assert_int_equal(sscanf(p++, "%2x", &x), 1);
        want[bytes++] = (uint8_t)x;
    }
    nw_block b = plain_block(codec, n);
    assert_int_equal(encode_block(&b, NULL, key, v, got, NULL).bytes, bytes);
    assert_memory_equal(got, want, bytes);
    nw_block_free(&b);
}

static void test_vectors(void **state)
{
    static float sparse[1000];
    (void)state;
    nw_codec *half = make("topk", 0.5, NW_VALUES_FP16), *two = make("topk", 0.5, NW_VALUES_BITS + 2);
    nw_codec *full = make("topk", 0.005, NW_VALUES_F32);
    check_vector(half, given, 6, "04020000 06000000 03000000 1c000000 cd3466ba 33370000 00190000");
    check_vector(two, given, 6, "04120000 06000000 03000000 1c000000 993e4d3f 0c000000 00190000");
    check_vector(half, (float[6]){0, -0.0f}, 6, "04020000 06000000 00000000 10000000");
    check_vector(two, (float[6]){0, -0.0f}, 6, "04120000 06000000 00000000 10000000");
    sparse[5] = 1, sparse[100] = -2, sparse[103] = 0.5f, sparse[700] = -0.25f, sparse[999] = 3;
    check_vector(full, sparse, 1000,
                 "04010000 e8030000 05000000 2c000000 0000803f 000000c0 0000003f 000080be 00004040 0705af80 aa028704");
    nw_codec_free(half);
    nw_codec_free(two);
    nw_codec_free(full);
}

/* What each rule keeps of six numbers. */
static void check_kept(const nw_codec *codec, const char *kept)
{
    float x[6];
    memcpy(x, given, sizeof x);
    pass_codec(codec, x, 6);
    for (int i = 0; i < 6; i++) assert_true(x[i] == (strchr(kept, '0' + i) ? given[i] : 0));
}

static void test_rules(void **state)
{
    static const struct {
        double ratio;
        const char *round, *published;
    } ratios[] = {{0.1, "3", "3"}, {0.34, "34", "034"}, {0.5, "034", "0134"}, {0.9, "01345", "01345"}};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int published = 0; published < 2; published++) {
            nw_codec_options o = nw_codec_options_default("topk");
            nw_codec *codec;
            o.ratio = ratios[i].ratio;
            o.counting = published ? NW_COUNT_FLOOR_PLUS_1 : NW_COUNT_ROUND;
            assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
            check_kept(codec, published ? ratios[i].published : ratios[i].round);
            nw_codec_free(codec);
        }
    nw_codec *adaptive = make("adaptivethreshold", 1, 0);
    check_kept(adaptive, "34");
    nw_codec_free(adaptive);
    static const struct {
        double threshold;
        const char *kept;
    } thresholds[] = {{0, "01345"}, {0.05, "01345"}, {0.1, "0134"}, {0.3, "034"}, {0.8, "3"}, {0.81, ""}};
    for (int i = 0; i < 6; i++) {
        nw_codec_options o = nw_codec_options_default("thresholdv");
        nw_codec *codec;
        o.threshold = thresholds[i].threshold;
        assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
        check_kept(codec, thresholds[i].kept);
        nw_codec_free(codec);
    }
}

/* The largest number that there is stays finite in every format. */
static void test_largest_numbers(void **state)
{
    static const nw_values formats[] = {NW_VALUES_F32, NW_VALUES_FP16, NW_VALUES_BF16, NW_VALUES_BITS + 2};
    static const float largest[] = {0x1.fffffep127f, 65504, 0x1.fep127f, 0x1.fep127f};
    (void)state;
    for (int f = 0; f < 4; f++) {
        float x[2] = {0x1.fffffep127f, -0x1.fffffep127f};
        nw_codec *codec = make("topk", 1, formats[f]);
        pass_codec(codec, x, 2);
        assert_true(x[0] == largest[f] && x[1] == -largest[f]);
        nw_codec_free(codec);
    }
}

/* ---- sizes ---- */

static double log2_choose(double n, double k) { return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2); }

/* Places of uniform sets take at most 2 % more than there are sets. */
static void test_entropy(void **state)
{
    enum { N = 1 << 20 };
    float *v = malloc(N * sizeof *v);
    uint8_t *bytes = malloc(N);
    (void)state;
    nw_rng rng = nw_rng_make(8, NW_PURPOSE_TEST, 0, 0);
    for (int trial = 0; trial < 4; trial++) {
        double ratio = trial % 2 ? 0.001 : 0.01;
        nw_codec *codec = make("topk", ratio, NW_VALUES_FP16);
        nw_block b = plain_block(codec, N);
        for (size_t i = 0; i < N; i++) v[i] = nw_rng_normal(&rng);
        nw_encoded e = encode_block(&b, NULL, key, v, bytes, NULL);
        double least = log2_choose(N, (double)nw_codec_count(codec, N, ratio)) / 8;
        assert_true((double)e.index_bytes > least && (double)e.index_bytes < 1.02 * least);
        nw_block_free(&b);
        nw_codec_free(codec);
    }
    free(v);
    free(bytes);
}

/* Weights of resnet20 at 0.1 %: 279 entries of 20 tensors. */
static void test_resnet20(void **state)
{
    enum { TENSORS = 20 };
    nw_extent tensors[TENSORS] = {{0, 432, 0, 1}};
    size_t at = 432;
    uint8_t bytes[2048];
    (void)state;
    for (int i = 1; i < TENSORS; i++) {
        size_t count = i < 7 ? 2304 : i == 7 ? 4608 : i < 13 ? 9216 : i == 13 ? 18432 : i < 19 ? 36864 : 640;
        tensors[i] = (nw_extent){at, count, i, 1};
        at += count;
    }
    assert_int_equal(at, 268336);
    nw_codec_options o = nw_codec_options_default("topk");
    nw_codec *codec;
    nw_block b;
    o.ratio = 0.001;
    o.counting = NW_COUNT_CEIL;
    o.values = NW_VALUES_FP16;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    assert_int_equal(nw_block_make(&b, codec, tensors, TENSORS, (size_t[]){0, at}, 1, 0), NW_OK);
    float *v = malloc(at * sizeof *v);
    nw_rng rng = nw_rng_make(20, NW_PURPOSE_TEST, 0, 0);
    double sum = 0;
    for (int trial = 0; trial < 50; trial++) {
        for (size_t i = 0; i < at; i++) v[i] = nw_rng_uniform(&rng) - 0.5f;
        nw_encoded e = encode_block(&b, NULL, key, v, bytes, NULL);
        assert_int_equal(bytes[8] | bytes[9] << 8, 279);
        assert_true(e.bytes <= 1000);
        sum += (double)e.bytes;
    }
    assert_true(sum / 50 < 981);
    free(v);
    nw_block_free(&b);
    nw_codec_free(codec);
}

/* ---- bytes that make no sense ---- */

enum { SMALL = 300, ROOM = 2 * SMALL * 4 };

static bool all_are(const float *x, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] != value) return false;
    return true;
}

/* From memory of exactly that size, so that a sanitizer sees one byte too far. Refused: nothing was written. */
static nw_status try_decode(const nw_block *b, const uint8_t *bytes, size_t size, float *out)
{
    uint8_t *exact = malloc(size + !size);
    memcpy(exact, bytes, size);
    for (size_t i = 0; i < SMALL; i++) out[i] = 77;
    nw_status status = decode_block(b, key, exact, size, out, false, NULL);
    free(exact);
    assert_true(status == NW_OK || status == NW_E_MESSAGE);
    if (status != NW_OK) assert_true(all_are(out, SMALL, 77));
    for (size_t i = 0; status == NW_OK && i < b->floats; i++) assert_true(isfinite(out[i]));
    return status;
}

static void break_message(nw_values values, size_t n, double ratio)
{
    float v[SMALL], out[SMALL];
    uint8_t bytes[ROOM], broken[ROOM];
    nw_codec *codec = make("topk", ratio, values);
    nw_block b = plain_block(codec, n);
    nw_rng rng = nw_rng_make(n, NW_PURPOSE_TEST, (uint64_t)values, 1);
    for (size_t i = 0; i < n; i++) v[i] = nw_rng_normal(&rng);
    size_t size = encode_block(&b, NULL, key, v, bytes, NULL).bytes;
    assert_int_equal(try_decode(&b, bytes, size, out), NW_OK);
    for (size_t cut = 0; cut < size; cut++) assert_int_equal(try_decode(&b, bytes, cut, out), NW_E_MESSAGE);
    memcpy(broken, bytes, size);
    memset(broken + size, 0, 4);
    assert_int_equal(try_decode(&b, broken, size + 4, out), NW_E_MESSAGE);
    for (size_t i = 0; i < size; i++)
        for (int x = 1; x < 256; x += i < 64 || i + 24 > size ? 1 : 37) {
            memcpy(broken, bytes, size);
            broken[i] = (uint8_t)(broken[i] ^ x);
            nw_status status = try_decode(&b, broken, size, out);
            if (i < 16 && i != 8 && i != 9) assert_int_equal(status, NW_E_MESSAGE); /* the header */
        }
    for (int trial = 0; trial < 3000; trial++) { /* several bytes at once, behind the header */
        memcpy(broken, bytes, size);
        for (uint32_t j = nw_rng_below(&rng, 8); j < 9; j++)
            broken[16 + nw_rng_below(&rng, (uint32_t)size - 16)] = (uint8_t)nw_rng_u32(&rng);
        if (trial % 4 == 0) broken[8] = (uint8_t)nw_rng_u32(&rng);
        try_decode(&b, broken, size, out);
    }
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_broken_messages(void **state)
{
    static const nw_values formats[] = {NW_VALUES_F32,      NW_VALUES_FP16,     NW_VALUES_BF16,
                                        NW_VALUES_BITS + 2, NW_VALUES_BITS + 5, NW_VALUES_BITS + 8};
    (void)state;
    for (int f = 0; f < 6; f++) {
        break_message(formats[f], 6, 0.5);
        break_message(formats[f], 299, 0.03);
        break_message(formats[f], 299, 0.7); /* more than one group */
        break_message(formats[f], 1, 1);
    }
}

/* Every sentence: made from a good message by one change. */
static void test_what_is_said(void **state)
{
    static const struct {
        int at;
        uint8_t value;
        const char *said;
    } changes[] = {
        {0, 5, "family 5"},
        {1, 3, "values 3"},
        {2, 1, "parameter 1"},
        {4, 7, "of 7 floats"},
        {8, 7, "7 entries of 6"},
        {12, 32, "32 bytes"},
        {17, 0x7c, "not finite"},
        {22, 1, "padding"},
        {24, 32, "parameter 32"},
        {24, 31, "do not fit"},
        {25, 0x11, "only 2 positions"},
        {25, 0x49, "outside its block of 6"},
        {26, 1, "more positions"},
        {24, 1, "positions of a group"},
    };
    uint8_t bytes[64];
    float out[SMALL];
    (void)state;
    nw_codec *codec = make("topk", 0.5, NW_VALUES_FP16);
    nw_block b = plain_block(codec, 6);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        size_t size = encode_block(&b, NULL, key, given, bytes, NULL).bytes;
        bytes[changes[i].at] = changes[i].value;
        assert_int_equal(try_decode(&b, bytes, size, out), NW_E_MESSAGE);
        if (!strstr(nw_error_message(), changes[i].said))
            fail_msg("change %zu: '%s' lacks '%s'", i, nw_error_message(), changes[i].said);
    }
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_options(void **state)
{
    nw_codec *codec;
    (void)state;
    for (int i = 0; i < 10; i++) {
        nw_codec_options o = nw_codec_options_default(i < 8 ? "topk" : "thresholdv");
        o.ratio = i == 0 ? 0 : i == 1 ? 1.01 : i == 2 ? -0.1 : i == 3 ? NAN : 0.5;
        o.values = i == 4 ? 4 : i == 5 ? NW_VALUES_BITS + 1 : i == 6 ? NW_VALUES_BITS + 9 : i == 7 ? 16 : 0;
        o.threshold = i == 8 ? -1 : NAN;
        assert_int_equal(nw_codec_create(&codec, &o), NW_E_ARGUMENT);
        assert_null(codec);
    }
    codec = make("topk", 0.1, 0);
    assert_int_equal(codec->options.values, NW_VALUES_F32);
    assert_true(fabs(codec->ops->delta(codec, 1000) - 0.1) < 1e-12 && codec->ops->delta(codec, 1) == 1);
    nw_codec_free(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_rules),    cmocka_unit_test(test_largest_numbers),
        cmocka_unit_test(test_entropy),      cmocka_unit_test(test_resnet20), cmocka_unit_test(test_broken_messages),
        cmocka_unit_test(test_what_is_said), cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
