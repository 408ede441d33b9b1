/*
 * test_heartbeat.c - heartbeats: what is told is what is read, also while it changes; files that cannot be written never
 * end the process; files that are none are refused.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "net/heartbeat.h"
#include "support/scratch.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static nw_heartbeat *opened(int rank, int world)
{
    nw_heartbeat *heart;
    assert_int_equal(nw_heartbeat_open(&heart, scratch("run"), rank, world), NW_OK);
    assert_non_null(heart);
    return heart;
}

static char *path_of(int rank)
{
    static char text[600];
    char *path;
    assert_int_equal(nw_heartbeat_path(&path, scratch("run"), rank), NW_OK);
    snprintf(text, sizeof text, "%s", path);
    free(path);
    return text;
}

static nw_beat beat_of(int rank)
{
    nw_beat beat;
    assert_int_equal(nw_heartbeat_read(path_of(rank), &beat), NW_OK);
    return beat;
}

TEST(what_is_told_is_read)
{
    int64_t before = nw_heartbeat_now();
    nw_heartbeat *heart = opened(3, 8);
    char host[NW_HEARTBEAT_HOST] = "";
    gethostname(host, sizeof host - 1);
    nw_beat beat = beat_of(3);
    assert_int_equal(beat.rank, 3);
    assert_int_equal(beat.world, 8);
    assert_int_equal(beat.pid, getpid());
    assert_string_equal(beat.host, host);
    assert_int_equal(beat.state, NW_RANK_STARTING);
    assert_int_equal(beat.step, 0);
    assert_string_equal(beat.what, "");
    assert_true(beat.started_ns >= before && beat.changed_ns == beat.started_ns);
    for (int s = 0; s < NW_RANK_STATES; s++) {
        uint64_t beats = beat.beats;
        nw_heartbeat_set(heart, (nw_rank_state)s, 1000 + s, "gradient bucket 3");
        beat = beat_of(3);
        assert_int_equal(beat.state, s);
        assert_int_equal(beat.step, 1000 + s);
        assert_string_equal(beat.what, "gradient bucket 3");
        assert_int_equal(beat.beats, beats + 1);
        assert_true(beat.changed_ns >= beat.started_ns);
    }
    nw_heartbeat_flush(heart);
    assert_false(nw_heartbeat_lost(heart));
    nw_heartbeat_close(heart);
    beat = beat_of(3); /* the file outlives the heart */
    assert_int_equal(beat.step, 1000 + NW_RANK_STATES - 1);
}

TEST(texts_are_cut_and_cleaned)
{
    nw_heartbeat *heart = opened(0, 1);
    char longer[400];
    memset(longer, 'x', sizeof longer);
    longer[399] = 0;
    nw_heartbeat_set(heart, NW_RANK_WAITING, 1, longer);
    assert_int_equal(strlen(beat_of(0).what), NW_HEARTBEAT_WHAT - 1);
    nw_heartbeat_set(heart, NW_RANK_WAITING, 1, "short");
    assert_string_equal(beat_of(0).what, "short"); /* nothing of the longer one is left */
    nw_heartbeat_set(heart, NW_RANK_WAITING, 1, NULL);
    assert_string_equal(beat_of(0).what, "");
    nw_heartbeat_set(heart, NW_RANK_WAITING, 1, "caf\xc3\xa9 \x1b[2J \xff \xc2\x9b.");
    assert_string_equal(beat_of(0).what, "caf\xc3\xa9 ?[2J ? ??.");
    memset(longer, 'x', NW_HEARTBEAT_WHAT - 2);
    strcpy(longer + NW_HEARTBEAT_WHAT - 2, "\xc3\xa9"); /* cut in the middle of a character */
    nw_heartbeat_set(heart, NW_RANK_WAITING, 1, longer);
    assert_int_equal(beat_of(0).what[NW_HEARTBEAT_WHAT - 2], '?');
    nw_heartbeat_close(heart);
}

TEST(a_new_job_replaces_the_file)
{
    nw_heartbeat *old = opened(1, 2);
    nw_heartbeat_set(old, NW_RANK_COMPUTING, 70, "old");
    nw_heartbeat *fresh = opened(1, 2);
    nw_heartbeat_set(old, NW_RANK_COMPUTING, 71, "old");
    assert_int_equal(beat_of(1).step, 0); /* whoever still has the old page writes where nobody looks */
    nw_heartbeat_set(fresh, NW_RANK_COMPUTING, 5, "");
    assert_int_equal(beat_of(1).step, 5);
    assert_false(nw_heartbeat_lost(old));
    nw_heartbeat_close(old);
    nw_heartbeat_close(fresh);
    nw_names names;
    assert_int_equal(nw_directory_list(&names, scratch("run/ranks")), NW_OK);
    assert_int_equal(names.count, 1);
    nw_names_free(&names);
}

/* ---- while it changes -------------------------------------------------------------------------------------------- */

static atomic_bool stop;

static void *beat_fast(void *context)
{
    char what[64];
    for (int64_t step = 0; !atomic_load(&stop); step++) {
        snprintf(what, sizeof what, "%lld and %lld", (long long)step, (long long)(step * 7));
        nw_heartbeat_set(context, (nw_rank_state)(step % NW_RANK_STATES), step, what);
    }
    return NULL;
}

TEST(readers_never_see_a_mixture)
{
    nw_heartbeat *heart = opened(0, 1);
    pthread_t thread;
    int read = 0, moved = 0;
    int64_t last = -1;
    nw_heartbeat_set(heart, NW_RANK_STARTING, 0, "0 and 0");
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, beat_fast, heart), 0);
    for (int i = 0; i < 20000; i++) {
        nw_beat beat;
        char want[64];
        if (nw_heartbeat_read(path_of(0), &beat) != NW_OK) continue; /* it changed at every look; said, not wrong */
        snprintf(want, sizeof want, "%lld and %lld", (long long)beat.step, (long long)(beat.step * 7));
        assert_string_equal(beat.what, want);
        assert_int_equal(beat.state, beat.step % NW_RANK_STATES);
        assert_true(beat.step >= last);
        moved += beat.step > last;
        last = beat.step;
        read++;
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    assert_true(read > 100 && moved > 1);
    nw_heartbeat_close(heart);
}

/* ---- what cannot be written -------------------------------------------------------------------------------------- */

TEST(no_heart_is_fine)
{
    nw_heartbeat_set(NULL, NW_RANK_COMPUTING, 1, "nobody");
    nw_heartbeat_flush(NULL);
    assert_false(nw_heartbeat_lost(NULL));
    nw_heartbeat_close(NULL);
}

TEST(a_run_that_cannot_be_written)
{
    nw_heartbeat *heart = (nw_heartbeat *)1;
    assert_int_equal(nw_file_replace(scratch("file"), "x", 1), NW_OK);
    assert_int_not_equal(nw_heartbeat_open(&heart, scratch("file"), 0, 1), NW_OK);
    assert_null(heart);
    assert_non_null(strstr(nw_error_message(), "file"));
    assert_int_equal(nw_heartbeat_open(&heart, scratch("run"), 2, 2), NW_E_ARGUMENT);
    assert_int_equal(nw_heartbeat_open(&heart, scratch("run"), -1, 2), NW_E_ARGUMENT);
}

TEST(a_disk_that_is_full)
{
    struct rlimit limit, before;
    nw_heartbeat *heart;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit = (struct rlimit){1000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    nw_status status = nw_heartbeat_open(&heart, scratch("run"), 0, 1);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(status, NW_E_SYSTEM);
    assert_null(heart);
    assert_non_null(strstr(nw_error_message(), "no heartbeats"));
    nw_names names;
    assert_int_equal(nw_directory_list(&names, scratch("run/ranks")), NW_OK);
    assert_int_equal(names.count, 0); /* nothing half-made stays */
    nw_names_free(&names);
}

TEST(a_page_that_is_lost)
{
    nw_heartbeat *heart = opened(0, 2), *other = opened(1, 2);
    assert_int_equal(truncate(path_of(0), 0), 0);
    nw_heartbeat_set(heart, NW_RANK_COMPUTING, 1, "into nothing");
    nw_heartbeat_set(heart, NW_RANK_COMPUTING, 2, "and again");
    assert_true(nw_heartbeat_lost(heart));
    assert_false(nw_heartbeat_lost(heart)); /* said once */
    nw_heartbeat_flush(heart);
    nw_heartbeat_set(other, NW_RANK_COMPUTING, 9, "");
    assert_int_equal(beat_of(1).step, 9);
    assert_false(nw_heartbeat_lost(other));
    nw_heartbeat_close(heart);
    nw_heartbeat_close(other);
}

static sigjmp_buf back;
static volatile sig_atomic_t passed_on;

static void on_bus(int number)
{
    (void)number;
    passed_on++;
    siglongjmp(back, 1);
}

/* Two mappings of an empty file: storing there is a bus error that is not ours. */
TEST(bus_errors_of_others_are_passed_on)
{
    struct sigaction action = {.sa_handler = on_bus}, before;
    sigemptyset(&action.sa_mask);
    assert_int_equal(sigaction(SIGBUS, &action, &before), 0);
    nw_heartbeat *heart = opened(0, 1);
    int file = open(scratch("empty"), O_RDWR | O_CREAT, 0600);
    assert_true(file >= 0);
    volatile char *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    for (int round = 1; round <= 2; round++) {
        if (sigsetjmp(back, 1) == 0) {
            memory[0] = 1;
            fail_msg("storing behind the end of a file went well");
        }
        assert_int_equal(passed_on, round);
    }
    assert_false(nw_heartbeat_lost(heart));
    nw_heartbeat_close(heart);
    struct sigaction after;
    assert_int_equal(sigaction(SIGBUS, &before, &after), 0);
    assert_ptr_equal(after.sa_handler, on_bus); /* put back as it was found */
    munmap((void *)memory, 4096);
    close(file);
}

TEST(many_hearts)
{
    enum { MANY = 64 };
    nw_heartbeat *hearts[MANY], *more;
    for (int i = 0; i < MANY; i++) hearts[i] = opened(i, MANY + 1);
    assert_int_equal(nw_heartbeat_open(&more, scratch("run"), MANY, MANY + 1), NW_E_UNSUPPORTED);
    assert_null(more);
    for (int i = 0; i < MANY; i++) nw_heartbeat_close(hearts[i]);
    nw_heartbeat_close(opened(MANY, MANY + 1));
}

/* ---- what is no heartbeat ---------------------------------------------------------------------------------------- */

typedef struct damage {
    size_t offset;
    int bytes;
    int64_t value;
    const char *says;
} damage;

TEST(damaged_files_are_refused)
{
    static const damage all[] = {
        {0, 8, 0, "does not begin like one"},
        {8, 4, 4095, "does not begin like one"},
        {12, 4, 5, "no rank 5 of 5"},
        {12, 4, -1, "no rank -1"},
        {16, 4, 0, "of 0"},
        {16, 4, 1 << 30, "no rank"},
        {24, 8, 0, "process 0"},
        {24, 8, -4, "process -4"},
        {128, 8, 77, "was being changed"},
        {352, 8, 77, "was being changed"},
        {136, 8, NW_RANK_STATES, "no state 9"},
        {136, 8, -1, "no state"},
        {144, 8, -1, "step -1"},
    };
    nw_heartbeat_close(opened(4, 5));
    char *whole, name[] = "page";
    size_t size;
    nw_beat beat;
    assert_int_equal(nw_file_read(path_of(4), 1 << 20, &whole, &size), NW_OK);
    assert_int_equal(size, NW_HEARTBEAT_BYTES);
    assert_int_equal(nw_heartbeat_parse(whole, size, name, &beat), NW_OK);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char page[NW_HEARTBEAT_BYTES];
        memcpy(page, whole, sizeof page);
        int32_t small = (int32_t)all[i].value;
        memcpy(page + all[i].offset, all[i].bytes == 8 ? (const void *)&all[i].value : &small, (size_t)all[i].bytes);
        assert_int_equal(nw_heartbeat_parse(page, sizeof page, name, &beat), NW_E_FILE);
        if (!strstr(nw_error_message(), all[i].says)) fail_msg("%zu: %s", i, nw_error_message());
    }
    for (size_t field = 0; field < 2; field++) {
        char page[NW_HEARTBEAT_BYTES];
        memcpy(page, whole, sizeof page);
        memset(page + (field ? 160 : 40), 'x', field ? NW_HEARTBEAT_WHAT : NW_HEARTBEAT_HOST);
        assert_int_equal(nw_heartbeat_parse(page, sizeof page, name, &beat), NW_E_FILE);
        assert_non_null(strstr(nw_error_message(), "has no end"));
    }
    assert_int_equal(nw_heartbeat_parse(whole, size - 1, name, &beat), NW_E_FILE);
    assert_int_equal(nw_heartbeat_parse(whole, 0, name, &beat), NW_E_FILE);
    free(whole);
}

TEST(files_that_are_none)
{
    nw_beat beat;
    assert_int_equal(nw_heartbeat_read(scratch("missing"), &beat), NW_E_FILE);
    assert_non_null(strstr(nw_error_message(), "missing"));
    assert_int_equal(nw_heartbeat_read(scratch_dir, &beat), NW_E_FILE);
    assert_int_equal(mkfifo(scratch("pipe"), 0600), 0);
    assert_int_equal(nw_heartbeat_read(scratch("pipe"), &beat), NW_E_FILE); /* and does not wait for a writer */
    assert_int_equal(nw_file_replace(scratch("short"), "NWBEAT1", 8), NW_OK);
    assert_int_equal(nw_heartbeat_read(scratch("short"), &beat), NW_E_FILE);
}

TEST(all_ranks_at_once)
{
    nw_beat beats[4];
    assert_int_equal(nw_heartbeat_read_all(scratch("run"), 4, beats), 0);
    assert_int_equal(nw_heartbeat_clear(scratch("run")), NW_OK); /* nothing there yet */
    nw_heartbeat *zero = opened(0, 4), *two = opened(2, 4), *other_world = opened(3, 8);
    nw_heartbeat_set(two, NW_RANK_EVALUATING, 12, "");
    assert_int_equal(nw_heartbeat_read_all(scratch("run"), 4, beats), 2);
    assert_int_equal(beats[0].rank, 0);
    assert_int_equal(beats[1].rank, -1);
    assert_int_equal(beats[2].step, 12);
    assert_int_equal(beats[3].rank, -1); /* it belongs to a job of 8 */
    nw_heartbeat_close(zero);
    nw_heartbeat_close(two);
    nw_heartbeat_close(other_world);
    assert_int_equal(nw_file_replace(scratch("run/ranks/note"), "x", 1), NW_OK);
    assert_int_equal(nw_file_replace(scratch("run/ranks/.3.4711"), "x", 1), NW_OK);
    assert_int_equal(nw_file_replace(scratch("run/ranks/.3.x"), "x", 1), NW_OK);
    assert_int_equal(nw_heartbeat_clear(scratch("run")), NW_OK);
    nw_names names;
    assert_int_equal(nw_directory_list(&names, scratch("run/ranks")), NW_OK);
    assert_int_equal(names.count, 2); /* what is not ours stays */
    assert_string_equal(names.at[0], ".3.x");
    assert_string_equal(names.at[1], "note");
    nw_names_free(&names);
}

TEST(in_words)
{
    assert_string_equal(nw_rank_state_name(NW_RANK_INTERRUPTED), "interrupted");
    assert_string_equal(nw_rank_state_name((nw_rank_state)99), "in an unknown state");
    int ends = 0;
    for (int s = 0; s < NW_RANK_STATES; s++) ends += nw_rank_state_is_end((nw_rank_state)s);
    assert_int_equal(ends, 3);
    assert_true(nw_rank_state_is_end(NW_RANK_DONE));
}

int main(void)
{
#define IN_SCRATCH(name) cmocka_unit_test_setup_teardown(name, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(what_is_told_is_read),
        IN_SCRATCH(texts_are_cut_and_cleaned),
        IN_SCRATCH(a_new_job_replaces_the_file),
        IN_SCRATCH(readers_never_see_a_mixture),
        cmocka_unit_test(no_heart_is_fine),
        IN_SCRATCH(a_run_that_cannot_be_written),
        IN_SCRATCH(a_disk_that_is_full),
        IN_SCRATCH(a_page_that_is_lost),
        IN_SCRATCH(bus_errors_of_others_are_passed_on),
        IN_SCRATCH(many_hearts),
        IN_SCRATCH(damaged_files_are_refused),
        IN_SCRATCH(files_that_are_none),
        IN_SCRATCH(all_ranks_at_once),
        cmocka_unit_test(in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
