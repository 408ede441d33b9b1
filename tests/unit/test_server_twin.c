/*
 * test_server_twin.c - the arithmetic of the parameter server, recomputed from the log of a run.
 *
 * Runs on a virtual cluster with noise and jitter are recorded. Then a plain loop goes through the log, which says in
 * which order each rank heard messages and when its tasks began and ended, and derives from it by the rules in server.c
 * which gradients each update took, from which parameters they had been computed, and how old they were; from that it
 * recomputes the parameters after every update. All must be the same, bit for bit, as what the servers had then, and
 * the delays as what was counted.
 *
 * One of the codecs sends every third element, with error feedback: then parameters go down as differences from what a
 * worker has, and a gradient that was refused goes back into its worker's memory.
 *
 * A log names messages by sender and number. Which of them are pieces of gradients, parameters or credits was noted
 * when they were sent, with what they claim of themselves; claims about credits and gradients are checked, not
 * believed.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "replay/recording.h"
#include "sim/virtual.h"
#include "support/own_folder.h"
#include "support/third.h"
#include "support/world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6, SERVERS = 3, FLOATS = 471, RUNS = 2, UPDATES = 40, GRADIENTS = 256, SENT = 8192, CREDITS = 256 };
enum { GRADIENT = 1, REPORT, MODEL, CREDIT, REFUSED = 17 }; /* kinds of messages */
static const int64_t UNTIL[RUNS] = {13, UPDATES};
static const int SEGMENTS[] = {64, 5, 100, 33, 2, 250, 17, 0};

/* ---- what ran ---- */

static nw_exchange_options rules;
static const char *codec_name;
static int ranks, servers, workers, first_worker;
static world arithmetic;                                /* for its gradients and updates alone */
static nw_header sent[RANKS][SENT];                     /* by sender and number */
static float after[SERVERS][UPDATES + 1][WORLD_FLOATS]; /* all that each server had after so many updates */
static float when_quiescent[RANKS][RUNS][WORLD_FLOATS];
static struct {
    int64_t delay, clock, thrown_away;
    int from[RANKS], from_count;
    int32_t said[RANKS];
} counted[UPDATES + 1];

typedef struct hand {
    nw_params params;
    float values[WORLD_FLOATS], gradients[WORLD_FLOATS];
    int64_t batches;
    int32_t said;
} hand;
static hand hands[RANKS];

static nw_status run_task(void *worker, nw_task *t, nw_announce *announce)
{
    hand *h = worker;
    int me = (int)(h - hands);
    if (t->kind == NW_TASK_UPDATE) {
        world_update(t->values, t->gradient, t->first, t->count, t->scale, t->clock);
        memcpy(after[me][t->number + 1], h->values, sizeof h->values);
        return NW_OK;
    }
    world_gradient(&arithmetic, me, h->batches, h->values, t->adds, h->gradients);
    t->clock = h->batches++;
    h->said += t->completes;
    for (size_t first = 300; t->completes && first > 0; first -= 150) announce->final(announce, first);
    return NW_OK;
}

static int cost(void *worker, const nw_task *t, int64_t *ns, int most)
{
    (void)worker, (void)most;
    int count = 0;
    if (t->kind == NW_TASK_PASS && t->completes) ns[count++] = 500000, ns[count++] = 750000;
    ns[count++] = t->kind == NW_TASK_PASS ? 1000000 : 60000;
    return count;
}

static void note_sent(void *context, int from, int to, const nw_header *header, int64_t now_ns)
{
    (void)context, (void)to, (void)now_ns;
    world_require(header->sequence < SENT);
    sent[from][header->sequence] = *header;
}

static nw_status note_count(void *context, const nw_count *c)
{
    (void)context;
    counted[c->updates].delay = c->delay;
    counted[c->updates].clock = c->clock;
    counted[c->updates].thrown_away = c->thrown_away;
    counted[c->updates].from_count = c->from_count;
    for (int i = 0; i < c->from_count; i++) {
        counted[c->updates].from[i] = c->from[i];
        memcpy(&counted[c->updates].said[i], c->reports[i], sizeof(int32_t));
    }
    return NW_OK;
}

static nw_cluster *make_cluster(uint64_t seed)
{
    nw_cluster *c;
    world_ok(nw_cluster_create(&c, ranks, ranks, 0, 1));
    c->seed = seed;
    c->links[0] = (nw_cluster_link){.latency_ns = 200000, .bandwidth = 1e8, .jitter = {NW_NOISE_EXPONENTIAL, 1.0}};
    for (int r = 0; r < ranks; r++) {
        c->ranks[r].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.5};
        c->ranks[r].slowdown = r + 1 == ranks ? 3.0 : 1.0;
    }
    return c;
}

static void make_rank(nw_rank *rank, int r, const uint16_t *members, const nw_codec *codec)
{
    hand *h = &hands[r];
    memset(h, 0, sizeof *h);
    for (int i = 0, index; SEGMENTS[i]; i++)
        world_ok(nw_segments_add(&h->params.learned, "s", NW_ROLE_LINEAR, i, 1, 1, &SEGMENTS[i], &index));
    h->params.values = h->values;
    h->params.gradients = h->gradients;
    for (size_t i = 0; i < FLOATS; i++) h->values[i] = world_start(i);
    nw_exchange_options e = rules;
    e.group = (nw_group){members, ranks, r};
    e.params = &h->params;
    e.layout.codec = codec;
    e.report = &h->said;
    e.report_bytes = sizeof h->said;
    static const nw_worker_ops work = {.run = run_task, .cost = cost};
    nw_machine *exchange;
    *rank = (nw_rank){.index = r, .worker = h, .work = &work};
    world_ok(nw_exchange_create(&exchange, &e));
    world_ok(nw_passes_create(&rank->machine, exchange, &h->params, rules.accumulation));
    memcpy(after[r < servers ? r : 0][0], h->values, sizeof h->values);
}

/* Runs it, and leaves the log in ./event-log. */
static void record(uint64_t seed)
{
    static const uint16_t members[RANKS] = {0, 1, 2, 3, 4, 5};
    nw_rank at[RANKS];
    nw_codec *codec;
    nw_recorder *recorder;
    nw_driver *driver;
    nw_cluster *cluster = make_cluster(seed);
    arithmetic = (world){.o.seed = seed, .floats = FLOATS};
    memset(sent, 0, sizeof sent);
    memset(counted, 0, sizeof counted);
    bool thirds = strcmp(codec_name, "third") == 0;
    world_ok(nw_codec_create(&codec, &(nw_codec_options){.name = thirds ? "none" : codec_name}));
    for (int r = 0; r < ranks; r++) make_rank(&at[r], r, members, thirds ? &third : codec);
    world_ok(nw_recorder_create(&recorder));
    world_ok(nw_recorder_open(recorder, ".", &(nw_log_header){.world = ranks, .ranks = ranks, .lr_factor = 1.0}, NULL));
    nw_driver_options o = {.recorder = recorder, .hooks = {.sent = note_sent}, .counted = note_count};
    nw_virtual_options v = {.cluster = cluster, .touch_bytes_per_second = 1e9};
    world_ok(nw_virtual_create(&driver, &o, &v));
    for (int run = 0; run < RUNS; run++) {
        world_ok(nw_driver_run(driver, at, &(nw_go){.until = UNTIL[run], .batches = INT64_MAX}));
        for (int r = 0; r < ranks; r++) memcpy(when_quiescent[r][run], hands[r].values, sizeof when_quiescent[r][run]);
    }
    nw_driver_free(driver);
    world_ok(nw_recorder_close(recorder, true));
    nw_recorder_free(recorder);
    nw_cluster_free(cluster);
    for (int r = 0; r < ranks; r++) {
        nw_exchange_free(at[r].machine);
        free(hands[r].params.learned.at);
    }
    nw_codec_free(codec);
}

/* ---- the twin ---- */

/* To so many digits, numbers down to 2^least and up to `most`; to nearest, ties to even. */
static float rounded_to(float x, int digits, int least, double most)
{
    int exponent;
    frexp((double)x, &exponent);
    double unit = ldexp(1.0, exponent - digits > least ? exponent - digits : least), y = rint((double)x / unit) * unit;
    return (float)(y > most ? most : y < -most ? -most : y);
}

static float rounded(float x)
{
    if (strcmp(codec_name, "fp16") == 0) return rounded_to(x, 11, -24, 65504.0);
    return strcmp(codec_name, "bf16") == 0 ? rounded_to(x, 8, -133, 3.39e38) : x;
}

typedef struct taken { /* a gradient: whose, and which of them */
    int worker;
    int64_t number;
} taken;

enum { NOT_HERE, AS_IT_IS, AS_THE_CODEC_LEAVES_IT }; /* parameters of a server that a worker has */

static struct {
    int64_t version[SERVERS];
    float values[WORLD_FLOATS], sum[WORLD_FLOATS]; /* sum: as it was sent */
} made[RANKS][GRADIENTS];                          /* by worker and number */

static struct twin_worker {
    uint8_t has[SERVERS][UPDATES + 1];                                                  /* by server and version */
    int coming[SERVERS];                                                                /* pieces of the next */
    float shown[UPDATES + 1][WORLD_FLOATS], shadow[WORLD_FLOATS], memory[WORLD_FLOATS]; /* codec third */
    float values[WORLD_FLOATS], sum[WORLD_FLOATS];
    size_t unsent; /* of its gradient: what lies before */
    int64_t batches, begun;
} twin_workers[RANKS];

static struct twin_server {
    int64_t version;
    float x[UPDATES + 1][WORLD_FLOATS]; /* its range, by version */
    int pieces[RANKS];                  /* of the next gradient of each worker */
    int64_t complete[RANKS];
} twin_servers[SERVERS];

/* What server 0 decides, and the others do, too. */
static taken queue[64];
static int queued, applying, thrown_away;
static struct {
    taken at[RANKS];
    int count;
    int64_t delay, thrown_away;
} turns[UPDATES];

static struct { /* credits, which server 0 gives */
    int64_t until, serial;
    int out, of[RANKS], turn;
    int64_t handed[RANKS][8]; /* the versions at which they were given, by worker */
    struct {
        int worker;
        int64_t version;
    } at[CREDITS];
} credits;

static size_t range(int server)
{
    return server == servers ? FLOATS : FLOATS / 16 * (size_t)server / (size_t)servers * 16;
}

/* Buckets are whole segments of at least bucket_bytes, from the end on: where the one begins that ends there. */
static size_t bucket_begin(size_t end)
{
    size_t first = FLOATS;
    for (int i = 6; i >= 0; i--) {
        first -= (size_t)SEGMENTS[i];
        if (first < end && end - first >= rules.layout.bucket_bytes / sizeof(float)) return first;
    }
    return 0;
}

/* A server has a piece of each that it meets. */
static int pieces_of(int server)
{
    int count = 0;
    for (size_t end = FLOATS, first; end > 0; end = first) {
        first = bucket_begin(end);
        count += first < range(server + 1) && end > range(server);
    }
    return count;
}

/* Whether element i is among the thirds of a step. */
static bool is_sent(size_t i, int64_t step, int channel)
{
    size_t offset = 0;
    for (int k = 0; offset + (size_t)SEGMENTS[k] <= i; k++) offset += (size_t)SEGMENTS[k];
    return (i - offset + (size_t)step + (size_t)channel) % 3 == 0;
}

/* A worker has the parameters of that version: exactly, or a third of what they differ by from those it had. */
static void show(int rank, int server, int64_t version, bool exactly)
{
    struct twin_worker *w = &twin_workers[rank];
    for (size_t i = range(server); i < range(server + 1); i++) {
        float x = twin_servers[server].x[version][i];
        if (exactly) w->shadow[i] = x;
        if (!exactly && is_sent(i, version, NW_CHANNEL_EXCHANGE + 1)) w->shadow[i] += x - w->shadow[i];
        w->shown[version][i] = w->shadow[i];
    }
}

/* The part of a gradient that was final from `first` on, as it was sent for the worker's last credit: whole buckets. */
static void send_gradient(int rank, size_t first)
{
    struct twin_worker *w = &twin_workers[rank];
    int64_t credit = -1, number = w->begun - 1;
    bool thirds = strcmp(codec_name, "third") == 0;
    for (int64_t c = 0, mine = 0; credit < 0 && c < credits.serial; c++)
        if (credits.at[c].worker == rank && mine++ == number) credit = c;
    while (w->unsent > 0) {
        size_t begin = bucket_begin(w->unsent), end = w->unsent;
        if (begin < first) return;
        for (size_t i = begin; i < end; i++) {
            float v = w->memory[i] + w->sum[i], d = is_sent(i, credit, NW_CHANNEL_EXCHANGE) ? v : 0;
            made[rank][number].sum[i] = thirds ? d : rounded(w->sum[i]);
            if (thirds) w->memory[i] = v - d;
        }
        w->unsent = begin;
    }
}

static void take_back(int rank, int64_t number)
{
    for (size_t i = 0; i < FLOATS; i++) twin_workers[rank].memory[i] += made[rank][number].sum[i];
}

/* The newest version that a worker has of all servers but itself. */
static int64_t newest_of_all(int rank)
{
    for (int64_t version = UPDATES; version >= 0; version--) {
        bool all = true;
        for (int s = 0; s < servers; s++) all &= s == rank || twin_workers[rank].has[s][version] != NOT_HERE;
        if (all) return version;
    }
    fail_msg("rank %d computes from nothing", rank);
    return -1;
}

static void twin_pass(int rank)
{
    struct twin_worker *w = &twin_workers[rank];
    bool begins = w->batches % rules.accumulation == 0;
    if (begins) w->begun++;
    world_require(w->begun <= GRADIENTS);
    for (int s = 0; s < servers && begins; s++) { /* what comes meanwhile waits, and so do updates of its own range */
        int64_t version = s == rank ? twin_servers[s].version : newest_of_all(rank);
        for (size_t i = range(s); i < range(s + 1); i++) {
            float x = twin_servers[s].x[version][i];
            float has = strcmp(codec_name, "third") == 0 ? w->shown[version][i] : rounded(x);
            w->values[i] = s == rank || w->has[s][version] == AS_IT_IS ? x : has;
        }
        made[rank][w->begun - 1].version[s] = version;
    }
    if (begins) memcpy(made[rank][w->begun - 1].values, w->values, sizeof w->values);
    world_gradient(&arithmetic, rank, w->batches++, w->values, !begins, w->sum);
    w->unsent = FLOATS;
}

static int64_t age(taken t) { return twin_servers[0].version - made[t.worker][t.number].version[0]; }

static void settle(int worker)
{
    credits.out--;
    credits.of[worker]--;
    memmove(credits.handed[worker], credits.handed[worker] + 1, 7 * sizeof credits.handed[worker][0]);
}

/* Whether applying a gradient leaves time for all credits that were given before its own: used one after the other, the
 * i-th of them (from 0) would have missed version + 1 + i - handed updates. */
static bool in_turn(taken t)
{
    struct {
        int64_t handed;
        int worker;
    } out[64];
    int count = 0;
    for (int w = first_worker; w < ranks; w++)
        for (int k = 0; k < credits.of[w]; k++) {
            int at = count++;
            for (; at > 0 && out[at - 1].handed > credits.handed[w][k]; at--) out[at] = out[at - 1];
            out[at].handed = credits.handed[w][k];
            out[at].worker = w;
        }
    for (int i = 0; i < count && out[i].worker != t.worker; i++)
        if (twin_servers[0].version + 1 + i - out[i].handed > rules.max_staleness) return false;
    return true;
}

static taken take(int index)
{
    taken t = queue[index];
    memmove(queue + index, queue + index + 1, (size_t)(--queued - index) * sizeof t);
    return t;
}

/* What is applied next, if anything can: in the order in which gradients were complete at server 0. */
static void choose(void)
{
    struct twin_server *s = &twin_servers[0];
    taken now[RANKS];
    int count = 0;
    bool bound = rules.max_staleness >= 0;
    if (applying || (rules.sync && queued < workers)) return;
    for (int w = first_worker; rules.sync && w < ranks; w++)
        for (int i = 0; i < queued; i++)
            if (queue[i].worker == w) now[count++] = take(i--);
    for (int i = 0; count == 0 && i < queued; i++) {
        if (bound && rules.staleness == NW_STALE_WAIT && !in_turn(queue[i])) continue;
        now[0] = take(i--);
        bool old = bound && rules.staleness == NW_STALE_DROP && age(now[0]) > rules.max_staleness;
        if (old && now[0].worker == 0 && strcmp(codec_name, "third") == 0) take_back(0, now[0].number);
        if (old) settle(now[0].worker);
        thrown_away += old;
        count = !old;
    }
    if (count == 0) return;
    applying = 1;
    world_require(s->version < UPDATES);
    memcpy(turns[s->version].at, now, sizeof now);
    turns[s->version].count = count;
    turns[s->version].delay = rules.sync ? 0 : age(now[0]);
    turns[s->version].thrown_away = thrown_away;
}

static void give_credits(void)
{
    struct twin_server *s = &twin_servers[0];
    bool waits = rules.max_staleness >= 0 && rules.staleness == NW_STALE_WAIT;
    int most = rules.sync ? 1 : rules.in_flight;
    if (rules.sync && (credits.out > 0 || applying)) return;
    for (int round = 0; round < most; round++)
        for (int i = 0; i < workers; i++) {
            int w = first_worker + (credits.turn + i) % workers;
            bool due = s->version + (rules.sync ? 0 : credits.out) < credits.until;
            if (credits.of[w] != round || !due || (waits && credits.out > rules.max_staleness)) continue;
            credits.handed[w][credits.of[w]++] = s->version;
            credits.out++;
            world_require(credits.serial < CREDITS);
            credits.at[credits.serial].worker = w;
            credits.at[credits.serial++].version = s->version;
        }
}

static void check_count(int64_t update)
{
    int64_t u = update + 1;
    assert_int_equal(counted[u].delay, turns[update].delay);
    assert_int_equal(counted[u].clock, u * rules.accumulation - 1);
    assert_int_equal(counted[u].thrown_away, turns[update].thrown_away);
    assert_int_equal(counted[u].from_count, turns[update].count);
    for (int t = 0; t < turns[update].count; t++) {
        assert_int_equal(counted[u].from[t], turns[update].at[t].worker);
        assert_int_equal(counted[u].said[t], turns[update].at[t].number + 1);
        settle(turns[update].at[t].worker);
    }
    credits.turn = turns[update].at[0].worker - first_worker;
    applying = 0;
}

static void apply(int server)
{
    struct twin_server *s = &twin_servers[server];
    static float sum[WORLD_FLOATS];
    size_t first = range(server), end = range(server + 1);
    const taken *now = turns[s->version].at;
    int64_t update = s->version, delay = turns[update].delay;
    double weight = 1.0;
    for (int t = 0; t < turns[update].count; t++) {
        assert_true(s->complete[now[t].worker] > now[t].number);
        for (size_t i = first; i < end; i++) {
            float g = made[now[t].worker][now[t].number].sum[i];
            sum[i] = t > 0 ? sum[i] + g : g;
        }
    }
    const float *x = s->x[update], *was = made[now[0].worker][now[0].number].values;
    for (size_t i = first; rules.correction == NW_CORRECT_DC && delay > 0 && i < end; i++) /* kept as they are sent */
        sum[i] += (float)rules.dc_lambda * sum[i] * sum[i] * (x[i] - rounded(was[i]));
    if (rules.correction == NW_CORRECT_INVERSE) weight = 1.0 / (double)(delay + 1);
    if (rules.max_staleness >= 0 && rules.staleness == NW_STALE_WEIGHT && delay > rules.max_staleness)
        weight = weight * (double)(rules.max_staleness + 1) / (double)(delay + 1);
    float *next = s->x[++s->version];
    memcpy(next, x, sizeof s->x[0]);
    world_update(next, sum, first, end - first, rules.sync ? 1.0f / (float)workers : (float)weight,
                 s->version * rules.accumulation - 1);
    if (memcmp(next + first, after[server][s->version] + first, (end - first) * sizeof(float)) != 0)
        fail_msg("server %d of %d has other parameters after %d updates: codec %s, correction %d, %d in flight%s",
                 server, servers, (int)s->version, codec_name, rules.correction, rules.in_flight,
                 rules.server_computes ? ", servers compute" : "");
    if (server == 0) check_count(update);
}

static void complete(int server, int worker)
{
    struct twin_server *s = &twin_servers[server];
    taken t = {worker, s->complete[worker]++};
    s->pieces[worker] = 0;
    world_require(queued < 64);
    if (server == 0) queue[queued++] = t;
}

static void hear(int rank, const nw_header *h)
{
    int from = h->from;
    if (h->kind == GRADIENT || h->kind == REPORT) {
        struct twin_server *s = &twin_servers[rank];
        int64_t number = s->complete[from];
        assert_int_equal(h->version, made[from][number].version[rank]);
        assert_int_equal(credits.at[h->step].worker, from);
        if (++s->pieces[from] == pieces_of(rank) + (rank == 0)) complete(rank, from);
    }
    if (h->kind == MODEL && ++twin_workers[rank].coming[from] == pieces_of(from)) {
        twin_workers[rank].has[from][h->version] = h->codec == NW_CODEC_NONE ? AS_IT_IS : AS_THE_CODEC_LEAVES_IT;
        twin_workers[rank].coming[from] = 0;
        show(rank, from, (int64_t)h->version, h->codec == NW_CODEC_NONE);
    }
    for (int64_t c = 0, mine = 0; h->kind == REFUSED && c < (int64_t)h->step + 1; c++)
        if (credits.at[c].worker == rank && mine++ >= 0 && c == (int64_t)h->step) take_back(rank, mine - 1);
    if (h->kind != CREDIT) return;
    assert_int_equal(credits.at[h->step].worker, rank);
    assert_int_equal(credits.at[h->step].version, h->version);
}

/* A record of a rank, behind `task`, which is the task under way (0: none). */
static void step(int rank, const nw_log_record *r, int *task, bool *given)
{
    bool serves = rank < servers, is_final = r->kind == NW_EVENT_FINAL, is_done = r->kind == NW_EVENT_DONE;
    if (r->kind == NW_EVENT_GO && rank == 0) credits.until = (int64_t)r->first;
    if (r->kind == NW_LOG_PASS) twin_pass(rank);
    if (r->kind == NW_LOG_PASS || r->kind == NW_LOG_UPDATE) *task = r->kind;
    if (r->kind == NW_EVENT_MESSAGE) hear(rank, &sent[r->from][r->sequence]);
    if (is_done && *task == NW_LOG_UPDATE) apply(rank);
    bool whole = is_done && *task == NW_LOG_PASS && twin_workers[rank].batches % rules.accumulation == 0;
    if (is_final || whole) send_gradient(rank, whole ? 0 : r->first);
    if (serves && !*given &&
        (whole || (is_final && rank > 0 && r->first <= range(rank)))) { /* its own gradient is here */
        complete(rank, rank);
        *given = true;
    }
    if (whole) *given = false;
    if (is_done) *task = 0;
    if (rank > 0 || is_final || r->kind >= NW_EVENT_KINDS) return;
    choose();
    give_credits();
}

/* All have the last parameters. */
static void check_quiescent(int rank, int run)
{
    for (int s = 0; s < servers; s++) {
        size_t first = range(s), bytes = (range(s + 1) - first) * sizeof(float);
        assert_int_equal(twin_servers[s].version, UNTIL[run]);
        assert_memory_equal(when_quiescent[rank][run] + first, twin_servers[s].x[UNTIL[run]] + first, bytes);
        twin_workers[rank].has[s][UNTIL[run]] = AS_IT_IS;
        show(rank, s, UNTIL[run], true);
    }
}

/* Goes through the records of all ranks in the order of their times. */
static void check_twin(void)
{
    nw_recording recording;
    nw_log_cursor cursors[RANKS];
    nw_log_record next[RANKS];
    int task[RANKS] = {0}, runs[RANKS] = {0}, quiescent = 0;
    bool given[RANKS] = {0};
    world_ok(nw_recording_load(&recording, "."));
    assert_int_equal(recording.count, 1);
    memset(twin_servers, 0, sizeof twin_servers);
    memset(twin_workers, 0, sizeof twin_workers);
    memset(&credits, 0, sizeof credits);
    thrown_away = queued = applying = 0;
    for (int s = 0; s < servers; s++)
        for (size_t i = 0; i < FLOATS; i++) twin_servers[s].x[0][i] = world_start(i);
    for (int r = 0; r < ranks; r++) {
        for (int s = 0; s < servers; s++) {
            twin_workers[r].has[s][0] = AS_IT_IS;
            show(r, s, 0, true);
        }
        nw_log_begin(&cursors[r], nw_log_file_of(&recording.parts[0], r), r);
        world_ok(nw_log_next(&cursors[r], &next[r]));
    }
    for (;;) {
        int first = -1;
        for (int r = 0; r < ranks; r++) {
            bool waits = next[r].kind == NW_LOG_RUN && quiescent < runs[r] * ranks; /* until all are quiescent */
            if (cursors[r].ended || waits) continue;
            if (first < 0 || cursors[r].now_ns < cursors[first].now_ns) first = r;
        }
        if (first < 0) break;
        step(first, &next[first], &task[first], &given[first]);
        if (next[first].kind == NW_LOG_QUIESCENT) runs[first]++;
        if (next[first].kind == NW_LOG_QUIESCENT && ++quiescent % ranks == 0)
            for (int r = 0; r < ranks; r++) check_quiescent(r, quiescent / ranks - 1);
        world_ok(nw_log_next(&cursors[first], &next[first]));
    }
    assert_int_equal(quiescent, RUNS * ranks);
    assert_int_equal(queued + credits.out, 0);
    nw_recording_free(&recording);
}

/* ---- the rules ---- */

static int64_t late, later; /* updates whose gradients were old, and older than the bound */

static void check(nw_exchange_options o, const char *codec, uint64_t seed)
{
    rules = o;
    rules.name = "server";
    rules.layout.bucket_bytes = seed % 2 ? 512 : 1 << 20;
    rules.accumulation = 1 + (int)(seed / 2 % 2);
    codec_name = codec;
    rules.memory.name = strcmp(codec, "third") == 0 ? "error" : NULL;
    servers = o.servers;
    first_worker = o.server_computes ? 0 : servers;
    ranks = first_worker + 3 > servers ? first_worker + 3 : servers;
    workers = ranks - first_worker;
    record(seed);
    check_twin();
    for (int64_t u = 1; u <= UPDATES; u++) late += counted[u].delay > 0, later += counted[u].delay > o.max_staleness;
}

static const char *const CODECS[] = {"none", "fp16", "bf16", "third"};

/* Every correction, codec, number in flight and role of servers. */
static void check_all(int64_t max_staleness, nw_staleness staleness)
{
    uint64_t seed = 0;
    late = later = 0;
    for (int s = 1; s <= SERVERS; s++)
        for (int computes = 0; computes < 2; computes++)
            for (int in_flight = 1; in_flight <= 2; in_flight++)
                for (int correction = NW_CORRECT_NONE; correction <= NW_CORRECT_DC; correction++)
                    for (int c = 0; c < 4; c++)
                        check((nw_exchange_options){.servers = s,
                                                    .server_computes = computes,
                                                    .in_flight = in_flight,
                                                    .correction = (nw_correction)correction,
                                                    .dc_lambda = 0.25,
                                                    .max_staleness = max_staleness,
                                                    .staleness = staleness},
                              CODECS[c], ++seed);
    print_message("%d updates, %d of old gradients, %d older than %d\n", (int)seed * UPDATES, (int)late, (int)later,
                  (int)max_staleness);
    assert_true(late > 100);
}

TEST(test_any_age) { check_all(-1, NW_STALE_WAIT); }
TEST(test_waiting)
{
    check_all(1, NW_STALE_WAIT);
    assert_int_equal(later, 0);
}
TEST(test_dropping)
{
    check_all(1, NW_STALE_DROP);
    assert_int_equal(later, 0);
}
TEST(test_weights)
{
    check_all(1, NW_STALE_WEIGHT);
    assert_true(later > 100);
}
TEST(test_synchronous)
{
    uint64_t seed = 100;
    for (int s = 1; s <= SERVERS; s++)
        for (int computes = 0; computes < 2; computes++)
            for (int c = 0; c < 4; c++)
                check(
                    (nw_exchange_options){.servers = s, .server_computes = computes, .sync = true, .max_staleness = -1},
                    CODECS[c], ++seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_any_age), CASE(test_waiting), CASE(test_dropping), CASE(test_weights), CASE(test_synchronous),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
