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
#include "base/text.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_DEPTH = 4, TEXT_CHUNK = 1 << 20 };

/* The images of a split, as they are found. */
typedef struct walk {
    nw_dataset *dataset;
    char *text; /* the current block of texts, which is the dataset's */
    size_t text_left, count;
    char **paths;
    int32_t *labels; /* beside paths */
    int64_t ignored;
} walk;

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

static bool is_hidden(const char *name) { return name[0] == '.'; }

static bool is_image_name(const char *name)
{
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && !is_hidden(name) && i < sizeof endings / sizeof endings[0]; i++)
        if (strcasecmp(dot, endings[i]) == 0) return true;
    return false;
}

static nw_status add_image(walk *w, const char *dir, const char *name, int32_t label)
{
    NW_FAIL_IF(!nw_grow(&w->labels, w->count, sizeof *w->labels) || !nw_grow(&w->paths, w->count, sizeof *w->paths),
               NW_E_MEMORY, "no memory for the names in %s", dir);
    NW_TRY(keep_path(w, dir, name, &w->paths[w->count]));
    w->labels[w->count++] = label;
    return NW_OK;
}

/* The images of one class: files first, then folders. Names that look like images need no look at the disk. */
static nw_status walk_class(walk *w, const char *dir, int32_t label, int depth)
{
    NW_CLEANUP(nw_names_free) nw_names list = {0};
    NW_TRY(nw_directory_list(&list, dir));
    for (int i = 0; i < list.count; i++)
        if (is_image_name(list.at[i])) NW_TRY(add_image(w, dir, list.at[i], label));
    for (int i = 0; i < list.count; i++) {
        char path[NW_PATH_SIZE];
        if (is_image_name(list.at[i]) || is_hidden(list.at[i])) continue;
        NW_TRY(nw_path_put(path, dir, list.at[i]));
        if (depth < MOST_DEPTH && nw_file_is_directory(path))
            NW_TRY(walk_class(w, path, label, depth + 1));
        else
            w->ignored++;
    }
    return NW_OK;
}

/* The names of the class folders in dir. */
static nw_status list_classes(const char *dir, nw_names *classes, int64_t *ignored)
{
    int kept = 0;
    NW_TRY(nw_directory_list(classes, dir));
    for (int i = 0; i < classes->count; i++) {
        char path[NW_PATH_SIZE], *name = classes->at[i];
        bool class = !is_hidden(name) && nw_path_put(path, dir, name) == NW_OK && nw_file_is_directory(path);
        *ignored += !class && !is_hidden(name);
        if (class)
            classes->at[kept++] = name;
        else
            free(name);
    }
    classes->count = kept;
    return NW_OK;
}

static int by_bytes(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int32_t class_index(const nw_names *classes, const char *name)
{
    char *const *found = bsearch(&name, classes->at, (size_t)classes->count, sizeof *classes->at, by_bytes);
    return found ? (int32_t)(found - classes->at) : -1;
}

/* Hands what was gathered over to the dataset. */
static nw_status finish_split(walk *w, nw_split split, const char *dir)
{
    NW_FAIL_IF(w->count == 0, NW_E_FILE, "%s has class folders, but no .jpg, .jpeg or .png file in them", dir);
    int32_t *labels = w->labels;
    char **paths = w->paths;
    w->dataset->split[split] = (nw_images){.count = (int64_t)w->count, .labels = labels, .paths = paths};
    w->labels = NULL;
    NW_TRY(nw_dataset_adopt(w->dataset, labels));
    w->paths = NULL;
    w->count = 0;
    return nw_dataset_adopt(w->dataset, paths);
}

static nw_status walk_split(walk *w, nw_split split, const char *dir, const nw_names *classes)
{
    NW_CLEANUP(nw_names_free) nw_names here = {0};
    NW_TRY(list_classes(dir, &here, &w->ignored));
    for (int i = 0; i < here.count; i++) {
        char path[NW_PATH_SIZE];
        int32_t label = class_index(classes, here.at[i]);
        NW_FAIL_IF(label < 0, NW_E_FILE, "%s has a class '%s' that the training images do not have", dir, here.at[i]);
        NW_TRY(nw_path_put(path, dir, here.at[i]));
        NW_TRY(walk_class(w, path, label, 1));
    }
    return finish_split(w, split, dir);
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
    NW_CLEANUP(nw_names_free) nw_names classes = {0};
    char path[NW_PATH_SIZE];
    int64_t ignored = 0;
    if (!find_split(path, dir, NW_SPLIT_TRAIN) || list_classes(path, &classes, &ignored) != NW_OK) return false;
    return classes.count > 0;
}

static nw_status read_splits(walk *w, const char *dir, const nw_names *classes)
{
    char train[NW_PATH_SIZE], valid[NW_PATH_SIZE], test[NW_PATH_SIZE];
    find_split(train, dir, NW_SPLIT_TRAIN);
    find_split(valid, dir, NW_SPLIT_VALID);
    find_split(test, dir, NW_SPLIT_TEST);
    NW_TRY(walk_split(w, NW_SPLIT_TRAIN, train, classes));
    if (test[0]) NW_TRY(walk_split(w, NW_SPLIT_TEST, test, classes));
    if (valid[0]) NW_TRY(walk_split(w, test[0] ? NW_SPLIT_VALID : NW_SPLIT_TEST, valid, classes));
    return nw_dataset_set_class_names(w->dataset, classes->count, (const char *const *)classes->at, NULL);
}

static void free_walk(walk *w)
{
    free(w->labels);
    free(w->paths);
}

static nw_status read_tree(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    char train[NW_PATH_SIZE];
    NW_CLEANUP(free_walk) walk w = {.dataset = d};
    NW_CLEANUP(nw_names_free) nw_names classes = {0};
    (void)o;
    find_split(train, dir, NW_SPLIT_TRAIN);
    NW_TRY(list_classes(train, &classes, &w.ignored));
    d->channels = 3;
    d->classes = classes.count;
    w.ignored = 0; /* the walk counts them again */
    NW_FAIL_IF(classes.count < 2 || classes.count > 1 << 20, NW_E_FILE,
               "%s has %d class folders; at least 2 are needed", train, classes.count);
    NW_TRY(read_splits(&w, dir, &classes));
    size_t used = strlen(d->source);
    if (w.ignored > 0)
        snprintf(d->source + used, sizeof d->source - used, " (%lld other files ignored)", (long long)w.ignored);
    return NW_OK;
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
