/*
 * run_handed.c - the loop of a run whose exchange hands out the work: a parameter server. See run_loop.c for the other one.
 *
 * Nobody waits for anybody at the end of an epoch: rank 0, which makes the updates, copies the parameters when one is over,
 * and a judge evaluates the copy while all go on (judge.h); the epoch's record follows when it is done. Ranks rest only where
 * a checkpoint is asked for, when the run is asked to stop, and at its end. Of several servers, rank 0 has but one range of the
 * parameters while they work: then all rest at the end of an epoch.
 */
#include "train/run_private.h"

#include <stdio.h>
#include <stdlib.h>

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

void nw_run_close_judge(run *r)
{
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

static nw_status judge(run *r, double lr, bool last)
{
    nw_case *c;
    NW_TRY(nw_judge_open(r->judge, &c));
    nw_run_fill_epoch(r, &place(r)->tally, lr, &c->record);
    nw_crew_copy(r->crew, c->values, c->buffers);
    r->judged_step = c->record.step;
    return nw_judge_submit(r->judge, c, nw_run_evaluates(r, last));
}

/* Whether rank 0 has all parameters only at rest. */
static bool is_divided(const run *r) { return r->options->crew.exchange.servers > 1; }

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
    if (u->epoch_over && !is_divided(r)) {
        leave(r, NW_PHASE_TRAIN); /* what is done here and not in the background is validation */
        enter(r, NW_PHASE_VALIDATION);
        nw_status status = judge(r, u->lr, u->number + 1 == total_updates(r));
        leave(r, NW_PHASE_VALIDATION);
        enter(r, NW_PHASE_TRAIN);
        r->step_began = nw_now_ns();
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
    int64_t epoch = nw_crew_updates(r->crew, place(r)->epoch + (nw_crew_epoch_is_over(r->crew) ? 2 : 1));
    if (is_divided(r) && epoch < rest) rest = epoch;
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
    r->epoch_began = times(r);
    r->ended = false;
    NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    while (nw_crew_computed(r->crew) < total) {
        int64_t until = next_rest(r);
        if (stop) return stop_here(r);
        NW_TRY(train_until(r, until));
        NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
        int64_t done = nw_crew_computed(r->crew);
        if (done < total && is_divided(r) && nw_crew_epoch_is_over(r->crew) && leads(r))
            NW_TRY(judge(r, nw_replica_lr_of(first(r), done - 1), false));
        NW_TRY(tell_judged(r, false));
        if (done < total && o->checkpoint_every > 0 && done % o->checkpoint_every == 0) NW_TRY(nw_run_save(r));
        stop |= done < until;
    }
    if (leads(r) &&
        r->judged_step != nw_crew_computed(r->crew)) /* in the middle of an epoch, or judged before a resume */
        NW_TRY(judge(r, nw_replica_lr_of(first(r), nw_crew_computed(r->crew) - 1), true));
    NW_TRY(tell_judged(r, true));
    r->ended = true;
    NW_TRY(nw_run_save(r));
    return nw_run_save_named(r);
}
