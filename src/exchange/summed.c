/* summed.c - see summed.h. */
#include "exchange/summed.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct nw_summed {
    nw_summed_options o;
    const nw_block *block;
    int members, me, rounds;
    float *work, *mean; /* of the round: what this member gives; what all have given, part by part */
    nw_message **held;  /* [step % slots][round][member]: contributions to this member's part */
    bool *here;         /* by member: the mean of its part has come, or is empty */
    int added, parts;   /* contributions that were added; parts that are here */
    int round;
    bool under_way;
    int64_t steps; /* that are over */
    nw_moment when, next;
    const float *vector, *next_vector; /* next_vector: of a step that waits; NULL: none */
};

static size_t part(const nw_summed *s, int i)
{
    return nw_layout_part(nw_codec_round_floats(s->block, s->round), s->members, i);
}
static size_t part_floats(const nw_summed *s, int i) { return part(s, i + 1) - part(s, i); }

static nw_message **held(const nw_summed *s, int64_t step, int round, int from)
{
    return &s->held[((step % s->o.slots) * s->rounds + round) * s->members + from];
}

/* A message with part i of `from`. */
static nw_status make_message(const nw_summed *s, nw_actions *actions, int kind, int i, const float *from,
                              nw_message **out)
{
    size_t count = part_floats(s, i);
    NW_TRY(nw_message_take(actions->pool, count * sizeof *from, out));
    nw_header *h = (*out)->header;
    h->kind = (uint8_t)kind;
    h->flags = (uint8_t)s->round;
    h->codec = NW_CODEC_NONE;
    h->bucket = (uint32_t)s->o.bucket;
    h->part = (uint16_t)i;
    h->count = (uint32_t)count;
    h->step = h->version = (uint64_t)s->when.step;
    if (*s->o.until > 0) h->until = (uint32_t)(*s->o.until - s->when.step);
    memcpy((*out)->payload, from + part(s, i), count * sizeof *from);
    actions->touched += 2 * count * sizeof *from;
    return NW_OK;
}

static nw_status go_on(nw_summed *s, nw_actions *actions, bool *done);

static void begin_round(nw_summed *s)
{
    s->added = s->parts = 0;
    for (int q = 0; q < s->members; q++) {
        s->here[q] = part_floats(s, q) == 0;
        s->parts += s->here[q];
    }
}

static nw_status contribute(nw_summed *s, nw_actions *actions, bool *done)
{
    begin_round(s);
    nw_channel_give(s->o.channel, actions, s->o.bucket, s->when, s->vector, s->round, s->work);
    for (int i = 1; i < s->members; i++) {
        int to = (s->me + i) % s->members;
        nw_message *m;
        if (part_floats(s, to) == 0) continue;
        NW_TRY(make_message(s, actions, NW_SUMMED_GIVEN, to, s->work, &m));
        nw_machine_send(s->o.machine, actions, s->o.channel->o.number, to, m);
    }
    return go_on(s, actions, done);
}

/* The mean of this member's part is made: everybody gets it. */
static nw_status finish_part(nw_summed *s, nw_actions *actions)
{
    float *own = s->mean + part(s, s->me), share = 1.0f / (float)s->members;
    nw_message *m;
    for (size_t i = 0; i < part_floats(s, s->me); i++) own[i] *= share;
    s->here[s->me] = true;
    s->parts++;
    if (s->members == 1) return NW_OK;
    NW_TRY(make_message(s, actions, NW_SUMMED_MEAN, s->me, s->mean, &m));
    for (int i = 1; i < s->members; i++)
        nw_machine_send(s->o.machine, actions, s->o.channel->o.number, (s->me + i) % s->members, nw_message_hold(m));
    nw_message_drop(m);
    return NW_OK;
}

/* Adds what has come to this member's part, as far as the order of members allows. */
static nw_status add_contributions(nw_summed *s, nw_actions *actions)
{
    size_t first = part(s, s->me), count = part_floats(s, s->me);
    if (count == 0 || s->added == s->members) return NW_OK;
    for (; s->added < s->members; s->added++) {
        nw_message **m = held(s, s->when.step, s->round, s->added);
        const float *from = s->work + first;
        if (s->added != s->me && !*m) return NW_OK;
        if (s->added != s->me) from = (const float *)(const void *)(*m)->payload;
        for (size_t i = 0; i < count; i++) s->mean[first + i] = s->added ? s->mean[first + i] + from[i] : from[i];
        nw_message_drop(*m);
        *m = NULL;
        actions->touched += 3 * count * sizeof *from;
    }
    return finish_part(s, actions);
}

/* A round is over: the next, or the end of the step and what waited for it. */
static nw_status finish_round(nw_summed *s, nw_actions *actions, bool *done)
{
    bool last = s->round + 1 == s->rounds;
    float *target = last ? s->o.targets[s->when.step & 1] : NULL;
    nw_channel_turn(s->o.channel, actions, s->o.bucket, s->when, s->vector, s->round, s->mean, target);
    s->round = last ? 0 : s->round + 1;
    if (!last) return contribute(s, actions, done);
    s->under_way = false;
    s->steps = s->when.step + 1;
    *done = true;
    if (!s->next_vector) return NW_OK;
    bool again = false; /* it cannot be over before others have answered, unless there are none: then it never waited */
    const float *vector = s->next_vector;
    s->next_vector = NULL;
    return nw_summed_give(s, actions, s->next, vector, &again);
}

static nw_status go_on(nw_summed *s, nw_actions *actions, bool *done)
{
    NW_TRY(add_contributions(s, actions));
    return s->parts == s->members ? finish_round(s, actions, done) : NW_OK;
}

nw_status nw_summed_give(nw_summed *s, nw_actions *actions, nw_moment when, const float *vector, bool *done)
{
    if (s->under_way) {
        s->next = when;
        s->next_vector = vector;
        return NW_OK;
    }
    s->under_way = true;
    s->when = when;
    s->vector = vector;
    return contribute(s, actions, done);
}

nw_status nw_summed_take(nw_summed *s, nw_actions *actions, nw_message *m, int from, bool *done)
{
    const nw_header *h = m->header;
    int64_t step = (int64_t)h->step;
    bool fits = h->flags < s->rounds && h->part < s->members && h->codec == NW_CODEC_NONE;
    size_t count = fits ? nw_codec_round_floats(s->block, h->flags) : 0;
    size_t floats = nw_layout_part(count, s->members, h->part + 1) - nw_layout_part(count, s->members, h->part);
    NW_FAIL_IF(!fits || h->count != floats || h->bytes != floats * sizeof(float) || floats == 0, NW_E_MESSAGE,
               "rank %u sent %u floats in round %u of bucket %u, part %u, and %zu were expected", h->from, h->count,
               h->flags, h->bucket, h->part, floats);
    if (h->kind == NW_SUMMED_GIVEN) {
        nw_message **at = held(s, step, h->flags, from);
        bool late =
            s->under_way && step == s->when.step && (h->flags < s->round || (h->flags == s->round && from < s->added));
        NW_FAIL_IF(h->part != s->me || *at || step < s->steps || late, NW_E_MESSAGE,
                   "rank %u sent part %u of bucket %u, step %" PRId64 ", to a rank that does not own it, or twice",
                   h->from, h->part, h->bucket, step);
        *at = nw_message_hold(m);
        bool now = s->under_way && step == s->when.step && h->flags == s->round;
        return now ? go_on(s, actions, done) : NW_OK;
    }
    NW_FAIL_IF(
        !s->under_way || step != s->when.step || h->flags != s->round || h->part != from || s->here[from], NW_E_MESSAGE,
        "rank %u sent the mean of part %u of bucket %u, step %" PRId64 ", which is not its own, or twice, or too early",
        h->from, h->part, h->bucket, step);
    memcpy(s->mean + part(s, from), m->payload, h->bytes);
    actions->touched += 2 * h->bytes;
    s->here[from] = true;
    s->parts++;
    return go_on(s, actions, done);
}

int64_t nw_summed_steps(const nw_summed *s) { return s->steps; }
void nw_summed_begin_at(nw_summed *s, int64_t step) { s->steps = step; }

bool nw_summed_waits(const nw_summed *s, nw_wait *wait)
{
    for (int q = 0; s->under_way && q < s->members; q++) {
        bool owes = s->here[s->me] ? !s->here[q] : q != s->me && q >= s->added && !*held(s, s->when.step, s->round, q);
        if (owes) nw_wait_add(wait, &s->o.machine->group, q);
    }
    return s->under_way;
}

void nw_summed_free(nw_summed *s)
{
    if (!s) return;
    for (int i = 0; s->held && i < s->o.slots * s->rounds * s->members; i++) nw_message_drop(s->held[i]);
    free(s->held);
    free(s->here);
    free(s->work);
    free(s->mean);
    free(s);
}

nw_status nw_summed_create(nw_summed **out, const nw_summed_options *o)
{
    nw_summed *s = calloc(1, sizeof *s);
    size_t most = 0;
    *out = NULL;
    NW_FAIL_IF(!s, NW_E_MEMORY, "no memory for a reduction");
    s->o = *o;
    s->block = &o->channel->o.layout->at[o->bucket].block;
    s->members = o->machine->group.count;
    s->me = o->machine->group.me;
    s->rounds = s->block->codec->ops->rounds->count;
    for (int i = 0; i < s->rounds; i++) {
        size_t floats = nw_codec_round_floats(s->block, i);
        if (floats > most) most = floats;
    }
    s->held = calloc((size_t)(o->slots * s->rounds * s->members), sizeof *s->held);
    s->here = calloc((size_t)s->members, sizeof *s->here);
    s->work = calloc(most + 1, sizeof *s->work);
    s->mean = calloc(most + 1, sizeof *s->mean);
    if (!s->held || !s->here || !s->work || !s->mean) {
        nw_summed_free(s);
        return NW_FAIL(NW_E_MEMORY, "no memory for rounds of %zu floats", most);
    }
    *out = s;
    return NW_OK;
}
