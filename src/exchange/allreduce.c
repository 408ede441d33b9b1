/*
 * allreduce.c - all replicas apply the mean of all gradients, synchronously.
 *
 * As soon as a part of the gradient is final it goes into a reduction (reduce.h), whose bits depend on the gradients
 * and the number of members alone. Where the codec loses nothing and there is no delay, sums are made in the gradient
 * itself, and the factor 1 / N is left to the update.
 *
 * Delay 0: step t computes g_t at w_t and applies its mean before step t + 1 begins. Delay 1: step t computes g_t at
 * w_t while the mean of g_(t-1) travels, then applies that one: w_(t+1) = w_t - U(mean g_(t-1)). The exchange has a
 * whole step of time. A run that drains applies the last one too, and so does delay 0 where a checkpoint of delay 1
 * brings one.
 *
 * Plain epochs (warm_up.h): a second reduction, of the same buckets but with compressed items as they are, which shares
 * the first one's memory: so what was kept back is delivered in the first step of such an epoch, and momentum goes on
 * (memory.h). What owners kept back stays with the first until it is used again. The change is made at the first gradient
 * of an epoch, when all means of the other reduction are here; with delay 1 that gradient waits for them, once.
 *
 * Clipping (warm_up.h) needs the norm of the whole gradient, so that nothing is given before all of it is final.
 *
 * Stopping. A member that is asked to stop before it begins gradient t says so in its contributions to t, and owners
 * pass it on with the mean: the run ends after t + 1 + delay gradients. All know in time, since none begins that
 * gradient before it has all means of t.
 *
 * How far another rank may be ahead: while this rank lacks a mean of step c, from one slow link, it has contributed
 * steps up to c + delay, so others may have all means of these, and begin step c + 2 delay + 1. So there are 2 (delay +
 * 1) rounds under way at most.
 */
#include "exchange/exchange.h"
#include "codec/kernels.h"
#include "channel/reduce.h"
#include "channel/warm_up.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct allreduce {
    nw_machine base;
    const nw_params *params;
    nw_layout layout, plain_layout;
    nw_reduce *reduce;        /* one of these: that of the last gradient */
    nw_reduce *coded, *plain; /* plain: of epochs that are not compressed; NULL: there are none */
    int delay;
    bool in_place;    /* sums are made in the gradient */
    bool postponed;   /* a gradient is there and waits for means of the other reduction */
    double clip_norm; /* 0: none */
    int64_t freeze;   /* gradients that are exchanged plainly before momentum travels */
    double *norm_parts;
    int64_t clipped; /* gradients whose norm was looked at */
    nw_pool *pool;
    float *delayed[2];   /* delay 1: means of even and of odd steps */
    float *carried;      /* delay 0: a mean that a checkpoint with delay 1 held back, until it is applied */
    int64_t step;        /* gradients computed */
    int64_t applied;     /* updates made */
    int64_t clocks[2];   /* of even and of odd steps: the batch of their learning rate */
    int64_t held, clock; /* for checkpoints: means that are not applied, and the batch of their learning rate */
    nw_go go;
    bool asked; /* for the next gradient */
    bool applying;
    const void *report;
    nw_count count;
} allreduce;

enum { PLAIN_CHANNEL = NW_CHANNEL_EXCHANGE + 4 }; /* behind those of rounds of floats */

static void say_until(const allreduce *a, int64_t until)
{
    nw_reduce_say(a->coded, until);
    if (a->plain) nw_reduce_say(a->plain, until);
}

/* The run ends earlier than it should, and goes on from there later as if it had not. */
static void stop_at(allreduce *a, int64_t until)
{
    if (until >= a->go.until) return;
    a->go.until = until;
    a->go.drain = false;
    say_until(a, until);
}

static nw_status take_message(allreduce *a, nw_actions *actions, nw_message *m)
{
    int from;
    NW_TRY(nw_machine_sender(&a->base, m, &from));
    if (m->header->until > 0) stop_at(a, (int64_t)m->header->step + m->header->until); /* a mean that follows says so */
    bool plain = a->plain && m->header->channel == PLAIN_CHANNEL;
    NW_TRY(nw_reduce_take(plain ? a->plain : a->coded, actions, m, from));
    if (a->plain) nw_reduce_begin_at(a->reduce == a->plain ? a->coded : a->plain, nw_reduce_completed(a->reduce));
    return NW_OK;
}

/* ---- gradients are given ----------------------------------------------------------------------------------------- */

/* Shortens the gradient if it is too long: where there is a memory, when it is taken there; else here. */
static void clip_gradient(allreduce *a, nw_actions *actions)
{
    float *g = a->params->gradients;
    size_t floats = a->params->learned.floats;
    if (a->clip_norm <= 0 || a->clipped > a->step) return;
    a->clipped = a->step + 1;
    float clip = nw_local_clip_factor(g, floats, a->clip_norm, a->base.group.count, a->norm_parts, a->pool);
    nw_actions_touch(actions, g, floats, clip < 1);
    nw_reduce_clip(a->coded, clip);
    if (a->plain) nw_reduce_clip(a->plain, clip);
    for (int k = 0; k < a->layout.count && clip < 1; k++) {
        const nw_block *b = &a->layout.at[k].block;
        if (!a->layout.at[k].dense && nw_reduce_memory(a->coded)) continue;
        for (int t = 0; t < b->tile_count; t++)
            nw_codec_kernels_best()->scale(g + b->tiles[t].first, clip, b->tiles[t].count);
    }
}

/* Gives what lies at `first` and behind it. False: nothing was given, since means of what came before a
 * change are missing. */
static nw_status give_gradient(allreduce *a, nw_actions *actions, int64_t clock, size_t first, bool *given)
{
    nw_memory *memory = nw_reduce_memory(a->coded);
    bool early = a->step < a->freeze;
    bool plain = a->plain && (early || nw_warm_up_is_plain(&a->layout, a->base.group.count, clock));
    nw_reduce *wanted = plain ? a->plain : a->coded;
    bool same = wanted == a->reduce && (!memory || memory->early == early);
    *given = same || nw_reduce_completed(a->reduce) == a->step;
    if (!*given || (a->clip_norm > 0 && first > 0)) return NW_OK;
    if (wanted != a->reduce) nw_reduce_begin_at(wanted, a->step);
    a->reduce = wanted;
    if (memory) memory->early = early;
    clip_gradient(a, actions);
    return nw_reduce_give(wanted, actions, a->step, clock, first, a->params->gradients);
}

/* The gradient is complete. */
static nw_status give_rest(allreduce *a, nw_actions *actions, int64_t clock)
{
    bool given;
    NW_TRY(give_gradient(a, actions, clock, 0, &given));
    a->clocks[a->step & 1] = clock;
    a->postponed = !given;
    a->step += given;
    return NW_OK;
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

/* What is applied next, if not the gradient vector itself. */
static float *held_back(const allreduce *a) { return a->delay ? a->delayed[a->applied & 1] : a->carried; }

/* Gradients that may stay without their update: those that a delay holds back, unless the run drains and is at its
 * end. */
static int64_t may_wait(const allreduce *a)
{
    bool at_end = a->step >= a->go.until && !a->asked;
    return at_end && a->go.drain ? 0 : a->delay;
}

static void update(allreduce *a, nw_actions *actions)
{
    float *held = held_back(a);
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = a->applied,
                                       .clock = a->clocks[a->applied & 1],
                                       .values = a->params->values,
                                       .gradient = held ? held : a->params->gradients,
                                       .count = a->params->learned.floats,
                                       .scale = a->in_place && !a->carried ? 1.0f / (float)a->base.group.count : 1.0f});
    a->applying = true;
}

/* All that is due for the gradients so far is done. */
static void count_step(allreduce *a, nw_actions *actions)
{
    static const int first = 0;
    if (a->base.updates == a->step) return;
    a->count = (nw_count){.updates = a->base.updates = a->step,
                          .clock = a->clocks[(a->step - 1) & 1],
                          .from_count = 1,
                          .from = &first,
                          .reports = &a->report};
    if (a->base.group.me == 0) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &a->count});
}

/* What comes next, if anything can. */
static nw_status go_on(allreduce *a, nw_actions *actions)
{
    if (a->applying || a->asked) return NW_OK;
    if (a->postponed) NW_TRY(give_rest(a, actions, a->clocks[a->step & 1]));
    if (a->postponed) return NW_OK;
    if (a->step - a->applied > may_wait(a)) {
        if (nw_reduce_completed(a->reduce) > a->applied) update(a, actions);
        return NW_OK;
    }
    count_step(a, actions);
    if (a->step >= a->go.until) return NW_OK;
    a->asked = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = a->step});
    return NW_OK;
}

static nw_status gradient_done(allreduce *a, nw_actions *actions, const nw_task *task)
{
    a->asked = false;
    if (!task->completes) { /* the batches of the run are used up */
        a->go.until = a->step;
        return NW_OK;
    }
    return give_rest(a, actions, task->clock);
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    allreduce *a = (allreduce *)m;
    bool given;
    switch (event->kind) {
    case NW_EVENT_FINAL:
        return give_gradient(a, actions, event->task->clock, event->first, &given);
    case NW_EVENT_DONE:
        if (event->task->kind == NW_TASK_GRADIENT) {
            NW_TRY(gradient_done(a, actions, event->task));
            break;
        }
        a->applied++;
        a->applying = false;
        free(a->carried);
        a->carried = NULL;
        break;
    case NW_EVENT_MESSAGE:
        NW_TRY(take_message(a, actions, event->message));
        break;
    case NW_EVENT_GO:
        a->go = *event->go;
        say_until(a, 0);
        break;
    case NW_EVENT_STOP:
        stop_at(a, a->step + (a->asked || a->postponed) + (a->base.group.count > 1 ? 1 + a->delay : 0));
        break;
    default:
        return NW_OK;
    }
    return go_on(a, actions);
}

static bool is_quiescent(const nw_machine *m)
{
    const allreduce *a = (const allreduce *)m;
    return nw_reduce_completed(a->reduce) == a->step && !a->applying && !a->asked && !a->postponed &&
           a->step - a->applied <= may_wait(a);
}

static void waits(const nw_machine *m, nw_wait *wait) { nw_reduce_waits(((const allreduce *)m)->reduce, wait); }

static void state(nw_machine *m, nw_state *s)
{
    allreduce *a = (allreduce *)m;
    a->held = a->step - a->applied;
    a->clock = a->clocks[a->applied & 1];
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "held", NW_STATE_KEPT, &a->held);
    nw_state_integer(s, "clock", NW_STATE_KEPT, &a->clock);
    if (a->held > 0 && held_back(a))
        nw_state_vector(s, "delayed", NW_STATE_KEPT, held_back(a), 0, a->params->learned.floats);
    nw_reduce_state(a->coded, s);
}

static nw_status loaded(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    NW_FAIL_IF(m->updates < a->held || m->updates > INT64_MAX / 2 || a->held < 0 || a->held > 1 || a->clock < 0,
               NW_E_FILE,
               "the checkpoint holds an allreduce after %" PRId64 " gradients, %" PRId64
               " of them not applied, which is impossible; use an earlier checkpoint",
               m->updates, a->held);
    a->step = m->updates;
    a->clipped = a->step;
    nw_reduce_begin_at(a->coded, a->step);
    if (a->plain) nw_reduce_begin_at(a->plain, a->step);
    a->applied = a->step - a->held;
    a->clocks[a->applied & 1] = a->clock;
    if (a->applied == a->step || a->delay) return NW_OK;
    NW_NEW(a->carried, a->params->learned.floats, "a mean of %zu parameters", a->params->learned.floats);
    return NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void allreduce_free(nw_machine *m)
{
    allreduce *a = (allreduce *)m;
    nw_reduce_free(a->plain); /* shares a memory */
    nw_reduce_free(a->coded);
    nw_layout_free(&a->plain_layout);
    nw_layout_free(&a->layout);
    free(a->norm_parts);
    free(a->delayed[0]);
    free(a->delayed[1]);
    free(a->carried);
    free(a);
}

static bool is_exact(const nw_layout *l)
{
    bool exact = true;
    for (int b = 0; b < l->count; b++) exact &= l->at[b].block.codec->exact;
    return exact;
}

/* Whether the memory changes means. */
static nw_status find_reduced(const nw_memory_options *o, int delay, bool *reduced)
{
    const nw_memory_ops *ops;
    *reduced = false;
    if (!o->name) return NW_OK;
    NW_TRY(nw_memory_find(o->name, &ops));
    NW_FAIL_IF(
        ops->common && delay, NW_E_ARGUMENT,
        "memory %s begins with the mean of the last gradients, which is not there yet where updates are delayed; "
        "choose --delay 0",
        ops->name);
    *reduced = ops->reduced != NULL;
    return NW_OK;
}

static nw_status make_plain(allreduce *a, nw_layout_options layout, nw_reduce_options r)
{
    if (a->freeze == 0 && !nw_warm_up_has_plain(&a->layout, a->base.group.count)) return NW_OK;
    layout.plainly = true;
    NW_TRY(nw_layout_make(&a->plain_layout, &layout));
    r.layout = &a->plain_layout;
    r.channel = PLAIN_CHANNEL;
    r.share = nw_reduce_memory(a->coded);
    r.memory = (nw_memory_options){0};
    return nw_reduce_create(&a->plain, &r);
}

static nw_status make_allreduce(allreduce *a, const nw_exchange_options *o)
{
    size_t floats = o->params->learned.floats;
    nw_layout_options layout = o->layout;
    layout.segments = &o->params->learned;
    layout.cuts = o->group.count;
    bool reduced;
    NW_TRY(nw_layout_make(&a->layout, &layout));
    NW_TRY(nw_layout_check_memory(&a->layout, &o->memory));
    NW_TRY(find_reduced(&o->memory, o->delay, &reduced));
    if (a->clip_norm > 0) NW_NEW(a->norm_parts, nw_local_clip_parts(floats) + 1, "a norm of %zu floats", floats);
    a->in_place = is_exact(&a->layout) && a->delay == 0 && !reduced;
    nw_reduce_options r = {.machine = &a->base,
                           .channel = NW_CHANNEL_EXCHANGE,
                           .layout = &a->layout,
                           .memory = o->memory,
                           .travel = o->travel,
                           .pool = o->pool,
                           .slots = 2 * (a->delay + 1),
                           .in_place = a->in_place,
                           .targets = {o->params->gradients, o->params->gradients}};
    for (int i = 0; a->delay && i < 2; i++) {
        a->delayed[i] = r.targets[i] = calloc(floats + 1, sizeof(float));
        NW_FAIL_IF(!a->delayed[i], NW_E_MEMORY, "no memory for a mean of %zu parameters", floats);
    }
    NW_TRY(nw_reduce_create(&a->coded, &r));
    a->reduce = a->coded;
    return make_plain(a, layout, r);
}

nw_status nw_allreduce_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"allreduce", handle, is_quiescent, waits, state, allreduce_free, loaded};
    NW_FAIL_IF(o->delay < 0 || o->delay > 1, NW_E_ARGUMENT, "allreduce can delay updates by 0 or 1 steps, not by %d",
               o->delay);
    allreduce *a = calloc(1, sizeof *a);
    NW_FAIL_IF(!a, NW_E_MEMORY, "no memory for an exchange");
    a->base = (nw_machine){.ops = &ops, .group = o->group, .equal = true, .lockstep = true};
    a->report = o->report;
    a->params = o->params;
    a->delay = o->delay;
    a->pool = o->pool;
    a->clip_norm = o->memory.clip_norm;
    a->freeze = o->memory.freeze;
    NW_TRY_OR(make_allreduce(a, o), allreduce_free(&a->base));
    *out = &a->base;
    return NW_OK;
}
