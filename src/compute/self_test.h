/* self_test.h - does an instruction set compute what it should, on this machine, now? */
#ifndef NW_COMPUTE_SELF_TEST_H
#define NW_COMPUTE_SELF_TEST_H

#include "compute/kernels.h"

/* Convolutions in all directions and both sizes of blocks against the generic kernels, in the calling thread; *error is
 * the largest relative distance. NW_E_NUMERIC if it is larger than the rounding of f32 sums explains, NW_E_UNSUPPORTED
 * if the machine refuses an instruction (SIGILL, which is handled meanwhile and by nobody else in this thread). */
nw_status nw_self_test(const nw_kernels *kernels, double *error);

#endif
