/* child.c - see child.h. */
#include "experiment/child.h"

#include "base/file.h"
#include "base/json_read.h"
#include "config/option_table.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_SUMMARY = 1 << 20 };

static double number_of(const nw_json_document *d, const char *key)
{
    const nw_json_value *value = nw_json_find(d->values, key);
    return value && value->type == NW_JSON_NUMBER ? value->number : NAN;
}

static nw_status read_field(const nw_json_document *d, bool *done, const char *field, double *value)
{
    const char *state;
    NW_TRY(nw_json_get_text(d, d->values, "status", &state));
    *done = strcmp(state, "done") == 0;
    if (!*done || !field) return NW_OK;
    double virtual_seconds = number_of(d, "virtual_seconds");
    if (strcmp(field, "seconds_per_step") == 0)
        *value = (isfinite(virtual_seconds) ? virtual_seconds : number_of(d, "train_seconds")) / number_of(d, "steps");
    else
        *value = number_of(d, field);
    return NW_OK;
}

nw_status nw_child_done(const char *dir, bool *done, const char *field, double *value)
{
    NW_AUTOFREE char *path = NULL, *text = NULL;
    NW_CLEANUP(nw_json_free) nw_json_document document = {0};
    size_t size;
    *done = false;
    NW_TRY(nw_path_join(&path, dir, "summary.json"));
    if (!nw_file_is_regular(path)) return NW_OK;
    NW_TRY(nw_file_read(path, MOST_SUMMARY, &text, &size));
    NW_TRY(nw_json_parse(&document, text, size, path));
    return read_field(&document, done, field, value);
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

static nw_status run_child(char *const *arguments, int *exit_code)
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
    NW_FAIL_IF(number == 0, NW_E_INTERRUPTED, "interrupted; run the same command to continue");
    int state;
    while (waitpid(number, &state, 0) < 0)
        NW_FAIL_IF(errno != EINTR, NW_E_SYSTEM, "waiting for a run failed: %s", strerror(errno));
    child = 0;
    *exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    return NW_OK;
}

static bool is_word(const char *text) { return text && text[0] != '-'; }

int nw_child_keep(unsigned command, const char *const *own, int argc, char **argv, char **kept)
{
    int count = 0;
    for (int i = 0; i < argc; i++) {
        int index = strncmp(argv[i], "--", 2) == 0 && argv[i][2] ? nw_option_find(argv[i] + 2, command).index : -1;
        bool skip = false;
        for (int k = 0; own[k] && index >= 0; k++) skip |= strcmp(nw_option_at(index)->name, own[k]) == 0;
        if (!skip) {
            kept[count++] = argv[i];
            continue;
        }
        if (strchr(argv[i], '=')) continue;
        nw_option_kind kind = nw_option_at(index)->kind;
        bool list = kind == NW_OPTION_TEXTS || kind == NW_OPTION_INTS || kind == NW_OPTION_NUMBERS;
        bool flag = kind == NW_OPTION_FLAG; /* may have a value: --x True */
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (flag && (!next || (strcasecmp(next, "true") != 0 && strcasecmp(next, "false") != 0))) continue;
        if (is_word(next)) i++; /* its value */
        while (list && i + 1 < argc && is_word(argv[i + 1])) i++;
    }
    return count;
}

nw_status nw_child_run(const nw_words *line, const char *dir)
{
    int exit_code = 0;
    NW_TRY(run_child(line->at, &exit_code));
    NW_FAIL_IF(exit_code == nw_status_exit_code(NW_E_INTERRUPTED), NW_E_INTERRUPTED,
               "interrupted in %s; run the same command to continue", dir);
    NW_FAIL_IF(exit_code == 128 + SIGINT || exit_code == 128 + SIGTERM, NW_E_INTERRUPTED,
               "interrupted before %s had its first checkpoint; run the same command to begin it again", dir);
    NW_FAIL_IF(exit_code != 0, NW_E_SYSTEM, "the run in %s ended with exit code %d; see its message above", dir,
               exit_code);
    return NW_OK;
}
