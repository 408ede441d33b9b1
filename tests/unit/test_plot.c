/* test_plot.c - charts: round ticks, gaps, well-formed text, the same bytes every time. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "observe/curve.h"
#include "observe/plot.h"
#include "support/own_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *drawn(const nw_plot *plot)
{
    char *text;
    size_t size;
    assert_int_equal(nw_plot_write(plot, "drawn.svg"), NW_OK);
    assert_int_equal(nw_file_read("drawn.svg", SIZE_MAX - 1, &text, &size), NW_OK);
    assert_int_equal(strlen(text), size);
    return text;
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) found++;
    return found;
}

/* Elements nest, attributes are quoted, and nothing but the five entities follows an ampersand. */
static void check_xml(const char *text)
{
    char open[16][16];
    int depth = 0;
    for (const char *at = text; *at;) {
        if (*at == '&') {
            static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
            int known = 0;
            for (int i = 0; i < 4; i++) known += strncmp(at, entities[i], strlen(entities[i])) == 0;
            assert_int_equal(known, 1);
        }
        if (*at != '<') {
            assert_true((unsigned char)*at >= ' ' || *at == '\n');
            at++;
            continue;
        }
        const char *end = strchr(at, '>');
        assert_non_null(end);
        const char *next = strchr(at + 1, '<');
        assert_true(!next || next > end);
        int quotes = 0;
        for (const char *q = at; q < end; q++) quotes += *q == '"';
        assert_int_equal(quotes % 2, 0);
        if (at[1] == '/') {
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strncmp(at + 2, open[depth], (size_t)(end - at - 2)), 0);
            assert_int_equal(strlen(open[depth]), (size_t)(end - at - 2));
        } else if (end[-1] != '/') {
            assert_true(depth < 16);
            size_t length = strcspn(at + 1, " >");
            assert_true(length < sizeof open[0]);
            memcpy(open[depth], at + 1, length);
            open[depth++][length] = 0;
        }
        at = end + 1;
    }
    assert_int_equal(depth, 0);
}

TEST(test_a_chart_says_what_it_should)
{
    const double x[] = {1, 2, 3, 4, 5, 6}, y[] = {10, 20, NAN, 35, 30, INFINITY};
    const nw_plot_curve curves[] = {
        {.name = "here <1> & \"2\"\t\xff", .x = x, .y = y, .count = 6},
        {.name = "published", .x = x, .y = x, .count = 2, .dashed = true, .dots = true},
        {.x = x, .y = y, .count = 1, .colour = NW_PLOT_COLOURS + 1},
    };
    const nw_plot plot = {.title = "a & b",
                          .note = "smaller",
                          .x = {.label = "epoch"},
                          .y = {.label = "accuracy %", .low = 0, .high = 40},
                          .curves = curves,
                          .count = 3};
    char *text = drawn(&plot), *again = drawn(&plot);
    assert_string_equal(text, again);
    check_xml(text);
    assert_int_equal(strncmp(text, "<svg ", 5), 0);
    assert_non_null(strstr(text, ">a &amp; b<"));
    assert_non_null(strstr(text, ">here &lt;1&gt; &amp; &quot;2&quot;  <"));
    assert_non_null(strstr(text, ">epoch<"));
    /* x ticks 1 to 5 (the infinite point does not count), y ticks 0 to 40 */
    assert_int_equal(count(text, "class=\"x\""), 5);
    assert_int_equal(count(text, "class=\"y\""), 5);
    assert_non_null(strstr(text, "class=\"y\">40<"));
    /* Two pieces, since the third point is missing, and the sixth lies nowhere. */
    assert_non_null(strstr(text, "d=\"M72.00,289.00 L"));
    assert_int_equal(count(text, "<circle"), 2 + 1);
    assert_int_equal(count(text, "curve dashed"), 2);
    assert_int_equal(count(text, "class=\"name\""), 2);
    free(text);
    free(again);
}

TEST(test_logarithmic_ticks_are_round)
{
    const double workers[] = {1, 5, 10, 20}, speed[] = {1, 4.56, 7.32, 9.98}, wide[] = {1e-9, 0, -3, 1e9};
    nw_plot_curve curve = {.name = "async", .x = workers, .y = speed, .count = 4};
    nw_plot plot = {.x = {.logarithmic = true}, .y = {.logarithmic = true}, .curves = &curve, .count = 1};
    char *text = drawn(&plot);
    check_xml(text);
    assert_int_equal(count(text, "class=\"x\""), 5); /* 1 2 5 10 20 */
    assert_int_equal(count(text, "class=\"y\""), 4); /* 1 2 5 10 */
    assert_non_null(strstr(text, "class=\"x\">20<"));
    free(text);
    curve.x = wide;
    text = drawn(&plot);
    check_xml(text);
    assert_int_equal(count(text, "<circle"), 2); /* what is not above 0 is a gap */
    assert_true(count(text, "class=\"x\"") <= 12);
    free(text);
}

/* Whatever the numbers are, there is a drawing with finite coordinates and few ticks. */
TEST(test_odd_numbers_are_drawn)
{
    const double odd[][2] = {{0, 0},           {5, 5},         {-1e300, 1e300}, {1e15, 1e15 + 1}, {1e-300, 2e-300},
                             {INFINITY, -1.0}, {NAN, NAN},     {-7, 3e-5},      {0.1, 0.3},       {99.95, 100},
                             {1e308, -1e308},  {0.001, 12345}, {-3, -2},        {4.9e-324, 1},    {1, 1 + 1e-12}};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        for (size_t j = 0; j < sizeof odd / sizeof odd[0]; j++)
            for (int log = 0; log < 4; log++) {
                const nw_plot_curve curve = {.name = "odd", .x = odd[i], .y = odd[j], .count = 2};
                const nw_plot plot = {.x = {.logarithmic = log & 1},
                                      .y = {.logarithmic = (log & 2) != 0, .low = odd[j][0], .high = odd[i][1]},
                                      .curves = &curve,
                                      .count = 1};
                char *text = drawn(&plot);
                check_xml(text);
                assert_null(strstr(text, "nan"));
                assert_null(strstr(text, "inf"));
                int ticks = count(text, "class=\"x\"");
                assert_true(ticks >= 2 && ticks <= 12);
                free(text);
            }
}

TEST(test_a_file_is_whole_or_absent)
{
    const nw_plot plot = {.title = "nothing"};
    assert_int_equal(nw_plot_write(&plot, "plot.svg"), NW_OK);
    FILE *file = fopen("plot.svg", "r");
    assert_non_null(file);
    char text[4096];
    size_t got = fread(text, 1, sizeof text - 1, file);
    text[got] = 0;
    fclose(file);
    check_xml(text);
    unlink("plot.svg");
    assert_int_equal(nw_plot_write(&plot, "absent/plot.svg"), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "absent/plot.svg"));
}

/* ---- curves of runs ---------------------------------------------------------------------------------------------- */

static nw_status read_curve(const char *text, nw_curve *curve)
{
    FILE *file = fopen("metrics.jsonl", "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    nw_status status = nw_curve_read(curve, ".", "test_top1");
    unlink("metrics.jsonl");
    return status;
}

TEST(test_a_curve_comes_from_the_epochs_of_a_run)
{
    nw_curve curve = {0};
    assert_int_equal(read_curve("{\"record\":\"run\",\"step\":0}\n"
                                "{\"record\":\"step\",\"step\":1,\"epoch\":1,\"test_top1\":5}\n"
                                "{\"record\":\"epoch\",\"step\":9,\"epoch\":1,\"test_top1\":12.5}\n"
                                "{\"record\":\"epoch\",\"step\":19,\"epoch\":2,\"test_top1\":null}\n"
                                "{\"record\":\"epoch\",\"step\":29,\"epoch\":3}\n"
                                "{\"record\":\"epoch\",\"step\":39,\"epoch\":4,\"test_top1\":50}\n"
                                "{\"record\":\"epoch\",\"step\":49,\"epoch\":5,\"test_t",
                                &curve),
                     NW_OK);
    assert_int_equal(curve.count, 2);
    assert_float_equal(nw_curve_at(&curve, 1), 12.5, 0);
    assert_float_equal(nw_curve_at(&curve, 4), 50, 0);
    assert_true(isnan(nw_curve_at(&curve, 2)));
    nw_curve_free(&curve);

    assert_int_equal(nw_curve_read(&curve, ".", "test_top1"), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "metrics.jsonl"));
    assert_int_equal(read_curve("{\"record\":\"epoch\",\"epoch\":\n", &curve), NW_E_FILE);
    assert_int_equal(read_curve("{\"record\":\"epoch\",\"epoch\":\"one\"}\n", &curve), NW_E_FILE);
    assert_int_equal(curve.count, 0);

    for (int i = 0; i < 1000; i++) assert_int_equal(nw_curve_add(&curve, i, 2 * i), NW_OK);
    assert_float_equal(nw_curve_at(&curve, 999), 1998, 0);
    nw_curve_free(&curve);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_chart_says_what_it_should),
        CASE(test_logarithmic_ticks_are_round),
        CASE(test_odd_numbers_are_drawn),
        CASE(test_a_file_is_whole_or_absent),
        CASE(test_a_curve_comes_from_the_epochs_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
