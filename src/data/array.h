/*
 * array.h - an n-dimensional array as numpy stores it: a type, a shape, and bytes that belong to someone else.
 *
 * Pickles, .npy files and IDX files all end in one of these. Only whole numbers and floats of the machine's sizes are
 * known; elements are read one by one through nw_array_int and nw_array_float, whatever their byte order, or as bytes
 * where they are bytes.
 */
#ifndef NW_DATA_ARRAY_H
#define NW_DATA_ARRAY_H

#include "base/status.h"

enum { NW_ARRAY_DIMS = 8 };

typedef struct nw_array {
    char kind; /* 'u', 'i', 'f', 'b' as numpy writes them */
    int item;  /* bytes of an element: 1, 2, 4, 8 */
    bool big;  /* big-endian */
    bool fortran;
    int dims;
    uint64_t shape[NW_ARRAY_DIMS];
    uint64_t count; /* product of the shape */
    const uint8_t *data;
    size_t size; /* count * item */
} nw_array;

/* Sets count and size from the shape; NW_E_FILE if they overflow or the data are not exactly `size` bytes. */
nw_status nw_array_finish(nw_array *array, const uint8_t *data, size_t size, const char *name);

/* From numpy's text of a type, such as "|u1", "<i8", ">f4" or "u1"; NW_E_FILE for anything else. */
nw_status nw_array_type(nw_array *array, const char *text, size_t length, const char *name);

int64_t nw_array_int(const nw_array *array, uint64_t index);
double nw_array_float(const nw_array *array, uint64_t index);

#endif
