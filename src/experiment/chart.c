/*
 * chart.c - results beside what was published: as a table for people, as JSON, and drawn. See paper.h.
 *
 * A table has a column for each place (epoch, number of workers) that something was published for, and one for the last
 * place reached here; rows of a line are "here", "+-", half of the 95 % interval where there are several seeds, and
 * "published". A number that is not there is a dash.
 */
#include "experiment/paper.h"

#include "base/json.h"
#include "config/yaml_get.h"
#include "observe/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 16 };

typedef struct line {
    const char *name;
    nw_curve here, published;
    nw_curve half; /* of the intervals of here, at the same places; empty: there is one seed */
} line;

typedef struct chart {
    const char *file, *title, *of, *x, *y, *value, *along, *source; /* as paper.h has them */
    const nw_yaml *at, *published;
    int64_t decimals;
    double times, along_times;
    bool speed_up, logarithmic, by_epoch; /* by_epoch: every run is a line */
    line *lines;
    int count;
} chart;

typedef struct charts {
    const nw_experiment *experiment;
    const char *scale;
    const nw_trials *trials;
    chart *at;
    int count;
} charts;

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static nw_status check_numbers(const char *file, const nw_yaml *list, int count)
{
    NW_YAML_FAIL_IF(list->kind != NW_YAML_LIST || list->count != count, file, list,
                    "'%s' takes a list of %d numbers, one for each of 'at'", list->key, count);
    for (const nw_yaml *n = list->first; n; n = n->next) {
        double value;
        nw_complaint complaint;
        const char *wrong = nw_units_number(n->text, -1e12, 1e12, &value, &complaint);
        NW_YAML_FAIL_IF(wrong, file, n, "'%s': %s", list->key, wrong);
    }
    return NW_OK;
}

static nw_status read_chart(const char *file, const nw_yaml *node, chart *c)
{
    static const nw_yaml_field fields[] = {
        {"file", NW_YAML_TEXT, offsetof(chart, file), true},
        {"title", NW_YAML_TEXT, offsetof(chart, title), true},
        {"x", NW_YAML_TEXT, offsetof(chart, x), true},
        {"y", NW_YAML_TEXT, offsetof(chart, y), true},
        {"value", NW_YAML_TEXT, offsetof(chart, value), true},
        {"of", NW_YAML_TEXT, offsetof(chart, of), false},
        {"along", NW_YAML_TEXT, offsetof(chart, along), false},
        {"along-times", NW_YAML_NUMBER, offsetof(chart, along_times), false},
        {"times", NW_YAML_NUMBER, offsetof(chart, times), false},
        {"decimals", NW_YAML_INT, offsetof(chart, decimals), false},
        {"speed-up", NW_YAML_BOOL, offsetof(chart, speed_up), false},
        {"logarithmic", NW_YAML_BOOL, offsetof(chart, logarithmic), false},
        {"source", NW_YAML_TEXT, offsetof(chart, source), false},
        {"at", NW_YAML_ITEMS, offsetof(chart, at), false},
        {"published", NW_YAML_KEYS_OF, offsetof(chart, published), false},
    };
    *c = (chart){.of = "", .decimals = 2, .times = 1, .along_times = 1};
    NW_TRY(NW_YAML_FILL(file, node, "a chart", fields, c));
    c->by_epoch = c->along || strcmp(c->x, "epoch") == 0;
    NW_YAML_FAIL_IF(strchr(c->file, '/') || *c->file == '.' || c->decimals > 9, file, node,
                    "a chart's file is a name without slashes, and its decimals are at most 9");
    NW_YAML_FAIL_IF(!c->published != !c->at || !c->published != !c->source, file, node,
                    "'published' goes with 'at' and 'source'");
    if (c->at) NW_TRY(check_numbers(file, c->at, c->at->count));
    for (const nw_yaml *l = c->published ? c->published->first : NULL; l; l = l->next)
        NW_TRY(check_numbers(file, l, c->at->count));
    return NW_OK;
}

nw_status nw_experiment_check_charts(const nw_experiment *e)
{
    chart c;
    for (const nw_yaml *node = e->charts->first; node; node = node->next) NW_TRY(read_chart(e->file, node, &c));
    return NW_OK;
}

/* ---- filling ----------------------------------------------------------------------------------------------------- */

/* There is room for a line a trial and one a published line. */
static line *find_line(chart *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->lines[i].name, name) == 0) return &c->lines[i];
    c->lines[c->count].name = name;
    return &c->lines[c->count++];
}

/* Of every epoch of a trial, the value at where another field was then. */
static nw_status add_along(const chart *c, const nw_trials *trials, const nw_trial *trial, line *l)
{
    NW_CLEANUP(nw_curve_free) nw_curve along = {0};
    NW_CLEANUP(nw_curve_free) nw_curve value = {0};
    NW_CLEANUP(nw_curve_free) nw_curve half = {0};
    NW_TRY(nw_trial_curve(trials, trial, c->along, &along, NULL));
    NW_TRY(nw_trial_curve(trials, trial, c->value, &value, &half));
    for (int i = 0; i < value.count; i++) {
        double x = nw_curve_at(&along, value.x[i]) * c->along_times;
        if (!isfinite(x)) continue;
        NW_TRY(nw_curve_add(&l->here, x, value.y[i]));
        if (half.count > 0) NW_TRY(nw_curve_add(&l->half, x, half.y[i]));
    }
    return NW_OK;
}

/* Runs that are points of one line in one chart are lines of their own, by name, where every run is a line. */
static const char *line_of(const chart *c, const nw_trials *trials, const nw_trial *trial)
{
    int same = 0;
    for (int t = 0; c->by_epoch && t < trials->count; t++) same += strcmp(trials->at[t].line, trial->line) == 0;
    return same > 1 ? trial->name : trial->line;
}

static nw_status add_here(chart *c, const nw_trials *trials, const nw_trial *trial)
{
    line *l = find_line(c, line_of(c, trials, trial));
    nw_sample sample;
    NW_TRY(nw_trial_sample(trials, trial, c->value, &sample));
    if (sample.runs < trials->seeds) return NW_OK;
    if (c->along) return add_along(c, trials, trial, l);
    if (c->by_epoch) return nw_trial_curve(trials, trial, c->value, &l->here, &l->half);
    if (!isfinite(sample.mean) || !isfinite(trial->x)) return NW_OK;
    NW_TRY(nw_curve_add(&l->here, trial->x, sample.mean * c->times));
    double half = nw_half_interval(sample.runs, sample.deviation * fabs(c->times));
    return isfinite(half) ? nw_curve_add(&l->half, trial->x, half) : NW_OK;
}

static nw_status add_published(chart *c, const nw_yaml *numbers)
{
    line *l = find_line(c, numbers->key);
    const nw_yaml *x = c->at->first, *y = numbers->first;
    for (; x && y; x = x->next, y = y->next)
        NW_TRY(nw_curve_add(&l->published, strtod(x->text, NULL), strtod(y->text, NULL)));
    return NW_OK;
}

/* Times become speed-ups over one worker; without its time there is none. Ratios of means have no interval here. */
static void invert(nw_curve *curve)
{
    double one = nw_curve_at(curve, 1);
    for (int i = 0; i < curve->count; i++) curve->y[i] = one / curve->y[i];
    if (!isfinite(one)) curve->count = 0;
}

static void free_line(line *l)
{
    nw_curve_free(&l->here);
    nw_curve_free(&l->published);
    nw_curve_free(&l->half);
}

static nw_status fill_chart(chart *c, const nw_trials *trials)
{
    const nw_yaml *published = c->published;
    NW_NEW(c->lines, (size_t)(trials->count + (published ? published->count : 0)) + 1, "a chart");
    for (int t = 0; t < trials->count; t++)
        if (strncmp(trials->at[t].name, c->of, strlen(c->of)) == 0) NW_TRY(add_here(c, trials, &trials->at[t]));
    for (const nw_yaml *l = published ? published->first : NULL; l; l = l->next) NW_TRY(add_published(c, l));
    int kept = 0;
    for (int i = 0; i < c->count; i++) {
        line *l = &c->lines[i];
        if (c->speed_up) invert(&l->here), invert(&l->published), l->half.count = 0;
        if (l->here.count || l->published.count)
            c->lines[kept++] = *l;
        else
            free_line(l);
    }
    c->count = kept;
    return NW_OK;
}

static nw_status make_charts(charts *all)
{
    const nw_yaml *list = all->experiment->charts;
    NW_NEW(all->at, list->count, "the charts");
    for (const nw_yaml *node = list->first; node; node = node->next) {
        chart *c = &all->at[all->count++];
        NW_TRY(read_chart(all->experiment->file, node, c));
        NW_TRY(fill_chart(c, all->trials));
        if (c->count > 0) continue;
        free(c->lines);
        all->count--;
    }
    return NW_OK;
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

static int columns_of(const chart *c, double *columns)
{
    int count = 0;
    for (int i = 0; i < c->count; i++)
        for (int k = 0; k < c->lines[i].published.count; k++) add_column(columns, &count, c->lines[i].published.x[k]);
    for (int i = 0; i < c->count; i++) {
        const nw_curve *here = &c->lines[i].here;
        if (here->count > 0) add_column(columns, &count, here->x[here->count - 1]);
    }
    return count;
}

static void print_row(FILE *out, const chart *c, const char *name, const char *what, const nw_curve *curve,
                      const double *columns, int count)
{
    fprintf(out, "%-26s %-10s", name, what);
    for (int i = 0; i < count; i++) {
        char number[32] = "-";
        double value = nw_curve_at(curve, columns[i]);
        if (isfinite(value)) snprintf(number, sizeof number, c->logarithmic ? "%.*e" : "%.*f", (int)c->decimals, value);
        fprintf(out, " %8s", number);
    }
    fputc('\n', out);
}

static void print_chart(FILE *out, const chart *c)
{
    double columns[MOST_COLUMNS + 1];
    int count = columns_of(c, columns);
    fprintf(out, "\n%s\n%-26s %-10s", c->title, c->y, c->x);
    for (int i = 0; i < count; i++) fprintf(out, " %8g", columns[i]);
    fputc('\n', out);
    for (int i = 0; i < c->count; i++) {
        const line *l = &c->lines[i];
        print_row(out, c, l->name, "here", &l->here, columns, count);
        if (l->half.count > 0) print_row(out, c, "", "+-", &l->half, columns, count);
        if (l->published.count > 0) print_row(out, c, "", "published", &l->published, columns, count);
    }
    if (c->source) fprintf(out, "published: %s\n", c->source);
}

static nw_status write_table(FILE *out, void *context)
{
    const charts *all = context;
    fprintf(out, "%s, scale %s\n", all->experiment->name, all->scale);
    if (all->trials->remark) fprintf(out, "note: %s\n", all->trials->remark);
    if (all->trials->seeds > 1)
        fprintf(out, "means of %d seeds; +-: half of their 95 %% interval (Student's t)\n", all->trials->seeds);
    for (int i = 0; i < all->count; i++) print_chart(out, &all->at[i]);
    return NW_OK;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void put_curve(nw_json *json, const char *key, const nw_curve *curve)
{
    nw_json_put_array(json, key);
    for (int i = 0; i < curve->count; i++) {
        nw_json_array(json);
        nw_json_double(json, curve->x[i]);
        nw_json_double(json, curve->y[i]);
        nw_json_array_end(json);
    }
    nw_json_array_end(json);
}

static void put_chart(nw_json *json, const chart *c)
{
    nw_json_object(json);
    nw_json_put_string(json, "name", c->file);
    nw_json_put_string(json, "title", c->title);
    nw_json_put_string(json, "x", c->x);
    nw_json_put_string(json, "y", c->y);
    nw_json_put_array(json, "lines");
    for (int i = 0; i < c->count; i++) {
        const line *l = &c->lines[i];
        nw_json_object(json);
        nw_json_put_string(json, "name", l->name);
        nw_json_put_string(json, "source", l->published.count > 0 ? c->source : NULL);
        put_curve(json, "here", &l->here);
        put_curve(json, "half_interval_95", &l->half);
        put_curve(json, "published", &l->published);
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
    nw_json_object_end(json);
}

static nw_status write_json(FILE *out, void *context)
{
    const charts *all = context;
    nw_json json = nw_json_begin(out, true);
    nw_json_object(&json);
    nw_json_put_string(&json, "experiment", all->experiment->name);
    nw_json_put_string(&json, "scale", all->scale);
    nw_json_put_string(&json, "remark", all->trials->remark);
    nw_json_put_array(&json, "charts");
    for (int i = 0; i < all->count; i++) put_chart(&json, &all->at[i]);
    nw_json_array_end(&json);
    nw_json_object_end(&json);
    nw_json_end(&json);
    return NW_OK;
}

/* ---- drawings ---------------------------------------------------------------------------------------------------- */

static nw_status draw(const charts *all, const chart *c)
{
    char note[640], path[4096];
    const char *remark = all->trials->remark;
    snprintf(note, sizeof note, "scale %s%s%s", all->scale, remark ? "; " : "", remark ? remark : "");
    snprintf(path, sizeof path, "%s/%s.svg", all->trials->dir, c->file);
    NW_AUTOFREE nw_plot_curve *curves = calloc((size_t)c->count * 2, sizeof *curves);
    NW_AUTOFREE char(*names)[96] = calloc((size_t)c->count, sizeof *names);
    NW_FAIL_IF(!curves || !names, NW_E_MEMORY, "no memory for the drawing %s", path);
    nw_plot plot = {.title = c->title,
                    .note = note,
                    .x = {.label = c->x, .logarithmic = c->by_epoch}, /* most happens in the first epochs */
                    .y = {.label = c->y, .logarithmic = c->logarithmic},
                    .curves = curves};
    for (int i = 0; i < c->count; i++) {
        const line *l = &c->lines[i];
        const nw_curve *both[] = {&l->here, &l->published};
        snprintf(names[i], sizeof names[i], "%s, published", l->name);
        for (int k = 0; k < 2; k++)
            if (both[k]->count > 0)
                curves[plot.count++] = (nw_plot_curve){
                    .name = k == 0              ? l->name
                            : l->here.count > 0 ? "published"
                                                : names[i],
                    .x = both[k]->x,
                    .y = both[k]->y,
                    .count = both[k]->count,
                    .colour = i,
                    .dashed = k == 1,
                    .dots = !c->by_epoch,
                };
    }
    return nw_plot_write(&plot, path);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void free_charts(charts *all)
{
    for (int i = 0; i < all->count; i++) {
        for (int k = 0; k < all->at[i].count; k++) free_line(&all->at[i].lines[k]);
        free(all->at[i].lines);
    }
    free(all->at);
}

nw_status nw_experiment_report(const nw_experiment *experiment, const char *scale, const nw_trials *trials)
{
    NW_CLEANUP(free_charts) charts all = {.experiment = experiment, .scale = scale, .trials = trials};
    NW_TRY(make_charts(&all));
    NW_TRY(nw_trials_save(trials, "table.txt", write_table, &all));
    NW_TRY(nw_trials_save(trials, "table.json", write_json, &all));
    for (int i = 0; i < all.count; i++) NW_TRY(draw(&all, &all.at[i]));
    NW_TRY(write_table(stdout, &all));
    printf("\ntable.txt, table.json and drawings are in %s\n", trials->dir);
    return NW_OK;
}
