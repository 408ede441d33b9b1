/* index.c - see index.h. */
#include "codec/index.h"

#include "codec/kernels.h"
#include "codec/packed.h"
#include "codec/select.h"

#include <string.h>

enum { GROUP = NW_INDEX_GROUP, PARAMETER_MOST = 31, WORD = 8 };

static size_t groups_of(size_t entries) { return (entries + GROUP - 1) / GROUP; }

size_t nw_index_bound(size_t n, size_t entries)
{
    size_t b = 0;
    if (entries == 0) return 0;
    while (entries << b < n) b++;
    /* More: a last byte of remainders, a last byte of unary bits, and the rest of a word that the writer stores
     * whole. */
    return groups_of(entries) + (entries * (b + 2) + 7) / 8 + 2 + WORD;
}

/* ---- writing ---- */

void nw_index_note(const nw_encoding *e, int index, const uint16_t *at)
{
    const nw_tile *tile = &e->block->tiles[index];
    uint32_t entries = e->partial[index].entries, *places = nw_select_list(e, index);
    for (uint32_t i = 0; nw_select_fits(tile, entries) && i < entries; i++) places[i] = tile->place + at[i];
}

/* Iterates over the positions of a cut's entries, tile by tile. */
typedef struct walk {
    const nw_encoding *e;
    int tile, end;
    uint32_t next;         /* position after the previous entry */
    const uint32_t *noted; /* positions from nw_index_note; NULL: they are read from the marks, into `at` */
    uint32_t place, count, done;
    uint16_t at[NW_TILE_FLOATS + NW_PLACES_MORE];
} walk;

static void start_walk(walk *w, const nw_encoding *e, int cut)
{
    w->e = e;
    w->tile = e->block->cut_tile[cut] - 1;
    w->end = e->block->cut_tile[cut + 1];
    w->next = w->count = w->done = 0;
}

static bool next_tile(walk *w)
{
    do
        if (++w->tile >= w->end) return false;
    while (w->e->partial[w->tile].entries == 0);
    const nw_tile *tile = &w->e->block->tiles[w->tile];
    w->place = tile->place;
    w->done = 0;
    w->count = w->e->partial[w->tile].entries;
    w->noted = nw_select_fits(tile, w->count) ? nw_select_list(w->e, w->tile) : NULL;
    if (!w->noted) nw_codec_kernels_best()->places(nw_select_bits(w->e, w->tile), tile->count, w->at);
    return true;
}

/* Reads the gaps of the next group; the last group may be shorter. */
static size_t next_gaps(walk *w, uint32_t gaps[GROUP])
{
    size_t filled = 0;
    while (filled < GROUP && (w->done < w->count || next_tile(w))) {
        size_t some = w->count - w->done < GROUP - filled ? w->count - w->done : GROUP - filled;
        for (size_t i = 0; i < some; i++) {
            uint32_t at = w->noted ? w->noted[w->done + i] : w->place + w->at[w->done + i];
            gaps[filled + i] = at - w->next;
            w->next = at + 1;
        }
        w->done += (uint32_t)some;
        filled += some;
    }
    return filled;
}

/* Bits of a group: entries (b + 1) + sum(gap >> b). As b grows this falls and then rises, because gap >> b at least
 * halves with each step, so that each step saves less than the previous one. So the search may stop at the first
 * rise. */
static uint64_t group_bits(const uint32_t *gaps, size_t count, int b)
{
    return count * ((uint64_t)b + 1) + nw_codec_kernels_best()->sum_shifted(gaps, count, b);
}

static int best_parameter(const uint32_t *gaps, size_t count)
{
    uint64_t sum = nw_codec_kernels_best()->sum_shifted(gaps, count, 0);
    int b = sum > count ? 63 - __builtin_clzll(sum / count) : 0;
    uint64_t bits = group_bits(gaps, count, b), other;
    while (b > 0 && (other = group_bits(gaps, count, b - 1)) <= bits) b--, bits = other;
    while (b < PARAMETER_MOST && (other = group_bits(gaps, count, b + 1)) < bits) b++, bits = other;
    return b;
}

/* Returns the end of the remainders; up to 7 bytes after it may be overwritten. */
static uint8_t *write_remainders(const uint32_t *gaps, size_t count, int b, uint8_t *out)
{
    uint64_t held = 0, mask = (1ull << b) - 1;
    int fill = 0; /* bits in `held`; fewer than 8 between two gaps */
    if (b == 0) return out;
    for (size_t i = 0; i < count; i++) {
        held |= (gaps[i] & mask) << fill;
        fill += b;
        memcpy(out, &held, WORD);
        out += fill / 8;
        held >>= fill & ~7;
        fill &= 7;
    }
    return out + (fill > 0);
}

size_t nw_index_write(const nw_encoding *e, int cut, uint8_t *out)
{
    uint32_t gaps[GROUP];
    uint64_t unary_bits = 0, at = 0;
    uint8_t *parameter = out, *remainders;
    size_t count;
    walk w;
    for (start_walk(&w, e, cut); (count = next_gaps(&w, gaps)) > 0; parameter++) {
        *parameter = (uint8_t)best_parameter(gaps, count);
        unary_bits += group_bits(gaps, count, *parameter) - count * *parameter;
    }
    remainders = parameter;
    parameter = out;
    for (start_walk(&w, e, cut); (count = next_gaps(&w, gaps)) > 0; parameter++)
        remainders = write_remainders(gaps, count, *parameter, remainders);
    size_t unary_bytes = (size_t)(unary_bits + 7) / 8;
    memset(remainders, 0, unary_bytes);
    parameter = out;
    for (start_walk(&w, e, cut); (count = next_gaps(&w, gaps)) > 0; parameter++)
        for (size_t i = 0; i < count; i++) {
            at += gaps[i] >> *parameter;
            remainders[at / 8] = (uint8_t)(remainders[at / 8] | 1u << at % 8);
            at++;
        }
    return (size_t)(remainders + unary_bytes - out);
}

/* ---- reading ---- */

/* Eight bytes from `at` on; bytes after the end count as 0. */
static inline uint64_t load_word(const uint8_t *in, size_t bytes, size_t at)
{
    uint64_t word = 0;
    memcpy(&word, in + at, at + WORD <= bytes ? WORD : bytes - at);
    return word;
}

/* A reader of the unary stream. */
typedef struct unary {
    const uint8_t *in;
    size_t bytes, next; /* next: the byte that will be loaded next */
    uint64_t held;      /* loaded bits that were not read yet */
    uint64_t base;      /* position in the stream of held's bit 0 */
} unary;

/* Finds the position of the next 1 bit; false: there is none. */
static inline bool next_one(unary *u, uint64_t *at)
{
    while (u->held == 0) {
        if (u->next >= u->bytes) return false;
        u->base = 8 * (uint64_t)u->next;
        u->held = load_word(u->in, u->bytes, u->next);
        u->next += WORD;
    }
    *at = u->base + (uint64_t)__builtin_ctzll(u->held);
    u->held &= u->held - 1;
    return true;
}

/* Reads the remainders of a group, whose bytes are known to be there. False: the bits after the last are not 0. */
static bool read_remainders(const uint8_t *in, size_t bytes, size_t count, int b, uint32_t *out)
{
    uint32_t mask = (uint32_t)((1ull << b) - 1);
    size_t at = 0;
    for (size_t i = 0; i < count; i++, at += (size_t)b)
        out[i] = b == 0 ? 0 : (uint32_t)(load_word(in, bytes, at / 8) >> at % 8) & mask;
    return at % 8 == 0 || in[at / 8] >> at % 8 == 0;
}

/* Records in scratch->starts that all tiles which begin at or before position `place` have entries from `entry` on.
 * Returns the position at which the next tile begins. */
static inline uint32_t next_start(const nw_decoding *d, int *tile, uint64_t place, uint32_t entry)
{
    const nw_block *b = d->block;
    int first = b->cut_tile[d->cut], end = b->cut_tile[d->cut + 1];
    for (; first + *tile < end && b->tiles[first + *tile].place <= place; (*tile)++) d->scratch->starts[*tile] = entry;
    return first + *tile < end ? b->tiles[first + *tile].place : UINT32_MAX;
}

/* Checks that the parameters are in range and that the bytes of all remainders are there; returns how many those
 * are. */
static nw_status check_parts(const uint8_t *in, size_t bytes, size_t entries, size_t *remainders)
{
    size_t groups = groups_of(entries);
    NW_FAIL_IF(groups > bytes, NW_E_MESSAGE, "the positions of %zu entries do not fit into %zu bytes", entries, bytes);
    *remainders = 0;
    for (size_t g = 0; g < groups; g++) {
        size_t count = g + 1 < groups ? GROUP : entries - g * GROUP;
        NW_FAIL_IF(in[g] > PARAMETER_MOST, NW_E_MESSAGE,
                   "a group of positions has the parameter %u; at most %d is valid", in[g], PARAMETER_MOST);
        *remainders += (count * in[g] + 7) / 8;
    }
    NW_FAIL_IF(*remainders > bytes - groups, NW_E_MESSAGE, "the positions of %zu entries do not fit into %zu bytes",
               entries, bytes);
    return NW_OK;
}

nw_status nw_index_read(const nw_decoding *d, const uint8_t *in, size_t bytes, size_t entries)
{
    const size_t groups = groups_of(entries), n = d->block->cut_floats[d->cut];
    size_t remainder_bytes = 0, used = groups;
    uint64_t place = 0, end = 0, one = 0; /* place: one after the previous entry; end: number of unary bits read */
    int tile = 0;
    NW_TRY(check_parts(in, bytes, entries, &remainder_bytes));
    NW_TRY(nw_scratch_reserve_places(d->scratch, entries));
    unary u = {.in = in + groups + remainder_bytes, .bytes = bytes - groups - remainder_bytes};
    uint32_t tile_ends = next_start(d, &tile, 0, 0);
    for (size_t g = 0; g < groups; g++) {
        size_t count = g + 1 < groups ? GROUP : entries - g * GROUP, here = (count * in[g] + 7) / 8;
        uint32_t *places = d->scratch->places + g * GROUP;
        NW_FAIL_IF(!read_remainders(in + used, bytes - used, count, in[g], places), NW_E_MESSAGE,
                   "the padding after the positions of a group is not 0");
        used += here;
        for (size_t i = 0; i < count; i++) {
            NW_FAIL_IF(!next_one(&u, &one), NW_E_MESSAGE, "a block of %zu entries has only %zu positions", entries,
                       g * GROUP + i);
            uint64_t above = one - end;
            NW_FAIL_IF(above > n, NW_E_MESSAGE, "a gap between positions is larger than the block of %zu floats", n);
            place += above << in[g] | places[i];
            NW_FAIL_IF(place >= n, NW_E_MESSAGE, "an entry lies outside its block of %zu floats", n);
            places[i] = (uint32_t)place;
            if (place >= tile_ends) tile_ends = next_start(d, &tile, place, (uint32_t)(g * GROUP + i));
            place++;
            end = one + 1;
        }
    }
    next_start(d, &tile, UINT64_MAX, (uint32_t)entries);
    d->scratch->starts[tile] = (uint32_t)entries;
    used += (size_t)(end + 7) / 8;
    NW_FAIL_IF(next_one(&u, &one) || bytes - used > 3, NW_E_MESSAGE,
               "a block of %zu entries has more positions than that", entries);
    return NW_OK;
}
