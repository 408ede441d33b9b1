/* avx2.c - f32 kernels for AVX2 and FMA: 16 registers, 12 of them accumulators. Built with -mavx2 -mfma. */
#define VL           8
#define BF16         0
#define TILE         16
#define ROWS_BIG     6
#define ROWS_SMALL   4
#define CROWS        6
#define L2_WEIGHTS   (256 << 10)
#define MICRO_KERNEL "compute/isa/micro_f32.h"
#define ISA_NAME     "avx2"
#define NW_TABLE     nw_kernels_avx2
#include "compute/isa/table.h"
