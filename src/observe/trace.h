/*
 * trace.h - what every rank did when, for ui.perfetto.dev or chrome://tracing: one file for all ranks, real or virtual.
 *
 * A rank is a process of the trace ("rank 3 @ host"), with the threads compute, exchange and messages. Spans are slices
 * on them, messages are slices with an arrow from the sender's to the receiver's, counters are curves.
 *
 * Bounded. Each rank has room for a fixed number of events; adding one allocates nothing and takes some nanoseconds.
 * Whole steps are kept or left out: step s of a run that began at step b is kept if
 *
 *   s - b <= K   or   s % m == 0        K = first_steps and m = 1 at the start
 *
 * When a rank's room is full, m doubles, and K halves if that alone does not free a quarter; the events of steps that
 * are not kept any more are discarded. So the trace always covers the whole run, denser at its beginning. Rates of
 * different ranks are powers of two: the file has the steps that all ranks kept (smallest K, largest m), and both ends
 * of an arrow are kept or left out together, because both belong to the sender's step (header.step). Where a single
 * step has more events than there is room for, its last ones are lost, and otherData counts them. Viewers leave out an
 * arrow without its other end (a message that was lost, or was under way when the run ended, or came from a dead rank).
 *
 * Times are nanoseconds of the run's clock. Under MPI each process fills a trace of its own rank and prints
 * it with the offset of its clock; rank 0 puts the texts together. What they must agree on first is nw_trace_view.
 * nw_trace_write may be called at any moment, also after a failure; the file is then complete, or the old one.
 * docs/files.md explains the file.
 *
 * All functions that add take a NULL trace, and do nothing. Threads: one at a time.
 */
#ifndef NW_OBSERVE_TRACE_H
#define NW_OBSERVE_TRACE_H

#include "base/status.h"

#include <stdio.h>

typedef enum nw_trace_thread {
    NW_TRACE_COMPUTE,
    NW_TRACE_EXCHANGE,
    NW_TRACE_MESSAGES,
    NW_TRACE_THREADS
} nw_trace_thread;

enum {
    NW_TRACE_EVENTS = 1 << 16,      /* per rank, unless told */
    NW_TRACE_MOST_EVENTS = 1 << 24, /* per rank */
    NW_TRACE_FIRST_STEPS = 16,
    NW_TRACE_MOST_RANKS = 1 << 16,
    NW_TRACE_MOST_NAMES = 1024,
    NW_TRACE_NAME_BYTES = 96, /* with the zero; longer names are cut */
};

typedef struct nw_trace_options {
    int world;
    int first_rank, ranks; /* those that this process adds events for */
    const char *host;      /* of these ranks; NULL: not named. nw_trace_set_host for single ones */
    int64_t first_step;    /* steps done when this process began */
    int64_t first_steps;   /* K; 0: NW_TRACE_FIRST_STEPS */
    size_t events;         /* room per rank; 0: NW_TRACE_EVENTS */
} nw_trace_options;

typedef struct nw_trace nw_trace;

nw_status nw_trace_create(nw_trace **trace, const nw_trace_options *options);
void nw_trace_free(nw_trace *trace);
void nw_trace_set_host(nw_trace *trace, int rank, const char *host);

/* The number that stands for a name in the calls below: made once, at the start. The same text gives the same number;
 * past NW_TRACE_MOST_NAMES, and for a NULL trace, it is 0, which stands for "other". */
int nw_trace_name(nw_trace *trace, const char *text);

/* Slices of one thread may nest. */
void nw_trace_span(nw_trace *trace, int rank, nw_trace_thread thread, int name, int64_t step, int64_t start_ns,
                   int64_t end_ns);

typedef struct nw_trace_message {
    int from, to;
    uint32_t sequence; /* with from and to, the message's name: header.sequence */
    int64_t step;      /* header.step, at both ends */
    uint64_t bytes;
    int name;
} nw_trace_message;

/* From when the sender gave it away until the transport had it; from when it was there until the receiver was done. */
void nw_trace_sent(nw_trace *trace, const nw_trace_message *message, int64_t start_ns, int64_t end_ns);
void nw_trace_received(nw_trace *trace, const nw_trace_message *message, int64_t start_ns, int64_t end_ns);

void nw_trace_counter(nw_trace *trace, int rank, int name, int64_t step, int64_t at_ns, double value);

/* What a file is about: of the ranks of one process, then joined over all. Plain numbers, so that they can be sent. */
typedef struct nw_trace_view {
    int64_t ranks;              /* that there are events of; 0: the rest means nothing */
    int64_t first_steps, every; /* K and m: the steps that all ranks kept */
    int64_t origin_ns;          /* of the earliest event */
    int64_t lost;               /* events for which there was no room */
} nw_trace_view;

/* offset_ns: what to add to this process's clock to get rank 0's. */
nw_trace_view nw_trace_look(const nw_trace *trace, int64_t offset_ns);
void nw_trace_view_join(nw_trace_view *all, const nw_trace_view *other);

/* The events of this process as members of a JSON array, with a comma before the first if it follows others. */
nw_status nw_trace_print(const nw_trace *trace, const nw_trace_view *view, int64_t offset_ns, bool follows, FILE *out);

/* Writes the file at one stroke: the events of this process, and whatever `others` (may be NULL) prints after them
 * in the same way. Events may be added afterwards, and it may be written again. */
nw_status nw_trace_write(const nw_trace *trace, const char *path, const nw_trace_view *view,
                         nw_status (*others)(void *context, FILE *out), void *context);

#endif
