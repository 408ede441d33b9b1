/*
 * reduce.h - the mean of a vector over the members of a group, bucket by bucket, as its elements become final.
 *
 * A bucket is reduced in one of three ways:
 *
 *   by owners   each part of it has an owner (layout.h). A member sends each part to its owner, which adds the
 *               contributions in the order of members, whatever the order in which they came, takes the mean, and sends
 *               it to all:  mean[i] = (((g_0[i] + g_1[i]) + g_2[i]) + ...) * (1 / N), in f32, each term as its codec
 *               delivers it. Every member sends 2 (N - 1) / N of the bucket. The owner encodes the mean again, with a
 *               memory of its own, and uses it as the others see it.
 *   gathered    every member sends its bucket whole to all others, and all add them in the order of members.
 *   summed      the codec has rounds of floats whose means are taken (summed.h).
 *
 * When a bucket's mean is complete, and before anybody uses it, the memory hears of it (memory.h, reduced).
 *
 * Either way the bits depend on the contributions alone: the same over MPI, on a virtual cluster, with any timing; and
 * all members have the same.
 *
 * In place: where codecs lose nothing, sums can be made in the vector that is given, and the factor 1 / N is left to
 * whoever uses them. An owner's own contribution stays where it is; what members before it contribute is summed aside
 * and then added (of two terms the order does not matter).
 *
 * Rounds: one mean after the other. Members may be ahead of each other by less than `slots` rounds; what belongs to
 * rounds to come is held. Rounds are completed in order, since messages of a link are.
 */
#ifndef NW_CHANNEL_REDUCE_H
#define NW_CHANNEL_REDUCE_H

#include "channel/channel.h"

/* A bucket of a round is complete, for whoever cannot wait for all. */
typedef nw_status (*nw_reduce_done)(void *context, nw_actions *actions, int64_t round, int bucket);

typedef struct nw_reduce_options {
    const nw_machine *machine; /* whose group it is */
    int channel;               /* of its messages */
    const nw_layout *layout;   /* cut between its members */
    nw_memory_options memory;  /* of what is given; owners have error feedback of what they send, where there is one */
    nw_memory *share;  /* instead: that of another reduction of the same vector; owners have none. NULL: its own */
    nw_travel *travel; /* what is counted; NULL: nothing */
    nw_pool *pool;
    int slots;
    bool in_place;       /* codecs are exact, memories leave means alone; targets are what is given */
    float *targets[2];   /* where means of even and of odd rounds go */
    nw_reduce_done done; /* or NULL */
    void *context;
} nw_reduce_options;

typedef struct nw_reduce nw_reduce;

nw_status nw_reduce_create(nw_reduce **reduce, const nw_reduce_options *options);
void nw_reduce_free(nw_reduce *reduce);

/* Gives the buckets of a round, one after the last, that lie at `first` and behind it and were not given; `clock`: the
 * batch that it belongs to. What is given stays as it is until the round is complete. */
nw_status nw_reduce_give(nw_reduce *reduce, nw_actions *actions, int64_t round, int64_t clock, size_t first,
                         const float *vector);
/* The same of one bucket, in any order. */
nw_status nw_reduce_give_bucket(nw_reduce *reduce, nw_actions *actions, int64_t round, int64_t clock, int bucket,
                                const float *vector);
/* A message of its channel, or of those of codecs' rounds, of member `from`. */
nw_status nw_reduce_take(nw_reduce *reduce, nw_actions *actions, nw_message *message, int from);
/* Rounds whose means are all here. */
int64_t nw_reduce_completed(const nw_reduce *reduce);
/* Goes on from there, when quiescent. */
void nw_reduce_begin_at(nw_reduce *reduce, int64_t round);
/* What its messages say in header.until from now on: the run ends so many rounds after their own; 0: nothing. */
void nw_reduce_say(nw_reduce *reduce, int64_t until);
/* What is given from now on is multiplied with this first, but for dense buckets. */
void nw_reduce_clip(nw_reduce *reduce, float clip);
nw_memory *nw_reduce_memory(const nw_reduce *reduce); /* NULL: none */
void nw_reduce_waits(const nw_reduce *reduce, nw_wait *wait);
void nw_reduce_state(nw_reduce *reduce, nw_state *state);

#endif
