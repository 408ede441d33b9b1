/* test_drawing.c - drawings of networks: text is escaped, numbers are right, a file is whole or absent. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "observe/drawing.h"
#include "support/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const nw_drawing_stage nodes[] = {
    {.name = "a<b>&\"c\"\n", .kind = "conv", .c = 8, .h = 4, .w = 4, .parameters = 1234567, .macs = 2.5e6},
    {.name = "block", .kind = "reversible", .shortcut = "identity", .reversible = true, .c = 8, .h = 4, .w = 4},
    {.name = "odd", .kind = "something new", .c = 10, .h = 1, .w = 1, .parameters = 12},
};
static const nw_drawing graph = {.title = "x & y", .c = 3, .h = 8, .w = 8, .nodes = nodes, .count = 3};

static void draw(char *text, size_t size)
{
    assert_int_equal(nw_drawing_write(&graph, "graph.svg"), NW_OK);
    FILE *file = fopen("graph.svg", "r");
    assert_non_null(file);
    size_t got = fread(text, 1, size - 1, file);
    text[got] = 0;
    fclose(file);
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part)) found++;
    return found;
}

static void test_a_drawing_says_what_it_should(void **state)
{
    static char text[1 << 16];
    (void)state;
    draw(text, sizeof text);
    assert_true(strncmp(text, "<svg ", 5) == 0);
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    assert_non_null(strstr(text, ">x &amp; y<"));
    assert_non_null(strstr(text, ">a&lt;b&gt;&amp;&quot;c&quot; <"));
    assert_non_null(strstr(text, ">1,234,567 parameters<"));
    assert_non_null(strstr(text, "1,234,579 parameters, 2.5 million multiply-adds an image, 3 stages"));
    assert_int_equal(count(text, "class=\"arc\""), 1);
    assert_int_equal(count(text, "<rect"), 4);
    /* The three boxes have three colours. */
    assert_int_equal(count(text, "#fde3c8"), 1);
    assert_int_equal(count(text, "#dce9f7"), 1);
    assert_int_equal(count(text, "#f6f2dc"), 1);
}

static void test_what_cannot_be_written_is_reported(void **state)
{
    (void)state;
    assert_int_equal(nw_drawing_write(&graph, "/nonexistent/folder/x.svg"), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "/nonexistent/folder/x.svg"));
    if (access("/dev/full", W_OK)) skip();
    assert_int_equal(nw_drawing_write(&graph, "/dev/full"), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "whole"));
    assert_int_equal(access("/dev/full", F_OK), 0); /* a device is not ours to remove */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_a_drawing_says_what_it_should),
        cmocka_unit_test(test_what_cannot_be_written_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
