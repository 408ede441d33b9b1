/*
 * packed.h - the format of a block's bytes for all codecs but none, fp16 and bf16: a header of 16 bytes, then what the
 * family defines.
 *
 *   at   bytes   header
 *   0    1       family (nw_family)
 *   1    1       sparse and chosen: format of the values (nw_values); else 0
 *   2    1       parameter: levels: bits of a code; sign and bytes: log2 of the elements that share a scale; else 0
 *   3    1       0
 *   4    4       coordinates: the number of floats of this cut
 *   8    4       entries: the number of entries sent; dense families: equal to coordinates
 *   12   4       bytes, including this header: a multiple of 4
 *
 * All numbers are little-endian. After the header: scales (f32, of all items with elements in the cut, in order);
 * values, padded to 4 bytes; the positions of entries; zeros up to a multiple of 4. Dense families are packed tile by
 * tile, and each tile begins at a whole byte. docs/wire.md has every family with test vectors.
 */
#ifndef NW_CODEC_PACKED_H
#define NW_CODEC_PACKED_H

#include "codec/codec.h"

enum { NW_PACKED_HEADER = 16 };

typedef struct nw_packed {
    uint8_t family, values, parameter;
    uint32_t coordinates, entries, bytes;
} nw_packed;

void nw_packed_write(uint8_t *out, nw_packed header);
nw_packed nw_packed_read(const uint8_t *in); /* of 16 bytes */

/* For `check`: NW_E_MESSAGE unless the header has the family, values, parameter and coordinates that this codec
 * expects, and the number of bytes that were received. Fills `header`. */
nw_status nw_packed_check(const nw_decoding *d, uint8_t values, uint8_t parameter, nw_packed *header);
/* NW_E_MESSAGE unless the padding is zero. */
nw_status nw_packed_check_zeros(const uint8_t *at, size_t count);
/* NW_E_MESSAGE unless the scales are finite and not negative. */
nw_status nw_packed_check_scales(const uint8_t *at, size_t count);

/* The items that have elements in a cut: the first, and how many. */
static inline int nw_cut_first_item(const nw_block *b, int cut) { return b->tiles[b->cut_tile[cut]].item; }
static inline int nw_cut_items(const nw_block *b, int cut)
{
    int first = b->cut_tile[cut], end = b->cut_tile[cut + 1];
    return end > first ? b->tiles[end - 1].item + 1 - b->tiles[first].item : 0;
}

static inline size_t nw_pad4(size_t bytes) { return (bytes + 3) & ~(size_t)3; }
static inline void nw_put_u32(uint8_t *out, uint32_t x) { __builtin_memcpy(out, &x, sizeof x); }
static inline void nw_put_f32(uint8_t *out, float x) { __builtin_memcpy(out, &x, sizeof x); }
static inline uint32_t nw_get_u32(const uint8_t *in)
{
    uint32_t x;
    __builtin_memcpy(&x, in, sizeof x);
    return x;
}
static inline float nw_get_f32(const uint8_t *in)
{
    float x;
    __builtin_memcpy(&x, in, sizeof x);
    return x;
}

#endif
