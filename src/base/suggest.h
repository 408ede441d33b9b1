/* suggest.h - finding things by their names, and the nearest of some names to a misspelt one. */
#ifndef NW_BASE_SUGGEST_H
#define NW_BASE_SUGGEST_H

#include "base/status.h"

/* The end of a sentence: "; the nearest is 'x', and <hint>"; "; <hint>" where no name is near; "" where there is no
 * hint either. */
typedef struct nw_suggestion {
    char text[256];
} nw_suggestion;

/* The name with the smallest edit distance (insert, delete, replace, swap of neighbours), the first of equals, if it is
 * small for the length. */
nw_suggestion nw_suggest(const char *wrong, const char *const *names, int count, const char *hint);
/* The same of options: "; the nearest is --x". */
nw_suggestion nw_suggest_option(const char *wrong, const char *const *names, int count, const char *hint);

/* Whether two names are the same but for case, '-' and '_'; of the second, its first `length` characters. */
bool nw_name_same(const char *a, const char *b);
bool nw_name_same_part(const char *a, const char *b, size_t length);

/* The row called `name` of a table whose rows, of so many bytes, begin with their names (const char *). NW_E_UNKNOWN
 * suggests one: "there is no <what> '...'<suggestion>". */
nw_status nw_name_find(const char *what, const char *name, const void *rows, size_t bytes, int count, const char *hint,
                       int *index);

#endif
