/*
 * local_private.h - the inside of the local exchange, shared by its files: local.c (inner and outer steps),
 * local_pairs.c (outer steps of random pairs) and local_end.c (the end of a run).
 *
 * Means use the messages of channel/reduce.h, in channel NW_CHANNEL_EXCHANGE and the channels of codecs' rounds. Pairs
 * use, in channel NW_CHANNEL_EXCHANGE,
 *
 *   VALUES     member -> its partner   a bucket of the sender's parameters; step: the round
 *
 * Messages about the end of a run have a channel of their own and no payload; `step` is a number of inner steps:
 *
 *   STOP       any -> 0                the sender was asked to stop
 *   HALT       0 -> all                report your progress, and begin no gradient until UNTIL arrives
 *   AT         any -> 0                the sender's inner steps, including the one in progress
 *   UNTIL      0 -> all                the run ends after this many: the largest number reported
 *   REACHED    any -> 0                the sender has made all steps of the run and waits for no mean
 *   OVER       0 -> all                all members have
 */
#ifndef NW_EXCHANGE_LOCAL_PRIVATE_H
#define NW_EXCHANGE_LOCAL_PRIVATE_H

#include "channel/reduce.h"
#include "exchange/exchange.h"

enum { VALUES = 1 };
enum { STOP = 1, HALT, AT, UNTIL, REACHED, OVER, ENDINGS };
enum { CHANNEL = NW_CHANNEL_EXCHANGE, END_CHANNEL = NW_CHANNEL_EXCHANGE + 4 /* behind those of rounds of floats */ };

/* A range of the parameters that has its own outer steps. */
typedef struct fragment {
    size_t first, count;
    int buckets; /* of the layout */
    int missing; /* of these, what has not come of the outer step under way */
} fragment;

typedef struct ending {
    bool over;      /* all members have reached the end of the run */
    bool reached;   /* this member has, and has said so */
    bool paused;    /* between HALT and UNTIL */
    bool *arrived;  /* member 0, by member: it has reached the end */
    bool *answered; /* member 0, by member: it has answered HALT */
    int64_t most;   /* member 0: the largest number answered */
    int64_t whole;  /* the end of the run that GO asked for */
    bool spent;     /* the batches of the run are used up and the last gradient is incomplete */
} ending;

typedef struct local {
    nw_machine base;
    const nw_params *params;
    nw_layout layout;
    nw_reduce *reduce;   /* NULL with pairs */
    nw_channel channel;  /* with pairs */
    nw_message *held;    /* with pairs: messages of rounds that this member has not begun */
    bool *here;          /* with pairs, by bucket: the partner's has arrived */
    uint32_t *order;     /* with pairs: room for a permutation of the members */
    int64_t every, seed; /* H; the seed of pairs */
    int delay, fragments;
    bool pairs, in_place;
    nw_pool *pool;
    float *outer;      /* theta */
    float *difference; /* d, then its mean; with pairs the partner's x, then the gradient */
    float *before;     /* x when it was contributed; NULL with delay 0, where x does not change meanwhile */
    fragment *at;
    int64_t *contributed; /* by fragment: the inner step after which its last outer step began */
    int64_t *level;       /* by fragment: the last inner step after which x was theta */
    int64_t *outer_steps; /* by fragment: number of outer updates */
    int64_t *round;       /* by fragment: the round of its last outer step; -1: none */
    int64_t carried;      /* bits of fragments whose mean came from a checkpoint */
    int64_t pending;      /* bits of fragments whose outer step has begun, but whose outer update is not done */
    int64_t saved;        /* `fragments` of the checkpoint */
    int64_t step;         /* inner steps made */
    int64_t added;        /* rounds added by drains */
    bool adds;            /* the present drain has added one */
    int64_t clock;        /* batch number of the last gradient */
    nw_go go;
    bool asked, stepping; /* a gradient, or an inner update, was requested and is not done */
    int applying;         /* the fragment whose outer update was requested and is not done; -1: none */
    ending end;
    const void *report;
    nw_count count;
} local;

static inline bool is_in(int64_t bits, int f) { return (bits >> f & 1) != 0; }

/* ---- local.c ---- */

/* Elementwise operations on the vectors of a fragment. */
typedef enum operation {
    DIFFER, /* difference = theta - x */
    LEVEL,  /* x = theta */
    KEEP,   /* before = x */
    REBASE, /* x += theta - before */
    PULL,   /* difference = theta - (before + difference) / 2; x instead of `before` if that is NULL */
    ALONE   /* difference = theta - before; the same */
} operation;
void nw_local_compute(local *l, nw_actions *actions, int f, operation how);

/* ---- local_pairs.c ---- */

nw_status nw_local_make_pairs(local *l, const nw_exchange_options *o);
void nw_local_free_pairs(local *l);
/* Sends a fragment of x to the partner in the fragment's round. */
nw_status nw_local_send_to_partner(local *l, nw_actions *actions, int f);
nw_status nw_local_take_values(local *l, nw_actions *actions, nw_message *m, int from);
void nw_local_wait_for_pair(const local *l, int f, nw_wait *wait);

/* ---- local_end.c ---- */

nw_status nw_local_make_end(local *l);
void nw_local_free_end(local *l);
void nw_local_begin(local *l); /* at GO */
/* The batches of the run are used up and its last gradient is incomplete; the next run continues it. */
void nw_local_spent(local *l);
/* At STOP. */
nw_status nw_local_stop(local *l, nw_actions *actions);
/* This member has made all steps of the run. */
nw_status nw_local_reach(local *l, nw_actions *actions);
nw_status nw_local_take_end(local *l, nw_actions *actions, const nw_message *m, int from);
void nw_local_wait_for_end(const local *l, nw_wait *wait);
bool nw_local_waits_for_first(const local *l); /* it has nothing else to do */

#endif
