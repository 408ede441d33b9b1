/* fuzz_calibration.c - bytes as a calibration. One that is accepted is written and read again, and is the same. */
#include "net/calibration.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_calibration c, again;
    char *text, *text_again;
    size_t length, length_again;
    if (nw_calibration_parse(&c, (const char *)data, size, "fuzz.json") != NW_OK) return 0;
    if (nw_calibration_print(&c, &text, &length) != NW_OK) abort();
    if (nw_calibration_parse(&again, text, length, "again.json") != NW_OK) abort();
    if (nw_calibration_print(&again, &text_again, &length_again) != NW_OK) abort();
    if (length != length_again || memcmp(text, text_again, length) != 0) abort();
    free(text);
    free(text_again);
    nw_calibration_free(&c);
    nw_calibration_free(&again);
    return 0;
}
