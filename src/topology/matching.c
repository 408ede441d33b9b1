/*
 * matching.c - who meets whom in a round, where meetings are scheduled.
 *
 * Ring of m, round t. m even: members p with p + t even meet p + 1, the others p - 1. m odd: member t mod m pauses, and
 * p + 1 meets p + 2, p + 3 meets p + 4, ... counted from it. So every two, or m, rounds have all edges.
 *
 * Exponential: distance 2^k, k = t mod L, cuts the members into g = gcd(n, 2^k) rings of n / g, which all are in their
 * round t / L. Of n = 2^p that is: r meets r + 2^k if floor(r / 2^k) + t / L is even, else r - 2^k; at k = p - 1 both
 * are one.
 *
 * Complete: a round-robin tournament of M = m or m + 1 (an even number; whoever meets the guest pauses). In its round s
 * of M - 1, places p and q < M - 1 meet if p + q = s modulo M - 1; who would meet itself meets place M - 1. Rounds in
 * order would mix as slowly as a ring: s and s + 1 together only shift. So the rounds of each tournament are shuffled.
 *
 * Others: edges get random keys, a function of seed, round and their index alone; from the smallest key on, an edge is
 * taken if both its ends are free. Weights have no say in it.
 */
#include "topology/topology_private.h"

#include "base/rng.h"

/* +1, -1 or 0: where the partner stands on a ring of m. */
static int ring_step(int p, int m, int64_t round)
{
    if (m < 2) return 0;
    if (m % 2 == 0) return (p + round) % 2 == 0 ? 1 : -1;
    int pauses = (int)(round % m), ahead = (p - pauses + m) % m;
    return ahead == 0 ? 0 : ahead % 2 ? 1 : -1;
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* x with a x = 1 modulo m, of an a that has no divisor with m but 1 (Euclid). */
static int64_t inverse_of(int64_t a, int64_t m)
{
    int64_t rest = m, x = 0, next = 1;
    while (a) {
        int64_t times = rest / a, t = rest - times * a;
        rest = a;
        a = t;
        t = x - times * next;
        x = next;
        next = t;
    }
    return (x % m + m) % m;
}

/* r = (r mod rings) + place * distance modulo n. */
static int partner_exponential(const nw_graph *g, int64_t round, int r)
{
    int64_t n = g->n, distance = INT64_C(1) << round % g->distances, rings = gcd(n, distance), length = n / rings;
    int64_t place = r / rings * inverse_of(distance / rings, length) % length;
    int64_t turn = ring_step((int)place, (int)length, round / g->distances);
    return turn ? (int)((r + turn * distance + n) % n) : -1;
}

static int partner_torus(const nw_graph *g, int64_t round, int r)
{
    int row = r / g->columns, column = r % g->columns;
    if (g->rows > 1 && round % 2) {
        int turn = ring_step(row, g->rows, round / 2);
        return turn ? (row + turn + g->rows) % g->rows * g->columns + column : -1;
    }
    int turn = ring_step(column, g->columns, g->rows > 1 ? round / 2 : round);
    return turn ? row * g->columns + (column + turn + g->columns) % g->columns : -1;
}

static bool remembered(nw_graph *g, uint64_t seed, int64_t round)
{
    if (g->matching_round == round && g->matching_seed == seed) return true;
    g->matching_round = round;
    g->matching_seed = seed;
    return false;
}

static int partner_complete(nw_graph *g, uint64_t seed, int64_t round, int p)
{
    int m = g->present, rounds = m + m % 2 - 1; /* at most n, the room in mates */
    if (!remembered(g, seed, round / rounds)) {
        nw_rng rng = nw_rng_make(seed, NW_PURPOSE_MATCHING, (uint64_t)(round / rounds), UINT32_MAX);
        nw_rng_shuffle(&rng, (uint32_t *)g->mates, (uint32_t)rounds);
    }
    int s = g->mates[round % rounds], q;
    if (p == rounds)
        q = (int)((int64_t)s * ((rounds + 1) / 2) % rounds); /* q + q = s */
    else
        q = (s - p + rounds) % rounds;
    if (q == p) q = rounds;
    return q < m ? g->here[q] : -1;
}

static int compare(const void *x, const void *y)
{
    const nw_key *a = x, *b = y;
    if (a->random != b->random) return a->random < b->random ? -1 : 1;
    return (a->edge > b->edge) - (a->edge < b->edge);
}

static void match(nw_graph *g, uint64_t seed, int64_t round)
{
    const nw_edges *edges = &g->lists.edges;
    nw_key *keys = g->lists.keys;
    for (int e = 0; e < edges->count; e++) {
        nw_rng rng = nw_rng_make(seed, NW_PURPOSE_MATCHING, (uint64_t)round, (uint32_t)e);
        keys[e] = (nw_key){(uint64_t)nw_rng_u32(&rng) << 32 | nw_rng_u32(&rng), e};
    }
    qsort(keys, (size_t)edges->count, sizeof *keys, compare);
    for (int i = 0; i < g->n; i++) g->mates[i] = -1;
    for (int k = 0; k < edges->count; k++) {
        const nw_edge *edge = &edges->at[keys[k].edge];
        if (g->mates[edge->a] >= 0 || g->mates[edge->b] >= 0) continue;
        g->mates[edge->a] = edge->b;
        g->mates[edge->b] = edge->a;
    }
}

int nw_graph_partner(nw_graph *graph, uint64_t seed, int64_t round, int member)
{
    int place = graph->place[member], m = graph->present;
    if (place < 0 || m < 2) return -1;
    if (!nw_graph_computed(graph)) {
        if (!remembered(graph, seed, round)) match(graph, seed, round);
        return graph->mates[member];
    }
    switch (graph->kind) {
    case NW_COMPLETE:
        return partner_complete(graph, seed, round, place);
    case NW_CYCLE: {
        int turn = ring_step(place, m, round);
        return turn ? graph->here[(place + turn + m) % m] : -1;
    }
    case NW_EXPONENTIAL:
        return partner_exponential(graph, round, member);
    case NW_TORUS:
        return partner_torus(graph, round, member);
    case NW_STAR: { /* each in turn */
        int turn = 1 + (int)(round % (m - 1));
        return member == 0 ? turn : member == turn ? 0 : -1;
    }
    default:
        return -1;
    }
}

int nw_graph_scheduled(const nw_graph *graph, int member, int64_t count)
{
    int place = graph->place[member], m = graph->present;
    if (place < 0 || m < 2 || graph->kind == NW_COMPLETE) return -1;
    if (!nw_graph_computed(graph)) {
        const nw_rows *rows = &graph->lists;
        int first = rows->first[member], entries = rows->first[member + 1] - first;
        return entries ? rows->to[first + count % entries] : -1;
    }
    int degree = nw_graph_degree(graph, place), index = (int)(count % degree);
    bool odd = place % 2;
    if (graph->kind == NW_CYCLE) {
        bool up = odd == (index == 0);
        return graph->here[(place + (up ? 1 : m - 1)) % m];
    }
    if (graph->kind == NW_EXPONENTIAL) {
        bool up = odd == (index < graph->distances);
        int distance = 1 << index % graph->distances;
        return (place + (up ? distance : m - distance)) % m;
    }
    return nw_graph_listed(graph, place, index);
}
