/* curve.c - see curve.h. Lines of other records, which are nearly all, are not parsed. */
#define _GNU_SOURCE 1
#include "observe/curve.h"

#include "base/file.h"
#include "base/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 1 << 24 };

nw_status nw_curve_add(nw_curve *curve, double x, double y)
{
    if (curve->count == curve->capacity) {
        int capacity = curve->capacity ? 2 * curve->capacity : 16;
        NW_FAIL_IF(capacity > MOST_POINTS, NW_E_MEMORY, "a curve has at most %d points", MOST_POINTS);
        double *grown_x = realloc(curve->x, (size_t)capacity * sizeof *grown_x);
        if (grown_x) curve->x = grown_x;
        double *grown_y = realloc(curve->y, (size_t)capacity * sizeof *grown_y);
        if (grown_y) curve->y = grown_y;
        NW_FAIL_IF(!grown_x || !grown_y, NW_E_MEMORY, "no memory for a curve of %d points", capacity);
        curve->capacity = capacity;
    }
    curve->x[curve->count] = x;
    curve->y[curve->count++] = y;
    return NW_OK;
}

void nw_curve_free(nw_curve *curve)
{
    free(curve->x);
    free(curve->y);
    *curve = (nw_curve){0};
}

double nw_curve_at(const nw_curve *curve, double x)
{
    for (int i = 0; i < curve->count; i++)
        if (curve->x[i] == x) return curve->y[i];
    return NAN;
}

static nw_status read_line(nw_curve *curve, const char *line, size_t size, const char *path, const char *field)
{
    static const char epoch_record[] = "{\"record\":\"epoch\"";
    if (size < sizeof epoch_record - 1 || memcmp(line, epoch_record, sizeof epoch_record - 1) != 0) return NW_OK;
    nw_json_document document;
    int64_t epoch;
    NW_TRY(nw_json_parse(&document, line, size, path));
    nw_status status = nw_json_get_int(&document, document.values, "epoch", 0, INT32_MAX, &epoch);
    const nw_json_value *value = nw_json_find(document.values, field);
    if (status == NW_OK && value && value->type == NW_JSON_NUMBER)
        status = nw_curve_add(curve, (double)epoch, value->number);
    nw_json_free(&document);
    return status;
}

nw_status nw_curve_read(nw_curve *curve, const char *run_dir, const char *field)
{
    char *path, *line = NULL;
    size_t capacity = 0;
    NW_TRY(nw_path_join(&path, run_dir, "metrics.jsonl"));
    FILE *file = fopen(path, "r");
    nw_status status =
        file ? NW_OK
             : NW_FAIL(NW_E_FILE, "'%s' cannot be read: %s; a run writes it while it trains", path, strerror(errno));
    for (ssize_t size; status == NW_OK && (size = getline(&line, &capacity, file)) > 0;)
        if (line[size - 1] == '\n') /* a last line without its end was cut off, and will be written again */
            status = read_line(curve, line, (size_t)size, path, field);
    if (file) fclose(file);
    free(line);
    free(path);
    return status;
}
