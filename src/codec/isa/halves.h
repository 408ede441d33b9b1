/*
 * isa/halves.h - floats to fp16 and bf16 and back (kernels.h says how they are rounded), part of isa/kernels.h.
 *
 * A block function converts a vector of HALVES numbers. LOOPS makes a format's loops from its block functions. The
 * last, partial block is copied to a buffer and goes through the same function, so that the bits of a number do not
 * depend on its position.
 *
 * Where the set has no instruction, f16 is computed from m, the bits of the float without the sign, clamped to 65504:
 *   m >= 2^-14   (m + 0xfff + lowest bit that stays) >> 13, exponent moved by 112: rounds to even, may carry
 *   m <  2^-14   m + 0.5 in f32 has steps of 2^-24 there, those of f16's subnormals, and rounds to them
 */

#if VL == 4
enum { HALVES = 8 }; /* as many as fill a vector of 16-bit numbers */
#else
enum { HALVES = VL };
#endif
typedef float hf __attribute__((vector_size(4 * HALVES)));
typedef float hf_any __attribute__((vector_size(4 * HALVES), aligned(4), may_alias));
typedef int32_t hi __attribute__((vector_size(4 * HALVES)));
typedef uint32_t hu __attribute__((vector_size(4 * HALVES)));
typedef uint16_t hh __attribute__((vector_size(2 * HALVES)));
typedef uint16_t hh_any __attribute__((vector_size(2 * HALVES), aligned(1), may_alias));

INLINE void bf16_encode_block(const hf *in, void *out)
{
    hu u = (hu)*in, rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    hu is_nan = (hu)((hi)(u & 0x7fffffffu) > 0x7f800000);
    *(hh_any *)out = __builtin_convertvector((quiet & is_nan) | (rounded & ~is_nan), hh);
}
INLINE void bf16_decode_block(const void *in, hf *out)
{
    *out = (hf)(__builtin_convertvector(*(const hh_any *)in, hu) << 16);
}

/* min and max return their second operand if one of the two is NaN; so NaNs are kept. */
#if defined __AVX512F__ && VL == 16
INLINE void f16_encode_block(const hf *in, void *out)
{
    const __m512 most = _mm512_set1_ps(65504.0f), x = (__m512)*in;
    __m512 clamped = _mm512_max_ps(-most, _mm512_min_ps(most, x));
    __mmask16 is_infinite = _mm512_cmpeq_epi32_mask((__m512i)((hi)x & 0x7fffffff), _mm512_set1_epi32(0x7f800000));
    __m256i h = _mm512_cvtps_ph(_mm512_mask_mov_ps(clamped, is_infinite, x), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(out, h);
}
INLINE void f16_decode_block(const void *in, hf *out) { *out = (hf)_mm512_cvtph_ps(_mm256_loadu_si256(in)); }
#elif defined __F16C__ && VL == 8
INLINE void f16_encode_block(const hf *in, void *out)
{
    const __m256 most = _mm256_set1_ps(65504.0f), sign = _mm256_set1_ps(-0.0f), x = (__m256)*in;
    __m256 clamped = _mm256_max_ps(_mm256_xor_ps(most, sign), _mm256_min_ps(most, x));
    __m256 is_infinite = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(__builtin_inff()), _CMP_EQ_OQ);
    __m128i h = _mm256_cvtps_ph(_mm256_blendv_ps(clamped, x, is_infinite), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(out, h);
}
INLINE void f16_decode_block(const void *in, hf *out) { *out = (hf)_mm256_cvtph_ps(_mm_loadu_si128(in)); }
#else
/* Four at a time, because GCC splits vectors of eight into single numbers where the set has vectors of four. The block
 * function stores the low halves of two results. */
INLINE vu f16_encode_four(vf x)
{
    const int32_t infinity = 0x7f800000, most = 0x477fe000 /* 65504 */, least_normal = 0x38800000 /* 2^-14 */;
    vu sign = ((vu)x >> 16) & 0x8000u;
    vi m = (vi)x & 0x7fffffff, special = m >= infinity, is_nan = m > infinity;
    vi broken = 0x7c00 | (is_nan & (0x200 | ((m >> 13) & 0x3ff)));
    vi over = m > most;
    m = (m & ~over) | (most & over);
    vi normal = ((m + 0xfff + ((m >> 13) & 1)) >> 13) - (112 << 10);
    vi subnormal = (vi)((vf)m + 0.5f) - 0x3f000000, small = m < least_normal;
    vi number = (subnormal & small) | (normal & ~small);
    return (vu)((broken & special) | (number & ~special)) | sign;
}
INLINE void f16_encode_block(const hf *in, void *out)
{
    const vf *half = (const vf *)in;
    vu low = f16_encode_four(half[0]), high = f16_encode_four(half[1]);
    *(hh_any *)out = __builtin_shufflevector((hh)low, (hh)high, 0, 2, 4, 6, 8, 10, 12, 14);
}
INLINE vf f16_decode_four(vu h)
{
    vi m = (vi)h & 0x7fff, sign = (vi)((h & 0x8000u) << 16);
    vi is_small = m<0x400, is_special = m >= 0x7c00, is_nan = m> 0x7c00;
    /* The exponent 31 (infinity, NaN) becomes 255 by adding twice the usual shift; NaNs are made quiet. */
    vi number = (m << 13) + (112 << 23) + (is_special & (112 << 23));
    number |= is_nan & 0x400000;
    vi subnormal = (vi)(__builtin_convertvector(m, vf) * 0x1p-24f);
    return (vf)((subnormal & is_small) | (number & ~is_small) | sign);
}
INLINE void f16_decode_block(const void *in, hf *out)
{
    hh h = *(const hh_any *)in, zero = {0};
    ((vf *)out)[0] = f16_decode_four((vu)__builtin_shufflevector(h, zero, 0, 8, 1, 9, 2, 10, 3, 11));
    ((vf *)out)[1] = f16_decode_four((vu)__builtin_shufflevector(h, zero, 4, 12, 5, 13, 6, 14, 7, 15));
}
#endif

#define LOOPS(format)                                                                                               \
    static void format##_encode(const float *in, size_t count, void *out)                                           \
    {                                                                                                               \
        size_t i = 0;                                                                                               \
        for (; i + HALVES <= count; i += HALVES) {                                                                  \
            hf block = *(const hf_any *)(in + i);                                                                   \
            format##_encode_block(&block, (uint8_t *)out + 2 * i);                                                  \
        }                                                                                                           \
        if (i < count) {                                                                                            \
            hf block = {0};                                                                                         \
            uint16_t rest[HALVES];                                                                                  \
            memcpy(&block, in + i, (count - i) * sizeof *in);                                                       \
            format##_encode_block(&block, rest);                                                                    \
            memcpy((uint8_t *)out + 2 * i, rest, 2 * (count - i));                                                  \
        }                                                                                                           \
    }                                                                                                               \
    INLINE void format##_read(const void *in, size_t count, float *out, bool add)                                   \
    {                                                                                                               \
        hf block, before = {0};                                                                                     \
        size_t i = 0;                                                                                               \
        for (; i + HALVES <= count; i += HALVES) {                                                                  \
            format##_decode_block((const uint8_t *)in + 2 * i, &block);                                             \
            if (add) block = *(hf_any *)(out + i) + block;                                                          \
            *(hf_any *)(out + i) = block;                                                                           \
        }                                                                                                           \
        if (i < count) {                                                                                            \
            uint16_t rest[HALVES] = {0};                                                                            \
            memcpy(rest, (const uint8_t *)in + 2 * i, 2 * (count - i));                                             \
            if (add) memcpy(&before, out + i, (count - i) * sizeof *out);                                           \
            format##_decode_block(rest, &block);                                                                    \
            if (add) block = before + block;                                                                        \
            memcpy(out + i, &block, (count - i) * sizeof *out);                                                     \
        }                                                                                                           \
    }                                                                                                               \
    static void format##_decode(const void *in, size_t count, float *out) { format##_read(in, count, out, false); } \
    static void format##_add(const void *in, size_t count, float *sum) { format##_read(in, count, sum, true); }

LOOPS(f16)
LOOPS(bf16)
