/*
 * test_dense_edges.c - what the dense families and random-k promise beyond their bytes: means without bias, what is
 * refused, numbers at the ends of the range, numbers that are not finite, and bytes that were changed on the way.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "codec/packed.h"
#include "support/blocks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Codecs whose bytes travel; the options that matter here. */
typedef struct kind {
    const char *name;
    int levels, bucket;
    bool max_norm, scaled;
    double ratio;
    nw_values values;
} kind;

static const kind kinds[] = {
    {.name = "terngrad", .levels = 1},
    {.name = "qsgd", .levels = 255},
    {.name = "qsgd", .levels = 4, .bucket = 16},
    {.name = "qsgd", .levels = 32767, .max_norm = true},
    {.name = "sign"},
    {.name = "natural"},
    {.name = "int8"},
    {.name = "randomk", .ratio = 0.25},
    {.name = "randomk", .ratio = 0.75, .scaled = true, .values = NW_VALUES_FP16},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static nw_codec *make(const kind *k)
{
    nw_codec *codec = NULL;
    nw_codec_options o = nw_codec_options_default(k->name);
    o.seed = 11;
    o.shared = false;
    o.scaled = k->scaled;
    o.bucket = k->bucket;
    o.max_norm = k->max_norm;
    o.values = k->values;
    if (k->levels) o.levels = k->levels;
    if (k->ratio > 0) o.ratio = k->ratio;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    return codec;
}

static void fill(float *v, size_t count, uint64_t seed)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < count; i++) v[i] = nw_rng_normal(&rng);
}

/* ---- means ---- */

static void check_mean(const kind *k)
{
    enum { FLOATS = 150, DRAWS = 4000 };
    static double sum[FLOATS], square[FLOATS];
    float v[FLOATS], out[FLOATS];
    uint8_t bytes[8 * FLOATS];
    nw_codec *codec = make(k);
    nw_block b = plain_block(codec, FLOATS);
    fill(v, FLOATS, 3);
    memset(sum, 0, sizeof sum);
    memset(square, 0, sizeof square);
    for (uint64_t step = 0; step < DRAWS; step++) {
        nw_codec_key key = {step, 3, 5};
        nw_encoded e = encode_block(&b, NULL, key, v, bytes, NULL);
        assert_int_equal(decode_block(&b, key, bytes, e.bytes, out, false, NULL), NW_OK);
        for (int i = 0; i < FLOATS; i++) {
            sum[i] += (double)out[i];
            square[i] += (double)out[i] * (double)out[i];
        }
    }
    double error = 0, size = 0;
    for (int i = 0; i < FLOATS; i++) {
        double mean = sum[i] / DRAWS, variance = square[i] / DRAWS - mean * mean, x = (double)v[i];
        if (fabs(mean - x) > 5 * sqrt(fmax(variance, 0) / DRAWS) + 1e-4)
            fail_msg("%s: the mean of %g is %g", k->name, x, mean);
        error += variance;
        size += x * x;
    }
    /* The variance is what delta says at most. */
    if (error > (1 - codec->ops->delta(codec, FLOATS)) * size * 1.05)
        fail_msg("%s: variance %g, delta %g", k->name, error / size, codec->ops->delta(codec, FLOATS));
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_means(void **state)
{
    static const kind fair[] = {{.name = "terngrad"},
                                {.name = "qsgd", .levels = 4},
                                {.name = "qsgd", .levels = 3, .bucket = 16, .max_norm = true},
                                {.name = "qsgd", .levels = 255},
                                {.name = "natural"},
                                {.name = "randomk", .ratio = 0.3, .scaled = true},
                                {.name = "randomk", .ratio = 0.8, .scaled = true}};
    (void)state;
    for (size_t i = 0; i < sizeof fair / sizeof fair[0]; i++) check_mean(&fair[i]);
}

/* ---- options and promises ---- */

static void refused(nw_codec_options o, const char *sentence)
{
    nw_codec *codec;
    assert_int_equal(nw_codec_create(&codec, &o), NW_E_ARGUMENT);
    assert_null(codec);
    if (!strstr(nw_error_message(), sentence)) fail_msg("%s", nw_error_message());
}

static void test_options(void **state)
{
    nw_codec_options o = nw_codec_options_default("qsgd");
    (void)state;
    for (int levels = -1; levels <= 0; levels++) refused((o.levels = levels, o), "1 to 32767 levels");
    refused((o.levels = 32768, o), "not 32768");
    o.levels = 1;
    refused((o.bucket = 15, o), "16 to 5120 elements that share a norm, or 0");
    refused((o.bucket = 5121, o), "not 5121");
    o.bucket = 0;
    o = nw_codec_options_default("randomk");
    for (int i = 0; i < 3; i++) refused((o.ratio = (double[]){0, 1.01, NAN}[i], o), "a ratio in (0, 1]");
    o.ratio = 1;
    o.shared = false;
    refused((o.values = (nw_values)(NW_VALUES_BITS + 4), o), "f32, fp16 or bf16");
}

static double delta_of(kind k, size_t n)
{
    nw_codec *codec = make(&k);
    double delta = codec->ops->delta(codec, n);
    nw_codec_free(codec);
    return delta;
}

static void assert_near(double is, double want, double within) { assert_true(fabs(is - want) <= within); }

static void test_delta(void **state)
{
    (void)state;
    assert_near(delta_of((kind){.name = "terngrad"}, 9), 0, 1e-9);
    assert_true(delta_of((kind){.name = "terngrad"}, 10) < 0 && delta_of((kind){.name = "terngrad"}, 1) == 1);
    assert_near(delta_of((kind){.name = "qsgd", .levels = 127, .bucket = 512}, 1 << 20), 1 - 512.0 / (127 * 127), 1e-9);
    assert_near(delta_of((kind){.name = "qsgd", .levels = 255}, 2400000), 1 - sqrt(2400000) / 255, 1e-9);
    assert_near(delta_of((kind){.name = "qsgd", .levels = 255, .max_norm = true}, 1000), 1 - 1000 / 4.0 / 65025, 1e-9);
    assert_near(delta_of((kind){.name = "natural"}, 5), 0.875, 0);
    assert_near(delta_of((kind){.name = "sign"}, 5), 0.2, 1e-9);
    assert_near(delta_of((kind){.name = "sign"}, 5000), 1.0 / 1024, 1e-9);
    assert_true(delta_of((kind){.name = "int8"}, 5000) > 0.996 && delta_of((kind){.name = "int8"}, 5000) < 0.9961);
    assert_near(delta_of((kind){.name = "randomk", .ratio = 0.25}, 400), 0.25, 1e-9);
    assert_true(delta_of((kind){.name = "randomk", .ratio = 0.25, .scaled = true}, 400) < 0);
}

/* ---- ends of the range ---- */

/* What a receiver sees of a range; how many bytes that took. */
static size_t pass(const kind *k, const float *v, size_t count, float *out)
{
    nw_codec *codec = make(k);
    nw_block b = plain_block(codec, count);
    nw_codec_key key = {2, 3, 1};
    uint8_t *bytes = malloc(8 * count + 64);
    nw_encoded e = encode_block(&b, NULL, key, v, bytes, NULL);
    if (e.bytes > 0) assert_int_equal(decode_block(&b, key, bytes, e.bytes, out, false, NULL), NW_OK);
    free(bytes);
    nw_block_free(&b);
    nw_codec_free(codec);
    return e.bytes;
}

static void test_ends(void **state)
{
    enum { FLOATS = 700 };
    float v[FLOATS], out[FLOATS];
    static const float small[] = {0, -0.0f, 0x1p-149f, 0x1p-126f, 0x1p-130f};
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        bool loses = strcmp(kinds[k].name, "randomk") != 0; /* it sends what is there */
        for (int s = 0; s < 5; s++) {
            for (int i = 0; i < FLOATS; i++) v[i] = i == 5 ? -small[s] : small[s];
            assert_true(pass(&kinds[k], v, FLOATS, out) > 0);
            for (int i = 0; i < FLOATS; i++) assert_true(out[i] == 0 || (!loses && fabsf(out[i]) <= 2 * small[s]));
        }
        /* The greatest floats there are stay finite; scaled, they cannot. */
        for (int i = 0; i < FLOATS; i++) v[i] = i % 2 ? FLT_MAX : -FLT_MAX;
        if (kinds[k].scaled) continue;
        assert_true(pass(&kinds[k], v, FLOATS, out) > 0);
        for (int i = 0; i < FLOATS; i++)
            assert_true(isfinite(out[i]) && (out[i] == 0 || (signbit(out[i]) != 0) == (i % 2 == 0)));
    }
}

/* One float arrives as it is, to rounding; natural rounds to a power of two. */
static void test_one_float(void **state)
{
    static const float values[] = {1, -3.7f, 1e-20f, 12345.678f};
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int i = 0; i < 4; i++) {
            float out = 0;
            assert_true(pass(&kinds[k], &values[i], 1, &out) > 0);
            if (strcmp(kinds[k].name, "natural") == 0)
                assert_true(out / values[i] >= 0.5f && out / values[i] <= 2);
            else if (!kinds[k].values)
                assert_true(fabsf(out - values[i]) <= 1e-6f * fabsf(values[i]));
        }
}

/* ---- numbers that are not finite ---- */

static void test_not_finite(void **state)
{
    enum { FLOATS = 12000 };
    static float v[FLOATS];
    static uint8_t bytes[4 * FLOATS + 4096];
    static const float broken[] = {NAN, INFINITY, -INFINITY};
    static const size_t at[] = {0, 17, 5119, 5120, 11999};
    (void)state;
    fill(v, FLOATS, 4);
    for (int c = 0; c < KINDS * 15; c++) {
        const kind *k = &kinds[c / 15];
        size_t place = at[c % 5];
        if (strcmp(k->name, "randomk") == 0) continue; /* sees only what it sends: test_randomk.c */
        nw_codec *codec = make(k);
        nw_block b = plain_block(codec, FLOATS);
        const nw_block *const blocks[] = {&b};
        nw_partial partial[8];
        nw_encoded encoded;
        nw_scratch scratch;
        uint8_t *out = bytes;
        float kept = v[place];
        v[place] = broken[c / 5 % 3];
        assert_int_equal(nw_scratch_make(&scratch, blocks, 1, 1), NW_OK);
        nw_encoding e = {.block = &b,
                         .codec = codec,
                         .clip = 1,
                         .vector = v,
                         .partial = partial,
                         .scratch = &scratch,
                         .out = &out,
                         .encoded = &encoded};
        nw_status status = nw_codec_begin(&e, NULL);
        if (status == NW_OK) status = nw_codec_end(&e, NULL);
        assert_int_equal(status, NW_E_NUMERIC);
        assert_ptr_equal(e.broken, &b.tiles[place / NW_TILE_FLOATS]);
        assert_non_null(strstr(nw_error_message(), k->name));
        v[place] = kept;
        nw_scratch_free(&scratch);
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

/* ---- bytes that were changed ---- */

/* Every byte of a small message to every value: it is refused and nothing is written, or it is a message. Every other
 * length is refused. */
static void check_changes(const kind *k, size_t floats)
{
    float v[64], out[64];
    uint8_t bytes[512], *exact;
    nw_codec *codec = make(k);
    nw_block b = plain_block(codec, floats);
    nw_codec_key key = {7, 3, 1};
    int refusals = 0;
    fill(v, floats, floats);
    nw_encoded e = encode_block(&b, NULL, key, v, bytes, NULL);
    exact = malloc(e.bytes); /* so that a sanitizer sees the first byte too far */
    for (size_t i = 0; i < e.bytes; i++)
        for (int change = 1; change < 256; change++) {
            memcpy(exact, bytes, e.bytes);
            exact[i] ^= (uint8_t)change;
            for (size_t j = 0; j < floats; j++) out[j] = 77;
            nw_status status = decode_block(&b, key, exact, e.bytes, out, false, NULL);
            assert_true(status == NW_OK || status == NW_E_MESSAGE);
            if (i < NW_PACKED_HEADER) assert_int_equal(status, NW_E_MESSAGE);
            refusals += status == NW_E_MESSAGE && i >= NW_PACKED_HEADER;
            for (size_t j = 0; j < floats; j++) assert_true(status == NW_OK ? isfinite(out[j]) : out[j] == 77);
        }
    for (size_t size = 0; size < e.bytes + 8; size++)
        if (size != e.bytes) assert_int_equal(decode_block(&b, key, bytes, size, out, false, NULL), NW_E_MESSAGE);
    if (e.scale_bytes > 0) assert_true(refusals > 0);
    free(exact);
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_changed_bytes(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (size_t floats = 1; floats <= 37; floats += 6) check_changes(&kinds[k], floats);
}

/* Codes that no sender makes, each in its family. */
static void test_codes_that_are_none(void **state)
{
    static const struct {
        kind k;
        size_t floats, at;
        uint8_t byte;
    } cases[] = {
        {{.name = "terngrad"}, 5, 20, 243},
        {{.name = "terngrad"}, 6, 21, 0},           /* a missing trit that is not 1 */
        {{.name = "qsgd", .levels = 4}, 2, 20, 9},  /* more than 2 s */
        {{.name = "qsgd", .levels = 4}, 1, 20, 16}, /* a bit behind the last code */
        {{.name = "int8"}, 4, 20, 0x80},
        {{.name = "sign"}, 3, 20, 8},    /* a bit behind the last sign */
        {{.name = "natural"}, 3, 19, 1}, /* padding */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float v[8], out[8];
        uint8_t bytes[64];
        nw_codec *codec = make(&cases[i].k);
        nw_block b = plain_block(codec, cases[i].floats);
        fill(v, 8, 1);
        nw_encoded e = encode_block(&b, NULL, (nw_codec_key){0}, v, bytes, NULL);
        assert_int_equal(decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, out, false, NULL), NW_OK);
        bytes[cases[i].at] = cases[i].byte;
        if (decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, out, false, NULL) != NW_E_MESSAGE)
            fail_msg("case %zu of %s passes", i, cases[i].k.name);
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

/* What was delivered and what is kept add up to what was given. */
static void test_memory_adds_up(void **state)
{
    enum { FLOATS = 6000, STEPS = 20 };
    static float g[FLOATS], out[FLOATS];
    static double all[FLOATS], delivered[FLOATS];
    static uint8_t bytes[5 * FLOATS];
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        nw_codec *codec = make(&kinds[k]);
        nw_block b = plain_block(codec, FLOATS);
        nw_memory *memory;
        if (codec->ops->delta(codec, FLOATS) > 0) {
            assert_int_equal(nw_memory_create(&memory, &(nw_memory_options){.name = "error"}, FLOATS), NW_OK);
            memset(all, 0, sizeof all);
            memset(delivered, 0, sizeof delivered);
            for (uint64_t step = 0; step < STEPS; step++) {
                nw_codec_key key = {step, 3, 0};
                fill(g, FLOATS, step);
                nw_encoded e = encode_block(&b, memory, key, g, bytes, NULL);
                assert_int_equal(decode_block(&b, key, bytes, e.bytes, out, false, NULL), NW_OK);
                for (int i = 0; i < FLOATS; i++) all[i] += (double)g[i], delivered[i] += (double)out[i];
            }
            for (int i = 0; i < FLOATS; i++)
                assert_true(fabs(all[i] - delivered[i] - (double)memory->v[i]) < 1e-6 * STEPS * 50);
            nw_memory_free(memory);
        }
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_means),          cmocka_unit_test(test_options),
        cmocka_unit_test(test_delta),          cmocka_unit_test(test_ends),
        cmocka_unit_test(test_one_float),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_changed_bytes),  cmocka_unit_test(test_codes_that_are_none),
        cmocka_unit_test(test_memory_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
