/*
 * idx.c - MNIST and Fashion-MNIST: four IDX files, gzipped or not; see idx.h.
 *
 * The two datasets have the same file names. So that one is not taken for the other, a folder is only accepted if its
 * name does not speak of the other one.
 */
#define _GNU_SOURCE 1
#include "data/idx.h"

#include "data/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_UNPACKED = 1 << 30 };

nw_status nw_idx_read(nw_array *array, const uint8_t *data, size_t size, const char *name)
{
    static const struct {
        uint8_t code;
        char kind;
        int item;
    } types[] = {{8, 'u', 1}, {9, 'i', 1}, {11, 'i', 2}, {12, 'i', 4}, {13, 'f', 4}, {14, 'f', 8}};
    *array = (nw_array){.big = true};
    NW_FAIL_IF(size < 4 || data[0] || data[1], NW_E_FILE,
               "%s: it does not begin as an IDX file does (two zero bytes at offset 0)", name);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].code == data[2]) {
            array->kind = types[i].kind;
            array->item = types[i].item;
        }
    NW_FAIL_IF(!array->item, NW_E_FILE, "%s: IDX type %d at offset 2 is unknown; images and labels have 8", name,
               data[2]);
    array->dims = data[3];
    NW_FAIL_IF(array->dims < 1 || array->dims > NW_ARRAY_DIMS, NW_E_FILE,
               "%s: the number of dimensions at offset 3 is %d; it must be 1 to %d", name, array->dims, NW_ARRAY_DIMS);
    size_t header = 4 + 4 * (size_t)array->dims;
    NW_FAIL_IF(size < header, NW_E_FILE, "%s: the file ends at offset %zu, inside its header", name, size);
    for (int i = 0; i < array->dims; i++) array->shape[i] = nw_get_be32(data + 4 + 4 * i);
    return nw_array_finish(array, data + header, size - header, name);
}

nw_status nw_idx_read_packed(nw_array *array, const uint8_t *data, size_t size, const char *name, size_t most,
                             uint8_t **owned)
{
    *owned = NULL;
    if (size < 2 || data[0] != 0x1f || data[1] != 0x8b) return nw_idx_read(array, data, size, name);
    NW_AUTOFREE uint8_t *plain = NULL;
    size_t unpacked;
    NW_TRY(nw_unpack(data, size, name, true, most, &plain, &unpacked));
    NW_TRY(nw_idx_read(array, plain, unpacked, name));
    *owned = plain;
    plain = NULL;
    return NW_OK;
}

/* ---- The two datasets -------------------------------------------------------------------------------------------- */

/* The path of "train-images" and the like, in one of the spellings that are around; empty if there is none. */
static bool find_file(char path[NW_PATH_SIZE], const char *dir, const char *what, int dims)
{
    static const char *const forms[] = {"%s-idx%d-ubyte", "%s-idx%d-ubyte.gz", "%s.idx%d-ubyte", "%s.idx%d-ubyte.gz"};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char name[64];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(name, sizeof name, forms[i], what, dims);
#pragma GCC diagnostic pop
        if (nw_path_put(path, dir, name) == NW_OK && nw_file_is_regular(path)) return true;
    }
    path[0] = 0;
    return false;
}

static bool present(const char *dir, bool fashion)
{
    char path[NW_PATH_SIZE];
    char *real = realpath(dir, NULL);
    const char *base = real && strrchr(real, '/') ? strrchr(real, '/') : dir;
    bool says_fashion = strcasestr(base, "fashion") != NULL, says_mnist = strcasestr(base, "mnist") != NULL;
    free(real);
    if (says_fashion != fashion && (says_fashion || says_mnist)) return false;
    return find_file(path, dir, "train-images", 3) || find_file(path, dir, "t10k-images", 3);
}

static bool mnist_present(const char *dir) { return present(dir, false); }
static bool fashion_present(const char *dir) { return present(dir, true); }

/* One IDX file as an array that lives as long as the dataset. */
static nw_status read_file(nw_dataset *d, const char *path, int dims, nw_array *array)
{
    nw_file file;
    uint8_t *owned;
    NW_TRY(nw_dataset_map(d, path, &file));
    NW_TRY(nw_idx_read_packed(array, file.data, file.size, path, MOST_UNPACKED, &owned));
    if (owned) NW_TRY(nw_dataset_adopt(d, owned));
    NW_FAIL_IF(array->kind != 'u' || array->item != 1 || array->dims != dims, NW_E_FILE,
               "%s: it has %d dimensions of type %c%d, not %d of bytes", path, array->dims, array->kind, array->item,
               dims);
    return NW_OK;
}

static nw_status read_split(nw_dataset *d, nw_split split, const char *dir, const char *stem)
{
    char images[NW_PATH_SIZE], labels[NW_PATH_SIZE], what[32];
    nw_array x, y;
    void *block = NULL;
    snprintf(what, sizeof what, "%s-images", stem);
    bool has_images = find_file(images, dir, what, 3);
    snprintf(what, sizeof what, "%s-labels", stem);
    bool has_labels = find_file(labels, dir, what, 1);
    if (!has_images && !has_labels) return NW_OK;
    NW_FAIL_IF(!has_images || !has_labels, NW_E_FILE, "%s has no file %s-%s of IDX, although the other half is there",
               dir, stem, has_images ? "labels" : "images");
    NW_TRY(read_file(d, images, 3, &x));
    NW_TRY(read_file(d, labels, 1, &y));
    NW_FAIL_IF(x.shape[0] != y.shape[0] || x.shape[0] == 0, NW_E_FILE, "%s has %llu images, but %s has %llu labels",
               images, (unsigned long long)x.shape[0], labels, (unsigned long long)y.shape[0]);
    NW_FAIL_IF(x.shape[1] < 1 || x.shape[1] > 4096 || x.shape[2] < 1 || x.shape[2] > 4096 ||
                   (d->height && (x.shape[1] != (uint64_t)d->height || x.shape[2] != (uint64_t)d->width)),
               NW_E_FILE, "%s: images of %llu x %llu pixels are out of range or unlike the training images", images,
               (unsigned long long)x.shape[1], (unsigned long long)x.shape[2]);
    d->height = (int)x.shape[1];
    d->width = (int)x.shape[2];
    NW_TRY(nw_dataset_alloc(d, y.count, sizeof(int32_t), &block));
    int32_t *to = block;
    for (uint64_t i = 0; i < y.count; i++) {
        NW_FAIL_IF(y.data[i] >= d->classes, NW_E_FILE, "%s: label %d of image %llu is not 0 to %d", labels, y.data[i],
                   (unsigned long long)i, d->classes - 1);
        to[i] = y.data[i];
    }
    d->split[split] = (nw_images){.count = (int64_t)x.shape[0], .labels = to, .pixels = x.data};
    return NW_OK;
}

static nw_status read_both(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    (void)o;
    d->classes = 10;
    d->channels = 1;
    NW_TRY(read_split(d, NW_SPLIT_TRAIN, dir, "train"));
    return read_split(d, NW_SPLIT_TEST, dir, "t10k");
}

static nw_status read_fashion(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    static const char *const names[] = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                        "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
    NW_TRY(read_both(d, o, dir));
    return nw_dataset_set_class_names(d, 10, names, NULL);
}

#define FILES "{train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without .gz"

const nw_reader nw_reader_mnist = {
    .name = "mnist",
    .summary = "handwritten digits, 60,000 + 10,000 of 1 x 28 x 28, 10 classes (IDX)",
    .expects = FILES,
    .folders = (const char *const[]){"mnist", "MNIST", "MNIST/raw", NULL},
    .mean = {0.1307f},
    .deviation = {0.3081f},
    .present = mnist_present,
    .open = read_both,
};

const nw_reader nw_reader_fashion_mnist = {
    .name = "fashion-mnist",
    .summary = "clothes, 60,000 + 10,000 of 1 x 28 x 28, 10 classes (IDX)",
    .expects = FILES " (Debian: apt install dataset-fashion-mnist)",
    .folders = (const char *const[]){"fashion-mnist", "FashionMNIST", "FashionMNIST/raw", NULL},
    .elsewhere = "/usr/share/datasets/fashion-mnist",
    .mean = {0.2860f},
    .deviation = {0.3530f},
    .present = fashion_present,
    .open = read_fashion,
};
