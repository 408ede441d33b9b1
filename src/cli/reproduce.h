/*
 * reproduce.h - the parts of `nowait reproduce`: experiments that are sets of runs, with tables and charts of them beside
 * what was published.
 *
 * An experiment of several runs is a grid: `plan` says which runs it has (trials), each with its options of train; the
 * runs are made by children, resumable, in DIR/<trial>/seed<k>; `report` fills charts from what they left. A chart is
 * printed as a table, and kept in DIR as table.txt, table.json and an SVG. Trials that were not done yet have their
 * published line only, so an experiment may be done trial by trial.
 */
#ifndef NW_CLI_REPRODUCE_H
#define NW_CLI_REPRODUCE_H

#include "cli/child.h"
#include "cli/options.h"
#include "cli/published.h"
#include "observe/curve.h"

enum { NW_GRID_TRIALS = 32, NW_CHART_LINES = 32, NW_GRID_CHARTS = 8 };

/* ---- charts (reproduce_chart.c) ---------------------------------------------------------------------------------- */

typedef struct nw_chart_line {
    char name[64];
    nw_curve here, published;
    const char *source; /* of what was published; NULL: nothing was */
} nw_chart_line;

typedef struct nw_chart {
    const char *file; /* "delays": of the SVG, without its ending */
    char title[128];
    const char *x, *y; /* names of the axes */
    int decimals;      /* of a number in the table */
    bool logarithmic;  /* the x axis */
    nw_chart_line lines[NW_CHART_LINES];
    int count;
} nw_chart;

/* A new line; what was published is added if it is not NULL. */
nw_status nw_chart_line_add(nw_chart *chart, const nw_published *published, nw_chart_line **line, const char *format,
                            ...) __attribute__((format(printf, 4, 5)));
void nw_chart_free(nw_chart *chart);

/* What all charts of an experiment share. */
typedef struct nw_chart_head {
    const char *experiment, *scale, *remark; /* remark: what differs from the published experiment; "" nothing */
} nw_chart_head;

void nw_charts_print(const nw_chart_head *head, const nw_chart *charts, int count, FILE *out);
/* table.txt, table.json and the drawings. */
nw_status nw_charts_save(const nw_chart_head *head, const nw_chart *charts, int count, const char *dir);

/* ---- experiments of several runs (reproduce_grid.c) --------------------------------------------------------------- */

typedef enum nw_scale { NW_SCALE_TINY, NW_SCALE_SMALL, NW_SCALE_PAPER } nw_scale;

typedef struct nw_trial {
    char name[48];    /* of its folder: "delay20" */
    char label[64];   /* in tables: "delay 20" */
    char variant[32]; /* which published line: "20"; "" none */
    int workers;      /* 0: does not matter */
    int ranks;        /* more than 1: real ones */
    nw_words arguments;
    bool done;              /* with all its seeds */
    nw_child_result result; /* then: the mean over the seeds */
} nw_trial;

typedef struct nw_grid {
    const struct nw_experiment *experiment;
    const nw_settings *settings;
    nw_scale scale;
    char dir[1024];
    nw_trial trials[NW_GRID_TRIALS];
    int count;
    nw_chart charts[NW_GRID_CHARTS];
    int chart_count;
    char remark[512];
} nw_grid;

typedef struct nw_experiment {
    const char *name; /* "apam/delays" */
    const char *what;
    int runs;          /* how many, for the list */
    const char *needs; /* what must be named with --data-dir, in words; NULL: nothing */
    nw_status (*plan)(nw_grid *grid);
    nw_status (*report)(nw_grid *grid);
} nw_experiment;

extern const nw_experiment nw_apam_experiments[];
extern const int nw_apam_experiment_count;

/* Does the trials whose name is `only` (NULL: all) and reports, or with --dry-run prints their command lines. `given`:
 * what the user has to say to train. */
nw_status nw_grid_run(const nw_experiment *experiment, const nw_settings *settings, const char *only,
                      char *const *given, int given_count);

/* For plans: a new trial; options for it, one or several words in a text; a limit to what the scale allows of so many
 * published epochs. */
nw_status nw_grid_add(nw_grid *grid, nw_trial **trial, const char *format, ...) __attribute__((format(printf, 3, 4)));
nw_status nw_trial_options(nw_trial *trial, const char *format, ...) __attribute__((format(printf, 2, 3)));
nw_status nw_trial_shorten(const nw_grid *grid, nw_trial *trial, int epochs);
int nw_scale_epochs(nw_scale scale, int epochs);

/* For reports: a new chart. And a field of the records by epoch, for all trials whose name begins with `prefix`, beside
 * the published quantity; a chart without any line is left out. */
nw_status nw_grid_chart(nw_grid *grid, nw_chart **chart, const char *file, const char *title, const char *x,
                        const char *y, int decimals);
nw_status nw_grid_chart_epochs(nw_grid *grid, const char *prefix, const char *file, const char *title, const char *y,
                               const char *field, const char *quantity);

#endif
