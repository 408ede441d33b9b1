/*
 * test_histogram.c - counts of whole numbers: buckets, sums, merging, JSON, and bytes there and back.
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

static void test_packs_and_unpacks(void **state)
{
    (void)state;
    nw_histogram h = {0}, back = {0}, empty = {0};
    nw_packer packer = {0};
    fill(&h, 3, 1000);
    nw_histogram_pack(&empty, &packer);
    nw_histogram_pack(&h, &packer);
    assert_false(packer.failed);
    nw_unpacker unpacker = {.data = packer.data, .size = packer.size};
    assert_int_equal(nw_histogram_unpack_merge(&back, &unpacker, "memory"), NW_OK);
    assert_memory_equal(&back, &empty, sizeof back);
    assert_int_equal(nw_histogram_unpack_merge(&back, &unpacker, "memory"), NW_OK);
    assert_memory_equal(&back, &h, sizeof back);
    assert_int_equal(nw_unpack_left(&unpacker), 0);
    nw_histogram both = {0}, sum = {0}; /* what is there stays */
    fill(&both, 4, 300);
    fill(&sum, 4, 300);
    fill(&sum, 3, 1000);
    unpacker = (nw_unpacker){.data = packer.data, .size = packer.size};
    for (int i = 0; i < 2; i++) assert_int_equal(nw_histogram_unpack_merge(&both, &unpacker, "memory"), NW_OK);
    assert_memory_equal(&both, &sum, sizeof sum);
    free(packer.data);
}

/* Every cut is refused; a changed byte is refused, or gives counts that fit together. */
static void test_bad_bytes_are_refused(void **state)
{
    (void)state;
    nw_histogram h = {0};
    nw_packer packer = {0};
    for (int i = 0; i < 20; i++) nw_histogram_add(&h, i * i * i);
    nw_histogram_pack(&h, &packer);
    for (size_t size = 0; size < packer.size; size++) {
        nw_histogram back = {0};
        nw_unpacker unpacker = {.data = packer.data, .size = size};
        assert_int_equal(nw_histogram_unpack_merge(&back, &unpacker, "cut.bin"), NW_E_FILE);
        assert_int_equal(back.count, 0);
        assert_non_null(strstr(nw_error_message(), "cut.bin"));
    }
    int refused = 0;
    for (size_t at = 0; at < packer.size; at++) {
        nw_histogram back = {0};
        packer.data[at] ^= 0x80;
        nw_unpacker unpacker = {.data = packer.data, .size = packer.size};
        nw_status status = nw_histogram_unpack_merge(&back, &unpacker, "changed.bin");
        packer.data[at] ^= 0x80;
        refused += status == NW_E_FILE;
        int64_t sum = 0;
        for (int i = 0; i < NW_HISTOGRAM_BUCKETS; i++) {
            assert_true(back.counts[i] >= 0);
            sum += back.counts[i];
        }
        assert_int_equal(sum, back.count);
    }
    assert_true(refused > (int)packer.size / 2);
    free(packer.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets_cover_all_numbers),
        cmocka_unit_test(test_mean_max_and_quantiles),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_packs_and_unpacks),
        cmocka_unit_test(test_bad_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
