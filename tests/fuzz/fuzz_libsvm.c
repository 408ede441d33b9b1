/* fuzz_libsvm.c - LIBSVM text, gzipped or not: what is read keeps the promises of a compressed matrix. */
#include "data/libsvm.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const nw_sparse *s)
{
    if (s->rows < 1 || s->begin[0] != 0 || s->begin[s->rows] != s->entries) abort();
    for (int64_t r = 0; r < s->rows; r++) {
        if (s->label[r] != 1 && s->label[r] != -1) abort();
        if (s->begin[r + 1] < s->begin[r] || s->begin[r + 1] - s->begin[r] > s->longest) abort();
        for (int64_t e = s->begin[r]; e < s->begin[r + 1]; e++) {
            bool ascends = e == s->begin[r] || s->index[e] > s->index[e - 1];
            if (!ascends || s->index[e] < 0 || s->index[e] >= s->features || !isfinite(s->value[e])) abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_sparse rows, again;
    nw_libsvm_options options = {.limit = size % 7 == 0 ? 3 : 0, .most = 1 << 20};
    if (nw_libsvm_parse(&rows, data, size, "input", &options) != NW_OK) return 0;
    check(&rows);
    options.like = &rows;
    if (nw_libsvm_parse(&again, data, size, "input", &options) != NW_OK) abort();
    check(&again);
    nw_sparse_free(&again);
    nw_sparse_free(&rows);
    return 0;
}
