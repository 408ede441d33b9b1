/*
 * local_end.c - the end of a run of the local exchange: all members make the same number of inner steps. See
 * local_private.h for the messages.
 *
 * Members compute many steps without receiving messages, so a member that is asked to stop does not know the progress
 * of the others. It tells member 0, which asks all: each reports how many steps it will have made with the one in
 * progress, and begins no other. The run then ends after the largest of these numbers, so no member has to go back.
 * Outer steps before that are made by all members as usual, so no member waits for one that has stopped.
 *
 * A member that has reached the original end of the run reports that number. Then the run is as long as it would have
 * been, and drains if GO said so.
 *
 * A run is over when all members have reached its end and member 0 has announced it. Until then every member answers.
 * Messages of a link arrive in order, and a member sends no STOP after its REACHED, so no message of a run arrives
 * after its OVER.
 */
#include "exchange/local_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int members(const local *l) { return l->base.group.count; }
static int me(const local *l) { return l->base.group.me; }

static nw_status tell(const local *l, nw_actions *actions, int to, int kind, int64_t step)
{
    nw_message *m;
    NW_TRY(nw_message_take(actions->pool, 0, &m));
    m->header->kind = (uint8_t)kind;
    m->header->step = (uint64_t)step;
    nw_machine_send(&l->base, actions, END_CHANNEL, to, m);
    return NW_OK;
}

static nw_status tell_all(const local *l, nw_actions *actions, int kind, int64_t step)
{
    for (int to = 1; to < members(l); to++) NW_TRY(tell(l, actions, to, kind, step));
    return NW_OK;
}

static bool all_are(const local *l, const bool *flags)
{
    bool all = true;
    for (int i = 0; i < members(l); i++) all &= flags[i];
    return all;
}

/* ---- member 0 ---------------------------------------------------------------------------------------------------- */

static nw_status end_if_all_arrived(local *l, nw_actions *actions)
{
    if (l->end.paused || !all_are(l, l->end.arrived)) return NW_OK;
    l->end.over = true;
    return tell_all(l, actions, OVER, l->step);
}

static nw_status count_arrival(local *l, nw_actions *actions, int from)
{
    l->end.arrived[from] = true;
    return end_if_all_arrived(l, actions);
}

static void end_at(local *l, int64_t until)
{
    l->end.paused = false;
    if (until >= l->go.until) return;
    l->go.until = until;
    l->go.drain = false;
}

static nw_status count_progress(local *l, nw_actions *actions, int from, int64_t step)
{
    l->end.answered[from] = true;
    if (step > l->end.most) l->end.most = step;
    if (!all_are(l, l->end.answered)) return NW_OK;
    NW_TRY(tell_all(l, actions, UNTIL, l->end.most));
    end_at(l, l->end.most);
    memset(l->end.answered, 0, (size_t)members(l) * sizeof *l->end.answered);
    return end_if_all_arrived(l, actions);
}

/* A member whose batches are used up has begun the last gradient, so the others must begin it, too. */
static int64_t progress(const local *l) { return l->end.spent ? l->end.whole : l->step + (l->asked || l->stepping); }

/* Not while a HALT is in progress, nor after the end. */
static nw_status ask_all(local *l, nw_actions *actions)
{
    if (l->end.paused || l->end.over) return NW_OK;
    l->end.paused = true;
    l->end.most = 0;
    NW_TRY(tell_all(l, actions, HALT, 0));
    return count_progress(l, actions, 0, progress(l));
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

void nw_local_begin(local *l)
{
    ending *e = &l->end;
    e->over = e->reached = e->paused = e->spent = false;
    e->whole = l->go.until;
    memset(e->arrived, 0, (size_t)members(l) * sizeof *e->arrived);
    memset(e->answered, 0, (size_t)members(l) * sizeof *e->answered);
}

void nw_local_spent(local *l)
{
    l->end.spent = true;
    l->go.until = l->step;
}

nw_status nw_local_stop(local *l, nw_actions *actions)
{
    if (l->end.reached || l->end.over) return NW_OK;
    return me(l) == 0 ? ask_all(l, actions) : tell(l, actions, 0, STOP, l->step);
}

nw_status nw_local_reach(local *l, nw_actions *actions)
{
    if (l->end.reached) return NW_OK;
    l->end.reached = true;
    return me(l) == 0 ? count_arrival(l, actions, 0) : tell(l, actions, 0, REACHED, l->step);
}

static nw_status check(const local *l, const nw_header *h, int from)
{
    bool to_first = h->kind == STOP || h->kind == AT || h->kind == REACHED;
    NW_FAIL_IF(h->kind < STOP || h->kind >= ENDINGS || h->bytes > 0 || (to_first ? me(l) : from) != 0, NW_E_MESSAGE,
               "rank %u sent a message of kind %u about the end of a run to a rank that expects none; do all ranks run "
               "the same --exchange?",
               h->from, h->kind);
    bool asked = me(l) == 0 ? l->end.paused && !l->end.answered[from] : l->end.paused;
    NW_FAIL_IF(l->end.over || h->step > INT64_MAX || ((h->kind == AT || h->kind == UNTIL) && !asked) ||
                   (h->kind == HALT && l->end.paused) || (h->kind == UNTIL && (int64_t)h->step < progress(l)) ||
                   (h->kind == OVER && !l->end.reached) || (to_first && h->kind != AT && l->end.arrived[from]),
               NW_E_MESSAGE,
               "rank %u sent kind %u about the end of a run, after %" PRIu64 " steps, while this rank, after %" PRId64
               ", does not expect it",
               h->from, h->kind, h->step, l->step);
    return NW_OK;
}

nw_status nw_local_take_end(local *l, nw_actions *actions, const nw_message *m, int from)
{
    const nw_header *h = m->header;
    NW_TRY(check(l, h, from));
    switch (h->kind) {
    case STOP:
        return ask_all(l, actions);
    case HALT:
        l->end.paused = true;
        return tell(l, actions, 0, AT, progress(l));
    case AT:
        return count_progress(l, actions, from, (int64_t)h->step);
    case UNTIL:
        end_at(l, (int64_t)h->step);
        return NW_OK;
    case REACHED:
        return count_arrival(l, actions, from);
    default:
        l->end.over = true;
        return NW_OK;
    }
}

static bool waits_for_end(const local *l) { return !l->end.over && (l->end.paused || l->end.reached); }

/* Member 0 may wait for another one, which it is to name. */
bool nw_local_waits_for_first(const local *l) { return me(l) > 0 && waits_for_end(l); }

void nw_local_wait_for_end(const local *l, nw_wait *wait)
{
    const bool *flags = l->end.paused ? l->end.answered : l->end.arrived;
    bool waits = waits_for_end(l);
    if (waits && me(l) > 0) nw_wait_add(wait, &l->base.group, 0);
    for (int i = 1; i < members(l) && waits && me(l) == 0; i++)
        if (!flags[i]) nw_wait_add(wait, &l->base.group, i);
    snprintf(wait->what, sizeof wait->what, "%s",
             !waits          ? "nothing"
             : l->end.paused ? "how far it is, since a rank was asked to stop"
                             : "the end of the run");
}

nw_status nw_local_make_end(local *l)
{
    l->end.over = true;
    NW_NEW(l->end.arrived, members(l), "%d members", members(l));
    NW_NEW(l->end.answered, members(l), "%d members", members(l));
    return NW_OK;
}

void nw_local_free_end(local *l)
{
    free(l->end.arrived);
    free(l->end.answered);
}
