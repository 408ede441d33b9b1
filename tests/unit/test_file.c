/*
 * test_file.c - whole files and directories: replacing, hashing, limits, removing, and what dead writers leave.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "support/scratch.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void put(const char *path, const char *text)
{
    assert_int_equal(nw_file_replace(path, text, strlen(text)), NW_OK);
}

static void assert_content(const char *path, const char *text)
{
    char *data;
    size_t size;
    assert_int_equal(nw_file_read(path, 1000, &data, &size), NW_OK);
    assert_int_equal(size, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

static int entries(const char *path)
{
    nw_names names;
    assert_int_equal(nw_directory_list(&names, path), NW_OK);
    int count = names.count;
    nw_names_free(&names);
    return count;
}

TEST(test_paths)
{
    static const struct {
        const char *path, *directory, *name;
    } cases[] = {{"a", ".", "a"},     {"a/b", "a", "b"},    {"/a", "/", "a"},   {"a/b/", "a", "b"},
                 {"/a/b", "/a", "b"}, {"a//b//", "a", "b"}, {"./.x", ".", ".x"}};
    char *directory, *name, *path;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(nw_path_split(cases[i].path, &directory, &name), NW_OK);
        assert_string_equal(directory, cases[i].directory);
        assert_string_equal(name, cases[i].name);
        free(directory);
        free(name);
    }
    static const char *const nameless[] = {"", "/", "///", ".", "..", "a/..", "a/./"};
    for (size_t i = 0; i < sizeof nameless / sizeof nameless[0]; i++)
        assert_int_equal(nw_path_split(nameless[i], &directory, &name), NW_E_ARGUMENT);
    assert_int_equal(nw_path_join(&path, "a/", "b"), NW_OK);
    assert_string_equal(path, "a/b");
    free(path);
    assert_int_equal(nw_path_join(&path, "a", "b"), NW_OK);
    assert_string_equal(path, "a/b");
    free(path);
}

static nw_status fill_some(FILE *out, void *context)
{
    fprintf(out, "%s, or a part of it", (const char *)context);
    NW_FAIL_IF(strcmp(context, "bad") == 0, NW_E_NUMERIC, "a fill that fails");
    return NW_OK;
}

TEST(test_replace_by)
{
    assert_int_equal(nw_file_replace_by(scratch("a"), fill_some, (char[]){"good"}), NW_OK);
    assert_int_equal(nw_file_replace_by(scratch("a"), fill_some, (char[]){"bad"}), NW_E_NUMERIC);
    assert_string_equal(nw_error_message(), "a fill that fails");
    assert_content(scratch("a"), "good, or a part of it");
    assert_int_equal(entries(scratch("")), 1); /* nothing is left beside it */
}

TEST(test_replace_and_read)
{
    char *data, sha256[65];
    size_t size;
    uint64_t bytes;
    put(scratch("x"), "one");
    put(scratch("x"), "two two");
    assert_content(scratch("x"), "two two");
    assert_int_equal(entries(scratch("")), 1); /* nothing is left beside it */
    assert_int_equal(nw_file_read(scratch("x"), 6, &data, &size), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "has 7 bytes"));
    assert_int_equal(nw_file_read(scratch("none"), 6, &data, &size), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "/none'"));
    assert_int_equal(nw_file_read(scratch(""), 6, &data, &size), NW_E_FILE); /* a directory */
    assert_int_equal(mkfifo(scratch("pipe"), 0600), 0);
    assert_int_equal(nw_file_read(scratch("pipe"), 6, &data, &size), NW_E_FILE); /* does not wait for a writer */
    put(scratch("abc"), "abc");
    assert_int_equal(nw_file_hash(scratch("abc"), &bytes, sha256), NW_OK);
    assert_int_equal(bytes, 3);
    assert_string_equal(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(nw_file_replace(scratch("no/such/file"), "", 0), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "check the path"));
}

TEST(test_writer)
{
    nw_file_writer w;
    char sha256[65];
    assert_int_equal(nw_file_create(&w, scratch("w")), NW_OK);
    assert_int_equal(nw_file_write(&w, "a", 1), NW_OK);
    assert_int_equal(nw_file_write(&w, NULL, 0), NW_OK);
    assert_int_equal(nw_file_write(&w, "bc", 2), NW_OK);
    assert_int_equal(w.bytes, 3);
    assert_int_equal(nw_file_finish(&w, sha256), NW_OK);
    nw_file_abandon(&w); /* does nothing any more */
    assert_content(scratch("w"), "abc");
    assert_string_equal(sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(nw_file_create(&w, scratch("w")), NW_OK);
    nw_file_abandon(&w);
    assert_false(nw_file_is_regular(scratch("w")));
    if (access("/dev/full", W_OK) != 0) return;
    assert_int_equal(nw_file_create(&w, "/dev/full"), NW_OK);
    nw_status status = nw_file_write(&w, "abc", 3);
    if (status == NW_OK) status = nw_file_finish(&w, NULL);
    assert_int_equal(status, NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "'/dev/full'"));
    assert_non_null(strstr(nw_error_message(), "free some space"));
    fclose(w.out); /* not abandoned: that would try to remove the device */
    free(w.path);
}

TEST(test_directories)
{
    assert_int_equal(nw_directory_make(scratch("a/b//c/")), NW_OK);
    assert_int_equal(nw_directory_make(scratch("a/b/c")), NW_OK);
    put(scratch("a/file"), "x");
    assert_int_equal(nw_directory_make(scratch("a/file")), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "a file has that name"));
    assert_int_equal(nw_directory_make(scratch("a/file/d")), NW_E_SYSTEM);
    assert_int_equal(nw_directory_make(""), NW_E_ARGUMENT);
    /* a directory inside: refused before anything is removed */
    assert_int_equal(nw_directory_remove(scratch("a")), NW_E_SYSTEM);
    assert_content(scratch("a/file"), "x");
    put(scratch("a/b/c/1"), "x");
    put(scratch("a/b/c/2"), "x");
    assert_int_equal(nw_directory_remove(scratch("a/b/c")), NW_OK);
    assert_false(nw_file_is_directory(scratch("a/b/c")));
    assert_int_equal(nw_directory_remove(scratch("a/b/c")), NW_OK);
    /* a link is not followed */
    put(scratch("a/b/keep"), "x");
    assert_int_equal(symlink(scratch("a/b"), scratch("link")), 0);
    assert_int_equal(nw_directory_remove(scratch("link")), NW_E_SYSTEM);
    assert_content(scratch("a/b/keep"), "x");
    assert_int_equal(nw_directory_discard(scratch("a/b")), NW_OK);
    assert_int_equal(entries(scratch("a")), 1);
}

static void replace_with(const char *target, const char *text, bool exchange)
{
    char *aside, *file;
    int lock;
    assert_int_equal(nw_directory_make_aside(target, &aside, &lock), NW_OK);
    assert_int_equal(nw_path_join(&file, aside, "content"), NW_OK);
    put(file, text);
    assert_int_equal(nw_directory_clean(target), NW_OK); /* leaves alone what is locked */
    assert_content(file, text);
    assert_int_equal(nw_directory_replace(aside, target, exchange), NW_OK);
    close(lock);
    free(file);
    free(aside);
}

/* Both ways of replacing: nothing there, something there; nothing is left over. */
TEST(test_replacing_directories)
{
    for (int exchange = 0; exchange < 2; exchange++) {
        const char *target = scratch(exchange ? "d1" : "d0");
        char file[600];
        snprintf(file, sizeof file, "%s/content", target);
        replace_with(target, "first", exchange);
        assert_content(file, "first");
        replace_with(target, "second", exchange);
        assert_content(file, "second");
    }
    assert_int_equal(entries(scratch("")), 2);
}

/* What is found after a crash at each point of a replacement by two renames. */
TEST(test_cleaning)
{
    /* the old one is set aside, the new one not yet in place */
    assert_int_equal(nw_directory_make(scratch(".d.old")), NW_OK);
    put(scratch(".d.old/content"), "old");
    assert_int_equal(nw_directory_make(scratch(".d.tmp-999999-0")), NW_OK);
    put(scratch(".d.tmp-999999-0/content"), "half");
    assert_int_equal(nw_directory_make(scratch(".other.tmp-999999-0")), NW_OK);
    assert_int_equal(nw_directory_clean(scratch("d")), NW_OK);
    assert_content(scratch("d/content"), "old");
    assert_int_equal(entries(scratch("")), 2); /* d, and what belongs to another name */
    /* the new one is in place, the old one not yet removed */
    assert_int_equal(nw_directory_make(scratch(".d.old")), NW_OK);
    put(scratch(".d.old/content"), "older");
    assert_int_equal(nw_directory_clean(scratch("d")), NW_OK);
    assert_content(scratch("d/content"), "old");
    assert_int_equal(entries(scratch("")), 2);
    /* the same, found by the next replacement */
    assert_int_equal(nw_directory_make(scratch(".d.old")), NW_OK);
    replace_with(scratch("d"), "new", false);
    assert_content(scratch("d/content"), "new");
    assert_int_equal(entries(scratch("")), 2);
}

int main(void)
{
#define SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths), SCRATCH(test_replace_by),  SCRATCH(test_replace_and_read),
        SCRATCH(test_writer),         SCRATCH(test_directories), SCRATCH(test_replacing_directories),
        SCRATCH(test_cleaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
