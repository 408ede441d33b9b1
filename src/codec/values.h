/*
 * values.h - the values of entries as bytes: f32, fp16, bf16, or q bits.
 *
 * 16 bits: rounded to nearest; a number beyond the range becomes the largest finite one. q bits, 2 to 8: the lowest bit
 * is the sign, the others are j, which stands for the magnitude lo + j (hi - lo) / (2^(q-1) - 1). lo and hi are the
 * smallest and the largest magnitude of the item's entries as bf16, rounded outwards so that all magnitudes lie between
 * them. Codes follow each other without gaps, the lowest bit first.
 */
#ifndef NW_CODEC_VALUES_H
#define NW_CODEC_VALUES_H

#include "codec/codec.h"

enum { NW_VALUES_RANGE = 4 }; /* bytes of lo and hi */

/* The range of magnitudes of q-bit values. */
typedef struct nw_value_range {
    float lo, hi;
} nw_value_range;

static inline int nw_values_bits(nw_values values)
{
    return values >= NW_VALUES_BITS ? (int)values - NW_VALUES_BITS : values == NW_VALUES_F32 ? 32 : 16;
}
static inline size_t nw_values_bytes(nw_values values, size_t count)
{
    return (count * (size_t)nw_values_bits(values) + 7) / 8;
}
nw_status nw_values_valid(nw_values values); /* NW_E_ARGUMENT */

/* The range that contains these magnitudes. Written, a range has 4 bytes. */
nw_value_range nw_value_range_around(float least, float greatest);
void nw_value_range_write(nw_value_range range, uint8_t *out);
nw_status nw_value_range_read(const uint8_t *in,
                              nw_value_range *range); /* NW_E_MESSAGE: not finite, not 0 <= lo <= hi */

/* Encodes values of an item; x[0] is entry number `first` of the cut, whose entries begin at `out`. q-bit values take
 * one byte each until nw_values_pack packs them. `seen` gets what a receiver will decode; it may be NULL. At most a
 * tile. */
void nw_values_encode(nw_values values, nw_value_range range, const float *x, size_t count, uint8_t *out, size_t first,
                      float *seen);
void nw_values_pack(nw_values values, uint8_t *out, size_t count);
/* Decodes entries `first` to `first` + `count`, after nw_values_check. */
void nw_values_decode(nw_values values, nw_value_range range, const uint8_t *in, size_t first, size_t count, float *x);
/* NW_E_MESSAGE unless all values are finite and the bits after the last one are 0. */
nw_status nw_values_check(nw_values values, const uint8_t *in, size_t count);

#endif
