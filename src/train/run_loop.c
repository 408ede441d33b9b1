/*
 * run_loop.c - the epochs of a run. Reading order: nw_run_loop at the bottom, then what it calls.
 *
 * Order at the end of an epoch: evaluate, send the epoch's record, go to the next epoch, write the checkpoint. A run
 * that is killed in between resumes before the evaluation and repeats it, so no record is missing and none is there
 * twice. After the last epoch there is no next one: the last checkpoint stands at its end, so that a run killed between
 * it and summary.json evaluates once more and writes the summary.
 */
#include "train/run_private.h"

#include <math.h>
#include <stdio.h>

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
    record.step = nw_crew_computed(r->crew);
    record.epoch = place(r)->epoch + 1;
    record.images = images_seen(r);
    record.fault = fault;
    record.detail = detail;
    nw_run_tell(r, nw_observers_fault(&r->observers, &record));
}

nw_status nw_run_add_images(run *r)
{
    nw_tally tally;
    NW_TRY(nw_crew_tally(r->crew, &tally, &r->images));
    r->first_images = place(r)->images;
    return NW_OK;
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static nw_status evaluate_on(run *r, nw_loader *loader, nw_tally *tally, bool *complete)
{
    return nw_crew_evaluate(r->crew, loader, r->options->both_views, tally, complete);
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
    note_best(r, r->options->best.validation ? validation : test, record->step, record->epoch);
    if (!(record->test_top1 <= r->best_top1)) r->best_top1 = record->test_top1;
    record->test_top1_best = r->best_top1;
    if (!r->options->best.none) record->best_epoch = r->best_epoch;
}

/* Fills the record's test fields. *complete is false if the run was asked to stop meanwhile. */
static nw_status evaluate(run *r, nw_epoch_record *record, bool *complete)
{
    nw_results results = {0};
    NW_TRY(nw_crew_sync_norms(r->crew));
    NW_TRY(evaluate_on(r, r->test, &results.test, complete));
    if (r->validation && *complete) NW_TRY(evaluate_on(r, r->validation, &results.validation, complete));
    if (r->train_eval && *complete) NW_TRY(evaluate_on(r, r->train_eval, &results.train, complete));
    if (*complete) nw_run_fill_results(r, &results, record);
    return NW_OK;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

void nw_run_send_step(run *r, const nw_tally *tally, nw_step_record *record)
{
    int64_t now = nw_now_ns();
    record->loss = nw_tally_loss(tally);
    record->top1 = nw_tally_top1(tally);
    record->top5 = nw_tally_top5(tally);
    record->total_seconds = nw_phase_total_seconds(times(r));
    record->batch_seconds = (double)(now - r->step_began) * 1e-9;
    record->images_per_second = (double)record->batch_images / record->batch_seconds;
    record->virtual_seconds = nw_crew_virtual_seconds(r->crew);
    if (r->crew->ledger) { /* of this process's ranks, since the step before */
        nw_account sent = nw_ledger_take_step(r->crew->ledger);
        int64_t waited = r->crew->driver->waited_ns;
        record->bytes_sent = (int64_t)nw_account_bytes(&sent);
        record->messages_sent = (int64_t)sent.messages;
        record->exchange_seconds = (double)(waited - r->waited_ns) * 1e-9;
        r->waited_ns = waited;
    }
    r->step_began = now;
    nw_crew_taps_loss(&r->crew->taps, record->step, nw_driver_now(r->crew->driver, 0), record->loss);
    nw_run_tell(r, nw_observers_step(&r->observers, record));
}

/* The crew calls this after each batch of rank 0. A batch that completes a gradient belongs to the step that applies it. */
void nw_run_tell_step(void *context, const nw_replica *replica, const nw_replica_step *step)
{
    run *r = context;
    const nw_place *at = &replica->at;
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = nw_crew_computed(r->crew) - (step->update_due ? 0 : 1);
    record.epoch = at->epoch + 1;
    record.images = images_seen(r);
    record.batch = at->batch;
    record.batch_images = (int64_t)step->result.images * nw_crew_world(r->crew);
    nw_tally tally = {0};
    nw_tally_add(&tally, &step->result, r->options->crew.replica.net.loss_sum);
    record.lr = nw_replica_lr(replica);
    if (replica->history) record.delay = step->delay;
    record.data_wait_seconds = (double)step->wait_ns * 1e-9;
    nw_run_send_step(r, &tally, &record);
}

/* The step before which the crew rests: the last one, or one after which something is due. */
static int64_t next_rest(const run *r)
{
    const nw_run_options *o = r->options;
    int64_t done = nw_crew_computed(r->crew), next = o->max_steps > 0 ? o->max_steps : INT64_MAX;
    int64_t every[] = {o->checkpoint_every, nw_crew_world(r->crew) > 1 ? o->compare_every : 0};
    for (int i = 0; i < 2; i++)
        if (every[i] > 0 && (done / every[i] + 1) * every[i] < next) next = (done / every[i] + 1) * every[i];
    return next;
}

/* Lets the crew work until something is due, and does it. */
static nw_status train_on(run *r)
{
    const nw_run_options *o = r->options;
    int64_t before = nw_crew_computed(r->crew);
    enter(r, NW_PHASE_TRAIN);
    r->step_began = nw_now_ns();
    nw_status status = nw_crew_advance(r->crew, next_rest(r));
    if (status == NW_OK && (nw_crew_epoch_is_over(r->crew) || reached_steps(r))) status = nw_crew_flush(r->crew);
    leave(r, NW_PHASE_TRAIN);
    NW_TRY(status);
    int64_t done = nw_crew_computed(r->crew);
    if (done == before) return NW_OK;
    if (o->compare_every > 0 && done % o->compare_every == 0) NW_TRY(nw_crew_compare(r->crew));
    return o->checkpoint_every > 0 && done % o->checkpoint_every == 0 ? nw_run_save(r) : NW_OK;
}

/* Batches until the epoch is over, the steps are done, or the run is asked to stop. */
static nw_status train_epoch(run *r, bool *epoch_over)
{
    bool stop;
    *epoch_over = false;
    NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    while (!stop && !reached_steps(r) && !nw_crew_epoch_is_over(r->crew)) {
        NW_TRY(train_on(r));
        NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    }
    *epoch_over = nw_crew_epoch_is_over(r->crew);
    return NW_OK;
}

bool nw_run_evaluates(const run *r, int64_t epoch, bool last)
{
    return last || epoch == 0 || (epoch + 1) % r->options->eval_every == 0;
}

/* All but the results. */
void nw_run_fill_epoch(run *r, const nw_tally *tally, double lr, nw_epoch_record *record)
{
    nw_phase_times now = times(r), lap = nw_phase_times_since(now, r->epoch_began);
    record->step = nw_crew_hands_out(r->crew) ? place(r)->steps : nw_crew_computed(r->crew);
    record->epoch = place(r)->epoch + 1;
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
    record->virtual_seconds = nw_crew_virtual_seconds(r->crew);
    if (r->crew->ledger) {
        nw_account sent = nw_ledger_total(r->crew->ledger, NW_SENT);
        record->bytes_sent = (int64_t)nw_account_bytes(&sent);
    }
    r->epoch_began = now;
}

static nw_status tell_epoch(run *r, bool last, bool *complete)
{
    const nw_place *at = place(r);
    nw_epoch_record record;
    nw_tally tally;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    record.step = nw_crew_computed(r->crew);
    record.epoch = at->epoch + 1;
    *complete = true;
    if (nw_run_evaluates(r, at->epoch, last)) {
        enter(r, NW_PHASE_VALIDATION);
        nw_status status = evaluate(r, &record, complete);
        leave(r, NW_PHASE_VALIDATION);
        NW_TRY(status);
        if (!*complete) return NW_OK;
    }
    NW_TRY(nw_crew_tally(r->crew, &tally, &r->images));
    r->first_images = at->images;
    nw_run_fill_epoch(r, &tally, nw_replica_lr(first(r)), &record);
    nw_run_tell(r, nw_observers_epoch(&r->observers, &record));
    r->epoch = record;
    return NW_OK;
}

nw_status nw_run_interrupted(run *r)
{
    NW_TRY(nw_run_save(r));
    NW_TRY(nw_run_save_named(r));
    nw_run_tell_fault(r, "signal", "asked to stop; a checkpoint was written");
    long long step = nw_crew_computed(r->crew);
    const char *dir = r->options->run_dir;
    NW_FAIL_IF(!dir, NW_E_INTERRUPTED, "interrupted at step %lld; there is no checkpoint", step);
    return NW_FAIL(NW_E_INTERRUPTED, "interrupted at step %lld; continue with: nowait train --resume %s", step, dir);
}

static nw_status loop(run *r)
{
    const nw_run_options *o = r->options;
    r->epoch_began = times(r);
    r->ended = false;
    while (!r->ended) {
        bool epoch_over, complete = true;
        NW_TRY(train_epoch(r, &epoch_over));
        if (!epoch_over && !reached_steps(r)) return nw_run_interrupted(r);
        bool last = reached_steps(r) || is_last_epoch(r);
        NW_TRY(tell_epoch(r, last, &complete));
        if (!complete) return nw_run_interrupted(r);
        r->ended = last;
        if (!last) NW_TRY(nw_crew_end_epoch(r->crew));
        if (last || o->checkpoint_every == 0 || r->best_step == nw_crew_computed(r->crew)) NW_TRY(nw_run_save(r));
        NW_TRY(nw_run_save_named(r));
    }
    return NW_OK;
}

nw_status nw_run_loop(run *r)
{
    const nw_run_options *o = r->options;
    for (;;) {
        nw_status status = nw_crew_hands_out(r->crew) ? nw_run_loop_handed(r) : loop(r);
        bool again = status == NW_E_NUMERIC && r->rolled_back < o->rollbacks && r->saved_count > 0;
        if (!again) return status;
        char why[512];
        snprintf(why, sizeof why, "%s", nw_error_message());
        NW_TRY(nw_run_roll_back(r, why));
    }
}
