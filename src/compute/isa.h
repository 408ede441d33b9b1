/*
 * isa.h - which instruction sets this machine and build can use, and the choice among them.
 *
 * A set is usable if CPUID shows it, the operating system saves its registers (XCR0), the kernel grants it (AMX) and its
 * self-test does not die: virtual machines may offer what they then refuse. It is chosen if the self-test passes as well.
 * CPUID leaf 0x1D is not consulted: some virtual machines hide it.
 */
#ifndef NW_COMPUTE_ISA_H
#define NW_COMPUTE_ISA_H

#include "compute/kernels.h"

/* Every table that the build holds, best first; the emulated ones come last and are never chosen by themselves. */
int nw_isa_count(void);
const nw_kernels *nw_isa_kernels(int index);
bool nw_isa_usable(int index);
const char *nw_isa_why_not(int index); /* NULL if usable */

/* The table for a precision, honouring NOWAIT_ISA. `note` (may be NULL) gets a sentence when the request was met in
 * another way (bf16 without AMX runs in f32) or a better set failed its self-test, else NULL. */
nw_status nw_isa_select(nw_precision precision, const nw_kernels **kernels, const char **note);

#endif
