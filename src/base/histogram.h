/*
 * histogram.h - how often each whole number was seen: delays of gradients, lengths of queues.
 *
 * Numbers below NW_HISTOGRAM_EXACT have a bucket each; above, a bucket holds those from one power of two up to the
 * next, so that no number is too large and the size is fixed. Count, mean and maximum are exact. All zeros is the empty
 * histogram; it owns nothing and may be copied. It is nothing but integers, so that a checkpoint keeps it as it is: one
 * tensor of NW_HISTOGRAM_INTEGERS. One thread at a time.
 */
#ifndef NW_BASE_HISTOGRAM_H
#define NW_BASE_HISTOGRAM_H

#include "base/json.h"

enum {
    NW_HISTOGRAM_EXACT = 512, /* 2^9 */
    NW_HISTOGRAM_BUCKETS = NW_HISTOGRAM_EXACT + 54,
    NW_HISTOGRAM_INTEGERS = NW_HISTOGRAM_BUCKETS + 3,
};

typedef struct nw_histogram {
    int64_t counts[NW_HISTOGRAM_BUCKETS];
    int64_t count; /* of all numbers */
    int64_t sum;   /* at most INT64_MAX */
    int64_t max;   /* 0 while empty */
} nw_histogram;

void nw_histogram_add(nw_histogram *histogram, int64_t value); /* value >= 0; a negative one counts as 0 */
double nw_histogram_mean(const nw_histogram *histogram);       /* NAN while empty */

/* The numbers that a bucket holds, both ends included. */
int nw_histogram_bucket(int64_t value);
int64_t nw_histogram_first(int bucket);
int64_t nw_histogram_last(int bucket);

/* The least number that at least `share` (0 to 1) of all are not above: 0.5 for the median. Beyond the exact buckets it
 * is the end of the bucket, or the maximum if that is less. 0 while empty. */
int64_t nw_histogram_quantile(const nw_histogram *histogram, double share);

/* As a JSON value: {"count": 5, "mean": 1.2, "max": 700, "counts": {"0": 3, "2": 1, "512-1023": 1}}; empty buckets are
 * left out. */
void nw_histogram_json(nw_json *json, const nw_histogram *histogram);

/* Whether integers that were read are a histogram: counts that add up, a maximum and a sum that fit them. */
bool nw_histogram_is_sound(const nw_histogram *histogram);

#endif
