/*
 * json_read.c - a JSON reader for bytes that nobody vouches for.
 *
 * The parser is a loop over values with a stack of open containers. All strings go into one buffer of the document's
 * size: a string of n bytes stands between two quotes, so with its zero it never needs more room than it had, and an
 * escape is never shorter than what it stands for.
 *
 * Numbers are checked against the grammar first and then converted by the C library in the "C" locale: the user's own
 * may have another decimal separator.
 */
#define _GNU_SOURCE 1
#include "base/json_read.h"

#include "base/number.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const char *name;
    const unsigned char *bytes;
    size_t size, at;
    nw_json_value *values;
    uint32_t count;
    char *text;
    size_t text_used;
    uint32_t open[NW_JSON_READ_DEPTH]; /* the containers around the present place */
    int depth;
} parser;

#define BAD(p, where, ...) bad((p), (where), __FILE__, __LINE__, __VA_ARGS__)

/* "name: at byte 12: ..." */
static nw_status bad(const parser *p, size_t where, const char *file, int line, const char *what)
{
    return nw_fail_at(NW_E_FILE, file, line, "%s: at byte %zu: %s; the file is damaged or no JSON", p->name, where,
                      what);
}

static void skip_space(parser *p)
{
    while (p->at < p->size && strchr(" \t\n\r", p->bytes[p->at]) && p->bytes[p->at] != 0) p->at++;
}

static nw_status new_value(parser *p, nw_json_type type, const char *key, nw_json_value **value)
{
    NW_FAIL_IF(p->count == NW_JSON_READ_VALUES, NW_E_FILE,
               "%s: at byte %zu: more than %d values, which no file of nowait has", p->name, p->at,
               NW_JSON_READ_VALUES);
    NW_FAIL_IF(!nw_grow(&p->values, p->count, sizeof *p->values), NW_E_MEMORY, "no memory for the %u values of %s",
               p->count + 1, p->name);
    *value = &p->values[p->count++];
    **value = (nw_json_value){.key = key, .type = type, .offset = (uint32_t)p->at, .span = 1};
    return NW_OK;
}

/* ---- strings ---- */

/* Four hexadecimal digits at p->at, or -1. */
static long hex4(parser *p)
{
    long value = 0;
    if (p->size - p->at < 4) return -1;
    for (int i = 0; i < 4; i++, p->at++) {
        int c = p->bytes[p->at];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

static void put_utf8(parser *p, long code)
{
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, code >>= 6) p->text[p->text_used + (size_t)i] = (char)(0x80 | (code & 0x3F));
    p->text[p->text_used] = (char)(lead[length] | code);
    p->text_used += (size_t)length;
}

static nw_status parse_escape(parser *p, size_t start)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    p->at++; /* the backslash */
    if (p->at == p->size) return BAD(p, start, "a string without end");
    const char *simple = p->bytes[p->at] ? strchr(from, p->bytes[p->at]) : NULL;
    if (simple) {
        p->text[p->text_used++] = to[simple - from];
        p->at++;
        return NW_OK;
    }
    size_t escape = p->at - 1;
    if (p->bytes[p->at] != 'u') return BAD(p, escape, "an unknown escape in a string");
    p->at++;
    long code = hex4(p);
    if (code < 0) return BAD(p, escape, "\\u needs four hexadecimal digits");
    if (code == 0) return BAD(p, escape, "a zero character in a string");
    if (code >= 0xD800 && code <= 0xDBFF) {
        long low = -1;
        if (p->size - p->at >= 6 && p->bytes[p->at] == '\\' && p->bytes[p->at + 1] == 'u') {
            p->at += 2;
            low = hex4(p);
        }
        if (low < 0xDC00 || low > 0xDFFF) return BAD(p, escape, "half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return BAD(p, escape, "half of a surrogate pair");
    }
    put_utf8(p, code);
    return NW_OK;
}

static nw_status parse_string(parser *p, const char **text)
{
    size_t start = p->at++;
    *text = p->text + p->text_used;
    while (p->at < p->size && p->bytes[p->at] != '"') {
        if (p->bytes[p->at] == '\\') {
            NW_TRY(parse_escape(p, start));
            continue;
        }
        if (p->bytes[p->at] < 0x20) return BAD(p, p->at, "a control character in a string");
        size_t length = p->bytes[p->at] < 0x80 ? 1 : nw_utf8_length(p->bytes + p->at, p->size - p->at);
        if (length == 0) return BAD(p, p->at, "a string that is not UTF-8");
        memcpy(p->text + p->text_used, p->bytes + p->at, length);
        p->text_used += length;
        p->at += length;
    }
    if (p->at == p->size) return BAD(p, start, "a string without end");
    p->at++;
    p->text[p->text_used++] = '\0';
    return NW_OK;
}

/* ---- numbers ---- */

static size_t digits(parser *p)
{
    size_t start = p->at;
    while (p->at < p->size && p->bytes[p->at] >= '0' && p->bytes[p->at] <= '9') p->at++;
    return p->at - start;
}

static bool accept(parser *p, const char *any)
{
    bool found = p->at < p->size && p->bytes[p->at] && strchr(any, p->bytes[p->at]);
    if (found) p->at++;
    return found;
}

static nw_status parse_number(parser *p, nw_json_value *value)
{
    size_t start = p->at;
    accept(p, "-");
    size_t first = p->at, whole = digits(p);
    bool good = whole > 0 && (whole == 1 || p->bytes[first] != '0');
    if (good && accept(p, ".")) good = digits(p) > 0;
    if (good && accept(p, "eE")) {
        accept(p, "+-");
        good = digits(p) > 0;
    }
    if (!good) return BAD(p, start, "a number that is written wrongly");
    char text[NW_JSON_READ_NUMBER_BYTES];
    if (p->at - start >= sizeof text) return BAD(p, start, "a number of more than 511 characters");
    memcpy(text, p->bytes + start, p->at - start);
    text[p->at - start] = '\0';

    NW_TRY(nw_number_convert(text, &value->number));
    if (!isfinite(value->number)) return BAD(p, start, "a number too large for a double");
    errno = 0;
    value->integer = strtoll(text, NULL, 10);
    value->is_integer = !strpbrk(text, ".eE") && errno == 0;
    if (!value->is_integer && fabs(value->number) <= 0x1p53 && value->number == trunc(value->number)) {
        value->is_integer = true; /* 1.0 or 1e3: doubles hold integers up to 2^53 exactly */
        value->integer = (int64_t)value->number;
    }
    return NW_OK;
}

/* ---- containers ---- */

static int compare_keys(const void *a, const void *b)
{
    const nw_json_value *x = *(const nw_json_value *const *)a, *y = *(const nw_json_value *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->offset > y->offset) - (x->offset < y->offset);
}

/* Keys are sorted and not compared each with each, so that a hostile file cannot make this slow. */
static nw_status check_keys(const parser *p, const nw_json_value *object)
{
    NW_AUTOFREE const nw_json_value **sorted = malloc((object->count + 1) * sizeof *sorted);
    NW_FAIL_IF(!sorted, NW_E_MEMORY, "no memory to check the %u keys of an object in %s", object->count, p->name);
    size_t n = 0;
    for (const nw_json_value *v = nw_json_first(object); v; v = nw_json_next(object, v)) sorted[n++] = v;
    qsort(sorted, n, sizeof *sorted, compare_keys);
    const nw_json_value *second = NULL;
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0 && (!second || sorted[i]->offset < second->offset))
            second = sorted[i];
    NW_FAIL_IF(second, NW_E_FILE, "%s: at byte %u: the key '%s' stands twice in one object; remove one of them",
               p->name, second->offset, second->key);
    return NW_OK;
}

static nw_status literal(parser *p, const char *word)
{
    size_t length = strlen(word);
    if (p->size - p->at < length || memcmp(p->bytes + p->at, word, length) != 0)
        return BAD(p, p->at, "no value where one was expected");
    p->at += length;
    return NW_OK;
}

/* One value; of a container only its opening bracket. */
static nw_status parse_value(parser *p, const char *key)
{
    nw_json_value *value = NULL;
    if (p->at == p->size) return BAD(p, p->at, "the text ends where a value was expected");
    NW_TRY(new_value(p, NW_JSON_NULL, key, &value));
    switch (p->bytes[p->at]) {
    case '{':
    case '[':
        if (p->depth == NW_JSON_READ_DEPTH) return BAD(p, p->at, "nested more than 64 deep");
        value->type = p->bytes[p->at] == '{' ? NW_JSON_OBJECT : NW_JSON_ARRAY;
        p->open[p->depth++] = p->count - 1;
        p->at++;
        return NW_OK;
    case '"':
        value->type = NW_JSON_STRING;
        return parse_string(p, &value->text);
    case 't':
    case 'f':
        value->type = NW_JSON_BOOL;
        value->boolean = p->bytes[p->at] == 't';
        return literal(p, value->boolean ? "true" : "false");
    case 'n':
        return literal(p, "null");
    case '-':
    case '0' ... '9':
        value->type = NW_JSON_NUMBER;
        return parse_number(p, value);
    default:
        return BAD(p, p->at, "no value where one was expected");
    }
}

/* The next child of the innermost open container, or its end. */
static nw_status parse_child(parser *p)
{
    nw_json_value *container = &p->values[p->open[p->depth - 1]];
    bool object = container->type == NW_JSON_OBJECT;
    skip_space(p);
    if (accept(p, object ? "}" : "]")) {
        container->span = p->count - p->open[p->depth - 1];
        p->depth--;
        return object ? check_keys(p, container) : NW_OK;
    }
    if (container->count > 0) {
        if (!accept(p, ",")) return BAD(p, p->at, object ? "expected ',' or '}'" : "expected ',' or ']'");
        skip_space(p);
    }
    container->count++;
    const char *key = NULL;
    if (object) {
        if (p->at == p->size || p->bytes[p->at] != '"') return BAD(p, p->at, "expected a key in double quotes");
        NW_TRY(parse_string(p, &key));
        skip_space(p);
        if (!accept(p, ":")) return BAD(p, p->at, "expected ':' after a key");
        skip_space(p);
    }
    return parse_value(p, key);
}

static nw_status parse_document(parser *p)
{
    skip_space(p);
    NW_TRY(parse_value(p, NULL));
    while (p->depth > 0) NW_TRY(parse_child(p));
    skip_space(p);
    if (p->at != p->size) return BAD(p, p->at, "something follows the end of the document");
    return NW_OK;
}

nw_status nw_json_parse(nw_json_document *document, const char *bytes, size_t size, const char *name)
{
    *document = (nw_json_document){0};
    NW_FAIL_IF(size > NW_JSON_READ_BYTES, NW_E_FILE, "%s: %zu bytes of JSON; at most %d are read", name, size,
               NW_JSON_READ_BYTES);
    size_t name_size = strlen(name) + 1;
    char *text = malloc(size + 1 + name_size);
    NW_FAIL_IF(!text, NW_E_MEMORY, "no memory for the %zu bytes of %s", size, name);
    memcpy(text + size + 1, name, name_size);
    parser p = {.name = name, .bytes = (const unsigned char *)bytes, .size = size, .text = text};
    NW_TRY_OR(parse_document(&p), (free(text), free(p.values)));
    *document = (nw_json_document){.name = text + size + 1, .values = p.values, .text = text};
    return NW_OK;
}

void nw_json_free(nw_json_document *document)
{
    free(document->values);
    free(document->text);
    *document = (nw_json_document){0};
}

/* ---- looking up ---- */

const nw_json_value *nw_json_first(const nw_json_value *container)
{
    return container->count > 0 ? container + 1 : NULL;
}

const nw_json_value *nw_json_next(const nw_json_value *container, const nw_json_value *child)
{
    const nw_json_value *next = child + child->span;
    return next < container + container->span ? next : NULL;
}

const nw_json_value *nw_json_find(const nw_json_value *object, const char *key)
{
    if (object->type != NW_JSON_OBJECT) return NULL;
    for (const nw_json_value *v = nw_json_first(object); v; v = nw_json_next(object, v))
        if (strcmp(v->key, key) == 0) return v;
    return NULL;
}

const char *nw_json_type_name(nw_json_type type)
{
    static const char *const names[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    return names[type];
}

nw_status nw_json_get(const nw_json_document *document, const nw_json_value *object, const char *key, nw_json_type type,
                      const nw_json_value **value)
{
    NW_FAIL_IF(object->type != NW_JSON_OBJECT, NW_E_FILE, "%s: at byte %u: expected an object with '%s', found %s",
               document->name, object->offset, key, nw_json_type_name(object->type));
    const nw_json_value *found = nw_json_find(object, key);
    NW_FAIL_IF(!found, NW_E_FILE, "%s: the object at byte %u has no '%s'; expected %s", document->name, object->offset,
               key, nw_json_type_name(type));
    NW_FAIL_IF(found->type != type, NW_E_FILE, "%s: at byte %u: '%s' is %s; expected %s", document->name, found->offset,
               key, nw_json_type_name(found->type), nw_json_type_name(type));
    *value = found;
    return NW_OK;
}

nw_status nw_json_get_text(const nw_json_document *document, const nw_json_value *object, const char *key,
                           const char **text)
{
    const nw_json_value *value;
    NW_TRY(nw_json_get(document, object, key, NW_JSON_STRING, &value));
    *text = value->text;
    return NW_OK;
}

nw_status nw_json_get_int(const nw_json_document *document, const nw_json_value *object, const char *key, int64_t least,
                          int64_t most, int64_t *integer)
{
    const nw_json_value *value;
    NW_TRY(nw_json_get(document, object, key, NW_JSON_NUMBER, &value));
    NW_FAIL_IF(!value->is_integer || value->integer < least || value->integer > most, NW_E_FILE,
               "%s: at byte %u: '%s' is %.17g; expected an integer from %" PRId64 " to %" PRId64, document->name,
               value->offset, key, value->number, least, most);
    *integer = value->integer;
    return NW_OK;
}
