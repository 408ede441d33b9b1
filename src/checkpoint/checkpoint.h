/*
 * Folder src/checkpoint: what survives a crash: safetensors, manifests, directories that are complete or not there. It
 * keeps named vectors and numbers; what they mean is known to those who save them. May include: base, param.
 *
 * checkpoint.h - checkpoints: directories that are complete or not there.
 *
 *   RUN/checkpoints/<step>/model.safetensors     parameters and batch norm's buffers under PyTorch's names
 *                          shared.safetensors    state that all ranks have in common: optimizer, average, ...
 *                          replica<r>.safetensors  what rank r has for itself
 *                          config.yaml           how the run was started
 *                          manifest.json         what it is, hashes of all others, scalars of the state; written last
 *
 * Vectors are kept by segment, so that another partition of the same world can read them. The writer takes any number
 * of files, each with any tensors.
 *
 * Writing: everything goes to a temporary directory, is synced, and gets its name by one rename. If the process is
 * killed at any moment, the checkpoint is complete or not there, and older ones are as they were. A writer that fails
 * removes what it wrote.
 *
 *   nw_checkpoint_writer *w;
 *   NW_TRY(nw_checkpoint_begin(&w, path, &info));
 *   nw_checkpoint_add_model(w, params, batches);        after the first failure nothing more is added ...
 *   nw_checkpoint_add_double(w, "best_top1", best);
 *   NW_TRY(nw_checkpoint_commit(w));                    ... and commit returns it. Frees the writer in any case.
 *
 * Reading: nw_checkpoint_open verifies every hash before anything is used.
 *
 * One writer or reader belongs to one thread at a time.
 */
#ifndef NW_CHECKPOINT_CHECKPOINT_H
#define NW_CHECKPOINT_CHECKPOINT_H

#include "param/params.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

#define NW_CHECKPOINT_MODEL    "model.safetensors"
#define NW_CHECKPOINT_CONFIG   "config.yaml"
#define NW_CHECKPOINT_MANIFEST "manifest.json"

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct nw_checkpoint_writer nw_checkpoint_writer;

/* RUN/checkpoints/<step>, to be freed. */
nw_status nw_checkpoint_step_path(char **path, const char *run_dir, int64_t step);

/* Begins a checkpoint that will be the directory `target`; an earlier checkpoint there will be replaced. Anything else
 * there that is not an empty directory is refused. Removes what killed writers left beside it. */
nw_status nw_checkpoint_begin(nw_checkpoint_writer **writer, const char *target, const nw_checkpoint_info *info);

/* A file of tensors, written at once: the data may change afterwards. notes become its __metadata__. */
nw_status nw_checkpoint_add_tensors(nw_checkpoint_writer *writer, const char *file, const nw_saved_list *list,
                                    const nw_saved_note *notes, int note_count);
/* A text, for instance config.yaml. */
nw_status nw_checkpoint_add_file(nw_checkpoint_writer *writer, const char *file, const void *data, size_t size);
/* Scalars of the state, kept in the manifest. They come back bit for bit. */
nw_status nw_checkpoint_add_int(nw_checkpoint_writer *writer, const char *key, int64_t value);
nw_status nw_checkpoint_add_double(nw_checkpoint_writer *writer, const char *key, double value);
nw_status nw_checkpoint_add_text(nw_checkpoint_writer *writer, const char *key, const char *text);

nw_status nw_checkpoint_commit(nw_checkpoint_writer *writer);
void nw_checkpoint_cancel(nw_checkpoint_writer *writer); /* instead of commit; NULL is fine */

/* Removes checkpoints of RUN/checkpoints except the newest `keep` and the one of step `best` (-1: none). keep 0 keeps
 * all. */
nw_status nw_checkpoint_prune(const char *run_dir, int keep, int64_t best);

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct nw_checkpoint nw_checkpoint;

/* Opens
 *   a run's directory, or its directory `checkpoints`: the highest step that verifies. A damaged newer one is passed over
 *     and nw_checkpoint_note says so; one of another format is not passed over but refused (NW_E_UNSUPPORTED);
 *   one checkpoint's directory;
 *   a bare .safetensors file: weights only, without manifest.
 * NW_E_FILE names the path, what is wrong, and the remedy. */
nw_status nw_checkpoint_open(nw_checkpoint **checkpoint, const char *path);
void nw_checkpoint_close(nw_checkpoint *checkpoint);
static inline void nw_checkpoint_autoclose(nw_checkpoint **checkpoint) { nw_checkpoint_close(*checkpoint); }

/* Whether there is something at `path` for nw_checkpoint_open to try: for "resume if there is one". */
bool nw_checkpoint_exists(const char *path);

const char *nw_checkpoint_path(const nw_checkpoint *checkpoint); /* of the directory or file really opened */
const char *nw_checkpoint_note(const nw_checkpoint *checkpoint); /* what the user should be told, or NULL */
bool nw_checkpoint_is_bare(const nw_checkpoint *checkpoint);     /* a file of weights only: no info, no state */
const nw_checkpoint_info *nw_checkpoint_get_info(const nw_checkpoint *checkpoint); /* NULL if bare */

/* Scalars of the state; NW_E_FILE if there is none of that name or it is of another type (an integer is a double too).
 */
bool nw_checkpoint_has(const nw_checkpoint *checkpoint, const char *key);
nw_status nw_checkpoint_get_int(const nw_checkpoint *checkpoint, const char *key, int64_t *value);
nw_status nw_checkpoint_get_double(const nw_checkpoint *checkpoint, const char *key, double *value);
nw_status nw_checkpoint_get_text(const nw_checkpoint *checkpoint, const char *key, const char **text);

bool nw_checkpoint_has_file(const nw_checkpoint *checkpoint, const char *file);
/* A file's bytes and a zero after them, to be freed. */
nw_status nw_checkpoint_read_file(const nw_checkpoint *checkpoint, const char *file, char **data, size_t *size);
/* A file of tensors; stays open and belongs to the checkpoint. */
nw_status nw_checkpoint_tensors(nw_checkpoint *checkpoint, const char *file, const nw_safetensors **tensors);

/* One tensor of a file, of exactly this shape. Floats of other widths are converted. */
nw_status nw_checkpoint_read_tensor(nw_checkpoint *checkpoint, const char *file, const char *name, int dims,
                                    const int64_t *shape, float *out);
/* One tensor of exactly this type and shape, as it is. */
nw_status nw_checkpoint_read_raw(nw_checkpoint *checkpoint, const char *file, const char *name, nw_saved_type type,
                                 int dims, const int64_t *shape, void *out);

/* Integers, as many as there are: I64[n], or I64[n, columns] if columns > 0. To be freed. */
nw_status nw_checkpoint_read_integers(nw_checkpoint *checkpoint, const char *file, const char *name, int columns,
                                      int64_t **integers, size_t *n);
nw_status nw_checkpoint_has_tensor(nw_checkpoint *checkpoint, const char *file, const char *name, bool *has);

/* ---- lists of numbers -------------------------------------------------------------------------------------------- */

/* A number of the state, under the key PREFIX + key, and where it lies: one of the two. */
typedef struct nw_saved_number {
    const char *key;
    int64_t *whole;
    double *real;
    bool later; /* earlier versions may not have had it: then it is left as it is */
} nw_saved_number;

nw_status nw_checkpoint_add_numbers(nw_checkpoint_writer *writer, const char *prefix, const nw_saved_number *numbers,
                                    int count);
nw_status nw_checkpoint_get_numbers(const nw_checkpoint *checkpoint, const char *prefix, const nw_saved_number *numbers,
                                    int count);

/* ---- models and vectors over segments ---------------------------------------------------------------------------- */

/* Writes model.safetensors: parameters, running statistics, and `batches` as num_batches_tracked of every batch norm.
 */
nw_status nw_checkpoint_add_model(nw_checkpoint_writer *writer, const nw_params *params, int64_t batches);

/* Reads model.safetensors, or the bare file, into the parameters and buffers of the model named `model`. Nothing is
 * written unless everything fits: NW_E_FILE names the model in the file and the one asked for, and the first tensor
 * that is missing, has another shape, or is not known. num_batches_tracked may be missing; *batches (may be NULL) is
 * then 0. */
nw_status nw_checkpoint_read_model(nw_checkpoint *checkpoint, const char *model, nw_params *params, int64_t *batches);

/* A vector that runs parallel to a table of segments (momentum, average of the weights, gradients being accumulated):
 * one tensor a segment, named `prefix` + the segment's name. */
nw_status nw_saved_list_add_segments(nw_saved_list *list, const char *prefix, const nw_segments *segments,
                                     const float *vector);
nw_status nw_checkpoint_read_segments(nw_checkpoint *checkpoint, const char *file, const char *prefix,
                                      const nw_segments *segments, float *vector);
/* Elements first .. first + count of it, to `out`. */
nw_status nw_checkpoint_read_range(nw_checkpoint *checkpoint, const char *file, const char *prefix,
                                   const nw_segments *segments, size_t first, size_t count, float *out);

#endif
