/* files.h - for tests that read and write files: the committed small ones, folders of their own, and real datasets. */
#ifndef NW_TESTS_FILES_H
#define NW_TESTS_FILES_H

#include "support/folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
    uint8_t *data; /* from malloc, of exactly this size: the sanitizer sees the first byte too far */
    size_t size;
} bytes;

/* tests/fuzz/corpus/NAME; aborts if it is not there. */
bytes fixture(const char *name);

/* A copy of the first `size` bytes. */
bytes cut(bytes from, size_t size);
void release(bytes *b);

/* Below a folder: a folder and those above it, a file, a copy of a fixture. */
void put_folder(const char *folder, const char *name);
void put_file(const char *folder, const char *name, const void *data, size_t size);
void put_fixture(const char *folder, const char *name, const char *from);
bool file_exists(const char *folder, const char *name);
int count_entries(const char *folder);

/* The root of the real datasets ($NOWAIT_DATA, or ../shared/data), or NULL with a line that says what is skipped. */
const char *real_data(const char *needed);

#endif
