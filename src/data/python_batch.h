/*
 * python_batch.h - a file with a batch of images and labels as Python programs write it: a pickle of a dict, or an npz
 * file.
 *
 * `data` is an array of bytes [n, pixels] (more dimensions are the same bytes), or a list of n such rows; the labels
 * are a list or an array of whole numbers under a key that the caller names; `mean` is optional. This serves the Python
 * version of CIFAR and both versions of ImageNet32.
 */
#ifndef NW_DATA_PYTHON_BATCH_H
#define NW_DATA_PYTHON_BATCH_H

#include "data/bytes.h"
#include "data/pickle.h"

typedef struct nw_python_batch {
    nw_file file;
    bool mapped; /* the file is the batch's own */
    const char *name;
    nw_pickle *pickle; /* NULL: npz */
    const nw_pickle_value *data, *labels;
    nw_array label_array; /* where the labels are an array */
    uint8_t *label_memory;
    uint64_t count;
} nw_python_batch;

/* Opens a file and counts its labels; `name` is its path and must outlive the batch. */
nw_status nw_python_batch_open(nw_python_batch *batch, const char *name, const char *label_key);
nw_status nw_python_batch_open_memory(nw_python_batch *batch, const uint8_t *data, size_t size, const char *name,
                                      const char *label_key);
void nw_python_batch_close(nw_python_batch *batch);
/* How many labels a file has. */
nw_status nw_python_batch_count(const char *name, const char *label_key, uint64_t *count);

/* Labels minus `first`, each checked against `classes`; and the pixels, `bytes` an image. */
nw_status nw_python_batch_labels(const nw_python_batch *batch, int first, int classes, int32_t *labels);
nw_status nw_python_batch_pixels(const nw_python_batch *batch, size_t bytes, uint8_t *pixels);

/* The mean image, `count` numbers as the file scales them; *found is false if there is none. */
nw_status nw_python_batch_mean(const nw_python_batch *batch, size_t count, float *mean, bool *found);

#endif
