/*
 * factors.h - what encoding and decoding take on this machine, for --calibrate: every codec on the gradient of a
 * network, through the same channels as in training, in times of what touching the bytes takes that they name.
 */
#ifndef NW_BENCH_FACTORS_H
#define NW_BENCH_FACTORS_H

#include "bench/synthetic.h"
#include "config/command_options.h"
#include "net/factors.h"

/* The gradient is that of the last batch. Options of codecs (--ratio, --values, ...) are the run's. factors->at is the
 * caller's to free, also after a failure. */
nw_status nw_bench_factors(const nw_train_options *options, const nw_synthetic *net, double memory_bytes_per_second,
                           nw_factors *factors);

#endif
