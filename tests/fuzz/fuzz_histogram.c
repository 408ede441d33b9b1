/*
 * fuzz_histogram.c - a packed histogram of any bytes: what is accepted fits together, and comes back the same.
 */
#include "base/histogram.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const nw_histogram *h)
{
    int64_t count = 0;
    for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
        if (h->counts[i] < 0) abort();
        count += h->counts[i];
    }
    if (count != h->count || nw_histogram_quantile(h, 1) != h->max) abort();
    if (count > 0 && !(nw_histogram_mean(h) >= 0 && nw_histogram_mean(h) <= 1.1 * (double)INT64_MAX)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_histogram h = {0}, back = {0};
    nw_packer packer = {0};
    nw_unpacker unpacker = {.data = data, .size = size};
    if (nw_histogram_unpack_merge(&h, &unpacker, "fuzz") != NW_OK) return 0;
    check(&h);
    nw_histogram_pack(&h, &packer);
    nw_unpacker again = {.data = packer.data, .size = packer.size};
    bool whole = !packer.failed && nw_histogram_unpack_merge(&back, &again, "fuzz") == NW_OK;
    if (!whole || memcmp(&h, &back, sizeof h) != 0) abort();
    free(packer.data);
    return 0;
}
