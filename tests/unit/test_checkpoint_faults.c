/*
 * test_checkpoint_faults.c - disks that fill up at any byte, and writers that are killed at any moment.
 *
 * A full disk is a limit on file sizes (RLIMIT_FSIZE), set to every size of interest in a child process; where mounting
 * is allowed, also a real file system of few pages in a mount namespace of the child's own. The parent then looks at
 * what is left.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/rng.h"
#include "support/scratch.h"
#include "checkpoint/checkpoint.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { FLOATS = 6000, FILES = 3 };

static float value_at(int64_t step, int file, int i) { return (float)(step * 7 + file * 3 + i % 101); }

/* A checkpoint of three files whose every number depends on the step. Ignores failures on the way: commit returns them.
 */
static nw_status write_step(const char *target, int64_t step)
{
    static float data[FLOATS];
    nw_checkpoint_writer *w;
    nw_checkpoint_info info = {.step = step, .model = "tiny", .precision = "f32", .isa = "generic"};
    NW_TRY(nw_checkpoint_begin(&w, target, &info));
    for (int file = 0; file < FILES; file++) {
        char name[64];
        nw_saved_list list = {0};
        for (int i = 0; i < FLOATS; i++) data[i] = value_at(step, file, i);
        snprintf(name, sizeof name, "replica%d.safetensors", file);
        (void)nw_saved_list_add(&list, "x", NW_SAVED_F32, 1, (int64_t[]){FLOATS}, data);
        (void)nw_checkpoint_add_tensors(w, name, &list, NULL, 0);
        nw_saved_list_free(&list);
    }
    (void)nw_checkpoint_add_int(w, "step", step);
    return nw_checkpoint_commit(w);
}

/* The step of the checkpoint that is found there, with all its numbers checked; -1 if there is none. */
static int64_t read_step(const char *path)
{
    static float data[FLOATS];
    nw_checkpoint *c;
    int64_t step;
    if (!nw_checkpoint_exists(path)) return -1;
    if (nw_checkpoint_open(&c, path) != NW_OK) fail_msg("%s", nw_error_message());
    if (nw_checkpoint_note(c)) fail_msg("%s", nw_checkpoint_note(c));
    assert_int_equal(nw_checkpoint_get_int(c, "step", &step), NW_OK);
    assert_int_equal(nw_checkpoint_get_info(c)->step, step);
    for (int file = 0; file < FILES; file++) {
        char name[64];
        snprintf(name, sizeof name, "replica%d.safetensors", file);
        assert_int_equal(nw_checkpoint_read_tensor(c, name, "x", 1, (int64_t[]){FLOATS}, data), NW_OK);
        for (int i = 0; i < FLOATS; i++) assert_true(data[i] == value_at(step, file, i));
    }
    nw_checkpoint_close(c);
    return step;
}

static int entries(const char *path)
{
    nw_names names;
    assert_int_equal(nw_directory_list(&names, path), NW_OK);
    int count = names.count;
    nw_names_free(&names);
    return count;
}

/* ---- full disks ---- */

enum { CHILD_WROTE = 10, CHILD_REFUSED, CHILD_WRONG, CHILD_CANNOT };

static int wait_for(pid_t child)
{
    int result = 0;
    assert_true(waitpid(child, &result, 0) == child && WIFEXITED(result));
    return WEXITSTATUS(result);
}

/* Tries to write step 2 where no file may grow beyond `limit` bytes. */
static int write_limited(const char *target, rlim_t limit)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN); /* then write fails with EFBIG */
        if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit, limit}) != 0) _exit(CHILD_CANNOT);
        nw_status status = write_step(target, 2);
        bool says = strstr(nw_error_message(), target) && strstr(nw_error_message(), "ulimit -f") &&
                    strstr(nw_error_message(), "earlier checkpoints are untouched");
        _exit(status == NW_OK ? CHILD_WROTE : status == NW_E_SYSTEM && says ? CHILD_REFUSED : CHILD_WRONG);
    }
    return wait_for(child);
}

TEST(test_limited_files)
{
    static const rlim_t limits[] = {0, 1, 8, 100, 4095, 4096, 4097, 20000, 24000};
    char *target = scratch("c");
    assert_int_equal(write_step(target, 1), NW_OK);
    struct stat s;
    assert_int_equal(stat(scratch("c/replica0.safetensors"), &s), 0);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        assert_true(limits[i] < (rlim_t)s.st_size);
        assert_int_equal(write_limited(target, limits[i]), CHILD_REFUSED);
        assert_int_equal(entries(scratch_dir), 1); /* nothing half-written is left */
        assert_int_equal(read_step(target), 1);
    }
    assert_int_equal(write_limited(target, (rlim_t)s.st_size - 1), CHILD_REFUSED);
    assert_int_equal(read_step(target), 1);
    assert_int_equal(write_limited(target, (rlim_t)s.st_size), CHILD_WROTE);
    assert_int_equal(read_step(target), 2);
}

/* On a file system with room for one checkpoint and a half: exits with one of the codes above. */
static void fill_small_disk(const char *where)
{
    char target[2 * PATH_SIZE], first[2 * PATH_SIZE];
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", where, "tmpfs", 0, "size=120k") != 0)
        _exit(CHILD_CANNOT);
    snprintf(target, sizeof target, "%s/checkpoints/2", where);
    snprintf(first, sizeof first, "%s/checkpoints/1", where);
    if (write_step(first, 1) != NW_OK) _exit(CHILD_WRONG);
    if (write_step(target, 2) != NW_E_SYSTEM) _exit(CHILD_WROTE);
    if (!strstr(nw_error_message(), target) || !strstr(nw_error_message(), "No space left")) _exit(CHILD_WRONG);
    snprintf(target, sizeof target, "%s/checkpoints", where);
    nw_names names;
    if (nw_directory_list(&names, target) != NW_OK || names.count != 1) _exit(CHILD_WRONG);
    nw_names_free(&names);
    nw_checkpoint *c;
    if (nw_checkpoint_open(&c, where) != NW_OK || nw_checkpoint_get_info(c)->step != 1) _exit(CHILD_WRONG);
    nw_checkpoint_close(c);
    _exit(CHILD_REFUSED);
}

TEST(test_full_disk)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) fill_small_disk(scratch_dir);
    int code = wait_for(child);
    if (code == CHILD_CANNOT) skip(); /* mounting needs rights */
    assert_int_equal(code, CHILD_REFUSED);
}

/* ---- kills ---- */

/* Writes one checkpoint after the other and tells each through the pipe. Never returns. */
static void write_for_ever(const char *run, const char *named, int64_t from, int pipe_end)
{
    for (int64_t step = from;; step++) {
        char *path;
        if (nw_checkpoint_step_path(&path, run, step) != NW_OK) _exit(1);
        nw_status status = write_step(named ? named : path, step);
        free(path);
        if (status != NW_OK || (!named && nw_checkpoint_prune(run, 2, -1) != NW_OK)) _exit(1);
        if (write(pipe_end, &step, sizeof step) != sizeof step) _exit(1);
    }
}

/* Kills a writer after a random time, many times over. What is found afterwards is the last checkpoint that it told
 * of, or the next one, and it is complete. */
static void kill_writers(const char *run, const char *named)
{
    enum { ROUNDS = 30 };
    nw_rng rng = nw_rng_make(named ? 11 : 12, NW_PURPOSE_TEST, 0, 0);
    int64_t told = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(ends[0]);
            write_for_ever(run, named, told + 1, ends[1]);
        }
        close(ends[1]);
        nanosleep(&(struct timespec){.tv_nsec = (long)nw_rng_below(&rng, 60) * 1000000}, NULL);
        kill(child, SIGKILL);
        int result;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_true(WIFSIGNALED(result)); /* and did not end by itself because something failed */
        for (int64_t step; read(ends[0], &step, sizeof step) == sizeof step;) told = step;
        close(ends[0]);
        int64_t found = read_step(named ? named : run);
        if (found == -1 && told == 0) continue; /* killed before the first */
        if (found != told && found != told + 1)
            fail_msg("told of step %lld, found %lld", (long long)told, (long long)found);
        told = found;
    }
    assert_true(told > 0);
}

TEST(test_killed_writers_of_steps)
{
    char run[600];
    strcpy(run, scratch("run"));
    kill_writers(run, NULL);
    /* the next writer clears what they left */
    char *path;
    assert_int_equal(nw_checkpoint_step_path(&path, run, 1000000), NW_OK);
    assert_int_equal(write_step(path, 1000000), NW_OK);
    free(path);
    assert_int_equal(nw_checkpoint_prune(run, 1, -1), NW_OK);
    assert_int_equal(entries(scratch("run/checkpoints")), 1);
}

TEST(test_killed_writers_of_one_name)
{
    char named[600];
    strcpy(named, scratch("named"));
    kill_writers(scratch("unused"), named);
    assert_int_equal(write_step(named, 1000000), NW_OK);
    assert_int_equal(entries(scratch_dir), 1);
}

int main(void)
{
#define SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        SCRATCH(test_limited_files),
        SCRATCH(test_full_disk),
        SCRATCH(test_killed_writers_of_steps),
        SCRATCH(test_killed_writers_of_one_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
