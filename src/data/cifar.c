/*
 * cifar.c - CIFAR-10 and CIFAR-100, the binary and the Python version; see cifar.h and python_batch.h.
 */
#include "data/cifar.h"

#include "data/python_batch.h"
#include "data/reader.h"

#include <stdio.h>
#include <string.h>

nw_status nw_cifar_count(size_t size, const char *name, int label_bytes, uint64_t *count)
{
    size_t record = (size_t)label_bytes + NW_CIFAR_PIXELS;
    *count = size / record;
    NW_FAIL_IF(
        size == 0 || size % record, NW_E_FILE,
        "%s has %zu bytes, which is not a whole number of records of %zu: the record at offset %zu is cut; get the "
        "file again",
        name, size, record, size - size % record);
    return NW_OK;
}

nw_status nw_cifar_parse(const uint8_t *data, size_t size, const char *name, int label_bytes, int classes,
                         int32_t *labels, uint8_t *pixels)
{
    uint64_t count;
    NW_TRY(nw_cifar_count(size, name, label_bytes, &count));
    size_t record = (size_t)label_bytes + NW_CIFAR_PIXELS;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *at = data + i * record + label_bytes;
        NW_FAIL_IF(at[-1] >= classes, NW_E_FILE, "%s: label %d at offset %llu is not 0 to %d; is it the right file?",
                   name, at[-1], (unsigned long long)(at - data - 1), classes - 1);
        labels[i] = at[-1];
        memcpy(pixels + i * NW_CIFAR_PIXELS, at, NW_CIFAR_PIXELS);
    }
    return NW_OK;
}

/* What distinguishes the two datasets and the two versions. */
typedef struct version {
    const char *const *train; /* NULL at the end */
    const char *test, *names, *names_key;
    const char *label_key; /* NULL: binary */
    int label_bytes, classes;
} version;

static const version versions[2][2] = {
    {{(const char *const[]){"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                            "data_batch_5.bin", NULL},
      "test_batch.bin", "batches.meta.txt", NULL, NULL, 1, 10},
     {(const char *const[]){"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", NULL},
      "test_batch", "batches.meta", "label_names", "labels", 0, 10}},
    {{(const char *const[]){"train.bin", NULL}, "test.bin", "fine_label_names.txt", NULL, NULL, 2, 100},
     {(const char *const[]){"train", NULL}, "test", "meta", "fine_label_names", "fine_labels", 0, 100}},
};

/* The version whose test file is there, or NULL. Folders called "train" and "test" are another dataset's. */
static const version *find_version(const version of[2], const char *dir)
{
    char path[NW_PATH_SIZE];
    for (int i = 0; i < 2; i++)
        if (nw_path_put(path, dir, of[i].test) == NW_OK && nw_file_is_regular(path)) return &of[i];
    return NULL;
}

static bool cifar10_present(const char *dir) { return find_version(versions[0], dir) != NULL; }
static bool cifar100_present(const char *dir) { return find_version(versions[1], dir) != NULL; }

static nw_status count_file(const version *v, const char *path, uint64_t *count)
{
    *count = 0;
    if (v->label_key) return nw_python_batch_count(path, v->label_key, count);
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    NW_TRY(nw_file_map(&file, path));
    return nw_cifar_count(file.size, path, v->label_bytes, count);
}

static nw_status read_file(const version *v, const char *path, uint64_t count, int32_t *labels, uint8_t *pixels)
{
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    NW_CLEANUP(nw_python_batch_close) nw_python_batch batch = {0};
    if (v->label_key) {
        NW_TRY(nw_python_batch_open(&batch, path, v->label_key));
        NW_FAIL_IF(batch.count != count, NW_E_FILE, "%s changes while it is read", path);
        NW_TRY(nw_python_batch_labels(&batch, 0, v->classes, labels));
        return nw_python_batch_pixels(&batch, NW_CIFAR_PIXELS, pixels);
    }
    NW_TRY(nw_file_map(&file, path));
    NW_FAIL_IF(file.size / (size_t)(v->label_bytes + NW_CIFAR_PIXELS) != count, NW_E_FILE,
               "%s changes while it is read", path);
    return nw_cifar_parse(file.data, file.size, path, v->label_bytes, v->classes, labels, pixels);
}

static nw_status read_split(nw_dataset *d, nw_split split, const version *v, const char *dir, const char *const *files)
{
    enum { MOST = 8 };
    char path[NW_PATH_SIZE];
    uint64_t counts[MOST], total = 0;
    int32_t *labels;
    uint8_t *pixels;
    for (int i = 0; files[i]; i++) {
        NW_TRY(nw_path_put(path, dir, files[i]));
        NW_TRY(count_file(v, path, &counts[i]));
        total += counts[i];
    }
    NW_FAIL_IF(total == 0, NW_E_FILE, "%s: %s has no images", dir, files[0]);
    NW_TRY(nw_dataset_room(d, split, total, &labels, &pixels));
    for (int i = 0; files[i]; i++) {
        NW_TRY(nw_path_put(path, dir, files[i]));
        NW_TRY(read_file(v, path, counts[i], labels, pixels));
        labels += counts[i];
        pixels += counts[i] * NW_CIFAR_PIXELS;
    }
    return NW_OK;
}

/* Class names: a line each in the binary version, a list in a pickle in the other. */
typedef struct name_lines {
    const char *at[128];
    size_t length[128];
} name_lines;

static int split_lines(name_lines *lines, const nw_file *file)
{
    int count = 0;
    for (size_t at = 0; at < file->size && count < 128;) {
        const uint8_t *begin = file->data + at, *end = memchr(begin, '\n', file->size - at);
        size_t length = end ? (size_t)(end - begin) : file->size - at;
        if (length > 0) {
            lines->at[count] = (const char *)begin;
            lines->length[count++] = length;
        }
        at += length + 1;
    }
    return count;
}

static int list_names(name_lines *lines, const nw_pickle *pickle, const char *key)
{
    const nw_pickle_value *list = nw_pickle_find(nw_pickle_root(pickle), key);
    if (!list || list->kind != NW_PICKLE_LIST || list->count > 128) return 0;
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->items[i]->kind != NW_PICKLE_BYTES) return 0;
        lines->at[i] = (const char *)list->items[i]->bytes;
        lines->length[i] = list->items[i]->size;
    }
    return (int)list->count;
}

/* A file of names that is not there, or does not fit, costs the names and nothing else. */
static nw_status read_names(nw_dataset *d, const version *v, const char *dir)
{
    char path[NW_PATH_SIZE];
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    nw_pickle *pickle = NULL;
    name_lines lines;
    NW_TRY(nw_path_put(path, dir, v->names));
    if (!nw_file_is_regular(path)) return NW_OK;
    NW_TRY(nw_file_map(&file, path));
    int count = 0;
    if (!v->names_key)
        count = split_lines(&lines, &file);
    else if (nw_pickle_read(&pickle, file.data, file.size, path) == NW_OK)
        count = list_names(&lines, pickle, v->names_key);
    nw_status status = NW_OK;
    if (count == v->classes) status = nw_dataset_set_class_names(d, count, lines.at, lines.length);
    nw_pickle_free(pickle);
    return status;
}

static nw_status read_version(nw_dataset *d, const version *v, const char *dir)
{
    d->classes = v->classes;
    d->channels = 3;
    d->height = d->width = 32;
    NW_TRY(read_split(d, NW_SPLIT_TRAIN, v, dir, v->train));
    NW_TRY(read_split(d, NW_SPLIT_TEST, v, dir, (const char *const[]){v->test, NULL}));
    return read_names(d, v, dir);
}

static nw_status read_cifar10(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    (void)o;
    return read_version(d, find_version(versions[0], dir), dir);
}

static nw_status read_cifar100(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    (void)o;
    return read_version(d, find_version(versions[1], dir), dir);
}

const nw_reader nw_reader_cifar10 = {
    .name = "cifar10",
    .summary = "50,000 + 10,000 photographs of 3 x 32 x 32, 10 classes (binary or Python version)",
    .expects = "data_batch_1.bin to data_batch_5.bin and test_batch.bin (binary version), or the same names without "
               ".bin (Python version)",
    .folders = (const char *const[]){"cifar-10-batches-bin", "cifar-10-batches-py", "cifar10",
                                     "cifar10/cifar-10-batches-bin", "cifar10/cifar-10-batches-py", NULL},
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .deviation = {0.2023f, 0.1994f, 0.2010f},
    .present = cifar10_present,
    .open = read_cifar10,
};

const nw_reader nw_reader_cifar100 = {
    .name = "cifar100",
    .summary = "50,000 + 10,000 photographs of 3 x 32 x 32, 100 classes (binary or Python version)",
    .expects = "train.bin and test.bin (binary version), or the files train and test (Python version)",
    .folders = (const char *const[]){"cifar-100-binary", "cifar-100-python", "cifar100", "cifar100/cifar-100-binary",
                                     "cifar100/cifar-100-python", NULL},
    .mean = {0.4914f, 0.4822f, 0.4465f},
    .deviation = {0.2023f, 0.1994f, 0.2010f},
    .present = cifar100_present,
    .open = read_cifar100,
};
