/*
 * scratch.h - a directory of its own for a test, removed afterwards with all that is in it. For tests that write files.
 * Include in one file of a test program; wants _GNU_SOURCE.
 */
#ifndef NW_TESTS_SCRATCH_H
#define NW_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char scratch_dir[256];

static int scratch_remove_one(const char *path, const struct stat *s, int flag, struct FTW *walk)
{
    (void)s, (void)flag, (void)walk;
    return remove(path);
}

/* cmocka's setup and teardown of one test. */
static inline int scratch_make(void **state)
{
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%s/nowait-test-XXXXXX", root && root[0] ? root : "/tmp");
    return mkdtemp(scratch_dir) ? 0 : -1;
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return nftw(scratch_dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path below it; the text is valid until eight calls later. */
static inline char *scratch(const char *name)
{
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_dir, name);
    return path;
}

#endif
