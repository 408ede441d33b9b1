/*
 * test_fetch.c - downloads from a server of our own on loopback: whole, cut and resumed, changed meanwhile, busy,
 * wrong; archives that are unpacked, or refused. In every case what is left behind is checked.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/digest.h"
#include "data/download.h"
#include "data/extract.h"
#include "data/fetch.h"
#include "support/files.h"
#include "support/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if NW_HAVE_CURL && NW_HAVE_ARCHIVE

enum { SIZE = 300000 };

typedef struct fixture_state {
    char root[PATH_SIZE];
    uint8_t *data;
    server *web;
    char digest[65];
    nw_fetch_source source;
} fixture_state;

static const char *const one_file[] = {"piece.bin", NULL};

static int set_up(void **state)
{
    fixture_state *f = calloc(1, sizeof *f);
    make_folder(f->root);
    unsetenv("NOWAIT_MIRROR");
    f->data = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) f->data[i] = (uint8_t)(i * 7 + i / 251);
    nw_digest hash = nw_md5_begin();
    nw_digest_add(&hash, f->data, SIZE);
    nw_digest_end(&hash, f->digest);
    f->web = server_start((const server_file[SERVER_FILES]){{"/piece.bin", f->data, SIZE}});
    if (!f->web) return -1;
    server_control(f->web)->tag = "\"one\"";
    f->source = (nw_fetch_source){.name = "test",
                                  .address = server_url(f->web),
                                  .folder = "set",
                                  .pieces = {{"piece.bin", f->digest}},
                                  .files = one_file};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture_state *f = *state;
    server_stop(f->web);
    remove_tree(f->root);
    free(f->data);
    free(f);
    return 0;
}

static nw_status fetch(fixture_state *f, bool *already)
{
    nw_fetch_options o = {.name = "test", .dir = f->root};
    return nw_fetch_from(&o, &f->source, already);
}

static void check_arrived(fixture_state *f)
{
    char path[PATH_SIZE + 64];
    uint8_t *got = malloc(SIZE + 1);
    snprintf(path, sizeof path, "%s/set/piece.bin", f->root);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(got, 1, SIZE + 1, file), SIZE);
    fclose(file);
    assert_memory_equal(got, f->data, SIZE);
    free(got);
    assert_int_equal(count_entries(f->root), 1);
}

static void check_message(nw_status status, nw_status want, const char *words)
{
    if (status != want || !strstr(nw_error_message(), words))
        fail_msg("status %d, '%s' lacks '%s'", (int)status, nw_error_message(), words);
}

static void test_whole(void **state)
{
    fixture_state *f = *state;
    bool already;
    assert_int_equal(fetch(f, &already), NW_OK);
    assert_false(already);
    check_arrived(f);
    assert_int_equal(fetch(f, &already), NW_OK);
    assert_true(already);
    assert_int_equal(server_control(f->web)->requests, 1);
}

/* The connection breaks twice; the rest is asked for, not the whole. */
static void test_broken_connections(void **state)
{
    fixture_state *f = *state;
    bool already;
    server_control(f->web)->cut_answers = 2;
    server_control(f->web)->cut_after = 100000;
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(server_control(f->web)->ranged, 2);
    assert_int_equal(server_control(f->web)->sent, SIZE);
}

static bool stop_half_way(void *context, const char *file, int64_t done, int64_t total)
{
    (void)context, (void)file;
    return !(total == SIZE && done >= 50000);
}

/* A process that is killed, or stopped, leaves a part; the next one goes on. */
static void test_killed_half_way(void **state)
{
    fixture_state *f = *state;
    bool already;
    server_faults *faults = server_control(f->web);
    pid_t child = fork();
    if (child == 0) {
        nw_fetch_options o = {.name = "test", .dir = f->root, .progress = stop_half_way};
        nw_fetch_from(&o, &f->source, &already);
        kill(getpid(), SIGKILL);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_true(file_exists(f->root, "test-piece.bin.part"));
    assert_false(file_exists(f->root, "set"));
    faults->sent = 0;
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(faults->ranged, 1);
    assert_true(faults->sent < SIZE);
}

/* What lies there is of another file: its tag tells, and all is fetched anew. */
static void test_changed_meanwhile(void **state)
{
    fixture_state *f = *state;
    bool already;
    put_file(f->root, "test-piece.bin.part", "old old old", 11);
    put_file(f->root, "test-piece.bin.part.tag", "\"zero\"\n", 7);
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(server_control(f->web)->ranged, 0);
}

/* The tag is right, but the bytes are not: the digest tells, and all is fetched anew. */
static void test_damaged_part(void **state)
{
    fixture_state *f = *state;
    bool already;
    put_file(f->root, "test-piece.bin.part", "old old old", 11);
    put_file(f->root, "test-piece.bin.part.tag", "\"one\"\n", 6);
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(server_control(f->web)->ranged, 1);
    assert_int_equal(server_control(f->web)->requests, 2);
}

/* Everything is there already and was only not renamed: the server has nothing more to give. */
static void test_part_is_whole(void **state)
{
    fixture_state *f = *state;
    bool already;
    put_file(f->root, "test-piece.bin.part", f->data, SIZE);
    put_file(f->root, "test-piece.bin.part.tag", "\"one\"\n", 6);
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(server_control(f->web)->sent, 0);
}

static void test_no_ranges(void **state)
{
    fixture_state *f = *state;
    bool already;
    server_control(f->web)->no_ranges = true;
    put_file(f->root, "test-piece.bin.part", f->data, 1000);
    put_file(f->root, "test-piece.bin.part.tag", "\"one\"\n", 6);
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    server_control(f->web)->no_ranges = false;
}

static void test_busy_server(void **state)
{
    fixture_state *f = *state;
    bool already;
    server_control(f->web)->busy_answers = 2;
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_int_equal(server_control(f->web)->requests, 3);
}

static void test_wrong_digest(void **state)
{
    fixture_state *f = *state;
    bool already;
    f->source.pieces[0].digest = "00000000000000000000000000000000";
    check_message(fetch(f, &already), NW_E_FILE, "instead of the published 0000");
    assert_non_null(strstr(nw_error_message(), f->digest));
    assert_int_equal(count_entries(f->root), 0);
    f->source.pieces[0].digest = "0000000000000000000000000000000000000000000000000000000000000000";
    check_message(fetch(f, &already), NW_E_FILE, "SHA-256");
    assert_int_equal(count_entries(f->root), 0);
}

static void test_absent(void **state)
{
    fixture_state *f = *state;
    bool already;
    f->source.pieces[0].file = "other.bin";
    check_message(fetch(f, &already), NW_E_SYSTEM, "other.bin: the server answers 404");
    assert_int_equal(count_entries(f->root), 0);
    nw_fetch_options o = {.name = "test", .dir = f->root, .url = "ftp://127.0.0.1/"};
    check_message(nw_fetch_from(&o, &f->source, &already), NW_E_SYSTEM, "ftp://127.0.0.1/");
    o.url = "file:///etc";
    check_message(nw_fetch_from(&o, &f->source, &already), NW_E_SYSTEM, "file:///etc");
    assert_int_equal(count_entries(f->root), 0);
}

static void test_mirror(void **state)
{
    fixture_state *f = *state;
    bool already;
    char url[128];
    snprintf(url, sizeof url, "%.100s", f->source.address);
    url[strlen(url) - 1] = 0; /* without the last slash */
    f->source.address = "http://127.0.0.1:1/";
    setenv("NOWAIT_MIRROR", url, 1);
    assert_int_equal(fetch(f, &already), NW_OK);
    unsetenv("NOWAIT_MIRROR");
    check_arrived(f);
}

/* An older, incomplete folder is completed, and what else is in it stays. */
static void test_incomplete_folder(void **state)
{
    fixture_state *f = *state;
    bool already;
    put_folder(f->root, "set");
    put_file(f->root, "set/mine.txt", "x", 1);
    put_folder(f->root, "set.unpack");
    put_file(f->root, "set.unpack/rest", "x", 1);
    assert_int_equal(fetch(f, &already), NW_OK);
    check_arrived(f);
    assert_true(file_exists(f->root, "set/mine.txt"));
    assert_false(file_exists(f->root, "set/rest"));
}

static void test_two_processes(void **state)
{
    fixture_state *f = *state;
    pid_t child[2];
    for (int i = 0; i < 2; i++) {
        child[i] = fork();
        if (child[i] == 0) {
            bool already;
            _exit(fetch(f, &already) == NW_OK ? already : 9);
        }
    }
    int codes[2], status;
    for (int i = 0; i < 2; i++) {
        waitpid(child[i], &status, 0);
        codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 8;
    }
    assert_int_equal(codes[0] + codes[1], 1); /* one fetched, the other found it */
    check_arrived(f);
}

/* ---- Archives ---------------------------------------------------------------------------------------------------- */

/* One entry of a tar archive; returns its size. */
static size_t tar_entry(uint8_t *at, const char *name, char kind, const char *data)
{
    size_t size = strlen(data);
    unsigned sum = 0;
    memset(at, 0, 1024);
    snprintf((char *)at, 100, "%s", name);
    snprintf((char *)at + 100, 8, "%07o", 0644);
    snprintf((char *)at + 124, 12, "%011o", kind == '0' ? (unsigned)size & 0777 : 0u);
    snprintf((char *)at + 136, 12, "%011o", 0);
    memset(at + 148, ' ', 8);
    at[156] = (uint8_t)kind;
    if (kind != '0') snprintf((char *)at + 157, 100, "%s", data);
    memcpy(at + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) sum += at[i];
    snprintf((char *)at + 148, 8, "%06o", sum);
    if (kind != '0') return 512;
    memcpy(at + 512, data, size);
    return 1024;
}

static nw_status extract(const char *root, const char *name, char kind, const char *data, int64_t most)
{
    uint8_t tar[1024 + 1024 + 1024] = {0};
    char archive[PATH_SIZE + 32], folder[PATH_SIZE + 32];
    size_t size = tar_entry(tar, "top/good.txt", '0', "fine");
    size += tar_entry(tar + size, name, kind, data);
    put_file(root, "a.tar", tar, size + 1024);
    snprintf(archive, sizeof archive, "%s/a.tar", root);
    snprintf(folder, sizeof folder, "%s/out", root);
    remove_tree(folder);
    put_folder(root, "out");
    return nw_extract(archive, folder, most);
}

static void test_archives(void **state)
{
    fixture_state *f = *state;
    assert_int_equal(extract(f->root, "top/deep/er/two.txt", '0', "2", 100), NW_OK);
    assert_true(file_exists(f->root, "out/good.txt"));
    assert_true(file_exists(f->root, "out/two.txt"));
    check_message(extract(f->root, "../evil.txt", '0', "x", 100), NW_E_FILE,
                  "'../evil.txt', which leads outside the folder");
    check_message(extract(f->root, "/tmp/evil.txt", '0', "x", 100), NW_E_FILE, "leads outside the folder");
    check_message(extract(f->root, "top/link", '2', "/etc/passwd", 100), NW_E_FILE, "not a regular file");
    check_message(extract(f->root, "top/link", '1', "top/good.txt", 100), NW_E_FILE, "not a regular file");
    check_message(extract(f->root, "other/good.txt", '0', "x", 100), NW_E_FILE, "good.txt cannot be made");
    check_message(extract(f->root, "top/big.txt", '0', "12345", 8), NW_E_FILE, "more than the dataset has");
    assert_false(file_exists(f->root, "evil.txt"));
    put_file(f->root, "a.tar", "not an archive at all", 21);
    char archive[PATH_SIZE + 32];
    snprintf(archive, sizeof archive, "%s/a.tar", f->root);
    check_message(nw_extract(archive, f->root, 100), NW_E_FILE, "cannot be unpacked");
}

/* An archive is fetched and unpacked; one that lacks a file leaves nothing of it. */
static void test_fetch_archive(void **state)
{
    fixture_state *f = *state;
    static const char *const files[] = {"a.bin", NULL}, *const more[] = {"a.bin", "b.bin", NULL};
    uint8_t tar[2048] = {0};
    char digest[65];
    bool already;
    tar_entry(tar, "cifar/a.bin", '0', "content");
    nw_digest hash = nw_sha256_begin();
    nw_digest_add(&hash, tar, sizeof tar);
    nw_digest_end(&hash, digest);
    server *web = server_start((const server_file[SERVER_FILES]){{"/a.tar", tar, sizeof tar}});
    nw_fetch_source source = {.name = "test",
                              .address = server_url(web),
                              .folder = "set",
                              .archives = true,
                              .unpacked = 1000,
                              .pieces = {{"a.tar", digest}},
                              .files = more};
    nw_fetch_options o = {.name = "test", .dir = f->root};
    check_message(nw_fetch_from(&o, &source, &already), NW_E_FILE, "does not contain b.bin");
    assert_false(file_exists(f->root, "set"));
    assert_false(file_exists(f->root, "set.unpack"));
    source.files = files;
    assert_int_equal(nw_fetch_from(&o, &source, &already), NW_OK);
    assert_true(file_exists(f->root, "set/a.bin"));
    assert_int_equal(count_entries(f->root), 1);
    server_stop(web);
}

static void test_unknown(void **state)
{
    bool already;
    (void)state;
    nw_fetch_options o = {.name = "cinic10", .dir = "/nonexistent"};
    check_message(nw_data_fetch(&o, &already), NW_E_UNKNOWN, "'cinic10' has no address");
    assert_non_null(nw_fetch_address("cifar10"));
    assert_null(nw_fetch_address("folder"));
}

#define WITH_SERVER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SERVER(test_whole),           WITH_SERVER(test_broken_connections),
        WITH_SERVER(test_killed_half_way), WITH_SERVER(test_changed_meanwhile),
        WITH_SERVER(test_damaged_part),    WITH_SERVER(test_part_is_whole),
        WITH_SERVER(test_no_ranges),       WITH_SERVER(test_busy_server),
        WITH_SERVER(test_wrong_digest),    WITH_SERVER(test_absent),
        WITH_SERVER(test_mirror),          WITH_SERVER(test_incomplete_folder),
        WITH_SERVER(test_two_processes),   WITH_SERVER(test_archives),
        WITH_SERVER(test_fetch_archive),   cmocka_unit_test(test_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

/* Without the libraries, fetching is refused with the names of the packages. */
static void test_refused(void **state)
{
    bool already, resumed;
    (void)state;
    (void)already;
    assert_int_equal(nw_download("http://127.0.0.1/", "/nonexistent/part", NULL, NULL, &resumed),
                     NW_HAVE_CURL ? NW_E_SYSTEM : NW_E_UNSUPPORTED);
    if (!NW_HAVE_ARCHIVE) assert_int_equal(nw_extract("a.tar", "/nonexistent", 1), NW_E_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
