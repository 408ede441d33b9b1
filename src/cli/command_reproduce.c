/*
 * command_reproduce.c - `nowait reproduce PAPER[/EXPERIMENT]`: a published experiment, and its number beside ours.
 *
 * The table below names every experiment that has a recipe, what was published, and where. `--scale` says how much of
 * it to do: paper (as published), small (an eighth of the epochs, at least five), tiny (one epoch of 2048 images, to
 * see that it runs). Runs go to runs/reproduce/<paper>/<experiment>-<scale>/seed<k> and are resumable, as those of a
 * sweep.
 */
#include "cli/child.h"
#include "cli/command.h"
#include "cli/options.h"

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
    {"apam/allcnn-delay0", "apam/cifar10-allcnn", 400, 89.06, "artificial delay 0, last epoch (APAM, figure 9)"},
    {"apam/cinic10-resnet18", "apam/cinic10-resnet18", 200, 86.22, "one worker, last epoch (APAM, figure 11)"},
    {"apam/imagenet32-wrn", "apam/imagenet32-wrn28-5", 40, 50.58, "one worker, last epoch (APAM, figure 12)"},
    {"apam/mnist-lenet5", "apam/mnist-lenet5", 200, 98.95, "one worker (APAM, README of the C++ program)"},
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
}

static bool matches(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    return strcmp(name, wanted) == 0 || (strncmp(name, wanted, length) == 0 && name[length] == '/');
}

static nw_status reproduce(const experiment *e, const nw_settings *s, int argc, char **argv)
{
    bool paper = strcmp(s->scale, "paper") == 0, tiny = strcmp(s->scale, "tiny") == 0;
    char epochs[16], seed[32], dir[1024];
    int shortened = tiny ? 1 : e->epochs / 8 > 5 ? e->epochs / 8 : 5;
    char **arguments = calloc((size_t)argc + 8, sizeof *arguments);
    NW_FAIL_IF(!arguments, NW_E_MEMORY, "no memory for the arguments");
    double sum = 0;
    nw_status status = NW_OK;
    for (int k = 0; k < s->seeds && status == NW_OK; k++) {
        int count = 0;
        arguments[count++] = (char *)"--recipe";
        arguments[count++] = (char *)e->recipe;
        if (!paper) {
            snprintf(epochs, sizeof epochs, "%d", shortened);
            arguments[count++] = (char *)"--shorten";
            arguments[count++] = epochs;
        }
        if (tiny) arguments[count++] = (char *)"--limit=2048";
        for (int i = 0; i < argc; i++) arguments[count++] = argv[i];
        snprintf(seed, sizeof seed, "--seed=%lld", (long long)(s->seed + k));
        arguments[count++] = seed;
        snprintf(dir, sizeof dir, "%s/%s-%s/seed%lld", s->run_dir[0] ? s->run_dir : "runs/reproduce", e->name, s->scale,
                 (long long)(s->seed + k));
        nw_child_result result;
        status = nw_child_train(dir, arguments, count, s->quiet, &result);
        if (status == NW_OK) sum += result.test_top1;
    }
    free(arguments);
    NW_TRY(status);
    printf("%-28s %9.2f%% %9.2f%% %6d %s%s\n", e->name, e->published, sum / s->seeds, paper ? e->epochs : shortened,
           e->what,
           paper  ? ""
           : tiny ? "; here on 2048 images: it runs, no more"
                  : "; here shortened");
    return NW_OK;
}

/* What the user gave beside the experiment and reproduce's own options goes on to train. */
static int arguments_for_train(int argc, char **argv, char **kept)
{
    static const char *const own[] = {"--scale", "--seeds", "--seed", "--run-dir"};
    int count = 0;
    for (int i = 1; i < argc; i++) {
        bool skip = false;
        for (size_t k = 0; k < sizeof own / sizeof own[0] && !skip; k++) {
            size_t length = strlen(own[k]);
            bool same = strncmp(argv[i], own[k], length) == 0;
            skip = same && (argv[i][length] == 0 || argv[i][length] == '=');
            if (skip && argv[i][length] == 0) i++;
        }
        if (!skip && i < argc) kept[count++] = argv[i];
    }
    return count;
}

static nw_status run_matching(const char *wanted, const nw_settings *s, int argc, char **argv)
{
    int found = 0;
    for (int i = 0; i < EXPERIMENTS; i++) found += matches(experiments[i].name, wanted);
    NW_FAIL_IF(!found, NW_E_ARGUMENT, "there is no experiment '%s'; 'nowait reproduce list' has them all", wanted);
    printf("%-28s %10s %10s %6s %s\n", "experiment", "published", "here", "epochs", "what");
    for (int i = 0; i < EXPERIMENTS; i++)
        if (matches(experiments[i].name, wanted)) NW_TRY(reproduce(&experiments[i], s, argc, argv));
    return NW_OK;
}

nw_status nw_command_reproduce(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf(
            "usage: nowait reproduce list\n"
            "       nowait reproduce PAPER[/EXPERIMENT] [--scale tiny|small|paper] [--seeds N] [options of train]\n\n"
            "A published experiment with its own recipe, and its number beside ours. --scale small trains an eighth\n"
            "of the epochs, tiny one epoch of 2048 images. The same command goes on after an interruption.\n");
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
    if (status == NW_OK) status = run_matching(given[0], &settings, arguments_for_train(argc, given, kept), kept);
    nw_settings_free(&settings);
    free(given);
    free(kept);
    return status;
}
