/*
 * test_observe.c - records, the list of observers, the stopwatch, and what people see: table and progress.
 *
 * Each test works in an empty folder of its own. What must abort is tried in a child process. Terminals are
 * pseudo-terminals whose width the test sets and whose output it reads.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

#include "observe/stopwatch.h"
#include "support/allocations.h"
#include "support/observe_fixture.h"

static bool aborts(void (*misuse)(void))
{
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(1);
        misuse();
        _exit(0);
    }
    int result = 0;
    return waitpid(child, &result, 0) == child && WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT;
}

/* ---- records ---- */
TEST(test_tables)
{
    char memory[1024];
    for (int kind = 0; kind < NW_RECORD_KINDS; kind++) {
        const nw_record_type *type = nw_record_type_of((nw_record_kind)kind);
        assert_true(type->size <= sizeof memory && type->count >= 3);
        nw_record_clear((nw_record_kind)kind, memory);
        for (int i = 0; i < type->count; i++) {
            assert_false(nw_record_value(&type->fields[i], memory).known);
            for (int k = 0; k < i; k++) assert_string_not_equal(type->fields[i].name, type->fields[k].name);
            if (type->fields[i].scalar) assert_int_not_equal(type->fields[i].kind, NW_FIELD_TEXT);
        }
    }
    nw_end_record end = make_end(7);
    const nw_field *fields = nw_record_type_of(NW_RECORD_END)->fields;
    nw_field_value step = nw_record_value(&fields[0], &end), status = nw_record_value(&fields[3], &end);
    assert_true(step.known && step.integer == 7 && step.real == 7.0 && step.text == NULL);
    assert_true(status.known && strcmp(status.text, "done") == 0 && isnan(status.real));
    assert_int_equal(nw_record_head_of(&end).step, 7);
}

/* ---- the list ---- */
typedef struct fake {
    nw_observer base;
    int fails_at, got, closed_with;
} fake;

static nw_status fake_record(nw_observer *observer, nw_record_kind kind, const void *record)
{
    fake *self = (fake *)observer;
    (void)kind, (void)record;
    self->got++;
    NW_FAIL_IF(self->got == self->fails_at, NW_E_SYSTEM, "observer that fails at %d", self->fails_at);
    return NW_OK;
}
static nw_status fake_close(nw_observer *observer)
{
    fake *self = (fake *)observer;
    NW_FAIL_IF(self->closed_with != 0, NW_E_FILE, "observer that cannot close");
    return NW_OK;
}
static const nw_observer_ops fake_ops = {fake_record, fake_close};

TEST(test_failures_are_told_once)
{
    fake fakes[] = {{{&fake_ops}, 2, 0, 1}, {{&fake_ops}, 0, 0, 0}, {{&fake_ops}, 2, 0, 0}, {{&fake_ops}, 0, 0, 1}};
    nw_observers observers = {0};
    for (int i = 0; i < 4; i++) nw_observers_add(&observers, &fakes[i].base);
    nw_step_record step = make_step(1);
    static const nw_status want[] = {NW_OK, NW_E_SYSTEM, NW_E_SYSTEM, NW_OK, NW_OK};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(nw_observers_step(&observers, &step), want[i]);
        if (want[i] != NW_OK) assert_string_equal(nw_error_message(), "observer that fails at 2");
    }
    assert_true(fakes[0].got == 2 && fakes[2].got == 2 && fakes[1].got == 5 && fakes[3].got == 5);
    /* The first one's second failure, at closing, is not told; that of the last is. */
    assert_int_equal(nw_observers_close(&observers), NW_E_FILE);
    assert_string_equal(nw_error_message(), "observer that cannot close");
    assert_int_equal(observers.count, 0);
}

/* ---- the stopwatch ---- */
TEST(test_phases_add_up)
{
    nw_stopwatch watch = nw_stopwatch_start(NULL, 1000);
    nw_stopwatch_enter(&watch, NW_PHASE_PREPROCESS, 1010);
    nw_stopwatch_leave(&watch, NW_PHASE_PREPROCESS, 1110);
    nw_stopwatch_enter(&watch, NW_PHASE_TRAIN, 1111);
    nw_stopwatch_enter(&watch, NW_PHASE_VALIDATION, 1611); /* training stands still meanwhile */
    nw_stopwatch_enter(&watch, NW_PHASE_CHECKPOINT, 1631);
    nw_stopwatch_leave(&watch, NW_PHASE_CHECKPOINT, 1634);
    nw_stopwatch_leave(&watch, NW_PHASE_VALIDATION, 1644);
    nw_phase_times times = nw_stopwatch_read(&watch, 1700);
    assert_int_equal(times.ns[NW_PHASE_OTHER], 11);
    assert_int_equal(times.ns[NW_PHASE_PREPROCESS], 100);
    assert_int_equal(times.ns[NW_PHASE_TRAIN], 500 + 56);
    assert_int_equal(times.ns[NW_PHASE_VALIDATION], 20 + 10);
    assert_int_equal(times.ns[NW_PHASE_CHECKPOINT], 3);
    assert_true(fabs(nw_phase_total_seconds(times) - 700e-9) < 1e-15);
    assert_true(fabs(nw_phase_dawnbench_seconds(times) - 670e-9) < 1e-15);

    /* The process that continues adds to what the checkpoint had; it starts outside of any phase. */
    nw_stopwatch again = nw_stopwatch_start(&times, 50);
    nw_stopwatch_enter(&again, NW_PHASE_TRAIN, 60);
    nw_phase_times later = nw_stopwatch_read(&again, 160), lap = nw_phase_times_since(later, times);
    assert_int_equal(later.ns[NW_PHASE_TRAIN], 556 + 100);
    assert_int_equal(later.ns[NW_PHASE_OTHER], 11 + 10);
    assert_true(lap.ns[NW_PHASE_TRAIN] == 100 && lap.ns[NW_PHASE_VALIDATION] == 0);
    assert_true(fabs(nw_phase_seconds(later, NW_PHASE_TRAIN) - 656e-9) < 1e-15);
}

static int misuse_case;
static void misuse_stopwatch(void)
{
    nw_stopwatch watch = nw_stopwatch_start(NULL, 100);
    nw_stopwatch_enter(&watch, NW_PHASE_TRAIN, 100);
    switch (misuse_case) {
    case 0:
        nw_stopwatch_leave(&watch, NW_PHASE_VALIDATION, 101);
        break;
    case 1:
        nw_stopwatch_leave(&watch, NW_PHASE_TRAIN, 99);
        break;
    case 2:
        nw_stopwatch_enter(&watch, NW_PHASE_OTHER, 101);
        break;
    case 3:
        for (int i = 0; i < NW_PHASE_DEPTH; i++) nw_stopwatch_enter(&watch, NW_PHASE_TRAIN, 101);
        break;
    case 4:
        nw_stopwatch_leave(&watch, NW_PHASE_TRAIN, 101);
        nw_stopwatch_leave(&watch, NW_PHASE_OTHER, 102);
        break;
    }
}

TEST(test_stopwatch_misuse)
{
    for (misuse_case = 0; misuse_case < 5; misuse_case++) assert_true(aborts(misuse_stopwatch));
    misuse_case = 5;
    assert_false(aborts(misuse_stopwatch)); /* the child without misuse lives */
}

/* ---- the table ---- */
static const char table_header[] = "       epoch           lr   train time   train loss    train acc    test time    "
                                   "test loss     test acc   total time\n";
static const char breakdown[] = "training                                15.00 s\n"
                                "validation                               3.75 s\n"
                                "total                                   20.25 s\n"
                                "without validation (DAWNBench)          16.50 s\n";

TEST(test_table)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    nw_observers observers = {0};
    nw_observer *observer;
    add(&observers, nw_table_create(&observer, out), &observer);
    nw_run_record run = make_run();
    run.loss_reduction = "sum";
    assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
    play(&observers, 1, 10);
    nw_epoch_record epoch = make_epoch(2);
    epoch.test_top1 = epoch.test_loss = epoch.epoch_validation_seconds = (double)NAN;
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    nw_end_record end = make_end(30);
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    fclose(out);
    char want[1024];
    snprintf(want, sizeof want, "%s%s%s%s", table_header,
             "           1      25.6000       5.0000       1.5000       0.4321       1.2500       1.2500       0.5100"
             "       5.5000\n",
             "           2      25.6000       5.0000       1.5000       0.4321            -            -            -"
             "      11.0000\n",
             breakdown);
    assert_string_equal(text, want);
    free(text);
}

/* ---- progress ---- */
static int64_t fake_ns;
static int64_t fake_now(void) { return fake_ns; }

TEST(test_progress_plain)
{
    FILE *out = fopen("progress.txt", "w+");
    nw_observers observers = {0};
    nw_observer *observer;
    nw_progress_options options = {.out = out, .print_every = 5, .results = true, .now = fake_now};
    add(&observers, nw_progress_create(&observer, &options), &observer); /* a file is no terminal */
    nw_run_record run = make_run();
    assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
    play(&observers, 1, 13);
    nw_observers_message(&observers, "a message");
    nw_step_record step = make_step(15);
    step.top1 = step.top5 = step.data_wait_seconds = step.step_seconds = (double)NAN;
    assert_int_equal(nw_observers_step(&observers, &step), NW_OK);
    nw_fault_record fault; /* the command says it */
    nw_record_clear(NW_RECORD_FAULT, &fault);
    assert_int_equal(nw_observers_fault(&observers, &fault), NW_OK);
    nw_end_record end = make_end(30);
    assert_int_equal(nw_observers_end(&observers, &end), NW_OK);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    fclose(out);
    /* The mean over ten batches, of which the last has half the images: (8 (1 + ... + 9) + 4 x 10) / 76. */
    char want[2048];
    snprintf(
        want, sizeof want, "%s%s%s%s%s%s",
        "epoch 1/3  batch 5/10  time 0.500 s (0.500)  data 0.125 s (0.125)  loss 5.0000 (3.0000)  "
        "top1 50.00 (50.00)  top5 75.50 (75.50)  lr 0.05\n",
        "epoch 1/3  batch 10/10  time 0.500 s (0.500)  data 0.125 s (0.125)  loss 10.0000 (5.2632)  "
        "top1 50.00 (50.00)  top5 75.50 (75.50)  lr 0.05\n",
        "epoch 1/3  train loss 1.5000 top1 43.21%  test loss 1.2500 top1 51.00% top5 90.00%  best 51.00%  lr 0.05  "
        "memory 1.50 GiB  5.0 s + 1.2 s\n",
        "a message\n", "epoch 2/3  batch 5/10  loss 15.0000 (12.7500)  lr 0.05\n", breakdown);
    assert_string_equal(content("progress.txt"), want);
}

/* An update of three batches: a line where a multiple of four is reached or passed. */
TEST(test_progress_of_several_batches)
{
    FILE *out = fopen("progress.txt", "w+");
    nw_observers observers = {0};
    nw_observer *observer;
    nw_progress_options options = {.out = out, .print_every = 4, .now = fake_now};
    add(&observers, nw_progress_create(&observer, &options), &observer);
    for (int i = 1; i <= 9; i++) { /* epochs of 13 batches; the fifth update begins in the first */
        nw_step_record step;
        nw_record_clear(NW_RECORD_STEP, &step);
        step.step = i;
        step.epoch = 1 + (3 * i - 1) / 13;
        step.batch = 3 * i - 13 * (step.epoch - 1);
        assert_int_equal(nw_observers_step(&observers, &step), NW_OK);
    }
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    fclose(out);
    assert_string_equal(content("progress.txt"), "epoch 1  batch 6\nepoch 1  batch 9\nepoch 1  batch 12\n"
                                                 "epoch 2  batch 5\nepoch 2  batch 8\n");
}

typedef struct pseudo_terminal {
    int master;
    FILE *out;
    char text[1 << 15];
} pseudo_terminal;

static void open_terminal(pseudo_terminal *terminal, unsigned short columns)
{
    int slave;
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    assert_int_equal(openpty(&terminal->master, &slave, NULL, NULL, &size), 0);
    assert_int_equal(fcntl(terminal->master, F_SETFL, O_NONBLOCK), 0);
    terminal->out = fdopen(slave, "w");
    assert_non_null(terminal->out);
}

/* What appeared on the terminal since the last call. */
static const char *seen(pseudo_terminal *terminal)
{
    size_t size = 0;
    ssize_t got;
    while ((got = read(terminal->master, terminal->text + size, sizeof terminal->text - 1 - size)) > 0) {
        size += (size_t)got;
    }
    terminal->text[size] = '\0';
    return terminal->text;
}

static void close_terminal(pseudo_terminal *terminal)
{
    fclose(terminal->out);
    close(terminal->master);
}

TEST(test_progress_live)
{
    pseudo_terminal screen;
    open_terminal(&screen, 120);
    setenv("TERM", "xterm", 1);
    fake_ns = 5000000000;
    nw_observers observers = {0};
    nw_observer *observer;
    nw_progress_options options = {.out = screen.out, .print_every = 1, .now = fake_now};
    add(&observers, nw_progress_create(&observer, &options), &observer);
    nw_run_record run = make_run();
    assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
    assert_string_equal(seen(&screen), "");
    fake_ns += 4000000000; /* two steps in four seconds: 28 steps in 56 */
    play(&observers, 1, 2);
    assert_string_equal(seen(&screen),
                        "\repoch 1/3   10%  16.0 images/s  loss 1.0000  top1 50.00%  lr 0.05  ETA 1:56\033[K");
    /* Fifty steps within one second: ten lines. */
    int lines = 0;
    for (int i = 0; i < 50; i++) {
        fake_ns += 20000000;
        play(&observers, 3, 3);
        lines += strchr(seen(&screen), '\r') != NULL;
    }
    assert_int_equal(lines, 10);
    /* A message stands above the line. */
    nw_observers_message(&observers, "a message");
    assert_string_equal(
        seen(&screen),
        "\r\033[Ka message\r\n\repoch 1/3   30%  16.0 images/s  loss 2.9423  top1 50.00%  lr 0.05  ETA 0:45\033[K");
    /* At an epoch's end, and at the end, the line goes away. */
    nw_epoch_record epoch = make_epoch(1);
    assert_int_equal(nw_observers_epoch(&observers, &epoch), NW_OK);
    assert_string_equal(seen(&screen), "\r\033[K");
    fake_ns += 1000000000;
    play(&observers, 11, 11);
    assert_non_null(strstr(seen(&screen), "\repoch 2/3   10%  16.0 images/s  loss 11.0000"));
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_string_equal(seen(&screen), "\r\033[K");
    close_terminal(&screen);
}

/* Of 15 updates of two batches each, one took four seconds. */
TEST(test_time_left_of_accumulated_updates)
{
    pseudo_terminal screen;
    open_terminal(&screen, 120);
    setenv("TERM", "xterm", 1);
    fake_ns = 0;
    nw_observers observers = {0};
    nw_observer *observer;
    nw_progress_options options = {.out = screen.out, .now = fake_now};
    add(&observers, nw_progress_create(&observer, &options), &observer);
    nw_run_record run = make_run();
    run.accumulation_steps = 2;
    assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
    fake_ns += 4000000000;
    play(&observers, 1, 1);
    assert_non_null(strstr(seen(&screen), "ETA 0:56"));
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    close_terminal(&screen);
}

/* Replicas that wait for each other, on a simulated clock. */
TEST(test_progress_of_a_cluster)
{
    setenv("TERM", "xterm", 1);
    fake_ns = 0;
    pseudo_terminal screen;
    open_terminal(&screen, 120);
    nw_observers observers = {0};
    nw_observer *observer;
    nw_progress_options options = {.out = screen.out, .now = fake_now};
    add(&observers, nw_progress_create(&observer, &options), &observer);
    options = (nw_progress_options){.out = fopen("progress.txt", "w"), .print_every = 1};
    add(&observers, nw_progress_create(&observer, &options), &observer);
    for (int i = 1; i <= 2; i++) {
        nw_step_record step = make_step(i);
        step.exchange_seconds = i * 0.01;
        step.virtual_seconds = 20.6 * i;
        fake_ns += 1000000000;
        assert_int_equal(nw_observers_step(&observers, &step), NW_OK);
    }
    assert_non_null(strstr(seen(&screen), "lr 0.05  exchange 0.015 s  virtual 41.2 s\033[K"));
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    fclose(options.out);
    close_terminal(&screen);
    assert_non_null(strstr(content("progress.txt"), "data 0.125 s (0.125)  exchange 0.020 s (0.015)  loss"));
    assert_non_null(strstr(content("progress.txt"), "lr 0.05  virtual 41.2 s\n"));
}

TEST(test_progress_narrow_terminal)
{
    setenv("TERM", "xterm", 1);
    for (unsigned short columns = 1; columns <= 100; columns = (unsigned short)(columns + 9)) {
        pseudo_terminal screen;
        open_terminal(&screen, columns);
        fake_ns = 0;
        nw_observers observers = {0};
        nw_observer *observer;
        nw_progress_options options = {.out = screen.out, .now = fake_now};
        add(&observers, nw_progress_create(&observer, &options), &observer);
        nw_run_record run = make_run();
        assert_int_equal(nw_observers_run(&observers, &run), NW_OK);
        fake_ns = (int64_t)1 << 62; /* a century: the time left is long too */
        play(&observers, 1, 1);
        const char *line = seen(&screen);
        size_t length = strlen(line) - strlen("\r\033[K");
        assert_true(length <= columns - 1u && (length == columns - 1u || columns > 80));
        assert_null(strchr(line, '\n'));
        assert_int_equal(nw_observers_close(&observers), NW_OK);
        close_terminal(&screen);
    }
}

TEST(test_progress_on_simple_terminals)
{
    static const char *const terms[] = {"dumb", "", NULL};
    for (int i = 0; i < 3; i++) {
        pseudo_terminal screen;
        open_terminal(&screen, 80);
        if (terms[i] != NULL) setenv("TERM", terms[i], 1);
        if (terms[i] == NULL) unsetenv("TERM");
        nw_observers observers = {0};
        nw_observer *observer;
        nw_progress_options options = {.out = screen.out, .print_every = 1, .now = fake_now};
        add(&observers, nw_progress_create(&observer, &options), &observer);
        play(&observers, 1, 1);
        const char *text = seen(&screen);
        assert_null(strchr(text, '\033'));
        assert_memory_equal(text, "epoch 1  batch 1  time", 22);
        assert_int_equal(nw_observers_close(&observers), NW_OK);
        close_terminal(&screen);
    }
}

TEST(test_table_on_narrow_terminal)
{
    pseudo_terminal screen;
    open_terminal(&screen, 80);
    nw_observers observers = {0};
    nw_observer *observer;
    add(&observers, nw_table_create(&observer, screen.out), &observer);
    play(&observers, 10, 10);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_string_equal(seen(&screen),
                        "   epoch       lr  train s     loss      acc   test s     loss      acc  total s\r\n"
                        "       1   0.0500      5.0   1.5000   0.4321      1.2   1.2500   0.5100      5.5\r\n");
    close_terminal(&screen);
}

/* ---- all together ---- */
TEST(test_step_allocates_nothing)
{
    if (!COUNTS_ALLOCATIONS) return;
    pseudo_terminal screen;
    open_terminal(&screen, 80);
    setenv("TERM", "xterm", 1);
    nw_observers observers = {0};
    nw_observe_options options = {.run_dir = ".", .progress = screen.out, .tensorboard = nw_tensorboard_available()};
    assert_int_equal(nw_observers_open(&observers, &options), NW_OK);
    nw_progress_options plain = {.out = fopen("progress.txt", "w"), .print_every = 1};
    nw_observer *observer;
    add(&observers, nw_progress_create(&observer, &plain), &observer);
    nw_step_record step = make_step(1);
    step.loss = 1.0 / 3;
    for (int i = 0; i < 3; i++) assert_int_equal(nw_observers_step(&observers, &step), NW_OK);
    int before = atomic_load(&allocations);
    nw_status status = NW_OK;
    for (int i = 0; i < 200; i++) {
        step.loss *= 0.937;
        step.step++;
        if (nw_observers_step(&observers, &step) != NW_OK) status = NW_E_SYSTEM;
        if (i % 50 == 0) usleep(110000); /* so that the live line is drawn too */
    }
    assert_int_equal(atomic_load(&allocations) - before, 0);
    assert_int_equal(status, NW_OK);
    assert_int_equal(nw_observers_close(&observers), NW_OK);
    assert_true(strlen(seen(&screen)) > 100);
    fclose(plain.out);
    close_terminal(&screen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_tables),
        CASE(test_failures_are_told_once),
        CASE(test_phases_add_up),
        CASE(test_stopwatch_misuse),
        CASE(test_table),
        CASE(test_progress_plain),
        CASE(test_progress_of_several_batches),
        CASE(test_progress_live),
        CASE(test_time_left_of_accumulated_updates),
        CASE(test_progress_of_a_cluster),
        CASE(test_progress_narrow_terminal),
        CASE(test_progress_on_simple_terminals),
        CASE(test_table_on_narrow_terminal),
        CASE(test_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
