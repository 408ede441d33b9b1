/*
 * folder.h - a folder for what a test writes. Tests that want one each take scratch.h, which names files in it, or
 * own_folder.h, which goes there.
 */
#ifndef NW_TESTS_FOLDER_H
#define NW_TESTS_FOLDER_H

enum { PATH_SIZE = 1024 };

/* A new empty one, below $TMPDIR or /tmp; aborts if there can be none. And its removal with all that is in it: 0 if
 * it is gone. */
void make_folder(char path[PATH_SIZE]);
int remove_tree(const char *path);

#endif
