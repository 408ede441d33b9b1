/* test_event_log.c - the log of decisions: what was recorded comes back, whatever a kill leaves of it; parts
 * join. */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "replay/recording.h"
#include "support/allocations.h"
#include "support/files.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static char folder[PATH_SIZE];
static nw_message_pool *pool;
static nw_message *letter;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    return nw_message_pool_create(&pool) == NW_OK && nw_message_take(pool, 8, &letter) == NW_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    nw_message_pool_free(pool);
    remove_tree(folder);
    return 0;
}

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void refused(nw_status status, nw_status want, const char *part)
{
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("status %d and '%s', wanted %d and '%s'", status, nw_error_message(), want, part);
}

static nw_log_header header(int world, int first, int ranks, int64_t step)
{
    nw_log_header h = {.world = world,
                       .first_rank = first,
                       .ranks = ranks,
                       .first_step = step,
                       .first_epoch = step / 10,
                       .seed = UINT64_MAX,
                       .lr_factor = 0.25};
    strcpy(h.exchange, "toy");
    strcpy(h.codec, "none");
    strcpy(h.isa, "avx2");
    strcpy(h.precision, "f32");
    strcpy(h.version, "0.1.0");
    strcpy(h.commit, "abc");
    return h;
}

static nw_recorder *open_recorder(int world, int first, int ranks, int64_t step)
{
    nw_recorder *r;
    nw_log_header h = header(world, first, ranks, step);
    ok(nw_recorder_create(&r));
    ok(nw_log_cut(folder, step, first));
    ok(nw_recorder_open(r, folder, &h, "seed: 1\n"));
    return r;
}

static void close_recorder(nw_recorder *r, bool finished)
{
    ok(nw_recorder_close(r, finished));
    nw_recorder_free(r);
}

/* `number`: whatever of its kind is a number. */
static void event(nw_recorder *r, int rank, nw_event_kind kind, int64_t now, uint16_t from, uint64_t number)
{
    nw_go go = {.until = (int64_t)number};
    letter->header->from = from;
    letter->header->sequence = number;
    nw_recorder_event(r, rank, &(nw_event){.kind = kind, .now_ns = now, .message = letter, .first = number, .go = &go});
}

/* A run of the driver from `step` to `to`. */
static void record_run(nw_recorder *r, int first, int ranks, int64_t step, int64_t to)
{
    for (int rank = first; rank < first + ranks; rank++) {
        nw_recorder_run(r, rank, step, (uint64_t)step);
        for (int64_t s = step; s < to; s++) {
            nw_recorder_begins(r, rank, NW_TASK_PASS);
            event(r, rank, NW_EVENT_DONE, 1000 * s + rank, 0, 0);
        }
        nw_recorder_quiescent(r, rank, to);
    }
}

static bytes read_bytes(const char *name)
{
    char path[PATH_SIZE * 2];
    bytes b;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    ok(nw_file_read(path, SIZE_MAX / 2, (char **)&b.data, &b.size));
    return b;
}

/* ---- records ---- */

static const int64_t times[NW_EVENT_KINDS] = {5, INT64_MAX, 0, INT64_MIN, 7, 7, 1700000000000000000};

static uint64_t number_of(int kind) { return kind % 2 ? INT64_MAX - (uint64_t)kind : (uint64_t)kind; }

static void record_all_kinds(nw_recorder *r, int rank)
{
    nw_recorder_run(r, rank, INT64_MAX, UINT64_MAX);
    for (int i = 0; i < NW_EVENT_KINDS; i++)
        event(r, rank, (nw_event_kind)i, times[i], (uint16_t)(i % 3), number_of(i));
    event(r, rank, NW_EVENT_MESSAGE, -9, 2, UINT64_MAX);
    event(r, rank, NW_EVENT_MESSAGE, 9, 2, 2);
    nw_recorder_begins(r, rank, NW_TASK_PASS);
    nw_recorder_begins(r, rank, NW_TASK_UPDATE);
    nw_recorder_quiescent(r, rank, 12);
}

static void next_is(nw_log_cursor *c, nw_log_record want)
{
    nw_log_record got;
    ok(nw_log_next(c, &got));
    assert_false(c->ended);
    assert_int_equal(got.kind, want.kind);
    assert_int_equal(got.now_ns, want.now_ns);
    assert_int_equal(got.first, want.first);
    assert_int_equal(got.from, want.from);
    assert_int_equal(got.sequence, want.sequence);
    assert_int_equal(got.step, want.step);
    assert_int_equal(got.epoch, want.epoch);
}

static void expect_all_kinds(nw_log_cursor *c)
{
    next_is(c, (nw_log_record){.kind = NW_LOG_RUN, .step = INT64_MAX, .sequence = UINT64_MAX});
    for (int i = 0; i < NW_EVENT_KINDS; i++) {
        nw_log_record want = {.kind = i, .now_ns = times[i]};
        if (i == NW_EVENT_FINAL || i == NW_EVENT_GO) want.first = number_of(i);
        if (i == NW_EVENT_MESSAGE) want.from = i % 3, want.sequence = number_of(i);
        next_is(c, want);
    }
    next_is(c, (nw_log_record){.kind = NW_EVENT_MESSAGE, .now_ns = -9, .from = 2, .sequence = UINT64_MAX});
    next_is(c, (nw_log_record){.kind = NW_EVENT_MESSAGE, .now_ns = 9, .from = 2, .sequence = 2});
    next_is(c, (nw_log_record){.kind = NW_LOG_PASS});
    next_is(c, (nw_log_record){.kind = NW_LOG_UPDATE});
    next_is(c, (nw_log_record){.kind = NW_LOG_QUIESCENT, .step = 12});
    next_is(c, (nw_log_record){.kind = NW_LOG_SAVED, .step = 12, .epoch = 1});
    next_is(c, (nw_log_record){.kind = NW_LOG_END, .step = 12});
    nw_log_record none;
    ok(nw_log_next(c, &none));
    assert_true(c->ended);
}

TEST(what_is_recorded_comes_back)
{
    nw_recorder *r = open_recorder(3, 0, 3, 4);
    for (int rank = 2; rank >= 0; rank--) record_all_kinds(r, rank);
    nw_recorder_event(r, 3, &(nw_event){.kind = NW_EVENT_STOP}); /* not here: ignored */
    nw_recorder_saved(r, 12, 1);
    close_recorder(r, true);
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.count, 1);
    nw_log_part *p = &recording.parts[0];
    nw_log_header want = header(3, 0, 3, 4);
    assert_int_equal(strlen(p->header.config_sha256), 64);
    strcpy(want.config_sha256, p->header.config_sha256);
    assert_memory_equal(&p->header, &want, sizeof want);
    assert_true(p->ended && !p->torn);
    assert_int_equal(p->runs, 1);
    assert_int_equal(nw_log_end_step(p), 12);
    for (int rank = 0; rank < 3; rank++) {
        nw_log_cursor c;
        nw_log_begin(&c, nw_log_file_of(p, rank), rank);
        expect_all_kinds(&c);
        assert_int_equal(c.number, 15);
    }
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ok(nw_recording_print(&recording, out));
    fclose(out);
    assert_non_null(strstr(text, "rank 2, 10: message 2 from rank 2 at 9 ns\n"));
    assert_non_null(strstr(text, "part from step 4 to 12: 3 ranks, exchange toy"));
    free(text);
    nw_recording_free(&recording);
}

TEST(a_log_in_the_folder_of_earlier_builds_is_read)
{
    nw_recorder *r = open_recorder(1, 0, 1, 0);
    record_run(r, 0, 1, 0, 5);
    close_recorder(r, true);
    char now[PATH_SIZE * 2], before[PATH_SIZE * 2];
    snprintf(now, sizeof now, "%s/event-log", folder);
    snprintf(before, sizeof before, "%s/schedule", folder);
    assert_int_equal(rename(now, before), 0);
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(nw_log_end_step(&recording.parts[0]), 5);
    nw_recording_free(&recording);
}

TEST(recording_allocates_nothing_and_is_small)
{
    enum { EVENTS = 200000 };
    nw_recorder *r = open_recorder(4, 1, 1, 0);
    nw_recorder_run(r, 1, 0, 0);
    int before = atomic_load(&allocations);
    for (uint32_t i = 0; i < EVENTS; i++)
        event(r, 1, NW_EVENT_MESSAGE, 1000000 + 900 * (int64_t)i, (uint16_t)(i % 4), i / 4);
    assert_int_equal(atomic_load(&allocations) - before, 0);
    nw_recorder_quiescent(r, 1, 1);
    close_recorder(r, true);
    bytes log = read_bytes("event-log/0/rank1.log");
    assert_true(log.size < EVENTS * (NW_HAVE_ZLIB ? 6 : 25));
    release(&log);
}

TEST(a_recorder_that_is_not_open_ignores_everything)
{
    nw_recorder *r;
    ok(nw_recorder_create(&r));
    event(r, 0, NW_EVENT_STOP, 1, 0, 0);
    nw_recorder_quiescent(r, 0, 1);
    nw_recorder_saved(r, 1, 1);
    close_recorder(r, true);
    event(NULL, 0, NW_EVENT_STOP, 1, 0, 0);
    nw_recorder_run(NULL, 0, 0, 0);
    ok(nw_recorder_close(NULL, true));
    nw_recording recording;
    refused(nw_recording_load(&recording, folder), NW_E_FILE, "has no event log");
    nw_log_header h = header(4, 2, 3, 0);
    ok(nw_recorder_create(&r));
    refused(nw_recorder_open(r, folder, &h, NULL), NW_E_ARGUMENT, "ranks 2 to 4 of 4");
    nw_recorder_free(r);
}

/* ---- what a kill leaves ---- */

TEST(a_torn_tail_is_left_out)
{
    nw_recorder *r = open_recorder(1, 0, 1, 0);
    for (int64_t s = 0; s < 20; s += 5) record_run(r, 0, 1, s, s + 5);
    close_recorder(r, false);
    bytes whole = read_bytes("event-log/0/rank0.log");
    int points = 0, headless = 0;
    for (size_t size = 0; size <= whole.size; size++) {
        bytes part = cut(whole, size);
        nw_log_file f;
        nw_status status = nw_log_file_parse(&f, "log", part.data, part.size);
        release(&part);
        if (status != NW_OK) {
            refused(status, NW_E_FILE, size < 8 ? "not an event log" : "before it began");
            headless++;
            assert_int_equal(points, 0);
            continue;
        }
        nw_log_cursor c;
        nw_log_record record;
        int now = 0;
        nw_log_begin(&c, &f, 0);
        for (ok(nw_log_next(&c, &record)); !c.ended; ok(nw_log_next(&c, &record)))
            now += record.kind == NW_LOG_QUIESCENT;
        assert_true(now == points || (now == points + 1 && !f.torn));
        points = now;
        nw_log_file_free(&f);
    }
    assert_int_equal(points, 4);
    assert_true(headless > 8);
    release(&whole);
}

static void parse_changed(bytes whole, size_t at, uint8_t to, nw_status want, const char *part)
{
    bytes copy = cut(whole, whole.size);
    copy.data[at] = to;
    nw_log_file f;
    refused(nw_log_file_parse(&f, "log", copy.data, copy.size), want, part);
    release(&copy);
}

TEST(damage_is_refused)
{
    nw_recorder *r = open_recorder(1, 0, 1, 0);
    for (int64_t s = 0; s < 20; s += 5) record_run(r, 0, 1, s, s + 5);
    close_recorder(r, false);
    bytes whole = read_bytes("event-log/0/rank0.log");
    parse_changed(whole, 0, 'X', NW_E_FILE, "not an event log");
    parse_changed(whole, 7, 2, NW_E_FILE, "an event log of version 2, and this build replays version 3");
    parse_changed(whole, 30, 99, NW_E_FILE, "damaged: the block at byte 8 ");
    for (size_t at = 8; at + 120 < whole.size; at++) {
        bytes copy = cut(whole, whole.size);
        nw_log_file f;
        copy.data[at] ^= 0x55;
        nw_status status = nw_log_file_parse(&f, "log", copy.data, copy.size);
        release(&copy);
        if (status == NW_OK) assert_true(f.torn); /* a length that leads behind the end */
        if (status == NW_OK) nw_log_file_free(&f);
    }
    whole.data[whole.size - 1] ^= 1; /* in the last block: a power cut */
    nw_log_file f;
    bytes copy = cut(whole, whole.size);
    ok(nw_log_file_parse(&f, "log", copy.data, copy.size));
    release(&copy);
    assert_true(f.torn);
    nw_log_file_free(&f);
    release(&whole);
}

TEST(a_part_counts_where_all_ranks)
{
    for (int rank = 0; rank < 3; rank++) {
        nw_recorder *r = open_recorder(3, rank, 1, 0);
        for (int64_t s = 0; s < 10 + 5 * rank; s += 5) record_run(r, rank, 1, s, s + 5);
        close_recorder(r, rank != 1);
    }
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.parts[0].file_count, 3);
    assert_int_equal(nw_log_end_step(&recording.parts[0]), 10);
    assert_false(recording.parts[0].ended);
    nw_recording_free(&recording);

    nw_recorder *r = open_recorder(4, 1, 1, 0); /* another world */
    close_recorder(r, true);
    refused(nw_recording_load(&recording, folder), NW_E_FILE, "of another run");
    char path[PATH_SIZE * 2];
    snprintf(path, sizeof path, "%s/event-log/0/rank2.log", folder);
    unlink(path);
    refused(nw_recording_load(&recording, folder), NW_E_FILE, "the event log of rank 2, is missing");
}

/* ---- parts ---- */

/* 0 to 20 with checkpoints at 10 and 15, killed; 15 to 30, ended. */
static void record_two_parts(void)
{
    nw_recorder *r = open_recorder(2, 0, 2, 0);
    record_run(r, 0, 2, 0, 10);
    record_run(r, 0, 2, 10, 10);
    nw_recorder_saved(r, 10, 1);
    record_run(r, 0, 2, 10, 15);
    nw_recorder_saved(r, 15, 1);
    record_run(r, 0, 2, 15, 20);
    close_recorder(r, false);
    r = open_recorder(2, 0, 2, 15);
    record_run(r, 0, 2, 15, 20);
    record_run(r, 0, 2, 20, 30);
    close_recorder(r, true);
}

TEST(parts_join_at_the_checkpoint)
{
    record_two_parts();
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.count, 2);
    assert_int_equal(recording.parts[0].runs, 3);
    assert_int_equal(nw_log_end_step(&recording.parts[0]), 15);
    assert_int_equal(nw_log_end_step(&recording.parts[1]), 30);
    ok(nw_recording_limit(&recording, 25));
    assert_int_equal(nw_log_end_step(&recording.parts[1]), 20);
    ok(nw_recording_limit(&recording, 14));
    assert_int_equal(recording.count, 1);
    assert_int_equal(nw_log_end_step(&recording.parts[0]), 10);
    assert_int_equal(recording.parts[0].runs, 2); /* with the one that drained */
    refused(nw_recording_limit(&recording, 9), NW_E_ARGUMENT, "first were at step 10, not by step 9");
    nw_recording_free(&recording);

    ok(nw_recording_load(&recording, folder));
    ok(nw_recording_start(&recording, 10, 1));
    assert_int_equal(recording.count, 2);
    assert_int_equal(recording.parts[0].skip, 2);
    refused(nw_recording_start(&recording, 11, 1), NW_E_ARGUMENT, "does not know a checkpoint of step 11");
    ok(nw_recording_start(&recording, 15, 1));
    assert_int_equal(recording.count, 1);
    assert_int_equal(recording.parts[0].skip, 0);
    nw_recording_free(&recording);
}

TEST(a_resume_drops_what_lies_behind_it)
{
    record_two_parts();
    nw_recorder *r = open_recorder(2, 0, 2, 10); /* again from an older checkpoint */
    record_run(r, 0, 2, 10, 12);
    close_recorder(r, true);
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.count, 2);
    assert_int_equal(recording.parts[0].runs, 2);
    assert_int_equal(recording.parts[1].first_step, 10);
    assert_false(file_exists(folder, "event-log/15"));
    nw_recording_free(&recording);

    r = open_recorder(2, 0, 2, 17); /* which nobody reached quiescent */
    record_run(r, 0, 2, 17, 18);
    close_recorder(r, true);
    refused(nw_recording_load(&recording, folder), NW_E_FILE, "a part of the run was not recorded");
    r = open_recorder(2, 0, 2, 12); /* killed at once */
    close_recorder(r, false);
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.count, 2);
    assert_int_equal(nw_log_end_step(&recording.parts[1]), 12);
    nw_recording_free(&recording);
    ok(nw_log_cut(folder, 0, 0));
    assert_int_equal(count_entries(folder), 1);
    refused(nw_recording_load(&recording, folder), NW_E_FILE, "has no event log");
}

TEST(one_recorder_may_begin_several_parts)
{
    nw_recorder *r = open_recorder(1, 0, 1, 0);
    record_run(r, 0, 1, 0, 10);
    nw_recorder_saved(r, 10, 1);
    nw_recorder_run(r, 0, 10, 10); /* goes wrong */
    nw_log_header h = header(1, 0, 1, 10);
    ok(nw_log_cut(folder, 10, 0));
    ok(nw_recorder_open(r, folder, &h, NULL));
    record_run(r, 0, 1, 10, 20);
    close_recorder(r, true);
    nw_recording recording;
    ok(nw_recording_load(&recording, folder));
    assert_int_equal(recording.count, 2);
    assert_int_equal(nw_log_end_step(&recording.parts[0]), 10);
    assert_int_equal(nw_log_end_step(&recording.parts[1]), 20);
    nw_recording_free(&recording);
}

TEST(a_full_disk_ends_the_recording)
{
    nw_recorder *r;
    nw_log_header h = header(1, 0, 1, 0);
    if (access("/dev/full", W_OK) != 0) skip();
    put_folder(folder, "event-log/0");
    char path[PATH_SIZE * 2];
    snprintf(path, sizeof path, "%s/event-log/0/rank0.log", folder);
    assert_int_equal(symlink("/dev/full", path), 0);
    ok(nw_recorder_create(&r));
    refused(nw_recorder_open(r, folder, &h, NULL), NW_E_SYSTEM, "rank0.log: No space left");
    record_run(r, 0, 1, 0, 5);
    refused(nw_recorder_close(r, true), NW_E_SYSTEM, "the event log ends here");
    nw_recorder_free(r);
}

int main(void)
{
#define ONE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ONE(what_is_recorded_comes_back),
        ONE(a_log_in_the_folder_of_earlier_builds_is_read),
        ONE(recording_allocates_nothing_and_is_small),
        ONE(a_recorder_that_is_not_open_ignores_everything),
        ONE(a_torn_tail_is_left_out),
        ONE(damage_is_refused),
        ONE(a_part_counts_where_all_ranks),
        ONE(parts_join_at_the_checkpoint),
        ONE(a_resume_drops_what_lies_behind_it),
        ONE(one_recorder_may_begin_several_parts),
        ONE(a_full_disk_ends_the_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
