/*
 * assign.h - which codec each tensor has.
 *
 * All tensors have one codec, but for those that are sent as they are: smaller than so many floats; vectors, where the
 * method leaves batch norm and biases alone (DGC); matrices of which low-rank factors would save nothing (PowerSGD). Above all these stand rules by name: shell patterns, of which the last that matches a tensor says what
 * it has.
 *
 * Codecs with the same options are one object, so that tensors that share a codec can share buckets.
 */
#ifndef NW_CHANNEL_ASSIGN_H
#define NW_CHANNEL_ASSIGN_H

#include "codec/memory.h"
#include "channel/layout.h"

#include <stdio.h>

typedef struct nw_assign_rule {
    const char *pattern; /* of fnmatch(3), for names of tensors */
    nw_codec_options codec;
} nw_assign_rule;

typedef struct nw_assign_options {
    nw_codec_options codec; /* of all tensors, but for those below; without name: none */
    int64_t dense_below;    /* floats */
    bool dense_vectors;     /* tensors of one dimension */
    nw_assign_rule *rules;  /* outlive the assignment */
    int rule_count;
    nw_scope scope;
    nw_collective collective;
    nw_memory_options memory; /* of what is not delivered, where tensors are not dense */
} nw_assign_options;

typedef struct nw_assignment {
    nw_codec **codecs; /* that there are; [0] is none */
    int codec_count;
    const nw_codec **of; /* by segment */
} nw_assignment;

/* NW_E_ARGUMENT: a rule that no tensor matches, or options that the codec refuses. */
nw_status nw_assign_make(nw_assignment *assignment, const nw_assign_options *options, const nw_segments *segments);
void nw_assign_free(nw_assignment *assignment);
/* The codecs, scope and collective of a layout. */
void nw_assign_fill(const nw_assignment *assignment, const nw_assign_options *options, nw_layout_options *layout);

/* Whether anything but floats as they are travels. */
bool nw_assign_compresses(const nw_assign_options *options);
/* As the user spells it: "topk 0.01", "qsgd 255 levels", "none". */
void nw_assign_name(const nw_codec *codec, char *text, size_t size);
/* A table of all tensors, each line behind `before`. */
void nw_assign_print(const nw_assignment *assignment, const nw_segments *segments, const char *before, FILE *out);

#endif
