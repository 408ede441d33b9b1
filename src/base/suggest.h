/* suggest.h - finding things by their names, and the nearest of some names to a misspelt one. */
#ifndef NW_BASE_SUGGEST_H
#define NW_BASE_SUGGEST_H

#include "base/status.h"

/* The name with the smallest edit distance (insert, delete, replace, swap of neighbours); the first of equals. */
const char *nw_suggest(const char *wrong, const char *const *names, int count);

/* Whether two names are the same but for case, and for '-' or '_'. */
bool nw_name_same(const char *a, const char *b);

/* The row called `name` of a table whose rows, of so many bytes, begin with their names (const char *). NW_E_UNKNOWN
 * names the nearest: "there is no <what> '...'; the nearest is '...'<hint>". */
nw_status nw_name_find(const char *what, const char *name, const void *rows, size_t bytes, int count, const char *hint,
                       int *index);

#endif
