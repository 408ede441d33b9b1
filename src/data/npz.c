/*
 * npz.c - numpy's .npy arrays and .npz archives; see npz.h.
 *
 * A zip archive is read from its end: the end record gives the central directory, whose entries give name, method,
 * sizes and the place of each member. Sizes of 4 GB and more stand in zip64 records. The .npy header is the text of a
 * Python dict with the keys descr, fortran_order and shape, always in the form that numpy writes.
 */
#include "data/npz.h"

#include "data/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- .npy -------------------------------------------------------------------------------------------------------- */

/* Where the value of a key begins, or NULL. */
static const char *dict_value(const char *text, size_t length, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 0; i + n + 2 < length; i++) {
        if (text[i] != '\'' || memcmp(text + i + 1, key, n) != 0 || text[i + 1 + n] != '\'') continue;
        for (i += n + 2; i < length && (text[i] == ':' || text[i] == ' '); i++) continue;
        return i < length ? text + i : NULL;
    }
    return NULL;
}

static nw_status parse_shape(nw_array *array, const char *at, const char *end, const char *name)
{
    bool digits = false;
    array->dims = 0;
    for (at++; at < end && *at != ')'; at++) {
        if (*at >= '0' && *at <= '9') {
            if (!digits) {
                NW_FAIL_IF(array->dims == NW_ARRAY_DIMS, NW_E_FILE, "%s: the array has more than %d dimensions", name,
                           NW_ARRAY_DIMS);
                array->shape[array->dims++] = 0;
            }
            uint64_t *n = &array->shape[array->dims - 1];
            NW_FAIL_IF(*n > UINT64_MAX / 16, NW_E_FILE, "%s: the array's shape is out of range", name);
            *n = *n * 10 + (uint64_t)(*at - '0');
            digits = true;
        } else {
            NW_FAIL_IF(*at != ',' && *at != ' ' && *at != 'L', NW_E_FILE, "%s: the array's shape has a '%c' in it",
                       name, *at >= 32 && *at < 127 ? *at : '?');
            digits = false;
        }
    }
    NW_FAIL_IF(at >= end, NW_E_FILE, "%s: the array's shape has no end", name);
    return NW_OK;
}

nw_status nw_npy_read(nw_array *array, const uint8_t *data, size_t size, const char *name)
{
    *array = (nw_array){0};
    NW_FAIL_IF(size < 12 || memcmp(data, "\x93NUMPY", 6) != 0, NW_E_FILE,
               "%s: it does not begin as a .npy file does (\\x93NUMPY at offset 0)", name);
    NW_FAIL_IF(data[6] < 1 || data[6] > 3, NW_E_FILE, "%s: .npy version %d at offset 6 is not 1 to 3", name, data[6]);
    size_t start = data[6] == 1 ? 10 : 12, length = data[6] == 1 ? nw_get_le16(data + 8) : nw_get_le32(data + 8);
    NW_FAIL_IF(length > size - start, NW_E_FILE, "%s: the file ends inside its header of %zu bytes at offset %zu", name,
               length, start);
    const char *text = (const char *)data + start, *end = text + length;
    const char *descr = dict_value(text, length, "descr"), *order = dict_value(text, length, "fortran_order");
    const char *shape = dict_value(text, length, "shape");
    NW_FAIL_IF(!descr || !order || !shape || *descr != '\'' || *shape != '(', NW_E_FILE,
               "%s: the header at offset %zu lacks descr, fortran_order or shape, or the array is a structured one",
               name, start);
    const char *close = memchr(descr + 1, '\'', (size_t)(end - descr - 1));
    NW_FAIL_IF(!close, NW_E_FILE, "%s: the type in the header has no end", name);
    NW_TRY(nw_array_type(array, descr + 1, (size_t)(close - descr - 1), name));
    array->fortran = *order == 'T';
    NW_TRY(parse_shape(array, shape, end, name));
    return nw_array_finish(array, data + start + length, size - start - length, name);
}

/* ---- zip --------------------------------------------------------------------------------------------------------- */

typedef struct member {
    const uint8_t *name;
    size_t name_size;
    uint32_t method, flags, crc;
    uint64_t packed, size, offset;
} member;

/* Replaces what is 0xffffffff in the entry by what the zip64 field of `extra` says, in the order of the standard. */
static nw_status read_zip64(member *m, const uint8_t *extra, size_t length, const char *name)
{
    if (m->size != UINT32_MAX && m->packed != UINT32_MAX && m->offset != UINT32_MAX) return NW_OK;
    while (length >= 4) {
        size_t field = nw_get_le16(extra + 2);
        if (field > length - 4) break;
        if (nw_get_le16(extra) == 1) {
            const uint8_t *p = extra + 4, *end = p + field;
            uint64_t *wide[3] = {&m->size, &m->packed, &m->offset};
            for (int i = 0; i < 3; i++) {
                if (*wide[i] != UINT32_MAX) continue;
                NW_FAIL_IF(end - p < 8, NW_E_FILE, "%s: a zip64 field is too short", name);
                *wide[i] = nw_get_le64(p);
                p += 8;
            }
            return NW_OK;
        }
        extra += 4 + field;
        length -= 4 + field;
    }
    return NW_FAIL(NW_E_FILE, "%s: a member of 4 GB or more has no zip64 field", name);
}

/* The central directory: where it begins and how many entries it has. */
static nw_status find_directory(const uint8_t *data, size_t size, const char *name, uint64_t *offset, uint64_t *entries)
{
    NW_FAIL_IF(size < 22, NW_E_FILE, "%s: %zu bytes are too few for a zip archive", name, size);
    size_t at = size - 22, lowest = size > 22 + 65535 ? size - 22 - 65535 : 0;
    while (nw_get_le32(data + at) != 0x06054b50) {
        NW_FAIL_IF(at == lowest, NW_E_FILE, "%s: no end record: the file is truncated, or not a zip archive", name);
        at--;
    }
    *entries = nw_get_le16(data + at + 10);
    *offset = nw_get_le32(data + at + 16);
    if (*entries == 0xffff || *offset == UINT32_MAX) {
        NW_FAIL_IF(at < 20 || nw_get_le32(data + at - 20) != 0x07064b50, NW_E_FILE,
                   "%s: no zip64 locator before the end record at offset %zu", name, at);
        uint64_t end64 = nw_get_le64(data + at - 20 + 8);
        NW_FAIL_IF(end64 > size - 22 || size - end64 < 56 || nw_get_le32(data + end64) != 0x06064b50, NW_E_FILE,
                   "%s: the zip64 end record is not at offset %llu", name, (unsigned long long)end64);
        *entries = nw_get_le64(data + end64 + 32);
        *offset = nw_get_le64(data + end64 + 48);
    }
    NW_FAIL_IF(*offset > size, NW_E_FILE, "%s: the directory lies at offset %llu, beyond the end", name,
               (unsigned long long)*offset);
    return NW_OK;
}

/* True if the entry is called `wanted`, or `wanted`.npy. */
static bool is_called(const member *m, const char *wanted)
{
    size_t n = strlen(wanted);
    if (m->name_size < n || memcmp(m->name, wanted, n) != 0) return false;
    return m->name_size == n || (m->name_size == n + 4 && memcmp(m->name + n, ".npy", 4) == 0);
}

static nw_status find_member(member *m, const uint8_t *data, size_t size, const char *name, const char *wanted,
                             bool *found)
{
    uint64_t at = 0, entries = 0;
    *found = false;
    NW_TRY(find_directory(data, size, name, &at, &entries));
    for (uint64_t i = 0; i < entries; i++) {
        NW_FAIL_IF(size - at < 46 || nw_get_le32(data + at) != 0x02014b50, NW_E_FILE,
                   "%s: no directory entry at offset %llu", name, (unsigned long long)at);
        const uint8_t *p = data + at;
        size_t names = nw_get_le16(p + 28), extra = nw_get_le16(p + 30), comment = nw_get_le16(p + 32);
        NW_FAIL_IF(names + extra + comment > size - at - 46, NW_E_FILE,
                   "%s: the directory entry at offset %llu passes the end", name, (unsigned long long)at);
        *m = (member){.name = p + 46,
                      .name_size = names,
                      .flags = nw_get_le16(p + 8),
                      .method = nw_get_le16(p + 10),
                      .crc = nw_get_le32(p + 16),
                      .packed = nw_get_le32(p + 20),
                      .size = nw_get_le32(p + 24),
                      .offset = nw_get_le32(p + 42)};
        if (is_called(m, wanted)) {
            *found = true;
            return read_zip64(m, p + 46 + names, extra, name);
        }
        at += 46 + names + extra + comment;
    }
    return NW_OK;
}

nw_status nw_npz_read(nw_array *array, const uint8_t *data, size_t size, const char *name, const char *wanted,
                      bool *found, uint8_t **owned)
{
    member m;
    char label[256];
    *owned = NULL;
    NW_TRY(find_member(&m, data, size, name, wanted, found));
    if (!*found) return NW_OK;
    snprintf(label, sizeof label, "%.180s, member '%.40s'", name, wanted);
    NW_FAIL_IF(m.flags & 1, NW_E_FILE, "%s: it is encrypted", label);
    NW_FAIL_IF(m.method != 0 && m.method != 8, NW_E_FILE, "%s: compression method %u is neither stored nor deflate",
               label, m.method);
    NW_FAIL_IF(m.offset > size || size - m.offset < 30 || nw_get_le32(data + m.offset) != 0x04034b50, NW_E_FILE,
               "%s: no member at offset %llu", label, (unsigned long long)m.offset);
    const uint8_t *p = data + m.offset;
    uint64_t skip = 30 + (uint64_t)nw_get_le16(p + 26) + nw_get_le16(p + 28);
    NW_FAIL_IF(skip > size - m.offset || m.packed > size - m.offset - skip, NW_E_FILE,
               "%s: its %llu bytes at offset %llu pass the end; the file is truncated", label,
               (unsigned long long)m.packed, (unsigned long long)m.offset);
    p += skip;
    if (m.method == 0) {
        NW_FAIL_IF(m.packed != m.size, NW_E_FILE, "%s: it is stored, but its two sizes differ", label);
        return nw_npy_read(array, p, (size_t)m.size, label);
    }
    /* Deflate makes at most 1032 bytes of one, so a larger promise is a lie that need not be tried. */
    NW_FAIL_IF(m.size / 1032 > m.packed + 1, NW_E_FILE, "%s: %llu bytes cannot unpack to %llu", label,
               (unsigned long long)m.packed, (unsigned long long)m.size);
    NW_AUTOFREE uint8_t *plain = NULL;
    size_t unpacked;
    NW_TRY(nw_unpack(p, (size_t)m.packed, label, false, (size_t)m.size, &plain, &unpacked));
    NW_FAIL_IF(unpacked != m.size, NW_E_FILE, "%s: unpacks to %zu bytes instead of the %llu it promises; get it again",
               label, unpacked, (unsigned long long)m.size);
    NW_TRY(nw_npy_read(array, plain, unpacked, label));
    *owned = plain;
    plain = NULL;
    return NW_OK;
}
