/*
 * ranges.h - many ranges through codecs at once, on all threads of a pool.
 *
 * An exchange that has all parts of a vector at hand lists them and runs the list. Codecs whose floats stand alone
 * (nw_codec_ops.width) are cut into tasks of equal length, others get one task a range. The bytes and floats are those
 * that one call a range gives, whatever the number of threads.
 *
 * Lengths of all such ranges are checked before anything is written. If a range of another codec fails, others may have
 * been written; the sentence is that of the first in the list.
 *
 * Threads: the caller is the one that may run the pool. Ranges and their bytes must not overlap.
 */
#ifndef NW_CODEC_RANGES_H
#define NW_CODEC_RANGES_H

#include "base/pool.h"
#include "codec/codec.h"

typedef enum nw_codec_way { NW_CODEC_ENCODE, NW_CODEC_DECODE, NW_CODEC_DECODE_ADD } nw_codec_way;

typedef struct nw_codec_range {
    const nw_codec *codec;
    nw_codec_way way;
    nw_codec_key key;
    const void *in; /* floats to encode, or bytes to decode */
    void *out;      /* bytes, as many as the codec's bound; or floats */
    size_t count;   /* floats */
    size_t bytes;   /* decoding: of `in` */
    nw_encoded encoded;
    /* While a list runs: */
    int first_task;
    nw_status status;
} nw_codec_range;

/* Encoding fills `encoded`. A pool of NULL is the calling thread alone. */
nw_status nw_codec_run(nw_pool *pool, nw_codec_range *ranges, int count);

#endif
