/*
 * heartbeat.h - what each rank of a job does right now, in a small file that others can look at.
 *
 * RUN/ranks/<rank> is one page of fixed size that the rank keeps mapped. It says who the rank is (rank, world, process,
 * host, start) and, behind a sequence lock, what it does: state, step, a few words, and since when. A change costs
 * some tens of nanoseconds and no system call, so a rank may beat at every phase of every step. The file outlives its
 * writer: of a rank that was killed it tells the last thing it did.
 *
 *   nw_heartbeat *heart = NULL;
 *   if (nw_heartbeat_open(&heart, run_dir, rank, world) != NW_OK) tell(nw_error_message());      and go on
 *   nw_heartbeat_set(heart, NW_RANK_COMPUTING, step, "");
 *   nw_heartbeat_set(heart, NW_RANK_WAITING, step, "waiting for ranks 2, 5: gradient bucket 3");
 *   nw_heartbeat_close(heart);                                                  the file stays
 *
 * Heartbeats are a convenience and never end a training: a rank that cannot open its file goes on without, and a page
 * that cannot be written later (disk full, file cut off, server gone) is replaced by memory of the process; see
 * nw_heartbeat_lost. All functions take NULL for a heart and then do nothing.
 *
 * Other machines see a page of a shared file system when the kernel writes it back, which can take half a minute;
 * nw_heartbeat_flush, from a thread that has time, makes that sooner. Clocks of two machines differ: to find out that a
 * rank has stalled, watch `beats` against the clock of the watcher.
 *
 * Threads: one heart belongs to one thread at a time, except nw_heartbeat_flush and nw_heartbeat_lost, which any thread
 * may call before close. Reading is for everyone.
 */
#ifndef NW_NET_HEARTBEAT_H
#define NW_NET_HEARTBEAT_H

#include "base/status.h"

/* X(identifier, word, whether nothing more will follow) */
#define NW_RANK_STATE_MAP(X)                 \
    X(STARTING, "starting", false)           \
    X(COMPUTING, "computing", false)         \
    X(EXCHANGING, "exchanging", false)       \
    X(WAITING, "waiting", false)             \
    X(CHECKPOINTING, "checkpointing", false) \
    X(EVALUATING, "evaluating", false)       \
    X(DONE, "done", true)                    \
    X(FAILED, "failed", true)                \
    X(INTERRUPTED, "interrupted", true)

typedef enum nw_rank_state {
#define NW_RANK_STATE_ENUM(identifier, word, end) NW_RANK_##identifier,
    NW_RANK_STATE_MAP(NW_RANK_STATE_ENUM)
#undef NW_RANK_STATE_ENUM
        NW_RANK_STATES
} nw_rank_state;

const char *nw_rank_state_name(nw_rank_state state);
bool nw_rank_state_is_end(nw_rank_state state); /* done, failed, interrupted */

enum {
    NW_HEARTBEAT_BYTES = 4096, /* of the file */
    NW_HEARTBEAT_HOST = 64,    /* with the zero at the end, like NW_HEARTBEAT_WHAT */
    NW_HEARTBEAT_WHAT = 192,
    NW_HEARTBEAT_MOST_RANKS = 1 << 20,
};

/* What a file says. Times are nanoseconds of CLOCK_REALTIME on the rank's machine, to some milliseconds. */
typedef struct nw_beat {
    int rank, world;
    int64_t pid;
    char host[NW_HEARTBEAT_HOST];
    int64_t started_ns;
    nw_rank_state state;
    int64_t step;
    char what[NW_HEARTBEAT_WHAT]; /* printable UTF-8, may be empty */
    int64_t changed_ns;           /* of the last change */
    uint64_t beats;               /* changes so far: equal to an earlier reading means that nothing has moved */
} nw_beat;

/* ---- a rank tells ------------------------------------------------------------------------------------------------ */

typedef struct nw_heartbeat nw_heartbeat;

/* Makes RUN/ranks and the file of this rank, which replaces an older one; state starting, step 0. On failure *heart is
 * NULL, and the caller tells nw_error_message() once and goes on. */
nw_status nw_heartbeat_open(nw_heartbeat **heart, const char *run_dir, int rank, int world);
void nw_heartbeat_close(nw_heartbeat *heart); /* leaves the file */

/* Text that is too long is cut; NULL is empty. No system call, no lock. */
void nw_heartbeat_set(nw_heartbeat *heart, nw_rank_state state, int64_t step, const char *what);

/* Hands the page to the file system (msync). May take long; not for the thread that computes. */
void nw_heartbeat_flush(nw_heartbeat *heart);
/* True once, to the first who asks after the page could not be written: the moment to say that heartbeats are off. */
bool nw_heartbeat_lost(nw_heartbeat *heart);

/* ---- others look ------------------------------------------------------------------------------------------------- */

/* RUN/ranks/<rank>, to be freed. */
nw_status nw_heartbeat_path(char **path, const char *run_dir, int rank);

/* Reads a file; one that changes meanwhile is read again. NW_E_FILE names the path and what is wrong. */
nw_status nw_heartbeat_read(const char *path, nw_beat *beat);
/* The same from bytes. NW_E_FILE also for a page caught in the middle of a change. */
nw_status nw_heartbeat_parse(const void *bytes, size_t size, const char *name, nw_beat *beat);

/* Reads the files of ranks 0 .. world-1 into beats[rank]; where there is none, or none that is valid and of this rank
 * and world, beats[rank].rank is -1. Returns how many there are. */
int nw_heartbeat_read_all(const char *run_dir, int world, nw_beat *beats);

/* Removes the files of all ranks, of any world, that earlier jobs left. A run without any is fine. */
nw_status nw_heartbeat_clear(const char *run_dir);

/* What times in beats are of: CLOCK_REALTIME. */
int64_t nw_heartbeat_now(void);

#endif
