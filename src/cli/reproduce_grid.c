/*
 * reproduce_grid.c - experiments of several runs: planning them, doing them one after the other, collecting what they
 * left. See reproduce.h.
 *
 * Options of a trial come first and what the user gave after them, so the user wins: `--max-epoch 12` cuts a published
 * run short.
 */
#include "cli/reproduce.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { TINY_IMAGES = 2048 };

/* ---- for plans --------------------------------------------------------------------------------------------------- */

nw_status nw_grid_add(nw_grid *grid, nw_trial **trial, const char *format, ...)
{
    NW_FAIL_IF(grid->count == NW_GRID_TRIALS, NW_E_INTERNAL, "an experiment has room for %d trials", NW_GRID_TRIALS);
    *trial = &grid->trials[grid->count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf((*trial)->name, sizeof(*trial)->name, format, arguments);
    va_end(arguments);
    snprintf((*trial)->label, sizeof(*trial)->label, "%s", (*trial)->name);
    return NW_OK;
}

nw_status nw_trial_options(nw_trial *trial, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    NW_FAIL_IF(length >= (int)sizeof text, NW_E_INTERNAL, "too many options at once for %s", trial->name);
    return nw_words_add_cut(&trial->arguments, text);
}

int nw_scale_epochs(nw_scale scale, int epochs)
{
    int eighth = epochs / 8 > 5 ? epochs / 8 : 5;
    return scale == NW_SCALE_TINY ? 1 : scale == NW_SCALE_SMALL && eighth < epochs ? eighth : epochs;
}

nw_status nw_trial_shorten(const nw_grid *grid, nw_trial *trial, int epochs)
{
    if (grid->scale != NW_SCALE_PAPER)
        NW_TRY(nw_trial_options(trial, "--shorten=%d", nw_scale_epochs(grid->scale, epochs)));
    return grid->scale == NW_SCALE_TINY ? nw_trial_options(trial, "--limit=%d", TINY_IMAGES) : NW_OK;
}

/* ---- doing them -------------------------------------------------------------------------------------------------- */

static void seed_dir(const nw_grid *grid, const nw_trial *trial, int seed, char *dir, size_t size)
{
    snprintf(dir, size, "%s/%s/seed%lld", grid->dir, trial->name, (long long)(grid->settings->seed + seed));
}

static nw_status visit(const nw_grid *grid, nw_trial *trial, int seed)
{
    char dir[1200];
    nw_words words = {0};
    nw_child_result result;
    seed_dir(grid, trial, seed, dir, sizeof dir);
    nw_status status = NW_OK;
    for (int i = 0; i < trial->arguments.count && status == NW_OK; i++)
        status = nw_words_add(&words, trial->arguments.at[i]);
    if (status == NW_OK) status = nw_words_add_format(&words, "--seed=%lld", (long long)(grid->settings->seed + seed));
    nw_child child = {
        .dir = dir, .arguments = words.at, .count = words.count, .ranks = trial->ranks, .quiet = grid->settings->quiet};
    if (status == NW_OK) status = grid->settings->dry_run ? nw_child_print(&child) : nw_child_train(&child, &result);
    nw_words_free(&words);
    return status;
}

/* Also of trials that an earlier call did. */
static nw_status collect(nw_grid *grid)
{
    for (int t = 0; t < grid->count; t++) {
        nw_trial *trial = &grid->trials[t];
        nw_child_result sum = {0}, result;
        trial->done = true;
        for (int k = 0; k < grid->settings->seeds && trial->done; k++) {
            char dir[1200];
            seed_dir(grid, trial, k, dir, sizeof dir);
            NW_TRY(nw_child_done(dir, &trial->done, &result));
            if (!trial->done) break;
            sum.test_top1 += result.test_top1;
            sum.train_eval_loss += result.train_eval_loss;
            sum.train_seconds += result.train_seconds;
            sum.virtual_seconds += result.virtual_seconds;
            sum.steps += result.steps;
        }
        double seeds = grid->settings->seeds;
        trial->result = (nw_child_result){.test_top1 = sum.test_top1 / seeds,
                                          .train_eval_loss = sum.train_eval_loss / seeds,
                                          .train_seconds = sum.train_seconds / seeds,
                                          .virtual_seconds = sum.virtual_seconds / seeds,
                                          .steps = sum.steps / seeds};
    }
    return NW_OK;
}

static nw_status do_trials(nw_grid *grid, const char *only, char *const *given, int given_count)
{
    const nw_settings *s = grid->settings;
    int chosen = 0;
    for (int t = 0; t < grid->count; t++) {
        chosen += !only || strcmp(only, grid->trials[t].name) == 0;
        for (int i = 0; i < given_count; i++) NW_TRY(nw_words_add(&grid->trials[t].arguments, given[i]));
    }
    NW_FAIL_IF(chosen == 0, NW_E_ARGUMENT,
               "%s has no run '%s'; 'nowait reproduce %s --dry-run' prints them, and their folders are their names",
               grid->experiment->name, only ? only : "", grid->experiment->name);
    for (int k = 0; k < s->seeds; k++) /* a first look at everything comes before repetitions */
        for (int t = 0; t < grid->count; t++)
            if (!only || strcmp(only, grid->trials[t].name) == 0) NW_TRY(visit(grid, &grid->trials[t], k));
    return NW_OK;
}

static nw_status run(nw_grid *grid, const char *only, char *const *given, int given_count)
{
    const nw_settings *s = grid->settings;
    NW_TRY(grid->experiment->plan(grid));
    if (*grid->remark && (s->dry_run || !s->quiet)) fprintf(stderr, "nowait: %s\n", grid->remark);
    NW_TRY(do_trials(grid, only, given, given_count));
    if (s->dry_run) return NW_OK;
    NW_TRY(collect(grid));
    NW_TRY(grid->experiment->report(grid));
    nw_chart_head head = {grid->experiment->name, s->scale, grid->remark};
    NW_TRY(nw_charts_save(&head, grid->charts, grid->chart_count, grid->dir));
    nw_charts_print(&head, grid->charts, grid->chart_count, stdout);
    printf("\ntable.txt, table.json and drawings are in %s\n", grid->dir);
    return NW_OK;
}

nw_status nw_grid_run(const nw_experiment *experiment, const nw_settings *settings, const char *only,
                      char *const *given, int given_count)
{
    nw_grid *grid = calloc(1, sizeof *grid);
    NW_FAIL_IF(!grid, NW_E_MEMORY, "no memory for an experiment");
    grid->experiment = experiment;
    grid->settings = settings;
    grid->scale = strcmp(settings->scale, "paper") == 0  ? NW_SCALE_PAPER
                  : strcmp(settings->scale, "tiny") == 0 ? NW_SCALE_TINY
                                                         : NW_SCALE_SMALL;
    snprintf(grid->dir, sizeof grid->dir, "%s/%s-%s%s", settings->run_dir[0] ? settings->run_dir : "runs/reproduce",
             experiment->name, settings->scale, settings->real ? "-real" : "");
    nw_status status = run(grid, only, given, given_count);
    for (int i = 0; i < grid->count; i++) nw_words_free(&grid->trials[i].arguments);
    for (int i = 0; i < grid->chart_count; i++) nw_chart_free(&grid->charts[i]);
    free(grid);
    return status;
}

/* ---- for reports ------------------------------------------------------------------------------------------------- */

nw_status nw_grid_chart(nw_grid *grid, nw_chart **chart, const char *file, const char *title, const char *x,
                        const char *y, int decimals)
{
    NW_FAIL_IF(grid->chart_count == NW_GRID_CHARTS, NW_E_INTERNAL, "an experiment has room for %d charts",
               NW_GRID_CHARTS);
    *chart = &grid->charts[grid->chart_count++];
    **chart = (nw_chart){.file = file, .x = x, .y = y, .decimals = decimals};
    snprintf((*chart)->title, sizeof(*chart)->title, "%s", title);
    return NW_OK;
}

/* The mean over the seeds, at the epochs that all of them have. */
static nw_status read_mean(const nw_grid *grid, const nw_trial *trial, const char *field, nw_curve *mean)
{
    nw_status status = NW_OK;
    for (int k = 0; k < grid->settings->seeds && status == NW_OK; k++) {
        char dir[1200];
        nw_curve curve = {0};
        seed_dir(grid, trial, k, dir, sizeof dir);
        status = nw_curve_read(k == 0 ? mean : &curve, dir, field);
        for (int i = 0; k > 0 && i < mean->count; i++) mean->y[i] += nw_curve_at(&curve, mean->x[i]);
        nw_curve_free(&curve);
    }
    for (int i = 0; i < mean->count; i++) mean->y[i] /= grid->settings->seeds;
    return status;
}

nw_status nw_grid_chart_epochs(nw_grid *grid, const char *prefix, const char *file, const char *title, const char *y,
                               const char *field, const char *quantity)
{
    nw_chart *chart;
    NW_TRY(nw_grid_chart(grid, &chart, file, title, "epoch", y, 2));
    chart->logarithmic = true; /* most happens in the first epochs */
    for (int t = 0; t < grid->count; t++) {
        const nw_trial *trial = &grid->trials[t];
        if (strncmp(trial->name, prefix, strlen(prefix)) != 0) continue;
        const nw_published *published = nw_published_find(grid->experiment->name, trial->variant, quantity);
        if (!trial->done && !published) continue;
        nw_chart_line *line;
        NW_TRY(nw_chart_line_add(chart, published, &line, "%s", trial->label));
        if (trial->done) NW_TRY(read_mean(grid, trial, field, &line->here));
    }
    if (chart->count == 0) grid->chart_count--;
    return NW_OK;
}
