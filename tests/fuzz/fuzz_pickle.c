/* fuzz_pickle.c - pickles, and the batches of images that are made of them. */
#include "data/python_batch.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { IMAGE = 12, MOST = 1 << 16 };
    static const char *const keys[] = {"labels", "fine_labels"};
    float mean[IMAGE];
    bool found;
    nw_pickle *pickle;
    if (nw_pickle_read(&pickle, data, size, "input") == NW_OK) nw_pickle_free(pickle);
    for (int k = 0; k < 2; k++) {
        nw_python_batch batch;
        if (nw_python_batch_open_memory(&batch, data, size, "input", keys[k]) != NW_OK) continue;
        if (batch.count <= MOST) {
            int32_t *labels = malloc((batch.count + 1) * sizeof *labels);
            uint8_t *pixels = malloc(batch.count * IMAGE + 1);
            nw_python_batch_labels(&batch, 1, 1000, labels);
            nw_python_batch_pixels(&batch, IMAGE, pixels);
            nw_python_batch_mean(&batch, IMAGE, mean, &found);
            free(labels);
            free(pixels);
        }
        nw_python_batch_close(&batch);
    }
    return 0;
}
