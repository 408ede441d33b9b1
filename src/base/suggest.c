/* suggest.c - see suggest.h. The distance is that of optimal string alignment. */
#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 63, LONG = 12 }; /* MOST: characters compared; names are shorter */

static int least(int a, int b) { return a < b ? a : b; }
static bool is_dash(char c) { return c == '-' || c == '_'; }

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b) || (is_dash(a) && is_dash(b));
}

/* The distance of two names; *beginning is that of `a` to the nearest beginning of `b`. */
static int distance(const char *a, const char *b, int *beginning)
{
    int d[MOST + 1][MOST + 1];
    int n = (int)strnlen(a, MOST), m = (int)strnlen(b, MOST);
    for (int i = 0; i <= n; i++) d[i][0] = i;
    for (int j = 0; j <= m; j++) d[0][j] = j;
    for (int i = 1; i <= n; i++)
        for (int j = 1; j <= m; j++) {
            int replaced = d[i - 1][j - 1] + !same_letter(a[i - 1], b[j - 1]);
            d[i][j] = least(replaced, least(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                d[i][j] = least(d[i][j], d[i - 2][j - 2] + 1);
        }
    *beginning = d[n][m];
    for (int j = 0; j < m; j++) *beginning = least(*beginning, d[n][j]);
    return d[n][m];
}

static const char *name_of(const void *rows, size_t bytes, int index)
{
    const char *name;
    memcpy(&name, (const char *)rows + (size_t)index * bytes, sizeof name);
    return name;
}

static bool begins(const char *name, const char *with, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!same_letter(name[i], with[i])) return false; /* also where the name ends */
    return true;
}

/* A third of the letters may be wrong. A name that was cut short counts as one mistake, in addition to at most two
 * others in a long name. A folder ("petra/...") that some names have is taken as it is. */
static const char *nearest(const char *wrong, const void *rows, size_t bytes, int count)
{
    const char *best = NULL, *slash = strchr(wrong, '/');
    int length = (int)strnlen(wrong, MOST), limit = length < 5 ? 1 : (length + 1) / 3;
    size_t folder = slash ? (size_t)(slash + 1 - wrong) : 0;
    bool in_folder = false;
    for (int i = 0; i < count; i++) in_folder |= folder && begins(name_of(rows, bytes, i), wrong, folder);
    for (int i = 0; i < count; i++) {
        const char *name = name_of(rows, bytes, i);
        int beginning, whole = distance(wrong, name, &beginning);
        bool cut_short = length > 2 && beginning <= (length < LONG ? 0 : 2);
        int x = cut_short ? least(1 + beginning, whole) : whole;
        if (x > limit || (in_folder && !begins(name, wrong, folder))) continue;
        best = name;
        limit = x - 1;
    }
    return best;
}

static nw_suggestion suggest(const char *wrong, const void *rows, size_t bytes, int count, const char *dashes,
                             const char *hint)
{
    nw_suggestion s = {""};
    const char *best = nearest(wrong, rows, bytes, count), *quote = *dashes ? "" : "'";
    if (best)
        snprintf(s.text, sizeof s.text, "; the nearest is %s%s%s%s%s%s", quote, dashes, best, quote,
                 *hint ? ", and " : "", hint);
    else if (*hint)
        snprintf(s.text, sizeof s.text, "; %s", hint);
    return s;
}

nw_suggestion nw_suggest(const char *wrong, const char *const *names, int count, const char *hint)
{
    return suggest(wrong, names, sizeof *names, count, "", hint);
}

nw_suggestion nw_suggest_option(const char *wrong, const char *const *names, int count, const char *hint)
{
    return suggest(wrong, names, sizeof *names, count, "--", hint);
}

bool nw_name_same_part(const char *a, const char *b, size_t length)
{
    const char *end = b + length;
    for (;;) {
        while (is_dash(*a)) a++;
        while (b < end && is_dash(*b)) b++;
        if (b == end || !*a) return b == end && !*a;
        if (!same_letter(*a++, *b++)) return false;
    }
}

bool nw_name_same(const char *a, const char *b) { return nw_name_same_part(a, b, strlen(b)); }

nw_status nw_name_find(const char *what, const char *name, const void *rows, size_t bytes, int count, const char *hint,
                       int *index)
{
    for (*index = 0; *index < count; ++*index)
        if (nw_name_same(name, name_of(rows, bytes, *index))) return NW_OK;
    return NW_FAIL(NW_E_UNKNOWN, "there is no %s '%s'%s", what, name, suggest(name, rows, bytes, count, "", hint).text);
}
