/*
 * dense.h - what the dense families of packed.h share: codecs that send something for every element, so that the length
 * of a message follows from the number of elements.
 *
 *   header   16 bytes
 *   scales   f32: one for each item with elements in the cut, or for each tile as many as the codec's tile_scales says
 *   values   tile after tile, each on whole bytes (tile_bytes); zeros to a multiple of 4
 *
 * A group of elements that share a scale never crosses the border of a tile.
 */
#ifndef NW_CODEC_DENSE_H
#define NW_CODEC_DENSE_H

#include "codec/draws.h"
#include "codec/kernels.h"
#include "codec/packed.h"
#include "codec/run.h"

/* A scale below the least is sent as 0, and its elements are decoded as 0, because its inverse would be infinite. The
 * greatest scale is slightly less than the greatest float, so that decoding never overflows. */
#define NW_SCALE_LEAST 0x1p-119f
#define NW_SCALE_MOST  0x1.fffffp+127f

size_t nw_dense_scale_count(const nw_block *block, int cut);
size_t nw_dense_bytes(const nw_encoding *e, int cut);
/* Writes header and padding, and the scales too if they belong to items (from e->scratch). Fills e->encoded. */
void nw_dense_close(nw_encoding *e, int cut, uint8_t parameter);
/* Checks header, length, scales and padding; it does not check the values. */
nw_status nw_dense_check(const nw_decoding *d, uint8_t parameter);

/* Byte offsets of a tile's scales and values in its cut. */
static inline size_t nw_dense_scales_at(const nw_tile *tile) { return NW_PACKED_HEADER + sizeof(float) * tile->scale; }
static inline size_t nw_dense_values_at(const nw_block *b, const nw_tile *tile)
{
    return NW_PACKED_HEADER + sizeof(float) * nw_dense_scale_count(b, tile->cut) + tile->at;
}

/* The scale that is sent: limited to the range above. */
static inline float nw_dense_scale(double scale)
{
    return scale < (double)NW_SCALE_LEAST ? 0 : scale > (double)NW_SCALE_MOST ? NW_SCALE_MOST : (float)scale;
}
static inline float nw_float_of(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

/* For partial.largest where only a sum is known: it then says just whether all numbers are finite. */
enum { NW_INFINITE = 0x7f800000 };
static inline uint32_t nw_dense_largest_of_sum(double sum) { return __builtin_isfinite(sum) ? 0 : NW_INFINITE; }

/* The random numbers of a tile's elements (draws.h). Returns the address of the first one inside `drawn`. */
typedef struct nw_drawn {
    uint16_t room[NW_TILE_FLOATS + 2 * NW_DRAWS_GROUP];
} nw_drawn;
const uint16_t *nw_dense_draw(const nw_encoding *e, const nw_tile *tile, nw_drawn *drawn);

#endif
