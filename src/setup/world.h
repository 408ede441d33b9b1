/*
 * world.h - in which world a command trains: alone, as a rank under MPI, or on a virtual cluster; what it is made of,
 * and whether it is what was meant.
 *
 * What is wrong with a job is said once, by rank 0, and all ranks end with the same exit code.
 */
#ifndef NW_SETUP_WORLD_H
#define NW_SETUP_WORLD_H

#include "config/command_options.h"
#include "train/replicas.h"

typedef struct nw_world {
    nw_replicas_mode mode;
    int rank, size;
    int threads;         /* of a rank */
    int nodes;           /* machines of the ranks, simulated ones of virtual ranks; of MPI after nw_world_check */
    nw_cluster *cluster; /* of a virtual one */
    nw_faults *faults;   /* NULL: none */
} nw_world;

/* Joins or builds the world that settings and environment ask for. NW_E_ARGUMENT where they contradict each other.
 * Whatever happens, nw_world_close may follow. */
nw_status nw_world_open(nw_world *world, const nw_train_options *options);
void nw_world_close(nw_world *world);
static inline bool nw_world_leads(const nw_world *world) { return world->rank == 0; }

/* Compares what must be equal on all ranks (build, options, data) and looks at cores and launchers. Findings go to
 * stderr of rank 0; NW_E_ARGUMENT where the job is not what was meant. */
nw_status nw_world_check(nw_world *world, const nw_train_options *options, const nw_dataset *dataset);

/* Everybody gets rank 0's text, to be freed; NULL stays NULL. Rank 0's status counts for all. */
nw_status nw_world_broadcast(const nw_world *world, nw_status status, char **text);

#endif
