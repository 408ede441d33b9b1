/*
 * sampled.h - which entries topk sends if samples choose: DGC's rule (Lin et al. 2018, section 3, and its code).
 *
 * Of n elements, every stride-th from a place that is drawn is a sample; the threshold is the smallest of the ratio's
 * share of the largest samples. If far more than k elements reach it (upper k), it is raised by `upper`, or, with
 * `resample`, they themselves are sorted; if fewer than lower k, it is lowered by `lower`; `iterations` times at most.
 * Then the k largest of what reaches it are sent, or all if they are fewer: so between lower k and k entries, as a rule.
 *
 * The exact choice (select.h) is as fast and needs no luck; this one is here because published results were made so.
 */
#ifndef NW_CODEC_SAMPLED_H
#define NW_CODEC_SAMPLED_H

#include "codec/select.h"

typedef struct nw_sampled_plan {
    size_t stride, samples; /* samples = n: all elements are, so the choice is exact */
    size_t rank;            /* of the sample that is the threshold, from the largest */
} nw_sampled_plan;
nw_sampled_plan nw_sampled_plan_of(const nw_sampling *sampling, size_t n, double ratio);

nw_status nw_sampled_valid(const nw_sampling *sampling); /* NW_E_ARGUMENT */
void nw_sampled_aim(nw_encoding *e, int item);
void nw_sampled_settle(nw_encoding *e, int item, nw_pool *pool);

#endif
