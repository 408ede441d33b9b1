/*
 * run_evaluator.c - the epochs of a run without lockstep, from their end until their records are sent.
 *
 * An epoch that is over becomes a case: its record, and a snapshot of the parameters if it is to be evaluated. Cases
 * wait in a list (run.cases) until their snapshot has arrived; then they are submitted to the evaluator (evaluator.h).
 * Records are sent when their evaluation is done. A checkpoint keeps the cases that are not done, so that a run may
 * stop, or be killed, without waiting for evaluations: the run that resumes makes them. If too many cases wait, the
 * ranks become quiescent, as for a checkpoint, and go on when there is room.
 */
#include "train/run_private.h"

#include <stdio.h>
#include <string.h>

/* Training batches for the evaluator alone. */
static nw_status make_recalibration_loader(run *r)
{
    nw_loader_options o = r->options->group.replica.loader;
    if (r->options->group.norms != NW_NORMS_RECALIBRATE) return NW_OK;
    o.rank = o.world = 0;
    return nw_loader_create(&r->recalibrate, &o);
}

nw_status nw_run_open_evaluator(run *r)
{
    const nw_run_options *o = r->options;
    if (!leads(r) || r->evaluator) return NW_OK;
    NW_TRY(make_recalibration_loader(r));
    nw_evaluator_options j = {.like = first(r)->net,
                              .background = o->group.mode == NW_REPLICAS_MPI,
                              .test = r->test,
                              .validation = r->validation,
                              .train_eval = r->train_eval,
                              .both_views = o->both_views,
                              .recalibrate = r->recalibrate,
                              .recalibrate_batches = o->group.recalibrate_batches,
                              .stop = o->stop};
    return nw_evaluator_create(&r->evaluator, &j);
}

void nw_run_forget_cases(run *r)
{
    for (nw_case *c = r->cases, *next; c; c = next) {
        next = c->next;
        nw_case_free(c);
    }
    r->cases = NULL;
}

void nw_run_close_evaluator(run *r)
{
    nw_run_forget_cases(r);
    nw_case_free(r->last_evaluated);
    r->last_evaluated = NULL;
    nw_evaluator_free(r->evaluator);
    r->evaluator = NULL;
}

/* A case whose record was sent. Where statistics are measured for an evaluation, the last one stays. */
static void put_away(run *r, nw_case *done)
{
    if (r->recalibrate && done->evaluated) {
        nw_case *before = r->last_evaluated;
        r->last_evaluated = done;
        done = before;
    }
    nw_case_free(done);
}

void nw_run_keep_statistics(run *r)
{
    const nw_params *p = &first(r)->net->model.params;
    const nw_case *c = r->last_evaluated;
    if (!c || c->record.step != nw_replicas_updates(r->group)) return;
    memcpy(p->buffers, c->evaluated_buffers, p->running.floats * sizeof *p->buffers);
}

nw_status nw_run_tell_evaluated(run *r, int64_t wait_ns)
{
    nw_case *done;
    while (r->evaluator) {
        NW_TRY(nw_evaluator_take(r->evaluator, wait_ns, &done));
        if (!done) return NW_OK;
        if (done->evaluated) nw_run_fill_results(r, &done->results, &done->record);
        if (done->evaluated && r->best_step == done->record.step) nw_run_tell(r, nw_run_save_best(r, done));
        nw_run_tell(r, nw_observers_epoch(&r->observers, &done->record));
        r->epoch = done->record;
        put_away(r, done);
    }
    return NW_OK;
}

nw_status nw_run_submit_cases(run *r)
{
    while (r->cases && r->cases->complete) {
        nw_case *c = r->cases;
        r->cases = c->next;
        NW_TRY(nw_evaluator_submit(r->evaluator, c));
    }
    return NW_OK;
}

int nw_run_evaluating(const run *r)
{
    int count = 0;
    for (const nw_case *c = r->evaluator ? nw_evaluator_first(r->evaluator) : NULL; c; c = c->next)
        count += c->evaluated;
    return count;
}

/* Each evaluation that waits has a copy of the parameters. Where they do not keep up, the ranks wait, quiescent, until
 * they do. */
static void bound_evaluations(run *r)
{
    if (nw_run_evaluating(r) <= EVALUATIONS_MOST) return;
    r->group->driver->pauses = true;
    if (!r->behind)
        nw_observers_message(&r->observers, "evaluations take longer than epochs, so training waits for them; "
                                            "--eval-every makes fewer of them");
    r->behind = true;
}

static void add_case(run *r, nw_case *c)
{
    nw_case **last = &r->cases;
    while (*last) last = &(*last)->next;
    *last = c;
    r->evaluated_step = c->record.step;
}

nw_status nw_run_evaluator(run *r, int64_t epoch, double lr, bool evaluate)
{
    nw_case *c;
    NW_TRY(nw_evaluator_open(r->evaluator, evaluate, &c));
    nw_run_fill_epoch(r, epoch, &position(r)->tally, lr, &c->record);
    if (evaluate) nw_replicas_copy_statistics(r->group, c->buffers);
    c->complete = !evaluate;
    add_case(r, c);
    return nw_run_submit_cases(r);
}

nw_status nw_run_evaluate_values(run *r, int64_t updates, const float *values)
{
    nw_case *c = r->cases;
    while (c && c->complete) c = c->next;
    NW_FAIL_IF(!c || c->record.step != updates, NW_E_INTERNAL,
               "parameters after %lld updates have come that no epoch waits for", (long long)updates);
    nw_replicas_copy_values(r->group, values, c->values);
    c->complete = true;
    NW_TRY(nw_run_submit_cases(r));
    bound_evaluations(r);
    return NW_OK;
}

/* ---- in checkpoints ---------------------------------------------------------------------------------------------- */

#define COUNT_FIELD(kind, name, scalar, summary) +1
#define SAVED_FIELD(kind, name, scalar, summary) SAVED_##kind(name)
#define SAVED_INT(name)                          {#name, .whole = &record->name, .later = true},
#define SAVED_REAL(name)                         {#name, .real = &record->name, .later = true},

enum { CASE_FIELDS = 0 NW_EPOCH_FIELDS(COUNT_FIELD) };

/* Fields that came later than the checkpoint are unknown. */
static void list_fields(nw_epoch_record *record, nw_saved_number list[CASE_FIELDS])
{
    const nw_saved_number all[CASE_FIELDS] = {NW_EPOCH_FIELDS(SAVED_FIELD)};
    memcpy(list, all, sizeof all);
}

/* Their names in a checkpoint are from before evaluators were called so. */
static void name_case(int index, char prefix[32], char file[48])
{
    snprintf(prefix, 32, "judged%d.", index);
    snprintf(file, 48, "judged%d.safetensors", index);
}

static nw_status save_copy(const run *r, const nw_case *c, nw_checkpoint_writer *w, const char *file)
{
    const nw_params *p = &first(r)->net->model.params;
    NW_CLEANUP(nw_saved_list_free) nw_saved_list list = {0};
    NW_TRY(nw_saved_list_add_segments(&list, "", &p->learned, c->values));
    NW_TRY(nw_saved_list_add_segments(&list, "", &p->running, c->buffers));
    return nw_checkpoint_add_tensors(w, file, &list, NULL, 0);
}

static nw_status save_case(const run *r, const nw_case *c, nw_checkpoint_writer *w, int index)
{
    char prefix[32], file[48];
    nw_saved_number fields[CASE_FIELDS];
    nw_epoch_record record = c->record;
    name_case(index, prefix, file);
    list_fields(&record, fields);
    NW_TRY(nw_checkpoint_add_numbers(w, prefix, fields, CASE_FIELDS));
    return c->evaluated ? save_copy(r, c, w, file) : NW_OK;
}

nw_status nw_run_save_cases(const run *r, nw_checkpoint_writer *w)
{
    int count = 0;
    if (!r->evaluator) return NW_OK;
    NW_FAIL_IF(r->cases, NW_E_INTERNAL, "a checkpoint was begun before all copies of the parameters had come");
    for (const nw_case *c = nw_evaluator_first(r->evaluator); c; c = c->next) NW_TRY(save_case(r, c, w, count++));
    return count > 0 ? nw_checkpoint_add_int(w, "judged", count) : NW_OK;
}

static nw_status load_case(run *r, nw_checkpoint *c, int index)
{
    char prefix[32], file[48];
    nw_saved_number fields[CASE_FIELDS];
    nw_case *found;
    const nw_params *p = &first(r)->net->model.params;
    name_case(index, prefix, file);
    NW_TRY(nw_evaluator_open(r->evaluator, nw_checkpoint_has_file(c, file), &found));
    found->complete = true;
    list_fields(&found->record, fields);
    nw_status status = nw_checkpoint_get_numbers(c, prefix, fields, CASE_FIELDS);
    add_case(r, found);
    NW_TRY(status);
    if (!found->evaluated) return NW_OK;
    NW_TRY(nw_checkpoint_read_segments(c, file, "", &p->learned, found->values));
    return nw_checkpoint_read_segments(c, file, "", &p->running, found->buffers);
}

nw_status nw_run_load_cases(run *r, nw_checkpoint *c)
{
    int64_t count;
    if (!leads(r) || !nw_checkpoint_has(c, "judged")) return NW_OK;
    NW_TRY(nw_checkpoint_get_int(c, "judged", &count));
    NW_TRY(nw_run_open_evaluator(r));
    for (int i = 0; i < count; i++) NW_TRY(load_case(r, c, i));
    return NW_OK;
}
