/*
 * Folder src/data: datasets: one file per format, downloads, augmentation, and the loader that makes batches of plain
 * floats ahead of time. It knows no network and no tensor. May include: base.
 *
 * dataset.h - images and labels of one dataset, split by split, as its files hold them: bytes, no augmentation.
 *
 * Small images lie decoded in memory: `pixels` has count x channels x height x width bytes, planes as in the CIFAR
 * files. Photographs stay files: `pixels` is NULL, height and width are 0, and the loader decodes them batch by batch
 * (nw_image_decode). Labels lie in [0, classes). A dataset does not change once it is open, so any number of threads
 * may read it.
 */
#ifndef NW_DATA_DATASET_H
#define NW_DATA_DATASET_H

#include "base/status.h"

typedef enum nw_split { NW_SPLIT_TRAIN, NW_SPLIT_VALID, NW_SPLIT_TEST, NW_SPLITS } nw_split;

typedef struct nw_images {
    int64_t count; /* 0: the dataset has no such split */
    const int32_t *labels;
    const uint8_t *pixels;
    char *const *paths; /* where pixels is NULL: `count` file names */
} nw_images;

typedef struct nw_dataset {
    char name[32];    /* "cifar10", "folder", ... */
    char source[512]; /* where the files are, for messages and records */
    int classes;
    int channels, height, width; /* height 0: files of any size */
    nw_images split[NW_SPLITS];
    char *const *class_names;    /* NULL where the files have none */
    float mean[4], deviation[4]; /* usual normalisation of a channel, on the scale 0..1 */
    const float *mean_image;     /* channels x height x width on the scale 0..1, where the files have one, or NULL */
    struct nw_dataset_memory *memory; /* what nw_dataset_close frees */
} nw_dataset;

/* Called now and then while bytes arrive; total is 0 where the server does not say. false stops the transfer. */
typedef bool (*nw_fetch_progress)(void *context, const char *file, int64_t done, int64_t total);

typedef struct nw_dataset_options {
    const char *name; /* cifar10 cifar100 cinic10 imagenet32 imagenet folder mnist fashion-mnist synthetic */
    const char *dir;  /* a root that holds datasets, or the dataset's own folder */
    bool download;    /* fetch what is missing, where the dataset has an address */
    double val_ratio; /* of the training images, class by class, moved to the validation split; 0: none */
    int classes;      /* imagenet, imagenet32: keep every (1000 / classes)-th class; synthetic: how many. 0: all */
    int64_t limit;    /* images of each split at most: the first ones, or evenly spread where the files are sorted by
                         class;    0: all */
    int channels, image_size;   /* synthetic only; 0: 3 and 32 */
    uint64_t seed;              /* synthetic only */
    nw_fetch_progress progress; /* of a download; may be NULL */
    void *progress_context;
    bool published; /* read the published files even where a nowait-raw file is beside them */
} nw_dataset_options;

/* Opens a dataset by name. What is missing is fetched if `download` says so; otherwise NW_E_FILE says where was looked,
 * which files were expected and how to get them. A file written by 'nowait data import' is preferred. */
nw_status nw_dataset_open(nw_dataset **dataset, const nw_dataset_options *options);
void nw_dataset_close(nw_dataset *dataset);
static inline void nw_dataset_autoclose(nw_dataset **dataset) { nw_dataset_close(*dataset); }

/* Deals the images of a split out to `parts` owners, unequally: of each class in turn, owners get shares that are drawn
 * from a symmetric Dirichlet distribution, large `alpha` for equal ones; an owner that has as many images as an equal
 * division would give gets none of later classes (Yurochkin et al., ICML 2019, and their code). Then each that has less
 * than `least` images, or than an equal division gives, takes the last ones of the owner that has most. owner[i] is
 * whose image i is; the same for the same seed and labels. */
nw_status nw_dataset_deal(const nw_dataset *dataset, nw_split split, int parts, double alpha, int64_t least,
                          uint64_t seed, uint16_t *owner);

/* The names that nw_dataset_open knows, with one line each. */
int nw_dataset_kinds(void);
const char *nw_dataset_kind_name(int index);
const char *nw_dataset_kind_summary(int index);

/* A decoded photograph: height x width x 3 bytes, interleaved RGB. */
typedef struct nw_bitmap {
    uint8_t *pixels;
    int height, width;
    size_t capacity; /* of pixels; grows as needed and is used again */
} nw_bitmap;

/* Decodes a JPEG or PNG file, whatever its name says. `least_side` > 0 lets the JPEG decoder shrink by 2, 4 or 8 while
 * both sides stay at least that long; the size before that goes to full_height and full_width. NW_E_FILE names file and
 * cause. */
nw_status nw_image_decode(const char *path, int least_side, nw_bitmap *bitmap, int *full_height, int *full_width);
nw_status nw_image_decode_memory(const uint8_t *data, size_t size, const char *name, int least_side, nw_bitmap *bitmap,
                                 int *full_height, int *full_width);
void nw_bitmap_free(nw_bitmap *bitmap);

#endif
