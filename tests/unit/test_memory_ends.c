/*
 * test_memory_ends.c - whole runs where one allocation fails: every one until training begins (every third where a run
 * goes on from a checkpoint), and later ones further and further apart. A run ends with NW_E_MEMORY and gives back what
 * it took; or, where what failed is only told of the run (a file of an observer), it goes on to its end.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "support/memory_that_ends.h"
#include "support/replica_fixture.h"
#include "support/scratch.h"
#include "train/run.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

/* ---- runs ---- */

typedef struct kind {
    const char *exchange, *model;
    int world; /* of a virtual cluster; 0: alone */
    int servers;
    const char *from; /* the run that it goes on from, which trained one epoch; NULL: none */
} kind;

enum { IMAGES = 12, BATCH = 2 };

static nw_status train_on(const kind *k, const char *dir, const nw_dataset *d, const nw_cluster *cluster)
{
    volatile sig_atomic_t stop = dir == NULL;
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    nw_run_options o = {.group = {.replica = replica_options(d, k->model),
                                  .mode = k->world > 0 ? NW_REPLICAS_VIRTUAL : NW_REPLICAS_ALONE,
                                  .world = k->world,
                                  .exchange = {.name = k->exchange, .max_staleness = -1, .servers = k->servers},
                                  .cluster = cluster,
                                  .norms = NW_NORMS_AVERAGE},
                        .dataset = d,
                        .test_augment = nw_augment_plain(d),
                        .test_batch_size = BATCH,
                        .train_eval_batch_size = BATCH,
                        .epochs = k->from ? 2 : 1,
                        .eval_every = 1,
                        .evaluate_first = true,
                        .keep = 1,
                        .run_dir = dir,
                        .config = "model: it\n",
                        .resume = k->from,
                        .record_events = true,
                        .observe = {.run_dir = dir, .tensorboard = true},
                        .stop = &stop,
                        .watch = &watch};
    o.group.replica.net.threads = 1;
    o.group.replica.accumulation = 1;
    o.group.replica.loader.batch_size = BATCH;
    o.group.exchange.layout.bucket_bytes = 4096;
    if (k->servers > 1) o.group.replica.ema_decay = 0;
    nw_record_clear(NW_RECORD_RUN, &o.record);
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    nw_run_result result;
    return nw_run_train(&o, &result);
}

/* With its data and its cluster. dir NULL: it stops before the first batch, and leaves no files. */
static nw_status train(const kind *k, const char *dir)
{
    nw_dataset *d = NULL;
    nw_cluster *cluster = NULL;
    nw_dataset_options data = {.name = "synthetic", .dir = ".", .limit = IMAGES, .image_size = 32, .seed = 3};
    nw_status status = nw_dataset_open(&d, &data);
    if (status == NW_OK && k->world > 0) status = nw_cluster_builtin(&cluster, "10g", k->world);
    if (status == NW_OK) status = train_on(k, dir, d, cluster);
    nw_cluster_free(cluster);
    if (d) nw_dataset_close(d);
    return status;
}

static int complaints;

/* A run in which the allocation behind the first n fails; *made: how many there were, if none did. */
static bool ends_after(const kind *k, const char *dir, int64_t n, int64_t *made)
{
    int64_t before = atomic_load(&memory_alive);
    if (dir) remove_tree(dir);
    memory_ends_after(n);
    nw_status status = train(k, dir);
    bool failed = memory_suffices(n, made);
    bool fine = status == NW_OK || status == (failed ? NW_E_MEMORY : dir ? NW_OK : NW_E_INTERRUPTED);
    int64_t lost = atomic_load(&memory_alive) - before;
    if (!fine) print_error("%s: allocation %lld: %s\n", k->exchange, (long long)n, nw_error_message());
    if (lost != 0)
        print_error("%s: allocation %lld: %lld pieces of memory were not given back; %s\n", k->exchange, (long long)n,
                    (long long)lost, nw_error_message());
    complaints += !fine || lost != 0;
    return failed;
}

/* Of those before training every one, or every third from `first` on. */
static void check(kind k, int first, int apart)
{
    const char *dir = scratch("run");
    int64_t started, all, n = first, later = 0;
    ends_after(&k, NULL, MEMORY_ENOUGH, &started);
    while (n < started && ends_after(&k, dir, n, &all)) n += apart;
    assert_true(n >= started);
    for (; ends_after(&k, dir, n, &all); later++) n += 1 + later / 4;
    print_message("%s of %d: %d allocations before training, of %d later %d were tried\n", k.exchange, k.world,
                  (int)started, (int)(all - started), (int)later);
    assert_true(started > 40 && later > 20);
    assert_int_equal(complaints, 0);
}

/* A new run, and one that goes on. */
static void check_both(kind k, int first)
{
    check(k, 0, 1);
    OK(train(&k, scratch("from")));
    k.from = scratch("from");
    check(k, first, 3);
}

TEST(test_alone) { check_both((kind){"none", "resnet9", .world = 0}, 0); }
TEST(test_allreduce) { check_both((kind){"allreduce", "lenet5", .world = 2}, 1); }
TEST(test_server) { check_both((kind){"server", "lenet5", .world = 3, .servers = 2}, 2); }

int main(void)
{
#define WITH_FILES(name) cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {WITH_FILES(test_alone), WITH_FILES(test_allreduce), WITH_FILES(test_server)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
