/*
 * Folder src/observe: records of what happens in a run, and the observers that write them: progress, JSON lines, TSV,
 * TensorBoard, traces, plots. Observers never change training. May include: base.
 *
 * observers.h - the observers there are: what a run shows while it runs, and the files that it leaves.
 *
 *   progress       one live line on a terminal, plain lines elsewhere      progress.c
 *   table          a row an epoch, as cifar10-fast prints it               table.c
 *   metrics.jsonl  every record, one JSON object a line                    jsonl.c
 *   logs.tsv       epoch, hours and accuracy, as DAWNBench wants them      tsv.c
 *   events.out...  scalars for TensorBoard                                 tensorboard.c
 *   summary.json   the last value of everything, when the run ends         summary.c
 *
 * The usual set comes from nw_observers_open. A trainer then sends a run record, step, epoch, checkpoint and fault
 * records as they happen, and an end record; an epoch's record goes out before the checkpoint of its last step is
 * written, so that a run that resumes there neither lacks nor repeats it.
 *
 *   nw_observers observers = {0};
 *   nw_observe_options options = {.run_dir = dir, .progress = stderr, .table = stdout, .print_every = 10};
 *   NW_TRY(nw_observers_open(&observers, &options));
 *   nw_step_record record;
 *   nw_record_clear(NW_RECORD_STEP, &record);
 *   record.step = ...;
 *   if (nw_observers_step(&observers, &record) != NW_OK) nw_observers_message(&observers, nw_error_message());
 */
#ifndef NW_OBSERVE_OBSERVERS_H
#define NW_OBSERVE_OBSERVERS_H

#include <stdio.h>

#include "observe/record.h"

/* Where a run continues: records past it are removed from the files of its first part. Zeros: a new run, whose files
 * replace those that are there. */
typedef struct nw_resume_point {
    int64_t step, epoch, images; /* epoch: the last one that was finished */
} nw_resume_point;

/* Whether a run goes on there; images may have been seen before the first update. NULL: no. */
static inline bool nw_resume_point_continues(const nw_resume_point *resume)
{
    return resume != NULL && (resume->step > 0 || resume->images > 0);
}

typedef struct nw_observe_options {
    const char *run_dir;      /* exists; NULL: no files */
    const char *metrics_file; /* instead of metrics.jsonl there; NULL: there */
    const char *log_dir;      /* of logs.tsv, made if need be; NULL: run_dir */
    nw_resume_point resume;
    FILE *progress;  /* NULL: be quiet */
    FILE *warnings;  /* for messages of a quiet run; NULL: nowhere */
    FILE *table;     /* NULL: no table */
    int print_every; /* plain progress: a line every so many batches; 0: none */
    bool tensorboard;
} nw_observe_options;

/* Adds the usual observers to an empty list. On failure nothing stays open and the list is empty. */
nw_status nw_observers_open(nw_observers *observers, const nw_observe_options *options);

/* ---- One by one ---- */

typedef enum nw_progress_style { NW_PROGRESS_AUTO, NW_PROGRESS_LIVE, NW_PROGRESS_PLAIN } nw_progress_style;

typedef struct nw_progress_options {
    FILE *out;               /* not closed */
    nw_progress_style style; /* auto: live if `out` is a terminal that can move its cursor */
    int print_every;
    bool results;         /* also a line an epoch and the times at the end; false where a table says so */
    int64_t (*now)(void); /* nanoseconds; NULL: nw_now_ns. For tests */
} nw_progress_options;

nw_status nw_progress_create(nw_observer **observer, const nw_progress_options *options);

/* Writes one line above the live line (or just writes it, if the list has no progress to a terminal), for what the user
 * must know. Without progress, when the run is quiet, it goes to `warnings`. */
void nw_observers_message(nw_observers *observers, const char *text);

nw_status nw_table_create(nw_observer **observer, FILE *out); /* out is not closed */
/* Where the time went, for people: a line a phase, the total, and what counts under DAWNBench's rule. */
void nw_breakdown_print(FILE *out, const nw_end_record *record);

nw_status nw_jsonl_create(nw_observer **observer, const char *path, const nw_resume_point *resume);
nw_status nw_tsv_create(nw_observer **observer, const char *path, const nw_resume_point *resume);
nw_status nw_summary_create(nw_observer **observer, const char *path);

/* NW_E_UNSUPPORTED, with the package that is missing, in a build without protobuf-c. */
nw_status nw_tensorboard_create(nw_observer **observer, const char *dir, const nw_resume_point *resume);
bool nw_tensorboard_available(void);

#endif
