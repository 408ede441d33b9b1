/*
 * gossip_private.h - the inside of gossip, shared by the files that make it: gossip.c (events, tasks, state),
 * gossip_pace.c (leases, counting, the end of a run), gossip_pairs.c (times, who with whom), gossip_values.c (what a pair
 * sends, and moves by) and gossip_copies.c (the mean of all members, while all go on).
 *
 *   kind       from -> to             says
 *   PROPOSE    member -> neighbour    let us average; step: the round of a matching. One that crosses with the other's accepts
 *   VALUES     member -> partner      the sender's parameters, a bucket: accepts a proposal, or answers those that did;
 *                                     encoded (channel/agreed.h), or a bucket that goes once more, exactly
 *   BUSY       member -> neighbour    not now
 *   READY      member -> 0            I want to average; part: only with that member (NOBODY: with any neighbour)
 *   PAIR       0 -> member            average with member `part`
 *   LEASE      0 -> member            make `until` more updates, perhaps none; step: what the world has made, version: how
 *                                     many leases you hold with these, as far as I know
 *   ASK        member -> 0            one is made, with the rate of update number step of the world; version: how many pairs
 *                                     were completed since its gradient began, until: how many leases I should like to hold;
 *                                     the gradient's report
 *   STOP       member -> 0            the sender was asked to stop
 *   RECALL     0 -> member            give back the leases that you have not begun
 *   RETURNED   member -> 0            so many were not (until)
 *   CLOSE      0 -> member            all updates are made: begin no more pairs
 *   QUIET      member -> 0            ... and have none under way
 *   OVER       0 -> member            nobody has; step: the number of updates
 *   COPY       0 -> member            add your parameters to a mean
 *   MEAN       member -> its parent   the mean of `version` members, a bucket, and their spread behind it
 *
 * A member is at most in one pair at a time. What reads or writes parameters waits for the end of an update (held), in
 * the order of its coming.
 */
#ifndef NW_EXCHANGE_GOSSIP_PRIVATE_H
#define NW_EXCHANGE_GOSSIP_PRIVATE_H

#include "exchange/exchange.h"
#include "exchange/gossip_mix.h"

enum {
    PROPOSE = 1,
    VALUES,
    BUSY,
    READY,
    PAIR,
    LEASE,
    ASK,
    STOP,
    RECALL,
    RETURNED,
    CLOSE,
    QUIET,
    OVER,
    COPY,
    MEAN,
    KINDS
};
enum { CHANNEL = NW_CHANNEL_EXCHANGE, NOBODY = 0xffff };

/* Messages in the order in which they came. */
typedef struct mail {
    nw_message *first, **last;
} mail;

/* ---- the pace ---- */

/* Member 0's view of all. */
typedef struct counter {
    int64_t until; /* of this run */
    int64_t out;   /* leases that are held, of all members */
    int64_t *held; /* ... by member */
    int quiet;     /* members that have said so */
    int from;
    const void *report;
    nw_count count;
} counter;

/* ---- pairs ---- */

typedef struct meeting {
    int partner;       /* -1: there is none */
    bool own;          /* it was this member that asked */
    bool given;        /* own values are sent, in `sent` */
    nw_message **sent; /* by bucket, as they went */
    int taken;         /* buckets of the partner's */
} meeting;

/* First come: who waits, at member 0. */
typedef struct coordinator {
    bool *ready;
    int *wanted; /* whom alone; -1: any neighbour */
    int waiting; /* complete graphs: the one that is ready; -1: nobody */
    int *list;   /* room for neighbours */
    int64_t choices;
} coordinator;

/* ---- copies ---- */

typedef struct copies {
    const int64_t *due; /* of this run, that have not begun; member 0 */
    int due_count;
    bool under_way;
    bool wanted; /* own parameters are not in it yet */
    int64_t updates;
    bool unasked;
    nw_message **part; /* by bucket: the mean so far */
    int *joined;       /* by bucket: children whose part is in it */
    int passed;        /* buckets that are complete */
    double spread;
    mail early;    /* of children, that have to wait */
    float *values; /* member 0: of the last one */
} copies;

typedef struct gossip {
    nw_machine base;
    nw_exchange_options o;
    nw_gossip_options how;
    const nw_params *params;
    nw_layout layout;
    nw_agreed *agreed; /* what pairs know of each other; NULL: parameters travel as they are */
    float *other;   /* x~; NULL: no momentum */
    int64_t *mixed; /* by bucket: when */
    int64_t now;    /* of the event that is being handled */

    bool active, closed, stopped, quiet;
    bool drains; /* this run */
    int64_t mixes; /* x~ is there; 0: at the next GO it begins as x, since there is none, or x was set from outside */

    int64_t held;            /* leases; one of them is being used while `computing` */
    int64_t world, believed; /* as member 0 said last: updates of the world, leases that this member held */
    int64_t number;          /* updates of the world when the one under way began, as far as was known */
    bool computing, updating;
    int64_t begun, idle_since; /* idle_since -1: it is not */
    int64_t completed;         /* pairs, when the gradient under way began */
    int64_t made;              /* updates of this member */
    int64_t unit;              /* mean time of a gradient with its update; 0: not known yet */
    counter counter;

    int64_t drawn, timer, left; /* timers so far; the one that is set; what is left of it when quiescent, or -1 */
    double rate;                /* averagings that this member pays for, per gradient */
    double owed;                /* averagings that are due, to be asked for */
    int64_t choices, asked_for; /* neighbours drawn; own averagings completed */
    int64_t round;              /* of matchings */
    bool put_off;               /* what is owed: the neighbour was busy, and nothing has happened since */
    bool announced;             /* READY was said */
    int assigned;               /* PAIR was heard and has to wait; -1: no */
    meeting meeting;
    coordinator coordinator;
    mail waiting; /* for the end of an update, or for their turn */
    nw_gossip_counts *counts, own_counts;
    copies copies;
} gossip;

static inline bool alone(const gossip *g) { return g->base.group.count == 1; }
static inline bool counts_world(const gossip *g) { return g->base.group.me == 0; }

/* ---- gossip.c ---- */

nw_status nw_gossip_tell(gossip *g, nw_actions *actions, int to, int kind, int64_t step, int64_t until);
nw_status nw_gossip_tell_all(gossip *g, nw_actions *actions, int kind);
void nw_gossip_keep(mail *m, nw_message *message); /* at the end, with a reference of its own */
nw_message *nw_gossip_take_first(mail *m);         /* NULL: it is empty */
void nw_gossip_forget(mail *m);
/* Time since the last mixing of a bucket, in gradients; 0 before the first gradient. */
double nw_gossip_time(const gossip *g, int bucket);
/* The weight of that mixing. Whoever listens is told of it, and of what and with whom the note says. */
float nw_gossip_weigh(const gossip *g, const nw_gossip_note *note, int bucket);
/* Eta for a bucket (gossip_values.c). */
static inline double nw_gossip_eta(const gossip *g, int bucket)
{
    return g->how.eta * (g->agreed ? g->agreed->share[bucket] : 1);
}
static inline size_t nw_gossip_floats(const gossip *g, int bucket) { return g->layout.at[bucket].block.floats; }

/* ---- gossip_pace.c ---- */

nw_status nw_gossip_pace_go(gossip *g, nw_actions *actions, const nw_go *go);
nw_status nw_gossip_pace_stop(gossip *g, nw_actions *actions);
nw_status nw_gossip_pace_take(gossip *g, nw_actions *actions, const nw_message *m, int from); /* LEASE to OVER */
/* Updates of the world, as far as is known here. */
int64_t nw_gossip_pace_world(const gossip *g);
nw_status nw_gossip_pace_made(gossip *g, nw_actions *actions); /* an update, here */
/* Whatever else has happened: begins a gradient; closes the run, and says that it is quiet. */
nw_status nw_gossip_pace_settle(gossip *g, nw_actions *actions);

/* ---- gossip_pairs.c ---- */

nw_status nw_gossip_pairs_make(gossip *g);
void nw_gossip_pairs_free(gossip *g);
void nw_gossip_pairs_go(gossip *g, nw_actions *actions);
void nw_gossip_pairs_close(gossip *g, nw_actions *actions);
void nw_gossip_pairs_set_timer(gossip *g, nw_actions *actions);
void nw_gossip_pairs_rang(gossip *g, nw_actions *actions);
void nw_gossip_pairs_made(gossip *g); /* an update, here */
nw_status nw_gossip_pairs_take(gossip *g, nw_actions *actions, nw_message *m, int from); /* PROPOSE to PAIR */
/* Does what waits and is possible now, and asks for averagings that are due. */
nw_status nw_gossip_pairs_settle(gossip *g, nw_actions *actions);
static inline bool nw_gossip_pairs_rest(const gossip *g)
{
    return g->meeting.partner < 0 && g->assigned < 0 && !g->waiting.first;
}

/* ---- gossip_values.c ---- */

nw_status nw_gossip_values_make(gossip *g);
void nw_gossip_values_free(gossip *g);
/* A bucket, as this member has it now, to `meeting.sent`. */
nw_status nw_gossip_values_send(gossip *g, nw_actions *actions, int bucket, int to);
nw_status nw_gossip_values_check(const gossip *g, const nw_header *h, int from);
/* Moves by a bucket of the partner's, and counts it in `meeting.taken`; or does neither, and waits for another. */
nw_status nw_gossip_values_take(gossip *g, nw_actions *actions, const nw_message *m);
void nw_gossip_values_end(gossip *g); /* all buckets of the meeting were taken */
/* What this member and that one knew of each other is void: their next averaging begins anew. */
void nw_gossip_values_forget(gossip *g, int member);

/* ---- gossip_copies.c ---- */

nw_status nw_gossip_copies_make(gossip *g);
void nw_gossip_copies_free(gossip *g);
void nw_gossip_copies_go(gossip *g, const nw_go *go);
/* Member 0 has counted an update. */
nw_status nw_gossip_copies_counted(gossip *g, nw_actions *actions);
nw_status nw_gossip_copies_take(gossip *g, nw_actions *actions, nw_message *m, int from); /* COPY, MEAN */
nw_status nw_gossip_copies_settle(gossip *g, nw_actions *actions);
bool nw_gossip_copies_rest(const gossip *g);

#endif
