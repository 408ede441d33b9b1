/*
 * python_batch.c - images and labels out of pickles and npz files; see python_batch.h.
 */
#include "data/python_batch.h"

#include "data/npz.h"

#include <stdlib.h>
#include <string.h>

static nw_status count_labels(nw_python_batch *b, const char *label_key)
{
    if (!b->pickle) {
        bool found;
        NW_TRY(nw_npz_read(&b->label_array, b->file.data, b->file.size, b->name, label_key, &found, &b->label_memory));
        NW_FAIL_IF(!found, NW_E_FILE, "%s has no array '%s'", b->name, label_key);
        b->count = b->label_array.count;
        return NW_OK;
    }
    const nw_pickle_value *root = nw_pickle_root(b->pickle);
    NW_FAIL_IF(root->kind != NW_PICKLE_DICT, NW_E_FILE, "%s is a pickle, but not of a dict with data and labels",
               b->name);
    b->data = nw_pickle_find(root, "data");
    b->labels = nw_pickle_find(root, label_key);
    NW_FAIL_IF(!b->data || !b->labels, NW_E_FILE, "%s has no key '%s'", b->name, b->data ? label_key : "data");
    if (b->labels->kind == NW_PICKLE_ARRAY) {
        b->label_array = *b->labels->array;
        b->count = b->label_array.count;
        return NW_OK;
    }
    NW_FAIL_IF(b->labels->kind != NW_PICKLE_LIST, NW_E_FILE, "%s: '%s' is neither a list nor an array", b->name,
               label_key);
    b->count = b->labels->count;
    return NW_OK;
}

nw_status nw_python_batch_open_memory(nw_python_batch *b, const uint8_t *data, size_t size, const char *name,
                                      const char *label_key)
{
    *b = (nw_python_batch){.file = {data, size}, .name = name};
    nw_status status = NW_OK;
    if (size < 2 || memcmp(data, "PK", 2) != 0) status = nw_pickle_read(&b->pickle, data, size, name);
    if (status == NW_OK) status = count_labels(b, label_key);
    if (status != NW_OK) nw_python_batch_close(b);
    return status;
}

nw_status nw_python_batch_open(nw_python_batch *b, const char *name, const char *label_key)
{
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    *b = (nw_python_batch){0};
    NW_TRY(nw_file_map(&file, name));
    NW_TRY(nw_python_batch_open_memory(b, file.data, file.size, name, label_key));
    b->mapped = true;
    file = (nw_file){0};
    return NW_OK;
}

nw_status nw_python_batch_count(const char *name, const char *label_key, uint64_t *count)
{
    NW_CLEANUP(nw_python_batch_close) nw_python_batch batch = {0};
    NW_TRY(nw_python_batch_open(&batch, name, label_key));
    *count = batch.count;
    return NW_OK;
}

void nw_python_batch_close(nw_python_batch *b)
{
    nw_pickle_free(b->pickle);
    free(b->label_memory);
    if (b->mapped) nw_file_unmap(&b->file);
    *b = (nw_python_batch){0};
}

nw_status nw_python_batch_labels(const nw_python_batch *b, int first, int classes, int32_t *labels)
{
    bool list = b->labels && b->labels->kind == NW_PICKLE_LIST;
    for (uint64_t i = 0; i < b->count; i++) {
        int64_t label = INT64_MIN;
        if (!list)
            label = nw_array_int(&b->label_array, i);
        else if (b->labels->items[i]->kind == NW_PICKLE_INT)
            label = b->labels->items[i]->integer;
        NW_FAIL_IF(label < first || label >= (int64_t)first + classes, NW_E_FILE,
                   "%s: the label of image %llu is not a whole number from %d to %d", b->name, (unsigned long long)i,
                   first, first + classes - 1);
        labels[i] = (int32_t)(label - first);
    }
    return NW_OK;
}

/* An array of bytes with `rows` rows of `bytes`. */
static nw_status check_pixels(const nw_python_batch *b, const nw_array *a, uint64_t rows, size_t bytes)
{
    bool ok = a->kind == 'u' && a->item == 1 && a->dims >= 1 && !(a->fortran && a->dims > 1);
    NW_FAIL_IF(!ok, NW_E_FILE, "%s: 'data' has %d dimensions of type %c%d; it must be bytes in rows", b->name, a->dims,
               a->kind ? a->kind : '?', a->item);
    NW_FAIL_IF(a->size / bytes != rows || a->size % bytes, NW_E_FILE,
               "%s: 'data' has %zu bytes; %llu images of %zu bytes were expected", b->name, a->size,
               (unsigned long long)rows, bytes);
    return NW_OK;
}

static nw_status copy_rows(const nw_python_batch *b, size_t bytes, uint8_t *pixels)
{
    NW_FAIL_IF(b->data->count != b->count, NW_E_FILE, "%s: 'data' has %u rows for %llu labels", b->name, b->data->count,
               (unsigned long long)b->count);
    for (uint64_t i = 0; i < b->count; i++) {
        const nw_pickle_value *row = b->data->items[i];
        const uint8_t *from = row->kind == NW_PICKLE_BYTES && row->size == bytes ? row->bytes : NULL;
        if (row->kind == NW_PICKLE_ARRAY) {
            NW_TRY(check_pixels(b, row->array, 1, bytes));
            from = row->array->data;
        }
        NW_FAIL_IF(!from, NW_E_FILE, "%s: row %llu of 'data' is not an image of %zu bytes", b->name,
                   (unsigned long long)i, bytes);
        memcpy(pixels + i * bytes, from, bytes);
    }
    return NW_OK;
}

nw_status nw_python_batch_pixels(const nw_python_batch *b, size_t bytes, uint8_t *pixels)
{
    if (b->data && b->data->kind == NW_PICKLE_LIST) return copy_rows(b, bytes, pixels);
    nw_array array;
    NW_AUTOFREE uint8_t *owned = NULL;
    if (b->data) {
        NW_FAIL_IF(b->data->kind != NW_PICKLE_ARRAY, NW_E_FILE, "%s: 'data' is neither an array nor a list", b->name);
        array = *b->data->array;
    } else {
        bool found;
        NW_TRY(nw_npz_read(&array, b->file.data, b->file.size, b->name, "data", &found, &owned));
        NW_FAIL_IF(!found, NW_E_FILE, "%s has no array 'data'", b->name);
    }
    NW_TRY(check_pixels(b, &array, b->count, bytes));
    if (array.size) memcpy(pixels, array.data, array.size);
    return NW_OK;
}

nw_status nw_python_batch_mean(const nw_python_batch *b, size_t count, float *mean, bool *found)
{
    nw_array array = {0};
    NW_AUTOFREE uint8_t *owned = NULL;
    *found = false;
    if (b->pickle) {
        const nw_pickle_value *v = nw_pickle_find(nw_pickle_root(b->pickle), "mean");
        if (!v || v->kind != NW_PICKLE_ARRAY) return NW_OK;
        array = *v->array;
        *found = true;
    } else {
        NW_TRY(nw_npz_read(&array, b->file.data, b->file.size, b->name, "mean", found, &owned));
    }
    if (!*found) return NW_OK;
    NW_FAIL_IF(array.count != count, NW_E_FILE, "%s: 'mean' has %llu numbers; an image has %zu", b->name,
               (unsigned long long)array.count, count);
    for (size_t i = 0; i < count; i++) mean[i] = (float)nw_array_float(&array, i);
    return NW_OK;
}
