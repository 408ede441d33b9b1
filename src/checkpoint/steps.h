/*
 * steps.h - the directory `checkpoints` of a run: which steps it has.
 */
#ifndef NW_CHECKPOINT_STEPS_H
#define NW_CHECKPOINT_STEPS_H

#include "checkpoint/checkpoint.h"

typedef struct nw_steps {
    int64_t *at; /* highest first */
    int count;
} nw_steps;

/* Directories named by a step, complete or not. */
nw_status nw_steps_list(nw_steps *steps, const char *directory);
void nw_steps_free(nw_steps *steps);

/* nw_directory_clean for every step that left something there. */
nw_status nw_steps_clean(const char *directory);

/* The manifest of a checkpoint's directory, without looking at the other files. */
nw_status nw_checkpoint_read_manifest(nw_manifest *manifest, const char *directory);

#endif
