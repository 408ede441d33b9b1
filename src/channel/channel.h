/*
 * Folder src/channel: what is sent between members of a group, and means over them: which floats travel together with
 * which codec, messages of them, memories, sums in the order of members. It decides nothing about when; machines of
 * src/exchange do. May include: base, param, codec, net.
 *
 * channel.h - what is sent in one direction of an exchange: a layout (which floats travel together, with which codec)
 * and a memory of what was not delivered.
 *
 *   encode   a bucket whose elements are all final: one message for each cut that somebody gets
 *   decode   a message, into a vector or added to it
 *   reduced  the mean of a bucket over all members is here, and will be used: the memory may change it
 *   undo     a message that was not delivered after all: what it held goes back into the memory
 *
 * Work is done on the pool, and what is touched is named (nw_actions_touch), so that virtual clusters know what it
 * costs. A channel that sends one cut only (an owner, a server) keeps a memory of that one only.
 *
 * A message says how it is encoded: in the codec of its bucket, or plainly, where it must arrive as it is.
 */
#ifndef NW_CHANNEL_H
#define NW_CHANNEL_H

#include "codec/run.h"
#include "channel/layout.h"
#include "channel/travel.h"
#include "net/machine.h"

typedef struct nw_channel_options {
    const nw_layout *layout; /* outlives the channel */
    nw_memory_options memory;
    nw_memory *share;  /* instead: that of another channel, which outlives this one and saves it; NULL: its own */
    const char *name;  /* of its memory in checkpoints */
    bool restarts;     /* its memory is of no use in a world of another size */
    bool mean;         /* what it sends enters a mean over members, not a sum */
    int number;        /* in headers: NW_CHANNEL_EXCHANGE and above */
    int member;        /* who sends */
    int only;          /* the cut that it sends; -1: all */
    nw_travel *travel; /* what is counted; NULL: nothing */
    nw_pool *pool;     /* outlives the channel; NULL: the calling thread works alone */
} nw_channel_options;

typedef struct nw_channel {
    nw_channel_options o;
    nw_block *parts; /* by bucket, where only one cut is sent */
    nw_memory *memory;
    float clip;    /* what is given is multiplied with this, where there is a memory; 1 until somebody writes it */
    float *copy;   /* where rounds of floats have no memory: what was given, which may not last until the second */
    float ***kept; /* by bucket whose codec adds floats, by item: what it keeps */
    nw_partial *partial; /* room of an encoding */
    nw_scratch scratch;
    uint8_t **out;
    nw_encoded *encoded;
} nw_channel;

nw_status nw_channel_make(nw_channel *channel, const nw_channel_options *options);
void nw_channel_free(nw_channel *channel);

typedef enum nw_plain { NW_CODED, NW_PLAINLY } nw_plain;

/* When something is encoded: the sender's gradient, the batch that it belongs to, the version of its parameters. */
typedef struct nw_moment {
    int64_t step, clock, version;
} nw_moment;

/* Messages of the bucket's cuts in `vector` (element 0 of all parameters) to by_cut, with everything in their headers
 * but the kind; NULL for those that are empty and for cut `skip`. Plainly sent, what the memory has stays there. */
nw_status nw_channel_encode(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                            int skip, nw_plain plain, nw_message **by_cut);
/* Of a bucket whose codec adds floats: what this member gives in a round; and their mean over all members, after the
 * last round to `target`, NULL before. */
nw_status nw_channel_give(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                          int round, float *out);
void nw_channel_turn(nw_channel *channel, nw_actions *actions, int bucket, nw_moment when, const float *vector,
                     int round, const float *mean, float *target);

/* The mean of a bucket is complete in `mean`, a vector of all parameters. */
void nw_channel_reduced(nw_channel *channel, nw_actions *actions, int bucket, float *mean);

/* NW_E_MESSAGE: it is not of this layout, or empty. Before any other use of a message that came. */
nw_status nw_channel_check(const nw_channel *channel, const nw_header *header);
static inline const nw_block *nw_channel_block(const nw_channel *c, const nw_header *h)
{
    return &c->o.layout->at[h->bucket].block;
}
/* To a vector of all parameters, or to the floats of the cut alone. `from`: the member that sent it. */
nw_status nw_channel_decode(nw_channel *channel, nw_actions *actions, const nw_message *message, int from, float *out,
                            nw_where where, bool add);
/* Of a message of its own that sends one cut alone: to a vector that is kept as its memory would be. */
nw_status nw_channel_decode_own(nw_channel *channel, nw_actions *actions, const nw_message *message, float *out,
                                bool add);
/* Of a message of its own. Without a memory it is lost: false. */
nw_status nw_channel_undo(nw_channel *channel, nw_actions *actions, const nw_message *message, bool *kept);

void nw_channel_state(nw_channel *channel, nw_state *state);
/* A handler reads or writes the floats of a cut. */
void nw_channel_touch(nw_actions *actions, const nw_block *block, int cut, const float *vector, bool write);

#endif
