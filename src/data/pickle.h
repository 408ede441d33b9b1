/*
 * pickle.h - reads the Python pickles that datasets are published in, and executes nothing.
 *
 * A pickle is a program for a small stack machine that may call any function. This reader knows only what CIFAR-10,
 * CIFAR-100 and ImageNet32 need, binary protocols 2 to 5, from Python 2 and 3:
 *
 *   PROTO FRAME STOP MARK                                                       the program's frame
 *   NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT                 numbers
 *   SHORT_BINSTRING BINSTRING                                                   text of Python 2
 *   SHORT_BINBYTES BINBYTES BINBYTES8 BYTEARRAY8                                bytes
 *   SHORT_BINUNICODE BINUNICODE BINUNICODE8                                     text
 *   EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
 *   BINPUT LONG_BINPUT MEMOIZE BINGET LONG_BINGET                               the memo
 *   GLOBAL STACK_GLOBAL REDUCE BUILD                                            only for the names below
 *
 * A global is one of numpy.core.multiarray._reconstruct, numpy.core.multiarray.scalar, numpy.core.numeric._frombuffer
 * (numpy._core as well), numpy.ndarray, numpy.dtype, _codecs.encode (bytes in protocol 2 of Python 3), and bytes or
 * bytearray of __builtin__ or builtins. They are not called: the reader builds what they would. Anything else is
 * refused with its name and offset.
 *
 * The result is a graph of values; bytes, texts and arrays are views into the file, which must outlive it, except bytes
 * that _codecs.encode makes, which are never more than the file has. Values are at most NW_PICKLE_MOST, memo entries at
 * most a little more than values put into it. Values may be shared, or even contain themselves: walk to a known depth.
 */
#ifndef NW_DATA_PICKLE_H
#define NW_DATA_PICKLE_H

#include "data/array.h"

enum { NW_PICKLE_MOST = 4 << 20 };

typedef enum nw_pickle_kind {
    NW_PICKLE_NONE,
    NW_PICKLE_BOOL,
    NW_PICKLE_INT,
    NW_PICKLE_FLOAT,
    NW_PICKLE_BYTES, /* also text: `bytes` has no zero at its end */
    NW_PICKLE_TUPLE, /* items[0 .. count) */
    NW_PICKLE_LIST,
    NW_PICKLE_DICT, /* keys and values in turns: items[0 .. 2 count) */
    NW_PICKLE_ARRAY,
    NW_PICKLE_TYPE,     /* a numpy.dtype: only inside other things */
    NW_PICKLE_FUNCTION, /* one of the known globals: integer */
} nw_pickle_kind;

typedef struct nw_pickle_value nw_pickle_value;
struct nw_pickle_value {
    nw_pickle_kind kind;
    uint32_t count, capacity; /* of items; of a dict: pairs */
    union {
        int64_t integer;
        double real;
        struct {
            const uint8_t *bytes;
            size_t size;
        };
        nw_pickle_value **items;
        nw_array *array;
    };
};

typedef struct nw_pickle nw_pickle;

/* `name` is for messages; NW_E_FILE gives it with the offset. */
nw_status nw_pickle_read(nw_pickle **pickle, const uint8_t *data, size_t size, const char *name);
void nw_pickle_free(nw_pickle *pickle);
const nw_pickle_value *nw_pickle_root(const nw_pickle *pickle);

/* The value of a key (text or bytes) of a dict, or NULL. */
const nw_pickle_value *nw_pickle_find(const nw_pickle_value *dict, const char *key);

#endif
