/*
 * bench_serve.h - the whole way of a gradient through a parameter server, for `nowait bench update`.
 *
 * A turn is what a server does between two reads of its network: a worker's gradient lies in memory as messages; the
 * server decodes it, updates, and encodes its parameters for that worker. It is the exchange of `--exchange server` that
 * does it, told the events that a driver tells it, with the optimizer between them that everybody uses; only the worker is
 * missing, in whose name the same messages come again in every turn.
 */
#ifndef NW_CLI_BENCH_SERVE_H
#define NW_CLI_BENCH_SERVE_H

#include "exchange/exchange.h"
#include "optim/optimizer.h"

/* Seconds of a turn. */
typedef struct nw_serve_times {
    double in, step, out;
} nw_serve_times;

typedef struct nw_bench_server {
    nw_params *params; /* whose gradients are encoded once, at the beginning */
    nw_optimizer *optimizer;
    nw_exec *exec;
    nw_codec *codec;
    nw_exchange *exchange;
    nw_message_pool *pool;
    nw_actions actions;
    nw_message **gradient; /* the report comes last */
    int messages;
    size_t bytes; /* of a gradient on its way, without headers */
} nw_bench_server;

/* The vectors are bound, the gradients filled. On failure, free it as well. */
nw_status nw_bench_server_make(nw_bench_server *server, const char *codec, nw_params *params, nw_optimizer *optimizer,
                               nw_exec *exec);
void nw_bench_server_free(nw_bench_server *server);
nw_status nw_bench_server_turn(nw_bench_server *server, double lr, nw_serve_times *times);

#endif
