/* channel.c - see channel.h. */
#include "channel/channel.h"

#include "base/clock.h"

#include "codec/kernels.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

void nw_channel_touch(nw_actions *actions, const nw_block *b, int cut, const float *vector, bool write)
{
    for (int t = b->cut_tile[cut]; t < b->cut_tile[cut + 1]; t++)
        nw_actions_touch(actions, vector + b->tiles[t].first, b->tiles[t].count, write);
}

static void fill_header(const nw_channel *c, const nw_encoding *e, int cut, int64_t version, nw_header *h)
{
    h->channel = (uint8_t)c->o.number;
    h->codec = (uint8_t)e->codec->ops->id;
    h->part = (uint16_t)(c->o.only >= 0 ? c->o.only : cut);
    h->count = (uint32_t)e->block->cut_floats[cut];
    h->bytes = (uint32_t)e->encoded[cut].bytes;
    h->index_bytes = (uint32_t)e->encoded[cut].index_bytes;
    h->scale_bytes = (uint32_t)e->encoded[cut].scale_bytes;
    h->step = e->key.step;
    h->version = (uint64_t)version;
}

static void drop_messages(nw_message **by_cut, int count)
{
    for (int i = 0; i < count; i++) {
        nw_message_drop(by_cut[i]);
        by_cut[i] = NULL;
    }
}

/* Allocates the messages; the first half of the encoding has computed their sizes. */
static nw_status take_messages(nw_channel *c, nw_actions *actions, const nw_encoding *e, int skip, nw_message **by_cut)
{
    const nw_block *b = e->block;
    nw_status status = NW_OK;
    for (int i = 0; i < b->cut_count; i++) {
        by_cut[i] = NULL;
        c->out[i] = NULL;
        if (b->cut_floats[i] == 0 || i == skip || status != NW_OK) continue;
        status = nw_message_take(actions->pool, e->encoded[i].bytes, &by_cut[i]);
        if (status == NW_OK) c->out[i] = by_cut[i]->payload;
    }
    if (status != NW_OK) drop_messages(by_cut, b->cut_count);
    return status;
}

/* What was touched since `before` was for a codec, which takes longer than reading and writing, or shorter. */
static void charge(nw_actions *actions, size_t before, const nw_codec *codec, const char *what)
{
    actions->touched = before + nw_factors_apply(actions->factors, codec->ops->name, what, actions->touched - before);
}

static const char *what_encodes(const nw_encoding *e) { return e->memory ? e->memory->ops->name : NW_FACTOR_ENCODE; }

static nw_encoding encoding(nw_channel *c, int bucket, nw_moment when, const float *vector)
{
    const nw_block *b = c->parts ? &c->parts[bucket] : &c->o.layout->at[bucket].block;
    return (nw_encoding){.block = b,
                         .codec = b->codec,
                         .memory = c->o.layout->at[bucket].dense ? NULL : c->memory,
                         .key = {(uint64_t)when.step, (uint32_t)c->o.number, c->key},
                         .ratio = nw_codec_ratio(b->codec, when.clock),
                         .clip = c->clip,
                         .vector = vector,
                         .kept = c->kept ? c->kept[bucket] : NULL,
                         .steps = c->steps,
                         .partial = c->partial,
                         .scratch = &c->scratch,
                         .out = c->out,
                         .encoded = c->encoded};
}

/* If the encoding failed because of NaN or infinity, fails with a sentence that names the tensor. */
static nw_status name_tensor(const nw_channel *c, const nw_encoding *e, nw_status status)
{
    const nw_segments *s = c->o.layout->segments;
    if (status != NW_E_NUMERIC || !e->broken) return status;
    int i = 0;
    while (i + 1 < s->count && s->at[i + 1].offset <= e->broken->first) i++;
    return NW_FAIL(NW_E_NUMERIC,
                   "the %s of rank %d for %s in step %" PRIu64
                   " is not finite, and codec %s cannot send it; lower --lr, or set --clip-norm",
                   c->o.what ? c->o.what : "gradient", c->o.rank, s->at[i].name, e->key.step + 1, e->codec->ops->name);
}

nw_status nw_channel_encode(nw_channel *c, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                            int skip, nw_plain plain, nw_message **by_cut)
{
    int64_t began_ns = nw_now_ns();
    size_t before = actions->touched;
    nw_encoding e = encoding(c, bucket, when, vector);
    const nw_block *b = e.block;
    if (plain) {
        e.codec = &nw_codec_plain;
        e.memory = NULL;
    }
    for (int i = 0; i < b->cut_count; i++)
        c->out[i] = i == skip ? NULL : (uint8_t *)b; /* not NULL: this cut will be sent */
    NW_TRY(name_tensor(c, &e, nw_codec_begin(&e, c->o.pool)));
    NW_TRY(take_messages(c, actions, &e, skip, by_cut));
    NW_TRY_OR(name_tensor(c, &e, nw_codec_end(&e, c->o.pool)), drop_messages(by_cut, b->cut_count));
    for (int i = 0; i < b->cut_count; i++) {
        if (!by_cut[i]) continue;
        nw_channel_stats_add(c->o.stats, e.codec, b->cut_floats[i], by_cut[i]->payload, e.encoded[i]);
        fill_header(c, &e, i, when.version, by_cut[i]->header);
        by_cut[i]->header->bucket = (uint32_t)bucket;
        nw_channel_touch(actions, b, i, vector, false);
        actions->touched += e.encoded[i].bytes;
        if (e.memory) actions->touched += 2 * b->cut_floats[i] * sizeof(float);
    }
    charge(actions, before, e.codec, what_encodes(&e));
    nw_channel_stats_add_time(c->o.stats, e.codec, NW_STATS_ENCODING, nw_now_ns() - began_ns);
    return NW_OK;
}

nw_status nw_channel_contribute(nw_channel *c, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                                int round, float *out)
{
    int64_t began_ns = nw_now_ns();
    size_t before = actions->touched, floats;
    nw_encoding e = encoding(c, bucket, when, c->copy ? c->copy : vector);
    for (int t = 0; t < e.block->tile_count && c->copy && round == 0; t++) {
        const nw_tile *tile = &e.block->tiles[t];
        memcpy(c->copy + tile->first, vector + tile->first, tile->count * sizeof(float));
    }
    NW_TRY(name_tensor(c, &e, nw_codec_contribute(&e, round, out, c->o.pool)));
    if (round == 0) nw_channel_touch(actions, e.block, 0, vector, false);
    if (e.memory || c->copy) actions->touched += (round == 0 ? 2 : 1) * e.block->floats * sizeof(float);
    floats = nw_codec_round_floats(e.block, round);
    actions->touched += floats * sizeof(float);
    charge(actions, before, e.codec, what_encodes(&e));
    nw_channel_stats_add_round(c->o.stats, e.codec, round == 0 ? e.block->floats : 0, floats * sizeof(float));
    nw_channel_stats_add_time(c->o.stats, e.codec, NW_STATS_ENCODING, nw_now_ns() - began_ns);
    return NW_OK;
}

void nw_channel_use_mean(nw_channel *c, nw_actions *actions, int bucket, nw_moment when, const float *vector, int round,
                         const float *mean, float *target)
{
    int64_t began_ns = nw_now_ns();
    size_t before = actions->touched;
    nw_encoding e = encoding(c, bucket, when, c->copy ? c->copy : vector);
    nw_codec_use_mean(&e, round, mean, target, c->o.pool);
    actions->touched += nw_codec_round_floats(e.block, round) * sizeof(float);
    if (target) nw_channel_touch(actions, e.block, 0, target, true);
    if (target && e.memory) actions->touched += 2 * e.block->floats * sizeof(float);
    charge(actions, before, e.codec, NW_FACTOR_DECODE);
    nw_channel_stats_add_time(c->o.stats, e.codec, NW_STATS_DECODING, nw_now_ns() - began_ns);
}

typedef struct reduced_job {
    nw_memory *memory;
    const nw_bucket *bucket;
    float *mean;
} reduced_job;

static void reduced_tile(void *context, int index, int worker)
{
    const reduced_job *j = context;
    const nw_tile *tile = &j->bucket->block.tiles[index];
    (void)worker;
    j->memory->ops->reduced(j->memory, tile, j->mean + tile->first, j->bucket->dense);
}

void nw_channel_reduced(nw_channel *c, nw_actions *actions, int bucket, float *mean)
{
    const nw_bucket *b = &c->o.layout->at[bucket];
    reduced_job j = {c->memory, b, mean};
    if (!c->memory || !c->memory->ops->reduced || (!c->memory->ops->common && c->memory->ops->estimates == b->dense))
        return;
    if (c->o.pool)
        nw_pool_run(c->o.pool, b->block.tile_count, reduced_tile, &j);
    else
        for (int t = 0; t < b->block.tile_count; t++) reduced_tile(&j, t, 0);
    for (int i = 0; i < b->block.cut_count; i++) nw_channel_touch(actions, &b->block, i, mean, true);
    actions->touched += 3 * b->block.floats * sizeof(float);
}

/* ---- decoding ---------------------------------------------------------------------------------------------------- */

/* The cut that a message holds. */
static int cut_of(const nw_channel *c, const nw_header *h) { return c->o.whole ? 0 : h->part; }

nw_status nw_channel_check(const nw_channel *c, const nw_header *h)
{
    const nw_layout *l = c->o.layout;
    NW_FAIL_IF(h->bucket >= (uint32_t)l->count || cut_of(c, h) >= l->at[h->bucket].block.cut_count, NW_E_MESSAGE,
               "rank %u sent part %u of bucket %u, which does not exist; there are %d buckets", h->from, h->part,
               h->bucket, l->count);
    const nw_block *b = nw_channel_block(c, h);
    NW_FAIL_IF(h->codec != b->codec->ops->id && h->codec != NW_CODEC_NONE, NW_E_MESSAGE,
               "rank %u encodes bucket %u of step %" PRIu64
               " with codec %u, but this rank with %d (%s); give all ranks "
               "the same options",
               h->from, h->bucket, h->step, h->codec, (int)b->codec->ops->id, b->codec->ops->name);
    size_t floats = b->cut_floats[cut_of(c, h)];
    NW_FAIL_IF(h->count != floats || floats == 0, NW_E_MESSAGE,
               "rank %u sent %u values for part %u of bucket %u, which has %zu", h->from, h->count, h->part, h->bucket,
               floats);
    return NW_OK;
}

static nw_decoding decoding(nw_channel *c, const nw_message *m, int from, const nw_block *b, int cut)
{
    const nw_header *h = m->header;
    return (nw_decoding){.block = b,
                         .codec = h->codec == NW_CODEC_NONE ? &nw_codec_plain : b->codec,
                         .key = {h->step, (uint32_t)c->o.number, (uint32_t)from},
                         .cut = cut,
                         .in = m->payload,
                         .bytes = h->bytes,
                         .scratch = &c->scratch};
}

/* If a message cannot be decoded, fails with a sentence that names its sender, its tensors and its step. */
static nw_status name_message(const nw_channel *c, const nw_header *h, nw_status status)
{
    char why[512], tensors[160];
    if (status != NW_E_MESSAGE) return status;
    snprintf(why, sizeof why, "%s", nw_error_message());
    nw_layout_name(c->o.layout, c->o.layout->segments, (int)h->bucket, tensors, sizeof tensors);
    return NW_FAIL(NW_E_MESSAGE, "what rank %u sent of %s in step %" PRIu64 " cannot be decoded: %s", h->from, tensors,
                   h->step + 1, why);
}

nw_decoding nw_channel_read(nw_channel *c, const nw_message *m, int from)
{
    return decoding(c, m, from, nw_channel_block(c, m->header), cut_of(c, m->header));
}

nw_status nw_channel_decode(nw_channel *c, nw_actions *actions, const nw_message *m, int from, float *out,
                            nw_where where, bool add)
{
    const nw_header *h = m->header;
    const nw_block *b = nw_channel_block(c, h);
    size_t before = actions->touched;
    nw_decoding d = nw_channel_read(c, m, from);
    if (where == NW_AT_FIRST)
        nw_channel_touch(actions, b, cut_of(c, h), out, true);
    else
        nw_actions_touch(actions, out, h->count, true);
    actions->touched += h->bytes + (add ? h->count * sizeof(float) : 0);
    charge(actions, before, d.codec, NW_FACTOR_DECODE);
    int64_t began_ns = nw_now_ns();
    nw_status status = nw_codec_decode(&d, out, where, add, c->o.pool);
    nw_channel_stats_add_time(c->o.stats, d.codec, NW_STATS_DECODING, nw_now_ns() - began_ns);
    return name_message(c, h, status);
}

nw_status nw_channel_decode_own(nw_channel *c, nw_actions *actions, const nw_message *m, float *out, bool add)
{
    const nw_header *h = m->header;
    nw_decoding d = decoding(c, m, c->o.member, &c->parts[h->bucket], 0);
    size_t before = actions->touched;
    actions->touched += h->bytes + (add ? 2 : 1) * h->count * sizeof(float);
    charge(actions, before, d.codec, NW_FACTOR_DECODE);
    return nw_codec_decode(&d, out, NW_AT_KEPT, add, c->o.pool);
}

static void negate(float *u, const nw_block *b, int cut)
{
    for (int t = b->cut_tile[cut]; t < b->cut_tile[cut + 1]; t++)
        nw_codec_kernels_best()->scale(u + b->tiles[t].kept, -1, b->tiles[t].count);
}

/* h - d is -(-h + d). */
nw_status nw_channel_undo(nw_channel *c, nw_actions *actions, const nw_message *m, bool *kept)
{
    const nw_header *h = m->header;
    const nw_block *b = c->parts ? &c->parts[h->bucket] : nw_channel_block(c, h);
    *kept = c->memory != NULL && !c->o.layout->at[h->bucket].dense && h->codec == (uint8_t)b->codec->ops->id;
    if (!*kept) return NW_OK;
    nw_decoding d = decoding(c, m, c->o.member, b, c->parts ? 0 : cut_of(c, h));
    size_t before = actions->touched;
    actions->touched += h->bytes + 2 * h->count * sizeof(float);
    charge(actions, before, d.codec, NW_FACTOR_DECODE);
    if (!c->memory->ops->estimates) return nw_codec_decode(&d, c->memory->v, NW_AT_KEPT, true, c->o.pool);
    negate(c->memory->u, b, d.cut);
    nw_status status = nw_codec_decode(&d, c->memory->u, NW_AT_KEPT, true, c->o.pool);
    negate(c->memory->u, b, d.cut);
    return status;
}

/* ---- state and life ---------------------------------------------------------------------------------------------- */

/* Lists the memory of a single cut: contiguous ranges of the vector, all under one name. */
static void list_part(nw_channel *c, const nw_block *b, nw_state *s)
{
    for (int t = 0, next; t < b->tile_count; t = next) {
        size_t count = 0;
        const nw_tile *begin = &b->tiles[t];
        for (next = t; next < b->tile_count && b->tiles[next].first == begin->first + count; next++)
            count += b->tiles[next].count;
        nw_state_vector(s, c->o.name, NW_STATE_RANGE, c->memory->v + begin->kept, begin->first, count);
    }
}

/* Lists the state of codecs with rounds for the items of a bucket; it is equal on all members. */
static void list_kept(nw_channel *c, int bucket, nw_state *s)
{
    const nw_block *b = &c->o.layout->at[bucket].block;
    for (int i = 0; i < b->item_count; i++) {
        char name[NW_STATE_NAME];
        int64_t count = (int64_t)b->codec->ops->rounds->keeps(b, i);
        snprintf(name, sizeof name, "%s.%s.%u", c->o.name, b->codec->ops->name, b->number[i]);
        if (count > 0) nw_state_tensor(s, name, NW_STATE_KEPT, NW_STATE_F32, 1, &count, c->kept[bucket][i]);
    }
}

static void list_delivered(nw_channel *c, const char *name, float *data, nw_state *s)
{
    nw_state_vector(s, name, NW_STATE_DELIVERED, data, 0, c->memory->floats);
    s->at[s->count - 1].mean = c->o.mean;
}

static bool is_dense(const nw_layout *l, size_t first)
{
    for (int k = 0; k < l->count; k++)
        for (int t = 0; t < l->at[k].block.tile_count && l->at[k].dense; t++)
            if (l->at[k].block.tiles[t].first == first) return true;
    return false;
}

/* The momentum of compressed items differs from member to member; that of dense items is equal. The dense ones are
 * listed a second time, as state that all members share, so that it is read last in a world of another size. */
static void list_momentum(nw_channel *c, nw_state *s)
{
    const nw_segments *segments = c->o.layout->segments;
    char name[NW_STATE_NAME];
    snprintf(name, sizeof name, "%s_momentum", c->o.name);
    if (c->memory->ops->common) {
        nw_state_vector(s, name, NW_STATE_KEPT, c->memory->u, 0, c->memory->floats);
        return;
    }
    list_delivered(c, name, c->memory->u, s);
    for (int i = 0; i < segments->count; i++) {
        size_t first = segments->at[i].offset;
        int64_t count = (int64_t)segments->at[i].count;
        if (!is_dense(c->o.layout, first)) continue;
        snprintf(name, sizeof name, "%s_momentum.dense.%d", c->o.name, i);
        nw_state_tensor(s, name, NW_STATE_KEPT, NW_STATE_F32, 1, &count, c->memory->u + first);
    }
}

/* The receivers' estimate of each member's gradient, and their mean, with which all start in a world of another
 * size. */
static void list_estimates(nw_channel *c, nw_state *s)
{
    char name[NW_STATE_NAME];
    snprintf(name, sizeof name, "%s_estimate", c->o.name);
    nw_state_vector(s, name, NW_STATE_KEPT, c->memory->mean, 0, c->memory->floats);
    nw_state_vector(s, name, NW_STATE_FOLLOWS, c->memory->u, 0, c->memory->floats);
}

void nw_channel_state(nw_channel *c, nw_state *s)
{
    for (int b = 0; c->kept && b < c->o.layout->count; b++)
        if (c->kept[b]) list_kept(c, b, s);
    if (!c->memory || c->o.share) return;
    if (c->o.restarts) {
        int64_t count = (int64_t)c->memory->floats;
        if (count > 0) nw_state_tensor(s, c->o.name, NW_STATE_OWN, NW_STATE_F32, 1, &count, c->memory->v);
        return;
    }
    for (int b = 0; c->parts && b < c->o.layout->count; b++) list_part(c, &c->parts[b], s);
    if (c->parts) return;
    if (c->memory->ops->estimates) {
        list_estimates(c, s);
        return;
    }
    list_delivered(c, c->o.name, c->memory->v, s);
    if (c->memory->u) list_momentum(c, s);
}

static nw_status make_parts(nw_channel *c, size_t *floats)
{
    const nw_layout *l = c->o.layout;
    NW_NEW(c->parts, l->count + 1, "%d buckets", l->count);
    *floats = 0;
    for (int b = 0; b < l->count; b++) {
        if (l->at[b].gathered || l->at[b].summed) continue; /* such buckets have no owners */
        NW_TRY(nw_block_make_part(&c->parts[b], &l->at[b].block, c->o.only, *floats));
        *floats += c->parts[b].floats;
    }
    return NW_OK;
}

/* Allocates the state that a codec with rounds keeps for each item of a bucket: a list of addresses, then the
 * floats. */
static nw_status make_kept(nw_channel *c, int bucket)
{
    const nw_block *b = &c->o.layout->at[bucket].block;
    const nw_rounds *r = b->codec->ops->rounds;
    size_t floats = 0;
    for (int i = 0; i < b->item_count; i++) floats += r->keeps(b, i);
    float **at = calloc(1, (size_t)(b->item_count + 1) * sizeof *at + floats * sizeof(float));
    NW_FAIL_IF(!at, NW_E_MEMORY, "no memory for the state of codec %s", b->codec->ops->name);
    float *next = (float *)(at + b->item_count + 1);
    c->kept[bucket] = at;
    for (int i = 0; i < b->item_count; i++) {
        at[i] = next;
        next += r->keeps(b, i);
        r->start(b->codec, b, i, at[i]);
    }
    return NW_OK;
}

static nw_status make_scratch(nw_channel *c)
{
    const nw_layout *l = c->o.layout;
    const nw_block **blocks = calloc((size_t)l->count + 1, sizeof *blocks);
    NW_FAIL_IF(!blocks, NW_E_MEMORY, "no memory for a list of %d buckets", l->count);
    for (int b = 0; b < l->count; b++) blocks[b] = &l->at[b].block;
    nw_status status = nw_scratch_make(&c->scratch, blocks, l->count, c->o.pool ? nw_pool_threads(c->o.pool) : 1);
    free(blocks);
    return status;
}

static nw_status make_channel(nw_channel *c)
{
    const nw_layout *l = c->o.layout;
    size_t floats = l->floats, tiles = 0, cuts = 0;
    if (c->o.only >= 0) NW_TRY(make_parts(c, &floats));
    for (int i = 0; i < l->count; i++) {
        const nw_block *b = &l->at[i].block;
        if ((size_t)b->tile_count > tiles) tiles = (size_t)b->tile_count;
        if ((size_t)b->cut_count > cuts) cuts = (size_t)b->cut_count;
    }
    NW_NEW(c->kept, l->count + 1, "%d buckets", l->count);
    for (int b = 0; b < l->count; b++)
        if (l->at[b].summed && c->o.only < 0) NW_TRY(make_kept(c, b));
    NW_NEW(c->partial, tiles + 1, "%zu tiles", tiles);
    NW_NEW(c->out, cuts + 1, "%zu cuts", cuts);
    NW_NEW(c->encoded, cuts + 1, "%zu cuts", cuts);
    NW_TRY(make_scratch(c));
    c->memory = c->o.share;
    if (!c->memory) NW_TRY(nw_memory_create(&c->memory, &c->o.memory, floats));
    for (int b = 0; b < l->count && c->o.only < 0 && !c->memory && !c->copy; b++)
        if (l->at[b].summed && l->at[b].block.codec->ops->rounds->count > 1)
            NW_NEW(c->copy, floats + 1, "a copy of %zu floats", floats);
    return NW_OK;
}

nw_status nw_channel_make(nw_channel *channel, const nw_channel_options *options)
{
    *channel = (nw_channel){.o = *options, .clip = 1, .key = (uint32_t)options->member};
    NW_TRY_OR(make_channel(channel), nw_channel_free(channel));
    return NW_OK;
}

void nw_channel_free(nw_channel *c)
{
    for (int b = 0; c->parts && b < c->o.layout->count; b++) nw_block_free(&c->parts[b]);
    for (int b = 0; c->kept && b < c->o.layout->count; b++) free(c->kept[b]);
    free(c->kept);
    free(c->parts);
    free(c->copy);
    free(c->partial);
    free(c->out);
    free(c->encoded);
    nw_scratch_free(&c->scratch);
    if (!c->o.share) nw_memory_free(c->memory);
    *c = (nw_channel){0};
}
