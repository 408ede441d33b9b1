/*
 * replicas_fixture.h - replicas of tiny models on generated images in a virtual cluster, that go on as a run lets them,
 * and are saved and loaded. Include after cmocka.
 */
#ifndef NW_TESTS_REPLICAS_FIXTURE_H
#define NW_TESTS_REPLICAS_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/net_fixture.h"
#include "support/scratch.h"
#include "train/replicas.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static inline void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static inline void assert_says(const char *part)
{
    if (!strstr(nw_error_message(), part)) fail_msg("expected '%s' in: %s", part, nw_error_message());
}

/* ---- groups of replicas ---- */

typedef struct setup {
    const char *model; /* lenet5: no batch norm; resnet9: with it */
    int world;         /* 0: a process alone */
    const char *exchange, *codec;
    int delay, batch_size, accumulation;
    int servers;          /* synchronous, where the exchange is "server"; the others compute ... */
    bool server_computes; /* ... or all do */
    double ema_decay;
    bool in_order; /* batches of the images in their order, as they are */
    nw_norm_sync norms;
    int images;
    int every, fragments; /* of "local": steps from one outer step to the next; parts that have them in turn */
    bool pairs;
    bool averages; /* outer steps average; else they are Nesterov's */
    const char *memory;
} setup;

typedef struct group {
    nw_dataset *dataset;
    nw_cluster *cluster;
    nw_replicas *group;
} group;

static inline group make_group(const setup *s)
{
    group c = {0};
    bool plain = strcmp(s->model, "lenet5") == 0;
    nw_dataset_options data = {.name = "synthetic",
                               .dir = ".",
                               .limit = s->images ? s->images : 30,
                               .channels = plain ? 1 : 3,
                               .image_size = plain ? 28 : 32,
                               .seed = 3};
    ok(nw_dataset_open(&c.dataset, &data));
    int batch = s->batch_size ? s->batch_size : 2;
    nw_replicas_options o = {.replica = {.net = narrow(s->model, batch, 1),
                                         .optimizer = nw_optimizer_options_default("sgd"),
                                         .schedule = nw_schedule_options_default(),
                                         .accumulation = s->accumulation ? s->accumulation : 1,
                                         .averaging = true,
                                         .ema_decay = s->ema_decay,
                                         .ema_every = 2,
                                         .watch = true},
                             .mode = s->world ? NW_REPLICAS_VIRTUAL : NW_REPLICAS_ALONE,
                             .world = s->world,
                             .exchange = {.name = s->exchange ? s->exchange : "allreduce", .layout.bucket_bytes = 4096},
                             .codecs.codec.name = s->codec,
                             .norms = s->norms,
                             .recalibrate_batches = 2};
    o.exchange.delay = s->delay;
    o.exchange.sync_every = s->every;
    o.exchange.pairs = s->pairs;
    o.exchange.seed = 5;
    o.exchange.layout.fragments = s->fragments;
    o.codecs.memory.name = s->memory;
    if (s->codec) {
        o.codecs.codec = nw_codec_options_default(s->codec);
        o.codecs.codec.ratio = 0.1;
    }
    if (s->every > 0) {
        o.replica.outer = nw_optimizer_options_default("sgd");
        o.replica.outer.weight_decay = 0;
        o.replica.outer.nesterov = !s->averages;
        o.replica.outer.momentum = s->averages ? 0 : 0.6;
        o.replica.outer_lr = s->averages ? 1 : 0.7;
    }
    o.exchange.servers = s->servers;
    o.exchange.server_computes = s->server_computes;
    o.exchange.sync = true;
    o.exchange.max_staleness = -1;
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
    ok(nw_replicas_create(&c.group, &o));
    return c;
}

static inline void free_group(group *c)
{
    nw_replicas_free(c->group);
    nw_cluster_free(c->cluster);
    nw_dataset_close(c->dataset);
}

/* To the end of the epoch, where updates that are held back are made (but outer steps go over it), or to `until` updates
 * before it. */
static inline nw_go go_to(const group *c, int64_t until)
{
    const nw_position *at = nw_replicas_position(c->group);
    int64_t done = nw_replicas_updates(c->group), accumulation = c->group->options.replica.accumulation;
    int64_t left = nw_replicas_epoch_batches(c->group) - at->batch, all = at->pending + left;
    if (until > done + all / accumulation || (until == done + all / accumulation && all % accumulation == 0))
        return (nw_go){
            .until = done + all / accumulation, .batches = left, .drain = !c->group->members[0].machine->outer};
    return (nw_go){.until = until, .batches = (until - done) * accumulation - at->pending};
}

/* On to `until` updates, through the ends of epochs as a run goes through them. */
static inline void advance(group *c, int64_t until)
{
    while (nw_replicas_updates(c->group) < until) {
        if (nw_replicas_epoch_is_over(c->group)) ok(nw_replicas_end_epoch(c->group));
        nw_go go = go_to(c, until);
        ok(nw_replicas_advance(c->group, &go));
    }
}

/* Where a server counts updates. */
static inline void serve(group *c, int64_t until)
{
    nw_go go = {.until = until, .batches = INT64_MAX};
    ok(nw_replicas_advance(c->group, &go));
    assert_int_equal(nw_replicas_updates(c->group), until);
}

/* Makes the updates that are held back. */
static inline void drain(group *c)
{
    nw_go go = {.until = nw_replicas_updates(c->group), .drain = true};
    ok(nw_replicas_advance(c->group, &go));
}

/* Updates that a replica has made: fewer than the world where one is held back. */
static inline int64_t made(const group *c, int member)
{
    return (int64_t)*nw_optimizer_steps(c->group->members[member].replica->net->optimizer);
}

static inline group started(const setup *s)
{
    group c = make_group(s);
    ok(nw_replicas_begin(c.group));
    return c;
}

static inline nw_params *params_of(const group *c, int member)
{
    return &c->group->members[member].replica->net->model.params;
}

static inline bool same_floats(const float *a, const float *b, size_t count)
{
    return memcmp(a, b, count * sizeof *a) == 0;
}

static inline void assert_same_weights(const group *a, int i, const group *b, int j)
{
    size_t count = params_of(a, i)->learned.floats;
    assert_int_equal(count, params_of(b, j)->learned.floats);
    assert_true(same_floats(params_of(a, i)->values, params_of(b, j)->values, count));
}

/* Everything that a replica knows; exchanges may be of different kinds. */
static inline void assert_same(const group *a, const group *b)
{
    assert_int_equal(a->group->count, b->group->count);
    for (int i = 0; i < a->group->count; i++) {
        nw_state_owner x = nw_rank_state(&a->group->ranks[i]), y = nw_rank_state(&b->group->ranks[i]);
        nw_state u = {0}, v = {0};
        assert_same_weights(a, i, b, i);
        assert_memory_equal(&a->group->members[i].replica->at, &b->group->members[i].replica->at, sizeof(nw_position));
        assert_int_equal(a->group->members[i].machine->updates, b->group->members[i].machine->updates);
        x.list(x.whose, &u);
        y.list(y.whose, &v);
        for (int k = 0; k < u.count; k++) {
            const nw_state_entry *e = &u.at[k], *f = nw_state_find(&v, e->name);
            if (strncmp(e->name, NW_STATE_EXCHANGE, strlen(NW_STATE_EXCHANGE)) == 0 ||
                strncmp(e->name, NW_STATS_TIMES, strlen(NW_STATS_TIMES)) == 0 || strcmp(e->name, "elapsed_ns") == 0)
                continue;
            if (!f || nw_state_bytes(e) != nw_state_bytes(f) || memcmp(e->data, f->data, nw_state_bytes(e)) != 0)
                fail_msg("'%s' of replica %d differs", e->name, i);
        }
        nw_state_free(&u);
        nw_state_free(&v);
    }
}

/* ---- checkpoints ---- */

static inline void save(group *c)
{
    nw_checkpoint_writer *w;
    nw_checkpoint_info info = {.step = nw_replicas_updates(c->group)};
    snprintf(info.model, sizeof info.model, "%s", nw_replicas_first(c->group)->options.net.model);
    ok(nw_checkpoint_begin(&w, scratch("checkpoint"), &info));
    ok(nw_replicas_save(c->group, w));
    ok(nw_checkpoint_commit(w));
}

static inline nw_status load(group *c, const char **note)
{
    nw_checkpoint *checkpoint;
    for (int i = 0; i < c->group->count; i++) /* nothing of a new replica must survive */
        for (size_t k = 0; k < params_of(c, i)->learned.floats; k++)
            params_of(c, i)->values[k] = params_of(c, i)->gradients[k] = 7;
    ok(nw_checkpoint_open(&checkpoint, scratch("checkpoint")));
    nw_status status = nw_replicas_load(c->group, checkpoint, note);
    nw_checkpoint_close(checkpoint);
    return status;
}

static inline group resumed(const setup *s, const char **note)
{
    group c = make_group(s);
    ok(load(&c, note));
    ok(nw_replicas_begin(c.group));
    return c;
}

#endif
