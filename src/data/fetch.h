/*
 * fetch.h - gets a dataset from its publisher.
 *
 * Fetching goes on where an earlier attempt stopped (FILE.part, with the server's tag in FILE.part.tag), checks the
 * published digest, unpacks into a folder with another name (FOLDER.unpack), and renames that: a dataset is there whole
 * or not at all. Two processes that want the same dataset take turns.
 */
#ifndef NW_DATA_FETCH_H
#define NW_DATA_FETCH_H

#include "data/dataset.h"

typedef struct nw_fetch_options {
    const char *name;           /* of a dataset that has an address */
    const char *dir;            /* the root that gets the dataset's folder */
    const char *url;            /* base address instead of the publisher's; NULL: $NOWAIT_MIRROR, or the publisher's */
    nw_fetch_progress progress; /* may be NULL */
    void *progress_context;
} nw_fetch_options;

/* true in *already: it was there. */
nw_status nw_data_fetch(const nw_fetch_options *options, bool *already);

/* Where a dataset comes from. Archives are unpacked; other pieces are the files themselves. */
enum { NW_FETCH_PIECES = 4 };

typedef struct nw_fetch_piece {
    const char *file, *digest; /* MD5 or SHA-256 in hexadecimal digits, by their number */
} nw_fetch_piece;

typedef struct nw_fetch_source {
    const char *name, *address, *folder;
    bool archives;
    double unpacked; /* bytes of the unpacked files, at most */
    nw_fetch_piece pieces[NW_FETCH_PIECES];
    const char *const *files; /* what must be in the folder then, NULL at the end */
} nw_fetch_source;

/* nw_data_fetch for a source that is not in the table. */
nw_status nw_fetch_from(const nw_fetch_options *options, const nw_fetch_source *source, bool *already);

/* NULL if the dataset has no address; otherwise where it comes from, for messages. */
const char *nw_fetch_address(const char *name);

#endif
