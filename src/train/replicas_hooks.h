/*
 * replicas_hooks.h - who listens to a group's driver: the trace and the run. See replicas.h.
 */
#ifndef NW_TRAIN_REPLICAS_HOOKS_H
#define NW_TRAIN_REPLICAS_HOOKS_H

#include "net/driver.h"
#include "observe/trace.h"

typedef struct nw_replicas_hooks_options {
    bool trace;
    size_t trace_events; /* of a rank; 0: the usual number */
    int world, first, count;
    int64_t first_step;
    void (*dropped)(void *context, int rank, bool back); /* NULL: nobody asks */
    void *context;
} nw_replicas_hooks_options;

typedef struct nw_replicas_hooks {
    nw_trace *trace; /* NULL: none */
    int names[8];    /* of slices, in the trace */
    void (*dropped)(void *context, int rank, bool back);
    void *context;
} nw_replicas_hooks;

/* Opens them and fills `hooks` for a driver. */
nw_status nw_replicas_hooks_open(nw_replicas_hooks *self, const nw_replicas_hooks_options *options,
                                 nw_driver_hooks *hooks);
/* Draws a curve of the loss beside rank 0. */
void nw_replicas_hooks_loss(nw_replicas_hooks *self, int64_t step, int64_t now_ns, double loss);
void nw_replicas_hooks_close(nw_replicas_hooks *self);

#endif
