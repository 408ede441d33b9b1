/* lines.h - reads back the lines of metrics.jsonl and logs.tsv that an earlier process of the run wrote. */
#ifndef NW_OBSERVE_LINES_H
#define NW_OBSERVE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where in the run a record was written. */
typedef struct nw_line_place {
    bool ends_epoch;             /* a record of kind "epoch" */
    int64_t step, epoch, images; /* the last two are -1 where the line does not say */
} nw_line_place;

/* The place of a line of metrics.jsonl, without its newline; false if it is no line of ours. */
bool nw_jsonl_line_place(const char *line, size_t length, nw_line_place *place);

/* The epoch of a row of logs.tsv, without its newline; false if it is no row of ours. */
bool nw_tsv_row_epoch(const char *row, size_t length, int64_t *epoch);

#endif
