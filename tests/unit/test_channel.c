/*
 * test_channel.c - layouts, channels and reductions: what travels together, what is kept, and what arrives.
 *
 * The codec is one that sends every third element (support/third.h), with error feedback. So what was delivered and
 * what is kept must add up to what was given, exactly where the arithmetic is exact; and means are recomputed in plain
 * loops, for gathered buckets and for owners, for one to three members, and for three that go on where two were.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/channel.h"
#include "support/blocks.h"
#include "support/factors.h"
#include "support/third.h"
#include "support/world.h"

#define TEST(name) static void name(void **state)

static world w;

/* ---- layouts ---- */

static nw_segments make_segments(const int *sizes)
{
    nw_segments s = {0};
    int index;
    char name[16];
    for (int i = 0; sizes[i]; i++) {
        snprintf(name, sizeof name, "s%d", i);
        world_ok(nw_segments_add(&s, name, NW_ROLE_LINEAR, i, 1, 1, &sizes[i], &index));
    }
    return s;
}

/* Every element is in one tile of one bucket, buckets are in the order in which they become final, and a cut begins
 * where it should. */
static void check_layout(const nw_layout *l, const nw_layout_options *o)
{
    size_t floats = o->segments->floats;
    uint8_t *seen = calloc(floats + 1, 1);
    uint32_t items = 0;
    for (int k = 0; k < l->count; k++) {
        const nw_block *b = &l->at[k].block;
        assert_true(k == 0 || l->at[k].first < l->at[k - 1].first);
        assert_int_equal(b->tiles[0].first, l->at[k].first);
        assert_int_equal(b->number[0], items);
        assert_true(b->floats * sizeof(float) <= NW_MESSAGE_MOST_BYTES);
        assert_int_equal(b->cut_count, l->at[k].gathered ? 1 : o->cuts);
        items += (uint32_t)b->item_count;
        for (int t = 0; t < b->tile_count; t++) {
            const nw_tile *tile = &b->tiles[t];
            for (size_t i = tile->first; i < tile->first + tile->count; i++) {
                assert_int_equal(seen[i]++, 0);
                if (o->bounds && !l->at[k].gathered)
                    assert_true(i >= o->bounds[tile->cut] && i < o->bounds[tile->cut + 1]);
            }
            if (!o->bounds && tile->place == 0 && tile->cut > 0) {
                size_t before = 0;
                for (int c = 0; c < tile->cut; c++) before += b->cut_floats[c];
                assert_int_equal(before % 16, 0);
            }
        }
    }
    for (size_t i = 0; i < floats; i++) assert_int_equal(seen[i], 1);
    free(seen);
}

TEST(test_layouts_cover_the_vector_once)
{
    (void)state;
    static const int sizes[] = {1, 700, 16, 3000, 2, 90, 0};
    nw_segments s = make_segments(sizes);
    size_t bounds[4] = {0, 16 * 40, 16 * 100, s.floats};
    const nw_codec *mixed[6];
    for (int i = 0; i < 6; i++) mixed[i] = i % 2 ? &third : &nw_codec_plain;
    for (size_t bytes = 1; bytes < 100000; bytes = bytes * 3 + 1)
        for (int cuts = 1; cuts <= 40; cuts += 3)
            for (int way = 0; way < 24; way++) {
                nw_layout l;
                nw_layout_options o = {.segments = &s,
                                       .codec = &third,
                                       .codecs = way & 1 ? mixed : NULL,
                                       .collective = way & 2 ? NW_COLLECTIVE_GATHER : NW_COLLECTIVE_OWNERS,
                                       .bounds = way & 4 ? bounds : NULL,
                                       .scope = (nw_scope)(way / 8),
                                       .bucket_bytes = bytes,
                                       .cuts = way & 4 ? 3 : cuts};
                world_ok(nw_layout_make(&l, &o));
                check_layout(&l, &o);
                for (int k = 0; k < l.count; k++) {
                    bool dense = l.at[k].block.codec == &nw_codec_plain;
                    assert_true(l.at[k].gathered == (o.collective == NW_COLLECTIVE_GATHER && !dense));
                    if (o.scope == NW_SCOPE_BUCKET) assert_int_equal(l.at[k].block.item_count, 1);
                    if (o.scope == NW_SCOPE_LAYER && !o.codecs)
                        assert_int_equal(l.at[k].block.item_count, l.at[k].last_segment - l.at[k].first_segment + 1);
                }
                if (o.scope == NW_SCOPE_MODEL && !o.codecs) assert_int_equal(l.count, 1);
                nw_layout_free(&l);
            }
    free(s.at);
}

/* Whole segments, from the last on, until a bucket is long enough. */
TEST(test_buckets_are_as_long_as_they_should)
{
    (void)state;
    static const int sizes[] = {1, 700, 16, 3000, 2, 90, 0};
    nw_segments s = make_segments(sizes);
    nw_layout l;
    world_ok(nw_layout_make(
        &l, &(nw_layout_options){.segments = &s, .codec = &nw_codec_plain, .bucket_bytes = 400, .cuts = 1}));
    assert_int_equal(l.count, 3); /* 3000 + 2 + 90, 700 + 16, 1 */
    static const size_t first[] = {717, 1, 0};
    static const char *const names[] = {"s3 ... s5", "s1 ... s2", "s0"};
    for (int k = 0; k < 3; k++) {
        char name[64];
        nw_layout_name(&l, &s, k, name, sizeof name);
        assert_int_equal(l.at[k].first, first[k]);
        assert_string_equal(name, names[k]);
    }
    nw_layout_free(&l);
    free(s.at);
}

/* However long buckets are asked to be, each fits into a message; an entire model that does not is refused. */
TEST(test_buckets_fit_into_messages)
{
    (void)state;
    int sizes[8] = {0};
    for (int i = 0; i < 7; i++) sizes[i] = 100000000 + i;
    nw_segments s = make_segments(sizes);
    nw_layout_options o = {.segments = &s, .codec = &third, .bucket_bytes = (size_t)1 << 40, .cuts = 1};
    nw_layout l;
    size_t covered = 0;
    world_ok(nw_layout_make(&l, &o));
    for (int k = 0; k < l.count; k++) {
        assert_true(l.at[k].block.floats * sizeof(float) <= NW_MESSAGE_MOST_BYTES);
        covered += l.at[k].block.floats;
        assert_int_equal(l.at[k].first, s.floats - covered);
    }
    assert_int_equal(covered, s.floats);
    nw_layout_free(&l);
    o.scope = NW_SCOPE_MODEL;
    assert_int_equal(nw_layout_make(&l, &o), NW_E_SHAPE);
    assert_non_null(strstr(nw_error_message(), "layerwise"));
    free(s.at);
}

/* ---- a channel ---- */

/* Integers, so that sums are exact: what was delivered and what is kept is what was given, also where some of it comes
 * back; all cuts, all scopes, one cut alone. */
static void check_channel(nw_scope scope, int cuts, int only, nw_pool *pool)
{
    static const int sizes[] = {33, 6000, 5, 11000, 100, 0};
    enum { FLOATS = 33 + 6000 + 5 + 11000 + 100, STEPS = 7 };
    static float g[FLOATS], given[FLOATS], got[FLOATS];
    nw_segments s = make_segments(sizes);
    nw_layout l;
    nw_channel c;
    nw_message_pool *messages;
    nw_actions actions = {0};
    world_ok(nw_message_pool_create(&messages));
    actions.pool = messages;
    world_ok(nw_layout_make(&l, &(nw_layout_options){.segments = &s,
                                                     .codec = &third,
                                                     .scope = scope,
                                                     .bucket_bytes = 4000,
                                                     .cuts = cuts,
                                                     .collective = NW_COLLECTIVE_OWNERS}));
    world_ok(nw_channel_make(&c, &(nw_channel_options){.layout = &l,
                                                       .memory = {.name = "error"},
                                                       .name = "m",
                                                       .number = NW_CHANNEL_EXCHANGE,
                                                       .only = only,
                                                       .pool = pool}));
    memset(given, 0, sizeof given);
    memset(got, 0, sizeof got);
    for (int step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < FLOATS; i++) given[i] += g[i] = (float)((int)((i * 7 + (size_t)step * 31) % 41) - 20);
        for (int b = 0; b < l.count; b++) {
            nw_message *by_cut[8];
            int sent = only >= 0 ? 1 : cuts;
            world_ok(nw_channel_encode(&c, &actions, b, (nw_moment){.step = step}, g, -1, NW_CODED, by_cut));
            for (int k = 0; k < sent; k++) {
                bool kept = false;
                if (!by_cut[k]) continue;
                by_cut[k]->header->from = 0;
                world_ok(nw_channel_check(&c, by_cut[k]->header));
                if ((step + k + b) % 4 == 0)
                    world_ok(nw_channel_undo(&c, &actions, by_cut[k], &kept));
                else
                    world_ok(nw_channel_decode(&c, &actions, by_cut[k], 0, got, NW_AT_FIRST, true));
                assert_true(kept == ((step + k + b) % 4 == 0));
                nw_message_drop(by_cut[k]);
            }
        }
    }
    for (int b = 0; b < l.count; b++) {
        const nw_block *block = c.parts ? &c.parts[b] : &l.at[b].block;
        for (int t = 0; t < block->tile_count; t++)
            for (uint32_t i = 0; i < block->tiles[t].count; i++) {
                size_t at = block->tiles[t].first + i;
                assert_true(got[at] + c.memory->v[block->tiles[t].kept + i] == given[at]);
                assert_true(got[at] != 0 || given[at] == 0 || c.memory->v[block->tiles[t].kept + i] != 0);
            }
    }
    nw_channel_free(&c);
    nw_layout_free(&l);
    nw_actions_free(&actions);
    nw_message_pool_free(messages);
    free(s.at);
}

TEST(test_what_is_delivered_and_kept_is_what_was_given)
{
    (void)state;
    nw_pool *pool;
    world_ok(nw_pool_create(&pool, 3));
    for (int scope = NW_SCOPE_LAYER; scope <= NW_SCOPE_MODEL; scope++)
        for (int cuts = 1; cuts <= 4; cuts++)
            for (int only = -1; only < cuts; only++) check_channel((nw_scope)scope, cuts, only, cuts % 2 ? pool : NULL);
    nw_pool_free(pool);
}

/* Plainly sent, the memory stays as it is, and every bit arrives. Without a memory nothing can be taken back. */
TEST(test_plain_messages)
{
    (void)state;
    static const int sizes[] = {50, 0};
    nw_segments s = make_segments(sizes);
    nw_layout l;
    nw_channel c;
    nw_message *m;
    nw_message_pool *messages;
    nw_actions actions = {0};
    float x[50], y[50];
    bool kept = true;
    world_ok(nw_message_pool_create(&messages));
    actions.pool = messages;
    for (int i = 0; i < 50; i++) x[i] = (float)i * 0.37f - 9;
    world_ok(nw_layout_make(
        &l, &(nw_layout_options){.segments = &s, .codec = &third, .cuts = 1, .collective = NW_COLLECTIVE_OWNERS}));
    for (int with = 0; with < 2; with++) {
        world_ok(nw_channel_make(
            &c, &(nw_channel_options){.layout = &l, .memory = {.name = with ? "error" : NULL}, .only = -1}));
        world_ok(nw_channel_encode(&c, &actions, 0, (nw_moment){.step = 3, .version = 5}, x, -1, NW_PLAINLY, &m));
        assert_int_equal(m->header->codec, NW_CODEC_NONE);
        assert_true(m->header->step == 3 && m->header->version == 5 && m->header->bytes == sizeof x);
        world_ok(nw_channel_decode(&c, &actions, m, 0, y, NW_AT_FIRST, false));
        assert_memory_equal(x, y, sizeof x);
        world_ok(nw_channel_undo(&c, &actions, m, &kept));
        assert_false(kept);
        for (int i = 0; with && i < 50; i++) assert_true(c.memory->v[i] == 0);
        m->header->codec = 99;
        assert_int_equal(nw_channel_check(&c, m->header), NW_E_MESSAGE);
        nw_message_drop(m);
        nw_channel_free(&c);
    }
    nw_layout_free(&l);
    nw_actions_free(&actions);
    nw_message_pool_free(messages);
    free(s.at);
}

/* ---- reductions: all members, in plain loops ---- */

static const int SEGMENTS[] = {40, 7, 65, 16, 130, 0};
enum { FLOATS = 40 + 7 + 65 + 16 + 130 };

/* Where each element is in its item (a layer), and who owns it. */
static size_t within[FLOATS];
static int owner[FLOATS];

static void place(int members, size_t bucket_bytes)
{
    nw_segments s = make_segments(SEGMENTS);
    nw_layout l;
    world_ok(nw_layout_make(&l, &(nw_layout_options){.segments = &s,
                                                     .codec = &third,
                                                     .bucket_bytes = bucket_bytes,
                                                     .cuts = members,
                                                     .collective = NW_COLLECTIVE_OWNERS}));
    for (int b = 0; b < l.count; b++)
        for (int t = 0; t < l.at[b].block.tile_count; t++)
            for (uint32_t i = 0; i < l.at[b].block.tiles[t].count; i++)
                owner[l.at[b].block.tiles[t].first + i] = l.at[b].block.tiles[t].cut;
    for (int k = 0, i = 0; SEGMENTS[k]; k++)
        for (int j = 0; j < SEGMENTS[k]; j++) within[i++] = (size_t)j;
    nw_layout_free(&l);
    free(s.at);
}

static bool sends(size_t i, int64_t step, int channel) { return (within[i] + (size_t)step + (size_t)channel) % 3 == 0; }

typedef struct twin {
    float weights[FLOATS], memory[WORLD_MOST][FLOATS], owners[FLOATS], mean[FLOATS], held[FLOATS];
    int64_t batches[WORLD_MOST]; /* of each member so far */
} twin;

static void twin_begin(twin *t)
{
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < FLOATS; i++) t->weights[i] = world_start(i);
}

/* One step of all members: gradients, what each sends of them, their mean, and what arrives of it. */
static void twin_step(twin *t, const world *x, int64_t step)
{
    static float g[FLOATS];
    int members = x->o.members;
    memcpy(t->held, t->mean, sizeof t->held);
    for (int r = 0; r < members; r++) {
        world_gradient(x, r, t->batches[r]++, t->weights, false, g);
        for (size_t i = 0; i < FLOATS; i++) {
            float v = t->memory[r][i] += g[i], d = sends(i, step, NW_CHANNEL_EXCHANGE) ? v : 0;
            t->memory[r][i] -= d;
            t->mean[i] = r ? t->mean[i] + d : d;
        }
    }
    for (size_t i = 0; i < FLOATS; i++) {
        t->mean[i] *= 1.0f / (float)members;
        if (x->o.exchange.layout.collective == NW_COLLECTIVE_GATHER) continue;
        float v = t->owners[i] += t->mean[i];
        t->mean[i] = sends(i, step, NW_CHANNEL_EXCHANGE + 1) ? v : 0;
        t->owners[i] -= t->mean[i];
    }
    if (x->o.exchange.delay == 0)
        world_update(t->weights, t->mean, 0, FLOATS, 1.0f, step);
    else if (step > 0)
        world_update(t->weights, t->held, 0, FLOATS, 1.0f, step - 1);
}

static world_options options(int members, bool gather, int delay, uint64_t seed)
{
    return (world_options){.exchange = {.name = "allreduce",
                                        .delay = delay,
                                        .memory = {.name = "error"},
                                        .layout = {.bucket_bytes = 300,
                                                   .collective = gather ? NW_COLLECTIVE_GATHER : NW_COLLECTIVE_OWNERS}},
                           .members = members,
                           .with = &third,
                           .segments = SEGMENTS,
                           .seed = seed,
                           .finals = seed % 2 ? seed : 0,
                           .interrupts = seed % 3 == 0};
}

static void check_values(const twin *t, int64_t updates)
{
    world_check_quiescent(&w, updates);
    world_check_values(&w, t->weights);
}

TEST(test_means_are_the_twins)
{
    (void)state;
    static twin t;
    for (int members = 1; members <= 3; members++)
        for (uint64_t seed = 1; seed <= 24; seed++) {
            world_options o = options(members, seed & 1, seed >> 1 & 1, seed);
            place(members, 300);
            world_ok(world_make(&w, &o));
            twin_begin(&t);
            world_ok(world_run(&w, 7));
            for (int64_t step = 0; step < 7; step++) twin_step(&t, &w, step);
            check_values(&t, 7);
            world_free(&w);
        }
}

/* Saved and resumed, also by three after two: there, what members keep goes to those with their numbers times 3 / 2,
 * since less of each will arrive in a mean, and the third begins with nothing; what owners keep goes to whoever owns
 * it now. */
TEST(test_memories_go_on_in_other_worlds)
{
    (void)state;
    static twin t;
    static world before;
    static const int pairs[][2] = {{1, 1}, {2, 2}, {3, 3}, {2, 3}, {3, 2}, {3, 1}, {1, 3}, {5, 2}};
    for (size_t p = 0; p < sizeof pairs / sizeof pairs[0]; p++)
        for (uint64_t seed = 1; seed <= 8; seed++) {
            int from = pairs[p][0], to = pairs[p][1];
            world_options o = options(from, seed & 1, seed >> 1 & 1, seed);
            place(from, 300);
            world_ok(world_make(&before, &o));
            world_ok(world_run(&before, 4));
            twin_begin(&t);
            for (int64_t step = 0; step < 4; step++) twin_step(&t, &before, step);
            o.members = to;
            world_ok(world_make(&w, &o));
            world_resume(&w, &before);
            float factor = (float)to / (float)from, sums[WORLD_MOST][FLOATS] = {{0}};
            for (int j = 0; j < from; j++)
                for (size_t i = 0; i < FLOATS; i++)
                    sums[j % to][i] += from == to ? t.memory[j][i] : factor * t.memory[j][i];
            memcpy(t.memory, sums, sizeof sums);
            for (int j = 0; j < to; j++) t.batches[j] = 4;
            place(to, 300);
            world_ok(world_run(&w, 9));
            for (int64_t step = 4; step < 9; step++) twin_step(&t, &w, step);
            check_values(&t, 9);
            world_free(&w);
            world_free(&before);
        }
}

/* ---- rounds of floats ---- */

typedef struct factors_twin {
    float weights[FLOATS], memory[WORLD_MOST][FLOATS], q[FLOATS], held[FLOATS], target[FLOATS];
    int64_t batches[WORLD_MOST];
} factors_twin;

/* All members' matrices of one layer: the means of M q and of M' p, and what becomes of them. */
static void factors_layer(factors_twin *t, size_t first, size_t rows, size_t columns, int members)
{
    static float p[FLOATS], next[FLOATS], one[FLOATS];
    float *q = t->q + first;
    for (int r = 0; r < members; r++) {
        factors_times(t->memory[r] + first, rows, columns, q, one);
        for (size_t i = 0; i < rows; i++) p[i] = r ? p[i] + one[i] : one[i];
    }
    for (size_t i = 0; i < rows; i++) p[i] *= 1.0f / (float)members;
    factors_normalise(p, rows);
    for (int r = 0; r < members; r++) {
        factors_times_transposed(t->memory[r] + first, rows, columns, p, one);
        for (size_t j = 0; j < columns; j++) next[j] = r ? next[j] + one[j] : one[j];
    }
    for (size_t j = 0; j < columns; j++) q[j] = next[j] * (1.0f / (float)members);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) t->target[first + i * columns + j] = p[i] * q[j];
    for (int r = 0; r < members; r++)
        for (size_t i = 0; i < rows * columns; i++) t->memory[r][first + i] -= t->target[first + i];
}

static void factors_step(factors_twin *t, const world *x, int64_t step)
{
    static float g[FLOATS];
    memcpy(t->held, t->target, sizeof t->held);
    for (int r = 0; r < x->o.members; r++) {
        world_gradient(x, r, t->batches[r]++, t->weights, false, g);
        for (size_t i = 0; i < FLOATS; i++) t->memory[r][i] += g[i];
    }
    for (size_t k = 0, first = 0; SEGMENTS[k]; first += (size_t)SEGMENTS[k++]) {
        size_t rows = SEGMENTS[k] % 4 ? 1 : 4;
        factors_layer(t, first, rows, (size_t)SEGMENTS[k] / rows, x->o.members);
    }
    if (x->o.exchange.delay == 0)
        world_update(t->weights, t->target, 0, FLOATS, 1.0f, step);
    else if (step > 0)
        world_update(t->weights, t->held, 0, FLOATS, 1.0f, step - 1);
}

static void factors_begin(factors_twin *t)
{
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < FLOATS; i++) t->weights[i] = world_start(i);
    for (size_t k = 0, first = 0; SEGMENTS[k]; first += (size_t)SEGMENTS[k++])
        for (int j = 0; j < SEGMENTS[k]; j++) t->q[first + (size_t)j] = factors_first((size_t)j);
}

/* Two rounds a step, each a mean over all members; saved in the middle and resumed, by as many or by others: the
 * factors that all have go on, and what each did not deliver is divided anew. */
TEST(test_rounds_of_floats)
{
    (void)state;
    static factors_twin t;
    static world before;
    for (int from = 1; from <= 4; from++)
        for (uint64_t seed = 1; seed <= 12; seed++) {
            int to = seed % 3 ? from : (from + 1) % 4 + 1;
            world_options o = options(from, seed & 1, seed >> 1 & 1, seed);
            o.with = &factors;
            o.matrices = true;
            world_ok(world_make(&before, &o));
            factors_begin(&t);
            world_ok(world_run(&before, 4));
            for (int64_t step = 0; step < 4; step++) factors_step(&t, &before, step);
            world_check_quiescent(&before, 4);
            world_check_values(&before, t.weights);
            o.members = to;
            world_ok(world_make(&w, &o));
            world_resume(&w, &before);
            float sums[WORLD_MOST][FLOATS] = {{0}};
            for (int j = 0; j < from; j++)
                for (size_t i = 0; i < FLOATS; i++)
                    sums[j % to][i] += from == to ? t.memory[j][i] : (float)to / (float)from * t.memory[j][i];
            memcpy(t.memory, sums, sizeof sums);
            for (int j = 0; j < to; j++) t.batches[j] = 4;
            world_ok(world_run(&w, 8));
            for (int64_t step = 4; step < 8; step++) factors_step(&t, &w, step);
            world_check_quiescent(&w, 8);
            world_check_values(&w, t.weights);
            world_free(&w);
            world_free(&before);
        }
}

/* Dense layers beside others: the mean of what all gave, whole. */
TEST(test_dense_items_stay_dense)
{
    (void)state;
    static twin t;
    static float g[FLOATS];
    const nw_codec *codecs[] = {&third, &nw_codec_plain, &third, &nw_codec_plain, &third};
    for (int gather = 0; gather < 2; gather++)
        for (int members = 1; members <= 3; members++) {
            world_options o = options(members, gather, 0, 5);
            o.exchange.layout.codecs = codecs;
            world_ok(world_make(&w, &o));
            world_ok(world_run(&w, 1));
            twin_begin(&t);
            for (int r = 0; r < members; r++) {
                world_gradient(&w, r, 0, t.weights, false, g);
                for (size_t i = 0; i < FLOATS; i++) t.mean[i] = r ? t.mean[i] + g[i] : g[i];
            }
            for (size_t i = 0; i < FLOATS; i++) t.mean[i] *= 1.0f / (float)members;
            world_update(t.weights, t.mean, 0, FLOATS, 1.0f, 0);
            for (size_t i = 0; i < FLOATS; i++) {
                bool dense = (i >= 40 && i < 47) || (i >= 112 && i < 128);
                if (dense) assert_true(w.at[0].params.values[i] == t.weights[i]);
            }
            world_check_quiescent(&w, 1);
            world_free(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts_cover_the_vector_once),
                                       cmocka_unit_test(test_buckets_are_as_long_as_they_should),
                                       cmocka_unit_test(test_buckets_fit_into_messages),
                                       cmocka_unit_test(test_what_is_delivered_and_kept_is_what_was_given),
                                       cmocka_unit_test(test_plain_messages),
                                       cmocka_unit_test(test_means_are_the_twins),
                                       cmocka_unit_test(test_memories_go_on_in_other_worlds),
                                       cmocka_unit_test(test_rounds_of_floats),
                                       cmocka_unit_test(test_dense_items_stay_dense)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
