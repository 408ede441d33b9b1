/*
 * local.c - the driver of a world of one: no messages, real time. Events follow each other as calls do.
 */
#include "base/clock.h"
#include "net/driver.h"

#include <stdlib.h>
#include <string.h>

static int64_t now(nw_driver *d, int rank)
{
    (void)d, (void)rank;
    return nw_now_ns();
}

static nw_status check_actions(const nw_driver *d, const nw_party *p)
{
    NW_FAIL_IF(d->actions.count > 0, NW_E_INTERNAL, "%s sends messages in a world of one", p->exchange->ops->name);
    return NW_OK;
}

static nw_status tell(nw_driver *d, nw_party *p, nw_event_kind kind)
{
    NW_TRY(nw_party_tell(d, p, (nw_event){.kind = kind, .now_ns = nw_now_ns()}));
    return check_actions(d, p);
}

static nw_status go(nw_driver *d, nw_party *p)
{
    NW_TRY(nw_party_go(d, p, nw_now_ns()));
    return check_actions(d, p);
}

static nw_status stop(nw_driver *d, nw_party *p)
{
    NW_TRY(nw_party_stop(d, p, nw_now_ns()));
    return check_actions(d, p);
}

static void tap(nw_driver *d, nw_span span, int64_t begin, int64_t step)
{
    const nw_taps *taps = &d->options.taps;
    if (taps->span) taps->span(taps->context, 0, span, begin, nw_now_ns(), step);
}

static nw_status run(nw_driver *d, nw_party *p, bool flush)
{
    if (!p->begun) NW_TRY(tell(d, p, NW_EVENT_BEGIN));
    p->begun = true;
    NW_TRY(flush ? tell(d, p, NW_EVENT_FLUSH) : go(d, p));
    nw_action action;
    bool stopping = false;
    while (nw_party_next(d, p, &action)) {
        int64_t begin = nw_now_ns();
        bool computes = action.kind == NW_ACTION_COMPUTE, complete = true;
        NW_TRY(computes ? p->work->compute(p->worker, NULL, &complete) : p->work->apply(p->worker, &action));
        tap(d, computes ? NW_SPAN_COMPUTE : NW_SPAN_APPLY, begin, p->step);
        if (!complete)
            nw_party_postpone(p);
        else
            NW_TRY(tell(d, p, computes ? NW_EVENT_COMPUTED : NW_EVENT_APPLIED));
        if (!stopping && p->exchange->hands_out && nw_driver_shall_stop(d)) {
            stopping = true;
            NW_TRY(stop(d, p));
        }
    }
    NW_FAIL_IF(!nw_party_rests(p), NW_E_INTERNAL, "%s waits for somebody in a world of one", p->exchange->ops->name);
    return NW_OK;
}

static nw_status share(nw_driver *d, const void *mine, size_t bytes, void *all)
{
    (void)d;
    memcpy(all, mine, bytes);
    return NW_OK;
}

static nw_status collect(nw_driver *d, int from, void *data, size_t bytes)
{
    (void)d, (void)from, (void)data, (void)bytes;
    return NW_OK;
}

static const nw_driver_ops ops = {.name = "local", .run = run, .share = share, .collect = collect, .now = now};

nw_status nw_local_create(nw_driver **out, const nw_driver_options *options)
{
    *out = calloc(1, sizeof **out);
    NW_FAIL_IF(!*out, NW_E_MEMORY, "no memory for a driver");
    nw_status status = nw_driver_init(*out, &ops, options, 1, 0, 1);
    if (status != NW_OK) {
        nw_driver_free(*out);
        *out = NULL;
    }
    return status;
}
