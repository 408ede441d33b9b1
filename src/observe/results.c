/* results.c - see results.h. */
#define _GNU_SOURCE 1
#include "observe/results.h"

#include "base/file.h"
#include "base/text.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

enum { FILE_MOST = 256 << 20, COLUMNS_MOST = 1 << 16 };

/* ---- rows ---- */

static nw_result_field *find(const nw_result_row *row, const char *column)
{
    for (int i = 0; i < row->count; i++)
        if (strcmp(row->at[i].column, column) == 0) return &row->at[i];
    return NULL;
}

nw_status nw_result_row_put(nw_result_row *row, const char *column, const char *format, ...)
{
    char *value;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&value, format, arguments);
    va_end(arguments);
    NW_FAIL_IF(length < 0, NW_E_MEMORY, "no memory for the column '%s' of results.csv", column);
    nw_result_field *field = find(row, column);
    if (field) {
        free(field->value);
        field->value = value;
        return NW_OK;
    }
    char *name = strdup(column);
    if (!name || !nw_grow(&row->at, (size_t)row->count, sizeof *row->at)) {
        free(name);
        free(value);
        return NW_FAIL(NW_E_MEMORY, "no memory for the column '%s' of results.csv", column);
    }
    row->at[row->count++] = (nw_result_field){name, value};
    return NW_OK;
}

void nw_result_row_free(nw_result_row *row)
{
    for (int i = 0; i < row->count; i++) {
        free(row->at[i].column);
        free(row->at[i].value);
    }
    free(row->at);
    *row = (nw_result_row){0};
}

/* ---- tables ---- */

typedef struct table {
    const char *path; /* for messages */
    char *text;       /* fields, each with a zero behind it */
    char **at;        /* [columns] names, then rows of so many */
    int columns, fields;
} table;

static void table_free(table *t)
{
    free(t->text);
    free(t->at);
}

static nw_status add_field(table *t, char *field)
{
    NW_FAIL_IF(!nw_grow(&t->at, (size_t)t->fields, sizeof *t->at), NW_E_MEMORY, "no memory for %s", t->path);
    t->at[t->fields++] = field;
    return NW_OK;
}

/* One field from `from` on, to *to, where it is shorter or as long; *from is then at the comma, the end of the line or
 * of the text. */
static nw_status take_field(table *t, const char **from, const char *end, char **to, int line)
{
    const char *at = *from;
    char *field = *to;
    if (at < end && *at == '"') {
        for (at++; at < end && (*at != '"' || (at + 1 < end && at[1] == '"')); at++) {
            if (*at == '"') at++;
            *(*to)++ = *at;
        }
        NW_FAIL_IF(at == end, NW_E_FILE, "%s, line %d: a quote is not closed; move the file away", t->path, line);
        at++;
    } else {
        for (; at < end && *at != ',' && *at != '\n' && *at != '\r' && *at != '"'; at++) *(*to)++ = *at;
    }
    if (at < end && *at == '\r' && at + 1 < end && at[1] == '\n') at++;
    NW_FAIL_IF(at < end && *at != ',' && *at != '\n', NW_E_FILE,
               "%s, line %d: neither a comma nor the line's end follows a field; move the file away", t->path, line);
    *from = at;
    *(*to)++ = 0;
    return add_field(t, field);
}

static nw_status parse(table *t, const char *text, size_t size)
{
    const char *at = text, *end = text + size;
    NW_FAIL_IF(memchr(text, 0, size) != NULL, NW_E_FILE, "%s is no table: a zero byte stands in it", t->path);
    t->text = malloc(size + 2); /* each field ends with a comma or newline, but the last one perhaps */
    NW_FAIL_IF(!t->text, NW_E_MEMORY, "no memory for %s", t->path);
    char *to = t->text;
    for (int line = 1; at < end; line++) {
        int first = t->fields;
        for (;; at++) {
            NW_TRY(take_field(t, &at, end, &to, line));
            NW_FAIL_IF(t->fields - first > COLUMNS_MOST, NW_E_FILE, "%s, line %d: more than %d columns", t->path, line,
                       COLUMNS_MOST);
            if (at == end || *at == '\n') break;
        }
        at += at < end;
        if (line == 1) t->columns = t->fields;
        NW_FAIL_IF(t->fields - first != t->columns, NW_E_FILE,
                   "%s, line %d: %d fields, but the first line has %d; move the file away", t->path, line,
                   t->fields - first, t->columns);
    }
    return NW_OK;
}

static void print_field(FILE *out, const char *field, bool last)
{
    bool quoted = strpbrk(field, ",\"\r\n") != NULL;
    if (quoted) fputc('"', out);
    for (const char *c = field; *c; c++) {
        if (*c == '"') fputc('"', out);
        fputc(*c, out);
    }
    if (quoted) fputc('"', out);
    fputc(last ? '\n' : ',', out);
}

/* A column of the new table: where it is in the old one (-1: nowhere), and its value in the new row. */
typedef struct column {
    const char *name, *value;
    int old;
} column;

static int compare(const void *a, const void *b)
{
    return strverscmp(((const column *)a)->name, ((const column *)b)->name);
}

static nw_status join_columns(const table *t, const nw_result_row *row, column **columns, int *count)
{
    NW_NEW(*columns, t->columns + row->count + 1, "the columns of %s", t->path);
    column *all = *columns;
    for (int i = 0; i < t->columns; i++) all[i] = (column){t->at[i], "", i};
    for (int i = 0; i < row->count; i++) all[t->columns + i] = (column){row->at[i].column, row->at[i].value, -1};
    *count = t->columns + row->count;
    qsort(all, (size_t)*count, sizeof *all, compare);
    int last = 0;
    for (int i = 1; i < *count; i++) {
        if (strcmp(all[last].name, all[i].name) != 0) {
            all[++last] = all[i];
            continue;
        }
        NW_FAIL_IF(all[last].old >= 0 && all[i].old >= 0, NW_E_FILE,
                   "%s, line 1: the column '%.60s' stands twice; move the file away", t->path, all[i].name);
        if (all[i].old >= 0) all[last].old = all[i].old;
        if (all[i].old < 0) all[last].value = all[i].value;
    }
    *count = *count ? last + 1 : 0;
    return NW_OK;
}

nw_status nw_results_merge(const char *path, const char *old, size_t size, const nw_result_row *row, char **text,
                           size_t *text_size)
{
    NW_CLEANUP(table_free) table t = {.path = path};
    NW_AUTOFREE column *columns = NULL;
    NW_CLEANUP(nw_text_free) nw_text out = {0};
    int count = 0;
    *text = NULL;
    NW_TRY(parse(&t, old, size));
    NW_TRY(join_columns(&t, row, &columns, &count));
    NW_TRY(nw_text_begin(&out));
    for (int c = 0; c < count; c++) print_field(out.out, columns[c].name, c == count - 1);
    for (int first = t.columns; first < t.fields; first += t.columns)
        for (int c = 0; c < count; c++)
            print_field(out.out, columns[c].old < 0 ? "" : t.at[first + columns[c].old], c == count - 1);
    for (int c = 0; c < count; c++) print_field(out.out, columns[c].value, c == count - 1);
    NW_TRY(nw_text_end(&out));
    *text = out.text;
    *text_size = out.size;
    out.text = NULL;
    return NW_OK;
}

static nw_status add_locked(const char *path, const nw_result_row *row)
{
    NW_AUTOFREE char *old = NULL, *text = NULL;
    size_t size = 0, text_size;
    if (nw_file_is_regular(path)) NW_TRY(nw_file_read(path, FILE_MOST, &old, &size));
    NW_TRY(nw_results_merge(path, old ? old : "", size, row, &text, &text_size));
    return nw_file_replace(path, text, text_size);
}

nw_status nw_results_add(const char *dir, const nw_result_row *row)
{
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_directory_make(dir));
    NW_TRY(nw_path_join(&path, dir, "results.csv"));
    int lock = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0) flock(lock, LOCK_EX); /* a file system without locks has to do without */
    nw_status status = add_locked(path, row);
    if (lock >= 0) close(lock);
    return status;
}

nw_status nw_results_save_exchanges(const char *dir, const char *id, const int64_t *exchanges, int world)
{
    NW_AUTOFREE char *folder = NULL, *name = NULL, *path = NULL;
    NW_CLEANUP(nw_text_free) nw_text out = {0};
    NW_TRY(nw_path_join(&folder, dir, "com_logs"));
    NW_TRY(nw_directory_make(folder));
    NW_TRY(nw_text_print(&name, "%s.txt", id));
    NW_TRY(nw_path_join(&path, folder, name));
    NW_TRY(nw_text_begin(&out));
    for (int r = 0; r < world; r++)
        for (int with = 0; with < world; with++)
            fprintf(out.out, "%lld%c", (long long)exchanges[(size_t)r * (size_t)world + (size_t)with],
                    with < world - 1 ? ' ' : '\n');
    NW_TRY(nw_text_end(&out));
    return nw_file_replace(path, out.text, out.size);
}
