/*
 * crew_taps.h - who listens to a crew's driver: the trace and the run. See crew.h.
 */
#ifndef NW_TRAIN_CREW_TAPS_H
#define NW_TRAIN_CREW_TAPS_H

#include "net/driver.h"
#include "observe/trace.h"

typedef struct nw_crew_taps_options {
    bool trace;
    size_t trace_events; /* of a rank; 0: the usual number */
    int world, first, count;
    int64_t first_step;
    void (*dropped)(void *context, int rank, bool back); /* NULL: nobody asks */
    void *context;
} nw_crew_taps_options;

typedef struct nw_crew_taps {
    nw_trace *trace; /* NULL: none */
    int names[8];    /* of slices, in the trace */
    void (*dropped)(void *context, int rank, bool back);
    void *context;
} nw_crew_taps;

/* Opens them and fills `taps` for a driver. */
nw_status nw_crew_taps_open(nw_crew_taps *self, const nw_crew_taps_options *options, nw_taps *taps);
/* Draws a curve of the loss beside rank 0. */
void nw_crew_taps_loss(nw_crew_taps *self, int64_t step, int64_t now_ns, double loss);
void nw_crew_taps_close(nw_crew_taps *self);

#endif
