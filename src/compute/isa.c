/* isa.c - detection and choice of the instruction set; see isa.h. */
#define _GNU_SOURCE
#include "compute/isa.h"

#include "compute/self_test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include "base/cpu.h"

#include <sys/syscall.h>
#include <unistd.h>

extern const nw_kernels nw_kernels_amx, nw_kernels_avx512, nw_kernels_avx2, nw_kernels_avx512_bf16,
    nw_kernels_avx2_bf16;

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
    bool granted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    return granted ? NULL : "the kernel does not grant AMX tiles";
}
#endif

extern const nw_kernels nw_kernels_generic, nw_kernels_generic_bf16, nw_kernels_avx512_emulated,
    nw_kernels_amx_emulated;

static const struct {
    const nw_kernels *kernels;
    const char *(*why_not)(void); /* the CPU and its system; NULL: plain code, which runs wherever the program does */
    enum { NATIVE, STORES_BF16, EMULATED } how;
} sets[] = {
#ifdef __x86_64__
    {&nw_kernels_amx, why_no_amx, NATIVE},
    {&nw_kernels_avx512, why_no_avx512, NATIVE},
    {&nw_kernels_avx512_bf16, why_no_avx512, STORES_BF16},
    {&nw_kernels_avx2, why_no_avx2, NATIVE},
    {&nw_kernels_avx2_bf16, why_no_avx2, STORES_BF16},
#endif
    {&nw_kernels_generic, NULL, NATIVE},
    {&nw_kernels_generic_bf16, NULL, STORES_BF16},
    {&nw_kernels_amx_emulated, NULL, EMULATED},
    {&nw_kernels_avx512_emulated, NULL, EMULATED},
};

enum { SETS = sizeof sets / sizeof sets[0] };

int nw_isa_count(void) { return SETS; }
const nw_kernels *nw_isa_kernels(int index) { return sets[index].kernels; }

static const char *why_cpu_refuses(int index) { return sets[index].why_not ? sets[index].why_not() : NULL; }

/* What the self-test says against a set that CPU and system offer; it is asked once, when somebody wants to know. */
typedef struct self_test_result {
    bool known, died;
    const char *why; /* NULL: nothing */
    char text[160];
} self_test_result;

static self_test_result self_test_of(int index)
{
    static self_test_result results[SETS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    self_test_result *v = &results[index];
    pthread_mutex_lock(&lock);
    if (!v->known && sets[index].why_not) {
        double error;
        nw_status status = nw_self_test(sets[index].kernels, &error);
        v->died = status == NW_E_UNSUPPORTED;
        if (v->died || status == NW_E_NUMERIC) {
            snprintf(v->text, sizeof v->text, "%s", nw_error_message());
            v->why = v->text;
        }
        v->known = v->why || status == NW_OK; /* else memory was short, which says nothing about the set */
    }
    self_test_result found = *v;
    pthread_mutex_unlock(&lock);
    return found;
}

/* A set that dies cannot be used. One that computes wrongly can, though it is never chosen: or tests would skip it. */
const char *nw_isa_why_not(int index)
{
    const char *why = why_cpu_refuses(index);
    if (why) return why;
    self_test_result v = self_test_of(index);
    return v.died ? v.why : NULL;
}
bool nw_isa_usable(int index) { return nw_isa_why_not(index) == NULL; }

/* The best usable set of a type from `first` on, or -1. Emulated ones only if they are where the search starts, and
 * those that only store bf16 there or if `asked`: they save memory, not time. *note tells why the first one that the
 * CPU offers was passed over. */
static int best(int first, nw_dtype dtype, bool asked, const char **note)
{
    for (int i = first; i < SETS; i++) {
        bool counts = sets[i].how == NATIVE || i == first || (asked && sets[i].how == STORES_BF16);
        if (sets[i].kernels->dtype != dtype || !counts || why_cpu_refuses(i)) continue;
        const char *why = self_test_of(i).why;
        if (!why) return i;
        if (!*note) *note = why;
    }
    return -1;
}

nw_status nw_isa_select(nw_precision precision, const nw_kernels **kernels, const char **note)
{
    const char *wanted = getenv("NOWAIT_ISA"), *passed_over = NULL;
    int first = 0;
    if (wanted && *wanted) {
        while (first < SETS && strcmp(sets[first].kernels->isa, wanted)) first++;
        NW_FAIL_IF(first == SETS, NW_E_UNKNOWN,
                   "NOWAIT_ISA=%s is not an instruction set of this build; 'nowait info' lists them", wanted);
        const char *why = why_cpu_refuses(first);
        if (!why) why = self_test_of(first).why;
        NW_FAIL_IF(why, NW_E_UNSUPPORTED, "NOWAIT_ISA=%s cannot run here: %s; unset it to use the best that can",
                   wanted, why);
    }
    int chosen =
        precision == NW_PRECISION_F32 ? -1 : best(first, NW_BF16, precision == NW_PRECISION_BF16, &passed_over);
    if (chosen < 0) chosen = best(first, NW_F32, false, &passed_over);
    /* Emulated sets are last in the table; f32 beside them means the best f32 of this machine. */
    if (chosen < 0) chosen = best(0, NW_F32, false, &passed_over);
    *kernels = sets[chosen].kernels;
    if (!passed_over && sets[chosen].how == STORES_BF16)
        passed_over =
            "there is no AMX here: activations are stored in bf16, and operands rounded to it, but multiplied in f32";
    if (note) *note = passed_over;
    return NW_OK;
}
