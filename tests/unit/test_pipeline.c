/*
 * test_pipeline.c - stages on ranks of their own, that pass batches up and down, with allreduce among the replicas of
 * each: in any order of events, on virtual clusters of any speed, stopped anywhere, saved, resumed and replayed they
 * have the bits of a plain loop (pipeline_toy.h). tests/ranks/pipeline.c does the same over MPI.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "replay/replay.h"
#include "sim/virtual.h"
#include "support/pipeline_toy.h"
#include "support/state_store.h"
#include "support/world.h"
#include "support/files.h"

enum { MOST = TOY_REPLICAS * TOY_STAGES, US = 1000 };
#define TEST(name) static void name(void **state __attribute__((unused)))

static toy_options options;
static toy_rank toys[MOST];
static nw_rank *rank_at[MOST];         /* of these */
static state_store stores[TOY_STAGES]; /* of each stage, its replicas' */
static toy_twin twin;
static world w;

static int ranks_of(const toy_options *o) { return o->replicas * o->stages; }

/* A configuration for every seed; all of them in 144. */
static toy_options draw_options(uint64_t seed)
{
    static const double hops[] = {1, 0.5, 2};
    toy_options o = {.replicas = 1 + (int)(seed % 2),
                     .stages = 3,
                     .accumulation = 1 + (int)(seed / 2 % 2),
                     .hop = hops[seed / 4 % 3],
                     .window = seed / 12 % 2 ? 1 : 3};
    if (seed / 24 % 3 == 2) o.stages = 1 + (int)(seed / 72 % 2);
    if (o.replicas > 1) o.delay = seed / 24 % 3 == 1;
    return o;
}

static void check_all(int64_t updates)
{
    for (int i = 0; i < ranks_of(&options); i++) {
        toy_check(&twin, &toys[i]);
        assert_int_equal(toys[i].machine->updates, updates);
    }
}

/* Updates that stage 0 has made of the twin's batches. */
static int64_t twin_updates(void)
{
    int64_t back = twin.batches - pipeline_delay(options.hop, options.stages, 0);
    return (back > twin.drained ? back : twin.drained) / options.accumulation;
}

static void save_all(void)
{
    for (int i = 0; i < ranks_of(&options); i++) store_add(&stores[i % options.stages], nw_rank_state(rank_at[i]));
}

static void drop_saved(void)
{
    for (int p = 0; p < TOY_STAGES; p++) store_clear(&stores[p]);
}

static nw_status load(int rank)
{
    return store_load(&stores[toys[rank].stage], nw_rank_state(rank_at[rank]), toys[rank].replica, options.replicas,
                      NULL);
}

/* Of what all ranks must agree on. */
static int64_t saved_number(const char *name)
{
    int64_t first = *(int64_t *)nw_state_find(&stores[0].at[0], name)->data;
    for (int p = 0; p < options.stages; p++)
        for (int r = 0; r < stores[p].members; r++)
            assert_int_equal(*(int64_t *)nw_state_find(&stores[p].at[r], name)->data, first);
    return first;
}

static int64_t batches_done(void)
{
    save_all();
    int64_t batches = saved_number("exchange.batches");
    drop_saved();
    return batches;
}

/* ---- worlds in which anything may happen next ---- */

static void free_members(void)
{
    for (int i = 0; i < MOST; i++) {
        toys[i].machine = NULL; /* the world's, which is over */
        toy_free(&toys[i]);
    }
}

static void make_rank(world *x, int member)
{
    if (member == 0) free_members();
    toy_make(&toys[member], &options, member, x->driver->pool);
    x->at[member].rank = toy_as_rank(&toys[member], member);
    rank_at[member] = &x->at[member].rank;
}

static world_options of_world(uint64_t seed)
{
    return (world_options){.make = make_rank, .members = ranks_of(&options), .seed = seed, .interrupts = seed % 3 == 0};
}

static void close_world(void)
{
    world_free(&w);
    free_members();
}

static void open_world(uint64_t seed)
{
    world_options o = of_world(seed);
    world_ok(world_make(&w, &o));
    if (seed % 4 == 1) w.starved = world_bit((int)(seed / 4) % o.members, (int)(seed / 12) % o.members);
}

/* A new world, of what another saved. */
static void reopen_world(uint64_t seed)
{
    int64_t updates = w.updates;
    save_all();
    close_world();
    open_world(seed);
    for (int i = 0; i < w.o.members; i++) world_ok(load(i));
    w.updates = updates;
    drop_saved();
}

static void run(int64_t batches, bool drain)
{
    world_ok(world_go(&w, INT64_MAX, batches, drain));
    world_ok(world_settle(&w));
    toy_twin_run(&twin, batches, drain);
    world_check_quiescent(&w, twin_updates());
    check_all(twin_updates());
}

/* Runs of any length, with and without drain, some of them of new ranks. */
TEST(random_orders)
{
    for (uint64_t seed = 0; seed < 432; seed++) {
        options = draw_options(seed);
        toy_twin_begin(&twin, &options);
        open_world(seed);
        for (uint64_t i = 0; i < 4; i++) {
            run(1 + (int64_t)((seed / 3 + i * 5) % 9), (seed >> i) % 3 == 0);
            if ((seed / 5 + i) % 2) reopen_world(seed + i);
        }
        close_world();
    }
}

static int64_t batches_in_order;
static void begin_order(world *x) { world_ok(world_go(x, INT64_MAX, batches_in_order, true)); }

static void check_order(world *x)
{
    world_check_quiescent(x, twin_updates());
    check_all(twin_updates());
}

static int64_t every_order(int replicas, int stages, double hop, int64_t batches)
{
    options = (toy_options){.replicas = replicas, .stages = stages, .accumulation = 1, .hop = hop};
    world_options o = of_world(1);
    batches_in_order = batches;
    toy_twin_begin(&twin, &options);
    toy_twin_run(&twin, batches, true);
    int64_t orders = world_every_order(&o, begin_order, check_order, false);
    free_members();
    print_message("%d x %d ranks, h = %g, %d batches: %lld orders\n", replicas, stages, hop, (int)batches,
                  (long long)orders);
    return orders;
}

TEST(every_order_of_events)
{
    assert_int_equal(every_order(1, 3, 1, 1), 9);
    assert_true(every_order(1, 3, 0, 2) > 1000);
    assert_true(every_order(1, 2, 1, 2) > 1000);
}

/* ---- stopping ---- */

/* Any rank is asked at any moment; new ranks go on from what was saved, and all ends as if nothing had been. */
TEST(stopped_anywhere_and_resumed)
{
    int early = 0;
    for (uint64_t seed = 0; seed < 720; seed++) {
        nw_status status = NW_OK;
        int64_t total = 9 + (int64_t)(seed % 8);
        bool drain = seed / 5 % 2;
        options = draw_options(seed);
        open_world(seed);
        world_ok(world_go(&w, INT64_MAX, total, drain));
        for (uint64_t i = 0; i < seed * 7 % 401 && world_step(&w, &status); i++) world_ok(status);
        int asked = (int)(seed / 3) % w.o.members;
        int64_t begun = 0;
        for (int i = 0; i < w.o.members; i++) begun = toys[i].begun > begun ? toys[i].begun : begun;
        world_ok(world_stop(&w, asked));
        if (seed % 5 == 0) world_ok(world_stop(&w, (asked + 1) % w.o.members));
        world_ok(world_settle(&w));
        int64_t batches = batches_done(), slack = options.accumulation * (2 + options.delay);
        if (toys[asked].stage == 0)
            assert_true(batches <= begun + slack + pipeline_delay(options.hop, options.stages, 0));
        early += batches < total;
        toy_twin_begin(&twin, &options);
        toy_twin_run(&twin, batches, drain && batches == total);
        world_check_quiescent(&w, twin_updates());
        check_all(twin_updates());
        reopen_world(seed + 1);
        if (batches < total) run(total - batches, drain);
        toy_twin_begin(&twin, &options);
        toy_twin_run(&twin, total, drain);
        check_all(twin_updates());
        close_world();
    }
    print_message("%d of 720 runs ended early\n", early);
    assert_true(early > 300);
}

enum { RUNS = 5 };

/* A quiescent rank says after how many batches, as others do, and hears nothing until its next run. */
static void note_quiescent(int member, int64_t (*ends)[2])
{
    static const char *const names[] = {"exchange.batches", "exchange.drained"};
    store_add(&stores[0], nw_rank_state(rank_at[member]));
    for (int i = 0; i < 2; i++) {
        int64_t number = *(int64_t *)nw_state_find(&stores[0].at[0], names[i])->data;
        assert_true((*ends)[i] < 0 || (*ends)[i] == number);
        (*ends)[i] = number;
    }
    drop_saved();
    w.at[member].asleep = true;
}

/* Where all are quiescent nothing is under way, unless somebody was asked to stop too late. */
static void check_links(void)
{
    for (int f = 0; f < w.o.members; f++)
        for (int t = 0; t < w.o.members; t++)
            for (int i = w.links[f][t].first; i < w.links[f][t].last; i++)
                assert_int_equal(w.links[f][t].at[i % WORLD_LINK]->header->kind, PIPELINE_STOP);
}

static int64_t batches_of(uint64_t seed) { return seed % 4 ? 5 : 1; }

/* When all are quiescent, one after the other goes on: what is sent to those who have not waits. Some are asked to
 * stop. */
static void begin_one_by_one(uint64_t seed, int64_t ends[RUNS + 1][2], int stops[RUNS + 1])
{
    int runs[MOST] = {0}, stopped[MOST] = {0}, run = 0, quiescent = 0;
    nw_status status = NW_OK;
    while (run <= RUNS) {
        int m = (int)nw_rng_below(&w.rng, (uint32_t)w.o.members);
        world_member *one = &w.at[m];
        if (!one->asleep && nw_rank_is_quiescent(&one->rank)) {
            note_quiescent(m, &ends[run]);
            if (++quiescent % w.o.members > 0) continue;
            check_links();
            run++;
        } else if (one->asleep && runs[m] < run && run <= RUNS) {
            nw_go go = {.until = INT64_MAX, .batches = batches_of(seed), .drain = (seed >> run) % 2};
            one->asleep = false;
            runs[m] = run;
            world_ok(world_tell(&w, m, (nw_event){.kind = NW_EVENT_GO, .go = &go}));
        } else if (!one->asleep && stopped[m] < runs[m] && nw_rng_below(&w.rng, 100) == 0) {
            stopped[m] = runs[m];
            stops[runs[m]]++;
            world_ok(world_stop(&w, m));
        }
        for (uint32_t i = nw_rng_below(&w.rng, 6); i > 0 && world_step(&w, &status); i--) world_ok(status);
    }
}

TEST(runs_begin_one_by_one)
{
    int cuts = 0;
    for (uint64_t seed = 0; seed < 288; seed++) {
        int64_t ends[RUNS + 1][2];
        int stops[RUNS + 1] = {0};
        memset(ends, -1, sizeof ends);
        options = draw_options(seed);
        open_world(seed);
        begin_one_by_one(seed, ends, stops);
        toy_twin_begin(&twin, &options);
        for (int i = 0; i < RUNS; i++) {
            int64_t batches = ends[i + 1][0] - ends[i][0];
            assert_true(batches == batches_of(seed) || stops[i + 1] > 0);
            cuts += batches < batches_of(seed);
            toy_twin_run(&twin, batches, ends[i + 1][1] == ends[i + 1][0]);
        }
        check_all(twin_updates());
        close_world();
    }
    print_message("%d runs ended early\n", cuts);
    assert_true(cuts > 100);
}

/* What was going forward and back is there by name. */
TEST(a_rest_keeps_what_is_under_way)
{
    static const char *const kept[3][3] = {
        {"fifo/0/5", "fifo/0/6", "exchange.down/0/5"}, {"fifo/1/6", "exchange.down/1/6"}, {"exchange.updates"}};
    static const int counts[2][3] = {{3, 2, 0}, {0, 0, 0}};
    options = (toy_options){.replicas = 1, .stages = 3, .accumulation = 1, .hop = 1};
    toy_twin_begin(&twin, &options);
    open_world(2);
    for (int drained = 0; drained < 2; drained++) {
        run(7, drained);
        save_all();
        assert_int_equal(saved_number("exchange.batches"), 7 * (drained + 1));
        assert_int_equal(saved_number("exchange.drained"), drained ? 14 : 0);
        for (int p = 0; p < 3; p++) {
            int count = 0;
            for (int i = 0; i < stores[p].at[0].count; i++) count += stores[p].at[0].at[i].rule == NW_STATE_REFUSED;
            assert_int_equal(count, counts[drained][p]);
            for (int i = 0; i < 3 && kept[p][i] && !drained; i++)
                assert_non_null(nw_state_find(&stores[p].at[0], kept[p][i]));
        }
        drop_saved();
    }
    close_world();
}

/* Another number of replicas goes on from where nothing is under way, and from nowhere else. */
TEST(another_world_loads_what_is_drained)
{
    for (int drained = 0; drained < 2; drained++) {
        options = (toy_options){.replicas = 2, .stages = 3, .accumulation = 2, .hop = 1};
        toy_twin_begin(&twin, &options);
        open_world(3);
        run(8, drained);
        save_all();
        close_world();
        options.replicas = 1;
        open_world(4);
        w.updates = 4;
        for (int p = 0; p < 3; p++) {
            nw_status status = load(p);
            assert_int_equal(status, drained || p == 2 ? NW_OK : NW_E_ARGUMENT);
            if (status != NW_OK) assert_non_null(strstr(nw_error_message(), "was saved by 2 ranks, and cannot be"));
        }
        drop_saved();
        twin.o.replicas = 1;
        if (drained) run(9, true);
        close_world();
    }
}

/* ---- virtual clusters ---- */

static char folder[PATH_SIZE];
static nw_rank ranks[MOST];
static volatile sig_atomic_t asked_to_stop;

/* What is under way in rows, by the rank that sent it up or that it comes down to. */
static struct {
    int up[MOST], down[MOST], most_up, most_down, before_drain;
    uint64_t of_rows, of_columns;
} traffic;

static void note_sent(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    (void)context, (void)now_ns;
    if (h->channel >= NW_CHANNEL_EXCHANGE) {
        assert_int_equal(from % options.stages, to % options.stages);
        traffic.of_columns++;
        return;
    }
    assert_int_equal(from / options.stages, to / options.stages);
    assert_int_equal(h->channel, to > from ? NW_CHANNEL_UP : NW_CHANNEL_DOWN);
    traffic.of_rows++;
    if (h->kind != PIPELINE_BATCH) return;
    int *count = to > from ? &traffic.up[from] : &traffic.down[to],
        *most = to > from ? &traffic.most_up : &traffic.most_down;
    if (++*count > *most) *most = *count;
}

static void note_received(void *context, int from, int to, const nw_header *h, int64_t now_ns)
{
    (void)context, (void)from, (void)now_ns;
    traffic.up[to] -= h->channel == NW_CHANNEL_DOWN && h->kind == PIPELINE_TAKEN;
}

static void note_event(void *context, int rank, const nw_event *e)
{
    (void)context;
    if (e->kind == NW_EVENT_DONE && e->task->kind == NW_TASK_PASS && !e->task->forward) traffic.down[rank]--;
}

static void make_ranks(nw_driver *d)
{
    asked_to_stop = 0;
    for (int i = 0; i < d->size; i++) {
        toy_make(&toys[i], &options, i, d->pool);
        ranks[i] = toy_as_rank(&toys[i], i);
        rank_at[i] = &ranks[i];
    }
}

static void free_ranks(void)
{
    for (int i = 0; i < ranks_of(&options); i++) toy_free(&toys[i]);
}

/* Links and ranks of some speed; which, decides about times and orders. */
static nw_cluster *make_cluster(int kind)
{
    nw_cluster *c;
    int count = ranks_of(&options);
    world_ok(nw_cluster_create(&c, count, count, 0, 1));
    c->seed = (uint64_t)kind;
    c->links[0] = (nw_cluster_link){.latency_ns = kind % 3 * 300 * US, .bandwidth = kind == 4 ? 1e5 : 1e9};
    if (kind > 1) c->links[0].jitter = (nw_noise){NW_NOISE_EXPONENTIAL, 1.5};
    for (int i = 0; i < count && kind > 0; i++) c->ranks[i].noise = (nw_noise){NW_NOISE_LOGNORMAL, 0.6};
    if (kind > 0) c->ranks[kind % count].slowdown = 4;
    return c;
}

static void drive(nw_driver *d, int64_t batches, bool drain)
{
    world_ok(nw_driver_run(d, ranks, &(nw_go){.until = INT64_MAX, .batches = batches, .drain = drain}));
}

static void check_ledger(const nw_ledger *l, bool exchanges)
{
    uint64_t in_buckets = 0;
    world_ok(nw_ledger_check(l));
    world_ok(nw_ledger_check_links(l, NULL));
    for (int i = 0; i < nw_ledger_segments(l); i++) in_buckets += nw_ledger_segment(l, i).messages;
    assert_int_equal(in_buckets, traffic.of_columns); /* what pipelines send belongs to no bucket */
    assert_int_equal(nw_ledger_segment(l, nw_ledger_segments(l)).messages, traffic.of_rows);
    assert_true(traffic.of_rows > 0 && (in_buckets > 0) == exchanges);
}

/* Returns how long it took. */
static int64_t run_on_cluster(int kind)
{
    nw_cluster *c = make_cluster(kind);
    nw_driver *d;
    nw_ledger *ledger;
    int count = ranks_of(&options);
    int64_t latest = 0;
    memset(&traffic, 0, sizeof traffic);
    world_ok(nw_ledger_create(&ledger, &(nw_ledger_options){.world = count, .ranks = count, .segments = 2}));
    nw_driver_options o = {.hooks = {.sent = note_sent, .received = note_received, .event = note_event},
                           .ledger = ledger};
    world_ok(nw_virtual_create(&d, &o, &(nw_virtual_options){.cluster = c, .touch_bytes_per_second = 1e8}));
    make_ranks(d);
    toy_twin_begin(&twin, &options);
    for (int i = 0; i < 3; i++) {
        drive(d, 5 + 4 * i, i == 1);
        toy_twin_run(&twin, 5 + 4 * i, i == 1);
        check_all(twin_updates());
        if (i == 0) traffic.before_drain = traffic.most_down;
    }
    for (int i = 0; i < count; i++) latest = nw_driver_now(d, i) > latest ? nw_driver_now(d, i) : latest;
    check_ledger(ledger, options.replicas > 1);
    free_ranks();
    nw_driver_free(d);
    nw_ledger_free(ledger);
    nw_cluster_free(c);
    return latest;
}

TEST(time_does_not_enter_the_bits)
{
    for (uint64_t seed = 0; seed < 24; seed++) {
        int64_t times[5];
        options = draw_options(seed);
        int hop = (int)pipeline_delay(options.hop, 2, 0); /* rounded up */
        int longest = (int)pipeline_delay(options.hop, options.stages, 0);
        for (int kind = 0; kind < 5; kind++) {
            times[kind] = run_on_cluster(kind);
            for (int i = 0; i < kind; i++) assert_true(times[i] != times[kind]);
            assert_true(traffic.most_up <= options.window);
            assert_true(traffic.before_drain <= hop + 1);
            assert_true(traffic.most_down <= longest + 1); /* stages above do not wait for batches then */
        }
        if (options.hop > 1) assert_int_equal(traffic.most_up, options.window); /* it was full */
    }
}

/* ---- logs ---- */

/* A quiescent point, a run that is stopped early, and the rest of it. All 30 batches. */
static void drive_with_stop(nw_driver *d)
{
    drive(d, 7, false);
    toys[4].stop = &asked_to_stop;
    toys[4].stop_at = 12;
    drive(d, 23, true);
    int64_t batches = batches_done();
    assert_true(batches > 12 && batches < 30);
    asked_to_stop = 0;
    drive(d, 30 - batches, true);
}

static void record(int kind)
{
    nw_cluster *c = make_cluster(kind);
    nw_recorder *r;
    nw_driver *d;
    int count = ranks_of(&options);
    world_ok(nw_recorder_create(&r));
    world_ok(nw_recorder_open(r, folder, &(nw_log_header){.world = count, .ranks = count, .lr_factor = 1}, NULL));
    nw_driver_options o = {.recorder = r, .stop = &asked_to_stop};
    world_ok(nw_virtual_create(&d, &o, &(nw_virtual_options){.cluster = c, .touch_bytes_per_second = 1e8}));
    make_ranks(d);
    drive_with_stop(d);
    world_ok(nw_recorder_close(r, true));
    nw_driver_free(d);
    nw_recorder_free(r);
    nw_cluster_free(c);
}

TEST(replayed_from_a_log)
{
    make_folder(folder);
    for (int kind = 1; kind < 5; kind++) {
        nw_recording recording;
        nw_driver *d;
        options = (toy_options){.replicas = 2, .stages = 3, .accumulation = kind % 2 + 1, .hop = kind > 2 ? 2 : 1};
        toy_twin_begin(&twin, &options);
        toy_twin_run(&twin, 30, true);
        record(kind);
        check_all(twin_updates());
        free_ranks();
        world_ok(nw_recording_load(&recording, folder));
        assert_int_equal(recording.parts[0].runs, 3);
        world_ok(nw_replay_create(&d, &(nw_driver_options){0}, &recording.parts[0]));
        make_ranks(d);
        drive_with_stop(d);
        check_all(twin_updates());
        assert_true(d->over);
        free_ranks();
        nw_driver_free(d);
        nw_recording_free(&recording);
    }
    remove_tree(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_orders),
        cmocka_unit_test(every_order_of_events),
        cmocka_unit_test(stopped_anywhere_and_resumed),
        cmocka_unit_test(runs_begin_one_by_one),
        cmocka_unit_test(a_rest_keeps_what_is_under_way),
        cmocka_unit_test(another_world_loads_what_is_drained),
        cmocka_unit_test(time_does_not_enter_the_bits),
        cmocka_unit_test(replayed_from_a_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
