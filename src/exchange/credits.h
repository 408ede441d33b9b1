/*
 * credits.h - credits, each a permission to compute one gradient, as their giver sees them: who has how
 * many, and in which order they were given.
 *
 * A holder has at most `most` credits, uses them in the order in which it got them, and may get more while it is open.
 * Nothing here takes longer with more holders than a search in a sorted list, a move of its end, or a walk over a word
 * of bits for each 64 of them; but nw_credits_usable looks at the credits one by one.
 *
 * Staleness. Let the credits that are out be sorted by the version v_0 <= v_1 <= ... at which they were given (ties by
 * holder), and V the present version. If they are used in this order, the i-th misses V + i - v_i updates; its slack is
 * N minus that. Giving a credit when at most N are out gives it slack >= 0. Using one out of turn takes one from the
 * slack of those before it and nothing from those behind. So a credit may be used if all before it have slack >= 1, and
 * the oldest always may: nobody waits for ever, and no gradient misses more than N updates.
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
    int out;           /* of all holders */
    int *count;        /* by holder */
    int64_t *given;    /* [holder][most]: the versions at which its credits were given, the oldest first */
    bool *open;        /* by holder */
    uint64_t *ready;   /* [count][word]: bits of open holders that have so many, below `most` */
    nw_credit *sorted; /* of open holders */
    int sorted_count;
} nw_credits;

nw_status nw_credits_make(nw_credits *credits, int holders, int most); /* all holders are open, and have none */
void nw_credits_free(nw_credits *credits);

void nw_credits_give(nw_credits *credits, int holder, int64_t version);
void nw_credits_use(nw_credits *credits, int holder);
/* The holder keeps so many and gets no more; none of its own counts in the order of the others. */
void nw_credits_close(nw_credits *credits, int holder, int keeps);
/* It has none, and may get some. */
void nw_credits_open(nw_credits *credits, int holder);
/* The first open holder that has `count` credits, from `first` on and around; -1: there is none. */
int nw_credits_next(const nw_credits *credits, int first, int count);
/* The version at which the last of a holder's credits was given; it has one. */
static inline int64_t nw_credits_last(const nw_credits *c, int holder)
{
    return c->given[holder * c->most + c->count[holder] - 1];
}
/* How many of the credits, in their order, may be used now without letting another miss more than `bound` updates; and
 * how many come before a holder's oldest. */
int nw_credits_usable(const nw_credits *credits, int64_t version, int64_t bound);
int nw_credits_place(const nw_credits *credits, int holder);
/* The first in `sorted` that was given after that version. */
int nw_credits_since(const nw_credits *credits, int64_t version);

#endif
