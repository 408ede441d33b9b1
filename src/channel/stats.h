/*
 * stats.h - counters of what compression costs and saves, for tables and summaries. Nothing is decided from them.
 *
 * All channels of a rank add to the same counters, one set for each codec. The bytes of an encoded payload count once,
 * however many members get it; for codecs that add floats, those of a member's rounds count. Times are measured with this
 * process's clock, also on a virtual cluster. For sparse sets the lower bound of the bits for positions, log2 of n choose
 * k, is counted too, and what lists of values and positions would have taken, as published codes send them: values of f32,
 * or of 16 bits where values have 16, and positions of int32 or int64.
 */
#ifndef NW_CHANNEL_STATS_H
#define NW_CHANNEL_STATS_H

#include "codec/memory.h"
#include "net/state.h"

enum { NW_STATS_CODECS = 16 };                 /* at least as many as there are codecs */
#define NW_STATS_TIMES   "codec_ns."           /* prefix of names of what is measured, not counted */
#define NW_STATS_UNKNOWN (-(INT64_C(1) << 52)) /* a count of floats that stays negative whatever is added */

typedef struct nw_codec_stats {
    int64_t encode_ns, decode_ns;
    int64_t payloads;
    int64_t floats;                   /* that were encoded */
    int64_t bytes;                    /* of the encoded payloads */
    int64_t index_bytes, scale_bytes; /* of these, for positions and for scales */
    int64_t entries;                  /* of sparse sets */
    int64_t listed32, listed64;       /* bytes of lists of values and positions */
    double bound_bits;                /* lower bound of the bits for their positions */
} nw_codec_stats;

typedef struct nw_channel_stats {
    nw_codec_stats of[NW_STATS_CODECS]; /* in the registry's order; [0] is none */
    int64_t sent_floats;  /* of allreduce and servers: all that were sent, as if uncompressed; negative: unknown */
    double memory_square; /* squared norm of the error memory; filled by nw_channel_stats_read_memory */
    const nw_memory *memory;
    double (*rest)(const void *whose); /* or: what else keeps what was not sent; the square of its norm */
    const void *whose;
} nw_channel_stats;

/* The place of a codec among the counts. */
int nw_channel_stats_index(const nw_codec *codec);
/* One encoded payload of so many floats. NULL counts nothing, here and below. */
void nw_channel_stats_add(nw_channel_stats *stats, const nw_codec *codec, size_t floats, const uint8_t *payload,
                          nw_encoded encoded);
/* What a member gives in a round of a codec that adds floats; `floats`: that it stands for, in the first round. */
void nw_channel_stats_add_round(nw_channel_stats *stats, const nw_codec *codec, size_t floats, size_t bytes);
typedef enum nw_channel_stats_time { NW_STATS_ENCODING, NW_STATS_DECODING } nw_channel_stats_time;
void nw_channel_stats_add_time(nw_channel_stats *stats, const nw_codec *codec, nw_channel_stats_time what, int64_t ns);

/* Lists the counts of these codecs for checkpoints, so that they go on over all processes of a run. A checkpoint without
 * them can be read, too. */
void nw_channel_stats_state(nw_channel_stats *stats, nw_codec *const *codecs, int count, nw_state *state);
/* Adds another rank's counts. */
void nw_channel_stats_merge(nw_codec_stats *to, const nw_codec_stats *from);
/* Fills memory_square. */
void nw_channel_stats_read_memory(nw_channel_stats *stats);
/* All codecs together; `compressed`: without none. */
nw_codec_stats nw_channel_stats_total(const nw_channel_stats *stats, bool compressed);

#endif
