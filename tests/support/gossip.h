/*
 * gossip.h - an exchange that only tests have, for what the frame promises to exchanges to come: members that update
 * their own parameters at their own pace, and average them with a neighbour's on a ring whenever a timer of their own
 * rings, while they compute.
 *
 *   kind      from -> to              says
 *   PROPOSE   member -> neighbour     let us average; one that crosses with the other's accepts it
 *   VALUES    member -> neighbour     the sender's parameters, which accept a proposal, or answer those that did
 *   BUSY      member -> neighbour     not now
 *   LEASE     0 -> member             make one more update; step: its number in the world, from 0
 *   ASK       member -> 0             one is made, and there is room for a lease; the payload is its gradient's report
 *   STOP      member -> 0             the sender was asked to stop
 *   CLOSE     0 -> member             all updates are made: propose no more
 *   QUIET     member -> 0             ... and have nothing under way
 *   OVER      0 -> member             nobody has; step: the number of updates
 *
 * Of a pair i, j that have sent s_i and s_j each does x -= (s_own - s_other) / 2 when the other's comes. What one adds
 * the other takes away, so that the sum over members stays, whatever came between. That happens in the middle of a pass
 * (which reads a copy) or between tasks; what comes during an update waits for its end.
 *
 * Member 0 counts. Everybody has two leases, one to compute with and one ahead; with the last of them used the run
 * closes. Timers ring after exponential times whose unit is the member's own mean time for a gradient, drawn from
 * (seed, member, count); before its first gradient a member proposes nothing.
 */
#ifndef NW_TESTS_GOSSIP_H
#define NW_TESTS_GOSSIP_H

#include "exchange/exchange.h"

typedef enum gossip_step { GOSSIP_SENT, GOSSIP_AVERAGED } gossip_step;

/* Of all that are created from now on. */
typedef struct gossip_settings {
    uint64_t seed;
    double rate;                                          /* proposals a gradient; 0: none */
    void (*told)(int member, gossip_step step, int with); /* what it does with its parameters; NULL: nobody hears */
} gossip_settings;
extern gossip_settings gossip_use;

/* What all of them have done so far. */
typedef struct gossip_counts {
    int64_t averaged, amid; /* halves of pairs; of these, in the middle of a pass */
    int64_t busy, crossed;  /* proposals that were refused, or met the other's */
    int64_t held;           /* messages that waited for the end of an update */
} gossip_counts;
extern gossip_counts gossip_done;

/* For nw_exchange_options' group, params, accumulation and report. */
nw_status gossip_create(nw_machine **exchange, const nw_exchange_options *options);

#endif
