/* append.h - a file that grows at its end by whole pieces, for logs that are never rewritten. */
#ifndef NW_BASE_APPEND_H
#define NW_BASE_APPEND_H

#include "base/status.h"

typedef struct nw_append {
    int file; /* -1: closed */
    int64_t size;
    char *path;
} nw_append;

typedef enum nw_append_mode { NW_APPEND_CONTINUE, NW_APPEND_REPLACE, NW_APPEND_NEW } nw_append_mode;

/* Continue what is there, replace it, or fail with NW_E_ARGUMENT if the file exists. */
nw_status nw_append_open(nw_append *append, const char *path, nw_append_mode mode);

/* Writes a piece, whole or not at all: what a full disk leaves of it is cut off again. Allocates nothing. */
nw_status nw_append_write(nw_append *append, const void *data, size_t bytes);

nw_status nw_append_close(nw_append *append); /* frees; a second call does nothing */

#endif
