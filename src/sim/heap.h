/* heap.h - what is to come on a virtual cluster, in the order of (time, rank, sequence): a binary heap. For virtual.c. */
#ifndef NW_SIM_HEAP_H
#define NW_SIM_HEAP_H

#include "net/message.h"

#include <stdlib.h>

typedef enum entry_kind {
    DEPART, /* a message leaves its rank */
    ARRIVE, /* a message is there */
    NOTE,   /* of a pass: the gradient is final from `first` on, or it sends `message` up or down */
    DONE,   /* the task is */
    TIMER,
    WAKE, /* the rank is free for the first of those that it holds, whose sequence this has */
} entry_kind;

typedef struct entry {
    int64_t time;
    int rank;
    entry_kind kind;
    uint64_t sequence; /* of making: the order of what happens at one time on one rank */
    nw_message *message;
    int from, to;
    size_t first;
    int64_t stolen; /* of NOTE and DONE: what messages had taken when `time` was computed */
    int64_t asked;  /* of TIMER: for when */
} entry;

/* What is to come, in order. */
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
