/*
 * isa/kernels.h - the loops behind codec/kernels.h, for the instruction set that the including file is built for.
 *
 * Included once by each isa/<set>.c, after it has defined
 *   VL       floats in a vector: 4, 8, 16
 *   SET      the set's name, as a word
 *   USABLE   an expression: whether this machine has the set
 * Vectors are GCC's. The rest of a range goes through scalar loops with the same operations in the same order.
 */
#include "base/cpu.h"
#include "codec/kernels.h"

#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#define INLINE       static inline __attribute__((always_inline))
#define GLUE(a, b)   a##b
#define NAMED(name)  GLUE(nw_codec_kernels_, name)
#define TEXT(name)   #name
#define QUOTED(name) TEXT(name)

typedef float vf __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));

INLINE vf v_load(const float *p) { return *(const vf_any *)p; }
INLINE void v_store(float *p, vf v) { *(vf_any *)p = v; }

INLINE uint32_t magnitude_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

INLINE vi v_larger(vi a, vi b)
{
#if defined __AVX512F__ && VL == 16
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
#elif defined __AVX2__ && VL == 8
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
    vi more = a > b;
    return (a & more) | (b & ~more);
#endif
}

/* ---- sums and differences ---- */

static void add(float *v, const float *g, float factor, size_t count)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_store(v + i, v_load(v + i) + factor * v_load(g + i));
    for (; i < count; i++) v[i] += factor * g[i];
}

static void subtract(float *v, const float *d, size_t count)
{
    size_t i = 0;
    for (; i + VL <= count; i += VL) v_store(v + i, v_load(v + i) - v_load(d + i));
    for (; i < count; i++) v[i] -= d[i];
}

/* ---- sizes ---- */

static uint32_t largest(const float *v, size_t count)
{
    vi most = {0}, next = {0}; /* two, to halve the chain of dependent operations */
    uint32_t all = 0;
    size_t i = 0;
    for (; i + 2 * VL <= count; i += 2 * VL) {
        most = v_larger(most, (vi)v_load(v + i) & 0x7fffffff);
        next = v_larger(next, (vi)v_load(v + i + VL) & 0x7fffffff);
    }
    most = v_larger(most, next);
    for (int k = 0; k < VL; k++)
        if ((uint32_t)most[k] > all) all = (uint32_t)most[k];
    for (; i < count; i++)
        if (magnitude_of(v[i]) > all) all = magnitude_of(v[i]);
    return all;
}

/* ---- the rest, by what it is for ---- */

#include "codec/isa/factors.h"
#include "codec/isa/memory.h"
#include "codec/isa/mixing.h"
#include "codec/isa/choose.h"
#include "codec/isa/dense.h"
#include "codec/isa/residues.h"
#include "codec/isa/halves.h"

/* ---- the table ---- */

static bool usable(void) { return USABLE; }

const nw_codec_kernels NAMED(SET);
const nw_codec_kernels NAMED(SET) = {
    .name = QUOTED(SET),
    .usable = usable,
    .add = add,
    .subtract = subtract,
    .largest = largest,
    .differ = differ,
    .follow = follow,
    .correct = correct,
    .momentum = momentum,
    .scale = scale,
    .blend = blend,
    .mix = mix,
    .approach = approach,
    .mix_and_approach = mix_and_approach,
    .times = times,
    .times_transposed = times_transposed,
    .product = product,
    .dot = dot,
    .mark = mark,
    .places = places,
    .tally = tally,
    .sum_shifted = sum_shifted,
    .f16 = {f16_encode, f16_decode, f16_add},
    .bf16 = {bf16_encode, bf16_decode, bf16_add},
    .draws = draws,
    .squares = squares,
    .magnitudes = magnitudes,
    .levels = levels,
    .level_values = level_values,
    .residues = residues,
    .residues_apart = residues_apart,
    .pack = pack,
    .unpack = unpack,
    .most_code = most_code,
    .trits = trits,
    .trit_values = trit_values,
    .trit_pack = trit_pack,
    .trit_unpack = trit_unpack,
    .bytes_within = bytes_within,
    .signs = signs,
    .sign_values = sign_values,
    .exponents = exponents,
    .exponent_values = exponent_values,
    .bytes = bytes,
    .byte_values = byte_values,
};
