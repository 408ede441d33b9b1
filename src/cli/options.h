/*
 * options.h - the one table of options, from which parsing, validation and help are made.
 *
 * A line of the table says an option's name, type, range, default, help, the commands that take it, and where its value
 * lives in nw_settings. Dashes and underscores are the same in names. A boolean takes a bare flag, --x=False, --x True
 * or
 * --no-x. An unknown option is an error that names the nearest one.
 */
#ifndef NW_CLI_OPTIONS_H
#define NW_CLI_OPTIONS_H

#include "base/status.h"

#include <stdio.h>

/* Commands as bits, for the table's column. */
enum {
    NW_COMMAND_INFO = 1 << 0,
    NW_COMMAND_BENCH_TRAIN = 1 << 1,
    NW_COMMAND_BENCH_CONV = 1 << 2,
};

typedef struct nw_settings {
    const char *model, *precision, *format, *stem, *graph;
    int batch_size, threads, classes, width, image_size, steps, repeats;
    int64_t seed;
    bool profile, models, fused;
} nw_settings;

/* Fills settings with the defaults, then from the arguments of one command. Positional arguments are moved to the front
 * of argv and counted. */
nw_status nw_options_parse(unsigned command, int argc, char **argv, nw_settings *settings, int *positional);

/* One line an option, for those that `command` takes. */
void nw_options_help(unsigned command, FILE *out);

/* From a settings text that the table has checked. */
nw_precision nw_settings_precision(const nw_settings *settings);

#endif
