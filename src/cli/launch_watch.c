/*
 * launch_watch.c - one attempt of a job: started, listened to, watched, ended. See launch.h.
 *
 * Signals come as data (signalfd), so everything happens in one loop of one thread that looks at the signals, at what
 * the launcher says, at its end, and at the heartbeats of the ranks.
 *
 * A rank stands still if its heart has not beaten for the ranks' own --timeout and GRACE more (they are the first to
 * notice, and say more), while another rank waits. Ranks on other machines get REMOTE seconds on top: a shared file
 * system hands their pages over that late. If all that are left wait for each other, they all stand still. Time is
 * measured with our clock from the beats we see, so clocks of machines need not agree.
 *
 * mpirun gives its children process groups of their own. So that nothing of a job survives it, this process becomes the
 * reaper of its orphans, and kills whatever descends from it.
 */
#define _GNU_SOURCE 1
#include "cli/launch.h"

#include "base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 100,
    MOST_LINE = 1024,
    GRACE = 2,
    REMOTE = 40,
    SAME_WISH_NS = 1000000000,
    GENTLE_NS = 2000000000,
    PAUSE_NS = 500000000
};
static const int64_t RECENT_NS = 10000000000;

struct nw_supervisor {
    int signals; /* signalfd */
    sigset_t taken, before;
    bool asked;
    int64_t asked_ns;
    struct sigaction pipe_before;
};

/* ---- signals ----------------------------------------------------------------------------------------------------- */

nw_status nw_supervisor_create(nw_supervisor **supervisor)
{
    *supervisor = NULL;
    nw_supervisor *s = calloc(1, sizeof *s);
    NW_FAIL_IF(!s, NW_E_MEMORY, "no memory to supervise a job");
    static const int wanted[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD};
    sigemptyset(&s->taken);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        struct sigaction now;
        bool ignored = sigaction(wanted[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN; /* nohup's wish */
        if (wanted[i] != SIGHUP || !ignored) sigaddset(&s->taken, wanted[i]);
    }
    s->signals = signalfd(-1, &s->taken, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signals < 0) {
        free(s);
        return NW_FAIL(NW_E_SYSTEM, "cannot take signals: %s", strerror(errno));
    }
    sigprocmask(SIG_BLOCK, &s->taken, &s->before);
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGPIPE, &ignore, &s->pipe_before); /* the job goes on when nobody reads its words any more */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    *supervisor = s;
    return NW_OK;
}

void nw_supervisor_free(nw_supervisor *s)
{
    if (!s) return;
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigaction(SIGPIPE, &s->pipe_before, NULL);
    close(s->signals);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
    free(s);
}

/* The next signal that asks to stop, or 0. */
static int next_signal(nw_supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD) return (int)info.ssi_signo;
    return 0;
}

bool nw_supervisor_pause(nw_supervisor *s, double seconds)
{
    int64_t end = nw_now_ns() + (int64_t)(seconds * 1e9);
    for (int64_t now; !s->asked && (now = nw_now_ns()) < end;) {
        struct pollfd one = {.fd = s->signals, .events = POLLIN};
        poll(&one, 1, (int)((end - now) / 1000000) + 1);
        if (next_signal(s)) s->asked = true, s->asked_ns = nw_now_ns();
    }
    return !s->asked;
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

typedef struct process {
    pid_t pid, parent;
    bool ours;
} process;

/* State letter and parent from /proc/PID/stat; false if there is no such process. */
static bool read_process(pid_t pid, char *state, pid_t *parent)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    if (bytes <= 0) return false;
    text[bytes] = 0;
    const char *end = strrchr(text, ')'); /* a name may hold anything */
    int number;
    if (!end || sscanf(end + 1, " %c %d", state, &number) != 2) return false;
    *parent = number;
    return true;
}

/* Sends a signal to everything that descends from us and has not ended; returns how many there were. */
static int signal_descendants(int number)
{
    process *all = NULL;
    int count = 0, capacity = 0, ours = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *entry; proc && (entry = readdir(proc));) {
        process p = {.pid = (pid_t)strtol(entry->d_name, NULL, 10)};
        char state;
        if (p.pid <= 0 || !read_process(p.pid, &state, &p.parent) || state == 'Z') continue;
        if (count == capacity) {
            capacity = capacity ? 2 * capacity : 256;
            process *grown = realloc(all, (size_t)capacity * sizeof *grown);
            if (!grown) break;
            all = grown;
        }
        all[count++] = p;
    }
    if (proc) closedir(proc);
    for (bool found = true; found;) {
        found = false;
        for (int i = 0; i < count; i++) {
            bool child = all[i].parent == getpid();
            for (int k = 0; k < count && !child; k++) child = all[k].ours && all[k].pid == all[i].parent;
            if (!child || all[i].ours) continue;
            all[i].ours = found = true;
            ours++;
        }
    }
    for (int i = 0; i < count; i++)
        if (all[i].ours) kill(all[i].pid, number);
    free(all);
    return ours;
}

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
    int64_t deadline = nw_now_ns() + 10 * (int64_t)1000000000;
    for (struct pollfd one = {.fd = ends[0], .events = POLLIN}; child > 0 && nw_now_ns() < deadline;) {
        char rest[256];
        if (poll(&one, 1, LOOK_MS) <= 0) continue;
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

/* ---- the attempt ------------------------------------------------------------------------------------------------- */

/* What the launcher and its ranks print: passed on, and read line by line. */
typedef struct stream {
    int from, to; /* from -1: not ours, or at its end */
    char line[MOST_LINE];
    size_t line_bytes;
} stream;

typedef struct watch {
    nw_supervisor *supervisor;
    const nw_launch_job *job;
    nw_launch_outcome *outcome;
    pid_t child;
    bool ended;
    stream streams[2]; /* the launcher's stdout and stderr */
    char host[NW_HEARTBEAT_HOST];
    nw_beat *fresh;
    int64_t *beaten_ns, *changed_ns; /* of each rank: when we last saw a beat, and a change of what it does */
    int64_t *held_end_ns;            /* of each rank: when its pause that is kept came to its end */
} watch;

static void close_stream(stream *s)
{
    if (s->from >= 0) close(s->from);
    s->from = -1;
}

/* Ends with what made exec fail as exit code 127, like a shell. */
static void become_child(const watch *w, const int *writers)
{
    const nw_launch_job *job = w->job;
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    for (int i = 0; i < 2; i++)
        if (writers[i] >= 0) dup2(writers[i], w->streams[i].to);
    setpgid(0, 0); /* a terminal's Ctrl-C comes to us alone */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigaction(SIGPIPE, &w->supervisor->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &w->supervisor->before, NULL);
    if (job->root) {
        static const char *const names[] = {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                                            "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) setenv(names[i], "1", 1);
    }
    execvp(job->line->at[0], job->line->at);
    dprintf(STDERR_FILENO, "nowait: cannot start %s: %s\n", job->line->at[0], strerror(errno));
    _exit(127);
}

static nw_status start(watch *w)
{
    const bool wanted[2] = {w->job->hears_out, w->job->hears};
    int writers[2] = {-1, -1};
    nw_status status = NW_OK;
    for (int i = 0; i < 2 && status == NW_OK; i++) {
        int ends[2];
        if (!wanted[i]) continue;
        if (pipe2(ends, O_CLOEXEC) != 0) {
            status = NW_FAIL(NW_E_SYSTEM, "cannot make a pipe: %s", strerror(errno));
            continue;
        }
        w->streams[i].from = ends[0];
        writers[i] = ends[1];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    }
    if (status == NW_OK) {
        fflush(NULL);
        w->child = fork();
        if (w->child == 0) become_child(w, writers);
        if (w->child < 0) status = NW_FAIL(NW_E_SYSTEM, "cannot start a process: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        if (writers[i] >= 0) close(writers[i]);
        if (status != NW_OK) close_stream(&w->streams[i]);
    }
    return status;
}

static void pass_on(int to, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(to, data, bytes);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return; /* nobody reads */
        data += written;
        bytes -= (size_t)written;
    }
}

static void listen_to_one(watch *w, stream *s)
{
    char data[4096];
    for (ssize_t bytes; s->from >= 0;) {
        bytes = read(s->from, data, sizeof data);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes < 0) return;
        if (bytes == 0) {
            close_stream(s);
            return;
        }
        pass_on(s->to, data, (size_t)bytes);
        for (ssize_t i = 0; i < bytes; i++) {
            if (data[i] != '\n') {
                if (s->line_bytes < MOST_LINE - 1) s->line[s->line_bytes++] = data[i];
                continue;
            }
            s->line[s->line_bytes] = 0;
            nw_launch_hear(s->line, &w->outcome->word);
            s->line_bytes = 0;
        }
    }
}

/* Passes on what there is, and reads whole lines. */
static void listen_to(watch *w)
{
    for (int i = 0; i < 2; i++) listen_to_one(w, &w->streams[i]);
}

/* Waits for signals and words. */
static void wait_for_news(const watch *w, int milliseconds)
{
    struct pollfd all[3] = {{.fd = w->supervisor->signals, .events = POLLIN},
                            {.fd = w->streams[0].from, .events = POLLIN},
                            {.fd = w->streams[1].from, .events = POLLIN}};
    poll(all, 3, milliseconds);
}

static void reap(watch *w)
{
    int state;
    for (pid_t pid; (pid = waitpid(-1, &state, WNOHANG)) > 0;) {
        if (pid != w->child) continue; /* an orphan */
        w->ended = true;
        w->outcome->exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
    }
}

/* The first wish goes to the ranks, who write a checkpoint. A later one is impatience. */
static void obey(watch *w)
{
    for (int number; (number = next_signal(w->supervisor)) > 0;) {
        nw_supervisor *s = w->supervisor;
        if (!s->asked) {
            s->asked = w->outcome->asked = true;
            s->asked_ns = nw_now_ns();
            kill(w->child, w->job->stop_signal ? w->job->stop_signal : number);
        } else if (nw_now_ns() - s->asked_ns > SAME_WISH_NS) {
            w->outcome->killed = true;
        }
    }
}

/* ---- hearts ------------------------------------------------------------------------------------------------------ */

/* A rank moves again. What it did while it stood still may be what the others gave up on. */
static void keep_pause(watch *w, int r, int64_t now)
{
    nw_launch_outcome *o = w->outcome;
    const nw_beat *b = &o->beats[r];
    int64_t quiet = now - w->beaten_ns[r];
    if (b->state == NW_RANK_WAITING || nw_rank_state_is_end(b->state) || quiet < PAUSE_NS) return;
    bool older = o->held[r].rank < 0 || now - w->held_end_ns[r] > RECENT_NS || quiet > o->held_ns[r];
    if (!older) return;
    o->held[r] = *b;
    o->held_ns[r] = quiet;
    w->held_end_ns[r] = now;
}

static void take_beats(watch *w)
{
    int64_t now = nw_now_ns();
    nw_heartbeat_read_all(w->job->run_dir, w->job->ranks, w->fresh);
    for (int r = 0; r < w->job->ranks; r++) {
        nw_beat *old = &w->outcome->beats[r], *fresh = &w->fresh[r];
        if (fresh->rank < 0) continue; /* caught in a change, or not there: what was seen last stays */
        bool first = old->rank < 0 || old->started_ns != fresh->started_ns;
        if (!first && old->beats != fresh->beats) keep_pause(w, r, now);
        if (first || old->beats != fresh->beats) w->beaten_ns[r] = now;
        if (first || old->changed_ns != fresh->changed_ns) w->changed_ns[r] = now;
        *old = *fresh;
    }
}

static bool is_here(const watch *w, int r) { return strcmp(w->outcome->beats[r].host, w->host) == 0; }

static bool is_still(const watch *w, int r, int64_t since, int64_t now)
{
    double limit = w->job->timeout + GRACE + (is_here(w, r) ? 0 : REMOTE);
    return (double)(now - since) * 1e-9 > limit;
}

/* Stopped by a signal; on other machines nobody can tell. */
static bool is_stopped(const watch *w, int r)
{
    char state;
    pid_t parent;
    return is_here(w, r) && read_process((pid_t)w->outcome->beats[r].pid, &state, &parent) && strchr("Tt", state);
}

/* How a rank looks to us. The order is that of suspicion: if there are ranks of a kind, all of a lesser kind may well
 * only wait for them. */
typedef enum look {
    LOOKS_FINE,       /* moves, or is done, or has not begun */
    LOOKS_WAITING,    /* waits, but not for long */
    LOOKS_LEFT,       /* has waited too long */
    LOOKS_STILL,      /* waits without any beat, while others that wait do beat */
    LOOKS_EXCHANGING, /* in the middle of an exchange for too long */
    LOOKS_STUCK,      /* should be working, and is not */
    LOOKS_STOPPED,
    LOOKS
} look;

static look look_at(const watch *w, int r, int64_t now)
{
    const nw_beat *b = &w->outcome->beats[r];
    if (b->rank < 0 || nw_rank_state_is_end(b->state)) return LOOKS_FINE;
    bool quiet = is_still(w, r, w->beaten_ns[r], now);
    if (quiet && is_stopped(w, r)) return LOOKS_STOPPED;
    if (b->state == NW_RANK_WAITING && quiet) return LOOKS_STILL;
    if (b->state == NW_RANK_WAITING) return is_still(w, r, w->changed_ns[r], now) ? LOOKS_LEFT : LOOKS_WAITING;
    if (!quiet) return LOOKS_FINE;
    return b->state == NW_RANK_EXCHANGING ? LOOKS_EXCHANGING : LOOKS_STUCK;
}

/* Marks the ranks that hold up the job, and says whether there are any. A rank that works long is nobody's business as
 * long as nobody waits for it; ranks that wait are fine as long as somebody works. */
static bool find_stuck(watch *w)
{
    nw_launch_outcome *o = w->outcome;
    int64_t now = nw_now_ns();
    int count[LOOKS] = {0}, alive = 0, works = 0;
    look worst = LOOKS_FINE;
    for (int r = 0; r < w->job->ranks; r++) {
        bool counts = o->beats[r].rank >= 0 && !nw_rank_state_is_end(o->beats[r].state);
        look l = look_at(w, r, now);
        alive += counts;
        works += counts && (l == LOOKS_FINE || l == LOOKS_WAITING);
        count[l]++;
        if (l > worst) worst = l;
    }
    int held_up = count[LOOKS_WAITING] + count[LOOKS_LEFT] + count[LOOKS_STILL] + count[LOOKS_EXCHANGING];
    bool job_stands = worst >= LOOKS_STUCK ? held_up > 0 : worst >= LOOKS_LEFT && works == 0 && alive > 1;
    o->still_ns = 0;
    for (int r = 0; r < w->job->ranks; r++) {
        o->stuck[r] = job_stands && look_at(w, r, now) == worst;
        int64_t still = now - (worst == LOOKS_LEFT ? w->changed_ns[r] : w->beaten_ns[r]);
        if (o->stuck[r] && still > o->still_ns) o->still_ns = still;
    }
    o->stopped = job_stands && worst == LOOKS_STOPPED;
    return job_stands;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void look_for(watch *w, int64_t ns)
{
    int64_t end = nw_now_ns() + ns;
    while (!w->ended && nw_now_ns() < end) {
        wait_for_news(w, LOOK_MS / 4);
        obey(w);
        listen_to(w);
        reap(w);
    }
}

/* Whatever is left. The launcher is asked first, since only it reaches other machines. */
static void end_all(watch *w)
{
    if (!w->ended) {
        kill(w->child, SIGTERM);
        look_for(w, GENTLE_NS);
    }
    int64_t deadline = nw_now_ns() + 5 * (int64_t)GENTLE_NS;
    while (signal_descendants(SIGKILL) > 0 && nw_now_ns() < deadline) {
        usleep(5000);
        reap(w);
    }
    reap(w);
    listen_to(w);
    for (int i = 0; i < 2; i++) close_stream(&w->streams[i]);
}

static void follow(watch *w)
{
    nw_launch_outcome *o = w->outcome;
    for (int64_t looked = 0; !w->ended && !o->killed;) {
        wait_for_news(w, LOOK_MS);
        obey(w);
        listen_to(w);
        reap(w);
        if (w->ended || nw_now_ns() - looked < LOOK_MS * (int64_t)1000000) continue;
        looked = nw_now_ns();
        take_beats(w);
        o->stalled = find_stuck(w);
        if (o->stalled) return;
    }
}

static nw_status prepare(watch *w)
{
    size_t ranks = (size_t)w->job->ranks;
    nw_launch_outcome *o = w->outcome;
    *o = (nw_launch_outcome){.exit_code = 1, .word = {-1, -1, -1, 0}};
    o->beats = calloc(ranks, sizeof *o->beats);
    o->stuck = calloc(ranks, sizeof *o->stuck);
    o->quiet_ns = calloc(ranks, sizeof *o->quiet_ns);
    o->held = calloc(ranks, sizeof *o->held);
    o->held_ns = calloc(ranks, sizeof *o->held_ns);
    w->held_end_ns = calloc(ranks, sizeof *w->held_end_ns);
    w->fresh = calloc(ranks, sizeof *w->fresh);
    w->beaten_ns = calloc(ranks, sizeof *w->beaten_ns);
    w->changed_ns = calloc(ranks, sizeof *w->changed_ns);
    NW_FAIL_IF(!o->beats || !o->stuck || !o->quiet_ns || !o->held || !o->held_ns || !w->held_end_ns || !w->fresh ||
                   !w->beaten_ns || !w->changed_ns,
               NW_E_MEMORY, "no memory to watch %d ranks", w->job->ranks);
    for (int r = 0; r < w->job->ranks; r++) o->beats[r].rank = o->held[r].rank = -1;
    gethostname(w->host, sizeof w->host - 1);
    return nw_heartbeat_clear(w->job->run_dir); /* of earlier jobs */
}

/* The rank of the process that the launcher named. Processes of two machines may have one number: then it is not known. */
static void find_process(nw_launch_outcome *o, int ranks)
{
    int found = -1, count = 0;
    for (int r = 0; r < ranks; r++) {
        if (o->word.pid <= 0 || o->beats[r].rank < 0 || o->beats[r].pid != o->word.pid) continue;
        found = r;
        count++;
    }
    if (count == 1 && o->word.rank < 0) o->word.rank = found;
}

nw_status nw_launch_run(nw_supervisor *supervisor, const nw_launch_job *job, nw_launch_outcome *outcome)
{
    watch w = {.supervisor = supervisor,
               .job = job,
               .outcome = outcome,
               .streams = {{.from = -1, .to = STDOUT_FILENO}, {.from = -1, .to = STDERR_FILENO}}};
    nw_status status = prepare(&w);
    if (status == NW_OK) status = start(&w);
    if (status == NW_OK) {
        follow(&w);
        take_beats(&w); /* the last words of ranks that ended, before what is left is killed */
        for (int r = 0; r < job->ranks; r++) {
            outcome->quiet_ns[r] = nw_now_ns() - w.beaten_ns[r];
            if (nw_now_ns() - w.held_end_ns[r] > RECENT_NS) outcome->held[r].rank = -1;
        }
        end_all(&w);
        find_process(outcome, job->ranks);
        outcome->asked = supervisor->asked;
    }
    free(w.fresh);
    free(w.beaten_ns);
    free(w.changed_ns);
    free(w.held_end_ns);
    return status;
}

void nw_launch_outcome_free(nw_launch_outcome *outcome)
{
    free(outcome->beats);
    free(outcome->stuck);
    free(outcome->quiet_ns);
    free(outcome->held);
    free(outcome->held_ns);
    *outcome = (nw_launch_outcome){0};
}
