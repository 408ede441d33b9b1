/*
 * toys.h - ranks of toy machines and workers for the tests of drivers: what a machine does is a function of the test,
 * what tasks cost is plain numbers, and what happens is written down, a line an event.
 *
 * A pass has two stages of 100 + 300 and 200 + 400 ns, 50 ns before them, and announces after the backward pass of the
 * second that its gradient is final from `ready` on. An update takes 70 ns. Memory and links move a byte a nanosecond,
 * links take 1000 ns more. Rank 1 takes twice as long for everything. Include after cmocka.
 */
#ifndef NW_TESTS_TOYS_H
#define NW_TESTS_TOYS_H

#include "exchange/exchange.h"
#include "sim/virtual.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, LOG_BYTES = 1 << 16, PASSES_NOTED = 64 };

typedef struct toy {
    nw_machine base;
    void (*react)(struct toy *toy, const nw_event *event, nw_actions *actions);
    nw_go go;
    bool waiting;      /* for a message: is not quiescent */
    int waits_for;     /* whom `waits` names */
    int64_t asked;     /* passes or gradients */
    int computed;      /* of these */
    int messages;      /* heard */
    int number;        /* for the test */
    nw_status answer;  /* to the next event */
    nw_task_kind kind; /* of what it asks for: passes, or gradients where a pipeline makes passes of them */
} toy;

typedef struct toy_worker {
    struct stage *stage;
    int rank;
    int64_t begun, applied;
    volatile sig_atomic_t *stop;
    int64_t stop_at;           /* sets *stop in this pass; -1: none */
    bool heard;                /* somebody listened to its last pass */
    char passes[PASSES_NOTED]; /* of each: 'b' begins a gradient, '+' adds to one; with '!' it is complete */
} toy_worker;

typedef struct stage {
    nw_cluster *cluster;
    nw_faults *faults;
    int64_t forward[2], backward[2], overhead, update;
    double touch;
    size_t ready;
    nw_driver *driver;
    nw_driver_options options;
    toy toys[RANKS];
    toy_worker workers[RANKS];
    nw_rank ranks[RANKS];
    int count;
    char log[LOG_BYTES];
    size_t used;
} stage;

static const uint16_t everybody[RANKS] = {0, 1, 2, 3, 4, 5};

static inline void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static inline void refused(nw_status status, nw_status want, const char *part)
{
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("status %d and '%s', wanted %d and '%s'", status, nw_error_message(), want, part);
}

/* ---- what happens is written down ---- */

static inline void __attribute__((format(printf, 2, 3))) note(stage *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    s->used += (size_t)vsnprintf(s->log + s->used, sizeof s->log - s->used, format, arguments);
    va_end(arguments);
    assert_true(s->used < sizeof s->log);
}

static inline void note_event(void *context, int rank, const nw_event *e)
{
    static const char *const names[NW_EVENT_KINDS] = {"go", "stop", "message", "timer", "final", "out", ""};
    note(context, "%" PRId64 " r%d %s", e->now_ns, rank, names[e->kind]);
    if (e->kind == NW_EVENT_FINAL) note(context, " from %zu", e->first);
    if (e->kind == NW_EVENT_MESSAGE) note(context, " of r%u #%u", e->message->header->from, e->message->header->bucket);
    if (e->kind == NW_EVENT_OUT) note(context, " #%u", e->message->header->bucket);
    if (e->kind == NW_EVENT_DONE) note(context, e->task->kind == NW_TASK_PASS ? "computed" : "updated");
    note(context, "\n");
}

static inline void check_log(const stage *s, const char *expected)
{
    if (strcmp(s->log, expected) != 0) fail_msg("happened:\n%sexpected:\n%s", s->log, expected);
}

/* ---- machines ---- */

static inline nw_status toy_handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    toy *t = (toy *)m;
    if (event->kind == NW_EVENT_GO) t->go = *event->go;
    if (event->kind == NW_EVENT_DONE && event->task->kind != NW_TASK_UPDATE) t->computed += event->task->completes;
    if (event->kind == NW_EVENT_DONE && event->task->kind == NW_TASK_UPDATE) m->updates++;
    if (event->kind == NW_EVENT_MESSAGE) t->messages++;
    t->react(t, event, actions);
    return t->answer == NW_OK ? NW_OK : NW_FAIL(t->answer, "the toy of rank %d is broken", m->group.me);
}
static inline bool toy_rests(const nw_machine *m) { return !((const toy *)m)->waiting; }
static inline void toy_waits(const nw_machine *m, nw_wait *wait)
{
    nw_wait_add(wait, &m->group, ((const toy *)m)->waits_for);
    snprintf(wait->what, sizeof wait->what, "its toy");
}
static inline void toy_state(nw_machine *m, nw_state *state) { (void)m, (void)state; }
static inline void toy_free(nw_machine *m) { (void)m; }
static const nw_machine_ops toy_ops = {"toy", toy_handle, toy_rests, toy_waits, toy_state, toy_free, NULL};

/* Asks for the next pass or gradient. */
static inline void toy_compute(toy *t, nw_actions *actions)
{
    nw_actions_task(actions, (nw_task){.kind = t->kind, .number = t->asked++, .completes = true});
}
static inline void toy_update(toy *t, nw_actions *actions)
{
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE, .number = t->base.updates, .scale = 1});
}

static inline bool is_done(const nw_event *e, nw_task_kind kind)
{
    return e->kind == NW_EVENT_DONE && (e->task->kind == NW_TASK_UPDATE) == (kind == NW_TASK_UPDATE);
}

static inline nw_message *toy_message(nw_message_pool *pool, int number, size_t bytes)
{
    nw_message *m;
    ok(nw_message_take(pool, bytes, &m));
    memset(m->payload, 0, bytes);
    m->header->kind = 1;
    m->header->bucket = (uint32_t)number;
    return m;
}

static inline void post(const toy *t, nw_actions *actions, int to, int number, size_t bytes)
{
    nw_machine_send(&t->base, actions, NW_CHANNEL_EXCHANGE, to, toy_message(actions->pool, number, bytes));
}

/* ---- workers ---- */

/* A gradient that depends on everything, and an update that can be told from any other. */
static inline void fill_gradient(const toy_worker *w, const nw_task *task)
{
    for (size_t i = 0; task->gradient && i < task->count; i++) {
        float g = (float)((w->rank * 31 + (int)task->number * 7 + (int)i) % 11) - 5.0f + 0.5f * task->values[i];
        task->gradient[i] = task->adds ? task->gradient[i] + g : g;
    }
}

static inline nw_status toy_run(void *worker, nw_task *task, nw_announce *announce)
{
    toy_worker *w = worker;
    if (task->kind == NW_TASK_UPDATE) {
        for (size_t i = task->first; task->values && i < task->first + task->count; i++)
            task->values[i] -= 0.125f * task->scale * task->gradient[i];
        w->applied++;
        return NW_OK;
    }
    if (w->stop_at == w->begun) *w->stop = 1;
    size_t used = strlen(w->passes);
    if (used + 3 < sizeof w->passes)
        snprintf(w->passes + used, sizeof w->passes - used, "%c%s", task->adds ? '+' : 'b', task->completes ? "!" : "");
    fill_gradient(w, task);
    task->clock = w->begun++;
    w->heard = announce != NULL;
    if (announce && task->completes) announce->final(announce, w->stage->ready);
    return NW_OK;
}

static inline int toy_cost(void *worker, const nw_task *task, int64_t *ns, int most)
{
    const stage *s = ((toy_worker *)worker)->stage;
    int count = task->kind == NW_TASK_PASS && task->completes;
    int64_t ready = s->overhead + s->forward[0] + s->forward[1] + s->backward[1];
    if (count && most > 0) ns[0] = ready;
    if (count < most) ns[count] = task->kind == NW_TASK_PASS ? ready + s->backward[0] : s->update;
    return count + 1;
}

static const nw_worker_ops toy_work = {.run = toy_run, .cost = toy_cost};

/* ---- the stage ---- */

static inline void open_stage(stage *s, int ranks)
{
    memset(s, 0, sizeof *s);
    s->count = ranks;
    ok(nw_cluster_create(&s->cluster, ranks, ranks, 0, 1));
    s->cluster->links[0].latency_ns = 1000;
    s->cluster->links[0].bandwidth = 1e9;
    if (ranks > 1) s->cluster->ranks[1].slowdown = 2;
    memcpy(s->forward, (int64_t[]){100, 200}, sizeof s->forward);
    memcpy(s->backward, (int64_t[]){300, 400}, sizeof s->backward);
    s->overhead = 50;
    s->update = 70;
    s->touch = 1e9;
    s->ready = 10;
    s->options.hooks = (nw_driver_hooks){.context = s, .event = note_event};
    for (int r = 0; r < ranks; r++) s->workers[r] = (toy_worker){.stage = s, .rank = r, .stop_at = -1};
}

static inline void make_virtual(stage *s)
{
    nw_virtual_options v = {.cluster = s->cluster, .faults = s->faults, .touch_bytes_per_second = s->touch};
    ok(nw_virtual_create(&s->driver, &s->options, &v));
}

/* A rank of any machine. */
static inline void place_rank(stage *s, int rank, nw_machine *machine)
{
    s->ranks[rank] = (nw_rank){.index = rank, .machine = machine, .worker = &s->workers[rank], .work = &toy_work};
}

static inline void fill_ranks(stage *s, void (*react)(toy *, const nw_event *, nw_actions *))
{
    for (int r = 0; r < s->count; r++) {
        s->toys[r] = (toy){.base = {.ops = &toy_ops, .group = {everybody, s->count, r}, .lockstep = true},
                           .react = react,
                           .waits_for = (r + 1) % s->count,
                           .kind = NW_TASK_PASS};
        place_rank(s, r, &s->toys[r].base);
    }
}

static inline nw_status run_until(stage *s, int64_t until)
{
    return nw_driver_run(s->driver, s->ranks, &(nw_go){.until = until, .batches = INT64_MAX, .drain = true});
}

static inline void close_stage(stage *s)
{
    nw_driver_free(s->driver);
    nw_faults_free(s->faults);
    nw_cluster_free(s->cluster);
}

/* ---- allreduce on a stage: each rank has values and gradients of its own ---- */

typedef struct reduced {
    nw_params params[RANKS];
    nw_codec *codec;
    nw_machine *machines[RANKS];
} reduced;

enum { SEGMENTS = 3, SEGMENT_FLOATS = 64, FLOATS = SEGMENTS * SEGMENT_FLOATS };

/* One rank of a group. Buckets are single segments. */
static inline void use_allreduce(stage *s, reduced *x, int rank, nw_group group, int delay)
{
    nw_params *p = &x->params[rank];
    int shape = SEGMENT_FLOATS, index;
    char name[] = "w0";
    if (!x->codec) ok(nw_codec_create(&x->codec, &(nw_codec_options){.name = "none"}));
    for (int i = 0; i < SEGMENTS; i++, name[1]++)
        ok(nw_segments_add(&p->learned, name, NW_ROLE_LINEAR, 0, 1, 1, &shape, &index));
    assert_int_equal(p->learned.floats, FLOATS);
    p->values = calloc(FLOATS, sizeof(float));
    p->read = p->values;
    p->gradients = calloc(FLOATS, sizeof(float));
    nw_exchange_options o = {.name = "allreduce",
                             .group = group,
                             .params = p,
                             .layout.codec = x->codec,
                             .layout.bucket_bytes = SEGMENT_FLOATS * sizeof(float),
                             .delay = delay};
    nw_machine *exchange;
    ok(nw_exchange_create(&exchange, &o));
    ok(nw_passes_create(&x->machines[rank], exchange, p, 1));
    place_rank(s, rank, x->machines[rank]);
}

static inline void drop_allreduce(reduced *x)
{
    for (int r = 0; r < RANKS; r++) {
        if (x->machines[r]) nw_exchange_free(x->machines[r]);
        free(x->params[r].values);
        free(x->params[r].gradients);
        nw_params_free(&x->params[r]);
    }
    nw_codec_free(x->codec);
}

#endif
