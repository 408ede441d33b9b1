/* replicas_hooks.c - see replicas_hooks.h. */
#include "train/replicas_hooks.h"

#include <unistd.h>

/* Names of slices: one a span, then messages of exchanges and of drivers. */
enum { EXCHANGE_MESSAGE = NW_SPAN_WAIT + 1, CONTROL_MESSAGE, LOSS, NAMES };
static const char *const names[NAMES] = {"compute",         "update", "handle message", "wait", "message",
                                         "control message", "loss"};

static void span(void *context, int rank, nw_span kind, int64_t begin_ns, int64_t end_ns, int64_t step)
{
    nw_replicas_hooks *t = context;
    bool computes = kind == NW_SPAN_COMPUTE || kind == NW_SPAN_UPDATE;
    nw_trace_span(t->trace, rank, computes ? NW_TRACE_COMPUTE : NW_TRACE_EXCHANGE, t->names[kind], step, begin_ns,
                  end_ns);
}

static nw_trace_message message_of(const nw_replicas_hooks *t, int from, int to, const nw_header *h)
{
    int name = t->names[h->channel != NW_CHANNEL_DRIVER ? EXCHANGE_MESSAGE : CONTROL_MESSAGE];
    return (nw_trace_message){.from = from,
                              .to = to,
                              .sequence = (uint32_t)h->sequence, /* names arrows: the last four billion are enough */
                              .step = (int64_t)h->step + 1,
                              .bytes = NW_HEADER_BYTES + h->bytes,
                              .name = name};
}

static void sent(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    nw_replicas_hooks *t = context;
    nw_trace_message m = message_of(t, from, to, h);
    nw_trace_sent(t->trace, &m, now_ns, now_ns + 1000); /* a microsecond, so that there is something to see */
}

static void received(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    nw_replicas_hooks *t = context;
    nw_trace_message m = message_of(t, from, to, h);
    nw_trace_received(t->trace, &m, now_ns, now_ns + 1000);
}

static void dropped(void *context, int by, int rank, bool back)
{
    const nw_replicas_hooks *t = context;
    (void)by;
    t->dropped(t->context, rank, back);
}

nw_status nw_replicas_hooks_open(nw_replicas_hooks *t, const nw_replicas_hooks_options *o, nw_driver_hooks *hooks)
{
    *t = (nw_replicas_hooks){.dropped = o->dropped, .context = o->context};
    if (o->dropped) hooks->dropped = dropped;
    hooks->context = t;
    if (o->trace) {
        char host[64] = "";
        gethostname(host, sizeof host - 1);
        nw_trace_options options = {.world = o->world,
                                    .first_rank = o->first,
                                    .ranks = o->count,
                                    .host = host,
                                    .first_step = o->first_step,
                                    .events = o->trace_events};
        NW_TRY(nw_trace_create(&t->trace, &options));
        for (int i = 0; i < NAMES; i++) t->names[i] = nw_trace_name(t->trace, names[i]);
        hooks->span = span;
        hooks->sent = sent;
        hooks->received = received;
    }
    return NW_OK;
}

void nw_replicas_hooks_loss(nw_replicas_hooks *t, int64_t step, int64_t now_ns, double loss)
{
    nw_trace_counter(t->trace, 0, t->names[LOSS], step, now_ns, loss);
}

void nw_replicas_hooks_close(nw_replicas_hooks *t)
{
    nw_trace_free(t->trace);
    *t = (nw_replicas_hooks){0};
}
