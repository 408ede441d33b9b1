/*
 * run.h - runs the steps of a codec and its memory over a block, on all threads of a pool.
 *
 * Encoding has two halves. Between them the caller allocates the messages, whose sizes are known after the first half:
 *
 *   begin   for every item: aim; for every tile: the memory's begin, then look; for every item: settle.
 *           Then encoded[cut].bytes is the size that the message needs at most.
 *   end     for every tile whose cut is sent: emit, then the memory's sent; for every such cut: close
 *
 * For codecs without a look step, the memory's begin runs in the second half just before emit, so that each tile is
 * visited once.
 *
 * The bytes are the same for any number of threads. If the pool is NULL, the calling thread does everything.
 */
#ifndef NW_CODEC_RUN_H
#define NW_CODEC_RUN_H

#include "base/pool.h"
#include "codec/codec.h"
#include "codec/memory.h"

/* The floats of a tile that are encoded: those of the memory if there is one, else those of the gradient. */
static inline const float *nw_encoding_floats(const nw_encoding *e, const nw_tile *tile)
{
    return e->memory ? e->memory->v + tile->kept : e->vector + tile->first;
}

/* NW_E_NUMERIC: the tile e->broken has a NaN or an infinity, which the codec cannot send. */
nw_status nw_codec_begin(nw_encoding *e, nw_pool *pool);
nw_status nw_codec_end(nw_encoding *e, nw_pool *pool);

/* For codecs with rounds (nw_rounds). Give writes this member's contributions of a round, item after item; NW_E_NUMERIC
 * as nw_codec_begin. Turn reads the mean of all contributions; after the last round it writes the decoded floats to
 * `target` and tells the memory. */
nw_status nw_codec_contribute(nw_encoding *e, int round, float *out, nw_pool *pool);
void nw_codec_use_mean(nw_encoding *e, int round, const float *mean, float *target, nw_pool *pool);
size_t nw_codec_round_floats(const nw_block *block, int round); /* of all items */

/* How the destination of decoded floats is indexed. */
typedef enum nw_where {
    NW_AT_FIRST, /* by tile.first: a vector of all parameters */
    NW_AT_PLACE, /* by tile.place: a vector of the cut's floats only */
    NW_AT_KEPT   /* by tile.kept: a vector of a memory */
} nw_where;

/* Checks all bytes of a cut, on all threads. NW_E_MESSAGE: they are invalid. */
nw_status nw_codec_check(const nw_decoding *d, nw_pool *pool);
/* Decodes all tiles of a cut; `out` is element 0 of the destination. NW_E_MESSAGE: the bytes are invalid, and nothing
 * was written. */
nw_status nw_codec_decode(const nw_decoding *d, float *out, nw_where where, bool add, nw_pool *pool);

/* Multiplies the floats of a cut in a vector of all parameters. Where it is zero, as most of what sparse codecs deliver, it
 * is read only. */
void nw_codec_scale(const nw_block *block, int cut, float *vector, float factor, nw_pool *pool);

#endif
