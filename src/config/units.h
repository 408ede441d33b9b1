/*
 * units.h - quantities as people write them in cluster files: "50 us", "10 Gbit/s", "4x", "lognormal 0.2".
 *
 * A number is digits with at most one point and an exponent; a unit follows after at most one space and is never
 * guessed. Bits and bytes, and powers of 1000 and 1024, are told apart by their letters.
 *
 * These functions do not know where the text stands: they return NULL, or what is wrong with it as the end of a
 * sentence ("'10 Gb' has no unit of bandwidth that is known here; write ..."), in a buffer of the caller.
 */
#ifndef NW_CONFIG_UNITS_H
#define NW_CONFIG_UNITS_H

#include "sim/cluster.h"

enum { NW_UNITS_COMPLAINT = 256 };
typedef struct nw_complaint {
    char text[NW_UNITS_COMPLAINT];
} nw_complaint;

/* ns, us, ms, s, min, h; at least 0, at most ten years, rounded to nanoseconds. */
const char *nw_units_time(const char *text, int64_t *ns, nw_complaint *complaint);
/* bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s, B/s, kB/s, MB/s, GB/s, TB/s, KiB/s, MiB/s, GiB/s; or "unlimited": 0.
 * From 1 byte/s to 1e15. */
const char *nw_units_bandwidth(const char *text, double *bytes_per_second, nw_complaint *complaint);
/* "4x": more than 0, at most 1e6. */
const char *nw_units_factor(const char *text, double *factor, nw_complaint *complaint);
/* "none", "lognormal 0.2", "uniform 10%", "exponential 0.5"; where a latency is given, also "uniform 2 ms" and
 * "exponential 20 us", as parts of it. */
const char *nw_units_noise(const char *text, int64_t latency_ns, nw_noise *noise, nw_complaint *complaint);
/* A plain number without unit from `least` to `most`. */
const char *nw_units_number(const char *text, double least, double most, double *number, nw_complaint *complaint);
const char *nw_units_int(const char *text, int64_t least, int64_t most, int64_t *number, nw_complaint *complaint);

#endif
