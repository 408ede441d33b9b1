/*
 * fake_mpirun.c - stands in for mpirun in tests of `nowait launch`: starts ranks that count steps, in lockstep with
 * each other, and meet the ends that the test asks for. Nothing is trained.
 *
 *   mpirun -np N [options] PROGRAM train ... --run-dir=RUN [--resume=RUN] ...
 *
 * As the real one: every rank has a process group of its own and does not outlive the launcher; SIGUSR1 is passed on to
 * the ranks; SIGTERM ends them at once; a rank that ends badly takes the others with it, and its code becomes that of
 * the job.
 *
 *   FAKE_LOG     file to which each call adds its arguments, a line each; the lines before are the earlier attempts
 *   FAKE_SCRIPT  "ATTEMPT:RANK:ACTION:STEP ...": at that step of that attempt the rank does: kill, crash (SIGSEGV),
 *                hang, fail (exit code 1), refuse (2), file (3), lost (5). Attempt 0 is every attempt.
 *   FAKE_STEPS   steps of a job; rank 0 saves after every second one
 *   FAKE_DEAF    the launcher ignores SIGTERM
 */
#define _GNU_SOURCE 1
#include "base/file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64 };

static volatile sig_atomic_t asked;
static pid_t ranks[MOST_RANKS];
static int world = 1, attempt = 1;
static const char *run_dir = "";
static bool resumed;
static _Atomic int64_t *steps_of; /* of each rank, in memory that all share; INT64_MAX: it has left */

static void on_stop(int number) { asked = number; }

static void sleep_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

static int number_of(const char *variable, int otherwise)
{
    const char *text = getenv(variable);
    return text && text[0] ? atoi(text) : otherwise;
}

/* ---- a rank ------------------------------------------------------------------------------------------------------ */

static void save(int64_t step)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/checkpoints/%lld", run_dir, (long long)step);
    nw_directory_make(path);
    strcat(path, "/manifest.json");
    nw_file_replace(path, "{}", 2);
}

/* The step that the newest checkpoint has. */
static int64_t saved_step(void)
{
    char path[4096];
    nw_names names = {0};
    int64_t newest = 0;
    snprintf(path, sizeof path, "%s/checkpoints", run_dir);
    if (nw_file_is_directory(path) && nw_directory_list(&names, path) == NW_OK)
        for (int i = 0; i < names.count; i++)
            if (atoll(names.at[i]) > newest) newest = atoll(names.at[i]);
    nw_names_free(&names);
    return newest;
}

/* What the script has for this rank at this step. */
static bool scripted(const char *action, int rank, int64_t step)
{
    const char *text = getenv("FAKE_SCRIPT");
    char word[16];
    int at_attempt, at_rank, at_step, used;
    while (text && sscanf(text, " %d:%d:%15[a-z]:%d%n", &at_attempt, &at_rank, word, &at_step, &used) == 4) {
        bool now = (at_attempt == 0 || at_attempt == attempt) && at_rank == rank && at_step == step;
        if (now && strcmp(word, action) == 0) return true;
        text += used;
    }
    return false;
}

static void act(int rank, int64_t step)
{
    static const struct {
        const char *action;
        int exit_code;
    } ends[] = {{"fail", 1}, {"refuse", 2}, {"file", 3}, {"lost", 5}};
    if (scripted("kill", rank, step)) raise(SIGKILL);
    if (scripted("crash", rank, step)) raise(SIGSEGV);
    while (scripted("hang", rank, step)) sleep_ms(1000);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (scripted(ends[i].action, rank, step)) exit(ends[i].exit_code);
}

/* Until all have come to this step, or one was asked to stop. */
static void wait_for_others(int rank, int64_t step)
{
    steps_of[rank] = step;
    for (int other = 0, waited = 0; other < world; waited += 2) {
        while (other < world && steps_of[other] >= step) other++;
        if (asked && waited > 200) return;
        if (other < world) sleep_ms(2);
    }
}

static int be_rank(int rank)
{
    int64_t steps = number_of("FAKE_STEPS", 10), step = resumed ? saved_step() : 0;
    while (step < steps && !asked) {
        step++;
        sleep_ms(5);
        wait_for_others(rank, step); /* rank 0 has saved the step before by then */
        act(rank, step);
        if (rank == 0 && step % 2 == 0) save(step);
    }
    if (asked && rank == 0) save(step);
    steps_of[rank] = INT64_MAX;
    if (rank == 0) printf("rank 0 ends at step %lld\n", (long long)step);
    fflush(NULL);
    sleep_ms(asked ? 100 : 0); /* so that the first to leave does not end the others on their way */
    return asked ? 4 : 0;
}

/* ---- the launcher ------------------------------------------------------------------------------------------------ */

static void read_arguments(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && (strcmp(argv[i], "-np") == 0 || strcmp(argv[i], "-n") == 0)) world = atoi(argv[i + 1]);
        if (strncmp(argv[i], "--ntasks=", 9) == 0) world = atoi(argv[i] + 9);
        if (strncmp(argv[i], "--run-dir=", 10) == 0) run_dir = argv[i] + 10;
        if (strncmp(argv[i], "--resume=", 9) == 0) resumed = true;
    }
    const char *log = getenv("FAKE_LOG");
    FILE *file = log ? fopen(log, "a+") : NULL;
    if (!file) return;
    for (int c; (c = getc(file)) != EOF;) attempt += c == '\n';
    for (int i = 1; i < argc; i++) fprintf(file, "%s%s", i > 1 ? " " : "", argv[i]);
    fputc('\n', file);
    fclose(file);
}

static void kill_all(int number)
{
    for (int r = 0; r < world; r++)
        if (ranks[r] > 0) kill(ranks[r], number);
}

static int be_launcher(void)
{
    int code = 0, left = world;
    bool told = false;
    while (left > 0) {
        int state, rank = 0;
        pid_t pid = waitpid(-1, &state, 0);
        if (asked == SIGUSR1 && !told) kill_all(SIGUSR1), told = true;
        if (asked == SIGTERM) {
            kill_all(SIGKILL);
            return 1;
        }
        if (pid <= 0) continue;
        while (rank < world && ranks[rank] != pid) rank++;
        left--;
        ranks[rank] = 0;
        if (state == 0 || code != 0) continue;
        code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
        if (!told) kill_all(SIGKILL);
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts("mpirun (Open MPI) 4.1.4");
        return 0;
    }
    read_arguments(argc, argv);
    if (world < 1 || world > MOST_RANKS || !run_dir[0]) return 1;
    struct sigaction action = {.sa_handler = on_stop}; /* interrupts waiting */
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    if (getenv("FAKE_DEAF")) action.sa_handler = SIG_IGN;
    sigaction(SIGTERM, &action, NULL);
    steps_of = mmap(NULL, MOST_RANKS * sizeof *steps_of, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (steps_of == MAP_FAILED) return 1;
    for (int r = 0; r < world; r++) {
        ranks[r] = fork();
        if (ranks[r] == 0) {
            setpgid(0, 0);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            exit(be_rank(r));
        }
    }
    return be_launcher();
}
