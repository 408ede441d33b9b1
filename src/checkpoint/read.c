/*
 * read.c - finding, verifying and reading checkpoints.
 *
 * A checkpoint is valid if its manifest is complete and every file has the size and the SHA-256 that the manifest
 * names. When a run is opened, its newest valid checkpoint is taken. Only damage (NW_E_FILE) makes the search go on to
 * an older one: a newer format, missing rights or too little memory are errors, because work must not be lost silently.
 */
#define _GNU_SOURCE 1
#include "checkpoint/checkpoint.h"

#include "base/text.h"
#include "checkpoint/steps.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct open_file {
    char *name;
    nw_safetensors *tensors;
} open_file;

struct nw_checkpoint {
    char *path;
    char *note;
    bool bare;
    nw_manifest manifest;
    open_file *files; /* files of tensors that were asked for */
    int file_count;
};

/* ---- opening ---- */

void nw_checkpoint_close(nw_checkpoint *c)
{
    if (!c) return;
    for (int i = 0; i < c->file_count; i++) {
        nw_safetensors_close(c->files[i].tensors);
        free(c->files[i].name);
    }
    free(c->files);
    nw_manifest_free(&c->manifest);
    free(c->path);
    free(c->note);
    free(c);
}

static nw_status verify_file(const char *path, const nw_manifest_file *file)
{
    struct stat s;
    NW_FAIL_IF(stat(path, &s) != 0, NW_E_FILE,
               "'%s' is missing, though the manifest names it; use another checkpoint, or copy this one again", path);
    NW_FAIL_IF((uint64_t)s.st_size != file->bytes, NW_E_FILE,
               "'%s' has %" PRIu64 " bytes, expected %" PRIu64
               "; it is %s: use another checkpoint, or copy this one again",
               path, (uint64_t)s.st_size, file->bytes, (uint64_t)s.st_size < file->bytes ? "truncated" : "damaged");
    uint64_t bytes;
    char sha256[65];
    NW_TRY(nw_file_hash(path, &bytes, sha256));
    NW_FAIL_IF(
        strcmp(sha256, file->sha256) != 0, NW_E_FILE,
        "'%s' is corrupt: its SHA-256 is %.12s..., expected %.12s...; use another checkpoint, or copy this one again",
        path, sha256, file->sha256);
    return NW_OK;
}

static nw_status verify(const nw_checkpoint *c)
{
    for (int i = 0; i < c->manifest.file_count; i++) {
        NW_AUTOFREE char *path = NULL;
        NW_TRY(nw_path_join(&path, c->path, c->manifest.files[i].name));
        NW_TRY(verify_file(path, &c->manifest.files[i]));
    }
    return NW_OK;
}

/* A directory that has a manifest, or a bare file. */
static nw_status open_one(nw_checkpoint **out, const char *path, bool bare)
{
    *out = NULL;
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = calloc(1, sizeof *c);
    NW_FAIL_IF(!c, NW_E_MEMORY, "no memory to open the checkpoint '%s'", path);
    const nw_safetensors *tensors;
    c->bare = bare;
    NW_TRY(nw_text_copy(&c->path, path));
    if (bare) NW_TRY(nw_checkpoint_tensors(c, NW_CHECKPOINT_MODEL, &tensors));
    if (!bare) NW_TRY(nw_checkpoint_read_manifest(&c->manifest, path));
    NW_TRY(verify(c));
    *out = c;
    c = NULL;
    return NW_OK;
}

/* Tries the steps of a directory from the highest down. `reason` gets why the highest was passed over. */
static nw_status open_newest(nw_checkpoint **out, const char *directory, const nw_steps *steps)
{
    char reason[512] = "", passed[64] = "";
    for (int i = 0; i < steps->count; i++) {
        NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
        NW_AUTOFREE char *path = NULL;
        char name[32];
        snprintf(name, sizeof name, "%" PRId64, steps->at[i]);
        NW_TRY(nw_path_join(&path, directory, name));
        nw_status status = open_one(&c, path, false);
        if (status != NW_OK && status != NW_E_FILE) return status;
        if (status != NW_OK && i == 0) snprintf(reason, sizeof reason, "%s", nw_error_message());
        if (status != NW_OK) continue;
        snprintf(passed, sizeof passed, i == 1 ? "the newest checkpoint is" : "the %d newest checkpoints are", i);
        if (i > 0)
            NW_TRY(nw_text_print(&c->note, "%s damaged, going on from step %s instead: %s", passed, name, reason));
        *out = c;
        c = NULL;
        return NW_OK;
    }
    return NW_FAIL(NW_E_FILE, "none of the %d checkpoints in '%s' can be used; the newest: %s", steps->count, directory,
                   reason);
}

/* Takes no memory: that there is none must not look like a directory without checkpoints. */
static bool has_entry(const char *directory, const char *name, mode_t type)
{
    struct stat status;
    int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool has = at >= 0 && fstatat(at, name, &status, 0) == 0 && (status.st_mode & S_IFMT) == type;
    if (at >= 0) close(at);
    return has;
}

/* The steps of a run's directory, or of its directory of checkpoints, which *directory names. */
static nw_status list_steps(const char *path, char **directory, nw_steps *steps)
{
    bool run = has_entry(path, "checkpoints", S_IFDIR);
    NW_TRY(run ? nw_path_join(directory, path, "checkpoints") : nw_text_copy(directory, path));
    return nw_steps_list(steps, *directory);
}

static nw_status open_run(nw_checkpoint **out, const char *path)
{
    NW_CLEANUP(nw_steps_free) nw_steps steps = {0};
    NW_AUTOFREE char *directory = NULL;
    NW_TRY(list_steps(path, &directory, &steps));
    if (steps.count > 0) return open_newest(out, directory, &steps);
    NW_FAIL_IF(has_entry(path, NW_CHECKPOINT_MODEL, S_IFREG), NW_E_FILE,
               "'%s' has no %s, so it is not a complete checkpoint; copy it again, or give '%s/%s' to load the weights",
               path, NW_CHECKPOINT_MANIFEST, path, NW_CHECKPOINT_MODEL);
    return NW_FAIL(NW_E_FILE, "'%s' holds no checkpoint; expected %s, or steps in a directory 'checkpoints'", path,
                   NW_CHECKPOINT_MANIFEST);
}

nw_status nw_checkpoint_open(nw_checkpoint **checkpoint, const char *path)
{
    *checkpoint = NULL;
    /* A writer may have died between the two renames of a file system that cannot exchange names. */
    if (access(path, F_OK) != 0) (void)nw_directory_clean(path);
    NW_FAIL_IF(access(path, F_OK) != 0, NW_E_FILE, "there is no checkpoint '%s'; check the path", path);
    if (!nw_file_is_directory(path)) return open_one(checkpoint, path, true);
    if (has_entry(path, NW_CHECKPOINT_MANIFEST, S_IFREG)) return open_one(checkpoint, path, false);
    return open_run(checkpoint, path);
}

bool nw_checkpoint_exists(const char *path)
{
    if (access(path, F_OK) != 0) (void)nw_directory_clean(path);
    if (!nw_file_is_directory(path)) return access(path, F_OK) == 0;
    if (has_entry(path, NW_CHECKPOINT_MANIFEST, S_IFREG)) return true;
    NW_CLEANUP(nw_steps_free) nw_steps steps = {0};
    NW_AUTOFREE char *directory = NULL;
    return list_steps(path, &directory, &steps) == NW_OK && steps.count > 0;
}

const char *nw_checkpoint_path(const nw_checkpoint *c) { return c->path; }
const char *nw_checkpoint_note(const nw_checkpoint *c) { return c->note; }
bool nw_checkpoint_is_bare(const nw_checkpoint *c) { return c->bare; }
const nw_checkpoint_info *nw_checkpoint_get_info(const nw_checkpoint *c) { return c->bare ? NULL : &c->manifest.info; }

/* ---- scalars ---- */

bool nw_checkpoint_has(const nw_checkpoint *c, const char *key)
{
    return nw_manifest_state_find(&c->manifest, key) != NULL;
}

static nw_status get(const nw_checkpoint *c, const char *key, const char *expected, const nw_manifest_state **state)
{
    *state = nw_manifest_state_find(&c->manifest, key);
    NW_FAIL_IF(!*state, NW_E_FILE,
               "the checkpoint '%s' has no '%s'; expected %s: it was written by another kind of run", c->path, key,
               expected);
    return NW_OK;
}

static nw_status wrong_type(const nw_checkpoint *c, const char *key, const char *expected)
{
    return NW_FAIL(NW_E_FILE, "'%s' in the checkpoint '%s' is not %s", key, c->path, expected);
}

nw_status nw_checkpoint_get_int(const nw_checkpoint *c, const char *key, int64_t *value)
{
    const nw_manifest_state *state = NULL;
    NW_TRY(get(c, key, "an integer", &state));
    if (state->type != NW_MANIFEST_INT) return wrong_type(c, key, "an integer");
    *value = state->integer;
    return NW_OK;
}

nw_status nw_checkpoint_get_double(const nw_checkpoint *c, const char *key, double *value)
{
    const nw_manifest_state *state = NULL;
    NW_TRY(get(c, key, "a number", &state));
    if (state->type == NW_MANIFEST_TEXT && state->number == 0) return wrong_type(c, key, "a number");
    *value = state->number;
    return NW_OK;
}

nw_status nw_checkpoint_get_text(const nw_checkpoint *c, const char *key, const char **text)
{
    const nw_manifest_state *state = NULL;
    NW_TRY(get(c, key, "a text", &state));
    if (state->type != NW_MANIFEST_TEXT) return wrong_type(c, key, "a text");
    *text = state->text;
    return NW_OK;
}

/* ---- files and tensors ---- */

bool nw_checkpoint_has_file(const nw_checkpoint *c, const char *file)
{
    return c->bare ? strcmp(file, NW_CHECKPOINT_MODEL) == 0 : nw_manifest_file_find(&c->manifest, file) != NULL;
}

/* The path of a file of this checkpoint, to be freed. */
static nw_status file_path(const nw_checkpoint *c, const char *file, char **path)
{
    *path = NULL;
    NW_FAIL_IF(!nw_checkpoint_has_file(c, file), NW_E_FILE, "the checkpoint '%s' has no file '%s'%s", c->path, file,
               c->bare ? ": it is a file of weights only, from which a run can be started (--init) but not resumed"
                       : "; it was written by another kind of run");
    return c->bare ? nw_text_copy(path, c->path) : nw_path_join(path, c->path, file);
}

nw_status nw_checkpoint_read_file(const nw_checkpoint *c, const char *file, char **data, size_t *size)
{
    NW_AUTOFREE char *path = NULL;
    *data = NULL;
    *size = 0;
    NW_TRY(file_path(c, file, &path));
    return nw_file_read(path, SIZE_MAX - 1, data, size);
}

nw_status nw_checkpoint_tensors(nw_checkpoint *c, const char *file, const nw_safetensors **tensors)
{
    for (int i = 0; i < c->file_count; i++)
        if (strcmp(c->files[i].name, file) == 0) {
            *tensors = c->files[i].tensors;
            return NW_OK;
        }
    *tensors = NULL;
    NW_AUTOFREE char *path = NULL, *name = NULL;
    nw_safetensors *opened = NULL;
    NW_TRY(file_path(c, file, &path));
    NW_FAIL_IF(!nw_grow(&c->files, (size_t)c->file_count, sizeof *c->files), NW_E_MEMORY, "no memory to open '%s'",
               path);
    NW_TRY(nw_text_copy(&name, file));
    NW_TRY(nw_safetensors_open(&opened, path));
    c->files[c->file_count++] = (open_file){name, opened};
    name = NULL;
    *tensors = opened;
    return NW_OK;
}

/* Finds a tensor and compares its shape. */
static nw_status locate(nw_checkpoint *c, const char *file, const char *name, nw_saved_type type, int dims,
                        const int64_t *shape, const nw_safetensors **tensors, int *index)
{
    NW_FAIL_IF(dims < 0 || dims > NW_SAVED_DIMS, NW_E_ARGUMENT,
               "%d dimensions are asked of the tensor '%s'; 0 to %d exist", dims, name, NW_SAVED_DIMS);
    nw_saved_tensor wanted = {.name = name, .type = type, .dims = dims};
    for (int d = 0; d < dims; d++) wanted.shape[d] = shape[d];
    NW_TRY(nw_checkpoint_tensors(c, file, tensors));
    *index = nw_safetensors_find(*tensors, name);
    NW_FAIL_IF(*index < 0, NW_E_FILE, "'%s' has no tensor '%s'; it was written by another kind of run or model",
               nw_safetensors_path(*tensors), name);
    const nw_saved_tensor *found = nw_safetensors_at(*tensors, *index);
    char has[160], wants[160];
    nw_saved_tensor_text(found, has, sizeof has);
    nw_saved_tensor_text(&wanted, wants, sizeof wants);
    NW_FAIL_IF(!nw_saved_tensor_same_shape(found, &wanted), NW_E_FILE, "'%s': the tensor '%s' is %s; expected %s",
               nw_safetensors_path(*tensors), name, has, wants);
    return NW_OK;
}

nw_status nw_checkpoint_read_tensor(nw_checkpoint *c, const char *file, const char *name, int dims,
                                    const int64_t *shape, float *out)
{
    const nw_safetensors *tensors;
    int index;
    NW_TRY(locate(c, file, name, NW_SAVED_F32, dims, shape, &tensors, &index));
    return nw_safetensors_read_f32(tensors, index, out);
}

nw_status nw_checkpoint_read_raw(nw_checkpoint *c, const char *file, const char *name, nw_saved_type type, int dims,
                                 const int64_t *shape, void *out)
{
    const nw_safetensors *tensors;
    int index;
    NW_TRY(locate(c, file, name, type, dims, shape, &tensors, &index));
    nw_saved_type found = nw_safetensors_at(tensors, index)->type;
    NW_FAIL_IF(found != type, NW_E_FILE, "'%s': the tensor '%s' is of type %s; expected %s",
               nw_safetensors_path(tensors), name, nw_saved_type_name(found), nw_saved_type_name(type));
    return nw_safetensors_read(tensors, index, out);
}
