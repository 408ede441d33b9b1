/*
 * kernels.h - the loops of codecs and memories over floats, one table for each instruction set.
 *
 * isa/<set>.c sets a vector width and includes isa/kernels.h, which has the loops; the best set is chosen at run time.
 * Every set gives the same bits, so that replicas on different machines agree: no fused multiply-add
 * (-ffp-contract=off), sums in double in 16 lanes that are added in a fixed order, one division for each scale and then
 * multiplications.
 *
 * `count` is at most a tile (NW_TILE_FLOATS) unless a comment says otherwise; pointers may be unaligned.
 *
 * Numbers of 16 bits (any count):
 *                 rounding          too large            NaN                 infinity   -0
 *   f16           nearest, even     65504, with sign     quiet, upper bits   infinity   -0
 *   bf16          nearest, even     infinity             quiet, upper bits   infinity   -0
 *
 * A finite number beyond f16's range becomes the largest number of f16: one large gradient must not become an infinity
 * on all ranks. An infinity stays an infinity, because it comes from a broken computation, which the receiver's checks
 * must notice. bf16 has the range of f32: only numbers within half a step of 2^128 become infinite. One result may
 * differ between sets: `add` of two NaNs is a NaN, but either of the two. Ranges must not overlap. The rounding mode
 * must be C's default, to nearest.
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
    uint32_t (*largest)(const float *v, size_t count);                 /* magnitude as bits; NaN is above all numbers */
    /* memories (memory.h) */
    void (*differ)(float *work, const float *g, float factor, const float *h, size_t count); /* work = factor * g - h */
    void (*follow)(float *all, float *mean, size_t count);                                   /* mean = all += mean */
    void (*correct)(float *u, float *v, const float *g, float momentum, float factor, bool nesterov, size_t count);
    void (*momentum)(float *u, float *mean, float momentum, bool nesterov, size_t count);
    void (*scale)(float *v, float factor, size_t count); /* v *= factor; any count */
    /* averaging in pairs (isa/mixing.h); any count, vectors that do not overlap */
    void (*blend)(const float *x, const float *m, float b, float *out, size_t count); /* out = x + b (m - x) */
    void (*mix)(float *x, float *m, float b, size_t count);                           /* d = b (m - x): x += d, m -= d */
    void (*approach)(float *x, const float *mine, const float *theirs, float a, size_t count); /* x -= a (mine - theirs) */
    /* mix, then x -= a (mine - theirs), m -= am (mine - theirs) */
    void (*mix_and_approach)(float *x, float *m, float b, const float *mine, const float *theirs, float a, float am,
                             size_t count);
    /* powersgd: m is a matrix, row by row; p and q are `rank` vectors, one after the other; any counts */
    void (*times)(const float *m, size_t rows, size_t columns, const float *q, int rank, float *p); /* p = m q */
    void (*times_transposed)(const float *m, size_t rows, size_t columns, const float *p, int rank, float *q);
    /* out = elements `from` to `from` + `count` of the product p q' */
    void (*product)(const float *p, size_t rows, const float *q, size_t columns, int rank, size_t from, float *out,
                    size_t count);
    double (*dot)(const float *a, const float *b, size_t count); /* in double; any count */

    /* isa/choose.h. Sets the bit of each element whose magnitude is at least `least` (1 to 2^31; 2^31 marks nothing),
     * in ceil(count / 64) words. Returns how many; `greatest` is the largest magnitude. */
    uint32_t (*mark)(const float *v, size_t count, uint32_t least, uint64_t *bits, uint32_t *greatest);
    /* Lists the positions of the set bits, ascending; returns how many. `at` needs room for NW_PLACES_MORE more. */
    uint32_t (*places)(const uint64_t *bits, size_t count, uint16_t *at);
    /* A histogram: counts[(magnitude - least) >> shift]++ for magnitudes from least to least + span. v has floats or
     * magnitudes. Any count. */
    void (*tally)(const void *v, size_t count, uint32_t least, uint32_t span, int shift, uint32_t *counts);
    uint32_t (*sum_shifted)(const uint32_t *x, size_t count, int shift); /* sum of x >> shift, modulo 2^32 */
    nw_half_loops f16, bf16;

    /* Dense families (dense.h). Buffers of codes, trits and draws need room for 16 more than `count`, which may be
     * overwritten. */
    void (*draws)(const uint32_t key[2], const uint32_t counter[4], size_t groups, uint16_t *out); /* draws.h */
    double (*squares)(const float *v, size_t count);    /* the sum of squares */
    double (*magnitudes)(const float *v, size_t count); /* the sum of magnitudes */
    /* s + sign(v) min(s, floor(|v| inverse + u)), and back: (code - s) factor */
    void (*levels)(const float *v, const uint16_t *draw, size_t count, float inverse, int32_t s, uint16_t *codes);
    void (*level_values)(const uint16_t *codes, size_t count, int32_t s, float factor, float *out, bool add);
    /* isa/residues.h: half + floor(v inverse + u), modulo 2 half, a power of two; the sum of (2 i + 1) times the floors,
     * modulo 2^32. And from two such: apart = step times the difference of the floors, which lies between -half and
     * half; the sum of (2 i + 1) times these; `most`: the largest of them, without sign. */
    uint32_t (*residues)(const float *v, const uint16_t *draw, size_t count, float inverse, int32_t half,
                         uint16_t *codes);
    uint32_t (*residues_apart)(const uint16_t *mine, const uint16_t *theirs, size_t count, int32_t half, float step,
                               float *apart, uint32_t *most);
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
    void (*bytes)(const float *v, size_t count, float inverse, uint8_t *out); /* v * inverse, rounded to nearest */
    void (*byte_values)(const uint8_t *in, size_t count, float factor, float *out, bool add);
} nw_codec_kernels;

/* Best first; the last works everywhere. */
int nw_codec_kernel_sets(void);
const nw_codec_kernels *nw_codec_kernels_at(int index);
const nw_codec_kernels *nw_codec_kernels_best(void);
/* For tests: all codecs use this set from now on; NULL restores the best. */
void nw_codec_kernels_force(const nw_codec_kernels *set);

#endif
