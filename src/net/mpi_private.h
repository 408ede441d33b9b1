/* mpi_private.h - what mpi.c (the driver) and mpi_world.c (joining and leaving) share. Only where there is MPI. */
#ifndef NW_NET_MPI_PRIVATE_H
#define NW_NET_MPI_PRIVATE_H

#include "base/status.h"

#include <mpi.h>

enum { NW_MPI_TAG = 1, NW_MPI_YIELDS = 200 /* before a wait sleeps */ };

/* This process as a rank. */
typedef struct nw_mpi_state {
    int rank, size;
    int64_t timeout_ns; /* of the start; 0: for ever */
    bool started;
    bool guest;   /* the program itself started MPI, and will end it */
    bool running; /* there was a driver */
    bool echoes;  /* another rank prints what is wrong */
    bool fewer;   /* ranks were dropped, so not all will end together */
} nw_mpi_state;
extern nw_mpi_state nw_mpi_process;

nw_status nw_mpi_failed(int code, const char *what);
#define MPI_TRY(call, what)                                                    \
    do {                                                                       \
        int mpi_code_ = (call);                                                \
        if (mpi_code_ != MPI_SUCCESS) return nw_mpi_failed(mpi_code_, (what)); \
    } while (0)

/* Makes a communicator of all ranks; fails after the time limit of the start. */
nw_status nw_mpi_duplicate(MPI_Comm *comm);

/* Yields first, then sleeps longer and longer, at most half a millisecond. */
void nw_mpi_pause(int turns);

#endif
