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

nw_status nw_replica_create(nw_replica **out, const nw_replica_options *options, nw_replica *elder)
{
    *out = NULL;
    nw_replica *r = calloc(1, sizeof *r);
    NW_FAIL_IF(!r, NW_E_MEMORY, "no memory for a replica");
    r->options = *options;
    r->at.lr_factor = 1;
    nw_net_parts parts = {
        .optimizer = &options->optimizer, .ema_decay = options->ema_decay, .ema_every = options->ema_every};
    nw_status status =
        elder ? nw_net_create_sibling(&r->net, elder->net, &parts) : nw_net_create_from(&r->net, &options->net, &parts);
    if (status == NW_OK) status = nw_loader_create(&r->loader, &options->loader);
    if (status == NW_OK && options->delay.models > 1)
        status = nw_history_create(&r->history, &options->delay, r->net->model.params.learned.floats);
    if (status == NW_OK && pass_batches(r) < options->sharers)
        status =
            NW_FAIL(NW_E_ARGUMENT, "an epoch of %lld batches is too short for %d workers; use a smaller --batch-size",
                    (long long)pass_batches(r), options->sharers);
    if (status == NW_OK) {
        r->options.schedule.batches_per_epoch = options->epoch_batches > 0 ? options->epoch_batches : pass_batches(r);
        r->options.schedule.shared = options->sharers > 1;
        status = nw_schedule_make(&r->schedule, &r->options.schedule);
    }
    if (status == NW_OK) {
        r->ready = calloc((size_t)r->net->model.count, sizeof *r->ready);
        status = r->ready ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory for a table of stages");
    }
    if (status == NW_OK) nw_model_final_from(&r->net->model, r->ready);
    if (status != NW_OK) {
        nw_replica_free(r);
        return status;
    }
    *out = r;
    return NW_OK;
}

void nw_replica_free(nw_replica *r)
{
    if (!r) return;
    if (r->loader) nw_loader_free(r->loader);
    nw_history_free(r->history);
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
    nw_place *at = &r->at;
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

/* At the parameters that an artificial delay says, or at a copy where they may change meanwhile: weights are packed from
 * what `read` says, anew in every pass. */
static nw_status compute_gradient(nw_replica *r, const nw_batch *batch, nw_step_result *result)
{
    nw_pass *pass = &r->net->model.pass;
    nw_params *params = &r->net->model.params;
    const float *old = r->history ? nw_history_read(r->history) : NULL;
    if (r->history) r->delay = nw_history_delay(r->history);
    if (r->task->copy) {
        if (!r->task->adds || !r->copy) NW_TRY(copy_values(r)); /* all batches of a gradient are computed at the same ones */
        old = r->copy;
    }
    r->final = SIZE_MAX;
    r->spoilt = false;
    if (old) params->read = old;
    if (r->announce) pass->hook = (nw_stage_hook){after_stage, r};
    nw_status status = nw_net_gradients(r->net, batch->images, batch->labels, batch->n, r->task->adds, result);
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
    nw_place *at = &r->at;
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

nw_status nw_replica_update(nw_replica *r, const nw_task *task, nw_announce *announce)
{
    nw_net_announce(r->net, announce);
    nw_status status = update(r, task);
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

enum { NUMBERS = 20 };

static void list_numbers(nw_replica *r, int64_t *optimizer_steps, int64_t *average_steps,
                         nw_saved_number numbers[NUMBERS])
{
    nw_place *at = &r->at;
    const nw_saved_number all[NUMBERS] = {
        {"epoch", .whole = &at->epoch},
        {"batch", .whole = &at->batch},
        {"batches", .whole = &at->batches},
        {"steps", .whole = &at->steps},
        {"images", .whole = &at->images},
        {"pending", .whole = &at->pending},
        {"tally_loss", .real = &at->tally.loss},
        {"tally_images", .whole = &at->tally.images},
        {"tally_top1", .whole = &at->tally.top1},
        {"tally_top5", .whole = &at->tally.top5},
        {"gradient_loss", .real = &at->gradient.loss, .later = true},
        {"gradient_images", .whole = &at->gradient.images, .later = true},
        {"gradient_top1", .whole = &at->gradient.top1, .later = true},
        {"gradient_top5", .whole = &at->gradient.top5, .later = true},
        {"optimizer_steps", .whole = optimizer_steps},
        {"average_steps", .whole = average_steps}, /* -1: the average has not begun */
        {"first_loss", .real = &at->first_loss},
        {"mean_loss", .real = &at->mean_loss},
        {"watched", .whole = &at->watched},
        {"lr_factor", .real = &at->lr_factor},
    };
    memcpy(numbers, all, sizeof all);
}

int nw_replica_vectors(nw_replica *r, nw_saved_as as, nw_saved_vector vectors[NW_STATE_VECTORS])
{
    nw_params *p = &r->net->model.params;
    nw_ema *average = r->ema_running ? nw_net_average(r->net) : NULL;
    bool buffers = as != NW_SAVED_LEADER && p->running.floats > 0;
    int count = 0;
    if (as == NW_SAVED_STRANGER) vectors[count++] = (nw_saved_vector){"", &p->learned, p->values};
    if (buffers) vectors[count++] = (nw_saved_vector){"", &p->running, p->buffers};
    for (int i = 0; as != NW_SAVED_FOLLOWER && i < nw_optimizer_states(r->net->optimizer); i++) {
        nw_optimizer_state state = nw_optimizer_state_at(r->net->optimizer, i);
        vectors[count] = (nw_saved_vector){.segments = &p->learned, .data = state.data};
        snprintf(vectors[count++].prefix, sizeof vectors[0].prefix, "%s.", state.name);
    }
    if (average && as != NW_SAVED_FOLLOWER)
        vectors[count++] = (nw_saved_vector){"average.", &p->learned, average->values};
    if (average) vectors[count++] = (nw_saved_vector){"average.", &p->running, average->buffers};
    if (r->at.pending > 0) vectors[count++] = (nw_saved_vector){"pending.", &p->learned, p->gradients};
    return count;
}

static void file_name(char *name, size_t size, int index) { snprintf(name, size, "replica%d.safetensors", index); }

/* What a place in the data is counted in. Schedule and order of the images depend on it, too. */
static nw_status save_measure(const nw_replica *r, nw_checkpoint_writer *writer, int index)
{
    char key[96];
    snprintf(key, sizeof key, "replica%d.batch_size", index);
    NW_TRY(nw_checkpoint_add_int(writer, key, r->options.loader.batch_size));
    snprintf(key, sizeof key, "replica%d.epoch_batches", index);
    return nw_checkpoint_add_int(writer, key, pass_batches(r));
}

static nw_status read_measure(const nw_checkpoint *checkpoint, int index, int64_t *batch_size, int64_t *batches)
{
    char key[96];
    snprintf(key, sizeof key, "replica%d.batch_size", index);
    NW_TRY(nw_checkpoint_get_int(checkpoint, key, batch_size));
    snprintf(key, sizeof key, "replica%d.epoch_batches", index);
    return nw_checkpoint_get_int(checkpoint, key, batches);
}

static nw_status check_measure(const nw_replica *r, const nw_checkpoint *checkpoint, int index)
{
    int64_t batch_size, batches;
    NW_TRY(read_measure(checkpoint, index, &batch_size, &batches));
    NW_FAIL_IF(batch_size != r->options.loader.batch_size || batches != pass_batches(r), NW_E_ARGUMENT,
               "%s: an epoch was %lld batches of %lld images and would now be %lld of %d; give the batch size and data "
               "of the run that wrote it, or start a new run from its weights with --init",
               nw_checkpoint_path(checkpoint), (long long)batches, (long long)batch_size, (long long)pass_batches(r),
               r->options.loader.batch_size);
    return NW_OK;
}

nw_status nw_replica_save(nw_replica *r, nw_checkpoint_writer *writer, int index, nw_saved_as as)
{
    NW_TRY(save_measure(r, writer, index));
    char prefix[32], file[64];
    nw_saved_number numbers[NUMBERS];
    int64_t optimizer_steps = (int64_t)*nw_optimizer_steps(r->net->optimizer);
    int64_t average_steps = r->ema_running ? (int64_t)nw_net_average(r->net)->steps : -1;
    list_numbers(r, &optimizer_steps, &average_steps, numbers);
    snprintf(prefix, sizeof prefix, "replica%d.", index);
    NW_TRY(nw_checkpoint_add_numbers(writer, prefix, numbers, NUMBERS));
    nw_saved_vector vectors[NW_STATE_VECTORS];
    nw_saved_list list = {0};
    nw_status status = NW_OK;
    int count = nw_replica_vectors(r, as, vectors);
    for (int i = 0; i < count && status == NW_OK; i++)
        status = nw_saved_list_add_segments(&list, vectors[i].prefix, vectors[i].segments, vectors[i].data);
    file_name(file, sizeof file, index);
    if (status == NW_OK && count > 0) status = nw_checkpoint_add_tensors(writer, file, &list, NULL, 0);
    nw_saved_list_free(&list);
    NW_TRY(status);
    return r->history ? nw_history_save(r->history, writer, index) : NW_OK;
}

nw_status nw_replica_load(nw_replica *r, nw_checkpoint *checkpoint, int index, nw_saved_as as, bool same_world)
{
    if (same_world) NW_TRY(check_measure(r, checkpoint, index));
    char prefix[32], file[64];
    nw_saved_number numbers[NUMBERS];
    int64_t optimizer_steps, average_steps;
    list_numbers(r, &optimizer_steps, &average_steps, numbers);
    snprintf(prefix, sizeof prefix, "replica%d.", index);
    NW_TRY(nw_checkpoint_get_numbers(checkpoint, prefix, numbers, NUMBERS));
    *nw_optimizer_steps(r->net->optimizer) = (uint64_t)optimizer_steps;
    if (average_steps >= 0) {
        NW_FAIL_IF(!nw_net_average(r->net), NW_E_ARGUMENT,
                   "the checkpoint keeps an average of the weights, this run does not; give the same --ema-decay");
        nw_net_average(r->net)->steps = (uint64_t)average_steps;
        r->ema_running = true;
    }
    nw_saved_vector vectors[NW_STATE_VECTORS];
    int count = nw_replica_vectors(r, as, vectors);
    file_name(file, sizeof file, index);
    for (int i = 0; i < count; i++)
        NW_TRY(nw_checkpoint_read_segments(checkpoint, file, vectors[i].prefix, vectors[i].segments, vectors[i].data));
    NW_FAIL_IF(r->at.epoch < 0 || r->at.batch < 0 || (same_world && r->at.batch > nw_replica_batches(r)) ||
                   r->at.batches < 0 || r->at.pending < 0,
               NW_E_FILE, "%s: it cannot be at batch %lld of %lld in epoch %lld; take an earlier checkpoint",
               nw_checkpoint_path(checkpoint), (long long)r->at.batch, (long long)nw_replica_batches(r),
               (long long)r->at.epoch);
    return r->history ? nw_history_load(r->history, checkpoint, index, r->at.steps) : NW_OK;
}

nw_status nw_replica_move(nw_replica *r, nw_checkpoint *checkpoint, int index, int from_world, int to_world)
{
    int64_t batch_size, batches, all = nw_replica_batches(r), taken = (int64_t)r->options.loader.batch_size * to_world;
    NW_TRY(read_measure(checkpoint, index, &batch_size, &batches));
    int sharers = r->options.sharers > 1 ? from_world : 1;
    bool over = r->at.batch >=
                batches_before(batches, sharers, r->at.epoch + 1) - batches_before(batches, sharers, r->at.epoch);
    NW_FAIL_IF(batch_size < 1 || batch_size > INT32_MAX || r->at.batch > INT32_MAX, NW_E_FILE,
               "%s: no epoch has %lld batches of %lld images; take an earlier checkpoint",
               nw_checkpoint_path(checkpoint), (long long)r->at.batch, (long long)batch_size);
    int64_t seen = r->at.batch * batch_size * from_world, batch = (seen + taken - 1) / taken;
    r->at.batch = over || batch > all ? all : batch;
    r->at.batches = nw_replica_batches_before(r, r->at.epoch) + r->at.batch;
    r->at.pending = 0;
    r->at.gradient = (nw_tally){0};
    return NW_OK;
}
