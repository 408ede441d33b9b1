/*
 * golden.c - the reader of NWG1 files and the C twin of make_golden.py's number generator.
 *
 * The file is read whole, parsed through a cursor that never passes the end, and copied, since the values in the file
 * are not aligned. Little endian is assembled byte by byte: the reader is the same everywhere.
 */
#include "support/golden.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct golden_file {
    char *label;
    size_t count;
    golden_tensor *tensors; /* names and data are owned, one allocation each */
};

typedef struct cursor {
    const unsigned char *at;
    size_t left;
} cursor;

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static bool take(cursor *from, size_t size, const unsigned char **bytes)
{
    if (from->left < size) {
        return false;
    }
    *bytes = from->at;
    from->at += size;
    from->left -= size;
    return true;
}

/* An unsigned integer of 1, 2 or 4 bytes. */
static bool take_integer(cursor *from, size_t size, uint32_t *value)
{
    const unsigned char *bytes;
    if (!take(from, size, &bytes)) {
        return false;
    }
    *value = 0;
    for (size_t i = size; i-- > 0;) {
        *value = *value << 8 | bytes[i];
    }
    return true;
}

static bool take_floats(cursor *from, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t word;
        if (!take_integer(from, sizeof word, &word)) {
            return false;
        }
        memcpy(&out[i], &word, sizeof word);
        if (!isfinite(out[i])) {
            return false;
        }
    }
    return true;
}

static bool take_name(cursor *from, const char **name)
{
    uint32_t length;
    const unsigned char *bytes;
    if (!take_integer(from, 2, &length) || !take(from, length, &bytes) || length == 0 || memchr(bytes, 0, length)) {
        return false;
    }
    char *copy = malloc((size_t)length + 1);
    if (!copy) {
        return false;
    }
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    *name = copy;
    return true;
}

/* Dimensions whose product of values cannot be in the rest of the file are refused before anything is allocated. */
static bool take_dims(cursor *from, golden_tensor *tensor)
{
    uint32_t ndim;
    if (!take_integer(from, 1, &ndim) || ndim > GOLDEN_MAX_DIMS) {
        return false;
    }
    tensor->ndim = (int)ndim;
    tensor->count = 1;
    for (uint32_t i = 0; i < ndim; i++) {
        if (!take_integer(from, 4, &tensor->dims[i]) || tensor->dims[i] == 0 ||
            tensor->count > from->left / sizeof(float) / tensor->dims[i]) {
            return false;
        }
        tensor->count *= tensor->dims[i];
    }
    return tensor->count <= from->left / sizeof(float);
}

static bool take_tensor(cursor *from, golden_tensor *tensor)
{
    if (!take_name(from, &tensor->name) || !take_dims(from, tensor)) {
        return false;
    }
    float *data = malloc(tensor->count * sizeof *data);
    tensor->data = data;
    return data && take_floats(from, tensor->count, data);
}

static bool parse(golden_file *file, cursor *from)
{
    static const size_t smallest_entry = 2 + 1 + 1 + sizeof(float);
    const unsigned char *magic;
    uint32_t count;
    if (!take(from, 4, &magic) || memcmp(magic, "NWG1", 4) != 0 || !take_integer(from, 4, &count) ||
        count > from->left / smallest_entry) {
        return false;
    }
    file->tensors = calloc((size_t)count + 1, sizeof *file->tensors);
    if (!file->tensors) {
        return false;
    }
    while (file->count < count) {
        golden_tensor *tensor = &file->tensors[file->count++]; /* counted first: golden_free sees the pieces */
        if (!take_tensor(from, tensor) || golden_find_optional(file, tensor->name) != tensor) {
            return false;
        }
    }
    return from->left == 0;
}

golden_file *golden_parse(const void *bytes, size_t size, const char *label)
{
    golden_file *file = calloc(1, sizeof *file);
    cursor from = {bytes, size};
    if (file && (file->label = strdup(label ? label : "memory")) && parse(file, &from)) {
        return file;
    }
    if (label) {
        fprintf(stderr, "%s: not an NWG1 file, cut short, or corrupt near byte %zu\n", label, size - from.left);
    }
    golden_free(file);
    return NULL;
}

golden_file *golden_load(const char *path)
{
    FILE *stream = fopen(path, "rb");
    if (!stream) {
        fprintf(stderr, "%s: %s (run from the top of the source tree, or define NW_GOLDEN_DIR)\n", path,
                strerror(errno));
        return NULL;
    }
    unsigned char *bytes = NULL;
    golden_file *file = NULL;
    long size = -1;
    if (fseek(stream, 0, SEEK_END) == 0) {
        size = ftell(stream);
        rewind(stream);
    }
    if (size > 0) {
        bytes = malloc((size_t)size);
    }
    if (bytes && fread(bytes, 1, (size_t)size, stream) == (size_t)size) {
        file = golden_parse(bytes, (size_t)size, path);
    } else {
        fprintf(stderr, "%s: cannot be read, or empty\n", path);
    }
    free(bytes);
    fclose(stream);
    return file;
}

void golden_free(golden_file *file)
{
    if (!file) {
        return;
    }
    for (size_t i = 0; i < file->count; i++) {
        free((void *)file->tensors[i].name);
        free((void *)file->tensors[i].data);
    }
    free(file->tensors);
    free(file->label);
    free(file);
}

size_t golden_count(const golden_file *file) { return file->count; }

const golden_tensor *golden_at(const golden_file *file, size_t position)
{
    return position < file->count ? &file->tensors[position] : NULL;
}

const golden_tensor *golden_find_optional(const golden_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return &file->tensors[i];
        }
    }
    return NULL;
}

const golden_tensor *golden_find(const golden_file *file, const char *name)
{
    const golden_tensor *tensor = golden_find_optional(file, name);
    if (!tensor) {
        fprintf(stderr, "%s: no tensor \"%s\"\n", file->label, name);
    }
    return tensor;
}

/* ---- Generated numbers ----------------------------------------------------------------------------------------- */

uint64_t golden_bits(uint64_t stream, uint64_t index)
{
    uint64_t z = stream * 0x9E3779B97F4A7C15u + index;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

float golden_value(uint64_t stream, uint64_t index)
{
    return (float)((double)(golden_bits(stream, index) >> 40) / 8388608.0 - 1.0);
}

int32_t golden_label(uint64_t stream, uint64_t index, uint32_t classes)
{
    return (int32_t)((golden_bits(stream, index) >> 33) % classes);
}

void golden_fill(float *out, size_t count, uint64_t stream, double offset, double scale)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = (float)(offset + scale * (double)golden_value(stream, i));
    }
}

void golden_fill_images(float *out, size_t count, uint64_t stream) { golden_fill(out, count, stream, 0.0, 1.7); }

void golden_fill_parameter(float *out, size_t count, uint64_t parameter, golden_role role, size_t fan_in)
{
    uint64_t stream = GOLDEN_STREAM_PARAMETERS + parameter;
    switch (role) {
    case GOLDEN_WEIGHT:
        golden_fill(out, count, stream, 0.0, sqrt(3.0 / (double)fan_in));
        break;
    case GOLDEN_BIAS:
        golden_fill(out, count, stream, 0.0, 0.1);
        break;
    case GOLDEN_GAMMA:
        golden_fill(out, count, stream, 1.0, 0.2);
        break;
    case GOLDEN_BETA:
        golden_fill(out, count, stream, 0.0, 0.2);
        break;
    }
}

double golden_distance(const float *got, const float *want, size_t count)
{
    double error = 0.0;
    double size = 0.0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)got[i] - (double)want[i];
        error += difference * difference;
        size += (double)want[i] * (double)want[i];
    }
    double distance = sqrt(error) / (size > 0.0 ? sqrt(size) : 1.0);
    return isfinite(distance) ? distance : INFINITY;
}
