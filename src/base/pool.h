/*
 * pool.h - a pool of threads that sleeps when there is nothing to do.
 *
 * nw_pool_run calls task(context, index, worker) once for each index in [0, count); the calling thread works too, as
 * worker 0. Indices are handed out one by one from an atomic counter in ascending order, so uneven tasks balance
 * themselves; results must not depend on who runs what: tasks write disjoint outputs. `worker` names private scratch.
 *
 * Idle threads spin for some microseconds (back-to-back parallel regions are the rule inside a step), then sleep on a
 * futex: a computing neighbour, for instance the other rank on the same machine, keeps the core. One region at a time:
 * calls from several threads, or from inside a task, are a bug and abort.
 */
#ifndef NW_BASE_POOL_H
#define NW_BASE_POOL_H

#include "base/status.h"

typedef struct nw_pool nw_pool;
typedef void (*nw_pool_task)(void *context, int index, int worker);

/* 1 to NW_POOL_MOST threads, counting the caller. More than the machine has CPUs work too, slower: results do not
 * depend on their number. */
enum { NW_POOL_MOST = 1024 };
nw_status nw_pool_create(nw_pool **pool, int threads);
void nw_pool_free(nw_pool *pool);
int nw_pool_threads(const nw_pool *pool);
void nw_pool_run(nw_pool *pool, int count, nw_pool_task task, void *context);

#endif
