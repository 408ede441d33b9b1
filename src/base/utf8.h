/* utf8.h - which bytes are a UTF-8 character. */
#ifndef NW_BASE_UTF8_H
#define NW_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the valid UTF-8 sequence of two bytes or more at `text`, or 0. Reads no further than the first byte that
 * does not continue it, and never more than `left` bytes (at least 1). Overlong forms, surrogates and values past
 * U+10FFFF are invalid (RFC 3629, section 4). */
static inline size_t nw_utf8_length(const unsigned char *text, size_t left)
{
    unsigned first = text[0];
    size_t length = 0;
    if (first >= 0xC2 && first <= 0xDF) length = 2;
    if (first >= 0xE0 && first <= 0xEF) length = 3;
    if (first >= 0xF0 && first <= 0xF4) length = 4;
    if (length == 0 || length > left) return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xC0) != 0x80) return 0;
    unsigned second = text[1];
    bool invalid = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                   (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
    return invalid ? 0 : length;
}

#endif
