/* bump.c - a list of pieces, each used from its start; see bump.h. */
#include "config/bump.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 14 };

struct nw_region_piece {
    struct nw_region_piece *next;
    size_t size;
    _Alignas(max_align_t) unsigned char data[];
};

void *nw_bump_alloc(nw_bump *region, size_t bytes)
{
    enum { STEP = _Alignof(max_align_t) };
    if (bytes > SIZE_MAX / 2) return NULL;
    bytes = (bytes + STEP - 1) / STEP * STEP;
    if (!region->pieces || region->pieces->size - region->used < bytes) {
        size_t size = bytes > PIECE ? bytes : PIECE;
        struct nw_region_piece *piece = calloc(1, sizeof *piece + size);
        if (!piece) return NULL;
        piece->next = region->pieces;
        piece->size = size;
        region->pieces = piece;
        region->used = 0;
    }
    void *at = region->pieces->data + region->used;
    region->used += bytes;
    return at;
}

char *nw_bump_text(nw_bump *region, const char *text, size_t length)
{
    char *copy = nw_bump_alloc(region, length + 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}

char *nw_bump_print(nw_bump *region, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : nw_bump_alloc(region, (size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

void nw_bump_free(nw_bump *region)
{
    while (region->pieces) {
        struct nw_region_piece *next = region->pieces->next;
        free(region->pieces);
        region->pieces = next;
    }
    region->used = 0;
}
