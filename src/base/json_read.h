/*
 * json_read.h - a JSON reader for bytes that nobody vouches for.
 *
 * Strict RFC 8259: one value, UTF-8 checked, no duplicate keys, no zero characters in strings; depth, bytes and values
 * are limited. It does not recurse. Every failure is NW_E_FILE with the document's name and the byte where it was
 * found.
 *
 * Values lie in one array in the order of the text: the first child of a container follows it, and the next sibling of
 * a value is `span` places on. Pointers into a document are valid until nw_json_free; nothing changes after
 * nw_json_parse, so any number of threads may read.
 */
#ifndef NW_BASE_JSON_READ_H
#define NW_BASE_JSON_READ_H

#include "base/status.h"

enum {
    NW_JSON_READ_DEPTH = 64,         /* nested objects and arrays */
    NW_JSON_READ_BYTES = 16 << 20,   /* of a document */
    NW_JSON_READ_VALUES = 1 << 20,   /* of a document */
    NW_JSON_READ_NUMBER_BYTES = 512, /* of one number */
};

typedef enum nw_json_type {
    NW_JSON_NULL,
    NW_JSON_BOOL,
    NW_JSON_NUMBER,
    NW_JSON_STRING,
    NW_JSON_ARRAY,
    NW_JSON_OBJECT,
} nw_json_type;

typedef struct nw_json_value {
    const char *key;  /* of a member of an object; otherwise NULL */
    const char *text; /* of a string: unescaped, with a zero at the end */
    double number;
    int64_t integer; /* of a number that is one exactly */
    uint32_t offset; /* of its first byte in the document */
    uint32_t span;   /* values from here to the next sibling, itself counted */
    uint32_t count;  /* members or elements of a container */
    nw_json_type type;
    bool boolean, is_integer;
} nw_json_value;

typedef struct nw_json_document {
    const char *name;      /* for messages, usually the path */
    nw_json_value *values; /* values[0] is the whole */
    char *text;            /* keys, strings and the name */
} nw_json_document;

/* Parses `size` bytes, which need no zero at the end and are not needed afterwards. After a failure the document is
 * empty and needs no nw_json_free. */
nw_status nw_json_parse(nw_json_document *document, const char *bytes, size_t size, const char *name);
void nw_json_free(nw_json_document *document);

/* Children of an object or array, in the order of the text:
 *   for (const nw_json_value *v = nw_json_first(list); v; v = nw_json_next(list, v)) ...                            */
const nw_json_value *nw_json_first(const nw_json_value *container);
const nw_json_value *nw_json_next(const nw_json_value *container, const nw_json_value *child);
/* The member of that name; NULL where there is none or `object` is no object. */
const nw_json_value *nw_json_find(const nw_json_value *object, const char *key);

/* Members that must be there. NW_E_FILE names document, byte, key, what was expected and what is there. */
nw_status nw_json_get(const nw_json_document *document, const nw_json_value *object, const char *key, nw_json_type type,
                      const nw_json_value **value);
nw_status nw_json_get_text(const nw_json_document *document, const nw_json_value *object, const char *key,
                           const char **text);
nw_status nw_json_get_int(const nw_json_document *document, const nw_json_value *object, const char *key, int64_t least,
                          int64_t most, int64_t *value);

/* "an object", "a number", ...: for messages. */
const char *nw_json_type_name(nw_json_type type);

#endif
