/* download.h - what the user sees of a download. */
#ifndef NW_SETUP_DOWNLOAD_H
#define NW_SETUP_DOWNLOAD_H

#include <stdbool.h>
#include <stdint.h>

/* What was said last; begins as {0}. */
typedef struct nw_download_talk {
    char file[256];
    int tenths;
} nw_download_talk;

/* An nw_fetch_progress whose context is an nw_download_talk. On stderr: one live line on a terminal; elsewhere a line
 * for every tenth of a file. */
bool nw_download_print(void *talk, const char *file, int64_t done, int64_t total);

#endif
