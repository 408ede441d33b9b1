/* checkpoint_values.c - lists of numbers and histograms of a checkpoint. See checkpoint.h. */
#include "train/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEY_SIZE = 96 };

nw_status nw_checkpoint_add_numbers(nw_checkpoint_writer *writer, const char *prefix, const nw_saved_number *numbers,
                                    int count)
{
    for (int i = 0; i < count; i++) {
        const nw_saved_number *n = &numbers[i];
        char key[KEY_SIZE];
        snprintf(key, sizeof key, "%s%s", prefix, n->key);
        NW_TRY(n->whole ? nw_checkpoint_add_int(writer, key, *n->whole)
                        : nw_checkpoint_add_double(writer, key, *n->real));
    }
    return NW_OK;
}

nw_status nw_checkpoint_get_numbers(const nw_checkpoint *checkpoint, const char *prefix, const nw_saved_number *numbers,
                                    int count)
{
    for (int i = 0; i < count; i++) {
        const nw_saved_number *n = &numbers[i];
        char key[KEY_SIZE];
        snprintf(key, sizeof key, "%s%s", prefix, n->key);
        if (n->later && !nw_checkpoint_has(checkpoint, key)) continue;
        NW_TRY(n->whole ? nw_checkpoint_get_int(checkpoint, key, n->whole)
                        : nw_checkpoint_get_double(checkpoint, key, n->real));
    }
    return NW_OK;
}

nw_status nw_checkpoint_add_histogram(nw_checkpoint_writer *writer, const char *file, const nw_histogram *histogram)
{
    nw_packer packer = {0};
    nw_histogram_pack(histogram, &packer);
    nw_status status = packer.failed ? NW_FAIL(NW_E_MEMORY, "no memory for %s of a checkpoint", file)
                                     : nw_checkpoint_add_file(writer, file, packer.data, packer.size);
    free(packer.data);
    return status;
}

nw_status nw_checkpoint_get_histogram(const nw_checkpoint *checkpoint, const char *file, nw_histogram *histogram)
{
    char *bytes, source[512];
    size_t size;
    *histogram = (nw_histogram){0};
    NW_TRY(nw_checkpoint_read_file(checkpoint, file, &bytes, &size));
    nw_unpacker unpacker = {.data = (const uint8_t *)bytes, .size = size};
    snprintf(source, sizeof source, "%.400s/%s", nw_checkpoint_path(checkpoint), file);
    nw_status status = nw_histogram_unpack_merge(histogram, &unpacker, source);
    free(bytes);
    return status;
}
