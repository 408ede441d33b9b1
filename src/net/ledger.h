/*
 * ledger.h - counts every byte that ranks send each other, by what it is for (its owner).
 *
 *   owner     what
 *   values    payload that is neither index nor scale
 *   indices   header.index_bytes of the payload
 *   scales    header.scale_bytes of the payload
 *   headers   the 64 bytes before a payload
 *   control   messages of the drivers (channel 0) with their headers; collective operations
 *
 * A message of b payload bytes costs 64 + b bytes, and its owners' shares always add up to that. Bytes and messages are
 * counted for the whole process, for each link (from, to), each segment and each step. The driver keeps a second,
 * independent count of the bytes that its transport was asked to move; nw_ledger_check compares the two.
 *
 * A process keeps the rows of its own ranks: all ranks of a virtual cluster, one rank under MPI. So the memory depends
 * on (ranks here, world, segments) only. At the end rank 0 makes a ledger of the whole world by adding the counts of
 * all ranks; then the bytes sent and received on each link can be compared, too (nw_ledger_check_links).
 *
 * Counting never fails and allocates nothing. Counting for a rank of another process is a bug and aborts.
 *
 *   nw_ledger_sent(ledger, from, to, message->header);
 *   nw_ledger_transport(ledger, NW_SENT, nw_message_size(message));       where the transport takes it
 *
 * Threads: one at a time.
 */
#ifndef NW_NET_LEDGER_H
#define NW_NET_LEDGER_H

#include "base/json.h"
#include "net/message.h"

typedef enum nw_owner {
    NW_OWNER_VALUES,
    NW_OWNER_INDICES,
    NW_OWNER_SCALES,
    NW_OWNER_HEADERS,
    NW_OWNER_CONTROL,
    NW_OWNERS
} nw_owner;

typedef enum nw_traffic { NW_SENT, NW_RECEIVED, NW_DIRECTIONS } nw_traffic;

typedef struct nw_account {
    uint64_t messages;
    uint64_t bytes[NW_OWNERS];
} nw_account;

uint64_t nw_account_bytes(const nw_account *account); /* of all owners */
const char *nw_owner_name(nw_owner owner);            /* "values", ... */

enum {
    NW_LEDGER_MOST_RANKS = 1 << 16,
    NW_LEDGER_MOST_LINKS = 1 << 24, /* of the ranks here: ranks * world */
    NW_LEDGER_MOST_SEGMENTS = 1 << 20,
};

typedef struct nw_ledger_options {
    int world;
    int first_rank, ranks;            /* those whose traffic this process counts */
    int segments;                     /* number of segment ids; all other traffic is counted as "other" */
    const char *const *segment_names; /* copied; NULL, or NULL in it: "segment 3" */
} nw_ledger_options;

typedef struct nw_ledger nw_ledger;

nw_status nw_ledger_create(nw_ledger **ledger, const nw_ledger_options *options);
void nw_ledger_free(nw_ledger *ledger);

/* ---- Counting ---- */

/* Whole messages. sent: `from` is a rank here; received: `to` is. Segments and steps count what is sent. */
void nw_ledger_sent(nw_ledger *ledger, int from, int to, const nw_header *header);
void nw_ledger_received(nw_ledger *ledger, int from, int to, const nw_header *header);

/* Bytes that the transport was asked to move: the independent count. */
void nw_ledger_transport(nw_ledger *ledger, nw_traffic direction, uint64_t bytes);

/* From now on the links of a dropped rank count in the totals only, because it is unknown what of their traffic
 * arrived. */
void nw_ledger_forget_links(nw_ledger *ledger, int rank);

/* The traffic sent since the last call, or since the start. */
nw_account nw_ledger_take_step(nw_ledger *ledger);

/* ---- Reading ---- */

int nw_ledger_world(const nw_ledger *ledger);
int nw_ledger_first_rank(const nw_ledger *ledger);
int nw_ledger_ranks(const nw_ledger *ledger);
int nw_ledger_segments(const nw_ledger *ledger);
const char *nw_ledger_segment_name(const nw_ledger *ledger, int segment); /* "other" for segment == segments */
nw_account nw_ledger_total(const nw_ledger *ledger, nw_traffic direction);
/* Zero where the end that counts it (from if sent, to if received) is not a rank here. */
nw_account nw_ledger_link(const nw_ledger *ledger, nw_traffic direction, int from, int to);
/* segment == segments: those with larger ids, and messages of pipelines. */
nw_account nw_ledger_segment(const nw_ledger *ledger, int segment);

uint64_t nw_ledger_transported(const nw_ledger *ledger, nw_traffic direction);

/* NW_E_INTERNAL, with direction, both counts and their difference, if the owners' and the transport's counts differ. */
nw_status nw_ledger_check(const nw_ledger *ledger);
/* For a ledger of the whole world, when no message is in flight: checks that what was sent on each link was received.
 * NW_E_PEER names the first link where this is not so. `lost`: dropped ranks, by rank; NULL: none. */
nw_status nw_ledger_check_links(const nw_ledger *ledger, const bool *lost);

/* ---- Across processes, and over checkpoints ---- */

/*
 * All counts but those of the unfinished step as a table of NW_LEDGER_COLUMNS integers a row, to be freed:
 *
 *   first row   world, segments, digest of the segments' names, bytes that the transport sent, received; four zeros
 *   others      kind, i, j, messages, bytes of the five owners, where kind is
 *               0  everything that was sent (i = 0) or received (i = 1)
 *               1  sent from rank i to rank j            } without those that had no traffic
 *               2  received by rank j from rank i        }
 *               3  sent of segment i                     }
 */
enum { NW_LEDGER_COLUMNS = 3 + 1 + NW_OWNERS };
nw_status nw_ledger_save(const nw_ledger *ledger, int64_t **rows, size_t *count);

/* Adds such a table, for ranks whose rows this ledger holds, of the same world and segments. The numbers are not
 * trusted: NW_E_MESSAGE says what is wrong with them; the ledger must not be used then. `source` names the origin in
 * that sentence: "rank 3", a path.
 *
 * resumes: for a run that continues, perhaps with another world or other buckets. Counts that have no row here are
 * added to the totals only, so that these stay the totals of the whole run. Under MPI, rank 0 keeps the table of the
 * world that a checkpoint holds, and adds it together with those of the ranks: in the next checkpoint, and at the
 * end. */
nw_status nw_ledger_add(nw_ledger *ledger, const int64_t *rows, size_t count, bool resumes, const char *source);

/* ---- For people and scripts ---- */

/* What a codec sent: the bytes of all payloads of all ranks, each counted once, however many ranks got it. */
typedef struct nw_ledger_codec {
    const char *codec;
    int64_t payloads, float_bytes, bytes, index_bytes, scale_bytes;
    int64_t entries;                            /* of sparse sets; 0: the fields below mean nothing */
    double index_bound_bytes;                   /* log2 of n choose k, the lower bound for positions */
    int64_t int32_list_bytes, int64_list_bytes; /* size of lists of values and positions */
} nw_ledger_codec;

/* The steps and images by which the counts are divided; 0: unknown. */
typedef struct nw_ledger_run {
    int64_t steps, images;
    const nw_ledger_codec *codecs;
    int codec_count;
} nw_ledger_run;

/* docs/files.md: ledger.json. Where links are very many, the busiest ones. */
enum { NW_LEDGER_JSON_LINKS = 1 << 14 };
nw_status nw_ledger_write_json(const nw_ledger *ledger, nw_ledger_run run, FILE *out);
nw_status nw_ledger_save_json(const nw_ledger *ledger, nw_ledger_run run, const char *path); /* at one stroke */

/* A table: bytes by owner, messages, bytes a step and an image, the busiest links, the largest segments. Nothing if
 * nothing was sent. */
nw_status nw_ledger_print(const nw_ledger *ledger, nw_ledger_run run, FILE *out);

#endif
