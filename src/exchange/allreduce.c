/*
 * allreduce.c - all replicas apply the mean of all gradients, in step.
 *
 * The gradient is cut into buckets, and each bucket into one part a rank, its owner's (exchange.h). As soon as a bucket
 * is final, a rank sends each part to its owner (reduce-scatter); the owner adds the contributions in the order of
 * ranks, whatever the order in which they came, takes the mean, and sends it to all (allgather):
 *
 *   mean[i] = (((g_0[i] + g_1[i]) + g_2[i]) + ...) * (1 / N)        in f32, each term as its codec delivers it
 *
 * So every rank sends 2 (N - 1) / N of the gradient, which is the least possible, and the bits of the mean depend on
 * nothing but the gradients and N: the same over MPI, on a virtual cluster, with any timing. The owner uses the mean as
 * it was encoded for the others, and its own contribution passes the codec too, so replicas stay equal under any codec.
 *
 * Where the codec loses nothing and there is no delay, memory is touched less: sums travel, and the factor 1 / N is left to
 * the update; an owner's own contribution stays where it is, and what ranks before it contribute is summed aside and then
 * added (of two terms the order does not matter).
 *
 * Delay 0: step t computes g_t at w_t and applies its mean before step t + 1 begins.
 * Delay 1: step t computes g_t at w_t while the mean of g_(t-1) travels, then applies that one: w_(t+1) = w_t - U(mean
 * g_(t-1)). The exchange has a whole step of time. FLUSH applies the last one too, and so does delay 0 where a checkpoint
 * of delay 1 brings one.
 *
 * How far another rank may be ahead: while this rank lacks a mean of step c, from one slow link, it has contributed steps
 * up to c + delay, so others may have all means of these, and begin step c + 2 delay + 1. Messages of steps to come
 * wait in rounds, of which there are therefore 2 (delay + 1). Rounds are completed in order, since messages of a link
 * are.
 */
#include "exchange/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTRIBUTION = NW_KIND_FIRST, MEAN };

/* One bucket in one step. */
typedef struct bucket_round {
    nw_message **held; /* by rank: contributions to this rank's part that have not been added */
    bool *here;        /* by rank: the mean of its part has come, or is empty */
    int added;         /* contributions added to this rank's part, in the order of ranks */
    int parts;         /* that are here */
    bool given;        /* this rank has contributed: its own range may be written over */
} bucket_round;

typedef struct step_round {
    bucket_round *buckets;
    int done; /* buckets that are complete */
} step_round;

typedef struct allreduce {
    nw_exchange base;
    const nw_params *params;
    const nw_codec *codec;
    nw_buckets buckets;
    int delay, slots;
    bool in_place;    /* this rank's own contribution stays in the gradient */
    float *aside;     /* sums of ranks before this one, for this rank's parts; NULL if there are fewer than two */
    size_t *aside_at; /* by bucket: where its part is in `aside` */
    step_round *rounds;
    float *delayed[2]; /* delay 1: means of even and of odd steps */
    float *carried;    /* delay 0: a mean that a checkpoint with delay 1 held back, until it is applied */
    int64_t step;      /* gradients computed */
    int given;         /* buckets of the next one that were contributed: its round may be over before it is */
    int64_t completed; /* rounds whose means are all here */
    int64_t applied;   /* updates made */
    bool asked;        /* for the next gradient */
    bool applying, flushing;
} allreduce;

static step_round *round_of(allreduce *a, int64_t step) { return &a->rounds[step % a->slots]; }

/* Where the mean of a step goes. The gradient vector itself serves once the bucket has been contributed. */
static float *target(const allreduce *a, int64_t step)
{
    return a->delay ? a->delayed[step & 1] : a->params->gradients;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------- */

static void reset_round(allreduce *a, step_round *r)
{
    r->done = 0;
    for (int b = 0; b < a->buckets.count; b++) {
        bucket_round *br = &r->buckets[b];
        br->added = br->parts = 0;
        br->given = false;
        for (int q = 0; q < a->base.world; q++) {
            size_t first, count;
            nw_bucket_part(&a->buckets, b, q, &first, &count);
            br->here[q] = count == 0;
            br->parts += count == 0;
        }
    }
}

static void part_is_here(allreduce *a, int64_t step, int bucket, int part)
{
    step_round *r = round_of(a, step);
    bucket_round *br = &r->buckets[bucket];
    br->here[part] = true;
    if (++br->parts < a->base.world || ++r->done < a->buckets.count) return;
    a->completed = step + 1;
    reset_round(a, r);
}

/* ---- reduce-scatter and allgather ----------------------------------------------------------------------------------- */

static nw_status encode(allreduce *a, nw_actions *actions, int kind, int64_t step, int bucket, int part,
                        const float *in, size_t count, nw_message **out)
{
    nw_codec_key key = {(uint64_t)step, (uint32_t)bucket, (uint32_t)part, (uint32_t)a->base.rank};
    nw_encoded encoded;
    NW_TRY(nw_message_take(actions->pool, a->codec->ops->bound(a->codec, count), out));
    nw_status status = a->codec->ops->encode(a->codec, &key, in, count, (*out)->payload, &encoded);
    if (status != NW_OK) {
        nw_message_drop(*out);
        return status;
    }
    nw_header *h = (*out)->header;
    h->kind = (uint8_t)kind;
    h->codec = (uint8_t)a->codec->ops->id;
    h->from = (uint32_t)a->base.rank;
    h->segment = (uint32_t)bucket;
    h->part = (uint32_t)part;
    h->count = (uint32_t)count;
    h->step = h->version = (uint64_t)step;
    h->bytes = (uint32_t)encoded.bytes;
    h->index_bytes = (uint32_t)encoded.index_bytes;
    h->scale_bytes = (uint32_t)encoded.scale_bytes;
    actions->touched += count * sizeof(float) + encoded.bytes;
    return NW_OK;
}

static nw_status decode(allreduce *a, nw_actions *actions, const nw_message *m, float *out, bool add)
{
    const nw_header *h = m->header;
    nw_codec_key key = {h->step, h->segment, h->part, h->from};
    const nw_codec_ops *ops = a->codec->ops;
    actions->touched += h->bytes + h->count * sizeof(float) * (add ? 2 : 1);
    return add ? ops->decode_add(a->codec, &key, m->payload, h->bytes, out, h->count)
               : ops->decode(a->codec, &key, m->payload, h->bytes, out, h->count);
}

/* All contributions to this rank's part have been added: the mean, and everybody gets it. */
static nw_status finish_part(allreduce *a, nw_actions *actions, int64_t step, int bucket)
{
    size_t first, count;
    nw_message *m;
    int me = a->base.rank;
    nw_bucket_part(&a->buckets, bucket, me, &first, &count);
    float *mean = target(a, step) + first, share = 1.0f / (float)a->base.world;
    if (!a->in_place) {
        for (size_t i = 0; i < count; i++) mean[i] *= share;
        actions->touched += 2 * count * sizeof(float);
    }
    if (a->base.world > 1 || !a->codec->exact) {
        NW_TRY(encode(a, actions, MEAN, step, bucket, me, mean, count, &m));
        for (int q = 1; q < a->base.world; q++) /* each rank starts with its neighbour, so that none is flooded */
            nw_actions_add(
                actions,
                (nw_action){.kind = NW_ACTION_SEND, .to = (me + q) % a->base.world, .message = nw_message_hold(m)});
        nw_status status = a->codec->exact ? NW_OK : decode(a, actions, m, mean, false);
        nw_message_drop(m);
        NW_TRY(status);
    }
    part_is_here(a, step, bucket, me);
    return NW_OK;
}

/* Adds the contribution of rank `from`, whose turn it is. */
static nw_status add_contribution(allreduce *a, nw_actions *actions, const nw_message *m, int bucket, int from,
                                  size_t count, float *sum)
{
    int me = a->base.rank;
    if (!a->in_place) return decode(a, actions, m, sum, from > 0);
    if (from > me || me == 1) return decode(a, actions, m, sum, true);
    float *aside = a->aside + a->aside_at[bucket];
    NW_TRY(decode(a, actions, m, aside, from > 0));
    if (from < me - 1) return NW_OK;
    for (size_t i = 0; i < count; i++) sum[i] = aside[i] + sum[i];
    actions->touched += 3 * count * sizeof(float);
    return NW_OK;
}

/* Adds what has come, as far as the order of ranks allows. */
static nw_status add_contributions(allreduce *a, nw_actions *actions, int64_t step, int bucket)
{
    bucket_round *br = &round_of(a, step)->buckets[bucket];
    size_t first, count;
    nw_bucket_part(&a->buckets, bucket, a->base.rank, &first, &count);
    if (!br->given || count == 0) return NW_OK;
    for (; br->added < a->base.world; br->added++) {
        bool own = a->in_place && br->added == a->base.rank; /* it is there already */
        nw_message *m = br->held[br->added];
        if (own) continue;
        if (!m) return NW_OK;
        nw_status status = add_contribution(a, actions, m, bucket, br->added, count, target(a, step) + first);
        br->held[br->added] = NULL;
        nw_message_drop(m);
        NW_TRY(status);
    }
    return finish_part(a, actions, step, bucket);
}

/* Sends this rank's gradient of a bucket to the owners of its parts. */
static nw_status contribute(allreduce *a, nw_actions *actions, int bucket)
{
    int64_t step = a->step;
    bucket_round *br = &round_of(a, step)->buckets[bucket];
    int me = a->base.rank;
    for (int i = 1; i <= a->base.world; i++) {
        int owner = (me + i) % a->base.world;
        size_t first, count;
        nw_message *m;
        nw_bucket_part(&a->buckets, bucket, owner, &first, &count);
        if (count == 0 || (owner == me && a->in_place)) continue;
        NW_TRY(encode(a, actions, CONTRIBUTION, step, bucket, owner, a->params->gradients + first, count, &m));
        if (owner == me)
            br->held[me] = m;
        else
            nw_actions_add(actions, (nw_action){.kind = NW_ACTION_SEND, .to = owner, .message = m});
    }
    br->given = true;
    a->given++;
    return add_contributions(a, actions, step, bucket);
}

/* Buckets that lie behind `first` and have not been contributed. */
static nw_status contribute_from(allreduce *a, nw_actions *actions, size_t first)
{
    while (a->given < a->buckets.count && a->buckets.at[a->given].first >= first)
        NW_TRY(contribute(a, actions, a->given));
    return NW_OK;
}

/* ---- messages ------------------------------------------------------------------------------------------------------- */

static nw_status check_message(const allreduce *a, const nw_header *h)
{
    NW_FAIL_IF(
        h->kind != CONTRIBUTION && h->kind != MEAN, NW_E_MESSAGE,
        "rank %u sent a message of kind %u, which allreduce does not know; do all ranks run the same --exchange?",
        h->from, h->kind);
    NW_FAIL_IF(h->codec != a->codec->ops->id, NW_E_MESSAGE, "rank %u encodes with codec %u, this rank with %d (%s)",
               h->from, h->codec, (int)a->codec->ops->id, a->codec->ops->name);
    NW_FAIL_IF(h->from >= (uint32_t)a->base.world || h->segment >= (uint32_t)a->buckets.count ||
                   h->part >= (uint32_t)a->base.world,
               NW_E_MESSAGE, "rank %u sent part %u of bucket %u; there are %d parts and %d buckets", h->from, h->part,
               h->segment, a->base.world, a->buckets.count);
    NW_FAIL_IF(h->from == (uint32_t)a->base.rank, NW_E_MESSAGE, "rank %u got a message that claims to come from itself",
               h->from);
    size_t first, count;
    nw_bucket_part(&a->buckets, (int)h->segment, (int)h->part, &first, &count);
    NW_FAIL_IF(h->count != count || count == 0, NW_E_MESSAGE,
               "rank %u sent %u values for part %u of bucket %u, which has %zu", h->from, h->count, h->part, h->segment,
               count);
    NW_FAIL_IF(h->step < (uint64_t)a->completed || h->step >= (uint64_t)(a->completed + a->slots), NW_E_MESSAGE,
               "rank %u sent a message of step %" PRIu64 " while this rank is at step %" PRId64, h->from, h->step,
               a->completed);
    return NW_OK;
}

static nw_status take_message(allreduce *a, nw_actions *actions, nw_message *m)
{
    const nw_header *h = m->header;
    NW_TRY(check_message(a, h));
    int64_t step = (int64_t)h->step;
    int bucket = (int)h->segment, part = (int)h->part;
    bucket_round *br = &round_of(a, step)->buckets[bucket];
    if (h->kind == CONTRIBUTION) {
        NW_FAIL_IF(part != a->base.rank || (int)h->from < br->added || br->held[h->from], NW_E_MESSAGE,
                   "rank %u sent part %d of bucket %d, step %" PRId64 ", to a rank that does not own it, or twice",
                   h->from, part, bucket, step);
        br->held[h->from] = nw_message_hold(m);
        return add_contributions(a, actions, step, bucket);
    }
    NW_FAIL_IF(part != (int)h->from || part == a->base.rank || br->here[part] || !br->given, NW_E_MESSAGE,
               "rank %u sent the mean of part %d of bucket %d, step %" PRId64
               ", which is not its own, or twice, or too "
               "early",
               h->from, part, bucket, step);
    size_t first, count;
    nw_bucket_part(&a->buckets, bucket, part, &first, &count);
    NW_TRY(decode(a, actions, m, target(a, step) + first, false));
    part_is_here(a, step, bucket, part);
    return NW_OK;
}

/* ---- the state machine ------------------------------------------------------------------------------------------------ */

/* What is applied next, if not the gradient vector itself. */
static float *held_back(const allreduce *a) { return a->delay ? a->delayed[a->applied & 1] : a->carried; }

/* What comes next, if anything can. */
static void go_on(allreduce *a, nw_actions *actions)
{
    int64_t behind = a->step - a->applied;
    bool update_due = a->flushing ? behind > 0 : behind > a->delay;
    if (a->applying) return;
    if (update_due) {
        if (a->completed <= a->applied) return;
        nw_action apply = {.kind = NW_ACTION_APPLY,
                           .gradient = held_back(a),
                           .scale = a->in_place && !a->carried ? 1.0f / (float)a->base.world : 1.0f,
                           .lag = (int)behind - 1};
        a->applying = true;
        nw_actions_add(actions, apply);
        return;
    }
    a->flushing = false;
    if (a->asked) return;
    a->asked = true;
    nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COMPUTE});
}

static nw_status handle(nw_exchange *e, const nw_event *event, nw_actions *actions)
{
    allreduce *a = (allreduce *)e;
    switch (event->kind) {
    case NW_EVENT_READY:
        return contribute_from(a, actions, event->first);
    case NW_EVENT_COMPUTED:
        NW_TRY(contribute_from(a, actions, 0));
        a->given = 0;
        a->step++;
        a->asked = false;
        break;
    case NW_EVENT_MESSAGE:
        NW_TRY(take_message(a, actions, event->message));
        if (a->asked && !a->flushing) return NW_OK; /* the rank is computing */
        break;
    case NW_EVENT_APPLIED:
        a->applied++;
        a->applying = false;
        free(a->carried);
        a->carried = NULL;
        break;
    case NW_EVENT_FLUSH:
        a->flushing = true;
        break;
    case NW_EVENT_BEGIN:
        break;
    case NW_EVENT_TIMER:
    case NW_EVENT_GO:
        return NW_OK;
    }
    go_on(a, actions);
    return NW_OK;
}

static bool idle(const nw_exchange *e)
{
    const allreduce *a = (const allreduce *)e;
    return a->completed == a->step && !a->applying && !a->flushing;
}

static void waits(const nw_exchange *e, nw_wait *wait)
{
    const allreduce *a = (const allreduce *)e;
    *wait = (nw_wait){0};
    const step_round *r = &a->rounds[a->completed % a->slots];
    for (int b = 0; b < a->buckets.count; b++) {
        const bucket_round *br = &r->buckets[b];
        if (br->parts == a->base.world || !br->given) continue;
        bool own = !br->here[a->base.rank];
        for (int q = 0; q < a->base.world; q++)
            if (own ? q >= br->added && q != a->base.rank && !br->held[q] : !br->here[q]) nw_wait_add(wait, q);
        snprintf(wait->what, sizeof wait->what, "%s of bucket %d of %d, step %" PRId64,
                 own ? "their gradient" : "the mean gradient", b, a->buckets.count, a->completed + 1);
        return;
    }
    snprintf(wait->what, sizeof wait->what, "nothing");
}

static void state(nw_exchange *e, nw_exchange_state *s)
{
    allreduce *a = (allreduce *)e;
    *s = (nw_exchange_state){.integers = {{"step", &a->step}, {"completed", &a->completed}, {"applied", &a->applied}},
                             .integer_count = 3};
    if (a->applied == a->step || !held_back(a)) return;
    s->vectors[0].name = "delayed";
    s->vectors[0].data = held_back(a);
    s->vector_count = 1;
}

static nw_status loaded(nw_exchange *e)
{
    allreduce *a = (allreduce *)e;
    bool sense = a->step >= 0 && a->step < INT64_MAX / 2 && a->completed == a->step && a->applied >= 0 &&
                 (a->applied == a->step || a->applied == a->step - 1);
    NW_FAIL_IF(!sense, NW_E_FILE,
               "the checkpoint holds an allreduce with %" PRId64 " gradients, %" PRId64 " means and %" PRId64
               " updates, which cannot be; take an earlier checkpoint",
               a->step, a->completed, a->applied);
    if (a->applied == a->step || a->delay) return NW_OK;
    a->carried = calloc(a->params->learned.floats, sizeof(float));
    NW_FAIL_IF(!a->carried, NW_E_MEMORY, "no memory for a mean of %zu parameters", a->params->learned.floats);
    return NW_OK;
}

/* ---- life --------------------------------------------------------------------------------------------------------------- */

static void allreduce_free(nw_exchange *e)
{
    allreduce *a = (allreduce *)e;
    for (int s = 0; a->rounds && s < a->slots; s++) {
        for (int b = 0; a->rounds[s].buckets && b < a->buckets.count; b++) {
            bucket_round *br = &a->rounds[s].buckets[b];
            for (int q = 0; br->held && q < a->base.world; q++)
                if (br->held[q]) nw_message_drop(br->held[q]);
            free(br->held);
            free(br->here);
        }
        free(a->rounds[s].buckets);
    }
    free(a->rounds);
    free(a->delayed[0]);
    free(a->delayed[1]);
    free(a->aside);
    free(a->aside_at);
    free(a->carried);
    nw_buckets_free(&a->buckets);
    free(a);
}

static nw_status make_rounds(allreduce *a)
{
    size_t world = (size_t)a->base.world, floats = a->params->learned.floats;
    bool made = (a->rounds = calloc((size_t)a->slots, sizeof *a->rounds)) != NULL;
    for (int s = 0; made && s < a->slots; s++) {
        made = (a->rounds[s].buckets = calloc((size_t)a->buckets.count, sizeof(bucket_round))) != NULL;
        for (int b = 0; made && b < a->buckets.count; b++) {
            bucket_round *br = &a->rounds[s].buckets[b];
            br->held = calloc(world, sizeof *br->held);
            br->here = calloc(world, sizeof *br->here);
            made = br->held && br->here;
        }
        if (made) reset_round(a, &a->rounds[s]);
    }
    for (int i = 0; made && a->delay && i < 2; i++) made = (a->delayed[i] = calloc(floats, sizeof(float))) != NULL;
    if (made && a->in_place && a->base.rank > 1) {
        size_t own = 0, first, count;
        made = (a->aside_at = calloc((size_t)a->buckets.count, sizeof *a->aside_at)) != NULL;
        for (int b = 0; made && b < a->buckets.count; b++, own += count) {
            nw_bucket_part(&a->buckets, b, a->base.rank, &first, &count);
            a->aside_at[b] = own;
        }
        made = made && (a->aside = calloc(own + 1, sizeof *a->aside)) != NULL;
    }
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for an exchange of %zu parameters between %zu ranks", floats, world);
    return NW_OK;
}

nw_status nw_allreduce_create(nw_exchange **out, const nw_exchange_options *o)
{
    static const nw_exchange_ops ops = {"allreduce", handle, idle, waits, state, allreduce_free, loaded, NULL};
    NW_FAIL_IF(o->delay < 0 || o->delay > 1, NW_E_ARGUMENT, "allreduce can delay updates by 0 or 1 steps, not by %d",
               o->delay);
    allreduce *a = calloc(1, sizeof *a);
    NW_FAIL_IF(!a, NW_E_MEMORY, "no memory for an exchange");
    a->base = (nw_exchange){.ops = &ops, .rank = o->rank, .world = o->world, .equal = true};
    a->params = o->params;
    a->codec = o->codec;
    a->delay = o->delay;
    a->slots = 2 * (o->delay + 1);
    a->in_place = o->codec->exact && o->delay == 0;
    nw_status status = nw_buckets_make(&a->buckets, &o->params->learned, o->bucket_bytes, o->world);
    if (status == NW_OK) status = make_rounds(a);
    if (status != NW_OK) {
        allreduce_free(&a->base);
        return status;
    }
    *out = &a->base;
    return NW_OK;
}
