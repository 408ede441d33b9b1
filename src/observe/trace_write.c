/*
 * trace_write.c - a trace as the JSON that ui.perfetto.dev and chrome://tracing read.
 *
 * The format is Chrome's Trace Event Format. What the viewers demand beyond it, and what is done about it:
 *
 *   - slices of one thread must nest, or they are not shown: slices that overlap get lanes of their own ("messages 2");
 *     where there is no further lane, a slice is cut where the one around it ends
 *   - an arrow hangs on the slice that is open at its time: it is put at the slice's start, and no slice is shorter
 *     than 1 ns
 *   - an arrow's id is a number or hexadecimal text: from, to and sequence in 64 bits
 *   - threads and processes share one space of numbers, in which 0 is not free: rank r is process 100 (r + 1), and its
 *     threads follow
 *
 * Times are microseconds with three decimals, from the first event on.
 */
#define _GNU_SOURCE 1
#include "base/file.h"
#include "base/json.h"
#include "observe/trace_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LANES = 20, MOST_DEPTH = 64, RANK_NUMBERS = 100 };
_Static_assert(NW_TRACE_THREADS *MOST_LANES < RANK_NUMBERS, "the numbers of a rank's threads suffice");

static const char *const thread_names[NW_TRACE_THREADS] = {"compute", "exchange", "messages"};

typedef struct arrow_end {
    uint64_t id;
    nw_trace_event *event;
} arrow_end;

typedef struct writing {
    nw_trace *trace;
    nw_json json;
    int64_t first_steps, every; /* of the steps that all ranks kept */
    int64_t origin_ns;
    int64_t events, left_out, lost, arrows, arrows_left_out, arrows_backwards, cut;
    int ranks;
} writing;

/* ---- what is written ---- */

static bool is_kept(const writing *w, const nw_trace_event *event)
{
    return nw_trace_keeps(w->trace->first_step, w->first_steps, w->every, event->step);
}

static bool is_message(const nw_trace_event *event)
{
    return event->kind == NW_TRACE_SEND || event->kind == NW_TRACE_RECEIVE;
}

static void survey(writing *w)
{
    w->first_steps = INT64_MAX;
    w->every = 1;
    for (int rank = 0; rank < w->trace->world; rank++) {
        const nw_trace_rank *r = w->trace->ranks[rank];
        if (r == NULL) continue;
        w->ranks++;
        w->left_out += (int64_t)r->left_out;
        w->lost += (int64_t)r->lost;
        if (r->first_steps < w->first_steps) w->first_steps = r->first_steps;
        if (r->every > w->every) w->every = r->every;
    }
    w->origin_ns = INT64_MAX;
    for (int rank = 0; rank < w->trace->world; rank++) {
        const nw_trace_rank *r = w->trace->ranks[rank];
        for (size_t i = 0; r != NULL && i < r->count; i++) {
            bool kept = is_kept(w, &r->events[i]);
            w->events += kept;
            w->left_out += !kept;
            if (kept && r->events[i].start_ns < w->origin_ns) w->origin_ns = r->events[i].start_ns;
        }
    }
}

/* ---- arrows ---- */

static uint64_t arrow_id(uint32_t from, uint32_t to, uint32_t sequence)
{
    return (uint64_t)from << 48 | (uint64_t)to << 32 | sequence;
}

static uint64_t arrow_id_of(uint32_t rank, const nw_trace_event *event)
{
    bool sent = event->kind == NW_TRACE_SEND;
    return arrow_id(sent ? rank : event->peer, sent ? event->peer : rank, event->sequence);
}

static int by_id(const void *a, const void *b)
{
    const arrow_end *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    if (x->event->kind != y->event->kind) return x->event->kind < y->event->kind ? -1 : 1;
    return (x->event->start_ns > y->event->start_ns) - (x->event->start_ns < y->event->start_ns);
}

/* One arrow for each id that has both ends: from the first time it was sent to the first time it arrived. */
static void pair_ends(writing *w, arrow_end *ends, size_t count)
{
    qsort(ends, count, sizeof *ends, by_id);
    for (size_t i = 0; i < count;) {
        size_t next = i + 1, received = i;
        while (next < count && ends[next].id == ends[i].id) next++;
        while (received < next && ends[received].event->kind == NW_TRACE_SEND) received++;
        bool paired = received > i && received < next;
        if (paired) {
            ends[i].event->arrow = ends[received].event->arrow = 1;
            w->arrows++;
            w->arrows_backwards += ends[received].event->start_ns < ends[i].event->start_ns;
        }
        w->arrows_left_out += (int64_t)(next - i) - (paired ? 2 : 0);
        i = next;
    }
}

static nw_status find_arrows(writing *w)
{
    arrow_end *ends = malloc(((size_t)w->events + 1) * sizeof *ends);
    NW_FAIL_IF(ends == NULL, NW_E_MEMORY, "no memory to pair the messages of a trace");
    size_t count = 0;
    for (int rank = 0; rank < w->trace->world; rank++) {
        const nw_trace_rank *r = w->trace->ranks[rank];
        for (size_t i = 0; r != NULL && i < r->count; i++) {
            nw_trace_event *event = &r->events[i];
            event->arrow = 0;
            if (!is_message(event) || !is_kept(w, event)) continue;
            ends[count++] = (arrow_end){arrow_id_of((uint32_t)rank, event), event};
        }
    }
    pair_ends(w, ends, count);
    free(ends);
    return NW_OK;
}

/* ---- lanes ---- */

/* An event where it is drawn. */
typedef struct slice {
    const nw_trace_event *event;
    int64_t end_ns;
    int lane;
} slice;

typedef struct lane {
    int depth;
    int64_t ends[MOST_DEPTH]; /* of the slices that are open, innermost last */
} lane;

static slice make_slice(const nw_trace_event *event)
{
    return (slice){event, event->start_ns + (event->duration_ns > 0 ? event->duration_ns : 1), 0};
}

/* Messages are not drawn inside each other, which would look like calls. */
static bool fits(const lane *at, const slice *s)
{
    if (at->depth == 0) return true;
    bool nests = s->event->thread != NW_TRACE_MESSAGES;
    return nests && at->depth < MOST_DEPTH && s->end_ns <= at->ends[at->depth - 1];
}

static void close_ended(lane *at, int64_t now_ns)
{
    while (at->depth > 0 && at->ends[at->depth - 1] <= now_ns) at->depth--;
}

/* Slices of one thread, in the order of their starts. Returns the number of lanes. */
static int assign_lanes(writing *w, slice *slices, size_t count)
{
    lane lanes[MOST_LANES];
    int used = 0;
    for (slice *s = slices; s < slices + count; s++) {
        if (s->event->kind == NW_TRACE_COUNTER) continue;
        int at = 0;
        for (; at < used; at++) {
            close_ended(&lanes[at], s->event->start_ns);
            if (fits(&lanes[at], s)) break;
        }
        if (at == used && used < MOST_LANES) lanes[used++].depth = 0;
        s->lane = at < MOST_LANES ? at : MOST_LANES - 1;
        lane *chosen = &lanes[s->lane];
        if (chosen->depth > 0 && s->end_ns > chosen->ends[chosen->depth - 1]) {
            s->end_ns = chosen->ends[chosen->depth - 1];
            w->cut++;
        }
        if (chosen->depth < MOST_DEPTH) chosen->ends[chosen->depth++] = s->end_ns;
    }
    return used;
}

static int by_thread(const void *a, const void *b)
{
    const nw_trace_event *x = ((const slice *)a)->event, *y = ((const slice *)b)->event;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    if (x->duration_ns != y->duration_ns) return x->duration_ns > y->duration_ns ? -1 : 1;
    return (x > y) - (x < y); /* in the order in which they were added */
}

/* ---- JSON ---- */

static void put_microseconds(nw_json *json, const char *key, int64_t ns)
{
    nw_json_key(json, key);
    nw_json_double(json, (double)ns / 1000);
}

static int process_number(int rank) { return RANK_NUMBERS * (rank + 1); }
static int thread_number(int rank, int thread, int at) { return process_number(rank) + 1 + MOST_LANES * thread + at; }

static void begin_event(nw_json *json, const char *phase, const char *name, int rank, int thread)
{
    nw_json_object(json);
    nw_json_put_string(json, "ph", phase);
    nw_json_put_string(json, "name", name);
    nw_json_put_int(json, "pid", process_number(rank));
    if (thread >= 0) nw_json_put_int(json, "tid", thread);
}

static void write_name(nw_json *json, const char *what, int rank, int thread, const char *name)
{
    begin_event(json, "M", what, rank, thread);
    nw_json_key(json, "args");
    nw_json_object(json);
    nw_json_put_string(json, "name", name);
    nw_json_object_end(json);
    nw_json_object_end(json);
}

static void write_order(nw_json *json, const char *what, int rank, int thread, int place)
{
    begin_event(json, "M", what, rank, thread);
    nw_json_key(json, "args");
    nw_json_object(json);
    nw_json_put_int(json, "sort_index", place);
    nw_json_object_end(json);
    nw_json_object_end(json);
}

static void write_rank_names(nw_json *json, int rank, const char *host, const int lanes[NW_TRACE_THREADS])
{
    char name[NW_TRACE_NAME_BYTES + 32];
    snprintf(name, sizeof name, host[0] != '\0' ? "rank %d @ %s" : "rank %d", rank, host);
    write_name(json, "process_name", rank, -1, name);
    write_order(json, "process_sort_index", rank, -1, rank);
    for (int thread = 0; thread < NW_TRACE_THREADS; thread++) {
        for (int at = 0; at < lanes[thread]; at++) {
            int number = thread_number(rank, thread, at);
            snprintf(name, sizeof name, at == 0 ? "%s" : "%s %d", thread_names[thread], at + 1);
            write_name(json, "thread_name", rank, number, name);
            write_order(json, "thread_sort_index", rank, number, number - process_number(rank));
        }
    }
}

static void write_counter(writing *w, int rank, const nw_trace_event *event)
{
    double value;
    memcpy(&value, &event->value, sizeof value);
    begin_event(&w->json, "C", w->trace->names[event->name], rank, -1);
    put_microseconds(&w->json, "ts", event->start_ns - w->origin_ns);
    nw_json_key(&w->json, "args");
    nw_json_object(&w->json);
    nw_json_key(&w->json, "value");
    nw_json_double(&w->json, value);
    nw_json_object_end(&w->json);
    nw_json_object_end(&w->json);
}

static void write_slice(writing *w, int rank, const slice *s)
{
    nw_json *json = &w->json;
    const nw_trace_event *event = s->event;
    begin_event(json, "X", w->trace->names[event->name], rank, thread_number(rank, event->thread, s->lane));
    nw_json_put_string(json, "cat", thread_names[event->thread]);
    put_microseconds(json, "ts", event->start_ns - w->origin_ns);
    put_microseconds(json, "dur", s->end_ns - event->start_ns);
    nw_json_key(json, "args");
    nw_json_object(json);
    nw_json_put_int(json, "step", event->step);
    if (is_message(event)) {
        nw_json_put_int(json, event->kind == NW_TRACE_SEND ? "to" : "from", event->peer);
        nw_json_put_int(json, "sequence", event->sequence);
        nw_json_put_int(json, "bytes", (int64_t)(event->value < INT64_MAX ? event->value : INT64_MAX));
    }
    nw_json_object_end(json);
    nw_json_object_end(json);
}

static void write_arrow(writing *w, int rank, const slice *s)
{
    nw_json *json = &w->json;
    const nw_trace_event *event = s->event;
    char id[24];
    bool sent = event->kind == NW_TRACE_SEND;
    snprintf(id, sizeof id, "0x%" PRIx64, arrow_id_of((uint32_t)rank, event));
    begin_event(json, sent ? "s" : "f", "message", rank, thread_number(rank, event->thread, s->lane));
    nw_json_put_string(json, "cat", thread_names[event->thread]);
    nw_json_put_string(json, "id", id);
    if (!sent) nw_json_put_string(json, "bp", "e");
    put_microseconds(json, "ts", event->start_ns - w->origin_ns);
    nw_json_object_end(json);
}

static void write_slices(writing *w, int rank, slice *slices, size_t count)
{
    int lanes[NW_TRACE_THREADS] = {0};
    for (size_t i = 0, next = 0; i < count; i = next) {
        while (next < count && slices[next].event->thread == slices[i].event->thread) next++;
        lanes[slices[i].event->thread] = assign_lanes(w, slices + i, next - i);
    }
    write_rank_names(&w->json, rank, w->trace->ranks[rank]->host, lanes);
    for (const slice *s = slices; s < slices + count; s++) {
        if (s->event->kind == NW_TRACE_COUNTER) {
            write_counter(w, rank, s->event);
            continue;
        }
        write_slice(w, rank, s);
        if (s->event->arrow) write_arrow(w, rank, s);
    }
}

static nw_status write_rank(writing *w, int rank)
{
    const nw_trace_rank *r = w->trace->ranks[rank];
    slice *slices = malloc((r->count + 1) * sizeof *slices);
    NW_FAIL_IF(slices == NULL, NW_E_MEMORY, "no memory to sort the events of rank %d", rank);
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (is_kept(w, &r->events[i])) slices[count++] = make_slice(&r->events[i]);
    }
    qsort(slices, count, sizeof *slices, by_thread);
    write_slices(w, rank, slices, count);
    free(slices);
    return NW_OK;
}

static void write_facts(writing *w)
{
    const struct {
        const char *key;
        int64_t value;
    } facts[] = {{"world_size", w->trace->world},
                 {"ranks", w->ranks},
                 {"began_at_step", w->trace->first_step},
                 {"first_steps", w->ranks > 0 ? w->first_steps : 0},
                 {"then_every", w->every},
                 {"events", w->events},
                 {"events_left_out", w->left_out},
                 {"events_lost", w->lost},
                 {"events_cut", w->cut},
                 {"arrows", w->arrows},
                 {"arrow_ends_left_out", w->arrows_left_out},
                 {"arrows_backwards", w->arrows_backwards}};
    nw_json_key(&w->json, "otherData");
    nw_json_object(&w->json);
    nw_json_put_string(&w->json, "program", "nowait");
    nw_json_put_string(&w->json, "version", nw_version());
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) nw_json_put_int(&w->json, facts[i].key, facts[i].value);
    nw_json_object_end(&w->json);
}

nw_status nw_trace_write_to(nw_trace *trace, FILE *out)
{
    writing w = {.trace = trace, .json = nw_json_begin(out, false)};
    survey(&w);
    NW_TRY(find_arrows(&w));
    nw_json_object(&w.json);
    nw_json_put_string(&w.json, "displayTimeUnit", "ms");
    nw_json_key(&w.json, "traceEvents");
    nw_json_array(&w.json);
    for (int rank = 0; rank < w.trace->world; rank++) {
        if (w.trace->ranks[rank] == NULL) continue;
        NW_TRY(write_rank(&w, rank));
        fputc('\n', out); /* between two values, where JSON allows it: editors do not like one long line */
    }
    nw_json_array_end(&w.json);
    write_facts(&w);
    nw_json_object_end(&w.json);
    nw_json_end(&w.json);
    return NW_OK;
}

static nw_status fill(FILE *out, void *context) { return nw_trace_write_to(context, out); }

nw_status nw_trace_write(nw_trace *trace, const char *path)
{
    NW_TRY(nw_file_replace_by(path, fill, trace));
    return NW_OK;
}
