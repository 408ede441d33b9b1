/* bench_serve.c - see bench_serve.h. */
#include "cli/bench_serve.h"

#include "base/clock.h"

#include <stdlib.h>

enum { SERVER, WORKER, RANKS };

static nw_status tell(nw_bench_server *b, nw_exchange *exchange, nw_event event)
{
    NW_TRY(exchange->ops->handle(exchange, &event, &b->actions));
    return b->actions.status;
}

/* ---- the worker, once -------------------------------------------------------------------------------------------- */

/* Hands what one rank has sent to the other, and keeps what the other then sends. */
static nw_status deliver_permit(nw_bench_server *b, nw_exchange *worker)
{
    int count = b->actions.count;
    for (int i = 0; i < count; i++)
        if (b->actions.at[i].kind == NW_ACTION_SEND)
            NW_TRY(tell(b, worker, (nw_event){.kind = NW_EVENT_MESSAGE, .message = b->actions.at[i].message}));
    nw_actions_clear(&b->actions);
    return NW_OK;
}

static nw_status keep_gradient(nw_bench_server *b)
{
    b->gradient = calloc((size_t)b->actions.count, sizeof *b->gradient);
    NW_FAIL_IF(!b->gradient, NW_E_MEMORY, "no memory for a list of %d messages", b->actions.count);
    for (int i = 0; i < b->actions.count; i++) {
        nw_message *m = b->actions.at[i].message;
        if (!m) continue;
        b->gradient[b->messages++] = nw_message_hold(m);
        b->bytes += m->header->bytes;
    }
    nw_actions_clear(&b->actions);
    return NW_OK;
}

/* The worker gets its first permit, and its gradient is what the vector of gradients holds. */
static nw_status make_gradient(nw_bench_server *b, nw_exchange *worker)
{
    nw_event go = {.kind = NW_EVENT_GO, .until = INT64_MAX / 4};
    NW_TRY(tell(b, worker, go));
    NW_TRY(tell(b, b->exchange, go));
    NW_TRY(deliver_permit(b, worker));
    NW_TRY(tell(b, worker, (nw_event){.kind = NW_EVENT_COMPUTED}));
    return keep_gradient(b);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* The gradient is one of the present parameters, so that it is never old. */
static nw_status arrive(nw_bench_server *b)
{
    uint64_t version = (uint64_t)b->exchange->ops->progress(b->exchange);
    for (int i = 0; i < b->messages; i++) {
        b->gradient[i]->header->version = version;
        b->gradient[i]->header->step = version;
        NW_TRY(tell(b, b->exchange, (nw_event){.kind = NW_EVENT_MESSAGE, .message = b->gradient[i]}));
    }
    return NW_OK;
}

static nw_status apply(nw_bench_server *b, double lr)
{
    const nw_action *action = NULL;
    for (int i = 0; i < b->actions.count; i++)
        if (b->actions.at[i].kind == NW_ACTION_APPLY) action = &b->actions.at[i];
    NW_FAIL_IF(!action, NW_E_INTERNAL, "the server makes no update of a whole gradient");
    float *own = b->params->gradients;
    b->params->gradients = action->gradient;
    nw_status status = nw_optimizer_step(b->optimizer, b->exec, b->params, lr, (double)action->scale);
    b->params->gradients = own;
    return status;
}

nw_status nw_bench_server_turn(nw_bench_server *b, double lr, nw_serve_times *times)
{
    int64_t start = nw_now_ns();
    NW_TRY(arrive(b));
    int64_t arrived = nw_now_ns();
    NW_TRY(apply(b, lr));
    nw_actions_clear(&b->actions);
    int64_t applied = nw_now_ns();
    NW_TRY(tell(b, b->exchange, (nw_event){.kind = NW_EVENT_APPLIED}));
    int64_t sent = nw_now_ns();
    nw_actions_clear(&b->actions);
    *times = (nw_serve_times){nw_seconds(arrived - start), nw_seconds(applied - arrived), nw_seconds(sent - applied)};
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

nw_status nw_bench_server_make(nw_bench_server *b, const char *codec, nw_params *params, nw_optimizer *optimizer,
                               nw_exec *exec)
{
    *b = (nw_bench_server){.params = params, .optimizer = optimizer, .exec = exec};
    nw_codec_options c = {.name = codec};
    NW_TRY(nw_codec_create(&b->codec, &c));
    NW_TRY(nw_message_pool_create(&b->pool));
    b->actions.pool = b->pool;
    nw_exchange_options o = {.name = "server",
                             .rank = SERVER,
                             .world = RANKS,
                             .params = params,
                             .codec = b->codec,
                             .in_flight = 1,
                             .max_staleness = -1,
                             .pool = exec->pool};
    NW_TRY(nw_exchange_create(&b->exchange, &o));
    nw_exchange *worker;
    o.rank = WORKER;
    NW_TRY(nw_exchange_create(&worker, &o));
    nw_status status = make_gradient(b, worker);
    nw_exchange_free(worker);
    return status;
}

void nw_bench_server_free(nw_bench_server *b)
{
    nw_exchange_free(b->exchange);
    nw_actions_free(&b->actions);
    for (int i = 0; i < b->messages; i++) nw_message_drop(b->gradient[i]);
    free(b->gradient);
    if (b->pool) nw_message_pool_free(b->pool);
    nw_codec_free(b->codec);
    *b = (nw_bench_server){0};
}
