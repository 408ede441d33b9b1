/*
 * facts.h - what `nowait data info` tells, measured on the images themselves, and what `nowait data import` does.
 */
#ifndef NW_DATA_FACTS_H
#define NW_DATA_FACTS_H

#include "data/dataset.h"

typedef struct nw_data_facts {
    int64_t *per_class[NW_SPLITS]; /* `classes` counts each */
    double mean[4], deviation[4];  /* of the training pixels on the scale 0..1; of 2000 photographs at most */
    int64_t measured;              /* images that mean and deviation come from */
    int least_height, most_height, least_width, most_width;
} nw_data_facts;

/* Also checks the pixels of a nowait-raw file against their digest. To be freed, also after a failure. */
nw_status nw_data_measure(nw_data_facts *facts, const nw_dataset *dataset);
void nw_data_facts_free(nw_data_facts *facts);

/* The mean of all training images that lie in memory, channels x height x width, on the scale 0..1. NW_E_ARGUMENT for
 * photographs. */
nw_status nw_data_mean_image(const nw_dataset *dataset, float *mean);

/* Writes an open dataset into `path`, a nowait-raw file. Photographs are decoded into the dataset's memory first and
 * must all have the same size, 256 x 256 at most. */
nw_status nw_data_import(nw_dataset *dataset, const char *path);

#endif
