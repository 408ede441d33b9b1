/* text.c - see text.h. */
#define _GNU_SOURCE 1
#include "base/text.h"

#include <stdarg.h>

static nw_status no_memory(void) { return NW_FAIL(NW_E_MEMORY, "no memory for a text"); }

nw_status nw_text_print(char **text, const char *format, ...)
{
    char *made;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&made, format, arguments);
    va_end(arguments);
    *text = length < 0 ? NULL : made;
    return *text ? NW_OK : no_memory();
}

nw_status nw_text_copy(char **copy, const char *text)
{
    *copy = strdup(text);
    return *copy ? NW_OK : no_memory();
}

nw_status nw_text_begin(nw_text *t)
{
    *t = (nw_text){0};
    t->out = open_memstream(&t->text, &t->size);
    return t->out ? NW_OK : no_memory();
}

nw_status nw_text_end(nw_text *t)
{
    bool failed = ferror(t->out) != 0;
    failed |= fclose(t->out) != 0;
    t->out = NULL;
    return failed ? no_memory() : NW_OK;
}

void nw_text_free(nw_text *t)
{
    if (t->out) fclose(t->out);
    free(t->text);
    *t = (nw_text){0};
}

bool nw_grow(void *array, size_t count, size_t bytes)
{
    void *old, *grown;
    if (count & (count - 1)) return true; /* neither 0 nor a power of two */
    memcpy(&old, array, sizeof old);      /* a pointer of any type */
    grown = realloc(old, (count ? 2 * count : 1) * bytes);
    if (grown) memcpy(array, &grown, sizeof grown);
    return grown != NULL;
}
