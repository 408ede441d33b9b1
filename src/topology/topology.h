/*
 * Folder src/topology: who may talk to whom where members of a group talk in pairs: named graphs, files of edges, their
 * constants, draws and matchings. No messages, no times. May include: base.
 *
 * topology.h - the graph of a group of members 0 .. n - 1.
 *
 *   name                neighbours of member r (numbers modulo n)
 *   complete            everybody else
 *   cycle               r - 1, r + 1
 *   exponential         r - 2^k, r + 2^k for k = 0 .. floor(log2 n) - 1
 *   torus               the four around it on a grid of a x b = n, as square as n allows; a prime n is a cycle
 *   star                member 0 is everybody's, and has no other
 *   random-regular[:d]  d of them, drawn with the seed; d is 4, or n - 1 where that is less
 *   FILE                lines "i j [weight]": what stands twice adds up; weight 1 where none is given; # begins a remark
 *
 * Neighbours are a multiset: who is listed twice (of n = 2^p the member opposite, in "exponential") counts twice. Member
 * i has neighbour j with the probability P_ij = w_ij / sum_k w_ik.
 *
 * Rates. Every member begins a meeting at rate 1/2, with a neighbour by weight (nw_graph_draw). So the pair i, j meets
 * at rate
 *     l_ij = (P_ij + P_ji) / 2,
 * and the mean member takes part in one meeting per unit of time. Where the graph is regular everybody does: l_ij = P_ij.
 * The hub of a star takes part at rate n / 2, its others at n / (2 n - 2).
 *
 * Constants, with L = rate * sum over pairs of l_ij (e_i - e_j)(e_i - e_j)^T (A2CiD2, Nabli et al. 2023):
 *     chi1 = 1 / the smallest eigenvalue of L but zero,   chi2 = max over pairs of (e_i - e_j)^T L^+ (e_i - e_j) / 2.
 *
 * Members may leave (nw_graph_drop), and come back with the edges that they had (nw_graph_without, of fewer). A complete
 * graph and a cycle are the same of those who stay: the cycle closes over the gap. Of any other, if the rest falls apart,
 * the neighbours of whoever left are joined in a cycle, in their order. What a graph is then depends on the set of members
 * that are away alone, not on the order in which they left or came back.
 *
 * All of it is a pure function of name (or file), n, seed and who is away, so all members agree. Only make, drop, without
 * and constants take memory. A graph may be used by one thread at a time: matchings are remembered in it.
 */
#ifndef NW_TOPOLOGY_TOPOLOGY_H
#define NW_TOPOLOGY_TOPOLOGY_H

#include "base/status.h"

#include <stdint.h>

typedef struct nw_graph nw_graph;

/* NW_E_UNKNOWN suggests a name, NW_E_ARGUMENT says why n members are none of it, NW_E_FILE names the line. Any n >= 1
 * works for every name without a number or file. */
nw_status nw_graph_make(nw_graph **graph, const char *name, int n, uint64_t seed);
void nw_graph_free(nw_graph *graph); /* NULL is fine */

const char *nw_graph_name(const nw_graph *graph); /* as given */
int nw_graph_members(const nw_graph *graph);      /* n */
int nw_graph_present(const nw_graph *graph);      /* ... less those who left */
bool nw_graph_has(const nw_graph *graph, int member);

/* Distinct neighbours in increasing order with l_ij, the rate at which the pair meets (at rate 1). Gives how many there
 * are, at most n - 1; both arrays may be NULL. None of a member who left. */
int nw_graph_neighbours(const nw_graph *graph, int member, int *neighbours, double *rates);

/* A neighbour by weight, for a number drawn from [0, 1); -1: there is none. O(1), or O(log n) where weights differ. */
int nw_graph_draw(const nw_graph *graph, int member, float uniform);

/* Of the graph as it is, see above. In closed form for complete, cycle, exponential, torus and star from which nobody
 * left (complete and cycle always); otherwise with LAPACK in O(n^3), seconds for 1024: ask once and hand the answer on.
 * NW_E_UNSUPPORTED where that is missing, NW_E_ARGUMENT where n > 4096 or rate <= 0. A group of one: both 1 / rate, of no
 * consequence. */
nw_status nw_graph_constants(nw_graph *graph, double rate, double *chi1, double *chi2);

/* Scheduled matchings: with whom a member meets in a round (0, 1, 2, ...), -1 where it pauses. Of any i that has a
 * partner, partner(partner(i)) == i, and the two are neighbours; over rounds every edge has its turn. A cycle alternates
 * two matchings (of an odd number of members, each pauses in turn); exponential goes through its distances, each in two
 * matchings; torus goes round its two directions; complete takes a matching of a round-robin tournament, in an order
 * drawn for each tournament; others take a maximal matching, greedily in an order of edges drawn for each round. */
int nw_graph_partner(nw_graph *graph, uint64_t seed, int64_t round, int member);

/* The published programs' list of a member, cycled with a counter of its own, `count` = 0, 1, ...: on a cycle odd
 * members begin with r + 1, even ones with r - 1; in "exponential" odd members go through r + 1, r + 2, r + 4, ... and
 * then r - 1, r - 2, ..., even ones the other way round. These lists are no matchings (nw_graph_partner has some). Other
 * graphs: neighbours in increasing order. -1: there is no list (complete), so draw; or no neighbour. */
int nw_graph_scheduled(const nw_graph *graph, int member, int64_t count);

/* A member leaves; one that has left already is fine. After a failure nothing has changed. */
nw_status nw_graph_drop(nw_graph *graph, int member);

/* The graph without the members of `away` (by member): the whole one itself if nobody is, else one that all who ask for the
 * same members share, in which nobody may leave by nw_graph_drop. To be released before the whole is freed; releasing the
 * whole does nothing. */
nw_status nw_graph_without(nw_graph *whole, const bool *away, nw_graph **rest);
void nw_graph_release(nw_graph *rest); /* NULL is fine */

#endif
