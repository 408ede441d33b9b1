/* test_credits.c - credits against a plain list that is searched from end to end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "exchange/credits.h"

#include <string.h>

enum { HOLDERS = 150, MOST = 3 };

/* The twin: versions by holder, the oldest first; none is sorted, nothing is counted. */
static int64_t given[HOLDERS][MOST];
static int counts[HOLDERS];
static bool is_open[HOLDERS];

static bool is_before(int64_t version, int holder, int64_t than, int than_holder)
{
    return version < than || (version == than && holder < than_holder);
}

/* As the argument about slack says it, credit by credit. */
static bool twin_may_use(int holders, int holder, int64_t version, int64_t bound)
{
    for (int i = 0; i < holders; i++)
        for (int k = 0; is_open[i] && k < counts[i]; k++) {
            int before = 0;
            if (!is_before(given[i][k], i, given[holder][0], holder)) continue;
            for (int j = 0; j < holders; j++)
                for (int n = 0; is_open[j] && n < counts[j]; n++)
                    before +=
                        is_before(given[j][n], j, given[i][k], i) || (j == i && n < k && given[j][n] == given[i][k]);
            if (bound - (version + before - given[i][k]) < 1) return false;
        }
    return true;
}

static int twin_next(int holders, int first, int count)
{
    for (int i = 0; i < holders; i++) {
        int holder = (first + i) % holders;
        if (is_open[holder] && counts[holder] == count) return holder;
    }
    return -1;
}

static void check(const nw_credits *c, int holders, int most, nw_rng *rng, int64_t version)
{
    int out = 0, first = (int)nw_rng_below(rng, (uint32_t)holders);
    for (int i = 0; i < holders; i++) {
        out += counts[i];
        assert_int_equal(c->count[i], counts[i]);
        if (counts[i] > 0) assert_int_equal(nw_credits_last(c, i), given[i][counts[i] - 1]);
    }
    assert_int_equal(c->out, out);
    for (int count = 0; count < most; count++)
        assert_int_equal(nw_credits_next(c, first, count), twin_next(holders, first, count));
    int holder = (int)nw_rng_below(rng, (uint32_t)holders);
    int64_t bound = (int64_t)nw_rng_below(rng, 12);
    if (counts[holder] > 0)
        assert_int_equal(nw_credits_place(c, holder) < nw_credits_usable(c, version, bound),
                         twin_may_use(holders, holder, version, bound));
    int64_t since = version - (int64_t)nw_rng_below(rng, 9);
    int newer = 0;
    for (int i = 0; i < holders; i++)
        for (int k = 0; is_open[i] && k < counts[i]; k++) newer += given[i][k] > since;
    assert_int_equal(c->sorted_count - nw_credits_since(c, since), newer);
    if (newer > 0) assert_true(c->sorted[nw_credits_since(c, since)].version > since);
}

static void run(int holders, int most, uint64_t seed)
{
    nw_credits c;
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 1, 0);
    int64_t version = 0;
    memset(counts, 0, sizeof counts);
    for (int i = 0; i < holders; i++) is_open[i] = true;
    assert_int_equal(nw_credits_make(&c, holders, most), NW_OK);
    for (int step = 0; step < 3000; step++) {
        int h = (int)nw_rng_below(&rng, (uint32_t)holders);
        uint32_t what = nw_rng_below(&rng, 100);
        version += nw_rng_below(&rng, 3) == 0;
        if (what < 55 && is_open[h] && counts[h] < most) {
            given[h][counts[h]++] = version;
            nw_credits_give(&c, h, version);
        } else if (what < 90 && counts[h] > 0) {
            memmove(given[h], given[h] + 1, (size_t)--counts[h] * sizeof given[h][0]);
            nw_credits_use(&c, h);
        } else if (what < 95) {
            int keeps = (int)nw_rng_below(&rng, (uint32_t)counts[h] + 1);
            is_open[h] = false;
            counts[h] = keeps;
            nw_credits_close(&c, h, keeps);
        } else if (what < 98) {
            is_open[h] = true;
            counts[h] = 0;
            nw_credits_open(&c, h);
        }
        check(&c, holders, most, &rng, version);
    }
    nw_credits_free(&c);
}

static void test_credits(void **state)
{
    (void)state;
    static const int holders[] = {1, 2, 5, 63, 64, 65, HOLDERS};
    for (size_t i = 0; i < sizeof holders / sizeof holders[0]; i++)
        for (int most = 1; most <= MOST; most++) run(holders[i], most, 10 * i + (uint64_t)most);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_credits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
