/*
 * drawing.c - draws a network as SVG; see drawing.h.
 *
 * All boxes have the same height and stand below each other with equal gaps, so a box's place follows from its number.
 */
#include "observe/drawing.h"

#include "observe/svg.h"

#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 620,
    MIDDLE = 250,    /* of the boxes */
    BOX_WIDTH = 340, /* of a box */
    BOX_HEIGHT = 52,
    GAP = 42,
    TOP = 122, /* of the first box */
    REACH = 46 /* of a shortcut beside its box */
};

static const struct {
    const char *kind, *fill, *line;
} colours[] = {
    {"reversible", "#fde3c8", "#d9822b"},     {"conv", "#dce9f7", "#4a7fb5"},   {"residual", "#dff0d8", "#5a9a4a"},
    {"pre-activation", "#e6f4f1", "#3f9a8a"}, {"linear", "#ece5f5", "#7d63a8"}, {"pool", "#f0f0f0", "#8a8a8a"},
    {"head", "#f7dfe3", "#b5566a"},           {"", "#f6f2dc", "#a08a3c"},
};

static int colour_of(const nw_drawing_stage *node)
{
    int i = node->reversible ? 0 : 1;
    while (*colours[i].kind && strcmp(colours[i].kind, node->kind)) i++;
    return node->reversible ? 0 : i;
}

static void text_at(FILE *out, int x, int y, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%d\" y=\"%d\" class=\"%s\">", x, y, style);
    nw_svg_text(out, text);
    fputs("</text>\n", out);
}

/* 1234567 as "1,234,567". */
static const char *grouped(size_t number, char text[32])
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%zu", number), at = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

static void draw_head(FILE *out, const nw_drawing *g, int height)
{
    char line[192], count[32];
    size_t parameters = 0;
    double macs = 0;
    for (int i = 0; i < g->count; i++) {
        parameters += g->nodes[i].parameters;
        macs += g->nodes[i].macs;
    }
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<style>text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#222}"
            ".title{font-size:22px;font-weight:bold}"
            ".about{font-size:13px;fill:#555}.name{font-size:14px;font-weight:bold}.kind{font-size:12px;fill:#555;"
            "text-anchor:end}.shape{font-size:12px}.count{font-size:12px;text-anchor:end}.input{font-size:13px;"
            "text-anchor:middle}.short{font-size:11px;fill:#555}.flow{stroke:#444;stroke-width:1.5;fill:none}"
            ".arc{stroke:#888;stroke-width:1.5;fill:none;stroke-dasharray:5 3}</style>\n"
            "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
            "orient=\"auto\"><path d=\"M0,0 L8,4 L0,8 z\" fill=\"#444\"/></marker></defs>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    text_at(out, MIDDLE - BOX_WIDTH / 2, 34, "title", g->title);
    snprintf(line, sizeof line, "%s parameters, %.4g million multiply-adds an image, %d stages",
             grouped(parameters, count), macs * 1e-6, g->count);
    text_at(out, MIDDLE - BOX_WIDTH / 2, 56, "about", line);
    snprintf(line, sizeof line, "image %d × %d × %d", g->c, g->h, g->w);
    text_at(out, MIDDLE, TOP - GAP + 2, "input", line);
}

/* The flow into the box whose top is y, and the way around it. */
static void draw_paths(FILE *out, const nw_drawing_stage *node, int y, bool first)
{
    int right = MIDDLE + BOX_WIDTH / 2 + REACH, above = y - 17, below = y + BOX_HEIGHT + 11, r = 12;
    fprintf(out, "<path class=\"flow\" d=\"M%d,%d V%d\" marker-end=\"url(#tip)\"/>\n", MIDDLE,
            y - GAP + (first ? 10 : 0), y);
    if (!node->shortcut) return;
    fprintf(out, "<path class=\"arc\" d=\"M%d,%d H%d Q%d,%d %d,%d V%d Q%d,%d %d,%d H%d\" marker-end=\"url(#tip)\"/>\n",
            MIDDLE, above, right - r, right, above, right, above + r, below - r, right, below, right - r, below,
            MIDDLE + 2);
    text_at(out, right + 6, y + BOX_HEIGHT / 2 + 4, "short", node->shortcut);
}

static void draw_box(FILE *out, const nw_drawing_stage *node, int y)
{
    int left = MIDDLE - BOX_WIDTH / 2, right = left + BOX_WIDTH, colour = colour_of(node);
    char line[96], count[32];
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"7\" fill=\"%s\" stroke=\"%s\"/>\n", left, y,
            BOX_WIDTH, BOX_HEIGHT, colours[colour].fill, colours[colour].line);
    text_at(out, left + 12, y + 21, "name", node->name);
    text_at(out, right - 12, y + 21, "kind", node->kind);
    snprintf(line, sizeof line, "%s%d × %d × %d", node->two_streams ? "2 streams of " : "", node->c, node->h, node->w);
    text_at(out, left + 12, y + 41, "shape", line);
    if (!node->parameters) return;
    snprintf(line, sizeof line, "%s parameters", grouped(node->parameters, count));
    text_at(out, right - 12, y + 41, "count", line);
}

static void draw(FILE *out, const void *drawing)
{
    const nw_drawing *g = drawing;
    int step = BOX_HEIGHT + GAP, height = TOP + g->count * step + 12;
    draw_head(out, g, height);
    for (int i = 0; i < g->count; i++) draw_paths(out, &g->nodes[i], TOP + i * step, i == 0);
    for (int i = 0; i < g->count; i++) draw_box(out, &g->nodes[i], TOP + i * step);
    fprintf(out, "<path class=\"flow\" d=\"M%d,%d V%d\" marker-end=\"url(#tip)\"/>\n", MIDDLE,
            TOP + g->count * step - GAP, TOP + g->count * step - 12);
    text_at(out, MIDDLE + 12, TOP + g->count * step - 14, "short", "logits");
    fputs("</svg>\n", out);
}

nw_status nw_drawing_write(const nw_drawing *drawing, const char *path) { return nw_svg_write(path, draw, drawing); }
