/*
 * randomk.c - the codec randomk: it sends k of n elements, which are chosen at random.
 *
 * Positions are not sent: receivers compute them from the key. There are two codecs behind one name:
 *
 *   shared    (the default) all members choose the same positions, so that their values can be averaged as floats: a
 *             codec with one round (codec.h). The result has the mean at these positions and 0 elsewhere.
 *   private   each member chooses its own positions and sends k values: family CHOSEN, in f32 or 16 bits
 *
 * `init` replaces the operations if the private one is wanted. Positions are chosen from a piece, which is the elements
 * of an item in one cut (the whole item, if it is not cut): k = nw_codec_count of its n floats, at the codec's own
 * ratio, the same in all steps. They are drawn without replacement by Floyd's algorithm (Bentley and Floyd 1987): for j
 * from n - k to n - 1, draw t below j + 1; take t, or j if t is taken already. If k > n / 2, the positions that are
 * left out are drawn. Random numbers come from the stream of draws.h, starting with the Philox block whose number is
 * that of the piece's first element in the item, so that pieces share no numbers.
 *
 * Scaled by n / k the result is unbiased, with variance n / k - 1. A memory (error feedback) subtracts what this member
 * contributed at the chosen positions, not the mean that all members get.
 */
#include "codec/dense.h"

#include <math.h>
#include <string.h>

enum { WORD_BITS = 64 };

static const nw_codec_ops private_ops;

static nw_status init(nw_codec *codec)
{
    const nw_codec_options *o = &codec->options;
    NW_FAIL_IF(!(o->ratio > 0 && o->ratio <= 1), NW_E_ARGUMENT, "codec randomk sends a ratio in (0, 1], not %g",
               o->ratio);
    if (o->shared) return NW_OK;
    codec->ops = &private_ops;
    NW_FAIL_IF(o->values > NW_VALUES_BF16, NW_E_ARGUMENT,
               "codec randomk sends values of 32 or 16 bits; choose f32, fp16 or bf16");
    return NW_OK;
}

static double delta(const nw_codec *codec, size_t n)
{
    double share = (double)nw_codec_count(codec, n, codec->options.ratio) / (double)n;
    return codec->options.scaled ? 2 - 1 / share : share;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* The elements of an item in one cut: its tiles, the number of its floats, and how many of these are chosen. */
typedef struct piece {
    int first, end;
    uint32_t floats, taken;
} piece;

/* The piece that begins with that tile. */
static piece piece_from(const nw_block *b, int first)
{
    const nw_tile *tile = &b->tiles[first];
    piece p = {first, first, 0, 0};
    while (p.end < b->tile_count && b->tiles[p.end].item == tile->item && b->tiles[p.end].cut == tile->cut)
        p.floats += b->tiles[p.end++].count;
    p.taken = (uint32_t)nw_codec_count(b->codec, p.floats, b->codec->options.ratio);
    return p;
}

/* Finds the word and the bit of element `at` of a piece. The first guess of its tile is right if all tiles are full. */
static uint64_t *find_word(const nw_block *b, const piece *p, uint32_t at, uint64_t *bits, uint64_t *bit)
{
    int tile = p->first + (int)(at / NW_TILE_FLOATS), low = p->first, high = p->end;
    uint32_t place = b->tiles[p->first].place + at;
    if (tile >= p->end || place < b->tiles[tile].place || place - b->tiles[tile].place >= b->tiles[tile].count) {
        while (high - low > 1) {
            int middle = (low + high) / 2;
            *(b->tiles[middle].place <= place ? &low : &high) = middle;
        }
        tile = low;
    }
    uint32_t within = place - b->tiles[tile].place;
    *bit = (uint64_t)1 << within % WORD_BITS;
    return bits + (size_t)tile * NW_TILE_WORDS + within / WORD_BITS;
}

static bool take(const nw_block *b, const piece *p, uint32_t at, uint64_t *bits)
{
    uint64_t bit, *word = find_word(b, p, at, bits, &bit);
    bool taken = *word & bit;
    *word |= bit;
    return !taken;
}

static void turn_over(const nw_block *b, int tile, uint64_t *words)
{
    uint32_t count = b->tiles[tile].count;
    for (uint32_t i = 0; i < count; i += WORD_BITS, words++)
        *words = ~*words & (count - i < WORD_BITS ? ((uint64_t)1 << (count - i)) - 1 : UINT64_MAX);
}

/* Marks the chosen positions of a piece in bits (nw_scratch). */
static void choose(const nw_block *b, const nw_codec_key *key, const piece *p, uint64_t *bits)
{
    const nw_tile *first = &b->tiles[p->first];
    nw_rng rng = nw_draws_stream(b->codec, key, b->number[first->item], b->codec->options.shared);
    bool most = p->taken > p->floats / 2;
    uint32_t drawn = most ? p->floats - p->taken : p->taken;
    rng.counter[0] = first->within;
    memset(bits + (size_t)p->first * NW_TILE_WORDS, 0, (size_t)(p->end - p->first) * NW_TILE_WORDS * sizeof *bits);
    for (uint32_t j = p->floats - drawn; j < p->floats; j++)
        if (!take(b, p, nw_rng_below(&rng, j + 1), bits)) take(b, p, j, bits);
    for (int t = p->first; most && t < p->end; t++) turn_over(b, t, bits + (size_t)t * NW_TILE_WORDS);
}

static int list_places(const nw_tile *tile, const uint64_t *words, uint16_t *at)
{
    int count = 0;
    for (uint32_t i = 0; i < tile->count; i += WORD_BITS)
        for (uint64_t word = words[i / WORD_BITS]; word; word &= word - 1)
            at[count++] = (uint16_t)(i + (uint32_t)__builtin_ctzll(word));
    return count;
}

static const uint64_t *words_of(const nw_scratch *s, int tile) { return s->bits + (size_t)tile * NW_TILE_WORDS; }

/* The factor of the values (1, or n / k if they are scaled); it is kept in partial.sum of the piece's tiles. */
static float factor_of(const nw_codec *codec, const piece *p)
{
    return codec->options.scaled ? (float)p->floats / (float)p->taken : 1;
}

/* Reads a tile's values at its chosen positions. Returns how many. */
static int gather(const nw_encoding *e, int index, float factor, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    const float *v = nw_encoding_floats(e, tile);
    seen->entries = list_places(tile, words_of(e->scratch, index), seen->at);
    for (int i = 0; i < seen->entries; i++) seen->values[i] = v[seen->at[i]] * factor;
    return seen->entries;
}

/* ---- shared: one round ------------------------------------------------------------------------------------------- */

static size_t round_floats(const nw_block *b, int item, int round)
{
    (void)round;
    return piece_from(b, b->item_tile[item]).taken;
}
static size_t round_keeps(const nw_block *b, int item)
{
    (void)b;
    (void)item;
    return 0;
}
static void round_start(const nw_codec *codec, const nw_block *b, int item, float *kept)
{
    (void)codec;
    (void)b;
    (void)item;
    (void)kept;
}

static void round_contribute(nw_encoding *e, int item, int round, float *out)
{
    piece p = piece_from(e->block, e->block->item_tile[item]);
    nw_seen seen;
    (void)round;
    choose(e->block, &e->key, &p, e->scratch->bits);
    for (int t = p.first; t < p.end; t++) {
        int count = gather(e, t, factor_of(e->codec, &p), &seen);
        memcpy(out, seen.values, (size_t)count * sizeof *out);
        out += count;
    }
}

static void round_use_mean(nw_encoding *e, int item, int round, const float *mean, float *target)
{
    const nw_block *b = e->block;
    piece p = piece_from(b, b->item_tile[item]);
    uint16_t at[NW_TILE_FLOATS];
    (void)round;
    choose(b, &e->key, &p, e->scratch->bits);
    for (int t = p.first; t < p.end; t++) {
        float *out = target + b->tiles[t].first;
        e->partial[t].sum = (double)factor_of(e->codec, &p);
        int count = list_places(&b->tiles[t], words_of(e->scratch, t), at);
        memset(out, 0, b->tiles[t].count * sizeof *out);
        for (int i = 0; i < count; i++) out[at[i]] = *mean++;
    }
}

/* Called after `use_mean`, which marked the positions and kept the factor. */
static void round_sent(const nw_encoding *e, int index, nw_seen *seen)
{
    gather(e, index, (float)e->partial[index].sum, seen);
}

static const nw_rounds rounds = {
    .count = 1,
    .floats = round_floats,
    .keeps = round_keeps,
    .start = round_start,
    .contribute = round_contribute,
    .use_mean = round_use_mean,
    .sent = round_sent,
};

/* ---- private: values --------------------------------------------------------------------------------------------- */

static nw_values values_of(const nw_codec *codec)
{
    return codec->options.values ? codec->options.values : NW_VALUES_F32;
}
static size_t width_of(const nw_codec *codec) { return values_of(codec) == NW_VALUES_F32 ? 4 : 2; }
static size_t bytes_of(const nw_codec *codec, size_t entries)
{
    return NW_PACKED_HEADER + nw_pad4(width_of(codec) * entries);
}

/* Floats to the bytes that are sent, and back. */
static void put_values(const nw_codec *codec, const float *v, size_t count, uint8_t *out)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    if (values_of(codec) == NW_VALUES_F32)
        memcpy(out, v, count * sizeof *v);
    else
        (values_of(codec) == NW_VALUES_FP16 ? k->f16 : k->bf16).encode(v, count, out);
}
static void get_values(const nw_codec *codec, const uint8_t *in, size_t count, float *v)
{
    const nw_codec_kernels *k = nw_codec_kernels_best();
    if (values_of(codec) == NW_VALUES_F32)
        memcpy(v, in, count * sizeof *v);
    else
        (values_of(codec) == NW_VALUES_FP16 ? k->f16 : k->bf16).decode(in, count, v);
}

static int count_places(const uint64_t *words)
{
    int count = 0;
    for (int i = 0; i < NW_TILE_WORDS; i++) count += __builtin_popcountll(words[i]);
    return count;
}

static void settle(nw_encoding *e, int item, nw_pool *pool)
{
    const nw_block *b = e->block;
    (void)pool;
    for (int t = b->item_tile[item]; t < b->item_tile[item + 1];) {
        piece p = piece_from(b, t);
        choose(b, &e->key, &p, e->scratch->bits);
        for (; t < p.end; t++) {
            e->partial[t].entries = (uint32_t)count_places(words_of(e->scratch, t));
            e->partial[t].sum = (double)factor_of(e->codec, &p);
        }
    }
}

static size_t entries_of(const nw_encoding *e, int cut)
{
    const nw_partial *last = &e->partial[e->block->cut_tile[cut + 1] - 1];
    return e->block->cut_floats[cut] > 0 ? last->before + last->entries : 0;
}
static size_t bytes(const nw_encoding *e, int cut) { return bytes_of(e->codec, entries_of(e, cut)); }

static void emit(nw_encoding *e, int index, nw_seen *seen)
{
    const nw_tile *tile = &e->block->tiles[index];
    nw_partial *p = &e->partial[index];
    uint8_t *out = e->out[tile->cut] + NW_PACKED_HEADER + width_of(e->codec) * p->before;
    nw_seen own;
    if (!seen) seen = &own;
    size_t count = (size_t)gather(e, index, (float)p->sum, seen);
    put_values(e->codec, seen->values, count, out);
    get_values(e->codec, out, count, seen->values);
    p->largest = nw_codec_kernels_best()->largest(seen->values, count);
}

static void close(nw_encoding *e, int cut)
{
    size_t entries = entries_of(e, cut), end = NW_PACKED_HEADER + width_of(e->codec) * entries;
    nw_packed_write(e->out[cut], (nw_packed){.family = NW_FAMILY_CHOSEN,
                                             .values = (uint8_t)values_of(e->codec),
                                             .coordinates = (uint32_t)e->block->cut_floats[cut],
                                             .entries = (uint32_t)entries,
                                             .bytes = (uint32_t)bytes(e, cut)});
    memset(e->out[cut] + end, 0, bytes(e, cut) - end);
}

/* Marks the chosen positions of the whole cut, and counts them for each tile. */
static nw_status check(const nw_decoding *d)
{
    const nw_block *b = d->block;
    nw_packed h;
    NW_TRY(nw_packed_check(d, (uint8_t)values_of(d->codec), 0, &h));
    int first = b->cut_tile[d->cut], end = b->cut_tile[d->cut + 1];
    uint32_t entries = 0;
    for (int t = first; t < end;) {
        piece p = piece_from(b, t);
        choose(b, &d->key, &p, d->scratch->bits);
        for (; t < p.end; t++) {
            d->scratch->starts[t - first] = entries;
            entries += (uint32_t)count_places(words_of(d->scratch, t));
        }
    }
    d->scratch->starts[end - first] = entries;
    size_t values = width_of(d->codec) * entries;
    NW_FAIL_IF(
        h.entries != entries || d->bytes != bytes_of(d->codec, entries), NW_E_MESSAGE,
        "a block of codec randomk has %u entries in %zu bytes instead of %u in %zu; give all ranks the same options",
        h.entries, d->bytes, entries, bytes_of(d->codec, entries));
    return nw_packed_check_zeros(d->in + NW_PACKED_HEADER + values, nw_pad4(values) - values);
}

static size_t read_values(const nw_decoding *d, int index, float *v)
{
    const uint32_t *start = d->scratch->starts + index - d->block->cut_tile[d->cut];
    get_values(d->codec, d->in + NW_PACKED_HEADER + width_of(d->codec) * start[0], start[1] - start[0], v);
    return start[1] - start[0];
}

static bool sound(const nw_decoding *d, int index)
{
    float v[NW_TILE_FLOATS];
    return nw_codec_kernels_best()->largest(v, read_values(d, index, v)) < NW_INFINITE;
}

static void decode(const nw_decoding *d, int index, float *out, bool add)
{
    const nw_tile *tile = &d->block->tiles[index];
    uint16_t at[NW_TILE_FLOATS];
    float v[NW_TILE_FLOATS];
    read_values(d, index, v);
    if (!add) memset(out, 0, tile->count * sizeof *out);
    int count = list_places(tile, words_of(d->scratch, index), at);
    for (int i = 0; i < count; i++) out[at[i]] += v[i];
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

const nw_codec_ops nw_codec_randomk = {
    .name = "randomk",
    .summary = "random entries; all members send the same ones, or each its own",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_CHOSEN,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .rounds = &rounds,
};
static const nw_codec_ops private_ops = {
    .name = "randomk",
    .summary = "random entries; each member sends its own",
    .id = NW_CODEC_PACKED,
    .family = NW_FAMILY_CHOSEN,
    .size = sizeof(nw_codec),
    .init = init,
    .delta = delta,
    .settle = settle,
    .bytes = bytes,
    .emit = emit,
    .close = close,
    .check = check,
    .sound = sound,
    .decode = decode,
};
