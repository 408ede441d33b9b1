/* fuzz_results.c - bytes as results.csv. What is accepted, with a row more, is accepted again, with the same columns. */
#include "observe/results.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_result_row row = {0};
    char *once, *twice;
    size_t first, second;
    if (nw_result_row_put(&row, "lr", "0.1") != NW_OK || nw_result_row_put(&row, "n", "a,\"b\"\n") != NW_OK) abort();
    if (nw_results_merge("fuzz.csv", (const char *)data, size, &row, &once, &first) == NW_OK) {
        const char *end = memchr(once, '\n', first);
        if (!end || nw_results_merge("fuzz.csv", once, first, &row, &twice, &second) != NW_OK) abort();
        if (second <= first || memcmp(once, twice, first) != 0) abort();
        free(twice);
        free(once);
    }
    nw_result_row_free(&row);
    return 0;
}
