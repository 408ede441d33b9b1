/*
 * command_plan.c - `nowait plan MODEL --bandwidth B --ranks N`: which codec pays, before a run is started
 * (forecast/forecast.h). Takes some seconds, in which it measures this machine. Under mpirun all its ranks measure at once,
 * as calibrations do: so ranks that share a machine find what they have of it; rank 0 prints.
 */
#include "cli/command.h"
#include "config/command_options.h"
#include "config/units.h"
#include "forecast/forecast.h"
#include "net/mpi.h"
#include "setup/plan.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_NS (300 * (int64_t)1000000000) /* for ranks that start, and measure, more slowly */

static void usage(void)
{
    printf(
        "usage: nowait plan MODEL [options]\n\n"
        "Measures the network and every codec on this machine for some seconds. Then prints predicted step times of\n"
        "every codec, collective and delay, the best codec for each tensor, and the winners over bandwidths and ranks.\n"
        "--bandwidth is what messages get, as iperf measures it: about 940 Mbit/s of a gigabit Ethernet. For ranks that\n"
        "share a machine: mpirun -np RANKS_PER_MACHINE nowait plan MODEL ...; they measure at the same time.\n\n");
    nw_options_help(NW_COMMAND_PLAN, stdout);
}

/* Quantities with units. */
static nw_status read_link(const nw_plan_options *o, nw_forecast_link *link)
{
    nw_complaint complaint;
    int64_t latency, overhead;
    const char *wrong = nw_units_bandwidth(o->bandwidth, &link->bytes_per_second, &complaint);
    NW_FAIL_IF(wrong, NW_E_ARGUMENT, "--bandwidth %s", wrong);
    wrong = nw_units_time(o->latency, &latency, &complaint);
    NW_FAIL_IF(wrong, NW_E_ARGUMENT, "--latency %s", wrong);
    wrong = nw_units_time(o->overhead, &overhead, &complaint);
    NW_FAIL_IF(wrong, NW_E_ARGUMENT, "--overhead %s", wrong);
    link->members = o->ranks;
    link->latency = 1e-9 * (double)latency;
    link->overhead = 1e-9 * (double)overhead;
    return NW_OK;
}

static nw_status make_plan(const char *model, const nw_plan_options *o)
{
    NW_CLEANUP(nw_synthetic_free) nw_synthetic net = {0};
    NW_CLEANUP(nw_forecast_profile_free) nw_forecast_profile profile = {0};
    nw_forecast_options f = {.bucket_bytes = (size_t)o->bucket_bytes,
                             .tries = o->repeats,
                             .svg = o->svg,
                             .model = model,
                             .batch = o->net->batch_size,
                             .measured_by = 1};
    int rank = 0;
    if (nw_mpi_launched()) NW_TRY(nw_mpi_start(PATIENCE_NS, &rank, &f.measured_by));
    nw_model_settings named = *o->net;
    named.model = model;
    NW_TRY(read_link(o, &f.link));
    nw_net_options n = nw_plan_net_alone(o->all, &named, named.batch_size);
    n.classes = named.classes;
    if (named.image_size) n.height = n.width = named.image_size;
    NW_TRY(nw_synthetic_create(&net, &n));
    f.isa = nw_net_isa(net.net);
    f.threads = nw_net_threads(net.net);
    NW_TRY(nw_forecast_measure(&profile, &net, f.tries, f.measured_by));
    if (rank != 0) return NW_OK;
    return strcmp(o->format, "json") == 0 ? nw_forecast_print_json(&profile, &f, stdout)
                                          : nw_forecast_print(&profile, &f, stdout);
}

nw_status nw_command_plan(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        usage();
        return NW_OK;
    }
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_options_parse(NW_COMMAND_PLAN, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional > 1, NW_E_ARGUMENT, "'nowait plan' takes one model, not %d", positional);
    nw_plan_options o = nw_plan_options_of(settings);
    return make_plan(positional ? argv[0] : o.net->model, &o);
}
