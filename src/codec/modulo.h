/*
 * modulo.h - the codec modulo: the last bits of each float, which are enough for whoever has nearly the same float
 * (Moniqua, Lu and De Sa 2020).
 *
 * An item has a step h, a power of two. Of a float v travels k modulo 2^q,
 *
 *   k = floor(v / h + u),   u uniform in (0, 1), the same for both who compare
 *
 * Two members that have each other's codes know k_i - k_j modulo 2^q. If |v_i - v_j| < B = (2^(q-1) - 1) h, that is one
 * number d between -2^(q-1) and 2^(q-1), and d h is an unbiased estimate of v_i - v_j, less than a step off, and 0 where
 * v_i = v_j. Both find the same d, with the sign turned, whatever the codes are: so who moves together by it changes no
 * sum. It is exact in f32.
 *
 * Where a pair of floats was further apart, d is a multiple of 2^q off. Each tile therefore has a check, the sum of
 * (2 i + 1) k_i modulo 2^32 over its elements i: the sum of (2 i + 1) d_i must be the difference of both checks. One
 * float too far apart is always found, several together are missed once in 2^(32 - q) times.
 *
 * Alone, without another to compare with, a message stands for the floats d h nearest to 0 (decode).
 */
#ifndef NW_CODEC_MODULO_H
#define NW_CODEC_MODULO_H

#include "codec/codec.h"

enum { NW_MODULO_BITS_LEAST = 2, NW_MODULO_BITS_MOST = 8 };

/* The bound of a step, and the least step whose bound is that or more. */
double nw_modulo_bound(const nw_codec *codec, float step);
float nw_modulo_step(const nw_codec *codec, double bound);

/* `apart` = what the tile's elements of `mine` are more than those of `theirs`, by two messages that `check` has
 * accepted; `most`: the largest of these, without sign. False: they were encoded with different steps, or some element
 * is further apart than its bound; then apart means nothing. */
bool nw_modulo_apart(const nw_decoding *mine, const nw_decoding *theirs, int tile, float *apart, float *most);

#endif
