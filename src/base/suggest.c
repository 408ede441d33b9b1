/* suggest.c - optimal string alignment distance over short names. */
#include "base/suggest.h"

#include <stddef.h>
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

const char *nw_suggest(const char *wrong, const char *const *names, int count)
{
    const char *best = NULL;
    int best_distance = 0;
    for (int i = 0; i < count; i++) {
        int x = distance(wrong, names[i]);
        if (!best || x < best_distance) {
            best = names[i];
            best_distance = x;
        }
    }
    return best;
}
