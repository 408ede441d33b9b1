/* test_libsvm.c - LIBSVM text: what is read, what is refused and how it is named, and which files a place means. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/libsvm.h"
#include "support/files.h"
#include "support/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a copy of exactly this size, so that the sanitizer sees the first byte too far. */
static nw_status parse_bytes(nw_sparse *s, const char *text, size_t size, const nw_libsvm_options *o)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, text, size);
    nw_status status = nw_libsvm_parse(s, copy, size, "file", o);
    free(copy);
    return status;
}
static nw_status parse(nw_sparse *s, const char *text)
{
    return parse_bytes(s, text, strlen(text), &(nw_libsvm_options){0});
}

static void check_refused(const char *text, const char *words)
{
    nw_sparse s;
    assert_int_equal(parse(&s, text), NW_E_FILE);
    assert_null(s.begin);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' lacks '%s'", nw_error_message(), words);
}

TEST(test_rows)
{
    nw_sparse s;
    assert_int_equal(parse(&s, "# rows\n+1 1:0.5 3:-2e-3\n\n  -1\t2:1 # so\r\n-1\n1 7:.25"), NW_OK);
    assert_int_equal(s.rows, 4);
    assert_int_equal(s.entries, 4);
    assert_int_equal(s.features, 7);
    assert_int_equal(s.longest, 2);
    assert_int_equal(s.pair, NW_LABELS_MINUS_PLUS);
    const int64_t begin[] = {0, 2, 3, 3, 4};
    const int32_t index[] = {0, 2, 1, 6};
    const double value[] = {0.5, -2e-3, 1, 0.25};
    const int8_t label[] = {1, -1, -1, 1};
    assert_memory_equal(s.begin, begin, sizeof begin);
    assert_memory_equal(s.index, index, sizeof index);
    assert_memory_equal(s.value, value, sizeof value);
    assert_memory_equal(s.label, label, sizeof label);
    nw_sparse_free(&s);
}

/* Every number as the C library reads it, bit for bit, by the short way and by the long one. */
TEST(test_numbers)
{
    static const char *const numbers[] = {"0",
                                          "-0",
                                          "1",
                                          "+17",
                                          "0.1",
                                          "123456789012345",
                                          "1234567890123456",
                                          "0.30000000000000004",
                                          "3.141592653589793238",
                                          "1e22",
                                          "1e23",
                                          "-1e-22",
                                          "1e-23",
                                          "5e-324",
                                          "1.7976931348623157e308",
                                          "9007199254740993",
                                          "1e-400",
                                          ".5e1",
                                          "7.",
                                          "0.000000000000000000000000000001234",
                                          "123456e-30"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char line[128];
        nw_sparse s;
        snprintf(line, sizeof line, "1 1:%s\n", numbers[i]);
        assert_int_equal(parse(&s, line), NW_OK);
        double want = strtod(numbers[i], NULL);
        assert_memory_equal(&s.value[0], &want, sizeof want);
        nw_sparse_free(&s);
    }
}

TEST(test_labels)
{
    nw_sparse s, like, other;
    nw_libsvm_options o = {.like = &like};
    assert_int_equal(parse(&s, "0 1:1\n1 1:2\n0\n"), NW_OK);
    assert_int_equal(s.pair, NW_LABELS_ZERO_ONE);
    assert_int_equal(s.label[0], -1);
    assert_int_equal(s.label[1], 1);
    nw_sparse_free(&s);
    assert_int_equal(parse(&like, "1 1:1\n2.0 1:2\n"), NW_OK);
    assert_int_equal(like.label[0], -1);
    assert_int_equal(like.label[1], 1);
    /* A test file whose only label is 1 means the training file's lesser one. */
    assert_int_equal(parse_bytes(&other, "1 1:1\n", 6, &o), NW_OK);
    assert_int_equal(other.label[0], -1);
    nw_sparse_free(&other);
    assert_int_equal(parse_bytes(&other, "-1 1:1\n", 7, &o), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "the training file has the labels 1 and 2"));
    nw_sparse_free(&like);
    assert_int_equal(parse(&s, "1\n"), NW_OK);
    assert_int_equal(s.label[0], 1);
    nw_sparse_free(&s);
    check_refused("0 1:1\n-1 1:1\n", "row 2 has label -1");
    check_refused("3 1:1\n", "labels are");
}

TEST(test_refused)
{
    char longer[1200] = "1 1:";
    check_refused("1 1:1\n1 0:1\n", "file:2: index 0");
    check_refused("1 3:1 2:1\n", "file:1: index 2 follows 3");
    check_refused("1 3:1 3:1\n", "must ascend");
    check_refused("1 1:nan\n", "'nan' is not a finite number");
    check_refused("1 1:inf\n", "not a finite number");
    check_refused("1 1:1e999\n", "not a finite number");
    check_refused("1 1:0x10\n", "a blank must follow");
    check_refused("1 1:\n", "not a finite number");
    check_refused("1 1:1:2\n", "a blank must follow");
    check_refused("1 1\n", "'1' stands where INDEX:VALUE is expected");
    check_refused("1 a:1\n", "'a:1' stands");
    check_refused("1 -1:1\n", "'-1:1' stands");
    check_refused("1:1 2:1\n", "the label is missing");
    check_refused("yes 1:1\n", "the label 'yes'");
    check_refused("1 1073741825:1\n", "above 1073741824");
    check_refused("1 99999999999999999999999:1\n", "above 1073741824");
    check_refused("", "no rows");
    check_refused("\n# nothing\n", "no rows");
    check_refused("BZh91AY", "packed with bzip2");
    memset(longer + 4, '1', 1100);
    check_refused(longer, "file:1: the value");
}

TEST(test_limit)
{
    nw_sparse s;
    const char *text = "\n1 1:1\n# no\n-1 2:1 3:1\n1 1:bad\n";
    assert_int_equal(parse_bytes(&s, text, strlen(text), &(nw_libsvm_options){.limit = 2}), NW_OK);
    assert_int_equal(s.rows, 2);
    assert_int_equal(s.entries, 3);
    nw_sparse_free(&s);
}

TEST(test_cut_anywhere)
{
    const char *text = "-1 1:0.5 20:1e-3 # c\r\n+1 2:3\n-1 7:1.25e2\n";
    for (size_t i = 0; i <= strlen(text); i++) {
        nw_sparse s;
        if (parse_bytes(&s, text, i, &(nw_libsvm_options){0}) == NW_OK) nw_sparse_free(&s);
    }
}

static void check_find(const char *place, const char *test, const char *train_path, const char *test_path)
{
    char a[NW_PATH_SIZE], b[NW_PATH_SIZE];
    assert_int_equal(nw_libsvm_find(place, test, a, b), NW_OK);
    assert_string_equal(a, train_path);
    assert_string_equal(b, test_path);
}

TEST(test_find)
{
    char a[NW_PATH_SIZE], b[NW_PATH_SIZE];
    assert_int_equal(nw_libsvm_find(folder, "", a, b), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "--data-dir"));
    put_file(".", "a9a", "1\n", 2);
    check_find("a9a", "", "a9a", "");
    put_file(".", "a9a.t.gz", "1\n", 2);
    check_find("a9a", "", "a9a", "a9a.t.gz");
    check_find("a9a", "mine", "a9a", "mine");
    put_file(".", "a9a.t", "1\n", 2);
    check_find("a9a", "", "a9a", "a9a.t");
    put_folder(".", "libsvm");
    put_file(".", "libsvm/rcv1_train.binary.gz", "1\n", 2);
    put_file(".", "libsvm/rcv1_test.binary", "1\n", 2);
    check_find(".", "", "./libsvm/rcv1_train.binary.gz", "./libsvm/rcv1_test.binary");
    check_find("libsvm", "", "libsvm/rcv1_train.binary.gz", "libsvm/rcv1_test.binary");
    remove_tree("libsvm");
}

TEST(test_gzip)
{
    nw_sparse s;
    bytes packed = fixture("libsvm/rows.gz");
    nw_status status = nw_libsvm_parse(&s, packed.data, packed.size, "rows.gz", &(nw_libsvm_options){0});
#if NW_HAVE_ZLIB
    assert_int_equal(status, NW_OK);
    assert_int_equal(s.rows, 3);
    assert_true(s.value[0] == 0.5);
    nw_sparse_free(&s);
    status = nw_libsvm_parse(&s, packed.data, packed.size, "rows.gz", &(nw_libsvm_options){.most = 8});
    assert_int_equal(status, NW_E_FILE);
#else
    assert_int_equal(status, NW_E_UNSUPPORTED);
#endif
    release(&packed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_rows),  CASE(test_numbers),      CASE(test_labels), CASE(test_refused),
        CASE(test_limit), CASE(test_cut_anywhere), CASE(test_find),   CASE(test_gzip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
