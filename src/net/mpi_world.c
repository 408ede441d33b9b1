/*
 * mpi_world.c - joining the world of an MPI job and leaving it, what the environment says of it, and the few collective calls
 * that are needed before there is a driver, or for measuring. See mpi.h.
 */
#include "net/mpi.h"

#include "net/launchers.h"

#include <stdlib.h>
#include <time.h>

/* A launcher ends all ranks as soon as one ends badly: where they are not joined yet, the others give the first the time to
 * say what is wrong. */
static void let_first_speak(int exit_code)
{
    if (exit_code != 0 && nw_mpi_environment_rank() > 0) nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}

#if NW_HAVE_MPI

#include "base/clock.h"
#include "net/mpi_private.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FINALIZE_SECONDS = 10 };
static const int64_t LEAVE_NS = 2000000000; /* in which the others fail as well, if the reason is theirs too */

nw_mpi_state nw_mpi_process;

/* Leaving has a communicator of its own: a rank that leaves while the others are still in the middle of something else
 * must not be taken for a part of that. */
static struct {
    MPI_Comm comm;
    MPI_Request request;
    bool begun, met; /* met: all ranks are leaving */
} leaving;

nw_status nw_mpi_failed(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, text, &length);
    return NW_FAIL(NW_E_PEER, "MPI cannot %s: %s; a rank may have died, or the network failed", what, text);
}
void nw_mpi_rest(int turns)
{
    if (turns < NW_MPI_YIELDS) {
        sched_yield();
        return;
    }
    long ns = turns < 1000 ? 20000 : 500000;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

bool nw_mpi_available(void) { return true; }

const char *nw_mpi_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, "\n,")] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\t') *c = ' '; /* MPICH writes a table */
    return text;
}

nw_status nw_mpi_start(int *rank, int *size)
{
    int level, promised = nw_mpi_environment_rank(); /* before MPI may change what the environment says */
    NW_FAIL_IF(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS, NW_E_PEER,
               "MPI cannot be started; is this process run by mpirun or srun of the same MPI?");
    nw_mpi_process.started = true;
    NW_FAIL_IF(level < MPI_THREAD_FUNNELED, NW_E_UNSUPPORTED,
               "this MPI allows no threads beside it (level %d); build it with thread support", level);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    nw_mpi_process.rank = *size > 1 ? *rank : promised; /* of processes that are not joined one speaks, too */
    nw_mpi_process.size = *size;
    NW_FAIL_IF(MPI_Comm_dup(MPI_COMM_WORLD, &leaving.comm) != MPI_SUCCESS, NW_E_PEER,
               "MPI cannot make a communicator of %d ranks", *size);
    return NW_OK;
}

int nw_mpi_ranks_here(void)
{
    MPI_Comm here;
    int size = 1;
    if (!nw_mpi_process.started) return 1;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) != MPI_SUCCESS) return 1;
    MPI_Comm_size(here, &size);
    MPI_Comm_free(&here);
    return size;
}

/* Tests a request until it is complete, or `limit_ns` have passed. */
static bool complete_within(MPI_Request *request, int64_t limit_ns)
{
    int done = 0;
    for (int64_t end = nw_now_ns() + limit_ns, turns = 0; !done && nw_now_ns() < end; turns++) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done) nw_mpi_rest((int)turns);
    }
    return done != 0;
}

nw_status nw_mpi_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Request request;
    NW_FAIL_IF(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request) !=
                   MPI_SUCCESS,
               NW_E_PEER, "MPI cannot gather %zu bytes of each rank", bytes);
    NW_FAIL_IF(!complete_within(&request, 60000000000), NW_E_PEER,
               "some ranks did not start within a minute; look at the launcher's output for them");
    return NW_OK;
}

nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    MPI_TRY(MPI_Allreduce(mine, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "sum a vector");
    return NW_OK;
}

nw_status nw_mpi_meet(void)
{
    MPI_TRY(MPI_Barrier(MPI_COMM_WORLD), "let ranks meet");
    return NW_OK;
}

nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds)
{
    int peer = 1 - nw_mpi_process.rank;
    char *data = calloc(1, bytes + 1);
    NW_FAIL_IF(!data, NW_E_MEMORY, "no memory for a message of %zu bytes", bytes);
    int code = MPI_Barrier(MPI_COMM_WORLD);
    int64_t begin = nw_now_ns();
    for (int i = 0; i < rounds && nw_mpi_process.rank < 2 && code == MPI_SUCCESS; i++) {
        if (nw_mpi_process.rank == 0) code = MPI_Send(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD);
        if (code == MPI_SUCCESS)
            code = MPI_Recv(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (code == MPI_SUCCESS && nw_mpi_process.rank == 1)
            code = MPI_Send(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD);
    }
    *seconds = (double)(nw_now_ns() - begin) * 1e-9 / (2.0 * rounds);
    free(data);
    MPI_TRY(code, "send a message there and back");
    return nw_mpi_meet();
}

/* Whether all ranks leave within the time. */
static bool leave_together(int64_t limit_ns)
{
    if (leaving.met) return true;
    if (!leaving.begun && MPI_Ibarrier(leaving.comm, &leaving.request) != MPI_SUCCESS) return false;
    leaving.begun = true;
    leaving.met = complete_within(&leaving.request, limit_ns);
    return leaving.met;
}

static volatile sig_atomic_t code_at_end;
static void end_now(int number)
{
    (void)number;
    _exit(code_at_end);
}

/* MPICH over UCX's TCP now and then waits in MPI_Finalize for a rank that no longer listens. Listening a little longer makes
 * that rare, and a deadline ends it: all ranks have met, and everything is written. */
static void finalize(int exit_code)
{
    for (int64_t end = nw_now_ns() + 50000000; nw_mpi_process.size > 1 && nw_now_ns() < end;) {
        int there;
        MPI_Iprobe(MPI_ANY_SOURCE, NW_MPI_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        nw_mpi_rest(NW_MPI_YIELDS);
    }
    fflush(NULL);
    code_at_end = exit_code;
    signal(SIGALRM, end_now);
    alarm(FINALIZE_SECONDS);
    MPI_Comm_free(&leaving.comm);
    MPI_Finalize();
    alarm(0);
}

/* The others did their work without ranks that were given up. These may come back at any time, and MPI_Finalize would wait
 * for them: rank 0 ends them all when everything is written. */
static void end_without_all(int exit_code)
{
    const int64_t seconds = nw_mpi_process.rank == 0 ? 1 : 10;
    fflush(NULL);
    nanosleep(&(struct timespec){.tv_sec = seconds}, NULL);
    if (nw_mpi_process.rank == 0) MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
}

void nw_mpi_end(int exit_code)
{
    if (!nw_mpi_process.started || nw_mpi_process.size == 1) let_first_speak(exit_code);
    if (!nw_mpi_process.started) return;
    if (nw_mpi_process.fewer && exit_code == 0) end_without_all(exit_code);
    bool lost =
        !nw_mpi_process.echoes && exit_code == nw_status_exit_code(NW_E_PEER); /* who says so: not all will come */
    int64_t patience = exit_code == 0 ? 60000000000 : leaving.begun ? 0 : LEAVE_NS;
    if (lost || !leave_together(patience)) {
        /* MPICH's launcher drops what it has not passed on by now. */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, exit_code ? exit_code : 1);
    }
    finalize(exit_code);
    nw_mpi_process.started = false;
}

/* Before the first step most mistakes are those of all ranks, and rank 0 tells of them. A rank whose trouble is its own
 * finds that the others do not leave with it. */
bool nw_mpi_speaks(void)
{
    if (!nw_mpi_process.started || nw_mpi_process.size == 1) return nw_mpi_environment_rank() == 0;
    if (nw_mpi_process.rank == 0) return true;
    return nw_mpi_process.running ? !nw_mpi_process.echoes : !leave_together(LEAVE_NS);
}

#else

bool nw_mpi_speaks(void) { return nw_mpi_environment_rank() == 0; }
void nw_mpi_end(int exit_code) { let_first_speak(exit_code); }
bool nw_mpi_available(void) { return false; }
const char *nw_mpi_library(void) { return "none: built without MPI (Debian package libopenmpi-dev)"; }

nw_status nw_mpi_missing(void)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "this build has no MPI; install libopenmpi-dev and build again, or use --virtual N");
}
nw_status nw_mpi_start(int *rank, int *size)
{
    *rank = 0;
    *size = 1;
    return nw_mpi_missing();
}
int nw_mpi_ranks_here(void) { return 1; }
nw_status nw_mpi_gather(const void *mine, size_t bytes, void *all)
{
    (void)mine, (void)bytes, (void)all;
    return nw_mpi_missing();
}
nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    (void)mine, (void)sum, (void)count;
    return nw_mpi_missing();
}
nw_status nw_mpi_meet(void) { return nw_mpi_missing(); }
nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds)
{
    (void)bytes, (void)rounds, (void)seconds;
    return nw_mpi_missing();
}

#endif

/* Asked once, before MPI may change it: Open MPI itself sets PMIX_RANK in a process that it finds alone. */
static const nw_promise *promise(void)
{
    static nw_promise asked;
    static bool known;
    if (!known) asked = nw_launchers_promise(NULL, NULL);
    known = true;
    return &asked;
}

int nw_mpi_environment_rank(void) { return promise()->rank > 0 ? promise()->rank : 0; }
int nw_mpi_environment_size(void) { return promise()->size > 0 ? promise()->size : 1; }

/* A rank alone needs no MPI: SLURM also says SLURM_PROCID=0 to plain scripts. */
bool nw_mpi_launched(void) { return promise()->rank >= 0 && (nw_mpi_available() || nw_mpi_environment_size() > 1); }
