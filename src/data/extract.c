/*
 * extract.c - unpacks archives through libarchive; see extract.h. Datasets are flat lists of files, so no folder is
 * ever made and no name of the archive can lead anywhere else.
 */
#include "data/extract.h"

#if NW_HAVE_ARCHIVE

#include "data/bytes.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static nw_status damaged(struct archive *a, const char *archive)
{
    const char *said = archive_error_string(a);
    return NW_FAIL(NW_E_FILE, "%s cannot be unpacked: %s", archive, said ? said : "it is damaged");
}

/* The last part of a name; NULL if the name tries to leave the folder. */
static const char *flat_name(const char *name)
{
    if (!name || name[0] == '/' || name[0] == 0) return NULL;
    for (const char *at = name; at; at = strchr(at, '/') ? strchr(at, '/') + 1 : NULL)
        if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == 0)) return NULL;
    const char *slash = strrchr(name, '/'), *base = slash ? slash + 1 : name;
    return base[0] == 0 || strcmp(base, ".") == 0 || strchr(base, '\\') ? NULL : base;
}

static nw_status copy_data(struct archive *a, const char *archive, int fd, const char *path, int64_t *left)
{
    for (;;) {
        const void *data;
        size_t bytes;
        la_int64_t offset;
        int result = archive_read_data_block(a, &data, &bytes, &offset);
        if (result == ARCHIVE_EOF) return NW_OK;
        if (result < ARCHIVE_WARN) return damaged(a, archive);
        NW_FAIL_IF((int64_t)bytes > *left, NW_E_FILE, "%s unpacks to more than the dataset has", archive);
        *left -= (int64_t)bytes;
        while (bytes) {
            ssize_t n = pwrite(fd, data, bytes, offset);
            if (n < 0 && errno == EINTR) continue;
            NW_FAIL_IF(n <= 0, NW_E_SYSTEM, "%s cannot be written: %s; free some space and try again", path,
                       n < 0 ? strerror(errno) : "nothing was taken");
            data = (const char *)data + n;
            bytes -= (size_t)n;
            offset += n;
        }
    }
}

static nw_status extract_entry(struct archive *a, struct archive_entry *entry, const char *archive, const char *folder,
                               int64_t *left)
{
    const char *name = archive_entry_pathname(entry), *base = flat_name(name);
    char path[NW_PATH_SIZE];
    if (archive_entry_filetype(entry) == AE_IFDIR) return NW_OK;
    NW_FAIL_IF(archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry), NW_E_FILE,
               "%s holds '%s', which is not a regular file; do not trust this archive", archive, name ? name : "?");
    NW_FAIL_IF(!base, NW_E_FILE,
               "%s holds a file with the name '%s', which leads outside the folder; do not trust this archive", archive,
               name ? name : "?");
    NW_TRY(nw_path_put(path, folder, base));
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    NW_FAIL_IF(fd < 0, errno == EEXIST ? NW_E_FILE : NW_E_SYSTEM, "%s cannot be made from %s: %s", path, archive,
               strerror(errno));
    nw_status status = copy_data(a, archive, fd, path, left);
    if (close(fd) != 0 && status == NW_OK)
        status = NW_FAIL(NW_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    return status;
}

static nw_status extract_all(struct archive *a, const char *archive, const char *folder, int64_t most)
{
    struct archive_entry *entry;
    if (archive_read_open_filename(a, archive, 1 << 16) != ARCHIVE_OK) return damaged(a, archive);
    for (;;) {
        int result = archive_read_next_header(a, &entry);
        if (result == ARCHIVE_EOF) return NW_OK;
        if (result < ARCHIVE_WARN) return damaged(a, archive);
        NW_TRY(extract_entry(a, entry, archive, folder, &most));
    }
}

nw_status nw_extract(const char *archive, const char *folder, int64_t most)
{
    struct archive *a = archive_read_new();
    NW_FAIL_IF(!a, NW_E_MEMORY, "no memory to unpack %s", archive);
    archive_read_support_format_tar(a);
    archive_read_support_format_zip(a);
    archive_read_support_filter_gzip(a);
    nw_status status = extract_all(a, archive, folder, most);
    archive_read_free(a);
    return status;
}

#else

nw_status nw_extract(const char *archive, const char *folder, int64_t most)
{
    (void)folder, (void)most;
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "this build has no libarchive and cannot unpack %s; unpack it by other means, or install "
                   "libarchive-dev and build again",
                   archive);
}

#endif
