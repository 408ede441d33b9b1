/*
 * third.h - a codec of the tests that sends every third element of an item, and nothing of the others: which ones is a
 * matter of the step and the channel, so that all are sent in the end. Values are plain floats, without indices.
 */
#ifndef NW_TESTS_THIRD_H
#define NW_TESTS_THIRD_H

#include "codec/run.h"

#include <string.h>

static inline bool third_sends(const nw_codec_key *key, const nw_tile *tile, uint32_t i)
{
    return (tile->within + i + key->step + key->channel) % 3 == 0;
}

static inline uint32_t third_count(const nw_codec_key *key, const nw_tile *tile)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < tile->count; i++) count += third_sends(key, tile, i);
    return count;
}

static inline void third_settle(nw_encoding *e, int item, nw_pool *pool)
{
    (void)pool;
    for (int t = e->block->item_tile[item]; t < e->block->item_tile[item + 1]; t++)
        e->partial[t] = (nw_partial){.entries = third_count(&e->key, &e->block->tiles[t])};
}

static inline size_t third_bytes(const nw_encoding *e, int cut)
{
    uint32_t entries = 0;
    for (int t = e->block->cut_tile[cut]; t < e->block->cut_tile[cut + 1]; t++) entries += e->partial[t].entries;
    return entries * sizeof(float);
}

static inline void third_emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    const float *in = nw_encoding_floats(e, tile);
    uint8_t *out = e->out[tile->cut] + e->partial[index].before * sizeof(float);
    for (uint32_t i = 0; i < tile->count; i++) {
        bool sends = third_sends(&e->key, tile, i);
        if (seen) seen->values[i] = sends ? in[i] : 0;
        if (!sends) continue;
        memcpy(out, &in[i], sizeof(float));
        out += sizeof(float);
    }
}

static inline nw_status third_check(const nw_decoding *d)
{
    uint32_t entries = 0;
    for (int t = d->block->cut_tile[d->cut]; t < d->block->cut_tile[d->cut + 1]; t++)
        entries += third_count(&d->key, &d->block->tiles[t]);
    NW_FAIL_IF(d->bytes != entries * sizeof(float), NW_E_MESSAGE, "%zu bytes for %u thirds", d->bytes, entries);
    return NW_OK;
}

static inline void third_decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint8_t *in = d->in;
    for (int t = d->block->cut_tile[d->cut]; t < index; t++)
        in += third_count(&d->key, &d->block->tiles[t]) * sizeof(float);
    for (uint32_t i = 0; i < tile->count; i++) {
        float x = 0;
        if (third_sends(&d->key, tile, i)) {
            memcpy(&x, in, sizeof x);
            in += sizeof x;
        }
        out[i] = add ? out[i] + x : x;
    }
}

static const nw_codec_ops third_ops = {.name = "third",
                                       .summary = "every third element",
                                       .id = 77,
                                       .family = NW_FAMILY_SPARSE,
                                       .settle = third_settle,
                                       .bytes = third_bytes,
                                       .emit = third_emit,
                                       .check = third_check,
                                       .decode = third_decode};
static const nw_codec third = {.ops = &third_ops, .options = {.name = "third"}};

#endif
