/*
 * loader.c - `nowait bench loader`: images per second that the loader makes ready for training.
 *
 * Small images are cropped from 4 pixels of padding, flipped and cut out; photographs are decoded, a random part of
 * them is scaled to 224 x 224 and flipped. Nothing is done with the batches, so the loader alone is measured: first by
 * one thread ("a core"), then, with --workers, by that many threads beside the caller's. Both are timed in turns, in
 * rounds of
 * --steps batches, after a round that is not timed; the median counts, the best is printed beside it.
 */
#include "bench/bench.h"

#include "base/clock.h"
#include "data/loader.h"

#include <string.h>

enum { ROUNDS = 5, CUTOUT = 8, PAD = 4 };

typedef struct rate {
    double median, best; /* images per second */
} rate;

/* Goes on where the last call stopped; at the end of an epoch comes the next. */
static nw_status run_round(nw_loader *loader, int steps, double *images_per_second)
{
    int64_t images = 0, start = nw_now_ns(), epoch = 0;
    for (int i = 0; i < steps;) {
        nw_batch batch;
        NW_TRY(nw_loader_next(loader, &batch));
        images += batch.n;
        epoch = batch.epoch;
        if (batch.n > 0)
            i++;
        else
            NW_TRY(nw_loader_start(loader, epoch + 1, 0));
    }
    *images_per_second = (double)images / nw_seconds(nw_now_ns() - start);
    return NW_OK;
}

static nw_status measure(nw_loader *loaders[2], int steps, rate rates[2])
{
    double all[2][ROUNDS];
    for (int round = -1; round < ROUNDS; round++)
        for (int i = 0; i < 2 && loaders[i]; i++) {
            double value = 0;
            if (round < 0) NW_TRY(nw_loader_start(loaders[i], 0, 0));
            NW_TRY(run_round(loaders[i], steps, &value));
            if (round >= 0) all[i][round] = value;
        }
    for (int i = 0; i < 2 && loaders[i]; i++) {
        rates[i].median = nw_median(all[i], ROUNDS); /* sorted now */
        rates[i].best = all[i][ROUNDS - 1];
    }
    return NW_OK;
}

static void print_json(const nw_loader_options *o, int steps, const nw_loader *loader, const rate rates[2],
                       nw_cpu_ticks before)
{
    int channels, height, width;
    nw_loader_shape(loader, &channels, &height, &width);
    nw_json json = nw_json_begin(stdout, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "benchmark", "loader");
    nw_json_put_string(&json, "dataset", o->dataset->name);
    nw_json_put_string(&json, "source", o->dataset->height ? "memory" : "files");
    nw_json_put_int(&json, "channels", channels);
    nw_json_put_int(&json, "height", height);
    nw_json_put_int(&json, "width", width);
    nw_json_put_int(&json, "batch_size", o->batch_size);
    nw_json_put_int(&json, "steps", steps);
    nw_json_put_int(&json, "rounds", ROUNDS);
    nw_json_put_double(&json, "images_per_second_core", rates[0].median);
    nw_json_put_double(&json, "images_per_second_core_best", rates[0].best);
    nw_json_put_int(&json, "workers", o->workers);
    if (o->workers) {
        nw_json_put_double(&json, "images_per_second", rates[1].median);
        nw_json_put_double(&json, "images_per_second_best", rates[1].best);
    }
    nw_bench_machine_json(&json, before);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

static void print_table(const nw_loader_options *o, int steps, const nw_loader *loader, const rate rates[2],
                        nw_cpu_ticks before)
{
    int channels, height, width;
    nw_loader_shape(loader, &channels, &height, &width);
    printf("dataset     %s, %s, batches of %d images of %d x %d x %d\n", o->dataset->name,
           o->dataset->height ? "in memory: crop, flip, cutout" : "image files: random resized crop, flip",
           o->batch_size, channels, height, width);
    printf("a core      %.0f images/s (median of %d rounds of %d batches), %.0f best\n", rates[0].median, ROUNDS, steps,
           rates[0].best);
    if (o->workers)
        printf("%d worker%s   %.0f images/s with the caller's help, %.0f best\n", o->workers,
               o->workers == 1 ? " " : "s", rates[1].median, rates[1].best);
    nw_bench_machine_table(before);
}

static nw_loader_options options_for(const nw_dataset *d, int batch_size, int64_t seed)
{
    nw_loader_options o = {.dataset = d,
                           .split = NW_SPLIT_TRAIN,
                           .batch_size = batch_size,
                           .shuffle = true,
                           .augmented = true,
                           .augment = nw_augment_plain(d),
                           .seed = (uint64_t)seed,
                           .decode = nw_image_decode};
    o.augment.flip = true;
    if (d->height) {
        int side = d->height < d->width ? d->height : d->width;
        o.augment.pad = PAD;
        o.augment.cutout = side < CUTOUT ? side : CUTOUT;
    } else {
        o.augment.resized_crop = true;
    }
    return o;
}

static nw_status run_loader_bench(nw_loader_options *o, int workers, const nw_bench_settings *asked,
                                  nw_loader *loaders[2])
{
    NW_TRY(nw_loader_create(&loaders[0], o));
    o->workers = workers;
    if (workers) NW_TRY(nw_loader_create(&loaders[1], o));
    nw_cpu_ticks before = nw_machine_ticks();
    rate rates[2] = {{0}};
    NW_TRY(measure(loaders, asked->steps, rates));
    if (strcmp(asked->format, "json") == 0)
        print_json(o, asked->steps, loaders[0], rates, before);
    else
        print_table(o, asked->steps, loaders[0], rates, before);
    return NW_OK;
}

nw_status nw_bench_loader(const nw_common_settings *all, const nw_data_settings *data, int batch_size,
                          const nw_bench_settings *asked)
{
    nw_dataset_options options = {.name = data->dataset, .dir = all->data_dir, .seed = (uint64_t)all->seed};
    NW_CLEANUP(nw_dataset_autoclose) nw_dataset *dataset = NULL;
    NW_TRY(nw_dataset_open(&dataset, &options));
    nw_loader_options o = options_for(dataset, batch_size, all->seed);
    nw_loader *loaders[2] = {NULL, NULL};
    nw_status status = run_loader_bench(&o, data->workers, asked, loaders);
    nw_loader_free(loaders[0]);
    nw_loader_free(loaders[1]);
    return status;
}
