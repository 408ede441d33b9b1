/*
 * select.c - parts of a dataset: fewer classes, a validation split, fewer images, shares of owners.
 *
 * Images in memory are copied into new blocks and the old ones given back, so that splits stay contiguous; photographs
 * are only names, and cheap to rearrange. The choice depends on nothing but the labels and the numbers asked for.
 */
#include "data/reader.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The seed of the validation split in the published experiments; our generator is another one, so the images differ. */
enum { SPLIT_SEED = 180452398 };

/* The images at `index`, in that order, in new memory; labels become map[label] where there is a map. */
static nw_status gather(nw_dataset *d, const nw_images *from, const int64_t *index, int64_t count, const int32_t *map,
                        nw_images *to)
{
    void *block = NULL;
    *to = (nw_images){0};
    if (count == 0) return NW_OK;
    NW_TRY(nw_dataset_alloc(d, (uint64_t)count, sizeof(int32_t), &block));
    int32_t *labels = block;
    for (int64_t i = 0; i < count; i++) labels[i] = map ? map[from->labels[index[i]]] : from->labels[index[i]];
    to->labels = labels;
    if (from->pixels) {
        size_t bytes = nw_dataset_image_bytes(d);
        NW_TRY(nw_dataset_alloc(d, (uint64_t)count, bytes, &block));
        uint8_t *pixels = block;
        for (int64_t i = 0; i < count; i++)
            memcpy(pixels + (size_t)i * bytes, from->pixels + (size_t)index[i] * bytes, bytes);
        to->pixels = pixels;
    } else {
        NW_TRY(nw_dataset_alloc(d, (uint64_t)count, sizeof(char *), &block));
        char **paths = block;
        for (int64_t i = 0; i < count; i++) paths[i] = from->paths[index[i]];
        to->paths = paths;
    }
    to->count = count;
    return NW_OK;
}

/* Blocks that the dataset does not know (mapped files) stay. */
static void give_back(nw_dataset *d, const nw_images *images)
{
    nw_dataset_release(d, images->labels);
    nw_dataset_release(d, images->pixels);
    nw_dataset_release(d, images->paths);
}

static nw_status new_index(const nw_dataset *d, int64_t count, int64_t **index)
{
    *index = malloc((size_t)(count ? count : 1) * sizeof **index);
    NW_FAIL_IF(!*index, NW_E_MEMORY, "no memory to choose among the %lld images of %s", (long long)count, d->name);
    return NW_OK;
}

/* The split has these images alone from now on. */
static nw_status keep(nw_dataset *d, nw_images *images, const int64_t *index, int64_t count, const int32_t *map)
{
    nw_images kept;
    NW_TRY(gather(d, images, index, count, map, &kept));
    give_back(d, images);
    *images = kept;
    return NW_OK;
}

/* ---- Classes ----------------------------------------------------------------------------------------------------- */

static nw_status keep_in_split(nw_dataset *d, nw_images *images, const int32_t *map)
{
    NW_AUTOFREE int64_t *index = NULL;
    int64_t count = 0;
    NW_TRY(new_index(d, images->count, &index));
    for (int64_t i = 0; i < images->count; i++)
        if (map[images->labels[i]] >= 0) index[count++] = i;
    return keep(d, images, index, count, map);
}

nw_status nw_dataset_keep_classes(nw_dataset *d, int classes)
{
    NW_FAIL_IF(classes < 2 || classes > d->classes, NW_E_ARGUMENT, "%s has %d classes; %d of them cannot be kept",
               d->name, d->classes, classes);
    int every = d->classes / classes;
    void *block = NULL;
    NW_TRY(nw_dataset_alloc(d, (uint64_t)d->classes, sizeof(int32_t), &block));
    int32_t *map = block;
    for (int c = 0; c < d->classes; c++) map[c] = c % every == 0 && c / every < classes ? c / every : -1;
    for (int s = 0; s < NW_SPLITS; s++) NW_TRY(keep_in_split(d, &d->split[s], map));
    if (d->class_names) {
        NW_TRY(nw_dataset_alloc(d, (uint64_t)classes, sizeof(char *), &block));
        char **names = block;
        for (int c = 0; c < classes; c++) names[c] = d->class_names[c * every];
        d->class_names = names;
    }
    nw_dataset_release(d, map);
    d->classes = classes;
    return NW_OK;
}

/* ---- The validation split ---------------------------------------------------------------------------------------- */

/* The images class by class, each class in their order: those of class c are order[starts[c]] to before
 * order[starts[c + 1]]. Both vectors are the caller's, with classes + 1 and count places. */
static void sort_by_class(const nw_images *images, int classes, int64_t *starts, int64_t *order)
{
    memset(starts, 0, (size_t)classes * sizeof *starts);
    for (int64_t i = 0; i < images->count; i++) starts[images->labels[i]]++;
    for (int c = 1; c < classes; c++) starts[c] += starts[c - 1];
    starts[classes] = images->count;
    for (int64_t i = images->count; i-- > 0;) order[--starts[images->labels[i]]] = i;
}

/* The first `take` steps of a shuffle. */
static void shuffle(nw_rng *rng, int64_t *order, int64_t count, int64_t take)
{
    for (int64_t k = 0; k < take && k < count; k++) {
        int64_t j = k + (int64_t)nw_rng_below(rng, (uint32_t)(count - k)), picked = order[j];
        order[j] = order[k];
        order[k] = picked;
    }
}

/* Marks in `chosen` round(ratio x n) of the n images of each class. */
static void choose(const nw_dataset *d, const nw_images *images, double ratio, int64_t *starts, int64_t *order,
                   uint8_t *chosen)
{
    sort_by_class(images, d->classes, starts, order);
    for (int c = 0; c < d->classes; c++) {
        int64_t *class = order + starts[c], n = starts[c + 1] - starts[c], take = (int64_t)(ratio * (double)n + 0.5);
        nw_rng rng = nw_rng_make(SPLIT_SEED, NW_PURPOSE_SPLIT, (uint64_t)c, 0);
        shuffle(&rng, class, n, take);
        for (int64_t k = 0; k < take && k < n; k++) chosen[class[k]] = 1;
    }
}

static nw_status divide(nw_dataset *d, const uint8_t *chosen, int64_t *index)
{
    nw_images *train = &d->split[NW_SPLIT_TRAIN], rest, valid;
    int64_t count = 0;
    for (int64_t i = 0; i < train->count; i++)
        if (chosen[i]) index[count++] = i;
    NW_FAIL_IF(count == 0 || count == train->count, NW_E_ARGUMENT,
               "this validation ratio leaves %lld of the %lld training images of %s for training; choose another one",
               (long long)(train->count - count), (long long)train->count, d->name);
    NW_TRY(gather(d, train, index, count, NULL, &valid));
    count = 0;
    for (int64_t i = 0; i < train->count; i++)
        if (!chosen[i]) index[count++] = i;
    NW_TRY(gather(d, train, index, count, NULL, &rest));
    give_back(d, train);
    d->split[NW_SPLIT_TRAIN] = rest;
    d->split[NW_SPLIT_VALID] = valid;
    return NW_OK;
}

nw_status nw_dataset_split_validation(nw_dataset *d, double ratio)
{
    const nw_images *train = &d->split[NW_SPLIT_TRAIN];
    NW_FAIL_IF(d->split[NW_SPLIT_VALID].count > 0, NW_E_ARGUMENT,
               "%s has validation images of its own; leave the validation ratio 0", d->name);
    NW_AUTOFREE int64_t *starts = malloc(((size_t)d->classes + 1) * sizeof *starts), *order = NULL;
    NW_AUTOFREE uint8_t *chosen = calloc((size_t)train->count + 1, 1);
    NW_FAIL_IF(!starts || !chosen, NW_E_MEMORY, "no memory to split the images of %s", d->name);
    NW_TRY(new_index(d, train->count, &order));
    choose(d, train, ratio, starts, order, chosen);
    return divide(d, chosen, order);
}

/* ---- Fewer images ------------------------------------------------------------------------------------------------ */

/* Trees are sorted by class: their first images would all be alike. */
static bool is_sorted(const nw_images *images)
{
    for (int64_t i = 1; i < images->count; i++)
        if (images->labels[i] < images->labels[i - 1]) return false;
    return images->labels[0] != images->labels[images->count - 1];
}

nw_status nw_dataset_limit(nw_dataset *d, int64_t limit)
{
    for (int s = 0; s < NW_SPLITS; s++) {
        nw_images *images = &d->split[s];
        if (images->count <= limit) continue;
        if (!is_sorted(images)) {
            images->count = limit;
            continue;
        }
        NW_AUTOFREE int64_t *index = NULL;
        NW_TRY(new_index(d, limit, &index));
        for (int64_t i = 0; i < limit; i++) index[i] = (int64_t)((__int128)i * images->count / limit);
        NW_TRY(keep(d, images, index, limit, NULL));
    }
    return NW_OK;
}

/* ---- Shares ------------------------------------------------------------------------------------------------------ */

typedef struct dealing {
    int parts;
    double alpha;
    int64_t count; /* images of all */
    int64_t *held; /* by owner */
    float *weight; /* by owner: its share of a class, in any unit */
    uint16_t *owner;
} dealing;

static bool is_full(const dealing *s, int p) { return s->held[p] * s->parts >= s->count; }

/* A draw from the Dirichlet distribution: gamma variates, relative to the largest of those that still take images. */
static double draw_weights(dealing *s, nw_rng *rng)
{
    float most = -INFINITY;
    double sum = 0;
    for (int p = 0; p < s->parts; p++) {
        s->weight[p] = nw_rng_log_gamma(rng, s->alpha);
        if (!is_full(s, p) && s->weight[p] > most) most = s->weight[p];
    }
    for (int p = 0; p < s->parts; p++) {
        s->weight[p] = is_full(s, p) ? 0 : (float)exp((double)(s->weight[p] - most));
        sum += (double)s->weight[p];
    }
    return sum;
}

/* The images of a class, in any order, cut in proportion to the weights. */
static void deal_class(dealing *s, nw_rng *rng, int64_t *images, int64_t n)
{
    shuffle(rng, images, n, n);
    double sum = draw_weights(s, rng), before = 0;
    for (int64_t p = 0, i = 0; p < s->parts; p++) {
        before += (double)s->weight[p];
        int64_t end = (int64_t)(before / sum * (double)n);
        s->held[p] += end - i;
        for (; i < end; i++) s->owner[images[i]] = (uint16_t)p;
    }
}

static void fill_up(dealing *s, int p, int64_t least)
{
    while (s->held[p] < least) {
        int from = 0;
        for (int q = 1; q < s->parts; q++)
            if (s->held[q] > s->held[from]) from = q;
        for (int64_t i = s->count; i-- > 0 && s->held[p] < least && s->held[from] > least;) {
            if (s->owner[i] != from) continue;
            s->owner[i] = (uint16_t)p;
            s->held[from]--;
            s->held[p]++;
        }
    }
}

nw_status nw_dataset_deal(const nw_dataset *d, nw_split split, int parts, double alpha, int64_t least, uint64_t seed,
                          uint16_t *owner)
{
    const nw_images *images = &d->split[split];
    dealing s = {.parts = parts, .alpha = alpha, .count = images->count, .owner = owner};
    int64_t *starts = malloc(((size_t)d->classes + 1) * sizeof *starts);
    int64_t *order = malloc(((size_t)images->count + 1) * sizeof *order);
    s.held = calloc((size_t)parts, sizeof *s.held);
    s.weight = calloc((size_t)parts, sizeof *s.weight);
    bool memory = starts && order && s.held && s.weight;
    if (memory) {
        sort_by_class(images, d->classes, starts, order);
        for (int c = 0; c < d->classes; c++) {
            nw_rng rng = nw_rng_make(seed, NW_PURPOSE_DEAL, (uint64_t)c, 0);
            if (starts[c + 1] > starts[c]) deal_class(&s, &rng, order + starts[c], starts[c + 1] - starts[c]);
        }
        for (int p = 0; p < parts; p++) fill_up(&s, p, least < s.count / parts ? least : s.count / parts);
    }
    free(starts);
    free(order);
    free(s.held);
    free(s.weight);
    return memory ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory to deal out the images of %s", d->name);
}
