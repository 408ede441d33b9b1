/*
 * cpu.h - what CPUID says of this processor, and which registers the operating system saves. For the choice of an
 * instruction set only: whoever chooses sees to it that all choices give results that are allowed to be theirs.
 */
#ifndef NW_BASE_CPU_H
#define NW_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* Registers of CPUID by leaf, and XCR0. All 0 where there is no x86-64. */
typedef struct nw_cpu_flags {
    unsigned leaf1_c, leaf7_b, leaf7_d, leaf7_1_a;
    uint64_t xcr0;
} nw_cpu_flags;

nw_cpu_flags nw_cpu_read_flags(void);
bool nw_cpu_has_f16c(void);   /* AVX2, and conversions between f32 and f16 */
bool nw_cpu_has_avx512(void); /* F, BW, DQ and VL */

#endif
