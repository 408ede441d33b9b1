/*
 * half.h - numbers of 16 bits, one at a time: bfloat16 (bf16) and IEEE binary16 (f16).
 *
 *   bf16   1 sign, 8 exponent, 7 fraction bits: the upper half of a float
 *   f16    1 sign, 5 exponent, 10 fraction bits: up to 65504, steps of 2^-24 near 0
 *
 * Loops over many are in compute/isa/vec.h (kernels) and codec/isa/halves.h (what travels); they give the same bits.
 */
#ifndef NW_BASE_HALF_H
#define NW_BASE_HALF_H

#include <stdint.h>

typedef uint16_t nw_bf16;
typedef uint16_t nw_f16;

static inline float nw_bf16_to_f32(nw_bf16 x)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)x << 16};
    return v.f;
}
/* Rounds to nearest even; NaNs stay NaNs. */
static inline nw_bf16 nw_bf16_from_f32(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u) return (nw_bf16)((v.u >> 16) | 0x40u);
    return (nw_bf16)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}

/* Exact; NaNs become quiet ones, as the processors' own instructions make them. */
static inline float nw_f16_to_f32(nw_f16 x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = x >> 10 & 31u, fraction = x & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } v = {sign | fraction << 13};
    if (exponent == 0)
        v.f = (float)fraction * (sign ? -0x1p-24f : 0x1p-24f);
    else if (exponent == 31)
        v.u |= fraction ? 0x7fc00000u : 0x7f800000u;
    else
        v.u |= (exponent + 112) << 23;
    return v.f;
}

#endif
