/*
 * local_pairs.c - outer steps of random pairs instead of all members: NoLoCo (Kolehmainen et al. 2025, arXiv
 * 2506.10911). See local.c for the rest.
 *
 * The pairs are a pure function: for each round and fragment a permutation of the members is drawn from the seed, and
 * its entries 2 i and 2 i + 1 are partners. With an odd number one member has no partner.
 *
 * Every member has its own outer parameters theta_i. NoLoCo's outer step for a pair P, with d_j = theta_j - x_j, is
 *
 *   m_i = momentum m_i + lr mean_P(d) + gamma (theta_i - mean_P(theta)),   theta_i -= m_i
 *
 * The last term pulls the two together; nothing else does. With gamma = lr, as in the authors' code, it needs no
 * message of its own: mean(d) + theta_i - mean(theta) = theta_i - mean(x). So a member sends only its x, and
 *
 *   g_i = theta_i - (x_i + x_j) / 2
 *
 * is the gradient of the outer rule, whichever that is. With sgd of rate 1 without momentum theta_i becomes the mean of
 * the pair (plain averaging).
 *
 * Drift. Let e be the difference of a member's theta from the mean of all, and m its momentum. If nothing is learned,
 * an outer step is linear in (e, m) of both partners. Partners are random, so their e are independent, and the second
 * moments (e e, e m, m e, m m) are multiplied by a matrix of 4 x 4. Its spectral radius is the factor of the mean
 * squared distance: for sgd of rate 0.7, 0.55 without momentum, 0.70 with 0.5, and 1.10 with 0.9, so that members drift
 * apart; for nesterov of rate 0.7 with 0.9, 0.92.
 *
 * Messages of rounds that a member has not begun are held. Other members can be ahead as far as their own partners
 * allow, so a slow member holds at most one model of each other member (two with delay 1).
 */
#include "base/rng.h"
#include "exchange/local_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- partners ---------------------------------------------------------------------------------------------------- */

int nw_local_partner(uint64_t seed, int64_t round, int part, int me, int members, uint32_t *order)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_PAIR, (uint64_t)round, (uint32_t)part);
    uint32_t at = 0;
    for (int i = 0; i < members; i++) order[i] = (uint32_t)i;
    nw_rng_shuffle(&rng, order, (uint32_t)members);
    while (order[at] != (uint32_t)me) at++;
    return (at ^ 1) < (uint32_t)members ? (int)order[at ^ 1] : me;
}

static int partner_of(const local *l, int64_t round, int part)
{
    return nw_local_partner((uint64_t)l->seed, round, part, l->base.group.me, l->base.group.count, l->order);
}

/* ---- drift ------------------------------------------------------------------------------------------------------- */

/* Entry (i, j) of the Kronecker square of a matrix of 2 x 2. */
static double squared(double m[2][2], int i, int j) { return m[i / 2][j / 2] * m[i % 2][j % 2]; }

double nw_local_drift(double lr, double momentum, bool nesterov)
{
    double pull = nesterov ? lr * (1 + momentum) / 2 : lr / 2, push = lr * momentum * (nesterov ? momentum : 1);
    double own[2][2] = {{1 - pull, -push}, {0.5, momentum}}, other[2][2] = {{pull, 0}, {-0.5, 0}};
    double v[4] = {1, 0, 0, 0.5}, growth = 0;
    enum { LEAD = 1000, ROUNDS = 2000 };
    for (int t = 0; t < LEAD + ROUNDS; t++) { /* the power method; for complex eigenvalues the mean growth */
        double next[4] = {0}, size = 0;
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) next[i] += (squared(own, i, j) + squared(other, i, j)) * v[j];
        for (int i = 0; i < 4; i++) size += fabs(next[i]);
        if (!(size > 0)) return 0;
        for (int i = 0; i < 4; i++) v[i] = next[i] / size;
        if (t >= LEAD) growth += log(size);
    }
    return exp(growth / ROUNDS);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* A message of the round in progress. The last one completes the gradient of the outer update. */
static nw_status take(local *l, nw_actions *actions, const nw_message *m, int from)
{
    const nw_header *h = m->header;
    int f = l->layout.at[h->bucket].fragment;
    l->here[h->bucket] = true;
    NW_TRY(nw_channel_decode(&l->channel, actions, m, from, l->difference, NW_AT_FIRST, false));
    if (--l->at[f].missing == 0) nw_local_compute(l, actions, f, PULL);
    return NW_OK;
}

static bool is_of(const nw_message *m, int64_t round, int bucket)
{
    return m->header->step == (uint64_t)round && m->header->bucket == (uint32_t)bucket;
}

static nw_message **find_held(local *l, int64_t round, int bucket)
{
    nw_message **at = &l->held;
    while (*at && !is_of(*at, round, bucket)) at = &(*at)->next;
    return at;
}

static nw_status take_held(local *l, nw_actions *actions, int64_t round, int bucket, int from)
{
    nw_message **at = find_held(l, round, bucket), *m = *at;
    if (!m) return NW_OK;
    *at = m->next;
    nw_status status = take(l, actions, m, from);
    nw_message_drop(m);
    return status;
}

nw_status nw_local_take_values(local *l, nw_actions *actions, nw_message *m, int from)
{
    const nw_header *h = m->header;
    NW_FAIL_IF(h->kind != VALUES || h->channel != CHANNEL, NW_E_MESSAGE,
               "rank %u sent a message of kind %u, which %s does not know; do all ranks run the same --exchange?",
               h->from, h->kind, l->base.ops->name);
    NW_TRY(nw_channel_check(&l->channel, h));
    int bucket = (int)h->bucket, f = l->layout.at[bucket].fragment;
    NW_FAIL_IF(l->end.over || h->step > INT64_MAX || partner_of(l, (int64_t)h->step, f) != from, NW_E_MESSAGE,
               "rank %u sent bucket %u of round %" PRIu64 ", in which this rank has another partner", h->from,
               h->bucket, h->step);
    int64_t round = (int64_t)h->step;
    bool now = is_in(l->pending, f) && round == l->round[f];
    NW_FAIL_IF(now ? l->here[bucket] : round <= l->round[f] || *find_held(l, round, bucket), NW_E_MESSAGE,
               "rank %u sent bucket %u of round %" PRIu64 " twice, or too late", h->from, h->bucket, h->step);
    if (now) return take(l, actions, m, from);
    m->next = l->held;
    l->held = nw_message_hold(m);
    return NW_OK;
}

/* ---- outer steps ------------------------------------------------------------------------------------------------- */

static nw_status send_bucket(local *l, nw_actions *actions, int bucket, int64_t round, int to)
{
    nw_message *m;
    nw_moment when = {round, l->clock, round};
    NW_TRY(nw_channel_encode(&l->channel, actions, bucket, when, l->params->values, -1, NW_CODED, &m));
    m->header->kind = VALUES;
    nw_machine_send(&l->base, actions, CHANNEL, to, m);
    return NW_OK;
}

nw_status nw_local_send_to_partner(local *l, nw_actions *actions, int f)
{
    int64_t round = l->round[f];
    int to = partner_of(l, round, f);
    bool alone = to == l->base.group.me;
    l->at[f].missing = alone ? 0 : l->at[f].buckets;
    if (alone) nw_local_compute(l, actions, f, ALONE);
    for (int b = 0; b < l->layout.count && !alone; b++) {
        if (l->layout.at[b].fragment != f) continue;
        l->here[b] = false;
        NW_TRY(send_bucket(l, actions, b, round, to));
        NW_TRY(take_held(l, actions, round, b, to));
    }
    return NW_OK;
}

void nw_local_wait_for_pair(const local *l, int f, nw_wait *wait)
{
    nw_wait_add(wait, &l->base.group, partner_of(l, l->round[f], f));
    snprintf(wait->what, sizeof wait->what, "their parameters of round %" PRId64, l->round[f] + 1);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* Parameters have no error memory, so only codecs that round them are allowed. */
static bool is_near(const nw_codec *c)
{
    return c->exact || c->ops->family == NW_FAMILY_FP16 || c->ops->family == NW_FAMILY_BF16;
}

nw_status nw_local_make_pairs(local *l, const nw_exchange_options *o)
{
    nw_channel_options c = {.layout = &l->layout,
                            .name = "memory",
                            .number = CHANNEL,
                            .member = o->group.me,
                            .rank = o->group.ranks[o->group.me],
                            .only = -1,
                            .stats = o->stats,
                            .pool = o->pool};
    for (int b = 0; b < l->layout.count; b++)
        NW_FAIL_IF(!is_near(l->layout.at[b].block.codec), NW_E_ARGUMENT,
                   "pairs send parameters, of which %s would leave too little; use --method fp16 or bf16, or "
                   "--outer-group all, where differences travel",
                   l->layout.at[b].block.codec->ops->name);
    NW_NEW(l->here, l->layout.count + 1, "%d buckets", l->layout.count);
    NW_NEW(l->order, o->group.count, "%d members", o->group.count);
    return nw_channel_make(&l->channel, &c);
}

void nw_local_free_pairs(local *l)
{
    for (nw_message *m; (m = l->held);) {
        l->held = m->next;
        nw_message_drop(m);
    }
    if (l->pairs) nw_channel_free(&l->channel);
    free(l->here);
    free(l->order);
}
