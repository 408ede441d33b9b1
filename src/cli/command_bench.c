/* command_bench.c - `nowait bench`: dispatch, and what the benchmarks share. */
#include "bench/bench.h"

#include "base/clock.h"
#include "cli/command.h"
#include "config/command_options.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double nw_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double nw_bench_peak(nw_exec *exec, int *iterations)
{
    for (;;) {
        int64_t start = nw_now_ns();
        double flops = exec->kernels->peak(exec, *iterations), seconds = nw_seconds(nw_now_ns() - start);
        if (seconds >= 0.01 || *iterations >= 1 << 20) return flops / seconds;
        *iterations *= 2;
    }
}

void nw_bench_machine_json(nw_json *json, nw_cpu_ticks before)
{
    char cpu[128];
    nw_machine_cpu_name(cpu, sizeof cpu);
    nw_json_put_string(json, "cpu", cpu);
    nw_json_put_double(json, "steal_percent", nw_machine_steal_percent(before, nw_machine_ticks()));
    nw_json_put_double(json, "load", nw_machine_load());
    nw_json_put_string(json, "version", nw_version());
    nw_json_put_string(json, "commit", nw_build_commit());
}

void nw_bench_machine_table(nw_cpu_ticks before)
{
    char cpu[128];
    nw_machine_cpu_name(cpu, sizeof cpu);
    printf("machine     %s, steal %.1f %%, load %.2f\n", cpu, nw_machine_steal_percent(before, nw_machine_ticks()),
           nw_machine_load());
    printf("version     %s, commit %s\n", nw_version(), nw_build_commit());
}

static const struct {
    const char *name, *what;
    unsigned command;
} benchmarks[] = {
    {"train", "images/s of whole training steps on synthetic data", NW_COMMAND_BENCH_TRAIN},
    {"conv", "each convolution of a model, in three directions, against the peak", NW_COMMAND_BENCH_CONV},
    {"codec", "what each codec takes to encode and decode, in copies of the vector", NW_COMMAND_BENCH_CODEC},
    {"exchange", "exchange of gradients between ranks of mpirun: alone, and in training", NW_COMMAND_BENCH_EXCHANGE},
    {"loader", "images/s that are read, augmented and normalised", NW_COMMAND_BENCH_LOADER},
};
enum { BENCHMARKS = sizeof benchmarks / sizeof benchmarks[0] };

/* Of one benchmark, if it is named first; otherwise of all, a line each. */
static void usage(const char *name)
{
    for (int i = 0; i < BENCHMARKS; i++) {
        if (strcmp(name, benchmarks[i].name) != 0) continue;
        printf("usage: nowait bench %s [options]   %s\n\n", name, benchmarks[i].what);
        nw_options_help(benchmarks[i].command, stdout);
        return;
    }
    printf("usage: nowait bench WHAT [options]\n\n");
    for (int i = 0; i < BENCHMARKS; i++) printf("  %-8s %s\n", benchmarks[i].name, benchmarks[i].what);
    printf("\n'nowait bench WHAT --help' shows the options.\n");
}

static nw_status run_benchmark(unsigned command, nw_bench_options o)
{
    if (command == NW_COMMAND_BENCH_TRAIN) return nw_bench_train(o.all, o.net, o.bench);
    if (command == NW_COMMAND_BENCH_CONV) return nw_bench_conv(o.all, o.net, o.bench);
    if (command == NW_COMMAND_BENCH_CODEC) return nw_bench_codec(o.all, o.bench);
    if (command == NW_COMMAND_BENCH_EXCHANGE) return nw_bench_exchange(o.all, o.net, o.world, o.codec, o.bench);
    return nw_bench_loader(o.all, o.data, o.net->batch_size, o.bench);
}

nw_status nw_command_bench(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        usage(argc > 0 ? argv[0] : "");
        return NW_OK;
    }
    NW_FAIL_IF(argc < 1, NW_E_ARGUMENT,
               "say what to measure: 'nowait bench train', 'conv', 'codec', 'exchange' or 'loader'");
    for (int i = 0; i < BENCHMARKS; i++) {
        if (strcmp(argv[0], benchmarks[i].name) != 0) continue;
        NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
        int positional;
        NW_TRY(nw_options_parse(benchmarks[i].command, argc - 1, argv + 1, &settings, &positional));
        NW_FAIL_IF(positional, NW_E_ARGUMENT, "'%s' is not understood here; --help lists the options", argv[1]);
        return run_benchmark(benchmarks[i].command, nw_bench_options_of(settings));
    }
    return NW_FAIL(NW_E_ARGUMENT, "there is no benchmark '%s': it is train, conv, codec, exchange or loader", argv[0]);
}
