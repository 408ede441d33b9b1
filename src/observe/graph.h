/*
 * graph.h - a network drawn as one SVG file that needs nothing else.
 *
 * One box a stage, from top to bottom, with its name, kind, output shape and parameters; a path around a box is a
 * shortcut. Colours tell the kinds apart, reversible stages have their own. The caller describes the network, so this
 * knows nothing of models.
 */
#ifndef NW_OBSERVE_GRAPH_H
#define NW_OBSERVE_GRAPH_H

#include "base/status.h"

typedef struct nw_graph_node {
    const char *name, *kind;
    const char *shortcut; /* what goes around the stage: "identity", ...; NULL: nothing */
    bool reversible;
    bool two_streams; /* the output has two streams of this shape */
    int c, h, w;      /* of the output */
    size_t parameters;
    double macs; /* multiply-adds of one image */
} nw_graph_node;

typedef struct nw_graph {
    const char *title;
    int c, h, w; /* of an image */
    const nw_graph_node *nodes;
    int count;
} nw_graph;

/* NW_E_SYSTEM if the file cannot be written whole; nothing is left behind then. */
nw_status nw_graph_write(const nw_graph *graph, const char *path);

#endif
