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
 * Where the codec loses nothing and there is no delay, memory is touched less: sums travel, and the factor 1 / N is
 * left to the update; an owner's own contribution stays where it is, and what ranks before it contribute is summed
 * aside and then added (of two terms the order does not matter).
 *
 * Delay 0: step t computes g_t at w_t and applies its mean before step t + 1 begins. Delay 1: step t computes g_t at
 * w_t while the mean of g_(t-1) travels, then applies that one: w_(t+1) = w_t - U(mean g_(t-1)). The exchange has a
 * whole step of time. A run that drains applies the last one too, and so does delay 0 where a checkpoint of delay 1
 * brings one.
 *
 * Stopping. A member that is asked to stop before it begins gradient t says so in its contributions to t, and owners
 * pass it on with the mean: the run ends after t + 1 + delay gradients. All know in time, since none begins that
 * gradient before it has all means of t.
 *
 * How far another rank may be ahead: while this rank lacks a mean of step c, from one slow link, it has contributed
 * steps up to c + delay, so others may have all means of these, and begin step c + 2 delay + 1. Messages of steps to
 * come wait in rounds, of which there are therefore 2 (delay + 1). Rounds are completed in order, since messages of a
 * link are.
 */
#include "exchange/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONTRIBUTION = 1, MEAN, CHANNEL = NW_CHANNEL_EXCHANGE };

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
    nw_machine base;
    const nw_params *params;
    const nw_codec *codec;
    nw_buckets buckets;
    int delay, slots;
    bool in_place;    /* this rank's own contribution stays in the gradient */
    float *aside;     /* sums of ranks before this one, for this rank's parts; NULL if there are fewer than two */
    size_t *aside_at; /* by bucket: where its part is in `aside` */
    step_round *rounds;
    float *delayed[2];   /* delay 1: means of even and of odd steps */
    float *carried;      /* delay 0: a mean that a checkpoint with delay 1 held back, until it is applied */
    int64_t step;        /* gradients computed */
    int given;           /* buckets of the next one that were contributed: its round may be over before it is */
    int64_t completed;   /* rounds whose means are all here */
    int64_t applied;     /* updates made */
    int64_t clocks[2];   /* of even and of odd steps: the batch of their learning rate */
    int64_t held, clock; /* for checkpoints: means that are not applied, and the batch of their learning rate */
    nw_go go;
    bool asked;    /* for the next gradient */
    bool stopping; /* somebody was asked to: go.until was lowered */
    bool applying;
    const void *report;
    nw_count count;
} allreduce;

static step_round *round_of(allreduce *a, int64_t step) { return &a->rounds[step % a->slots]; }

/* Where the mean of a step goes. The gradient vector itself serves once the bucket has been contributed. */
static float *target(const allreduce *a, int64_t step)
{
    return a->delay ? a->delayed[step & 1] : a->params->gradients;
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void reset_round(allreduce *a, step_round *r)
{
    r->done = 0;
    for (int b = 0; b < a->buckets.count; b++) {
        bucket_round *br = &r->buckets[b];
        br->added = br->parts = 0;
        br->given = false;
        for (int q = 0; q < a->base.group.count; q++) {
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
    if (++br->parts < a->base.group.count || ++r->done < a->buckets.count) return;
    a->completed = step + 1;
    reset_round(a, r);
}

/* ---- reduce-scatter and allgather -------------------------------------------------------------------------------- */

static nw_status encode(allreduce *a, nw_actions *actions, int kind, int64_t step, int bucket, int part,
                        const float *in, size_t count, nw_message **out)
{
    nw_codec_key key = {(uint64_t)step, (uint32_t)bucket, (uint32_t)part, (uint32_t)a->base.group.me};
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
    h->bucket = (uint32_t)bucket;
    h->part = (uint16_t)part;
    if (a->stopping) h->until = (uint32_t)(a->go.until - step);
    h->count = (uint32_t)count;
    h->step = h->version = (uint64_t)step;
    h->bytes = (uint32_t)encoded.bytes;
    h->index_bytes = (uint32_t)encoded.index_bytes;
    h->scale_bytes = (uint32_t)encoded.scale_bytes;
    nw_actions_touch(actions, in, count, false);
    actions->touched += encoded.bytes;
    return NW_OK;
}

static nw_status decode(allreduce *a, nw_actions *actions, const nw_message *m, int from, float *out, bool add)
{
    const nw_header *h = m->header;
    nw_codec_key key = {h->step, h->bucket, h->part, (uint32_t)from};
    const nw_codec_ops *ops = a->codec->ops;
    nw_actions_touch(actions, out, h->count, true);
    actions->touched += h->bytes + (add ? h->count * sizeof(float) : 0);
    return add ? ops->decode_add(a->codec, &key, m->payload, h->bytes, out, h->count)
               : ops->decode(a->codec, &key, m->payload, h->bytes, out, h->count);
}

/* All contributions to this rank's part have been added: the mean, and everybody gets it. */
static nw_status finish_part(allreduce *a, nw_actions *actions, int64_t step, int bucket)
{
    size_t first, count;
    nw_message *m;
    int me = a->base.group.me;
    nw_bucket_part(&a->buckets, bucket, me, &first, &count);
    float *mean = target(a, step) + first, share = 1.0f / (float)a->base.group.count;
    if (!a->in_place) {
        for (size_t i = 0; i < count; i++) mean[i] *= share;
        nw_actions_touch(actions, mean, count, true);
        actions->touched += count * sizeof(float);
    }
    if (a->base.group.count > 1 || !a->codec->exact) {
        NW_TRY(encode(a, actions, MEAN, step, bucket, me, mean, count, &m));
        for (int q = 1; q < a->base.group.count; q++) /* each rank starts with its neighbour, so that none is flooded */
            nw_machine_send(&a->base, actions, CHANNEL, (me + q) % a->base.group.count, nw_message_hold(m));
        nw_status status = a->codec->exact ? NW_OK : decode(a, actions, m, me, mean, false);
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
    int me = a->base.group.me;
    if (!a->in_place) return decode(a, actions, m, from, sum, from > 0);
    if (from > me || me == 1) return decode(a, actions, m, from, sum, true);
    float *aside = a->aside + a->aside_at[bucket];
    NW_TRY(decode(a, actions, m, from, aside, from > 0));
    if (from < me - 1) return NW_OK;
    for (size_t i = 0; i < count; i++) sum[i] = aside[i] + sum[i];
    nw_actions_touch(actions, sum, count, true);
    actions->touched += 2 * count * sizeof(float);
    return NW_OK;
}

/* Adds what has come, as far as the order of ranks allows. */
static nw_status add_contributions(allreduce *a, nw_actions *actions, int64_t step, int bucket)
{
    bucket_round *br = &round_of(a, step)->buckets[bucket];
    size_t first, count;
    nw_bucket_part(&a->buckets, bucket, a->base.group.me, &first, &count);
    if (!br->given || count == 0) return NW_OK;
    for (; br->added < a->base.group.count; br->added++) {
        bool own = a->in_place && br->added == a->base.group.me; /* it is there already */
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
    int me = a->base.group.me;
    for (int i = 1; i <= a->base.group.count; i++) {
        int owner = (me + i) % a->base.group.count;
        size_t first, count;
        nw_message *m;
        nw_bucket_part(&a->buckets, bucket, owner, &first, &count);
        if (count == 0 || (owner == me && a->in_place)) continue;
        NW_TRY(encode(a, actions, CONTRIBUTION, step, bucket, owner, a->params->gradients + first, count, &m));
        if (owner == me)
            br->held[me] = m;
        else
            nw_machine_send(&a->base, actions, CHANNEL, owner, m);
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

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static nw_status check_message(const allreduce *a, const nw_header *h)
{
    NW_FAIL_IF(
        h->channel != CHANNEL || (h->kind != CONTRIBUTION && h->kind != MEAN), NW_E_MESSAGE,
        "rank %u sent a message of kind %u, which allreduce does not know; do all ranks run the same --exchange?",
        h->from, h->kind);
    NW_FAIL_IF(h->codec != a->codec->ops->id, NW_E_MESSAGE, "rank %u encodes with codec %u, this rank with %d (%s)",
               h->from, h->codec, (int)a->codec->ops->id, a->codec->ops->name);
    NW_FAIL_IF(h->bucket >= (uint32_t)a->buckets.count || h->part >= a->base.group.count, NW_E_MESSAGE,
               "rank %u sent part %u of bucket %u; there are %d parts and %d buckets", h->from, h->part, h->bucket,
               a->base.group.count, a->buckets.count);
    size_t first, count;
    nw_bucket_part(&a->buckets, (int)h->bucket, (int)h->part, &first, &count);
    NW_FAIL_IF(h->count != count || count == 0, NW_E_MESSAGE,
               "rank %u sent %u values for part %u of bucket %u, which has %zu", h->from, h->count, h->part, h->bucket,
               count);
    NW_FAIL_IF(h->step < (uint64_t)a->completed || h->step >= (uint64_t)(a->completed + a->slots), NW_E_MESSAGE,
               "rank %u sent a message of step %" PRIu64 " while this rank is at step %" PRId64, h->from, h->step,
               a->completed);
    return NW_OK;
}

/* The run ends earlier than it should, and goes on from there later as if it had not. */
static void stop_at(allreduce *a, int64_t until)
{
    if (until >= a->go.until) return;
    a->go.until = until;
    a->go.partial = a->go.drain = false;
    a->stopping = true;
}

static nw_status take_message(allreduce *a, nw_actions *actions, nw_message *m)
{
    const nw_header *h = m->header;
    int from;
    NW_TRY(nw_machine_sender(&a->base, m, &from));
    NW_TRY(check_message(a, h));
    int64_t step = (int64_t)h->step;
    int bucket = (int)h->bucket, part = (int)h->part;
    bucket_round *br = &round_of(a, step)->buckets[bucket];
    if (h->until > 0) stop_at(a, step + h->until);
    if (h->kind == CONTRIBUTION) {
        NW_FAIL_IF(part != a->base.group.me || from < br->added || br->held[from], NW_E_MESSAGE,
                   "rank %u sent part %d of bucket %d, step %" PRId64 ", to a rank that does not own it, or twice",
                   h->from, part, bucket, step);
        br->held[from] = nw_message_hold(m);
        return add_contributions(a, actions, step, bucket);
    }
    NW_FAIL_IF(part != from || br->here[part] || !br->given, NW_E_MESSAGE,
               "rank %u sent the mean of part %d of bucket %d, step %" PRId64
               ", which is not its own, or twice, or too "
               "early",
               h->from, part, bucket, step);
    size_t first, count;
    nw_bucket_part(&a->buckets, bucket, part, &first, &count);
    NW_TRY(decode(a, actions, m, from, target(a, step) + first, false));
    part_is_here(a, step, bucket, part);
    return NW_OK;
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

/* What is applied next, if not the gradient vector itself. */
static float *held_back(const allreduce *a) { return a->delay ? a->delayed[a->applied & 1] : a->carried; }

/* Gradients that may stay without their update: those that a delay holds back, unless the run drains and is at its
 * end. */
static int64_t may_wait(const allreduce *a)
{
    bool at_end = a->step >= a->go.until && !a->go.partial && !a->asked;
    return at_end && a->go.drain ? 0 : a->delay;
}

static void update(allreduce *a, nw_actions *actions)
{
    float *held = held_back(a);
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = a->applied,
                                       .clock = a->clocks[a->applied & 1],
                                       .values = a->params->values,
                                       .gradient = held ? held : a->params->gradients,
                                       .count = a->params->learned.floats,
                                       .scale = a->in_place && !a->carried ? 1.0f / (float)a->base.group.count : 1.0f});
    a->applying = true;
}

/* All that is due for the gradients so far is done. */
static void count_step(allreduce *a, nw_actions *actions)
{
    static const int first = 0;
    if (a->base.updates == a->step) return;
    a->count = (nw_count){.updates = a->base.updates = a->step,
                          .clock = a->clocks[(a->step - 1) & 1],
                          .from_count = 1,
                          .from = &first,
                          .reports = &a->report};
    if (a->base.group.me == 0) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &a->count});
}

/* What comes next, if anything can. */
static void go_on(allreduce *a, nw_actions *actions)
{
    if (a->applying || a->asked) return;
    if (a->step - a->applied > may_wait(a)) {
        if (a->completed > a->applied) update(a, actions);
        return;
    }
    count_step(a, actions);
    if (a->step >= a->go.until && !a->go.partial) return;
    if (a->step >= a->go.until) a->go.partial = false;
    a->asked = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = a->step});
}

static nw_status gradient_done(allreduce *a, nw_actions *actions, const nw_task *task)
{
    a->asked = false;
    if (!task->completes) return NW_OK; /* the batches of the run are used up */
    NW_TRY(contribute_from(a, actions, 0));
    a->given = 0;
    a->clocks[a->step & 1] = task->clock;
    a->step++;
    return NW_OK;
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    allreduce *a = (allreduce *)m;
    switch (event->kind) {
    case NW_EVENT_FINAL:
        return contribute_from(a, actions, event->first);
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_GRADIENT) {
            NW_TRY(gradient_done(a, actions, event->task));
            break;
        }
        a->applied++;
        a->applying = false;
        free(a->carried);
        a->carried = NULL;
        break;
    case NW_EVENT_MESSAGE:
        NW_TRY(take_message(a, actions, event->message));
        break;
    case NW_EVENT_GO:
        a->go = *event->go;
        a->stopping = false;
        break;
    case NW_EVENT_STOP:
        stop_at(a, a->step + a->asked + (a->base.group.count > 1 ? 1 + a->delay : 0));
        break;
    default:
        return NW_OK;
    }
    go_on(a, actions);
    return NW_OK;
}

static bool rests(const nw_machine *m)
{
    const allreduce *a = (const allreduce *)m;
    return a->completed == a->step && !a->applying && !a->asked && a->step - a->applied <= may_wait(a);
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const allreduce *a = (const allreduce *)m;
    const step_round *r = &a->rounds[a->completed % a->slots];
    for (int b = 0; b < a->buckets.count; b++) {
        const bucket_round *br = &r->buckets[b];
        if (br->parts == a->base.group.count || !br->given) continue;
        bool own = !br->here[a->base.group.me];
        for (int q = 0; q < a->base.group.count; q++)
            if (own ? q >= br->added && q != a->base.group.me && !br->held[q] : !br->here[q])
                nw_wait_add(wait, &a->base.group, q);
        snprintf(wait->what, sizeof wait->what, "%s of bucket %d of %d, step %" PRId64,
                 own ? "their gradient" : "the mean gradient", b, a->buckets.count, a->completed + 1);
        return;
    }
    snprintf(wait->what, sizeof wait->what, "nothing");
}

static void state(nw_machine *m, nw_state *s)
{
    allreduce *a = (allreduce *)m;
    a->held = a->step - a->applied;
    a->clock = a->clocks[a->applied & 1];
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "held", NW_STATE_KEPT, &a->held);
    nw_state_integer(s, "clock", NW_STATE_KEPT, &a->clock);
    if (a->held > 0 && held_back(a))
        nw_state_vector(s, "delayed", NW_STATE_KEPT, held_back(a), 0, a->params->learned.floats);
}

static nw_status loaded(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    NW_FAIL_IF(m->updates < a->held || m->updates > INT64_MAX / 2 || a->held < 0 || a->held > 1 || a->clock < 0,
               NW_E_FILE,
               "the checkpoint holds an allreduce after %" PRId64 " gradients, %" PRId64
               " of them not applied, which cannot be; take an earlier checkpoint",
               m->updates, a->held);
    a->step = a->completed = m->updates;
    a->applied = a->step - a->held;
    a->clocks[a->applied & 1] = a->clock;
    if (a->applied == a->step || a->delay) return NW_OK;
    a->carried = calloc(a->params->learned.floats, sizeof(float));
    NW_FAIL_IF(!a->carried, NW_E_MEMORY, "no memory for a mean of %zu parameters", a->params->learned.floats);
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void allreduce_free(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    for (int s = 0; a->rounds && s < a->slots; s++) {
        for (int b = 0; a->rounds[s].buckets && b < a->buckets.count; b++) {
            bucket_round *br = &a->rounds[s].buckets[b];
            for (int q = 0; br->held && q < a->base.group.count; q++)
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
    size_t world = (size_t)a->base.group.count, floats = a->params->learned.floats;
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
    if (made && a->in_place && a->base.group.me > 1) {
        size_t own = 0, first, count;
        made = (a->aside_at = calloc((size_t)a->buckets.count, sizeof *a->aside_at)) != NULL;
        for (int b = 0; made && b < a->buckets.count; b++, own += count) {
            nw_bucket_part(&a->buckets, b, a->base.group.me, &first, &count);
            a->aside_at[b] = own;
        }
        made = made && (a->aside = calloc(own + 1, sizeof *a->aside)) != NULL;
    }
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for an exchange of %zu parameters between %zu ranks", floats, world);
    return NW_OK;
}

nw_status nw_allreduce_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"allreduce", handle, rests, waits, state, allreduce_free, loaded};
    NW_FAIL_IF(o->delay < 0 || o->delay > 1, NW_E_ARGUMENT, "allreduce can delay updates by 0 or 1 steps, not by %d",
               o->delay);
    allreduce *a = calloc(1, sizeof *a);
    NW_FAIL_IF(!a, NW_E_MEMORY, "no memory for an exchange");
    a->base = (nw_machine){.ops = &ops, .group = o->group, .equal = true, .lockstep = true};
    a->report = o->report;
    a->params = o->params;
    a->codec = o->codec;
    a->delay = o->delay;
    a->slots = 2 * (o->delay + 1);
    a->in_place = o->codec->exact && o->delay == 0;
    nw_status status = nw_buckets_make(&a->buckets, &o->params->learned, o->bucket_bytes, o->group.count);
    if (status == NW_OK) status = make_rounds(a);
    if (status != NW_OK) {
        allreduce_free(&a->base);
        return status;
    }
    *out = &a->base;
    return NW_OK;
}
