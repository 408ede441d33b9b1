/* recording.h - the event log of a run (net/event_log.h), read and checked: its files, its parts, and where they
 * begin. */
#ifndef NW_REPLAY_RECORDING_H
#define NW_REPLAY_RECORDING_H

#include "net/event_log.h"

/* One file, read whole and checked. */
typedef struct nw_log_file {
    char *name; /* for messages */
    struct nw_log_entry *entries;
    size_t count;
    bool torn; /* something followed that is not whole */
    nw_log_header header;
} nw_log_file;

/* `data` are not needed afterwards. NW_E_FILE names the byte at which it is no event log. */
nw_status nw_log_file_parse(nw_log_file *file, const char *name, const void *data, size_t size);
void nw_log_file_free(nw_log_file *file);

/* A place in a rank's records. */
typedef struct nw_log_cursor {
    const nw_log_file *file;
    int rank;
    size_t at;      /* in the entries */
    int64_t number; /* of the record that was read last, from 1 */
    int64_t now_ns;
    bool ended; /* no more records */
} nw_log_cursor;

void nw_log_begin(nw_log_cursor *cursor, const nw_log_file *file, int rank);
/* The next record; `ended` where there is none. A record that makes no sense is NW_E_FILE. */
nw_status nw_log_next(nw_log_cursor *cursor, nw_log_record *record);

/* Where all ranks were quiescent, or what was saved after how many of these points. */
typedef struct nw_log_mark {
    int64_t step, epoch;
    int points;
} nw_log_mark;

/* All ranks of one part of a run: one file, or one a rank. */
typedef struct nw_log_part {
    char *dir;
    int64_t first_step;
    int file_count;
    nw_log_file *files;
    nw_log_header header; /* of rank 0 */
    bool torn, ended;     /* the tail of a rank is torn; all ranks have END */
    nw_log_mark *points;  /* of rank 0: where all ranks were quiescent, the first at 1; [0] is the beginning */
    nw_log_mark *saves;   /* of rank 0 */
    int point_count, save_count;
    /* How much of it counts: from point `skip` to point `runs`, each after as many calls of nw_driver_run. */
    int skip, runs;
} nw_log_part;
static inline int64_t nw_log_end_step(const nw_log_part *p) { return p->points[p->runs].step; }

/* The parts of a run, in order, each as long as the next one says; one at the end in which nothing happened is left
 * out. NW_E_FILE where there is none, a rank is missing, or parts do not follow each other. */
typedef struct nw_recording {
    nw_log_part *parts;
    int count;
} nw_recording;
nw_status nw_recording_load(nw_recording *recording, const char *run_dir);
/* Leaves out what lies behind the last quiescent point at or before `step`; NW_E_ARGUMENT where nothing would be
 * left. */
nw_status nw_recording_limit(nw_recording *recording, int64_t step);
/* Leaves out what lies before the checkpoint of `step` and `epoch`. */
nw_status nw_recording_start(nw_recording *recording, int64_t step, int64_t epoch);
void nw_recording_free(nw_recording *recording);
const nw_log_file *nw_log_file_of(const nw_log_part *part, int rank);

/* As text, a record a line. */
nw_status nw_recording_print(const nw_recording *recording, FILE *out);

#endif
