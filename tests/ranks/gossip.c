/*
 * gossip.c - four MPI ranks of support/gossip_ranks.h, which average pairs of vectors while they compute.
 *
 *   mpirun -np 4 gossip run DIR    rank 0 suspends rank 2 for a second, while the others count on, then asks rank 1 to stop;
 *                                  all are quiescent, other objects take over what was saved and go on; DIR has logs and weights
 *   gossip replay DIR              all of it again in one process: the same bits, and the twin's, and the sum is kept
 *   mpirun -np 4 gossip lost DIR   rank 0, which counts, is suspended and stays so: the others notice (exit code 5)
 *
 * Tasks sleep, so that all have their pace on few cores. gossip.sh runs it.
 */
#define _GNU_SOURCE
#include "base/clock.h"
#include "base/file.h"
#include "net/mpi.h"
#include "replay/replay.h"
#include "support/gossip_ranks.h"
#include "support/files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 4, SUSPENDED = 2, ASKED = 1, SUSPEND_AT = 60, SOME = 60, FAR = 1000000 };
static const int64_t SECOND = 1000000000;

static gossip_rank members[RANKS]; /* a real rank has one of them */
static nw_rank ranks[RANKS];
static nw_driver *driver;
static pid_t processes[RANKS];
static volatile sig_atomic_t stop;
static bool loses; /* rank 0 stops for good */
/* Of rank 0: what it has counted, and at which times and counts it did what. */
static int64_t counted, suspended_ns, suspended_at, continued_at;

static void ask_to_stop(int number) { stop = number != 0; }

static nw_status count(void *context, const nw_count *c)
{
    (void)context;
    world_require(c->updates == ++counted);
    if (counted == SUSPEND_AT) {
        suspended_at = counted;
        suspended_ns = nw_now_ns();
        kill(processes[loses ? 0 : SUSPENDED], SIGSTOP);
    }
    if (continued_at > 0 && counted == continued_at + SOME) kill(processes[ASKED], SIGUSR1);
    return NW_OK;
}

static void take_time(gossip_rank *r, const nw_task *task)
{
    struct timespec t = {.tv_nsec = task->kind == NW_TASK_PASS ? 400000 : 60000};
    nanosleep(&t, NULL);
    if (r->member > 0 || suspended_ns == 0 || continued_at > 0 || nw_now_ns() < suspended_ns + SECOND) return;
    continued_at = counted;
    kill(processes[SUSPENDED], SIGCONT);
}

static nw_status run_to(int64_t until)
{
    return nw_driver_run(driver, driver->count == 1 ? &ranks[driver->first] : ranks,
                         &(nw_go){.until = until, .batches = INT64_MAX});
}

static void make(int member)
{
    gossip_make(&members[member], &ranks[member], RANKS, member, 1);
    members[member].look = driver && driver->count == 1 ? take_time : NULL;
}

static const char *name_of(int member)
{
    static char name[32];
    snprintf(name, sizeof name, "rank%d.values", member);
    return name;
}

/* ---- real ranks -------------------------------------------------------------------------------------------------- */

static nw_status run_rank(const char *dir, int me, nw_recorder *recorder)
{
    nw_driver_options o = {.timeout_ns = loses ? SECOND : 20 * SECOND,
                           .stop = &stop,
                           .recorder = recorder,
                           .counted = me == 0 ? count : NULL};
    pid_t mine = getpid();
    NW_TRY(nw_mpi_create(&driver, &o));
    NW_TRY(nw_driver_allgather(driver, &mine, sizeof mine, processes));
    make(me);
    NW_TRY(run_to(FAR));
    stop = 0;
    int64_t updates = members[me].machine->updates, meanwhile = continued_at - suspended_at, all[RANKS];
    if (me == 0)
        printf("%" PRId64 " updates while a rank was suspended, %" PRId64 " at the stop\n", meanwhile, updates);
    world_require(me > 0 || (continued_at > 0 && meanwhile > SOME / 3));
    world_require(updates < FAR);
    gossip_replace(&members[me], &ranks[me], RANKS, 1);
    NW_TRY(nw_driver_allgather(driver, &updates, sizeof updates, all));
    for (int i = 0; i < RANKS; i++) world_require(all[i] == updates);
    NW_TRY(run_to(updates + SOME));
    put_file(dir, name_of(me), members[me].values, sizeof members[me].values);
    return NW_OK;
}

static int run(const char *dir)
{
    int me, size;
    nw_recorder *recorder;
    struct sigaction action = {.sa_handler = ask_to_stop};
    nw_status status = nw_mpi_start(20 * SECOND, &me, &size);
    if (status == NW_OK && size != RANKS) status = NW_FAIL(NW_E_ARGUMENT, "there must be %d ranks", RANKS);
    if (status != NW_OK) {
        fprintf(stderr, "gossip: %s\n", nw_error_message());
        return 1;
    }
    sigaction(SIGUSR1, &action, NULL);
    nw_log_header h = {.world = RANKS, .first_rank = me, .ranks = 1, .lr_factor = 1};
    world_ok(nw_recorder_create(&recorder));
    world_ok(nw_recorder_open(recorder, dir, &h, NULL));
    status = run_rank(dir, me, recorder);
    int code = status == NW_OK ? 0 : status == NW_E_PEER ? 5 : 1;
    if (status != NW_OK && nw_mpi_prints()) fprintf(stderr, "gossip: %s\n", nw_error_message());
    world_ok(nw_recorder_close(recorder, status == NW_OK));
    nw_recorder_free(recorder);
    gossip_free(&members[me]);
    nw_driver_free(driver);
    nw_mpi_end(code);
    return code;
}

/* ---- in one process ---------------------------------------------------------------------------------------------- */

static int replay(const char *dir)
{
    nw_recording recording;
    world_ok(nw_recording_load(&recording, dir));
    const nw_log_part *part = &recording.parts[0];
    world_require(recording.count == 1 && part->runs == 2 && part->ended && part->points[1].step < FAR);
    gossip_listen();
    for (int i = 0; i < RANKS; i++) make(i);
    world_ok(nw_replay_create(&driver, &(nw_driver_options){0}, part));
    world_ok(run_to(FAR));
    world_ok(run_to(part->points[1].step + SOME));
    world_require(driver->over);
    const gossip_twin *twin = gossip_recompute(gossip_arithmetic(), RANKS);
    for (int i = 0; i < RANKS; i++) {
        char *then, *path;
        size_t size;
        world_ok(nw_path_join(&path, dir, name_of(i)));
        world_ok(nw_file_read(path, sizeof members[i].values, &then, &size));
        world_require(size == sizeof members[i].values && memcmp(then, members[i].values, size) == 0);
        world_require(memcmp(twin->values[i], members[i].values, size) == 0);
        free(then);
        free(path);
    }
    world_require(gossip_sum_error(twin, RANKS, gossip_arithmetic()->floats) < 1e-3);
    printf("%" PRId64 " halves of pairs, %" PRId64 " of them in the middle of a pass\n", gossip_done.approached,
           gossip_done.amid);
    world_require(gossip_done.amid > SOME / 3);
    for (int i = 0; i < RANKS; i++) gossip_free(&members[i]);
    nw_driver_free(driver);
    nw_recording_free(&recording);
    return 0;
}

int main(int argc, char **argv)
{
    gossip_use = (gossip_settings){.graph = "cycle", .how = {.seed = 3, .rate = 2, .acid = true}};
    if (argc == 3 && strcmp(argv[1], "replay") == 0) return replay(argv[2]);
    loses = argc == 3 && strcmp(argv[1], "lost") == 0;
    if (loses || (argc == 3 && strcmp(argv[1], "run") == 0)) return run(argv[2]);
    fprintf(stderr, "usage: gossip run|lost|replay DIR\n");
    return 2;
}
