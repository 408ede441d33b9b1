/*
 * stopwatch.h - which part of a run took how long.
 *
 * At every moment exactly one phase runs: the innermost one that was entered, or `other` if none is. Times are integer
 * nanoseconds, so the phases add up to the elapsed time exactly. The caller passes the time, so that a test or a
 * virtual clock can drive the watch; it must not run backwards.
 *
 * DAWNBench's rule: the time that counts includes everything from the start of preprocessing, except validation.
 */
#ifndef NW_OBSERVE_STOPWATCH_H
#define NW_OBSERVE_STOPWATCH_H

#include <stdint.h>

typedef enum nw_phase {
    NW_PHASE_OTHER, /* whatever is in no phase; not to be entered */
    NW_PHASE_PREPROCESS,
    NW_PHASE_TRAIN,
    NW_PHASE_VALIDATION,
    NW_PHASE_CHECKPOINT,
    NW_PHASES
} nw_phase;

typedef struct nw_phase_times {
    int64_t ns[NW_PHASES];
} nw_phase_times;

enum { NW_PHASE_DEPTH = 8 };

typedef struct nw_stopwatch {
    nw_phase_times times; /* up to `since` */
    int64_t since;        /* the last change of phase */
    int depth;
    nw_phase stack[NW_PHASE_DEPTH];
} nw_stopwatch;

/* `previous` is what an earlier process of the run had measured when it made the checkpoint that this one continues
 * from, or NULL. */
nw_stopwatch nw_stopwatch_start(const nw_phase_times *previous, int64_t now_ns);

/* A phase may be entered inside another, which stands still meanwhile. leave names the innermost phase. Anything else
 * is a bug and aborts. */
void nw_stopwatch_enter(nw_stopwatch *watch, nw_phase phase, int64_t now_ns);
void nw_stopwatch_leave(nw_stopwatch *watch, nw_phase phase, int64_t now_ns);

/* The times so far, the running phase included. Differences of two readings are laps. */
nw_phase_times nw_stopwatch_read(const nw_stopwatch *watch, int64_t now_ns);
nw_phase_times nw_phase_times_since(nw_phase_times later, nw_phase_times earlier);

double nw_phase_seconds(nw_phase_times times, nw_phase phase);
double nw_phase_total_seconds(nw_phase_times times);     /* of all phases: the elapsed time */
double nw_phase_dawnbench_seconds(nw_phase_times times); /* without validation */

#endif
