/*
 * pickle.c - a stack machine that runs the harmless part of Python's pickles; see pickle.h.
 *
 * Invariants: every read is checked against the end of the file first; every value lives in a chunk of the pickle and
 * is freed with it, never by walking the graph; stack, marks and memo grow by what the program pushes, so a short file
 * cannot ask for much memory. One reader is used by one thread.
 */
#include "data/pickle.h"

#include "data/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512, MEMO_SLACK = 1024 };

typedef nw_pickle_value value;

typedef struct chunk {
    struct chunk *next;
    int used;
    value values[CHUNK];
} chunk;

struct nw_pickle {
    chunk *chunks;
    size_t values;
    uint8_t **owned; /* bytes that _codecs.encode made */
    size_t owned_count, owned_capacity, owned_bytes;
    value *root;
};

typedef enum function { RECONSTRUCT, SCALAR, FROM_BUFFER, NDARRAY, DTYPE, ENCODE, BYTES } function;

static const struct {
    const char *module, *name;
    function id;
} globals[] = {
    {"numpy.core.multiarray", "_reconstruct", RECONSTRUCT},
    {"numpy._core.multiarray", "_reconstruct", RECONSTRUCT},
    {"numpy.core.multiarray", "scalar", SCALAR},
    {"numpy._core.multiarray", "scalar", SCALAR},
    {"numpy.core.numeric", "_frombuffer", FROM_BUFFER},
    {"numpy._core.numeric", "_frombuffer", FROM_BUFFER},
    {"numpy", "ndarray", NDARRAY},
    {"numpy", "dtype", DTYPE},
    {"_codecs", "encode", ENCODE},
    {"__builtin__", "bytes", BYTES},
    {"builtins", "bytes", BYTES},
    {"__builtin__", "bytearray", BYTES},
    {"builtins", "bytearray", BYTES},
};

/* The machine while it runs. */
typedef struct machine {
    nw_pickle *pickle;
    const uint8_t *data;
    size_t size, at, start; /* start: offset of the current opcode */
    const char *name;
    value **stack, **memo;
    size_t depth, stack_capacity, memo_count, memo_capacity, puts;
    size_t *marks;
    size_t mark_count, mark_capacity;
} machine;

#define BAD(m, ...) bad_at((m), __LINE__, __VA_ARGS__)
#define BAD_IF(condition, ...)                  \
    do {                                        \
        if (condition) return BAD(__VA_ARGS__); \
    } while (0)

static nw_status bad_at(const machine *m, int line, const char *what)
{
    return nw_fail_at(NW_E_FILE, __FILE__, line, "%s: at offset %zu %s; it is not a pickle of a known dataset", m->name,
                      m->start, what);
}

static nw_status no_memory(const machine *m)
{
    return NW_FAIL(NW_E_MEMORY, "%s: no memory for the values of this pickle", m->name);
}

/* Makes room for one more element of `item` bytes. */
static nw_status reserve(const machine *m, void *array, size_t *capacity, size_t count, size_t item)
{
    if (count < *capacity) return NW_OK;
    size_t wanted = *capacity ? *capacity * 2 : 64;
    void *old, *more;
    memcpy(&old, array, sizeof old);
    more = realloc(old, wanted * item);
    if (!more) return no_memory(m);
    memcpy(array, &more, sizeof more);
    *capacity = wanted;
    return NW_OK;
}

static nw_status make_value(machine *m, nw_pickle_kind kind, value **out)
{
    nw_pickle *p = m->pickle;
    BAD_IF(p->values >= NW_PICKLE_MOST, m, "there are more values than any dataset has");
    if (!p->chunks || p->chunks->used == CHUNK) {
        chunk *fresh = calloc(1, sizeof *fresh);
        if (!fresh) return no_memory(m);
        fresh->next = p->chunks;
        p->chunks = fresh;
    }
    p->values++;
    *out = &p->chunks->values[p->chunks->used++];
    (*out)->kind = kind;
    return NW_OK;
}

static nw_status push(machine *m, value *v)
{
    NW_TRY(reserve(m, &m->stack, &m->stack_capacity, m->depth, sizeof *m->stack));
    m->stack[m->depth++] = v;
    return NW_OK;
}

static nw_status push_new(machine *m, nw_pickle_kind kind, value **out)
{
    NW_TRY(make_value(m, kind, out));
    return push(m, *out);
}

/* Values above the last mark belong to it: nothing else may pop them from below. */
static size_t floor_of(const machine *m) { return m->mark_count ? m->marks[m->mark_count - 1] : 0; }

static nw_status pop(machine *m, value **out)
{
    BAD_IF(m->depth <= floor_of(m), m, "the stack is empty");
    *out = m->stack[--m->depth];
    return NW_OK;
}

static nw_status top(machine *m, nw_pickle_kind kind, value **out)
{
    BAD_IF(m->depth <= floor_of(m) || m->stack[m->depth - 1]->kind != kind, m, "the stack holds another kind of value");
    *out = m->stack[m->depth - 1];
    return NW_OK;
}

/* `count` bytes at the cursor, which moves past them. */
static nw_status take_bytes(machine *m, uint64_t count, const uint8_t **out)
{
    *out = m->data + m->at;
    BAD_IF(count > m->size - m->at, m, "the file ends inside a value");
    m->at += (size_t)count;
    return NW_OK;
}

/* A little-endian number of 1, 2, 4 or 8 bytes. */
static nw_status take_number(machine *m, int bytes, uint64_t *out)
{
    const uint8_t *p;
    *out = 0;
    NW_TRY(take_bytes(m, (uint64_t)bytes, &p));
    for (int i = bytes - 1; i >= 0; i--) *out = *out << 8 | p[i];
    return NW_OK;
}

static nw_status push_bytes(machine *m, int length_bytes)
{
    uint64_t length;
    const uint8_t *p;
    value *v;
    NW_TRY(take_number(m, length_bytes, &length));
    NW_TRY(take_bytes(m, length, &p));
    NW_TRY(push_new(m, NW_PICKLE_BYTES, &v));
    v->bytes = p;
    v->size = (size_t)length;
    return NW_OK;
}

static nw_status push_int(machine *m, int64_t integer)
{
    value *v;
    NW_TRY(push_new(m, NW_PICKLE_INT, &v));
    v->integer = integer;
    return NW_OK;
}

static nw_status push_long(machine *m)
{
    uint64_t length, bits = 0;
    const uint8_t *p;
    NW_TRY(take_number(m, 1, &length));
    BAD_IF(length > 8, m, "a number has more than 64 bits");
    NW_TRY(take_bytes(m, length, &p));
    for (uint64_t i = length; i-- > 0;) bits = bits << 8 | p[i];
    if (length > 0 && length < 8 && (p[length - 1] & 0x80)) bits |= ~(uint64_t)0 << (8 * length);
    return push_int(m, (int64_t)bits);
}

static nw_status push_float(machine *m)
{
    const uint8_t *p;
    value *v;
    NW_TRY(take_bytes(m, 8, &p));
    uint64_t bits = (uint64_t)nw_get_be32(p) << 32 | nw_get_be32(p + 4);
    NW_TRY(push_new(m, NW_PICKLE_FLOAT, &v));
    memcpy(&v->real, &bits, sizeof bits);
    return NW_OK;
}

static nw_status add_items(machine *m, value *v, value **items, size_t count)
{
    size_t have = v->kind == NW_PICKLE_DICT ? (size_t)v->count * 2 : v->count;
    if (have + count > v->capacity) {
        size_t wanted = v->capacity ? (size_t)v->capacity * 2 : 4;
        if (wanted < have + count) wanted = have + count;
        BAD_IF(wanted > UINT32_MAX, m, "a list is longer than any dataset's");
        value **more = realloc(v->items, wanted * sizeof *more);
        if (!more) return no_memory(m);
        v->items = more;
        v->capacity = (uint32_t)wanted;
    }
    if (count) memcpy(v->items + have, items, count * sizeof *items);
    v->count += (uint32_t)(v->kind == NW_PICKLE_DICT ? count / 2 : count);
    return NW_OK;
}

/* The values above the last mark, which is removed with them. */
static nw_status pop_mark(machine *m, value ***items, size_t *count)
{
    *items = NULL;
    *count = 0;
    BAD_IF(m->mark_count == 0, m, "there is no mark");
    size_t from = m->marks[--m->mark_count];
    *items = m->stack ? m->stack + from : NULL;
    *count = m->depth - from;
    m->depth = from;
    return NW_OK;
}

static nw_status push_tuple(machine *m, int count)
{
    value *v, *items[3];
    for (int i = count - 1; i >= 0; i--) NW_TRY(pop(m, &items[i]));
    NW_TRY(push_new(m, NW_PICKLE_TUPLE, &v));
    return add_items(m, v, items, (size_t)count);
}

static nw_status push_tuple_from_mark(machine *m)
{
    value *v, **items;
    size_t count;
    NW_TRY(pop_mark(m, &items, &count));
    NW_TRY(make_value(m, NW_PICKLE_TUPLE, &v));
    NW_TRY(add_items(m, v, items, count)); /* before the push, which overwrites the first of them */
    return push(m, v);
}

static nw_status add_one(machine *m, nw_pickle_kind kind, int count)
{
    value *v, *items[2];
    for (int i = count - 1; i >= 0; i--) NW_TRY(pop(m, &items[i]));
    NW_TRY(top(m, kind, &v));
    return add_items(m, v, items, (size_t)count);
}

static nw_status add_from_mark(machine *m, nw_pickle_kind kind)
{
    value *v, **items;
    size_t count;
    NW_TRY(pop_mark(m, &items, &count));
    NW_TRY(top(m, kind, &v));
    BAD_IF(kind == NW_PICKLE_DICT && count % 2, m, "a key has no value");
    return add_items(m, v, items, count);
}

static nw_status memo_put(machine *m, uint64_t index)
{
    BAD_IF(m->depth <= floor_of(m), m, "the stack is empty");
    BAD_IF(index > m->puts + MEMO_SLACK, m, "a memo index leaps ahead");
    while (m->memo_count <= index) {
        NW_TRY(reserve(m, &m->memo, &m->memo_capacity, m->memo_count, sizeof *m->memo));
        m->memo[m->memo_count++] = NULL;
    }
    m->memo[index] = m->stack[m->depth - 1];
    m->puts++;
    return NW_OK;
}

static nw_status memo_get(machine *m, uint64_t index)
{
    BAD_IF(index >= m->memo_count || !m->memo[index], m, "a memo entry is used that was never put");
    return push(m, m->memo[index]);
}

static nw_status push_global(machine *m, const uint8_t *module, size_t module_size, const uint8_t *name,
                             size_t name_size)
{
    for (size_t i = 0; i < sizeof globals / sizeof globals[0]; i++) {
        if (strlen(globals[i].module) != module_size || memcmp(globals[i].module, module, module_size) != 0) continue;
        if (strlen(globals[i].name) != name_size || memcmp(globals[i].name, name, name_size) != 0) continue;
        value *v;
        NW_TRY(push_new(m, NW_PICKLE_FUNCTION, &v));
        v->integer = globals[i].id;
        return NW_OK;
    }
    char text[96];
    int length = snprintf(text, sizeof text, "%.*s.%.*s", (int)(module_size < 40 ? module_size : 40),
                          (const char *)module, (int)(name_size < 40 ? name_size : 40), (const char *)name);
    for (int i = 0; i < length && i < (int)sizeof text; i++)
        if ((unsigned char)text[i] < 32 || (unsigned char)text[i] > 126) text[i] = '?';
    return NW_FAIL(
        NW_E_FILE,
        "%s: at offset %zu the pickle wants to run '%s', which no known dataset needs; do not trust this file", m->name,
        m->start, text);
}

static nw_status take_line(machine *m, const uint8_t **line, size_t *length)
{
    const uint8_t *end = memchr(m->data + m->at, '\n', m->size - m->at);
    BAD_IF(!end, m, "the file ends inside a name");
    *line = m->data + m->at;
    *length = (size_t)(end - *line);
    m->at += *length + 1;
    return NW_OK;
}

/* ---- What the known functions would make ------------------------------------------------------------------------- */

static nw_status make_array(machine *m, nw_pickle_kind kind, value **out)
{
    NW_TRY(make_value(m, kind, out));
    (*out)->array = calloc(1, sizeof(nw_array));
    if (!(*out)->array) return no_memory(m);
    return NW_OK;
}

static bool is_bytes(const value *v) { return v->kind == NW_PICKLE_BYTES; }

static nw_status set_shape(machine *m, nw_array *a, const value *shape)
{
    BAD_IF(shape->kind != NW_PICKLE_TUPLE || shape->count > NW_ARRAY_DIMS, m, "an array's shape is no short tuple");
    a->dims = (int)shape->count;
    for (int i = 0; i < a->dims; i++) {
        BAD_IF(shape->items[i]->kind != NW_PICKLE_INT || shape->items[i]->integer < 0, m,
               "an array's shape has something else than whole numbers");
        a->shape[i] = (uint64_t)shape->items[i]->integer;
    }
    return NW_OK;
}

static nw_status fill_array(machine *m, nw_array *a, const value *shape, const value *type, const value *data,
                            bool fortran)
{
    BAD_IF(type->kind != NW_PICKLE_TYPE, m, "an array has no numpy type");
    BAD_IF(!is_bytes(data), m, "an array's data are not bytes");
    NW_TRY(set_shape(m, a, shape));
    a->kind = type->array->kind;
    a->item = type->array->item;
    a->big = type->array->big;
    a->fortran = fortran;
    return nw_array_finish(a, data->bytes, data->size, m->name);
}

/* bytes travel as text in Python 3's protocol 2: each byte is a code point below 256, in UTF-8. */
static nw_status encode_latin1(machine *m, const value *text, value **out)
{
    nw_pickle *p = m->pickle;
    size_t length = 0;
    BAD_IF(text->size > m->size - p->owned_bytes, m, "texts are converted to more bytes than the file has");
    NW_TRY(reserve(m, &p->owned, &p->owned_capacity, p->owned_count, sizeof *p->owned));
    uint8_t *bytes = malloc(text->size ? text->size : 1);
    if (!bytes) return no_memory(m);
    p->owned[p->owned_count++] = bytes;
    p->owned_bytes += text->size;
    for (size_t i = 0; i < text->size; i++) {
        uint8_t c = text->bytes[i];
        if (c >= 0x80) {
            bool fits = (c == 0xC2 || c == 0xC3) && i + 1 < text->size && (text->bytes[i + 1] & 0xC0) == 0x80;
            BAD_IF(!fits, m, "a text has characters that are no bytes");
            c = (uint8_t)(c << 6 | (text->bytes[++i] & 0x3F));
        }
        bytes[length++] = c;
    }
    NW_TRY(make_value(m, NW_PICKLE_BYTES, out));
    (*out)->bytes = bytes;
    (*out)->size = length;
    return NW_OK;
}

static nw_status make_scalar(machine *m, const value *type, const value *data, value **out)
{
    nw_array a;
    BAD_IF(type->kind != NW_PICKLE_TYPE || !is_bytes(data), m, "a numpy scalar is not a type and bytes");
    a = *type->array;
    a.dims = 0;
    NW_TRY(nw_array_finish(&a, data->bytes, data->size, m->name));
    NW_TRY(make_value(m, a.kind == 'f' ? NW_PICKLE_FLOAT : NW_PICKLE_INT, out));
    if (a.kind == 'f')
        (*out)->real = nw_array_float(&a, 0);
    else
        (*out)->integer = nw_array_int(&a, 0);
    return NW_OK;
}

static nw_status reduce(machine *m)
{
    value *arguments, *called, *out;
    NW_TRY(pop(m, &arguments));
    NW_TRY(pop(m, &called));
    BAD_IF(called->kind != NW_PICKLE_FUNCTION || arguments->kind != NW_PICKLE_TUPLE, m,
           "something is called that is no known function");
    value **a = arguments->items;
    uint32_t n = arguments->count;
    switch ((function)called->integer) {
    case RECONSTRUCT:
        BAD_IF(n != 3 || a[0]->kind != NW_PICKLE_FUNCTION || a[0]->integer != NDARRAY, m, "an array has another class");
        NW_TRY(make_array(m, NW_PICKLE_ARRAY, &out));
        break;
    case DTYPE:
        BAD_IF(n < 1 || !is_bytes(a[0]), m, "a numpy type has no name");
        NW_TRY(make_array(m, NW_PICKLE_TYPE, &out));
        NW_TRY(nw_array_type(out->array, (const char *)a[0]->bytes, a[0]->size, m->name));
        break;
    case SCALAR:
        BAD_IF(n != 2, m, "a numpy scalar is not a type and bytes");
        NW_TRY(make_scalar(m, a[0], a[1], &out));
        break;
    case FROM_BUFFER:
        BAD_IF(n != 4 || !is_bytes(a[3]), m, "an array is not made of data, type, shape and order");
        NW_TRY(make_array(m, NW_PICKLE_ARRAY, &out));
        NW_TRY(fill_array(m, out->array, a[2], a[1], a[0], a[3]->size == 1 && a[3]->bytes[0] == 'F'));
        break;
    case ENCODE:
        BAD_IF(n < 1 || !is_bytes(a[0]), m, "no text is converted to bytes");
        NW_TRY(encode_latin1(m, a[0], &out));
        break;
    case BYTES:
        BAD_IF(n > 1 || (n == 1 && !is_bytes(a[0])), m, "bytes are made of something else than bytes");
        NW_TRY(make_value(m, NW_PICKLE_BYTES, &out));
        if (n == 1) {
            out->bytes = a[0]->bytes;
            out->size = a[0]->size;
        }
        break;
    default:
        return BAD(m, "something is called that only names a class");
    }
    return push(m, out);
}

/* BUILD gives an array its contents and a type its byte order. */
static nw_status build(machine *m)
{
    value *state, *object;
    NW_TRY(pop(m, &state));
    BAD_IF(m->depth <= floor_of(m), m, "the stack is empty");
    object = m->stack[m->depth - 1];
    BAD_IF(state->kind != NW_PICKLE_TUPLE, m, "an object's state is no tuple");
    if (object->kind == NW_PICKLE_TYPE) {
        BAD_IF(state->count < 2 || !is_bytes(state->items[1]) || state->items[1]->size != 1, m,
               "a numpy type has no byte order");
        object->array->big = state->items[1]->bytes[0] == '>';
        return NW_OK;
    }
    BAD_IF(object->kind != NW_PICKLE_ARRAY || state->count != 5, m, "an object is built that is no array");
    return fill_array(m, object->array, state->items[1], state->items[2], state->items[4],
                      state->items[3]->kind == NW_PICKLE_BOOL && state->items[3]->integer);
}

/* ---- The machine ------------------------------------------------------------------------------------------------- */

static nw_status push_stack_global(machine *m)
{
    value *module, *name;
    NW_TRY(pop(m, &name));
    NW_TRY(pop(m, &module));
    BAD_IF(!is_bytes(module) || !is_bytes(name), m, "a global's name is no text");
    return push_global(m, module->bytes, module->size, name->bytes, name->size);
}

static nw_status step(machine *m, uint8_t opcode)
{
    const uint8_t *p, *q;
    size_t length, other;
    uint64_t n;
    value *v;
    switch (opcode) {
    case 0x80: /* PROTO */
        NW_TRY(take_number(m, 1, &n));
        BAD_IF(n < 2 || n > 5, m, "the protocol is not 2 to 5");
        return NW_OK;
    case 0x95: /* FRAME */
        return take_number(m, 8, &n);
    case '(': /* MARK */
        NW_TRY(reserve(m, &m->marks, &m->mark_capacity, m->mark_count, sizeof *m->marks));
        m->marks[m->mark_count++] = m->depth;
        return NW_OK;
    case 'N': /* NONE */
        return push_new(m, NW_PICKLE_NONE, &v);
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        NW_TRY(push_new(m, NW_PICKLE_BOOL, &v));
        v->integer = opcode == 0x88;
        return NW_OK;
    case 'J': /* BININT */
        NW_TRY(take_number(m, 4, &n));
        return push_int(m, (int32_t)(uint32_t)n);
    case 'K': /* BININT1 */
        NW_TRY(take_number(m, 1, &n));
        return push_int(m, (int64_t)n);
    case 'M': /* BININT2 */
        NW_TRY(take_number(m, 2, &n));
        return push_int(m, (int64_t)n);
    case 0x8a: /* LONG1 */
        return push_long(m);
    case 'G': /* BINFLOAT */
        return push_float(m);
    case 'U':  /* SHORT_BINSTRING */
    case 'C':  /* SHORT_BINBYTES */
    case 0x8c: /* SHORT_BINUNICODE */
        return push_bytes(m, 1);
    case 'T': /* BINSTRING */
    case 'B': /* BINBYTES */
    case 'X': /* BINUNICODE */
        return push_bytes(m, 4);
    case 0x8d: /* BINUNICODE8 */
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return push_bytes(m, 8);
    case ')': /* EMPTY_TUPLE */
        return push_new(m, NW_PICKLE_TUPLE, &v);
    case 't': /* TUPLE */
        return push_tuple_from_mark(m);
    case 0x85: /* TUPLE1 */
    case 0x86: /* TUPLE2 */
    case 0x87: /* TUPLE3 */
        return push_tuple(m, opcode - 0x84);
    case ']': /* EMPTY_LIST */
        return push_new(m, NW_PICKLE_LIST, &v);
    case 'a': /* APPEND */
        return add_one(m, NW_PICKLE_LIST, 1);
    case 'e': /* APPENDS */
        return add_from_mark(m, NW_PICKLE_LIST);
    case '}': /* EMPTY_DICT */
        return push_new(m, NW_PICKLE_DICT, &v);
    case 's': /* SETITEM */
        return add_one(m, NW_PICKLE_DICT, 2);
    case 'u': /* SETITEMS */
        return add_from_mark(m, NW_PICKLE_DICT);
    case 'q': /* BINPUT */
        NW_TRY(take_number(m, 1, &n));
        return memo_put(m, n);
    case 'r': /* LONG_BINPUT */
        NW_TRY(take_number(m, 4, &n));
        return memo_put(m, n);
    case 0x94: /* MEMOIZE */
        return memo_put(m, m->memo_count);
    case 'h': /* BINGET */
        NW_TRY(take_number(m, 1, &n));
        return memo_get(m, n);
    case 'j': /* LONG_BINGET */
        NW_TRY(take_number(m, 4, &n));
        return memo_get(m, n);
    case 'c': /* GLOBAL */
        NW_TRY(take_line(m, &p, &length));
        NW_TRY(take_line(m, &q, &other));
        return push_global(m, p, length, q, other);
    case 0x93: /* STACK_GLOBAL */
        return push_stack_global(m);
    case 'R': /* REDUCE */
        return reduce(m);
    case 'b': /* BUILD */
        return build(m);
    default:
        break;
    }
    return NW_FAIL(NW_E_FILE, "%s: at offset %zu there is opcode 0x%02x, which no pickle of a known dataset has",
                   m->name, m->start, opcode);
}

static nw_status run_opcodes(machine *m)
{
    for (;;) {
        const uint8_t *opcode;
        m->start = m->at;
        NW_TRY(take_bytes(m, 1, &opcode));
        if (*opcode == '.') { /* STOP */
            BAD_IF(m->mark_count != 0 || m->depth != 1, m, "the pickle ends with something left to do");
            m->pickle->root = m->stack[0];
            return NW_OK;
        }
        NW_TRY(step(m, *opcode));
    }
}

nw_status nw_pickle_read(nw_pickle **pickle, const uint8_t *data, size_t size, const char *name)
{
    machine m = {.data = data, .size = size, .name = name, .pickle = calloc(1, sizeof(nw_pickle))};
    *pickle = NULL;
    if (!m.pickle) return no_memory(&m);
    nw_status status = run_opcodes(&m);
    free(m.stack);
    free(m.memo);
    free(m.marks);
    NW_TRY_OR(status, nw_pickle_free(m.pickle));
    *pickle = m.pickle;
    return NW_OK;
}

void nw_pickle_free(nw_pickle *pickle)
{
    if (!pickle) return;
    for (chunk *c = pickle->chunks, *next; c; c = next) {
        next = c->next;
        for (int i = 0; i < c->used; i++) {
            value *v = &c->values[i];
            if (v->kind == NW_PICKLE_TUPLE || v->kind == NW_PICKLE_LIST || v->kind == NW_PICKLE_DICT) free(v->items);
            if (v->kind == NW_PICKLE_ARRAY || v->kind == NW_PICKLE_TYPE) free(v->array);
        }
        free(c);
    }
    for (size_t i = 0; i < pickle->owned_count; i++) free(pickle->owned[i]);
    free(pickle->owned);
    free(pickle);
}

const nw_pickle_value *nw_pickle_root(const nw_pickle *pickle) { return pickle->root; }

const nw_pickle_value *nw_pickle_find(const nw_pickle_value *dict, const char *key)
{
    size_t length = strlen(key);
    if (dict->kind != NW_PICKLE_DICT) return NULL;
    for (uint32_t i = 0; i < dict->count; i++) {
        const value *k = dict->items[2 * i];
        if (k->kind == NW_PICKLE_BYTES && k->size == length && memcmp(k->bytes, key, length) == 0)
            return dict->items[2 * i + 1];
    }
    return NULL;
}
