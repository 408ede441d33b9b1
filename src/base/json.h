/*
 * json.h - a JSON writer that cannot write invalid JSON.
 *
 * Commas, nesting and escapes are its business. Text is UTF-8; control characters and invalid bytes are escaped as
 * \u00XX (newline, return and tab in their short form). Numbers that JSON cannot hold (nan, infinities) are written as
 * null. Misuse (a value without key inside an object, unbalanced ends, a second value after the first) aborts: it is a
 * bug, not an input error. One writer writes one document; for JSON Lines, begin and end one a line.
 */
#ifndef NW_BASE_JSON_H
#define NW_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { NW_JSON_DEPTH = 32 }; /* levels, the document itself counted: 31 nested objects or arrays */

typedef struct nw_json {
    FILE *out;
    int depth;
    bool in_object[NW_JSON_DEPTH];
    bool has_items[NW_JSON_DEPTH];
    bool after_key;
    bool pretty; /* newlines and two spaces a level */
} nw_json;

nw_json nw_json_begin(FILE *out, bool pretty);
void nw_json_end(nw_json *json); /* checks that all is closed; writes a newline */
void nw_json_object(nw_json *json);
void nw_json_object_end(nw_json *json);
void nw_json_array(nw_json *json);
void nw_json_array_end(nw_json *json);
void nw_json_key(nw_json *json, const char *key);
void nw_json_string(nw_json *json, const char *text); /* NULL: null */
void nw_json_int(nw_json *json, int64_t value);
void nw_json_double(nw_json *json, double value); /* shortest text that reads back as the same double */
void nw_json_bool(nw_json *json, bool value);

/* A key and its value, or what opens it. */
void nw_json_put_string(nw_json *json, const char *key, const char *text);
void nw_json_put_int(nw_json *json, const char *key, int64_t value);
void nw_json_put_double(nw_json *json, const char *key, double value);
void nw_json_put_bool(nw_json *json, const char *key, bool value);
void nw_json_put_object(nw_json *json, const char *key);
void nw_json_put_array(nw_json *json, const char *key);

#endif
