/*
 * idx.h - the IDX format of MNIST: two zero bytes, a type, the number of dimensions, each dimension as a big-endian
 * 32-bit number, then the elements, big-endian, the last dimension fastest.
 */
#ifndef NW_DATA_IDX_H
#define NW_DATA_IDX_H

#include "data/array.h"

/* The array is a view into the data. */
nw_status nw_idx_read(nw_array *array, const uint8_t *data, size_t size, const char *name);

/* As above for a file that may be gzipped: then *owned holds the unpacked bytes, which the caller frees; otherwise it
 * is NULL. No more than `most` bytes are unpacked. */
nw_status nw_idx_read_packed(nw_array *array, const uint8_t *data, size_t size, const char *name, size_t most,
                             uint8_t **owned);

#endif
