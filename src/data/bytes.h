/*
 * bytes.h - whole files as bytes, and reading numbers out of them without passing the end.
 *
 * A file is mapped, not copied, so a parser may hand out views into it for as long as the file stays open. A file that
 * shrinks while it is mapped kills the process (SIGBUS): datasets are not written to while they are read.
 */
#ifndef NW_DATA_BYTES_H
#define NW_DATA_BYTES_H

#include "base/file.h"

typedef struct nw_file {
    const uint8_t *data; /* NULL where size is 0 */
    size_t size;
} nw_file;

/* NW_E_FILE names the path and what the system said. */
nw_status nw_file_map(nw_file *file, const char *path);
void nw_file_unmap(nw_file *file);

/* "dir/name" into path; NW_E_ARGUMENT if it does not fit. */
enum { NW_PATH_SIZE = 4096 };
nw_status nw_path_put(char path[NW_PATH_SIZE], const char *dir, const char *name);

/* Unaligned numbers. The caller has checked that the bytes are there. */
static inline uint32_t nw_get_le16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t nw_get_le32(const uint8_t *p) { return nw_get_le16(p) | nw_get_le16(p + 2) << 16; }
static inline uint64_t nw_get_le64(const uint8_t *p) { return nw_get_le32(p) | (uint64_t)nw_get_le32(p + 4) << 32; }
static inline uint32_t nw_get_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Decompresses gzip (whole file, members in a row) or a raw deflate stream into memory that the caller frees. More than
 * `most` bytes is NW_E_FILE: no input decides how much memory is taken. `name` is for messages. */
nw_status nw_unpack(const uint8_t *data, size_t size, const char *name, bool gzip, size_t most, uint8_t **out,
                    size_t *out_size);

#endif
