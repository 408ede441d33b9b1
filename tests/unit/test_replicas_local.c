/*
 * test_replicas_local.c - replicas with outer steps (Local SGD, DiLoCo, NoLoCo) in a virtual cluster: what is looked at
 * and saved are the outer parameters, checkpoints go on bit for bit from between outer steps, also in other worlds, and
 * where all average behind every step it is allreduce. test_local.c has the exchange itself.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/replicas_fixture.h"

static const float *outer_of(const group *c, int member) { return c->group->members[member].machine->outer; }
static size_t floats_of(const group *c) { return params_of(c, 0)->learned.floats; }

/* The world goes on to `until` updates and finishes all outer steps. */
static void finish(group *c, int64_t until)
{
    advance(c, until);
    drain(c);
}

/* Everything that all ranks would save. */
static void assert_same_states(const group *a, const group *b)
{
    assert_same(a, b);
    for (int i = 0; i < a->group->count; i++) {
        nw_state u = {0}, v = {0};
        const nw_machine *m = a->group->members[i].machine, *n = b->group->members[i].machine;
        m->ops->state((nw_machine *)(uintptr_t)m, &u);
        n->ops->state((nw_machine *)(uintptr_t)n, &v);
        assert_int_equal(u.count, v.count);
        for (int k = 0; k < u.count; k++) {
            const nw_state_entry *e = &u.at[k], *f = &v.at[k]; /* some names are there more than once */
            if (strcmp(e->name, f->name) != 0 || nw_state_bytes(e) != nw_state_bytes(f) ||
                memcmp(e->data, f->data, nw_state_bytes(e)) != 0)
                fail_msg("'%s' of the exchange of replica %d differs", e->name, i);
        }
        nw_state_free(&u);
        nw_state_free(&v);
    }
}

/* ---- what it is ---- */

TEST(test_averaging_behind_every_step_is_allreduce)
{
    setup s = {.model = "lenet5", .world = 3, .exchange = "local", .every = 1, .averages = true};
    setup reduced = {.model = "lenet5", .world = 3};
    group a = started(&s), b = started(&reduced);
    for (int64_t step = 1; step <= 6; step++) {
        advance(&a, step);
        advance(&b, step);
        double worst = 0;
        for (size_t i = 0; i < floats_of(&a); i++)
            worst = fmax(worst, fabs((double)params_of(&a, 2)->values[i] - (double)params_of(&b, 2)->values[i]));
        if (worst > 1e-6 * (double)step) fail_msg("after step %d weights differ by %g", (int)step, worst);
    }
    free_group(&a);
    free_group(&b);
}

/* One replica alone: its first outer step is Nesterov's, from where it began to where two steps without led. */
TEST(test_an_outer_step_is_the_rules)
{
    setup s = {.model = "lenet5", .exchange = "local", .every = 2}, plain = {.model = "lenet5", .exchange = "none"};
    group a = started(&s), b = started(&plain);
    size_t floats = floats_of(&a);
    float *first = malloc(floats * sizeof *first);
    memcpy(first, params_of(&a, 0)->values, floats * sizeof *first);
    advance(&b, 2);
    advance(&a, 1);
    assert_true(same_floats(outer_of(&a, 0), first, floats)); /* not yet */
    assert_false(same_floats(params_of(&a, 0)->values, first, floats));
    advance(&a, 2);
    assert_true(same_floats(outer_of(&a, 0), params_of(&a, 0)->values, floats));
    const float *momentum = nw_optimizer_state_at(a.group->members[0].replica->outer, 0).data;
    for (size_t i = 0; i < floats; i++) {
        float d = first[i] - params_of(&b, 0)->values[i];
        double wants = (double)first[i] - 0.7 * 1.6 * (double)d;
        assert_true(memcmp(&momentum[i], &d, sizeof d) == 0);
        assert_true(fabs((double)outer_of(&a, 0)[i] - wants) < 1e-6);
    }
    free(first);
    free_group(&a);
    free_group(&b);
}

/* ---- what is looked at ---- */

TEST(test_outer_parameters_are_looked_at)
{
    for (int pairs = 0; pairs < 2; pairs++) {
        setup s = {.model = "resnet9", .world = 3, .exchange = "local", .every = 2, .pairs = pairs};
        group c = started(&s);
        advance(&c, 3);
        size_t floats = floats_of(&c);
        assert_false(same_floats(params_of(&c, 0)->values, params_of(&c, 1)->values, floats));
        assert_int_equal(same_floats(outer_of(&c, 0), outer_of(&c, 1), floats), !pairs);
        ok(nw_replicas_show_outer(c.group));
        for (int r = 0; r < 3; r++)
            for (size_t i = 0; i < floats; i++) {
                float mean =
                    pairs ? ((outer_of(&c, 0)[i] + outer_of(&c, 1)[i]) + outer_of(&c, 2)[i]) / 3 : outer_of(&c, 0)[i];
                assert_true(memcmp(&params_of(&c, r)->read[i], &mean, sizeof mean) == 0);
            }
        nw_replicas_hide_outer(c.group);
        for (int r = 0; r < 3; r++) assert_ptr_equal(params_of(&c, r)->read, params_of(&c, r)->values);
        free_group(&c);
    }
}

/* Where a gradient waits for its rest, the mean is made elsewhere. */
TEST(test_looking_leaves_half_a_gradient_alone)
{
    setup s = {.model = "lenet5", .world = 2, .exchange = "local", .every = 2, .pairs = true, .accumulation = 2};
    group a = started(&s), b = started(&s);
    nw_go go = {.until = 3, .batches = 7};
    ok(nw_replicas_advance(a.group, &go));
    ok(nw_replicas_advance(b.group, &go));
    assert_int_equal(a.group->members[0].replica->at.pending, 1);
    ok(nw_replicas_show_outer(a.group));
    assert_ptr_not_equal(params_of(&a, 0)->read, params_of(&a, 0)->gradients);
    nw_replicas_hide_outer(a.group);
    assert_same_states(&a, &b);
    free_group(&a);
    free_group(&b);
}

TEST(test_the_model_of_a_checkpoint_is_the_outer_one)
{
    setup s = {.model = "resnet9", .world = 3, .exchange = "local", .every = 2};
    group c = started(&s), other = started(&s);
    nw_checkpoint *checkpoint;
    advance(&c, 3);
    save(&c);
    ok(nw_checkpoint_open(&checkpoint, scratch("checkpoint")));
    ok(nw_checkpoint_read_model(checkpoint, "resnet9", params_of(&other, 0), NULL));
    nw_checkpoint_close(checkpoint);
    assert_true(same_floats(params_of(&other, 0)->values, outer_of(&c, 0), floats_of(&c)));
    free_group(&c);
    free_group(&other);
}

TEST(test_a_flipped_bit_is_found_where_all_should_be_equal)
{
    setup s = {.model = "lenet5", .world = 3, .exchange = "local", .every = 4};
    group c = started(&s);
    advance(&c, 3);
    params_of(&c, 1)->values[5] += 1;
    ok(nw_replicas_compare(c.group)); /* these are its own */
    c.group->members[1].machine->outer[5] += 1;
    assert_int_equal(nw_replicas_compare(c.group), NW_E_MISMATCH);
    assert_says("rank 1");
    free_group(&c);
}

/* At the end of a run all have the same: of pairs the mean of what they had. Once is enough. */
TEST(test_at_the_end_all_are_equal)
{
    for (int pairs = 0; pairs < 2; pairs++) {
        setup s = {.model = "lenet5", .world = 3, .exchange = "local", .every = 4, .delay = 1, .pairs = pairs};
        group c = started(&s);
        finish(&c, 6);
        assert_true(same_floats(params_of(&c, 0)->values, outer_of(&c, 0), floats_of(&c)));
        assert_int_equal(same_floats(outer_of(&c, 0), outer_of(&c, 2), floats_of(&c)), !pairs);
        float mean = ((outer_of(&c, 0)[9] + outer_of(&c, 1)[9]) + outer_of(&c, 2)[9]) / 3;
        float *first = malloc(floats_of(&c) * sizeof *first);
        for (int again = 0; again < 2; again++) {
            ok(nw_replicas_merge_outer(c.group));
            for (int r = 0; r < 3; r++) {
                assert_true(same_floats(params_of(&c, r)->values, params_of(&c, 0)->values, floats_of(&c)));
                assert_true(same_floats(outer_of(&c, r), params_of(&c, 0)->values, floats_of(&c)));
            }
            if (pairs) assert_true(memcmp(&mean, outer_of(&c, 0) + 9, sizeof mean) == 0);
            if (again) assert_true(same_floats(first, outer_of(&c, 0), floats_of(&c)));
            memcpy(first, outer_of(&c, 0), floats_of(&c) * sizeof *first);
        }
        finish(&c, 9); /* and on from there */
        free(first);
        free_group(&c);
    }
}

/* ---- checkpoints ---- */

static void save_everywhere(const setup *s, int64_t steps)
{
    group whole = started(s), going = started(s);
    for (int64_t step = 1; step <= steps; step++) advance(&whole, step);
    for (int64_t at = 0; at < steps; at += 2) {
        const char *note;
        for (int64_t step = nw_replicas_updates(going.group) + 1; step <= at; step++) advance(&going, step);
        save(&going);
        group c = resumed(s, &note);
        assert_null(note);
        assert_same_states(&going, &c);
        for (int64_t step = at + 1; step <= steps; step++) advance(&c, step);
        assert_same_states(&whole, &c);
        assert_true(nw_replicas_virtual_seconds(whole.group) == nw_replicas_virtual_seconds(c.group));
        ok(nw_ledger_check_links(c.group->ledger, NULL));
        free_group(&c);
    }
    free_group(&whole);
    free_group(&going);
}

/* Epochs of 5 batches: with accumulation 2 their ends cut a gradient in two, and outer steps go over them. */
TEST(test_saved_at_any_step_it_goes_on_bit_for_bit)
{
    for (int ways = 0; ways < 12; ways++) {
        setup s = {.model = "resnet9",
                   .world = 3,
                   .exchange = "local",
                   .every = 3,
                   .delay = ways % 2,
                   .fragments = ways / 2 % 2 ? 2 : 1,
                   .pairs = ways / 4 == 1,
                   .codec = ways / 4 == 2 ? "topk" : NULL,
                   .memory = ways / 4 == 2 ? "error" : NULL,
                   .accumulation = ways < 4 ? 2 : 1};
        save_everywhere(&s, 8);
    }
}

/* Of means or of pairs, with a mean under way or without: others go on from it, together. */
TEST(test_another_world_goes_on_from_a_checkpoint)
{
    static const int FROM[] = {3, 2, 1}, TO[] = {2, 4, 3};
    for (int i = 0; i < 3; i++)
        for (int ways = 0; ways < 4; ways++) {
            setup s = {.model = "resnet9",
                       .world = FROM[i],
                       .exchange = "local",
                       .every = 3,
                       .delay = ways & 1,
                       .pairs = ways & 2};
            setup to = s;
            const char *note;
            to.world = TO[i];
            group a = started(&s);
            advance(&a, 4);
            save(&a);
            group b = resumed(&to, &note);
            assert_non_null(note);
            assert_null(strstr(note, "lost"));
            for (int r = 0; r < TO[i]; r++) {
                assert_true(same_floats(outer_of(&b, r), outer_of(&a, ways & 2 ? r % FROM[i] : 0), floats_of(&a)));
                assert_same_weights(&b, r, &a, r % FROM[i]);
                assert_int_equal(b.group->members[r].machine->updates, 4);
            }
            finish(&b, 8);
            ok(nw_replicas_compare(b.group));
            free_group(&a);
            free_group(&b);
        }
}

/* What memories hold is delivered. */
TEST(test_another_world_delivers_what_memories_hold)
{
    setup s = {.model = "lenet5", .world = 4, .exchange = "local", .every = 2, .codec = "topk", .memory = "error"},
          to = s;
    const char *note;
    to.world = 2;
    group a = started(&s);
    advance(&a, 4);
    save(&a);
    group b = resumed(&to, &note);
    nw_state u[4] = {{0}}, v[2] = {{0}};
    for (int r = 0; r < 4; r++) a.group->members[r].machine->ops->state(a.group->members[r].machine, &u[r]);
    for (int r = 0; r < 2; r++) b.group->members[r].machine->ops->state(b.group->members[r].machine, &v[r]);
    double worst = 0, most = 0;
    for (size_t i = 0; i < floats_of(&a); i++) { /* the mean over four, and over two */
        double had = 0, has = 0;
        for (int r = 0; r < 4; r++) had += (double)((float *)nw_state_find(&u[r], "memory")->data)[i] / 4;
        for (int r = 0; r < 2; r++) has += (double)((float *)nw_state_find(&v[r], "memory")->data)[i] / 2;
        worst = fmax(worst, fabs(had - has));
        most = fmax(most, fabs(had));
    }
    assert_true(most > 1e-4 && worst < 1e-6 * most);
    for (int r = 0; r < 4; r++) nw_state_free(&u[r]);
    for (int r = 0; r < 2; r++) nw_state_free(&v[r]);
    free_group(&a);
    free_group(&b);
}

TEST(test_checkpoints_with_other_fragments_are_refused)
{
    setup s = {.model = "lenet5", .world = 2, .exchange = "local", .every = 4, .fragments = 2}, to = s;
    const char *note;
    to.fragments = 4;
    group a = started(&s), b = make_group(&to);
    advance(&a, 3);
    save(&a);
    assert_int_equal(load(&b, &note), NW_E_ARGUMENT);
    assert_says("--fragments");
    free_group(&a);
    free_group(&b);
}

/* ---- memory ---- */

TEST(test_memory_that_would_not_suffice_is_refused)
{
    setup s = {.model = "lenet5", .world = 4};
    group a = make_group(&s), b = {0};
    nw_replicas_options o = a.group->options;
    size_t vector = floats_of(&a) * sizeof(float), has = nw_net_memory(a.group->members[0].replica->net);
    has += 3 * nw_net_memory(a.group->members[1].replica->net);
    o.available_memory = has + 8 * vector; /* two vectors each, and outer momentum */
    o.exchange.name = "local";
    o.exchange.sync_every = 4;
    o.replica.outer = nw_optimizer_options_default("sgd");
    o.replica.outer_lr = 1;
    assert_int_equal(nw_replicas_create(&b.group, &o), NW_E_MEMORY);
    o.available_memory = has + 13 * vector;
    ok(nw_replicas_create(&b.group, &o));
    nw_replicas_free(b.group);
    free_group(&a);
}

#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_averaging_behind_every_step_is_allreduce),
        cmocka_unit_test(test_an_outer_step_is_the_rules),
        cmocka_unit_test(test_outer_parameters_are_looked_at),
        cmocka_unit_test(test_looking_leaves_half_a_gradient_alone),
        WITH_FILES(test_the_model_of_a_checkpoint_is_the_outer_one),
        cmocka_unit_test(test_a_flipped_bit_is_found_where_all_should_be_equal),
        cmocka_unit_test(test_at_the_end_all_are_equal),
        WITH_FILES(test_saved_at_any_step_it_goes_on_bit_for_bit),
        WITH_FILES(test_another_world_goes_on_from_a_checkpoint),
        WITH_FILES(test_another_world_delivers_what_memories_hold),
        WITH_FILES(test_checkpoints_with_other_fragments_are_refused),
        cmocka_unit_test(test_memory_that_would_not_suffice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
