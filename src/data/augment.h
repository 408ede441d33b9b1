/*
 * augment.h - from the bytes of one image to the floats that a network reads: crop, flip, cutout, normalisation.
 *
 *   pad the bytes, cut a window out, mirror it, normalise, cover a square with zeros
 *
 * Zero padding is the byte 0, before normalisation. Reflected padding does not repeat the edge: ... 2 1 | 0 1 2. A
 * pixel becomes (x / 255 - mean) / deviation, in f32 and in this order, as torchvision computes it. Cutout writes 0
 * after normalisation, the mean colour; its square lies fully inside.
 *
 * What is random is drawn first (nw_transform_draw), then applied, so that both can be tested exactly. Draws come from
 * the stream (seed, NW_PURPOSE_AUGMENT, epoch, sample) in this order, each only where it is asked for: top, left,
 * mirror, top and left of the cutout; before them the box of a random resized crop, which replaces top and left.
 *
 * Everything here may be called from any thread at once.
 */
#ifndef NW_DATA_AUGMENT_H
#define NW_DATA_AUGMENT_H

#include "base/rng.h"
#include "base/status.h"

typedef struct nw_augment {
    int crop;         /* side of the output; 0: the image's own size, for photographs 224 */
    int pad;          /* pixels on each side before the window is cut out */
    bool pad_reflect; /* else zeros */
    bool flip;        /* mirror left and right in half of the samples */
    int cutout;       /* side of the square; 0: none */
    /* Photographs: either a random part is scaled to the output, or all of it to a short side of `resize` pixels, out
     * of which the window is cut. The part has 0.08..1 of the area and an aspect of 3/4..4/3. */
    bool resized_crop;
    int resize;                  /* 0: 8/7 of the output's side, that is 256 for 224 */
    float mean[4], deviation[4]; /* on the scale 0..1 */
    const float *mean_image;     /* C x H x W of the output, on the scale 0..1: replaces mean; NULL: none */
} nw_augment;

/* An augmentation made ready for images of one kind. */
typedef struct nw_transform {
    nw_augment augment; /* with its zeros resolved */
    bool random;        /* else: the window in the middle, no flip, no cutout, no random part */
    bool photographs;
    int channels, height, width; /* of the output */
    float table[4][256];         /* a byte's value, by channel */
} nw_transform;

/* Images of channels x height x width; height 0: photographs of any size, in RGB. If not `random`, the same window is
 * cut out of the middle and nothing is drawn. Refuses what cannot be (a window larger than the padded image). */
nw_status nw_transform_prepare(nw_transform *transform, const nw_augment *augment, bool random, int channels,
                               int height, int width);

/* Bytes in memory: pixel (c, y, x) lies at pixels[c * plane + y * row + x * column]. */
typedef struct nw_raster {
    const uint8_t *pixels;
    int height, width;
    int plane, row, column;
} nw_raster;

/* What was drawn for one sample: the window's corner in the padded image, and so on. */
typedef struct nw_choice {
    int top, left;
    bool mirror;
    int cut_top, cut_left;
} nw_choice;

/* For an image of this size, padding not counted. */
nw_choice nw_transform_draw(const nw_transform *transform, int height, int width, nw_rng *rng);
/* Writes channels x height x width floats. */
void nw_transform_apply(const nw_transform *transform, const nw_raster *image, const nw_choice *choice, float *out);

/* A part of a photograph, in pixels. */
typedef struct nw_box {
    int top, left, height, width;
} nw_box;

/* One try at a random resized crop, before the photograph's size is known: share of the area, and width over height. */
typedef struct nw_part {
    double area, aspect;
} nw_part;

enum { NW_PART_TRIES = 10 };

/* The tries in advance; then the first that fits, placed at random, or else the middle as large as the aspects allow.
 */
void nw_part_draw(nw_part parts[NW_PART_TRIES], nw_rng *rng);
nw_box nw_part_place(const nw_part parts[NW_PART_TRIES], int height, int width, nw_rng *rng);

/* The first pixel of a window in the middle: half of what is left over, rounded as Python rounds. */
int nw_middle(int left_over);

/* Mirrors rows of `width` floats in place, for evaluation with both views of an image. */
void nw_mirror_rows(float *images, int64_t rows, int width);

#endif
