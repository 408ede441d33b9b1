/*
 * message.h - messages between ranks: a header of 64 bytes followed by a payload, in one piece of memory.
 *
 * An exchange takes a message from a pool, fills it and passes it to its driver; the receiver's driver passes it to the
 * exchange there. Messages are reference-counted: the same message can be sent to many ranks, and a virtual cluster
 * delivers it without copying. Each holder drops its reference when done. A pool grows to what a step needs, and then
 * allocates nothing.
 *
 * The header is little-endian and has everything that a receiver needs to check a message before it trusts it
 * (nw_message_check). docs/wire.md explains its fields. index_bytes and scale_bytes say how many bytes of the payload
 * are indices and scales; the others are values.
 *
 * Threads: a pool and its messages belong to one thread.
 */
#ifndef NW_NET_MESSAGE_H
#define NW_NET_MESSAGE_H

#include "base/status.h"

#define NW_MESSAGE_MAGIC 0x324d574eu /* "NWM2" */
enum { NW_HEADER_BYTES = 64 };
enum { NW_MESSAGE_MOST_BYTES = 1 << 30 }; /* of a payload */

/* The receiver of a message: the driver, or the machine that owns the channel. Each machine defines its own kinds. */
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
    NW_KIND_CONTROL = 1, /* collective operations between runs, such as nw_driver_allgather */
    NW_KIND_ABORT,       /* the sender fails; the payload is the reason, as text */
} nw_message_kind;

typedef struct nw_header {
    uint32_t magic;
    uint8_t kind;         /* nw_message_kind, or the machine's own; not 0 */
    uint8_t channel;      /* nw_channel_number */
    uint8_t codec;        /* how the payload is encoded: nw_codec_id; 0: not at all */
    uint8_t flags;        /* the machine's */
    uint16_t generation;  /* of the sender: messages from before all went back to a checkpoint are dropped */
    uint16_t part;        /* of the bucket: the member that owns it */
    uint16_t from;        /* the rank that sent it */
    uint16_t reserved;    /* 0 */
    uint32_t bucket;      /* the bucket, which is a range of the parameters */
    uint32_t count;       /* number of floats that the payload encodes */
    uint32_t bytes;       /* of the payload */
    uint32_t index_bytes; /* of these, indices ... */
    uint32_t scale_bytes; /* ... and scales */
    uint32_t until;       /* stop was requested: the run ends this many gradients after `step`; 0: it was not */
    uint64_t step;        /* number of the sender's gradient or micro-batch */
    uint64_t version;     /* version of the parameters that it has, or from which it was computed */
    uint64_t sequence;    /* number of this message among those of the sender's machines (or of its driver), so that
                          (from, sequence) identifies it */
} nw_header;
_Static_assert(sizeof(nw_header) == NW_HEADER_BYTES, "the header is 64 bytes");

typedef struct nw_message_pool nw_message_pool;

typedef struct nw_message {
    nw_message_pool *pool;
    struct nw_message *next; /* for lists of its holder */
    int references;
    size_t capacity;   /* of the payload */
    nw_header *header; /* 64-byte aligned; header and payload are contiguous: what is sent */
    uint8_t *payload;
} nw_message;

nw_status nw_message_pool_create(nw_message_pool **pool);
/* Frees all its messages, even those with references. */
void nw_message_pool_free(nw_message_pool *pool);
size_t nw_message_pool_bytes(const nw_message_pool *pool); /* bytes allocated so far */

/* Takes a message with room for `bytes` and one reference. Its header is zero except for magic and bytes; its payload
 * is not initialised. NW_E_ARGUMENT: more than NW_MESSAGE_MOST_BYTES. */
nw_status nw_message_take(nw_message_pool *pool, size_t bytes, nw_message **message);
static inline nw_message *nw_message_hold(nw_message *message) { return message->references++, message; }
/* Drops a reference; without any the message returns to its pool. One drop too many is a bug and aborts. NULL is
 * ignored. */
void nw_message_drop(nw_message *message);
/* Header and payload. */
static inline size_t nw_message_size(const nw_message *m) { return NW_HEADER_BYTES + m->header->bytes; }

/* Checks that `size` bytes at `header` (8-byte aligned, any size) are one whole message that rank `from` of `world` can
 * have sent: magic, kind, channel, sender, lengths that agree, no exchange fields in a driver's message, reserved
 * fields 0. NW_E_MESSAGE says what is wrong. It does not check the payload, nor codec, bucket, part, count, step and
 * version: the receiving machine does. */
nw_status nw_message_check(const nw_header *header, size_t size, int from, int world);

#endif
