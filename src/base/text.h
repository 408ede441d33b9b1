/*
 * text.h - texts and arrays whose length is not known before: printed, copied, written to a stream, grown one by one.
 * What is made is to be freed. NW_E_MEMORY where there is no room for it.
 */
#ifndef NW_BASE_TEXT_H
#define NW_BASE_TEXT_H

#include "base/status.h"

#include <stdio.h>

/* NULL after a failure. An argument may be the text that *text was before, which is not freed. */
nw_status nw_text_print(char **text, const char *format, ...) __attribute__((format(printf, 2, 3)));
nw_status nw_text_copy(char **copy, const char *text);

/* A text that is written to `out` between begin and end; from then on text and size count. All zero: none. */
typedef struct nw_text {
    FILE *out;
    char *text; /* with a zero behind it */
    size_t size;
} nw_text;

nw_status nw_text_begin(nw_text *text);
nw_status nw_text_end(nw_text *text);
void nw_text_free(nw_text *text); /* at any time */

/* Room for one more item of `bytes` behind `count` of them in the array whose pointer lies at `array`, NULL where there
 * are none: twice as much at powers of two. False if there is no memory; then nothing has changed. */
bool nw_grow(void *array, size_t count, size_t bytes);

#endif
