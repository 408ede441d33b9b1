/*
 * select.h - the largest entries of an item: exactly min(k, nonzeros), ties by the lowest coordinate, in one pass.
 *
 *   aim      a threshold that about 1.2 k to 4 k magnitudes reach, guessed from at most 4,096 samples
 *   look     marks what reaches it: the only time that all floats are read
 *   settle   k candidates or more: their k-th largest magnitude T is found among them, and what is below does not count
 *            any more. Fewer: T is found in all floats, in three reads, and a fourth marks what reaches it.
 *
 * So a guess changes how long it takes, never what is chosen. Zeros are never chosen. Magnitudes are whole numbers here:
 * floats' bits without the sign. T is found by histograms of 2,048 bins of what lies between the least and the greatest
 * that it can be: one for the bin that it lies in, one for that bin, and so on until a bin is one number.
 *
 * Marks are in scratch->bits, by tile; partial.entries counts those that reach the item's threshold. Where at most a
 * quarter of a tile is marked, those floats are in its part of scratch->list too (partial.ties: they are), read while the
 * tile was in the cache: what comes later reads lists instead of lines all over the vector. Other tiles are read again
 * themselves. The numbers of an item are in scratch->scales, NW_ITEM_NUMBERS each.
 *
 * Threads: as codec.h says; several small items are settled at once, each without a pool.
 */
#ifndef NW_CODEC_SELECT_H
#define NW_CODEC_SELECT_H

#include "codec/kernels.h"
#include "codec/run.h"

/* In scratch->scales: the threshold that was looked with, as the bits of a float; least and greatest of what is sent. */
enum { NW_ITEM_THRESHOLD, NW_ITEM_LEAST, NW_ITEM_GREATEST, NW_ITEM_NUMBERS };
enum { NW_NOTHING = 1u << 31 }; /* a threshold that no magnitude reaches */

void nw_select_aim(nw_encoding *e, int item);
void nw_select_look(nw_encoding *e, int tile); /* marks what reaches the item's threshold; fills partial */
void nw_select_settle(nw_encoding *e, int item, nw_pool *pool);

/* Parts of these, for other rules. */
size_t nw_select_floats(const nw_block *block, int item);
uint32_t nw_select_threshold(const nw_encoding *e, int item);
void nw_select_set_threshold(nw_encoding *e, int item, uint32_t magnitude); /* at least 1: zeros are no entries */
size_t nw_select_marked(const nw_encoding *e, int item);
uint32_t nw_select_greatest(const nw_encoding *e, int item);             /* magnitude of all its floats */
void nw_select_mark(nw_encoding *e, int item, nw_pool *pool);            /* look again, after the threshold changed */
void nw_select_cut(nw_encoding *e, int item, size_t k, nw_pool *pool);   /* after look: leaves the k largest */
uint32_t nw_select_kth(const uint32_t *list, size_t count, size_t rank); /* rank-th largest magnitude, from 1 */

/* Magnitudes of elements of an item before it is looked at. */
typedef struct nw_sampler {
    const nw_encoding *e;
    const nw_tile *tile, *begin, *end;
    size_t first; /* of the item, where tiles of a part begin later */
} nw_sampler;
nw_sampler nw_sampler_make(const nw_encoding *e, int item);
uint32_t nw_sampler_next(nw_sampler *s, size_t element); /* none before the last one */
uint32_t nw_sampler_at(nw_sampler *s, size_t element);   /* any */

/* A tile's part of the list: room for a quarter of its floats. */
static inline uint32_t *nw_select_list(const nw_encoding *e, int tile)
{
    return e->scratch->list + e->block->tiles[tile].element / 4;
}
/* Whether so many of a tile fit there. */
static inline bool nw_select_fits(const nw_tile *tile, uint32_t entries) { return entries <= tile->count / 4; }
/* The floats of a tile that are marked and reach the threshold; `at`: where they are in it. Returns partial.entries. `x`
 * has room for a tile. */
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
