/*
 * command_sweep.c - `nowait sweep`: one command for many runs, resumable.
 *
 *   nowait sweep --grid lr=0.1,0.2 --grid batch-size=64,128 --seeds 3 [options of train]
 *
 * Every combination of the grids is trained with every seed, in RUN_DIR/<option=value,...>/seed<k>
 * (experiment/trials.h). The table at the end, and sweep.tsv and sweep.json in RUN_DIR, have mean and standard
 * deviation over the seeds.
 */
#define _GNU_SOURCE 1
#include "base/text.h"
#include "cli/command.h"
#include "experiment/trials.h"

#include <stdlib.h>
#include <string.h>

static nw_status sweep(const nw_sweep_options *o, char *const *given, int count)
{
    NW_CLEANUP(nw_trials_free)
    nw_trials trials = {
        .seed = o->all->seed, .seeds = o->seeds, .quiet = o->all->quiet, .given = given, .given_count = count};
    NW_FAIL_IF(o->grid->count == 0 && o->seeds < 2, NW_E_ARGUMENT,
               "a sweep needs --grid OPTION=VALUE,VALUE or --seeds N; see --help");
    bool named = o->all->run_dir[0];
    NW_TRY(nw_text_print(&trials.dir, "%s%s", named ? "" : "runs/sweep-", named ? o->all->run_dir : o->run_name));
    NW_TRY(nw_trials_add_grid(&trials, o->grid));
    NW_TRY(nw_trials_run(&trials, NULL));
    return nw_trials_report(&trials, strcmp(o->format, "json") == 0);
}

nw_status nw_command_sweep(int argc, char **argv)
{
    static const char *const own[] = {"grid", "seeds", "run-dir", "format", NULL};
    if (nw_wants_help(argc, argv)) {
        printf("usage: nowait sweep --grid OPTION=VALUE,VALUE... [--grid ...] [--seeds N] [options of train]\n\n"
               "Trains every combination with every seed, in RUN_DIR/<combination>/seed<k>. After an interruption run\n"
               "the same command again. Results: a table, and sweep.tsv and sweep.json in RUN_DIR.\n");
        return NW_OK;
    }
    NW_AUTOFREE char **kept = calloc((size_t)argc + 1, sizeof *kept);
    NW_FAIL_IF(!kept, NW_E_MEMORY, "no memory for the arguments");
    int positional, count = nw_child_keep(NW_COMMAND_SWEEP, own, argc, argv, kept); /* parsing changes their order */
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    NW_TRY(nw_options_parse(NW_COMMAND_SWEEP, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional > 0, NW_E_ARGUMENT, "'nowait sweep' takes options only, not '%s'", argv[0]);
    nw_sweep_options options = nw_sweep_options_of(settings);
    return sweep(&options, kept, count);
}
