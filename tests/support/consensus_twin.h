/*
 * consensus_twin.h - averaging in pairs on a graph, with continuous momentum (A2CiD2, Nabli et al. 2023) or without, in
 * doubles and plain loops: what exchanges by gossip are measured by.
 *
 * Every member i has x_i and x~_i. Meetings are a Poisson process: in a group of n, at rate (n / 2) * rate, some member
 * begins one with a neighbour drawn by weight. At an event both first mix to its time, then exchange:
 *     e = exp(-2 eta dt):  x <- ((1 + e) x + (1 - e) x~) / 2,  x~ <- ((1 - e) x + (1 + e) x~) / 2;
 *     m = x_i - x_j:  x_i -= m / 2,  x~_i -= alpha~ m,  x_j += m / 2,  x~_j += alpha~ m.
 * A gradient changes both vectors of a member alike.
 *
 * Invariants: mixing keeps x + x~ of a member, an exchange keeps the sums of x and of x~ over members, so both keep the
 * sum of all x + x~.
 */
#ifndef NW_TESTS_CONSENSUS_TWIN_H
#define NW_TESTS_CONSENSUS_TWIN_H

#include "base/rng.h"
#include "topology/topology.h"

typedef struct consensus_options {
    const char *graph;
    int n, floats;
    double rate;          /* meetings that a mean member takes part in, a unit of time */
    bool momentum;        /* eta and alpha~ from the graph's constants; otherwise 0 and 1/2 */
    double eta, alpha;    /* ... unless these are not 0 */
    double initial_apart; /* x~ begins as x plus so many standard deviations */
    uint64_t seed;
} consensus_options;

typedef struct consensus_twin {
    consensus_options options;
    nw_graph *graph;
    double eta, alpha;
    double *x, *other; /* [n][floats] */
    double *mixed;     /* [n]: until when */
    double now;
    double next; /* meeting */
    int64_t meetings;
    nw_rng rng;
} consensus_twin;

/* Of one member's vectors over `dt`; of a pair's. */
void consensus_mix(double *x, double *other, int floats, double eta, double dt);
void consensus_meet(double *xi, double *other_i, double *xj, double *other_j, int floats, double alpha);

/* x of all members is normal, x~ = x (see initial_apart). Aborts where there is no such graph. */
void consensus_begin(consensus_twin *twin, const consensus_options *options);
void consensus_end(consensus_twin *twin);
void consensus_run(consensus_twin *twin, double until); /* all meetings before; then everybody mixes to that time */
double consensus_distance(const consensus_twin *twin);  /* sum over members of |x - mean|^2 */

/* The distance at `time` over that at the beginning: the geometric mean of so many seeds, from options->seed on. */
double consensus_measure(const consensus_options *options, double time, int seeds);

#endif
