/*
 * plot.h - line charts as SVG that need nothing else: title, two axes with round ticks, curves, a legend beside them.
 *
 * A curve is a list of points, joined in their order. A point with a NaN or an infinite coordinate, or one that a
 * logarithmic axis cannot show (0 or less), makes a gap. Colours go by number, so that a measured curve and the
 * published one that it is compared with share a colour, the published one dashed. The same plot gives the same bytes.
 *
 * The caller describes what is to be seen; nothing here knows of runs.
 */
#ifndef NW_OBSERVE_PLOT_H
#define NW_OBSERVE_PLOT_H

#include "base/status.h"

enum { NW_PLOT_COLOURS = 10 }; /* numbers beyond begin again at 0 */

typedef struct nw_plot_curve {
    const char *name; /* in the legend; NULL: none */
    const double *x, *y;
    int count;
    int colour;  /* from 0 on */
    bool dashed; /* published, expected, not ours */
    bool dots;   /* a mark on every point: for few of them */
} nw_plot_curve;

typedef struct nw_plot_axis {
    const char *label; /* NULL: none */
    bool logarithmic;
    double low, high; /* what must be seen; both 0: what the curves need. Ticks may lie beyond */
} nw_plot_axis;

typedef struct nw_plot {
    const char *title, *note; /* the note stands below the title, smaller; NULL: none */
    nw_plot_axis x, y;
    const nw_plot_curve *curves;
    int count;
} nw_plot;

/* A file: whole or absent. A plot without any point has axes from 0 to 1 (1 to 10). */
nw_status nw_plot_write(const nw_plot *plot, const char *path);

#endif
