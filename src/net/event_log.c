/* event_log.c - writing an event log; see event_log.h. Reading it is in event_log_read.c, whole runs are in
 * recording.c. */
#include "net/event_log.h"

#include "base/append.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/number.h"
#include "base/text.h"
#include "net/event_log_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if NW_HAVE_ZLIB
#include <zlib.h>
#endif

struct nw_recorder {
    nw_append log; /* closed: everything is ignored */
    int first, count;
    int64_t step; /* of the last quiescent point */
    size_t used;
    nw_log_entry entries[NW_BLOCK_ENTRIES];
    struct {
        nw_block_head head;
        uint8_t bytes[NW_BLOCK_BYTES];
    } block;
    char failure[1024]; /* "": none */
#if NW_HAVE_ZLIB
    z_stream packer;
#endif
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* As few bytes as can be had quickly; as it is where that are not fewer. */
static size_t pack(nw_recorder *r, const void *data, size_t bytes)
{
#if NW_HAVE_ZLIB
    z_stream *z = &r->packer;
    deflateReset(z);
    z->next_in = (Bytef *)data;
    z->avail_in = (uInt)bytes;
    z->next_out = r->block.bytes;
    z->avail_out = (uInt)bytes - 1;
    if (deflate(z, Z_FINISH) == Z_STREAM_END) return z->total_out;
#endif
    memcpy(r->block.bytes, data, bytes);
    return bytes;
}

static void keep_failure(nw_recorder *r, nw_status status)
{
    if (status == NW_OK) return;
    snprintf(
        r->failure, sizeof r->failure,
        "%s; the event log ends here, and the run can be replayed up to the last point where all ranks were quiescent",
        nw_error_message());
    nw_append_close(&r->log);
}

static void write_block(nw_recorder *r, const void *data, size_t bytes)
{
    size_t packed = pack(r, data, bytes);
    r->block.head = (nw_block_head){(uint32_t)packed, (uint32_t)bytes, nw_hash64(r->block.bytes, packed)};
    keep_failure(r, nw_append_write(&r->log, &r->block, sizeof r->block.head + packed));
}

static void flush(nw_recorder *r)
{
    if (r->log.file >= 0 && r->used > 0) write_block(r, r->entries, r->used * sizeof r->entries[0]);
    r->used = 0;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static void put(nw_recorder *r, int rank, nw_log_entry entry)
{
    if (!r || r->log.file < 0 || rank < r->first || rank >= r->first + r->count) return;
    if (r->used == NW_BLOCK_ENTRIES) flush(r);
    entry.rank = (uint32_t)rank;
    r->entries[r->used++] = entry;
}

void nw_recorder_run(nw_recorder *r, int rank, int64_t step, uint64_t sequence)
{
    put(r, rank, (nw_log_entry){.kind = NW_LOG_RUN, .at = step, .number = sequence});
}

void nw_recorder_event(nw_recorder *r, int rank, const nw_event *event)
{
    nw_log_entry e = {.kind = (uint8_t)event->kind, .at = event->now_ns};
    if (event->kind == NW_EVENT_FINAL) e.number = event->first;
    if (event->kind == NW_EVENT_GO) e.number = (uint64_t)event->go->until;
    if (event->kind == NW_EVENT_MESSAGE) {
        e.from = event->message->header->from;
        e.number = event->message->header->sequence;
    }
    put(r, rank, e);
}

void nw_recorder_begins(nw_recorder *r, int rank, nw_task_kind kind)
{
    put(r, rank, (nw_log_entry){.kind = kind == NW_TASK_PASS ? NW_LOG_PASS : NW_LOG_UPDATE});
}

void nw_recorder_quiescent(nw_recorder *r, int rank, int64_t step)
{
    put(r, rank, (nw_log_entry){.kind = NW_LOG_QUIESCENT, .at = step});
    if (!r) return;
    r->step = step;
    flush(r);
}

static void put_for_all(nw_recorder *r, nw_log_kind kind, int64_t step, int64_t epoch)
{
    nw_log_entry e = {.kind = (uint8_t)kind, .at = step, .number = (uint64_t)epoch};
    for (int i = 0; r && i < r->count; i++) put(r, r->first + i, e);
    if (r) flush(r);
}

void nw_recorder_saved(nw_recorder *r, int64_t step, int64_t epoch) { put_for_all(r, NW_LOG_SAVED, step, epoch); }

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_recorder_create(nw_recorder **recorder)
{
    NW_NEW(*recorder, 1, "a recorder");
    (*recorder)->log.file = -1;
    return NW_OK;
}

static nw_status remove_from(const char *logs, const char *part, int rank, bool again)
{
    NW_AUTOFREE char *dir = NULL, *file = NULL, *config = NULL;
    NW_TRY(nw_path_join(&dir, logs, part));
    NW_TRY(nw_text_print(&file, "%s/rank%d.log", dir, rank));
    NW_TRY(nw_path_join(&config, dir, NW_LOG_CONFIG));
    NW_FAIL_IF(unlink(file) != 0 && errno != ENOENT, NW_E_SYSTEM,
               "cannot remove %s, the event log of steps that are trained anew: %s", file, strerror(errno));
    if (rank == 0) unlink(config); /* replaced anyway if it stays */
    if (!again) rmdir(dir);        /* the last rank succeeds; others may be writing to it again */
    return NW_OK;
}

nw_status nw_log_cut(const char *run_dir, int64_t first_step, int rank)
{
    NW_AUTOFREE char *logs = NULL;
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_TRY(nw_path_join(&logs, run_dir, NW_LOG_DIR));
    if (nw_file_is_directory(logs)) NW_TRY(nw_directory_list(&names, logs));
    for (int i = 0; i < names.count; i++) {
        int64_t step;
        if (nw_number_of_name(names.at[i], &step) && step >= first_step)
            NW_TRY(remove_from(logs, names.at[i], rank, step == first_step));
    }
    return NW_OK;
}

static nw_status write_start(nw_recorder *r, const nw_log_header *h)
{
    uint8_t magic[] = NW_LOG_MAGIC;
    magic[sizeof magic - 1] = NW_LOG_VERSION; /* in the place of the zero */
    keep_failure(r, nw_append_write(&r->log, magic, sizeof magic));
    if (r->log.file >= 0) write_block(r, h, sizeof *h);
    NW_FAIL_IF(r->failure[0], NW_E_SYSTEM, "%s", r->failure);
    return NW_OK;
}

/* What it knows of the part before. */
static void forget(nw_recorder *r)
{
    nw_append_close(&r->log);
#if NW_HAVE_ZLIB
    deflateEnd(&r->packer);
    memset(&r->packer, 0, sizeof r->packer);
#endif
    r->used = 0;
    r->failure[0] = 0;
}

static nw_status write_config(const char *dir, nw_log_header *h, const char *config)
{
    NW_AUTOFREE char *path = NULL;
    nw_sha256_of(config, strlen(config), h->config_sha256);
    if (h->first_rank > 0) return NW_OK;
    NW_TRY(nw_path_join(&path, dir, NW_LOG_CONFIG));
    return nw_file_replace(path, config, strlen(config));
}

nw_status nw_recorder_open(nw_recorder *r, const char *run_dir, const nw_log_header *header, const char *config)
{
    nw_log_header h = *header;
    NW_AUTOFREE char *dir = NULL, *path = NULL;
    NW_FAIL_IF(h.world < 1 || h.world > NW_LOG_RANKS || h.ranks < 1 || h.first_rank < 0 ||
                   h.first_rank + h.ranks > h.world,
               NW_E_ARGUMENT, "cannot record ranks %d to %d of %d", h.first_rank, h.first_rank + h.ranks - 1, h.world);
    forget(r);
    r->first = h.first_rank;
    r->count = h.ranks;
    r->step = h.first_step;
#if NW_HAVE_ZLIB
    NW_FAIL_IF(deflateInit(&r->packer, Z_BEST_SPEED) != Z_OK, NW_E_MEMORY, "no memory to pack an event log");
#endif
    NW_TRY(nw_text_print(&dir, "%s/" NW_LOG_DIR "/%" PRId64, run_dir, h.first_step));
    NW_TRY(nw_text_print(&path, "%s/rank%d.log", dir, r->first));
    NW_TRY(nw_directory_make(dir));
    if (config) NW_TRY(write_config(dir, &h, config));
    nw_status status = nw_append_open(&r->log, path, NW_APPEND_REPLACE);
    NW_FAIL_IF(status != NW_OK, status, "%s, or use --no-record-events", nw_error_message());
    return write_start(r, &h);
}

nw_status nw_recorder_close(nw_recorder *r, bool finished)
{
    if (!r) return NW_OK;
    if (finished) put_for_all(r, NW_LOG_END, r->step, 0);
    flush(r);
    keep_failure(r, nw_append_close(&r->log));
    NW_FAIL_IF(r->failure[0], NW_E_SYSTEM, "%s", r->failure);
    return NW_OK;
}

void nw_recorder_free(nw_recorder *r)
{
    if (!r) return;
    forget(r);
    free(r);
}
