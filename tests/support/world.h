/*
 * world.h - a world of ranks that no driver moves: the test chooses what happens next.
 *
 * Each member of a group has parameters, a machine (an exchange over passes.c or, `bare`, alone) and a worker that the
 * world plays. Messages lie in queues, one a link, first in, first out. At any moment some moves are possible:
 *
 *   f -> t   the oldest message of that link reaches member t
 *   r        (f = t) member r goes on: it begins the next of its tasks, or the one under way announces FINAL or OUT or is
 *            done
 *   timer    (f = WORLD_TIMER) that of member t rings, as often as the options say
 *
 * and the test may tell GO and STOP, ring a timer, kill a member, or damage what lies in a queue. Moves on different
 * members commute, since one takes from the head of a queue what another adds to its end, and members have clocks of
 * their own.
 *
 * What task.h and machine.h promise is checked on the way, by nw_rank_tell and its like, which all drivers use, and
 * here: elements of a gradient that are not final are NaN, and so is what an update is changing, so that one who reads
 * them early is found out; nobody writes what a pass reads; messages are whole, and go to other members; links hold a
 * bounded number of them; updates are counted one by one, with the reports of those whose gradients they took;
 * snapshots are what the ranges were, where the test does not look at them itself.
 *
 * The test may also make ranks of its own, with workers that do their tasks whole when they begin: then the world moves
 * what these announce, and looks at the machines alone.
 *
 * A gradient is any bits, but depends on the weights, the member and its count of batches, so that every difference in
 * order or version shows. Failing is fatal: it prints why and aborts, so that fuzz targets can use it too.
 */
#ifndef NW_TESTS_WORLD_H
#define NW_TESTS_WORLD_H

#include "base/rng.h"
#include "exchange/exchange.h"
#include "net/driver.h"

enum {
    WORLD_MOST = 8,
    WORLD_TIMER = WORLD_MOST - 1,
    WORLD_LINK = 512,
    WORLD_FINALS = 8,
    WORLD_FLOATS = 1024,
    WORLD_DUE = 1024,
    WORLD_KEPT = 64
};

struct world;

typedef struct world_report {
    int32_t member, count; /* gradients computed, with this one */
} world_report;

typedef struct world_options {
    nw_exchange_options exchange; /* all but the group, params, codec and report, which are the world's */
    nw_status (*create)(nw_machine **, const nw_exchange_options *); /* NULL: by its name */
    void (*make)(struct world *, int member); /* fills in the machine and the worker of a rank; NULL: as above */
    int members;
    const uint16_t *ranks; /* of the members, ascending; NULL: 0, 1, ... */
    int ranks_in_world;    /* 0: as many as members */
    const char *codec;     /* NULL: none */
    const nw_codec *with;  /* a codec of the test's, instead; NULL: that one */
    const int *segments;   /* sizes, 0 ends; NULL: some uneven ones */
    bool matrices;         /* segments whose sizes 4 divides are matrices of 4 rows */
    bool bare;             /* without passes.c: the world makes gradients itself */
    bool interrupts;       /* messages come in the middle of updates, too */
    int link_most;         /* messages in a link at most; 0: WORLD_LINK */
    int rings;             /* so often timers may ring whatever else can happen; then, and if 0, when nothing can */
    bool exact;            /* gradients have few bits and do not depend on the weights: f32 sums of them are exact */
    bool averages;         /* outer updates subtract what they are given */
    void (*begun)(const struct world *w, int member); /* is told of tasks that begin; or NULL */
    int64_t every;                                    /* a snapshot is due after so many updates; 0: never */
    void (*looked)(const struct world *w, const nw_snapshot *s); /* is told of snapshots, which world does not check; or NULL */
    uint64_t seed;                                    /* of gradients, and of the order in which world_settle moves */
    uint64_t finals;                                  /* 0: DONE only; else what the moments of FINAL are drawn from */
    bool damaged; /* the test damages messages: members that refuse one are dead, and what is theirs is not checked */
} world_options;

typedef struct world_member {
    nw_rank rank;
    nw_params params;
    nw_task gradient;   /* bare: what was asked for, while the pass runs that stands for it */
    float *made, *seen; /* what the task under way will have written; the values that a pass reads */
    float *also;        /* ... and what an update will have written beside its values */
    float *momentum;    /* of outer updates */
    size_t finals[WORLD_FINALS];
    nw_message *outs[WORLD_FINALS]; /* or what is sent up or down instead */
    int final, final_count;
    nw_announce announce; /* of a worker of the test's own */
    world_report said;
    int64_t batches, now, timer;
    int given;   /* snapshots of its range */
    bool asleep; /* does nothing, and what is sent to it waits */
    bool dead;   /* and is lost */
} world_member;

typedef struct world_link {
    nw_message *at[WORLD_LINK];
    int first, last; /* of all that were ever sent */
} world_link;

typedef struct world {
    world_options o;
    nw_driver *driver; /* what all have in common */
    nw_codec *codec;
    uint16_t ranks[WORLD_MOST];
    world_member at[WORLD_MOST];
    world_link links[WORLD_MOST][WORLD_MOST];
    size_t floats;
    nw_rng rng;
    uint64_t starved; /* moves that world_settle makes only if there are no others */
    int rings;        /* of timers so far */
    int telling;      /* the member that an event is told to */
    bool dropped[WORLD_MOST];
    /* what was counted: */
    int64_t updates, delay_sum, delay_max;
    int updates_of[WORLD_MOST];
    int32_t last_said[WORLD_MOST];
    /* snapshots: */
    int64_t due[WORLD_DUE];
    float (*kept)[WORLD_FLOATS]; /* by number modulo WORLD_KEPT: what each must be */
    int taken, most;             /* complete; of one server under way at most */
    int64_t ahead;               /* updates made since, when one was complete; all together */
} world;

void world_fail(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4), noreturn));
#define world_require(condition) \
    ((condition) ? (void)0 : world_fail(__FILE__, __LINE__, "%s does not hold", #condition))
#define world_ok(expression) \
    ((expression) == NW_OK ? (void)0 : world_fail(__FILE__, __LINE__, "%s", nw_error_message()))

nw_status world_make(world *w, const world_options *options); /* world_free may follow whatever it says */
void world_free(world *w);

/* ---- the arithmetic, for twins ---- */

float world_start(size_t i); /* values that all begin with */
float world_rate(int64_t clock);
/* One batch of a member, at these values: out = its gradient, or out += it. */
void world_gradient(const world *w, int member, int64_t batch, const float *values, bool adds, float *out);
/* values -= rate * (scale * gradient) on a range. */
void world_update(float *values, const float *gradient, size_t first, size_t count, float scale, int64_t clock);
/* The same by the outer rule, which has a momentum vector; number 0 begins it. */
void world_outer_update(bool averages, float *values, float *momentum, const float *gradient, size_t first,
                        size_t count, float scale, int64_t number);

/* ---- moves ---- */

static inline uint64_t world_bit(int from, int to) { return (uint64_t)1 << (from * WORLD_MOST + to); }
uint64_t world_moves(const world *w); /* that are possible now */
nw_status world_deliver(world *w, int from, int to);
nw_status world_local(world *w, int member);
nw_status world_move(world *w, uint64_t bit);               /* one of these */
nw_status world_tell(world *w, int member, nw_event event); /* now */
/* A message that the test brings. Not taken over. */
nw_status world_hand(world *w, int to, nw_message *message);
/* To all that live; batches 0: any number. */
nw_status world_go(world *w, int64_t until, int64_t batches, bool drain);
nw_status world_stop(world *w, int member);
/* Rings the timer that is due first, and lets the time pass until then. False: none is set. */
bool world_ring(world *w, nw_status *status);
/* Makes a random move, or, if there is none, rings a timer. False: nothing can happen. */
bool world_step(world *w, nw_status *status);
/* Steps until nothing can happen. */
nw_status world_settle(world *w);
/* GO, without drain, and settle. */
nw_status world_run(world *w, int64_t until);

/* ---- checks ---- */

/* All who live are quiescent after so many updates, nothing is on its way, and all have the same values, where they
 * should. */
void world_check_quiescent(const world *w, int64_t updates);
void world_check_values(const world *w, const float *values); /* of all, bit for bit */
/* Makes a new world of the same options go on where a quiescent one is, from what a checkpoint has of it. */
void world_resume(world *w, const world *from);

/* Runs every order of moves, from `begin` until nothing can move, and calls `check` after each. Orders that differ only
 * in moves of different members lead to the same states: of these one is run, unless `all`. Returns how many. */
int64_t world_every_order(const world_options *o, void (*begin)(world *), void (*check)(world *), bool all);

#endif
