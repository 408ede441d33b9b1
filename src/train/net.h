/* net.h - the inside of nw_net, for replicas, benchmarks and tests. */
#ifndef NW_TRAIN_NET_H
#define NW_TRAIN_NET_H

#include "net/task.h"
#include "nn/model.h"
#include "optim/ema.h"
#include "optim/optimizer.h"

struct nw_net {
    nw_net_options options;
    nw_model model;
    nw_pool *pool;
    nw_arena arena;
    const char *note;
    nw_tensor input;
    nw_optimizer *optimizer;
    nw_ema average; /* with `averaged` only */
    bool averaged;
    bool gradients_only;
    double *losses;
    float *views;     /* for evaluation with both views: mirrored images, and logits of the first view */
    uint64_t batches; /* key of dropout's random numbers: updates so far, unless the caller counts batches */
    nw_net *owner;    /* the net whose activations, threads and tables this one uses; NULL: it has its own */
};

/* Options of a network beyond the public ones. All zero: SGD with the public options, the machine's best kernels. */
typedef struct nw_net_parts {
    const nw_kernels *kernels;
    const nw_optimizer_options *optimizer;
    double ema_decay; /* 0: no average of the weights */
    int ema_every;
    bool gradients_only; /* it is never updated, so it has no optimizer state and no average */
} nw_net_parts;

nw_status nw_net_create_from(nw_net **net, const nw_net_options *options, const nw_net_parts *parts);
/* A net with its own parameters, buffers and optimizer, in the same initial state, that uses the activations of
 * `owner`: so many replicas in one process need the activations of one. Only one of them may compute at a time, from
 * the beginning of a forward pass to the end of its backward pass. The owner must outlive it. */
nw_status nw_net_create_sibling(nw_net **net, nw_net *owner, const nw_net_parts *parts);
/* nw_net_create with given kernels instead of the machine's choice. */
nw_status nw_net_create_with(nw_net **net, const nw_net_options *options, const nw_kernels *kernels);

/* Who is told now and then during passes and updates; NULL: nobody. */
void nw_net_announce(nw_net *net, nw_announce *announce);
static inline void nw_net_autofree(nw_net **net) { nw_net_free(*net); }

/* The update with the gradient times gradient_scale: 1 / k for the mean of k accumulated gradients. */
nw_status nw_net_apply(nw_net *net, double learning_rate, double gradient_scale);

/* nw_net_evaluate with logits that are the mean of those of each image and of its mirror image. */
nw_status nw_net_evaluate_both_views(nw_net *net, const float *images, const int32_t *labels, int n, float *logits,
                                     nw_step_result *result);

/* A forward pass that moves batch norm's running statistics as training does, and nothing else. */
nw_status nw_net_observe(nw_net *net, const float *images, const int32_t *labels, int n);

/* The average of the weights, or NULL. */
static inline nw_ema *nw_net_average(nw_net *net) { return net->averaged ? &net->average : NULL; }

#endif
