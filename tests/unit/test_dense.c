/*
 * test_dense.c - the dense families (qsgd, terngrad, sign, natural, int8) against plain twins, bit for bit: bytes that
 * are written down, every instruction set, items and cuts of odd shapes, any number of threads, with and without a memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "codec/draws.h"
#include "codec/kernels.h"
#include "codec/packed.h"
#include "support/dense_twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static nw_codec *make(nw_codec_options o)
{
    nw_codec *codec = NULL;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    return codec;
}

/* ---- draws ---- */

static void test_draws(void **state)
{
    static const uint32_t at[] = {0, 1, 2, 3, 16, 32, 128};
    static const uint16_t golden[] = {62826, 2594, 713, 27621, 44509, 45620, 54859};
    nw_codec codec = {.options = {.seed = 1}};
    nw_codec_key key = {.step = 5, .channel = 3, .member = 0};
    nw_rng stream = nw_draws_stream(&codec, &key, 2, false);
    (void)state;
    for (int i = 0; i < 7; i++) assert_int_equal(nw_draw(&stream, at[i]), golden[i]);
    for (int k = 0; k < nw_codec_kernel_sets(); k++) {
        const nw_codec_kernels *set = nw_codec_kernels_at(k);
        uint16_t out[8 * NW_DRAWS_GROUP + 1];
        if (!set->usable()) continue;
        for (uint32_t from = 0; from < 3; from++)
            for (size_t groups = 0; groups <= 8; groups++) {
                stream.counter[0] = 16 * from;
                memset(out, 0xee, sizeof out);
                set->draws(stream.key, stream.counter, groups, out);
                for (uint32_t i = 0; i < groups * NW_DRAWS_GROUP; i++)
                    assert_int_equal(out[i], nw_draw(&stream, from * NW_DRAWS_GROUP + i));
                assert_int_equal(out[groups * NW_DRAWS_GROUP], 0xeeee);
            }
    }
}

/* ---- bytes as they are written down ---- */

static void given_draws(const uint32_t key[2], const uint32_t counter[4], size_t groups, uint16_t *out)
{
    static const double u[] = {0.5, 0.1, 0.9, 0.2, 0.7, 0.3};
    (void)key;
    (void)counter;
    memset(out, 0, groups * NW_DRAWS_GROUP * sizeof *out);
    for (int i = 0; i < 6; i++) out[i] = (uint16_t)(u[i] * 65536);
}

typedef struct vector {
    const char *name, *bytes;
    int levels;
    float want[6];
} vector;

static const vector vectors[] = {
    {"terngrad",
     "060000000600000006000000180000"
     "00cdcc4c3f79750000",
     0,
     {0, -0.8f, 0, -0.8f, 0, 0}},
    {"qsgd", "0700040006000000060000001800000046dc783f45144600", 4, {0.243028f, 0, 0, -0.729083f, 0.486056f, 0}},
    {"qsgd",
     "070009000600000006000000"
     "1c00000046dc783f4ecbfd6b51972100",
     255,
     {0.301163f, -0.099117f, 0, -0.800562f, 0.449839f, 0.049558f}},
    {"sign",
     "08000a00060000000600000018000000"
     "1111913e0a000000",
     0,
     {0.2833333f, -0.2833333f, 0.2833333f, -0.2833333f, 0.2833333f, 0.2833333f}},
    {"int8",
     "0a0008000600000006000000"
     "1c000000cdcc4c3f30f0008147080000",
     0,
     {0.302362f, -0.100787f, 0, -0.8f, 0.447244f, 0.050394f}},
    {"natural", "090000000600000006000000180000006be900ec6c680000", 0, {0.25f, -0.0625f, 0, -0.5f, 0.5f, 0.03125f}},
};

static void test_vectors(void **state)
{
    static const float g[] = {0.3f, -0.1f, 0, -0.8f, 0.45f, 0.05f};
    (void)state;
    for (int k = 0; k < nw_codec_kernel_sets(); k++)
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
            nw_codec_kernels set = *nw_codec_kernels_at(k);
            nw_codec_options o = nw_codec_options_default(vectors[i].name);
            uint8_t bytes[64];
            char text[129] = "";
            float out[6];
            if (!set.usable()) continue;
            set.draws = given_draws;
            nw_codec_kernels_force(&set);
            if (vectors[i].levels) o.levels = vectors[i].levels;
            nw_codec *codec = make(o);
            nw_block b = plain_block(codec, 6);
            nw_encoded e = encode_block(&b, NULL, (nw_codec_key){0}, g, bytes, NULL);
            for (size_t j = 0; j < e.bytes; j++) snprintf(text + 2 * j, 3, "%02x", bytes[j]);
            assert_string_equal(text, vectors[i].bytes);
            assert_int_equal(decode_block(&b, (nw_codec_key){0}, bytes, e.bytes, out, false, NULL), NW_OK);
            for (int j = 0; j < 6; j++) assert_true(fabsf(out[j] - vectors[i].want[j]) < 1e-6f);
            assert_int_equal(e.scale_bytes, strcmp(vectors[i].name, "natural") == 0 ? 0 : 4);
            nw_block_free(&b);
            nw_codec_free(codec);
            nw_codec_kernels_force(NULL);
        }
}

/* ---- twins ---- */

enum { VECTOR = 60000, ITEMS = 6 };
/* Items of one and two runs, one of 3 tiles and some, one of one float, one of zeros, one of very small numbers. */
static const nw_extent pieces[] = {
    {10, 3, 0, 0},        {20, 16001, 0, 0},  {16030, 1, 1, 0},         {20000, 5120, 2, 0},
    {25130, 15360, 3, 0}, {40500, 700, 4, 0}, {VECTOR - 999, 999, 5, 0}};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

static void fill(float *v)
{
    nw_rng rng = nw_rng_make(5, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < VECTOR; i++) v[i] = nw_rng_normal(&rng) * (i % 7 == 0 ? 30.0f : 0.01f);
    for (size_t i = 0; i < VECTOR; i += 11) v[i] = i % 2 ? 0.0f : -0.0f;
    for (size_t i = 40500; i < 41200; i++) v[i] = i % 3 ? 0x1p-140f : 0; /* less than any scale */
    memset(v + VECTOR - 999, 0, 999 * sizeof *v);
}

/* Cuts of a block: so many, some of them empty. */
static nw_block make_block(const nw_codec *codec, int cuts)
{
    nw_block b;
    size_t floats = 0, at[5];
    for (int i = 0; i < PIECES; i++) floats += pieces[i].count;
    const size_t few[] = {0, floats}, many[] = {0, 2, floats / 3 + 1, floats / 3 + 1, floats};
    memcpy(at, cuts == 1 ? few : many, sizeof(size_t) * ((size_t)cuts + 1));
    assert_int_equal(nw_block_make(&b, codec, pieces, PIECES, at, cuts, 7), NW_OK);
    return b;
}

enum { MOST_CUTS = 4 };

typedef struct way {
    int cuts, threads;
    bool memory;
} way;

static float given[VECTOR], encoded_floats[VECTOR], decoded[VECTOR], sum[VECTOR], kept[VECTOR];
static uint8_t message[MOST_CUTS][5 * VECTOR], wanted[5 * VECTOR];

/* Two steps of a block; bytes, what is decoded and added, and the memory are the twin's. */
static void check_way(const nw_codec *codec, way w)
{
    nw_block b = make_block(codec, w.cuts);
    const nw_block *const blocks[] = {&b};
    nw_pool *pool = NULL;
    nw_memory *memory = NULL;
    nw_partial partial[64];
    nw_encoded encoded[MOST_CUTS];
    nw_scratch scratch;
    uint8_t *to[MOST_CUTS] = {message[0], message[1], NULL, message[3]};
    if (w.threads > 0) assert_int_equal(nw_pool_create(&pool, w.threads), NW_OK);
    assert_int_equal(nw_memory_create(&memory, &(nw_memory_options){.name = w.memory ? "error" : "none"}, VECTOR),
                     NW_OK);
    assert_int_equal(nw_scratch_make(&scratch, blocks, 1, w.threads ? w.threads : 1), NW_OK);
    assert_true(b.tile_count <= 64);
    nw_encoding e = {.block = &b,
                     .codec = codec,
                     .memory = memory,
                     .key = {4, 3, 1},
                     .clip = 1,
                     .vector = given,
                     .partial = partial,
                     .scratch = &scratch,
                     .out = to,
                     .encoded = encoded};
    memset(kept, 0, sizeof kept);
    for (int step = 0; step < 2; step++) {
        e.key.step++;
        for (size_t i = 0; i < VECTOR; i++) encoded_floats[i] = kept[i] = memory ? kept[i] + given[i] : given[i];
        assert_int_equal(nw_codec_begin(&e, pool), NW_OK);
        assert_int_equal(nw_codec_end(&e, pool), NW_OK);
        for (size_t i = 0; i < VECTOR; i++) decoded[i] = 77, sum[i] = (float)(i % 5);
        for (int c = 0; c < w.cuts; c++) {
            static float seen[VECTOR];
            for (size_t i = 0; i < VECTOR; i++) seen[i] = 77;
            if (!to[c]) continue;
            size_t bytes = twin_encode(codec, &e.key, &b, c, encoded_floats, wanted, seen);
            assert_int_equal(encoded[c].bytes, bytes);
            assert_memory_equal(to[c], wanted, bytes);
            nw_decoding d = {&b, codec, e.key, c, to[c], bytes, &scratch};
            assert_int_equal(nw_codec_decode(&d, decoded, NW_AT_FIRST, false, pool), NW_OK);
            assert_int_equal(nw_codec_decode(&d, sum, NW_AT_FIRST, true, pool), NW_OK);
            for (int t = b.cut_tile[c]; t < b.cut_tile[c + 1]; t++)
                for (size_t i = b.tiles[t].first; i < b.tiles[t].first + b.tiles[t].count; i++) {
                    assert_memory_equal(&decoded[i], &seen[i], sizeof(float));
                    assert_true(sum[i] == (float)(i % 5) + seen[i]);
                    if (memory) kept[i] -= seen[i];
                }
        }
        for (int t = 0; memory && t < b.tile_count; t++) {
            const nw_tile *tile = &b.tiles[t];
            assert_memory_equal(memory->v + tile->first, kept + tile->first, tile->count * sizeof(float));
        }
    }
    nw_scratch_free(&scratch);
    nw_memory_free(memory);
    nw_pool_free(pool);
    nw_block_free(&b);
}

static void check_all_ways(nw_codec_options o)
{
    static const int threads[] = {0, 1, 2, 3, 7};
    nw_codec *codec = make(o);
    for (int k = 0; k < nw_codec_kernel_sets(); k++) {
        if (!nw_codec_kernels_at(k)->usable()) continue;
        nw_codec_kernels_force(nw_codec_kernels_at(k));
        for (int t = 0; t < 5; t++)
            for (int cuts = 1; cuts <= MOST_CUTS; cuts += MOST_CUTS - 1)
                for (int memory = 0; memory < 2; memory++)
                    if (!memory || codec->ops->delta(codec, 16004) > 0)
                        check_way(codec, (way){cuts, threads[t], memory});
    }
    nw_codec_kernels_force(NULL);
    nw_codec_free(codec);
}

static void test_twins(void **state)
{
    static const char *const names[] = {"terngrad", "sign", "natural", "int8"};
    (void)state;
    fill(given);
    for (int i = 0; i < 4; i++) check_all_ways(nw_codec_options_default(names[i]));
}

static void test_twins_of_qsgd(void **state)
{
    static const struct {
        int levels, bucket;
        bool max_norm;
    } cases[] = {{255, 0, false}, {127, 512, false},  {1, 0, true},
                 {7, 100, true},  {32767, 16, false}, {200, 5120, true}};
    (void)state;
    fill(given);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_codec_options o = nw_codec_options_default("qsgd");
        o.levels = cases[i].levels;
        o.bucket = cases[i].bucket;
        o.max_norm = cases[i].max_norm;
        o.seed = i;
        check_all_ways(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_twins_of_qsgd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
