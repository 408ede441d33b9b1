/*
 * facts.c - counts and statistics of an open dataset, and its conversion to one nowait-raw file; see facts.h.
 *
 * Mean and deviation come from a histogram of the bytes, so they are exact for the images that were measured.
 */
#include "data/facts.h"

#include "data/raw.h"
#include "data/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DECODED = 2000, MOST_SIDE = 256 };

typedef uint64_t histogram[4][256];

static void add_planes(const nw_dataset *d, const nw_images *images, histogram h)
{
    size_t plane = (size_t)d->height * (size_t)d->width;
    const uint8_t *at = images->pixels;
    for (int64_t i = 0; i < images->count; i++)
        for (int c = 0; c < d->channels; c++)
            for (size_t p = 0; p < plane; p++) h[c][*at++]++;
}

static void note_size(nw_data_facts *f, int height, int width)
{
    if (!f->most_height || height < f->least_height) f->least_height = height;
    if (!f->most_width || width < f->least_width) f->least_width = width;
    if (height > f->most_height) f->most_height = height;
    if (width > f->most_width) f->most_width = width;
}

static nw_status add_files(nw_data_facts *f, const nw_images *images, histogram h)
{
    NW_CLEANUP(nw_bitmap_free) nw_bitmap bitmap = {0};
    f->measured = images->count < MOST_DECODED ? images->count : MOST_DECODED;
    for (int64_t i = 0; i < f->measured; i++) {
        NW_TRY(nw_image_decode(images->paths[i * images->count / f->measured], 0, &bitmap, NULL, NULL));
        size_t pixels = (size_t)bitmap.height * (size_t)bitmap.width;
        note_size(f, bitmap.height, bitmap.width);
        for (size_t p = 0; p < pixels; p++)
            for (int c = 0; c < 3; c++) h[c][bitmap.pixels[3 * p + (size_t)c]]++;
    }
    return NW_OK;
}

static void finish(nw_data_facts *f, int channels, histogram h)
{
    for (int c = 0; c < channels; c++) {
        double count = 0, sum = 0, squares = 0;
        for (int v = 0; v < 256; v++) {
            double n = (double)h[c][v], x = v / 255.0;
            count += n;
            sum += n * x;
            squares += n * x * x;
        }
        if (count == 0) continue;
        f->mean[c] = sum / count;
        f->deviation[c] = sqrt(fmax(0, squares / count - f->mean[c] * f->mean[c]));
    }
}

static nw_status count_classes(nw_data_facts *f, const nw_dataset *d)
{
    for (int s = 0; s < NW_SPLITS; s++) {
        f->per_class[s] = calloc((size_t)d->classes, sizeof(int64_t));
        NW_FAIL_IF(!f->per_class[s], NW_E_MEMORY, "no memory for %d counts", d->classes);
        for (int64_t i = 0; i < d->split[s].count; i++) f->per_class[s][d->split[s].labels[i]]++;
    }
    return NW_OK;
}

/* A dataset that came from a nowait-raw file names it in `source`. */
static nw_status verify_raw(const nw_dataset *d)
{
    size_t length = strlen(d->source);
    NW_CLEANUP(nw_file_unmap) nw_file file = {0};
    if (length < 6 || strcmp(d->source + length - 6, ".nwraw") != 0) return NW_OK;
    NW_TRY(nw_file_map(&file, d->source));
    return nw_raw_verify(file.data, file.size, d->source);
}

nw_status nw_data_measure(nw_data_facts *f, const nw_dataset *d)
{
    histogram h = {{0}};
    *f = (nw_data_facts){0};
    const nw_images *images = &d->split[d->split[NW_SPLIT_TRAIN].count ? NW_SPLIT_TRAIN : NW_SPLIT_TEST];
    NW_TRY(verify_raw(d));
    NW_TRY(count_classes(f, d));
    if (images->pixels) {
        add_planes(d, images, h);
        f->measured = images->count;
        note_size(f, d->height, d->width);
    } else if (images->count) {
        NW_TRY(add_files(f, images, h));
    }
    finish(f, d->channels, h);
    return NW_OK;
}

void nw_data_facts_free(nw_data_facts *f)
{
    for (int s = 0; s < NW_SPLITS; s++) free(f->per_class[s]);
    *f = (nw_data_facts){0};
}

/* The size of the first photograph becomes the dataset's. */
static nw_status decode_photographs(nw_dataset *d)
{
    NW_CLEANUP(nw_bitmap_free) nw_bitmap bitmap = {0};
    int height = 0, width = 0;
    const nw_images *images = &d->split[d->split[NW_SPLIT_TRAIN].count ? NW_SPLIT_TRAIN : NW_SPLIT_TEST];
    NW_TRY(nw_image_decode(images->paths[0], 0, &bitmap, &height, &width));
    NW_FAIL_IF(
        height > MOST_SIDE || width > MOST_SIDE, NW_E_ARGUMENT,
        "%s has %d x %d pixels; only images of up to %d x %d can be imported, larger ones are best left as files",
        images->paths[0], height, width, MOST_SIDE, MOST_SIDE);
    d->height = height;
    d->width = width;
    for (int s = 0; s < NW_SPLITS; s++) NW_TRY(nw_dataset_decode_split(d, (nw_split)s));
    return NW_OK;
}

nw_status nw_data_import(nw_dataset *d, const char *path)
{
    if (d->height == 0) NW_TRY(decode_photographs(d));
    return nw_raw_write(d, path);
}

nw_status nw_data_mean_image(const nw_dataset *d, float *mean)
{
    const nw_images *train = &d->split[NW_SPLIT_TRAIN];
    NW_FAIL_IF(!train->pixels || train->count == 0, NW_E_ARGUMENT,
               "a mean image needs small images of one size; %s has none in memory", d->source);
    size_t pixels = (size_t)d->channels * (size_t)d->height * (size_t)d->width;
    NW_AUTOFREE uint64_t *sums = calloc(pixels, sizeof *sums);
    NW_FAIL_IF(!sums, NW_E_MEMORY, "no memory for a mean image");
    for (int64_t i = 0; i < train->count; i++) {
        const uint8_t *image = train->pixels + (size_t)i * pixels;
        for (size_t k = 0; k < pixels; k++) sums[k] += image[k];
    }
    for (size_t k = 0; k < pixels; k++) mean[k] = (float)((double)sums[k] / (255.0 * (double)train->count));
    return NW_OK;
}
