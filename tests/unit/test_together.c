/*
 * test_together.c - allreduce on a virtual cluster, with workers whose gradients are a formula: ranks stop together,
 * whoever was asked and when, and go on as if nothing had been; groups keep to themselves; every byte is counted.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/toys.h"

/* ---- stopping together ---- */

static void reduce_all(stage *s, reduced *x, int delay)
{
    s->ready = SEGMENT_FLOATS;
    for (int r = 0; r < s->count; r++) use_allreduce(s, x, r, (nw_group){everybody, s->count, r}, delay);
}

/* Where STOP finds all ranks at once, at whatever they are. */
static void test_all_ranks_stop_before_the_same_step(void **state)
{
    (void)state;
    for (int asked = 0; asked < 4; asked++)
        for (int delay = 0; delay <= 1; delay++) {
            stage s;
            reduced x = {0};
            volatile sig_atomic_t stop = 0;
            open_stage(&s, 4);
            s.options.stop = &stop;
            make_virtual(&s);
            reduce_all(&s, &x, delay);
            s.workers[asked].stop = &stop;
            s.workers[asked].stop_at = 5;
            ok(run_until(&s, 1000));
            assert_true(s.driver->stopping);
            assert_true(s.ranks[0].step > 5 && s.ranks[0].step <= 9);
            for (int r = 0; r < 4; r++) {
                assert_int_equal(s.ranks[r].step, s.ranks[0].step);
                assert_int_equal(x.machines[r]->updates, s.ranks[0].step);
                assert_int_equal(s.workers[r].applied, s.ranks[r].step - delay); /* what is held back stays so */
            }
            drop_allreduce(&x);
            close_stage(&s);
        }
}

/* Stands before a machine and tells it STOP behind a given event: over MPI a signal may reach one rank alone. */
typedef struct asked_rank {
    nw_machine base;
    nw_machine *machine;
    int events, at;
    bool asked;
} asked_rank;

static nw_status asked_handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    asked_rank *a = (asked_rank *)m;
    NW_TRY(a->machine->ops->handle(a->machine, event, actions));
    if (++a->events == a->at) {
        a->asked = true;
        nw_event stop = {.kind = NW_EVENT_STOP, .now_ns = event->now_ns};
        NW_TRY(a->machine->ops->handle(a->machine, &stop, actions));
    }
    m->updates = a->machine->updates;
    return NW_OK;
}
static bool asked_rests(const nw_machine *m)
{
    const nw_machine *machine = ((const asked_rank *)m)->machine;
    return machine->ops->quiescent(machine);
}
static void asked_waits(const nw_machine *m, nw_wait *wait)
{
    const nw_machine *machine = ((const asked_rank *)m)->machine;
    machine->ops->waits(machine, wait);
}
static const nw_machine_ops asked_ops = {"asked", asked_handle, asked_rests, asked_waits, toy_state, toy_free, NULL};

enum { STOPPED_RANKS = 3, STOPPED_UNTIL = 6 };

/* Runs, with rank `asked` told to stop behind its event `at` (0: never), and then on to the end. Returns after how
 * many updates it was quiescent before. */
static int64_t stop_one(int delay, int asked, int at, float values[FLOATS], bool *reached)
{
    stage s;
    reduced x = {0};
    open_stage(&s, STOPPED_RANKS);
    make_virtual(&s);
    reduce_all(&s, &x, delay);
    asked_rank shim = {.base = *x.machines[asked], .machine = x.machines[asked], .at = at};
    shim.base.ops = &asked_ops;
    place_rank(&s, asked, &shim.base);
    ok(run_until(&s, STOPPED_UNTIL));
    int64_t reached_at = x.machines[0]->updates, held = reached_at < STOPPED_UNTIL ? delay : 0;
    for (int r = 0; r < STOPPED_RANKS; r++) {
        assert_int_equal(x.machines[r]->updates, reached_at);
        assert_int_equal(s.workers[r].begun, reached_at);
        assert_int_equal(s.workers[r].applied, reached_at - held);
    }
    *reached = shim.asked;
    ok(run_until(&s, STOPPED_UNTIL));
    for (int r = 0; r < STOPPED_RANKS; r++) {
        assert_int_equal(s.workers[r].applied, STOPPED_UNTIL);
        assert_memory_equal(x.params[r].values, x.params[0].values, sizeof(float[FLOATS]));
    }
    memcpy(values, x.params[0].values, sizeof(float[FLOATS]));
    drop_allreduce(&x);
    close_stage(&s);
    return reached_at;
}

static void test_one_rank_that_is_asked_stops_all(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++) {
        float whole[FLOATS], stopped[FLOATS];
        bool reached;
        assert_int_equal(stop_one(delay, 0, 0, whole, &reached), STOPPED_UNTIL);
        for (int asked = 0; asked < STOPPED_RANKS; asked++) {
            int ends[STOPPED_UNTIL + 1] = {0}, at = 1;
            for (reached = true; reached; at++) {
                ends[stop_one(delay, asked, at, stopped, &reached)]++;
                assert_memory_equal(stopped, whole, sizeof whole);
            }
            assert_true(at > 50);
            for (int n = 2 + delay; n <= STOPPED_UNTIL; n++) assert_true(ends[n] > 0); /* wherever it was asked */
            assert_int_equal(ends[0] + (delay ? ends[1] : 0), 0); /* it tells the others with its next gradient */
        }
    }
}

/* Every byte that a rank sent was received, and is what the transport moved. */
static void test_the_ledger_agrees_with_the_transport(void **state)
{
    (void)state;
    stage s;
    reduced x = {0};
    nw_ledger *ledger;
    int64_t mine[3] = {0}, all[3];
    open_stage(&s, 3);
    ok(nw_ledger_create(&ledger, &(nw_ledger_options){.world = 3, .ranks = 3, .segments = SEGMENTS}));
    s.options.ledger = ledger;
    make_virtual(&s);
    reduce_all(&s, &x, 1);
    ok(run_until(&s, 7));
    ok(nw_driver_allgather(s.driver, mine, sizeof mine[0], all));
    ok(nw_ledger_check(ledger));
    ok(nw_ledger_check_links(ledger, NULL));
    assert_int_equal(nw_ledger_total(ledger, NW_SENT).messages, 7 * SEGMENTS * 3 * 2 * 2 + 3 * 2);
    for (int i = 0; i < SEGMENTS; i++) assert_int_equal(nw_ledger_segment(ledger, i).messages, 7 * 3 * 2 * 2);
    drop_allreduce(&x);
    close_stage(&s);
    nw_ledger_free(ledger);
}

/* ---- groups ---- */

static const uint16_t halves[2][3] = {{0, 2, 4}, {1, 3, 5}};

static void note_crossing(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    (void)h, (void)now_ns;
    int *sent = context;
    if (from % 2 == to % 2)
        sent[from % 2]++;
    else
        fail_msg("rank %d sent something to rank %d, which is in another group", from, to);
}

static nw_status count_updates(void *context, const nw_count *count)
{
    (void)count;
    ++*(int *)context;
    return NW_OK;
}

/* What three ranks with the gradients of one half make of their values, alone in the world. */
static void reduce_half(int half, int delay, float values[FLOATS])
{
    stage s;
    reduced x = {0};
    open_stage(&s, 3);
    make_virtual(&s);
    reduce_all(&s, &x, delay);
    for (int i = 0; i < 3; i++) s.workers[i].rank = halves[half][i];
    ok(run_until(&s, 4));
    memcpy(values, x.params[0].values, sizeof(float[FLOATS]));
    drop_allreduce(&x);
    close_stage(&s);
}

static void test_groups_keep_to_themselves(void **state)
{
    (void)state;
    for (int delay = 0; delay <= 1; delay++) {
        stage s;
        reduced x = {0};
        float alone[2][FLOATS];
        int sent[2] = {0}, counted = 0;
        for (int half = 0; half < 2; half++) reduce_half(half, delay, alone[half]);
        assert_memory_not_equal(alone[0], alone[1], sizeof alone[0]);
        open_stage(&s, 6);
        s.ready = SEGMENT_FLOATS;
        s.options.hooks = (nw_driver_hooks){.context = sent, .sent = note_crossing};
        s.options.counted = count_updates;
        s.options.context = &counted;
        make_virtual(&s);
        for (int r = 0; r < 6; r++) use_allreduce(&s, &x, r, (nw_group){halves[r % 2], 3, r / 2}, delay);
        ok(run_until(&s, 4));
        for (int r = 0; r < 6; r++) assert_memory_equal(x.params[r].values, alone[r % 2], sizeof alone[0]);
        for (int half = 0; half < 2; half++) assert_int_equal(sent[half], 4 * SEGMENTS * 3 * 2 * 2);
        assert_int_equal(counted, 2 * 4); /* the first of each counts */
        drop_allreduce(&x);
        close_stage(&s);
    }
}

static void disturb(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind == NW_EVENT_GO) post(t, actions, 2, 0, 16);
}

static void wait_in_peace(toy *t, const nw_event *e, nw_actions *actions) { (void)t, (void)e, (void)actions; }

static void test_a_message_from_outside_the_group_is_refused(void **state)
{
    (void)state;
    stage s;
    reduced x = {0};
    open_stage(&s, 6);
    make_virtual(&s);
    fill_ranks(&s, disturb);
    for (int r = 0; r < 6; r += 2) use_allreduce(&s, &x, r, (nw_group){halves[0], 3, r / 2}, 0);
    s.toys[3].react = s.toys[5].react = wait_in_peace;
    refused(run_until(&s, 4), NW_E_MESSAGE, "a message of rank 1 came to rank 2, which exchanges nothing with it");
    drop_allreduce(&x);
    close_stage(&s);
}

static void test_members_are_found(void **state)
{
    (void)state;
    static const uint16_t some[] = {0, 1, 4, 9, 300, 65535};
    nw_group g = {some, 6, 2}, all = {everybody, 6, 0};
    int found = 0;
    for (int rank = -1; rank <= 65536; rank++) {
        int member = nw_group_find(&g, rank);
        if (member >= 0) assert_int_equal(some[member], rank);
        found += member >= 0;
        assert_int_equal(nw_group_find(&all, rank), rank < 6 ? rank : -1);
    }
    assert_int_equal(found, 6);
    nw_wait wait = {.what = "a word"};
    char text[64];
    nw_wait_add(&wait, &g, 3); /* people know ranks of the world */
    nw_wait_add(&wait, &g, 4);
    nw_wait_text(&wait, text, sizeof text);
    assert_string_equal(text, "ranks 9 and 300: a word");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ranks_stop_before_the_same_step),
        cmocka_unit_test(test_one_rank_that_is_asked_stops_all),
        cmocka_unit_test(test_the_ledger_agrees_with_the_transport),
        cmocka_unit_test(test_groups_keep_to_themselves),
        cmocka_unit_test(test_a_message_from_outside_the_group_is_refused),
        cmocka_unit_test(test_members_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
