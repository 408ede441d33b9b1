/*
 * travel.h - what encoding cost and saved, counted where it happens, for tables and summaries: it decides nothing.
 *
 * Every channel of a rank adds to the same counts. Bytes are those of encoded payloads, once for each, however many
 * members get it; times are those of this process's clock, also on a virtual cluster. Of sparse sets it is known how many
 * bits their places need at least, log2 of n choose k, and what plain lists of them would have taken.
 */
#ifndef NW_CHANNEL_TRAVEL_H
#define NW_CHANNEL_TRAVEL_H

#include "codec/memory.h"

typedef struct nw_travel {
    int64_t encode_ns, decode_ns;
    int64_t floats;       /* that were encoded; not of dense buckets, as all below */
    int64_t bytes;        /* what became of them */
    int64_t index_bytes;  /* of these, for places */
    int64_t entries;      /* of sparse sets */
    double bound_bits;    /* that their places need at least */
    int64_t sent_floats;  /* a server's: floats that messages stood for, dense ones too, once for each receiver */
    double memory_square; /* filled when it is read: the squared norm of what was not delivered */
    const nw_memory *memory;
} nw_travel;

/* One encoded payload of so many floats. */
void nw_travel_add(nw_travel *travel, const nw_codec *codec, size_t floats, const uint8_t *payload, nw_encoded encoded);
/* Adds another rank's counts. */
void nw_travel_merge(nw_travel *to, const nw_travel *from);
/* Fills memory_square. */
void nw_travel_read_memory(nw_travel *travel);

#endif
