/* net.h - the inside of nw_net, for the command's benchmarks. */
#ifndef NW_TRAIN_NET_H
#define NW_TRAIN_NET_H

#include "nn/model.h"

struct nw_net {
    nw_net_options options;
    nw_model model;
    nw_pool *pool;
    nw_arena arena;
    const char *note;
    nw_tensor input;
    float *momentum;
    double *losses;
    uint64_t updates;
};

/* nw_net_create with given kernels instead of the machine's choice. */
nw_status nw_net_create_with(nw_net **net, const nw_net_options *options, const nw_kernels *kernels);

#endif
