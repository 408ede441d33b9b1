/*
 * test_ledger.c - every byte has an owner, sums agree, and counts survive as tables.
 *
 * The traffic of the larger tests is drawn from a small generator, and counted a second time by a plain array.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json_read.h"
#include "net/ledger.h"
#include "support/allocations.h"
#include "support/own_folder.h"

static const char *const names[] = {"conv1.weight", "layer1.\"0\"", "fc.bias"};

static nw_ledger *make(int world, int first_rank, int ranks)
{
    nw_ledger *ledger;
    nw_ledger_options options = {world, first_rank, ranks, 3, names};
    assert_int_equal(nw_ledger_create(&ledger, &options), NW_OK);
    return ledger;
}

static nw_header message(uint32_t bucket, uint32_t bytes, uint32_t indices, uint32_t scales)
{
    return (nw_header){.magic = NW_MESSAGE_MAGIC,
                       .kind = 1,
                       .channel = NW_CHANNEL_EXCHANGE,
                       .bucket = bucket,
                       .bytes = bytes,
                       .index_bytes = indices,
                       .scale_bytes = scales};
}

static void move(nw_ledger *ledger, int from, int to, const nw_header *header)
{
    nw_ledger_sent(ledger, from, to, header);
    nw_ledger_transport(ledger, NW_SENT, NW_HEADER_BYTES + header->bytes);
    nw_ledger_received(ledger, from, to, header);
    nw_ledger_transport(ledger, NW_RECEIVED, NW_HEADER_BYTES + header->bytes);
}

static void assert_account(nw_account got, nw_account want)
{
    assert_int_equal(got.messages, want.messages);
    for (int i = 0; i < NW_OWNERS; i++) assert_int_equal(got.bytes[i], want.bytes[i]);
}

TEST(test_owners)
{
    nw_ledger *ledger = make(2, 0, 2);
    nw_header dense = message(0, 1000, 0, 0), sparse = message(2, 100, 60, 8), beyond = message(7, 4, 0, 0);
    nw_header stop = {.kind = NW_KIND_CONTROL}, give_up = {.kind = NW_KIND_ABORT, .bytes = 11};
    nw_header wrong = message(1, 10, 7, 9); /* 16 of 10: cut, but still 10 */
    move(ledger, 0, 1, &dense);
    move(ledger, 0, 1, &sparse);
    move(ledger, 1, 0, &beyond);
    move(ledger, 1, 0, &stop);
    move(ledger, 1, 0, &give_up);
    move(ledger, 1, 0, &wrong);
    assert_account(nw_ledger_link(ledger, NW_SENT, 0, 1), (nw_account){2, {1032, 60, 8, 128, 0}});
    assert_account(nw_ledger_link(ledger, NW_SENT, 1, 0), (nw_account){4, {4, 7, 3, 128, 64 + 64 + 11}});
    assert_account(nw_ledger_link(ledger, NW_RECEIVED, 1, 0), nw_ledger_link(ledger, NW_SENT, 1, 0));
    assert_account(nw_ledger_link(ledger, NW_SENT, 0, 0), (nw_account){0});
    assert_account(nw_ledger_total(ledger, NW_SENT), (nw_account){6, {1036, 67, 11, 256, 139}});
    assert_account(nw_ledger_segment(ledger, 0), (nw_account){1, {1000, 0, 0, 64, 0}});
    assert_account(nw_ledger_segment(ledger, 2), (nw_account){1, {32, 60, 8, 64, 0}});
    assert_account(nw_ledger_segment(ledger, 3), (nw_account){1, {4, 0, 0, 64, 0}});
    assert_string_equal(nw_ledger_segment_name(ledger, 3), "other");
    assert_account(nw_ledger_take_step(ledger), nw_ledger_total(ledger, NW_SENT));
    assert_account(nw_ledger_take_step(ledger), (nw_account){0});
    move(ledger, 1, 0, &stop);
    assert_account(nw_ledger_take_step(ledger), (nw_account){1, {0, 0, 0, 0, 64}}); /* a step is what is sent */
    nw_ledger_free(ledger);
}

TEST(test_check)
{
    nw_ledger *ledger = make(2, 0, 2);
    nw_header dense = message(0, 1000, 0, 0);
    assert_int_equal(nw_ledger_check(ledger), NW_OK);
    move(ledger, 0, 1, &dense);
    assert_int_equal(nw_ledger_check(ledger), NW_OK);
    nw_ledger_transport(ledger, NW_SENT, 3);
    assert_int_equal(nw_ledger_check(ledger), NW_E_INTERNAL);
    assert_non_null(strstr(nw_error_message(), "1064 bytes sent, but the transport moved 1067: 3 have no owner"));

    assert_int_equal(nw_ledger_check_links(ledger, NULL), NW_OK);
    nw_ledger_sent(ledger, 1, 0, &dense);
    assert_int_equal(nw_ledger_check_links(ledger, (bool[]){false, true}), NW_OK); /* of a rank that was dropped */
    assert_int_equal(nw_ledger_check_links(ledger, NULL), NW_E_PEER);
    assert_non_null(
        strstr(nw_error_message(), "rank 1 sent 1 messages of 1064 bytes to rank 0, which received 0 of 0"));
    nw_ledger_free(ledger);
    ledger = make(2, 1, 1);
    assert_int_equal(nw_ledger_check_links(ledger, NULL), NW_E_ARGUMENT);
    nw_ledger_free(ledger);
}

TEST(test_limits)
{
    nw_ledger *ledger;
    static const nw_ledger_options bad[] = {
        {0, 0, 0, 0, NULL},       {4, 0, 0, 0, NULL},  {4, 0, 5, 0, NULL},
        {4, 3, 2, 0, NULL},       {4, -1, 1, 0, NULL}, {NW_LEDGER_MOST_RANKS + 1, 0, 1, 0, NULL},
        {8192, 0, 8192, 0, NULL}, {4, 0, 4, -1, NULL}, {4, 0, 4, NW_LEDGER_MOST_SEGMENTS + 1, NULL}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(nw_ledger_create(&ledger, &bad[i]), NW_E_ARGUMENT);
        assert_null(ledger);
    }
    nw_ledger_free(NULL);
    assert_int_equal(nw_ledger_create(&ledger, &(nw_ledger_options){1, 0, 1, 2, NULL}), NW_OK);
    assert_string_equal(nw_ledger_segment_name(ledger, 1), "segment 1");
    nw_ledger_free(ledger);
}

static int misuse_case;
static void misuse(void)
{
    nw_ledger *ledger = make(4, 1, 2);
    nw_header header = message(0, 0, 0, 0);
    if (misuse_case == 0) nw_ledger_sent(ledger, 0, 1, &header);
    if (misuse_case == 1) nw_ledger_sent(ledger, 1, 4, &header);
    if (misuse_case == 2) nw_ledger_received(ledger, 1, 3, &header);
    if (misuse_case == 3) nw_ledger_received(ledger, -1, 1, &header);
    if (misuse_case == 4) nw_ledger_segment(ledger, 4);
    nw_ledger_free(ledger);
}

TEST(test_misuse_aborts)
{
    for (misuse_case = 0; misuse_case <= 5; misuse_case++) {
        pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
            misuse();
            _exit(0);
        }
        int result = 0;
        assert_int_equal(waitpid(child, &result, 0), child);
        assert_int_equal(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT, misuse_case < 5);
    }
}

/* ---- a world in one process, and the same world in several ---- */
enum { WORLD = 5, MESSAGES = 2000 };

static uint32_t random_state;
static uint32_t draw(uint32_t below)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
}

/* Sends the same messages in whatever processes the ranks are; ledgers[r] counts rank r. */
static void play(nw_ledger *const ledgers[WORLD], uint64_t bytes_of[WORLD][WORLD])
{
    random_state = 7;
    for (int i = 0; i < MESSAGES; i++) {
        int from = (int)draw(WORLD), to = (int)draw(WORLD);
        uint32_t bytes = draw(5000);
        nw_header header = message(draw(5), bytes, draw(bytes / 2 + 1), draw(bytes / 2 + 1));
        if (draw(10) == 0) header.kind = NW_KIND_CONTROL;
        nw_ledger_sent(ledgers[from], from, to, &header);
        nw_ledger_transport(ledgers[from], NW_SENT, NW_HEADER_BYTES + bytes);
        nw_ledger_received(ledgers[to], from, to, &header);
        nw_ledger_transport(ledgers[to], NW_RECEIVED, NW_HEADER_BYTES + bytes);
        bytes_of[from][to] += NW_HEADER_BYTES + bytes;
    }
}

static void assert_same(const nw_ledger *a, const nw_ledger *b)
{
    for (int d = 0; d < NW_DIRECTIONS; d++) {
        nw_traffic direction = (nw_traffic)d;
        assert_account(nw_ledger_total(a, direction), nw_ledger_total(b, direction));
        assert_int_equal(nw_ledger_transported(a, direction), nw_ledger_transported(b, direction));
        for (int i = 0; i < WORLD * WORLD; i++) {
            assert_account(nw_ledger_link(a, direction, i / WORLD, i % WORLD),
                           nw_ledger_link(b, direction, i / WORLD, i % WORLD));
        }
    }
    for (int i = 0; i <= 3; i++) assert_account(nw_ledger_segment(a, i), nw_ledger_segment(b, i));
}

static nw_ledger *play_whole(void)
{
    nw_ledger *whole = make(WORLD, 0, WORLD), *same[WORLD];
    uint64_t bytes_of[WORLD][WORLD] = {{0}};
    for (int rank = 0; rank < WORLD; rank++) same[rank] = whole;
    play(same, bytes_of);
    uint64_t sum = 0;
    for (int i = 0; i < WORLD * WORLD; i++) {
        nw_account link = nw_ledger_link(whole, NW_SENT, i / WORLD, i % WORLD);
        assert_int_equal(nw_account_bytes(&link), bytes_of[i / WORLD][i % WORLD]);
        sum += bytes_of[i / WORLD][i % WORLD];
    }
    nw_account total = nw_ledger_total(whole, NW_SENT);
    assert_int_equal(nw_account_bytes(&total), sum);
    assert_int_equal(total.messages, MESSAGES);
    return whole;
}

TEST(test_merge)
{
    nw_ledger *whole = play_whole(), *parts[WORLD], *merged = make(WORLD, 0, WORLD);
    uint64_t bytes_of[WORLD][WORLD] = {{0}};
    for (int rank = 0; rank < WORLD; rank++) parts[rank] = make(WORLD, rank, 1);
    play(parts, bytes_of);
    for (int rank = 0; rank < WORLD; rank++) {
        int64_t *rows;
        size_t count;
        assert_int_equal(nw_ledger_check(parts[rank]), NW_OK);
        assert_int_equal(nw_ledger_save(parts[rank], &rows, &count), NW_OK);
        assert_int_equal(nw_ledger_add(merged, rows, count, false, "rank x"), NW_OK);
        nw_ledger *other = make(WORLD, (rank + 1) % WORLD, 1); /* it does not hold this rank's links */
        assert_int_equal(nw_ledger_add(other, rows, count, false, "rank x"), NW_E_MESSAGE);
        assert_non_null(strstr(nw_error_message(), "the ledger of rank x has in row 3 an entry that does not exist here"));
        nw_ledger_free(other);
        free(rows);
    }
    assert_same(whole, merged);
    assert_int_equal(nw_ledger_check(merged), NW_OK);
    assert_int_equal(nw_ledger_check_links(merged, NULL), NW_OK);
    for (int rank = 0; rank < WORLD; rank++) nw_ledger_free(parts[rank]);
    nw_ledger_free(merged);
    nw_ledger_free(whole);
}

TEST(test_resume)
{
    nw_ledger *whole = play_whole(), *again = make(WORLD, 0, WORLD), *smaller = make(2, 0, 2), *renamed;
    int64_t *rows;
    size_t count;
    assert_int_equal(nw_ledger_save(whole, &rows, &count), NW_OK);
    assert_int_equal(nw_ledger_add(again, rows, count, true, "checkpoint"), NW_OK);
    assert_same(whole, again);
    assert_account(nw_ledger_take_step(again), (nw_account){0}); /* the step was another process's */

    /* Another world: the totals stay those of the whole run, links and segments begin anew. */
    assert_int_equal(nw_ledger_add(smaller, rows, count, false, "checkpoint"), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "of 5 ranks and 3 segments, this one of 2 and 3;"));
    nw_header dense = message(0, 1000, 0, 0);
    move(smaller, 0, 1, &dense);
    assert_int_equal(nw_ledger_add(smaller, rows, count, true, "checkpoint"), NW_OK);
    assert_int_equal(nw_ledger_check(smaller), NW_OK);
    nw_account total = nw_ledger_total(smaller, NW_SENT);
    assert_int_equal(total.messages, MESSAGES + 1);
    assert_account(nw_ledger_link(smaller, NW_SENT, 0, 1), (nw_account){1, {1000, 0, 0, 64, 0}});
    assert_account(nw_ledger_segment(smaller, 0), (nw_account){1, {1000, 0, 0, 64, 0}});

    /* Other buckets of the same number. */
    nw_ledger_options options = {WORLD, 0, WORLD, 3, NULL};
    assert_int_equal(nw_ledger_create(&renamed, &options), NW_OK);
    assert_int_equal(nw_ledger_add(renamed, rows, count, false, "checkpoint"), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), "with other names"));
    free(rows);
    nw_ledger_free(renamed);
    nw_ledger_free(smaller);
    nw_ledger_free(again);
    nw_ledger_free(whole);
}

TEST(test_bad_numbers)
{
    nw_ledger *whole = play_whole();
    int64_t *rows;
    size_t count;
    assert_int_equal(nw_ledger_save(whole, &rows, &count), NW_OK);
    const struct {
        size_t at;
        int64_t value;
        bool also_resumed;                                      /* refused, too */
    } bad[] = {{0, WORLD + 1, false},                           /* another world */
               {2, 0, false},                                   /* other names */
               {4, -1, true},                                   /* bytes of the transport */
               {NW_LEDGER_COLUMNS + 1, 2, true},                /* a third direction */
               {NW_LEDGER_COLUMNS + 3, (int64_t)1 << 56, true}, /* messages */
               {2 * NW_LEDGER_COLUMNS + 8, INT64_MIN, true},    /* bytes of an owner */
               {3 * NW_LEDGER_COLUMNS, 4, true},                /* no such kind of row */
               {3 * NW_LEDGER_COLUMNS + 1, WORLD, true},        /* from a rank beyond the world */
               {3 * NW_LEDGER_COLUMNS + 2, INT64_MAX, true},    /* to one */
               {(count - 1) * NW_LEDGER_COLUMNS + 1, 4, true}}; /* a segment beyond "other" */
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t old = rows[bad[i].at];
        rows[bad[i].at] = bad[i].value;
        for (int resumes = 0; resumes < 2; resumes++) {
            nw_ledger *target = make(WORLD, 0, WORLD);
            nw_status want = resumes && !bad[i].also_resumed ? NW_OK : NW_E_MESSAGE;
            assert_int_equal(nw_ledger_add(target, rows, count, resumes != 0, "rank 1"), want);
            if (want != NW_OK) assert_non_null(strstr(nw_error_message(), "rank 1"));
            nw_ledger_free(target);
        }
        rows[bad[i].at] = old;
    }
    assert_int_equal(nw_ledger_add(whole, rows, 0, true, "rank 1"), NW_E_MESSAGE);
    free(rows);
    nw_ledger_free(whole);
}

/* ---- for scripts and people ---- */
static int64_t number(const nw_json_value *object, const char *key)
{
    const nw_json_value *value = nw_json_find(object, key);
    assert_non_null(value);
    assert_true(value->is_integer);
    return value->integer;
}

static void assert_adds_up(const nw_json_value *account)
{
    int64_t sum = 0;
    for (int i = 0; i < NW_OWNERS; i++) sum += number(account, nw_owner_name((nw_owner)i));
    assert_int_equal(sum, number(account, "bytes"));
}

TEST(test_json)
{
    nw_ledger *whole = play_whole();
    char *text = NULL;
    size_t size;
    const nw_ledger_codec codecs[] = {{.codec = "none", .payloads = 2, .float_bytes = 800, .bytes = 800},
                                      {.codec = "topk",
                                       .payloads = 3,
                                       .float_bytes = 4000,
                                       .bytes = 130,
                                       .index_bytes = 30,
                                       .scale_bytes = 4,
                                       .entries = 20,
                                       .index_bound_bytes = 28.5,
                                       .int32_list_bytes = 160,
                                       .int64_list_bytes = 240}};
    nw_ledger_run run = {.steps = 50, .codecs = codecs, .codec_count = 2};
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(nw_ledger_write_json(whole, run, out), NW_OK);
    fclose(out);
    nw_json_document document;
    assert_int_equal(nw_json_parse(&document, text, size, "ledger.json"), NW_OK);
    const nw_json_value *top = document.values, *sent = nw_json_find(top, "sent");
    nw_account total = nw_ledger_total(whole, NW_SENT);
    assert_int_equal(number(sent, "bytes"), nw_account_bytes(&total));
    assert_int_equal(number(sent, "transport_bytes"), nw_account_bytes(&total));
    assert_int_equal(number(sent, "messages"), MESSAGES);
    assert_adds_up(sent);
    assert_adds_up(nw_json_find(top, "received"));
    assert_int_equal(number(top, "world_size"), WORLD);
    assert_true(nw_json_find(top, "bytes_per_step")->number == (double)nw_account_bytes(&total) / 50);
    assert_int_equal(nw_json_find(top, "bytes_per_image")->type, NW_JSON_NULL);
    int64_t bytes = 0;
    const nw_json_value *links = nw_json_find(top, "links"), *segments = nw_json_find(top, "segments");
    assert_int_equal(links->count, WORLD * WORLD);
    for (const nw_json_value *v = nw_json_first(links); v; v = nw_json_next(links, v)) {
        assert_adds_up(v);
        bytes += number(v, "bytes");
    }
    assert_int_equal(bytes, nw_account_bytes(&total));
    assert_int_equal(segments->count, 4);
    assert_string_equal(nw_json_find(nw_json_next(segments, nw_json_first(segments)), "name")->text, names[1]);
    const nw_json_value *list = nw_json_find(top, "codecs"), *plain = nw_json_first(list);
    const nw_json_value *sparse = nw_json_next(list, plain);
    assert_int_equal(list->count, 2);
    assert_int_equal(number(plain, "values"), 800);
    assert_null(nw_json_find(plain, "entries"));
    assert_string_equal(nw_json_find(sparse, "codec")->text, "topk");
    assert_int_equal(number(sparse, "values"), 96);
    assert_int_equal(number(sparse, "entries"), 20);
    assert_true(nw_json_find(sparse, "indices_bound")->number == 28.5);
    assert_int_equal(number(sparse, "int32_lists"), 160);
    assert_int_equal(number(sparse, "int64_lists"), 240);
    nw_json_free(&document);
    free(text);
    nw_ledger_free(whole);
}

TEST(test_json_of_many_links)
{
    enum { MANY = 150 };
    nw_ledger *ledger = make(MANY, 0, MANY);
    for (int i = 0; i < MANY * MANY; i++) {
        nw_header header = message(0, i == 12345 ? 9 : 3, 0, 0);
        if (i == MANY * MANY - 1) header.bytes = 1; /* the only one that must be left out */
        move(ledger, i / MANY, i % MANY, &header);
    }
    assert_int_equal(nw_ledger_save_json(ledger, (nw_ledger_run){.steps = 1, .images = 1}, "ledger.json"), NW_OK);
    char *text;
    size_t size;
    assert_int_equal(nw_file_read("ledger.json", NW_JSON_READ_BYTES, &text, &size), NW_OK);
    nw_json_document document;
    assert_int_equal(nw_json_parse(&document, text, size, "ledger.json"), NW_OK);
    const nw_json_value *links = nw_json_find(document.values, "links");
    assert_int_equal(links->count, NW_LEDGER_JSON_LINKS);
    assert_int_equal(number(document.values, "links_left_out"), MANY * MANY - NW_LEDGER_JSON_LINKS);
    int64_t last = -1;
    bool found = false;
    for (const nw_json_value *v = nw_json_first(links); v; v = nw_json_next(links, v)) {
        int64_t place = number(v, "from") * MANY + number(v, "to");
        assert_true(place > last && place != MANY * MANY - 1);
        found |= place == 12345;
        last = place;
    }
    assert_true(found);
    nw_json_free(&document);
    free(text);
    nw_ledger_free(ledger);
}

TEST(test_print)
{
    nw_ledger *ledger = make(3, 0, 3);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_int_equal(nw_ledger_print(ledger, (nw_ledger_run){0}, out), NW_OK);
    fflush(out);
    assert_int_equal(size, 0);
    nw_header large = message(1, 4000000, 2000000, 0), small = message(0, 100, 0, 0), stop = {.kind = NW_KIND_CONTROL};
    move(ledger, 2, 1, &large);
    move(ledger, 0, 1, &small);
    move(ledger, 0, 1, &small);
    move(ledger, 1, 0, &stop);
    assert_int_equal(nw_ledger_print(ledger, (nw_ledger_run){.steps = 10, .images = 4000}, out), NW_OK);
    fclose(out);
    assert_string_equal(text, "sent                                   4.0 MB  in 4 messages\n"
                              "  values                               2.0 MB   50.0%\n"
                              "  indices                              2.0 MB   50.0%\n"
                              "  headers                               192 B    0.0%\n"
                              "  control                                64 B    0.0%\n"
                              "  a step                             400.0 kB\n"
                              "  an image                             1.0 kB\n"
                              "busiest links\n"
                              "  2 to 1                               4.0 MB  in 1 messages\n"
                              "  0 to 1                                328 B  in 2 messages\n"
                              "  1 to 0                                 64 B  in 1 messages\n"
                              "largest segments\n"
                              "  layer1.\"0\"                           4.0 MB  in 1 messages\n"
                              "  conv1.weight                          328 B  in 2 messages\n");
    free(text);
    nw_ledger_free(ledger);
}

TEST(test_counting_allocates_nothing)
{
    if (!COUNTS_ALLOCATIONS) skip();
    nw_ledger *ledger = make(4, 0, 4);
    nw_header header = message(1, 100, 4, 4);
    int before = atomic_load(&allocations);
    for (int i = 0; i < 1000; i++) move(ledger, i % 4, i / 4 % 4, &header);
    nw_ledger_take_step(ledger);
    assert_int_equal(atomic_load(&allocations), before);
    nw_ledger_free(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_owners),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_misuse_aborts),
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_bad_numbers),
        cmocka_unit_test(test_json),
        CASE(test_json_of_many_links),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_counting_allocates_nothing),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
