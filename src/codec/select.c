/* select.c - see select.h. */
#include "codec/select.h"

#include <math.h>
#include <string.h>

enum { BINS = NW_SCRATCH_BINS, BIN_BITS = 11, SAMPLES_LEAST = 512, SAMPLES_MOST = 4096, GUESSED = 4 * SAMPLES_LEAST };
_Static_assert(BINS == 1 << BIN_BITS, "a histogram has a bin for each value of so many bits");

/* ---- items ---- */

size_t nw_select_floats(const nw_block *b, int item)
{
    int begin = b->item_tile[item], end = b->item_tile[item + 1];
    return begin < end ? (size_t)b->tiles[end - 1].within + b->tiles[end - 1].count - b->tiles[begin].within : 0;
}

uint32_t nw_select_threshold(const nw_encoding *e, int item)
{
    uint32_t magnitude;
    memcpy(&magnitude, &e->scratch->scales[item * NW_ITEM_NUMBERS + NW_ITEM_THRESHOLD], sizeof magnitude);
    return magnitude;
}

void nw_select_set_threshold(nw_encoding *e, int item, uint32_t magnitude)
{
    if (magnitude < 1) magnitude = 1;
    memcpy(&e->scratch->scales[item * NW_ITEM_NUMBERS + NW_ITEM_THRESHOLD], &magnitude, sizeof magnitude);
}

size_t nw_select_marked(const nw_encoding *e, int item)
{
    size_t marked = 0;
    for (int t = e->block->item_tile[item]; t < e->block->item_tile[item + 1]; t++) marked += e->partial[t].entries;
    return marked;
}

uint32_t nw_select_greatest(const nw_encoding *e, int item)
{
    uint32_t most = 0;
    for (int t = e->block->item_tile[item]; t < e->block->item_tile[item + 1]; t++)
        if (e->partial[t].largest > most) most = e->partial[t].largest;
    return most;
}

/* ---- the k-th largest ---- */

/* A range of magnitudes, least to least + span, in which the wanted one is the rank-th largest. */
typedef struct bracket {
    uint32_t least, span;
    int shift; /* (magnitude - least) >> shift is its bin */
    size_t rank;
} bracket;

static bracket make_bracket(uint32_t least, uint32_t greatest, size_t rank)
{
    uint32_t span = greatest - least;
    int bits = span ? 32 - __builtin_clz(span) : 0;
    return (bracket){least, span, bits > BIN_BITS ? bits - BIN_BITS : 0, rank};
}

/* The bin in which the wanted magnitude lies; the histogram counts at least `rank` magnitudes. */
static bracket narrow_bracket(bracket b, const uint32_t *counts)
{
    uint32_t bin = b.span >> b.shift;
    while (counts[bin] < b.rank) b.rank -= counts[bin--];
    uint32_t least = b.least + (bin << b.shift);
    return make_bracket(least, least + ((1u << b.shift) - 1), b.rank);
}

uint32_t nw_select_kth(const uint32_t *list, size_t count, size_t rank)
{
    uint32_t counts[BINS];
    bracket b = make_bracket(0, 0x7fffffff, rank);
    while (b.span > 0) {
        memset(counts, 0, sizeof counts);
        nw_codec_kernels_best()->tally(list, count, b.least, b.span, b.shift, counts);
        b = narrow_bracket(b, counts);
    }
    return b.least;
}

/* ---- over the tiles of an item ---- */

typedef struct select_job {
    nw_encoding *e;
    int first; /* tile */
    uint32_t threshold;
    bracket within;
    bool all;         /* count all floats, not only marked ones */
    uint32_t *counts; /* a histogram for each thread */
} select_job;

static void run_on_tiles(nw_pool *pool, const select_job *j, int item, nw_pool_task task)
{
    int count = j->e->block->item_tile[item + 1] - j->first;
    if (pool)
        nw_pool_run(pool, count, task, (void *)j);
    else
        for (int i = 0; i < count; i++) task((void *)j, i, 0);
}

/* Marks elements; copies the marked floats to the list while the tile is in the cache. */
static void mark_tile(nw_encoding *e, int index, uint32_t threshold)
{
    const nw_tile *tile = &e->block->tiles[index];
    const nw_codec_kernels *k = nw_codec_kernels_best();
    const float *v = nw_encoding_floats(e, tile);
    nw_partial *p = &e->partial[index];
    uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE];
    p->entries = k->mark(v, tile->count, threshold, nw_select_bits(e, index), &p->largest);
    p->ties = nw_select_fits(tile, p->entries);
    if (!p->ties || p->entries == 0) return;
    k->places(nw_select_bits(e, index), tile->count, at);
    uint32_t *list = nw_select_list(e, index);
    for (uint32_t i = 0; i < p->entries; i++) memcpy(&list[i], &v[at[i]], sizeof *list);
}

uint32_t nw_select_marked_floats(const nw_encoding *e, int index, uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE],
                                 float *x)
{
    const nw_tile *tile = &e->block->tiles[index];
    const nw_partial *p = &e->partial[index];
    const float *v = nw_encoding_floats(e, tile);
    const uint32_t *list = nw_select_list(e, index), threshold = nw_select_threshold(e, tile->item);
    uint32_t kept = 0;
    if (p->entries == 0) return 0;
    uint32_t marked = nw_codec_kernels_best()->places(nw_select_bits(e, index), tile->count, at);
    for (uint32_t i = 0; i < marked; i++) { /* without a branch that nobody can foresee */
        at[kept] = at[i];
        memcpy(&x[kept], p->ties ? &list[i] : (const void *)&v[at[i]], sizeof *x);
        kept += nw_magnitude(x[kept]) >= threshold;
    }
    return kept;
}

static void mark_task(void *context, int index, int worker)
{
    const select_job *j = context;
    (void)worker;
    mark_tile(j->e, j->first + index, j->threshold);
}

void nw_select_mark(nw_encoding *e, int item, nw_pool *pool)
{
    select_job j = {.e = e, .first = e->block->item_tile[item], .threshold = nw_select_threshold(e, item)};
    run_on_tiles(pool, &j, item, mark_task);
}

/* Adds the marked floats of a tile to the histogram. A tile without a list is read whole, which gives the same counts
 * because the bracket begins at the threshold of the marks. */
static void tally_task(void *context, int index, int worker)
{
    const select_job *j = context;
    const nw_tile *tile = &j->e->block->tiles[j->first + index];
    const nw_partial *p = &j->e->partial[j->first + index];
    bool listed = p->ties && !j->all;
    const void *from = listed ? (const void *)nw_select_list(j->e, j->first + index) : nw_encoding_floats(j->e, tile);
    nw_codec_kernels_best()->tally(from, listed ? p->entries : tile->count, j->within.least, j->within.span,
                                   j->within.shift, j->counts + (size_t)worker * BINS);
}

/* Counts the marked elements that reach the threshold. Where there is a list, the others keep their mark but are no
 * longer counted. */
static void count_task(void *context, int index, int worker)
{
    const select_job *j = context;
    nw_partial *p = &j->e->partial[j->first + index];
    const uint32_t *list = nw_select_list(j->e, j->first + index);
    uint32_t count = 0;
    (void)worker;
    if (!p->ties) {
        mark_tile(j->e, j->first + index, j->threshold);
        return;
    }
    for (uint32_t i = 0; i < p->entries; i++) count += (list[i] & 0x7fffffffu) >= j->threshold;
    p->entries = count;
}

/* Makes a histogram of the bracket over all tiles of an item. Returns how many were counted. */
static size_t tally_tiles(nw_pool *pool, select_job *j, int item, uint32_t sum[BINS])
{
    int threads = pool ? nw_pool_threads(pool) : 1;
    size_t all = 0;
    j->counts = pool ? j->e->scratch->counts : sum;
    memset(j->counts, 0, (size_t)threads * BINS * sizeof *sum);
    run_on_tiles(pool, j, item, tally_task);
    for (int i = 0; i < BINS; i++) {
        uint32_t here = 0;
        for (int t = 0; t < threads; t++) here += j->counts[t * BINS + i];
        all += sum[i] = here;
    }
    return all;
}

/* ---- settling ---- */

/* The k-th largest magnitude in the bracket, or the bracket's least if it has no more than k. */
static uint32_t kth_of_tiles(nw_pool *pool, select_job *j, int item)
{
    uint32_t counts[BINS];
    if (tally_tiles(pool, j, item, counts) <= j->within.rank) return j->within.least;
    j->within = narrow_bracket(j->within, counts);
    while (j->within.span > 0) {
        tally_tiles(pool, j, item, counts);
        j->within = narrow_bracket(j->within, counts);
    }
    return j->within.least;
}

/* More elements are marked than wanted because some are equal: unmarks those with the highest positions. */
static void drop_ties(nw_encoding *e, int item, uint32_t magnitude, size_t excess)
{
    const nw_block *b = e->block;
    for (int t = b->item_tile[item + 1] - 1; t >= b->item_tile[item] && excess > 0; t--) {
        const float *v = nw_encoding_floats(e, &b->tiles[t]);
        uint64_t *bits = nw_select_bits(e, t);
        uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE];
        uint32_t i = nw_codec_kernels_best()->places(bits, b->tiles[t].count, at);
        while (i-- > 0 && excess > 0) {
            if (nw_magnitude(v[at[i]]) != magnitude) continue;
            bits[at[i] / 64] &= ~(1ull << at[i] % 64);
            e->partial[t].entries--;
            e->partial[t].ties = 0; /* the list is no longer valid: it still has the unmarked float */
            excess--;
        }
    }
}

void nw_select_cut(nw_encoding *e, int item, size_t k, nw_pool *pool)
{
    size_t marked = nw_select_marked(e, item);
    uint32_t threshold = nw_select_threshold(e, item), greatest = nw_select_greatest(e, item);
    select_job j = {.e = e, .first = e->block->item_tile[item], .all = marked < k};
    if (marked == k || (threshold == 1 && marked < k)) return;
    if (j.all) threshold = 1; /* anything but zeros */
    j.within = make_bracket(threshold, greatest < threshold ? threshold : greatest, k);
    j.threshold = kth_of_tiles(pool, &j, item);
    nw_select_set_threshold(e, item, j.threshold);
    run_on_tiles(pool, &j, item, j.all ? mark_task : count_task);
    marked = nw_select_marked(e, item);
    if (marked > k) drop_ties(e, item, j.threshold, marked - k);
}

/* ---- aiming ---- */

nw_sampler nw_sampler_make(const nw_encoding *e, int item)
{
    const nw_tile *tile = &e->block->tiles[e->block->item_tile[item]];
    return (nw_sampler){e, tile, tile, &e->block->tiles[e->block->item_tile[item + 1]], tile->within};
}

uint32_t nw_sampler_next(nw_sampler *s, size_t element)
{
    const nw_memory *memory = s->e->memory;
    element += s->first;
    while (element - s->tile->within >= s->tile->count) s->tile++;
    size_t at = element - s->tile->within;
    float g = s->e->vector[s->tile->first + at];
    return nw_magnitude(memory ? memory->ops->peek(memory, s->tile->kept + at, g, s->e->clip) : g);
}

uint32_t nw_sampler_at(nw_sampler *s, size_t element)
{
    const nw_tile *begin = s->begin, *end = s->end;
    while (end - begin > 1) {
        const nw_tile *middle = begin + (end - begin) / 2;
        if (element + s->first < middle->within)
            end = middle;
        else
            begin = middle;
    }
    s->tile = begin;
    return nw_sampler_next(s, element);
}

/* Takes one sample from each of `count` equal ranges, at positions that change from step to step, because fixed
 * positions might coincide with a pattern in the data. The rank is 4 standard deviations above the expected one, so
 * that the threshold is too high about once in 10,000 times. */
static uint32_t guess_threshold(nw_encoding *e, int item, size_t n, size_t k)
{
    size_t count = n / 256 < SAMPLES_LEAST ? SAMPLES_LEAST : n / 256 > SAMPLES_MOST ? SAMPLES_MOST : n / 256;
    uint32_t *list = nw_select_list(e, e->block->item_tile[item]);
    nw_sampler s = nw_sampler_make(e, item);
    uint32_t mixed = (uint32_t)e->key.step * 0x9e3779b9u;
    uint64_t width = n / count;
    for (size_t i = 0; i < count; i++) {
        mixed = (mixed ^ mixed >> 15) * 0x2c1b3c6du + 0x9e3779b9u;
        list[i] = nw_sampler_next(&s, i * n / count + (size_t)(mixed * width >> 32));
    }
    double expected = (double)count * (double)k / (double)n;
    return nw_select_kth(list, count, (size_t)(expected + 4 * sqrt(expected) + 4));
}

void nw_select_aim(nw_encoding *e, int item)
{
    size_t n = nw_select_floats(e->block, item), k = nw_codec_count(e->codec, n, e->ratio);
    uint32_t threshold = k >= n ? 1 : n < GUESSED || k > n / 20 * 3 ? NW_NOTHING : guess_threshold(e, item, n, k);
    nw_select_set_threshold(e, item, threshold);
}

void nw_select_look(nw_encoding *e, int tile)
{
    mark_tile(e, tile, nw_select_threshold(e, e->block->tiles[tile].item));
}

void nw_select_settle(nw_encoding *e, int item, nw_pool *pool)
{
    size_t n = nw_select_floats(e->block, item);
    nw_select_cut(e, item, nw_codec_count(e->codec, n, e->ratio), pool);
}
