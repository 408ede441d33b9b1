/*
 * image.h - what the image decoders share, below nw_image_decode (dataset.h). Only src/data includes this.
 */
#ifndef NW_DATA_IMAGE_H
#define NW_DATA_IMAGE_H

#include "data/dataset.h"

/* Both sides, and all bytes of a decoded image, at most. */
enum { NW_IMAGE_SIDE = 65500, NW_IMAGE_BYTES = 512 << 20 };

/* Where to decode from and to. */
typedef struct nw_image_job {
    const uint8_t *data;
    size_t size;
    const char *name;
    int least_side;
    nw_bitmap *bitmap;
    int full_height, full_width;
} nw_image_job;

nw_status nw_jpeg_decode(nw_image_job *job);
nw_status nw_png_decode(nw_image_job *job);

/* Checks the size that a file promises against the limits and against `most_pixels`, what its bytes can hold at best:
 * no short file makes us take much memory. */
nw_status nw_image_check_size(const nw_image_job *job, uint64_t height, uint64_t width, uint64_t most_pixels);

/* Room for height x width x 3 bytes; the old contents are gone. */
nw_status nw_bitmap_reserve(nw_bitmap *bitmap, int height, int width, const char *name);

#endif
