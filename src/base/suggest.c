/* suggest.c - see suggest.h. The distance is that of optimal string alignment. */
#include "base/suggest.h"

#include <ctype.h>
#include <string.h>

enum { MOST = 63 }; /* characters compared; names are shorter */

static int least(int a, int b) { return a < b ? a : b; }

static int distance(const char *a, const char *b)
{
    int d[MOST + 1][MOST + 1];
    int n = (int)strnlen(a, MOST), m = (int)strnlen(b, MOST);
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            int replaced = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = least(replaced, least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[n][m];
}

static const char *name_of(const void *rows, size_t bytes, int index)
{
    const char *name;
    memcpy(&name, (const char *)rows + (size_t)index * bytes, sizeof name);
    return name;
}

static const char *nearest(const char *wrong, const void *rows, size_t bytes, int count)
{
    const char *best = NULL;
    int best_distance = 0;
    for (int i = 0; i < count; i++) {
        int x = distance(wrong, name_of(rows, bytes, i));
        if (!best || x < best_distance) {
            best = name_of(rows, bytes, i);
            best_distance = x;
        }
    }
    return best;
}

const char *nw_suggest(const char *wrong, const char *const *names, int count)
{
    return nearest(wrong, names, sizeof *names, count);
}

bool nw_name_same(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if (tolower((unsigned char)*a) != tolower((unsigned char)*b) && !(strchr("-_", *a) && strchr("-_", *b)))
            return false;
    return *a == *b;
}

nw_status nw_name_find(const char *what, const char *name, const void *rows, size_t bytes, int count, const char *hint,
                       int *index)
{
    for (*index = 0; *index < count; ++*index)
        if (nw_name_same(name, name_of(rows, bytes, *index))) return NW_OK;
    return NW_FAIL(NW_E_UNKNOWN, "there is no %s '%s'; the nearest is '%s'%s", what, name,
                   nearest(name, rows, bytes, count), hint);
}
