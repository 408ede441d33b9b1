/*
 * Folder src/bench: what `nowait bench` measures, and the calibration of virtual clusters. Nothing here changes what it
 * measures. May include: base, compute, data, nn, codec, net, channel, train, config, setup.
 *
 * bench.h - what the benchmarks share: the machine's state around a measurement, and order statistics.
 */
#ifndef NW_BENCH_BENCH_H
#define NW_BENCH_BENCH_H

#include "base/json.h"
#include "base/machine.h"
#include "config/options.h"
#include "compute/kernels.h"

/* The kinds of `nowait bench`, each with the settings that it has options of. */
nw_status nw_bench_train(const nw_common_settings *all, const nw_model_settings *net, const nw_bench_settings *asked);
nw_status nw_bench_conv(const nw_common_settings *all, const nw_model_settings *net, const nw_bench_settings *asked);
nw_status nw_bench_codec(const nw_common_settings *all, const nw_bench_settings *asked);
nw_status nw_bench_exchange(const nw_common_settings *all, const nw_model_settings *net,
                            const nw_exchange_settings *exchange, const nw_codec_settings *method,
                            const nw_bench_settings *asked);
nw_status nw_bench_loader(const nw_common_settings *all, const nw_data_settings *data, int batch_size,
                          const nw_bench_settings *asked);

/* Sorts the values; the middle one, or the mean of the two. */
double nw_median(double *values, int count);
/* Operations per second of the bare micro-kernel (kernels->peak) over some ten milliseconds, long enough to wake the
 * threads; *iterations (1 at first) remembers how many that takes. */
double nw_bench_peak(nw_exec *exec, int *iterations);
/* Machine, build and what else ran: the lines that every result carries. */
void nw_bench_machine_json(nw_json *json, nw_cpu_ticks before);
void nw_bench_machine_table(nw_cpu_ticks before);

#endif
