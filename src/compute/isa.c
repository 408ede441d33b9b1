/* isa.c - detection and choice of the instruction set; see isa.h. */
#define _GNU_SOURCE
#include "compute/isa.h"

#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include "base/cpu.h"

#include <sys/syscall.h>
#include <unistd.h>

extern const nw_kernels nw_kernels_amx, nw_kernels_avx512, nw_kernels_avx2, nw_kernels_avx512_bf16,
    nw_kernels_avx2_bf16;
bool nw_amx_self_test(void);

static bool all_bits(uint64_t value, uint64_t bits) { return (value & bits) == bits; }

static const char *why_no_avx2(void)
{
    nw_cpu_flags f = nw_cpu_read_flags();
    if (!(f.leaf7_b & (1u << 5)) || !(f.leaf1_c & (1u << 12))) return "the CPU has no AVX2 with FMA";
    return all_bits(f.xcr0, 0x6) ? NULL : "the operating system does not save AVX registers";
}
static const char *why_no_avx512(void)
{
    nw_cpu_flags f = nw_cpu_read_flags();
    const char *why = why_no_avx2();
    if (why) return why;
    if (!all_bits(f.leaf7_b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31))
        return "the CPU has no AVX-512 F, DQ, BW and VL";
    return all_bits(f.xcr0, 0xe6) ? NULL : "the operating system does not save AVX-512 registers";
}
static const char *why_no_amx(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    nw_cpu_flags f = nw_cpu_read_flags();
    const char *why = why_no_avx512();
    if (why) return why;
    if (!all_bits(f.leaf7_d, 1u << 22 | 1u << 24)) return "the CPU has no AMX tiles with bf16";
    if (!(f.leaf7_1_a & (1u << 5))) return "the CPU has no AVX-512 BF16";
    if (!all_bits(f.xcr0, 3u << 17)) return "the operating system does not save AMX tiles";
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)) return "the kernel does not grant AMX tiles";
    return nw_amx_self_test() ? NULL : "the AMX self-test failed";
}
#endif

extern const nw_kernels nw_kernels_generic, nw_kernels_generic_bf16, nw_kernels_avx512_emulated,
    nw_kernels_amx_emulated;

static const char *why_not_nothing(void) { return NULL; }

static const struct {
    const nw_kernels *kernels;
    const char *(*why_not)(void);
    enum { NATIVE, STORES_BF16, EMULATED } how;
} sets[] = {
#ifdef __x86_64__
    {&nw_kernels_amx, why_no_amx, NATIVE},
    {&nw_kernels_avx512, why_no_avx512, NATIVE},
    {&nw_kernels_avx512_bf16, why_no_avx512, STORES_BF16},
    {&nw_kernels_avx2, why_no_avx2, NATIVE},
    {&nw_kernels_avx2_bf16, why_no_avx2, STORES_BF16},
#endif
    {&nw_kernels_generic, why_not_nothing, NATIVE},
    {&nw_kernels_generic_bf16, why_not_nothing, STORES_BF16},
    {&nw_kernels_amx_emulated, why_not_nothing, EMULATED},
    {&nw_kernels_avx512_emulated, why_not_nothing, EMULATED},
};

enum { SETS = sizeof sets / sizeof sets[0] };

int nw_isa_count(void) { return SETS; }
const nw_kernels *nw_isa_kernels(int index) { return sets[index].kernels; }
const char *nw_isa_why_not(int index) { return sets[index].why_not(); }
bool nw_isa_usable(int index) { return nw_isa_why_not(index) == NULL; }

/* The best usable set of a type from `first` on, or -1. Emulated ones only if they are where the search starts, and
 * those that only store bf16 there or if `asked`: they save memory, not time. */
static int best(int first, nw_dtype dtype, bool asked)
{
    for (int i = first; i < SETS; i++) {
        bool counts = sets[i].how == NATIVE || i == first || (asked && sets[i].how == STORES_BF16);
        if (sets[i].kernels->dtype == dtype && counts && nw_isa_usable(i)) return i;
    }
    return -1;
}

nw_status nw_isa_select(nw_precision precision, const nw_kernels **kernels, const char **note)
{
    const char *wanted = getenv("NOWAIT_ISA");
    int first = 0;
    if (note) *note = NULL;
    if (wanted && *wanted) {
        while (first < SETS && strcmp(sets[first].kernels->isa, wanted)) first++;
        NW_FAIL_IF(first == SETS, NW_E_UNKNOWN,
                   "NOWAIT_ISA=%s is no instruction set of this build; 'nowait info' lists them", wanted);
        const char *why = nw_isa_why_not(first);
        NW_FAIL_IF(why, NW_E_UNSUPPORTED, "NOWAIT_ISA=%s cannot run here: %s; unset it to use the best that can",
                   wanted, why);
    }
    int chosen = precision == NW_PRECISION_F32 ? -1 : best(first, NW_BF16, precision == NW_PRECISION_BF16);
    if (chosen < 0) chosen = best(first, NW_F32, false);
    /* Emulated sets are last in the table; f32 beside them means the best f32 of this machine. */
    if (chosen < 0) chosen = best(0, NW_F32, false);
    *kernels = sets[chosen].kernels;
    if (note && sets[chosen].how == STORES_BF16)
        *note =
            "there is no AMX here: activations are stored in bf16, and operands rounded to it, but multiplied in f32";
    return NW_OK;
}
