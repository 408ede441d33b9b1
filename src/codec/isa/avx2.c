/* avx2.c - kernels of codecs for processors with AVX2, F16C and BMI2. */
#define VL     8
#define SET    avx2
#define USABLE nw_cpu_has_f16c()
#include "codec/isa/kernels.h"
