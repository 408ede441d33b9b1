/*
 * Folder src/peer: programs that compute gradients themselves, with this library's exchanges and codecs: section 4 of
 * nowait.h. It turns options into a rank, as src/setup and src/train do for `nowait train`, with a worker that leaves its
 * passes to the program. May include: base, compute, param, optim, net, topology, channel, exchange, config,
 * setup.
 *
 * peer.h - a rank whose gradients a program computes.
 *
 * The stack is that of any rank (net/machine.h): exchange, pipeline (program.c), worker (peer_work.c). The worker leaves a
 * PASS pending, and the program computes its gradient. nw_peer_reduce, update and merge hand over the result and wait for
 * the next PASS or the end of the run. While the program waits, the worker may write to the program's vector.
 *
 *   program:  begin ........ computes ........ step ............... computes ........ step
 *   worker:          PASS pending                  done | UPDATE .. PASS pending          done | ...
 *
 * Threads. One thread, the owner, uses driver, machines, messages, vectors and MPI, from joining the world to leaving it:
 * the library's own (peer_thread.c), or, without one, the program's. `lock` protects what it shares with the program's
 * thread. While a pass is pending, the program's thread may write to the gradient, and to nothing else of the rank.
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
#include <stdio.h>

#define NW_PEER_ENDLESS (INT64_MAX / 4) /* updates of a run that ends when its programs say so */

typedef nw_status (*nw_peer_job)(nw_peer *peer, void *argument);

struct nw_peer {
    nw_settings *settings;
    int index, size;  /* this rank, of so many */
    uint16_t *ranks;  /* all */
    nw_arena arena;   /* of the vectors, and of */
    nw_params params; /* what is exchanged */
    float *seen;      /* the values that the program computes with */
    nw_assign_options codecs;
    nw_assignment assignment;
    nw_gossip_options gossip; /* with graph and counts, of gossip alone */
    nw_gossip_counts averaged;
    FILE *log; /* of them; NULL: none */
    nw_channel_stats stats;
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
    bool begun;      /* and not finished */
    bool threaded, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, ready; /* of the library's thread; of the program's */
    /* Under the lock: */
    nw_peer_job job; /* to be done by the owner */
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
/* Lets the owner do a job, between two turns if a run is under way, and waits for it. */
nw_status nw_peer_call(nw_peer *peer, nw_peer_job job, void *argument);
/* The program has done the pending pass or, with `ends`, computes no more: waits as nw_peer_wait does. */
nw_status nw_peer_post(nw_peer *peer, bool ends);
/* Waits until a pass is pending, or the run is over or has failed. */
nw_status nw_peer_wait(nw_peer *peer);
/* The failure of the run so far. */
nw_status nw_peer_check(nw_peer *peer);
/* One turn of the run, by the owner; false: nothing moved. */
bool nw_peer_take_turn(nw_peer *peer);

/* ---- peer_work.c ---- */

extern const nw_worker_ops nw_peer_work;
/* Makes the optimizer, which checks its options; its first update allocates its memory. */
nw_status nw_peer_make_optimizer(nw_peer *peer);

/* ---- peer_join.c: jobs ---- */

/* Joins the world, and makes its driver. */
nw_status nw_peer_join(nw_peer *peer, void *ignored);
/* Makes a new exchange, and frees the one before. */
nw_status nw_peer_make_machine(nw_peer *peer);
/* Leaves the world; the exit code says whether well (nw_mpi_end). */
nw_status nw_peer_leave(nw_peer *peer, void *exit_code);

/* ---- peer_log.c ---- */

nw_status nw_peer_log_open(nw_peer *peer);
void nw_peer_log_begin(const nw_peer *peer); /* of a run */
void nw_peer_log_line(const nw_peer *peer, const char *what);
nw_status nw_peer_log_flush(const nw_peer *peer);
void nw_peer_log_note(void *peer, const nw_gossip_note *note);

/* ---- program.c ---- */

/* The pipeline of a rank whose program computes gradients. Takes over the exchange. */
nw_status nw_program_create(nw_machine **pipeline, nw_machine *exchange, const nw_params *params);

/* ---- tensors.c ---- */

/* The table of segments of a program's tensors, in their order. */
nw_status nw_peer_list_tensors(nw_segments *segments, const nw_parameter_info *tensors, int count);

#endif
