/*
 * gossip_values.c - what the two members of a pair send each other, and how they move by it: a member's vector as it is
 * then (mixed to the present), in buckets, as it is or encoded (channel/agreed.h), and x -= step m / 2,
 * x~ -= step alpha m with m = s_own - s_other, as soon as the other's bucket has come.
 *
 * Where encoded messages do not go together, the bucket is sent once more, exactly, as it is by then.
 *
 * Of codecs that send a share of a vector's elements, a pair averages these alone: as if it met so much less often. The
 * constant eta of continuous momentum goes with the rate, so that of such a bucket is multiplied by its share (with all of
 * it, x~ would push further than pairs can follow, and members drift apart).
 */
#include "gossip/gossip_private.h"

#include "channel/warm_up.h"

#include <stdlib.h>
#include <string.h>

/* What a member sends now. */
static void fill(gossip *g, nw_actions *actions, int bucket, int to, float *out)
{
    size_t first = g->layout.at[bucket].first, floats = nw_gossip_floats(g, bucket);
    const float *x = g->params->values + first, *other = g->other ? g->other + first : NULL;
    float weight = nw_gossip_weigh(g, &(nw_gossip_note){.what = NW_GOSSIP_SENT, .with = to}, bucket);
    nw_actions_touch(actions, x, floats, false);
    if (other) nw_actions_touch(actions, other, floats, false);
    actions->touched += floats * sizeof(float);
    nw_mix_send(x, other, weight, out, floats, g->o.pool);
}

static nw_status encode(gossip *g, nw_actions *actions, int bucket, int to, nw_plain plain, nw_message **m)
{
    int64_t clock = nw_gossip_pace_world(g) * g->o.accumulation;
    if (g->agreed) {
        fill(g, actions, bucket, to, nw_agreed_values(g->agreed, bucket));
        return nw_agreed_encode(g->agreed, actions, bucket, to, clock, plain, m);
    }
    NW_TRY(nw_message_take(actions->pool, nw_gossip_floats(g, bucket) * sizeof(float), m));
    fill(g, actions, bucket, to, (float *)(void *)(*m)->payload);
    (*m)->header->bucket = (uint32_t)bucket;
    (*m)->header->count = (uint32_t)nw_gossip_floats(g, bucket);
    (*m)->header->step = (uint64_t)g->made;
    return NW_OK;
}

static nw_status send(gossip *g, nw_actions *actions, int bucket, int to, nw_plain plain)
{
    nw_message *m;
    NW_TRY(encode(g, actions, bucket, to, plain, &m));
    m->header->kind = VALUES;
    nw_message_drop(g->meeting.sent[bucket]);
    g->meeting.sent[bucket] = nw_message_hold(m);
    nw_machine_send(&g->base, actions, CHANNEL, to, m);
    return NW_OK;
}

nw_status nw_gossip_values_send(gossip *g, nw_actions *actions, int bucket, int to)
{
    return send(g, actions, bucket, to, NW_CODED);
}

nw_status nw_gossip_values_check(const gossip *g, const nw_header *h, int from)
{
    if (g->agreed) return nw_agreed_check(g->agreed, h);
    bool known = h->bucket < (uint32_t)g->layout.count;
    NW_FAIL_IF(!known || h->codec != 0 || h->count != nw_gossip_floats(g, (int)h->bucket) ||
                   h->bytes != h->count * sizeof(float),
               NW_E_MESSAGE, "member %d sent %u bytes for bucket %u, which are not its values", from, h->bytes,
               h->bucket);
    return NW_OK;
}

/* What both are taken to have sent. False: nothing, until the other has sent the bucket once more. */
static nw_status join(gossip *g, nw_actions *actions, const nw_message *m, const float **own, const float **other,
                      bool *joined)
{
    int bucket = (int)m->header->bucket, with = g->meeting.partner;
    nw_message **mine = &g->meeting.sent[bucket];
    *joined = !g->agreed;
    *own = (const float *)(const void *)(*mine)->payload;
    *other = (const float *)(const void *)m->payload;
    if (*joined) return NW_OK;
    NW_TRY(nw_agreed_join(g->agreed, actions, with, *mine, m, own, other, joined));
    if (*joined || nw_agreed_is_exact(*mine)) return NW_OK;
    g->counts->again++;
    NW_TRY(send(g, actions, bucket, with, NW_PLAINLY));
    return nw_agreed_join(g->agreed, actions, with, *mine, m, own, other, joined);
}

nw_status nw_gossip_values_take(gossip *g, nw_actions *actions, const nw_message *m)
{
    int bucket = (int)m->header->bucket;
    size_t first = g->layout.at[bucket].first, floats = nw_gossip_floats(g, bucket);
    float *x = g->params->values + first, *other = g->other ? g->other + first : NULL;
    nw_gossip_note note = {.what = NW_GOSSIP_APPROACHED, .with = g->meeting.partner};
    bool joined;
    NW_TRY(join(g, actions, m, &note.mine, &note.theirs, &joined));
    if (!joined) return NW_OK;
    float weight = nw_gossip_weigh(g, &note, bucket);
    nw_actions_touch(actions, x, floats, true);
    if (other) nw_actions_touch(actions, other, floats, true);
    actions->touched += (other ? 4 : 3) * floats * sizeof(float); /* read as well, and both messages */
    nw_mix_approach(x, other, weight, note.mine, note.theirs, (float)g->how.step, (float)g->how.alpha, floats,
                    g->o.pool);
    g->mixed[bucket] = g->now;
    nw_message_drop(g->meeting.sent[bucket]);
    g->meeting.sent[bucket] = NULL;
    g->meeting.taken++;
    return NW_OK;
}

void nw_gossip_values_end(gossip *g)
{
    if (g->agreed) nw_agreed_end(g->agreed, g->meeting.partner);
}

void nw_gossip_values_forget(gossip *g, int member)
{
    if (g->agreed) nw_agreed_forget(g->agreed, member);
}

static double find_rest(const void *whose)
{
    const gossip *g = whose;
    return nw_agreed_rest(g->agreed, g->params->values);
}

static nw_status check_codecs(const gossip *g)
{
    const char *memory = g->o.memory.name;
    NW_FAIL_IF(
        memory && strcmp(memory, "none") != 0, NW_E_ARGUMENT,
        "memory %s keeps what is not sent, and in gossip what two members agreed on last does; use --memory none",
        memory);
    NW_FAIL_IF(
        nw_warm_up_has_plain(&g->layout, 2), NW_E_ARGUMENT,
        "a ratio of 1, or near it, makes messages longer than floats; choose smaller ratios, also of warm-ups, or "
        "--method none");
    return NW_OK;
}

nw_status nw_gossip_values_make(gossip *g)
{
    nw_agreed_options o = {.layout = &g->layout,
                           .how = g->how.values,
                           .bound = g->how.modulo_bound,
                           .members = g->base.group.count,
                           .me = g->base.group.me,
                           .rank = g->base.group.ranks[g->base.group.me],
                           .number = CHANNEL,
                           .stats = g->o.stats,
                           .pool = g->o.pool};
    if (g->how.step <= 0) g->how.step = 1;
    if (nw_layout_is_exact(&g->layout)) return NW_OK;
    NW_TRY(check_codecs(g));
    NW_NEW(g->agreed, 1, "what pairs agree on");
    NW_TRY(nw_agreed_make(g->agreed, &o));
    if (g->o.stats) g->o.stats->rest = find_rest;
    if (g->o.stats) g->o.stats->whose = g;
    return NW_OK;
}

void nw_gossip_values_free(gossip *g)
{
    if (!g->agreed) return;
    if (g->o.stats && g->o.stats->whose == g) g->o.stats->rest = NULL;
    nw_agreed_free(g->agreed);
    free(g->agreed);
}
