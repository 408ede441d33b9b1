/* suggest.h - the nearest of some names to a misspelt one, for error messages. */
#ifndef NW_BASE_SUGGEST_H
#define NW_BASE_SUGGEST_H

/* The name with the smallest edit distance (insert, delete, replace, swap of neighbours); the first of equals. */
const char *nw_suggest(const char *wrong, const char *const *names, int count);

#endif
