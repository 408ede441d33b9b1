/*
 * test_replicas.c - replicas of tiny models on generated images in a virtual cluster: what several of them do is what
 * one would, they stay equal bit for bit, and one that fails says so itself.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/replicas_fixture.h"

/* ---- one and many ---- */

TEST(test_one_replica_is_a_run_alone)
{
    static const char *const MODELS[] = {"lenet5", "resnet9"};
    for (int m = 0; m < 2; m++)
        for (int accumulation = 1; accumulation <= 2; accumulation++) {
            setup alone = {.model = MODELS[m], .exchange = "none", .accumulation = accumulation, .ema_decay = 0.9};
            setup one = alone, reduced = alone;
            one.world = 1;
            one.exchange = reduced.exchange = "allreduce";
            group a = started(&alone), b = started(&one), c = started(&reduced);
            group *all[] = {&a, &b, &c};
            for (int i = 0; i < 3; i++) advance(all[i], 18);
            assert_same(&a, &b);
            assert_same(&a, &c);
            for (int i = 0; i < 3; i++) free_group(all[i]);
        }
}

TEST(test_replicas_are_equal_after_every_step)
{
    static const char *const CODECS[] = {"none", "fp16", "bf16"};
    for (int delay = 0; delay <= 1; delay++)
        for (int i = 0; i < 3; i++) {
            setup s = {.model = "resnet9", .world = 3, .delay = delay, .codec = CODECS[i], .ema_decay = 0.5};
            group c = started(&s);
            for (int64_t step = 1; step <= 7; step++) {
                advance(&c, step);
                for (int r = 1; r < 3; r++) assert_same_weights(&c, 0, &c, r);
                ok(nw_replicas_compare(c.group));
            }
            assert_false(same_floats(params_of(&c, 0)->buffers, params_of(&c, 1)->buffers,
                                     params_of(&c, 0)->running.floats)); /* they see different images */
            free_group(&c);
        }
}

TEST(test_a_flipped_bit_is_found_and_its_rank_named)
{
    setup s = {.model = "lenet5", .world = 4};
    for (int rank = 0; rank < 4; rank++) {
        group c = started(&s);
        advance(&c, 2);
        uint32_t bits;
        float *weight = &params_of(&c, rank)->values[777];
        memcpy(&bits, weight, sizeof bits);
        bits ^= 1;
        memcpy(weight, &bits, sizeof bits);
        assert_int_equal(nw_replicas_compare(c.group), NW_E_MISMATCH);
        char name[32];
        snprintf(name, sizeof name, "rank %d", rank ? rank : 1); /* compared with rank 0: if that is wrong, all are */
        assert_says(name);
        assert_says("step 2");
        free_group(&c);
    }
}

/* Three replicas with batches of 4 take the images of one batch of 12: the mean of their gradients is its gradient, but
 * for the order of sums. */
TEST(test_shards_make_the_gradient_of_the_whole_batch)
{
    setup big = {.model = "lenet5", .batch_size = 12, .exchange = "none", .in_order = true, .images = 48};
    setup three = {.model = "lenet5", .batch_size = 4, .world = 3, .in_order = true, .images = 48};
    group a = started(&big), b = started(&three);
    for (int64_t step = 1; step <= 4; step++) {
        advance(&a, step);
        advance(&b, step);
        size_t count = params_of(&a, 0)->learned.floats;
        const float *x = params_of(&a, 0)->values, *y = params_of(&b, 0)->values;
        double worst = 0;
        for (size_t i = 0; i < count; i++) worst = fmax(worst, fabs((double)x[i] - (double)y[i]));
        if (worst > 2e-6 * (double)step) fail_msg("after step %d weights differ by %g", (int)step, worst);
    }
    nw_tally t, u;
    int64_t images, seen;
    ok(nw_replicas_tally(a.group, &t, &images));
    ok(nw_replicas_tally(b.group, &u, &seen));
    assert_int_equal(images, seen);
    assert_int_equal(t.images, u.images);
    assert_true(fabs(nw_tally_loss(&t) - nw_tally_loss(&u)) < 1e-4);
    free_group(&a);
    free_group(&b);
}

/* ---- running statistics ---- */

static float *copy_buffers(const group *c)
{
    size_t floats = params_of(c, 0)->running.floats;
    float *all = malloc((size_t)c->group->count * floats * sizeof *all);
    for (int i = 0; i < c->group->count; i++)
        memcpy(all + (size_t)i * floats, params_of(c, i)->buffers, floats * sizeof *all);
    return all;
}

TEST(test_statistics_of_all_ranks)
{
    for (nw_norm_sync norms = NW_NORMS_LOCAL; norms <= NW_NORMS_RECALIBRATE; norms++) {
        setup s = {.model = "resnet9", .world = 3, .norms = norms, .ema_decay = 0.5, .accumulation = 2};
        setup without = s;
        without.norms = NW_NORMS_LOCAL;
        group c = started(&s), twin = started(&without);
        advance(&c, 2);
        advance(&twin, 2);
        size_t floats = params_of(&c, 0)->running.floats;
        float *before = copy_buffers(&c);
        ok(nw_replicas_sync_norms(c.group));
        float *after = copy_buffers(&c);
        if (norms == NW_NORMS_LOCAL) assert_true(same_floats(before, after, 3 * floats));
        for (size_t i = 0; norms == NW_NORMS_AVERAGE && i < floats; i++) {
            float mean = (before[i] + before[floats + i] + before[2 * floats + i]) / 3.0f;
            for (int r = 0; r < 3; r++) assert_true(after[(size_t)r * floats + i] == mean);
        }
        if (norms == NW_NORMS_RECALIBRATE) { /* nothing of what was there before is left */
            assert_true(same_floats(after, after + floats, floats) && same_floats(after, after + 2 * floats, floats));
            for (int r = 0; r < 3; r++)
                for (size_t i = 0; i < floats; i++) params_of(&c, r)->buffers[i] = 1000;
            ok(nw_replicas_sync_norms(c.group));
            assert_true(same_floats(params_of(&c, 1)->buffers, after, floats));
        }
        advance(&c, 6); /* across an epoch's end, with half a gradient pending there */
        advance(&twin, 6);
        assert_same_weights(&c, 0, &twin, 0);
        assert_same_weights(&c, 2, &twin, 2);
        free(before);
        free(after);
        free_group(&c);
        free_group(&twin);
    }
}

/* Workers of a server have no average of the weights: rank 0's is looked at with the statistics that they have. */
TEST(test_statistics_of_an_average_on_a_server)
{
    setup s = {.model = "resnet9", .world = 3, .exchange = "server", .servers = 1, .ema_decay = 0.5};
    group c = started(&s);
    nw_go go = {.until = 3, .batches = INT64_MAX};
    ok(nw_replicas_advance(c.group, &go));
    size_t floats = params_of(&c, 0)->running.floats;
    float *before = copy_buffers(&c);
    ok(nw_replicas_sync_norms(c.group));
    assert_true(nw_replicas_first(c.group)->ema_running);
    for (size_t i = 0; i < floats; i++) {
        float mean = (before[floats + i] + before[2 * floats + i]) / 2.0f;
        assert_true(params_of(&c, 0)->buffers[i] == mean);
        assert_true(nw_net_average(nw_replicas_first(c.group)->net)->buffers[i] == mean);
    }
    free(before);
    free_group(&c);
}

/* Statistics of one batch are those that a first step with momentum 1 would leave. */
TEST(test_recalibration_is_the_mean_over_batches)
{
    setup s = {.model = "resnet9", .world = 2, .norms = NW_NORMS_RECALIBRATE, .in_order = true};
    group c = started(&s);
    advance(&c, 1);
    size_t floats = params_of(&c, 0)->running.floats;
    double *sums = calloc(floats, sizeof *sums);
    for (int r = 0; r < 2; r++) {
        nw_replica *replica = c.group->members[r].replica;
        float *buffers = params_of(&c, r)->buffers;
        for (int b = 0; b < 2; b++) {
            nw_batch batch;
            ok(nw_loader_batch(replica->loader, 0, b, &batch));
            for (size_t i = 0; i < floats; i++) buffers[i] = 0;
            ok(nw_net_observe(replica->net, batch.images, batch.labels, batch.n));
            for (size_t i = 0; i < floats; i++) sums[i] += (double)buffers[i] / 0.1 / 4;
        }
    }
    ok(nw_replicas_sync_norms(c.group));
    for (size_t i = 0; i < floats; i++)
        for (int r = 0; r < 2; r++)
            if (fabs(sums[i] - (double)params_of(&c, r)->buffers[i]) > 1e-5 * (1 + fabs(sums[i])))
                fail_msg("statistic %zu of rank %d is %g, not %g", i, r, (double)params_of(&c, r)->buffers[i], sums[i]);
    free(sums);
    free_group(&c);
}

/* ---- numbers that are none ---- */

/* Half a gradient is spoilt in the layer whose backward pass is the last one. */
TEST(test_a_rank_names_itself_and_its_tensor)
{
    setup s = {.model = "lenet5", .world = 3, .accumulation = 2};
    for (int rank = 0; rank < 3; rank++) {
        group c = started(&s);
        nw_go half = {.until = 0, .batches = 1}, on = {.until = 1, .batches = 1};
        char words[160];
        ok(nw_replicas_advance(c.group, &half));
        params_of(&c, rank)->gradients[0] = NAN;
        assert_int_equal(nw_replicas_advance(c.group, &on), NW_E_NUMERIC);
        snprintf(words, sizeof words, "rank %d: step 1: the gradient of '%s' is not finite", rank,
                 params_of(&c, rank)->learned.at[0].name);
        assert_says(words);
        assert_int_equal(made(&c, rank), 0);
        free_group(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_replica_is_a_run_alone),
        cmocka_unit_test(test_replicas_are_equal_after_every_step),
        cmocka_unit_test(test_a_flipped_bit_is_found_and_its_rank_named),
        cmocka_unit_test(test_shards_make_the_gradient_of_the_whole_batch),
        cmocka_unit_test(test_statistics_of_all_ranks),
        cmocka_unit_test(test_statistics_of_an_average_on_a_server),
        cmocka_unit_test(test_recalibration_is_the_mean_over_batches),
        cmocka_unit_test(test_a_rank_names_itself_and_its_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
