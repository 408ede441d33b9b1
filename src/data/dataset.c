/*
 * dataset.c - finds a dataset by name, lets its reader read it, and owns its memory.
 *
 * The options' folder is a root that holds datasets or the dataset's own folder: the folder itself is tried first, then
 * the usual names below it, then where the system keeps the dataset. In each of them a nowait-raw file (NAME.nwraw)
 * goes before the published files. Whatever fails half-way, everything that was taken is given back.
 */
#include "data/dataset.h"

#include "base/machine.h"
#include "base/suggest.h"
#include "base/text.h"
#include "data/fetch.h"
#include "data/raw.h"
#include "data/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const nw_reader *const readers[] = {
    &nw_reader_cifar10, &nw_reader_cifar100, &nw_reader_cinic10,       &nw_reader_imagenet32, &nw_reader_imagenet,
    &nw_reader_folder,  &nw_reader_mnist,    &nw_reader_fashion_mnist, &nw_reader_synthetic,
};
enum { READERS = sizeof readers / sizeof readers[0] };

int nw_dataset_kinds(void) { return READERS; }
const char *nw_dataset_kind_name(int index) { return readers[index]->name; }
const char *nw_dataset_kind_summary(int index) { return readers[index]->summary; }

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

struct nw_dataset_memory {
    void **blocks;
    nw_file *files;
    size_t block_count, file_count;
};

static nw_status no_memory(const nw_dataset *d, uint64_t count, size_t item)
{
    return NW_FAIL(NW_E_MEMORY,
                   "%s needs %.1f GB of memory here and %.1f GB are available; use fewer images, or convert it with "
                   "'nowait data import' so that it is mapped instead of read",
                   d->name, (double)count * (double)item / 1e9, (double)nw_machine_available_memory() / 1e9);
}

nw_status nw_dataset_adopt(nw_dataset *d, void *block)
{
    struct nw_dataset_memory *m = d->memory;
    if (!nw_grow(&m->blocks, m->block_count, sizeof *m->blocks)) {
        free(block);
        return no_memory(d, m->block_count + 1, sizeof *m->blocks);
    }
    m->blocks[m->block_count++] = block;
    return NW_OK;
}

nw_status nw_dataset_alloc(nw_dataset *d, uint64_t count, size_t item, void **out)
{
    uint64_t bytes;
    size_t available = nw_machine_available_memory();
    *out = NULL;
    bool huge = __builtin_mul_overflow(count, (uint64_t)item, &bytes) || bytes > SIZE_MAX / 2;
    if (huge || (available && bytes > available)) return no_memory(d, count, item);
    void *block = aligned_alloc(64, (size_t)(bytes + 64) & ~(size_t)63);
    if (!block) return no_memory(d, count, item);
    NW_TRY(nw_dataset_adopt(d, block));
    *out = block;
    return NW_OK;
}

void nw_dataset_release(nw_dataset *d, const void *block)
{
    struct nw_dataset_memory *m = d->memory;
    for (size_t i = 0; i < m->block_count; i++) {
        if (m->blocks[i] != block) continue;
        free(m->blocks[i]);
        m->blocks[i] = m->blocks[--m->block_count];
        return;
    }
}

nw_status nw_dataset_map(nw_dataset *d, const char *path, nw_file *file)
{
    struct nw_dataset_memory *m = d->memory;
    *file = (nw_file){0};
    if (!nw_grow(&m->files, m->file_count, sizeof *m->files)) return no_memory(d, m->file_count + 1, sizeof *m->files);
    NW_TRY(nw_file_map(file, path));
    m->files[m->file_count++] = *file;
    return NW_OK;
}

nw_status nw_dataset_room(nw_dataset *d, nw_split split, uint64_t count, int32_t **labels, uint8_t **pixels)
{
    void *block = NULL;
    *labels = NULL;
    *pixels = NULL;
    NW_TRY(nw_dataset_alloc(d, count, sizeof **labels, &block));
    *labels = block;
    NW_TRY(nw_dataset_alloc(d, count, nw_dataset_image_bytes(d), &block));
    *pixels = block;
    d->split[split] = (nw_images){.count = (int64_t)count, .labels = *labels, .pixels = *pixels};
    return NW_OK;
}

nw_status nw_dataset_set_class_names(nw_dataset *d, int count, const char *const *names, const size_t *lengths)
{
    size_t bytes = 0;
    void *block = NULL;
    for (int i = 0; i < count; i++) bytes += (lengths ? lengths[i] : strlen(names[i])) + 1;
    NW_TRY(nw_dataset_alloc(d, 1, (size_t)count * sizeof(char *) + bytes, &block));
    char **copies = block, *at = (char *)(copies + count);
    for (int i = 0; i < count; i++) {
        size_t length = lengths ? lengths[i] : strlen(names[i]);
        copies[i] = at;
        memcpy(at, names[i], length);
        at[length] = 0;
        at += length + 1;
    }
    d->class_names = copies;
    return NW_OK;
}

/* ---- Finding ----------------------------------------------------------------------------------------------------- */

/* NAME.nwraw in dir; empty if there is none. */
static nw_status find_raw(const nw_reader *reader, const char *dir, char path[NW_PATH_SIZE])
{
    char file[64];
    snprintf(file, sizeof file, "%s.nwraw", reader->name);
    NW_TRY(nw_path_put(path, dir, file));
    if (!nw_file_is_regular(path)) path[0] = 0;
    return NW_OK;
}

/* The dataset's own folder (*own), or its nowait-raw file (*raw); both empty if it is nowhere. `tried` lists where was
 * looked, for the message. */
static nw_status locate(const nw_reader *reader, const nw_dataset_options *o, const char *root, char own[NW_PATH_SIZE],
                        char raw[NW_PATH_SIZE], char *tried, size_t tried_size)
{
    const char *const none[] = {NULL}, *const *folders = reader->folders ? reader->folders : none;
    size_t used = 0;
    raw[0] = tried[0] = 0;
    for (int i = -1;; i++) {
        bool last = i >= 0 && !folders[i];
        if (last && !reader->elsewhere) break;
        if (i < 0 || last)
            snprintf(own, NW_PATH_SIZE, "%s", last ? reader->elsewhere : root);
        else
            NW_TRY(nw_path_put(own, root, folders[i]));
        if (nw_file_is_directory(own)) {
            if (!o->published) NW_TRY(find_raw(reader, own, raw));
            if (raw[0] || reader->present(own)) return NW_OK;
        }
        if (used < tried_size) used += (size_t)snprintf(tried + used, tried_size - used, "%s%s", used ? ", " : "", own);
        if (last) break;
    }
    own[0] = 0;
    return NW_OK;
}

static nw_status missing(const nw_reader *reader, const char *root, const char *tried)
{
    if (nw_fetch_address(reader->name))
        return NW_FAIL(NW_E_FILE,
                       "%s is not there: looked in %s for %s; get it with 'nowait data fetch %s --data-dir %s', or "
                       "name its folder with --data-dir",
                       reader->name, tried, reader->expects, reader->name, root);
    return NW_FAIL(NW_E_FILE, "%s is not there: looked in %s for %s; name its folder with --data-dir", reader->name,
                   tried, reader->expects);
}

static nw_status open_raw(nw_dataset *d, const nw_reader *reader, const char *path)
{
    nw_file file;
    char **names = NULL;
    NW_TRY(nw_dataset_map(d, path, &file));
    NW_TRY(nw_raw_parse(d, file.data, file.size, path, &names));
    d->class_names = names;
    if (names) NW_TRY(nw_dataset_adopt(d, names));
    NW_FAIL_IF(strcmp(d->name, reader->name) != 0, NW_E_FILE,
               "%s holds '%s', not '%s'; name the dataset that it was made from", path, d->name, reader->name);
    snprintf(d->source, sizeof d->source, "%.500s", path);
    return NW_OK;
}

static nw_status find_and_read(nw_dataset *d, const nw_reader *reader, const nw_dataset_options *o)
{
    char own[NW_PATH_SIZE] = "", raw[NW_PATH_SIZE], tried[800];
    const char *root = o->dir && o->dir[0] ? o->dir : "data";
    if (reader->no_files) {
        snprintf(d->source, sizeof d->source, "made");
        return reader->open(d, o, "");
    }
    NW_TRY(locate(reader, o, root, own, raw, tried, sizeof tried));
    if (!own[0] && o->download && nw_fetch_address(reader->name)) {
        nw_fetch_options fetch = {
            .name = reader->name, .dir = root, .progress = o->progress, .progress_context = o->progress_context};
        bool already;
        nw_status status = nw_data_fetch(&fetch, &already);
        if (status != NW_OK && status != NW_E_INTERRUPTED) {
            char why[1024];
            snprintf(why, sizeof why, "%s", nw_error_message());
            return NW_FAIL(status, "%s cannot be fetched: %s; it was looked for in %s", reader->name, why, tried);
        }
        NW_TRY(status);
        NW_TRY(locate(reader, o, root, own, raw, tried, sizeof tried));
    }
    if (!own[0]) return missing(reader, root, tried);
    if (raw[0]) return open_raw(d, reader, raw);
    snprintf(d->source, sizeof d->source, "%.500s", own);
    return reader->open(d, o, own);
}

static nw_status shape(nw_dataset *d, const nw_reader *reader, const nw_dataset_options *o)
{
    if (o->classes && o->classes != d->classes && !reader->no_files) {
        NW_FAIL_IF(!reader->some_classes, NW_E_ARGUMENT,
                   "%s has %d classes; only imagenet, imagenet32 and folder can be used with fewer", d->name,
                   d->classes);
        NW_TRY(nw_dataset_keep_classes(d, o->classes));
    }
    if (o->val_ratio > 0) NW_TRY(nw_dataset_split_validation(d, o->val_ratio));
    if (o->limit > 0) NW_TRY(nw_dataset_limit(d, o->limit));
    return NW_OK;
}

nw_status nw_dataset_open(nw_dataset **dataset, const nw_dataset_options *o)
{
    const char *names[READERS];
    int index;
    *dataset = NULL;
    for (int i = 0; i < READERS; i++) names[i] = readers[i]->name;
    NW_TRY(nw_name_find("dataset", o->name, names, sizeof names[0], READERS, "", &index));
    const nw_reader *reader = readers[index];
    NW_FAIL_IF(!(o->val_ratio >= 0 && o->val_ratio < 1), NW_E_ARGUMENT,
               "the validation ratio is %g; it must be at least 0 and less than 1", o->val_ratio);
    NW_FAIL_IF(o->limit < 0 || o->classes < 0, NW_E_ARGUMENT, "limits of images or classes cannot be negative");
    nw_dataset *d = calloc(1, sizeof *d);
    if (d) d->memory = calloc(1, sizeof *d->memory);
    if (!d || !d->memory) {
        free(d);
        return NW_FAIL(NW_E_MEMORY, "no memory for a dataset");
    }
    snprintf(d->name, sizeof d->name, "%s", reader->name);
    memcpy(d->mean, reader->mean, sizeof d->mean);
    memcpy(d->deviation, reader->deviation, sizeof d->deviation);
    NW_TRY_OR(find_and_read(d, reader, o), nw_dataset_close(d));
    NW_TRY_OR(shape(d, reader, o), nw_dataset_close(d));
    *dataset = d;
    return NW_OK;
}

void nw_dataset_close(nw_dataset *d)
{
    if (!d) return;
    for (size_t i = 0; i < d->memory->block_count; i++) free(d->memory->blocks[i]);
    for (size_t i = 0; i < d->memory->file_count; i++) nw_file_unmap(&d->memory->files[i]);
    free(d->memory->blocks);
    free(d->memory->files);
    free(d->memory);
    free(d);
}
