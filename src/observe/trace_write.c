/*
 * trace_write.c - a trace as the JSON that ui.perfetto.dev and chrome://tracing read.
 *
 * The format is Chrome's Trace Event Format, one event per line. Viewers demand more than the format says:
 *
 *   - slices of one thread must nest, or they are not shown: a slice that would end after the one in which it begins is
 *     cut there. Messages do not overlap: each ends where the next begins, and those of one moment begin 1 ns apart
 *   - an arrow belongs to the slice that is open at its time: it is put at the slice's start, and no slice is shorter
 *     than 1 ns
 *   - an arrow's id is a number or hexadecimal text: from, to and sequence in 64 bits. Viewers join a start and an end of
 *     one id, and ignore an arrow without its other end
 *   - threads and processes share one space of numbers, in which 0 is not free: rank r is process 10 (r + 1), and its
 *     threads follow
 *
 * Times are microseconds with three decimals, from the first event on.
 */
#include "base/file.h"
#include "base/json.h"
#include "observe/trace_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { RANK_NUMBERS = 10 };
_Static_assert((int)NW_TRACE_THREADS < (int)RANK_NUMBERS, "the numbers of a rank's threads suffice");

static const char *const thread_names[NW_TRACE_THREADS] = {"compute", "exchange", "messages"};

/* ---- what is written ---- */

nw_trace_view nw_trace_look(const nw_trace *trace, int64_t offset_ns)
{
    nw_trace_view view = {0};
    for (int rank = 0; rank < trace->world; rank++) {
        const nw_trace_rank *r = trace->ranks[rank];
        if (r == NULL) continue;
        nw_trace_view own = {1, r->first_steps, r->every, INT64_MAX, (int64_t)r->lost};
        for (size_t i = 0; i < r->count; i++)
            if (r->events[i].start_ns < own.origin_ns) own.origin_ns = r->events[i].start_ns;
        if (r->count > 0) own.origin_ns += nw_trace_clamp(offset_ns, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS);
        nw_trace_view_join(&view, &own);
    }
    return view;
}

void nw_trace_view_join(nw_trace_view *all, const nw_trace_view *other)
{
    if (other->ranks == 0) return;
    if (all->ranks == 0 || other->first_steps < all->first_steps) all->first_steps = other->first_steps;
    if (all->ranks == 0 || other->every > all->every) all->every = other->every;
    if (all->ranks == 0 || other->origin_ns < all->origin_ns) all->origin_ns = other->origin_ns;
    all->ranks += other->ranks;
    all->lost += other->lost;
}

/* ---- where it is drawn ---- */

typedef struct slice {
    const nw_trace_event *event;
    int64_t start_ns, end_ns;
} slice;

static int by_thread(const void *a, const void *b)
{
    const nw_trace_event *x = ((const slice *)a)->event, *y = ((const slice *)b)->event;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->start_ns != y->start_ns) return x->start_ns < y->start_ns ? -1 : 1;
    if (x->duration_ns != y->duration_ns) return x->duration_ns > y->duration_ns ? -1 : 1;
    return (x > y) - (x < y); /* in the order in which they were added */
}

/* Slices in the order of by_thread; `open` is room for as many ends. */
static void make_nest(slice *slices, size_t count, int64_t *open)
{
    size_t depth = 0;
    slice *last = NULL; /* of the thread */
    for (slice *s = slices; s < slices + count; s++) {
        if (s->event->kind == NW_TRACE_COUNTER) continue;
        if (last != NULL && last->event->thread != s->event->thread) {
            depth = 0;
            last = NULL;
        }
        if (s->event->thread == NW_TRACE_MESSAGES && last != NULL) {
            if (s->start_ns <= last->start_ns) s->start_ns = last->start_ns + 1;
            if (s->end_ns <= s->start_ns) s->end_ns = s->start_ns + 1;
            if (last->end_ns > s->start_ns) last->end_ns = s->start_ns;
        }
        last = s;
        if (s->event->thread == NW_TRACE_MESSAGES) continue;
        while (depth > 0 && open[depth - 1] <= s->start_ns) depth--;
        if (depth > 0 && s->end_ns > open[depth - 1]) s->end_ns = open[depth - 1];
        open[depth++] = s->end_ns;
    }
}

/* ---- JSON ---- */

typedef struct printing {
    const nw_trace *trace;
    FILE *out;
    int rank;
    int64_t shift_ns; /* from the clock of this process to the file's */
    bool follows;     /* there is an event before this one */
} printing;

static int process_number(int rank) { return RANK_NUMBERS * (rank + 1); }

static nw_json begin_event(printing *p, const char *phase, const char *name, int thread)
{
    fputc(p->follows ? ',' : ' ', p->out);
    p->follows = true;
    nw_json json = nw_json_begin(p->out, false);
    nw_json_object(&json);
    nw_json_put_string(&json, "ph", phase);
    nw_json_put_string(&json, "name", name);
    nw_json_put_int(&json, "pid", process_number(p->rank));
    if (thread >= 0) nw_json_put_int(&json, "tid", process_number(p->rank) + 1 + thread);
    return json;
}

static void end_event(nw_json *json)
{
    nw_json_object_end(json);
    nw_json_end(json);
}

static void put_microseconds(nw_json *json, const char *key, int64_t ns)
{
    nw_json_put_double(json, key, (double)ns / 1000);
}

/* The name of a process or thread, and its place among the others. */
static void print_name(printing *p, const char *what, int thread, const char *name, int place)
{
    char kind[32];
    snprintf(kind, sizeof kind, "%s_name", what);
    nw_json json = begin_event(p, "M", kind, thread);
    nw_json_put_object(&json, "args");
    nw_json_put_string(&json, "name", name);
    nw_json_object_end(&json);
    end_event(&json);
    snprintf(kind, sizeof kind, "%s_sort_index", what);
    json = begin_event(p, "M", kind, thread);
    nw_json_put_object(&json, "args");
    nw_json_put_int(&json, "sort_index", place);
    nw_json_object_end(&json);
    end_event(&json);
}

static void print_names(printing *p)
{
    char name[NW_TRACE_NAME_BYTES + 32];
    const char *host = p->trace->ranks[p->rank]->host;
    snprintf(name, sizeof name, host[0] != '\0' ? "rank %d @ %s" : "rank %d", p->rank, host);
    print_name(p, "process", -1, name, p->rank);
    for (int thread = 0; thread < NW_TRACE_THREADS; thread++)
        print_name(p, "thread", thread, thread_names[thread], thread);
}

static void print_counter(printing *p, const nw_trace_event *event)
{
    double value;
    memcpy(&value, &event->value, sizeof value);
    nw_json json = begin_event(p, "C", p->trace->names[event->name], -1);
    put_microseconds(&json, "ts", event->start_ns + p->shift_ns);
    nw_json_put_object(&json, "args");
    nw_json_put_double(&json, "value", value);
    nw_json_object_end(&json);
    end_event(&json);
}

static void print_arrow(printing *p, const slice *s)
{
    const nw_trace_event *event = s->event;
    bool sent = event->kind == NW_TRACE_SEND;
    uint64_t own = (uint64_t)p->rank, from = sent ? own : event->peer, to = sent ? event->peer : own;
    char id[24];
    snprintf(id, sizeof id, "0x%" PRIx64, from << 48 | to << 32 | event->sequence);
    nw_json json = begin_event(p, sent ? "s" : "f", "message", event->thread);
    nw_json_put_string(&json, "cat", thread_names[event->thread]);
    nw_json_put_string(&json, "id", id);
    nw_json_put_string(&json, "bp", "e");
    put_microseconds(&json, "ts", s->start_ns + p->shift_ns);
    end_event(&json);
}

static void print_slice(printing *p, const slice *s)
{
    const nw_trace_event *event = s->event;
    bool message = event->kind == NW_TRACE_SEND || event->kind == NW_TRACE_RECEIVE;
    nw_json json = begin_event(p, "X", p->trace->names[event->name], event->thread);
    nw_json_put_string(&json, "cat", thread_names[event->thread]);
    put_microseconds(&json, "ts", s->start_ns + p->shift_ns);
    put_microseconds(&json, "dur", s->end_ns - s->start_ns);
    nw_json_put_object(&json, "args");
    nw_json_put_int(&json, "step", event->step);
    if (message) {
        nw_json_put_int(&json, event->kind == NW_TRACE_SEND ? "to" : "from", event->peer);
        nw_json_put_int(&json, "sequence", event->sequence);
        nw_json_put_int(&json, "bytes", (int64_t)(event->value < INT64_MAX ? event->value : INT64_MAX));
    }
    nw_json_object_end(&json);
    end_event(&json);
    if (message) print_arrow(p, s);
}

static nw_status print_rank(printing *p, const nw_trace_view *view)
{
    const nw_trace_rank *r = p->trace->ranks[p->rank];
    NW_AUTOFREE slice *slices = malloc((r->count + 1) * sizeof *slices);
    NW_AUTOFREE int64_t *open = malloc((r->count + 1) * sizeof *open);
    NW_FAIL_IF(slices == NULL || open == NULL, NW_E_MEMORY, "no memory to sort the events of rank %d", p->rank);
    size_t count = 0;
    for (size_t i = 0; i < r->count; i++) {
        const nw_trace_event *e = &r->events[i];
        if (!nw_trace_keeps(p->trace->first_step, view->first_steps, view->every, e->step)) continue;
        slices[count++] = (slice){e, e->start_ns, e->start_ns + (e->duration_ns > 0 ? e->duration_ns : 1)};
    }
    qsort(slices, count, sizeof *slices, by_thread);
    make_nest(slices, count, open);
    print_names(p);
    for (const slice *s = slices; s < slices + count; s++) {
        if (s->event->kind == NW_TRACE_COUNTER)
            print_counter(p, s->event);
        else
            print_slice(p, s);
    }
    return NW_OK;
}

nw_status nw_trace_print(const nw_trace *trace, const nw_trace_view *view, int64_t offset_ns, bool follows, FILE *out)
{
    printing p = {.trace = trace, .out = out, .follows = follows};
    p.shift_ns = nw_trace_clamp(offset_ns, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS) - view->origin_ns;
    for (p.rank = 0; p.rank < trace->world; p.rank++)
        if (trace->ranks[p.rank] != NULL) NW_TRY(print_rank(&p, view));
    return NW_OK;
}

/* ---- the file ---- */

typedef struct filling {
    const nw_trace *trace;
    const nw_trace_view *view;
    nw_status (*others)(void *context, FILE *out);
    void *context;
} filling;

static nw_status fill_trace(FILE *out, void *context)
{
    const filling *f = context;
    const struct {
        const char *key;
        int64_t value;
    } facts[] = {{"world_size", f->trace->world},         {"ranks", f->view->ranks},
                 {"began_at_step", f->trace->first_step}, {"first_steps", f->view->first_steps},
                 {"then_every", f->view->every},          {"events_lost", f->view->lost}};
    fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":\n", out);
    nw_json json = nw_json_begin(out, false);
    nw_json_object(&json);
    nw_json_put_string(&json, "program", "nowait");
    nw_json_put_string(&json, "version", nw_version());
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) nw_json_put_int(&json, facts[i].key, facts[i].value);
    nw_json_object_end(&json);
    nw_json_end(&json);
    fputs(",\"traceEvents\":[\n", out);
    NW_TRY(nw_trace_print(f->trace, f->view, 0, false, out));
    if (f->others != NULL) NW_TRY(f->others(f->context, out));
    fputs("]}\n", out);
    return NW_OK;
}

nw_status nw_trace_write(const nw_trace *trace, const char *path, const nw_trace_view *view,
                         nw_status (*others)(void *context, FILE *out), void *context)
{
    return nw_file_replace_by(path, fill_trace, &(filling){trace, view, others, context});
}
