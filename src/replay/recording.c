/*
 * recording.c - the event log of a whole run: its parts, how they follow each other, and what of it is to be replayed.
 * See event_log.h.
 *
 * All ranks of a part make the same runs of the driver. Of a part that was killed, only those count that every rank has
 * finished; of one that another follows, those up to the checkpoint that the other began with.
 */
#include "replay/recording.h"

#include "base/file.h"
#include "base/number.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const size_t MOST_BYTES = (size_t)4 << 30; /* of a file */

/* ---- one part ---------------------------------------------------------------------------------------------------- */

static nw_status read_file(nw_log_part *p, int rank, nw_log_file *file)
{
    NW_AUTOFREE char *path = NULL, *data = NULL;
    size_t size;
    NW_TRY(nw_text_print(&path, "%s/rank%d.log", p->dir, rank));
    NW_FAIL_IF(!nw_file_is_regular(path), NW_E_FILE,
               "%s, the event log of rank %d, is missing; where machines share no file system, copy it from that "
               "rank's machine",
               path, rank);
    NW_TRY(nw_file_read(path, MOST_BYTES, &data, &size));
    return nw_log_file_parse(file, path, data, size);
}

static nw_status check_file(const nw_log_part *p, const nw_log_file *f, int rank)
{
    const nw_log_header *a = &p->header, *b = &f->header;
    bool same = a->world == b->world && a->first_step == b->first_step && a->first_epoch == b->first_epoch &&
                a->seed == b->seed && strcmp(a->config_sha256, b->config_sha256) == 0 &&
                strcmp(a->exchange, b->exchange) == 0 && strcmp(a->codec, b->codec) == 0;
    NW_FAIL_IF(!same, NW_E_FILE, "%s is of another run than the event log of rank 0 beside it", f->name);
    NW_FAIL_IF(strcmp(a->isa, b->isa) != 0 || strcmp(a->precision, b->precision) != 0, NW_E_UNSUPPORTED,
               "rank %d ran with %s, %s and rank 0 with %s, %s: one machine cannot replay both", rank, b->isa,
               b->precision, a->isa, a->precision);
    NW_FAIL_IF(b->first_rank != rank, NW_E_FILE, "%s begins with rank %d", f->name, b->first_rank);
    NW_FAIL_IF(b->first_step != p->first_step, NW_E_FILE, "%s begins at step %" PRId64 ", not where its folder says",
               f->name, b->first_step);
    return NW_OK;
}

static nw_status read_files(nw_log_part *p)
{
    for (int rank = 0, world = 1; rank < world;) {
        NW_FAIL_IF(!nw_grow(&p->files, (size_t)p->file_count, sizeof *p->files), NW_E_MEMORY,
                   "no memory for the event logs of %d ranks", world);
        NW_TRY(read_file(p, rank, &p->files[p->file_count]));
        rank += p->files[p->file_count++].header.ranks;
        p->header = p->files[0].header;
        world = p->header.world;
    }
    for (int i = 0, rank = 0; i < p->file_count; rank += p->files[i++].header.ranks) {
        NW_TRY(check_file(p, &p->files[i], rank));
        p->torn = p->torn || p->files[i].torn;
    }
    return NW_OK;
}

const nw_log_file *nw_log_file_of(const nw_log_part *p, int rank)
{
    int i = 0;
    while (rank >= p->files[i].header.first_rank + p->files[i].header.ranks) i++;
    return &p->files[i];
}

static nw_status add_mark(nw_log_mark **marks, int *count, nw_log_mark mark)
{
    NW_FAIL_IF(!nw_grow(marks, (size_t)*count, sizeof **marks), NW_E_MEMORY,
               "no memory for the quiescent points of an event log");
    (*marks)[(*count)++] = mark;
    return NW_OK;
}

/* Counts the quiescent points that a rank has in common with rank 0 (one that was away for a while has missed some),
 * and looks whether it ended; of rank 0, also where it was quiescent and saved. */
static nw_status scan_rank(nw_log_part *p, nw_log_cursor *c, int *points, bool *ended)
{
    nw_log_record r;
    bool together = true;
    *points = 0;
    *ended = false;
    for (;;) {
        NW_TRY(nw_log_next(c, &r));
        if (c->ended) return NW_OK;
        NW_FAIL_IF(*ended, NW_E_FILE, "%s: rank %d goes on after its end, in record %" PRId64, c->file->name, c->rank,
                   c->number);
        if (r.kind == NW_LOG_QUIESCENT) {
            NW_FAIL_IF(*points == INT32_MAX / 4, NW_E_FILE, "%s has more quiescent points than can be", c->file->name);
            together &= c->rank == 0 || (*points + 1 < p->point_count && p->points[*points + 1].step == r.step);
            *points += together;
            if (c->rank == 0) NW_TRY(add_mark(&p->points, &p->point_count, (nw_log_mark){r.step, 0, *points}));
        }
        if (r.kind == NW_LOG_SAVED && c->rank == 0)
            NW_TRY(add_mark(&p->saves, &p->save_count, (nw_log_mark){r.step, r.epoch, *points}));
        *ended = r.kind == NW_LOG_END;
    }
}

static nw_status scan(nw_log_part *p)
{
    p->ended = true;
    p->runs = INT32_MAX;
    NW_TRY(add_mark(&p->points, &p->point_count, (nw_log_mark){.step = p->first_step}));
    for (int rank = 0; rank < p->header.world; rank++) {
        nw_log_cursor c;
        int points = 0;
        bool ended = false;
        nw_log_begin(&c, nw_log_file_of(p, rank), rank);
        NW_TRY(scan_rank(p, &c, &points, &ended));
        p->ended = p->ended && ended;
        if (points < p->runs) p->runs = points;
    }
    return NW_OK;
}

static void free_part(nw_log_part *p)
{
    for (int i = 0; i < p->file_count; i++) nw_log_file_free(&p->files[i]);
    free(p->files);
    free(p->points);
    free(p->saves);
    free(p->dir);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* After how many quiescent points of a part its checkpoint of that step was saved; -1: there is none. A process that
 * was killed between the checkpoint and its record still has the point. */
static int find_save(const nw_log_part *p, int64_t step, int64_t epoch)
{
    for (int i = p->save_count - 1; i >= 0; i--)
        if (p->saves[i].step == step && p->saves[i].epoch == epoch && p->saves[i].points <= p->runs)
            return p->saves[i].points;
    return -1;
}

static nw_status join(nw_log_part *p, const nw_log_part *next)
{
    int points = find_save(p, next->first_step, next->header.first_epoch);
    for (int i = p->runs; points < 0 && i >= 0; i--)
        if (p->points[i].step == next->first_step) points = i;
    NW_FAIL_IF(points < 0, NW_E_FILE,
               "%s begins at step %" PRId64
               ", which %s does not reach: a part of the run was not recorded; replay from "
               "a checkpoint with --from",
               next->dir, next->first_step, p->dir);
    p->runs = points;
    return NW_OK;
}

static int by_step(const void *a, const void *b)
{
    const nw_log_part *p = a, *q = b;
    return (p->first_step > q->first_step) - (p->first_step < q->first_step);
}

/* Folders whose rank 0 has an event log: others were left by processes that died while they were being replaced. */
static nw_status find_parts(nw_recording *r, const char *logs, const nw_names *names)
{
    NW_NEW(r->parts, names->count + 1, "the parts of an event log");
    for (int i = 0; i < names->count; i++) {
        nw_log_part *p = &r->parts[r->count];
        NW_AUTOFREE char *first = NULL;
        if (!nw_number_of_name(names->at[i], &p->first_step)) continue;
        NW_TRY(nw_text_print(&first, "%s/%s/rank0.log", logs, names->at[i]));
        if (!nw_file_is_regular(first)) continue;
        NW_TRY(nw_path_join(&p->dir, logs, names->at[i]));
        r->count++;
    }
    qsort(r->parts, (size_t)r->count, sizeof *r->parts, by_step);
    return NW_OK;
}

static nw_status load(nw_recording *r, const char *run_dir, const char *logs)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_FAIL_IF(!nw_file_is_directory(run_dir), NW_E_FILE, "there is no run '%s'; check the path", run_dir);
    if (nw_file_is_directory(logs)) NW_TRY(nw_directory_list(&names, logs));
    NW_TRY(find_parts(r, logs, &names));
    NW_FAIL_IF(
        r->count == 0, NW_E_FILE,
        "%s has no event log: runs of one rank write none, since they need no log to repeat; others write one unless "
        "--no-record-events was given",
        run_dir);
    for (int i = 0; i < r->count; i++) {
        NW_TRY(read_files(&r->parts[i]));
        NW_TRY(scan(&r->parts[i]));
    }
    for (int i = 0; i + 1 < r->count; i++) NW_TRY(join(&r->parts[i], &r->parts[i + 1]));
    nw_log_part *last = &r->parts[r->count - 1];
    if (r->count > 1 && last->runs == 0) free_part(&r->parts[--r->count]);
    return NW_OK;
}

nw_status nw_recording_load(nw_recording *r, const char *run_dir)
{
    NW_AUTOFREE char *logs = NULL;
    *r = (nw_recording){0};
    NW_TRY(nw_path_join(&logs, run_dir, NW_LOG_DIR));
    if (!nw_file_is_directory(logs)) {
        free(logs);
        logs = NULL;
        NW_TRY(nw_path_join(&logs, run_dir, NW_LOG_DIR_BEFORE));
    }
    NW_TRY_OR(load(r, run_dir, logs), nw_recording_free(r));
    return NW_OK;
}

void nw_recording_free(nw_recording *r)
{
    for (int i = 0; i < r->count; i++) free_part(&r->parts[i]);
    free(r->parts);
    *r = (nw_recording){0};
}

nw_status nw_recording_limit(nw_recording *r, int64_t step)
{
    while (r->count > 1 && r->parts[r->count - 1].first_step >= step) free_part(&r->parts[--r->count]);
    nw_log_part *p = &r->parts[r->count - 1];
    int most = p->runs;
    while (p->runs > p->skip && p->points[p->runs].step > step) p->runs--;
    NW_FAIL_IF(p->runs == p->skip && r->count == 1, NW_E_ARGUMENT,
               "a replay can stop only where all ranks were quiescent, which they first were at step %" PRId64
               ", not by step %" PRId64,
               p->points[p->skip < most ? p->skip + 1 : most].step, step);
    return NW_OK;
}

nw_status nw_recording_start(nw_recording *r, int64_t step, int64_t epoch)
{
    int from = r->count - 1, skip = 0;
    while (from > 0 && r->parts[from].first_step > step) from--;
    nw_log_part *p = &r->parts[from];
    if (p->first_step != step || p->header.first_epoch != epoch) skip = find_save(p, step, epoch);
    NW_FAIL_IF(skip < 0, NW_E_ARGUMENT,
               "the event log does not know a checkpoint of step %" PRId64
               "; give one of this run that it wrote itself",
               step);
    for (int i = 0; i < from; i++) free_part(&r->parts[i]);
    memmove(r->parts, r->parts + from, (size_t)(r->count - from) * sizeof *r->parts);
    r->count -= from;
    r->parts[0].skip = skip;
    return NW_OK;
}

/* ---- for people -------------------------------------------------------------------------------------------------- */

static nw_status print_rank(const nw_log_part *p, int rank, FILE *out)
{
    nw_log_cursor c;
    nw_log_record r;
    nw_log_begin(&c, nw_log_file_of(p, rank), rank);
    for (;;) {
        char text[160];
        NW_TRY(nw_log_next(&c, &r));
        if (c.ended) return NW_OK;
        nw_log_text(&r, text, sizeof text);
        fprintf(out, "rank %d, %" PRId64 ": %s\n", rank, c.number, text);
    }
}

nw_status nw_recording_print(const nw_recording *recording, FILE *out)
{
    for (int i = 0; i < recording->count; i++) {
        const nw_log_part *p = &recording->parts[i];
        const nw_log_header *h = &p->header;
        fprintf(out,
                "part from step %" PRId64 " to %" PRId64 ": %d ranks, exchange %s, codec %s, %s, %s, seed %" PRIu64
                ", nowait %s (%s)%s\n",
                p->first_step, nw_log_end_step(p), h->world, h->exchange, h->codec, h->isa, h->precision, h->seed,
                h->version, h->commit,
                p->torn    ? ", torn"
                : p->ended ? ""
                           : ", killed");
        for (int rank = 0; rank < h->world; rank++) NW_TRY(print_rank(p, rank, out));
    }
    return NW_OK;
}
