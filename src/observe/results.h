/*
 * results.h - the files of ACiD's program: results.csv, to which every run of a folder adds a row, and com_logs/, which
 * says how often each rank averaged with each other.
 *
 * results.csv has a line of names, in the order of strverscmp, and a line for each run. If a run has new columns, the
 * rows of the others get empty fields. Fields with a comma, a quote or a newline are quoted, and quotes in them doubled
 * (RFC 4180). The file is replaced by one rename while its folder is locked, so several runs may end at the same time.
 */
#ifndef NW_OBSERVE_RESULTS_H
#define NW_OBSERVE_RESULTS_H

#include "base/status.h"

typedef struct nw_result_field {
    char *column, *value;
} nw_result_field;

/* A row that grows; all zero: empty. Texts are copied. A column that is there already gets the new value. */
typedef struct nw_result_row {
    nw_result_field *at;
    int count;
} nw_result_row;

nw_status nw_result_row_put(nw_result_row *row, const char *column, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void nw_result_row_free(nw_result_row *row);

/* Adds the row to DIR/results.csv; DIR is made if need be. NW_E_FILE if what is there is no table. */
nw_status nw_results_add(const char *dir, const nw_result_row *row);
/* The same of a text: the old table, and the new one (to be freed). */
nw_status nw_results_merge(const char *path, const char *old, size_t size, const nw_result_row *row, char **text,
                           size_t *text_size);

/* DIR/com_logs/ID.txt: line r has how often rank r exchanged with each of `world` ranks. */
nw_status nw_results_save_exchanges(const char *dir, const char *id, const int64_t *exchanges, int world);

#endif
