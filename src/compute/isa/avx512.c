/*
 * avx512.c - kernels for AVX-512 (F, BW, DQ, VL): 32 registers, 24 of them accumulators.
 *
 * Built three times: in f32; with STORE_BF16 ("avx512-bf16", see avx2.c); and without the set's flags
 * ("avx512-emulated"), when the compiler splits the vectors: the same code can so be tested on machines that lack the
 * set.
 */
#define VL           16
#define TILE         32
#define ROWS_BIG     12
#define ROWS_SMALL   8
#define CROWS        12
#define L2_WEIGHTS   (512 << 10)
#define MICRO_KERNEL "compute/isa/micro_f32.h"
#ifdef AVX512_EMULATED
#define BF16     0
#define ISA_NAME "avx512-emulated"
#define NW_TABLE nw_kernels_avx512_emulated
#elif defined STORE_BF16
#define BF16         1
#define MULTIPLY_F32 1
#define ISA_NAME     "avx512-bf16"
#define NW_TABLE     nw_kernels_avx512_bf16
#else
#define BF16     0
#define ISA_NAME "avx512"
#define NW_TABLE nw_kernels_avx512
#endif
#include "compute/isa/table.h"
