/*
 * published.h - what was published of the experiments that `nowait reproduce` repeats in several runs: curves and
 * tables, as lists of points, each with the figure or table that it comes from.
 *
 * One row is one line of a figure: which experiment, which of its variants, which quantity, and that quantity (y) by
 * epoch or by number of workers (x). Accuracies are percent, times what the quantity's name says.
 */
#ifndef NW_CLI_PUBLISHED_H
#define NW_CLI_PUBLISHED_H

enum { NW_PUBLISHED_POINTS = 10 };

typedef struct nw_published {
    const char *experiment; /* "apam/delays" */
    const char *variant;    /* which line: "20", "async"; see published.c */
    const char *quantity;   /* "test_top1", "train_top1", "hours", ... */
    const char *source;     /* "APAM, figure 9" */
    int count;
    double x[NW_PUBLISHED_POINTS], y[NW_PUBLISHED_POINTS]; /* x ascending */
} nw_published;

/* NULL where nothing was published. */
const nw_published *nw_published_find(const char *experiment, const char *variant, const char *quantity);

/* All rows, for tests. */
int nw_published_count(void);
const nw_published *nw_published_at(int index);

#endif
