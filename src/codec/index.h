/*
 * index.h - the places of a cut's entries as bytes: Rice codes of the gaps between them.
 *
 * Entries ascend; a gap is a coordinate less the one before, less 1 (the first: the coordinate). Groups of 128 entries
 * have a parameter b each, 0 to 31: the least that makes entries (b + 1) + sum(gap >> b) bits the fewest. Then:
 *
 *   parameters   a byte for each group
 *   remainders   the b low bits of each gap, the lowest bit first; each group on whole bytes
 *   unary        gap >> b zeros and a one, for all gaps of all groups; one stream, on whole bytes
 *
 * Never longer than Elias-Fano's code, and with b = 0 it is the bitmap: k entries of n with b = ceil(log2(n / k)) take k
 * (b + 2) bits, and the b of groups only make it less. Uniform sets take 1.2 to 1.5 % more than log2 C(n, k).
 *
 * What is read is not trusted: nothing is used before its bounds were checked.
 */
#ifndef NW_CODEC_INDEX_H
#define NW_CODEC_INDEX_H

#include "codec/codec.h"

enum { NW_INDEX_GROUP = 128 };

/* Bytes that `entries` of n coordinates take at most; nw_index_write may touch all of them. */
size_t nw_index_bound(size_t n, size_t entries);
/* Of what is marked in a cut. Each tile with entries must have been noted, which keeps its places in scratch->list where
 * they fit (select.h). Returns bytes. */
void nw_index_note(const nw_encoding *e, int tile, const uint16_t *at);
size_t nw_index_write(const nw_encoding *e, int cut, uint8_t *out);
/* Fills scratch->places and scratch->starts. Bytes that are left must be fewer than 4, and zero. NW_E_MESSAGE. */
nw_status nw_index_read(const nw_decoding *d, const uint8_t *in, size_t bytes, size_t entries);

#endif
