/*
 * kernels.h - the loops of codecs and memories over floats, one table for each instruction set.
 *
 * isa/<set>.c sets a vector width and includes isa/kernels.h, which has the loops; the best set is chosen at run time.
 * Every set gives the same bits: no fused multiply-add (-ffp-contract=off), sums in double in 16 lanes that are added in
 * one order, one division a scale and products after it. So replicas on unlike machines agree.
 *
 * Counts are those of a tile at most (NW_TILE_FLOATS), unless said otherwise; pointers may be unaligned.
 *
 * Halves, of any count:
 *                 rounding          too large            NaN                 infinity   -0
 *   f16           nearest, even     65504, with sign     quiet, upper bits   infinity   -0
 *   bf16          nearest, even     infinity             quiet, upper bits   infinity   -0
 *
 * A finite number that f16 cannot hold becomes the largest that it can, because one large gradient must not become an
 * infinity everywhere. An infinity stays one: it is no large number but a broken computation, and the receiver's alarms
 * must see it. bf16 ends where f32 does; only what lies within half a step of 2^128 becomes infinite. The one exception
 * to equal bits is `add` where both sides are NaN: the sum is a NaN, which one is left open. Bytes may lie anywhere;
 * ranges must not overlap. Rounding mode: nearest, as C starts.
 */
#ifndef NW_CODEC_KERNELS_H
#define NW_CODEC_KERNELS_H

#include "codec/block.h"

enum { NW_PLACES_MORE = 3 };
typedef struct nw_half_loops {
    void (*encode)(const float *in, size_t count, void *out); /* 2 * count bytes, little-endian */
    void (*decode)(const void *in, size_t count, float *out);
    void (*add)(const void *in, size_t count, float *sum); /* sum += decoded */
} nw_half_loops;

typedef struct nw_codec_kernels {
    const char *name;
    bool (*usable)(void);
    void (*add)(float *v, const float *g, float factor, size_t count); /* v += factor * g */
    void (*subtract)(float *v, const float *d, size_t count);          /* v -= d */
    uint32_t (*largest)(const float *v, size_t count);                 /* magnitude as bits; a NaN's are the greatest */
    /* memories (memory.h) */
    void (*differ)(float *work, const float *g, float factor, const float *h, size_t count); /* work = factor * g - h */
    void (*follow)(float *all, float *mean, size_t count);                                   /* mean = all += mean */
    void (*correct)(float *u, float *v, const float *g, float momentum, float factor, bool nesterov, size_t count);
    void (*momentum)(float *u, float *mean, float momentum, bool nesterov, size_t count);
    void (*scale)(float *v, float factor, size_t count); /* v *= factor; any count */
    /* powersgd: a matrix of rows and columns, one row after the other, and `rank` vectors, one after the other; any
     * counts */
    void (*times)(const float *m, size_t rows, size_t columns, const float *q, int rank, float *p); /* p = m q */
    void (*times_transposed)(const float *m, size_t rows, size_t columns, const float *p, int rank, float *q);
    /* out = `count` floats of the product p q', from element `from` of it on */
    void (*product)(const float *p, size_t rows, const float *q, size_t columns, int rank, size_t from, float *out,
                    size_t count);
    double (*dot)(const float *a, const float *b, size_t count); /* in double; any count */

    /* isa/choose.h. Marks what is at least so large (1 to 2^31, which marks nothing): ceil(count / 64) words. Returns
     * how many; `greatest` is as above. */
    uint32_t (*mark)(const float *v, size_t count, uint32_t least, uint64_t *bits, uint32_t *greatest);
    /* Which of count elements are marked, ascending; returns how many. `at` has room for NW_PLACES_MORE beyond them. */
    uint32_t (*places)(const uint64_t *bits, size_t count, uint16_t *at);
    /* counts[(magnitude - least) >> shift]++ for magnitudes of least to least + span, of floats or of magnitudes
     * themselves. Any count. */
    void (*tally)(const void *v, size_t count, uint32_t least, uint32_t span, int shift, uint32_t *counts);
    uint32_t (*sum_shifted)(const uint32_t *x, size_t count, int shift); /* sum of x >> shift, modulo 2^32 */
    nw_half_loops f16, bf16;

    /* Dense families (dense.h). Codes, trits and draws lie in rooms with 16 more than `count`; what is beside is lost. */
    void (*draws)(const uint32_t key[2], const uint32_t counter[4], size_t groups, uint16_t *out); /* draws.h */
    double (*squares)(const float *v, size_t count);                                               /* their sum ... */
    double (*magnitudes)(const float *v, size_t count);                                            /* ... and theirs */
    /* s + sign(v) min(s, floor(|v| inverse + u)), and back: (code - s) factor */
    void (*levels)(const float *v, const uint16_t *draw, size_t count, float inverse, int32_t s, uint16_t *codes);
    void (*level_values)(const uint16_t *codes, size_t count, int32_t s, float factor, float *out, bool add);
    void (*pack)(const uint16_t *codes, size_t count, unsigned width, uint8_t *out); /* width: 1 to 16 bits a code */
    void (*unpack)(const uint8_t *in, size_t count, unsigned width, uint16_t *codes);
    uint32_t (*most_code)(const uint16_t *codes, size_t count);
    /* 1 + sign(v) (u <= |v| inverse), and back: (trit - 1) scale; five of them in a byte */
    void (*trits)(const float *v, const uint16_t *draw, size_t count, float inverse, uint8_t *trits);
    void (*trit_values)(const uint8_t *trits, size_t count, float scale, float *out, bool add);
    void (*trit_pack)(const uint8_t *restrict trits, size_t bytes, uint8_t *restrict out);
    void (*trit_unpack)(const uint8_t *restrict in, size_t bytes, uint8_t *restrict trits);
    bool (*bytes_within)(const uint8_t *in, size_t count, uint8_t flip, uint8_t most); /* all (byte ^ flip) <= most */
    void (*signs)(const float *v, size_t count, uint8_t *out);                         /* a bit each, to whole bytes */
    void (*sign_values)(const uint8_t *in, size_t count, float scale, float *out, bool add);
    void (*exponents)(const float *v, const uint16_t *draw, size_t count, uint8_t *out);
    void (*exponent_values)(const uint8_t *in, size_t count, float *out, bool add);
    void (*bytes)(const float *v, size_t count, float inverse, uint8_t *out); /* whole numbers nearest to v inverse */
    void (*byte_values)(const uint8_t *in, size_t count, float factor, float *out, bool add);
} nw_codec_kernels;

/* Best first; the last works everywhere. */
int nw_codec_kernel_sets(void);
const nw_codec_kernels *nw_codec_kernels_at(int index);
const nw_codec_kernels *nw_codec_kernels_best(void);
/* For tests: everything uses this set from now on; NULL: the best again. */
void nw_codec_kernels_force(const nw_codec_kernels *set);

#endif
