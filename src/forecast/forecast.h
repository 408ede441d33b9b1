/*
 * forecast.h - `nowait plan MODEL --bandwidth B --ranks N`: which codec pays at this bandwidth, and how long steps will be.
 *
 * Three answers, from one profile of this machine (profile.h):
 *   steps     predicted step time of every codec, collective and delay, beside dense
 *   tensors   for each tensor the codec that saves most, or dense where none does
 *   map       the codec with the shortest step for every bandwidth and number of ranks; as text, and as a drawing
 */
#ifndef NW_FORECAST_FORECAST_H
#define NW_FORECAST_FORECAST_H

#include "forecast/profile.h"

#include <stdio.h>

typedef struct nw_forecast_options {
    nw_forecast_link link;
    size_t bucket_bytes;
    int tries;
    const char *svg; /* "": no drawing */
    const char *model, *isa;
    int batch, threads;
    int measured_by; /* ranks, at the same time */
} nw_forecast_options;

/* A codec pays if a step with it is so many times as fast as dense: less cannot be told from noise. */
#define NW_FORECAST_PAYS 1.02

typedef struct nw_forecast_row {
    int codec, delay;
    nw_collective collective;
    nw_forecast_time time;
} nw_forecast_row;

/* All that make sense, the shortest step first. */
nw_status nw_forecast_rows(const nw_forecast_profile *profile, const nw_forecast_options *options,
                           nw_forecast_row **rows, int *count);

/* The codec that saves most of a tensor's time at this bandwidth, 0 where dense is best or the tensor is a vector, and how
 * much it saves. */
int nw_forecast_best_for(const nw_forecast_profile *profile, const nw_forecast_options *options, int tensor,
                         double *saved);

/* Winners without delay: [rank][bandwidth]. */
enum { NW_FORECAST_RANKS = 8, NW_FORECAST_BANDWIDTHS = 9 };
typedef struct nw_forecast_map {
    int ranks[NW_FORECAST_RANKS];
    double bits_per_second[NW_FORECAST_BANDWIDTHS];
    int winner[NW_FORECAST_RANKS][NW_FORECAST_BANDWIDTHS];
    double gain[NW_FORECAST_RANKS][NW_FORECAST_BANDWIDTHS]; /* over dense */
} nw_forecast_map;
nw_status nw_forecast_make_map(const nw_forecast_profile *profile, const nw_forecast_options *options,
                               nw_forecast_map *map);

/* For people; the map also as SVG, if it is asked for. */
nw_status nw_forecast_print(const nw_forecast_profile *profile, const nw_forecast_options *options, FILE *out);
/* For scripts. */
nw_status nw_forecast_print_json(const nw_forecast_profile *profile, const nw_forecast_options *options, FILE *out);
nw_status nw_forecast_draw_map(const nw_forecast_map *map, const nw_forecast_options *options, const char *path);

#endif
