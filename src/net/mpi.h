/*
 * mpi.h - ranks that are processes joined by MPI (any MPI-3).
 *
 * All of MPI is in mpi.c, and all of it happens in the thread that runs the driver: between the layers of a
 * computation, and while the rank waits. No thread polls beside the computation. A waiting rank yields, then sleeps
 * for fractions of a millisecond, so that ranks that share a core do not take it from each other.
 *
 * In a build without MPI everything here exists and says so.
 */
#ifndef NW_NET_MPI_H
#define NW_NET_MPI_H

#include "net/driver.h"

bool nw_mpi_available(void);
/* The library's name and version, or why there is none. */
const char *nw_mpi_library(void);

/* Whether the environment shows a launcher of several ranks (mpirun, srun), before MPI is asked; and the rank it gave
 * this process, for those who want to speak once only. 0 without one. */
bool nw_mpi_launched(void);
int nw_mpi_environment_rank(void);
int nw_mpi_environment_size(void); /* 1 where it says nothing */
/* Whether this process should print its failure: rank 0, and ranks that failed by themselves. To find that out
 * before the first step takes up to two seconds. */
bool nw_mpi_speaks(void);

/* Joins the world. Once in a process. A rank that is not there within `timeout_ns` (0: for ever) is named. */
nw_status nw_mpi_start(int64_t timeout_ns, int *rank, int *size);
/* Ranks of the world on this machine; 1 before the start. */
int nw_mpi_ranks_here(void);
/* Leaves it: together with all others if they leave as well within two seconds, otherwise alone, which ends them
 * with this exit code. Where ranks were started but are not joined, all but the first wait a second before they
 * fail. */
void nw_mpi_end(int exit_code);

/* Every rank gives `bytes`, all get those of all: for the start, before there is a driver. Gives up after
 * nw_mpi_start's time. */
nw_status nw_mpi_allgather(const void *mine, size_t bytes, void *all);

/* For benchmarks: MPI's own sum of a vector over all ranks, and all waiting for each other. */
nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count);
nw_status nw_mpi_barrier(void);
/* Seconds that a message of `bytes` takes from rank 0 to rank 1 and back, halved; all ranks call, ranks 0 and 1
 * measure. */
nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds);

/* The refusal of a build without MPI; only there. */
nw_status nw_mpi_missing(void);

/* A driver for this process's one rank; after nw_mpi_start. */
nw_status nw_mpi_create(nw_driver **driver, const nw_driver_options *options);

#endif
