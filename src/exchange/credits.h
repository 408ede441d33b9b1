/*
 * credits.h - the server's account of credits. A credit is a permit to compute one gradient; the account knows which
 * worker (holder) has how many, and in which order they were given.
 *
 * A holder has at most `most` credits, uses them in the order in which it got them, and may get more while it is open.
 * Each operation costs a search in a sorted list, moving its end, or a scan over one word of bits for each 64 holders;
 * only nw_credits_usable scans the credits one by one.
 *
 * Staleness. Sort the outstanding credits by the version v_0 <= v_1 <= ... at which they were given (ties by holder),
 * and let V be the present version. If they are used in this order, gradient i misses V + i - v_i updates; its slack is
 * the bound N minus that. A credit that is given while at most N are outstanding has slack >= 0. Using a credit before
 * its turn reduces the slack of those before it by 1, and does not change that of those after it. So a credit may be
 * used if all before it have slack >= 1. The oldest may always be used. Therefore no worker waits for ever, and no
 * gradient misses more than N updates.
 */
#ifndef NW_EXCHANGE_CREDITS_H
#define NW_EXCHANGE_CREDITS_H

#include "base/status.h"

typedef struct nw_credit {
    int64_t version;
    int holder;
} nw_credit;

typedef struct nw_credits {
    int holders, most;
    int out;           /* outstanding credits of all holders */
    int *count;        /* outstanding credits of each holder */
    int64_t *given;    /* [holder][most]: the versions at which its credits were given, the oldest first */
    bool *open;        /* for each holder: whether it may get credits */
    uint64_t *ready;   /* [count][word]: a bit for each open holder that has `count` credits; count < most */
    nw_credit *sorted; /* credits of open holders, by version */
    int sorted_count;
} nw_credits;

nw_status nw_credits_make(nw_credits *credits, int holders, int most); /* all holders are open and have no credits */
void nw_credits_free(nw_credits *credits);

void nw_credits_give(nw_credits *credits, int holder, int64_t version);
void nw_credits_use(nw_credits *credits, int holder);
/* The holder keeps `keeps` credits and gets no more; its credits no longer count in the order. */
void nw_credits_close(nw_credits *credits, int holder, int keeps);
/* The holder loses its credits and may get new ones. */
void nw_credits_open(nw_credits *credits, int holder);
/* The first open holder that has `count` credits, searching from `first` on and then from 0; -1: there is none. */
int nw_credits_next(const nw_credits *credits, int first, int count);
/* The version at which the holder's last credit was given; it must have one. */
static inline int64_t nw_credits_last(const nw_credits *c, int holder)
{
    return c->given[holder * c->most + c->count[holder] - 1];
}
/* The number of credits, from the oldest on, each of which may be used now without making another miss more than
 * `bound` updates; and the number of credits before the holder's oldest one. */
int nw_credits_usable(const nw_credits *credits, int64_t version, int64_t bound);
int nw_credits_place(const nw_credits *credits, int holder);
/* The index in `sorted` of the first credit that was given after that version. */
int nw_credits_since(const nw_credits *credits, int64_t version);

#endif
