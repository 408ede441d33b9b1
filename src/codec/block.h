/*
 * block.h - the floats that a codec encodes together: which elements of the vector they are, and how they are divided
 * into items, cuts and tiles.
 *
 * A block takes elements from the vector of all parameters, in order; elements between them are skipped, and element
 * numbers inside a block have no gaps. A block is divided in two ways that do not depend on each other:
 *   - into items: an item is what a codec sees as a whole when it selects entries or takes a norm (a layer, a model);
 *   - into cuts: each cut becomes one message, usually to the owner of that range. Positions in a cut count from 0.
 * A tile is a contiguous range of the vector inside one item and one cut, small enough for a cache. Loops run over
 * tiles.
 *
 *   vector   ....[ item 0        ]......[ item 1                     ]....
 *   block        0 1 2 3 4 5 6 7        8 9 ...
 *   cuts         |  cut 0    |     cut 1    |        cut 2           |
 *   tiles        [           ][  ]      [   ][          ][           ]
 *
 * The tables are made once and never change, so all threads may read them.
 */
#ifndef NW_CODEC_BLOCK_H
#define NW_CODEC_BLOCK_H

#include "base/status.h"

typedef struct nw_codec nw_codec;

enum { NW_TILE_FLOATS = 5120 }; /* at most: 20 KB */

typedef struct nw_tile {
    size_t first;   /* index of its first element in the vector of all parameters */
    size_t kept;    /* index of its first element in the vectors of an error memory */
    size_t element; /* index of its first element in the block */
    uint32_t count;
    uint32_t place;  /* index of its first element in its cut */
    uint32_t within; /* index of its first element in its item */
    /* For codecs that pack tile by tile: */
    uint32_t at;    /* offset of its values in the bytes of its cut, counted from the end of header and scales */
    uint32_t scale; /* number of its first scale among the scales of the cut */
    int item, cut;
} nw_tile;

typedef struct nw_block {
    const nw_codec *codec;
    nw_tile *tiles;
    int tile_count, item_count, cut_count;
    int *item_tile;     /* first tile of each item; one more entry for the end */
    int *cut_tile;      /* first tile of each cut; one more entry for the end */
    size_t *cut_floats; /* number of floats of each cut */
    uint32_t *number;   /* of each item: its number in the keys of random numbers, unique in the model */
    uint32_t *rows;     /* of each item: its rows when it is read as a matrix */
    size_t floats;
} nw_block;

/* A contiguous range of the vector that belongs to one item. Items are numbered from 0 without gaps. */
typedef struct nw_extent {
    size_t first, count;
    int item;
    uint32_t rows; /* of the item as a matrix; 0 means 1 */
} nw_extent;

/* The extents must ascend. `cuts` has the block element at which each cut begins, then the end of the block. Item i
 * gets the number first_number + i. A memory keeps element i of the vector at its own index i. */
nw_status nw_block_make(nw_block *block, const nw_codec *codec, const nw_extent *extents, int extent_count,
                        const size_t *cuts, int cut_count, uint32_t first_number);
/* Makes one cut of a block a block of its own, for a sender that encodes only this cut (an owner). Its memory has room
 * for these elements only: the first of them is kept at index `kept`. */
nw_status nw_block_make_part(nw_block *part, const nw_block *block, int cut, size_t kept);
void nw_block_free(nw_block *block);

#endif
