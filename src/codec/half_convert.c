/*
 * half_convert.c - the loops of half_convert.h, eight floats at a time, in GCC's vectors.
 *
 * A block function converts eight numbers. LOOPS makes the loops of one format and instruction set around its block
 * functions; the last, partial block goes through the same block function by way of a buffer, so that a number's bits
 * do not depend on its place. Sets: "generic" for whatever the compiler is told to build for, and "f16c" (AVX2 with the
 * conversion instructions), which is chosen at run time.
 *
 * Block functions take pointers to vectors, never vectors: those have another calling convention in each set.
 *
 * f16 from a float of magnitude m (its bits without the sign), after m is clamped to 65504:
 *   m >= 2^-14   (m + 0xfff + lowest bit that stays) >> 13, exponent moved by 112: rounds to even, may carry
 *   m <  2^-14   m + 0.5 in f32 has steps of 2^-24 there, those of f16's subnormals, and rounds to them
 */
#include "codec/half_convert.h"

#include "base/cpu.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#define TARGET_F16C __attribute__((target("avx2,f16c")))
#endif

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers travel little-endian, as they lie in memory");

#define INLINE static inline __attribute__((always_inline))

enum { BLOCK = 8, BLOCK_BYTES = 2 * BLOCK };

typedef float vf __attribute__((vector_size(4 * BLOCK)));
typedef float vf_any __attribute__((vector_size(4 * BLOCK), aligned(4), may_alias));
typedef int32_t vi __attribute__((vector_size(4 * BLOCK)));
typedef uint32_t vu __attribute__((vector_size(4 * BLOCK)));
typedef float vf4 __attribute__((vector_size(16), may_alias));
typedef int32_t vi4 __attribute__((vector_size(16)));
typedef uint32_t vu4 __attribute__((vector_size(16)));
typedef uint16_t vh __attribute__((vector_size(BLOCK_BYTES)));
typedef uint16_t vh_any __attribute__((vector_size(BLOCK_BYTES), aligned(1), may_alias));

/* ---- blocks: bf16, and f16 without instructions for it ---- */

INLINE void bf16_encode_block(const vf *in, void *out)
{
    vu u = (vu)*in, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    vu is_nan = (vu)((vi)(u & 0x7fffffffu) > 0x7f800000);
    *(vh_any *)out = __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), vh);
}
INLINE void bf16_decode_block(const void *in, vf *out)
{
    *out = (vf)(__builtin_convertvector(*(const vh_any *)in, vu) << 16);
}

/* Four at a time: with eight, GCC takes vectors apart into single numbers where the set has four. The low halves of two
 * times four words are what is stored. */
INLINE void f16_encode_four(const vf4 *in, vu4 *out)
{
    const int32_t infinity = 0x7f800000, most = 0x477fe000 /* 65504 */, least_normal = 0x38800000 /* 2^-14 */;
    vu4 sign = ((vu4)*in >> 16) & 0x8000u;
    vi4 m = (vi4)*in & 0x7fffffff, special = m >= infinity, is_nan = m > infinity;
    vi4 broken = 0x7c00 | (is_nan & (0x200 | ((m >> 13) & 0x3ff)));
    vi4 over = m > most;
    m = (m & ~over) | (most & over);
    vi4 normal = ((m + 0xfff + ((m >> 13) & 1)) >> 13) - (112 << 10);
    vi4 subnormal = (vi4)((vf4)m + 0.5f) - 0x3f000000, small = m < least_normal;
    vi4 number = (subnormal & small) | (normal & ~small);
    *out = (vu4)((broken & special) | (number & ~special)) | sign;
}
INLINE void f16_encode_block(const vf *in, void *out)
{
    const vf4 *half = (const vf4 *)in;
    vu4 low, high;
    f16_encode_four(half, &low);
    f16_encode_four(half + 1, &high);
    *(vh_any *)out = __builtin_shufflevector((vh)low, (vh)high, 0, 2, 4, 6, 8, 10, 12, 14);
}
INLINE void f16_decode_four(const vu4 *in, vf4 *out)
{
    vi4 m = (vi4)*in & 0x7fff, sign = (vi4)((*in & 0x8000u) << 16);
    vi4 is_small = m<0x400, is_special = m >= 0x7c00, is_nan = m> 0x7c00;
    /* A special exponent, 31, becomes 255 by twice the shift of the others; NaNs are made quiet. */
    vi4 number = (m << 13) + (112 << 23) + (is_special & (112 << 23));
    number |= is_nan & 0x400000;
    vi4 subnormal = (vi4)(__builtin_convertvector(m, vf4) * 0x1p-24f);
    *out = (vf4)((subnormal & is_small) | (number & ~is_small) | sign);
}
INLINE void f16_decode_block(const void *in, vf *out)
{
    vh h = *(const vh_any *)in, zero = {0};
    vu4 low = (vu4)__builtin_shufflevector(h, zero, 0, 8, 1, 9, 2, 10, 3, 11);
    vu4 high = (vu4)__builtin_shufflevector(h, zero, 4, 12, 5, 13, 6, 14, 7, 15);
    f16_decode_four(&low, (vf4 *)out);
    f16_decode_four(&high, (vf4 *)out + 1);
}

#define LOOPS(set, format, encode_block, decode_block, attributes)                                   \
    attributes static void set##_##format##_encode(const float *in, size_t count, void *out)         \
    {                                                                                                \
        size_t i = 0;                                                                                \
        for (; i + BLOCK <= count; i += BLOCK) {                                                     \
            vf block = *(const vf_any *)(in + i);                                                    \
            encode_block(&block, (uint8_t *)out + 2 * i);                                            \
        }                                                                                            \
        if (i < count) {                                                                             \
            vf block = {0};                                                                          \
            uint8_t bytes[BLOCK_BYTES];                                                              \
            memcpy(&block, in + i, (count - i) * sizeof *in);                                        \
            encode_block(&block, bytes);                                                             \
            memcpy((uint8_t *)out + 2 * i, bytes, 2 * (count - i));                                  \
        }                                                                                            \
    }                                                                                                \
    attributes INLINE void set##_##format##_read(const void *in, size_t count, float *out, bool add) \
    {                                                                                                \
        vf block, before = {0};                                                                      \
        size_t i = 0;                                                                                \
        for (; i + BLOCK <= count; i += BLOCK) {                                                     \
            decode_block((const uint8_t *)in + 2 * i, &block);                                       \
            if (add) block = *(vf_any *)(out + i) + block;                                           \
            *(vf_any *)(out + i) = block;                                                            \
        }                                                                                            \
        if (i < count) {                                                                             \
            uint8_t bytes[BLOCK_BYTES] = {0};                                                        \
            memcpy(bytes, (const uint8_t *)in + 2 * i, 2 * (count - i));                             \
            if (add) memcpy(&before, out + i, (count - i) * sizeof *out);                            \
            decode_block(bytes, &block);                                                             \
            if (add) block = before + block;                                                         \
            memcpy(out + i, &block, (count - i) * sizeof *out);                                      \
        }                                                                                            \
    }                                                                                                \
    attributes static void set##_##format##_decode(const void *in, size_t count, float *out)         \
    {                                                                                                \
        set##_##format##_read(in, count, out, false);                                                \
    }                                                                                                \
    attributes static void set##_##format##_add(const void *in, size_t count, float *sum)            \
    {                                                                                                \
        set##_##format##_read(in, count, sum, true);                                                 \
    }

#define TABLE(set, format)                                                     \
    {                                                                          \
        set##_##format##_encode, set##_##format##_decode, set##_##format##_add \
    }

LOOPS(generic, f16, f16_encode_block, f16_decode_block, )
LOOPS(generic, bf16, bf16_encode_block, bf16_decode_block, )

/* ---- AVX2 and F16C ---- */

#ifdef __x86_64__
/* min and max return their second operand if one is NaN; so NaNs pass. */
TARGET_F16C INLINE void f16c_encode_block(const vf *in, void *out)
{
    const __m256 most = _mm256_set1_ps(65504.0f), sign = _mm256_set1_ps(-0.0f);
    const __m256 infinity = _mm256_set1_ps(__builtin_inff());
    __m256 x = (__m256)*in;
    __m256 clamped = _mm256_max_ps(_mm256_xor_ps(most, sign), _mm256_min_ps(most, x));
    __m256 is_infinite = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), infinity, _CMP_EQ_OQ);
    __m128i h = _mm256_cvtps_ph(_mm256_blendv_ps(clamped, x, is_infinite), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(out, h);
}
TARGET_F16C INLINE void f16c_decode_block(const void *in, vf *out) { *out = (vf)_mm256_cvtph_ps(_mm_loadu_si128(in)); }

LOOPS(f16c, f16, f16c_encode_block, f16c_decode_block, TARGET_F16C)
LOOPS(f16c, bf16, bf16_encode_block, bf16_decode_block, TARGET_F16C)
#endif

/* ---- the sets ---- */

static bool always(void) { return true; }

static const nw_half_set sets[] = {
#ifdef __x86_64__
    {"f16c", nw_cpu_has_f16c, TABLE(f16c, f16), TABLE(f16c, bf16)},
#endif
    {"generic", always, TABLE(generic, f16), TABLE(generic, bf16)},
};

int nw_half_set_count(void) { return sizeof sets / sizeof sets[0]; }
const nw_half_set *nw_half_set_at(int index) { return &sets[index]; }

const nw_half_set *nw_half_set_best(void)
{
    const nw_half_set *set = sets;
    while (!set->usable()) set++; /* the last one always is */
    return set;
}
