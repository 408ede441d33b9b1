/*
 * checkpoint.c - writing checkpoints: begin, add, commit; and removing old ones.
 *
 * The writer fills a temporary directory (base/file.h), hashing as it writes, adds the manifest last and then renames
 * the directory to the target. The first failure is kept with its sentence. After it nothing more is written, and what
 * was written is removed at once, because on a full disk the space is needed.
 */
#define _GNU_SOURCE 1
#include "checkpoint/checkpoint.h"

#include "base/number.h"
#include "base/text.h"
#include "checkpoint/steps.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct nw_checkpoint_writer {
    char *target, *aside;
    int lock; /* on `aside` */
    nw_manifest manifest;
    nw_status status; /* the first failure */
    char message[1024];
};

nw_status nw_checkpoint_step_path(char **path, const char *run_dir, int64_t step)
{
    char name[48];
    snprintf(name, sizeof name, "checkpoints/%" PRId64, step);
    return nw_path_join(path, run_dir, name);
}

/* ---- what already has the name ---- */

/* A checkpoint and nothing else: a manifest that can be read, and no file that it does not name. */
static bool is_pure_checkpoint(const char *path, const nw_names *names)
{
    NW_CLEANUP(nw_manifest_free) nw_manifest manifest = {0};
    bool pure = nw_checkpoint_read_manifest(&manifest, path) == NW_OK;
    for (int i = 0; i < names->count; i++)
        pure &= strcmp(names->at[i], NW_CHECKPOINT_MANIFEST) == 0 || nw_manifest_file_find(&manifest, names->at[i]);
    return pure;
}

typedef enum occupant { OCCUPANT_NONE, OCCUPANT_CHECKPOINT, OCCUPANT_DAMAGED, OCCUPANT_FOREIGN } occupant;

static nw_status look_at(const char *target, occupant *found)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    *found = OCCUPANT_NONE;
    struct stat s;
    if (lstat(target, &s) != 0) return NW_OK;
    if (!S_ISDIR(s.st_mode)) { /* a link to a directory too: a rename would replace the link */
        *found = OCCUPANT_FOREIGN;
        return NW_OK;
    }
    NW_TRY(nw_directory_list(&names, target));
    bool has_manifest = false;
    for (int i = 0; i < names.count; i++) has_manifest |= strcmp(names.at[i], NW_CHECKPOINT_MANIFEST) == 0;
    int64_t step;
    const char *slash = strrchr(target, '/');
    if (names.count > 0)
        *found = is_pure_checkpoint(target, &names) ? OCCUPANT_CHECKPOINT
                 : has_manifest || nw_number_of_name(slash ? slash + 1 : target, &step) ? OCCUPANT_DAMAGED
                                                                                        : OCCUPANT_FOREIGN;
    return NW_OK;
}

/* What cannot be replaced without loss gets another name instead. */
static nw_status set_aside(const char *target)
{
    for (int n = 1; n < 1000; n++) {
        NW_AUTOFREE char *kept = NULL;
        NW_TRY(nw_text_print(&kept, "%s.set-aside-%d", target, n));
        if (access(kept, F_OK) == 0) continue;
        if (rename(target, kept) == 0) return NW_OK;
        break;
    }
    return NW_FAIL(NW_E_SYSTEM, "cannot set the damaged checkpoint '%s' aside: %s; move it away yourself", target,
                   strerror(errno));
}

/* ---- the writer ---- */

static void writer_free(nw_checkpoint_writer *w)
{
    if (w->lock >= 0) close(w->lock);
    nw_manifest_free(&w->manifest);
    free(w->target);
    free(w->aside);
    free(w);
}

/* Makes a failure the writer's own. */
static nw_status keep(nw_checkpoint_writer *w, nw_status status)
{
    if (status == NW_OK || w->status != NW_OK) return status;
    w->status = status;
    snprintf(w->message, sizeof w->message,
             "the checkpoint '%s' was not written: %s (earlier checkpoints are untouched)", w->target,
             nw_error_message());
    (void)nw_directory_remove(w->aside);
    return NW_FAIL(status, "%s", w->message); /* removing may have failed too, and that is not what matters */
}

/* The failure that stops this call too, or NW_OK. */
static nw_status earlier(const nw_checkpoint_writer *w)
{
    return w->status == NW_OK ? NW_OK : NW_FAIL(w->status, "%s", w->message);
}

static nw_status begin(nw_checkpoint_writer *w, const char *target)
{
    NW_AUTOFREE char *directory = NULL, *name = NULL;
    NW_TRY(nw_path_split(target, &directory, &name));
    NW_TRY(nw_directory_make(directory));
    NW_TRY(nw_path_join(&w->target, directory, name));
    NW_TRY(nw_directory_clean(w->target));
    int64_t step;
    if (nw_number_of_name(name, &step)) NW_TRY(nw_steps_clean(directory));
    occupant found;
    NW_TRY(look_at(w->target, &found));
    NW_FAIL_IF(found == OCCUPANT_FOREIGN, NW_E_ARGUMENT,
               "'%s' exists and is not a checkpoint, so it is not replaced; give another path or move it away",
               w->target);
    return nw_directory_make_aside(w->target, &w->aside, &w->lock);
}

nw_status nw_checkpoint_begin(nw_checkpoint_writer **writer, const char *target, const nw_checkpoint_info *info)
{
    *writer = NULL;
    nw_checkpoint_writer *w = calloc(1, sizeof *w);
    NW_FAIL_IF(!w, NW_E_MEMORY, "no memory to write the checkpoint '%s'", target);
    w->lock = -1;
    w->manifest.info = *info;
    snprintf(w->manifest.written_by, sizeof w->manifest.written_by, "nowait %s (%s)", nw_version(), nw_build_commit());
    NW_TRY_OR(begin(w, target), writer_free(w));
    *writer = w;
    return NW_OK;
}

/* What a file is filled from: tensors, or bytes. */
typedef struct content {
    const nw_saved_list *list;
    const nw_saved_note *notes;
    int note_count;
    const void *data;
    size_t size;
} content;

static nw_status write_file(nw_checkpoint_writer *w, const char *name, const content *c, uint64_t *bytes,
                            char sha256[65])
{
    NW_AUTOFREE char *path = NULL;
    NW_CLEANUP(nw_file_abandon) nw_file_writer out = {0};
    NW_TRY(nw_path_join(&path, w->aside, name));
    NW_TRY(nw_file_create(&out, path));
    NW_TRY(c->list ? nw_safetensors_write(&out, c->list, c->notes, c->note_count)
                   : nw_file_write(&out, c->data, c->size));
    *bytes = out.bytes;
    return nw_file_finish(&out, sha256);
}

static nw_status add_content(nw_checkpoint_writer *w, const char *name, const content *c)
{
    NW_FAIL_IF(!nw_manifest_name_is_plain(name) || strcmp(name, NW_CHECKPOINT_MANIFEST) == 0, NW_E_ARGUMENT,
               "'%s' cannot be a file of a checkpoint; use letters, digits, '.', '_' and '-'", name);
    NW_FAIL_IF(nw_manifest_file_find(&w->manifest, name), NW_E_ARGUMENT, "the file '%s' is added to a checkpoint twice",
               name);
    char sha256[65];
    uint64_t bytes;
    NW_TRY(write_file(w, name, c, &bytes, sha256));
    return nw_manifest_add_file(&w->manifest, name, bytes, sha256);
}

nw_status nw_checkpoint_add_tensors(nw_checkpoint_writer *w, const char *file, const nw_saved_list *list,
                                    const nw_saved_note *notes, int note_count)
{
    NW_TRY(earlier(w));
    return keep(w, add_content(w, file, &(content){.list = list, .notes = notes, .note_count = note_count}));
}

nw_status nw_checkpoint_add_file(nw_checkpoint_writer *w, const char *file, const void *data, size_t size)
{
    NW_TRY(earlier(w));
    return keep(w, add_content(w, file, &(content){.data = data, .size = size}));
}

nw_status nw_checkpoint_add_int(nw_checkpoint_writer *w, const char *key, int64_t value)
{
    NW_TRY(earlier(w));
    return keep(w, nw_manifest_add_int(&w->manifest, key, value));
}

nw_status nw_checkpoint_add_double(nw_checkpoint_writer *w, const char *key, double value)
{
    NW_TRY(earlier(w));
    return keep(w, nw_manifest_add_double(&w->manifest, key, value));
}

nw_status nw_checkpoint_add_text(nw_checkpoint_writer *w, const char *key, const char *text)
{
    NW_TRY(earlier(w));
    return keep(w, nw_manifest_add_text(&w->manifest, key, text));
}

static nw_status write_manifest(nw_checkpoint_writer *w)
{
    NW_AUTOFREE char *text = NULL;
    char sha256[65];
    uint64_t bytes;
    size_t size;
    NW_TRY(nw_manifest_write(&w->manifest, &text, &size));
    return write_file(w, NW_CHECKPOINT_MANIFEST, &(content){.data = text, .size = size}, &bytes, sha256);
}

static nw_status commit(nw_checkpoint_writer *w)
{
    occupant found;
    NW_TRY(earlier(w));
    NW_TRY(write_manifest(w));
    NW_TRY(look_at(w->target, &found));
    if (found == OCCUPANT_DAMAGED) NW_TRY(set_aside(w->target));
    NW_FAIL_IF(found == OCCUPANT_FOREIGN, NW_E_SYSTEM, "another process created '%s' meanwhile; move it away",
               w->target);
    return nw_directory_replace(w->aside, w->target, true);
}

nw_status nw_checkpoint_commit(nw_checkpoint_writer *w)
{
    nw_status status = keep(w, commit(w));
    writer_free(w);
    return status;
}

void nw_checkpoint_cancel(nw_checkpoint_writer *w)
{
    if (!w) return;
    if (w->status == NW_OK) (void)nw_directory_remove(w->aside);
    writer_free(w);
}

nw_status nw_checkpoint_prune(const char *run_dir, int keep_count, int64_t best)
{
    NW_CLEANUP(nw_steps_free) nw_steps steps = {0};
    NW_AUTOFREE char *directory = NULL;
    if (keep_count <= 0) return NW_OK;
    NW_TRY(nw_path_join(&directory, run_dir, "checkpoints"));
    NW_TRY(nw_steps_list(&steps, directory));
    for (int i = keep_count; i < steps.count; i++) {
        NW_AUTOFREE char *path = NULL;
        if (steps.at[i] == best) continue;
        NW_TRY(nw_checkpoint_step_path(&path, run_dir, steps.at[i]));
        NW_TRY(nw_directory_discard(path));
    }
    return NW_OK;
}
