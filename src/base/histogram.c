/*
 * histogram.c - see histogram.h.
 *
 * Buckets: number v < 2^9 is in bucket v; otherwise, with 2^e <= v < 2^(e+1), in bucket 2^9 + e - 9. An int64_t has
 * e <= 62, so the last bucket ends at its greatest value.
 */
#include "base/histogram.h"

#include <math.h>
#include <stdio.h>

enum { EXACT_BITS = 9 };
_Static_assert(NW_HISTOGRAM_EXACT == 1 << EXACT_BITS, "buckets of one number end at a power of two");
_Static_assert(sizeof(nw_histogram) == NW_HISTOGRAM_INTEGERS * sizeof(int64_t), "nothing but integers");
_Static_assert(NW_HISTOGRAM_BUCKETS == NW_HISTOGRAM_EXACT + 63 - EXACT_BITS, "every int64_t has a bucket");

int nw_histogram_bucket(int64_t value)
{
    if (value < 0) return 0;
    if (value < NW_HISTOGRAM_EXACT) return (int)value;
    int exponent = 63 - __builtin_clzll((unsigned long long)value);
    return NW_HISTOGRAM_EXACT + exponent - EXACT_BITS;
}

int64_t nw_histogram_first(int bucket)
{
    if (bucket < NW_HISTOGRAM_EXACT) return bucket;
    return (int64_t)1 << (bucket - NW_HISTOGRAM_EXACT + EXACT_BITS);
}

int64_t nw_histogram_last(int bucket)
{
    return bucket + 1 < NW_HISTOGRAM_BUCKETS ? nw_histogram_first(bucket + 1) - 1 : INT64_MAX;
}

void nw_histogram_add(nw_histogram *h, int64_t value)
{
    if (value < 0) value = 0;
    h->counts[nw_histogram_bucket(value)]++;
    h->count++;
    if (__builtin_add_overflow(h->sum, value, &h->sum)) h->sum = INT64_MAX;
    if (value > h->max) h->max = value;
}

double nw_histogram_mean(const nw_histogram *h)
{
    return h->count > 0 ? (double)h->sum / (double)h->count : (double)NAN;
}

int64_t nw_histogram_quantile(const nw_histogram *h, double share)
{
    int64_t wanted = share < 1 ? (int64_t)ceil(share * (double)h->count) : h->count, seen = 0;
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        seen += h->counts[i];
        if (h->counts[i] == 0 || seen < wanted) continue;
        return nw_histogram_last(i) < h->max ? nw_histogram_last(i) : h->max;
    }
    return h->max;
}

void nw_histogram_json(nw_json *json, const nw_histogram *h)
{
    nw_json_object(json);
    nw_json_put_int(json, "count", h->count);
    nw_json_put_double(json, "mean", nw_histogram_mean(h));
    nw_json_put_int(json, "max", h->max);
    nw_json_put_object(json, "counts");
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        char name[64];
        if (h->counts[i] == 0) continue;
        long long first = (long long)nw_histogram_first(i), last = (long long)nw_histogram_last(i);
        snprintf(name, sizeof name, first == last ? "%lld" : "%lld-%lld", first, last);
        nw_json_put_int(json, name, h->counts[i]);
    }
    nw_json_object_end(json);
    nw_json_object_end(json);
}

bool nw_histogram_is_sound(const nw_histogram *h)
{
    int64_t count = 0;
    int last = 0;
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        if (h->counts[i] < 0 || __builtin_add_overflow(count, h->counts[i], &count)) return false;
        if (h->counts[i] > 0) last = i;
    }
    if (h->max < 0 || count != h->count || count > INT64_MAX / 2) return false;
    if (count == 0) return h->sum == 0 && h->max == 0;
    return nw_histogram_bucket(h->max) == last && h->sum >= h->max &&
           (double)h->sum <= (double)h->max * (double)count * (1 + 1e-9);
}
