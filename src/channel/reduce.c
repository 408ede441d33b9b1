/* reduce.c - see reduce.h. */
#include "channel/reduce.h"
#include "channel/summed.h"
#include "codec/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { CONTRIBUTION = 1, MEAN };

/* One bucket in one round. */
typedef struct bucket_round {
    nw_message **held; /* by member: contributions to this member's part (or to a gathered bucket), not yet added */
    bool *here;        /* by member: the mean of its part has arrived, or the part is empty */
    int added;         /* contributions added so far, in the order of members */
    int parts;         /* number of `here` */
    bool contributed;  /* this member has contributed, so that its own range may be overwritten */
} bucket_round;

typedef struct round {
    bucket_round *buckets;
    int done; /* number of complete buckets */
} round;

struct nw_reduce {
    nw_reduce_options o;
    int members, me;
    nw_channel up, down; /* up: contributions; down: means of this member's parts */
    nw_summed *summed;   /* buckets whose codecs have rounds; NULL: there are none */
    nw_message **by_cut;
    float *aside; /* sums of the members before this one, for this member's parts; NULL if those are fewer than two */
    size_t *aside_at; /* by bucket: where its part is in `aside` */
    round *rounds;
    int64_t next;      /* the round to which this member contributes now */
    int64_t clocks[2]; /* the batches of even and of odd rounds */
    int contributed;   /* buckets of round `next` to which it has contributed */
    int64_t completed; /* rounds whose means are complete */
    int64_t until;     /* where the run ends, for messages; 0: unknown */
};

static int bucket_count(const nw_reduce *r) { return r->o.layout->count; }
static const nw_bucket *bucket_at(const nw_reduce *r, int b) { return &r->o.layout->at[b]; }
static bucket_round *bucket_of(const nw_reduce *r, int64_t number, int b)
{
    return &r->rounds[number % r->o.slots].buckets[b];
}
static float *target(const nw_reduce *r, int64_t number) { return r->o.targets[number & 1]; }

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void reset_round(nw_reduce *r, round *at)
{
    at->done = 0;
    for (int b = 0; b < bucket_count(r); b++) {
        const nw_bucket *bucket = bucket_at(r, b);
        bucket_round *br = &at->buckets[b];
        br->added = br->parts = 0;
        br->contributed = false;
        for (int q = 0; q < r->members; q++) { /* nobody contributes to a round that is over */
            nw_message_drop(br->held[q]);
            br->held[q] = NULL;
        }
        for (int q = 0; q < r->members && !bucket->gathered && !bucket->summed; q++) {
            br->here[q] = bucket->block.cut_floats[q] == 0;
            br->parts += br->here[q];
        }
    }
}

/* Rounds before that one are over: those that lack buckets have none under way. */
static void complete_before(nw_reduce *r, int64_t number)
{
    int64_t from = r->completed;
    r->completed = number;
    if (from < number - r->o.slots) from = number - r->o.slots;
    for (; from < number; from++) reset_round(r, &r->rounds[from % r->o.slots]);
}

static nw_status bucket_is_done(nw_reduce *r, nw_actions *actions, int64_t number, int bucket)
{
    round *at = &r->rounds[number % r->o.slots];
    nw_channel_reduced(&r->up, actions, bucket, target(r, number));
    if (++at->done == bucket_count(r)) complete_before(r, number + 1);
    return r->o.done ? r->o.done(r->o.context, actions, number, bucket) : NW_OK;
}

static nw_status part_is_here(nw_reduce *r, nw_actions *actions, int64_t number, int bucket, int part)
{
    bucket_round *br = bucket_of(r, number, bucket);
    br->here[part] = true;
    return ++br->parts == r->members ? bucket_is_done(r, actions, number, bucket) : NW_OK;
}

/* ---- adding contributions ---------------------------------------------------------------------------------------- */

static void announce_end(const nw_reduce *r, nw_header *h)
{
    if (r->until > 0) h->until = (uint32_t)(r->until - (int64_t)h->step);
}

/* Divides the sum of a cut by the number of members. */
static void scale_cut(const nw_reduce *r, nw_actions *actions, const nw_block *b, int cut, float *vector)
{
    nw_codec_scale(b, cut, vector, 1.0f / (float)r->members, r->o.pool);
    nw_channel_touch(actions, b, cut, vector, true);
    actions->touched += b->cut_floats[cut] * sizeof(float);
}

/* All contributions to this member's part have been added: computes the mean and sends it to all. */
static nw_status finish_part(nw_reduce *r, nw_actions *actions, int64_t number, int bucket)
{
    const nw_block *b = &bucket_at(r, bucket)->block;
    float *vector = target(r, number);
    nw_message *m;
    if (!r->o.in_place) scale_cut(r, actions, b, r->me, vector);
    if (r->members > 1 || !b->codec->exact) {
        nw_moment when = {number, r->clocks[number & 1], number};
        NW_TRY(nw_channel_encode(&r->down, actions, bucket, when, vector, -1, NW_CODED, &m));
        m->header->kind = MEAN;
        announce_end(r, m->header);
        for (int q = 1; q < r->members; q++) /* each owner starts with its neighbour, to spread the load */
            nw_machine_send(r->o.machine, actions, r->o.channel, (r->me + q) % r->members, nw_message_hold(m));
        nw_status status =
            b->codec->exact ? NW_OK : nw_channel_decode(&r->down, actions, m, r->me, vector, NW_AT_FIRST, false);
        nw_message_drop(m);
        NW_TRY(status);
    }
    return part_is_here(r, actions, number, bucket, r->me);
}

/* Adds the sums of the members before this one to its own contribution. */
static void add_aside(nw_reduce *r, nw_actions *actions, int bucket, float *vector)
{
    const nw_block *b = &bucket_at(r, bucket)->block;
    const float *aside = r->aside + r->aside_at[bucket];
    for (int t = b->cut_tile[r->me]; t < b->cut_tile[r->me + 1]; t++) {
        const nw_tile *tile = &b->tiles[t];
        float *sum = vector + tile->first;
        for (uint32_t i = 0; i < tile->count; i++) sum[i] = aside[tile->place + i] + sum[i];
    }
    nw_channel_touch(actions, b, r->me, vector, true);
    actions->touched += 2 * b->cut_floats[r->me] * sizeof(float);
}

/* Adds the contribution of a member; callers keep to the order of members. */
static nw_status add_contribution(nw_reduce *r, nw_actions *actions, const nw_message *m, int64_t number, int bucket,
                                  int from)
{
    float *vector = target(r, number);
    if (!r->o.in_place) return nw_channel_decode(&r->up, actions, m, from, vector, NW_AT_FIRST, from > 0);
    if (from > r->me || r->me == 1) return nw_channel_decode(&r->up, actions, m, from, vector, NW_AT_FIRST, true);
    NW_TRY(nw_channel_decode(&r->up, actions, m, from, r->aside + r->aside_at[bucket], NW_AT_PLACE, from > 0));
    if (from == r->me - 1) add_aside(r, actions, bucket, vector);
    return NW_OK;
}

/* Adds the contributions that have arrived, as far as the order of members allows. */
static nw_status add_contributions(nw_reduce *r, nw_actions *actions, int64_t number, int bucket)
{
    const nw_bucket *b = bucket_at(r, bucket);
    bucket_round *br = bucket_of(r, number, bucket);
    if (!br->contributed || (!b->gathered && b->block.cut_floats[r->me] == 0)) return NW_OK;
    for (; br->added < r->members; br->added++) {
        nw_message *m = br->held[br->added];
        if (r->o.in_place && br->added == r->me) continue; /* its own is already in the vector */
        if (!m) return NW_OK;
        nw_status status = add_contribution(r, actions, m, number, bucket, br->added);
        br->held[br->added] = NULL;
        nw_message_drop(m);
        NW_TRY(status);
    }
    if (!b->gathered) return finish_part(r, actions, number, bucket);
    scale_cut(r, actions, &b->block, 0, target(r, number));
    return bucket_is_done(r, actions, number, bucket);
}

/* ---- contributing ------------------------------------------------------------------------------------------------ */

static nw_status summed_is_done(void *reduce, nw_actions *actions, int64_t number, int bucket)
{
    return bucket_is_done(reduce, actions, number, bucket);
}

/* Sends this member's bucket to the owners of its parts, or whole to all. */
nw_status nw_reduce_contribute_bucket(nw_reduce *r, nw_actions *actions, int64_t number, int64_t clock, int bucket,
                                      const float *vector)
{
    nw_moment when = {number, clock, number};
    bucket_round *br = bucket_of(r, number, bucket);
    bool gathered = bucket_at(r, bucket)->gathered;
    int skip = r->o.in_place ? r->me : -1;
    r->clocks[number & 1] = clock;
    br->contributed = true;
    if (bucket_at(r, bucket)->summed) return nw_summed_contribute(r->summed, actions, bucket, when, vector);
    NW_TRY(nw_channel_encode(&r->up, actions, bucket, when, vector, skip, NW_CODED, r->by_cut));
    for (int i = 1; i <= r->members; i++) {
        int to = (r->me + i) % r->members;
        nw_message *m = gathered ? nw_message_hold(r->by_cut[0]) : r->by_cut[to];
        if (!m) continue;
        m->header->kind = CONTRIBUTION;
        announce_end(r, m->header);
        if (to == r->me)
            br->held[to] = m;
        else
            nw_machine_send(r->o.machine, actions, r->o.channel, to, m);
    }
    if (gathered) nw_message_drop(r->by_cut[0]);
    return add_contributions(r, actions, number, bucket);
}

nw_status nw_reduce_contribute(nw_reduce *r, nw_actions *actions, int64_t number, int64_t clock, size_t first,
                               const float *vector)
{
    if (number != r->next) r->contributed = 0;
    r->next = number;
    for (; r->contributed < bucket_count(r) && bucket_at(r, r->contributed)->first >= first; r->contributed++)
        NW_TRY(nw_reduce_contribute_bucket(r, actions, number, clock, r->contributed, vector));
    return NW_OK;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static nw_status check_message(const nw_reduce *r, const nw_header *h)
{
    NW_FAIL_IF(h->channel != r->o.channel || (h->kind != CONTRIBUTION && h->kind != MEAN), NW_E_MESSAGE,
               "rank %u sent a message of kind %u, which %s does not know; give all ranks the same --exchange", h->from,
               h->kind, r->o.machine->ops->name);
    NW_TRY(nw_channel_check(&r->up, h));
    const nw_codec *codec = bucket_at(r, (int)h->bucket)->block.codec;
    NW_FAIL_IF(h->codec != codec->ops->id && !codec->ops->rounds, NW_E_MESSAGE,
               "rank %u sent bucket %u of step %" PRIu64
               " uncompressed, but this rank compresses it with %s; give all ranks the same options",
               h->from, h->bucket, h->step + 1, codec->ops->name);
    NW_FAIL_IF(bucket_at(r, (int)h->bucket)->summed, NW_E_MESSAGE,
               "rank %u sent bucket %u encoded, but its codec %s exchanges floats in rounds", h->from, h->bucket,
               bucket_at(r, (int)h->bucket)->block.codec->ops->name);
    NW_FAIL_IF(h->step < (uint64_t)r->completed || h->step >= (uint64_t)(r->completed + r->o.slots), NW_E_MESSAGE,
               "rank %u sent a message of step %" PRIu64 " while this rank is at step %" PRId64, h->from, h->step,
               r->completed);
    return NW_OK;
}

nw_status nw_reduce_take(nw_reduce *r, nw_actions *actions, nw_message *m, int from)
{
    const nw_header *h = m->header;
    if (r->summed && h->channel > r->o.channel) return nw_summed_take(r->summed, actions, m, from);
    NW_TRY(check_message(r, h));
    int64_t number = (int64_t)h->step;
    int bucket = (int)h->bucket, part = (int)h->part;
    bool gathered = bucket_at(r, bucket)->gathered;
    bucket_round *br = bucket_of(r, number, bucket);
    if (h->kind == CONTRIBUTION) {
        NW_FAIL_IF((!gathered && part != r->me) || from < br->added || br->held[from], NW_E_MESSAGE,
                   "rank %u sent part %d of bucket %d, step %" PRId64 ", twice, or to a rank that does not own it",
                   h->from, part, bucket, number);
        br->held[from] = nw_message_hold(m);
        return add_contributions(r, actions, number, bucket);
    }
    NW_FAIL_IF(gathered || part != from || br->here[part] || !br->contributed, NW_E_MESSAGE,
               "rank %u sent the mean of part %d of bucket %d, step %" PRId64
               ", twice, too early, or without owning that part",
               h->from, part, bucket, number);
    NW_TRY(nw_channel_decode(&r->down, actions, m, from, target(r, number), NW_AT_FIRST, false));
    return part_is_here(r, actions, number, bucket, part);
}

int64_t nw_reduce_completed(const nw_reduce *r) { return r->completed; }
void nw_reduce_begin_at(nw_reduce *r, int64_t number)
{
    r->next = number;
    r->contributed = 0;
    complete_before(r, number);
    if (r->summed) nw_summed_begin_at(r->summed, number);
}
void nw_reduce_announce_end(nw_reduce *r, int64_t until)
{
    r->until = until;
    if (r->summed) nw_summed_announce_end(r->summed, until);
}
void nw_reduce_clip(nw_reduce *r, float clip) { r->up.clip = clip; }
nw_memory *nw_reduce_memory(const nw_reduce *r) { return r->up.memory; }

/* Adds the members whose messages are missing for a bucket; false: the bucket does not wait for any. */
static bool bucket_waits(const nw_reduce *r, int64_t number, int b, nw_wait *wait, bool *sums)
{
    const nw_group *group = &r->o.machine->group;
    const bucket_round *br = bucket_of(r, number, b);
    bool gathered = bucket_at(r, b)->gathered;
    *sums = true;
    if (bucket_at(r, b)->summed) return nw_summed_waits(r->summed, b, wait);
    if (!br->contributed || (gathered ? br->added : br->parts) == r->members) return false;
    *sums = gathered || !br->here[r->me]; /* contributions are missing, not means */
    for (int q = 0; q < r->members; q++)
        if (*sums ? q >= br->added && q != r->me && !br->held[q] : !br->here[q]) nw_wait_add(wait, group, q);
    return true;
}

void nw_reduce_waits(const nw_reduce *r, nw_wait *wait)
{
    for (int i = 0; i < bucket_count(r) * r->o.slots; i++) {
        bool sums;
        int b = i % bucket_count(r);
        int64_t number = r->completed + i / bucket_count(r);
        if (!bucket_waits(r, number, b, wait, &sums)) continue;
        snprintf(wait->what, sizeof wait->what, "%s of bucket %d of %d, step %" PRId64,
                 sums ? "their gradient" : "the mean gradient", b, bucket_count(r), number + 1);
        return;
    }
    snprintf(wait->what, sizeof wait->what, "nothing");
}

/* ---- state and life ---------------------------------------------------------------------------------------------- */

void nw_reduce_state(nw_reduce *r, nw_state *s)
{
    nw_channel_state(&r->up, s);
    nw_channel_state(&r->down, s);
}

static void free_round(nw_reduce *r, round *at)
{
    for (int b = 0; at->buckets && b < bucket_count(r); b++) {
        bucket_round *br = &at->buckets[b];
        for (int q = 0; br->held && q < r->members; q++) nw_message_drop(br->held[q]);
        free(br->held);
        free(br->here);
    }
    free(at->buckets);
}

void nw_reduce_free(nw_reduce *r)
{
    if (!r) return;
    for (int i = 0; r->rounds && i < r->o.slots; i++) free_round(r, &r->rounds[i]);
    nw_summed_free(r->summed);
    free(r->rounds);
    free(r->by_cut);
    free(r->aside);
    free(r->aside_at);
    nw_channel_free(&r->up);
    nw_channel_free(&r->down);
    free(r);
}

static nw_status make_rounds(nw_reduce *r)
{
    size_t members = (size_t)r->members, buckets = (size_t)bucket_count(r);
    bool made = (r->rounds = calloc((size_t)r->o.slots, sizeof *r->rounds)) != NULL;
    made = made && (r->by_cut = calloc(members, sizeof *r->by_cut)) != NULL;
    for (int i = 0; made && i < r->o.slots; i++) {
        made = (r->rounds[i].buckets = calloc(buckets + 1, sizeof(bucket_round))) != NULL;
        for (size_t b = 0; made && b < buckets; b++) {
            bucket_round *br = &r->rounds[i].buckets[b];
            br->held = calloc(members, sizeof *br->held);
            br->here = calloc(members, sizeof *br->here);
            made = br->held && br->here;
        }
        if (made) reset_round(r, &r->rounds[i]);
    }
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for an exchange between %zu ranks", members);
    return NW_OK;
}

/* Allocates the sums of members before this one. */
static nw_status make_aside(nw_reduce *r)
{
    size_t own = 0;
    if (!r->o.in_place || r->me < 2) return NW_OK;
    NW_NEW(r->aside_at, bucket_count(r) + 1, "%d buckets", bucket_count(r));
    for (int b = 0; b < bucket_count(r); b++) {
        r->aside_at[b] = own;
        own += bucket_at(r, b)->block.cut_floats[r->me];
    }
    NW_NEW(r->aside, own + 1, "sums of %zu floats", own);
    return NW_OK;
}

static nw_status make_reduce(nw_reduce *r)
{
    nw_channel_options c = {.layout = r->o.layout,
                            .memory = r->o.memory,
                            .share = r->o.share,
                            .name = "memory",
                            .mean = true,
                            .number = r->o.channel,
                            .member = r->me,
                            .rank = r->o.machine->group.ranks[r->me],
                            .only = -1,
                            .stats = r->o.stats,
                            .pool = r->o.pool};
    NW_TRY(nw_channel_make(&r->up, &c));
    if (r->o.stats && !r->o.share && r->up.memory) r->o.stats->memory = r->up.memory;
    if (r->up.memory) c.memory = (nw_memory_options){.name = r->o.share ? NULL : "error"};
    c.restarts = r->up.memory && r->up.memory->ops->estimates; /* all then start from the mean of the estimates */
    c.share = NULL;
    c.name = "owner_memory";
    c.only = r->me;
    c.number = r->o.channel + 1; /* so that it draws other random numbers */
    NW_TRY(nw_channel_make(&r->down, &c));
    NW_TRY(make_rounds(r));
    NW_TRY(nw_summed_create(&r->summed, &r->o, &r->up, summed_is_done, r));
    return make_aside(r);
}

nw_status nw_reduce_create(nw_reduce **out, const nw_reduce_options *o)
{
    nw_reduce *r = calloc(1, sizeof *r);
    *out = NULL;
    NW_FAIL_IF(!r, NW_E_MEMORY, "no memory for an exchange");
    r->o = *o;
    r->members = o->machine->group.count;
    r->me = o->machine->group.me;
    NW_TRY_OR(make_reduce(r), nw_reduce_free(r));
    *out = r;
    return NW_OK;
}
