/* factors.c - see factors.h. */
#include "net/factors.h"

#include <string.h>

static const nw_factor *find(const nw_factors *f, const char *codec, const char *what)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->at[i].codec, codec) == 0 && strcmp(f->at[i].what, what) == 0) return &f->at[i];
    return NULL;
}

double nw_factors_find(const nw_factors *f, const char *codec, const char *what)
{
    if (!f) return 1;
    const nw_factor *own = find(f, codec, what);
    if (!own && strcmp(what, NW_FACTOR_DECODE) != 0) own = find(f, codec, NW_FACTOR_ENCODE);
    return own ? own->times : 1;
}

size_t nw_factors_apply(const nw_factors *f, const char *codec, const char *what, size_t bytes)
{
    double times = nw_factors_find(f, codec, what);
    return times == 1 ? bytes : (size_t)((double)bytes * times + 0.5);
}
