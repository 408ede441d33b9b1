/*
 * test_randomk.c - random-k against a plain twin: places from the key by Floyd's algorithm, private ones as bytes and
 * shared ones as a round, over items and cuts of odd shapes, any number of threads, with and without a memory.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "codec/draws.h"
#include "codec/packed.h"
#include "support/blocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VECTOR = 60000, CUTS = 3, MEMBERS = 3 };
static const nw_extent pieces[] = {{10, 3, 0, 0},       {20, 16001, 0, 0},    {16030, 1, 1, 0},
                                   {20000, 5120, 2, 0}, {25130, 15360, 3, 0}, {VECTOR - 999, 999, 4, 0}};
enum { PIECES = sizeof pieces / sizeof pieces[0] };

static nw_codec *make(double ratio, bool shared, bool scaled, nw_values values)
{
    nw_codec *codec;
    nw_codec_options o = nw_codec_options_default("randomk");
    o.seed = 9;
    o.ratio = ratio;
    o.shared = shared;
    o.scaled = scaled;
    o.values = values;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    assert_true((codec->ops->rounds != NULL) == shared);
    assert_string_equal(codec->ops->name, "randomk");
    return codec;
}

static nw_block make_block(const nw_codec *codec, int cuts)
{
    nw_block b;
    size_t floats = 0;
    for (int i = 0; i < PIECES; i++) floats += pieces[i].count;
    const size_t one[] = {0, floats}, some[] = {0, 2, floats / 3 + 1, floats};
    assert_int_equal(nw_block_make(&b, codec, pieces, PIECES, cuts == 1 ? one : some, cuts, 7), NW_OK);
    return b;
}

static void fill(float *v, uint64_t seed)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 0, 0);
    for (size_t i = 0; i < VECTOR; i++) v[i] = nw_rng_normal(&rng);
}

/* Which elements of the vector are chosen of a cut, in order, and what their values are multiplied with. */
static size_t twin_places(const nw_codec *codec, const nw_codec_key *key, const nw_block *b, int cut, size_t *places,
                          float *factors)
{
    size_t found = 0;
    bool *taken = malloc(VECTOR);
    size_t *where = malloc(VECTOR * sizeof *where);
    for (int item = 0; item < b->item_count; item++) {
        uint32_t n = 0, from = 0, k;
        for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++)
            for (uint32_t i = 0; b->tiles[t].cut == cut && i < b->tiles[t].count; i++) {
                if (n == 0) from = b->tiles[t].within;
                where[n++] = b->tiles[t].first + i;
            }
        if (n == 0) continue;
        k = (uint32_t)fmax(1, round(n * codec->options.ratio));
        bool rest = 2 * (uint64_t)k > n; /* for an odd n, k = n / 2 rounded down is drawn itself */
        uint32_t drawn = rest ? n - k : k;
        nw_rng rng =
            nw_rng_make(codec->options.seed, (nw_purpose)(64 + key->channel),
                        key->step | (uint64_t)b->number[item] << 40, codec->options.shared ? 0 : key->member + 1);
        rng.counter[0] = from;
        memset(taken, 0, n);
        for (uint32_t j = n - drawn; j < n; j++) {
            uint32_t t = nw_rng_below(&rng, j + 1);
            taken[taken[t] ? j : t] = true;
        }
        for (uint32_t i = 0; i < n; i++)
            if (taken[i] != rest) {
                factors[found] = codec->options.scaled ? (float)n / (float)k : 1;
                places[found++] = where[i];
            }
    }
    free(taken);
    free(where);
    return found;
}

static float twin_value(nw_values values, float x)
{
    if (values == NW_VALUES_BF16) {
        uint32_t u;
        memcpy(&u, &x, sizeof u);
        u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
        memcpy(&x, &u, sizeof x);
    }
    return x;
}

static float given[MEMBERS][VECTOR], want[VECTOR], kept[MEMBERS][VECTOR], out[VECTOR], factors[VECTOR];
static size_t places[VECTOR];
static uint8_t message[CUTS][5 * VECTOR];

/* ---- private ---- */

static void check_private(const nw_codec *codec, int cuts, int threads, bool remember)
{
    nw_block b = make_block(codec, cuts);
    const nw_block *const blocks[] = {&b};
    nw_pool *pool = NULL;
    nw_memory *memory;
    nw_partial partial[64];
    nw_encoded encoded[CUTS];
    nw_scratch scratch;
    uint8_t *to[CUTS] = {message[0], message[1], message[2]};
    if (threads > 0) assert_int_equal(nw_pool_create(&pool, threads), NW_OK);
    assert_int_equal(nw_scratch_make(&scratch, blocks, 1, threads ? threads : 1), NW_OK);
    assert_int_equal(nw_memory_create(&memory, &(nw_memory_options){.name = remember ? "error" : "none"}, VECTOR),
                     NW_OK);
    memset(kept[0], 0, sizeof kept[0]);
    for (uint64_t step = 3; step < 5; step++) {
        nw_encoding e = {.block = &b,
                         .codec = codec,
                         .memory = memory,
                         .key = {step, 3, 1},
                         .clip = 1,
                         .vector = given[0],
                         .partial = partial,
                         .scratch = &scratch,
                         .out = to,
                         .encoded = encoded};
        for (size_t i = 0; i < VECTOR; i++) kept[0][i] = memory ? kept[0][i] + given[0][i] : given[0][i];
        assert_int_equal(nw_codec_begin(&e, pool), NW_OK);
        assert_int_equal(nw_codec_end(&e, pool), NW_OK);
        for (int c = 0; c < cuts; c++) {
            size_t width = codec->options.values == NW_VALUES_BF16 ? 2 : 4;
            size_t count = twin_places(codec, &e.key, &b, c, places, factors);
            assert_int_equal(encoded[c].bytes, 16 + nw_pad4(width * count));
            nw_packed h = nw_packed_read(to[c]);
            assert_true(h.family == NW_FAMILY_CHOSEN && h.coordinates == b.cut_floats[c] && h.entries == count &&
                        h.bytes == encoded[c].bytes && h.parameter == 0 && h.values == codec->options.values);
            memset(want, 0, sizeof want);
            for (size_t i = 0; i < count; i++) {
                float x = twin_value(codec->options.values, kept[0][places[i]] * factors[i]), is = 0;
                memcpy((uint8_t *)&is + 4 - width, to[c] + 16 + width * i, width);
                assert_true(is == x);
                want[places[i]] = x;
                if (memory) kept[0][places[i]] -= x;
            }
            nw_decoding d = {&b, codec, e.key, c, to[c], encoded[c].bytes, &scratch};
            memset(out, 0xee, sizeof out);
            assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, false, pool), NW_OK);
            for (int t = b.cut_tile[c]; t < b.cut_tile[c + 1]; t++)
                assert_memory_equal(out + b.tiles[t].first, want + b.tiles[t].first, b.tiles[t].count * sizeof(float));
            assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, true, pool), NW_OK);
            for (size_t i = 0; i < count; i++) assert_true(out[places[i]] == 2 * want[places[i]]);
            d.key.step++; /* other places, as many: a message all the same */
            assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, false, pool), NW_OK);
        }
        for (int t = 0; memory && t < b.tile_count; t++)
            assert_memory_equal(memory->v + b.tiles[t].first, kept[0] + b.tiles[t].first,
                                b.tiles[t].count * sizeof(float));
    }
    nw_scratch_free(&scratch);
    nw_memory_free(memory);
    nw_pool_free(pool);
    nw_block_free(&b);
}

static void test_private(void **state)
{
    static const double ratios[] = {0.001, 0.01, 0.3, 0.5, 0.9, 1};
    static const int threads[] = {0, 1, 2, 3, 7};
    (void)state;
    fill(given[0], 1);
    for (int r = 0; r < 6; r++)
        for (int way = 0; way < 20; way++) {
            bool scaled = way % 4 == 3;
            nw_codec *codec = make(ratios[r], false, scaled, way % 3 ? NW_VALUES_F32 : NW_VALUES_BF16);
            check_private(codec, way % 2 ? CUTS : 1, threads[way / 4], !scaled && way % 4 > 0);
            nw_codec_free(codec);
        }
}

/* A cut that its owner encodes alone: the same bytes. */
static void test_part(void **state)
{
    (void)state;
    fill(given[0], 2);
    nw_codec *codec = make(0.1, false, false, NW_VALUES_F32);
    nw_block b = make_block(codec, CUTS), part;
    assert_int_equal(nw_block_make_part(&part, &b, 2, 0), NW_OK);
    nw_codec_key key = {1, 3, 2};
    nw_encoded e = encode_block(&part, NULL, key, given[0], message[0], NULL);
    size_t count = twin_places(codec, &key, &b, 2, places, factors);
    assert_int_equal(e.bytes, 16 + 4 * count);
    for (size_t i = 0; i < count; i++) assert_true(nw_get_f32(message[0] + 16 + 4 * i) == given[0][places[i]]);
    nw_block_free(&part);
    nw_block_free(&b);
    nw_codec_free(codec);
}

/* What it sends must be finite; what it does not send it does not see. */
static void test_not_finite(void **state)
{
    (void)state;
    nw_codec *codec = make(0.01, false, false, NW_VALUES_F32);
    nw_block b = make_block(codec, 1);
    nw_codec_key key = {1, 3, 2};
    size_t count = twin_places(codec, &key, &b, 0, places, factors);
    fill(given[0], 3);
    for (size_t i = 0, next = 0; i < VECTOR; i++) {
        if (next < count && places[next] == i)
            next++;
        else
            given[0][i] = NAN;
    }
    assert_int_equal(encode_block(&b, NULL, key, given[0], message[0], NULL).bytes, 16 + 4 * count);
    given[0][places[7]] = INFINITY;
    assert_int_equal(encode_block(&b, NULL, key, given[0], message[0], NULL).bytes, 0);
    nw_block_free(&b);
    nw_codec_free(codec);
}

/* Every place is as likely as any other. */
static void test_uniform(void **state)
{
    enum { FLOATS = 40, DRAWS = 20000, TAKEN = 10 };
    int counts[FLOATS] = {0}, pairs = 0;
    float ones[FLOATS], decoded[FLOATS];
    (void)state;
    nw_codec *codec = make(0.25, false, false, NW_VALUES_F32);
    nw_block b = plain_block(codec, FLOATS);
    for (int i = 0; i < FLOATS; i++) ones[i] = 1;
    for (uint64_t step = 0; step < DRAWS; step++) {
        nw_codec_key key = {step, 3, 0};
        nw_encoded e = encode_block(&b, NULL, key, ones, message[0], NULL);
        assert_int_equal(decode_block(&b, key, message[0], e.bytes, decoded, false, NULL), NW_OK);
        for (int i = 0; i < FLOATS; i++) counts[i] += decoded[i] == 1;
        pairs += decoded[0] == 1 && decoded[39] == 1;
    }
    double p = 0.25, sigma = sqrt(DRAWS * p * (1 - p)), both = 10.0 * 9 / (40 * 39);
    for (int i = 0; i < FLOATS; i++) assert_true(fabs(counts[i] - DRAWS * p) < 5 * sigma);
    assert_true(fabs(pairs - DRAWS * both) < 5 * sqrt(DRAWS * both));
    nw_block_free(&b);
    nw_codec_free(codec);
}

/* ---- shared ---- */

static void check_shared(const nw_codec *codec, int threads, bool remember)
{
    nw_block b = make_block(codec, 1);
    const nw_block *const blocks[] = {&b};
    nw_pool *pool = NULL;
    nw_memory *memory[MEMBERS];
    nw_partial partial[64];
    nw_scratch scratch;
    nw_codec_key key = {0, 3, 0};
    size_t count = twin_places(codec, &key, &b, 0, places, factors);
    float *round = malloc((count + 1) * sizeof *round), *mean = malloc((count + 1) * sizeof *mean);
    if (threads > 0) assert_int_equal(nw_pool_create(&pool, threads), NW_OK);
    assert_int_equal(nw_scratch_make(&scratch, blocks, 1, threads ? threads : 1), NW_OK);
    assert_int_equal(nw_codec_round_floats(&b, 0), count);
    for (int m = 0; m < MEMBERS; m++)
        assert_int_equal(
            nw_memory_create(&memory[m], &(nw_memory_options){.name = remember ? "error" : "none"}, VECTOR), NW_OK);
    memset(kept, 0, sizeof kept);
    for (uint64_t step = 1; step < 4; step++) {
        nw_encoding e = {
            .block = &b, .codec = codec, .key = {step, 3, 0}, .clip = 1, .partial = partial, .scratch = &scratch};
        assert_int_equal(twin_places(codec, &e.key, &b, 0, places, factors), count);
        memset(mean, 0, count * sizeof *mean);
        for (int m = 0; m < MEMBERS; m++) {
            e.key.member = (uint32_t)m;
            e.memory = memory[m];
            e.vector = given[m];
            nw_codec_contribute(&e, 0, round, pool);
            for (size_t i = 0; i < VECTOR; i++) kept[m][i] = remember ? kept[m][i] + given[m][i] : given[m][i];
            for (size_t i = 0; i < count; i++) {
                assert_true(round[i] == kept[m][places[i]] * factors[i]);
                mean[i] += round[i] / MEMBERS;
            }
        }
        memset(want, 0, sizeof want);
        for (size_t i = 0; i < count; i++) want[places[i]] = mean[i];
        for (int m = 0; m < MEMBERS; m++) {
            e.key.member = (uint32_t)m;
            e.memory = memory[m];
            e.vector = given[m];
            memset(out, 0xee, sizeof out);
            nw_codec_use_mean(&e, 0, mean, out, pool);
            for (size_t i = 0; remember && i < count; i++) kept[m][places[i]] = 0;
            for (int t = 0; t < b.tile_count; t++) {
                size_t first = b.tiles[t].first, bytes = b.tiles[t].count * sizeof(float);
                assert_memory_equal(out + first, want + first, bytes);
                if (remember) assert_memory_equal(memory[m]->v + first, kept[m] + first, bytes);
            }
        }
    }
    for (int m = 0; m < MEMBERS; m++) nw_memory_free(memory[m]);
    nw_scratch_free(&scratch);
    nw_pool_free(pool);
    nw_block_free(&b);
    free(round);
    free(mean);
}

static void test_shared(void **state)
{
    static const double ratios[] = {0.001, 0.1, 0.5, 0.95};
    (void)state;
    for (int m = 0; m < MEMBERS; m++) fill(given[m], (uint64_t)m + 10);
    for (int r = 0; r < 4; r++)
        for (int way = 0; way < 12; way++) {
            nw_codec *codec = make(ratios[r], true, way % 3 == 2, NW_VALUES_F32);
            check_shared(codec, way / 3, way % 3 == 1);
            nw_codec_free(codec);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_private), cmocka_unit_test(test_part),   cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_uniform), cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
