/* test_results.c - results.csv: rows of runs with other options, quoted fields, files that are no tables; com_logs. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "observe/results.h"
#include "support/memory_that_ends.h"
#include "support/own_folder.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void expect_file(const char *path, const char *wanted)
{
    char text[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_string_equal(text, wanted);
}

static void put_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

TEST(test_rows)
{
    nw_result_row a = {0}, b = {0};
    assert_int_equal(nw_result_row_put(&a, "worker_10", "%d / %d", 3, 4), NW_OK);
    assert_int_equal(nw_result_row_put(&a, "worker_2", "1 / 2"), NW_OK);
    assert_int_equal(nw_result_row_put(&a, "lr", "0.1"), NW_OK);
    assert_int_equal(nw_result_row_put(&a, "lr", "0.2"), NW_OK); /* the last word */
    assert_int_equal(nw_results_add("logs/deep", &a), NW_OK);
    expect_file("logs/deep/results.csv", "lr,worker_2,worker_10\n0.2,1 / 2,3 / 4\n");
    assert_int_equal(nw_result_row_put(&b, "graph", "a \"cycle\", of 3\nlines"), NW_OK);
    assert_int_equal(nw_result_row_put(&b, "lr", "%s", ""), NW_OK);
    assert_int_equal(nw_results_add("logs/deep", &b), NW_OK);
    assert_int_equal(nw_results_add("logs/deep", &a), NW_OK);
    expect_file("logs/deep/results.csv", "graph,lr,worker_2,worker_10\n"
                                         ",0.2,1 / 2,3 / 4\n"
                                         "\"a \"\"cycle\"\", of 3\nlines\",,,\n"
                                         ",0.2,1 / 2,3 / 4\n");
    nw_result_row_free(&a);
    nw_result_row_free(&b);
}

/* What another program wrote: other line ends, no newline at the end, columns in another order. */
TEST(test_foreign_tables)
{
    nw_result_row row = {0};
    assert_int_equal(nw_result_row_put(&row, "b", "9"), NW_OK);
    put_text("results.csv", "c,\"b\",a\r\n1,\"2,5\",\r\n,,x");
    assert_int_equal(nw_results_add(".", &row), NW_OK);
    expect_file("results.csv", "a,b,c\n,\"2,5\",1\nx,,\n,9,\n");
    static const struct {
        const char *text, *says;
    } bad[] = {{"a,b\n1\n", "line 2: 1 fields, but the first line has 2"},
               {"a\n1,2\n", "line 2: 2 fields, but the first line has 1"},
               {"a\n\"1\n", "line 2: a quote is not closed"},
               {"a\n\"1\"2\n", "line 2: neither a comma nor"},
               {"a\n1\"2\n", "line 2: neither a comma nor"},
               {"a,b,a\n", "the column 'a' stands twice"}};
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        put_text("results.csv", bad[k].text);
        assert_int_equal(nw_results_add(".", &row), NW_E_FILE);
        assert_non_null(strstr(nw_error_message(), bad[k].says));
        expect_file("results.csv", bad[k].text); /* as it was */
    }
    nw_result_row_free(&row);
}

/* Runs that end together lose no row. */
TEST(test_together)
{
    enum { RUNS = 8 };
    for (int run = 0; run < RUNS; run++)
        if (fork() == 0) {
            nw_result_row row = {0};
            char name[16];
            snprintf(name, sizeof name, "x%d", run);
            _exit(nw_result_row_put(&row, name, "%d", run) != NW_OK || nw_results_add("all", &row) != NW_OK);
        }
    for (int run = 0, status; run < RUNS; run++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    char text[1024];
    FILE *file = fopen("all/results.csv", "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    int lines = 0, digits = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n', digits += *c >= '0' && *c <= '9';
    assert_int_equal(lines, RUNS + 1);
    assert_int_equal(digits, 2 * RUNS);
}

TEST(test_exchanges)
{
    static const int64_t exchanges[] = {0, 12, 7, 12, 0, 0, 7, 0, 0};
    assert_int_equal(nw_results_save_exchanges("logs", "2024_1_2_3_4_5_6", exchanges, 3), NW_OK);
    expect_file("logs/com_logs/2024_1_2_3_4_5_6.txt", "0 12 7\n12 0 0\n7 0 0\n");
    assert_int_equal(nw_results_save_exchanges("/dev/null", "x", exchanges, 3), NW_E_SYSTEM);
}

TEST(test_memory_ends)
{
    static const char old[] = "a,b\n1,2\n";
    nw_result_row row = {0};
    assert_int_equal(nw_result_row_put(&row, "c", "3"), NW_OK);
    for (int64_t n = 0, asked, failed = 1; failed; n++) {
        long long before = memory_alive;
        char *text;
        size_t size;
        memory_ends_after(n);
        nw_status status = nw_results_merge("x", old, sizeof old - 1, &row, &text, &size);
        failed = memory_suffices(n, &asked);
        assert_int_equal(status, failed ? NW_E_MEMORY : NW_OK);
        if (!failed) assert_string_equal(text, "a,b,c\n1,2,\n,,3\n");
        free(text);
        assert_int_equal(memory_alive, before);
    }
    nw_result_row_free(&row);
    for (int64_t n = 0, asked, failed = 1; failed; n++) {
        memory_ends_after(n);
        nw_status status = nw_result_row_put(&row, "c", "%d", 3);
        failed = memory_suffices(n, &asked);
        assert_int_equal(status, failed ? NW_E_MEMORY : NW_OK);
        nw_result_row_free(&row);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_rows), CASE(test_foreign_tables), CASE(test_together),
                                       CASE(test_exchanges), CASE(test_memory_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
