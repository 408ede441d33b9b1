/*
 * imagenet32.c - ImageNet at 32 x 32: ten training files and one for validation, pickles or npz files; see
 * python_batch.h.
 *
 * The validation images are the test split, as in the literature. Labels are 1 to 1000 in the files. A folder may hold
 * only the validation file, or only the training files; some of the ten is an error, since it is a download cut short.
 */
#include "data/python_batch.h"
#include "data/reader.h"

#include <stdio.h>

enum { FILES = 10, CLASSES = 1000 };

/* train_data_batch_N (N = 1 to 10) or val_data (N = 0) in one of the usual places; empty if there is none. */
static bool find_file(char path[NW_PATH_SIZE], const char *dir, int n)
{
    static const char *const folders[2][4] = {{"", "Imagenet32_val/", "Imagenet32_val_npz/", "val/"},
                                              {"", "Imagenet32_train/", "Imagenet32_train_npz/", "train/"}};
    for (int i = 0; i < 4; i++)
        for (int npz = 0; npz < 2; npz++) {
            char name[64];
            if (n == 0)
                snprintf(name, sizeof name, "%sval_data%s", folders[0][i], npz ? ".npz" : "");
            else
                snprintf(name, sizeof name, "%strain_data_batch_%d%s", folders[1][i], n, npz ? ".npz" : "");
            if (nw_path_put(path, dir, name) == NW_OK && nw_file_is_regular(path)) return true;
        }
    path[0] = 0;
    return false;
}

static bool present(const char *dir)
{
    char path[NW_PATH_SIZE];
    for (int n = 0; n <= FILES; n++)
        if (find_file(path, dir, n)) return true;
    return false;
}

static nw_status read_mean(nw_dataset *d, const nw_python_batch *batch)
{
    size_t count = nw_dataset_image_bytes(d);
    void *block = NULL;
    bool found;
    NW_TRY(nw_dataset_alloc(d, count, sizeof(float), &block));
    float *mean = block;
    NW_TRY(nw_python_batch_mean(batch, count, mean, &found));
    if (!found) return NW_OK;
    for (size_t i = 0; i < count; i++) mean[i] *= 1.0f / 255.0f;
    d->mean_image = mean;
    return NW_OK;
}

static nw_status read_file(nw_dataset *d, const char *path, uint64_t expected, int32_t *labels, uint8_t *pixels)
{
    NW_CLEANUP(nw_python_batch_close) nw_python_batch batch = {0};
    NW_TRY(nw_python_batch_open(&batch, path, "labels"));
    NW_FAIL_IF(batch.count != expected, NW_E_FILE, "%s changes while it is read", path);
    NW_TRY(nw_python_batch_labels(&batch, 1, CLASSES, labels));
    NW_TRY(nw_python_batch_pixels(&batch, nw_dataset_image_bytes(d), pixels));
    return d->mean_image ? NW_OK : read_mean(d, &batch);
}

static nw_status read_split(nw_dataset *d, nw_split split, const char *dir, int first, int last)
{
    char path[NW_PATH_SIZE];
    uint64_t counts[FILES + 1], total = 0;
    int there = 0, gap = 0;
    for (int n = first; n <= last; n++)
        if (find_file(path, dir, n))
            there++;
        else if (!gap)
            gap = n;
    if (there == 0) return NW_OK;
    NW_FAIL_IF(there <= last - first, NW_E_FILE,
               "%s has %d of the ten training files, but no train_data_batch_%d; complete it with 'nowait data fetch "
               "imagenet32'",
               dir, there, gap);
    for (int n = first; n <= last; n++) {
        find_file(path, dir, n);
        NW_TRY(nw_python_batch_count(path, "labels", &counts[n]));
        total += counts[n];
    }
    NW_FAIL_IF(total == 0, NW_E_FILE, "%s: its files have no images", dir);
    int32_t *labels;
    uint8_t *pixels;
    NW_TRY(nw_dataset_room(d, split, total, &labels, &pixels));
    for (int n = first; n <= last; n++) {
        find_file(path, dir, n);
        NW_TRY(read_file(d, path, counts[n], labels, pixels));
        labels += counts[n];
        pixels += counts[n] * nw_dataset_image_bytes(d);
    }
    return NW_OK;
}

static nw_status read_all(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    (void)o;
    d->classes = CLASSES;
    d->channels = 3;
    d->height = d->width = 32;
    NW_TRY(read_split(d, NW_SPLIT_TRAIN, dir, 1, FILES));
    return read_split(d, NW_SPLIT_TEST, dir, 0, 0);
}

const nw_reader nw_reader_imagenet32 = {
    .name = "imagenet32",
    .summary = "ImageNet at 3 x 32 x 32, 1,281,167 + 50,000, 1000 classes (pickles or npz)",
    .expects = "train_data_batch_1 to train_data_batch_10 and val_data, each with or without .npz",
    .folders = (const char *const[]){"imagenet32", "Imagenet32", "ImageNet32", "imagenet32-val-subset", NULL},
    .mean = {0.485f, 0.456f, 0.406f},
    .deviation = {0.229f, 0.224f, 0.225f},
    .some_classes = true,
    .present = present,
    .open = read_all,
};
