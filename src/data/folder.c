/*
 * folder.c - trees of image files: SPLIT/CLASS/anything.jpg. ImageNet, CINIC-10 and any folder of photographs.
 *
 * The training classes are the folders in train/; a class's index is the rank of its name in byte order, as in the
 * programs that these trees are made for. Files are taken in byte order of their names, those of a folder before those
 * of the folders in it, down to a fixed depth. What has no image's name ending is ignored and counted in `source`.
 * test/ is the test split and val/ (or valid/) the validation split; where there is no test/, val/ is the test split,
 * as ImageNet's is.
 *
 * CINIC-10's small pictures are decoded into memory, by all CPUs, each task its own range of images.
 */
#include "data/reader.h"

#include "base/machine.h"
#include "base/pool.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEPTH = 4, TEXT_CHUNK = 1 << 20 };

/* A growing list of names; the texts live in blocks of the dataset. */
typedef struct names {
    char **at;
    size_t count, capacity;
} names;

typedef struct walk {
    nw_dataset *dataset;
    char *text; /* the current block of texts */
    size_t text_left;
    names paths;
    int32_t *labels; /* beside paths */
    size_t label_capacity;
    int64_t ignored;
} walk;

static nw_status no_memory(const char *what) { return NW_FAIL(NW_E_MEMORY, "no memory for the names in %s", what); }

static nw_status add_name(names *list, char *name, const char *where)
{
    if (list->count == list->capacity) {
        size_t wanted = list->capacity ? list->capacity * 2 : 256;
        char **more = realloc(list->at, wanted * sizeof *more);
        if (!more) return no_memory(where);
        list->at = more;
        list->capacity = wanted;
    }
    list->at[list->count++] = name;
    return NW_OK;
}

/* A copy of dir/name that lives as long as the dataset. */
static nw_status keep_path(walk *w, const char *dir, const char *name, char **out)
{
    size_t length = strlen(dir) + 1 + strlen(name) + 1;
    if (length > w->text_left) {
        void *block = NULL;
        size_t bytes = length > TEXT_CHUNK ? length : TEXT_CHUNK;
        NW_TRY(nw_dataset_alloc(w->dataset, bytes, 1, &block));
        w->text = block;
        w->text_left = bytes;
    }
    snprintf(w->text, length, "%s/%s", dir, name);
    *out = w->text;
    w->text += length;
    w->text_left -= length;
    return NW_OK;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void free_names(names *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->at[i]);
    free(list->at);
    *list = (names){0};
}

/* All entries of a folder but hidden ones, sorted. */
static nw_status list_folder(const char *dir, names *list)
{
    nw_status status = NW_OK;
    *list = (names){0};
    DIR *d = opendir(dir);
    NW_FAIL_IF(!d, NW_E_FILE, "the folder %s cannot be read: %s", dir, strerror(errno));
    for (struct dirent *e; status == NW_OK && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        char *name = strdup(e->d_name);
        status = name ? add_name(list, name, dir) : no_memory(dir);
    }
    closedir(d);
    if (status != NW_OK)
        free_names(list);
    else if (list->count)
        qsort(list->at, list->count, sizeof *list->at, by_bytes);
    return status;
}

static bool is_image_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

static nw_status add_image(walk *w, const char *dir, const char *name, int32_t label)
{
    char *path = NULL;
    NW_TRY(keep_path(w, dir, name, &path));
    if (w->paths.count == w->label_capacity) {
        size_t wanted = w->label_capacity ? w->label_capacity * 2 : 256;
        int32_t *more = realloc(w->labels, wanted * sizeof *more);
        if (!more) return no_memory(dir);
        w->labels = more;
        w->label_capacity = wanted;
    }
    w->labels[w->paths.count] = label;
    return add_name(&w->paths, path, dir);
}

/* The images of one class: files first, then folders. Names that look like images need no look at the disk. */
static nw_status walk_class(walk *w, const char *dir, int32_t label, int depth)
{
    names list;
    nw_status status = NW_OK;
    NW_TRY(list_folder(dir, &list));
    for (size_t i = 0; i < list.count && status == NW_OK; i++)
        if (is_image_name(list.at[i])) status = add_image(w, dir, list.at[i], label);
    for (size_t i = 0; i < list.count && status == NW_OK; i++) {
        char path[NW_PATH_SIZE];
        if (is_image_name(list.at[i])) continue;
        status = nw_path_put(path, dir, list.at[i]);
        if (status == NW_OK && depth < MOST_DEPTH && nw_file_is_directory(path))
            status = walk_class(w, path, label, depth + 1);
        else
            w->ignored++;
    }
    free_names(&list);
    return status;
}

/* The names of the class folders in dir. */
static nw_status list_classes(const char *dir, names *classes, int64_t *ignored)
{
    names list;
    size_t kept = 0;
    NW_TRY(list_folder(dir, &list));
    for (size_t i = 0; i < list.count; i++) {
        char path[NW_PATH_SIZE];
        if (nw_path_put(path, dir, list.at[i]) == NW_OK && nw_file_is_directory(path)) {
            list.at[kept++] = list.at[i];
        } else {
            free(list.at[i]);
            ++*ignored;
        }
    }
    list.count = kept;
    *classes = list;
    return NW_OK;
}

static int32_t class_index(const names *classes, const char *name)
{
    char *const *found = bsearch(&name, classes->at, classes->count, sizeof *classes->at, by_bytes);
    return found ? (int32_t)(found - classes->at) : -1;
}

/* Hands what was gathered over to the dataset. */
static nw_status finish_split(walk *w, nw_split split, const char *dir)
{
    NW_FAIL_IF(w->paths.count == 0, NW_E_FILE, "%s has class folders, but no .jpg, .jpeg or .png file in them", dir);
    int32_t *labels = w->labels;
    char **paths = w->paths.at;
    size_t count = w->paths.count;
    w->labels = NULL;
    w->label_capacity = 0;
    w->paths = (names){0};
    nw_status status = nw_dataset_adopt(w->dataset, labels);
    if (status != NW_OK) free(paths);
    if (status == NW_OK) status = nw_dataset_adopt(w->dataset, paths);
    w->dataset->split[split] = (nw_images){.count = (int64_t)count, .labels = labels, .paths = paths};
    return status;
}

static nw_status walk_split(walk *w, nw_split split, const char *dir, const names *classes)
{
    names here;
    nw_status status = NW_OK;
    NW_TRY(list_classes(dir, &here, &w->ignored));
    for (size_t i = 0; i < here.count && status == NW_OK; i++) {
        char path[NW_PATH_SIZE];
        int32_t label = class_index(classes, here.at[i]);
        if (label < 0)
            status = NW_FAIL(NW_E_FILE, "%s has a class '%s' that the training images do not have", dir, here.at[i]);
        if (status == NW_OK) status = nw_path_put(path, dir, here.at[i]);
        if (status == NW_OK) status = walk_class(w, path, label, 1);
    }
    free_names(&here);
    if (status == NW_OK) status = finish_split(w, split, dir);
    free(w->labels);
    free(w->paths.at);
    w->labels = NULL;
    w->label_capacity = 0;
    w->paths = (names){0};
    return status;
}

static const char *class_at(void *context, int index, size_t *length)
{
    const names *classes = context;
    *length = strlen(classes->at[index]);
    return classes->at[index];
}

/* The folder of a split in one of its spellings; empty if there is none. */
static bool find_split(char path[NW_PATH_SIZE], const char *dir, nw_split split)
{
    static const char *const spellings[NW_SPLITS][4] = {
        {"train", NULL}, {"val", "valid", "validation", NULL}, {"test", NULL}};
    for (int i = 0; spellings[split][i]; i++)
        if (nw_path_put(path, dir, spellings[split][i]) == NW_OK && nw_file_is_directory(path)) return true;
    path[0] = 0;
    return false;
}

static bool present(const char *dir)
{
    char path[NW_PATH_SIZE];
    names classes;
    int64_t ignored = 0;
    if (!find_split(path, dir, NW_SPLIT_TRAIN) || list_classes(path, &classes, &ignored) != NW_OK) return false;
    bool some = classes.count > 0;
    free_names(&classes);
    return some;
}

static nw_status read_splits(walk *w, const char *dir, const names *classes)
{
    char train[NW_PATH_SIZE], valid[NW_PATH_SIZE], test[NW_PATH_SIZE];
    find_split(train, dir, NW_SPLIT_TRAIN);
    find_split(valid, dir, NW_SPLIT_VALID);
    find_split(test, dir, NW_SPLIT_TEST);
    NW_TRY(walk_split(w, NW_SPLIT_TRAIN, train, classes));
    if (test[0]) NW_TRY(walk_split(w, NW_SPLIT_TEST, test, classes));
    if (valid[0]) NW_TRY(walk_split(w, test[0] ? NW_SPLIT_VALID : NW_SPLIT_TEST, valid, classes));
    return nw_dataset_set_class_names(w->dataset, (int)classes->count, class_at, (void *)classes);
}

static nw_status read_tree(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    char train[NW_PATH_SIZE];
    walk w = {.dataset = d};
    names classes;
    (void)o;
    find_split(train, dir, NW_SPLIT_TRAIN);
    NW_TRY(list_classes(train, &classes, &w.ignored));
    d->channels = 3;
    d->classes = (int)classes.count;
    w.ignored = 0; /* the walk counts them again */
    nw_status status = classes.count < 2 || classes.count > 1 << 20
                           ? NW_FAIL(NW_E_FILE, "%s has %zu class folders; at least 2 are needed", train, classes.count)
                           : read_splits(&w, dir, &classes);
    free_names(&classes);
    if (status == NW_OK && w.ignored > 0) {
        size_t used = strlen(d->source);
        snprintf(d->source + used, sizeof d->source - used, " (%lld other files ignored)", (long long)w.ignored);
    }
    return status;
}

/* ---- Decoding into memory ---------------------------------------------------------------------------------------- */

enum { PER_TASK = 64 };

typedef struct decode_job {
    const nw_dataset *dataset;
    const nw_images *images;
    uint8_t *pixels;
    nw_bitmap *bitmaps;     /* one a thread */
    _Atomic int64_t failed; /* the first image that failed, or count */
} decode_job;

static nw_status decode_one(const decode_job *job, int64_t i, nw_bitmap *bitmap)
{
    const nw_dataset *d = job->dataset;
    size_t plane = (size_t)d->height * (size_t)d->width;
    NW_TRY(nw_image_decode(job->images->paths[i], 0, bitmap, NULL, NULL));
    NW_FAIL_IF(bitmap->height != d->height || bitmap->width != d->width, NW_E_FILE,
               "%s has %d x %d pixels, but the images of %s have %d x %d", job->images->paths[i], bitmap->height,
               bitmap->width, d->name, d->height, d->width);
    uint8_t *to = job->pixels + (size_t)i * plane * 3;
    for (size_t p = 0; p < plane; p++)
        for (size_t c = 0; c < 3; c++) to[c * plane + p] = bitmap->pixels[3 * p + c];
    return NW_OK;
}

static void decode_some(void *context, int index, int worker)
{
    decode_job *job = context;
    int64_t from = (int64_t)index * PER_TASK, to = from + PER_TASK;
    for (int64_t i = from; i < to && i < job->images->count; i++) {
        if (decode_one(job, i, &job->bitmaps[worker]) == NW_OK) continue;
        int64_t first = atomic_load(&job->failed);
        while (i < first && !atomic_compare_exchange_weak(&job->failed, &first, i)) continue;
        return;
    }
}

static nw_status decode_all(nw_pool *pool, decode_job *job)
{
    int threads = nw_pool_threads(pool);
    job->bitmaps = calloc((size_t)threads, sizeof *job->bitmaps);
    NW_FAIL_IF(!job->bitmaps, NW_E_MEMORY, "no memory to decode with %d threads", threads);
    atomic_store(&job->failed, job->images->count);
    nw_pool_run(pool, (int)((job->images->count + PER_TASK - 1) / PER_TASK), decode_some, job);
    /* Messages belong to threads: the first failure is repeated here to have its own. */
    nw_status status = NW_OK;
    if (job->failed < job->images->count) status = decode_one(job, job->failed, &job->bitmaps[0]);
    for (int i = 0; i < threads; i++) nw_bitmap_free(&job->bitmaps[i]);
    free(job->bitmaps);
    return status;
}

nw_status nw_dataset_decode_split(nw_dataset *d, nw_split split)
{
    nw_images *images = &d->split[split];
    nw_pool *pool;
    void *block = NULL;
    if (images->count == 0) return NW_OK;
    NW_TRY(nw_dataset_alloc(d, (uint64_t)images->count, nw_dataset_image_bytes(d), &block));
    decode_job job = {.dataset = d, .images = images, .pixels = block};
    NW_TRY(nw_pool_create(&pool, nw_machine_allowed_cpus()));
    nw_status status = decode_all(pool, &job);
    nw_pool_free(pool);
    if (status == NW_OK) {
        images->pixels = block;
        nw_dataset_release(d, images->paths);
        images->paths = NULL;
    }
    return status;
}

static nw_status read_cinic10(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    NW_TRY(read_tree(d, o, dir));
    NW_FAIL_IF(d->classes != 10, NW_E_FILE, "%s has %d classes; CINIC-10 has 10, and other trees are called 'folder'",
               dir, d->classes);
    d->height = d->width = 32;
    for (int s = 0; s < NW_SPLITS; s++) NW_TRY(nw_dataset_decode_split(d, (nw_split)s));
    return NW_OK;
}

#define TREE "train/CLASS/*.{jpg,jpeg,png} and test/CLASS/* or val/CLASS/*"

const nw_reader nw_reader_cinic10 = {
    .name = "cinic10",
    .summary = "90,000 each to train, validate and test, 3 x 32 x 32, 10 classes (PNG tree)",
    .expects = "train/CLASS/*.png, valid/CLASS/*.png and test/CLASS/*.png",
    .folders = (const char *const[]){"cinic10", "cinic-10", "CINIC-10", NULL},
    .mean = {0.47889522f, 0.47227842f, 0.43047404f},
    .deviation = {0.24205776f, 0.23828046f, 0.25874835f},
    .present = present,
    .open = read_cinic10,
};

const nw_reader nw_reader_imagenet = {
    .name = "imagenet",
    .summary = "ImageNet's photographs in class folders, JPEG",
    .expects = TREE,
    .folders = (const char *const[]){"imagenet", "ImageNet", "ILSVRC2012", "imagenette-sample", NULL},
    .mean = {0.485f, 0.456f, 0.406f},
    .deviation = {0.229f, 0.224f, 0.225f},
    .some_classes = true,
    .present = present,
    .open = read_tree,
};

const nw_reader nw_reader_folder = {
    .name = "folder",
    .summary = "any photographs in class folders, JPEG or PNG",
    .expects = TREE,
    .mean = {0.485f, 0.456f, 0.406f},
    .deviation = {0.229f, 0.224f, 0.225f},
    .some_classes = true,
    .present = present,
    .open = read_tree,
};
