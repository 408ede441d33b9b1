/*
 * dump.c - what a rank knows when its job fails, as JSON for people: whom it waits for and what it last heard of each.
 */
#include "base/json.h"
#include "net/driver.h"

static void write_peer(nw_driver *d, nw_json *j, int rank)
{
    int64_t ago_ns;
    nw_header said;
    if (!d->ops->heard || !d->ops->heard(d, rank, &ago_ns, &said)) return;
    nw_json_object(j);
    nw_json_key(j, "rank");
    nw_json_int(j, rank);
    nw_json_key(j, "heard_seconds_ago");
    nw_json_double(j, (double)ago_ns * 1e-9);
    nw_json_key(j, "message_kind");
    nw_json_int(j, said.kind);
    nw_json_key(j, "message_step");
    nw_json_int(j, (int64_t)said.step + 1);
    nw_json_key(j, "message_segment");
    nw_json_int(j, said.segment);
    nw_json_key(j, "message_bytes");
    nw_json_int(j, said.bytes);
    nw_json_object_end(j);
}

void nw_dump_write(nw_driver *d, const nw_party *p, const char *reason, FILE *out)
{
    nw_wait wait;
    p->exchange->ops->waits(p->exchange, &wait);
    nw_json j = nw_json_begin(out, true);
    nw_json_object(&j);
    nw_json_key(&j, "rank");
    nw_json_int(&j, p->exchange->rank);
    nw_json_key(&j, "world_size");
    nw_json_int(&j, d->size);
    nw_json_key(&j, "driver");
    nw_json_string(&j, d->ops->name);
    nw_json_key(&j, "exchange");
    nw_json_string(&j, p->exchange->ops->name);
    nw_json_key(&j, "reason");
    nw_json_string(&j, reason);
    nw_json_key(&j, "step");
    nw_json_int(&j, p->step);
    nw_json_key(&j, "state");
    nw_json_string(&j, p->busy ? "computing" : p->parked ? "parked" : "waiting");
    nw_json_key(&j, "waits_for");
    nw_json_array(&j);
    for (int i = 0; i < wait.count && i < NW_WAIT_RANKS; i++) nw_json_int(&j, wait.ranks[i]);
    nw_json_array_end(&j);
    nw_json_key(&j, "waits_for_what");
    nw_json_string(&j, wait.what);
    nw_json_key(&j, "messages_in_memory_bytes");
    nw_json_int(&j, (int64_t)nw_message_pool_bytes(d->pool));
    nw_json_key(&j, "peers");
    nw_json_array(&j);
    for (int r = 0; r < d->size; r++) write_peer(d, &j, r);
    nw_json_array_end(&j);
    nw_json_object_end(&j);
    nw_json_end(&j);
}
