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
    bool regular = fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode);
    size_t size = regular ? (size_t)facts.st_size : 0;
    void *at = size > 0 ? mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int error = errno;
    close(fd);
    NW_FAIL_IF(!regular, NW_E_FILE, "%s is not a regular file; the dataset's files must be files or links to files",
               path);
    NW_FAIL_IF(at == MAP_FAILED, NW_E_FILE, "%s cannot be mapped into memory: %s", path, strerror(error));
    *file = (nw_file){at, size};
    return NW_OK;
}

void nw_file_unmap(nw_file *file)
{
    if (file->data) munmap((void *)file->data, file->size);
    *file = (nw_file){0};
}

nw_status nw_path_put(char path[NW_PATH_SIZE], const char *dir, const char *name)
{
    NW_AUTOFREE char *joined = NULL;
    NW_TRY(nw_path_join(&joined, dir, name));
    int wrote = snprintf(path, NW_PATH_SIZE, "%s", joined);
    NW_FAIL_IF(wrote < 0 || wrote >= NW_PATH_SIZE, NW_E_ARGUMENT,
               "the path of '%s' in a dataset's folder has more than %d bytes; use a folder nearer to the root", name,
               NW_PATH_SIZE - 1);
    return NW_OK;
}

#if NW_HAVE_ZLIB

/* zlib counts in unsigned int: longer pieces are fed bit by bit. */
static unsigned piece(size_t left) { return left > 1u << 30 ? 1u << 30 : (unsigned)left; }

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

static void end_inflate(z_stream *z) { inflateEnd(z); }

nw_status nw_unpack(const uint8_t *data, size_t size, const char *name, bool gzip, size_t most, uint8_t **out,
                    size_t *out_size)
{
    NW_CLEANUP(end_inflate) z_stream z = {0};
    NW_AUTOFREE uint8_t *made = NULL;
    size_t capacity = 0, used = 0, fed = 0;
    NW_FAIL_IF(inflateInit2(&z, gzip ? 15 + 16 : -15) != Z_OK, NW_E_MEMORY, "%s: no memory to unpack it", name);
    z.next_in = (Bytef *)data;
    for (;;) {
        if (z.avail_in == 0) {
            z.avail_in = piece(size - fed);
            fed += z.avail_in;
        }
        if (used == capacity) NW_TRY(grow(&made, &capacity, most, name));
        z.next_out = made + used;
        z.avail_out = piece(capacity - used);
        unsigned room = z.avail_out;
        int result = inflate(&z, Z_NO_FLUSH);
        used += room - z.avail_out;
        size_t left = size - fed + z.avail_in;
        if (result == Z_STREAM_END) {
            /* Another member may follow; anything else behind the end is padding, as gzip itself sees it. */
            if (!gzip || left < 2 || z.next_in[0] != 0x1f || z.next_in[1] != 0x8b) break;
            inflateReset(&z);
        } else {
            NW_FAIL_IF(result != Z_OK || (left == 0 && z.avail_out > 0), NW_E_FILE,
                       "%s: the compressed data are damaged at offset %zu (%s); get the file again", name, size - left,
                       z.msg ? z.msg : "wrong length");
        }
    }
    if (used > most) return grow(&made, &capacity, most, name); /* the end came exactly with the byte too many */
    *out = made;
    *out_size = used;
    made = NULL;
    return NW_OK;
}

#else

nw_status nw_unpack(const uint8_t *data, size_t size, const char *name, bool gzip, size_t most, uint8_t **out,
                    size_t *out_size)
{
    (void)data, (void)size, (void)gzip, (void)most, (void)out, (void)out_size;
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "%s is compressed and this build has no zlib; unpack it, or install zlib1g-dev and build again",
                   name);
}

#endif
