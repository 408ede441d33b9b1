/* choice.c - see choice.h. */
#include "support/choice.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compute/isa.h"

static const char *sets;
static int threads;

static bool is_listed(const char *list, const char *name)
{
    size_t length;
    for (const char *at = list; *at; at += length + (at[length] == ',')) {
        length = strcspn(at, ",");
        if (length == strlen(name) && !strncmp(at, name, length)) return true;
    }
    return false;
}

/* Remembered: tests ask thousands of times, and an answer costs system calls. */
bool is_chosen(int set)
{
    static signed char known[16];
    const char *name = nw_isa_kernels(set)->isa;
    if (!known[set]) {
        known[set] = (!sets || is_listed(sets, name)) && nw_isa_usable(set) ? 1 : -1;
        if (sets && known[set] > 0) fprintf(stderr, "choice: %s\n", name);
    }
    return known[set] > 0;
}

int other_threads(void)
{
    static const int counts[] = {2, 3, MOST_THREADS};
    static int turn;
    return threads ? threads : counts[turn++ % 3];
}

static void refuse(const char *variable, const char *value, const char *why)
{
    fprintf(stderr, "%s=%s: %s\n", variable, value, why);
    exit(2);
}

static void check_sets(void)
{
    char name[32];
    for (const char *at = sets; *at; at += *at == ',') {
        size_t length = strcspn(at, ",");
        int set = 0;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        while (set < nw_isa_count() && strcmp(nw_isa_kernels(set)->isa, name)) set++;
        if (set == nw_isa_count()) refuse("NOWAIT_TEST_SETS", name, "no instruction set of this build");
        if (!nw_isa_usable(set)) refuse("NOWAIT_TEST_SETS", name, nw_isa_why_not(set));
        at += length;
    }
}

/* Before main: whoever links the fixtures heeds the variables, and no main need know. */
__attribute__((constructor)) static void read_choice(void)
{
    const char *count = getenv("NOWAIT_TEST_THREADS"), *filter = getenv("NOWAIT_TEST_FILTER");
    sets = getenv("NOWAIT_TEST_SETS");
    if (sets) check_sets();
    if (count) {
        threads = atoi(count);
        if (threads < 1 || threads > MOST_THREADS) refuse("NOWAIT_TEST_THREADS", count, "it must be 1 to 7");
    }
    if (filter) cmocka_set_test_filter(filter);
}
