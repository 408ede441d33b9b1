/*
 * assign.h - which codec each tensor has (--method, --dense-below, --codec-for).
 *
 * All tensors have the codec of --method, except those that are sent uncompressed: tensors below a size; vectors (batch
 * norm and biases), if the method excludes them (DGC); matrices that low-rank factors would not make smaller
 * (PowerSGD). Rules by name override all of this: a rule is a shell pattern with a codec, and the last rule that
 * matches a tensor's name decides.
 *
 * Codecs with the same options are one object, so that their tensors can share buckets.
 */
#ifndef NW_CHANNEL_ASSIGN_H
#define NW_CHANNEL_ASSIGN_H

#include "codec/memory.h"
#include "channel/layout.h"

#include <stdio.h>

typedef struct nw_assign_rule {
    const char *pattern; /* for names of tensors, as in fnmatch(3) */
    nw_codec_options codec;
} nw_assign_rule;

typedef struct nw_assign_options {
    nw_codec_options codec; /* the codec of all other tensors; no name: none */
    int64_t dense_below;    /* tensors of fewer floats are not compressed */
    bool dense_vectors;     /* tensors of one dimension are not compressed */
    nw_assign_rule *rules;  /* must outlive the assignment */
    int rule_count;
    nw_scope scope;
    nw_collective collective;
    nw_memory_options memory; /* the error memory of compressed tensors */
} nw_assign_options;

typedef struct nw_assignment {
    nw_codec **codecs; /* all codecs in use; [0] is the codec none */
    int codec_count;
    const nw_codec **of; /* the codec of each segment */
} nw_assignment;

/* NW_E_ARGUMENT: a rule matches no tensor, or a codec refuses its options. */
nw_status nw_assign_make(nw_assignment *assignment, const nw_assign_options *options, const nw_segments *segments);
void nw_assign_free(nw_assignment *assignment);
/* Fills in the codecs, scope and collective of a layout. */
void nw_assign_fill(const nw_assignment *assignment, const nw_assign_options *options, nw_layout_options *layout);

/* Whether any tensor is compressed. */
bool nw_assign_compresses(const nw_assign_options *options);
/* A codec with its main option, for people: "topk 0.01", "qsgd 255 levels", "none". */
void nw_assign_name(const nw_codec *codec, char *text, size_t size);
/* Prints a table of all tensors with their codecs and how many entries each sends; where these are chosen among more than
 * one tensor, it says so instead. Each line begins with `before`. */
void nw_assign_print(const nw_assignment *assignment, nw_scope scope, const nw_segments *segments, const char *before,
                     FILE *out);

#endif
