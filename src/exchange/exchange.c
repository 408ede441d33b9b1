/* exchange.c - the registry of exchanges, and buckets. See exchange.h. */
#include "exchange/exchange.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    nw_status (*create)(nw_machine **exchange, const nw_exchange_options *options);
} exchanges[] = {
    {"none", nw_none_create},
    {"allreduce", nw_allreduce_create},
    {"server", nw_server_create},
};
enum { EXCHANGES = sizeof exchanges / sizeof exchanges[0] };

nw_status nw_exchange_create(nw_machine **out, const nw_exchange_options *options)
{
    const char *names[EXCHANGES];
    *out = NULL;
    for (int i = 0; i < EXCHANGES; i++) {
        names[i] = exchanges[i].name;
        if (strcmp(options->name, exchanges[i].name) == 0) return exchanges[i].create(out, options);
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no exchange '%s'; the nearest is '%s'", options->name,
                   nw_suggest(options->name, names, EXCHANGES));
}

void nw_exchange_free(nw_machine *machine)
{
    if (machine) machine->ops->free(machine);
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

enum { USUAL_BUCKET = 4 << 20, PART_ALIGN = 16 };

nw_status nw_buckets_make(nw_buckets *b, const nw_segments *s, size_t bucket_bytes, int world)
{
    size_t least = (bucket_bytes ? bucket_bytes : (size_t)USUAL_BUCKET) / sizeof(float);
    *b = (nw_buckets){.world = world};
    b->at = calloc((size_t)s->count, sizeof *b->at);
    NW_FAIL_IF(!b->at, NW_E_MEMORY, "no memory for a list of buckets");
    size_t end = s->floats;
    int last = s->count;
    for (int i = s->count - 1; i >= 0; i--) {
        size_t first = s->at[i].offset, most = NW_MESSAGE_MOST_BYTES / sizeof(float);
        NW_FAIL_IF(s->at[i].count > most, NW_E_SHAPE, "%s has %zu parameters; at most %zu can travel together",
                   s->at[i].name, s->at[i].count, most);
        if (end - first > most) { /* without this segment, it is long enough */
            size_t next = s->at[i + 1].offset;
            b->at[b->count++] = (nw_bucket){next, end - next, i + 1, last - i - 1};
            end = next;
            last = i + 1;
        }
        if (i > 0 && end - first < least) continue;
        b->at[b->count++] = (nw_bucket){first, end - first, i, last - i};
        end = first;
        last = i;
    }
    return NW_OK;
}

void nw_buckets_free(nw_buckets *b)
{
    free(b->at);
    *b = (nw_buckets){0};
}

/* Where part r of a bucket begins: r / world of it, down to a multiple of 16 floats. */
static size_t part_begin(size_t count, int world, int rank)
{
    if (rank >= world) return count;
    return count * (size_t)rank / (size_t)world / PART_ALIGN * PART_ALIGN;
}

void nw_bucket_part(const nw_buckets *b, int bucket, int rank, size_t *first, size_t *count)
{
    const nw_bucket *at = &b->at[bucket];
    size_t begin = part_begin(at->count, b->world, rank), end = part_begin(at->count, b->world, rank + 1);
    *first = at->first + begin;
    *count = end - begin;
}
