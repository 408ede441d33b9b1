/*
 * bump.h - memory that grows piece by piece and is freed at once: texts and nodes whose number is not known before.
 *
 * What is handed out stays where it is until nw_bump_free. A region full of zeros is an empty one. Functions return
 * NULL where memory ran out; NW_TRY_MEMORY turns that into a failure. One thread at a time.
 */
#ifndef NW_CONFIG_BUMP_H
#define NW_CONFIG_BUMP_H

#include "base/status.h"

typedef struct nw_bump {
    struct nw_region_piece *pieces;
    size_t used; /* of the newest piece */
} nw_bump;

void *nw_bump_alloc(nw_bump *region, size_t bytes); /* zeroed, aligned for any type */
char *nw_bump_text(nw_bump *region, const char *text, size_t length);
char *nw_bump_print(nw_bump *region, const char *format, ...) __attribute__((format(printf, 2, 3)));
void nw_bump_free(nw_bump *region);

#define NW_TRY_MEMORY(pointer) \
    NW_FAIL_IF(!(pointer), NW_E_MEMORY, "no memory left for the options; free some and try again")

#endif
