/*
 * server_private.h - the inside of the parameter server, shared by the files that make it: server.c (the state machine,
 * life), server_clients.c (workers as a server sees them: what they get, silence, return), server_turns.c (gradients
 * in, updates), server_copies.c (copies of all parameters, while all go on), server_shadows.c (what workers have, where
 * codecs lose something) and server_worker.c (a rank that computes gradients).
 *
 * Members 0 .. S - 1 are servers, and own one range of the parameters each; the members behind them are workers, and,
 * with `server_computes`, all are. What goes between a rank's own two roles passes the same functions, but not the
 * driver.
 *
 *   kind       from -> to              says
 *   GRADIENT   worker -> each server   a shard of a gradient; step: its credit, version: the model it was computed from
 *   REPORT     worker -> server 0      what the worker has to tell of that batch; after the shards
 *   MODEL      server -> worker        a shard of the parameters of that version; at the end of a run also to servers.
 *                                      flags 1: what it differs by from the last that was sent (server_shadows.c)
 *   CREDIT     server 0 -> worker      compute one gradient from a model of that version or a newer one; step: its number
 *   OVER       server -> all           the run is over, the parameters are those of that version; members that are dropped
 *   CLOSE      server 0 -> server      the run is over after that many updates
 *   DROPPED    server 0 -> worker      you were dropped: forget your credits and what you compute for them; step: the
 *                                      first of them whose gradient did not come
 *   JOIN       worker -> server 0      I have, and am back
 *   COPY       server -> server 0      a shard of the parameters of that version, exactly, to be looked at
 *   TAKEN      server 0 -> server      the copy of that version is complete
 *   STOP       any -> server 0         the sender was asked to stop
 *   REFUSED    server 0 -> worker      the gradient of that credit was too old: what it held goes back into the memory
 *
 * Of several servers the first decides, and the others do the same in the same order, so that all ranges have one
 * history:
 *
 *   TURN       server 0 -> server      the next update takes these workers' gradients; version: their age. flags 1: they are
 *                                      thrown away instead; flags 2: they are added, and the update takes more of them
 *   GIVE       server 0 -> server      worker `part` gets the present parameters
 *   CANCEL     server 0 -> server      worker `part` was dropped: what a turn lacks of it will not come. Is heeded at once
 *   JOINED     server 0 -> server      worker `part` is back; what it sends for credits before `step` is of no use
 *   APPLIED    server -> server 0      so many updates are made here; step: gradients that were taken in this run
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
    TURN,
    GIVE,
    CANCEL,
    JOINED,
    APPLIED,
    REFUSED,
    KINDS
};
enum { CHANNEL = NW_CHANNEL_EXCHANGE, THROWN_AWAY = 1, PARTIAL = 2 /* flags of TURN */, DIFFERENCE = 1 /* of MODEL */ };
enum { IN_FLIGHT_MOST = 8, COPIES_MOST = 2 };

/* All shards of one vector that belong to one server, or to one gradient of it: messages by shard, NULL where it is not
 * there. */
typedef struct shards {
    nw_message **at;
    int here;
    int64_t version;
} shards;

/* ---- the worker's side ---- */

/* What comes from one server. */
enum { READY_MOST = IN_FLIGHT_MOST + 2 };
typedef struct source {
    shards coming;
    shards ready[READY_MOST]; /* complete models that are not in place, the oldest first */
    int ready_count;
    int64_t version; /* of what is in place */
    bool over;       /* it has said that the run is over */
} source;

typedef struct credit {
    int64_t number, version;
} credit;

typedef struct worker {
    bool active, computing;
    bool dropped;                   /* what is being computed is of no use */
    credit credits[IN_FLIGHT_MOST]; /* not yet used, in order */
    int credit_count;
    int64_t number; /* the credit of the gradient under way */
    int64_t begun;  /* gradients */
    int given;      /* buckets of the gradient under way that were sent */
    source *from;   /* by server */
    shards *held;   /* with a memory: the last gradients, by number of those begun, until they are surely answered */
    int lost;       /* workers that were dropped when the last run was over; -1: there was none */
} worker;

/* ---- the server's side ---- */

/* A gradient of one worker. */
typedef struct gradient {
    shards shards;
    nw_message *report;
    int64_t number;
    int from;                         /* the member */
    struct gradient *before, *behind; /* in the queue */
    struct gradient *next;            /* of the same worker; of those that are not used: any */
} gradient;

/* A worker, as a server sees it. */
typedef struct client {
    int member;
    bool dropped;
    bool told;        /* ... and was told so, since it said something */
    bool joins;       /* it wants to come back, and will when the next run begins */
    int waiting;      /* gradients that are here and wait */
    int64_t has;      /* the version that was last sent to it; -1: none that it can use */
    int64_t heard_ns; /* when it last said something, or was given something to do */
    int64_t came;     /* the first server: credits before this one had their gradients here when it was dropped */
    int64_t
        least; /* gradients of credits before this one are from before it was dropped; other servers than the first */
    gradient coming;
    gradient *oldest, *newest;          /* that wait in the queue */
    shards backups[IN_FLIGHT_MOST + 2]; /* models that it may have computed from, for dc-asgd; in order of version */
    int backup_count;
    float *shadow; /* what it has of this server's range; NULL: codecs lose nothing, or it is this rank */
} client;

/* Another server, as the first sees it. */
typedef struct fellow {
    int64_t version;  /* updates that it has made */
    int64_t taken;    /* gradients of this run that it does not hold any more */
    int64_t heard_ns; /* when it said so, or had nothing to do */
} fellow;

/* The parameters of all servers after `version` updates, as far as they have come; at rank 0. */
typedef struct copy {
    int64_t version;
    int here; /* shards; 0: it is free */
    bool *has;
    float *values; /* NULL: not used yet */
} copy;

typedef struct master {
    bool active, applying;
    bool told; /* the other servers know of the update under way: what they give is its outcome */
    nw_message *orders,
        **last_order; /* other servers than the first: TURN, GIVE, JOINED and CLOSE that were not heeded yet */
    fellow *fellows;  /* the first server: by server */
    int64_t version;  /* updates made */
    int64_t until;
    int64_t serial;     /* the next credit's number */
    nw_credits credits; /* that were given and whose gradients are not applied, by client; server 0 */
    int owed;           /* gradients that credits were given for and that are not here */
    int turn;           /* the client that is served first when there is not enough for all */
    client *clients;
    int dropped_count;      /* of these */
    gradient *slots;        /* all there can be */
    gradient *first, *last; /* the queue: complete, in the order in which they came */
    gradient *spare;        /* that are not used */
    gradient **taken;       /* that are being applied */
    int queue_count, taken_count;
    int ordered;         /* gradients of the turn that is being taken, also those that never came */
    int64_t done;        /* gradients of this run that are not held any more */
    int summed;          /* gradients in `sum`, for the next update */
    int next;            /* in step: workers from here on have had no credit for this update */
    int64_t thrown_away; /* gradients that were too old */
    float *sum;          /* what is applied: as long as all parameters, but used in this server's range only */
    float *was;          /* for dc-asgd: a shard of an old model */
    float *difference;   /* between parameters and a shadow: as long as all parameters */
    shards model;        /* the parameters of `version`, encoded; empty: not yet */
    int64_t timer;       /* NW_NO_TIMER: none */
    int64_t looked_at, looked_serial; /* what nw_clients_set_timer went by when it last looked at all workers */
    /* Of even and of odd updates: one is told after the next has begun, when the messages of its gradients are used
     * again. */
    nw_count counted[2];
    int *counted_from;
    const void **counted_reports;
    uint8_t *reports;
    int copying;           /* copies of this server's range that are not taken */
    int64_t copied;        /* rank 0: the version of the last complete copy */
    copy all[COPIES_MOST]; /* rank 0: under way */
} master;

typedef struct server {
    nw_machine base;
    nw_exchange_options o;
    const nw_params *params;
    nw_layout layout;    /* cut where the servers' ranges begin */
    nw_channel up, down; /* gradients to all servers; parameters of this server's range */
    bool exact;          /* codecs lose nothing */
    bool shadowed;       /* parameters go down as differences */
    bool returns;        /* gradients that are refused go back into a memory */
    nw_message **by_cut; /* room for what a bucket becomes */
    int shard_count;     /* of all buckets and servers, empty ones included; shard_of numbers them */
    int present;         /* of these, that are not empty */
    int *of_server;      /* by server: shards that it has */
    size_t *range;       /* by server: where its range begins; one more for the end */
    int servers, first_worker, workers;
    int64_t saved_first, was_first; /* first_worker, for checkpoints: now, and in the world that was saved */
    bool serves, works; /* this rank's roles */
    bool hears; /* it gets parameters of other servers: as a worker, or when quiescent, as one of several servers */
    bool sync;
    int room;                 /* gradients that a server may hold; INT_MAX: as many as there can be */
    const int64_t *snapshots; /* updates behind which one is due in this run, ascending */
    int snapshot_count;
    int64_t now_ns; /* of the event that is being handled */
    worker worker;
    master master;
} server;

/* ---- server.c ---- */

/* Sends a message, or hands it over where the receiver is this rank's other role. Takes over the reference. */
nw_status nw_server_send(server *s, nw_actions *actions, int to, nw_message *message);
/* A message that is not encoded, to be filled. */
nw_status nw_server_make_message(const server *s, nw_actions *actions, int kind, size_t bytes, int64_t step,
                                 int64_t version, nw_message **message);
/* Sends one without payload. */
nw_status nw_server_tell(server *s, nw_actions *actions, int to, int kind, int64_t number, int64_t version);
/* The part of a bucket of the parameters that this server owns; NULL: it owns nothing of it. */
nw_status nw_server_encode_own(server *s, nw_actions *actions, int kind, nw_plain plain, int bucket, int64_t version,
                               nw_message **message);
/* All of them, into an empty list. */
nw_status nw_server_encode_model(server *s, nw_actions *actions, nw_plain plain, int64_t version, shards *to);
/* To its place in a vector as long as the parameters, or alone. */
nw_status nw_server_decode(server *s, nw_actions *actions, const nw_message *message, float *out, nw_where where,
                           bool add);
/* All shards of a list that are here, to their places in a vector as long as the parameters. */
nw_status nw_server_decode_all(server *s, nw_actions *actions, const shards *from, float *vector, bool add);

nw_status nw_shards_make(shards *p, int count);
void nw_shards_drop(shards *p, int count); /* the messages */
void nw_shards_free(shards *p, int count);
/* Takes a reference to a message of this shard. NW_E_MESSAGE if it is there already. */
nw_status nw_shards_add(shards *p, int index, nw_message *message);

/* ---- server_worker.c ---- */

nw_status nw_worker_make(server *s);
void nw_worker_free(server *s);
nw_status nw_worker_give(server *s, nw_actions *actions, size_t first); /* shards that are final from there on */
nw_status nw_worker_computed(server *s, nw_actions *actions);
nw_status nw_worker_take(server *s, nw_actions *actions, nw_message *message, int from);
nw_status nw_worker_go_on(server *s, nw_actions *actions);

/* ---- server_clients.c ---- */

nw_status nw_clients_make(server *s);
void nw_clients_free(server *s);
/* Brings a worker up to date. A rank's own role has the parameters in place. */
nw_status nw_clients_update(server *s, nw_actions *actions, client *c);
/* This rank's other role begins to compute, from what is in place. */
nw_status nw_clients_own_begins(server *s, nw_actions *actions);
/* Server 0: gives credits as long as there is something to do. */
nw_status nw_clients_give_credits(server *s, nw_actions *actions);
/* In step, where servers have no room for a gradient of each worker: one has had no credit for this update. */
bool nw_clients_more(const server *s);
/* A run begins, and ends: all get the last parameters, exactly. */
nw_status nw_clients_go(server *s, nw_actions *actions);
nw_status nw_clients_end_run(server *s, nw_actions *actions);
/* Of a worker that was dropped: it says something, or wants to come back. */
nw_status nw_clients_return(server *s, nw_actions *actions, client *c, bool joins);
/* Server 0 tells the others. */
nw_status nw_clients_forget(server *s, nw_actions *actions, client *c); /* CANCEL */
nw_status nw_clients_join(server *s, nw_actions *actions, client *c, int64_t least);
nw_status nw_clients_rang(server *s, nw_actions *actions);
/* Another server has made so many updates, and taken so many gradients in this run. */
void nw_clients_hear_server(server *s, int server_index, int64_t version, int64_t taken);
void nw_clients_set_timer(server *s, nw_actions *actions);
void nw_clients_waits(const server *s, nw_wait *wait);
/* Forgets models that are older than what it computes from by now. */
void nw_clients_drop_backups(server *s, client *c, int64_t version);

/* ---- server_turns.c ---- */

nw_status nw_turns_make(server *s);
void nw_turns_free(server *s);
nw_status nw_turns_go(server *s, nw_actions *actions, int64_t until);
/* If a run is under way: no updates but those of credits that are out. */
void nw_turns_stop(server *s);
nw_status nw_turns_take(server *s, nw_actions *actions, nw_message *message, int from);
nw_status nw_turns_applied(server *s, nw_actions *actions);
nw_status nw_turns_go_on(server *s, nw_actions *actions);
/* Throws away the gradients of a worker that wait here: it has been dropped since. */
void nw_turns_purge(server *s, client *c);

/* ---- server_shadows.c ---- */

bool nw_shadows_needed(const server *s);
nw_status nw_shadows_make(server *s);
void nw_shadows_free(server *s);
/* A worker has the present parameters exactly, as all have when quiescent. */
void nw_shadows_are_exact(server *s, nw_actions *actions, client *c);
/* Brings a worker up to date; one that has nothing it can use gets the parameters exactly. */
nw_status nw_shadows_send(server *s, nw_actions *actions, client *c);
/* What a worker has, as a message that is kept; NULL: this server owns nothing of the bucket. */
nw_status nw_shadows_copy(server *s, nw_actions *actions, const client *c, int bucket, nw_message **message);

/* ---- server_copies.c ---- */

void nw_copies_free(server *s);
/* Server 0 has made an update: tells it, and, of one server, the snapshot. */
nw_status nw_copies_count(server *s, nw_actions *actions);
/* Whether the next update has to wait until a copy is taken. */
bool nw_copies_hold(const server *s);
/* An update has been made: gives a copy, if one is due. */
nw_status nw_copies_give(server *s, nw_actions *actions);
nw_status nw_copies_take(server *s, nw_actions *actions, const nw_message *message, int from);
/* The ranks that copies wait for. */
void nw_copies_waits(const server *s, nw_wait *wait);

static inline bool is_first(const server *s) { return s->base.group.me == 0; }
static inline client *client_of(server *s, int member) { return &s->master.clients[member - s->first_worker]; }
static inline int number_of(const server *s, const client *c) { return c->member - s->first_worker; }
/* Credits of a client that are out, at the first server. */
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
