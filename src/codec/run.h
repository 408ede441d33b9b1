/*
 * run.h - a block through its codec and its memory, on all threads of a pool.
 *
 * Encoding has two halves, since only after the first is it known how long messages are:
 *
 *   begin   every item: aim; every tile: the memory's begin, look; every item: settle. encoded[cut].bytes is what a message needs
 *   end     every tile whose cut goes somewhere: emit, the memory's sent; every such cut: close
 *
 * Codecs that do not look have the memory's begin in the second half, beside emit, so that tiles are visited once.
 *
 * The bytes are the same for any number of threads. A pool of NULL is the calling thread alone.
 */
#ifndef NW_CODEC_RUN_H
#define NW_CODEC_RUN_H

#include "base/pool.h"
#include "codec/codec.h"
#include "codec/memory.h"

/* A tile's floats as they are encoded. */
static inline const float *nw_encoding_floats(const nw_encoding *e, const nw_tile *tile)
{
    return e->memory ? e->memory->v + tile->kept : e->vector + tile->first;
}

/* NW_E_NUMERIC: e->broken is a tile with numbers that are not finite, which the codec cannot send. */
nw_status nw_codec_begin(nw_encoding *e, nw_pool *pool);
nw_status nw_codec_end(nw_encoding *e, nw_pool *pool);

/* Of codecs that add floats (nw_rounds): what this member gives in a round, item by item; and the mean of all, after
 * the last round to `target`, of which the memory hears. */
nw_status nw_codec_give(nw_encoding *e, int round, float *out, nw_pool *pool); /* NW_E_NUMERIC, as nw_codec_begin */
void nw_codec_turn(nw_encoding *e, int round, const float *mean, float *target, nw_pool *pool);
size_t nw_codec_round_floats(const nw_block *block, int round); /* of all items */

/* Where a tile's floats are put: element 0 of what lies there. */
typedef enum nw_where {
    NW_AT_FIRST, /* a vector of all elements: tile.first */
    NW_AT_PLACE, /* the floats of the cut alone: tile.place */
    NW_AT_KEPT   /* a memory: tile.kept */
} nw_where;

/* All tiles of a cut; `out` is where element 0 is. NW_E_MESSAGE, and nothing is written, where bytes make no sense. */
nw_status nw_codec_decode(const nw_decoding *d, float *out, nw_where where, bool add, nw_pool *pool);

#endif
