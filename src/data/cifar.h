/*
 * cifar.h - the binary version of CIFAR-10 and CIFAR-100: records of one or two label bytes and 3072 bytes of pixels,
 * the planes R, G, B of 32 rows of 32.
 */
#ifndef NW_DATA_CIFAR_H
#define NW_DATA_CIFAR_H

#include "base/status.h"

enum { NW_CIFAR_PIXELS = 3 * 32 * 32 };

/* How many records a file of that many bytes has; NW_E_FILE if it is no whole number above 0. */
nw_status nw_cifar_count(size_t size, const char *name, int label_bytes, uint64_t *count);

/* Takes all records apart. Of two label bytes the second, finer one counts. */
nw_status nw_cifar_parse(const uint8_t *data, size_t size, const char *name, int label_bytes, int classes,
                         int32_t *labels, uint8_t *pixels);

#endif
