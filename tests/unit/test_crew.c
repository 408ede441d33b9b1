/*
 * test_crew.c - replicas of tiny models on generated images in a virtual cluster: what several of them do is what one
 * would, they stay equal bit for bit, and a checkpoint at any step goes on as if nothing had happened.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/net_fixture.h"
#include "support/scratch.h"
#include "train/crew.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void assert_says(const char *part)
{
    if (!strstr(nw_error_message(), part)) fail_msg("expected '%s' in: %s", part, nw_error_message());
}

/* ---- crews ---- */

typedef struct setup {
    const char *model; /* lenet5: no batch norm; resnet9: with it */
    int world;         /* 0: a process alone */
    const char *exchange, *codec;
    int delay, batch_size, accumulation;
    double ema_decay;
    bool in_order; /* batches of the images in their order, as they are */
    nw_norm_sync norms;
    int images;
} setup;

typedef struct crew {
    nw_dataset *dataset;
    nw_cluster *cluster;
    nw_crew *crew;
} crew;

static crew make_crew(const setup *s)
{
    crew c = {0};
    bool plain = strcmp(s->model, "lenet5") == 0;
    nw_dataset_options data = {.name = "synthetic",
                               .dir = ".",
                               .limit = s->images ? s->images : 30,
                               .channels = plain ? 1 : 3,
                               .image_size = plain ? 28 : 32,
                               .seed = 3};
    ok(nw_dataset_open(&c.dataset, &data));
    int batch = s->batch_size ? s->batch_size : 2;
    nw_crew_options o = {.replica = {.net = narrow(s->model, batch, 1),
                                     .optimizer = nw_optimizer_options_default("sgd"),
                                     .schedule = nw_schedule_options_default(),
                                     .accumulation = s->accumulation ? s->accumulation : 1,
                                     .averaging = true,
                                     .ema_decay = s->ema_decay,
                                     .ema_every = 2,
                                     .watch = true},
                         .place = s->world ? NW_CREW_VIRTUAL : NW_CREW_ALONE,
                         .world = s->world,
                         .exchange = {.name = s->exchange ? s->exchange : "allreduce", .bucket_bytes = 4096},
                         .codec = {.name = s->codec},
                         .norms = s->norms,
                         .recalibrate_batches = 2};
    o.exchange.delay = s->delay;
    o.replica.net.precision = NW_PRECISION_F32;
    o.replica.net.seed = 5;
    if (plain) {
        o.replica.net.channels = 1;
        o.replica.net.height = o.replica.net.width = 28;
        o.replica.net.base_width = 0;
    }
    o.replica.schedule.name = "cosine";
    o.replica.schedule.lr = 0.02;
    o.replica.schedule.epochs = 4;
    o.replica.loader = (nw_loader_options){.dataset = c.dataset,
                                           .split = NW_SPLIT_TRAIN,
                                           .batch_size = batch,
                                           .shuffle = !s->in_order,
                                           .augmented = !s->in_order,
                                           .augment = nw_augment_plain(c.dataset),
                                           .seed = 5};
    o.replica.loader.augment.flip = !s->in_order;
    if (s->world) ok(nw_cluster_builtin(&c.cluster, "10g", s->world));
    o.cluster = c.cluster;
    ok(nw_crew_create(&c.crew, &o));
    return c;
}

static void free_crew(crew *c)
{
    nw_crew_free(c->crew);
    nw_cluster_free(c->cluster);
    nw_dataset_close(c->dataset);
}

/* On to `until` gradients, through the ends of epochs as a run goes through them. */
static void advance(crew *c, int64_t until)
{
    while (nw_crew_computed(c->crew) < until) {
        if (nw_crew_epoch_is_over(c->crew)) {
            ok(nw_crew_flush(c->crew));
            ok(nw_crew_end_epoch(c->crew));
        }
        ok(nw_crew_advance(c->crew, until));
    }
}

static crew started(const setup *s)
{
    crew c = make_crew(s);
    ok(nw_crew_begin(c.crew));
    return c;
}

static nw_params *params_of(const crew *c, int member) { return &c->crew->members[member].replica->net->model.params; }

static bool same_floats(const float *a, const float *b, size_t count) { return memcmp(a, b, count * sizeof *a) == 0; }

static void assert_same_weights(const crew *a, int i, const crew *b, int j)
{
    size_t count = params_of(a, i)->learned.floats;
    assert_int_equal(count, params_of(b, j)->learned.floats);
    assert_true(same_floats(params_of(a, i)->values, params_of(b, j)->values, count));
}

/* Everything that a replica knows. */
static void assert_same(const crew *a, const crew *b)
{
    assert_int_equal(a->crew->count, b->crew->count);
    for (int i = 0; i < a->crew->count; i++) {
        nw_replica *x = a->crew->members[i].replica, *y = b->crew->members[i].replica;
        nw_state_vector u[NW_STATE_VECTORS], v[NW_STATE_VECTORS];
        assert_same_weights(a, i, b, i);
        assert_memory_equal(&x->at, &y->at, sizeof x->at);
        assert_int_equal(a->crew->parties[i].step, b->crew->parties[i].step);
        int count = nw_replica_vectors(x, NW_SAVED_STRANGER, u);
        assert_int_equal(count, nw_replica_vectors(y, NW_SAVED_STRANGER, v));
        for (int k = 0; k < count; k++)
            if (!same_floats(u[k].data, v[k].data, u[k].segments->floats))
                fail_msg("'%s' of replica %d differs", u[k].prefix, i);
    }
}

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
            crew a = started(&alone), b = started(&one), c = started(&reduced);
            crew *all[] = {&a, &b, &c};
            for (int i = 0; i < 3; i++) advance(all[i], 18);
            assert_same(&a, &b);
            assert_same(&a, &c);
            for (int i = 0; i < 3; i++) free_crew(all[i]);
        }
}

TEST(test_replicas_are_equal_after_every_step)
{
    static const char *const CODECS[] = {"none", "fp16", "bf16"};
    for (int delay = 0; delay <= 1; delay++)
        for (int i = 0; i < 3; i++) {
            setup s = {.model = "resnet9", .world = 3, .delay = delay, .codec = CODECS[i], .ema_decay = 0.5};
            crew c = started(&s);
            for (int64_t step = 1; step <= 7; step++) {
                advance(&c, step);
                for (int r = 1; r < 3; r++) assert_same_weights(&c, 0, &c, r);
                ok(nw_crew_compare(c.crew));
            }
            assert_false(same_floats(params_of(&c, 0)->buffers, params_of(&c, 1)->buffers,
                                     params_of(&c, 0)->running.floats)); /* they see different images */
            free_crew(&c);
        }
}

TEST(test_a_flipped_bit_is_found_and_its_rank_named)
{
    setup s = {.model = "lenet5", .world = 4};
    for (int rank = 0; rank < 4; rank++) {
        crew c = started(&s);
        advance(&c, 2);
        uint32_t bits;
        float *weight = &params_of(&c, rank)->values[777];
        memcpy(&bits, weight, sizeof bits);
        bits ^= 1;
        memcpy(weight, &bits, sizeof bits);
        assert_int_equal(nw_crew_compare(c.crew), NW_E_NUMERIC);
        char name[32];
        snprintf(name, sizeof name, "rank %d", rank ? rank : 1); /* compared with rank 0: if that is wrong, all are */
        assert_says(name);
        assert_says("step 2");
        free_crew(&c);
    }
}

/* Three replicas with batches of 4 take the images of one batch of 12: the mean of their gradients is its gradient, but
 * for the order of sums. */
TEST(test_shards_make_the_gradient_of_the_whole_batch)
{
    setup big = {.model = "lenet5", .batch_size = 12, .exchange = "none", .in_order = true, .images = 48};
    setup three = {.model = "lenet5", .batch_size = 4, .world = 3, .in_order = true, .images = 48};
    crew a = started(&big), b = started(&three);
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
    ok(nw_crew_tally(a.crew, &t, &images));
    ok(nw_crew_tally(b.crew, &u, &seen));
    assert_int_equal(images, seen);
    assert_int_equal(t.images, u.images);
    assert_true(fabs(nw_tally_loss(&t) - nw_tally_loss(&u)) < 1e-4);
    free_crew(&a);
    free_crew(&b);
}

/* ---- running statistics ---- */

static float *copy_buffers(const crew *c)
{
    size_t floats = params_of(c, 0)->running.floats;
    float *all = malloc((size_t)c->crew->count * floats * sizeof *all);
    for (int i = 0; i < c->crew->count; i++)
        memcpy(all + (size_t)i * floats, params_of(c, i)->buffers, floats * sizeof *all);
    return all;
}

TEST(test_statistics_of_all_ranks)
{
    for (nw_norm_sync norms = NW_NORMS_LOCAL; norms <= NW_NORMS_RECALIBRATE; norms++) {
        setup s = {.model = "resnet9", .world = 3, .norms = norms, .ema_decay = 0.5, .accumulation = 2};
        setup without = s;
        without.norms = NW_NORMS_LOCAL;
        crew c = started(&s), twin = started(&without);
        advance(&c, 2);
        advance(&twin, 2);
        size_t floats = params_of(&c, 0)->running.floats;
        float *before = copy_buffers(&c);
        ok(nw_crew_sync_norms(c.crew));
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
            ok(nw_crew_sync_norms(c.crew));
            assert_true(same_floats(params_of(&c, 1)->buffers, after, floats));
        }
        advance(&c, 6); /* across an epoch's end, with half a gradient pending there */
        advance(&twin, 6);
        assert_same_weights(&c, 0, &twin, 0);
        assert_same_weights(&c, 2, &twin, 2);
        free(before);
        free(after);
        free_crew(&c);
        free_crew(&twin);
    }
}

/* Statistics of one batch are those that a first step with momentum 1 would leave. */
TEST(test_recalibration_is_the_mean_over_batches)
{
    setup s = {.model = "resnet9", .world = 2, .norms = NW_NORMS_RECALIBRATE, .in_order = true};
    crew c = started(&s);
    advance(&c, 1);
    size_t floats = params_of(&c, 0)->running.floats;
    double *sums = calloc(floats, sizeof *sums);
    for (int r = 0; r < 2; r++) {
        nw_replica *replica = c.crew->members[r].replica;
        float *buffers = params_of(&c, r)->buffers;
        for (int b = 0; b < 2; b++) {
            nw_batch batch;
            ok(nw_loader_batch(replica->loader, 0, b, &batch));
            for (size_t i = 0; i < floats; i++) buffers[i] = 0;
            ok(nw_net_observe(replica->net, batch.images, batch.labels, batch.n));
            for (size_t i = 0; i < floats; i++) sums[i] += (double)buffers[i] / 0.1 / 4;
        }
    }
    ok(nw_crew_sync_norms(c.crew));
    for (size_t i = 0; i < floats; i++)
        for (int r = 0; r < 2; r++)
            if (fabs(sums[i] - (double)params_of(&c, r)->buffers[i]) > 1e-5 * (1 + fabs(sums[i])))
                fail_msg("statistic %zu of rank %d is %g, not %g", i, r, (double)params_of(&c, r)->buffers[i], sums[i]);
    free(sums);
    free_crew(&c);
}

/* ---- checkpoints ---- */

static void save(crew *c)
{
    nw_checkpoint_writer *w;
    nw_checkpoint_info info = {.step = nw_crew_computed(c->crew)};
    snprintf(info.model, sizeof info.model, "%s", nw_crew_first(c->crew)->options.net.model);
    ok(nw_checkpoint_begin(&w, scratch("checkpoint"), &info));
    ok(nw_crew_save(c->crew, w));
    ok(nw_checkpoint_commit(w));
}

static nw_status load(crew *c, const char **note)
{
    nw_checkpoint *checkpoint;
    for (int i = 0; i < c->crew->count; i++) /* nothing of a new replica must survive */
        for (size_t k = 0; k < params_of(c, i)->learned.floats; k++)
            params_of(c, i)->values[k] = params_of(c, i)->gradients[k] = 7;
    ok(nw_checkpoint_open(&checkpoint, scratch("checkpoint")));
    nw_status status = nw_crew_load(c->crew, checkpoint, note);
    nw_checkpoint_close(checkpoint);
    return status;
}

static crew resumed(const setup *s, const char **note)
{
    crew c = make_crew(s);
    ok(load(&c, note));
    ok(nw_crew_begin(c.crew));
    return c;
}

/* With a rest after each step. Resting costs virtual time where messages travel beside a computation: there they have
 * arrived before the next one begins. */
static void step_by_step(crew *c, int64_t until)
{
    for (int64_t step = nw_crew_computed(c->crew) + 1; step <= until; step++) advance(c, step);
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
    crew whole = started(&s), going = started(&s);
    const char *note;
    ok(nw_crew_advance(going.crew, 99)); /* to the end of the epoch */
    assert_int_equal(nw_crew_computed(going.crew), 2);
    for (int i = 0; i < 3; i++) assert_int_equal(going.crew->members[i].replica->at.pending, 1);
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
        assert_int_equal(b.crew->parties[r].step, at);
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
            ok(nw_crew_flush(a.crew));
            ok(nw_crew_flush(b.crew));
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
    ok(nw_crew_flush(a.crew));
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

TEST(test_an_exchange_that_makes_no_sense_is_refused)
{
    static const int64_t WRONG[][3] = {
        /* step, completed, applied */
        {-5, -5, -5},     {INT64_MAX, INT64_MAX, INT64_MAX - 1}, {3, 2, 2}, {3, 3, 1}, {3, 3, 4}, {3, 4, 3},
        {INT64_MIN, 0, 0}};
    setup s = {.model = "lenet5", .world = 2, .delay = 1};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        crew a = started(&s), b = make_crew(&s);
        const char *note;
        nw_exchange_state x;
        advance(&a, 3);
        nw_exchange *e = a.crew->members[0].exchange;
        e->ops->state(e, &x);
        int64_t right[3];
        for (int k = 0; k < 3; k++) right[k] = *x.integers[k].value;
        for (int k = 0; k < 3; k++) *x.integers[k].value = WRONG[i][k];
        save(&a);
        for (int k = 0; k < 3; k++) *x.integers[k].value = right[k];
        assert_int_equal(load(&b, &note), NW_E_FILE);
        assert_says("checkpoint");
        free_crew(&a);
        free_crew(&b);
    }
}

/* ---- stopping ---- */

TEST(test_a_crew_that_is_asked_to_stop_rests_where_it_can_go_on)
{
    setup s = {.model = "lenet5", .world = 3, .delay = 1, .images = 120};
    crew whole = started(&s), c = make_crew(&s);
    volatile sig_atomic_t stop = 0;
    bool stopping;
    const char *note;
    c.crew->driver->options.stop = c.crew->options.driver.stop = &stop;
    ok(nw_crew_begin(c.crew));
    advance(&c, 3);
    ok(nw_crew_agree_to_stop(c.crew, &stopping));
    assert_false(stopping);
    stop = 1;
    ok(nw_crew_advance(c.crew, 1000));
    int64_t at = nw_crew_computed(c.crew);
    assert_true(at >= 3 && at <= 6);
    ok(nw_crew_agree_to_stop(c.crew, &stopping));
    assert_true(stopping);
    save(&c);
    crew d = resumed(&s, &note);
    advance(&d, 12);
    advance(&whole, 12);
    assert_same(&whole, &d);
    free_crew(&whole);
    free_crew(&c);
    free_crew(&d);
}

int main(void)
{
#define WITH_FILES(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_replica_is_a_run_alone),
        cmocka_unit_test(test_replicas_are_equal_after_every_step),
        cmocka_unit_test(test_a_flipped_bit_is_found_and_its_rank_named),
        cmocka_unit_test(test_shards_make_the_gradient_of_the_whole_batch),
        cmocka_unit_test(test_statistics_of_all_ranks),
        cmocka_unit_test(test_recalibration_is_the_mean_over_batches),
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
