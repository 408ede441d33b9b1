/* avx512.c - kernels of codecs for processors with AVX-512 (F, BW, DQ, VL). */
#define VL     16
#define SET    avx512
#define USABLE nw_cpu_has_avx512()
#include "codec/isa/kernels.h"
