/*
 * test_mode.c - how buckets are reduced: the rule on its borders, what members send in each mode, what overrides it, and
 * that layouts follow it bucket by bucket.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/layout.h"
#include "support/factors.h"
#include "support/world.h"

#define TEST(name) static void name(void **state)

/* Codecs that nothing is encoded with: the rule looks at their names, families and options alone. */
static const nw_codec_ops topk_ops = {.name = "topk", .id = NW_CODEC_PACKED, .family = NW_FAMILY_SPARSE};
static const nw_codec_ops threshold_ops = {.name = "thresholdv", .id = NW_CODEC_PACKED, .family = NW_FAMILY_SPARSE};
static const nw_codec_ops chosen_ops = {.name = "randomk", .id = NW_CODEC_PACKED, .family = NW_FAMILY_CHOSEN};
static const nw_codec_ops sign_ops = {.name = "sign", .id = NW_CODEC_PACKED, .family = NW_FAMILY_SIGN};
static const nw_codec_ops half_ops = {.name = "fp16", .id = NW_CODEC_FP16, .family = NW_FAMILY_FP16};

static nw_codec codec_of(const nw_codec_ops *ops, double ratio, nw_values values)
{
    nw_codec c = {.ops = ops, .options = nw_codec_options_default(ops->name)};
    c.options.ratio = ratio;
    c.options.values = values;
    return c;
}

TEST(test_logarithms_are_rounded_up)
{
    (void)state;
    for (uint64_t n = 1; n < 5000; n += 7)
        for (uint64_t k = 1; k <= n; k += 3) {
            unsigned b = nw_ceil_log2(n, k);
            assert_true(k << b >= n);
            assert_true(b == 0 || k << (b - 1) < n);
        }
    assert_int_equal(nw_ceil_log2((uint64_t)1 << 40, 1), 40);
}

/* The most members that gather a bucket of n floats, found by trying. */
static uint64_t most_members(const nw_codec *c, uint64_t n)
{
    uint64_t k = nw_mode_entries(c, n), most = 2;
    for (uint64_t members = 3; members < 2000; members++)
        if (nw_mode_of(c, n, k, members) == NW_MODE_GATHER) most = members;
    return most;
}

TEST(test_few_sparse_entries_are_gathered)
{
    (void)state;
    static const double ratios[] = {0.001, 0.01, 0.1};
    uint64_t n = 1000000;
    for (int i = 0; i < 3; i++) {
        nw_codec c = codec_of(&topk_ops, ratios[i], NW_VALUES_FP16);
        uint64_t k = nw_mode_entries(&c, n);
        double bits = 16 + 2 + ceil(log2((double)n / (double)k));
        assert_int_equal(most_members(&c, n), (uint64_t)fmax(2, floor(8.0 * (double)n / ((double)k * bits))));
    }
    nw_codec tenth = codec_of(&topk_ops, 0.1, NW_VALUES_FP16), percent = codec_of(&topk_ops, 0.01, NW_VALUES_FP16);
    nw_codec thousandth = codec_of(&topk_ops, 0.001, NW_VALUES_FP16);
    assert_int_equal(most_members(&tenth, n), 3);
    assert_int_equal(most_members(&percent, n), 32);
    assert_int_equal(most_members(&thousandth, n), 285);
    percent.options.values = NW_VALUES_F32;
    assert_int_equal(most_members(&percent, n), 19);
    percent.options.values = NW_VALUES_BITS + 4;
    assert_int_equal(most_members(&percent, n), 61);
}

TEST(test_other_families_have_their_mode)
{
    (void)state;
    nw_codec sign = codec_of(&sign_ops, 1, 0), half = codec_of(&half_ops, 1, 0), chosen = codec_of(&chosen_ops, 0.5, 1);
    for (uint64_t members = 1; members < 100; members++) {
        assert_int_equal(nw_mode_of(&sign, 1000, 1000, members), members > 2 ? NW_MODE_OWNERS : NW_MODE_GATHER);
        assert_int_equal(nw_mode_of(&half, 1000, 1000, members), NW_MODE_OWNERS);
        assert_int_equal(nw_mode_of(&nw_codec_plain, 1000, 1000, members), NW_MODE_OWNERS);
        assert_int_equal(nw_mode_of(&chosen, 1000, 500, members), NW_MODE_GATHER);
        assert_int_equal(nw_mode_of(&factors, 1000, 1000, members), NW_MODE_SUMMED);
    }
}

TEST(test_a_choice_overrides_the_rule)
{
    (void)state;
    nw_codec topk = codec_of(&topk_ops, 0.1, 1), chosen = codec_of(&chosen_ops, 0.5, 1);
    assert_int_equal(nw_mode_choose(NW_COLLECTIVE_GATHER, &topk, 1000, 100, 50), NW_MODE_GATHER);
    assert_int_equal(nw_mode_choose(NW_COLLECTIVE_OWNERS, &topk, 1000, 100, 2), NW_MODE_OWNERS);
    assert_int_equal(nw_mode_choose(NW_COLLECTIVE_OWNERS, &chosen, 1000, 500, 3), NW_MODE_GATHER);
    assert_int_equal(nw_mode_choose(NW_COLLECTIVE_GATHER, &factors, 1000, 500, 3), NW_MODE_SUMMED);
    assert_int_equal(nw_mode_choose(NW_COLLECTIVE_GATHER, &nw_codec_plain, 1000, 500, 3), NW_MODE_OWNERS);
}

TEST(test_thresholds_count_as_one_percent)
{
    (void)state;
    nw_codec c = codec_of(&threshold_ops, 0.5, 1);
    assert_int_equal(nw_mode_entries(&c, 12345), 123);
    assert_int_equal(nw_mode_entries(&c, 5), 1);
    c = codec_of(&topk_ops, 0.01, 1);
    assert_int_equal(nw_mode_entries(&c, 12345), 123);
    assert_int_equal(nw_mode_entries(&nw_codec_plain, 77), 77);
}

/* Dense items have buckets of their own, with the mode of what is not compressed; others have the rule's, from the
 * entries of all their items. */
TEST(test_layouts_follow_the_rule_by_bucket)
{
    (void)state;
    static const int sizes[] = {4000, 30, 5000, 40, 0};
    nw_segments s = {0};
    nw_codec topk = codec_of(&topk_ops, 0.001, NW_VALUES_FP16);
    const nw_codec *codecs[4];
    for (int i = 0, index; sizes[i]; i++) {
        char name[8];
        snprintf(name, sizeof name, "s%d", i);
        world_ok(nw_segments_add(&s, name, NW_ROLE_LINEAR, i, 1, 1, &sizes[i], &index));
        codecs[i] = sizes[i] < 100 ? &nw_codec_plain : &topk;
    }
    for (int members = 1; members < 2000; members = members * 2 + 1) {
        nw_layout l;
        nw_layout_options o = {.segments = &s, .codecs = codecs, .cuts = members};
        world_ok(nw_layout_make(&l, &o));
        assert_int_equal(l.count, 2);
        for (int b = 0; b < 2; b++) {
            bool dense = l.at[b].block.codec == &nw_codec_plain;
            bool gathers = !dense && (members <= 2 || (uint64_t)members * 9 * (16 + 2 + 10) <= 8 * 9000);
            assert_int_equal(l.at[b].entries, dense ? 70 : 9);
            assert_int_equal(l.at[b].mode, gathers ? NW_MODE_GATHER : NW_MODE_OWNERS);
            assert_int_equal(l.at[b].gathered, gathers);
            assert_int_equal(l.at[b].block.cut_count, gathers ? 1 : members);
        }
        nw_layout_free(&l);
    }
    free(s.at);
}

TEST(test_members_send_what_their_mode_says)
{
    (void)state;
    assert_int_equal(nw_mode_sends(NW_MODE_GATHER, 1000, 4), 3000);
    assert_int_equal(nw_mode_sends(NW_MODE_OWNERS, 1000, 4), 1500);
    assert_int_equal(nw_mode_sends(NW_MODE_SUMMED, 1000, 2), 1000);
    assert_int_equal(nw_mode_sends(NW_MODE_GATHER, 1000, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logarithms_are_rounded_up),
        cmocka_unit_test(test_few_sparse_entries_are_gathered),
        cmocka_unit_test(test_other_families_have_their_mode),
        cmocka_unit_test(test_a_choice_overrides_the_rule),
        cmocka_unit_test(test_thresholds_count_as_one_percent),
        cmocka_unit_test(test_layouts_follow_the_rule_by_bucket),
        cmocka_unit_test(test_members_send_what_their_mode_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
