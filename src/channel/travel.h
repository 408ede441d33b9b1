/*
 * travel.h - counters of what compression costs and saves, for tables and summaries. Nothing is decided from them.
 *
 * All channels of a rank add to the same counters, one set for each codec. The bytes of an encoded payload count once,
 * however many members get it; for codecs that add floats, those of a member's rounds count. Times are measured with this
 * process's clock, also on a virtual cluster. For sparse sets the lower bound of the bits for positions, log2 of n choose
 * k, is counted too, and what lists of values and positions would have taken, as published codes send them: values of f32,
 * or of 16 bits where values have 16, and positions of int32 or int64.
 */
#ifndef NW_CHANNEL_TRAVEL_H
#define NW_CHANNEL_TRAVEL_H

#include "codec/memory.h"

enum { NW_TRAVEL_CODECS = 16 }; /* at least as many as there are codecs */

typedef struct nw_travel_codec {
    int64_t encode_ns, decode_ns;
    int64_t payloads;
    int64_t floats;                   /* that were encoded */
    int64_t bytes;                    /* of the encoded payloads */
    int64_t index_bytes, scale_bytes; /* of these, for positions and for scales */
    int64_t entries;                  /* of sparse sets */
    int64_t listed32, listed64;       /* bytes of lists of values and positions */
    double bound_bits;                /* lower bound of the bits for their positions */
} nw_travel_codec;

typedef struct nw_travel {
    nw_travel_codec of[NW_TRAVEL_CODECS]; /* in the registry's order; [0] is none */
    int64_t sent_floats;  /* of a server: floats in all messages, dense ones too, once for each receiver */
    double memory_square; /* squared norm of the error memory; filled by nw_travel_read_memory */
    const nw_memory *memory;
    double (*rest)(const void *whose); /* or: what else keeps what was not sent; the square of its norm */
    const void *whose;
} nw_travel;

/* The place of a codec among the counts. */
int nw_travel_index(const nw_codec *codec);
/* One encoded payload of so many floats. NULL counts nothing, here and below. */
void nw_travel_add(nw_travel *travel, const nw_codec *codec, size_t floats, const uint8_t *payload, nw_encoded encoded);
/* What a member gives in a round of a codec that adds floats; `floats`: that it stands for, in the first round. */
void nw_travel_add_round(nw_travel *travel, const nw_codec *codec, size_t floats, size_t bytes);
typedef enum nw_travel_time { NW_TRAVEL_ENCODES, NW_TRAVEL_DECODES } nw_travel_time;
void nw_travel_add_time(nw_travel *travel, const nw_codec *codec, nw_travel_time what, int64_t ns);

/* Adds another rank's counts. */
void nw_travel_merge(nw_travel_codec *to, const nw_travel_codec *from);
/* Fills memory_square. */
void nw_travel_read_memory(nw_travel *travel);
/* All codecs together; `compressed`: without none. */
nw_travel_codec nw_travel_total(const nw_travel *travel, bool compressed);

#endif
