/*
 * test_server.c - the parameter server against serial training and its own promises, in thousands of random orders of
 * events: a small world moves it by hand. Updates are w -= 0.1 scale g; a gradient depends on the weights and on how many
 * the rank has computed, so that every difference in order or version shows in the bits.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "exchange/exchange.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ok(expression)                                                                            \
    do {                                                                                          \
        if ((expression) != NW_OK) fail_msg("%s:%d: %s", __FILE__, __LINE__, nw_error_message()); \
    } while (0)

enum { RANKS = 8, FLOATS = 1024, LINK = 4096, COPIES = 64 };
enum { COPY = NW_KIND_FIRST + 8, TAKEN };

typedef struct report {
    int32_t rank, count;
} report;

typedef struct link {
    nw_message *at[LINK];
    int first, last;
} link_queue;

typedef struct node {
    nw_exchange *exchange;
    nw_params params;
    float values[FLOATS], gradients[FLOATS], seen[FLOATS];
    report said;
    nw_action queue[8];
    int queued;
    nw_action doing;
    bool busy, dead;
    int64_t computed, timer;
    size_t told; /* READY down to here */
} node;

typedef struct world {
    nw_exchange_options o;
    int ranks;
    size_t floats;
    nw_message_pool *pool;
    nw_codec *codec;
    node *nodes;
    link_queue *links; /* [from * ranks + to] */
    nw_rng rng;
    int64_t now;
    int64_t updates, delay_sum, delay_max;
    int updates_of[RANKS];
    int32_t last_said[RANKS];
    bool lost[RANKS];
    bool slow[RANKS]; /* computes only when nothing else happens */
    int64_t every;    /* copies after so many updates; 0: none */
    float (*kept)[FLOATS];
    int given[RANKS], taken, most; /* copies: by server, complete, under way at most */
    int64_t ahead;                 /* updates made since, when a copy was complete; all together */
    bool late[RANKS * RANKS];      /* by link: what is sent arrives only when nothing else happens */
} world;

/* ---- copies ---- */

static bool copies(const void *context, int64_t updates)
{
    const world *w = context;
    return w->every > 0 && updates % w->every == 0;
}

/* A server has made an update: what a copy of its range must be. */
static void keep_range(world *w, int rank, const nw_given *g)
{
    if (w->o.servers < 2 || !copies(w, g->number + 1)) return;
    int64_t index = (g->number + 1) / w->every;
    assert_true(index < COPIES);
    memcpy(w->kept[index] + g->first, w->nodes[rank].values + g->first, g->count * sizeof(float));
    int under_way = ++w->given[rank] - w->taken;
    assert_true(under_way <= 2);
    if (under_way > w->most) w->most = under_way;
}

static void check_copy(world *w, int rank, const nw_action *action)
{
    assert_int_equal(rank, 0);
    assert_true(w->o.servers > 1);
    assert_int_equal(action->number, ++w->taken * w->every);
    assert_memory_equal(action->values, w->kept[w->taken], w->floats * sizeof(float));
    w->ahead += w->updates - action->number;
}

/* ---- making ---- */

static void make_world(world *w, int ranks, nw_exchange_options o, const char *codec, uint64_t seed)
{
    static const int sizes[] = {64, 5, 100, 33, 2, 250, 17, 0};
    memset(w, 0, sizeof *w);
    w->ranks = ranks;
    w->nodes = calloc((size_t)ranks, sizeof *w->nodes);
    w->links = calloc((size_t)(ranks * ranks), sizeof *w->links);
    w->kept = calloc(COPIES, sizeof *w->kept);
    w->rng = nw_rng_make(seed, NW_PURPOSE_SYNTHETIC, 0, 0);
    ok(nw_message_pool_create(&w->pool));
    ok(nw_codec_create(&w->codec, &(nw_codec_options){.name = codec}));
    w->o = o;
    for (int r = 0; r < ranks; r++) {
        node *n = &w->nodes[r];
        for (int i = 0, index; sizes[i] > 0; i++) {
            char name[16];
            snprintf(name, sizeof name, "s%d", i);
            ok(nw_segments_add(&n->params.learned, name, NW_ROLE_BIAS, 0, 1, 1, (int[]){sizes[i]}, &index));
        }
        w->floats = n->params.learned.floats;
        assert_true(w->floats <= FLOATS);
        n->params.values = n->values;
        n->params.gradients = n->gradients;
        for (size_t i = 0; i < w->floats; i++) n->values[i] = sinf((float)i);
        n->timer = NW_NO_TIMER;
        n->said.rank = r;
        nw_exchange_options e = o;
        e.name = "server";
        e.rank = r;
        e.world = ranks;
        e.params = &n->params;
        e.codec = w->codec;
        e.bucket_bytes = 512;
        e.report = &n->said;
        e.report_bytes = sizeof n->said;
        e.copies = copies;
        e.copies_context = w;
        ok(nw_exchange_create(&n->exchange, &e));
    }
}

static void free_world(world *w)
{
    for (int i = 0; i < w->ranks * w->ranks; i++)
        for (int k = w->links[i].first; k < w->links[i].last; k++) nw_message_drop(w->links[i].at[k % LINK]);
    for (int r = 0; r < w->ranks; r++) {
        nw_exchange_free(w->nodes[r].exchange);
        free(w->nodes[r].params.learned.at);
    }
    nw_codec_free(w->codec);
    nw_message_pool_free(w->pool);
    free(w->nodes);
    free(w->links);
    free(w->kept);
}

/* ---- moving ---- */

static nw_status tell(world *w, int rank, nw_event event)
{
    node *n = &w->nodes[rank];
    nw_actions actions = {.pool = w->pool};
    event.now_ns = w->now;
    nw_status status = n->exchange->ops->handle(n->exchange, &event, &actions);
    if (status == NW_OK) status = actions.status;
    for (int i = 0; i < actions.count && status == NW_OK; i++) {
        nw_action *a = &actions.at[i];
        if (a->kind == NW_ACTION_SEND) {
            link_queue *l = &w->links[rank * w->ranks + a->to];
            assert_true(a->to != rank && l->last - l->first < LINK);
            a->message->header->from = (uint32_t)rank;
            l->at[l->last++ % LINK] = a->message;
            a->message = NULL;
        } else if (a->kind == NW_ACTION_TIMER) {
            n->timer = a->at_ns;
        } else if (a->kind == NW_ACTION_LOST) {
            w->lost[a->to] = true;
        } else if (a->kind == NW_ACTION_COPY) {
            check_copy(w, rank, a);
        } else {
            assert_true(n->queued < 8);
            n->queue[n->queued++] = *a;
        }
    }
    nw_actions_free(&actions);
    return status;
}

static void compute_gradient(const world *w, const float *values, int64_t count, int rank, float *out)
{
    for (size_t i = 0; i < w->floats; i++)
        out[i] = 0.5f * values[i] + 0.1f * sinf((float)(i + 1) * (float)(count + 1) + (float)rank);
}

static void start(world *w, int rank)
{
    node *n = &w->nodes[rank];
    if (n->busy || n->queued == 0 || n->dead) return;
    n->doing = n->queue[0];
    memmove(n->queue, n->queue + 1, (size_t)--n->queued * sizeof n->queue[0]);
    n->busy = true;
    n->told = w->floats;
    if (n->doing.kind == NW_ACTION_COMPUTE) {
        memcpy(n->seen, n->values, sizeof n->seen);
        compute_gradient(w, n->values, n->computed, rank, n->gradients);
    }
}

static nw_status finish(world *w, int rank)
{
    node *n = &w->nodes[rank];
    bool computes = n->doing.kind == NW_ACTION_COMPUTE;
    if (computes) {
        assert_memory_equal(n->seen, n->values, w->floats * sizeof(float)); /* nobody wrote there meanwhile */
        if (n->told > 0 && nw_rng_below(&w->rng, 2)) {                      /* a part is final before the rest */
            n->told = nw_rng_below(&w->rng, (uint32_t)n->told);
            return n->told > 0 ? tell(w, rank, (nw_event){.kind = NW_EVENT_READY, .first = n->told}) : NW_OK;
        }
        n->computed++;
        n->said.count = (int32_t)n->computed;
    } else {
        const nw_given *g = n->doing.given;
        for (size_t i = g->first; i < g->first + g->count; i++)
            n->values[i] -= 0.1f * n->doing.scale * n->doing.gradient[i];
        keep_range(w, rank, g);
        if (rank == 0) {
            assert_int_equal(g->number, w->updates);
            w->updates++;
            w->delay_sum += g->delay;
            if (g->delay > w->delay_max) w->delay_max = g->delay;
            for (int i = 0; i < g->from_count; i++) {
                report said;
                memcpy(&said, g->reports[i], sizeof said);
                assert_int_equal(said.rank, g->from[i]);
                assert_true(said.count > w->last_said[g->from[i]]); /* in order; some may have been dropped */
                w->last_said[g->from[i]] = said.count;
                w->updates_of[g->from[i]]++;
            }
        }
    }
    n->busy = false;
    return tell(w, rank, (nw_event){.kind = computes ? NW_EVENT_COMPUTED : NW_EVENT_APPLIED});
}

/* One thing that can happen, at random; false: nothing can. */
static bool move(world *w, nw_status *status)
{
    int choices[RANKS * RANKS + RANKS], count = 0, links = w->ranks * w->ranks;
    for (int r = 0; r < w->ranks; r++) start(w, r);
    for (int i = 0; i < links; i++)
        if (w->links[i].last > w->links[i].first && !w->late[i]) choices[count++] = i;
    for (int r = 0; r < w->ranks; r++)
        if (w->nodes[r].busy && !w->nodes[r].dead && !w->slow[r]) choices[count++] = links + r;
    for (int r = 0; count == 0 && r < w->ranks; r++)
        if (w->nodes[r].busy && !w->nodes[r].dead) choices[count++] = links + r;
    for (int i = 0; count == 0 && i < links; i++)
        if (w->links[i].last > w->links[i].first) choices[count++] = i;
    w->now += 10;
    if (count == 0) { /* time passes until a timer rings */
        int next = -1;
        for (int r = 0; r < w->ranks; r++)
            if (w->nodes[r].timer != NW_NO_TIMER && (next < 0 || w->nodes[r].timer < w->nodes[next].timer)) next = r;
        if (next < 0) return false;
        if (w->nodes[next].timer > w->now) w->now = w->nodes[next].timer;
        w->nodes[next].timer = NW_NO_TIMER;
        *status = tell(w, next, (nw_event){.kind = NW_EVENT_TIMER});
        return true;
    }
    int chosen = choices[nw_rng_below(&w->rng, (uint32_t)count)];
    if (chosen >= links) {
        *status = finish(w, chosen - links);
        return true;
    }
    nw_message *m = w->links[chosen].at[w->links[chosen].first++ % LINK];
    if (!w->nodes[chosen % w->ranks].dead)
        *status = tell(w, chosen % w->ranks, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m});
    nw_message_drop(m);
    return true;
}

static void go(world *w, int64_t until)
{
    for (int r = 0; r < w->ranks; r++)
        if (!w->nodes[r].dead) ok(tell(w, r, (nw_event){.kind = NW_EVENT_GO, .until = until}));
}

static nw_status run(world *w, int64_t until)
{
    nw_status status = NW_OK;
    go(w, until);
    while (status == NW_OK && move(w, &status)) continue;
    return status;
}

/* Everybody is done, and has the same. */
static void check_rest(const world *w, int64_t updates)
{
    assert_int_equal(w->updates, updates);
    bool copied = w->every > 0 && w->o.servers > 1;
    assert_int_equal(w->taken, copied ? updates / w->every : 0);
    for (int r = 0; r < w->ranks; r++) {
        const node *n = &w->nodes[r];
        if (copied && r < w->o.servers) assert_int_equal(w->given[r], w->taken);
        if (n->dead) continue;
        assert_true(n->exchange->ops->idle(n->exchange));
        assert_int_equal(n->exchange->ops->progress(n->exchange), updates);
        assert_int_equal(n->queued, 0);
        assert_int_equal(n->timer, NW_NO_TIMER);
        assert_memory_equal(n->values, w->nodes[0].values, w->floats * sizeof(float));
    }
}

static void serial(const world *w, int64_t steps, int rank, float *values)
{
    float gradient[FLOATS];
    for (size_t i = 0; i < w->floats; i++) values[i] = sinf((float)i);
    for (int64_t t = 0; t < steps; t++) {
        compute_gradient(w, values, t, rank, gradient);
        for (size_t i = 0; i < w->floats; i++) values[i] -= 0.1f * 1.0f * gradient[i];
    }
}

static const nw_exchange_options ASYNC = {.max_staleness = -1};
static const nw_exchange_options SYNC = {.max_staleness = -1, .sync = true};

/* ---- equal to serial ---- */

static void test_one_worker_is_serial(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++)
        for (int sync = 0; sync < 2; sync++) {
            world w;
            float expected[FLOATS];
            nw_exchange_options o = sync ? SYNC : ASYNC;
            o.in_flight = 1;
            o.servers = ranks > 1 ? ranks - 1 : 1; /* one worker, and all others serve */
            make_world(&w, ranks, o, "none", (uint64_t)ranks);
            w.every = 4;
            ok(run(&w, 20));
            check_rest(&w, 20);
            serial(&w, 20, ranks - 1, expected);
            assert_memory_equal(w.nodes[0].values, expected, w.floats * sizeof(float));
            assert_int_equal(w.delay_max, 0);
            ok(run(&w, 33)); /* and goes on */
            check_rest(&w, 33);
            serial(&w, 33, ranks - 1, expected);
            assert_memory_equal(w.nodes[0].values, expected, w.floats * sizeof(float));
            for (int c = 1; o.servers > 1 && c <= 8; c++) { /* and so were the copies on the way */
                serial(&w, 4 * c, ranks - 1, expected);
                assert_memory_equal(w.kept[c], expected, w.floats * sizeof(float));
            }
            free_world(&w);
        }
}

/* In step: the mean of one gradient of each, added in the order of ranks. */
static void test_in_step(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        int ranks = 2 + (int)(seed % 5), servers = 1 + (int)(seed / 5 % 2);
        nw_exchange_options o = SYNC;
        o.servers = servers < ranks ? servers : 1;
        o.server_computes = seed / 10 % 2;
        int first = o.server_computes ? 0 : o.servers, workers = ranks - first;
        world w;
        make_world(&w, ranks, o, "none", seed);
        w.late[(ranks - 1) * ranks + 1] = seed % 2; /* to rank 1, which may be a server */
        ok(run(&w, 7));
        check_rest(&w, 7);
        float values[FLOATS], g[FLOATS], sum[FLOATS];
        for (size_t i = 0; i < w.floats; i++) values[i] = sinf((float)i);
        for (int t = 0; t < 7; t++) {
            for (int k = 0; k < workers; k++) {
                compute_gradient(&w, values, t, first + k, g);
                for (size_t i = 0; i < w.floats; i++) sum[i] = k > 0 ? sum[i] + g[i] : g[i];
            }
            for (size_t i = 0; i < w.floats; i++) values[i] -= 0.1f * (1.0f / (float)workers) * sum[i];
        }
        assert_memory_equal(w.nodes[0].values, values, w.floats * sizeof(float));
        free_world(&w);
    }
}

/* ---- promises of the asynchronous server ---- */

static void test_random_orders(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "bf16", "fp16"};
    for (uint64_t seed = 0; seed < 600; seed++) {
        int ranks = 1 + (int)(seed % 6);
        nw_exchange_options o = ASYNC;
        o.servers = ranks > 2 ? 1 + (int)(seed / 6 % 2) : 1;
        o.server_computes = seed / 12 % 2;
        o.in_flight = 1 + (int)(seed / 24 % 3);
        o.differences = seed / 72 % 2;
        if (seed % 7 == 1 && !o.differences) o.correction = NW_CORRECT_DC, o.dc_lambda = 0.5;
        if (seed % 7 == 2) o.correction = NW_CORRECT_INVERSE;
        if (o.servers == 1 && seed % 5 == 0) o.max_staleness = (int64_t)(seed / 5 % 4), o.staleness = NW_STALE_DROP;
        if (seed % 5 == 1) o.max_staleness = 1, o.staleness = NW_STALE_WEIGHT;
        if (ranks == 1) o.server_computes = true;
        world w;
        make_world(&w, ranks, o, codecs[seed % 3], seed);
        if (ranks > 2) w.slow[ranks - 1] = seed % 2;
        w.every = (int64_t)(seed % 4);
        ok(run(&w, 5));
        check_rest(&w, 5);
        ok(run(&w, 40));
        check_rest(&w, 40);
        ok(run(&w, 40)); /* nothing to do */
        check_rest(&w, 40);
        int64_t sum = 0;
        for (int r = 0; r < ranks; r++) sum += w.updates_of[r];
        assert_int_equal(sum, 40);
        bool drops = o.staleness == NW_STALE_DROP && o.max_staleness >= 0;
        if (drops) assert_true(w.delay_max <= o.max_staleness);
        for (int r = 0; !drops && r < ranks; r++)
            assert_int_equal(w.last_said[r], w.updates_of[r]); /* none is missing */
        free_world(&w);
    }
}

/* Threads that encode and decode change no bit. */
static void test_any_number_of_threads(void **state)
{
    (void)state;
    nw_pool *pool;
    ok(nw_pool_create(&pool, 3));
    for (uint64_t seed = 0; seed < 12; seed++) {
        world w[2];
        for (int threads = 0; threads < 2; threads++) {
            nw_exchange_options o = seed % 3 == 0 ? SYNC : ASYNC;
            o.servers = 1 + (int)(seed % 2);
            o.differences = seed / 2 % 2;
            o.pool = threads ? pool : NULL;
            make_world(&w[threads], 4, o, seed % 4 ? "fp16" : "none", seed);
            ok(run(&w[threads], 20));
            check_rest(&w[threads], 20);
        }
        assert_memory_equal(w[0].nodes[0].values, w[1].nodes[0].values, w[0].floats * sizeof(float));
        free_world(&w[0]);
        free_world(&w[1]);
    }
    nw_pool_free(pool);
}

/* No gradient misses more updates than allowed, nobody waits for ever, and bounds are reached. */
static void test_waiting_bounds_delays(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int ranks = 2 + (int)(seed % 6);
        nw_exchange_options o = ASYNC;
        o.in_flight = 1 + (int)(seed / 6 % 3);
        o.max_staleness = (int64_t)(seed / 18 % 5);
        o.staleness = NW_STALE_WAIT;
        world w;
        make_world(&w, ranks, o, "none", seed);
        w.slow[ranks - 1] = seed % 3 == 0;
        ok(run(&w, 60));
        check_rest(&w, 60);
        assert_true(w.delay_max <= o.max_staleness);
        int most = (ranks - 1) * o.in_flight - 1;
        if (most >= o.max_staleness + 2) assert_true(w.delay_max >= o.max_staleness - 1);
        free_world(&w);
    }
}

static void test_stops_when_asked(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int ranks = 1 + (int)(seed % 5);
        nw_exchange_options o = seed % 2 ? SYNC : ASYNC;
        o.server_computes = seed / 10 % 2;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        go(&w, 1000);
        for (int i = 0; i < 300 && move(&w, &status); i++) ok(status);
        go(&w, 0);
        while (move(&w, &status)) ok(status);
        assert_true(w.updates < 1000);
        check_rest(&w, w.updates);
        free_world(&w);
    }
}

/* Ranks hear of it at moments of their own: before the end, while it is on its way, and when they rest. */
static void test_stops_around_the_end(void **state)
{
    (void)state;
    int in_time = 0, late = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options o = seed % 3 ? ASYNC : SYNC;
        o.servers = 1 + (int)(seed / 2 % 2);
        o.server_computes = seed / 4 % 2;
        int ranks = o.servers + 1 + (int)(seed / 8 % 3), told = 0;
        uint64_t moment = 60 + seed % 80;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        ok(run(&w, 3));
        go(&w, 8);
        for (uint64_t i = 0; told < ranks; i++) {
            bool moves = move(&w, &status);
            ok(status);
            if (i < moment && moves) continue;
            ok(tell(&w, told++, (nw_event){.kind = NW_EVENT_GO, .until = 0}));
        }
        while (move(&w, &status)) ok(status);
        ok(status);
        in_time += w.updates < 8;
        late += w.updates == 8;
        check_rest(&w, w.updates);
        ok(run(&w, 12)); /* and it goes on from there */
        check_rest(&w, 12);
        free_world(&w);
    }
    assert_true(in_time > 60 && late > 60);
}

/* All ranges after N updates come to rank 0, in order, exactly, whoever is ahead, and nobody rests for it; at most two are
 * under way, even if what a server sends to rank 0 takes for ever. */
static void test_copies(void **state)
{
    (void)state;
    static const char *const codecs[] = {"none", "bf16"};
    int64_t ahead = 0;
    int held = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        nw_exchange_options o = seed % 3 ? ASYNC : SYNC;
        o.servers = 2 + (int)(seed % 2);
        o.server_computes = seed / 2 % 2;
        o.in_flight = o.sync ? 1 : 1 + (int)(seed / 4 % 3);
        o.differences = seed / 12 % 2;
        int ranks = o.servers + 1 + (int)(seed / 5 % 3);
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, codecs[seed / 24 % 2], seed);
        w.every = 1 + (int64_t)(seed / 7 % 5);
        w.late[(int)(1 + seed % 2) * ranks] = seed / 3 % 2; /* to rank 0 */
        w.slow[ranks - 1] = seed / 9 % 2;
        ok(run(&w, 20));
        check_rest(&w, 20);
        go(&w, 1000);
        for (int i = 0; w.updates < 35 && move(&w, &status); i++) ok(status);
        go(&w, 0);
        while (move(&w, &status)) ok(status);
        assert_true(w.updates < 64);
        check_rest(&w, w.updates);
        ahead += w.ahead;
        held += w.most == 2;
        free_world(&w);
    }
    assert_true(ahead > 600); /* updates that were made while a copy was on its way */
    assert_true(held > 100);
}

/* Until a server has two copies under way, and then it says whom it waits for. */
static void waits_for(world *w, int server_rank, int whom)
{
    nw_status status = NW_OK;
    nw_wait wait;
    const nw_exchange *e = w->nodes[server_rank].exchange;
    while (w->given[server_rank] < 2 && move(w, &status)) ok(status);
    assert_int_equal(w->taken, 0);
    e->ops->waits(e, &wait);
    assert_int_equal(wait.count, 1);
    assert_int_equal(wait.ranks[0], whom);
    assert_non_null(strstr(wait.what, "copies of the parameters"));
}

static void test_waiting_for_copies(void **state)
{
    (void)state;
    world w;
    nw_status status = NW_OK;
    nw_exchange_options o = ASYNC;
    o.servers = 2;
    make_world(&w, 4, o, "none", 8);
    w.every = 1;
    w.late[1 * 4 + 0] = true;
    go(&w, 10);
    waits_for(&w, 1, 0);
    waits_for(&w, 0, 1);
    while (move(&w, &status)) ok(status);
    check_rest(&w, 10);
    free_world(&w);
}

/* g + lambda g g (w - w_old), for the gradient that comes second. */
static void test_delay_compensation(void **state)
{
    (void)state;
    nw_exchange_options o = ASYNC;
    o.in_flight = 1;
    o.correction = NW_CORRECT_DC;
    o.dc_lambda = 0.25;
    world w;
    make_world(&w, 3, o, "none", 5);
    ok(run(&w, 2));
    check_rest(&w, 2);
    float start_at[FLOATS], g[2][FLOATS], a[FLOATS], b[FLOATS];
    for (size_t i = 0; i < w.floats; i++) start_at[i] = sinf((float)i);
    compute_gradient(&w, start_at, 0, 1, g[0]);
    compute_gradient(&w, start_at, 0, 2, g[1]);
    for (size_t i = 0; i < w.floats; i++) { /* in either order */
        float x = start_at[i] - 0.1f * 1.0f * g[0][i], y = start_at[i] - 0.1f * 1.0f * g[1][i];
        a[i] = x - 0.1f * 1.0f * (g[1][i] + 0.25f * g[1][i] * g[1][i] * (x - start_at[i]));
        b[i] = y - 0.1f * 1.0f * (g[0][i] + 0.25f * g[0][i] * g[0][i] * (y - start_at[i]));
    }
    bool first = memcmp(w.nodes[0].values, a, w.floats * sizeof(float)) == 0;
    bool second = memcmp(w.nodes[0].values, b, w.floats * sizeof(float)) == 0;
    assert_true(first || second);
    free_world(&w);
}

/* ---- ranks that die ---- */

static void test_lost_workers(void **state)
{
    (void)state;
    int given_up = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int ranks = 3 + (int)(seed % 4), victim = 1 + (int)(seed / 4 % (uint64_t)(ranks - 1));
        nw_exchange_options o = seed % 2 ? SYNC : ASYNC;
        o.deadline_ns = 100000;
        if (seed % 10 == 4) o.max_staleness = 2;
        world w;
        nw_status status = NW_OK;
        make_world(&w, ranks, o, "none", seed);
        go(&w, 50);
        for (int i = 0; i < 40 + (int)(seed % 60) && move(&w, &status); i++) ok(status);
        w.nodes[victim].dead = true;
        while (move(&w, &status)) ok(status);
        check_rest(&w, 50);
        for (int r = 0; r < ranks; r++) assert_true(!w.lost[r] || r == victim);
        given_up += w.lost[victim]; /* or it had done all its work */
        free_world(&w);
    }
    assert_true(given_up > 150);
}

static void test_nobody_left(void **state)
{
    (void)state;
    world w;
    nw_exchange_options o = ASYNC;
    o.deadline_ns = 1000;
    make_world(&w, 2, o, "none", 1);
    w.nodes[1].dead = true;
    assert_int_equal(run(&w, 5), NW_E_PEER);
    assert_non_null(strstr(nw_error_message(), "rank 1"));
    free_world(&w);
}

/* ---- what is refused ---- */

static void refused_options(int world_size, nw_exchange_options o, const char *why)
{
    nw_exchange *e;
    nw_codec *codec;
    nw_params params = {0};
    int index;
    ok(nw_codec_create(&codec, &(nw_codec_options){.name = "none"}));
    ok(nw_segments_add(&params.learned, "a", NW_ROLE_BIAS, 0, 1, 1, (int[]){40}, &index));
    o.name = "server";
    o.world = world_size;
    o.params = &params;
    o.codec = codec;
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), why));
    nw_codec_free(codec);
    free(params.learned.at);
}

static void test_options(void **state)
{
    (void)state;
    nw_exchange_options o = ASYNC;
    o.servers = 3;
    refused_options(3, o, "nobody to compute");
    o.server_computes = true;
    refused_options(3, o, "too few for 3 servers");
    o = SYNC;
    o.in_flight = 2;
    refused_options(3, o, "--in-flight");
    o = SYNC;
    o.max_staleness = 3;
    refused_options(3, o, "no gradient is old");
    o = ASYNC;
    o.servers = 2;
    o.max_staleness = 3;
    refused_options(4, o, "--staleness weight");
    o = ASYNC;
    o.in_flight = 100;
    refused_options(4, o, "1 to 8");
}

/* A message of the worker, with one thing changed. */
static void bad_message(void (*change)(nw_header *), const char *why)
{
    world w;
    nw_status status = NW_OK;
    make_world(&w, 2, ASYNC, "none", 3);
    go(&w, 5);
    link_queue *up = &w.links[1 * 2 + 0];
    while (up->first == up->last && move(&w, &status)) ok(status);
    change(up->at[up->first % LINK]->header);
    nw_message *m = up->at[up->first++ % LINK];
    assert_int_equal(tell(&w, 0, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), why));
    nw_message_drop(m);
    free_world(&w);
}

static void other_kind(nw_header *h) { h->kind = 99; }
static void other_codec(nw_header *h) { h->codec = 3; }
static void other_bucket(nw_header *h) { h->segment = 1000; }
static void other_count(nw_header *h) { h->count++; }
static void other_version(nw_header *h) { h->version = 7; }
static void far_version(nw_header *h) { h->version = UINT64_MAX; }
static void other_sender(nw_header *h) { h->from = 0; }
static void other_role(nw_header *h) { h->kind = NW_KIND_FIRST + 2; }

static void test_messages(void **state)
{
    (void)state;
    bad_message(other_kind, "does not know");
    bad_message(other_codec, "encodes with codec");
    bad_message(other_bucket, "buckets");
    bad_message(other_count, "values for part");
    bad_message(other_version, "nobody asked");
    bad_message(far_version, "cannot be");
    bad_message(other_sender, "no worker");
    bad_message(other_role, "which is no worker");
}

/* A server's copy for rank 0, changed, or told to another. */
static void bad_copy(void (*change)(nw_header *), int to, bool again, const char *why)
{
    world w;
    nw_status status = NW_OK;
    nw_exchange_options o = ASYNC;
    o.servers = 2;
    make_world(&w, 3, o, "bf16", 3);
    w.every = 2;
    go(&w, 10);
    link_queue *up = &w.links[1 * 3 + 0];
    while (up->first == up->last && move(&w, &status)) ok(status);
    nw_message *m = up->at[up->first++ % LINK];
    assert_int_equal(m->header->kind, COPY);
    if (again) ok(tell(&w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}));
    if (change) change(m->header);
    assert_int_equal(tell(&w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), why));
    nw_message_drop(m);
    free_world(&w);
}

static void odd_version(nw_header *h) { h->version++; }
static void next_version(nw_header *h) { h->version += 100; }
static void lossy(nw_header *h) { h->codec = NW_CODEC_BF16; }
static void taken(nw_header *h) { h->kind = TAKEN; }

static void test_bad_copies(void **state)
{
    (void)state;
    bad_copy(odd_version, 0, false, "nobody asked");
    bad_copy(next_version, 0, false, "nobody asked");
    bad_copy(lossy, 0, false, "not exactly");
    bad_copy(NULL, 0, true, "twice");
    bad_copy(NULL, 1, false, "copies go to rank 0");
    bad_copy(taken, 0, false, "did not give");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_worker_is_serial),
        cmocka_unit_test(test_in_step),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_waiting_bounds_delays),
        cmocka_unit_test(test_stops_when_asked),
        cmocka_unit_test(test_stops_around_the_end),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_waiting_for_copies),
        cmocka_unit_test(test_delay_compensation),
        cmocka_unit_test(test_lost_workers),
        cmocka_unit_test(test_nobody_left),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_bad_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
