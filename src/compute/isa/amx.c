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

#ifndef AMX_EMULATED
/* One product of random operands against plain loops: whether tiles really work here, whatever CPUID says or hides. */
bool nw_amx_self_test(void);
bool nw_amx_self_test(void)
{
    _Alignas(64) mul_t a[16 * 32], b[16 * 32];
    _Alignas(64) float out[16 * 16];
    for (int i = 0; i < 512; i++) {
        a[i] = nw_bf16_from_f32((float)(i * 7 % 23 - 11) * 0.125f);
        b[i] = nw_bf16_from_f32((float)(i * 5 % 19 - 9) * 0.25f);
    }
    micro_begin(32);
    TILE_ZERO(0);
    TILE_LOAD(4, a, 64);
    TILE_LOAD(6, b, 64);
    TILE_PRODUCT(0, 4, 6);
    TILE_STORE(0, out, 64);
    micro_end();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sum = 0; /* multiples of 1/32 of modest size: exact in any order */
            for (int p = 0; p < 32; p++)
                sum += nw_bf16_to_f32(a[m * 32 + p]) * nw_bf16_to_f32(b[p / 2 * 32 + 2 * n + p % 2]);
            if (sum != out[m * 16 + n]) return false;
        }
    return true;
}
#endif
