/*
 * test_replicas_worlds.c - checkpoints of a virtual cluster that a world of another size goes on from: with other
 * ranks, other servers, other workers, another exchange.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/replicas_fixture.h"

/* From `from` ranks to `to`: all replicas have the weights, go on at the first batch that holds only images which were
 * not seen in this epoch, and the sums of the epoch are kept. */
static void change_world(int from, int to, int64_t at, int delay)
{
    setup s = {.model = "resnet9", .world = from, .delay = from > 1 ? delay : 0, .ema_decay = 0.9};
    setup t = s;
    const char *note;
    t.world = to;
    t.delay = delay;
    group a = started(&s);
    advance(&a, at);
    save(&a);
    nw_tally before, after;
    int64_t images, seen;
    ok(nw_replicas_tally(a.group, &before, &images));
    group b = resumed(&t, &note);
    assert_non_null(note);
    ok(nw_replicas_tally(b.group, &after, &seen));
    assert_int_equal(seen, images);
    assert_true(after.images == before.images && after.top1 == before.top1 && after.top5 == before.top5);
    assert_true(fabs(after.loss - before.loss) <= 1e-12 * before.loss); /* but for the order of its sum */
    size_t floats = params_of(&a, 0)->running.floats;
    const nw_position *old = &nw_replicas_first(a.group)->at;
    for (int r = 0; r < to; r++) {
        const nw_position *place = &b.group->members[r].replica->at;
        assert_same_weights(&a, 0, &b, r);
        assert_true(same_floats(params_of(&b, r)->buffers, params_of(&a, r % from)->buffers, floats));
        assert_int_equal(place->epoch, old->epoch);
        assert_int_equal(place->steps, old->steps);
        assert_int_equal(place->batch, (old->batch * from + to - 1) / to);
        assert_int_equal(b.group->members[r].machine->updates, at);
    }
    advance(&b, at + 4);
    ok(nw_replicas_compare(b.group));
    free_group(&a);
    free_group(&b);
}

TEST(test_another_world_goes_on_from_a_checkpoint)
{
    for (int delay = 0; delay <= 1; delay++)
        for (int64_t at = 1; at <= 4; at += 3) {
            change_world(3, 2, at, delay);
            change_world(2, 3, at, delay);
        }
    change_world(1, 3, 2, 0);
    change_world(3, 1, 2, 1);
    change_world(4, 3, 3, 1);
    change_world(4, 5, 2, 0);
}

/* What a rank had for itself is lost in another world, and the user is told; tensors that an exchange held are lost
 * where another, or one with other options, has no use for them. */
TEST(test_what_is_lost_is_named)
{
    setup s = {.model = "lenet5", .world = 3, .accumulation = 2, .delay = 1}, t = s;
    const char *note;
    nw_go half = {.until = 2,
                  .batches = 5}; /* the epoch: one update is made, one held back, and half a gradient left */
    group a = started(&s);
    ok(nw_replicas_advance(a.group, &half));
    save(&a);
    t.world = 4;
    group b = resumed(&t, &note);
    assert_string_equal(strstr(note, "lost"), "lost from the checkpoint: exchange.pending, pending_batches");
    assert_int_equal(nw_replicas_first(b.group)->at.pending, 0);
    t.world = 0;
    t.exchange = "none";
    t.delay = 0;
    group c = resumed(&t, &note);
    assert_string_equal(strstr(note, "lost"),
                        "lost from the checkpoint: exchange.pending, pending_batches, exchange.delayed");
    assert_int_equal(nw_replicas_updates(c.group), 2);
    s.delay = 0;
    s.accumulation = t.accumulation = 1;
    group e = started(&s); /* with nothing to lose */
    advance(&e, 2);
    save(&e);
    group d = resumed(&t, &note);
    assert_null(strstr(note, "lost"));
    save(&d);
    group f = resumed(&s, &note); /* and the other way: what only this exchange has is as at its beginning */
    assert_int_equal(nw_replicas_updates(f.group), 2);
    advance(&f, 4);
    group *all[] = {&a, &b, &c, &d, &e, &f};
    for (int i = 0; i < 6; i++) free_group(all[i]);
}

/* ---- replicas that differ ---- */

static void set_unequal(group *c)
{
    for (int i = 0; i < c->group->count; i++) c->group->members[i].machine->equal = false;
}

/* Where the exchange lets them, each has parameters, optimizer and average of its own. */
TEST(test_replicas_that_differ)
{
    setup s = {.model = "resnet9", .world = 4, .ema_decay = 0.9};
    const char *note;
    group a = started(&s);
    advance(&a, 3);
    set_unequal(&a);
    for (int r = 0; r < 4; r++) {
        params_of(&a, r)->values[5] += (float)r;
        nw_optimizer_state_at(a.group->members[r].replica->net->optimizer, 0).data[7] = (float)r;
        nw_net_average(a.group->members[r].replica->net)->values[9] = (float)r;
    }
    save(&a);
    for (int to = 3; to <= 5; to++) {
        s.world = to;
        group b = make_group(&s);
        set_unequal(&b);
        ok(load(&b, &note));
        if (to == 4) assert_same(&a, &b);
        for (int r = 0; r < to; r++) {
            const nw_replica *x = b.group->members[r].replica;
            assert_same_weights(&a, r % 4, &b, r);
            assert_true(nw_optimizer_state_at(x->net->optimizer, 0).data[7] == (float)(r % 4));
            assert_true(nw_net_average(x->net)->values[9] == (float)(r % 4));
        }
        free_group(&b);
    }
    free_group(&a);
}

/* ---- servers ---- */

/* Momentum of all servers' ranges. */
static float *whole_momentum(const group *c)
{
    float *whole = calloc(params_of(c, 0)->learned.floats, sizeof *whole);
    for (int r = 0; r < c->group->count; r++) {
        const nw_machine *m = c->group->members[r].machine;
        const float *own = nw_optimizer_state_at(c->group->members[r].replica->net->optimizer, 0).data;
        for (size_t i = m->first; i < m->first + m->count; i++) whole[i] += own[i];
    }
    return whole;
}

/* Two workers with three servers go on with as many, with two and with one: the servers' state is cut anew, and what
 * they compute is the same. */
TEST(test_another_number_of_servers)
{
    setup s = {.model = "lenet5", .world = 5, .exchange = "server", .servers = 3, .images = 60};
    const char *note;
    group a = started(&s);
    serve(&a, 7);
    save(&a);
    float *before = whole_momentum(&a);
    size_t floats = params_of(&a, 0)->learned.floats, zeros = 0;
    for (size_t i = 0; i < floats; i++) zeros += before[i] == 0.0f;
    assert_true(zeros < floats / 10);
    for (int r = 1; r < 5; r++) { /* workers, who make no updates, have no state for them */
        nw_net *net = a.group->members[r].replica->net;
        assert_true((nw_optimizer_state_at(net->optimizer, 0).data == NULL) == (r >= 3));
        assert_true((nw_net_memory(net) < 3 * floats * sizeof(float)) == (r >= 3));
    }
    serve(&a, 12);
    for (int servers = 3; servers >= 1; servers--) {
        setup t = s;
        t.world = 2 + servers;
        t.servers = servers;
        group b = resumed(&t, &note);
        if (servers == 3)
            assert_null(note);
        else
            assert_non_null(strstr(note, "another size"));
        float *after = whole_momentum(&b);
        assert_true(same_floats(before, after, floats));
        free(after);
        assert_int_equal(b.group->position.batch, 7);
        serve(&b, 12);
        assert_same_weights(&a, 0, &b, 0);
        if (servers == 3) assert_same(&a, &b);
        free_group(&b);
    }
    free(before);
    free_group(&a);
}

/* What does not fit is refused before it is taken, with numbers; less of what may wait at the server fits. */
TEST(test_memory_that_is_not_there)
{
    setup s = {.model = "lenet5", .world = 5, .exchange = "server", .servers = 1, .images = 60};
    group a = make_group(&s);
    nw_replicas *other;
    nw_replicas_options o = a.group->options;
    size_t gradients = 4 * params_of(&a, 0)->learned.floats * sizeof(float); /* one of each worker */
    size_t all = nw_net_memory(a.group->members[0].replica->net) + gradients;
    for (int r = 1; r < 5; r++) all += nw_net_memory(a.group->members[r].replica->net);
    o.available_memory = all;
    ok(nw_replicas_create(&other, &o));
    nw_replicas_free(other);
    o.available_memory = all - 1;
    assert_int_equal(nw_replicas_create(&other, &o), NW_E_MEMORY);
    assert_says("4 more replicas of");
    assert_says("are available: use fewer ranks or a smaller model, or less --server-memory");
    o.exchange.memory_bytes = gradients / 2;
    ok(nw_replicas_create(&other, &o));
    nw_replicas_free(other);
    o.exchange.name = "allreduce";
    o.available_memory = all / 2;
    assert_int_equal(nw_replicas_create(&other, &o), NW_E_MEMORY);
    free_group(&a);
}

/* Copies of what pairs agreed on: one for each neighbour, so a graph with fewer of them needs less. */
TEST(test_memory_of_copies)
{
    setup s = {.model = "lenet5", .world = 5, .images = 60};
    group a = make_group(&s);
    nw_replicas *other;
    nw_replicas_options o = a.group->options;
    size_t vector = params_of(&a, 0)->learned.floats * sizeof(float), all = 0;
    for (int r = 0; r < 5; r++) all += nw_net_memory(a.group->members[r > 0].replica->net);
    o.exchange.name = "gossip";
    o.exchange.gossip.rate = 1;
    o.exchange.layout.ranges = true;
    o.codecs.codec = nw_codec_options_default("topk");
    o.graph = "complete";
    o.available_memory = all + 5 * (4 + 1 + 2) * vector; /* copies, what is encoded, and the messages of a pair */
    ok(nw_replicas_create(&other, &o));
    nw_replicas_free(other);
    o.available_memory--;
    assert_int_equal(nw_replicas_create(&other, &o), NW_E_MEMORY);
    assert_says("MiB of these for copies of what each worker and its neighbours agreed on");
    o.graph = "cycle";
    ok(nw_replicas_create(&other, &o));
    nw_replicas_free(other);
    o.graph = "complete";
    o.codecs.codec = nw_codec_options_default("int8");
    o.exchange.gossip.values = NW_AGREE_PLAIN;
    ok(nw_replicas_create(&other, &o));
    nw_replicas_free(other);
    free_group(&a);
}

/* An epoch of 15 batches of two workers is one of 10 of three; saved again, it is counted in those. */
TEST(test_another_number_of_workers)
{
    setup s = {.model = "lenet5", .world = 3, .exchange = "server", .servers = 1, .images = 60};
    const char *note;
    group a = started(&s);
    serve(&a, 7);
    save(&a);
    s.world = 4;
    for (int again = 0; again < 2; again++) {
        group b = resumed(&s, &note);
        assert_int_equal(note == NULL, again);
        assert_int_equal(b.group->position.batch, 4);
        for (int r = 1; r < 4; r++) assert_int_equal(b.group->members[r].replica->at.batch, 4);
        save(&b);
        free_group(&b);
    }
    free_group(&a);
}

/* What was held back is the mean of the world that computed it, whatever world and codec apply it. */
TEST(test_a_mean_that_was_held_back_stays_a_mean)
{
    static const char *const CODECS[] = {"none", "bf16"};
    for (int to = 1; to <= 4; to++)
        for (int codec = 0; codec < 2; codec++) {
            setup s = {.model = "lenet5", .world = 3, .delay = 1}, t = s;
            const char *note;
            t.world = to;
            t.codec = CODECS[codec];
            group a = started(&s);
            advance(&a, 3);
            save(&a);
            group b = resumed(&t, &note);
            assert_int_equal(made(&a, 0), 2);
            drain(&a);
            drain(&b);
            const float *x = params_of(&a, 0)->values, *y = params_of(&b, 0)->values;
            for (size_t i = 0; i < params_of(&a, 0)->learned.floats; i++)
                if (fabsf(x[i] - y[i]) > 1e-6f * (1 + fabsf(x[i])))
                    fail_msg("weight %zu is %g in the world that went on and %g in its own", i, (double)y[i],
                             (double)x[i]);
            free_group(&a);
            free_group(&b);
        }
}

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        WITH_FILES(test_another_world_goes_on_from_a_checkpoint),
        WITH_FILES(test_what_is_lost_is_named),
        WITH_FILES(test_replicas_that_differ),
        WITH_FILES(test_another_number_of_servers),
        WITH_FILES(test_memory_that_is_not_there),
        WITH_FILES(test_memory_of_copies),
        WITH_FILES(test_another_number_of_workers),
        WITH_FILES(test_a_mean_that_was_held_back_stays_a_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
