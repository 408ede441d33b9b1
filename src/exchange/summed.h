/*
 * summed.h - one bucket whose codec adds floats (codec.h, nw_rounds): in each round the mean of a short vector over all
 * members, by owners, as reduce.h does it with buckets: member q adds part q in the order of members, takes the mean,
 * and sends it to all. Bits depend on the contributions alone.
 *
 * A round begins when the one before is over. A step whose turn it is while the last one is not over waits; what is
 * given must stay as it is until then.
 */
#ifndef NW_EXCHANGE_SUMMED_H
#define NW_EXCHANGE_SUMMED_H

#include "exchange/channel.h"

typedef struct nw_summed nw_summed;

typedef struct nw_summed_options {
    const nw_machine *machine;
    nw_channel *channel;
    int bucket, slots;
    const int64_t *until; /* what messages say (nw_reduce_say) */
    float *targets[2];    /* of even and of odd steps */
} nw_summed_options;

nw_status nw_summed_create(nw_summed **summed, const nw_summed_options *options);
void nw_summed_free(nw_summed *summed);
/* *done: a step is over, and its target is there; which one, nw_summed_step says. */
nw_status nw_summed_give(nw_summed *summed, nw_actions *actions, nw_moment when, const float *vector, bool *done);
nw_status nw_summed_take(nw_summed *summed, nw_actions *actions, nw_message *message, int from, bool *done);
int64_t nw_summed_steps(const nw_summed *summed); /* that are over */
void nw_summed_begin_at(nw_summed *summed, int64_t step);
/* Members that it waits for; false: it waits for none. */
bool nw_summed_waits(const nw_summed *summed, nw_wait *wait);

enum { NW_SUMMED_GIVEN = 3, NW_SUMMED_MEAN }; /* kinds of its messages */

#endif
