/* fuzz_run_lines.c - lines of metrics.jsonl and logs.tsv, as a run that resumes finds them. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "observe/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each line gets memory of exactly its length, so that a sanitizer sees the first byte read past it. */
static void read_line(const uint8_t *data, size_t size)
{
    char *line = malloc(size + !size);
    if (line == NULL) return;
    if (size > 0) memcpy(line, data, size);
    int64_t number = 0;
    nw_line_place place;
    bool ours = nw_jsonl_line_place(line, size, &place);
    if (ours && (place.step < 0 || place.epoch < -1 || place.images < -1)) abort();
    if (ours && size < strlen("{\"record\":\"a\",\"step\":1,}")) abort();
    if (nw_tsv_row_epoch(line, size, &number) && (number < 0 || size < strlen("1\t1.1\t1.1"))) abort();
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = data + size;
    while (data < end) {
        const uint8_t *newline = memchr(data, '\n', (size_t)(end - data));
        const uint8_t *stop = newline != NULL ? newline : end;
        read_line(data, (size_t)(stop - data));
        data = newline != NULL ? newline + 1 : end;
    }
    return 0;
}
