/*
 * test_sparse.c - which entries sparse codecs send, against plain twins that sort: random shapes with items and cuts,
 * every instruction set, any number of threads, with and without a memory; ties, zeros, subnormal numbers, numbers that
 * are not finite; guesses that are far off; DGC's sampled choice. Messages are compared byte for byte.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "codec/draws.h"
#include "codec/sampled.h"
#include "support/blocks.h"
#include "support/sparse_twin.h"

#include <stdio.h>

/* ---- shapes ---- */

enum { VECTOR = 420000, EXTENTS = 8, CUTS = 4 };

/* Items, some in two runs with a gap, cut anywhere; and the same element by element. */
typedef struct shape {
    nw_extent extents[EXTENTS];
    int extent_count, items, cut_count;
    size_t cuts[CUTS + 1], floats, end; /* end: of the vector, as far as it is used */
    uint32_t at[VECTOR];                /* by element of the block: where it is in the vector */
    uint8_t item[VECTOR];
} shape;

static shape *make_shape(nw_rng *rng, const size_t *counts, int count, int cuts)
{
    static shape s;
    size_t at = nw_rng_below(rng, 9);
    s.extent_count = s.items = 0;
    s.floats = 0;
    for (int i = 0; i < count; i++, s.items++)
        for (int half = 0; half < 2; half++) {
            size_t first = i % 2 ? counts[i] / 3 : 0, length = half ? counts[i] - first : first;
            if (length == 0) continue;
            s.extents[s.extent_count++] = (nw_extent){at, length, i, 1};
            for (size_t j = 0; j < length; j++) s.at[s.floats] = (uint32_t)(at + j), s.item[s.floats++] = (uint8_t)i;
            at += length + nw_rng_below(rng, 3);
        }
    assert_true(at <= VECTOR && s.extent_count <= EXTENTS);
    s.cut_count = cuts;
    s.end = at;
    s.cuts[0] = 0;
    for (int c = 1; c < cuts; c++)
        s.cuts[c] = s.cuts[c - 1] + nw_rng_below(rng, (uint32_t)(s.floats - s.cuts[c - 1]) + 1);
    s.cuts[cuts] = s.floats;
    return &s;
}

static float float_of(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

enum { KINDS = 9 };
static float draw(nw_rng *rng, int kind, size_t i)
{
    switch (kind) {
    case 0:
        return nw_rng_normal(rng);
    case 1:
        return nw_rng_below(rng, 2) ? 0.25f : -0.25f; /* all equal */
    case 2:
        return nw_rng_below(rng, 200) ? 0 : nw_rng_normal(rng); /* fewer than k */
    case 3:
        return (float)nw_rng_below(rng, 4) * (nw_rng_below(rng, 2) ? 1e-3f : -1e-3f); /* ties */
    case 4:
        return float_of(nw_rng_below(rng, 5000) | nw_rng_u32(rng) << 31); /* subnormal */
    case 5:
        return float_of(nw_rng_u32(rng) & 0xbf7fffffu) * 1e-6f; /* all sizes */
    case 6:
        return (float)i;
    case 7:
        return -1.0f / (float)(i + 1);
    default:
        return nw_rng_below(rng, 1000) ? 1e-8f * nw_rng_normal(rng) : 3e38f;
    }
}

/* ---- the twin of a block ---- */

typedef struct rule {
    const char *name;
    double number; /* ratio or threshold */
    nw_values values;
    bool memory;
} rule;

typedef struct twin {
    float v[VECTOR]; /* by element of the vector; a memory's stays */
    float seen[VECTOR];
    bool chosen[VECTOR]; /* by element of the block */
    uint8_t message[CUTS][8 * VECTOR];
    size_t bytes[CUTS];
} twin;

static void choose_item(const rule *r, const float *v, size_t n, bool *chosen)
{
    float most = 0;
    for (size_t i = 0; i < n; i++) most = fmaxf(most, fabsf(v[i]));
    if (strcmp(r->name, "topk") == 0)
        twin_topk(v, n, (size_t)fmax(1, round((double)n * r->number)), chosen);
    else
        for (size_t i = 0; i < n; i++)
            chosen[i] = v[i] != 0 && (strcmp(r->name, "thresholdv") == 0 ? fabsf(v[i]) >= (float)r->number
                                                                         : 2 * (double)fabsf(v[i]) >= (double)most);
}

/* Entries of a cut, as a message; what receivers see of it. */
static void write_cut(twin *t, const shape *s, const rule *r, const twin_range *ranges, int cut)
{
    static uint32_t places[VECTOR];
    static float x[VECTOR], seen[VECTOR];
    static int item[VECTOR];
    size_t k = 0, first = s->cuts[cut], end = s->cuts[cut + 1];
    int first_item = first < end ? s->item[first] : 0, items = first < end ? s->item[end - 1] + 1 - first_item : 0;
    for (size_t i = first; i < end; i++) {
        if (!t->chosen[i]) continue;
        places[k] = (uint32_t)(i - first);
        item[k] = s->item[i] - first_item;
        x[k++] = t->v[s->at[i]];
    }
    t->bytes[cut] = twin_message(r->values, end - first, places, x, item, k, ranges + first_item, items,
                                 t->message[cut], sizeof t->message[cut], seen);
    for (size_t i = first; i < end; i++) t->seen[s->at[i]] = 0;
    for (size_t i = 0; i < k; i++) t->seen[s->at[first + places[i]]] = seen[i];
}

/* One step: v is what the gradient and the memory make. `skip`: a cut that nobody gets. */
static void step_twin(twin *t, const shape *s, const rule *r, const float *g, int skip)
{
    static float of_item[VECTOR];
    twin_range ranges[EXTENTS];
    size_t first = 0;
    for (size_t i = 0; i < s->floats; i++) t->v[s->at[i]] = r->memory ? t->v[s->at[i]] + g[s->at[i]] : g[s->at[i]];
    for (int item = 0; item < s->items; item++) {
        size_t n = 0, k = 0;
        while (first + n < s->floats && s->item[first + n] == item) of_item[n] = t->v[s->at[first + n]], n++;
        choose_item(r, of_item, n, t->chosen + first);
        for (size_t i = 0; i < n; i++)
            if (t->chosen[first + i]) of_item[k++] = of_item[i];
        ranges[item] = twin_range_of(of_item, k);
        first += n;
    }
    for (int c = 0; c < s->cut_count; c++)
        if (c != skip) write_cut(t, s, r, ranges, c);
    for (size_t i = 0; r->memory && i < s->floats; i++) {
        bool gone = skip >= 0 && i >= s->cuts[skip] && i < s->cuts[skip + 1];
        if (t->chosen[i] && !gone) t->v[s->at[i]] -= t->seen[s->at[i]];
    }
}

/* ---- codecs beside it ---- */

static nw_codec *make_codec(const rule *r)
{
    nw_codec_options o = nw_codec_options_default(r->name);
    nw_codec *codec;
    o.ratio = strcmp(r->name, "topk") == 0 ? r->number : 0.5;
    o.threshold = r->number;
    o.values = r->values;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    return codec;
}

/* A block that is encoded in the way of one set and number of threads, step by step. */
typedef struct runner {
    const nw_codec_kernels *set;
    nw_pool *pool;
    nw_memory *memory;
    nw_scratch scratch;
    nw_partial *partial;
} runner;

static void start_runner(runner *r, const nw_block *b, const nw_codec_kernels *set, int threads, bool memory)
{
    r->set = set;
    r->pool = NULL;
    if (threads > 0) assert_int_equal(nw_pool_create(&r->pool, threads), NW_OK);
    assert_int_equal(nw_memory_create(&r->memory, &(nw_memory_options){.name = memory ? "error" : NULL}, VECTOR),
                     NW_OK);
    assert_int_equal(nw_scratch_make(&r->scratch, &b, 1, threads > 0 ? threads : 1), NW_OK);
    r->partial = calloc((size_t)b->tile_count + 1, sizeof *r->partial);
}

static void free_runner(runner *r)
{
    nw_scratch_free(&r->scratch);
    nw_memory_free(r->memory);
    nw_pool_free(r->pool);
    free(r->partial);
}

static void check_decoded(runner *r, const nw_block *b, const shape *s, const twin *t, int cut, const uint8_t *bytes)
{
    static float out[VECTOR];
    for (int add = 0; add < 2; add++) {
        nw_decoding d = {b, b->codec, {0}, cut, bytes, t->bytes[cut], &r->scratch};
        for (size_t i = 0; i < s->end; i++) out[i] = 5;
        assert_int_equal(nw_codec_decode(&d, out, NW_AT_FIRST, add, r->pool), NW_OK);
        for (size_t i = s->cuts[cut]; i < s->cuts[cut + 1]; i++) {
            float x = t->seen[s->at[i]], want = add ? 5 + x : x;
            if (memcmp(&want, &out[s->at[i]], sizeof want) != 0)
                fail_msg("element %zu is %g, not %g", i, (double)out[s->at[i]], (double)want);
            out[s->at[i]] = 5;
        }
        for (size_t i = 0; i < s->end; i++)
            if (out[i] != 5) fail_msg("element %zu beside the cut was touched", i);
    }
}

static void check_step(runner *r, const nw_block *b, const shape *s, const rule *rule_, const twin *t, const float *g,
                       int step, int skip)
{
    uint8_t *to[CUTS];
    nw_encoded encoded[CUTS];
    nw_encoding e = {.block = b,
                     .codec = b->codec,
                     .memory = r->memory,
                     .key = {(uint64_t)step, 3, 0},
                     .ratio = rule_->number,
                     .clip = 1,
                     .vector = g,
                     .partial = r->partial,
                     .scratch = &r->scratch,
                     .out = to,
                     .encoded = encoded};
    for (int c = 0; c < s->cut_count; c++) to[c] = c == skip ? NULL : (uint8_t *)r;
    nw_codec_kernels_force(r->set);
    assert_int_equal(nw_codec_begin(&e, r->pool), NW_OK);
    size_t room[CUTS];
    for (int c = 0; c < s->cut_count; c++) {
        room[c] = encoded[c].bytes;
        to[c] = c == skip ? NULL : malloc(room[c]);
    }
    assert_int_equal(nw_codec_end(&e, r->pool), NW_OK);
    for (int c = 0; c < s->cut_count; c++) {
        if (c == skip) continue;
        assert_true(encoded[c].bytes <= room[c]);
        if (encoded[c].bytes != t->bytes[c] || memcmp(to[c], t->message[c], t->bytes[c]) != 0)
            fail_msg("%s %g of %zu in %d items, values %d, set %s, step %d, cut %d: %zu bytes, not %zu, or others",
                     rule_->name, rule_->number, s->floats, s->items, (int)rule_->values, r->set->name, step, c,
                     encoded[c].bytes, t->bytes[c]);
        check_decoded(r, b, s, t, c, to[c]);
        free(to[c]);
    }
    for (size_t i = 0; r->memory && i < s->floats; i++)
        if (memcmp(&r->memory->v[s->at[i]], &t->v[s->at[i]], sizeof(float)) != 0) fail_msg("memory of element %zu", i);
    nw_codec_kernels_force(NULL);
}

static void compare(const shape *s, const rule *r, int kind, const int *threads, int thread_count, int steps, int skip)
{
    static twin t;
    static float g[VECTOR];
    runner runners[32];
    int count = 0;
    nw_codec *codec = make_codec(r);
    nw_block b;
    nw_rng rng = nw_rng_make(s->floats, NW_PURPOSE_TEST, (uint64_t)kind, 0);
    assert_int_equal(nw_block_make(&b, codec, s->extents, s->extent_count, s->cuts, s->cut_count, 0), NW_OK);
    for (int i = 0; i < nw_codec_kernel_sets(); i++)
        for (int j = 0; nw_codec_kernels_at(i)->usable() && j < thread_count; j++)
            start_runner(&runners[count++], &b, nw_codec_kernels_at(i), threads[j], r->memory);
    memset(t.v, 0, sizeof t.v);
    for (int step = 0; step < steps; step++) {
        for (size_t i = 0; i < s->end; i++) g[i] = draw(&rng, kind, i);
        step_twin(&t, s, r, g, skip);
        for (int i = 0; i < count; i++) check_step(&runners[i], &b, s, r, &t, g, step, skip);
    }
    for (int i = 0; i < count; i++) free_runner(&runners[i]);
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_shapes(void **state)
{
    static const size_t sizes[] = {1, 2, 7, 63, 64, 65, 128, 700, 2048, 2500, 5120, 5121, 12000};
    static const int threads[] = {0, 1, 2, 3, 7};
    (void)state;
    nw_rng rng = nw_rng_make(4, NW_PURPOSE_TEST, 0, 0);
    for (int trial = 0; trial < 60; trial++) {
        static const double ratios[] = {0.001, 0.01, 0.1, 0.14, 0.3, 1};
        static const char *const names[] = {"topk", "topk", "topk", "thresholdv", "adaptivethreshold"};
        static const nw_values formats[] = {NW_VALUES_F32, NW_VALUES_FP16, NW_VALUES_BF16, NW_VALUES_BITS + 4};
        size_t counts[4];
        int items = 1 + trial % 4, cuts = 1 + (int)nw_rng_below(&rng, CUTS);
        for (int i = 0; i < items; i++) counts[i] = sizes[nw_rng_below(&rng, 13)];
        shape *s = make_shape(&rng, counts, items, cuts);
        rule r = {names[trial % 5], ratios[nw_rng_below(&rng, 6)], formats[nw_rng_below(&rng, 4)], trial / 5 % 2};
        compare(s, &r, trial % KINDS, threads + trial % 5, 1, r.memory ? 3 : 1,
                trial % 3 ? -1 : (int)nw_rng_below(&rng, (uint32_t)cuts));
    }
}

/* Items that all threads settle together. */
static void test_large_items(void **state)
{
    static const int threads[] = {0, 1, 2, 3, 7};
    static const double ratios[] = {0.01, 0.001, 0.3, 0.1, 0.01, 0.01, 0.001, 0.01, 0.01};
    (void)state;
    nw_rng rng = nw_rng_make(6, NW_PURPOSE_TEST, 0, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        shape *s = make_shape(&rng, (size_t[]){10, 330000, 9000}, 3, 1 + kind % 3);
        rule r = {"topk", ratios[kind], kind % 2 ? NW_VALUES_FP16 : NW_VALUES_F32, kind == 0};
        compare(s, &r, kind, threads, kind == 0 ? 5 : 2, kind == 0 ? 2 : 1, -1);
    }
    shape *s = make_shape(&rng, (size_t[]){330000}, 1, 2);
    compare(s, &(rule){"adaptivethreshold", 0, NW_VALUES_BITS + 8, false}, 0, threads + 1, 2, 1, -1);
    compare(s, &(rule){"thresholdv", 1, NW_VALUES_BITS + 2, true}, 0, threads + 1, 2, 2, -1);
}

static void test_all_widths_of_values(void **state)
{
    (void)state;
    nw_rng rng = nw_rng_make(7, NW_PURPOSE_TEST, 0, 0);
    for (int bits = 2; bits <= 8; bits++)
        for (int kind = 0; kind < KINDS; kind++) {
            shape *s = make_shape(&rng, (size_t[]){300, 1, 800}, 3, 3);
            compare(s, &(rule){"topk", 0.2, (nw_values)(NW_VALUES_BITS + bits), true}, kind, (int[]){2}, 1, 2, -1);
        }
}

/* What was delivered and what is kept is what was given, exactly. */
static void test_nothing_is_lost(void **state)
{
    enum { N = 20000 };
    static float g[N], out[N], v[N];
    static uint8_t bytes[8 * N];
    (void)state;
    nw_rng rng = nw_rng_make(9, NW_PURPOSE_TEST, 0, 0);
    for (int f = NW_VALUES_F32; f <= NW_VALUES_BF16; f++) {
        nw_codec *codec = make_codec(&(rule){"topk", 0.05, (nw_values)f, true});
        nw_block b = plain_block(codec, N);
        nw_memory *memory;
        assert_int_equal(nw_memory_create(&memory, &(nw_memory_options){.name = "error"}, N), NW_OK);
        for (int step = 0; step < 20; step++) {
            for (int i = 0; i < N; i++) {
                g[i] = nw_rng_normal(&rng);
                v[i] = memory->v[i] + g[i];
            }
            size_t size = encode_block(&b, memory, (nw_codec_key){.step = 1}, g, bytes, NULL).bytes;
            assert_int_equal(decode_block(&b, (nw_codec_key){0}, bytes, size, out, false, NULL), NW_OK);
            int sent = 0;
            for (int i = 0; i < N; i++) {
                assert_true((double)out[i] + (double)memory->v[i] == (double)v[i]);
                sent += out[i] != 0;
            }
            assert_int_equal(sent, N / 20);
        }
        nw_memory_free(memory);
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

/* ---- guesses ---- */

/* However many a threshold lets through, the same ones stay. */
static void test_any_guess(void **state)
{
    enum { N = 30000 };
    static float v[N];
    static bool want[N];
    (void)state;
    nw_rng rng = nw_rng_make(10, NW_PURPOSE_TEST, 0, 0);
    nw_codec *codec = make_codec(&(rule){"topk", 0.01, NW_VALUES_F32, false});
    nw_block b = plain_block(codec, N);
    runner r;
    start_runner(&r, &b, nw_codec_kernels_best(), 3, false);
    for (int trial = 0; trial < 400; trial++) {
        nw_encoding e = {.block = &b, .codec = codec, .vector = v, .partial = r.partial, .scratch = &r.scratch};
        size_t k = 1 + nw_rng_below(&rng, trial % 2 ? N : N / 100), left = 0;
        for (size_t i = 0; trial % 8 == 0 && i < N; i++) v[i] = draw(&rng, trial / 8 % KINDS, i);
        uint32_t guess = trial % 5 == 0   ? NW_NOTHING
                         : trial % 5 == 1 ? 1
                                          : size_bits(v[nw_rng_below(&rng, N)]) + (uint32_t)(trial % 3);
        nw_select_set_threshold(&e, 0, guess);
        nw_select_mark(&e, 0, r.pool);
        nw_select_cut(&e, 0, k, trial % 3 ? r.pool : NULL);
        twin_topk(v, N, k, want);
        for (size_t i = 0; i < N; i++) {
            size_t tile = i / NW_TILE_FLOATS, j = i % NW_TILE_FLOATS;
            bool marked = r.scratch.bits[tile * NW_TILE_WORDS + j / 64] >> j % 64 & 1;
            bool is = marked && nw_magnitude(v[i]) >= nw_select_threshold(&e, 0);
            if (is != want[i]) fail_msg("trial %d, k %zu, guess %08x: element %zu", trial, k, guess, i);
            left += is;
        }
        assert_int_equal(left, nw_select_marked(&e, 0));
    }
    free_runner(&r);
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_not_finite(void **state)
{
    enum { N = 40000 };
    static const uint32_t bad[] = {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xffffffffu, 0x7f800001u};
    static float v[N];
    static uint8_t bytes[8 * N];
    static const char *const names[] = {"topk", "thresholdv", "adaptivethreshold"};
    (void)state;
    for (int i = 0; i < 15; i++) {
        nw_codec *codec = make_codec(&(rule){names[i % 3], 0.01, NW_VALUES_F32, false});
        nw_block b = plain_block(codec, N);
        runner r;
        uint8_t *to = bytes;
        nw_encoded encoded;
        size_t at = 1000 + 7777 * (size_t)(i % 5);
        start_runner(&r, &b, NULL, 2, false);
        for (int j = 0; j < N; j++) v[j] = (float)(j % 100) * 0.01f;
        v[at] = float_of(bad[i / 3]);
        nw_encoding e = {.block = &b,
                         .codec = codec,
                         .ratio = 0.01,
                         .vector = v,
                         .partial = r.partial,
                         .scratch = &r.scratch,
                         .out = &to,
                         .encoded = &encoded};
        assert_int_equal(nw_codec_begin(&e, r.pool), NW_E_NUMERIC);
        assert_ptr_equal(e.broken, &b.tiles[at / NW_TILE_FLOATS]);
        free_runner(&r);
        nw_block_free(&b);
        nw_codec_free(codec);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_large_items),
        cmocka_unit_test(test_all_widths_of_values),
        cmocka_unit_test(test_nothing_is_lost),
        cmocka_unit_test(test_any_guess),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
