/* download.c - see download.h. */
#include "setup/download.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool nw_download_print(void *context, const char *file, int64_t done, int64_t total)
{
    nw_download_talk *t = context;
    bool same = strncmp(t->file, file, sizeof t->file - 1) == 0;
    int tenths = total > 0 ? (int)(10 * done / total) : 0;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r%s%s", file, total > 0 ? "" : " ...");
        if (total > 0) fprintf(stderr, " %.1f of %.1f MB ", (double)done / 1e6, (double)total / 1e6);
        if (total > 0 && done == total) fputc('\n', stderr);
    } else if (!same) {
        fprintf(stderr, "%s\n", file);
    } else if (tenths > t->tenths) {
        fprintf(stderr, "%s: %d %% of %.1f MB\n", file, 10 * tenths, (double)total / 1e6);
    }
    if (!same) snprintf(t->file, sizeof t->file, "%s", file);
    t->tenths = tenths;
    return true;
}
