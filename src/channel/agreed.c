/* agreed.c - see agreed.h. */
#include "channel/agreed.h"

#include "base/clock.h"
#include "codec/modulo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16, BITS = 62 };
static const int64_t VERSION_MOST = (int64_t)1 << 39; /* keys of random numbers have 40 bits for it */
static const double PLAIN_LEAST = 0.9375;             /* contraction of codecs that may travel plainly */
static const double FIRST_BOUND = 0.125;              /* of a tensor's largest float */

/* ---- ways -------------------------------------------------------------------------------------------------------- */

const char *nw_agreeing_name(nw_agreeing how)
{
    static const char *const names[] = {"auto", "exact", "plain", "difference", "modulo"};
    return names[how];
}

nw_agreeing nw_agreeing_of(const nw_codec *codec, nw_agreeing wanted)
{
    nw_family family = codec->ops->family;
    if (codec->exact) return NW_AGREE_EXACTLY;
    if (family == NW_FAMILY_RESIDUES) return NW_AGREE_MODULO;
    if (wanted != NW_AGREE_BY_CODEC) return wanted;
    return family <= NW_FAMILY_BF16 || family == NW_FAMILY_CHOSEN ? NW_AGREE_PLAIN : NW_AGREE_DIFFERENCE;
}

size_t nw_agreed_bytes(const nw_layout_options *l, nw_agreeing how, int neighbours)
{
    bool copies = false, encodes = false;
    for (int i = 0; i < l->segments->count; i++) {
        nw_agreeing own = nw_agreeing_of(l->codecs ? l->codecs[i] : l->codec, how);
        copies |= own == NW_AGREE_DIFFERENCE;
        encodes |= own != NW_AGREE_EXACTLY;
    }
    return ((size_t)encodes + (copies ? (size_t)neighbours : 0)) * l->segments->floats * sizeof(float);
}

/* Both ends must be able to choose the same entries. */
static nw_status check_codec(const nw_codec *codec)
{
    bool chosen = codec->ops->family == NW_FAMILY_CHOSEN;
    NW_FAIL_IF(codec->ops->rounds && !chosen, NW_E_ARGUMENT,
               "%s takes means over all members, and two of them have none; use --method topk, sign or int8",
               codec->ops->name);
    NW_FAIL_IF(codec->ops->rounds, NW_E_INTERNAL, "random entries of a pair travel as bytes");
    NW_FAIL_IF(chosen && codec->options.scaled, NW_E_ARGUMENT,
               "random entries that are multiplied by n / k would throw a pair that averages them apart; leave out "
               "--scaled");
    return NW_OK;
}

static nw_status check_item(const nw_codec *codec, nw_agreeing how, size_t n)
{
    double delta = codec->ops->delta ? codec->ops->delta(codec, n) : 1;
    bool chosen = codec->ops->family == NW_FAMILY_CHOSEN;
    if (how == NW_AGREE_DIFFERENCE && !chosen && strcmp(codec->ops->name, "thresholdv") != 0)
        NW_FAIL_IF(
            !(delta > 0), NW_E_ARGUMENT,
            "%s may miss more of a tensor of %zu floats than it sends (its contraction factor is %g, and must be "
            "above 0), so that members would never agree; choose another --method, or for qsgd more --qstates or a "
            "--bucket",
            codec->ops->name, n, delta);
    if (how == NW_AGREE_PLAIN && !chosen)
        NW_FAIL_IF(!(delta >= PLAIN_LEAST), NW_E_ARGUMENT,
                   "%s would leave too little of parameters that it encodes as they are (its contraction factor for "
                   "tensors of %zu floats is %g, and must be %g at least); use --gossip-values difference",
                   codec->ops->name, n, delta, PLAIN_LEAST);
    return NW_OK;
}

static nw_status check_bucket(const nw_block *b, nw_agreeing how, double bound)
{
    const int followed = 4;
    NW_FAIL_IF(
        how == NW_AGREE_MODULO && bound <= 0 && b->codec->options.bits < followed, NW_E_ARGUMENT,
        "%d bits are too few for a bound that follows what is seen, since a step would be as large as that; give "
        "--modulo-bits %d or more, or a --modulo-bound",
        b->codec->options.bits, followed);
    if (how == NW_AGREE_EXACTLY || how == NW_AGREE_MODULO) return NW_OK;
    NW_TRY(check_codec(b->codec));
    for (int i = 0; i < b->item_count; i++) {
        const nw_tile *last = &b->tiles[b->item_tile[i + 1] - 1];
        NW_TRY(check_item(b->codec, how, (size_t)last->within + last->count));
    }
    return NW_OK;
}

/* ---- ranges ------------------------------------------------------------------------------------------------------ */

typedef struct ranging {
    float *to;
    const float *a, *b;
    size_t count;
    bool differ; /* to -= a; else to = the mean of a and b */
} ranging;

static void range_piece(void *context, int index, int worker)
{
    const ranging *r = context;
    size_t first = (size_t)index * PIECE, end = r->count - first < PIECE ? r->count : first + PIECE;
    (void)worker;
    for (size_t i = first; i < end && r->differ; i++) r->to[i] -= r->a[i];
    for (size_t i = first; i < end && !r->differ; i++) r->to[i] = 0.5f * (r->a[i] + r->b[i]);
}

static void range(const nw_agreed *a, ranging r)
{
    int pieces = (int)((r.count + PIECE - 1) / PIECE);
    if (a->o.pool && pieces > 3)
        nw_pool_run(a->o.pool, pieces, range_piece, &r);
    else
        for (int i = 0; i < pieces; i++) range_piece(&r, i, 0);
}

static const nw_bucket *bucket_of(const nw_agreed *a, const nw_message *m)
{
    return &a->o.layout->at[m->header->bucket];
}

/* ---- encoding ---------------------------------------------------------------------------------------------------- */

/* The same at both ends. */
static uint32_t key_of(const nw_agreed *a, int with)
{
    uint32_t low = (uint32_t)(with < a->o.me ? with : a->o.me), high = (uint32_t)(with < a->o.me ? a->o.me : with);
    return low << 16 | high;
}

static nw_status need_steps(const nw_agreed *a, nw_edge *e)
{
    if (!e->steps) NW_NEW(e->steps, a->items, "the steps of %u tensors", a->items);
    return NW_OK;
}

/* Whether this must be exact, because both have nothing yet. */
static bool begins(const nw_agreed *a, int bucket, int with)
{
    bool needs = a->how[bucket] == NW_AGREE_DIFFERENCE || (a->how[bucket] == NW_AGREE_MODULO && a->o.bound <= 0);
    return needs && a->versions[with] == 0;
}

/* Of an edge that has steps of one bound, from the beginning. */
static nw_status fix_steps(nw_agreed *a, int bucket, nw_edge *e)
{
    const nw_block *b = &a->o.layout->at[bucket].block;
    NW_TRY(need_steps(a, e));
    for (int i = 0; i < b->item_count && a->o.bound > 0; i++)
        e->steps[a->item[bucket] + (uint32_t)i] = nw_modulo_step(b->codec, a->o.bound);
    return NW_OK;
}

nw_status nw_agreed_encode(nw_agreed *a, nw_actions *actions, int bucket, int with, int64_t clock, nw_plain plain,
                           nw_message **m)
{
    nw_edge *e = &a->edges[with];
    const nw_bucket *b = &a->o.layout->at[bucket];
    nw_moment when = {.step = a->versions[with], .clock = clock, .version = a->versions[with]};
    if (begins(a, bucket, with)) plain = NW_PLAINLY;
    if (plain == NW_CODED && a->how[bucket] == NW_AGREE_DIFFERENCE) {
        nw_actions_touch(actions, e->copy + b->first, b->block.floats, false);
        actions->touched += 2 * b->block.floats * sizeof(float);
        range(a, (ranging){a->values + b->first, e->copy + b->first, NULL, b->block.floats, true});
    }
    if (a->how[bucket] == NW_AGREE_MODULO) NW_TRY(fix_steps(a, bucket, e));
    a->channel.steps = a->how[bucket] == NW_AGREE_MODULO ? e->steps + a->item[bucket] : NULL;
    a->channel.key = key_of(a, with);
    return nw_channel_encode(&a->channel, actions, bucket, when, a->values, -1, plain, m);
}

/* ---- joining ----------------------------------------------------------------------------------------------------- */

nw_status nw_agreed_check(const nw_agreed *a, const nw_header *h)
{
    NW_TRY(nw_channel_check(&a->channel, h));
    bool exact = h->codec == NW_CODEC_NONE, copied = a->how[h->bucket] == NW_AGREE_DIFFERENCE;
    NW_FAIL_IF(h->version > (uint64_t)VERSION_MOST || h->step != h->version || (!exact && copied && h->version == 0) ||
                   (exact && h->bytes != h->count * sizeof(float)),
               NW_E_MESSAGE, "rank %u sent %u bytes of bucket %u as exchange %" PRIu64 " of a pair, which cannot be",
               h->from, h->bytes, h->bucket, h->version);
    return NW_OK;
}

/* How many times the largest difference of an item its bound is. The largest of a few floats changes much; four bits have no
 * room for more. */
static double margin_of(const nw_codec *codec, size_t floats)
{
    const size_t few = 1024;
    return floats < few && codec->options.bits > 5 ? 16 : 4;
}

/* An item's step by floats that both know: with room for larger differences than those of two that have just met. */
static float first_step(const nw_codec *codec, const float *own, const float *other, uint32_t count, float before)
{
    float most = 0, size = 0;
    for (uint32_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(own[i] - other[i]));
        size = fmaxf(size, fmaxf(fabsf(own[i]), fabsf(other[i])));
    }
    float step = nw_modulo_step(codec, fmax(margin_of(codec, count) * (double)most, (double)size * FIRST_BOUND));
    return step > before / 2 ? step : before / 2;
}

/* What both exact messages hold; the steps that follow from it. */
static nw_status join_exactly(nw_agreed *a, nw_edge *e, const nw_message *mine, const nw_message *theirs)
{
    int bucket = (int)mine->header->bucket;
    const nw_block *b = &bucket_of(a, mine)->block;
    const float *own = (const float *)(const void *)mine->payload,
                *other = (const float *)(const void *)theirs->payload;
    bool both = mine->header->version == theirs->header->version; /* have the steps of before */
    if (a->how[bucket] != NW_AGREE_MODULO) return NW_OK;
    NW_TRY(fix_steps(a, bucket, e));
    for (int i = 0; i < b->item_count && a->o.bound <= 0; i++) {
        const nw_tile *last = &b->tiles[b->item_tile[i + 1] - 1];
        uint32_t first = b->tiles[b->item_tile[i]].place, count = last->place + last->count - first;
        float *step = &e->steps[a->item[bucket] + (uint32_t)i];
        *step = first_step(b->codec, own + first, other + first, count, both ? *step : 0);
    }
    return NW_OK;
}

typedef struct apart_job {
    nw_agreed *a;
    const nw_decoding *mine, *theirs;
    _Atomic bool beyond;
} apart_job;

static void apart_tile(void *context, int index, int worker)
{
    apart_job *j = context;
    float *apart = j->a->mine + j->mine->block->tiles[index].place;
    (void)worker;
    if (!nw_modulo_apart(j->mine, j->theirs, index, apart, &j->a->most[index])) j->beyond = true;
}

/* Steps fall by half at most. */
static void follow(nw_agreed *a, nw_edge *e, int bucket)
{
    const nw_block *b = &a->o.layout->at[bucket].block;
    for (int i = 0; i < b->item_count && a->o.bound <= 0; i++) {
        float *step = &e->steps[a->item[bucket] + (uint32_t)i], most = 0;
        size_t floats = 0;
        for (int t = b->item_tile[i]; t < b->item_tile[i + 1]; t++) {
            most = fmaxf(most, a->most[t]);
            floats += b->tiles[t].count;
        }
        float next = nw_modulo_step(b->codec, margin_of(b->codec, floats) * (double)most);
        *step = next > *step / 2 ? next : *step / 2;
    }
}

/* The difference as the one's values, and zeros as the other's. */
static nw_status join_modulo(nw_agreed *a, nw_actions *actions, nw_edge *e, const nw_message *mine,
                             const nw_message *theirs, int key, bool *joined)
{
    const nw_block *b = &bucket_of(a, mine)->block;
    nw_decoding own = nw_channel_read(&a->channel, mine, key), other = nw_channel_read(&a->channel, theirs, key);
    apart_job j = {.a = a, .mine = &own, .theirs = &other};
    int64_t began_ns = nw_now_ns();
    NW_TRY(nw_codec_check(&other, a->o.pool));
    actions->touched += nw_factors_apply(actions->factors, b->codec->ops->name, NW_FACTOR_DECODE,
                                         2 * theirs->header->bytes + 2 * b->floats * sizeof(float));
    if (a->o.pool && b->tile_count > 3)
        nw_pool_run(a->o.pool, b->tile_count, apart_tile, &j);
    else
        for (int t = 0; t < b->tile_count; t++) apart_tile(&j, t, 0);
    nw_channel_stats_add_time(a->o.stats, b->codec, NW_STATS_DECODING, nw_now_ns() - began_ns);
    *joined = !j.beyond;
    if (j.beyond) return NW_OK;
    memset(a->other, 0, b->floats * sizeof *a->other);
    follow(a, e, (int)mine->header->bucket);
    return NW_OK;
}

/* s = what both have, and what was decoded. */
static nw_status decode(nw_agreed *a, nw_actions *actions, const nw_message *m, int key, const float *copy, float *out)
{
    const nw_bucket *b = bucket_of(a, m);
    if (copy) memcpy(out, copy + b->first, b->block.floats * sizeof *out);
    if (copy) actions->touched += 2 * b->block.floats * sizeof *out;
    return nw_channel_decode(&a->channel, actions, m, key, out, NW_AT_PLACE, copy != NULL);
}

static nw_status join_encoded(nw_agreed *a, nw_actions *actions, nw_edge *e, const nw_message *mine,
                              const nw_message *theirs, int key, bool *joined)
{
    nw_agreeing how = a->how[mine->header->bucket];
    const float *copy = how == NW_AGREE_DIFFERENCE ? e->copy : NULL;
    *joined = mine->header->version == theirs->header->version;
    if (!*joined) return NW_OK;
    if (how == NW_AGREE_MODULO) return join_modulo(a, actions, e, mine, theirs, key, joined);
    NW_TRY(decode(a, actions, theirs, key, copy, a->other));
    return decode(a, actions, mine, key, copy, a->mine);
}

static nw_status make_copy(const nw_agreed *a, nw_edge *e)
{
    NW_NEW(e->copy, a->o.layout->floats + 1, "a copy of %zu parameters for a neighbour", a->o.layout->floats);
    return NW_OK;
}

/* The mean of both is what both have from now on. */
static nw_status keep(nw_agreed *a, nw_actions *actions, nw_edge *e, int bucket, const float *own, const float *other)
{
    const nw_bucket *b = &a->o.layout->at[bucket];
    if (a->how[bucket] != NW_AGREE_DIFFERENCE) return NW_OK;
    if (!e->copy) NW_TRY(make_copy(a, e));
    nw_actions_touch(actions, e->copy + b->first, b->block.floats, true);
    actions->touched += 2 * b->block.floats * sizeof(float);
    range(a, (ranging){e->copy + b->first, own, other, b->block.floats, false});
    return NW_OK;
}

nw_status nw_agreed_join(nw_agreed *a, nw_actions *actions, int with, const nw_message *mine, const nw_message *theirs,
                         const float **own, const float **other, bool *joined)
{
    nw_edge *e = &a->edges[with];
    int64_t version = (int64_t)(theirs->header->version > mine->header->version ? theirs : mine)->header->version;
    bool exact = nw_agreed_is_exact(mine);
    *own = exact ? (const float *)(const void *)mine->payload : a->mine;
    *other = exact ? (const float *)(const void *)theirs->payload : a->other;
    *joined = exact == nw_agreed_is_exact(theirs);
    if (!*joined) return NW_OK;
    if (exact)
        NW_TRY(join_exactly(a, e, mine, theirs));
    else
        NW_TRY(join_encoded(a, actions, e, mine, theirs, (int)key_of(a, with), joined));
    if (!*joined) return NW_OK;
    e->next = version + 1;
    return keep(a, actions, e, (int)mine->header->bucket, *own, *other);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

double nw_agreed_rest(const nw_agreed *a, const float *x)
{
    double sum = 0;
    for (int m = 0; m < a->o.members; m++)
        for (int b = 0; b < a->o.layout->count && a->edges[m].copy; b++) {
            size_t first = a->o.layout->at[b].first, count = a->o.layout->at[b].block.floats;
            const float *copy = a->edges[m].copy;
            for (size_t i = first; i < first + count && a->how[b] == NW_AGREE_DIFFERENCE; i++)
                sum += ((double)x[i] - (double)copy[i]) * ((double)x[i] - (double)copy[i]);
        }
    return sum;
}

static int words(const nw_agreed *a) { return (a->o.members + BITS - 1) / BITS; }
static bool has_begun(const nw_agreed *a, int member) { return (a->begun[member / BITS] >> member % BITS & 1) != 0; }

static void note_begun(nw_agreed *a, int member, bool begun)
{
    int64_t bit = (int64_t)1 << member % BITS;
    a->begun[member / BITS] = begun ? a->begun[member / BITS] | bit : a->begun[member / BITS] & ~bit;
}

void nw_agreed_end(nw_agreed *a, int with)
{
    nw_edge *e = &a->edges[with];
    if (e->next > VERSION_MOST) {
        nw_agreed_forget(a, with);
        return;
    }
    a->versions[with] = e->next;
    note_begun(a, with, true);
}

void nw_agreed_forget(nw_agreed *a, int with)
{
    nw_edge *e = &a->edges[with];
    free(e->copy);
    free(e->steps);
    *e = (nw_edge){0};
    a->versions[with] = 0;
    note_begun(a, with, false);
}

static void list_edge(const nw_agreed *a, int member, nw_state *s)
{
    nw_edge *e = &a->edges[member];
    char name[NW_STATE_NAME];
    int64_t items = (int64_t)a->items;
    snprintf(name, sizeof name, "pair_copy.%d", member);
    if (e->copy) nw_state_vector(s, name, NW_STATE_OWN, e->copy, 0, a->o.layout->floats);
    snprintf(name, sizeof name, "pair_steps.%d", member);
    if (e->steps) nw_state_tensor(s, name, NW_STATE_OWN, NW_STATE_F32, 1, &items, e->steps);
}

/* Which edges have begun are numbers, so that a checkpoint without any of this begins them all. */
void nw_agreed_state(nw_agreed *a, nw_state *s)
{
    int64_t members = a->o.members;
    bool any = false;
    for (int w = 0; w < words(a); w++) {
        char name[NW_STATE_NAME];
        snprintf(name, sizeof name, "pairs_begun.%d", w);
        nw_state_integer(s, name, NW_STATE_OWN, &a->begun[w]);
        if (s->status == NW_OK) s->at[s->count - 1].optional = true;
        any |= a->begun[w] != 0;
    }
    if (any) nw_state_tensor(s, "pair_versions", NW_STATE_OWN, NW_STATE_I64, 1, &members, a->versions);
    for (int m = 0; m < a->o.members; m++)
        if (has_begun(a, m)) list_edge(a, m, s);
}

nw_status nw_agreed_loaded(nw_agreed *a)
{
    bool copies = false, steps = false;
    for (int b = 0; b < a->o.layout->count; b++) {
        copies |= a->how[b] == NW_AGREE_DIFFERENCE;
        steps |= a->how[b] == NW_AGREE_MODULO;
    }
    for (int m = 0; m < words(a) * BITS; m++) {
        bool begun = has_begun(a, m);
        NW_FAIL_IF(a->begun[m / BITS] < 0 || (begun && m >= a->o.members), NW_E_FILE,
                   "the checkpoint knows of averagings with member %d, who is none; take an earlier one", m);
        if (!begun) continue;
        if (copies && !a->edges[m].copy) NW_TRY(make_copy(a, &a->edges[m]));
        if (steps) NW_TRY(need_steps(a, &a->edges[m]));
    }
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static nw_status make_buckets(nw_agreed *a)
{
    const nw_layout *l = a->o.layout;
    size_t floats = 0, tiles = 0;
    NW_NEW(a->how, l->count + 1, "%d buckets", l->count);
    NW_NEW(a->item, l->count + 1, "%d buckets", l->count);
    NW_NEW(a->share, l->count + 1, "%d buckets", l->count);
    for (int i = 0; i < l->count; i++) {
        const nw_block *b = &l->at[i].block;
        nw_family family = b->codec->ops->family;
        a->how[i] = nw_agreeing_of(b->codec, a->o.how);
        NW_TRY(check_bucket(b, a->how[i], a->o.bound));
        a->item[i] = a->items;
        a->items += (uint32_t)b->item_count;
        a->share[i] =
            family == NW_FAMILY_SPARSE || family == NW_FAMILY_CHOSEN ? (double)l->at[i].entries / (double)b->floats : 1;
        if (b->floats > floats) floats = b->floats;
        if ((size_t)b->tile_count > tiles) tiles = (size_t)b->tile_count;
    }
    NW_NEW(a->mine, floats + 1, "%zu parameters", floats);
    NW_NEW(a->other, floats + 1, "%zu parameters", floats);
    NW_NEW(a->most, tiles + 1, "%zu tiles", tiles);
    NW_NEW(a->values, l->floats + 1, "%zu parameters that are sent", l->floats);
    return NW_OK;
}

static nw_status make(nw_agreed *a)
{
    nw_channel_options c = {.layout = a->o.layout,
                            .number = a->o.number,
                            .member = a->o.me,
                            .rank = a->o.rank,
                            .whole = true,
                            .what = "model",
                            .only = -1,
                            .stats = a->o.stats,
                            .pool = a->o.pool};
    NW_TRY(nw_channel_make(&a->channel, &c));
    NW_TRY(make_buckets(a));
    NW_NEW(a->edges, a->o.members, "the edges of %d members", a->o.members);
    NW_NEW(a->versions, a->o.members, "the edges of %d members", a->o.members);
    NW_NEW(a->begun, words(a), "the edges of %d members", a->o.members);
    return NW_OK;
}

nw_status nw_agreed_make(nw_agreed *a, const nw_agreed_options *options)
{
    *a = (nw_agreed){.o = *options};
    NW_TRY_OR(make(a), nw_agreed_free(a));
    return NW_OK;
}

void nw_agreed_free(nw_agreed *a)
{
    for (int m = 0; a->begun && m < a->o.members; m++) nw_agreed_forget(a, m);
    nw_channel_free(&a->channel);
    free(a->how);
    free(a->item);
    free(a->share);
    free(a->edges);
    free(a->versions);
    free(a->begun);
    free(a->values);
    free(a->mine);
    free(a->other);
    free(a->most);
    *a = (nw_agreed){0};
}
