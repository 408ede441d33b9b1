/*
 * calibrate.h - `--calibrate FILE.yaml`: measures what a virtual cluster of this machine needs to know, and writes it
 * as a cluster file (docs/cluster.md), which --cluster reads and people can edit.
 *
 * Under mpirun all ranks measure at once, so that they take from each other what they would in training; rank 0 writes.
 */
#ifndef NW_BENCH_CALIBRATE_H
#define NW_BENCH_CALIBRATE_H

#include "setup/world.h"

nw_status nw_calibrate(const nw_train_options *options, const nw_world *world, const nw_net_options *net);

#endif
