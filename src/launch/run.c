/*
 * run.c - one attempt of a job: mpirun, srun or a single train, from its start to its end. See launch.h.
 *
 * The signals that ask to stop are blocked and taken one by one (sigtimedwait), so everything happens in one loop of
 * one thread. The first goes to the ranks, who write a checkpoint; a later one is impatience and ends the job: the
 * starter is asked first, since only it reaches other machines, and killed if it does not obey. That no
 * rank outlives the job is the starter's business.
 */
#define _GNU_SOURCE 1
#include "launch/launch.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const int64_t SECOND = 1000000000;
enum { SAME_WISH = 1, GENTLE = 5, ASK = 10 }; /* seconds */
enum { OPEN_MPI_LOST_MACHINE = 205 };         /* what mpirun ends with when its daemon on another machine is gone */

/* ---- signals ----------------------------------------------------------------------------------------------------- */

void nw_supervisor_begin(nw_supervisor *s)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGUSR1, SIGCHLD};
    struct sigaction hangup;
    *s = (nw_supervisor){0};
    sigemptyset(&s->taken);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) sigaddset(&s->taken, wanted[i]);
    bool nohup = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    if (!nohup) sigaddset(&s->taken, SIGHUP);
    sigprocmask(SIG_BLOCK, &s->taken, &s->before);
    signal(SIGCHLD, SIG_DFL); /* or nobody could wait for the job */
    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, &s->pipe_before); /* the job goes on unread */
}

void nw_supervisor_end(nw_supervisor *s)
{
    sigaction(SIGPIPE, &s->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

/* The next signal that asks to stop; 0: none within the time, or news of the job. */
static int next_wish(const nw_supervisor *s, int64_t ns)
{
    struct timespec limit = {.tv_sec = ns / SECOND, .tv_nsec = ns % SECOND};
    int number = sigtimedwait(&s->taken, NULL, &limit);
    return number > 0 && number != SIGCHLD ? number : 0;
}

bool nw_supervisor_pause(nw_supervisor *s, double seconds)
{
    int64_t end = nw_now_ns() + (int64_t)(seconds * 1e9);
    for (int64_t now; !s->asked && (now = nw_now_ns()) < end;) s->asked = next_wish(s, end - now) != 0;
    return !s->asked;
}

/* ---- the attempt ------------------------------------------------------------------------------------------------- */

/* Ends with exit code 127, like a shell, where there is nothing to exec. */
static void become_job(const nw_supervisor *s, const nw_launch_job *job)
{
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    setpgid(0, 0);                    /* a terminal's Ctrl-C comes to us alone */
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* the job does not outlive us */
    sigaction(SIGPIPE, &s->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    if (job->root) {
        static const char *const names[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                            "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i], "1", 1);
    }
    execvp(job->line->at[0], job->line->at);
    dprintf(STDERR_FILENO, "nowait: cannot start %s: %s\n", job->line->at[0], strerror(errno));
    _exit(127);
}

nw_status nw_launch_run(nw_supervisor *s, const nw_launch_job *job, int *exit_code)
{
    fflush(NULL);
    pid_t child = fork(), ended;
    NW_FAIL_IF(child < 0, NW_E_SYSTEM, "cannot start a process: %s", strerror(errno));
    if (child == 0) become_job(s, job);
    int64_t asked = 0, patience = INT64_MAX;
    int state;
    while ((ended = waitpid(child, &state, WNOHANG)) == 0) {
        bool wish = next_wish(s, SECOND) != 0;
        int64_t now = nw_now_ns();
        if (wish && !s->asked) {
            s->asked = true;
            asked = now;
            kill(child, job->stop_signal);
        } else if (wish && now - asked > SAME_WISH * SECOND && !s->killed) {
            s->killed = true;
            patience = now + GENTLE * SECOND;
            kill(child, job->kill_signal);
        }
        if (now > patience) kill(child, SIGKILL);
    }
    NW_FAIL_IF(ended < 0, NW_E_SYSTEM, "waiting for the job failed: %s", strerror(errno));
    *exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return NW_OK;
}

int nw_launch_signal(nw_launcher launcher, int exit_code)
{
    bool bare = launcher == NW_LAUNCHER_MPICH && exit_code > nw_status_exit_code(NW_E_PEER);
    int number = exit_code > 128 ? exit_code - 128 : bare ? exit_code : 0;
    return number <= 64 ? number : 0;
}

bool nw_launch_lost(nw_launcher launcher, int exit_code)
{
    bool machine = launcher == NW_LAUNCHER_OPEN_MPI && exit_code == OPEN_MPI_LOST_MACHINE;
    return exit_code == nw_status_exit_code(NW_E_PEER) || machine || nw_launch_signal(launcher, exit_code) > 0;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

nw_status nw_launch_ask(const char *program, const char *argument, char *answer, size_t size)
{
    int ends[2];
    size_t used = 0;
    NW_FAIL_IF(pipe2(ends, O_CLOEXEC) != 0, NW_E_SYSTEM, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execlp(program, program, argument, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    int64_t deadline = nw_now_ns() + ASK * SECOND;
    for (struct pollfd one = {.fd = ends[0], .events = POLLIN}; child > 0 && nw_now_ns() < deadline;) {
        char rest[256];
        if (poll(&one, 1, 100) <= 0) continue;
        bool room = used + 1 < size;
        ssize_t bytes = read(ends[0], room ? answer + used : rest, room ? size - 1 - used : sizeof rest);
        if (bytes == 0 || (bytes < 0 && errno != EINTR)) break;
        if (room && bytes > 0) used += (size_t)bytes;
    }
    answer[used] = 0;
    close(ends[0]);
    NW_FAIL_IF(child < 0, NW_E_SYSTEM, "cannot start %s", program);
    kill(child, SIGKILL); /* it has said all it has to say, or is too late */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    return NW_OK;
}
