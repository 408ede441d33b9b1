/* warm_up.c - see warm_up.h. */
#include "channel/warm_up.h"

/* The number of entries of a bucket at that ratio. */
static uint64_t entries_of(const nw_block *b, double ratio)
{
    uint64_t all = 0;
    for (int i = 0; i < b->item_count; i++) {
        const nw_tile *last = &b->tiles[b->item_tile[i + 1] - 1];
        all += nw_codec_count(b->codec, (size_t)last->within + last->count, ratio);
    }
    return all;
}

/* Bits of a compressed bucket at that ratio. */
static uint64_t bits_of(const nw_bucket *bucket, double ratio)
{
    const nw_block *b = &bucket->block;
    if (!nw_codec_warms_up(b->codec))
        return 8 * nw_mode_bytes(b->codec, b->floats, bucket->entries, (uint64_t)b->item_count);
    uint64_t k = entries_of(b, ratio);
    return k * (nw_value_bits(b->codec) + 2 + nw_ceil_log2(b->floats, k));
}

bool nw_warm_up_is_plain(const nw_layout *l, int members, int64_t clock)
{
    uint64_t sent = 0, plain = 0;
    bool all = true, warms = false;
    for (int i = 0; i < l->count; i++) {
        const nw_codec *codec = l->at[i].block.codec;
        const nw_warm_up *w = &codec->options.warm_up;
        if (l->at[i].dense) continue;
        double ratio = nw_codec_ratio(codec, clock);
        all &= nw_codec_warms_up(codec) && ratio >= 1;
        warms |= nw_codec_warms_up(codec) && w->batches > 0 && clock / w->batches < w->epochs;
        sent += (l->at[i].gathered ? (uint64_t)members : 2) * bits_of(&l->at[i], ratio);
        plain += 64 * l->at[i].block.floats;
    }
    return plain > 0 && (all || (warms && sent > plain));
}

bool nw_warm_up_has_plain(const nw_layout *l, int members)
{
    bool any = nw_warm_up_is_plain(l, members, INT64_MAX);
    for (int i = 0; i < l->count; i++) {
        const nw_warm_up *w = &l->at[i].block.codec->options.warm_up;
        for (int e = 0; e < w->epochs; e++) any |= nw_warm_up_is_plain(l, members, e * w->batches);
    }
    return any;
}
