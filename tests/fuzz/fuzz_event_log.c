/*
 * fuzz_event_log.c - event logs from any bytes, as they are and with hashes made right, so that records are reached
 * too. Reading ends, never leaves the file, and what is accepted can be printed.
 */
#include "base/hash.h"
#include "replay/recording.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAGIC = 8, HEAD = 16 };

static void require(bool condition)
{
    if (!condition) abort();
}

static void seal(uint8_t *data, size_t size)
{
    for (size_t at = MAGIC; at <= size && size - at >= HEAD;) {
        uint32_t bytes;
        memcpy(&bytes, data + at, sizeof bytes); /* as they are in the file */
        if (bytes > size - at - HEAD) return;
        uint64_t hash = nw_hash64(data + at + HEAD, bytes);
        memcpy(data + at + 8, &hash, sizeof hash);
        at += HEAD + bytes;
    }
}

static void read_rank(const nw_log_file *file, int rank)
{
    nw_log_cursor c;
    nw_log_record r;
    char text[160];
    nw_log_begin(&c, file, rank);
    while (nw_log_next(&c, &r) == NW_OK && !c.ended) {
        require(c.at <= file->count && (size_t)c.number <= c.at);
        require(r.from >= 0 && r.from < file->header.world && r.step >= 0 && r.epoch >= 0);
        nw_log_text(&r, text, sizeof text);
        require(text[0] != '\0');
    }
}

static void try_bytes(const uint8_t *data, size_t size, bool sealed)
{
    uint8_t *copy = malloc(size + 1);
    nw_log_file file;
    require(copy != NULL);
    if (size > 0) memcpy(copy, data, size);
    if (sealed) seal(copy, size);
    nw_status status = nw_log_file_parse(&file, "fuzz", copy, size);
    free(copy);
    if (status != NW_OK) return;
    require(file.header.ranks >= 1 && file.header.first_rank + file.header.ranks <= file.header.world);
    for (int i = 0; i < file.header.ranks && i < 4; i++) read_rank(&file, file.header.first_rank + i);
    nw_log_file_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size, false);
    try_bytes(data, size, true);
    return 0;
}
