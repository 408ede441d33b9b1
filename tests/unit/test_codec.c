/*
 * test_codec.c - codecs against plain twins in double: every half, and floats on both sides of every place where
 * rounding changes its mind; every instruction set; odd lengths and addresses; bytes that make no sense; blocks of
 * items and cuts on any number of threads, with and without a memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "codec/kernels.h"
#include "support/blocks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 3 }; /* codecs that send bare numbers; the others have tests of their own */

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

static const nw_half_loops *loops(const nw_codec_kernels *set, int f) { return f == 0 ? &set->f16 : &set->bf16; }

/* Those that this machine can use; found by main. */
static const nw_codec_kernels *sets[8];
static int set_count;

static void find_sets(void)
{
    for (int i = 0; i < nw_codec_kernel_sets(); i++)
        if (nw_codec_kernels_at(i)->usable()) sets[set_count++] = nw_codec_kernels_at(i);
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
        const nw_codec_kernels *set = sets[both / 2];
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
        const nw_codec_kernels *set = sets[both / 2];
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
            const nw_codec_kernels *set = sets[k];
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
            const nw_codec_kernels *set = sets[both / 2];
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
    for (int c = 0; c < NUMBERS; c++) {
        nw_codec *codec = make(nw_codec_at(c)->name);
        for (size_t n = 1; n <= LONGEST; n++)
            for (size_t off = 0; off < 4; off++) {
                uint8_t bytes[ROOM];
                float out[LONGEST + 8], sum[LONGEST + 8];
                nw_block b = plain_block(codec, n);
                memset(bytes, 0xee, sizeof bytes);
                nw_encoded e = encode_block(&b, NULL, key, in + off, bytes + off, NULL);
                assert_true(e.bytes <= 4 * n && e.index_bytes == 0 && e.scale_bytes == 0);
                for (size_t i = 0; i < ROOM; i++)
                    if (i < off || i >= off + e.bytes) assert_int_equal(bytes[i], 0xee);
                for (int i = 0; i < LONGEST + 8; i++) out[i] = 77, sum[i] = (float)i;
                assert_int_equal(decode_block(&b, key, bytes + off, e.bytes, out + off, false, NULL), NW_OK);
                assert_int_equal(decode_block(&b, key, bytes + off, e.bytes, sum + off, true, NULL), NW_OK);
                for (size_t i = 0; i < LONGEST + 8; i++) {
                    bool within = i >= off && i < off + n;
                    float x = within ? twin_round(codec, in[i]) : 0;
                    assert_int_equal(bits_of(out[i]), bits_of(within ? x : 77));
                    assert_int_equal(bits_of(sum[i]), bits_of(within ? (float)i + x : (float)i));
                }
                nw_block_free(&b);
            }
        nw_codec_free(codec);
    }
}

static void test_none_keeps_every_bit(void **state)
{
    static const uint32_t odd[] = {0, 0x80000000u, 1, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu, 0x3f800001u};
    float in[8];
    (void)state;
    nw_codec *codec = make("none");
    assert_true(codec->exact && nw_codec_plain.exact && nw_codec_plain.ops == codec->ops);
    memcpy(in, odd, sizeof in);
    pass_codec(codec, in, 8);
    assert_memory_equal(in, odd, sizeof odd);
    nw_codec_free(codec);
}

/* Refused before anything is written. */
static void test_bytes_that_make_no_sense(void **state)
{
    (void)state;
    for (int c = 0; c < NUMBERS; c++) {
        nw_codec *codec = make(nw_codec_at(c)->name);
        for (size_t floats = 1; floats <= 9; floats++) {
            nw_block b = plain_block(codec, floats);
            size_t right = encode_block(&b, NULL, (nw_codec_key){0}, (float[9]){0}, (uint8_t[36]){0}, NULL).bytes;
            for (size_t bytes = 0; bytes <= 36; bytes++)
                for (int add = 0; add < 2; add++) {
                    uint8_t in[36] = {0};
                    float out[9];
                    for (int j = 0; j < 9; j++) out[j] = add ? 0 : 5;
                    nw_status want = bytes == right ? NW_OK : NW_E_MESSAGE;
                    assert_int_equal(decode_block(&b, (nw_codec_key){0}, in, bytes, out, add, NULL), want);
                    for (size_t j = 0; j < 9; j++)
                        assert_true(out[j] == (add || (want == NW_OK && j < floats) ? 0 : 5));
                }
            nw_block_free(&b);
        }
        float x;
        nw_block b = plain_block(codec, 1);
        assert_int_equal(decode_block(&b, (nw_codec_key){0}, (const uint8_t *)"abcde", 5, &x, false, NULL),
                         NW_E_MESSAGE);
        assert_non_null(strstr(nw_error_message(), codec->ops->name));
        assert_non_null(strstr(nw_error_message(), "5 bytes"));
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

/* ---- blocks ---- */

enum { VECTOR = 60000, CUTS = 4, ITEMS = 5 };
/* Two items of two runs each, one that is as long as three tiles, small ones. */
static const nw_extent pieces[] = {{10, 3, 0, 0},    {20, 16000, 0, 0},    {16030, 1, 1, 0},     {20000, 5120, 1, 0},
                                   {25120, 8, 2, 0}, {25130, 15360, 3, 0}, {VECTOR - 9, 9, 4, 0}};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

static nw_block make_block(const nw_codec *codec, size_t cuts[CUTS + 1])
{
    nw_block b;
    size_t floats = 0;
    for (int i = 0; i < PIECES; i++) floats += pieces[i].count;
    const size_t at[CUTS + 1] = {0, 2, floats / 3, floats / 3, floats}; /* the third is empty */
    memcpy(cuts, at, sizeof at);
    assert_int_equal(nw_block_make(&b, codec, pieces, PIECES, cuts, CUTS, 7), NW_OK);
    return b;
}

/* Tiles cover the pieces once, in order, and know where they are. */
static void check_tiles(const nw_block *b, const size_t cuts[CUTS + 1])
{
    size_t at = 0, within = 0;
    int piece = 0, item = -1;
    size_t in_piece = 0;
    for (int t = 0; t < b->tile_count; t++) {
        const nw_tile *tile = &b->tiles[t];
        if (pieces[piece].item != item) within = 0, item = pieces[piece].item;
        assert_true(tile->count > 0 && tile->count <= NW_TILE_FLOATS);
        assert_int_equal(tile->item, item);
        assert_int_equal(tile->first, pieces[piece].first + in_piece);
        assert_int_equal(tile->kept, tile->first);
        assert_int_equal(tile->within, within);
        assert_int_equal(cuts[tile->cut] + tile->place, at);
        assert_true(at + tile->count <= cuts[tile->cut + 1]);
        assert_true(t >= b->item_tile[item] && t < b->item_tile[item + 1]);
        assert_true(t >= b->cut_tile[tile->cut] && t < b->cut_tile[tile->cut + 1]);
        at += tile->count;
        within += tile->count;
        in_piece += tile->count;
        if (in_piece == pieces[piece].count) piece++, in_piece = 0;
    }
    assert_int_equal(piece, PIECES);
    assert_int_equal(at, b->floats);
    for (int c = 0; c < CUTS; c++) assert_int_equal(b->cut_floats[c], cuts[c + 1] - cuts[c]);
    for (int i = 0; i < ITEMS; i++) assert_int_equal(b->number[i], 7 + i);
}

/* One cut as a block: the same floats, elsewhere in memories. */
static void check_part(const nw_block *b, int cut)
{
    nw_block part;
    assert_int_equal(nw_block_make_part(&part, b, cut, 1000), NW_OK);
    assert_int_equal(part.floats, b->cut_floats[cut]);
    assert_int_equal(part.tile_count, b->cut_tile[cut + 1] - b->cut_tile[cut]);
    for (int t = 0; t < part.tile_count; t++) {
        const nw_tile *own = &part.tiles[t], *whole = &b->tiles[b->cut_tile[cut] + t];
        assert_int_equal(own->first, whole->first);
        assert_int_equal(own->within, whole->within);
        assert_int_equal(own->place, whole->place);
        assert_int_equal(own->kept, 1000 + whole->place);
        assert_int_equal(part.number[own->item], b->number[whole->item]);
        assert_int_equal(own->cut, 0);
    }
    nw_block_free(&part);
}

static void test_blocks(void **state)
{
    size_t cuts[CUTS + 1];
    (void)state;
    nw_block b = make_block(&nw_codec_plain, cuts);
    check_tiles(&b, cuts);
    for (int c = 0; c < CUTS; c++) check_part(&b, c);
    nw_block_free(&b);
}

/* Every cut of a block, against one float after the other; on any number of threads; one cut left out. */
static void test_blocks_through_codecs(void **state)
{
    static float in[VECTOR], out[VECTOR], want[VECTOR], memory_twin[VECTOR];
    static uint8_t bytes[CUTS][4 * VECTOR];
    (void)state;
    nw_rng rng = nw_rng_make(5, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < VECTOR; i++) in[i] = nw_rng_normal(&rng);
    for (int c = 0; c < NUMBERS; c++)
        for (int way = 0; way < 8; way++) { /* threads 0 to 3, without and with a memory */
            size_t cuts[CUTS + 1];
            nw_codec *codec = make(nw_codec_at(c)->name);
            nw_block b = make_block(codec, cuts);
            nw_pool *pool = NULL;
            nw_memory *memory;
            nw_partial partial[64];
            nw_encoded encoded[CUTS];
            uint8_t *to[CUTS] = {bytes[0], bytes[1], bytes[2], way % 4 == 3 ? NULL : bytes[3]};
            if (way % 4 > 0) assert_int_equal(nw_pool_create(&pool, way % 4), NW_OK);
            assert_int_equal(nw_memory_create(&memory, &(nw_memory_options){.name = way < 4 ? NULL : "error"}, VECTOR),
                             NW_OK);
            assert_true((memory != NULL) == (way >= 4) && b.tile_count <= 64);
            nw_encoding e = {.block = &b,
                             .codec = codec,
                             .memory = memory,
                             .key = {1, 3, 0},
                             .clip = 1,
                             .vector = in,
                             .partial = partial,
                             .out = to,
                             .encoded = encoded};
            memset(memory_twin, 0, sizeof memory_twin);
            for (int step = 0; step < 3; step++) {
                assert_int_equal(nw_codec_begin(&e, pool), NW_OK);
                assert_int_equal(nw_codec_end(&e, pool), NW_OK);
                for (size_t i = 0; i < VECTOR; i++) out[i] = want[i] = 77;
                for (int t = 0; t < b.tile_count; t++)
                    for (size_t i = b.tiles[t].first; i < b.tiles[t].first + b.tiles[t].count; i++) {
                        float v = memory ? memory_twin[i] + in[i] : in[i];
                        memory_twin[i] = v;
                        if (!to[b.tiles[t].cut]) continue;
                        want[i] = twin_round(codec, v);
                        memory_twin[i] -= want[i];
                    }
                for (int cut = 0; cut < CUTS; cut++) {
                    nw_decoding d = {&b, codec, {1, 3, 0}, cut, to[cut], encoded[cut].bytes, NULL};
                    if (to[cut]) assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, false, pool), NW_OK);
                }
                assert_memory_equal(out, want, sizeof out);
                if (memory) assert_memory_equal(memory->v, memory_twin, sizeof memory_twin);
            }
            nw_memory_free(memory);
            nw_pool_free(pool);
            nw_block_free(&b);
            nw_codec_free(codec);
        }
}

static void test_memories(void **state)
{
    nw_memory *m;
    (void)state;
    assert_int_equal(nw_memory_create(&m, &(nw_memory_options){.name = "none"}, 9), NW_OK);
    assert_null(m);
    assert_int_equal(nw_memory_create(&m, &(nw_memory_options){.name = "eror"}, 9), NW_E_UNKNOWN);
    assert_non_null(strstr(nw_error_message(), "'eror'; the nearest is 'error'"));
    nw_memory_free(NULL);
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
    for (int c = 0; c < nw_codec_kinds(); c++) assert_int_equal(nw_codec_at(c)->family <= NW_FAMILY_BF16, c < NUMBERS);
    for (int i = 0; i < 3; i++) {
        char name[8]; /* the codec keeps no pointer to it */
        snprintf(name, sizeof name, "%s", known[i].name);
        nw_codec *codec = make(name);
        memset(name, 'x', sizeof name);
        assert_string_equal(codec->options.name, known[i].name);
        assert_int_equal(codec->options.seed, 3);
        assert_int_equal(codec->ops->id, known[i].id);
        nw_block b = plain_block(codec, 10);
        assert_int_equal(encode_block(&b, NULL, (nw_codec_key){0}, (float[10]){0}, (uint8_t[40]){0}, NULL).bytes,
                         10 * known[i].width);
        nw_block_free(&b);
        assert_true(codec->exact == known[i].exact);
        assert_ptr_equal(nw_codec_at(i), codec->ops);
        assert_true(strlen(codec->ops->summary) > 10);
        nw_codec_free(codec);
    }
    nw_codec *codec;
    assert_int_equal(nw_codec_create(&codec, &(nw_codec_options){.name = "pf16"}), NW_E_UNKNOWN);
    assert_null(codec);
    assert_non_null(strstr(nw_error_message(), "'pf16'; the nearest is 'fp16'"));
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
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_blocks_through_codecs),
        cmocka_unit_test(test_memories),
        cmocka_unit_test(test_registry),
    };
    find_sets();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
