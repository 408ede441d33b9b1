/* fuzz_npz.c - zip archives of arrays, and single arrays. Their elements are read, too. */
#include "data/npz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static double touch(const nw_array *array)
{
    double sum = 0;
    for (uint64_t i = 0; i < array->count; i++) sum += nw_array_float(array, i);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const members[] = {"data", "labels", "mean"};
    static volatile double keep;
    nw_array array;
    if (nw_npy_read(&array, data, size, "input") == NW_OK) keep += touch(&array);
    for (int i = 0; i < 3; i++) {
        uint8_t *owned;
        bool found;
        if (nw_npz_read(&array, data, size, "input", members[i], &found, &owned) != NW_OK) continue;
        if (found) keep += touch(&array);
        free(owned);
    }
    return 0;
}
