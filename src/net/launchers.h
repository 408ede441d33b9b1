/*
 * launchers.h - reads the environment variables in which mpirun and srun tell their processes how many ranks there are
 * and which one this is. preflight.c compares these numbers with those of MPI.
 */
#ifndef NW_NET_LAUNCHERS_H
#define NW_NET_LAUNCHERS_H

#include <stdbool.h>

/* Whose mpirun, or whose library. MVAPICH2 and Intel's MPI come from MPICH, and are started like it. */
typedef enum nw_mpi_family { NW_MPI_UNKNOWN, NW_MPI_OPEN, NW_MPI_MPICH } nw_mpi_family;

typedef struct nw_promise {
    int size, rank;        /* -1: not said */
    const char *variable;  /* the variable with the size; NULL: there is none */
    nw_mpi_family starter; /* whose mpirun started the process */
    bool slurm;            /* the numbers come from SLURM, for a job step */
} nw_promise;

/* An environment variable, or NULL. A function of NULL stands for getenv. */
typedef const char *(*nw_environment)(void *context, const char *name);

/* The numbers that the launcher of this process has set (the nearest one, if several are nested). */
nw_promise nw_launchers_promise(nw_environment get, void *context);
/* The value of a variable as a number >= 0; -1 if it is not set or is not such a number. */
int nw_launchers_number(nw_environment get, void *context, const char *name);

#endif
