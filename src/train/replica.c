/* replica.c - see replica.h. */
#include "train/replica.h"

#include "base/clock.h"
#include "train/health.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Batches of one pass over the images that this replica takes. */
static int64_t pass_batches(const nw_replica *r)
{
    int64_t all = nw_loader_batches(r->loader), most = r->options.max_batches;
    return most > 0 && most < all ? most : all;
}

/* Batches of a worker in the epochs before one, where passes have so many. */
static int64_t batches_before(int64_t pass, int sharers, int64_t epoch)
{
    return epoch * pass / (sharers > 1 ? sharers : 1);
}

/* The rule of outer steps, with state of its own. */
static nw_status make_outer(nw_replica *r)
{
    nw_arena room = nw_arena_measure();
    NW_TRY(nw_optimizer_make(&r->outer, &r->options.outer, &r->net->model.params));
    nw_optimizer_bind(r->outer, &room);
    NW_TRY(nw_arena_create(&r->outer_room, room.used));
    nw_optimizer_bind(r->outer, &r->outer_room);
    return NW_OK;
}

static void autofree(nw_replica **r) { nw_replica_free(*r); }

nw_status nw_replica_create(nw_replica **out, const nw_replica_options *options, nw_replica *owner)
{
    NW_CLEANUP(autofree) nw_replica *r = NULL;
    *out = NULL;
    NW_NEW(r, 1, "a replica");
    r->options = *options;
    r->at.lr_factor = 1;
    nw_net_parts parts = {.optimizer = &options->optimizer,
                          .ema_decay = options->ema_decay,
                          .ema_every = options->ema_every,
                          .gradients_only = options->gradients_only};
    NW_TRY(owner ? nw_net_create_sibling(&r->net, owner->net, &parts)
                 : nw_net_create_from(&r->net, &options->net, &parts));
    NW_TRY(nw_loader_create(&r->loader, &options->loader));
    r->batch_size = options->loader.batch_size;
    r->pass_batches = pass_batches(r);
    if (options->outer.name) NW_TRY(make_outer(r));
    if (options->delay.models > 1)
        NW_TRY(nw_history_create(&r->history, &options->delay, r->net->model.params.learned.floats));
    NW_FAIL_IF(r->pass_batches < options->sharers, NW_E_ARGUMENT,
               "an epoch of %lld batches is too short for %d workers; use a smaller --batch-size",
               (long long)r->pass_batches, options->sharers);
    r->options.schedule.batches_per_epoch = options->epoch_batches > 0 ? options->epoch_batches : r->pass_batches;
    r->options.schedule.shared = options->sharers > 1;
    NW_TRY(nw_schedule_make(&r->schedule, &r->options.schedule));
    NW_NEW(r->ready, r->net->model.count, "a table of stages");
    nw_model_final_from(&r->net->model, r->ready);
    *out = r;
    r = NULL;
    return NW_OK;
}

void nw_replica_free(nw_replica *r)
{
    if (!r) return;
    if (r->loader) nw_loader_free(r->loader);
    nw_history_free(r->history);
    nw_optimizer_free(r->outer);
    nw_arena_destroy(&r->outer_room);
    nw_net_free(r->net);
    free(r->copy);
    free(r->ready);
    free(r);
}

int64_t nw_replica_batches_before(const nw_replica *r, int64_t epoch)
{
    return batches_before(pass_batches(r), r->options.sharers, epoch);
}

int64_t nw_replica_batches(const nw_replica *r)
{
    return nw_replica_batches_before(r, r->at.epoch + 1) - nw_replica_batches_before(r, r->at.epoch);
}

void nw_replica_start_average(nw_replica *r, int64_t epoch)
{
    if (!nw_net_average(r->net) || r->ema_running || epoch < r->options.ema_from) return;
    nw_ema_start(nw_net_average(r->net), &r->net->model.pass.exec, &r->net->model.params);
    r->ema_running = true;
}

/* Where epochs are shared, passes go on from epoch to epoch. */
static nw_status start_pass(nw_replica *r)
{
    int64_t done = nw_replica_batches_before(r, r->at.epoch) + r->at.batch, pass = pass_batches(r);
    return nw_loader_start(r->loader, done / pass, done % pass);
}

nw_status nw_replica_begin(nw_replica *r)
{
    nw_replica_start_average(r, r->at.epoch);
    return r->options.sharers > 1 ? start_pass(r) : nw_loader_start(r->loader, r->at.epoch, r->at.batch);
}

/* The next batch. Where epochs are shared, a pass may end within one. */
static nw_status take_batch(nw_replica *r, nw_batch *batch)
{
    bool shared = r->options.sharers > 1 && r->at.batch > 0;
    if (shared && (nw_replica_batches_before(r, r->at.epoch) + r->at.batch) % pass_batches(r) == 0)
        NW_TRY(start_pass(r));
    return nw_loader_next(r->loader, batch);
}

/* A loss that grows is as bad as one that is no number, and comes before it. */
static nw_status watch_loss(nw_replica *r, const nw_step_result *result)
{
    nw_position *at = &r->at;
    nw_tally tally = {0};
    nw_tally_add(&tally, result, r->options.net.loss_sum);
    double loss = nw_tally_loss(&tally), guessing = log((double)r->options.net.classes);
    if (at->watched++ == 0) at->first_loss = at->mean_loss = loss;
    at->mean_loss = 0.9 * at->mean_loss + 0.1 * loss;
    double usual = fmax(at->first_loss, guessing);
    NW_FAIL_IF(r->options.diverged > 0 && at->mean_loss > r->options.diverged * usual, NW_E_NUMERIC,
               "step %lld: the loss diverges: its running mean is %.3g, and %.3g at the start; a lower --lr may help "
               "(--divergence-factor)",
               (long long)at->steps + 1, at->mean_loss, usual);
    return NW_OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Whether the gradient is final in a new place after the backward pass of a stage. The end of the pass tells the
 * rest. */
static bool finishes(const nw_replica *r, int stage, size_t final)
{
    return r->ready[stage] > 0 && r->ready[stage] < final;
}

int nw_replica_announces(const nw_replica *r, const nw_task *task, int *stages)
{
    int count = 0;
    size_t final = SIZE_MAX;
    for (int s = r->net->model.count - 1; task->completes && s >= 0; s--) {
        if (!finishes(r, s, final)) continue;
        final = r->ready[s];
        stages[count++] = s;
    }
    return count;
}

/* Between stages: messages move, and others hear which part of the gradient is final. It is looked at before, since
 * others may write there then. */
static void after_stage(void *context, int stage, bool backward)
{
    nw_replica *r = context;
    size_t first = r->ready[stage], floats = r->net->model.params.learned.floats;
    bool final = backward && r->task->completes && !r->spoilt && finishes(r, stage, r->final);
    if (final && r->options.watch) {
        r->spoilt = !nw_health_range(r->net, first, (r->final < floats ? r->final : floats) - first);
        final = !r->spoilt;
    }
    if (final) {
        r->final = first;
        r->announce->final(r->announce, first);
    }
    r->announce->between(r->announce);
}

/* The present parameters, aside. */
static nw_status copy_values(nw_replica *r)
{
    const nw_params *p = &r->net->model.params;
    if (!r->copy) r->copy = malloc(p->learned.floats * sizeof *r->copy);
    NW_FAIL_IF(!r->copy, NW_E_MEMORY, "no memory for a copy of %zu parameters", p->learned.floats);
    memcpy(r->copy, p->values, p->learned.floats * sizeof *r->copy);
    return NW_OK;
}

/* At the parameters that an artificial delay says, or at a copy where they may change meanwhile: weights are packed
 * from what `read` says, anew in every pass. */
static nw_status compute_gradient(nw_replica *r, const nw_batch *batch, nw_step_result *result)
{
    nw_pass *pass = &r->net->model.pass;
    nw_params *params = &r->net->model.params;
    const float *old = r->history ? nw_history_read(r->history) : NULL;
    if (r->history) r->delay = nw_history_delay(r->history);
    if (r->task->copy) {
        if (!r->task->adds || !r->copy)
            NW_TRY(copy_values(r)); /* all batches of a gradient are computed at the same ones */
        old = r->copy;
    }
    r->final = SIZE_MAX;
    r->spoilt = false;
    if (old) params->read = old;
    if (r->announce) pass->hook = (nw_stage_hook){after_stage, r};
    nw_net_announce(r->net, r->announce);
    nw_status status = nw_net_gradients(r->net, batch->images, batch->labels, batch->n, r->task->adds, result);
    nw_net_announce(r->net, NULL);
    pass->hook = (nw_stage_hook){0};
    params->read = params->values;
    return status;
}

static nw_status check_health(nw_replica *r, const nw_step_result *result)
{
    size_t floats = r->net->model.params.learned.floats;
    if (!r->options.watch) return NW_OK;
    NW_TRY(nw_health_check(r->net, result->loss, r->final < floats ? r->final : floats, r->at.steps + 1));
    return watch_loss(r, result);
}

static nw_status next_batch(nw_replica *r, nw_batch *batch)
{
    int64_t start = nw_now_ns();
    if (r->at.batch >= nw_replica_batches(r)) NW_TRY(nw_replica_end_epoch(r));
    NW_TRY(take_batch(r, batch));
    r->wait_ns += nw_now_ns() - start;
    NW_FAIL_IF(batch->n == 0, NW_E_INTERNAL, "epoch %lld ended after %lld batches instead of %lld",
               (long long)r->at.epoch, (long long)r->at.batch, (long long)nw_replica_batches(r));
    return NW_OK;
}

nw_status nw_replica_pass(nw_replica *r, nw_task *task, nw_announce *announce)
{
    nw_batch batch;
    nw_step_result result;
    nw_position *at = &r->at;
    if (!task->adds) {
        at->gradient = (nw_tally){0};
        r->wait_ns = 0;
    }
    NW_TRY(next_batch(r, &batch));
    task->clock = at->batches;
    r->task = task;
    r->announce = announce;
    r->net->batches = (uint64_t)at->batches;
    NW_TRY(compute_gradient(r, &batch, &result));
    NW_TRY(check_health(r, &result));
    nw_tally_add(&at->tally, &result, r->options.net.loss_sum);
    nw_tally_add(&at->gradient, &result, r->options.net.loss_sum);
    at->batches++;
    at->batch++;
    at->images += batch.n;
    at->pending = task->completes ? 0 : at->pending + 1;
    at->steps += task->completes;
    return NW_OK;
}

/* ---- updates ----------------------------------------------------------------------------------------------------- */

double nw_replica_lr(const nw_replica *r, int64_t batch)
{
    return r->at.lr_factor * nw_schedule_lr(&r->schedule, batch > 0 ? batch : 0);
}

static nw_status update(nw_replica *r, const nw_task *task)
{
    nw_params *params = &r->net->model.params;
    nw_exec *exec = &r->net->model.pass.exec;
    float *own = params->gradients;
    double lr = nw_replica_lr(r, task->clock), scale = (double)task->scale;
    NW_FAIL_IF(r->options.gradients_only, NW_E_INTERNAL, "a replica that only computes gradients is to be updated");
    if (r->options.averaging) scale /= (double)r->options.accumulation;
    if (r->history) NW_TRY(nw_history_keep(r->history, params->values));
    if (task->also) NW_TRY(copy_values(r));
    params->gradients = task->gradient;
    nw_status status = task->count == params->learned.floats
                           ? nw_net_apply(r->net, lr, scale)
                           : nw_optimizer_step_range(r->net->optimizer, exec, params, lr, scale,
                                                     (uint64_t)task->number + 1, task->first, task->count);
    params->gradients = own;
    NW_TRY(status);
    for (size_t i = task->first; task->also && i < task->first + task->count; i++)
        task->also[i] += params->values[i] - r->copy[i];
    if (r->ema_running) NW_TRY(nw_ema_step(nw_net_average(r->net), exec, params));
    *nw_optimizer_steps(r->net->optimizer) = (uint64_t)task->number + 1;
    return NW_OK;
}

static nw_status update_outer(nw_replica *r, const nw_task *task)
{
    nw_params *params = &r->net->model.params, own = *params;
    NW_FAIL_IF(!r->outer, NW_E_INTERNAL, "a replica without a rule for outer steps is to make one");
    params->values = task->values;
    params->gradients = task->gradient;
    nw_status status =
        nw_optimizer_step_range(r->outer, &r->net->model.pass.exec, params, r->options.outer_lr, (double)task->scale,
                                (uint64_t)task->number + 1, task->first, task->count);
    *params = own;
    return status;
}

nw_status nw_replica_update(nw_replica *r, const nw_task *task, nw_announce *announce)
{
    nw_net_announce(r->net, announce);
    nw_status status = task->rule == NW_RULE_OUTER ? update_outer(r, task) : update(r, task);
    nw_net_announce(r->net, NULL);
    return status;
}

nw_status nw_replica_end_epoch(nw_replica *r)
{
    r->at.epoch++;
    r->at.batch = 0;
    r->at.tally = (nw_tally){0};
    return nw_replica_begin(r);
}

void nw_replica_swap_average(nw_replica *r)
{
    if (r->ema_running) nw_ema_swap(nw_net_average(r->net), &r->net->model.pass.exec, &r->net->model.params);
}

/* ---- saving and loading ------------------------------------------------------------------------------------------ */

void nw_position_state(nw_position *at, const char *prefix, bool common, nw_state *s)
{
    const struct {
        const char *name;
        nw_state_rule rule;
        int64_t *whole;
        double *real;
    } all[] = {
        {"epoch", NW_STATE_LIKE, .whole = &at->epoch},
        {"batch", NW_STATE_LIKE, .whole = &at->batch},
        {"batches", NW_STATE_LIKE, .whole = &at->batches},
        {"steps", NW_STATE_LIKE, .whole = &at->steps},
        {"images", NW_STATE_DELIVERED, .whole = &at->images},
        {"pending_batches", NW_STATE_OWN, .whole = &at->pending},
        {"tally_loss", NW_STATE_DELIVERED, .real = &at->tally.loss},
        {"tally_images", NW_STATE_DELIVERED, .whole = &at->tally.images},
        {"tally_top1", NW_STATE_DELIVERED, .whole = &at->tally.top1},
        {"tally_top5", NW_STATE_DELIVERED, .whole = &at->tally.top5},
        {"gradient_loss", NW_STATE_LIKE, .real = &at->gradient.loss},
        {"gradient_images", NW_STATE_LIKE, .whole = &at->gradient.images},
        {"gradient_top1", NW_STATE_LIKE, .whole = &at->gradient.top1},
        {"gradient_top5", NW_STATE_LIKE, .whole = &at->gradient.top5},
        {"first_loss", NW_STATE_LIKE, .real = &at->first_loss},
        {"mean_loss", NW_STATE_LIKE, .real = &at->mean_loss},
        {"watched", NW_STATE_LIKE, .whole = &at->watched},
        {"lr_factor", NW_STATE_LIKE, .real = &at->lr_factor},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char name[NW_STATE_NAME];
        nw_state_rule rule = common ? NW_STATE_KEPT : all[i].rule;
        snprintf(name, sizeof name, "%s%s", prefix, all[i].name);
        if (all[i].whole)
            nw_state_integer(s, name, rule, all[i].whole);
        else
            nw_state_real(s, name, rule, all[i].real);
    }
}

/* What updates have made: of a server for its range alone, of its workers, who make none, nothing. */
static void list_updated(nw_replica *r, const nw_machine *m, nw_state_rule rule, nw_state *s)
{
    const nw_params *p = &r->net->model.params;
    bool served = m->equal && !m->lockstep;
    size_t first = served ? m->first : 0, count = served ? m->count : p->learned.floats;
    const nw_ema *average = r->ema_running ? nw_net_average(r->net) : NULL;
    r->average_steps = average ? (int64_t)average->steps : -1;
    if (count == 0) return;
    nw_state_integer(s, "optimizer_steps", rule, (int64_t *)nw_optimizer_steps(r->net->optimizer));
    nw_state_integer(s, "average_steps", rule, &r->average_steps);
    for (int i = 0; i < nw_optimizer_states(r->net->optimizer); i++) {
        nw_optimizer_state state = nw_optimizer_state_at(r->net->optimizer, i);
        nw_state_vector(s, state.name, served ? NW_STATE_RANGE : rule, state.data + first, first, count);
    }
    if (!average) return;
    nw_state_vector(s, "average", rule, average->values, 0, p->learned.floats);
    if (p->running.floats > 0)
        nw_state_statistics(s, "average_statistics", NW_STATE_LIKE, average->buffers, p->running.floats);
}

static void list_outer(nw_replica *r, const nw_machine *m, nw_state *s)
{
    for (int i = 0; r->outer && i < nw_optimizer_states(r->outer); i++) {
        nw_optimizer_state state = nw_optimizer_state_at(r->outer, i);
        char name[NW_STATE_NAME];
        snprintf(name, sizeof name, "outer_%s", state.name);
        nw_state_vector(s, name, m->outer_equal ? NW_STATE_KEPT : NW_STATE_LIKE, state.data, 0, state.count);
    }
}

void nw_replica_state(nw_replica *r, const nw_machine *m, nw_state *s)
{
    nw_params *p = &r->net->model.params;
    nw_state_rule rule = m->equal ? NW_STATE_KEPT : NW_STATE_LIKE; /* of what equal replicas have in common */
    nw_position_state(&r->at, "", false, s);
    nw_state_integer(s, "batch_size", NW_STATE_LIKE, &r->batch_size);
    nw_state_integer(s, "pass_batches", NW_STATE_LIKE, &r->pass_batches);
    list_updated(r, m, rule, s);
    list_outer(r, m, s);
    if (!m->equal) nw_state_vector(s, "parameters", NW_STATE_LIKE, p->values, 0, p->learned.floats);
    if (p->running.floats > 0) nw_state_statistics(s, "statistics", NW_STATE_LIKE, p->buffers, p->running.floats);
    if (r->at.pending > 0) nw_state_vector(s, "pending", NW_STATE_OWN, p->gradients, 0, p->learned.floats);
    if (r->history) nw_history_state(r->history, s, rule);
}

nw_status nw_replica_loaded(nw_replica *r)
{
    const nw_position *at = &r->at;
    NW_FAIL_IF(at->epoch < 0 || at->batch < 0 || at->batches < 0 || at->steps < 0 || at->pending < 0 ||
                   at->epoch > INT32_MAX || r->batch_size < 1 || at->batch > ((int64_t)1 << 50) / r->batch_size ||
                   r->pass_batches < 0 || r->pass_batches > INT32_MAX,
               NW_E_FILE, "the checkpoint cannot be at batch %lld of %lld images in epoch %lld; take an earlier one",
               (long long)at->batch, (long long)r->batch_size, (long long)at->epoch);
    nw_ema *average = nw_net_average(r->net);
    NW_FAIL_IF(r->average_steps >= 0 && !average, NW_E_ARGUMENT,
               "the checkpoint keeps an average of the weights, this run does not; give the same --ema-decay");
    r->ema_running = r->average_steps >= 0;
    if (r->ema_running) average->steps = (uint64_t)r->average_steps;
    return r->history ? nw_history_go_to(r->history, at->steps) : NW_OK;
}

/* The same world: at the same position, if it is counted in the same batches. */
static nw_status check_position(nw_replica *r)
{
    NW_FAIL_IF(
        r->batch_size != r->options.loader.batch_size || r->pass_batches != pass_batches(r), NW_E_ARGUMENT,
        "an epoch was %lld batches of %lld images and would now be %lld of %d; give the batch size and data of the run "
        "that wrote the checkpoint, or start a new run from its weights with --init",
        (long long)r->pass_batches, (long long)r->batch_size, (long long)pass_batches(r), r->options.loader.batch_size);
    NW_FAIL_IF(r->at.batch > nw_replica_batches(r), NW_E_FILE,
               "the checkpoint cannot be at batch %lld of %lld in epoch %lld; take an earlier one",
               (long long)r->at.batch, (long long)nw_replica_batches(r), (long long)r->at.epoch);
    return NW_OK;
}

/* Another world. */
static void move_position(nw_replica *r, int from_world, int to_world)
{
    nw_position *at = &r->at;
    int64_t all = nw_replica_batches(r), taken = (int64_t)r->options.loader.batch_size * to_world;
    int sharers = r->options.sharers > 1 ? from_world : 1;
    bool over = at->batch >= batches_before(r->pass_batches, sharers, at->epoch + 1) -
                                 batches_before(r->pass_batches, sharers, at->epoch);
    int64_t seen = at->batch * r->batch_size, batch = (seen * from_world + taken - 1) / taken;
    at->batch = over || batch > all ? all : batch;
    at->batches = nw_replica_batches_before(r, at->epoch) + at->batch;
    at->gradient = (nw_tally){0};
    r->batch_size = r->options.loader.batch_size;
    r->pass_batches = pass_batches(r);
}

nw_status nw_replica_fit_world(nw_replica *r, int from_world, int to_world)
{
    NW_FAIL_IF(r->history && !nw_histogram_is_sound(nw_history_delays(r->history)), NW_E_FILE,
               "the checkpoint's delays are no histogram; take an earlier one");
    if (from_world == to_world) return check_position(r);
    move_position(r, from_world, to_world);
    return NW_OK;
}
