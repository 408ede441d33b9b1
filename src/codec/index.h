/*
 * index.h - the positions of a cut's entries as bytes: Rice codes of the gaps between them.
 *
 * Positions ascend. A gap is the number of elements between an entry and the one before (for the first: its position).
 * Each group of 128 entries has a parameter b, 0 to 31: the smallest that minimises entries (b + 1) + sum(gap >> b),
 * the number of bits. The bytes are:
 *
 *   parameters   a byte for each group
 *   remainders   the b low bits of each gap, the lowest bit first; each group on whole bytes
 *   unary        gap >> b zeros and a one, for all gaps of all groups; one stream, on whole bytes
 *
 * The result is never longer than Elias-Fano's code: with one b = ceil(log2(n / k)) for all, k entries of n take k (b +
 * 2) bits, and choosing b for each group only makes it shorter. With b = 0 it is a bitmap. Uniformly distributed
 * positions take 1.2 to 1.5 % more than the lower bound log2 C(n, k).
 *
 * Received bytes are not trusted: nothing is used before its bounds were checked.
 */
#ifndef NW_CODEC_INDEX_H
#define NW_CODEC_INDEX_H

#include "codec/codec.h"

enum { NW_INDEX_GROUP = 128 };

/* Upper bound of the bytes for `entries` of n elements; nw_index_write may write to all of them. */
size_t nw_index_bound(size_t n, size_t entries);
/* Stores the positions of a tile's entries in scratch->list if they fit there (select.h). It must be called for every
 * tile with entries before nw_index_write. */
void nw_index_note(const nw_encoding *e, int tile, const uint16_t *at);
/* Writes the positions of all marked elements of a cut. Returns the number of bytes. */
size_t nw_index_write(const nw_encoding *e, int cut, uint8_t *out);
/* Fills scratch->places and scratch->starts. At most 3 bytes may be left over, and they must be zero. NW_E_MESSAGE. */
nw_status nw_index_read(const nw_decoding *d, const uint8_t *in, size_t bytes, size_t entries);

#endif
