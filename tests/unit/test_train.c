/*
 * test_train.c - the parts of a run: sums over images, evaluation, the search for numbers that are not finite, replicas
 * that are saved and loaded between any two batches, and a run that is stopped where a signal hardly ever hits.
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

#include "base/clock.h"
#include "support/replica_fixture.h"
#include "support/scratch.h"
#include "train/health.h"
#include "train/evaluator.h"
#include "train/run.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

/* ---- sums ---- */

TEST(test_tally)
{
    nw_tally tally = {0};
    assert_true(isnan(nw_tally_loss(&tally)) && isnan(nw_tally_top1(&tally)) && isnan(nw_tally_top5(&tally)));
    nw_tally_add(&tally, &(nw_step_result){.loss = 2, .images = 6, .top1 = 3, .top5 = 6}, false);
    nw_tally_add(&tally, &(nw_step_result){.loss = 1, .images = 2, .top1 = 1, .top5 = 1}, false);
    assert_true(nw_tally_loss(&tally) == (6 * 2 + 2 * 1) / 8.0);
    assert_true(nw_tally_top1(&tally) == 50 && nw_tally_top5(&tally) == 87.5);
    nw_tally sums = {0};
    nw_tally_add(&sums, &(nw_step_result){.loss = 12, .images = 6, .top1 = 3, .top5 = 6}, true);
    nw_tally_add(&sums, &(nw_step_result){.loss = 2, .images = 2, .top1 = 1, .top5 = 1}, true);
    assert_true(nw_tally_loss(&sums) == nw_tally_loss(&tally) && sums.images == 8);
}

TEST(test_first_not_finite)
{
    float values[70];
    for (size_t bad = 0; bad < 70; bad++)
        for (int kind = 0; kind < 3; kind++) {
            for (size_t i = 0; i < 70; i++) values[i] = i % 2 ? 3.4e38f : -0.0f;
            assert_int_equal(nw_first_not_finite(values, 70), 70);
            values[bad] = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY;
            assert_int_equal(nw_first_not_finite(values, 70), bad);
            assert_int_equal(nw_first_not_finite(values, bad), bad); /* what comes behind is not looked at */
        }
    assert_int_equal(nw_first_not_finite(NULL, 0), 0);
}

/* ---- evaluation ---- */

static nw_loader *make_test_loader(const nw_dataset *d, int batch_size)
{
    nw_loader *loader;
    nw_loader_options o = {
        .dataset = d, .split = NW_SPLIT_TEST, .batch_size = batch_size, .augment = nw_augment_plain(d)};
    OK(nw_loader_create(&loader, &o));
    return loader;
}

static nw_net_options lenet(int batch_size)
{
    nw_net_options o = nw_net_options_default();
    o.model = "lenet5";
    o.batch_size = batch_size;
    o.channels = 1;
    o.height = o.width = 28;
    o.precision = NW_PRECISION_F32;
    o.threads = 2;
    return o;
}

TEST(test_every_image_counts_once)
{
    enum { IMAGES = 23 };
    nw_dataset *d = make_dataset(IMAGES, 1, 28);
    nw_net *net;
    nw_net_options o = lenet(8);
    OK(nw_net_create(&net, &o));
    nw_loader *alone = make_test_loader(d, 1);
    nw_tally want, got;
    bool complete;
    OK(nw_evaluate(net, alone, false, NULL, &want, &complete));
    assert_true(complete);
    assert_int_equal(want.images, IMAGES);
    for (int batch_size = 2; batch_size <= 8; batch_size++) {
        nw_loader *loader = make_test_loader(d, batch_size);
        for (int pass = 0; pass < 2; pass++) { /* it can be repeated */
            OK(nw_evaluate(net, loader, false, NULL, &got, NULL));
            assert_int_equal(got.images, IMAGES);
            assert_int_equal(got.top1, want.top1);
            assert_int_equal(got.top5, want.top5);
            assert_true(fabs(got.loss - want.loss) < 1e-4 * want.loss);
        }
        nw_loader_free(loader);
    }
    volatile sig_atomic_t stop = 1;
    OK(nw_evaluate(net, alone, false, &stop, &got, &complete));
    assert_false(complete);
    nw_loader_free(alone);
    nw_net_free(net);
    nw_dataset_close(d);
}

TEST(test_both_views_of_mirrored_images)
{
    enum { IMAGES = 11, SIDE = 28 };
    nw_dataset *d = make_dataset(IMAGES, 1, SIDE);
    static uint8_t pixels[IMAGES * SIDE * SIDE];
    nw_dataset mirrored = *d;
    for (int row = 0; row < IMAGES * SIDE; row++)
        for (int x = 0; x < SIDE; x++)
            pixels[row * SIDE + x] = d->split[NW_SPLIT_TEST].pixels[row * SIDE + SIDE - 1 - x];
    mirrored.split[NW_SPLIT_TEST].pixels = pixels;
    nw_loader *loader = make_test_loader(d, 4), *other = make_test_loader(&mirrored, 4);
    nw_net *net;
    nw_net_options o = lenet(4);
    OK(nw_net_create(&net, &o));
    nw_tally one, one_mirrored, both, both_mirrored;
    OK(nw_evaluate(net, loader, false, NULL, &one, NULL));
    OK(nw_evaluate(net, other, false, NULL, &one_mirrored, NULL));
    OK(nw_evaluate(net, loader, true, NULL, &both, NULL));
    OK(nw_evaluate(net, other, true, NULL, &both_mirrored, NULL));
    assert_true(one.loss != one_mirrored.loss);
    assert_true(both.loss == both_mirrored.loss && both.top1 == both_mirrored.top1 && both.images == IMAGES);
    assert_true(both.loss <= (one.loss + one_mirrored.loss) / 2 + 1e-5); /* cross-entropy is convex in the logits */
    nw_loader_free(loader);
    nw_loader_free(other);
    nw_net_free(net);
    nw_dataset_close(d);
}

/* ---- the evaluator ---- */

static const int64_t PATIENCE = 60000000000;

/* Hands over an epoch whose weights are all `scale` times those of the network. */
static void hand_over(nw_evaluator *evaluator, const nw_net *net, int epoch, float scale)
{
    const nw_params *p = &net->model.params;
    nw_case *c;
    OK(nw_evaluator_open(evaluator, scale != 0.0f, &c));
    c->record.epoch = epoch;
    for (size_t i = 0; c->evaluated && i < p->learned.floats; i++) c->values[i] = scale * p->values[i];
    nw_case behind = {.next = NULL};
    c->next = &behind; /* whoever hands it over may have had it in a list */
    OK(nw_evaluator_submit(evaluator, c));
}

/* Cases come back in order with what evaluation alone finds. Asked to stop, the evaluator leaves those that are not
 * done in line, and goes on with them when more is handed over. */
TEST(test_evaluator)
{
    enum { IMAGES = 40, CASES = 6 };
    nw_dataset *d = make_dataset(IMAGES, 1, 28);
    nw_net *net;
    nw_net_options o = lenet(8);
    OK(nw_net_create(&net, &o));
    nw_loader *loader = make_test_loader(d, 8);
    for (int background = 0; background < 2; background++) {
        volatile sig_atomic_t stop = 0;
        nw_evaluator_options options = {.like = net, .background = background, .test = loader, .stop = &stop};
        nw_evaluator *evaluator;
        nw_case *done;
        nw_tally want;
        OK(nw_evaluate(net, loader, false, NULL, &want, NULL));
        OK(nw_evaluator_create(&evaluator, &options));
        assert_null(nw_evaluator_first(evaluator));
        OK(nw_evaluator_take(evaluator, PATIENCE, &done));
        assert_null(done); /* there is none to wait for */
        hand_over(evaluator, net, 0, 1.0f);
        OK(nw_evaluator_take(evaluator, PATIENCE, &done));
        assert_memory_equal(&done->results.test, &want, sizeof want);
        nw_case_free(done);
        stop = 1;
        for (int i = 0; i < CASES; i++)
            hand_over(evaluator, net, i, i == 2 ? 0.0f : 1.0f + (float)i); /* one is not evaluated */
        OK(nw_evaluator_take(evaluator, PATIENCE, &done));
        assert_null(done);
        int waiting = 0;
        for (const nw_case *c = nw_evaluator_first(evaluator); c; c = c->next)
            assert_int_equal(c->record.epoch, waiting++);
        assert_int_equal(waiting, CASES);
        stop = 0;
        hand_over(evaluator, net, CASES, 1.0f);
        for (int i = 0; i <= CASES; i++) {
            OK(nw_evaluator_take(evaluator, PATIENCE, &done));
            assert_non_null(done);
            assert_int_equal(done->record.epoch, i);
            assert_int_equal(done->results.test.images, i == 2 ? 0 : IMAGES);
            if (i == 0 || i == CASES) assert_memory_equal(&done->results.test, &want, sizeof want);
            if (i == 1) assert_true(done->results.test.loss != want.loss);
            nw_case_free(done);
        }
        assert_null(nw_evaluator_first(evaluator));
        nw_evaluator_free(evaluator);
    }
    nw_loader_free(loader);
    nw_net_free(net);
    nw_dataset_close(d);
}

/* ---- numbers that are not finite ---- */

enum { FEW = 4, DIGIT = 28 * 28 };

static const nw_segment *segment_of(nw_net *net, const char *name)
{
    for (int i = 0; i < net->model.params.learned.count; i++)
        if (strcmp(net->model.params.learned.at[i].name, name) == 0) return &net->model.params.learned.at[i];
    fail_msg("no parameter '%s'", name);
    return NULL;
}

static void fill(nw_net *net, const char *name, float value)
{
    const nw_segment *s = segment_of(net, name);
    for (size_t i = 0; i < s->count; i++) net->model.params.values[s->offset + i] = value;
}

static nw_status check_step(nw_net *net)
{
    static float images[FEW * DIGIT];
    static const int32_t labels[FEW] = {0, 1, 2, 3};
    nw_step_result result;
    golden_fill_images(images, FEW * DIGIT, 5);
    for (int i = 0; i < FEW * DIGIT; i++) images[i] = fabsf(images[i]) + 0.1f;
    OK(nw_net_gradients(net, images, labels, FEW, false, &result));
    return nw_health_check(net, result.loss, net->model.params.learned.floats, 17);
}

static void check_names(const nw_kernels *kernels)
{
    nw_net_options o = lenet(FEW);
    nw_net *net = make_as(kernels, o);
    OK(check_step(net));

    /* a gradient: the last one comes first, as backward goes */
    float *gradients = net->model.params.gradients;
    size_t all = net->model.params.learned.floats;
    const nw_segment *first = segment_of(net, "conv1.weight"), *later = segment_of(net, "conv2.weight");
    gradients[first->offset] = NAN;
    assert_int_equal(nw_health_check(net, 1.0, all, 17), NW_E_NUMERIC);
    assert_says("step 17: the gradient of 'conv1.weight' is not finite");
    gradients[later->offset + later->count - 1] = -INFINITY;
    assert_int_equal(nw_health_check(net, 1.0, all, 17), NW_E_NUMERIC);
    assert_says("the gradient of 'conv2.weight' is not finite");

    /* what was looked at before belongs to others by now */
    assert_int_equal(nw_health_check(net, 1.0, later->offset, 17), NW_E_NUMERIC);
    assert_says("the gradient of 'conv1.weight' is not finite");
    OK(nw_health_check(net, 1.0, first->offset, 17));
    assert_true(nw_health_range(net, first->offset + 1, later->offset - 1 - first->offset));
    assert_false(nw_health_range(net, first->offset, 1));

    /* a loss alone */
    OK(check_step(net));
    assert_int_equal(nw_health_check(net, (double)NAN, all, 3), NW_E_NUMERIC);
    assert_says("step 3: the loss is");

    /* an activation: both convolutions are finite, their product is not */
    fill(net, "conv1.weight", 1e25f);
    fill(net, "conv2.weight", 1e25f);
    assert_int_equal(check_step(net), NW_E_NUMERIC);
    assert_says("the output of 'conv2.weight' in stage 1");

    /* a parameter, before everything that it spoils */
    net->model.params.values[later->offset + 1] = NAN;
    assert_int_equal(check_step(net), NW_E_NUMERIC);
    assert_says("the parameter 'conv2.weight' is not finite");
    nw_net_free(net);
}

TEST(test_health_names_the_first)
{
    FOR_EACH_TABLE(k, NW_F32) check_names(k);
    FOR_EACH_TABLE(k, NW_BF16) check_names(k);
}

/* ---- replicas ---- */

static void assert_same(nw_replica *a, nw_replica *b)
{
    nw_params *p = &a->net->model.params, *q = &b->net->model.params;
    nw_ema *e = nw_net_average(a->net), *f = nw_net_average(b->net);
    size_t learned = p->learned.floats * sizeof(float), running = p->running.floats * sizeof(float);
    assert_memory_equal(&a->at, &b->at, sizeof a->at);
    assert_memory_equal(p->values, q->values, learned);
    if (running) assert_memory_equal(p->buffers, q->buffers, running);
    assert_memory_equal(e->values, f->values, learned);
    if (running) assert_memory_equal(e->buffers, f->buffers, running);
    assert_int_equal(e->steps, f->steps);
    assert_int_equal(*nw_optimizer_steps(a->net->optimizer), *nw_optimizer_steps(b->net->optimizer));
    assert_int_equal(nw_optimizer_states(a->net->optimizer), 3); /* both moments, and the greatest second one */
    for (int i = 0; i < 3; i++)
        assert_memory_equal(nw_optimizer_state_at(a->net->optimizer, i).data,
                            nw_optimizer_state_at(b->net->optimizer, i).data, learned);
    if (a->at.pending > 0) assert_memory_equal(p->gradients, q->gradients, learned);
}

/* Somebody who listens, and to whom belongs what is final: there he puts numbers that are none, as sums with another's
 * gradient may be. */
typedef struct listener {
    nw_announce announce;
    nw_replica *replica;
    size_t final;
    int count;
} listener;

static void hear_between(nw_announce *a) { (void)a; }
static void hear_final(nw_announce *a, size_t first)
{
    listener *l = (listener *)a;
    const nw_params *p = &l->replica->net->model.params;
    assert_true(first < l->final);
    for (size_t i = first; i < p->learned.floats; i++) p->gradients[i] = NAN;
    l->final = first;
    l->count++;
}

/* Two of three batches, then the third, which completes the gradient; element `spoilt` is not finite by then. */
static nw_status pass_and_listen(const nw_replica_options *o, size_t spoilt, listener *l)
{
    nw_replica *r = make_replica(o);
    OK(nw_replica_begin(r));
    compute(r, 2);
    if (spoilt < SIZE_MAX) r->net->model.params.gradients[spoilt] = NAN;
    *l = (listener){.announce = {.between = hear_between, .final = hear_final}, .replica = r, .final = SIZE_MAX};
    nw_task pass = next_pass(r);
    int stages[NW_MAX_STAGES], announces = nw_replica_announces(r, &pass, stages);
    nw_status status = nw_replica_pass(r, &pass, &l->announce);
    if (status == NW_OK) assert_int_equal(l->count, announces);
    if (status == NW_OK) assert_int_equal(l->final, r->ready[stages[announces - 1]]);
    nw_replica_free(r);
    return status;
}

/* A range is looked at before others hear that it is final: what is wrong with theirs is not this replica's, and what
 * is wrong with its own is. */
TEST(test_a_replica_answers_for_its_own_gradient_only)
{
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options o = replica_options(d, "alexnet");
    nw_replica *r = make_replica(&o);
    nw_segments learned = r->net->model.params.learned;
    listener l;
    OK(pass_and_listen(&o, SIZE_MAX, &l));
    assert_true(l.count > 3);
    size_t last = l.final;
    for (int i = 0; i < learned.count; i++) {
        char words[160];
        const nw_segment *s = &learned.at[i];
        assert_int_equal(pass_and_listen(&o, s->offset + s->count / 2, &l), NW_E_NUMERIC);
        snprintf(words, sizeof words, "step 1: the gradient of '%s' is not finite", s->name);
        assert_says(words);
        assert_true(l.final > s->offset); /* nobody heard of it */
        if (s->offset < last) assert_int_equal(l.final, last);
    }
    nw_replica_free(r);
    nw_dataset_close(d);
}

/* Changes the parameters whenever it is called, as an exchange does that moves them at any time. */
static void move_values(nw_announce *a)
{
    const nw_params *p = &((listener *)a)->replica->net->model.params;
    for (size_t i = 0; i < p->learned.floats; i++) p->values[i] += 0.25f;
}
static void ignore_final(nw_announce *a, size_t first) { (void)a, (void)first; }

/* A gradient is taken at the parameters that it began with, whatever becomes of them meanwhile; and an update moves two
 * vectors by the same. */
TEST(test_copies_and_second_vectors)
{
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options o = replica_options(d, "alexnet");
    nw_replica *still = make_replica(&o), *moved = make_replica(&o);
    nw_params *p = &still->net->model.params, *q = &moved->net->model.params;
    size_t floats = p->learned.floats;
    listener l = {.announce = {.between = move_values, .final = ignore_final}, .replica = moved};
    OK(nw_replica_begin(still));
    OK(nw_replica_begin(moved));
    for (int batch = 0; batch < 3; batch++) {
        nw_task a = next_pass(still), b = next_pass(moved);
        b.copy = true;
        OK(nw_replica_pass(still, &a, NULL));
        OK(nw_replica_pass(moved, &b, &l.announce));
        assert_memory_equal(p->gradients, q->gradients, floats * sizeof(float));
        assert_true(q->values[0] > p->values[0] + 1);
    }
    float *before = malloc(floats * sizeof *before), *also = malloc(floats * sizeof *also);
    memcpy(before, p->values, floats * sizeof *before);
    for (size_t i = 0; i < floats; i++) also[i] = (float)(i % 7);
    size_t first = floats / 3, count = floats / 2;
    nw_task update = {.kind = NW_TASK_UPDATE,
                      .values = p->values,
                      .also = also,
                      .gradient = p->gradients,
                      .first = first,
                      .count = count,
                      .scale = 1};
    OK(nw_replica_update(still, &update, NULL));
    int moves = 0;
    for (size_t i = 0; i < floats; i++) {
        bool inside = i >= first && i < first + count;
        assert_true(inside || p->values[i] == before[i]);
        assert_true(also[i] == (float)(i % 7) + (inside ? p->values[i] - before[i] : 0));
        moves += p->values[i] != before[i];
    }
    assert_true(moves > (int)count / 2);
    free(before);
    free(also);
    nw_replica_free(still);
    nw_replica_free(moved);
    nw_dataset_close(d);
}

static int looks;
static void count_looks(nw_announce *a) { (void)a, looks++; }

/* Messages move during a long update of any rule, and it makes the same of the parameters. */
TEST(test_updates_stop_to_call_between)
{
    nw_announce announce = {.between = count_looks};
    nw_dataset *d = make_dataset(11, 3, 32);
    static const char *const rules[] = {"sgd", "lars", "adam"};
    for (int i = 0; i < 3; i++) {
        nw_replica_options o = replica_options(d, "alexnet");
        o.net.base_width = 80;
        o.optimizer = nw_optimizer_options_default(rules[i]);
        o.optimizer.clip_norm = i == 2 ? 1 : 0;
        o.ema_every = 1;
        nw_replica *deaf = make_replica(&o), *r = make_replica(&o);
        const nw_params *p = &deaf->net->model.params, *q = &r->net->model.params;
        size_t floats = p->learned.floats;
        nw_replica_start_average(deaf, 0);
        nw_replica_start_average(r, 0);
        nw_task update = {.kind = NW_TASK_UPDATE, .count = floats, .scale = 1};
        for (; update.number < 2; update.number++) {
            for (size_t k = 0; k < floats; k++) p->gradients[k] = q->gradients[k] = (float)(k % 13) - 5.5f;
            looks = 0;
            update.gradient = p->gradients;
            OK(nw_replica_update(deaf, &update, NULL));
            assert_int_equal(looks, 0);
            update.gradient = q->gradients;
            OK(nw_replica_update(r, &update, &announce));
            assert_true(looks > 0); /* by time: how often hangs on the machine */
        }
        assert_memory_equal(p->values, q->values, floats * sizeof(float));
        assert_memory_equal(nw_net_average(deaf->net)->values, nw_net_average(r->net)->values, floats * sizeof(float));
        assert_true(floats > 3 << 20);
        nw_replica_free(deaf);
        nw_replica_free(r);
    }
    nw_dataset_close(d);
}

/* One replica is saved after every batch; another, made of other weights, goes on from each. */
static void check_saving(const char *model, bool has_statistics)
{
    enum { BATCHES = 8 }; /* epochs of 4, the last of 2 images; updates after 3 and 6, two batches pending at the end */
    nw_dataset *d = make_dataset(11, 3, 32);
    nw_replica_options o = replica_options(d, model);
    nw_replica *whole = make_replica(&o), *going = make_replica(&o);
    state_store store = {0};
    assert_int_equal(nw_replica_batches(whole), 4);
    assert_int_equal(whole->net->model.params.running.floats > 0, has_statistics);
    OK(nw_replica_begin(whole));
    OK(nw_replica_begin(going));
    compute(whole, BATCHES);
    for (int at = 0; at < BATCHES; at++) {
        save(going, &store);
        nw_replica *resumed = make_replica(&o);
        for (size_t i = 0; i < resumed->net->model.params.learned.floats; i++)
            resumed->net->model.params.values[i] = resumed->net->model.params.gradients[i] = 7;
        OK(load(resumed, &store));
        OK(nw_replica_begin(resumed));
        assert_same(going, resumed);
        compute(resumed, BATCHES - at);
        assert_same(whole, resumed);
        nw_replica_free(resumed);
        compute(going, 1);
    }
    assert_same(whole, going);
    assert_int_equal(whole->at.pending, 2);
    store_clear(&store);
    nw_replica_free(whole);
    nw_replica_free(going);
    nw_dataset_close(d);
}

TEST(test_saved_with_dropout) { check_saving("alexnet1", false); }
TEST(test_saved_with_batch_norm) { check_saving("alexnet", true); }

TEST(test_loading_refuses_what_does_not_fit)
{
    nw_dataset *d = make_dataset(11, 3, 32), *more = make_dataset(20, 3, 32);
    nw_replica_options o = replica_options(d, "alexnet1");
    nw_replica *r = make_replica(&o);
    state_store store = {0};
    OK(nw_replica_begin(r));
    compute(r, 4);
    save(r, &store);
    nw_replica_free(r);

    nw_replica_options other = o;
    other.loader.batch_size = 2;
    r = make_replica(&other);
    assert_int_equal(load(r, &store), NW_E_ARGUMENT);
    assert_says("an epoch was 4 batches of 3 images and would now be 6 of 2");
    nw_replica_free(r);

    other = o;
    other.loader.dataset = more;
    r = make_replica(&other);
    assert_int_equal(load(r, &store), NW_E_ARGUMENT);
    assert_says("an epoch was 4 batches of 3 images and would now be 7 of 3");
    nw_replica_free(r);

    other = o;
    other.ema_decay = 0;
    r = make_replica(&other);
    assert_int_equal(load(r, &store), NW_E_ARGUMENT);
    assert_says("--ema-decay");
    nw_replica_free(r);

    other = o;
    other.optimizer = nw_optimizer_options_default("sgd");
    other.optimizer.momentum = 0.9;
    r = make_replica(&other);
    assert_int_equal(load(r, &store), NW_E_FILE);
    assert_says("momentum");
    store_clear(&store);
    nw_replica_free(r);
    nw_dataset_close(d);
    nw_dataset_close(more);
}

/* ---- a whole run ---- */

static nw_status train(const nw_dataset *d, const char *dir, int epochs, int max_steps, bool resume, bool stop,
                       char hash[65])
{
    volatile sig_atomic_t flag = stop;
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    nw_run_options o = {.group.replica = replica_options(d, "alexnet1"),
                        .dataset = d,
                        .test_augment = nw_augment_plain(d),
                        .test_batch_size = 3,
                        .train_eval_batch_size = 3,
                        .train_metrics = true,
                        .epochs = epochs,
                        .max_steps = max_steps,
                        .eval_every = 1,
                        .run_dir = dir,
                        .resume = resume ? dir : NULL,
                        .keep = 3,
                        .observe = {.run_dir = dir},
                        .stop = &flag,
                        .watch = &watch};
    o.group.replica.accumulation = 1;
    nw_record_clear(NW_RECORD_RUN, &o.record);
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    nw_run_result result;
    nw_status status = nw_run_train(&o, &result);
    memcpy(hash, result.weights_sha256, 65);
    return status;
}

static int count_records(const char *dir, const char *kind)
{
    char path[600], start[64];
    static char line[1 << 16];
    int count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    snprintf(start, sizeof start, "{\"record\":\"%s\"", kind);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) count += strncmp(line, start, strlen(start)) == 0;
    fclose(file);
    return count;
}

TEST(test_run_stopped_while_it_evaluates)
{
    nw_dataset *d = make_dataset(11, 3, 32);
    char whole[65], parts[65];
    OK(train(d, scratch("whole"), 2, 0, false, false, whole));

    /* Stopped before the first batch; then four steps, to the end of the first epoch; then stopped in its evaluation.
     */
    assert_int_equal(train(d, scratch("parts"), 2, 0, false, true, parts), NW_E_INTERRUPTED);
    assert_says("interrupted at step 0; continue with: nowait train --resume ");
    OK(train(d, scratch("parts"), 2, 4, true, false, parts));
    assert_int_equal(count_records(scratch("parts"), "epoch"), 1);
    assert_int_equal(train(d, scratch("parts"), 2, 0, true, true, parts), NW_E_INTERRUPTED);
    assert_says("interrupted at step 4");
    assert_int_equal(count_records(scratch("parts"), "epoch"), 0);
    OK(train(d, scratch("parts"), 2, 0, true, false, parts));
    assert_string_equal(whole, parts);
    assert_int_equal(count_records(scratch("parts"), "epoch"), 2);
    assert_int_equal(count_records(scratch("parts"), "step"), 8);
    nw_dataset_close(d);
}

int main(void)
{
#define WITH_FILES(name) cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_first_not_finite),
        cmocka_unit_test(test_every_image_counts_once),
        cmocka_unit_test(test_both_views_of_mirrored_images),
        cmocka_unit_test(test_evaluator),
        cmocka_unit_test(test_health_names_the_first),
        cmocka_unit_test(test_a_replica_answers_for_its_own_gradient_only),
        cmocka_unit_test(test_copies_and_second_vectors),
        cmocka_unit_test(test_updates_stop_to_call_between),
        cmocka_unit_test(test_saved_with_dropout),
        cmocka_unit_test(test_saved_with_batch_norm),
        cmocka_unit_test(test_loading_refuses_what_does_not_fit),
        WITH_FILES(test_run_stopped_while_it_evaluates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
