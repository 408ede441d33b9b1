/*
 * test_agreed.c - encoded parameters of pairs (channel/agreed.h): both ends know the same bit for bit, nothing is lost, sums
 * are kept, members agree at last; edges begin anew; what cannot be is refused.
 *
 * A meeting here is that of src/gossip/gossip_values.c in plain loops, without time and network.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "channel/agreed.h"
#include "codec/kernels.h"
#include "codec/modulo.h"
#include "support/state_store.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static const int shapes[][2] = {{40, 50}, {77, 1}, {33, 180}, {3, 1}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], FLOATS = 40 * 50 + 77 + 33 * 180 + 3, MEMBERS = 8, BUCKET = 12000 };

typedef struct member {
    nw_layout layout;
    nw_agreed agreed;
    nw_actions actions;
    nw_channel_stats stats;
    float x[FLOATS];
} member;

static nw_segments segments;
static nw_codec *codec;
static member members[MEMBERS];
static int count; /* of members */
static nw_pool *pool;

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static nw_codec_options options_of(const char *name)
{
    nw_codec_options o = nw_codec_options_default(name);
    o.seed = 3;
    o.ratio = 0.01;
    o.threshold = 0.01;
    o.shared = false;
    o.levels = 127;
    o.bucket = strcmp(name, "qsgd") == 0 ? 512 : 0;
    return o;
}

static nw_status make_member(member *m, int me, nw_agreeing how, double bound)
{
    const nw_layout_options l = {.segments = &segments,
                                 .codec = codec,
                                 .dense = &nw_codec_plain,
                                 .bucket_bytes = BUCKET,
                                 .cuts = 1,
                                 .ranges = true};
    memset(m, 0, sizeof *m);
    ok(nw_layout_make(&m->layout, &l));
    ok(nw_message_pool_create(&m->actions.pool));
    return nw_agreed_make(&m->agreed, &(nw_agreed_options){.layout = &m->layout,
                                                           .how = how,
                                                           .bound = bound,
                                                           .members = MEMBERS,
                                                           .me = me,
                                                           .number = NW_CHANNEL_EXCHANGE,
                                                           .stats = &m->stats,
                                                           .pool = pool});
}

static void drop_member(member *m)
{
    nw_agreed_free(&m->agreed);
    nw_layout_free(&m->layout);
    nw_message_pool *messages = m->actions.pool; /* which freed actions do not name any more */
    nw_actions_free(&m->actions);
    nw_message_pool_free(messages);
}

static void make_codec(const nw_codec_options *o)
{
    for (int i = 0; i < SHAPES && segments.count < SHAPES; i++) {
        int ignored;
        char name[32];
        snprintf(name, sizeof name, "layer%d.weight", i);
        ok(nw_segments_add(&segments, name, NW_ROLE_LINEAR, 0, 1, shapes[i][1] > 1 ? 2 : 1, shapes[i], &ignored));
    }
    assert_int_equal(segments.floats, FLOATS);
    ok(nw_codec_create(&codec, o));
}

/* Members whose vectors differ by as much as they are large. */
static void open_group(int n, const nw_codec_options *o, nw_agreeing how, double bound)
{
    make_codec(o);
    count = n;
    for (int i = 0; i < n; i++) {
        ok(make_member(&members[i], i, how, bound));
        nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, (uint64_t)i, 0);
        for (int k = 0; k < FLOATS; k++) members[i].x[k] = 0.1f * nw_rng_normal(&rng);
    }
}

static void close_group(void)
{
    for (int i = 0; i < count; i++) drop_member(&members[i]);
    nw_codec_free(codec);
}

/* ---- a meeting --------------------------------------------------------------------------------------------------- */

typedef struct half {
    member *m;
    int me, with;
    nw_message *sent;
    float s[2][FLOATS]; /* own, other */
    bool joined;
    int again;
} half;

static void send(half *h, int bucket, nw_plain plain)
{
    const nw_bucket *b = &h->m->layout.at[bucket];
    nw_message_drop(h->sent);
    memcpy(nw_agreed_values(&h->m->agreed, bucket), h->m->x + b->first, b->block.floats * sizeof(float));
    ok(nw_agreed_encode(&h->m->agreed, &h->m->actions, bucket, h->with, 0, plain, &h->sent));
    assert_int_equal(h->sent->header->bucket, bucket);
    h->sent->header->kind = 2;
    h->sent->header->sequence = 2;
}

static void take(half *h, int bucket, const nw_message *theirs)
{
    const nw_bucket *b = &h->m->layout.at[bucket];
    const float *s[2];
    ok(nw_agreed_check(&h->m->agreed, theirs->header));
    ok(nw_agreed_join(&h->m->agreed, &h->m->actions, h->with, h->sent, theirs, &s[0], &s[1], &h->joined));
    if (!h->joined && !nw_agreed_is_exact(h->sent)) {
        h->again++;
        send(h, bucket, NW_PLAINLY);
        ok(nw_agreed_join(&h->m->agreed, &h->m->actions, h->with, h->sent, theirs, &s[0], &s[1], &h->joined));
    }
    for (int k = 0; k < 2 && h->joined; k++) memcpy(h->s[k] + b->first, s[k], b->block.floats * sizeof(float));
}

static half halves[2];

/* The two are the same message twice where it was sent twice, as links are: in order. */
static void meet_bucket(int bucket)
{
    for (int k = 0; k < 2; k++) send(&halves[k], bucket, NW_CODED);
    nw_message *first[2] = {nw_message_hold(halves[0].sent), nw_message_hold(halves[1].sent)};
    for (int k = 0; k < 2; k++) {
        halves[k].joined = false;
        take(&halves[k], bucket, first[1 - k]);
    }
    for (int k = 0; k < 2; k++)
        if (!halves[k].joined) take(&halves[k], bucket, halves[1 - k].sent);
    for (int k = 0; k < 2; k++) {
        assert_true(halves[k].joined);
        nw_message_drop(first[k]);
        nw_message_drop(halves[k].sent);
        halves[k].sent = NULL;
    }
}

/* Both move to the mean of what they are taken to have sent. Returns how many buckets were sent once more. */
static int meet(int i, int j)
{
    const int both[2] = {i, j};
    for (int k = 0; k < 2; k++) {
        halves[k].m = &members[both[k]];
        halves[k].me = both[k];
        halves[k].with = both[1 - k];
        halves[k].again = 0;
    }
    for (int b = 0; b < members[i].layout.count; b++) meet_bucket(b);
    for (int k = 0; k < 2; k++) nw_agreed_end(&halves[k].m->agreed, halves[k].with);
    for (int f = 0; f < FLOATS; f++) { /* both know the same */
        float m = halves[0].s[0][f] - halves[0].s[1][f], n = halves[1].s[0][f] - halves[1].s[1][f];
        assert_true(m == -n);
    }
    for (int k = 0; k < 2; k++)
        for (int f = 0; f < FLOATS; f++) halves[k].m->x[f] -= 0.5f * (halves[k].s[0][f] - halves[k].s[1][f]);
    return halves[0].again + halves[1].again;
}

static const nw_edge *edge(int i, int j) { return &members[i].agreed.edges[j]; }

static void check_copies(int i, int j)
{
    assert_int_equal(members[i].agreed.versions[j], members[j].agreed.versions[i]);
    if (!edge(i, j)->copy) {
        assert_null(edge(j, i)->copy);
        return;
    }
    assert_memory_equal(edge(i, j)->copy, edge(j, i)->copy, FLOATS * sizeof(float));
    for (int f = 0; f < FLOATS; f++) {
        float s = halves[0].s[0][f], other = halves[0].s[1][f];
        assert_true(edge(i, j)->copy[f] == 0.5f * (s + other));
    }
}

static double distance(void)
{
    double sum = 0;
    for (int f = 0; f < FLOATS; f++) {
        double mean = 0;
        for (int i = 0; i < count; i++) mean += (double)members[i].x[f] / count;
        for (int i = 0; i < count; i++) sum += pow((double)members[i].x[f] - mean, 2);
    }
    return sum;
}

/* Of all elements, in double. */
static double total(void)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        for (int f = 0; f < FLOATS; f++) sum += (double)members[i].x[f];
    return sum;
}

static void walk(int i, uint64_t step, float size)
{
    nw_rng rng = nw_rng_make(7, NW_PURPOSE_TEST, step, (uint32_t)i);
    for (int f = 0; f < FLOATS; f++) members[i].x[f] += size * nw_rng_normal(&rng);
}

/* ---- what is promised -------------------------------------------------------------------------------------------- */

static const char *const contractive[] = {
    "topk", "randomk", "adaptivethreshold", "thresholdv", "qsgd", "sign", "natural", "int8", "fp16", "bf16"};
enum { CONTRACTIVE = sizeof contractive / sizeof contractive[0] };

/* What the codec makes of x - c, by a channel of its own; the same key. */
static void encode_alone(const float *difference, int low, int high, int64_t version, float *decoded)
{
    nw_layout layout;
    nw_channel channel;
    nw_actions actions = {0};
    const nw_layout_options l = {.segments = &segments,
                                 .codec = codec,
                                 .dense = &nw_codec_plain,
                                 .bucket_bytes = BUCKET,
                                 .cuts = 1,
                                 .ranges = true};
    ok(nw_layout_make(&layout, &l));
    ok(nw_message_pool_create(&actions.pool));
    uint32_t key = (uint32_t)low << 16 | (uint32_t)high;
    ok(nw_channel_make(&channel, &(nw_channel_options){.layout = &layout, .number = NW_CHANNEL_EXCHANGE, .only = -1}));
    channel.key = key;
    for (int b = 0; b < layout.count; b++) {
        nw_message *m;
        ok(nw_channel_encode(&channel, &actions, b, (nw_moment){version, 0, version}, difference, -1, NW_CODED, &m));
        ok(nw_channel_decode(&channel, &actions, m, (int)key, decoded, NW_AT_FIRST, false));
        nw_message_drop(m);
    }
    nw_channel_free(&channel);
    nw_layout_free(&layout);
    nw_message_pool *messages = actions.pool;
    nw_actions_free(&actions);
    nw_message_pool_free(messages);
}

/* s = c + C(x - c), c becomes the mean of both s, and what was not sent is what x has beyond c from then on. */
TEST(test_nothing_is_lost)
{
    static float x[2][FLOATS], c[FLOATS], difference[FLOATS], decoded[FLOATS];
    for (int k = 0; k < CONTRACTIVE; k++) {
        nw_codec_options o = options_of(contractive[k]);
        open_group(2, &o, NW_AGREE_DIFFERENCE, 0);
        for (int64_t step = 0; step < 12; step++) {
            walk(0, (uint64_t)step, 0.01f);
            walk(1, (uint64_t)step + 1000, 0.02f);
            memcpy(x[0], members[0].x, sizeof x[0]);
            memcpy(x[1], members[1].x, sizeof x[1]);
            if (step > 0) memcpy(c, edge(0, 1)->copy, sizeof c);
            assert_int_equal(meet(0, 1), 0);
            check_copies(0, 1);
            for (int e = 0; e < 2; e++) {
                for (int f = 0; f < FLOATS && step > 0; f++) difference[f] = x[e][f] - c[f];
                if (step > 0) encode_alone(difference, 0, 1, step, decoded);
                for (int f = 0; f < FLOATS; f++) {
                    float s = halves[e].s[0][f], right = step == 0 ? x[e][f] : c[f] + decoded[f];
                    float rest = members[e].x[f] - edge(0, 1)->copy[f];
                    assert_true(s == right && fabsf(rest - (x[e][f] - s)) < 1e-6f);
                }
            }
        }
        double rest = 0;
        for (int f = 0; f < FLOATS; f++) rest += pow((double)members[0].x[f] - (double)edge(0, 1)->copy[f], 2);
        assert_true(fabs(nw_agreed_rest(&members[0].agreed, members[0].x) - rest) <= 1e-9 * (1 + rest));
        close_group();
    }
}

/* Without gradients a ring comes to its mean, and the sum stays what it was. With thresholds it comes as near as that. */
TEST(test_members_agree)
{
    static const struct {
        const char *name;
        nw_agreeing how;
        int rounds;
        double most; /* of the first distance */
    } cases[] = {{"topk", NW_AGREE_DIFFERENCE, 600, 1e-3},
                 {"randomk", NW_AGREE_DIFFERENCE, 600, 0.2},
                 {"randomk", NW_AGREE_PLAIN, 600, 0.2},
                 {"adaptivethreshold", NW_AGREE_DIFFERENCE, 400, 1e-8},
                 {"thresholdv", NW_AGREE_DIFFERENCE, 80, 0.03},
                 {"qsgd", NW_AGREE_DIFFERENCE, 60, 1e-8},
                 {"sign", NW_AGREE_DIFFERENCE, 200, 1e-3},
                 {"natural", NW_AGREE_DIFFERENCE, 60, 1e-8},
                 {"int8", NW_AGREE_DIFFERENCE, 60, 1e-8},
                 {"fp16", NW_AGREE_DIFFERENCE, 60, 1e-8},
                 {"bf16", NW_AGREE_PLAIN, 60, 1e-4},
                 {"fp16", NW_AGREE_PLAIN, 60, 1e-6},
                 {"int8", NW_AGREE_PLAIN, 60, 3e-3},
                 {"qsgd", NW_AGREE_PLAIN, 60, 0.1},
                 {"modulo", NW_AGREE_BY_CODEC, 60, 1e-8}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        nw_codec_options o = options_of(cases[k].name);
        open_group(MEMBERS, &o, cases[k].how, 0);
        double before = distance(), sum = total(), bytes = 0;
        int again = 0;
        for (int round = 0; round < cases[k].rounds; round++)
            for (int i = round % 2; i < MEMBERS; i += 2) again += meet(i, (i + 1) % MEMBERS);
        for (int i = 0; i < MEMBERS; i++) bytes += (double)nw_channel_stats_total(&members[i].stats, true).bytes;
        print_message("%-18s %-10s after %3d rounds %8.2g of the distance, %7.0f bytes a bucketful, %d sent again\n",
                      cases[k].name, nw_agreeing_name(cases[k].how), cases[k].rounds, distance() / before,
                      bytes / MEMBERS / cases[k].rounds, again);
        assert_true(distance() < cases[k].most * before);
        assert_true(fabs(total() - sum) < 1e-3);
        assert_true(again <= (strcmp(cases[k].name, "modulo") == 0 ? 60 : 0));
        close_group();
    }
}

/* Whoever has lost what the two agreed on sends exactly; the other follows. Then both go on as if they had just met. */
TEST(test_edges_begin_anew)
{
    static const struct {
        const char *name;
        nw_agreeing how;
    } cases[] = {{"topk", NW_AGREE_DIFFERENCE}, {"modulo", NW_AGREE_BY_CODEC}, {"randomk", NW_AGREE_PLAIN}};
    for (size_t k = 0; k < 3; k++) {
        nw_codec_options o = options_of(cases[k].name);
        open_group(3, &o, cases[k].how, 0);
        int buckets = members[0].layout.count;
        bool exact_first = cases[k].how != NW_AGREE_PLAIN;
        for (uint64_t step = 0; step < 5; step++) {
            walk(0, step, 0.01f);
            assert_int_equal(meet(0, 1), 0);
            assert_int_equal(meet(1, 2), 0);
        }
        nw_agreed_forget(&members[1].agreed, 0);
        assert_true(!edge(1, 0)->copy && members[0].agreed.versions[1] == 5);
        assert_int_equal(meet(0, 1), exact_first ? buckets : 2 * buckets);
        check_copies(0, 1);
        for (int f = 0; f < FLOATS; f++) assert_true(fabsf(members[0].x[f] - members[1].x[f]) < 1e-6f);
        assert_int_equal(members[0].agreed.versions[1], 6);
        walk(1, 77, 0.001f);
        assert_int_equal(meet(0, 1), 0);
        assert_int_equal(meet(1, 2), 0); /* another edge */
        nw_agreed_forget(&members[0].agreed, 1);
        nw_agreed_forget(&members[1].agreed, 0);
        assert_int_equal(meet(1, 0), 0);
        check_copies(1, 0);
        close_group();
    }
}

/* A float too far away for modulo: that bucket goes once more, and the sum is kept all the same. */
TEST(test_beyond_the_bound)
{
    nw_codec_options o = options_of("modulo");
    for (int fixed = 0; fixed < 2; fixed++) {
        open_group(2, &o, NW_AGREE_BY_CODEC, fixed ? 1 : 0);
        if (fixed) assert_int_equal(meet(0, 1), 0); /* encoded from the beginning */
        for (uint64_t step = 0; step < 20; step++) {
            walk(0, step, 0.01f);
            walk(1, step + 100, 0.01f);
            assert_int_equal(meet(0, 1), 0);
        }
        members[1].x[100] += 50;
        double sum = total();
        assert_int_equal(meet(1, 0), 2);
        assert_true(fabs(total() - sum) < 1e-3 && members[0].x[100] == members[1].x[100]);
        walk(0, 5, 0.01f);
        assert_int_equal(meet(0, 1), 0);
        assert_true(members[0].stats.of[nw_channel_stats_index(codec)].payloads > 0);
        close_group();
    }
}

/* ---- refused ----------------------------------------------------------------------------------------------------- */

static void refuse(const nw_codec_options *o, nw_agreeing how, const char *why)
{
    make_codec(o);
    assert_int_equal(make_member(&members[0], 0, how, 0), NW_E_ARGUMENT);
    if (!strstr(nw_error_message(), why)) fail_msg("'%s' lacks '%s'", nw_error_message(), why);
    drop_member(&members[0]);
    nw_codec_free(codec);
}

TEST(test_codecs_that_cannot)
{
    nw_codec_options o = options_of("terngrad");
    refuse(&o, NW_AGREE_BY_CODEC, "terngrad may miss more");
    o = options_of("qsgd");
    o.bucket = 0;
    o.levels = 3;
    refuse(&o, NW_AGREE_BY_CODEC, "qsgd may miss more");
    o = options_of("powersgd");
    refuse(&o, NW_AGREE_BY_CODEC, "powersgd takes means over all members");
    o = options_of("randomk");
    o.scaled = true;
    refuse(&o, NW_AGREE_BY_CODEC, "leave out --scaled");
    o = options_of("modulo");
    o.bits = 3;
    refuse(&o, NW_AGREE_BY_CODEC, "--modulo-bound");
    static const char *const lossy[] = {"topk", "sign", "natural", "thresholdv", "adaptivethreshold", "terngrad"};
    for (size_t k = 0; k < sizeof lossy / sizeof lossy[0]; k++) {
        o = options_of(lossy[k]);
        refuse(&o, NW_AGREE_PLAIN, "--gossip-values difference");
    }
}

TEST(test_ways)
{
    static const struct {
        const char *name;
        nw_agreeing how;
    } usual[] = {{"none", NW_AGREE_EXACTLY},  {"fp16", NW_AGREE_PLAIN},      {"bf16", NW_AGREE_PLAIN},
                 {"randomk", NW_AGREE_PLAIN}, {"topk", NW_AGREE_DIFFERENCE}, {"int8", NW_AGREE_DIFFERENCE},
                 {"modulo", NW_AGREE_MODULO}};
    for (size_t k = 0; k < sizeof usual / sizeof usual[0]; k++) {
        nw_codec_options o = options_of(usual[k].name);
        make_codec(&o);
        assert_int_equal(nw_agreeing_of(codec, NW_AGREE_BY_CODEC), usual[k].how);
        const nw_layout_options l = {.segments = &segments, .codec = codec};
        size_t vectors = usual[k].how == NW_AGREE_EXACTLY ? 0 : usual[k].how == NW_AGREE_DIFFERENCE ? 6 : 1;
        assert_int_equal(nw_agreed_bytes(&l, NW_AGREE_BY_CODEC, 5), vectors * FLOATS * sizeof(float));
        nw_codec_free(codec);
    }
}

/* A damaged message is refused, or is another possible one; a refused one changes nothing. */
TEST(test_damaged_messages)
{
    static const char *const names[] = {"topk", "sign", "int8", "qsgd", "modulo"};
    static float copy[FLOATS], steps[64];
    int refused = 0, taken = 0;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        nw_codec_options o = options_of(names[n]);
        open_group(2, &o, NW_AGREE_BY_CODEC, 0);
        meet(0, 1);
        walk(1, 3, 0.01f);
        for (int k = 0; k < 2; k++) halves[k].m = &members[k], halves[k].me = k, halves[k].with = 1 - k;
        send(&halves[0], 0, NW_CODED);
        send(&halves[1], 0, NW_CODED);
        bool modulo = edge(0, 1)->copy == NULL;
        if (modulo)
            memcpy(steps, edge(0, 1)->steps, members[0].agreed.items * sizeof(float));
        else
            memcpy(copy, edge(0, 1)->copy, sizeof copy);
        nw_message *m = halves[1].sent;
        const nw_header right = *m->header;
        for (uint32_t at = 0; at < NW_HEADER_BYTES * 8 + m->header->bytes * 8;
             at += at < NW_HEADER_BYTES * 8 ? 1 : 37) {
            uint8_t *byte =
                at < NW_HEADER_BYTES * 8 ? (uint8_t *)m->header + at / 8 : m->payload + at / 8 - NW_HEADER_BYTES;
            const float *s[2];
            bool joined = false;
            *byte ^= (uint8_t)(1 << at % 8);
            bool whole = nw_message_check(m->header, NW_HEADER_BYTES + right.bytes, 0, 4) == NW_OK &&
                         m->header->bucket < (uint32_t)members[0].layout.count && m->header->bucket == right.bucket;
            nw_status status = whole ? nw_agreed_check(&members[0].agreed, m->header) : NW_E_MESSAGE;
            if (status == NW_OK)
                status = nw_agreed_join(&members[0].agreed, &members[0].actions, 1, halves[0].sent, m, &s[0], &s[1],
                                        &joined);
            assert_true(status == NW_OK || status == NW_E_MESSAGE);
            refused += status != NW_OK;
            taken += joined;
            if (!joined && modulo)
                assert_memory_equal(steps, edge(0, 1)->steps, members[0].agreed.items * sizeof(float));
            if (!joined && !modulo) assert_memory_equal(copy, edge(0, 1)->copy, sizeof copy);
            if (joined && modulo) memcpy(edge(0, 1)->steps, steps, members[0].agreed.items * sizeof(float));
            if (joined && !modulo) memcpy(edge(0, 1)->copy, copy, sizeof copy);
            *byte ^= (uint8_t)(1 << at % 8);
            assert_memory_equal(m->header, &right, sizeof right);
        }
        for (int k = 0; k < 2; k++) nw_message_drop(halves[k].sent), halves[k].sent = NULL;
        close_group();
    }
    print_message("%d refused, %d taken for others\n", refused, taken);
    assert_true(refused > 1500 && taken > 1000);
}

/* ---- threads, sets, checkpoints ---------------------------------------------------------------------------------- */

static void run_some(int n, const nw_codec_options *o, nw_agreeing how, float *out)
{
    open_group(n, o, how, 0);
    for (uint64_t step = 0; step < 12; step++) {
        walk((int)step % n, step, 0.01f);
        meet((int)step % n, (int)(step + 1) % n);
    }
    for (int i = 0; i < n; i++) memcpy(out + (size_t)i * FLOATS, members[i].x, sizeof members[i].x);
    close_group();
}

TEST(test_threads_and_sets)
{
    static float first[3 * FLOATS], second[3 * FLOATS];
    static const char *const names[] = {"topk", "sign", "modulo", "natural", "randomk"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        nw_codec_options o = options_of(names[k]);
        run_some(3, &o, NW_AGREE_BY_CODEC, first);
        ok(nw_pool_create(&pool, 3));
        run_some(3, &o, NW_AGREE_BY_CODEC, second);
        assert_memory_equal(first, second, sizeof first);
        nw_pool_free(pool);
        pool = NULL;
        for (int set = 0; set < nw_codec_kernel_sets(); set++) {
            if (!nw_codec_kernels_at(set)->usable()) continue;
            nw_codec_kernels_force(nw_codec_kernels_at(set));
            run_some(3, &o, NW_AGREE_BY_CODEC, second);
            assert_memory_equal(first, second, sizeof first);
        }
        nw_codec_kernels_force(NULL);
    }
}

static void list(void *whose, nw_state *s) { nw_agreed_state(whose, s); }
static nw_status loaded(void *whose) { return nw_agreed_loaded(whose); }

static nw_state_owner owner_of(int i)
{
    return (nw_state_owner){.whose = &members[i].agreed, .list = list, .loaded = loaded};
}

/* Others go on from what was saved, bit for bit; in another world all edges begin anew. */
TEST(test_what_is_saved)
{
    static const char *const names[] = {"topk", "modulo", "int8", "randomk"};
    static float after[3][FLOATS], x[3][FLOATS];
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        nw_codec_options o = options_of(names[k]);
        state_store store = {0};
        for (int resumed = 0; resumed < 2; resumed++) {
            open_group(3, &o, NW_AGREE_BY_CODEC, 0);
            for (uint64_t step = 0; step < 9; step++) {
                walk((int)step % 3, step, 0.01f);
                meet((int)step % 3, (int)(step + 1) % 3);
                if (step != 4 || !resumed) continue;
                for (int i = 0; i < 3; i++) store_add(&store, owner_of(i));
                for (int i = 0; i < 3; i++) {
                    memcpy(x[i], members[i].x, sizeof x[i]);
                    drop_member(&members[i]);
                    ok(make_member(&members[i], i, NW_AGREE_BY_CODEC, 0));
                    memcpy(members[i].x, x[i], sizeof x[i]);
                    ok(store_load(&store, owner_of(i), i, 3, NULL));
                }
            }
            for (int i = 0; i < 3; i++)
                if (resumed)
                    assert_memory_equal(after[i], members[i].x, sizeof after[i]);
                else
                    memcpy(after[i], members[i].x, sizeof after[i]);
            close_group();
        }
        char lost[256] = "";
        open_group(3, &o, NW_AGREE_BY_CODEC, 0);
        ok(store_load(&store, owner_of(0), 0, 4, lost));
        assert_non_null(strstr(lost, "pairs_begun"));
        assert_true(members[0].agreed.versions[1] == 0 && !edge(0, 1)->copy && !edge(0, 1)->steps);
        close_group();
        store_clear(&store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_lost),    cmocka_unit_test(test_members_agree),
        cmocka_unit_test(test_edges_begin_anew),   cmocka_unit_test(test_beyond_the_bound),
        cmocka_unit_test(test_codecs_that_cannot), cmocka_unit_test(test_ways),
        cmocka_unit_test(test_damaged_messages),   cmocka_unit_test(test_threads_and_sets),
        cmocka_unit_test(test_what_is_saved),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(segments.at);
    return failed;
}
