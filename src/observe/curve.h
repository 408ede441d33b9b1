/*
 * curve.h - points that make a line: added one by one, or read from what a run left.
 */
#ifndef NW_OBSERVE_CURVE_H
#define NW_OBSERVE_CURVE_H

#include "base/status.h"

/* Zero-initialised, it is empty. */
typedef struct nw_curve {
    double *x, *y;
    int count;
} nw_curve;

nw_status nw_curve_add(nw_curve *curve, double x, double y);
void nw_curve_free(nw_curve *curve);
/* y at x; NAN where there is no such point. */
double nw_curve_at(const nw_curve *curve, double x);

/* A field of the epoch records ("test_top1") by epoch, added to the curve, from RUN_DIR/metrics.jsonl. Epochs in
 * which it is not known are left out. NW_E_FILE if the file is missing or a record of an epoch is torn. */
nw_status nw_curve_read(nw_curve *curve, const char *run_dir, const char *field);

#endif
