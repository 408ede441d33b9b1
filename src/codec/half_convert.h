/*
 * half_convert.h - ranges of floats to numbers of 16 bits and back, as fast as memory gives them; for the codecs fp16
 * and bf16, and for those that send their values so.
 *
 *                 rounding          too large            NaN                 infinity   -0
 *   f16           nearest, even     65504, with sign     quiet, upper bits   infinity   -0
 *   bf16          nearest, even     infinity             quiet, upper bits   infinity   -0
 *
 * A finite number that f16 cannot hold becomes the largest that it can, because one large gradient must not become an
 * infinity everywhere. An infinity stays one: it is no large number but a broken computation, and the receiver's alarms
 * must see it. bf16 ends where f32 does; only what lies within half a step of 2^128 becomes infinite.
 *
 * Every set gives the same bits. The one exception is `add` where both sides are NaN: the sum is a NaN, which one is
 * left open. Bytes may lie anywhere; ranges must not overlap. Rounding mode: nearest, as C starts.
 */
#ifndef NW_CODEC_HALF_CONVERT_H
#define NW_CODEC_HALF_CONVERT_H

#include "base/status.h"

typedef struct nw_half_loops {
    void (*encode)(const float *in, size_t count, void *out); /* 2 * count bytes, little-endian */
    void (*decode)(const void *in, size_t count, float *out);
    void (*add)(const void *in, size_t count, float *sum); /* sum += decoded */
} nw_half_loops;

typedef struct nw_half_set {
    const char *name;
    bool (*usable)(void);
    nw_half_loops f16, bf16;
} nw_half_set;

/* Best first; the last works everywhere. */
int nw_half_set_count(void);
const nw_half_set *nw_half_set_at(int index);
const nw_half_set *nw_half_set_best(void);

#endif
