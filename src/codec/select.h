/*
 * select.h - exact top-k selection: the min(k, nonzeros) entries of an item with the largest magnitudes, usually in one
 * pass over its floats. Among equal magnitudes the lowest position wins.
 *
 *   aim      guesses, from at most 4,096 samples, a threshold that about 1.2 k to 4 k magnitudes reach
 *   look     marks the elements that reach it: the only pass over all floats
 *   settle   if k or more are marked: finds the k-th largest magnitude T among them; what is below T no longer counts.
 *            If fewer are marked: finds T among all floats in three passes; a fourth marks what reaches T.
 *
 * So the guess changes how long the selection takes, never what is selected. Zeros are never selected. Magnitudes are
 * handled as whole numbers: the bits of the float without the sign. T is found with histograms of 2,048 bins: the first
 * covers the range in which T must lie, the next one the bin of T, and so on until a bin is one number.
 *
 * Marks are bits in scratch->bits; partial.entries counts those that reach the item's threshold, for each tile. If at
 * most a quarter of a tile is marked, its marked floats are also copied to scratch->list while the tile is in the cache
 * (then partial.ties is 1), so that later steps read the list instead of the vector. Other tiles are read again.
 * scratch->scales has NW_ITEM_NUMBERS numbers for each item.
 *
 * Threads: as codec.h says. Several small items are settled at the same time, each without a pool.
 */
#ifndef NW_CODEC_SELECT_H
#define NW_CODEC_SELECT_H

#include "codec/kernels.h"
#include "codec/run.h"

/* In scratch->scales, as the bits of floats: the threshold of the look step; least and greatest magnitude sent. */
enum { NW_ITEM_THRESHOLD, NW_ITEM_LEAST, NW_ITEM_GREATEST, NW_ITEM_NUMBERS };
enum { NW_NOTHING = 1u << 31 }; /* a threshold that no magnitude reaches */

void nw_select_aim(nw_encoding *e, int item);
void nw_select_look(nw_encoding *e, int tile); /* marks what reaches the item's threshold; fills partial */
void nw_select_settle(nw_encoding *e, int item, nw_pool *pool);

/* Parts of these, for sampled.c and the threshold codecs. */
size_t nw_select_floats(const nw_block *block, int item);
uint32_t nw_select_threshold(const nw_encoding *e, int item);
void nw_select_set_threshold(nw_encoding *e, int item, uint32_t magnitude); /* at least 1: zeros are no entries */
size_t nw_select_marked(const nw_encoding *e, int item);
uint32_t nw_select_greatest(const nw_encoding *e, int item);             /* largest magnitude of the item */
void nw_select_mark(nw_encoding *e, int item, nw_pool *pool);            /* marks again, after the threshold changed */
void nw_select_cut(nw_encoding *e, int item, size_t k, nw_pool *pool);   /* after look: marks only the k largest */
uint32_t nw_select_kth(const uint32_t *list, size_t count, size_t rank); /* the rank-th largest magnitude, from 1 */

/* Reads single magnitudes of an item before the look step, as the memory will make them. */
typedef struct nw_sampler {
    const nw_encoding *e;
    const nw_tile *tile, *begin, *end;
    size_t first; /* the item's first element in this block; above 0 in a block that is one cut of another */
} nw_sampler;
nw_sampler nw_sampler_make(const nw_encoding *e, int item);
uint32_t nw_sampler_next(nw_sampler *s, size_t element); /* must not go back */
uint32_t nw_sampler_at(nw_sampler *s, size_t element);   /* any order */

/* A tile's part of the list: room for a quarter of its floats. */
static inline uint32_t *nw_select_list(const nw_encoding *e, int tile)
{
    return e->scratch->list + e->block->tiles[tile].element / 4;
}
/* Whether that many entries of a tile fit there. */
static inline bool nw_select_fits(const nw_tile *tile, uint32_t entries) { return entries <= tile->count / 4; }
/* Writes the marked floats of a tile that reach the threshold to x, and their positions in the tile to `at`. Returns
 * partial.entries. `x` needs room for a tile. */
uint32_t nw_select_marked_floats(const nw_encoding *e, int tile, uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE],
                                 float *x);

static inline uint64_t *nw_select_bits(const nw_encoding *e, int tile)
{
    return e->scratch->bits + (size_t)tile * NW_TILE_WORDS;
}

static inline uint32_t nw_magnitude(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u & 0x7fffffffu;
}

#endif
