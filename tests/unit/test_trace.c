/*
 * test_trace.c - traces stay within their bound, keep whole steps, and are always files that a viewer can show.
 *
 * Every file is read back with the strict JSON reader and looked through (look): slices of a thread nest, arrows hang
 * on slices and have ids that pair them, names and numbers are there.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_read.h"
#include "observe/trace.h"
#include "support/allocations.h"
#include "support/own_folder.h"

static nw_trace *make(int world, int first_rank, int ranks, size_t events)
{
    nw_trace *trace;
    nw_trace_options options = {
        .world = world, .first_rank = first_rank, .ranks = ranks, .host = "node", .first_steps = 4, .events = events};
    assert_int_equal(nw_trace_create(&trace, &options), NW_OK);
    return trace;
}

/* ---- looking through a file ---- */
enum { MOST = 1 << 16 };

typedef struct slice {
    double start, end;
    int64_t thread;
} slice;

typedef struct arrow {
    const char *id;
    int64_t thread;
    double at;
} arrow;

typedef struct sight {
    nw_json_document document;
    const nw_json_value *events;
    int slices, counters, starts, finishes;
    int arrows; /* with both ends */
} sight;

static slice slices[MOST];
static arrow starts[MOST], finishes[MOST];

static int64_t integer(const nw_json_value *object, const char *key)
{
    const nw_json_value *value = nw_json_find(object, key);
    assert_non_null(value);
    assert_true(value->is_integer);
    return value->integer;
}

static double real(const nw_json_value *object, const char *key)
{
    const nw_json_value *value = nw_json_find(object, key);
    assert_non_null(value);
    assert_int_equal(value->type, NW_JSON_NUMBER);
    return value->number;
}

static const char *text(const nw_json_value *object, const char *key)
{
    const nw_json_value *value = nw_json_find(object, key);
    assert_non_null(value);
    assert_int_equal(value->type, NW_JSON_STRING);
    return value->text;
}

static int64_t fact(const sight *s, const char *key)
{
    return integer(nw_json_find(s->document.values, "otherData"), key);
}

static int64_t step_of(const nw_json_value *event) { return integer(nw_json_find(event, "args"), "step"); }
static bool is_phase(const nw_json_value *event, const char *phase) { return strcmp(text(event, "ph"), phase) == 0; }

static int by_thread(const void *a, const void *b)
{
    const slice *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

static int by_id(const void *a, const void *b) { return strcmp(((const arrow *)a)->id, ((const arrow *)b)->id); }

static void check_nesting(int count)
{
    double open[MOST];
    int depth = 0;
    qsort(slices, (size_t)count, sizeof *slices, by_thread);
    for (int i = 0; i < count; i++) {
        if (i == 0 || slices[i].thread != slices[i - 1].thread) depth = 0;
        while (depth > 0 && open[depth - 1] <= slices[i].start + 1e-7) depth--;
        assert_true(depth == 0 || slices[i].end <= open[depth - 1] + 1e-7);
        open[depth++] = slices[i].end;
    }
}

static void check_hangs(const arrow *a, int count)
{
    for (int i = 0; i < count; i++) {
        if (slices[i].thread == a->thread && slices[i].start <= a->at && slices[i].end > a->at) return;
    }
    fail_msg("the arrow %s hangs on no slice", a->id);
}

static void check_arrows(sight *s)
{
    qsort(starts, (size_t)s->starts, sizeof *starts, by_id);
    qsort(finishes, (size_t)s->finishes, sizeof *finishes, by_id);
    for (int i = 0, j = 0; i < s->starts; i++) {
        if (i > 0) assert_string_not_equal(starts[i].id, starts[i - 1].id);
        char *end;
        strtoull(starts[i].id, &end, 16); /* what viewers accept as a text */
        assert_true(*end == '\0' && end != starts[i].id);
        while (j < s->finishes && strcmp(finishes[j].id, starts[i].id) < 0) j++;
        s->arrows += j < s->finishes && strcmp(finishes[j].id, starts[i].id) == 0;
    }
    for (int i = 0; i < s->starts && i < 200; i++) check_hangs(&starts[i], s->slices);
    for (int i = 0; i < s->finishes && i < 200; i++) check_hangs(&finishes[i], s->slices);
}

/* Each event that is no metadata, once. */
static void look_at(sight *s, const nw_json_value *event)
{
    assert_true(integer(event, "pid") > 0);
    if (is_phase(event, "M")) return;
    double at = real(event, "ts");
    assert_true(at >= 0);
    if (is_phase(event, "X")) {
        double end = at + real(event, "dur");
        assert_true(end > at && s->slices < MOST && step_of(event) >= 0);
        slices[s->slices++] = (slice){at, end, integer(event, "tid")};
    } else if (is_phase(event, "C")) {
        s->counters++;
    } else {
        bool starting = is_phase(event, "s");
        assert_true(starting || is_phase(event, "f"));
        assert_string_equal(text(event, "bp"), "e");
        *(starting ? &starts[s->starts++] : &finishes[s->finishes++]) =
            (arrow){text(event, "id"), integer(event, "tid"), at};
    }
}

static sight look(const char *path)
{
    sight s = {0};
    char *bytes;
    size_t size;
    assert_int_equal(nw_file_read(path, NW_JSON_READ_BYTES, &bytes, &size), NW_OK);
    if (nw_json_parse(&s.document, bytes, size, path) != NW_OK) fail_msg("%s", nw_error_message());
    free(bytes);
    s.events = nw_json_find(s.document.values, "traceEvents");
    assert_non_null(s.events);
    for (const nw_json_value *v = nw_json_first(s.events); v; v = nw_json_next(s.events, v)) look_at(&s, v);
    check_nesting(s.slices);
    check_arrows(&s);
    return s;
}

static nw_status write_alone(const nw_trace *trace, const char *path)
{
    nw_trace_view view = nw_trace_look(trace, 0);
    return nw_trace_write(trace, path, &view, NULL, NULL);
}

static sight write_and_look(const nw_trace *trace)
{
    assert_int_equal(write_alone(trace, "trace.json"), NW_OK);
    return look("trace.json");
}

static const nw_json_value *find_event(const sight *s, const char *phase, const char *name)
{
    for (const nw_json_value *v = nw_json_first(s->events); v; v = nw_json_next(s->events, v)) {
        if (is_phase(v, phase) && strcmp(text(v, "name"), name) == 0) return v;
    }
    return NULL;
}

/* ---- a file ---- */
TEST(test_small)
{
    nw_trace *trace = make(2, 0, 2, 100);
    int forward = nw_trace_name(trace, "forward \"conv1\""), gradient = nw_trace_name(trace, "gradient 0");
    assert_int_equal(nw_trace_name(trace, "forward \"conv1\""), forward);
    int queue = nw_trace_name(trace, "queue");
    nw_trace_set_host(trace, 1, "other-node");
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, forward, 1, 5000, 6500);
    nw_trace_message message = {.from = 0, .to = 1, .sequence = 3, .step = 1, .bytes = 1064, .name = gradient};
    nw_trace_sent(trace, &message, 6500, 6500); /* no time at all: still a slice */
    nw_trace_received(trace, &message, 7001, 8000);
    nw_trace_counter(trace, 1, queue, 1, 7001, 2.5);
    nw_trace_counter(trace, 1, queue, 1, 7002, (double)NAN); /* null, not broken JSON */
    sight s = write_and_look(trace);
    assert_true(s.slices == 3 && s.arrows == 1 && s.counters == 2);
    const nw_json_value *span = find_event(&s, "X", "forward \"conv1\""), *sent = find_event(&s, "X", "gradient 0");
    assert_true(real(span, "ts") == 0 && real(span, "dur") == 1.5 && step_of(span) == 1);
    assert_string_equal(text(span, "cat"), "compute");
    assert_true(real(sent, "ts") == 1.5 && real(sent, "dur") == 0.001);
    assert_int_equal(integer(nw_json_find(sent, "args"), "to"), 1);
    assert_int_equal(integer(nw_json_find(sent, "args"), "bytes"), 1064);
    assert_string_equal(starts[0].id, "0x100000003");
    assert_true(finishes[0].at == 2.001);
    const nw_json_value *counter = find_event(&s, "C", "queue");
    assert_true(real(nw_json_find(counter, "args"), "value") == 2.5);
    int named = 0;
    for (const nw_json_value *v = nw_json_first(s.events); v; v = nw_json_next(s.events, v)) {
        if (strcmp(text(v, "name"), "process_name") != 0) continue;
        assert_string_equal(text(nw_json_find(v, "args"), "name"),
                            named == 0 ? "rank 0 @ node" : "rank 1 @ other-node");
        named++;
    }
    assert_int_equal(named, 2);
    assert_non_null(find_event(&s, "M", "thread_name"));
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

TEST(test_empty_and_none)
{
    nw_trace *trace = make(3, 1, 1, 10);
    sight s = write_and_look(trace);
    assert_true(s.slices == 0 && fact(&s, "ranks") == 1 && fact(&s, "world_size") == 3);
    nw_json_free(&s.document);
    nw_trace_free(trace);
    nw_trace_message message = {0};
    nw_trace_span(NULL, 5, NW_TRACE_COMPUTE, 0, 0, 0, 0);
    nw_trace_sent(NULL, &message, 0, 0);
    nw_trace_received(NULL, &message, 0, 0);
    nw_trace_counter(NULL, 0, 0, 0, 0, 0);
    nw_trace_set_host(NULL, 0, "x");
    assert_int_equal(nw_trace_name(NULL, "x"), 0);
    nw_trace_free(NULL);
}

TEST(test_limits)
{
    nw_trace *trace;
    static const nw_trace_options bad[] = {{.world = 0, .ranks = 1},
                                           {.world = 2, .ranks = 3},
                                           {.world = 2, .first_rank = 1, .ranks = 2},
                                           {.world = NW_TRACE_MOST_RANKS + 1, .ranks = 1},
                                           {.world = 1, .ranks = 1, .events = NW_TRACE_MOST_EVENTS + 1},
                                           {.world = 1, .ranks = 1, .first_step = -1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(nw_trace_create(&trace, &bad[i]), NW_E_ARGUMENT);
        assert_null(trace);
    }
    trace = make(1, 0, 1, 10);
    char name[200];
    memset(name, 'x', sizeof name);
    name[199] = '\0';
    int cut = nw_trace_name(trace, name);
    name[150] = 'y';
    assert_int_equal(nw_trace_name(trace, name), cut);
    for (int i = 0; i < 2 * NW_TRACE_MOST_NAMES; i++) {
        snprintf(name, sizeof name, "name %d", i);
        int number = nw_trace_name(trace, name);
        assert_true(i + 2 < NW_TRACE_MOST_NAMES ? number == i + 2 : number == 0);
    }
    /* Times beyond all reason neither overflow nor break the file. */
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, cut, INT64_MAX, INT64_MIN, INT64_MAX);
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, -5, INT64_MIN, INT64_MAX, INT64_MIN);
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, 99999, 1, 10, 5);
    assert_int_equal(write_alone(trace, "trace.json"), NW_OK);
    nw_trace_free(trace);
}

static void add_to_missing_rank(nw_trace *trace) { nw_trace_span(trace, 0, NW_TRACE_COMPUTE, 0, 0, 0, 0); }
static void add_to_no_thread(nw_trace *trace) { nw_trace_span(trace, 1, NW_TRACE_THREADS, 0, 0, 0, 0); }
static void add_to_no_peer(nw_trace *trace) { nw_trace_sent(trace, &(nw_trace_message){.from = 1, .to = 2}, 0, 0); }
static void add_well(nw_trace *trace) { nw_trace_sent(trace, &(nw_trace_message){.from = 1, .to = 0}, 0, 0); }

TEST(test_misuse_aborts)
{
    static void (*const cases[])(nw_trace *) = {add_to_missing_rank, add_to_no_thread, add_to_no_peer, add_well};
    nw_trace *trace = make(2, 1, 1, 10);
    for (size_t i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
            cases[i](trace);
            _exit(0);
        }
        int result = 0;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT, i < 3);
    }
    nw_trace_free(trace);
}

/* ---- an invented run: all ranks send to all in every step; rank r makes `spans[r]` slices more ---- */
enum { WORLD = 3 };
static const int64_t step_ns = 100000;

static void play_step(nw_trace *const traces[WORLD], const int spans[WORLD], int64_t step, const int64_t clock[WORLD])
{
    for (int rank = 0; rank < WORLD; rank++) {
        nw_trace *trace = traces[rank];
        int64_t now = step * step_ns - clock[rank];
        int name = nw_trace_name(trace, rank == 1 ? "odd" : "even"), gradient = nw_trace_name(trace, "gradient");
        nw_trace_span(trace, rank, NW_TRACE_COMPUTE, name, step, now, now + spans[rank] * 100 + 50);
        for (int i = 0; i < spans[rank]; i++) {
            nw_trace_span(trace, rank, NW_TRACE_COMPUTE, name, step, now + i * 100, now + i * 100 + 100);
        }
        for (int peer = 0; peer < WORLD; peer++) {
            if (peer == rank) continue;
            nw_trace_message out = {.from = rank, .to = peer, .step = step, .bytes = 100, .name = gradient};
            nw_trace_message in = {.from = peer, .to = rank, .step = step, .bytes = 100, .name = gradient};
            out.sequence = in.sequence = (uint32_t)step;
            /* Messages arrive while their receiver is at the next step, and several are under way at once. */
            nw_trace_sent(trace, &out, now + 40000 + peer * 100, now + 50000);
            nw_trace_received(trace, &in, now + 110000 + peer * 100, now + 120000);
        }
    }
}

static const int64_t no_clock[WORLD];

static int steps_in(const sight *s, bool *present, int64_t most)
{
    int count = 0;
    memset(present, 0, (size_t)most + 1);
    for (const nw_json_value *v = nw_json_first(s->events); v; v = nw_json_next(s->events, v)) {
        if (!is_phase(v, "X") || present[step_of(v)]) continue;
        present[step_of(v)] = true;
        count++;
    }
    return count;
}

TEST(test_bound_holds_and_steps_are_whole)
{
    enum { CAPACITY = 600, STEPS = 1000 };
    static const int spans[WORLD] = {3, 20, 3}; /* the second rank thins out earlier than the others */
    nw_trace *trace = make(WORLD, 0, WORLD, CAPACITY), *same[WORLD] = {trace, trace, trace};
    for (int64_t step = 1; step <= STEPS; step++) /* 10 to 40 times what there is room for */
        play_step(same, spans, step, no_clock);
    sight s = write_and_look(trace);
    assert_true(s.slices <= WORLD * CAPACITY && s.slices > CAPACITY);
    assert_int_equal(fact(&s, "events_lost"), 0);
    int64_t every = fact(&s, "then_every"), first = fact(&s, "first_steps");
    assert_true(every > 1 && (every & (every - 1)) == 0 && first >= 1);
    static bool present[STEPS + 1];
    int steps = steps_in(&s, present, STEPS);
    for (int64_t step = 1; step <= STEPS; step++) assert_int_equal(present[step], step <= first || step % every == 0);
    assert_true(present[STEPS / every * every]); /* to the end of the run */
    assert_int_equal(s.slices, steps * (26 + 3 + 4 * WORLD));
    assert_int_equal(s.arrows, steps * WORLD * (WORLD - 1)); /* all of them: no end is missing */
    assert_true(s.starts == s.arrows && s.finishes == s.arrows);
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

TEST(test_steps_larger_than_the_room)
{
    static const int spans[WORLD] = {3, 200, 3};
    nw_trace *trace = make(WORLD, 0, WORLD, 50), *same[WORLD] = {trace, trace, trace};
    for (int64_t step = 1; step <= 100; step++) play_step(same, spans, step, no_clock);
    sight s = write_and_look(trace);
    assert_true(s.slices <= WORLD * 50 && fact(&s, "events_lost") > 0);
    assert_int_equal(fact(&s, "first_steps"), 1);
    assert_true(s.arrows < WORLD * (WORLD - 1) && s.starts + s.finishes > 2 * s.arrows);
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

TEST(test_resumed_run)
{
    nw_trace *trace;
    nw_trace_options options = {.world = 1, .ranks = 1, .first_step = 5000, .first_steps = 4, .events = 64};
    assert_int_equal(nw_trace_create(&trace, &options), NW_OK);
    for (int64_t step = 5001; step <= 6000; step++)
        nw_trace_span(trace, 0, NW_TRACE_COMPUTE, 0, step, step * 10, step * 10 + 5);
    sight s = write_and_look(trace);
    static bool present[6001];
    steps_in(&s, present, 6000);
    assert_true(present[5001] && present[5004] && fact(&s, "began_at_step") == 5000);
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

TEST(test_slices_that_overlap)
{
    nw_trace *trace = make(2, 0, 1, 1000);
    int name = nw_trace_name(trace, "bucket");
    for (int i = 0; i < 30; i++) /* each begins before all others end, and only the first keeps its end */
        nw_trace_span(trace, 0, NW_TRACE_EXCHANGE, name, 1, 1000 + i, 2000 + i);
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, name, 1, 0, 100);
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, name, 1, 0, 50); /* inside the first */
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, name, 1, 50, 100);
    for (int i = 0; i < 300; i++) { /* at one moment, and one a little later: side by side, however many */
        nw_trace_message message = {.from = 0, .to = 1, .sequence = (uint32_t)i, .step = 1, .name = name};
        nw_trace_sent(trace, &message, i < 299 ? 5000 : 5100, 6000);
    }
    for (int i = 0; i < 2; i++) { /* the trace itself is not changed by being written */
        sight s = write_and_look(trace);
        assert_int_equal(s.slices, 33 + 300);
        int outlasting = 0, one = 0;
        for (int j = 0; j < s.slices; j++) {
            outlasting += slices[j].start < 4 && slices[j].end > 2.0005;
            if (slices[j].start >= 5) one += slices[j].end < 5.3005;
        }
        assert_true(outlasting == 0 && one == 299);
        nw_json_free(&s.document);
    }
    nw_trace_free(trace);
}

TEST(test_arrows_without_their_other_end)
{
    nw_trace *trace = make(3, 0, 3, 100);
    nw_trace_message message = {.from = 0, .to = 1, .sequence = 1, .step = 1};
    nw_trace_sent(trace, &message, 10, 20);
    nw_trace_received(trace, &message, 50, 60);
    message.sequence = 2; /* under way when the run ended */
    nw_trace_sent(trace, &message, 70, 80);
    message = (nw_trace_message){.from = 1, .to = 0, .sequence = 1, .step = 1}; /* sent by a rank that did not tell */
    nw_trace_received(trace, &message, 90, 95);
    sight s = write_and_look(trace); /* halves, as viewers pass over them: they have ids of their own */
    assert_true(s.slices == 4 && s.arrows == 1 && s.starts == 2 && s.finishes == 2);
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

/* ---- across processes ---- */
static char *read_trace(const char *path)
{
    char *bytes;
    size_t size;
    assert_int_equal(nw_file_read(path, NW_JSON_READ_BYTES, &bytes, &size), NW_OK);
    return bytes;
}

typedef struct elsewhere {
    nw_trace **parts; /* those of the ranks from 1 on are printed */
    const int64_t *clock;
    const nw_trace_view *view;
} elsewhere;

static nw_status print_others(void *context, FILE *out)
{
    const elsewhere *e = context;
    for (int rank = 1; rank < WORLD; rank++) {
        char *printed;
        size_t size;
        FILE *memory = open_memstream(&printed, &size);
        assert_int_equal(nw_trace_print(e->parts[rank], e->view, e->clock[rank], true, memory), NW_OK);
        fclose(memory);
        fwrite(printed, 1, size, out);
        free(printed);
    }
    return NW_OK;
}

TEST(test_join)
{
    static const int spans[WORLD] = {3, 20, 3};
    static const int64_t clock[WORLD] = {0, 123456789, -5000000};
    nw_trace *whole = make(WORLD, 0, WORLD, 300), *same[WORLD] = {whole, whole, whole}, *parts[WORLD];
    for (int rank = 0; rank < WORLD; rank++) parts[rank] = make(WORLD, rank, 1, 300);
    for (int64_t step = 1; step <= 200; step++) {
        play_step(same, spans, step, no_clock);
        play_step(parts, spans, step, clock);
    }
    nw_trace_view view = {0}, none = {0};
    for (int rank = 0; rank < WORLD; rank++) {
        nw_trace_view own = nw_trace_look(parts[rank], clock[rank]);
        nw_trace_view_join(&view, &own);
    }
    nw_trace_view_join(&view, &none); /* a rank that died */
    elsewhere others = {parts, clock, &view};
    assert_int_equal(nw_trace_write(parts[0], "trace.json", &view, print_others, &others), NW_OK);
    assert_int_equal(write_alone(whole, "whole.json"), NW_OK);
    sight s = look("trace.json");
    assert_true(s.arrows > 0 && s.starts == s.arrows && fact(&s, "ranks") == WORLD);
    nw_json_free(&s.document);
    char *a = read_trace("whole.json"), *b = read_trace("trace.json");
    assert_string_equal(a, b); /* as if all ranks had been in one process */
    free(a);
    free(b);
    for (int rank = 0; rank < WORLD; rank++) nw_trace_free(parts[rank]);
    nw_trace_free(whole);
}

TEST(test_a_file_that_cannot_be_written)
{
    nw_trace *trace = make(1, 0, 1, 10);
    nw_trace_span(trace, 0, NW_TRACE_COMPUTE, 0, 1, 0, 10);
    assert_int_equal(write_alone(trace, "no/such/trace.json"), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "no/such/"));
    sight s = write_and_look(trace); /* it may be tried again */
    assert_int_equal(s.slices, 1);
    nw_json_free(&s.document);
    nw_trace_free(trace);
}

TEST(test_adding_allocates_nothing)
{
    if (!COUNTS_ALLOCATIONS) skip();
    static const int spans[WORLD] = {3, 20, 3};
    nw_trace *trace = make(WORLD, 0, WORLD, 100), *same[WORLD] = {trace, trace, trace};
    play_step(same, spans, 1, no_clock);
    int before = atomic_load(&allocations);
    for (int64_t step = 2; step <= 1000; step++) play_step(same, spans, step, no_clock);
    assert_int_equal(atomic_load(&allocations), before);
    nw_trace_free(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_small),
        CASE(test_empty_and_none),
        CASE(test_limits),
        CASE(test_misuse_aborts),
        CASE(test_bound_holds_and_steps_are_whole),
        CASE(test_steps_larger_than_the_room),
        CASE(test_resumed_run),
        CASE(test_slices_that_overlap),
        CASE(test_arrows_without_their_other_end),
        CASE(test_join),
        CASE(test_a_file_that_cannot_be_written),
        CASE(test_adding_allocates_nothing),
    };
    return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
