/*
 * file.c - files as wholes, and directories that appear, are replaced and vanish at one stroke.
 *
 * Temporary names begin with a dot and the name they are for: `.<name>.tmp-<process>-<n>` is being written or being
 * removed, `.<name>.old` had the name and waits to be removed. A directory being written is locked by flock, which ends
 * with its process however that ends; so whoever gets the lock knows that nobody writes there any more.
 */
#define _GNU_SOURCE 1
#include "base/file.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1 << 1)
#endif

static const char *remedy(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "free some space there or choose another directory";
    case EFBIG:
        return "raise the limit on file sizes (ulimit -f) or choose another directory";
    case EACCES:
    case EPERM:
    case EROFS:
        return "check the permissions or choose another path";
    case ENOENT:
    case ENOTDIR:
        return "check the path";
    case EMFILE:
    case ENFILE:
        return "raise the limit on open files (ulimit -n)";
    default:
        return "check the disk and the path";
    }
}

/* "cannot write 'a/b': No space left on device; free some space ..." from errno. */
#define FAIL_ERRNO(status, verb, path) \
    NW_FAIL(status, "cannot %s '%s': %s; %s", (verb), (path), strerror(errno), remedy(errno))

static nw_status no_memory(const char *path) { return NW_FAIL(NW_E_MEMORY, "no memory to work on '%s'", path); }

/* ---- paths ---- */

nw_status nw_path_join(char **path, const char *directory, const char *name)
{
    size_t length = strlen(directory);
    const char *slash = length > 0 && directory[length - 1] != '/' ? "/" : "";
    return nw_text_print(path, "%s%s%s", directory, slash, name);
}

nw_status nw_path_split(const char *path, char **directory, char **name)
{
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') start--;
    *directory = *name = NULL;
    bool dots = (end - start == 1 && path[start] == '.') || (end - start == 2 && strncmp(path + start, "..", 2) == 0);
    NW_FAIL_IF(end == start || dots, NW_E_ARGUMENT, "'%s' does not name a file or directory; give its name", path);
    size_t parent = start;
    while (parent > 1 && path[parent - 1] == '/') parent--;
    *directory = parent > 0 ? strndup(path, parent) : strdup(".");
    *name = strndup(path + start, end - start);
    if (*directory && *name) return NW_OK;
    free(*directory);
    free(*name);
    *directory = *name = NULL;
    return no_memory(path);
}

bool nw_file_is_regular(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

bool nw_file_is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* ---- reading ---- */

static void close_file(FILE **file)
{
    if (*file) fclose(*file);
}

static nw_status open_regular(const char *path, FILE **in, uint64_t *bytes)
{
    struct stat s;
    /* O_NONBLOCK: a pipe without writer would block the open for ever, before it can be refused. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool refused = fd < 0 && (errno == EACCES || errno == EPERM || errno == EMFILE || errno == ENFILE);
    if (fd < 0) return FAIL_ERRNO(refused ? NW_E_SYSTEM : NW_E_FILE, "open", path);
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) {
        close(fd);
        return NW_FAIL(NW_E_FILE, "'%s' is not a regular file; give the path of a file", path);
    }
    *in = fdopen(fd, "rb");
    if (!*in) {
        close(fd);
        return no_memory(path);
    }
    *bytes = (uint64_t)s.st_size;
    return NW_OK;
}

nw_status nw_file_read(const char *path, size_t most, char **data, size_t *size)
{
    NW_CLEANUP(close_file) FILE *in = NULL;
    uint64_t bytes;
    *data = NULL;
    *size = 0;
    NW_TRY(open_regular(path, &in, &bytes));
    NW_FAIL_IF(bytes > most, NW_E_FILE, "'%s' has %llu bytes; at most %zu are expected in such a file", path,
               (unsigned long long)bytes, most);
    NW_AUTOFREE char *text = malloc((size_t)bytes + 1);
    if (!text) return no_memory(path);
    size_t got = fread(text, 1, (size_t)bytes, in);
    NW_FAIL_IF(ferror(in) || got != bytes, NW_E_FILE, "'%s' ended after %zu of %llu bytes; check the disk", path, got,
               (unsigned long long)bytes);
    text[got] = '\0';
    *data = text;
    *size = got;
    text = NULL;
    return NW_OK;
}

nw_status nw_file_hash(const char *path, uint64_t *bytes, char sha256[65])
{
    enum { CHUNK = 1 << 18 };
    NW_CLEANUP(close_file) FILE *in = NULL;
    uint64_t expected;
    NW_TRY(open_regular(path, &in, &expected));
    NW_AUTOFREE char *buffer = malloc(CHUNK);
    if (!buffer) return no_memory(path);
    nw_digest hash = nw_sha256_begin();
    for (size_t got; (got = fread(buffer, 1, CHUNK, in)) > 0;) nw_digest_add(&hash, buffer, got);
    NW_FAIL_IF(ferror(in), NW_E_FILE, "cannot read '%s' to its end; check the disk", path);
    *bytes = hash.bytes;
    nw_digest_end(&hash, sha256);
    return NW_OK;
}

/* ---- writing ---- */

nw_status nw_file_create(nw_file_writer *writer, const char *path)
{
    *writer = (nw_file_writer){.out = fopen(path, "wbe"), .hash = nw_sha256_begin()};
    if (!writer->out) return FAIL_ERRNO(NW_E_SYSTEM, "create", path);
    return nw_text_copy(&writer->path, path);
}

nw_status nw_file_write(nw_file_writer *writer, const void *data, size_t bytes)
{
    if (bytes > 0 && fwrite(data, 1, bytes, writer->out) != bytes)
        return FAIL_ERRNO(NW_E_SYSTEM, "write", writer->path);
    nw_digest_add(&writer->hash, data, bytes);
    writer->bytes += bytes;
    return NW_OK;
}

nw_status nw_file_finish(nw_file_writer *writer, char sha256[65])
{
    if (fflush(writer->out) != 0 || fsync(fileno(writer->out)) != 0)
        return FAIL_ERRNO(NW_E_SYSTEM, "write", writer->path);
    int closed = fclose(writer->out);
    writer->out = NULL;
    if (closed != 0) return FAIL_ERRNO(NW_E_SYSTEM, "close", writer->path);
    if (sha256) nw_digest_end(&writer->hash, sha256);
    free(writer->path);
    writer->path = NULL;
    return NW_OK;
}

void nw_file_abandon(nw_file_writer *writer)
{
    if (writer->out) fclose(writer->out);
    if (writer->path) unlink(writer->path);
    free(writer->path);
    *writer = (nw_file_writer){0};
}

static nw_status write_whole(const char *path, nw_status (*fill)(FILE *out, void *context), void *context)
{
    NW_CLEANUP(nw_file_abandon) nw_file_writer writer = {0};
    NW_TRY(nw_file_create(&writer, path));
    NW_TRY(fill(writer.out, context));
    if (ferror(writer.out)) {
        errno = 0;
        fflush(writer.out); /* fails again, and so says why */
        if (errno == 0) errno = EIO;
        return FAIL_ERRNO(NW_E_SYSTEM, "write", path);
    }
    return nw_file_finish(&writer, NULL);
}

/* Names made, renamed or removed in the directory are on disk afterwards. */
static nw_status sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return FAIL_ERRNO(NW_E_SYSTEM, "open", path);
    /* Some file systems have nothing to sync for a directory and say so with EINVAL. */
    bool failed = fsync(fd) != 0 && errno != EINVAL;
    int error = errno;
    close(fd);
    errno = error;
    return failed ? FAIL_ERRNO(NW_E_SYSTEM, "write", path) : NW_OK;
}

nw_status nw_file_replace_by(const char *path, nw_status (*fill)(FILE *out, void *context), void *context)
{
    NW_AUTOFREE char *directory = NULL, *name = NULL, *aside = NULL;
    NW_TRY(nw_path_split(path, &directory, &name));
    NW_TRY(nw_text_print(&aside, "%s/.%s.tmp-%d", directory, name, (int)getpid()));
    NW_TRY(write_whole(aside, fill, context));
    if (rename(aside, path) != 0) {
        nw_status status = FAIL_ERRNO(NW_E_SYSTEM, "replace", path);
        unlink(aside);
        return status;
    }
    return sync_directory(directory);
}

typedef struct span {
    const void *data;
    size_t size;
} span;

static nw_status fill_with_span(FILE *out, void *context)
{
    const span *bytes = context;
    fwrite(bytes->data, 1, bytes->size, out); /* what fails shows in ferror */
    return NW_OK;
}

nw_status nw_file_replace(const char *path, const void *data, size_t size)
{
    return nw_file_replace_by(path, fill_with_span, &(span){data, size});
}

/* ---- directories ---- */

static nw_status make_one(const char *path)
{
    NW_AUTOFREE char *directory = NULL, *name = NULL;
    if (mkdir(path, 0777) != 0) {
        if (errno != EEXIST) return FAIL_ERRNO(NW_E_SYSTEM, "make the directory", path);
        NW_FAIL_IF(!nw_file_is_directory(path), NW_E_SYSTEM,
                   "cannot make the directory '%s': a file has that name; choose another path", path);
        return NW_OK;
    }
    NW_TRY(nw_path_split(path, &directory, &name));
    return sync_directory(directory);
}

nw_status nw_directory_make(const char *path)
{
    NW_FAIL_IF(path[0] == '\0', NW_E_ARGUMENT, "the name of a directory is empty; give one");
    if (nw_file_is_directory(path)) return NW_OK;
    NW_AUTOFREE char *part = NULL;
    NW_TRY(nw_text_copy(&part, path));
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (!nw_file_is_directory(part)) NW_TRY(make_one(part));
        *slash = '/';
    }
    return make_one(path);
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static nw_status add_name(nw_names *names, const char *name)
{
    if (!nw_grow(&names->at, (size_t)names->count, sizeof *names->at)) return no_memory(name);
    NW_TRY(nw_text_copy(&names->at[names->count], name));
    names->count++;
    return NW_OK;
}

nw_status nw_directory_list(nw_names *names, const char *path)
{
    *names = (nw_names){0};
    DIR *d = opendir(path);
    if (!d) return FAIL_ERRNO(NW_E_FILE, "open the directory", path);
    nw_status status = NW_OK;
    for (struct dirent *e; status == NW_OK && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) status = add_name(names, e->d_name);
    closedir(d);
    if (status != NW_OK) nw_names_free(names);
    if (names->count > 1) qsort(names->at, (size_t)names->count, sizeof *names->at, compare_names);
    return status;
}

void nw_names_free(nw_names *names)
{
    for (int i = 0; i < names->count; i++) free(names->at[i]);
    free(names->at);
    *names = (nw_names){0};
}

static nw_status remove_files(int fd, const nw_names *names, const char *path)
{
    struct stat s;
    for (int i = 0; i < names->count; i++)
        NW_FAIL_IF(fstatat(fd, names->at[i], &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode), NW_E_SYSTEM,
                   "'%s' is not removed because it holds the directory '%s'; remove it yourself", path, names->at[i]);
    for (int i = 0; i < names->count; i++)
        if (unlinkat(fd, names->at[i], 0) != 0 && errno != ENOENT) return FAIL_ERRNO(NW_E_SYSTEM, "remove", path);
    if (rmdir(path) != 0 && errno != ENOENT) return FAIL_ERRNO(NW_E_SYSTEM, "remove", path);
    return NW_OK;
}

nw_status nw_directory_remove(const char *path)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? NW_OK : FAIL_ERRNO(NW_E_SYSTEM, "remove", path);
    nw_status status = nw_directory_list(&names, path);
    if (status == NW_OK) status = remove_files(fd, &names, path);
    close(fd);
    return status;
}

/* ---- replacing directories ---- */

static bool lock_directory(const char *path, int *lock)
{
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (*lock >= 0) close(*lock);
    *lock = -1;
    return false;
}

/* A name for something beside `target` that no other thread or process was given: `.<name>.tmp-<process>-<n>`. */
static nw_status aside_name(const char *target, char **path)
{
    static unsigned counter;
    NW_AUTOFREE char *directory = NULL, *name = NULL;
    *path = NULL;
    NW_TRY(nw_path_split(target, &directory, &name));
    unsigned n = __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED);
    return nw_text_print(path, "%s/.%s.tmp-%d-%u", directory, name, (int)getpid(), n);
}

nw_status nw_directory_make_aside(const char *target, char **path, int *lock)
{
    for (int attempt = 0; attempt < 1000; attempt++) {
        NW_TRY(aside_name(target, path));
        if (mkdir(*path, 0777) == 0) {
            /* Another process may have cleaned it away between the two calls; then try again. Where the file system has
             * no locks, cleaning leaves such directories alone, because it cannot lock either. */
            lock_directory(*path, lock);
            if (nw_file_is_directory(*path)) return NW_OK;
            if (*lock >= 0) close(*lock);
        } else if (errno != EEXIST) { /* which is of a process that died and had the same number */
            nw_status status = FAIL_ERRNO(NW_E_SYSTEM, "make the directory", *path);
            free(*path);
            *path = NULL;
            return status;
        }
        free(*path);
        *path = NULL;
    }
    return NW_FAIL(NW_E_SYSTEM, "found no free name for a new directory beside '%s'; remove old '.*.tmp-*' there",
                   target);
}

nw_status nw_directory_discard(const char *path)
{
    NW_AUTOFREE char *aside = NULL;
    NW_TRY(aside_name(path, &aside));
    if (rename(path, aside) != 0) return FAIL_ERRNO(NW_E_SYSTEM, "remove", path);
    return nw_directory_remove(aside);
}

/* The three names that a replacement deals with. */
typedef struct beside {
    char *directory, *name;
    char *old;    /* directory/.name.old */
    char *prefix; /* .name.tmp- */
} beside;

static void beside_free(beside *b)
{
    free(b->directory);
    free(b->name);
    free(b->old);
    free(b->prefix);
}

static nw_status beside_make(beside *b, const char *target)
{
    NW_TRY(nw_path_split(target, &b->directory, &b->name));
    NW_TRY(nw_text_print(&b->old, "%s/.%s.old", b->directory, b->name));
    return nw_text_print(&b->prefix, ".%s.tmp-", b->name);
}

/* Renames `from` to `to`. What had that name is afterwards found at *leftover (to be removed), if anything had it. */
static nw_status take_name(const beside *b, const char *from, const char *to, bool exchange, const char **leftover)
{
    *leftover = NULL;
    if (exchange && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) == 0) {
        *leftover = from;
        return NW_OK;
    }
    if (nw_file_is_directory(to)) {
        NW_TRY(nw_directory_remove(b->old)); /* of a replacement that died after it was done: `to` is there */
        if (rename(to, b->old) != 0) return FAIL_ERRNO(NW_E_SYSTEM, "set aside", to);
        *leftover = b->old;
    }
    if (rename(from, to) == 0) return NW_OK;
    nw_status status = FAIL_ERRNO(NW_E_SYSTEM, "give a new directory the name", to);
    if (*leftover && rename(b->old, to) == 0) *leftover = NULL;
    return status;
}

nw_status nw_directory_replace(const char *aside, const char *target, bool exchange)
{
    NW_CLEANUP(beside_free) beside b = {0};
    const char *leftover = NULL;
    NW_TRY(beside_make(&b, target));
    NW_TRY(sync_directory(aside));
    NW_TRY(take_name(&b, aside, target, exchange, &leftover));
    NW_TRY(sync_directory(b.directory));
    if (leftover) (void)nw_directory_remove(leftover); /* if not now, by nw_directory_clean */
    return NW_OK;
}

/* A directory that nobody has locked is removed; one that resists is left for the next time. */
static void remove_unlocked(const char *path)
{
    int lock;
    if (!lock_directory(path, &lock)) return;
    (void)nw_directory_remove(path);
    close(lock);
}

nw_status nw_directory_sweep(const char *directory)
{
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_TRY(nw_directory_list(&names, directory));
    for (int i = 0; i < names.count; i++) {
        NW_AUTOFREE char *path = NULL;
        if (names.at[i][0] != '.' || !strstr(names.at[i], ".tmp-")) continue;
        NW_TRY(nw_path_join(&path, directory, names.at[i]));
        if (nw_file_is_regular(path)) (void)unlink(path); /* what resists does no harm */
    }
    return NW_OK;
}

nw_status nw_directory_clean(const char *target)
{
    NW_CLEANUP(beside_free) beside b = {0};
    NW_CLEANUP(nw_names_free) nw_names names = {0};
    NW_TRY(beside_make(&b, target));
    if (nw_file_is_directory(b.old)) {
        if (nw_file_is_directory(target))
            remove_unlocked(b.old);
        else if (rename(b.old, target) != 0)
            return FAIL_ERRNO(NW_E_SYSTEM, "restore", target);
    }
    NW_TRY(nw_directory_list(&names, b.directory));
    for (int i = 0; i < names.count; i++) {
        NW_AUTOFREE char *path = NULL;
        if (strncmp(names.at[i], b.prefix, strlen(b.prefix)) != 0) continue;
        NW_TRY(nw_path_join(&path, b.directory, names.at[i]));
        remove_unlocked(path);
    }
    return NW_OK;
}
