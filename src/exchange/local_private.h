/*
 * local_private.h - the inside of the local exchange, shared by the files that make it: local.c (inner and outer steps),
 * local_pairs.c (random pairs instead of all) and local_end.c (where a run ends).
 *
 * Messages of means are those of channel/reduce.h, in channel NW_CHANNEL_EXCHANGE and those above it. Of pairs:
 *
 *   VALUES     member -> its partner   a bucket of the sender's parameters; step: the round
 *
 * and, in a channel of their own, about the end of a run, without payload; step says the count of inner steps:
 *
 *   STOP       any -> 0                the sender was asked to stop
 *   HALT       0 -> all                say how far you are, and begin nothing more until UNTIL comes
 *   AT         any -> 0                so many inner steps, with the one that is under way
 *   UNTIL      0 -> all                the run ends after so many: the most that anyone said
 *   REACHED    any -> 0                the sender has made all inner steps of the run, and waits for no mean
 *   OVER       0 -> all                all have
 */
#ifndef NW_EXCHANGE_LOCAL_PRIVATE_H
#define NW_EXCHANGE_LOCAL_PRIVATE_H

#include "channel/reduce.h"
#include "exchange/exchange.h"

enum { VALUES = 1 };
enum { STOP = 1, HALT, AT, UNTIL, REACHED, OVER, ENDINGS };
enum { CHANNEL = NW_CHANNEL_EXCHANGE, END_CHANNEL = NW_CHANNEL_EXCHANGE + 4 /* behind those of rounds of floats */ };

/* A range of the vector that has outer steps of its own. */
typedef struct fragment {
    size_t first, count;
    int buckets; /* of the layout */
    int missing; /* of these, what has not come of the outer step under way */
} fragment;

typedef struct ending {
    bool over;     /* this member may rest */
    bool reached;  /* ... and has said that it could */
    bool paused;   /* a HALT was not followed by UNTIL yet */
    bool *arrived; /* member 0, by member: it has reached the end of the run */
    bool *said;    /* ... it has answered HALT */
    int64_t most;  /* ... of what they answered */
    int64_t whole; /* where GO let the run end */
    bool spent;    /* its batches are used up, the last gradient is not complete */
} ending;

typedef struct local {
    nw_machine base;
    const nw_params *params;
    nw_layout layout;
    nw_reduce *reduce;   /* NULL where there are pairs */
    nw_channel channel;  /* of pairs */
    nw_message *held;    /* pairs: parameters of rounds that this member has not begun */
    bool *here;          /* pairs, by bucket: it has come */
    uint32_t *order;     /* pairs: room for a permutation of the members */
    int64_t every, seed; /* inner steps from one outer step to the next, of each fragment */
    int delay, fragments;
    bool pairs, in_place;
    nw_pool *pool;
    float *outer;      /* theta */
    float *difference; /* theta - x, and then the mean of these; of pairs, what came, and then the gradient */
    float *before;     /* x as it was given; NULL: with delay 0 it does not change meanwhile */
    fragment *at;
    int64_t *given;       /* by fragment: the inner step behind which its last outer step began */
    int64_t *level;       /* ... behind which x was theta */
    int64_t *outer_steps; /* ... that were made of it */
    int64_t *round;       /* ... of the last that began; -1: none did */
    int64_t carried;      /* bits of fragments whose means came with a checkpoint */
    int64_t pending;      /* bits of fragments whose outer step has begun and is not made */
    int64_t saved;        /* `fragments` of a checkpoint */
    int64_t step;         /* inner steps made */
    int64_t added;        /* rounds that were added at the ends of runs */
    bool adds;            /* ... one is being added */
    int64_t clock;        /* the batch of the last gradient */
    nw_go go;
    bool asked, stepping; /* a gradient, an inner update is under way */
    int applying;         /* the fragment whose outer update is; -1: none */
    ending end;
    const void *report;
    nw_count count;
} local;

static inline bool is_in(int64_t bits, int f) { return (bits >> f & 1) != 0; }

/* ---- local.c ---- */

/* What is done with a fragment's vectors, element by element. */
typedef enum motion {
    DIFFER, /* difference = theta - x */
    LEVEL,  /* x = theta */
    KEEP,   /* before = x */
    REBASE, /* x += theta - before */
    PULL,   /* difference = theta - (before + difference) / 2, with x for `before` where there is none */
    ALONE   /* difference = theta - before, likewise */
} motion;
void nw_local_move(local *l, nw_actions *actions, int f, motion how);

/* ---- local_pairs.c ---- */

nw_status nw_local_make_pairs(local *l, const nw_exchange_options *o);
void nw_local_free_pairs(local *l);
/* Sends this member's parameters of a fragment to its partner of the fragment's round. */
nw_status nw_local_give_pair(local *l, nw_actions *actions, int f);
nw_status nw_local_take_values(local *l, nw_actions *actions, nw_message *m, int from);
void nw_local_wait_for_pair(const local *l, int f, nw_wait *wait);

/* ---- local_end.c ---- */

nw_status nw_local_make_end(local *l);
void nw_local_free_end(local *l);
void nw_local_begin(local *l); /* GO */
/* The last gradient of the run is not complete, and goes on in the next. */
void nw_local_spent(local *l);
/* This member was asked to stop. */
nw_status nw_local_stop(local *l, nw_actions *actions);
/* It has made all steps of the run. */
nw_status nw_local_reach(local *l, nw_actions *actions);
nw_status nw_local_take_end(local *l, nw_actions *actions, const nw_message *m, int from);
void nw_local_wait_for_end(const local *l, nw_wait *wait);

#endif
