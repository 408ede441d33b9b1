/*
 * schedule_read.c - one file of a schedule, from bytes that nobody vouches for; see schedule.h.
 *
 * The whole file is checked block by block when it is parsed, so that a cursor meets whole blocks only; what is inside
 * of them is checked record by record as it is read. A last block that is incomplete, or whose hash is wrong, is what a
 * kill or a power cut leaves: the file counts up to it. A wrong block with others behind it is damage.
 */
#include "net/schedule.h"

#include "base/hash.h"
#include "base/pack.h"
#include "net/schedule_format.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the file ---------------------------------------------------------------------------------------------------- */

typedef struct block_head {
    uint32_t rank, bytes;
    uint64_t hash;
} block_head;

/* Of a block whose head is inside of the file. */
static block_head head_at(const nw_schedule_file *f, size_t at)
{
    nw_unpacker u = {.data = f->data + at, .size = NW_BLOCK_HEAD};
    block_head h = {.rank = (uint32_t)nw_unpack(&u, 4)};
    h.bytes = (uint32_t)nw_unpack(&u, 4);
    h.hash = nw_unpack(&u, 8);
    return h;
}

static bool is_text(const char *text)
{
    for (; *text; text++)
        if (!isprint((unsigned char)*text)) return false;
    return true;
}

static nw_status read_header(nw_schedule_file *f, size_t at, size_t bytes)
{
    nw_schedule_header *h = &f->header;
    nw_unpacker u = {.data = f->data + at, .size = bytes};
    uint64_t world = nw_unpack(&u, 4), first = nw_unpack(&u, 4), ranks = nw_unpack(&u, 4);
    uint64_t step = nw_unpack(&u, 8), epoch = nw_unpack(&u, 8);
    h->seed = nw_unpack(&u, 8);
    uint64_t factor = nw_unpack(&u, 8);
    memcpy(&h->lr_factor, &factor, sizeof factor);
    bool whole = true;
    struct {
        char *text;
        size_t room;
    } texts[] = {
        {h->exchange, sizeof h->exchange},          {h->codec, sizeof h->codec},     {h->isa, sizeof h->isa},
        {h->precision, sizeof h->precision},        {h->version, sizeof h->version}, {h->commit, sizeof h->commit},
        {h->config_sha256, sizeof h->config_sha256}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        nw_unpack_text(&u, texts[i].text, texts[i].room);
        whole = whole && is_text(texts[i].text);
    }
    whole = whole && isfinite(h->lr_factor) && h->lr_factor != 0;
    NW_FAIL_IF(u.failed || !whole || nw_unpack_left(&u) > 0, NW_E_FILE,
               "%s: the header at byte %zu is not that of a schedule", f->name, at);
    NW_FAIL_IF(world < 1 || world > NW_SCHEDULE_RANKS || ranks < 1 || ranks > world || first > world - ranks ||
                   step > INT64_MAX || epoch > INT64_MAX,
               NW_E_FILE,
               "%s: the header at byte %zu speaks of %" PRIu64 " ranks from %" PRIu64 " on in a world of %" PRIu64,
               f->name, at, ranks, first, world);
    h->world = (int)world;
    h->first_rank = (int)first;
    h->ranks = (int)ranks;
    h->first_step = (int64_t)step;
    h->first_epoch = (int64_t)epoch;
    return NW_OK;
}

/* Whether the block at `at` is whole; *next is where the one behind it begins. */
static nw_status check_block(const nw_schedule_file *f, size_t at, bool *whole, size_t *next)
{
    size_t left = f->size - at;
    *whole = false;
    if (left < NW_BLOCK_HEAD) return NW_OK;
    block_head h = head_at(f, at);
    if (h.bytes > left - NW_BLOCK_HEAD) {
        NW_FAIL_IF(h.bytes > NW_BLOCK_MOST, NW_E_FILE, "%s is damaged: the block at byte %zu claims %" PRIu32 " bytes",
                   f->name, at, h.bytes);
        return NW_OK;
    }
    *next = at + NW_BLOCK_HEAD + h.bytes;
    *whole = nw_hash64(f->data + at + NW_BLOCK_HEAD, h.bytes) == h.hash;
    NW_FAIL_IF(!*whole && *next < f->size, NW_E_FILE,
               "%s is damaged: the block at byte %zu is not what was written; restore it from a copy", f->name, at);
    return NW_OK;
}

static nw_status check_blocks(nw_schedule_file *f)
{
    size_t at = sizeof NW_SCHEDULE_MAGIC, next;
    bool whole;
    for (bool first = true; at < f->size; at = next, first = false) {
        NW_TRY(check_block(f, at, &whole, &next));
        f->torn = !whole;
        if (!whole) break;
        block_head h = head_at(f, at);
        NW_FAIL_IF(first != (h.rank == NW_BLOCK_OF_HEADER), NW_E_FILE, "%s: the block at byte %zu is %s", f->name, at,
                   first ? "no header" : "a second header");
        if (first) NW_TRY(read_header(f, at + NW_BLOCK_HEAD, h.bytes));
        const nw_schedule_header *s = &f->header;
        NW_FAIL_IF(!first && (h.rank < (uint32_t)s->first_rank || h.rank >= (uint32_t)(s->first_rank + s->ranks)),
                   NW_E_FILE, "%s: the block at byte %zu is of rank %" PRIu32 ", which the header does not name",
                   f->name, at, h.rank);
    }
    f->size = at;
    return NW_OK;
}

static nw_status parse(nw_schedule_file *f, const char *name)
{
    static const char magic[] = NW_SCHEDULE_MAGIC;
    f->name = strdup(name);
    NW_FAIL_IF(!f->name, NW_E_MEMORY, "no memory for a name");
    NW_FAIL_IF(f->size < sizeof magic || memcmp(f->data, magic, sizeof magic - 1) != 0, NW_E_FILE,
               "%s is no schedule: it does not begin with %s", name, magic);
    int version = f->data[sizeof magic - 1];
    NW_FAIL_IF(version != NW_SCHEDULE_VERSION, NW_E_FILE,
               "%s is a schedule of version %d, and this build replays version %d; use the build that recorded it",
               name, version, NW_SCHEDULE_VERSION);
    NW_TRY(check_blocks(f));
    NW_FAIL_IF(f->header.world == 0, NW_E_FILE, "%s has no header: its run was killed before it began", name);
    return NW_OK;
}

nw_status nw_schedule_file_parse(nw_schedule_file *f, const char *name, uint8_t *data, size_t size)
{
    *f = (nw_schedule_file){.data = data, .size = size};
    nw_status status = parse(f, name);
    if (status != NW_OK) nw_schedule_file_free(f);
    return status;
}

void nw_schedule_file_free(nw_schedule_file *f)
{
    free(f->name);
    free(f->data);
    *f = (nw_schedule_file){0};
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

nw_status nw_schedule_begin(nw_schedule_cursor *c, const nw_schedule_file *file, int rank)
{
    *c = (nw_schedule_cursor){.file = file, .rank = rank, .block = sizeof NW_SCHEDULE_MAGIC};
    c->sequences = calloc((size_t)file->header.world, sizeof *c->sequences);
    NW_FAIL_IF(!c->sequences, NW_E_MEMORY, "no memory to read a schedule of %d ranks", file->header.world);
    return NW_OK;
}

void nw_schedule_end(nw_schedule_cursor *c)
{
    free(c->sequences);
    c->sequences = NULL;
}

/* Goes to the next block of this rank that holds something. */
static bool find_block(nw_schedule_cursor *c)
{
    const nw_schedule_file *f = c->file;
    while (c->at == c->end && c->block < f->size) {
        block_head h = head_at(f, c->block);
        size_t begin = c->block + NW_BLOCK_HEAD;
        c->block = begin + h.bytes;
        if (h.rank != (uint32_t)c->rank) continue;
        c->at = begin;
        c->end = c->block;
    }
    return c->at < c->end;
}

/* Numbers of one record; after a failure zeros. */
typedef struct numbers {
    nw_schedule_cursor *cursor;
    bool failed;
} numbers;

static uint64_t number(numbers *n)
{
    nw_schedule_cursor *c = n->cursor;
    uint64_t value = 0;
    for (int shift = 0; !n->failed; shift += 7) {
        if (c->at == c->end) break;
        uint8_t byte = c->file->data[c->at++];
        uint64_t part = byte & 0x7f;
        if (shift == 63 && part > 1) break;
        value |= part << shift;
        if (!(byte & 0x80)) return value;
        if (shift == 63) break;
    }
    n->failed = true;
    return 0;
}

static uint64_t difference(numbers *n, uint64_t before)
{
    uint64_t z = number(n);
    return before + (z >> 1 ^ (z & 1 ? UINT64_MAX : 0));
}

static int64_t count(numbers *n)
{
    uint64_t value = number(n);
    if (value > INT64_MAX) n->failed = true;
    return n->failed ? 0 : (int64_t)value;
}

static void read_message(nw_schedule_cursor *c, numbers *n, nw_schedule_record *r)
{
    uint64_t from = number(n);
    if (from >= (uint64_t)c->file->header.world) n->failed = true;
    if (n->failed) return;
    r->from = (int)from;
    r->sequence = c->sequences[from] = difference(n, c->sequences[from]);
}

static void read_numbers(nw_schedule_cursor *c, numbers *n, nw_schedule_record *r)
{
    if (r->kind < NW_EVENT_KINDS) c->now_ns = r->now_ns = (int64_t)difference(n, (uint64_t)c->now_ns);
    if (r->kind == NW_EVENT_FINAL || r->kind == NW_EVENT_GO) r->first = number(n);
    if (r->kind == NW_EVENT_MESSAGE) read_message(c, n, r);
    if (r->kind == NW_SCHEDULE_RUN || r->kind >= NW_SCHEDULE_REST) r->step = count(n);
    if (r->kind == NW_SCHEDULE_SAVED) r->epoch = count(n);
    if (r->kind == NW_SCHEDULE_RUN) r->sequence = number(n);
}

nw_status nw_schedule_next(nw_schedule_cursor *c, nw_schedule_record *r)
{
    *r = (nw_schedule_record){0};
    if (c->ended || !find_block(c)) {
        c->ended = true;
        return NW_OK;
    }
    size_t at = c->at;
    r->kind = c->file->data[c->at++];
    c->number++;
    numbers n = {.cursor = c, .failed = r->kind >= NW_SCHEDULE_KINDS};
    if (!n.failed) read_numbers(c, &n, r);
    NW_FAIL_IF(n.failed, NW_E_FILE, "%s: record %" PRId64 " of rank %d, at byte %zu, makes no sense", c->file->name,
               c->number, c->rank, at);
    return NW_OK;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

void nw_schedule_text(const nw_schedule_record *r, char *text, size_t size)
{
    static const char *const names[NW_SCHEDULE_KINDS] = {"go",  "stop", "message", "timer", "final", "out", "done",
                                                         "run", "pass", "update",  "rest",  "saved", "end"};
    const char *name = names[r->kind];
    if (r->kind == NW_EVENT_MESSAGE)
        snprintf(text, size, "message %" PRIu64 " from rank %d at %" PRId64 " ns", r->sequence, r->from, r->now_ns);
    else if (r->kind == NW_EVENT_FINAL)
        snprintf(text, size, "final from %" PRIu64 " on at %" PRId64 " ns", r->first, r->now_ns);
    else if (r->kind == NW_EVENT_GO)
        snprintf(text, size, "go until %" PRIu64 " at %" PRId64 " ns", r->first, r->now_ns);
    else if (r->kind < NW_EVENT_KINDS)
        snprintf(text, size, "%s at %" PRId64 " ns", name, r->now_ns);
    else if (r->kind == NW_SCHEDULE_RUN)
        snprintf(text, size, "run at step %" PRId64 ", %" PRIu64 " messages made", r->step, r->sequence);
    else if (r->kind == NW_SCHEDULE_SAVED)
        snprintf(text, size, "saved step %" PRId64 ", epoch %" PRId64, r->step, r->epoch);
    else if (r->kind >= NW_SCHEDULE_REST)
        snprintf(text, size, "%s at step %" PRId64, name, r->step);
    else
        snprintf(text, size, "%s", name);
}
