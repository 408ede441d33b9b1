/*
 * test_replicas_saved.c - checkpoints of replicas in a virtual cluster: from any step a run goes on as if nothing had
 * happened, also from where it was asked to stop; what ranks of other processes bring is checked.
 * test_replicas_worlds.c has other worlds.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/replicas_fixture.h"

/* ---- the same world ---- */

/* Quiescent after each step. That costs virtual time where messages travel beside a computation: there they have
 * arrived before the next one begins. */
static void step_by_step(group *c, int64_t until)
{
    for (int64_t step = nw_replicas_updates(c->group) + 1; step <= until; step++) advance(c, step);
}

static void save_everywhere(const setup *s, int64_t steps)
{
    group whole = started(s), going = started(s);
    step_by_step(&whole, steps);
    nw_account total = whole.group->ledger ? nw_ledger_total(whole.group->ledger, NW_SENT) : (nw_account){0};
    for (int64_t at = 0; at < steps; at += s->accumulation == 1 ? 3 : 1) {
        const char *note;
        step_by_step(&going, at);
        save(&going);
        group c = resumed(s, &note);
        assert_null(note);
        assert_same(&going, &c);
        step_by_step(&c, steps);
        assert_same(&whole, &c);
        assert_true(nw_replicas_virtual_seconds(whole.group) == nw_replicas_virtual_seconds(c.group));
        if (c.group->ledger) {
            assert_int_equal(nw_ledger_total(c.group->ledger, NW_SENT).messages, total.messages);
            ok(nw_ledger_check_links(c.group->ledger, NULL));
        }
        free_group(&c);
    }
    free_group(&whole);
    free_group(&going);
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
        group whole = started(&s), going = started(&s);
        const char *note;
        nw_go go = {.until = 2, .batches = 5, .drain = drains}; /* the epoch */
        ok(nw_replicas_advance(whole.group, &go));
        ok(nw_replicas_advance(going.group, &go));
        assert_int_equal(nw_replicas_updates(going.group), 2);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(going.group->members[i].replica->at.pending, 1);
            assert_int_equal(made(&going, i), drains ? 2 : 1);
        }
        save(&going);
        group c = resumed(&s, &note);
        assert_same(&going, &c);
        advance(&c, 6);
        advance(&whole, 6);
        assert_same(&whole, &c);
        free_group(&c);
        free_group(&whole);
        free_group(&going);
    }
}

/* The time that a rank has run is saved, and goes on from there. */
TEST(test_own_time_goes_on)
{
    setup s = {.model = "lenet5", .exchange = "none"};
    const char *note;
    group a = started(&s);
    advance(&a, 3);
    int64_t elapsed = a.group->ranks[0].elapsed_ns;
    assert_true(elapsed > 0 && elapsed < (int64_t)3600 * 1000000000);
    save(&a);
    group b = resumed(&s, &note);
    assert_int_equal(b.group->ranks[0].elapsed_ns, elapsed);
    advance(&b, 4);
    assert_true(b.group->ranks[0].elapsed_ns > elapsed);
    free_group(&a);
    free_group(&b);
}

/* ---- ranks of other processes ---- */

/* What rank 1 of another process brings: a count, a list, and what is listed, one after the other; or a lie. */
static struct {
    nw_state list;
    int step;
    int64_t count;                   /* that it says it has; -1: the truth */
    int entry;                       /* of the list, which ... */
    void (*bend)(nw_state_entry *e); /* ... is changed in this way */
} other;

static nw_status hear_other(nw_driver *d, int from, void *data, size_t bytes)
{
    (void)d;
    assert_int_equal(from, 1);
    int step = other.step++;
    if (step == 0) {
        int64_t count = other.count >= 0 ? other.count : other.list.count;
        assert_int_equal(bytes, sizeof count);
        memcpy(data, &count, sizeof count);
    } else if (step == 1) {
        nw_state_entry *list = data;
        assert_int_equal(bytes, (size_t)other.list.count * sizeof *list);
        memcpy(list, other.list.at, bytes);
        if (other.bend) other.bend(&list[other.entry]);
    } else {
        assert_int_equal(bytes, nw_state_bytes(&other.list.at[step - 2]));
        memcpy(data, other.list.at[step - 2].data, bytes);
    }
    return NW_OK;
}

static nw_status say_nothing(nw_driver *d, int to, const void *data, size_t bytes)
{
    (void)d, (void)to, (void)data, (void)bytes;
    fail_msg("rank 0 speaks to rank %d", to);
    return NW_E_INTERNAL;
}

static nw_status finish_nothing(nw_driver *d)
{
    (void)d;
    return NW_OK;
}

/* Saves the group as if its last rank were in another process. */
static nw_status save_with_other(group *c)
{
    nw_driver *d = c->group->driver;
    const nw_driver_ops *ops = d->ops;
    nw_driver_ops apart = *ops;
    nw_checkpoint_writer *w;
    nw_checkpoint_info info = {0};
    snprintf(info.model, sizeof info.model, "%s", nw_replicas_first(c->group)->options.net.model);
    apart.send = say_nothing;
    apart.receive = hear_other;
    apart.finish = finish_nothing;
    other.step = 0;
    d->ops = &apart;
    d->count = c->group->count = 1;
    ok(nw_checkpoint_begin(&w, scratch("checkpoint"), &info));
    nw_status status = nw_replicas_save(c->group, w);
    d->ops = ops;
    d->count = c->group->count = 2;
    if (status == NW_OK)
        ok(nw_checkpoint_commit(w));
    else
        nw_checkpoint_cancel(w);
    return status;
}

/* What rank 1 would say: all but what is kept. */
static void list_other(const group *c)
{
    nw_state_owner owner = nw_rank_state(&c->group->ranks[1]);
    int kept = 0;
    memset(&other, 0, sizeof other);
    other.count = -1;
    owner.list(owner.whose, &other.list);
    for (int i = 0; i < other.list.count; i++)
        if (other.list.at[i].rule != NW_STATE_KEPT) other.list.at[kept++] = other.list.at[i];
    other.list.count = kept;
}

static void bend_type(nw_state_entry *e) { e->type = NW_STATE_U8; }
static void bend_first(nw_state_entry *e) { e->first += 1; }
static void bend_overlap(nw_state_entry *e) { e->first -= 1; }
static void bend_length(nw_state_entry *e) { e->shape[0] = (int64_t)1 << 40; }
static void bend_dims(nw_state_entry *e) { e->dims = 99; }
static void bend_rule(nw_state_entry *e) { e->rule = (nw_state_rule)17; }
static void bend_name(nw_state_entry *e) { memset(e->name, 'x', sizeof e->name); }
static void bend_twin(nw_state_entry *e) { snprintf(e->name, sizeof e->name, "epoch"); }

TEST(test_what_another_rank_brings_is_checked)
{
    setup s = {.model = "lenet5", .world = 2, .exchange = "server", .servers = 2};
    static void (*const vectors[])(nw_state_entry *) = {bend_type, bend_first, bend_overlap, bend_length};
    static void (*const all[])(nw_state_entry *) = {bend_dims, bend_rule, bend_name};
    const char *note;
    s.server_computes = true;
    group a = started(&s);
    serve(&a, 3);
    list_other(&a);
    ok(save_with_other(&a));
    assert_int_equal(other.step, 2 + other.list.count);
    group b = resumed(&s, &note);
    assert_null(note);
    assert_same(&a, &b);
    free_group(&b);
    for (int i = 0; i < other.list.count; i++) {
        other.entry = i;
        for (int k = 0; k < 3; k++) {
            other.bend = all[k];
            assert_int_equal(save_with_other(&a), NW_E_MESSAGE);
            assert_says("rank 1 lists");
        }
        for (int k = 0; k < 4 && other.list.at[i].rule == NW_STATE_RANGE; k++) {
            other.bend = vectors[k];
            assert_int_equal(save_with_other(&a), NW_E_MESSAGE);
            assert_says("rank 1 ");
            assert_says("momentum_buffer");
        }
    }
    other.entry = (int)(nw_state_find(&other.list, "steps") - other.list.at);
    other.bend = bend_twin; /* two of one name */
    assert_int_equal(save_with_other(&a), NW_E_ARGUMENT);
    other.bend = NULL;
    other.count = (int64_t)1 << 40;
    assert_int_equal(save_with_other(&a), NW_E_MESSAGE);
    assert_says("1099511627776 tensors");
    nw_state_free(&other.list);
    free_group(&a);
}

/* One that was dropped brings nothing; it begins as rank 0 did, when as many go on. */
TEST(test_a_rank_that_was_given_up)
{
    setup s = {.model = "resnet9", .world = 2};
    const char *note;
    group a = started(&s);
    advance(&a, 2);
    a.group->dropped[1] = true;
    ok(save_with_other(&a));
    assert_int_equal(other.step, 0);
    group b = resumed(&s, &note);
    assert_true(same_floats(params_of(&b, 1)->buffers, params_of(&a, 0)->buffers, params_of(&a, 0)->running.floats));
    assert_int_equal(b.group->members[1].replica->at.batch, 2);
    assert_same_weights(&a, 0, &b, 1);
    free_group(&a);
    free_group(&b);
}

/* An update that was held back is applied before anything else, also by an exchange that holds nothing back. */
TEST(test_another_delay_goes_on_from_a_checkpoint)
{
    setup late = {.model = "lenet5", .world = 3, .delay = 1}, prompt = late;
    prompt.delay = 0;
    const char *note;
    group a = started(&late);
    advance(&a, 3);
    save(&a);
    group b = resumed(&prompt, &note);
    advance(&b, 4);
    drain(&a);
    assert_int_equal(nw_replicas_first(b.group)->at.steps, 4);
    save(&a); /* with nothing held back: from here both delays begin alike */
    group c = resumed(&prompt, &note);
    advance(&c, 4);
    assert_same_weights(&b, 0, &c, 0);
    save(&b);
    group d = resumed(&late, &note); /* and the other way */
    advance(&d, 6);
    ok(nw_replicas_compare(d.group));
    group *all[] = {&a, &b, &c, &d};
    for (int i = 0; i < 4; i++) free_group(all[i]);
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
        group a = started(&s), b = make_group(&s);
        const char *note;
        advance(&a, 3);
        nw_machine *m = a.group->members[0].machine;
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
        free_group(&a);
        free_group(&b);
    }
}

/* ---- stopping ---- */

/* Epochs of 20 batches. Asked to stop on its way to the end of the first one. */
static void stop_and_go_on(int delay, int accumulation)
{
    setup s = {.model = "lenet5", .world = 3, .delay = delay, .accumulation = accumulation, .images = 120};
    group whole = started(&s), c = make_group(&s);
    volatile sig_atomic_t stop = 0;
    bool stopping;
    const char *note;
    int64_t end = 20 / accumulation + 3;
    c.group->driver->options.stop = c.group->options.driver.stop = &stop;
    ok(nw_replicas_begin(c.group));
    advance(&c, 3);
    ok(nw_replicas_agree_to_stop(c.group, &stopping));
    assert_false(stopping);
    stop = 1;
    nw_go go = go_to(&c, end);
    assert_true(go.drain && go.until == 20 / accumulation);
    ok(nw_replicas_advance(c.group, &go));
    int64_t at = nw_replicas_updates(c.group);
    assert_true(at > 3 && at <= 5 + delay);
    for (int r = 0; r < 3; r++) { /* none has made what is held back */
        assert_int_equal(c.group->members[r].machine->updates, at);
        assert_int_equal(c.group->members[r].replica->at.steps, at);
        assert_int_equal(c.group->members[r].replica->at.pending, 0);
        assert_int_equal(made(&c, r), at - delay);
    }
    ok(nw_replicas_agree_to_stop(c.group, &stopping));
    assert_true(stopping);
    save(&c);
    group d = resumed(&s, &note);
    assert_null(note);
    advance(&d, end);
    advance(&whole, end);
    assert_same(&whole, &d);
    free_group(&whole);
    free_group(&c);
    free_group(&d);
}

TEST(test_a_group_that_is_asked_to_stop_is_quiescent_where_it_can_go_on)
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
        WITH_FILES(test_own_time_goes_on),
        WITH_FILES(test_what_another_rank_brings_is_checked),
        WITH_FILES(test_a_rank_that_was_given_up),
        WITH_FILES(test_another_delay_goes_on_from_a_checkpoint),
        WITH_FILES(test_an_exchange_that_makes_no_sense_is_refused),
        WITH_FILES(test_a_group_that_is_asked_to_stop_is_quiescent_where_it_can_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
