/*
 * mpi.h - the driver for ranks that are processes joined by MPI (any MPI-3).
 *
 * MPI is called only in mpi.c and mpi_world.c, and only in the thread that runs the driver: between the layers of a
 * computation, and while the rank waits. No other thread polls. A waiting rank first yields, then sleeps for fractions
 * of a millisecond, so that ranks on the same core do not slow each other down.
 *
 * In a build without MPI these functions exist, and fail with a sentence that says so.
 */
#ifndef NW_NET_MPI_H
#define NW_NET_MPI_H

#include "net/driver.h"

bool nw_mpi_available(void);
/* The MPI library's name and version, or why there is none. */
const char *nw_mpi_library(void);

/* Before MPI is started: whether the environment shows a launcher of several ranks (mpirun, srun), and the rank of this
 * process in it (0 without one), for example to print something once only. */
bool nw_mpi_launched(void);
int nw_mpi_environment_rank(void);
int nw_mpi_environment_size(void); /* 1 if the environment does not say */
/* Whether this process should print its failure: rank 0 does, and ranks that failed on their own. Before the first step
 * this takes up to two seconds to find out. */
bool nw_mpi_prints(void);

/* Joins the world; once in a process, unless the program itself has started MPI: then the program ends it as well, and
 * must have asked for MPI_THREAD_SERIALIZED if it calls this from another thread. A rank that does not join within
 * `timeout_ns` (0: no limit) is named. */
nw_status nw_mpi_start(int64_t timeout_ns, int *rank, int *size);
bool nw_mpi_joined(void); /* whether this process has joined, and not left */
/* Ranks of the world on this machine; 1 before the start. */
int nw_mpi_ranks_here(void);
/* Leaves the world: together with all others if they leave within two seconds, otherwise alone, which ends the
 * others with this exit code. If ranks were launched but have not joined yet, all but rank 0 wait a second before
 * they fail. */
void nw_mpi_end(int exit_code);

/* Every rank contributes `bytes`; all get the bytes of all ranks. For the start, before there is a driver. It fails
 * after the time limit of nw_mpi_start. */
nw_status nw_mpi_allgather(const void *mine, size_t bytes, void *all);

/* For benchmarks: MPI_Allreduce of a vector, and MPI_Barrier. */
nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count);
nw_status nw_mpi_barrier(void);
/* Half the round-trip time of a message of `bytes` between ranks 0 and 1. All ranks must call it. */
nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds);

/* The failure of a build without MPI; exists only there. */
nw_status nw_mpi_missing(void);

/* A driver for this process's one rank; after nw_mpi_start. */
nw_status nw_mpi_create(nw_driver **driver, const nw_driver_options *options);

#endif
