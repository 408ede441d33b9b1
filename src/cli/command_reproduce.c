/*
 * command_reproduce.c - `nowait reproduce PAPER[/EXPERIMENT[/RUN]]`: a published experiment, and its numbers beside ours.
 *
 * The table below names every experiment that is one run of a recipe, what was published, and where; those of several
 * runs are in reproduce_apam.c. `--scale` says how much of it to do: paper (as published), small (an eighth of the
 * epochs, at least five), tiny (one epoch of 2048 images, to see that it runs). Runs go to
 * runs/reproduce/<paper>/<experiment>-<scale>/ and are resumable, as those of a sweep.
 */
#include "cli/command.h"
#include "cli/reproduce.h"

#include <stdlib.h>
#include <string.h>

typedef struct experiment {
    const char *name;   /* paper/experiment */
    const char *recipe; /* in recipes/ */
    int epochs;         /* of the published run */
    double published;   /* top-1 in percent */
    const char *what;
} experiment;

static const experiment experiments[] = {
    {"cifar10-fast/resnet9", "cifar10-fast", 24, 94.08, "median of 50 runs (cifar10-fast, README)"},
    {"petra/cifar10-resnet18", "petra/cifar10-resnet18-backprop", 300, 95.0, "backprop baseline (PETRA, table 2)"},
    {"petra/cifar10-resnet34", "petra/cifar10-resnet34-backprop", 300, 95.5, "backprop baseline (PETRA, table 2)"},
    {"petra/cifar10-resnet50", "petra/cifar10-resnet50-backprop", 300, 94.8, "backprop baseline (PETRA, table 2)"},
    {"petra/cifar10-revnet18", "petra/cifar10-revnet18-backprop", 300, 94.9, "backprop baseline (PETRA, table 2)"},
    {"petra/cifar10-revnet34", "petra/cifar10-revnet34-backprop", 300, 95.3, "backprop baseline (PETRA, table 2)"},
    {"petra/cifar10-revnet50", "petra/cifar10-revnet50-backprop", 300, 95.2, "backprop baseline (PETRA, table 2)"},
    {"petra/imagenet32-resnet18", "petra/imagenet32-resnet18-backprop", 90, 54.0, "backprop baseline (PETRA, table 2)"},
    {"petra/imagenet32-revnet18", "petra/imagenet32-revnet18-backprop", 90, 54.6, "backprop baseline (PETRA, table 2)"},
    {"apam/cinic10-resnet18", "apam/cinic10-resnet18", 200, 86.22, "one worker, last epoch (APAM, figure 11)"},
    {"apam/imagenet32-wrn", "apam/imagenet32-wrn28-5", 40, 50.58, "one worker, last epoch (APAM, figure 12)"},
    {"apam/mnist-lenet5-short", "apam/mnist-lenet5-short", 40, 99.01,
     "one worker, batches of 128 (APAM-cpp-mpi, README)"},
    {"dgc/resnet20", "dgc/cifar-resnet20", 200, 91.7, "dense baseline of 8 workers, read off a chart (DGC, README)"},
    {"dgc/resnet110", "dgc/cifar-resnet110", 200, 93.6, "dense baseline of 8 workers, read off a chart (DGC, README)"},
};
enum { EXPERIMENTS = sizeof experiments / sizeof experiments[0] };

static void list(void)
{
    printf("%-28s %-36s %8s %10s  %s\n", "experiment", "recipe", "epochs", "published", "what");
    for (int i = 0; i < EXPERIMENTS; i++) {
        const experiment *e = &experiments[i];
        printf("%-28s %-36s %8d %9.2f%%  %s\n", e->name, e->recipe, e->epochs, e->published, e->what);
    }
    printf("\n%-28s %4s  %s\n", "experiments of several runs", "runs", "what");
    for (int i = 0; i < nw_apam_experiment_count; i++)
        printf("%-28s %4d  %s\n", nw_apam_experiments[i].name, nw_apam_experiments[i].runs,
               nw_apam_experiments[i].what);
}

static bool matches(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return strcmp(name, wanted) == 0 || (strncmp(name, wanted, length) == 0 && name[length] == '/');
}

/* One run a seed, by the same way as the runs of a grid. */
static nw_status reproduce(const experiment *e, const nw_settings *s, int argc, char **argv)
{
    bool paper = strcmp(s->scale, "paper") == 0, tiny = strcmp(s->scale, "tiny") == 0;
    int epochs = nw_scale_epochs(tiny ? NW_SCALE_TINY : paper ? NW_SCALE_PAPER : NW_SCALE_SMALL, e->epochs);
    double sum = 0;
    nw_status status = NW_OK;
    for (int k = 0; k < s->seeds && status == NW_OK; k++) {
        char dir[1024];
        nw_words words = {0};
        nw_child_result result = {0};
        status = nw_words_add_format(&words, "--recipe=%s", e->recipe);
        if (status == NW_OK && !paper) status = nw_words_add_format(&words, "--shorten=%d", epochs);
        if (status == NW_OK && tiny) status = nw_words_add(&words, "--limit=2048");
        for (int i = 0; i < argc && status == NW_OK; i++) status = nw_words_add(&words, argv[i]);
        if (status == NW_OK) status = nw_words_add_format(&words, "--seed=%lld", (long long)(s->seed + k));
        snprintf(dir, sizeof dir, "%s/%s-%s/seed%lld", s->run_dir[0] ? s->run_dir : "runs/reproduce", e->name, s->scale,
                 (long long)(s->seed + k));
        nw_child child = {.dir = dir, .arguments = words.at, .count = words.count, .quiet = s->quiet};
        if (status == NW_OK) status = s->dry_run ? nw_child_print(&child) : nw_child_train(&child, &result);
        nw_words_free(&words);
        sum += result.test_top1;
    }
    NW_TRY(status);
    if (s->dry_run) return NW_OK;
    printf("%-28s %9.2f%% %9.2f%% %6d %s%s\n", e->name, e->published, sum / s->seeds, epochs, e->what,
           paper  ? ""
           : tiny ? "; here on 2048 images: it runs, no more"
                  : "; here shortened");
    return NW_OK;
}

/* Whether `wanted` is the experiment, the paper, or one of its runs (then *run is the run's name, otherwise NULL). */
static bool wants(const char *name, const char *wanted, const char **run)
{
    *run = NULL;
    if (matches(name, wanted)) return true;
    size_t length = strlen(name);
    if (strncmp(wanted, name, length) != 0 || wanted[length] != '/') return false;
    *run = wanted + length + 1;
    return true;
}

static nw_status run_matching(const char *wanted, const nw_settings *s, int argc, char **argv)
{
    int single = 0, several = 0;
    const char *run;
    for (int i = 0; i < EXPERIMENTS; i++) single += matches(experiments[i].name, wanted);
    for (int i = 0; i < nw_apam_experiment_count; i++) several += wants(nw_apam_experiments[i].name, wanted, &run);
    NW_FAIL_IF(!single && !several, NW_E_ARGUMENT, "there is no experiment '%s'; 'nowait reproduce list' has them all",
               wanted);
    NW_FAIL_IF(s->real && strncmp(wanted, "apam/speed", strlen("apam/speed")) != 0, NW_E_ARGUMENT,
               "only apam/speed can be done with --real ranks, not %s", wanted);
    if (single && !s->dry_run) printf("%-28s %10s %10s %6s %s\n", "experiment", "published", "here", "epochs", "what");
    for (int i = 0; i < EXPERIMENTS; i++)
        if (matches(experiments[i].name, wanted)) NW_TRY(reproduce(&experiments[i], s, argc, argv));
    for (int i = 0; i < nw_apam_experiment_count; i++) {
        const nw_experiment *e = &nw_apam_experiments[i];
        if (!wants(e->name, wanted, &run)) continue;
        bool lacks = e->needs && !nw_settings_is_set(s, "data-dir");
        NW_FAIL_IF(lacks && several == 1, NW_E_ARGUMENT, "%s needs %s: name it, or its folder, with --data-dir",
                   e->name, e->needs);
        if (lacks)
            fprintf(stderr, "nowait: %s is left out, since it needs %s\n", e->name, e->needs);
        else
            NW_TRY(nw_grid_run(e, s, run, argv, argc));
    }
    return NW_OK;
}

nw_status nw_command_reproduce(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf(
            "usage: nowait reproduce list\n"
            "       nowait reproduce PAPER[/EXPERIMENT[/RUN]] [--scale tiny|small|paper] [--seeds N] [--dry-run]\n"
            "                        [options of train]\n\n"
            "A published experiment with its own recipe, and its numbers beside ours. --scale small trains an eighth\n"
            "of the epochs, tiny one epoch of 2048 images. The same command goes on after an interruption. --dry-run\n"
            "prints the command lines of its runs. Experiments of several runs leave tables and drawings in their\n"
            "folder; docs/reproduce.md tells more.\n");
        return NW_OK;
    }
    NW_FAIL_IF(argc < 1 || argv[0][0] == '-', NW_E_ARGUMENT,
               "name a paper or an experiment first; 'nowait reproduce list' has them all");
    if (strcmp(argv[0], "list") == 0) {
        list();
        return NW_OK;
    }
    char **given = calloc((size_t)argc + 1, sizeof *given), **kept = calloc((size_t)argc + 1, sizeof *kept);
    nw_settings settings = {0};
    int positional;
    nw_status status = given && kept ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory for the arguments");
    if (status == NW_OK) {
        for (int i = 0; i < argc; i++) given[i] = argv[i];
        status = nw_options_parse(NW_COMMAND_REPRODUCE, argc, argv, &settings, &positional);
    }
    if (status == NW_OK) {
        static const char *const own[] = {"scale", "seeds", "seed", "run-dir", "real", "dry-run", NULL};
        int count = nw_child_keep(NW_COMMAND_REPRODUCE, own, argc - 1, given + 1, kept);
        status = run_matching(given[0], &settings, count, kept);
    }
    nw_settings_free(&settings);
    free(given);
    free(kept);
    return status;
}
