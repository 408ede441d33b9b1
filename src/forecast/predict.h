/*
 * predict.h - how long a step of synchronous training takes, from what its parts take.
 *
 * All members are alike, so one of them stands for all: it has a processor, which computes the gradient and does the
 * exchange's work in between, and a network interface, which sends and receives at the same rate, one message after the
 * other. What it sends and when, others send as well, so what it receives comes when what it sends leaves, and the
 * latency later.
 *
 *   gather   encode a bucket, send it to N - 1 members, add what N members gave as it comes
 *   owners   encode it, send a part of it to each owner; add N contributions to the own part, encode its mean, send it
 *            to all, decode what the N - 1 others send
 *   summed   rounds of plain floats, each as owners
 *
 * A bucket is encoded when it is final, in the middle of the backward pass, which ends so much later. With delay 0 the
 * update waits for all means of its own gradient, with delay 1 for those of the gradient before. Some steps are played;
 * the mean of the later ones counts.
 *
 * Times are seconds. A pure function.
 */
#ifndef NW_FORECAST_PREDICT_H
#define NW_FORECAST_PREDICT_H

#include "channel/mode.h"

enum { NW_FORECAST_ROUNDS = 2 };

typedef struct nw_forecast_bucket {
    double final; /* share of the pass after which it is final: 0 to 1 */
    nw_mode mode;
    double floats;
    double bytes;  /* of one member's message, if it goes whole */
    double encode; /* what encoding all of it takes, with its memory, ... */
    double decode; /* adding all that one member sent to a vector, ... */
    double fill;   /* ... or writing it there, as is done with what comes first and with means, ... */
    double mean;   /* ... and dividing the sum by the number of members */
    int rounds;    /* summed: */
    double round_bytes[NW_FORECAST_ROUNDS];
} nw_forecast_bucket;

typedef struct nw_forecast_step {
    const nw_forecast_bucket *buckets; /* in the order in which they become final */
    int count;
    double pass, update; /* computing a gradient, and applying one, without any exchange */
    double add;          /* adding a float that travelled as it is */
    int members, delay;
    double bytes_per_second;  /* of a member's interface, each way; 0: no limit */
    double latency, overhead; /* of a message */
} nw_forecast_step;

typedef struct nw_forecast_time {
    double step;
    double encode, decode; /* of the processor, in a step */
    double sent;           /* bytes of a member, with headers */
    double wire;           /* how long its interface sends in a step */
} nw_forecast_time;

nw_forecast_time nw_forecast_predict(const nw_forecast_step *step);

#endif
