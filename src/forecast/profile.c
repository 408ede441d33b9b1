/* profile.c - see profile.h. */
#include "forecast/profile.h"

#include "base/clock.h"
#include "codec/run.h"
#include "channel/layout.h"
#include "net/mpi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What people compare: each method with the memory that it needs, and values of 16 bits where there are places. */
static const nw_forecast_codec codecs[] = {
    {.name = "dense", .options = "", .letter = '.', .codec = {.name = "none"}},
    {.name = "fp16", .options = "--method fp16", .letter = 'f', .codec = {.name = "fp16"}},
    {.name = "int8",
     .options = "--method int8 --memory error",
     .letter = '8',
     .codec = {.name = "int8"},
     .memory = {.name = "error"}},
    {.name = "natural", .options = "--method natural", .letter = 'n', .codec = {.name = "natural"}},
    {.name = "qsgd 127",
     .options = "--method qsgd --qstates 127 --bucket 512",
     .letter = 'q',
     .codec = {.name = "qsgd", .levels = 127, .bucket = 512}},
    {.name = "terngrad", .options = "--method terngrad", .letter = 't', .codec = {.name = "terngrad"}},
    {.name = "sign",
     .options = "--method sign --memory error",
     .letter = 's',
     .codec = {.name = "sign"},
     .memory = {.name = "error"}},
    {.name = "powersgd 4",
     .options = "--method powersgd --powersgd-rank 4 --memory error",
     .letter = 'p',
     .codec = {.name = "powersgd", .rank = 4},
     .memory = {.name = "error"}},
    {.name = "randomk 1%",
     .options = "--method randomk --ratio 0.01 --memory error",
     .letter = 'r',
     .codec = {.name = "randomk", .ratio = 0.01, .shared = true},
     .memory = {.name = "error"}},
    {.name = "topk 1%",
     .options = "--method topk --ratio 0.01 --values fp16 --memory error",
     .letter = 'k',
     .codec = {.name = "topk", .ratio = 0.01, .values = NW_VALUES_FP16},
     .memory = {.name = "error"}},
    {.name = "dgc 0.1%",
     .options = "--method dgc --ratio 0.001 --fp16-values",
     .letter = 'd',
     .codec = {.name = "topk", .ratio = 0.001, .values = NW_VALUES_FP16, .counting = NW_COUNT_CEIL},
     .memory = {.name = "dgc", .momentum = 0.9, .masking = true}},
};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

int nw_forecast_codec_count(void) { return CODECS; }
const nw_forecast_codec *nw_forecast_codec_at(int index) { return &codecs[index]; }

/* ---- the network ---- */

/* After which share of a pass each tensor is final; marks: when each stage was done, from the pass's beginning on. */
static void find_final(nw_forecast_profile *p, const nw_synthetic *d, const int64_t *marks, int64_t begin)
{
    int stages = d->net->model.count;
    for (int t = 0; t < p->segments->count; t++) {
        int s = stages - 1;
        while (s > 0 && d->ready[s] > p->segments->at[t].offset) s--;
        p->final[t] = fmin(nw_seconds(marks[stages + s] - begin) / p->pass, 1);
    }
}

/* The best of some passes, and of some updates. */
static nw_status measure_net(nw_forecast_profile *p, nw_synthetic *d, int tries)
{
    int stages = d->net->model.count;
    NW_AUTOFREE int64_t *marks = calloc(2 * (size_t)stages, sizeof *marks);
    NW_FAIL_IF(!marks, NW_E_MEMORY, "no memory for the times of %d stages", stages);
    p->pass = p->update = INFINITY;
    for (int i = -1; i < tries; i++) {
        int64_t begin = nw_now_ns();
        NW_TRY(nw_synthetic_compute(d, marks));
        int64_t between = nw_now_ns();
        NW_TRY(nw_net_apply(d->net, 1e-6, 1.0));
        p->update = fmin(p->update, nw_seconds(nw_now_ns() - between));
        if (i < 0 || nw_seconds(between - begin) >= p->pass) continue;
        p->pass = nw_seconds(between - begin);
        find_final(p, d, marks, begin);
    }
    return NW_OK;
}

/* ---- codecs ---- */

typedef struct trial {
    const nw_forecast_profile *p;
    const nw_forecast_codec *plan;
    nw_codec *codec;
    nw_block block;
    nw_memory *memory;
    nw_scratch scratch;
    nw_partial *partial;
    uint8_t *bytes;
    float *sum, *kept;
    nw_pool *pool;
} trial;

static void free_trial(trial *t)
{
    nw_block_free(&t->block);
    nw_memory_free(t->memory);
    nw_scratch_free(&t->scratch);
    free(t->partial);
    free(t->bytes);
    free(t->sum);
    free(t->kept);
}

static nw_status make_trial(trial *t, const nw_segment *s)
{
    const nw_block *block = &t->block;
    NW_TRY(nw_block_make(&t->block, t->codec, &(nw_extent){0, s->count, 0, (uint32_t)s->shape[0]}, 1,
                         (size_t[]){0, s->count}, 1, 0));
    NW_TRY(nw_memory_create(&t->memory, &t->plan->memory, s->count));
    NW_TRY(nw_scratch_make(&t->scratch, &block, 1, t->pool ? nw_pool_threads(t->pool) : 1));
    NW_NEW(t->partial, t->block.tile_count + 1, "%d tiles", t->block.tile_count);
    NW_NEW(t->sum, s->count + 1, "a tensor of %zu floats", s->count);
    return NW_OK;
}

/* One tensor, `tries` times. */
static nw_status try_bytes(trial *t, const float *gradient, int tries, nw_forecast_tensor *out)
{
    nw_encoded encoded;
    nw_encoding e = {.block = &t->block,
                     .codec = t->codec,
                     .memory = t->memory,
                     .ratio = t->codec->options.ratio,
                     .clip = 1,
                     .vector = gradient,
                     .partial = t->partial,
                     .scratch = &t->scratch,
                     .out = &t->bytes,
                     .encoded = &encoded};
    *out = (nw_forecast_tensor){.encode = INFINITY, .decode = INFINITY, .fill = INFINITY, .mean = INFINITY};
    NW_NEW(t->bytes, t->block.floats * 5 + 4096, "a message of %zu floats", t->block.floats);
    for (int i = 0; i < tries; i++) {
        e.key.step = (uint64_t)i;
        int64_t begin = nw_now_ns();
        NW_TRY(nw_codec_begin(&e, t->pool));
        NW_TRY(nw_codec_end(&e, t->pool));
        int64_t between = nw_now_ns();
        nw_decoding d = {.block = &t->block,
                         .codec = t->codec,
                         .key = e.key,
                         .in = t->bytes,
                         .bytes = encoded.bytes,
                         .scratch = &t->scratch};
        NW_TRY(nw_codec_decode(&d, t->sum, NW_AT_FIRST, false, t->pool));
        int64_t filled = nw_now_ns();
        NW_TRY(nw_codec_decode(&d, t->sum, NW_AT_FIRST, true, t->pool));
        int64_t decoded = nw_now_ns();
        nw_codec_scale(&t->block, 0, t->sum, 0.5f, t->pool);
        out->encode = fmin(out->encode, nw_seconds(between - begin));
        out->fill = fmin(out->fill, nw_seconds(filled - between));
        out->decode = fmin(out->decode, nw_seconds(decoded - filled));
        out->mean = fmin(out->mean, nw_seconds(nw_now_ns() - decoded));
    }
    out->bytes = (double)encoded.bytes;
    return NW_OK;
}

static nw_status try_rounds(trial *t, const float *gradient, int tries, nw_forecast_tensor *out)
{
    const nw_rounds *r = t->codec->ops->rounds;
    NW_NEW(t->kept, r->keeps(&t->block, 0) + 1, "what a codec keeps");
    nw_encoding e = {.block = &t->block,
                     .codec = t->codec,
                     .memory = t->memory,
                     .ratio = t->codec->options.ratio,
                     .clip = 1,
                     .vector = gradient,
                     .kept = &t->kept,
                     .partial = t->partial,
                     .scratch = &t->scratch};
    *out = (nw_forecast_tensor){.encode = INFINITY, .rounds = r->count};
    r->start(t->codec, &t->block, 0, t->kept);
    NW_NEW(t->bytes, t->block.floats * 4 + 64, "a round");
    for (int round = 0; round < r->count; round++) {
        out->round_bytes[round] = 4.0 * (double)nw_codec_round_floats(&t->block, round);
        out->bytes += out->round_bytes[round];
    }
    for (int i = 0; i < tries; i++) {
        e.key.step = (uint64_t)i;
        int64_t begin = nw_now_ns();
        for (int round = 0; round < r->count; round++) {
            nw_codec_contribute(&e, round, (float *)(void *)t->bytes, t->pool);
            nw_codec_use_mean(&e, round, (float *)(void *)t->bytes, round + 1 == r->count ? t->sum : NULL, t->pool);
        }
        out->encode = fmin(out->encode, nw_seconds(nw_now_ns() - begin));
    }
    return NW_OK;
}

/* As training has it (channel/assign.h): what PowerSGD cannot make smaller is sent as it is, and vectors with DGC. */
static bool stays_dense(const nw_forecast_codec *plan, const nw_codec *codec, const nw_segment *s)
{
    bool dgc = plan->memory.name && strcmp(plan->memory.name, "dgc") == 0;
    size_t rows = s->dims > 1 ? (size_t)s->shape[0] : 1;
    return (dgc && s->dims < 2) || (codec->ops->gains && !codec->ops->gains(codec, rows, s->count));
}

static nw_status measure_tensor(nw_forecast_profile *p, int codec, int tensor, const float *gradients, int tries,
                                nw_pool *pool)
{
    const nw_segment *s = &p->segments->at[tensor];
    nw_forecast_tensor *out = &p->tensors[codec][tensor];
    if (stays_dense(&codecs[codec], p->codecs[codec], s)) {
        *out = p->tensors[0][tensor];
        out->dense = true;
        return NW_OK;
    }
    trial t = {.p = p, .plan = &codecs[codec], .codec = p->codecs[codec], .pool = pool};
    nw_status status = make_trial(&t, s);
    if (status == NW_OK)
        status = t.codec->ops->rounds ? try_rounds(&t, gradients + s->offset, tries, out)
                                      : try_bytes(&t, gradients + s->offset, tries, out);
    free_trial(&t);
    return status;
}

/* Options of the table over those that every codec begins with. */
static nw_codec_options options_of(const nw_forecast_codec *c)
{
    nw_codec_options o = nw_codec_options_default(c->codec.name);
    if (c->codec.ratio > 0) o.ratio = c->codec.ratio;
    if (c->codec.values) o.values = c->codec.values;
    if (c->codec.levels) o.levels = c->codec.levels;
    if (c->codec.rank) o.rank = c->codec.rank;
    o.counting = c->codec.counting;
    o.bucket = c->codec.bucket;
    return o;
}

/* Every time of a profile but `add`, in one order. */
static int list_times(nw_forecast_profile *p, double **list)
{
    int n = 0;
    list[n++] = &p->pass;
    list[n++] = &p->update;
    for (int t = 0; t < p->segments->count; t++) list[n++] = &p->final[t];
    for (int c = 0; c < CODECS; c++)
        for (int t = 0; t < p->segments->count; t++) {
            nw_forecast_tensor *at = &p->tensors[c][t];
            list[n++] = &at->encode;
            list[n++] = &at->decode;
            list[n++] = &at->fill;
            list[n++] = &at->mean;
        }
    return n;
}

/* The mean over ranks of each time. */
static nw_status share_times(nw_forecast_profile *p, int ranks)
{
    size_t most = 2 + (size_t)p->segments->count * (1 + 4 * CODECS);
    NW_AUTOFREE double **list = calloc(most, sizeof(double *));
    NW_AUTOFREE double *own = calloc(most, sizeof(double)), *all = calloc(most * (size_t)ranks, sizeof(double));
    NW_FAIL_IF(!list || !own || !all, NW_E_MEMORY, "no memory for %zu times of %d ranks", most, ranks);
    size_t count = (size_t)list_times(p, list);
    for (size_t i = 0; i < count; i++) own[i] = *list[i];
    NW_TRY(nw_mpi_allgather(own, count * sizeof(double), all));
    for (size_t i = 0; i < count; i++) {
        *list[i] = 0;
        for (size_t r = 0; r < (size_t)ranks; r++) *list[i] += all[r * count + i] / ranks;
    }
    return NW_OK;
}

nw_status nw_forecast_measure(nw_forecast_profile *p, nw_synthetic *net, int tries, int ranks)
{
    const nw_params *params = &net->net->model.params;
    size_t count = (size_t)params->learned.count;
    *p = (nw_forecast_profile){.segments = &params->learned};
    NW_NEW(p->final, count, "%zu tensors", count);
    NW_NEW(p->codecs, CODECS, "codecs");
    NW_NEW(p->tensors, CODECS, "codecs");
    if (ranks > 1) NW_TRY(nw_mpi_barrier());
    NW_TRY(measure_net(p, net, tries));
    for (int c = 0; c < CODECS; c++) {
        nw_codec_options o = options_of(&codecs[c]);
        NW_NEW(p->tensors[c], count, "%zu tensors", count);
        NW_TRY(nw_codec_create(&p->codecs[c], &o));
        if (ranks > 1) NW_TRY(nw_mpi_barrier());
        for (int t = 0; t < p->segments->count; t++)
            NW_TRY(measure_tensor(p, c, t, params->gradients, tries, net->net->model.pass.exec.pool));
    }
    if (ranks > 1) NW_TRY(share_times(p, ranks));
    double floats = 0, decode = 0;
    for (int t = 0; t < p->segments->count; t++) {
        floats += (double)p->segments->at[t].count;
        decode += p->tensors[0][t].decode;
    }
    p->add = decode / floats;
    return NW_OK;
}

void nw_forecast_profile_free(nw_forecast_profile *p)
{
    for (int c = 0; c < CODECS; c++) {
        if (p->codecs) nw_codec_free(p->codecs[c]);
        if (p->tensors) free(p->tensors[c]);
    }
    free(p->codecs);
    free(p->tensors);
    free(p->final);
    *p = (nw_forecast_profile){0};
}

/* ---- steps ---- */

/* Tensors of a bucket, added up. */
static void add_tensor(nw_forecast_bucket *b, const nw_forecast_profile *p, const nw_forecast_tensor *t, int index)
{
    b->floats += (double)p->segments->at[index].count;
    b->bytes += t->bytes;
    b->encode += t->encode;
    b->decode += t->decode;
    b->fill += t->fill;
    b->mean += t->mean;
    b->final = fmax(b->final, p->final[index]);
    b->rounds = t->rounds;
    for (int r = 0; r < t->rounds; r++) b->round_bytes[r] += t->round_bytes[r];
}

static void fill_buckets(const nw_forecast_profile *p, int codec, const nw_layout *l, nw_forecast_bucket *buckets)
{
    for (int b = 0; b < l->count; b++) {
        const nw_block *block = &l->at[b].block;
        buckets[b].mode = l->at[b].summed ? NW_MODE_SUMMED : l->at[b].gathered ? NW_MODE_GATHER : NW_MODE_OWNERS;
        for (int t = 0, s = 0; t < block->tile_count; t++) {
            while (s + 1 < p->segments->count && p->segments->at[s + 1].offset <= block->tiles[t].first) s++;
            if (block->tiles[t].first == p->segments->at[s].offset)
                add_tensor(&buckets[b], p, &p->tensors[codec][s], s);
        }
    }
}

nw_status nw_forecast_step_time(const nw_forecast_profile *p, int codec, nw_collective collective, int delay,
                                nw_forecast_link link, size_t bucket_bytes, nw_forecast_time *time)
{
    NW_AUTOFREE const nw_codec **by_tensor = calloc((size_t)p->segments->count + 1, sizeof *by_tensor);
    NW_CLEANUP(nw_layout_free) nw_layout layout = {0};
    NW_FAIL_IF(!by_tensor, NW_E_MEMORY, "no memory for a plan");
    for (int t = 0; t < p->segments->count; t++)
        by_tensor[t] = p->tensors[codec][t].dense ? &nw_codec_plain : p->codecs[codec];
    NW_TRY(nw_layout_make(&layout, &(nw_layout_options){.segments = p->segments,
                                                        .codecs = by_tensor,
                                                        .dense = &nw_codec_plain,
                                                        .bucket_bytes = bucket_bytes,
                                                        .collective = collective,
                                                        .cuts = link.members}));
    NW_AUTOFREE nw_forecast_bucket *buckets = calloc((size_t)layout.count + 1, sizeof *buckets);
    NW_FAIL_IF(!buckets, NW_E_MEMORY, "no memory for a plan");
    fill_buckets(p, codec, &layout, buckets);
    *time = nw_forecast_predict(&(nw_forecast_step){.buckets = buckets,
                                                    .count = layout.count,
                                                    .pass = p->pass,
                                                    .update = p->update,
                                                    .add = p->add,
                                                    .members = link.members,
                                                    .delay = delay,
                                                    .bytes_per_second = link.bytes_per_second,
                                                    .latency = link.latency,
                                                    .overhead = link.overhead});
    return NW_OK;
}
