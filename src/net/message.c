/*
 * message.c - the pool of messages, and the check of a header.
 *
 * A block holds, in one piece of memory: what the pool notes (64 bytes), the header (64), the payload. Payloads have
 * sizes of classes, four to each power of two, so that at most a fifth of a payload lies idle and what a step takes
 * finds what the step before gave back, also where lengths vary a little. Each class has a list of its free blocks; the
 * last one given back is taken first, since it may still be in a cache. Blocks go back to the system with their pool.
 */
#include "net/message.h"

#include "base/arena.h"
#include "base/machine.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "headers travel little-endian, as they lie in memory");

enum {
    LEAST_BITS = 8,
    MOST_BITS = 30,
    STEPS = 4, /* classes to a power of two */
    CLASSES = (MOST_BITS - LEAST_BITS) * STEPS + 1,
};
_Static_assert(NW_MESSAGE_MOST_BYTES == 1 << MOST_BITS, "the last class holds the largest message");

typedef struct block {
    nw_message message; /* first: a message's address is its block's */
    struct block *older;
    int class;
} block;
_Static_assert(sizeof(block) <= NW_ALIGN, "header and payload start on boundaries of 64 bytes");

struct nw_message_pool {
    nw_message *free[CLASSES];
    block *newest; /* all blocks, through `older` */
    size_t bytes;
};

/* The smallest class that holds `bytes`. */
static int class_of(size_t bytes)
{
    if (bytes <= (size_t)1 << LEAST_BITS) return 0;
    int top = 63 - __builtin_clzll(bytes - 1); /* 2^top < bytes <= 2^(top + 1) */
    size_t quarter = (size_t)1 << (top - 2);
    return (top - LEAST_BITS) * STEPS + (int)((bytes - ((size_t)1 << top) + quarter - 1) / quarter);
}

static size_t class_bytes(int class)
{
    size_t power = (size_t)1 << (LEAST_BITS + class / STEPS);
    return power + power / STEPS * (size_t)(class % STEPS);
}

nw_status nw_message_pool_create(nw_message_pool **pool)
{
    *pool = calloc(1, sizeof **pool);
    NW_FAIL_IF(!*pool, NW_E_MEMORY, "no memory for a pool of messages; end other programs");
    (*pool)->bytes = sizeof **pool;
    return NW_OK;
}

void nw_message_pool_free(nw_message_pool *pool)
{
    if (!pool) return;
    for (block *b = pool->newest, *older; b; b = older) {
        older = b->older;
        free(b);
    }
    free(pool);
}

size_t nw_message_pool_bytes(const nw_message_pool *pool) { return pool->bytes; }

static nw_status grow(nw_message_pool *pool, int class, nw_message **message)
{
    size_t capacity = class_bytes(class), bytes = NW_ALIGN + NW_HEADER_BYTES + capacity;
    uint8_t *memory = aligned_alloc(NW_ALIGN, bytes);
    NW_FAIL_IF(!memory, NW_E_MEMORY,
               "no memory for a message of %zu bytes: messages have %zu already and %zu are available; use smaller "
               "buckets or fewer ranks on this machine",
               capacity, pool->bytes, nw_machine_available_memory());
    block *b = (block *)memory;
    b->message = (nw_message){.pool = pool,
                              .capacity = capacity,
                              .header = (nw_header *)(memory + NW_ALIGN),
                              .payload = memory + NW_ALIGN + NW_HEADER_BYTES};
    b->class = class;
    b->older = pool->newest;
    pool->newest = b;
    pool->bytes += bytes;
    *message = &b->message;
    return NW_OK;
}

nw_status nw_message_take(nw_message_pool *pool, size_t bytes, nw_message **message)
{
    NW_FAIL_IF(bytes > NW_MESSAGE_MOST_BYTES, NW_E_ARGUMENT,
               "a message of %zu bytes was asked for, but %d is the most; use smaller buckets", bytes,
               NW_MESSAGE_MOST_BYTES);
    int class = class_of(bytes);
    nw_message *m = pool->free[class];
    if (m)
        pool->free[class] = m->next;
    else
        NW_TRY(grow(pool, class, &m));
    m->next = NULL;
    m->references = 1;
    *m->header = (nw_header){.magic = NW_MESSAGE_MAGIC, .bytes = (uint32_t)bytes};
    *message = m;
    return NW_OK;
}

void nw_message_drop(nw_message *message)
{
    if (!message) return;
    if (message->references <= 0) abort(); /* it would come out of the pool twice */
    if (--message->references > 0) return;
    nw_message **list = &message->pool->free[((block *)message)->class];
    message->next = *list;
    *list = message;
}

/* ---- headers from elsewhere ---- */

#define REMEDY "; all ranks must run the same build of nowait"

/* Why it is no magic of ours: another version, another byte order, or no message at all. */
static nw_status check_magic(uint32_t magic, int from)
{
    if (magic == NW_MESSAGE_MAGIC) return NW_OK;
    if ((magic ^ NW_MESSAGE_MAGIC) << 8 == 0)
        return NW_FAIL(NW_E_MESSAGE, "rank %d sends messages of format '%c', this rank reads '%c'" REMEDY, from,
                       magic >> 24 >= ' ' && magic >> 24 < 127 ? (char)(magic >> 24) : '?',
                       (char)(NW_MESSAGE_MAGIC >> 24));
    NW_FAIL_IF(__builtin_bswap32(magic) == NW_MESSAGE_MAGIC, NW_E_MESSAGE,
               "rank %d sends messages in big-endian order; all machines of a run must be little-endian", from);
    return NW_FAIL(NW_E_MESSAGE, "a message of rank %d starts with 0x%08x, not with 0x%08x" REMEDY, from, magic,
                   NW_MESSAGE_MAGIC);
}

nw_status nw_message_check(const nw_header *h, size_t size, int from, int world)
{
    NW_FAIL_IF(size < NW_HEADER_BYTES, NW_E_MESSAGE,
               "a message of rank %d has %zu bytes, fewer than its header's %d" REMEDY, from, size, NW_HEADER_BYTES);
    NW_TRY(check_magic(h->magic, from));
    NW_FAIL_IF(from < 0 || from >= world || h->from != (uint32_t)from, NW_E_MESSAGE,
               "a message that came from rank %d of %d says that rank %u sent it" REMEDY, from, world, h->from);
    bool known = h->channel == NW_CHANNEL_DRIVER ? h->kind == NW_KIND_CONTROL || h->kind == NW_KIND_ABORT : h->kind > 0;
    NW_FAIL_IF(h->channel >= NW_CHANNELS || !known || h->reserved != 0, NW_E_MESSAGE,
               "message %" PRIu64 " of rank %d is of kind %u in channel %u, which does not exist" REMEDY, h->sequence,
               from, h->kind, h->channel);
    NW_FAIL_IF(h->bytes > NW_MESSAGE_MOST_BYTES, NW_E_MESSAGE,
               "message %" PRIu64 " of rank %d claims a payload of %u bytes, but %d is the most" REMEDY, h->sequence,
               from, h->bytes, NW_MESSAGE_MOST_BYTES);
    NW_FAIL_IF(h->bytes != size - NW_HEADER_BYTES, NW_E_MESSAGE,
               "message %" PRIu64 " of rank %d claims a payload of %u bytes, but %zu arrived" REMEDY, h->sequence, from,
               h->bytes, size - NW_HEADER_BYTES);
    NW_FAIL_IF((uint64_t)h->index_bytes + h->scale_bytes > h->bytes, NW_E_MESSAGE,
               "message %" PRIu64 " of rank %d claims %u bytes of indices and %u of scales in a payload of %u" REMEDY,
               h->sequence, from, h->index_bytes, h->scale_bytes, h->bytes);
    return NW_OK;
}
