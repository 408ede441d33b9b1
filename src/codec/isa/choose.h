/*
 * isa/choose.h - the loops of codecs that select entries by their magnitude; included by isa/kernels.h.
 *
 * A magnitude is the bits of a float without the sign, as a whole number: these are ordered as the magnitudes, with NaN
 * above all. Marks are bits: element j of a tile is bit j % 64 of word j / 64.
 */
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Bit j is set if lane j of `a` is greater than lane j of `b`. */
INLINE uint64_t lanes_above(vi a, vi b)
{
#if VL == 16 && defined __AVX512F__
    return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b);
#elif VL == 8 && defined __AVX2__
    return (uint32_t)_mm256_movemask_ps((__m256)(a > b));
#elif VL == 4 && defined __SSE2__
    return (uint32_t)_mm_movemask_ps((__m128)(a > b));
#else
    vi more = a > b;
    uint64_t bits = 0;
    for (int k = 0; k < VL; k++) bits |= (uint64_t)(more[k] & 1) << k;
    return bits;
#endif
}

INLINE vi lanes_greater(vi a, vi b)
{
#if VL == 16 && defined __AVX512F__
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif VL == 8 && defined __AVX2__
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* The page after this one: processors fetch ahead on their own, but not across its end. */
enum { AHEAD = 1024 };

static uint32_t mark(const float *v, size_t count, uint32_t least, uint64_t *bits, uint32_t *greatest)
{
    vi most = {0}, under = (vi){0} + (int32_t)(least - 1);
    uint32_t marked = 0, all = 0;
    size_t i = 0;
    for (; i + 64 <= count; i += 64) {
        uint64_t word = 0;
        for (size_t j = 0; j < 64; j += 16) __builtin_prefetch(v + i + j + AHEAD);
        for (size_t j = 0; j < 64; j += VL) {
            vi m = (vi)v_load(v + i + j) & 0x7fffffff;
            word |= lanes_above(m, under) << j;
            most = lanes_greater(m, most);
        }
        bits[i / 64] = word;
        marked += (uint32_t)__builtin_popcountll(word);
    }
    for (int k = 0; k < VL; k++)
        if ((uint32_t)most[k] > all) all = (uint32_t)most[k];
    if (i < count) bits[i / 64] = 0;
    for (; i < count; i++) {
        uint32_t m = magnitude_of(v[i]);
        bits[i / 64] |= (uint64_t)(m >= least) << i % 64;
        marked += m >= least;
        if (m > all) all = m;
    }
    *greatest = all;
    return marked;
}

/* Most words have at most three bits. Three positions are always written, even if there are fewer bits, because that
 * costs less than branches that are mispredicted. */
static uint32_t places(const uint64_t *bits, size_t count, uint16_t *at)
{
    uint32_t found = 0;
    for (size_t i = 0; i < count; i += 64) {
        uint64_t word = bits[i / 64];
        uint32_t here = (uint32_t)__builtin_popcountll(word);
        uint16_t *to = at + found;
        for (int j = 0; j < 3; j++) {
            to[j] = (uint16_t)(i + (size_t)__builtin_ctzll(word | 1ull << 63));
            word &= word - 1;
        }
        for (uint32_t j = 3; j < here; j++) {
            to[j] = (uint16_t)(i + (size_t)__builtin_ctzll(word));
            word &= word - 1;
        }
        found += here;
    }
    return found;
}

static void tally(const void *v, size_t count, uint32_t least, uint32_t span, int shift, uint32_t *counts)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t m;
        memcpy(&m, (const char *)v + 4 * i, sizeof m);
        m = (m & 0x7fffffffu) - least;
        if (m <= span) counts[m >> shift]++;
    }
}

static uint32_t sum_shifted(const uint32_t *x, size_t count, int shift)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < count; i++) sum += x[i] >> shift;
    return sum;
}
