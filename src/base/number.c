/* number.c - see number.h: the C library converts, in its "C" locale. Any number of threads may call. */
#define _GNU_SOURCE 1
#include "base/number.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t plain_locale;
static void make_locale(void) { plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

nw_status nw_number_convert(const char *text, double *value)
{
    pthread_once(&locale_once, make_locale);
    NW_FAIL_IF(!plain_locale, NW_E_MEMORY, "no memory for the C library's plain locale");
    *value = strtod_l(text, NULL, plain_locale);
    return NW_OK;
}

bool nw_number_of_name(const char *name, int64_t *number)
{
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 18 || name[digits] != '\0' || (name[0] == '0' && digits > 1)) return false;
    *number = strtoll(name, NULL, 10);
    return true;
}
