/*
 * test_peer.c - programs that compute gradients themselves, alone: the three ways of a step, with a thread of the library
 * and without, what is refused, and drivers that go in turns. Several ranks are in tests/ranks/peer.c.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "peer/peer.h"
#include "support/toys.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

enum { N = 24 };
static const nw_parameter_info tensors[] = {{.name = "a.weight", .dims = 2, .shape = {4, 4}},
                                            {.name = "n.weight", .dims = 1, .shape = {4}},
                                            {.name = "n.bias", .dims = 1, .shape = {4}}};

static nw_peer *make(const char *options, bool threaded)
{
    nw_peer *p;
    ok(nw_peer_create(&p, tensors, 3, options, threaded));
    return p;
}

static void refuse(const char *options, nw_status status, const char *why)
{
    nw_peer *p;
    refused(nw_peer_create(&p, tensors, 3, options, true), status, why);
    assert_null(p);
}

/* Numbers that depend on a step and nothing else. */
static void fill(float *v, int step)
{
    for (int i = 0; i < N; i++) v[i] = (float)((7 * i + 5 * step) % 13 - 6) / 4;
}

static bool same(const float *a, const float *b) { return memcmp(a, b, N * sizeof *a) == 0; }

/* ---- the three ways ---- */

static void check_reduce(const char *options, bool threaded, int delay)
{
    nw_peer *p = make(options, threaded);
    float x[N], g[N], want[N];
    bool there;
    fill(x, 100);
    assert_int_equal(nw_peer_ways(p), NW_PEER_REDUCE | NW_PEER_UPDATE | NW_PEER_MERGE);
    for (int run = 0; run < 2; run++) {
        ok(nw_peer_begin(p, x));
        fill(want, 100);
        assert_true(same(x, want));
        for (int s = 0; s < 5; s++) {
            fill(g, s);
            ok(nw_peer_reduce(p, g, &there));
            assert_int_equal(there, s >= delay);
            fill(want, s - delay);
            if (there) assert_true(same(g, want));
            ok(nw_peer_turn(p));
            assert_false(nw_peer_is_over(p));
        }
        ok(nw_peer_finish(p, g, &there));
        assert_int_equal(there, delay);
        fill(want, 4);
        if (there) assert_true(same(g, want));
        assert_true(nw_peer_is_over(p));
    }
    nw_peer_free(p);
}

static void test_the_mean_of_one_is_its_gradient(void **state)
{
    (void)state;
    for (int threaded = 0; threaded < 2; threaded++) {
        check_reduce("", threaded, 0);
        check_reduce("--exchange allreduce", threaded, 0);
        check_reduce("--exchange allreduce --delay 1", threaded, 1);
        check_reduce(" --exchange  allreduce\n--seed 3 --threads 2 ", threaded, 0);
    }
}

/* Top-k takes 8 of 16 and 2 of each 4; what is kept back comes later. */
static void test_what_a_codec_keeps_back_is_delivered(void **state)
{
    (void)state;
    nw_peer *p = make("--exchange allreduce --method topk --ratio 0.5 --memory error", true);
    float x[N] = {0}, g[N], memory[N] = {0};
    int zeros = 0;
    ok(nw_peer_begin(p, x));
    assert_non_null(strstr(nw_peer_note(p, 0), "layerwise"));
    assert_null(nw_peer_note(p, 1));
    assert_null(nw_peer_note(p, -1));
    for (int s = 0; s < 20; s++) {
        fill(g, s);
        for (int i = 0; i < N; i++) memory[i] += g[i];
        ok(nw_peer_reduce(p, g, NULL));
        for (int i = 0; i < N; i++) {
            zeros += g[i] == 0;
            if (g[i] == 0) continue;
            assert_true(g[i] == memory[i]); /* quarters are exact */
            memory[i] = 0;
        }
    }
    assert_true(zeros >= 20 * N / 2);
    ok(nw_peer_finish(p, NULL, NULL));
    nw_peer_free(p);
}

/* SGD with momentum 0.5 and weight decay 0.25, but for batch norm. */
static void check_update(const char *options, bool threaded)
{
    nw_peer *p = make(options, threaded);
    float x[N], g[N];
    double w[N], m[N] = {0};
    fill(x, 50);
    for (int i = 0; i < N; i++) w[i] = (double)x[i];
    ok(nw_peer_begin(p, x));
    for (int s = 0; s < 6; s++) {
        double rate = s < 3 ? 0.125 : 0.0625;
        if (s == 3) ok(nw_peer_set_learning_rate(p, rate));
        fill(g, s);
        for (int i = 0; i < N; i++) {
            m[i] = 0.5 * m[i] + (double)g[i] + (i < 16 ? 0.25 * w[i] : 0);
            w[i] -= rate * m[i];
        }
        ok(nw_peer_update(p, g, x));
        for (int i = 0; i < N; i++) assert_true(fabs((double)x[i] - w[i]) < 1e-5);
    }
    float last[N];
    ok(nw_peer_finish(p, last, NULL));
    assert_true(same(last, x));
    nw_peer_free(p);
}

static void test_the_optimizer_of_the_library_updates(void **state)
{
    (void)state;
    static const char *const rule =
        "--lr 0.125 --momentum 0.5 --weight-decay 0.25 --decay-filter no-norm-bias %s --max-steps 6";
    static const char *const exchanges[] = {"", "--exchange allreduce", "--exchange server",
                                            "--exchange server --communication async"};
    for (int e = 0; e < 4; e++) {
        char options[200];
        snprintf(options, sizeof options, rule, exchanges[e]);
        check_update(options, true);
        check_update(options, false);
    }
}

static void test_steps_of_the_programs_optimizer_are_merged(void **state)
{
    (void)state;
    for (int threaded = 0; threaded < 2; threaded++) {
        nw_peer *p = make("--exchange allreduce", threaded);
        float x[N], step[N], want[N];
        fill(x, 3);
        memcpy(want, x, sizeof x);
        ok(nw_peer_begin(p, x));
        for (int s = 0; s < 6; s++) {
            fill(step, s);
            for (int i = 0; i < N; i++) x[i] -= step[i], want[i] -= step[i];
            ok(nw_peer_merge(p, x));
            assert_true(same(x, want));
        }
        ok(nw_peer_finish(p, x, NULL));
        assert_true(same(x, want));
        nw_peer_statistics look;
        ok(nw_peer_look(p, &look));
        assert_int_equal(look.gradients, 6);
        assert_int_equal(look.updates, 6);
        assert_int_equal(look.messages_sent, 0);
        ok(nw_peer_mean(p, x, N));
        assert_true(same(x, want));
        nw_peer_free(p);
    }
}

/* Alone, gossip has nobody to average with: steps are as they were. */
static void test_gossip_alone_is_the_programs_own_optimizer(void **state)
{
    (void)state;
    static const char *const options[] = {"--exchange gossip", "--exchange gossip --apply-acid --max-steps 4"};
    for (int k = 0; k < 4; k++) {
        nw_peer *p = make(options[k / 2], k % 2);
        float x[N], step[N], want[N];
        assert_int_equal(nw_peer_ways(p), NW_PEER_UPDATE | NW_PEER_MERGE);
        fill(x, 3);
        memcpy(want, x, sizeof x);
        ok(nw_peer_begin(p, x));
        refused(nw_peer_reduce(p, step, NULL), NW_E_ARGUMENT, "call nw_peer_update or nw_peer_merge");
        for (int s = 0; s < 4; s++) {
            fill(step, s);
            for (int i = 0; i < N; i++) x[i] -= step[i], want[i] -= step[i];
            ok(nw_peer_merge(p, x));
            assert_true(same(x, want));
        }
        assert_int_equal(nw_peer_is_over(p), k / 2);
        ok(nw_peer_finish(p, x, NULL));
        assert_true(same(x, want));
        nw_peer_free(p);
    }
}

/* ---- the end of a run ---- */

static void test_a_run_of_so_many_steps_is_over_then(void **state)
{
    (void)state;
    float x[N] = {0}, g[N] = {0}, last[N];
    nw_peer *p = make("--exchange allreduce --max-steps 3 --lr 1 --momentum 0 --weight-decay 0", true);
    bool there;
    ok(nw_peer_begin(p, x));
    int steps = 0;
    for (; !nw_peer_is_over(p); steps++) {
        g[0] = 1;
        ok(nw_peer_update(p, g, x));
    }
    assert_int_equal(steps, 3);
    assert_true(x[0] == -3);
    ok(nw_peer_update(p, g, x)); /* does nothing */
    assert_true(x[0] == -3);
    ok(nw_peer_finish(p, last, NULL));
    assert_true(same(x, last));
    ok(nw_peer_begin(p, x)); /* and the next, in another way */
    for (steps = 0; !nw_peer_is_over(p); steps++) ok(nw_peer_merge(p, x));
    assert_int_equal(steps, 3);
    ok(nw_peer_merge(p, x));
    ok(nw_peer_finish(p, NULL, NULL));
    ok(nw_peer_begin(p, x));
    for (steps = 0; !nw_peer_is_over(p); steps++) ok(nw_peer_reduce(p, g, NULL));
    ok(nw_peer_reduce(p, g, &there));
    assert_false(there);
    ok(nw_peer_finish(p, NULL, NULL));
    nw_peer_free(p);
}

/* A program that fails just frees it, in the middle. */
static void test_a_peer_can_be_left_at_any_time(void **state)
{
    (void)state;
    float x[N] = {0};
    for (int threaded = 0; threaded < 2; threaded++) {
        nw_peer_free(make("", threaded));
        nw_peer *p = make("", threaded);
        ok(nw_peer_begin(p, x));
        nw_peer_free(p);
        p = make("--exchange allreduce --delay 1", threaded);
        ok(nw_peer_begin(p, x));
        ok(nw_peer_merge(p, x));
        nw_peer_free(p);
    }
    nw_peer_free(NULL);
}

/* ---- what is refused ---- */

static void test_what_makes_no_sense_is_refused(void **state)
{
    (void)state;
    refuse("--exchanges none", NW_E_ARGUMENT, "there is no option --exchanges");
    refuse("--exchange all", NW_E_ARGUMENT, "--exchange is none|allreduce|local|server|gossip");
    refuse("allreduce", NW_E_ARGUMENT, "'allreduce' is not understood here");
    refuse("--model resnet18", NW_E_ARGUMENT, "there is no option --model");
    refuse("--virtual 4", NW_E_ARGUMENT, "there is no option --virtual");
    refuse("--delay 1", NW_E_ARGUMENT, "add --exchange allreduce");
    refuse("--servers 2", NW_E_ARGUMENT, "add --exchange server");
    refuse("--exchange server", NW_E_ARGUMENT, "say how many, with --max-steps");
    refuse("--world-size 2", NW_E_ARGUMENT, "--world-size 2, but 1 ranks were started");
    refuse("--memory error", NW_E_ARGUMENT, "add --method");
    refuse("--method topk --ratio-warm-up 4", NW_E_ARGUMENT, "with --max-batches");
    refuse("--method topk --codec-for b.*=none", NW_E_ARGUMENT, "b.*");
    refuse("--clip-norm 1 --clip-value 1", NW_E_ARGUMENT, "clip");
    refuse("--exchange gossip --method topk --memory error", NW_E_ARGUMENT, "nothing is lost");
    refuse("--exchange gossip --method powersgd", NW_E_ARGUMENT, "averages in pairs");
    refuse("--exchange gossip --method topk --log-averagings logs", NW_E_ARGUMENT, "leave one out");
    refuse("--apply-acid", NW_E_ARGUMENT, "add --exchange gossip");
    refuse("--exchange gossip --graph-topology cube", NW_E_UNKNOWN, "cube");
    refuse("--log-averagings logs", NW_E_ARGUMENT, "add --exchange gossip");
    refuse("--exchange gossip --consensus-every 5", NW_E_ARGUMENT, "there is no option --consensus-every");
    refuse("--threads 0", NW_E_ARGUMENT, "--threads");
}

static void refuse_tensors(const nw_parameter_info *list, int count, nw_status status, const char *why)
{
    nw_peer *p;
    refused(nw_peer_create(&p, list, count, NULL, false), status, why);
    assert_null(p);
}

static void test_tensors_that_cannot_be_are_refused(void **state)
{
    (void)state;
    nw_parameter_info two[] = {{.name = "w", .dims = 1, .shape = {4}}, {.name = "w", .dims = 1, .shape = {4}}};
    refuse_tensors(two, 0, NW_E_ARGUMENT, "at least one tensor");
    refuse_tensors(two, 2, NW_E_ARGUMENT, "two tensors are named 'w'");
    two[1].name = "";
    refuse_tensors(two, 2, NW_E_ARGUMENT, "tensor 1 needs a name");
    two[1].name = NULL;
    refuse_tensors(two, 2, NW_E_ARGUMENT, "tensor 1 needs a name");
    two[1].name = "v";
    two[1].dims = 5;
    refuse_tensors(two, 2, NW_E_ARGUMENT, "at most 4 dimensions");
    two[1].dims = 2;
    refuse_tensors(two, 2, NW_E_SHAPE, "tensor 'v' has a dimension of 0");
    two[1].shape[0] = two[1].shape[1] = 65536;
    refuse_tensors(two, 2, NW_E_SHAPE, "more than 2^31");
}

static void test_calls_out_of_order_are_refused(void **state)
{
    (void)state;
    float x[N] = {0}, g[N] = {0};
    nw_peer *p = make("--exchange allreduce --delay 1", true);
    refused(nw_peer_merge(p, x), NW_E_ARGUMENT, "begin one with nw_peer_begin");
    refused(nw_peer_finish(p, x, NULL), NW_E_ARGUMENT, "no run");
    ok(nw_peer_begin(p, x));
    refused(nw_peer_begin(p, x), NW_E_ARGUMENT, "under way");
    refused(nw_peer_mean(p, x, N), NW_E_ARGUMENT, "between runs");
    refused(nw_peer_set_learning_rate(p, -1), NW_E_ARGUMENT, "not -1");
    refused(nw_peer_set_learning_rate(p, (double)NAN), NW_E_ARGUMENT, "finite");
    refused(nw_peer_reduce(p, g, NULL), NW_E_ARGUMENT, "--delay");
    ok(nw_peer_merge(p, x));
    refused(nw_peer_update(p, g, x), NW_E_ARGUMENT, "made with nw_peer_merge, and nw_peer_update is something else");
    ok(nw_peer_finish(p, NULL, NULL));
    nw_peer_free(p);

    static const struct {
        const char *options;
        int ways;
    } ways[] = {{"--method dgc", NW_PEER_UPDATE | NW_PEER_REDUCE},
                {"--method onebit --optimizer adam --freeze-variance 3", NW_PEER_UPDATE},
                {"--method topk --memory error", NW_PEER_UPDATE | NW_PEER_REDUCE | NW_PEER_MERGE}};
    for (int i = 0; i < 3; i++) {
        p = make(ways[i].options, false);
        assert_int_equal(nw_peer_ways(p), ways[i].ways);
        nw_peer_free(p);
    }
    p = make("--exchange server --max-steps 5", false);
    assert_int_equal(nw_peer_ways(p), NW_PEER_UPDATE);
    ok(nw_peer_begin(p, x));
    refused(nw_peer_reduce(p, g, NULL), NW_E_ARGUMENT, "nw_peer_reduce is not possible with --exchange server --method none; call nw_peer_update");
    refused(nw_peer_merge(p, x), NW_E_ARGUMENT, "nw_peer_merge is not possible with --exchange server");
    ok(nw_peer_update(p, g, x));
    refused(nw_peer_finish(p, x, NULL), NW_E_ARGUMENT, "go on until nw_peer_is_over");
    while (!nw_peer_is_over(p)) ok(nw_peer_update(p, g, x));
    ok(nw_peer_finish(p, x, NULL));
    nw_peer_free(p);
}

/* What fails in the library's thread is told by the next call, and all that follow. */
static void test_a_run_that_failed_stays_so(void **state)
{
    (void)state;
    float x[N] = {0}, g[N] = {0};
    for (int threaded = 0; threaded < 2; threaded++) {
        nw_peer *p = make("--clip-norm 1", threaded);
        ok(nw_peer_begin(p, x));
        g[20] = INFINITY;
        refused(nw_peer_update(p, g, x), NW_E_NUMERIC, "n.bias");
        g[20] = 0;
        refused(nw_peer_update(p, g, x), NW_E_NUMERIC, "n.bias");
        refused(nw_peer_turn(p), NW_E_NUMERIC, "n.bias");
        refused(nw_peer_finish(p, x, NULL), NW_E_NUMERIC, "n.bias");
        assert_true(nw_peer_is_over(p));
        nw_peer_free(p);
    }
}

static void test_roles_follow_from_shapes_and_names(void **state)
{
    (void)state;
    static const struct {
        nw_parameter_info tensor;
        nw_role role;
    } all[] = {{{.name = "c.weight", .dims = 4, .shape = {2, 3, 1, 1}}, NW_ROLE_CONV},
               {{.name = "c.bias", .dims = 1, .shape = {2}}, NW_ROLE_BIAS},
               {{.name = "n.weight", .dims = 1, .shape = {2}}, NW_ROLE_NORM_SCALE},
               {{.name = "n.bias", .dims = 1, .shape = {2}}, NW_ROLE_NORM_SHIFT},
               {{.name = "m.bias", .dims = 1, .shape = {2}}, NW_ROLE_BIAS},
               {{.name = "f.weight", .dims = 2, .shape = {5, 2}}, NW_ROLE_LINEAR},
               {{.name = "bias", .dims = 1, .shape = {5}}, NW_ROLE_BIAS},
               {{.name = "scale", .dims = 0}, NW_ROLE_NORM_SCALE}};
    enum { COUNT = sizeof all / sizeof all[0] };
    nw_parameter_info list[COUNT];
    nw_segments s = {0};
    for (int i = 0; i < COUNT; i++) list[i] = all[i].tensor;
    ok(nw_peer_list_tensors(&s, list, COUNT));
    for (int i = 0; i < COUNT; i++) assert_int_equal(s.at[i].role, all[i].role);
    assert_int_equal(s.floats, 6 + 2 + 2 + 2 + 2 + 10 + 5 + 1);
    nw_params p = {.learned = s};
    nw_params_free(&p);
}

/* ---- turns ---- */

static nw_status leave_pending(void *worker, nw_task *task, nw_announce *announce)
{
    (void)worker, (void)announce;
    task->pending = true;
    return NW_OK;
}

static void test_turns_are_for_real_time(void **state)
{
    (void)state;
    static const nw_worker_ops leaves = {.run = leave_pending};
    static const uint16_t alone = 0;
    float values[4], gradients[4];
    nw_params params = {.values = values, .gradients = gradients, .learned.floats = 4};
    nw_exchange_options o = {.name = "none", .group = {&alone, 1, 0}, .params = &params};
    nw_machine *exchange;
    nw_driver *local;
    nw_go go = {.until = 1, .batches = INT64_MAX};
    nw_turn turn;
    nw_rank rank = {.work = &leaves};
    stage s;
    ok(nw_exchange_create(&exchange, &o));
    ok(nw_program_create(&rank.machine, exchange, &params));
    ok(nw_local_create(&local, &(nw_driver_options){0}));
    ok(nw_driver_begin(local, &rank, &go));
    static const struct {
        nw_turn turn;
        bool finishes;
    } turns[] = {{NW_TURN_MOVED, false}, {NW_TURN_IDLE, false}, {NW_TURN_IDLE, true}, {NW_TURN_MOVED, false},
                 {NW_TURN_MOVED, false}, {NW_TURN_IDLE, true},  {NW_TURN_MOVED, false}, {NW_TURN_OVER, false}};
    for (size_t i = 0; i < sizeof turns / sizeof turns[0]; i++) {
        ok(nw_driver_turn(local, &turn));
        assert_int_equal(turn, turns[i].turn);
        if (turns[i].finishes) nw_driver_finish(&rank, false);
    }
    assert_int_equal(rank.machine->updates, 1);
    go.until = 2;
    refused(nw_driver_run(local, &rank, &go), NW_E_INTERNAL, "pending");
    nw_driver_free(local);
    nw_exchange_free(rank.machine);

    open_stage(&s, 1);
    make_virtual(&s);
    ok(nw_exchange_create(&exchange, &o));
    rank = (nw_rank){.work = &leaves};
    ok(nw_program_create(&rank.machine, exchange, &params));
    refused(nw_driver_begin(s.driver, &rank, &go), NW_E_UNSUPPORTED, "a time of its own");
    refused(nw_driver_run(s.driver, &rank, &go), NW_E_UNSUPPORTED, "left to a program");
    nw_exchange_free(rank.machine);
    close_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_mean_of_one_is_its_gradient),
        cmocka_unit_test(test_what_a_codec_keeps_back_is_delivered),
        cmocka_unit_test(test_the_optimizer_of_the_library_updates),
        cmocka_unit_test(test_steps_of_the_programs_optimizer_are_merged),
        cmocka_unit_test(test_gossip_alone_is_the_programs_own_optimizer),
        cmocka_unit_test(test_a_run_of_so_many_steps_is_over_then),
        cmocka_unit_test(test_a_peer_can_be_left_at_any_time),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
        cmocka_unit_test(test_tensors_that_cannot_be_are_refused),
        cmocka_unit_test(test_calls_out_of_order_are_refused),
        cmocka_unit_test(test_a_run_that_failed_stays_so),
        cmocka_unit_test(test_roles_follow_from_shapes_and_names),
        cmocka_unit_test(test_turns_are_for_real_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
