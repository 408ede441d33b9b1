/*
 * server_private.h - the inside of the parameter server, shared by the files that make it: server.c (the state machine,
 * creation), server_clients.c (workers as a server sees them: parameters and credits for them, timeouts, their return),
 * server_updates.c (received gradients, and updates), server_copies.c (snapshots of all parameters while training goes
 * on), server_shadows.c (what each worker has, if codecs lose something) and server_worker.c (a rank that computes
 * gradients).
 *
 * Members 0 .. S - 1 are servers; each owns a range of the parameters. The members after them are workers; with
 * `server_computes` all members are workers. Messages between the two roles of one rank go through the same functions,
 * but not through the driver.
 *
 *   kind       from -> to              meaning
 *   GRADIENT   worker -> each server   a shard of a gradient; step: its credit, version: that of its parameters
 *   REPORT     worker -> server 0      numbers about that batch (loss, ...); follows the shards
 *   MODEL      server -> worker        a shard of the parameters of that version; at the end of a run also to servers.
 *                                      flags 1: its difference from the last one sent (server_shadows.c)
 *   CREDIT     server 0 -> worker      compute one gradient from parameters of that version or newer; step: its number
 *   OVER       server -> all           the run is over after `version` updates; payload: members that are dropped
 *   CLOSE      server 0 -> server      the run is over after `version` updates
 *   DROPPED    server 0 -> worker      you were dropped: forget your credits and your computation; step: your first
 *                                      credit whose gradient did not arrive
 *   JOIN       worker -> server 0      I have forgotten them, and want to join again
 *   COPY       server -> server 0      a shard of the parameters of that version, exact, for a snapshot
 *   TAKEN      server 0 -> server      the snapshot of that version is complete
 *   STOP       any -> server 0         the sender was asked to stop
 *   REFUSED    server 0 -> worker      the gradient of that credit was too old: put its content back into the memory
 *
 * If there are several servers, server 0 decides, and the others do the same in the same order, so that all ranges have
 * the same history:
 *
 *   UPDATE     server 0 -> server      the next update uses these workers' gradients; version: their delay.
 *                                      flags 1: discard them instead; flags 2: add them; more follow for this update
 *   PUSH       server 0 -> server      send your present parameters to worker `part`
 *   CANCEL     server 0 -> server      worker `part` was dropped: do not wait for its gradients. Takes effect at once
 *   JOINED     server 0 -> server      worker `part` is back; ignore what it sends for credits before `step`
 *   APPLIED    server -> server 0      I have made `version` updates, and used `step` gradients of this run
 *
 * A shard is the part of a bucket that one server owns (header: bucket, and part is the server).
 */
#ifndef NW_EXCHANGE_SERVER_PRIVATE_H
#define NW_EXCHANGE_SERVER_PRIVATE_H

#include "channel/channel.h"
#include "exchange/credits.h"
#include "exchange/exchange.h"

enum {
    GRADIENT = 1,
    REPORT,
    MODEL,
    CREDIT,
    OVER,
    CLOSE,
    DROPPED,
    JOIN,
    COPY,
    TAKEN,
    STOP,
    UPDATE,
    PUSH,
    CANCEL,
    JOINED,
    APPLIED,
    REFUSED,
    KINDS
};
enum { CHANNEL = NW_CHANNEL_EXCHANGE, DISCARD = 1, PARTIAL = 2 /* flags of UPDATE */, DIFFERENCE = 1 /* of MODEL */ };
enum { IN_FLIGHT_MOST = 8, COPIES_MOST = 2 };

/* The messages of one vector, by shard; NULL where a shard is missing or belongs to another server. */
typedef struct shards {
    nw_message **at;
    int here; /* number of messages */
    int64_t version;
} shards;

/* ---- the worker's side ---- */

/* What a worker received from one server. */
enum { READY_MOST = IN_FLIGHT_MOST + 2 };
typedef struct source {
    shards coming;            /* the model that is being received */
    shards ready[READY_MOST]; /* complete models that are not in use yet, the oldest first */
    int ready_count;
    int64_t version; /* the version in use: that of this range of the parameters */
    bool over;       /* the server has sent OVER */
} source;

typedef struct credit {
    int64_t number, version;
} credit;

typedef struct worker {
    bool active, computing;
    bool dropped;                   /* the gradient in progress will not be used */
    credit credits[IN_FLIGHT_MOST]; /* credits that are not used yet, in order */
    int credit_count;
    int64_t number; /* the credit of the gradient in progress */
    int64_t begun;  /* number of gradients begun */
    int sent;       /* buckets of the gradient in progress that were sent */
    source *from;   /* for each server */
    shards *held;   /* with an error memory: copies of the last gradients, until the server has surely answered them */
    int lost;       /* number of dropped workers at the end of the last run; -1: there was no run */
} worker;

/* ---- the server's side ---- */

/* A gradient of one worker. */
typedef struct gradient {
    shards shards;
    nw_message *report;
    int64_t number;
    int from;                         /* the member */
    struct gradient *before, *behind; /* neighbours in the queue */
    struct gradient *next;            /* next one of the same worker; in the list of spare ones: any */
} gradient;

/* A worker, as a server sees it. */
typedef struct client {
    int member;
    bool dropped;
    bool told;                 /* it was sent DROPPED, after it had sent something again */
    bool joins;                /* it has asked to join again, and will when the next run begins */
    int waiting;               /* its gradients in the queue */
    int64_t has;               /* the version that was last sent to it; -1: none that it can use */
    int64_t heard_ns;          /* when it last sent something, or got something to do */
    int64_t came;              /* server 0: the first credit whose gradient had not arrived when it was dropped */
    int64_t least;             /* other servers: gradients of credits before this one date from before it was dropped */
    gradient coming;           /* the gradient that is being received */
    gradient *oldest, *newest; /* its gradients in the queue */
    shards backups[IN_FLIGHT_MOST + 2]; /* for dc-asgd: models that it may have computed from, in order of version */
    int backup_count;
    float *shadow; /* this server's range as the worker has it; NULL: codecs are exact, or the worker is this rank */
} client;

/* Another server, as server 0 sees it. */
typedef struct peer {
    int64_t version;  /* updates that it has made */
    int64_t taken;    /* gradients of this run that it has used and freed */
    int64_t heard_ns; /* when it last said so, or last had nothing to do */
} peer;

/* At rank 0: a snapshot of the parameters of all servers after `version` updates, as far as it has arrived. */
typedef struct copy {
    int64_t version;
    int here; /* number of shards that have arrived; 0: the struct is free */
    bool *has;
    float *values; /* NULL: not allocated yet */
} copy;

typedef struct master {
    bool active, applying;
    bool told; /* the other servers know of the update in progress: parameters that they send now include it */
    nw_message *orders, **last_order; /* other servers than 0: UPDATE, PUSH, JOINED and CLOSE that wait */
    peer *peers;                      /* server 0: for each server */
    int64_t version;                  /* updates made */
    int64_t until;
    int64_t serial;     /* number of the next credit */
    nw_credits credits; /* server 0: outstanding credits of each client, until their gradients are applied */
    int owed;           /* credits whose gradients have not arrived */
    int first_served;   /* the client that gets the next credit if there are not enough for all */
    client *clients;
    int dropped_count;      /* number of dropped clients */
    gradient *slots;        /* all gradients there can be */
    gradient *first, *last; /* the queue: complete gradients, in the order in which they arrived */
    gradient *spare;        /* unused ones */
    gradient **taken;       /* those that are being applied */
    int queue_count, taken_count;
    int ordered;         /* gradients of the present order UPDATE, including those that will not arrive */
    int64_t done;        /* gradients of this run that were used and freed */
    int summed;          /* gradients in `sum`, for the next update */
    int next;            /* synchronous, bounded memory: workers from here on have had no credit for this update */
    int64_t thrown_away; /* gradients discarded because they were too old */
    float *sum; /* the gradient that is applied: indexed as all parameters, but only this server's range is used */
    float *was; /* for dc-asgd: a shard of an old model */
    float *difference;                /* parameters minus a shadow: indexed as all parameters */
    shards model;                     /* the parameters of `version`, encoded; empty: not encoded yet */
    int64_t timer;                    /* NW_NO_TIMER: none */
    int64_t looked_at, looked_serial; /* inputs of nw_clients_set_timer when it last scanned all workers */
    /* For even and for odd updates, because an update is reported after the next one has begun, when the messages of
     * its gradients are in use again. */
    nw_count counted[2];
    int *counted_from;
    const void **counted_reports;
    uint8_t *reports;
    int copying;           /* snapshots of this server's range that rank 0 has not confirmed */
    int64_t copied;        /* rank 0: version of the last complete snapshot */
    copy all[COPIES_MOST]; /* rank 0: snapshots in progress */
} master;

typedef struct server {
    nw_machine base;
    nw_exchange_options o;
    const nw_params *params;
    nw_layout layout;    /* cut at the bounds of the servers' ranges */
    nw_channel up, down; /* up: gradients to all servers; down: parameters of this server's range */
    bool exact;          /* all codecs are exact */
    bool shadowed;       /* parameters are sent as differences (server_shadows.c) */
    bool returns;        /* refused gradients are put back into an error memory */
    nw_message **by_cut; /* working memory: the messages of a bucket */
    int shard_count;     /* buckets x servers, empty shards included; shard_of numbers them */
    int present;         /* number of shards that are not empty */
    int *of_server;      /* number of shards of each server that are not empty */
    size_t *range;       /* where each server's range begins; one more for the end */
    int servers, first_worker, workers;
    int64_t saved_first, was_first; /* first_worker, for checkpoints: now, and in the world that was saved */
    bool serves, works;             /* this rank's roles */
    bool receives; /* it receives parameters: as a worker, or at the end of a run as one of several servers */
    bool sync;
    int room;                 /* number of gradients that a server may hold; INT_MAX: no limit */
    const int64_t *snapshots; /* the updates after which a snapshot is due in this run, ascending */
    int snapshot_count;
    int64_t now_ns; /* time of the event that is being handled */
    worker worker;
    master master;
} server;

/* ---- server.c ---- */

/* Sends a message; if the receiver is this rank, handles it at once. The caller's reference is used up. */
nw_status nw_server_send(server *s, nw_actions *actions, int to, nw_message *message);
/* Makes a message whose payload the caller fills. */
nw_status nw_server_make_message(const server *s, nw_actions *actions, int kind, size_t bytes, int64_t step,
                                 int64_t version, nw_message **message);
/* Sends a message without payload. */
nw_status nw_server_tell(server *s, nw_actions *actions, int to, int kind, int64_t number, int64_t version);
/* Encodes the part of a bucket that this server owns; *message is NULL if it owns nothing of it. */
nw_status nw_server_encode_own(server *s, nw_actions *actions, int kind, nw_plain plain, int bucket, int64_t version,
                               nw_message **message);
/* Encodes this server's parts of all buckets into an empty list. */
nw_status nw_server_encode_model(server *s, nw_actions *actions, nw_plain plain, int64_t version, shards *to);
/* Decodes a message; `where` says how `out` is indexed. */
nw_status nw_server_decode(server *s, nw_actions *actions, const nw_message *message, float *out, nw_where where,
                           bool add);
/* Decodes all shards of a list into a vector that is indexed as all parameters. */
nw_status nw_server_decode_all(server *s, nw_actions *actions, const shards *from, float *vector, bool add);

nw_status nw_shards_make(shards *p, int count);
void nw_shards_drop(shards *p, int count); /* releases the messages */
void nw_shards_free(shards *p, int count);
/* Adds a reference to the message of a shard. NW_E_MESSAGE if the shard has a message already. */
nw_status nw_shards_add(shards *p, int index, nw_message *message);

/* ---- server_worker.c ---- */

nw_status nw_worker_make(server *s);
void nw_worker_free(server *s);
nw_status nw_worker_send(server *s, nw_actions *actions, size_t first); /* the gradient is final from `first` on */
nw_status nw_worker_computed(server *s, nw_actions *actions);
nw_status nw_worker_receive(server *s, nw_actions *actions, nw_message *message, int from);
nw_status nw_worker_go_on(server *s, nw_actions *actions); /* starts the next gradient, if one can start */

/* ---- server_clients.c ---- */

nw_status nw_clients_make(server *s);
void nw_clients_free(server *s);
/* Sends the present parameters to a worker, if it does not have them. A rank's own worker role uses them in place. */
nw_status nw_clients_update(server *s, nw_actions *actions, client *c);
/* This rank's own worker role begins to compute, with the parameters in place. */
nw_status nw_clients_own_begins(server *s, nw_actions *actions);
/* Server 0: gives credits as long as there is something to do. */
nw_status nw_clients_give_credits(server *s, nw_actions *actions);
/* Synchronous, bounded memory: whether a worker has had no credit for this update yet. */
bool nw_clients_more(const server *s);
/* The begin of a run; its end, at which all get the exact last parameters. */
nw_status nw_clients_go(server *s, nw_actions *actions);
nw_status nw_clients_end_run(server *s, nw_actions *actions);
/* Server 0: a dropped worker has sent something (joins false), or JOIN. */
nw_status nw_clients_return(server *s, nw_actions *actions, client *c, bool joins);
/* What every server does when a worker is dropped (CANCEL) and when it joins again (JOINED). */
nw_status nw_clients_forget(server *s, nw_actions *actions, client *c);
nw_status nw_clients_join(server *s, nw_actions *actions, client *c, int64_t least);
/* The timer: drops workers whose deadline has passed. */
nw_status nw_clients_timed_out(server *s, nw_actions *actions);
/* Server 0: another server has made `version` updates and used `taken` gradients of this run. */
void nw_clients_note_progress(server *s, int server_index, int64_t version, int64_t taken);
void nw_clients_set_timer(server *s, nw_actions *actions);
void nw_clients_waits(const server *s, nw_wait *wait);
/* Frees the backups that are older than `version`: the worker computes from newer parameters. */
void nw_clients_drop_backups(server *s, client *c, int64_t version);

/* ---- server_updates.c ---- */

nw_status nw_updates_make(server *s);
void nw_updates_free(server *s);
nw_status nw_updates_go(server *s, nw_actions *actions, int64_t until);
/* During a run: makes no more updates than those of outstanding credits. */
void nw_updates_stop(server *s);
nw_status nw_updates_receive(server *s, nw_actions *actions, nw_message *message, int from);
nw_status nw_updates_applied(server *s, nw_actions *actions);
nw_status nw_updates_go_on(server *s, nw_actions *actions); /* starts the next update, if one can start */
/* Discards the queued gradients of a worker that was dropped. */
void nw_updates_purge(server *s, client *c);

/* ---- server_shadows.c ---- */

bool nw_shadows_needed(const server *s);
nw_status nw_shadows_make(server *s);
void nw_shadows_free(server *s);
/* Sets a worker's shadow to the exact parameters, which all workers have when quiescent. */
void nw_shadows_are_exact(server *s, nw_actions *actions, client *c);
/* Sends the parameters to a worker as differences; exactly, if it has nothing that it can use. */
nw_status nw_shadows_send(server *s, nw_actions *actions, client *c);
/* Copies a bucket of a worker's shadow into a message; NULL: this server owns nothing of the bucket. */
nw_status nw_shadows_copy(server *s, nw_actions *actions, const client *c, int bucket, nw_message **message);

/* ---- server_copies.c ---- */

void nw_copies_free(server *s);
/* Server 0 has made an update: emits COUNT, and, if there is only one server, a SNAPSHOT that is due. */
nw_status nw_copies_count(server *s, nw_actions *actions);
/* Whether the next update must wait until rank 0 has confirmed a snapshot. */
bool nw_copies_hold(const server *s);
/* After an update: sends this server's range to rank 0, if a snapshot is due. */
nw_status nw_copies_send(server *s, nw_actions *actions);
nw_status nw_copies_receive(server *s, nw_actions *actions, const nw_message *message, int from);
/* Adds the ranks for which snapshots wait. */
void nw_copies_waits(const server *s, nw_wait *wait);

static inline bool is_first(const server *s) { return s->base.group.me == 0; }
static inline client *client_of(server *s, int member) { return &s->master.clients[member - s->first_worker]; }
static inline int number_of(const server *s, const client *c) { return c->member - s->first_worker; }
/* A client's outstanding credits; at server 0. */
static inline int credits_of(const server *s, const client *c) { return s->master.credits.count[number_of(s, c)]; }
static inline bool is_own(const server *s, const client *c) { return c->member == s->base.group.me; }
/* The number of a shard, and back. */
static inline int shard_of(const server *s, uint32_t bucket, int part) { return (int)bucket * s->servers + part; }
static inline int server_of(const server *s, int shard) { return shard % s->servers; }
static inline const nw_block *block_of(const server *s, int shard) { return &s->layout.at[shard / s->servers].block; }
static inline size_t floats_of(const server *s, int shard)
{
    return block_of(s, shard)->cut_floats[server_of(s, shard)];
}

#endif
