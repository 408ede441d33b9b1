/*
 * append.c - a file that grows at its end by whole pieces.
 *
 * A piece goes to the system in one call of write(2), so a process that is killed leaves whole pieces too, except
 * where the system itself took only a part; readers of the next run therefore still expect a torn end.
 */
#define _GNU_SOURCE 1
#include "base/append.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

nw_status nw_append_open(nw_append *append, const char *path, nw_append_mode mode)
{
    *append = (nw_append){.file = -1};
    static const int flags[] = {[NW_APPEND_CONTINUE] = 0, [NW_APPEND_REPLACE] = O_TRUNC, [NW_APPEND_NEW] = O_EXCL};
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags[mode], 0666);
    NW_FAIL_IF(file < 0 && errno == EEXIST, NW_E_ARGUMENT, "%s exists already: move it away", path);
    NW_FAIL_IF(file < 0, NW_E_SYSTEM, "cannot open %s for writing: %s; check that the run's directory is writable",
               path, strerror(errno));
    append->file = file;
    append->size = lseek(file, 0, SEEK_END);
    NW_TRY_OR(nw_text_copy(&append->path, path), nw_append_close(append));
    return NW_OK;
}

nw_status nw_append_write(nw_append *append, const void *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t wrote = write(append->file, (const char *)data + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            int cause = wrote < 0 ? errno : ENOSPC;
            bool torn = done > 0 && ftruncate(append->file, append->size) != 0;
            return NW_FAIL(NW_E_SYSTEM, "cannot write to %s%s: %s; no more is written to it: make space and resume",
                           append->path, torn ? " (its end is torn)" : "", strerror(cause));
        }
        done += (size_t)wrote;
    }
    append->size += (int64_t)bytes;
    return NW_OK;
}

nw_status nw_append_close(nw_append *append)
{
    if (append->file < 0) return NW_OK;
    /* Some file systems report a full disk only here. */
    int result = close(append->file);
    int cause = errno;
    append->file = -1;
    nw_status status = NW_OK;
    if (result != 0) status = NW_FAIL(NW_E_SYSTEM, "cannot finish %s: %s", append->path, strerror(cause));
    free(append->path);
    append->path = NULL;
    return status;
}
