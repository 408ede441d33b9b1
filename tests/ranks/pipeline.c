/*
 * pipeline.c - what tests/unit/test_pipeline.c does, over MPI: two replicas of three stages, one rank a process, with
 * allreduce among the two of each stage. Runs are quiescent in the middle, one rank is asked to stop, new objects go on
 * from what was saved; every rank compares its stage with the plain loop. Of one case rank 0 replays the log of all
 * ranks.
 *
 *   mpirun -n 6 pipeline FOLDER       where the logs go
 */
#include "net/mpi.h"
#include "replay/replay.h"
#include "support/pipeline_toy.h"
#include "support/state_store.h"
#include "support/world.h"

#include <stdio.h>

enum { REPLICAS = 2, STAGES = 3, RANKS = REPLICAS * STAGES, TOTAL = 30, FIRST = 7, STOP_AT = 12 };

static int me;
static volatile sig_atomic_t stop;
static toy_rank toy;
static nw_rank rank;
static toy_twin twin;

static void begin(nw_driver *d, const toy_options *o, int asked)
{
    stop = 0;
    toy_make(&toy, o, me, d->pool);
    rank = toy_as_rank(&toy, me);
    toy.stop_at = STOP_AT;
    if (me == asked) toy.stop = &stop;
}

static state_store store;
/* The others' is not here; but all that a world of the same size needs of them, this rank has as well. */
static void save(void)
{
    for (int i = 0; i < REPLICAS; i++) store_add(&store, nw_rank_state(&rank));
}

/* A new object of what the old one saved, in a driver that has forgotten what came before. */
static void resume(nw_driver *d, const toy_options *o, int asked)
{
    save();
    toy_free(&toy);
    nw_driver_reset(d);
    begin(d, o, asked);
    world_ok(store_load(&store, nw_rank_state(&rank), toy.replica, REPLICAS, NULL));
    store_clear(&store);
}

static int64_t batches_done(void)
{
    save();
    int64_t batches = *(int64_t *)nw_state_find(&store.at[0], "exchange.batches")->data;
    store_clear(&store);
    return batches;
}

/* Returns the batches so far, which are the same everywhere. */
static int64_t go(nw_driver *d, int64_t batches, bool drain)
{
    int64_t all[RANKS], mine;
    world_ok(nw_driver_run(d, &rank, &(nw_go){.until = INT64_MAX, .batches = batches, .drain = drain}));
    mine = batches_done();
    world_ok(nw_driver_allgather(d, &mine, sizeof mine, all));
    for (int i = 0; i < RANKS; i++) world_require(all[i] == mine);
    stop = 0;
    return mine;
}

static void check_twin(const toy_options *o, int64_t batches, bool drain)
{
    toy_twin_begin(&twin, o);
    toy_twin_run(&twin, batches, drain);
    toy_check(&twin, &toy);
}

/* Is quiescent after FIRST batches, is stopped behind STOP_AT, and goes on to the end. `anew`: with new objects each
 * time. */
static void run_case(nw_driver *d, const toy_options *o, int asked, bool anew)
{
    begin(d, o, asked);
    world_require(go(d, FIRST, false) == FIRST);
    check_twin(o, FIRST, false);
    if (anew) resume(d, o, asked);
    int64_t batches = go(d, TOTAL - FIRST, true);
    world_require(batches > STOP_AT && batches < TOTAL);
    check_twin(o, batches, false);
    if (anew) resume(d, o, -1);
    world_require(go(d, TOTAL - batches, true) == TOTAL);
    check_twin(o, TOTAL, true);
}

/* All ranks in this process, from their logs. */
static void replay(const char *folder, const toy_options *o, int64_t stopped)
{
    nw_recording recording;
    nw_driver *d;
    toy_rank toys[RANKS];
    nw_rank ranks[RANKS];
    world_ok(nw_recording_load(&recording, folder));
    world_ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
    for (int i = 0; i < RANKS; i++) {
        toy_make(&toys[i], o, i, d->pool);
        ranks[i] = toy_as_rank(&toys[i], i);
    }
    const nw_go runs[] = {{INT64_MAX, FIRST, false, NULL, 0},
                          {INT64_MAX, TOTAL - FIRST, true, NULL, 0},
                          {INT64_MAX, TOTAL - stopped, true, NULL, 0}};
    for (int i = 0; i < 3; i++) world_ok(nw_driver_run(d, ranks, &runs[i]));
    world_require(d->over);
    for (int i = 0; i < RANKS; i++) {
        toy_check(&twin, &toys[i]);
        toy_free(&toys[i]);
    }
    nw_driver_free(d);
    nw_recording_free(&recording);
}

/* One case, recorded by every rank. */
static void record_and_replay(const char *folder)
{
    toy_options o = {.replicas = REPLICAS, .stages = STAGES, .accumulation = 2, .hop = 1};
    nw_recorder *r;
    nw_driver *d;
    char word = 0, words[RANKS];
    world_ok(nw_recorder_create(&r));
    world_ok(nw_recorder_open(r, folder, &(nw_log_header){.world = RANKS, .first_rank = me, .ranks = 1, .lr_factor = 1},
                              NULL));
    world_ok(nw_mpi_create(&d, &(nw_driver_options){.timeout_ns = 20000000000, .stop = &stop, .recorder = r}));
    begin(d, &o, 4);
    go(d, FIRST, false);
    int64_t stopped = go(d, TOTAL - FIRST, true);
    world_require(go(d, TOTAL - stopped, true) == TOTAL);
    check_twin(&o, TOTAL, true);
    world_ok(nw_recorder_close(r, true));
    world_ok(nw_driver_allgather(d, &word, 1, words)); /* all logs are written */
    if (me == 0) replay(folder, &o, stopped);
    world_ok(nw_driver_allgather(d, &word, 1, words));
    toy_free(&toy);
    nw_driver_free(d);
    nw_recorder_free(r);
}

int main(int count, char **arguments)
{
    static const double hops[] = {1, 0.5, 2};
    nw_driver *d;
    int size, cases = 0;
    world_require(count == 2);
    world_ok(nw_mpi_start(20000000000, &me, &size));
    world_require(size == RANKS);
    world_ok(nw_mpi_create(&d, &(nw_driver_options){.timeout_ns = 20000000000, .stop = &stop}));
    for (int i = 0; i < 12; i++, cases++) {
        toy_options o = {.replicas = REPLICAS,
                         .stages = STAGES,
                         .accumulation = 1 + i % 2,
                         .hop = hops[i % 3],
                         .window = i / 6 ? 1 : 3,
                         .delay = i / 3 % 2};
        run_case(d, &o, i % RANKS, i % 4 > 0);
        toy_free(&toy);
        nw_driver_reset(d);
    }
    nw_driver_free(d);
    record_and_replay(arguments[1]);
    if (me == 0) printf("%d cases, and one replayed\n", cases);
    nw_mpi_end(0);
    return 0;
}
