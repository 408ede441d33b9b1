/* fuzz_json.c - the JSON reader on any bytes; a document that is accepted is walked through and its sums must agree. */
#include "base/json_read.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_json_document d;
    if (nw_json_parse(&d, (const char *)data, size, "fuzz") != NW_OK) return 0;
    uint32_t total = d.values[0].span;
    for (uint32_t i = 0; i < total; i++) {
        const nw_json_value *v = &d.values[i];
        uint32_t children = 0, span = 1;
        if (v->offset >= size) abort();
        if (v->type == NW_JSON_STRING && strlen(v->text) > size) abort();
        if (v->type != NW_JSON_OBJECT && v->type != NW_JSON_ARRAY) continue;
        for (const nw_json_value *c = nw_json_first(v); c; c = nw_json_next(v, c), children++) {
            span += c->span;
            if (children < 64 && v->type == NW_JSON_OBJECT && nw_json_find(v, c->key) != c) abort();
        }
        if (children != v->count || span != v->span) abort();
    }
    nw_json_free(&d);
    return 0;
}
