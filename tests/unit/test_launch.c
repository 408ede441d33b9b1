/*
 * test_launch.c - command lines of launchers, and what launchers say of ranks that ended badly.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "cli/launch.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

static void assert_line(const nw_launch_plan *plan, const char *want)
{
    nw_words train = {0}, line = {0};
    char *text;
    assert_int_equal(nw_words_add(&train, "--model"), NW_OK);
    assert_int_equal(nw_words_add(&train, "resnet9"), NW_OK);
    assert_int_equal(nw_launch_line(plan, &train, &line), NW_OK);
    assert_int_equal(nw_words_quote(&line, &text), NW_OK);
    assert_string_equal(text, want);
    assert_null(line.at[line.count]);
    free(text);
    nw_words_free(&train);
    nw_words_free(&line);
}

static nw_launch_plan plan_of(nw_launcher launcher)
{
    return (nw_launch_plan){.launcher = launcher,
                            .starter = launcher == NW_LAUNCHER_SRUN ? "srun" : "mpirun",
                            .program = "/bin/nowait",
                            .ranks = 4,
                            .cpus = 8,
                            .hosts = "",
                            .launcher_args = ""};
}

TEST(lines_of_open_mpi)
{
    nw_launch_plan plan = plan_of(NW_LAUNCHER_OPEN_MPI);
    assert_line(&plan, "mpirun -np 4 --oversubscribe --bind-to none /bin/nowait train --model resnet9");
    plan.allocation = true; /* the scheduler says how many slots there are */
    assert_line(&plan, "mpirun -np 4 --bind-to none /bin/nowait train --model resnet9");
    plan.hosts = "my hosts";
    assert_line(&plan, "mpirun -np 4 --hostfile 'my hosts' --bind-to none /bin/nowait train --model resnet9");
    plan = plan_of(NW_LAUNCHER_OPEN_MPI);
    plan.launcher_args = "--map-by slot:PE=2";
    assert_line(&plan, "mpirun -np 4 --oversubscribe --map-by slot:PE=2 /bin/nowait train --model resnet9");
    plan.launcher_args = "--host a,b --bind-to core";
    assert_line(&plan, "mpirun -np 4 --host a,b --bind-to core /bin/nowait train --model resnet9");
}

TEST(lines_of_others)
{
    nw_launch_plan plan = plan_of(NW_LAUNCHER_MPICH);
    assert_line(&plan, "mpirun -n 4 /bin/nowait train --model resnet9");
    plan.hosts = "hosts";
    assert_line(&plan, "mpirun -n 4 -f hosts /bin/nowait train --model resnet9");
    plan = plan_of(NW_LAUNCHER_SRUN);
    assert_line(&plan, "srun --ntasks=4 --kill-on-bad-exit=1 /bin/nowait train --model resnet9");
    plan.launcher_args = "--mpi=pmix";
    assert_line(&plan, "srun --ntasks=4 --kill-on-bad-exit=1 --mpi=pmix /bin/nowait train --model resnet9");
    plan.hosts = "hosts";
    nw_words none = {0}, line = {0};
    assert_int_equal(nw_launch_line(&plan, &none, &line), NW_E_ARGUMENT);
    nw_words_free(&line);
    plan = plan_of(NW_LAUNCHER_DIRECT);
    plan.launcher_args = "not looked at";
    assert_line(&plan, "/bin/nowait train --model resnet9");
}

TEST(families)
{
    assert_int_equal(nw_launch_family("mpirun (Open MPI) 4.1.4\n"), NW_LAUNCHER_OPEN_MPI);
    assert_int_equal(nw_launch_family("mpirun (Open MPI) 5.0.3, with PRRTE\n"), NW_LAUNCHER_OPEN_MPI);
    assert_int_equal(nw_launch_family("HYDRA build details:\n    Version: 4.0.2\n"), NW_LAUNCHER_MPICH);
    assert_int_equal(nw_launch_family("Intel(R) MPI Library for Linux* OS, Version 2021.8"), NW_LAUNCHER_MPICH);
    assert_int_equal(nw_launch_family(""), NW_LAUNCHER_OPEN_MPI);
}

TEST(words_are_cut_like_a_shell_does)
{
    static const struct {
        const char *text, *words[5];
    } cases[] = {
        {"", {NULL}},
        {"  \t ", {NULL}},
        {"a", {"a"}},
        {" a  b\tc\n", {"a", "b", "c"}},
        {"'a b' \"c d\"", {"a b", "c d"}},
        {"a' 'b\"'\"c", {"a b'c"}},
        {"'' x", {"", "x"}},
        {"-x A=\"it's\"", {"-x", "A=it's"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_words words = {0};
        assert_int_equal(nw_words_add_cut(&words, cases[i].text), NW_OK);
        int count = 0;
        while (cases[i].words[count]) count++;
        assert_int_equal(words.count, count);
        for (int k = 0; k < count; k++) assert_string_equal(words.at[k], cases[i].words[k]);
        nw_words_free(&words);
    }
    nw_words words = {0};
    assert_int_equal(nw_words_add_cut(&words, "a 'b"), NW_E_ARGUMENT);
    nw_words_free(&words);
    char *text;
    for (int i = 0; i < 100; i++) assert_int_equal(nw_words_add_format(&words, "it's %d", i), NW_OK);
    assert_int_equal(nw_words_quote(&words, &text), NW_OK);
    assert_int_equal(strncmp(text, "'it'\\''s 0' 'it'\\''s 1' ", 24), 0);
    free(text);
    nw_words_free(&words);
}

TEST(what_launchers_say)
{
    static const struct {
        const char *lines[4];
        nw_launch_word word;
    } cases[] = {
        {{"mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."}, {1, 9, -1}},
        {{"prterun noticed that process rank 12 with PID 311 on node a exited on signal 11 (Segmentation fault)."},
         {12, 11, -1}},
        {{"  Process name: [[18848,1],3]", "  Exit code:    5"}, {3, -1, 5}},
        {{"srun: error: node3: task 2: Killed"}, {2, SIGKILL, -1}},
        {{"srun: error: node3: task 0: Segmentation fault (core dumped)"}, {0, SIGSEGV, -1}},
        {{"srun: error: node3: tasks 1,3: Exited with exit code 5"}, {1, -1, 5}},
        {{"srun: error: node3: tasks 4-7: Terminated"}, {4, SIGTERM, -1}},
        /* a signal says more than an exit code; the first stays */
        {{"srun: error: a: task 1: Exited with exit code 5", "srun: error: b: task 2: Killed",
          "srun: error: a: task 0: Terminated"},
         {2, SIGKILL, -1}},
        /* nothing of the kind */
        {{"epoch 1, step 9: loss 2.3", "Exit code: 4", "", "srun: Job step aborted"}, {-1, -1, -1}},
        {{"srun: error: task list is empty", "srun: error: node: task : x", "mpirun noticed that process rank x"},
         {-1, -1, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_launch_word word = {-1, -1, -1};
        for (int k = 0; k < 4 && cases[i].lines[k]; k++) nw_launch_hear(cases[i].lines[k], &word);
        if (word.rank != cases[i].word.rank || word.signal != cases[i].word.signal ||
            word.exit_code != cases[i].word.exit_code)
            fail_msg("%s: rank %d, signal %d, exit code %d", cases[i].lines[0], word.rank, word.signal, word.exit_code);
    }
}

TEST(questions)
{
    char answer[8];
    assert_int_equal(nw_launch_ask("echo", "one two three", answer, sizeof answer), NW_OK);
    assert_string_equal(answer, "one two"); /* cut */
    assert_int_equal(nw_launch_ask("/nowhere/at/all", "x", answer, sizeof answer), NW_OK);
    assert_string_equal(answer, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_open_mpi),  cmocka_unit_test(lines_of_others),
        cmocka_unit_test(families),           cmocka_unit_test(words_are_cut_like_a_shell_does),
        cmocka_unit_test(what_launchers_say), cmocka_unit_test(questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
