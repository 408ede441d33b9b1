/* generic.c - kernels of codecs for any processor. */
#define VL     4
#define SET    generic
#define USABLE true
#include "codec/isa/kernels.h"
