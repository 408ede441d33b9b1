/* fuzz_image.c - JPEG and PNG, whole and shrunk; every decoded byte is read. */
#include "data/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile unsigned keep;
    nw_bitmap bitmap = {0};
    int height, width;
    for (int least = 0; least <= 16; least += 16) {
        if (nw_image_decode_memory(data, size, "input", least, &bitmap, &height, &width) != NW_OK) continue;
        for (size_t i = 0; i < (size_t)bitmap.height * (size_t)bitmap.width * 3; i++) keep += bitmap.pixels[i];
    }
    nw_bitmap_free(&bitmap);
    return 0;
}
