/*
 * test_launch.c - command lines of launchers, what launchers say of ranks that ended badly, and how the end of a job is
 * judged from made-up observations.
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
        {{"mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed)."}, {1, 9, -1, 0}},
        {{"prterun noticed that process rank 12 with PID 311 on node a exited on signal 11 (Segmentation fault)."},
         {12, 11, -1, 0}},
        {{"  Process name: [[18848,1],3]", "  Exit code:    5"}, {3, -1, 5, 0}},
        {{"srun: error: node3: task 2: Killed"}, {2, SIGKILL, -1, 0}},
        {{"srun: error: node3: task 0: Segmentation fault (core dumped)"}, {0, SIGSEGV, -1, 0}},
        {{"srun: error: node3: tasks 1,3: Exited with exit code 5"}, {1, -1, 5, 0}},
        {{"srun: error: node3: tasks 4-7: Terminated"}, {4, SIGTERM, -1, 0}},
        {{"=   PID 13397 RUNNING AT vm", "=   EXIT CODE: 9",
          "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)"},
         {-1, 9, -1, 13397}},
        {{"=   PID 7 RUNNING AT 10.0.0.2", "=   EXIT CODE: 5", "=   PID 8 RUNNING AT vm", "=   EXIT CODE: 9"},
         {-1, -1, 5, 7}},
        {{"=   EXIT CODE: 9", "=   PID x RUNNING AT vm", "=   PID 12"}, {-1, -1, -1, 0}},
        /* a signal says more than an exit code; the first stays */
        {{"srun: error: a: task 1: Exited with exit code 5", "srun: error: b: task 2: Killed",
          "srun: error: a: task 0: Terminated"},
         {2, SIGKILL, -1, 0}},
        /* nothing of the kind */
        {{"epoch 1, step 9: loss 2.3", "Exit code: 4", "", "srun: Job step aborted"}, {-1, -1, -1, 0}},
        {{"srun: error: task list is empty", "srun: error: node: task : x", "mpirun noticed that process rank x"},
         {-1, -1, -1, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        nw_launch_word word = {-1, -1, -1, 0};
        for (int k = 0; k < 4 && cases[i].lines[k]; k++) nw_launch_hear(cases[i].lines[k], &word);
        if (word.rank != cases[i].word.rank || word.signal != cases[i].word.signal ||
            word.exit_code != cases[i].word.exit_code || word.pid != cases[i].word.pid)
            fail_msg("%s: rank %d, signal %d, exit code %d", cases[i].lines[0], word.rank, word.signal, word.exit_code);
    }
}

/* ---- how a job ended --------------------------------------------------------------------------------------------- */

enum { RANKS = 3 };

typedef struct ending {
    nw_launch_outcome outcome;
    nw_beat beats[RANKS], held[RANKS];
    bool stuck[RANKS];
    int64_t quiet_ns[RANKS], held_ns[RANKS];
} ending;

/* Three ranks in these states ('.': no heart), and an exit code. */
static nw_launch_outcome *ended(ending *e, const char *states, int exit_code)
{
    static const char letters[] = "scewkvdfi"; /* in the order of nw_rank_state */
    *e = (ending){.outcome = {.exit_code = exit_code, .word = {-1, -1, -1, 0}}};
    e->outcome.beats = e->beats;
    e->outcome.held = e->held;
    e->outcome.stuck = e->stuck;
    e->outcome.quiet_ns = e->quiet_ns;
    e->outcome.held_ns = e->held_ns;
    for (int r = 0; r < RANKS; r++) {
        const char *at = strchr(letters, states[r]);
        e->beats[r] = (nw_beat){.rank = at ? r : -1, .world = RANKS, .step = 40 + r};
        e->beats[r].state = at ? (nw_rank_state)(at - letters) : NW_RANK_STARTING;
        e->held[r].rank = -1;
    }
    return &e->outcome;
}

static nw_verdict judged(nw_launcher launcher, const char *states, int exit_code, int attempt)
{
    ending e;
    nw_launch_plan plan = {.launcher = launcher, .ranks = RANKS};
    return nw_launch_judge(&plan, ended(&e, states, exit_code), attempt);
}

TEST(verdicts)
{
    const nw_launcher mpi = NW_LAUNCHER_OPEN_MPI, direct = NW_LAUNCHER_DIRECT;
    assert_int_equal(judged(mpi, "ddd", 0, 1), NW_VERDICT_FINISHED);
    assert_int_equal(judged(mpi, "...", 0, 1), NW_VERDICT_FINISHED);
    assert_int_equal(judged(mpi, "iii", 4, 1), NW_VERDICT_INTERRUPTED);
    assert_int_equal(judged(mpi, "iic", 4, 1), NW_VERDICT_LOST); /* one left without a word, and the rest was told to */
    assert_int_equal(judged(mpi, "ffc", 5, 1), NW_VERDICT_LOST);
    assert_int_equal(judged(mpi, "...", 5, 1), NW_VERDICT_LOST);
    assert_int_equal(judged(mpi, "wcw", 137, 1), NW_VERDICT_LOST);
    assert_int_equal(judged(mpi, "wfw", 1, 1), NW_VERDICT_REFUSED); /* it says why */
    assert_int_equal(judged(mpi, "wcw", 1, 1), NW_VERDICT_LOST);    /* a daemon on another machine died */
    assert_int_equal(judged(mpi, "fff", 1, 1), NW_VERDICT_REFUSED);
    for (int code = 2; code <= 3; code++) assert_int_equal(judged(mpi, "scs", code, 2), NW_VERDICT_REFUSED);
    assert_int_equal(judged(mpi, "...", 1, 1), NW_VERDICT_REFUSED); /* no such host */
    assert_int_equal(judged(mpi, "...", 205, 1), NW_VERDICT_REFUSED);
    assert_int_equal(judged(mpi, "...", 205, 2), NW_VERDICT_LOST); /* it was there before */
    assert_int_equal(judged(mpi, "...", 1, 2), NW_VERDICT_LOST);
    assert_int_equal(judged(direct, "...", 139, 1), NW_VERDICT_LOST);
    assert_int_equal(judged(direct, "...", 4, 1), NW_VERDICT_INTERRUPTED);
    assert_int_equal(judged(direct, "...", 1, 2), NW_VERDICT_REFUSED);

    ending e;
    nw_launch_plan plan = {.launcher = mpi, .ranks = RANKS};
    nw_launch_outcome *o = ended(&e, "wcw", 1);
    o->word = (nw_launch_word){.rank = 1, .signal = -1, .exit_code = 1};
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_REFUSED);
    o = ended(&e, "...", 137);
    o->word = (nw_launch_word){.rank = 1, .signal = 9, .exit_code = -1}; /* hearts are off, but it had begun */
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_LOST);
    o = ended(&e, "wcw", 0);
    o->stalled = true;
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_LOST);
    o->asked = true;
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_FINISHED);
    o->killed = true;
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_INTERRUPTED);
    o = ended(&e, "iii", 0); /* the launcher lost their exit codes */
    o->asked = true;
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_INTERRUPTED);
    o = ended(&e, "iii", 5); /* asked to stop, one was quicker than the others liked */
    o->asked = true;
    assert_int_equal(nw_launch_judge(&plan, o, 1), NW_VERDICT_INTERRUPTED);
}

static void assert_blame(nw_launch_outcome *o, const char *want, int rank, const char *fate)
{
    nw_launch_plan plan = {.launcher = NW_LAUNCHER_OPEN_MPI, .ranks = RANKS};
    bool blamed[RANKS];
    char got[RANKS + 1] = "", text[128];
    int count = nw_launch_blame(&plan, o, blamed), stars = 0;
    for (int r = 0; r < RANKS; r++) got[r] = blamed[r] ? '*' : '-', stars += blamed[r];
    assert_string_equal(got, want);
    assert_int_equal(count, stars);
    nw_launch_fate(&plan, o, rank, text, sizeof text);
    assert_string_equal(text, fate);
}

TEST(who_is_to_blame)
{
    ending e;
    nw_launch_outcome *o = ended(&e, "wcw", 137);
    o->word = (nw_launch_word){.rank = 2, .signal = 9, .exit_code = -1};
    assert_blame(o, "--*", 2, "died of signal 9 (Killed)");
    o->word = (nw_launch_word){.rank = 0, .signal = -1, .exit_code = 7};
    assert_blame(o, "*--", 0, "ended with exit code 7");
    o->word = (nw_launch_word){.rank = 9, .signal = 9, .exit_code = -1}; /* no such rank: what is seen counts */
    assert_blame(o, "-*-", 1, "was lost");
    o = ended(&e, "wcw", 1);
    o->stalled = e.stuck[2] = true;
    o->still_ns = 12500000000;
    assert_blame(o, "--*", 2, "stood still for 12.5 s while others waited");
    o->stopped = true;
    assert_blame(o, "--*", 2, "was stopped by a signal for 12.5 s while others waited");
    o = ended(&e, "www", 137);
    assert_blame(o, "***", 0, "was lost");
    o = ended(&e, "ddd", 1);
    assert_blame(o, "---", 0, "was lost");

    o = ended(&e, "fcc", 5); /* rank 1 was well until the end */
    o->word = (nw_launch_word){.rank = 0, .signal = -1, .exit_code = 5};
    e.quiet_ns[1] = 1000000, e.quiet_ns[2] = 60000000000;
    assert_blame(o, "--*", 2, "stood still for 60.0 s until the others gave up");
    o = ended(&e, "fii", 5); /* the end of the job woke it up */
    e.held[1] = (nw_beat){.rank = 1, .world = RANKS, .state = NW_RANK_COMPUTING, .step = 41};
    e.held_ns[1] = 9000000000;
    assert_blame(o, "-*-", 1, "stood still for 9.0 s until the others gave up");
    assert_int_equal(e.beats[1].state, NW_RANK_COMPUTING);
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
        cmocka_unit_test(what_launchers_say), cmocka_unit_test(verdicts),
        cmocka_unit_test(who_is_to_blame),    cmocka_unit_test(questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
