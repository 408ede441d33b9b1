/*
 * test_mismatch.c - a run whose replicas differ although they should be equal ends, and does not go back to a
 * checkpoint with a lower learning rate, which is the remedy for a loss that diverges.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "support/replica_fixture.h"
#include "support/scratch.h"
#include "train/run.h"

/* Flips the lowest bit of a weight of rank 1 before replicas are compared for the FLIPPED-th time. */
enum { FLIPPED = 3, EVERY = 2, BATCH = 2, WEIGHT = 7 };
static int comparisons;

nw_status __real_nw_replicas_compare(nw_replicas *group);
nw_status __wrap_nw_replicas_compare(nw_replicas *group);
nw_status __wrap_nw_replicas_compare(nw_replicas *group)
{
    float *weight = &group->members[1].replica->net->model.params.values[WEIGHT];
    uint32_t bits;
    memcpy(&bits, weight, sizeof bits);
    bits ^= ++comparisons == FLIPPED;
    memcpy(weight, &bits, sizeof bits);
    return __real_nw_replicas_compare(group);
}

static bool has(const char *path, const char *text)
{
    char line[4096];
    bool found = false;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) found |= strstr(line, text) != NULL;
    fclose(f);
    return found;
}

static void test_a_flipped_bit_ends_a_run(void **state)
{
    (void)state;
    nw_dataset *d = make_dataset(40, 3, 32);
    nw_cluster *cluster;
    OK(nw_cluster_builtin(&cluster, "10g", 2));
    const volatile sig_atomic_t stop = 0;
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    nw_run_options o = {.group = {.replica = replica_options(d, "lenet5"),
                                  .mode = NW_REPLICAS_VIRTUAL,
                                  .world = 2,
                                  .exchange = {.name = "allreduce", .max_staleness = -1, .layout.bucket_bytes = 4096},
                                  .cluster = cluster,
                                  .norms = NW_NORMS_AVERAGE},
                        .dataset = d,
                        .test_augment = nw_augment_plain(d),
                        .test_batch_size = BATCH,
                        .train_eval_batch_size = BATCH,
                        .epochs = 2,
                        .eval_every = 1,
                        .checkpoint_every = 1,
                        .rollbacks = 3,
                        .rollback_lr = 0.5,
                        .compare_every = EVERY,
                        .run_dir = scratch("run"),
                        .observe = {.run_dir = scratch("run")},
                        .stop = &stop,
                        .watch = &watch};
    o.group.replica.accumulation = 1;
    o.group.replica.loader.batch_size = o.group.replica.net.batch_size = BATCH;
    nw_record_clear(NW_RECORD_RUN, &o.record);
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    nw_run_result result;
    assert_int_equal(nw_run_train(&o, &result), NW_E_MISMATCH);
    assert_says("after step 6 the weights of rank 1 are not those of rank 0");
    assert_int_equal(comparisons, FLIPPED);
    assert_true(has(scratch("run/metrics.jsonl"), "\"fault\":\"mismatch\""));
    assert_false(has(scratch("run/metrics.jsonl"), "\"fault\":\"rollback\""));
    nw_cluster_free(cluster);
    nw_dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_flipped_bit_ends_a_run, scratch_make, scratch_remove)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
