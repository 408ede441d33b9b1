/*
 * fuzz_ledger.c - packed ledgers from any bytes. What is refused changes nothing; what is accepted packs to something that
 * is accepted again.
 */
#define _GNU_SOURCE 1
#include "net/ledger.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORLD = 3, SEGMENTS = 2 };

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

static void try_ledger(const uint8_t *data, size_t size, bool resume)
{
    nw_ledger *ledger = make_ledger(), *again = make_ledger();
    nw_status status = resume ? nw_ledger_unpack_resume(ledger, data, size, "fuzz")
                              : nw_ledger_unpack_merge(ledger, data, size, "fuzz");
    uint8_t *bytes, *bytes_again;
    size_t count, count_again;
    require(nw_ledger_pack(ledger, &bytes, &count) == NW_OK);
    require(nw_ledger_unpack_merge(again, bytes, count, "fuzz") == NW_OK);
    require(nw_ledger_pack(again, &bytes_again, &count_again) == NW_OK);
    require(count == count_again && memcmp(bytes, bytes_again, count) == 0);
    nw_account total = nw_ledger_total(ledger, NW_SENT);
    if (status != NW_OK) require(total.messages == 0 && nw_account_bytes(&total) == 0);
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    require(out != NULL && nw_ledger_write_json(ledger, (nw_ledger_run){1, 1}, out) == NW_OK);
    require(nw_ledger_print(ledger, (nw_ledger_run){1, 1}, out) == NW_OK);
    fclose(out);
    free(text);
    free(bytes);
    free(bytes_again);
    nw_ledger_free(ledger);
    nw_ledger_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_ledger(data, size, false);
    try_ledger(data, size, true);
    return 0;
}
