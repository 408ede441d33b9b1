/*
 * factors.c - see factors.h.
 *
 * A codec has the tensors that it would have in training, each as an item, in buckets of the run's size; what stays
 * dense does not count. Of a large network the first tensors stand for all. Each bucket is encoded and its message added
 * to a vector; the median of TRIES rounds counts, after one that does not. Of codecs that add floats in rounds, what
 * members give is encoding, and what becomes of the means decoding.
 */
#include "bench/factors.h"

#include "base/clock.h"
#include "bench/bench.h"
#include "channel/assign.h"
#include "channel/channel.h"
#include "setup/plan_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRIES = 5, FLOATS = 24 << 20, MOST = 96 };

/* One codec with one memory. */
typedef struct trial {
    const float *gradient;
    nw_assign_options options;
    nw_assignment assignment;
    nw_layout layout;
    nw_channel channel;
    nw_actions actions;
    float *sum, *round;
    double encode[TRIES], decode[TRIES]; /* seconds */
    size_t encoded, decoded;             /* bytes that were touched, in the last round */
} trial;

typedef struct stage {
    int64_t began_ns;
    size_t touched;
} stage;

static stage begin(const trial *t) { return (stage){nw_now_ns(), t->actions.touched}; }
static void end(const trial *t, stage s, double *seconds, size_t *bytes)
{
    *seconds += nw_seconds(nw_now_ns() - s.began_ns);
    *bytes += t->actions.touched - s.touched;
}

static nw_status run_bytes(trial *t, int bucket, nw_moment when, int try)
{
    nw_message *m = NULL;
    stage s = begin(t);
    NW_TRY(nw_channel_encode(&t->channel, &t->actions, bucket, when, t->gradient, -1, NW_CODED, &m));
    end(t, s, &t->encode[try], &t->encoded);
    m->header->kind = 1;
    s = begin(t);
    nw_status status = nw_channel_decode(&t->channel, &t->actions, m, 0, t->sum, NW_AT_FIRST, true);
    end(t, s, &t->decode[try], &t->decoded);
    nw_message_drop(m);
    return status;
}

static nw_status run_rounds(trial *t, int bucket, nw_moment when, int try)
{
    int rounds = t->layout.at[bucket].block.codec->ops->rounds->count;
    for (int r = 0; r < rounds; r++) {
        stage s = begin(t);
        NW_TRY(nw_channel_contribute(&t->channel, &t->actions, bucket, when, t->gradient, r, t->round));
        end(t, s, &t->encode[try], &t->encoded);
        s = begin(t);
        nw_channel_use_mean(&t->channel, &t->actions, bucket, when, t->gradient, r, t->round,
                            r + 1 == rounds ? t->sum : NULL);
        end(t, s, &t->decode[try], &t->decoded);
    }
    return NW_OK;
}

static nw_status run_trial(trial *t)
{
    for (int try = -1; try < TRIES; try++) {
        int at = try < 0 ? 0 : try;
        t->encode[at] = t->decode[at] = 0;
        t->encoded = t->decoded = 0;
        for (int b = 0; b < t->layout.count; b++) {
            const nw_bucket *bucket = &t->layout.at[b];
            nw_moment when = {.step = try + 1, .clock = try + 1};
            if (bucket->dense && !bucket->block.codec->exact) continue;
            if (bucket->dense && strcmp(t->options.codec.name, "none") != 0) continue;
            NW_TRY(bucket->summed ? run_rounds(t, b, when, at) : run_bytes(t, b, when, at));
        }
    }
    return NW_OK;
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

static nw_status make_trial(trial *t, const nw_segments *segments, size_t bucket_bytes, nw_pool *pool)
{
    nw_layout_options l = {.segments = segments, .bucket_bytes = bucket_bytes, .cuts = 1};
    NW_TRY(nw_assign_make(&t->assignment, &t->options, segments));
    nw_assign_fill(&t->assignment, &t->options, &l);
    l.dense = t->assignment.codecs[0];
    NW_TRY(nw_layout_make(&t->layout, &l));
    NW_TRY(nw_channel_make(&t->channel, &(nw_channel_options){.layout = &t->layout,
                                                              .memory = t->options.memory,
                                                              .name = "memory",
                                                              .mean = true,
                                                              .number = NW_CHANNEL_EXCHANGE,
                                                              .only = -1,
                                                              .pool = pool}));
    NW_NEW(t->sum, segments->floats + 1, "a vector of %zu floats", segments->floats);
    NW_NEW(t->round, segments->floats + 1, "a vector of %zu floats", segments->floats);
    return nw_message_pool_create(&t->actions.pool);
}

static void free_trial(trial *t)
{
    nw_channel_free(&t->channel);
    nw_layout_free(&t->layout);
    nw_assign_free(&t->assignment);
    nw_actions_clear(&t->actions);
    if (t->actions.pool) nw_message_pool_free(t->actions.pool);
    free(t->actions.at);
    free(t->sum);
    free(t->round);
}

static void add(nw_factors *f, const char *codec, const char *what, double *seconds, size_t bytes, double rate)
{
    if (bytes == 0 || f->count == MOST) return;
    nw_factor *at = &f->at[f->count++];
    at->times = nw_median(seconds, TRIES) * rate / (double)bytes;
    snprintf(at->codec, sizeof at->codec, "%s", codec);
    snprintf(at->what, sizeof at->what, "%s", what);
}

/* Which memories go with which codec in training. */
static bool goes_with(const nw_layout *layout, const char *codec, const nw_memory_options *memory)
{
    if (strcmp(memory->name, "none") == 0) return true;
    if (strcmp(memory->name, "dgc") == 0) return strcmp(codec, "topk") == 0;
    if (strcmp(memory->name, "momentum") == 0) return strcmp(codec, "sign") == 0;
    return nw_layout_check_memory(layout, memory) == NW_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

typedef struct measure {
    const nw_segments *segments;
    const nw_assign_options *options;
    const float *gradient;
    size_t bucket_bytes;
    nw_pool *pool;
    double rate;
    nw_factors *factors;
} measure;

static nw_status try_codec(const measure *m, const char *codec, const char *memory)
{
    NW_CLEANUP(free_trial) trial t = {.gradient = m->gradient, .options = *m->options};
    t.options.codec.name = codec;
    t.options.memory = (nw_memory_options){.name = memory, .momentum = 0.9, .masking = true};
    bool bare = strcmp(memory, "none") == 0;
    if (!bare && strcmp(codec, "none") == 0) return NW_OK;
    NW_TRY(make_trial(&t, m->segments, m->bucket_bytes, m->pool));
    if (!goes_with(&t.layout, codec, &t.options.memory)) return NW_OK;
    NW_TRY(run_trial(&t));
    add(m->factors, codec, bare ? NW_FACTOR_ENCODE : memory, t.encode, t.encoded, m->rate);
    if (bare) add(m->factors, codec, NW_FACTOR_DECODE, t.decode, t.decoded, m->rate);
    return NW_OK;
}

/* The first tensors of a network; of the last of them as many rows as there is room for. */
static nw_status take_tensors(const nw_segments *all, nw_segments *some)
{
    for (int i = 0; i < all->count && some->floats < FLOATS; i++) {
        const nw_segment *s = &all->at[i];
        size_t room = FLOATS - some->floats;
        int shape[NW_SEGMENT_DIMS], ignored;
        memcpy(shape, s->shape, sizeof shape);
        if (s->count > room) shape[0] = (int)(room / (s->count / (size_t)s->shape[0])) + 1;
        NW_TRY(nw_segments_add(some, s->name, s->role, s->stage, s->fan_in, s->dims, shape, &ignored));
    }
    return NW_OK;
}

static nw_status measure_all(measure *m, const nw_synthetic *net, nw_segments *some)
{
    NW_TRY(take_tensors(&net->net->model.params.learned, some));
    m->segments = some;
    NW_NEW(m->factors->at, MOST, "the times of codecs");
    for (int c = 0; c < nw_codec_kinds(); c++)
        for (int k = 0; k < nw_memory_kinds(); k++) NW_TRY(try_codec(m, nw_codec_at(c)->name, nw_memory_at(k)->name));
    return NW_OK;
}

nw_status nw_bench_factors(const nw_train_options *s, const nw_synthetic *net, double rate, nw_factors *factors)
{
    NW_CLEANUP(nw_plan_codecs_free) nw_assign_options options = {0};
    nw_segments some = {0};
    NW_TRY(nw_plan_codecs(&s->codec, "", NULL, (uint64_t)s->all.seed, &options));
    nw_assign_options plain = {.codec = options.codec}; /* no rules by name: what is measured is a codec, on all */
    plain.codec.warm_up = (nw_warm_up){0};
    measure m = {.options = &plain,
                 .gradient = net->net->model.params.gradients,
                 .bucket_bytes = (size_t)s->world.bucket_bytes,
                 .pool = net->net->model.pass.exec.pool,
                 .rate = rate,
                 .factors = factors};
    nw_status status = measure_all(&m, net, &some);
    free(some.at);
    return status;
}
