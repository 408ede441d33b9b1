/*
 * virtual.h - a cluster in one process: real arithmetic, simulated clock and network.
 *
 * All ranks of the world are in this process. Their events are handled one by one in the order of (time, rank,
 * sequence); tasks are really done at the moment at which they begin, and take as long as the worker and the cluster
 * (cluster.h) say, whatever they took here. Messages arrive when the links say (links.h); what goes wrong is a
 * script (faults.h). Nothing depends on real time or threads, so the same cluster, seed and program give the same run,
 * bit for bit, and the same virtual seconds.
 *
 * How a rank spends its time: one thing after the other. Handling a message costs the bytes that it touches over the
 * rank's memory bandwidth; in the middle of a computation that much is taken from it, and it ends so much later.
 *
 * Evaluation, checkpoints and comparisons between runs of the driver cost no virtual time.
 */
#ifndef NW_SIM_VIRTUAL_H
#define NW_SIM_VIRTUAL_H

#include "net/driver.h"
#include "sim/links.h"

typedef struct nw_virtual_options {
    const nw_cluster *cluster;     /* these all outlive the driver */
    const nw_faults *faults;       /* NULL: nothing goes wrong */
    double touch_bytes_per_second; /* of a rank that handles messages; 0: free */
} nw_virtual_options;

nw_status nw_virtual_create(nw_driver **driver, const nw_driver_options *options, const nw_virtual_options *cluster);

#endif
