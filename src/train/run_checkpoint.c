/*
 * run_checkpoint.c - the checkpoints of a run: writing and loading them, and going back to one after a divergence.
 */
#include "train/run_private.h"

#include "base/file.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHTS_ONLY "weights_only" /* the key that says so */

/* Keys of the phases' times in a checkpoint, in the order of nw_phase. */
static const char *const phases[NW_PHASES] = {"other_ns", "preprocess_ns", "train_ns", "validation_ns",
                                              "checkpoint_ns"};

static nw_status save_times(nw_checkpoint_writer *w, nw_phase_times t)
{
    for (int i = 0; i < NW_PHASES; i++) NW_TRY(nw_checkpoint_add_int(w, phases[i], t.ns[i]));
    return NW_OK;
}

static nw_status load_times(const nw_checkpoint *c, nw_stopwatch *watch)
{
    nw_phase_times before = {0};
    for (int i = 0; i < NW_PHASES; i++) NW_TRY(nw_checkpoint_get_int(c, phases[i], &before.ns[i]));
    for (int i = 0; i < NW_PHASES; i++) watch->times.ns[i] += before.ns[i];
    return NW_OK;
}

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
    NW_CLEANUP(nw_text_free) nw_text names = {0};
    NW_TRY(nw_text_begin(&names));
    for (int i = 0; i < d->classes; i++) fprintf(names.out, "%s\n", d->class_names[i]);
    NW_TRY(nw_text_end(&names));
    return nw_checkpoint_add_file(w, "classes.txt", names.text, names.size);
}

/* What it is of. */
static nw_status add_origin(run *r, nw_checkpoint_writer *w)
{
    const nw_run_options *o = r->options;
    if (o->config) NW_TRY(nw_checkpoint_add_file(w, NW_CHECKPOINT_CONFIG, o->config, strlen(o->config)));
    NW_TRY(add_dataset(w, o->dataset));
    return o->run_dir ? nw_checkpoint_add_text(w, "run_dir", o->run_dir) : NW_OK;
}

static nw_status add_state(run *r, nw_checkpoint_writer *w)
{
    NW_TRY(add_origin(r, w));
    NW_TRY(nw_checkpoint_add_double(w, "best", r->best));
    NW_TRY(nw_checkpoint_add_double(w, "best_top1", r->best_top1));
    NW_TRY(nw_checkpoint_add_int(w, "best_step", r->best_step));
    NW_TRY(nw_checkpoint_add_int(w, "best_epoch", r->best_epoch));
    NW_TRY(nw_checkpoint_add_int(w, "ended", r->ended));
    NW_TRY(nw_run_save_cases(r, w));
    return save_times(w, times(r));
}

static nw_checkpoint_info info_of(const run *r, int64_t step, int64_t epoch, const nw_params *params)
{
    const nw_net *net = first(r)->net;
    nw_checkpoint_info info = {.step = step, .epoch = epoch, .seed = r->options->group.replica.net.seed};
    snprintf(info.model, sizeof info.model, "%s", r->options->group.replica.net.model);
    snprintf(info.precision, sizeof info.precision, "%s", nw_net_precision(net));
    snprintf(info.isa, sizeof info.isa, "%s", nw_net_isa(net));
    nw_params_sha256(params, info.weights_sha256);
    return info;
}

static nw_status write_shown(run *r, const char *path)
{
    nw_params shown = nw_replicas_shown(r->group);
    nw_checkpoint_info info = info_of(r, nw_replicas_updates(r->group), finished_epochs(r), &shown);
    nw_checkpoint_writer *w;
    NW_TRY(nw_checkpoint_begin(&w, path, &info));
    add_state(r, w); /* the first failure sticks, and commit returns it */
    nw_status status = nw_replicas_save(r->group, w);
    if (status == NW_OK) return nw_checkpoint_commit(w);
    nw_checkpoint_cancel(w);
    return status;
}

static nw_status write_files(run *r, const char *path)
{
    NW_TRY(nw_replicas_show_outer(r->group));
    nw_status status = write_shown(r, path);
    nw_replicas_hide_outer(r->group);
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
    NW_AUTOFREE float *mean = NULL;
    if (nw_replicas_is_gossip(r->group)) {
        NW_NEW(mean, first(r)->net->model.params.learned.floats, "the mean of all replicas");
        NW_TRY(nw_replicas_mean(r->group, mean));
    }
    r->group->mean = mean;
    nw_status status = leads(r) ? write_files(r, path) : nw_replicas_save(r->group, NULL);
    r->group->mean = NULL;
    NW_TRY(status);
    nw_recorder_saved(r->recorder, nw_replicas_updates(r->group), finished_epochs(r));
    return NW_OK;
}

/* The run's own checkpoint of this step; old ones go. */
nw_status nw_run_save(run *r)
{
    const nw_run_options *o = r->options;
    const nw_position *at = position(r);
    int64_t step = nw_replicas_updates(r->group);
    bool saved = r->saved_step == step && r->saved_epoch == at->epoch && r->saved_ended == r->ended;
    if (!o->run_dir || saved) return NW_OK;
    nw_checkpoint_record record;
    nw_record_clear(NW_RECORD_CHECKPOINT, &record);
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_checkpoint_step_path(&path, o->run_dir, step));
    int64_t start = nw_now_ns();
    enter(r, NW_PHASE_CHECKPOINT);
    nw_status status = write_checkpoint(r, path);
    if (status == NW_OK && leads(r)) status = nw_checkpoint_prune(o->run_dir, o->keep, r->best_step);
    leave(r, NW_PHASE_CHECKPOINT);
    NW_TRY(status);
    r->saved_step = record.step = step;
    r->saved_epoch = at->epoch;
    r->saved_ended = r->ended;
    note_saved(r, step);
    record.epoch = finished_epochs(r);
    record.images = images_seen(r);
    record.path = path;
    record.is_best = r->best_step == record.step;
    record.write_seconds = (double)(nw_now_ns() - start) * 1e-9;
    nw_run_tell(r, nw_observers_checkpoint(&r->observers, &record));
    return NW_OK;
}

static nw_status write_best(run *r, const nw_case *evaluated, const char *path)
{
    nw_params params = first(r)->net->model.params;
    params.values = evaluated->values;
    params.buffers = evaluated->evaluated_buffers;
    nw_checkpoint_info info = info_of(r, evaluated->record.step, evaluated->record.epoch, &params);
    nw_checkpoint_writer *w;
    NW_TRY(nw_checkpoint_begin(&w, path, &info));
    add_origin(r, w);
    nw_checkpoint_add_int(w, WEIGHTS_ONLY, 1);
    nw_checkpoint_add_model(w, &params, evaluated->record.step);
    return nw_checkpoint_commit(w);
}

nw_status nw_run_save_best(run *r, const nw_case *evaluated)
{
    NW_AUTOFREE char *path = NULL;
    if (!r->options->run_dir) return NW_OK;
    NW_TRY(nw_path_join(&path, r->options->run_dir, NW_RUN_BEST));
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_CHECKPOINT);
    return write_best(r, evaluated, path);
}

nw_status nw_run_save_named(run *r)
{
    if (!r->options->name_checkpoint) return NW_OK;
    NW_CLEANUP(end_phase) timed phase = begin_phase(r, NW_PHASE_CHECKPOINT);
    return write_checkpoint(r, r->options->name_checkpoint);
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

/* Back to the last checkpoint, with a lower rate. If that did not help before, its weights are to blame: to the one
 * before. All ranks get here together. */
nw_status nw_run_roll_back(run *r, const char *why)
{
    const nw_run_options *o = r->options;
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_AUTOFREE char *path = NULL;
    char text[1024];
    double factor = pow(o->rollback_lr, ++r->rolled_back);
    int64_t step = nw_replicas_updates(r->group);
    r->again = step > r->diverged_step ? 0 : r->again + 1;
    if (step > r->diverged_step) r->diverged_step = step;
    int back = r->again < r->saved_count ? r->again : r->saved_count - 1;
    NW_TRY(nw_checkpoint_step_path(&path, o->run_dir, r->saved[back]));
    NW_TRY(nw_checkpoint_open(&c, path));
    snprintf(text, sizeof text, "%s; went back to step %lld, with learning rates times %g", why,
             (long long)nw_checkpoint_get_info(c)->step, factor);
    nw_run_tell_fault(r, "rollback", text);
    nw_observers_message(&r->observers, text);
    NW_TRY(nw_replicas_go_back(r->group, c, factor));
    NW_TRY(load_best(r, c));
    nw_run_forget_cases(r);
    r->saved_step = -1;
    r->saved_count -= back; /* the newer ones will be written again */
    memmove(r->saved, r->saved + back, (size_t)r->saved_count * sizeof r->saved[0]);
    NW_TRY(nw_run_open_event_log(r)); /* a part of its own, from here on */
    return nw_run_add_images(r);
}

/* A checkpoint that the run continues from is its own if it lies in its directory. */
static void note_own_checkpoint(run *r, const nw_checkpoint *c)
{
    NW_AUTOFREE char *path = NULL;
    int64_t step = nw_checkpoint_get_info(c)->step;
    if (nw_checkpoint_step_path(&path, r->options->run_dir, step) != NW_OK) return;
    if (nw_checkpoint_exists(path)) note_saved(r, step);
}

nw_status nw_run_load(run *r, nw_checkpoint *c)
{
    NW_FAIL_IF(nw_checkpoint_is_bare(c) || nw_checkpoint_has(c, WEIGHTS_ONLY), NW_E_FILE,
               "%s holds weights only, not the state of a run; --init starts a new run from them",
               nw_checkpoint_path(c));
    NW_TRY(nw_replicas_load(r->group, c, &r->note));
    NW_TRY(load_best(r, c));
    NW_TRY(nw_run_load_cases(r, c));
    if (r->options->run_dir) note_own_checkpoint(r, c);
    return load_times(c, r->options->watch);
}
