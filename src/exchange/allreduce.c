/*
 * allreduce.c - all replicas apply the mean of all gradients, synchronously.
 *
 * As soon as a part of the gradient is final, it is contributed to a reduction (channel/reduce.h), whose result depends
 * only on the gradients and the number of members, bit for bit. If codecs are exact and there is no delay, the sums are
 * made in the gradient vector itself, and the update multiplies by 1 / N.
 *
 * Delay 0: step t computes g_t at w_t and applies its mean before step t + 1 begins. Delay 1: step t computes g_t at
 * w_t while the mean of g_(t-1) is exchanged, then applies that mean: w_(t+1) = w_t - U(mean g_(t-1)). So the exchange
 * may take as long as a step. A run that drains applies the last mean at its end. A run with delay 0 that resumes from
 * a checkpoint of delay 1 applies the mean that the checkpoint holds.
 *
 * Plain epochs (channel/warm_up.h) use a second reduction with the same buckets, but uncompressed. It shares the memory
 * of the first, so that the first step of such an epoch also sends what the memory held back, and momentum continues
 * (memory.h). The memories of owners stay with the first reduction until it is used again. The change takes place at
 * the first gradient of an epoch, when all means of the other reduction are complete; with delay 1 that gradient waits
 * for them once.
 *
 * Clipping (channel/clip.h) needs the norm of the whole gradient, so then nothing is sent before all of it is final.
 *
 * Stopping. A member that is asked to stop before it begins gradient t announces this in its contributions to t, and
 * owners pass it on with the means: the run ends after t + 1 + delay gradients. All members know this in time, because
 * none begins that gradient before it has all means of t.
 *
 * How far ahead another rank can be: while this rank lacks a mean of step c, because of one slow link, it has
 * contributed steps up to c + delay; so others may have all means of these, and begin step c + 2 delay + 1. So at most
 * 2 (delay + 1) rounds are in progress.
 */
#include "exchange/exchange.h"
#include "codec/kernels.h"
#include "channel/clip.h"
#include "channel/reduce.h"
#include "channel/warm_up.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct allreduce {
    nw_machine base;
    const nw_params *params;
    nw_layout layout, plain_layout;
    nw_reduce *coded, *plain; /* plain: for uncompressed epochs; NULL: there are none */
    nw_reduce *reduce;        /* the one of these two that the last gradient used */
    int delay;
    bool in_place;    /* sums are made in the gradient vector */
    bool postponed;   /* a complete gradient waits for means of the other reduction */
    double clip_norm; /* 0: no clipping */
    int64_t freeze;   /* memory momentum: the first `freeze` gradients are exchanged uncompressed */
    double *norm_parts;
    int64_t clipped; /* gradients whose norm was computed */
    nw_pool *pool;
    nw_channel_stats *stats; /* or NULL */
    float *delayed[2];       /* delay 1: means of even and of odd steps */
    float *carried;          /* delay 0: a mean from a checkpoint of delay 1, until it is applied */
    int64_t step;            /* gradients computed */
    int64_t applied;         /* updates made */
    int64_t clocks[2];       /* batch numbers of even and of odd steps, for their learning rates */
    int64_t held, clock;     /* for checkpoints: means that are not applied yet, and their batch number */
    nw_go go;
    bool asked; /* the next gradient was requested */
    bool applying;
    const void *report;
    nw_count count;
} allreduce;

enum { PLAIN_CHANNEL = NW_CHANNEL_EXCHANGE + 4 }; /* the numbers before are used by codecs with rounds (summed.h) */

static void announce_end(const allreduce *a, int64_t until)
{
    nw_reduce_announce_end(a->coded, until);
    if (a->plain) nw_reduce_announce_end(a->plain, until);
}

/* Ends the run early; a later run continues exactly from there. */
static void stop_at(allreduce *a, int64_t until)
{
    if (until >= a->go.until) return;
    a->go.until = until;
    a->go.drain = false;
    announce_end(a, until);
}

static nw_status take_message(allreduce *a, nw_actions *actions, nw_message *m)
{
    int from;
    NW_TRY(nw_machine_sender(&a->base, m, &from));
    if (m->header->until > 0) stop_at(a, (int64_t)m->header->step + m->header->until); /* stop was announced */
    bool plain = a->plain && m->header->channel == PLAIN_CHANNEL;
    NW_TRY(nw_reduce_take(plain ? a->plain : a->coded, actions, m, from));
    if (a->plain) nw_reduce_begin_at(a->reduce == a->plain ? a->coded : a->plain, nw_reduce_completed(a->reduce));
    return NW_OK;
}

/* ---- contributing gradients -------------------------------------------------------------------------------------- */

/* Computes the clipping factor. The memory applies it to compressed items; here it is applied to all others. */
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

/* Contributes what lies at or after element `first`. *contributed is false if nothing was, because the other reduction
 * is to be used from now on and means of the present one are missing. */
static nw_status contribute_gradient(allreduce *a, nw_actions *actions, int64_t clock, size_t first, bool *contributed)
{
    nw_memory *memory = nw_reduce_memory(a->coded);
    bool early = a->step < a->freeze;
    bool plain = a->plain && (early || nw_warm_up_is_plain(&a->layout, a->base.group.count, clock));
    nw_reduce *wanted = plain ? a->plain : a->coded;
    bool same = wanted == a->reduce && (!memory || memory->early == early);
    *contributed = same || nw_reduce_completed(a->reduce) == a->step;
    if (!*contributed || (a->clip_norm > 0 && first > 0)) return NW_OK;
    if (wanted != a->reduce) nw_reduce_begin_at(wanted, a->step);
    a->reduce = wanted;
    if (memory) memory->early = early;
    clip_gradient(a, actions);
    return nw_reduce_contribute(wanted, actions, a->step, clock, first, a->params->gradients);
}

/* The gradient is complete. */
static nw_status contribute_rest(allreduce *a, nw_actions *actions, int64_t clock)
{
    bool contributed;
    NW_TRY(contribute_gradient(a, actions, clock, 0, &contributed));
    a->clocks[a->step & 1] = clock;
    a->postponed = !contributed;
    a->step += contributed;
    if (contributed && a->stats && a->base.group.me == 0) /* for all members */
        a->stats->sent_floats += 2 * (a->base.group.count - 1) * (int64_t)a->params->learned.floats;
    return NW_OK;
}

/* ---- the state machine ------------------------------------------------------------------------------------------- */

/* The vector that is applied next; NULL: the gradient vector. */
static float *held_back(const allreduce *a) { return a->delay ? a->delayed[a->applied & 1] : a->carried; }

/* The number of gradients that need not be applied before the next one begins: the delay, but 0 at the end of a run
 * that drains. */
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

/* Counts a step when everything that is due for its gradient is done. */
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

/* Starts the next task, if one can start. */
static nw_status go_on(allreduce *a, nw_actions *actions)
{
    if (a->applying || a->asked) return NW_OK;
    if (a->postponed) NW_TRY(contribute_rest(a, actions, a->clocks[a->step & 1]));
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
    return contribute_rest(a, actions, task->clock);
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    allreduce *a = (allreduce *)m;
    bool contributed;
    switch (event->kind) {
    case NW_EVENT_FINAL:
        return contribute_gradient(a, actions, event->task->clock, event->first, &contributed);
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
        announce_end(a, 0);
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
               "the checkpoint's state of allreduce is impossible: %" PRId64 " gradients, of which %" PRId64
               " are not applied; use an earlier checkpoint",
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
    nw_reduce_free(a->plain); /* first, because it uses the other's memory */
    nw_reduce_free(a->coded);
    nw_layout_free(&a->plain_layout);
    nw_layout_free(&a->layout);
    free(a->norm_parts);
    free(a->delayed[0]);
    free(a->delayed[1]);
    free(a->carried);
    free(a);
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
        "memory %s needs the mean of the previous gradients, which is not yet there with delayed updates; choose "
        "--delay 0",
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
    a->in_place = nw_layout_is_exact(&a->layout) && a->delay == 0 && !reduced;
    nw_reduce_options r = {.machine = &a->base,
                           .channel = NW_CHANNEL_EXCHANGE,
                           .layout = &a->layout,
                           .memory = o->memory,
                           .stats = o->stats,
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
    a->stats = o->stats;
    a->clip_norm = o->memory.clip_norm;
    a->freeze = o->memory.freeze;
    NW_TRY_OR(make_allreduce(a, o), allreduce_free(&a->base));
    *out = &a->base;
    return NW_OK;
}
