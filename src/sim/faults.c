/* faults.c - the script of faults, asked from many sides; see faults.h. */
#include "sim/faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_names[] = {"slow", "pause", "stop", "die", "link_down", "link_slow", "join"};

const char *nw_fault_name(nw_fault_kind kind) { return kind_names[kind]; }

static bool is_link(const nw_fault *f) { return f->kind == NW_FAULT_LINK_DOWN || f->kind == NW_FAULT_LINK_SLOW; }
static bool has_factor(const nw_fault *f) { return f->kind == NW_FAULT_SLOW || f->kind == NW_FAULT_LINK_SLOW; }
/* It is known before when the rank does no work. */
static bool is_absence(const nw_fault *f)
{
    return f->kind == NW_FAULT_JOIN || (f->kind == NW_FAULT_PAUSE && !f->by_step);
}
static bool is_end(const nw_fault *f) { return f->kind == NW_FAULT_STOP || f->kind == NW_FAULT_DIE; }

/* ---- making ---- */

nw_status nw_fault_check(const nw_fault *f, int world, nw_status status, const char *where)
{
    const char *name = nw_fault_name(f->kind);
    NW_FAIL_IF(f->rank != NW_FAULT_ANY && (f->rank < 0 || f->rank >= world), status,
               "%s: rank %d is not in the world: its %d ranks count from 0 to %d", where, f->rank, world, world - 1);
    NW_FAIL_IF(f->at < 0, status, "%s: '%s' happens before the start of the run; times and steps count from 0", where,
               name);
    if (is_link(f)) {
        NW_FAIL_IF(f->peer != NW_FAULT_ANY && (f->peer < 0 || f->peer >= world), status,
                   "%s: rank %d is not in the world: its %d ranks count from 0 to %d", where, f->peer, world,
                   world - 1);
        NW_FAIL_IF(f->rank == f->peer && f->rank != NW_FAULT_ANY, status,
                   "%s: the link from rank %d to itself does not exist; name two ranks", where, f->rank);
        NW_FAIL_IF(f->by_step, status, "%s: a link has no steps; give the times at which '%s' begins and ends", where,
                   name);
    }
    NW_FAIL_IF(has_factor(f) && !(f->factor > 0 && f->factor <= 1e6), status,
               "%s: the factor of '%s' is %g; expected more than 0x, at most 1000000x", where, name, f->factor);
    if (f->kind == NW_FAULT_JOIN) {
        NW_FAIL_IF(f->rank == NW_FAULT_ANY, status, "%s: not every rank can be late; say which one joins", where);
        NW_FAIL_IF(f->by_step || f->at == 0, status,
                   "%s: a rank that is not there has no steps; give the time at which it joins, as in 'at: 10 s'",
                   where);
        NW_FAIL_IF(f->until != NW_NEVER, status, "%s: 'join' never ends; it may 'pause' or 'stop' later", where);
    } else if (f->kind == NW_FAULT_PAUSE) {
        NW_FAIL_IF(f->duration_ns <= 0, status, "%s: 'pause' must last longer than 0; say 'for: 2 s'", where);
    } else {
        NW_FAIL_IF(f->until <= f->at, status, "%s: '%s' ends before it begins; put 'until' after 'at'", where, name);
        NW_FAIL_IF(is_end(f) && f->until != NW_NEVER, status, "%s: '%s' never ends; for a limited time use 'pause'",
                   where, name);
    }
    return NW_OK;
}

static int by_begin(const void *a, const void *b)
{
    const nw_fault *x = *(const nw_fault *const *)a, *y = *(const nw_fault *const *)b;
    if (x->by_step != y->by_step) return x->by_step ? 1 : -1;
    int64_t from = x->kind == NW_FAULT_JOIN ? 0 : x->at, other = y->kind == NW_FAULT_JOIN ? 0 : y->at;
    if (from != other) return from < other ? -1 : 1;
    return x < y ? -1 : x > y; /* as given */
}

nw_status nw_faults_create(nw_faults **faults, const nw_fault *list, int count, int world)
{
    *faults = NULL;
    NW_FAIL_IF(count < 0 || count > NW_FAULTS_MOST, NW_E_ARGUMENT, "a script has at most %d faults, not %d",
               NW_FAULTS_MOST, count);
    for (int i = 0; i < count; i++) NW_TRY(nw_fault_check(&list[i], world, NW_E_ARGUMENT, "script of faults"));
    NW_AUTOFREE nw_fault *at = calloc((size_t)count + 1, sizeof *at);
    NW_AUTOFREE const nw_fault **order = calloc((size_t)count + 1, sizeof(const nw_fault *));
    nw_faults *f = at && order ? calloc(1, sizeof *f) : NULL;
    NW_FAIL_IF(!f, NW_E_MEMORY, "no memory left for a script of %d faults", count);
    for (int i = 0; i < count; i++) order[i] = &list[i];
    if (count) qsort(order, (size_t)count, sizeof *order, by_begin);
    for (int i = 0; i < count; i++) {
        at[i] = *order[i];
        if (at[i].kind == NW_FAULT_JOIN) {
            at[i].until = at[i].duration_ns = at[i].at;
            at[i].at = 0;
        }
        if (at[i].kind == NW_FAULT_PAUSE) /* by step it has no end that could be known before */
            at[i].until = at[i].by_step ? NW_NEVER : nw_time_add(at[i].at, at[i].duration_ns);
    }
    *f = (nw_faults){at, count};
    *faults = f;
    at = NULL;
    return NW_OK;
}

void nw_faults_free(nw_faults *faults)
{
    if (faults) free(faults->at);
    free(faults);
}

/* ---- windows ----
 * Whom a question is about: a rank's local work, or a link. */

typedef struct subject {
    bool link;
    int rank, peer;
    int64_t step; /* of a rank's work */
} subject;

static bool meets(int who, int rank) { return who == NW_FAULT_ANY || who == rank; }

static bool concerns(const nw_fault *f, const subject *s)
{
    if (is_link(f) != s->link) return false;
    if (!s->link) return meets(f->rank, s->rank);
    return (meets(f->rank, s->rank) && meets(f->peer, s->peer)) ||
           (f->both_ways && meets(f->rank, s->peer) && meets(f->peer, s->rank));
}

static bool holds(const nw_fault *f, int64_t at) { return f->at <= at && at < f->until; }
static bool blocks(const nw_fault *f) { return f->kind == NW_FAULT_LINK_DOWN || is_absence(f); }

static double slowdown(const nw_faults *faults, const subject *s, int64_t t)
{
    double factor = 1;
    for (int i = 0; faults && i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (has_factor(f) && concerns(f, s) && holds(f, f->by_step ? s->step : t)) factor *= f->factor;
    }
    return factor;
}

/* The first time >= t outside all windows that block. */
static int64_t free_from(const nw_faults *faults, const subject *s, int64_t t)
{
    bool moved = true;
    while (moved && t != NW_NEVER) {
        moved = false;
        for (int i = 0; faults && i < faults->count; i++) {
            const nw_fault *f = &faults->at[i];
            if (blocks(f) && concerns(f, s) && holds(f, t)) {
                t = f->until;
                moved = true;
            }
        }
    }
    return t;
}

/* The next time after t at which a window by time begins or ends. */
static int64_t next_change(const nw_faults *faults, const subject *s, int64_t t)
{
    int64_t next = NW_NEVER;
    for (int i = 0; i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (f->by_step || is_end(f) || !concerns(f, s)) continue;
        if (f->at > t && f->at < next) next = f->at;
        if (f->until > t && f->until < next) next = f->until;
    }
    return next;
}

/* Work goes on at 1 / slowdown, and stands still in windows that block. What is left of it is kept as a double: exact
 * up to 2^53 ns, a hundred days. */
static int64_t finish(const nw_faults *faults, const subject *s, int64_t start, int64_t work)
{
    if (!faults || faults->count == 0 || work == NW_NEVER) return nw_time_add(start, work);
    double left = (double)work;
    int64_t t = free_from(faults, s, start);
    while (t != NW_NEVER) {
        double factor = slowdown(faults, s, t);
        int64_t change = next_change(faults, s, t);
        if (change == NW_NEVER || left * factor <= (double)(change - t))
            return nw_time_add(t, nw_time_scale(1, left * factor));
        left -= (double)(change - t) / factor;
        t = free_from(faults, s, change);
    }
    return NW_NEVER;
}

/* ---- questions ---- */

int64_t nw_faults_finish(const nw_faults *faults, int rank, int64_t step, int64_t start_ns, int64_t work_ns)
{
    return finish(faults, &(subject){.rank = rank, .step = step}, start_ns, work_ns);
}

int64_t nw_faults_step_pause(const nw_faults *faults, int rank, int64_t step)
{
    int64_t sum = 0;
    for (int i = 0; faults && i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (f->kind == NW_FAULT_PAUSE && f->by_step && f->at == step && meets(f->rank, rank))
            sum = nw_time_add(sum, f->duration_ns);
    }
    return sum;
}

int64_t nw_faults_paused(const nw_faults *faults, int rank, int64_t now_ns)
{
    int64_t sum = 0;
    for (int i = 0; faults && i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (!is_absence(f) || !meets(f->rank, rank) || f->at >= now_ns) continue;
        int64_t past = now_ns - f->at;
        sum = nw_time_add(sum, past < f->duration_ns ? past : f->duration_ns);
    }
    return sum;
}

int64_t nw_faults_awake(const nw_faults *faults, int rank, int64_t now_ns)
{
    return free_from(faults, &(subject){.rank = rank}, now_ns);
}

bool nw_faults_is_late(const nw_faults *faults, int rank)
{
    for (int i = 0; faults && i < faults->count; i++)
        if (faults->at[i].kind == NW_FAULT_JOIN && faults->at[i].rank == rank) return true;
    return false;
}

nw_rank_health nw_faults_health(const nw_faults *faults, int rank, int64_t step, int64_t now_ns)
{
    nw_rank_health health = NW_RANK_LIVES;
    for (int i = 0; faults && i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (!is_end(f) || !meets(f->rank, rank) || f->at > (f->by_step ? step : now_ns)) continue;
        if (f->kind == NW_FAULT_DIE) return NW_RANK_DEAD;
        health = NW_RANK_STOPPED;
    }
    return health;
}

int64_t nw_faults_link_up(const nw_faults *faults, int from, int to, int64_t t)
{
    return free_from(faults, &(subject){.link = true, .rank = from, .peer = to}, t);
}

int64_t nw_faults_link_finish(const nw_faults *faults, int from, int to, int64_t start_ns, int64_t work_ns)
{
    return finish(faults, &(subject){.link = true, .rank = from, .peer = to}, start_ns, work_ns);
}

/* ---- real ranks ---- */

nw_faults_action nw_faults_due(const nw_faults *faults, int rank, int64_t step, int64_t now_ns, nw_faults_state *state)
{
    nw_faults_action action = {0};
    int64_t step_before = state->started ? state->step : step - 1, now_before = state->started ? state->now_ns : -1;
    const subject done = {.rank = rank, .step = step_before};
    for (int i = 0; faults && i < faults->count; i++) {
        const nw_fault *f = &faults->at[i];
        if (!concerns(f, &done) || f->kind == NW_FAULT_JOIN) continue;
        if (f->kind == NW_FAULT_SLOW) {
            if (state->started && !action.cause && holds(f, f->by_step ? step_before : now_ns)) action.cause = f;
            continue;
        }
        if (f->at > (f->by_step ? step : now_ns) || f->at <= (f->by_step ? step_before : now_before)) continue;
        if (f->kind == NW_FAULT_PAUSE) {
            action.sleep_ns = nw_time_add(action.sleep_ns, f->duration_ns);
            if (action.end == NW_RANK_LIVES) action.cause = f;
        } else if (action.end != NW_RANK_DEAD) {
            action.end = f->kind == NW_FAULT_DIE ? NW_RANK_DEAD : NW_RANK_STOPPED;
            action.cause = f;
        }
    }
    if (state->started) {
        double longer = slowdown(faults, &done, now_ns) - 1;
        action.sleep_ns = nw_time_add(action.sleep_ns, nw_time_scale(now_ns - state->resumed_ns, longer));
    }
    *state = (nw_faults_state){true, step, now_ns, nw_time_add(now_ns, action.sleep_ns)};
    return action;
}

const nw_fault *nw_faults_virtual_only(const nw_faults *faults)
{
    for (int i = 0; faults && i < faults->count; i++)
        if (is_link(&faults->at[i]) || faults->at[i].kind == NW_FAULT_JOIN) return &faults->at[i];
    return NULL;
}
