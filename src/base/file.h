/*
 * file.h - files as wholes: read one, write one and know its hash, replace one so that a crash leaves the old or the
 * new; make, list, replace and remove directories.
 *
 * Everything that is to survive a crash is written under another name, synced, renamed, and the directory synced.
 * A file to be read that is missing or cut short is NW_E_FILE; rights, limits and everything that stops writing are
 * NW_E_SYSTEM; sentences name path, cause and remedy. Distinct paths may be used from distinct threads.
 */
#ifndef NW_BASE_FILE_H
#define NW_BASE_FILE_H

#include "base/digest.h"
#include "base/status.h"

#include <stdio.h>

/* `name` below `directory`, to be freed. */
nw_status nw_path_join(char **path, const char *directory, const char *name);
/* The directory that holds `path` ("." where it names none) and the last part of its name, both to be freed. Slashes at
 * the end do not count. NW_E_ARGUMENT where there is no name ("/", "..", "."). */
nw_status nw_path_split(const char *path, char **directory, char **name);

bool nw_file_is_regular(const char *path);
bool nw_file_is_directory(const char *path);

/* All bytes of a file and a zero after them, to be freed. A file of more than `most` bytes is refused unread. */
nw_status nw_file_read(const char *path, size_t most, char **data, size_t *size);

/* Size and SHA-256 of a file. */
nw_status nw_file_hash(const char *path, uint64_t *bytes, char sha256[65]);

/* Writes or replaces a file atomically: a reader finds either the old content or the new, also after a power cut. */
nw_status nw_file_replace(const char *path, const void *data, size_t size);
/* The same for a file too large to be in memory first: `fill` writes it to `out`, whose errors need no look. If it
 * fails, the old content stays. */
nw_status nw_file_replace_by(const char *path, nw_status (*fill)(FILE *out, void *context), void *context);

/* A new file, written from begin to end and hashed on the way. After a failure, or instead of nw_file_finish, call
 * nw_file_abandon, which removes it; calling it after nw_file_finish does nothing. */
typedef struct nw_file_writer {
    FILE *out;
    char *path;
    nw_digest hash;
    uint64_t bytes;
} nw_file_writer;

nw_status nw_file_create(nw_file_writer *writer, const char *path); /* what exists under that name is cut to nothing */
nw_status nw_file_write(nw_file_writer *writer, const void *data, size_t bytes);
nw_status nw_file_finish(nw_file_writer *writer, char sha256[65]); /* on disk when this returns; sha256 may be NULL */
void nw_file_abandon(nw_file_writer *writer);

/* Makes a directory and those above it; one that exists is fine. */
nw_status nw_directory_make(const char *path);

/* Removes a directory and the plain files in it. It never goes down into a directory: one inside is a failure, before
 * which nothing is removed. A directory that is not there is fine. */
nw_status nw_directory_remove(const char *path);

/* The names in a directory except "." and "..", in the order of strcmp. */
typedef struct nw_names {
    char **at;
    int count;
} nw_names;

nw_status nw_directory_list(nw_names *names, const char *path);
void nw_names_free(nw_names *names);

/* Removes the plain files that processes which died while replacing others (nw_file_replace) left in a directory.
 * Whoever calls knows that nobody else replaces files there now. */
nw_status nw_directory_sweep(const char *path);

/* A new directory beside where `target` is to be, named `.<its name>.tmp-<process>-<n>` (*path, to be freed). It is
 * locked (flock) until *lock is closed, so that nw_directory_clean of another process leaves it alone; *lock is -1 on a
 * file system without locks. */
nw_status nw_directory_make_aside(const char *target, char **path, int *lock);

/* Gives the directory `aside`, made by nw_directory_make_aside, the name `target`, and syncs. What had that name is
 * removed: the two are exchanged in one stroke where the file system can; otherwise, or if not `exchange`, the old one
 * is first set aside as `.<name>.old`, where nw_directory_clean finds and restores it after a crash between the two
 * renames. */
nw_status nw_directory_replace(const char *aside, const char *target, bool exchange);

/* Removes a directory of plain files so that nobody ever finds half of it under its name. */
nw_status nw_directory_discard(const char *path);

/* Clears what processes that died left beside `target`: directories being written that nobody has locked, and old ones
 * that were replaced. If `target` itself is missing and the old one is there, it gets its name back. */
nw_status nw_directory_clean(const char *target);

#endif
