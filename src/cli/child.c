/* child.c - see child.h. */
#include "cli/child.h"

#include "base/file.h"
#include "base/json_read.h"
#include "train/checkpoint.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SUMMARY = 1 << 20 };

static nw_status read_fields(const nw_json_document *d, bool *done, nw_child_result *result)
{
    const nw_json_value *value;
    const char *state;
    NW_TRY(nw_json_get_text(d, d->values, "status", &state));
    *done = strcmp(state, "done") == 0;
    if (!*done) return NW_OK;
    NW_TRY(nw_json_get(d, d->values, "test_top1", NW_JSON_NUMBER, &value));
    result->test_top1 = value->number;
    NW_TRY(nw_json_get(d, d->values, "train_seconds", NW_JSON_NUMBER, &value));
    result->train_seconds = value->number;
    return NW_OK;
}

/* Whether the run is done, and what it reached. */
static nw_status read_summary(const char *dir, bool *done, nw_child_result *result)
{
    char *path, *text = NULL;
    size_t size;
    *done = false;
    NW_TRY(nw_path_join(&path, dir, "summary.json"));
    if (!nw_file_is_regular(path)) {
        free(path);
        return NW_OK;
    }
    nw_json_document document;
    nw_status status = nw_file_read(path, MOST_SUMMARY, &text, &size);
    if (status == NW_OK) status = nw_json_parse(&document, text, size, path);
    if (status == NW_OK) {
        status = read_fields(&document, done, result);
        nw_json_free(&document);
    }
    free(text);
    free(path);
    return status;
}

/* ---- the process ------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t child; /* 0: none */
static volatile sig_atomic_t stopped;

static void pass_on(int number)
{
    stopped = 1;
    if (child > 0) kill((pid_t)child, number);
}

/* From here on a wish to stop goes to the child, which ends at its next step; then nothing more is started. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* A child whose parent is killed stops too: nobody would wait for it, and the next call would find it at work. */
static void become_child(char *const *arguments, const sigset_t *mask)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

static nw_status run(char *const *arguments, int *exit_code)
{
    sigset_t both, before;
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    catch_signals();
    fflush(NULL);
    sigprocmask(SIG_BLOCK, &both, &before); /* none is lost between fork and the note of the child's number */
    pid_t number = stopped ? 0 : fork();
    if (number == 0 && !stopped) become_child(arguments, &before);
    child = number > 0 ? number : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    NW_FAIL_IF(number < 0, NW_E_SYSTEM, "cannot start a process: %s", strerror(errno));
    NW_FAIL_IF(number == 0, NW_E_INTERRUPTED, "interrupted; the same command goes on");
    int state;
    while (waitpid(number, &state, 0) < 0)
        NW_FAIL_IF(errno != EINTR, NW_E_SYSTEM, "waiting for a run failed: %s", strerror(errno));
    child = 0;
    *exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return NW_OK;
}

static nw_status train(const char *dir, char *const *arguments, int count)
{
    enum { OWN = 8 };
    char **all = calloc((size_t)count + OWN, sizeof *all);
    NW_FAIL_IF(!all, NW_E_MEMORY, "no memory for the arguments");
    int n = 0, exit_code = 0;
    all[n++] = (char *)"nowait";
    all[n++] = (char *)"train";
    for (int i = 0; i < count; i++) all[n++] = arguments[i];
    all[n++] = (char *)"--run-dir";
    all[n++] = (char *)dir;
    if (nw_checkpoint_exists(dir)) {
        all[n++] = (char *)"--resume";
        all[n++] = (char *)dir;
    }
    nw_status status = run(all, &exit_code);
    free(all);
    NW_TRY(status);
    NW_FAIL_IF(exit_code == nw_status_exit_code(NW_E_INTERRUPTED), NW_E_INTERRUPTED,
               "interrupted in %s; the same command goes on", dir);
    NW_FAIL_IF(exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM, NW_E_INTERRUPTED,
               "interrupted before %s had its first checkpoint; the same command begins it again", dir);
    NW_FAIL_IF(exit_code != 0, NW_E_SYSTEM, "the run in %s ended with exit code %d; see its message above", dir,
               exit_code);
    return NW_OK;
}

nw_status nw_child_train(const char *dir, char *const *arguments, int count, bool quiet, nw_child_result *result)
{
    bool done;
    NW_TRY(read_summary(dir, &done, result));
    if (done) return NW_OK;
    if (!quiet) fprintf(stderr, "nowait: training in %s\n", dir);
    NW_TRY(train(dir, arguments, count));
    NW_TRY(read_summary(dir, &done, result));
    NW_FAIL_IF(!done, NW_E_INTERNAL, "the run in %s ended well but its summary.json does not say so", dir);
    return NW_OK;
}
