/*
 * scratch.h - a directory of its own for a test, removed afterwards with all that is in it. For tests that write files.
 * Include in one file of a test program.
 */
#ifndef NW_TESTS_SCRATCH_H
#define NW_TESTS_SCRATCH_H

#include "support/folder.h"

#include <stdio.h>

static char scratch_dir[PATH_SIZE];

/* cmocka's setup and teardown of one test. */
static inline int scratch_make(void **state)
{
    (void)state;
    make_folder(scratch_dir);
    return 0;
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return remove_tree(scratch_dir);
}

/* A path below it; the text is valid until eight calls later. */
static inline char *scratch(const char *name)
{
    static char paths[8][2 * PATH_SIZE];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_dir, name);
    return path;
}

#endif
