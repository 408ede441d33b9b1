/*
 * peer.c - ranks of a program that computes gradients itself, against sums that are worked out beside.
 *
 *   mpirun -np N peer_ranks means|turns      means of gradients, with the library's thread and without
 *   mpirun -np N peer_ranks delayed          ... a step late
 *   mpirun -np N peer_ranks served OPTIONS   a server: all end with the same values, and a synchronous one with SGD's
 *   mpirun -np N peer_ranks guest            the program has started MPI, and uses it beside; and ends it
 *   mpirun -np N peer_ranks stranger         ... for its own thread alone: refused
 *   mpirun -np N peer_ranks leaves           rank 1 leaves in the middle: the others are told
 *   mpirun -np N peer_ranks silent           rank 1 is suspended: the others name it (exit code 5)
 *   mpirun -np N peer_ranks uneven           rank 1 makes a step less, and is waited for (exit code 5)
 *   mpirun -np N peer_ranks differs          rank 1 has other options
 *
 * It sees the public header alone, as any program. Gradients are whole numbers, so that sums of them are exact. peer.sh
 * runs it.
 */
#define _GNU_SOURCE
#include <nowait.h>

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5000, STEPS = 20 };
static const nw_parameter_info tensors[] = {{.name = "w", .dims = 2, .shape = {1000, 4}},
                                            {.name = "b", .dims = 1, .shape = {1000}}};
static float x[N], g[N];
static nw_peer *peer;

static void leave(nw_status status)
{
    fprintf(stderr, "peer: rank %d: %s\n", peer ? nw_peer_rank(peer) : -1, nw_error_message());
    nw_peer_free(peer);
    exit(nw_status_exit_code(status));
}
#define OK(expression)                            \
    do {                                          \
        nw_status status_ = (expression);         \
        if (status_ != NW_OK) leave(status_);     \
    } while (0)
#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "peer:%d: %s does not hold\n", __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

static float entry(int rank, int step, int i) { return (float)((i * 3 + step * 7) % 11 - 5 + rank * 4); }

static void make(const char *options, bool threaded)
{
    OK(nw_peer_create(&peer, tensors, 2, options, threaded));
    for (int i = 0; i < N; i++) x[i] = (float)(nw_peer_rank(peer) * 100 + i); /* all take those of rank 0 */
    OK(nw_peer_begin(peer, x));
    for (int i = 0; i < N && !nw_peer_is_over(peer); i++) REQUIRE(x[i] == (float)i);
}

static void fill(int step)
{
    for (int i = 0; i < N; i++) g[i] = entry(nw_peer_rank(peer), step, i);
}

static bool is_mean(const float *vector, int step)
{
    int size = nw_peer_size(peer);
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int r = 0; r < size; r++) sum += entry(r, step, i);
        if (vector[i] != sum * (1.0f / (float)size)) return false;
    }
    return true;
}

static void done(const char *what)
{
    nw_peer_statistics s;
    OK(nw_peer_look(peer, &s));
    REQUIRE(s.bytes_sent > 0 && s.messages_sent > 0);
    if (nw_peer_rank(peer) == 0) printf("%s: %lld updates\n", what, (long long)s.updates);
    nw_peer_free(peer);
}

static void reduce(const char *options, bool threaded, int delay)
{
    bool there;
    make(options, threaded);
    for (int s = 0; s < STEPS; s++) {
        fill(s);
        for (int turns = 0; turns < 3; turns++) OK(nw_peer_turn(peer));
        OK(nw_peer_reduce(peer, g, &there));
        REQUIRE(there == (s >= delay));
        REQUIRE(!there || is_mean(g, s - delay));
    }
    OK(nw_peer_finish(peer, g, &there));
    REQUIRE(there == (delay > 0));
    REQUIRE(!there || is_mean(g, STEPS - 1));
    nw_peer *second;
    REQUIRE(nw_peer_create(&second, tensors, 2, "--exchange allreduce", threaded) == NW_E_UNSUPPORTED && !second);
    REQUIRE(strstr(nw_error_message(), "one at a time"));
    float mine[3] = {(float)nw_peer_rank(peer), 1, 0}; /* and any vector */
    OK(nw_peer_mean(peer, mine, 3));
    REQUIRE(mine[0] == (float)(nw_peer_size(peer) - 1) / 2 && mine[1] == 1 && mine[2] == 0);
}

static void serve(const char *options)
{
    int steps = 0;
    make(options, true);
    for (; !nw_peer_is_over(peer); steps++) {
        fill(0);
        OK(nw_peer_update(peer, g, x));
    }
    OK(nw_peer_finish(peer, x, NULL));
    memcpy(g, x, sizeof x);
    OK(nw_peer_mean(peer, g, N));
    for (int i = 0; i < N; i++) REQUIRE(abs((int)(g[i] - x[i])) == 0 && (g[i] - x[i]) * (g[i] - x[i]) < 1e-3f);
    bool sync = !strstr(options, "async"), computes = strstr(options, "server-computes");
    int first = computes ? 0 : 1, size = nw_peer_size(peer);
    REQUIRE((nw_peer_rank(peer) >= first) == (steps > 0));
    for (int i = 0; i < N && sync; i++) { /* SGD with rate 1/4 on the mean of the workers */
        float sum = 0;
        for (int r = first; r < size; r++) sum += entry(r, 0, i);
        float exact = (float)i - (float)STEPS * 0.25f * sum / (float)(size - first);
        REQUIRE((exact - x[i]) * (exact - x[i]) < 1e-2f);
    }
    if (nw_peer_rank(peer) == 0) {
        nw_peer_statistics s;
        OK(nw_peer_look(peer, &s));
        REQUIRE(s.updates == STEPS && (sync || s.delay > 0));
    }
}

/* MPI is the program's. */
static void be_guest(int level)
{
    int got, rank;
    MPI_Init_thread(NULL, NULL, level, &got);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    reduce("--exchange allreduce", true, 0);
    REQUIRE(nw_peer_rank(peer) == rank);
    done("guest");
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    REQUIRE(sum > 0);
    reduce("--exchange allreduce", true, 0); /* a second peer, while MPI runs */
    done("guest");
    MPI_Finalize();
}

/* Rank 1 does not go on. */
static void lose(const char *how)
{
    make("--exchange allreduce --timeout 2", true);
    bool uneven = strcmp(how, "uneven") == 0, me = nw_peer_rank(peer) == 1;
    for (int s = 0; s < STEPS; s++) {
        if (me && s == STEPS / 2 && strcmp(how, "leaves") == 0) {
            nw_peer_free(peer);
            exit(1);
        }
        if (me && s == STEPS / 2 && strcmp(how, "silent") == 0) raise(SIGSTOP);
        if (me && s == STEPS - 1 && uneven) break;
        fill(s);
        OK(nw_peer_reduce(peer, g, NULL));
    }
    OK(nw_peer_finish(peer, NULL, NULL));
    nw_peer_free(peer);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "means") == 0) {
        reduce("--exchange allreduce --bucket-bytes 4096", true, 0);
        done("means");
    } else if (strcmp(what, "turns") == 0) {
        reduce("--exchange allreduce", false, 0);
        done("turns");
    } else if (strcmp(what, "delayed") == 0) {
        reduce("--exchange allreduce --delay 1", true, 1);
        done("delayed");
    } else if (strcmp(what, "served") == 0 && argc == 3) {
        serve(argv[2]);
        done("served");
    } else if (strcmp(what, "guest") == 0) {
        be_guest(MPI_THREAD_MULTIPLE);
    } else if (strcmp(what, "stranger") == 0) {
        be_guest(MPI_THREAD_FUNNELED);
    } else if (strcmp(what, "differs") == 0) {
        const char *rank = getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");
        make(rank && strcmp(rank, "1") == 0 ? "--exchange allreduce --seed 1" : "--exchange allreduce", true);
    } else if (*what) {
        lose(what);
    } else {
        fprintf(stderr, "usage: peer_ranks WHAT; see the head of peer.c\n");
        return 2;
    }
    return 0;
}
