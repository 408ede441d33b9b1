/*
 * train_logit.c - `nowait train --dataset libsvm`: logistic regression on sparse rows, by threads that share the weights.
 *
 * It takes the options of training that mean something for it and refuses the others: what is set is never passed over in
 * silence. The model `logit` on images is a network, and trained as networks are.
 */
#include "cli/command.h"
#include "cli/plan.h"
#include "cli/session.h"

#include "base/clock.h"
#include "base/machine.h"
#include "net/mpi.h"
#include "train/logit_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* ---- what makes no sense --------------------------------------------------------------------------------------------- */

/* Options that must keep these values, and why. */
static const struct {
    const char *option, *value, *why;
} kept[] = {
    {"model", "logit", "rows of LIBSVM are for logistic regression"},
    {"optimizer", "apam-paper", "its update is AMSGrad as APAM's paper has it"},
    {"precision", "auto", "it computes in double precision"},
    {"exchange", "none", "its threads share the weights, nothing travels"},
    {"method", "none", "its threads share the weights, nothing travels"},
    {"delay", "0", "its delays are what they are"},
    {"world-size", "1", "it is trained by threads of one process"},
    {"virtual", "0", "it is trained by threads of one process"},
    {"cluster", "", "it is trained by threads of one process"},
    {"faults", "", "it is trained by threads of one process"},
    {"calibrate", "", "it is trained by threads of one process"},
    {"trace", "false", "it has no ranks to trace"},
    {"val-ratio", "0", "it has no validation split"},
    {"classes", "0", "it has two classes"},
    {"max-batches", "0", "its epochs go over all rows; use --limit or --max-steps"},
    {"start-epoch", "0", "its epochs count from the first"},
    {"tta", "none", "rows have no mirror images"},
    {"label-smoothing", "0", "its targets are -1 and 1"},
    {"ema-decay", "0", "it keeps no average of the weights"},
    {"accumulation-steps", "1", "every batch is an update; use a larger --batch-size"},
    {"clip-norm", "0", "AMSGrad does not see the scale of gradients"},
    {"clip-value", "0", "AMSGrad does not see the scale of gradients"},
    {"box", "", "its weights are free"},
    {"ball", "0", "its weights are free"},
    {"init", "", "it starts from zeros, or from --init-scheme normal"},
    {"name-checkpoint", "", "its checkpoints lie in the run's directory"},
    {"on-divergence", "stop", "it stops where the loss is not finite"},
};

static nw_status check(const nw_settings *s)
{
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const char *value = nw_settings_value(s, kept[i].option);
        NW_FAIL_IF(value && !is(value, kept[i].value), NW_E_ARGUMENT,
                   "--%s %s (%s) does not go with --dataset libsvm: %s", kept[i].option, value,
                   nw_settings_origin(s, kept[i].option), kept[i].why);
    }
    NW_FAIL_IF(
        nw_mpi_launched() && nw_mpi_environment_size() > 1, NW_E_ARGUMENT,
        "--dataset libsvm is trained by threads of one process, but a launcher started %d; start it without mpirun, "
        "with --threads",
        nw_mpi_environment_size());
    NW_FAIL_IF(!is(s->init_scheme, "default") && !is(s->init_scheme, "zeros") && !is(s->init_scheme, "normal"),
               NW_E_ARGUMENT, "--init-scheme %s does not go with --dataset libsvm: weights start as zeros or normal",
               s->init_scheme);
    NW_FAIL_IF(!is(s->metric, "test_top1") && !is(s->metric, "test_loss") && !is(s->metric, "none"), NW_E_ARGUMENT,
               "--metric %s does not go with --dataset libsvm: the best is by test_top1 or test_loss", s->metric);
    return NW_OK;
}

/* ---- the data -------------------------------------------------------------------------------------------------------- */

typedef struct rows {
    nw_sparse train, test;
    char train_path[NW_PATH_SIZE], test_path[NW_PATH_SIZE]; /* "": no test rows */
} rows;

static nw_status read_rows(const nw_settings *s, rows *r)
{
    NW_TRY(nw_libsvm_find(s->data_dir, s->test_file, r->train_path, r->test_path));
    NW_TRY(nw_libsvm_read(&r->train, r->train_path, &(nw_libsvm_options){.limit = s->limit}));
    if (!r->test_path[0]) return NW_OK;
    return nw_libsvm_read(&r->test, r->test_path, &(nw_libsvm_options){.limit = s->limit, .like = &r->train});
}

static void free_rows(rows *r)
{
    nw_sparse_free(&r->train);
    nw_sparse_free(&r->test);
}

/* ---- the plan -------------------------------------------------------------------------------------------------------- */

static nw_status plan(const nw_settings *s, const rows *r, nw_logit_run_options *o)
{
    *o = (nw_logit_run_options){
        .test = r->test.rows ? &r->test : NULL,
        .epochs = s->epochs,
        .max_steps = s->max_steps,
        .eval_every = s->eval_every,
        .best = {.none = is(s->metric, "none"), .by = is(s->metric, "test_loss") ? NW_BEST_LOSS : NW_BEST_TOP1},
        .checkpoint_every = s->checkpoint_every,
        .keep = s->keep,
        .stop = nw_session_stop()};
    nw_logit_options *l = &o->logit;
    *l = (nw_logit_options){.data = &r->train,
                            .features = r->train.features > r->test.features ? r->train.features : r->test.features,
                            .intercept = s->intercept,
                            .normal_start = is(s->init_scheme, "normal"),
                            .batch_size = s->batch_size,
                            .drop_last = s->drop_last,
                            .groups = s->compat_ref,
                            .sum = is(s->loss_reduction, "sum"),
                            .beta1 = s->beta1,
                            .beta2 = s->beta2,
                            .weight_decay = s->weight_decay,
                            .seed = (uint64_t)s->seed,
                            .threads = s->threads > 0 ? s->threads : nw_machine_allowed_cpus(),
                            .masters = s->servers};
    NW_FAIL_IF(l->masters > l->threads, NW_E_ARGUMENT,
               "--servers %d, but --threads %d: the threads that own the parameters are some of all threads",
               l->masters, l->threads);
    nw_plan_schedule(s, s->dataset, 1, &l->schedule);
    nw_plan_record(s, s->dataset, &o->record);
    o->record.isa = "any"; /* the same bits with every one */
    return NW_OK;
}

/* ---- what the user sees ---------------------------------------------------------------------------------------------- */

static void print_start(const nw_settings *s, const nw_logit_run_options *o, const rows *r, const char *run_dir)
{
    const nw_logit_options *l = &o->logit;
    nw_settings_print(s, stderr);
    fprintf(stderr, "data      %s: %lld rows, %lld entries; test: %s, %lld rows; %d features\n", r->train_path,
            (long long)r->train.rows, (long long)r->train.entries, r->test_path[0] ? r->test_path : "none",
            (long long)r->test.rows, l->features);
    fprintf(stderr, "threads   %d, of which %d own the parameters; %s\n", l->threads, l->masters,
            l->threads == 1 ? "the same seed gives the same bits"
                            : "asynchronous, so the last digits differ from run to run");
    if (l->threads > nw_machine_allowed_cpus())
        fprintf(stderr, "nowait: %d threads share %d CPUs, which is slower than %d\n", l->threads,
                nw_machine_allowed_cpus(), nw_machine_allowed_cpus());
    fprintf(stderr, "run       %s%s\n", run_dir, o->resume ? " (continued)" : "");
}

static void print_number(double value)
{
    if (isnan(value))
        printf(" %12s", "-");
    else
        printf(" %12.6f", value);
}

/* A line an epoch, as the reference program prints it: the loss is that of all training rows, and the time leaves out the
 * evaluation. */
static void print_epoch(void *context, const nw_epoch_record *e, const nw_histogram *delays)
{
    bool *begun = context;
    if (!*begun)
        printf("%12s %12s %12s %12s %12s %12s %12s\n", "epoch", "train loss", "train acc", "test loss", "test acc",
               "seconds", "mean delay");
    *begun = true;
    printf("%12lld", (long long)e->epoch);
    print_number(e->train_eval_loss);
    print_number(e->train_eval_top1 / 100);
    print_number(e->test_loss);
    print_number(e->test_top1 / 100);
    printf(" %12.4f %12.2f\n", e->dawnbench_seconds, nw_histogram_mean(delays));
    fflush(stdout);
}

static void print_result(const nw_settings *s, const nw_logit_run_result *r, const char *run_dir)
{
    const nw_epoch_record *e = &r->last;
    printf("train loss %.6f, top-1 %.2f %%", e->train_eval_loss, e->train_eval_top1);
    if (isfinite(e->test_top1)) printf("; test loss %.6f, top-1 %.2f %%", e->test_loss, e->test_top1);
    printf(" after %lld epochs, %lld steps, %.0f rows/s; delays: mean %.2f, at most %lld\n", (long long)e->epoch,
           (long long)r->end.step, r->end.images_per_second, nw_histogram_mean(&r->delays), (long long)r->delays.max);
    if (s->quiet) return;
    nw_breakdown_print(stdout, &r->end);
    printf("results in %s: summary.json, metrics.jsonl, logs.tsv, checkpoints/; weights %.16s...\n", run_dir,
           r->weights_sha256);
}

/* ---- the command ----------------------------------------------------------------------------------------------------- */

static nw_status train_in(const nw_settings *s, const rows *r, const char *run_dir, const char *resume,
                          nw_stopwatch *watch)
{
    nw_logit_run_options o;
    char *config = NULL;
    nw_session_origin origin;
    size_t bytes;
    bool begun = false;
    NW_TRY(plan(s, r, &o));
    NW_TRY(nw_session_config_text(s, &config, &bytes));
    nw_session_find_origin(&origin, &o.record);
    o.run_dir = run_dir;
    o.config = config;
    o.resume = resume;
    o.watch = watch;
    o.told = s->quiet ? NULL : print_epoch;
    o.context = &begun;
    o.observe = nw_session_observe(s, run_dir, !s->quiet);
    if (!s->quiet) print_start(s, &o, r, run_dir);
    nw_logit_run_result result;
    nw_status status = nw_logit_run(&o, &result);
    free(config);
    NW_TRY(status);
    if (result.nothing_to_do)
        printf("nothing to do: %s has reached the end asked for (%d epochs)\n", resume ? resume : run_dir, s->epochs);
    else
        print_result(s, &result, run_dir);
    return NW_OK;
}

nw_status nw_train_logit(const nw_settings *s)
{
    nw_stopwatch watch = nw_stopwatch_start(NULL, nw_now_ns());
    char *run_dir = NULL, *resume = NULL;
    rows r = {0};
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, nw_now_ns());
    NW_TRY(check(s));
    nw_status status = nw_train_place(s, &run_dir, &resume);
    if (status == NW_OK) status = read_rows(s, &r);
    if (status == NW_OK) status = train_in(s, &r, run_dir, resume, &watch);
    free_rows(&r);
    free(run_dir);
    free(resume);
    return status;
}
