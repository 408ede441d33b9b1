/*
 * json.c - a JSON writer that cannot write invalid JSON.
 *
 * Level 0 is the document, which holds exactly one value; each open object or array is one level more. Every value goes
 * through before_value and every container through open_container and close_container, so the rules of commas, keys and
 * indentation are each in one place. Write errors stay in the stream: its owner checks ferror before closing it.
 */
#define _GNU_SOURCE 1
#include "base/json.h"

#include "base/utf8.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void require(bool condition, const char *rule)
{
    if (condition) return;
    fprintf(stderr, "nowait: bug: JSON writer misused: %s\n", rule);
    abort();
}

static void break_line(nw_json *json)
{
    if (!json->pretty) return;
    fputc('\n', json->out);
    for (int i = 0; i < json->depth; i++) fputs("  ", json->out);
}

static void separate(nw_json *json)
{
    if (json->has_items[json->depth]) fputc(',', json->out);
    json->has_items[json->depth] = true;
    if (json->depth > 0) break_line(json);
}

static void before_value(nw_json *json)
{
    if (json->in_object[json->depth]) {
        require(json->after_key, "a value in an object needs a key");
        json->after_key = false;
        return;
    }
    require(json->depth > 0 || !json->has_items[0], "a document is one value");
    separate(json);
}

static void open_container(nw_json *json, bool object)
{
    before_value(json);
    require(json->depth + 1 < NW_JSON_DEPTH, "nested too deeply");
    json->depth++;
    json->in_object[json->depth] = object;
    json->has_items[json->depth] = false;
    fputc(object ? '{' : '[', json->out);
}

static void close_container(nw_json *json, bool object)
{
    require(json->depth > 0 && json->in_object[json->depth] == object, "an end without its beginning");
    require(!json->after_key, "a key without a value");
    bool empty = !json->has_items[json->depth];
    json->depth--;
    if (!empty) break_line(json);
    fputc(object ? '}' : ']', json->out);
}

static void write_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        size_t length = nw_utf8_length(at, SIZE_MAX); /* stops at the terminator, which continues nothing */
        if (length > 0) {
            fwrite(at, 1, length, out);
            at += length;
            continue;
        }
        switch (*at) {
        case '"':
            fputs("\\\"", out);
            break;
        case '\\':
            fputs("\\\\", out);
            break;
        case '\n':
            fputs("\\n", out);
            break;
        case '\r':
            fputs("\\r", out);
            break;
        case '\t':
            fputs("\\t", out);
            break;
        default:
            if (*at >= 0x20 && *at < 0x7F) {
                fputc(*at, out);
            } else {
                fprintf(out, "\\u%04x", *at);
            }
        }
        at++;
    }
    fputc('"', out);
}

nw_json nw_json_begin(FILE *out, bool pretty) { return (nw_json){.out = out, .pretty = pretty}; }

void nw_json_end(nw_json *json)
{
    require(json->depth == 0, "the document ends inside an object or array");
    require(json->has_items[0], "a document is one value");
    fputc('\n', json->out);
}

void nw_json_object(nw_json *json) { open_container(json, true); }

void nw_json_object_end(nw_json *json) { close_container(json, true); }

void nw_json_array(nw_json *json) { open_container(json, false); }

void nw_json_array_end(nw_json *json) { close_container(json, false); }

void nw_json_key(nw_json *json, const char *key)
{
    require(json->in_object[json->depth], "a key outside an object");
    require(!json->after_key, "a key after a key");
    separate(json);
    write_text(json->out, key);
    fputs(json->pretty ? ": " : ":", json->out);
    json->after_key = true;
}

void nw_json_string(nw_json *json, const char *text)
{
    before_value(json);
    if (text == NULL) {
        fputs("null", json->out);
    } else {
        write_text(json->out, text);
    }
}

void nw_json_int(nw_json *json, int64_t value)
{
    before_value(json);
    fprintf(json->out, "%" PRId64, value);
}

void nw_json_double(nw_json *json, double value)
{
    before_value(json);
    if (!isfinite(value)) {
        fputs("null", json->out);
        return;
    }
    /* 17 digits always read back; 15 give the shorter text of any number that has one, except below the normal range,
     * where a double carries fewer digits and all lengths are tried. */
    char digits[64];
    int precision = fabs(value) < DBL_MIN ? 1 : 15;
    do {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
    } while (strtod(digits, NULL) != value && ++precision <= 17);

    /* The locale may have written another decimal separator, even one of several bytes. */
    const char *plain = "0123456789+-e";
    size_t whole = strspn(digits, plain);
    fwrite(digits, 1, whole, json->out);
    if (digits[whole] != '\0') fprintf(json->out, ".%s", digits + whole + strcspn(digits + whole, plain));
}

void nw_json_bool(nw_json *json, bool value)
{
    before_value(json);
    fputs(value ? "true" : "false", json->out);
}

void nw_json_put_string(nw_json *json, const char *key, const char *text)
{
    nw_json_key(json, key);
    nw_json_string(json, text);
}

void nw_json_put_int(nw_json *json, const char *key, int64_t value)
{
    nw_json_key(json, key);
    nw_json_int(json, value);
}

void nw_json_put_double(nw_json *json, const char *key, double value)
{
    nw_json_key(json, key);
    nw_json_double(json, value);
}

void nw_json_put_bool(nw_json *json, const char *key, bool value)
{
    nw_json_key(json, key);
    nw_json_bool(json, value);
}

void nw_json_put_object(nw_json *json, const char *key)
{
    nw_json_key(json, key);
    nw_json_object(json);
}

void nw_json_put_array(nw_json *json, const char *key)
{
    nw_json_key(json, key);
    nw_json_array(json);
}
