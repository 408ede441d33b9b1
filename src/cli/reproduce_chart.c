/*
 * reproduce_chart.c - results beside what was published: as a table for people, as JSON, and drawn. See reproduce.h.
 *
 * A table has a column for each place (epoch, number of workers) that something was published for, and one for the last
 * place reached here; two rows a line, "here" and "published". A number that is not there is a dash.
 */
#define _GNU_SOURCE 1
#include "cli/reproduce.h"

#include "base/file.h"
#include "base/json.h"
#include "observe/plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 16 };

nw_status nw_chart_line_add(nw_chart *chart, const nw_published *published, nw_chart_line **line, const char *format,
                            ...)
{
    NW_FAIL_IF(chart->count == NW_CHART_LINES, NW_E_INTERNAL, "a chart has room for %d lines", NW_CHART_LINES);
    nw_chart_line *l = &chart->lines[chart->count++];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(l->name, sizeof l->name, format, arguments);
    va_end(arguments);
    if (line) *line = l;
    if (!published) return NW_OK;
    l->source = published->figure->source;
    for (int i = 0; i < published->figure->count; i++)
        NW_TRY(nw_curve_add(&l->published, published->figure->x[i], published->y[i]));
    return NW_OK;
}

void nw_chart_free(nw_chart *chart)
{
    for (int i = 0; i < chart->count; i++) {
        nw_curve_free(&chart->lines[i].here);
        nw_curve_free(&chart->lines[i].published);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* In order, each once; beyond MOST_COLUMNS they are left out. */
static void add_column(double *columns, int *count, double x)
{
    int at = 0;
    while (at < *count && columns[at] < x) at++;
    if ((at < *count && columns[at] == x) || *count == MOST_COLUMNS) return;
    memmove(columns + at + 1, columns + at, (size_t)(*count - at) * sizeof *columns);
    columns[at] = x;
    ++*count;
}

static int columns_of(const nw_chart *chart, double *columns)
{
    int count = 0;
    for (int i = 0; i < chart->count; i++)
        for (int k = 0; k < chart->lines[i].published.count; k++)
            add_column(columns, &count, chart->lines[i].published.x[k]);
    for (int i = 0; i < chart->count; i++) {
        const nw_curve *here = &chart->lines[i].here;
        if (here->count > 0) add_column(columns, &count, here->x[here->count - 1]);
    }
    return count;
}

static void print_row(FILE *out, const nw_chart *chart, const char *name, const char *what, const nw_curve *curve,
                      const double *columns, int count)
{
    fprintf(out, "%-26s %-10s", name, what);
    for (int c = 0; c < count; c++) {
        char number[32] = "-";
        double value = nw_curve_at(curve, columns[c]);
        if (isfinite(value)) snprintf(number, sizeof number, "%.*f", chart->decimals, value);
        fprintf(out, " %8s", number);
    }
    fputc('\n', out);
}

static void print_chart(FILE *out, const nw_chart *chart)
{
    double columns[MOST_COLUMNS + 1];
    int count = columns_of(chart, columns);
    fprintf(out, "\n%s\n%-26s %-10s", chart->title, chart->y, chart->x);
    for (int c = 0; c < count; c++) fprintf(out, " %8g", columns[c]);
    fputc('\n', out);
    for (int i = 0; i < chart->count; i++) {
        const nw_chart_line *line = &chart->lines[i];
        print_row(out, chart, line->name, "here", &line->here, columns, count);
        if (line->source) print_row(out, chart, "", "published", &line->published, columns, count);
    }
    const char *said = "";
    for (int i = 0; i < chart->count; i++) {
        const char *source = chart->lines[i].source;
        if (!source || strcmp(source, said) == 0) continue;
        fprintf(out, "published: %s\n", source);
        said = source;
    }
}

void nw_charts_print(const nw_chart_head *head, const nw_chart *charts, int count, FILE *out)
{
    fprintf(out, "%s, scale %s\n", head->experiment, head->scale);
    if (*head->remark) fprintf(out, "note: %s\n", head->remark);
    for (int i = 0; i < count; i++) print_chart(out, &charts[i]);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_curve(nw_json *json, const char *key, const nw_curve *curve)
{
    nw_json_key(json, key);
    nw_json_array(json);
    for (int i = 0; i < curve->count; i++) {
        nw_json_array(json);
        nw_json_double(json, curve->x[i]);
        nw_json_double(json, curve->y[i]);
        nw_json_array_end(json);
    }
    nw_json_array_end(json);
}

static void write_json(const nw_chart_head *head, const nw_chart *charts, int count, FILE *out)
{
    nw_json json = nw_json_begin(out, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "experiment", head->experiment);
    nw_json_put_string(&json, "scale", head->scale);
    nw_json_put_string(&json, "remark", *head->remark ? head->remark : NULL);
    nw_json_key(&json, "charts");
    nw_json_array(&json);
    for (int c = 0; c < count; c++) {
        nw_json_object(&json);
        nw_json_put_string(&json, "name", charts[c].file);
        nw_json_put_string(&json, "title", charts[c].title);
        nw_json_put_string(&json, "x", charts[c].x);
        nw_json_put_string(&json, "y", charts[c].y);
        nw_json_key(&json, "lines");
        nw_json_array(&json);
        for (int i = 0; i < charts[c].count; i++) {
            const nw_chart_line *line = &charts[c].lines[i];
            nw_json_object(&json);
            nw_json_put_string(&json, "name", line->name);
            nw_json_put_string(&json, "source", line->source);
            put_curve(&json, "here", &line->here);
            put_curve(&json, "published", &line->published);
            nw_json_object_end(&json);
        }
        nw_json_array_end(&json);
        nw_json_object_end(&json);
    }
    nw_json_array_end(&json);
    nw_json_object_end(&json);
    nw_json_end(&json);
}

/* ---- drawings and files ------------------------------------------------------------------------------------------ */

static nw_status draw(const nw_chart_head *head, const nw_chart *chart, const char *path)
{
    nw_plot_curve curves[2 * NW_CHART_LINES];
    char names[NW_CHART_LINES][96], note[640];
    int count = 0;
    for (int i = 0; i < chart->count; i++) {
        const nw_chart_line *line = &chart->lines[i];
        nw_plot_curve curve = {.name = line->name, .colour = i, .dots = !chart->logarithmic};
        if (line->here.count > 0) {
            curves[count] = curve;
            curves[count].x = line->here.x;
            curves[count].y = line->here.y;
            curves[count++].count = line->here.count;
        }
        if (line->published.count == 0) continue;
        snprintf(names[i], sizeof names[i], "%s, published", line->name);
        curve.name = line->here.count > 0 ? "published" : names[i];
        curve.dashed = true;
        curve.x = line->published.x;
        curve.y = line->published.y;
        curve.count = line->published.count;
        curves[count++] = curve;
    }
    snprintf(note, sizeof note, "scale %s%s%s", head->scale, *head->remark ? "; " : "", head->remark);
    return nw_plot_write(&(nw_plot){.title = chart->title,
                                    .note = note,
                                    .x = {.label = chart->x, .logarithmic = chart->logarithmic},
                                    .y = {.label = chart->y},
                                    .curves = curves,
                                    .count = count},
                         path);
}

static nw_status save_text(const nw_chart_head *head, const nw_chart *charts, int count, const char *path,
                           void (*write)(const nw_chart_head *, const nw_chart *, int, FILE *))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    NW_FAIL_IF(!out, NW_E_MEMORY, "no memory for '%s'", path);
    write(head, charts, count, out);
    nw_status status = fclose(out) == 0 ? NW_OK : NW_FAIL(NW_E_MEMORY, "no memory for '%s'", path);
    if (status == NW_OK) status = nw_file_replace(path, text, size);
    free(text);
    return status;
}

nw_status nw_charts_save(const nw_chart_head *head, const nw_chart *charts, int count, const char *dir)
{
    char path[1200];
    NW_TRY(nw_directory_make(dir));
    snprintf(path, sizeof path, "%s/table.txt", dir);
    NW_TRY(save_text(head, charts, count, path, nw_charts_print));
    snprintf(path, sizeof path, "%s/table.json", dir);
    NW_TRY(save_text(head, charts, count, path, write_json));
    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%s.svg", dir, charts[i].file);
        NW_TRY(draw(head, &charts[i], path));
    }
    return NW_OK;
}
