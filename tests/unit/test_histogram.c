/*
 * test_histogram.c - counts of whole numbers: buckets, sums, JSON, and what is no histogram.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/rng.h"

static void test_buckets_cover_all_numbers(void **state)
{
    (void)state;
    assert_int_equal(nw_histogram_first(0), 0);
    for (int i = 0; i + 1 < NW_HISTOGRAM_BUCKETS; i++) {
        assert_true(nw_histogram_last(i) + 1 == nw_histogram_first(i + 1));
        assert_int_equal(nw_histogram_bucket(nw_histogram_first(i)), i);
        assert_int_equal(nw_histogram_bucket(nw_histogram_last(i)), i);
    }
    assert_true(nw_histogram_last(NW_HISTOGRAM_BUCKETS - 1) == INT64_MAX);
    assert_int_equal(nw_histogram_bucket(INT64_MAX), NW_HISTOGRAM_BUCKETS - 1);
    assert_int_equal(nw_histogram_bucket(511), 511);
    assert_int_equal(nw_histogram_bucket(1023), 512);
}

static void test_mean_max_and_quantiles(void **state)
{
    (void)state;
    nw_histogram h = {0};
    assert_true(isnan(nw_histogram_mean(&h)));
    assert_int_equal(nw_histogram_quantile(&h, 0.5), 0);
    for (int i = 0; i < 100; i++) nw_histogram_add(&h, i);
    nw_histogram_add(&h, 5000);
    assert_int_equal(h.count, 101);
    assert_true(nw_histogram_mean(&h) == (4950.0 + 5000.0) / 101.0);
    assert_int_equal(h.max, 5000);
    assert_int_equal(nw_histogram_quantile(&h, 0), 0);
    assert_int_equal(nw_histogram_quantile(&h, 0.5), 50);
    assert_int_equal(nw_histogram_quantile(&h, 1), 5000); /* its bucket ends at 8191 */
    nw_histogram_add(&h, -3);
    assert_int_equal(h.counts[0], 2);
}

static void fill(nw_histogram *h, uint64_t seed, int count)
{
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 0, 0);
    for (int i = 0; i < count; i++) nw_histogram_add(h, nw_rng_u32(&rng) >> nw_rng_below(&rng, 32));
}

static void test_json(void **state)
{
    (void)state;
    nw_histogram h = {0};
    for (int i = 0; i < 3; i++) nw_histogram_add(&h, 0);
    nw_histogram_add(&h, 2);
    nw_histogram_add(&h, 1000);
    char text[256] = {0};
    FILE *out = fmemopen(text, sizeof text, "w");
    nw_json json = nw_json_begin(out, false);
    nw_histogram_json(&json, &h);
    nw_json_end(&json);
    fclose(out);
    assert_non_null(strstr(text, "\"count\":5"));
    assert_non_null(strstr(text, "\"mean\":200.4"));
    assert_non_null(strstr(text, "\"max\":1000"));
    assert_non_null(strstr(text, "\"counts\":{\"0\":3,\"2\":1,\"512-1023\":1}"));
}

/* A checkpoint holds the integers as they are, and they may be anything. */
static void test_what_is_no_histogram(void **state)
{
    (void)state;
    nw_histogram h = {0};
    assert_true(nw_histogram_is_sound(&h));
    fill(&h, 3, 1000);
    assert_true(nw_histogram_is_sound(&h));
    int64_t *integers = (int64_t *)&h;
    for (int i = 0; i < NW_HISTOGRAM_INTEGERS; i++) {
        static const int64_t added[] = {INT64_MIN, -1, 1, INT64_MAX};
        bool is_sum = &integers[i] == &h.sum, is_max = &integers[i] == &h.max; /* of these more than one fits */
        for (int j = 0; j < 4; j++) {
            nw_histogram other = h;
            int64_t *changed = (int64_t *)&other + i;
            *changed = (int64_t)((uint64_t)*changed + (uint64_t)added[j]);
            if (!(is_sum || is_max) || j == 0) assert_false(nw_histogram_is_sound(&other));
        }
    }
    h.sum = h.max - 1;
    assert_false(nw_histogram_is_sound(&h));
    h = (nw_histogram){0};
    for (int i = 0; i < 3; i++) nw_histogram_add(&h, INT64_MAX); /* the sum stays where it can be */
    assert_true(h.sum == INT64_MAX && nw_histogram_is_sound(&h));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_cover_all_numbers),
        cmocka_unit_test(test_mean_max_and_quantiles),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_what_is_no_histogram),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
