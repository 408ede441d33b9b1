/*
 * summed.h - the buckets whose codecs add floats (codec.h, nw_rounds): in each round the mean of a short vector over
 * all members, which is a reduction of its own (reduce.h), of plain floats.
 *
 * A bucket's round begins when the one before is over. A step whose turn it is while the last one is not over waits;
 * what is given must stay as it is until then.
 */
#ifndef NW_CHANNEL_SUMMED_H
#define NW_CHANNEL_SUMMED_H

#include "channel/reduce.h"

typedef struct nw_summed nw_summed;

/* `channel` is that of the reduction whose buckets these are; `done` hears when one of them has its target. NULL: there
 * are no such buckets. */
nw_status nw_summed_create(nw_summed **summed, const nw_reduce_options *options, nw_channel *channel,
                           nw_reduce_done done, void *context);
void nw_summed_free(nw_summed *summed);
nw_status nw_summed_give(nw_summed *summed, nw_actions *actions, int bucket, nw_moment when, const float *vector);
/* A message of a round's channel: those above the reduction's own. */
nw_status nw_summed_take(nw_summed *summed, nw_actions *actions, nw_message *message, int from);
void nw_summed_begin_at(nw_summed *summed, int64_t step);
void nw_summed_say(nw_summed *summed, int64_t until);
/* Members that a bucket waits for; false: it waits for none. */
bool nw_summed_waits(const nw_summed *summed, int bucket, nw_wait *wait);

#endif
