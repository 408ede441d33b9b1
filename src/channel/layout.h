/*
 * layout.h - how the vector of parameters is divided into buckets (one bucket is sent at a time) and items.
 *
 * An item is what a codec sees as a whole: one tensor, all of a bucket, or all of the model that is compressed
 * (nw_scope). The codec of each tensor comes from a table (assign.h). A bucket is a set of items with the same codec
 * whose gradients become final at about the same time: the backward pass finishes the vector from its end to its
 * beginning, so bucket 0 has the last tensors. A bucket is sent when its lowest element is final.
 *
 * Fragments are ranges of the vector of about equal size that end between segments. Items and buckets do not cross
 * them, so that each fragment can be exchanged at its own time.
 *
 * Buckets are cut into parts with an owner each: equal parts on multiples of 16 floats, or at the bounds of the
 * servers' ranges. Parts may be empty. Buckets that are gathered are not cut: every member gets them whole.
 *
 * The layout depends only on the segments and the options, so that all ranks compute the same one.
 */
#ifndef NW_CHANNEL_LAYOUT_H
#define NW_CHANNEL_LAYOUT_H

#include "codec/memory.h"
#include "channel/mode.h"
#include "param/params.h"

typedef enum nw_scope { NW_SCOPE_LAYER, NW_SCOPE_BUCKET, NW_SCOPE_MODEL } nw_scope;

typedef struct nw_layout_options {
    const nw_segments *segments;   /* must outlive the layout */
    const nw_codec *codec;         /* the codec of all segments, unless ... */
    const nw_codec *const *codecs; /* ... this has a codec for each segment */
    const nw_codec *dense;         /* the codec that counts as "not compressed", besides exact ones; may be NULL */
    nw_scope scope;
    size_t bucket_bytes;      /* least size of a bucket, in bytes of f32; 0: 4 MiB */
    int cuts;                 /* number of parts of a bucket */
    int fragments;            /* number of fragments; 0: 1 */
    const size_t *bounds;     /* the vector element at which each part's range begins, and the end; NULL: equal parts */
    nw_collective collective; /* how compressed buckets are reduced; AUTO: nw_mode_of, for `cuts` members */
    bool plainly;             /* the same buckets, but sent uncompressed; memories still hold the compressed items */
    bool remembers;           /* memories hold dense items, too */
    bool ranges;              /* every bucket is one range of the vector: it ends where the codec changes */
} nw_layout_options;

typedef struct nw_bucket {
    nw_block block;
    size_t first; /* its lowest element */
    int first_segment, last_segment;
    int fragment;
    bool dense; /* not compressed, and not held by memories */
    nw_mode mode;
    bool gathered;    /* mode GATHER: every member gets it whole */
    bool summed;      /* mode SUMMED: its codec has rounds; it is not cut either */
    uint64_t entries; /* number of entries sent at the final ratio */
} nw_bucket;

typedef struct nw_layout {
    nw_bucket *at;
    int count;
    size_t floats; /* length of the vector */
    const nw_segments *segments;
} nw_layout;

nw_status nw_layout_make(nw_layout *layout, const nw_layout_options *options);
void nw_layout_free(nw_layout *layout);
/* Whether no codec loses anything. */
bool nw_layout_is_exact(const nw_layout *layout);
/* Checks for every item that the memory stays bounded with its codec. NW_E_ARGUMENT says where and why not. */
nw_status nw_layout_check_memory(const nw_layout *layout, const nw_memory_options *memory);
/* The first element of part i when `count` floats are divided into equal parts; i = parts gives the end. */
size_t nw_layout_part(size_t count, int parts, int i);
/* The first element of a fragment; i = fragments gives the end. There must be at least as many segments. */
size_t nw_layout_fragment(const nw_segments *segments, int fragments, int i);
/* "conv1.weight ... bn1.bias" */
void nw_layout_name(const nw_layout *layout, const nw_segments *segments, int bucket, char *name, size_t size);

#endif
