/* world.c - see world.h. */
#include "support/world.h"

#include "support/state_store.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void world_fail(const char *file, int line, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

/* ---- the arithmetic ---------------------------------------------------------------------------------------------- */

float world_start(size_t i) { return (float)((int)(i * 37 % 101) - 50) * 0x1p-7f; }
float world_rate(int64_t clock) { return 0.125f / (float)(1 << clock % 3); }

void world_gradient(const world *w, int member, int64_t batch, const float *values, bool adds, float *out)
{
    for (size_t i = 0; i < w->floats; i++) {
        uint64_t x = w->o.seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u +
                     (uint64_t)member * 0x94d049bb133111ebu + (uint64_t)batch * 0xd6e8feb86659fd93u;
        x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
        float g = ((float)(x >> 40) * 0x1p-23f - 1.0f) * (member % 2 ? 3.0f : 0.01f) + 0.5f * values[i] +
                  0.25f * values[(i * 7 + 3) % w->floats];
        if (w->o.exact) g = (float)(x >> 60) - 7.5f;
        out[i] = adds ? out[i] + g : g;
    }
}

void world_update(float *values, const float *gradient, size_t first, size_t count, float scale, int64_t clock)
{
    for (size_t i = first; i < first + count; i++) values[i] -= world_rate(clock) * (scale * gradient[i]);
}

void world_outer_update(bool averages, float *values, float *momentum, const float *gradient, size_t first,
                        size_t count, float scale, int64_t number)
{
    for (size_t i = first; i < first + count; i++) {
        float g = scale * gradient[i];
        momentum[i] = number > 0 ? 0.5f * momentum[i] + g : g;
        values[i] -= averages ? g : 0.75f * (g + 0.5f * momentum[i]);
    }
}

/* ---- what machines tell ------------------------------------------------------------------------------------------ */

static nw_status counted(void *context, const nw_count *c)
{
    world *w = context;
    world_require(w->telling == 0 && c->updates == ++w->updates && c->from_count > 0 && c->delay >= 0);
    w->delay_sum += c->delay;
    if (c->delay > w->delay_max) w->delay_max = c->delay;
    for (int i = 0; i < c->from_count; i++) {
        world_report said;
        int from = c->from[i];
        if (w->o.damaged || w->o.make) continue;
        memcpy(&said, c->reports[i], sizeof said);
        world_require(i == 0 || from > c->from[i - 1]);
        world_require(said.member == from &&
                      said.count > w->last_said[from]); /* in order; some may have been dropped */
        w->last_said[from] = said.count;
        w->updates_of[from]++;
    }
    return NW_OK;
}

static nw_status snapshot(void *context, const nw_snapshot *s)
{
    world *w = context;
    if (w->o.looked) {
        w->o.looked(w, s);
        w->taken += !s->unasked;
        return NW_OK;
    }
    w->taken++;
    w->ahead += w->updates - s->updates;
    if (w->o.damaged) return NW_OK;
    world_require(w->telling == 0 && w->o.every > 0 && s->updates == w->taken * w->o.every);
    world_require(memcmp(s->values, w->kept[w->taken % WORLD_KEPT], w->floats * sizeof(float)) == 0);
    return NW_OK;
}

/* A range was updated: what a snapshot of it must be. */
static void keep_range(world *w, world_member *m)
{
    const nw_task *t = &m->rank.task;
    if (w->o.every == 0 || w->o.looked || (t->number + 1) % w->o.every != 0) return;
    memcpy(w->kept[(t->number + 1) / w->o.every % WORLD_KEPT] + t->first, m->params.values + t->first,
           t->count * sizeof(float));
    int under_way = ++m->given - w->taken;
    world_require(under_way <= 2 || w->o.damaged);
    if (under_way > w->most) w->most = under_way;
}

static void send(world *w, int from, int rank, nw_message *m)
{
    nw_group group = {w->ranks, w->o.members, from};
    int to = nw_group_find(&group, rank), most = w->o.link_most ? w->o.link_most : WORLD_LINK;
    world_require(to >= 0 && to != from && m->header->channel > NW_CHANNEL_DRIVER && m->header->sequence > 0);
    world_ok(nw_message_check(m->header, nw_message_size(m), w->ranks[from], w->driver->size));
    world_link *link = &w->links[from][to];
    if (link->last - link->first == most) {
        if (!w->o.damaged) world_fail(__FILE__, __LINE__, "member %d sends %d more than %d messages", from, to, most);
        nw_message_drop(m);
        return;
    }
    link->at[link->last++ % WORLD_LINK] = m;
}

/* What a member answered. One that damage was done to fails as a rank would: for ever. */
static nw_status answer(world *w, int member, nw_status status)
{
    nw_actions *actions = &w->driver->actions;
    for (int i = 0; i < actions->count && status == NW_OK; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_SEND) {
            send(w, member, a->to, a->message);
            a->message = NULL;
        } else if (a->kind == NW_ACTION_TIMER) {
            w->at[member].timer = a->at_ns;
        } else {
            world_require(a->kind == NW_ACTION_DROP || a->kind == NW_ACTION_BACK);
            int whom = nw_group_find(&w->at[member].rank.machine->group, a->to);
            world_require(whom >= 0 && whom != member);
            w->dropped[whom] = a->kind == NW_ACTION_DROP;
        }
    }
    nw_actions_clear(actions);
    if (status != NW_OK && w->o.damaged) w->at[member].dead = true;
    return status;
}

static int64_t tick(world *w, int member)
{
    w->telling = member;
    return w->at[member].now += 10;
}

nw_status world_tell(world *w, int member, nw_event event)
{
    event.now_ns = tick(w, member);
    return answer(w, member, nw_rank_tell(w->driver, &w->at[member].rank, event));
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

static void draw_finals(world *w, world_member *m)
{
    m->final = m->final_count = 0;
    if (w->o.finals == 0 || !m->rank.task.completes) return;
    nw_rng rng = nw_rng_make(w->o.finals, NW_PURPOSE_TEST, (uint64_t)m->batches, (uint32_t)m->said.member);
    int count = (int)nw_rng_below(&rng, WORLD_FINALS);
    for (size_t first = w->floats; m->final_count < count;) {
        first = nw_rng_below(&rng, (uint32_t)first + 1);
        if (m->final_count + 1 == count && nw_rng_below(&rng, 2)) first = 0;
        m->finals[m->final_count++] = first;
    }
}

static void note_between(nw_announce *a) { (void)a; }
static void note(nw_announce *a, size_t first, nw_message *out)
{
    world_member *m = (world_member *)((char *)a - offsetof(world_member, announce));
    world_require(m->final_count < WORLD_FINALS);
    m->outs[m->final_count] = out;
    m->finals[m->final_count++] = first;
}
static void note_final(nw_announce *a, size_t first) { note(a, first, NULL); }
static void note_out(nw_announce *a, nw_message *message) { note(a, 0, message); }

static void begin(world *w, world_member *m)
{
    nw_task *t = &m->rank.task;
    if (w->o.make) {
        m->final = m->final_count = 0;
        world_ok(m->rank.work->run(m->rank.worker, t, &m->announce));
        return;
    }
    float *values = m->params.values, *gradients = m->params.gradients;
    if (t->kind == NW_TASK_GRADIENT) {
        world_require(w->o.bare);
        m->gradient = *t;
        *t = (nw_task){.kind = NW_TASK_PASS,
                       .number = t->number,
                       .forward = true,
                       .backward = true,
                       .completes = true,
                       .values = values,
                       .gradient = gradients,
                       .count = w->floats};
    }
    if (t->kind == NW_TASK_UPDATE) {
        bool outer = t->rule == NW_RULE_OUTER;
        world_require(t->first + t->count <= w->floats && (outer ? t->values != values : t->values == values));
        memcpy(m->made + t->first, t->values + t->first, t->count * sizeof(float));
        if (outer)
            world_outer_update(w->o.averages, m->made, m->momentum, t->gradient, t->first, t->count, t->scale,
                               t->number);
        else
            world_update(m->made, t->gradient, t->first, t->count, t->scale, t->clock);
        for (size_t i = t->first; t->also && i < t->first + t->count; i++) {
            m->also[i] = t->also[i] + (m->made[i] - values[i]);
            t->also[i] = NAN;
        }
        for (size_t i = t->first; i < t->first + t->count; i++) t->values[i] = NAN;
        return;
    }
    world_require(t->forward && t->backward && t->values == values && t->gradient == gradients &&
                  t->count == w->floats);
    if (!(t->copy && t->adds)) memcpy(m->seen, values, w->floats * sizeof(float));
    memcpy(m->made, gradients, w->floats * sizeof(float));
    world_gradient(w, m->said.member, m->batches, m->seen, t->adds, m->made);
    for (size_t i = 0; i < w->floats; i++) gradients[i] = NAN;
    t->clock = m->batches++;
    draw_finals(w, m);
}

/* Elements from `first` on become final. */
static void finalise(world *w, world_member *m, size_t first)
{
    size_t end = m->rank.final < w->floats ? m->rank.final : w->floats;
    for (size_t i = first; i < end; i++) m->params.gradients[i] = m->made[i];
}

static nw_status finish(world *w, int member)
{
    world_member *m = &w->at[member];
    nw_task *t = &m->rank.task;
    if (w->o.make) return answer(w, member, nw_rank_done(w->driver, &m->rank, tick(w, member)));
    if (t->kind == NW_TASK_UPDATE) {
        memcpy(t->values + t->first, m->made + t->first, t->count * sizeof(float));
        if (t->also) memcpy(t->also + t->first, m->also + t->first, t->count * sizeof(float));
        keep_range(w, m);
    } else {
        finalise(w, m, 0);
        world_require(t->copy || memcmp(m->seen, m->params.values, w->floats * sizeof(float)) == 0);
        m->said.count += t->completes;
        if (w->o.bare) {
            m->gradient.clock = t->clock;
            m->gradient.completes = true;
            *t = m->gradient;
        }
    }
    return answer(w, member, nw_rank_done(w->driver, &m->rank, tick(w, member)));
}

nw_status world_local(world *w, int member)
{
    world_member *m = &w->at[member];
    if (!m->rank.busy) {
        world_require(nw_rank_next(w->driver, &m->rank));
        if (w->o.begun) w->o.begun(w, member);
        begin(w, m);
        return m->rank.task.kind == NW_TASK_UPDATE && !w->o.interrupts ? finish(w, member) : NW_OK;
    }
    if (m->final == m->final_count || m->rank.task.kind == NW_TASK_UPDATE) return finish(w, member);
    nw_message *out = m->outs[m->final];
    size_t first = m->finals[m->final++];
    if (out) {
        nw_status status = world_tell(w, member, (nw_event){.kind = NW_EVENT_OUT, .message = out});
        nw_message_drop(out);
        return status;
    }
    if (!w->o.make) finalise(w, m, first);
    return answer(w, member, nw_rank_final(w->driver, &m->rank, first, tick(w, member)));
}

/* ---- moves ------------------------------------------------------------------------------------------------------- */

static bool can_ring(const world *w, int member)
{
    const world_member *m = &w->at[member];
    return !m->dead && !m->asleep && m->timer != NW_NO_TIMER;
}

uint64_t world_moves(const world *w)
{
    uint64_t moves = 0;
    for (int f = 0; f < w->o.members; f++)
        for (int t = 0; t < w->o.members; t++) {
            const nw_rank *r = &w->at[t].rank;
            bool can =
                f == t ? !w->at[t].dead && (r->busy || r->queued > 0) : w->links[f][t].first < w->links[f][t].last;
            if (can && !w->at[t].asleep) moves |= world_bit(f, t);
        }
    for (int t = 0; t < w->o.members; t++)
        if (can_ring(w, t) && w->rings < w->o.rings) moves |= world_bit(WORLD_TIMER, t);
    return moves;
}

nw_status world_hand(world *w, int to, nw_message *m)
{
    return world_tell(w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m});
}

nw_status world_deliver(world *w, int from, int to)
{
    world_link *link = &w->links[from][to];
    nw_message *m = link->at[link->first++ % WORLD_LINK];
    nw_status status = w->at[to].dead ? NW_OK : world_hand(w, to, m);
    nw_message_drop(m);
    return status;
}

static nw_status ring(world *w, int member)
{
    world_member *m = &w->at[member];
    if (m->timer > m->now) m->now = m->timer;
    m->timer = NW_NO_TIMER;
    w->rings++;
    return world_tell(w, member, (nw_event){.kind = NW_EVENT_TIMER});
}

nw_status world_move(world *w, uint64_t bit)
{
    int index = __builtin_ctzll(bit), from = index / WORLD_MOST, to = index % WORLD_MOST;
    if (from == WORLD_TIMER && w->o.rings > 0) return ring(w, to);
    return from == to ? world_local(w, from) : world_deliver(w, from, to);
}

nw_status world_go(world *w, int64_t until, int64_t batches, bool drain)
{
    nw_go go = {.until = until, .batches = batches > 0 ? batches : INT64_MAX, .drain = drain, .snapshots = w->due};
    for (int64_t at = w->updates + 1; w->o.every > 0 && at <= until && go.snapshot_count < WORLD_DUE; at++)
        if (at % w->o.every == 0) w->due[go.snapshot_count++] = at;
    for (int i = 0; i < w->o.members; i++)
        if (!w->at[i].dead) NW_TRY(world_tell(w, i, (nw_event){.kind = NW_EVENT_GO, .go = &go}));
    return NW_OK;
}

nw_status world_stop(world *w, int member) { return world_tell(w, member, (nw_event){.kind = NW_EVENT_STOP}); }

bool world_ring(world *w, nw_status *status)
{
    int next = -1;
    for (int i = 0; i < w->o.members; i++)
        if (can_ring(w, i) && (next < 0 || w->at[i].timer < w->at[next].timer)) next = i;
    if (next >= 0) *status = ring(w, next);
    return next >= 0;
}

bool world_step(world *w, nw_status *status)
{
    uint64_t moves = world_moves(w);
    if (moves == 0) return world_ring(w, status);
    if (moves & ~w->starved) moves &= ~w->starved;
    for (uint32_t skip = nw_rng_below(&w->rng, (uint32_t)__builtin_popcountll(moves)); skip > 0; skip--)
        moves &= moves - 1;
    *status = world_move(w, moves & -moves);
    return true;
}

nw_status world_settle(world *w)
{
    nw_status status = NW_OK;
    while (status == NW_OK && world_step(w, &status)) continue;
    return status;
}

nw_status world_run(world *w, int64_t until)
{
    NW_TRY(world_go(w, until, 0, false));
    return world_settle(w);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

void world_check_values(const world *w, const float *values)
{
    for (int m = 0; m < w->o.members; m++)
        for (size_t i = 0; i < w->floats && !w->at[m].dead; i++)
            if (memcmp(&w->at[m].params.values[i], &values[i], sizeof(float)) != 0)
                world_fail(__FILE__, __LINE__, "member %d has %.9g at %zu, not %.9g", m,
                           (double)w->at[m].params.values[i], i, (double)values[i]);
}

void world_check_quiescent(const world *w, int64_t updates)
{
    world_require(w->updates == updates);
    for (int i = 0; i < w->o.members; i++) {
        const world_member *m = &w->at[i];
        if (m->dead) continue;
        world_require(nw_rank_is_quiescent(&m->rank) && m->timer == NW_NO_TIMER && m->rank.machine->updates == updates);
        for (int to = 0; to < w->o.members; to++) world_require(w->links[i][to].first == w->links[i][to].last);
        world_require(w->o.every == 0 || w->o.looked || m->given == 0 || m->given == updates / w->o.every);
    }
    world_require(w->o.every == 0 || w->taken == updates / w->o.every);
    if (w->at[0].rank.machine->equal) world_check_values(w, w->at[0].params.values);
}

void world_resume(world *w, const world *from)
{
    static state_store store;
    for (int i = 0; i < from->o.members; i++) store_add(&store, nw_rank_state((nw_rank *)(uintptr_t)&from->at[i].rank));
    w->updates = from->updates;
    w->taken = from->taken;
    memcpy(w->last_said, from->last_said, sizeof w->last_said);
    memcpy(w->updates_of, from->updates_of, sizeof w->updates_of);
    for (int i = 0; i < w->o.members; i++) {
        world_member *m = &w->at[i];
        const world_member *own = &from->at[i % from->o.members];
        memcpy(m->params.values, own->params.values, w->floats * sizeof(float));
        memcpy(m->params.gradients, own->params.gradients, w->floats * sizeof(float));
        memcpy(m->momentum, own->momentum, w->floats * sizeof(float));
        m->batches = own->batches;
        m->said.count = own->said.count;
        m->given = own->given;
        world_ok(store_load(&store, nw_rank_state(&m->rank), i, w->o.members, NULL));
    }
    store_clear(&store);
}

/* ---- every order ------------------------------------------------------------------------------------------------- */

/*
 * Depth first through the tree of choices, running the world from its beginning for each leaf, with sleep sets
 * (Godefroid 1996): `asleep` are moves whose turn came in an order that was run before.
 */
typedef struct choice {
    uint64_t moves, asleep, tried;
} choice;

enum { DEPTH_MOST = 512 };

static uint64_t highest(uint64_t bits) { return (uint64_t)1 << (63 - __builtin_clzll(bits)); }

/* Moves on the same member as `bit`. */
static uint64_t same_member(uint64_t bit)
{
    uint64_t mask = 0;
    for (int f = 0; f < WORLD_MOST; f++) mask |= world_bit(f, __builtin_ctzll(bit) % WORLD_MOST);
    return mask;
}

/* Runs one order: along the choices made, then on with the first of what is awake. False: it is a known state. */
static bool run_order(world *w, choice *path, int *depth, bool all)
{
    uint64_t moves;
    for (int at = 0; (moves = world_moves(w)) != 0; at++) {
        world_require(at < DEPTH_MOST);
        if (at == *depth) {
            uint64_t asleep = 0;
            if (at > 0 && !all) {
                uint64_t last = path[at - 1].tried & -path[at - 1].tried, before = path[at - 1].tried & ~last;
                asleep = (path[at - 1].asleep | before) & ~same_member(last);
            }
            path[at] = (choice){.moves = moves, .asleep = asleep & moves};
            if ((moves & ~asleep) == 0) return false;
            (*depth)++;
            path[at].tried = highest(moves & ~asleep); /* from the highest down: the lowest bit is the last */
        }
        world_ok(world_move(w, path[at].tried & -path[at].tried));
    }
    return true;
}

static bool next_order(choice *path, int *depth)
{
    for (; *depth > 0; (*depth)--) {
        choice *c = &path[*depth - 1];
        uint64_t last = c->tried & -c->tried, left = c->moves & ~c->asleep & (last - 1);
        if (!left) continue;
        c->tried |= highest(left);
        return true;
    }
    return false;
}

int64_t world_every_order(const world_options *o, void (*first)(world *), void (*check)(world *), bool all)
{
    choice path[DEPTH_MOST];
    int depth = 0;
    int64_t orders = 0;
    do {
        static world w;
        world_ok(world_make(&w, o));
        first(&w);
        if (run_order(&w, path, &depth, all)) {
            check(&w);
            orders++;
        }
        world_free(&w);
    } while (next_order(path, &depth));
    return orders;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static int64_t now(nw_driver *d, int rank) { return (void)d, (void)rank, 0; }
static const nw_driver_ops ops = {.name = "world", .now = now};

static nw_status make_member(world *w, int member)
{
    static const int uneven[] = {64, 5, 100, 33, 2, 250, 17, 0};
    world_member *m = &w->at[member];
    const int *sizes = w->o.segments ? w->o.segments : uneven;
    m->timer = NW_NO_TIMER;
    m->announce = (nw_announce){note_between, note_final, note_out};
    if (w->o.make) {
        w->o.make(w, member);
        return NW_OK;
    }
    for (int i = 0, index; sizes[i]; i++) {
        char name[16];
        snprintf(name, sizeof name, "s%d", i);
        bool matrix = w->o.matrices && sizes[i] % 4 == 0;
        int shape[] = {matrix ? 4 : sizes[i], sizes[i] / 4};
        NW_TRY(nw_segments_add(&m->params.learned, name, NW_ROLE_LINEAR, i, 1, matrix ? 2 : 1, shape, &index));
    }
    w->floats = m->params.learned.floats;
    world_require(w->floats <= WORLD_FLOATS);
    m->params.values = calloc(6 * w->floats, sizeof(float));
    NW_FAIL_IF(!m->params.values, NW_E_MEMORY, "no memory for a member");
    m->params.gradients = m->params.values + w->floats;
    m->made = m->params.gradients + w->floats;
    m->seen = m->made + w->floats;
    m->also = m->seen + w->floats;
    m->momentum = m->also + w->floats;
    for (size_t i = 0; i < w->floats; i++) m->params.values[i] = world_start(i);
    m->said.member = member;
    m->rank.index = w->ranks[member];
    nw_exchange_options e = w->o.exchange;
    e.group = (nw_group){w->ranks, w->o.members, member};
    e.params = &m->params;
    e.layout.codec = w->o.with ? w->o.with : w->codec;
    e.report = &m->said;
    e.report_bytes = sizeof m->said;
    if (e.accumulation == 0) e.accumulation = 1;
    nw_machine *exchange, *pipeline;
    NW_TRY((w->o.create ? w->o.create : nw_exchange_create)(&exchange, &e));
    m->rank.machine = exchange;
    if (w->o.bare) return NW_OK;
    NW_TRY(nw_passes_create(&pipeline, exchange, &m->params, e.accumulation));
    m->rank.machine = pipeline;
    return NW_OK;
}

nw_status world_make(world *w, const world_options *options)
{
    memset(w, 0, sizeof *w);
    w->o = *options;
    world_require(options->rings == 0 || options->members < WORLD_MOST);
    w->rng = nw_rng_make(options->seed, NW_PURPOSE_TEST, 99, 0);
    for (int i = 0; i < options->members; i++) w->ranks[i] = options->ranks ? options->ranks[i] : (uint16_t)i;
    w->kept = options->every ? calloc(WORLD_KEPT, sizeof *w->kept) : NULL;
    NW_FAIL_IF(options->every && !w->kept, NW_E_MEMORY, "no memory for snapshots");
    int size = options->ranks_in_world ? options->ranks_in_world : options->members;
    nw_driver_options o = {.counted = counted, .snapshot = snapshot, .context = w};
    NW_TRY(nw_driver_create(&w->driver, sizeof *w->driver, &ops, &o, size, 0, size));
    NW_TRY(nw_codec_create(&w->codec, &(nw_codec_options){.name = options->codec ? options->codec : "none"}));
    for (int i = 0; i < options->members; i++) NW_TRY(make_member(w, i));
    return NW_OK;
}

void world_free(world *w)
{
    for (int i = 0; i < w->o.members; i++) {
        nw_exchange_free(w->at[i].rank.machine);
        free(w->at[i].params.values);
        free(w->at[i].params.learned.at);
    }
    nw_codec_free(w->codec);
    nw_driver_free(w->driver);
    free(w->kept);
}
