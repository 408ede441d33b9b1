/*
 * run_handed.c - the loop of a run whose exchange hands out the work: a parameter server. See run_loop.c for the other one.
 *
 * Nobody waits for anybody at the end of an epoch: rank 0, which makes the updates, copies the parameters when one is over,
 * and a judge evaluates the copy while all go on (judge.h); the epoch's record follows when it is done. Ranks rest only where
 * a checkpoint is asked for, when the run is asked to stop, and at its end.
 *
 * Of several servers, rank 0 has but one range of the parameters. Then a case is opened when rank 0 has made the last update
 * of the epoch, and waits in line until the copies of all ranges have come (nw_run_copied).
 */
#include "train/run_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- judging ------------------------------------------------------------------------------------------------------------ */

/* Training batches for the judge alone. */
static nw_status make_recalibration_loader(run *r)
{
    nw_loader_options o = r->options->crew.replica.loader;
    if (r->options->crew.norms != NW_NORMS_RECALIBRATE) return NW_OK;
    o.rank = o.world = 0;
    return nw_loader_create(&r->recalibrate, &o);
}

static nw_status open_judge(run *r)
{
    const nw_run_options *o = r->options;
    if (!leads(r) || r->judge) return NW_OK;
    NW_TRY(make_recalibration_loader(r));
    nw_judge_options j = {.like = first(r)->net,
                          .background = o->crew.place == NW_CREW_MPI,
                          .test = r->test,
                          .validation = r->validation,
                          .train_eval = r->train_eval,
                          .both_views = o->both_views,
                          .recalibrate = r->recalibrate,
                          .recalibrate_batches = o->crew.recalibrate_batches};
    return nw_judge_create(&r->judge, &j);
}

/* Cases whose copies will not come. */
static void forget_cases(run *r)
{
    for (nw_case *c = r->cases, *next; c; c = next) {
        next = c->next;
        nw_judge_close(r->judge, c);
    }
    r->cases = NULL;
}

void nw_run_close_judge(run *r)
{
    forget_cases(r);
    nw_judge_free(r->judge);
    r->judge = NULL;
}

/* Sends the records of epochs whose evaluation is done. */
static nw_status tell_judged(run *r, bool wait)
{
    nw_case *done;
    while (r->judge) {
        NW_TRY(nw_judge_take(r->judge, wait, &done));
        if (!done) return NW_OK;
        if (done->evaluated) nw_run_fill_results(r, &done->results, &done->record);
        nw_run_tell(r, nw_observers_epoch(&r->observers, &done->record));
        r->epoch = done->record;
        nw_judge_close(r->judge, done);
    }
    return NW_OK;
}

/* Hands over the cases that are complete, in order. */
static nw_status submit_cases(run *r)
{
    while (r->cases && r->cases->complete) {
        nw_case *c = r->cases;
        r->cases = c->next;
        NW_TRY(nw_judge_submit(r->judge, c));
    }
    return NW_OK;
}

/* An epoch is over. here: rank 0 has all parameters; else they will come. */
static nw_status judge(run *r, double lr, bool evaluate, bool here)
{
    nw_case *c, **last = &r->cases;
    NW_TRY(nw_judge_open(r->judge, evaluate, &c));
    nw_run_fill_epoch(r, &place(r)->tally, lr, &c->record);
    if (evaluate) nw_crew_copy(r->crew, here ? c->values : NULL, c->buffers);
    c->complete = here || !evaluate;
    r->judged_step = c->record.step;
    while (*last) last = &(*last)->next;
    *last = c;
    return submit_cases(r);
}

/* At rest, where rank 0 has all parameters: the last epoch of the run, whole or not. */
static nw_status judge_last(run *r)
{
    return judge(r, nw_replica_lr_of(first(r), nw_crew_computed(r->crew) - 1), true, true);
}

/* Whether rank 0 has all parameters only at rest. */
static bool is_divided(const run *r) { return r->options->crew.exchange.servers > 1; }

bool nw_run_copies(void *context, int64_t epoch) { return nw_run_evaluates(context, epoch, false); }

/* What is done between updates here, and not in the background, is validation. */
static void pause_training(run *r)
{
    leave(r, NW_PHASE_TRAIN);
    enter(r, NW_PHASE_VALIDATION);
}

static void resume_training(run *r)
{
    leave(r, NW_PHASE_VALIDATION);
    enter(r, NW_PHASE_TRAIN);
    r->step_began = nw_now_ns();
}

nw_status nw_run_copied(void *context, int64_t updates, const float *values)
{
    run *r = context;
    nw_case *c = r->cases;
    NW_FAIL_IF(!c || c->record.step != updates, NW_E_INTERNAL,
               "a copy of the parameters after %lld updates has come that no epoch waits for", (long long)updates);
    memcpy(c->values, values, first(r)->net->model.params.learned.floats * sizeof *values);
    c->complete = true;
    pause_training(r);
    nw_status status = submit_cases(r);
    resume_training(r);
    return status;
}

/* ---- what the crew tells -------------------------------------------------------------------------------------------------- */

static int64_t total_updates(const run *r)
{
    const nw_run_options *o = r->options;
    int64_t all = nw_crew_updates(r->crew, o->epochs);
    return o->max_steps > 0 && o->max_steps < all ? o->max_steps : all;
}

nw_status nw_run_updated(void *context, const nw_crew_update *u)
{
    run *r = context;
    const nw_place *at = place(r);
    nw_step_record record;
    nw_record_clear(NW_RECORD_STEP, &record);
    record.step = u->number + 1;
    record.epoch = at->epoch + 1;
    record.images = at->images;
    record.batch = at->batch;
    record.batch_images = u->tally.images;
    record.lr = u->lr;
    record.delay = u->delay;
    nw_run_send_step(r, &u->tally, &record);
    bool last = u->number + 1 == total_updates(r), divided = is_divided(r);
    bool evaluate = nw_run_evaluates(r, at->epoch, last && !divided);
    if (u->epoch_over && (evaluate || !last)) { /* else it is judged at rest */
        pause_training(r);
        nw_status status = judge(r, u->lr, evaluate, !divided);
        resume_training(r);
        NW_TRY(status);
    }
    return tell_judged(r, false);
}

void nw_run_lost(void *context, int rank)
{
    run *r = context;
    char text[160];
    snprintf(text, sizeof text,
             "rank %d has said nothing for too long and is given up; the others go on without it (--timeout)", rank);
    if (!leads(r)) return;
    nw_run_tell_fault(r, "peer", text);
}

/* ---- the loop -------------------------------------------------------------------------------------------------------------- */

/* Where ranks rest next. */
static int64_t next_rest(const run *r)
{
    int64_t total = total_updates(r), rest = nw_run_next_rest(r);
    return rest < total ? rest : total;
}

/* Lets the crew work until something is due. */
static nw_status train_until(run *r, int64_t until)
{
    enter(r, NW_PHASE_TRAIN);
    r->step_began = nw_now_ns();
    nw_status status = nw_crew_advance(r->crew, until);
    leave(r, NW_PHASE_TRAIN);
    NW_TRY(status);
    NW_TRY(nw_crew_agree_on_place(r->crew));
    NW_TRY(nw_crew_sync_norms(r->crew));
    return nw_crew_compare(r->crew);
}

static nw_status stop_here(run *r)
{
    NW_TRY(tell_judged(r, true));
    return nw_run_interrupted(r);
}

nw_status nw_run_loop_handed(run *r)
{
    const nw_run_options *o = r->options;
    int64_t total = total_updates(r);
    bool stop;
    NW_TRY(open_judge(r));
    forget_cases(r);
    r->epoch_began = times(r);
    r->ended = false;
    NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    while (nw_crew_computed(r->crew) < total) {
        int64_t until = next_rest(r);
        if (stop) return stop_here(r);
        NW_TRY(train_until(r, until));
        NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
        int64_t done = nw_crew_computed(r->crew);
        NW_TRY(tell_judged(r, false));
        if (done < total && o->checkpoint_every > 0 && done % o->checkpoint_every == 0) NW_TRY(nw_run_save(r));
        stop |= done < until;
    }
    if (leads(r) &&
        r->judged_step != nw_crew_computed(r->crew)) /* in the middle of an epoch, or judged before a resume */
        NW_TRY(judge_last(r));
    NW_TRY(tell_judged(r, true));
    r->ended = true;
    NW_TRY(nw_run_save(r));
    return nw_run_save_named(r);
}
