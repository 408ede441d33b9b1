/*
 * run_handed.c - the loop of a run whose exchange hands out the work: a parameter server. See run_loop.c for the other one.
 *
 * Nobody waits for anybody at the end of an epoch: rank 0, which makes the updates, copies the parameters when one is over,
 * and a judge evaluates the copy while all go on (run_judge.c); the epoch's record follows when it is done. Ranks rest only where
 * a checkpoint is asked for, when the run is asked to stop, and at its end.
 *
 * Of several servers, rank 0 has but one range of the parameters. Then a case is opened when rank 0 has made the last update
 * of the epoch, and waits in line until the copies of all ranges have come (nw_run_copied).
 */
#include "train/run_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRADIENTS_BETWEEN_RESTS = 400 };

/* Of the whole run. */
static int64_t total_updates(const run *r)
{
    const nw_run_options *o = r->options;
    int64_t all = nw_crew_updates(r->crew, o->epochs);
    return o->max_steps > 0 && o->max_steps < all ? o->max_steps : all;
}

int64_t nw_run_epochs_told(const run *r)
{
    int64_t finished = place(r)->epoch;
    if (!nw_crew_hands_out(r->crew)) return finished;
    if (r->cases) return r->cases->record.epoch - 1;
    return finished + (nw_crew_epoch_is_over(r->crew) && nw_crew_computed(r->crew) < total_updates(r));
}

/* ---- what the crew tells -------------------------------------------------------------------------------------------------- */

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
    nw_status status = nw_run_submit_cases(r);
    resume_training(r);
    return status;
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
        nw_status status = nw_run_judge(r, u->lr, evaluate, !divided);
        resume_training(r);
        NW_TRY(status);
    }
    return nw_run_tell_judged(r, false);
}

void nw_run_lost(void *context, int rank)
{
    run *r = context;
    char text[160];
    snprintf(text, sizeof text,
             "rank %d has said nothing for too long and is given up; the others go on without it (--timeout)", rank);
    if (!leads(r)) return;
    nw_run_tell_fault(r, "peer", text);
    nw_observers_message(&r->observers, text);
}

/* ---- the loop -------------------------------------------------------------------------------------------------------------- */

/* Updates from one checkpoint to the next. In step, an epoch of them. Otherwise a rest costs each worker the time until the
 * slowest has used its permits, so that as many epochs pass that each has computed GRADIENTS_BETWEEN_RESTS meanwhile. */
static int64_t updates_between_rests(const run *r)
{
    const nw_run_options *o = r->options;
    const nw_exchange_options *e = &r->crew->options.exchange;
    int64_t epoch = nw_crew_updates(r->crew, 1);
    int64_t least = e->sync ? 1 : (int64_t)GRADIENTS_BETWEEN_RESTS * nw_server_workers(e);
    if (o->checkpoint_every > 0) return o->checkpoint_every;
    return epoch > 0 ? (least + epoch - 1) / epoch * epoch : least;
}

/* Where ranks rest next. */
static int64_t next_rest(const run *r)
{
    int64_t total = total_updates(r), every = updates_between_rests(r);
    int64_t rest = (nw_crew_computed(r->crew) / every + 1) * every;
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

/* Epochs that the run ended before it could evaluate them. */
static nw_status submit_left(run *r)
{
    enter(r, NW_PHASE_VALIDATION);
    nw_status status = nw_run_submit_cases(r);
    leave(r, NW_PHASE_VALIDATION);
    return status;
}

/* At rest, where rank 0 has all parameters: the last epoch of the run, whole or not. */
static nw_status judge_last(run *r)
{
    return nw_run_judge(r, nw_replica_lr_of(first(r), nw_crew_computed(r->crew) - 1), true, true);
}

/* Evaluates what is left at the end. *stop: asked to stop meanwhile, or before. */
static nw_status finish_judging(run *r, bool *stop)
{
    enter(r, NW_PHASE_VALIDATION);
    bool is_judged = !leads(r) || r->judged_step == nw_crew_computed(r->crew);
    nw_status status = is_judged ? NW_OK : judge_last(r); /* in the middle of an epoch, or judged before a resume */
    if (status == NW_OK) status = nw_run_tell_judged(r, true);
    if (status == NW_OK && leads(r)) nw_run_keep_statistics(r);
    leave(r, NW_PHASE_VALIDATION);
    NW_TRY(status);
    return nw_crew_agree_to_stop(r->crew, stop);
}

nw_status nw_run_loop_handed(run *r)
{
    int64_t total = total_updates(r);
    bool stop;
    NW_TRY(nw_run_open_judge(r));
    r->epoch_began = times(r);
    r->ended = false;
    NW_TRY(submit_left(r));
    NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
    while (!stop && nw_crew_computed(r->crew) < total) {
        int64_t until = next_rest(r);
        NW_TRY(train_until(r, until));
        NW_TRY(nw_crew_agree_to_stop(r->crew, &stop));
        int64_t done = nw_crew_computed(r->crew);
        NW_TRY(nw_run_tell_judged(r, false));
        stop |= done < until;
        if (stop || done == total) continue;
        NW_TRY(nw_run_save(r));
        NW_TRY(nw_run_save_named(r));
    }
    if (!stop) NW_TRY(finish_judging(r, &stop));
    if (stop) return nw_run_interrupted(r);
    r->ended = true;
    NW_TRY(nw_run_save(r));
    return nw_run_save_named(r);
}
