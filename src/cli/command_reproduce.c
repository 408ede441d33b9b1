/*
 * command_reproduce.c - `nowait reproduce PAPER[/EXPERIMENT[/RUN]]`: a published experiment, and its numbers beside
 * ours.
 *
 * Papers are data, experiments/PAPER.yaml (experiment/paper.h). `--scale` says how much to do: paper (as published),
 * small (an eighth of the epochs, at least five), tiny (one epoch of 2048 images, to see that it runs). Runs go to
 * runs/reproduce/<paper>/<experiment>-<scale>/ and are resumable, as those of a sweep.
 */
#include "cli/command.h"
#include "experiment/paper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---------------------------------------------------------------------------------------------------- */

static nw_status list_one(const char *name, bool several)
{
    NW_CLEANUP(nw_paper_free) nw_paper paper = {0};
    NW_TRY(nw_paper_read(&paper, name));
    for (int i = 0; i < paper.count; i++) {
        const nw_experiment *e = &paper.at[i];
        char published[16] = "-";
        if (!isnan(e->published)) snprintf(published, sizeof published, "%.2f%%", e->published);
        if (several && !e->recipe) printf("%-28s %4d  %s\n", e->name, e->runs, e->what);
        if (!several && e->recipe)
            printf("%-28s %-36s %8lld %10s  %s\n", e->name, e->recipe, (long long)e->epochs, published, e->what);
    }
    return NW_OK;
}

static nw_status list(void)
{
    NW_CLEANUP(nw_bump_free) nw_bump region = {0};
    nw_text_list names;
    NW_TRY(nw_paper_names(&region, &names));
    printf("%-28s %-36s %8s %10s  %s\n", "experiment", "recipe", "epochs", "published", "what");
    for (int i = 0; i < names.count; i++) NW_TRY(list_one(names.at[i], false));
    printf("\n%-28s %4s  %s\n", "experiments of several runs", "runs", "what");
    for (int i = 0; i < names.count; i++) NW_TRY(list_one(names.at[i], true));
    return NW_OK;
}

/* ---- doing them -------------------------------------------------------------------------------------------------- */

/* The line of an experiment of one run. */
static nw_status print_line(const nw_experiment *e, const char *scale, const nw_trials *trials)
{
    nw_sample sample;
    char published[16] = "-";
    NW_TRY(nw_trial_sample(trials, &trials->at[0], "test_top1", &sample));
    if (!isnan(e->published)) snprintf(published, sizeof published, "%.2f%%", e->published);
    printf("%-28s %10s %9.2f%% %6d %s%s\n", e->name, published, sample.mean, nw_scale_epochs(scale, e->epochs), e->what,
           strcmp(scale, "paper") == 0  ? ""
           : strcmp(scale, "tiny") == 0 ? "; here on 2048 images: it runs, no more"
                                        : "; here shortened");
    return NW_OK;
}

static nw_status reproduce(const nw_experiment *e, const char *run, const nw_reproduce_options *o, nw_trials *trials)
{
    NW_TRY(nw_experiment_plan(e, o, trials));
    if (trials->remark && (o->dry_run || !o->all->quiet)) fprintf(stderr, "nowait: %s\n", trials->remark);
    NW_TRY(nw_trials_run(trials, run));
    if (o->dry_run) return NW_OK;
    return e->recipe ? print_line(e, o->scale, trials) : nw_experiment_report(e, o->scale, trials);
}

/* Whether `wanted` is the experiment, its paper, or one of its runs (then *run is the run's name, otherwise NULL). */
static bool wants(const nw_experiment *e, const char *wanted, const char **run)
{
    size_t length = strlen(wanted), own = strlen(e->name);
    *run = NULL;
    if (strncmp(e->name, wanted, length) == 0 && (e->name[length] == '/' || !e->name[length])) return true;
    if (e->recipe || strncmp(wanted, e->name, own) != 0 || wanted[own] != '/') return false;
    *run = wanted + own + 1;
    return true;
}

static nw_status run_matching(const nw_paper *paper, const char *wanted, const nw_reproduce_options *o,
                              char *const *given, int count)
{
    const char *run;
    int single = 0, all = 0;
    for (int i = 0; i < paper->count; i++)
        if (wants(&paper->at[i], wanted, &run)) all++, single += paper->at[i].recipe != NULL;
    NW_FAIL_IF(!all, NW_E_ARGUMENT, "there is no experiment '%s'; 'nowait reproduce list' shows all", wanted);
    if (single && !o->dry_run) printf("%-28s %10s %10s %6s %s\n", "experiment", "published", "here", "epochs", "what");
    for (int i = 0; i < paper->count; i++) {
        if (!wants(&paper->at[i], wanted, &run)) continue;
        NW_CLEANUP(nw_trials_free)
        nw_trials trials = {.seed = o->all->seed,
                            .seeds = o->seeds,
                            .quiet = o->all->quiet,
                            .dry_run = o->dry_run,
                            .given = given,
                            .given_count = count,
                            .given_wins = true};
        NW_TRY(reproduce(&paper->at[i], run, o, &trials));
    }
    return NW_OK;
}

nw_status nw_command_reproduce(int argc, char **argv)
{
    static const char *const own[] = {"scale", "seeds", "seed", "run-dir", "real", "dry-run", NULL};
    if (nw_wants_help(argc, argv)) {
        printf(
            "usage: nowait reproduce list\n"
            "       nowait reproduce PAPER[/EXPERIMENT[/RUN]] [--scale tiny|small|paper] [--seeds N] [--dry-run]\n"
            "                        [options of train]\n\n"
            "Runs a published experiment and prints its numbers beside the published ones. --scale small trains an\n"
            "eighth of the epochs, tiny one epoch of 2048 images. After an interruption run the same command again.\n"
            "--dry-run prints the command lines of its runs. Experiments of several runs write tables and drawings to\n"
            "their folder; see docs/reproduce.md.\n");
        return NW_OK;
    }
    NW_FAIL_IF(argc < 1 || argv[0][0] == '-', NW_E_ARGUMENT,
               "name a paper or an experiment first; 'nowait reproduce list' shows all");
    if (strcmp(argv[0], "list") == 0) return list();
    const char *wanted = argv[0];
    NW_AUTOFREE char **kept = calloc((size_t)argc + 1, sizeof *kept), *name = strndup(wanted, strcspn(wanted, "/"));
    NW_FAIL_IF(!kept || !name, NW_E_MEMORY, "no memory for the arguments");
    NW_CLEANUP(nw_paper_free) nw_paper paper = {0};
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional, count = nw_child_keep(NW_COMMAND_REPRODUCE, own, argc - 1, argv + 1, kept);
    NW_TRY(nw_options_parse(NW_COMMAND_REPRODUCE, argc, argv, &settings, &positional));
    NW_TRY(nw_paper_read(&paper, name));
    nw_reproduce_options options = nw_reproduce_options_of(settings);
    return run_matching(&paper, wanted, &options, kept, count);
}
