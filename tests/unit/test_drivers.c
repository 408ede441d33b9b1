/*
 * test_drivers.c - drivers with toy machines and workers that compute nothing: the order of events, virtual times that
 * were worked out by hand, faults, gradients that an epoch's end cuts in two.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/toys.h"

static void note_sent(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    note(context, "%" PRId64 " r%d sends %u bytes to r%d\n", now_ns, from, h->bytes, to);
}
static void note_received(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    note(context, "%" PRId64 " r%d has %u bytes of r%d\n", now_ns, to, h->bytes, from);
}

static void script(stage *s, nw_fault fault) { ok(nw_faults_create(&s->faults, &fault, 1, s->count)); }

/* ---- virtual time ---- */

/* Computes, sends 1000 bytes to its neighbour, waits for its own, updates. Handling costs: 2000 bytes touched after a
 * gradient, 500 for a message. */
static void exchange_in_lockstep(toy *t, const nw_event *e, nw_actions *actions)
{
    if (is_done(e, NW_TASK_PASS) && e->task->completes) {
        actions->touched = 2000;
        post(t, actions, (t->base.group.me + 1) % t->base.group.count, t->computed, 1000 - NW_HEADER_BYTES);
        t->waiting = true;
    }
    if (e->kind == NW_EVENT_MESSAGE) actions->touched = 500;
    if (t->waiting && t->messages == t->computed) {
        t->waiting = false;
        toy_update(t, actions);
    }
    if (e->kind != NW_EVENT_GO && !is_done(e, NW_TASK_UPDATE)) return;
    if (t->base.updates >= t->go.until) return;
    t->asked = t->computed;
    toy_compute(t, actions);
}

static void test_virtual_times_are_those_worked_out_by_hand(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    s.options.hooks.sent = note_sent;
    s.options.hooks.received = note_received;
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n"
                  "0 r1 go\n"
                  "750 r0 final from 10\n"  /* 50 + 100 + 200 + 400 */
                  "1050 r0 computed\n"      /* + 300; then 2000 bytes, until 3050 */
                  "1500 r1 final from 10\n" /* twice as long */
                  "2100 r1 computed\n"      /* then until 6100 */
                  "3050 r0 sends 936 bytes to r1\n"
                  "6100 r1 sends 936 bytes to r0\n"
                  "6100 r1 has 936 bytes of r0\n"
                  "6100 r1 message of r0 #1\n" /* there at 3050 + 1000 + 1000, but the rank was busy; until 7100 */
                  "7240 r1 updated\n"          /* 2 x 70 */
                  "8100 r0 has 936 bytes of r1\n"
                  "8100 r0 message of r1 #1\n" /* sent at 6100; until 8600 */
                  "8670 r0 updated\n");
    assert_int_equal(nw_driver_now(s.driver, 0), 8670);
    assert_int_equal(nw_driver_now(s.driver, 1), 7240);
    assert_int_equal(s.driver->waited_ns, 8600 - 3050); /* of rank 0 */
    s.used = 0;
    ok(run_until(&s, 2)); /* goes on where the clocks are; costs nothing in between */
    assert_non_null(strstr(s.log, "9720 r0 computed\n"));
    assert_non_null(strstr(s.log, "9340 r1 computed\n"));
    close_stage(&s);
}

/* Rank 0 computes for long; the others send to it meanwhile, and it answers each. */
static void answer_in_between(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me;
    if (e->kind == NW_EVENT_GO && me > 0) post(t, actions, 0, me, 100 - NW_HEADER_BYTES);
    if (me > 0) return;
    if ((e->kind == NW_EVENT_GO || e->kind == NW_EVENT_DONE) && t->asked < t->go.until) toy_compute(t, actions);
    if (e->kind == NW_EVENT_MESSAGE) {
        actions->touched = 500;
        post(t, actions, (int)e->message->header->from, 7, 100 - NW_HEADER_BYTES);
    }
}

static void test_messages_take_time_from_a_computation_one_by_one(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 3);
    s.cluster->ranks[1].slowdown = 1;
    s.backward[0] = 30000;
    make_virtual(&s);
    fill_ranks(&s, answer_in_between);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n"
                  "0 r1 go\n"
                  "0 r2 go\n"
                  "750 r0 final from 10\n"
                  "1100 r0 message of r1 #1\n" /* both are there at 100 + 1000 */
                  "1600 r0 message of r2 #2\n" /* but one thing after the other */
                  "2700 r1 message of r0 #7\n" /* sent at 1600 */
                  "3200 r2 message of r0 #7\n" /* sent at 2100 */
                  "31750 r0 computed\n");      /* 30750 and what two messages took */
    close_stage(&s);
}

static void update_at_once(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind != NW_EVENT_GO) return;
    if (t->base.group.me == 0)
        toy_update(t, actions);
    else
        post(t, actions, 0, 1, 0);
}

static void test_messages_wait_for_the_end_of_an_update(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    s.cluster->links[0].latency_ns = 0;
    make_virtual(&s);
    fill_ranks(&s, update_at_once);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n"
                  "0 r1 go\n"
                  "70 r0 updated\n"
                  "70 r0 message of r1 #1\n"); /* there after the 64 bytes of its header */
    close_stage(&s);
}

/* A link without a wire: the same messages are there earlier, and their receivers are busy with copying them. */
static void test_copied_bytes_are_work_of_the_receiver(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 3);
    s.cluster->ranks[1].slowdown = 1;
    s.cluster->links[0].copied = true;
    s.backward[0] = 30000;
    make_virtual(&s);
    fill_ranks(&s, answer_in_between);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n"
                  "0 r1 go\n"
                  "0 r2 go\n"
                  "750 r0 final from 10\n"
                  "1000 r0 message of r1 #1\n"
                  "1600 r0 message of r2 #2\n" /* 100 bytes copied, 500 touched */
                  "2600 r1 message of r0 #7\n" /* sent at 1600 */
                  "3200 r2 message of r0 #7\n" /* sent at 2200 */
                  "31950 r0 computed\n");      /* 30750 and what two messages took */
    close_stage(&s);
}

/* What happens at one time happens in the order of ranks, on a rank in the order in which it was caused. */
static void test_ties_are_in_the_order_of_ranks(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 4);
    s.cluster->ranks[1].slowdown = 1;
    s.cluster->links[0].latency_ns = 0;
    s.cluster->links[0].bandwidth = 0;
    s.touch = 0;
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n0 r1 go\n0 r2 go\n0 r3 go\n"
                  "750 r0 final from 10\n750 r1 final from 10\n750 r2 final from 10\n750 r3 final from 10\n"
                  "1050 r0 computed\n1050 r1 computed\n1050 r1 message of r0 #1\n1050 r2 computed\n"
                  "1050 r2 message of r1 #1\n1050 r3 computed\n1050 r3 message of r2 #1\n1050 r0 message of r3 #1\n"
                  "1120 r0 updated\n1120 r1 updated\n1120 r2 updated\n1120 r3 updated\n");
    close_stage(&s);
}

/* Sends many messages of many sizes; the receiver finds each link's in their order. */
static void chatter(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me, world = t->base.group.count;
    if ((e->kind == NW_EVENT_GO || is_done(e, NW_TASK_UPDATE)) && t->base.updates < t->go.until)
        toy_compute(t, actions);
    if (e->kind == NW_EVENT_FINAL || is_done(e, NW_TASK_PASS))
        for (int i = 1; i < world; i++, t->number++)
            post(t, actions, (me + i) % world, t->number, (size_t)(t->number * 7919 % 5000));
    if (is_done(e, NW_TASK_PASS)) toy_update(t, actions);
    actions->touched = 100;
}

static void chat(stage *s, int64_t first, int64_t until)
{
    open_stage(s, 4);
    s->cluster->links[0].jitter = (nw_noise){NW_NOISE_EXPONENTIAL, 3.0};
    for (int r = 0; r < 4; r++) s->cluster->ranks[r].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.5};
    make_virtual(s);
    fill_ranks(s, chatter);
    if (first > 0) ok(run_until(s, first));
    if (until > first) ok(run_until(s, until));
}

static void test_links_are_first_in_first_out_and_runs_repeat(void **state)
{
    (void)state;
    static stage a, b;
    chat(&a, 0, 20);
    chat(&b, 0, 20);
    check_log(&b, a.log);
    int last[4][4], messages = 0, rank;
    memset(last, -1, sizeof last);
    for (const char *at = a.log; at && *at; at = strchr(at, '\n') + 1) {
        int from, number;
        if (sscanf(at, "%*d r%d message of r%d #%d", &rank, &from, &number) != 3) continue;
        assert_true(number > last[from][rank]);
        last[from][rank] = number;
        messages++;
    }
    assert_int_equal(messages, 4 * 3 * 2 * 20);
    close_stage(&a);
    close_stage(&b);
}

static void test_a_saved_cluster_goes_on_at_the_same_times(void **state)
{
    (void)state;
    static stage a, b, c;
    chat(&a, 6, 12);
    chat(&b, 6, 0);
    chat(&c, 0, 0);
    int64_t *numbers;
    size_t count;
    ok(b.driver->ops->save(b.driver, &numbers, &count));
    assert_int_equal(c.driver->ops->load(c.driver, numbers, 3), NW_E_FILE);
    ok(c.driver->ops->load(c.driver, numbers, count));
    free(numbers);
    for (int r = 0; r < 4; r++) {
        c.toys[r] = b.toys[r];
        c.ranks[r].step = b.ranks[r].step;
    }
    ok(run_until(&c, 12));
    check_log(&c, a.log + b.used);
    assert_int_equal(c.driver->waited_ns, a.driver->waited_ns);
    int64_t *again;
    size_t count_again;
    ok(a.driver->ops->save(a.driver, &numbers, &count));
    ok(c.driver->ops->save(c.driver, &again, &count_again));
    assert_int_equal(count, count_again);
    assert_memory_equal(numbers, again, count * sizeof *numbers);
    free(numbers);
    free(again);
    close_stage(&a);
    close_stage(&b);
    close_stage(&c);
}

/* ---- what goes wrong ---- */

static void expect_peer(stage *s, int64_t until, const char *words)
{
    assert_int_equal(run_until(s, until), NW_E_PEER);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' does not say '%s'", nw_error_message(), words);
    close_stage(s);
}

/* A fault at step s meets the rank before it begins batch s: what it did before is complete. */
static void test_a_rank_dies_before_the_step_of_the_script(void **state)
{
    (void)state;
    for (int step = 0; step < 3; step++) {
        stage s;
        open_stage(&s, 2);
        script(&s, (nw_fault){.kind = step == 1 ? NW_FAULT_STOP : NW_FAULT_DIE,
                              .rank = 1,
                              .by_step = true,
                              .at = step,
                              .until = NW_NEVER});
        make_virtual(&s);
        fill_ranks(&s, exchange_in_lockstep);
        expect_peer(&s, 10, "rank 0 has waited");
        assert_non_null(strstr(nw_error_message(), "rank 1: its toy"));
        assert_int_equal(s.workers[1].applied, step);
        assert_int_equal(s.workers[1].begun, step);
        assert_int_equal(s.workers[0].applied, step);
    }
}

static void test_a_rank_dies_at_a_time(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    script(&s, (nw_fault){.kind = NW_FAULT_DIE, .rank = 1, .at = 2000, .until = NW_NEVER});
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    expect_peer(&s, 10, "rank 1: its toy");
    assert_null(strstr(s.log, "r1 computed")); /* which would have been at 2100 */
}

static void test_a_link_that_is_down_is_a_silent_peer(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    script(&s, (nw_fault){.kind = NW_FAULT_LINK_DOWN, .rank = 1, .peer = 0, .at = 7000, .until = NW_NEVER});
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    expect_peer(&s, 10, "rank 0 has waited");
    assert_int_equal(s.workers[0].applied, 0); /* the first message was on its way, from 6100 to 7100 */
    assert_int_equal(s.workers[1].begun, 2);   /* the other direction is up */
}

static void test_a_peer_that_is_too_late_ends_the_run(void **state)
{
    (void)state;
    for (int64_t timeout = 0; timeout <= 2000000; timeout += 1000000) {
        stage s;
        open_stage(&s, 2);
        s.options.timeout_ns = timeout;
        script(&s, (nw_fault){.kind = NW_FAULT_PAUSE, .rank = 1, .by_step = true, .at = 1, .duration_ns = 1500000});
        make_virtual(&s);
        fill_ranks(&s, exchange_in_lockstep);
        if (timeout == 1000000) {
            expect_peer(&s, 3, "rank 0 has waited 0.0 s for rank 1: its toy; --timeout");
        } else {
            ok(run_until(&s, 3));
            close_stage(&s);
        }
    }
}

static void test_a_pause_without_end_is_a_silent_peer(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    script(&s, (nw_fault){.kind = NW_FAULT_PAUSE, .rank = 0, .at = 500, .duration_ns = NW_NEVER - 1});
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    expect_peer(&s, 3, "rank 1 has waited");
}

static void test_slow_steps_are_those_of_the_script(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 1);
    script(&s, (nw_fault){.kind = NW_FAULT_SLOW, .rank = 0, .by_step = true, .at = 1, .until = 2, .factor = 10});
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    s.toys[0].react = answer_in_between;
    ok(run_until(&s, 3));
    check_log(&s, "0 r0 go\n750 r0 final from 10\n1050 r0 computed\n"
                  "8550 r0 final from 10\n11550 r0 computed\n"
                  "12300 r0 final from 10\n12600 r0 computed\n");
    close_stage(&s);
}

static void test_a_failing_machine_ends_the_run_with_its_words(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    ok(run_until(&s, 1));
    s.toys[1].answer = NW_E_MESSAGE;
    assert_int_equal(run_until(&s, 2), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "the toy of rank 1"));
    close_stage(&s);
}

/* ---- quiescent ranks ---- */

/* Two batches make a gradient, and a run has five of them: the pipeline begins the third gradient, says that it is not
 * complete, and goes on with it in the next run. */
static void test_a_gradient_that_an_epoch_cuts_in_two_is_finished_later(void **state)
{
    (void)state;
    stage s;
    nw_machine *pipelines[2];
    nw_params params = {0};
    open_stage(&s, 2);
    make_virtual(&s);
    fill_ranks(&s, exchange_in_lockstep);
    for (int r = 0; r < 2; r++) {
        s.toys[r].kind = NW_TASK_GRADIENT;
        ok(nw_passes_create(&pipelines[r], &s.toys[r].base, &params, 2));
        place_rank(&s, r, pipelines[r]);
    }
    ok(nw_driver_run(s.driver, s.ranks, &(nw_go){.until = 2, .batches = 5, .drain = true}));
    for (int r = 0; r < 2; r++) {
        assert_string_equal(s.workers[r].passes, "b+!b+!b");
        assert_int_equal(s.toys[r].computed, 2);
        assert_int_equal(s.workers[r].applied, 2);
        assert_int_equal(pipelines[r]->updates, 2);
    }
    ok(nw_driver_run(s.driver, s.ranks, &(nw_go){.until = 5, .batches = 5, .drain = true}));
    for (int r = 0; r < 2; r++) {
        assert_string_equal(s.workers[r].passes, "b+!b+!b+!b+!b+!");
        assert_int_equal(s.ranks[r].step, 5);
        assert_int_equal(s.workers[r].applied, 5);
        assert_int_equal(pipelines[r]->updates, 5);
    }
    for (int r = 0; r < 2; r++) nw_exchange_free(pipelines[r]);
    close_stage(&s);
}

/* A rank that waited and is quiescent has not waited when it goes on. */
static void compute_after_a_message(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me;
    bool first = t->go.until == 1;
    if (e->kind == NW_EVENT_GO && first && me == 0) t->waiting = true;
    if (e->kind == NW_EVENT_GO && first == (me == 1)) toy_compute(t, actions);
    if (is_done(e, NW_TASK_PASS) && first) post(t, actions, 0, 1, 0);
    if (e->kind == NW_EVENT_MESSAGE) t->waiting = false;
}

static void test_resting_is_not_waiting(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    make_virtual(&s);
    fill_ranks(&s, compute_after_a_message);
    ok(run_until(&s, 1));
    int64_t waited = s.driver->waited_ns;
    assert_int_equal(waited, 2100 + 1000 + NW_HEADER_BYTES); /* for a header of rank 1, after its pass */
    assert_int_equal(waited, nw_driver_now(s.driver, 0));
    ok(run_until(&s, 2));
    assert_int_equal(s.workers[0].begun, 1);
    assert_int_equal(s.driver->waited_ns, waited);
    close_stage(&s);
}

/* ---- a world of one, in real time ---- */

static const char *kinds_of(stage *s)
{
    static char text[LOG_BYTES];
    size_t used = 0;
    for (const char *at = s->log; *at; at = strchr(at, '\n') + 1) {
        char kind[16];
        assert_int_equal(sscanf(at, "%*d r0 %15s", kind), 1);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s ", kind);
    }
    return text;
}

static void test_a_rank_alone(void **state)
{
    (void)state;
    stage s;
    nw_machine *none, *pipeline;
    nw_params params = {0};
    nw_exchange_options o = {.name = "none", .group = {everybody, 1, 0}, .params = &params};
    volatile sig_atomic_t stop = 0;
    open_stage(&s, 1);
    s.options.stop = &stop;
    ok(nw_local_create(&s.driver, &s.options));
    ok(nw_exchange_create(&none, &o));
    ok(nw_passes_create(&pipeline, none, &params, 2));
    place_rank(&s, 0, pipeline);
    ok(nw_driver_run(s.driver, s.ranks, &(nw_go){.until = 2, .batches = 5}));
    assert_string_equal(kinds_of(&s), "go computed computed updated computed computed updated computed ");
    assert_string_equal(s.workers[0].passes, "b+!b+!b");
    assert_false(s.workers[0].heard); /* nobody does, in a world of one */
    ok(run_until(&s, 2));             /* which it has reached */
    assert_int_equal(s.workers[0].begun, 5);
    assert_true(nw_rank_is_quiescent(&s.ranks[0]));
    s.workers[0].stop = &stop;
    s.workers[0].stop_at = 8;
    ok(nw_driver_run(s.driver, s.ranks,
                     &(nw_go){.until = 9, .batches = 13})); /* stops with what is under way complete */
    assert_string_equal(s.workers[0].passes, "b+!b+!b+!b+!b+!");
    assert_int_equal(pipeline->updates, 5);
    assert_int_equal(s.workers[0].applied, 5);
    assert_true(s.driver->stopping);
    nw_exchange_free(pipeline);
    close_stage(&s);
}

static void send_to_self(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind == NW_EVENT_GO) post(t, actions, 0, 1, 10);
}
static void wait_for_nobody(toy *t, const nw_event *e, nw_actions *actions)
{
    (void)e, (void)actions, t->waiting = true;
}

static void test_a_rank_alone_has_nobody_to_talk_to(void **state)
{
    (void)state;
    stage s;
    void (*const reacts[])(toy *, const nw_event *, nw_actions *) = {send_to_self, wait_for_nobody};
    for (int i = 0; i < 2; i++) {
        open_stage(&s, 1);
        ok(nw_local_create(&s.driver, &s.options));
        fill_ranks(&s, reacts[i]);
        assert_int_equal(run_until(&s, 1), NW_E_INTERNAL);
        close_stage(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_virtual_times_are_those_worked_out_by_hand),
        cmocka_unit_test(test_messages_take_time_from_a_computation_one_by_one),
        cmocka_unit_test(test_messages_wait_for_the_end_of_an_update),
        cmocka_unit_test(test_copied_bytes_are_work_of_the_receiver),
        cmocka_unit_test(test_ties_are_in_the_order_of_ranks),
        cmocka_unit_test(test_links_are_first_in_first_out_and_runs_repeat),
        cmocka_unit_test(test_a_saved_cluster_goes_on_at_the_same_times),
        cmocka_unit_test(test_a_rank_dies_before_the_step_of_the_script),
        cmocka_unit_test(test_a_rank_dies_at_a_time),
        cmocka_unit_test(test_a_link_that_is_down_is_a_silent_peer),
        cmocka_unit_test(test_a_peer_that_is_too_late_ends_the_run),
        cmocka_unit_test(test_a_pause_without_end_is_a_silent_peer),
        cmocka_unit_test(test_slow_steps_are_those_of_the_script),
        cmocka_unit_test(test_a_failing_machine_ends_the_run_with_its_words),
        cmocka_unit_test(test_a_gradient_that_an_epoch_cuts_in_two_is_finished_later),
        cmocka_unit_test(test_resting_is_not_waiting),
        cmocka_unit_test(test_a_rank_alone),
        cmocka_unit_test(test_a_rank_alone_has_nobody_to_talk_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
