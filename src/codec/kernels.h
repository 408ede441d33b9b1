/*
 * kernels.h - the loops of codecs and memories over floats, one table for each instruction set.
 *
 * isa/<set>.c sets a vector width and includes isa/kernels.h, which has the loops; the best set is chosen at run time.
 * Every set gives the same bits: no fused multiply-add (-ffp-contract=off), sums in double in 16 lanes that are added in
 * one order, one division a scale and products after it. So replicas on unlike machines agree.
 *
 * Counts are those of a tile at most (NW_TILE_FLOATS), unless said otherwise; pointers may be unaligned.
 */
#ifndef NW_CODEC_KERNELS_H
#define NW_CODEC_KERNELS_H

#include "codec/block.h"

typedef struct nw_codec_kernels {
    const char *name;
    bool (*usable)(void);
    void (*add)(float *v, const float *g, float factor, size_t count); /* v += factor * g */
    void (*subtract)(float *v, const float *d, size_t count);          /* v -= d */
    uint32_t (*largest)(const float *v, size_t count);                 /* magnitude as bits; a NaN's are the greatest */
} nw_codec_kernels;

/* Best first; the last works everywhere. */
int nw_codec_kernel_sets(void);
const nw_codec_kernels *nw_codec_kernels_at(int index);
const nw_codec_kernels *nw_codec_kernels_best(void);
/* For tests: everything uses this set from now on; NULL: the best again. */
void nw_codec_kernels_force(const nw_codec_kernels *set);

#endif
