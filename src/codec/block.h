/*
 * block.h - the floats that a codec encodes together: which elements of a vector they are, what belongs together, and
 * how they are cut between those who get them.
 *
 * The elements of a block are counted in the order of the vector, with nothing for what lies between them. They belong
 * to items, which follow each other: an item is what a codec selects from, or takes the norm of, as a whole (a layer, a
 * whole model). And they are cut into parts, which follow each other too: each goes into a message of its own, and its
 * elements count from 0 there. A tile is a run of the vector that lies in one item, in one cut, and in a cache.
 *
 *   vector   ....[ item 0        ]......[ item 1                     ]....
 *   block        0 1 2 3 4 5 6 7        8 9 ...
 *   cuts         |  cut 0    |     cut 1    |        cut 2           |
 *   tiles        [           ][  ]      [   ][          ][           ]
 *
 * Tables are made once and never change. Threads: they may be read by all.
 */
#ifndef NW_CODEC_BLOCK_H
#define NW_CODEC_BLOCK_H

#include "base/status.h"

typedef struct nw_codec nw_codec;

enum { NW_TILE_FLOATS = 5120 }; /* at most: 20 KB */

typedef struct nw_tile {
    size_t first;   /* in the vector */
    size_t kept;    /* in the vectors of a memory */
    size_t element; /* of the block, that it begins with */
    uint32_t count;
    uint32_t place;  /* of its first element, in its cut */
    uint32_t within; /* of its first element, in its item */
    uint32_t at;    /* of its values in the bytes of its cut, behind header and scales, where codecs pack by tile ... */
    uint32_t scale; /* ... and its first scale among those of the cut */
    int item, cut;
} nw_tile;

typedef struct nw_block {
    const nw_codec *codec;
    nw_tile *tiles;
    int tile_count, item_count, cut_count;
    int *item_tile;     /* by item, and one more: its first tile */
    int *cut_tile;      /* by cut, and one more */
    size_t *cut_floats; /* by cut: how many */
    uint32_t *number;   /* by item: what it is called in keys ... */
    uint32_t *rows;     /* ... and of how many rows, as a matrix */
    size_t floats;
} nw_block;

/* A run of the vector, in one item. Items count from 0 without gaps. */
typedef struct nw_extent {
    size_t first, count;
    int item;
    uint32_t rows; /* of the item, if it is a matrix; 0: 1 */
} nw_extent;

/* Extents ascend. cuts: by cut, the element of the block at which it begins, and the end. Item i is called first_number
 * + i. Memories keep element i of the vector at i. */
nw_status nw_block_make(nw_block *block, const nw_codec *codec, const nw_extent *extents, int extent_count,
                        const size_t *cuts, int cut_count, uint32_t first_number);
/* One cut of a block as a block of its own, of one cut, for whoever encodes that one alone. Its memory has no room for
 * others: element 0 is kept at `kept`. */
nw_status nw_block_make_part(nw_block *part, const nw_block *block, int cut, size_t kept);
void nw_block_free(nw_block *block);

#endif
