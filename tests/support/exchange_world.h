/*
 * exchange_world.h - a world of exchanges without a driver: the test chooses what happens next.
 *
 * Each rank has a vector of weights, a gradient that depends on them, on its rank and on its step, and an exchange of
 * its own; messages lie in queues, one a link, first in, first out. What can happen at any moment is a set of moves:
 *   deliver f -> t   the oldest message of that link reaches rank t
 *   local r          rank r goes on: a piece of its gradient becomes final (READY), it is complete (COMPUTED), or an
 *                    update is made (APPLIED)
 * Moves on different ranks commute, since one takes from the head of a queue what another adds to its end.
 *
 * Elements of a gradient that are not final are NaN, so that one who sends them early is found out; elements that are
 * final are not written again, so that means may lie there already.
 */
#ifndef NW_TESTS_EXCHANGE_WORLD_H
#define NW_TESTS_EXCHANGE_WORLD_H

#include "base/rng.h"
#include "exchange/exchange.h"
#include "net/driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_MOST = 5, LINK_MOST = 128, PIECES_MOST = 8, QUEUE_MOST = 4, SEGMENTS_MOST = 16 };

typedef struct world_options {
    int ranks, delay;
    const char *codec;
    const int *segments; /* sizes, 0 ends */
    size_t bucket_bytes;
    uint64_t seed;  /* of gradients */
    uint64_t sizes; /* of READY pieces: 0: COMPUTED only; else drawn from it, a part of them down to element 0 */
} world_options;

typedef struct world_rank {
    nw_params params;
    nw_exchange *exchange;
    nw_action queue[QUEUE_MOST];
    int queued;
    bool computing;
    size_t pieces[PIECES_MOST]; /* READY still to come, first of each */
    int piece, piece_count;
    size_t final;  /* of the gradient under way */
    int64_t begun; /* gradients */
    int64_t applied;
} world_rank;

typedef struct world_link {
    nw_message *at[LINK_MOST];
    int head, tail;
} world_link;

typedef struct world {
    world_options options;
    world_rank ranks[WORLD_MOST];
    world_link links[WORLD_MOST][WORLD_MOST];
    nw_message_pool *pool;
    nw_actions actions;
    nw_codec *codec;
    size_t floats;
    int64_t until; /* gradients begun at most */
    bool flushing; /* updates may be due at once */
    int delivered;
} world;

static const float WORLD_RATE = 0.125f;

static inline void world_ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

/* The gradient of a rank at a step: any bits, but dependent on the weights, so that a wrong update shows for ever. */
static inline float world_gradient(uint64_t seed, int rank, int64_t step, size_t i, float weight)
{
    uint64_t x = seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u + (uint64_t)rank * 0x94d049bb133111ebu +
                 (uint64_t)step * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return ((float)(x >> 40) * 0x1p-23f - 1.0f) * (rank % 2 ? 3.0f : 0.01f) + 0.5f * weight;
}

static inline float world_start(size_t i) { return (float)((int)(i * 37 % 101) - 50) * 0.01f; }

/* ---- the twin: what all ranks must have after `steps` gradients, in plain loops ---- */

static inline void twin_codec(const nw_codec *codec, float *x, size_t count)
{
    nw_codec_key key = {0};
    nw_encoded encoded;
    uint8_t *bytes = malloc(codec->ops->bound(codec, count) + 1);
    world_ok(codec->ops->encode(codec, &key, x, count, bytes, &encoded));
    world_ok(codec->ops->decode(codec, &key, bytes, encoded.bytes, x, count));
    free(bytes);
}

/* flushes: whether updates that are held back are made at the end. flush_at: also after that many steps; 0: not. */
static inline void twin_run(const world *w, int64_t steps, int64_t flush_at, bool flushes, float *weights)
{
    const world_options *o = &w->options;
    size_t n = w->floats;
    float *mean = calloc(n, sizeof(float)), *held = calloc(n, sizeof(float)), *term = calloc(n, sizeof(float));
    bool holds = false;
    for (size_t i = 0; i < n; i++) weights[i] = world_start(i);
    for (int64_t t = 0; t < steps; t++) {
        for (int r = 0; r < o->ranks; r++) {
            for (size_t i = 0; i < n; i++) term[i] = world_gradient(o->seed, r, t, i, weights[i]);
            twin_codec(w->codec, term, n);
            for (size_t i = 0; i < n; i++) mean[i] = r ? mean[i] + term[i] : term[i];
        }
        for (size_t i = 0; i < n; i++) mean[i] *= 1.0f / (float)o->ranks;
        twin_codec(w->codec, mean, n);
        if (o->delay == 0 || holds) {
            const float *update = o->delay ? held : mean;
            for (size_t i = 0; i < n; i++) weights[i] -= WORLD_RATE * update[i];
        }
        holds = o->delay > 0;
        memcpy(held, mean, n * sizeof(float));
        if (t + 1 == flush_at || (t + 1 == steps && flushes)) {
            for (size_t i = 0; holds && i < n; i++) weights[i] -= WORLD_RATE * held[i];
            holds = false;
        }
    }
    free(mean);
    free(held);
    free(term);
}

/* ---- making ---- */

static inline void world_make_exchange(world *w, int rank)
{
    nw_exchange_options o = {.name = "allreduce",
                             .rank = rank,
                             .world = w->options.ranks,
                             .params = &w->ranks[rank].params,
                             .codec = w->codec,
                             .bucket_bytes = w->options.bucket_bytes,
                             .delay = w->options.delay};
    world_ok(nw_exchange_create(&w->ranks[rank].exchange, &o));
}

static inline void world_make(world *w, const world_options *options)
{
    memset(w, 0, sizeof *w);
    w->options = *options;
    world_ok(nw_message_pool_create(&w->pool));
    w->actions.pool = w->pool;
    world_ok(nw_codec_create(&w->codec, &(nw_codec_options){.name = options->codec}));
    for (int r = 0; r < options->ranks; r++) {
        nw_params *p = &w->ranks[r].params;
        for (int i = 0, index; options->segments[i]; i++) {
            char name[16];
            snprintf(name, sizeof name, "s%d", i);
            world_ok(nw_segments_add(&p->learned, name, NW_ROLE_LINEAR, i, 1, 1, &options->segments[i], &index));
        }
        w->floats = p->learned.floats;
        p->values = calloc(w->floats, sizeof(float));
        p->gradients = calloc(w->floats, sizeof(float));
        for (size_t i = 0; i < w->floats; i++) p->values[i] = world_start(i);
        world_make_exchange(w, r);
    }
}

static inline void world_free(world *w)
{
    nw_actions_free(&w->actions);
    for (int r = 0; r < w->options.ranks; r++) {
        nw_exchange_free(w->ranks[r].exchange);
        free(w->ranks[r].params.values);
        free(w->ranks[r].params.gradients);
        nw_params_free(&w->ranks[r].params);
    }
    nw_codec_free(w->codec);
    nw_message_pool_free(w->pool);
}

/* ---- moves ---- */

/* Numbers of moves: from * ranks + to; the diagonal is what a rank does by itself. */
static inline uint32_t world_bit(const world *w, int from, int to) { return 1u << (from * w->options.ranks + to); }

static inline void world_take_actions(world *w, int rank)
{
    world_rank *r = &w->ranks[rank];
    for (int i = 0; i < w->actions.count; i++) {
        nw_action *a = &w->actions.at[i];
        if (a->kind == NW_ACTION_SEND) {
            world_link *link = &w->links[rank][a->to];
            assert_true(link->tail - link->head < LINK_MOST);
            link->at[link->tail++ % LINK_MOST] = a->message;
        } else {
            assert_true(a->kind != NW_ACTION_TIMER && r->queued < QUEUE_MOST);
            r->queue[r->queued++] = *a;
        }
    }
    w->actions.count = 0;
}

static inline nw_status world_tell(world *w, int rank, nw_event event)
{
    nw_exchange *e = w->ranks[rank].exchange;
    nw_status status = e->ops->handle(e, &event, &w->actions);
    world_take_actions(w, rank);
    return status;
}

/* The first action that a rank may do now: updates before it, if a gradient has to wait. -1: none. */
static inline int world_next(const world *w, const world_rank *r)
{
    for (int i = 0; i < r->queued; i++)
        if (r->queue[i].kind == NW_ACTION_APPLY || r->begun < w->until) return i;
    return -1;
}

static inline bool world_has_local(const world *w, int rank)
{
    const world_rank *r = &w->ranks[rank];
    return r->computing || world_next(w, r) >= 0;
}

static inline uint32_t world_moves(const world *w)
{
    uint32_t moves = 0;
    for (int f = 0; f < w->options.ranks; f++)
        for (int t = 0; t < w->options.ranks; t++)
            if (f == t ? world_has_local(w, f) : w->links[f][t].head < w->links[f][t].tail) moves |= world_bit(w, f, t);
    return moves;
}

/* Elements from `first` on become final. */
static inline void world_finalise(world *w, int rank, size_t first)
{
    world_rank *r = &w->ranks[rank];
    for (size_t i = first; i < r->final; i++)
        r->params.gradients[i] = world_gradient(w->options.seed, rank, r->begun - 1, i, r->params.values[i]);
    if (first < r->final) r->final = first;
}

static inline void world_begin_gradient(world *w, int rank)
{
    world_rank *r = &w->ranks[rank];
    r->begun++;
    r->computing = true;
    r->final = w->floats;
    r->piece = r->piece_count = 0;
    for (size_t i = 0; i < w->floats; i++) r->params.gradients[i] = NAN;
    if (w->options.sizes == 0) return;
    nw_rng rng = nw_rng_make(w->options.sizes, NW_PURPOSE_TEST, (uint64_t)r->begun, (uint32_t)rank);
    size_t first = w->floats;
    int count = (int)nw_rng_below(&rng, PIECES_MOST);
    for (int i = 0; i < count; i++) {
        first = nw_rng_below(&rng, (uint32_t)first + 1);
        if (i + 1 == count && nw_rng_below(&rng, 2)) first = 0;
        r->pieces[r->piece_count++] = first;
    }
}

static inline nw_status world_local(world *w, int rank)
{
    world_rank *r = &w->ranks[rank];
    if (r->computing && r->piece < r->piece_count) {
        size_t first = r->pieces[r->piece++];
        world_finalise(w, rank, first);
        return world_tell(w, rank, (nw_event){.kind = NW_EVENT_READY, .first = first});
    }
    if (r->computing) {
        world_finalise(w, rank, 0);
        r->computing = false;
        return world_tell(w, rank, (nw_event){.kind = NW_EVENT_COMPUTED});
    }
    int next = world_next(w, r);
    nw_action a = r->queue[next];
    r->queued--;
    memmove(r->queue + next, r->queue + next + 1, (size_t)(r->queued - next) * sizeof a);
    if (a.kind == NW_ACTION_COMPUTE) {
        world_begin_gradient(w, rank);
        return NW_OK;
    }
    const float *g = a.gradient ? a.gradient : r->params.gradients;
    for (size_t i = 0; i < w->floats; i++) r->params.values[i] -= WORLD_RATE * (a.scale * g[i]);
    assert_int_equal(a.lag, r->begun - 1 - r->applied);
    assert_true(a.lag == w->options.delay || (w->flushing && a.lag == 0));
    r->applied++;
    return world_tell(w, rank, (nw_event){.kind = NW_EVENT_APPLIED});
}

static inline nw_status world_deliver(world *w, int from, int to)
{
    world_link *link = &w->links[from][to];
    nw_message *m = link->at[link->head++ % LINK_MOST];
    nw_status status = world_tell(w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m});
    nw_message_drop(m);
    w->delivered++;
    return status;
}

static inline void world_move(world *w, uint32_t bit)
{
    int index = __builtin_ctz(bit), from = index / w->options.ranks, to = index % w->options.ranks;
    nw_status status = from == to ? world_local(w, from) : world_deliver(w, from, to);
    if (status != NW_OK) fail_msg("move %d -> %d: %s", from, to, nw_error_message());
}

static inline void world_begin(world *w)
{
    for (int r = 0; r < w->options.ranks; r++) world_ok(world_tell(w, r, (nw_event){.kind = NW_EVENT_BEGIN}));
}

/* Moves in an order that is drawn from the seed, until nothing can move. Some seeds starve a link or a rank for long. */
static inline void world_run(world *w, int64_t until, uint64_t seed)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 99, 0);
    uint32_t moves;
    w->until = until;
    while ((moves = world_moves(w)) != 0) {
        uint32_t starved =
            seed % 3 ? 0 : world_bit(w, (int)(seed / 3) % w->options.ranks, (int)(seed / 15) % w->options.ranks);
        if (moves & ~starved) moves &= ~starved;
        for (int skip = (int)nw_rng_below(&rng, (uint32_t)__builtin_popcount(moves)); skip > 0; skip--)
            moves &= moves - 1;
        world_move(w, moves & -moves);
    }
}

static inline void world_flush(world *w, uint64_t seed)
{
    w->flushing = true;
    for (int r = 0; r < w->options.ranks; r++) world_ok(world_tell(w, r, (nw_event){.kind = NW_EVENT_FLUSH}));
    world_run(w, w->until, seed);
    w->flushing = false;
}

/* All rest, at the same bits as `weights`. */
static inline void world_check(const world *w, const float *weights)
{
    for (int r = 0; r < w->options.ranks; r++) {
        const world_rank *rank = &w->ranks[r];
        assert_true(rank->exchange->ops->idle(rank->exchange));
        assert_int_equal(rank->begun, w->until);
        for (size_t i = 0; i < w->floats; i++)
            if (memcmp(&rank->params.values[i], &weights[i], sizeof(float)) != 0)
                fail_msg("rank %d has %.9g at %zu, the twin %.9g", r, (double)rank->params.values[i], i,
                         (double)weights[i]);
    }
}

#endif
