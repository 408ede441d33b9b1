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

typedef struct run {
    const nw_run_options *options;
    nw_run_result *result;
    nw_observers observers;
    nw_replica *replica;
    nw_loader *test, *validation, *train_eval; /* NULL where there is none */
    nw_epoch_record epoch;                     /* the last one sent */
    double best;                               /* by the rule; NAN: none yet */
    double best_top1;                          /* of the test split, whatever the rule */
    int64_t best_step, best_epoch;
    int64_t saved_step, saved_epoch; /* place of the last checkpoint in the run's directory; -1: none */
    bool ended, saved_ended;         /* the last epoch's record was sent; the same of that checkpoint */
    nw_phase_times epoch_began;      /* the watch at the start of this epoch, in this process */
    nw_cpu_ticks ticks;
    int lock; /* on the run's directory; -1: none */
} run;

/* Keys of the phases' times in a checkpoint, in the order of nw_phase. */
static const char *const phases[NW_PHASES] = {"other_ns", "preprocess_ns", "train_ns", "validation_ns",
                                              "checkpoint_ns"};

static bool wants_to_stop(const run *r) { return r->options->stop && *r->options->stop; }

static bool epoch_is_over(const run *r) { return r->replica->at.batch >= nw_replica_batches(r->replica); }
static int64_t finished_epochs(const run *r) { return r->replica->at.epoch + (r->ended && epoch_is_over(r)); }
static bool is_last_epoch(const run *r) { return r->replica->at.epoch + 1 >= r->options->epochs; }
static bool reached_steps(const run *r)
{
    return r->options->max_steps > 0 && r->replica->at.steps >= r->options->max_steps;
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
    record.step = r->replica->at.steps;
    record.epoch = r->replica->at.epoch + 1;
    record.images = r->replica->at.images;
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
    NW_TRY(nw_checkpoint_add_model(w, &r->replica->net->model.params, r->replica->at.batches));
    NW_TRY(nw_replica_save(r->replica, w, 0));
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

static nw_status write_checkpoint(run *r, const char *path)
{
    const nw_net *net = r->replica->net;
    nw_checkpoint_info info = {
        .step = r->replica->at.steps, .epoch = finished_epochs(r), .seed = r->options->replica.net.seed};
    snprintf(info.model, sizeof info.model, "%s", r->options->replica.net.model);
    snprintf(info.precision, sizeof info.precision, "%s", nw_net_precision(net));
    snprintf(info.isa, sizeof info.isa, "%s", nw_net_isa(net));
    nw_net_weights_sha256(net, info.weights_sha256);
    nw_checkpoint_writer *w;
    NW_TRY(nw_checkpoint_begin(&w, path, &info));
    add_state(r, w); /* the first failure sticks, and commit returns it */
    return nw_checkpoint_commit(w);
}

/* The run's own checkpoint of this step; old ones go. */
static nw_status save(run *r)
{
    const nw_run_options *o = r->options;
    const nw_place *at = &r->replica->at;
    bool saved = r->saved_step == at->steps && r->saved_epoch == at->epoch && r->saved_ended == r->ended;
    if (!o->run_dir || saved) return NW_OK;
    nw_checkpoint_record record;
    nw_record_clear(NW_RECORD_CHECKPOINT, &record);
    char *path = NULL;
    int64_t start = nw_now_ns();
    enter(r, NW_PHASE_CHECKPOINT);
    nw_status status = nw_checkpoint_step_path(&path, o->run_dir, at->steps);
    if (status == NW_OK) {
        status = write_checkpoint(r, path);
        if (status == NW_OK) status = nw_checkpoint_prune(o->run_dir, o->keep, r->best_step);
    }
    leave(r, NW_PHASE_CHECKPOINT);
    if (status == NW_OK) {
        r->saved_step = record.step = at->steps;
        r->saved_epoch = at->epoch;
        r->saved_ended = r->ended;
        record.epoch = finished_epochs(r);
        record.images = at->images;
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
    nw_replica_swap_average(r->replica);
    nw_status status = nw_evaluate(r->replica->net, loader, r->options->both_views, r->options->stop, tally, complete);
    nw_replica_swap_average(r->replica);
    return status;
}

static void note_best(run *r, const nw_tally *tally)
{
    const nw_best_rule *rule = &r->options->best;
    double value = rule->by == NW_BEST_TOP1   ? nw_tally_top1(tally)
                   : rule->by == NW_BEST_TOP5 ? nw_tally_top5(tally)
                                              : -nw_tally_loss(tally);
    if (rule->none || !isfinite(value) || (isfinite(r->best) && value <= r->best)) return;
    r->best = value;
    r->best_step = r->replica->at.steps;
    r->best_epoch = r->replica->at.epoch + 1;
}

/* Fills the record's test fields. *complete is false if the run was asked to stop meanwhile. */
static nw_status evaluate(run *r, nw_epoch_record *record, bool *complete)
{
    nw_tally test = {0}, validation = {0}, train = {0};
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

static void tell_step(run *r, const nw_replica_step *step, double lr, int64_t step_ns)
{
    const nw_place *at = &r->replica->at;
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = at->steps;
    record.epoch = at->epoch + 1;
    record.images = at->images;
    record.batch = at->batch;
    record.batch_images = step->result.images;
    nw_tally tally = {0};
    nw_tally_add(&tally, &step->result, r->options->replica.net.loss_sum);
    record.loss = nw_tally_loss(&tally);
    record.top1 = nw_tally_top1(&tally);
    record.top5 = nw_tally_top5(&tally);
    record.lr = lr;
    record.total_seconds = nw_phase_total_seconds(times(r));
    record.step_seconds = (double)step_ns * 1e-9;
    record.data_wait_seconds = (double)step->wait_ns * 1e-9;
    record.images_per_second = step->result.images / record.step_seconds;
    tell(r, nw_observers_step(&r->observers, &record));
}

/* Batches until the epoch is over, the steps are done, or the run is asked to stop. */
static nw_status train_epoch(run *r, bool *epoch_over)
{
    *epoch_over = false;
    while (!wants_to_stop(r) && !reached_steps(r)) {
        nw_replica_step step;
        int64_t start = nw_now_ns();
        enter(r, NW_PHASE_TRAIN);
        nw_status status = nw_replica_compute(r->replica, &step);
        double lr = nw_replica_lr(r->replica);
        if (status == NW_OK && step.update_due) status = nw_replica_update(r->replica);
        leave(r, NW_PHASE_TRAIN);
        NW_TRY(status);
        if (step.epoch_over) {
            *epoch_over = true;
            return NW_OK;
        }
        tell_step(r, &step, lr, nw_now_ns() - start);
        int64_t every = r->options->checkpoint_every;
        if (step.update_due && every > 0 && r->replica->at.steps % every == 0) NW_TRY(save(r));
    }
    *epoch_over = epoch_is_over(r);
    return NW_OK;
}

static nw_status tell_epoch(run *r, bool last, bool *complete)
{
    const nw_place *at = &r->replica->at;
    nw_epoch_record record;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    *complete = true;
    if (last || at->epoch == 0 || (at->epoch + 1) % r->options->eval_every == 0) {
        enter(r, NW_PHASE_VALIDATION);
        nw_status status = evaluate(r, &record, complete);
        leave(r, NW_PHASE_VALIDATION);
        NW_TRY(status);
        if (!*complete) return NW_OK;
    }
    nw_phase_times now = times(r), lap = nw_phase_times_since(now, r->epoch_began);
    record.step = at->steps;
    record.epoch = at->epoch + 1;
    record.images = at->images;
    record.lr = nw_replica_lr(r->replica);
    record.train_loss = nw_tally_loss(&at->tally);
    record.train_top1 = nw_tally_top1(&at->tally);
    record.train_top5 = nw_tally_top5(&at->tally);
    record.epoch_train_seconds = nw_phase_seconds(lap, NW_PHASE_TRAIN);
    record.epoch_validation_seconds = nw_phase_seconds(lap, NW_PHASE_VALIDATION);
    record.dawnbench_seconds = nw_phase_dawnbench_seconds(now);
    record.total_seconds = nw_phase_total_seconds(now);
    record.peak_memory_bytes = (int64_t)nw_machine_peak_memory();
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
               (long long)r->replica->at.steps);
    return NW_FAIL(NW_E_INTERRUPTED, "interrupted at step %lld; continue with: nowait train --resume %s",
                   (long long)r->replica->at.steps, r->options->run_dir);
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
        if (!last) NW_TRY(nw_replica_end_epoch(r->replica));
        if (last || o->checkpoint_every == 0 || r->best_step == r->replica->at.steps) NW_TRY(save(r));
        NW_TRY(save_named(r));
    }
    return NW_OK;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static nw_status load_checkpoint(run *r, nw_checkpoint *c)
{
    NW_FAIL_IF(nw_checkpoint_is_bare(c), NW_E_FILE,
               "%s holds weights only, not the state of a run; --init starts a new run from them",
               nw_checkpoint_path(c));
    NW_TRY(nw_checkpoint_read_model(c, r->options->replica.net.model, &r->replica->net->model.params, NULL));
    NW_TRY(nw_replica_load(r->replica, c, 0));
    NW_TRY(nw_checkpoint_get_double(c, "best", &r->best));
    NW_TRY(nw_checkpoint_get_double(c, "best_top1", &r->best_top1));
    NW_TRY(nw_checkpoint_get_int(c, "best_step", &r->best_step));
    NW_TRY(nw_checkpoint_get_int(c, "best_epoch", &r->best_epoch));
    int64_t ended = 0;
    if (nw_checkpoint_has(c, "ended")) NW_TRY(nw_checkpoint_get_int(c, "ended", &ended));
    r->ended = ended != 0;
    nw_phase_times before = {0};
    for (int i = 0; i < NW_PHASES; i++) NW_TRY(nw_checkpoint_get_int(c, phases[i], &before.ns[i]));
    for (int i = 0; i < NW_PHASES; i++) r->options->watch->times.ns[i] += before.ns[i];
    return NW_OK;
}

static void tell_differences(run *r, const nw_checkpoint *c)
{
    const nw_checkpoint_info *info = nw_checkpoint_get_info(c);
    const nw_net *net = r->replica->net;
    char text[256];
    if (nw_checkpoint_note(c)) nw_observers_message(&r->observers, nw_checkpoint_note(c));
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
    nw_status status = nw_checkpoint_read_model(c, r->options->replica.net.model, &r->replica->net->model.params, NULL);
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
    return nw_loader_create(loader, &options);
}

static nw_status prepare(run *r, nw_checkpoint *c)
{
    const nw_run_options *o = r->options;
    NW_TRY(nw_replica_create(&r->replica, &o->replica));
    NW_TRY(make_loader(r, NW_SPLIT_TEST, o->test_batch_size, &r->test));
    if (o->dataset->split[NW_SPLIT_VALID].count > 0)
        NW_TRY(make_loader(r, NW_SPLIT_VALID, o->test_batch_size, &r->validation));
    if (o->train_metrics) NW_TRY(make_loader(r, NW_SPLIT_TRAIN, o->train_eval_batch_size, &r->train_eval));
    if (c) NW_TRY(load_checkpoint(r, c));
    if (!c && o->init) NW_TRY(start_from_weights(r, o->init));
    if (!c) {
        r->replica->at.epoch = o->start_epoch;
        r->replica->at.batches = o->start_epoch * nw_replica_batches(r->replica);
    }
    return nw_replica_begin(r->replica);
}

/* Makes the run's directory and keeps other processes out of it until r->lock is closed; a file system without locks
 * has to do without. config.yaml goes there; a run that goes on keeps the one that it was started with. */
static nw_status open_directory(run *r, bool resumes)
{
    const char *dir = r->options->run_dir;
    if (!dir) return NW_OK;
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

static nw_status open_observers(run *r, const nw_checkpoint *c)
{
    nw_observe_options observe = r->options->observe;
    const nw_place *at = &r->replica->at;
    if (c) observe.resume = (nw_resume_point){.step = at->steps, .epoch = at->epoch, .images = at->images};
    NW_TRY(nw_observers_open(&r->observers, &observe));
    nw_run_record record = r->options->record;
    const nw_replica_options *o = &r->options->replica;
    record.step = at->steps;
    record.epoch = at->epoch;
    record.images = at->images;
    record.parameters = (int64_t)r->replica->net->model.params.learned.floats;
    record.train_images = r->options->dataset->split[NW_SPLIT_TRAIN].count;
    record.test_images = r->options->dataset->split[NW_SPLIT_TEST].count;
    record.batch_size = o->loader.batch_size;
    record.batches_per_epoch = nw_replica_batches(r->replica);
    record.max_epoch = r->options->epochs;
    if (r->options->max_steps > 0) record.max_steps = r->options->max_steps;
    record.seed = (int64_t)o->net.seed;
    record.world_size = 1;
    record.threads = nw_net_threads(r->replica->net);
    record.precision = nw_net_precision(r->replica->net);
    record.isa = nw_net_isa(r->replica->net);
    tell(r, nw_observers_run(&r->observers, &record));
    if (c) tell_differences(r, c);
    if (nw_net_note(r->replica->net)) nw_observers_message(&r->observers, nw_net_note(r->replica->net));
    if (r->replica->schedule.warning[0]) nw_observers_message(&r->observers, r->replica->schedule.warning);
    return NW_OK;
}

static void tell_end(run *r, nw_status status)
{
    nw_end_record *end = &r->result->end;
    const nw_place *at = &r->replica->at;
    nw_phase_times t = times(r);
    nw_net_weights_sha256(r->replica->net, r->result->weights_sha256);
    end->step = at->steps;
    end->epoch = finished_epochs(r);
    end->images = at->images;
    end->status = status == NW_OK ? "done" : status == NW_E_INTERRUPTED ? "interrupted" : "failed";
    end->preprocess_seconds = nw_phase_seconds(t, NW_PHASE_PREPROCESS);
    end->train_seconds = nw_phase_seconds(t, NW_PHASE_TRAIN);
    end->validation_seconds = nw_phase_seconds(t, NW_PHASE_VALIDATION);
    end->checkpoint_seconds = nw_phase_seconds(t, NW_PHASE_CHECKPOINT);
    end->other_seconds = nw_phase_seconds(t, NW_PHASE_OTHER);
    end->total_seconds = nw_phase_total_seconds(t);
    end->dawnbench_seconds = nw_phase_dawnbench_seconds(t);
    if (end->train_seconds > 0) end->images_per_second = (double)at->images / end->train_seconds;
    end->peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    end->bytes_sent = end->messages_sent = 0;
    end->weights_sha256 = r->result->weights_sha256;
    end->steal_percent = nw_machine_steal_percent(r->ticks, nw_machine_ticks());
    end->load = nw_machine_load();
    tell(r, nw_observers_end(&r->observers, end));
    r->result->last = r->epoch;
}

/* Whether the run, as it was loaded or made, is at the end asked for and has said so in summary.json. */
static nw_status has_nothing_to_do(const run *r, bool *nothing)
{
    const nw_place *at = &r->replica->at;
    bool at_end = reached_steps(r) || (is_last_epoch(r) && epoch_is_over(r));
    *nothing = at->epoch >= r->options->epochs;
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
    NW_TRY(open_observers(r, c));
    nw_status status = loop(r);
    char message[512];
    snprintf(message, sizeof message, "%s", nw_error_message());
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
    nw_replica_free(r.replica);
    if (r.lock >= 0) close(r.lock);
    return status;
}
