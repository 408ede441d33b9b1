/*
 * virtual.h - a cluster in one process: real arithmetic, simulated clock and network.
 *
 * All ranks of the world are in this process. Their events are handled one by one in the order of (time, rank,
 * sequence). A task is computed completely when it begins; its virtual duration comes from the worker and the cluster
 * (cluster.h), never from the time that it took here. links.h computes when messages arrive, and faults.h has the
 * script of faults. Nothing depends on real time or threads, so the same cluster, seed and program give the same run,
 * bit for bit, and the same virtual seconds.
 *
 * A rank does one thing at a time. Handling a message takes the number of bytes that it touches, divided by the rank's
 * memory bandwidth; during a computation this time is added to the computation.
 *
 * Evaluation, checkpoints and comparisons between runs of the driver cost no virtual time.
 */
#ifndef NW_SIM_VIRTUAL_H
#define NW_SIM_VIRTUAL_H

#include "net/driver.h"
#include "sim/links.h"

typedef struct nw_virtual_options {
    const nw_cluster *cluster;     /* must outlive the driver, as the faults */
    const nw_faults *faults;       /* NULL: no faults */
    double touch_bytes_per_second; /* memory bandwidth of a rank that handles messages; 0: they take no time */
} nw_virtual_options;

nw_status nw_virtual_create(nw_driver **driver, const nw_driver_options *options, const nw_virtual_options *cluster);

#endif
