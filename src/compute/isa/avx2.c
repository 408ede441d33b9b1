/*
 * avx2.c - kernels for AVX2 and FMA: 16 registers, 12 of them accumulators. Built with -mavx2 -mfma.
 *
 * Built twice: in f32, and with STORE_BF16 ("avx2-bf16"): activations are kept in bf16 and operands rounded to it, as a
 * set with bf16 multipliers does, but multiplied in f32. Half the memory, and bf16's results on machines without AMX.
 */
#define VL           8
#define TILE         16
#define ROWS_BIG     6
#define ROWS_SMALL   4
#define CROWS        6
#define L2_WEIGHTS   (256 << 10)
#define MICRO_KERNEL "compute/isa/micro_f32.h"
#ifdef STORE_BF16
#define BF16         1
#define MULTIPLY_F32 1
#define ISA_NAME     "avx2-bf16"
#define NW_TABLE     nw_kernels_avx2_bf16
#else
#define BF16     0
#define ISA_NAME "avx2"
#define NW_TABLE nw_kernels_avx2
#endif
#include "compute/isa/table.h"
