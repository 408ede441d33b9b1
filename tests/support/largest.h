/*
 * largest.h - a codec of the tests that sends the largest elements of an item, found by sorting: exact top-k, by plain
 * loops. Of those of equal size the first are taken; zeros are not sent. A message is (place in the cut, value), 8 bytes
 * an entry.
 */
#ifndef NW_TESTS_LARGEST_H
#define NW_TESTS_LARGEST_H

#include "codec/kernels.h"
#include "codec/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct largest_entry {
    float size;
    size_t at;
} largest_entry;

static inline int largest_first(const void *a, const void *b)
{
    const largest_entry *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->at < y->at ? -1 : 1;
}

/* Marks the k largest of v[0 .. n). */
static inline void largest_mark(const float *v, size_t n, size_t k, bool *marks)
{
    largest_entry *all = malloc((n + 1) * sizeof *all);
    if (!all) abort();
    for (size_t i = 0; i < n; i++) {
        marks[i] = false;
        all[i] = (largest_entry){fabsf(v[i]), i};
    }
    qsort(all, n, sizeof *all, largest_first);
    for (size_t i = 0; i < k && i < n; i++) marks[all[i].at] = all[i].size > 0;
    free(all);
}

static inline size_t largest_floats(const nw_block *b, int item)
{
    size_t floats = 0;
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++) floats += b->tiles[t].count;
    return floats;
}

static inline nw_status largest_init(nw_codec *codec)
{
    (void)codec;
    return NW_OK;
}

static inline double largest_delta(const nw_codec *codec, size_t n)
{
    return (double)nw_codec_count(codec, n, codec->options.ratio) / (double)n;
}

static inline void largest_look(nw_encoding *e, int tile)
{
    const nw_tile *t = &e->block->tiles[tile];
    e->partial[tile].largest = nw_codec_kernels_best()->largest(nw_encoding_floats(e, t), t->count);
}

static inline void largest_settle(nw_encoding *e, int item, nw_pool *pool)
{
    const nw_block *b = e->block;
    size_t n = largest_floats(b, item), at = 0;
    float *v = malloc((n + 1) * sizeof *v);
    bool *marks = malloc(n + 1);
    (void)pool;
    if (!v || !marks) abort();
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; at += b->tiles[t++].count)
        memcpy(v + at, nw_encoding_floats(e, &b->tiles[t]), b->tiles[t].count * sizeof *v);
    largest_mark(v, n, nw_codec_count(e->codec, n, e->ratio), marks);
    at = 0;
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++) {
        uint64_t *bits = e->scratch->bits + (size_t)t * NW_TILE_WORDS;
        memset(bits, 0, NW_TILE_WORDS * sizeof *bits);
        e->partial[t].entries = 0;
        for (uint32_t i = 0; i < b->tiles[t].count; i++, at++) {
            bits[i / 64] |= (uint64_t)marks[at] << i % 64;
            e->partial[t].entries += marks[at];
        }
    }
    free(v);
    free(marks);
}

static inline size_t largest_bytes(const nw_encoding *e, int cut)
{
    size_t entries = 0;
    for (int t = e->block->cut_tile[cut]; t < e->block->cut_tile[cut + 1]; t++) entries += e->partial[t].entries;
    return 8 * entries;
}

static inline void largest_emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    const float *in = nw_encoding_floats(e, tile);
    const uint64_t *bits = e->scratch->bits + (size_t)index * NW_TILE_WORDS;
    uint8_t *out = e->out[tile->cut] + 8 * (size_t)e->partial[index].before;
    int entries = 0;
    for (uint32_t i = 0; i < tile->count; i++) {
        if (!(bits[i / 64] >> i % 64 & 1)) continue;
        uint32_t place = tile->place + i;
        memcpy(out, &place, 4);
        memcpy(out + 4, &in[i], 4);
        out += 8;
        if (seen) seen->at[entries] = (uint16_t)i;
        if (seen) seen->values[entries] = in[i];
        entries++;
    }
    if (seen) seen->entries = entries;
}

static inline nw_status largest_check(const nw_decoding *d)
{
    NW_FAIL_IF(d->bytes % 8 != 0, NW_E_MESSAGE, "%zu bytes are no entries", d->bytes);
    return NW_OK;
}

static inline void largest_decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    if (!add) memset(out, 0, tile->count * sizeof *out);
    for (size_t at = 0; at < d->bytes; at += 8) {
        uint32_t place;
        float x;
        memcpy(&place, d->in + at, 4);
        memcpy(&x, d->in + at + 4, 4);
        if (place >= tile->place && place < tile->place + tile->count) out[place - tile->place] += x;
    }
}

static const nw_codec_ops largest_ops = {.name = "topk",
                                         .summary = "the largest elements, by sorting",
                                         .id = NW_CODEC_PACKED,
                                         .family = NW_FAMILY_SPARSE,
                                         .size = sizeof(nw_codec),
                                         .init = largest_init,
                                         .delta = largest_delta,
                                         .look = largest_look,
                                         .settle = largest_settle,
                                         .bytes = largest_bytes,
                                         .emit = largest_emit,
                                         .check = largest_check,
                                         .decode = largest_decode};

static inline nw_codec largest_codec(double ratio)
{
    nw_codec codec = {.ops = &largest_ops, .options = nw_codec_options_default("topk")};
    codec.options.ratio = ratio;
    return codec;
}

#endif
