/*
 * fuzz_heartbeat.c - a heartbeat of any bytes: as they are, and as the beginning of a page, so that inputs of any length
 * get past the check of the size.
 */
#include "net/heartbeat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_page(const uint8_t *data, size_t size)
{
    nw_beat beat;
    if (nw_heartbeat_parse(data, size, "fuzz", &beat) != NW_OK) return;
    if (beat.rank < 0 || beat.rank >= beat.world || beat.pid <= 0 || beat.step < 0) abort();
    if (beat.state >= NW_RANK_STATES || strlen(beat.host) >= sizeof beat.host) abort();
    for (const char *c = beat.what; *c; c++)
        if ((unsigned char)*c < 0x20) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_page(data, size);
    uint8_t *page = calloc(1, NW_HEARTBEAT_BYTES);
    if (!page) return 0;
    memcpy(page, data, size < NW_HEARTBEAT_BYTES ? size : NW_HEARTBEAT_BYTES);
    try_page(page, NW_HEARTBEAT_BYTES);
    free(page);
    return 0;
}
