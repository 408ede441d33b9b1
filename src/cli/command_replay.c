/*
 * command_replay.c - `nowait replay RUN`: repeats a run of several ranks from its event log, in one process, and says
 * whether the weights come out the same.
 *
 * Each process that trained the run left a part (net/event_log.h) with its own options. Parts are replayed one after
 * the other as they were run: each begins with the checkpoint that the one before it leaves, in a folder that is
 * removed afterwards. Without --run-dir nothing else is written.
 */
#include "cli/command.h"
#include "config/cluster_file.h"
#include "setup/plan.h"
#include "setup/session.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json_read.h"
#include "compute/isa.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct replay {
    const nw_replay_options *asked;
    const char *run; /* that is replayed */
    nw_recording recording;
    bool whole;    /* to its end, which summary.json tells of */
    char *from;    /* the checkpoint that the next part begins with; NULL: anew */
    char *folder;  /* temporary */
    char *between; /* checkpoint from part to part */
    nw_run_result result;
} replay;

/* ---- one part ---------------------------------------------------------------------------------------------------- */

/* Its options are in the file beside its event log; those of this command that decide no numbers replace them. */
static nw_status parse_part(const replay *r, const nw_log_part *part, nw_settings **s)
{
    NW_AUTOFREE char *config = NULL;
    char sha256[65], threads[16];
    int positional, count = 0;
    uint64_t bytes;
    const char *arguments[16];
    NW_TRY(nw_path_join(&config, part->dir, NW_LOG_CONFIG));
    NW_TRY(nw_file_hash(config, &bytes, sha256));
    NW_FAIL_IF(strcmp(sha256, part->header.config_sha256) != 0, NW_E_FILE,
               "%s was changed since the run was recorded; restore it from a copy", config);
    snprintf(threads, sizeof threads, "%d", r->asked->all->threads);
    arguments[count++] = "--recipe";
    arguments[count++] = config;
    if (nw_settings_is_set(r->asked->settings, "threads"))
        arguments[count++] = "--threads", arguments[count++] = threads;
    if (nw_settings_is_set(r->asked->settings, "data-dir"))
        arguments[count++] = "--data-dir", arguments[count++] = r->asked->all->data_dir;
    if (r->asked->all->quiet) arguments[count++] = "--quiet";
    return nw_options_parse(NW_COMMAND_TRAIN, count, (char **)arguments, s, &positional);
}

/* Other kernels give other bits. */
static nw_status check_machine(const nw_log_part *part, const nw_model_settings *net)
{
    const nw_log_header *h = &part->header;
    const nw_kernels *kernels;
    NW_TRY(nw_isa_select(nw_settings_precision(net), &kernels, NULL));
    const char *precision = kernels->dtype == NW_BF16 ? "bf16" : "f32";
    NW_FAIL_IF(
        strcmp(kernels->isa, h->isa) != 0 || strcmp(precision, h->precision) != 0, NW_E_UNSUPPORTED,
        "the run used the instruction set %s in %s, and this would use %s in %s, which gives different bits; replay it on "
        "such a machine, or with NOWAIT_ISA=%s if this one has it",
        h->isa, h->precision, kernels->isa, precision, h->isa);
    return NW_OK;
}

static nw_status train_part(replay *r, const nw_train_options *s, const nw_dataset *d, const nw_log_part *part,
                            bool last)
{
    NW_CLEANUP(nw_world_close) nw_world world = {.mode = NW_REPLICAS_REPLAY, .size = part->header.world};
    NW_CLEANUP(nw_plan_free) nw_run_options o = {0};
    NW_CLEANUP(nw_text_free) nw_text config = {0};
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    bool shows = !s->all.quiet;
    if (s->world.faults[0] && strcmp(s->world.exchange, "gossip") == 0) /* who was late */
        NW_TRY(nw_faults_load(&world.faults, s->world.faults, world.size));
    NW_TRY(nw_plan_run(s, d, &world, &o));
    NW_TRY(nw_session_config_text(s->settings, &config));
    o.group.recorded = part;
    o.run_dir = r->asked->all->run_dir[0] ? r->asked->all->run_dir : NULL;
    o.config = config.text;
    o.resume = r->from;
    o.rollbacks = 0; /* where the run went back, another part begins */
    o.name_checkpoint = last ? NULL : r->between;
    o.stop = nw_session_stop();
    o.watch = &watch;
    o.observe =
        (nw_observe_options){.run_dir = o.run_dir, .progress = shows ? stderr : NULL, .print_every = s->job.print_freq};
    nw_status status = nw_run_train(&o, &r->result);
    nw_averagings_free(&r->result.averagings);
    bool ends = status == NW_E_INTERRUPTED && !*nw_session_stop(); /* where the event log ends */
    return ends ? NW_OK : status;
}

static nw_status replay_part(replay *r, const nw_log_part *part, bool last)
{
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *dataset = NULL;
    NW_TRY(parse_part(r, part, &settings));
    const nw_train_options *s = nw_train_options_of(settings);
    NW_TRY(check_machine(part, &s->net));
    if (part->first_step > 0 && !r->from) { /* it began with the checkpoint of another run */
        NW_FAIL_IF(!s->job.resume[0], NW_E_ARGUMENT,
                   "the event log of %s begins at step %" PRId64 "; give the checkpoint of that step with --from",
                   r->run, part->first_step);
        NW_TRY(nw_text_copy(&r->from, s->job.resume));
    }
    NW_TRY(nw_plan_dataset(&s->all, &s->data, s->net.classes, &dataset));
    return train_part(r, s, dataset, part, last);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

static nw_status summary_hash(const char *run, char sha256[65])
{
    NW_AUTOFREE char *path = NULL, *text = NULL;
    NW_CLEANUP(nw_json_free) nw_json_document json = {0};
    size_t size;
    const char *hash;
    sha256[0] = '\0';
    NW_TRY(nw_path_join(&path, run, "summary.json"));
    if (!nw_file_is_regular(path)) return NW_OK;
    NW_TRY(nw_file_read(path, NW_JSON_READ_BYTES, &text, &size));
    NW_TRY(nw_json_parse(&json, text, size, path));
    NW_TRY(nw_json_get_text(&json, json.values, "weights_sha256", &hash));
    snprintf(sha256, 65, "%s", hash);
    return NW_OK;
}

/* What the checkpoint of a step says; "" where there is none. */
static nw_status checkpoint_hash(const char *run, int64_t step, char sha256[65])
{
    NW_AUTOFREE char *path = NULL;
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    sha256[0] = '\0';
    NW_TRY(nw_checkpoint_step_path(&path, run, step));
    if (!nw_checkpoint_exists(path)) return NW_OK;
    NW_TRY(nw_checkpoint_open(&c, path));
    snprintf(sha256, 65, "%s", nw_checkpoint_get_info(c)->weights_sha256);
    return NW_OK;
}

static nw_status compare(const replay *r, const nw_log_part *part, bool last)
{
    char wanted[65] = "";
    const char *whose = "summary.json";
    int64_t step = nw_log_end_step(part);
    if (last && r->whole && part->ended) NW_TRY(summary_hash(r->run, wanted));
    if (!wanted[0]) {
        whose = "the checkpoint of that step";
        NW_TRY(checkpoint_hash(r->run, step, wanted));
    }
    NW_FAIL_IF(wanted[0] && strcmp(wanted, r->result.weights_sha256) != 0, NW_E_MISMATCH,
               "after step %" PRId64
               " the weights are %.16s..., but %s says %.16s...; the run was made by nowait %s (%s), this is %s (%s)",
               step, r->result.weights_sha256, whose, wanted, part->header.version, part->header.commit, nw_version(),
               nw_build_commit());
    if (!last) return NW_OK;
    if (!part->ended && r->whole)
        fprintf(stderr,
                "nowait: the run was killed or failed%s; its event log is complete up to step %" PRId64
                ", where all ranks were quiescent\n",
                part->torn ? " and left a torn event log" : "", step);
    printf("replayed steps %" PRId64 " to %" PRId64 " of %s, %d ranks: %s%s, weights %.16s...\n",
           r->recording.parts[0].points[r->recording.parts[0].skip].step + 1, step, r->run, part->header.world,
           wanted[0] ? "same weights as " : "nothing to compare with", wanted[0] ? whose : "",
           r->result.weights_sha256);
    return NW_OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static nw_status start_from(replay *r, const char *path)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_TRY(nw_checkpoint_open(&c, path));
    const nw_checkpoint_info *info = nw_checkpoint_get_info(c);
    NW_FAIL_IF(nw_checkpoint_is_bare(c), NW_E_ARGUMENT, "%s holds weights only; --from takes a checkpoint of the run",
               path);
    NW_TRY(nw_recording_start(&r->recording, info->step, info->epoch));
    return nw_text_copy(&r->from, nw_checkpoint_path(c));
}

/* The first part may have begun with a checkpoint that the run still has, when steps before it were not recorded. */
static nw_status find_beginning(replay *r)
{
    const nw_log_part *part = &r->recording.parts[0];
    NW_AUTOFREE char *path = NULL;
    if (r->from || part->first_step == 0) return NW_OK;
    NW_TRY(nw_checkpoint_step_path(&path, r->run, part->first_step));
    return nw_checkpoint_exists(path) ? nw_text_copy(&r->from, path) : NW_OK;
}

static nw_status make_folder(replay *r)
{
    const char *root = getenv("TMPDIR");
    NW_AUTOFREE char *folder = NULL;
    NW_TRY(nw_path_join(&folder, root && root[0] ? root : "/tmp", "nowait-replay-XXXXXX"));
    NW_FAIL_IF(!mkdtemp(folder), NW_E_SYSTEM, "cannot make a folder like %s; set TMPDIR to one that is writable",
               folder);
    r->folder = folder;
    folder = NULL;
    return nw_path_join(&r->between, r->folder, "state");
}

static nw_status check_run_dir(const replay *r)
{
    NW_AUTOFREE char *config = NULL;
    if (!r->asked->all->run_dir[0]) return NW_OK;
    NW_TRY(nw_path_join(&config, r->asked->all->run_dir, NW_CHECKPOINT_CONFIG));
    NW_FAIL_IF(nw_file_is_regular(config), NW_E_ARGUMENT, "%s holds a run already; choose another --run-dir, or none",
               r->asked->all->run_dir);
    return NW_OK;
}

static nw_status replay_all(replay *r)
{
    int64_t limit = r->asked->steps > 0 ? r->asked->steps : r->asked->all->max_steps;
    r->whole = limit == 0;
    NW_TRY(check_run_dir(r));
    if (r->asked->from[0]) NW_TRY(start_from(r, r->asked->from));
    if (limit > 0) NW_TRY(nw_recording_limit(&r->recording, limit));
    NW_TRY(find_beginning(r));
    if (r->recording.count > 1) NW_TRY(make_folder(r));
    const nw_log_part *first = &r->recording.parts[0];
    NW_FAIL_IF(r->recording.count == 1 && first->runs == first->skip, NW_E_FILE,
               "%s was killed before its ranks were first quiescent after step %" PRId64 ": there is nothing to replay",
               r->run, first->points[first->skip].step);
    for (int i = 0; i < r->recording.count; i++) {
        const nw_log_part *part = &r->recording.parts[i];
        bool last = i + 1 == r->recording.count;
        NW_TRY(replay_part(r, part, last));
        NW_TRY(compare(r, part, last));
        if (last) break;
        free(r->from);
        NW_TRY(nw_text_copy(&r->from, r->between));
    }
    return NW_OK;
}

static nw_status replay_run(const nw_replay_options *s, const char *run)
{
    replay r = {.asked = s, .run = run};
    nw_status status = nw_recording_load(&r.recording, run);
    if (status == NW_OK) status = s->show ? nw_recording_print(&r.recording, stdout) : replay_all(&r);
    bool left = r.between && nw_file_is_directory(r.between) && nw_directory_discard(r.between) != NW_OK;
    if (r.folder && !left) rmdir(r.folder);
    nw_recording_free(&r.recording);
    free(r.between);
    free(r.folder);
    free(r.from);
    return status;
}

nw_status nw_command_replay(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf("usage: nowait replay RUN [options]\n\n"
               "Repeats a run of several ranks (over MPI or virtual) in one process from RUN/event-log, and compares\n"
               "the weights with those of the run. Nothing is written unless --run-dir says where.\n\n");
        nw_options_help(NW_COMMAND_REPLAY, stdout);
        return NW_OK;
    }
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_options_parse(NW_COMMAND_REPLAY, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional != 1, NW_E_ARGUMENT, "'nowait replay' takes one run's directory, not %d; see --help",
               positional);
    nw_session_catch_signals();
    nw_replay_options options = nw_replay_options_of(settings);
    return replay_run(&options, argv[0]);
}
