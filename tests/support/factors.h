/*
 * factors.h - a codec of the tests with two rounds of floats: a matrix M becomes p q', where p is the mean of M q over
 * all members, of length 1, and q the mean of M' p; q is kept for the next step (PowerSGD of rank 1, by plain loops).
 */
#ifndef NW_TESTS_FACTORS_H
#define NW_TESTS_FACTORS_H

#include "codec/run.h"

#include <math.h>
#include <string.h>

enum { FACTORS_MOST = 4096 };

static inline float factors_first(size_t j) { return 1.0f / (float)(1 + j % 7); }

static inline void factors_times(const float *m, size_t rows, size_t columns, const float *q, float *out)
{
    for (size_t i = 0; i < rows; i++) {
        out[i] = 0;
        for (size_t j = 0; j < columns; j++) out[i] += m[i * columns + j] * q[j];
    }
}

static inline void factors_times_transposed(const float *m, size_t rows, size_t columns, const float *p, float *out)
{
    for (size_t j = 0; j < columns; j++) {
        out[j] = 0;
        for (size_t i = 0; i < rows; i++) out[j] += m[i * columns + j] * p[i];
    }
}

static inline void factors_normalise(float *p, size_t rows)
{
    double square = 0;
    for (size_t i = 0; i < rows; i++) square += (double)p[i] * (double)p[i];
    for (size_t i = 0; i < rows; i++) p[i] = square > 0 ? (float)((double)p[i] / sqrt(square)) : 0;
}

static inline size_t factors_floats_of(const nw_block *b, int item)
{
    const nw_tile *last = &b->tiles[b->item_tile[item + 1] - 1];
    return last->within + last->count;
}
static inline size_t factors_columns(const nw_block *b, int item) { return factors_floats_of(b, item) / b->rows[item]; }

static inline size_t factors_floats(const nw_block *b, int item, int round)
{
    return round == 0 ? b->rows[item] : factors_columns(b, item);
}
static inline size_t factors_keeps(const nw_block *b, int item) { return factors_columns(b, item) + b->rows[item]; }

static inline void factors_start(const nw_codec *codec, const nw_block *b, int item, float *kept)
{
    (void)codec;
    for (size_t j = 0; j < factors_columns(b, item); j++) kept[j] = factors_first(j);
}

static inline void factors_contribute(nw_encoding *e, int item, int round, float *out)
{
    static _Thread_local float m[FACTORS_MOST];
    const nw_block *b = e->block;
    size_t rows = b->rows[item], columns = factors_columns(b, item);
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++)
        memcpy(m + b->tiles[t].within, nw_encoding_floats(e, &b->tiles[t]), b->tiles[t].count * sizeof *m);
    if (round == 0)
        factors_times(m, rows, columns, e->kept[item], out);
    else
        factors_times_transposed(m, rows, columns, e->kept[item] + columns, out);
}

static inline void factors_use_mean(nw_encoding *e, int item, int round, const float *mean, float *target)
{
    const nw_block *b = e->block;
    size_t rows = b->rows[item], columns = factors_columns(b, item);
    float *q = e->kept[item], *p = q + columns;
    memcpy(round == 0 ? p : q, mean, (round == 0 ? rows : columns) * sizeof *mean);
    if (round == 0) factors_normalise(p, rows);
    for (int t = b->item_tile[item]; target && t < b->item_tile[item + 1]; t++)
        for (uint32_t i = 0; i < b->tiles[t].count; i++) {
            size_t at = b->tiles[t].within + i;
            target[b->tiles[t].first + i] = p[at / columns] * q[at % columns];
        }
}

static const nw_rounds factors_rounds = {.count = 2,
                                         .floats = factors_floats,
                                         .keeps = factors_keeps,
                                         .start = factors_start,
                                         .contribute = factors_contribute,
                                         .use_mean = factors_use_mean};
static const nw_codec_ops factors_ops = {
    .name = "factors", .summary = "a product of two vectors", .id = 78, .rounds = &factors_rounds};
static const nw_codec factors = {.ops = &factors_ops, .options = {.name = "factors"}};

#endif
