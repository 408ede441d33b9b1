/*
 * vec.h - vectors of the instruction set that the including file is compiled for, in GCC's vector extensions.
 *
 * Included once by each isa/<set>.c, after it has defined
 *   VL     floats in a vector (4, 8, 16); may be wider than the hardware's, the compiler then splits
 *   BF16   1 if activations are bf16, else 0
 *   MULTIPLY_F32   with BF16, where the set cannot multiply in bf16: operands are rounded to bf16 but held in f32
 * -ffp-contract=fast is set for these files, so that a * b + c is one fused operation where the set has one.
 */
#include "base/clock.h"
#include "base/rng.h"
#include "compute/kernels.h"

#include <math.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))
/* Loops that vanish: the arrays they index become registers. */
#define UNROLL_FOR(i, count)            UNROLL_FOR_STEP(i, count, 1)
#define UNROLL_FOR_STEP(i, count, step) _Pragma("GCC unroll 32") for (int i = 0; i < (count); i += (step))

typedef float vf __attribute__((vector_size(VL * 4)));
typedef float vf_any __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));
typedef uint16_t vh_any __attribute__((vector_size(VL * 2), aligned(2), may_alias));

INLINE vf v_load(const float *p) { return *(const vf_any *)p; }
INLINE void v_store(float *p, vf v) { *(vf_any *)p = v; }
INLINE vf v_splat(float x) { return x - (vf){0}; }
INLINE vf v_keep(vf v, vi mask) { return (vf)((vi)v & mask); }
/* Keeps NaN, as PyTorch's ReLU does: a comparison with NaN is false, and x86's max returns its second operand. */
INLINE vf v_max(vf v, vf low)
{
#if defined __AVX512F__ && VL == 16
    return (vf)_mm512_max_ps((__m512)low, (__m512)v);
#elif defined __AVX__ && VL == 8
    return (vf)_mm256_max_ps((__m256)low, (__m256)v);
#else
    vi below = v < low;
    return (vf)(((vi)low & below) | ((vi)v & ~below));
#endif
}

/* One step of the transpose below: of rows i and i + d, the columns that differ from the row in bit d change places. */
INLINE void v_swap(vf a[VL], const int d)
{
    vi low, high;
    UNROLL_FOR(e, VL) {
        low[e] = e & d ? VL + e - d : e;
        high[e] = e & d ? VL + e : e + d;
    }
    UNROLL_FOR(i, VL) {
        if (i & d) continue;
        vf x = a[i], y = a[i + d];
        a[i] = __builtin_shuffle(x, y, low);
        a[i + d] = __builtin_shuffle(x, y, high);
    }
}
/* A square of VL x VL floats. */
INLINE void v_transpose(vf a[VL])
{
    v_swap(a, 1);
    v_swap(a, 2);
    if (VL > 4) v_swap(a, 4 % VL);
    if (VL > 8) v_swap(a, 8 % VL);
}

INLINE vf v_load_bf16(const nw_bf16 *p) { return (vf)(__builtin_convertvector(*(const vh_any *)p, vu) << 16); }
/* bf16 in the low halves of 32-bit words; rounds to nearest even, NaN stays NaN. */
INLINE vu v_round_bf16(vf v)
{
    vu u = (vu)v, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    vu is_nan = (vu)((u & 0x7fffffffu) > 0x7f800000u);
    return (quiet & is_nan) | (rounded & ~is_nan);
}
INLINE void v_store_bf16(nw_bf16 *p, vf v)
{
#if defined __AVX512BF16__ && VL == 16
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &h, sizeof h);
#else
    *(vh_any *)p = __builtin_convertvector(v_round_bf16(v), vh);
#endif
}

/* Beside nw_dtype: f32 that holds bf16 values, for operands of sets that multiply in f32 what is stored in bf16. The
 * products are those of a bf16 multiplier, only their sums are formed in another order. */
#define ROUNDED_F32 ((nw_dtype)2)
INLINE vf v_rounded(vf v) { return (vf)(v_round_bf16(v) << 16); }

/* Element access by type; `type` is a constant wherever these are inlined in a loop. */
INLINE vf x_load(const void *base, size_t at, const nw_dtype type)
{
    return BF16 && type == NW_BF16 ? v_load_bf16((const nw_bf16 *)base + at) : v_load((const float *)base + at);
}
INLINE void x_store(void *base, size_t at, vf v, const nw_dtype type)
{
    if (BF16 && type == NW_BF16)
        v_store_bf16((nw_bf16 *)base + at, v);
    else
        v_store((float *)base + at, BF16 && type == ROUNDED_F32 ? v_rounded(v) : v);
}
INLINE float x_get(const void *base, size_t at, const nw_dtype type)
{
    return BF16 && type == NW_BF16 ? nw_bf16_to_f32(((const nw_bf16 *)base)[at]) : ((const float *)base)[at];
}
INLINE void x_put(void *base, size_t at, float x, const nw_dtype type)
{
    if (BF16 && type == NW_BF16)
        ((nw_bf16 *)base)[at] = nw_bf16_from_f32(x);
    else
        ((float *)base)[at] = BF16 && type == ROUNDED_F32 ? nw_bf16_to_f32(nw_bf16_from_f32(x)) : x;
}
INLINE void x_zero(void *base, size_t at, size_t count, nw_dtype type)
{
    memset((unsigned char *)base + at * nw_dtype_bytes(type), 0, count * nw_dtype_bytes(type));
}
