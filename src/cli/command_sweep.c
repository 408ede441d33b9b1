/*
 * command_sweep.c - `nowait sweep`: one command for many runs, resumable.
 *
 *   nowait sweep --grid lr=0.1,0.2 --grid batch-size=64,128 --seeds 3 [options of train]
 *
 * Every combination of the grids is trained with every seed, each by a `nowait train` of its own in
 * RUN_DIR/<option=value,...>/seed<k>. A run that is done is not repeated, one that was interrupted is continued, so the
 * same command goes on where it was stopped. The table at the end, and sweep.tsv and sweep.json in RUN_DIR, have mean
 * and standard deviation over the seeds.
 */
#include "cli/child.h"
#include "cli/command.h"
#include "cli/option_table.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GRIDS = 16, MOST_VALUES = 256, MOST_RUNS = 100000 };

typedef struct grid {
    char *text; /* "lr=0.1,0.2", cut up */
    const char *option;
    const char *values[MOST_VALUES];
    int count;
} grid;

typedef struct result {
    double sum, squares, best;
    double seconds;
    int runs;
} result;

typedef struct sweep {
    const nw_settings *settings;
    const char *dir;
    grid grids[MOST_GRIDS];
    int grid_count, combinations;
    char **arguments; /* of train: what the user gave, without the sweep's own; then those of one run */
    int argument_count;
    result *results; /* one a combination */
} sweep;

/* ---- the grid ---------------------------------------------------------------------------------------------------- */

static nw_status cut_grid(grid *g, const char *text)
{
    g->text = strdup(text);
    NW_FAIL_IF(!g->text, NW_E_MEMORY, "no memory for a grid");
    char *equals = strchr(g->text, '=');
    NW_FAIL_IF(!equals || equals == g->text || !equals[1], NW_E_ARGUMENT,
               "--grid takes an option and its values, for example lr=0.1,0.2; not '%s'", text);
    *equals = 0;
    g->option = g->text;
    NW_FAIL_IF(nw_option_find(g->option, NW_COMMAND_TRAIN).index < 0, NW_E_ARGUMENT,
               "--grid %s: 'nowait train' has no option --%s; the nearest is --%s", text, g->option,
               nw_option_nearest(g->option, NW_COMMAND_TRAIN));
    char *rest = equals + 1;
    for (char *value; (value = strsep(&rest, ","));) {
        NW_FAIL_IF(!*value, NW_E_ARGUMENT, "--grid %s has an empty value", text);
        NW_FAIL_IF(g->count == MOST_VALUES, NW_E_ARGUMENT, "--grid %s has more than %d values", g->option, MOST_VALUES);
        g->values[g->count++] = value;
    }
    return NW_OK;
}

static nw_status cut_grids(sweep *w)
{
    const nw_text_list *list = &w->settings->grid;
    NW_FAIL_IF(list->count > MOST_GRIDS, NW_E_ARGUMENT, "there may be %d grids, not %d", MOST_GRIDS, list->count);
    NW_FAIL_IF(list->count == 0 && w->settings->seeds < 2, NW_E_ARGUMENT,
               "a sweep needs --grid OPTION=VALUE,VALUE or --seeds N; --help tells more");
    int64_t combinations = 1;
    for (int i = 0; i < list->count; i++) {
        NW_TRY(cut_grid(&w->grids[w->grid_count++], list->at[i]));
        combinations *= w->grids[i].count;
        NW_FAIL_IF(combinations * w->settings->seeds > MOST_RUNS, NW_E_ARGUMENT,
                   "this sweep has more than %d runs; make the grids smaller", MOST_RUNS);
    }
    w->combinations = (int)combinations;
    return NW_OK;
}

/* The value of a grid in a combination. The last grid changes fastest. */
static const char *value_of(const sweep *w, int combination, int index)
{
    for (int i = w->grid_count - 1; i > index; i--) combination /= w->grids[i].count;
    return w->grids[index].values[combination % w->grids[index].count];
}

/* "lr=0.1,batch-size=64"; "all" where there is no grid. */
static void combination_name(const sweep *w, int combination, char *name, size_t size)
{
    size_t used = 0;
    snprintf(name, size, "all");
    for (int i = 0; i < w->grid_count && used < size; i++)
        used += (size_t)snprintf(name + used, size - used, "%s%s=%s", i ? "," : "", w->grids[i].option,
                                 value_of(w, combination, i));
    for (char *at = name; *at; at++)
        if (*at == '/') *at = '_';
}

/* ---- arguments --------------------------------------------------------------------------------------------------- */

/* Leaves out the sweep's own options; train would not know them. */
static nw_status keep_arguments(sweep *w, int argc, char **argv)
{
    static const char *const own[] = {"grid", "seeds", "run-dir", "format", NULL};
    w->arguments = calloc((size_t)argc + MOST_GRIDS + 2, sizeof *w->arguments);
    NW_FAIL_IF(!w->arguments, NW_E_MEMORY, "no memory for the arguments");
    w->argument_count = nw_child_keep(NW_COMMAND_SWEEP, own, argc, argv, w->arguments);
    return NW_OK;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static nw_status visit(sweep *w, int combination, int64_t seed)
{
    char name[1024], dir[4096], options[MOST_GRIDS][512], number[32];
    int count = w->argument_count;
    nw_child_result child;
    combination_name(w, combination, name, sizeof name);
    snprintf(dir, sizeof dir, "%s/%s/seed%lld", w->dir, name, (long long)seed);
    for (int i = 0; i < w->grid_count; i++) {
        snprintf(options[i], sizeof options[i], "--%s=%s", w->grids[i].option, value_of(w, combination, i));
        w->arguments[count++] = options[i];
    }
    snprintf(number, sizeof number, "--seed=%lld", (long long)seed);
    w->arguments[count++] = number;
    NW_TRY(nw_child_train(
        &(nw_child){.dir = dir, .arguments = w->arguments, .count = count, .quiet = w->settings->quiet}, &child));
    result *r = &w->results[combination];
    r->sum += child.test_top1;
    r->squares += child.test_top1 * child.test_top1;
    r->best = r->runs == 0 || child.test_top1 > r->best ? child.test_top1 : r->best;
    r->seconds += child.train_seconds;
    r->runs++;
    return NW_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

static double mean_of(const result *r) { return r->sum / r->runs; }
static double deviation_of(const result *r) /* of a sample */
{
    double variance = r->runs > 1 ? (r->squares - r->sum * r->sum / r->runs) / (r->runs - 1) : 0;
    return sqrt(variance > 0 ? variance : 0);
}

static void write_tsv(const sweep *w, FILE *out)
{
    fprintf(out, "combination\truns\ttest_top1_mean\ttest_top1_std\ttest_top1_best\ttrain_seconds_mean\n");
    for (int i = 0; i < w->combinations; i++) {
        char name[1024];
        const result *r = &w->results[i];
        combination_name(w, i, name, sizeof name);
        fprintf(out, "%s\t%d\t%.4f\t%.4f\t%.4f\t%.3f\n", name, r->runs, mean_of(r), deviation_of(r), r->best,
                r->seconds / r->runs);
    }
}

static void write_json(const sweep *w, FILE *out)
{
    nw_json json = nw_json_begin(out, true);
    nw_json_array(&json);
    for (int i = 0; i < w->combinations; i++) {
        const result *r = &w->results[i];
        nw_json_object(&json);
        for (int g = 0; g < w->grid_count; g++) nw_json_put_string(&json, w->grids[g].option, value_of(w, i, g));
        nw_json_put_int(&json, "runs", r->runs);
        nw_json_put_double(&json, "test_top1_mean", mean_of(r));
        nw_json_put_double(&json, "test_top1_std", deviation_of(r));
        nw_json_put_double(&json, "test_top1_best", r->best);
        nw_json_put_double(&json, "train_seconds_mean", r->seconds / r->runs);
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    nw_json_end(&json);
}

static nw_status save_results(const sweep *w, const char *name, void (*write)(const sweep *, FILE *))
{
    char *path, *text = NULL;
    size_t size;
    NW_TRY(nw_path_join(&path, w->dir, name));
    FILE *out = open_memstream(&text, &size);
    nw_status status = out ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory for %s", name);
    if (out) {
        write(w, out);
        if (fclose(out) != 0) status = NW_FAIL(NW_E_MEMORY, "no memory for %s", name);
    }
    if (status == NW_OK) status = nw_file_replace(path, text, size);
    free(text);
    free(path);
    return status;
}

static void print_table(const sweep *w)
{
    printf("%-40s %5s %10s %8s %10s %12s\n", "combination", "runs", "top-1 %", "std", "best", "seconds");
    for (int i = 0; i < w->combinations; i++) {
        char name[1024];
        const result *r = &w->results[i];
        combination_name(w, i, name, sizeof name);
        printf("%-40s %5d %10.2f %8.2f %10.2f %12.1f\n", name, r->runs, mean_of(r), deviation_of(r), r->best,
               r->seconds / r->runs);
    }
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static nw_status run_all(sweep *w, int argc, char **argv)
{
    NW_TRY(cut_grids(w));
    NW_TRY(keep_arguments(w, argc, argv));
    w->results = calloc((size_t)w->combinations, sizeof *w->results);
    NW_FAIL_IF(!w->results, NW_E_MEMORY, "no memory for the results");
    NW_TRY(nw_directory_make(w->dir));
    for (int seed = 0; seed < w->settings->seeds; seed++) /* a first look at everything comes before repetitions */
        for (int i = 0; i < w->combinations; i++) NW_TRY(visit(w, i, w->settings->seed + seed));
    NW_TRY(save_results(w, "sweep.tsv", write_tsv));
    NW_TRY(save_results(w, "sweep.json", write_json));
    if (strcmp(w->settings->format, "json") == 0)
        write_json(w, stdout);
    else
        print_table(w);
    return NW_OK;
}

nw_status nw_command_sweep(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf("usage: nowait sweep --grid OPTION=VALUE,VALUE... [--grid ...] [--seeds N] [options of train]\n\n"
               "Trains every combination with every seed, in RUN_DIR/<combination>/seed<k>. The same command goes on\n"
               "after an interruption. Results: a table, and sweep.tsv and sweep.json in RUN_DIR.\n");
        return NW_OK;
    }
    char **given = calloc((size_t)argc + 1, sizeof *given);
    NW_FAIL_IF(!given, NW_E_MEMORY, "no memory for the arguments");
    for (int i = 0; i < argc; i++) given[i] = argv[i];
    nw_settings settings;
    int positional;
    nw_status status = nw_options_parse(NW_COMMAND_SWEEP, argc, argv, &settings, &positional);
    if (status == NW_OK && positional > 0)
        status = NW_FAIL(NW_E_ARGUMENT, "'nowait sweep' takes options only, not '%s'", argv[0]);
    sweep w = {.settings = &settings};
    char dir[1024];
    if (status == NW_OK) {
        snprintf(dir, sizeof dir, "runs/sweep-%s", settings.run_name);
        w.dir = settings.run_dir[0] ? settings.run_dir : dir;
        status = run_all(&w, argc, given);
    }
    for (int i = 0; i < w.grid_count; i++) free(w.grids[i].text);
    free(w.arguments);
    free(w.results);
    free(given);
    nw_settings_free(&settings);
    return status;
}
