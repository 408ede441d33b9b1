/* curve.c - see curve.h. Lines of other records, which are nearly all, are not parsed. */
#define _GNU_SOURCE 1
#include "observe/curve.h"

#include "base/file.h"
#include "base/json_read.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 1 << 24 };

nw_status nw_curve_add(nw_curve *curve, double x, double y)
{
    size_t count = (size_t)curve->count;
    NW_FAIL_IF(curve->count == MOST_POINTS, NW_E_MEMORY, "a curve has at most %d points", MOST_POINTS);
    NW_FAIL_IF(!nw_grow(&curve->x, count, sizeof *curve->x) || !nw_grow(&curve->y, count, sizeof *curve->y),
               NW_E_MEMORY, "no memory for a curve of %zu points", count + 1);
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
    NW_CLEANUP(nw_json_free) nw_json_document document = {0};
    int64_t epoch;
    NW_TRY(nw_json_parse(&document, line, size, path));
    NW_TRY(nw_json_get_int(&document, document.values, "epoch", 0, INT32_MAX, &epoch));
    const nw_json_value *value = nw_json_find(document.values, field);
    return value && value->type == NW_JSON_NUMBER ? nw_curve_add(curve, (double)epoch, value->number) : NW_OK;
}

nw_status nw_curve_read(nw_curve *curve, const char *run_dir, const char *field)
{
    NW_AUTOFREE char *path = NULL, *line = NULL;
    size_t capacity = 0;
    NW_TRY(nw_path_join(&path, run_dir, "metrics.jsonl"));
    FILE *file = fopen(path, "r");
    NW_FAIL_IF(!file, NW_E_FILE, "'%s' cannot be read: %s; a run writes it while it trains", path, strerror(errno));
    nw_status status = NW_OK;
    for (ssize_t size; status == NW_OK && (size = getline(&line, &capacity, file)) > 0;)
        if (line[size - 1] == '\n') /* a last line without its end was cut off, and will be written again */
            status = read_line(curve, line, (size_t)size, path, field);
    fclose(file);
    return status;
}
