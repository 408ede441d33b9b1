/*
 * fuzz_edges.c - bytes as a file of edges. What is accepted must be a graph: in one piece, also without some members;
 * who draws, meets or is scheduled is a neighbour.
 */
#include "topology/topology_private.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMBERS = 12 };

static int mark(const nw_graph *g, int member, bool *is)
{
    int to[MEMBERS], count = nw_graph_neighbours(g, member, to, NULL);
    memset(is, 0, MEMBERS * sizeof *is);
    for (int k = 0; k < count; k++) {
        if (to[k] < 0 || to[k] >= MEMBERS || to[k] == member || !nw_graph_has(g, to[k])) abort();
        is[to[k]] = true;
    }
    return count;
}

static void use(nw_graph *g)
{
    for (int i = 0; i < nw_graph_members(g); i++) {
        if (!nw_graph_has(g, i)) continue;
        bool is[MEMBERS];
        if (!mark(g, i, is) && nw_graph_present(g) > 1) abort();
        for (int k = 0; k < 4; k++) {
            int drawn = nw_graph_draw(g, i, (float)k / 4), met = nw_graph_partner(g, 1, k, i);
            int listed = nw_graph_scheduled(g, i, k);
            if (nw_graph_present(g) > 1 && (drawn < 0 || !is[drawn] || listed < 0 || !is[listed])) abort();
            if (met >= 0 && (!is[met] || nw_graph_partner(g, 1, k, met) != i)) abort();
        }
    }
    double one, two;
    if (nw_graph_has_solver() &&
        (nw_graph_constants(g, 1, &one, &two) != NW_OK || !(one > 0) || !(two > 0) || two > one * (1 + 1e-3)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_graph *g;
    if (nw_graph_parse(&g, "fuzz", size % 2 ? MEMBERS : 4, 1, (const char *)data, size) != NW_OK) return 0;
    use(g);
    for (int leaver = 0; leaver < 3; leaver++) {
        if (nw_graph_drop(g, leaver * 5 % nw_graph_members(g)) != NW_OK) abort();
        use(g);
    }
    nw_graph_free(g);
    return 0;
}
