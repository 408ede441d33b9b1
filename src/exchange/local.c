/*
 * local.c - every replica makes steps by itself (inner steps), and after every H of them all make an outer step with
 * the mean of their differences: Local SGD, DiLoCo and related methods. docs/local.md is for users.
 *
 * x: a member's parameters, which have their own optimizer. theta: the outer parameters, equal on all members. They
 * start equal. After each H inner steps
 *
 *   d = theta - x of each member,  g = mean of d,  theta -= outer rule(g),  x = theta
 *
 * The outer rule is sgd of rate 1: x becomes the mean (Local SGD, Stich 2019; federated averaging, McMahan et al.
 * 2017); nesterov of rate 0.7 and momentum 0.9: DiLoCo (Douillard et al. 2023); or adam: FedAdam (Reddi et al. 2021).
 * The differences are reduced as allreduce reduces gradients (channel/reduce.h), with codecs and error memories: top-k
 * with values of 2 bits and error feedback is SparseLoCo (Sarfi et al. 2025).
 *
 * Delay 1: the mean is exchanged during the next H steps. `before` is a copy of the x that was contributed. When the
 * next outer step is due, theta -= rule(g) and x += theta - before, which keeps what was computed meanwhile; the next d
 * is exactly that. This happens after a fixed step, not when the mean arrives, so the bits do not depend on time.
 *
 * Fragments (Streaming DiLoCo, Douillard et al. 2025): the vector is divided into F ranges. Each has an outer step
 * every H steps, but at its own time: fragment f after the steps t with t mod H = (f + 1) H / F. The bytes are the
 * same, but never more than a fragment is sent at a time.
 *
 * Pairs: see local_pairs.c. Then each member has its own theta.
 *
 * Rounds. The outer step of a fragment after step t belongs to round (t - 1) / H, so a round has every fragment once. A
 * run that drains finishes the outer steps in progress; then every fragment in which x is not theta has another outer
 * step, in a round added after the present one. So at the end of a run x = theta, on all members the same. A run that
 * was stopped does not drain, and its continuation has the same bits as a run that was not stopped. Epochs end without
 * an outer step; theta is evaluated then (machine.h, `outer`).
 *
 * Bound on progress: while a member lacks the mean of a bucket in round c, it has not contributed that bucket in round
 * c + 1 (delay 1), so the others have not contributed it in round c + 2. A member that resumed in the middle of round c
 * counts this round as complete only when round c + 1 is. So rounds c to c + 3 can be in progress.
 */
#include "channel/warm_up.h"
#include "exchange/local_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FRAGMENTS_MOST = 62, SLOTS = 4, PIECE = 1 << 16 };

/* ---- vectors ----------------------------------------------------------------------------------------------------- */

typedef struct operands {
    const float *theta, *before;
    float *x, *difference, *kept;
    size_t count;
    operation how;
} operands;

static void compute_piece(void *context, int index, int worker)
{
    const operands *m = context;
    size_t first = (size_t)index * PIECE, end = m->count - first < PIECE ? m->count : first + PIECE;
    (void)worker;
    for (size_t i = first; i < end && m->how == DIFFER; i++) m->difference[i] = m->theta[i] - m->x[i];
    for (size_t i = first; i < end && m->how == REBASE; i++) m->x[i] += m->theta[i] - m->before[i];
    for (size_t i = first; i < end && m->how == ALONE; i++) m->difference[i] = m->theta[i] - m->before[i];
    for (size_t i = first; i < end && m->how == PULL; i++)
        m->difference[i] = m->theta[i] - 0.5f * (m->before[i] + m->difference[i]);
    if (m->how == LEVEL) memcpy(m->x + first, m->theta + first, (end - first) * sizeof(float));
    if (m->how == KEEP) memcpy(m->kept + first, m->x + first, (end - first) * sizeof(float));
}

void nw_local_compute(local *l, nw_actions *actions, int f, operation how)
{
    const fragment *at = &l->at[f];
    float *x = l->params->values + at->first, *kept = l->before ? l->before + at->first : NULL;
    operands m = {l->outer + at->first, kept ? kept : x, x, l->difference + at->first, kept, at->count, how};
    int pieces = (int)((at->count + PIECE - 1) / PIECE);
    bool to_x = how == LEVEL || how == REBASE, to_difference = how == DIFFER || how == PULL || how == ALONE;
    nw_actions_touch(actions, how == REBASE || how == PULL || how == ALONE ? m.before : m.theta, at->count, false);
    if (how == KEEP) nw_actions_touch(actions, m.kept, at->count, true);
    if (how == DIFFER || how == KEEP || to_x) nw_actions_touch(actions, x, at->count, to_x);
    if (to_difference) nw_actions_touch(actions, m.difference, at->count, true);
    if (l->pool && pieces > 1)
        nw_pool_run(l->pool, pieces, compute_piece, &m);
    else
        for (int i = 0; i < pieces; i++) compute_piece(&m, i, 0);
}

/* ---- which outer steps are due ----------------------------------------------------------------------------------- */

/* The round of outer steps after that inner step. */
static int64_t round_behind(const local *l, int64_t step) { return (step > 0 ? step - 1 : 0) / l->every + l->added; }

static bool drains(const local *l) { return l->go.drain && l->step >= l->go.until; }

/* Whether the fragment has an outer step after the present inner step. */
static bool is_due(const local *l, int f)
{
    return l->step > 0 && l->step % l->every == (f + 1) * l->every / l->fragments % l->every;
}

static bool shall_apply(const local *l, int f)
{
    return is_in(l->pending, f) && (l->delay == 0 || drains(l) || (is_due(l, f) && l->contributed[f] < l->step));
}

/* adds: the outer steps that a drain adds, after those that are due anyway. */
static bool shall_contribute(const local *l, int f, bool adds)
{
    if (is_in(l->pending, f)) return false;
    return adds ? drains(l) && l->level[f] != l->step : is_due(l, f) && l->contributed[f] != l->step;
}

/* ---- outer steps ------------------------------------------------------------------------------------------------- */

/* Contributes the differences of a fragment. */
static nw_status contribute_to_all(local *l, nw_actions *actions, int f)
{
    fragment *at = &l->at[f];
    nw_local_compute(l, actions, f, DIFFER);
    at->missing = at->buckets;
    for (int b = 0; b < l->layout.count; b++)
        if (l->layout.at[b].fragment == f)
            NW_TRY(nw_reduce_contribute_bucket(l->reduce, actions, l->round[f], l->clock, b, l->difference));
    return NW_OK;
}

static nw_status bucket_done(void *context, nw_actions *actions, int64_t round, int bucket)
{
    local *l = context;
    (void)actions;
    (void)round;
    l->at[l->layout.at[bucket].fragment].missing--;
    return NW_OK;
}

static nw_status contribute(local *l, nw_actions *actions, int f, bool adds)
{
    l->round[f] = round_behind(l, l->step) + adds;
    l->adds |= adds;
    l->contributed[f] = l->step;
    l->pending |= (int64_t)1 << f;
    if (l->before) nw_local_compute(l, actions, f, KEEP);
    return l->pairs ? nw_local_send_to_partner(l, actions, f) : contribute_to_all(l, actions, f);
}

/* The mean of a fragment has arrived: requests the outer update. */
static void apply(local *l, nw_actions *actions, int f)
{
    const fragment *at = &l->at[f];
    bool sum = l->in_place && !is_in(l->carried, f);
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .rule = NW_RULE_OUTER,
                                       .number = l->outer_steps[f],
                                       .clock = l->clock,
                                       .values = l->outer,
                                       .gradient = l->difference,
                                       .first = at->first,
                                       .count = at->count,
                                       .scale = sum ? 1.0f / (float)l->base.group.count : 1.0f});
    l->applying = f;
}

/* The outer update of a fragment is done. */
static void applied(local *l, nw_actions *actions)
{
    int f = l->applying;
    bool still = l->contributed[f] == l->step; /* no inner step since it was contributed */
    nw_local_compute(l, actions, f, still ? LEVEL : REBASE);
    if (still) l->level[f] = l->step;
    l->pending &= ~((int64_t)1 << f);
    l->carried &= l->pending;
    l->outer_steps[f]++;
    l->applying = -1;
}

/* Continues all outer steps that are due. *wait: some are not finished. */
static nw_status make_outer_steps(local *l, nw_actions *actions, bool *wait)
{
    *wait = false;
    for (bool adds = false;; adds = true) {
        for (bool again = true; again;) {
            again = false;
            for (int f = 0; f < l->fragments; f++) {
                if (!shall_apply(l, f)) continue;
                if (l->at[f].missing == 0) apply(l, actions, f);
                *wait = true;
                return NW_OK;
            }
            for (int f = 0; f < l->fragments; f++) {
                if (!shall_contribute(l, f, adds)) continue;
                NW_TRY(contribute(l, actions, f, adds));
                again = true;
            }
        }
        if (adds) return NW_OK;
    }
}

/* ---- inner steps ------------------------------------------------------------------------------------------------- */

static void update(local *l, nw_actions *actions, int64_t clock)
{
    l->clock = clock;
    l->stepping = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_UPDATE,
                                       .number = l->step,
                                       .clock = clock,
                                       .values = l->params->values,
                                       .gradient = l->params->gradients,
                                       .count = l->params->learned.floats,
                                       .scale = 1.0f});
}

static void count_step(local *l, nw_actions *actions)
{
    static const int first = 0;
    if (l->base.updates == l->step) return;
    l->count = (nw_count){.updates = l->base.updates = l->step,
                          .clock = l->clock,
                          .from_count = 1,
                          .from = &first,
                          .reports = &l->report};
    if (l->base.group.me == 0) nw_actions_add(actions, (nw_action){.kind = NW_ACTION_COUNT, .count = &l->count});
}

/* All inner steps of the run are made, and all outer steps that must be finished in it. Means of others that are in
 * progress are waited for. */
static nw_status reach_end(local *l, nw_actions *actions)
{
    for (int f = 0; f < l->fragments; f++)
        if (is_in(l->pending, f) && l->at[f].missing > 0) return NW_OK;
    if (l->adds) l->added += 2; /* the round that was added, and the rest of the present one */
    l->adds = false;
    if (l->reduce && !l->end.reached) nw_reduce_begin_at(l->reduce, round_behind(l, l->step + 1));
    return nw_local_reach(l, actions);
}

/* What comes next, if anything can. */
static nw_status go_on(local *l, nw_actions *actions)
{
    bool wait;
    if (l->asked || l->stepping || l->applying >= 0 || l->end.over) return NW_OK;
    NW_TRY(make_outer_steps(l, actions, &wait));
    if (wait) return NW_OK;
    count_step(l, actions);
    if (l->step >= l->go.until) return reach_end(l, actions);
    if (l->end.paused) return NW_OK;
    l->asked = true;
    nw_actions_task(actions, (nw_task){.kind = NW_TASK_GRADIENT, .number = l->step});
    return NW_OK;
}

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static void done(local *l, nw_actions *actions, const nw_task *task)
{
    if (task->kind == NW_TASK_GRADIENT) {
        l->asked = false;
        if (task->completes)
            update(l, actions, task->clock);
        else /* the batches of the run are used up */
            nw_local_spent(l);
    } else if (task->rule == NW_RULE_OUTER) {
        applied(l, actions);
    } else {
        l->stepping = false;
        l->step++;
    }
}

static nw_status take_message(local *l, nw_actions *actions, nw_message *m)
{
    int from;
    NW_TRY(nw_machine_sender(&l->base, m, &from));
    if (m->header->channel == END_CHANNEL) return nw_local_take_end(l, actions, m, from);
    if (l->pairs) return nw_local_take_values(l, actions, m, from);
    return nw_reduce_take(l->reduce, actions, m, from);
}

static nw_status handle(nw_machine *m, const nw_event *event, nw_actions *actions)
{
    local *l = (local *)m;
    switch (event->kind) {
    case NW_EVENT_GO:
        l->go = *event->go;
        nw_local_begin(l);
        break;
    case NW_EVENT_STOP:
        NW_TRY(nw_local_stop(l, actions));
        break;
    case NW_EVENT_MESSAGE:
        NW_TRY(take_message(l, actions, event->message));
        break;
    case NW_EVENT_DONE:
        done(l, actions, event->task);
        break;
    default:
        return NW_OK;
    }
    NW_TRY(go_on(l, actions));
    m->patient = nw_local_waits_for_first(l);
    return NW_OK;
}

static bool is_quiescent(const nw_machine *m)
{
    const local *l = (const local *)m;
    return l->end.over && !l->asked && !l->stepping && l->applying < 0;
}

static void waits(const nw_machine *m, nw_wait *wait)
{
    const local *l = (const local *)m;
    for (int f = 0; f < l->fragments; f++) {
        bool lacks = is_in(l->pending, f) && l->at[f].missing > 0 && (shall_apply(l, f) || l->step >= l->go.until);
        if (!lacks || l->asked || l->stepping) continue;
        if (l->pairs)
            nw_local_wait_for_pair(l, f, wait);
        else
            nw_reduce_waits(l->reduce, wait);
        return;
    }
    nw_local_wait_for_end(l, wait);
}

/* ---- state ------------------------------------------------------------------------------------------------------- */

static void list_by_fragment(const local *l, nw_state *s, const char *name, int64_t *numbers)
{
    nw_state_tensor(s, name, NW_STATE_KEPT, NW_STATE_I64, 1, &(int64_t){l->fragments}, numbers);
}

static void state(nw_machine *m, nw_state *s)
{
    local *l = (local *)m;
    size_t floats = l->params->learned.floats;
    nw_state_rule common = l->pairs ? NW_STATE_LIKE : NW_STATE_KEPT;
    l->saved = l->fragments;
    nw_state_integer(s, "updates", NW_STATE_KEPT, &m->updates);
    nw_state_integer(s, "fragments", NW_STATE_KEPT, &l->saved);
    nw_state_integer(s, "under_way", NW_STATE_KEPT, &l->pending);
    nw_state_integer(s, "added_rounds", NW_STATE_KEPT, &l->added);
    list_by_fragment(l, s, "given", l->contributed);
    list_by_fragment(l, s, "level", l->level);
    list_by_fragment(l, s, "outer_steps", l->outer_steps);
    list_by_fragment(l, s, "round", l->round);
    nw_state_vector(s, "outer", common, l->outer, 0, floats);
    if (l->pending) nw_state_vector(s, "mean", common, l->difference, 0, floats);
    if (l->pending && l->before) nw_state_vector(s, "before", NW_STATE_LIKE, l->before, 0, floats);
    if (l->reduce) nw_reduce_state(l->reduce, s);
}

static nw_status make_before(local *l)
{
    if (!l->before) NW_NEW(l->before, l->params->learned.floats + 1, "a copy of the parameters");
    return NW_OK;
}

static nw_status loaded(nw_machine *m)
{
    local *l = (local *)m;
    NW_FAIL_IF(l->saved != l->fragments, NW_E_ARGUMENT,
               "the checkpoint was written with %" PRId64 " fragments; give the same --fragments", l->saved);
    NW_FAIL_IF(m->updates < 0 || m->updates > INT64_MAX / 2 || l->added < 0 || l->added > INT64_MAX / 4 ||
                   l->pending < 0 || l->pending >> l->fragments != 0,
               NW_E_FILE,
               "the checkpoint holds outer steps after %" PRId64 " inner ones that are impossible; use an "
               "earlier checkpoint",
               m->updates);
    l->step = m->updates;
    l->carried = l->pending;
    for (int f = 0; f < l->fragments; f++) l->at[f].missing = 0;
    if (l->reduce) nw_reduce_begin_at(l->reduce, round_behind(l, l->step + 1));
    return l->pending ? make_before(l) : NW_OK;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool remembers(const nw_exchange_options *o) { return o->memory.name && strcmp(o->memory.name, "none") != 0; }

size_t nw_local_bytes(const nw_exchange_options *o, size_t floats)
{
    size_t kept = !remembers(o) ? 0 : strcmp(o->memory.name, "ef21") == 0 ? 3 : 1;
    return (2 + (size_t)(o->delay > 0) + kept) * floats * sizeof(float);
}

double nw_local_sends(const nw_exchange_options *o, int64_t steps, size_t floats)
{
    int members = o->group.count;
    double outer = (double)((steps + o->sync_every - 1) / o->sync_every), bytes = (double)floats * sizeof(float);
    return outer * bytes * (o->pairs ? members / 2 * 2 : 2 * (members - 1));
}

static void local_free(nw_machine *m)
{
    local *l = (local *)m;
    nw_local_free_pairs(l);
    nw_local_free_end(l);
    nw_reduce_free(l->reduce);
    nw_layout_free(&l->layout);
    free(l->outer);
    free(l->difference);
    free(l->before);
    free(l->at);
    free(l->contributed);
    free(l);
}

static nw_status make_fragments(local *l)
{
    size_t count = (size_t)l->fragments;
    const nw_segments *s = &l->params->learned;
    NW_NEW(l->at, count, "%zu fragments", count);
    NW_NEW(l->contributed, 4 * count, "%zu fragments", count);
    l->level = l->contributed + count;
    l->outer_steps = l->level + count;
    l->round = l->outer_steps + count;
    for (int f = 0; f < l->fragments; f++) {
        size_t first = nw_layout_fragment(s, l->fragments, f);
        l->at[f] = (fragment){.first = first, .count = nw_layout_fragment(s, l->fragments, f + 1) - first};
        l->round[f] = -1;
    }
    for (int b = 0; b < l->layout.count; b++) l->at[l->layout.at[b].fragment].buckets++;
    return NW_OK;
}

static nw_status make_reduce(local *l, const nw_exchange_options *o)
{
    NW_TRY(nw_layout_check_memory(&l->layout, &o->memory));
    NW_FAIL_IF(remembers(o) && strcmp(o->memory.name, "error") != 0 && strcmp(o->memory.name, "ef21") != 0,
               NW_E_ARGUMENT,
               "memory %s keeps momentum of gradients, and differences of parameters travel here; use "
               "--memory error",
               o->memory.name);
    NW_FAIL_IF(
        nw_warm_up_has_plain(&l->layout, o->group.count), NW_E_ARGUMENT,
        "a ratio of 1, or near it, makes messages longer than floats; choose smaller ratios, also of warm-ups, or "
        "--method none");
    l->in_place = nw_layout_is_exact(&l->layout) && l->delay == 0 && !remembers(o);
    nw_reduce_options r = {.machine = &l->base,
                           .channel = CHANNEL,
                           .layout = &l->layout,
                           .memory = o->memory,
                           .stats = o->stats,
                           .pool = o->pool,
                           .slots = SLOTS,
                           .in_place = l->in_place,
                           .targets = {l->difference, l->difference},
                           .done = bucket_done,
                           .context = l};
    return nw_reduce_create(&l->reduce, &r);
}

static nw_status make_local(local *l, const nw_exchange_options *o)
{
    size_t floats = o->params->learned.floats;
    nw_layout_options layout = o->layout;
    layout.segments = &o->params->learned;
    layout.cuts = l->pairs ? 1 : o->group.count;
    NW_TRY(nw_layout_make(&l->layout, &layout));
    NW_TRY(make_fragments(l));
    NW_NEW(l->outer, floats + 1, "outer parameters");
    NW_NEW(l->difference, floats + 1, "differences of parameters");
    if (l->delay > 0) NW_TRY(make_before(l));
    memcpy(l->outer, o->params->values, floats * sizeof *l->outer);
    l->base.outer = l->outer;
    NW_TRY(nw_local_make_end(l));
    return l->pairs ? nw_local_make_pairs(l, o) : make_reduce(l, o);
}

static nw_status check(const nw_exchange_options *o, int fragments)
{
    NW_FAIL_IF(o->sync_every < 1, NW_E_ARGUMENT, "outer steps every %d inner ones are asked for; there is at least 1",
               o->sync_every);
    NW_FAIL_IF(o->delay < 0 || o->delay > 1, NW_E_ARGUMENT, "local can delay outer steps by 0 or 1 of them, not by %d",
               o->delay);
    NW_FAIL_IF(fragments > FRAGMENTS_MOST || fragments > o->sync_every, NW_E_ARGUMENT,
               "%d fragments have an outer step each in turn, one behind an inner step at most, of which there are %d; "
               "choose at most that many --fragments, and at most %d",
               fragments, o->sync_every, FRAGMENTS_MOST);
    NW_FAIL_IF(o->pairs && remembers(o), NW_E_ARGUMENT,
               "pairs send parameters, of which memory %s keeps nothing; use --memory none, or --outer-group all",
               o->memory.name);
    return NW_OK;
}

nw_status nw_local_sgd_create(nw_machine **out, const nw_exchange_options *o)
{
    static const nw_machine_ops ops = {"local", handle, is_quiescent, waits, state, local_free, loaded};
    int fragments = o->layout.fragments > 1 ? o->layout.fragments : 1;
    NW_TRY(check(o, fragments));
    local *l = calloc(1, sizeof *l);
    NW_FAIL_IF(!l, NW_E_MEMORY, "no memory for an exchange");
    l->base = (nw_machine){.ops = &ops, .group = o->group, .lockstep = true, .outer_equal = !o->pairs};
    l->params = o->params;
    l->every = o->sync_every;
    l->delay = o->delay;
    l->pairs = o->pairs;
    l->seed = o->seed;
    l->pool = o->pool;
    l->report = o->report;
    l->fragments = fragments;
    l->applying = -1;
    NW_TRY_OR(make_local(l, o), local_free(&l->base));
    *out = &l->base;
    return NW_OK;
}
