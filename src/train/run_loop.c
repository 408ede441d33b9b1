/*
 * run_loop.c - the loop of a run: how far the ranks go each time, and what is done when they are quiescent (evaluation,
 * records, checkpoints). Reading order: nw_run_loop at the bottom, then what it calls.
 *
 * Ranks are quiescent where a checkpoint is due, when the run is asked to stop, and at its end; in lockstep also at the
 * end of an epoch, when all of them evaluate it together, and where replicas are compared. Without lockstep nobody
 * waits for anybody at the end of an epoch: rank 0 gets a snapshot of the parameters, which is evaluated while all go
 * on (run_evaluator.c); the epoch's record follows when it is done. Replicas that differ become the mean of all at the end
 * of the run.
 *
 * Outer steps (exchange local) go over the ends of epochs, where what they have made is evaluated; only the end of the
 * run drains.
 *
 * Order at the end of an epoch in lockstep: evaluate, send the epoch's record, go to the next epoch, write the
 * checkpoint. A run that is killed in between resumes before the evaluation and repeats it, so no record is missing and
 * none is there twice. After the last epoch there is no next one: the last checkpoint stands at its end, so that a run
 * killed between it and summary.json evaluates once more and writes the summary.
 */
#include "train/run_private.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An observer that fails is reported once and does not end the training. Of a run that has failed, its own sentence is
 * enough: often the cause is the same, a full disk. */
void nw_run_tell(run *r, nw_status status)
{
    if (status != NW_OK && !r->failed) nw_observers_message(&r->observers, nw_error_message());
}

void nw_run_tell_fault(run *r, const char *fault, const char *detail)
{
    nw_fault_record record;
    nw_record_clear(NW_RECORD_FAULT, &record);
    record.step = nw_replicas_updates(r->group);
    record.epoch = position(r)->epoch + 1;
    record.images = images_seen(r);
    record.fault = fault;
    record.detail = detail;
    nw_run_tell(r, nw_observers_fault(&r->observers, &record));
}

nw_status nw_run_add_images(run *r)
{
    nw_tally tally;
    NW_TRY(nw_replicas_tally(r->group, &tally, &r->images));
    r->first_images = position(r)->images;
    return NW_OK;
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static nw_status evaluate_on(run *r, nw_loader *loader, nw_tally *tally, bool *complete)
{
    return nw_replicas_evaluate(r->group, loader, r->options->both_views, tally, complete);
}

static void note_best(run *r, const nw_tally *tally, int64_t step, int64_t epoch)
{
    const nw_best_rule *rule = &r->options->best;
    double value = rule->by == NW_BEST_TOP1   ? nw_tally_top1(tally)
                   : rule->by == NW_BEST_TOP5 ? nw_tally_top5(tally)
                                              : -nw_tally_loss(tally);
    if (rule->none || !isfinite(value) || (isfinite(r->best) && value <= r->best)) return;
    r->best = value;
    r->best_step = step;
    r->best_epoch = epoch;
}

void nw_run_fill_results(run *r, const nw_results *results, nw_epoch_record *record)
{
    const nw_tally *test = &results->test, *validation = &results->validation, *train = &results->train;
    record->test_loss = nw_tally_loss(test);
    record->test_top1 = nw_tally_top1(test);
    record->test_top5 = nw_tally_top5(test);
    record->validation_loss = nw_tally_loss(validation);
    record->validation_top1 = nw_tally_top1(validation);
    record->validation_top5 = nw_tally_top5(validation);
    record->train_eval_loss = nw_tally_loss(train);
    record->train_eval_top1 = nw_tally_top1(train);
    record->train_eval_top5 = nw_tally_top5(train);
    if (record->epoch <= r->options->start_epoch) return; /* the initial model is no result of the run */
    note_best(r, r->options->best.validation ? validation : test, record->step, record->epoch);
    if (!(record->test_top1 <= r->best_top1)) r->best_top1 = record->test_top1;
    record->test_top1_best = r->best_top1;
    if (!r->options->best.none) record->best_epoch = r->best_epoch;
}

static nw_status evaluate_splits(run *r, nw_results *results, bool *complete)
{
    NW_TRY(nw_replicas_sync_norms(r->group));
    NW_TRY(evaluate_on(r, r->test, &results->test, complete));
    if (r->validation && *complete) NW_TRY(evaluate_on(r, r->validation, &results->validation, complete));
    if (r->train_eval && *complete) NW_TRY(evaluate_on(r, r->train_eval, &results->train, complete));
    return NW_OK;
}

/* Fills the record's test fields. *complete is false if the run was asked to stop meanwhile. */
static nw_status evaluate(run *r, nw_epoch_record *record, bool *complete)
{
    nw_results results = {0};
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_VALIDATION);
    NW_TRY(nw_replicas_show_outer(r->group));
    nw_status status = evaluate_splits(r, &results, complete);
    nw_replicas_hide_outer(r->group);
    NW_TRY(status);
    if (*complete) nw_run_fill_results(r, &results, record);
    return NW_OK;
}

/* ---- what the group tells
 * ----------------------------------------------------------------------------------------- */

/* Whether an epoch, from 0, is one that is evaluated. */
static bool is_evaluated(const run *r, int64_t epoch, bool last)
{
    return last || epoch == 0 || (epoch + 1) % r->options->eval_every == 0;
}

static void send_step(run *r, const nw_tally *tally, nw_step_record *record)
{
    int64_t now = nw_now_ns();
    record->loss = nw_tally_loss(tally);
    record->top1 = nw_tally_top1(tally);
    record->top5 = nw_tally_top5(tally);
    record->total_seconds = nw_phase_total_seconds(times(r));
    record->step_seconds = (double)(now - r->step_began) * 1e-9;
    record->images_per_second = (double)record->batch_images / record->step_seconds;
    record->virtual_seconds = nw_replicas_virtual_seconds(r->group);
    if (r->group->ledger) { /* of this process's ranks, since the step before */
        nw_account sent = nw_ledger_take_step(r->group->ledger);
        int64_t waited = r->group->driver->waited_ns;
        record->bytes_sent = (int64_t)nw_account_bytes(&sent);
        record->messages_sent = (int64_t)sent.messages;
        record->exchange_seconds = (double)(waited - r->waited_ns) * 1e-9;
        r->waited_ns = waited;
    }
    r->step_began = now;
    nw_replicas_hooks_loss(&r->group->hooks, record->step, nw_driver_now(r->group->driver, 0), record->loss);
    nw_run_tell(r, nw_observers_step(&r->observers, record));
}

/* Of the whole run. */
static int64_t total_updates(const run *r)
{
    const nw_run_options *o = r->options;
    int64_t all = nw_replicas_updates_of(r->group, o->epochs);
    return o->max_steps > 0 && o->max_steps < all ? o->max_steps : all;
}

/* What is done between updates here, and not in the background, is validation. */
static void pause_training(run *r)
{
    leave(r, NW_PHASE_TRAIN);
    enter(r, NW_PHASE_VALIDATION);
}

static void resume_training(run *r)
{
    leave(r, NW_PHASE_VALIDATION);
    enter(r, NW_PHASE_TRAIN);
    r->step_began = nw_now_ns();
}

/* Without lockstep, an epoch that is not the last one of the run is over. */
static nw_status begin_evaluation(run *r, double lr)
{
    pause_training(r);
    nw_status status = nw_run_evaluator(r, position(r)->epoch + 1, lr, is_evaluated(r, position(r)->epoch, false));
    resume_training(r);
    return status;
}

nw_status nw_run_updated(void *context, const nw_replicas_update *u)
{
    run *r = context;
    const nw_position *at = position(r);
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = u->updates;
    record.epoch = at->epoch + 1;
    record.images = images_seen(r);
    record.batch = at->batch;
    record.batch_images = u->images;
    record.lr = u->lr;
    if (u->delay >= 0) record.delay = u->delay;
    record.data_wait_seconds = (double)u->wait_ns * 1e-9;
    send_step(r, &u->tally, &record);
    if (nw_replicas_lockstep(r->group)) return NW_OK;
    if (u->epoch_over && u->updates < total_updates(r)) NW_TRY(begin_evaluation(r, u->lr));
    return nw_run_tell_evaluated(r, 0);
}

nw_status nw_run_snapshot(void *context, const nw_snapshot *snapshot)
{
    run *r = context;
    pause_training(r);
    nw_status status = nw_run_evaluate_values(r, snapshot->updates, snapshot->values);
    resume_training(r);
    return status;
}

void nw_run_dropped(void *context, int rank, bool back)
{
    run *r = context;
    char text[400];
    bool late = r->group && nw_faults_is_late(r->options->group.faults, rank);
    bool absent = late && nw_replicas_updates(r->group) == 0;
    snprintf(text, sizeof text,
             back     ? late ? "rank %d has joined" : "rank %d is back"
             : absent ? "rank %d is not there yet"
                      : "rank %d has sent nothing for too long and is dropped; the others go on without it (--timeout)",
             rank);
    size_t length = strlen(text);
    if (r->group && nw_replicas_keeps_constants(r->group))
        snprintf(text + length, sizeof text - length,
                 "; momentum keeps its eta and alpha, since those of the graph without it are not known");
    if (!leads(r)) return;
    nw_run_tell_fault(r, "peer", text);
    nw_observers_message(&r->observers, text);
}

int64_t nw_run_epochs_told(const run *r)
{
    int64_t finished = position(r)->epoch;
    if (nw_replicas_lockstep(r->group)) return finished;
    if (r->cases) return r->cases->record.epoch - 1;
    return finished + (nw_replicas_epoch_is_over(r->group) && nw_replicas_updates(r->group) < total_updates(r));
}

/* ---- how far to go ----------------------------------------------------------------------------------------------- */

/* The next multiple of `every` behind `done`; 0: there is none. */
static int64_t next_multiple(int64_t done, int64_t every) { return every > 0 ? (done / every + 1) * every : INT64_MAX; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* In lockstep: to the end of the epoch, with batches of a gradient that is not complete then, or to where something
 * is due before. */
static nw_go go_in_lockstep(const run *r)
{
    const nw_run_options *o = r->options;
    const nw_position *at = position(r);
    int64_t done = nw_replicas_updates(r->group), accumulation = o->group.replica.accumulation;
    int64_t left = nw_replicas_epoch_batches(r->group) - at->batch, rest = (at->pending + left) % accumulation;
    bool outer = r->group->members[0].machine->outer != NULL; /* outer steps do not begin anew with an epoch */
    nw_go go = {
        .until = done + (at->pending + left) / accumulation, .batches = left, .drain = !outer || is_last_epoch(r)};
    int64_t end = o->max_steps > 0 ? o->max_steps : INT64_MAX;
    int64_t due = least(end, next_multiple(done, o->checkpoint_every));
    if (nw_replicas_world(r->group) > 1) due = least(due, next_multiple(done, o->compare_every));
    if (due > go.until || (due == go.until && rest == 0)) return go;
    return (nw_go){.until = due, .batches = (due - done) * accumulation - at->pending, .drain = due == end};
}

/* Updates from one checkpoint to the next. Synchronously, an epoch of them. Otherwise a checkpoint costs each worker
 * the time until the slowest has used its credits, so that as many epochs pass that each has computed
 * GRADIENTS_BETWEEN_CHECKPOINTS meanwhile. */
enum { GRADIENTS_BETWEEN_CHECKPOINTS = 400 };
static int64_t updates_between_checkpoints(const run *r)
{
    const nw_run_options *o = r->options;
    const nw_exchange_options *e = &r->group->options.exchange;
    int64_t epoch = nw_replicas_updates_of(r->group, 1);
    int64_t fewest = e->sync ? 1 : (int64_t)GRADIENTS_BETWEEN_CHECKPOINTS * r->group->roles.replicas;
    if (o->checkpoint_every > 0) return o->checkpoint_every;
    return epoch > 0 ? (fewest + epoch - 1) / epoch * epoch : fewest;
}

/* After which updates before the end of the run epochs are over that are evaluated. */
static nw_status list_snapshots(run *r, nw_go *go)
{
    const nw_position *at = position(r);
    int64_t size = nw_replicas_epoch_batches(r->group), accumulation = r->options->group.replica.accumulation;
    int64_t epoch = at->epoch, batch = at->batch, updates = nw_replicas_updates(r->group), total = total_updates(r);
    int64_t most = (go->until - updates) * accumulation / size + 2;
    free(r->snapshots);
    NW_NEW(r->snapshots, most, "the ends of %lld epochs", (long long)most);
    go->snapshots = r->snapshots;
    for (;;) {
        epoch += batch / size;
        batch %= size;
        int64_t more = (size - batch + accumulation - 1) / accumulation;
        updates += more;
        batch += more * accumulation;
        if (updates > go->until || updates >= total) return NW_OK;
        if (is_evaluated(r, epoch, false)) r->snapshots[go->snapshot_count++] = updates;
    }
}

static nw_status next_go(run *r, nw_go *go)
{
    if (nw_replicas_lockstep(r->group)) {
        *go = go_in_lockstep(r);
        return NW_OK;
    }
    int64_t until =
        least(next_multiple(nw_replicas_updates(r->group), updates_between_checkpoints(r)), total_updates(r));
    *go = (nw_go){.until = until, .batches = INT64_MAX, .drain = until == total_updates(r)};
    return list_snapshots(r, go);
}

/* ---- quiescent --------------------------------------------------------------------------------------------------- */

/* All but the results. */
void nw_run_fill_epoch(run *r, int64_t epoch, const nw_tally *tally, double lr, nw_epoch_record *record)
{
    nw_phase_times now = times(r), lap = nw_phase_times_since(now, r->epoch_began);
    record->step = nw_replicas_updates(r->group);
    record->epoch = epoch;
    record->images = images_seen(r);
    record->lr = lr;
    record->train_loss = nw_tally_loss(tally);
    record->train_top1 = nw_tally_top1(tally);
    record->train_top5 = nw_tally_top5(tally);
    record->epoch_train_seconds = nw_phase_seconds(lap, NW_PHASE_TRAIN);
    record->epoch_validation_seconds = nw_phase_seconds(lap, NW_PHASE_VALIDATION);
    record->dawnbench_seconds = nw_phase_dawnbench_seconds(now);
    record->total_seconds = nw_phase_total_seconds(now);
    record->peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    record->virtual_seconds = nw_replicas_virtual_seconds(r->group);
    record->compression_ratio = nw_replicas_ratio(r->group);
    if (r->group->consensus_count > 0) record->consensus_distance = r->group->consensus;
    if (r->group->ledger) {
        nw_account sent = nw_ledger_total(r->group->ledger, NW_SENT);
        record->bytes_sent = (int64_t)nw_account_bytes(&sent);
    }
    r->epoch_began = now;
}

static nw_status tell_epoch(run *r, int64_t epoch, bool evaluated, bool *complete)
{
    const nw_position *at = position(r);
    nw_epoch_record record;
    nw_tally tally;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    record.step = nw_replicas_updates(r->group);
    record.epoch = epoch;
    *complete = true;
    if (evaluated) {
        NW_TRY(evaluate(r, &record, complete));
        if (!*complete) return NW_OK;
    }
    NW_TRY(nw_replicas_tally(r->group, &tally, &r->images));
    r->first_images = at->images;
    nw_run_fill_epoch(r, epoch, &tally, nw_replica_lr(first(r), at->batches - 1), &record);
    nw_run_tell(r, nw_observers_epoch(&r->observers, &record));
    r->epoch = record;
    return NW_OK;
}

/* Waits until at most so many evaluations are not done. Rank 0 tells the others again and again that it does.
 * *stop: the run was asked to stop meanwhile. */
enum { EVALUATED_NS = 200000000 }; /* for an evaluation, before they hear of it */
static nw_status await_evaluator(run *r, int most, bool *stop)
{
    bool behind = true;
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_VALIDATION);
    *stop = false;
    for (;;) {
        NW_TRY(nw_run_tell_evaluated(r, nw_run_evaluating(r) > most ? EVALUATED_NS : 0));
        NW_TRY(nw_replicas_agree(r->group, leads(r) && nw_run_evaluating(r) > most, &behind));
        if (!behind) return NW_OK;
        NW_TRY(nw_replicas_agree_to_stop(r->group, stop));
        if (*stop) return NW_OK;
    }
}

static nw_status interrupted(run *r)
{
    NW_TRY(nw_run_save(r));
    NW_TRY(nw_run_save_named(r));
    nw_run_tell_fault(r, "signal", "asked to stop; a checkpoint was written");
    long long step = nw_replicas_updates(r->group);
    const char *dir = r->options->run_dir;
    NW_FAIL_IF(!dir, NW_E_INTERRUPTED, "interrupted at step %lld; there is no checkpoint", step);
    return NW_FAIL(NW_E_INTERRUPTED, "interrupted at step %lld; continue with: nowait train --resume %s", step, dir);
}

/* In lockstep, at the end of an epoch or of the run. */
static nw_status end_epoch(run *r, bool *complete)
{
    bool last = reached_steps(r) || is_last_epoch(r);
    if (last) NW_TRY(nw_replicas_merge_outer(r->group));
    NW_TRY(tell_epoch(r, position(r)->epoch + 1, is_evaluated(r, position(r)->epoch, last), complete));
    if (!*complete) return NW_OK;
    r->ended = last;
    if (!last) NW_TRY(nw_replicas_end_epoch(r->group));
    if (last || r->options->checkpoint_every == 0 || r->best_step == nw_replicas_updates(r->group))
        NW_TRY(nw_run_save(r));
    return nw_run_save_named(r);
}

/* Without lockstep: the parameters that rank 0 has while nothing is under way are evaluated as those of an epoch. */
static nw_status evaluate_present(run *r, int64_t epoch)
{
    int64_t done = nw_replicas_updates(r->group);
    NW_TRY(
        nw_run_evaluator(r, epoch, nw_replica_lr(first(r), done * r->options->group.replica.accumulation - 1), true));
    return nw_run_evaluate_values(r, done, first(r)->net->model.params.values);
}

/* At the end of a run without lockstep: evaluates the last parameters, and waits for all evaluations. A run that is
 * killed meanwhile has its checkpoint. *complete is false if it was asked to stop. */
static nw_status end_evaluations(run *r, bool *complete)
{
    bool waiting, stop = false;
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_VALIDATION);
    if (leads(r) && r->evaluated_step != nw_replicas_updates(r->group)) /* else it was evaluated before a resume */
        NW_TRY(evaluate_present(r, position(r)->epoch + 1));
    NW_TRY(nw_run_tell_evaluated(r, EVALUATED_NS));
    NW_TRY(nw_replicas_agree(r->group, leads(r) && nw_run_evaluating(r) > 0, &waiting));
    if (waiting) NW_TRY(nw_run_save(r));
    NW_TRY(await_evaluator(r, 0, &stop));
    *complete = !stop;
    if (*complete && leads(r)) nw_run_keep_statistics(r);
    return NW_OK;
}

static nw_status end_run(run *r, bool *complete)
{
    NW_TRY(end_evaluations(r, complete));
    if (!*complete) return NW_OK;
    r->ended = true;
    NW_TRY(nw_run_save(r));
    return nw_run_save_named(r);
}

/* Whether there is nothing left to train before the end of the run, or, in lockstep, of this epoch. */
static bool is_at_end(const run *r)
{
    if (nw_replicas_lockstep(r->group)) return reached_steps(r) || nw_replicas_epoch_is_over(r->group);
    return nw_replicas_updates(r->group) >= total_updates(r);
}

/* Lets the group work until something is due, and does it. */
static nw_status train_on(run *r)
{
    const nw_run_options *o = r->options;
    bool lockstep = nw_replicas_lockstep(r->group), stop = false;
    nw_go go;
    if (!lockstep) NW_TRY(await_evaluator(r, EVALUATIONS_MOST, &stop));
    if (stop) return NW_OK;
    NW_TRY(next_go(r, &go));
    enter(r, NW_PHASE_TRAIN);
    r->step_began = nw_now_ns();
    nw_status status = nw_replicas_advance(r->group, &go);
    leave(r, NW_PHASE_TRAIN);
    NW_TRY(status);
    int64_t done = nw_replicas_updates(r->group);
    bool reached = done == go.until;
    if (!lockstep) {
        NW_TRY(nw_replicas_agree_on_position(r->group, &reached));
        NW_TRY(nw_replicas_sync_norms(r->group));
        if (is_at_end(r)) NW_TRY(nw_replicas_average(r->group)); /* replicas that differ */
        NW_TRY(nw_replicas_compare(r->group));
        if (!reached || is_at_end(r)) return NW_OK;
        NW_TRY(nw_run_tell_evaluated(r, 0));
        NW_TRY(nw_run_save(r));
        return nw_run_save_named(r);
    }
    if (o->compare_every > 0 && done % o->compare_every == 0) NW_TRY(nw_replicas_compare(r->group));
    return o->checkpoint_every > 0 && done % o->checkpoint_every == 0 ? nw_run_save(r) : NW_OK;
}

/* Evaluations that the run ended before it could make them. */
static nw_status open_evaluator(run *r)
{
    if (nw_replicas_lockstep(r->group)) return NW_OK;
    NW_TRY(nw_run_open_evaluator(r));
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_VALIDATION);
    return nw_run_submit_cases(r);
}

/* The initial model's record, where the run has trained nothing yet: until then, a run that goes on begins its files
 * anew. */
static nw_status tell_initial(run *r, bool *complete)
{
    *complete = true;
    if (!r->options->evaluate_first || nw_replicas_updates(r->group) > 0 || images_seen(r) > 0) return NW_OK;
    r->epoch_began = times(r);
    if (nw_replicas_lockstep(r->group)) return tell_epoch(r, position(r)->epoch, true, complete);
    if (!leads(r) || r->evaluated_step >= 0)
        return NW_OK; /* or it is waiting for its evaluation since before a resume */
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_VALIDATION);
    NW_TRY(nw_run_open_evaluator(r));
    NW_TRY(evaluate_present(r, position(r)->epoch));
    return nw_run_tell_evaluated(r, 0);
}

static nw_status loop(run *r)
{
    NW_TRY(open_evaluator(r));
    r->epoch_began = times(r);
    for (r->ended = false; !r->ended;) {
        bool stop, complete = true, lockstep = nw_replicas_lockstep(r->group);
        NW_TRY(nw_replicas_agree_to_stop(r->group, &stop));
        if (is_at_end(r) && !(stop && !lockstep))
            NW_TRY(lockstep ? end_epoch(r, &complete) : end_run(r, &complete));
        else if (!stop && !r->group->driver->over) /* a replay may end before the run did */
            NW_TRY(train_on(r));
        else
            complete = false;
        if (!complete) return interrupted(r);
    }
    return NW_OK;
}

nw_status nw_run_loop(run *r)
{
    const nw_run_options *o = r->options;
    bool complete;
    NW_TRY(tell_initial(r, &complete));
    if (!complete) return interrupted(r);
    for (;;) {
        nw_status status = loop(r);
        bool again = status == NW_E_NUMERIC && r->rolled_back < o->rollbacks && r->saved_count > 0;
        if (!again) return status;
        char why[512];
        snprintf(why, sizeof why, "%s", nw_error_message());
        NW_TRY(nw_run_roll_back(r, why));
    }
}
