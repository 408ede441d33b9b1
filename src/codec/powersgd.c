/*
 * powersgd.c - PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019): a matrix M of a rows and b columns is approximated
 * by P Q', where P and Q have r columns each.
 *
 *   round 1   P = mean of M Q over all members; then its columns are made orthonormal
 *   round 2   Q = mean of M' P
 *   result    P Q', on all members. The next step starts with this Q, so that the steps are a power iteration. The
 *             error M - P Q' stays in the memory (error feedback).
 *
 * 4 r (a + b) bytes are exchanged instead of 4 a b. The rounds are means of floats, so that nothing is decoded and the
 * cost does not grow with the number of members. Vectors, and matrices that would shrink by less than a factor of 2,
 * are sent dense (nw_powersgd_gains). The rows of a convolution's matrix are its output channels.
 *
 * Columns are made orthonormal by modified Gram-Schmidt, done twice, with dot products in double. A column that depends
 * linearly on those before it (the matrix has a lower rank, or is 0) is set to 0 in P. Its column in Q becomes 0, too;
 * then the previous Q's column is kept for the next step, because a column of 0 would stay 0 for ever.
 *
 * The state of an item is Q, one column after the other, then P, which is used only between the rounds.
 */
#include "codec/powersgd.h"

#include "base/rng.h"
#include "codec/draws.h"
#include "codec/kernels.h"
#include "codec/run.h"

#include <math.h>
#include <string.h>

#define DEPENDS 1e-6 /* a column is dependent if less of its length than this remains orthogonal to the others */

bool nw_powersgd_gains(size_t rows, size_t floats, int rank)
{
    size_t columns = rows > 0 ? floats / rows : 0;
    return 2 * (size_t)rank * (rows + columns) < rows * columns;
}

static nw_status init(nw_codec *codec)
{
    NW_FAIL_IF(codec->options.rank < 1 || codec->options.rank > 1 << 20, NW_E_ARGUMENT,
               "the rank of codec powersgd is %d; it must be 1 or more, for example --powersgd-rank 4",
               codec->options.rank);
    return NW_OK;
}

/* A projection may lose everything. */
static double delta(const nw_codec *codec, size_t n)
{
    (void)codec;
    (void)n;
    return 0;
}

static bool gains(const nw_codec *codec, size_t rows, size_t floats)
{
    return nw_powersgd_gains(rows, floats, codec->options.rank);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

typedef struct matrix {
    size_t rows, columns;
    int rank;
    const nw_tile *first; /* the first of its tiles, whose floats are contiguous: an item is one tensor */
} matrix;

static matrix matrix_of(const nw_block *b, int item)
{
    const nw_tile *first = &b->tiles[b->item_tile[item]], *last = &b->tiles[b->item_tile[item + 1] - 1];
    size_t floats = last->within + last->count, rows = b->rows[item];
    return (matrix){rows, floats / rows, b->codec->options.rank, first};
}

static size_t round_floats(const nw_block *b, int item, int round)
{
    matrix m = matrix_of(b, item);
    return (size_t)m.rank * (round == 0 ? m.rows : m.columns);
}

static size_t keeps(const nw_block *b, int item) { return round_floats(b, item, 0) + round_floats(b, item, 1); }

static void start(const nw_codec *codec, const nw_block *b, int item, float *kept)
{
    nw_rng stream = nw_draws_stream(codec, &(nw_codec_key){0}, b->number[item], true);
    size_t count = round_floats(b, item, 1);
    for (size_t i = 0; i < count; i++) kept[i] = nw_rng_normal(&stream);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

static void contribute(nw_encoding *e, int item, int round, float *out)
{
    const nw_codec_kernels *kernels = nw_codec_kernels_best();
    matrix m = matrix_of(e->block, item);
    const float *floats = nw_encoding_floats(e, m.first), *q = e->kept[item], *p = q + (size_t)m.rank * m.columns;
    if (round == 0)
        kernels->times(floats, m.rows, m.columns, q, m.rank, out);
    else
        kernels->times_transposed(floats, m.rows, m.columns, p, m.rank, out);
}

static void make_orthonormal(float *p, size_t rows, int rank)
{
    const nw_codec_kernels *kernels = nw_codec_kernels_best();
    for (int k = 0; k < rank; k++) {
        float *column = p + (size_t)k * rows;
        double before = kernels->dot(column, column, rows);
        for (int pass = 0; pass < 2; pass++)
            for (int l = 0; l < k; l++) {
                const float *other = p + (size_t)l * rows;
                kernels->add(column, other, (float)-kernels->dot(other, column, rows), rows);
            }
        double after = kernels->dot(column, column, rows);
        bool depends = !(after > DEPENDS * DEPENDS * before);
        kernels->scale(column, depends ? 0 : (float)(1 / sqrt(after)), rows);
    }
}

/* Takes the new columns of Q, but keeps the old one where the new one is 0. */
static void keep_columns(float *q, const float *mean, size_t columns, int rank)
{
    for (int k = 0; k < rank; k++, q += columns, mean += columns)
        if (nw_codec_kernels_best()->largest(mean, columns) > 0) memcpy(q, mean, columns * sizeof *q);
}

static void use_mean(nw_encoding *e, int item, int round, const float *mean, float *target)
{
    const nw_block *b = e->block;
    matrix m = matrix_of(b, item);
    float *q = e->kept[item], *p = q + (size_t)m.rank * m.columns;
    if (round == 0) {
        memcpy(p, mean, (size_t)m.rank * m.rows * sizeof *p);
        make_orthonormal(p, m.rows, m.rank);
        return;
    }
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++)
        nw_codec_kernels_best()->product(p, m.rows, mean, m.columns, m.rank, b->tiles[t].within,
                                         target + b->tiles[t].first, b->tiles[t].count);
    keep_columns(q, mean, m.columns, m.rank);
}

static const nw_rounds rounds = {
    .count = 2, .floats = round_floats, .keeps = keeps, .start = start, .contribute = contribute, .use_mean = use_mean};

const nw_codec_ops nw_codec_powersgd = {.name = "powersgd",
                                        .summary = "low-rank approximation of matrices (--powersgd-rank)",
                                        .id = NW_CODEC_PACKED,
                                        .family = NW_FAMILY_FACTORS,
                                        .size = sizeof(nw_codec),
                                        .init = init,
                                        .delta = delta,
                                        .gains = gains,
                                        .rounds = &rounds};
