/*
 * resize.h - scaling of RGB bytes with a triangle filter, bit for bit as Pillow's BILINEAR does it.
 *
 * "Bilinear" there means: when shrinking, the triangle grows with the scale (antialiasing); when enlarging, it spans
 * two pixels. A part of the source is scaled to a full size of which only a window is computed, so that "resize to 256,
 * cut out 224" costs 224.
 */
#ifndef NW_DATA_RESIZE_H
#define NW_DATA_RESIZE_H

#include "base/status.h"

typedef struct nw_resize {
    const uint8_t *pixels; /* height x width x 3 bytes */
    int height, width;
    double top, left, bottom, right; /* the part that is scaled, in pixels of the source; nothing around it counts */
    int full_height, full_width;     /* what that part is scaled to */
    int window_top, window_left;     /* the window of it that is wanted */
    int window_height, window_width;
} nw_resize;

/* Memory of one thread: begins as {0}, grows as needed and is used again. */
typedef struct nw_resizer {
    void *filters, *bytes;
    size_t filters_size, bytes_size;
} nw_resizer;

/* *out: window_height x window_width x 3 bytes, the resizer's until its next use. */
nw_status nw_resize_rgb(nw_resizer *resizer, const nw_resize *job, const uint8_t **out);
void nw_resizer_free(nw_resizer *resizer);

#endif
