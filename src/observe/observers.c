/*
 * observers.c - the usual observers of a run, in the order that they need.
 *
 * Progress comes first: it clears its live line when an epoch ends, and then the table prints, perhaps to the same
 * terminal. The summary comes last, so that when it exists the other files are complete.
 */
#define _GNU_SOURCE 1
#include "observe/observers.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Takes the observer that a constructor made, if it made one. */
static nw_status add_observer(nw_observers *observers, nw_status created, nw_observer *const *observer)
{
    NW_TRY(created);
    nw_observers_add(observers, *observer);
    return NW_OK;
}

static nw_status add_files(nw_observers *observers, const nw_observe_options *options)
{
    const char *dir = options->run_dir;
    const nw_resume_point *resume = &options->resume;
    NW_AUTOFREE char *metrics = NULL, *logs = NULL, *summary = NULL, *folder = NULL, *name = NULL;
    nw_observer *observer = NULL;
    if (options->log_dir != NULL) NW_TRY(nw_directory_make(options->log_dir));
    if (options->metrics_file != NULL && strchr(options->metrics_file, '/') != NULL) {
        NW_TRY(nw_path_split(options->metrics_file, &folder, &name));
        NW_TRY(nw_directory_make(folder));
    }
    NW_TRY(nw_path_join(&metrics, dir, "metrics.jsonl"));
    NW_TRY(nw_path_join(&logs, options->log_dir ? options->log_dir : dir, "logs.tsv"));
    NW_TRY(nw_path_join(&summary, dir, "summary.json"));
    const char *records = options->metrics_file ? options->metrics_file : metrics;
    NW_TRY(add_observer(observers, nw_jsonl_create(&observer, records, resume), &observer));
    NW_TRY(add_observer(observers, nw_tsv_create(&observer, logs, resume), &observer));
    if (options->tensorboard) NW_TRY(add_observer(observers, nw_tensorboard_create(&observer, dir, resume), &observer));
    return add_observer(observers, nw_summary_create(&observer, summary), &observer);
}

static nw_status add_all(nw_observers *observers, const nw_observe_options *options)
{
    nw_observer *observer = NULL;
    if (options->progress != NULL) {
        nw_progress_options progress = {
            .out = options->progress, .print_every = options->print_every, .results = options->table == NULL};
        NW_TRY(add_observer(observers, nw_progress_create(&observer, &progress), &observer));
    }
    if (options->table != NULL) NW_TRY(add_observer(observers, nw_table_create(&observer, options->table), &observer));
    if (options->run_dir != NULL) NW_TRY(add_files(observers, options));
    return NW_OK;
}

nw_status nw_observers_open(nw_observers *observers, const nw_observe_options *options)
{
    observers->warnings = options->warnings;
    NW_TRY_OR(add_all(observers, options), nw_observers_close(observers));
    return NW_OK;
}
