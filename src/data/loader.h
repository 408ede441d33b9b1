/*
 * loader.h - batches of a dataset in a fixed order, made ahead of their use by threads of its own.
 *
 * Order and augmentation depend on nothing but (seed, epoch, sample): any number of workers, a start in the middle of
 * an epoch, and a batch asked for out of order all give the same bits. The samples of an epoch are a permutation of the
 * split (or the split in its own order); of `world` ranks, rank r takes positions r, r + world, r + 2 world, ... of it,
 * so that together they take each sample once, each with the augmentation that one rank alone would give it.
 *
 * With `owner`, ranks take images of their own alone: each goes through them again and again, every time in a new
 * order. An epoch has as many samples for each rank as without, so that a rank with few images sees them several times
 * meanwhile, and one with many goes on with the others in the next epoch.
 *
 * All ranks have the same number of batches. Where samples do not divide evenly, ranks differ by one sample, and a rank
 * that would run out before the others splits its last batch in two (batches of one image cannot be split: then the
 * last samples of the permutation are left out).
 *
 *   nw_loader_start(loader, epoch, 0);
 *   while ((status = nw_loader_next(loader, &batch)) == NW_OK && batch.n > 0) train(batch.images, batch.labels,
 * batch.n);
 *
 * A loader is used from one thread at a time; its workers are its own. After nw_loader_create nothing is allocated but
 * for photographs larger than all before.
 */
#ifndef NW_DATA_LOADER_H
#define NW_DATA_LOADER_H

#include "data/augment.h"
#include "data/dataset.h"
#include "data/photo.h"

typedef struct nw_loader nw_loader;

typedef struct nw_loader_options {
    const nw_dataset *dataset; /* outlives the loader */
    nw_split split;
    int batch_size;
    bool shuffle;
    bool drop_last; /* leave out the last batch where it is not full */
    bool augmented; /* else normalised only, with the window in the middle */
    nw_augment augment;
    uint64_t seed;
    int workers;           /* threads that work ahead; 0: the caller's own does it all in nw_loader_next */
    int rank, world;       /* world 0: alone */
    bool replicate;        /* every rank takes all samples, in an order and with draws of its own */
    const uint16_t *owner; /* of each sample: the rank that takes it (nw_dataset_deal); NULL: see above. Outlives it */
    nw_decode decode;      /* nw_image_decode; needed where the dataset is files */
    int patience;          /* seconds that a worker may spend on one step before the wait for it fails; 0: 300 */
} nw_loader_options;

/* Memory of the loader, valid until the next call with it. */
typedef struct nw_batch {
    float *images; /* n x channels x height x width, normalised; the caller may write to it */
    int32_t *labels;
    int64_t *ids; /* which samples of the split */
    int n;        /* 0: the epoch is over */
    int64_t epoch, index;
} nw_batch;

/* An augmentation that only normalises, as the dataset says. */
nw_augment nw_augment_plain(const nw_dataset *dataset);

nw_status nw_loader_create(nw_loader **loader, const nw_loader_options *options);
/* At any time, also with batches under way. */
void nw_loader_free(nw_loader *loader);
static inline void nw_loader_autofree(nw_loader **loader) { nw_loader_free(*loader); }

int64_t nw_loader_batches(const nw_loader *loader); /* of an epoch */
void nw_loader_shape(const nw_loader *loader, int *channels, int *height, int *width);

/* Makes `first` the next batch, of any epoch. first == batches: the epoch is over at once. */
nw_status nw_loader_start(nw_loader *loader, int64_t epoch, int64_t first);
/* The next batch; n == 0 behind the last. A file that cannot be read fails with its name, again and again, until the
 * loader is started anew. */
nw_status nw_loader_next(nw_loader *loader, nw_batch *batch);
/* Any batch of any epoch, out of order; the sequence of nw_loader_next goes on as if nothing had happened, but its
 * current batch stays valid. Fastest within the epochs of the current start and of the last call. */
nw_status nw_loader_batch(nw_loader *loader, int64_t epoch, int64_t index, nw_batch *batch);

#endif
