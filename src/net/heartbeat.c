/*
 * heartbeat.c - see heartbeat.h.
 *
 * The page, in the byte order of the machine:
 *
 *   0    magic, bytes, rank, world, pid, started      written once, before the file gets its name
 *   40   host
 *   128  after     number of the last change that is complete
 *   136  state, step, changed, what
 *   352  before    number of the last change that was begun
 *
 * A change n writes before = n, then the fields, then after = n. A reader who takes `after`, then the fields, then
 * `before`, and finds both equal, has seen one change and no other. That is also the order of the addresses, so a copy of
 * the page that was made from front to back (by a disk, by a server) can be told to be whole. The fields are words that
 * are stored one by one and atomically: two processes share them.
 *
 * A page of a file may turn out not to be writable long after it was mapped: the kernel then sends SIGBUS to whoever
 * stores into it. The handler puts plain memory in its place, and the store that failed is repeated there. Signals of
 * other addresses go to the handler that was there before.
 */
#define _GNU_SOURCE 1
#include "net/heartbeat.h"

#include "base/file.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x3154414542574eull /* "NWBEAT1" */

enum { MOST_HEARTS = 64, WHAT_WORDS = NW_HEARTBEAT_WHAT / 8, MOST_TRIES = 200 };

typedef struct page {
    uint64_t magic;
    uint32_t bytes;
    int32_t rank, world, padding;
    int64_t pid, started_ns;
    char host[NW_HEARTBEAT_HOST];
    uint64_t reserved[3];
    _Atomic uint64_t after;
    _Atomic uint64_t state;
    _Atomic int64_t step, changed_ns;
    _Atomic uint64_t what[WHAT_WORDS];
    _Atomic uint64_t before;
} page;
_Static_assert(offsetof(page, host) == 40 && offsetof(page, after) == 128 && offsetof(page, before) == 352,
               "the page is as described");
_Static_assert(sizeof(page) <= NW_HEARTBEAT_BYTES, "the page is a page");

struct nw_heartbeat {
    page *page;
    uint64_t number; /* of the last change */
    atomic_bool lost, told;
};

const char *nw_rank_state_name(nw_rank_state state)
{
#define NAME(identifier, word, end) word,
    static const char *const names[] = {NW_RANK_STATE_MAP(NAME)};
#undef NAME
    return (unsigned)state < NW_RANK_STATES ? names[state] : "in an unknown state";
}

bool nw_rank_state_is_end(nw_rank_state state)
{
#define END(identifier, word, end) end,
    static const bool ends[] = {NW_RANK_STATE_MAP(END)};
#undef END
    return (unsigned)state < NW_RANK_STATES && ends[state];
}

/* The coarse clock never enters the kernel, on no machine. */
int64_t nw_heartbeat_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- pages that cannot be written any more ----------------------------------------------------------------------- */

static pthread_mutex_t hearts_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(nw_heartbeat *) hearts[MOST_HEARTS];
static int heart_count;
static struct sigaction before_us;

static void on_bus(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    for (int i = 0; i < MOST_HEARTS; i++) {
        nw_heartbeat *heart = atomic_load(&hearts[i]);
        uintptr_t at = (uintptr_t)info->si_addr, begin = heart ? (uintptr_t)heart->page : 0;
        if (!heart || at < begin || at >= begin + NW_HEARTBEAT_BYTES) continue;
        void *memory = mmap(heart->page, NW_HEARTBEAT_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (memory == MAP_FAILED) break;
        atomic_store(&heart->lost, true);
        errno = saved;
        return;
    }
    errno = saved;
    if (before_us.sa_flags & SA_SIGINFO)
        before_us.sa_sigaction(number, info, context);
    else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN)
        before_us.sa_handler(number);
    else
        signal(number, SIG_DFL); /* the store is repeated, and ends the process as it would have without us */
}

static nw_status watch_page(nw_heartbeat *heart)
{
    int free_place = -1;
    pthread_mutex_lock(&hearts_lock);
    for (int i = 0; i < MOST_HEARTS && free_place < 0; i++)
        if (!atomic_load(&hearts[i])) free_place = i;
    if (free_place >= 0) {
        atomic_store(&hearts[free_place], heart);
        struct sigaction action = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        sigemptyset(&action.sa_mask);
        if (heart_count++ == 0) sigaction(SIGBUS, &action, &before_us);
    }
    pthread_mutex_unlock(&hearts_lock);
    NW_FAIL_IF(free_place < 0, NW_E_UNSUPPORTED, "a process keeps at most %d heartbeats; ranks beyond go without",
               MOST_HEARTS);
    return NW_OK;
}

static void unwatch_page(nw_heartbeat *heart)
{
    pthread_mutex_lock(&hearts_lock);
    for (int i = 0; i < MOST_HEARTS; i++)
        if (atomic_load(&hearts[i]) == heart) {
            atomic_store(&hearts[i], NULL);
            struct sigaction now;
            bool ours = sigaction(SIGBUS, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus;
            if (--heart_count == 0 && ours) sigaction(SIGBUS, &before_us, NULL);
        }
    pthread_mutex_unlock(&hearts_lock);
}

/* ---- a rank tells ------------------------------------------------------------------------------------------------ */

static nw_status ranks_dir(char **path, const char *run_dir) { return nw_path_join(path, run_dir, "ranks"); }

nw_status nw_heartbeat_path(char **path, const char *run_dir, int rank)
{
    char name[32], *dir;
    NW_TRY(ranks_dir(&dir, run_dir));
    snprintf(name, sizeof name, "%d", rank);
    nw_status status = nw_path_join(path, dir, name);
    free(dir);
    return status;
}

/* Writes the whole page, so that its place on the disk is taken now, and maps it. */
static nw_status map_new_file(const char *path, const page *first, page **mapped)
{
    char bytes[NW_HEARTBEAT_BYTES] = {0};
    memcpy(bytes, first, sizeof *first);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    NW_FAIL_IF(file < 0, NW_E_SYSTEM, "there will be no heartbeats: cannot make %s: %s", path, strerror(errno));
    ssize_t written = write(file, bytes, sizeof bytes);
    int error = written < 0 ? errno : ENOSPC;
    void *memory = MAP_FAILED;
    if (written == (ssize_t)sizeof bytes) {
        memory = mmap(NULL, NW_HEARTBEAT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        error = errno;
    }
    close(file);
    NW_FAIL_IF(memory == MAP_FAILED, NW_E_SYSTEM, "there will be no heartbeats: cannot write and map %s: %s", path,
               strerror(error));
    *mapped = memory;
    return NW_OK;
}

/* The file gets its name when it is valid: nobody reads half of a beginning, and who still maps an older one keeps it. */
static nw_status make_file(const char *path, const page *first, page **mapped)
{
    char *dir, *name, aside[64], *temporary = NULL;
    NW_TRY(nw_path_split(path, &dir, &name));
    snprintf(aside, sizeof aside, ".%s.%ld", name, (long)getpid());
    nw_status status = nw_directory_make(dir);
    if (status == NW_OK) status = nw_path_join(&temporary, dir, aside);
    if (status == NW_OK) {
        unlink(temporary);
        status = map_new_file(temporary, first, mapped);
        if (status == NW_OK && rename(temporary, path) != 0) {
            status = NW_FAIL(NW_E_SYSTEM, "there will be no heartbeats: cannot rename %s to %s: %s", temporary, name,
                             strerror(errno));
            munmap(*mapped, NW_HEARTBEAT_BYTES);
        }
        if (status != NW_OK) unlink(temporary);
    }
    free(temporary);
    free(dir);
    free(name);
    return status;
}

static nw_status open_at(nw_heartbeat *heart, const char *path, int rank, int world)
{
    page first = {.magic = MAGIC, .bytes = NW_HEARTBEAT_BYTES, .rank = rank, .world = world, .pid = getpid()};
    first.started_ns = nw_heartbeat_now();
    first.changed_ns = first.started_ns;
    first.after = first.before = heart->number = 1;
    if (gethostname(first.host, sizeof first.host - 1) != 0) snprintf(first.host, sizeof first.host, "unknown");
    NW_TRY(make_file(path, &first, &heart->page));
    nw_status status = watch_page(heart);
    if (status != NW_OK) munmap(heart->page, NW_HEARTBEAT_BYTES);
    return status;
}

nw_status nw_heartbeat_open(nw_heartbeat **heart, const char *run_dir, int rank, int world)
{
    char *path;
    *heart = NULL;
    NW_FAIL_IF(rank < 0 || rank >= world || world > NW_HEARTBEAT_MOST_RANKS, NW_E_ARGUMENT,
               "there is no rank %d among %d; ranks are 0 to %d", rank, world, world - 1);
    nw_heartbeat *made = calloc(1, sizeof *made);
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for a heartbeat");
    nw_status status = nw_heartbeat_path(&path, run_dir, rank);
    if (status == NW_OK) {
        status = open_at(made, path, rank, world);
        free(path);
    }
    if (status == NW_OK)
        *heart = made;
    else
        free(made);
    return status;
}

void nw_heartbeat_close(nw_heartbeat *heart)
{
    if (!heart) return;
    unwatch_page(heart);
    munmap(heart->page, NW_HEARTBEAT_BYTES);
    free(heart);
}

static void begin_change(nw_heartbeat *heart)
{
    atomic_store_explicit(&heart->page->before, ++heart->number, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
}

static void end_change(nw_heartbeat *heart)
{
    atomic_store_explicit(&heart->page->after, heart->number, memory_order_release);
}

void nw_heartbeat_set(nw_heartbeat *heart, nw_rank_state state, int64_t step, const char *what)
{
    if (!heart) return;
    uint64_t words[WHAT_WORDS] = {0};
    if (what) memcpy(words, what, strnlen(what, sizeof words - 1));
    page *p = heart->page;
    begin_change(heart);
    atomic_store_explicit(&p->state, (uint64_t)state, memory_order_relaxed);
    atomic_store_explicit(&p->step, step, memory_order_relaxed);
    atomic_store_explicit(&p->changed_ns, nw_heartbeat_now(), memory_order_relaxed);
    for (int i = 0; i < WHAT_WORDS; i++) atomic_store_explicit(&p->what[i], words[i], memory_order_relaxed);
    end_change(heart);
}

void nw_heartbeat_flush(nw_heartbeat *heart)
{
    if (!heart || atomic_load(&heart->lost)) return;
    if (msync(heart->page, NW_HEARTBEAT_BYTES, MS_SYNC) != 0) atomic_store(&heart->lost, true);
}

bool nw_heartbeat_lost(nw_heartbeat *heart)
{
    return heart && atomic_load(&heart->lost) && !atomic_exchange(&heart->told, true);
}

/* ---- others look ------------------------------------------------------------------------------------------------- */

/* A text of the file for people: ends inside its field, and has no bytes that would disturb a terminal. */
static nw_status take_text(const char *field, size_t size, const char *name, const char *which, char *text)
{
    NW_FAIL_IF(!memchr(field, 0, size), NW_E_FILE, "%s is no heartbeat: its %s has no end", name, which);
    size_t length = strlen(field);
    for (size_t i = 0; i < length;) {
        const unsigned char *at = (const unsigned char *)field + i;
        size_t bytes = nw_utf8_length(at, length - i);
        bool control = bytes == 2 ? at[0] == 0xC2 && at[1] < 0xA0 : bytes == 0 && (at[0] < 0x20 || at[0] >= 0x7F);
        if (bytes == 0) bytes = 1;
        if (control)
            memset(text + i, '?', bytes);
        else
            memcpy(text + i, at, bytes);
        i += bytes;
    }
    text[length] = 0;
    return NW_OK;
}

nw_status nw_heartbeat_parse(const void *bytes, size_t size, const char *name, nw_beat *beat)
{
    page p;
    NW_FAIL_IF(size != NW_HEARTBEAT_BYTES, NW_E_FILE, "%s is no heartbeat: it has %zu bytes, not %d", name, size,
               NW_HEARTBEAT_BYTES);
    memcpy((void *)&p, bytes, sizeof p);
    NW_FAIL_IF(p.magic != MAGIC || p.bytes != NW_HEARTBEAT_BYTES, NW_E_FILE,
               "%s is no heartbeat, or one of a machine with another byte order: it does not begin like one", name);
    NW_FAIL_IF(p.after != p.before, NW_E_FILE, "%s was being changed; read it again", name);
    NW_FAIL_IF(p.world < 1 || p.world > NW_HEARTBEAT_MOST_RANKS || p.rank < 0 || p.rank >= p.world, NW_E_FILE,
               "%s is no heartbeat: there is no rank %d of %d", name, p.rank, p.world);
    NW_FAIL_IF(p.state >= NW_RANK_STATES, NW_E_FILE, "%s is no heartbeat: there is no state %llu", name,
               (unsigned long long)p.state);
    NW_FAIL_IF(p.pid <= 0 || p.step < 0, NW_E_FILE, "%s is no heartbeat: process %lld, step %lld", name,
               (long long)p.pid, (long long)p.step);
    char what[NW_HEARTBEAT_WHAT];
    memcpy(what, (const char *)bytes + offsetof(page, what), sizeof what);
    *beat = (nw_beat){.rank = p.rank,
                      .world = p.world,
                      .pid = p.pid,
                      .started_ns = p.started_ns,
                      .state = (nw_rank_state)p.state,
                      .step = p.step,
                      .changed_ns = p.changed_ns,
                      .beats = p.after};
    NW_TRY(take_text(p.host, sizeof p.host, name, "host", beat->host));
    return take_text(what, sizeof what, name, "text", beat->what);
}

/* One look at the file: the number that ends changes, everything, the number that begins them, in this order. */
static bool look(int file, char *bytes, size_t *size)
{
    uint64_t after = 0, before = 0;
    ssize_t first = pread(file, &after, sizeof after, offsetof(page, after));
    atomic_thread_fence(memory_order_seq_cst);
    ssize_t all = pread(file, bytes, NW_HEARTBEAT_BYTES, 0);
    atomic_thread_fence(memory_order_seq_cst);
    ssize_t last = pread(file, &before, sizeof before, offsetof(page, before));
    *size = all > 0 ? (size_t)all : 0;
    return first != sizeof after || last != sizeof before || after == before; /* a short file is not worth a second */
}

nw_status nw_heartbeat_read(const char *path, nw_beat *beat)
{
    char bytes[NW_HEARTBEAT_BYTES];
    size_t size = 0;
    struct stat s;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    NW_FAIL_IF(file < 0, NW_E_FILE, "cannot open the heartbeat %s: %s", path, strerror(errno));
    if (fstat(file, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size != NW_HEARTBEAT_BYTES) {
        close(file);
        return NW_FAIL(NW_E_FILE, "%s is no heartbeat: not a file of %d bytes", path, NW_HEARTBEAT_BYTES);
    }
    bool whole = look(file, bytes, &size);
    for (int i = 0; i < MOST_TRIES && !whole; i++) {
        sched_yield(); /* a writer that was taken from its core in the middle gets its turn */
        whole = look(file, bytes, &size);
    }
    close(file);
    NW_FAIL_IF(!whole, NW_E_FILE, "the heartbeat %s changed at every look", path);
    return nw_heartbeat_parse(bytes, size, path, beat);
}

int nw_heartbeat_read_all(const char *run_dir, int world, nw_beat *beats)
{
    int count = 0;
    for (int rank = 0; rank < world; rank++) {
        char *path = NULL;
        bool fine = nw_heartbeat_path(&path, run_dir, rank) == NW_OK &&
                    nw_heartbeat_read(path, &beats[rank]) == NW_OK && beats[rank].rank == rank &&
                    beats[rank].world == world;
        free(path);
        if (!fine) beats[rank].rank = -1;
        count += fine;
    }
    return count;
}

/* A rank's file, or what a rank that was killed while it began left: ".3.4711". */
static bool is_ours(const char *name)
{
    static const char digits[] = "0123456789";
    if (name[0] != '.') return name[0] && name[strspn(name, digits)] == 0;
    size_t rank = strspn(name + 1, digits);
    const char *rest = name + 1 + rank;
    return rank > 0 && rest[0] == '.' && rest[1] && rest[1 + strspn(rest + 1, digits)] == 0;
}

nw_status nw_heartbeat_clear(const char *run_dir)
{
    char *dir;
    nw_names names = {0};
    NW_TRY(ranks_dir(&dir, run_dir));
    nw_status status = nw_file_is_directory(dir) ? nw_directory_list(&names, dir) : NW_OK;
    for (int i = 0; status == NW_OK && i < names.count; i++) {
        char *path;
        if (!is_ours(names.at[i])) continue;
        status = nw_path_join(&path, dir, names.at[i]);
        if (status != NW_OK) break;
        if (unlink(path) != 0 && errno != ENOENT)
            status = NW_FAIL(NW_E_SYSTEM, "cannot remove the old heartbeat %s: %s", path, strerror(errno));
        free(path);
    }
    nw_names_free(&names);
    free(dir);
    return status;
}
