/*
 * safetensors.c - named tensors in the format that PyTorch's tools read as well. The format is in safetensors.h.
 *
 * Reading: the header is parsed into a table in the order of the data; the rule that ranges follow one another without
 * gap or overlap then needs one pass, and a second table sorted by name serves the lookups. The bytes of tensors are
 * read by offset with pread. The file is not mapped, so a file that becomes shorter meanwhile is an error, not a
 * signal.
 */
#include "checkpoint/safetensors.h"

#include "base/half.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are written as they lie in memory");

static const char metadata_key[] = "__metadata__";

static const struct {
    const char *name; /* in the file */
    size_t bytes;     /* of an element */
} types[NW_SAVED_TYPES] = {
    [NW_SAVED_F32] = {"F32", 4},   [NW_SAVED_F64] = {"F64", 8}, [NW_SAVED_F16] = {"F16", 2},
    [NW_SAVED_BF16] = {"BF16", 2}, [NW_SAVED_I64] = {"I64", 8}, [NW_SAVED_I32] = {"I32", 4},
    [NW_SAVED_I16] = {"I16", 2},   [NW_SAVED_I8] = {"I8", 1},   [NW_SAVED_U64] = {"U64", 8},
    [NW_SAVED_U32] = {"U32", 4},   [NW_SAVED_U16] = {"U16", 2}, [NW_SAVED_U8] = {"U8", 1},
    [NW_SAVED_BOOL] = {"BOOL", 1},
};

const char *nw_saved_type_name(nw_saved_type type) { return types[type].name; }

bool nw_saved_type_is_float(nw_saved_type type)
{
    return type == NW_SAVED_F32 || type == NW_SAVED_F64 || type == NW_SAVED_F16 || type == NW_SAVED_BF16;
}

bool nw_saved_tensor_same_shape(const nw_saved_tensor *a, const nw_saved_tensor *b)
{
    bool same = a->dims == b->dims;
    for (int d = 0; same && d < a->dims; d++) same = a->shape[d] == b->shape[d];
    return same;
}

/* Elements times their size; false if that does not fit. */
static bool tensor_bytes(const nw_saved_tensor *tensor, uint64_t *bytes)
{
    uint64_t product = types[tensor->type].bytes;
    bool empty = false, too_large = false;
    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] == 0) empty = true;
        too_large |= __builtin_mul_overflow(product, (uint64_t)tensor->shape[d], &product);
    }
    *bytes = empty ? 0 : product;
    return empty || (!too_large && product <= INT64_MAX);
}

void nw_saved_tensor_text(const nw_saved_tensor *tensor, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "%s[", nw_saved_type_name(tensor->type));
    for (int d = 0; d < tensor->dims && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, d ? ", " : "", tensor->shape[d]);
    if (used < size) snprintf(text + used, size - used, "]");
}

/* ---- writing ---- */

nw_status nw_saved_list_add(nw_saved_list *list, const char *name, nw_saved_type type, int dims, const int64_t *shape,
                            const void *data)
{
    NW_FAIL_IF(dims < 0 || dims > NW_SAVED_DIMS, NW_E_ARGUMENT,
               "the tensor '%s' has %d dimensions; 0 to %d can be saved", name, dims, NW_SAVED_DIMS);
    char *copy;
    NW_FAIL_IF(!nw_grow(&list->at, (size_t)list->count, sizeof *list->at), NW_E_MEMORY,
               "no memory for a list of %d tensors", list->count + 1);
    NW_TRY(nw_text_copy(&copy, name));
    nw_saved_tensor *tensor = &list->at[list->count++];
    *tensor = (nw_saved_tensor){.name = copy, .type = type, .dims = dims, .data = data};
    for (int d = 0; d < dims; d++) tensor->shape[d] = shape[d];
    return NW_OK;
}

void nw_saved_list_free(nw_saved_list *list)
{
    for (int i = 0; i < list->count; i++) free((char *)list->at[i].name);
    free(list->at);
    *list = (nw_saved_list){0};
}

static int compare_tensor_names(const void *a, const void *b)
{
    return strcmp((*(const nw_saved_tensor *const *)a)->name, (*(const nw_saved_tensor *const *)b)->name);
}

/* Checks the names; `order` is room for pointers to all tensors. */
static nw_status check_list(const nw_saved_list *list, const nw_saved_tensor **order)
{
    uint64_t bytes;
    for (int i = 0; i < list->count; i++) {
        const nw_saved_tensor *t = order[i] = &list->at[i];
        NW_FAIL_IF(t->name[0] == '\0' || strcmp(t->name, metadata_key) == 0, NW_E_ARGUMENT,
                   "a tensor cannot be saved under the name '%s'; give it another", t->name);
        for (int d = 0; d < t->dims; d++)
            NW_FAIL_IF(t->shape[d] < 0, NW_E_ARGUMENT, "the tensor '%s' has a negative dimension", t->name);
        NW_FAIL_IF(!tensor_bytes(t, &bytes) || bytes > SIZE_MAX, NW_E_ARGUMENT, "the tensor '%s' is too large to save",
                   t->name);
    }
    qsort(order, (size_t)list->count, sizeof *order, compare_tensor_names);
    for (int i = 1; i < list->count; i++)
        NW_FAIL_IF(strcmp(order[i - 1]->name, order[i]->name) == 0, NW_E_ARGUMENT,
                   "two tensors are to be saved under the name '%s'; names must differ", order[i]->name);
    return NW_OK;
}

/* Wider elements first, otherwise as given. */
static void order_by_width(const nw_saved_list *list, const nw_saved_tensor **order)
{
    int n = 0;
    for (size_t width = 8; width > 0; width /= 2)
        for (int i = 0; i < list->count; i++)
            if (types[list->at[i].type].bytes == width) order[n++] = &list->at[i];
}

static void write_header(FILE *out, const nw_saved_tensor *const *order, int count, const nw_saved_note *notes,
                         int note_count)
{
    nw_json json = nw_json_begin(out, false);
    nw_json_object(&json);
    if (note_count > 0) {
        nw_json_put_object(&json, metadata_key);
        for (int i = 0; i < note_count; i++) nw_json_put_string(&json, notes[i].key, notes[i].text);
        nw_json_object_end(&json);
    }
    uint64_t at = 0, bytes;
    for (int i = 0; i < count; i++) {
        const nw_saved_tensor *t = order[i];
        tensor_bytes(t, &bytes);
        nw_json_put_object(&json, t->name);
        nw_json_put_string(&json, "dtype", nw_saved_type_name(t->type));
        nw_json_put_array(&json, "shape");
        for (int d = 0; d < t->dims; d++) nw_json_int(&json, t->shape[d]);
        nw_json_array_end(&json);
        nw_json_put_array(&json, "data_offsets");
        nw_json_int(&json, (int64_t)at);
        nw_json_int(&json, (int64_t)(at + bytes));
        nw_json_array_end(&json);
        nw_json_object_end(&json);
        at += bytes;
    }
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static nw_status write_ordered(nw_file_writer *out, const nw_saved_tensor *const *order, int count,
                               const nw_saved_note *notes, int note_count)
{
    NW_CLEANUP(nw_text_free) nw_text header = {0};
    NW_TRY(nw_text_begin(&header));
    write_header(header.out, order, count, notes, note_count);
    NW_TRY(nw_text_end(&header));
    size_t size = header.size - 1; /* the newline that ends a document: readers may not expect one */
    size_t padded = (size + 7) / 8 * 8;
    NW_TRY(nw_file_write(out, &(uint64_t){padded}, 8));
    NW_TRY(nw_file_write(out, header.text, size));
    NW_TRY(nw_file_write(out, "       ", padded - size));
    uint64_t bytes;
    for (int i = 0; i < count; i++) {
        tensor_bytes(order[i], &bytes);
        NW_TRY(nw_file_write(out, order[i]->data, (size_t)bytes));
    }
    return NW_OK;
}

nw_status nw_safetensors_write(nw_file_writer *out, const nw_saved_list *list, const nw_saved_note *notes,
                               int note_count)
{
    NW_AUTOFREE const nw_saved_tensor **order = malloc((size_t)(list->count + 1) * sizeof *order);
    NW_FAIL_IF(!order, NW_E_MEMORY, "no memory to order the %d tensors of '%s'", list->count, out->path);
    NW_TRY(check_list(list, order));
    order_by_width(list, order);
    return write_ordered(out, order, list->count, notes, note_count);
}

/* ---- reading ---- */

typedef struct entry {
    nw_saved_tensor tensor; /* first, as compare_tensor_names wants it; its name belongs to the document */
    uint64_t begin, end;    /* in the data */
} entry;

struct nw_safetensors {
    char *path;
    int fd;                      /* -1: in memory */
    const unsigned char *memory; /* NULL: in a file */
    uint64_t size;               /* of all */
    uint64_t data;               /* where the data begin */
    nw_json_document header;
    entry *entries;  /* in the order of the data */
    entry **by_name; /* in the order of strcmp */
    int count;
};

static nw_status fetch(const nw_safetensors *file, uint64_t offset, void *out, size_t bytes)
{
    if (file->memory) {
        memcpy(out, file->memory + offset, bytes);
        return NW_OK;
    }
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        NW_FAIL_IF(got <= 0, NW_E_FILE,
                   "'%s': reading %zu bytes at byte %" PRIu64 " stopped after %zu: %s; check the disk", file->path,
                   bytes, offset, done, got < 0 ? strerror(errno) : "the file ended");
        done += (size_t)got;
    }
    return NW_OK;
}

/* An array of integers, at most `most` of them. */
static nw_status get_integers(const nw_json_document *document, const nw_json_value *object, const char *key, int most,
                              int64_t *values, int *count)
{
    const nw_json_value *list = NULL;
    NW_TRY(nw_json_get(document, object, key, NW_JSON_ARRAY, &list));
    NW_FAIL_IF(list->count > (uint32_t)most, NW_E_FILE,
               "%s: at byte %u: '%s' of '%s' has %u numbers; at most %d are known", document->name, list->offset, key,
               object->key, list->count, most);
    *count = 0;
    for (const nw_json_value *v = nw_json_first(list); v; v = nw_json_next(list, v)) {
        NW_FAIL_IF(v->type != NW_JSON_NUMBER || !v->is_integer || v->integer < 0, NW_E_FILE,
                   "%s: at byte %u: '%s' of '%s' must hold integers from 0 on", document->name, v->offset, key,
                   object->key);
        values[(*count)++] = v->integer;
    }
    return NW_OK;
}

static nw_status read_entry(nw_safetensors *file, const nw_json_value *value, entry *e)
{
    const char *type_name = NULL;
    int64_t range[2];
    int bounds = 0;
    uint64_t bytes;
    nw_saved_tensor *t = &e->tensor;
    t->name = value->key;
    NW_FAIL_IF(t->name[0] == '\0', NW_E_FILE, "%s: at byte %u: a tensor without name", file->header.name,
               value->offset);
    NW_TRY(nw_json_get_text(&file->header, value, "dtype", &type_name));
    while (t->type < NW_SAVED_TYPES && strcmp(type_name, types[t->type].name) != 0) t->type++;
    NW_FAIL_IF(t->type == NW_SAVED_TYPES, NW_E_FILE,
               "'%s': the tensor '%s' has the type '%s', which is not known here; convert it to F32", file->path,
               t->name, type_name);
    NW_TRY(get_integers(&file->header, value, "shape", NW_SAVED_DIMS, t->shape, &t->dims));
    NW_TRY(get_integers(&file->header, value, "data_offsets", 2, range, &bounds));
    NW_FAIL_IF(bounds != 2 || range[0] > range[1] || (uint64_t)range[1] > file->size - file->data, NW_E_FILE,
               "'%s': the tensor '%s' does not lie within the %" PRIu64
               " bytes of data; the file is truncated or damaged: copy it again",
               file->path, t->name, file->size - file->data);
    e->begin = (uint64_t)range[0];
    e->end = (uint64_t)range[1];
    char text[128];
    nw_saved_tensor_text(t, text, sizeof text);
    NW_FAIL_IF(!tensor_bytes(t, &bytes) || bytes != e->end - e->begin, NW_E_FILE,
               "'%s': the tensor '%s' is %s but has %" PRIu64 " bytes; the file is damaged: copy it again", file->path,
               t->name, text, e->end - e->begin);
    return NW_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static nw_status check_notes(nw_safetensors *file, const nw_json_value *notes)
{
    NW_FAIL_IF(notes->type != NW_JSON_OBJECT, NW_E_FILE, "%s: at byte %u: '%s' is %s; expected an object",
               file->header.name, notes->offset, metadata_key, nw_json_type_name(notes->type));
    for (const nw_json_value *v = nw_json_first(notes); v; v = nw_json_next(notes, v))
        NW_FAIL_IF(v->type != NW_JSON_STRING, NW_E_FILE, "%s: at byte %u: '%s' in '%s' is %s; expected a string",
                   file->header.name, v->offset, v->key, metadata_key, nw_json_type_name(v->type));
    return NW_OK;
}

static nw_status read_table(nw_safetensors *file)
{
    const nw_json_value *root = &file->header.values[0];
    NW_FAIL_IF(root->type != NW_JSON_OBJECT, NW_E_FILE, "'%s': the header is %s; expected an object", file->path,
               nw_json_type_name(root->type));
    NW_NEW(file->entries, root->count + 1, "the %u tensors of '%s'", root->count, file->path);
    NW_NEW(file->by_name, root->count + 1, "the %u tensors of '%s'", root->count, file->path);
    for (const nw_json_value *v = nw_json_first(root); v; v = nw_json_next(root, v)) {
        bool notes = strcmp(v->key, metadata_key) == 0;
        NW_TRY(notes ? check_notes(file, v) : read_entry(file, v, &file->entries[file->count++]));
    }
    qsort(file->entries, (size_t)file->count, sizeof *file->entries, compare_entries);
    uint64_t at = 0;
    for (int i = 0; i < file->count; at = file->entries[i++].end)
        NW_FAIL_IF(file->entries[i].begin != at, NW_E_FILE,
                   "'%s': the tensor '%s' begins at byte %" PRIu64 " of the data; expected %" PRIu64
                   ", where the one before it ends: the file is damaged",
                   file->path, file->entries[i].tensor.name, file->entries[i].begin, at);
    NW_FAIL_IF(at != file->size - file->data, NW_E_FILE,
               "'%s': %" PRIu64 " bytes follow the last tensor; the file is damaged: copy it again", file->path,
               file->size - file->data - at);
    for (int i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->count, sizeof *file->by_name, compare_tensor_names);
    return NW_OK;
}

/* Everything that is checked before the first tensor is handed out. */
static nw_status read_header(nw_safetensors *file)
{
    uint64_t length;
    NW_FAIL_IF(file->size < 8, NW_E_FILE,
               "'%s' has %" PRIu64 " bytes; a safetensors file begins with 8 that say how long its header is",
               file->path, file->size);
    NW_TRY(fetch(file, 0, &length, 8));
    NW_FAIL_IF(length > NW_JSON_READ_BYTES, NW_E_FILE,
               "'%s': at byte 0: a header of %" PRIu64 " bytes; this is not a safetensors file, or it is damaged",
               file->path, length);
    NW_FAIL_IF(length > file->size - 8, NW_E_FILE,
               "'%s': the header of %" PRIu64 " bytes goes beyond the end of the file at %" PRIu64
               "; the file is truncated: copy it again",
               file->path, length, file->size);
    file->data = 8 + length;
    NW_AUTOFREE char *text = malloc((size_t)length + 1), *name = NULL;
    NW_FAIL_IF(!text, NW_E_MEMORY, "no memory for the header of '%s'", file->path);
    NW_TRY(fetch(file, 8, text, (size_t)length));
    NW_TRY(nw_text_print(&name, "header of '%s'", file->path));
    NW_TRY(nw_json_parse(&file->header, text, (size_t)length, name));
    return read_table(file);
}

static nw_status open_file(nw_safetensors *file)
{
    struct stat s;
    file->fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    NW_FAIL_IF(file->fd < 0, NW_E_FILE, "cannot open '%s': %s; check the path", file->path, strerror(errno));
    NW_FAIL_IF(fstat(file->fd, &s) != 0 || !S_ISREG(s.st_mode), NW_E_FILE,
               "'%s' is not a regular file; give the path of a .safetensors file", file->path);
    file->size = (uint64_t)s.st_size;
    return read_header(file);
}

/* Common to both ways of opening: memory NULL means the file of that name. */
static nw_status open_any(nw_safetensors **out, const char *path, const void *memory, size_t size)
{
    *out = NULL;
    nw_safetensors *file = calloc(1, sizeof *file);
    NW_FAIL_IF(!file, NW_E_MEMORY, "no memory to open '%s'", path);
    file->fd = -1;
    file->memory = memory;
    file->size = size;
    NW_TRY_OR(nw_text_copy(&file->path, path), nw_safetensors_close(file));
    NW_TRY_OR(memory ? read_header(file) : open_file(file), nw_safetensors_close(file));
    *out = file;
    return NW_OK;
}

nw_status nw_safetensors_open(nw_safetensors **file, const char *path) { return open_any(file, path, NULL, 0); }

nw_status nw_safetensors_open_memory(nw_safetensors **file, const void *data, size_t size, const char *name)
{
    return open_any(file, name, data ? data : "", size);
}

void nw_safetensors_close(nw_safetensors *file)
{
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    nw_json_free(&file->header);
    free(file->entries);
    free(file->by_name);
    free(file->path);
    free(file);
}

const char *nw_safetensors_path(const nw_safetensors *file) { return file->path; }
int nw_safetensors_count(const nw_safetensors *file) { return file->count; }
const nw_saved_tensor *nw_safetensors_at(const nw_safetensors *file, int index) { return &file->entries[index].tensor; }

size_t nw_safetensors_bytes(const nw_safetensors *file, int index)
{
    return (size_t)(file->entries[index].end - file->entries[index].begin);
}

size_t nw_safetensors_elements(const nw_safetensors *file, int index)
{
    return nw_safetensors_bytes(file, index) / types[file->entries[index].tensor.type].bytes;
}

int nw_safetensors_find(const nw_safetensors *file, const char *name)
{
    const entry *wanted = &(entry){.tensor.name = name};
    entry **found = bsearch(&wanted, file->by_name, (size_t)file->count, sizeof *file->by_name, compare_tensor_names);
    return found ? (int)(*found - file->entries) : -1;
}

nw_status nw_safetensors_read(const nw_safetensors *file, int index, void *out)
{
    return fetch(file, file->data + file->entries[index].begin, out, nw_safetensors_bytes(file, index));
}

/* ---- floats of other widths ---- */

nw_status nw_safetensors_read_f32(const nw_safetensors *file, int index, float *out)
{
    enum { CHUNK = 4096 };
    const entry *e = &file->entries[index];
    if (e->tensor.type == NW_SAVED_F32) return nw_safetensors_read(file, index, out);
    NW_FAIL_IF(!nw_saved_type_is_float(e->tensor.type), NW_E_FILE,
               "'%s': the tensor '%s' has elements of type %s; expected F32, F64, F16 or BF16", file->path,
               e->tensor.name, nw_saved_type_name(e->tensor.type));
    union {
        double f64[CHUNK];
        uint16_t u16[CHUNK];
    } piece;
    size_t count = nw_safetensors_elements(file, index), width = types[e->tensor.type].bytes;
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;
        NW_TRY(fetch(file, file->data + e->begin + first * width, &piece, n * width));
        for (size_t i = 0; i < n; i++)
            out[first + i] = e->tensor.type == NW_SAVED_F64   ? (float)piece.f64[i]
                             : e->tensor.type == NW_SAVED_F16 ? nw_f16_to_f32(piece.u16[i])
                                                              : nw_bf16_to_f32(piece.u16[i]);
    }
    return NW_OK;
}
