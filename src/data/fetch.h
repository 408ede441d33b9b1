/*
 * fetch.h - what `nowait data` does: fetch a dataset from its publisher, tell what is in it, convert it.
 *
 * Fetching goes on where an earlier attempt stopped (FILE.part, with the server's tag in FILE.part.tag), checks the
 * published digest, unpacks into a folder with another name, and renames that: a dataset is there whole or not at all.
 * Two processes that want the same dataset take turns.
 */
#ifndef NW_DATA_FETCH_H
#define NW_DATA_FETCH_H

#include "data/dataset.h"

typedef struct nw_fetch_options {
    const char *name; /* of a dataset that has an address */
    const char *dir;  /* the root that gets the dataset's folder */
    const char *url;  /* base address instead of the publisher's; NULL: $NOWAIT_MIRROR, or the publisher's */
    nw_fetch_progress progress; /* may be NULL */
    void *progress_context;
} nw_fetch_options;

/* true in *already: it was there. */
nw_status nw_data_fetch(const nw_fetch_options *options, bool *already);

/* NULL if the dataset has no address; otherwise where it comes from, for messages. */
const char *nw_fetch_address(const char *name);

/* What `nowait data info` prints, measured on the images themselves. */
typedef struct nw_data_facts {
    int64_t *per_class[NW_SPLITS]; /* `classes` counts each; free with nw_data_facts_free */
    double mean[4], deviation[4];  /* of the training pixels on the scale 0..1; of at most 2000 photographs */
    int64_t measured;              /* images that mean and deviation come from */
    int least_height, least_width, most_height, most_width;
} nw_data_facts;

nw_status nw_data_measure(nw_data_facts *facts, const nw_dataset *dataset);
void nw_data_facts_free(nw_data_facts *facts);

/* Converts an open dataset into `path`, a nowait-raw file. Images in files must all have the same size. */
nw_status nw_data_import(const nw_dataset *dataset, const char *path);

#endif
