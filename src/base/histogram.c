/*
 * histogram.c - see histogram.h.
 *
 * Buckets: number v < 2^9 is in bucket v; otherwise, with 2^e <= v < 2^(e+1), in bucket 2^9 + e - 9. An int64_t has
 * e <= 62, so the last bucket ends at its greatest value.
 *
 * Packed: count of non-empty buckets (2 bytes), then of each its index (2) and its count (8), by index; then the sum
 * (8, as its bits) and the maximum (8). A delay histogram has few non-empty buckets, and the total follows from them.
 */
#include "base/histogram.h"

#include <math.h>
#include <stdio.h>

enum { EXACT_BITS = 9 };
_Static_assert(NW_HISTOGRAM_EXACT == 1 << EXACT_BITS, "buckets of one number end at a power of two");
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
    h->sum += (double)value;
    if (value > h->max) h->max = value;
}

double nw_histogram_mean(const nw_histogram *h) { return h->count > 0 ? h->sum / (double)h->count : (double)NAN; }

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
    nw_json_key(json, "counts");
    nw_json_object(json);
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

void nw_histogram_pack(const nw_histogram *h, nw_packer *packer)
{
    uint64_t used = 0, bits;
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) used += h->counts[i] > 0;
    nw_pack(packer, used, 2);
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        if (h->counts[i] == 0) continue;
        nw_pack(packer, (uint64_t)i, 2);
        nw_pack(packer, (uint64_t)h->counts[i], 8);
    }
    memcpy(&bits, &h->sum, sizeof bits);
    nw_pack(packer, bits, 8);
    nw_pack(packer, (uint64_t)h->max, 8);
}

/* The maximum belongs into the last bucket that is not empty, and the sum between what its buckets allow. */
static bool is_sound(const nw_histogram *h)
{
    double least = 0, most = 0;
    int last = 0;
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        if (h->counts[i] == 0) continue;
        least += (double)h->counts[i] * (double)nw_histogram_first(i);
        most += (double)h->counts[i] * (double)nw_histogram_last(i);
        last = i;
    }
    bool max_fits = h->count > 0 ? h->max >= 0 && nw_histogram_bucket(h->max) == last : h->max == 0;
    return max_fits && h->sum >= least * (1 - 1e-9) && h->sum <= most * (1 + 1e-9);
}

nw_status nw_histogram_unpack_merge(nw_histogram *into, nw_unpacker *unpacker, const char *source)
{
    nw_histogram read = {0};
    uint64_t used = nw_unpack(unpacker, 2), bits;
    bool good = used <= NW_HISTOGRAM_BUCKETS;
    int next = 0; /* indices ascend */
    for (uint64_t i = 0; good && i < used; i++) {
        int at = (int)nw_unpack(unpacker, 2);
        int64_t seen = (int64_t)nw_unpack(unpacker, 8);
        good = at >= next && at < NW_HISTOGRAM_BUCKETS && seen > 0 && seen <= INT64_MAX / 2 - read.count;
        if (!good) break;
        read.counts[at] = seen;
        read.count += seen;
        next = at + 1;
    }
    bits = nw_unpack(unpacker, 8);
    memcpy(&read.sum, &bits, sizeof bits);
    read.max = (int64_t)nw_unpack(unpacker, 8);
    NW_FAIL_IF(!good || unpacker->failed || !is_sound(&read) || into->count > INT64_MAX / 2, NW_E_FILE,
               "%s: these bytes are not a histogram; take an earlier checkpoint", source);
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) into->counts[i] += read.counts[i];
    into->count += read.count;
    into->sum += read.sum;
    if (read.max > into->max) into->max = read.max;
    return NW_OK;
}
