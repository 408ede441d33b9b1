/*
 * topology_private.h - a graph from inside.
 *
 * Named graphs from which nobody left need no lists: member r's neighbour at an index is arithmetic (nw_graph_listed).
 * complete and cycle stay so, over the members that are `here`, in order; a member's place is its index there. All others
 * have rows, from the beginning (random-regular, files) or from the first member that left on.
 */
#ifndef NW_TOPOLOGY_TOPOLOGY_PRIVATE_H
#define NW_TOPOLOGY_TOPOLOGY_PRIVATE_H

#include "topology/topology.h"

enum { NW_GRAPH_MOST = 1 << 20, NW_GRAPH_SOLVED = 4096 }; /* members; ... whose constants LAPACK finds */

typedef enum nw_graph_kind {
    NW_COMPLETE,
    NW_CYCLE,
    NW_EXPONENTIAL,
    NW_TORUS,
    NW_STAR,
    NW_REGULAR,
    NW_FILE
} nw_graph_kind;

typedef struct nw_edge {
    int a, b; /* a < b */
    double weight;
} nw_edge;

typedef struct nw_edges {
    nw_edge *at; /* distinct, in increasing order */
    int count;
} nw_edges;

typedef struct nw_key {
    uint64_t random;
    int edge;
} nw_key;

/* Neighbours of all members. */
typedef struct nw_rows {
    nw_edges edges;
    int *first;     /* [n + 1] */
    int *to;        /* [2 edges] */
    double *weight; /* [2 edges] */
    double *until;  /* [2 edges]: sums of a row's weights so far, the last of a row is their sum */
    nw_key *keys;   /* [edges]: room for a matching */
} nw_rows;

struct nw_graph {
    nw_graph_kind kind;
    char *name;
    uint64_t seed;
    int n;
    int rows, columns; /* torus: rows * columns == n, rows <= columns */
    int distances;     /* exponential: floor(log2 n) */
    nw_edges base;     /* random-regular and files: of all members */
    int *here;         /* those who have not left, in increasing order ... */
    int present;       /* ... so many */
    int *place;        /* [n]: in `here`, -1 for one who left */
    nw_rows lists;     /* none (first is NULL): arithmetic */
    int *mates;        /* [n]: the matching that was asked for last, or the order of a tournament ... */
    uint64_t matching_seed;
    int64_t matching_round; /* ... of that round, or that tournament; -1: none */
    /* Without some members (leaving.c): */
    nw_graph *rests; /* of a whole graph: those that somebody has ... */
    nw_graph *whole, *next;
    int users;
    bool solved; /* LAPACK found these, at rate 1 */
    double chi1, chi2;
};

/* nw_graph_make of a file that is in memory; text NULL: of a name. */
nw_status nw_graph_parse(nw_graph **graph, const char *name, int n, uint64_t seed, const char *text, size_t size);

static inline bool nw_graph_computed(const nw_graph *g) { return !g->lists.first; }
/* Whether it is made of all who are here, whoever left. */
static inline bool nw_graph_closes(const nw_graph *g) { return g->kind == NW_COMPLETE || g->kind == NW_CYCLE; }

/* Of a computed graph: how many neighbours are listed at a place, and the place of one of them. */
int nw_graph_degree(const nw_graph *g, int place);
int nw_graph_listed(const nw_graph *g, int place, int index);

/* Takes over the edges, which are tidy. */
nw_status nw_rows_make(nw_rows *rows, nw_edges *edges, int n);
void nw_rows_free(nw_rows *rows);

/* Edges (edges.c). Sorts, adds up what stands twice. */
void nw_edges_tidy(nw_edges *edges);
nw_status nw_edges_add(nw_edges *edges, int a, int b, double weight);
/* The smallest member that member `from` cannot reach over these edges among those who are here; -1: none. `root` is
 * room for n. */
int nw_edges_apart(const nw_edges *edges, int n, const bool *gone, int *root);
nw_status nw_edges_parse(nw_edges *edges, const char *path, const char *text, size_t size, int n);
nw_status nw_edges_read(nw_edges *edges, const char *path, int n);
/* Of n members with d neighbours each, connected; 1 <= d < n, n d even, d > 1 where n > 2. */
nw_status nw_edges_draw(nw_edges *edges, int n, int d, uint64_t seed);

/* Eigenvalues and resistances of rates between places, by LAPACK (constants.c, for tests as well). */
bool nw_graph_has_solver(void);
nw_status nw_graph_solve(const nw_graph *g, double rate, double *chi1, double *chi2);

#endif
