/* cpu.c - CPUID and XGETBV; see cpu.h. Any thread may call; nothing is cached. */
#include "base/cpu.h"

#ifdef __x86_64__
#include <cpuid.h>

nw_cpu_flags nw_cpu_read_flags(void)
{
    nw_cpu_flags f = {0};
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) f.leaf1_c = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        f.leaf7_b = b;
        f.leaf7_d = d;
        if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) f.leaf7_1_a = a;
    }
    if (f.leaf1_c & (1u << 27)) { /* OSXSAVE: xgetbv may be used */
        unsigned low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        f.xcr0 = (uint64_t)high << 32 | low;
    }
    return f;
}
#else
nw_cpu_flags nw_cpu_read_flags(void) { return (nw_cpu_flags){0}; }
#endif

bool nw_cpu_has_f16c(void)
{
    nw_cpu_flags f = nw_cpu_read_flags();
    return (f.leaf7_b & (1u << 5)) && (f.leaf1_c & (1u << 29)) && (f.xcr0 & 6) == 6;
}

bool nw_cpu_has_avx512(void)
{
    nw_cpu_flags f = nw_cpu_read_flags();
    const unsigned all = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    return nw_cpu_has_f16c() && (f.leaf7_b & all) == all && (f.xcr0 & 0xe6) == 0xe6;
}
