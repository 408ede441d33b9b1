/*
 * raw.c - reads and writes nowait-raw files; see raw.h for the layout.
 */
#include "data/raw.h"

#include "base/sha256.h"
#include "data/bytes.h"
#include "data/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 264, PAGE = 4096, SECTION = 64 };

/* Offsets of the header's fields. */
enum {
    AT_SIZE = 16,
    AT_SHAPE = 24,
    AT_COUNTS = 40,
    AT_NAME = 64,
    AT_MEAN = 96,
    AT_DEVIATION = 112,
    AT_NAMES = 128,
    AT_NAMES_BYTES = 136,
    AT_MEAN_IMAGE = 144,
    AT_LABELS = 152,
    AT_PIXELS = 176,
    AT_PIXEL_DIGEST = 200,
    AT_HEAD_DIGEST = 232,
};

static const char magic[16] = "nowait-raw 1\n";

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "nowait-raw files are used as they lie, little-endian");

static void hex_digest(nw_sha256 *hash, uint8_t digest[32])
{
    char text[65];
    nw_sha256_end(hash, text);
    for (int i = 0; i < 32; i++) {
        unsigned byte;
        sscanf(text + 2 * i, "%2x", &byte);
        digest[i] = (uint8_t)byte;
    }
}

/* Of everything before the pixels, with its own place taken as zeros. */
static void head_digest(const uint8_t *data, size_t head, uint8_t digest[32])
{
    static const uint8_t zeros[32];
    nw_sha256 hash = nw_sha256_begin();
    nw_sha256_add(&hash, data, AT_HEAD_DIGEST);
    nw_sha256_add(&hash, zeros, sizeof zeros);
    nw_sha256_add(&hash, data + HEADER, head - HEADER);
    hex_digest(&hash, digest);
}

/* True if `count` items of `item` bytes at `offset` lie inside the file, behind the header, aligned. */
static bool inside(uint64_t offset, uint64_t count, uint64_t item, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, item, &bytes)) return false;
    return offset >= HEADER && offset % SECTION == 0 && offset <= size && bytes <= size - offset;
}

/* Shape, counts and places, all checked; *head is where the pixels begin. */
static nw_status parse_header(nw_dataset *d, const uint8_t *data, size_t size, const char *name, uint64_t *head)
{
    NW_FAIL_IF(size < HEADER || memcmp(data, magic, sizeof magic) != 0, NW_E_FILE,
               "%s is no nowait-raw file of version 1 (offset 0); make it again with 'nowait data import'", name);
    NW_FAIL_IF(nw_get_le64(data + AT_SIZE) != size, NW_E_FILE,
               "%s has %zu bytes, but its header at offset %d says %llu: it is truncated; make it again", name, size,
               AT_SIZE, (unsigned long long)nw_get_le64(data + AT_SIZE));
    uint32_t shape[4];
    for (int i = 0; i < 4; i++) shape[i] = nw_get_le32(data + AT_SHAPE + 4 * i);
    NW_FAIL_IF(shape[0] < 1 || shape[0] > 1 << 20 || shape[1] < 1 || shape[1] > 4 || shape[2] < 1 || shape[2] > 4096 ||
                   shape[3] < 1 || shape[3] > 4096,
               NW_E_FILE, "%s: %u classes of images of %u x %u x %u at offset %d are out of range", name, shape[0],
               shape[1], shape[2], shape[3], AT_SHAPE);
    d->classes = (int)shape[0];
    d->channels = (int)shape[1];
    d->height = (int)shape[2];
    d->width = (int)shape[3];
    memcpy(d->name, data + AT_NAME, sizeof d->name);
    d->name[sizeof d->name - 1] = 0;
    memcpy(d->mean, data + AT_MEAN, sizeof d->mean);
    memcpy(d->deviation, data + AT_DEVIATION, sizeof d->deviation);
    *head = size;
    for (int s = 0; s < NW_SPLITS; s++) {
        uint64_t count = nw_get_le64(data + AT_COUNTS + 8 * s), labels = nw_get_le64(data + AT_LABELS + 8 * s);
        uint64_t pixels = nw_get_le64(data + AT_PIXELS + 8 * s);
        NW_FAIL_IF(!inside(labels, count, sizeof(int32_t), size) ||
                       !inside(pixels, count, nw_dataset_image_bytes(d), size),
                   NW_E_FILE, "%s: the %llu images of split %d do not lie inside the file", name,
                   (unsigned long long)count, s);
        d->split[s] = (nw_images){
            .count = (int64_t)count, .labels = (const int32_t *)(const void *)(data + labels), .pixels = data + pixels};
        if (pixels < *head) *head = pixels;
    }
    return NW_OK;
}

static nw_status check_labels(const nw_dataset *d, const char *name)
{
    for (int s = 0; s < NW_SPLITS; s++)
        for (int64_t i = 0; i < d->split[s].count; i++)
            NW_FAIL_IF(d->split[s].labels[i] < 0 || d->split[s].labels[i] >= d->classes, NW_E_FILE,
                       "%s: label %d of image %lld in split %d is not 0 to %d", name, d->split[s].labels[i],
                       (long long)i, s, d->classes - 1);
    return NW_OK;
}

static nw_status cut_names(const nw_dataset *d, const char *text, size_t bytes, const char *name, char ***names)
{
    char **list = malloc((size_t)d->classes * sizeof *list + bytes + 1);
    NW_FAIL_IF(!list, NW_E_MEMORY, "%s: no memory for its class names", name);
    char *at = (char *)(list + d->classes), *end = at + bytes;
    memcpy(at, text, bytes);
    *end = 0;
    int count = 0;
    while (at < end && count < d->classes) {
        char *line = memchr(at, '\n', (size_t)(end - at));
        list[count++] = at;
        if (line) *line = 0;
        at = line ? line + 1 : end;
    }
    if (count != d->classes || at != end) {
        free(list);
        return NW_FAIL(NW_E_FILE, "%s: it does not have one line of text for each of its %d classes", name, d->classes);
    }
    *names = list;
    return NW_OK;
}

nw_status nw_raw_parse(nw_dataset *d, const uint8_t *data, size_t size, const char *name, char ***names)
{
    uint64_t head = 0;
    uint8_t digest[32];
    *names = NULL;
    NW_TRY(parse_header(d, data, size, name, &head));
    uint64_t text = nw_get_le64(data + AT_NAMES), bytes = nw_get_le64(data + AT_NAMES_BYTES);
    uint64_t mean = nw_get_le64(data + AT_MEAN_IMAGE);
    bool ordered = (!text || inside(text, bytes, 1, head)) &&
                   (!mean || inside(mean, nw_dataset_image_bytes(d), sizeof(float), head));
    for (int s = 0; s < NW_SPLITS; s++)
        ordered = ordered &&
                  inside(nw_get_le64(data + AT_LABELS + 8 * s), (uint64_t)d->split[s].count, sizeof(int32_t), head);
    NW_FAIL_IF(!ordered, NW_E_FILE, "%s: labels, class names or mean image do not lie before the pixels", name);
    head_digest(data, (size_t)head, digest);
    NW_FAIL_IF(
        memcmp(digest, data + AT_HEAD_DIGEST, 32) != 0, NW_E_FILE,
        "%s: the SHA-256 at offset %d does not fit what is before the pixels: the file is damaged; make it again", name,
        AT_HEAD_DIGEST);
    NW_TRY(check_labels(d, name));
    d->mean_image = mean ? (const float *)(const void *)(data + mean) : NULL;
    if (text) NW_TRY(cut_names(d, (const char *)data + text, (size_t)bytes, name, names));
    return NW_OK;
}

nw_status nw_raw_verify(const uint8_t *data, size_t size, const char *name)
{
    nw_dataset d = {0};
    char **names = NULL;
    uint8_t digest[32];
    NW_TRY(nw_raw_parse(&d, data, size, name, &names));
    free(names);
    nw_sha256 hash = nw_sha256_begin();
    for (int s = 0; s < NW_SPLITS; s++)
        nw_sha256_add(&hash, d.split[s].pixels, (size_t)d.split[s].count * nw_dataset_image_bytes(&d));
    hex_digest(&hash, digest);
    NW_FAIL_IF(memcmp(digest, data + AT_PIXEL_DIGEST, 32) != 0, NW_E_FILE,
               "%s: the SHA-256 at offset %d does not fit the pixels: the file is damaged; make it again", name,
               AT_PIXEL_DIGEST);
    return NW_OK;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static void put(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t align(uint64_t at, uint64_t to) { return (at + to - 1) / to * to; }

/* Everything before the pixels, in one block that the caller frees. */
static nw_status make_head(const nw_dataset *d, const char *path, uint8_t **out, uint64_t *head)
{
    uint64_t image = nw_dataset_image_bytes(d), text = 0, at = align(HEADER, SECTION), places[4 + NW_SPLITS] = {0};
    for (int c = 0; d->class_names && c < d->classes; c++) text += strlen(d->class_names[c]) + 1;
    places[0] = d->class_names ? at : 0;
    at = align(at + text, SECTION);
    places[1] = d->mean_image ? at : 0;
    at = align(at + (d->mean_image ? image * sizeof(float) : 0), SECTION);
    for (int s = 0; s < NW_SPLITS; s++) {
        places[2 + s] = at;
        at = align(at + (uint64_t)d->split[s].count * sizeof(int32_t), SECTION);
    }
    *head = align(at, PAGE);
    uint8_t *h = calloc(1, (size_t)*head);
    NW_FAIL_IF(!h, NW_E_MEMORY, "%s: no memory for the %llu bytes before its pixels", path, (unsigned long long)*head);
    *out = h;
    memcpy(h, magic, sizeof magic);
    const int shape[4] = {d->classes, d->channels, d->height, d->width};
    for (int i = 0; i < 4; i++) put(h + AT_SHAPE + 4 * i, (uint64_t)shape[i], 4);
    memcpy(h + AT_NAME, d->name, sizeof d->name);
    memcpy(h + AT_MEAN, d->mean, sizeof d->mean);
    memcpy(h + AT_DEVIATION, d->deviation, sizeof d->deviation);
    put(h + AT_NAMES, places[0], 8);
    put(h + AT_NAMES_BYTES, text, 8);
    put(h + AT_MEAN_IMAGE, places[1], 8);
    uint8_t *line = h + places[0];
    for (int c = 0; d->class_names && c < d->classes; c++) {
        size_t length = strlen(d->class_names[c]);
        memcpy(line, d->class_names[c], length);
        for (size_t i = 0; i < length; i++)
            if (line[i] == '\n') line[i] = ' ';
        line[length] = '\n';
        line += length + 1;
    }
    if (d->mean_image) memcpy(h + places[1], d->mean_image, image * sizeof(float));
    uint64_t pixels = *head;
    for (int s = 0; s < NW_SPLITS; s++) {
        uint64_t count = (uint64_t)d->split[s].count;
        put(h + AT_COUNTS + 8 * s, count, 8);
        put(h + AT_LABELS + 8 * s, places[2 + s], 8);
        put(h + AT_PIXELS + 8 * s, pixels, 8);
        if (count) memcpy(h + places[2 + s], d->split[s].labels, count * sizeof(int32_t));
        pixels = align(pixels + count * image, SECTION);
    }
    put(h + AT_SIZE, pixels, 8);
    nw_sha256 hash = nw_sha256_begin();
    for (int s = 0; s < NW_SPLITS; s++) nw_sha256_add(&hash, d->split[s].pixels, (size_t)d->split[s].count * image);
    hex_digest(&hash, h + AT_PIXEL_DIGEST);
    head_digest(h, (size_t)*head, h + AT_HEAD_DIGEST);
    return NW_OK;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    while (bytes) {
        ssize_t n = write(fd, at, bytes > 1 << 30 ? 1 << 30 : bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool write_file(int fd, const nw_dataset *d, const uint8_t *head, uint64_t head_bytes)
{
    static const uint8_t zeros[SECTION];
    bool ok = write_all(fd, head, (size_t)head_bytes);
    for (int s = 0; s < NW_SPLITS && ok; s++) {
        size_t bytes = (size_t)d->split[s].count * nw_dataset_image_bytes(d);
        ok = write_all(fd, d->split[s].pixels, bytes) && write_all(fd, zeros, (SECTION - bytes % SECTION) % SECTION);
    }
    return ok && fsync(fd) == 0;
}

nw_status nw_raw_write(const nw_dataset *d, const char *path)
{
    char aside[NW_PATH_SIZE];
    uint8_t *head = NULL;
    uint64_t head_bytes = 0;
    for (int s = 0; s < NW_SPLITS; s++)
        NW_FAIL_IF(d->split[s].count && !d->split[s].pixels, NW_E_ARGUMENT,
                   "%s has images in files; they must be decoded before they are written", d->name);
    int wrote = snprintf(aside, sizeof aside, "%s.part-%ld", path, (long)getpid());
    NW_FAIL_IF(wrote < 0 || wrote >= (int)sizeof aside, NW_E_ARGUMENT, "the path %s is too long", path);
    NW_TRY(make_head(d, path, &head, &head_bytes));
    int fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = fd >= 0 && write_file(fd, d, head, head_bytes);
    int error = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        error = errno;
        ok = false;
    }
    free(head);
    if (ok && rename(aside, path) != 0) {
        error = errno;
        ok = false;
    }
    if (!ok) unlink(aside);
    NW_FAIL_IF(!ok, NW_E_SYSTEM, "%s cannot be written: %s; nothing was left behind", path, strerror(error));
    return NW_OK;
}
