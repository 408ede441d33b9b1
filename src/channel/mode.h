/*
 * mode.h - how a bucket is reduced (--collective), and how many bytes that sends. The choice is a pure function of
 * whole numbers, so that all ranks make the same one.
 *
 * For N members and a bucket of n floats (D = 4 n bytes) that its codec compresses to B bytes, each member sends:
 *
 *   dense      2 (N - 1) / N D    not compressed; through owners (reduce-scatter, then allgather)
 *   gathered   (N - 1) B          each member sends its contribution to all others: it is compressed once
 *   owners     2 (N - 1) / N B    N / 2 times fewer bytes, but the owner compresses the mean a second time
 *   summed     2 (N - 1) / N B    codecs with rounds (summed.h)
 *
 * With two members both ways send the same, so they gather. More members gather a sparse bucket if that sends at most
 * an eighth of the dense bytes: N k (x + 2 + ceil(log2(n / k))) <= 8 n, for k entries with x bits for the value and the
 * rest for the position. Dense families are gathered between two members only, because each member must decode N whole
 * vectors. Random-k with private positions is always gathered: its positions depend on the sender, so parts have no
 * owner.
 */
#ifndef NW_CHANNEL_MODE_H
#define NW_CHANNEL_MODE_H

#include "codec/codec.h"

typedef enum nw_mode { NW_MODE_OWNERS, NW_MODE_GATHER, NW_MODE_SUMMED } nw_mode;

/* What the user asks for. A bucket that can be reduced in one way only ignores it. */
typedef enum nw_collective { NW_COLLECTIVE_AUTO, NW_COLLECTIVE_GATHER, NW_COLLECTIVE_OWNERS } nw_collective;

/* The mode of a bucket of n floats, of which k are sent at the codec's final ratio (AUTO). */
nw_mode nw_mode_of(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members);
/* The same, but as the user asks for if that is possible. */
nw_mode nw_mode_choose(nw_collective wanted, const nw_codec *codec, uint64_t n, uint64_t k, uint64_t members);

/* The number of entries sent of an item of n floats at the final ratio. For thresholds, where it depends on the
 * gradient, 1 % is assumed; for codecs that send all elements it is n. */
uint64_t nw_mode_entries(const nw_codec *codec, uint64_t n);
/* Upper bound of the bytes of a block of n floats with k entries; for dense families it is nearly exact. */
uint64_t nw_mode_bytes(const nw_codec *codec, uint64_t n, uint64_t k, uint64_t items);
/* The bytes that one member sends of a bucket in a step. */
uint64_t nw_mode_sends(nw_mode mode, uint64_t bytes, uint64_t members);
const char *nw_mode_name(nw_mode mode);

/* ceil(log2(n / k)): the least b with k 2^b >= n; k must be at least 1. */
unsigned nw_ceil_log2(uint64_t n, uint64_t k);
/* Bits of one value in a sparse family. */
unsigned nw_value_bits(const nw_codec *codec);

#endif
