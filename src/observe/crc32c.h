/* crc32c.h - CRC-32C (Castagnoli), and the masked form that guards the records of TensorFlow's files. */
#ifndef NW_OBSERVE_CRC32C_H
#define NW_OBSERVE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t nw_crc32c(const void *data, size_t bytes);

/* Rotated right by 15 bits plus a constant, so that a sum over data that hold sums is not degenerate. */
uint32_t nw_crc32c_masked(const void *data, size_t bytes);

#endif
