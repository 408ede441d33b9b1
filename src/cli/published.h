/*
 * published.h - what was published of the experiments that `nowait reproduce` repeats in several runs: curves and
 * tables, as lists of points, each with the figure or table that it comes from.
 *
 * A figure shows one quantity (y) of one experiment by epoch or by number of workers (x), with a line for each of its
 * variants. Accuracies are percent, times what the quantity's name says.
 */
#ifndef NW_CLI_PUBLISHED_H
#define NW_CLI_PUBLISHED_H

enum { NW_PUBLISHED_POINTS = 10 };

/* What the lines of a figure share. */
typedef struct nw_published_figure {
    const char *experiment; /* "apam/delays" */
    const char *quantity;   /* "test_top1", "train_top1", "hours", ... */
    const char *source;     /* "APAM, figure 9" */
    int count;
    double x[NW_PUBLISHED_POINTS]; /* ascending */
} nw_published_figure;

typedef struct nw_published {
    const nw_published_figure *figure;
    const char *variant; /* which line: "20", "async"; see published.c */
    double y[NW_PUBLISHED_POINTS];
} nw_published;

/* NULL where nothing was published. */
const nw_published *nw_published_find(const char *experiment, const char *variant, const char *quantity);

#endif
