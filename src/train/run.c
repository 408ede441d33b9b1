/* run.c - see run.h: the beginning and the end of a run. run_loop.c has its epochs. Read it from the bottom. */
#include "train/run_private.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

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
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_TRY(nw_checkpoint_open(&c, path));
    for (int i = 0; i < r->group->count; i++) {
        nw_net *net = r->group->members[i].replica->net;
        NW_TRY(nw_checkpoint_read_model(c, r->options->group.replica.net.model, &net->model.params, NULL));
    }
    return NW_OK;
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
    if (o->group.mode == NW_REPLICAS_MPI && nw_replicas_lockstep(r->group)) { /* each rank evaluates its share */
        options.rank = o->group.rank;
        options.world = o->group.world > 1 ? o->group.world : 0;
    }
    return nw_loader_create(loader, &options);
}

static nw_status prepare(run *r, nw_checkpoint *c)
{
    const nw_run_options *o = r->options;
    nw_replicas_options group = o->group;
    group.driver.stop = o->stop;
    group.updated = nw_run_updated;
    group.snapshot = nw_run_snapshot;
    group.dropped = nw_run_dropped;
    group.context = r;
    if (o->run_dir) NW_TRY(nw_path_join(&r->dump_dir, o->run_dir, "dumps"));
    group.driver.dump_dir = r->dump_dir;
    if (o->run_dir && o->record_events && group.world > 1 && group.mode != NW_REPLICAS_REPLAY)
        NW_TRY(nw_recorder_create(&r->recorder));
    group.driver.recorder = r->recorder;
    NW_TRY(nw_replicas_create(&r->group, &group));
    NW_TRY(make_loader(r, NW_SPLIT_TEST, o->test_batch_size, &r->test));
    if (o->dataset->split[NW_SPLIT_VALID].count > 0)
        NW_TRY(make_loader(r, NW_SPLIT_VALID, o->test_batch_size, &r->validation));
    if (o->train_metrics) NW_TRY(make_loader(r, NW_SPLIT_TRAIN, o->train_eval_batch_size, &r->train_eval));
    if (c) NW_TRY(nw_run_load(r, c));
    for (int i = 0; group.mode == NW_REPLICAS_REPLAY && i < r->group->count; i++)
        r->group->members[i].replica->at.lr_factor = group.recorded->header.lr_factor;
    if (!c && o->init) NW_TRY(start_from_weights(r, o->init));
    for (int i = 0; !c && i < r->group->count; i++) {
        nw_replica *replica = r->group->members[i].replica;
        replica->at.epoch = o->start_epoch;
        replica->at.batches = nw_replica_batches_before(replica, o->start_epoch);
    }
    NW_FAIL_IF(o->start_epoch > 0 && !nw_replicas_lockstep(r->group), NW_E_ARGUMENT,
               "--exchange %s counts updates from the first; resume a run with --resume instead of --epoch",
               o->group.exchange.name);
    NW_TRY(nw_run_add_images(r));
    return nw_replicas_begin(r->group);
}

/* Makes the run's directory and keeps other processes out of it until the lock is closed; a file system without locks
 * has to do without (-1). config.yaml goes there; a run that goes on keeps the one that it was started with. */
static nw_status open_directory(run *r, bool resumes)
{
    const char *dir = r->options->run_dir, *config = r->options->config;
    int *lock = &r->lock;
    NW_TRY(nw_directory_make(dir));
    *lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    NW_FAIL_IF(*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, NW_E_ARGUMENT,
               "another process is training in %s; wait until it ends, or choose another --run-dir", dir);
    if (*lock >= 0) NW_TRY(nw_directory_sweep(dir)); /* of a process that was killed */
    if (!config) return NW_OK;
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_path_join(&path, dir, NW_CHECKPOINT_CONFIG));
    bool keeps = resumes && nw_file_is_regular(path);
    return keeps ? NW_OK : nw_file_replace(path, config, strlen(config));
}

nw_status nw_run_open_event_log(run *r)
{
    const nw_run_options *o = r->options;
    const nw_net *net = first(r)->net;
    bool stop;
    if (!o->run_dir) return NW_OK;
    NW_TRY(nw_replicas_agree_to_stop(r->group, &stop));
    nw_log_header h = {.world = nw_replicas_world(r->group),
                       .first_rank = r->group->driver->first,
                       .ranks = r->group->count,
                       .first_step = nw_replicas_updates(r->group),
                       .first_epoch = finished_epochs(r),
                       .seed = o->group.replica.net.seed,
                       .lr_factor = first(r)->at.lr_factor};
    NW_TRY(nw_log_cut(o->run_dir, h.first_step, h.first_rank));
    if (!r->recorder) return NW_OK;
    snprintf(h.exchange, sizeof h.exchange, "%s", r->group->options.exchange.name);
    snprintf(h.codec, sizeof h.codec, "%s", r->group->options.codecs.codec.name);
    snprintf(h.isa, sizeof h.isa, "%s", nw_net_isa(net));
    snprintf(h.precision, sizeof h.precision, "%s", nw_net_precision(net));
    snprintf(h.version, sizeof h.version, "%s", nw_version());
    snprintf(h.commit, sizeof h.commit, "%s", nw_build_commit());
    return nw_recorder_open(r->recorder, o->run_dir, &h, o->config);
}

/* What the replicas of this process hold: their blocks, which have all but the images, earlier parameters (at most), and
 * what an exchange sums gradients in. */
static int64_t memory_of(const nw_replicas *group)
{
    size_t bytes = 0, vector = nw_replicas_first(group)->net->model.params.learned.floats * sizeof(float);
    for (int i = 0; i < group->count; i++) bytes += nw_net_memory(group->members[i].replica->net);
    int earlier = nw_max(0, group->options.replica.delay.models - 1);
    bytes += (size_t)group->count * vector * (size_t)earlier;
    const nw_replica *one = nw_replicas_first(group);
    if (one->outer)
        bytes += (size_t)group->count *
                 (nw_local_bytes(&group->options.exchange, vector / sizeof(float)) + one->outer_room.capacity);
    else if (nw_replicas_world(group) > 1)
        bytes += (size_t)group->count * vector;
    bytes += (size_t)group->count * nw_memory_bytes(&group->options.codecs.memory, vector / sizeof(float));
    bytes += nw_replicas_copy_bytes(group, group->driver->first);
    return (int64_t)bytes;
}

static nw_status open_observers(run *r, const nw_checkpoint *c)
{
    nw_observe_options observe = r->options->observe;
    const nw_position *at = position(r);
    int64_t step = nw_replicas_updates(r->group), images = images_seen(r);
    if (!leads(r)) return NW_OK;
    if (c) observe.resume = (nw_resume_point){.step = step, .epoch = nw_run_epochs_told(r), .images = images};
    NW_TRY(nw_observers_open(&r->observers, &observe));
    nw_run_record record = r->options->record;
    const nw_replica_options *o = &r->options->group.replica;
    record.step = step;
    record.epoch = at->epoch;
    record.images = images;
    record.parameters = (int64_t)first(r)->net->model.params.learned.floats;
    record.memory_bytes = memory_of(r->group);
    record.train_images = r->options->dataset->split[NW_SPLIT_TRAIN].count;
    record.test_images = r->options->dataset->split[NW_SPLIT_TEST].count;
    record.batch_size = o->loader.batch_size;
    record.batches_per_epoch = nw_replicas_epoch_batches(r->group);
    record.accumulation_steps = o->accumulation;
    record.max_epoch = r->options->epochs;
    if (r->options->max_steps > 0) record.max_steps = r->options->max_steps;
    record.seed = (int64_t)o->net.seed;
    record.world_size = nw_replicas_world(r->group);
    record.threads = nw_net_threads(first(r)->net);
    record.precision = nw_net_precision(first(r)->net);
    record.isa = nw_net_isa(first(r)->net);
    if (r->options->observe.table) nw_replicas_print_outer(r->group, r->options->observe.table);
    char collective[160];
    if (nw_assign_compresses(&r->group->options.codecs)) {
        nw_replicas_collective(r->group, collective, sizeof collective);
        record.collective = collective;
        if (r->options->observe.table) nw_replicas_print_codecs(r->group, r->options->observe.table);
    }
    nw_run_tell(r, nw_observers_run(&r->observers, &record));
    if (c) tell_differences(r, c);
    if (nw_net_note(first(r)->net)) nw_observers_message(&r->observers, nw_net_note(first(r)->net));
    if (first(r)->schedule.warning[0]) nw_observers_message(&r->observers, first(r)->schedule.warning);
    return NW_OK;
}

/* Fills status, times and what the machine did; images must be known. */
static void fill_end(const run *r, nw_status status, nw_end_record *end)
{
    nw_phase_times t = times(r);
    end->status = status == NW_OK ? "done" : status == NW_E_INTERRUPTED ? "interrupted" : "failed";
    end->preprocess_seconds = nw_phase_seconds(t, NW_PHASE_PREPROCESS);
    end->train_seconds = nw_phase_seconds(t, NW_PHASE_TRAIN);
    end->validation_seconds = nw_phase_seconds(t, NW_PHASE_VALIDATION);
    end->checkpoint_seconds = nw_phase_seconds(t, NW_PHASE_CHECKPOINT);
    end->other_seconds = nw_phase_seconds(t, NW_PHASE_OTHER);
    end->total_seconds = nw_phase_total_seconds(t);
    end->dawnbench_seconds = nw_phase_dawnbench_seconds(t);
    if (end->train_seconds > 0) end->images_per_second = (double)end->images / end->train_seconds;
    end->peak_memory_bytes = (int64_t)nw_machine_peak_memory();
    end->steal_percent = nw_machine_steal_percent(r->ticks, nw_machine_ticks());
    end->load = nw_machine_load();
}

/* Whether a run has told its end there: summary.json. In no directory (NULL) it has not. */
static nw_status has_summary(const char *dir, bool *has)
{
    NW_AUTOFREE char *path = NULL;
    *has = false;
    if (!dir) return NW_OK;
    NW_TRY(nw_path_join(&path, dir, "summary.json"));
    *has = nw_file_is_regular(path);
    return NW_OK;
}

static void tell_end(run *r, nw_status status)
{
    nw_end_record *end = &r->result->end;
    if (!r->result->weights_sha256[0]) nw_net_weights_sha256(first(r)->net, r->result->weights_sha256);
    end->step = nw_replicas_updates(r->group);
    end->epoch = finished_epochs(r);
    end->images = images_seen(r);
    fill_end(r, status, end);
    end->virtual_seconds = nw_replicas_virtual_seconds(r->group);
    end->bytes_sent = (int64_t)nw_account_bytes(&r->sent);
    end->messages_sent = (int64_t)r->sent.messages;
    nw_run_fill_compression(r, end);
    nw_run_fill_averagings(r, end);
    if (r->options->observe.table && status == NW_OK) nw_run_print_compression(r, r->options->observe.table);
    if (first(r)->history || !nw_replicas_lockstep(r->group)) {
        r->result->delays = nw_replicas_lockstep(r->group) ? *nw_history_delays(first(r)->history) : r->group->delays;
        end->delays = &r->result->delays;
    }
    if (!nw_replicas_lockstep(r->group)) end->thrown_away = r->group->thrown_away;
    end->weights_sha256 = r->result->weights_sha256;
    nw_run_tell(r, nw_observers_end(&r->observers, end));
    r->result->last = r->epoch;
    r->result->epochs =
        (double)position(r)->epoch + (double)position(r)->batch / (double)nw_replicas_epoch_batches(r->group);
}

static nw_status write_trace(run *r, bool alone)
{
    NW_AUTOFREE char *path = NULL;
    if (!r->options->run_dir) return NW_OK;
    NW_TRY(nw_path_join(&path, r->options->run_dir, "trace.json"));
    return nw_replicas_write_trace(r->group, path, alone);
}

static nw_status tell_ledger(run *r, const nw_ledger *world)
{
    const nw_run_options *o = r->options;
    nw_ledger_codec codecs[NW_STATS_CODECS];
    nw_ledger_run counts = {.steps = nw_replicas_updates(r->group),
                            .images = images_seen(r),
                            .codecs = codecs,
                            .codec_count = nw_run_list_codecs(r, codecs, NW_STATS_CODECS)};
    NW_AUTOFREE char *path = NULL;
    r->sent = nw_ledger_total(world, NW_SENT);
    NW_TRY(nw_ledger_check_links(world, r->group->dropped));
    if (o->run_dir) NW_TRY(nw_path_join(&path, o->run_dir, "ledger.json"));
    if (path) NW_TRY(nw_ledger_save_json(world, counts, path));
    if (o->observe.table) nw_ledger_print(world, counts, o->observe.table);
    return NW_OK;
}

/* Of what a checkpoint would have for its model. */
static nw_status hash_weights(run *r)
{
    NW_TRY(nw_replicas_show_outer(r->group));
    nw_params shown = nw_replicas_shown(r->group);
    nw_params_sha256(&shown, r->result->weights_sha256);
    nw_replicas_hide_outer(r->group);
    return NW_OK;
}

/* Adds up what all ranks sent, checks it against what the transport moved, and writes it down. */
static nw_status finish_ledger_and_trace(run *r)
{
    nw_ledger *world;
    NW_TRY(hash_weights(r));
    NW_TRY(write_trace(r, false));
    NW_TRY(nw_replicas_channel_stats(r->group, &r->stats));
    NW_TRY(nw_run_add_averagings(r));
    if (!r->group->ledger) return NW_OK;
    NW_TRY(nw_ledger_check(r->group->ledger));
    NW_TRY(nw_replicas_world_ledger(r->group, &world));
    if (!world) return NW_OK;
    nw_status status = tell_ledger(r, world);
    if (world != r->group->ledger) nw_ledger_free(world);
    return status;
}

/* Whether the run, as it was loaded or made, is at the end asked for and has said so in summary.json. */
static nw_status has_nothing_to_do(const run *r, bool *nothing)
{
    bool at_end = reached_steps(r) || (is_last_epoch(r) && nw_replicas_epoch_is_over(r->group));
    *nothing = position(r)->epoch >= r->options->epochs;
    return *nothing || !r->ended || !at_end ? NW_OK : has_summary(r->options->run_dir, nothing);
}

static nw_status train(run *r, nw_checkpoint *c)
{
    const nw_run_options *o = r->options;
    NW_TRY(prepare(r, c));
    nw_stopwatch_leave(o->watch, NW_PHASE_PREPROCESS, nw_now_ns());
    NW_TRY(has_nothing_to_do(r, &r->result->nothing_to_do));
    if (r->result->nothing_to_do) return NW_OK;
    if (o->run_dir && leads(r)) NW_TRY(open_directory(r, c != NULL));
    NW_TRY(nw_run_open_event_log(r));
    NW_TRY(open_observers(r, c));
    nw_status status = nw_run_loop(r);
    if (status == NW_OK || status == NW_E_INTERRUPTED) {
        nw_status kept = finish_ledger_and_trace(r);
        if (status == NW_OK) status = kept;
        nw_run_tell(r, nw_recorder_close(r->recorder, status == NW_OK || status == NW_E_INTERRUPTED));
    }
    char message[512];
    snprintf(message, sizeof message, "%s", nw_error_message());
    r->failed = status != NW_OK && status != NW_E_INTERRUPTED;
    if (r->failed) {
        write_trace(r, true); /* what is known here */
        nw_run_tell_fault(r,
                          status == NW_E_NUMERIC    ? "not-finite"
                          : status == NW_E_MISMATCH ? "mismatch"
                                                    : "failure",
                          message);
    }
    tell_end(r, status);
    nw_status closing = nw_observers_close(&r->observers);
    return status != NW_OK ? NW_FAIL(status, "%s", message) : closing; /* closing may have left another sentence */
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
             .evaluated_step = -1,
             .lock = -1,
             .ticks = nw_machine_ticks()};
    nw_record_clear(NW_RECORD_EPOCH, &r.epoch);
    nw_checkpoint *checkpoint = NULL;
    nw_status status = options->resume ? nw_checkpoint_open(&checkpoint, options->resume) : NW_OK;
    if (status == NW_OK) status = train(&r, checkpoint);
    nw_checkpoint_close(checkpoint);
    nw_observers_close(&r.observers);
    nw_run_close_evaluator(&r);
    nw_loader *loaders[] = {r.test, r.validation, r.train_eval, r.recalibrate};
    for (int i = 0; i < 4; i++)
        if (loaders[i]) nw_loader_free(loaders[i]);
    if (status != NW_OK && status != NW_E_INTERRUPTED && r.group && r.group->driver) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", nw_error_message());
        nw_driver_fail(r.group->driver, status, reason);
        status = NW_FAIL(status, "%s", reason);
    }
    nw_replicas_free(r.group);
    free(r.dump_dir);
    free(r.snapshots);
    nw_recorder_free(r.recorder);
    if (r.lock >= 0) close(r.lock);
    return status;
}
