/* powersgd.h - which tensors PowerSGD (powersgd.c) makes smaller. */
#ifndef NW_CODEC_POWERSGD_H
#define NW_CODEC_POWERSGD_H

#include "codec/codec.h"

/* Whether two factors of that rank have less than half the floats of the matrix. */
bool nw_powersgd_gains(size_t rows, size_t floats, int rank);

#endif
