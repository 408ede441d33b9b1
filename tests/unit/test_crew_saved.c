/*
 * test_crew_saved.c - checkpoints of replicas in a virtual cluster: from any step a run goes on as if nothing had
 * happened, also from where it was asked to stop, and other worlds and delays go on as they can.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/crew_fixture.h"

/* ---- the same world ---- */

/* With a rest after each step. Resting costs virtual time where messages travel beside a computation: there they have
 * arrived before the next one begins. */
static void step_by_step(crew *c, int64_t until)
{
    for (int64_t step = nw_crew_updates(c->crew) + 1; step <= until; step++) advance(c, step);
}

static void save_everywhere(const setup *s, int64_t steps)
{
    crew whole = started(s), going = started(s);
    step_by_step(&whole, steps);
    nw_account total = whole.crew->ledger ? nw_ledger_total(whole.crew->ledger, NW_SENT) : (nw_account){0};
    for (int64_t at = 0; at < steps; at += s->accumulation == 1 ? 3 : 1) {
        const char *note;
        step_by_step(&going, at);
        save(&going);
        crew c = resumed(s, &note);
        assert_null(note);
        assert_same(&going, &c);
        step_by_step(&c, steps);
        assert_same(&whole, &c);
        assert_true(nw_crew_virtual_seconds(whole.crew) == nw_crew_virtual_seconds(c.crew));
        if (c.crew->ledger) {
            assert_int_equal(nw_ledger_total(c.crew->ledger, NW_SENT).messages, total.messages);
            ok(nw_ledger_check_links(c.crew->ledger, NULL));
        }
        free_crew(&c);
    }
    free_crew(&whole);
    free_crew(&going);
}

/* Epochs of 5 batches: with accumulation 2 their ends cut a gradient in two. */
TEST(test_saved_at_any_step_it_goes_on_bit_for_bit)
{
    for (int delay = 0; delay <= 1; delay++)
        for (int accumulation = 1; accumulation <= 2; accumulation++) {
            setup s = {.model = "resnet9",
                       .world = 3,
                       .delay = delay,
                       .accumulation = accumulation,
                       .codec = "bf16",
                       .ema_decay = accumulation == 2 ? 0.9 : 0};
            save_everywhere(&s, 7);
        }
}

/* A gradient that is not complete is saved as well. */
TEST(test_saved_with_half_a_gradient)
{
    setup s = {.model = "resnet9", .world = 3, .accumulation = 2, .delay = 1, .ema_decay = 0.9};
    for (int drains = 0; drains < 2; drains++) {
        crew whole = started(&s), going = started(&s);
        const char *note;
        nw_go go = {.until = 2, .batches = 5, .drain = drains}; /* the epoch */
        ok(nw_crew_advance(whole.crew, &go));
        ok(nw_crew_advance(going.crew, &go));
        assert_int_equal(nw_crew_updates(going.crew), 2);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(going.crew->members[i].replica->at.pending, 1);
            assert_int_equal(made(&going, i), drains ? 2 : 1);
        }
        save(&going);
        crew c = resumed(&s, &note);
        assert_same(&going, &c);
        advance(&c, 6);
        advance(&whole, 6);
        assert_same(&whole, &c);
        free_crew(&c);
        free_crew(&whole);
        free_crew(&going);
    }
}

/* From `from` ranks to `to`: all replicas have the weights, go on at the first batch that holds only images which were
 * not seen in this epoch, and the sums of the epoch are kept. */
static void change_world(int from, int to, int64_t at, int delay)
{
    setup s = {.model = "resnet9", .world = from, .delay = from > 1 ? delay : 0, .ema_decay = 0.9};
    setup t = s;
    const char *note;
    t.world = to;
    t.delay = delay;
    crew a = started(&s);
    advance(&a, at);
    save(&a);
    nw_tally before, after;
    int64_t images, seen;
    ok(nw_crew_tally(a.crew, &before, &images));
    crew b = resumed(&t, &note);
    assert_non_null(note);
    ok(nw_crew_tally(b.crew, &after, &seen));
    assert_int_equal(seen, images);
    assert_memory_equal(&after, &before, sizeof before);
    size_t floats = params_of(&a, 0)->running.floats;
    const nw_place *old = &nw_crew_first(a.crew)->at;
    for (int r = 0; r < to; r++) {
        const nw_place *place = &b.crew->members[r].replica->at;
        assert_same_weights(&a, 0, &b, r);
        assert_true(same_floats(params_of(&b, r)->buffers, params_of(&a, r % from)->buffers, floats));
        assert_int_equal(place->epoch, old->epoch);
        assert_int_equal(place->steps, old->steps);
        assert_int_equal(place->batch, (old->batch * from + to - 1) / to);
        assert_int_equal(b.crew->members[r].machine->updates, at);
    }
    advance(&b, at + 4);
    ok(nw_crew_compare(b.crew));
    free_crew(&a);
    free_crew(&b);
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
            crew a = started(&s);
            advance(&a, 3);
            save(&a);
            crew b = resumed(&t, &note);
            assert_int_equal(made(&a, 0), 2);
            drain(&a);
            drain(&b);
            const float *x = params_of(&a, 0)->values, *y = params_of(&b, 0)->values;
            for (size_t i = 0; i < params_of(&a, 0)->learned.floats; i++)
                if (fabsf(x[i] - y[i]) > 1e-6f * (1 + fabsf(x[i])))
                    fail_msg("weight %zu is %g in the world that went on and %g in its own", i, (double)y[i],
                             (double)x[i]);
            free_crew(&a);
            free_crew(&b);
        }
}

/* An update that was held back is applied before anything else, also by an exchange that holds nothing back. */
TEST(test_another_delay_goes_on_from_a_checkpoint)
{
    setup late = {.model = "lenet5", .world = 3, .delay = 1}, prompt = late;
    prompt.delay = 0;
    const char *note;
    crew a = started(&late);
    advance(&a, 3);
    save(&a);
    crew b = resumed(&prompt, &note);
    advance(&b, 4);
    drain(&a);
    assert_int_equal(nw_crew_first(b.crew)->at.steps, 4);
    save(&a); /* with nothing held back: from here both delays begin alike */
    crew c = resumed(&prompt, &note);
    advance(&c, 4);
    assert_same_weights(&b, 0, &c, 0);
    save(&b);
    crew d = resumed(&late, &note); /* and the other way */
    advance(&d, 6);
    ok(nw_crew_compare(d.crew));
    crew *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) free_crew(all[i]);
}

/* Numbers that a machine says of itself when it is saved, instead of its own; -100: its own. */
enum { OWN = -100 };
static const struct {
    const char *name;
    int64_t value;
} lies[] = {{"updates", -5}, {"updates", 0},  {"updates", INT64_MAX}, {"updates", INT64_MIN},
            {"held", 2},     {"held", -1},    {"held", INT64_MAX},    {"clock", -1},
            {"pending", 1},  {"pending", -1}, {"pending", 99},        {"updates", OWN /* the truth */}};
enum { LIES = sizeof lies / sizeof lies[0] };
static int lie;
static const nw_machine_ops *honest;
static int64_t *told, truth;

static void tell_a_lie(nw_machine *m, nw_state *s)
{
    honest->state(m, s);
    nw_state_entry *e = nw_state_find(s, lies[lie].name);
    if (lies[lie].value == OWN || !e) return;
    if (!told) truth = *(int64_t *)e->data;
    told = e->data;
    *told = lies[lie].value;
}

TEST(test_an_exchange_that_makes_no_sense_is_refused)
{
    setup s = {.model = "lenet5", .world = 2, .delay = 1};
    for (lie = 0; lie < LIES; lie++) {
        crew a = started(&s), b = make_crew(&s);
        const char *note;
        advance(&a, 3);
        nw_machine *m = a.crew->members[0].machine;
        honest = m->ops;
        nw_machine_ops lying = *honest;
        lying.state = tell_a_lie;
        m->ops = &lying;
        told = NULL;
        save(&a);
        m->ops = honest;
        if (told) *told = truth;
        nw_status status = load(&b, &note);
        if (lies[lie].value == OWN) {
            ok(status);
        } else {
            if (status != NW_E_FILE) fail_msg("'%s' was loaded as %lld", lies[lie].name, (long long)lies[lie].value);
            assert_says("checkpoint");
        }
        free_crew(&a);
        free_crew(&b);
    }
}

/* ---- stopping ---- */

/* Epochs of 20 batches. Asked to stop on its way to the end of the first one. */
static void stop_and_go_on(int delay, int accumulation)
{
    setup s = {.model = "lenet5", .world = 3, .delay = delay, .accumulation = accumulation, .images = 120};
    crew whole = started(&s), c = make_crew(&s);
    volatile sig_atomic_t stop = 0;
    bool stopping;
    const char *note;
    int64_t end = 20 / accumulation + 3;
    c.crew->driver->options.stop = c.crew->options.driver.stop = &stop;
    ok(nw_crew_begin(c.crew));
    advance(&c, 3);
    ok(nw_crew_agree_to_stop(c.crew, &stopping));
    assert_false(stopping);
    stop = 1;
    nw_go go = go_to(&c, end);
    assert_true(go.drain && go.until == 20 / accumulation);
    ok(nw_crew_advance(c.crew, &go));
    int64_t at = nw_crew_updates(c.crew);
    assert_true(at > 3 && at <= 5 + delay);
    for (int r = 0; r < 3; r++) { /* none has made what is held back */
        assert_int_equal(c.crew->members[r].machine->updates, at);
        assert_int_equal(c.crew->members[r].replica->at.steps, at);
        assert_int_equal(c.crew->members[r].replica->at.pending, 0);
        assert_int_equal(made(&c, r), at - delay);
    }
    ok(nw_crew_agree_to_stop(c.crew, &stopping));
    assert_true(stopping);
    save(&c);
    crew d = resumed(&s, &note);
    assert_null(note);
    advance(&d, end);
    advance(&whole, end);
    assert_same(&whole, &d);
    free_crew(&whole);
    free_crew(&c);
    free_crew(&d);
}

TEST(test_a_crew_that_is_asked_to_stop_rests_where_it_can_go_on)
{
    for (int delay = 0; delay <= 1; delay++)
        for (int accumulation = 1; accumulation <= 2; accumulation++) stop_and_go_on(delay, accumulation);
}

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        WITH_FILES(test_saved_at_any_step_it_goes_on_bit_for_bit),
        WITH_FILES(test_saved_with_half_a_gradient),
        WITH_FILES(test_another_world_goes_on_from_a_checkpoint),
        WITH_FILES(test_a_mean_that_was_held_back_stays_a_mean),
        WITH_FILES(test_another_delay_goes_on_from_a_checkpoint),
        WITH_FILES(test_an_exchange_that_makes_no_sense_is_refused),
        WITH_FILES(test_a_crew_that_is_asked_to_stop_rests_where_it_can_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
