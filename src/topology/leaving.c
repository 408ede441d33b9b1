/*
 * leaving.c - a graph without some of its members; see topology.h.
 *
 * All edges are made again from those of the whole group: members that are away are taken out in increasing order,
 * whatever order they left in, so that everybody who knows of the same members has the same graph. Graphs of one whole
 * that lack the same members are one object, which all who asked for it share: hundreds of virtual workers that hear of
 * a loss make its graph, and solve for its constants, once.
 */
#include "topology/topology_private.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static nw_status copy_edges(nw_edges *to, const nw_edges *from)
{
    for (int e = 0; e < from->count; e++) NW_TRY(nw_edges_add(to, from->at[e].a, from->at[e].b, from->at[e].weight));
    return NW_OK;
}

/* Of the whole group. */
static nw_status base_edges(const nw_graph *g, nw_edges *edges)
{
    NW_TRY(copy_edges(edges, &g->base));
    if (g->kind == NW_REGULAR || g->kind == NW_FILE) return NW_OK;
    nw_graph whole = {
        .kind = g->kind, .present = g->n, .rows = g->rows, .columns = g->columns, .distances = g->distances};
    for (int i = 0; i < g->n; i++)
        for (int k = 0; k < nw_graph_degree(&whole, i); k++) {
            int to = nw_graph_listed(&whole, i, k);
            if (i < to) NW_TRY(nw_edges_add(edges, i, to, 1));
        }
    nw_edges_tidy(edges);
    return NW_OK;
}

/* Takes a member's edges away; if the rest falls apart, joins those they led to, as strongly as they were to it. */
static nw_status take_away(const nw_graph *g, nw_edges *edges, int member, const bool *gone, int *around, int *root)
{
    int left = 0, count = 0;
    double weights = 0;
    for (int e = 0; e < edges->count; e++) {
        nw_edge edge = edges->at[e];
        if (edge.a != member && edge.b != member) {
            edges->at[left++] = edge;
            continue;
        }
        around[count++] = edge.a == member ? edge.b : edge.a; /* in increasing order, as edges are */
        weights += edge.weight;
    }
    edges->count = left;
    if (nw_edges_apart(edges, g->n, gone, root) < 0) return NW_OK;
    for (int i = 0; i < count && (i < count - 1 || count > 2); i++)
        NW_TRY(nw_edges_add(edges, around[i], around[(i + 1) % count], weights / count));
    nw_edges_tidy(edges);
    return NW_OK;
}

static nw_status rows_without(const nw_graph *g, const bool *away, nw_rows *rows)
{
    NW_AUTOFREE bool *gone = NULL;
    NW_AUTOFREE int *room = NULL;
    NW_NEW(gone, g->n, "a graph of %d members", g->n);
    NW_NEW(room, 2 * g->n, "a graph of %d members", g->n);
    nw_edges edges = {0};
    NW_TRY_OR(base_edges(g, &edges), free(edges.at));
    for (int i = 0; i < g->n; i++) {
        if (!away[i]) continue;
        gone[i] = true;
        NW_TRY_OR(take_away(g, &edges, i, gone, room, room + g->n), free(edges.at));
    }
    NW_TRY_OR(nw_rows_make(rows, &edges, g->n), nw_rows_free(rows));
    return NW_OK;
}

/* After a failure nothing has changed. */
static nw_status leave(nw_graph *g, const bool *away)
{
    nw_rows rows = {0};
    if (!nw_graph_closes(g)) NW_TRY(rows_without(g, away, &rows));
    nw_rows_free(&g->lists);
    g->lists = rows;
    g->present = 0;
    for (int i = 0; i < g->n; i++) {
        g->place[i] = away[i] ? -1 : g->present;
        if (!away[i]) g->here[g->present++] = i;
    }
    g->matching_round = -1;
    return NW_OK;
}

nw_status nw_graph_drop(nw_graph *graph, int member)
{
    NW_AUTOFREE bool *away = NULL;
    if (!nw_graph_has(graph, member)) return NW_OK;
    NW_NEW(away, graph->n, "a graph of %d members", graph->n);
    for (int i = 0; i < graph->n; i++) away[i] = i == member || graph->place[i] < 0;
    return leave(graph, away);
}

/* ---- shared ---- */

static bool lacks(const nw_graph *g, const bool *away)
{
    for (int i = 0; i < g->n; i++)
        if (away[i] != (g->place[i] < 0)) return false;
    return true;
}

/* All but the lists, which leave() makes. */
static nw_status copy(nw_graph *to, const nw_graph *from)
{
    size_t bytes = (size_t)from->n * sizeof(int);
    *to = (nw_graph){.kind = from->kind,
                     .seed = from->seed,
                     .n = from->n,
                     .rows = from->rows,
                     .columns = from->columns,
                     .distances = from->distances,
                     .users = 1};
    NW_TRY(nw_text_copy(&to->name, from->name));
    NW_TRY(copy_edges(&to->base, &from->base));
    NW_NEW(to->here, from->n, "a graph of %d members", from->n);
    NW_NEW(to->place, from->n, "a graph of %d members", from->n);
    NW_NEW(to->mates, from->n, "a graph of %d members", from->n);
    memcpy(to->here, from->here, bytes);
    memcpy(to->place, from->place, bytes);
    return NW_OK;
}

nw_status nw_graph_without(nw_graph *whole, const bool *away, nw_graph **rest)
{
    *rest = whole;
    if (lacks(whole, away)) return NW_OK;
    for (nw_graph *g = whole->rests; g; g = g->next)
        if (lacks(g, away)) {
            g->users++;
            *rest = g;
            return NW_OK;
        }
    nw_graph *g;
    NW_NEW(g, 1, "a graph of %d members", whole->n);
    NW_TRY_OR(copy(g, whole), nw_graph_free(g));
    NW_TRY_OR(leave(g, away), nw_graph_free(g));
    g->whole = whole;
    g->next = whole->rests;
    *rest = whole->rests = g;
    return NW_OK;
}

void nw_graph_release(nw_graph *rest)
{
    if (!rest || !rest->whole || --rest->users > 0) return;
    nw_graph **at = &rest->whole->rests;
    while (*at != rest) at = &(*at)->next;
    *at = rest->next;
    nw_graph_free(rest);
}
