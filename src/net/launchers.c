/*
 * launchers.c - see launchers.h.
 *
 * Who promised how many ranks, nearest starter first: what `mpirun` says to its children counts more than what SLURM
 * says of its step, because the daemons of an mpirun inside an allocation are steps of their own. What SLURM says of
 * the allocation (SLURM_NTASKS) is no promise: a script sees it that starts one process only.
 */
#include "net/launchers.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 24 };

static const struct launcher {
    const char *rank, *size; /* size NULL: it does not say */
    nw_mpi_family starter;
    bool slurm;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", NW_MPI_OPEN, false},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", NW_MPI_MPICH, false},
    {"PMI_RANK", "PMI_SIZE", NW_MPI_MPICH, false},
    {"PMIX_RANK", NULL, NW_MPI_UNKNOWN, false},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", NW_MPI_UNKNOWN, true},
};
enum { LAUNCHERS = sizeof launchers / sizeof launchers[0] };

int nw_launchers_number(nw_environment get, void *context, const char *name)
{
    const char *text = get ? get(context, name) : getenv(name);
    if (!text || !text[0] || strspn(text, "0123456789") != strlen(text) || strlen(text) > 8) return -1;
    long number = strtol(text, NULL, 10);
    return number <= MOST_RANKS ? (int)number : -1;
}

nw_promise nw_launchers_promise(nw_environment get, void *context)
{
    nw_promise p = {-1, -1, NULL, NW_MPI_UNKNOWN, false};
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        int size = l->size ? nw_launchers_number(get, context, l->size) : -1;
        if (size < 1) continue;
        p = (nw_promise){size, nw_launchers_number(get, context, l->rank), l->size, l->starter, l->slurm};
        if (strcmp(l->size, "PMI_SIZE") == 0 && nw_launchers_number(get, context, "SLURM_STEP_NUM_TASKS") == size)
            p.starter = NW_MPI_UNKNOWN, p.slurm = true; /* srun --mpi=pmi2 says it like this */
        break;
    }
    for (int i = 0; i < LAUNCHERS && p.rank < 0; i++) p.rank = nw_launchers_number(get, context, launchers[i].rank);
    return p;
}
