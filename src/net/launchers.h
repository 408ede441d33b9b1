/*
 * launchers.h - what mpirun and srun say to the processes that they start, in environment variables: how many there
 * are, and which one this is. The one table of these variables; preflight.c compares what they promise with what MPI
 * says.
 */
#ifndef NW_NET_LAUNCHERS_H
#define NW_NET_LAUNCHERS_H

#include <stdbool.h>

/* Whose mpirun, or whose library. MVAPICH2 and Intel's MPI come from MPICH, and are started like it. */
typedef enum nw_mpi_family { NW_MPI_UNKNOWN, NW_MPI_OPEN, NW_MPI_MPICH } nw_mpi_family;

typedef struct nw_promise {
    int size, rank;        /* -1: not said */
    const char *variable;  /* that says the size; NULL: none does */
    nw_mpi_family starter; /* whose mpirun */
    bool slurm;            /* said by SLURM, of a step */
} nw_promise;

/* An environment variable, or NULL. A function of NULL stands for getenv. */
typedef const char *(*nw_environment)(void *context, const char *name);

/* What the nearest starter of this process promised. */
nw_promise nw_launchers_promise(nw_environment get, void *context);
/* A variable's number from 0 on; -1 where there is none, or something else. */
int nw_launchers_number(nw_environment get, void *context, const char *name);

#endif
