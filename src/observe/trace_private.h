/* trace_private.h - a trace in memory: for trace.c, which fills it, and trace_write.c. */
#ifndef NW_OBSERVE_TRACE_PRIVATE_H
#define NW_OBSERVE_TRACE_PRIVATE_H

#include "observe/trace.h"

#define NW_TRACE_MOST_NS   ((int64_t)1 << 60) /* of times, durations and steps: sums and differences do not overflow */
#define NW_TRACE_MOST_STEP ((int64_t)1 << 60)

typedef enum nw_trace_kind { NW_TRACE_SPAN, NW_TRACE_SEND, NW_TRACE_RECEIVE, NW_TRACE_COUNTER } nw_trace_kind;

typedef struct nw_trace_event {
    int64_t start_ns, duration_ns;
    int64_t step;
    uint64_t value;          /* bytes of a message; bits of a counter's double */
    uint32_t peer, sequence; /* of a message */
    uint16_t name;
    uint8_t kind, thread;
} nw_trace_event;

typedef struct nw_trace_rank {
    nw_trace_event *events;
    size_t count, capacity;
    int64_t first_steps, every; /* K and m of trace.h */
    int64_t last_step;          /* the largest seen */
    uint64_t lost;              /* events of kept steps, for which there was no room */
    char host[NW_TRACE_NAME_BYTES];
} nw_trace_rank;

struct nw_trace {
    int world;
    int64_t first_step;
    int name_count;
    char (*names)[NW_TRACE_NAME_BYTES]; /* NW_TRACE_MOST_NAMES of them */
    nw_trace_rank **ranks;              /* of the world; NULL: not of this process */
};

static inline int64_t nw_trace_clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* `every` is a power of two: s % m without a division. */
static inline bool nw_trace_keeps(int64_t first_step, int64_t first_steps, int64_t every, int64_t step)
{
    return step - first_step <= first_steps || (step & (every - 1)) == 0;
}

#endif
