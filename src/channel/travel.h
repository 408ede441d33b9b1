/*
 * travel.h - counters of what compression costs and saves, for tables and summaries. Nothing is decided from them.
 *
 * All channels of a rank add to the same counters. The bytes of an encoded payload count once, however many members get
 * it. Times are measured with this process's clock, also on a virtual cluster. For sparse sets the lower bound of the
 * bits for positions, log2 of n choose k, is counted, too.
 */
#ifndef NW_CHANNEL_TRAVEL_H
#define NW_CHANNEL_TRAVEL_H

#include "codec/memory.h"

typedef struct nw_travel {
    int64_t encode_ns, decode_ns;
    int64_t floats;       /* floats that were compressed; this and the next four leave out dense buckets */
    int64_t bytes;        /* bytes of the encoded payloads */
    int64_t index_bytes;  /* of these, for positions */
    int64_t entries;      /* entries of sparse sets */
    double bound_bits;    /* lower bound of the bits for their positions */
    int64_t sent_floats;  /* of a server: floats in all messages, dense ones too, once for each receiver */
    double memory_square; /* squared norm of the error memory; filled by nw_travel_read_memory */
    const nw_memory *memory;
} nw_travel;

/* Counts an encoded payload of that many floats. */
void nw_travel_add(nw_travel *travel, const nw_codec *codec, size_t floats, const uint8_t *payload, nw_encoded encoded);
/* Adds the counters of another rank. */
void nw_travel_merge(nw_travel *to, const nw_travel *from);
/* Fills memory_square. */
void nw_travel_read_memory(nw_travel *travel);

#endif
