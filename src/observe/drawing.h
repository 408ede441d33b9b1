/*
 * drawing.h - a network drawn as one SVG file that needs nothing else.
 *
 * One box a stage, from top to bottom, with its name, kind, output shape and parameters; a path around a box is a
 * shortcut. Colours tell the kinds apart, reversible stages have their own. The caller describes the network, so this
 * knows nothing of models.
 */
#ifndef NW_OBSERVE_DRAWING_H
#define NW_OBSERVE_DRAWING_H

#include "base/status.h"

typedef struct nw_drawing_stage {
    const char *name, *kind;
    const char *shortcut; /* what goes around the stage: "identity", ...; NULL: nothing */
    bool reversible;
    bool two_streams; /* the output has two streams of this shape */
    int c, h, w;      /* of the output */
    size_t parameters;
    double macs; /* multiply-adds of one image */
} nw_drawing_stage;

typedef struct nw_drawing {
    const char *title;
    int c, h, w; /* of an image */
    const nw_drawing_stage *nodes;
    int count;
} nw_drawing;

/* NW_E_SYSTEM if the file cannot be written whole; nothing is left behind then. */
nw_status nw_drawing_write(const nw_drawing *drawing, const char *path);

#endif
