/* blocks.h - plain ranges of floats through a codec, as blocks of one item and one cut. Include after cmocka, or where
 * aborting is enough. */
#ifndef NW_TESTS_BLOCKS_H
#define NW_TESTS_BLOCKS_H

#include "codec/run.h"

#include <stdio.h>
#include <stdlib.h>

static inline nw_block plain_block(const nw_codec *codec, size_t floats)
{
    nw_block b;
    nw_extent all = {0, floats, 0, 1};
    size_t cuts[] = {0, floats};
    if (nw_block_make(&b, codec, &all, floats > 0, cuts, 1, 0) != NW_OK) abort();
    return b;
}

/* Encodes all of a block of one cut; `bytes` has room. 0 bytes: the numbers were not finite. */
static inline nw_encoded encode_block(const nw_block *b, nw_memory *memory, nw_codec_key key, const float *in,
                                      uint8_t *bytes, nw_pool *pool)
{
    nw_encoded encoded = {99, 99, 99};
    nw_partial *partial = calloc((size_t)b->tile_count + 1, sizeof *partial);
    nw_scratch scratch;
    if (nw_scratch_make(&scratch, &b, 1, pool ? nw_pool_threads(pool) : 1) != NW_OK) abort();
    nw_encoding e = {.block = b,
                     .codec = b->codec,
                     .memory = memory,
                     .key = key,
                     .ratio = nw_codec_ratio(b->codec, 0),
                     .clip = 1,
                     .vector = in,
                     .partial = partial,
                     .scratch = &scratch,
                     .out = &bytes,
                     .encoded = &encoded};
    if (nw_codec_begin(&e, pool) != NW_OK || nw_codec_end(&e, pool) != NW_OK) encoded.bytes = 0;
    nw_scratch_free(&scratch);
    free(partial);
    return encoded;
}

static inline nw_status decode_block(const nw_block *b, nw_codec_key key, const uint8_t *bytes, size_t size, float *out,
                                     bool add, nw_pool *pool)
{
    nw_scratch scratch;
    if (nw_scratch_make(&scratch, &b, 1, 1) != NW_OK) abort();
    nw_decoding d = {.block = b, .codec = b->codec, .key = key, .in = bytes, .bytes = size, .scratch = &scratch};
    nw_status status = nw_codec_decode(&d, out, NW_AT_FIRST, add, pool);
    nw_scratch_free(&scratch);
    return status;
}

/* What a receiver sees of a range. */
static inline void pass_codec(const nw_codec *codec, float *x, size_t floats)
{
    nw_block b = plain_block(codec, floats);
    nw_codec_key key = {0};
    uint8_t *bytes = malloc(8 * floats + 64);
    nw_encoded e = encode_block(&b, NULL, key, x, bytes, NULL);
    if (decode_block(&b, key, bytes, e.bytes, x, false, NULL) != NW_OK) abort();
    free(bytes);
    nw_block_free(&b);
}

#endif
