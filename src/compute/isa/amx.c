/*
 * amx.c - bf16 kernels on AMX tiles, the rest of the step in AVX-512 with bf16 loads and stores.
 *
 * Built twice: with the set's flags, and with AMX_EMULATED without them ("amx-emulated"): the same packing, driving and
 * rounding with tiles in plain arrays, so that the bf16 path can be tested on machines that lack the set.
 */
#define VL           16
#define BF16         1
#define TILE         32
#define L2_WEIGHTS   (1 << 20)
#define MICRO_KERNEL "compute/isa/micro_amx.h"
#ifdef AMX_EMULATED
#define ISA_NAME "amx-emulated"
#define NW_TABLE nw_kernels_amx_emulated
#else
#define ISA_NAME "amx"
#define NW_TABLE nw_kernels_amx
#endif
#include "compute/isa/table.h"
