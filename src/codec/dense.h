/*
 * dense.h - what the dense families of packed.h share: messages whose length follows from the count alone.
 *
 *   header   16 bytes
 *   scales   f32: one for each item with elements in the cut, or so many for each tile as the codec's tile_scales says
 *   values   tile after tile, each on whole bytes (tile_bytes); zeros to a multiple of 4
 *
 * A group of elements that share a scale never crosses a tile: it ends with its item, its cut and its run of the vector.
 */
#ifndef NW_CODEC_DENSE_H
#define NW_CODEC_DENSE_H

#include "codec/draws.h"
#include "codec/kernels.h"
#include "codec/packed.h"
#include "codec/run.h"

/* Scales below this are sent as 0, and so is what they would scale: their inverses would be infinite. The greatest scale
 * is a little less than the greatest float, so that nothing that is decoded overflows. */
#define NW_SCALE_LEAST 0x1p-119f
#define NW_SCALE_MOST  0x1.fffffp+127f

size_t nw_dense_scale_count(const nw_block *block, int cut);
size_t nw_dense_bytes(const nw_encoding *e, int cut);
/* Header and padding; fills e->encoded. Where an item has one scale: those of e->scratch too. */
void nw_dense_close(nw_encoding *e, int cut, uint8_t parameter);
/* All but the values: header, length, scales, padding. */
nw_status nw_dense_check(const nw_decoding *d, uint8_t parameter);

/* Where the scales and values of a tile are, in bytes of a cut. */
static inline size_t nw_dense_scales_at(const nw_tile *tile) { return NW_PACKED_HEADER + sizeof(float) * tile->scale; }
static inline size_t nw_dense_values_at(const nw_block *b, const nw_tile *tile)
{
    return NW_PACKED_HEADER + sizeof(float) * nw_dense_scale_count(b, tile->cut) + tile->at;
}

/* A scale as it travels. */
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

/* For partial.largest where a sum is known instead: whether there is a number that is not finite. */
enum { NW_INFINITE = 0x7f800000 };
static inline uint32_t nw_dense_largest_of_sum(double sum) { return __builtin_isfinite(sum) ? 0 : NW_INFINITE; }

/* Numbers by chance for the elements of a tile; `room` has them, and the return value is that of the first. */
typedef struct nw_drawn {
    uint16_t room[NW_TILE_FLOATS + 2 * NW_DRAWS_GROUP];
} nw_drawn;
const uint16_t *nw_dense_draw(const nw_encoding *e, const nw_tile *tile, nw_drawn *drawn);

#endif
