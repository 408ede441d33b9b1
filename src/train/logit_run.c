/*
 * logit_run.c - see logit_run.h. Read it from the bottom.
 *
 * Order at the end of an epoch, as for networks: evaluate, send the record, write the checkpoint. A run that is killed in
 * between resumes at an earlier step and repeats the rest, and what it had told beyond that step is removed.
 */
#include "train/logit_run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "train/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATE_FILE "replica0.safetensors"

typedef struct run {
    const nw_logit_run_options *options;
    nw_logit_run_result *result;
    nw_logit *logit;
    nw_logit_state state; /* after the last advance */
    nw_observers observers;
    int64_t batches, last_step;
    int64_t images, epoch_rows; /* rows seen, and those of them in this epoch */
    double best, best_top1;     /* NAN: none yet */
    int64_t best_step, best_epoch, saved_step;
    bool ended;
    nw_phase_times epoch_began;
    nw_cpu_ticks ticks;
    int lock;
} run;

static void enter(run *r, nw_phase phase) { nw_stopwatch_enter(r->options->watch, phase, nw_now_ns()); }
static void leave(run *r, nw_phase phase) { nw_stopwatch_leave(r->options->watch, phase, nw_now_ns()); }
static nw_phase_times times(const run *r) { return nw_stopwatch_read(r->options->watch, nw_now_ns()); }
static bool is_asked_to_stop(const run *r) { return r->options->stop && *r->options->stop; }
static int64_t finished_epochs(const run *r) { return r->state.step / r->batches; }
static int64_t current_epoch(const run *r) { return (r->state.step + r->batches - 1) / r->batches; }

/* An observer that fails is reported once and does not end the training. */
static void tell(run *r, nw_status status)
{
    if (status != NW_OK) nw_observers_message(&r->observers, nw_error_message());
}

static void tell_fault(run *r, const char *fault, const char *detail)
{
    nw_fault_record record;
    nw_record_clear(NW_RECORD_FAULT, &record);
    record.step = r->state.step;
    record.epoch = current_epoch(r);
    record.images = r->images;
    record.fault = fault;
    record.detail = detail;
    tell(r, nw_observers_fault(&r->observers, &record));
}

static void hash_weights(const run *r, char hex[65])
{
    nw_sha256 hash = nw_sha256_begin();
    nw_sha256_add(&hash, r->state.w, (size_t)r->state.count * sizeof(double));
    nw_sha256_end(&hash, hex);
}

/* ---- checkpoints --------------------------------------------------------------------------------------------------- */

/* The tensors of a checkpoint, in memory: w as weight and bias, then the state. `each` is called for all of them. */
static nw_status for_tensors(run *r,
                             nw_status (*each)(void *context, const char *file, const char *name, int dims,
                                               const int64_t *shape, double *data),
                             void *context)
{
    nw_logit_state *s = &r->state;
    bool intercept = r->options->logit.intercept;
    const int64_t features = s->count - intercept, matrix[] = {1, features}, one = 1, all = s->count;
    NW_TRY(each(context, NW_CHECKPOINT_MODEL, "weight", 2, matrix, s->w));
    if (intercept) NW_TRY(each(context, NW_CHECKPOINT_MODEL, "bias", 1, &one, s->w + features));
    NW_TRY(each(context, STATE_FILE, "exp_avg", 1, &all, s->m));
    NW_TRY(each(context, STATE_FILE, "exp_avg_sq", 1, &all, s->v));
    return each(context, STATE_FILE, "max_exp_avg_sq", 1, &all, s->u);
}

typedef struct lists {
    nw_saved_list model, state;
} lists;

static nw_status list_tensor(void *context, const char *file, const char *name, int dims, const int64_t *shape,
                             double *data)
{
    lists *l = context;
    nw_saved_list *list = strcmp(file, STATE_FILE) == 0 ? &l->state : &l->model;
    return nw_saved_list_add(list, name, NW_SAVED_F64, dims, shape, data);
}

static nw_status read_tensor(void *context, const char *file, const char *name, int dims, const int64_t *shape,
                             double *data)
{
    return nw_checkpoint_read_raw(context, file, name, NW_SAVED_F64, dims, shape, data);
}

static nw_status add_tensors(run *r, nw_checkpoint_writer *w)
{
    lists l = {0};
    nw_status status = for_tensors(r, list_tensor, &l);
    if (status == NW_OK) status = nw_saved_list_add_histogram(&l.state, &r->state.delays);
    if (status == NW_OK) status = nw_checkpoint_add_tensors(w, NW_CHECKPOINT_MODEL, &l.model, NULL, 0);
    if (status == NW_OK) status = nw_checkpoint_add_tensors(w, STATE_FILE, &l.state, NULL, 0);
    nw_saved_list_free(&l.model);
    nw_saved_list_free(&l.state);
    return status;
}

enum { NUMBERS = 8 };

static void list_numbers(run *r, nw_saved_number list[NUMBERS])
{
    const nw_saved_number all[NUMBERS] = {{"images", .whole = &r->images},
                                          {"best_step", .whole = &r->best_step},
                                          {"best_epoch", .whole = &r->best_epoch},
                                          {"best", .real = &r->best},
                                          {"best_top1", .real = &r->best_top1},
                                          {"epoch_loss", .real = &r->state.epoch.loss},
                                          {"epoch_correct", .whole = &r->state.epoch.correct},
                                          {"epoch_rows", .whole = &r->state.epoch.rows}};
    memcpy(list, all, sizeof all);
}

static nw_status write_files(run *r, const char *path)
{
    const nw_logit_run_options *o = r->options;
    nw_checkpoint_info info = {.step = r->state.step, .epoch = finished_epochs(r), .seed = o->logit.seed};
    snprintf(info.model, sizeof info.model, "%s", o->record.model);
    snprintf(info.precision, sizeof info.precision, "f64");
    snprintf(info.isa, sizeof info.isa, "%s", o->record.isa);
    hash_weights(r, info.weights_sha256);
    nw_checkpoint_writer *w;
    nw_saved_number numbers[NUMBERS];
    NW_TRY(nw_checkpoint_begin(&w, path, &info)); /* the first failure sticks, and commit returns it */
    if (o->config) nw_checkpoint_add_file(w, NW_CHECKPOINT_CONFIG, o->config, strlen(o->config));
    nw_checkpoint_add_text(w, "dataset", o->record.dataset);
    nw_checkpoint_add_text(w, "run_dir", o->run_dir);
    nw_checkpoint_add_int(w, "batches", r->batches);
    nw_checkpoint_add_int(w, "ended", r->ended);
    list_numbers(r, numbers);
    nw_checkpoint_add_numbers(w, "", numbers, NUMBERS);
    nw_run_save_times(w, times(r));
    nw_status status = add_tensors(r, w);
    if (status == NW_OK) return nw_checkpoint_commit(w);
    nw_checkpoint_cancel(w);
    return status;
}

static nw_status save(run *r)
{
    const nw_logit_run_options *o = r->options;
    if (!o->run_dir || (r->saved_step == r->state.step && !r->ended)) return NW_OK;
    nw_checkpoint_record record;
    nw_record_clear(NW_RECORD_CHECKPOINT, &record);
    char *path = NULL;
    int64_t start = nw_now_ns();
    enter(r, NW_PHASE_CHECKPOINT);
    nw_status status = nw_checkpoint_step_path(&path, o->run_dir, r->state.step);
    if (status == NW_OK) status = write_files(r, path);
    if (status == NW_OK) status = nw_checkpoint_prune(o->run_dir, o->keep, r->best_step);
    leave(r, NW_PHASE_CHECKPOINT);
    if (status == NW_OK) {
        r->saved_step = record.step = r->state.step;
        record.epoch = finished_epochs(r);
        record.images = r->images;
        record.path = path;
        record.is_best = r->best_step == record.step;
        record.write_seconds = (double)(nw_now_ns() - start) * 1e-9;
        tell(r, nw_observers_checkpoint(&r->observers, &record));
    }
    free(path);
    return status;
}

static nw_status load(run *r, nw_checkpoint *c)
{
    const nw_checkpoint_info *info = nw_checkpoint_get_info(c);
    int64_t batches = 0, ended = 0;
    nw_saved_number numbers[NUMBERS];
    NW_FAIL_IF(!info || !nw_checkpoint_has_tensor(c, STATE_FILE, "exp_avg") || !nw_checkpoint_has(c, "batches"),
               NW_E_FILE, "%s is no checkpoint of a logistic regression on LIBSVM rows; start anew without --resume",
               nw_checkpoint_path(c));
    NW_TRY(nw_checkpoint_get_int(c, "batches", &batches));
    NW_FAIL_IF(
        batches != r->batches, NW_E_FILE,
        "%s has %lld batches an epoch and this run %lld; keep the data, --limit and --batch-size of the run that "
        "goes on",
        nw_checkpoint_path(c), (long long)batches, (long long)r->batches);
    NW_TRY(for_tensors(r, read_tensor, c));
    list_numbers(r, numbers);
    NW_TRY(nw_checkpoint_get_numbers(c, "", numbers, NUMBERS));
    NW_TRY(nw_checkpoint_get_int(c, "ended", &ended));
    NW_TRY(nw_checkpoint_read_histogram(c, STATE_FILE, &r->state.delays));
    r->ended = ended != 0;
    r->state.step = r->saved_step = info->step;
    r->epoch_rows = r->state.epoch.rows;
    nw_logit_restart(r->logit, &r->state);
    return nw_run_load_times(c, r->options->watch);
}

/* ---- epochs -------------------------------------------------------------------------------------------------------- */

static void evaluate(run *r, nw_epoch_record *record)
{
    const nw_logit_options *o = &r->options->logit;
    const nw_best_rule *rule = &r->options->best;
    nw_logit_tally train = nw_logit_evaluate(o->data, o->features, o->intercept, r->state.w), test = {0};
    if (r->options->test) test = nw_logit_evaluate(r->options->test, o->features, o->intercept, r->state.w);
    record->train_eval_loss = nw_logit_tally_loss(&train);
    record->train_eval_top1 = nw_logit_tally_top1(&train);
    record->test_loss = nw_logit_tally_loss(&test);
    record->test_top1 = nw_logit_tally_top1(&test);
    if (!test.rows) return;
    if (!(record->test_top1 <= r->best_top1)) r->best_top1 = record->test_top1;
    record->test_top1_best = r->best_top1;
    double value = rule->by == NW_BEST_LOSS ? -record->test_loss : record->test_top1;
    if (!rule->none && isfinite(value) && !(value <= r->best)) {
        r->best = value;
        r->best_step = r->state.step;
        r->best_epoch = current_epoch(r);
    }
    if (!rule->none) record->best_epoch = r->best_epoch;
}

static void tell_epoch(run *r, bool last)
{
    nw_epoch_record record;
    nw_record_clear(NW_RECORD_EPOCH, &record);
    record.step = r->state.step;
    record.epoch = current_epoch(r);
    record.images = r->images;
    if (last || record.epoch == 1 || record.epoch % r->options->eval_every == 0) {
        enter(r, NW_PHASE_VALIDATION);
        evaluate(r, &record);
        leave(r, NW_PHASE_VALIDATION);
    }
    nw_phase_times now = times(r), lap = nw_phase_times_since(now, r->epoch_began);
    record.lr = nw_logit_rate(r->logit);
    record.train_loss = nw_logit_tally_loss(&r->state.epoch);
    record.train_top1 = nw_logit_tally_top1(&r->state.epoch);
    record.epoch_train_seconds = nw_phase_seconds(lap, NW_PHASE_TRAIN);
    record.epoch_validation_seconds = nw_phase_seconds(lap, NW_PHASE_VALIDATION);
    record.dawnbench_seconds = nw_phase_dawnbench_seconds(now);
    record.total_seconds = nw_phase_total_seconds(now);
    record.peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    tell(r, nw_observers_epoch(&r->observers, &record));
    if (r->options->told) r->options->told(r->options->context, &record, &r->state.delays);
    r->epoch_began = now;
    r->result->last = record;
}

static nw_status interrupted(run *r)
{
    const char *dir = r->options->run_dir;
    NW_TRY(save(r));
    tell_fault(r, "signal", dir ? "asked to stop; a checkpoint was written" : "asked to stop");
    return nw_run_fail_interrupted(dir, r->state.step);
}

/* Trains until something is due. */
static nw_status advance(run *r)
{
    int64_t every = r->options->checkpoint_every, until = r->last_step;
    if (every > 0 && (r->state.step / every + 1) * every < until) until = (r->state.step / every + 1) * every;
    if (r->state.step % r->batches == 0) r->epoch_rows = 0;
    enter(r, NW_PHASE_TRAIN);
    nw_logit_advance(r->logit, until, r->options->stop);
    leave(r, NW_PHASE_TRAIN);
    nw_logit_keep(r->logit, &r->state);
    r->images += r->state.epoch.rows - r->epoch_rows;
    r->epoch_rows = r->state.epoch.rows;
    NW_FAIL_IF(!isfinite(r->state.epoch.loss), NW_E_NUMERIC,
               "the loss is not finite after step %lld; use a smaller --lr-max, or look for huge values in the data",
               (long long)r->state.step);
    return NW_OK;
}

static nw_status loop(run *r)
{
    const nw_logit_run_options *o = r->options;
    r->epoch_began = times(r);
    r->ended = false;
    while (!r->ended) {
        int64_t before = r->state.step;
        if (before < r->last_step) NW_TRY(advance(r));
        int64_t step = r->state.step;
        bool last = step >= r->last_step, epoch_over = step > before && step % r->batches == 0;
        if (last || epoch_over) tell_epoch(r, last);
        r->ended = last;
        if (!last && is_asked_to_stop(r)) return interrupted(r);
        bool due = o->checkpoint_every > 0 ? step % o->checkpoint_every == 0 : epoch_over;
        if (last || due || r->best_step == step) NW_TRY(save(r));
    }
    return NW_OK;
}

/* ---- beginning and end --------------------------------------------------------------------------------------------- */

static nw_status open_observers(run *r, const nw_checkpoint *c)
{
    const nw_logit_run_options *o = r->options;
    nw_observe_options observe = o->observe;
    nw_observer *progress;
    if (c) observe.resume = (nw_resume_point){.step = r->state.step, .epoch = finished_epochs(r), .images = r->images};
    if (observe.progress) { /* no results: `told` has them */
        nw_progress_options options = {.out = observe.progress, .print_every = observe.print_every};
        NW_TRY(nw_progress_create(&progress, &options));
        nw_observers_add(&r->observers, progress);
    }
    observe.progress = observe.table = NULL;
    NW_TRY(nw_observers_open(&r->observers, &observe));
    nw_run_record record = o->record;
    record.step = r->state.step;
    record.epoch = finished_epochs(r);
    record.images = r->images;
    record.parameters = r->state.count;
    record.train_images = o->logit.data->rows;
    record.test_images = o->test ? o->test->rows : 0;
    record.batch_size = o->logit.batch_size;
    record.batches_per_epoch = r->batches;
    record.max_epoch = o->epochs;
    if (o->max_steps > 0) record.max_steps = o->max_steps;
    record.seed = (int64_t)o->logit.seed;
    record.world_size = 1;
    record.threads = o->logit.threads;
    record.precision = "f64";
    tell(r, nw_observers_run(&r->observers, &record));
    if (c && nw_checkpoint_note(c)) nw_observers_message(&r->observers, nw_checkpoint_note(c));
    if (nw_logit_warning(r->logit)[0]) nw_observers_message(&r->observers, nw_logit_warning(r->logit));
    return NW_OK;
}

static void tell_end(run *r, nw_status status)
{
    nw_logit_run_result *result = r->result;
    nw_end_record *end = &result->end;
    hash_weights(r, result->weights_sha256);
    result->delays = r->state.delays;
    end->step = r->state.step;
    end->epoch = finished_epochs(r);
    end->images = r->images;
    nw_run_fill_end(end, status, times(r), r->ticks);
    end->bytes_sent = end->messages_sent = 0;
    end->delays = &result->delays;
    end->weights_sha256 = result->weights_sha256;
    tell(r, nw_observers_end(&r->observers, end));
}

static nw_status prepare(run *r, nw_checkpoint *c)
{
    const nw_logit_run_options *o = r->options;
    NW_TRY(nw_logit_create(&r->logit, &o->logit));
    nw_logit_keep(r->logit, &r->state);
    r->batches = nw_logit_batches(r->logit);
    r->last_step = o->epochs * r->batches;
    if (o->max_steps > 0 && o->max_steps < r->last_step) r->last_step = o->max_steps;
    if (c) NW_TRY(load(r, c));
    nw_stopwatch_leave(o->watch, NW_PHASE_PREPROCESS, nw_now_ns());
    return NW_OK;
}

/* Whether the run is at the end asked for and has said so in summary.json. */
static nw_status has_nothing_to_do(run *r, bool *nothing)
{
    *nothing = r->last_step == 0;
    if (*nothing || r->state.step < r->last_step || !r->ended) return NW_OK;
    return nw_run_has_summary(r->options->run_dir, nothing);
}

static nw_status train(run *r, nw_checkpoint *c)
{
    const nw_logit_run_options *o = r->options;
    NW_TRY(prepare(r, c));
    NW_TRY(has_nothing_to_do(r, &r->result->nothing_to_do));
    if (r->result->nothing_to_do) return NW_OK;
    if (o->run_dir) NW_TRY(nw_run_open_directory(o->run_dir, o->config, c != NULL, &r->lock));
    NW_TRY(open_observers(r, c));
    nw_status status = loop(r);
    char message[512];
    snprintf(message, sizeof message, "%s", nw_error_message());
    if (status != NW_OK && status != NW_E_INTERRUPTED)
        tell_fault(r, status == NW_E_NUMERIC ? "not-finite" : "failure", message);
    tell_end(r, status);
    return nw_run_close_observers(&r->observers, status, message);
}

nw_status nw_logit_run(const nw_logit_run_options *options, nw_logit_run_result *result)
{
    memset(result, 0, sizeof *result);
    nw_record_clear(NW_RECORD_END, &result->end);
    nw_record_clear(NW_RECORD_EPOCH, &result->last);
    run r = {.options = options,
             .result = result,
             .best = (double)NAN,
             .best_top1 = (double)NAN,
             .best_step = -1,
             .saved_step = -1,
             .lock = -1,
             .ticks = nw_machine_ticks()};
    nw_checkpoint *checkpoint = NULL;
    nw_status status = options->resume ? nw_checkpoint_open(&checkpoint, options->resume) : NW_OK;
    if (status == NW_OK) status = train(&r, checkpoint);
    nw_checkpoint_close(checkpoint);
    nw_observers_close(&r.observers);
    nw_logit_free(r.logit);
    if (r.lock >= 0) close(r.lock);
    return status;
}
