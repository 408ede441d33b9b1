/*
 * server_world.h - a small world that moves parameter servers by hand, in any order of events. Updates are w -= 0.1 scale g; a
 * gradient depends on the weights and on how many the rank has computed, so that every difference in order or version shows in
 * the bits. Include cmocka.h before it.
 */
#ifndef NW_TESTS_SERVER_WORLD_H
#define NW_TESTS_SERVER_WORLD_H

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

static inline bool copies(const void *context, int64_t updates)
{
    const world *w = context;
    return w->every > 0 && updates % w->every == 0;
}

/* A server has made an update: what a copy of its range must be. */
static inline void keep_range(world *w, int rank, const nw_given *g)
{
    if (w->o.servers < 2 || !copies(w, g->number + 1)) return;
    int64_t index = (g->number + 1) / w->every;
    assert_true(index < COPIES);
    memcpy(w->kept[index] + g->first, w->nodes[rank].values + g->first, g->count * sizeof(float));
    int under_way = ++w->given[rank] - w->taken;
    assert_true(under_way <= 2);
    if (under_way > w->most) w->most = under_way;
}

static inline void check_copy(world *w, int rank, const nw_action *action)
{
    assert_int_equal(rank, 0);
    assert_true(w->o.servers > 1);
    assert_int_equal(action->number, ++w->taken * w->every);
    assert_memory_equal(action->values, w->kept[w->taken], w->floats * sizeof(float));
    w->ahead += w->updates - action->number;
}

/* ---- making ---- */

static inline void make_world(world *w, int ranks, nw_exchange_options o, const char *codec, uint64_t seed)
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

static inline void free_world(world *w)
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

static inline nw_status tell(world *w, int rank, nw_event event)
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

static inline void compute_gradient(const world *w, const float *values, int64_t count, int rank, float *out)
{
    for (size_t i = 0; i < w->floats; i++)
        out[i] = 0.5f * values[i] + 0.1f * sinf((float)(i + 1) * (float)(count + 1) + (float)rank);
}

static inline void start(world *w, int rank)
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

static inline nw_status finish(world *w, int rank)
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
static inline bool move(world *w, nw_status *status)
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

static inline void go(world *w, int64_t until)
{
    for (int r = 0; r < w->ranks; r++)
        if (!w->nodes[r].dead) ok(tell(w, r, (nw_event){.kind = NW_EVENT_GO, .until = until}));
}

static inline nw_status run(world *w, int64_t until)
{
    nw_status status = NW_OK;
    go(w, until);
    while (status == NW_OK && move(w, &status)) continue;
    return status;
}

/* Everybody is done, and has the same. */
static inline void check_rest(const world *w, int64_t updates)
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

static inline void serial(const world *w, int64_t steps, int rank, float *values)
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

#endif
