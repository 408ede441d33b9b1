/*
 * test_machine.c - what machines stand on: the task under way owns its vectors (a machine of the test's own, moved by
 * support/world.h, touches whatever the test wants while passes and updates run), timers, and buckets.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/world.h"

#include <stdlib.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { FLOATS = 64, FIRST = 16, COUNT = 32 /* the range of updates */ };

typedef struct toy {
    nw_machine base;
    const nw_params *params;
} toy;

static struct {
    const float *at;
    size_t count;
    bool write;
} touch;           /* that a message makes it do */
static bool moves; /* it is one that moves parameters at any time */
static world w;

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    toy *t = (toy *)m;
    switch (event->kind) {
    case NW_EVENT_GO:
        nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT});
        nw_actions_add(actions, (nw_action){.kind = NW_ACTION_TIMER, .at_ns = 1000 - 100 * m->group.me});
        break;
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_GRADIENT)
            nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                               .values = t->params->values,
                                               .gradient = t->params->gradients,
                                               .first = FIRST,
                                               .count = COUNT,
                                               .scale = 1.0f});
        break;
    case NW_EVENT_TIMER:
        m->updates++;
        break;
    case NW_EVENT_MESSAGE:
        nw_actions_touch(actions, touch.at, touch.count, touch.write);
        break;
    default:
        break;
    }
    return NW_OK;
}
static bool is_quiescent(const nw_machine *m) { return m != NULL; }
static void waits(const nw_machine *m, nw_wait *wait) { (void)m, *wait = (nw_wait){.what = "nothing"}; }
static void state(nw_machine *m, nw_state *s) { nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates); }
static void toy_free(nw_machine *m) { free(m); }

static nw_status create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"toy", handle, is_quiescent, waits, state, toy_free, NULL};
    toy *t = calloc(1, sizeof *t);
    NW_FAIL_IF(!t, NW_E_MEMORY, "no memory for a toy");
    t->base = (nw_machine){.ops = &ops, .group = o->group, .moves = moves};
    t->params = o->params;
    *out = &t->base;
    return NW_OK;
}

/* Member 0 touches a range of its vectors now. */
static void touches(const float *vector, size_t first, size_t count, bool write, bool may)
{
    nw_message *m;
    touch.at = vector + first;
    touch.count = count;
    touch.write = write;
    world_ok(nw_message_take(w.driver->pool, 0, &m));
    m->header->kind = 1;
    m->header->channel = NW_CHANNEL_EXCHANGE;
    m->header->from = 1;
    nw_status status = world_hand(&w, 0, m);
    nw_message_drop(m);
    assert_int_equal(status, may ? NW_OK : NW_E_INTERNAL);
}

static void make(bool bare)
{
    world_options o = {.exchange.name = "toy",
                       .create = create,
                       .members = 2,
                       .segments = (const int[]){FLOATS, 0},
                       .bare = bare,
                       .interrupts = true};
    for (o.finals = 1;; o.finals++) { /* until the first FINAL is somewhere in the middle */
        world_ok(world_make(&w, &o));
        world_ok(world_go(&w, 1, 0, false));
        world_ok(world_local(&w, 0));
        if (w.at[0].final_count > 0 && w.at[0].finals[0] > 1 && w.at[0].finals[0] < FLOATS) return;
        world_free(&w);
    }
}

TEST(test_a_pass_owns_its_gradient_until_it_is_final)
{
    for (int ways = 0; ways < 4; ways++) {
        moves = ways & 1;
        make(ways & 2);
        const float *values = w.at[0].params.values, *gradients = w.at[0].params.gradients;
        bool copy = moves && !(ways & 2); /* made by passes.c for machines that move */
        touches(gradients, 0, FLOATS, false, false);
        touches(gradients, FLOATS - 1, 1, false, false);
        touches(values, 0, FLOATS, false, true);
        touches(values, FLOATS - 1, 1, true, copy);
        world_ok(world_local(&w, 0));
        size_t final = w.at[0].rank.final;
        touches(gradients, final, FLOATS - final, true, true);
        touches(gradients, final - 1, 1, false, false);
        touches(gradients, final - 1, 2, true, false);
        world_free(&w);
    }
}

TEST(test_an_update_owns_its_ranges)
{
    moves = false;
    make(false);
    const float *values = w.at[0].params.values, *gradients = w.at[0].params.gradients;
    while (w.at[0].rank.queued == 0) world_ok(world_local(&w, 0));
    touches(values, 0, FLOATS, true, true); /* it has not begun */
    touches(gradients, 0, FLOATS, true, true);
    world_ok(world_local(&w, 0));
    touches(values, FIRST, 1, false, false);
    touches(values, FIRST + COUNT - 1, 1, true, false);
    touches(values, 0, FIRST, true, true);
    touches(values, FIRST + COUNT, FLOATS - FIRST - COUNT, true, true);
    touches(gradients, FIRST, COUNT, false, true);
    touches(gradients, FIRST, 1, true, false);
    world_ok(world_local(&w, 0));
    touches(values, 0, FLOATS, true, true);
    world_free(&w);
}

TEST(test_timers_ring_in_the_order_of_their_times)
{
    nw_status status;
    moves = false;
    make(false);
    assert_true(world_ring(&w, &status) && status == NW_OK);
    assert_int_equal(w.at[1].rank.machine->updates, 1);
    assert_int_equal(w.at[0].rank.machine->updates, 0);
    world_ok(world_settle(&w));
    assert_int_equal(w.at[0].rank.machine->updates, 1);
    assert_true(w.at[0].now > 1000 && w.at[1].now > 900);
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_pass_owns_its_gradient_until_it_is_final),
                                       cmocka_unit_test(test_an_update_owns_its_ranges),
                                       cmocka_unit_test(test_timers_ring_in_the_order_of_their_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
