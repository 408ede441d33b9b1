/* summed.c - see summed.h. */
#include "channel/summed.h"

#include <stdlib.h>

enum { ROUNDS_MOST = 2 };

/* A bucket. `number` is its number in the layout, `index` its number among the summed buckets. */
typedef struct bucket {
    int number, index;
    int round;
    bool under_way;
    nw_moment when, next;
    const float *vector, *next_vector; /* next_vector: contribution of the next step, which waits; NULL: none */
} bucket;

/* One round of all buckets: the contributions, one after the other, and their means. */
typedef struct round {
    nw_summed *summed;
    nw_segments segments;
    nw_layout layout;
    nw_reduce *reduce;
    float *contributed, *mean;
} round;

struct nw_summed {
    nw_reduce_options o;
    nw_channel *channel;
    nw_reduce_done done;
    void *context;
    bucket *buckets;
    int count, rounds;
    round at[ROUNDS_MOST];
};

static const nw_block *block_of(const nw_summed *s, const bucket *b) { return &s->o.layout->at[b->number].block; }
/* The bucket of the round's layout; layouts number buckets from the end of the vector. */
static int place_of(const nw_summed *s, const bucket *b) { return s->count - 1 - b->index; }
static size_t first_of(const round *r, const bucket *b) { return r->segments.at[b->index].offset; }

static nw_status contribute(nw_summed *s, nw_actions *actions, bucket *b)
{
    round *r = &s->at[b->round];
    NW_TRY(nw_channel_contribute(s->channel, actions, b->number, b->when, b->vector, b->round,
                                 r->contributed + first_of(r, b)));
    return nw_reduce_contribute_bucket(r->reduce, actions, b->when.step, b->when.clock, place_of(s, b), r->contributed);
}

/* A round of a bucket is complete: starts the next round; after the last, ends the step and starts one that waits. */
static nw_status round_done(void *context, nw_actions *actions, int64_t step, int place)
{
    round *r = context;
    nw_summed *s = r->summed;
    bucket *b = &s->buckets[s->count - 1 - place];
    bool last = b->round + 1 == block_of(s, b)->codec->ops->rounds->count;
    float *target = last ? s->o.targets[step & 1] : NULL;
    nw_channel_use_mean(s->channel, actions, b->number, b->when, b->vector, b->round, r->mean + first_of(r, b), target);
    b->round = last ? 0 : b->round + 1;
    if (!last) return contribute(s, actions, b);
    b->under_way = false;
    const float *next = b->next_vector;
    b->next_vector = NULL;
    NW_TRY(s->done(s->context, actions, step, b->number));
    return next ? nw_summed_contribute(s, actions, b->number, b->next, next) : NW_OK;
}

static bucket *find(const nw_summed *s, int number)
{
    bucket *b = s->buckets;
    while (b->number != number) b++;
    return b;
}

nw_status nw_summed_contribute(nw_summed *s, nw_actions *actions, int number, nw_moment when, const float *vector)
{
    bucket *b = find(s, number);
    if (b->under_way) {
        b->next = when;
        b->next_vector = vector;
        return NW_OK;
    }
    b->under_way = true;
    b->when = when;
    b->vector = vector;
    return contribute(s, actions, b);
}

nw_status nw_summed_take(nw_summed *s, nw_actions *actions, nw_message *m, int from)
{
    int index = m->header->channel - s->o.channel - 2;
    NW_FAIL_IF(index < 0 || index >= s->rounds, NW_E_MESSAGE,
               "rank %u sent a message of channel %u, which does not exist", m->header->from, m->header->channel);
    return nw_reduce_take(s->at[index].reduce, actions, m, from);
}

void nw_summed_begin_at(nw_summed *s, int64_t step)
{
    for (int r = 0; r < s->rounds; r++) nw_reduce_begin_at(s->at[r].reduce, step);
}

void nw_summed_announce_end(nw_summed *s, int64_t until)
{
    for (int r = 0; r < s->rounds; r++) nw_reduce_announce_end(s->at[r].reduce, until);
}

bool nw_summed_waits(const nw_summed *s, int number, nw_wait *wait)
{
    const bucket *b = find(s, number);
    if (b->under_way) nw_reduce_waits(s->at[b->round].reduce, wait);
    return b->under_way;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void nw_summed_free(nw_summed *s)
{
    if (!s) return;
    for (int i = 0; i < ROUNDS_MOST; i++) {
        nw_reduce_free(s->at[i].reduce);
        nw_layout_free(&s->at[i].layout);
        free(s->at[i].segments.at);
        free(s->at[i].contributed);
        free(s->at[i].mean);
    }
    free(s->buckets);
    free(s);
}

static nw_status make_round(nw_summed *s, int index)
{
    round *r = &s->at[index];
    nw_reduce_options o = s->o;
    r->summed = s;
    for (int i = 0; i < s->count; i++) {
        const nw_block *b = block_of(s, &s->buckets[i]);
        bool has = index < b->codec->ops->rounds->count;
        int floats = has ? (int)nw_codec_round_floats(b, index) : 1,
            ignored; /* 1 for a bucket that has no such round */
        NW_TRY(nw_segments_add(&r->segments, "round", NW_ROLE_LINEAR, 0, 1, 1, &floats, &ignored));
    }
    NW_NEW(r->contributed, r->segments.floats + 1, "rounds of %zu floats", r->segments.floats);
    NW_NEW(r->mean, r->segments.floats + 1, "rounds of %zu floats", r->segments.floats);
    NW_TRY(nw_layout_make(&r->layout, &(nw_layout_options){.segments = &r->segments,
                                                           .codec = &nw_codec_plain,
                                                           .bucket_bytes = sizeof(float),
                                                           .cuts = s->o.machine->group.count}));
    o.layout = &r->layout;
    o.memory = (nw_memory_options){0};
    o.stats = NULL; /* the channel counts what is contributed */
    o.channel = s->o.channel + 2 + index;
    o.in_place = false;
    o.targets[0] = o.targets[1] = r->mean;
    o.done = round_done;
    o.context = r;
    return nw_reduce_create(&r->reduce, &o);
}

static nw_status make_summed(nw_summed *s)
{
    const nw_layout *l = s->o.layout;
    NW_NEW(s->buckets, l->count + 1, "%d buckets", l->count);
    for (int b = 0; b < l->count; b++) {
        if (!l->at[b].summed) continue;
        int rounds = l->at[b].block.codec->ops->rounds->count;
        s->buckets[s->count] = (bucket){.number = b, .index = s->count};
        s->count++;
        if (rounds > s->rounds) s->rounds = rounds;
    }
    for (int r = 0; r < s->rounds; r++) NW_TRY(make_round(s, r));
    return NW_OK;
}

nw_status nw_summed_create(nw_summed **out, const nw_reduce_options *o, nw_channel *channel, nw_reduce_done done,
                           void *context)
{
    bool any = false;
    *out = NULL;
    for (int b = 0; b < o->layout->count; b++) any |= o->layout->at[b].summed;
    if (!any) return NW_OK;
    nw_summed *s = calloc(1, sizeof *s);
    NW_FAIL_IF(!s, NW_E_MEMORY, "no memory for a reduction");
    *s = (nw_summed){.o = *o, .channel = channel, .done = done, .context = context};
    *out = s; /* the caller frees it, also after a failure */
    return make_summed(s);
}
