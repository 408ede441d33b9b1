/*
 * replica_fixture.h - narrow replicas on generated images that are saved and loaded, for the tests of training. Include
 * after cmocka.
 */
#ifndef NW_TESTS_REPLICA_FIXTURE_H
#define NW_TESTS_REPLICA_FIXTURE_H

#include "support/net_fixture.h"
#include "support/state_store.h"
#include "train/replica.h"

#include <stdio.h>

#define OK(call)                                                            \
    do {                                                                    \
        if ((call) != NW_OK) fail_msg("%s: %s", #call, nw_error_message()); \
    } while (0)

static inline void assert_says(const char *part)
{
    if (!strstr(nw_error_message(), part)) fail_msg("expected '%s' in: %s", part, nw_error_message());
}

static inline nw_dataset *make_dataset(int limit, int channels, int size)
{
    nw_dataset *d;
    nw_dataset_options o = {
        .name = "synthetic", .dir = ".", .limit = limit, .channels = channels, .image_size = size, .seed = 3};
    OK(nw_dataset_open(&d, &o));
    return d;
}

/* Of updates of three batches, with every kind of state. */
static inline nw_replica_options replica_options(const nw_dataset *d, const char *model)
{
    nw_replica_options o = {.net = narrow(model, 3, 2),
                            .optimizer = nw_optimizer_options_default("adam"),
                            .schedule = nw_schedule_options_default(),
                            .accumulation = 3,
                            .averaging = true,
                            .ema_decay = 0.9,
                            .ema_every = 2,
                            .watch = true};
    o.net.seed = 5;
    o.optimizer.amsgrad = true;
    o.schedule.name = "cosine";
    o.schedule.lr = 0.01;
    o.schedule.epochs = 2;
    o.loader = (nw_loader_options){.dataset = d,
                                   .split = NW_SPLIT_TRAIN,
                                   .batch_size = 3,
                                   .shuffle = true,
                                   .augmented = true,
                                   .augment = nw_augment_plain(d),
                                   .seed = 5,
                                   .workers = 1};
    o.loader.augment.flip = true;
    o.loader.augment.pad = 2;
    return o;
}

static inline nw_replica *make_replica(const nw_replica_options *o)
{
    nw_replica *r;
    OK(nw_replica_create(&r, o, NULL));
    return r;
}

/* The pass of the replica's next batch, as a pipeline asks for it. */
static inline nw_task next_pass(const nw_replica *r)
{
    const nw_params *p = &r->net->model.params;
    return (nw_task){.kind = NW_TASK_PASS,
                     .number = r->at.steps,
                     .forward = true,
                     .backward = true,
                     .adds = r->at.pending > 0,
                     .completes = r->at.pending + 1 == r->options.accumulation,
                     .values = p->values,
                     .gradient = p->gradients,
                     .count = p->learned.floats};
}

/* The update that a pass was the last one for, if it was. */
static inline void update_after(nw_replica *r, const nw_task *pass)
{
    nw_task update = *pass;
    update.kind = NW_TASK_UPDATE;
    update.scale = 1;
    if (pass->completes) OK(nw_replica_update(r, &update, NULL));
}

static inline void compute(nw_replica *r, int batches)
{
    for (; batches > 0; batches--) {
        nw_task pass = next_pass(r);
        OK(nw_replica_pass(r, &pass, NULL));
        update_after(r, &pass);
    }
}

/* Of an exchange that leaves each replica to itself, so that all it has is listed. */
static const nw_machine APART;

static inline void list_replica(void *r, nw_state *s) { nw_replica_state(r, &APART, s); }
static inline nw_status replica_loaded(void *r) { return nw_replica_loaded(r); }

static inline void save(nw_replica *r, state_store *store)
{
    store_clear(store);
    store_add(store, (nw_state_owner){r, list_replica, replica_loaded});
}

static inline nw_status load(nw_replica *r, state_store *store)
{
    NW_TRY(store_load(store, (nw_state_owner){r, list_replica, replica_loaded}, 0, 1, NULL));
    return nw_replica_fit_world(r, 1, 1);
}

#endif
