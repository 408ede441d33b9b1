/*
 * paper.h - published experiments as data: what to run, and the numbers to put beside it. A paper is a file
 * experiments/PAPER.yaml with one map, `experiments`, from names to
 *
 *   what: TEXT             for the list; where the numbers are from
 *   recipe: RECIPE         one run of a recipe,
 *   epochs: N                so many of which were published,
 *   published: PERCENT       and this top-1; where it is missing, nothing was
 *
 * or several runs, and charts of them:
 *
 *   what: TEXT
 *   remark: TEXT           how they differ from what was published
 *   options: WORDS         of train, for all runs
 *   runs: [BLOCK, ...]
 *   real: {remark: TEXT, options: WORDS, runs: [BLOCK, ...]}         what --real does instead
 *   charts: [CHART, ...]
 *
 * A block is as many runs as its lists are long. In its texts {KEY} stands for that run's value:
 *
 *   with: {KEY: [VALUE, VALUE, ...], KEY: VALUE, ...}                one a run, or one for all
 *   tiny, small, paper: {...}                                        more of them, at that --scale
 *   name: TEXT             the run's folder
 *   line: TEXT             its line in charts; by default its name
 *   x: NUMBER              its place on the line, in charts that are not by epoch
 *   ranks: N               of a real run, which is left out where there are more than one for each CPU (or two) and a server
 *   options: WORDS         behind those for all runs
 *   epochs: N              published; --scale shortens them
 *   dataset: D             where its training images are not at hand:
 *   stand-in: WORDS          these options too
 *   stand-in-remark: TEXT    and this remark
 *
 * A chart is a table, an SVG and a part of table.json:
 *
 *   file: NAME             of the SVG
 *   title: TEXT
 *   of: PREFIX             of the names of its runs; by default all
 *   x: epoch               every run is a line; or the name of what `x` of the runs is, then every run is a point
 *   along: FIELD           of the records of epochs: every run is a line over it, as over bytes_sent
 *   along-times: NUMBER    a factor on that
 *   y: TEXT
 *   value: FIELD           of the records of epochs, or of summary.json (nw_child_done)
 *   times: NUMBER          a factor on what was found here
 *   decimals: N            in the table; by default 2
 *   speed-up: true         values are times: show them as speed-ups over x = 1, the published ones too
 *   logarithmic: true      values are drawn on a logarithmic axis, and their exponents are in the table
 *   source: TEXT           of what was published:
 *   at: [X, X, ...]
 *   published: {LINE: [Y, Y, ...], ...}
 */
#ifndef NW_EXPERIMENT_PAPER_H
#define NW_EXPERIMENT_PAPER_H

#include "config/yaml.h"
#include "experiment/trials.h"

/* Several runs. */
typedef struct nw_setup {
    const char *remark, *options; /* NULL: none */
    const nw_yaml *blocks;
} nw_setup;

typedef struct nw_experiment {
    const char *file; /* for messages */
    const char *name; /* "apam/delays" */
    const char *what;
    const char *recipe;  /* of one run; NULL: there are several */
    int64_t epochs;      /* of one run, as published */
    double published;    /* of one run; NAN: nothing was */
    int runs;            /* without --real */
    nw_setup here, real; /* real.blocks may be NULL */
    const nw_yaml *charts, *real_map;
} nw_experiment;

typedef struct nw_paper {
    nw_bump region;
    nw_experiment *at;
    int count;
} nw_paper;

/* PAPER of experiments/PAPER.yaml. An unknown name is an error that says the nearest, whatever is wrong in a file
 * NW_E_FILE with its line. Whatever happens, nw_paper_free may follow. */
nw_status nw_paper_read(nw_paper *paper, const char *name);
nw_status nw_paper_parse(nw_paper *paper, const char *name, const char *file, const void *data, size_t size);
void nw_paper_free(nw_paper *paper);
/* Names of all papers, sorted. */
nw_status nw_paper_names(nw_bump *region, nw_text_list *names);

/* Of so many published epochs, those that a --scale trains. */
int nw_scale_epochs(const char *scale, int64_t epochs);
/* Its trials at the scale, and of the kind, that the options say; folder and remark. */
nw_status nw_experiment_plan(const nw_experiment *experiment, const nw_reproduce_options *options, nw_trials *trials);
/* Charts of what its trials left, beside what was published, printed and saved in their folder. Trials that were not
 * done yet have their published line only. */
nw_status nw_experiment_report(const nw_experiment *experiment, const char *scale, const nw_trials *trials);
/* That the file describes its charts well. */
nw_status nw_experiment_check_charts(const nw_experiment *experiment);

#endif
