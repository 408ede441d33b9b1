/*
 * npz.h - numpy's .npy arrays, and .npz files: zip archives of them, stored or deflated (zip64 included).
 */
#ifndef NW_DATA_NPZ_H
#define NW_DATA_NPZ_H

#include "data/array.h"

/* One .npy file in memory, versions 1 to 3; the array is a view into it. */
nw_status nw_npy_read(nw_array *array, const uint8_t *data, size_t size, const char *name);

/* The array called `member` ("data" finds "data.npy") of a .npz file in memory; *found tells whether there is one. A
 * deflated member is inflated into *owned, which the caller frees; a stored one is a view and *owned is NULL. */
nw_status nw_npz_read(nw_array *array, const uint8_t *data, size_t size, const char *name, const char *member,
                      bool *found, uint8_t **owned);

#endif
