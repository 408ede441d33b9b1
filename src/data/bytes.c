/*
 * bytes.c - whole files as bytes, paths, and decompression with a limit; see bytes.h.
 */
#include "data/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if NW_HAVE_ZLIB
#include <zlib.h>
#endif

nw_status nw_file_map(nw_file *file, const char *path)
{
    struct stat facts;
    *file = (nw_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    NW_FAIL_IF(fd < 0, NW_E_FILE, "%s cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        close(fd);
        return NW_FAIL(NW_E_FILE, "%s is not a regular file; the dataset's files must be files or links to files",
                       path);
    }
    if (facts.st_size > 0) {
        void *at = mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        int error = errno;
        close(fd);
        NW_FAIL_IF(at == MAP_FAILED, NW_E_FILE, "%s cannot be mapped into memory: %s", path, strerror(error));
        *file = (nw_file){at, (size_t)facts.st_size};
        return NW_OK;
    }
    close(fd);
    return NW_OK;
}

void nw_file_unmap(nw_file *file)
{
    if (file->data) munmap((void *)file->data, file->size);
    *file = (nw_file){0};
}

nw_status nw_path_put(char path[NW_PATH_SIZE], const char *dir, const char *name)
{
    char *joined;
    NW_TRY(nw_path_join(&joined, dir, name));
    int wrote = snprintf(path, NW_PATH_SIZE, "%s", joined);
    free(joined);
    NW_FAIL_IF(wrote < 0 || wrote >= NW_PATH_SIZE, NW_E_ARGUMENT,
               "the path of '%s' in a dataset's folder has more than %d bytes; use a folder nearer to the root", name,
               NW_PATH_SIZE - 1);
    return NW_OK;
}

#if NW_HAVE_ZLIB

/* zlib counts in unsigned int: longer pieces are fed bit by bit. */
static unsigned piece(size_t left) { return left > 1u << 30 ? 1u << 30 : (unsigned)left; }

static nw_status inflate_failed(z_stream *z, const char *name, size_t offset)
{
    nw_status status = NW_FAIL(NW_E_FILE, "%s: the compressed data are damaged at offset %zu (%s); get the file again",
                               name, offset, z->msg ? z->msg : "wrong length");
    inflateEnd(z);
    return status;
}

/* Makes room for at least one more byte, never more than most + 1: the one byte too many proves the excess. */
static nw_status grow(uint8_t **out, size_t *capacity, size_t most, const char *name)
{
    NW_FAIL_IF(*capacity > most, NW_E_FILE,
               "%s unpacks to more than %zu bytes, which no such dataset has; is it the right file?", name, most);
    size_t wanted = *capacity ? *capacity * 2 : 1u << 16;
    if (wanted > most + 1) wanted = most + 1;
    uint8_t *more = realloc(*out, wanted);
    NW_FAIL_IF(!more, NW_E_MEMORY, "%s: no memory for %zu unpacked bytes", name, wanted);
    *out = more;
    *capacity = wanted;
    return NW_OK;
}

nw_status nw_gunzip(const uint8_t *data, size_t size, const char *name, size_t most, uint8_t **out, size_t *out_size)
{
    z_stream z = {0};
    size_t capacity = 0, used = 0, fed = 0;
    *out = NULL;
    *out_size = 0;
    NW_FAIL_IF(inflateInit2(&z, 15 + 16) != Z_OK, NW_E_MEMORY, "%s: no memory to unpack it", name);
    z.next_in = (Bytef *)data;
    for (;;) {
        if (z.avail_in == 0) {
            z.avail_in = piece(size - fed);
            fed += z.avail_in;
        }
        if (used == capacity) {
            nw_status status = grow(out, &capacity, most, name);
            if (status != NW_OK) {
                inflateEnd(&z);
                free(*out);
                *out = NULL;
                return status;
            }
        }
        z.next_out = *out + used;
        z.avail_out = piece(capacity - used);
        unsigned room = z.avail_out;
        int result = inflate(&z, Z_NO_FLUSH);
        used += room - z.avail_out;
        size_t left = size - fed + z.avail_in;
        if (result == Z_STREAM_END) {
            /* Another member may follow; anything else behind the end is padding, as gzip itself sees it. */
            if (left < 2 || z.next_in[0] != 0x1f || z.next_in[1] != 0x8b) break;
            inflateReset(&z);
        } else if (result != Z_OK || (left == 0 && z.avail_out > 0)) {
            nw_status status = inflate_failed(&z, name, size - left);
            free(*out);
            *out = NULL;
            return status;
        }
    }
    inflateEnd(&z);
    if (used > most) { /* the end came exactly with the byte too many */
        free(*out);
        *out = NULL;
        capacity = most + 1;
        return grow(out, &capacity, most, name);
    }
    *out_size = used;
    return NW_OK;
}

nw_status nw_inflate(const uint8_t *data, size_t size, const char *name, uint8_t *out, size_t out_size)
{
    z_stream z = {0};
    size_t fed = 0, given = 0;
    NW_FAIL_IF(inflateInit2(&z, -15) != Z_OK, NW_E_MEMORY, "%s: no memory to unpack it", name);
    z.next_in = (Bytef *)data;
    z.next_out = out;
    for (;;) {
        if (z.avail_in == 0) {
            z.avail_in = piece(size - fed);
            fed += z.avail_in;
        }
        if (z.avail_out == 0) {
            z.avail_out = piece(out_size - given);
            given += z.avail_out;
        }
        int result = inflate(&z, Z_NO_FLUSH);
        if (result == Z_STREAM_END) break;
        if (result != Z_OK) return inflate_failed(&z, name, fed - z.avail_in);
    }
    size_t made = given - z.avail_out;
    inflateEnd(&z);
    NW_FAIL_IF(made != out_size, NW_E_FILE, "%s: unpacks to %zu bytes instead of the %zu it promises; get it again",
               name, made, out_size);
    return NW_OK;
}

#else

static nw_status no_zlib(const char *name)
{
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "%s is compressed and this build has no zlib; unpack it, or install zlib1g-dev and build again",
                   name);
}

nw_status nw_gunzip(const uint8_t *data, size_t size, const char *name, size_t most, uint8_t **out, size_t *out_size)
{
    (void)data, (void)size, (void)most;
    *out = NULL;
    *out_size = 0;
    return no_zlib(name);
}

nw_status nw_inflate(const uint8_t *data, size_t size, const char *name, uint8_t *out, size_t out_size)
{
    (void)data, (void)size, (void)out, (void)out_size;
    return no_zlib(name);
}

#endif
