/*
 * run.c - see run.h. Reading order: nw_run_train at the bottom, then the loop above it, then what the loop calls.
 *
 * Order at the end of an epoch: evaluate, send the epoch's record, go to the next epoch, write the checkpoint. A run
 * that is killed in between resumes before the evaluation and repeats it, so no record is missing and none is there
 * twice. After the last epoch there is no next one: the last checkpoint stands at its end, so that a run killed between
 * it and summary.json evaluates once more and writes the summary.
 */
#include "train/run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { SAVED_STEPS = 8 };

typedef struct run {
    const nw_run_options *options;
    nw_run_result *result;
    nw_observers observers;
    nw_crew *crew;
    nw_recorder *recorder;                     /* NULL: nothing to record */
    nw_loader *test, *validation, *train_eval; /* NULL where there is none */
    nw_epoch_record epoch;                     /* the last one sent */
    double best;                               /* by the rule; NAN: none yet */
    double best_top1;                          /* of the test split, whatever the rule */
    int64_t best_step, best_epoch;
    int64_t saved_step, saved_epoch; /* place of the last checkpoint in the run's directory; -1: none */
    int rolled_back;                 /* times */
    int64_t diverged_step;           /* where it last did so; -1: nowhere */
    int again;                       /* times that it did so without getting past that step */
    int64_t saved[SAVED_STEPS];      /* steps of the last checkpoints of this run that are there, the newest first */
    int saved_count;
    bool ended, saved_ended;      /* the last epoch's record was sent; the same of that checkpoint */
    nw_phase_times epoch_began;   /* the watch at the start of this epoch, in this process */
    int64_t step_began;           /* when the batch under way did */
    int64_t images, first_images; /* of all replicas, and of the first, when they were last added up */
    int64_t waited_ns;            /* for messages, until the last step's record */
    nw_account sent;              /* by all ranks, at the end */
    const char *note;             /* about the checkpoint that it continues; NULL: none */
    char *dump_dir;               /* of the driver, or NULL */
    nw_cpu_ticks ticks;
    int lock; /* on the run's directory; -1: none */
} run;

/* Keys of the phases' times in a checkpoint, in the order of nw_phase. */
static const char *const phases[NW_PHASES] = {"other_ns", "preprocess_ns", "train_ns", "validation_ns",
                                              "checkpoint_ns"};

static nw_replica *first(const run *r) { return nw_crew_first(r->crew); }
static const nw_place *place(const run *r) { return &first(r)->at; }
static bool leads(const run *r) { return nw_crew_leads(r->crew); }

static int64_t finished_epochs(const run *r) { return place(r)->epoch + (r->ended && nw_crew_epoch_is_over(r->crew)); }
static bool is_last_epoch(const run *r) { return place(r)->epoch + 1 >= r->options->epochs; }
static bool reached_steps(const run *r)
{
    return r->options->max_steps > 0 && nw_crew_computed(r->crew) >= r->options->max_steps;
}
/* Seen by all replicas; between two sums, as if all had as many as the first. */
static int64_t images_seen(const run *r)
{
    return r->images + (place(r)->images - r->first_images) * nw_crew_world(r->crew);
}

static void enter(run *r, nw_phase phase) { nw_stopwatch_enter(r->options->watch, phase, nw_now_ns()); }
static void leave(run *r, nw_phase phase) { nw_stopwatch_leave(r->options->watch, phase, nw_now_ns()); }
static nw_phase_times times(const run *r) { return nw_stopwatch_read(r->options->watch, nw_now_ns()); }

/* An observer that fails is reported once and does not end the training. */
static void tell(run *r, nw_status status)
{
    if (status != NW_OK) nw_observers_message(&r->observers, nw_error_message());
}

static void tell_fault(run *r, const char *fault, const char *detail)
{
    nw_fault_record record;
    nw_record_clear(NW_RECORD_FAULT, &record);
    record.step = nw_crew_computed(r->crew);
    record.epoch = place(r)->epoch + 1;
    record.images = images_seen(r);
    record.fault = fault;
    record.detail = detail;
    tell(r, nw_observers_fault(&r->observers, &record));
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

/* What a program needs to know to use the weights without the dataset at hand. */
static nw_status add_dataset(nw_checkpoint_writer *w, const nw_dataset *d)
{
    NW_TRY(nw_checkpoint_add_text(w, "dataset", d->name));
    NW_TRY(nw_checkpoint_add_int(w, "classes", d->classes));
    NW_TRY(nw_checkpoint_add_int(w, "channels", d->channels));
    NW_TRY(nw_checkpoint_add_int(w, "height", d->height));
    NW_TRY(nw_checkpoint_add_int(w, "width", d->width));
    for (int c = 0; c < d->channels && c < 4; c++) {
        char key[32];
        snprintf(key, sizeof key, "mean%d", c);
        NW_TRY(nw_checkpoint_add_double(w, key, (double)d->mean[c]));
        snprintf(key, sizeof key, "deviation%d", c);
        NW_TRY(nw_checkpoint_add_double(w, key, (double)d->deviation[c]));
    }
    if (!d->class_names) return NW_OK;
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    NW_FAIL_IF(!out, NW_E_MEMORY, "no memory for the names of the classes");
    for (int i = 0; i < d->classes; i++) fprintf(out, "%s\n", d->class_names[i]);
    if (fclose(out) != 0) {
        free(text);
        return NW_FAIL(NW_E_MEMORY, "no memory for the names of the classes");
    }
    nw_status status = nw_checkpoint_add_file(w, "classes.txt", text, bytes);
    free(text);
    return status;
}

static nw_status add_state(run *r, nw_checkpoint_writer *w)
{
    const nw_run_options *o = r->options;
    nw_phase_times t = times(r);
    if (o->config) NW_TRY(nw_checkpoint_add_file(w, NW_CHECKPOINT_CONFIG, o->config, strlen(o->config)));
    NW_TRY(add_dataset(w, o->dataset));
    if (o->run_dir) NW_TRY(nw_checkpoint_add_text(w, "run_dir", o->run_dir));
    NW_TRY(nw_checkpoint_add_double(w, "best", r->best));
    NW_TRY(nw_checkpoint_add_double(w, "best_top1", r->best_top1));
    NW_TRY(nw_checkpoint_add_int(w, "best_step", r->best_step));
    NW_TRY(nw_checkpoint_add_int(w, "best_epoch", r->best_epoch));
    NW_TRY(nw_checkpoint_add_int(w, "ended", r->ended));
    for (int i = 0; i < NW_PHASES; i++) NW_TRY(nw_checkpoint_add_int(w, phases[i], t.ns[i]));
    return NW_OK;
}

static nw_status write_files(run *r, const char *path)
{
    const nw_net *net = first(r)->net;
    nw_checkpoint_info info = {
        .step = nw_crew_computed(r->crew), .epoch = finished_epochs(r), .seed = r->options->crew.replica.net.seed};
    snprintf(info.model, sizeof info.model, "%s", r->options->crew.replica.net.model);
    snprintf(info.precision, sizeof info.precision, "%s", nw_net_precision(net));
    snprintf(info.isa, sizeof info.isa, "%s", nw_net_isa(net));
    nw_net_weights_sha256(net, info.weights_sha256);
    nw_checkpoint_writer *w;
    NW_TRY(nw_checkpoint_begin(&w, path, &info));
    add_state(r, w); /* the first failure sticks, and commit returns it */
    nw_status status = nw_crew_save(r->crew, w);
    if (status == NW_OK) return nw_checkpoint_commit(w);
    nw_checkpoint_cancel(w);
    return status;
}

/* Remembers a checkpoint, and forgets those that go. */
static void note_saved(run *r, int64_t step)
{
    int most = r->options->keep > 0 && r->options->keep < SAVED_STEPS ? r->options->keep : SAVED_STEPS;
    if (r->saved_count > 0 && r->saved[0] == step) return;
    memmove(r->saved + 1, r->saved, (SAVED_STEPS - 1) * sizeof r->saved[0]);
    r->saved[0] = step;
    if (r->saved_count < most) r->saved_count++;
}

/* All ranks call: rank 0 writes what the others bring. */
static nw_status write_checkpoint(run *r, const char *path)
{
    NW_TRY(leads(r) ? write_files(r, path) : nw_crew_save(r->crew, NULL));
    nw_recorder_saved(r->recorder, nw_crew_computed(r->crew), finished_epochs(r));
    return NW_OK;
}

/* The run's own checkpoint of this step; old ones go. */
static nw_status save(run *r)
{
    const nw_run_options *o = r->options;
    const nw_place *at = place(r);
    int64_t step = nw_crew_computed(r->crew);
    bool saved = r->saved_step == step && r->saved_epoch == at->epoch && r->saved_ended == r->ended;
    if (!o->run_dir || saved) return NW_OK;
    nw_checkpoint_record record;
    nw_record_clear(NW_RECORD_CHECKPOINT, &record);
    char *path = NULL;
    int64_t start = nw_now_ns();
    enter(r, NW_PHASE_CHECKPOINT);
    nw_crew_beat(r->crew, NW_RANK_CHECKPOINTING, "");
    nw_status status = nw_checkpoint_step_path(&path, o->run_dir, step);
    if (status == NW_OK) {
        status = write_checkpoint(r, path);
        if (status == NW_OK && leads(r)) status = nw_checkpoint_prune(o->run_dir, o->keep, r->best_step);
    }
    leave(r, NW_PHASE_CHECKPOINT);
    if (status == NW_OK) {
        r->saved_step = record.step = step;
        r->saved_epoch = at->epoch;
        r->saved_ended = r->ended;
        note_saved(r, step);
        record.epoch = finished_epochs(r);
        record.images = images_seen(r);
        record.path = path;
        record.is_best = r->best_step == record.step;
        record.write_seconds = (double)(nw_now_ns() - start) * 1e-9;
        tell(r, nw_observers_checkpoint(&r->observers, &record));
    }
    free(path);
    return status;
}

static nw_status save_named(run *r)
{
    if (!r->options->name_checkpoint) return NW_OK;
    enter(r, NW_PHASE_CHECKPOINT);
    nw_status status = write_checkpoint(r, r->options->name_checkpoint);
    leave(r, NW_PHASE_CHECKPOINT);
    return status;
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static nw_status evaluate_on(run *r, nw_loader *loader, nw_tally *tally, bool *complete)
{
    return nw_crew_evaluate(r->crew, loader, r->options->both_views, tally, complete);
}

static void note_best(run *r, const nw_tally *tally)
{
    const nw_best_rule *rule = &r->options->best;
    double value = rule->by == NW_BEST_TOP1   ? nw_tally_top1(tally)
                   : rule->by == NW_BEST_TOP5 ? nw_tally_top5(tally)
                                              : -nw_tally_loss(tally);
    if (rule->none || !isfinite(value) || (isfinite(r->best) && value <= r->best)) return;
    r->best = value;
    r->best_step = nw_crew_computed(r->crew);
    r->best_epoch = place(r)->epoch + 1;
}

/* Fills the record's test fields. *complete is false if the run was asked to stop meanwhile. */
static nw_status evaluate(run *r, nw_epoch_record *record, bool *complete)
{
    nw_tally test = {0}, validation = {0}, train = {0};
    NW_TRY(nw_crew_sync_norms(r->crew));
    NW_TRY(evaluate_on(r, r->test, &test, complete));
    if (r->validation && *complete) NW_TRY(evaluate_on(r, r->validation, &validation, complete));
    if (r->train_eval && *complete) NW_TRY(evaluate_on(r, r->train_eval, &train, complete));
    if (!*complete) return NW_OK;
    record->test_loss = nw_tally_loss(&test);
    record->test_top1 = nw_tally_top1(&test);
    record->test_top5 = nw_tally_top5(&test);
    record->validation_loss = nw_tally_loss(&validation);
    record->validation_top1 = nw_tally_top1(&validation);
    record->validation_top5 = nw_tally_top5(&validation);
    record->train_eval_loss = nw_tally_loss(&train);
    record->train_eval_top1 = nw_tally_top1(&train);
    record->train_eval_top5 = nw_tally_top5(&train);
    note_best(r, r->options->best.validation ? &validation : &test);
    if (!(record->test_top1 <= r->best_top1)) r->best_top1 = record->test_top1;
    record->test_top1_best = r->best_top1;
    if (!r->options->best.none) record->best_epoch = r->best_epoch;
    return NW_OK;
}

/* ---- the loop ---------------------------------------------------------------------------------------------------- */

/* The crew calls this after each batch of rank 0. A batch that completes a gradient belongs to the step that applies it. */
static void tell_step(void *context, const nw_replica *replica, const nw_replica_step *step)
{
    run *r = context;
    const nw_place *at = &replica->at;
    int64_t now = nw_now_ns();
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = nw_crew_computed(r->crew) - (step->update_due ? 0 : 1);
    record.epoch = at->epoch + 1;
    record.images = images_seen(r);
    record.batch = at->batch;
    record.batch_images = (int64_t)step->result.images * nw_crew_world(r->crew);
    nw_tally tally = {0};
    nw_tally_add(&tally, &step->result, r->options->crew.replica.net.loss_sum);
    record.loss = nw_tally_loss(&tally);
    record.top1 = nw_tally_top1(&tally);
    record.top5 = nw_tally_top5(&tally);
    record.lr = nw_replica_lr(replica);
    record.total_seconds = nw_phase_total_seconds(times(r));
    record.step_seconds = (double)(now - r->step_began) * 1e-9;
    record.data_wait_seconds = (double)step->wait_ns * 1e-9;
    record.images_per_second = (double)record.batch_images / record.step_seconds;
    record.virtual_seconds = nw_crew_virtual_seconds(r->crew);
    if (r->crew->ledger) { /* of this process's ranks, since the step before */
        nw_account sent = nw_ledger_take_step(r->crew->ledger);
        int64_t waited = r->crew->driver->waited_ns;
        record.bytes_sent = (int64_t)nw_account_bytes(&sent);
        record.messages_sent = (int64_t)sent.messages;
        record.exchange_seconds = (double)(waited - r->waited_ns) * 1e-9;
        r->waited_ns = waited;
    }
    r->step_began = now;
    tell(r, nw_observers_step(&r->observers, &record));
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
    return o->checkpoint_every > 0 && done % o->checkpoint_every == 0 ? save(r) : NW_OK;
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

static nw_status tell_epoch(run *r, bool last, bool *complete)
{
    const nw_place *at = place(r);
    nw_epoch_record record;
    nw_tally tally;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    *complete = true;
    if (last || at->epoch == 0 || (at->epoch + 1) % r->options->eval_every == 0) {
        enter(r, NW_PHASE_VALIDATION);
        nw_crew_beat(r->crew, NW_RANK_EVALUATING, "");
        nw_status status = evaluate(r, &record, complete);
        leave(r, NW_PHASE_VALIDATION);
        NW_TRY(status);
        if (!*complete) return NW_OK;
    }
    NW_TRY(nw_crew_tally(r->crew, &tally, &r->images));
    r->first_images = at->images;
    nw_phase_times now = times(r), lap = nw_phase_times_since(now, r->epoch_began);
    record.step = nw_crew_computed(r->crew);
    record.epoch = at->epoch + 1;
    record.images = r->images;
    record.lr = nw_replica_lr(first(r));
    record.train_loss = nw_tally_loss(&tally);
    record.train_top1 = nw_tally_top1(&tally);
    record.train_top5 = nw_tally_top5(&tally);
    record.epoch_train_seconds = nw_phase_seconds(lap, NW_PHASE_TRAIN);
    record.epoch_validation_seconds = nw_phase_seconds(lap, NW_PHASE_VALIDATION);
    record.dawnbench_seconds = nw_phase_dawnbench_seconds(now);
    record.total_seconds = nw_phase_total_seconds(now);
    record.peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    record.virtual_seconds = nw_crew_virtual_seconds(r->crew);
    if (r->crew->ledger) {
        nw_account sent = nw_ledger_total(r->crew->ledger, NW_SENT);
        record.bytes_sent = (int64_t)nw_account_bytes(&sent);
    }
    tell(r, nw_observers_epoch(&r->observers, &record));
    r->epoch_began = now;
    r->epoch = record;
    return NW_OK;
}

static nw_status interrupted(run *r)
{
    NW_TRY(save(r));
    NW_TRY(save_named(r));
    tell_fault(r, "signal", "asked to stop; a checkpoint was written");
    NW_FAIL_IF(!r->options->run_dir, NW_E_INTERRUPTED, "interrupted at step %lld; there is no checkpoint",
               (long long)nw_crew_computed(r->crew));
    return NW_FAIL(NW_E_INTERRUPTED, "interrupted at step %lld; continue with: nowait train --resume %s",
                   (long long)nw_crew_computed(r->crew), r->options->run_dir);
}

static nw_status loop(run *r)
{
    const nw_run_options *o = r->options;
    r->epoch_began = times(r);
    r->ended = false;
    while (!r->ended) {
        bool epoch_over, complete = true;
        NW_TRY(train_epoch(r, &epoch_over));
        if (!epoch_over && !reached_steps(r)) return interrupted(r);
        bool last = reached_steps(r) || is_last_epoch(r);
        NW_TRY(tell_epoch(r, last, &complete));
        if (!complete) return interrupted(r);
        r->ended = last;
        if (!last) NW_TRY(nw_crew_end_epoch(r->crew));
        if (last || o->checkpoint_every == 0 || r->best_step == nw_crew_computed(r->crew)) NW_TRY(save(r));
        NW_TRY(save_named(r));
    }
    return NW_OK;
}

/* Reads what the run itself keeps in a checkpoint. */
static nw_status load_best(run *r, const nw_checkpoint *c)
{
    int64_t ended = 0;
    NW_TRY(nw_checkpoint_get_double(c, "best", &r->best));
    NW_TRY(nw_checkpoint_get_double(c, "best_top1", &r->best_top1));
    NW_TRY(nw_checkpoint_get_int(c, "best_step", &r->best_step));
    NW_TRY(nw_checkpoint_get_int(c, "best_epoch", &r->best_epoch));
    if (nw_checkpoint_has(c, "ended")) NW_TRY(nw_checkpoint_get_int(c, "ended", &ended));
    r->ended = ended != 0;
    return NW_OK;
}

static nw_status add_images(run *r)
{
    nw_tally tally;
    NW_TRY(nw_crew_tally(r->crew, &tally, &r->images));
    r->first_images = place(r)->images;
    return NW_OK;
}

/* Back to the last checkpoint, with a lower rate. If that did not help before, its weights are to blame: to the one before.
 * All ranks get here together. */
static nw_status roll_back(run *r, const char *why)
{
    const nw_run_options *o = r->options;
    nw_checkpoint *c;
    char text[1024], *path;
    double factor = pow(o->rollback_lr, ++r->rolled_back);
    int64_t step = nw_crew_computed(r->crew);
    r->again = step > r->diverged_step ? 0 : r->again + 1;
    if (step > r->diverged_step) r->diverged_step = step;
    int back = r->again < r->saved_count ? r->again : r->saved_count - 1;
    NW_TRY(nw_checkpoint_step_path(&path, o->run_dir, r->saved[back]));
    nw_status opened = nw_checkpoint_open(&c, path);
    free(path);
    NW_TRY(opened);
    snprintf(text, sizeof text, "%s; went back to step %lld, with learning rates times %g", why,
             (long long)nw_checkpoint_get_info(c)->step, factor);
    tell_fault(r, "rollback", text);
    nw_observers_message(&r->observers, text);
    nw_recorder_close(r->recorder, false); /* a schedule knows no way back: what follows is not recorded */
    nw_status status = nw_crew_go_back(r->crew, c, factor);
    if (status == NW_OK) status = load_best(r, c);
    nw_checkpoint_close(c);
    NW_TRY(status);
    r->saved_step = -1;
    r->saved_count -= back; /* the newer ones will be written again */
    memmove(r->saved, r->saved + back, (size_t)r->saved_count * sizeof r->saved[0]);
    return add_images(r);
}

static nw_status loop_with_rollbacks(run *r)
{
    const nw_run_options *o = r->options;
    for (;;) {
        nw_status status = loop(r);
        bool again = status == NW_E_NUMERIC && r->rolled_back < o->rollbacks && r->saved_count > 0;
        if (!again) return status;
        char why[512];
        snprintf(why, sizeof why, "%s", nw_error_message());
        NW_TRY(roll_back(r, why));
    }
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

/* A checkpoint that the run continues from is its own if it lies in its directory. */
static void note_own_checkpoint(run *r, const nw_checkpoint *c)
{
    char *path;
    int64_t step = nw_checkpoint_get_info(c)->step;
    if (nw_checkpoint_step_path(&path, r->options->run_dir, step) != NW_OK) return;
    if (nw_checkpoint_exists(path)) note_saved(r, step);
    free(path);
}

static nw_status load_checkpoint(run *r, nw_checkpoint *c)
{
    NW_FAIL_IF(nw_checkpoint_is_bare(c), NW_E_FILE,
               "%s holds weights only, not the state of a run; --init starts a new run from them",
               nw_checkpoint_path(c));
    NW_TRY(nw_crew_load(r->crew, c, &r->note));
    NW_TRY(load_best(r, c));
    if (r->options->run_dir) note_own_checkpoint(r, c);
    nw_phase_times before = {0};
    for (int i = 0; i < NW_PHASES; i++) NW_TRY(nw_checkpoint_get_int(c, phases[i], &before.ns[i]));
    for (int i = 0; i < NW_PHASES; i++) r->options->watch->times.ns[i] += before.ns[i];
    return NW_OK;
}

static void tell_differences(run *r, const nw_checkpoint *c)
{
    const nw_checkpoint_info *info = nw_checkpoint_get_info(c);
    const nw_net *net = first(r)->net;
    char text[256];
    if (nw_checkpoint_note(c)) nw_observers_message(&r->observers, nw_checkpoint_note(c));
    if (r->note) nw_observers_message(&r->observers, r->note);
    if (strcmp(info->isa, nw_net_isa(net)) == 0 && strcmp(info->precision, nw_net_precision(net)) == 0) return;
    snprintf(text, sizeof text,
             "the checkpoint was written with %s, %s; with %s, %s this run goes on, but not bit for bit", info->isa,
             info->precision, nw_net_isa(net), nw_net_precision(net));
    nw_observers_message(&r->observers, text);
}

static nw_status start_from_weights(run *r, const char *path)
{
    nw_checkpoint *c;
    NW_TRY(nw_checkpoint_open(&c, path));
    nw_status status = NW_OK;
    for (int i = 0; i < r->crew->count && status == NW_OK; i++) {
        nw_net *net = r->crew->members[i].replica->net;
        status = nw_checkpoint_read_model(c, r->options->crew.replica.net.model, &net->model.params, NULL);
    }
    nw_checkpoint_close(c);
    return status;
}

static nw_status make_loader(run *r, nw_split split, int batch_size, nw_loader **loader)
{
    const nw_run_options *o = r->options;
    nw_loader_options options = {.dataset = o->dataset,
                                 .split = split,
                                 .batch_size = batch_size,
                                 .augment = o->test_augment,
                                 .workers = o->workers,
                                 .decode = nw_image_decode};
    if (o->crew.place == NW_CREW_MPI) { /* each rank evaluates its share */
        options.rank = o->crew.exchange.rank;
        options.world = o->crew.world > 1 ? o->crew.world : 0;
    }
    return nw_loader_create(loader, &options);
}

static nw_status prepare(run *r, nw_checkpoint *c)
{
    const nw_run_options *o = r->options;
    nw_crew_options crew = o->crew;
    crew.driver.stop = o->stop;
    crew.stepped = tell_step;
    crew.context = r;
    crew.beats_dir = o->run_dir;
    if (o->run_dir) NW_TRY(nw_path_join(&r->dump_dir, o->run_dir, "dumps"));
    crew.driver.dump_dir = r->dump_dir;
    if (o->run_dir && o->record_schedule && crew.world > 1 && crew.place != NW_CREW_REPLAY)
        NW_TRY(nw_recorder_create(&r->recorder));
    crew.driver.recorder = r->recorder;
    NW_TRY(nw_crew_create(&r->crew, &crew));
    NW_TRY(make_loader(r, NW_SPLIT_TEST, o->test_batch_size, &r->test));
    if (o->dataset->split[NW_SPLIT_VALID].count > 0)
        NW_TRY(make_loader(r, NW_SPLIT_VALID, o->test_batch_size, &r->validation));
    if (o->train_metrics) NW_TRY(make_loader(r, NW_SPLIT_TRAIN, o->train_eval_batch_size, &r->train_eval));
    if (c) NW_TRY(load_checkpoint(r, c));
    if (!c && o->init) NW_TRY(start_from_weights(r, o->init));
    for (int i = 0; !c && i < r->crew->count; i++) {
        nw_replica *replica = r->crew->members[i].replica;
        replica->at.epoch = o->start_epoch;
        replica->at.batches = o->start_epoch * nw_replica_batches(replica);
    }
    NW_TRY(add_images(r));
    return nw_crew_begin(r->crew);
}

/* Makes the run's directory and keeps other processes out of it until r->lock is closed; a file system without locks
 * has to do without. config.yaml goes there; a run that goes on keeps the one that it was started with. */
static nw_status open_directory(run *r, bool resumes)
{
    const char *dir = r->options->run_dir;
    if (!dir || !leads(r)) return NW_OK;
    NW_TRY(nw_directory_make(dir));
    r->lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NW_FAIL_IF(r->lock >= 0 && flock(r->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, NW_E_ARGUMENT,
               "another process is training in %s; wait until it ends, or choose another --run-dir", dir);
    if (!r->options->config) return NW_OK;
    char *path;
    NW_TRY(nw_path_join(&path, dir, NW_CHECKPOINT_CONFIG));
    bool keeps = resumes && nw_file_is_regular(path);
    nw_status status = keeps ? NW_OK : nw_file_replace(path, r->options->config, strlen(r->options->config));
    free(path);
    return status;
}

/* What earlier processes recorded behind this place is of no more use. Ranks wait until rank 0 has the directory. */
static nw_status open_schedule(run *r)
{
    const nw_run_options *o = r->options;
    const nw_net *net = first(r)->net;
    bool stop;
    if (!o->run_dir) return NW_OK;
    NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    nw_schedule_header h = {.world = nw_crew_world(r->crew),
                            .first_rank = r->crew->driver->first,
                            .ranks = r->crew->count,
                            .first_step = nw_crew_computed(r->crew),
                            .first_epoch = finished_epochs(r),
                            .seed = o->crew.replica.net.seed,
                            .lr_factor = 1};
    NW_TRY(nw_schedule_cut(o->run_dir, h.first_step, h.first_rank));
    if (!r->recorder) return NW_OK;
    snprintf(h.exchange, sizeof h.exchange, "%s", r->crew->options.exchange.name);
    snprintf(h.codec, sizeof h.codec, "%s", r->crew->options.codec.name);
    snprintf(h.isa, sizeof h.isa, "%s", nw_net_isa(net));
    snprintf(h.precision, sizeof h.precision, "%s", nw_net_precision(net));
    snprintf(h.version, sizeof h.version, "%s", nw_version());
    snprintf(h.commit, sizeof h.commit, "%s", nw_build_commit());
    return nw_recorder_open(r->recorder, o->run_dir, &h, o->config);
}

static nw_status open_observers(run *r, const nw_checkpoint *c)
{
    nw_observe_options observe = r->options->observe;
    const nw_place *at = place(r);
    int64_t step = nw_crew_computed(r->crew), images = images_seen(r);
    if (!leads(r)) return NW_OK;
    if (c) observe.resume = (nw_resume_point){.step = step, .epoch = at->epoch, .images = images};
    NW_TRY(nw_observers_open(&r->observers, &observe));
    nw_run_record record = r->options->record;
    const nw_replica_options *o = &r->options->crew.replica;
    record.step = step;
    record.epoch = at->epoch;
    record.images = images;
    record.parameters = (int64_t)first(r)->net->model.params.learned.floats;
    record.train_images = r->options->dataset->split[NW_SPLIT_TRAIN].count;
    record.test_images = r->options->dataset->split[NW_SPLIT_TEST].count;
    record.batch_size = o->loader.batch_size;
    record.batches_per_epoch = nw_replica_batches(first(r));
    record.max_epoch = r->options->epochs;
    if (r->options->max_steps > 0) record.max_steps = r->options->max_steps;
    record.seed = (int64_t)o->net.seed;
    record.world_size = nw_crew_world(r->crew);
    record.threads = nw_net_threads(first(r)->net);
    record.precision = nw_net_precision(first(r)->net);
    record.isa = nw_net_isa(first(r)->net);
    tell(r, nw_observers_run(&r->observers, &record));
    if (c) tell_differences(r, c);
    if (nw_net_note(first(r)->net)) nw_observers_message(&r->observers, nw_net_note(first(r)->net));
    if (first(r)->schedule.warning[0]) nw_observers_message(&r->observers, first(r)->schedule.warning);
    if (r->crew->note[0]) nw_observers_message(&r->observers, r->crew->note);
    return NW_OK;
}

static void tell_end(run *r, nw_status status)
{
    nw_end_record *end = &r->result->end;
    nw_phase_times t = times(r);
    nw_net_weights_sha256(first(r)->net, r->result->weights_sha256);
    end->step = nw_crew_computed(r->crew);
    end->epoch = finished_epochs(r);
    end->images = images_seen(r);
    end->status = status == NW_OK ? "done" : status == NW_E_INTERRUPTED ? "interrupted" : "failed";
    end->preprocess_seconds = nw_phase_seconds(t, NW_PHASE_PREPROCESS);
    end->train_seconds = nw_phase_seconds(t, NW_PHASE_TRAIN);
    end->validation_seconds = nw_phase_seconds(t, NW_PHASE_VALIDATION);
    end->checkpoint_seconds = nw_phase_seconds(t, NW_PHASE_CHECKPOINT);
    end->other_seconds = nw_phase_seconds(t, NW_PHASE_OTHER);
    end->total_seconds = nw_phase_total_seconds(t);
    end->dawnbench_seconds = nw_phase_dawnbench_seconds(t);
    if (end->train_seconds > 0) end->images_per_second = (double)end->images / end->train_seconds;
    end->virtual_seconds = nw_crew_virtual_seconds(r->crew);
    end->peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    end->bytes_sent = (int64_t)nw_account_bytes(&r->sent);
    end->messages_sent = (int64_t)r->sent.messages;
    end->weights_sha256 = r->result->weights_sha256;
    end->steal_percent = nw_machine_steal_percent(r->ticks, nw_machine_ticks());
    end->load = nw_machine_load();
    tell(r, nw_observers_end(&r->observers, end));
    r->result->last = r->epoch;
}

static nw_status write_trace(run *r, bool alone)
{
    char *path;
    if (!r->options->run_dir) return NW_OK;
    NW_TRY(nw_path_join(&path, r->options->run_dir, "trace.json"));
    nw_status status = nw_crew_write_trace(r->crew, path, alone);
    free(path);
    return status;
}

/* Adds up what all ranks sent, checks it against what the transport moved, and writes it down. */
static nw_status settle(run *r)
{
    nw_ledger *world;
    NW_TRY(write_trace(r, false));
    if (!r->crew->ledger) return NW_OK;
    NW_TRY(nw_ledger_check(r->crew->ledger));
    NW_TRY(nw_crew_world_ledger(r->crew, &world));
    if (!world) return NW_OK;
    nw_ledger_run run_counts = {.steps = nw_crew_computed(r->crew), .images = images_seen(r)};
    nw_status status = nw_ledger_check_links(world);
    char *path = NULL;
    r->sent = nw_ledger_total(world, NW_SENT);
    if (status == NW_OK && r->options->run_dir) status = nw_path_join(&path, r->options->run_dir, "ledger.json");
    if (path && status == NW_OK) status = nw_ledger_save_json(world, run_counts, path);
    if (status == NW_OK && r->options->observe.table) nw_ledger_print(world, run_counts, r->options->observe.table);
    free(path);
    if (world != r->crew->ledger) nw_ledger_free(world);
    return status;
}

/* Whether the run, as it was loaded or made, is at the end asked for and has said so in summary.json. */
static nw_status has_nothing_to_do(const run *r, bool *nothing)
{
    bool at_end = reached_steps(r) || (is_last_epoch(r) && nw_crew_epoch_is_over(r->crew));
    *nothing = place(r)->epoch >= r->options->epochs;
    if (*nothing || !r->ended || !at_end || !r->options->run_dir) return NW_OK;
    char *summary;
    NW_TRY(nw_path_join(&summary, r->options->run_dir, "summary.json"));
    *nothing = nw_file_is_regular(summary);
    free(summary);
    return NW_OK;
}

static nw_status train(run *r, nw_checkpoint *c)
{
    const nw_run_options *o = r->options;
    NW_TRY(prepare(r, c));
    nw_stopwatch_leave(o->watch, NW_PHASE_PREPROCESS, nw_now_ns());
    NW_TRY(has_nothing_to_do(r, &r->result->nothing_to_do));
    if (r->result->nothing_to_do) return NW_OK;
    NW_TRY(open_directory(r, c != NULL));
    NW_TRY(open_schedule(r));
    NW_TRY(open_observers(r, c));
    nw_status status = loop_with_rollbacks(r);
    if (status == NW_OK || status == NW_E_INTERRUPTED) {
        nw_status kept = settle(r);
        if (status == NW_OK) status = kept;
        tell(r, nw_recorder_close(r->recorder, status == NW_OK || status == NW_E_INTERRUPTED));
    }
    char message[512];
    snprintf(message, sizeof message, "%s", nw_error_message());
    if (status != NW_OK && status != NW_E_INTERRUPTED) write_trace(r, true); /* what is known here */
    nw_crew_beat(r->crew,
                 status == NW_OK              ? NW_RANK_DONE
                 : status == NW_E_INTERRUPTED ? NW_RANK_INTERRUPTED
                                              : NW_RANK_FAILED,
                 status == NW_OK ? "" : message);
    if (status != NW_OK && status != NW_E_INTERRUPTED)
        tell_fault(r, status == NW_E_NUMERIC ? "not-finite" : "failure", message);
    tell_end(r, status);
    nw_status closing = nw_observers_close(&r->observers);
    if (status != NW_OK) return NW_FAIL(status, "%s", message); /* closing may have recorded another failure */
    return closing;
}

nw_status nw_run_train(const nw_run_options *options, nw_run_result *result)
{
    memset(result, 0, sizeof *result);
    nw_record_clear(NW_RECORD_END, &result->end);
    run r = {.options = options,
             .result = result,
             .best = (double)NAN,
             .best_top1 = (double)NAN,
             .best_step = -1,
             .saved_step = -1,
             .diverged_step = -1,
             .lock = -1,
             .ticks = nw_machine_ticks()};
    nw_record_clear(NW_RECORD_EPOCH, &r.epoch);
    nw_checkpoint *checkpoint = NULL;
    nw_status status = options->resume ? nw_checkpoint_open(&checkpoint, options->resume) : NW_OK;
    if (status == NW_OK) status = train(&r, checkpoint);
    nw_checkpoint_close(checkpoint);
    nw_observers_close(&r.observers);
    nw_loader *loaders[] = {r.test, r.validation, r.train_eval};
    for (int i = 0; i < 3; i++)
        if (loaders[i]) nw_loader_free(loaders[i]);
    if (status != NW_OK && status != NW_E_INTERRUPTED && r.crew && r.crew->driver) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", nw_error_message());
        nw_driver_fail(r.crew->driver, status, reason);
        status = NW_FAIL(status, "%s", reason);
    }
    nw_crew_free(r.crew);
    free(r.dump_dir);
    nw_recorder_free(r.recorder);
    if (r.lock >= 0) close(r.lock);
    return status;
}
