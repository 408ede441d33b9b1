/* values.c - see values.h. */
#include "codec/values.h"

#include "base/half.h"
#include "codec/kernels.h"
#include "codec/packed.h"

#include <math.h>
#include <string.h>

enum { F16_INFINITY = 0x7c00, BF16_INFINITY = 0x7f80, BF16_MOST = 0x7f7f };

nw_status nw_values_valid(nw_values values)
{
    bool bits = values >= NW_VALUES_BITS + 2 && values <= NW_VALUES_BITS + 8;
    NW_FAIL_IF(values != NW_VALUES_F32 && values != NW_VALUES_FP16 && values != NW_VALUES_BF16 && !bits, NW_E_ARGUMENT,
               "values of entries cannot be sent in format %d; give f32, fp16, bf16 or 2 to 8 bits", (int)values);
    return NW_OK;
}

/* ---- q bits ---- */

nw_value_range nw_value_range_around(float least, float greatest)
{
    uint32_t lo, hi;
    memcpy(&lo, &least, sizeof lo);
    memcpy(&hi, &greatest, sizeof hi);
    lo >>= 16;
    hi = (hi + 0xffff) >> 16;
    return (nw_value_range){nw_bf16_to_f32((nw_bf16)(lo < BF16_MOST ? lo : BF16_MOST)),
                            nw_bf16_to_f32((nw_bf16)(hi < BF16_MOST ? hi : BF16_MOST))};
}

void nw_value_range_write(nw_value_range range, uint8_t *out)
{
    nw_bf16 both[2] = {nw_bf16_from_f32(range.lo), nw_bf16_from_f32(range.hi)}; /* exact */
    memcpy(out, both, sizeof both);
}

nw_status nw_value_range_read(const uint8_t *in, nw_value_range *range)
{
    nw_bf16 both[2];
    memcpy(both, in, sizeof both);
    NW_FAIL_IF(both[1] > BF16_MOST || both[0] > both[1], NW_E_MESSAGE,
               "the values of a block have the invalid range %04x to %04x (bf16)", both[0], both[1]);
    *range = (nw_value_range){nw_bf16_to_f32(both[0]), nw_bf16_to_f32(both[1])};
    return NW_OK;
}

/* The distance of two neighbouring values; 0 where it would be too small to divide by. */
static float step_of(nw_values values, nw_value_range r)
{
    float span = r.hi - r.lo;
    return span < 0x1p-119f ? 0 : span / (float)((1 << (nw_values_bits(values) - 1)) - 1);
}

static inline float value_of(uint32_t code, float lo, float step)
{
    float magnitude = lo + step * (float)(code >> 1);
    return code & 1 ? -magnitude : magnitude;
}

static void encode_bits(nw_values values, nw_value_range r, const float *x, size_t count, uint8_t *out, float *seen)
{
    float step = step_of(values, r), inverse = step > 0 ? 1 / step : 0;
    float most = (float)((1 << (nw_values_bits(values) - 1)) - 1);
    for (size_t i = 0; i < count; i++) {
        float j = rintf((fabsf(x[i]) - r.lo) * inverse);
        uint32_t level = (uint32_t)(j < 0 ? 0 : j > most ? most : j);
        uint32_t code = level << 1 | (signbit(x[i]) ? 1 : 0);
        out[i] = (uint8_t)code;
        if (seen) seen[i] = value_of(code, r.lo, step);
    }
}

void nw_values_pack(nw_values values, uint8_t *out, size_t count)
{
    const int bits = nw_values_bits(values);
    uint32_t held = 0;
    size_t at = 0;
    int fill = 0;
    if (values < NW_VALUES_BITS) return;
    for (size_t i = 0; i < count; i++) {
        held |= (uint32_t)out[i] << fill;
        for (fill += bits; fill >= 8; fill -= 8, held >>= 8) out[at++] = (uint8_t)held; /* never beyond i */
    }
    if (fill > 0) out[at] = (uint8_t)held;
}

static void decode_bits(nw_values values, nw_value_range r, const uint8_t *in, size_t first, size_t count, float *x)
{
    const size_t bits = (size_t)nw_values_bits(values);
    const float step = step_of(values, r);
    for (size_t i = 0, at = first * bits; i < count; i++, at += bits) {
        uint32_t code = in[at / 8];
        if (at % 8 + bits > 8) code |= (uint32_t)in[at / 8 + 1] << 8;
        x[i] = value_of(code >> at % 8 & ((1u << bits) - 1), r.lo, step);
    }
}

/* ---- 16 bits ---- */

static const nw_half_loops *half_loops(nw_values values)
{
    return values == NW_VALUES_FP16 ? &nw_codec_kernels_best()->f16 : &nw_codec_kernels_best()->bf16;
}

/* bf16 rounds numbers close to 2^128 up to infinity; here they become the largest finite number instead. */
static void encode_half(nw_values values, const float *x, size_t count, uint8_t *out, float *seen)
{
    half_loops(values)->encode(x, count, out);
    for (size_t i = 0; values == NW_VALUES_BF16 && i < count; i++) {
        uint16_t h;
        memcpy(&h, out + 2 * i, sizeof h);
        if ((h & 0x7fff) != BF16_INFINITY) continue;
        h = (uint16_t)((h & 0x8000) | BF16_MOST);
        memcpy(out + 2 * i, &h, sizeof h);
    }
    if (seen) half_loops(values)->decode(out, count, seen);
}

/* ---- all formats ---- */

void nw_values_encode(nw_values values, nw_value_range range, const float *x, size_t count, uint8_t *out, size_t first,
                      float *seen)
{
    if (values >= NW_VALUES_BITS) {
        encode_bits(values, range, x, count, out + first, seen);
    } else if (values != NW_VALUES_F32) {
        encode_half(values, x, count, out + 2 * first, seen);
    } else {
        memcpy(out + 4 * first, x, 4 * count);
        if (seen) memcpy(seen, x, 4 * count);
    }
}

void nw_values_decode(nw_values values, nw_value_range range, const uint8_t *in, size_t first, size_t count, float *x)
{
    if (values >= NW_VALUES_BITS)
        decode_bits(values, range, in, first, count, x);
    else if (values != NW_VALUES_F32)
        half_loops(values)->decode(in + 2 * first, count, x);
    else
        memcpy(x, in + 4 * first, 4 * count);
}

/* It has no branch inside the loops, so that they can be vectorised. */
static bool all_finite(nw_values values, const uint8_t *in, size_t count)
{
    uint32_t u, infinity = values == NW_VALUES_FP16 ? F16_INFINITY : BF16_INFINITY, broken = 0;
    uint16_t h;
    for (size_t i = 0; values == NW_VALUES_F32 && i < count; i++) {
        memcpy(&u, in + 4 * i, sizeof u);
        broken |= (u & 0x7f800000u) == 0x7f800000u;
    }
    for (size_t i = 0; values != NW_VALUES_F32 && i < count; i++) {
        memcpy(&h, in + 2 * i, sizeof h);
        broken |= (h & infinity) == infinity;
    }
    return !broken;
}

nw_status nw_values_check(nw_values values, const uint8_t *in, size_t count)
{
    size_t bits = count * (size_t)nw_values_bits(values);
    bool padded = bits % 8 != 0 && in[bits / 8] >> bits % 8 != 0;
    NW_FAIL_IF(padded, NW_E_MESSAGE, "the padding after the values of a block is not 0");
    NW_FAIL_IF(values < NW_VALUES_BITS && !all_finite(values, in, count), NW_E_MESSAGE,
               "a value of a block is not finite");
    return NW_OK;
}
