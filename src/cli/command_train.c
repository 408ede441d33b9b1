/*
 * command_train.c - `nowait train`: from settings to a run directory with everything that a run leaves.
 *
 * Without any option it trains the demo. A run directory is never written over: a directory that holds a checkpoint is
 * continued (--resume, or, for compositions of --configs, by itself as their authors' program does, if its settings are
 * the same) or refused. What a
 * run that was killed before its first checkpoint left is replaced. Two processes never train in one directory.
 */
#include "bench/calibrate.h"
#include "cli/command.h"
#include "config/option_table.h"
#include "setup/plan.h"
#include "setup/plan_codec.h"
#include "setup/plan_gossip.h"
#include "setup/results.h"
#include "config/recipe.h"
#include "setup/session.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/text.h"
#include "net/mpi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- where the run lives ----------------------------------------------------------------------------------------- */

/* The directory of checkpoints that lie in RUN/checkpoints/STEP; NULL for one that lies elsewhere. */
static nw_status run_around(const char *path, char **run_dir)
{
    NW_AUTOFREE char *parent = NULL, *name = NULL, *root = NULL, *folder = NULL;
    *run_dir = NULL;
    NW_TRY(nw_path_split(path, &parent, &name));
    if (nw_path_split(parent, &root, &folder) != NW_OK) return NW_OK; /* "." and ".." have no name */
    return strcmp(folder, "checkpoints") == 0 ? nw_text_copy(run_dir, root) : NW_OK;
}

static nw_status holds_run(const char *dir, bool *holds)
{
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_path_join(&path, dir, NW_CHECKPOINT_CONFIG));
    *holds = nw_file_is_regular(path);
    return NW_OK;
}

/* The run that a checkpoint continues: the one it lies in, or the one that wrote it elsewhere (--name-checkpoint), if
 * that is still there; otherwise NULL. */
static nw_status run_of_checkpoint(nw_checkpoint *c, char **run_dir)
{
    const char *writer;
    bool holds;
    NW_TRY(run_around(nw_checkpoint_path(c), run_dir));
    if (*run_dir || !nw_checkpoint_has(c, "run_dir")) return NW_OK;
    NW_TRY(nw_checkpoint_get_text(c, "run_dir", &writer));
    NW_TRY(holds_run(writer, &holds));
    return holds ? nw_text_copy(run_dir, writer) : NW_OK;
}

/* runs/NAME, or the first of runs/NAME-2, runs/NAME-3, ... that is free. */
static nw_status free_run_dir(const char *name, char **run_dir)
{
    for (int i = 1; i < 100000; i++) {
        NW_AUTOFREE char *text = NULL;
        bool holds;
        NW_TRY(nw_text_print(&text, i == 1 ? "runs/%s" : "runs/%s-%d", name, i));
        NW_TRY(holds_run(text, &holds));
        if (!holds) return nw_text_copy(run_dir, text);
    }
    return NW_FAIL(NW_E_ARGUMENT, "there are 100000 runs named '%s'; give --run-dir", name);
}

static bool is_among(const char *name, const char *const *list)
{
    while (*list && strcmp(name, *list) != 0) list++;
    return *list != NULL;
}

/* What becomes of a run whose option changes: another one; the same, but longer or shorter; the same, measured or
 * carried out in another way. */
typedef enum change { CHANGES_RUN, CHANGES_LENGTH, CHANGES_NOTHING } change;
static change change_of(const nw_option *o)
{
    static const char *const lengths[] = {"max-epoch", "max-steps", NULL};
    static const char *const of_run[] = {"seed", "precision", "convolution", "compat-ref", NULL};
    static const char *const carried_out[] = {"eval-every",
                                              "evaluate-first",
                                              "train-metrics",
                                              "metric",
                                              "test-batch-size",
                                              "train-eval-batch-size",
                                              "tta",
                                              "data-dir",
                                              "workers",
                                              "download",
                                              "on-divergence",
                                              "rollback-lr",
                                              "divergence-factor",
                                              "max-rollbacks",
                                              "timeout",
                                              "compare-every",
                                              "trace",
                                              "trace-events",
                                              "world-size",
                                              "record-events",
                                              "virtual",
                                              "cluster",
                                              "faults",
                                              "calibrate",
                                              "server-threads",
                                              NULL};
    bool elsewhere = o->topic == NW_TOPIC_RUN || o->topic == NW_TOPIC_CHECKPOINT || o->topic >= NW_TOPIC_MEASURE;
    if (is_among(o->name, lengths)) return CHANGES_LENGTH;
    if (is_among(o->name, carried_out) || (elsewhere && !is_among(o->name, of_run))) return CHANGES_NOTHING;
    return CHANGES_RUN;
}

/* What is asked for differently than by the run in a directory: refused, or told where it may change. */
static nw_status compare_options(const nw_settings *s, const nw_settings *earlier, const char *dir, bool tells)
{
    char changed[1024] = "", said[1024] = "";
    for (int i = 0; i < nw_option_count(); i++) {
        const nw_option *o = nw_option_at(i);
        if (!(o->commands & NW_COMMAND_TRAIN)) continue;
        const char *now = nw_settings_value(s, o->name), *then = nw_settings_value(earlier, o->name);
        if (strcmp(now, then) == 0) continue;
        change kind = change_of(o);
        if (kind == CHANGES_NOTHING) continue;
        char *list = kind == CHANGES_LENGTH ? said : changed;
        size_t used = strlen(list);
        snprintf(list + used, sizeof changed - used, "%s--%s %s instead of %s", used ? ", " : "", o->name,
                 *now ? now : "none", *then ? then : "none");
    }
    NW_FAIL_IF(*changed, NW_E_ARGUMENT,
               "%s holds a run with other settings: %s; start a run of its own with --suffix or --run-dir, or give the "
               "settings that it began with",
               dir, changed);
    if (*said && tells) fprintf(stderr, "nowait: %s continues with %s\n", dir, said);
    return NW_OK;
}

static nw_status compare_with_run(const nw_settings *s, const char *dir, bool tells)
{
    NW_AUTOFREE char *path = NULL;
    NW_CLEANUP(nw_settings_free) nw_settings *earlier = NULL;
    int positional;
    bool holds;
    NW_TRY(holds_run(dir, &holds));
    if (!holds) return NW_OK;
    NW_TRY(nw_path_join(&path, dir, NW_CHECKPOINT_CONFIG));
    char *recipe[] = {(char *)"--recipe", path};
    NW_TRY(nw_options_parse(NW_COMMAND_TRAIN, 2, recipe, &earlier, &positional));
    return compare_options(s, earlier, dir, tells);
}

nw_status nw_train_place(const nw_train_options *s, bool tells, char **run_dir, char **resume)
{
    *run_dir = *resume = NULL;
    bool holds,
        elsewhere = s->all.run_dir[0] && strcmp(nw_settings_origin(s->settings, "run-dir"), "command line") == 0;
    if (s->job.resume[0] && nw_checkpoint_exists(s->job.resume)) {
        NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
        NW_TRY(nw_text_copy(resume, s->job.resume));
        NW_TRY(nw_checkpoint_open(&c, s->job.resume));
        if (!elsewhere) NW_TRY(run_of_checkpoint(c, run_dir));
        if (*run_dir) return NW_OK;
    } else if (s->job.resume[0]) {
        /* Where this run itself will write, nothing may be there yet; elsewhere it is a mistake. */
        bool own = strcmp(s->job.resume, s->all.run_dir) == 0 || strcmp(s->job.resume, s->job.name_checkpoint) == 0;
        NW_TRY(holds_run(s->job.resume, &holds));
        NW_FAIL_IF(
            !holds && !own, NW_E_FILE,
            "--resume %s: there is no run and no checkpoint; check the path, or leave --resume out for a new run",
            s->job.resume);
        fprintf(stderr, "nowait: there is no checkpoint at %s; starting anew\n", s->job.resume);
        if (holds && !elsewhere) return nw_text_copy(run_dir, s->job.resume);
    }
    char composed[4096];
    snprintf(composed, sizeof composed, "runs/%s", s->job.run_name);
    const char *wanted = s->all.run_dir[0] ? s->all.run_dir : s->job.configs.count > 0 ? composed : NULL;
    if (!wanted) return free_run_dir(s->job.run_name, run_dir);
    NW_TRY(nw_text_copy(run_dir, wanted));
    if (*resume || !nw_file_is_directory(wanted) || !nw_checkpoint_exists(wanted)) return NW_OK;
    NW_FAIL_IF(s->job.configs.count == 0, NW_E_ARGUMENT,
               "%s holds a run already; continue it with --resume %s, or choose another --run-dir", wanted, wanted);
    NW_TRY(compare_with_run(s->settings, wanted, tells));
    return nw_text_copy(resume, wanted);
}

/* ---- what the user sees ------------------------------------------------------------------------------------------ */

static void print_servers(const nw_run_options *o)
{
    const nw_exchange_options *e = &o->group.exchange;
    int workers = nw_server_workers(e);
    fprintf(stderr, ", %d %s%s and %d %s, %s", e->servers, e->servers == 1 ? "server" : "servers",
            workers == e->group.count ? " among them" : "", workers, workers == 1 ? "worker" : "workers",
            e->sync ? "synchronous" : "asynchronous");
    if (o->group.global_batch > 0 && workers > 1) {
        int least = o->group.global_batch / workers;
        fprintf(stderr, "; batches of %d are divided among them: %d", o->group.global_batch, least);
        if (o->group.global_batch % workers) fprintf(stderr, " or %d", least + 1);
        fprintf(stderr, " images each");
    }
}

/* Of one update of the world: gossip's are made by each worker alone. */
static int64_t images_of_step(const nw_train_options *s, const nw_run_options *o, const nw_world *w)
{
    bool alone = strcmp(s->world.exchange, "gossip") == 0;
    int64_t all = (alone ? 1 : (int64_t)nw_plan_replicas(s, w)) * o->group.replica.loader.batch_size;
    return (o->group.global_batch > 0 ? o->group.global_batch : all) * s->update.accumulation_steps;
}

static void print_world(const nw_train_options *s, const nw_run_options *o, const nw_world *w)
{
    bool served = strcmp(s->world.exchange, "server") == 0;
    if (w->mode == NW_REPLICAS_ALONE) return;
    fprintf(stderr, "world     %d %s ranks", w->size, w->mode == NW_REPLICAS_MPI ? "MPI" : "virtual");
    if (w->cluster) fprintf(stderr, " of cluster %s", w->cluster->name);
    if (served)
        print_servers(o);
    else if (strcmp(s->world.exchange, "gossip") == 0)
        nw_plan_gossip_print(s, stderr);
    else
        fprintf(stderr, ", %s%s", s->world.exchange, s->world.delay ? " one step late" : "");
    char wire[160];
    nw_plan_codecs_describe(&s->codec, wire, sizeof wire);
    fprintf(stderr, ", %s on the wire; a step is %lld images\n", wire, (long long)images_of_step(s, o, w));
}

static void warn_of_threads(const nw_world *w)
{
    int cpus = nw_machine_allowed_cpus();
    if (w->mode != NW_REPLICAS_MPI && w->threads > cpus)
        fprintf(stderr, "nowait: %d threads share %d CPUs, which is slower than %d\n", w->threads, cpus, cpus);
}

static void print_start(const nw_train_options *s, const nw_run_options *o, const nw_world *w, const nw_dataset *d,
                        const char *run_dir)
{
    if (s->job.git) fprintf(stderr, "nowait %s, commit %s\n", nw_version(), nw_build_commit());
    nw_settings_print(s->settings, stderr);
    fprintf(stderr, "data      %s: %lld training and %lld test images, %d classes (%s)\n", d->name,
            (long long)d->split[NW_SPLIT_TRAIN].count, (long long)d->split[NW_SPLIT_TEST].count, d->classes, d->source);
    print_world(s, o, w);
    fprintf(stderr, "run       %s%s\n", run_dir, o->resume ? " (continued)" : "");
}

static void print_result(const nw_run_result *r, const char *run_dir, bool quiet)
{
    const nw_end_record *e = &r->end;
    if (isfinite(r->last.test_top1))
        printf("test top-1 %.2f %%, top-5 %.2f %%, loss %.4f after %.4g epoch%s, %lld step%s, %.0f images/s\n",
               r->last.test_top1, r->last.test_top5, r->last.test_loss, r->epochs, r->epochs == 1 ? "" : "s",
               (long long)e->step, e->step == 1 ? "" : "s", e->images_per_second);
    if (isfinite(e->virtual_seconds))
        printf("virtual time %.3f s, %.0f images/s\n", e->virtual_seconds, (double)e->images / e->virtual_seconds);
    if (e->delays && e->delays->count > 0)
        printf("delays mean %.2f, median %lld, nine of ten at most %lld, all at most %lld\n",
               nw_histogram_mean(e->delays), (long long)nw_histogram_quantile(e->delays, 0.5),
               (long long)nw_histogram_quantile(e->delays, 0.9), (long long)e->delays->max);
    if (e->exchanges > 0 && e->graph)
        printf("gossip on a %s graph: %lld averagings, consensus distance %.3g at the end, %.3g on average\n", e->graph,
               (long long)e->exchanges, e->consensus_final, e->consensus_mean);
    if (quiet) return;
    printf("results in %s: summary.json, metrics.jsonl, logs.tsv, checkpoints/; weights %.16s...\n", run_dir,
           r->weights_sha256);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static nw_status train_in(const nw_train_options *s, const nw_dataset *d, const nw_world *world, const char *run_dir,
                          const char *resume, nw_stopwatch *watch)
{
    NW_CLEANUP(nw_plan_free) nw_run_options o = {0};
    NW_CLEANUP(nw_text_free) nw_text config = {0};
    nw_session_origin origin;
    nw_run_result result;
    bool speaks = nw_world_leads(world), shows = speaks && !s->all.quiet;
    NW_TRY(nw_plan_run(s, d, world, &o));
    if (s->world.calibrate[0]) return nw_calibrate(s, world, &o.group.replica.net);
    NW_TRY(nw_session_config_text(s->settings, &config));
    nw_session_find_origin(&origin, &o.record);
    o.run_dir = run_dir;
    o.config = config.text;
    o.resume = resume;
    o.stop = nw_session_stop();
    o.watch = watch;
    o.observe = nw_session_observe(&s->job, run_dir, shows);
    o.observe.table = shows ? stdout : NULL;
    if (speaks) warn_of_threads(world);
    if (shows) print_start(s, &o, world, d, run_dir);
    NW_TRY_OR(nw_run_train(&o, &result), nw_averagings_free(&result.averagings));
    if (result.nothing_to_do && speaks)
        printf("nothing to do: %s has reached the end asked for (%d epochs)\n", resume, s->all.epochs);
    else if (speaks)
        print_result(&result, run_dir, s->all.quiet);
    nw_status status = speaks ? nw_results_of_run(s, world, d, &result) : NW_OK;
    nw_averagings_free(&result.averagings);
    return status;
}

static nw_status train(const nw_train_options *s)
{
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    NW_AUTOFREE char *run_dir = NULL, *resume = NULL;
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *dataset = NULL;
    NW_CLEANUP(nw_world_close) nw_world world = {0};
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    NW_TRY(nw_world_open(&world, s));
    nw_status status = nw_settings_name_run(s->settings, world.size); /* rank 0 decides for all where the run lives */
    if (status == NW_OK && nw_world_leads(&world)) status = nw_train_place(s, !s->all.quiet, &run_dir, &resume);
    NW_TRY(nw_world_broadcast(&world, status, &run_dir));
    NW_TRY(nw_world_broadcast(&world, NW_OK, &resume));
    NW_TRY(nw_plan_dataset(&s->all, &s->data, s->net.classes, &dataset));
    NW_TRY(nw_world_check(&world, s, dataset));
    return train_in(s, dataset, &world, run_dir, resume, &watch);
}

/* Whether a checkpoint is there, whole, and of that step. */
static bool is_of_step(const char *path, int64_t step)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    if (!nw_checkpoint_exists(path) || nw_checkpoint_open(&c, path) != NW_OK) return false;
    const nw_checkpoint_info *info = nw_checkpoint_get_info(c);
    return info && info->step == step;
}

/* Of a run's best step, to be freed: among its checkpoints, or kept aside; NULL: neither is there. */
static nw_status find_best(const char *run_dir, int64_t step, char **best)
{
    NW_TRY(nw_checkpoint_step_path(best, run_dir, step));
    if (nw_checkpoint_exists(*best)) return NW_OK;
    free(*best);
    NW_TRY(nw_path_join(best, run_dir, NW_RUN_BEST));
    if (is_of_step(*best, step)) return NW_OK;
    free(*best);
    *best = NULL;
    return NW_OK;
}

/* The best checkpoint of the run that `path` means, to be freed; where none is known, `path` itself. */
static nw_status best_checkpoint(const char *path, char **best)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_AUTOFREE char *run_dir = NULL;
    int64_t step = -1;
    *best = NULL;
    NW_TRY(nw_checkpoint_open(&c, path));
    if (!nw_checkpoint_is_bare(c)) NW_TRY(run_of_checkpoint(c, &run_dir));
    if (run_dir && nw_checkpoint_has(c, "best_step")) NW_TRY(nw_checkpoint_get_int(c, "best_step", &step));
    if (step >= 0) NW_TRY(find_best(run_dir, step, best));
    if (*best) return NW_OK;
    if (step >= 0)
        fprintf(stderr, "nowait: the best checkpoint of %s, of step %lld, is missing; using its newest\n", path,
                (long long)step);
    return nw_text_copy(best, path);
}

static nw_status evaluate_best(const nw_train_options *s)
{
    NW_AUTOFREE char *best = NULL;
    char named[4096];
    snprintf(named, sizeof named, "runs/%s", s->job.run_name);
    NW_TRY(best_checkpoint(s->job.resume[0] ? s->job.resume : s->all.run_dir[0] ? s->all.run_dir : named, &best));
    return nw_session_evaluate(&(nw_eval_options){.run = s, .format = "table", .split = "test"}, best);
}

nw_status nw_train_show(const nw_train_options *s)
{
    NW_AUTOFREE char *run_dir = NULL, *resume = NULL;
    NW_CLEANUP(nw_world_close) nw_world world = {0};
    NW_TRY(nw_train_place(s, !s->all.quiet, &run_dir, &resume));
    nw_session_notes(s->settings);
    printf("# run: %s\n", run_dir);
    NW_TRY(nw_config_write(s->settings, stdout));
    fflush(stdout);
    NW_TRY(nw_plan_check(s));
    NW_TRY(nw_plan_codecs_print(s, stdout));
    fflush(stdout);
    return nw_mpi_launched() ? NW_OK : nw_world_open(&world, s); /* a launcher's ranks know more than this process */
}

nw_status nw_command_train(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) return nw_session_print_help(NW_COMMAND_TRAIN, argc, argv);
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_session_parse(NW_COMMAND_TRAIN, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional > 0, NW_E_ARGUMENT, "'nowait train' takes options only, not '%s'", argv[0]);
    const nw_train_options *options = nw_train_options_of(settings);
    if (strcmp(options->job.recipe, "list") == 0) return nw_recipe_list(stdout);
    if (options->job.print_config) return nw_train_show(options);
    NW_TRY(nw_plan_check(options));
    nw_session_notes(settings);
    nw_session_catch_signals();
    return options->job.evaluate ? evaluate_best(options) : train(options);
}
