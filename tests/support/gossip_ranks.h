/*
 * gossip_ranks.h - ranks of gossip.h for the drivers: workers with the arithmetic of world.h, their state in memory,
 * and a twin that recomputes the parameters of all members from what happened, in one plain loop.
 *
 * What happened is a list: a pass or an update begins, parameters are sent to another member, a pair is averaged.
 * Workers and exchanges add to it in the order of handling; a world does with gossip_begun as its option.
 */
#ifndef NW_TESTS_GOSSIP_RANKS_H
#define NW_TESTS_GOSSIP_RANKS_H

#include "support/gossip.h"
#include "support/world.h"

typedef struct gossip_rank {
    int member;
    nw_params params;
    float values[WORLD_FLOATS], gradients[WORLD_FLOATS], copy[WORLD_FLOATS];
    int64_t batches;
    world_report said;
    nw_machine *machine;
    void (*look)(struct gossip_rank *rank, const nw_task *task); /* real time passes, part by part of a task; or NULL */
} gossip_rank;

/* What their gradients and updates are. */
const world *gossip_arithmetic(void);
/* Member `me` of all ranks of a world, all fresh; `rank` gets its driver's side. */
void gossip_make(gossip_rank *r, nw_rank *rank, int members, int me, int accumulation);
void gossip_free(gossip_rank *r);

/* Another object takes the place of a quiescent one, from what a checkpoint would have of it. */
void gossip_replace(gossip_rank *r, nw_rank *rank, int members, int accumulation);

/* ---- what happened ---- */

/* Begins a new list, which exchanges that are made from now on add to. */
void gossip_listen(void);
void gossip_begun(const world *w, int member);
/* How many updates of a member there were. */
int64_t gossip_updates(int member);
/* Of all members: what they must have, and the sum that they must have, in double, where each update took away what it
 * did and pairs left the sum as it was. */
typedef struct gossip_twin {
    float values[WORLD_MOST][WORLD_FLOATS];
    double sum[WORLD_FLOATS];
} gossip_twin;
const gossip_twin *gossip_recompute(const world *arithmetic, int members);
/* The greatest difference between the sum of these and the twin's. */
double gossip_sum_error(const gossip_twin *twin, const float *const values[], int members, size_t floats);

#endif
