/*
 * test_sampled.c - DGC's sampled choice: the published table of strides and samples, and entries against a twin that
 * sorts; and the loops of isa/choose.h, every instruction set against plain ones.
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

/* ---- the table ---- */

static void test_published_plans(void **state)
{
    static const struct {
        double ratio;
        size_t n, stride, samples, rank, k;
    } table[] = {
        {0.001, 432, 1, 432, 1, 1},
        {0.001, 640, 1, 640, 1, 1},
        {0.001, 2304, 1, 2304, 3, 3},
        {0.001, 4608, 1, 4608, 5, 5},
        {0.001, 9216, 1, 9216, 10, 10},
        {0.001, 18432, 9, 2048, 3, 19},
        {0.001, 36864, 17, 2168, 3, 37},
        {0.001, 73728, 33, 2234, 3, 74},
        {0.001, 147456, 73, 2019, 3, 148},
        {0.001, 294912, 97, 3040, 4, 295},
        {0.001, 1179648, 97, 12161, 13, 1180},
        {0.001, 2359296, 97, 24322, 25, 2360},
        {0.01, 432, 1, 432, 5, 5},
        {0.01, 2304, 9, 256, 3, 24},
        {0.01, 9216, 41, 224, 3, 93},
        {0.01, 36864, 97, 380, 4, 369},
        {0.01, 2359296, 97, 24322, 244, 23593},
        {0.1, 432, 17, 25, 3, 44},
        {0.1, 640, 25, 25, 3, 64},
        {0.1, 36864, 97, 380, 38, 3687},
        {0.31623, 2304, 89, 25, 8, 729},
        {0.31623, 36864, 97, 380, 121, 11658},
        {0.31623, 640, 89, 7, 3, 203},
    };
    (void)state;
    nw_codec_options o = nw_codec_options_default("topk");
    nw_codec *codec;
    o.counting = NW_COUNT_CEIL;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        nw_sampled_plan p = nw_sampled_plan_of(&o.sampling, table[i].n, table[i].ratio);
        assert_int_equal(p.stride, table[i].stride);
        assert_int_equal(p.samples, table[i].samples);
        assert_int_equal(p.rank, table[i].rank);
        assert_int_equal(nw_codec_count(codec, table[i].n, table[i].ratio), table[i].k);
    }
    nw_codec_free(codec);
}

/* ---- what is chosen ---- */

enum { MOST = 150000 };
static const nw_codec_key key = {.step = 12, .channel = 3, .member = 2};

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

static size_t reach(const float *v, size_t n, float threshold)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++) count += v[i] != 0 && fabsf(v[i]) >= threshold;
    return count;
}

static void twin_sampled(const nw_codec *codec, const float *v, size_t n, bool *chosen)
{
    static float samples[MOST];
    const nw_sampling *s = &codec->options.sampling;
    nw_sampled_plan p = nw_sampled_plan_of(s, n, codec->options.ratio);
    nw_rng rng = nw_draws_stream(codec, &key, 0, false);
    size_t count = 0, k = nw_codec_count(codec, n, codec->options.ratio), reached;
    if (p.samples == n) {
        twin_topk(v, n, k, chosen);
        return;
    }
    size_t start = s->strided ? nw_rng_below(&rng, (uint32_t)p.stride) : 0;
    for (size_t i = start; s->strided && i < n; i += p.stride) samples[count++] = fabsf(v[i]);
    while (!s->strided && count < p.samples) samples[count++] = fabsf(v[nw_rng_below(&rng, (uint32_t)n)]);
    qsort(samples, count, sizeof *samples, falling);
    float threshold = samples[p.rank - 1];
    for (int i = 0; i < s->iterations; i++) {
        reached = reach(v, n, threshold);
        if ((double)reached > s->upper * (double)k && !s->resample)
            threshold = (float)((double)threshold * s->upper);
        else if ((double)reached < s->lower * (double)k)
            threshold = (float)((double)threshold * s->lower);
        else
            break;
    }
    reached = reach(v, n, threshold);
    twin_topk(v, n, reached < k ? reached : k, chosen);
}

static void check_sampled(const float *v, size_t n, double ratio, nw_sampling sampling, bool gaussian)
{
    static float out[MOST];
    static uint8_t bytes[8 * MOST];
    static bool chosen[MOST];
    nw_codec_options o = nw_codec_options_default("topk");
    nw_codec *codec;
    o.ratio = ratio;
    o.counting = NW_COUNT_CEIL;
    o.sampling = sampling;
    o.seed = 5;
    assert_int_equal(nw_codec_create(&codec, &o), NW_OK);
    nw_block b = plain_block(codec, n);
    size_t size = encode_block(&b, NULL, key, v, bytes, NULL).bytes, sent = 0;
    assert_int_equal(decode_block(&b, key, bytes, size, out, false, NULL), NW_OK);
    twin_sampled(codec, v, n, chosen);
    for (size_t i = 0; i < n; i++) {
        if (out[i] != (chosen[i] ? v[i] : 0)) fail_msg("element %zu of %zu at %g", i, n, ratio);
        sent += out[i] != 0;
    }
    double k = (double)nw_codec_count(codec, n, ratio);
    assert_true((double)sent <= k);
    if (gaussian && sampling.iterations > 5) assert_true((double)sent >= floor(0.8 * k));
    nw_block_free(&b);
    nw_codec_free(codec);
}

static void test_sampled_choice(void **state)
{
    static const size_t sizes[] = {1, 100, 3000, 20000, MOST};
    static float v[MOST];
    (void)state;
    nw_rng rng = nw_rng_make(3, NW_PURPOSE_TEST, 0, 0);
    for (int trial = 0; trial < 60; trial++) {
        size_t n = sizes[trial % 5];
        int kind = trial / 5 % 3; /* Gaussian; mostly zeros; all the same */
        nw_sampling s = nw_codec_options_default("topk").sampling;
        for (size_t i = 0; i < n; i++)
            v[i] = kind == 0 ? nw_rng_normal(&rng) : kind == 1 ? (float)(nw_rng_below(&rng, 500) == 0) : 0.5f;
        s.used = true;
        s.strided = trial % 3 != 0;
        s.resample = trial % 2 == 0;
        s.iterations = trial % 7 == 0 ? 1 : 10;
        check_sampled(v, n, trial % 4 < 2 ? 0.001 : 0.01, s, kind == 0 && s.resample);
    }
}

static void test_sampling_options(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        nw_codec_options o = nw_codec_options_default("topk");
        nw_codec *codec;
        o.sampling.used = i < 5;
        if (i == 0) o.sampling.ratio = 0;
        if (i == 1) o.sampling.upper = 1;
        if (i == 2) o.sampling.lower = 1;
        if (i == 3) o.sampling.lower = 0;
        if (i >= 4) o.sampling.iterations = -1;
        assert_int_equal(nw_codec_create(&codec, &o), i < 5 ? NW_E_ARGUMENT : NW_OK);
        nw_codec_free(codec);
    }
}

/* ---- loops ---- */

static uint32_t random_bits(nw_rng *rng, int trial)
{
    return trial % 3 == 0 ? nw_rng_u32(rng) : nw_rng_u32(rng) % 6 | nw_rng_u32(rng) << 31;
}

static void test_marks(void **state)
{
    enum { N = 700 };
    static const uint32_t least[] = {1, 2, 3, 0x7f800000u, 0x7fffffffu, NW_NOTHING};
    (void)state;
    nw_rng rng = nw_rng_make(2, NW_PURPOSE_TEST, 0, 0);
    for (int trial = 0; trial < 3000; trial++) {
        const nw_codec_kernels *k = nw_codec_kernels_at(trial % nw_codec_kernel_sets());
        uint32_t u[N + 1], greatest, most = 0, t = trial % 7 < 6 ? least[trial % 7] : nw_rng_u32(&rng) >> 1 | 1;
        size_t n = nw_rng_below(&rng, N), found = 0;
        uint64_t bits[N / 64 + 2];
        uint16_t at[N + NW_PLACES_MORE];
        float v[N + 1];
        if (!k->usable()) continue;
        for (size_t i = 0; i < n; i++) {
            u[i] = random_bits(&rng, trial / 3);
            if ((u[i] & 0x7fffffffu) > most) most = u[i] & 0x7fffffffu;
        }
        memcpy(v, u, sizeof v);
        memset(bits, 0xee, sizeof bits);
        uint32_t marked = k->mark(v, n, t, bits, &greatest);
        assert_int_equal(greatest, most);
        assert_true(bits[(n + 63) / 64] == 0xeeeeeeeeeeeeeeeeull); /* nothing beyond */
        assert_int_equal(k->places(bits, n, at), marked);
        for (size_t i = 0; i < n; i++) {
            bool is = (u[i] & 0x7fffffffu) >= t;
            assert_true((bits[i / 64] >> i % 64 & 1) == is);
            if (is) assert_int_equal(at[found++], i);
        }
        assert_int_equal(found, marked);
        for (size_t i = n; i < (n + 63) / 64 * 64; i++) assert_true((bits[i / 64] >> i % 64 & 1) == 0);
    }
}

static void test_histograms(void **state)
{
    enum { N = 300 };
    (void)state;
    nw_rng rng = nw_rng_make(2, NW_PURPOSE_TEST, 1, 0);
    for (int trial = 0; trial < 600; trial++) {
        const nw_codec_kernels *k = nw_codec_kernels_at(trial % nw_codec_kernel_sets());
        uint32_t u[N], counts[NW_SCRATCH_BINS] = {0}, want[NW_SCRATCH_BINS] = {0}, sum = 0;
        uint32_t least = nw_rng_below(&rng, 3), span = trial % 3 ? 3 : 0x7fffffffu - least;
        int shift = trial % 3 ? 0 : 20, by = (int)nw_rng_below(&rng, 32);
        size_t n = nw_rng_below(&rng, N);
        if (!k->usable()) continue;
        for (size_t i = 0; i < n; i++) {
            u[i] = random_bits(&rng, trial);
            uint32_t m = u[i] & 0x7fffffffu;
            if (m >= least && m - least <= span) want[(m - least) >> shift]++;
            sum += u[i] >> by;
        }
        k->tally(u, n, least, span, shift, counts);
        assert_memory_equal(counts, want, sizeof want);
        assert_int_equal(k->sum_shifted(u, n, by), sum);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_plans),  cmocka_unit_test(test_sampled_choice),
        cmocka_unit_test(test_sampling_options), cmocka_unit_test(test_marks),
        cmocka_unit_test(test_histograms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
