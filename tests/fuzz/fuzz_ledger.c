/*
 * fuzz_ledger.c - a ledger's table of any numbers, as a checkpoint may hold it. What is accepted is saved as a table
 * that gives the same again, and can be printed.
 */
#define _GNU_SOURCE 1
#include "net/ledger.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 3, SEGMENTS = 2, ROW = NW_LEDGER_COLUMNS * sizeof(int64_t) };

static void require(bool condition)
{
    if (!condition) abort();
}

static nw_ledger *make_ledger(void)
{
    nw_ledger *ledger;
    nw_ledger_options options = {WORLD, 0, WORLD, SEGMENTS, NULL};
    require(nw_ledger_create(&ledger, &options) == NW_OK);
    return ledger;
}

static void try(const int64_t *rows, size_t count, bool resumes)
{
    nw_ledger *ledger = make_ledger(), *again = make_ledger();
    if (nw_ledger_add(ledger, rows, count, resumes, "fuzz") == NW_OK) {
        int64_t *saved, *saved_again;
        size_t saved_count, again_count, length;
        require(nw_ledger_save(ledger, &saved, &saved_count) == NW_OK);
        if (nw_ledger_add(again, saved, saved_count, false, "fuzz") == NW_OK) { /* no sum has become too large */
            require(nw_ledger_save(again, &saved_again, &again_count) == NW_OK);
            require(again_count == saved_count && memcmp(saved, saved_again, saved_count * ROW) == 0);
            free(saved_again);
        }
        free(saved);
        char *text = NULL;
        FILE *out = open_memstream(&text, &length);
        require(out != NULL && nw_ledger_write_json(ledger, (nw_ledger_run){.steps = 1, .images = 1}, out) == NW_OK);
        require(nw_ledger_print(ledger, (nw_ledger_run){.steps = 1, .images = 1}, out) == NW_OK);
        fclose(out);
        free(text);
    }
    nw_ledger_free(ledger);
    nw_ledger_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t count = size / ROW;
    int64_t *rows = malloc(count * ROW + 1); /* so that a sanitizer sees the first byte too far */
    if (count > 0) memcpy(rows, data, count * ROW);
    try(rows, count, false);
    try(rows, count, true);
    free(rows);
    return 0;
}
