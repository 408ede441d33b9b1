/*
 * event_log_read.c - one file of an event log, from bytes that nobody vouches for; see event_log.h.
 *
 * The whole file is unpacked block by block when it is parsed; its entries are checked one by one as they are read.
 * A last block that is incomplete, or whose hash is wrong, is what a kill or a power cut leaves: the file counts up to
 * it. A wrong block with others behind it is damage.
 */
#include "replay/recording.h"

#include "base/hash.h"
#include "base/text.h"
#include "net/event_log_format.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#if NW_HAVE_ZLIB
#include <zlib.h>
#endif

/* ---- the file ---------------------------------------------------------------------------------------------------- */

static bool is_text(const char *text, size_t room)
{
    size_t length = strnlen(text, room);
    for (size_t i = 0; i < length; i++)
        if (!isprint((unsigned char)text[i])) return false;
    return length < room;
}

static nw_status check_header(const nw_log_file *f)
{
    const nw_log_header *h = &f->header;
    bool texts = is_text(h->exchange, sizeof h->exchange) && is_text(h->codec, sizeof h->codec) &&
                 is_text(h->isa, sizeof h->isa) && is_text(h->precision, sizeof h->precision) &&
                 is_text(h->version, sizeof h->version) && is_text(h->commit, sizeof h->commit) &&
                 is_text(h->config_sha256, sizeof h->config_sha256);
    NW_FAIL_IF(!texts || !isfinite(h->lr_factor) || h->lr_factor == 0 || h->first_step < 0 || h->first_epoch < 0,
               NW_E_FILE, "%s: its header is not that of an event log", f->name);
    NW_FAIL_IF(h->world < 1 || h->world > NW_LOG_RANKS || h->ranks < 1 || h->ranks > h->world || h->first_rank < 0 ||
                   h->first_rank > h->world - h->ranks,
               NW_E_FILE, "%s: its header speaks of %d ranks from %d on in a world of %d", f->name, h->ranks,
               h->first_rank, h->world);
    return NW_OK;
}

static nw_status unpack(const nw_log_file *f, const uint8_t *packed, const nw_block_head *h, void *to)
{
    if (h->packed == h->bytes) {
        memcpy(to, packed, h->bytes);
        return NW_OK;
    }
#if NW_HAVE_ZLIB
    uLongf bytes = h->bytes;
    NW_FAIL_IF(uncompress(to, &bytes, packed, h->packed) != Z_OK || bytes != h->bytes, NW_E_FILE,
               "%s is damaged: a block does not unpack to its %" PRIu32 " bytes", f->name, h->bytes);
    return NW_OK;
#else
    return NW_FAIL(NW_E_UNSUPPORTED, "%s is packed, and this build has no zlib; install zlib1g-dev and build again",
                   f->name);
#endif
}

/* The entries of a block behind those that there are. */
static nw_status add_entries(nw_log_file *f, const uint8_t *packed, const nw_block_head *h, size_t at)
{
    nw_log_entry entries[NW_BLOCK_ENTRIES];
    NW_FAIL_IF(h->bytes > sizeof entries || h->bytes % sizeof entries[0], NW_E_FILE,
               "%s: the block at byte %zu is not a list of records", f->name, at);
    NW_TRY(unpack(f, packed, h, entries));
    for (size_t i = 0; i < h->bytes / sizeof entries[0]; i++) {
        NW_FAIL_IF(!nw_grow(&f->entries, f->count, sizeof *f->entries), NW_E_MEMORY, "no memory for the records of %s",
                   f->name);
        f->entries[f->count++] = entries[i];
    }
    return NW_OK;
}

/* Reads the block at *at and goes behind it; *torn where it is not whole. */
static nw_status read_block(nw_log_file *f, const uint8_t *data, size_t size, size_t *at, bool *torn)
{
    nw_block_head h;
    size_t begin = *at, left = size - begin;
    *torn = left < sizeof h;
    if (*torn) return NW_OK;
    memcpy(&h, data + begin, sizeof h);
    left -= sizeof h;
    NW_FAIL_IF(h.packed > NW_BLOCK_BYTES || h.bytes > NW_BLOCK_BYTES, NW_E_FILE,
               "%s is damaged: the block at byte %zu claims %" PRIu32 " bytes", f->name, begin, h.packed);
    const uint8_t *packed = data + begin + sizeof h;
    *torn = h.packed > left || nw_hash64(packed, h.packed) != h.hash;
    NW_FAIL_IF(*torn && h.packed < left, NW_E_FILE,
               "%s is damaged: the block at byte %zu is not what was written; restore it from a copy", f->name, begin);
    if (*torn) return NW_OK;
    *at = begin + sizeof h + h.packed;
    if (f->header.world > 0) return add_entries(f, packed, &h, begin);
    NW_FAIL_IF(h.bytes != sizeof f->header, NW_E_FILE, "%s: the block at byte %zu is not a header", f->name, begin);
    NW_TRY(unpack(f, packed, &h, &f->header));
    return check_header(f);
}

static nw_status parse(nw_log_file *f, const uint8_t *data, size_t size)
{
    static const char magic[] = NW_LOG_MAGIC;
    NW_FAIL_IF(size < sizeof magic || memcmp(data, magic, sizeof magic - 1) != 0, NW_E_FILE,
               "%s is not an event log: it does not begin with %s", f->name, magic);
    int version = data[sizeof magic - 1];
    NW_FAIL_IF(version != NW_LOG_VERSION, NW_E_FILE,
               "%s is an event log of version %d, and this build replays version %d; use the build that recorded it",
               f->name, version, NW_LOG_VERSION);
    for (size_t at = sizeof magic; at < size && !f->torn;) NW_TRY(read_block(f, data, size, &at, &f->torn));
    NW_FAIL_IF(f->header.world == 0, NW_E_FILE, "%s has no header: its run was killed before it began", f->name);
    return NW_OK;
}

nw_status nw_log_file_parse(nw_log_file *f, const char *name, const void *data, size_t size)
{
    *f = (nw_log_file){0};
    NW_TRY_OR(nw_text_copy(&f->name, name), nw_log_file_free(f));
    NW_TRY_OR(parse(f, data, size), nw_log_file_free(f));
    return NW_OK;
}

void nw_log_file_free(nw_log_file *f)
{
    free(f->name);
    free(f->entries);
    *f = (nw_log_file){0};
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

void nw_log_begin(nw_log_cursor *c, const nw_log_file *file, int rank)
{
    *c = (nw_log_cursor){.file = file, .rank = rank};
}

nw_status nw_log_next(nw_log_cursor *c, nw_log_record *r)
{
    const nw_log_file *f = c->file;
    *r = (nw_log_record){0};
    while (c->at < f->count && f->entries[c->at].rank != (uint32_t)c->rank) c->at++;
    c->ended = c->at == f->count;
    if (c->ended) return NW_OK;
    const nw_log_entry *e = &f->entries[c->at++];
    bool event = e->kind < NW_EVENT_KINDS;
    c->number++;
    NW_FAIL_IF(e->kind >= NW_LOG_KINDS || e->from >= f->header.world || (!event && e->at < 0) ||
                   (e->kind == NW_LOG_SAVED && e->number > INT64_MAX),
               NW_E_FILE, "%s: record %" PRId64 " of rank %d makes no sense", f->name, c->number, c->rank);
    r->kind = e->kind;
    r->from = e->from;
    if (event)
        c->now_ns = r->now_ns = e->at;
    else
        r->step = e->at;
    if (e->kind == NW_EVENT_FINAL || e->kind == NW_EVENT_GO) r->first = e->number;
    if (e->kind == NW_EVENT_MESSAGE || e->kind == NW_LOG_RUN) r->sequence = e->number;
    if (e->kind == NW_LOG_SAVED) r->epoch = (int64_t)e->number;
    return NW_OK;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

void nw_log_text(const nw_log_record *r, char *text, size_t size)
{
    static const char *const names[NW_LOG_KINDS] = {"go",  "stop", "message", "timer",     "final", "out", "done",
                                                    "run", "pass", "update",  "quiescent", "saved", "end"};
    const char *name = names[r->kind];
    if (r->kind == NW_EVENT_MESSAGE)
        snprintf(text, size, "message %" PRIu64 " from rank %d at %" PRId64 " ns", r->sequence, r->from, r->now_ns);
    else if (r->kind == NW_EVENT_FINAL)
        snprintf(text, size, "final from %" PRIu64 " on at %" PRId64 " ns", r->first, r->now_ns);
    else if (r->kind == NW_EVENT_GO)
        snprintf(text, size, "go until %" PRIu64 " at %" PRId64 " ns", r->first, r->now_ns);
    else if (r->kind < NW_EVENT_KINDS)
        snprintf(text, size, "%s at %" PRId64 " ns", name, r->now_ns);
    else if (r->kind == NW_LOG_RUN)
        snprintf(text, size, "run at step %" PRId64 ", %" PRIu64 " messages made", r->step, r->sequence);
    else if (r->kind == NW_LOG_SAVED)
        snprintf(text, size, "saved step %" PRId64 ", epoch %" PRId64, r->step, r->epoch);
    else if (r->kind >= NW_LOG_QUIESCENT)
        snprintf(text, size, "%s at step %" PRId64, name, r->step);
    else
        snprintf(text, size, "%s", name);
}
