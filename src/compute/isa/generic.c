/*
 * generic.c - kernels in 128-bit vectors for whatever the compiler targets: NEON on aarch64, SSE2 on x86-64, plain
 * code elsewhere. The number of rows follows the number of vector registers. Built in f32 and, with STORE_BF16, as
 * "generic-bf16" (see avx2.c).
 */
#define VL   4
#define TILE 16
#if defined __aarch64__
#define ROWS_BIG   6
#define ROWS_SMALL 4
#define CROWS      6
#else
#define ROWS_BIG   2
#define ROWS_SMALL 2
#define CROWS      2
#endif
#define L2_WEIGHTS   (256 << 10)
#define MICRO_KERNEL "compute/isa/micro_f32.h"
#ifdef STORE_BF16
#define BF16         1
#define MULTIPLY_F32 1
#define ISA_NAME     "generic-bf16"
#define NW_TABLE     nw_kernels_generic_bf16
#else
#define BF16     0
#define ISA_NAME "generic"
#define NW_TABLE nw_kernels_generic
#endif
#include "compute/isa/table.h"
