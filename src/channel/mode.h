/*
 * mode.h - how a bucket is reduced, and what that costs: a pure function of whole numbers, the same on all ranks.
 *
 * Of N members, a bucket of n floats, D = 4 n bytes, that its codec makes B bytes of, each sends
 *
 *   dense      2 (N - 1) / N D    what is not compressed: by owners
 *   gathered   (N - 1) B          each contribution once to all others: it is encoded once, and loses once
 *   owners     2 (N - 1) / N B    N / 2 times less; but the owner encodes the mean again, and that loses too
 *   summed     2 (N - 1) / N B    codecs of rounds (summed.h)
 *
 * With two members gathering and owners send the same, so they gather. More of them gather a sparse bucket as long as
 * that sends at most an eighth of what dense would: N k (x + 2 + ceil(log2(n / k))) <= 8 n, for k entries of x bits a
 * value, each with its place. Dense families gather between two alone: every member would have to decode N whole
 * vectors. Positions that follow from the sender's key (random-k with private draws) cannot be owned by parts.
 */
#ifndef NW_CHANNEL_MODE_H
#define NW_CHANNEL_MODE_H

#include "codec/codec.h"

typedef enum nw_mode { NW_MODE_OWNERS, NW_MODE_GATHER, NW_MODE_SUMMED } nw_mode;

/* What is asked for; what cannot be done otherwise stays as it is. */
typedef enum nw_collective { NW_COLLECTIVE_AUTO, NW_COLLECTIVE_GATHER, NW_COLLECTIVE_OWNERS } nw_collective;

/* Of a bucket of n floats, k of which are sent at the codec's final ratio, in a group of N. */
nw_mode nw_mode_of(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members);
/* ... unless something else is asked for. */
nw_mode nw_mode_choose(nw_collective wanted, const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members);

/* Entries that are sent of an item of n floats at the final ratio; for thresholds, which depend on the gradient, 1 %;
 * n where all are sent. */
uint64_t nw_mode_entries(const nw_codec *codec, uint64_t n);
/* Bytes that a block of n floats with k entries takes at most, and, for codecs whose scales are known, nearly. */
uint64_t nw_mode_bytes(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t items);
/* What one member sends of a bucket in a step. */
uint64_t nw_mode_sends(nw_mode mode, uint64_t bytes, uint64_t members);
const char *nw_mode_name(nw_mode mode);

/* The least b with k 2^b >= n; k is at least 1. */
unsigned nw_ceil_log2(uint64_t n, uint64_t k);
/* Of one value of a sparse family. */
unsigned nw_value_bits(const nw_codec *codec);

#endif
