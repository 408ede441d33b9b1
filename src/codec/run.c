/* run.c - see run.h. */
#include "codec/run.h"

#include "codec/kernels.h"

#include <string.h>

enum {
    FEW = 3,    /* so few tiles are done before other threads would have woken up */
    GROUPS = 8, /* of tiles for each thread, or more: threads are not equally fast */
    GROUP_MOST = 16,
    LARGE = 64, /* items of more tiles than this are settled by all threads together */
    INFINITE = 0x7f800000
};

typedef struct run {
    nw_pool_task task;
    void *context;
    int count, group;
} run;

static void do_group(void *context, int index, int worker)
{
    const run *r = context;
    int first = index * r->group, last = r->count - first < r->group ? r->count : first + r->group;
    for (int i = first; i < last; i++) r->task(r->context, i, worker);
}

/* Neighbours are done by the same thread, so that each reads and writes memory in long runs. */
static void run_on_pool(nw_pool *pool, int count, nw_pool_task task, void *context)
{
    if (pool && count > FEW) {
        run r = {task, context, count, count / (GROUPS * nw_pool_threads(pool))};
        r.group = r.group < 1 ? 1 : r.group > GROUP_MOST ? GROUP_MOST : r.group;
        nw_pool_run(pool, (count + r.group - 1) / r.group, do_group, &r);
        return;
    }
    for (int i = 0; i < count; i++) task(context, i, 0);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static void aim_at_item(void *context, int index, int worker)
{
    nw_encoding *e = context;
    (void)worker;
    e->codec->ops->aim(e, index);
}

static void look_at_tile(void *context, int index, int worker)
{
    nw_encoding *e = context;
    const nw_tile *tile = &e->block->tiles[index];
    (void)worker;
    if (e->memory) e->memory->ops->begin(e->memory, tile, e->vector + tile->first, e->clip);
    if (e->codec->ops->look) e->codec->ops->look(e, index);
}

static bool is_large(const nw_block *b, int item) { return b->item_tile[item + 1] - b->item_tile[item] > LARGE; }

static void settle_small_item(void *context, int index, int worker)
{
    nw_encoding *e = context;
    (void)worker;
    if (!is_large(e->block, index)) e->codec->ops->settle(e, index, NULL);
}

/* First all small items, each by one thread; then the large ones one after the other, each by all threads. */
static void settle_items(nw_encoding *e, nw_pool *pool)
{
    run_on_pool(pool, e->block->item_count, settle_small_item, e);
    for (int i = 0; i < e->block->item_count; i++)
        if (is_large(e->block, i)) e->codec->ops->settle(e, i, pool);
}

/* Computes for each tile how many entries its cut has in earlier tiles. */
static void count_entries(nw_encoding *e)
{
    const nw_block *b = e->block;
    for (int c = 0; c < b->cut_count; c++) {
        uint32_t before = 0;
        for (int t = b->cut_tile[c]; t < b->cut_tile[c + 1]; t++) {
            e->partial[t].before = before;
            before += e->partial[t].entries;
        }
    }
}

/* Fails if a tile that is sent has a NaN or an infinity, and the codec cannot send those. */
static nw_status check_finite(nw_encoding *e)
{
    const nw_block *b = e->block;
    if (e->codec->ops->family <= NW_FAMILY_BF16) return NW_OK;
    for (int t = 0; t < b->tile_count; t++) {
        if (e->partial[t].largest < INFINITE || !e->out[b->tiles[t].cut]) continue;
        e->broken = &b->tiles[t];
        return NW_FAIL(NW_E_NUMERIC, "codec %s cannot send numbers that are not finite", e->codec->ops->name);
    }
    return NW_OK;
}

nw_status nw_codec_begin(nw_encoding *e, nw_pool *pool)
{
    const nw_block *b = e->block;
    const nw_codec_ops *ops = e->codec->ops;
    if (e->memory) e->memory->whole = e->ratio >= 1;
    if (ops->aim) run_on_pool(pool, b->item_count, aim_at_item, e);
    if (ops->look) {
        run_on_pool(pool, b->tile_count, look_at_tile, e);
        NW_TRY(check_finite(e));
    }
    if (ops->settle) {
        settle_items(e, pool);
        count_entries(e);
    }
    for (int c = 0; c < b->cut_count; c++) e->encoded[c] = (nw_encoded){.bytes = ops->bytes(e, c)};
    return NW_OK;
}

/* For codecs without a look step, the memory's begin runs here, so that the tile is read once. */
static void emit_tile(void *context, int index, int worker)
{
    nw_encoding *e = context;
    const nw_tile *tile = &e->block->tiles[index];
    nw_seen seen;
    if (!e->codec->ops->look) look_at_tile(context, index, worker);
    if (!e->out[tile->cut]) return;
    seen.entries = -1;
    e->codec->ops->emit(e, index, e->memory ? &seen : NULL);
    if (e->memory) e->memory->ops->sent(e->memory, tile, &seen);
}

static void close_cut(void *context, int index, int worker)
{
    nw_encoding *e = context;
    (void)worker;
    if (e->out[index]) e->codec->ops->close(e, index);
}

nw_status nw_codec_end(nw_encoding *e, nw_pool *pool)
{
    run_on_pool(pool, e->block->tile_count, emit_tile, e);
    if (e->codec->ops->close) run_on_pool(pool, e->block->cut_count, close_cut, e);
    return e->codec->ops->look ? NW_OK : check_finite(e);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

typedef struct round_job {
    nw_encoding *e;
    int round;
    float *out;
    const float *mean;
    float *target;
} round_job;

/* Where an item's floats begin in the vector of a round. */
static size_t round_place(const nw_block *b, int item, int round)
{
    size_t at = 0;
    for (int i = 0; i < item; i++) at += b->codec->ops->rounds->floats(b, i, round);
    return at;
}

size_t nw_codec_round_floats(const nw_block *b, int round) { return round_place(b, b->item_count, round); }

static void give_item(void *context, int index, int worker)
{
    const round_job *j = context;
    (void)worker;
    j->e->codec->ops->rounds->contribute(j->e, index, j->round, j->out + round_place(j->e->block, index, j->round));
}

/* Fails if a contribution is not finite; it is not if one of the item's floats is not. */
static nw_status check_given(nw_encoding *e, int round, const float *out)
{
    const nw_block *b = e->block;
    for (int i = 0; i < b->item_count && e->codec->ops->family > NW_FAMILY_BF16; i++) {
        size_t count = e->codec->ops->rounds->floats(b, i, round);
        if (nw_codec_kernels_best()->largest(out, count) >= INFINITE) {
            e->broken = &b->tiles[b->item_tile[i]];
            return NW_FAIL(NW_E_NUMERIC, "codec %s cannot send numbers that are not finite", e->codec->ops->name);
        }
        out += count;
    }
    return NW_OK;
}

nw_status nw_codec_contribute(nw_encoding *e, int round, float *out, nw_pool *pool)
{
    round_job j = {.e = e, .round = round, .out = out};
    if (round == 0 && e->memory) run_on_pool(pool, e->block->tile_count, look_at_tile, e);
    run_on_pool(pool, e->block->item_count, give_item, &j);
    return check_given(e, round, out);
}

static void turn_item(void *context, int index, int worker)
{
    const round_job *j = context;
    const nw_block *b = j->e->block;
    const float *mean = j->mean + round_place(b, index, j->round);
    const nw_rounds *rounds = j->e->codec->ops->rounds;
    (void)worker;
    rounds->use_mean(j->e, index, j->round, mean, j->target);
    if (!j->e->memory || !j->target) return;
    for (int t = b->item_tile[index]; t < b->item_tile[index + 1]; t++) {
        nw_seen seen = {.entries = -1};
        if (rounds->sent)
            rounds->sent(j->e, t, &seen);
        else
            memcpy(seen.values, j->target + b->tiles[t].first, b->tiles[t].count * sizeof(float));
        j->e->memory->ops->sent(j->e->memory, &b->tiles[t], &seen);
    }
}

void nw_codec_use_mean(nw_encoding *e, int round, const float *mean, float *target, nw_pool *pool)
{
    round_job j = {.e = e, .round = round, .mean = mean, .target = target};
    run_on_pool(pool, e->block->item_count, turn_item, &j);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct check_job {
    const nw_decoding *d;
    _Atomic bool broken;
} check_job;

typedef struct decode_job {
    const nw_decoding *d;
    float *out;
    nw_where where;
    bool add;
} decode_job;

static void check_tile(void *context, int index, int worker)
{
    check_job *j = context;
    (void)worker;
    if (!j->d->codec->ops->sound(j->d, j->d->block->cut_tile[j->d->cut] + index)) j->broken = true;
}

static void decode_tile(void *context, int index, int worker)
{
    const decode_job *j = context;
    const nw_decoding *d = j->d;
    int number = d->block->cut_tile[d->cut] + index;
    const nw_tile *tile = &d->block->tiles[number];
    size_t at = j->where == NW_AT_FIRST ? tile->first : j->where == NW_AT_PLACE ? tile->place : tile->kept;
    (void)worker;
    d->codec->ops->decode(d, number, j->out + at, j->add);
}

static int tiles_of(const nw_decoding *d) { return d->block->cut_tile[d->cut + 1] - d->block->cut_tile[d->cut]; }

nw_status nw_codec_check(const nw_decoding *d, nw_pool *pool)
{
    check_job j = {.d = d};
    NW_TRY(d->codec->ops->check(d));
    if (d->codec->ops->sound) run_on_pool(pool, tiles_of(d), check_tile, &j);
    NW_FAIL_IF(j.broken, NW_E_MESSAGE, "a block of codec %s has invalid codes", d->codec->ops->name);
    return NW_OK;
}

nw_status nw_codec_decode(const nw_decoding *d, float *out, nw_where where, bool add, nw_pool *pool)
{
    decode_job j = {d, out, where, add};
    NW_TRY(nw_codec_check(d, pool));
    run_on_pool(pool, tiles_of(d), decode_tile, &j);
    return NW_OK;
}

/* ---- scaling ----------------------------------------------------------------------------------------------------- */

typedef struct scale_job {
    const nw_tile *tiles;
    float *vector, factor;
} scale_job;

enum { LINE = 16 }; /* floats that are in the same line of the cache */

static void scale_tile(void *job, int index, int worker)
{
    const scale_job *j = job;
    const nw_tile *tile = &j->tiles[index];
    float *at = j->vector + tile->first;
    uint32_t i = 0;
    (void)worker;
    for (; i + LINE <= tile->count; i += LINE) {
        bool any = false;
        for (uint32_t k = 0; k < LINE; k++) any |= at[i + k] != 0;
        for (uint32_t k = 0; any && k < LINE; k++) at[i + k] *= j->factor;
    }
    for (; i < tile->count; i++) at[i] *= j->factor;
}

void nw_codec_scale(const nw_block *block, int cut, float *vector, float factor, nw_pool *pool)
{
    scale_job j = {block->tiles + block->cut_tile[cut], vector, factor};
    run_on_pool(pool, block->cut_tile[cut + 1] - block->cut_tile[cut], scale_tile, &j);
}
