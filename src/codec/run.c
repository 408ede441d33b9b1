/* run.c - see run.h. */
#include "codec/run.h"

enum { FEW = 3 }; /* tiles that are done sooner than other threads are woken */

static void run(nw_pool *pool, int count, nw_pool_task task, void *context)
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
    if (e->memory || ops->look) run(pool, b->tile_count, look_at_tile, e);
    if (ops->settle) {
        run(pool, b->item_count, settle_item, e);
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
    run(pool, e->block->tile_count, emit_tile, e);
    if (e->codec->ops->close) run(pool, e->block->cut_count, close_cut, e);
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
    run(pool, d->block->cut_tile[d->cut + 1] - d->block->cut_tile[d->cut], decode_tile, &j);
    return NW_OK;
}
