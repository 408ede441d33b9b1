/*
 * extract.h - unpacks a tar or zip archive into one folder, flat and without surprises.
 */
#ifndef NW_DATA_EXTRACT_H
#define NW_DATA_EXTRACT_H

#include "base/status.h"

/* Every regular file of the archive becomes folder/NAME, whatever folders the archive puts it in. Links, devices,
 * absolute names, names with "..", two files with the same name and more than `most` bytes are refused. What was
 * unpacked before a failure is the caller's to remove. */
nw_status nw_extract(const char *archive, const char *folder, int64_t most);

#endif
