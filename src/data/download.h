/*
 * download.h - one file from a web server into FILE.part, going on where an earlier attempt stopped.
 *
 * The server's tag of the file (its ETag, or the date of its last change) is kept in FILE.part.tag. With it the rest is
 * asked for under the condition that the file is still the same one (If-Range); a server that has another file, or
 * knows no ranges, sends everything and the part begins anew.
 */
#ifndef NW_DATA_DOWNLOAD_H
#define NW_DATA_DOWNLOAD_H

#include "data/dataset.h"

/* Broken connections, slow ones and busy servers are tried again some times. `part` is left behind when that fails, so
 * that a later call goes on; nw_download_forget removes it and its tag. *resumed tells whether bytes of an earlier call
 * are in it. */
nw_status nw_download(const char *url, const char *part, nw_fetch_progress progress, void *context, bool *resumed);
void nw_download_forget(const char *part);

#endif
