/*
 * dump.c - what a rank knows when its job fails, as JSON for people: whom it waits for and the last message from each.
 */
#include "base/json.h"
#include "net/driver.h"

static void write_peer(nw_driver *d, nw_json *j, int rank)
{
    int64_t ago_ns;
    nw_header last;
    if (!d->ops->last_message || !d->ops->last_message(d, rank, &ago_ns, &last)) return;
    nw_json_object(j);
    nw_json_put_int(j, "rank", rank);
    nw_json_put_double(j, "heard_seconds_ago", (double)ago_ns * 1e-9);
    nw_json_put_int(j, "message_channel", last.channel);
    nw_json_put_int(j, "message_kind", last.kind);
    nw_json_put_int(j, "message_step", (int64_t)last.step + 1);
    nw_json_put_int(j, "message_bucket", last.bucket);
    nw_json_put_int(j, "message_bytes", last.bytes);
    nw_json_object_end(j);
}

void nw_dump_write(nw_driver *d, const nw_rank *p, const char *reason, FILE *out)
{
    nw_wait wait = {0};
    p->machine->ops->waits(p->machine, &wait);
    nw_json j = nw_json_begin(out, true);
    nw_json_object(&j);
    nw_json_put_int(&j, "rank", p->index);
    nw_json_put_int(&j, "world_size", d->size);
    nw_json_put_string(&j, "driver", d->ops->name);
    nw_json_put_string(&j, "exchange", p->machine->ops->name);
    nw_json_put_string(&j, "reason", reason);
    nw_json_put_int(&j, "step", p->step);
    nw_json_put_string(&j, "state", !p->busy ? "waiting" : p->task.kind == NW_TASK_PASS ? "computing" : "updating");
    nw_json_put_array(&j, "waits_for");
    for (int i = 0; i < wait.count && i < NW_WAIT_MOST; i++) nw_json_int(&j, wait.ranks[i]);
    nw_json_array_end(&j);
    nw_json_put_string(&j, "waits_for_what", wait.what);
    nw_json_put_int(&j, "messages_in_memory_bytes", (int64_t)nw_message_pool_bytes(d->pool));
    nw_json_put_array(&j, "peers");
    for (int r = 0; r < d->size; r++) write_peer(d, &j, r);
    nw_json_array_end(&j);
    nw_json_object_end(&j);
    nw_json_end(&j);
}
