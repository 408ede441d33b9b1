/*
 * run_private.h - the inside of a run, shared by the files that make it: run.c (beginning and end), run_loop.c (how far
 * it goes and what happens then), run_evaluator.c (evaluation of snapshots, where there is no lockstep) and
 * run_checkpoint.c (saving, loading, going back).
 */
#ifndef NW_TRAIN_RUN_PRIVATE_H
#define NW_TRAIN_RUN_PRIVATE_H

#include "train/evaluator.h"
#include "train/run.h"

#include "base/clock.h"
#include "base/machine.h"

enum { SAVED_STEPS = 8 };

typedef struct run {
    const nw_run_options *options;
    nw_run_result *result;
    nw_observers observers;
    nw_replicas *group;
    nw_recorder *recorder;                     /* NULL: nothing to record */
    nw_loader *test, *validation, *train_eval; /* NULL where there is none */
    nw_epoch_record epoch;                     /* the last one sent */
    double best;                               /* by the rule; NAN: none yet */
    double best_top1;                          /* of the test split, whatever the rule */
    int64_t best_step, best_epoch;
    int64_t saved_step, saved_epoch; /* position of the last checkpoint in the run's directory; -1: none */
    int rolled_back;                 /* times */
    int64_t diverged_step;           /* where it last did so; -1: nowhere */
    int again;                       /* times that it did so without getting past that step */
    int64_t saved[SAVED_STEPS];      /* steps of the last checkpoints of this run that are there, the newest first */
    int saved_count;
    bool ended, saved_ended;      /* the last epoch's record was sent; the same of that checkpoint */
    bool failed;                  /* its end is an error, which the caller tells */
    nw_phase_times epoch_began;   /* the watch at the start of this epoch, in this process */
    int64_t step_began;           /* when the batch under way did */
    int64_t images, first_images; /* of all replicas, and of the first, when they were last added up */
    int64_t waited_ns;            /* for messages, until the last step's record */
    nw_channel_stats stats;       /* what encoding cost, of all ranks */
    nw_account sent;              /* by all ranks, at the end */
    const char *note;             /* about the checkpoint that it continues; NULL: none */
    char *dump_dir;               /* of the driver, or NULL */
    nw_evaluator *evaluator;      /* without lockstep, on rank 0 */
    nw_loader *recalibrate;       /* for it; NULL: none */
    nw_case *cases;               /* for it, in order; copies of the parameters of the first are still coming */
    int64_t evaluated_step;       /* the last of these; -1: none */
    nw_case *last_evaluated;      /* where statistics are measured for an evaluation: the last one, with them */
    bool behind;                  /* it was told that evaluations do not keep up */
    int64_t *snapshots;           /* for nw_go */
    nw_cpu_ticks ticks;
    int lock; /* on the run's directory; -1: none */
} run;

static inline nw_replica *first(const run *r) { return nw_replicas_first(r->group); }
static inline const nw_position *position(const run *r) { return nw_replicas_position(r->group); }
static inline bool leads(const run *r) { return nw_replicas_leads(r->group); }

static inline int64_t finished_epochs(const run *r)
{
    return position(r)->epoch + (r->ended && nw_replicas_epoch_is_over(r->group));
}
static inline bool is_last_epoch(const run *r) { return position(r)->epoch + 1 >= r->options->epochs; }
static inline bool reached_steps(const run *r)
{
    return r->options->max_steps > 0 && nw_replicas_updates(r->group) >= r->options->max_steps;
}
/* Seen by all replicas; between two sums, as if all had as many as the first. */
static inline int64_t images_seen(const run *r)
{
    if (!nw_replicas_lockstep(r->group)) return position(r)->images;
    return r->images + (position(r)->images - r->first_images) * nw_replicas_world(r->group);
}

static inline void enter(run *r, nw_phase phase) { nw_stopwatch_enter(r->options->watch, phase, nw_now_ns()); }
static inline void leave(run *r, nw_phase phase) { nw_stopwatch_leave(r->options->watch, phase, nw_now_ns()); }
/* `NW_CLEANUP(end_phase) timed phase = begin_phase(r, which);`: until the block is left. */
typedef struct timed {
    run *r;
    nw_phase phase;
} timed;
static inline timed begin_phase(run *r, nw_phase phase)
{
    enter(r, phase);
    return (timed){r, phase};
}
static inline void end_phase(const timed *t) { leave(t->r, t->phase); }
static inline nw_phase_times times(const run *r) { return nw_stopwatch_read(r->options->watch, nw_now_ns()); }

/* An observer that fails is reported once and does not end the training. */
void nw_run_tell(run *r, nw_status status);
void nw_run_tell_fault(run *r, const char *fault, const char *detail);

/* Begins a part of the event log here. What was recorded behind it is of no more use. Ranks wait until rank
 * 0 has the directory. */
nw_status nw_run_open_event_log(run *r);

/* ---- run_loop.c ---- */

/* Trains until the end asked for, going back to checkpoints where the run diverges and may. */
nw_status nw_run_loop(run *r);
/* What the group calls, where rank 0 is here: after each update; with parameters to be evaluated; when a rank is
 * dropped or is back. */
nw_status nw_run_updated(void *context, const nw_replicas_update *update);
nw_status nw_run_snapshot(void *context, const nw_snapshot *snapshot);
void nw_run_dropped(void *context, int rank, bool back);
/* Adds up the images of all replicas. */
nw_status nw_run_add_images(run *r);
/* An epoch's record: what was trained, until now; and what evaluation found, of the record's own step and epoch. */
void nw_run_fill_epoch(run *r, int64_t epoch, const nw_tally *tally, double lr, nw_epoch_record *record);
void nw_run_fill_results(run *r, const nw_results *results, nw_epoch_record *record);
/* Of a run that continues: epochs whose records are there and will not be sent again. The last one's is, at the end. */
int64_t nw_run_epochs_told(const run *r);

/* ---- run_evaluator.c: the epochs of a run without lockstep, at rank 0 ---- */

nw_status nw_run_open_evaluator(run *r); /* unless it is open, or this is not rank 0 */
void nw_run_close_evaluator(run *r);
/* An epoch is over: a case. If it is evaluated, its parameters follow. */
nw_status nw_run_evaluator(run *r, int64_t epoch, double lr, bool evaluate);
nw_status nw_run_evaluate_values(run *r, int64_t updates, const float *values);
/* Evaluations that are not done. Where they are more than EVALUATIONS_MOST, the group becomes quiescent. */
enum { EVALUATIONS_MOST = 2 };
int nw_run_evaluating(const run *r);
/* Hands over the cases that are complete, in order. */
nw_status nw_run_submit_cases(run *r);
/* Those whose copies will not come go. */
void nw_run_forget_cases(run *r);
/* Sends the records of epochs whose evaluation is done; waits so long for each, unless the run is asked to stop. */
nw_status nw_run_tell_evaluated(run *r, int64_t wait_ns);
/* At the end of the run: statistics that were measured to evaluate its weights become theirs. */
void nw_run_keep_statistics(run *r);
/* Cases whose records were not sent. Loaded ones are to be submitted. */
nw_status nw_run_save_cases(const run *r, nw_checkpoint_writer *writer);
nw_status nw_run_load_cases(run *r, nw_checkpoint *checkpoint);

/* ---- run_checkpoint.c; all ranks call, rank 0 writes what the others bring ---- */

/* The run's own checkpoint of this step, unless it is there; old ones go. */
nw_status nw_run_save(run *r);
nw_status nw_run_save_named(run *r);
/* The best weights so far, which are those of this case, to RUN/best: only rank 0, while all go on. */
nw_status nw_run_save_best(run *r, const nw_case *evaluated);
/* What the run continues from. */
nw_status nw_run_load(run *r, nw_checkpoint *checkpoint);
/* Back to the last checkpoint, with a lower rate. If that did not help before, its weights are to blame: to the one
 * before. */
nw_status nw_run_roll_back(run *r, const char *why);

/* ---- run_compression.c ---- */

/* What compression cost and saved, once r->stats and r->sent are known; where there is any. */
void nw_run_fill_compression(const run *r, nw_end_record *end);
void nw_run_print_compression(const run *r, FILE *out);
/* What each codec made of floats, for ledger.json; returns how many there are. */
int nw_run_list_codecs(const run *r, nw_ledger_codec *list, int most);

/* ---- run_averagings.c: of gossip ---- */

/* Quiescent, at the end; all ranks call. What each rank has made, and with whom: the result's, and RUN/exchanges.tsv;
 * the result's weights are the mean of all. */
nw_status nw_run_add_averagings(run *r);
/* After that. */
void nw_run_fill_averagings(const run *r, nw_end_record *end);

#endif
