/* warm_up.c - see warm_up.h. */
#include "channel/warm_up.h"

static uint64_t entries_of(const nw_block *b, double ratio)
{
    uint64_t all = 0;
    for (int i = 0; i < b->item_count; i++) {
        const nw_tile *last = &b->tiles[b->item_tile[i + 1] - 1];
        all += nw_codec_count(b->codec, (size_t)last->within + last->count, ratio);
    }
    return all;
}

bool nw_warm_up_is_plain(const nw_layout *l, int members, int64_t clock)
{
    uint64_t sent = 0, plain = 0;
    bool all = true, warms = false;
    for (int i = 0; i < l->count; i++) {
        const nw_block *b = &l->at[i].block;
        const nw_warm_up *w = &b->codec->options.warm_up;
        if (b->codec->ops->family != NW_FAMILY_SPARSE || l->at[i].dense) continue;
        double ratio = nw_codec_ratio(b->codec, clock);
        uint64_t k = entries_of(b, ratio), times = l->at[i].gathered ? (uint64_t)members : 2;
        all &= ratio >= 1;
        warms |= w->batches > 0 && clock / w->batches < w->epochs;
        sent += times * k * (nw_value_bits(b->codec) + 2 + nw_ceil_log2(b->floats, k));
        plain += 64 * b->floats;
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
