/*
 * reader.h - what the file of a dataset format gives to dataset.c, and what such files share: the memory that a dataset
 * owns, and making room for images. A new format is one new file and one line in dataset.c.
 */
#ifndef NW_DATA_READER_H
#define NW_DATA_READER_H

#include "data/bytes.h"
#include "data/dataset.h"

typedef struct nw_reader {
    const char *name, *summary;
    const char *expects;         /* the files it looks for, for the message when they are missing */
    const char *const *folders;  /* where they may lie below a root, NULL at the end; tried after the root itself */
    const char *elsewhere;       /* a folder of the system that is tried last, or NULL */
    float mean[4], deviation[4]; /* the usual normalisation */
    bool no_files;               /* made, not read */
    bool some_classes;           /* takes part of the classes (nw_dataset_options.classes) */
    bool (*present)(const char *dir);
    nw_status (*open)(nw_dataset *dataset, const nw_dataset_options *options, const char *dir);
} nw_reader;

extern const nw_reader nw_reader_cifar10, nw_reader_cifar100, nw_reader_cinic10, nw_reader_imagenet32,
    nw_reader_imagenet, nw_reader_folder, nw_reader_mnist, nw_reader_fashion_mnist, nw_reader_synthetic;

/* Memory that lives as long as the dataset. What it is for goes into the message when there is not enough. */
nw_status nw_dataset_alloc(nw_dataset *dataset, uint64_t count, size_t item, void **out);
nw_status nw_dataset_adopt(nw_dataset *dataset, void *block);    /* from malloc; freed even if this fails */
void nw_dataset_release(nw_dataset *dataset, const void *block); /* frees one of those early; unknown ones stay */
nw_status nw_dataset_map(nw_dataset *dataset, const char *path, nw_file *file);

/* Room for `count` decoded images of the dataset's shape in a split, to be filled through the two pointers. */
nw_status nw_dataset_room(nw_dataset *dataset, nw_split split, uint64_t count, int32_t **labels, uint8_t **pixels);
static inline size_t nw_dataset_image_bytes(const nw_dataset *dataset)
{
    return (size_t)dataset->channels * (size_t)dataset->height * (size_t)dataset->width;
}

/* A copy of some class names, with their lengths; NULL: they end with zeros. */
nw_status nw_dataset_set_class_names(nw_dataset *dataset, int count, const char *const *names, const size_t *lengths);

/* Decodes all files of a split that has only paths into memory, in parallel; each must have the dataset's shape. */
nw_status nw_dataset_decode_split(nw_dataset *dataset, nw_split split);

/* select.c: fewer classes, a validation split, fewer images; in this order. */
nw_status nw_dataset_keep_classes(nw_dataset *dataset, int classes);
nw_status nw_dataset_split_validation(nw_dataset *dataset, double ratio);
nw_status nw_dataset_limit(nw_dataset *dataset, int64_t limit);

#endif
