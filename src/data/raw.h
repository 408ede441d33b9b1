/*
 * raw.h - `nowait-raw`: a whole dataset of small images in one file that is mapped and used as it lies.
 *
 * All numbers are little-endian, offsets count from the start of the file.
 *
 *   offset  bytes  what
 *   0       16     "nowait-raw 1\n" and zeros
 *   16      8      size of the whole file
 *   24      4 x 4  classes, channels, height, width
 *   40      8 x 3  images of the train, valid and test splits
 *   64      32     the dataset's name, zeros behind it
 *   96      4 x 4  mean of each channel on the scale 0 to 1, f32
 *   112     4 x 4  deviation of each channel, f32
 *   128     8      offset of the class names: one a line, or 0
 *   136     8      their bytes
 *   144     8      offset of the mean image: channels x height x width f32 on the scale 0 to 1, or 0
 *   152     8 x 3  offsets of the labels of each split: i32
 *   176     8 x 3  offsets of the pixels of each split: bytes, image after image, plane after plane
 *   200     32     SHA-256 of the pixels of all splits in order, without the padding between them
 *   232     32     SHA-256 of everything before the pixels, with these 32 bytes zero
 *
 * Sections follow in that order, each at a multiple of 64; pixels begin at a multiple of 4096; gaps are zero. Opening
 * checks the second digest and every label; the first one is checked by nw_raw_verify, since it reads all pixels.
 */
#ifndef NW_DATA_RAW_H
#define NW_DATA_RAW_H

#include "data/dataset.h"

/* What the header says, as views into the file. `dataset` is filled except for memory. The class names are cut at line
 * ends into *names (classes pointers in one block that the caller frees); NULL if there are none. */
nw_status nw_raw_parse(nw_dataset *dataset, const uint8_t *data, size_t size, const char *name, char ***names);

/* Compares the pixels with their digest. */
nw_status nw_raw_verify(const uint8_t *data, size_t size, const char *name);

/* Writes a dataset whose pixels are in memory: beside `path`, synced, then renamed. */
nw_status nw_raw_write(const nw_dataset *dataset, const char *path);

#endif
