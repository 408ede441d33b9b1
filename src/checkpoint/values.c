/* values.c - lists of numbers and integers of a checkpoint. See checkpoint.h. */
#include "checkpoint/checkpoint.h"

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

nw_status nw_checkpoint_has_tensor(nw_checkpoint *checkpoint, const char *file, const char *name, bool *has)
{
    const nw_safetensors *tensors;
    *has = false;
    if (!nw_checkpoint_has_file(checkpoint, file)) return NW_OK;
    NW_TRY(nw_checkpoint_tensors(checkpoint, file, &tensors));
    *has = nw_safetensors_find(tensors, name) >= 0;
    return NW_OK;
}

nw_status nw_checkpoint_read_integers(nw_checkpoint *checkpoint, const char *file, const char *name, int columns,
                                      int64_t **integers, size_t *n)
{
    const nw_safetensors *tensors;
    int64_t shape[] = {0, columns};
    int dims = columns > 0 ? 2 : 1;
    *integers = NULL;
    NW_TRY(nw_checkpoint_tensors(checkpoint, file, &tensors));
    int index = nw_safetensors_find(tensors, name);
    if (index >= 0 && nw_safetensors_at(tensors, index)->dims > 0)
        shape[0] = nw_safetensors_at(tensors, index)->shape[0];
    *n = (size_t)shape[0];
    int64_t *made = malloc(index >= 0 ? nw_safetensors_bytes(tensors, index) + 1 : 1);
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for the tensor '%s' of '%s'", name, nw_safetensors_path(tensors));
    NW_TRY_OR(nw_checkpoint_read_raw(checkpoint, file, name, NW_SAVED_I64, dims, shape, made), free(made));
    *integers = made;
    return NW_OK;
}
