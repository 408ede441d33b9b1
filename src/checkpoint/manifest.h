/*
 * manifest.h - manifest.json, the description of a checkpoint.
 *
 * It is written last, so a directory that has one is complete. It has the size and the SHA-256 of every other file, and
 * its own SHA-256, so damage is found before anything is used. It also has scalars of the run's state, under any names
 * (best accuracy, images seen, ...). docs/checkpoints.md describes the file.
 */
#ifndef NW_CHECKPOINT_MANIFEST_H
#define NW_CHECKPOINT_MANIFEST_H

#include "base/status.h"

enum {
    NW_MANIFEST_VERSION = 3,
    NW_MANIFEST_BYTES = 4 << 20, /* most of a manifest */
    NW_MANIFEST_NAME = 128,      /* most of a file's name or of a key, with the zero */
};

/* What every checkpoint is of. */
typedef struct nw_checkpoint_info {
    int64_t step;  /* updates done */
    int64_t epoch; /* epochs done, or the one under way: the trainer's meaning */
    uint64_t seed;
    char model[64];
    char precision[16], isa[32];
    char weights_sha256[65]; /* of the f32 parameters in segment order */
} nw_checkpoint_info;

typedef struct nw_manifest_file {
    char name[NW_MANIFEST_NAME];
    uint64_t bytes;
    char sha256[65];
} nw_manifest_file;

typedef enum nw_manifest_type { NW_MANIFEST_INT, NW_MANIFEST_DOUBLE, NW_MANIFEST_TEXT } nw_manifest_type;

typedef struct nw_manifest_state {
    char key[NW_MANIFEST_NAME];
    nw_manifest_type type;
    int64_t integer;
    double number; /* also of an integer, and of the texts "nan", "inf" and "-inf" */
    char *text;
} nw_manifest_state;

typedef struct nw_manifest {
    nw_checkpoint_info info;
    char written_by[64]; /* "nowait 0.1.0 (commit)" */
    nw_manifest_file *files;
    nw_manifest_state *state;
    int file_count, state_count;
} nw_manifest;

/* A name without directory and without surprises: letters, digits, '.', '_' and '-', not beginning with '.'. */
bool nw_manifest_name_is_plain(const char *name);

/* Adds a file, whose name is new, or a scalar; one of that key is replaced. A number that is not finite is kept too. */
nw_status nw_manifest_add_file(nw_manifest *manifest, const char *name, uint64_t bytes, const char *sha256);
nw_status nw_manifest_add_int(nw_manifest *manifest, const char *key, int64_t value);
nw_status nw_manifest_add_double(nw_manifest *manifest, const char *key, double value);
nw_status nw_manifest_add_text(nw_manifest *manifest, const char *key, const char *text);

const nw_manifest_file *nw_manifest_file_find(const nw_manifest *manifest, const char *name);
const nw_manifest_state *nw_manifest_state_find(const nw_manifest *manifest, const char *key);

/* The text of manifest.json, with its own hash inside, to be freed. */
nw_status nw_manifest_write(const nw_manifest *manifest, char **text, size_t *size);

/* Reads it. NW_E_FILE: no manifest, or damaged; NW_E_UNSUPPORTED: of another version of the format. Needs
 * nw_manifest_free only after success. */
nw_status nw_manifest_parse(nw_manifest *manifest, const char *text, size_t size, const char *name);
void nw_manifest_free(nw_manifest *manifest);

#endif
