/* sparse_twin.h - sparse blocks the plain way: entries by sorting, numbers one after the other, bits one by one. */
#ifndef NW_TESTS_SPARSE_TWIN_H
#define NW_TESTS_SPARSE_TWIN_H

#include "base/half.h"
#include "codec/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static inline uint32_t size_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

typedef struct twin_entry {
    float x;
    uint32_t at;
} twin_entry;

static int twin_by_size(const void *a, const void *b)
{
    const twin_entry *x = a, *y = b;
    uint32_t m = size_bits(x->x), n = size_bits(y->x);
    return m != n ? (m < n ? 1 : -1) : (x->at > y->at) - (x->at < y->at);
}

/* chosen[i]: element i is one of the k largest, zeros excepted. */
static inline void twin_topk(const float *v, size_t n, size_t k, bool *chosen)
{
    twin_entry *all = malloc((n + 1) * sizeof *all);
    for (size_t i = 0; i < n; i++) all[i] = (twin_entry){v[i], (uint32_t)i};
    qsort(all, n, sizeof *all, twin_by_size);
    memset(chosen, 0, n);
    for (size_t i = 0; i < n && i < k; i++) chosen[all[i].at] = size_bits(all[i].x) != 0;
    free(all);
}

/* ---- values ---- */

typedef struct twin_range {
    uint16_t lo, hi; /* bf16 */
} twin_range;

/* Of the magnitudes: the next bf16 that is not above the least, and not below the greatest. */
static inline twin_range twin_range_of(const float *x, size_t count)
{
    float least = INFINITY, greatest = 0;
    twin_range r = {0, 0};
    for (size_t i = 0; i < count; i++) {
        if (fabsf(x[i]) < least) least = fabsf(x[i]);
        if (fabsf(x[i]) > greatest) greatest = fabsf(x[i]);
    }
    if (count == 0) return r;
    while (r.lo < 0x7f7f && nw_bf16_to_f32((nw_bf16)(r.lo + 1)) <= least) r.lo++;
    while (r.hi < 0x7f7f && nw_bf16_to_f32(r.hi) < greatest) r.hi++;
    return r;
}

/* The code of a value in as many bits as the format has, and what it stands for. */
static inline uint32_t twin_code(nw_values values, twin_range r, float x, float *seen)
{
    uint32_t code;
    if (values == NW_VALUES_F32) {
        memcpy(&code, &x, sizeof code);
        *seen = x;
    } else if (values == NW_VALUES_FP16) {
        _Float16 h = (_Float16)(x > 65504 ? 65504 : x < -65504 ? -65504 : x);
        uint16_t u;
        memcpy(&u, &h, sizeof u);
        code = u;
        *seen = (float)h;
    } else if (values == NW_VALUES_BF16) {
        code = nw_bf16_from_f32(x);
        if ((code & 0x7fff) == 0x7f80) code--; /* the largest that is finite */
        *seen = nw_bf16_to_f32((nw_bf16)code);
    } else {
        int most = (1 << ((int)values - NW_VALUES_BITS - 1)) - 1;
        float lo = nw_bf16_to_f32(r.lo), hi = nw_bf16_to_f32(r.hi), step = (hi - lo) / (float)most;
        if (hi - lo < 0x1p-119f) step = 0;
        float inverse = step > 0 ? 1 / step : 0, j = rintf((fabsf(x) - lo) * inverse);
        int level = (int)fminf(fmaxf(j, 0), (float)most);
        code = (uint32_t)level << 1 | (signbit(x) ? 1u : 0);
        *seen = copysignf(lo + step * (float)level, x);
    }
    return code;
}

/* ---- bytes ---- */

typedef struct twin_bits {
    uint8_t *out; /* zeros */
    size_t at;    /* bits */
} twin_bits;

static inline void twin_put(twin_bits *w, uint64_t x, int bits)
{
    for (int i = 0; i < bits; i++, w->at++)
        w->out[w->at / 8] = (uint8_t)(w->out[w->at / 8] | (x >> i & 1) << w->at % 8);
}
static inline void twin_align(twin_bits *w, size_t bytes) { w->at = (w->at + 8 * bytes - 1) / (8 * bytes) * 8 * bytes; }

static inline int twin_parameter(const uint32_t *gaps, size_t count)
{
    uint64_t least = UINT64_MAX;
    int best = 0;
    for (int b = 0; b < 32; b++) {
        uint64_t bits = 0;
        for (size_t i = 0; i < count; i++) bits += (uint64_t)b + 1 + (gaps[i] >> b);
        if (bits < least) least = bits, best = b;
    }
    return best;
}

/* A block of k entries among n coordinates, which belong to items; `seen`: what receivers get. Returns its bytes. */
static inline size_t twin_message(nw_values values, size_t n, const uint32_t *places, const float *x, const int *item,
                                  size_t k, const twin_range *ranges, int items, uint8_t *out, size_t room, float *seen)
{
    int bits = values == NW_VALUES_F32 ? 32 : values < NW_VALUES_BITS ? 16 : (int)values - NW_VALUES_BITS;
    uint32_t *gaps = malloc((k + 1) * sizeof *gaps);
    int *parameters = malloc((k / 128 + 1) * sizeof *parameters);
    twin_bits w = {out, 0};
    memset(out, 0, room < 16 * k + n / 4 + 4096 ? room : 16 * k + n / 4 + 4096);
    twin_put(&w, NW_FAMILY_SPARSE, 8);
    twin_put(&w, (uint64_t)values, 24);
    twin_put(&w, n, 32);
    twin_put(&w, k, 64); /* bytes: later */
    for (int i = 0; k > 0 && values > NW_VALUES_BITS && i < items; i++) {
        twin_put(&w, ranges[i].lo, 16);
        twin_put(&w, ranges[i].hi, 16);
    }
    for (size_t i = 0; i < k; i++) {
        gaps[i] = i == 0 ? places[0] : places[i] - places[i - 1] - 1;
        twin_put(&w, twin_code(values, ranges ? ranges[item[i]] : (twin_range){0, 0}, x[i], &seen[i]), bits);
    }
    twin_align(&w, 4);
    for (size_t g = 0; g < k; g += 128) {
        parameters[g / 128] = twin_parameter(gaps + g, k - g < 128 ? k - g : 128);
        twin_put(&w, (uint64_t)parameters[g / 128], 8);
    }
    for (size_t i = 0; i < k; i++) {
        if (i % 128 == 0) twin_align(&w, 1);
        twin_put(&w, gaps[i], parameters[i / 128]);
    }
    twin_align(&w, 1);
    for (size_t i = 0; i < k; i++) {
        w.at += gaps[i] >> parameters[i / 128];
        twin_put(&w, 1, 1);
    }
    twin_align(&w, 4);
    uint32_t bytes = (uint32_t)(w.at / 8);
    memcpy(out + 12, &bytes, sizeof bytes);
    free(gaps);
    free(parameters);
    return bytes;
}

#endif
