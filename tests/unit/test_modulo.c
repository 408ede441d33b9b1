/*
 * test_modulo.c - the codec modulo beside a twin in plain loops that makes its bytes and reads them; what two messages say
 * of how far their floats are apart; and what happens beyond the bound.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "codec/draws.h"
#include "codec/kernels.h"
#include "codec/modulo.h"
#include "codec/packed.h"
#include "codec/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { FIRST = 7000, SECOND = 333, FLOATS = FIRST + SECOND, ROOM = 1 << 15, TILES = 3, SEED = 11 };
static const nw_codec_key key = {.step = 5, .channel = 3, .member = 0x20007};

/* Two items: one of two tiles, one of one. */
typedef struct sender {
    nw_codec *codec;
    nw_block block;
    nw_scratch scratch;
    nw_partial partial[TILES];
    nw_encoded encoded;
    uint8_t bytes[ROOM];
} sender;

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void make(sender *s, int bits)
{
    nw_codec_options o = nw_codec_options_default("modulo");
    const nw_extent extents[] = {{0, FIRST, 0, 1}, {FIRST, SECOND, 1, 1}};
    memset(s, 0, sizeof *s);
    o.bits = bits;
    o.seed = SEED;
    ok(nw_codec_create(&s->codec, &o));
    ok(nw_block_make(&s->block, s->codec, extents, 2, (const size_t[]){0, FLOATS}, 1, 4));
    assert_int_equal(s->block.tile_count, TILES);
    ok(nw_scratch_make(&s->scratch, (const nw_block *const[]){&s->block}, 1, 1));
}

static void drop(sender *s)
{
    nw_scratch_free(&s->scratch);
    nw_block_free(&s->block);
    nw_codec_free(s->codec);
}

static void encode(sender *s, const float *v, const float *steps)
{
    uint8_t *out = s->bytes;
    nw_encoding e = {.block = &s->block,
                     .codec = s->codec,
                     .key = key,
                     .clip = 1,
                     .vector = v,
                     .steps = steps,
                     .partial = s->partial,
                     .scratch = &s->scratch,
                     .out = &out,
                     .encoded = &s->encoded};
    memset(s->bytes, 0xee, ROOM);
    ok(nw_codec_begin(&e, NULL));
    size_t most = s->encoded.bytes;
    ok(nw_codec_end(&e, NULL));
    assert_true(s->encoded.bytes == most && most < ROOM && s->bytes[most] == 0xee);
}

static nw_decoding decoding(sender *s)
{
    return (nw_decoding){.block = &s->block,
                         .codec = s->codec,
                         .key = key,
                         .in = s->bytes,
                         .bytes = s->encoded.bytes,
                         .scratch = &s->scratch};
}

/* ---- the twin ---------------------------------------------------------------------------------------------------- */

/* Whole steps of an element. */
static int64_t steps_of(uint32_t number, uint32_t element, float v, float step)
{
    nw_rng stream = nw_rng_make(SEED, (nw_purpose)(NW_DRAWS_PURPOSE + key.channel), key.step | (uint64_t)number << 40,
                                key.member + 1);
    float u = ((float)nw_draw(&stream, element) + 0.5f) / 65536;
    float scaled = v * (1 / step); /* rounded before the sum */
    return (int64_t)floorf(scaled + u);
}

static size_t twin(const nw_block *b, int bits, const float *v, const float *steps, uint8_t *out)
{
    size_t at = NW_PACKED_HEADER + 2 * sizeof(float);
    memset(out, 0, ROOM);
    memcpy(out + NW_PACKED_HEADER, steps, 2 * sizeof(float));
    for (int t = 0; t < b->tile_count; t++) {
        const nw_tile *tile = &b->tiles[t];
        uint32_t sum = 0, half = 1u << (bits - 1);
        size_t whole = tile->count / 512 * 512;
        uint8_t *codes = out + at + sizeof sum;
        for (uint32_t i = 0; i < tile->count; i++) {
            int64_t k = steps_of(b->number[tile->item], tile->within + i, v[tile->first + i], steps[tile->item]);
            uint32_t code = (uint32_t)(k + half) & (2 * half - 1);
            sum += (2 * i + 1) * (uint32_t)k;
            for (size_t bit = 0; bit < (size_t)bits; bit++) {
                size_t place;
                if (i < whole) { /* lane l of 16 has the elements l, l + 16, ... of 512, as one stream of words */
                    size_t in_lane = i % 512 / 16 * (size_t)bits + bit;
                    place = 32 * (i / 512 * 16 * (size_t)bits + in_lane / 32 * 16 + i % 16) + in_lane % 32;
                } else {
                    place = whole * (size_t)bits + (i - whole) * (size_t)bits + bit;
                }
                codes[place / 8] |= (uint8_t)((code >> bit & 1) << place % 8);
            }
        }
        memcpy(out + at, &sum, sizeof sum);
        at += sizeof sum + whole / 8 * (size_t)bits + ((tile->count - whole) * (size_t)bits + 7) / 8;
    }
    at = (at + 3) / 4 * 4;
    const uint32_t numbers[] = {12 | (uint32_t)bits << 16, FLOATS, FLOATS, (uint32_t)at};
    memcpy(out, numbers, sizeof numbers);
    return at;
}

/* ---- one message ------------------------------------------------------------------------------------------------- */

static float v[FLOATS], w[FLOATS], out[FLOATS];

static void fill(float *x, uint64_t seed, float scale)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 3, 0);
    for (int i = 0; i < FLOATS; i++) x[i] = scale * nw_rng_normal(&rng);
}

TEST(test_bytes_are_the_twins)
{
    static sender s;
    static uint8_t right[ROOM];
    for (int set = 0; set < nw_codec_kernel_sets(); set++) {
        if (!nw_codec_kernels_at(set)->usable()) continue;
        nw_codec_kernels_force(nw_codec_kernels_at(set));
        for (int bits = 2; bits <= 8; bits++) {
            const float steps[] = {ldexpf(1, -bits), 0x1p-20f};
            make(&s, bits);
            fill(v, (uint64_t)bits, 2);
            v[3] = 1e30f, v[4] = -1e30f, v[5] = 0,
            v[6] = -0.0f; /* too far for f32 to have steps: the furthest there is */
            encode(&s, v, steps);
            nw_decoding d = decoding(&s);
            ok(nw_codec_decode(&d, out, NW_AT_FIRST, false, NULL));
            for (int i = 0; i < FLOATS; i++) {
                float step = steps[i >= FIRST], bound = step * (float)(1 << (bits - 1));
                assert_true(out[i] >= -bound && out[i] < bound && out[i] / step == truncf(out[i] / step));
                if (fabsf(v[i]) < bound - step) assert_true(fabsf(out[i] - v[i]) <= step);
            }
            v[3] = v[4] = 0; /* the twin has more than 32 bits */
            encode(&s, v, steps);
            assert_int_equal(twin(&s.block, bits, v, steps, right), s.encoded.bytes);
            assert_memory_equal(s.bytes, right, s.encoded.bytes);
            drop(&s);
        }
    }
    nw_codec_kernels_force(NULL);
}

TEST(test_steps_and_bounds)
{
    static sender s;
    for (int bits = 2; bits <= 8; bits++) {
        make(&s, bits);
        for (double bound = 1e-20; bound < 1e20; bound *= 1.7) {
            float step = nw_modulo_step(s.codec, bound);
            int exponent;
            assert_true(frexpf(step, &exponent) == 0.5f);
            assert_true(nw_modulo_bound(s.codec, step) >= bound && nw_modulo_bound(s.codec, step / 2) < bound);
        }
        assert_true(nw_modulo_step(s.codec, 0) > 0 && isfinite(nw_modulo_step(s.codec, 1e300)));
        drop(&s);
    }
    nw_codec_options o = nw_codec_options_default("modulo");
    nw_codec *codec;
    for (o.bits = 0; o.bits < 12; o.bits++) {
        nw_status status = nw_codec_create(&codec, &o);
        assert_int_equal(status, o.bits >= 2 && o.bits <= 8 ? NW_OK : NW_E_ARGUMENT);
        if (status == NW_OK) nw_codec_free(codec);
    }
}

/* ---- two messages ------------------------------------------------------------------------------------------------ */

static bool apart(sender *a, sender *b, float *difference, float most[TILES])
{
    nw_decoding mine = decoding(a), theirs = decoding(b);
    bool fits = true;
    ok(nw_codec_check(&theirs, NULL));
    for (int t = 0; t < TILES; t++)
        fits &= nw_modulo_apart(&mine, &theirs, t, difference + a->block.tiles[t].first, &most[t]);
    return fits;
}

/* Less than a step off, without bias, nothing where both are the same; and the other finds the same, turned. */
TEST(test_differences)
{
    static sender a, b;
    static float back[FLOATS];
    double error = 0, count = 0;
    for (int bits = 2; bits <= 8; bits++) {
        make(&a, bits);
        make(&b, bits);
        for (uint64_t seed = 0; seed < 20; seed++) {
            const float steps[] = {0x1p-6f, 0x1p-3f};
            float most[TILES], turned[TILES], largest[2] = {0};
            fill(v, seed, 10);
            fill(w, seed + 100, 1);
            for (int i = 0; i < FLOATS; i++) {
                float bound = (float)nw_modulo_bound(a.codec, steps[i >= FIRST]) * 0.999f;
                w[i] = i % 5 == 0 ? v[i] : v[i] + fmaxf(-bound, fminf(bound, w[i] * steps[i >= FIRST] * (float)bits));
            }
            encode(&a, v, steps);
            encode(&b, w, steps);
            assert_true(apart(&a, &b, out, most) && apart(&b, &a, back, turned));
            for (int i = 0; i < FLOATS; i++) {
                float step = steps[i >= FIRST], off = out[i] - (v[i] - w[i]);
                assert_true(out[i] == -back[i] && fabsf(off) <= step * 1.001f);
                assert_true(i % 5 != 0 || out[i] == 0);
                error += (double)(off / step);
                count++;
                largest[i >= FIRST] = fmaxf(largest[i >= FIRST], fabsf(out[i]));
            }
            assert_true(fmaxf(most[0], most[1]) == largest[0] && most[2] == largest[1]);
            assert_memory_equal(most, turned, sizeof most);
        }
        drop(&a);
        drop(&b);
    }
    print_message("mean error %.2g steps of %.0f differences\n", error / count, count);
    assert_true(fabs(error / count) < 4 / sqrt(count));
}

/* One float too far apart is always found, whatever it is off by; several are, too. */
TEST(test_beyond_the_bound)
{
    static sender a, b;
    int missed = 0, tries = 0;
    for (int bits = 2; bits <= 8; bits++) {
        make(&a, bits);
        make(&b, bits);
        for (uint64_t seed = 0; seed < 60; seed++) {
            const float steps[] = {0x1p-6f, 0x1p-3f};
            float most[TILES];
            nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 9, (uint32_t)bits);
            fill(v, seed, 1);
            memcpy(w, v, sizeof v);
            encode(&a, v, steps);
            encode(&b, w, steps);
            assert_true(apart(&a, &b, out, most));
            uint32_t several = 1 + nw_rng_below(&rng, 40);
            for (uint32_t k = 0; k < (seed % 2 ? several : 1); k++) {
                uint32_t at = nw_rng_below(&rng, FLOATS);
                float whole = 2 * (steps[at >= FIRST] + (float)nw_modulo_bound(a.codec, steps[at >= FIRST]));
                w[at] = v[at] + whole * (float)(1 + nw_rng_below(&rng, 9)) * (k % 2 ? 1.0f : -1.0f);
            }
            encode(&b, w, steps);
            missed += apart(&a, &b, out, most);
            assert_true(apart(&a, &b, out, most) == apart(&b, &a, out, most));
            tries++;
        }
        drop(&a);
        drop(&b);
    }
    print_message("%d of %d missed\n", missed, tries);
    assert_int_equal(missed, 0);
}

/* Steps that differ are not compared. */
TEST(test_other_steps)
{
    static sender a, b;
    float most[TILES];
    make(&a, 8);
    make(&b, 8);
    fill(v, 1, 1);
    encode(&a, v, (const float[]){1, 2});
    encode(&b, v, (const float[]){1, 4});
    assert_false(apart(&a, &b, out, most));
    drop(&a);
    drop(&b);
}

/* Every byte of header, steps and padding counts; nothing is written before all was checked. */
TEST(test_damage)
{
    static sender s;
    make(&s, 7);
    fill(v, 1, 1);
    encode(&s, v, (const float[]){0x1p-6f, 0x1p-7f});
    int refused = 0;
    for (size_t at = 0; at < s.encoded.bytes; at++)
        for (int bit = 0; bit < 8; bit++) {
            bool strict = at < NW_PACKED_HEADER + 2 * sizeof(float) || at >= s.encoded.bytes - 4;
            if (!strict && (at * 8 + (size_t)bit) % 97 != 0) continue;
            s.bytes[at] ^= (uint8_t)(1 << bit);
            nw_decoding d = decoding(&s);
            for (int i = 0; i < FLOATS; i++) out[i] = 77;
            nw_status status = nw_codec_decode(&d, out, NW_AT_FIRST, false, NULL);
            s.bytes[at] ^= (uint8_t)(1 << bit);
            refused += status != NW_OK;
            assert_true(status == NW_OK || (status == NW_E_MESSAGE && out[0] == 77 && out[FLOATS - 1] == 77));
            bool power = at >= NW_PACKED_HEADER && at < NW_PACKED_HEADER + 2 * sizeof(float); /* may be another one */
            if (at < NW_PACKED_HEADER) assert_int_equal(status, NW_E_MESSAGE);
            if (power && status == NW_OK) assert_true((at - NW_PACKED_HEADER) % 4 >= 2);
        }
    for (size_t bytes = 0; bytes < s.encoded.bytes; bytes += 11) {
        nw_decoding d = decoding(&s);
        d.bytes = bytes;
        assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, false, NULL), NW_E_MESSAGE);
    }
    assert_true(refused > 16 * 8);
    drop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_the_twins), cmocka_unit_test(test_steps_and_bounds),
        cmocka_unit_test(test_differences),         cmocka_unit_test(test_beyond_the_bound),
        cmocka_unit_test(test_other_steps),         cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
