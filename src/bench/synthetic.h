/*
 * synthetic.h - a replica without data, for measuring: it computes the gradient of the same made-up batch over and
 * over, and can be driven as a worker of any exchange.
 */
#ifndef NW_BENCH_SYNTHETIC_H
#define NW_BENCH_SYNTHETIC_H

#include "net/task.h"
#include "train/net.h"

typedef struct nw_synthetic {
    nw_net *net;
    float *images;
    int32_t *labels;
    size_t *ready;  /* by stage: nw_model_final_from */
    bool pretends;  /* computes nothing: what is measured is the exchange alone */
    int64_t *marks; /* when each stage was done, forward then backward, of the last batch; NULL: nobody asks */
    nw_announce *announce;
    size_t final;
} nw_synthetic;

extern const nw_worker_ops nw_synthetic_work;

nw_status nw_synthetic_create(nw_synthetic *synthetic, const nw_net_options *options);
void nw_synthetic_free(nw_synthetic *synthetic);

/* Made-up images and labels, a function of the options' seed. */
void nw_synthetic_fill(float *images, int32_t *labels, const nw_net_options *options);

/* One gradient, and where it took its time: marks[s] and marks[stages + s] are nw_now_ns after stage s, forward and
 * backward. */
nw_status nw_synthetic_compute(nw_synthetic *synthetic, int64_t *marks);

#endif
