/*
 * Folder src/gossip: members that update their own parameters and average them in pairs (the exchange gossip, made by
 * nw_gossip_create of exchange/exchange.h, with the options of exchange/gossip.h). May include: base, param, codec, net,
 * channel, topology, exchange.
 *
 * gossip_private.h - the inside of gossip, shared by the files that make it: gossip.c (events, tasks, state),
 * gossip_pace.c (leases, counting, the end of a run), gossip_pairs.c (times, who with whom), gossip_values.c (what a pair
 * sends, and moves by), gossip_copies.c (the mean of all members, while all go on), gossip_members.c (who is there) and
 * gossip_return.c (a member that was dropped, or comes late, takes over a neighbour's parameters).
 *
 *   kind       from -> to             says
 *   PROPOSE    member -> neighbour    let us average; step: the round of a matching. One that crosses with the other's accepts
 *   VALUES     member -> partner      the sender's parameters, a bucket: accepts a proposal, or answers those that did;
 *                                     encoded (channel/agreed.h), or a bucket that goes once more, exactly
 *   BUSY       member -> neighbour    not now; step, until: the round and the number of changes of that proposal
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
 *   COPY       0 -> member            add your parameters to a mean; step: its number
 *   MEAN       member -> its parent   the mean of `version` members, a bucket, and their spread behind it; step: as in COPY
 *   PING       0 -> member            say something
 *   PONG       member -> 0            I am here
 *   GONE       0 -> member            member `part` is dropped; version: the number of this change
 *   CAME       0 -> member            member `part` has joined; version: the number of this change
 *   DROPPED    0 -> member            you were dropped: what you have does not count any more
 *   JOIN       member -> 0            I have forgotten it, and want to join
 *   WELCOME    0 -> member            you have; step: what the world has made, version: the number of the last change; who is
 *                                     there (welcome), and how far the run goes
 *   FETCH      member -> neighbour    send me your parameters
 *   PARTS      neighbour -> member    a bucket: x, and x~ behind it
 *
 * In what members say to each other (is_between), `part` is the number of changes, modulo 2^16, of which the sender had
 * heard; so what comes from, or is for, a member as it was before it was dropped is known for that (gossip_members.c).
 * VALUES have the sender's alpha in `until`, a float.
 *
 * A member is at most in one pair at a time. What reads or writes parameters waits for the end of an update (held), in
 * the order of its coming.
 */
#ifndef NW_GOSSIP_PRIVATE_H
#define NW_GOSSIP_PRIVATE_H

#include "exchange/exchange.h"
#include "gossip/gossip_mix.h"

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
    PING,
    PONG,
    GONE,
    CAME,
    DROPPED,
    JOIN,
    WELCOME,
    FETCH,
    PARTS,
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
    bool *quiet;   /* who has said so ... */
    int quiets;    /* ... so many */
    int from;
    const void *report;
    nw_count count;
} counter;

/* ---- pairs ---- */

typedef struct meeting {
    int partner;       /* -1: there is none */
    bool own;          /* it was this member that asked */
    bool given;        /* own values are sent, in `sent` */
    int64_t round;     /* scheduled: of these members ... */
    int64_t change;    /* ... as they were after so many changes */
    float alpha;       /* as sent with own values */
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
    bool wanted;      /* own parameters are not in it yet */
    int64_t number;   /* of the last */
    int64_t given_up; /* what comes for this one, and those before, is of no use */
    int64_t updates;
    bool unasked;
    nw_message **part; /* by bucket: the mean so far */
    int *joined;       /* by bucket: children whose part is in it */
    int passed;        /* buckets that are complete */
    double spread;
    mail early;    /* of children, that have to wait */
    float *values; /* member 0: of the last one */
} copies;

/* ---- members ---- */

/* Who is there, as this member has heard of it. All of one group hear of the same changes in the same order. */
typedef struct members {
    bool *away;      /* by member; of one that was dropped, its own as well */
    int64_t *since;  /* by member: the number of the change with which it joined last */
    int64_t change;  /* changes so far */
    nw_graph *graph; /* of those who are there; NULL: a group of one */
    int *room;       /* for neighbours */
    int *order;      /* those who are there, in increasing order; so many: */
    int present;
    int place;  /* of this member in `order` */
    mail ahead; /* of members that have heard of more changes than this one */
    /* Of member 0: */
    int64_t *heard;  /* by member: when */
    int64_t *pinged; /* ... and when it was asked to say something since; -1: it was not */
    bool *joins;     /* it has asked to join, and will when the next run begins */
    int64_t watch;   /* when to look who is silent; or, of a late member, when to ask to join; NW_NO_TIMER: never */
} members;

/* A member that was dropped, or was late, until it has a neighbour's parameters. */
typedef struct coming {
    bool out;       /* waits for WELCOME */
    bool void_task; /* what is being computed was begun before, and does not count */
    int source;     /* whose parameters are coming; -1: nobody's */
    int taken;      /* buckets of them */
    mail visits;    /* FETCH and PARTS that wait for the end of an update */
} coming;

typedef struct welcome {
    int64_t until, drains; /* of the run; followed by `since` of all members, -1 of those who are away */
} welcome;

typedef struct gossip {
    nw_machine base;
    nw_exchange_options o;
    nw_gossip_options how;
    const nw_params *params;
    nw_layout layout;
    nw_agreed *agreed; /* what pairs know of each other; NULL: parameters travel as they are */
    float *other;      /* x~; NULL: no momentum */
    int64_t *mixed;    /* by bucket: when */
    int64_t now;       /* of the event that is being handled */

    bool active, closed, stopped, quiet;
    bool drains;   /* this run */
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
    members members;
    coming coming;
    int64_t was_away; /* members that were away when the run stopped that is resumed */
    int64_t set;      /* the timer that the driver has */
} gossip;

static inline bool alone(const gossip *g) { return g->base.group.count == 1; }
static inline bool counts_world(const gossip *g) { return g->base.group.me == 0; }
static inline bool is_away(const gossip *g, int member) { return g->members.away[member]; }
/* Whether it has no parameters that count. */
static inline bool is_coming(const gossip *g) { return g->coming.out || g->coming.source >= 0; }
/* Kinds that members say to each other, and not to member 0 as the one that counts. */
static inline bool is_between(int kind)
{
    return kind == PROPOSE || kind == VALUES || kind == BUSY || kind == MEAN || kind == FETCH || kind == PARTS;
}

/* ---- gossip.c ---- */

nw_status nw_gossip_tell(gossip *g, nw_actions *actions, int to, int kind, int64_t step, int64_t until);
/* Every other member that is there. */
nw_status nw_gossip_tell_all(gossip *g, nw_actions *actions, int kind, int64_t step);
nw_status nw_gossip_take(gossip *g, nw_actions *actions, nw_message *message);
void nw_gossip_keep(mail *m, nw_message *message); /* at the end, with a reference of its own */
nw_message *nw_gossip_take_first(mail *m);         /* NULL: it is empty */
void nw_gossip_forget(mail *m);
void nw_gossip_forget_from(const gossip *g, mail *m, int member);
/* Brings both vectors up to the present. */
void nw_gossip_mix(gossip *g, nw_actions *actions);
/* Asks the driver for the earlier of the timers of this member. */
void nw_gossip_set_timer(gossip *g, nw_actions *actions);
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

nw_status nw_gossip_pace_go(gossip *g, nw_actions *actions);
nw_status nw_gossip_pace_stop(gossip *g, nw_actions *actions);
nw_status nw_gossip_pace_take(gossip *g, nw_actions *actions, const nw_message *m, int from); /* LEASE to OVER */
/* Updates of the world, as far as is known here. */
int64_t nw_gossip_pace_world(const gossip *g);
nw_status nw_gossip_pace_made(gossip *g, nw_actions *actions); /* an update, here */
/* Member 0: what a member holds is for others again. */
void nw_gossip_pace_lost(gossip *g, int member);
/* ... those who have none, or hardly any, get leases. */
nw_status nw_gossip_pace_share(gossip *g, nw_actions *actions);
/* This member was dropped. */
void nw_gossip_pace_forget(gossip *g);
/* Whatever else has happened: begins a gradient; closes the run, and says that it is quiet. */
nw_status nw_gossip_pace_settle(gossip *g, nw_actions *actions);

/* ---- gossip_pairs.c ---- */

nw_status nw_gossip_pairs_make(gossip *g);
void nw_gossip_pairs_free(gossip *g);
void nw_gossip_pairs_go(gossip *g, nw_actions *actions);
void nw_gossip_pairs_close(gossip *g, nw_actions *actions);
void nw_gossip_pairs_set_timer(gossip *g, nw_actions *actions);
void nw_gossip_pairs_rang(gossip *g, nw_actions *actions);
void nw_gossip_pairs_made(gossip *g);                                                    /* an update, here */
nw_status nw_gossip_pairs_take(gossip *g, nw_actions *actions, nw_message *m, int from); /* PROPOSE to PAIR */
/* Members have left or joined. */
nw_status nw_gossip_pairs_changed(gossip *g);
/* One has left: what is under way with it is given up. */
nw_status nw_gossip_pairs_lost(gossip *g, nw_actions *actions, int member);
void nw_gossip_pairs_forget(gossip *g, nw_actions *actions); /* this member was dropped */
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
/* Members have left or joined: a mean that is under way is begun anew, by member 0. */
nw_status nw_gossip_copies_changed(gossip *g, nw_actions *actions);
void nw_gossip_copies_give_up(gossip *g);

/* ---- gossip_members.c ---- */

nw_status nw_gossip_members_make(gossip *g);
void nw_gossip_members_free(gossip *g);
nw_status nw_gossip_members_go(gossip *g, nw_actions *actions);
void nw_gossip_members_end(gossip *g, nw_actions *actions); /* of a run */
/* Whether a message is to be handled now. Others are kept until this member has heard of the same changes, or are of
 * somebody who is not there any more. */
nw_status nw_gossip_members_admit(gossip *g, nw_message *message, int from, bool *now);
nw_status nw_gossip_members_take(gossip *g, nw_actions *actions, const nw_message *m, int from); /* PING to JOIN */
nw_status nw_gossip_members_rang(gossip *g, nw_actions *actions);
/* Who is there is known anew: the graph, and what follows from it. Handles what came ahead of it. */
nw_status nw_gossip_members_renew(gossip *g, nw_actions *actions);
/* Writes into messages that are sent to other members what is_between says. */
void nw_gossip_members_stamp(const gossip *g, nw_actions *actions, int first);

/* ---- gossip_return.c ---- */

/* This member was dropped, or is late; asks: to join, now. */
nw_status nw_gossip_return_begin(gossip *g, nw_actions *actions, bool asks);
nw_status nw_gossip_return_take(gossip *g, nw_actions *actions, nw_message *m, int from); /* WELCOME, FETCH, PARTS */
nw_status nw_gossip_return_lost(gossip *g, nw_actions *actions, int member);
nw_status nw_gossip_return_settle(gossip *g, nw_actions *actions);
/* Member 0. */
nw_status nw_gossip_return_welcome(gossip *g, nw_actions *actions, int member);

#endif
