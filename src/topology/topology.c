/* topology.c - graphs by name: made, and asked; see topology.h. */
#include "topology/topology_private.h"

#include "base/suggest.h"
#include "base/text.h"

#include <stdio.h>
#include <unistd.h>

static const struct {
    const char *name;
    nw_graph_kind kind;
} names[] = {{"complete", NW_COMPLETE}, {"cycle", NW_CYCLE}, {"exponential", NW_EXPONENTIAL},
             {"torus", NW_TORUS},       {"star", NW_STAR},   {"random-regular", NW_REGULAR}};
enum { NAMES = sizeof names / sizeof *names, DEGREE = 4 };

/* ---- what is arithmetic ---- */

int nw_graph_degree(const nw_graph *g, int place)
{
    int m = g->present;
    if (m < 2) return 0;
    switch (g->kind) {
    case NW_COMPLETE:
        return m - 1;
    case NW_CYCLE:
        return 2;
    case NW_EXPONENTIAL:
        return 2 * g->distances;
    case NW_TORUS:
        return g->rows > 1 ? 4 : 2;
    case NW_STAR:
        return place == 0 ? m - 1 : 1;
    default:
        return 0;
    }
}

int nw_graph_listed(const nw_graph *g, int place, int index)
{
    int m = g->present;
    switch (g->kind) {
    case NW_COMPLETE:
        return index + (index >= place);
    case NW_CYCLE:
        return (place + (index ? 1 : m - 1)) % m;
    case NW_EXPONENTIAL: {
        int distance = 1 << index / 2;
        return (place + (index % 2 ? distance : m - distance)) % m;
    }
    case NW_TORUS: {
        int row = place / g->columns, column = place % g->columns;
        if (index < 2)
            column = (column + (index ? 1 : g->columns - 1)) % g->columns;
        else
            row = (row + (index == 3 ? 1 : g->rows - 1)) % g->rows;
        return row * g->columns + column;
    }
    case NW_STAR:
        return place == 0 ? index + 1 : 0;
    default:
        return -1;
    }
}

/* ---- rows ---- */

void nw_rows_free(nw_rows *rows)
{
    free(rows->edges.at);
    free(rows->first);
    free(rows->to);
    free(rows->weight);
    free(rows->until);
    free(rows->keys);
    *rows = (nw_rows){0};
}

nw_status nw_rows_make(nw_rows *rows, nw_edges *edges, int n)
{
    rows->edges = *edges;
    *edges = (nw_edges){0};
    size_t entries = 2 * (size_t)rows->edges.count + 1; /* never none */
    NW_NEW(rows->first, n + 1, "the neighbours of %d members", n);
    NW_NEW(rows->to, entries, "the neighbours of %d members", n);
    NW_NEW(rows->weight, entries, "the neighbours of %d members", n);
    NW_NEW(rows->until, entries, "the neighbours of %d members", n);
    NW_NEW(rows->keys, entries, "the neighbours of %d members", n);
    const nw_edge *at = rows->edges.at;
    for (int e = 0; e < rows->edges.count; e++) {
        rows->first[at[e].a + 1]++;
        rows->first[at[e].b + 1]++;
    }
    for (int i = 0; i < n; i++) rows->first[i + 1] += rows->first[i];
    /* Edges are in order of a, then b: all smaller neighbours of a member come before all larger ones, if the larger are
     * entered in a second pass. */
    NW_AUTOFREE int *next = NULL;
    NW_NEW(next, n, "the neighbours of %d members", n);
    memcpy(next, rows->first, (size_t)n * sizeof *next);
    for (int larger = 0; larger < 2; larger++)
        for (int e = 0; e < rows->edges.count; e++) {
            int of = larger ? at[e].a : at[e].b, entry = next[of]++;
            rows->to[entry] = larger ? at[e].b : at[e].a;
            rows->weight[entry] = at[e].weight;
        }
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int k = rows->first[i]; k < rows->first[i + 1]; k++) rows->until[k] = sum += rows->weight[k];
    }
    return NW_OK;
}

/* The sum of a row's weights. */
static double row_sum(const nw_rows *rows, int member)
{
    int end = rows->first[member + 1];
    return end > rows->first[member] ? rows->until[end - 1] : 0;
}

/* ---- making ---- */

static bool is_named(const char *name, const char *of, const char **number)
{
    size_t length = strlen(of);
    if (strncmp(name, of, length) != 0 || (name[length] && name[length] != ':')) return false;
    *number = name[length] ? name + length + 1 : NULL;
    return true;
}

static nw_status find_kind(nw_graph *g, const char *name, const char **number)
{
    for (int i = 0; i < NAMES; i++)
        if (is_named(name, names[i].name, number)) {
            g->kind = names[i].kind;
            NW_FAIL_IF(*number && g->kind != NW_REGULAR, NW_E_ARGUMENT,
                       "'%s': only random-regular has a number; use '%s'", name, names[i].name);
            return NW_OK;
        }
    *number = NULL;
    g->kind = NW_FILE;
    if (strchr(name, '/') || strchr(name, '.') || access(name, F_OK) == 0) return NW_OK;
    const char *known[NAMES];
    for (int i = 0; i < NAMES; i++) known[i] = names[i].name;
    return NW_FAIL(NW_E_UNKNOWN, "there is no graph '%s', and no file of that name%s", name,
                   nw_suggest(name, known, NAMES,
                              "give a file of edges, or one of complete, cycle, exponential, torus, "
                              "star, random-regular")
                       .text);
}

static nw_status check_degree(const char *name, const char *number, int n, int *degree)
{
    *degree = n - 1 < DEGREE ? n - 1 : DEGREE;
    if (!number) return NW_OK;
    char *end;
    long d = strtol(number, &end, 10);
    NW_FAIL_IF(number[0] < '0' || number[0] > '9' || *end, NW_E_ARGUMENT,
               "'%s': behind the colon stands how many neighbours a member has, as in random-regular:4", name);
    NW_FAIL_IF(d < 1 || d >= n, NW_E_ARGUMENT, "'%s': a member of %d has 1 to %d neighbours", name, n, n - 1);
    NW_FAIL_IF(d % 2 && n % 2, NW_E_ARGUMENT,
               "'%s': an odd number of members, %d, cannot all have an odd number of neighbours", name, n);
    NW_FAIL_IF(d == 1 && n > 2, NW_E_ARGUMENT,
               "'%s': with one neighbour each, %d members do not hang together; use 2 or more", name, n);
    *degree = (int)d;
    return NW_OK;
}

static void plan(nw_graph *g)
{
    g->users = 1;
    g->rows = 1;
    for (int side = 2; side * side <= g->n; side++)
        if (g->n % side == 0) g->rows = side;
    g->columns = g->n / g->rows;
    while (1 << (g->distances + 1) <= g->n) g->distances++;
    g->present = g->n;
    for (int i = 0; i < g->n; i++) g->here[i] = g->place[i] = i;
    g->matching_round = -1;
}

static nw_status make(nw_graph *g, const char *name, const char *text, size_t size)
{
    const char *number = NULL;
    g->kind = NW_FILE;
    if (!text) NW_TRY(find_kind(g, name, &number));
    NW_TRY(nw_text_copy(&g->name, name));
    NW_NEW(g->here, g->n, "a graph of %d members", g->n);
    NW_NEW(g->place, g->n, "a graph of %d members", g->n);
    NW_NEW(g->mates, g->n, "a graph of %d members", g->n);
    plan(g);
    if (g->kind == NW_REGULAR) {
        int degree;
        NW_TRY(check_degree(name, number, g->n, &degree));
        if (degree) NW_TRY(nw_edges_draw(&g->base, g->n, degree, g->seed));
    } else if (text) {
        NW_TRY(nw_edges_parse(&g->base, name, text, size, g->n));
    } else if (g->kind == NW_FILE) {
        NW_TRY(nw_edges_read(&g->base, name, g->n));
    } else {
        return NW_OK;
    }
    nw_edges edges = {0};
    for (int e = 0; e < g->base.count; e++)
        NW_TRY_OR(nw_edges_add(&edges, g->base.at[e].a, g->base.at[e].b, g->base.at[e].weight), free(edges.at));
    return nw_rows_make(&g->lists, &edges, g->n);
}

nw_status nw_graph_parse(nw_graph **graph, const char *name, int n, uint64_t seed, const char *text, size_t size)
{
    *graph = NULL;
    NW_FAIL_IF(n < 1 || n > NW_GRAPH_MOST, NW_E_ARGUMENT, "a graph has 1 to %d members, not %d", NW_GRAPH_MOST, n);
    nw_graph *g;
    NW_NEW(g, 1, "a graph of %d members", n);
    g->n = n;
    g->seed = seed;
    NW_TRY_OR(make(g, name, text, size), nw_graph_free(g));
    *graph = g;
    return NW_OK;
}

nw_status nw_graph_make(nw_graph **graph, const char *name, int n, uint64_t seed)
{
    return nw_graph_parse(graph, name, n, seed, NULL, 0);
}

void nw_graph_free(nw_graph *graph)
{
    if (!graph) return;
    if (graph->rests) abort(); /* somebody still has a part of it */
    nw_rows_free(&graph->lists);
    free(graph->base.at);
    free(graph->name);
    free(graph->here);
    free(graph->place);
    free(graph->mates);
    free(graph);
}

/* ---- asking ---- */

const char *nw_graph_name(const nw_graph *graph) { return graph->name; }
int nw_graph_members(const nw_graph *graph) { return graph->n; }
int nw_graph_present(const nw_graph *graph) { return graph->present; }
bool nw_graph_has(const nw_graph *graph, int member) { return graph->place[member] >= 0; }

/* How often `to` is listed at `place`, of so many. */
static double listed_share(const nw_graph *g, int place, int to)
{
    int degree = nw_graph_degree(g, place), times = 0;
    if (g->kind == NW_COMPLETE || g->kind == NW_STAR) return 1.0 / degree;
    for (int i = 0; i < degree; i++) times += nw_graph_listed(g, place, i) == to;
    return (double)times / degree;
}

/* Of a computed graph. Lists are short where they are not in order. */
static int neighbours_listed(const nw_graph *g, int member, int *neighbours, double *rates)
{
    int place = g->place[member], degree = nw_graph_degree(g, place), count = 0, own[64];
    bool straight = g->kind == NW_COMPLETE || g->kind == NW_STAR;
    for (int i = 0; i < degree; i++) {
        int to = nw_graph_listed(g, place, i), at = count;
        if (straight) {
            if (neighbours) neighbours[i] = g->here[to];
            if (rates) rates[i] = (listed_share(g, place, to) + listed_share(g, to, place)) / 2;
            count++;
            continue;
        }
        while (at > 0 && own[at - 1] > to) at--;
        if (at > 0 && own[at - 1] == to) continue;
        memmove(own + at + 1, own + at, (size_t)(count - at) * sizeof *own);
        own[at] = to;
        count++;
    }
    for (int i = 0; i < count && !straight; i++) {
        if (neighbours) neighbours[i] = g->here[own[i]];
        if (rates) rates[i] = (listed_share(g, place, own[i]) + listed_share(g, own[i], place)) / 2;
    }
    return count;
}

int nw_graph_neighbours(const nw_graph *graph, int member, int *neighbours, double *rates)
{
    if (!nw_graph_has(graph, member)) return 0;
    if (nw_graph_computed(graph)) return neighbours_listed(graph, member, neighbours, rates);
    const nw_rows *rows = &graph->lists;
    int first = rows->first[member], count = rows->first[member + 1] - first;
    for (int i = 0; i < count; i++) {
        int to = rows->to[first + i];
        if (neighbours) neighbours[i] = to;
        if (rates) rates[i] = rows->weight[first + i] * (1 / row_sum(rows, member) + 1 / row_sum(rows, to)) / 2;
    }
    return count;
}

int nw_graph_draw(const nw_graph *graph, int member, float uniform)
{
    int place = graph->place[member];
    if (place < 0) return -1;
    if (nw_graph_computed(graph)) {
        int degree = nw_graph_degree(graph, place), index = (int)((double)uniform * degree);
        return degree ? graph->here[nw_graph_listed(graph, place, index < degree ? index : degree - 1)] : -1;
    }
    const nw_rows *rows = &graph->lists;
    int low = rows->first[member], high = rows->first[member + 1] - 1;
    if (low > high) return -1;
    double wanted = (double)uniform * rows->until[high];
    while (low < high) {
        int middle = (low + high) / 2;
        if (rows->until[middle] > wanted)
            high = middle;
        else
            low = middle + 1;
    }
    return rows->to[low];
}
