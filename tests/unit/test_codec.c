/*
 * test_codec.c - codecs against plain twins in double: every half, and floats on both sides of every place where
 * rounding changes its mind; every instruction set; odd lengths and addresses; bytes that make no sense; lists of
 * ranges.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "codec/codec.h"
#include "codec/half_convert.h"
#include "codec/ranges.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- twins: by value, not by bits ---- */

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static float twin_f16_decode(uint16_t h)
{
    int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31 && fraction)
        return float_of((uint32_t)(h & 0x8000) << 16 | 0x7fc00000u | (uint32_t)fraction << 13);
    if (exponent == 31) return (float)(sign * INFINITY);
    return (float)(sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24)));
}

static uint16_t twin_f16_encode(float x)
{
    unsigned sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return (uint16_t)(sign | 0x7e00 | (bits_of(x) >> 13 & 0x3ff));
    if (isinf(x)) return (uint16_t)(sign | 0x7c00);
    double v = fabs((double)x);
    if (v > 65504) return (uint16_t)(sign | 0x7bff);
    int exponent = v >= 0x1p-14 ? ilogb(v) : -14;
    unsigned steps = (unsigned)nearbyint(ldexp(v, 10 - exponent)); /* to even; 2048 carries into the exponent */
    return (uint16_t)(sign | (v >= 0x1p-14 ? ((unsigned)(exponent + 14) << 10) + steps : steps));
}

static uint16_t twin_bf16_encode(float x)
{
    uint32_t u = bits_of(x), low = u & 0xffff0000u, high = low + 0x10000u;
    if (isnan(x)) return (uint16_t)(u >> 16 | 0x40);
    if (isinf(x)) return (uint16_t)(u >> 16);
    double above = isinf(float_of(high)) ? copysign(0x1p128, x) : (double)float_of(high);
    double up = fabs(above - (double)x), down = fabs((double)x - (double)float_of(low));
    uint32_t nearest = up < down || (up == down && (low >> 16 & 1)) ? high : low;
    return (uint16_t)(nearest >> 16);
}

typedef struct format {
    const char *name;
    uint16_t (*encode)(float x);
    float (*decode)(uint16_t h);
} format;

static float twin_bf16_decode(uint16_t h) { return float_of((uint32_t)h << 16); }

static const format formats[2] = {{"fp16", twin_f16_encode, twin_f16_decode},
                                  {"bf16", twin_bf16_encode, twin_bf16_decode}};

static const nw_half_loops *loops(const nw_half_set *set, int f) { return f == 0 ? &set->f16 : &set->bf16; }

/* Those that this machine can use; found by main. */
static const nw_half_set *sets[8];
static int set_count;

static void find_sets(void)
{
    for (int i = 0; i < nw_half_set_count(); i++)
        if (nw_half_set_at(i)->usable()) sets[set_count++] = nw_half_set_at(i);
}

/* ---- conversions ---- */

static void test_all_halves(void **state)
{
    enum { ALL = 65536 };
    static uint16_t halves[ALL], again[ALL];
    static float out[ALL], sum[ALL];
    (void)state;
    for (int i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    for (int i = 0; i < ALL; i++)
        assert_int_equal(bits_of(nw_f16_to_f32((nw_f16)i)), bits_of(twin_f16_decode((uint16_t)i)));
    for (int both = 0; both < 2 * set_count; both++) {
        const nw_half_set *set = sets[both / 2];
        int f = both % 2;
        loops(set, f)->decode(halves, ALL, out);
        for (int i = 0; i < ALL; i++) sum[i] = (float)(i % 17) * 0.37f;
        loops(set, f)->add(halves, ALL, sum);
        loops(set, f)->encode(out, ALL, again);
        for (int i = 0; i < ALL; i++) {
            float want = formats[f].decode((uint16_t)i), total = (float)(i % 17) * 0.37f + want;
            if (bits_of(out[i]) != bits_of(want))
                fail_msg("%s %s: %04x is %08x, not %08x", set->name, formats[f].name, i, bits_of(out[i]),
                         bits_of(want));
            if (isnan(total) ? !isnan(sum[i]) : bits_of(sum[i]) != bits_of(total))
                fail_msg("%s %s: adding %04x gives %08x, not %08x", set->name, formats[f].name, i, bits_of(sum[i]),
                         bits_of(total));
            /* Encoding a half gives it back; a NaN comes back quiet. */
            int quiet = f == 0 ? 0x200 : 0x40, back = isnan(want) ? i | quiet : i;
            if (again[i] != back) fail_msg("%s %s: %04x comes back as %04x", set->name, formats[f].name, i, again[i]);
        }
    }
}

enum { MANY = 4096 };

static void check_encode(const float *in, size_t count)
{
    static uint16_t out[MANY];
    for (int both = 0; both < 2 * set_count; both++) {
        const nw_half_set *set = sets[both / 2];
        int f = both % 2;
        loops(set, f)->encode(in, count, out);
        for (size_t i = 0; i < count; i++) {
            uint16_t want = formats[f].encode(in[i]);
            if (out[i] != want)
                fail_msg("%s %s: %08x (%a) becomes %04x, not %04x", set->name, formats[f].name, bits_of(in[i]),
                         (double)in[i], out[i], want);
        }
    }
}

/* Beside each half and each middle between two: there rounding decides. Both signs; all exponents. */
static void test_encode_at_every_edge(void **state)
{
    static float in[MANY];
    size_t count = 0;
    (void)state;
    for (int f = 0; f < 2; f++)
        for (uint32_t h = 0; h < 65536; h++) {
            uint32_t at = bits_of(formats[f].decode((uint16_t)h));
            double middle = ((double)formats[f].decode((uint16_t)h) + (double)formats[f].decode((uint16_t)(h + 1))) / 2;
            uint32_t between = isfinite(middle) ? bits_of((float)middle) : at + 0x1000;
            for (int off = -1; off <= 1; off++) {
                in[count++] = float_of(at + (uint32_t)off);
                in[count++] = float_of(between + (uint32_t)off);
            }
            if (count + 6 > MANY) check_encode(in, count), count = 0;
        }
    check_encode(in, count);
}

static void test_encode_over_all_floats(void **state)
{
    static float in[MANY];
    (void)state;
    const uint64_t stride = 1021;
    for (uint64_t u = 0; u <= UINT32_MAX;) {
        size_t count = 0;
        for (; count < MANY && u <= UINT32_MAX; u += stride) in[count++] = float_of((uint32_t)u);
        check_encode(in, count);
    }
}

/* What the documentation promises, in plain numbers. */
static void test_promises(void **state)
{
    static const struct {
        float in;
        uint16_t f16, bf16;
    } cases[] = {
        {0.0f, 0x0000, 0x0000},
        {-0.0f, 0x8000, 0x8000},
        {1.0f, 0x3c00, 0x3f80},
        {65504.0f, 0x7bff, 0x4780},
        {65520.0f, 0x7bff, 0x4780}, /* IEEE would say infinity */
        {1e30f, 0x7bff, 0x714a},
        {-1e30f, 0xfbff, 0xf14a},
        {3.4028235e38f, 0x7bff, 0x7f80}, /* within half a step of 2^128 */
        {INFINITY, 0x7c00, 0x7f80},
        {-INFINITY, 0xfc00, 0xff80},
        {0x1p-24f, 0x0001, 0x3380},   /* the least of f16 */
        {0x1p-25f, 0x0000, 0x3300},   /* a tie: to even */
        {0x1.8p-24f, 0x0002, 0x33c0}, /* a tie: to even */
        {-0x1p-30f, 0x8000, 0xb080},  /* too small, the sign stays */
        {0x1p-149f, 0x0000, 0x0000},
        {1.0f + 0x1p-11f, 0x3c00, 0x3f80}, /* a tie of f16 */
        {1.0f + 0x3p-11f, 0x3c02, 0x3f80},
        {1.0f + 0x1p-8f, 0x3c04, 0x3f80}, /* a tie of bf16 */
        {1.0f + 0x3p-8f, 0x3c0c, 0x3f82},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int k = 0; k < set_count; k++) {
            const nw_half_set *set = sets[k];
            uint16_t f16, bf16;
            set->f16.encode(&cases[i].in, 1, &f16);
            set->bf16.encode(&cases[i].in, 1, &bf16);
            if (f16 != cases[i].f16 || bf16 != cases[i].bf16)
                fail_msg("%s: %a becomes f16 %04x, bf16 %04x", set->name, (double)cases[i].in, f16, bf16);
            assert_int_equal(nw_bf16_from_f32(cases[i].in), cases[i].bf16);
        }
    static const uint32_t nans[] = {0x7fc00000u, 0x7f800001u, 0xffffffffu, 0xff801000u}; /* quiet and signalling */
    for (int i = 0; i < 4; i++)
        for (int both = 0; both < 2 * set_count; both++) {
            const nw_half_set *set = sets[both / 2];
            int f = both % 2;
            float in[9], out[9] = {0};
            uint16_t h[9];
            for (int j = 0; j < 9; j++) memcpy(in + j, nans + i, sizeof *in);
            loops(set, f)->encode(in, 9, h);
            loops(set, f)->decode(h, 9, out);
            for (int j = 0; j < 9; j++) assert_true(isnan(out[j]) && (bits_of(out[j]) & 0x400000u));
        }
}

/* ---- codecs ---- */

enum { LONGEST = 67, ROOM = 4 * LONGEST + 16 };

static nw_codec *make(const char *name)
{
    nw_codec *codec = NULL;
    assert_int_equal(nw_codec_create(&codec, &(nw_codec_options){.name = name, .seed = 3}), NW_OK);
    return codec;
}

static float twin_round(const nw_codec *codec, float x)
{
    for (int f = 0; f < 2; f++)
        if (strcmp(codec->ops->name, formats[f].name) == 0) return formats[f].decode(formats[f].encode(x));
    return x;
}

/* Every length up to LONGEST, bytes at every address, floats at every address of floats; nothing beside is touched. */
static void test_lengths_and_addresses(void **state)
{
    (void)state;
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    float in[LONGEST + 8];
    for (int i = 0; i < LONGEST + 8; i++) in[i] = nw_rng_normal(&rng);
    const nw_codec_key key = {.step = 1};
    for (int c = 0; c < nw_codec_count(); c++) {
        nw_codec *codec = make(nw_codec_at(c)->name);
        for (size_t n = 0; n <= LONGEST; n++)
            for (size_t off = 0; off < 4; off++) {
                uint8_t bytes[ROOM];
                float out[LONGEST + 8], sum[LONGEST + 8];
                memset(bytes, 0xee, sizeof bytes);
                nw_encoded e = {99, 99, 99};
                assert_int_equal(codec->ops->encode(codec, &key, in + off, n, bytes + off, &e), NW_OK);
                assert_true(e.bytes <= codec->ops->bound(codec, n) && e.index_bytes == 0 && e.scale_bytes == 0);
                for (size_t i = 0; i < ROOM; i++)
                    if (i < off || i >= off + e.bytes) assert_int_equal(bytes[i], 0xee);
                for (int i = 0; i < LONGEST + 8; i++) out[i] = 77, sum[i] = (float)i;
                assert_int_equal(codec->ops->decode(codec, &key, bytes + off, e.bytes, out + off, n), NW_OK);
                assert_int_equal(codec->ops->decode_add(codec, NULL, bytes + off, e.bytes, sum + off, n), NW_OK);
                for (size_t i = 0; i < LONGEST + 8; i++) {
                    bool within = i >= off && i < off + n;
                    float x = within ? twin_round(codec, in[i]) : 0;
                    assert_int_equal(bits_of(out[i]), bits_of(within ? x : 77));
                    assert_int_equal(bits_of(sum[i]), bits_of(within ? (float)i + x : (float)i));
                }
            }
        nw_codec_free(codec);
    }
}

static void test_none_keeps_every_bit(void **state)
{
    static const uint32_t odd[] = {0, 0x80000000u, 1, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x3f800001u};
    float in[8], out[8];
    uint8_t bytes[32];
    nw_encoded e;
    (void)state;
    nw_codec *codec = make("none");
    assert_true(codec->exact);
    memcpy(in, odd, sizeof in);
    assert_int_equal(codec->ops->encode(codec, NULL, in, 8, bytes, &e), NW_OK);
    assert_int_equal(e.bytes, 32);
    assert_int_equal(codec->ops->decode(codec, NULL, bytes, 32, out, 8), NW_OK);
    assert_memory_equal(out, odd, sizeof odd);
    nw_codec_free(codec);
}

/* Refused before anything is written, also where count * width would overflow. */
static void test_bytes_that_make_no_sense(void **state)
{
    static const size_t counts[] = {0, 1, 2, 7, 8, 9, SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 4 + 1, SIZE_MAX / 4 + 3};
    (void)state;
    for (int c = 0; c < nw_codec_count(); c++) {
        nw_codec *codec = make(nw_codec_at(c)->name);
        size_t width = codec->ops->bound(codec, 1);
        for (size_t bytes = 0; bytes <= 36; bytes++)
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                uint8_t in[36] = {0};
                float out[9];
                for (int j = 0; j < 9; j++) out[j] = 5;
                bool fits = counts[i] <= 9 && bytes == counts[i] * width;
                nw_status want = fits ? NW_OK : NW_E_MESSAGE;
                assert_int_equal(codec->ops->decode_add(codec, NULL, in, bytes, out, counts[i]), want);
                assert_int_equal(codec->ops->decode(codec, NULL, in, bytes, out, counts[i]), want);
                for (size_t j = 0; j < 9; j++) assert_true(out[j] == (fits && j < counts[i] ? 0 : 5));
            }
        float x;
        assert_int_equal(codec->ops->decode(codec, NULL, "abcde", 5, &x, 1), NW_E_MESSAGE);
        assert_non_null(strstr(nw_error_message(), codec->ops->name));
        assert_non_null(strstr(nw_error_message(), "5 bytes"));
        nw_codec_free(codec);
    }
}

/* ---- lists of ranges ---- */

enum { LISTED = 5, LIST_FLOATS = 300000 };
static const size_t list_lengths[LISTED] = {1, 65536, 65537, 100003, 3}; /* around what one task takes */

/* Ranges of all lengths, each with a gap behind it that nobody may touch. */
static void list_ranges(nw_codec_range ranges[LISTED], const nw_codec *codec, nw_codec_way way, float *floats,
                        uint8_t *bytes)
{
    bool encode = way == NW_CODEC_ENCODE;
    for (size_t i = 0, at = 0; i < LISTED; at += list_lengths[i++] + 7) {
        void *b = bytes + 4 * at;
        assert_true(at + list_lengths[i] + 7 <= LIST_FLOATS);
        ranges[i] = (nw_codec_range){.codec = codec,
                                     .way = way,
                                     .in = encode ? (void *)(floats + at) : b,
                                     .out = encode ? b : (void *)(floats + at),
                                     .count = list_lengths[i],
                                     .bytes = codec->ops->bound(codec, list_lengths[i])};
    }
}

static nw_status run_one_by_one(nw_codec_range ranges[LISTED])
{
    for (int i = 0; i < LISTED; i++) {
        nw_codec_range *r = &ranges[i];
        const nw_codec_ops *ops = r->codec->ops;
        if (r->way == NW_CODEC_ENCODE)
            NW_TRY(ops->encode(r->codec, NULL, r->in, r->count, r->out, &r->encoded));
        else
            NW_TRY((r->way == NW_CODEC_DECODE ? ops->decode : ops->decode_add)(r->codec, NULL, r->in, r->bytes, r->out,
                                                                               r->count));
    }
    return NW_OK;
}

/* On any number of threads what one call a range gives, and nothing beside it. */
static void test_lists(void **state)
{
    (void)state;
    float *floats[2];
    uint8_t *bytes[2];
    for (int side = 0; side < 2; side++) {
        floats[side] = calloc(LIST_FLOATS, sizeof(float));
        bytes[side] = calloc(LIST_FLOATS, sizeof(float));
    }
    for (int c = 0; c < nw_codec_count(); c++)
        for (int threads = 0; threads <= 3; threads++) {
            nw_codec *codec = make(nw_codec_at(c)->name);
            nw_pool *pool = NULL;
            if (threads > 0) assert_int_equal(nw_pool_create(&pool, threads), NW_OK);
            nw_rng rng = nw_rng_make(5, NW_PURPOSE_TEST, (uint32_t)c, 0);
            for (size_t i = 0; i < LIST_FLOATS; i++) floats[0][i] = floats[1][i] = nw_rng_normal(&rng);
            for (int way = NW_CODEC_ENCODE; way <= NW_CODEC_DECODE_ADD; way++) {
                nw_codec_range got[LISTED], want[LISTED];
                list_ranges(got, codec, (nw_codec_way)way, floats[0], bytes[0]);
                list_ranges(want, codec, (nw_codec_way)way, floats[1], bytes[1]);
                assert_int_equal(nw_codec_run(pool, got, LISTED), NW_OK);
                assert_int_equal(run_one_by_one(want), NW_OK);
                assert_memory_equal(floats[0], floats[1], LIST_FLOATS * sizeof(float));
                assert_memory_equal(bytes[0], bytes[1], LIST_FLOATS * sizeof(float));
                for (int i = 0; way == NW_CODEC_ENCODE && i < LISTED; i++)
                    assert_memory_equal(&got[i].encoded, &want[i].encoded, sizeof(nw_encoded));
            }
            assert_int_equal(nw_codec_run(pool, NULL, 0), NW_OK);
            nw_pool_free(pool);
            nw_codec_free(codec);
        }
    for (int side = 0; side < 2; side++) {
        free(floats[side]);
        free(bytes[side]);
    }
}

/* A codec whose floats do not stand alone: its bytes are their number and the first of them. */
static size_t first_bound(const nw_codec *codec, size_t count)
{
    (void)codec, (void)count;
    return 8;
}
static nw_status first_encode(const nw_codec *codec, const nw_codec_key *key, const float *in, size_t count, void *out,
                              nw_encoded *encoded)
{
    (void)codec, (void)key;
    uint32_t number = (uint32_t)count;
    memcpy(out, &number, 4);
    memcpy((uint8_t *)out + 4, in, 4);
    *encoded = (nw_encoded){.bytes = 8, .scale_bytes = 4};
    return NW_OK;
}
static nw_status first_decode(const nw_codec *codec, const nw_codec_key *key, const void *in, size_t bytes, float *out,
                              size_t count)
{
    (void)codec;
    uint32_t number;
    memcpy(&number, in, 4);
    NW_FAIL_IF(bytes != 8 || number != count, NW_E_MESSAGE, "segment %u: %u floats", key->segment, number);
    for (size_t i = 0; i < count; i++) memcpy(&out[i], (const uint8_t *)in + 4, 4);
    return NW_OK;
}

static void test_lists_of_whole_ranges(void **state)
{
    (void)state;
    static const nw_codec_ops ops = {.name = "first",
                                     .bound = first_bound,
                                     .encode = first_encode,
                                     .decode = first_decode,
                                     .decode_add = first_decode};
    const nw_codec codec = {.ops = &ops};
    enum { LENGTH = 70000, PARTS = 4 };
    float *floats = calloc(PARTS * LENGTH, sizeof(float));
    uint8_t bytes[PARTS][8];
    nw_codec_range ranges[PARTS];
    nw_pool *pool;
    assert_int_equal(nw_pool_create(&pool, 3), NW_OK);
    for (uint32_t i = 0; i < PARTS; i++) {
        floats[i * LENGTH] = (float)i + 0.5f;
        ranges[i] = (nw_codec_range){.codec = &codec, .in = floats + i * LENGTH, .out = bytes[i], .count = LENGTH};
    }
    assert_int_equal(nw_codec_run(pool, ranges, PARTS), NW_OK);
    for (uint32_t i = 0; i < PARTS; i++) {
        assert_int_equal(ranges[i].encoded.bytes, 8);
        assert_int_equal(ranges[i].encoded.scale_bytes, 4);
        ranges[i] = (nw_codec_range){.codec = &codec,
                                     .way = NW_CODEC_DECODE,
                                     .key = {.segment = i},
                                     .in = bytes[i],
                                     .bytes = 8,
                                     .out = floats + i * LENGTH,
                                     .count = LENGTH};
    }
    assert_int_equal(nw_codec_run(pool, ranges, PARTS), NW_OK);
    for (size_t i = 0; i < PARTS * LENGTH; i++) assert_true(floats[i] == (float)(i / LENGTH) + 0.5f);
    /* The caller hears of the first that failed, whichever thread it failed on. */
    ranges[1].bytes = ranges[3].bytes = 7;
    assert_int_equal(nw_codec_run(pool, ranges, PARTS), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "segment 1"));
    nw_pool_free(pool);
    free(floats);
}

/* One wrong length, and nothing is written anywhere. */
static void test_lists_that_make_no_sense(void **state)
{
    (void)state;
    nw_codec *codec = make("bf16");
    uint8_t bytes[2][4] = {{0}};
    float out[2][2] = {{5, 5}, {5, 5}};
    nw_codec_range ranges[2];
    for (int i = 0; i < 2; i++)
        ranges[i] = (nw_codec_range){
            .codec = codec, .way = NW_CODEC_DECODE, .in = bytes[i], .out = out[i], .count = 2, .bytes = i ? 3 : 4};
    assert_int_equal(nw_codec_run(NULL, ranges, 2), NW_E_MESSAGE);
    for (int i = 0; i < 4; i++) assert_true(out[i / 2][i % 2] == 5);
    nw_codec_free(codec);
}

static void test_registry(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        nw_codec_id id;
        size_t width;
        bool exact;
    } known[] = {
        {"none", NW_CODEC_NONE, 4, true}, {"fp16", NW_CODEC_FP16, 2, false}, {"bf16", NW_CODEC_BF16, 2, false}};
    assert_int_equal(nw_codec_count(), 3);
    for (int i = 0; i < 3; i++) {
        char name[8]; /* the codec keeps no pointer to it */
        snprintf(name, sizeof name, "%s", known[i].name);
        nw_codec *codec = make(name);
        memset(name, 'x', sizeof name);
        assert_string_equal(codec->options.name, known[i].name);
        assert_int_equal(codec->options.seed, 3);
        assert_int_equal(codec->ops->id, known[i].id);
        assert_int_equal(codec->ops->bound(codec, 10), 10 * known[i].width);
        assert_int_equal(codec->ops->bound(codec, 0), 0);
        assert_true(codec->exact == known[i].exact);
        assert_ptr_equal(nw_codec_at(i), codec->ops);
        assert_true(strlen(codec->ops->summary) > 10);
        nw_codec_free(codec);
    }
    nw_codec *codec;
    assert_int_equal(nw_codec_create(&codec, &(nw_codec_options){.name = "pf16"}), NW_E_UNKNOWN);
    assert_null(codec);
    assert_non_null(strstr(nw_error_message(), "'pf16': did you mean 'fp16'?"));
    assert_int_equal(nw_codec_create(&codec, &(nw_codec_options){.name = ""}), NW_E_UNKNOWN);
    nw_codec_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_halves),
        cmocka_unit_test(test_encode_at_every_edge),
        cmocka_unit_test(test_encode_over_all_floats),
        cmocka_unit_test(test_promises),
        cmocka_unit_test(test_lengths_and_addresses),
        cmocka_unit_test(test_none_keeps_every_bit),
        cmocka_unit_test(test_bytes_that_make_no_sense),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_lists_of_whole_ranges),
        cmocka_unit_test(test_lists_that_make_no_sense),
        cmocka_unit_test(test_registry),
    };
    find_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
