/* pipeline.c - see pipeline.h. Reading order: handle at the bottom, go_on, then what it calls. */
#include "support/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Messages that came before their turn. */
typedef struct queue {
    nw_message *first, **last;
} queue;

typedef struct pipeline {
    nw_machine base;
    nw_machine_ops ops; /* under the exchange's name */
    nw_machine *exchange;
    pipeline_options o;
    int64_t delay, above, head; /* D of this stage, of the next one, of stage 0 */
    int64_t drained;            /* all batches before this one have come back to all stages */
    int64_t end;                /* batches that go forward until the run ends, all runs together */
    int64_t next;               /* the iteration that is under way, or begins next */
    bool forwarded;             /* its forward pass is done */
    bool computing, upward;     /* a pass is under way; it is forward alone */
    bool draining;              /* in the second part of a run */
    bool drain;                 /* this run has one, and it is not over */
    nw_task gradient;
    bool asked;
    nw_message *in, *held; /* what the pass under way reads; what the window holds back */
    queue up, down;
    int64_t sent, taken, returned; /* batches: sent up, taken there, come back here */
    uint64_t run;                  /* GOs heard: a STOP may come when its run is over */
    nw_message_pool *loaded;       /* messages that a checkpoint had */
} pipeline;

int64_t pipeline_delay(double hop, int stages, int stage) { return (int64_t)ceil(hop * (stages - 1 - stage)); }

static int stage_of(const pipeline *l) { return l->base.group.me; }
static bool is_last(const pipeline *l) { return stage_of(l) == l->base.group.count - 1; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
/* Batches that have come back before iteration s of a stage with this delay. */
static int64_t back(const pipeline *l, int64_t s, int64_t delay) { return most(l->drained, s - delay); }
/* And when this part of the run is over. */
static int64_t back_at_end(const pipeline *l) { return l->draining ? l->end : back(l, l->end, l->delay); }

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void put(queue *q, nw_message *m)
{
    m->next = NULL;
    if (!q->first) q->last = &q->first;
    *q->last = m;
    q->last = &m->next;
}

static nw_message *take(queue *q)
{
    nw_message *m = q->first;
    if (m) q->first = m->next;
    return m;
}

static void send(pipeline *l, nw_actions *actions, int to, int kind, int64_t step, nw_message *m)
{
    m->header->kind = (uint8_t)kind;
    m->header->step = (uint64_t)step;
    m->header->version = l->run;
    nw_machine_send(&l->base, actions, to > stage_of(l) ? NW_CHANNEL_UP : NW_CHANNEL_DOWN, to, m);
}

/* A message without payload. */
static nw_status say(pipeline *l, nw_actions *actions, int to, int kind, int64_t step)
{
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    send(l, actions, to, kind, step, m);
    return NW_OK;
}

/* What the pass under way made. */
static void take_out(pipeline *l, nw_message *m, nw_actions *actions)
{
    m->header->count = m->header->bytes / sizeof(float);
    nw_message_hold(m);
    if (!l->upward)
        send(l, actions, stage_of(l) - 1, PIPELINE_BATCH, l->next - l->delay, m);
    else if (l->sent - l->taken == l->o.window)
        l->held = m;
    else
        send(l, actions, stage_of(l) + 1, PIPELINE_BATCH, l->sent++, m);
}

static void take_taken(pipeline *l, nw_actions *actions)
{
    l->taken++;
    if (l->held) send(l, actions, stage_of(l) + 1, PIPELINE_BATCH, l->sent++, l->held);
    l->held = NULL;
}

/* ---- the exchange above ------------------------------------------------------------------------------------------ */

/* Keeps the gradient that it asks for; only stages 0 count. */
static nw_status tell(pipeline *l, const nw_event *event, nw_actions *actions)
{
    int kept = actions->count, from = kept;
    NW_TRY(l->exchange->ops->handle(l->exchange, event, actions));
    for (int i = from; i < actions->count; i++) {
        nw_action *a = &actions->at[i];
        if (a->kind == NW_ACTION_TASK && a->task.kind == NW_TASK_GRADIENT) {
            NW_FAIL_IF(l->asked, NW_E_INTERNAL, "%s asks for two gradients", l->exchange->ops->name);
            l->gradient = a->task;
            l->asked = true;
        } else if (a->kind != NW_ACTION_COUNT || stage_of(l) == 0) {
            actions->at[kept++] = *a;
        }
    }
    actions->count = kept;
    return NW_OK;
}

/* The batch whose learning rate counts; a drain is no time for a schedule. */
static int64_t clock_of(const pipeline *l) { return (l->draining ? l->end - 1 : l->next) + stage_of(l); }

static nw_status end_gradient(pipeline *l, nw_event event, bool completes, nw_actions *actions)
{
    nw_task done = l->gradient;
    done.completes = completes;
    done.clock = clock_of(l);
    event.kind = NW_EVENT_DONE;
    event.task = &done;
    l->asked = false;
    return tell(l, &event, actions);
}

/* Stage 0 was asked, or told: in the first part of a run the exchange can still end it. */
static nw_status stop(pipeline *l, const nw_event *event, nw_actions *actions)
{
    nw_event e = {.kind = NW_EVENT_STOP, .now_ns = event->now_ns};
    return l->draining || l->next == l->end ? NW_OK : tell(l, &e, actions);
}

/* It makes a gradient more than will be complete, if batches are left over. */
static nw_status tell_go(pipeline *l, nw_event event, nw_go go, nw_actions *actions)
{
    go.until = (back_at_end(l) + l->o.accumulation - 1) / l->o.accumulation;
    go.drain = l->draining;
    event.kind = NW_EVENT_GO;
    event.go = &go;
    return tell(l, &event, actions);
}

static nw_status take_message(pipeline *l, const nw_event *event, nw_actions *actions)
{
    nw_message *m = event->message;
    const nw_header *h = m->header;
    int from;
    int64_t step = (int64_t)h->step;
    NW_TRY(nw_machine_sender(&l->base, m, &from));
    bool up = h->channel == NW_CHANNEL_UP, below = from == stage_of(l) - 1, above = from == stage_of(l) + 1;
    if (up && h->kind == PIPELINE_END && from == 0 && step >= l->next && step < l->end) {
        l->end = step;
        l->drain = false;
    } else if (!up && h->kind == PIPELINE_STOP && stage_of(l) == 0) {
        return h->version == l->run ? stop(l, event, actions) : NW_OK;
    } else if (!up && h->kind == PIPELINE_TAKEN && above && step == l->taken) {
        take_taken(l, actions);
    } else if (up && h->kind == PIPELINE_BATCH && below) {
        put(&l->up, nw_message_hold(m));
    } else if (!up && h->kind == PIPELINE_BATCH && above && step == l->returned &&
               h->bytes == l->o.floats * sizeof(float)) {
        put(&l->down, nw_message_hold(m));
        l->returned++;
    } else {
        return NW_FAIL(NW_E_MESSAGE, "rank %u sent message %u of batch %" PRId64 ", which stage %d does not expect",
                       h->from, h->kind, step, stage_of(l));
    }
    return NW_OK;
}

/* ---- iterations -------------------------------------------------------------------------------------------------- */

static void pass(pipeline *l, nw_actions *actions, bool forward, bool backward)
{
    int64_t done = back(l, l->next, l->delay), pending = done % l->o.accumulation;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_PASS,
                                       .number = done / l->o.accumulation,
                                       .batch = forward ? l->next : done,
                                       .forward = forward,
                                       .backward = backward,
                                       .adds = backward && pending > 0,
                                       .completes = backward && pending + 1 == l->o.accumulation,
                                       .copy = l->exchange->moves,
                                       .in = l->in,
                                       .clock = clock_of(l),
                                       .values = l->o.params->values,
                                       .gradient = backward ? l->o.params->gradients : NULL,
                                       .count = l->o.params->learned.floats});
    l->computing = true;
    l->upward = !backward;
}

/* Begins the forward pass of the iteration, if what it needs is here. */
static nw_status begin_forward(pipeline *l, nw_actions *actions)
{
    if (l->held) return NW_OK;
    if (stage_of(l) > 0) {
        if (!l->up.first) return NW_OK;
        l->in = take(&l->up);
        NW_FAIL_IF((int64_t)l->in->header->step != l->next, NW_E_MESSAGE, "batch %" PRId64 " is missing", l->next);
        NW_TRY(say(l, actions, stage_of(l) - 1, PIPELINE_TAKEN, l->next));
    }
    pass(l, actions, true, is_last(l));
    return NW_OK;
}

static void begin_backward(pipeline *l, nw_actions *actions)
{
    if (l->down.first) {
        l->in = take(&l->down);
        pass(l, actions, false, true);
    }
}

static nw_status pass_done(pipeline *l, const nw_event *event, nw_actions *actions)
{
    nw_message_drop(l->in);
    l->in = NULL;
    l->computing = false;
    l->forwarded = l->upward;
    if (l->upward) return NW_OK;
    if (event->task->completes) NW_TRY(end_gradient(l, *event, true, actions));
    l->next++; /* behind end_gradient, which names the iteration */
    return NW_OK;
}

/* Iterations of this part of the run are over. */
static nw_status end_part(pipeline *l, nw_event event, nw_actions *actions)
{
    if (l->asked) return end_gradient(l, event, false, actions);
    if (!l->drain) return NW_OK;
    if (!l->draining) {
        l->draining = true;
        return tell_go(l, event, (nw_go){.batches = 0}, actions);
    }
    l->draining = l->drain = false;
    l->drained = l->next = l->end;
    return NW_OK;
}

/* The exchange of stage 0 has stopped before its time: so many batches it is. */
static nw_status end_here(pipeline *l, nw_actions *actions)
{
    l->end = l->next;
    l->drain = false;
    for (int i = 1; i < l->base.group.count; i++) NW_TRY(say(l, actions, i, PIPELINE_END, l->end));
    return NW_OK;
}

/* Begins what comes next, if it can. */
static nw_status go_on(pipeline *l, const nw_event *event, nw_actions *actions)
{
    while (!l->computing) {
        bool waits = !l->asked && back(l, l->next, l->delay) < back_at_end(l);
        if (l->next == l->end + (l->draining ? l->delay : 0)) {
            if (!l->asked && !l->drain) return NW_OK;
            NW_TRY(end_part(l, *event, actions));
        } else if (waits && stage_of(l) == 0 && !l->draining && l->exchange->ops->quiescent(l->exchange)) {
            NW_TRY(end_here(l, actions));
        } else if (waits) {
            return NW_OK;
        } else if (!l->forwarded && l->next < l->end) {
            NW_TRY(begin_forward(l, actions));
            if (!l->computing) return NW_OK;
        } else if (l->next - l->delay >= l->drained) {
            begin_backward(l, actions);
            if (!l->computing) return NW_OK;
        } else { /* nothing comes back yet */
            l->next++;
            l->forwarded = false;
        }
    }
    return NW_OK;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static nw_status go(pipeline *l, const nw_event *event, nw_actions *actions)
{
    l->run++;
    l->end += event->go->batches;
    l->drain = event->go->drain;
    return tell_go(l, *event, *event->go, actions);
}

static nw_status handle_first(pipeline *l, const nw_event *event, nw_actions *actions)
{
    switch (event->kind) {
    case NW_EVENT_GO:
        return go(l, event, actions);
    case NW_EVENT_STOP:
        return stage_of(l) > 0 ? say(l, actions, 0, PIPELINE_STOP, l->end) : stop(l, event, actions);
    case NW_EVENT_DONE:
        return event->task->kind == NW_TASK_PASS ? pass_done(l, event, actions) : tell(l, event, actions);
    case NW_EVENT_OUT:
        take_out(l, event->message, actions);
        return NW_OK;
    case NW_EVENT_MESSAGE:
        if (event->message->header->channel < NW_CHANNEL_EXCHANGE) return take_message(l, event, actions);
        return tell(l, event, actions);
    default:
        return tell(l, event, actions);
    }
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    pipeline *l = (pipeline *)m;
    NW_TRY(handle_first(l, event, actions));
    NW_TRY(go_on(l, event, actions));
    m->updates = stage_of(l) == 0 ? l->exchange->updates : back(l, l->next, l->head) / l->o.accumulation;
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m)
{
    const pipeline *l = (const pipeline *)m;
    bool over = !l->computing && l->next == l->end && !l->drain && !l->asked;
    bool heard = is_last(l) || (l->taken == l->end && l->returned == back(l, l->end, l->above));
    return over && heard && l->exchange->ops->quiescent(l->exchange);
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const pipeline *l = (const pipeline *)m;
    if (!l->exchange->ops->quiescent(l->exchange) && !l->asked) {
        l->exchange->ops->waits(l->exchange, wait);
        return;
    }
    bool below = !l->held && !l->forwarded && l->next < l->end;
    if (!is_quiescent(m)) nw_wait_add(wait, &m->group, stage_of(l) + (below ? -1 : 1));
    snprintf(wait->what, sizeof wait->what, "batch %" PRId64 " to %s", l->next - (below || l->held ? 0 : l->delay),
             below     ? "come up"
             : l->held ? "be taken"
                       : "come back");
}

static void state(nw_machine *m, nw_state *s)
{
    pipeline *l = (pipeline *)m;
    nw_state_integer(s, "batches", NW_STATE_KEPT, &l->end);
    nw_state_integer(s, "drained", NW_STATE_KEPT, &l->drained);
    int64_t batch = back(l, l->end, l->delay), floats = (int64_t)l->o.floats;
    for (nw_message *down = l->down.first; down; down = down->next) {
        char name[NW_STATE_NAME];
        snprintf(name, sizeof name, "down/%d/%" PRId64, stage_of(l), batch++);
        nw_state_tensor(s, name, NW_STATE_REFUSED, NW_STATE_F32, 1, &floats, down->payload);
    }
    l->exchange->ops->state(l->exchange, s);
}

static nw_status loaded(nw_machine *m)
{
    pipeline *l = (pipeline *)m;
    NW_FAIL_IF(l->drained < 0 || l->drained > l->end || l->end > INT64_MAX / 2, NW_E_FILE,
               "a pipeline cannot have had %" PRId64 " batches, and %" PRId64 " of them back", l->end, l->drained);
    l->next = l->taken = l->sent = l->end;
    l->returned = back(l, l->end, l->above);
    if (!l->loaded) NW_TRY(nw_message_pool_create(&l->loaded));
    for (int64_t batch = back(l, l->end, l->delay); batch < l->returned && !is_last(l); batch++) {
        nw_message *down;
        NW_TRY(nw_message_take(l->loaded, l->o.floats * sizeof(float), &down));
        put(&l->down, down);
    }
    if (l->exchange->ops->loaded) NW_TRY(l->exchange->ops->loaded(l->exchange));
    m->updates = back(l, l->end, l->head) / l->o.accumulation;
    return NW_OK;
}

static void pipeline_free(nw_machine *m)
{
    pipeline *l = (pipeline *)m;
    for (nw_message *message; (message = take(&l->up)) || (message = take(&l->down));) nw_message_drop(message);
    nw_message_drop(l->in);
    nw_message_drop(l->held);
    if (l->loaded) nw_message_pool_free(l->loaded);
    nw_exchange_free(l->exchange);
    free(l);
}

nw_status pipeline_create(nw_machine **out, nw_machine *exchange, const pipeline_options *o)
{
    pipeline *l = calloc(1, sizeof *l);
    *out = NULL;
    NW_FAIL_IF(!l, NW_E_MEMORY, "no memory for a pipeline");
    l->base = *exchange; /* what the driver and the run may know of it */
    l->ops = (nw_machine_ops){exchange->ops->name, handle, is_quiescent, waits, state, pipeline_free, loaded};
    l->base.ops = &l->ops;
    l->base.group = o->row;
    l->exchange = exchange;
    l->o = *o;
    if (l->o.accumulation == 0) l->o.accumulation = 1;
    if (l->o.window == 0) l->o.window = 3;
    l->delay = pipeline_delay(o->hop, o->row.count, o->row.me);
    l->above = pipeline_delay(o->hop, o->row.count, o->row.me + 1);
    l->head = pipeline_delay(o->hop, o->row.count, 0);
    *out = &l->base;
    return NW_OK;
}
