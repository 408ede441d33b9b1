/*
 * test_tasks.c - what tasks announce and what they own: messages that a pass sends up and down, on a virtual cluster
 * at times that were worked out by hand and in a replay; announcements that do not fit; ranges that handlers must not
 * touch.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "replay/replay.h"
#include "support/toys.h"
#include "support/files.h"

/* ---- ranges that belong to a task ---- */

enum { WIDTH = 100 };
static float values[WIDTH], also[WIDTH], gradient[WIDTH], other[WIDTH];

static const nw_task pass = {
    .kind = NW_TASK_PASS, .completes = true, .values = values, .gradient = gradient, .first = 20, .count = 60};
static const nw_task update = {
    .kind = NW_TASK_UPDATE, .values = values, .also = also, .gradient = gradient, .first = 20, .count = 60};

enum { READ = 1, WRITE = 2 };

/* Which of reading and writing is allowed while the task runs, its gradient final from 50 on. */
static int allowed(const nw_task *running, const float *at, size_t count)
{
    int allows = 0;
    for (int write = 0; write < 2; write++) {
        nw_actions a = {.running = running, .final = 50};
        nw_actions_touch(&a, at, count, write);
        assert_int_equal(a.touched, count * sizeof(float));
        if (a.status == NW_OK) allows |= write ? WRITE : READ;
        if (a.status != NW_OK) refused(a.status, NW_E_INTERNAL, write ? "written while" : "read while");
        if (a.status != NW_OK) refused(a.status, NW_E_INTERNAL, running->kind == NW_TASK_PASS ? "a pass" : "an update");
    }
    return allows;
}

static void test_a_pass_owns_what_is_not_final(void **state)
{
    (void)state;
    nw_task copies = pass;
    copies.copy = true;
    assert_int_equal(allowed(&pass, gradient + 20, 1), 0);
    assert_int_equal(allowed(&pass, gradient + 49, 1), 0);
    assert_int_equal(allowed(&pass, gradient + 49, 2), 0);
    assert_int_equal(allowed(&pass, gradient + 50, 50), READ | WRITE); /* final */
    assert_int_equal(allowed(&pass, gradient, 20), READ | WRITE);      /* not in its range */
    assert_int_equal(allowed(&pass, gradient, 21), 0);
    assert_int_equal(allowed(&pass, values, WIDTH), READ);
    assert_int_equal(allowed(&pass, values + 79, 1), READ);
    assert_int_equal(allowed(&pass, values + 80, 20), READ | WRITE);
    assert_int_equal(allowed(&pass, other, WIDTH), READ | WRITE);
    assert_int_equal(allowed(&copies, values, WIDTH), READ | WRITE); /* it reads a copy */
    assert_int_equal(allowed(&copies, gradient + 49, 1), 0);
    assert_int_equal(allowed(NULL, gradient, WIDTH), READ | WRITE);
}

static void test_an_update_owns_its_range(void **state)
{
    (void)state;
    const float *moved[] = {values, also};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(allowed(&update, moved[i] + 20, 1), 0);
        assert_int_equal(allowed(&update, moved[i] + 79, 5), 0);
        assert_int_equal(allowed(&update, moved[i] + 60, 1), 0); /* nothing of it is ever final */
        assert_int_equal(allowed(&update, moved[i], 20), READ | WRITE);
        assert_int_equal(allowed(&update, moved[i] + 80, 20), READ | WRITE);
    }
    assert_int_equal(allowed(&update, gradient, WIDTH), READ);
    assert_int_equal(allowed(&update, gradient + 80, 20), READ | WRITE);
    assert_int_equal(allowed(&update, other, WIDTH), READ | WRITE);
}

/* The first failure stays, whatever comes behind it. */
static void test_a_trespass_is_not_forgotten(void **state)
{
    (void)state;
    nw_actions a = {.running = &pass, .final = 50};
    nw_actions_touch(&a, gradient + 48, 7, true);
    nw_actions_touch(&a, other, 1, true);
    refused(a.status, NW_E_INTERNAL, "7 floats were written while a pass owns them");
    nw_actions_clear(&a);
    assert_int_equal(a.status, NW_OK);
    nw_actions_free(&a);
}

/* A rank that touches something when an event reaches it. */
static struct {
    nw_event_kind when;
    bool while_updating;
    const float *at;
    size_t count;
    bool write;
} trespass;

static void touch_then(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me;
    if (e->kind == NW_EVENT_GO && me == 1) post(t, actions, 0, 1, 0);
    if (me == 1) return;
    bool updating = actions->running && actions->running->kind == NW_TASK_UPDATE;
    if (e->kind == trespass.when && updating == trespass.while_updating)
        nw_actions_touch(actions, trespass.at, trespass.count, trespass.write);
    if (e->kind == NW_EVENT_GO) nw_actions_task(actions, pass);
    if (is_done(e, NW_TASK_PASS)) nw_actions_task(actions, update);
}

/* Final from 50 on, of a pass after 750 of 1050 ns and of an update after 40 of 70. */
static nw_status announce_all(void *worker, nw_task *task, nw_announce *announce)
{
    (void)worker, (void)task;
    announce->final(announce, 50);
    return NW_OK;
}
static int cost_all(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker;
    assert_true(most >= 2);
    ns[0] = task->kind == NW_TASK_PASS ? 750 : 40;
    ns[1] = task->kind == NW_TASK_PASS ? 1050 : 70;
    return 2;
}
static const nw_worker_ops announcing = {.run = announce_all, .cost = cost_all};

/* Rank 1's message comes after so many ns. */
static nw_status try_to_touch(int64_t latency, nw_event_kind when, bool while_updating, const float *at, size_t count,
                              bool write)
{
    stage s;
    open_stage(&s, 2);
    s.cluster->links[0].latency_ns = latency;
    make_virtual(&s);
    fill_ranks(&s, touch_then);
    for (int r = 0; r < 2; r++) s.ranks[r].work = &announcing;
    trespass.when = when;
    trespass.while_updating = while_updating;
    trespass.at = at;
    trespass.count = count;
    trespass.write = write;
    nw_status status = run_until(&s, 1);
    close_stage(&s);
    return status;
}

/* A driver tells handlers which task is under way, and what it has announced. */
static void test_drivers_watch_over_the_task_under_way(void **state)
{
    (void)state;
    const char *passing = "while a pass owns them", *updating = "while an update owns them";
    refused(try_to_touch(0, NW_EVENT_FINAL, false, gradient + 49, 1, true), NW_E_INTERNAL, passing);
    ok(try_to_touch(0, NW_EVENT_FINAL, false, gradient + 50, 30, true));
    refused(try_to_touch(0, NW_EVENT_FINAL, false, values + 20, 1, true), NW_E_INTERNAL, passing);
    ok(try_to_touch(0, NW_EVENT_FINAL, false, values, WIDTH, false));
    ok(try_to_touch(0, NW_EVENT_FINAL, false, other, WIDTH, true));
    refused(try_to_touch(500, NW_EVENT_MESSAGE, false, gradient + 50, 30, true), NW_E_INTERNAL, passing);
    ok(try_to_touch(900, NW_EVENT_MESSAGE, false, gradient + 50, 30, true)); /* it was announced meanwhile */
    ok(try_to_touch(0, NW_EVENT_DONE, false, gradient, WIDTH, true));        /* it is over */
    refused(try_to_touch(0, NW_EVENT_FINAL, true, values + 60, 1, false), NW_E_INTERNAL, updating);
    refused(try_to_touch(0, NW_EVENT_FINAL, true, gradient + 60, 1, true), NW_E_INTERNAL, updating);
    ok(try_to_touch(0, NW_EVENT_FINAL, true, gradient, WIDTH, false));
}

/* ---- passes that read a copy ---- */

static bool copied[3]; /* by pass: the worker was told to */

static nw_status note_copy(void *worker, nw_task *task, nw_announce *announce)
{
    (void)worker, (void)announce;
    copied[task->number] = task->copy;
    return NW_OK;
}
static int cost_of_pass(void *worker, const nw_task *task, int64_t *ns, int most)
{
    (void)worker, (void)task, (void)most;
    ns[0] = 1000;
    return 1;
}

/* A gradient of one pass, and one of two. */
static void pass_three_times(toy *t, const nw_event *e, nw_actions *actions)
{
    (void)t;
    int next = e->kind == NW_EVENT_GO ? 0 : (int)e->task->number + 1;
    nw_task p = {.kind = NW_TASK_PASS, .number = next, .copy = true, .values = values, .count = WIDTH};
    p.adds = next == 2;
    p.completes = next != 1;
    if (next < 3) nw_actions_task(actions, p);
    assert_true(next == 0 || e->task->copy); /* for others the values are free */
}

/* A simulated pass is done before anybody can move its values, so no copy is made, but it takes the time that one does;
 * unless there are more passes of its gradient, which read it later. */
static void test_copies_are_made_where_they_are_needed(void **state)
{
    static const nw_worker_ops work = {.run = note_copy, .cost = cost_of_pass};
    stage s;
    (void)state;
    open_stage(&s, 1);
    make_virtual(&s);
    fill_ranks(&s, pass_three_times);
    s.ranks[0].work = &work;
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n1800 r0 computed\n3600 r0 computed\n4600 r0 computed\n"); /* 800 bytes at one a ns */
    assert_true(!copied[0] && copied[1] && copied[2]);
    close_stage(&s);
}

/* ---- messages up and down ---- */

/* Two stages of a pipeline, two micro-batches. Rank 0 computes forward passes of both in one task and sends one
 * message for each; rank 1 goes forward and backward with each and sends one down; rank 0 goes backward with it.
 * Handling costs: 200 bytes for what goes out, 500 for what comes in. */
enum { BATCHES = 2, LETTER = 1000 - NW_HEADER_BYTES };

static void send_on(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me;
    actions->touched = 200;
    nw_machine_send(&t->base, actions, me ? NW_CHANNEL_DOWN : NW_CHANNEL_UP, 1 - me, nw_message_hold(e->message));
}

static void pipe_through(toy *t, const nw_event *e, nw_actions *actions)
{
    int me = t->base.group.me;
    if (e->kind == NW_EVENT_GO) {
        t->waiting = true;
        if (me == 0) nw_actions_task(actions, (nw_task){.kind = NW_TASK_PASS, .forward = true});
    }
    if (e->kind == NW_EVENT_OUT) send_on(t, e, actions);
    if (e->kind == NW_EVENT_MESSAGE) {
        actions->touched = 500;
        assert_int_equal(e->message->header->channel, me ? NW_CHANNEL_UP : NW_CHANNEL_DOWN);
        nw_actions_task(actions, (nw_task){.kind = NW_TASK_PASS,
                                           .batch = t->messages - 1,
                                           .forward = me == 1,
                                           .backward = true,
                                           .adds = t->messages > 1,
                                           .completes = t->messages == BATCHES,
                                           .in = nw_message_hold(e->message)});
    }
    if (is_done(e, NW_TASK_PASS)) nw_message_drop(e->task->in);
    if (is_done(e, NW_TASK_PASS) && t->computed == 1) {
        t->waiting = false;
        toy_update(t, actions);
    }
}

/* What the messages say: rank 0 sends 3 and 4, rank 1 ten times as much and the number of its batch. */
static int said[2];

static void send_out(toy_worker *w, nw_announce *announce, int number, int value)
{
    nw_message *m = toy_message(w->stage->driver->pool, number, LETTER);
    memcpy(m->payload, &value, sizeof value);
    announce->out(announce, m);
}

static nw_status stage_run(void *worker, nw_task *task, nw_announce *announce)
{
    toy_worker *w = worker;
    int value = 0;
    if (task->kind == NW_TASK_UPDATE) return NW_OK;
    if (task->in) memcpy(&value, task->in->payload, sizeof value);
    if (task->in) said[w->rank] = 1000 * said[w->rank] + value;
    for (int i = 0; !task->in && i < BATCHES; i++) send_out(w, announce, 1 + i, 3 + i);
    if (w->rank == 1) send_out(w, announce, 11 + (int)task->batch, 10 * value + (int)task->batch);
    if (task->completes) announce->final(announce, w->stage->ready);
    return NW_OK;
}

static int stage_cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    const toy_worker *w = worker;
    int count = 0;
    assert_true(most >= 3);
    if (task->kind == NW_TASK_UPDATE) {
        ns[count++] = 70;
    } else if (!task->in) {
        ns[count++] = 150;
        ns[count++] = 350;
        ns[count++] = 400;
    } else if (w->rank == 1) {
        ns[count++] = 750;
        if (task->completes) ns[count++] = 800;
        ns[count++] = 1050;
    } else {
        if (task->completes) ns[count++] = 300;
        ns[count++] = 350;
    }
    return count;
}
static const nw_worker_ops stage_work = {.run = stage_run, .cost = stage_cost};

static void fill_pipeline(stage *s)
{
    fill_ranks(s, pipe_through);
    for (int r = 0; r < 2; r++) {
        s->ranks[r].work = &stage_work;
        s->toys[r].waits_for = 1 - r;
    }
    said[0] = said[1] = 0;
}

/* The lines of one rank, which are in its order on any driver. */
static const char *lines_of(const stage *s, int rank, char text[LOG_BYTES])
{
    size_t used = 0;
    char name[16];
    snprintf(name, sizeof name, " r%d ", rank);
    text[0] = '\0';
    for (const char *at = s->log, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        if (strncmp(strchr(at, ' '), name, strlen(name)) == 0)
            used += (size_t)snprintf(text + used, LOG_BYTES - used, "%.*s\n", (int)(end - at), at);
    }
    return text;
}

static char folder[PATH_SIZE];

static nw_recorder *open_recorder(int world)
{
    nw_recorder *r;
    nw_log_header h = {.world = world, .ranks = world, .lr_factor = 1};
    ok(nw_recorder_create(&r));
    ok(nw_recorder_open(r, folder, &h, NULL));
    return r;
}

static void replay_pipeline(const stage *recorded)
{
    static char want[LOG_BYTES], got[LOG_BYTES];
    stage s;
    nw_recording recording;
    open_stage(&s, 2);
    ok(nw_recording_load(&recording, folder));
    ok(nw_replay_create(&s.driver, &s.options, &recording.parts[0]));
    fill_pipeline(&s);
    ok(run_until(&s, 1));
    for (int r = 0; r < 2; r++) assert_string_equal(lines_of(&s, r, got), lines_of(recorded, r, want));
    assert_int_equal(said[0], 30041);
    assert_int_equal(said[1], 3004);
    nw_driver_free(s.driver);
    ok(nw_replay_create(&s.driver, &s.options, &recording.parts[0]));
    fill_pipeline(&s);
    s.ranks[1].work = &toy_work; /* sends nothing down */
    refused(run_until(&s, 1), NW_E_MISMATCH, "out at 5850 ns is next, but it sends nothing");
    nw_recording_free(&recording);
    close_stage(&s);
}

static void test_passes_send_messages_up_and_down(void **state)
{
    (void)state;
    stage s;
    nw_recorder *r = open_recorder(2);
    open_stage(&s, 2);
    s.options.recorder = r;
    make_virtual(&s);
    fill_pipeline(&s);
    ok(run_until(&s, 1));
    check_log(&s, "0 r0 go\n"
                  "0 r1 go\n"
                  "150 r0 out #1\n"              /* 200 bytes, until 350 */
                  "550 r0 out #2\n"              /* 350 and what the first one took; until 750 */
                  "800 r0 computed\n"            /* 400 and what both took */
                  "2350 r1 message of r0 #1\n"   /* sent at 350, 1000 bytes, 1000 ns; until 3350, when it begins */
                  "3350 r1 message of r0 #2\n"   /* the link was taken until 1350 */
                  "5850 r1 out #11\n"            /* 3350 + 2 x 750, and 1000 for a message; until 6250 */
                  "6850 r1 computed\n"           /* 3350 + 2 x 1050, and 1400 */
                  "8250 r0 message of r1 #11\n"  /* sent at 6250; until 8750, when it begins */
                  "8350 r1 out #12\n"            /* 6850 + 2 x 750; until 8750 */
                  "8850 r1 final from 10\n"      /* 6850 + 2 x 800, and 400 */
                  "9100 r0 computed\n"           /* 8750 + 350 */
                  "9350 r1 computed\n"           /* 6850 + 2 x 1050, and 400 */
                  "9490 r1 updated\n"            /* 2 x 70 */
                  "10750 r0 message of r1 #12\n" /* sent at 8750; until 11250 */
                  "11550 r0 final from 10\n"
                  "11600 r0 computed\n"
                  "11670 r0 updated\n");
    assert_int_equal(said[0], 30041);
    assert_int_equal(said[1], 3004);
    ok(nw_recorder_close(r, true));
    nw_recorder_free(r);
    replay_pipeline(&s);
    close_stage(&s);
}

static nw_status run_and_send(void *worker, nw_task *task, nw_announce *announce)
{
    NW_TRY(toy_run(worker, task, announce));
    if (task->kind == NW_TASK_PASS) send_out(worker, announce, 1, 1);
    return NW_OK;
}

/* One announcement of toy_run, and one more; so many times are told. */
static int told;
static int cost_told(void *worker, const nw_task *task, int64_t *ns, int most)
{
    if (task->kind == NW_TASK_UPDATE) return toy_cost(worker, task, ns, most);
    for (int i = 0; i < told && i < most; i++) ns[i] = 100 * (i + 1);
    return told;
}
static const nw_worker_ops sending = {.run = run_and_send, .cost = cost_told};

static void disturb_pipeline(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind != NW_EVENT_GO || t->base.group.me == 0) return;
    nw_machine_send(&t->base, actions, NW_CHANNEL_UP, 0, toy_message(actions->pool, 1, 8));
}

/* A rank that has all stages has nobody above or below it. */
static void test_a_rank_with_all_stages_sends_nothing_up_or_down(void **state)
{
    (void)state;
    stage s;
    nw_machine *none, *pipeline;
    nw_params params = {0};
    nw_exchange_options o = {.name = "none", .group = {everybody, 1, 0}, .params = &params};
    for (int world = 1; world <= 2; world++) {
        open_stage(&s, world);
        make_virtual(&s);
        fill_ranks(&s, disturb_pipeline);
        ok(nw_exchange_create(&none, &o));
        ok(nw_passes_create(&pipeline, none, &params, 1));
        place_rank(&s, 0, pipeline);
        told = 3;
        s.ranks[0].work = &sending;
        if (world == 1) refused(run_until(&s, 1), NW_E_INTERNAL, "a pass through all stages sends nothing up or down");
        s.ranks[0].work = &toy_work;
        if (world == 2)
            refused(run_until(&s, 1), NW_E_MESSAGE,
                    "rank 1 sent a message of a pipeline to a rank that has all stages");
        nw_exchange_free(pipeline);
        close_stage(&s);
    }
}

/* ---- announcements and their times ---- */

static void compute_once(toy *t, const nw_event *e, nw_actions *actions)
{
    if (e->kind == NW_EVENT_GO) toy_compute(t, actions);
}

static void test_announcements_must_have_their_times(void **state)
{
    (void)state;
    char text[96];
    for (told = 1; told < 6; told++) { /* two announcements and the end are three */
        stage s;
        open_stage(&s, 1);
        make_virtual(&s);
        fill_ranks(&s, compute_once);
        s.ranks[0].work = &sending;
        snprintf(text, sizeof text, "a task of rank 0 made 2 announcements, and tells the times of %d", told - 1);
        if (told == 3)
            ok(run_until(&s, 1));
        else
            refused(run_until(&s, 1), NW_E_INTERNAL, text);
        close_stage(&s);
    }
}

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_owns_what_is_not_final),
        cmocka_unit_test(test_an_update_owns_its_range),
        cmocka_unit_test(test_a_trespass_is_not_forgotten),
        cmocka_unit_test(test_drivers_watch_over_the_task_under_way),
        cmocka_unit_test(test_copies_are_made_where_they_are_needed),
        cmocka_unit_test_setup_teardown(test_passes_send_messages_up_and_down, set_up, tear_down),
        cmocka_unit_test(test_a_rank_with_all_stages_sends_nothing_up_or_down),
        cmocka_unit_test(test_announcements_must_have_their_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
