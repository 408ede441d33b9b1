/* session.c - see session.h. */
#include "setup/session.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "net/mpi.h"
#include "setup/plan.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop_flag;

static int64_t first_signal; /* when it came */

/* One that comes within a second of the first is the same wish, said by a terminal and by a supervisor that passes it
 * on; a later one is impatience. */
static void on_signal(int number)
{
    int64_t now = nw_now_ns();
    if (stop_flag && now - first_signal > 1000000000) {
        signal(number, SIG_DFL);
        raise(number);
    }
    if (!stop_flag) first_signal = now;
    stop_flag = 1;
}

void nw_session_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL); /* mpirun passes it on and lets its ranks live, other than TERM */
    signal(SIGPIPE, SIG_IGN);          /* training goes on when nobody reads its output any more */
}

const volatile sig_atomic_t *nw_session_stop(void) { return &stop_flag; }

void nw_session_notes(const nw_settings *s)
{
    bool first = nw_mpi_environment_rank() == 0; /* of the processes of a launcher, which all know the same */
    for (int i = 0; first && i < nw_settings_notes(s); i++) fprintf(stderr, "nowait: %s\n", nw_settings_note(s, i));
}

nw_status nw_session_config_text(const nw_settings *s, nw_text *text)
{
    NW_TRY(nw_text_begin(text));
    NW_TRY(nw_config_write(s, text->out));
    return nw_text_end(text);
}

/* ---- what a run tells -------------------------------------------------------------------------------------------- */

void nw_session_find_origin(nw_session_origin *origin, nw_run_record *record)
{
    time_t now = time(NULL);
    *origin = (nw_session_origin){0};
    strftime(origin->started, sizeof origin->started, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    nw_machine_cpu_name(origin->cpu, sizeof origin->cpu);
    gethostname(origin->host, sizeof origin->host - 1);
    record->started = origin->started;
    record->cpu = origin->cpu;
    record->host = origin->host;
}

nw_observe_options nw_session_observe(const nw_job_settings *s, const char *run_dir, bool shows)
{
    return (nw_observe_options){.run_dir = run_dir,
                                .progress = shows ? stderr : NULL,
                                .warnings = stderr,
                                .print_every = s->print_freq,
                                .tensorboard = s->tensorboard && nw_tensorboard_available(),
                                .metrics_file = s->metrics_file[0] ? s->metrics_file : NULL,
                                .log_dir = s->log_dir[0] ? s->log_dir : NULL};
}

/* ---- settings of a checkpoint ------------------------------------------------------------------------------------ */

/* config.yaml of the checkpoint at `path`, or of a run there that has none yet, to be freed; NULL if there is none. */
static nw_status config_of(const char *path, char **config)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_AUTOFREE char *beside = NULL;
    *config = NULL;
    if (!nw_checkpoint_exists(path)) {
        NW_TRY(nw_path_join(&beside, path, NW_CHECKPOINT_CONFIG));
        return nw_file_is_regular(beside) ? nw_text_copy(config, beside) : NW_OK;
    }
    NW_TRY(nw_checkpoint_open(&c, path));
    if (nw_checkpoint_is_bare(c) || !nw_checkpoint_has_file(c, NW_CHECKPOINT_CONFIG)) return NW_OK;
    return nw_path_join(config, nw_checkpoint_path(c), NW_CHECKPOINT_CONFIG);
}

/* Parses again with a file of settings in the place of the recipe. */
static nw_status parse_with_config(unsigned command, int argc, char **argv, const char *config, nw_settings **settings,
                                   int *positional)
{
    NW_AUTOFREE char **longer = calloc((size_t)argc + 3, sizeof *longer);
    NW_FAIL_IF(!longer, NW_E_MEMORY, "no memory for the arguments");
    longer[0] = (char *)"--recipe";
    longer[1] = (char *)config;
    for (int i = 0; i < argc; i++) longer[i + 2] = argv[i];
    nw_settings_free(settings);
    NW_TRY(nw_options_parse(command, argc + 2, longer, settings, positional));
    for (int i = 0; i < *positional; i++) argv[i] = longer[i];
    return NW_OK;
}

nw_status nw_session_parse(unsigned command, int argc, char **argv, nw_settings **settings, int *positional)
{
    NW_AUTOFREE char **copy = calloc((size_t)argc + 1, sizeof *copy), *config = NULL;
    NW_FAIL_IF(!copy, NW_E_MEMORY, "no memory for the arguments");
    for (int i = 0; i < argc; i++) copy[i] = argv[i];
    bool looks = command != NW_COMMAND_TRAIN; /* at a run, whose settings are train's */
    command |= NW_COMMAND_TRAIN;
    NW_TRY(nw_options_parse(command, argc, argv, settings, positional));
    const nw_job_settings *job = &nw_train_options_of(*settings)->job;
    if (nw_settings_is_set(*settings, "recipe") || job->configs.count > 0) return NW_OK;
    const char *path = !looks ? job->resume : *positional > 0 ? argv[0] : "";
    if (path[0]) NW_TRY(config_of(path, &config));
    NW_FAIL_IF(looks && path[0] && !config && !nw_checkpoint_exists(path), NW_E_FILE,
               "there is no checkpoint '%s'; check the path", path);
    if (!config) return NW_OK;
    for (int i = 0; i < argc; i++) argv[i] = copy[i];
    return parse_with_config(command, argc, argv, config, settings, positional);
}

/* ---- evaluation -------------------------------------------------------------------------------------------------- */

static nw_status read_weights(nw_checkpoint *c, const char *model, nw_net *net, bool *averaged)
{
    nw_params *p = &net->model.params;
    NW_TRY(nw_checkpoint_read_model(c, model, p, NULL));
    return nw_replicas_read_average(c, p, averaged);
}

nw_status nw_session_load(const char *path, const nw_net_options *options, nw_net **net, bool *averaged)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    *net = NULL;
    NW_FAIL_IF(!path[0], NW_E_ARGUMENT, "no checkpoint is named; give the directory of a run or of a checkpoint");
    NW_TRY(nw_checkpoint_open(&c, path));
    if (nw_checkpoint_note(c)) fprintf(stderr, "nowait: %s\n", nw_checkpoint_note(c));
    NW_TRY(nw_net_create(net, options));
    return read_weights(c, options->model, *net, averaged);
}

static void print_score(const char *format, const nw_dataset *d, const char *split, const nw_tally *tally,
                        bool averaged, double seconds)
{
    if (strcmp(format, "json") == 0) {
        nw_json json = nw_json_begin(stdout, true);
        nw_json_object(&json);
        nw_json_put_string(&json, "dataset", d->name);
        nw_json_put_string(&json, "split", split);
        nw_json_put_int(&json, "images", tally->images);
        nw_json_put_double(&json, "top1", nw_tally_top1(tally));
        nw_json_put_double(&json, "top5", nw_tally_top5(tally));
        nw_json_put_double(&json, "loss", nw_tally_loss(tally));
        nw_json_put_bool(&json, "averaged_weights", averaged);
        nw_json_put_double(&json, "seconds", seconds);
        nw_json_object_end(&json);
        nw_json_end(&json);
        return;
    }
    printf("%s, %s split, %lld images: top-1 %.2f %%, top-5 %.2f %%, loss %.4f%s (%.1f s)\n", d->name, split,
           (long long)tally->images, nw_tally_top1(tally), nw_tally_top5(tally), nw_tally_loss(tally),
           averaged ? ", with averaged weights" : "", seconds);
}

static nw_status evaluate_on(const nw_eval_options *o, const nw_dataset *d, const char *checkpoint)
{
    nw_split split = strcmp(o->split, "train") == 0 ? NW_SPLIT_TRAIN
                     : strcmp(o->split, "val") == 0 ? NW_SPLIT_VALID
                                                    : NW_SPLIT_TEST;
    NW_FAIL_IF(d->split[split].count == 0, NW_E_ARGUMENT, "%s has no images in its %s split", d->name, o->split);
    NW_CLEANUP(nw_plan_free) nw_run_options plan = {0};
    NW_CLEANUP(nw_net_autofree) nw_net *net = NULL;
    NW_CLEANUP(nw_loader_autofree) nw_loader *loader = NULL;
    bool averaged = false, complete = false;
    nw_tally tally = {0};
    int64_t start = nw_now_ns();
    NW_TRY(nw_plan_run(o->run, d, NULL, &plan));
    NW_TRY(nw_session_load(checkpoint, &plan.group.replica.net, &net, &averaged));
    nw_loader_options options = plan.group.replica.loader;
    options.split = split;
    options.batch_size = plan.test_batch_size;
    options.shuffle = options.drop_last = options.augmented = false;
    options.augment = plan.test_augment;
    NW_TRY(nw_loader_create(&loader, &options));
    NW_TRY(nw_evaluate(net, loader, plan.both_views, nw_session_stop(), &tally, &complete));
    NW_FAIL_IF(!complete, NW_E_INTERRUPTED, "the evaluation was interrupted");
    print_score(o->format, d, o->split, &tally, averaged, (double)(nw_now_ns() - start) * 1e-9);
    return NW_OK;
}

nw_status nw_session_evaluate(const nw_eval_options *o, const char *checkpoint)
{
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *dataset = NULL;
    NW_TRY(nw_plan_dataset(&o->run->all, &o->run->data, o->run->net.classes, &dataset));
    return evaluate_on(o, dataset, checkpoint);
}

nw_status nw_session_print_help(unsigned command, int argc, char **argv)
{
    const char *topic = NULL;
    for (int i = 0; i + 1 < argc; i++)
        if ((strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) && argv[i + 1][0] != '-')
            topic = argv[i + 1];
    return nw_options_help_topic(command, topic, stdout);
}
