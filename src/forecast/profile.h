/*
 * Folder src/forecast: which codec pays, before a run: what a network and every codec cost on this machine, measured for
 * some seconds, and step times predicted from that. Nothing here trains. May include: base, param, nn, codec, net, channel,
 * exchange, observe, train, config, setup, bench.
 *
 * profile.h - what a step is made of, measured: the pass through a network and when each of its tensors is final, the
 * update, and every tensor of a real gradient through every codec that a plan compares, with its memory.
 *
 * Times are seconds, the best of some tries: what a quiet machine needs.
 */
#ifndef NW_FORECAST_PROFILE_H
#define NW_FORECAST_PROFILE_H

#include "bench/synthetic.h"
#include "codec/memory.h"
#include "forecast/predict.h"

/* A codec as plans compare it. */
typedef struct nw_forecast_codec {
    const char *name;    /* as the tables have it */
    const char *options; /* what nowait train would be given */
    char letter;         /* in maps */
    nw_codec_options codec;
    nw_memory_options memory;
} nw_forecast_codec;

int nw_forecast_codec_count(void);
const nw_forecast_codec *nw_forecast_codec_at(int index); /* the first is dense */

/* A tensor through a codec. */
typedef struct nw_forecast_tensor {
    double encode, decode, fill, mean, bytes; /* as nw_forecast_bucket's */
    bool dense;                               /* it stays as it is */
    int rounds;
    double round_bytes[NW_FORECAST_ROUNDS];
} nw_forecast_tensor;

typedef struct nw_forecast_profile {
    const nw_segments *segments;
    double pass, update, add;
    double *final;                /* by tensor: share of the pass after which it is final */
    nw_codec **codecs;            /* by codec of the plan */
    nw_forecast_tensor **tensors; /* by codec, by tensor */
} nw_forecast_profile;

/* Takes some seconds. `tries` of everything. Several ranks that have joined under MPI (`ranks`) measure at the same time, so
 * that they take from each other what they would in training, and all get the means of their times. */
nw_status nw_forecast_measure(nw_forecast_profile *profile, nw_synthetic *net, int tries, int ranks);
void nw_forecast_profile_free(nw_forecast_profile *profile);

typedef struct nw_forecast_link {
    int members;
    double bytes_per_second, latency, overhead;
} nw_forecast_link;

/* The step of training with a codec. NW_E_MEMORY. */
nw_status nw_forecast_step_time(const nw_forecast_profile *profile, int codec, nw_collective collective, int delay,
                                nw_forecast_link link, size_t bucket_bytes, nw_forecast_time *time);

#endif
