/* pipeline_toy.c - see pipeline_toy.h. */
#include "support/pipeline_toy.h"

#include "support/world.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the formulas: never inlined, so that the compiler rounds them in one way ------------------------------------- */

#define FORMULA __attribute__((noinline)) static

static size_t floats_of(int stage) { return 40 + 13 * (size_t)stage; }

FORMULA float draw(int replica, int64_t batch, int i)
{
    uint64_t x = (uint64_t)replica * 0x9e3779b97f4a7c15u + (uint64_t)batch * 0xbf58476d1ce4e5b9u + (uint64_t)i * 977;
    x = (x ^ x >> 31) * 0x94d049bb133111ebu;
    return (float)(x >> 40) * 0x1p-23f - 1.0f;
}

FORMULA float start(int stage, size_t i) { return (float)((int)(i * 37 + (size_t)stage * 11) % 101 - 50) * 0.01f; }

FORMULA void forward(int stage, int64_t batch, const float *w, const float *x, float *y)
{
    size_t n = floats_of(stage);
    for (size_t i = 0; i < TOY_WIDTH; i++) {
        float v = x[i] + w[(i * 5 + (size_t)batch) % n] * x[(i + 1) % TOY_WIDTH] + w[(3 * i + 1) % n];
        y[i] = v / (1.0f + fabsf(v));
    }
}

/* The gradient of this batch, and what goes down. */
FORMULA void backward(int stage, int64_t batch, const float *w, const float *x, const float *delta, float *g,
                      float *down)
{
    size_t n = floats_of(stage);
    for (size_t j = 0; j < n; j++) g[j] = delta[j % TOY_WIDTH] * x[(3 * j + 1) % TOY_WIDTH] + 0.05f * w[j];
    for (size_t i = 0; i < TOY_WIDTH; i++)
        down[i] =
            0.75f * delta[i] + w[(i * 5 + (size_t)batch) % n] * delta[(i + TOY_WIDTH - 1) % TOY_WIDTH] - 0.125f * x[i];
}

FORMULA void add(float *to, const float *what, size_t n, bool adds)
{
    for (size_t i = 0; i < n; i++) to[i] = adds ? to[i] + what[i] : what[i];
}

FORMULA void scale(float *at, size_t n, float factor)
{
    for (size_t i = 0; i < n; i++) at[i] *= factor;
}

static void load_input(int replica, int64_t batch, float *x)
{
    for (int i = 0; i < TOY_WIDTH; i++) x[i] = draw(replica, batch, i);
}

static void find_loss(int replica, int64_t batch, const float *y, float *delta)
{
    for (int i = 0; i < TOY_WIDTH; i++) delta[i] = y[i] - draw(replica, batch, 100 + i);
}

/* ---- the worker -------------------------------------------------------------------------------------------------- */

static void keep(toy_rank *r, int64_t batch, const float *x)
{
    world_require(r->fifo_count <= pipeline_delay(r->o.hop, r->o.stages, r->stage));
    if (r->fifo_count == 0) r->fifo_first = batch;
    world_require(batch == r->fifo_first + r->fifo_count);
    toy_kept *k = &r->fifo[r->fifo_count++];
    k->batch = batch;
    memcpy(k->x, x, sizeof k->x);
}

static void fetch(toy_rank *r, int64_t batch, float *x)
{
    world_require(r->fifo_count > 0 && r->fifo[0].batch == batch);
    memcpy(x, r->fifo[0].x, sizeof r->fifo[0].x);
    r->fifo_count--;
    r->fifo_first++;
    memmove(r->fifo, r->fifo + 1, (size_t)r->fifo_count * sizeof r->fifo[0]);
}

static void send_out(toy_rank *r, nw_announce *announce, const float *what)
{
    nw_message *m;
    world_ok(nw_message_take(r->pool, TOY_WIDTH * sizeof(float), &m));
    memcpy(m->payload, what, TOY_WIDTH * sizeof(float));
    announce->between(announce);
    announce->out(announce, m);
}

/* What is not final is no number, for those who look too early. */
static void go_back(toy_rank *r, const nw_task *t, const float *x, const float *delta, nw_announce *announce)
{
    float made[TOY_FLOATS], sum[TOY_FLOATS], down[TOY_WIDTH];
    size_t n = floats_of(r->stage), half = n / 2;
    backward(r->stage, t->batch, t->values, x, delta, made, down);
    if (r->stage > 0) send_out(r, announce, down);
    memcpy(sum, t->gradient, n * sizeof(float));
    add(sum, made, n, t->adds);
    for (size_t i = 0; i < n; i++) t->gradient[i] = NAN;
    memcpy(t->gradient + half, sum + half, (n - half) * sizeof(float));
    if (t->completes) announce->final(announce, half);
    announce->between(announce);
    memcpy(t->gradient, sum, half * sizeof(float));
    r->pending = t->completes ? 0 : r->pending + 1;
    if (r->stop && t->batch == r->stop_at) *r->stop = 1;
}

static nw_status run(void *worker, nw_task *t, nw_announce *announce)
{
    toy_rank *r = worker;
    float x[TOY_WIDTH], y[TOY_WIDTH], delta[TOY_WIDTH];
    if (t->kind == NW_TASK_UPDATE) {
        world_update(t->values, t->gradient, t->first, t->count, t->scale, t->clock);
        return NW_OK;
    }
    world_require(t->kind == NW_TASK_PASS && t->count == floats_of(r->stage) &&
                  (t->in != NULL) == (r->stage > 0 || !t->forward));
    if (t->forward && r->stage == 0) load_input(r->replica, t->batch, x);
    if (t->forward && r->stage > 0) memcpy(x, t->in->payload, sizeof x);
    if (t->forward) forward(r->stage, t->batch, t->values, x, y);
    if (t->forward) r->begun = t->batch + 1;
    if (!t->backward) {
        keep(r, t->batch, x);
        send_out(r, announce, y);
        return NW_OK;
    }
    if (t->forward) {
        find_loss(r->replica, t->batch, y, delta);
    } else {
        fetch(r, t->batch, x);
        memcpy(delta, t->in->payload, sizeof delta);
    }
    go_back(r, t, x, delta, announce);
    return NW_OK;
}

/* Stages cost 100, 130, 160, ... us forward and twice that backward. */
static int find_cost(void *worker, const nw_task *t, int64_t *ns, int most)
{
    const toy_rank *r = worker;
    int64_t unit = 100000 + 30000 * r->stage, at = 0;
    int count = 0;
    world_require(most >= 3);
    if (t->kind == NW_TASK_UPDATE) {
        ns[count++] = 20000;
        return count;
    }
    at += t->forward ? unit : 0;
    if (!t->backward || r->stage > 0) ns[count++] = at += t->backward ? unit : 0;
    if (t->completes) ns[count++] = at += unit / 2;
    ns[count++] = at + unit / 2;
    return count;
}

/* ---- its state --------------------------------------------------------------------------------------------------- */

static void list_state(void *worker, nw_state *s)
{
    toy_rank *r = worker;
    int64_t width = TOY_WIDTH;
    size_t n = floats_of(r->stage);
    nw_state_vector(s, "values", NW_STATE_KEPT, r->params.values, 0, n);
    nw_state_integer(s, "pending", NW_STATE_KEPT, &r->pending);
    if (r->pending > 0) nw_state_vector(s, "gradient", NW_STATE_REFUSED, r->params.gradients, 0, n);
    nw_state_integer(s, "fifo/first", NW_STATE_KEPT, &r->fifo_first);
    nw_state_integer(s, "fifo/count", NW_STATE_KEPT, &r->fifo_count);
    for (int i = 0; i < r->fifo_count; i++) {
        char name[NW_STATE_NAME];
        snprintf(name, sizeof name, "fifo/%d/%" PRId64, r->stage, r->fifo_first + i);
        nw_state_tensor(s, name, NW_STATE_REFUSED, NW_STATE_F32, 1, &width, r->fifo[i].x);
    }
}

static nw_status state_loaded(void *worker)
{
    toy_rank *r = worker;
    world_require(r->fifo_count >= 0 && r->fifo_count <= TOY_FIFO);
    for (int i = 0; i < r->fifo_count; i++) r->fifo[i].batch = r->fifo_first + i;
    return NW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static void make_params(toy_rank *r)
{
    size_t n = floats_of(r->stage);
    int sizes[] = {17, 3, (int)n - 20}, index;
    for (int i = 0; i < 3; i++) {
        char name[] = {'w', (char)('0' + i), '\0'};
        world_ok(nw_segments_add(&r->params.learned, name, NW_ROLE_LINEAR, r->stage, 1, 1, &sizes[i], &index));
    }
    world_require(r->params.learned.floats == n && n <= TOY_FLOATS);
    r->params.values = calloc(2 * n, sizeof(float));
    world_require(r->params.values != NULL);
    r->params.gradients = r->params.values + n;
    for (size_t i = 0; i < n; i++) r->params.values[i] = start(r->stage, i);
}

void toy_make(toy_rank *r, const toy_options *o, int index, nw_message_pool *pool)
{
    nw_machine *exchange;
    memset(r, 0, sizeof *r);
    r->o = *o;
    world_ok(nw_roles_make(&r->roles, 0, o->replicas, o->stages, 0));
    nw_duty duty = nw_roles_of(&r->roles, index);
    r->replica = duty.replica;
    r->stage = duty.stage;
    r->pool = pool;
    make_params(r);
    world_ok(nw_codec_create(&r->codec, &(nw_codec_options){.name = "none"}));
    nw_exchange_options e = {.name = o->replicas > 1 ? "allreduce" : "none",
                             .group = nw_roles_column(&r->roles, index),
                             .params = &r->params,
                             .layout = {.codec = r->codec, .bucket_bytes = 64},
                             .delay = o->delay};
    world_ok(nw_exchange_create(&exchange, &e));
    pipeline_options p = {.row = nw_roles_row(&r->roles, index),
                          .params = &r->params,
                          .accumulation = o->accumulation,
                          .hop = o->hop,
                          .window = o->window,
                          .floats = TOY_WIDTH};
    world_ok(pipeline_create(&r->machine, exchange, &p));
}

void toy_free(toy_rank *r)
{
    nw_exchange_free(r->machine);
    nw_codec_free(r->codec);
    free(r->params.values);
    free(r->params.learned.at);
    nw_roles_free(&r->roles);
    memset(r, 0, sizeof *r);
}

nw_rank toy_as_rank(toy_rank *r, int index)
{
    static const nw_worker_ops work = {run, find_cost, list_state, state_loaded};
    return (nw_rank){.index = index, .machine = r->machine, .worker = r, .work = &work};
}

/* ---- the twin ---------------------------------------------------------------------------------------------------- */

void toy_twin_begin(toy_twin *t, const toy_options *o)
{
    memset(t, 0, sizeof *t);
    t->o = *o;
    for (int p = 0; p < o->stages; p++) {
        t->clocks[p] = -1;
        for (int r = 0; r < o->replicas; r++)
            for (size_t i = 0; i < floats_of(p); i++) t->values[r][p][i] = start(p, i);
    }
}

/* All replicas of a stage take the mean of their gradients, or that of those before. */
static void twin_update(toy_twin *t, int p, int64_t clock)
{
    size_t n = floats_of(p);
    float mean[TOY_FLOATS];
    for (int r = 0; r < t->o.replicas; r++) add(mean, t->sums[r][p], n, r > 0);
    scale(mean, n, 1.0f / (float)t->o.replicas);
    const float *now = t->o.delay ? t->held[p] : mean;
    int64_t now_clock = t->o.delay ? t->clocks[p] : clock;
    for (int r = 0; r < t->o.replicas && now_clock >= 0; r++) world_update(t->values[r][p], now, 0, n, 1.0f, now_clock);
    memcpy(t->held[p], mean, sizeof mean);
    t->clocks[p] = clock;
}

static void twin_forward(toy_twin *t, int r, int64_t s)
{
    float x[TOY_WIDTH], y[TOY_WIDTH];
    load_input(r, s, x);
    for (int p = 0; p < t->o.stages; p++) {
        memcpy(t->kept[r][p][s % TOY_FIFO], x, sizeof x);
        forward(p, s, t->values[r][p], x, y);
        memcpy(x, y, sizeof x);
    }
    find_loss(r, s, y, t->deltas[r][t->o.stages][s % TOY_FIFO]);
}

static void twin_backward(toy_twin *t, int r, int p, int64_t b)
{
    float made[TOY_FLOATS];
    int at = (int)(b % TOY_FIFO);
    backward(p, b, t->values[r][p], t->kept[r][p][at], t->deltas[r][p + 1][at], made, t->deltas[r][p][at]);
    add(t->sums[r][p], made, floats_of(p), b % t->o.accumulation > 0);
}

void toy_twin_run(toy_twin *t, int64_t batches, bool drain)
{
    int64_t end = t->batches + batches, longest = pipeline_delay(t->o.hop, t->o.stages, 0);
    for (int64_t s = t->batches; s < end + (drain ? longest : 0); s++) {
        for (int r = 0; r < t->o.replicas && s < end; r++) twin_forward(t, r, s);
        for (int p = t->o.stages - 1; p >= 0; p--) {
            int64_t b = s - pipeline_delay(t->o.hop, t->o.stages, p);
            if (b < t->drained || b >= end) continue;
            for (int r = 0; r < t->o.replicas; r++) twin_backward(t, r, p, b);
            if ((b + 1) % t->o.accumulation == 0) twin_update(t, p, (s < end ? s : end - 1) + p);
        }
    }
    t->batches = end;
    if (!drain) return;
    t->drained = end;
    for (int p = 0; p < t->o.stages; p++) {
        for (int r = 0; r < t->o.replicas && t->o.delay && t->clocks[p] >= 0; r++)
            world_update(t->values[r][p], t->held[p], 0, floats_of(p), 1.0f, t->clocks[p]);
        t->clocks[p] = -1;
    }
}

void toy_check(const toy_twin *t, const toy_rank *r)
{
    const float *want = t->values[r->replica][r->stage];
    for (size_t i = 0; i < floats_of(r->stage); i++)
        if (memcmp(&want[i], &r->params.values[i], sizeof(float)) != 0)
            world_fail(__FILE__, __LINE__, "stage %d of replica %d has %.9g at %zu, not %.9g", r->stage, r->replica,
                       (double)r->params.values[i], i, (double)want[i]);
}
