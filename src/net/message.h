/*
 * message.h - what travels between ranks: a header of 64 bytes and a payload behind it, in one piece of memory.
 *
 * A message is made by an exchange, filled, and handed to a driver; the driver of the receiving rank hands it to the
 * exchange there. Messages are counted references to memory of a pool: the same message can go to many ranks, a virtual
 * cluster passes it on without copying, and whoever is done with it drops it. A pool grows to what a step needs and
 * then allocates nothing.
 *
 * The header is little-endian and says everything that a receiver needs to check a message before it trusts it
 * (nw_message_check). docs/wire.md explains its fields. Bytes of the payload have owners: values, indices, scales;
 * index_bytes and scale_bytes say how many are not values.
 *
 * Threads: a pool and its messages belong to one thread.
 */
#ifndef NW_NET_MESSAGE_H
#define NW_NET_MESSAGE_H

#include "base/status.h"

#define NW_MESSAGE_MAGIC 0x324d574eu /* "NWM2" */
enum { NW_HEADER_BYTES = 64 };
enum { NW_MESSAGE_MOST_BYTES = 1 << 30 }; /* of a payload */

/* Who a message is for: the driver, or the machine that owns the channel. A machine has kinds of its own in each. */
typedef enum nw_channel_number {
    NW_CHANNEL_DRIVER = 0,
    NW_CHANNEL_UP = 1, /* of pipelines: to the next stage */
    NW_CHANNEL_DOWN = 2,
    NW_CHANNEL_EXCHANGE = 3, /* and up to 7 */
    NW_CHANNEL_SNAPSHOT = 8,
    NW_CHANNELS
} nw_channel_number;

/* The driver's kinds. */
typedef enum nw_message_kind {
    NW_KIND_CONTROL = 1, /* small talk: nw_driver_allgather and the like */
    NW_KIND_ABORT,       /* the sender fails; the payload is the reason, as text */
} nw_message_kind;

typedef struct nw_header {
    uint32_t magic;
    uint8_t kind;         /* nw_message_kind, or the machine's own; not 0 */
    uint8_t channel;      /* nw_channel_number */
    uint8_t codec;        /* how the payload is encoded: nw_codec_id; 0: not at all */
    uint8_t flags;        /* the machine's */
    uint16_t generation;  /* of the sender: what was sent before all went back to a checkpoint is dropped */
    uint16_t part;        /* of the bucket: the member that owns it */
    uint16_t from;        /* the rank that sent it */
    uint16_t reserved;    /* 0 */
    uint32_t bucket;      /* what range of the vectors it is about */
    uint32_t count;       /* floats that the payload stands for */
    uint32_t bytes;       /* of the payload */
    uint32_t index_bytes; /* of these, indices ... */
    uint32_t scale_bytes; /* ... and scales */
    uint32_t until;    /* the run ends so many gradients after `step`, because a rank was asked to stop; 0: none was */
    uint64_t step;     /* of the sender: its gradient or micro-batch */
    uint64_t version;  /* of the parameters that it was computed from, or that it holds */
    uint64_t sequence; /* counts the messages that a rank's machines made, so that each has a name: (from, sequence);
                             those of drivers count by themselves */
} nw_header;
_Static_assert(sizeof(nw_header) == NW_HEADER_BYTES, "the header is 64 bytes");

typedef struct nw_message_pool nw_message_pool;

typedef struct nw_message {
    nw_message_pool *pool;
    struct nw_message *next; /* for lists of whoever holds it */
    int references;
    size_t capacity;   /* of the payload */
    nw_header *header; /* 64-byte aligned; header and payload are contiguous: what is sent */
    uint8_t *payload;
} nw_message;

nw_status nw_message_pool_create(nw_message_pool **pool);
/* All its messages, also those still held. */
void nw_message_pool_free(nw_message_pool *pool);
size_t nw_message_pool_bytes(const nw_message_pool *pool); /* taken from the system so far */

/* A message with room for `bytes`, one reference, a header of zeros but for magic and bytes. The payload is not
 * cleared. More than NW_MESSAGE_MOST_BYTES is NW_E_ARGUMENT. */
nw_status nw_message_take(nw_message_pool *pool, size_t bytes, nw_message **message);
static inline nw_message *nw_message_hold(nw_message *message) { return message->references++, message; }
/* The last drop gives it back to its pool; one more is a bug and aborts. NULL is ignored. */
void nw_message_drop(nw_message *message);
/* Header and payload. */
static inline size_t nw_message_size(const nw_message *m) { return NW_HEADER_BYTES + m->header->bytes; }

/* Whether `size` bytes at `header` (8-byte aligned, any size) are one whole message that rank `from` of `world` may
 * have sent: magic, kind, channel, sender, lengths that agree, nothing in a driver's message that is not its own,
 * reserved fields 0. NW_E_MESSAGE says what is wrong. Says nothing of the payload's inside, nor of codec, bucket,
 * part, count, step and version: the machine knows what it expects there. */
nw_status nw_message_check(const nw_header *header, size_t size, int from, int world);

#endif
