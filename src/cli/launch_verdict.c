/*
 * launch_verdict.c - how an attempt of a job ended, and who is to blame. Pure functions over what was seen; see launch.h.
 *
 * An exit code alone says little: it is that of the first rank to end badly, and the launcher then ends all others. So
 * the code, the launcher's own words and the last heartbeats are looked at together.
 */
#define _GNU_SOURCE 1
#include "cli/launch.h"

#include <stdio.h>
#include <string.h>

static bool is_open(const nw_beat *b) { return b->rank >= 0 && !nw_rank_state_is_end(b->state); }

nw_launch_counts nw_launch_count(const nw_launch_plan *plan, const nw_launch_outcome *o)
{
    nw_launch_counts c = {0};
    for (int r = 0; r < plan->ranks; r++) {
        if (o->beats[r].rank < 0) continue;
        c.seen++;
        c.open += is_open(&o->beats[r]);
        c.failed += o->beats[r].state == NW_RANK_FAILED;
        c.interrupted += o->beats[r].state == NW_RANK_INTERRUPTED;
    }
    return c;
}

nw_verdict nw_launch_judge(const nw_launch_plan *plan, const nw_launch_outcome *o, int attempt)
{
    nw_launch_counts c = nw_launch_count(plan, o);
    int code = o->exit_code, peer = nw_status_exit_code(NW_E_PEER);
    if (o->asked) /* MPICH's launcher at times says 0 when it was signalled, whatever its ranks say */
        return code == 0 && !o->killed && c.interrupted == 0 ? NW_VERDICT_FINISHED : NW_VERDICT_INTERRUPTED;
    if (o->stalled) return NW_VERDICT_LOST;
    if (code == 0) return NW_VERDICT_FINISHED;
    if (code == 2 || code == 3) return NW_VERDICT_REFUSED;
    bool started = c.seen > 0 || attempt > 1 || plan->launcher == NW_LAUNCHER_DIRECT || o->word.signal > 0;
    if (!started && code != peer) return NW_VERDICT_REFUSED; /* the launcher itself failed, and would again */
    if (code == peer || code >= 128 || o->word.signal > 0) return NW_VERDICT_LOST;
    if (code == nw_status_exit_code(NW_E_INTERRUPTED) && c.open == 0) return NW_VERDICT_INTERRUPTED;
    if (c.failed > 0 || o->word.exit_code == 1) return NW_VERDICT_REFUSED; /* a rank said why */
    return c.open > 0 || (c.seen == 0 && plan->launcher != NW_LAUNCHER_DIRECT) ? NW_VERDICT_LOST : NW_VERDICT_REFUSED;
}

/* A rank that came to no end, did not only wait, and was not still busy when another had been quiet for long: the first
 * to notice a loss ends the job, which takes ranks that were well. */
static bool looks_guilty(const nw_launch_plan *plan, const nw_launch_outcome *o, int rank)
{
    int64_t longest = 0, second = 1000000000;
    if (!is_open(&o->beats[rank]) || o->beats[rank].state == NW_RANK_WAITING) return false;
    for (int r = 0; r < plan->ranks; r++)
        if (is_open(&o->beats[r]) && o->beats[r].state != NW_RANK_WAITING && o->quiet_ns[r] > longest)
            longest = o->quiet_ns[r];
    return longest < second || 2 * o->quiet_ns[rank] >= longest;
}

/* Where the ranks themselves found that one was lost, what counts is what they saw: a pause that came to its end only
 * with the job. */
static void go_back(const nw_launch_plan *plan, nw_launch_outcome *o)
{
    for (int r = 0; r < plan->ranks; r++) {
        if (o->held[r].rank < 0 || (is_open(&o->beats[r]) && o->quiet_ns[r] > o->held_ns[r])) continue;
        o->beats[r] = o->held[r];
        o->quiet_ns[r] = o->held_ns[r];
    }
}

/* Marks the ranks that are to blame: those that stood still, the one that the launcher names, those that look guilty, or
 * else all that came to no end. */
int nw_launch_blame(const nw_launch_plan *plan, nw_launch_outcome *o, bool *blamed)
{
    if (o->exit_code == nw_status_exit_code(NW_E_PEER) && !o->stalled) go_back(plan, o);
    int ranks = plan->ranks, count = 0, code = o->word.exit_code;
    bool says_why = o->word.signal > 0 || (code >= 0 && code != nw_status_exit_code(NW_E_PEER));
    bool named = says_why && o->word.rank >= 0 && o->word.rank < ranks;
    for (int pass = 0; pass < 2 && count == 0; pass++)
        for (int r = 0; r < ranks; r++) {
            blamed[r] = o->stalled  ? o->stuck[r]
                        : named     ? r == o->word.rank
                        : pass == 0 ? looks_guilty(plan, o, r)
                                    : is_open(&o->beats[r]);
            count += blamed[r];
        }
    return count;
}

void nw_launch_fate(const nw_launch_plan *plan, const nw_launch_outcome *o, int rank, char *text, size_t size)
{
    int number = o->word.rank == rank ? o->word.signal : -1;
    if (number < 0 && plan->launcher == NW_LAUNCHER_DIRECT && o->exit_code > 128) number = o->exit_code - 128;
    const char *name = number > 0 ? sigdescr_np(number) : NULL;
    double still = (double)o->still_ns * 1e-9, quiet = (double)o->quiet_ns[rank] * 1e-9;
    if (o->stalled)
        snprintf(text, size, "%s for %.1f s while others waited",
                 o->stopped ? "was stopped by a signal" : "stood still", still);
    else if (number > 0)
        snprintf(text, size, "died of signal %d (%s)", number, name ? name : "unknown");
    else if (o->exit_code == nw_status_exit_code(NW_E_PEER) && quiet >= 1)
        snprintf(text, size, "stood still for %.1f s until the others gave up", quiet);
    else if (o->word.rank == rank && o->word.exit_code >= 0)
        snprintf(text, size, "ended with exit code %d", o->word.exit_code);
    else
        snprintf(text, size, "was lost");
}
