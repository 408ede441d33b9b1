/*
 * test_drivers.c - drivers with toy exchanges and workers that compute nothing: the order of events, virtual times that
 * were worked out by hand, faults, stopping together, gradients that an epoch's end cuts in two.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "exchange/exchange.h"
#include "net/virtual.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, LOG_BYTES = 1 << 16 };

/* ---- a toy rank: what it does is a function of the test; what happens is written down ---- */

typedef struct toy {
    nw_exchange base;
    void (*react)(struct toy *toy, const nw_event *event, nw_actions *actions);
    bool waiting;     /* for a message: not idle */
    int waits_for;    /* whom `waits` names */
    int computed;     /* events so far */
    int messages;     /* likewise */
    nw_status answer; /* of the next event */
} toy;

typedef struct toy_worker {
    int64_t until, begun, applied;
    int64_t partial_at; /* the gradient that is cut in two; -1: none */
    volatile sig_atomic_t *stop;
    int64_t stop_at; /* sets *stop in this gradient; -1: none */
} toy_worker;

typedef struct stage {
    nw_cluster *cluster;
    nw_faults *faults;
    nw_compute_cost cost;
    int64_t forward[2], backward[2];
    size_t ready[2];
    nw_driver *driver;
    nw_driver_options options;
    toy toys[RANKS];
    toy_worker workers[RANKS];
    nw_party parties[RANKS];
    int ranks;
    char log[LOG_BYTES];
    size_t used;
} stage;

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void note(stage *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    s->used += (size_t)vsnprintf(s->log + s->used, sizeof s->log - s->used, format, arguments);
    va_end(arguments);
    assert_true(s->used < sizeof s->log);
}

static void note_event(void *context, int rank, const nw_event *e)
{
    static const char *const names[] = {"begin", "ready", "computed", "message", "applied", "timer", "go", "flush"};
    note(context, "%" PRId64 " r%d %s", e->now_ns, rank, names[e->kind]);
    if (e->kind == NW_EVENT_READY) note(context, " from %zu", e->first);
    if (e->kind == NW_EVENT_MESSAGE)
        note(context, " of r%u #%u", e->message->header->from, e->message->header->segment);
    note(context, "\n");
}

static void note_sent(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    note(context, "%" PRId64 " r%d sends %u bytes to r%d\n", now_ns, from, h->bytes, to);
}
static void note_received(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    note(context, "%" PRId64 " r%d has %u bytes of r%d\n", now_ns, to, h->bytes, from);
}

static nw_status toy_handle(nw_exchange *e, const nw_event *event, nw_actions *actions)
{
    toy *t = (toy *)e;
    if (event->kind == NW_EVENT_COMPUTED) t->computed++;
    if (event->kind == NW_EVENT_MESSAGE) t->messages++;
    t->react(t, event, actions);
    return t->answer == NW_OK ? NW_OK : NW_FAIL(t->answer, "the toy of rank %d is broken", e->rank);
}
static bool toy_idle(const nw_exchange *e) { return !((const toy *)e)->waiting; }
static void toy_waits(const nw_exchange *e, nw_wait *wait)
{
    *wait = (nw_wait){0};
    nw_wait_add(wait, ((const toy *)e)->waits_for);
    snprintf(wait->what, sizeof wait->what, "its toy");
}
static void toy_state(nw_exchange *e, nw_exchange_state *state) { (void)e, *state = (nw_exchange_state){0}; }
static void toy_free(nw_exchange *e) { (void)e; }
static const nw_exchange_ops toy_ops = {"toy", toy_handle, toy_idle, toy_waits, toy_state, toy_free, NULL, NULL};

static void act(nw_actions *actions, nw_action_kind kind)
{
    nw_actions_add(actions, (nw_action){.kind = kind, .scale = 1});
}

static void post(nw_actions *actions, int to, int number, size_t bytes)
{
    nw_message *m;
    ok(nw_message_take(actions->pool, bytes, &m));
    memset(m->payload, 0, bytes);
    m->header->kind = NW_KIND_FIRST;
    m->header->segment = (uint32_t)number;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = to, .message = m});
}

static bool worker_wants(void *worker)
{
    const toy_worker *w = worker;
    return w->begun < w->until;
}

static nw_status worker_compute(void *worker, nw_between *between, bool *complete)
{
    toy_worker *w = worker;
    (void)between;
    if (w->stop_at == w->begun) *w->stop = 1;
    if (w->partial_at == w->begun) { /* the epoch ends here; the worker wants no more until the test says so */
        w->partial_at = -1;
        w->until = w->begun;
        *complete = false;
        return NW_OK;
    }
    w->begun++;
    return NW_OK;
}

static nw_status worker_apply(void *worker, const nw_action *action)
{
    (void)action;
    ((toy_worker *)worker)->applied++;
    return NW_OK;
}

static const nw_worker_ops work = {worker_wants, worker_compute, worker_apply, NULL};

/* Two stages of 100 + 300 and 200 + 400 ns, 50 ns before them, updates of 70 ns; a byte a nanosecond for memory and for
 * links of 1000 ns; rank 1 takes twice as long for everything. */
static void open_stage(stage *s, int ranks)
{
    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    ok(nw_cluster_create(&s->cluster, ranks, ranks, 0, 1));
    s->cluster->links[0].latency_ns = 1000;
    s->cluster->links[0].bandwidth = 1e9;
    if (ranks > 1) s->cluster->ranks[1].slowdown = 2;
    memcpy(s->forward, (int64_t[]){100, 200}, sizeof s->forward);
    memcpy(s->backward, (int64_t[]){300, 400}, sizeof s->backward);
    s->cost = (nw_compute_cost){.stages = 2,
                                .forward_ns = s->forward,
                                .backward_ns = s->backward,
                                .overhead_ns = 50,
                                .update_ns = 70,
                                .touch_bytes_per_second = 1e9};
    s->ready[1] = 10;
    s->options.taps = (nw_taps){.context = s, .event = note_event};
    for (int r = 0; r < ranks; r++) s->workers[r] = (toy_worker){.partial_at = -1, .stop_at = -1};
}

static void make_virtual(stage *s)
{
    nw_virtual_options v = {
        .cluster = s->cluster, .faults = s->faults, .cost = &s->cost, .ready = s->ready, .passes = 1};
    ok(nw_virtual_create(&s->driver, &s->options, &v));
}

static void fill_parties(stage *s, void (*react)(toy *, const nw_event *, nw_actions *))
{
    for (int r = 0; r < s->ranks; r++) {
        s->toys[r] = (toy){.base = {.ops = &toy_ops, .rank = r, .world = s->ranks}, .react = react};
        s->toys[r].waits_for = (r + 1) % s->ranks;
        s->parties[r] = (nw_party){.exchange = &s->toys[r].base, .worker = &s->workers[r], .work = &work};
    }
}

static nw_status run_until(stage *s, int64_t until)
{
    for (int r = 0; r < s->ranks; r++) s->workers[r].until = until;
    return nw_driver_run(s->driver, s->parties, false);
}

static void close_stage(stage *s)
{
    nw_driver_free(s->driver);
    nw_faults_free(s->faults);
    nw_cluster_free(s->cluster);
}

static void script(stage *s, nw_fault fault) { ok(nw_faults_create(&s->faults, &fault, 1, s->ranks)); }

static void check_log(const stage *s, const char *expected)
{
    if (strcmp(s->log, expected) != 0) fail_msg("happened:\n%sexpected:\n%s", s->log, expected);
}

/* ---- virtual time ---- */

/* Computes, sends 1000 bytes to its neighbour, waits for its own, applies. Handling costs: 2000 bytes touched after a
 * gradient, 500 for a message. */
static void exchange_in_step(toy *t, const nw_event *e, nw_actions *actions)
{
    bool complete = false;
    switch (e->kind) {
    case NW_EVENT_BEGIN:
    case NW_EVENT_APPLIED:
        act(actions, NW_ACTION_COMPUTE);
        break;
    case NW_EVENT_COMPUTED:
        actions->touched = 2000;
        post(actions, (t->base.rank + 1) % t->base.world, t->computed, 1000 - NW_HEADER_BYTES);
        complete = t->messages == t->computed;
        t->waiting = !complete;
        break;
    case NW_EVENT_MESSAGE:
        actions->touched = 500;
        complete = t->messages == t->computed;
        break;
    default:
        break;
    }
    if (complete) {
        t->waiting = false;
        act(actions, NW_ACTION_APPLY);
    }
}

static void test_virtual_times_are_those_worked_out_by_hand(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    s.options.taps.sent = note_sent;
    s.options.taps.received = note_received;
    make_virtual(&s);
    fill_parties(&s, exchange_in_step);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 begin\n"
                  "0 r1 begin\n"
                  "750 r0 ready from 10\n"  /* 50 + 100 + 200 + 400 */
                  "1050 r0 computed\n"      /* + 300; then 2000 bytes, until 3050 */
                  "1500 r1 ready from 10\n" /* twice as long */
                  "2100 r1 computed\n"      /* then until 6100 */
                  "3050 r0 sends 936 bytes to r1\n"
                  "6100 r1 sends 936 bytes to r0\n"
                  "6100 r1 has 936 bytes of r0\n"
                  "6100 r1 message of r0 #1\n" /* there at 3050 + 1000 + 1000, but the rank was busy; until 7100 */
                  "7240 r1 applied\n"          /* 2 x 70 */
                  "8100 r0 has 936 bytes of r1\n"
                  "8100 r0 message of r1 #1\n" /* sent at 6100; until 8600 */
                  "8670 r0 applied\n");
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
    if (e->kind == NW_EVENT_BEGIN && t->base.rank > 0) post(actions, 0, t->base.rank, 100 - NW_HEADER_BYTES);
    if (e->kind == NW_EVENT_BEGIN) act(actions, NW_ACTION_COMPUTE);
    if (e->kind == NW_EVENT_COMPUTED) act(actions, NW_ACTION_COMPUTE);
    if (e->kind == NW_EVENT_MESSAGE && t->base.rank == 0) {
        actions->touched = 500;
        post(actions, (int)e->message->header->from, 7, 100 - NW_HEADER_BYTES);
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
    fill_parties(&s, answer_in_between);
    s.workers[0].until = 1;
    ok(nw_driver_run(s.driver, s.parties, false));
    check_log(&s, "0 r0 begin\n"
                  "0 r1 begin\n"
                  "0 r2 begin\n"
                  "750 r0 ready from 10\n"
                  "1100 r0 message of r1 #1\n" /* both are there at 100 + 1000 */
                  "1600 r0 message of r2 #2\n" /* but one thing after the other */
                  "2700 r1 message of r0 #7\n" /* sent at 1600 */
                  "3200 r2 message of r0 #7\n" /* sent at 2100 */
                  "31750 r0 computed\n");      /* 30750 and what two messages took */
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
    fill_parties(&s, answer_in_between);
    s.workers[0].until = 1;
    ok(nw_driver_run(s.driver, s.parties, false));
    check_log(&s, "0 r0 begin\n"
                  "0 r1 begin\n"
                  "0 r2 begin\n"
                  "750 r0 ready from 10\n"
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
    s.cost.touch_bytes_per_second = 0;
    make_virtual(&s);
    fill_parties(&s, exchange_in_step);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 begin\n0 r1 begin\n0 r2 begin\n0 r3 begin\n"
                  "750 r0 ready from 10\n750 r1 ready from 10\n750 r2 ready from 10\n750 r3 ready from 10\n"
                  "1050 r0 computed\n1050 r1 computed\n1050 r1 message of r0 #1\n1050 r2 computed\n"
                  "1050 r2 message of r1 #1\n1050 r3 computed\n1050 r3 message of r2 #1\n1050 r0 message of r3 #1\n"
                  "1120 r0 applied\n1120 r1 applied\n1120 r2 applied\n1120 r3 applied\n");
    close_stage(&s);
}

/* Sends many messages of many sizes; the receiver finds each link's in their order. */
static void chatter(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind == NW_EVENT_BEGIN || e->kind == NW_EVENT_APPLIED) act(actions, NW_ACTION_COMPUTE);
    if (e->kind == NW_EVENT_READY || e->kind == NW_EVENT_COMPUTED)
        for (int i = 1; i < t->base.world; i++, t->waits_for++)
            post(actions, (t->base.rank + i) % t->base.world, t->waits_for, (size_t)(t->waits_for * 7919 % 5000));
    if (e->kind == NW_EVENT_COMPUTED) act(actions, NW_ACTION_APPLY);
    actions->touched = 100;
}

static void chat(stage *s, int64_t first, int64_t until)
{
    open_stage(s, 4);
    s->cluster->links[0].jitter = (nw_noise){NW_NOISE_EXPONENTIAL, 3.0};
    for (int r = 0; r < 4; r++) s->cluster->ranks[r].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.5};
    make_virtual(s);
    fill_parties(s, chatter);
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
    memcpy(c.workers, b.workers, sizeof b.workers);
    for (int r = 0; r < 4; r++) {
        c.toys[r].waits_for = b.toys[r].waits_for;
        c.parties[r].step = b.parties[r].step;
        c.parties[r].begun = true;
        c.parties[r].queued = 1; /* the gradient that had to wait */
        c.parties[r].queue[0] = (nw_action){.kind = NW_ACTION_COMPUTE};
    }
    ok(run_until(&c, 12));
    check_log(&c, a.log + b.used);
    assert_int_equal(c.driver->waited_ns, a.driver->waited_ns);
    assert_int_equal(c.driver->sequence, a.driver->sequence);
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
        fill_parties(&s, exchange_in_step);
        s.options.timeout_ns = 1;
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
    fill_parties(&s, exchange_in_step);
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
    fill_parties(&s, exchange_in_step);
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
        fill_parties(&s, exchange_in_step);
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
    fill_parties(&s, exchange_in_step);
    expect_peer(&s, 3, "rank 1 has waited");
}

static void test_slow_steps_are_those_of_the_script(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 1);
    script(&s, (nw_fault){.kind = NW_FAULT_SLOW, .rank = 0, .by_step = true, .at = 1, .until = 2, .factor = 10});
    make_virtual(&s);
    fill_parties(&s, exchange_in_step);
    for (int r = 0; r < 1; r++) s.toys[r].react = answer_in_between;
    ok(run_until(&s, 3));
    check_log(&s, "0 r0 begin\n750 r0 ready from 10\n1050 r0 computed\n"
                  "8550 r0 ready from 10\n11550 r0 computed\n"
                  "12300 r0 ready from 10\n12600 r0 computed\n");
    close_stage(&s);
}

static void test_a_failing_exchange_ends_the_run_with_its_words(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    make_virtual(&s);
    fill_parties(&s, exchange_in_step);
    ok(run_until(&s, 1));
    s.toys[1].answer = NW_E_MESSAGE;
    assert_int_equal(run_until(&s, 2), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "the toy of rank 1"));
    close_stage(&s);
}

/* ---- resting ---- */

static void test_a_gradient_that_an_epoch_cuts_in_two_is_finished_later(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    make_virtual(&s);
    fill_parties(&s, exchange_in_step);
    for (int r = 0; r < 2; r++) s.workers[r].partial_at = 2;
    ok(run_until(&s, 5));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s.parties[r].step, 2);
        assert_int_equal(s.toys[r].computed, 2);
        assert_int_equal(s.workers[r].applied, 2);
    }
    ok(run_until(&s, 5));
    for (int r = 0; r < 2; r++) {
        assert_int_equal(s.parties[r].step, 5);
        assert_int_equal(s.workers[r].applied, 5);
    }
    close_stage(&s);
}

/* A rank that waited and is parked has not waited when it goes on. */
static void compute_after_a_message(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind == NW_EVENT_BEGIN && t->base.rank == 1) act(actions, NW_ACTION_COMPUTE);
    if (e->kind == NW_EVENT_COMPUTED) post(actions, 1 - t->base.rank, 1, 0);
    if (e->kind == NW_EVENT_COMPUTED) act(actions, NW_ACTION_COMPUTE);
    if (e->kind == NW_EVENT_MESSAGE && t->base.rank == 0) act(actions, NW_ACTION_COMPUTE);
}

static void test_resting_is_not_waiting(void **state)
{
    (void)state;
    stage s;
    open_stage(&s, 2);
    make_virtual(&s);
    fill_parties(&s, compute_after_a_message);
    s.workers[1].until = 1;
    ok(nw_driver_run(s.driver, s.parties, false));
    int64_t waited = s.driver->waited_ns;
    assert_int_equal(waited, nw_driver_now(s.driver, 0));
    s.workers[0].until = 1;
    ok(nw_driver_run(s.driver, s.parties, false));
    assert_int_equal(s.driver->waited_ns, waited);
    close_stage(&s);
}

/* ---- stopping together ---- */

typedef struct real_exchange {
    nw_params params[RANKS];
    nw_codec *codec;
    nw_exchange *exchanges[RANKS];
} real_exchange;

static void use_allreduce(stage *s, real_exchange *x, int delay)
{
    int shape = 100, index;
    ok(nw_codec_create(&x->codec, &(nw_codec_options){.name = "none"}));
    for (int r = 0; r < s->ranks; r++) {
        ok(nw_segments_add(&x->params[r].learned, "w", NW_ROLE_LINEAR, 0, 1, 1, &shape, &index));
        x->params[r].gradients = calloc((size_t)shape, sizeof(float));
        nw_exchange_options o = {.name = "allreduce",
                                 .rank = r,
                                 .world = s->ranks,
                                 .params = &x->params[r],
                                 .codec = x->codec,
                                 .delay = delay};
        ok(nw_exchange_create(&x->exchanges[r], &o));
        s->parties[r] = (nw_party){.exchange = x->exchanges[r], .worker = &s->workers[r], .work = &work};
    }
}

static void drop_allreduce(stage *s, real_exchange *x)
{
    for (int r = 0; r < s->ranks; r++) {
        nw_exchange_free(x->exchanges[r]);
        free(x->params[r].gradients);
        nw_params_free(&x->params[r]);
    }
    nw_codec_free(x->codec);
}

static void test_all_ranks_stop_before_the_same_step(void **state)
{
    (void)state;
    for (int asked = 0; asked < 4; asked++)
        for (int delay = 0; delay <= 1; delay++) {
            stage s;
            real_exchange x = {0};
            volatile sig_atomic_t stop = 0;
            open_stage(&s, 4);
            s.options.stop = &stop;
            make_virtual(&s);
            use_allreduce(&s, &x, delay);
            s.workers[asked].stop = &stop;
            s.workers[asked].stop_at = 5;
            ok(run_until(&s, 1000));
            assert_true(nw_driver_stopped(s.driver));
            for (int r = 0; r < 4; r++) {
                assert_int_equal(s.parties[r].step, s.parties[0].step);
                assert_int_equal(s.workers[r].applied, s.parties[r].step - delay);
                assert_true(s.parties[r].step > 5 && s.parties[r].step <= 9);
            }
            drop_allreduce(&s, &x);
            close_stage(&s);
        }
}

/* Every byte that a rank sent was received, and is what the transport moved. */
static void test_the_ledger_agrees_with_the_transport(void **state)
{
    (void)state;
    stage s;
    real_exchange x = {0};
    nw_ledger *ledger;
    int64_t mine[3] = {0}, all[3];
    open_stage(&s, 3);
    ok(nw_ledger_create(
        &ledger, &(nw_ledger_options){.world = 3, .ranks = 3, .segments = 1, .segment_names = (const char *[]){"w"}}));
    s.options.ledger = ledger;
    make_virtual(&s);
    use_allreduce(&s, &x, 1);
    ok(run_until(&s, 7));
    ok(nw_driver_run(s.driver, s.parties, true));
    ok(nw_driver_share(s.driver, mine, sizeof mine[0], all));
    ok(nw_ledger_check(ledger));
    ok(nw_ledger_check_links(ledger, NULL));
    assert_int_equal(nw_ledger_total(ledger, NW_SENT).messages, 7 * 3 * 2 * 2 + 3 * 2);
    drop_allreduce(&s, &x);
    close_stage(&s);
    nw_ledger_free(ledger);
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
    nw_exchange *none;
    nw_exchange_options o = {.name = "none", .world = 1};
    volatile sig_atomic_t stop = 0;
    open_stage(&s, 1);
    s.options.stop = &stop;
    ok(nw_local_create(&s.driver, &s.options));
    ok(nw_exchange_create(&none, &o));
    s.parties[0] = (nw_party){.exchange = none, .worker = &s.workers[0], .work = &work};
    ok(run_until(&s, 2));
    assert_string_equal(kinds_of(&s), "begin computed applied computed applied ");
    ok(nw_driver_run(s.driver, s.parties, true));
    s.workers[0].partial_at = 3;
    ok(run_until(&s, 9));
    assert_int_equal(s.parties[0].step, 3);
    s.workers[0].stop = &stop;
    s.workers[0].stop_at = 5;
    ok(run_until(&s, 9)); /* stops at once, with what is under way complete */
    assert_int_equal(s.parties[0].step, 6);
    assert_int_equal(s.workers[0].applied, 6);
    assert_true(nw_driver_stopped(s.driver));
    nw_exchange_free(none);
    close_stage(&s);
}

static void send_to_self(toy *t, const nw_event *e, nw_actions *actions)
{
    (void)t;
    if (e->kind == NW_EVENT_BEGIN) post(actions, 0, 1, 10);
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
        fill_parties(&s, reacts[i]);
        assert_int_equal(run_until(&s, 1), NW_E_INTERNAL);
        close_stage(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_virtual_times_are_those_worked_out_by_hand),
        cmocka_unit_test(test_messages_take_time_from_a_computation_one_by_one),
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
        cmocka_unit_test(test_a_failing_exchange_ends_the_run_with_its_words),
        cmocka_unit_test(test_a_gradient_that_an_epoch_cuts_in_two_is_finished_later),
        cmocka_unit_test(test_resting_is_not_waiting),
        cmocka_unit_test(test_all_ranks_stop_before_the_same_step),
        cmocka_unit_test(test_the_ledger_agrees_with_the_transport),
        cmocka_unit_test(test_a_rank_alone),
        cmocka_unit_test(test_a_rank_alone_has_nobody_to_talk_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
