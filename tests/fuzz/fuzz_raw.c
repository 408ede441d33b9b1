/*
 * fuzz_raw.c - nowait-raw files. Hardly any damaged file has the right digest, so each input is tried a second time
 * with size and digest put right, to reach what lies behind that check.
 */
#include "base/digest.h"
#include "data/raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void parse(const uint8_t *data, size_t size)
{
    static volatile int64_t keep;
    nw_dataset d = {0};
    char **names = NULL;
    if (nw_raw_parse(&d, data, size, "input", &names) == NW_OK) {
        for (int s = 0; s < NW_SPLITS; s++)
            for (int64_t i = 0; i < d.split[s].count; i++) keep += d.split[s].labels[i];
        for (int c = 0; names && c < d.classes; c++) keep += (int64_t)strlen(names[c]);
        nw_raw_verify(data, size, "input");
    }
    free(names);
}

static uint64_t number(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse(data, size);
    if (size < 264) return 0;
    uint8_t *copy = malloc(size);
    uint64_t whole = size, head = size;
    char text[65];
    memcpy(copy, data, size);
    memcpy(copy + 16, &whole, sizeof whole);
    for (int s = 0; s < 3; s++)
        if (number(copy + 176 + 8 * s) < head) head = number(copy + 176 + 8 * s);
    memset(copy + 232, 0, 32);
    nw_digest hash = nw_sha256_begin();
    nw_digest_add(&hash, copy, head < 264 ? 264 : (size_t)head);
    nw_digest_end(&hash, text);
    for (int i = 0; i < 32; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        copy[232 + i] = (uint8_t)byte;
    }
    parse(copy, size);
    free(copy);
    return 0;
}
