/*
 * photo.h - from an image file to the floats that a network reads: decode, choose a part, scale, augment.
 */
#ifndef NW_DATA_PHOTO_H
#define NW_DATA_PHOTO_H

#include "data/augment.h"
#include "data/dataset.h"
#include "data/resize.h"

/* How a file becomes a bitmap: nw_image_decode, or a stand-in. Its pixels come from malloc and are freed here. */
typedef nw_status (*nw_decode)(const char *path, int least_side, nw_bitmap *bitmap, int *full_height, int *full_width);

/* Memory of one thread: begins as {0} and grows to what the largest photograph needs. */
typedef struct nw_photo {
    nw_bitmap bitmap;
    nw_resizer resizer;
} nw_photo;

/* Writes 3 x height x width floats of the transform. Draws from rng where the transform is random. */
nw_status nw_photo_load(nw_photo *photo, const nw_transform *transform, nw_decode decode, const char *path, nw_rng *rng,
                        float *out);
void nw_photo_free(nw_photo *photo);

#endif
