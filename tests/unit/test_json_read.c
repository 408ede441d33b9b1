/*
 * test_json_read.c - the JSON reader: what it accepts and what values come out, what it refuses and at which byte, its
 * limits, lookups, and that everything the JSON writer writes comes back.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_read.h"
#include "base/rng.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

/* Parsed from a copy of exactly the size, so that a sanitizer sees the first byte too far. */
static nw_status parse(nw_json_document *document, const char *text, size_t size)
{
    char *copy = malloc(size ? size : 1);
    memcpy(copy, text, size);
    nw_status status = nw_json_parse(document, copy, size, "test.json");
    free(copy);
    return status;
}

static nw_json_document good(const char *text)
{
    nw_json_document document;
    if (parse(&document, text, strlen(text)) != NW_OK) fail_msg("%s: %s", text, nw_error_message());
    return document;
}

TEST(test_values)
{
    nw_json_document d = good(" { \"a\" : [ 1 , -2.5e1, true, false, null, \"x\", {} , [] ], \"b\":{\"c\":\"d\"} }\n");
    const nw_json_value *root = &d.values[0];
    assert_int_equal(root->type, NW_JSON_OBJECT);
    assert_int_equal(root->count, 2);
    const nw_json_value *a = nw_json_find(root, "a");
    assert_int_equal(a->type, NW_JSON_ARRAY);
    assert_int_equal(a->count, 8);
    static const nw_json_type types[] = {NW_JSON_NUMBER, NW_JSON_NUMBER, NW_JSON_BOOL,   NW_JSON_BOOL,
                                         NW_JSON_NULL,   NW_JSON_STRING, NW_JSON_OBJECT, NW_JSON_ARRAY};
    int n = 0;
    for (const nw_json_value *v = nw_json_first(a); v; v = nw_json_next(a, v)) {
        assert_int_equal(v->type, types[n++]);
        assert_null(v->key);
    }
    assert_int_equal(n, 8);
    const nw_json_value *first = nw_json_first(a), *second = nw_json_next(a, first);
    assert_true(first->is_integer && first->integer == 1);
    assert_true(second->number == -25 && second->is_integer && second->integer == -25);
    const nw_json_value *b = nw_json_find(root, "b");
    assert_string_equal(nw_json_find(b, "c")->text, "d");
    assert_string_equal(b->key, "b");
    assert_null(nw_json_find(root, "c")); /* not a member of this object */
    assert_null(nw_json_find(a, "b"));
    nw_json_free(&d);
}

TEST(test_numbers)
{
    static const struct {
        const char *text;
        double number;
        bool is_integer;
        int64_t integer;
    } cases[] = {
        {"0", 0, true, 0},
        {"-0", -0.0, true, 0},
        {"9223372036854775807", 0x1p63, true, INT64_MAX},
        {"-9223372036854775808", -0x1p63, true, INT64_MIN},
        {"9223372036854775808", 0x1p63, false, 0},
        {"9007199254740993", 9007199254740992.0, true, 9007199254740993},
        {"1e3", 1000, true, 1000},
        {"1.0", 1, true, 1},
        {"1e300", 1e300, false, 0},
        {"0.1", 0.1, false, 0},
        {"2.2250738585072014e-308", DBL_MIN, false, 0},
        {"4.9e-324", 4.9406564584124654e-324, false, 0},
        {"1E+2", 100, true, 100},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_json_document d = good(cases[i].text);
        const nw_json_value *v = &d.values[0];
        assert_int_equal(v->type, NW_JSON_NUMBER);
        assert_memory_equal(&v->number, &cases[i].number, sizeof v->number); /* the sign of zero too */
        assert_int_equal(v->is_integer, cases[i].is_integer);
        if (v->is_integer) assert_int_equal(v->integer, cases[i].integer);
        nw_json_free(&d);
    }
}

TEST(test_strings)
{
    nw_json_document d = good(
        "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u0041\\u00e9\\u20AC\\ud83d\\ude00\", \"\xc3\xa9\xf0\x9f\x98\x80\", \"\"]");
    const nw_json_value *v = nw_json_first(&d.values[0]);
    assert_string_equal(v->text, "\"\\/\b\f\n\r\t");
    v = nw_json_next(&d.values[0], v);
    assert_string_equal(v->text, "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    v = nw_json_next(&d.values[0], v);
    assert_string_equal(v->text, "\xc3\xa9\xf0\x9f\x98\x80");
    v = nw_json_next(&d.values[0], v);
    assert_string_equal(v->text, "");
    nw_json_free(&d);
}

/* What is refused, and the byte that the sentence names. */
TEST(test_refusals)
{
    static const struct {
        const char *text;
        int byte;
    } cases[] = {
        {"", 0},
        {"  ", 2},
        {"{", 1},
        {"[1", 2},
        {"[1,", 3},
        {"[1,]", 3},
        {"[,1]", 1},
        {"[1 2]", 3},
        {"{\"a\"}", 4},
        {"{\"a\":}", 5},
        {"{\"a\":1,}", 7},
        {"{a:1}", 1},
        {"{\"a\":1 \"b\":2}", 7},
        {"1 2", 2},
        {"[1]]", 3},
        {"tru", 0},
        {"nul", 0},
        {"True", 0},
        {"NaN", 0},
        {"[Infinity]", 1},
        {"01", 0},
        {"-", 0},
        {"+1", 0},
        {".5", 0},
        {"1.", 0},
        {"1e", 0},
        {"1e+", 0},
        {"0x10", 1},
        {"1e999", 0},
        {"[-1e999]", 1},
        {"\"abc", 0},
        {"\"a\nb\"", 2},
        {"\"a\\", 0},
        {"\"\\x\"", 1},
        {"\"\\u12g4\"", 1},
        {"\"\\u12", 1},
        {"\"\\u0000\"", 1},
        {"\"\\ud800\"", 1},
        {"\"\\ud800\\u0041\"", 1},
        {"\"\\udc00\"", 1},
        {"\"\xff\"", 1},
        {"\"\xc3\"", 1},
        {"\"\xc0\x80\"", 1},         /* overlong */
        {"\"\xed\xa0\x80\"", 1},     /* a surrogate */
        {"\"\xf4\x90\x80\x80\"", 1}, /* past the last character */
        {"{\"a\":1,\"b\":2,\"a\":3}", 17},
        {"// comment\n1", 0},
        {"\xef\xbb\xbf{}", 0}, /* a byte order mark */
        {"]", 0},
        {"[}", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_json_document d;
        char place[32];
        snprintf(place, sizeof place, "at byte %d:", cases[i].byte);
        if (parse(&d, cases[i].text, strlen(cases[i].text)) != NW_E_FILE) fail_msg("accepted: %s", cases[i].text);
        if (!strstr(nw_error_message(), place) || !strstr(nw_error_message(), "test.json"))
            fail_msg("%s: expected '%s' in: %s", cases[i].text, place, nw_error_message());
        assert_null(d.values);
    }
    nw_json_document d;
    assert_int_equal(parse(&d, "[1\0]", 4), NW_E_FILE);
    assert_int_equal(parse(&d, "\"a\0b\"", 5), NW_E_FILE);
}

TEST(test_limits)
{
    nw_json_document d;
    char text[2048];
    /* depth: 64 is fine, 65 is not */
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    assert_int_equal(parse(&d, text + 1, 128), NW_OK);
    nw_json_free(&d);
    assert_int_equal(parse(&d, text, 130), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "at byte 64"));
    /* digits of a number */
    memset(text, '1', 600);
    assert_int_equal(parse(&d, text, 600), NW_E_FILE);
    /* bytes of a document: refused unread */
    assert_int_equal(nw_json_parse(&d, text, (size_t)NW_JSON_READ_BYTES + 1, "huge"), NW_E_FILE);
    /* values of a document */
    size_t size = 2 * (size_t)NW_JSON_READ_VALUES + 3;
    char *many = malloc(size);
    memcpy(many, "[0", 2);
    for (size_t i = 2; i + 1 < size; i += 2) memcpy(many + i, ",0", 2);
    many[size - 1] = ']';
    assert_int_equal(parse(&d, many, size), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "values"));
    free(many);
}

/* A duplicate among many keys is found, the first second one is named, and it does not take quadratic time. */
TEST(test_many_keys)
{
    enum { KEYS = 200000 };
    char *text = malloc(KEYS * 16 + 64), *at = text;
    nw_json_document d;
    *at++ = '{';
    for (int i = 0; i < KEYS; i++) at += sprintf(at, "%s\"k%d\":%d", i ? "," : "", i, i);
    char *end = at;
    strcpy(at, "}");
    assert_int_equal(parse(&d, text, strlen(text)), NW_OK);
    assert_int_equal(nw_json_find(&d.values[0], "k199999")->integer, 199999);
    nw_json_free(&d);
    sprintf(end, ",\"k7\":1,\"k3\":1}");
    assert_int_equal(parse(&d, text, strlen(text)), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "'k7' stands twice"));
    free(text);
}

TEST(test_lookups)
{
    nw_json_document d = good("{\"n\": 5, \"s\": \"x\", \"f\": 1.5, \"o\": {}}");
    const nw_json_value *root = &d.values[0], *value;
    const char *text;
    int64_t n;
    assert_int_equal(nw_json_get_int(&d, root, "n", 0, 5, &n), NW_OK);
    assert_int_equal(n, 5);
    assert_int_equal(nw_json_get_text(&d, root, "s", &text), NW_OK);
    assert_string_equal(text, "x");
    assert_int_equal(nw_json_get_int(&d, root, "n", 6, 9, &n), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "test.json: at byte 6: 'n' is 5; expected an integer from 6 to 9"));
    assert_int_equal(nw_json_get_int(&d, root, "f", 0, 9, &n), NW_E_FILE);
    assert_int_equal(nw_json_get_int(&d, root, "s", 0, 9, &n), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "'s' is a string; expected a number"));
    assert_int_equal(nw_json_get_text(&d, root, "missing", &text), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "has no 'missing'; expected a string"));
    assert_int_equal(nw_json_get(&d, nw_json_find(root, "s"), "x", NW_JSON_NULL, &value), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "found a string"));
    nw_json_free(&d);
}

/* Random doubles, written by our writer, come back bit for bit, also where the locale writes commas. */
TEST(test_round_trip_with_the_writer)
{
    setlocale(LC_ALL, "de_DE.UTF-8"); /* tested without where it is not installed */
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    nw_json json = nw_json_begin(out, true);
    enum { COUNT = 2000 };
    static double values[COUNT];
    nw_json_array(&json);
    for (int i = 0; i < COUNT; i++) {
        uint64_t bits = (uint64_t)nw_rng_u32(&rng) << 32 | nw_rng_u32(&rng);
        memcpy(&values[i], &bits, sizeof bits);
        if (!isfinite(values[i])) values[i] = 0.5;
        nw_json_double(&json, values[i]);
    }
    nw_json_string(&json, "\"\\\n\x01 \xe2\x82\xac/");
    nw_json_array_end(&json);
    nw_json_end(&json);
    fclose(out);
    nw_json_document d;
    assert_int_equal(nw_json_parse(&d, text, size, "written"), NW_OK);
    const nw_json_value *v = nw_json_first(&d.values[0]);
    for (int i = 0; i < COUNT; i++, v = nw_json_next(&d.values[0], v))
        assert_memory_equal(&v->number, &values[i], sizeof v->number);
    assert_string_equal(v->text, "\"\\\n\x01 \xe2\x82\xac/");
    nw_json_free(&d);
    free(text);
    setlocale(LC_ALL, "C");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_strings), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),  cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_lookups), cmocka_unit_test(test_round_trip_with_the_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
