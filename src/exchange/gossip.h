/*
 * gossip.h - options and counts of the exchange gossip (gossip.c), part of nw_exchange_options.
 */
#ifndef NW_EXCHANGE_GOSSIP_H
#define NW_EXCHANGE_GOSSIP_H

#include "channel/agreed.h"
#include "topology/topology.h"

#include <stddef.h>

/* Who decides which two members average. */
typedef enum nw_pairing {
    NW_PAIR_HANDSHAKE,  /* a member asks a neighbour, which accepts or is busy */
    NW_PAIR_FIRST_COME, /* member 0 pairs members in the order in which they become available */
    NW_PAIR_SCHEDULED   /* matchings: a pure function of seed and round */
} nw_pairing;

/* For tests and replays in other arithmetic: what a member does with a range of its vectors. */
typedef struct nw_gossip_note {
    /* LENT, COPIED: the vectors as they are, for a member that has joined */
    enum { NW_GOSSIP_MIXED, NW_GOSSIP_SENT, NW_GOSSIP_APPROACHED, NW_GOSSIP_LENT, NW_GOSSIP_COPIED } what;
    int member, with;
    size_t first, count;
    int64_t now_ns;
    double time;                /* since the last mixing of this range, in gradients */
    float weight;               /* b of that time (gossip/gossip_mix.h) */
    float alpha;                /* of this pair */
    int64_t change;             /* of the members, of which it has heard */
    const float *mine, *theirs; /* APPROACHED: what both are taken to have sent */
} nw_gossip_note;
typedef struct nw_gossip_tap {
    void (*told)(void *context, const nw_gossip_note *note); /* NULL: nobody listens */
    void *context;
} nw_gossip_tap;

/* What a member has counted; saved in checkpoints. */
typedef struct nw_gossip_counts {
    int64_t gradients;
    int64_t exchanges; /* averagings that it took part in */
    int64_t refused;   /* proposals of its own that were answered BUSY */
    int64_t idle_ns;   /* time in which it had no lease to compute with */
    int64_t again;     /* encoded buckets that went once more, exactly, since this process began */
    int64_t *with;     /* exchanges by partner; the owner of this struct allocates it for the group's size */
} nw_gossip_counts;

typedef struct nw_gossip_options {
    nw_graph *graph; /* of the group's size; must outlive the exchange; a group of one needs none */
    uint64_t seed;
    nw_pairing pairing;
    double rate;                 /* averagings of a member per gradient of its own */
    bool deterministic_coms;     /* exactly that many per gradient; otherwise a Poisson process */
    bool deterministic_neighbor; /* neighbours in the order of the graph's list; otherwise random */
    bool acid;                   /* continuous momentum with these constants: */
    double eta, alpha;
    bool follows;        /* these two are the graph's: found anew when members leave and join, where that is possible */
    const bool *late;    /* by member: it is not there when the first run begins; NULL: all are. Never member 0 */
    nw_agreeing values;  /* how parameters travel that have codecs */
    double step;         /* of an averaging: 1 (or 0) moves both to the mean of what they sent; in (0, 1] */
    double modulo_bound; /* of codec modulo; 0: it follows what is seen */
    int64_t measure_every;    /* updates of the world between two measurements of the consensus distance; 0: none */
    nw_gossip_counts *counts; /* must outlive the exchange; may be NULL */
    nw_gossip_tap tap;
} nw_gossip_options;

/* The constants of the graph at this rate (topology.h), if that is above 0; and those of continuous momentum that follow
 * from them, where eta is less than 0 or they follow. */
nw_status nw_gossip_constants(nw_gossip_options *options, double *chi1, double *chi2);

#endif
