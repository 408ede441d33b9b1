/* schedule.c - writing a schedule; see schedule.h. Reading it is in schedule_read.c, whole runs are in recording.c. */
#include "net/schedule.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/pack.h"
#include "net/schedule_format.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER = 8192, MOST_RECORD = 1 + 3 * 10 };

typedef struct recorded_rank {
    uint8_t *buffer; /* a block's head and its bytes */
    size_t used;
    int64_t now_ns, step;
    uint64_t *sequences; /* by sender */
} recorded_rank;

struct nw_recorder {
    int file; /* -1: not open */
    int world, first, count;
    recorded_rank *ranks;
    uint8_t *memory;
    uint64_t *sequences;
    int64_t size; /* of the file, in whole blocks */
    char *path;
    char failure[512]; /* "": none */
};

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static void give_up(nw_recorder *r, const char *what)
{
    snprintf(r->failure, sizeof r->failure,
             "cannot %s %s: %s; the schedule ends here, and the run can be replayed up to its last rest", what, r->path,
             strerror(errno));
    if (ftruncate(r->file, r->size) != 0) r->size = 0; /* a torn block is noticed by readers */
    close(r->file);
    r->file = -1;
}

static void write_whole(nw_recorder *r, const uint8_t *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(r->file, data + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            give_up(r, "write");
            return;
        }
        done += (size_t)wrote;
    }
    r->size += (int64_t)bytes;
}

/* `block` has room for the head before its bytes. */
static void write_block(nw_recorder *r, uint32_t rank, uint8_t *block, size_t bytes)
{
    uint64_t hash = nw_hash64(block + NW_BLOCK_HEAD, bytes);
    put32(block, rank);
    put32(block + 4, (uint32_t)bytes);
    put32(block + 8, (uint32_t)hash);
    put32(block + 12, (uint32_t)(hash >> 32));
    write_whole(r, block, NW_BLOCK_HEAD + bytes);
}

static void flush_rank(nw_recorder *r, recorded_rank *k)
{
    if (r->file >= 0 && k->used > NW_BLOCK_HEAD)
        write_block(r, (uint32_t)(k - r->ranks + r->first), k->buffer, k->used - NW_BLOCK_HEAD);
    k->used = NW_BLOCK_HEAD;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static recorded_rank *rank_of(nw_recorder *r, int rank)
{
    return r && r->file >= 0 && rank >= r->first && rank < r->first + r->count ? &r->ranks[rank - r->first] : NULL;
}

static void begin_record(nw_recorder *r, recorded_rank *k, int kind)
{
    if (k->used + MOST_RECORD > BUFFER) flush_rank(r, k);
    k->buffer[k->used++] = (uint8_t)kind;
}

static void put_number(recorded_rank *k, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) k->buffer[k->used++] = (uint8_t)(value | 0x80);
    k->buffer[k->used++] = (uint8_t)value;
}

static void put_difference(recorded_rank *k, uint64_t now, uint64_t before)
{
    uint64_t d = now - before; /* modulo 2^64 */
    put_number(k, d << 1 ^ (d >> 63 ? UINT64_MAX : 0));
}

void nw_recorder_run(nw_recorder *r, int rank, int64_t step, uint64_t sequence)
{
    recorded_rank *k = rank_of(r, rank);
    if (!k) return;
    begin_record(r, k, NW_SCHEDULE_RUN);
    put_number(k, (uint64_t)step);
    put_number(k, sequence);
}

void nw_recorder_event(nw_recorder *r, int rank, const nw_event *event)
{
    recorded_rank *k = rank_of(r, rank);
    if (!k) return;
    begin_record(r, k, (int)event->kind);
    put_difference(k, (uint64_t)event->now_ns, (uint64_t)k->now_ns);
    k->now_ns = event->now_ns;
    if (event->kind == NW_EVENT_FINAL) put_number(k, event->first);
    if (event->kind == NW_EVENT_GO) put_number(k, (uint64_t)event->go->until);
    if (event->kind != NW_EVENT_MESSAGE) return;
    const nw_header *h = event->message->header;
    uint64_t *last = &k->sequences[h->from < r->world ? h->from : 0];
    put_number(k, h->from);
    put_difference(k, h->sequence, *last);
    *last = h->sequence;
}

void nw_recorder_begins(nw_recorder *r, int rank, nw_task_kind kind)
{
    recorded_rank *k = rank_of(r, rank);
    if (k) begin_record(r, k, kind == NW_TASK_PASS ? NW_SCHEDULE_PASS : NW_SCHEDULE_UPDATE);
}

void nw_recorder_rest(nw_recorder *r, int rank, int64_t step)
{
    recorded_rank *k = rank_of(r, rank);
    if (!k) return;
    begin_record(r, k, NW_SCHEDULE_REST);
    put_number(k, (uint64_t)step);
    k->step = step;
    flush_rank(r, k);
}

void nw_recorder_saved(nw_recorder *r, int64_t step, int64_t epoch)
{
    for (int i = 0; r && r->file >= 0 && i < r->count; i++) {
        recorded_rank *k = &r->ranks[i];
        begin_record(r, k, NW_SCHEDULE_SAVED);
        put_number(k, (uint64_t)step);
        put_number(k, (uint64_t)epoch);
        flush_rank(r, k);
    }
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_recorder_create(nw_recorder **recorder)
{
    *recorder = calloc(1, sizeof **recorder);
    NW_FAIL_IF(!*recorder, NW_E_MEMORY, "no memory for a recorder");
    (*recorder)->file = -1;
    return NW_OK;
}

static nw_status part_path(char **path, const char *run_dir, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, NW_SCHEDULE_DIR "/%" PRId64, step);
    return nw_path_join(path, run_dir, name);
}

static nw_status file_path(char **path, const char *dir, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "rank%d.log", rank);
    return nw_path_join(path, dir, name);
}

static nw_status remove_from(const char *schedule, const char *part, int rank, bool again)
{
    char *dir, *file = NULL, *config = NULL;
    NW_TRY(nw_path_join(&dir, schedule, part));
    nw_status status = file_path(&file, dir, rank);
    if (status == NW_OK) status = nw_path_join(&config, dir, NW_SCHEDULE_CONFIG);
    if (status == NW_OK && unlink(file) != 0 && errno != ENOENT)
        status = NW_FAIL(NW_E_SYSTEM, "cannot remove %s, the schedule of steps that are trained anew: %s", file,
                         strerror(errno));
    if (status == NW_OK && rank == 0) unlink(config); /* replaced anyway if it stays */
    if (status == NW_OK && !again) rmdir(dir);        /* the last rank succeeds; others may be writing to it again */
    free(config);
    free(file);
    free(dir);
    return status;
}

nw_status nw_schedule_cut(const char *run_dir, int64_t first_step, int rank)
{
    char *schedule;
    nw_names names = {0};
    NW_TRY(nw_path_join(&schedule, run_dir, NW_SCHEDULE_DIR));
    nw_status status = nw_file_is_directory(schedule) ? nw_directory_list(&names, schedule) : NW_OK;
    for (int i = 0; i < names.count && status == NW_OK; i++) {
        int64_t step;
        if (nw_schedule_part_name(names.at[i], &step) && step >= first_step)
            status = remove_from(schedule, names.at[i], rank, step == first_step);
    }
    nw_names_free(&names);
    free(schedule);
    return status;
}

static nw_status pack_header(const nw_schedule_header *h, nw_packer *p)
{
    nw_pack_room(p, NW_BLOCK_HEAD);
    nw_pack(p, (uint32_t)h->world, 4);
    nw_pack(p, (uint32_t)h->first_rank, 4);
    nw_pack(p, (uint32_t)h->ranks, 4);
    nw_pack(p, (uint64_t)h->first_step, 8);
    nw_pack(p, (uint64_t)h->first_epoch, 8);
    uint64_t factor;
    memcpy(&factor, &h->lr_factor, sizeof factor);
    nw_pack(p, h->seed, 8);
    nw_pack(p, factor, 8);
    const char *texts[] = {h->exchange, h->codec, h->isa, h->precision, h->version, h->commit, h->config_sha256};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) nw_pack_text(p, texts[i]);
    NW_FAIL_IF(p->failed, NW_E_MEMORY, "no memory for the header of a schedule");
    return NW_OK;
}

static nw_status write_start(nw_recorder *r, const nw_schedule_header *h)
{
    uint8_t magic[] = NW_SCHEDULE_MAGIC;
    magic[sizeof magic - 1] = NW_SCHEDULE_VERSION; /* in the place of the zero */
    nw_packer packer = {0};
    nw_status status = pack_header(h, &packer);
    if (status == NW_OK) write_whole(r, magic, sizeof magic);
    if (status == NW_OK && r->file >= 0) write_block(r, NW_BLOCK_OF_HEADER, packer.data, packer.size - NW_BLOCK_HEAD);
    free(packer.data);
    NW_TRY(status);
    NW_FAIL_IF(r->file < 0, NW_E_SYSTEM, "%s", r->failure);
    return NW_OK;
}

static nw_status take_memory(nw_recorder *r)
{
    size_t count = (size_t)r->count, world = (size_t)r->world;
    r->ranks = calloc(count, sizeof *r->ranks);
    r->memory = calloc(count, BUFFER);
    r->sequences = calloc(count * world, sizeof *r->sequences);
    NW_FAIL_IF(!r->ranks || !r->memory || !r->sequences, NW_E_MEMORY, "no memory to record %d ranks", r->count);
    for (size_t i = 0; i < count; i++)
        r->ranks[i] = (recorded_rank){
            .buffer = r->memory + i * BUFFER, .used = NW_BLOCK_HEAD, .sequences = r->sequences + i * world};
    return NW_OK;
}

/* What it knows of the part before. */
static void forget(nw_recorder *r)
{
    if (r->file >= 0) close(r->file);
    free(r->ranks);
    free(r->memory);
    free(r->sequences);
    free(r->path);
    *r = (nw_recorder){.file = -1};
}

static nw_status write_config(const char *dir, nw_schedule_header *h, const char *config)
{
    char *path;
    nw_sha256 hash = nw_sha256_begin();
    nw_sha256_add(&hash, config, strlen(config));
    nw_sha256_end(&hash, h->config_sha256);
    if (h->first_rank > 0) return NW_OK;
    NW_TRY(nw_path_join(&path, dir, NW_SCHEDULE_CONFIG));
    nw_status status = nw_file_replace(path, config, strlen(config));
    free(path);
    return status;
}

nw_status nw_recorder_open(nw_recorder *r, const char *run_dir, const nw_schedule_header *header, const char *config)
{
    nw_schedule_header h = *header;
    char *dir;
    NW_FAIL_IF(h.world < 1 || h.world > NW_SCHEDULE_RANKS || h.ranks < 1 || h.first_rank < 0 ||
                   h.first_rank + h.ranks > h.world,
               NW_E_ARGUMENT, "cannot record ranks %d to %d of %d", h.first_rank, h.first_rank + h.ranks - 1, h.world);
    forget(r);
    r->world = h.world;
    r->first = h.first_rank;
    r->count = h.ranks;
    NW_TRY(take_memory(r));
    for (int i = 0; i < r->count; i++) r->ranks[i].step = h.first_step;
    NW_TRY(part_path(&dir, run_dir, h.first_step));
    nw_status status = nw_directory_make(dir);
    if (status == NW_OK && config) status = write_config(dir, &h, config);
    if (status == NW_OK) status = file_path(&r->path, dir, r->first);
    free(dir);
    NW_TRY(status);
    r->file = open(r->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    NW_FAIL_IF(r->file < 0, NW_E_SYSTEM, "cannot write %s: %s; make its folder writable, or use --no-record-schedule",
               r->path, strerror(errno));
    return write_start(r, &h);
}

nw_status nw_recorder_close(nw_recorder *r, bool finished)
{
    if (!r) return NW_OK;
    for (int i = 0; r->file >= 0 && i < r->count; i++) {
        recorded_rank *k = &r->ranks[i];
        if (finished) {
            begin_record(r, k, NW_SCHEDULE_END);
            put_number(k, (uint64_t)k->step);
        }
        flush_rank(r, k);
    }
    if (r->file >= 0 && close(r->file) != 0)
        snprintf(r->failure, sizeof r->failure, "cannot write %s: %s", r->path, strerror(errno));
    r->file = -1;
    NW_FAIL_IF(r->failure[0], NW_E_SYSTEM, "%s", r->failure);
    return NW_OK;
}

void nw_recorder_free(nw_recorder *r)
{
    if (!r) return;
    forget(r);
    free(r);
}
