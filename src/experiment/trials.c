/* trials.c - doing many runs, and asking for what they left; see trials.h. */
#define _GNU_SOURCE 1
#include "experiment/trials.h"

#include "base/file.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

nw_status nw_trials_add(nw_trials *trials, const char *name, nw_trial **trial)
{
    NW_FAIL_IF(!nw_grow(&trials->at, (size_t)trials->count, sizeof *trials->at), NW_E_MEMORY, "no memory for %d trials",
               trials->count + 1);
    *trial = &trials->at[trials->count++];
    **trial = (nw_trial){0};
    return nw_text_copy(&(*trial)->name, name);
}

void nw_trials_free(nw_trials *trials)
{
    for (int i = 0; i < trials->count; i++) {
        nw_words_free(&trials->at[i].options);
        free(trials->at[i].name);
        free(trials->at[i].line);
    }
    free(trials->at);
    free(trials->dir);
    free(trials->remark);
    *trials = (nw_trials){0};
}

/* ---- doing them -------------------------------------------------------------------------------------------------- */

/* The folder of a trial's run with the k-th seed, to be freed. */
static nw_status run_dir(const nw_trials *trials, const nw_trial *trial, int k, char **dir)
{
    return nw_text_print(dir, "%s/%s%sseed%lld", trials->dir, trial->name, *trial->name ? "/" : "",
                         (long long)(trials->seed + k));
}

static nw_status add_words(nw_words *words, char *const *at, int count)
{
    for (int i = 0; i < count; i++) NW_TRY(nw_words_add(words, at[i]));
    return NW_OK;
}

/* Of two equal options the last counts. A run that has a checkpoint goes on from it. */
static nw_status make_line(const nw_trials *trials, const nw_trial *trial, int k, const char *dir, nw_words *line)
{
    NW_TRY(nw_words_add(line, "nowait"));
    if (trial->ranks > 1) NW_TRY(nw_words_add(line, "launch"));
    if (trial->ranks > 1) NW_TRY(nw_words_add_format(line, "--ranks=%d", trial->ranks));
    if (trial->ranks > 1 && trials->quiet) NW_TRY(nw_words_add(line, "--quiet"));
    if (trial->ranks > 1) NW_TRY(nw_words_add(line, "--"));
    NW_TRY(nw_words_add(line, "train"));
    if (!trials->given_wins) NW_TRY(add_words(line, trials->given, trials->given_count));
    NW_TRY(add_words(line, trial->options.at, trial->options.count));
    if (trials->given_wins) NW_TRY(add_words(line, trials->given, trials->given_count));
    NW_TRY(nw_words_add_format(line, "--seed=%lld", (long long)(trials->seed + k)));
    NW_TRY(add_words(line, (char *[]){"--run-dir", (char *)dir}, 2));
    return nw_checkpoint_exists(dir) ? add_words(line, (char *[]){"--resume", (char *)dir}, 2) : NW_OK;
}

static nw_status train_or_print(const nw_trials *trials, const nw_words *line, const char *dir)
{
    if (trials->dry_run) {
        NW_AUTOFREE char *text = NULL;
        NW_TRY(nw_words_quote(line, &text));
        printf("%s\n", text);
        return NW_OK;
    }
    bool done;
    NW_TRY(nw_child_done(dir, &done, NULL, NULL));
    if (done) return NW_OK;
    if (!trials->quiet) fprintf(stderr, "nowait: training in %s\n", dir);
    NW_TRY(nw_child_run(line, dir));
    NW_TRY(nw_child_done(dir, &done, NULL, NULL));
    NW_FAIL_IF(!done, NW_E_INTERNAL, "the run in %s ended well but its summary.json does not say so", dir);
    return NW_OK;
}

static nw_status visit(const nw_trials *trials, const nw_trial *trial, int k)
{
    NW_AUTOFREE char *dir = NULL;
    NW_CLEANUP(nw_words_free) nw_words line = {0};
    NW_TRY(run_dir(trials, trial, k, &dir));
    NW_TRY(make_line(trials, trial, k, dir, &line));
    return train_or_print(trials, &line, dir);
}

nw_status nw_trials_run(const nw_trials *trials, const char *only)
{
    int chosen = 0;
    for (int k = 0; k < trials->seeds; k++) /* a first look at everything comes before repetitions */
        for (int t = 0; t < trials->count; t++) {
            if (only && strcmp(only, trials->at[t].name) != 0) continue;
            NW_TRY(visit(trials, &trials->at[t], k));
            chosen++;
        }
    NW_FAIL_IF(chosen == 0, NW_E_ARGUMENT, "there is no run '%s' in %s; --dry-run prints them all", only ? only : "",
               trials->dir);
    return NW_OK;
}

/* ---- what they left ---------------------------------------------------------------------------------------------- */

nw_status nw_trial_sample(const nw_trials *trials, const nw_trial *trial, const char *field, nw_sample *sample)
{
    double sum = 0, squares = 0;
    *sample = (nw_sample){.best = NAN};
    for (int k = 0; k < trials->seeds; k++) {
        NW_AUTOFREE char *dir = NULL;
        bool done;
        double value = NAN;
        NW_TRY(run_dir(trials, trial, k, &dir));
        NW_TRY(nw_child_done(dir, &done, field, &value));
        if (!done) continue;
        sum += value;
        squares += value * value;
        sample->best = fmax(sample->best, value);
        sample->runs++;
    }
    double n = sample->runs, variance = n > 1 ? (squares - sum * sum / n) / (n - 1) : 0;
    sample->mean = sum / n;
    sample->deviation = sqrt(variance > 0 ? variance : 0);
    return NW_OK;
}

/* The 97.5 % quantile of Student's t, by degrees of freedom; beyond the table its expansion, right to a thousandth. */
static double student(int freedom)
{
    static const double table[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                   2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
    const int most = sizeof table / sizeof table[0];
    return freedom <= most ? table[freedom - 1] : 1.95996 + 2.3723 / freedom + 2.8225 / ((double)freedom * freedom);
}

double nw_half_interval(int runs, double deviation)
{
    return runs < 2 ? (double)NAN : student(runs - 1) * deviation / sqrt(runs);
}

/* Sums over the seeds, and of squares, become means and intervals. */
static void finish_curves(nw_curve *mean, nw_curve *half, int seeds)
{
    for (int i = 0; i < mean->count; i++) {
        double squares = half ? half->y[i] : 0, sum = mean->y[i];
        double variance = (squares - sum * sum / seeds) / (seeds - 1);
        mean->y[i] /= seeds;
        if (half) half->y[i] = nw_half_interval(seeds, sqrt(variance > 0 ? variance : 0));
    }
}

nw_status nw_trial_curve(const nw_trials *trials, const nw_trial *trial, const char *field, nw_curve *mean,
                         nw_curve *half)
{
    int seeds = trials->seeds;
    if (seeds < 2) half = NULL;
    for (int k = 0; k < seeds; k++) {
        NW_AUTOFREE char *dir = NULL;
        NW_CLEANUP(nw_curve_free) nw_curve curve = {0};
        NW_TRY(run_dir(trials, trial, k, &dir));
        NW_TRY(nw_curve_read(&curve, dir, field));
        for (int i = 0; i < curve.count && k == 0; i++) {
            NW_TRY(nw_curve_add(mean, curve.x[i], 0));
            if (half) NW_TRY(nw_curve_add(half, curve.x[i], 0));
        }
        for (int i = 0; i < mean->count; i++) {
            double y = nw_curve_at(&curve, mean->x[i]);
            mean->y[i] += y;
            if (half) half->y[i] += y * y;
        }
    }
    finish_curves(mean, half, seeds);
    return NW_OK;
}

nw_status nw_trials_save(const nw_trials *trials, const char *name, nw_status (*fill)(FILE *out, void *context),
                         void *context)
{
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_directory_make(trials->dir));
    NW_TRY(nw_path_join(&path, trials->dir, name));
    return nw_file_replace_by(path, fill, context);
}
