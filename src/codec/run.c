/* run.c - see run.h. */
#include "codec/run.h"

enum { FEW = 3 }; /* tiles that are done sooner than other threads are woken */

static void run_on_pool(nw_pool *pool, int count, nw_pool_task task, void *context)
{
    if (pool && count > FEW) {
        nw_pool_run(pool, count, task, context);
        return;
    }
    for (int i = 0; i < count; i++) task(context, i, 0);
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

static void look_at_tile(void *context, int index, int worker)
{
    nw_encoding *e = context;
    const nw_tile *tile = &e->block->tiles[index];
    (void)worker;
    if (e->memory) e->memory->ops->begin(e->memory, tile, e->vector + tile->first);
    if (e->codec->ops->look) e->codec->ops->look(e, index);
}

static void settle_item(void *context, int index, int worker)
{
    nw_encoding *e = context;
    (void)worker;
    e->codec->ops->settle(e, index);
}

/* Where tiles have entries: how many come before each in its cut. */
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

void nw_codec_begin(nw_encoding *e, nw_pool *pool)
{
    const nw_block *b = e->block;
    const nw_codec_ops *ops = e->codec->ops;
    if (e->memory || ops->look) run_on_pool(pool, b->tile_count, look_at_tile, e);
    if (ops->settle) {
        run_on_pool(pool, b->item_count, settle_item, e);
        count_entries(e);
    }
    for (int c = 0; c < b->cut_count; c++) e->encoded[c] = (nw_encoded){.bytes = ops->bytes(e, c)};
}

static void emit_tile(void *context, int index, int worker)
{
    nw_encoding *e = context;
    const nw_tile *tile = &e->block->tiles[index];
    float decoded[NW_TILE_FLOATS];
    (void)worker;
    if (!e->out[tile->cut]) return;
    e->codec->ops->emit(e, index, e->memory ? decoded : NULL);
    if (e->memory) e->memory->ops->sent(e->memory, tile, decoded);
}

static void close_cut(void *context, int index, int worker)
{
    nw_encoding *e = context;
    (void)worker;
    if (e->out[index]) e->codec->ops->close(e, index);
}

void nw_codec_end(nw_encoding *e, nw_pool *pool)
{
    run_on_pool(pool, e->block->tile_count, emit_tile, e);
    if (e->codec->ops->close) run_on_pool(pool, e->block->cut_count, close_cut, e);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

typedef struct round_job {
    nw_encoding *e;
    int round;
    float *out;
    const float *mean;
    float *target;
} round_job;

/* Floats of the items before one. */
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
    j->e->codec->ops->rounds->give(j->e, index, j->round, j->out + round_place(j->e->block, index, j->round));
}

void nw_codec_give(nw_encoding *e, int round, float *out, nw_pool *pool)
{
    round_job j = {.e = e, .round = round, .out = out};
    if (round == 0 && e->memory) run_on_pool(pool, e->block->tile_count, look_at_tile, e);
    run_on_pool(pool, e->block->item_count, give_item, &j);
}

static void turn_item(void *context, int index, int worker)
{
    const round_job *j = context;
    const nw_block *b = j->e->block;
    const float *mean = j->mean + round_place(b, index, j->round);
    (void)worker;
    j->e->codec->ops->rounds->turn(j->e, index, j->round, mean, j->target);
    for (int t = b->item_tile[index]; j->e->memory && j->target && t < b->item_tile[index + 1]; t++)
        j->e->memory->ops->sent(j->e->memory, &b->tiles[t], j->target + b->tiles[t].first);
}

void nw_codec_turn(nw_encoding *e, int round, const float *mean, float *target, nw_pool *pool)
{
    round_job j = {.e = e, .round = round, .mean = mean, .target = target};
    run_on_pool(pool, e->block->item_count, turn_item, &j);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

typedef struct decode_job {
    const nw_decoding *d;
    float *out;
    nw_where where;
    bool add;
} decode_job;

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

nw_status nw_codec_decode(const nw_decoding *d, float *out, nw_where where, bool add, nw_pool *pool)
{
    decode_job j = {d, out, where, add};
    NW_TRY(d->codec->ops->check(d));
    run_on_pool(pool, d->block->cut_tile[d->cut + 1] - d->block->cut_tile[d->cut], decode_tile, &j);
    return NW_OK;
}
