/*
 * gossip_ranks.h - ranks of gossip for the drivers: workers with the arithmetic of world.h, their state in memory, and
 * twins that recompute the vectors of all members from what happened, in one plain loop.
 *
 * What happened is a list: a pass or an update begins, vectors are mixed, parameters are sent to another member, a pair
 * approaches each other, a member that joins copies another's vectors. Workers and exchanges add to it in the order of handling; a world does with gossip_begun as its
 * option.
 */
#ifndef NW_TESTS_GOSSIP_RANKS_H
#define NW_TESTS_GOSSIP_RANKS_H

#include "support/world.h"

/* Of all that are made from now on: the graph's name, and all but the graph and the tap; what parameters of gossip_make
 * travel with. */
typedef struct gossip_settings {
    const char *graph;
    nw_gossip_options how;
    int64_t deadline_ns;   /* of members that gossip_make makes */
    const nw_codec *codec; /* NULL: none */
} gossip_settings;
extern gossip_settings gossip_use;
/* Gossip of so many members by these settings, with the constants of the graph where there is momentum and eta is 0, and
 * a tap that adds to the list. */
nw_gossip_options gossip_how(int members);
void gossip_free_graph(void); /* of the last gossip_how */

/* What all have done since gossip_listen. */
typedef struct gossip_done_counts {
    int64_t approached, amid; /* halves of pairs, of one bucket; of these, in the middle of a pass */
    int64_t copied;           /* buckets, by members that have joined */
    int64_t agreed;           /* pairs of which both halves knew of the same difference, bit for bit; all others fail */
} gossip_done_counts;
extern gossip_done_counts gossip_done;

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
/* The greatest difference between the number of an update's batch, from which its learning rate follows, and that of a
 * world in which all updates come one after the other. */
int64_t gossip_clock_error(int accumulation);
/* How many updates of a member there were. */
int64_t gossip_updates(int member);
/* Of all members: what they must have, and the sums that they must have, in double, where each update and each mixing
 * took away what it did and pairs left them as they were. */
typedef struct gossip_twin {
    float values[WORLD_MOST][WORLD_FLOATS], other[WORLD_MOST][WORLD_FLOATS];
    double sum[WORLD_FLOATS], other_sum[WORLD_FLOATS];
} gossip_twin;
const gossip_twin *gossip_recompute(const world *arithmetic, int members);
/* After it: buckets by which one of two members has moved, and not the other; how often a member has taken over another's
 * vectors. */
int gossip_broken(int a, int b);
int gossip_lives(int member);
/* The greatest difference between sums of the twin's values and what they must be: of x, and of x~. */
double gossip_sum_error(const gossip_twin *twin, int members, size_t floats);

#endif
