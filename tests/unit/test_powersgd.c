/*
 * test_powersgd.c - PowerSGD against plain loops in double: its loops, one member and several, steps one after the other;
 * matrices of no or little rank; which tensors it is for; and a run that is saved and goes on.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "codec/kernels.h"
#include "codec/powersgd.h"
#include "codec/run.h"
#include "support/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

static nw_codec *make(int rank)
{
    nw_codec *codec;
    nw_codec_options o = nw_codec_options_default("powersgd");
    o.rank = rank;
    o.seed = 5;
    world_ok(nw_codec_create(&codec, &o));
    return codec;
}

static void fill(float *x, size_t count, uint64_t stream)
{
    nw_rng rng = nw_rng_make(21, NW_PURPOSE_TEST, stream, 0);
    for (size_t i = 0; i < count; i++) x[i] = nw_rng_normal(&rng);
}

/* ---- loops ---- */

static double sum_row(const float *m, size_t columns, const float *q, double *size)
{
    double sum = *size = 0;
    for (size_t j = 0; j < columns; j++) {
        sum += (double)m[j] * (double)q[j];
        *size += fabs((double)m[j] * (double)q[j]);
    }
    return sum;
}

static void check_loops(size_t rows, size_t columns, int rank)
{
    size_t r = (size_t)rank;
    float *m = calloc(rows * columns, 4), *q = calloc(r * columns, 4), *p = calloc(r * rows, 4);
    float *first[3] = {NULL}, *got[3] = {calloc(r * rows, 4), calloc(r * columns, 4), calloc(rows * columns, 4)};
    size_t counts[3] = {r * rows, r * columns, rows * columns};
    fill(m, rows * columns, 1);
    fill(q, r * columns, 2);
    fill(p, r * rows, 3);
    for (int set = 0; set < nw_codec_kernel_sets(); set++) {
        const nw_codec_kernels *k = nw_codec_kernels_at(set);
        if (!k->usable()) continue;
        k->times(m, rows, columns, q, rank, got[0]);
        k->times_transposed(m, rows, columns, p, rank, got[1]);
        for (size_t from = 0, count = 1; from < rows * columns; from += count, count = count * 2 + 1) {
            if (count > rows * columns - from) count = rows * columns - from;
            k->product(p, rows, q, columns, rank, from, got[2] + from, count);
        }
        for (int i = 0; i < 3; i++) { /* the same bits in every set */
            if (first[i]) assert_memory_equal(first[i], got[i], counts[i] * 4);
            if (!first[i]) first[i] = memcpy(malloc(counts[i] * 4), got[i], counts[i] * 4);
        }
    }
    double size;
    for (size_t v = 0; v < r; v++) {
        for (size_t i = 0; i < rows; i++) {
            double want = sum_row(m + i * columns, columns, q + v * columns, &size);
            assert_true(fabs((double)first[0][v * rows + i] - want) <= 1e-6 * size);
        }
        for (size_t j = 0; j < columns; j++) {
            double want = size = 0;
            for (size_t i = 0; i < rows; i++) want += (double)m[i * columns + j] * (double)p[v * rows + i];
            for (size_t i = 0; i < rows; i++) size += fabs((double)m[i * columns + j] * (double)p[v * rows + i]);
            assert_true(fabs((double)first[1][v * columns + j] - want) <= 1e-6 * size);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double want = size = 0;
            for (size_t v = 0; v < r; v++) want += (double)p[v * rows + i] * (double)q[v * columns + j];
            for (size_t v = 0; v < r; v++) size += fabs((double)p[v * rows + i] * (double)q[v * columns + j]);
            assert_true(fabs((double)first[2][i * columns + j] - want) <= 1e-6 * size);
        }
    for (int i = 0; i < 3; i++) free(first[i]), free(got[i]);
    free(m), free(q), free(p);
}

TEST(test_loops)
{
    for (int rank = 1; rank <= 9; rank += rank < 5 ? 1 : 4) {
        check_loops(1, 1, rank);
        check_loops(5, 15, rank);
        check_loops(18, 16, rank);
        check_loops(7, 33, rank);
        check_loops(37, 1100, rank);
    }
}

/* ---- steps, in double ---- */

enum { ROWS = 24, COLUMNS = 30, CELLS = ROWS * COLUMNS, MEMBERS = 3, RANK = 3 };

typedef struct twin {
    double e[MEMBERS][CELLS], q[RANK][COLUMNS], p[RANK][ROWS], target[CELLS];
} twin;

/* Gram-Schmidt; columns must not depend on each other. */
static void orthonormalise(double p[RANK][ROWS])
{
    for (int k = 0; k < RANK; k++) {
        for (int pass = 0; pass < 2; pass++)
            for (int l = 0; l < k; l++) {
                double d = 0;
                for (int i = 0; i < ROWS; i++) d += p[l][i] * p[k][i];
                for (int i = 0; i < ROWS; i++) p[k][i] -= d * p[l][i];
            }
        double square = 0;
        for (int i = 0; i < ROWS; i++) square += p[k][i] * p[k][i];
        for (int i = 0; i < ROWS; i++) p[k][i] /= sqrt(square);
    }
}

static void twin_step(twin *t, float g[MEMBERS][CELLS], bool remembers)
{
    memset(t->p, 0, sizeof t->p);
    for (int r = 0; r < MEMBERS; r++)
        for (int c = 0; c < CELLS; c++) t->e[r][c] = (remembers ? t->e[r][c] : 0) + (double)g[r][c];
    for (int k = 0; k < RANK; k++)
        for (int r = 0; r < MEMBERS; r++)
            for (int c = 0; c < CELLS; c++) t->p[k][c / COLUMNS] += t->e[r][c] * t->q[k][c % COLUMNS] / MEMBERS;
    orthonormalise(t->p);
    memset(t->q, 0, sizeof t->q);
    for (int k = 0; k < RANK; k++)
        for (int r = 0; r < MEMBERS; r++)
            for (int c = 0; c < CELLS; c++) t->q[k][c % COLUMNS] += t->e[r][c] * t->p[k][c / COLUMNS] / MEMBERS;
    for (int c = 0; c < CELLS; c++) {
        t->target[c] = 0;
        for (int k = 0; k < RANK; k++) t->target[c] += t->p[k][c / COLUMNS] * t->q[k][c % COLUMNS];
        for (int r = 0; r < MEMBERS; r++) t->e[r][c] -= t->target[c];
    }
}

/* All members by hand: what each gives, the means, and what they become. */
typedef struct team {
    nw_codec *codec;
    nw_block block;
    nw_memory *memory[MEMBERS];
    float kept[MEMBERS][RANK * (ROWS + COLUMNS)];
} team;

static void team_begin(team *x, const char *memory)
{
    x->codec = make(RANK);
    world_ok(nw_block_make(&x->block, x->codec, &(nw_extent){0, CELLS, 0, ROWS}, 1, (size_t[]){0, CELLS}, 1, 4));
    for (int r = 0; r < MEMBERS; r++) {
        world_ok(nw_memory_create(&x->memory[r], &(nw_memory_options){.name = memory}, CELLS));
        x->codec->ops->rounds->start(x->codec, &x->block, 0, x->kept[r]);
        assert_memory_equal(x->kept[r], x->kept[0], sizeof x->kept[0]);
    }
}

static void team_end(team *x)
{
    for (int r = 0; r < MEMBERS; r++) nw_memory_free(x->memory[r]);
    nw_block_free(&x->block);
    nw_codec_free(x->codec);
}

static nw_status team_step(team *x, float g[MEMBERS][CELLS], float *target, nw_pool *pool)
{
    for (int round = 0; round < 2; round++) {
        size_t count = nw_codec_round_floats(&x->block, round);
        float mean[RANK * COLUMNS] = {0}, given[RANK * COLUMNS];
        assert_int_equal(count, RANK * (round ? COLUMNS : ROWS));
        for (int r = 0; r < 2 * MEMBERS; r++) {
            float *kept = x->kept[r % MEMBERS];
            nw_encoding e = {.block = &x->block,
                             .codec = x->codec,
                             .memory = x->memory[r % MEMBERS],
                             .clip = 1,
                             .vector = g[r % MEMBERS],
                             .kept = &kept};
            if (r < MEMBERS)
                NW_TRY(nw_codec_contribute(&e, round, given, pool));
            else
                nw_codec_use_mean(&e, round, mean, round ? target : NULL, pool);
            for (size_t i = 0; i < count && r < MEMBERS; i++) mean[i] += given[i] / MEMBERS;
        }
    }
    return NW_OK;
}

TEST(test_steps_are_those_of_plain_loops)
{
    static twin t;
    static float g[MEMBERS][CELLS], target[CELLS], sets[CELLS];
    for (int remembers = 0; remembers < 2; remembers++) {
        bool seen = false;
        for (int set = 0; set < nw_codec_kernel_sets(); set++) {
            if (!nw_codec_kernels_at(set)->usable()) continue;
            nw_codec_kernels_force(nw_codec_kernels_at(set));
            static team x;
            memset(&t, 0, sizeof t);
            team_begin(&x, remembers ? "error" : NULL);
            for (int i = 0; i < RANK * COLUMNS; i++) t.q[i / COLUMNS][i % COLUMNS] = (double)x.kept[0][i];
            for (uint64_t step = 0; step < 6; step++) {
                for (int r = 0; r < MEMBERS; r++) fill(g[r], CELLS, 100 + step * MEMBERS + (uint64_t)r);
                world_ok(team_step(&x, g, target, NULL));
                twin_step(&t, g, remembers);
                for (int c = 0; c < CELLS; c++) assert_true(fabs((double)target[c] - t.target[c]) < 1e-4);
                for (int r = 0; r < MEMBERS && remembers; r++)
                    for (int c = 0; c < CELLS; c++) assert_true(fabs((double)x.memory[r]->v[c] - t.e[r][c]) < 1e-4);
                for (int r = 1; r < MEMBERS; r++) assert_memory_equal(x.kept[r], x.kept[0], sizeof x.kept[0]);
            }
            if (seen) assert_memory_equal(sets, target, sizeof sets);
            memcpy(sets, target, sizeof sets);
            seen = true;
            team_end(&x);
        }
    }
    nw_codec_kernels_force(NULL);
}

/* The mean of all members has this rank: after two steps all of it arrives. Nothing is lost by a step without any. */
TEST(test_matrices_of_little_rank)
{
    static float g[MEMBERS][CELLS], zero[MEMBERS][CELLS], target[CELLS];
    for (int true_rank = 1; true_rank <= RANK; true_rank++) {
        static team x;
        float a[RANK][ROWS], b[RANK][COLUMNS];
        fill(a[0], RANK * ROWS, 7);
        fill(b[0], RANK * COLUMNS, 8);
        for (int c = 0; c < CELLS; c++) {
            g[0][c] = 0;
            for (int k = 0; k < true_rank; k++) g[0][c] += a[k][c / COLUMNS] * b[k][c % COLUMNS];
            g[1][c] = 2 * g[0][c];
            g[2][c] = -0.5f * g[0][c];
        }
        team_begin(&x, NULL);
        for (int step = 0; step < 7; step++) {
            bool silent = step == 0 || step == 4;
            world_ok(team_step(&x, silent ? zero : g, target, NULL));
            for (int c = 0; c < CELLS; c++) assert_true(fabsf(target[c] - (silent ? 0 : 2.5f / 3 * g[0][c])) < 1e-4f);
        }
        team_end(&x);
    }
}

/* A number that is not finite is found before something is sent. */
TEST(test_numbers_that_are_not_finite)
{
    static float g[MEMBERS][CELLS], target[CELLS];
    static team x;
    team_begin(&x, "error");
    g[1][77] = INFINITY;
    assert_int_equal(team_step(&x, g, target, NULL), NW_E_NUMERIC);
    team_end(&x);
}

/* ---- which tensors ---- */

TEST(test_which_tensors_gain)
{
    assert_false(nw_powersgd_gains(1, 1000, 1));
    assert_false(nw_powersgd_gains(4, 16, 1));
    assert_true(nw_powersgd_gains(64, 576 * 64, 4));
    assert_true(nw_powersgd_gains(5, 25, 1) == (2 * 10 < 25));
    assert_true(nw_powersgd_gains(16, 16 * 16, 3));  /* 192 < 256 */
    assert_false(nw_powersgd_gains(16, 16 * 16, 4)); /* 256 = 256 */
    nw_codec *codec;
    nw_codec_options o = nw_codec_options_default("powersgd");
    o.rank = 0;
    assert_int_equal(nw_codec_create(&codec, &o), NW_E_ARGUMENT);
    codec = make(2);
    nw_segments s = {0};
    nw_layout l;
    int ignored;
    world_ok(nw_segments_add(&s, "conv", NW_ROLE_CONV, 0, 1, 4, (int[]){16, 4, 3, 3}, &ignored));
    world_ok(nw_segments_add(&s, "bias", NW_ROLE_BIAS, 0, 1, 1, (int[]){16}, &ignored));
    world_ok(nw_segments_add(&s, "small", NW_ROLE_LINEAR, 0, 1, 2, (int[]){4, 5}, &ignored));
    nw_layout_options lo = {.segments = &s, .codec = codec, .cuts = 2};
    world_ok(nw_layout_make(&l, &lo));
    assert_int_equal(l.count, 2);
    assert_true(l.at[0].dense && !l.at[0].summed && l.at[0].block.codec == &nw_codec_plain);
    assert_true(!l.at[1].dense && l.at[1].summed && l.at[1].block.rows[0] == 16 && l.at[1].block.floats == 576);
    nw_layout_free(&l);
    lo.scope = NW_SCOPE_MODEL;
    assert_int_equal(nw_layout_make(&l, &lo), NW_E_ARGUMENT);
    free(s.at);
    nw_codec_free(codec);
}

/* ---- in an exchange ---- */

static const int SEGMENTS[] = {160, 7, 64, 33, 200, 0}; /* matrices of 4 rows where 4 divides them */

static world_options options(const nw_codec *codec, int members, uint64_t seed, const char *memory)
{
    return (world_options){.exchange = {.name = "allreduce",
                                        .delay = seed & 1,
                                        .memory = {.name = memory},
                                        .layout = {.bucket_bytes = 300}},
                           .members = members,
                           .with = codec,
                           .segments = SEGMENTS,
                           .matrices = true,
                           .seed = seed,
                           .finals = seed};
}

/* Saved in the middle and resumed, it has the bits of a run that was not; other numbers of members go on, too. */
TEST(test_runs_that_are_saved)
{
    static world whole, before, after;
    nw_codec *codec = make(1);
    for (int members = 1; members <= 3; members++)
        for (uint64_t seed = 1; seed <= 6; seed++) {
            world_options o = options(codec, members, seed, seed % 3 ? "error" : NULL);
            world_ok(world_make(&whole, &o));
            world_ok(world_run(&whole, 9));
            world_check_quiescent(&whole, 9);
            world_ok(world_make(&before, &o));
            world_ok(world_run(&before, 4));
            world_ok(world_make(&after, &o));
            world_resume(&after, &before);
            world_ok(world_run(&after, 9));
            world_check_values(&after, whole.at[0].params.values);
            world_free(&after);
            o.members = members % 3 + 1;
            world_ok(world_make(&after, &o));
            world_resume(&after, &before);
            world_ok(world_run(&after, 9));
            world_check_quiescent(&after, 9);
            world_free(&after);
            world_free(&before);
            world_free(&whole);
        }
    nw_codec_free(codec);
}

TEST(test_refusals)
{
    static world w;
    nw_codec *codec = make(1);
    world_options o = options(codec, 2, 1, "ef21");
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "powersgd"));
    world_free(&w);
    o = options(codec, 2, 2, NULL);
    o.exchange.name = "server";
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "powersgd"));
    world_free(&w);
    nw_codec_free(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_steps_are_those_of_plain_loops),
                                       cmocka_unit_test(test_matrices_of_little_rank),
                                       cmocka_unit_test(test_numbers_that_are_not_finite),
                                       cmocka_unit_test(test_which_tensors_gain),
                                       cmocka_unit_test(test_runs_that_are_saved),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
