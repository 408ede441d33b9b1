/*
 * event_log.h - the event log of a run with several ranks: which events each rank received and which tasks it began, in
 * order, with times. With the log and the run's options, a replay repeats the run bit for bit in one process
 * (replay.h).
 *
 * Every process that trains writes its own file, so that nothing has to be merged or cut:
 *
 *   RUN/event-log/<first step>/config.yaml      its options, by rank 0
 *   RUN/event-log/<first step>/rank<r>.log      of an MPI rank; rank0.log holds all ranks of a virtual cluster
 *
 * A run that resumes at step S removes the parts that begin at S or later, and begins a part S; the part before it ends
 * where it says that the checkpoint of S was saved. Records of a rank:
 *
 *   RUN      nw_driver_run begins: the updates and the rank's messages so far
 *   an event that nw_rank_tell passes to its machines: kind, now_ns; FINAL: first; GO: until; MESSAGE: from, sequence
 *   PASS, UPDATE   a task begins
 *   QUIESCENT   nw_driver_run is done, and the rank is quiescent after so many updates
 *   SAVED    a checkpoint was written: step, epoch
 *   END      the process ended as it should, at that step
 *
 * On disk (little-endian): magic "NWSCHED", version 1 byte; then blocks, each packed by zlib for itself where that
 * makes it smaller, with its sizes and a hash before it (event_log_format.h). The first holds nw_log_header as it
 * lies in memory, the others entries of 24 bytes, those of all ranks of the process in the order of their making.
 *
 * Recording allocates nothing after nw_recorder_open: entries are collected in a buffer, which is written when it is
 * full and at every quiescent point. So after a kill the log is complete up to the last quiescent point before it; a
 * torn last block is detected and ignored.
 *
 * Threads: a recorder and a recording belong to one thread.
 */
#ifndef NW_NET_EVENT_LOG_H
#define NW_NET_EVENT_LOG_H

#include "net/machine.h"

#include <stdio.h>

#define NW_LOG_DIR        "event-log"
#define NW_LOG_DIR_BEFORE "schedule" /* its name in earlier builds, whose runs are still replayed */
#define NW_LOG_CONFIG     "config.yaml"
enum { NW_LOG_VERSION = 3, NW_LOG_RANKS = 1024 /* at most */ };

typedef struct nw_log_header {
    int world, first_rank, ranks, unused; /* ranks: in this file, from first_rank on */
    int64_t first_step, first_epoch;
    uint64_t seed;
    double lr_factor; /* factor of the learning rates: below 1 if the run went back after a divergence; not 0 */
    char exchange[64], codec[64], isa[32], precision[16], version[32], commit[64];
    char config_sha256[72]; /* of config.yaml; "": there is none */
} nw_log_header;

typedef enum nw_log_kind { /* the first ones are nw_event_kind's */
                           NW_LOG_RUN = NW_EVENT_KINDS,
                           NW_LOG_PASS,
                           NW_LOG_UPDATE,
                           NW_LOG_QUIESCENT,
                           NW_LOG_SAVED,
                           NW_LOG_END,
                           NW_LOG_KINDS
} nw_log_kind;

typedef struct nw_log_record {
    int kind;          /* nw_event_kind or nw_log_kind */
    int64_t now_ns;    /* of events */
    uint64_t first;    /* FINAL; of GO, until */
    int from;          /* MESSAGE */
    uint64_t sequence; /* MESSAGE; RUN: messages made so far */
    int64_t step;      /* RUN, QUIESCENT, SAVED, END */
    int64_t epoch;     /* SAVED */
} nw_log_record;

/* "message 57 from rank 2 at 12345 ns" */
void nw_log_text(const nw_log_record *record, char *text, size_t size);

/* ---- recording --------------------------------------------------------------------------------------------------- */

typedef struct nw_recorder nw_recorder;

/* A recorder that ignores everything until it is opened. */
nw_status nw_recorder_create(nw_recorder **recorder);
/* Removes from RUN/event-log what this rank wrote in parts that begin at `first_step` or later. */
nw_status nw_log_cut(const char *run_dir, int64_t first_step, int rank);
/* Begins the part of the header's first step, with the text of config.yaml where rank 0 is here (or NULL). A process
 * that goes back to a checkpoint opens it again; the part before stays without END. */
nw_status nw_recorder_open(nw_recorder *recorder, const char *run_dir, const nw_log_header *header, const char *config);
/* If writing fails, the recording ends and training goes on; nw_recorder_close returns the failure. `finished`: the
 * process ends quiescent. All of these functions ignore a recorder of NULL. */
nw_status nw_recorder_close(nw_recorder *recorder, bool finished);
void nw_recorder_free(nw_recorder *recorder);

void nw_recorder_run(nw_recorder *recorder, int rank, int64_t step, uint64_t sequence);
void nw_recorder_event(nw_recorder *recorder, int rank, const nw_event *event);
void nw_recorder_begins(nw_recorder *recorder, int rank, nw_task_kind kind);
/* Afterwards the rank's records so far are in the file. */
void nw_recorder_quiescent(nw_recorder *recorder, int rank, int64_t step);
void nw_recorder_saved(nw_recorder *recorder, int64_t step, int64_t epoch); /* of all ranks here; the same */

#endif
