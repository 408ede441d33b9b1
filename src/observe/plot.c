/*
 * plot.c - draws line charts as SVG; see plot.h.
 *
 * A linear axis has ticks at multiples of 1, 2 or 5 times a power of ten, seven at most, and goes from tick to tick. A
 * logarithmic one has ticks at powers of ten, and where it spans few of them, also at 2 and 5 times these. The
 * legend stands right of the axes and takes the width that its names need; the picture is as wide for all plots, and
 * grows in height where there are many curves.
 *
 * Coordinates beyond LARGEST, and positive ones below its inverse on a logarithmic axis, count as not finite, so that
 * no difference of two overflows.
 */
#include "observe/plot.h"

#include "observe/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 760,
    LEFT = 72, /* of the axes */
    TOP = 64,
    LEAST_HEIGHT = 300, /* of the area between the axes */
    BELOW = 58,         /* ticks and label of the x axis */
    LEGEND_GAP = 18,
    LEGEND_LINE = 28, /* a sample of the curve */
    LEGEND_ROW = 19,
    LEGEND_LEAST = 90,
    LEGEND_MOST = 300,
    MOST_TICKS = 64,
};
static const double LARGEST = 1e300, LETTER = 6.7; /* mean width of a letter of 12 px, rather wide */

static const char *const colours[NW_PLOT_COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#b8518f", "#c98600",
                                                     "#35a2d5", "#7a5bb0", "#8a4b32", "#3d3d3d", "#8f9a1f"};

typedef struct axis {
    bool logarithmic;
    double low, high; /* of the drawn range */
    double from, to;  /* pixels */
    double tick[MOST_TICKS];
    int ticks, decimals;
} axis;

typedef struct canvas {
    FILE *out;
    const nw_plot *plot;
    axis x, y;
    int right, bottom; /* of the area between the axes */
} canvas;

/* ---- ranges and ticks -------------------------------------------------------------------------------------------- */

static bool shown(double value, bool logarithmic)
{
    return isfinite(value) && fabs(value) <= LARGEST && (!logarithmic || value >= 1 / LARGEST);
}

static bool curve_shows(const nw_plot *plot, const nw_plot_curve *curve, int i)
{
    return shown(curve->x[i], plot->x.logarithmic) && shown(curve->y[i], plot->y.logarithmic);
}

static void widen(axis *a, double value)
{
    a->low = value < a->low ? value : a->low;
    a->high = value > a->high ? value : a->high;
}

/* 1, 2 or 5 times a power of ten, the first that is not below. */
static double round_up(double value)
{
    double power = pow(10, floor(log10(value)));
    for (int i = 0; i < 3; i++) {
        static const double steps[] = {1, 2, 5};
        if (steps[i] * power >= value * (1 - 1e-9)) return steps[i] * power;
    }
    return 10 * power;
}

static void tick_linear(axis *a)
{
    double size = fmax(fabs(a->low), fabs(a->high));
    if (a->high - a->low <= 1e-9 * size || a->high == a->low) { /* all the same: room around it */
        double room = size > 0 ? 0.5 * size : 0.5;
        a->low -= room;
        a->high += room;
    }
    double step = round_up((a->high - a->low) / 6);
    double first = floor(a->low / step + 1e-9), last = ceil(a->high / step - 1e-9);
    a->low = first * step;
    a->high = last * step;
    for (double i = first; i <= last && a->ticks < MOST_TICKS; i++) a->tick[a->ticks++] = i * step + 0.0;
    a->decimals = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
}

static void tick_logarithmic(axis *a)
{
    int first = (int)floor(log10(a->low) + 1e-9), last = (int)ceil(log10(a->high) - 1e-9);
    if (last <= first) last = first + 1;
    bool fine = last - first <= 3;
    int every = (last - first) / 10 + 1;
    static const double parts[] = {1, 2, 5};
    double low = pow(10, first), high = pow(10, last);
    for (int i = first; i <= last; i += fine ? 1 : every)
        for (int k = 0; k < (fine && i < last ? 3 : 1) && a->ticks < MOST_TICKS; k++) {
            double tick = parts[k] * pow(10, i);
            if (tick <= a->low * (1 + 1e-9)) low = tick;
            if (tick >= a->high * (1 - 1e-9) && tick < high) high = tick;
            a->tick[a->ticks++] = tick;
        }
    if (high <= low) high = pow(10, last);
    a->low = low;
    a->high = high;
    int kept = 0; /* those inside */
    for (int i = 0; i < a->ticks; i++)
        if (a->tick[i] >= low * (1 - 1e-9) && a->tick[i] <= high * (1 + 1e-9)) a->tick[kept++] = a->tick[i];
    a->ticks = kept;
}

static axis make_axis(const nw_plot *plot, bool is_x)
{
    const nw_plot_axis *asked = is_x ? &plot->x : &plot->y;
    axis a = {.logarithmic = asked->logarithmic, .low = INFINITY, .high = -INFINITY};
    if ((asked->low != 0 || asked->high != 0) && asked->low <= asked->high) {
        if (shown(asked->low, a.logarithmic)) widen(&a, asked->low);
        if (shown(asked->high, a.logarithmic)) widen(&a, asked->high);
    }
    for (int c = 0; c < plot->count; c++)
        for (int i = 0; i < plot->curves[c].count; i++)
            if (curve_shows(plot, &plot->curves[c], i)) widen(&a, is_x ? plot->curves[c].x[i] : plot->curves[c].y[i]);
    if (a.high < a.low) {
        a.low = a.logarithmic ? 1 : 0;
        a.high = a.logarithmic ? 10 : 1;
    }
    if (a.logarithmic)
        tick_logarithmic(&a);
    else
        tick_linear(&a);
    return a;
}

static double place(const axis *a, double value)
{
    double share = a->logarithmic ? (log10(value) - log10(a->low)) / (log10(a->high) - log10(a->low))
                                  : (value - a->low) / (a->high - a->low);
    return a->from + share * (a->to - a->from);
}

static void tick_text(const axis *a, double value, char text[32])
{
    if (a->logarithmic || fabs(value) >= 1e7 || a->decimals > 6)
        snprintf(text, 32, "%.4g", value);
    else
        snprintf(text, 32, "%.*f", a->decimals, value);
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

static void text_at(FILE *out, double x, double y, const char *style, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, style);
    nw_svg_text(out, text);
    fputs("</text>\n", out);
}

static void draw_head(const canvas *c, int height)
{
    fprintf(c->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
            "<style>text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px;fill:#222}"
            ".title{font-size:17px;font-weight:bold}.note{fill:#555}.x{text-anchor:middle}.y{text-anchor:end}"
            ".label{font-size:13px;text-anchor:middle}.grid{stroke:#e4e4e4}.frame{stroke:#666;fill:none}"
            ".curve{fill:none;stroke-width:2;stroke-linejoin:round}.dashed{stroke-width:1.6;stroke-dasharray:6 4}"
            "</style>\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    if (c->plot->title) text_at(c->out, LEFT, 28, "title", c->plot->title);
    if (c->plot->note) text_at(c->out, LEFT, 47, "note", c->plot->note);
}

static void draw_axes(const canvas *c)
{
    FILE *out = c->out;
    char text[32];
    for (int i = 0; i < c->x.ticks; i++) {
        double x = place(&c->x, c->x.tick[i]);
        fprintf(out, "<path class=\"grid\" d=\"M%.1f,%d V%d\"/>\n", x, TOP, c->bottom);
        tick_text(&c->x, c->x.tick[i], text);
        text_at(out, x, c->bottom + 18, "x", text);
    }
    for (int i = 0; i < c->y.ticks; i++) {
        double y = place(&c->y, c->y.tick[i]);
        fprintf(out, "<path class=\"grid\" d=\"M%d,%.1f H%d\"/>\n", LEFT, y, c->right);
        tick_text(&c->y, c->y.tick[i], text);
        text_at(out, LEFT - 8, y + 4, "y", text);
    }
    fprintf(out, "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT, TOP, c->right - LEFT,
            c->bottom - TOP);
    if (c->plot->x.label) text_at(out, 0.5 * (LEFT + c->right), c->bottom + 42, "label", c->plot->x.label);
    if (c->plot->y.label) {
        double middle = 0.5 * (TOP + c->bottom);
        fprintf(out, "<g transform=\"translate(20 %.1f) rotate(-90)\">", middle);
        text_at(out, 0, 0, "label", c->plot->y.label);
        fputs("</g>\n", out);
    }
}

static const char *colour_of(const nw_plot_curve *curve)
{
    int index = curve->colour % NW_PLOT_COLOURS;
    return colours[index < 0 ? index + NW_PLOT_COLOURS : index];
}

static void draw_dot(const canvas *c, const nw_plot_curve *curve, double x, double y)
{
    fprintf(c->out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"3\" fill=\"%s\" stroke=\"%s\"/>\n", x, y,
            curve->dashed ? "#fff" : colour_of(curve), colour_of(curve));
}

/* Lines between neighbours that can be shown; what has none on either side would be seen nowhere, so it gets a dot. */
static void draw_curve(const canvas *c, const nw_plot_curve *curve)
{
    bool begun = false;
    for (int i = 0; i < curve->count; i++) {
        if (!curve_shows(c->plot, curve, i)) continue;
        bool joins = i > 0 && curve_shows(c->plot, curve, i - 1);
        if (!begun)
            fprintf(c->out, "<path class=\"curve%s\" stroke=\"%s\" d=\"", curve->dashed ? " dashed" : "",
                    colour_of(curve));
        fprintf(c->out, "%s%c%.2f,%.2f", begun ? " " : "", joins ? 'L' : 'M', place(&c->x, curve->x[i]),
                place(&c->y, curve->y[i]));
        begun = true;
    }
    if (begun) fputs("\"/>\n", c->out);
    for (int i = 0; i < curve->count; i++) {
        if (!curve_shows(c->plot, curve, i)) continue;
        bool alone = (i == 0 || !curve_shows(c->plot, curve, i - 1)) &&
                     (i + 1 == curve->count || !curve_shows(c->plot, curve, i + 1));
        if (curve->dots || alone) draw_dot(c, curve, place(&c->x, curve->x[i]), place(&c->y, curve->y[i]));
    }
}

static void draw_legend(const canvas *c)
{
    double x = c->right + LEGEND_GAP, y = TOP + 10;
    for (int i = 0; i < c->plot->count; i++) {
        const nw_plot_curve *curve = &c->plot->curves[i];
        if (!curve->name) continue;
        fprintf(c->out, "<path class=\"curve%s\" stroke=\"%s\" d=\"M%.1f,%.1f h%d\"/>\n",
                curve->dashed ? " dashed" : "", colour_of(curve), x, y - 4, LEGEND_LINE);
        text_at(c->out, x + LEGEND_LINE + 8, y, "name", curve->name);
        y += LEGEND_ROW;
    }
}

/* The width of the legend, and how many rows it has. */
static int legend_width(const nw_plot *plot, int *rows)
{
    size_t longest = 0;
    *rows = 0;
    for (int i = 0; i < plot->count; i++) {
        if (!plot->curves[i].name) continue;
        size_t length = strlen(plot->curves[i].name);
        longest = length > longest ? length : longest;
        ++*rows;
    }
    if (*rows == 0) return 0;
    double width = LEGEND_GAP + LEGEND_LINE + 8 + LETTER * (double)longest;
    return width < LEGEND_LEAST ? LEGEND_LEAST : width > LEGEND_MOST ? LEGEND_MOST : (int)width;
}

static void draw(FILE *out, const void *drawing)
{
    const nw_plot *plot = drawing;
    int rows, legend = legend_width(plot, &rows);
    canvas c = {.out = out, .plot = plot, .x = make_axis(plot, true), .y = make_axis(plot, false)};
    c.right = WIDTH - 22 - legend;
    c.bottom = TOP + (rows * LEGEND_ROW > LEAST_HEIGHT ? rows * LEGEND_ROW : LEAST_HEIGHT);
    c.x.from = LEFT, c.x.to = c.right;
    c.y.from = c.bottom, c.y.to = TOP;
    draw_head(&c, c.bottom + BELOW);
    draw_axes(&c);
    for (int i = 0; i < plot->count; i++) draw_curve(&c, &plot->curves[i]);
    draw_legend(&c);
    fputs("</svg>\n", out);
}

nw_status nw_plot_write(const nw_plot *plot, const char *path) { return nw_svg_write(path, draw, plot); }
