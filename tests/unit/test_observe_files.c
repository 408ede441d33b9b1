/*
 * test_observe_files.c - the files that observers write, byte for byte, how they continue, and a full disk.
 *
 * Each test works in an empty folder of its own. The disk gets full in a child process, for which files may not grow
 * past some bytes.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "observe/crc32c.h"
#include "observe/lines.h"
#include "support/observe_fixture.h"

static void put(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* The name of the n-th file in the folder that begins with `prefix`, in the order of names, or NULL. */
static const char *nth_file(const char *prefix, int n)
{
    static char found[300];
    nw_names names;
    assert_int_equal(nw_directory_list(&names, "."), NW_OK);
    bool any = false;
    for (int i = 0; i < names.count && !any; i++) {
        if (strncmp(names.at[i], prefix, strlen(prefix)) != 0 || n-- > 0) continue;
        snprintf(found, sizeof found, "%s", names.at[i]);
        any = true;
    }
    nw_names_free(&names);
    return any ? found : NULL;
}

/* ---- metrics.jsonl ---- */
static void open_jsonl(nw_observers *observers, int step)
{
    nw_resume_point resume = {step, step / 10, step * 8};
    nw_observer *observer;
    add(observers, nw_jsonl_create(&observer, "metrics.jsonl", &resume), &observer);
}

TEST(test_jsonl_lines)
{
    put("metrics.jsonl", "what an older run left\n");
    nw_observers observers = {0};
    open_jsonl(&observers, 0);
    assert_string_equal(content("metrics.jsonl"), "");
    play(&observers, 3, 3);
    static const char want[] =
        "{\"record\":\"step\",\"step\":3,\"epoch\":1,\"images\":24,\"batch\":3,\"batch_images\":8,"
        "\"loss\":3,\"top1\":50,\"top5\":75.5,\"lr\":0.05,\"delay\":null,\"total_seconds\":1.5,"
        "\"step_seconds\":0.5,\"data_wait_seconds\":0.125,\"images_per_second\":16,"
        "\"exchange_seconds\":null,\"virtual_seconds\":null,\"bytes_sent\":null,\"messages_sent\":null}\n";
    assert_string_equal(content("metrics.jsonl"), want); /* on the disk before anything is closed */
    nw_fault_record fault;
    nw_record_clear(NW_RECORD_FAULT, &fault);
    fault.step = 3;
    fault.fault = "not-finite";
    fault.detail = "tensor \"conv1\"\nline";
    assert_int_equal(nw_observers_fault(&observers, &fault), NW_OK);
    assert_string_equal(content("metrics.jsonl") + strlen(want),
                        "{\"record\":\"fault\",\"step\":3,\"epoch\":null,\"images\":null,\"fault\":\"not-finite\","
                        "\"detail\":\"tensor \\\"conv1\\\"\\nline\",\"rank\":null}\n");
    /* A text that no line holds is a failure, and leaves no half line. */
    static char huge[70000];
    memset(huge, 'x', sizeof huge - 1);
    fault.detail = huge;
    assert_int_equal(nw_observers_fault(&observers, &fault), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "metrics.jsonl"));
    assert_string_equal(strstr(content("metrics.jsonl"), "\"rank\""), "\"rank\":null}\n");
    assert_int_equal(nw_observers_close(&observers), NW_OK);
}

TEST(test_jsonl_continues)
{
    nw_observers observers = {0};
    open_jsonl(&observers, 0);
    play(&observers, 1, 12);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    open_jsonl(&observers, 0);
    play(&observers, 1, 25);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    static char whole[1 << 16];
    strcpy(whole, content("metrics.jsonl"));

    /* From step 10, with a last line that a crash cut off: what comes after the epoch's record goes. */
    FILE *file = fopen("metrics.jsonl", "ab");
    fputs("{\"record\":\"step\",\"step\":2", file);
    fclose(file);
    open_jsonl(&observers, 10);
    const char *kept = content("metrics.jsonl");
    assert_memory_equal(whole, kept, strlen(kept));
    assert_memory_equal(whole + strlen(kept), "{\"record\":\"step\",\"step\":11,", 27);
    play(&observers, 11, 25);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_string_equal(content("metrics.jsonl"), whole);

    /* A file without the last steps, or none, is no obstacle. */
    open_jsonl(&observers, 1000);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_string_equal(content("metrics.jsonl"), whole);
    assert_int_equal(unlink("metrics.jsonl"), 0);
    open_jsonl(&observers, 1000);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_string_equal(content("metrics.jsonl"), "");
}

TEST(test_jsonl_refuses_foreign_lines)
{
    static const char *const lines[] = {
        "",
        "{}",
        "{\"step\":1,\"record\":\"step\"}",
        "{\"record\":\"step\",\"step\":-1,\"epoch\":1}",
        "{\"record\":\"step\",\"step\":,\"epoch\":1}",
        "{\"record\":\"step\",\"step\":99999999999999999999,\"epoch\":1}",
        "{\"record\":\"step\",\"step\":1,\"epoch\":1",
        "{\"record\":\"step\",\"step\":1}",
        "{\"record\":\"\",\"step\":1,\"epoch\":1}",
    };
    nw_resume_point resume = {5, 0, 0};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[300];
        snprintf(text, sizeof text, "{\"record\":\"run\",\"step\":0,\"epoch\":0}\n%s\n", lines[i]);
        put("metrics.jsonl", text);
        nw_observer *observer;
        assert_int_equal(nw_jsonl_create(&observer, "metrics.jsonl", &resume), NW_E_FILE);
        assert_non_null(strstr(nw_error_message(), "metrics.jsonl, line 2: "));
        assert_null(observer);
        assert_string_equal(content("metrics.jsonl"), text);
    }
    nw_line_place place;
    assert_true(nw_jsonl_line_place("{\"record\":\"run\",\"step\":922337203685477580,\"x\":1}", 48, &place));
    assert_true(place.step == INT64_C(922337203685477580) && place.epoch == -1 && place.images == -1);
    assert_false(place.ends_epoch);
}

/* Lines with the step of the resume that were nevertheless written after it. */
TEST(test_jsonl_cuts_inside_a_step)
{
    static const char before[] = "{\"record\":\"run\",\"step\":0,\"epoch\":0,\"images\":0,\"x\":1}\n"
                                 "{\"record\":\"step\",\"step\":0,\"epoch\":1,\"images\":8,\"x\":1}\n"
                                 "{\"record\":\"step\",\"step\":1,\"epoch\":1,\"images\":16,\"x\":1}\n"
                                 "{\"record\":\"fault\",\"step\":1,\"epoch\":null,\"images\":null,\"x\":1}\n"
                                 "{\"record\":\"epoch\",\"step\":1,\"epoch\":1,\"images\":16,\"x\":1}\n";
    static const char after[] = "{\"record\":\"step\",\"step\":1,\"epoch\":2,\"images\":24,\"x\":1}\n";
    char text[sizeof before + sizeof after];
    nw_observer *observer;
    snprintf(text, sizeof text, "%s%s", before, after);
    put("metrics.jsonl", text);
    nw_resume_point resume = {1, 1, 16}; /* epoch 1 is over; a batch of the next update was computed */
    assert_int_equal(nw_jsonl_create(&observer, "metrics.jsonl", &resume), NW_OK);
    assert_int_equal(observer->ops->close(observer), NW_OK);
    assert_string_equal(content("metrics.jsonl"), before);
    resume.epoch = 0; /* before epoch 1 was evaluated */
    assert_int_equal(nw_jsonl_create(&observer, "metrics.jsonl", &resume), NW_OK);
    assert_int_equal(observer->ops->close(observer), NW_OK);
    text[strstr(before, "{\"record\":\"epoch\"") - before] = '\0';
    assert_string_equal(content("metrics.jsonl"), text);
    resume = (nw_resume_point){0, 0, 8}; /* before the first update: this is no new run */
    assert_int_equal(nw_jsonl_create(&observer, "metrics.jsonl", &resume), NW_OK);
    assert_int_equal(observer->ops->close(observer), NW_OK);
    text[strstr(before, "{\"record\":\"step\",\"step\":1") - before] = '\0';
    assert_string_equal(content("metrics.jsonl"), text);
}

/* ---- logs.tsv ---- */
TEST(test_tsv)
{
    nw_resume_point resume = {0};
    nw_observers observers = {0};
    nw_observer *observer;
    add(&observers, nw_tsv_create(&observer, "logs.tsv", &resume), &observer);
    assert_string_equal(content("logs.tsv"), "epoch\thours\ttop1Accuracy");
    nw_epoch_record epoch = make_epoch(1);
    epoch.dawnbench_seconds = 79.0;
    epoch.test_top1 = 91.096;
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    epoch = make_epoch(2);
    epoch.test_top1 = (double)NAN; /* not evaluated: no row */
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    epoch = make_epoch(3);
    epoch.dawnbench_seconds = 36000;
    epoch.test_top1 = 100;
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    static const char want[] = "epoch\thours\ttop1Accuracy\n1\t0.02194444\t91.10\n3\t10.00000000\t100.00";
    assert_string_equal(content("logs.tsv"), want);
    assert_int_equal(nw_observers_close(&observers), NW_OK);

    /* Continuing after epoch 2 drops epoch 3 and keeps epoch 1 as it is. */
    resume = (nw_resume_point){20, 2, 0};
    add(&observers, nw_tsv_create(&observer, "logs.tsv", &resume), &observer);
    assert_string_equal(content("logs.tsv"), "epoch\thours\ttop1Accuracy\n1\t0.02194444\t91.10");
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    assert_string_equal(content("logs.tsv"), want);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_null(nth_file(".", 0)); /* nothing is left beside it */
}

TEST(test_tsv_refuses_foreign_files)
{
    static const struct {
        const char *text;
        int line;
    } cases[] = {
        {"", 1},
        {"epoch,hours,top1Accuracy", 1},
        {"epoch\thours\ttop1Accuracy2\n", 1},
        {"epoch\thours\ttop1Accuracy\n\n1\t0.1\t1.0", 2},
        {"epoch\thours\ttop1Accuracy\n1\t0.1\t1.0\n2\t0.1", 3},
        {"epoch\thours\ttop1Accuracy\n1\t0.1\t1.0\n2\t0.1\t1.0\t5", 3},
        {"epoch\thours\ttop1Accuracy\n1\t1\t1.0", 2},
        {"epoch\thours\ttop1Accuracy\n1\t0.1\tnan", 2},
        {"epoch\thours\ttop1Accuracy\n99999999999999999999\t0.1\t1.0", 2},
    };
    nw_resume_point resume = {5, 5, 0};
    nw_observer *observer;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put("logs.tsv", cases[i].text);
        assert_int_equal(nw_tsv_create(&observer, "logs.tsv", &resume), NW_E_FILE);
        char want[64];
        snprintf(want, sizeof want, "logs.tsv, line %d: ", cases[i].line);
        assert_non_null(strstr(nw_error_message(), want));
        assert_string_equal(content("logs.tsv"), cases[i].text);
    }
    put("logs.tsv", "epoch\thours\ttop1Accuracy\n1\t0.1\t1.0\n"); /* an editor added a newline */
    assert_int_equal(nw_tsv_create(&observer, "logs.tsv", &resume), NW_OK);
    assert_int_equal(observer->ops->close(observer), NW_OK);
    assert_string_equal(content("logs.tsv"), "epoch\thours\ttop1Accuracy\n1\t0.1\t1.0");
}

/* ---- TensorBoard ---- */
TEST(test_crc32c)
{
    /* RFC 3720, B.4, and the usual check value. */
    unsigned char bytes[48] = {0};
    assert_int_equal(nw_crc32c(bytes, 32), 0x8A9136AA);
    memset(bytes, 0xFF, 32);
    assert_int_equal(nw_crc32c(bytes, 32), 0x62A8AB43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(nw_crc32c(bytes, 32), 0x46DD794E);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)(31 - i);
    assert_int_equal(nw_crc32c(bytes, 32), 0x113FDB5C);
    static const unsigned char command[48] = {1, [1] = 0xC0, [16] = 0x14, [20] = 0, 0, 4,    0,    0,       0,
                                              0, 0x14,       0,           0,        0, 0x18, 0x28, [40] = 2};
    assert_int_equal(nw_crc32c(command, 48), 0xD9963A56);
    assert_int_equal(nw_crc32c("123456789", 9), 0xE3069283);
    assert_int_equal(nw_crc32c("", 0), 0);
    assert_int_equal(nw_crc32c_masked("", 0), 0xA282EAD8);
    assert_int_equal(nw_crc32c_masked("123456789", 9), 0xC78AB0E5);
}

static uint64_t little(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;) value = value << 8 | at[i];
    return value;
}

/* Checks the framing of a whole file and counts its records. What is in them, another program reads (tests/cli). */
static int count_records(const char *path)
{
    static unsigned char bytes[1 << 19];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(bytes, 1, sizeof bytes, file), at = 0;
    fclose(file);
    int count = 0;
    for (; at + 16 <= size; count++) {
        uint64_t length = little(bytes + at, 8);
        assert_int_equal(little(bytes + at + 8, 4), nw_crc32c_masked(bytes + at, 8));
        assert_true(length <= size - at - 16);
        assert_int_equal(little(bytes + at + 12 + length, 4), nw_crc32c_masked(bytes + at + 12, length));
        at += 16 + length;
    }
    assert_int_equal(at, size);
    return count;
}

TEST(test_tensorboard_files)
{
    nw_resume_point resume = {0};
    nw_observers observers = {0};
    nw_observer *observer;
    if (!nw_tensorboard_available()) {
        assert_int_equal(nw_tensorboard_create(&observer, ".", &resume), NW_E_UNSUPPORTED);
        assert_non_null(strstr(nw_error_message(), "libprotobuf-c-dev"));
        return;
    }
    add(&observers, nw_tensorboard_create(&observer, ".", &resume), &observer);
    const char *name = nth_file("events.out.tfevents.", 0);
    assert_non_null(name);
    assert_int_equal(count_records(name), 1);
    play(&observers, 1, 10);
    assert_int_equal(count_records(nth_file("events.", 0)), 1 + 10 + 1); /* flushed by the epoch */
    nw_end_record end = make_end(10);
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    play(&observers, 11, 12);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_int_equal(count_records(nth_file("events.", 0)), 1 + 10 + 1 + 2);

    /* A second process, or this one within the same second, gets a file of its own, with a mark for readers. */
    resume = (nw_resume_point){10, 1, 76};
    add(&observers, nw_tensorboard_create(&observer, ".", &resume), &observer);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_int_equal(count_records(nth_file("events.", 0)) + count_records(nth_file("events.", 1)), 14 + 2);
    assert_null(nth_file("events.", 2));
    assert_int_equal(nw_tensorboard_create(&observer, "not-there", &resume), NW_E_SYSTEM);
    assert_non_null(strstr(nw_error_message(), "not-there/events.out"));
}

/* More events than the buffer holds, without an epoch or a second in between. Some are a byte longer, so that over
 * the trials the buffer is left with every number of free bytes before it is written. */
TEST(test_tensorboard_buffer)
{
    enum { TRIALS = 32, EVENTS = 600 };
    if (!nw_tensorboard_available()) return;
    for (int trial = 0; trial < TRIALS; trial++) {
        nw_observers observers = {0};
        nw_observer *observer;
        add(&observers, nw_tensorboard_create(&observer, ".", NULL), &observer);
        nw_step_record step = make_step(1);
        for (int i = 0; i < EVENTS; i++) {
            step.images = i < trial ? 1 << 14 : 1 << 7;
            assert_int_equal(nw_observers_step(&observers, &step), NW_OK);
        }
        assert_int_equal(nw_observers_close(&observers), NW_OK);
        const char *name = nth_file("events.", 0);
        assert_int_equal(count_records(name), 1 + EVENTS);
        assert_int_equal(remove(name), 0);
    }
}

/* ---- summary.json ---- */
TEST(test_summary)
{
    put("summary.json", "of the run before");
    nw_observers observers = {0};
    nw_observer *observer;
    add(&observers, nw_summary_create(&observer, "summary.json"), &observer);
    assert_false(exists("summary.json"));
    nw_run_record run = make_run();
    char model[] = "resnet9";
    run.model = model;
    assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
    strcpy(model, "gone"); /* texts of records live only during the call */
    play(&observers, 1, 20);
    nw_epoch_record last = make_epoch(3);
    last.test_top1 = (double)NAN; /* not evaluated: the last known value stays */
    last.bytes_sent = 12345;
    assert_int_equal(nw_observers_epoch(&observers, &last), NW_OK);
    assert_false(exists("summary.json"));
    nw_end_record end = make_end(30);
    nw_histogram delays = {0};
    nw_histogram_add(&delays, 3);
    end.delays = &delays;
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    nw_histogram_add(&delays, 700); /* the last value counts */
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    const char *text = content("summary.json");
    static const char *const lines[] = {
        "{\n  \"started\": ",
        "\n  \"model\": \"resnet9\",\n",
        "\n  \"seed\": 42,\n",
        "\n  \"test_top1\": 52,\n",
        "\n  \"test_top5\": 90,\n",
        "\n  \"test_loss\": 1.25,\n",
        "\n  \"train_loss\": 1.5,\n",
        "\n  \"epochs\": 3,\n",
        "\n  \"steps\": 30,\n",
        "\n  \"images\": 228,\n",
        "\n  \"status\": \"done\",\n",
        "\n  \"train_seconds\": 15,\n",
        "\n  \"total_seconds\": 20.25,\n",
        "\n  \"peak_memory_bytes\": 1610612736,\n",
        "\n  \"virtual_seconds\": null,\n",
        "\n  \"images_per_second\": null,\n",
        "\n  \"bytes_sent\": 12345,\n",
        "\n  \"messages_sent\": null,\n",
        "\n  \"delays\": {\n    \"count\": 2,\n    \"mean\": 351.5,\n    \"max\": 700,\n"
        "    \"counts\": {\n      \"3\": 1,\n      \"512-1023\": 1\n    }\n  },\n",
        "\n  \"weights_sha256\": null,\n",
        "\n  \"world_size\": null,\n",
        "\n  \"precision\": null,\n",
        "\n  \"isa\": null,\n",
        "\n  \"version\": null,\n",
        "\n  \"commit\": null,\n",
        "\n  \"steal_percent\": null,\n",
        "\n  \"load\": null\n}\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *found = strstr(text, lines[i]);
        if (found == NULL) fail_msg("summary.json lacks %s", lines[i]);
        assert_null(strstr(found + 1, lines[i]));
    }
    assert_int_equal(nw_observers_close(&observers), NW_OK);
}

TEST(test_quiet_run_leaves_files_only)
{
    nw_observers observers = {0};
    nw_observe_options options = {.run_dir = "."};
    assert_int_equal(nw_observers_open(&observers, &options), NW_OK);
    assert_int_equal(observers.count, 3);
    nw_observers_message(&observers, "nobody listens");
    observers.warnings = fopen("warnings", "w");
    nw_observers_message(&observers, "but to a warning");
    fclose(observers.warnings);
    assert_string_equal(content("warnings"), "nowait: but to a warning\n");
    nw_end_record end = make_end(30);
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_true(exists("metrics.jsonl") && exists("logs.tsv") && exists("summary.json"));
    assert_null(nth_file("events", 0));
    options = (nw_observe_options){.run_dir = "not-there"};
    assert_int_not_equal(nw_observers_open(&observers, &options), NW_OK);
    assert_non_null(strstr(nw_error_message(), "not-there"));
    assert_int_equal(observers.count, 0);
}

/* An observer that never fails, and counts. */
static int counted;
static nw_status count_record(nw_observer *observer, nw_record_kind kind, const void *record)
{
    (void)observer, (void)kind, (void)record;
    counted++;
    return NW_OK;
}
static nw_status close_counter(nw_observer *observer)
{
    (void)observer;
    return NW_OK;
}
static const nw_observer_ops counter_ops = {count_record, close_counter};

/* A disk that takes no more bytes is played by a limit on the size of files. Returns how often a failure was told. */
static int play_on_full_disk(void)
{
    signal(SIGXFSZ, SIG_IGN);
    nw_observers observers = {0};
    nw_observe_options options = {.run_dir = ".", .tensorboard = nw_tensorboard_available()};
    if (nw_observers_open(&observers, &options) != NW_OK) return -1;
    nw_observer counter = {&counter_ops};
    nw_observers_add(&observers, &counter);
    struct rlimit limit = {9000, 9000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return -1;
    int told = 0;
    for (int step = 1; step <= 200; step++) {
        nw_step_record record = make_step(step);
        told += nw_observers_step(&observers, &record) == NW_E_SYSTEM;
        nw_epoch_record epoch = make_epoch(step / 10);
        if (step % 10 == 0) told += nw_observers_epoch(&observers, &epoch) == NW_E_SYSTEM;
    }
    nw_end_record end = make_end(200);
    told += nw_observers_end(&observers, &end) == NW_E_SYSTEM;
    if (counted != 200 + 20 + 1) return -1; /* the others went on */
    told += nw_observers_close(&observers) != NW_OK;
    return told;
}

TEST(test_full_disk)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(play_on_full_disk());
    int result = 0;
    assert_true(waitpid(child, &result, 0) == child && WIFEXITED(result));
    /* metrics.jsonl and the events, once each; logs.tsv and summary.json fit. */
    assert_int_equal(WEXITSTATUS(result), 1 + nw_tensorboard_available());
    const char *text = content("metrics.jsonl");
    size_t length = strlen(text);
    assert_true(length > 8000 && length <= 9000 && text[length - 1] == '\n');
    for (const char *at = text; *at != '\0'; at = strchr(at, '\n') + 1) {
        nw_line_place place;
        assert_true(nw_jsonl_line_place(at, (size_t)(strchr(at, '\n') - at), &place));
    }
    assert_true(exists("summary.json"));
    if (nw_tensorboard_available()) count_records(nth_file("events", 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_jsonl_lines),
        CASE(test_jsonl_continues),
        CASE(test_jsonl_refuses_foreign_lines),
        CASE(test_jsonl_cuts_inside_a_step),
        CASE(test_tsv),
        CASE(test_tsv_refuses_foreign_files),
        CASE(test_crc32c),
        CASE(test_tensorboard_files),
        CASE(test_tensorboard_buffer),
        CASE(test_summary),
        CASE(test_quiet_run_leaves_files_only),
        CASE(test_full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
