/* grid.c - the trials of a sweep, and its results as a table, TSV and JSON; see trials.h. */
#define _GNU_SOURCE 1
#include "experiment/trials.h"

#include "base/json.h"
#include "base/text.h"
#include "config/option_table.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 100000, MOST_VALUES = 256 };

/* ---- combinations ------------------------------------------------------------------------------------------------ */

/* A name with one more "option=value"; a slash would be a folder. */
static nw_status add_combination(nw_trials *trials, const nw_trial *before, const char *option, const char *value)
{
    NW_AUTOFREE char *name = NULL;
    nw_trial *trial;
    bool first = before->options.count == 0;
    NW_TRY(nw_text_print(&name, "%s%s%s=%s", first ? "" : before->name, first ? "" : ",", option, value));
    for (char *at = name; (at = strchr(at, '/'));) *at = '_';
    NW_TRY(nw_trials_add(trials, name, &trial));
    for (int i = 0; i < before->options.count; i++) NW_TRY(nw_words_add(&trial->options, before->options.at[i]));
    return nw_words_add_format(&trial->options, "--%s=%s", option, value);
}

/* Every trial that there is, with each of the values; `values` is cut up. */
static nw_status multiply(nw_trials *all, const nw_trials *before, const char *option, char *values, const char *text)
{
    char *next[MOST_VALUES];
    int count = 0;
    for (char *value; (value = strsep(&values, ","));) {
        NW_FAIL_IF(!*value, NW_E_ARGUMENT, "--grid %s has an empty value", text);
        NW_FAIL_IF(count == MOST_VALUES, NW_E_ARGUMENT, "--grid %s has more than %d values", option, MOST_VALUES);
        next[count++] = value;
    }
    NW_FAIL_IF((int64_t)before->count * count * before->seeds > MOST_RUNS, NW_E_ARGUMENT,
               "this sweep has more than %d runs; make the grids smaller", MOST_RUNS);
    for (int t = 0; t < before->count; t++)
        for (int i = 0; i < count; i++) NW_TRY(add_combination(all, &before->at[t], option, next[i]));
    return NW_OK;
}

static nw_status add_grid(nw_trials *trials, char *copy, const char *text)
{
    char *equals = strchr(copy, '=');
    NW_FAIL_IF(!equals || equals == copy || !equals[1], NW_E_ARGUMENT,
               "--grid takes an option and its values, for example lr=0.1,0.2; not '%s'", text);
    *equals = 0;
    NW_FAIL_IF(nw_option_find(copy, NW_COMMAND_TRAIN).index < 0, NW_E_ARGUMENT,
               "--grid %s: 'nowait train' has no option --%s%s", text, copy,
               nw_option_nearest(copy, NW_COMMAND_TRAIN).text);
    NW_CLEANUP(nw_trials_free)
    nw_trials before = {.seeds = trials->seeds, .at = trials->at, .count = trials->count};
    trials->at = NULL;
    trials->count = 0;
    return multiply(trials, &before, copy, equals + 1, text);
}

nw_status nw_trials_add_grid(nw_trials *trials, const nw_text_list *grids)
{
    nw_trial *all;
    NW_TRY(nw_trials_add(trials, "all", &all));
    for (int i = 0; i < grids->count; i++) {
        NW_AUTOFREE char *copy = NULL;
        NW_TRY(nw_text_copy(&copy, grids->at[i]));
        NW_TRY(add_grid(trials, copy, grids->at[i]));
    }
    return NW_OK;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

typedef struct table {
    const nw_trials *trials;
    nw_sample *top1, *seconds; /* one a trial */
} table;

static nw_status write_tsv(FILE *out, void *context)
{
    const table *t = context;
    fprintf(out, "combination\truns\ttest_top1_mean\ttest_top1_std\ttest_top1_best\ttrain_seconds_mean\n");
    for (int i = 0; i < t->trials->count; i++)
        fprintf(out, "%s\t%d\t%.4f\t%.4f\t%.4f\t%.3f\n", t->trials->at[i].name, t->top1[i].runs, t->top1[i].mean,
                t->top1[i].deviation, t->top1[i].best, t->seconds[i].mean);
    return NW_OK;
}

static nw_status write_json(FILE *out, void *context)
{
    const table *t = context;
    nw_json json = nw_json_begin(out, true);
    nw_json_array(&json);
    for (int i = 0; i < t->trials->count; i++) {
        nw_json_object(&json);
        const nw_words *options = &t->trials->at[i].options;
        for (int k = 0; k < options->count; k++) { /* "--lr=0.1" */
            char key[128], *value = strchr(options->at[k], '=') + 1;
            snprintf(key, sizeof key, "%.*s", (int)(value - options->at[k]) - 3, options->at[k] + 2);
            nw_json_put_string(&json, key, value);
        }
        nw_json_put_int(&json, "runs", t->top1[i].runs);
        nw_json_put_double(&json, "test_top1_mean", t->top1[i].mean);
        nw_json_put_double(&json, "test_top1_std", t->top1[i].deviation);
        nw_json_put_double(&json, "test_top1_best", t->top1[i].best);
        nw_json_put_double(&json, "train_seconds_mean", t->seconds[i].mean);
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    nw_json_end(&json);
    return NW_OK;
}

static void print_table(const table *t)
{
    printf("%-40s %5s %10s %8s %10s %12s\n", "combination", "runs", "top-1 %", "std", "best", "seconds");
    for (int i = 0; i < t->trials->count; i++)
        printf("%-40s %5d %10.2f %8.2f %10.2f %12.1f\n", t->trials->at[i].name, t->top1[i].runs, t->top1[i].mean,
               t->top1[i].deviation, t->top1[i].best, t->seconds[i].mean);
}

nw_status nw_trials_report(const nw_trials *trials, bool as_json)
{
    NW_AUTOFREE nw_sample *top1 = calloc((size_t)trials->count, sizeof *top1);
    NW_AUTOFREE nw_sample *seconds = calloc((size_t)trials->count, sizeof *seconds);
    NW_FAIL_IF(!top1 || !seconds, NW_E_MEMORY, "no memory for the results");
    table *t = &(table){trials, top1, seconds};
    for (int i = 0; i < trials->count; i++) {
        NW_TRY(nw_trial_sample(trials, &trials->at[i], "test_top1", &t->top1[i]));
        NW_TRY(nw_trial_sample(trials, &trials->at[i], "train_seconds", &t->seconds[i]));
    }
    NW_TRY(nw_trials_save(trials, "sweep.tsv", write_tsv, t));
    NW_TRY(nw_trials_save(trials, "sweep.json", write_json, t));
    if (as_json) return write_json(stdout, t);
    print_table(t);
    return NW_OK;
}
