/* fuzz_cifar.c - the binary version of CIFAR-10 and CIFAR-100. */
#include "data/cifar.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int label_bytes = 1; label_bytes <= 2; label_bytes++) {
        uint64_t count;
        if (nw_cifar_count(size, "input", label_bytes, &count) != NW_OK) continue;
        int32_t *labels = malloc(count * sizeof *labels);
        uint8_t *pixels = malloc(count * NW_CIFAR_PIXELS);
        nw_cifar_parse(data, size, "input", label_bytes, label_bytes == 1 ? 10 : 100, labels, pixels);
        free(labels);
        free(pixels);
    }
    return 0;
}
