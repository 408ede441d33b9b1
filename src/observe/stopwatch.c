/*
 * stopwatch.c - which part of a run took how long.
 *
 * Invariant: the times of all phases add up to (now - start) plus the times of earlier processes of the run, because
 * every change of phase adds the whole interval since the last change to exactly one phase. One thread at a time.
 */
#include "observe/stopwatch.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

static void require(bool condition, const char *rule)
{
    if (condition) return;
    fprintf(stderr, "nowait: bug: stopwatch misused: %s\n", rule);
    abort();
}

static nw_phase running(const nw_stopwatch *watch)
{
    return watch->depth > 0 ? watch->stack[watch->depth - 1] : NW_PHASE_OTHER;
}

nw_stopwatch nw_stopwatch_start(const nw_phase_times *previous, int64_t now_ns)
{
    nw_stopwatch watch = {.since = now_ns};
    if (previous != NULL) watch.times = *previous;
    return watch;
}

nw_phase_times nw_stopwatch_read(const nw_stopwatch *watch, int64_t now_ns)
{
    require(now_ns >= watch->since, "time runs backwards");
    nw_phase_times times = watch->times;
    times.ns[running(watch)] += now_ns - watch->since;
    return times;
}

static void book(nw_stopwatch *watch, int64_t now_ns)
{
    watch->times = nw_stopwatch_read(watch, now_ns);
    watch->since = now_ns;
}

void nw_stopwatch_enter(nw_stopwatch *watch, nw_phase phase, int64_t now_ns)
{
    require(phase > NW_PHASE_OTHER && phase < NW_PHASES, "no such phase can be entered");
    require(watch->depth < NW_PHASE_DEPTH, "phases are nested too deeply");
    book(watch, now_ns);
    watch->stack[watch->depth++] = phase;
}

void nw_stopwatch_leave(nw_stopwatch *watch, nw_phase phase, int64_t now_ns)
{
    require(watch->depth > 0 && running(watch) == phase, "the phase that is left is not the innermost one");
    book(watch, now_ns);
    watch->depth--;
}

nw_phase_times nw_phase_times_since(nw_phase_times later, nw_phase_times earlier)
{
    for (int i = 0; i < NW_PHASES; i++) later.ns[i] -= earlier.ns[i];
    return later;
}

static int64_t total(nw_phase_times times)
{
    int64_t sum = 0;
    for (int i = 0; i < NW_PHASES; i++) sum += times.ns[i];
    return sum;
}

double nw_phase_seconds(nw_phase_times times, nw_phase phase) { return nw_seconds(times.ns[phase]); }

double nw_phase_total_seconds(nw_phase_times times) { return nw_seconds(total(times)); }

double nw_phase_dawnbench_seconds(nw_phase_times times)
{
    return nw_seconds(total(times) - times.ns[NW_PHASE_VALIDATION]);
}
