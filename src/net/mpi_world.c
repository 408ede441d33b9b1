/*
 * mpi_world.c - joining the world of an MPI job and leaving it, what the environment says of it, and the few collective
 * calls that are needed before there is a driver, or for measuring. See mpi.h.
 */
#include "net/mpi.h"

#include "net/launchers.h"

#include <stdlib.h>
#include <time.h>

/* A launcher ends all ranks as soon as one ends badly: where they are not joined yet, the others give the first the
 * time to say what is wrong. */
static void let_first_print(int exit_code)
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
#include <sys/time.h>
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
void nw_mpi_pause(int turns)
{
    if (turns < NW_MPI_YIELDS) {
        sched_yield();
        return;
    }
    long ns = turns < 1000 ? 20000 : 500000;
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

bool nw_mpi_available(void) { return true; }
bool nw_mpi_joined(void) { return nw_mpi_process.started; }

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

/* ---- starting: nothing waits for ever, and who is missing is named ----------------------------------------------- */

/* MPI_Init and some others cannot be left. A signal a second ends the process when it has had enough of them: while
 * it is suspended, none comes. */
static struct {
    volatile sig_atomic_t seconds_left;
    char text[200];
    struct sigaction before; /* of the program, whose signal it is at other times */
} deadline;

static void count_second(int number)
{
    (void)number;
    if (--deadline.seconds_left > 0) return;
    ssize_t wrote = write(STDERR_FILENO, deadline.text, strlen(deadline.text));
    _exit(wrote < 0 ? 1 : 5);
}

static void begin_deadline(int64_t timeout_ns, const char *what)
{
    struct itimerval second = {{1, 0}, {1, 0}};
    if (timeout_ns <= 0) return;
    deadline.seconds_left = (sig_atomic_t)(timeout_ns / 1000000000 + 1);
    snprintf(
        deadline.text, sizeof deadline.text,
        "nowait: %s has not ended within %.0f s: not all ranks of the job take part; look at the launcher's output, "
        "or give more --timeout\n",
        what, (double)timeout_ns * 1e-9);
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = count_second, .sa_flags = SA_RESTART}, &deadline.before);
    setitimer(ITIMER_REAL, &second, NULL);
}

static void end_deadline(int64_t timeout_ns)
{
    struct itimerval never = {{0, 0}, {0, 0}};
    if (timeout_ns <= 0) return;
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &deadline.before, NULL);
}

/* Tests a request until it is complete, or `limit_ns` of this process's own time have passed; 0: for ever. */
static bool complete_within(MPI_Request *request, int64_t limit_ns)
{
    nw_own_clock clock = {0};
    int done = 0;
    for (int turns = 0; !done && (limit_ns <= 0 || nw_own_clock_now(&clock) < limit_ns); turns++) {
        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return false;
        if (!done) nw_mpi_pause(turns);
    }
    return done != 0;
}

/* Says to rank 0 that this one is there, and waits for its word that all are. */
static nw_status report_to_first(int64_t timeout_ns)
{
    char word = 0;
    MPI_Request sent, received;
    MPI_TRY(MPI_Isend(&word, 1, MPI_BYTE, 0, NW_MPI_TAG, MPI_COMM_WORLD, &sent), "send a word");
    MPI_TRY(MPI_Irecv(&word, 1, MPI_BYTE, 0, NW_MPI_TAG, MPI_COMM_WORLD, &received), "receive a word");
    bool done = complete_within(&sent, timeout_ns > 0 ? 2 * timeout_ns : 0) &&
                complete_within(&received, timeout_ns > 0 ? 2 * timeout_ns : 0);
    NW_FAIL_IF(!done, NW_E_PEER,
               "rank %d has waited %.0f s for rank 0, which has not said that all ranks have started; "
               "--timeout sets the limit",
               nw_mpi_process.rank, 2e-9 * (double)timeout_ns);
    return NW_OK;
}

static nw_status name_missing(const bool *there, int size, int64_t timeout_ns)
{
    nw_wait wait = {.what = "their first word; were they started, and do they run?"};
    for (int i = 1; i < size; i++)
        if (!there[i] && wait.count++ < NW_WAIT_MOST) wait.ranks[wait.count - 1] = i;
    return nw_wait_failed(&wait, 0, timeout_ns);
}

/* Waits until all ranks have reported, and tells them. */
static nw_status receive_reports(int size, int64_t timeout_ns, bool *there)
{
    nw_own_clock clock = {0};
    char word = 0;
    for (int count = 1, turns = 0; count < size; turns++) {
        MPI_Status info;
        int found = 0;
        MPI_TRY(MPI_Iprobe(MPI_ANY_SOURCE, NW_MPI_TAG, MPI_COMM_WORLD, &found, &info), "look for messages");
        if (found) {
            MPI_TRY(MPI_Recv(&word, 1, MPI_BYTE, info.MPI_SOURCE, NW_MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE),
                    "receive a word");
            there[info.MPI_SOURCE] = true;
            count++;
            turns = 0;
        } else if (timeout_ns > 0 && nw_own_clock_now(&clock) > timeout_ns) {
            return name_missing(there, size, timeout_ns);
        }
        if (!found) nw_mpi_pause(turns);
    }
    for (int i = 1; i < size; i++) /* a byte is sent at once */
        MPI_TRY(MPI_Send(&word, 1, MPI_BYTE, i, NW_MPI_TAG, MPI_COMM_WORLD), "send a word");
    return NW_OK;
}

/* All ranks are there. */
static nw_status gather_ranks(int rank, int size, int64_t timeout_ns)
{
    if (size == 1) return NW_OK;
    if (rank > 0) return report_to_first(timeout_ns);
    NW_AUTOFREE bool *there = calloc((size_t)size, sizeof *there);
    NW_FAIL_IF(!there, NW_E_MEMORY, "no memory for a list of %d ranks", size);
    return receive_reports(size, timeout_ns, there);
}

nw_status nw_mpi_duplicate(MPI_Comm *comm)
{
    MPI_Request request;
    MPI_TRY(MPI_Comm_idup(MPI_COMM_WORLD, comm, &request), "make a communicator");
    NW_FAIL_IF(!complete_within(&request, nw_mpi_process.timeout_ns), NW_E_PEER,
               "not all ranks made a communicator within %.0f s; --timeout sets the limit",
               (double)nw_mpi_process.timeout_ns * 1e-9);
    return NW_OK;
}

/* A program that uses this library may have started MPI itself, and ends it itself then. */
static nw_status join_program(void)
{
    int level, mine, over;
    MPI_Finalized(&over);
    NW_FAIL_IF(over, NW_E_UNSUPPORTED,
               "MPI has been ended in this process, and cannot be started again; make peers once in a process");
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&mine);
    NW_FAIL_IF(!mine && level < MPI_THREAD_SERIALIZED, NW_E_UNSUPPORTED,
               "MPI was started for the program's own thread alone, but one of the library uses it as well; start it "
               "with MPI_Init_thread and MPI_THREAD_SERIALIZED or more, leave it to the library, or give it no thread");
    nw_mpi_process.guest = true;
    return NW_OK;
}

/* Over TCP, Open MPI hands a long message to its connection in one piece, behind which its other words wait: of two
 * ranks that exchange gradients, one sent and the other waited, in turn. In pieces, both directions of a link are used.
 * Pieces of 32 KiB take 26 ms at 10 Mbit/s, and cost nothing yet at 10 Gbit/s; those of 8 KiB do.
 * What the user has set stays. */
static void set_defaults(void) { setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "32768", 0); }

static nw_status initialise(int64_t timeout_ns)
{
    int level, there, over;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (there || over) return join_program();
    begin_deadline(timeout_ns, "MPI_Init");
    set_defaults();
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level);
    end_deadline(timeout_ns);
    NW_FAIL_IF(code != MPI_SUCCESS, NW_E_PEER,
               "MPI cannot be started; is this process run by mpirun or srun of the same MPI?");
    nw_mpi_process.started = true;
    NW_FAIL_IF(level < MPI_THREAD_FUNNELED, NW_E_UNSUPPORTED,
               "this MPI allows no threads beside it (level %d); build it with thread support", level);
    return NW_OK;
}

nw_status nw_mpi_start(int64_t timeout_ns, int *rank, int *size)
{
    int promised = nw_mpi_environment_rank(); /* before MPI may change what the environment says */
    NW_TRY(initialise(timeout_ns));
    nw_mpi_process.started = true;
    nw_mpi_process.timeout_ns = timeout_ns;
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    nw_mpi_process.rank = *size > 1 ? *rank : promised; /* of processes that are not joined one speaks, too */
    nw_mpi_process.size = *size;
    nw_status status = gather_ranks(*rank, *size, timeout_ns);
    nw_mpi_process.running = status != NW_OK; /* who fails here has something of its own to say */
    NW_TRY(status);
    return nw_mpi_duplicate(&leaving.comm);
}

int nw_mpi_ranks_here(void)
{
    MPI_Comm here;
    int size = 1;
    if (!nw_mpi_process.started || nw_mpi_process.size == 1) return 1;
    begin_deadline(nw_mpi_process.timeout_ns, "MPI_Comm_split_type");
    int code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    end_deadline(nw_mpi_process.timeout_ns);
    if (code != MPI_SUCCESS) return 1;
    MPI_Comm_size(here, &size);
    MPI_Comm_free(&here);
    return size;
}

nw_status nw_mpi_allgather(const void *mine, size_t bytes, void *all)
{
    MPI_Request request;
    NW_FAIL_IF(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request) !=
                   MPI_SUCCESS,
               NW_E_PEER, "MPI cannot gather %zu bytes of each rank", bytes);
    NW_FAIL_IF(!complete_within(&request, nw_mpi_process.timeout_ns), NW_E_PEER,
               "some ranks did not answer for %.0f s before the first step; the launcher's output may say why",
               (double)nw_mpi_process.timeout_ns * 1e-9);
    return NW_OK;
}

nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    MPI_TRY(MPI_Allreduce(mine, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD), "sum a vector");
    return NW_OK;
}

nw_status nw_mpi_barrier(void)
{
    MPI_TRY(MPI_Barrier(MPI_COMM_WORLD), "pass a barrier");
    return NW_OK;
}

nw_status nw_mpi_ping(size_t bytes, int rounds, double *seconds)
{
    static const char what[] = "send a message there and back";
    int rank = nw_mpi_process.rank, peer = 1 - rank;
    NW_AUTOFREE char *data = calloc(1, bytes + 1);
    NW_FAIL_IF(!data, NW_E_MEMORY, "no memory for a message of %zu bytes", bytes);
    NW_TRY(nw_mpi_barrier());
    int64_t begin = nw_now_ns();
    for (int i = 0; i < rounds && rank < 2; i++) {
        if (rank == 0) MPI_TRY(MPI_Send(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD), what);
        MPI_TRY(MPI_Recv(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), what);
        if (rank == 1) MPI_TRY(MPI_Send(data, (int)bytes, MPI_BYTE, peer, NW_MPI_TAG, MPI_COMM_WORLD), what);
    }
    *seconds = (double)(nw_now_ns() - begin) * 1e-9 / (2.0 * rounds);
    return nw_mpi_barrier();
}

/* Whether all ranks leave within the time. */
static bool leave_together(int64_t limit_ns)
{
    if (leaving.met) return true;
    if (!leaving.begun && MPI_Ibarrier(leaving.comm, &leaving.request) != MPI_SUCCESS) return false;
    leaving.begun = true;
    leaving.met = complete_within(&leaving.request, limit_ns > 0 ? limit_ns : 1);
    return leaving.met;
}

static volatile sig_atomic_t code_at_end;
static void end_now(int number)
{
    (void)number;
    _exit(code_at_end);
}

/* MPICH over UCX's TCP now and then waits in MPI_Finalize for a rank that no longer listens. Listening a little
 * longer makes that rare, and a deadline ends it: all ranks have met, and everything is written. */
static void finalize(int exit_code)
{
    for (int64_t end = nw_now_ns() + 50000000; nw_mpi_process.size > 1 && nw_now_ns() < end;) {
        int there;
        MPI_Iprobe(MPI_ANY_SOURCE, NW_MPI_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        nw_mpi_pause(NW_MPI_YIELDS);
    }
    fflush(NULL);
    code_at_end = exit_code;
    signal(SIGALRM, end_now);
    alarm(FINALIZE_SECONDS);
    MPI_Comm_free(&leaving.comm);
    MPI_Finalize();
    alarm(0);
    signal(SIGALRM, SIG_DFL);
}

/* The others did their work without ranks that were dropped. These may come back at any time, and MPI_Finalize
 * would wait for them: rank 0 ends them all when everything is written. */
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
    if (!nw_mpi_process.started || nw_mpi_process.size == 1) let_first_print(exit_code);
    if (!nw_mpi_process.started) return;
    if (nw_mpi_process.fewer && exit_code == 0) end_without_all(exit_code);
    bool lost =
        !nw_mpi_process.echoes && exit_code == nw_status_exit_code(NW_E_PEER); /* who says so: not all will come */
    int64_t limit_ns = exit_code == 0 ? 60000000000 : leaving.begun ? 0 : LEAVE_NS;
    if (nw_mpi_process.guest) {
        if (leave_together(limit_ns)) MPI_Comm_free(&leaving.comm);
        nw_mpi_process = (nw_mpi_state){0};
        leaving.begun = leaving.met = false;
        return;
    }
    if (lost || !leave_together(limit_ns)) {
        /* MPICH's launcher drops what it has not passed on by now. */
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
        MPI_Abort(MPI_COMM_WORLD, exit_code ? exit_code : 1);
    }
    finalize(exit_code);
    nw_mpi_process.started = false;
}

/* Before the first step most mistakes are those of all ranks, and rank 0 tells of them. A rank whose trouble is its own
 * finds that the others do not leave with it. */
bool nw_mpi_prints(void)
{
    if (!nw_mpi_process.started || nw_mpi_process.size == 1) return nw_mpi_environment_rank() == 0;
    if (nw_mpi_process.rank == 0) return true;
    return nw_mpi_process.running ? !nw_mpi_process.echoes : !leave_together(LEAVE_NS);
}

#else

bool nw_mpi_prints(void) { return nw_mpi_environment_rank() == 0; }
void nw_mpi_end(int exit_code) { let_first_print(exit_code); }
bool nw_mpi_available(void) { return false; }
bool nw_mpi_joined(void) { return false; }
const char *nw_mpi_library(void) { return "none: built without MPI (Debian package libopenmpi-dev)"; }

nw_status nw_mpi_missing(void)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "this build has no MPI; install libopenmpi-dev and build again, or use --virtual N");
}
nw_status nw_mpi_start(int64_t timeout_ns, int *rank, int *size)
{
    (void)timeout_ns;
    *rank = 0;
    *size = 1;
    return nw_mpi_missing();
}
int nw_mpi_ranks_here(void) { return 1; }
nw_status nw_mpi_allgather(const void *mine, size_t bytes, void *all)
{
    (void)mine, (void)bytes, (void)all;
    return nw_mpi_missing();
}
nw_status nw_mpi_allreduce(const float *mine, float *sum, size_t count)
{
    (void)mine, (void)sum, (void)count;
    return nw_mpi_missing();
}
nw_status nw_mpi_barrier(void) { return nw_mpi_missing(); }
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
