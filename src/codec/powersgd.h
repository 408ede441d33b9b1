/* powersgd.h - which tensors PowerSGD (powersgd.c) is for. */
#ifndef NW_CODEC_POWERSGD_H
#define NW_CODEC_POWERSGD_H

#include "codec/codec.h"

/* Whether two factors of that rank have less than half of the floats of a matrix of so many rows. */
bool nw_powersgd_gains(size_t rows, size_t floats, int rank);

#endif
