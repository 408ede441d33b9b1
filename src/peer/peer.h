/*
 * Folder src/peer: programs that compute gradients themselves, with this library's exchanges and codecs: section 4 of
 * nowait.h. It is what src/train and src/setup are to `nowait train`: it makes a rank of options, and a worker whose
 * passes the program does. May include: base, compute, param, optim, net, channel, exchange, config, setup.
 *
 * peer.h - a rank whose gradients a program computes.
 *
 * The stack is as everywhere (net/machine.h): exchange, pipeline (program.c), worker (peer_work.c). A PASS is left pending:
 * the program computes. nw_peer_reduce and its like hand over what it has made, and wait for the next PASS, or the end of
 * the run; the worker has written the program's vector by then, which is its own to write while the program waits.
 *
 *   program:  begin ........ computes ........ step ............... computes ........ step
 *   worker:          PASS pending                  done | UPDATE .. PASS pending          done | ...
 *
 * Threads. One thread owns driver, machines, messages, vectors and MPI, from joining the world to leaving it: the
 * library's (peer_thread.c), or, without one, the program's. What the two share is under `lock`. While a pass is pending
 * the program may write the gradient, and nothing else of the rank's.
 */
#ifndef NW_PEER_PEER_H
#define NW_PEER_PEER_H

#include "base/arena.h"
#include "channel/assign.h"
#include "config/command_options.h"
#include "exchange/exchange.h"
#include "net/driver.h"
#include "optim/optimizer.h"

#include <pthread.h>

#define NW_PEER_ENDLESS (INT64_MAX / 4) /* updates of a run that ends when its programs say so */

typedef nw_status (*nw_peer_errand)(nw_peer *peer, void *argument);

struct nw_peer {
    nw_settings *settings;
    int index, size;  /* this rank, of so many */
    uint16_t *ranks;  /* all */
    nw_arena arena;   /* of the vectors, and of */
    nw_params params; /* what is exchanged */
    float *seen;      /* the values that the program computes with */
    nw_assign_options codecs;
    nw_assignment assignment;
    nw_travel travel;
    nw_optimizer_options rule;
    nw_optimizer *optimizer;
    nw_arena optimizer_arena; /* empty until the first update */
    float *before;            /* an update: the values before it; NULL until one needs them */
    nw_pool *pool;
    nw_exec exec;
    nw_driver *driver;
    nw_rank rank;
    nw_go go;
    int64_t gradients; /* computed by this rank */
    bool empty;        /* the pass that was done last had no gradient */
    int64_t messages, bytes, counted, delays;
    bool joined;

    nw_peer_way way; /* of the steps of this run; 0: there was none yet, or this rank only serves and so updates */
    bool begun; /* and not finished */
    bool threaded, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, ready; /* of the library's thread; of the program's */
    /* Under the lock: */
    nw_peer_errand errand; /* to be done by the owner's thread */
    void *argument;
    nw_status result;
    bool leaves;    /* the library's thread shall end */
    bool running;   /* a run is under way */
    bool computing; /* a pass is pending */
    bool posted;    /* the program has done it, ... */
    bool ends;      /* ... or computes no more */
    bool there;     /* `vector` was given a mean */
    float *vector;  /* of the program, which waits; or NULL */
    double rate;
    nw_status failure; /* of the run, and of all that follows */
    char message[1024];
};

/* ---- peer_thread.c ---- */

/* Starts the library's thread, if there shall be one. */
nw_status nw_peer_thread_start(nw_peer *peer);
void nw_peer_thread_end(nw_peer *peer);
/* Lets the owner's thread do something, between two turns of a run that is under way, and waits for it. */
nw_status nw_peer_send(nw_peer *peer, nw_peer_errand errand, void *argument);
/* Hands over what the program has done, and waits until it can compute again or the run is over; with `ends`, until it
 * is. */
nw_status nw_peer_post(nw_peer *peer, bool ends);
/* Waits for the same. */
nw_status nw_peer_wait(nw_peer *peer);
/* The failure of the run so far. */
nw_status nw_peer_check(nw_peer *peer);
/* One turn, by the owner's thread; false: nothing moved. */
bool nw_peer_take_turn(nw_peer *peer);

/* ---- peer_work.c ---- */

extern const nw_worker_ops nw_peer_work;
/* The optimizer, whose options are checked here; it takes memory with its first update. */
nw_status nw_peer_make_optimizer(nw_peer *peer);

/* ---- peer_join.c: errands ---- */

/* Joins the world, and makes its driver. */
nw_status nw_peer_join(nw_peer *peer, void *ignored);
/* An exchange as at the beginning of a run, instead of the one that there was. */
nw_status nw_peer_make_machine(nw_peer *peer);
/* `argument`: the exit code that a process would end with. */
nw_status nw_peer_leave(nw_peer *peer, void *exit_code);

/* ---- program.c ---- */

/* The pipeline of a rank whose program computes gradients. Takes over the exchange. */
nw_status nw_program_create(nw_machine **pipeline, nw_machine *exchange, const nw_params *params);

/* ---- tensors.c ---- */

/* The table of segments of a program's tensors, in their order. */
nw_status nw_peer_list_tensors(nw_segments *segments, const nw_parameter_info *tensors, int count);

#endif
