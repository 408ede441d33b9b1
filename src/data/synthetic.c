/*
 * synthetic.c - images that are made, not read: for tests, benchmarks and machines without data.
 *
 * Each class has a smooth random texture. An image is its class's texture, moved by a random offset around both edges,
 * with a random contrast, plus noise:
 *
 *   x[c][y][x] = 128 + s * t_k[c][(y + dy) mod H][(x + dx) mod W] + noise,   s in [24, 56]
 *
 * Since offsets are uniform, the mean image of every class is the same gray: a linear classifier learns next to
 * nothing, and a convolutional network, which sees texture wherever it lies, learns it soon. Everything is drawn from
 * (seed, sample), so any image is the same however many are made.
 */
#include "data/reader.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>

enum { TRAIN = 10000, TEST = 2000, GRID = 8, NOISE = 40 };

/* Streams of the purpose: what b means. */
enum { STREAM_IMAGE, STREAM_TEXTURE };

/* A texture of one channel: values at GRID x GRID points around a torus, cubic in between, mean 0 and deviation 1. */
static void make_plane(nw_rng *rng, int size, float *plane)
{
    float grid[GRID][GRID];
    double sum = 0, squares = 0;
    int pixels = size * size;
    for (int y = 0; y < GRID; y++)
        for (int x = 0; x < GRID; x++) grid[y][x] = nw_rng_normal(rng);
    for (int y = 0; y < size; y++)
        for (int x = 0; x < size; x++) {
            float v = (float)y * GRID / (float)size, u = (float)x * GRID / (float)size;
            int j = (int)v, i = (int)u;
            float fy = v - (float)j, fx = u - (float)i;
            fy = fy * fy * (3 - 2 * fy);
            fx = fx * fx * (3 - 2 * fx);
            int j1 = (j + 1) % GRID, i1 = (i + 1) % GRID;
            float top = grid[j][i] + fx * (grid[j][i1] - grid[j][i]);
            float low = grid[j1][i] + fx * (grid[j1][i1] - grid[j1][i]);
            float value = top + fy * (low - top);
            plane[y * size + x] = value;
            sum += value;
            squares += (double)value * value;
        }
    double mean = sum / pixels, deviation = sqrt(squares / pixels - mean * mean);
    for (int i = 0; i < pixels; i++) plane[i] = (float)((plane[i] - mean) / (deviation > 1e-6 ? deviation : 1));
}

static void make_image(const nw_dataset *d, uint64_t seed, uint64_t sample, const float *texture, uint8_t *to)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_SYNTHETIC, sample, STREAM_IMAGE);
    int size = d->height, dy = (int)nw_rng_below(&rng, (uint32_t)size), dx = (int)nw_rng_below(&rng, (uint32_t)size);
    float contrast = 24.0f + 32.0f * nw_rng_uniform(&rng);
    uint32_t noise = 0;
    size_t n = 0;
    for (int c = 0; c < d->channels; c++)
        for (int y = 0; y < size; y++) {
            const float *row = texture + ((size_t)c * (size_t)size + (size_t)((y + dy) % size)) * (size_t)size;
            for (int x = 0; x < size; x++, n++) {
                int at = x + dx < size ? x + dx : x + dx - size;
                noise = n % 4 == 0 ? nw_rng_u32(&rng) : noise >> 8;
                float value = 128.0f + contrast * row[at] + (float)((int)(noise & 255) - 128) * (NOISE / 128.0f);
                to[n] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : (int)value);
            }
        }
}

static nw_status make_split(nw_dataset *d, nw_split split, int64_t count, uint64_t seed, const float *textures)
{
    int32_t *labels;
    uint8_t *pixels;
    size_t bytes = nw_dataset_image_bytes(d);
    NW_TRY(nw_dataset_room(d, split, (uint64_t)count, &labels, &pixels));
    for (int64_t i = 0; i < count; i++) {
        labels[i] = (int32_t)(i % d->classes);
        make_image(d, seed, ((uint64_t)split << 40) + (uint64_t)i, textures + (size_t)labels[i] * bytes,
                   pixels + (size_t)i * bytes);
    }
    return NW_OK;
}

static nw_status make_synthetic(nw_dataset *d, const nw_dataset_options *o, const char *dir)
{
    (void)dir;
    NW_FAIL_IF(o->image_size < 0 || o->image_size > 4096 || o->channels < 0 || o->channels > 4 || o->classes == 1 ||
                   o->classes > 1 << 16,
               NW_E_ARGUMENT,
               "synthetic images of %d channels, size %d and %d classes cannot be made: 1 to 4 channels, sizes to 4096 "
               "and 2 to 65536 classes can",
               o->channels, o->image_size, o->classes);
    d->classes = o->classes ? o->classes : 10;
    d->channels = o->channels ? o->channels : 3;
    d->height = d->width = o->image_size ? o->image_size : 32;
    size_t bytes = nw_dataset_image_bytes(d), plane = bytes / (size_t)d->channels;
    void *block = NULL;
    NW_TRY(nw_dataset_alloc(d, (uint64_t)d->classes * bytes, sizeof(float), &block));
    float *textures = block;
    for (int k = 0; k < d->classes; k++) {
        nw_rng rng = nw_rng_make(o->seed, NW_PURPOSE_SYNTHETIC, (uint64_t)k, STREAM_TEXTURE);
        for (int c = 0; c < d->channels; c++)
            make_plane(&rng, d->height, textures + (size_t)k * bytes + (size_t)c * plane);
    }
    int64_t most = o->limit > 0 ? o->limit : INT64_MAX;
    NW_TRY(make_split(d, NW_SPLIT_TRAIN, most < TRAIN ? most : TRAIN, o->seed, textures));
    NW_TRY(make_split(d, NW_SPLIT_TEST, most < TEST ? most : TEST, o->seed, textures));
    nw_dataset_release(d, textures);
    for (int c = 0; c < 4; c++) {
        d->mean[c] = 0.5f;
        d->deviation[c] = 0.2f;
    }
    return NW_OK;
}

const nw_reader nw_reader_synthetic = {
    .name = "synthetic",
    .summary = "generated textures, 10,000 + 2,000 of any size and number of classes",
    .no_files = true,
    .open = make_synthetic,
};
