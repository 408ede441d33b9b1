/*
 * Folder src/experiment: many runs as one job: sweeps, and papers as data. It starts processes and reads what they
 * left; it trains nothing itself. May include: base, data, checkpoint, observe, launch, config.
 *
 * trials.h - many training runs as one job, the engine of `nowait sweep` and `nowait reproduce`.
 *
 * A trial is a set of options of train. It is run once for each seed, by a process of its own, in DIR/<trial>/seed<k>.
 * A run that is done is not repeated, one that was interrupted is continued, so the same job goes on where it was
 * stopped; trials may also be done one by one. Afterwards numbers and curves of what the runs left are asked for by
 * name, as means over the seeds.
 */
#ifndef NW_EXPERIMENT_TRIALS_H
#define NW_EXPERIMENT_TRIALS_H

#include "config/command_options.h"
#include "experiment/child.h"
#include "observe/curve.h"

typedef struct nw_trial {
    char *name;       /* of its folder; "": DIR itself */
    nw_words options; /* of train */
    int ranks;        /* more than 1: real ones */
    char *line;       /* which line of a chart it is on, and where; see paper.h */
    double x;
} nw_trial;

typedef struct nw_trials {
    int64_t seed; /* the first of the seeds */
    int seeds;
    bool quiet, dry_run;
    char *dir;          /* freed with the trials, and so is the remark */
    char *remark;       /* how they differ from what was published; NULL: not at all */
    char *const *given; /* what the user has to say to train */
    int given_count;
    bool given_wins; /* over the options of a trial; otherwise those win */
    nw_trial *at;
    int count;
} nw_trials;

/* A new trial at the end, to be filled; the name is copied. It moves with the next call. */
nw_status nw_trials_add(nw_trials *trials, const char *name, nw_trial **trial);
void nw_trials_free(nw_trials *trials);

/* Does the trials whose name is `only` (NULL: all), or with --dry-run prints their command lines. */
nw_status nw_trials_run(const nw_trials *trials, const char *only);

/* A field of summary.json (see nw_child_done) over the seeds of a trial. */
typedef struct nw_sample {
    int runs; /* that are done */
    double mean, deviation, best;
} nw_sample;

nw_status nw_trial_sample(const nw_trials *trials, const nw_trial *trial, const char *field, nw_sample *sample);
/* Half of the 95 % confidence interval of the mean of so many runs (Student's t): t s / sqrt(n), s the deviation. NAN: one
 * run says nothing of that. */
double nw_half_interval(int runs, double deviation);
/* A field of the records by epoch: the mean at the epochs that all seeds have, and half of its interval, where it is asked
 * for and there is one; added to empty curves. */
nw_status nw_trial_curve(const nw_trials *trials, const nw_trial *trial, const char *field, nw_curve *mean,
                         nw_curve *half);

/* The file DIR/name, written by `fill`. */
nw_status nw_trials_save(const nw_trials *trials, const char *name, nw_status (*fill)(FILE *out, void *context),
                         void *context);

/* ---- sweeps (grid.c) --------------------------------------------------------------------------------------------- */

/* A trial for every combination of "option=value,value" texts, the last changing fastest: "lr=0.1,batch-size=64", or
 * "all" where there is no text. */
nw_status nw_trials_add_grid(nw_trials *trials, const nw_text_list *grids);
/* Accuracy and time of all trials: sweep.tsv and sweep.json in DIR, and on stdout a table, or that JSON (as_json). */
nw_status nw_trials_report(const nw_trials *trials, bool as_json);

#endif
