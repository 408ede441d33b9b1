/* files.c - files and folders for tests; see files.h. */
#define _GNU_SOURCE 1
#include "support/files.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void stop(const char *what, const char *path)
{
    fprintf(stderr, "test: cannot %s %s\n", what, path);
    abort();
}

bytes fixture(const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", NW_CORPUS_DIR, name);
    FILE *f = fopen(path, "rb");
    if (!f || fseek(f, 0, SEEK_END) != 0) stop("open", path);
    bytes b = {.size = (size_t)ftell(f)};
    rewind(f);
    b.data = malloc(b.size ? b.size : 1);
    if (fread(b.data, 1, b.size, f) != b.size) stop("read", path);
    fclose(f);
    return b;
}

bytes cut(bytes from, size_t size)
{
    bytes b = {.data = malloc(size ? size : 1), .size = size};
    memcpy(b.data, from.data, size);
    return b;
}

void release(bytes *b)
{
    free(b->data);
    *b = (bytes){0};
}

void make_folder(char path[PATH_SIZE])
{
    const char *root = getenv("TMPDIR");
    snprintf(path, PATH_SIZE, "%s/nowait-test-XXXXXX", root && root[0] ? root : "/tmp");
    if (!mkdtemp(path)) stop("make", path);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts, (void)kind, (void)place;
    return remove(path);
}

int remove_tree(const char *path) { return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

void put_folder(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1;; at++) {
        char was = *at;
        if (was != '/' && was != 0) continue;
        *at = 0;
        mkdir(path, 0755);
        *at = was;
        if (!was) return;
    }
}

void put_file(const char *folder, const char *name, const void *data, size_t size)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) stop("write", path);
}

void put_fixture(const char *folder, const char *name, const char *from)
{
    bytes b = fixture(from);
    put_file(folder, name, b.data, b.size);
    release(&b);
}

bool file_exists(const char *folder, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

int count_entries(const char *folder)
{
    int count = 0;
    DIR *d = opendir(folder);
    if (!d) return -1;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) count++;
    closedir(d);
    return count;
}

const char *real_data(const char *needed)
{
    const char *root = getenv("NOWAIT_DATA") ? getenv("NOWAIT_DATA") : NW_DATA_DIR;
    if (file_exists(root, needed)) return root;
    printf("skipped: %s/%s is not there (NOWAIT_DATA names another root)\n", root, needed);
    return NULL;
}
