/* fuzz_idx.c - IDX files, gzipped or not. */
#include "data/idx.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile int64_t keep;
    nw_array array;
    uint8_t *owned;
    if (nw_idx_read_packed(&array, data, size, "input", 1 << 22, &owned) != NW_OK) return 0;
    for (uint64_t i = 0; i < array.count; i++) keep += nw_array_int(&array, i) & 1;
    free(owned);
    return 0;
}
