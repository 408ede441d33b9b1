/* print.c - a plan as tables, as JSON, and its map as a drawing; see forecast.h. */
#include "base/json.h"
#include "observe/svg.h"
#include "forecast/forecast.h"

#include <stdlib.h>
#include <string.h>

static const char *collective_name(nw_collective c)
{
    return c == NW_COLLECTIVE_GATHER ? "gather" : c == NW_COLLECTIVE_OWNERS ? "owners" : "its own";
}

/* "940 Mbit/s" */
static void print_bandwidth(double bits, char text[32])
{
    if (bits <= 0)
        snprintf(text, 32, "unlimited");
    else if (bits < 1e9)
        snprintf(text, 32, "%.4g Mbit/s", bits * 1e-6);
    else
        snprintf(text, 32, "%.4g Gbit/s", bits * 1e-9);
}

/* ---- tables ---- */

static double dense_step(const nw_forecast_row *rows, int count, int delay)
{
    for (int i = 0; i < count; i++)
        if (rows[i].codec == 0 && rows[i].delay == delay) return rows[i].time.step;
    return 0;
}

static void print_rows(const nw_forecast_profile *p, const nw_forecast_row *rows, int count, int delay, FILE *out)
{
    double dense = dense_step(rows, count, delay);
    fprintf(out, "\ndelay %d%s\n", delay, delay ? ": a gradient is exchanged while the next one is computed" : "");
    fprintf(out, "  %-11s %-8s %10s %11s %10s %10s %10s %9s\n", "codec", "how", "step ms", "of dense", "MB sent",
            "wire ms", "encode ms", "decode ms");
    for (int i = 0; i < count; i++) {
        const nw_forecast_row *r = &rows[i];
        if (r->delay != delay) continue;
        fprintf(out, "  %-11s %-8s %10.2f %10.2fx %10.3f %10.2f %10.2f %9.2f\n", nw_forecast_codec_at(r->codec)->name,
                p->codecs[r->codec]->ops->rounds ? "summed" : collective_name(r->collective), 1e3 * r->time.step,
                dense / r->time.step, 1e-6 * r->time.sent, 1e3 * r->time.wire, 1e3 * r->time.encode,
                1e3 * r->time.decode);
    }
}

static void print_tensors(const nw_forecast_profile *p, const nw_forecast_options *o, FILE *out)
{
    fprintf(out, "\ntensor by tensor, if nothing hides the wire\n  %-44s %10s  %-11s %10s\n", "tensor", "floats",
            "best", "saves ms");
    for (int t = 0; t < p->segments->count; t++) {
        double saved;
        int best = nw_forecast_best_for(p, o, t, &saved);
        fprintf(out, "  %-44s %10zu  %-11s %10.3f\n", p->segments->at[t].name, p->segments->at[t].count,
                nw_forecast_codec_at(best)->name, 1e3 * saved);
    }
}

static void print_map(const nw_forecast_map *map, FILE *out)
{
    bool used[64] = {false};
    fprintf(out, "\nshortest step without delay; how many times as fast as dense\n  %5s", "ranks");
    for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) {
        char text[32];
        print_bandwidth(map->bits_per_second[b], text);
        *strchr(text, '/') = 0;
        fprintf(out, " %9s", text);
    }
    fprintf(out, "\n");
    for (int r = 0; r < NW_FORECAST_RANKS; r++) {
        fprintf(out, "  %5d", map->ranks[r]);
        for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) {
            int winner = map->winner[r][b];
            used[winner] = true;
            fprintf(out, "  %c %6.2f", nw_forecast_codec_at(winner)->letter, map->gain[r][b]);
        }
        fprintf(out, "\n");
    }
    const char *before = "  ";
    for (int c = 0; c < nw_forecast_codec_count(); c++) {
        if (!used[c]) continue;
        fprintf(out, "%s%c %s", before, nw_forecast_codec_at(c)->letter, nw_forecast_codec_at(c)->name);
        before = "; ";
    }
    fprintf(out, "\n");
}

static const nw_forecast_row *first_of(const nw_forecast_row *rows, int count, int delay)
{
    while (count > 0 && rows->delay != delay) rows++, count--;
    return rows;
}

static void print_verdict(const nw_forecast_profile *p, const nw_forecast_options *o, const nw_forecast_row *rows,
                          int count, FILE *out)
{
    const nw_forecast_row *best = first_of(rows, count, 0);
    double dense = dense_step(rows, count, 0);
    char text[32];
    print_bandwidth(8 * o->link.bytes_per_second, text);
    if (dense < NW_FORECAST_PAYS * best->time.step) {
        fprintf(out, "\nNo codec pays between %d ranks at %s: send gradients as they are.\n", o->link.members, text);
        return;
    }
    bool chosen = best->collective != NW_COLLECTIVE_AUTO && !p->codecs[best->codec]->ops->rounds;
    fprintf(
        out,
        "\nBetween %d ranks at %s, %s makes a step %.2f times as fast as dense:\n  nowait train --exchange allreduce %s",
        o->link.members, text, nw_forecast_codec_at(best->codec)->name, dense / best->time.step,
        nw_forecast_codec_at(best->codec)->options);
    if (chosen) fprintf(out, " --collective %s", collective_name(best->collective));
    fprintf(out, "\nThat is time, not accuracy: a method that loses more may need more epochs.\n");
}

nw_status nw_forecast_print(const nw_forecast_profile *p, const nw_forecast_options *o, FILE *out)
{
    NW_AUTOFREE nw_forecast_row *rows = NULL;
    nw_forecast_map map;
    int count;
    char text[32];
    NW_TRY(nw_forecast_rows(p, o, &rows, &count));
    NW_TRY(nw_forecast_make_map(p, o, &map));
    print_bandwidth(8 * o->link.bytes_per_second, text);
    fprintf(out,
            "%s, batch %d a rank, %d thread%s, %s: a pass takes %.2f ms, an update %.2f ms, %.1f MB of gradient\n"
            "%d ranks, %s each way, latency %.0f us, %.0f us a message\n",
            o->model, o->batch, o->threads, o->threads == 1 ? "" : "s", o->isa, 1e3 * p->pass, 1e3 * p->update,
            4e-6 * (double)p->segments->floats, o->link.members, text, 1e6 * o->link.latency, 1e6 * o->link.overhead);
    if (o->measured_by > 1) fprintf(out, "measured by %d ranks at once\n", o->measured_by);
    for (int delay = 0; delay <= 1; delay++) print_rows(p, rows, count, delay, out);
    print_tensors(p, o, out);
    print_map(&map, out);
    print_verdict(p, o, rows, count, out);
    return o->svg[0] ? nw_forecast_draw_map(&map, o, o->svg) : NW_OK;
}

/* ---- JSON ---- */

static void put_row(nw_json *json, const nw_forecast_profile *p, const nw_forecast_row *r)
{
    nw_json_object(json);
    nw_json_put_string(json, "codec", nw_forecast_codec_at(r->codec)->name);
    nw_json_put_string(json, "options", nw_forecast_codec_at(r->codec)->options);
    nw_json_put_string(json, "collective",
                       p->codecs[r->codec]->ops->rounds ? "summed" : collective_name(r->collective));
    nw_json_put_int(json, "delay", r->delay);
    nw_json_put_double(json, "step_seconds", r->time.step);
    nw_json_put_double(json, "sent_bytes", r->time.sent);
    nw_json_put_double(json, "wire_seconds", r->time.wire);
    nw_json_put_double(json, "encode_seconds", r->time.encode);
    nw_json_put_double(json, "decode_seconds", r->time.decode);
    nw_json_object_end(json);
}

static void put_map(nw_json *json, const nw_forecast_map *map)
{
    nw_json_put_array(json, "map");
    for (int r = 0; r < NW_FORECAST_RANKS; r++)
        for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) {
            nw_json_object(json);
            nw_json_put_int(json, "ranks", map->ranks[r]);
            nw_json_put_double(json, "bits_per_second", map->bits_per_second[b]);
            nw_json_put_string(json, "codec", nw_forecast_codec_at(map->winner[r][b])->name);
            nw_json_put_double(json, "over_dense", map->gain[r][b]);
            nw_json_object_end(json);
        }
    nw_json_array_end(json);
}

nw_status nw_forecast_print_json(const nw_forecast_profile *p, const nw_forecast_options *o, FILE *out)
{
    NW_AUTOFREE nw_forecast_row *rows = NULL;
    nw_forecast_map map;
    int count;
    NW_TRY(nw_forecast_rows(p, o, &rows, &count));
    NW_TRY(nw_forecast_make_map(p, o, &map));
    nw_json json = nw_json_begin(out, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "model", o->model);
    nw_json_put_int(&json, "batch_size", o->batch);
    nw_json_put_int(&json, "ranks", o->link.members);
    nw_json_put_double(&json, "bits_per_second", 8 * o->link.bytes_per_second);
    nw_json_put_int(&json, "measured_by", o->measured_by);
    nw_json_put_double(&json, "pass_seconds", p->pass);
    nw_json_put_double(&json, "update_seconds", p->update);
    nw_json_put_array(&json, "steps");
    for (int i = 0; i < count; i++) put_row(&json, p, &rows[i]);
    nw_json_array_end(&json);
    nw_json_put_array(&json, "tensors");
    for (int t = 0; t < p->segments->count; t++) {
        double saved;
        int best = nw_forecast_best_for(p, o, t, &saved);
        nw_json_object(&json);
        nw_json_put_string(&json, "name", p->segments->at[t].name);
        nw_json_put_int(&json, "floats", (int64_t)p->segments->at[t].count);
        nw_json_put_string(&json, "codec", nw_forecast_codec_at(best)->name);
        nw_json_put_double(&json, "saved_seconds", saved);
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    put_map(&json, &map);
    nw_json_object_end(&json);
    nw_json_end(&json);
    return o->svg[0] ? nw_forecast_draw_map(&map, o, o->svg) : NW_OK;
}

/* ---- the drawing ---- */

typedef struct drawing {
    const nw_forecast_map *map;
    const nw_forecast_options *o;
} drawing;

enum { CELL_W = 92, CELL_H = 40, LEFT = 80, TOP = 78 };

static const char *const colours[] = {"#e8e8e8", "#bcd7f0", "#8fbbe0", "#f6d8a8", "#f0b878", "#e59b6a",
                                      "#c9a0d0", "#a8d5a2", "#d5e8a0", "#7fc0a0", "#e58a8a"};

static void draw_cell(FILE *out, const nw_forecast_map *m, int r, int b)
{
    int x = LEFT + b * CELL_W, y = TOP + r * CELL_H, winner = m->winner[r][b];
    fprintf(out, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\" stroke=\"#fff\"/>\n", x, y, CELL_W,
            CELL_H, colours[(size_t)winner % (sizeof colours / sizeof colours[0])]);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", x + CELL_W / 2, y + (winner > 0 ? 17 : 24));
    nw_svg_text(out, nw_forecast_codec_at(winner)->name);
    fprintf(out, "</text>\n");
    if (winner > 0)
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#444\">%.2fx</text>\n", x + CELL_W / 2,
                y + 32, m->gain[r][b]);
}

static void draw_axes(FILE *out, const nw_forecast_map *m)
{
    for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) {
        char text[32];
        print_bandwidth(m->bits_per_second[b], text);
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", LEFT + b * CELL_W + CELL_W / 2,
                TOP - 8, text);
    }
    for (int r = 0; r < NW_FORECAST_RANKS; r++)
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d ranks</text>\n", LEFT - 8,
                TOP + r * CELL_H + CELL_H / 2 + 4, m->ranks[r]);
}

static void draw_map(FILE *out, const void *context)
{
    const drawing *d = context;
    int width = LEFT + NW_FORECAST_BANDWIDTHS * CELL_W + 20, height = TOP + NW_FORECAST_RANKS * CELL_H + 20;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height);
    fprintf(out, "<text x=\"%d\" y=\"22\" font-size=\"16\">", LEFT);
    nw_svg_text(out, d->o->model);
    fprintf(out, ": the codec with the shortest step</text>\n<text x=\"%d\" y=\"42\" fill=\"#555\">", LEFT);
    fprintf(out, "predicted, without delay; batch %d a rank, %d %s, ", d->o->batch, d->o->threads,
            d->o->threads == 1 ? "thread" : "threads");
    nw_svg_text(out, d->o->isa);
    fprintf(out, "; below: times as fast as dense</text>\n");
    draw_axes(out, d->map);
    for (int r = 0; r < NW_FORECAST_RANKS; r++)
        for (int b = 0; b < NW_FORECAST_BANDWIDTHS; b++) draw_cell(out, d->map, r, b);
    fprintf(out, "</svg>\n");
}

nw_status nw_forecast_draw_map(const nw_forecast_map *map, const nw_forecast_options *o, const char *path)
{
    return nw_svg_write(path, draw_map, &(drawing){map, o});
}
