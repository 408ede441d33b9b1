/*
 * ledger.h - who owns every byte that ranks send each other.
 *
 *   owner     what
 *   values    payload that is neither index nor scale
 *   indices   header.index_bytes of the payload
 *   scales    header.scale_bytes of the payload
 *   headers   the 64 bytes before a payload
 *   control   messages of the drivers (channel 0), headers included; and collective small talk
 *
 * A message of b payload bytes costs 64 + b, and its owners' shares add up to that, always. They are counted for the
 * whole process, per link (from, to), per segment and per step, with the number of messages. The driver tells a second,
 * independent count, what its transport was asked to move; nw_ledger_check compares the two.
 *
 * A process keeps the rows of its own ranks: all of them in a virtual cluster, one under MPI. So memory is fixed by
 * (ranks here, world, segments). At the end rank 0 makes a ledger of the whole world and adds what the others counted;
 * then what one rank sent and what another received can be compared, too (nw_ledger_check_links).
 *
 * Counting never fails and allocates nothing. A rank that is not the ledger's is a bug and aborts.
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
    int segments;                     /* ids in exchanges' headers; all else is counted together as "other" */
    const char *const *segment_names; /* copied; NULL, or NULL in it: "segment 3" */
} nw_ledger_options;

typedef struct nw_ledger nw_ledger;

nw_status nw_ledger_create(nw_ledger **ledger, const nw_ledger_options *options);
void nw_ledger_free(nw_ledger *ledger);

/* ---- Counting ---- */

/* Whole messages. sent: `from` is a rank here; received: `to` is. Segments and steps count what is sent. */
void nw_ledger_sent(nw_ledger *ledger, int from, int to, const nw_header *header);
void nw_ledger_received(nw_ledger *ledger, int from, int to, const nw_header *header);

/* What the transport was asked to move, by its own count. */
void nw_ledger_transport(nw_ledger *ledger, nw_traffic direction, uint64_t bytes);

/* What travelled on the links of a rank that was dropped counts in the totals alone from now on, since nobody knows
 * what of it arrived. */
void nw_ledger_forget_links(nw_ledger *ledger, int rank);

/* What was sent since the last call, or the start. */
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

/* NW_E_INTERNAL names direction, both counts and their difference, if owners and transport do not agree. */
nw_status nw_ledger_check(const nw_ledger *ledger);
/* For a ledger of the whole world, when nothing is under way any more: what was sent on each link was received there.
 * NW_E_PEER names the first link where it was not. `lost`: ranks that were dropped, by rank; NULL: none. */
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

/* Adds such a table of ranks whose rows this ledger holds, of the same world and segments. The numbers may be
 * anything: NW_E_MESSAGE says what is wrong with them, and the ledger is of no use then. `source` is for messages:
 * "rank 3", a path.
 *
 * resumes: for a run that continues, perhaps with another world or other buckets: counts that have no place here are
 * added to the totals alone, which so stay those of the whole run. Under MPI, rank 0 keeps the table of the world
 * that a checkpoint holds, and adds it where it adds the ranks': in the next checkpoint, and at the end. */
nw_status nw_ledger_add(nw_ledger *ledger, const int64_t *rows, size_t count, bool resumes, const char *source);

/* ---- For people and scripts ---- */

/* What a codec made of floats: bytes of all payloads of all ranks, each once, however many ranks got it. */
typedef struct nw_ledger_codec {
    const char *codec;
    int64_t payloads, float_bytes, bytes, index_bytes, scale_bytes;
    int64_t entries;                            /* of sparse sets; 0: none were sent, and the rest means nothing */
    double index_bound_bytes;                   /* log2 of n choose k, the least that places can take */
    int64_t int32_list_bytes, int64_list_bytes; /* what lists of values and places would have taken */
} nw_ledger_codec;

/* The steps and images that the counts are divided by; 0: not known. */
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
