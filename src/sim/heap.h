/* heap.h - the future events of a virtual cluster, a binary heap ordered by (time, rank, sequence). For virtual.c. */
#ifndef NW_SIM_HEAP_H
#define NW_SIM_HEAP_H

#include "net/message.h"

#include <stdlib.h>

typedef enum entry_kind {
    DEPART, /* a message leaves its rank */
    ARRIVE, /* a message arrives */
    NOTE,   /* a pass announces: the gradient is final from `first` on, or `message` goes up or down */
    DONE,   /* a task is done */
    TIMER,
    WAKE, /* a rank becomes free and handles the first entry that waits for it (same sequence number) */
} entry_kind;

typedef struct entry {
    int64_t time;
    int rank;
    entry_kind kind;
    uint64_t sequence; /* order of creation, which decides between events of one rank at one time */
    nw_message *message;
    int from, to;
    size_t first;
    int64_t stolen; /* NOTE, DONE: time that messages had taken from the task when `time` was computed */
    int64_t asked;  /* TIMER: the requested time */
} entry;

typedef struct heap {
    entry *at;
    int count, capacity;
} heap;

static inline bool before(const entry *a, const entry *b)
{
    if (a->time != b->time) return a->time < b->time;
    if (a->rank != b->rank) return a->rank < b->rank;
    return a->sequence < b->sequence;
}

static inline nw_status push(heap *h, entry e)
{
    if (h->count == h->capacity) {
        int capacity = h->capacity ? 2 * h->capacity : 16;
        entry *at = realloc(h->at, (size_t)capacity * sizeof *at);
        NW_FAIL_IF(!at, NW_E_MEMORY, "no memory for %d events of a virtual cluster", capacity);
        h->at = at;
        h->capacity = capacity;
    }
    int i = h->count++;
    for (; i > 0 && before(&e, &h->at[(i - 1) / 2]); i = (i - 1) / 2) h->at[i] = h->at[(i - 1) / 2];
    h->at[i] = e;
    return NW_OK;
}

static inline entry pop(heap *h)
{
    entry top = h->at[0], last = h->at[--h->count];
    int i = 0;
    for (int child; (child = 2 * i + 1) < h->count; i = child) {
        if (child + 1 < h->count && before(&h->at[child + 1], &h->at[child])) child++;
        if (!before(&h->at[child], &last)) break;
        h->at[i] = h->at[child];
    }
    if (h->count > 0) h->at[i] = last;
    return top;
}

#endif
