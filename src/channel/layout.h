/*
 * layout.h - how a vector of parameters travels: in buckets, each of items that share a codec.
 *
 * An item is what a codec sees as a whole: a layer's tensor, all of a bucket, or all of the model that is not sent
 * dense (nw_scope). Which codec a tensor has is a table, so that "dense below n elements", roles and choices by name
 * are data. A bucket is items of one codec that become final about the same time: backward passes finish the vector
 * from its end to its beginning, so bucket 0 has the last of it. A bucket is sent when its lowest element is final.
 *
 * Buckets are cut between those who add or own them: into equal parts, on multiples of 16 floats, or where ranges of
 * the vector begin. Parts may be empty. Buckets that are gathered are not cut: everybody gets them whole.
 *
 * All of it depends on the segments and options alone, so all ranks agree.
 */
#ifndef NW_CHANNEL_LAYOUT_H
#define NW_CHANNEL_LAYOUT_H

#include "codec/memory.h"
#include "channel/mode.h"
#include "param/params.h"

typedef enum nw_scope { NW_SCOPE_LAYER, NW_SCOPE_BUCKET, NW_SCOPE_MODEL } nw_scope;

typedef struct nw_layout_options {
    const nw_segments *segments;   /* outlive the layout */
    const nw_codec *codec;         /* of all segments, unless ... */
    const nw_codec *const *codecs; /* ... this has one for each */
    const nw_codec *dense;         /* the one of these that stands for "not compressed"; NULL: none does */
    nw_scope scope;
    size_t bucket_bytes;      /* of floats that travel together, at least; 0: 4 MiB */
    int cuts;                 /* between so many */
    const size_t *bounds;     /* where the range of each begins, and the end; NULL: equal parts of each bucket */
    nw_collective collective; /* how buckets are reduced that are not exact; AUTO: nw_mode_of, between `cuts` members */
    bool plainly;             /* the same buckets, but compressed items travel as they are; memories have them still */
    bool remembers;           /* memories have dense items, too */
} nw_layout_options;

typedef struct nw_bucket {
    nw_block block;
    size_t first; /* its lowest element */
    int first_segment, last_segment;
    bool dense; /* not compressed: what was given is delivered, and memories do not have it */
    nw_mode mode;
    bool gathered;    /* its mode: everybody gets it whole */
    bool summed;      /* ... its codec adds floats; it is not cut either */
    uint64_t entries; /* that are sent at the final ratio */
} nw_bucket;

typedef struct nw_layout {
    nw_bucket *at;
    int count;
    size_t floats; /* of the vector */
    const nw_segments *segments;
} nw_layout;

nw_status nw_layout_make(nw_layout *layout, const nw_layout_options *options);
void nw_layout_free(nw_layout *layout);
/* Whether what codecs do leaves a memory bounded, for every item. NW_E_ARGUMENT says where and why not. */
nw_status nw_layout_check_memory(const nw_layout *layout, const nw_memory_options *memory);
/* Where part i of `count` floats in equal parts begins; part `parts` is the end. */
size_t nw_layout_part(size_t count, int parts, int i);
/* "conv1.weight ... bn1.bias" */
void nw_layout_name(const nw_layout *layout, const nw_segments *segments, int bucket, char *name, size_t size);

#endif
