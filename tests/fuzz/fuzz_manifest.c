/*
 * fuzz_manifest.c - a manifest of any bytes, as it is and with its hash made right, so that the parser behind the hash
 * is reached too. One that is accepted is written and read again.
 */
#define _GNU_SOURCE 1
#include "base/digest.h"
#include "checkpoint/manifest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_manifest(const char *text, size_t size)
{
    nw_manifest m, again;
    char *written;
    size_t written_size;
    if (nw_manifest_parse(&m, text, size, "fuzz") != NW_OK) return;
    for (int i = 0; i < m.file_count; i++)
        if (!nw_manifest_name_is_plain(m.files[i].name)) abort();
    if (nw_manifest_write(&m, &written, &written_size) != NW_OK) abort();
    if (nw_manifest_parse(&again, written, written_size, "again") != NW_OK) abort();
    if (again.file_count != m.file_count || again.state_count != m.state_count) abort();
    free(written);
    nw_manifest_free(&m);
    nw_manifest_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char mark[] = "\"sha256\": \"";
    try_manifest((const char *)data, size);
    char *text = malloc(size + 1), *at = NULL, digits[65];
    memcpy(text, data, size);
    for (char *found = text; (found = memmem(found, size - (size_t)(found - text), mark, strlen(mark))); at = found)
        found += strlen(mark);
    if (at && size - (size_t)(at - text) >= 64) {
        memset(at, '0', 64);
        nw_digest hash = nw_sha256_begin();
        nw_digest_add(&hash, text, size);
        nw_digest_end(&hash, digits);
        memcpy(at, digits, 64);
        try_manifest(text, size);
    }
    free(text);
    return 0;
}
