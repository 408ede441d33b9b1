/*
 * trace_pack.c - the events of some ranks as bytes, for rank 0 to merge.
 *
 * Numbers are little-endian, texts as nw_pack_text makes them:
 *
 *   u32 magic "NWT1", u32 world, u64 first_step
 *   u32 n, n x text                                                    names
 *   u32 n, n x rank                                                    strictly ascending
 *   rank:  u32 rank, text host, u64 first_steps, u64 every, u64 left_out, u64 lost, u32 n, n x event
 *   event: u64 start, u64 duration, u64 step, u64 value, u32 peer, u32 sequence, u16 name, u8 kind, u8 thread
 *
 * Unpacking goes over the bytes twice: the first time only checks, so that bad bytes change nothing. Names get the numbers
 * that they have in the trace that they are added to.
 */
#include "base/pack.h"
#include "observe/trace_private.h"

#define MAGIC 0x3154574eu

enum { EVENT_BYTES = 44, RANK_BYTES = 4 + 2 + 4 * 8 + 4, NAME_BYTES = 2 };

/* ---- packing ---- */

static void pack_event(nw_packer *packer, const nw_trace_event *event)
{
    nw_pack(packer, (uint64_t)event->start_ns, 8);
    nw_pack(packer, (uint64_t)event->duration_ns, 8);
    nw_pack(packer, (uint64_t)event->step, 8);
    nw_pack(packer, event->value, 8);
    nw_pack(packer, event->peer, 4);
    nw_pack(packer, event->sequence, 4);
    nw_pack(packer, event->name, 2);
    nw_pack(packer, event->kind, 1);
    nw_pack(packer, event->thread, 1);
}

static void pack_rank(nw_packer *packer, int rank, const nw_trace_rank *r)
{
    nw_pack(packer, (uint64_t)rank, 4);
    nw_pack_text(packer, r->host);
    nw_pack(packer, (uint64_t)r->first_steps, 8);
    nw_pack(packer, (uint64_t)r->every, 8);
    nw_pack(packer, r->left_out, 8);
    nw_pack(packer, r->lost, 8);
    nw_pack(packer, r->count, 4);
    for (size_t i = 0; i < r->count; i++) pack_event(packer, &r->events[i]);
}

nw_status nw_trace_pack(const nw_trace *trace, uint8_t **bytes, size_t *size)
{
    nw_packer packer = {0};
    nw_pack(&packer, MAGIC, 4);
    nw_pack(&packer, (uint64_t)trace->world, 4);
    nw_pack(&packer, (uint64_t)trace->first_step, 8);
    nw_pack(&packer, (uint64_t)trace->name_count, 4);
    for (int i = 0; i < trace->name_count; i++) nw_pack_text(&packer, trace->names[i]);
    uint64_t ranks = 0;
    for (int rank = 0; rank < trace->world; rank++) ranks += trace->ranks[rank] != NULL;
    nw_pack(&packer, ranks, 4);
    for (int rank = 0; rank < trace->world; rank++) {
        if (trace->ranks[rank] != NULL) pack_rank(&packer, rank, trace->ranks[rank]);
    }
    *bytes = packer.failed ? NULL : packer.data;
    *size = packer.failed ? 0 : packer.size;
    if (packer.failed) free(packer.data);
    NW_FAIL_IF(packer.failed, NW_E_MEMORY, "no memory to pack a trace");
    return NW_OK;
}

/* ---- unpacking ---- */

typedef struct unpacking {
    nw_trace *trace;
    nw_unpacker in;
    const char *source;
    int64_t offset_ns;
    bool apply; /* false: only check */
    uint32_t names;
    uint16_t name_of[NW_TRACE_MOST_NAMES]; /* in this trace */
} unpacking;

#define DAMAGED(u, what)                                                                                        \
    NW_FAIL(NW_E_MESSAGE, "the trace of %s has %s near byte %zu; it is damaged, discard it", (u)->source, what, \
            (u)->in.at)

static nw_status unpack_count(unpacking *u, size_t least_bytes, uint32_t most, uint32_t *count)
{
    *count = (uint32_t)nw_unpack(&u->in, 4);
    if (*count > most || *count > nw_unpack_left(&u->in) / least_bytes) return DAMAGED(u, "an impossible number");
    return NW_OK;
}

static nw_status unpack_head(unpacking *u)
{
    bool known = nw_unpack(&u->in, 4) == MAGIC;
    NW_FAIL_IF(!known, NW_E_MESSAGE, "what %s gave is no trace; use the same version of nowait everywhere", u->source);
    uint64_t world = nw_unpack(&u->in, 4), first_step = nw_unpack(&u->in, 8);
    NW_FAIL_IF(
        world != (uint64_t)u->trace->world || first_step != (uint64_t)u->trace->first_step, NW_E_MESSAGE,
        "the trace of %s is of %llu ranks from step %llu on, this one of %d from step %lld on; give all ranks the "
        "same options",
        u->source, (unsigned long long)world, (unsigned long long)first_step, u->trace->world,
        (long long)u->trace->first_step);
    NW_TRY(unpack_count(u, NAME_BYTES, NW_TRACE_MOST_NAMES, &u->names));
    for (uint32_t i = 0; i < u->names; i++) {
        char name[NW_TRACE_NAME_BYTES];
        nw_unpack_text(&u->in, name, sizeof name);
        if (u->apply) u->name_of[i] = (uint16_t)nw_trace_name(u->trace, name);
    }
    return NW_OK;
}

static bool in_range(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

static nw_status unpack_event(unpacking *u, nw_trace_event *event)
{
    *event = (nw_trace_event){.start_ns = (int64_t)nw_unpack(&u->in, 8)};
    event->duration_ns = (int64_t)nw_unpack(&u->in, 8);
    event->step = (int64_t)nw_unpack(&u->in, 8);
    event->value = nw_unpack(&u->in, 8);
    event->peer = (uint32_t)nw_unpack(&u->in, 4);
    event->sequence = (uint32_t)nw_unpack(&u->in, 4);
    event->name = (uint16_t)nw_unpack(&u->in, 2);
    event->kind = (uint8_t)nw_unpack(&u->in, 1);
    event->thread = (uint8_t)nw_unpack(&u->in, 1);
    bool sane = in_range(event->start_ns, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS) &&
                in_range(event->duration_ns, 0, NW_TRACE_MOST_NS) && in_range(event->step, 0, NW_TRACE_MOST_STEP) &&
                event->name < u->names && event->kind < NW_TRACE_KINDS && event->thread < NW_TRACE_THREADS &&
                event->peer < (uint32_t)u->trace->world;
    if (!sane) return DAMAGED(u, "an impossible event");
    event->name = u->name_of[event->name];
    event->start_ns = nw_trace_clamp(event->start_ns + u->offset_ns, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS);
    return NW_OK;
}

static nw_status unpack_rank(unpacking *u, int64_t *last)
{
    uint32_t rank = (uint32_t)nw_unpack(&u->in, 4), count;
    nw_trace_rank head = {0}, *r = &head;
    nw_unpack_text(&u->in, head.host, sizeof head.host);
    head.first_steps = (int64_t)nw_unpack(&u->in, 8);
    head.every = (int64_t)nw_unpack(&u->in, 8);
    head.left_out = nw_unpack(&u->in, 8);
    head.lost = nw_unpack(&u->in, 8);
    bool sane = (int64_t)rank > *last && rank < (uint32_t)u->trace->world &&
                in_range(head.first_steps, 1, NW_TRACE_MOST_STEP) && in_range(head.every, 1, 2 * NW_TRACE_MOST_STEP) &&
                (head.every & (head.every - 1)) == 0 && head.left_out < UINT64_C(1) << 56 &&
                head.lost < UINT64_C(1) << 56;
    if (!sane) return DAMAGED(u, "an impossible rank");
    *last = rank;
    NW_FAIL_IF(!u->apply && u->trace->ranks[rank] != NULL, NW_E_MESSAGE,
               "%s gave a trace of rank %u, which is there already; merge each rank once", u->source, rank);
    NW_TRY(unpack_count(u, EVENT_BYTES, NW_TRACE_MOST_EVENTS, &count));
    if (u->apply) {
        NW_TRY(nw_trace_add_rank(u->trace, (int)rank, count));
        r = u->trace->ranks[rank];
        head.events = r->events;
        head.capacity = r->capacity;
        *r = head;
    }
    for (uint32_t i = 0; i < count; i++) {
        nw_trace_event event;
        NW_TRY(unpack_event(u, &event));
        if (event.step > r->last_step) r->last_step = event.step;
        if (u->apply) r->events[r->count++] = event;
    }
    return NW_OK;
}

static nw_status unpack_all(unpacking *u)
{
    uint32_t ranks;
    int64_t last = -1;
    NW_TRY(unpack_head(u));
    NW_TRY(unpack_count(u, RANK_BYTES, (uint32_t)u->trace->world, &ranks));
    for (uint32_t i = 0; i < ranks; i++) NW_TRY(unpack_rank(u, &last));
    if (u->in.failed) return DAMAGED(u, "its end");
    if (nw_unpack_left(&u->in) != 0) return DAMAGED(u, "more bytes than it should");
    return NW_OK;
}

nw_status nw_trace_unpack_merge(nw_trace *trace, const uint8_t *bytes, size_t size, int64_t offset_ns,
                                const char *source)
{
    NW_FAIL_IF(!in_range(offset_ns, -NW_TRACE_MOST_NS, NW_TRACE_MOST_NS), NW_E_ARGUMENT,
               "the clock of %s cannot be %lld ns away; measure it again", source, (long long)offset_ns);
    unpacking *u = calloc(1, sizeof *u);
    NW_FAIL_IF(u == NULL, NW_E_MEMORY, "no memory to unpack the trace of %s", source);
    nw_status status = NW_OK;
    for (int apply = 0; apply < 2 && status == NW_OK; apply++) {
        *u = (unpacking){.trace = trace, .source = source, .offset_ns = offset_ns, .apply = apply != 0};
        u->in = (nw_unpacker){.data = bytes, .size = size};
        status = unpack_all(u);
    }
    free(u);
    NW_TRY(status);
    return NW_OK;
}
