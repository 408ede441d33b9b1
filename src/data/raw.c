/*
 * raw.c - reads and writes nowait-raw files; see raw.h for the layout.
 */
#include "data/raw.h"

#include "base/digest.h"
#include "data/bytes.h"
#include "data/reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, SECTION = 64 };

typedef struct header {
    char magic[16];
    uint64_t size;
    uint32_t shape[4]; /* classes, channels, height, width */
    uint64_t counts[NW_SPLITS];
    char name[32];
    float mean[4], deviation[4];
    uint64_t names, names_bytes, mean_image, labels[NW_SPLITS], pixels[NW_SPLITS];
    uint8_t pixel_digest[32], head_digest[32];
} header;
_Static_assert(sizeof(header) == 264, "the header lies in memory as raw.h says");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "nowait-raw files are used as they lie, little-endian");

static const char magic[16] = "nowait-raw 1\n";

static void hex_digest(nw_digest *hash, uint8_t digest[32])
{
    char text[65];
    nw_digest_end(hash, text);
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
    nw_digest hash = nw_sha256_begin();
    nw_digest_add(&hash, data, offsetof(header, head_digest));
    nw_digest_add(&hash, zeros, sizeof zeros);
    nw_digest_add(&hash, data + sizeof(header), head - sizeof(header));
    hex_digest(&hash, digest);
}

/* Of the pixels of all splits. */
static void pixel_digest(const nw_dataset *d, uint8_t digest[32])
{
    nw_digest hash = nw_sha256_begin();
    for (int s = 0; s < NW_SPLITS; s++)
        nw_digest_add(&hash, d->split[s].pixels, (size_t)d->split[s].count * nw_dataset_image_bytes(d));
    hex_digest(&hash, digest);
}

/* True if `count` items of `item` bytes at `offset` lie inside the file, behind the header, aligned. */
static bool inside(uint64_t offset, uint64_t count, uint64_t item, uint64_t size)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(count, item, &bytes)) return false;
    return offset >= sizeof(header) && offset % SECTION == 0 && offset <= size && bytes <= size - offset;
}

/* Shape, counts and places, all checked; *head is where the pixels begin. */
static nw_status parse_header(nw_dataset *d, const header *h, const uint8_t *data, size_t size, const char *name,
                              uint64_t *head)
{
    NW_FAIL_IF(h->size != size, NW_E_FILE,
               "%s has %zu bytes, but its header at offset %zu says %llu: it is truncated; make it again", name, size,
               offsetof(header, size), (unsigned long long)h->size);
    const uint32_t *shape = h->shape;
    NW_FAIL_IF(shape[0] < 1 || shape[0] > 1 << 20 || shape[1] < 1 || shape[1] > 4 || shape[2] < 1 || shape[2] > 4096 ||
                   shape[3] < 1 || shape[3] > 4096,
               NW_E_FILE, "%s: %u classes of images of %u x %u x %u at offset %zu are out of range", name, shape[0],
               shape[1], shape[2], shape[3], offsetof(header, shape));
    d->classes = (int)shape[0];
    d->channels = (int)shape[1];
    d->height = (int)shape[2];
    d->width = (int)shape[3];
    memcpy(d->name, h->name, sizeof d->name);
    d->name[sizeof d->name - 1] = 0;
    memcpy(d->mean, h->mean, sizeof d->mean);
    memcpy(d->deviation, h->deviation, sizeof d->deviation);
    *head = size;
    for (int s = 0; s < NW_SPLITS; s++) {
        uint64_t count = h->counts[s], labels = h->labels[s], pixels = h->pixels[s];
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
    header h;
    uint64_t head = 0;
    uint8_t digest[32];
    *names = NULL;
    NW_FAIL_IF(size < sizeof h || memcmp(data, magic, sizeof magic) != 0, NW_E_FILE,
               "%s is not a nowait-raw file of version 1 (offset 0); make it again with 'nowait data import'", name);
    memcpy(&h, data, sizeof h);
    NW_TRY(parse_header(d, &h, data, size, name, &head));
    bool ordered = (!h.names || inside(h.names, h.names_bytes, 1, head)) &&
                   (!h.mean_image || inside(h.mean_image, nw_dataset_image_bytes(d), sizeof(float), head));
    for (int s = 0; s < NW_SPLITS; s++) ordered = ordered && inside(h.labels[s], h.counts[s], sizeof(int32_t), head);
    NW_FAIL_IF(!ordered, NW_E_FILE, "%s: labels, class names or mean image do not lie before the pixels", name);
    head_digest(data, (size_t)head, digest);
    NW_FAIL_IF(
        memcmp(digest, h.head_digest, sizeof digest) != 0, NW_E_FILE,
        "%s: the SHA-256 at offset %zu does not fit what is before the pixels: the file is damaged; make it again",
        name, offsetof(header, head_digest));
    NW_TRY(check_labels(d, name));
    d->mean_image = h.mean_image ? (const float *)(const void *)(data + h.mean_image) : NULL;
    return h.names ? cut_names(d, (const char *)data + h.names, (size_t)h.names_bytes, name, names) : NW_OK;
}

nw_status nw_raw_verify(const uint8_t *data, size_t size, const char *name)
{
    nw_dataset d = {0};
    NW_AUTOFREE char **names = NULL;
    uint8_t digest[32];
    NW_TRY(nw_raw_parse(&d, data, size, name, &names));
    pixel_digest(&d, digest);
    NW_FAIL_IF(memcmp(digest, data + offsetof(header, pixel_digest), sizeof digest) != 0, NW_E_FILE,
               "%s: the SHA-256 at offset %zu does not fit the pixels: the file is damaged; make it again", name,
               offsetof(header, pixel_digest));
    return NW_OK;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

static uint64_t align(uint64_t at, uint64_t to) { return (at + to - 1) / to * to; }

/* Everything before the pixels, in one block that the caller frees. */
static nw_status make_head(const nw_dataset *d, const char *path, uint8_t **out, uint64_t *head)
{
    uint64_t image = nw_dataset_image_bytes(d), at = align(sizeof(header), SECTION);
    header h = {.shape = {(uint32_t)d->classes, (uint32_t)d->channels, (uint32_t)d->height, (uint32_t)d->width}};
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.name, d->name, sizeof h.name);
    memcpy(h.mean, d->mean, sizeof h.mean);
    memcpy(h.deviation, d->deviation, sizeof h.deviation);
    for (int c = 0; d->class_names && c < d->classes; c++) h.names_bytes += strlen(d->class_names[c]) + 1;
    h.names = d->class_names ? at : 0;
    at = align(at + h.names_bytes, SECTION);
    h.mean_image = d->mean_image ? at : 0;
    at = align(at + (d->mean_image ? image * sizeof(float) : 0), SECTION);
    for (int s = 0; s < NW_SPLITS; s++) {
        h.counts[s] = (uint64_t)d->split[s].count;
        h.labels[s] = at;
        at = align(at + h.counts[s] * sizeof(int32_t), SECTION);
    }
    *head = h.size = align(at, PAGE);
    for (int s = 0; s < NW_SPLITS; s++) {
        h.pixels[s] = h.size;
        h.size = align(h.size + h.counts[s] * image, SECTION);
    }
    pixel_digest(d, h.pixel_digest);
    uint8_t *to = *out = calloc(1, (size_t)*head);
    NW_FAIL_IF(!to, NW_E_MEMORY, "%s: no memory for the %llu bytes before its pixels", path, (unsigned long long)*head);
    uint8_t *line = to + h.names;
    for (int c = 0; d->class_names && c < d->classes; c++) {
        for (const char *letter = d->class_names[c]; *letter; letter++)
            *line++ = (uint8_t)(*letter == '\n' ? ' ' : *letter);
        *line++ = '\n';
    }
    if (d->mean_image) memcpy(to + h.mean_image, d->mean_image, image * sizeof(float));
    for (int s = 0; s < NW_SPLITS; s++)
        if (h.counts[s]) memcpy(to + h.labels[s], d->split[s].labels, h.counts[s] * sizeof(int32_t));
    memcpy(to, &h, sizeof h);
    head_digest(to, (size_t)*head, to + offsetof(header, head_digest));
    return NW_OK;
}

typedef struct content {
    const nw_dataset *dataset;
    const uint8_t *head;
    size_t head_bytes;
} content;

static nw_status fill_raw(FILE *out, void *context)
{
    static const uint8_t zeros[SECTION];
    const content *c = context;
    fwrite(c->head, 1, c->head_bytes, out);
    for (int s = 0; s < NW_SPLITS; s++) {
        size_t bytes = (size_t)c->dataset->split[s].count * nw_dataset_image_bytes(c->dataset);
        if (bytes) fwrite(c->dataset->split[s].pixels, 1, bytes, out);
        fwrite(zeros, 1, (SECTION - bytes % SECTION) % SECTION, out);
    }
    return NW_OK;
}

nw_status nw_raw_write(const nw_dataset *d, const char *path)
{
    NW_AUTOFREE uint8_t *head = NULL;
    uint64_t head_bytes = 0;
    for (int s = 0; s < NW_SPLITS; s++)
        NW_FAIL_IF(d->split[s].count && !d->split[s].pixels, NW_E_ARGUMENT,
                   "%s has images in files; they must be decoded before they are written", d->name);
    NW_TRY(make_head(d, path, &head, &head_bytes));
    return nw_file_replace_by(path, fill_raw, &(content){d, head, (size_t)head_bytes});
}
