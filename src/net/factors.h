/*
 * factors.h - what codecs take, for clusters whose time is simulated.
 *
 * Handlers name the bytes that they touch (nw_actions_touch), and reading and writing them at the memory's rate is what
 * adding and copying take. Encoding takes longer, or, where most of a vector is only read, less: so many times as long.
 * A cluster's file has these factors (config/cluster_file.h), --calibrate measures them; without any, all are 1.
 */
#ifndef NW_NET_FACTORS_H
#define NW_NET_FACTORS_H

#include <stddef.h>

enum { NW_FACTOR_NAME = 24 };

/* What of a codec: encoding without memory, decoding; or encoding with a memory, by that memory's name. */
#define NW_FACTOR_ENCODE "encode"
#define NW_FACTOR_DECODE "decode"

typedef struct nw_factor {
    char codec[NW_FACTOR_NAME], what[NW_FACTOR_NAME];
    double times;
} nw_factor;

typedef struct nw_factors {
    nw_factor *at;
    int count;
} nw_factors;

/* 1 where nothing is known. A memory that is not listed takes what encoding takes. NULL: no factors. */
double nw_factors_find(const nw_factors *factors, const char *codec, const char *what);
/* Bytes that take as long. */
size_t nw_factors_apply(const nw_factors *factors, const char *codec, const char *what, size_t bytes);

#endif
