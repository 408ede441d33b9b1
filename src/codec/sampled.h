/*
 * sampled.h - top-k by a sampled threshold: DGC's rule (Lin et al. 2018, section 3, and its code).
 *
 * Every stride-th element from a random start is a sample. Of the samples, the share `ratio` with the largest
 * magnitudes is taken, and the smallest of these is the threshold. If more than upper * k elements reach it, it is
 * multiplied by `upper`, or, with `resample`, the k largest of them are selected; if fewer than lower * k do, it is
 * multiplied by `lower`. This is repeated at most `iterations` times. Then the k largest elements that reach the
 * threshold are sent, or all if they are fewer than k: usually between lower * k and k entries.
 *
 * The exact selection (select.h) is as fast and is the default; this one exists because published results were made so.
 */
#ifndef NW_CODEC_SAMPLED_H
#define NW_CODEC_SAMPLED_H

#include "codec/select.h"

typedef struct nw_sampled_plan {
    size_t stride, samples; /* samples = n: every element is a sample, so the selection is exact */
    size_t rank;            /* the threshold is the rank-th largest sample */
} nw_sampled_plan;
nw_sampled_plan nw_sampled_plan_of(const nw_sampling *sampling, size_t n, double ratio);

nw_status nw_sampled_valid(const nw_sampling *sampling); /* NW_E_ARGUMENT */
void nw_sampled_aim(nw_encoding *e, int item);
void nw_sampled_settle(nw_encoding *e, int item, nw_pool *pool);

#endif
