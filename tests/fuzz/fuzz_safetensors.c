/* fuzz_safetensors.c - a safetensors file of any bytes; of one that is accepted every tensor is read. */
#include "checkpoint/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_safetensors *file;
    if (nw_safetensors_open_memory(&file, data, size, "fuzz") != NW_OK) return 0;
    size_t total = 0;
    for (int i = 0; i < nw_safetensors_count(file); i++) {
        size_t bytes = nw_safetensors_bytes(file, i), elements = nw_safetensors_elements(file, i);
        total += bytes;
        if (total > size || nw_safetensors_find(file, nw_safetensors_at(file, i)->name) != i) abort();
        unsigned char *raw = malloc(bytes + 1);
        float *floats = malloc(elements * sizeof(float) + 1);
        if (nw_safetensors_read(file, i, raw) != NW_OK) abort();
        bool converted = nw_safetensors_read_f32(file, i, floats) == NW_OK;
        if (converted != nw_saved_type_is_float(nw_safetensors_at(file, i)->type)) abort();
        free(raw);
        free(floats);
    }
    nw_safetensors_close(file);
    return 0;
}
