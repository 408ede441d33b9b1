/*
 * trace.c - takes events into memory of a fixed size, and thins them out by whole steps when it is full.
 *
 * A rank keeps step s if s - b <= K or s % m == 0 (trace.h). Thinning doubles m and, if more than three quarters are
 * still taken, halves K, until there is room or nothing is left to thin (K = 1 and m past the last step). Every change
 * makes the set of kept steps a subset of the one before, so what is kept is always all of its step, except where a
 * step alone is larger than the memory. Each thinning frees a quarter or more, so an event costs constant time on
 * average.
 */
#include "observe/trace_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void require(bool condition, const char *rule, int value)
{
    if (condition) return;
    fprintf(stderr, "nowait: bug: trace misused: %s: %d\n", rule, value);
    abort();
}

/* ---- making ---- */

static nw_status add_rank(nw_trace *trace, int rank, const nw_trace_options *options)
{
    size_t events = options->events > 0 ? options->events : NW_TRACE_EVENTS;
    nw_trace_rank *made = trace->ranks[rank] = calloc(1, sizeof *made);
    if (made != NULL) made->events = calloc(events, sizeof *made->events);
    NW_FAIL_IF(made == NULL || made->events == NULL, NW_E_MEMORY,
               "no memory for the %zu events that rank %d may trace; ask for fewer", events, rank);
    made->capacity = events;
    made->every = 1;
    made->first_steps = options->first_steps > 0 ? options->first_steps : NW_TRACE_FIRST_STEPS;
    if (options->host != NULL) nw_trace_set_host(trace, rank, options->host);
    return NW_OK;
}

static nw_status take_memory(nw_trace *trace, const nw_trace_options *options)
{
    NW_NEW(trace->names, NW_TRACE_MOST_NAMES, "a trace of %d ranks", options->world);
    NW_NEW(trace->ranks, options->world, "a trace of %d ranks", options->world);
    nw_trace_name(trace, "other");
    for (int i = 0; i < options->ranks; i++) NW_TRY(add_rank(trace, options->first_rank + i, options));
    return NW_OK;
}

nw_status nw_trace_create(nw_trace **trace, const nw_trace_options *options)
{
    *trace = NULL;
    const nw_trace_options *o = options;
    bool sane = o->world >= 1 && o->world <= NW_TRACE_MOST_RANKS && o->first_rank >= 0 && o->ranks >= 1 &&
                o->ranks <= o->world && o->first_rank <= o->world - o->ranks;
    NW_FAIL_IF(!sane, NW_E_ARGUMENT,
               "a trace of %d ranks from rank %d on does not fit into a world of %d; use ranks of the world, which has "
               "at most %d",
               o->ranks, o->first_rank, o->world, NW_TRACE_MOST_RANKS);
    NW_FAIL_IF(o->events > NW_TRACE_MOST_EVENTS, NW_E_ARGUMENT,
               "a trace of %zu events a rank is more than the %d that are possible; ask for fewer", o->events,
               NW_TRACE_MOST_EVENTS);
    NW_FAIL_IF(o->first_step < 0 || o->first_step > NW_TRACE_MOST_STEP || o->first_steps < 0 ||
                   o->first_steps > NW_TRACE_MOST_STEP,
               NW_E_ARGUMENT, "a trace cannot begin at step %lld and keep the first %lld; use numbers from 0 on",
               (long long)o->first_step, (long long)o->first_steps);
    nw_trace *made = calloc(1, sizeof *made);
    NW_FAIL_IF(made == NULL, NW_E_MEMORY, "no memory for a trace");
    made->world = o->world;
    made->first_step = o->first_step;
    NW_TRY_OR(take_memory(made, o), nw_trace_free(made));
    *trace = made;
    return NW_OK;
}

void nw_trace_free(nw_trace *trace)
{
    if (trace == NULL) return;
    for (int rank = 0; trace->ranks != NULL && rank < trace->world; rank++) {
        if (trace->ranks[rank] != NULL) free(trace->ranks[rank]->events);
        free(trace->ranks[rank]);
    }
    free(trace->ranks);
    free(trace->names);
    free(trace);
}

/* The rank's events, or NULL without a trace. */
static nw_trace_rank *rank_of(const nw_trace *trace, int rank)
{
    if (trace == NULL) return NULL;
    bool here = rank >= 0 && rank < trace->world && trace->ranks[rank] != NULL;
    require(here, "events of a rank that is not here", rank);
    return trace->ranks[rank];
}

void nw_trace_set_host(nw_trace *trace, int rank, const char *host)
{
    nw_trace_rank *r = rank_of(trace, rank);
    if (r != NULL) snprintf(r->host, sizeof r->host, "%s", host);
}

int nw_trace_name(nw_trace *trace, const char *text)
{
    if (trace == NULL) return 0;
    for (int i = 0; i < trace->name_count; i++) {
        if (strncmp(trace->names[i], text, NW_TRACE_NAME_BYTES - 1) == 0) return i;
    }
    if (trace->name_count == NW_TRACE_MOST_NAMES) return 0;
    snprintf(trace->names[trace->name_count], NW_TRACE_NAME_BYTES, "%s", text);
    return trace->name_count++;
}

/* ---- keeping whole steps ---- */

static bool keeps(const nw_trace *trace, const nw_trace_rank *r, int64_t step)
{
    return nw_trace_keeps(trace->first_step, r->first_steps, r->every, step);
}

static void compact(const nw_trace *trace, nw_trace_rank *r)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (!keeps(trace, r, r->events[i].step)) continue;
        if (kept != i) r->events[kept] = r->events[i];
        kept++;
    }
    r->count = kept;
}

static void thin(const nw_trace *trace, nw_trace_rank *r)
{
    size_t most = r->capacity / 4 * 3;
    while (r->count > most && (r->every <= r->last_step || r->first_steps > 1)) {
        if (r->every <= r->last_step) r->every *= 2;
        compact(trace, r);
        if (r->count <= most || r->first_steps == 1) continue;
        r->first_steps /= 2;
        compact(trace, r);
    }
}

static void add_event(nw_trace *trace, int rank, nw_trace_event event)
{
    nw_trace_rank *r = rank_of(trace, rank);
    event.step = nw_trace_clamp(event.step, 0, NW_TRACE_MOST_STEP);
    if (event.step > r->last_step) r->last_step = event.step;
    if (keeps(trace, r, event.step) && r->count == r->capacity) thin(trace, r);
    if (!keeps(trace, r, event.step)) return;
    if (r->count < r->capacity)
        r->events[r->count++] = event;
    else
        r->lost++;
}

/* ---- events ---- */

static nw_trace_event make_event(nw_trace_kind kind, nw_trace_thread thread, int name, int64_t start, int64_t end)
{
    start = nw_trace_clamp(start, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS);
    end = nw_trace_clamp(end, start, NW_TRACE_MOST_NS);
    return (nw_trace_event){.start_ns = start,
                            .duration_ns = nw_trace_clamp(end - start, 0, NW_TRACE_MOST_NS),
                            .name = (uint16_t)(name >= 0 && name < NW_TRACE_MOST_NAMES ? name : 0),
                            .kind = (uint8_t)kind,
                            .thread = (uint8_t)thread};
}

void nw_trace_span(nw_trace *trace, int rank, nw_trace_thread thread, int name, int64_t step, int64_t start_ns,
                   int64_t end_ns)
{
    if (trace == NULL) return;
    require((int)thread >= 0 && thread < NW_TRACE_THREADS, "there is no thread", (int)thread);
    nw_trace_event event = make_event(NW_TRACE_SPAN, thread, name, start_ns, end_ns);
    event.step = step;
    add_event(trace, rank, event);
}

static void add_message(nw_trace *trace, nw_trace_kind kind, const nw_trace_message *message, int64_t start,
                        int64_t end)
{
    nw_trace_event event = make_event(kind, NW_TRACE_MESSAGES, message->name, start, end);
    int own = kind == NW_TRACE_SEND ? message->from : message->to;
    int peer = kind == NW_TRACE_SEND ? message->to : message->from;
    require(peer >= 0 && peer < trace->world, "a message with a rank that is not in the world", peer);
    event.step = message->step;
    event.value = message->bytes;
    event.peer = (uint32_t)peer;
    event.sequence = message->sequence;
    add_event(trace, own, event);
}

void nw_trace_sent(nw_trace *trace, const nw_trace_message *message, int64_t start_ns, int64_t end_ns)
{
    if (trace != NULL) add_message(trace, NW_TRACE_SEND, message, start_ns, end_ns);
}

void nw_trace_received(nw_trace *trace, const nw_trace_message *message, int64_t start_ns, int64_t end_ns)
{
    if (trace != NULL) add_message(trace, NW_TRACE_RECEIVE, message, start_ns, end_ns);
}

void nw_trace_counter(nw_trace *trace, int rank, int name, int64_t step, int64_t at_ns, double value)
{
    if (trace == NULL) return;
    nw_trace_event event = make_event(NW_TRACE_COUNTER, NW_TRACE_COMPUTE, name, at_ns, at_ns);
    event.step = step;
    memcpy(&event.value, &value, sizeof event.value);
    add_event(trace, rank, event);
}
