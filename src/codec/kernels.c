/* kernels.c - the choice of a set of kernels. See kernels.h. */
#include "codec/kernels.h"

#include <stdatomic.h>

extern const nw_codec_kernels nw_codec_kernels_generic;
#ifdef __x86_64__
extern const nw_codec_kernels nw_codec_kernels_avx2, nw_codec_kernels_avx512;
#endif

static const nw_codec_kernels *const sets[] = {
#ifdef __x86_64__
    &nw_codec_kernels_avx512,
    &nw_codec_kernels_avx2,
#endif
    &nw_codec_kernels_generic,
};
enum { SETS = sizeof sets / sizeof sets[0] };

static _Atomic(const nw_codec_kernels *) chosen;

int nw_codec_kernel_sets(void) { return SETS; }
const nw_codec_kernels *nw_codec_kernels_at(int index) { return sets[index]; }

const nw_codec_kernels *nw_codec_kernels_best(void)
{
    const nw_codec_kernels *best = atomic_load_explicit(&chosen, memory_order_relaxed);
    for (int i = 0; !best; i++)
        if (sets[i]->usable()) atomic_store_explicit(&chosen, best = sets[i], memory_order_relaxed);
    return best;
}

void nw_codec_kernels_force(const nw_codec_kernels *set) { atomic_store_explicit(&chosen, set, memory_order_relaxed); }
