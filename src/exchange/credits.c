/* credits.c - see credits.h. */
#include "exchange/credits.h"

#include <stdlib.h>
#include <string.h>

static int words_of(const nw_credits *c) { return (c->holders + 63) / 64; }
static uint64_t *ready_at(const nw_credits *c, int count) { return c->ready + (size_t)count * (size_t)words_of(c); }

/* Sets a holder's number of credits. */
static void set_count(nw_credits *c, int holder, int count)
{
    uint64_t bit = (uint64_t)1 << (holder % 64);
    int before = c->count[holder];
    if (before < c->most) ready_at(c, before)[holder / 64] &= ~bit;
    if (count < c->most && c->open[holder]) ready_at(c, count)[holder / 64] |= bit;
    c->out += count - before;
    c->count[holder] = count;
}

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* The number of credits that are sorted before one of that version and holder. */
static int place_of(const nw_credits *c, int64_t version, int holder)
{
    int low = 0, high = c->sorted_count;
    while (low < high) {
        int middle = (low + high) / 2;
        const nw_credit *at = &c->sorted[middle];
        if (at->version < version || (at->version == version && at->holder < holder))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(nw_credits *c, int holder, int64_t version)
{
    int at = place_of(c, version, holder + 1); /* after the holder's others of this version */
    memmove(c->sorted + at + 1, c->sorted + at, (size_t)(c->sorted_count - at) * sizeof *c->sorted);
    c->sorted[at] = (nw_credit){version, holder};
    c->sorted_count++;
}

static void take_out(nw_credits *c, int holder, int64_t version)
{
    int at = place_of(c, version, holder);
    c->sorted_count--;
    memmove(c->sorted + at, c->sorted + at + 1, (size_t)(c->sorted_count - at) * sizeof *c->sorted);
}

int nw_credits_usable(const nw_credits *c, int64_t version, int64_t bound)
{
    int i = 0;
    while (i < c->sorted_count && bound - (version + i - c->sorted[i].version) >= 1) i++;
    return i + 1; /* that one, too: all before it have slack */
}

int nw_credits_place(const nw_credits *c, int holder) { return place_of(c, c->given[holder * c->most], holder); }

int nw_credits_since(const nw_credits *c, int64_t version) { return place_of(c, version + 1, -1); }

/* ---- giving and using -------------------------------------------------------------------------------------------- */

void nw_credits_give(nw_credits *c, int holder, int64_t version)
{
    c->given[holder * c->most + c->count[holder]] = version;
    set_count(c, holder, c->count[holder] + 1);
    insert(c, holder, version);
}

void nw_credits_use(nw_credits *c, int holder)
{
    int64_t *given = c->given + holder * c->most;
    if (c->open[holder]) take_out(c, holder, given[0]);
    set_count(c, holder, c->count[holder] - 1);
    memmove(given, given + 1, (size_t)c->count[holder] * sizeof *given);
}

void nw_credits_close(nw_credits *c, int holder, int keeps)
{
    for (int i = 0; c->open[holder] && i < c->count[holder]; i++) take_out(c, holder, c->given[holder * c->most + i]);
    c->open[holder] = false;
    set_count(c, holder, keeps);
}

void nw_credits_open(nw_credits *c, int holder)
{
    nw_credits_close(c, holder, 0);
    c->open[holder] = true;
    set_count(c, holder, 0);
}

int nw_credits_next(const nw_credits *c, int first, int count)
{
    const uint64_t *ready = ready_at(c, count);
    int words = words_of(c);
    for (int i = 0; i <= words; i++) { /* the first word is read twice: first its upper bits, at the end all */
        int word = (first / 64 + i) % words;
        uint64_t bits = ready[word];
        if (i == 0) bits &= ~(uint64_t)0 << (first % 64);
        if (bits) return word * 64 + __builtin_ctzll(bits);
    }
    return -1;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_credits_make(nw_credits *c, int holders, int most)
{
    *c = (nw_credits){.holders = holders, .most = most};
    size_t all = (size_t)holders * (size_t)most;
    c->count = calloc((size_t)holders, sizeof *c->count);
    c->open = calloc((size_t)holders, sizeof *c->open);
    c->given = calloc(all, sizeof *c->given);
    c->sorted = calloc(all, sizeof *c->sorted);
    c->ready = calloc((size_t)words_of(c) * (size_t)most, sizeof *c->ready);
    bool made = c->count && c->open && c->given && c->sorted && c->ready;
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for the credits of %d workers", holders);
    for (int i = 0; i < holders; i++) nw_credits_open(c, i);
    return NW_OK;
}

void nw_credits_free(nw_credits *c)
{
    free(c->count);
    free(c->open);
    free(c->given);
    free(c->sorted);
    free(c->ready);
    *c = (nw_credits){0};
}
