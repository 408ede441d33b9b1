/*
 * test_assign.c - which codec each tensor has: that of all, none for small tensors and vectors, and rules by name, of which
 * the last that matches counts.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel/assign.h"
#include "support/world.h"

#define TEST(name) static void name(void **state)

static const struct {
    const char *name;
    int dims, shape[2];
} TENSORS[] = {{"conv1.weight", 2, {8, 27}}, {"conv1.bias", 1, {8}},           {"layer1.0.weight", 2, {64, 64}},
               {"layer1.0.bias", 1, {64}},   {"layer1.1.weight", 2, {64, 64}}, {"fc.weight", 2, {10, 64}},
               {"fc.bias", 1, {10}}};
enum { COUNT = sizeof TENSORS / sizeof TENSORS[0] };

static nw_segments make_segments(void)
{
    nw_segments s = {0};
    for (int i = 0, index; i < COUNT; i++)
        world_ok(nw_segments_add(&s, TENSORS[i].name, NW_ROLE_LINEAR, i, 1, TENSORS[i].dims, TENSORS[i].shape, &index));
    return s;
}

static nw_codec_options codec_of(const char *name, double ratio)
{
    nw_codec_options o = nw_codec_options_default(name);
    o.ratio = ratio;
    return o;
}

/* What each tensor has, in words. */
static void check(const nw_assign_options *o, const char *const want[COUNT], int codecs)
{
    nw_segments s = make_segments();
    nw_assignment a;
    world_ok(nw_assign_make(&a, o, &s));
    for (int i = 0; i < COUNT; i++) {
        char name[64];
        nw_assign_name(a.of[i], name, sizeof name);
        assert_string_equal(name, want[i]);
    }
    assert_int_equal(a.codec_count, codecs);
    nw_layout_options layout = {.segments = &s, .cuts = 3};
    nw_layout l;
    nw_assign_fill(&a, o, &layout);
    world_ok(nw_layout_make(&l, &layout));
    nw_layout_free(&l);
    nw_assign_free(&a);
    free(s.at);
}

TEST(test_all_have_one_codec)
{
    (void)state;
    check(&(nw_assign_options){0}, (const char *const[]){"none", "none", "none", "none", "none", "none", "none"}, 1);
    nw_assign_options o = {.codec = codec_of("topk", 0.1)};
    assert_true(nw_assign_compresses(&o));
    check(&o, (const char *const[]){"topk 0.1", "topk 0.1", "topk 0.1", "topk 0.1", "topk 0.1", "topk 0.1", "topk 0.1"},
          2);
}

TEST(test_small_tensors_and_vectors_are_dense)
{
    (void)state;
    nw_assign_options o = {.codec = codec_of("sign", 1), .dense_below = 64};
    check(&o, (const char *const[]){"sign", "none", "sign", "sign", "sign", "sign", "none"}, 2);
    o.dense_vectors = true;
    check(&o, (const char *const[]){"sign", "none", "sign", "none", "sign", "sign", "none"}, 2);
    o.dense_below = 641;
    check(&o, (const char *const[]){"none", "none", "sign", "none", "sign", "none", "none"}, 2);
}

TEST(test_the_last_rule_that_matches_counts)
{
    (void)state;
    nw_assign_rule rules[] = {{"layer1.*", codec_of("topk", 0.5)},
                              {"*.bias", codec_of("none", 1)},
                              {"layer1.1.*", codec_of("topk", 0.1)},
                              {"fc.bias", codec_of("int8", 1)}};
    nw_assign_options o = {.codec = codec_of("topk", 0.1), .dense_below = 1000, .rules = rules, .rule_count = 4};
    check(&o, (const char *const[]){"none", "none", "topk 0.5", "none", "topk 0.1", "none", "int8"}, 4);
}

TEST(test_factors_are_for_large_matrices)
{
    (void)state;
    nw_assign_options o = {.codec = nw_codec_options_default("powersgd")};
    o.codec.rank = 4; /* 2 r (a + b) < a b */
    check(
        &o,
        (const char *const[]){"none", "none", "powersgd rank 4", "none", "powersgd rank 4", "powersgd rank 4", "none"},
        2);
}

TEST(test_rules_of_no_tensor_are_refused)
{
    (void)state;
    nw_segments s = make_segments();
    nw_assignment a;
    nw_assign_rule rules[] = {{"layer2.*", codec_of("none", 1)}};
    nw_assign_options o = {.codec = codec_of("topk", 0.1), .rules = rules, .rule_count = 1};
    assert_int_equal(nw_assign_make(&a, &o, &s), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "'layer2.*=...' matches no tensor"));
    free(s.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_have_one_codec),
        cmocka_unit_test(test_small_tensors_and_vectors_are_dense),
        cmocka_unit_test(test_the_last_rule_that_matches_counts),
        cmocka_unit_test(test_factors_are_for_large_matrices),
        cmocka_unit_test(test_rules_of_no_tensor_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
