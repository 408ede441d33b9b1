/*
 * command_launch.c - `nowait launch`: a supervisor around mpirun or srun.
 *
 *   nowait launch -n 4 --max-restarts 3 -- train --recipe demo
 *
 * Builds the line, starts it, passes on the signals that ask to stop, and starts the job again in the same run
 * directory when a rank was lost: from the newest checkpoint, or from the beginning where there is none yet. Who
 * watches are the ranks themselves (exit code 5: one of them says which other was lost) and mpirun or srun, whose exit
 * code tells of a rank that died of a signal, or of a machine that is gone.
 *
 * What ends a job for good: success, a wish to stop, what train refuses or fails at (exit codes 1 to 3: it would
 * again), or a budget of restarts that is used up. A new checkpoint since the last start makes the budget whole again:
 * a job on a shaky machine goes on for as long as it gets on.
 *
 * RUN/launch.log has a JSON line for each start, death, restart and the end.
 */
#define _GNU_SOURCE 1
#include "experiment/child.h"
#include "cli/command.h"
#include "launch/launch.h"
#include "setup/plan.h"
#include "setup/session.h"

#include "base/file.h"
#include "base/json.h"
#include "base/machine.h"
#include "net/launchers.h"
#include "base/append.h"
#include "checkpoint/steps.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

typedef struct launch {
    const nw_launch_options *own;
    const nw_train_options *options; /* of train */
    nw_words train;                  /* arguments of train, as the user gave them */
    nw_launch_spec plan;
    char program[4096];
    char *run_dir;
    int threads; /* for each rank, chosen by us; 0: train knows */
    nw_append log;
    int attempt;       /* from 1 on */
    int64_t saved;     /* the newest checkpoint's step when this attempt began; -1: none */
    int restarts_left; /* of the budget */
} launch;

/* What the user must know, also of quiet jobs. */
static void tell_user(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void tell_user(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("nowait launch: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

/* ---- the log ----------------------------------------------------------------------------------------------------- */

typedef struct entry {
    nw_text line;
    nw_json json;
} entry;

static bool log_begin(const launch *l, entry *e, const char *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    double milliseconds = (double)(now.tv_nsec / 1000000);
    if (nw_text_begin(&e->line) != NW_OK) return false;
    e->json = nw_json_begin(e->line.out, false);
    nw_json_object(&e->json);
    nw_json_put_string(&e->json, "event", event);
    nw_json_put_double(&e->json, "time", (double)now.tv_sec + milliseconds / 1000);
    nw_json_put_int(&e->json, "attempt", l->attempt);
    return true;
}

/* A log that cannot be written is said once, and no reason to stop. */
static void log_end(launch *l, entry *e)
{
    nw_json_object_end(&e->json);
    nw_json_end(&e->json);
    bool whole = nw_text_end(&e->line) == NW_OK;
    if (whole && l->log.file >= 0 && nw_append_write(&l->log, e->line.text, e->line.size) != NW_OK) {
        tell_user("%s", nw_error_message());
        nw_append_close(&l->log);
    }
    nw_text_free(&e->line);
}

static nw_status log_open(launch *l)
{
    NW_AUTOFREE char *path = NULL;
    NW_TRY(nw_directory_make(l->run_dir));
    NW_TRY(nw_path_join(&path, l->run_dir, "launch.log"));
    NW_TRY(nw_append_open(&l->log, path, NW_APPEND_CONTINUE));
    NW_FAIL_IF(flock(l->log.file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK, NW_E_ARGUMENT,
               "another 'nowait launch' supervises %s; wait until it ends, or choose another --run-dir", l->run_dir);
    return NW_OK;
}

/* ---- what is to be started --------------------------------------------------------------------------------------- */

/* What every command takes may also stand before the two dashes; behind them it wins. */
static nw_status take_train(launch *l, int count, char **arguments)
{
    static const char *const shared[] = {"run-dir", "seed", "threads", "data-dir", "quiet"};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++)
        if (nw_settings_is_set(l->own->settings, shared[i]))
            NW_TRY(
                nw_words_add_format(&l->train, "--%s=%s", shared[i], nw_settings_value(l->own->settings, shared[i])));
    for (int i = 0; i < count; i++) NW_TRY(nw_words_add(&l->train, arguments[i]));
    return NW_OK;
}

/* Reads the arguments as train will, so that mistakes are found before anything is started. */
static nw_status read_train(const launch *l, nw_settings **settings)
{
    NW_AUTOFREE char **copy = calloc((size_t)l->train.count + 1, sizeof *copy);
    NW_FAIL_IF(!copy, NW_E_MEMORY, "no memory for the arguments");
    for (int i = 0; i < l->train.count; i++) copy[i] = l->train.at[i];
    int positional = 0;
    NW_TRY(nw_session_parse(NW_COMMAND_TRAIN, l->train.count, copy, settings, &positional));
    const nw_train_options *options = nw_train_options_of(*settings);
    const nw_job_settings *job = &options->job;
    NW_FAIL_IF(job->print_config || job->evaluate || strcmp(job->recipe, "list") == 0, NW_E_ARGUMENT,
               "'nowait launch' is for training; for anything else call 'nowait train' itself");
    return nw_plan_check(options);
}

static bool find_in_path(const char *name)
{
    const char *path = getenv("PATH");
    char file[4096];
    while (path && *path) {
        size_t length = strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/%s", (int)length, path, name);
        if (length > 0 && access(file, X_OK) == 0 && nw_file_is_regular(file)) return true;
        path += length + (path[length] == ':');
    }
    return false;
}

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value && value[0];
}

static nw_status choose_launcher(launch *l)
{
    const char *wanted = l->own->launch->launcher;
    nw_launch_spec *p = &l->plan;
    p->allocation = is_set("SLURM_JOB_ID") || is_set("PBS_NODEFILE") || is_set("LSB_DJOB_HOSTFILE");
    p->launcher = NW_LAUNCHER_DIRECT;
    if (l->own->launch->ranks == 1 && strcmp(wanted, "auto") == 0) return NW_OK;
    bool has_srun = find_in_path("srun"), inside = is_set("SLURM_JOB_ID");
    const char *mpirun = find_in_path("mpirun") ? "mpirun" : find_in_path("mpiexec") ? "mpiexec" : NULL;
    bool use_srun = strcmp(wanted, "srun") == 0 || (strcmp(wanted, "auto") == 0 && has_srun && (inside || !mpirun));
    NW_FAIL_IF(use_srun && !has_srun, NW_E_UNSUPPORTED, "there is no srun in PATH; use --launcher mpirun");
    NW_FAIL_IF(
        !use_srun && !mpirun, NW_E_UNSUPPORTED,
        "there is no mpirun in PATH; install one (Debian: openmpi-bin), load its module, or train with one rank");
    p->starter = use_srun ? "srun" : mpirun;
    p->launcher = NW_LAUNCHER_SRUN;
    if (use_srun) return NW_OK;
    char version[1024];
    NW_TRY(nw_launch_ask(mpirun, "--version", version, sizeof version));
    p->launcher = nw_launch_family(version);
    return NW_OK;
}

/* One of many copies of us would start a job each. */
static nw_status check_alone(void)
{
    nw_promise p = nw_launchers_promise(NULL, NULL);
    NW_FAIL_IF(p.size > 1, NW_E_ARGUMENT,
               "'nowait launch' starts the ranks itself, but %s=%d says that it was started %d times; call it once, "
               "without mpirun or srun",
               p.variable, p.size, p.size);
    return NW_OK;
}

/* Every rank would take all CPUs of this machine. */
static void choose_threads(launch *l)
{
    const nw_launch_spec *p = &l->plan;
    bool one_machine = !p->hosts[0] && !p->allocation && p->launcher != NW_LAUNCHER_SRUN;
    if (p->ranks > p->cpus && one_machine && !l->own->all->quiet)
        tell_user("%d ranks share %d CPUs: they take turns, and each step waits for the slowest", p->ranks, p->cpus);
    if (p->ranks == 1 || l->options->all.threads > 0 || !one_machine) return;
    l->threads = p->ranks < p->cpus ? p->cpus / p->ranks : 1;
    if (!l->own->all->quiet) tell_user("%d ranks on %d CPUs: --threads %d each", p->ranks, p->cpus, l->threads);
}

static nw_status attempt_line(const launch *l, bool resume, nw_words *line);

static nw_status make_plan(launch *l)
{
    nw_launch_spec *p = &l->plan;
    ssize_t length = readlink("/proc/self/exe", l->program, sizeof l->program - 1);
    NW_FAIL_IF(length <= 0, NW_E_SYSTEM, "cannot find this program's own file: %s", strerror(errno));
    l->program[length] = 0;
    *p = (nw_launch_spec){.program = l->program,
                          .ranks = l->own->launch->ranks,
                          .cpus = nw_machine_allowed_cpus(),
                          .hosts = l->own->launch->hosts,
                          .launcher_args = l->own->launch->launcher_args};
    NW_FAIL_IF(p->hosts[0] && !nw_file_is_regular(p->hosts), NW_E_FILE,
               "--hosts %s: there is no such file; it has a line for each host, for instance 'node1 slots=2'",
               p->hosts);
    NW_TRY(check_alone());
    NW_TRY(choose_launcher(l));
    choose_threads(l);
    NW_CLEANUP(nw_words_free) nw_words line = {0};
    return attempt_line(l, false, &line); /* mistakes in it are found before anything is made */
}

/* The arguments of one attempt: the user's, and ours before whatever ends the options. The last of repeated ones
 * wins. */
static nw_status attempt_arguments(const launch *l, bool resume, nw_words *words)
{
    int end = 0;
    while (end < l->train.count && strcmp(l->train.at[end], "--") != 0) end++;
    for (int i = 0; i < end; i++) NW_TRY(nw_words_add(words, l->train.at[i]));
    if (l->threads > 0) NW_TRY(nw_words_add_format(words, "--threads=%d", l->threads));
    NW_TRY(nw_words_add_format(words, "--run-dir=%s", l->run_dir));
    if (resume) NW_TRY(nw_words_add_format(words, "--resume=%s", l->run_dir));
    for (int i = end; i < l->train.count; i++) NW_TRY(nw_words_add(words, l->train.at[i]));
    return NW_OK;
}

static nw_status attempt_line(const launch *l, bool resume, nw_words *line)
{
    NW_CLEANUP(nw_words_free) nw_words words = {0};
    NW_TRY(attempt_arguments(l, resume, &words));
    return nw_launch_line(&l->plan, &words, line);
}

/* ---- what happened ----------------------------------------------------------------------------------------------- */

/* The highest step of RUN/checkpoints; -1: none. */
static int64_t newest_checkpoint(const char *run_dir)
{
    NW_AUTOFREE char *dir = NULL;
    NW_CLEANUP(nw_steps_free) nw_steps steps = {0};
    bool listed = nw_checkpoint_exists(run_dir) && nw_path_join(&dir, run_dir, "checkpoints") == NW_OK &&
                  nw_steps_list(&steps, dir) == NW_OK;
    return listed && steps.count > 0 ? steps.at[0] : -1;
}

static void tell_death(launch *l, int exit_code)
{
    int number = nw_launch_signal(l->plan.launcher, exit_code);
    const char *name = number > 0 ? sigdescr_np(number) : NULL;
    entry e;
    if (number > 0)
        tell_user("a rank died of signal %d (%s), as exit code %d tells", number, name ? name : "unknown", exit_code);
    else if (exit_code == nw_status_exit_code(NW_E_PEER))
        tell_user("a rank was lost; what the others knew is in %s/dumps", l->run_dir);
    else
        tell_user("a machine was lost, as exit code %d tells", exit_code);
    if (!log_begin(l, &e, "death")) return;
    nw_json_put_int(&e.json, "exit_code", exit_code);
    if (number > 0) nw_json_put_int(&e.json, "signal", number);
    log_end(l, &e);
}

/* ---- attempts ---------------------------------------------------------------------------------------------------- */

static nw_status run_attempt(launch *l, nw_supervisor *supervisor, bool resume, int *exit_code)
{
    NW_CLEANUP(nw_words_free) nw_words line = {0};
    NW_AUTOFREE char *text = NULL;
    entry e;
    NW_TRY(attempt_line(l, resume, &line));
    NW_TRY(nw_words_quote(&line, &text));
    nw_launcher launcher = l->plan.launcher;
    bool mpirun = launcher == NW_LAUNCHER_OPEN_MPI || launcher == NW_LAUNCHER_MPICH;
    nw_launch_job job = {.line = &line,
                         .stop_signal = launcher == NW_LAUNCHER_SRUN ? SIGTERM : SIGUSR1,
                         .kill_signal = launcher == NW_LAUNCHER_DIRECT ? SIGKILL : SIGTERM,
                         .root = mpirun && geteuid() == 0};
    l->saved = newest_checkpoint(l->run_dir);
    if (l->attempt == 1 && !l->own->all->quiet)
        tell_user("%d rank%s in %s", l->plan.ranks, l->plan.ranks == 1 ? "" : "s", l->run_dir);
    if (log_begin(l, &e, "start")) {
        nw_json_put_int(&e.json, "ranks", l->plan.ranks);
        nw_json_put_string(&e.json, "command", text);
        log_end(l, &e);
    }
    return nw_launch_run(supervisor, &job, exit_code);
}

/* Uses up one restart; false if there is none left. */
static bool take_restart(launch *l)
{
    int64_t now = newest_checkpoint(l->run_dir);
    if (now > l->saved) l->restarts_left = l->own->launch->max_restarts;
    if (l->restarts_left == 0) return false;
    l->restarts_left--;
    char from[48] = "from the beginning: there is no checkpoint yet";
    if (now >= 0) snprintf(from, sizeof from, "from step %lld", (long long)now);
    tell_user("restarting %s (%d of %d restarts without a new checkpoint left)", from, l->restarts_left,
              l->own->launch->max_restarts);
    entry e;
    if (log_begin(l, &e, "restart")) {
        nw_json_put_int(&e.json, "from_step", now < 0 ? 0 : now);
        nw_json_put_int(&e.json, "restarts_left", l->restarts_left);
        log_end(l, &e);
    }
    return true;
}

/* Of a job that ended by itself, with its message above. */
static nw_status failed(const launch *l, int exit_code)
{
    if (exit_code == 2) return NW_FAIL(NW_E_ARGUMENT, "train refused to begin; see its message above");
    if (exit_code == 3) return NW_FAIL(NW_E_FILE, "train found a bad input file; see its message above");
    if (exit_code == 127)
        return NW_FAIL(NW_E_SYSTEM, "%s could not start the ranks; see its message above",
                       l->plan.starter ? l->plan.starter : l->program);
    return NW_FAIL(NW_E_SYSTEM, "the job in %s failed with exit code %d; see its message above", l->run_dir, exit_code);
}

static nw_status interrupted(const launch *l)
{
    if (newest_checkpoint(l->run_dir) >= 0)
        return NW_FAIL(NW_E_INTERRUPTED, "interrupted; continue with: nowait launch -n %d -- train --resume %s",
                       l->plan.ranks, l->run_dir);
    return NW_FAIL(NW_E_INTERRUPTED,
                   "interrupted before %s had its first checkpoint; run the same command to begin again", l->run_dir);
}

/* Of a job that was asked to stop. MPICH's launcher at times says 0 when it was signalled, whatever its ranks say. */
static nw_status stopped(const launch *l, int exit_code, bool killed)
{
    bool done = false;
    if (killed) return interrupted(l);
    if (exit_code == 0) NW_TRY(nw_child_done(l->run_dir, &done, NULL, NULL));
    if (done) return NW_OK;
    return exit_code >= 1 && exit_code <= 3 ? failed(l, exit_code) : interrupted(l);
}

/* One attempt, and what follows from it: *again, or a status for good. */
static nw_status attempt(launch *l, nw_supervisor *supervisor, bool *again)
{
    int code = 0;
    bool resume = l->attempt > 1 && nw_checkpoint_exists(l->run_dir);
    *again = false;
    NW_TRY(run_attempt(l, supervisor, resume, &code));
    if (supervisor->asked) return stopped(l, code, supervisor->killed);
    if (code == 0) return NW_OK;
    if (code == nw_status_exit_code(NW_E_INTERRUPTED)) return interrupted(l);
    if (!nw_launch_lost(l->plan.launcher, code)) return failed(l, code);
    tell_death(l, code);
    *again = take_restart(l);
    NW_FAIL_IF(!*again, NW_E_PEER,
               "a rank was lost, and %d restart%s brought no new checkpoint; after the cause is gone, continue with: "
               "nowait launch -n %d -- train --resume %s",
               l->own->launch->max_restarts, l->own->launch->max_restarts == 1 ? "" : "s", l->plan.ranks, l->run_dir);
    return NW_OK;
}

static nw_status supervise(launch *l)
{
    nw_supervisor supervisor;
    nw_supervisor_begin(&supervisor);
    nw_status status = log_open(l);
    bool again = status == NW_OK;
    l->restarts_left = l->own->launch->max_restarts;
    for (l->attempt = 1; again; l->attempt++) {
        status = attempt(l, &supervisor, &again);
        if (again && !nw_supervisor_pause(&supervisor, l->own->launch->restart_delay)) {
            again = false;
            status = interrupted(l);
        }
        if (!again) break;
    }
    entry e;
    if (l->log.file >= 0 && log_begin(l, &e, "end")) {
        nw_json_put_int(&e.json, "exit_code", nw_status_exit_code(status));
        nw_json_put_string(&e.json, "message", status == NW_OK ? "done" : nw_error_message());
        log_end(l, &e);
    }
    nw_append_close(&l->log);
    nw_supervisor_end(&supervisor);
    return status;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static nw_status print_line(const launch *l)
{
    NW_CLEANUP(nw_words_free) nw_words line = {0};
    NW_AUTOFREE char *text = NULL;
    NW_TRY(attempt_line(l, false, &line));
    NW_TRY(nw_words_quote(&line, &text));
    printf("%s\n", text);
    return NW_OK;
}

static void free_launch(launch *l)
{
    nw_words_free(&l->train);
    free(l->run_dir);
}

static nw_status launch_with(const nw_launch_options *own, int count, char **arguments)
{
    NW_CLEANUP(nw_settings_free) nw_settings *train = NULL;
    NW_CLEANUP(free_launch) launch l = {.own = own, .log = {.file = -1}};
    NW_AUTOFREE char *resume = NULL;
    NW_TRY(take_train(&l, count, arguments));
    NW_TRY(read_train(&l, &train));
    l.options = nw_train_options_of(train);
    NW_TRY(nw_settings_name_run(train, own->launch->ranks));
    NW_TRY(nw_train_place(l.options, false, &l.run_dir, &resume)); /* train itself will tell what there is to tell */
    NW_TRY(make_plan(&l));
    return own->launch->dry_run ? print_line(&l) : supervise(&l);
}

static nw_status print_help(void)
{
    printf(
        "usage: nowait launch -n N [options] -- train ...\n\n"
        "Starts N ranks of 'nowait train' with mpirun or srun. If a rank is lost, starts them again from the newest\n"
        "checkpoint. A signal to stop makes the ranks write a checkpoint and end; a second one kills them.\n"
        "--run-dir, --seed, --threads, --data-dir and --quiet may also stand before the two dashes.\n\n");
    return nw_options_help_topic(NW_COMMAND_LAUNCH, "launch", stdout);
}

nw_status nw_command_launch(int argc, char **argv)
{
    int dashes = 0;
    while (dashes < argc && strcmp(argv[dashes], "--") != 0) dashes++;
    if (nw_wants_help(dashes, argv)) return print_help();
    NW_FAIL_IF(dashes + 1 >= argc || strcmp(argv[dashes + 1], "train") != 0, NW_E_ARGUMENT,
               "write what to train after two dashes, for instance: nowait launch -n 2 -- train --recipe demo");
    NW_FAIL_IF(nw_wants_help(argc - dashes, argv + dashes), NW_E_ARGUMENT,
               "for help on training call 'nowait train --help'");
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_options_parse(NW_COMMAND_LAUNCH, dashes, argv, &settings, &positional));
    NW_FAIL_IF(positional > 0, NW_E_ARGUMENT, "'%s' is not understood before the two dashes; options begin with dashes",
               argv[0]);
    nw_launch_options own = nw_launch_options_of(settings);
    return launch_with(&own, argc - dashes - 2, argv + dashes + 2);
}
