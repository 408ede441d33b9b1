/*
 * sparse.c - the codecs that send some entries with their positions: topk, thresholdv and adaptivethreshold. They
 * differ in which entries they select:
 *
 *   topk                the k largest magnitudes of each item, exactly (select.h) or by a sampled threshold (sampled.h)
 *   thresholdv          magnitudes of at least V
 *   adaptivethreshold   magnitudes of at least half the item's largest
 *
 * A block is: the header; for q-bit values lo and hi of all items with elements in the cut; the values, padded to 4
 * bytes; the positions (index.h); zeros up to a multiple of 4 bytes. A cut without entries is just a header. Zeros are
 * never sent.
 */
#include "codec/index.h"
#include "codec/packed.h"
#include "codec/sampled.h"
#include "codec/values.h"

#include <math.h>
#include <string.h>

static nw_values values_of(const nw_codec *codec) { return codec->options.values; }

/* ---- options ---- */

static nw_status init_values(nw_codec *codec)
{
    if (codec->options.values == 0) codec->options.values = NW_VALUES_F32;
    return nw_values_valid(values_of(codec));
}

static nw_status init_topk(nw_codec *codec)
{
    const nw_codec_options *o = &codec->options;
    NW_FAIL_IF(!(o->ratio > 0 && o->ratio <= 1), NW_E_ARGUMENT,
               "topk cannot send a share of %g of all entries; give a ratio above 0 and up to 1", o->ratio);
    if (o->sampling.used) NW_TRY(nw_sampled_valid(&o->sampling));
    return init_values(codec);
}

static nw_status init_threshold(nw_codec *codec)
{
    double v = codec->options.threshold;
    NW_FAIL_IF(!(v >= 0 && v <= 3.4e38), NW_E_ARGUMENT, "the threshold of thresholdv is %g; give 0 or more", v);
    return init_values(codec);
}

static double delta_topk(const nw_codec *codec, size_t n)
{
    double sure = codec->options.sampling.used ? codec->options.sampling.lower : 1; /* share of k that is surely sent */
    return n > 0 ? sure * (double)nw_codec_count(codec, n, codec->options.ratio) / (double)n : 1;
}

/* It is possible that nothing is sent; but the error of each element stays below V. */
static double delta_threshold(const nw_codec *codec, size_t n)
{
    (void)codec;
    (void)n;
    return 0;
}

static double delta_adaptive(const nw_codec *codec, size_t n)
{
    (void)codec;
    return n > 0 ? 1 / (double)n : 1;
}

static size_t numbers_of(const nw_block *b) { return (size_t)b->item_count * NW_ITEM_NUMBERS; }

/* ---- which entries ---- */

static void aim_topk(nw_encoding *e, int item)
{
    if (e->codec->options.sampling.used)
        nw_sampled_aim(e, item);
    else
        nw_select_aim(e, item);
}

static void aim_threshold(nw_encoding *e, int item)
{
    nw_select_set_threshold(e, item, nw_magnitude((float)e->codec->options.threshold));
}

static void aim_at_nothing(nw_encoding *e, int item) { nw_select_set_threshold(e, item, NW_NOTHING); }

/* Finds the smallest and largest magnitude of an item's entries, which are the range of q-bit values. */
static void find_range(nw_encoding *e, int item)
{
    const nw_block *b = e->block;
    uint32_t least = UINT32_MAX, greatest = 0;
    if (values_of(e->codec) < NW_VALUES_BITS) return;
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1]; t++) {
        uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE];
        float x[NW_TILE_FLOATS];
        nw_select_marked_floats(e, t, at, x);
        for (uint32_t i = 0; i < e->partial[t].entries; i++) {
            uint32_t m = nw_magnitude(x[i]);
            if (m < least) least = m;
            if (m > greatest) greatest = m;
        }
    }
    if (greatest == 0) least = 0;
    memcpy(&e->scratch->scales[item * NW_ITEM_NUMBERS + NW_ITEM_LEAST], &least, sizeof least);
    memcpy(&e->scratch->scales[item * NW_ITEM_NUMBERS + NW_ITEM_GREATEST], &greatest, sizeof greatest);
}

static void settle_topk(nw_encoding *e, int item, nw_pool *pool)
{
    if (e->codec->options.sampling.used)
        nw_sampled_settle(e, item, pool);
    else
        nw_select_settle(e, item, pool);
    find_range(e, item);
}

static void settle_threshold(nw_encoding *e, int item, nw_pool *pool)
{
    (void)pool;
    find_range(e, item);
}

/* Half of the maximum, on the bits of the float: one exponent less; for subnormal numbers half the bits. */
static void settle_adaptive(nw_encoding *e, int item, nw_pool *pool)
{
    uint32_t most = nw_select_greatest(e, item);
    nw_select_set_threshold(e, item, most >= 2u << 23 ? most - (1u << 23) : (most + 1) / 2);
    nw_select_mark(e, item, pool);
    find_range(e, item);
}

/* ---- encoding ---- */

static uint32_t entries_of(const nw_encoding *e, int cut)
{
    int first = e->block->cut_tile[cut], end = e->block->cut_tile[cut + 1];
    return end > first ? e->partial[end - 1].before + e->partial[end - 1].entries : 0;
}

static size_t range_bytes(const nw_codec *codec, const nw_block *b, int cut)
{
    return values_of(codec) >= NW_VALUES_BITS ? NW_VALUES_RANGE * (size_t)nw_cut_items(b, cut) : 0;
}

/* q-bit values take a byte each until they are packed. */
static size_t bytes(const nw_encoding *e, int cut)
{
    nw_values values = values_of(e->codec);
    size_t k = entries_of(e, cut), width = values == NW_VALUES_F32 ? 4 : values >= NW_VALUES_BITS ? 1 : 2;
    if (k == 0) return NW_PACKED_HEADER;
    return nw_pad4(NW_PACKED_HEADER + range_bytes(e->codec, e->block, cut) + nw_pad4(k * width) +
                   nw_index_bound(e->block->cut_floats[cut], k));
}

static nw_value_range range_of(const nw_encoding *e, int item)
{
    const float *numbers = e->scratch->scales + (size_t)item * NW_ITEM_NUMBERS;
    if (values_of(e->codec) < NW_VALUES_BITS) return (nw_value_range){0, 0};
    return nw_value_range_around(numbers[NW_ITEM_LEAST], numbers[NW_ITEM_GREATEST]);
}

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    const nw_partial *p = &e->partial[index];
    uint8_t *out = e->out[tile->cut] + NW_PACKED_HEADER + range_bytes(e->codec, e->block, tile->cut);
    uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE];
    float x[NW_TILE_FLOATS];
    uint32_t count = p->entries;
    if (seen) seen->entries = (int)count;
    if (count == 0) return;
    nw_select_marked_floats(e, index, at, x);
    nw_index_note(e, index, at);
    if (seen) memcpy(seen->at, at, count * sizeof *at);
    nw_values_encode(values_of(e->codec), range_of(e, tile->item), x, count, out, p->before,
                     seen ? seen->values : NULL);
}

static void close_sparse(nw_encoding *e, int cut)
{
    nw_values values = values_of(e->codec);
    uint8_t *out = e->out[cut];
    uint32_t k = entries_of(e, cut);
    size_t at = NW_PACKED_HEADER, ranges = k > 0 ? range_bytes(e->codec, e->block, cut) : 0, index = 0;
    for (size_t i = 0; i < ranges / NW_VALUES_RANGE; i++, at += NW_VALUES_RANGE)
        nw_value_range_write(range_of(e, nw_cut_first_item(e->block, cut) + (int)i), out + at);
    nw_values_pack(values, out + at, k);
    size_t end = at + nw_values_bytes(values, k);
    memset(out + end, 0, nw_pad4(end) - end);
    if (k > 0) index = nw_index_write(e, cut, out + nw_pad4(end));
    end = nw_pad4(end) + index;
    memset(out + end, 0, nw_pad4(end) - end);
    nw_packed_write(out, (nw_packed){.family = NW_FAMILY_SPARSE,
                                     .values = (uint8_t)values,
                                     .coordinates = (uint32_t)e->block->cut_floats[cut],
                                     .entries = k,
                                     .bytes = (uint32_t)nw_pad4(end)});
    e->encoded[cut] = (nw_encoded){.bytes = nw_pad4(end), .index_bytes = index, .scale_bytes = ranges};
}

/* ---- decoding ---- */

static nw_status check(const nw_decoding *d)
{
    nw_values values = values_of(d->codec);
    nw_value_range range;
    nw_packed h;
    NW_TRY(nw_packed_check(d, (uint8_t)values, 0, &h));
    size_t ranges = h.entries > 0 ? range_bytes(d->codec, d->block, d->cut) : 0, at = NW_PACKED_HEADER + ranges;
    size_t size = nw_values_bytes(values, h.entries), end = at + nw_pad4(size);
    NW_FAIL_IF(end > d->bytes, NW_E_MESSAGE, "%u values do not fit into a block of %zu bytes", h.entries, d->bytes);
    for (size_t i = NW_PACKED_HEADER; i < at; i += NW_VALUES_RANGE) NW_TRY(nw_value_range_read(d->in + i, &range));
    NW_TRY(nw_values_check(values, d->in + at, h.entries));
    NW_TRY(nw_packed_check_zeros(d->in + at + size, nw_pad4(size) - size));
    return nw_index_read(d, d->in + end, d->bytes - end, h.entries);
}

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    const uint32_t *starts = d->scratch->starts + (index - d->block->cut_tile[d->cut]);
    const uint32_t *places = d->scratch->places + starts[0];
    const uint8_t *in = d->in + NW_PACKED_HEADER;
    uint32_t count = starts[1] - starts[0];
    nw_value_range range = {0, 0};
    float x[NW_TILE_FLOATS];
    if (!add) memset(out, 0, tile->count * sizeof *out);
    if (count == 0) return;
    if (values_of(d->codec) >= NW_VALUES_BITS) {
        int item = tile->item - nw_cut_first_item(d->block, d->cut);
        (void)nw_value_range_read(in + NW_VALUES_RANGE * item, &range); /* cannot fail: `check` has read it */
        in += range_bytes(d->codec, d->block, d->cut);
    }
    nw_values_decode(values_of(d->codec), range, in, starts[0], count, x);
    if (add)
        for (uint32_t i = 0; i < count; i++) out[places[i] - tile->place] += x[i];
    else
        for (uint32_t i = 0; i < count; i++) out[places[i] - tile->place] = x[i];
}

#define SPARSE                                                                                         \
    .id = NW_CODEC_PACKED, .family = NW_FAMILY_SPARSE, .size = sizeof(nw_codec), .scales = numbers_of, \
    .look = nw_select_look, .bytes = bytes, .emit = emit, .close = close_sparse, .check = check, .decode = decode

const nw_codec_ops nw_codec_topk = {
    .name = "topk",
    .summary = "the largest entries of a tensor, with their positions",
    .init = init_topk,
    .delta = delta_topk,
    .aim = aim_topk,
    .settle = settle_topk,
    SPARSE,
};
const nw_codec_ops nw_codec_thresholdv = {
    .name = "thresholdv",
    .summary = "entries of at least a given magnitude, with their positions",
    .init = init_threshold,
    .delta = delta_threshold,
    .aim = aim_threshold,
    .settle = settle_threshold,
    SPARSE,
};
const nw_codec_ops nw_codec_adaptivethreshold = {
    .name = "adaptivethreshold",
    .summary = "entries of at least half a tensor's largest, with their positions",
    .init = init_values,
    .delta = delta_adaptive,
    .aim = aim_at_nothing,
    .settle = settle_adaptive,
    SPARSE,
};
