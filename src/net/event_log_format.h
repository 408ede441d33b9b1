/* event_log_format.h - what writer and reader of event logs share; see event_log.h. Private to them. */
#ifndef NW_NET_EVENT_LOG_FORMAT_H
#define NW_NET_EVENT_LOG_FORMAT_H

#include "net/event_log.h"

#define NW_LOG_MAGIC "NWSCHED" /* the version follows in the place of its zero */

/* Before every block. */
typedef struct nw_block_head {
    uint32_t packed, bytes; /* in the file, and of what it holds; the same: it is as it is, otherwise zlib's */
    uint64_t hash;          /* nw_hash64 of what is in the file */
} nw_block_head;

typedef struct nw_log_entry {
    uint8_t kind, unused; /* nw_event_kind or nw_log_kind */
    uint16_t from;        /* MESSAGE */
    uint32_t rank;
    int64_t at;      /* of events now_ns; step of RUN, QUIESCENT, SAVED, END */
    uint64_t number; /* MESSAGE: sequence; FINAL: first; GO: until; RUN: messages made so far; SAVED: epoch */
} nw_log_entry;

enum { NW_BLOCK_ENTRIES = 2048, NW_BLOCK_BYTES = NW_BLOCK_ENTRIES * 24 };
_Static_assert(sizeof(nw_log_entry) * NW_BLOCK_ENTRIES == NW_BLOCK_BYTES, "entries have no gaps");
_Static_assert(sizeof(nw_log_header) == 392, "nor has the header");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "entries are written as they lie in memory");

#endif
